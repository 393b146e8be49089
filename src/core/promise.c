/* SPDX-License-Identifier: MIT */
/* promise.c - both ends of a promise: making, settling, following, freeing.
 *
 * WHY   Every asynchronous result in vow is a promise, settled once.
 * HOW   Settling stores the outcome and moves all waiters to the loop's ready
 *       queue in a single splice: no memory, no calls, any number of waiters.
 *       link.c runs the nodes of the ready queue.
 * INVARIANTS
 *   P1  a settled future has no waiters and is settled for ever
 *   P2  a pending PROMISE has a deferred, or waits for the loop to close
 *   P3  an alias refers to a future without an alias: one step to the value
 *   P4  destroying never recurses: futures freed meanwhile wait in loop->dead
 * LIMITS  settle O(1); 88 bytes per future.
 * THREADS  loop thread only.
 */
#include "core/promise_internal.h"

static vow_future *promise_new_settled(vow_loop *loop, const char *site,
                                       vow_next next);
static bool end_is_open(const vow_future *f);
static bool tag_is_code(uintptr_t tag);
static void link_collapse(vow_loop *loop, vow_future *f, vow_future *other);
static bool held_only_by_waiters(const vow_future *f);
VOW__COLD static vow_future *promise_new_slow(const char *site, vow_loop *loop,
                                              vow_deferred **ret_end);
VOW__COLD static void break_promise(vow_future *f);
VOW__COLD static bool settle_slow(vow_deferred *d, vow_next next);
VOW__COLD static bool settle_drop_slow(vow_deferred *d, vow_next next);

/* ---- making -------------------------------------------------------------- */

vow_future *vow__core_promise_new(vow_loop *loop, const char *site,
                                  vow_cancel_fn hook, void *user)
{
    vow_future *f = vow__core_future_new(loop, site, VOW__PROMISE, 2, true);
    if (f == NULL)
        return NULL;
    f->node.hook_now = hook != NULL;
    f->u.call.u.hook = hook;
    f->user = user;
    return f;
}

vow_future *vow_promise_at(const char *site, vow_loop *loop,
                           vow_deferred **ret_end)
{
    VOW__ASSERT_THREAD(loop);
    if (VOW__UNLIKELY(!vow__slab_ready(&loop->futures)))
        return promise_new_slow(site, loop, ret_end);
    vow_future *f = vow__core_future_new(loop, site, VOW__PROMISE, 2, true);
    *ret_end = vow__core_deferred_of(f);
    return f;
}

/* Takes a new slab; without memory, returns the loop's rejected future. */
static vow_future *promise_new_slow(const char *site, vow_loop *loop,
                                    vow_deferred **ret_end)
{
    vow_future *f = vow__core_future_new(loop, site, VOW__PROMISE, 2, true);
    if (f == NULL) {
        f = vow__core_future_no_memory(loop);
        vow_deferred_ref(vow__core_deferred_of(f));
    }
    *ret_end = vow__core_deferred_of(f);
    return f;
}

vow_future *vow_resolved_at(const char *site, vow_loop *loop, vow_value v)
{
    VOW__ASSERT_THREAD(loop);
    return promise_new_settled(loop, site, vow_ok(v));
}

vow_future *vow_rejected_at(const char *site, vow_loop *loop, vow_error *e)
{
    VOW__ASSERT_THREAD(loop);
    return promise_new_settled(loop, site, vow_fail(e));
}

vow_future *vow_refused_at(const char *site, vow_loop *loop, int code,
                           const char *text)
{
    VOW__ASSERT_THREAD(loop);
    return promise_new_settled(loop, site, vow_fail_code(code, text));
}

vow_future *vow__core_future_no_memory(vow_loop *loop)
{
    return vow__core_future_ref(loop->no_memory);
}

static vow_future *promise_new_settled(vow_loop *loop, const char *site,
                                       vow_next next)
{
    vow_future *f = vow__core_future_new(loop, site, VOW__PROMISE, 1, false);
    if (f == NULL) {
        vow__core_next_drop(next);
        return vow__core_future_no_memory(loop);
    }
    vow__core_future_settle_next(loop, f, next, NULL);
    return f;
}

/* ---- settling ------------------------------------------------------------ */

