/* SPDX-License-Identifier: MIT */
/* place.c - places in pools, on the home's side: asked for, queued for, kept,
 * given back.
 *
 * WHY   A place that is lost here while the store believes it held blocks all
 *       others for a lease; one that is held here while the store has given it
 *       to another breaks the limit. So a place is given back whatever happens,
 *       and is taken for lost before the store can do so.
 * HOW   A place has a token and at most one step in flight that decides about
 *       it; whoever leaves meanwhile has it given back when the answer comes.
 *       An answer that was lost is had by the same step with the same token.
 *       Who is in the queue asks again while the store is away, for as long as
 *       it keeps its place there: the leader of a cluster dies without harm.
 *       place_keep.c says when a place is to be looked at.
 * INVARIANTS  those of place.h, and
 *   Q1  a place is HELD only while `valid_ns` has not passed, as of the last
 *       look
 *   Q2  every place that is not NEW or OVER is in the table
 *   Q3  nobody's code runs inside vow__places_leave(), vow__places_close() and
 *       vow__places_doubt()
 * LIMITS  as many places as names.
 * THREADS  the home's loop.
 */
#include "named/place.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/sm.h"

#include <stdio.h>

/* How often a store that is only busy is asked again. */
enum { BUSY_PAUSES = 6 };

static void move(struct vow__place *p, enum vow__place_state to);
static void admit(struct vow__place *p);
static int enter(struct vow__place *p);
static void ask(struct vow__place *p);
static void on_asked(int code, const vow_pool_permit *at, size_t n,
                     void *place);
static void answered(struct vow__place *p, int code, const vow_pool_permit *at);
static bool may_ask_again(const struct vow__place *p, int code);
static void granted(struct vow__place *p, const vow_pool_permit *at);
static void queued(struct vow__place *p, const vow_pool_permit *at);
static void refuse(struct vow__place *p, int code);
static void lose(struct vow__place *p);
static void give_back(struct vow__place *p);
static void release(struct vow__place *p);
static void on_released(int code, const vow_pool_permit *at, size_t n,
                        void *place);
static void over(struct vow__place *p, int code, const char *text);

static const char CLOSED[] = "the authority was closed";

static struct vow__hub *hub_of(const struct vow__place *p)
{
    return p->of->hub;
}

static struct vow__place *named(struct vow__table_node *n)
{
    return VOW__OUTER(n, struct vow__place, by_token);
}

static void move(struct vow__place *p, enum vow__place_state to)
{
    static const uint8_t allowed[] = {
        [PLACE_NEW] = VOW__TO(PLACE_ASKING) | VOW__TO(PLACE_OVER),
        [PLACE_ASKING] = VOW__TO(PLACE_QUEUED) | VOW__TO(PLACE_PAUSING) |
                         VOW__TO(PLACE_HELD) | VOW__TO(PLACE_LEAVING) |
                         VOW__TO(PLACE_OVER),
        [PLACE_QUEUED] = VOW__TO(PLACE_ASKING) | VOW__TO(PLACE_LEAVING) |
                         VOW__TO(PLACE_OVER),
        [PLACE_PAUSING] = VOW__TO(PLACE_ASKING) | VOW__TO(PLACE_LEAVING) |
                          VOW__TO(PLACE_OVER),
        [PLACE_HELD] =
            VOW__TO(PLACE_LOST) | VOW__TO(PLACE_LEAVING) | VOW__TO(PLACE_OVER),
        [PLACE_LOST] = VOW__TO(PLACE_LEAVING) | VOW__TO(PLACE_OVER),
        [PLACE_LEAVING] = VOW__TO(PLACE_OVER),
        [PLACE_OVER] = 0};
    vow__sm_move(&p->state, (uint8_t)to, allowed);
}

/* ---- coming ------------------------------------------------------------- */

