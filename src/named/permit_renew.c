/* SPDX-License-Identifier: MIT */
/* permit_renew.c - keeps permits: due times and renewals.
 *
 * WHY   The store takes a permit back when the holder is silent for a lease,
 *       and drops a queued request likewise. As in pulse.c the holder must know
 *       first: a permit is valid from the send time of the last answered step,
 *       by the local clock, and for a little less than the lease.
 * HOW   All permits are in a heap by due time: to request again, to renew, to
 *       count as lost, to retry. One timer serves the first permit. Due
 *       renewals of held and of queued permits go out as one step; for a queued
 *       request the renewal also finds a grant after a lost wake-up.
 * LIMITS  128 permits per renewal.
 * THREADS  the hub's loop, which user code never blocks.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "named/permit_internal.h"

enum {
    RENEW_BATCH = 128,
    RENEW_PAUSE_FIRST_MS = 20,
    RENEW_PAUSE_MOST_MS = 1000,
    AGAIN_US = 1000, /* for a store that gives no time */
    NS_PER_US = 1000
};

/* One renewal step. */
struct renew_batch {
    struct vow__named_hub *hub; /* counted */
    uint64_t sent_ns;
    size_t n;
    struct vow__named_permit *permits[RENEW_BATCH]; /* counted */
    uint64_t rounds[RENEW_BATCH]; /* p->round at the send time */
    vow_permit_hold holds[RENEW_BATCH];
};

static void on_permit_timer(void *hub);
static bool permit_may_renew(const struct vow__named_permit *p, uint64_t now);
static void on_permits_renewed(int code, const vow_pool_permit *at, size_t n,
                               void *batch);
static void permit_renewed(struct vow__named_permit *p,
                           const vow_pool_permit *at, uint64_t sent_ns);
static void permit_renew_sooner(struct vow__named_permit *p, uint64_t now);
static void permit_timer_arm(struct vow__named_hub *h);

static struct vow__named_hub *permit_hub_of(const struct vow__named_permit *p)
{
    return p->handle->hub;
}

int vow__named_permits_open(struct vow__named_hub *h)
{
    h->permits = vow__mem_zero(&h->alloc, sizeof(*h->permits));
    if (h->permits == NULL)
        return VOW_ENOMEM;
    vow__table_init_hashed(&h->permits->tokens, &h->alloc,
                           vow_loop_random(h->loop));
    h->permits->timer_ns = UINT64_MAX;
    return 0;
}

/* Handles all due permits. A step may report the state of the store to the
 * user, and user code may close the hub. */
static void on_permit_timer(void *hub)
{
    struct vow__named_hub *h = vow__named_hub_ref(hub);
    uint64_t now = vow__named_hub_now_ns(h);
    h->permits->timer_blocked = true;
    while (h->permits != NULL && h->permits->due != NULL &&
           h->permits->due->key <= now)
        vow__named_permit_due(
            VOW__OUTER(h->permits->due, struct vow__named_permit, due), now);
    if (h->permits != NULL) {
        h->permits->timer_blocked = false;
        h->permits->timer_ns = UINT64_MAX;
        permit_timer_arm(h);
    }
    vow__named_hub_unref(h);
}

static bool permit_may_renew(const struct vow__named_permit *p, uint64_t now)
{
    bool kept = (p->state == PERMIT_HELD && now < p->valid_ns) ||
                (p->state == PERMIT_QUEUED && now < p->again_ns);
    return kept && !p->renewing && p->renew_ns <= now && !atomic_load(&p->left);
}

