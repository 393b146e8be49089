/* SPDX-License-Identifier: MIT */
/* load.h - jobs for a gate, and a record of what started when.
 *
 *     struct load l;
 *     load_open(&l, VOW_GATE(.concurrent = 1));
 *     load_run(&l, 10, NULL);
 *     load_run(&l, 10, VOW_JOB(.priority = 1));
 *     world_advance_ms(l.w, 20);
 *     CHECK_STR_EQ(l.order, "ab");
 *     load_close(&l);
 *
 * Jobs are called a, b, c and so on, in the order they were made. What a job
 * shall do may be set until it starts. A load stays where it is: jobs point
 * into it.
 */
#ifndef TEST_LOAD_H
#define TEST_LOAD_H

#include "world.h"

enum { LOAD_JOBS = 1200, LOAD_STARTS = 2000, LOAD_PENDING = 1 };

/* As `run_ms`: until load_end(). */
#define LOAD_FOR_EVER UINT64_MAX

struct load;

struct load_job {
    struct load *load;
    vow_future *f; /* of vow_gate_run() */
    char name;
    uint64_t run_ms;         /* of each attempt */
    uint64_t stop_ms;        /* so long it goes on when asked to stop */
    uint32_t fails;          /* so many attempts fail, then it succeeds */
    int code;                /* of the failures; 0: VOW_EIO */
    uint64_t retry_after_ms; /* told with each failure */
    uint32_t weight;
    uint32_t starts; /* attempts so far */
    bool runs;
    bool asked; /* to stop */
    vow_deferred *end;
    vow_call call;
};

struct load_start {
    const struct load_job *job;
    uint64_t at_ns;
};

struct load {
    struct world *w;
    vow_gate *gate;
    struct world own;
    size_t n_jobs;
    size_t n_starts;
    uint32_t weight; /* running now */
    uint32_t peak;
    char order[LOAD_STARTS + 1]; /* the names, as they started */
    struct load_start starts[LOAD_STARTS];
    struct load_job jobs[LOAD_JOBS];
};

/* Open a world with one gate; or a gate in a world of a sweep: its code. */
void load_open(struct load *l, const vow_gate_opts *opts);
int load_join(struct load *l, struct world *w, const vow_gate_opts *opts);

/* A job by itself, and one that is given to the gate. */
struct load_job *load_job(struct load *l, uint64_t run_ms);
struct load_job *load_run(struct load *l, uint64_t run_ms,
                          const vow_job_opts *opts);
void load_run_many(struct load *l, int n, uint64_t run_ms,
                   const vow_job_opts *opts);
/* The vow_start_fn of a job: its value is its name. */
vow_future *load_start(vow_loop *loop, uint32_t attempt, void *arg);
/* End a job that runs. */
void load_end(struct load_job *j);

/* 0, the code it was rejected with, or LOAD_PENDING. */
int load_code(const struct load_job *j);
/* When start number `i` was, from 0; now. */
uint64_t load_ns(const struct load *l, size_t i);
uint64_t load_ms(const struct load *l, size_t i);
uint64_t load_now_ms(const struct load *l);
/* The most weight that started in a span so long, both ends included. */
uint64_t load_most_within(const struct load *l, uint64_t window_ms);
vow_gate_stats load_stats(const struct load *l);

/* End what runs and what then starts, drop all futures and the gate, and close
 * the world as strictly as world_close(). */
#define load_close(l) load_close_at(TEST_HERE, (l))
void load_close_at(const char *site, struct load *l);
/* Close the loop at once, with everything under way: nothing starts any more
 * and everything settles. And then all the rest. */
#define load_close_loop(l) load_close_loop_at(TEST_HERE, (l))
void load_close_loop_at(const char *site, struct load *l);
#define load_close_dirty(l) load_close_dirty_at(TEST_HERE, (l))
void load_close_dirty_at(const char *site, struct load *l);
/* Drop all futures and the gate. In a sweep: each job succeeded, or the fault
 * explains why not. */
void load_drop(struct load *l);
void load_leave(struct load *l);

#endif
