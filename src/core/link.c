/* SPDX-License-Identifier: MIT */
/* link.c - chaining: a link waits for its source, runs the handler from the
 * loop's ready queue, and is settled with the return value of the handler.
 *
 * WHY   Handlers never run inside the call that attached or settled, and a
 *       chain of a million links needs a single stack frame.
 * HOW   Only vow__core_nodes_run() calls handlers. Settling a link there moves
 *       the waiters of the link to the ready queue, and the loop goes on.
 * INVARIANTS
 *   L1  a link with a source counts in the refs of the source, and is in the
 *       waiters of the source (pending) or in the ready queue (settled)
 *   L2  while its handler runs, a link has no source and is pending, unless the
 *       link is a canceled finally
 *   L3  drop(user) runs once: after the handler, or if the handler never runs
 * THREADS  loop thread only.
 */
#include "core/promise_internal.h"

VOW__INLINE vow_future *link_new(const char *site, vow_future *f,
                                 enum vow__core_node_kind kind, vow_step step);
VOW__COLD static vow_future *then_slow(const char *site, vow_future *f,
                                       vow_ok_fn ok, vow_fail_fn fail,
                                       void *user);
VOW__COLD static vow_future *then_drop_slow(const char *site, vow_future *f,
                                            vow_ok_fn ok, vow_fail_fn fail,
                                            void *user);
VOW__COLD static int done_slow(const char *site, vow_future *f, vow_ok_fn ok,
                               vow_fail_fn fail, void *user);
VOW__COLD static vow_future *link_new_in_context(const char *site,
                                                 vow_future *f, vow_step step);
VOW__COLD static vow_future *link_refused(vow_loop *loop, vow_drop_fn drop,
                                          void *user);
VOW__INLINE void run_then(vow_loop *loop, vow_future *link);
static void run_then_slow(vow_loop *loop, vow_future *link, vow_future *source)
    __attribute__((noinline));
static void run_other_node(vow_loop *loop, struct vow__core_node *n);
static void run_finally(vow_loop *loop, vow_future *link);
static void run_finally_late(vow_loop *loop, vow_future *link);
static vow_future *finally_rest(vow_future *link, vow_future *orig);
static void run_pass(vow_loop *loop, vow_future *link);
static void run_finally_wait(vow_loop *loop, vow_future *link);
VOW__INLINE void link_finish(vow_loop *loop, vow_future *link, vow_next next,
                             vow_future *source);
VOW__COLD static void link_finish_late(vow_loop *loop, vow_future *link,
                                       vow_next next);
static void finally_hold(vow_loop *loop, vow_future *link, vow_future *held,
                         vow_future *source);
static void drop_future(void *f);

/* ---- attaching ----------------------------------------------------------- */

vow_future *vow_then_at(const char *site, vow_future *f, vow_ok_fn ok,
                        vow_fail_fn fail, void *user)
{
    VOW__ASSERT_THREAD(vow__core_future_loop(f));
    vow_loop *loop = vow__core_future_loop(f);
    if (VOW__UNLIKELY(loop->closed || loop->in != NULL ||
                      !vow__slab_ready(&loop->futures)))
        return then_slow(site, f, ok, fail, user);
    return link_new(site, f, VOW__THEN,
                    (vow_step){.ok = ok, .fail = fail, .user = user});
}

/* Handles a full slab, a context, and a closed loop: kept apart, so that the
 * hot path calls no function. */
static vow_future *then_slow(const char *site, vow_future *f, vow_ok_fn ok,
                             vow_fail_fn fail, void *user)
{
    vow_loop *loop = vow__core_future_loop(f);
    if (loop->closed)
        return vow_refused_at(site, loop, VOW_ECLOSED, NULL);
    return link_new_in_context(
        site, f, (vow_step){.ok = ok, .fail = fail, .user = user});
}

vow_future *vow_then_drop_at(const char *site, vow_future *f, vow_ok_fn ok,
                             vow_fail_fn fail, void *user)
{
    VOW__ASSERT_THREAD(vow__core_future_loop(f));
    vow_loop *loop = vow__core_future_loop(f);
    if (VOW__UNLIKELY(loop->closed || loop->in != NULL ||
                      !vow__slab_ready(&loop->futures)))
        return then_drop_slow(site, f, ok, fail, user);
    vow_future *link = vow__core_future_new(loop, site, VOW__THEN, 2, false);
    link->u.call.u.ok = ok;
    link->u.call.v.fail = fail;
    link->user = user;
    vow__core_node_wait_moved(loop, &link->node, f);
    return link;
}

static vow_future *then_drop_slow(const char *site, vow_future *f, vow_ok_fn ok,
                                  vow_fail_fn fail, void *user)
{
    vow_future *link = then_slow(site, f, ok, fail, user);
    vow__core_future_unref(f);
    return link;
}