void vow__place_heed(void *place)
{
    struct vow__place *p = place;
    if (p->state == PLACE_NEW)
        admit(p);
    else if (atomic_load(&p->left) && p->in_heap && p->state != PLACE_LEAVING)
        give_back(p); /* else an answer is on its way */
    else if (p->state == PLACE_HELD && vow__place_owes_start(p))
        vow__place_hurry(p);
}

static void admit(struct vow__place *p)
{
    const struct vow__hub *h = hub_of(p);
    if (atomic_load(&p->left)) {
        over(p, VOW_ECANCELED, NULL);
    } else if (h->closing || h->store == NULL || !p->of->seated) {
        over(p, VOW_ECLOSED, CLOSED);
    } else {
        int rc = enter(p);
        if (rc < 0)
            over(p, rc, NULL);
        else
            ask(p);
    }
}

/* Into the table: keeps Q2, since asking follows. */
static int enter(struct vow__place *p)
{
    struct vow__hub *h = hub_of(p);
    int rc = h->places == NULL ? vow__places_open(h) : 0;
    if (rc < 0)
        return rc;
    if (h->places->tokens.count >= h->opts.names_max)
        return VOW_EQUEUEFULL;
    vow__token_make(h, &p->ask.token);
    p->by_token.name = (const char *)p->ask.token.bytes;
    p->by_token.length = sizeof(p->ask.token.bytes);
    return vow__table_add(&h->places->tokens, &p->by_token);
}

/* ---- asking ------------------------------------------------------------- */

static void ask(struct vow__place *p)
{
    struct vow__hub *h = hub_of(p);
    vow__place_rest(p);
    move(p, PLACE_ASKING);
    p->woken = false;
    p->renewing = false;
    p->round++;
    p->sent_ns = vow__hub_now_ns(h);
    vow__step_begins(h);
    h->store->ops->acquire(h->store, &p->ask, on_asked, vow__place_ref(p));
}

static void on_asked(int code, const vow_pool_permit *at, size_t n, void *place)
{
    struct vow__place *p = place;
    struct vow__hub *h = hub_of(p);
    if (p->state == PLACE_ASKING) /* else we have closed */
        answered(p, code == 0 && n != 1 ? VOW_ESTORE : code, at);
    vow__step_ended(h, code);
    vow__place_unref(p);
}

static void answered(struct vow__place *p, int code, const vow_pool_permit *at)
{
    bool own = code == 0 && at->status == VOW_STATUS_OWNED;
    bool waits = code == 0 && at->status == VOW_STATUS_WAITING;
    if (own || waits)
        vow__place_heard(p, p->sent_ns);
    else if (code == VOW_EUNSURE && !p->known)
        vow__place_heard(p, vow__hub_now_ns(hub_of(p)));
    p->known = p->known || own || waits || code == VOW_EUNSURE;
    p->queues = p->queues || waits;
    if (code == 0)
        p->pauses = 0;
    if (atomic_load(&p->left)) {
        give_back(p);
    } else if (own) {
        granted(p, at);
    } else if (waits) {
        queued(p, at);
    } else if (may_ask_again(p, code)) {
        move(p, PLACE_PAUSING);
        vow__place_pause(p);
    } else {
        refuse(p, code == 0            ? VOW_EBUSY
                  : code == VOW_EAGAIN ? VOW_ESTORE
                                       : code);
    }
}

/* A store that is only busy, or that may have done it, is asked again; who is
 * in the queue asks again in any case. What it knows it keeps for a lease. */
static bool may_ask_again(const struct vow__place *p, int code)
{
    if (code == VOW_EAGAIN && !p->queues)
        return p->pauses < BUSY_PAUSES;
    bool away = code == VOW_ESTORE || code == VOW_EAGAIN;
    return (code == VOW_EUNSURE || (away && p->queues)) &&
           vow__hub_now_ns(hub_of(p)) < p->kept_ns;
}

/* An answer that came too late to be trusted is asked for again: the token
 * keeps the place if there still is one. */
