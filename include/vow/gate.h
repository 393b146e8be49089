/* SPDX-License-Identifier: MIT */
/* vow/gate.h - admits jobs under a concurrency limit and a rate limit, by
 * weight, priority and key.
 *
 *     vow_gate_new(loop, VOW_GATE(.concurrent = 16, .rate = 50), &gate);
 *     vow_future *page = vow_gate_run(gate, fetch, url, NULL);
 *
 * A permit is a unit of the concurrency limit; a running job holds as many
 * permits as its weight. A job starts when every limit allows the start, and
 * takes from all limits in the same step: a job holds no permit while waiting
 * for the rate, and uses up no rate while waiting for a permit.
 *
 * Rate. The limit is exact: in any span of window_ms, both ends included, at
 * most `rate` units of weight start. A start has the time at which the start
 * function has returned.
 *
 * End. A job runs until the work behind the future returned by `start` has
 * ended (vow_ended()), whatever is chained to the future. So a canceled or late
 * job holds permits until the work has ended, not until the caller's future is
 * settled.
 *
 * Order. Keys take turns; jobs without a key are a key of their own. Within a
 * key, the higher priority goes first, where `age_ms` of waiting count as a
 * level; within a priority, the earlier arrival. Smaller jobs do not pass the
 * next job in turn, unless bypass allows them to.
 *
 * Owner: counted; jobs and permits keep the gate alive. Dropping the last
 * handle does not cancel waiting jobs.
 * Threads: loop thread only.
 */
#ifndef VOW_GATE_H
#define VOW_GATE_H

#include "vow/backing.h"
#include "vow/oracle.h"
#include "vow/permit.h"
#include "vow/retry.h"

VOW_BEGIN_DECLS

typedef struct vow_gate vow_gate;

/* The policy for a job that finds the queue full. A rejected job gets
 * VOW_EQUEUEFULL. */
enum vow_overflow {
    VOW_OVERFLOW_REJECT = 0,      /* reject the new job */
    VOW_OVERFLOW_DROP_OLDEST = 1, /* reject the job that waited longest */
    VOW_OVERFLOW_DROP_LOWEST = 2, /* reject the last job of lowest priority */
    VOW_OVERFLOW_WAIT = 3 /* wait outside for room, in order of arrival */
};

/* For .queue_max: no job waits; a job starts now or is rejected. */
#define VOW_NO_QUEUE UINT32_MAX

typedef struct vow_gate_opts {
    size_t size;           /* set by VOW_GATE */
    uint32_t concurrent;   /* weight at a time; 0: 2^32 - 1 */
    uint32_t rate;         /* weight started per window, to 2^24; 0: any */
    uint64_t window_ms;    /* of the rate; 0: 1000 */
    bool even;             /* starts are at least window / rate apart */
    uint32_t queue_max;    /* waiting jobs; 0: 1048576 */
    size_t queue_bytes;    /* sum of .bytes of waiting jobs; 0: any */
    uint32_t overflow;     /* enum vow_overflow */
    uint64_t age_ms;       /* a job that waits counts one level higher
                              after each of these spans; 0: 1000 */
    uint32_t bypass_count; /* how often a job waiting for permits may be passed
                              by jobs that fit, of the next 64 of the same key
                              and priority; 0: any, if bypass_ms is set */
    uint64_t bypass_ms;    /* a job may be passed only while waiting less; 0:
                              any, if bypass_count is set; both 0: never */
    uint32_t key_concurrent; /* limits of each key, as above; 0: any. Jobs */
    uint32_t key_rate;       /* without a key have no key limits. */
    uint64_t key_window_ms;
    uint32_t keys_max;  /* keys remembered at a time, beyond it
                           VOW_EQUEUEFULL; 0: 65536 */
    uint32_t adapt_min; /* the concurrency limit adapts between adapt_min, the
                           first limit, and .concurrent; 0: does not adapt */
    vow_retry_if_fn overloaded; /* whether a failure means overload: treated as
                                   vow_gate_report() for the job's key with the
                                   error's retry-after; NULL: no failure does */
    void *overloaded_user;
    vow_oracle *oracle;         /* checks the gate (vow/oracle.h); counted */
    const vow_backing *backing; /* asked before each start (vow/backing.h);
                                   counted; NULL: none */
} vow_gate_opts;
#define VOW_GATE(...)                                                          \
    (&(const vow_gate_opts){.size = sizeof(vow_gate_opts), __VA_ARGS__})

/* The policy for an inner job, requested from inside an outer job of the same
 * gate, if the inner job can never start before the outer job ends: an outer
 * job that waits for the inner job would wait for ever. */
enum vow_nested {
    VOW_NESTED_REFUSE = 0, /* reject the inner job with VOW_EDEADLK */
    VOW_NESTED_LEND = 1,   /* run the inner job on permits of the outer job,
                              which lends a permit to one job at a time */
    VOW_NESTED_APART = 2   /* queue the inner job as any other: the outer job
                              does not wait for the inner job */
};

