/* SPDX-License-Identifier: MIT */
/* link.c - chaining: a link waits for its source, runs its handler from the
 * loop's queue, and is settled with what the handler returns.
 *
 * WHY   Handlers never run inside the call that attached or settled them, and a
 *       chain of a million links needs one stack frame.
 * HOW   vow__nodes_run() is the only place that calls handlers. Settling a link
 *       there moves its own waiters to the queue, and the loop goes on.
 * INVARIANTS
 *   L1  a link with a source is in its waiters (source pending) or in the ready
 *       queue (source settled), and holds one reference to it
 *   L2  a link whose handler runs has no source and is pending, unless it is a
 *       finally that was canceled
 *   L3  drop(user) runs once: after the handler, or when it never will
 * THREADS  loop thread only.
 */
#include "core/promise_internal.h"

VOW__INLINE vow_future *link_new(const char *site, vow_future *f,
                                 enum vow__node_kind kind, vow_step step);
VOW__COLD static vow_future *then_with_care(const char *site, vow_future *f,
                                            vow_ok_fn ok, vow_fail_fn fail,
                                            void *user);
VOW__COLD static vow_future *then_drop_with_care(const char *site,
                                                 vow_future *f, vow_ok_fn ok,
                                                 vow_fail_fn fail, void *user);
VOW__COLD static int done_with_care(const char *site, vow_future *f,
                                    vow_ok_fn ok, vow_fail_fn fail, void *user);
VOW__COLD static vow_future *step_new(const char *site, vow_future *f,
                                      vow_step step);
VOW__COLD static vow_future *link_refused(vow_loop *loop, vow_drop_fn drop,
                                          void *user);
VOW__INLINE void run_then(vow_loop *loop, vow_future *link);
static void run_then_otherwise(vow_loop *loop, vow_future *link,
                               vow_future *source) __attribute__((noinline));
static void run_other(vow_loop *loop, struct vow__node *n);
static void run_finally(vow_loop *loop, vow_future *link);
static void run_finally_late(vow_loop *loop, vow_future *link);
static vow_future *finally_rest(vow_future *link, vow_future *orig);
static void run_pass(vow_loop *loop, vow_future *link);
static void run_finally_wait(vow_loop *loop, vow_future *link);
VOW__INLINE void finish(vow_loop *loop, vow_future *link, vow_next next,
                        vow_future *source);
VOW__COLD static void finish_late(vow_loop *loop, vow_future *link,
                                  vow_next next);
static void finally_hold(vow_loop *loop, vow_future *link, vow_future *held,
                         vow_future *source);
static void drop_future(void *f);

/* ---- attaching ----------------------------------------------------------- */

vow_future *vow_then_at(const char *site, vow_future *f, vow_ok_fn ok,
                        vow_fail_fn fail, void *user)
{
    VOW__ASSERT_THREAD(vow__loop_of(f));
    vow_loop *loop = vow__loop_of(f);
    if (VOW__UNLIKELY(loop->closed || loop->in != NULL ||
                      !vow__slab_ready(&loop->futures)))
        return then_with_care(site, f, ok, fail, user);
    return link_new(site, f, VOW__THEN,
                    (vow_step){.ok = ok, .fail = fail, .user = user});
}

/* Needs a new slab, or is in a context, or too late: kept apart, so that the
 * way of a million links calls nothing. */
static vow_future *then_with_care(const char *site, vow_future *f, vow_ok_fn ok,
                                  vow_fail_fn fail, void *user)
{
    vow_loop *loop = vow__loop_of(f);
    if (loop->closed)
        return vow_refused_at(site, loop, VOW_ECLOSED, NULL);
    return step_new(site, f, (vow_step){.ok = ok, .fail = fail, .user = user});
}

