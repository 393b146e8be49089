/* SPDX-License-Identifier: MIT */
/* link.c - chaining: a link waits for its source, runs its handler from the
 * loop's queue, and is settled with what the handler returns.
 *
 * WHY   Handlers never run inside the call that attached or settled them, and a
 *       chain of a million links needs one stack frame.
 * HOW   vow__node_run() is the only place that calls handlers. Settling a link
 *       there moves its own waiters to the queue, and the loop goes on.
 * INVARIANTS
 *   L1  a node with a source is in its waiters (source pending) or in the ready
 *       queue (source settled), and holds one reference to it
 *   L2  a link whose handler runs is pending and has no source
 *   L3  drop(user) runs once: after the handler, or when it never will
 * THREADS  loop thread only.
 */
#include "core/promise_internal.h"

static vow_future *link_new(const char *site, vow_future *f,
                            enum vow__node_kind kind, const vow_step *step);
static void run_then(vow_loop *loop, vow_future *link);
static void run_finally(vow_loop *loop, vow_future *link);
static void run_pass(vow_loop *loop, vow_future *link);
static void run_finally_wait(vow_loop *loop, vow_future *link);
static void finish(vow_loop *loop, vow_future *link, vow_next next,
                   vow_future *source);
static void finally_hold(vow_loop *loop, vow_future *link, vow_future *held,
                         vow_future *source);
static void drop_future(void *f);

/* ---- attaching ----------------------------------------------------------- */

vow_future *vow_then_at(const char *site, vow_future *f, vow_ok_fn ok,
                        vow_fail_fn fail, void *user)
{
    vow_step step = {.ok = ok, .fail = fail, .user = user};
    return link_new(site, f, VOW__THEN, &step);
}

vow_future *vow_chain_at(const char *site, vow_future *f, const vow_step *steps,
                         size_t n)
{
    if (steps == NULL && n > 0)
        return vow__refuse(vow__loop_of(f), site, VOW_EINVAL, "no steps");
    vow_future *last = vow__ref(f);
    for (size_t i = 0; i < n; i++) {
        vow_future *link = link_new(site, last, VOW__THEN, &steps[i]);
        if (link->node.kind != VOW__THEN && last != f)
            (void)vow_cancel(last, NULL); /* a chain is whole or not at all */
        vow__unref(last);
        last = link;
    }
    return last;
}

vow_future *vow_finally_at(const char *site, vow_future *f, vow_finally_fn fn,
                           void *user)
{
    vow_step step = {.user = user};
    if (fn == NULL)
        return link_new(site, f, VOW__THEN, &step);
    vow_future *link = link_new(site, f, VOW__FINALLY, &step);
    if (link->node.kind == VOW__FINALLY)
        link->u.call.u.finally = fn;
    return link;
}

/* References: the caller's, and that of the list it waits in. */
static vow_future *link_new(const char *site, vow_future *f,
                            enum vow__node_kind kind, const vow_step *step)
{
    vow_loop *loop = vow__loop_of(f);
    vow_future *link = vow__future_new(loop, site, kind, 2, false);
    if (VOW__UNLIKELY(link == NULL)) {
        if (step->drop != NULL)
            step->drop(step->user);
        return vow__no_memory(loop);
    }
    link->u.call.u.ok = step->ok;
    link->u.call.v.fail = step->fail;
    link->user = step->user;
    link->drop = step->drop;
    vow__wait_quiet(loop, &link->node, f);
    return link;
}

/* ---- waiting ------------------------------------------------------------- */

void vow__wait(vow_loop *loop, struct vow__node *n, vow_future *source)
{
    vow_future *below = n->kind == VOW__WATCH
                            ? VOW__OUTER(n, struct vow__watch, node)->out
                            : VOW__OUTER(n, vow_future, node);
    vow__wait_quiet(loop, n, source);
    if (below != NULL && below->node.listened && vow__pending(source))
        vow__listen_up(source);
}

vow_future *vow__unwait(vow_loop *loop, struct vow__node *n)
{
    vow_future *source = n->source;
    vow__list_remove(vow__pending(source) ? &source->waiters : &loop->ready,
                     &n->link);
    n->source = NULL;
    return source;
}

