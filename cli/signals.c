/* SPDX-License-Identifier: MIT */
/* signals.c - see signals.h. */
#include "signals.h"
#include "poller.h"
#include "say.h"

#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const int handled_signals[] = {SIGCHLD, SIGINT,   SIGTERM,
                                      SIGHUP,  SIGQUIT,  SIGUSR1,
                                      SIGUSR2, SIGWINCH, SIGTSTP};
enum {
    N_HANDLED = sizeof(handled_signals) / sizeof(handled_signals[0]),
    AT_ONCE = 16
};
enum { SAME_NS = 20000000, SAME_SENDER_NS = 1000000000 };

static struct {
    vow_loop *loop;
    sigset_t before;
    signal_fn fn;
    struct poller poller;
    int last;             /* the last of INT, TERM, HUP and QUIT; 0: none */
    uint32_t last_sender; /* process id; 0: the kernel */
    uint64_t last_ns;
} signals;

static void on_signals(struct poller *poller, uint32_t events);
static bool signal_is_repeated(int number, uint32_t sender);
static void signal_catch(int number);
static void on_signal_ignored(int number);

void signals_open(vow_loop *loop, signal_fn fn)
{
    sigset_t ours;
    struct sigaction was;
    (void)sigemptyset(&ours);
    (void)signal(SIGCHLD, SIG_DFL); /* SIG_IGN would reap children */
    for (int i = 0; i < N_HANDLED; i++)
        if (sigaction(handled_signals[i], NULL, &was) == 0 &&
            was.sa_handler != SIG_IGN)
            (void)sigaddset(&ours, handled_signals[i]);
    (void)sigprocmask(SIG_BLOCK, &ours, &signals.before);
    signal_catch(SIGPIPE);
    signal_catch(SIGXFSZ);
    signals.loop = loop;
    signals.fn = fn;
    int fd = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0 || !poller_watch(&signals.poller, fd, EPOLLIN, on_signals))
        die(EXIT_BROKEN, "cannot wait for signals: %s", strerror(errno));
}

const sigset_t *signals_before(void)
{
    return &signals.before;
}

/* Catches a signal, so that a failing write() returns an error and does not end
 * vow. Unlike an ignored signal, exec resets a caught signal to the default. */
static void signal_catch(int number)
{
    struct sigaction was, now = {.sa_handler = on_signal_ignored};
    if (sigaction(number, NULL, &was) == 0 && was.sa_handler != SIG_IGN)
        (void)sigaction(number, &now, NULL);
}

static void on_signal_ignored(int number)
{
    (void)number;
}

static void on_signals(struct poller *poller, uint32_t events)
{
    struct signalfd_siginfo some[AT_ONCE];
    (void)events;
    ssize_t n = read(poller->fd, some, sizeof(some));
    for (ssize_t i = 0; i < n / (ssize_t)sizeof(some[0]); i++)
        if (!signal_is_repeated((int)some[i].ssi_signo, some[i].ssi_pid))
            signals.fn((int)some[i].ssi_signo, some[i].ssi_code == SI_KERNEL);
}

/* Returns whether the signal only repeats the last signal. timeout(1) and
 * shells signal a process and then the group: two signals mean one request. A
 * busy machine delays the second signal; both signals have the same sender. */
static bool signal_is_repeated(int number, uint32_t sender)
{
    if (number != SIGINT && number != SIGTERM && number != SIGHUP &&
        number != SIGQUIT)
        return false;
    const uint64_t now = vow_loop_now_ns(signals.loop);
    const bool same_sender = sender != 0 && sender == signals.last_sender;
    if (number == signals.last &&
        now - signals.last_ns < (same_sender ? SAME_SENDER_NS : SAME_NS))
        return true;
    signals.last = number;
    signals.last_sender = sender;
    signals.last_ns = now;
    return false;
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
    _exit(EXIT_SIGNAL + number); /* for a signal that does not kill */
}
