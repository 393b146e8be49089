/* SPDX-License-Identifier: MIT */
/* tree.c - walking futures and their waiters, up and down, without a stack.
 *
 * WHY   Rings must be found, and progress passed down a chain of a million
 *       links.
 * HOW   Up is a pointer: the source of a future. Down is the list of waiters,
 *       and the way back up is the source again; so a depth-first walk needs no
 *       memory. No user code runs during a walk.
 * LIMITS  Finding a ring costs the shorter of two ways: up from the future, or
 *       all waiters below the target.
 * THREADS  loop thread only.
 */
#include "core/promise_internal.h"

static vow_future *node_derived_future(const struct vow__core_node *n);

vow_future *vow__core_future_upstream(const vow_future *f)
{
    if (!vow__core_future_is_pending(f))
        return NULL;
    if (f->node.relayed)
        return ((struct vow__core_watch *)f->user)->node.source;
    return f->node.kind == VOW__PROMISE ? NULL : f->node.source;
}

/* Walks up from `f` and down from `target` in turns. If either walk ends before
 * meeting the other, the answer is no. */
bool vow__core_future_waits_for(const vow_future *f, const vow_future *target)
{
    const vow_future *goal = f;
    struct vow__core_node *below = vow__core_future_first_waiter(target);
    while (f != target) {
        if (f == NULL || below == NULL)
            return false;
        if (node_derived_future(below) == goal)
            return true;
        f = vow__core_future_upstream(f);
        below = vow__core_node_next_below(below, target, false);
    }
    return true;
}

struct vow__core_node *vow__core_future_first_waiter(const vow_future *f)
{
    return f->waiters == NULL
               ? NULL
               : VOW__OUTER(f->waiters, struct vow__core_node, link);
}

struct vow__core_node *vow__core_node_next_below(struct vow__core_node *n,
                                                 const vow_future *root,
                                                 bool listened)
{
    const vow_future *f = node_derived_future(n);
    if (f != NULL && vow__core_future_is_pending(f) && f->waiters != NULL &&
        (f->node.listened || !listened))
        return vow__core_future_first_waiter(f);
    while (n->link.next == NULL) {
        vow_future *parent = n->source;
        if (parent == root)
            return NULL;
        n = parent->node.relayed
                ? &((struct vow__core_watch *)parent->user)->node
                : &parent->node;
    }
    return VOW__OUTER(n->link.next, struct vow__core_node, link);
}

/* Returns the future below a node: of the node itself, or the `out` of a watch;
 * NULL: none. */
static vow_future *node_derived_future(const struct vow__core_node *n)
{
    return n->kind == VOW__WATCH
               ? VOW__OUTER(n, struct vow__core_watch, node)->out
               : VOW__OUTER(n, vow_future, node);
}
