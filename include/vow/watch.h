/* SPDX-License-Identifier: MIT */
/* vow/watch.h - calls a function when a future has ended. A watch is not a
 * reader of the future, needs no memory and cannot fail.
 *
 * Settled is not ended (vow/promise.h): a canceled link, an expired timeout and
 * a decided race are settled at once, while the work behind may still run. A
 * future has ended when the future is settled and all work behind the future
 * has ended, whatever is chained to the work. Code that limits work, or frees
 * memory used by the work, waits for the end.
 *
 * When all readers have let go of a future, the future is canceled, watched or
 * not; but not with more than 8,000 watches.
 *
 * Owner: the struct lies in the caller's memory and must not move while the
 * watch is pending. A zeroed struct is not pending.
 * Threads: loop thread only.
 */
#ifndef VOW_WATCH_H
#define VOW_WATCH_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

typedef void (*vow_watch_fn)(vow_future *f, void *user);

/* The fields are private. */
typedef struct vow_watch {
    uintptr_t inside[9];
} vow_watch;

/* Calls fn(f, user) once from the loop's queue when `f` has ended, also if `f`
 * is settled already. If no work still runs, `fn` is called before steps
 * attached to `f` later. A watch does not handle a rejection. A pending watch
 * must be stopped before another start. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2, 3)
void vow_watch_start(vow_watch *w, vow_future *f, vow_watch_fn fn, void *user);

/* As vow_watch_start(), but when `f` is settled: work behind `f` may still run.
 * `fn` may start the watch again, for the end. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2, 3)
void vow_watch_settled(vow_watch *w, vow_future *f, vow_watch_fn fn,
                       void *user);

/* Stops the watch: `fn` is not called any more. Returns false if the watch was
 * not pending. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_watch_stop(vow_watch *w);

VOW_END_DECLS

#endif
