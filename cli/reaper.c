/* SPDX-License-Identifier: MIT */
/* reaper.c - see reaper.h.
 *
 * HOW   /proc/PID/environ is what the process was started with; a child that
 *       has not called exec has its parent's. A hunt ends when a pass finds
 *       nobody: who is forked during a pass is found in the next.
 * LIMITS  a pass reads the environment of every process of ours: milliseconds,
 *       so it is only done to what was told to stop and did not, and at the
 *       end by a signal.
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

/* Shared with the guardian: the groups that run. */
struct groups {
    pid_t at[GROUPS];
};

static struct {
    struct groups *groups; /* NULL: there is no guardian */
    char run[64];          /* its word; behind it comes the job's number */
    bool had_children;     /* when we began: our parent's, from before exec */
    pid_t pid;
    int farewell; /* the end of a pipe; the guardian has the other */
} guard = {.farewell = -1};

_Noreturn static void watch(int fd);
static const char *run(void);
static int pass(uint64_t seq);
static bool kill_marked(pid_t pid, uint64_t seq);
static bool has(pid_t pid, uint64_t seq);
static bool names(const char *words, uint64_t seq);
static char *environ_of(pid_t pid, size_t *ret_n);
static size_t children(pid_t *ret_pids, size_t room);

void reaper_mark(struct text *ret_word, uint64_t seq)
{
    const char *outer = getenv("VOW_RUN");
    text_clear(ret_word);
    text_add_str(ret_word, "VOW_RUN=");
    if (outer != NULL && outer[0] != '\0')
        text_addf(ret_word, "%s,", outer);
    text_addf(ret_word, "%s%llu", run(), (unsigned long long)seq);
}

static const char *run(void)
{
    struct timespec now;
    if (guard.run[0] == '\0') {
        (void)clock_gettime(CLOCK_REALTIME, &now);
        (void)snprintf(guard.run, sizeof(guard.run), "%d.%lld.%ld#", getpid(),
                       (long long)now.tv_sec, now.tv_nsec);
    }
    return guard.run;
}

void reaper_start(void)
{
    int ends[2];
    pid_t first;
    (void)run();
    guard.had_children = children(&first, 1) > 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return; /* without it we still end our jobs unless we are killed */
    void *shared = mmap(NULL, sizeof(*guard.groups), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    guard.groups = shared == MAP_FAILED ? NULL : shared;
    guard.pid = fork();
    if (guard.pid == 0) {
        (void)close(ends[1]);
        watch(ends[0]);
    }
    (void)setpgid(guard.pid, guard.pid); /* whoever is first */
    (void)close(ends[0]);
    guard.farewell = ends[1];
}

void reaper_end(void)
{
    if (guard.pid <= 0)
        return;
    (void)kill(guard.pid, SIGKILL);
    while (waitpid(guard.pid, NULL, 0) < 0 && errno == EINTR)
        ;
    (void)close(guard.farewell);
    guard.pid = 0;
}

void reaper_forget(pid_t pid)
{
    if (pid == guard.pid)
        guard.pid = 0; /* somebody has killed it */
}

/* Signals for the group of the terminal are not for it. */
static void watch(int fd)
{
    char c;
    sigset_t all;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    (void)setpgid(0, 0); /* or it would be killed with our group */
    (void)prctl(PR_SET_NAME, "vow-guard");
    (void)close_range(0, (unsigned)fd - 1, 0); /* locks, and others' pipes */
    (void)close_range((unsigned)fd + 1, ~0U, 0);
    ssize_t n;
    do {
        n = read(fd, &c, 1);
    } while (n < 0 && errno == EINTR);
    for (size_t i = 0; guard.groups != NULL && i < GROUPS; i++)
        if (guard.groups->at[i] > 1)
            (void)kill(-guard.groups->at[i], SIGKILL);
    (void)reaper_kill_marked(0);
    _exit(0);
}

void reaper_add_group(pid_t group)
{
    for (size_t i = 0; guard.groups != NULL && i < GROUPS; i++)
        if (guard.groups->at[i] == 0) {
            guard.groups->at[i] = group;
            return;
        }
}

void reaper_remove_group(pid_t group)
{
    for (size_t i = 0; guard.groups != NULL && i < GROUPS; i++)
        if (guard.groups->at[i] == group) {
            guard.groups->at[i] = 0;
            return;
        }
}

int reaper_kill_marked(uint64_t seq)
{
    int killed = 0, n = 1;
    for (int i = 0; i < PASSES && n > 0; i++) {
        n = pass(seq);
        killed += n;
        if (i > 1 && n > 0)
            (void)usleep(1000); /* who is killed may take a moment */
    }
    return killed;
}

/* Once over all processes; returns how many were killed. */
static int pass(uint64_t seq)
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
        n += pid != getpid() && kill_marked(pid, seq);
    }
    (void)closedir(all);
    return n;
}

/* The descriptor is opened first: it stays with the process whose environment
 * is read, also if that ends meanwhile and another process gets the number. A
 * kernel or a filter without such descriptors (or none left) leaves kill(). */
static bool kill_marked(pid_t pid, uint64_t seq)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return errno != ESRCH && has(pid, seq) && kill(pid, SIGKILL) == 0;
    bool killed = has(pid, seq) &&
                  syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0;
    (void)close(fd);
    return killed;
}

/* A zombie has no environment any more. */
static bool has(pid_t pid, uint64_t seq)
{
    static const char name[] = "VOW_RUN=";
    size_t n;
    bool found = false;
    char *all = environ_of(pid, &n);
    for (char *at = all; at < all + n && !found; at += strlen(at) + 1)
        found = strncmp(at, name, sizeof(name) - 1) == 0 &&
                names(at + sizeof(name) - 1, seq);
    free(all);
    return found;
}

/* Is one of the words of this run, and of this job unless that is 0? */
static bool names(const char *words, uint64_t seq)
{
    size_t n = strlen(guard.run);
    for (;; words++) {
        if (strncmp(words, guard.run, n) == 0 &&
            (seq == 0 || strtoull(words + n, NULL, 10) == seq))
            return true;
        words = strchr(words, ',');
        if (words == NULL)
            return false;
    }
}

static char *environ_of(pid_t pid, size_t *ret_n)
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
    text_add(&t, "", 0); /* a NUL behind */
    *ret_n = t.n;
    return t.at;
}

/* The number of a child is nobody else's until the child is waited for. */
void reaper_kill_children(void)
{
    static pid_t all[CHILDREN];
    for (int i = 0, n = 1; i < PASSES && n > 0 && !guard.had_children; i++) {
        n = 0;
        size_t there = children(all, CHILDREN);
        for (size_t k = 0; k < there; k++)
            n += all[k] != guard.pid && kill(all[k], SIGKILL) == 0 &&
                 waitpid(all[k], NULL, 0) == all[k];
    }
}

/* Those we have now, adopted ones too. */
static size_t children(pid_t *ret_pids, size_t room)
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
