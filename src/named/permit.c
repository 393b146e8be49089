/* SPDX-License-Identifier: MIT */
/* permit.c - permits in pools, on the hub's loop's side: asked for, queued for, kept,
 * given back.
 *
 * WHY   A permit that is lost here while the store believes it held blocks all
 *       others for a lease; one that is held here while the store has given it
 *       to another breaks the limit. So a permit is given back whatever happens,
 *       and is taken for lost before the store can do so.
 * HOW   A permit has a token and at most one step in flight that decides about
 *       it; whoever leaves meanwhile has it given back when the answer comes.
 *       An answer that was lost is had by the same step with the same token.
 *       Who is in the queue asks again while the store is away, for as long as
 *       it keeps its permit there: the leader of a cluster dies without harm.
 *       permit_renew.c says when a permit is to be looked at.
 * INVARIANTS  those of permit_internal.h, and
 *   Q1  a permit is HELD only while `valid_ns` has not passed, as of the last
 *       look
 *   Q2  every permit that is not NEW or OVER is in the table
 *   Q3  nobody's code runs inside vow__named_permits_leave(), vow__named_permits_close() and
 *       vow__named_permits_doubt()
 * LIMITS  as many permits as names.
 * THREADS  the hub's loop.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/sm.h"
#include "named/permit_internal.h"

#include <stdio.h>

/* How often a store that is only busy is asked again. */
enum { BUSY_PAUSES = 6 };

static void move(struct vow__named_permit *p, enum vow__named_permit_state to);
static void admit(struct vow__named_permit *p);
static int enter(struct vow__named_permit *p);
static void ask(struct vow__named_permit *p);
static void on_asked(int code, const vow_pool_permit *at, size_t n,
                     void *permit);
static void answered(struct vow__named_permit *p, int code,
                     const vow_pool_permit *at);
static bool may_ask_again(const struct vow__named_permit *p, int code);
static void granted(struct vow__named_permit *p, const vow_pool_permit *at);
static void queued(struct vow__named_permit *p, const vow_pool_permit *at);
static void refuse(struct vow__named_permit *p, int code);
static void lose(struct vow__named_permit *p);
static void give_back(struct vow__named_permit *p);
static void release(struct vow__named_permit *p);
static void on_released(int code, const vow_pool_permit *at, size_t n,
                        void *permit);
static void over(struct vow__named_permit *p, int code, const char *text);

static const char CLOSED[] = "the authority was closed";

static struct vow__named_hub *hub_of(const struct vow__named_permit *p)
{
    return p->of->hub;
}

static struct vow__named_permit *named(struct vow__table_node *n)
{
    return VOW__OUTER(n, struct vow__named_permit, by_token);
}

static void move(struct vow__named_permit *p, enum vow__named_permit_state to)
{
    static const uint8_t allowed[] = {
        [PERMIT_NEW] = VOW__TO(PERMIT_ASKING) | VOW__TO(PERMIT_OVER),
        [PERMIT_ASKING] = VOW__TO(PERMIT_QUEUED) | VOW__TO(PERMIT_PAUSING) |
                          VOW__TO(PERMIT_HELD) | VOW__TO(PERMIT_LEAVING) |
                          VOW__TO(PERMIT_OVER),
        [PERMIT_QUEUED] = VOW__TO(PERMIT_ASKING) | VOW__TO(PERMIT_LEAVING) |
                          VOW__TO(PERMIT_OVER),
        [PERMIT_PAUSING] = VOW__TO(PERMIT_ASKING) | VOW__TO(PERMIT_LEAVING) |
                           VOW__TO(PERMIT_OVER),
        [PERMIT_HELD] = VOW__TO(PERMIT_LOST) | VOW__TO(PERMIT_LEAVING) |
                        VOW__TO(PERMIT_OVER),
        [PERMIT_LOST] = VOW__TO(PERMIT_LEAVING) | VOW__TO(PERMIT_OVER),
        [PERMIT_LEAVING] = VOW__TO(PERMIT_OVER),
        [PERMIT_OVER] = 0};
    vow__sm_move(&p->state, (uint8_t)to, allowed);
}