void vow__user_drop(vow_future *f)
{
    vow_drop_fn drop = f->drop;
    if (VOW__LIKELY(drop == NULL))
        return;
    f->drop = NULL; /* keeps L3 */
    drop(f->user);
}

/* ---- running ------------------------------------------------------------- */

void vow__node_run(vow_loop *loop, struct vow__node *n)
{
    vow_future *f = VOW__OUTER(n, vow_future, node);
    switch (n->kind) {
    case VOW__THEN:
        run_then(loop, f);
        break;
    case VOW__FOLLOW:
        run_pass(loop, f);
        break;
    case VOW__FINALLY:
        run_finally(loop, f);
        break;
    case VOW__FINALLY_WAIT:
        run_finally_wait(loop, f);
        break;
    case VOW__LISTEN:
        vow__listener_free(loop, f);
        run_pass(loop, f);
        break;
    case VOW__PROMISE:
        vow__hook_run(loop, f);
        break;
    default: {
        struct vow__watch *w = VOW__OUTER(n, struct vow__watch, node);
        w->run(w);
        break;
    }
    }
}

static void run_then(vow_loop *loop, vow_future *link)
{
    vow_future *source = link->node.source;
    vow_next next;
    link->node.source = NULL; /* keeps L2 */
    if (source->node.state == VOW_FULFILLED) {
        vow_ok_fn ok = link->u.call.u.ok;
        next = ok == NULL ? vow_pass() : ok(*vow__value_of(source), link->user);
    } else {
        vow_fail_fn fail = link->u.call.v.fail;
        next =
            fail == NULL ? vow_pass() : fail(vow__error_in(source), link->user);
    }
    vow__user_drop(link);
    finish(loop, link, next, source);
}

/* Settle a link whose handler ran, unless the handler canceled it. */
static void finish(vow_loop *loop, vow_future *link, vow_next next,
                   vow_future *source)
{
    if (VOW__LIKELY(vow__pending(link))) {
        vow__settle_next(loop, link, next, source);
    } else {
        loop->late_settles++;
        vow__next_drop(next);
    }
    vow__unref(source);
    vow__unref(link);
}

static void run_pass(vow_loop *loop, vow_future *link)
{
    vow_future *source = link->node.source;
    link->node.source = NULL;
    vow__adopt(loop, link, source);
    vow__unref(source);
    vow__unref(link);
}

static void run_finally(vow_loop *loop, vow_future *link)
{
    vow_future *source = link->node.source;
    link->node.source = NULL;
    vow_next next = link->u.call.u.finally(link->user);
    vow_value out = next.out;
    vow__user_drop(link);
    bool fails = out.tag == VOW_TAG_ERROR || (intptr_t)out.tag < 0;
    if (!fails && out.tag == VOW_TAG_FOLLOW && out.as.ptr != NULL &&
        vow__pending(link)) {
        finally_hold(loop, link, out.as.ptr, source);
        vow__unref(link);
        return;
    }
    if (!fails && vow__pending(link)) {
        vow__next_drop(next);
        next = vow_pass();
    }
    finish(loop, link, next, source);
}

/* Wait for `held` before the outcome of `source` goes on. Both references are
 * moved; the second into `user`, from where L3 drops it. */
static void finally_hold(vow_loop *loop, vow_future *link, vow_future *held,
                         vow_future *source)
{
    bool foreign = vow__loop_of(held) != loop;
    if (foreign || vow__waits_for(held, link)) {
        vow__reject_code(loop, link, foreign ? VOW_EINVAL : VOW_ECYCLE, NULL);
        vow__unref(source);
    } else {
        link->node.kind = VOW__FINALLY_WAIT;
        link->user = source;
        link->drop = drop_future;
        vow__ref(link);
        vow__wait(loop, &link->node, held);
    }
    vow__unref(held);
}

static void run_finally_wait(vow_loop *loop, vow_future *link)
{
    vow_future *held = link->node.source;
    link->node.source = NULL;
    vow__adopt(loop, link,
               held->node.state == VOW_REJECTED ? held
                                                : (vow_future *)link->user);
    vow__user_drop(link);
    vow__unref(held);
    vow__unref(link);
}

static void drop_future(void *f)
{
    vow__unref(f);
}
