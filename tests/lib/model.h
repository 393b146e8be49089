/* SPDX-License-Identifier: MIT */
/* model.h - what a gate or a semaphore may do, written from the public headers
 * alone: slow, with all of history, and meant to be read.
 *
 * The model is a referee. It is told what was asked for and what happened, each
 * at its instant, and says whether that was allowed then: every start must be
 * the one whose turn it is, at the first nanosecond at which the limits let it,
 * and every other end must have its reason.
 *
 *   model_come()     a job is asked for: it is let in, waits, or is gone
 *   model_started()  its function was called
 *   model_ended()    it gives its places back
 *   model_settled()  its future has an outcome
 *   model_quiet()    all that the loop had to do at this instant is done
 *
 * The first thing that is wrong is kept in `failure`; after it, nothing more is
 * judged. Left open, so that either is right:
 *
 *   M1  which of two keys is first that their own limits let go while nothing
 *       started (model_round.c)
 *   M2  whether who waits outside comes in before or after another starts at
 *       the same instant (model_enter_one())
 *   M3  whether somebody is passed as soon as time alone allows it, or when
 *       something happens next (model_next())
 *   M4  a deadline that those ahead make impossible, if all of them start, may
 *       be refused at once; one that the past makes impossible must be
 *   M5  a job may start in the very instant of its deadline, and is over then
 *   M6  one that is asked to stop while it runs is rejected at once, or with
 *       what it ends with
 */
#ifndef TEST_MODEL_H
#define TEST_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MODEL_JOBS = 64,
    MODEL_KEYS = 4, /* 0: jobs without a key */
    MODEL_MS = 1000000
};

#define MODEL_NEVER UINT64_MAX

struct model_limits {
    uint32_t concurrent; /* 0: any, as everywhere here */
    uint32_t rate;
    uint64_t window_ns;
    bool even;
    uint32_t queue_max; /* jobs; UINT32_MAX: none may wait */
    size_t queue_bytes;
    uint32_t overflow; /* enum vow_overflow */
    uint64_t age_ns;
    uint32_t bypass_count;
    uint64_t bypass_ns;
    uint32_t key_concurrent;
    uint32_t key_rate;
    uint64_t key_window_ns;
};

enum model_state {
    MODEL_OUTSIDE, /* waits for room in the queue */
    MODEL_WAITS,
    MODEL_LET_IN, /* holds its places; its function is not called yet */
    MODEL_RUNS,
    MODEL_ENDED,
    MODEL_GONE /* never started */
};

struct model_job {
    uint32_t weight; /* these six are the caller's */
    int32_t priority;
    uint32_t key;
    size_t bytes;
    uint64_t due_ns; /* MODEL_NEVER: no deadline */
    bool only_waits; /* the deadline ends with the start */

    enum model_state state;
    uint64_t came_ns;
    uint32_t passed; /* by smaller ones, so often */
    int code;        /* gone: why */
    uint64_t gone_ns;
    bool loosely;      /* let in, where another might have been before it */
    uint64_t asked_ns; /* to stop, while it ran; MODEL_NEVER */
    bool settled;      /* its future has an outcome */
};

struct model_start {
    uint64_t at_ns;
    uint32_t number;
    uint32_t weight;
    uint32_t key;
    uint32_t known;     /* of the weight, what the rate still remembers */
    uint32_t key_known; /* and the rate of its key */
};

/* The place of a key in the round: from the one to the other. */
struct model_turn {
    bool in;       /* not skipped */
    uint64_t from; /* 0: nobody waits */
    uint64_t to;   /* MODEL_NEVER: behind all, for all we know */
};

struct model_counts {
    uint64_t started, ended, refused, dropped, canceled, expired;
};

struct model {
    struct model_limits limits;
    uint64_t now_ns;
    uint64_t event_ns; /* when the gate had a reason to look for the next */
    bool closed;
    bool paused;
    uint64_t paused_until_ns;
    uint64_t key_paused_until_ns[MODEL_KEYS];
    struct model_turn round[MODEL_KEYS];
    uint64_t last_place;
    uint64_t quiet_place;              /* the last when all was quiet */
    struct model_job jobs[MODEL_JOBS]; /* in order of arrival */
    uint32_t n_jobs;
    struct model_start starts[MODEL_JOBS];
    uint32_t n_starts;
    uint32_t memory; /* so much weight is remembered at most, newest first */
    uint32_t key_memory[MODEL_KEYS];
    uint32_t let_in[MODEL_JOBS]; /* in this order their functions are called */
    uint32_t n_let_in;
    struct model_counts counts;
    char failure[400]; /* empty: all was right so far */
};