int vow_done_at(const char *site, vow_future *f, vow_ok_fn ok, vow_fail_fn fail,
                void *user)
{
    VOW__ASSERT_THREAD(vow__core_future_loop(f));
    vow_loop *loop = vow__core_future_loop(f);
    if (VOW__UNLIKELY(loop->closed || loop->in != NULL ||
                      !vow__slab_ready(&loop->futures)))
        return done_slow(site, f, ok, fail, user);
    vow_future *link = vow__core_future_new(loop, site, VOW__THEN, 1, false);
    link->u.call.u.ok = ok;
    link->u.call.v.fail = fail;
    link->user = user;
    vow__core_node_wait_moved(loop, &link->node, f);
    return 0;
}

static int done_slow(const char *site, vow_future *f, vow_ok_fn ok,
                     vow_fail_fn fail, void *user)
{
    vow_future *link = then_drop_slow(site, f, ok, fail, user);
    int rc = vow_error_code(vow_error_of(link)); /* 0: pending */
    vow__core_future_unref(link);
    return rc;
}

vow_future *vow_chain_at(const char *site, vow_future *f, const vow_step *steps,
                         size_t n)
{
    VOW__ASSERT_THREAD(vow__core_future_loop(f));
    vow_loop *loop = vow__core_future_loop(f);
    if (steps == NULL && n > 0)
        return vow_refused_at(site, loop, VOW_EINVAL, "no steps");
    for (size_t i = 0; loop->closed && i < n; i++)
        if (steps[i].drop != NULL)
            steps[i].drop(steps[i].user);
    if (loop->closed)
        return vow_refused_at(site, loop, VOW_ECLOSED, NULL);
    vow_future *last = vow__core_future_ref(f);
    for (size_t i = 0; i < n; i++) {
        vow_future *link = link_new_in_context(site, last, steps[i]);
        if (link->node.kind != VOW__THEN && last != f)
            (void)vow_cancel(last, NULL); /* all steps run, or none */
        vow__core_future_unref(last);
        last = link;
    }
    return last;
}

vow_future *vow_finally_at(const char *site, vow_future *f, vow_finally_fn fn,
                           void *user)
{
    VOW__ASSERT_THREAD(vow__core_future_loop(f));
    vow_loop *loop = vow__core_future_loop(f);
    vow_step step = {.user = user};
    if (loop->closed)
        return vow_refused_at(site, loop, VOW_ECLOSED, NULL);
    if (fn == NULL)
        return link_new(site, f, VOW__THEN, step);
    if (loop->in != NULL && !vow__core_context_carry(loop, &step, &fn))
        return link_refused(loop, NULL, NULL);
    vow_future *link = link_new(site, f, VOW__FINALLY, step);
    if (link->node.kind == VOW__FINALLY)
        link->u.call.u.finally = fn;
    return link;
}

/* Returns a link with two references: of the caller, and of the list that the
 * node is in. */
VOW__INLINE vow_future *link_new(const char *site, vow_future *f,
                                 enum vow__core_node_kind kind, vow_step step)
{
    vow_loop *loop = vow__core_future_loop(f);
    vow_future *link = vow__core_future_new(loop, site, kind, 2, false);
    if (VOW__UNLIKELY(link == NULL))
        return link_refused(loop, step.drop, step.user);
    link->u.call.u.ok = step.ok;
    link->u.call.v.fail = step.fail;
    link->user = step.user;
    link->w.drop = step.drop;
    vow__core_node_wait_quiet(loop, &link->node, f);
    return link;
}

/* Returns a link in the current context, if there is a context. */
static vow_future *link_new_in_context(const char *site, vow_future *f,
                                       vow_step step)
{
    vow_loop *loop = vow__core_future_loop(f);
    if (loop->in != NULL && !vow__core_context_carry(loop, &step, NULL))
        return link_refused(loop, step.drop, step.user);
    return link_new(site, f, VOW__THEN, step);
}

static vow_future *link_refused(vow_loop *loop, vow_drop_fn drop, void *user)
{
    if (drop != NULL)
        drop(user);
    return vow__core_future_no_memory(loop);
}

/* ---- waiting ------------------------------------------------------------- */

void vow__core_node_wait(vow_loop *loop, struct vow__core_node *n,
                         vow_future *source)
{
    vow_future *below = n->kind == VOW__WATCH
                            ? VOW__OUTER(n, struct vow__core_watch, node)->out
                            : VOW__OUTER(n, vow_future, node);
    vow__core_node_wait_quiet(loop, n, source);
    if (below != NULL && below->node.listened &&
        vow__core_future_is_pending(source))
        vow__core_progress_listen_up(source);
}

