/* SPDX-License-Identifier: MIT */
/* etcd_wake.c - whose turn has come, as the watch tells.
 *
 * WHY   Nobody grants a place to another: who queues must find out that its
 *       turn has come, and soon. Reading the pool at each change would cost
 *       each who waits a request for each who leaves.
 * HOW   While somebody here queues, one watch tells of all changes below s/.
 *       The crowd of a hall is what the last look has found, and each change
 *       that is newer is made in it too. Then all that queue here are judged as
 *       if it had been read: whose turn has come is told, and asks.
 *       The watch may be ahead of an answer, so a look can be older than what
 *       was told before it came. If the crowd was followed until then, it stays
 *       and the look is left; else it cannot be followed from there, and those
 *       who queue are told to look again.
 * INVARIANTS
 *   W1  a crowd that is followed has all changes up to `newest`
 *   W2  nobody's code runs inside a step: on_permit is called from the queue
 * LIMITS  All who queue anywhere hear of all pools; the watch goes when nobody
 *         here has queued for IDLE_MS.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_pools.h"

#include "base/clock.h"

enum { IDLE_MS = 10000, PAUSE_MS = 20 };

static void watch(struct vow__etcd_places *p, uint64_t revision);
static void on_idle(void *places);
static void on_put(const struct vow__kv *kv, void *places);
static void on_delete(const struct vow__kv *kv, void *places);
static void on_doubt(void *places);
static void changed(struct vow__etcd_places *p, const struct vow__kv *kv,
                    bool gone);
static void heard(struct vow__hall *h, const struct vow__hall_key *key,
                  const struct vow__kv *kv, bool gone);
static int apply(struct vow__hall *h, const struct vow__hall_key *key,
                 const struct vow__kv *kv, bool gone);
static void wake(struct vow__hall *h);
static void on_wake(void *hall);
static bool judge_guest(struct vow__hall *h, const struct vow__seat *seat);
static void tell_queued(struct vow__hall *h, bool lost);
static void on_tell(void *places);

static vow_loop *loop_of(const struct vow__etcd_places *p)
{
    return vow__etcd_loop(p->etcd);
}

static struct vow__hall *hall_at(struct vow__table_node *n)
{
    return VOW__OUTER(n, struct vow__hall, named);
}

/* ---- looking, and following ---------------------------------------------- */

void vow__hall_seen(struct vow__hall *h, struct vow__crowd *crowd,
                    uint64_t doubts)
{
    struct vow__etcd_places *p = h->places;
    bool outrun = crowd->revision < h->newest || doubts != p->doubts;
    if (!h->followed || !outrun) {
        vow__crowd_recall(crowd, &h->crowd);
        vow__crowd_fini(&h->crowd);
        h->crowd = *crowd;
        vow__crowd_init(crowd, &p->alloc);
        h->followed = p->watch != NULL && !outrun; /* keeps W1 */
    }
    if (p->watch == NULL && p->queued > 0) {
        watch(p, h->crowd.revision);
        h->followed = p->watch != NULL;
    }
    vow__crowd_fini(crowd);
    if (p->queued > 0)
        wake(h);
}

static void watch(struct vow__etcd_places *p, uint64_t revision)
{
    struct vow__key tree = vow__key("s", NULL, "/");
    struct vow__watch *w;
    const struct vow__watch_events events = {.on_put = on_put,
                                             .on_delete = on_delete,
                                             .on_doubt = on_doubt,
                                             .user = p};
    if (vow__watch_open(p->etcd, &tree, revision, &events, &w) == 0)
        p->watch = w;
}

void vow__wake_count(struct vow__etcd_places *p)
{
    if (p->queued > 0)
        (void)vow_call_stop(&p->idle);
    else if (p->watch != NULL && !vow_call_pending(&p->idle))
        vow_call_weakly_at(&p->idle, loop_of(p),
                           vow_loop_due_ns(loop_of(p), IDLE_MS), on_idle, p);
}

static void on_idle(void *places)
{
    vow__wake_close(places);
}

void vow__wake_close(struct vow__etcd_places *p)
{
    struct vow__table_node *n = NULL;
    if (p->watch != NULL)
        vow__watch_close(p->watch);
    p->watch = NULL;
    while ((n = vow__table_next(&p->halls, n)) != NULL) {
        struct vow__hall *h = hall_at(n);
        h->followed = false;
        h->newest = 0;
        (void)vow_call_stop(&h->wake);
        (void)vow_call_stop(&h->clock);
    }
    (void)vow_call_stop(&p->idle);
    (void)vow_call_stop(&p->tell);
    while (p->news != NULL)
        VOW__OUTER(vow__list_take(&p->news), struct vow__guest, news)->in_news =
            false;
}

/* ---- what it tells ------------------------------------------------------- */

static void on_put(const struct vow__kv *kv, void *places)
{
    changed(places, kv, false);
}

static void on_delete(const struct vow__kv *kv, void *places)
{
    changed(places, kv, true);
}

/* Etcd may have begun anew: what was newest says nothing. */
static void on_doubt(void *places)
{
    struct vow__etcd_places *p = places;
    const vow_store_events *events = vow__etcd_events(p->etcd);
    struct vow__table_node *n = NULL;
    p->doubts++;
    while ((n = vow__table_next(&p->halls, n)) != NULL) {
        hall_at(n)->followed = false;
        hall_at(n)->newest = 0;
    }
    events->on_doubt(events->user);
}