void model_open(struct model *m, const struct model_limits *limits);

/* Time goes on. What had to happen before `now_ns` must have happened. */
void model_pass(struct model *m, uint64_t now_ns);
/* Nothing that could be done at this instant is left. */
void model_quiet(struct model *m);

/* Whether something may start now that was not let in yet, or come in. */
bool model_may_more(const struct model *m);

/* What is asked of the gate. A job gets the next number, from 0. What became of
 * it at once decides where either is right. */
enum model_fate {
    MODEL_IS_LET_IN,
    MODEL_IS_LET_IN_FOR_ANOTHER, /* who was dropped */
    MODEL_IS_LATE,
    MODEL_IS_OTHER
};
uint32_t model_come(struct model *m, const struct model_job *job,
                    enum model_fate fate);
void model_cancel(struct model *m, uint32_t number);
void model_set(struct model *m, const struct model_limits *limits);
void model_pause(struct model *m, bool paused);
/* Key 0: the whole gate. */
void model_report(struct model *m, uint32_t key, uint64_t for_ns);
void model_clear(struct model *m);
void model_close(struct model *m);
/* Asked for at once or not at all: whether it got it. Then it runs. */
uint32_t model_try(struct model *m, const struct model_job *job, bool got);

/* What happened. */
void model_started(struct model *m, uint32_t number);
void model_ended(struct model *m, uint32_t number);
/* It left the queue early, for its deadline. */
void model_expired(struct model *m, uint32_t number);
/* The future has this code, where `work` is what the job itself ended with. */
void model_settled(struct model *m, uint32_t number, int code, int work);

/* What can be looked up. */
uint32_t model_waiting(const struct model *m);
bool model_outside(const struct model *m); /* does anybody wait there? */
size_t model_waiting_bytes(const struct model *m);
uint32_t model_running(const struct model *m, uint32_t *ret_weight);
bool model_has_room(const struct model *m, size_t bytes);

__attribute__((format(printf, 2, 3))) void model_fail(struct model *m,
                                                      const char *format, ...);

/* ---- between the files of the model ------------------------------------- */

/* It takes its places and its share of the rates; its key goes to the end of
 * the round; whom it passed counts it. */
void model_take(struct model *m, uint32_t number, enum model_state state);
void model_leave(struct model *m, uint32_t number, int code, uint64_t *count);
/* A reason for the gate to look for the next. */
void model_happens(struct model *m);
bool model_is_queued(const struct model_job *j);
bool model_never_in(const struct model *m, const struct model_job *j);

/* When the limits allow this job, all else staying as it is; MODEL_NEVER. */
uint64_t model_gate_time(const struct model *m, const struct model_job *j);
uint64_t model_key_time(const struct model *m, const struct model_job *j);
/* Before that, its rates and the known ends of pauses do not let it: whatever
 * becomes of the others; and when all who are before it do start. */
uint64_t model_earliest(const struct model *m, const struct model_job *j);
uint64_t model_expected(const struct model *m, uint32_t number);
bool model_fits_ever(const struct model *m, const struct model_job *j);
/* Forget what is beyond the memory; and make it as long as new limits need. */
void model_remember(struct model *m);
void model_change_memory(struct model *m, const struct model_limits *next);

/* The job of a key that is next, or -1. */
int model_head(const struct model *m, uint32_t key);
/* Who is in the round, as things are now. */
void model_refresh(struct model *m);
/* Who waits outside comes in while there is room: all, or the next. */
void model_enter(struct model *m);
bool model_enter_one(struct model *m);
/* The key started one: it goes to the end. */
void model_turn_taken(struct model *m, uint32_t key);
bool model_round_is_empty(const struct model *m);
/* When the job that a key may start next may start, and which; MODEL_NEVER. */
uint64_t model_next_of(const struct model *m, uint32_t key, int *ret_number);
/* The earliest and the latest time of the next start, as things are. */
void model_next(const struct model *m, uint64_t *ret_first, uint64_t *ret_last);
/* Whether this job may start now. */
bool model_may_start(const struct model *m, uint32_t number);

#endif