typedef struct vow_job_opts {
    size_t size;                 /* set by VOW_JOB */
    uint32_t weight;             /* 0: 1 */
    int32_t priority;            /* -16 to 15, higher is sooner */
    const char *key;             /* copied; NULL: none */
    size_t bytes;                /* counted against queue_bytes while waiting */
    uint64_t deadline_ms;        /* for waiting, retries and running; 0: none */
    const vow_retry_opts *retry; /* each attempt passes the gate anew; copied */
    uint32_t nested;             /* enum vow_nested */
} vow_job_opts;
#define VOW_JOB(...)                                                           \
    (&(const vow_job_opts){.size = sizeof(vow_job_opts), __VA_ARGS__})

/* Makes a gate. Returns 0, VOW_EINVAL (a rate above 2^24, a window above 2^40
 * ms, ageing above a day, an unknown overflow, an adapt_min above .concurrent,
 * a backing without functions, options of another version) or VOW_ENOMEM;
 * *ret_gate is written only on success. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 3)
int vow_gate_new(vow_loop *loop, const vow_gate_opts *opts,
                 vow_gate **ret_gate);
VOW_API VOW_LOOP_THREAD vow_gate *vow_gate_ref(vow_gate *g);
VOW_API VOW_LOOP_THREAD vow_gate *vow_gate_unref(vow_gate *g); /* NULL */

/* Calls start(loop, attempt, arg) from the loop's queue when the limits allow.
 * Returns a future with the outcome of the future returned by `start`; however
 * the job ends, the permits are given back. Canceling the future of a waiting
 * job removes the job at once. A running job is asked to stop, and holds the
 * permits until the work has ended. Rejected: VOW_EINVAL (`start` is NULL, a
 * weight above a limit, a priority out of range), VOW_EQUEUEFULL, VOW_EDEADLK,
 * VOW_ECLOSED, the error of a backing, and VOW_ETIMEDOUT at the deadline, or at
 * once if the rate or a pause, as of now, allows no start before the deadline.
 * Since 0.1. */
#define vow_gate_run(g, start, arg, job)                                       \
    vow_gate_run_at(VOW_HERE, (g), (start), (arg), (job))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_gate_run_at(const char *site, vow_gate *g, vow_start_fn start,
                            void *arg, const vow_job_opts *job);

/* Requests a permit, for fibers and state machines: the future has the permit
 * (vow_permit_take()). The grant counts as the start. The deadline covers only
 * the wait; .retry and VOW_NESTED_LEND are refused with VOW_EINVAL. Rejected as
 * vow_gate_run(). */
#define vow_gate_enter(g, job) vow_gate_enter_at(VOW_HERE, (g), (job))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_gate_enter_at(const char *site, vow_gate *g,
                              const vow_job_opts *job);

/* Takes a permit now or not at all, and never passes a waiting job. Returns
 * whether *ret_permit holds the permit. Needs no memory without a key. With a
 * backing always returns false, since the backing would have to be asked. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 3)
bool vow_gate_try(vow_gate *g, const vow_job_opts *job, vow_permit *ret_permit);

/* Read the limits, and change limits while jobs wait and run. Starts under the
 * old rate still count, as far back as the old rate remembers. Jobs waiting for
 * more than the new limits ever allow are rejected with VOW_EINVAL. `overflow`,
 * `oracle` and `backing` do not change. vow_gate_set() returns 0, or VOW_EINVAL
 * or VOW_ENOMEM with nothing changed. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_gate_opts vow_gate_get(const vow_gate *g);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2)
int vow_gate_set(vow_gate *g, const vow_gate_opts *opts);

/* Pauses the gate: nothing starts until vow_gate_resume(). Calls are not
 * counted. Resuming also ends a pause of the whole gate by
 * vow_gate_report(). */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_gate_pause(vow_gate *g);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_gate_resume(vow_gate *g);

/* Reports overload of the service: pauses the key for `retry_after_ms`, or the
 * whole gate if `key` is NULL or cannot be remembered, and lowers an adaptive
 * limit. Of several reports the longest counts. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_gate_report(vow_gate *g, const char *key, uint64_t retry_after_ms);

/* Rejects all jobs not yet started with VOW_ECANCELED; `why` (borrowed, may be
 * NULL) is the cause. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_gate_clear(vow_gate *g, vow_error *why);
/* Rejects all jobs not yet started, and all later jobs, with VOW_ECLOSED. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_gate_close(vow_gate *g);

/* Return a future of nothing, fulfilled when no job waits or runs; and when a
 * job of `bytes` bytes would find room in the queue (VOW_EINVAL: never). A job
 * between two attempts neither waits nor runs. */
#define vow_gate_idle(g) vow_gate_idle_at(VOW_HERE, (g))
#define vow_gate_room(g, bytes) vow_gate_room_at(VOW_HERE, (g), (bytes))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_gate_idle_at(const char *site, vow_gate *g);
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_gate_room_at(const char *site, vow_gate *g, size_t bytes);

static inline void vow_gate_cleanup(vow_gate **g)
{
    vow_gate_unref(*g);
}

VOW_END_DECLS

#endif
