/* SPDX-License-Identifier: MIT */
/* drive.h - random schedules against the real thing, with the model watching.
 *
 *     drive_many(&gate_front, PLAN_PLACES | PLAN_RATE, 2500);
 *
 * runs so many plans (plan.h), each in a fresh world with a seed of its own,
 * and tells the model (model.h) of every event in the instant it happens. When
 * the model disagrees, the steps that are not needed for that are left out one
 * by one, what remains is told as a story, and how to replay it:
 * VOW_SCHEDULE=seed in the environment runs that schedule alone.
 */
#ifndef TEST_DRIVE_H
#define TEST_DRIVE_H

#include "plan.h"
#include "world.h"

struct drive;

struct drive_job {
    struct drive *drive;
    const struct plan_step *step;
    uint32_t number;    /* the model's */
    vow_future *future; /* what was returned; NULL for a try */
    vow_deferred *end;  /* of the work, while it runs */
    vow_permit permit;
    vow_call call; /* the work ends by itself */
    int work;      /* what it ended with */
    uint64_t start_ns;
    uint32_t started, ended; /* as which event, from 1; 0: it did not */
};

/* The real thing. What a semaphore does not have is NULL. */
struct drive_front {
    int (*open)(struct drive *d);
    vow_future *(*ask)(struct drive *d, struct drive_job *j);
    bool (*is_let_in)(struct drive *d, const struct drive_job *j);
    bool (*ask_now)(struct drive *d, struct drive_job *j);
    int (*set)(struct drive *d, const struct model_limits *l);
    void (*pause)(struct drive *d, bool paused);
    void (*report)(struct drive *d, uint32_t key, uint64_t ms);
    void (*clear)(struct drive *d);
    void (*close)(struct drive *d);
    vow_future *(*idle)(struct drive *d);
    vow_future *(*room)(struct drive *d, size_t bytes);
    void (*check)(struct drive *d); /* its figures against the model's */
    void (*drop)(struct drive *d);
};

enum { DRIVE_WATCHES = 8 };

/* A future of "idle" or "room". */
struct drive_watch {
    vow_future *future;
    bool room; /* else idle */
    size_t bytes;
    bool true_once; /* since it was made: it must be settled */
    bool maybe;     /* who waits outside, or how, is before it: it may be */
};

struct drive {
    const struct drive_front *front;
    struct world w;
    vow_gate *gate; /* the front's */
    vow_sem *sem;
    vow_oracle *oracle;
    bool two_handed;   /* asks for permits, not for calls */
    bool changed;      /* limits were changed on the way */
    bool stopped_one;  /* a job that ran: that is enough for one turn */
    bool last;         /* no more steps: all shall end */
    bool tell;         /* the story, on stderr */
    uint64_t left_out; /* steps, by bits */
    struct plan plan;
    struct model model;
    vow_call call; /* the next step */
    uint32_t step;
    uint32_t events; /* starts and ends */
    struct drive_job jobs[MODEL_JOBS];
    uint32_t job_of[PLAN_STEPS]; /* the number, or MODEL_JOBS */
    struct drive_watch watches[DRIVE_WATCHES];
    uint32_t n_watches;
};

/* VOW_DRIVE_SCHEDULES: how many schedules instead of `count`. */
void drive_many(const struct drive_front *front, uint32_t features,
                uint32_t count);

/* For a front: the job's function was called, and returns this. */
vow_future *drive_start(vow_loop *loop, uint32_t attempt, void *job);
/* Two figures that should be the same. */
void drive_same(struct drive *d, const char *what, uint64_t got, uint64_t want);

/* ---- between the files of the drive ------------------------------------- */

/* Whether all was right; else the model has the failure. */
bool drive_run(struct drive *d, const struct drive_front *front,
               uint32_t features, uint64_t seed);
/* Nothing is left; the limits against all starts and ends, pair by pair. */
void drive_check_end(struct drive *d);
__attribute__((format(printf, 2, 3))) void drive_tell(struct drive *d,
                                                      const char *format, ...);

#endif
