/* SPDX-License-Identifier: MIT */
/* map_run.h - one run of `vow map`: what its parts share.
 *
 *   cmd_map.c   getting ready, and --dry-run
 *   map_run.c   items become jobs, jobs are run and shown
 *   map_stop.c  what ends a run early: failures, signals, a reader that left
 *   map_end.c   counting, logs, the summary and the exit code
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
    bool server; /* of make */

    enum halt_when stopping;
    int by_signal; /* which ended us; 0: none */
    int halt_code; /* of the job that stopped the run; -1: none */
    bool ended;    /* all the input was pulled */
    bool broken;   /* of output or log: 125 */

    uint64_t pulled;
    uint64_t live;          /* begun, and not ended for good */
    size_t next_index;      /* with -k: whose turn it is */
    struct job *held;       /* its turn has come while another flows */
    vow_deferred *held_end; /* the map waits for it */
    uint64_t undelivered;   /* ended, and not shown yet */
    uint64_t done;
    uint64_t failed;
    uint64_t unrun;
    uint64_t skipped;
    size_t kept;        /* bytes of output that wait in memory with -k */
    size_t ahead;       /* bytes of items that wait to be started */
    vow_deferred *room; /* the source waits until that is less; NULL: no */
    int worst;          /* for --exit xargs */
    struct failure failures[FAILURES_SHOWN];
    const char *unwritable; /* the log or the folder that took no record */
    uint64_t unrecorded;    /* jobs that have ended and have none there */
    struct failure missing[FAILURES_SHOWN]; /* the first of these */
    struct text command;
};
extern struct run run;

/* map_run.c: begin; the future is settled when all is done and shown. */
vow_future *map_start(void);
/* Has the log of an earlier run this job? */
bool map_already_done(struct job *j);
void map_set_places(uint32_t places);
void map_draw(void);

/* map_stop.c: start nothing more; HALT_NOW: end what runs, by `number` or, if
 * that is 0, by its kill sequence. */
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
