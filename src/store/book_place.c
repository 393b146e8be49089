/* SPDX-License-Identifier: MIT */
/* book_place.c - places in a pool: so much at once, and so much in any window.
 *
 * WHY   Limits that many processes share must hold whatever one of them does:
 *       die with a place, die in the queue, or not come for what it was given.
 * HOW   One queue per pool, and only its head may be granted, so that a heavy
 *       weight is never overtaken. Each step on a pool first throws out those
 *       whose lease is over and then grants as many heads as fit. Who gets a
 *       place by the step of another has a letter, and VOW__ACCEPT_US to come
 *       for it. Nothing happens by time alone: each who waits is told when it
 *       is worth asking again, and the head is told if that becomes sooner.
 * INVARIANTS
 *   P1  held is the weight of all that hold, and not above the limit unless
 *       that was lowered
 *   P2  if the head could be granted, the step that made it so granted it
 *   P3  a head that only the rate holds back knows since when it does not
 */
#include "store/book_internal.h"

static bool possible(const struct vow__lot *lot, uint32_t weight);
static int ask_anew(const struct vow__step *s, struct vow__lot *lot,
                    const vow_permit_request *ask, vow_pool_permit *out);
static struct vow__spot *spot_find(struct vow__book *b, struct vow__lot *lot,
                                   const vow_token *token);
static struct vow__spot *spot_new(const struct vow__step *s,
                                  struct vow__lot *lot,
                                  const vow_permit_request *ask);
static void spot_lease(struct vow__book *b, struct vow__spot *p, uint64_t us);
static struct vow__spot *head_of(const struct vow__lot *lot);
static bool rate_blocks(struct vow__book *b, struct vow__lot *lot,
                        struct vow__spot *head, const struct vow__spot *me);
static void let_in(struct vow__book *b, struct vow__lot *lot,
                   struct vow__spot *p);
static void spot_start(struct vow__book *b, struct vow__spot *p);
static void leave_queue(struct vow__lot *lot, struct vow__spot *p);
static void count_anew(struct vow__lot *lot);
static void fill(struct vow__book *b, struct vow__spot *p,
                 vow_pool_permit *out);
static uint64_t again_us(const struct vow__book *b, const struct vow__lot *lot,
                         const struct vow__spot *p);

/* ---- places ------------------------------------------------------------- */

int vow__book_acquire(const struct vow__step *s, const vow_permit_request *ask,
                      vow_pool_permit *out)
{
    struct vow__book *b = s->book;
    if (ask->weight == 0)
        return VOW_EINVAL;
    vow__book_begin(b, s->now_us);
    struct vow__lot *lot = vow__lot_for(b, ask);
    if (lot == NULL)
        return VOW_ENOMEM;
    vow__lot_reap(b, lot);
    struct vow__spot *p = spot_find(b, lot, &ask->token);
    int rc = 0;
    if (p == NULL) {
        rc = ask_anew(s, lot, ask, out);
    } else {
        vow__letter_drop(p->inst, &p->letter);
        spot_lease(b, p, vow__us_of_ms(ask->lease_ms));
        (void)vow__lot_grant(b, lot, p); /* if not, it waits on */
        fill(b, p, out);
        if (p->state == VOW__SPOT_OUT) {
            vow__spot_free(b, p);
            rc = VOW_EINVAL;
        }
    }
    vow__lot_rest(b, lot);
    return rc;
}

