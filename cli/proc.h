/* SPDX-License-Identifier: MIT */
/* proc.h - processes: starting, ending, and stopping them.
 *
 * WHY   vfork and one signalfd start and end a process with a third of the
 *       system calls of libuv's spawn, and a job's group dies with it.
 * HOW   Every process gets a group of its own (unless asked not to), is killed
 *       by the kernel when we die, and has the descriptors it is given and no
 *       other of ours. We adopt its orphans and reap them. See reaper.h for what
 *       happens when we are killed.
 * THREADS  loop thread only; one set of processes per program.
 */
#ifndef VOW_CLI_PROC_H
#define VOW_CLI_PROC_H

#include "units.h"

#include <sys/resource.h>
#include <sys/types.h>
#include <vow.h>

struct proc;
typedef void (*proc_fn)(struct proc *p);

struct proc_opts {
    const char *path; /* as proc_find() gives it */
    char *const *argv;
    char *const *env;
    int in, out, err;            /* become 0, 1 and 2 */
    int also;                    /* becomes proc_also_number(); -1: none */
    bool in_our_group;           /* for what reads the terminal */
    uint64_t timeout_ms;         /* 0: none */
    uint64_t seq;                /* of the job, as it is in its environment */
    const struct kill_seq *kill; /* outlives the process */
    proc_fn ended;   /* called once, when it has ended however; it may be used
                      again or freed inside */
    proc_fn stopped; /* called once, when the terminal has stopped it and it is
                        about to be ended: tells why; NULL: a general word */
};

/* In the caller's memory, where it stays until it has ended. */
struct proc {
    pid_t pid; /* 0: it does not run; negative: only its group is left */
    struct proc *next;
    proc_fn ended, stopped;
    const struct kill_seq *kill;
    size_t kill_at;   /* the step that comes next */
    int first;        /* instead of its first signal; 0: that */
    uint64_t most_ms; /* a step waits no longer, and KILL is the last; 0: as
                         the sequence says */
    vow_call timer;   /* its timeout, then the steps of its killing */
    bool own_group;
    bool timed_out;
    bool told;       /* to stop, for whatever reason */
    bool wanted_tty; /* and was stopped by the terminal for it */
    uint64_t seq;
    uint64_t start_us; /* since 1970 */
    uint64_t start_ns; /* of the loop's clock */
    /* When it has ended: */
    uint64_t wall_us;
    int status; /* of wait */
    struct rusage usage;
};

void procs_open(vow_loop *loop);
/* On SIGCHLD: see which have ended, and end those that wait for a terminal they
 * will never get. */
void procs_reap(void);
size_t procs_running(void);

/* The lowest number above 2 that was free when we were started: shells know
 * redirections of one digit only. */
int proc_also_number(void);

/* Where the program is, by PATH if it has no slash: 0 and *ret_path (owned by
 * the caller), or 127 not found, 126 not to be run. */
int proc_find(const char *program, char **ret_path);

/* Microseconds since 1970. */
uint64_t proc_now_us(void);

/* Are we in the foreground of a terminal, which a command may want to ask or to
 * be stopped by? Then it should stay in our group. */
bool proc_in_foreground(void);

/* Start: 0, or the errno of what failed; then nothing was started. */
int proc_start(struct proc *p, const struct proc_opts *o);

/* Begin with its kill sequence, once; `number` instead of its first signal,
 * unless that is 0. */
void proc_stop(struct proc *p, int number);
/* The same, and it is killed after that time at the latest. */
void proc_stop_within(struct proc *p, uint64_t ms);
/* A signal to its group. */
void proc_signal(const struct proc *p, int number);
/* To all that run: the same. Who left their groups is for reaper_kill_marked(). */
void procs_stop(int number);
void procs_signal(int number);

#endif
