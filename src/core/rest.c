/* SPDX-License-Identifier: MIT */
/* rest.c - the rests of a future, and whether a future has ended.
 *
 * WHY   A canceled link, an expired timeout and a decided combinator are
 *       settled at once. The work behind them is only asked to stop, and may
 *       run for long. A caller that limits work, or frees memory that the work
 *       uses, must know when the work has ended.
 * HOW   A *rest* is a counted reference of a settled future to work that may
 *       still run: a reference to a future that the settled future left while
 *       work ran behind it. A settled future has ended when all its rests have
 *       ended. The reference counts in `end_refs` and not as a reader, so the
 *       work is canceled as if there were no rest. A rest puts no node into a
 *       list: a million canceled links of a source cost no more than the links
 *       themselves. A node that waits for an end (a watch, a member of a scope,
 *       a canceled finally) walks to a pending rest, waits behind the pending
 *       rest, and walks again. The walk drops ended rests, and skips a future
 *       that only leads to a single further rest.
 *
 *       The slots: fields of a future with the bit `rest` that hold the rests:
 *         settled                         node.source and rest; NULL: empty
 *         settled VOW__GROUP              the inputs of the group in `user`
 *         settled VOW__FINALLY            node.source: fn did not run yet
 *         PROMISE, pending or settled     node.source
 *         other kinds, pending            rest
 *
 *       A source that has other readers is left but not canceled. The source is
 *       a rest if work runs behind the source. If not (an event with many
 *       waiters), the source may be pending as long as the program: no rest.
 * INVARIANTS
 *   E1  a rest counts in `refs` and in `end_refs` of the future referred to
 *   E2  a settled future has no waiters: the walk keeps the way back there
 *   E3  the walk runs no user code: freed futures are destroyed afterwards
 * LIMITS  A third rest of a future needs 88 bytes. Without memory the third
 *       rest is forgotten, and the future ends too early. A promise that is
 *       resolved with a canceled link of its own may make a ring of rests: the
 *       walk passes a ring, and vow_loop_close() takes the ring apart.
 * THREADS  loop thread only.
 */
#include "core/promise_internal.h"

/* A shared source with more end_refs becomes no further rest: so the readers of
 * the source stay known. */
enum { SHARED_MAX = VOW__END_REFS_MAX / 2 };

static vow_future **rest_slot(vow_future *f);
static vow_future **rest_free_slot(vow_future *f);
static vow_future *rest_only(vow_future *f);
static bool rest_is_known(const vow_future *f, const vow_future *work);
static vow_future *rest_join(vow_future *a, vow_future *b);
static void rest_drop(vow_future *f, vow_future **slot);
static vow_future *walk_to_pending(vow_future *top);
static vow_future *finally_first_late(vow_future *f);
static vow_future *walk_cut_short(vow_future *at);
static vow_future *walk_back(vow_future *at);
static void rests_prune(vow_future **slot);

/* ---- adding -------------------------------------------------------------- */

void vow__core_rest_add(vow_future *f, vow_future *work)
{
    if (f->node.rest && rest_is_known(f, work)) {
        vow__core_future_unref(work);
        return;
    }
    vow__core_future_count_end_ref(work, 1); /* keeps E1 */
    vow_future **slot = rest_free_slot(f);
    if (slot != NULL) {
        *slot = work;
        return;
    }
    slot = rest_slot(f);
    vow_future *both = rest_join(*slot, work);
    if (both == NULL) {
        vow__core_future_count_end_ref(work, -1);
        vow__core_future_unref(work);
        return;
    }
    *slot = both;
}

void vow__core_rest_inherit(vow_future *f, vow_future *from)
{
    if (vow__core_rest_trim(from))
        return;
    vow_future *only = rest_only(from);
    vow_future *work = only == NULL ? from : only;
    if (work != f)
        vow__core_rest_add(f, vow__core_future_ref(work));
}

void vow__core_rest_keep(vow_future *f, vow_future *source)
{
    if (vow__core_rest_counts(source))
        vow__core_rest_add(f, vow__core_future_ref(source));
}

bool vow__core_rest_counts(const vow_future *source)
{
    if (!vow__core_future_is_pending(source))
        return source->node.rest || vow__core_finally_is_late(source);
    if (vow__core_future_readers(source) == 1)
        return true;
    return source->node.end_refs < SHARED_MAX &&
           vow__core_future_runs_work(source);
}

void vow__core_rest_move(vow_future *promise)
{
    if (promise->node.kind != VOW__PROMISE)
        return;
    promise->rest = promise->node.source;
    promise->node.source = NULL;
}

