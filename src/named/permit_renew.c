/* SPDX-License-Identifier: MIT */
/* permit_renew.c - keeping permits: when to look at each, and renewals.
 *
 * WHY   The store takes a permit away whose holder is silent for a lease, and
 *       one in the queue as well. As in pulse.c the holder must know first: it
 *       trusts a permit from the time the step was sent that was answered, by
 *       its own clock, and is a little early.
 * HOW   All permits lie in a heap by the time to look at them: to ask again, to
 *       renew, to take for lost, to try once more. One timer serves the first.
 *       Renewals that are due go out as one step, for those that are held and
 *       those that queue; the latter look in this way whether their turn has
 *       come, if the wake-up was lost.
 * LIMITS  128 permits to a renewal.
 * THREADS  the hub's loop, which no code of the user's blocks.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "named/permit_internal.h"

enum {
    BATCH = 128,
    PAUSE_FIRST_MS = 20,
    PAUSE_MOST_MS = 1000,
    AGAIN_US = 1000, /* for a store that does not say when */
    NS_PER_US = 1000
};

/* A renewal. */
struct batch {
    struct vow__named_hub *hub; /* counted */
    uint64_t sent_ns;
    size_t n;
    struct vow__named_permit *permits[BATCH]; /* counted */
    uint64_t rounds[BATCH];                   /* theirs, when it was sent */
    vow_permit_hold holds[BATCH];
};

static void look(void *hub);
static bool may_renew(const struct vow__named_permit *p, uint64_t now);
static void on_renewed(int code, const vow_pool_permit *at, size_t n,
                       void *batch);
static void heard(struct vow__named_permit *p, const vow_pool_permit *at,
                  uint64_t sent_ns);
static void sooner(struct vow__named_permit *p, uint64_t now);
static void arm(struct vow__named_hub *h);

static struct vow__named_hub *hub_of(const struct vow__named_permit *p)
{
    return p->of->hub;
}

int vow__named_permits_open(struct vow__named_hub *h)
{
    h->permits = vow__mem_zero(&h->alloc, sizeof(*h->permits));
    if (h->permits == NULL)
        return VOW_ENOMEM;
    vow__table_init(&h->permits->tokens, &h->alloc, vow_loop_random(h->loop));
    h->permits->look_ns = UINT64_MAX;
    return 0;
}

/* A step may tell the user of the store, who may close us. */
static void look(void *hub)
{
    struct vow__named_hub *h = vow__named_hub_ref(hub);
    uint64_t now = vow__named_hub_now_ns(h);
    h->permits->looking = true;
    while (h->permits != NULL && h->permits->due != NULL &&
           h->permits->due->key <= now)
        vow__named_permit_due(
            VOW__OUTER(h->permits->due, struct vow__named_permit, due), now);
    if (h->permits != NULL) {
        h->permits->looking = false;
        h->permits->look_ns = UINT64_MAX;
        arm(h);
    }
    vow__named_hub_unref(h);
}

static bool may_renew(const struct vow__named_permit *p, uint64_t now)
{
    bool kept = (p->state == PERMIT_HELD && now < p->valid_ns) ||
                (p->state == PERMIT_QUEUED && now < p->again_ns);
    return kept && !p->renewing && p->renew_ns <= now && !atomic_load(&p->left);
}

/* The first, and all that are due with the same lease. */
void vow__named_permit_renew(struct vow__named_permit *first, uint64_t now)
{
    struct vow__named_hub *h = hub_of(first);
    uint64_t lease_ms = first->ask.lease_ms;
    if (!may_renew(first, now)) { /* the one before is not answered yet */
        first->renew_ns = now + vow__named_permit_renewal_ns(first);
        vow__named_permit_schedule(first);
        return;
    }
    struct batch *b = vow__mem_new(&h->alloc, sizeof(*b));
    if (b == NULL) {
        sooner(first, now);
        return;
    }
    b->hub = vow__named_hub_ref(h);
    b->sent_ns = now;
    b->n = 0;
    while (b->n < BATCH && h->permits->due->key <= now) {
        struct vow__named_permit *p =
            VOW__OUTER(h->permits->due, struct vow__named_permit, due);
        if (p->ask.lease_ms != lease_ms || !may_renew(p, now))
            break;
        p->renewing = true;
        p->renew_ns = now + vow__named_permit_renewal_ns(p);
        vow__named_permit_schedule(p);
        b->permits[b->n] = vow__named_permit_ref(p);
        b->rounds[b->n] = p->round;
        b->holds[b->n++] =
            (vow_permit_hold){.pool = p->ask.pool,
                              .limits_of = p->ask.limits_of,
                              .token = p->ask.token,
                              .started = atomic_load(&p->started)};
    }
    vow__named_step_begins(h);
    h->store->ops->renew(h->store, b->holds, b->n, lease_ms, on_renewed, b);
}

static void on_renewed(int code, const vow_pool_permit *at, size_t n,
                       void *batch)
{
    struct batch *b = batch;
    struct vow__named_hub *h = b->hub;
    uint64_t now = vow__named_hub_now_ns(h);
    for (size_t i = 0; i < b->n; i++) {
        struct vow__named_permit *p = b->permits[i];
        bool kept = p->state == PERMIT_HELD || p->state == PERMIT_QUEUED;
        if (kept && p->round == b->rounds[i]) {
            p->renewing = false;
            p->stamped |= code == 0 && b->holds[i].started;
            if (code == 0 && i < n)
                heard(p, &at[i], b->sent_ns);
            else
                sooner(p, now);
        }
        vow__named_permit_unref(p);
    }
    vow__named_step_ended(h, code);
    struct vow_alloc alloc = h->alloc;
    vow__mem_free(&alloc, b, sizeof(*b));
    vow__named_hub_unref(h);
}

