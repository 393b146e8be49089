/* SPDX-License-Identifier: MIT */
/* pool.c - the protocol of pools: acquire, release, renew, limits.
 *
 * HOW   A rule is the four parts in pool.h. Only the head of the wait queue is
 *       granted, so a heavy request is never overtaken, and nothing is kept per
 *       waiter: the head is told when the head may have changed.
 * INVARIANTS  P1 to P5 in pool.h
 * THREADS  any.
 */
#include "store/rules/pool.h"
#include "base/assert.h"
#include "vow/error.h"

#include <string.h>

/* A rule under way. */
struct pool_step {
    struct rules_pool *p;
    const struct rules_storage *s;
    struct rules_now now;
    const vow_token *caller; /* token of the permit that is not told; or NULL */
    uint64_t left; /* smallest order that left the queue; UINT64_MAX: none */
};

static bool permit_is_callers(const struct pool_step *x,
                              const struct rules_permit *t);
static int ended_remove(struct pool_step *x);
static int permit_find(struct pool_step *x, const vow_token *token,
                       struct rules_permit *ret, bool *ret_there);
static int permit_remove(struct pool_step *x, struct rules_permit *t);
static void permit_start(struct pool_step *x, struct rules_permit *t);
static void queue_left(struct pool_step *x, const struct rules_permit *t);
static int heads_grant(struct pool_step *x);
static int queue_grant(struct pool_step *x);
static int head_try(struct pool_step *x, struct rules_permit *head,
                    bool *ret_blocked);
static int permit_grant(struct pool_step *x, struct rules_permit *t);
static int permit_request(struct pool_step *x, const vow_permit_request *q,
                          struct rules_permit *ret, bool *ret_there);
static int permit_again(struct pool_step *x, struct rules_permit *t,
                        uint64_t lease_ms, bool *ret_there);
static int permit_answer(struct pool_step *x, const struct rules_permit *t,
                         vow_pool_permit *ret);
static int again_after(const struct pool_step *x, const struct rules_permit *t,
                       uint64_t before, uint64_t *ret_us);

/* ---- one step ----------------------------------------------------------- */

static struct pool_step pool_step_begin(struct rules_pool *p,
                                        const struct rules_storage *s,
                                        struct rules_now now)
{
#ifndef NDEBUG
    vow__rules_pool_check(p);
#endif
    return (struct pool_step){.p = p, .s = s, .now = now, .left = UINT64_MAX};
}

static int pool_step_end(struct pool_step *x, int rc)
{
#ifndef NDEBUG
    vow__rules_pool_check(x->p);
#else
    (void)x;
#endif
    return rc;
}

void vow__rules_pool_check(const struct rules_pool *p)
{
    const struct rules_rate *l = &p->rate;
    VOW__ASSERT(p->held >= p->holders); /* P1: each weight is at least 1 */
    VOW__ASSERT((p->held == 0) == (p->holders == 0));
    VOW__ASSERT(p->open <= p->held);
    VOW__ASSERT(l->room <= RULES_RATE_ENTRIES); /* P2 */
    VOW__ASSERT(l->n <= l->room);
    for (uint32_t i = 0; i < l->n; i++) {
        VOW__ASSERT(l->starts[i].weight > 0);
        VOW__ASSERT(i == 0 || l->starts[i - 1].at_us <= l->starts[i].at_us);
    }
    VOW__ASSERT(l->n == 0 || l->began_us <= l->starts[l->n - 1].at_us);
}

enum rules_rank vow__rules_rank(const struct rules_pool *p, uint64_t before,
                                uint32_t weight, bool marked, uint64_t now_us)
{
    const vow_pool_limits *l = &p->limits;
    if (marked)
        return RULES_RANK_HELD;
    if ((l->concurrent > 0 && weight > l->concurrent) ||
        (l->rate > 0 && weight > l->rate))
        return RULES_RANK_NEVER;
    if (l->concurrent > 0 && p->held + before + weight > l->concurrent)
        return RULES_RANK_WAITING;
    if (l->rate == 0)
        return RULES_RANK_HELD;
    return vow__rules_pool_used(p, now_us) + before + weight > l->rate
               ? RULES_RANK_WAITING
               : RULES_RANK_TURN;
}

