/* SPDX-License-Identifier: MIT */
/* reaper.c - see reaper.h.
 *
 * HOW   /proc/PID/environ has the environment at the start of a process; a
 *       child that has not called exec has the environment of the parent. The
 *       passes over /proc end when a pass finds no process: a process forked
 *       during a pass is found in the next pass.
 * LIMITS  a pass reads the environment of every process of the user, which
 *       takes milliseconds. So passes are made only for jobs with a begun kill
 *       sequence, and when a signal or --halt now ends the run.
 */
#include "reaper.h"
#include "say.h"
#include "text.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PASSES = 1000, ENVIRON_MAX = 1 << 22, GROUPS = 4096, CHILDREN = 4096 };

/* Groups of running jobs, shared with the reaper process. */
struct groups {
    pid_t at[GROUPS];
};

static struct {
    struct groups *groups; /* NULL: no shared memory */
    char mark[64];         /* mark of this run; the number of the job follows */
    bool had_children;     /* vow had children at its start, from before exec */
    pid_t pid;
    int alive_pipe; /* pipe to the reaper process, closed when vow dies */
} reaper = {.alive_pipe = -1};

_Noreturn static void reaper_run(int fd);
static const char *run_mark(void);
static int reaper_pass(uint64_t seq);
static bool process_kill_marked(pid_t pid, uint64_t seq);
static bool process_has_mark(pid_t pid, uint64_t seq);
static bool marks_include(const char *words, uint64_t seq);
static char *process_environ(pid_t pid, size_t *ret_n);
static size_t children_list(pid_t *ret_pids, size_t room);

void reaper_mark(struct text *ret_word, uint64_t seq)
{
    const char *outer = getenv("VOW_RUN");
    text_clear(ret_word);
    text_add_str(ret_word, "VOW_RUN=");
    if (outer != NULL && outer[0] != '\0')
        text_addf(ret_word, "%s,", outer);
    text_addf(ret_word, "%s%llu", run_mark(), (unsigned long long)seq);
}

static const char *run_mark(void)
{
    struct timespec now;
    if (reaper.mark[0] == '\0') {
        (void)clock_gettime(CLOCK_REALTIME, &now);
        (void)snprintf(reaper.mark, sizeof(reaper.mark), "%d.%lld.%ld#",
                       getpid(), (long long)now.tv_sec, now.tv_nsec);
    }
    return reaper.mark;
}

void reaper_start(void)
{
    int ends[2];
    pid_t first;
    (void)run_mark();
    reaper.had_children = children_list(&first, 1) > 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return; /* jobs are still ended unless vow is killed */
    void *shared = mmap(NULL, sizeof(*reaper.groups), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    reaper.groups = shared == MAP_FAILED ? NULL : shared;
    reaper.pid = fork();
    if (reaper.pid == 0) {
        (void)close(ends[1]);
        reaper_run(ends[0]);
    }
    (void)setpgid(reaper.pid, reaper.pid); /* the child does the same */
    (void)close(ends[0]);
    reaper.alive_pipe = ends[1];
}

void reaper_end(void)
{
    if (reaper.pid <= 0)
        return;
    (void)kill(reaper.pid, SIGKILL);
    while (waitpid(reaper.pid, NULL, 0) < 0 && errno == EINTR)
        ;
    (void)close(reaper.alive_pipe);
    reaper.pid = 0;
}

void reaper_forget(pid_t pid)
{
    if (pid == reaper.pid)
        reaper.pid = 0; /* another process killed the reaper process */
}

/* The reaper process: waits for the end of vow, then kills. Signals of the
 * terminal are blocked. */
static void reaper_run(int fd)
{
    char c;
    sigset_t all;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    (void)setpgid(0, 0); /* else killed with the group of vow */
    (void)prctl(PR_SET_NAME, "vow-guard");
    (void)close_range(0, (unsigned)fd - 1, 0); /* inherited locks and pipes */
    (void)close_range((unsigned)fd + 1, ~0U, 0);
    ssize_t n;
    do {
        n = read(fd, &c, 1);
    } while (n < 0 && errno == EINTR);
    for (size_t i = 0; reaper.groups != NULL && i < GROUPS; i++)
        if (reaper.groups->at[i] > 1)
            (void)kill(-reaper.groups->at[i], SIGKILL);
    (void)reaper_kill_marked(0);
    _exit(0);
}

void reaper_add_group(pid_t group)
{
    for (size_t i = 0; reaper.groups != NULL && i < GROUPS; i++)
        if (reaper.groups->at[i] == 0) {
            reaper.groups->at[i] = group;
            return;
        }
}

void reaper_remove_group(pid_t group)
{
    for (size_t i = 0; reaper.groups != NULL && i < GROUPS; i++)
        if (reaper.groups->at[i] == group) {
            reaper.groups->at[i] = 0;
            return;
        }
}

int reaper_kill_marked(uint64_t seq)
{
    int killed = 0, n = 1;
    for (int i = 0; i < PASSES && n > 0; i++) {
        n = reaper_pass(seq);
        killed += n;
        if (i > 1 && n > 0)
            (void)usleep(1000); /* killed processes may need a moment to end */
    }
    return killed;
}

/* Makes one pass over all processes. Returns how many were killed. */
static int reaper_pass(uint64_t seq)
{
    int n = 0;
    DIR *all = opendir("/proc");
    if (all == NULL)
        return 0;
    const struct dirent *entry;
    while ((entry = readdir(all)) != NULL) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        n += pid != getpid() && process_kill_marked(pid, seq);
    }
    (void)closedir(all);
    return n;
}

