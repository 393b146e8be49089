/* SPDX-License-Identifier: MIT */
/* proc.c - see proc.h.
 *
 * HOW   A child is made by clone() with our memory and on a stack of its own,
 *       as posix_spawn does: no page table is copied. It changes nothing but
 *       `failed` before exec.
 *
 *       Who was told to stop is over when nobody of its group is left: its
 *       first process may be gone while others still clean up within their
 *       grace. Orphans become our children, so the last of them tells us.
 * INVARIANTS
 *   P1  a process is in the table from its start until its end is told
 *   P2  the number of a group is used for killing only before the group's
 *       first process is reaped, or while others are in the group
 */
#include "proc.h"
#include "poller.h"
#include "reaper.h"
#include "say.h"
#include "signals.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BUCKETS = 256, STACK = 64 << 10, LINGER_MS = 1000 };

struct birth {
    const struct proc_opts *o;
    pid_t parent;
    int failed; /* errno */
};

static struct {
    vow_loop *loop;
    pid_t us;
    struct rlimit files; /* what jobs get */
    bool files_raised;
    int also; /* number */
    struct proc *table[BUCKETS];
    size_t running;
    size_t told; /* of these */
    bool ending; /* all are told */
} procs;

static char child_stack[STACK] __attribute__((aligned(64)));

static int free_number(void);
static int born(void *birth);
static int start_as_script(struct proc *p, const struct proc_opts *o);
static void watch(struct proc *p, const struct proc_opts *o);
static struct proc **find(pid_t pid);
static bool reap_one(void);
static void end_stopped(void);
static void ended(struct proc *p, int status, const struct rusage *usage);
static bool group_left(const struct proc *p);
static void finish(struct proc *p);
static void on_timeout(void *proc);
static void kill_step(void *proc);
static int runnable(const char *path);

/* Of ours, all are closed on exec. */
static int free_number(void)
{
    for (int fd = 3; fd < 10; fd++) {
        int flags = fcntl(fd, F_GETFD);
        if (flags < 0 || (flags & FD_CLOEXEC) != 0)
            return fd;
    }
    return 10;
}

int proc_also_number(void)
{
    return procs.also;
}

void procs_open(vow_loop *loop)
{
    procs.also = free_number();
    procs.loop = loop;
    procs.us = getpid();
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    struct rlimit all;
    if (getrlimit(RLIMIT_NOFILE, &procs.files) == 0 &&
        procs.files.rlim_cur < procs.files.rlim_max) {
        all = procs.files;
        all.rlim_cur = all.rlim_max;
        procs.files_raised = setrlimit(RLIMIT_NOFILE, &all) == 0;
    }
}

/* ---- starting ------------------------------------------------------------ */

int proc_find(const char *program, char **ret_path)
{
    const char *dirs = getenv("PATH");
    int rc = EXIT_NOT_FOUND;
    struct text path = {0};
    if (strchr(program, '/') != NULL) {
        *ret_path = mem_copy(program, strlen(program));
        return runnable(program);
    }
    if (dirs == NULL)
        dirs = "/usr/local/bin:/usr/bin:/bin";
    while (program[0] != '\0') {
        size_t n = strcspn(dirs, ":");
        text_clear(&path);
        text_add(&path, n == 0 ? "." : dirs, n == 0 ? 1 : n);
        text_add_str(&path, "/");
        text_add_str(&path, program);
        int here = runnable(path.at);
        if (here == 0) {
            *ret_path = path.at;
            return 0;
        }
        rc = here == EXIT_CANNOT_RUN ? here : rc;
        if (dirs[n] == '\0')
            break;
        dirs += n + 1;
    }
    text_free(&path);
    *ret_path = NULL;
    return rc;
}

static int runnable(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return errno == EACCES ? EXIT_CANNOT_RUN : EXIT_NOT_FOUND;
    return S_ISREG(st.st_mode) && access(path, X_OK) == 0 ? 0 : EXIT_CANNOT_RUN;
}

bool proc_in_foreground(void)
{
    int fd = open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY);
    bool yes = fd >= 0 && tcgetpgrp(fd) == getpgrp();
    if (fd >= 0)
        (void)close(fd);
    return yes;
}