uint64_t vow__rules_pool_used(const struct rules_pool *p, uint64_t now_us)
{
    return p->limits.rate == 0
               ? 0
               : vow__rules_rate_used(&p->rate, &p->limits, now_us) + p->open;
}

/* ---- rules -------------------------------------------------------------- */

int vow__rules_acquire(struct rules_pool *p, const struct rules_storage *s,
                       const vow_permit_request *request, struct rules_now now,
                       vow_pool_permit *ret)
{
    struct pool_step x = pool_step_begin(p, s, now);
    struct rules_permit t;
    bool there = false;
    if (request->weight == 0 || request->lease_ms == 0)
        return VOW_EINVAL;
    int rc = ended_remove(&x);
    if (rc == 0)
        rc = permit_find(&x, &request->token, &t, &there);
    if (rc == 0 && there)
        rc = permit_again(&x, &t, request->lease_ms, &there);
    else if (rc == 0)
        rc = permit_request(&x, request, &t, &there);
    if (rc == 0 && there)
        rc = permit_answer(&x, &t, ret);
    else if (rc == 0)
        *ret =
            (vow_pool_permit){.status = VOW_STATUS_BUSY, .limits = p->limits};
    return pool_step_end(&x, rc);
}

int vow__rules_release(struct rules_pool *p, const struct rules_storage *s,
                       const vow_token *token, struct rules_now now,
                       vow_pool_permit *ret)
{
    struct pool_step x = pool_step_begin(p, s, now);
    struct rules_permit t;
    bool there = false;
    *ret = (vow_pool_permit){.status = VOW_STATUS_NONE, .limits = p->limits};
    int rc = ended_remove(&x);
    if (rc == 0)
        rc = permit_find(&x, token, &t, &there);
    if (rc == 0 && there)
        rc = permit_remove(&x, &t);
    if (rc == 0 && there) {
        ret->status = t.held ? VOW_STATUS_OWNED : VOW_STATUS_WAITING;
        ret->fence = t.fence;
    }
    if (rc == 0)
        rc = heads_grant(&x);
    return pool_step_end(&x, rc);
}

int vow__rules_renew(struct rules_pool *p, const struct rules_storage *s,
                     const vow_permit_hold *hold, uint64_t lease_ms,
                     struct rules_now now, vow_pool_permit *ret)
{
    struct pool_step x = pool_step_begin(p, s, now);
    struct rules_permit t;
    bool there = false;
    if (lease_ms == 0)
        return VOW_EINVAL;
    int rc = ended_remove(&x);
    if (rc == 0)
        rc = permit_find(&x, &hold->token, &t, &there);
    if (rc == 0 && there && hold->started)
        permit_start(&x, &t);
    if (rc == 0 && there)
        rc = permit_again(&x, &t, lease_ms, &there);
    else if (rc == 0)
        rc = heads_grant(&x);
    if (rc == VOW_EINVAL) /* can never fit any more, and has left */
        rc = 0;
    *ret = (vow_pool_permit){.status = VOW_STATUS_NONE, .limits = p->limits};
    if (rc == 0 && there)
        rc = permit_answer(&x, &t, ret);
    return pool_step_end(&x, rc);
}

int vow__rules_limit(struct rules_pool *p, const struct rules_storage *s,
                     const vow_pool_limits *limits, struct rules_now now)
{
    struct pool_step x = pool_step_begin(p, s, now);
    if (limits != NULL) {
        p->limits = *limits;
        x.left = 0; /* whoever is the head is told */
    }
    int rc = ended_remove(&x);
    if (rc == 0)
        rc = heads_grant(&x);
    return pool_step_end(&x, rc);
}

/* ---- permits ------------------------------------------------------------ */

static bool permit_is_callers(const struct pool_step *x,
                              const struct rules_permit *t)
{
    return x->caller != NULL &&
           memcmp(x->caller, &t->token, sizeof(t->token)) == 0;
}

