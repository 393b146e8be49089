/* SPDX-License-Identifier: MIT */
/* vow/permit.h - places held in a semaphore or a gate.
 *
 * Owner: a permit lies in the caller's memory and keeps what it is of alive. It
 * is moved by assignment (forget the old one) and given back once.
 * Threads: loop thread only.
 */
#ifndef VOW_PERMIT_H
#define VOW_PERMIT_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

/* Zeroed, it holds nothing. The fields are private. */
typedef struct vow_permit {
    struct vow_gate *of;
    void *group;
    uint64_t since_ns;
    uint32_t weight;
} vow_permit;

/* Move the permit out of the value of a future from vow_sem_acquire() or
 * vow_gate_enter(): in a handler its argument, elsewhere vow_get(f). What
 * nobody takes is given back with the last reference to that future. The permit
 * holds nothing if the value is none, or was taken before. Since 0.1. */
VOW_API VOW_LOOP_THREAD vow_permit vow_permit_take(vow_value granted);

/* Give it back; the next who wait are let in. Again, it does nothing. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_permit_release(vow_permit *p);

static inline bool vow_permit_held(const vow_permit *p)
{
    return p->weight > 0;
}

/* Of a gate or semaphore with a backing (vow/backing.h). What tells that the
 * grant behind it is lost, borrowed as long as the permit is held; NULL: it
 * cannot be lost. And its fence; 0: none. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_future *vow_permit_lost(const vow_permit *p);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
uint64_t vow_permit_fence(const vow_permit *p);

/* VOW_CLEANUP(vow_permit_release) vow_permit p = {0}; gives it back at the end
 * of the block. */

VOW_END_DECLS

#endif