vow_future *vow__core_node_unwait(vow_loop *loop, struct vow__core_node *n)
{
    vow_future *source = n->source;
    vow__list_remove(vow__core_future_is_pending(source) ? &source->waiters
                                                         : &loop->ready,
                     &n->link);
    n->source = NULL;
    return source;
}

void vow__core_link_drop_user(vow_future *f)
{
    vow_drop_fn drop = f->w.drop;
    if (VOW__LIKELY(drop == NULL))
        return;
    f->w.drop = NULL; /* keeps L3 */
    vow_loop *loop = vow__core_future_loop(f);
    struct vow__core_visit before = vow__core_visit_begin(loop);
    drop(f->user);
    vow__core_visit_end(loop, before);
}

/* ---- running ------------------------------------------------------------- */

uint32_t vow__core_nodes_run(vow_loop *loop, uint32_t max)
{
    uint32_t left = max;
    vow_link *l;
    while (left > 0 && (l = vow__list_take(&loop->ready)) != NULL) {
        struct vow__core_node *n = VOW__OUTER(l, struct vow__core_node, link);
        left--;
        if (VOW__LIKELY(n->kind == VOW__THEN))
            run_then(loop, VOW__OUTER(n, vow_future, node));
        else
            run_other_node(loop, n);
    }
    return max - left;
}

static void run_other_node(vow_loop *loop, struct vow__core_node *n)
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
        vow__core_listener_free(loop, f);
        run_pass(loop, f);
        break;
    case VOW__PROMISE:
        vow__core_hook_run(loop, f);
        break;
    default: {
        struct vow__core_watch *w = VOW__OUTER(n, struct vow__core_watch, node);
        w->run(w);
        break;
    }
    }
}

VOW__INLINE void run_then(vow_loop *loop, vow_future *link)
{
    vow_future *source = link->node.source;
    link->node.source = NULL; /* keeps L2 */
    if (VOW__UNLIKELY(!vow__core_future_is_plain(source))) {
        run_then_slow(loop, link, source);
        return;
    }
    vow_ok_fn ok = link->u.call.u.ok;
    vow_next next = ok == NULL
                        ? vow_pass()
                        : ok(*vow__core_future_value(source), link->user);
    vow__core_link_drop_user(link);
    link_finish(loop, link, next, source);
}

/* Handles a source that was rejected, or that has rests. */
static void run_then_slow(vow_loop *loop, vow_future *link, vow_future *source)
{
    vow_next next = vow_pass();
    vow_ok_fn ok = link->u.call.u.ok;
    vow_fail_fn fail = link->u.call.v.fail;
    if (source->node.state == VOW_FULFILLED && ok != NULL)
        next = ok(*vow__core_future_value(source), link->user);
    else if (source->node.state == VOW_REJECTED && fail != NULL)
        next = fail(vow__core_future_error(source), link->user);
    vow__core_link_drop_user(link);
    if (source->node.rest)
        vow__core_rest_inherit(link, source);
    link_finish(loop, link, next, source);
}

/* Settles a link after the handler ran, unless the handler canceled the
 * link. */
VOW__INLINE void link_finish(vow_loop *loop, vow_future *link, vow_next next,
                             vow_future *source)
{
    if (VOW__LIKELY(vow__core_future_is_pending(link) &&
                    vow__core_next_is_value(next))) {
        link->u.value = next.out;
        link->node.state = VOW_FULFILLED;
        vow__core_future_wake_waiters(loop, link);
    } else if (vow__core_future_is_pending(link)) {
        vow__core_future_settle_other(loop, link, next, source);
    } else {
        link_finish_late(loop, link, next);
    }
    vow__core_future_unref_hot(source);
    vow__core_future_unref_hot(link);
}

/* Drops the return value after the handler canceled the link. A future to
 * follow is canceled if there is no other reader. */
static void link_finish_late(vow_loop *loop, vow_future *link, vow_next next)
{
    loop->late_settles++;
    if (next.out.tag == VOW_TAG_FOLLOW && next.out.as.ptr != NULL &&
        link->node.state == VOW_REJECTED)
        vow__core_source_leave(loop, link, next.out.as.ptr,
                               vow__core_future_error(link));
    else
        vow__core_next_drop(next);
}

static void run_pass(vow_loop *loop, vow_future *link)
{
    vow_future *source = link->node.source;
    link->node.source = NULL;
    vow__core_future_adopt(loop, link, source);
    vow__core_future_unref(source);
    vow__core_future_unref(link);
}