/* Renews the first permit and all due permits with the same lease. */
void vow__named_permit_renew(struct vow__named_permit *first, uint64_t now)
{
    struct vow__named_hub *h = permit_hub_of(first);
    uint64_t lease_ms = first->request.lease_ms;
    if (!permit_may_renew(first, now)) { /* the last renewal is not answered */
        first->renew_ns = now + vow__named_permit_renewal_ns(first);
        vow__named_permit_schedule(first);
        return;
    }
    struct renew_batch *b = vow__mem_new(&h->alloc, sizeof(*b));
    if (b == NULL) {
        permit_renew_sooner(first, now);
        return;
    }
    b->hub = vow__named_hub_ref(h);
    b->sent_ns = now;
    b->n = 0;
    while (b->n < RENEW_BATCH && h->permits->due->key <= now) {
        struct vow__named_permit *p =
            VOW__OUTER(h->permits->due, struct vow__named_permit, due);
        if (p->request.lease_ms != lease_ms || !permit_may_renew(p, now))
            break;
        p->renewing = true;
        p->renew_ns = now + vow__named_permit_renewal_ns(p);
        vow__named_permit_schedule(p);
        b->permits[b->n] = vow__named_permit_ref(p);
        b->rounds[b->n] = p->round;
        b->holds[b->n++] =
            (vow_permit_hold){.pool = p->request.pool,
                              .limits_of = p->request.limits_of,
                              .token = p->request.token,
                              .started = atomic_load(&p->started)};
    }
    vow__named_step_begins(h);
    h->store->ops->renew(h->store, b->holds, b->n, lease_ms, on_permits_renewed,
                         b);
}

static void on_permits_renewed(int code, const vow_pool_permit *at, size_t n,
                               void *batch)
{
    struct renew_batch *b = batch;
    struct vow__named_hub *h = b->hub;
    uint64_t now = vow__named_hub_now_ns(h);
    for (size_t i = 0; i < b->n; i++) {
        struct vow__named_permit *p = b->permits[i];
        bool kept = p->state == PERMIT_HELD || p->state == PERMIT_QUEUED;
        if (kept && p->round == b->rounds[i]) {
            p->renewing = false;
            p->start_stored |= code == 0 && b->holds[i].started;
            if (code == 0 && i < n)
                permit_renewed(p, &at[i], b->sent_ns);
            else
                permit_renew_sooner(p, now);
        }
        vow__named_permit_unref(p);
    }
    vow__named_step_ended(h, code);
    struct vow_alloc alloc = h->alloc;
    vow__mem_free(&alloc, b, sizeof(*b));
    vow__named_hub_unref(h);
}

/* Takes the answer to a renewal. If a queued request was granted, or the store
 * has lost the request, the request is sent again. */
static void permit_renewed(struct vow__named_permit *p,
                           const vow_pool_permit *at, uint64_t sent_ns)
{
    if (p->state == PERMIT_QUEUED) {
        if (at->status != VOW_STATUS_NONE)
            vow__named_permit_confirmed(p, sent_ns);
        p->again_ns = at->status == VOW_STATUS_WAITING
                          ? vow__named_permit_again_ns(p, at)
                          : 0;
        vow__named_permit_schedule(p);
    } else if (at->status == VOW_STATUS_OWNED) {
        p->valid_ns = sent_ns + p->span_ns;
        if (vow__named_permit_owes_start(p)) /* after the send time */
            vow__named_permit_hurry(p);
        else
            vow__named_permit_schedule(p);
    } else {
        vow__named_permit_forgotten(p);
    }
}

void vow__named_permit_confirmed(struct vow__named_permit *p, uint64_t sent_ns)
{
    p->kept_ns = sent_ns + p->request.lease_ms * VOW__NS_PER_MS;
}

void vow__named_permit_hurry(struct vow__named_permit *p)
{
    p->renew_ns = p->renewing ? p->renew_ns : 0;
    vow__named_permit_schedule(p);
}

/* Renews before the usual time after a failed renewal, if time is left. */
static void permit_renew_sooner(struct vow__named_permit *p, uint64_t now)
{
    p->renew_ns = now + vow__named_permit_renewal_ns(p) / 4 + 1;
    vow__named_permit_schedule(p);
}

/* A tenth shorter or longer at random: processes do not renew in step. */
uint64_t vow__named_permit_renewal_ns(struct vow__named_permit *p)
{
    const struct vow__named_hub *h = permit_hub_of(p);
    uint64_t ns = p->every_ns;
    uint64_t recheck_ms = h->opts.recheck_ms;
    if (p->state == PERMIT_QUEUED && recheck_ms > 0 &&
        recheck_ms <= ns / VOW__NS_PER_MS)
        ns = recheck_ms * VOW__NS_PER_MS;
    uint64_t tenth = ns / 10 + 1;
    return ns - tenth + vow_loop_random(h->loop) % (2 * tenth) + 1;
}

