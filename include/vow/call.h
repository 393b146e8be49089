/* SPDX-License-Identifier: MIT */
/* vow/call.h - a function that the loop calls: soon, or at a time. It needs no
 * memory and cannot fail.
 *
 * Owner: the struct lies in the caller's memory and stays where it is while it
 * is pending. Zeroed, it is not pending.
 * Threads: loop thread only.
 */
#ifndef VOW_CALL_H
#define VOW_CALL_H

#include "vow/loop.h"

VOW_BEGIN_DECLS

typedef void (*vow_call_fn)(void *user);

/* The fields are private. */
typedef struct vow_call {
    uintptr_t inside[12];
} vow_call;

/* Call fn(user) once from the loop's queue, behind what is ready now. A call
 * that is pending already is moved to the new place. On a closing loop it still
 * comes. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2, 3)
void vow_call_soon(vow_call *c, vow_loop *loop, vow_call_fn fn, void *user);

/* Call fn(user) once from the loop's queue when its clock (vow_loop_now_ns())
 * has reached `due_ns`: never earlier, and after the loop has polled. It keeps
 * the loop running. What is not due when the loop closes never comes. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2, 4)
void vow_call_at(vow_call *c, vow_loop *loop, uint64_t due_ns, vow_call_fn fn,
                 void *user);

/* The same, but it does not keep the loop running: for cleaning up. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2, 4)
void vow_call_weakly_at(vow_call *c, vow_loop *loop, uint64_t due_ns,
                        vow_call_fn fn, void *user);

/* Take it back: it does not come any more. False when it was not pending. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_call_stop(vow_call *c);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_call_pending(const vow_call *c);

VOW_END_DECLS

#endif
