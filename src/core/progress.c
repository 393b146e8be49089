/* SPDX-License-Identifier: MIT */
/* progress.c - progress values, passed down the chain to listeners.
 *
 * WHY   A worker's pulse and a progress bar both need the progress of a pending
 *       future, through all links of the chain.
 * HOW   A listener is a link that passes the outcome on. `listened` marks the
 *       way from each root down to the listeners: a notify without listeners
 *       costs nothing, and a notify with listeners walks only the marked way.
 *       The walk calls no user code: the walk stores the update in each
 *       listener and queues the listener, so callbacks may change the tree. A
 *       new update replaces an update that was not delivered yet.
 * INVARIANTS
 *   N1  if a future is listened, all futures upstream are listened
 *   N2  a listener is queued if and only if the listener has an update
 * LIMITS  notify O(links with listeners below); no recursion.
 * THREADS  loop thread only.
 */
#include "core/promise_internal.h"

/* A progress value, shared by the listeners of a notify. */
struct update {
    uint32_t refs;
    vow_value value;
    struct update *next; /* in the list of replaced updates, during a walk */
};

struct vow__core_listener {
    struct vow__core_watch call; /* in the ready queue while `update` is set */
    vow_loop *loop;
    vow_progress_fn fn;
    void *user;
    struct update *update; /* the latest, not yet delivered; counted, or NULL */
};

static void listener_run(struct vow__core_watch *w);
static void listener_set_update(vow_loop *loop, vow_future *link,
                                struct update *update,
                                struct update **replaced);
static void update_unref(vow_loop *loop, struct update *update);

vow_future *vow_on_progress_at(const char *site, vow_future *f,
                               vow_progress_fn fn, void *user)
{
    VOW__ASSERT_THREAD(vow__core_future_loop(f));
    vow_loop *loop = vow__core_future_loop(f);
    if (fn == NULL)
        return vow_then_at(site, f, NULL, NULL, NULL);
    if (loop->closed)
        return vow_refused_at(site, loop, VOW_ECLOSED, NULL);
    struct vow__core_listener *l = vow__mem_zero(&loop->alloc, sizeof(*l));
    if (l == NULL)
        return vow__core_future_no_memory(loop);
    vow_future *link = vow__core_future_new(loop, site, VOW__LISTEN, 2, false);
    if (link == NULL) {
        vow__mem_free(&loop->alloc, l, sizeof(*l));
        return vow__core_future_no_memory(loop);
    }
    l->call.node.kind = VOW__WATCH;
    l->call.run = listener_run;
    l->loop = loop;
    l->fn = fn;
    l->user = user;
    link->user = l;
    link->node.listened = 1;
    vow__core_node_wait(loop, &link->node, f); /* keeps N1 */
    return link;
}

void vow__core_listener_free(vow_loop *loop, vow_future *link)
{
    struct vow__core_listener *l = link->user;
    link->user = NULL;
    if (l->update != NULL) {
        vow__list_remove(&loop->ready, &l->call.node.link);
        update_unref(loop, l->update);
    }
    vow__mem_free(&loop->alloc, l, sizeof(*l));
}

bool vow_notify(vow_deferred *d, vow_value progress)
{
    vow_future *f = vow__core_future_of(d);
    vow_loop *loop = vow__core_future_loop(f);
    VOW__ASSERT_THREAD(loop);
    if (!vow_deferred_pending(d)) {
        vow_value_drop(progress);
        return false;
    }
    return vow__core_progress_notify(loop, f, progress);
}

bool vow__core_progress_notify(vow_loop *loop, vow_future *f,
                               vow_value progress)
{
    struct update *update = NULL;
    if (f->node.listened)
        update = vow__mem_new(&loop->alloc, sizeof(*update));
    if (update == NULL) {
        bool heard = !f->node.listened; /* the drop may add a listener */
        vow_value_drop(progress);
        return heard;
    }
    *update = (struct update){.refs = 1, .value = progress};
    struct update *replaced = NULL;
    struct vow__core_node *n = vow__core_future_first_waiter(f);
    for (; n != NULL; n = vow__core_node_next_below(n, f, true))
        if (n->kind == VOW__LISTEN)
            listener_set_update(loop, VOW__OUTER(n, vow_future, node), update,
                                &replaced);
    while (replaced != NULL) { /* after the walk: destructors change the tree */
        struct update *old = replaced;
        replaced = old->next;
        old->refs = 1;
        update_unref(loop, old);
    }
    update_unref(loop, update);
    return true;
}

void vow__core_progress_listen_up(vow_future *f)
{
    for (; f != NULL && !f->node.listened; f = vow__core_future_upstream(f))
        f->node.listened = 1;
}

/* Stores the update in the listener of `link`. A replaced update without other
 * listeners goes into `replaced`. */
static void listener_set_update(vow_loop *loop, vow_future *link,
                                struct update *update, struct update **replaced)
{
    struct vow__core_listener *l = link->user;
    struct update *old = l->update;
    l->update = update;
    update->refs++;
    if (old == NULL) {
        vow__core_loop_enqueue(loop, &l->call.node.link); /* keeps N2 */
    } else if (--old->refs == 0) {
        old->next = *replaced;
        *replaced = old;
    }
}

/* Calls the callback, which may free the listener: `l` is not read
 * afterwards. */
static void listener_run(struct vow__core_watch *w)
{
    struct vow__core_listener *l =
        VOW__OUTER(w, struct vow__core_listener, call);
    vow_loop *loop = l->loop;
    struct update *update = l->update;
    l->update = NULL; /* keeps N2 */
    l->fn(update->value, l->user);
    update_unref(loop, update);
}

static void update_unref(vow_loop *loop, struct update *update)
{
    if (--update->refs > 0)
        return;
    struct vow__core_visit before = vow__core_visit_begin(loop);
    vow_value_drop(update->value);
    vow__core_visit_end(loop, before);
    vow__mem_free(&loop->alloc, update, sizeof(*update));
}