/* ---- the heap ----------------------------------------------------------- */

void vow__named_permit_schedule(struct vow__named_permit *p)
{
    uint64_t other = p->state == PERMIT_HELD ? p->valid_ns : p->again_ns;
    vow__named_permit_schedule_at(p, p->renew_ns < other ? p->renew_ns : other);
}

void vow__named_permit_pause(struct vow__named_permit *p)
{
    struct vow__named_hub *h = permit_hub_of(p);
    uint64_t ms = RENEW_PAUSE_FIRST_MS;
    for (uint32_t k = 0; k < p->pauses && ms < RENEW_PAUSE_MOST_MS; k++)
        ms *= 2;
    p->pauses++;
    ms = ms / 2 + vow_loop_random(h->loop) % ms;
    uint64_t now = vow__named_hub_now_ns(h);
    if (p->state == PERMIT_PAUSING && now < p->kept_ns) {
        uint64_t left_ms = (p->kept_ns - now) / VOW__NS_PER_MS + 1;
        uint64_t most =
            left_ms > 2 * RENEW_PAUSE_FIRST_MS ? left_ms / 2 : left_ms;
        ms = ms < most ? ms : most; /* before the store drops the request */
    }
    vow__named_permit_schedule_at(p, now + ms * VOW__NS_PER_MS);
}

void vow__named_permit_schedule_at(struct vow__named_permit *p, uint64_t due_ns)
{
    struct vow__named_permits *s = permit_hub_of(p)->permits;
    if (p->in_heap)
        vow__heap_remove(&s->due, &p->due);
    s->n_keep_loop -= p->keeps_loop;
    p->due.key = due_ns;
    p->due.seq = s->seq++;
    p->keeps_loop = p->state != PERMIT_HELD && p->state != PERMIT_LOST;
    s->n_keep_loop += p->keeps_loop;
    vow__heap_insert(&s->due, &p->due);
    p->in_heap = true;
    permit_timer_arm(permit_hub_of(p));
}

void vow__named_permit_unschedule(struct vow__named_permit *p)
{
    struct vow__named_permits *s = permit_hub_of(p)->permits;
    if (!p->in_heap)
        return;
    vow__heap_remove(&s->due, &p->due);
    s->n_keep_loop -= p->keeps_loop;
    p->keeps_loop = false;
    p->in_heap = false;
    permit_timer_arm(permit_hub_of(p));
}

/* Arms the timer for the first permit. In a store that is private to this
 * process, held permits do not keep the loop running; waiting requests do. */
static void permit_timer_arm(struct vow__named_hub *h)
{
    struct vow__named_permits *s = h->permits;
    bool local =
        h->store != NULL && (h->store->ops->flags & VOW_STORE_LOCAL) != 0;
    bool weakly = local && s->n_keep_loop == 0;
    if (s->timer_blocked)
        return;
    if (s->due == NULL) {
        (void)vow_call_stop(&s->timer);
        s->timer_ns = UINT64_MAX;
        return;
    }
    if (s->due->key >= s->timer_ns && weakly == s->timer_weak)
        return;
    uint64_t now = vow__named_hub_now_ns(h);
    s->timer_ns = s->due->key;
    s->timer_weak = weakly;
    uint64_t left = s->timer_ns > now ? s->timer_ns - now : 0;
    uint64_t due = vow_loop_now_ns(h->loop) + left;
    if (weakly)
        vow_call_weakly_at(&s->timer, h->loop, due, on_permit_timer, h);
    else
        vow_call_at(&s->timer, h->loop, due, on_permit_timer, h);
}

uint64_t vow__named_permit_again_ns(const struct vow__named_permit *p,
                                    const vow_pool_permit *at)
{
    uint64_t now = vow__named_hub_now_ns(permit_hub_of(p));
    uint64_t us = at->again_us == 0 ? AGAIN_US : at->again_us;
    if (us > (UINT64_MAX - now) / NS_PER_US)
        return UINT64_MAX;
    return now + us * NS_PER_US;
}