static bool pool_is_empty(const struct rules_pool *p)
{
    return p->holders == 0 && p->waiting == 0;
}

/* Removes expired permits, some of them. */
static int ended_remove(struct pool_step *x)
{
    struct rules_permit t;
    int rc = 0;
    if (pool_is_empty(x->p))
        return 0;
    for (int i = 0; i < RULES_REAP_MAX && rc == 0; i++) {
        rc = x->s->ended(x->s->user, x->now.now_us, &t);
        if (rc == 0)
            rc = permit_remove(x, &t);
    }
    return rc == VOW_ENOENT ? 0 : rc;
}

/* Finds a permit with a valid lease. An expired one is removed. */
static int permit_find(struct pool_step *x, const vow_token *token,
                       struct rules_permit *ret, bool *ret_there)
{
    *ret_there = false;
    if (pool_is_empty(x->p))
        return 0;
    int rc = x->s->find(x->s->user, token, ret);
    *ret_there = rc == 0 && ret->end_us > x->now.now_us;
    if (rc == 0 && !*ret_there)
        rc = permit_remove(x, ret);
    return rc == VOW_ENOENT ? 0 : rc;
}

static int permit_remove(struct pool_step *x, struct rules_permit *t)
{
    int rc = x->s->drop(x->s->user, t);
    if (rc != 0)
        return rc;
    if (!t->held) {
        queue_left(x, t);
        return 0;
    }
    permit_start(x, t);
    x->p->holders--;
    x->p->held -= t->weight; /* keeps P1 */
    return 0;
}

/* Enters the start of the work, if the start was not known. */
static void permit_start(struct pool_step *x, struct rules_permit *t)
{
    if (!t->open)
        return;
    t->open = false;
    x->p->open -= t->weight; /* keeps P1 */
    vow__rules_rate_add(&x->p->rate, &x->p->limits, t->weight, x->now.now_us);
}

static void queue_left(struct pool_step *x, const struct rules_permit *t)
{
    x->p->waiting--;
    if (t->order < x->left)
        x->left = t->order;
}

/* Renews a permit, which keeps its turn. *ret_there false, with VOW_EINVAL: the
 * request can never be granted and has left the queue. */
static int permit_again(struct pool_step *x, struct rules_permit *t,
                        uint64_t lease_ms, bool *ret_there)
{
    uint64_t lease_us =
        lease_ms > RULES_NEVER / 1000 ? RULES_NEVER : lease_ms * 1000;
    t->end_us = vow__rules_after(x->now.now_us, lease_us);
    x->caller = &t->token;
    int rc = x->s->put(x->s->user, t);
    if (rc == 0)
        rc = heads_grant(x);
    if (rc == 0 && !t->held)
        rc = x->s->find(x->s->user, x->caller, t);
    *ret_there = rc == 0;
    return rc == VOW_ENOENT ? VOW_EINVAL : rc;
}

/* A new request is granted at once, or is the last in the queue. */
static int permit_request(struct pool_step *x, const vow_permit_request *q,
                          struct rules_permit *ret, bool *ret_there)
{
    struct rules_pool *p = x->p;
    uint64_t lease_us =
        q->lease_ms > RULES_NEVER / 1000 ? RULES_NEVER : q->lease_ms * 1000;
    int rc = heads_grant(x); /* keeps P4: some may have gone */
    if (rc != 0)
        return rc;
    enum rules_rank rank =
        vow__rules_rank(p, 0, q->weight, false, x->now.now_us);
    bool fits = p->waiting == 0 && rank != RULES_RANK_WAITING;
    if (rank == RULES_RANK_NEVER)
        return VOW_EINVAL;
    if (!fits && (q->flags & VOW_PERMIT_TRY) != 0)
        return 0;
    *ret = (struct rules_permit){.token = q->token,
                                 .order = p->order + 1,
                                 .end_us =
                                     vow__rules_after(x->now.now_us, lease_us),
                                 .weight = q->weight};
    x->caller = &ret->token;
    *ret_there = true;
    p->waiting++;
    rc = fits ? permit_grant(x, ret) : x->s->put(x->s->user, ret);
    if (rc == 0)
        p->order++;
    else
        p->waiting--;
    return rc;
}

