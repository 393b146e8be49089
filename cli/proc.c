/* SPDX-License-Identifier: MIT */
/* proc.c - see proc.h.
 *
 * HOW   A child is made by clone() with the memory of vow and on a stack of its
 *       own, as posix_spawn does: no page table is copied. Before exec, the
 *       child changes nothing in memory but `failed`.
 *
 *       A process with a begun kill sequence ends when its group is empty: the
 *       first process may be gone while others still clean up within the waits
 *       of the sequence. Orphans become children of vow, so SIGCHLD arrives
 *       when the last process of the group ends.
 * INVARIANTS
 *   P1  a process is in the table from the start until `ended` is called
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

struct child_args {
    const struct proc_opts *o;
    pid_t parent;
    int failed; /* errno of the failed call; 0: none */
};

static struct {
    vow_loop *loop;
    pid_t us;
    struct rlimit files; /* limit of descriptors for jobs */
    bool files_raised;
    int also; /* descriptor number of `also` in a child */
    struct proc *table[BUCKETS];
    size_t running;
    size_t stopping;   /* running processes with a begun kill sequence */
    bool all_stopping; /* procs_stop() was called */
} procs;

static char child_stack[STACK] __attribute__((aligned(64)));

static int fd_find_free(void);
static int child_exec(void *child_args);
static int proc_start_script(struct proc *p, const struct proc_opts *o);
static void proc_add(struct proc *p, const struct proc_opts *o);
static struct proc **proc_lookup(pid_t pid);
static bool proc_reap(void);
static void procs_end_stopped(void);
static void proc_ended(struct proc *p, int status, const struct rusage *usage);
static bool proc_group_is_alive(const struct proc *p);
static void proc_finish(struct proc *p);
static void on_proc_timeout(void *proc);
static void on_kill_step(void *proc);
static int file_is_runnable(const char *path);

/* Returns a free number: all descriptors of vow itself are closed on exec. */
static int fd_find_free(void)
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
    procs.also = fd_find_free();
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
        return file_is_runnable(program);
    }
    if (dirs == NULL)
        dirs = "/usr/local/bin:/usr/bin:/bin";
    while (program[0] != '\0') {
        size_t n = strcspn(dirs, ":");
        text_clear(&path);
        text_add(&path, n == 0 ? "." : dirs, n == 0 ? 1 : n);
        text_add_str(&path, "/");
        text_add_str(&path, program);
        int here = file_is_runnable(path.at);
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

static int file_is_runnable(const char *path)
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
    struct child_args args = {.o = o, .parent = procs.us};
    memset(p, 0, sizeof(*p));
    p->start_us = proc_now_us();
    p->start_ns = vow_loop_now_ns(procs.loop);
    pid_t pid = clone(child_exec, child_stack + STACK,
                      CLONE_VM | CLONE_VFORK | SIGCHLD, &args);
    if (pid < 0)
        return errno;
    if (args.failed != 0) {
        (void)waitpid(pid, NULL, 0);
        if (args.failed == ENOEXEC)
            return proc_start_script(p, o);
        return args.failed;
    }
    p->pid = pid;
    proc_add(p, o);
    return 0;
}

uint64_t proc_now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Runs in the child, with the memory of vow, while vow waits for exec. */
static int child_exec(void *child_args)
{
    struct child_args *args = child_args;
    const struct proc_opts *o = args->o;
    if (!o->in_our_group)
        (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != args->parent)
        _exit(EXIT_BROKEN); /* vow died before PR_SET_PDEATHSIG */
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
    args->failed = errno;
    _exit(EXIT_NOT_FOUND);
}

/* Runs a text file without #! by sh, as execvp does. */
static int proc_start_script(struct proc *p, const struct proc_opts *o)
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

static void proc_add(struct proc *p, const struct proc_opts *o)
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
                    vow_loop_due_ns(procs.loop, o->timeout_ms), on_proc_timeout,
                    p);
}

