/* SPDX-License-Identifier: MIT */
/* vow/retry.h - retries of failed work: backoff, jitter, a budget.
 *
 * Threads: loop thread only.
 */
#ifndef VOW_RETRY_H
#define VOW_RETRY_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

/* Starts an attempt and returns a future of the loop; the reference is moved.
 * The first attempt is number 1. */
typedef vow_future *(*vow_start_fn)(vow_loop *loop, uint32_t attempt,
                                    void *arg);

/* Returns whether to retry after this failure. */
typedef bool (*vow_retry_if_fn)(vow_error *error, void *user);

/* A budget shared by many callers, against retry storms: each vow_retry() earns
 * `percent` of a retry, each retry costs one. At most `reserve` retries are
 * saved; the budget starts full. Returns 0 or VOW_ENOMEM. */
typedef struct vow_retry_budget vow_retry_budget;
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 4)
int vow_retry_budget_new(vow_loop *loop, uint32_t percent, uint32_t reserve,
                         vow_retry_budget **ret_budget);
VOW_API VOW_LOOP_THREAD vow_retry_budget *
vow_retry_budget_ref(vow_retry_budget *b);
VOW_API VOW_LOOP_THREAD vow_retry_budget *
vow_retry_budget_unref(vow_retry_budget *b); /* NULL */

typedef struct vow_retry_opts {
    size_t size;              /* set by VOW_RETRY */
    uint32_t tries;           /* attempts in all; 0: 3 */
    uint64_t backoff_ms[2];   /* first and largest wait; 0: 100 and 10000 */
    uint64_t deadline_ms;     /* for all attempts and waits; 0: none */
    vow_retry_if_fn retry_if; /* NULL: all but ECANCELED and ECLOSED */
    void *retry_if_user;
    vow_retry_budget *budget; /* counted; NULL: none */
} vow_retry_opts;
#define VOW_RETRY(...)                                                         \
    (&(const vow_retry_opts){.size = sizeof(vow_retry_opts), __VA_ARGS__})

/* Calls `start` from the loop's queue until an attempt succeeds. The wait
 * before attempt k+1 is random, between 0 and min(largest, first * 2^(k-1))
 * ("full jitter"), but at least the failure's vow_error_retry_after_ms(). Gives
 * up with the unchanged last failure: no tries left, refused by retry_if,
 * budget spent, or no start possible before the deadline. At the deadline the
 * running attempt is canceled and the future rejected with VOW_ETIMEDOUT, with
 * the last failure, if any, as the cause. Canceling the future cancels the
 * attempt or the wait. Progress of the attempts is passed on. VOW_EINVAL:
 * `start` is NULL, or the largest wait is below the first. Since 0.1. */
#define vow_retry(loop, start, arg, opts)                                      \
    vow_retry_at(VOW_HERE, (loop), (start), (arg), (opts))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_retry_at(const char *site, vow_loop *loop, vow_start_fn start,
                         void *arg, const vow_retry_opts *opts);

static inline void vow_retry_budget_cleanup(vow_retry_budget **b)
{
    vow_retry_budget_unref(*b);
}

VOW_END_DECLS

#endif
