/* SPDX-License-Identifier: MIT */
/* sim_places.c - what vow/store.h promises of places.
 *
 * HOW   After every step the places of the book are compared with those after
 *       the step before. One that is new goes to the end of the queue; one that
 *       holds and did not was granted now. Then:
 *         the weight that is held is within the limit,
 *         nobody who came earlier is in the queue when another is granted,
 *         fences rise with every grant,
 *         no window holds more grants than the rate allows,
 *         a place goes only when its lease is over, it was given back, or its
 *         process has left.
 */
#include "sim.h"

#include <string.h>

#define SAME(a, b) (memcmp((a), (b), sizeof(*(a))) == 0)

static struct sim_place *find(struct sim *s,
                              const struct vow__memory_pool *pool,
                              const vow_token *token);
static void look_at(struct sim *s, const struct vow__memory_permit *p,
                    const vow_token *by);
static void granted(struct sim *s, struct sim_place *x);
static void check_window(struct sim *s, const struct sim_place *x);
static void check_order(struct sim *s);
static void check_sum(struct sim *s);
static void forget_gone(struct sim *s, const vow_token *by);

void sim_saw_places(struct sim *s, const vow_token *by)
{
    struct vow__table_node *at = NULL;
    if (s->closing)
        return;
    for (uint32_t i = 0; i < s->n_places; i++)
        s->places[i].seen = false;
    while ((at = vow__table_next(&s->book->pools.permits, at)) != NULL)
        look_at(s, VOW__OUTER(at, struct vow__memory_permit, node), by);
    forget_gone(s, by);
    check_sum(s);
    check_order(s);
}

static struct sim_place *
find(struct sim *s, const struct vow__memory_pool *pool, const vow_token *token)
{
    for (uint32_t i = 0; i < s->n_places; i++)
        if (s->places[i].pool == pool && SAME(&s->places[i].token, token))
            return &s->places[i];
    return NULL;
}

static void look_at(struct sim *s, const struct vow__memory_permit *p,
                    const vow_token *by)
{
    struct sim_place *x = find(s, p->key.pool, &p->key.token);
    if (x == NULL) {
        SIM_CHECK(s, s->n_places < SIM_PLACES);
        x = &s->places[s->n_places++];
        *x = (struct sim_place){.token = p->key.token,
                                .pool = p->key.pool,
                                .law = p->key.pool->law,
                                .arrival = ++s->arrivals,
                                .weight = p->rule.weight};
    }
    bool new = p->rule.held && p->rule.fence != x->fence;
    bool over = x->end_us != 0 && x->end_us <= sim_now_us(s);
    if (over && new && (by == NULL || !SAME(&x->token, by)))
        sim_fail(TEST_HERE, s, "place %02x is granted, and its lease was over",
                 x->token.bytes[0]);
    if (over && p->rule.end_us > x->end_us)
        x->arrival = ++s->arrivals; /* it came again */
    x->seen = true;
    x->held = p->rule.held;
    x->end_us = p->rule.end_us;
    x->fence = p->rule.fence;
    if (new)
        granted(s, x);
}

static void granted(struct sim *s, struct sim_place *x)
{
    if (s->n_grants == SIM_GRANTS) { /* the older half is of no interest */
        s->n_grants /= 2;
        memmove(s->grants, s->grants + s->n_grants,
                s->n_grants * sizeof(s->grants[0]));
    }
    s->grants[s->n_grants++] = (struct sim_grant){
        .pool = x->pool, .us = sim_now_us(s), .weight = x->weight};
    SIM_CHECK(s, x->fence > 0);
    sim_say(s, NULL, "place %02x is granted, fence %llu", x->token.bytes[0],
            (unsigned long long)x->fence);
    check_window(s, x);
    if (s->on_grant != NULL)
        s->on_grant(s);
}

/* All grants of the last window, both ends included. */
static void check_window(struct sim *s, const struct sim_place *x)
{
    const vow_pool_limits *l = &x->law->rule.limits;
    uint64_t now = sim_now_us(s);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->n_grants; i++)
        if (s->grants[i].pool == x->pool &&
            s->grants[i].us + l->window_us >= now)
            sum += s->grants[i].weight;
    if (l->rate > 0 && sum > l->rate)
        sim_fail(TEST_HERE, s, "%llu granted within %llu us, at most %u",
                 (unsigned long long)sum, (unsigned long long)l->window_us,
                 l->rate);
}

static void check_sum(struct sim *s)
{
    for (uint32_t i = 0; i < s->n_places; i++) {
        const struct sim_place *x = &s->places[i];
        uint32_t most = x->law->rule.limits.concurrent;
        uint64_t sum = 0;
        for (uint32_t k = 0; k < s->n_places; k++)
            if (s->places[k].pool == x->pool && s->places[k].held)
                sum += s->places[k].weight;
        if (most > 0 && sum > most)
            sim_fail(TEST_HERE, s, "%llu held, at most %u",
                     (unsigned long long)sum, most);
    }
}

/* Who came later has a larger fence; and none, while one before it queues.
 * Those granted since the last look have fences above all before. */
static void check_order(struct sim *s)
{
    uint64_t fence_max = s->fence_max;
    for (uint32_t i = 0; i < s->n_places; i++) {
        const struct sim_place *x = &s->places[i];
        if (!x->held || x->fence <= s->fence_max)
            continue;
        fence_max = x->fence > fence_max ? x->fence : fence_max;
        for (uint32_t k = 0; k < s->n_places; k++) {
            const struct sim_place *y = &s->places[k];
            bool before = y->pool == x->pool && y->arrival < x->arrival;
            if (before && (!y->held || y->fence > x->fence))
                sim_fail(TEST_HERE, s, "place %02x was granted before %02x",
                         x->token.bytes[0], y->token.bytes[0]);
        }
    }
    s->fence_max = fence_max;
}

static bool is_possible(const struct sim_place *x)
{
    const vow_pool_limits *l = &x->law->rule.limits;
    return (l->concurrent == 0 || x->weight <= l->concurrent) &&
           (l->rate == 0 || x->weight <= l->rate);
}

static void forget_gone(struct sim *s, const vow_token *by)
{
    for (uint32_t i = 0; i < s->n_places;) {
        struct sim_place *x = &s->places[i];
        if (x->seen) {
            i++;
            continue;
        }
        bool right = x->end_us <= sim_now_us(s) || !is_possible(x) ||
                     (by != NULL && SAME(&x->token, by));
        for (uint32_t k = 0; k < s->n_nodes && !right; k++)
            right = s->nodes[k].inst == NULL; /* it may have been its */
        if (!right)
            sim_fail(TEST_HERE, s, "place %02x is gone before its time",
                     x->token.bytes[0]);
        *x = s->places[--s->n_places];
    }
}

void sim_saw_place(struct sim_node *n, const vow_token *token,
                   const vow_pool_permit *p)
{
    struct sim *s = n->sim;
    const struct sim_place *x = NULL;
    for (uint32_t i = 0; i < s->n_places; i++)
        if (SAME(&s->places[i].token, token))
            x = &s->places[i];
    bool none = p->status == VOW_STATUS_NONE || p->status == VOW_STATUS_BUSY;
    SIM_CHECK(s, none == (x == NULL));
    if (x == NULL)
        return;
    SIM_CHECK(s, (p->status == VOW_STATUS_OWNED) == x->held);
    SIM_CHECK(s, p->status != VOW_STATUS_OWNED || p->fence == x->fence);
}
