/* SPDX-License-Identifier: MIT */
/* vow/watch.h - learn when a future has ended, without being one of its
 * readers. It needs no memory and cannot fail.
 *
 * When all others let go of the future it is canceled as if the watch were not
 * there (unless there are more than 254 of them); the watch is told when it
 * really has ended. Who limits work needs just that: a canceled job holds its
 * place as long as it runs.
 *
 * Owner: the struct lies in the caller's memory and stays where it is while it
 * is pending. Zeroed, it is not pending.
 * Threads: loop thread only.
 */
#ifndef VOW_WATCH_H
#define VOW_WATCH_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

typedef void (*vow_watch_fn)(vow_future *settled, void *user);

/* The fields are private. */
typedef struct vow_watch {
    uintptr_t inside[9];
} vow_watch;

/* Call fn(f, user) once from the loop's queue when `f` is settled, before what
 * is attached to `f` later. A rejection does not count as handled by this. A
 * watch that is pending must be stopped first. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2, 3)
void vow_watch_start(vow_watch *w, vow_future *f, vow_watch_fn fn, void *user);

/* Do not tell any more. False when it was not pending. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_watch_stop(vow_watch *w);

VOW_END_DECLS

#endif