/* ---- coming ------------------------------------------------------------- */

void vow__named_permit_sync(void *permit)
{
    struct vow__named_permit *p = permit;
    if (p->state == PERMIT_NEW)
        admit(p);
    else if (atomic_load(&p->left) && p->in_heap && p->state != PERMIT_LEAVING)
        give_back(p); /* else an answer is on its way */
    else if (p->state == PERMIT_HELD && vow__named_permit_owes_start(p))
        vow__named_permit_hurry(p);
}

static void admit(struct vow__named_permit *p)
{
    const struct vow__named_hub *h = hub_of(p);
    if (atomic_load(&p->left)) {
        over(p, VOW_ECANCELED, NULL);
    } else if (h->closing || h->store == NULL || !p->of->attached) {
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
static int enter(struct vow__named_permit *p)
{
    struct vow__named_hub *h = hub_of(p);
    int rc = h->permits == NULL ? vow__named_permits_open(h) : 0;
    if (rc < 0)
        return rc;
    if (h->permits->tokens.count >= h->opts.names_max)
        return VOW_EQUEUEFULL;
    vow__named_token_make(h, &p->ask.token);
    p->by_token.name = (const char *)p->ask.token.bytes;
    p->by_token.length = sizeof(p->ask.token.bytes);
    return vow__table_add(&h->permits->tokens, &p->by_token);
}

/* ---- asking ------------------------------------------------------------- */

static void ask(struct vow__named_permit *p)
{
    struct vow__named_hub *h = hub_of(p);
    vow__named_permit_unschedule(p);
    move(p, PERMIT_ASKING);
    p->woken = false;
    p->renewing = false;
    p->round++;
    p->sent_ns = vow__named_hub_now_ns(h);
    vow__named_step_begins(h);
    h->store->ops->acquire(h->store, &p->ask, on_asked,
                           vow__named_permit_ref(p));
}

static void on_asked(int code, const vow_pool_permit *at, size_t n,
                     void *permit)
{
    struct vow__named_permit *p = permit;
    struct vow__named_hub *h = hub_of(p);
    if (p->state == PERMIT_ASKING) /* else we have closed */
        answered(p, code == 0 && n != 1 ? VOW_ESTORE : code, at);
    vow__named_step_ended(h, code);
    vow__named_permit_unref(p);
}

static void answered(struct vow__named_permit *p, int code,
                     const vow_pool_permit *at)
{
    bool own = code == 0 && at->status == VOW_STATUS_OWNED;
    bool waits = code == 0 && at->status == VOW_STATUS_WAITING;
    if (own || waits)
        vow__named_permit_confirmed(p, p->sent_ns);
    else if (code == VOW_EUNSURE && !p->known)
        vow__named_permit_confirmed(p, vow__named_hub_now_ns(hub_of(p)));
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
        move(p, PERMIT_PAUSING);
        vow__named_permit_pause(p);
    } else {
        refuse(p, code == 0            ? VOW_EBUSY
                  : code == VOW_EAGAIN ? VOW_ESTORE
                                       : code);
    }
}

/* A store that is only busy, or that may have done it, is asked again; who is
 * in the queue asks again in any case. What it knows it keeps for a lease. */
static bool may_ask_again(const struct vow__named_permit *p, int code)
{
    if (code == VOW_EAGAIN && !p->queues)
        return p->pauses < BUSY_PAUSES;
    bool away = code == VOW_ESTORE || code == VOW_EAGAIN;
    return (code == VOW_EUNSURE || (away && p->queues)) &&
           vow__named_hub_now_ns(hub_of(p)) < p->kept_ns;
}

/* An answer that came too late to be trusted is asked for again: the token
 * keeps the permit if there still is one. */
static void granted(struct vow__named_permit *p, const vow_pool_permit *at)
{
    uint64_t now = vow__named_hub_now_ns(hub_of(p));
    p->valid_ns = p->sent_ns + p->span_ns;
    if (now >= p->valid_ns) {
        move(p, PERMIT_PAUSING);
        vow__named_permit_schedule_at(p, now);
        return;
    }
    move(p, PERMIT_HELD);
    p->renew_ns = p->sent_ns + vow__named_permit_renewal_ns(p);
    vow__named_permit_schedule(p);
    p->grant.fence = at->fence;
    atomic_store(&p->rated,
                 at->limits.rate > 0 &&
                     (hub_of(p)->store->ops->flags & VOW_STORE_STARTS) != 0);
    vow__named_settler_resolve(&p->answer, vow_nothing());
}

static void queued(struct vow__named_permit *p, const vow_pool_permit *at)
{
    uint64_t now = vow__named_hub_now_ns(hub_of(p));
    move(p, PERMIT_QUEUED);
    p->again_ns = p->woken ? now : vow__named_permit_again_ns(p, at);
    p->renew_ns = p->sent_ns + vow__named_permit_renewal_ns(p);
    vow__named_permit_schedule(p);
}

/* Limits are never bypassed: without the store there is no permit. */
static void refuse(struct vow__named_permit *p, int code)
{
    char text[VOW_LABEL_MAX + 128];
    const char *why = NULL;
    if (code == VOW_EINVAL) {
        (void)snprintf(text, sizeof(text),
                       "pool '%.*s' never allows a weight of %lu",
                       VOW_LABEL_MAX, p->label, (unsigned long)p->ask.weight);
        why = text;
    } else if (code == VOW_EBUSY) {
        (void)snprintf(text, sizeof(text), "pool '%.*s' has no permit now",
                       VOW_LABEL_MAX, p->label);
        why = text;
    } else if (code == VOW_ESTORE || code == VOW_EUNSURE) {
        why = vow__named_store_trouble(hub_of(p));
    }
    vow__named_settler_refuse(&p->answer, code, why);
    give_back(p);
}

/* ---- leaving ------------------------------------------------------------ */

/* It may still be there at the store, for its grace: so it is not given back
 * before its holder says so. */
static void lose(struct vow__named_permit *p)
{
    uint64_t lease_ns = p->ask.lease_ms * VOW__NS_PER_MS;
    vow__named_settler_refuse(&p->lost, VOW_ELOST,
                              "the permit could not be renewed in time");
    move(p, PERMIT_LOST);
    vow__named_permit_schedule_at(p, p->valid_ns + (lease_ns - p->span_ns));
}

/* Whoever had a use for it has been told, or has left. */
static void give_back(struct vow__named_permit *p)
{
    struct vow__named_hub *h = hub_of(p);
    if (!p->known) {
        over(p, VOW_ECANCELED, NULL);
        return;
    }
    vow__named_settler_refuse(&p->answer, VOW_ECANCELED, NULL);
    vow__named_settler_resolve(&p->lost, vow_nothing());
    move(p, PERMIT_LEAVING);
    p->pauses = 0;
    p->until_ns = vow__named_hub_now_ns(h) + p->ask.lease_ms * VOW__NS_PER_MS;
    release(p);
}

static void release(struct vow__named_permit *p)
{
    struct vow__named_hub *h = hub_of(p);
    const vow_permit_hold hold = {.pool = p->ask.pool,
                                  .limits_of = p->ask.limits_of,
                                  .token = p->ask.token};
    vow__named_permit_unschedule(p);
    vow__named_step_begins(h);
    h->store->ops->release(h->store, &hold, on_released,
                           vow__named_permit_ref(p));
}

/* Again, if it may not have happened, for as long as the store keeps it. */
static void on_released(int code, const vow_pool_permit *at, size_t n,
                        void *permit)
{
    struct vow__named_permit *p = permit;
    struct vow__named_hub *h = hub_of(p);
    (void)at;
    (void)n;
    if (p->state == PERMIT_LEAVING) {
        if (code < 0 && vow__named_hub_now_ns(h) < p->until_ns)
            vow__named_permit_pause(p);
        else
            over(p, VOW_ECANCELED, NULL);
    }
    vow__named_step_ended(h, code);
    vow__named_permit_unref(p);
}

/* `code` is for who still waits for it. */
static void over(struct vow__named_permit *p, int code, const char *text)
{
    vow__named_settler_refuse(&p->answer, code, text); /* keeps P2 */
    vow__named_settler_resolve(&p->lost, vow_nothing());
    vow__named_permit_unschedule(p);
    (void)vow_call_stop(&p->call);
    if (p->state != PERMIT_NEW)
        vow__table_remove(&hub_of(p)->permits->tokens, &p->by_token);
    move(p, PERMIT_OVER);
    vow__named_permit_unref(p);
}

/* ---- what the store and the hub say ------------------------------------- */

void vow__named_permits_changed(const vow_token *token, void *hub)
{
    struct vow__named_hub *h = hub;
    if (h->permits == NULL)
        return;
    struct vow__table_node *n = vow__table_find(
        &h->permits->tokens, (const char *)token->bytes, sizeof(token->bytes));
    struct vow__named_permit *p = n == NULL ? NULL : named(n);
    if (p == NULL)
        return;
    p->woken = true;
    if (p->state == PERMIT_QUEUED && !atomic_load(&p->left))
        ask(p);
}

void vow__named_permits_doubt(struct vow__named_hub *h)
{
    struct vow__table_node *n = NULL;
    while (h->permits != NULL &&
           (n = vow__table_next(&h->permits->tokens, n)) != NULL) {
        struct vow__named_permit *p = named(n);
        p->woken = true; /* while it is ASKING */
        p->again_ns = 0;
        if (p->state == PERMIT_QUEUED)
            vow__named_permit_schedule(p);
    }
}

/* Its steps begin when this is over: keeps Q3. */
void vow__named_permits_leave(struct vow__named_hub *h, vow_authority *of)
{
    struct vow__table_node *n = NULL;
    while (h->permits != NULL &&
           (n = vow__table_next(&h->permits->tokens, n)) != NULL) {
        struct vow__named_permit *p = named(n);
        if (p->of != of)
            continue;
        vow__named_settler_refuse(&p->answer, VOW_ECLOSED, CLOSED);
        vow__named_settler_refuse(&p->lost, VOW_ELOST, CLOSED);
        atomic_store(&p->left, true);
        if (p->in_heap)
            vow__named_permit_schedule_at(p, 0);
    }
}

/* The store gives all permits back when it is closed. */
void vow__named_permits_close(struct vow__named_hub *h)
{
    struct vow__named_permits *s = h->permits;
    struct vow__table_node *n;
    if (s == NULL)
        return;
    s->looking = true; /* never again */
    while ((n = vow__table_next(&s->tokens, NULL)) != NULL) {
        vow__named_settler_refuse(&named(n)->lost, VOW_ELOST, CLOSED);
        over(named(n), VOW_ECLOSED, CLOSED);
    }
    (void)vow_call_stop(&s->look);
    vow__table_fini(&s->tokens);
    h->permits = NULL;
    vow__mem_free(&h->alloc, s, sizeof(*s));
}

/* ---- its time has come -------------------------------------------------- */

/* Each of these takes it out of the heap, or puts it behind now. */
void vow__named_permit_due(struct vow__named_permit *p, uint64_t now)
{
    if (p->state == PERMIT_LEAVING) {
        release(p);
    } else if (atomic_load(&p->left)) {
        give_back(p);
    } else if (p->state == PERMIT_LOST) {
        over(p, VOW_ELOST, NULL);
    } else if (p->state == PERMIT_PAUSING ||
               (p->state == PERMIT_QUEUED && now >= p->again_ns)) {
        ask(p);
    } else if (p->state == PERMIT_HELD && now >= p->valid_ns) {
        lose(p); /* keeps Q1 */
    } else {
        vow__named_permit_renew(p, now);
    }
}

void vow__named_permit_forgotten(struct vow__named_permit *p)
{
    vow__named_settler_refuse(&p->lost, VOW_ELOST,
                              "the lease of the permit is over");
    over(p, VOW_ELOST, NULL);
}
