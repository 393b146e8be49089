/* SPDX-License-Identifier: MIT */
/* cancel.c - canceling a future, and every source without another reader.
 *
 * WHY   Cancel gives everything back: the place in a queue, the timer, the job.
 *       The reason is kept: the first cause stays behind VOW_ECANCELED.
 * HOW   A link leaves its source and is rejected. If the source then has no
 *       other reader, the source is canceled too, and so on up the chain, in a
 *       loop. A promise with a hook is not rejected: the hook is called, from
 *       the ready queue, or at once with hook_now (promises of core, and
 *       vow_on_cancel_now()). While a hook_now hook runs, further hooks are
 *       queued, so the depth of nesting costs no stack.
 * THREADS  loop thread only.
 */
#include "core/promise_internal.h"

static vow_future *cancel_one(vow_loop *loop, vow_future *f, vow_error *why);
static vow_future *cancel_finally(vow_loop *loop, vow_future *f,
                                  vow_error *why);
static void hook_call_or_queue(vow_loop *loop, vow_future *f, vow_error *why);

bool vow_cancel(vow_future *f, vow_error *why)
{
    vow_loop *loop = vow__core_future_loop(f);
    VOW__ASSERT_THREAD(loop);
    if (!vow__core_future_is_pending(f))
        return false;
    vow_error *e = vow__core_cancel_error(loop, f->site, why);
    vow__core_future_ref(f);
    vow__core_source_let_go(loop, cancel_one(loop, f, e), e);
    vow_error_unref(e);
    if (!vow__core_future_is_pending(f))
        vow__core_rest_trim(f);
    vow__core_future_unref(f);
    return true;
}

vow_error *vow__core_cancel_error(vow_loop *loop, const char *site,
                                  vow_error *why)
{
    if (vow_error_code(why) == VOW_ECANCELED)
        return vow_error_ref(why); /* `why` has its own cause */
    return vow__core_error_new(loop, site, VOW_ECANCELED, why, NULL);
}

void vow__core_source_let_go(vow_loop *loop, vow_future *source, vow_error *why)
{
    while (source != NULL) {
        vow_future *next = NULL;
        if (vow__core_future_is_pending(source) &&
            vow__core_future_readers(source) == 1)
            next = cancel_one(loop, source, why);
        vow__core_future_unref(source);
        source = next;
    }
}

void vow__core_source_leave(vow_loop *loop, vow_future *f, vow_future *source,
                            vow_error *why)
{
    vow__core_future_ref(f);
    vow__core_rest_keep(f, source);
    vow__core_source_let_go(loop, source, why);
    vow__core_rest_trim(f);
    vow__core_future_unref(f);
}

/* Cancels the pending `f`. Returns the source that the caller must let go of;
 * NULL: none. */
static vow_future *cancel_one(vow_loop *loop, vow_future *f, vow_error *why)
{
    struct vow__core_node *n = &f->node;
    if (n->kind == VOW__PROMISE && f->u.call.u.ok != NULL) {
        hook_call_or_queue(loop, f, why);
        return NULL;
    }
    if (n->kind == VOW__PROMISE || n->source == NULL) {
        /* a root, or the handler runs: L2 of link.c */
        vow__core_future_reject(loop, f, vow_error_ref(why));
        return NULL;
    }
    if (n->kind == VOW__FINALLY)
        return cancel_finally(loop, f, why);
    vow_future *source = vow__core_node_unwait(loop, n);
    vow__core_future_reject(loop, f, vow_error_ref(why));
    if (n->kind == VOW__LISTEN)
        vow__core_listener_free(loop, f);
    else if (n->kind == VOW__FINALLY_WAIT)
        vow__core_finally_drop_held(f);
    else if (n->kind != VOW__FOLLOW) /* `user` is dropped, or w counts ends */
        vow__core_link_drop_user(f);
    vow__core_rest_keep(f, source);
    vow__core_future_unref(f); /* the reference of the list */
    return source;
}

/* Rejects a finally, which wakes the readers at once, and leaves the node
 * behind the source: the function runs when the source has ended. The function
 * goes into value.tag, which a rejection does not use. */
