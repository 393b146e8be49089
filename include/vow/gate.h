/* SPDX-License-Identifier: MIT */
/* vow/gate.h - one admission object: so many at once, so many per second, by
 * weight, by priority, by key.
 *
 *     vow_gate_new(loop, VOW_GATE(.concurrent = 16, .rate = 50), &gate);
 *     vow_future *page = vow_gate_run(gate, fetch, url, NULL);
 *
 * A job starts when every limit allows it, and takes them all in one step: no
 * place is held while it waits for the rate, none of the rate is used up while
 * it waits for a place.
 *
 * Rate is exact: in any span of window_ms, both ends included, at most `rate`
 * units of weight start. A start is stamped when its function has returned.
 *
 * What runs counts as running until it has ended, whatever is chained to it: a
 * job that was canceled, or is late, holds its places until the work behind
 * what start returned has ended (vow_ended()), not until its caller is told.
 *
 * Order. Keys take turns, and jobs without a key are one of them. Within a key
 * the higher priority goes first, where `age_ms` of waiting weigh as much as
 * one level; within a priority, who came first. The one whose turn it is is not
 * passed by smaller ones, unless bypass allows it.
 *
 * Owner: counted; jobs and permits keep it alive. Dropping the last handle does
 * not cancel what waits.
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

/* What happens to a job when the queue is full. Dropped ones are rejected with
 * VOW_EQUEUEFULL. */
enum vow_overflow {
    VOW_OVERFLOW_REJECT = 0,      /* it is rejected */
    VOW_OVERFLOW_DROP_OLDEST = 1, /* the one that waited longest makes room */
    VOW_OVERFLOW_DROP_LOWEST = 2, /* the last of the lowest priority does */
    VOW_OVERFLOW_WAIT = 3 /* it waits outside, in order of arrival, for room */
};

/* .queue_max of a gate where nothing waits: now, or rejected. */
#define VOW_NO_QUEUE UINT32_MAX

typedef struct vow_gate_opts {
    size_t size;           /* set by VOW_GATE */
    uint32_t concurrent;   /* weight at once; 0: 2^32 - 1 */
    uint32_t rate;         /* weight started per window, to 2^24; 0: any */
    uint64_t window_ms;    /* 0: 1000 */
    bool even;             /* starts are at least window / rate apart */
    uint32_t queue_max;    /* jobs that wait; 0: 1048576 */
    size_t queue_bytes;    /* their .bytes in all; 0: any */
    uint32_t overflow;     /* enum vow_overflow */
    uint64_t age_ms;       /* of waiting, worth one level; 0: 1000 */
    uint32_t bypass_count; /* how often one that waits for places may be passed
                              by those of the next 64 of its key and priority
                              that fit; 0: any, if bypass_ms is set */
    uint64_t bypass_ms;    /* and only while it waited less; both 0: never */
    uint32_t key_concurrent; /* the same limits for each key; 0: any. Jobs */
    uint32_t key_rate;       /* without a key have none. */
    uint64_t key_window_ms;
    uint32_t keys_max;  /* keys remembered at a time, beyond it
                           VOW_EQUEUEFULL; 0: 65536 */
    uint32_t adapt_min; /* the concurrency adapts between this, where it begins,
                           and .concurrent; 0: it does not */
    vow_retry_if_fn overloaded; /* which failures say "too much": as if reported
                                   for the job's key, with the error's
                                   retry-after; NULL: none */
    void *overloaded_user;
    vow_oracle *oracle; /* checks it (vow/oracle.h); kept by reference */
    const vow_backing *backing; /* asked before each start (vow/backing.h), kept
                                   by reference; NULL: nobody */
} vow_gate_opts;
#define VOW_GATE(...)                                                          \
    (&(const vow_gate_opts){.size = sizeof(vow_gate_opts), __VA_ARGS__})

/* A job asked for from inside another job that holds places of the same gate.
 * If it could never start before the outer one ends, it would wait for ever. */
enum vow_nested {
    VOW_NESTED_REFUSE = 0, /* then it is rejected with VOW_EDEADLK */
    VOW_NESTED_LEND = 1,   /* then it runs in the places of the outer one, which
                              lends each place to one at a time */
    VOW_NESTED_APART = 2   /* nobody waits for it: it waits as any other */
};