static void granted(struct vow__place *p, const vow_pool_permit *at)
{
    uint64_t now = vow__hub_now_ns(hub_of(p));
    p->valid_ns = p->sent_ns + p->span_ns;
    if (now >= p->valid_ns) {
        move(p, PLACE_PAUSING);
        vow__place_wake_at(p, now);
        return;
    }
    move(p, PLACE_HELD);
    p->renew_ns = p->sent_ns + vow__place_renewal_ns(p);
    vow__place_plan(p);
    p->grant.fence = at->fence;
    atomic_store(&p->rated,
                 at->limits.rate > 0 &&
                     (hub_of(p)->store->ops->flags & VOW_STORE_STARTS) != 0);
    vow__end_resolve(&p->answer, vow_nothing());
}

static void queued(struct vow__place *p, const vow_pool_permit *at)
{
    uint64_t now = vow__hub_now_ns(hub_of(p));
    move(p, PLACE_QUEUED);
    p->again_ns = p->woken ? now : vow__place_again_ns(p, at);
    p->renew_ns = p->sent_ns + vow__place_renewal_ns(p);
    vow__place_plan(p);
}

/* Limits are never bypassed: without the store there is no place. */
static void refuse(struct vow__place *p, int code)
{
    char text[VOW_LABEL_MAX + 128];
    const char *why = NULL;
    if (code == VOW_EINVAL) {
        (void)snprintf(text, sizeof(text),
                       "pool '%.*s' never allows a weight of %lu",
                       VOW_LABEL_MAX, p->label, (unsigned long)p->ask.weight);
        why = text;
    } else if (code == VOW_EBUSY) {
        (void)snprintf(text, sizeof(text), "pool '%.*s' has no place now",
                       VOW_LABEL_MAX, p->label);
        why = text;
    } else if (code == VOW_ESTORE || code == VOW_EUNSURE) {
        why = vow__store_trouble(hub_of(p));
    }
    vow__end_refuse(&p->answer, code, why);
    give_back(p);
}

/* ---- leaving ------------------------------------------------------------ */

/* It may still be there at the store, for its grace: so it is not given back
 * before its holder says so. */
static void lose(struct vow__place *p)
{
    uint64_t lease_ns = p->ask.lease_ms * VOW__NS_PER_MS;
    vow__end_refuse(&p->lost, VOW_ELOST,
                    "the place could not be renewed in time");
    move(p, PLACE_LOST);
    vow__place_wake_at(p, p->valid_ns + (lease_ns - p->span_ns));
}

/* Whoever had a use for it has been told, or has left. */
static void give_back(struct vow__place *p)
{
    struct vow__hub *h = hub_of(p);
    if (!p->known) {
        over(p, VOW_ECANCELED, NULL);
        return;
    }
    vow__end_refuse(&p->answer, VOW_ECANCELED, NULL);
    vow__end_resolve(&p->lost, vow_nothing());
    move(p, PLACE_LEAVING);
    p->pauses = 0;
    p->until_ns = vow__hub_now_ns(h) + p->ask.lease_ms * VOW__NS_PER_MS;
    release(p);
}

static void release(struct vow__place *p)
{
    struct vow__hub *h = hub_of(p);
    const vow_permit_hold hold = {.pool = p->ask.pool,
                                  .limits_of = p->ask.limits_of,
                                  .token = p->ask.token};
    vow__place_rest(p);
    vow__step_begins(h);
    h->store->ops->release(h->store, &hold, on_released, vow__place_ref(p));
}

/* Again, if it may not have happened, for as long as the store keeps it. */
static void on_released(int code, const vow_pool_permit *at, size_t n,
                        void *place)
{
    struct vow__place *p = place;
    struct vow__hub *h = hub_of(p);
    (void)at;
    (void)n;
    if (p->state == PLACE_LEAVING) {
        if (code < 0 && vow__hub_now_ns(h) < p->until_ns)
            vow__place_pause(p);
        else
            over(p, VOW_ECANCELED, NULL);
    }
    vow__step_ended(h, code);
    vow__place_unref(p);
}