int proc_start(struct proc *p, const struct proc_opts *o)
{
    struct birth b = {.o = o, .parent = procs.us};
    memset(p, 0, sizeof(*p));
    p->start_us = proc_now_us();
    p->start_ns = vow_loop_now_ns(procs.loop);
    pid_t pid =
        clone(born, child_stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, &b);
    if (pid < 0)
        return errno;
    if (b.failed != 0) {
        (void)waitpid(pid, NULL, 0);
        if (b.failed == ENOEXEC)
            return start_as_script(p, o);
        return b.failed;
    }
    p->pid = pid;
    watch(p, o);
    return 0;
}

uint64_t proc_now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* In our memory, while we wait. */
static int born(void *birth)
{
    struct birth *b = birth;
    const struct proc_opts *o = b->o;
    if (!o->in_our_group)
        (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != b->parent)
        _exit(EXIT_BROKEN); /* we were too late to hear of it */
    if (dup2(o->in, 0) < 0 || dup2(o->out, 1) < 0 || dup2(o->err, 2) < 0)
        goto fail;
    if (o->also == procs.also)
        (void)fcntl(o->also, F_SETFD, 0);
    else if (o->also >= 0)
        (void)dup2(o->also, procs.also);
    if (procs.files_raised)
        (void)setrlimit(RLIMIT_NOFILE, &procs.files);
    (void)sigprocmask(SIG_SETMASK, signals_before(), NULL);
    (void)execve(o->path, o->argv, o->env);
fail:
    b->failed = errno;
    _exit(EXIT_NOT_FOUND);
}

/* A text without #! is for sh, as execvp has it. */
static int start_as_script(struct proc *p, const struct proc_opts *o)
{
    static const char sh[] = "/bin/sh";
    size_t n = 0;
    if (strcmp(o->path, sh) == 0)
        return ENOEXEC;
    while (o->argv[n] != NULL)
        n++;
    const char **argv = mem_new((n + 2) * sizeof(argv[0]));
    argv[0] = "sh";
    argv[1] = o->path;
    for (size_t i = 1; i < n; i++)
        argv[i + 1] = o->argv[i];
    struct proc_opts script = *o;
    script.path = sh;
    script.argv = (char *const *)(void *)argv;
    int rc = proc_start(p, &script);
    free(argv);
    return rc;
}

static void watch(struct proc *p, const struct proc_opts *o)
{
    struct proc **bucket = &procs.table[(unsigned)p->pid % BUCKETS];
    p->next = *bucket;
    *bucket = p;
    procs.running++;
    p->own_group = !o->in_our_group;
    if (p->own_group)
        reaper_add_group(p->pid);
    p->kill = o->kill;
    p->seq = o->seq;
    p->ended = o->ended;
    p->stopped = o->stopped;
    if (o->timeout_ms > 0)
        vow_call_at(&p->timer, procs.loop,
                    vow_loop_due_ns(procs.loop, o->timeout_ms), on_timeout, p);
}

size_t procs_running(void)
{
    return procs.running;
}

/* ---- ending -------------------------------------------------------------- */

void procs_reap(void)
{
    while (reap_one())
        ;
    end_stopped();
    for (size_t i = 0; i < BUCKETS && procs.told > 0; i++)
        for (struct proc *p = procs.table[i], *next; p != NULL; p = next) {
            next = p->next;
            if (p->pid < 0 && !group_left(p))
                finish(p);
        }
}

/* Those told to stop are looked at before they are reaped: keeps P2. */
static bool reap_one(void)
{
    int status;
    struct rusage usage;
    pid_t pid = -1;
    if (procs.told > 0) {
        siginfo_t info = {.si_pid = 0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
            info.si_pid == 0)
            return false;
        pid = info.si_pid;
    }
    pid = wait4(pid, &status, WNOHANG, &usage);
    if (pid <= 0)
        return false;
    struct proc **at = find(pid);
    reaper_forget(pid);
    if (*at != NULL)
        ended(*at, status, &usage);
    return true;
}

/* In the background of a terminal, a process that reads it (TTIN) or changes its
 * modes (TTOU) is stopped with its group, until somebody brings the group to the
 * foreground. Nobody does that for a group of ours. */
