/* SPDX-License-Identifier: MIT */
/* places_test.c - places in pools on bare store steps, under all that can go
 * wrong.
 *
 * A user acquires a place; asks again when it is woken or told to; holds it for
 * a while, renewing it; gives it back, repeating what it is not sure of. One
 * that finds its place lost asks for another. The simulation looks at the
 * limits and at the order (sim_places.c); here, that everybody who lives gets a
 * place in the end, and that nothing is held when all have gone.
 */
#include "sim_plan.h"

#include <string.h>

enum { LEASE_MS = 1000, USERS = 20, POOLS = 2 };

struct places;

struct user {
    struct sim_event comes;
    struct places *places;
    struct sim_node *node;
    uint32_t pool;
    uint32_t weight;
    vow_token token;
    vow_call timer, renew, end;
    bool begun, only_tries, asking, has, going, served;
    bool renewing;
};

struct places {
    struct sim_plan plan;
    struct sim sim;
    vow_name names[POOLS];
    vow_name law; /* whose limits the second has */
    vow_pool_limits limits;
    struct user users[USERS];
    uint32_t n_users;
    uint64_t tokens;
};

static void acquire(void *user);
static void on_acquired(int code, const vow_pool_permit *p, size_t n,
                        void *user);
static void renew(void *user);
static void on_renewed(int code, const vow_pool_permit *p, size_t n,
                       void *user);
static void release(void *user);
static void on_released(int code, const vow_pool_permit *p, size_t n,
                        void *user);

static void at_ms(struct user *u, vow_call *call, uint64_t ms, vow_call_fn fn)
{
    vow_call_at(call, u->node->loop, vow_loop_due_ns(u->node->loop, ms), fn, u);
}

static void new_token(struct user *u)
{
    uint64_t number = ++u->places->tokens * UINT64_C(0x9E3779B97F4A7C15);
    memset(&u->token, 0, sizeof(u->token));
    memcpy(u->token.bytes, &number, sizeof(number));
}

/* ---- a user ------------------------------------------------------------- */

static void acquire(void *user)
{
    struct user *u = user;
    const struct places *p = u->places;
    if (u->asking || u->has || u->served)
        return;
    vow_permit_request ask = {.pool = p->names[u->pool],
                              .limits_of = u->pool == 0 ? p->names[0] : p->law,
                              .token = u->token,
                              .weight = u->weight,
                              .flags = u->only_tries ? VOW_PERMIT_TRY : 0,
                              .lease_ms = LEASE_MS,
                              .limits = p->limits};
    (void)vow_call_stop(&u->timer);
    u->asking = true;
    u->node->store.ops->acquire(&u->node->store, &ask, on_acquired, u);
}

static void on_acquired(int code, const vow_pool_permit *p, size_t n,
                        void *user)
{
    struct user *u = user;
    vow_loop *loop = u->node->loop;
    (void)n;
    u->asking = false;
    if (code == VOW_ECLOSED)
        return;
    if (code != 0) {
        SIM_CHECK(u->node->sim, code == VOW_EUNSURE || code == VOW_ESTORE);
        at_ms(u, &u->timer, 1 + vow_loop_random(loop) % 100, acquire);
    } else if (p->status == VOW_STATUS_OWNED) {
        u->has = true;
        at_ms(u, &u->renew, LEASE_MS / 3, renew);
        at_ms(u, &u->end, vow_loop_random(loop) % LEASE_MS, release);
    } else if (p->status == VOW_STATUS_BUSY) {
        SIM_CHECK(u->node->sim, u->only_tries);
        u->served = true;
    } else {
        SIM_CHECK(u->node->sim, p->status == VOW_STATUS_WAITING);
        uint64_t ms = p->again_us / 1000 + 1;
        at_ms(u, &u->timer, ms < LEASE_MS / 3 ? ms : LEASE_MS / 3, acquire);
    }
}

static void renew(void *user)
{
    struct user *u = user;
    const vow_permit_hold hold = {.pool = u->places->names[u->pool],
                                  .token = u->token};
    at_ms(u, &u->renew, LEASE_MS / 3, renew);
    if (u->renewing || u->going)
        return;
    u->renewing = true;
    u->node->store.ops->renew(&u->node->store, &hold, 1, LEASE_MS, on_renewed,
                              u);
}

static void on_renewed(int code, const vow_pool_permit *p, size_t n, void *user)
{
    struct user *u = user;
    (void)n;
    u->renewing = false;
    if (code != 0 || !u->has || u->going || p->status == VOW_STATUS_OWNED)
        return;
    sim_say(u->node->sim, u->node, "has lost its place %02x",
            u->token.bytes[0]);
    u->has = false;
    (void)vow_call_stop(&u->renew);
    (void)vow_call_stop(&u->end);
    new_token(u);
    acquire(u);
}