static vow_future *cancel_finally(vow_loop *loop, vow_future *f, vow_error *why)
{
    uintptr_t fn = (uintptr_t)f->u.call.u.finally;
    vow_future *source = f->node.source;
    vow__core_future_reject(loop, f, vow_error_ref(why));
    f->u.value.tag = fn;
    f->node.rest =
        !vow__core_future_is_pending(source) || vow__core_rest_counts(source);
    vow__core_future_count_end_ref(source, 1);
    return vow__core_future_ref(source);
}

/* Calls a hook_now hook at once, unless another hook_now hook runs; else queues
 * the hook. */
static void hook_call_or_queue(vow_loop *loop, vow_future *f, vow_error *why)
{
    if (f->node.hook_now && !loop->canceling) {
        loop->canceling = true;
        f->u.call.u.hook(why, f->user);
        loop->canceling = false;
        return;
    }
    if (!f->node.canceled || f->node.hook_now) /* vow_on_cancel(): once */
        vow__core_hook_queue(loop, f, why);
    f->node.canceled = 1;
}

void vow__core_hook_queue(vow_loop *loop, vow_future *f, vow_error *why)
{
    if (f->node.queued)
        return;
    f->node.queued = 1;
    f->u.call.v.why = vow_error_ref(why);
    vow__core_future_ref(f);
    vow__core_loop_enqueue(loop, &f->node.link);
}

void vow__core_hook_run(vow_loop *loop, vow_future *f)
{
    vow_error *why = f->u.call.v.why;
    VOW__ASSERT(f->node.queued);
    f->node.queued = 0;
    f->u.call.v.why = NULL;
    loop->canceling = f->node.hook_now;
    f->u.call.u.hook(why, f->user);
    loop->canceling = false;
    vow_error_unref(why);
    vow__core_future_unref(f);
}

void vow__core_hook_forget(vow_loop *loop, vow_future *f)
{
    vow__list_remove(&loop->ready, &f->node.link);
    f->node.queued = 0;
    vow_error_unref(f->u.call.v.why);
    f->u.call.v.why = NULL;
    VOW__ASSERT(f->node.refs > 1);
    f->node.refs--;
}

void vow_on_cancel(vow_deferred *d, vow_cancel_fn fn, void *user)
{
    VOW__ASSERT_THREAD_OF(d, vow__core_future_loop(vow__core_future_of(d)));
    vow_future *f = vow__core_future_of(d);
    if (!vow_deferred_pending(d))
        return;
    if (fn == NULL && f->node.queued)
        vow__core_hook_forget(vow__core_future_loop(f), f);
    f->u.call.u.hook = fn;
    f->user = user;
    f->node.hook_now = 0;
    f->node.canceled = f->node.queued; /* 0: the next cancel calls `fn` */
}

void vow_on_cancel_now(vow_deferred *d, vow_cancel_fn fn, void *user)
{
    VOW__ASSERT_THREAD_OF(d, vow__core_future_loop(vow__core_future_of(d)));
    vow_future *f = vow__core_future_of(d);
    vow_on_cancel(d, fn, user);
    f->node.hook_now = fn != NULL && f->node.kind == VOW__PROMISE;
}

bool vow_deferred_canceled(const vow_deferred *d)
{
    VOW__ASSERT_THREAD_OF(d, vow__core_future_loop(vow__core_future_of(d)));
    const vow_future *f = vow__core_future_of(d);
    if (f == NULL)
        return false;
    if (vow__core_future_is_pending(f))
        return f->node.kind == VOW__PROMISE &&
               (f->node.canceled || f->node.queued);
    return f->node.state == VOW_REJECTED &&
           vow_error_code(vow__core_future_error(f)) == VOW_ECANCELED;
}

uint32_t vow__core_future_readers(const vow_future *f)
{
    if (f->node.end_refs == VOW__END_REFS_MAX)
        return UINT32_MAX; /* not known */
    uint32_t ends = f->node.has_ends;
    uint32_t waits = f->node.kind != VOW__PROMISE && f->node.kind != VOW__NONE;
    return f->node.refs - ends - waits - f->node.queued - f->node.end_refs;
}
