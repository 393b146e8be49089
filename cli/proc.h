/* SPDX-License-Identifier: MIT */
/* proc.h - starts, stops and reaps processes.
 *
 * WHY   vfork and one signalfd start and end a process with a third of the
 *       system calls of libuv's spawn, and a process can be ended together with
 *       its process group.
 * HOW   Every process gets a process group of its own (unless the caller asks
 *       otherwise), is killed by the kernel when vow dies, and inherits only
 *       the given descriptors. vow adopts and reaps the orphans of a process.
 *       reaper.h explains what happens when vow is killed.
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
    const char *path; /* as returned by proc_find() */
    char *const *argv;
    char *const *env;
    int in, out, err;            /* become 0, 1 and 2 */
    int also;                    /* becomes proc_also_number(); -1: none */
    bool in_our_group;           /* stay in vow's group, to read the terminal */
    uint64_t timeout_ms;         /* 0: no timeout */
    uint64_t seq;                /* number of the job in VOW_RUN */
    const struct kill_seq *kill; /* must live longer than the process */
    proc_fn ended;               /* called once, at the end; may free or reuse
                                    the struct proc */
    proc_fn stopped;             /* called once, before a process stopped by the
                                    terminal is ended: writes why; NULL: a
                                    general message */
};

/* A process. The struct is the caller's memory and must not move before `ended`
 * was called. */
struct proc {
    pid_t pid; /* 0: does not run; negative: only the group -pid is left */
    struct proc *next;
    proc_fn ended, stopped;
    const struct kill_seq *kill;
    size_t kill_at;   /* index of the next step of `kill` */
    int first;        /* signal instead of the first of `kill`; 0: none */
    uint64_t most_ms; /* longest wait of a step, then KILL; 0: as `kill` says */
    vow_call timer;   /* the timeout, then the steps of `kill` */
    bool own_group;
    bool timed_out;
    bool told;       /* proc_stop() was called, for any reason */
    bool wanted_tty; /* stopped by the terminal for using the terminal */
    uint64_t seq;
    uint64_t start_us; /* microseconds since 1970 */
    uint64_t start_ns; /* by the loop's clock */
    /* Set when the process has ended: */
    uint64_t wall_us;
    int status; /* of wait4() */
    struct rusage usage;
};

void procs_open(vow_loop *loop);
/* Reaps ended processes, and ends processes that the terminal has stopped. To
 * be called on SIGCHLD. */
void procs_reap(void);
size_t procs_running(void);

/* Returns the lowest descriptor number above 2 that was free when vow started:
 * shells know redirections of one digit only. */
int proc_also_number(void);

/* Finds the program, by PATH if the name has no slash. Returns 0 and *ret_path
 * (owned by the caller), or 127: not found, 126: cannot be run. */
int proc_find(const char *program, char **ret_path);

/* Returns microseconds since 1970. */
uint64_t proc_now_us(void);

/* Returns whether vow is in the foreground of a terminal. Then a command that
 * may use the terminal, or be stopped by Ctrl-Z, should stay in vow's group. */
bool proc_in_foreground(void);

/* Starts the process. Returns 0, or the errno of the failed call; then nothing
 * was started. */
int proc_start(struct proc *p, const struct proc_opts *o);

/* Begins the kill sequence, once; sends `number` instead of the first signal,
 * unless `number` is 0. */
void proc_stop(struct proc *p, int number);
/* Begins the kill sequence, and kills the process after `ms` at the latest. */
void proc_stop_within(struct proc *p, uint64_t ms);
/* Sends a signal to the group of the process. */
void proc_signal(const struct proc *p, int number);
/* The same for all running processes. reaper_kill_marked() kills processes that
 * left their groups. */
void procs_stop(int number);
void procs_signal(int number);

#endif