/* Only a FOLLOW link has room for a rest while waiting. */
bool vow__core_rest_hand_down(vow_future *f)
{
    vow_loop *loop = vow__core_future_loop(f);
    vow_future *work = f->rest;
    bool reaping = loop->reaping;
    for (const vow_link *l = f->waiters; l != NULL; l = l->next)
        if (VOW__OUTER(l, struct vow__core_node, link)->kind != VOW__FOLLOW)
            return false;
    loop->reaping = true; /* keeps E3 */
    for (vow_link *l = f->waiters; l != NULL; l = l->next) {
        struct vow__core_node *n = VOW__OUTER(l, struct vow__core_node, link);
        vow_future *below = VOW__OUTER(n, vow_future, node);
        if (below->node.rest)
            rests_prune(&below->rest);
        vow__core_rest_add(below, vow__core_future_ref(work));
    }
    vow__core_rest_release(f);
    f->node.rest = 0;
    loop->reaping = reaping;
    vow__core_futures_reap(loop);
    return true;
}

/* Drops ended rests from a chain of VOW__RESTS: so the chain of an endless
 * retry stays short, if the attempts end sooner or later. */
static void rests_prune(vow_future **slot)
{
    while (*slot != NULL && (*slot)->node.kind == VOW__RESTS) {
        vow_future *rests = *slot;
        vow_future *work = rests->node.source;
        if (work != NULL &&
            (vow__core_future_is_pending(work) || !vow__core_rest_trim(work))) {
            slot = &rests->rest;
            continue;
        }
        *slot = rests->rest;
        rests->rest = NULL;
        vow__core_future_unref(rests);
    }
}

/* ---- slots --------------------------------------------------------------- */

/* Returns the slot with the first rest of `f`; NULL: there is none. */
static vow_future **rest_slot(vow_future *f)
{
    if (f->node.kind == VOW__GROUP)
        return vow__core_group_rest(f);
    bool promise = f->node.kind == VOW__PROMISE;
    if ((promise || !vow__core_future_is_pending(f)) && f->node.source != NULL)
        return &f->node.source;
    if (!promise && f->rest != NULL)
        return &f->rest;
    return NULL;
}

/* Returns an empty slot of `f` for another rest; NULL: all are full. */
static vow_future **rest_free_slot(vow_future *f)
{
    bool pending = vow__core_future_is_pending(f);
    if (f->node.kind == VOW__PROMISE && !pending) {
        f->node.kind = VOW__FOLLOW; /* `rest` was `user` of the hook */
        f->rest = NULL;
    }
    if (f->node.kind == VOW__FINALLY) /* the function ran */
        f->node.kind = VOW__FOLLOW;
    bool promise = f->node.kind == VOW__PROMISE;
    if (!f->node.rest) {
        f->node.rest = 1;
        if (!promise)
            f->rest = NULL;
    }
    if (!promise && f->rest == NULL)
        return &f->rest;
    if ((promise || !pending) && f->node.source == NULL)
        return &f->node.source;
    return NULL;
}

/* Returns the only rest of `f`; NULL: `f` has two rests, or the slot must not
 * be changed (a group, a late finally). */
static vow_future *rest_only(vow_future *f)
{
    if (f->node.kind == VOW__GROUP || vow__core_finally_is_late(f))
        return NULL;
    vow_future *a = f->node.source;
    vow_future *b = f->node.kind == VOW__PROMISE ? NULL : f->rest;
    if (a != NULL && b != NULL)
        return NULL;
    return a != NULL ? a : b;
}

static bool rest_is_known(const vow_future *f, const vow_future *work)
{
    bool promise = f->node.kind == VOW__PROMISE;
    return f->node.source == work || (!promise && f->rest == work);
}

/* Returns a settled future with the rests `a` and `b`; the references are
 * moved. NULL without memory. */
static vow_future *rest_join(vow_future *a, vow_future *b)
{
    vow_future *f = vow__core_future_new(vow__core_future_loop(a), NULL,
                                         VOW__RESTS, 1, false);
    if (f == NULL)
        return NULL;
    f->u.value = vow_nothing();
    f->node.state = VOW_FULFILLED;
    f->node.rest = 1;
    f->node.end_refs = 1;
    f->node.source = b;
    f->rest = a;
    return f;
}

static void rest_drop(vow_future *f, vow_future **slot)
{
    if (f->node.kind == VOW__GROUP) {
        vow__core_group_rest_drop(f);
        return;
    }
    vow_future *work = *slot;
    *slot = NULL;
    vow__core_future_count_end_ref(work, -1);
    vow__core_future_unref(work);
}

void vow__core_rest_release(vow_future *f)
{
    vow_future **slot;
    if (f->node.kind == VOW__GROUP) {
        vow__core_group_release(f);
        return;
    }
    while ((slot = rest_slot(f)) != NULL)
        rest_drop(f, slot);
}

/* ---- walking ------------------------------------------------------------- */

