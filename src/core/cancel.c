/* SPDX-License-Identifier: MIT */
/* cancel.c - nobody needs it any more.
 *
 * WHY   Cancel gives everything back: the place in a queue, the timer, the job.
 *       And it never hides why: the first cause stays behind VOW_ECANCELED.
 * HOW   A link leaves its source and is rejected. If the source is then held by
 *       nobody but the machinery that will settle it, it is canceled in turn,
 *       and so on up the chain, in a loop. A promise with a hook is asked:
 *       from the queue, or at once if it wants that, as core's own do. A hook
 *       that lets go of further promises queues their hooks, so that the depth
 *       of nesting costs no stack.
 * THREADS  loop thread only.
 */
#include "core/promise_internal.h"

static vow_future *cancel_one(vow_loop *loop, vow_future *f, vow_error *why);
static vow_future *cancel_finally(vow_loop *loop, vow_future *f,
                                  vow_error *why);
static void ask(vow_loop *loop, vow_future *f, vow_error *why);

bool vow_cancel(vow_future *f, vow_error *why)
{
    vow_loop *loop = vow__loop_of(f);
    VOW__ASSERT_THREAD(loop);
    if (!vow__pending(f))
        return false;
    vow_error *e = vow__cancel_error(loop, f->site, why);
    vow__ref(f);
    vow__let_go(loop, cancel_one(loop, f, e), e);
    vow_error_unref(e);
    if (!vow__pending(f))
        vow__rest_trim(f);
    vow__unref(f);
    return true;
}

vow_error *vow__cancel_error(vow_loop *loop, const char *site, vow_error *why)
{
    if (vow_error_code(why) == VOW_ECANCELED)
        return vow_error_ref(why); /* is one already, with its cause */
    return vow__error(loop, site, VOW_ECANCELED, why, NULL);
}

void vow__let_go(vow_loop *loop, vow_future *source, vow_error *why)
{
    while (source != NULL) {
        vow_future *next = NULL;
        if (vow__pending(source) && vow__readers(source) == 1)
            next = cancel_one(loop, source, why);
        vow__unref(source);
        source = next;
    }
}

void vow__leave(vow_loop *loop, vow_future *f, vow_future *source,
                vow_error *why)
{
    vow__ref(f);
    vow__rest_keep(f, source);
    vow__let_go(loop, source, why);
    vow__rest_trim(f);
    vow__unref(f);
}

/* Cancel one pending future; returns what it waited for, to be let go. */
static vow_future *cancel_one(vow_loop *loop, vow_future *f, vow_error *why)
{
    struct vow__node *n = &f->node;
    if (n->kind == VOW__PROMISE && f->u.call.u.ok != NULL) {
        ask(loop, f, why);
        return NULL;
    }
    if (n->kind == VOW__PROMISE || n->source == NULL) {
        vow__reject(loop, f, vow_error_ref(why)); /* a root, or its handler
                                                     runs: L2 of link.c */
        return NULL;
    }
    if (n->kind == VOW__FINALLY)
        return cancel_finally(loop, f, why);
    vow_future *source = vow__unwait(loop, n);
    vow__reject(loop, f, vow_error_ref(why));
    if (n->kind == VOW__LISTEN)
        vow__listener_free(loop, f);
    else if (n->kind == VOW__FINALLY_WAIT)
        vow__held_drop(f);
    else if (n->kind != VOW__FOLLOW) /* that was dropped, or has ends there */
        vow__user_drop(f);
    vow__rest_keep(f, source);
    vow__unref(f); /* the list's */
    return source;
}

/* Its readers go at once, but it stays behind its source: the function runs
 * when what it cleans up after has ended. A rejection does not use the word of
 * the tag. */
static vow_future *cancel_finally(vow_loop *loop, vow_future *f, vow_error *why)
{
    uintptr_t fn = (uintptr_t)f->u.call.u.finally;
    vow_future *source = f->node.source;
    vow__reject(loop, f, vow_error_ref(why));
    f->u.value.tag = fn;
    f->node.rest = !vow__pending(source) || vow__rest_counts(source);
    vow__ghost(source, 1);
    return vow__ref(source);
}

static void ask(vow_loop *loop, vow_future *f, vow_error *why)
{
    if (f->node.hook_now && !loop->canceling) {
        loop->canceling = true;
        f->u.call.u.hook(why, f->user);
        loop->canceling = false;
        return;
    }
    if (!f->node.canceled || f->node.hook_now) /* a user is asked once */
        vow__hook_queue(loop, f, why);
    f->node.canceled = 1;
}

void vow__hook_queue(vow_loop *loop, vow_future *f, vow_error *why)
{
    if (f->node.queued)
        return;
    f->node.queued = 1;
    f->u.call.v.why = vow_error_ref(why);
    vow__ref(f);
    vow__enqueue(loop, &f->node.link);
}

void vow__hook_run(vow_loop *loop, vow_future *f)
{
    vow_error *why = f->u.call.v.why;
    VOW__ASSERT(f->node.queued);
    f->node.queued = 0;
    f->u.call.v.why = NULL;
    loop->canceling = f->node.hook_now;
    f->u.call.u.hook(why, f->user);
    loop->canceling = false;
    vow_error_unref(why);
    vow__unref(f);
}

void vow__hook_forget(vow_loop *loop, vow_future *f)
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
    VOW__ASSERT_THREAD_OF(d, vow__loop_of(vow__future_of(d)));
    vow_future *f = vow__future_of(d);
    if (!vow_deferred_pending(d))
        return;
    if (fn == NULL && f->node.queued)
        vow__hook_forget(vow__loop_of(f), f);
    f->u.call.u.hook = fn;
    f->user = user;
    f->node.hook_now = 0;
    f->node.canceled = f->node.queued; /* else the next cancel asks this one */
}

void vow_on_cancel_now(vow_deferred *d, vow_cancel_fn fn, void *user)
{
    VOW__ASSERT_THREAD_OF(d, vow__loop_of(vow__future_of(d)));
    vow_future *f = vow__future_of(d);
    vow_on_cancel(d, fn, user);
    f->node.hook_now = fn != NULL && f->node.kind == VOW__PROMISE;
}

bool vow_deferred_canceled(const vow_deferred *d)
{
    VOW__ASSERT_THREAD_OF(d, vow__loop_of(vow__future_of(d)));
    const vow_future *f = vow__future_of(d);
    if (f == NULL)
        return false;
    if (vow__pending(f))
        return f->node.kind == VOW__PROMISE &&
               (f->node.canceled || f->node.queued);
    return f->node.state == VOW_REJECTED &&
           vow_error_code(vow__error_in(f)) == VOW_ECANCELED;
}

uint32_t vow__readers(const vow_future *f)
{
    if (f->node.ghosts == VOW__GHOSTS_MAX)
        return UINT32_MAX; /* too many to know */
    uint32_t ends = f->node.has_ends;
    uint32_t waits = f->node.kind != VOW__PROMISE && f->node.kind != VOW__NONE;
    return f->node.refs - ends - waits - f->node.queued - f->node.ghosts;
}
