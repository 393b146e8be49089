/* SPDX-License-Identifier: MIT */
/* cas_pool_rig.h - three processes on a simulated compare-and-set service, for
 * tests of pools, with and without a watch. */
#ifndef TEST_CAS_POOL_RIG_H
#define TEST_CAS_POOL_RIG_H

#include "cas_memory.h"
#include "world.h"

#include <string.h>

enum { LEASE_MS = 3000, TIMEOUT_MS = 2000, MANY = 100, INSTANCES = 3 };

struct scene {
    struct world *world;
    struct cas_world *server;
    struct cas_service *service[INSTANCES];
    vow_store *store[INSTANCES];
    struct heard {
        unsigned permits, doubts;
        vow_token token; /* of the last permit */
    } heard[INSTANCES];
};

struct told {
    unsigned done;
    int code;
    vow_pool_permit permit;
    vow_pool_info info;
    size_t n;
};

static inline void on_permits(int code, const vow_pool_permit *p, size_t n,
                              void *user)
{
    struct told *t = user;
    t->done++;
    t->code = code;
    t->n = n;
    if (n > 0)
        t->permit = p[0];
}

static inline void on_pools(int code, const vow_pool_info *p, size_t n,
                            void *user)
{
    struct told *t = user;
    t->done++;
    t->code = code;
    t->n = n;
    if (n > 0)
        t->info = p[0];
}

static inline void hear_permit(const vow_token *token, void *user)
{
    struct heard *h = user;
    h->permits++;
    h->token = *token;
}

static inline void hear_doubt(void *user)
{
    struct heard *h = user;
    h->doubts++;
}

static inline vow_name pool_number(unsigned number)
{
    vow_name name = {
        .hash = {5, (unsigned char)number, (unsigned char)(number >> 8)}};
    return name;
}

static inline vow_token token_number(unsigned number)
{
    vow_token token = {
        .bytes = {1, (unsigned char)number, (unsigned char)(number >> 8)}};
    return token;
}

#pragma GCC diagnostic ignored "-Woverride-init" /* what is given counts */
/* A request for a pool with one permit, unless said otherwise. */
#define REQUEST(pool_no, token_no, ...)                                        \
    (&(const vow_permit_request){.pool = pool_number(pool_no),                 \
                                 .limits_of = pool_number(pool_no),            \
                                 .token = token_number(token_no),              \
                                 .weight = 1,                                  \
                                 .lease_ms = LEASE_MS,                         \
                                 .limits = {.concurrent = 1},                  \
                                 .label = "label",                             \
                                 __VA_ARGS__})
#define RATED                                                                  \
    {                                                                          \
        .concurrent = 9, .rate = 1, .window_us = 500000                        \
    }

static inline vow_permit_hold hold_number(unsigned pool, unsigned token,
                                          bool started)
{
    return (vow_permit_hold){.pool = pool_number(pool),
                             .limits_of = pool_number(pool),
                             .token = token_number(token),
                             .started = started};
}

static inline int scene_open(struct scene *s, struct world *w,
                             const struct cas_plan *plan)
{
    int rc = 0;
    *s = (struct scene){.world = w};
    s->server = cas_world_new(w->loop, plan);
    for (int i = 0; i < INSTANCES; i++) {
        const struct cas_opts opts = {.timeout_ms = TIMEOUT_MS};
        const vow_store_events events = {.on_permit = hear_permit,
                                         .on_doubt = hear_doubt,
                                         .user = &s->heard[i]};
        s->service[i] = cas_memory_client(s->server);
        int code = vow__cas_open(w->loop, s->service[i], &opts, &s->store[i]);
        if (code == 0)
            s->store[i]->ops->listen(s->store[i], &events);
        else
            s->store[i] = NULL;
        rc = code < 0 ? code : rc;
    }
    return rc;
}

static inline void ignore_close(void *user)
{
    (void)user;
}

