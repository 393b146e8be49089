/* SPDX-License-Identifier: MIT */
/* progress.c - how far it is, told down the chain.
 *
 * WHY   A worker's pulse and a progress bar both need news of something that is
 *       not settled yet, through every link that was chained onto it.
 * HOW   A listener is a link that passes the outcome on. `listened` marks the
 *       way from each root down to its listeners, so that a notify where nobody
 *       listens costs nothing, and one where somebody does walks only there.
 *       The walk calls nobody: it leaves the news with each listener and queues
 *       it, so callbacks may do what they like to the tree. News that comes
 *       before the last was delivered replaces it.
 * INVARIANTS
 *   N1  if a future is listened, so is all that it waits for
 *   N2  a listener is queued if and only if it has news
 * LIMITS  notify O(links with listeners below); no recursion.
 * THREADS  loop thread only.
 */
#include "core/promise_internal.h"

struct news {
    uint32_t refs;
    vow_value value;
    struct news *next; /* replaced by a newer one, during a walk */
};

struct vow__core_listener {
    struct vow__core_watch call; /* in the ready queue while there is news */
    vow_loop *loop;
    vow_progress_fn fn;
    void *user;
    struct news *news; /* counted, the latest not yet delivered */
};

static void deliver(struct vow__core_watch *w);
static void hand_over(vow_loop *loop, vow_future *link, struct news *news,
                      struct news **replaced);
static void news_unref(vow_loop *loop, struct news *news);

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
    l->call.run = deliver;
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
    if (l->news != NULL) {
        vow__list_remove(&loop->ready, &l->call.node.link);
        news_unref(loop, l->news);
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
    struct news *news = NULL;
    if (f->node.listened)
        news = vow__mem_new(&loop->alloc, sizeof(*news));
    if (news == NULL) {
        bool heard = !f->node.listened; /* its destructor may listen */
        vow_value_drop(progress);
        return heard;
    }
    *news = (struct news){.refs = 1, .value = progress};
    struct news *replaced = NULL;
    struct vow__core_node *n = vow__core_future_first_waiter(f);
    for (; n != NULL; n = vow__core_node_next_below(n, f, true))
        if (n->kind == VOW__LISTEN)
            hand_over(loop, VOW__OUTER(n, vow_future, node), news, &replaced);
    while (replaced != NULL) { /* destructors may change the tree: after it */
        struct news *old = replaced;
        replaced = old->next;
        old->refs = 1;
        news_unref(loop, old);
    }
    news_unref(loop, news);
    return true;
}

void vow__core_progress_listen_up(vow_future *f)
{
    for (; f != NULL && !f->node.listened; f = vow__core_future_upstream(f))
        f->node.listened = 1;
}

static void hand_over(vow_loop *loop, vow_future *link, struct news *news,
                      struct news **replaced)
{
    struct vow__core_listener *l = link->user;
    struct news *old = l->news;
    l->news = news;
    news->refs++;
    if (old == NULL) {
        vow__core_loop_enqueue(loop, &l->call.node.link); /* keeps N2 */
    } else if (--old->refs == 0) {
        old->next = *replaced;
        *replaced = old;
    }
}

/* The callback may end the listener; nothing of it is read afterwards. */
static void deliver(struct vow__core_watch *w)
{
    struct vow__core_listener *l =
        VOW__OUTER(w, struct vow__core_listener, call);
    vow_loop *loop = l->loop;
    struct news *news = l->news;
    l->news = NULL; /* keeps N2 */
    l->fn(news->value, l->user);
    news_unref(loop, news);
}

static void news_unref(vow_loop *loop, struct news *news)
{
    if (--news->refs > 0)
        return;
    struct vow__core_visit before = vow__core_visit_begin(loop);
    vow_value_drop(news->value);
    vow__core_visit_end(loop, before);
    vow__mem_free(&loop->alloc, news, sizeof(*news));
}
