/* SPDX-License-Identifier: MIT */
/* vow/combine.h - one future from many, and futures of time.
 *
 * The inputs are borrowed and may repeat. When the outcome is known, the others
 * are let go, not canceled: they may have other readers. Canceling the result
 * cancels those inputs that nobody else holds. The result's progress is the
 * number of inputs that are settled. It has ended (vow_ended()) when no work
 * behind an input that it let go of still runs.
 * Threads: loop thread only.
 */
#ifndef VOW_COMBINE_H
#define VOW_COMBINE_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

/* All values as a list in input order, or the first rejection. Of none: the
 * empty list. Since 0.1. */
#define vow_all(loop, futures, n) vow_all_at(VOW_HERE, (loop), (futures), (n))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_all_at(const char *site, vow_loop *loop,
                       vow_future *const *futures, size_t n);

/* All outcomes as a list in input order; never rejected by an input. */
#define vow_all_settled(loop, futures, n)                                      \
    vow_all_settled_at(VOW_HERE, (loop), (futures), (n))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_all_settled_at(const char *site, vow_loop *loop,
                               vow_future *const *futures, size_t n);

/* The first value, or VOW_EALLFAILED with all errors (vow_error_at()) and the
 * first of them in time as its cause. Of none: VOW_EALLFAILED. */
#define vow_any(loop, futures, n) vow_any_at(VOW_HERE, (loop), (futures), (n))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_any_at(const char *site, vow_loop *loop,
                       vow_future *const *futures, size_t n);

/* The first outcome of either kind. Of none: pending until the loop closes. */
#define vow_race(loop, futures, n) vow_race_at(VOW_HERE, (loop), (futures), (n))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_race_at(const char *site, vow_loop *loop,
                        vow_future *const *futures, size_t n);

/* Nothing, after `ms` milliseconds: never earlier. */
#define vow_delay(loop, ms) vow_delay_at(VOW_HERE, (loop), (ms))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_delay_at(const char *site, vow_loop *loop, uint64_t ms);

/* The outcome of `f`, or VOW_ETIMEDOUT after `ms`; `f` is then canceled if
 * nobody else holds it, and the timeout has not ended before it. */
#define vow_timeout(f, ms) vow_timeout_at(VOW_HERE, (f), (ms))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_timeout_at(const char *site, vow_future *f, uint64_t ms);

/* The same at a point of the loop's clock (vow_loop_now_ns()). */
#define vow_deadline(f, due_ns) vow_deadline_at(VOW_HERE, (f), (due_ns))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_deadline_at(const char *site, vow_future *f, uint64_t due_ns);

VOW_END_DECLS

#endif