bool vow_resolve(vow_deferred *d, vow_value v)
{
    vow_future *f = vow__core_future_of(d);
    vow_loop *loop = vow__core_future_loop(f);
    VOW__ASSERT_THREAD(loop);
    if (VOW__UNLIKELY(!end_is_open(f) || f->node.queued || !loop->armed))
        return settle_slow(d, vow_ok(v));
    f->u.value = v;
    f->node.state = VOW_FULFILLED;
    vow__list_splice(&loop->ready, &f->waiters); /* keeps P1 */
    return true;
}

bool vow_resolve_drop(vow_deferred *d, vow_value v)
{
    vow_future *f = vow__core_future_of(d);
    vow_loop *loop = vow__core_future_loop(f);
    VOW__ASSERT_THREAD(loop);
    if (VOW__UNLIKELY(!end_is_open(f) || f->node.queued || !loop->armed ||
                      f->w.ends != 1 || f->node.refs == 1))
        return settle_drop_slow(d, vow_ok(v));
    f->u.value = v;
    f->node.state = VOW_FULFILLED;
    f->node.has_ends = 0;
    f->w.ends = 0;
    f->node.refs--;
    vow__list_splice(&loop->ready, &f->waiters); /* keeps P1 */
    return true;
}

bool vow_reject_drop(vow_deferred *d, vow_error *e)
{
    VOW__ASSERT_THREAD_OF(d, vow__core_future_loop(vow__core_future_of(d)));
    return settle_drop_slow(d, vow_fail(e));
}

static bool settle_drop_slow(vow_deferred *d, vow_next next)
{
    bool first = settle_slow(d, next);
    vow_deferred_unref(d);
    return first;
}

bool vow_reject(vow_deferred *d, vow_error *e)
{
    VOW__ASSERT_THREAD_OF(d, vow__core_future_loop(vow__core_future_of(d)));
    return vow_settle(d, vow_fail(e));
}

bool vow_reject_code(vow_deferred *d, int code, const char *text)
{
    VOW__ASSERT_THREAD_OF(d, vow__core_future_loop(vow__core_future_of(d)));
    return vow_settle(d, vow_fail_code(code, text));
}

bool vow_resolve_with(vow_deferred *d, vow_future *other)
{
    VOW__ASSERT_THREAD_OF(d, vow__core_future_loop(vow__core_future_of(d)));
    if (other != NULL)
        vow__core_future_ref(other);
    return vow_settle(d, vow_follow(other));
}

bool vow_settle(vow_deferred *d, vow_next next)
{
    VOW__ASSERT_THREAD_OF(d, vow__core_future_loop(vow__core_future_of(d)));
    return settle_slow(d, next);
}

/* Settles in all cases: too late, not with a value, or the loop must be armed.
 * Returns false if the promise was settled before. */
static bool settle_slow(vow_deferred *d, vow_next next)
{
    vow_future *f = vow__core_future_of(d);
    vow_loop *loop = vow__core_future_loop(f);
    VOW__ASSERT_THREAD(loop);
    if (VOW__UNLIKELY(!end_is_open(f))) {
        loop->late_settles++;
        vow__core_next_drop(next);
        return false;
    }
    vow__core_future_settle_next(loop, f, next, NULL);
    return true;
}

/* Handles an error, a future to follow, vow_pass(), and an error code. */
void vow__core_future_settle_other(vow_loop *loop, vow_future *f, vow_next next,
                                   vow_future *came)
{
    vow_value v = next.out;
    if (v.tag == VOW_TAG_FOLLOW && v.as.ptr != NULL) {
        vow__core_future_follow(loop, f, v.as.ptr);
    } else if (v.tag == VOW_TAG_ERROR && v.as.ptr != NULL) {
        vow__core_future_reject(loop, f, v.as.ptr);
    } else if (v.tag == VOW_TAG_PASS && came != NULL) {
        vow__core_future_adopt(loop, f, came);
    } else if (tag_is_code(v.tag)) {
        vow__core_future_reject_code(loop, f, (int)(intptr_t)v.tag, v.as.ptr);
    } else {
        vow__core_future_reject_code(
            loop, f, VOW_EINVAL,
            v.tag == VOW_TAG_PASS ? "vow_pass() without an outcome to pass on"
                                  : "a NULL error or future");
    }
}

void vow__core_future_reject(vow_loop *loop, vow_future *f, vow_error *e)
{
    VOW__ASSERT(vow__core_future_is_pending(f));
    if (VOW__UNLIKELY(f->node.queued))
        vow__core_hook_forget(loop, f);
    f->u.value.as.ptr = e;
    f->u.value.tag = VOW_NOTHING;
    f->node.state = VOW_REJECTED;
    vow__core_future_wake_waiters(loop, f);
}

