/* SPDX-License-Identifier: MIT */
/* vow/gate_stats.h - counters of a gate, and why a job still waits.
 *
 * Threads: loop thread only.
 */
#ifndef VOW_GATE_STATS_H
#define VOW_GATE_STATS_H

#include "vow/gate.h"

VOW_BEGIN_DECLS

typedef struct vow_gate_stats {
    size_t waiting;       /* jobs in the queue, outside the queue, and asking
                             the backing */
    size_t waiting_bytes; /* .bytes of jobs in the queue */
    size_t running;       /* jobs and permits */
    size_t weight;        /* held by these, and by jobs asking the backing */
    uint32_t concurrent;  /* current limit, adapted or not; 0: any */
    size_t keys;          /* remembered */
    uint64_t started;     /* this and the following: since the gate was made */
    uint64_t ended;
    uint64_t failed;   /* ended with an error */
    uint64_t refused;  /* at once: queue full, deadline, deadlock, closed; or
                          by the backing */
    uint64_t dropped;  /* from the queue: overflow, clear, close, new limits */
    uint64_t canceled; /* from the queue, by the callers */
    uint64_t expired;  /* from the queue, at the deadline */
} vow_gate_stats;

VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2)
void vow_gate_stats_get(const vow_gate *g, vow_gate_stats *ret_stats);

/* The reasons that keep a job from starting, as bits. */
enum vow_blocked {
    VOW_BY_ORDER = 1,       /* other jobs start first */
    VOW_BY_CONCURRENCY = 2, /* too few permits are free */
    VOW_BY_RATE = 4,        /* too much weight started within the window */
    VOW_BY_KEY = 8,         /* a limit of the job's key */
    VOW_BY_PAUSE = 16,      /* the gate or the job's key is paused */
    VOW_BY_ROOM = 32,       /* the job waits outside a full queue */
    VOW_BY_BACKING = 64     /* the backing was asked, and has not answered */
};

enum vow_job_state {
    VOW_JOB_UNKNOWN = 0, /* no job of this gate, or the job has ended */
    VOW_JOB_WAITS = 1,
    VOW_JOB_STARTS = 2, /* admitted, begins in this turn */
    VOW_JOB_RUNS = 3
};

typedef struct vow_job_explain {
    uint32_t state;        /* enum vow_job_state */
    uint32_t blocked;      /* enum vow_blocked bits, of a waiting job */
    size_t ahead;          /* jobs to start before this job, as of now */
    uint64_t waited_ms;    /* since the arrival; running: since the start */
    uint64_t starts_in_ms; /* estimate by the limits and the mean run time of
                              past jobs; UINT64_MAX: unknown */
} vow_job_explain;

/* Explains the state of a job. `job` is the future from vow_gate_run() or
 * vow_gate_enter(). Walks the queue: O(waiting jobs). Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2, 3)
void vow_gate_explain(const vow_gate *g, const vow_future *job,
                      vow_job_explain *ret_explain);

/* Writes the explanation as a sentence, and returns the length, as snprintf()
 * does: "waits for 120 ms behind 3 others; expected to start in 80 ms". */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
size_t vow_job_explain_text(const vow_job_explain *x, char *text, size_t size);

VOW_END_DECLS

#endif