/* What we queued for may be granted, or the queue has lost it: ask. */
static void heard(struct vow__named_permit *p, const vow_pool_permit *at,
                  uint64_t sent_ns)
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
        if (vow__named_permit_owes_start(p)) /* since the renewal was sent */
            vow__named_permit_hurry(p);
        else
            vow__named_permit_schedule(p);
    } else {
        vow__named_permit_forgotten(p);
    }
}

void vow__named_permit_confirmed(struct vow__named_permit *p, uint64_t sent_ns)
{
    p->kept_ns = sent_ns + p->ask.lease_ms * VOW__NS_PER_MS;
}

void vow__named_permit_hurry(struct vow__named_permit *p)
{
    p->renew_ns = p->renewing ? p->renew_ns : 0;
    vow__named_permit_schedule(p);
}

/* It was not heard of: again before the usual time, if there is some left. */
static void sooner(struct vow__named_permit *p, uint64_t now)
{
    p->renew_ns = now + vow__named_permit_renewal_ns(p) / 4 + 1;
    vow__named_permit_schedule(p);
}

/* A tenth earlier or later, so that processes do not renew in step. */
uint64_t vow__named_permit_renewal_ns(struct vow__named_permit *p)
{
    const struct vow__named_hub *h = hub_of(p);
    uint64_t ns = p->every_ns;
    uint64_t look_ms = h->opts.recheck_ms;
    if (p->state == PERMIT_QUEUED && look_ms > 0 &&
        look_ms <= ns / VOW__NS_PER_MS)
        ns = look_ms * VOW__NS_PER_MS;
    uint64_t tenth = ns / 10 + 1;
    return ns - tenth + vow_loop_random(h->loop) % (2 * tenth) + 1;
}

/* ---- the heap ----------------------------------------------------------- */

void vow__named_permit_schedule(struct vow__named_permit *p)
{
    uint64_t other = p->state == PERMIT_HELD ? p->valid_ns : p->again_ns;
    vow__named_permit_schedule_at(p, p->renew_ns < other ? p->renew_ns : other);
}

/* Longer each time. */
void vow__named_permit_pause(struct vow__named_permit *p)
{
    struct vow__named_hub *h = hub_of(p);
    uint64_t ms = PAUSE_FIRST_MS;
    for (uint32_t k = 0; k < p->pauses && ms < PAUSE_MOST_MS; k++)
        ms *= 2;
    p->pauses++;
    ms = ms / 2 + vow_loop_random(h->loop) % ms;
    uint64_t now = vow__named_hub_now_ns(h);
    if (p->state == PERMIT_PAUSING && now < p->kept_ns) {
        uint64_t left_ms = (p->kept_ns - now) / VOW__NS_PER_MS + 1;
        uint64_t most = left_ms > 2 * PAUSE_FIRST_MS ? left_ms / 2 : left_ms;
        ms = ms < most ? ms : most; /* while its turn is at stake */
    }
    vow__named_permit_schedule_at(p, now + ms * VOW__NS_PER_MS);
}

void vow__named_permit_schedule_at(struct vow__named_permit *p, uint64_t due_ns)
{
    struct vow__named_permits *s = hub_of(p)->permits;
    if (p->in_heap)
        vow__heap_remove(&s->due, &p->due);
    s->strong -= p->strong;
    p->due.key = due_ns;
    p->due.seq = s->seq++;
    p->strong = p->state != PERMIT_HELD && p->state != PERMIT_LOST;
    s->strong += p->strong;
    vow__heap_insert(&s->due, &p->due);
    p->in_heap = true;
    arm(hub_of(p));
}

void vow__named_permit_unschedule(struct vow__named_permit *p)
{
    struct vow__named_permits *s = hub_of(p)->permits;
    if (!p->in_heap)
        return;
    vow__heap_remove(&s->due, &p->due);
    s->strong -= p->strong;
    p->strong = false;
    p->in_heap = false;
    arm(hub_of(p));
}

/* What is held in a store that nobody else can reach does not keep the loop
 * running; who waits does. */
static void arm(struct vow__named_hub *h)
{
    struct vow__named_permits *s = h->permits;
    bool local =
        h->store != NULL && (h->store->ops->flags & VOW_STORE_LOCAL) != 0;
    bool weakly = local && s->strong == 0;
    if (s->looking)
        return;
    if (s->due == NULL) {
        (void)vow_call_stop(&s->look);
        s->look_ns = UINT64_MAX;
        return;
    }
    if (s->due->key >= s->look_ns && weakly == s->look_weakly)
        return;
    uint64_t now = vow__named_hub_now_ns(h);
    s->look_ns = s->due->key;
    s->look_weakly = weakly;
    uint64_t left = s->look_ns > now ? s->look_ns - now : 0;
    uint64_t due = vow_loop_now_ns(h->loop) + left;
    if (weakly)
        vow_call_weakly_at(&s->look, h->loop, due, look, h);
    else
        vow_call_at(&s->look, h->loop, due, look, h);
}

uint64_t vow__named_permit_again_ns(const struct vow__named_permit *p,
                                    const vow_pool_permit *at)
{
    uint64_t now = vow__named_hub_now_ns(hub_of(p));
    uint64_t us = at->again_us == 0 ? AGAIN_US : at->again_us;
    if (us > (UINT64_MAX - now) / NS_PER_US)
        return UINT64_MAX;
    return now + us * NS_PER_US;
}