static void release(void *user)
{
    struct user *u = user;
    const vow_permit_hold hold = {.pool = u->places->names[u->pool],
                                  .token = u->token};
    u->going = true;
    (void)vow_call_stop(&u->renew);
    u->node->store.ops->release(&u->node->store, &hold, on_released, u);
}

static void on_released(int code, const vow_pool_permit *p, size_t n,
                        void *user)
{
    struct user *u = user;
    (void)p;
    (void)n;
    if (code == VOW_ECLOSED)
        return;
    if (code != 0) {
        at_ms(u, &u->end, 50, release);
        return;
    }
    u->has = false;
    u->served = true;
}

/* ---- events ------------------------------------------------------------- */

static void on_permit(const vow_token *token, void *node)
{
    struct sim_node *n = node;
    struct places *p = VOW__OUTER(n->sim, struct places, sim);
    for (uint32_t i = 0; i < p->n_users; i++) {
        struct user *u = &p->users[i];
        if (u->node == n && memcmp(&u->token, token, sizeof(u->token)) == 0)
            acquire(u);
    }
}

static void begin(struct sim *s)
{
    struct sim_node *n = sim_node_new(s);
    const vow_store_events events = {.on_permit = on_permit, .user = n};
    n->instant = sim_draw(s, 8) == 0;
    n->store.ops->listen(&n->store, &events);
}

static void come(struct sim *s, struct sim_event *e)
{
    struct user *u = VOW__OUTER(e, struct user, comes);
    struct sim_node *n = &s->nodes[sim_draw(s, s->n_nodes)];
    const vow_pool_limits *l = &u->places->limits;
    uint32_t most = l->concurrent;
    if (most == 0 || (l->rate > 0 && l->rate < most))
        most = l->rate;
    if (!sim_up(n))
        return;
    u->node = n;
    u->begun = true;
    u->pool = (uint32_t)sim_draw(s, POOLS);
    u->weight = 1 + (uint32_t)sim_draw(s, most);
    u->only_tries = sim_draw(s, 8) == 0;
    new_token(u);
    sim_node_clock(n);
    acquire(u);
    sim_node_run(n);
}

/* ---- a schedule --------------------------------------------------------- */

static void check_all(struct places *p)
{
    struct sim *s = &p->sim;
    struct vow__table_node *at = NULL;
    for (uint32_t i = 0; i < p->n_users; i++) {
        const struct user *u = &p->users[i];
        if (u->begun && !u->node->dead && !u->served)
            sim_fail(TEST_HERE, s, "p%u, user %u never got its place %02x",
                     u->node->number, i, u->token.bytes[0]);
    }
    while ((at = vow__table_next(&s->book->pools.by_name, at)) != NULL) {
        const struct vow__memory_pool *pool =
            VOW__OUTER(at, struct vow__memory_pool, node);
        for (uint32_t i = 0; i < s->n_places; i++)
            SIM_CHECK(s, s->places[i].pool != pool ||
                             s->places[i].end_us <= sim_now_us(s));
    }
}

static void schedule(uint64_t seed)
{
    static struct places all;
    struct places *p = &all;
    struct sim *s = &p->sim;
    memset(p, 0, sizeof(*p));
    sim_open(s, seed);
    p->names[0] = vow_name_of("pool");
    p->names[1] = vow_name_of("key");
    p->law = vow_name_of("keys");
    p->limits.concurrent = (uint32_t)sim_draw(s, 5);
    if (p->limits.concurrent == 0 || sim_draw(s, 2) == 0) {
        p->limits.rate = (uint32_t)sim_between(s, 1, 6);
        p->limits.window_us = sim_between(s, 1, 2000) * 1000;
    }
    sim_plan_make(&p->plan, s, PLAN_ALL | PLAN_STRAGGLE, LEASE_MS);
    p->plan.restart = begin;
    for (uint64_t n = sim_between(s, 2, 4); n > 0; n--)
        begin(s);
    p->n_users = (uint32_t)sim_between(s, 2, USERS);
    for (uint32_t i = 0; i < p->n_users; i++) {
        p->users[i].places = p;
        sim_at(s, &p->users[i].comes,
               s->now_ns + sim_draw(s, p->plan.healed_ns - s->now_ns), come);
    }
    sim_run(s, p->plan.healed_ns);
    sim_run(s, s->now_ns + 200 * (uint64_t)LEASE_MS * SIM_MS);
    check_all(p);
    sim_close(s);
}

TEST(sim_places, are_within_their_limits_and_given_in_order)
{
    sim_many(3000, schedule);
}
