/* SPDX-License-Identifier: MIT */
/* map_run.h - one run of `vow map`: the state shared by the parts.
 *
 *   cmd_map.c   preparation, and --dry-run
 *   map_run.c   makes jobs of items, runs the jobs and shows the output
 *   map_stop.c  early ends of a run: failures, signals, closed output
 *   map_end.c   counts, logs, the summary and the exit code
 */
#ifndef VOW_CLI_MAP_RUN_H
#define VOW_CLI_MAP_RUN_H

#include "job.h"
#include "throttle.h"

enum { FAILURES_SHOWN = 20, SHOWN_BYTES = 200 };

struct failure {
    char *command;
    char end[32];
};

struct run {
    struct settings settings;
    struct jobs jobs;
    struct template_opts placeholders;
    struct input *input;
    vow_loop *loop;
    vow_mapping *mapping;
    struct throttle throttle;
    struct log *log;
    FILE *joblog;
    struct done *skip;
    bool skip_by_command;
    enum bar_style bar_style;
    struct bar_state bar;
    uint64_t began_ms;
    vow_call draw;
    vow_call stop_after;
    bool server; /* the job server of make limits the jobs */

    enum halt_when stopping;
    int by_signal; /* signal that ended the run; 0: none */
    int halt_code; /* exit code of the job that stopped the run; -1: none */
    bool ended;    /* the whole input was pulled */
    bool broken;   /* output or log cannot be written: exit with 125 */

    uint64_t pulled;
    uint64_t live;          /* jobs begun and not ended for good */
    size_t next_index;      /* with -k: index of the next job to show */
    struct job *held;       /* job to show when the flowing job has ended */
    vow_deferred *held_end; /* fulfilled when `held` was shown */
    uint64_t undelivered;   /* jobs ended and not shown yet */
    uint64_t done;
    uint64_t failed;
    uint64_t unrun;
    uint64_t skipped;
    size_t kept;        /* bytes of output waiting in memory with -k */
    size_t ahead;       /* bytes of items of jobs waiting to start */
    vow_deferred *room; /* fulfilled when `ahead` is small; NULL: no waiter */
    int worst;          /* worst exit code, for --exit xargs */
    struct failure failures[FAILURES_SHOWN];
    const char *unwritable;                 /* log or folder not written */
    uint64_t unrecorded;                    /* jobs ended and not recorded */
    struct failure missing[FAILURES_SHOWN]; /* the first unrecorded jobs */
    struct text command;
};
extern struct run run;

/* map_run.c: begins the run. The future is fulfilled when all jobs have ended
 * and were shown. */
vow_future *map_start(void);
/* Returns whether the log of an earlier run has this job. */
bool map_already_done(struct job *j);
void map_set_places(uint32_t places);
void map_draw(void);

/* map_stop.c: starts no more jobs. HALT_NOW also ends the running jobs, by the
 * signal `number` or, if `number` is 0, by the kill sequence. */
void map_stop(enum halt_when when, int number);
void map_check_halt(const struct job *j);
void map_on_signal(int number, bool by_terminal);
void map_on_output_fails(int fd, int error);
void map_on_stop_after(void *user);
void map_on_store_down(vow_error *e);

/* map_end.c */
void map_count(struct job *j);
void map_write_logs(struct job *j);
void map_finish(void);
int map_exit_code(void);

#endif
