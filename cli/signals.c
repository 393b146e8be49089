/* SPDX-License-Identifier: MIT */
/* signals.c - see signals.h. */
#include "signals.h"
#include "ears.h"
#include "say.h"

#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const int cared_for[] = {SIGCHLD, SIGINT,  SIGTERM,  SIGHUP, SIGQUIT,
                                SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP};
enum { N_CARED = sizeof(cared_for) / sizeof(cared_for[0]), AT_ONCE = 16 };

static struct {
    sigset_t before;
    signal_fn fn;
    struct ear ear;
} signals;

static void on_signals(struct ear *e, uint32_t events);
static void quiet(int number);
static void nothing(int number);

void signals_open(signal_fn fn)
{
    sigset_t ours;
    struct sigaction was;
    (void)sigemptyset(&ours);
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, our children would vanish */
    for (int i = 0; i < N_CARED; i++)
        if (sigaction(cared_for[i], NULL, &was) == 0 &&
            was.sa_handler != SIG_IGN)
            (void)sigaddset(&ours, cared_for[i]);
    (void)sigprocmask(SIG_BLOCK, &ours, &signals.before);
    quiet(SIGPIPE);
    quiet(SIGXFSZ);
    signals.fn = fn;
    int fd = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0 || !ear_listen(&signals.ear, fd, EPOLLIN, on_signals))
        die(EXIT_BROKEN, "cannot wait for signals: %s", strerror(errno));
}

const sigset_t *signals_before(void)
{
    return &signals.before;
}

/* An error of write() instead; exec forgets a handler. */
static void quiet(int number)
{
    struct sigaction was, now = {.sa_handler = nothing};
    if (sigaction(number, NULL, &was) == 0 && was.sa_handler != SIG_IGN)
        (void)sigaction(number, &now, NULL);
}

static void nothing(int number)
{
    (void)number;
}

static void on_signals(struct ear *e, uint32_t events)
{
    struct signalfd_siginfo some[AT_ONCE];
    (void)events;
    ssize_t n = read(e->fd, some, sizeof(some));
    for (ssize_t i = 0; i < n / (ssize_t)sizeof(some[0]); i++)
        signals.fn((int)some[i].ssi_signo, some[i].ssi_code == SI_KERNEL);
}

void signals_stop_us(void)
{
    (void)kill(getpid(), SIGSTOP);
}

void signals_die(int number)
{
    sigset_t only;
    struct sigaction act = {.sa_handler = SIG_DFL};
    (void)sigaction(number, &act, NULL);
    (void)sigemptyset(&only);
    (void)sigaddset(&only, number);
    (void)kill(getpid(), number);
    (void)sigprocmask(SIG_UNBLOCK, &only, NULL);
    _exit(EXIT_SIGNAL + number); /* for one that does not kill */
}