vow_future *vow_then_drop_at(const char *site, vow_future *f, vow_ok_fn ok,
                             vow_fail_fn fail, void *user)
{
    VOW__ASSERT_THREAD(vow__loop_of(f));
    vow_loop *loop = vow__loop_of(f);
    if (VOW__UNLIKELY(loop->closed || loop->in != NULL ||
                      !vow__slab_ready(&loop->futures)))
        return then_drop_with_care(site, f, ok, fail, user);
    vow_future *link = vow__future_new(loop, site, VOW__THEN, 2, false);
    link->u.call.u.ok = ok;
    link->u.call.v.fail = fail;
    link->user = user;
    vow__wait_moved(loop, &link->node, f);
    return link;
}

static vow_future *then_drop_with_care(const char *site, vow_future *f,
                                       vow_ok_fn ok, vow_fail_fn fail,
                                       void *user)
{
    vow_future *link = then_with_care(site, f, ok, fail, user);
    vow__unref(f);
    return link;
}

int vow_done_at(const char *site, vow_future *f, vow_ok_fn ok, vow_fail_fn fail,
                void *user)
{
    VOW__ASSERT_THREAD(vow__loop_of(f));
    vow_loop *loop = vow__loop_of(f);
    if (VOW__UNLIKELY(loop->closed || loop->in != NULL ||
                      !vow__slab_ready(&loop->futures)))
        return done_with_care(site, f, ok, fail, user);
    vow_future *link = vow__future_new(loop, site, VOW__THEN, 1, false);
    link->u.call.u.ok = ok;
    link->u.call.v.fail = fail;
    link->user = user;
    vow__wait_moved(loop, &link->node, f);
    return 0;
}

static int done_with_care(const char *site, vow_future *f, vow_ok_fn ok,
                          vow_fail_fn fail, void *user)
{
    vow_future *link = then_drop_with_care(site, f, ok, fail, user);
    int rc = vow_error_code(vow_error_of(link)); /* refused, or pending */
    vow__unref(link);
    return rc;
}

