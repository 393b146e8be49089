/* SPDX-License-Identifier: MIT */
/* watch.c - told when a future has ended, without being a reader of it.
 *
 * HOW   A node of core behind the future, counted as a ghost: canceling does
 *       not take it for somebody who still wants the outcome.
 * THREADS  loop thread only.
 */
#include "vow/watch.h"
#include "core/promise_internal.h"

struct watch {
    struct vow__watch inner;
    vow_watch_fn fn;
    void *user;
};
_Static_assert(sizeof(struct watch) <= sizeof(vow_watch),
               "vow_watch is too small");

static void run(struct vow__watch *inner);

void vow_watch_start(vow_watch *watch, vow_future *f, vow_watch_fn fn,
                     void *user)
{
    struct watch *w = (struct watch *)(void *)watch;
    bool handled = f->node.handled;
    w->inner = (struct vow__watch){.node.kind = VOW__WATCH, .run = run};
    w->fn = fn;
    w->user = user;
    vow__wait_quiet(vow__loop_of(f), &w->inner.node, f);
    vow__ghost(f, 1);
    f->node.handled = handled;
}

bool vow_watch_stop(vow_watch *watch)
{
    struct watch *w = (struct watch *)(void *)watch;
    vow_future *f = w->inner.node.source;
    if (f == NULL)
        return false;
    (void)vow__unwait(vow__loop_of(f), &w->inner.node);
    vow__ghost(f, -1);
    vow__unref(f);
    return true;
}

/* The block may be gone when fn returns. */
static void run(struct vow__watch *inner)
{
    struct watch *w = VOW__OUTER(inner, struct watch, inner);
    vow_future *f = w->inner.node.source;
    w->inner.node.source = NULL;
    vow__ghost(f, -1);
    w->fn(f, w->user);
    vow__unref(f);
}
