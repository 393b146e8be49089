/* SPDX-License-Identifier: MIT */
/* process.c - children, and memory in common with them. */
#include "process.h"
#include "bench.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void *new_shared(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    return at;
}

pid_t start_child(void (*run)(void *arg), void *arg)
{
    fflush(stdout);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid > 0)
        return pid;
    MUST(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0); /* not longer than us */
    run(arg);
    _exit(0);
}

void end_child(pid_t pid)
{
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    MUST(status == 0);
}

void nap_us(long us)
{
    struct timespec t = {.tv_nsec = us * 1000};
    (void)nanosleep(&t, NULL);
}

double percentile(double *values, size_t n, double percent)
{
    qsort(values, n, sizeof(values[0]), by_value);
    size_t at = (size_t)((double)n * percent / 100);
    return values[at < n ? at : n - 1];
}
