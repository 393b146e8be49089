/* SPDX-License-Identifier: MIT */
/* vow/breaker.h - circuit breaker: rejects calls to a service that keeps
 * failing, and tries the service again later.
 *
 * CLOSED: calls go through. When `failures` of the last `calls` outcomes were
 * failures, the breaker opens.
 * OPEN: calls are rejected at once, for `open_ms`.
 * HALF_OPEN: up to `probes` calls at a time go through as probes, other calls
 * are rejected. After `probes` successes the breaker closes; a failed probe
 * opens the breaker again.
 *
 * Owner: counted; calls under way keep the breaker alive.
 * Threads: loop thread only.
 */
#ifndef VOW_BREAKER_H
#define VOW_BREAKER_H

#include "vow/retry.h"

VOW_BEGIN_DECLS

typedef struct vow_breaker vow_breaker;

enum vow_breaker_state {
    VOW_BREAKER_CLOSED = 0,
    VOW_BREAKER_OPEN = 1,
    VOW_BREAKER_HALF_OPEN = 2
};

/* Called after each change of state, from the loop's queue, also if the last
 * handle was dropped meanwhile; not for changes on a closing loop. A coming
 * change to HALF_OPEN does not keep the loop running. */
typedef void (*vow_breaker_fn)(enum vow_breaker_state state, void *user);

typedef struct vow_breaker_opts {
    size_t size;            /* set by VOW_BREAKER */
    uint32_t failures;      /* failures that open the breaker; 0: 5 */
    uint32_t calls;         /* outcomes counted, at most 64; 0: as failures */
    uint64_t open_ms;       /* duration of OPEN; 0: 10000 */
    uint32_t probes;        /* probes at a time, and successes to close; 0: 1 */
    vow_retry_if_fn counts; /* whether an error is a failure; else the error
                               counts as a success. NULL: every error is a
                               failure. VOW_ECANCELED and VOW_ECLOSED never
                               count. */
    void *counts_user;
    vow_breaker_fn on_change; /* NULL: none */
    void *on_change_user;     /* outlives the last handle and call by a turn */
} vow_breaker_opts;
#define VOW_BREAKER(...)                                                       \
    (&(const vow_breaker_opts){.size = sizeof(vow_breaker_opts), __VA_ARGS__})

/* Makes a breaker. Returns 0, VOW_EINVAL (`calls` above 64 or below `failures`)
 * or VOW_ENOMEM. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 3)
int vow_breaker_new(vow_loop *loop, const vow_breaker_opts *opts,
                    vow_breaker **ret_breaker);
VOW_API VOW_LOOP_THREAD vow_breaker *vow_breaker_ref(vow_breaker *b);
VOW_API VOW_LOOP_THREAD vow_breaker *vow_breaker_unref(vow_breaker *b);

/* Calls start(loop, 1, arg) from the loop's queue and returns a future of the
 * outcome. Rejected: VOW_EOPEN while the breaker is open, where
 * vow_error_retry_after_ms() is the time to HALF_OPEN; VOW_EOPEN without a time
 * while all probes are under way; VOW_EINVAL if `start` is NULL or returns no
 * future of this loop; VOW_ECLOSED if the loop closes. A canceled probe counts
 * as under way until the work has ended. Since 0.1. */
#define vow_breaker_run(b, start, arg)                                         \
    vow_breaker_run_at(VOW_HERE, (b), (start), (arg))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_breaker_run_at(const char *site, vow_breaker *b,
                               vow_start_fn start, void *arg);

VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
enum vow_breaker_state vow_breaker_state_of(const vow_breaker *b);
/* Opens the breaker now, for open_ms. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_breaker_trip(vow_breaker *b);
/* Closes the breaker now and forgets all outcomes. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_breaker_reset(vow_breaker *b);

static inline void vow_breaker_cleanup(vow_breaker **b)
{
    vow_breaker_unref(*b);
}

VOW_END_DECLS

#endif
