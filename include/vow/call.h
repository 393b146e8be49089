/* SPDX-License-Identifier: MIT */
/* vow/call.h - a function called by the loop: soon, or at a time. A call needs
 * no memory and cannot fail.
 *
 * Owner: the struct lies in the caller's memory and must not move while the
 * call is pending. A zeroed struct is not pending.
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

/* Calls fn(user) once from the loop's queue, behind everything that is ready
 * now. A call that is already pending moves to the new place. A closing loop
 * still makes the call. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2, 3)
void vow_call_soon(vow_call *c, vow_loop *loop, vow_call_fn fn, void *user);

/* Calls fn(user) once from the loop's queue when the loop's clock
 * (vow_loop_now_ns()) has reached `due_ns`: never earlier, and after the loop
 * has polled. A pending call keeps the loop running. If the loop closes before
 * `due_ns`, the call is never made. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2, 4)
void vow_call_at(vow_call *c, vow_loop *loop, uint64_t due_ns, vow_call_fn fn,
                 void *user);

/* As vow_call_at(), but does not keep the loop running: for cleaning up. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2, 4)
void vow_call_weakly_at(vow_call *c, vow_loop *loop, uint64_t due_ns,
                        vow_call_fn fn, void *user);

/* Withdraws a pending call: `fn` is not called any more. Returns false if the
 * call was not pending. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_call_stop(vow_call *c);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_call_pending(const vow_call *c);

VOW_END_DECLS

#endif