/* It has no place here, and does not queue. */
static int ask_anew(const struct vow__step *s, struct vow__lot *lot,
                    const vow_permit_request *ask, vow_pool_permit *out)
{
    struct vow__book *b = s->book;
    bool only_try = (ask->flags & VOW_PERMIT_TRY) != 0;
    (void)vow__lot_grant(b, lot, NULL); /* keeps P2: some may have gone */
    if (!possible(lot, ask->weight))
        return VOW_EINVAL;
    *out = (vow_pool_permit){.status = VOW_STATUS_BUSY,
                             .limits = lot->law->limits};
    if (only_try && lot->queue != NULL)
        return 0;
    struct vow__spot *p = spot_new(s, lot, ask);
    if (p == NULL)
        return VOW_ENOMEM;
    int rc = vow__lot_grant(b, lot, p);
    bool held = p->state == VOW__SPOT_HELD;
    if (!held && (rc < 0 || only_try))
        vow__spot_free(b, p);
    else
        fill(b, p, out);
    return held ? 0 : rc;
}

void vow__book_release(const struct vow__step *s, const vow_permit_hold *hold,
                       vow_pool_permit *out)
{
    struct vow__book *b = s->book;
    *out = (vow_pool_permit){.status = VOW_STATUS_NONE};
    vow__book_begin(b, s->now_us);
    struct vow__lot *lot = vow__lot_find(b, &hold->pool);
    if (lot == NULL)
        return;
    vow__lot_reap(b, lot);
    struct vow__spot *p = spot_find(b, lot, &hold->token);
    if (p != NULL) {
        out->status =
            p->state == VOW__SPOT_HELD ? VOW_STATUS_OWNED : VOW_STATUS_WAITING;
        out->fence = p->fence;
        vow__spot_free(b, p);
    }
    out->limits = lot->law->limits;
    (void)vow__lot_grant(b, lot, NULL);
    vow__lot_rest(b, lot);
}

void vow__book_renew(const struct vow__step *s, const vow_permit_hold *holds,
                     size_t n, uint64_t lease_ms, vow_pool_permit *out)
{
    struct vow__book *b = s->book;
    vow__book_begin(b, s->now_us);
    for (size_t i = 0; i < n; i++) {
        struct vow__lot *lot = vow__lot_find(b, &holds[i].pool);
        out[i] = (vow_pool_permit){.status = VOW_STATUS_NONE};
        if (lot == NULL)
            continue;
        vow__lot_reap(b, lot);
        struct vow__spot *p = spot_find(b, lot, &holds[i].token);
        if (p != NULL)
            spot_lease(b, p, vow__us_of_ms(lease_ms));
        if (p != NULL && holds[i].started)
            spot_start(b, p);
        (void)vow__lot_grant(b, lot, NULL);
        if (p != NULL && p->state != VOW__SPOT_OUT)
            fill(b, p, &out[i]);
        vow__lot_rest(b, lot);
    }
}

/* ---- granting ----------------------------------------------------------- */

/* As many heads as fit (keeps P2). `me` is who asks: the others have letters.
 * VOW_ENOMEM: the head could not be granted. */
int vow__lot_grant(struct vow__book *b, struct vow__lot *lot,
                   const struct vow__spot *me)
{
    const vow_pool_limits *limits = &lot->law->limits;
    struct vow__spot *p;
    while ((p = head_of(lot)) != NULL) {
        if (!possible(lot, p->weight)) {
            leave_queue(lot, p);
            p->state = VOW__SPOT_OUT;
        } else if (limits->concurrent > 0 &&
                   lot->held + p->weight > limits->concurrent) {
            return 0;
        } else if (limits->rate > 0 && rate_blocks(b, lot, p, me)) {
            return 0;
        } else if (limits->rate > 0 &&
                   vow__ledger_reserve(&lot->ledger, &b->alloc) < 0) {
            if (p != me) /* it asks again, and perhaps there is memory */
                vow__letter_post(p->inst, &p->letter, VOW__NEWS_PLACE);
            return VOW_ENOMEM;
        } else {
            let_in(b, lot, p);
            if (p != me)
                spot_lease(b, p, VOW__ACCEPT_US);
        }
        if (p != me)
            vow__letter_post(p->inst, &p->letter, VOW__NEWS_PLACE);
    }
    return 0;
}

