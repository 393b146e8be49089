/* SPDX-License-Identifier: MIT */
/* vow/watch.h - learn when a future has ended, without being one of its
 * readers. It needs no memory and cannot fail.
 *
 * Settled and ended are two things (vow/promise.h): a canceled link, an expired
 * timeout and a race that is won are settled at once, while the work behind
 * them may still run. A future has ended when it is settled and all work that
 * it let go of has ended too. What runs counts as running until it has ended,
 * whatever is chained to it: whoever limits work, or frees what the work uses,
 * waits for the end.
 *
 * When all others let go of the future it is canceled as if the watch were not
 * there, unless there are more than 8,000 of them.
 *
 * Owner: the struct lies in the caller's memory and stays where it is while it
 * is pending. Zeroed, it is not pending.
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

/* Call fn(f, user) once from the loop's queue when `f` has ended, also if it is
 * settled already; before what is attached to `f` later, if nothing else still
 * runs. A rejection does not count as handled by this. A watch that is pending
 * must be stopped first. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2, 3)
void vow_watch_start(vow_watch *w, vow_future *f, vow_watch_fn fn, void *user);

/* The same when `f` is settled: its outcome is there, what it let go of may
 * still run. fn may start the watch again, for the end. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2, 3)
void vow_watch_settled(vow_watch *w, vow_future *f, vow_watch_fn fn,
                       void *user);

/* Do not tell any more. False when it was not pending. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_watch_stop(vow_watch *w);

VOW_END_DECLS

#endif