void vow__core_future_reject_code(vow_loop *loop, vow_future *f, int code,
                                  const char *text)
{
    vow__core_future_reject(
        loop, f, vow__core_error_new(loop, f->site, code, NULL, text));
}

void vow__core_future_adopt(vow_loop *loop, vow_future *f, vow_future *from)
{
    vow__core_future_adopt_outcome(loop, f, from);
    if (VOW__UNLIKELY(from->node.rest))
        vow__core_rest_inherit(f, from);
}

void vow__core_future_adopt_outcome(vow_loop *loop, vow_future *f,
                                    vow_future *from)
{
    VOW__ASSERT(!vow__core_future_is_pending(from));
    if (from->node.state == VOW_REJECTED) {
        vow__core_future_reject(loop, f,
                                vow_error_ref(vow__core_future_error(from)));
        return;
    }
    vow_value v = from->u.value;
    if (v.tag <= VOW_PTR) {
        vow__core_future_fulfil(loop, f, v);
    } else if (from->node.refs == 1) {
        from->u.value = vow_nothing(); /* no other reader: move the value */
        vow__core_future_fulfil(loop, f, v);
    } else if (v.tag == VOW_BYTES) {
        (void)vow_bytes_ref(v.as.ptr);
        vow__core_future_fulfil(loop, f, v);
    } else {
        vow_future *root = v.tag == VOW__TAG_ALIAS ? v.as.ptr : from;
        v.as.ptr = vow__core_future_ref(root); /* keeps P3 */
        v.tag = VOW__TAG_ALIAS;
        vow__core_future_fulfil(loop, f, v);
    }
}

/* Returns whether a deferred may still settle `f`; not while `f` follows. */
static bool end_is_open(const vow_future *f)
{
    return vow__core_future_is_pending(f) && f->node.kind == VOW__PROMISE;
}

/* Returns whether the tag is a negative code of vow_fail_code(), which no
 * address is. */
static bool tag_is_code(uintptr_t tag)
{
    return (intptr_t)tag < 0 && tag > VOW_TAG_PASS;
}

void vow__core_next_drop(vow_next next)
{
    uintptr_t tag = next.out.tag;
    if (tag == VOW_TAG_ERROR)
        vow_error_unref(next.out.as.ptr);
    else if (tag == VOW_TAG_FOLLOW)
        vow_future_unref(next.out.as.ptr);
    else if (vow__core_next_is_value(next))
        vow_value_drop(next.out);
}

/* ---- following ----------------------------------------------------------- */

void vow__core_future_follow(vow_loop *loop, vow_future *f, vow_future *other)
{
    vow_error *why = NULL; /* of a cancel, if the hook did not run yet */
    if (vow__core_future_loop(other) != loop) {
        vow__core_future_reject_code(loop, f, VOW_EINVAL,
                                     "a future of another loop");
    } else if (other == f ||
               (f->waiters != NULL && vow__core_future_waits_for(other, f))) {
        vow__core_future_reject_code(loop, f, VOW_ECYCLE, NULL);
    } else if (!vow__core_future_is_pending(other)) {
        other->node.handled = 1;
        vow__core_future_adopt(loop, f, other);
    } else if (held_only_by_waiters(f) &&
               (!f->node.rest || vow__core_rest_hand_down(f))) {
        link_collapse(loop, f, other);
    } else {
        if (f->node.queued) {
            why = vow_error_ref(f->u.call.v.why);
            vow__core_hook_forget(loop, f);
        }
        if (f->node.rest)
            vow__core_rest_move(f);
        f->node.kind = VOW__FOLLOW;
        vow__core_future_ref(f);
        vow__core_node_wait(loop, &f->node, other);
    }
    vow__core_future_unref(other);
    if (why != NULL) {
        (void)vow_cancel(f, why);
        vow_error_unref(why);
    }
}

/* Returns whether `f` is a link held only by link.c and by links that wait for
 * `f`: then no caller can read or cancel `f`. False for more than 8 references,
 * to keep the check cheap, and if a watch waits: its owner knows `f`. */
static bool held_only_by_waiters(const vow_future *f)
{
    uint32_t held = 1;
    if (f->node.kind != VOW__THEN || f->node.refs > 8)
        return false;
    for (vow_link *l = f->waiters; l != NULL; l = l->next) {
        if (VOW__OUTER(l, struct vow__core_node, link)->kind == VOW__WATCH)
            return false;
        held++;
    }
    return f->node.refs == held;
}

