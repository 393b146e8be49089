/* SPDX-License-Identifier: MIT */
/* vow/context.h - on whose behalf does this code run?
 *
 * A context is current while a function runs in it, and is handed on to what
 * that function attaches: steps by vow_then() and kin, and fibers. So it is
 * found again after every wait, where a variable would have been overwritten by
 * others. vow_gate_run() makes one per job; your own can carry a trace id.
 *
 * Owner: counted, and in the caller's memory: `drop` is called when the last
 * reference goes. A context keeps its parent, unless that has ended.
 * Threads: loop thread only.
 */
#ifndef VOW_CONTEXT_H
#define VOW_CONTEXT_H

#include "vow/loop.h"
#include "vow/value.h"

VOW_BEGIN_DECLS

typedef struct vow_context vow_context;

/* Set `owner` and `drop` and zero the rest, then vow_context_init(). */
struct vow_context {
    const void *owner; /* whose kind it is: any address of yours */
    vow_drop_fn drop;  /* gets the context */
    vow_context *parent;
    uint32_t refs;
    bool ended;
};

/* Make it ready, with one reference, the caller's. The parent is the current
 * one, or the nearest above it that has not ended. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2)
void vow_context_init(vow_context *c, vow_loop *loop);
VOW_API VOW_LOOP_THREAD vow_context *vow_context_ref(vow_context *c);
VOW_API VOW_LOOP_THREAD vow_context *
vow_context_unref(vow_context *c); /* NULL */

/* What it stood for is over: contexts made in it belong to its parent. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_context_end(vow_context *c);

/* The current one, borrowed; NULL outside all. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_context *vow_context_current(const vow_loop *loop);
/* The nearest above that has not ended, borrowed; NULL: none. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_context *vow_context_parent(vow_context *c);

/* Make `c` (may be NULL) current until vow_context_leave() gets back what this
 * returned. Pairs are nested, and none lies across an await. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_context *vow_context_enter(vow_loop *loop, vow_context *c);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_context_leave(vow_loop *loop, vow_context *before);

VOW_END_DECLS

#endif