typedef struct vow_job_opts {
    size_t size;          /* set by VOW_JOB */
    uint32_t weight;      /* 0: 1 */
    int32_t priority;     /* -16 to 15, higher is sooner */
    const char *key;      /* copied; NULL: none */
    size_t bytes;         /* counted against queue_bytes while it waits */
    uint64_t deadline_ms; /* for waiting, retries and running; 0: none */
    const vow_retry_opts *retry; /* each attempt comes back to the gate */
    uint32_t nested;             /* enum vow_nested */
} vow_job_opts;
#define VOW_JOB(...)                                                           \
    (&(const vow_job_opts){.size = sizeof(vow_job_opts), __VA_ARGS__})

/* Make a gate. 0, VOW_EINVAL (a rate above 2^24, a window above 2^40 ms, ageing
 * above a day, an unknown overflow, an adapt_min above .concurrent, a size that
 * is no version's), VOW_ENOMEM; *ret_gate is written only on success. Since
 * 0.1. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 3)
int vow_gate_new(vow_loop *loop, const vow_gate_opts *opts,
                 vow_gate **ret_gate);
VOW_API VOW_LOOP_THREAD vow_gate *vow_gate_ref(vow_gate *g);
VOW_API VOW_LOOP_THREAD vow_gate *vow_gate_unref(vow_gate *g); /* NULL */

/* Call start(loop, attempt, arg) from the loop's queue when the limits allow.
 * The future has the outcome of what it returned, however that ends the places
 * are given back. Canceling the future of a job that waits takes it out at
 * once; one that runs is asked, and holds its places until it has ended.
 * Rejected: VOW_EINVAL (start is NULL, a weight no limit will ever allow, a
 * priority out of range), VOW_EQUEUEFULL, VOW_EDEADLK, VOW_ECLOSED, and
 * VOW_ETIMEDOUT at the deadline, or at once when, as things stand, the rate or
 * a pause leaves no start before it. Since 0.1. */
#define vow_gate_run(g, start, arg, job)                                       \
    vow_gate_run_at(VOW_HERE, (g), (start), (arg), (job))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_gate_run_at(const char *site, vow_gate *g, vow_start_fn start,
                            void *arg, const vow_job_opts *job);

/* The two-handed form, for fibers and state machines: the future has the
 * permit (vow_permit_take()). The start is the grant. A deadline is for the
 * wait; .retry and VOW_NESTED_LEND are not allowed. Rejected as above. */
#define vow_gate_enter(g, job) vow_gate_enter_at(VOW_HERE, (g), (job))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_gate_enter_at(const char *site, vow_gate *g,
                              const vow_job_opts *job);

/* Now or not at all, past nobody who waits; no memory is needed without a key.
 * True: *ret_permit holds the places. With a backing, which would have to be
 * asked, never. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 3)
bool vow_gate_try(vow_gate *g, const vow_job_opts *job, vow_permit *ret_permit);

/* Read the limits, and change any of them while jobs wait and run. What has
 * started under a rate counts on, as far back as that rate had to look. Jobs
 * that wait for more than will ever be allowed are rejected with VOW_EINVAL.
 * `overflow`, `oracle` and `backing` stay as they were made. VOW_EINVAL,
 * VOW_ENOMEM: nothing changed. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_gate_opts vow_gate_get(const vow_gate *g);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2)
int vow_gate_set(vow_gate *g, const vow_gate_opts *opts);

/* Start nothing until resumed; both may be called again. Resuming ends a pause
 * of the gate by vow_gate_report() as well. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_gate_pause(vow_gate *g);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_gate_resume(vow_gate *g);

/* The other side said "too much": start nothing for so long, of the whole gate
 * or of one key (of all, if there is no room to remember the key), and lower an
 * adaptive limit. The longest of several counts. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_gate_report(vow_gate *g, const char *key, uint64_t retry_after_ms);

/* Reject all whose function was not called yet: with VOW_ECANCELED and `why`
 * (borrowed, may be NULL) as its cause; or, for good, with VOW_ECLOSED, as all
 * that will come. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_gate_clear(vow_gate *g, vow_error *why);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_gate_close(vow_gate *g);

/* Settles when nothing waits and nothing runs; when a job of that many bytes
 * would find room in the queue (VOW_EINVAL: never). A job that backs off is
 * neither. */
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