/* Moves the waiters of `f` to `other` and settles `f`. So the chain of an
 * endless retry, where each attempt follows the next, does not grow. */
static void link_collapse(vow_loop *loop, vow_future *f, vow_future *other)
{
    vow_link *l;
    while ((l = vow__list_take(&f->waiters)) != NULL) {
        struct vow__core_node *n = VOW__OUTER(l, struct vow__core_node, link);
        f->node.refs--;
        vow__core_node_wait(loop, n, other);
        if (!vow__core_future_is_pending(VOW__OUTER(n, vow_future, node)))
            vow__core_future_count_end_ref(other, 1); /* a late finally */
    }
    f->u.value = vow_nothing();
    f->node.state = VOW_FULFILLED; /* without readers */
}

/* ---- references ---------------------------------------------------------- */

vow_future *vow_future_ref(vow_future *f)
{
    VOW__ASSERT_THREAD_OF(f, vow__core_future_loop(f));
    return f == NULL ? NULL : vow__core_future_ref(f);
}

vow_future *vow_future_unref(vow_future *f)
{
    VOW__ASSERT_THREAD_OF(f, vow__core_future_loop(f));
    if (f != NULL)
        vow__core_future_unref_hot(f);
    return NULL;
}

vow_deferred *vow_deferred_ref(vow_deferred *d)
{
    VOW__ASSERT_THREAD_OF(d, vow__core_future_loop(vow__core_future_of(d)));
    if (d == NULL)
        return NULL;
    vow_future *f = vow__core_future_of(d);
    if (!f->node.has_ends) /* the first deferred; each deferred of VOW__NONE */
        vow__core_future_ref(f);
    if (f->node.kind != VOW__NONE) {
        f->node.has_ends = 1;
        f->w.ends++;
    }
    return d;
}

vow_deferred *vow_deferred_unref(vow_deferred *d)
{
    VOW__ASSERT_THREAD_OF(d, vow__core_future_loop(vow__core_future_of(d)));
    if (d == NULL)
        return NULL;
    vow_future *f = vow__core_future_of(d);
    if (VOW__UNLIKELY(!f->node.has_ends)) {
        VOW__ASSERT(f->node.kind == VOW__NONE);
        vow__core_future_unref(f);
        return NULL;
    }
    if (--f->w.ends > 0)
        return NULL;
    f->node.has_ends = 0;
    if (VOW__UNLIKELY(end_is_open(f))) /* keeps P2 */
        break_promise(f);
    vow__core_future_unref_hot(f);
    return NULL;
}

vow_future *vow_deferred_future(vow_deferred *d)
{
    VOW__ASSERT_THREAD_OF(d, vow__core_future_loop(vow__core_future_of(d)));
    return vow__core_future_of(d);
}

static void break_promise(vow_future *f)
{
    vow__core_future_reject_code(vow__core_future_loop(f), f, VOW_EBROKEN,
                                 NULL);
}

bool vow_deferred_pending(const vow_deferred *d)
{
    VOW__ASSERT_THREAD_OF(d, vow__core_future_loop(vow__core_future_of(d)));
    return d != NULL && end_is_open(vow__core_future_of(d));
}

void vow__core_future_destroy(vow_future *f)
{
    vow_loop *loop = vow__core_future_loop(f);
    vow__list_push(&loop->dead, &f->node.link);
    vow__core_futures_reap(loop);
}

/* Runs destructors, which may drop further futures (keeps P4). */
void vow__core_futures_reap(vow_loop *loop)
{
    vow_link *l;
    if (loop->reaping || loop->dead == NULL)
        return;
    struct vow__core_visit before = vow__core_visit_begin(loop);
    loop->reaping = true;
    while ((l = vow__list_take(&loop->dead)) != NULL) {
        struct vow__core_node *n = VOW__OUTER(l, struct vow__core_node, link);
        vow_future *f = VOW__OUTER(n, vow_future, node);
        if (n->state == VOW_REJECTED && !n->handled)
            vow__core_loop_tell_unhandled(loop, f);
        if (n->rest)
            vow__core_rest_release(f);
        if (n->state == VOW_REJECTED)
            vow_error_unref(vow__core_future_error(f));
        else if (n->state == VOW_FULFILLED)
            vow_value_drop(f->u.value);
        n->kind = VOW__FREE;
        vow__slab_give(f->slab, f);
    }
    loop->reaping = false;
    vow__core_visit_end(loop, before);
    vow__core_loop_maybe_free(loop);
}
