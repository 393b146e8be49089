/* SPDX-License-Identifier: MIT */
/* spawn_floor.c - the floor of running commands: vfork, exec, wait, again.
 *
 * usage: bench_spawn_floor PARALLEL JOBS PROGRAM
 *
 * So many at a time and nothing else: no input, no output of theirs, no groups,
 * no signals. The distance to it is the price of everything that `vow map`
 * promises. Whoever started it takes the time, as of the others.
 */
#include "bench.h"

#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The number is its argument: `true` with one does more than without. */
static void start(char *program, long number)
{
    char text[32];
    char *const argv[] = {program, text, NULL};
    (void)snprintf(text, sizeof(text), "%ld", number);
    pid_t pid = vfork();
    if (pid == 0) {
        execve(program, argv, environ);
        _exit(127);
    }
    MUST(pid > 0);
}

static void end_one(void)
{
    int status;
    MUST(wait(&status) > 0);
    MUST(status == 0);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: %s PARALLEL JOBS PROGRAM\n", argv[0]);
        return 2;
    }
    long parallel = strtol(argv[1], NULL, 10);
    long left = strtol(argv[2], NULL, 10), running = 0;
    MUST(parallel > 0 && left > 0);
    while (left > 0 || running > 0) {
        for (; left > 0 && running < parallel; left--, running++)
            start(argv[3], left);
        end_one();
        running--;
    }
    return 0;
}