static void end_stopped(void)
{
    siginfo_t info = {.si_pid = 0};
    while (waitid(P_ALL, 0, &info, WSTOPPED | WNOHANG) == 0 &&
           info.si_pid != 0) {
        struct proc *p = *find(info.si_pid);
        bool by_terminal =
            info.si_status == SIGTTIN || info.si_status == SIGTTOU;
        if (p != NULL && by_terminal && p->own_group && !p->told) {
            p->wanted_tty = true;
            if (p->stopped != NULL)
                p->stopped(p);
            else
                say("the command wants to use the terminal and cannot, as it "
                    "runs in the background: it is ended");
            proc_stop(p, 0);
        }
        info.si_pid = 0;
    }
}

static struct proc **find(pid_t pid)
{
    struct proc **at = &procs.table[(unsigned)pid % BUCKETS];
    while (*at != NULL && (*at)->pid != pid)
        at = &(*at)->next;
    return at;
}

static void ended(struct proc *p, int status, const struct rusage *usage)
{
    p->status = status;
    p->usage = *usage;
    p->wall_us = (vow_loop_now_ns(procs.loop) - p->start_ns) / 1000;
    if (p->told && p->own_group && group_left(p)) {
        p->pid = -p->pid; /* its group; the steps go on */
        return;
    }
    finish(p);
}

static bool group_left(const struct proc *p)
{
    pid_t group = p->pid < 0 ? p->pid : -p->pid;
    return kill(group, 0) == 0 || errno == EPERM;
}

static void finish(struct proc *p)
{
    pid_t pid = p->pid < 0 ? -p->pid : p->pid;
    struct proc **at = &procs.table[(unsigned)pid % BUCKETS];
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    procs.running--;
    procs.told -= p->told;
    reaper_remove_group(pid);
    (void)vow_call_stop(&p->timer);
    if (p->told && !procs.ending)
        (void)reaper_kill_marked(p->seq); /* who left the group */
    p->pid = 0;
    p->ended(p);
}

/* ---- stopping ------------------------------------------------------------ */

static void on_timeout(void *proc)
{
    struct proc *p = proc;
    p->timed_out = true;
    proc_stop(p, 0);
}

void proc_stop(struct proc *p, int number)
{
    if (p->pid == 0 || p->told)
        return;
    p->told = true;
    p->first = number;
    procs.told++;
    (void)vow_call_stop(&p->timer);
    kill_step(p);
}

void proc_stop_within(struct proc *p, uint64_t ms)
{
    if (p->pid == 0)
        return;
    size_t waits = p->kill->n;
    waits -= waits > 0 && p->kill->steps[waits - 1].signal == SIGKILL;
    p->most_ms = ms / (waits > 0 ? waits : 1) + 1;
    if (!p->told) {
        proc_stop(p, 0);
        return;
    }
    p->kill_at = p->kill->n; /* it had its chance */
    (void)vow_call_stop(&p->timer);
    vow_call_at(&p->timer, procs.loop, vow_loop_due_ns(procs.loop, p->most_ms),
                kill_step, p);
}

static void kill_step(void *proc)
{
    struct proc *p = proc;
    if (p->kill_at > p->kill->n) { /* it cannot be ended: leave it */
        if (p->pid < 0)
            finish(p);
        return;
    }
    uint64_t wait_ms = LINGER_MS;
    if (p->kill_at < p->kill->n) {
        const struct kill_step *step = &p->kill->steps[p->kill_at];
        wait_ms = step->wait_ms;
        int number = p->kill_at == 0 && p->first != 0 ? p->first : step->signal;
        if (number != 0)
            proc_signal(p, number);
        if (p->most_ms > 0 && wait_ms > p->most_ms)
            wait_ms = p->most_ms;
    } else if (p->most_ms > 0) {
        proc_signal(p, SIGKILL);
    }
    p->kill_at++;
    vow_call_at(&p->timer, procs.loop, vow_loop_due_ns(procs.loop, wait_ms),
                kill_step, p);
}

/* A stopped process hears of nothing but KILL until it goes on. */
void proc_signal(const struct proc *p, int number)
{
    pid_t whom = p->pid > 0 && p->own_group ? -p->pid : p->pid;
    if (whom == 0)
        return;
    (void)kill(whom, number);
    if (number != SIGKILL && number != SIGSTOP && number != SIGTSTP &&
        number != SIGCONT)
        (void)kill(whom, SIGCONT);
}

void procs_stop(int number)
{
    procs.ending = true;
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct proc *p = procs.table[i]; p != NULL; p = p->next)
            proc_stop(p, number);
}

void procs_signal(int number)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct proc *p = procs.table[i]; p != NULL; p = p->next)
            proc_signal(p, number);
}
