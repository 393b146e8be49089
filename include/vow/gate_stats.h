/* SPDX-License-Identifier: MIT */
/* vow/gate_stats.h - what a gate is doing, and why a job still waits.
 *
 * Threads: loop thread only.
 */
#ifndef VOW_GATE_STATS_H
#define VOW_GATE_STATS_H

#include "vow/gate.h"

VOW_BEGIN_DECLS

typedef struct vow_gate_stats {
    size_t waiting;       /* jobs in the queue, outside for room, and those that
                             ask the backing */
    size_t waiting_bytes; /* of those in the queue */
    size_t running;       /* jobs and permits */
    size_t weight;        /* that they hold, and those that ask the backing */
    uint32_t concurrent;  /* the limit now, adapted or not; 0: any */
    size_t keys;          /* known */
    uint64_t started;     /* since it was made: */
    uint64_t ended;
    uint64_t failed;   /* of the ended */
    uint64_t refused;  /* at once: queue full, deadline, deadlock, closed; and
                          by the backing */
    uint64_t dropped;  /* out of the queue: overflow, clear, close, change */
    uint64_t canceled; /* out of the queue by their callers */
    uint64_t expired;  /* out of the queue by their deadlines */
} vow_gate_stats;

VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2)
void vow_gate_stats_get(const vow_gate *g, vow_gate_stats *ret_stats);

/* What keeps a job from starting: bits. */
enum vow_blocked {
    VOW_BY_ORDER = 1,       /* others are to start before it */
    VOW_BY_CONCURRENCY = 2, /* the places it needs are taken */
    VOW_BY_RATE = 4,        /* too much started within the window */
    VOW_BY_KEY = 8,         /* its key's own limits */
    VOW_BY_PAUSE = 16,      /* the gate is paused, or its key */
    VOW_BY_ROOM = 32,       /* it waits outside a full queue */
    VOW_BY_BACKING = 64     /* the shared limit: it has asked the backing */
};

enum vow_job_state {
    VOW_JOB_UNKNOWN = 0, /* no job of this gate, or it has ended */
    VOW_JOB_WAITS = 1,
    VOW_JOB_STARTS = 2, /* it is let in, and begins in this turn */
    VOW_JOB_RUNS = 3
};

typedef struct vow_job_explain {
    uint32_t state;        /* enum vow_job_state */
    uint32_t blocked;      /* enum vow_blocked bits, while it waits */
    size_t ahead;          /* jobs that start before it, as things stand */
    uint64_t waited_ms;    /* running: how long it ran */
    uint64_t starts_in_ms; /* expected, by the limits and by how long jobs ran
                              so far; UINT64_MAX: cannot be said */
} vow_job_explain;

/* Look into a job by the future vow_gate_run() or vow_gate_enter() returned. It
 * walks the queue. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2, 3)
void vow_gate_explain(const vow_gate *g, const vow_future *job,
                      vow_job_explain *ret_explain);

/* The same as a sentence, as snprintf() writes it: "waits for 120 ms behind 3
 * others; the places it needs are taken; expected to start in 80 ms". */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
size_t vow_job_explain_text(const vow_job_explain *x, char *text, size_t size);

VOW_END_DECLS

#endif