/* A head that could ask sooner than it was told hears of it (keeps P3). */
static bool rate_blocks(struct vow__book *b, struct vow__lot *lot,
                        struct vow__spot *head, const struct vow__spot *me)
{
    const vow_pool_limits *limits = &lot->law->limits;
    vow__ledger_expire(&lot->ledger, limits->window_us, b->now_us);
    uint64_t when =
        vow__ledger_when(&lot->ledger, limits, 0, head->weight, b->now_us);
    if (when <= b->now_us)
        return false;
    if (head != me && when < head->again_us) {
        head->again_us = when;
        vow__letter_post(head->inst, &head->letter, VOW__NEWS_PLACE);
    }
    return true;
}

static void let_in(struct vow__book *b, struct vow__lot *lot,
                   struct vow__spot *p)
{
    leave_queue(lot, p);
    p->state = VOW__SPOT_HELD;
    p->fence = ++b->counter;
    lot->held += p->weight; /* keeps P1 */
    lot->holders++;
    p->open = lot->law->limits.rate > 0;
    if (p->open)
        vow__ledger_grant(&lot->ledger, p->weight);
}

/* It has started by now. */
static void spot_start(struct vow__book *b, struct vow__spot *p)
{
    struct vow__lot *lot = p->key.lot;
    const vow_pool_limits *limits = &lot->law->limits;
    if (!p->open)
        return;
    vow__ledger_expire(&lot->ledger, limits->window_us, b->now_us);
    vow__ledger_start(&lot->ledger, limits, p->weight, b->now_us);
    p->open = false;
}

/* Will it ever fit? */
static bool possible(const struct vow__lot *lot, uint32_t weight)
{
    const vow_pool_limits *l = &lot->law->limits;
    return (l->concurrent == 0 || weight <= l->concurrent) &&
           (l->rate == 0 || weight <= l->rate);
}

/* ---- the queue ---------------------------------------------------------- */

static struct vow__spot *head_of(const struct vow__lot *lot)
{
    return lot->queue == NULL
               ? NULL
               : VOW__OUTER(lot->queue, struct vow__spot, in_queue);
}

static struct vow__spot *spot_find(struct vow__book *b, struct vow__lot *lot,
                                   const vow_token *token)
{
    struct vow__spot key;
    key.key.token = *token;
    key.key.lot = lot;
    struct vow__table_node *n =
        vow__table_find(&b->spots, (const char *)&key.key, sizeof(key.key));
    if (n == NULL)
        return NULL;
    struct vow__spot *p = VOW__OUTER(n, struct vow__spot, named);
    if (p->state != VOW__SPOT_OUT && p->by_end.key > b->now_us)
        return p;
    vow__spot_free(b, p);
    return NULL;
}

/* At the end of the queue. */
static struct vow__spot *spot_new(const struct vow__step *s,
                                  struct vow__lot *lot,
                                  const vow_permit_request *ask)
{
    struct vow__book *b = s->book;
    struct vow__slab *slab;
    struct vow__spot *p = vow__slab_take(&b->spot_memory, &slab);
    if (p == NULL)
        return NULL;
    *p = (struct vow__spot){.slab = slab,
                            .inst = s->inst,
                            .weight = ask->weight,
                            .before = lot->came,
                            .before_weight = lot->came_weight};
    p->key.token = ask->token;
    p->key.lot = lot;
    p->named.name = (const char *)&p->key;
    p->named.length = sizeof(p->key);
    if (vow__table_add(&b->spots, &p->named) < 0) {
        vow__slab_give(slab, p);
        return NULL;
    }
    p->by_end.seq = ++b->seq;
    p->by_end.key = vow__us_plus(b->now_us, vow__us_of_ms(ask->lease_ms));
    vow__heap_insert(&lot->ends, &p->by_end);
    vow__list_push(&s->inst->places, &p->in_inst);
    vow__list_push(&lot->queue, &p->in_queue);
    lot->waiting++;
    lot->came++;
    lot->came_weight += p->weight;
    return p;
}