vow_future *vow__core_rest_walk(vow_future *f)
{
    vow_loop *loop = vow__core_future_loop(f);
    bool reaping = loop->reaping;
    vow_future *next = NULL;
    loop->reaping = true; /* keeps E3 */
    if (!vow__core_finally_is_late(f)) {
        next = walk_to_pending(f);
    } else {
        f = finally_first_late(f);
        vow_future *orig = vow__core_finally_source(f);
        if (!vow__core_future_is_pending(orig) && orig->node.rest)
            next = walk_to_pending(orig);
        if (next == NULL) /* wait behind the late finally in the same list */
            next = vow__core_future_ref(f->node.source);
    }
    loop->reaping = reaping;
    return next;
}

bool vow__core_rest_trim(vow_future *f)
{
    vow_loop *loop = vow__core_future_loop(f);
    vow_future *next = vow__core_rest_next(f);
    if (next != NULL)
        vow__core_future_unref(next);
    vow__core_futures_reap(loop);
    return next == NULL;
}

/* Walks depth first from `top` to a future to wait behind, counted; NULL: no
 * rest is left. The future above drops a rest without rests. */
static vow_future *walk_to_pending(vow_future *top)
{
    vow_future *at = top;
    vow_future *found = NULL;
    while (found == NULL) {
        vow_future **slot = rest_slot(at);
        vow_future *rest = slot == NULL ? NULL : *slot;
        if (rest == NULL) {
            at->node.rest = 0;
            if (at->node.kind == VOW__GROUP)
                vow__core_group_release(at);
            if (at == top)
                return NULL;
            at = walk_back(at);
            continue;
        }
        bool late = vow__core_finally_is_late(rest);
        vow_future *first = late ? finally_first_late(rest) : rest;
        vow_future *next = late ? vow__core_finally_source(first) : rest;
        if (vow__core_future_is_pending(next)) {
            found = next;
        } else if (!rest->node.rest) {
            rest_drop(at, slot);
        } else if (next->node.rest && next != top && next->waiters == NULL) {
            next->waiters = &at->node.link; /* walk_back() restores E2 */
            at = next;
        } else if (late) {
            found = first->node.source; /* behind `first` in the same list */
        } else {
            rest_drop(at, slot); /* a ring */
        }
    }
    vow__core_future_ref(found);
    while (at != top)
        at = walk_cut_short(at);
    return found;
}

/* Returns the late finally that runs first, of a chain of late finallies that
 * ends in `f`. */
static vow_future *finally_first_late(vow_future *f)
{
    vow_future *up = vow__core_finally_source(f);
    while (vow__core_finally_is_late(up) && up->node.rest) {
        f = up;
        up = vow__core_finally_source(f);
    }
    return f;
}

/* Returns the future above `at`. If `at` has a single rest, the future above
 * takes over the rest in place of `at`. */
static vow_future *walk_cut_short(vow_future *at)
{
    vow_future *above = walk_back(at);
    vow_future **slot = rest_slot(above);
    vow_future *only = rest_only(at);
    if (*slot != at || only == NULL || above->node.kind == VOW__GROUP)
        return above;
    vow__core_future_count_end_ref(only, 1);
    *slot = vow__core_future_ref(only);
    vow__core_future_count_end_ref(at, -1);
    vow__core_future_unref(at);
    return above;
}

/* Returns the future above `at`, and clears the way back in `at`. */
static vow_future *walk_back(vow_future *at)
{
    struct vow__core_node *above =
        VOW__OUTER(at->waiters, struct vow__core_node, link);
    at->waiters = NULL;
    return VOW__OUTER(above, vow_future, node);
}

bool vow__core_future_runs_work(const vow_future *f)
{
    const vow_future *up;
    while ((up = vow__core_future_upstream(f)) != NULL)
        f = up;
    if (!vow__core_future_is_pending(f) || f->node.rest)
        return f->node.rest;
    return f->node.runs || (f->node.kind == VOW__PROMISE &&
                            f->u.call.u.hook != NULL && !f->node.hook_now);
}

/* ---- for users ----------------------------------------------------------- */

bool vow_ended(vow_future *f)
{
    VOW__ASSERT_THREAD(vow__core_future_loop(f));
    return !vow__core_future_is_pending(f) &&
           (!f->node.rest || vow__core_rest_trim(f));
}

void vow_ends_with(vow_deferred *d, vow_future *work)
{
    vow_future *f = vow__core_future_of(d);
    VOW__ASSERT_THREAD(vow__core_future_loop(f));
    if (f->node.kind != VOW__PROMISE ||
        vow__core_future_loop(work) != vow__core_future_loop(f) || work == f)
        return;
    if (f->node.rest)
        vow__core_rest_release(f);
    f->node.rest = 0;
    if (!vow__core_future_is_pending(work) && !work->node.rest)
        return;
    vow__core_rest_add(f, vow__core_future_ref(work));
}