vow_future *vow_chain_at(const char *site, vow_future *f, const vow_step *steps,
                         size_t n)
{
    VOW__ASSERT_THREAD(vow__loop_of(f));
    vow_loop *loop = vow__loop_of(f);
    if (steps == NULL && n > 0)
        return vow_refused_at(site, loop, VOW_EINVAL, "no steps");
    for (size_t i = 0; loop->closed && i < n; i++)
        if (steps[i].drop != NULL)
            steps[i].drop(steps[i].user);
    if (loop->closed)
        return vow_refused_at(site, loop, VOW_ECLOSED, NULL);
    vow_future *last = vow__ref(f);
    for (size_t i = 0; i < n; i++) {
        vow_future *link = step_new(site, last, steps[i]);
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
    VOW__ASSERT_THREAD(vow__loop_of(f));
    vow_loop *loop = vow__loop_of(f);
    vow_step step = {.user = user};
    if (loop->closed)
        return vow_refused_at(site, loop, VOW_ECLOSED, NULL);
    if (fn == NULL)
        return link_new(site, f, VOW__THEN, step);
    if (loop->in != NULL && !vow__carry(loop, &step, &fn))
        return link_refused(loop, NULL, NULL);
    vow_future *link = link_new(site, f, VOW__FINALLY, step);
    if (link->node.kind == VOW__FINALLY)
        link->u.call.u.finally = fn;
    return link;
}

/* References: the caller's, and that of the list it waits in. */
VOW__INLINE vow_future *link_new(const char *site, vow_future *f,
                                 enum vow__node_kind kind, vow_step step)
{
    vow_loop *loop = vow__loop_of(f);
    vow_future *link = vow__future_new(loop, site, kind, 2, false);
    if (VOW__UNLIKELY(link == NULL))
        return link_refused(loop, step.drop, step.user);
    link->u.call.u.ok = step.ok;
    link->u.call.v.fail = step.fail;
    link->user = step.user;
    link->w.drop = step.drop;
    vow__wait_quiet(loop, &link->node, f);
    return link;
}

/* A link in the current context, if there is one. */
static vow_future *step_new(const char *site, vow_future *f, vow_step step)
{
    vow_loop *loop = vow__loop_of(f);
    if (loop->in != NULL && !vow__carry(loop, &step, NULL))
        return link_refused(loop, step.drop, step.user);
    return link_new(site, f, VOW__THEN, step);
}

static vow_future *link_refused(vow_loop *loop, vow_drop_fn drop, void *user)
{
    if (drop != NULL)
        drop(user);
    return vow__no_memory(loop);
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
    vow_drop_fn drop = f->w.drop;
    if (VOW__LIKELY(drop == NULL))
        return;
    f->w.drop = NULL; /* keeps L3 */
    vow_loop *loop = vow__loop_of(f);
    struct vow__visit before = vow__visit_begin(loop);
    drop(f->user);
    vow__visit_end(loop, before);
}

/* ---- running ------------------------------------------------------------- */

uint32_t vow__nodes_run(vow_loop *loop, uint32_t max)
{
    uint32_t left = max;
    vow_link *l;
    while (left > 0 && (l = vow__list_take(&loop->ready)) != NULL) {
        struct vow__node *n = VOW__OUTER(l, struct vow__node, link);
        left--;
        if (VOW__LIKELY(n->kind == VOW__THEN))
            run_then(loop, VOW__OUTER(n, vow_future, node));
        else
            run_other(loop, n);
    }
    return max - left;
}

static void run_other(vow_loop *loop, struct vow__node *n)
{
    vow_future *f = VOW__OUTER(n, vow_future, node);
    switch (n->kind) {
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

VOW__INLINE void run_then(vow_loop *loop, vow_future *link)
{
    vow_future *source = link->node.source;
    link->node.source = NULL; /* keeps L2 */
    if (VOW__UNLIKELY(!vow__plain(source))) {
        run_then_otherwise(loop, link, source);
        return;
    }
    vow_ok_fn ok = link->u.call.u.ok;
    vow_next next =
        ok == NULL ? vow_pass() : ok(*vow__value_of(source), link->user);
    vow__user_drop(link);
    finish(loop, link, next, source);
}

/* The source was rejected, or has not ended. */
static void run_then_otherwise(vow_loop *loop, vow_future *link,
                               vow_future *source)
{
    vow_next next = vow_pass();
    vow_ok_fn ok = link->u.call.u.ok;
    vow_fail_fn fail = link->u.call.v.fail;
    if (source->node.state == VOW_FULFILLED && ok != NULL)
        next = ok(*vow__value_of(source), link->user);
    else if (source->node.state == VOW_REJECTED && fail != NULL)
        next = fail(vow__error_in(source), link->user);
    vow__user_drop(link);
    if (source->node.rest)
        vow__rest_inherit(link, source);
    finish(loop, link, next, source);
}

/* Settle a link whose handler ran, unless the handler canceled it. */
VOW__INLINE void finish(vow_loop *loop, vow_future *link, vow_next next,
                        vow_future *source)
{
    if (VOW__LIKELY(vow__pending(link) && vow__is_value(next))) {
        link->u.value = next.out;
        link->node.state = VOW_FULFILLED;
        vow__flush(loop, link);
    } else if (vow__pending(link)) {
        vow__settle_other(loop, link, next, source);
    } else {
        finish_late(loop, link, next);
    }
    vow__unref_hot(source);
    vow__unref_hot(link);
}

/* It was canceled by its own handler: nobody needs what that follows. */
static void finish_late(vow_loop *loop, vow_future *link, vow_next next)
{
    loop->late_settles++;
    if (next.out.tag == VOW_TAG_FOLLOW && next.out.as.ptr != NULL &&
        link->node.state == VOW_REJECTED)
        vow__leave(loop, link, next.out.as.ptr, vow__error_in(link));
    else
        vow__next_drop(next);
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
    if (!vow__pending(link)) {
        run_finally_late(loop, link);
        return;
    }
    vow_finally_fn fn = link->u.call.u.finally;
    link->node.source = NULL;
    vow_next next = fn(link->user);
    vow__user_drop(link);
    vow_value out = next.out;
    if (vow__pending(link) && out.tag == VOW_TAG_FOLLOW && out.as.ptr != NULL) {
        finally_hold(loop, link, out.as.ptr, source);
        vow__unref(link);
        return;
    }
    if (vow__is_value(next)) { /* no say in the outcome */
        vow__next_drop(next);
        next = vow_pass();
    }
    if (source->node.rest)
        vow__rest_inherit(link, source);
    finish(loop, link, next, source);
}

/* It was canceled by cancel.c, which left us the function. Nobody waits for the
 * outcome: so it runs when the source has ended. */
static void run_finally_late(vow_loop *loop, vow_future *link)
{
    vow_future *source = link->node.source;
    vow_future *orig = vow__finally_source(link);
    vow_finally_fn fn = (vow_finally_fn)link->u.value.tag;
    bool again = link->node.canceled; /* then `orig` is counted apart */
    bool first = vow__late_finally(orig) && orig->node.rest;
    if (first && !again && !orig->node.canceled &&
        !vow__pending(orig->node.source)) {
        vow__list_push(&orig->waiters, &link->node.link); /* until that ran */
        return;
    }
    vow_future *behind = finally_rest(link, orig);
    vow__ghost(source, -1);
    if (!again && link->waiters != NULL)
        vow__list_splice(&loop->ready, &link->waiters);
    if (behind != NULL) {
        link->node.canceled = 1;
        link->waiters = &orig->node.link;
        vow__wait_moved(loop, &link->node, behind);
        vow__ghost(behind, 1);
        if (again)
            vow__unref(source);
        vow__reap(loop);
        return;
    }
    vow_next next = fn(link->user);
    vow__user_drop(link);
    link->node.source = NULL; /* until now, for those who wait for its end */
    link->node.canceled = 0;
    link->waiters = NULL;
    link->node.rest = 0;
    link->node.kind = VOW__FOLLOW;
    vow_future *after = next.out.as.ptr;
    if (next.out.tag == VOW_TAG_FOLLOW && after != NULL &&
        vow__loop_of(after) == loop)
        vow__rest_add(link, after);
    else
        vow__next_drop(next);
    if (again)
        vow__unref(source);
    vow__unref(orig);
    vow__unref(link);
}

/* What a late finally waits behind, counted; NULL: it may run. */
static vow_future *finally_rest(vow_future *link, vow_future *orig)
{
    bool rest = link->node.rest;
    if (vow__late_finally(orig) && orig->node.rest)
        return vow__ref(orig->node.source); /* that one is there before it */
    link->node.rest = 0;                    /* it does not wait for itself */
    vow_future *behind = vow__rest_next(orig);
    link->node.rest = rest;
    return behind;
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
        link->w.drop = drop_future;
        vow__ref(link);
        vow__wait(loop, &link->node, held);
    }
    vow__unref(held);
}

static void run_finally_wait(vow_loop *loop, vow_future *link)
{
    vow_future *held = link->node.source;
    vow_future *source = link->user;
    bool failed = held->node.state == VOW_REJECTED;
    link->node.source = NULL;
    link->w.drop = NULL;
    vow__adopt(loop, link, failed ? held : source);
    vow__rest_inherit(link, failed ? source : held);
    vow__unref(source);
    vow__unref(held);
    vow__unref(link);
}

void vow__held_drop(vow_future *f)
{
    vow_future *source = f->user;
    f->user = NULL;
    f->w.drop = NULL; /* keeps L3 */
    vow__rest_inherit(f, source);
    vow__unref(source);
}

static void drop_future(void *f)
{
    vow__unref(f);
}