void vow__spot_free(struct vow__book *b, struct vow__spot *p)
{
    struct vow__lot *lot = p->key.lot;
    if (p->state == VOW__SPOT_QUEUED) {
        leave_queue(lot, p);
    } else if (p->state == VOW__SPOT_HELD) {
        lot->held -= p->weight; /* keeps P1 */
        lot->holders--;
        spot_start(b, p);
    }
    vow__letter_drop(p->inst, &p->letter);
    vow__heap_remove(&lot->ends, &p->by_end);
    vow__list_remove(&p->inst->places, &p->in_inst);
    vow__table_remove(&b->spots, &p->named);
    vow__slab_give(p->slab, p);
}

static void spot_lease(struct vow__book *b, struct vow__spot *p, uint64_t us)
{
    struct vow__lot *lot = p->key.lot;
    vow__heap_remove(&lot->ends, &p->by_end);
    p->by_end.key = vow__us_plus(b->now_us, us);
    vow__heap_insert(&lot->ends, &p->by_end);
}

static void leave_queue(struct vow__lot *lot, struct vow__spot *p)
{
    if (lot->queue == &p->in_queue) {
        lot->went++;
        lot->went_weight += p->weight;
    } else {
        lot->recount = true;
    }
    vow__list_remove(&lot->queue, &p->in_queue);
    lot->waiting--;
}

/* The places in the queue, after some left from the middle. */
static void count_anew(struct vow__lot *lot)
{
    lot->came = lot->went;
    lot->came_weight = lot->went_weight;
    for (vow_link *l = lot->queue; l != NULL; l = l->next) {
        struct vow__spot *p = VOW__OUTER(l, struct vow__spot, in_queue);
        p->before = lot->came++;
        p->before_weight = lot->came_weight;
        lot->came_weight += p->weight;
    }
    lot->recount = false;
}

static void fill(struct vow__book *b, struct vow__spot *p, vow_pool_permit *out)
{
    struct vow__lot *lot = p->key.lot;
    *out = (vow_pool_permit){.status = VOW_STATUS_OWNED,
                             .fence = p->fence,
                             .limits = lot->law->limits};
    if (p->state != VOW__SPOT_QUEUED)
        return;
    if (lot->recount)
        count_anew(lot);
    if (lot->law->limits.rate > 0)
        vow__ledger_expire(&lot->ledger, lot->law->limits.window_us, b->now_us);
    out->status = VOW_STATUS_WAITING;
    out->ahead = p->before - lot->went;
    out->again_us = again_us(b, lot, p);
    p->again_us = vow__us_plus(b->now_us, out->again_us);
}

/* By the rate, if that holds it back: it is counted as if all before it came
 * at once, so it is never too late, and if it says now it will not hold it back
 * later. Else a lease must end, and wake-ups come. */
static uint64_t again_us(const struct vow__book *b, const struct vow__lot *lot,
                         const struct vow__spot *p)
{
    const vow_pool_limits *limits = &lot->law->limits;
    if (limits->rate > 0) {
        uint64_t when = vow__ledger_when(&lot->ledger, limits,
                                         p->before_weight - lot->went_weight,
                                         p->weight, b->now_us);
        if (when > b->now_us)
            return when - b->now_us;
    }
    uint64_t left = lot->ends->key > b->now_us ? lot->ends->key - b->now_us : 0;
    if (lot->ends == &p->by_end) /* its own; before it is over */
        left /= 2;
    return left + 1;
}

void vow__spots_leave(struct vow__book *b, struct vow__inst *inst)
{
    while (inst->places != NULL) {
        struct vow__spot *p =
            VOW__OUTER(inst->places, struct vow__spot, in_inst);
        struct vow__lot *lot = p->key.lot;
        vow__spot_free(b, p);
        vow__lot_reap(b, lot);
        (void)vow__lot_grant(b, lot, NULL);
        vow__lot_rest(b, lot);
    }
}