/* Kills a process if the process has the mark. The pidfd is opened before the
 * environment is read: so the same process is killed, also if the process ends
 * meanwhile and the number is used again. If the kernel or a filter has no
 * pidfd_open(), or no descriptor is left, kill() is used. */
static bool process_kill_marked(pid_t pid, uint64_t seq)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return errno != ESRCH && process_has_mark(pid, seq) &&
               kill(pid, SIGKILL) == 0;
    bool killed = process_has_mark(pid, seq) &&
                  syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0;
    (void)close(fd);
    return killed;
}

/* Returns whether the process has the mark. A zombie has no environment any
 * more. */
static bool process_has_mark(pid_t pid, uint64_t seq)
{
    static const char name[] = "VOW_RUN=";
    size_t n;
    bool found = false;
    char *all = process_environ(pid, &n);
    for (char *at = all; at < all + n && !found; at += strlen(at) + 1)
        found = strncmp(at, name, sizeof(name) - 1) == 0 &&
                marks_include(at + sizeof(name) - 1, seq);
    free(all);
    return found;
}

/* Returns whether one of the marks is of this run and, unless `seq` is 0, of
 * this job. */
static bool marks_include(const char *words, uint64_t seq)
{
    size_t n = strlen(reaper.mark);
    for (;; words++) {
        if (strncmp(words, reaper.mark, n) == 0 &&
            (seq == 0 || strtoull(words + n, NULL, 10) == seq))
            return true;
        words = strchr(words, ',');
        if (words == NULL)
            return false;
    }
}

static char *process_environ(pid_t pid, size_t *ret_n)
{
    char path[64];
    struct text t = {0};
    char chunk[4096];
    ssize_t got = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/environ", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && t.n < ENVIRON_MAX &&
           (got = read(fd, chunk, sizeof(chunk))) > 0)
        text_add(&t, chunk, (size_t)got);
    if (fd >= 0)
        (void)close(fd);
    text_add(&t, "", 0); /* makes room and sets a NUL */
    *ret_n = t.n;
    return t.at;
}

/* The number of a child is not used again before waitpid(). */
void reaper_kill_children(void)
{
    static pid_t all[CHILDREN];
    for (int i = 0, n = 1; i < PASSES && n > 0 && !reaper.had_children; i++) {
        n = 0;
        size_t there = children_list(all, CHILDREN);
        for (size_t k = 0; k < there; k++)
            n += all[k] != reaper.pid && kill(all[k], SIGKILL) == 0 &&
                 waitpid(all[k], NULL, 0) == all[k];
    }
}

/* Lists the children of vow, also adopted children. */
static size_t children_list(pid_t *ret_pids, size_t room)
{
    char path[64], word[16];
    size_t n = 0;
    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
    FILE *f = fopen(path, "re");
    while (f != NULL && n < room && fscanf(f, "%15s", word) == 1)
        ret_pids[n++] = (pid_t)strtol(word, NULL, 10);
    if (f != NULL)
        (void)fclose(f);
    return n;
}
