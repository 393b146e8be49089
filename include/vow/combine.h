/* SPDX-License-Identifier: MIT */
/* vow/combine.h - a future of many futures, and futures of time.
 *
 * Inputs are borrowed and may repeat. An input that is NULL or of another loop
 * rejects the result with VOW_EINVAL. When the outcome is known, the result
 * lets go of the remaining inputs without canceling them: they may have other
 * readers. Canceling the result cancels the inputs without other readers. The
 * progress of the result is the number of settled inputs. The result has ended
 * (vow_ended()) when no work still runs behind an input.
 * Threads: loop thread only.
 */
#ifndef VOW_COMBINE_H
#define VOW_COMBINE_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

/* Returns a future of all values as a list in input order, or of the first
 * rejection. Without inputs: the empty list. Since 0.1. */
#define vow_all(loop, futures, n) vow_all_at(VOW_HERE, (loop), (futures), (n))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_all_at(const char *site, vow_loop *loop,
                       vow_future *const *futures, size_t n);

/* Returns a future of all outcomes as a list in input order. A rejected input
 * does not reject the future. */
#define vow_all_settled(loop, futures, n)                                      \
    vow_all_settled_at(VOW_HERE, (loop), (futures), (n))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_all_settled_at(const char *site, vow_loop *loop,
                               vow_future *const *futures, size_t n);

/* Returns a future of the first value. If all inputs are rejected, or without
 * inputs: VOW_EALLFAILED with all errors (vow_error_at()); the cause is the
 * first error in time. */
#define vow_any(loop, futures, n) vow_any_at(VOW_HERE, (loop), (futures), (n))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_any_at(const char *site, vow_loop *loop,
                       vow_future *const *futures, size_t n);

/* Returns a future of the first outcome, a value or an error. Without inputs:
 * pending until the loop closes. */
#define vow_race(loop, futures, n) vow_race_at(VOW_HERE, (loop), (futures), (n))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_race_at(const char *site, vow_loop *loop,
                        vow_future *const *futures, size_t n);

/* Returns a future of nothing, fulfilled after `ms` milliseconds, never
 * earlier. */
#define vow_delay(loop, ms) vow_delay_at(VOW_HERE, (loop), (ms))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_delay_at(const char *site, vow_loop *loop, uint64_t ms);

/* Returns a future of the outcome of `f`, or of VOW_ETIMEDOUT after `ms`
 * milliseconds. An expired timeout cancels `f` if `f` has no other reader, and
 * has ended when the work behind `f` has ended. */
#define vow_timeout(f, ms) vow_timeout_at(VOW_HERE, (f), (ms))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_timeout_at(const char *site, vow_future *f, uint64_t ms);

/* As vow_timeout(), at a point of the loop's clock (vow_loop_now_ns()). */
#define vow_deadline(f, due_ns) vow_deadline_at(VOW_HERE, (f), (due_ns))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_deadline_at(const char *site, vow_future *f, uint64_t due_ns);

VOW_END_DECLS

#endif