/* ---- granting ----------------------------------------------------------- */

/* Grants heads while the heads fit (keeps P4). A new head is told. */
static int heads_grant(struct pool_step *x)
{
    return x->p->waiting == 0 ? 0 : queue_grant(x);
}

static int queue_grant(struct pool_step *x)
{
    struct rules_permit head;
    bool blocked = false;
    int rc = 0;
    while (x->p->waiting > 0 && !blocked && rc == 0) {
        rc = x->s->head(x->s->user, &head);
        if (rc == 0)
            rc = head_try(x, &head, &blocked);
    }
    if (rc == 0 && blocked && x->p->limits.rate > 0 && head.order > x->left &&
        !permit_is_callers(x, &head))
        x->s->tell(x->s->user, &head);
    return rc;
}

/* Grants or removes a head, unless the head must wait. */
static int head_try(struct pool_step *x, struct rules_permit *head,
                    bool *ret_blocked)
{
    if (head->end_us <= x->now.now_us)
        return permit_remove(x, head);
    enum rules_rank rank =
        vow__rules_rank(x->p, 0, head->weight, false, x->now.now_us);
    *ret_blocked = rank == RULES_RANK_WAITING;
    if (*ret_blocked)
        return 0;
    int rc = rank == RULES_RANK_NEVER ? permit_remove(x, head)
                                      : permit_grant(x, head);
    if (rc == 0 && !permit_is_callers(x, head))
        x->s->tell(x->s->user, head);
    return rc;
}

/* Makes a waiting permit a held one (keeps P3 and P5). The caller must have
 * seen that the permit fits. */
static int permit_grant(struct pool_step *x, struct rules_permit *t)
{
    struct rules_pool *p = x->p;
    uint64_t fetch_us = vow__rules_after(x->now.now_us, RULES_ACCEPT_US);
    t->held = true;
    t->open = p->limits.rate > 0;
    t->fence = p->fence + 1 > x->now.number ? p->fence + 1 : x->now.number;
    if (!permit_is_callers(x, t) && t->end_us > fetch_us)
        t->end_us = fetch_us;
    int rc = x->s->put(x->s->user, t);
    if (rc != 0)
        return rc;
    queue_left(x, t);
    p->fence = t->fence;
    p->holders++;
    p->held += t->weight; /* keeps P1 */
    p->open += t->open ? t->weight : 0;
    return 0;
}

/* ---- answers ------------------------------------------------------------ */

static int permit_answer(struct pool_step *x, const struct rules_permit *t,
                         vow_pool_permit *ret)
{
    uint64_t before = 0;
    *ret = (vow_pool_permit){
        .status = VOW_STATUS_OWNED, .fence = t->fence, .limits = x->p->limits};
    if (t->held)
        return 0;
    ret->status = VOW_STATUS_WAITING;
    int rc = x->s->ahead(x->s->user, t, &ret->ahead, &before);
    return rc == 0 ? again_after(x, t, before, &ret->again_us) : rc;
}

/* Tells when to ask again: when the rate has room for all requests ahead and
 * this one, which is never too late; or else when the next lease ends, and
 * half-way before the own lease ends. */
static int again_after(const struct pool_step *x, const struct rules_permit *t,
                       uint64_t before, uint64_t *ret_us)
{
    const struct rules_pool *p = x->p;
    uint64_t now_us = x->now.now_us;
    uint64_t end_us = t->end_us;
    if (p->limits.rate > 0) {
        uint64_t when = vow__rules_rate_when(&p->rate, &p->limits, p->open,
                                             before, t->weight, now_us);
        *ret_us = when - now_us;
        if (when > now_us)
            return 0;
    }
    int rc = x->s->next_end(x->s->user, &end_us);
    uint64_t left = end_us > now_us ? end_us - now_us : 0;
    if (t->end_us <= end_us)
        left = (t->end_us - now_us) / 2;
    *ret_us = vow__rules_after(left, 1);
    return rc;
}