size_t procs_running(void)
{
    return procs.running;
}

/* ---- ending -------------------------------------------------------------- */

void procs_reap(void)
{
    while (proc_reap())
        ;
    procs_end_stopped();
    for (size_t i = 0; i < BUCKETS && procs.stopping > 0; i++)
        for (struct proc *p = procs.table[i], *next; p != NULL; p = next) {
            next = p->next;
            if (p->pid < 0 && !proc_group_is_alive(p))
                proc_finish(p);
        }
}

/* Reaps one process. Returns whether there was a process. While kill sequences
 * run, the number of the process is found first, then the process is reaped
 * (P2). */
static bool proc_reap(void)
{
    int status;
    struct rusage usage;
    pid_t pid = -1;
    if (procs.stopping > 0) {
        siginfo_t info = {.si_pid = 0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
            info.si_pid == 0)
            return false;
        pid = info.si_pid;
    }
    pid = wait4(pid, &status, WNOHANG, &usage);
    if (pid <= 0)
        return false;
    struct proc **at = proc_lookup(pid);
    reaper_forget(pid);
    if (*at != NULL)
        proc_ended(*at, status, &usage);
    return true;
}

/* Ends processes that the terminal has stopped. A background process that reads
 * the terminal (TTIN) or changes its modes (TTOU) is stopped with its group
 * until a shell brings the group to the foreground. No shell does so for the
 * groups of vow. */
static void procs_end_stopped(void)
{
    siginfo_t info = {.si_pid = 0};
    while (waitid(P_ALL, 0, &info, WSTOPPED | WNOHANG) == 0 &&
           info.si_pid != 0) {
        struct proc *p = *proc_lookup(info.si_pid);
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

static struct proc **proc_lookup(pid_t pid)
{
    struct proc **at = &procs.table[(unsigned)pid % BUCKETS];
    while (*at != NULL && (*at)->pid != pid)
        at = &(*at)->next;
    return at;
}

static void proc_ended(struct proc *p, int status, const struct rusage *usage)
{
    p->status = status;
    p->usage = *usage;
    p->wall_us = (vow_loop_now_ns(procs.loop) - p->start_ns) / 1000;
    if (p->told && p->own_group && proc_group_is_alive(p)) {
        p->pid = -p->pid; /* only the group is left */
        return;
    }
    proc_finish(p);
}

static bool proc_group_is_alive(const struct proc *p)
{
    pid_t group = p->pid < 0 ? p->pid : -p->pid;
    return kill(group, 0) == 0 || errno == EPERM;
}

static void proc_finish(struct proc *p)
{
    pid_t pid = p->pid < 0 ? -p->pid : p->pid;
    struct proc **at = &procs.table[(unsigned)pid % BUCKETS];
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    procs.running--;
    procs.stopping -= p->told;
    reaper_remove_group(pid);
    (void)vow_call_stop(&p->timer);
    if (p->told && !procs.all_stopping)
        (void)reaper_kill_marked(p->seq); /* processes that left the group */
    p->pid = 0;
    p->ended(p);
}

/* ---- stopping ------------------------------------------------------------ */

static void on_proc_timeout(void *proc)
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
    procs.stopping++;
    (void)vow_call_stop(&p->timer);
    on_kill_step(p);
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
    p->kill_at = p->kill->n; /* only KILL is left */
    (void)vow_call_stop(&p->timer);
    vow_call_at(&p->timer, procs.loop, vow_loop_due_ns(procs.loop, p->most_ms),
                on_kill_step, p);
}

static void on_kill_step(void *proc)
{
    struct proc *p = proc;
    if (p->kill_at > p->kill->n) { /* the process cannot be killed: give up */
        if (p->pid < 0)
            proc_finish(p);
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
                on_kill_step, p);
}

/* Sends a signal to the group, and SIGCONT: a stopped process handles no signal
 * but KILL until SIGCONT. */
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
    procs.all_stopping = true;
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
