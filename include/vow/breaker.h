/* SPDX-License-Identifier: MIT */
/* vow/breaker.h - stop asking what keeps failing, and ask again later.
 *
 * Closed, calls go through. When `failures` of the last `calls` outcomes were
 * failures it opens, and calls are rejected at once. After `open_ms` it is half
 * open: up to `probes` calls go through at a time, others are rejected. When so
 * many have succeeded it closes; when one fails it opens again.
 *
 * Owner: counted; calls under way keep it alive.
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

/* Told after each change of state, from the loop's queue, also when the last
 * handle was dropped meanwhile; but not of changes on a closing loop. To tell
 * that it is half open does not keep the loop running. */
typedef void (*vow_breaker_fn)(enum vow_breaker_state state, void *user);

typedef struct vow_breaker_opts {
    size_t size;       /* set by VOW_BREAKER */
    uint32_t failures; /* 0: 5 */
    uint32_t calls;    /* looked back on, at most 64; 0: as many as failures */
    uint64_t open_ms;  /* 0: 10000 */
    uint32_t probes;   /* 0: 1 */
    vow_retry_if_fn counts; /* which errors are failures, the others count as
                               successes; NULL: all are. VOW_ECANCELED and
                               VOW_ECLOSED never count as either. */
    void *counts_user;
    vow_breaker_fn on_change; /* NULL: none */
    void *on_change_user;     /* outlives the last handle and call by a turn */
} vow_breaker_opts;
#define VOW_BREAKER(...)                                                       \
    (&(const vow_breaker_opts){.size = sizeof(vow_breaker_opts), __VA_ARGS__})

/* VOW_EINVAL (more than 64 calls, or fewer than failures), VOW_ENOMEM. Since
 * 0.1. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 3)
int vow_breaker_new(vow_loop *loop, const vow_breaker_opts *opts,
                    vow_breaker **ret_breaker);
VOW_API VOW_LOOP_THREAD vow_breaker *vow_breaker_ref(vow_breaker *b);
VOW_API VOW_LOOP_THREAD vow_breaker *vow_breaker_unref(vow_breaker *b);

/* Call start(loop, 1, arg) from the loop's queue, unless it is open: then
 * VOW_EOPEN, whose vow_error_retry_after_ms() says when it will be half open.
 * Half open with all probes out: VOW_EOPEN without such a time, it depends on
 * the probes. The future has the outcome; start returns one of this loop, else
 * VOW_EINVAL. A canceled probe makes room for another when its work has ended.
 * VOW_ECLOSED: the loop closes. Since 0.1. */
#define vow_breaker_run(b, start, arg)                                         \
    vow_breaker_run_at(VOW_HERE, (b), (start), (arg))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_breaker_run_at(const char *site, vow_breaker *b,
                               vow_start_fn start, void *arg);

VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
enum vow_breaker_state vow_breaker_state_of(const vow_breaker *b);
/* Open it now, for open_ms; close it now, and forget the past. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_breaker_trip(vow_breaker *b);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_breaker_reset(vow_breaker *b);

static inline void vow_breaker_cleanup(vow_breaker **b)
{
    vow_breaker_unref(*b);
}

VOW_END_DECLS

#endif
