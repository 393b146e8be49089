/* SPDX-License-Identifier: MIT */
/* plan.h - a random schedule for a gate or a semaphore: its limits, and steps
 * at instants.
 *
 * No two causes fall on the same nanosecond: each step and each end of a job
 * has a fraction of a millisecond of its own, and waiting for a rate moves it
 * by a nanosecond at a time. So the order of what happens is never a matter of
 * which timer was set first, unless both have the same cause.
 */
#ifndef TEST_PLAN_H
#define TEST_PLAN_H

#include "model.h"

enum { PLAN_STEPS = 48 };

/* What a plan makes use of: bits. */
enum {
    PLAN_PLACES = 1,
    PLAN_RATE = 2,
    PLAN_EVEN = 4,
    PLAN_PRIORITY = 8,
    PLAN_KEYS = 16,
    PLAN_KEY_LIMITS = 32,
    PLAN_BYPASS = 64,
    PLAN_QUEUE = 128,
    PLAN_OVERFLOW = 256,
    PLAN_DEADLINES = 512,
    PLAN_CHANGES = 1024,
    PLAN_PAUSES = 2048,
    PLAN_SEMAPHORE = 4096 /* only what one has; a change is of its size */
};

enum plan_kind {
    PLAN_ASK,
    PLAN_TRY,
    PLAN_CANCEL,
    PLAN_SET,
    PLAN_PAUSE,
    PLAN_RESUME,
    PLAN_REPORT,
    PLAN_CLEAR,
    PLAN_CLOSE,
    PLAN_IDLE,
    PLAN_ROOM
};

enum plan_work {
    PLAN_TAKES, /* some time */
    PLAN_FAILS, /* after some time */
    PLAN_AT_ONCE,
    PLAN_FAILS_AT_ONCE,
    PLAN_ENDLESS /* until it is asked to stop */
};

struct plan_step {
    enum plan_kind kind;
    uint32_t number; /* in the plan, from 0 */
    uint64_t at_ns;
    bool same_turn; /* right behind the step before it */
    struct model_job job;
    enum plan_work work;
    bool stubborn; /* goes on when it is asked to stop */
    uint64_t ms;   /* of work, of a deadline: see job; of a report */
    uint64_t deadline_ms;
    uint32_t target;            /* cancel: the job of this step */
    struct model_limits limits; /* set */
};

struct plan {
    uint32_t features;
    uint32_t n_steps;
    struct model_limits limits;
    struct plan_step steps[PLAN_STEPS];
};

/* The plan of a seed: always the same. */
void plan_make(struct plan *p, uint32_t features, uint64_t seed);

/* When a job that starts now and takes so long ends. */
uint64_t plan_end_ns(uint64_t now_ns, uint64_t ms, uint32_t number);

/* For people: the limits, a step. */
void plan_tell_limits(const struct model_limits *l);
void plan_tell_step(const struct plan_step *s);

#endif
