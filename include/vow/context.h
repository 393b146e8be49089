/* SPDX-License-Identifier: MIT */
/* vow/context.h - the context in which code runs, kept across waits.
 *
 * A context is current while a function runs in the context. Steps attached by
 * the function (vow_then() and kin) and fibers started by the function run in
 * the same context. So code finds the context again after every wait, where
 * other code would have overwritten a variable. vow_gate_run() makes a context
 * per job; a context of your own can carry a trace id.
 *
 * Owner: counted, in the caller's memory: `drop` is called with the last
 * reference. A context keeps the parent alive, unless the parent has ended.
 * Threads: loop thread only.
 */
#ifndef VOW_CONTEXT_H
#define VOW_CONTEXT_H

#include "vow/loop.h"
#include "vow/value.h"

VOW_BEGIN_DECLS

typedef struct vow_context vow_context;

/* Set `owner` and `drop`, zero the rest, then call vow_context_init(). */
struct vow_context {
    const void *owner; /* identifies the kind: any address of yours */
    vow_drop_fn drop;  /* called with the context */
    vow_context *parent;
    uint32_t refs;
    bool ended;
};

/* Initializes the context with a reference of the caller's. The parent is the
 * current context, or the nearest context above that has not ended. Since
 * 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2)
void vow_context_init(vow_context *c, vow_loop *loop);
VOW_API VOW_LOOP_THREAD vow_context *vow_context_ref(vow_context *c);
VOW_API VOW_LOOP_THREAD vow_context *
vow_context_unref(vow_context *c); /* NULL */

/* Marks the context as ended: contexts made in `c` now belong to the parent. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_context_end(vow_context *c);

/* Returns the current context, borrowed; NULL: none. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_context *vow_context_current(const vow_loop *loop);
/* Returns the nearest context above `c` that has not ended, borrowed; NULL:
 * none. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_context *vow_context_parent(vow_context *c);

/* Makes `c` (may be NULL) current and returns the context before, for
 * vow_context_leave(). Pairs of enter and leave nest, and must not span an
 * await. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_context *vow_context_enter(vow_loop *loop, vow_context *c);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_context_leave(vow_loop *loop, vow_context *before);

VOW_END_DECLS

#endif
