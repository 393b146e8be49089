/* SPDX-License-Identifier: MIT */
/* vow/permit.h - a permit of a gate or a semaphore.
 *
 * Owner: a permit lies in the caller's memory and keeps the gate or semaphore
 * alive. Assignment moves a permit (do not use the old copy); a permit is
 * released once.
 * Threads: loop thread only.
 */
#ifndef VOW_PERMIT_H
#define VOW_PERMIT_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

/* A zeroed permit holds nothing. The fields are private. */
typedef struct vow_permit {
    struct vow_gate *of;
    void *group;
    uint64_t since_ns;
    uint32_t weight;
} vow_permit;

/* Moves the permit out of the value of a future from vow_sem_acquire() or
 * vow_gate_enter(); in a handler, the value is the argument, elsewhere
 * vow_get(f). A permit never taken is released with the last reference to the
 * future. The returned permit holds nothing if the value has no permit, or if
 * the permit was taken before. Since 0.1. */
VOW_API VOW_LOOP_THREAD vow_permit vow_permit_take(vow_value granted);

/* Releases the permit and admits the next waiters. A second call does
 * nothing. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_permit_release(vow_permit *p);

static inline bool vow_permit_held(const vow_permit *p)
{
    return p->weight > 0;
}

/* For a gate or semaphore with a backing (vow/backing.h): return the future
 * rejected when the grant behind the permit is lost, borrowed while the permit
 * is held (NULL: the grant cannot be lost); and the fence of the grant (0:
 * none). */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_future *vow_permit_lost(const vow_permit *p);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
uint64_t vow_permit_fence(const vow_permit *p);

/* VOW_CLEANUP(vow_permit_release) vow_permit p = {0}; releases the permit at
 * the end of the block. */

VOW_END_DECLS

#endif
