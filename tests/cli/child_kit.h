/* SPDX-License-Identifier: MIT */
/* child_kit.h - what ends the program, for tests: it does so in a child.
 */
#ifndef TEST_CHILD_KIT_H
#define TEST_CHILD_KIT_H

#include "harness.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* The exit code of fn, and what it wrote to stdout and stderr: into `into` of
 * so many bytes, with a NUL behind it. */
static inline int run_in_child(void (*fn)(void *), void *arg, char *into,
                               size_t room)
{
    int fds[2];
    int status;
    size_t n = 0;
    CHECK_INT_EQ(pipe(fds), 0);
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        dup2(fds[1], STDOUT_FILENO);
        dup2(fds[1], STDERR_FILENO);
        fn(arg);
        _exit(99);
    }
    close(fds[1]);
    for (ssize_t more; (more = read(fds[0], into + n, room - 1 - n)) > 0;)
        n += (size_t)more;
    into[n] = '\0';
    close(fds[0]);
    CHECK_INT_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#endif
