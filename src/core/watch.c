/* SPDX-License-Identifier: MIT */
/* watch.c - a call when a future has ended, without being a reader.
 *
 * HOW   A watch is a node behind the future. The reference counts in end_refs,
 *       so canceling does not count the watch as a reader. If the settled
 *       future has rests, the node waits behind a rest next (rest.c).
 * THREADS  loop thread only.
 */
#include "vow/watch.h"
#include "core/promise_internal.h"

struct watch {
    struct vow__core_watch inner;
    vow_watch_fn fn;
    void *user;
    vow_future *of; /* the watched future. If node.rest is set, the source is a
                       rest of the future, and the future is counted
                       separately */
};
_Static_assert(sizeof(struct watch) <= sizeof(vow_watch),
               "vow_watch is too small");

static void watch_start(struct watch *w, vow_future *f);
static void watch_wait_behind(struct watch *w, vow_future *f);
static void watch_run_at_end(struct vow__core_watch *inner);
static void watch_run_settled(struct vow__core_watch *inner);

void vow_watch_start(vow_watch *watch, vow_future *f, vow_watch_fn fn,
                     void *user)
{
    struct watch *w = (struct watch *)(void *)watch;
    *w = (struct watch){.inner.run = watch_run_at_end, .fn = fn, .user = user};
    watch_start(w, f);
}

void vow_watch_settled(vow_watch *watch, vow_future *f, vow_watch_fn fn,
                       void *user)
{
    struct watch *w = (struct watch *)(void *)watch;
    *w = (struct watch){.inner.run = watch_run_settled, .fn = fn, .user = user};
    watch_start(w, f);
}

static void watch_start(struct watch *w, vow_future *f)
{
    VOW__ASSERT_THREAD(vow__core_future_loop(f));
    w->inner.node.kind = VOW__WATCH;
    w->of = f;
    watch_wait_behind(w, vow__core_future_ref(f));
}

/* Puts the watch behind `f`; the reference is moved. `handled` stays as is. */
static void watch_wait_behind(struct watch *w, vow_future *f)
{
    bool handled = f->node.handled;
    vow__core_node_wait_moved(vow__core_future_loop(f), &w->inner.node, f);
    vow__core_future_count_end_ref(f, 1);
    f->node.handled = handled;
}

bool vow_watch_stop(vow_watch *watch)
{
    struct watch *w = (struct watch *)(void *)watch;
    vow_future *f = w->inner.node.source;
    vow_future *of = w->of;
    if (f == NULL)
        return false;
    (void)vow__core_node_unwait(vow__core_future_loop(f), &w->inner.node);
    vow__core_future_count_end_ref(f, -1);
    vow__core_future_unref(f);
    if (w->inner.node.rest)
        vow__core_future_unref(of);
    return true;
}

/* Runs when the source is settled: calls fn if the watched future has ended,
 * else waits behind a rest. */
static void watch_run_at_end(struct vow__core_watch *inner)
{
    struct watch *w = VOW__OUTER(inner, struct watch, inner);
    vow_future *f = inner->node.source;
    vow_future *of = w->of;
    vow_loop *loop = vow__core_future_loop(of);
    vow_future *rest = vow__core_rest_next(of);
    if (rest == NULL) {
        watch_run_settled(inner);
        return;
    }
    vow__core_future_count_end_ref(f, -1);
    bool again = inner->node.rest;
    inner->node.rest = 1;
    watch_wait_behind(w, rest);
    if (again)
        vow__core_future_unref(f);
    vow__core_futures_reap(loop);
}

/* Runs fn, which may free the vow_watch. */
static void watch_run_settled(struct vow__core_watch *inner)
{
    struct watch *w = VOW__OUTER(inner, struct watch, inner);
    vow_future *f = inner->node.source;
    vow_future *of = w->of;
    inner->node.source = NULL;
    vow__core_future_count_end_ref(f, -1);
    if (inner->node.rest)
        vow__core_future_unref(f);
    w->fn(of, w->user);
    vow__core_future_unref(of);
}