static void run_finally(vow_loop *loop, vow_future *link)
{
    vow_future *source = link->node.source;
    if (!vow__core_future_is_pending(link)) {
        run_finally_late(loop, link);
        return;
    }
    vow_finally_fn fn = link->u.call.u.finally;
    link->node.source = NULL;
    vow_next next = fn(link->user);
    vow__core_link_drop_user(link);
    vow_value out = next.out;
    if (vow__core_future_is_pending(link) && out.tag == VOW_TAG_FOLLOW &&
        out.as.ptr != NULL) {
        finally_hold(loop, link, out.as.ptr, source);
        vow__core_future_unref(link);
        return;
    }
    if (vow__core_next_is_value(next)) { /* the outcome passes on unchanged */
        vow__core_next_drop(next);
        next = vow_pass();
    }
    if (source->node.rest)
        vow__core_rest_inherit(link, source);
    link_finish(loop, link, next, source);
}

/* Runs a late finally: canceled by cancel.c, which left the function in
 * value.tag. The function runs when the source has ended; until then the link
 * waits behind rests of the source. */
static void run_finally_late(vow_loop *loop, vow_future *link)
{
    vow_future *source = link->node.source;
    vow_future *orig = vow__core_finally_source(link);
    vow_finally_fn fn = (vow_finally_fn)link->u.value.tag;
    bool again = link->node.canceled; /* `orig` is counted besides `source` */
    bool first = vow__core_finally_is_late(orig) && orig->node.rest;
    if (first && !again && !orig->node.canceled &&
        !vow__core_future_is_pending(orig->node.source)) {
        vow__list_push(&orig->waiters, &link->node.link); /* until orig ran */
        return;
    }
    vow_future *behind = finally_rest(link, orig);
    vow__core_future_count_end_ref(source, -1);
    if (!again && link->waiters != NULL)
        vow__list_splice(&loop->ready, &link->waiters);
    if (behind != NULL) {
        link->node.canceled = 1;
        link->waiters = &orig->node.link;
        vow__core_node_wait_moved(loop, &link->node, behind);
        vow__core_future_count_end_ref(behind, 1);
        if (again)
            vow__core_future_unref(source);
        vow__core_futures_reap(loop);
        return;
    }
    vow_next next = fn(link->user);
    vow__core_link_drop_user(link);
    link->node.source = NULL; /* no longer a late finally */
    link->node.canceled = 0;
    link->waiters = NULL;
    link->node.rest = 0;
    link->node.kind = VOW__FOLLOW;
    vow_future *after = next.out.as.ptr;
    if (next.out.tag == VOW_TAG_FOLLOW && after != NULL &&
        vow__core_future_loop(after) == loop)
        vow__core_rest_add(link, after);
    else
        vow__core_next_drop(next);
    if (again)
        vow__core_future_unref(source);
    vow__core_future_unref(orig);
    vow__core_future_unref(link);
}

/* Returns the future that a late finally must wait behind, counted; NULL: the
 * function may run. */
static vow_future *finally_rest(vow_future *link, vow_future *orig)
{
    bool rest = link->node.rest;
    if (vow__core_finally_is_late(orig) && orig->node.rest)
        return vow__core_future_ref(
            orig->node.source); /* where `orig` waits, before `link` */
    link->node.rest = 0;        /* `link` does not wait for itself */
    vow_future *behind = vow__core_rest_next(orig);
    link->node.rest = rest;
    return behind;
}

/* Waits for `held` before the outcome of `source` passes on. Both references
 * are moved; the reference to `source` into `user`, to be dropped as in L3. */
static void finally_hold(vow_loop *loop, vow_future *link, vow_future *held,
                         vow_future *source)
{
    bool foreign = vow__core_future_loop(held) != loop;
    if (foreign || vow__core_future_waits_for(held, link)) {
        vow__core_future_reject_code(loop, link,
                                     foreign ? VOW_EINVAL : VOW_ECYCLE, NULL);
        vow__core_rest_inherit(link, source);
        vow__core_future_unref(source);
    } else {
        link->node.kind = VOW__FINALLY_WAIT;
        link->user = source;
        link->w.drop = drop_future;
        vow__core_future_ref(link);
        vow__core_node_wait(loop, &link->node, held);
    }
    vow__core_future_unref(held);
}

static void run_finally_wait(vow_loop *loop, vow_future *link)
{
    vow_future *held = link->node.source;
    vow_future *source = link->user;
    bool failed = held->node.state == VOW_REJECTED;
    link->node.source = NULL;
    link->w.drop = NULL;
    vow__core_future_adopt(loop, link, failed ? held : source);
    vow__core_rest_inherit(link, failed ? source : held);
    vow__core_future_unref(source);
    vow__core_future_unref(held);
    vow__core_future_unref(link);
}

void vow__core_finally_drop_held(vow_future *f)
{
    vow_future *source = f->user;
    f->user = NULL;
    f->w.drop = NULL; /* keeps L3 */
    vow__core_rest_inherit(f, source);
    vow__core_future_unref(source);
}

static void drop_future(void *f)
{
    vow__core_future_unref(f);
}