static inline void scene_close_one(struct scene *s, int i)
{
    if (s->store[i] != NULL) {
        VOW_AUTO(vow_future)
        closed = s->store[i]->ops->close(s->store[i]);
        s->store[i] = NULL;
        for (int k = 0; k < 600 && vow_state_of(closed) == VOW_PENDING; k++)
            world_advance_ms(s->world, 10);
        CHECK(vow_state_of(closed) == VOW_FULFILLED);
    } else if (s->service[i] != NULL) {
        s->service[i]->ops->close(s->service[i], false, ignore_close, NULL);
        world_advance_ms(s->world, 0);
    }
    s->service[i] = NULL;
}

static inline void scene_close(struct scene *s)
{
    for (int i = 0; i < INSTANCES; i++)
        scene_close_one(s, i);
    cas_world_free(s->server);
}

static inline struct told wait_told(struct scene *s, struct told *t)
{
    for (int i = 0; i < 3000 && t->done == 0; i++)
        world_advance_ms(s->world, i == 0 ? 0 : 1);
    CHECK_UINT_EQ(t->done, 1);
    return *t;
}

static inline struct told acquire_told(struct scene *s, int i,
                                       const vow_permit_request *q)
{
    struct told t = {.done = 0};
    s->store[i]->ops->acquire(s->store[i], q, on_permits, &t);
    return wait_told(s, &t);
}

static inline struct told release_told(struct scene *s, int i, unsigned pool,
                                       unsigned token)
{
    struct told t = {.done = 0};
    const vow_permit_hold hold = hold_number(pool, token, false);
    s->store[i]->ops->release(s->store[i], &hold, on_permits, &t);
    return wait_told(s, &t);
}

static inline struct told renew_told(struct scene *s, int i, unsigned pool,
                                     unsigned token, bool started)
{
    struct told t = {.done = 0};
    const vow_permit_hold hold = hold_number(pool, token, started);
    s->store[i]->ops->renew(s->store[i], &hold, 1, LEASE_MS, on_permits, &t);
    return wait_told(s, &t);
}

static inline struct told limit_told(struct scene *s, int i, unsigned pool,
                                     const vow_pool_limits *limits)
{
    struct told t = {.done = 0};
    const vow_name name = pool_number(pool);
    s->store[i]->ops->limit(s->store[i], &name, limits, "", on_pools, &t);
    return wait_told(s, &t);
}

static inline void check_status(struct told t, uint32_t status)
{
    CHECK_INT_EQ(t.code, 0);
    CHECK_UINT_EQ(t.permit.status, status);
}

static inline struct cas_plan plan_of(bool watch)
{
    return (struct cas_plan){.flags = watch ? CAS_WATCHES : CAS_REGISTERS,
                             .clock = !watch,
                             .seed = 1,
                             .value_max = 4096,
                             .inline_max = 64};
}

/* Runs a test on both flavours. */
#define POOL_TEST(n)                                                           \
    static void pool_test_##n(struct world *w, struct scene *s, bool watch);   \
    static void pool_run_##n(bool watch)                                       \
    {                                                                          \
        struct world w;                                                        \
        struct scene s;                                                        \
        const struct cas_plan plan = plan_of(watch);                           \
        world_open(&w);                                                        \
        CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);                            \
        pool_test_##n(&w, &s, watch);                                          \
        scene_close(&s);                                                       \
        world_close(&w);                                                       \
    }                                                                          \
    TEST(cas_pool_watch, n)                                                    \
    {                                                                          \
        pool_run_##n(true);                                                    \
    }                                                                          \
    TEST(cas_pool_register, n)                                                 \
    {                                                                          \
        pool_run_##n(false);                                                   \
    }                                                                          \
    static void pool_test_##n(struct world *w, struct scene *s, bool watch)

/* The leases are granted beforehand. */
static inline void warm_up(struct scene *s)
{
    for (unsigned i = 0; i < INSTANCES; i++)
        check_status(acquire_told(s, (int)i, REQUEST(100 + i, 1)),
                     VOW_STATUS_OWNED);
}

#endif