static void changed(struct vow__etcd_places *p, const struct vow__kv *kv,
                    bool gone)
{
    struct vow__hall_key key;
    struct vow__table_node *n = NULL;
    if (!vow__hall_parse(kv->key, &key))
        return;
    if (key.kind != VOW__KEY_LIMITS) {
        struct vow__hall *h = vow__hall_find(p, &key.hall);
        if (h != NULL)
            heard(h, &key, kv, gone);
        return;
    }
    while ((n = vow__table_next(&p->halls, n)) != NULL)
        if (vow_name_equal(&hall_at(n)->name.law, &key.hall.law))
            heard(hall_at(n), &key, kv, gone);
}

static void heard(struct vow__hall *h, const struct vow__hall_key *key,
                  const struct vow__kv *kv, bool gone)
{
    bool fresh = h->followed && kv->mod > h->crowd.revision;
    if (kv->mod > h->newest)
        h->newest = kv->mod;
    if (fresh && apply(h, key, kv, gone) < 0)
        h->followed = false; /* keeps W1 */
    wake(h);
}

static int apply(struct vow__hall *h, const struct vow__hall_key *key,
                 const struct vow__kv *kv, bool gone)
{
    struct vow__crowd *c = &h->crowd;
    struct vow__instant now = vow__places_now(h->places->etcd);
    struct vow__seat seat;
    struct vow__toll toll;
    if (key->kind == VOW__KEY_LIMITS) {
        c->limits = (vow_pool_limits){.concurrent = 0};
        c->there = !gone && vow__limits_read(kv, &c->limits, NULL);
        c->limits_mod = gone ? 0 : kv->mod;
    } else if (key->kind == VOW__KEY_SEAT) {
        if (!gone && vow__seat_read(kv, &key->token, &seat))
            return vow__crowd_set(c, &seat);
        vow__crowd_remove(c, &key->token);
    } else {
        if (!gone && vow__toll_read(kv, key->id, &now, &toll))
            return vow__crowd_charge(c, &toll);
        vow__crowd_forgive(c, key->id);
    }
    return 0;
}

/* ---- turns --------------------------------------------------------------- */

/* One that cannot be followed is told less often, whatever happens there. */
static void wake(struct vow__hall *h)
{
    vow_loop *loop = loop_of(h->places);
    if (vow_call_pending(&h->wake) || vow__etcd_closing(h->places->etcd))
        return;
    if (h->followed)
        vow_call_soon(&h->wake, loop, on_wake, h);
    else
        vow_call_weakly_at(&h->wake, loop, vow_loop_due_ns(loop, PAUSE_MS),
                           on_wake, h);
}

static void on_wake(void *hall)
{
    struct vow__hall *h = hall;
    struct vow__crowd *c = &h->crowd;
    uint64_t now_us = vow__places_now(h->places->etcd).loop_us;
    uint64_t soonest_us = UINT64_MAX;
    if (!h->followed) {
        if (h->newest > c->revision)
            tell_queued(h, false);
        return;
    }
    h->round++;
    vow__crowd_rank(c, now_us);
    for (size_t i = 0; i < c->n; i++) {
        if (!judge_guest(h, &c->seats[i]) || c->limits.rate == 0)
            continue;
        uint64_t us = vow__crowd_again_us(c, &c->seats[i], now_us);
        soonest_us = us < soonest_us ? us : soonest_us;
    }
    tell_queued(h, true);
    if (soonest_us < UINT64_MAX)
        vow_call_weakly_at(
            &h->clock, loop_of(h->places),
            vow_loop_due_ns(loop_of(h->places), soonest_us / 1000 + 1), on_wake,
            h);
}

/* True: it is of a guest, which waits on. */
static bool judge_guest(struct vow__hall *h, const struct vow__seat *seat)
{
    struct vow__guest *g = vow__guest_find(h, &seat->token);
    if (g == NULL || g->state != VOW__GUEST_QUEUED)
        return false;
    bool waits = seat->rank == VOW__RANK_WAITS;
    g->round = h->round;
    vow__guest_turn(g, !waits);
    return waits;
}

/* All that queue, or those that have no seat any more. */
static void tell_queued(struct vow__hall *h, bool lost)
{
    struct vow__table_node *n = NULL;
    while ((n = vow__table_next(&h->guests, n)) != NULL) {
        struct vow__guest *g = VOW__OUTER(n, struct vow__guest, named);
        if (g->state == VOW__GUEST_QUEUED && !g->ending &&
            (!lost || g->round != h->round))
            vow__guest_tell(g);
    }
}

void vow__guest_tell(struct vow__guest *g)
{
    struct vow__etcd_places *p = g->hall->places;
    if (g->in_news)
        return;
    g->in_news = true;
    vow__list_push(&p->news, &g->news);
    vow_call_soon(&p->tell, loop_of(p), on_tell, p); /* keeps W2 */
}

/* It may ask, leave, or close the store. */
static void on_tell(void *places)
{
    struct vow__etcd_places *p = places;
    while (p->news != NULL) {
        struct vow__guest *g =
            VOW__OUTER(vow__list_take(&p->news), struct vow__guest, news);
        const vow_store_events *events = vow__etcd_events(p->etcd);
        vow_token token = g->token;
        g->in_news = false;
        events->on_permit(&token, events->user);
    }
}