/* `code` is for who still waits for it. */
static void over(struct vow__place *p, int code, const char *text)
{
    vow__end_refuse(&p->answer, code, text); /* keeps P2 */
    vow__end_resolve(&p->lost, vow_nothing());
    vow__place_rest(p);
    (void)vow_call_stop(&p->call);
    if (p->state != PLACE_NEW)
        vow__table_remove(&hub_of(p)->places->tokens, &p->by_token);
    move(p, PLACE_OVER);
    vow__place_unref(p);
}

/* ---- what the store and the hub say ------------------------------------- */

void vow__places_changed(const vow_token *token, void *hub)
{
    struct vow__hub *h = hub;
    if (h->places == NULL)
        return;
    struct vow__table_node *n = vow__table_find(
        &h->places->tokens, (const char *)token->bytes, sizeof(token->bytes));
    struct vow__place *p = n == NULL ? NULL : named(n);
    if (p == NULL)
        return;
    p->woken = true;
    if (p->state == PLACE_QUEUED && !atomic_load(&p->left))
        ask(p);
}

void vow__places_doubt(struct vow__hub *h)
{
    struct vow__table_node *n = NULL;
    while (h->places != NULL &&
           (n = vow__table_next(&h->places->tokens, n)) != NULL) {
        struct vow__place *p = named(n);
        p->woken = true; /* while it is ASKING */
        p->again_ns = 0;
        if (p->state == PLACE_QUEUED)
            vow__place_plan(p);
    }
}

/* Its steps begin when this is over: keeps Q3. */
void vow__places_leave(struct vow__hub *h, vow_authority *of)
{
    struct vow__table_node *n = NULL;
    while (h->places != NULL &&
           (n = vow__table_next(&h->places->tokens, n)) != NULL) {
        struct vow__place *p = named(n);
        if (p->of != of)
            continue;
        vow__end_refuse(&p->answer, VOW_ECLOSED, CLOSED);
        vow__end_refuse(&p->lost, VOW_ELOST, CLOSED);
        atomic_store(&p->left, true);
        if (p->in_heap)
            vow__place_wake_at(p, 0);
    }
}

/* The store gives all places back when it is closed. */
void vow__places_close(struct vow__hub *h)
{
    struct vow__places *s = h->places;
    struct vow__table_node *n;
    if (s == NULL)
        return;
    s->looking = true; /* never again */
    while ((n = vow__table_next(&s->tokens, NULL)) != NULL) {
        vow__end_refuse(&named(n)->lost, VOW_ELOST, CLOSED);
        over(named(n), VOW_ECLOSED, CLOSED);
    }
    (void)vow_call_stop(&s->look);
    vow__table_fini(&s->tokens);
    h->places = NULL;
    vow__mem_free(&h->alloc, s, sizeof(*s));
}

/* ---- its time has come -------------------------------------------------- */

/* Each of these takes it out of the heap, or puts it behind now. */
void vow__place_due(struct vow__place *p, uint64_t now)
{
    if (p->state == PLACE_LEAVING) {
        release(p);
    } else if (atomic_load(&p->left)) {
        give_back(p);
    } else if (p->state == PLACE_LOST) {
        over(p, VOW_ELOST, NULL);
    } else if (p->state == PLACE_PAUSING ||
               (p->state == PLACE_QUEUED && now >= p->again_ns)) {
        ask(p);
    } else if (p->state == PLACE_HELD && now >= p->valid_ns) {
        lose(p); /* keeps Q1 */
    } else {
        vow__place_renew(p, now);
    }
}

void vow__place_gone(struct vow__place *p)
{
    vow__end_refuse(&p->lost, VOW_ELOST, "the lease of the place is over");
    over(p, VOW_ELOST, NULL);
}
