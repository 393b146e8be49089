/* SPDX-License-Identifier: MIT */
/* cas_pool_test.c - pools on the engine over a compare-and-set service: round
 * trips, lanes, turns, leases, orphaned requests, limits, the close, and every
 * failed allocation. What all stores promise is in tests/contract, histories
 * with faults in tests/sim. */
#include "cas_memory.h"
#include "fault.h"
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

static void on_permits(int code, const vow_pool_permit *p, size_t n, void *user)
{
    struct told *t = user;
    t->done++;
    t->code = code;
    t->n = n;
    if (n > 0)
        t->permit = p[0];
}

static void on_pools(int code, const vow_pool_info *p, size_t n, void *user)
{
    struct told *t = user;
    t->done++;
    t->code = code;
    t->n = n;
    if (n > 0)
        t->info = p[0];
}

static void hear_permit(const vow_token *token, void *user)
{
    struct heard *h = user;
    h->permits++;
    h->token = *token;
}

static void hear_doubt(void *user)
{
    struct heard *h = user;
    h->doubts++;
}

static vow_name pool_number(unsigned number)
{
    vow_name name = {
        .hash = {5, (unsigned char)number, (unsigned char)(number >> 8)}};
    return name;
}

static vow_token token_number(unsigned number)
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

static vow_permit_hold hold_number(unsigned pool, unsigned token, bool started)
{
    return (vow_permit_hold){.pool = pool_number(pool),
                             .limits_of = pool_number(pool),
                             .token = token_number(token),
                             .started = started};
}

static int scene_open(struct scene *s, struct world *w,
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

static void ignore_close(void *user)
{
    (void)user;
}

static void scene_close_one(struct scene *s, int i)
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

static void scene_close(struct scene *s)
{
    for (int i = 0; i < INSTANCES; i++)
        scene_close_one(s, i);
    cas_world_free(s->server);
}

static struct told wait_told(struct scene *s, struct told *t)
{
    for (int i = 0; i < 3000 && t->done == 0; i++)
        world_advance_ms(s->world, i == 0 ? 0 : 1);
    CHECK_UINT_EQ(t->done, 1);
    return *t;
}

static struct told acquire_told(struct scene *s, int i,
                                const vow_permit_request *q)
{
    struct told t = {.done = 0};
    s->store[i]->ops->acquire(s->store[i], q, on_permits, &t);
    return wait_told(s, &t);
}

static struct told release_told(struct scene *s, int i, unsigned pool,
                                unsigned token)
{
    struct told t = {.done = 0};
    const vow_permit_hold hold = hold_number(pool, token, false);
    s->store[i]->ops->release(s->store[i], &hold, on_permits, &t);
    return wait_told(s, &t);
}

static struct told renew_told(struct scene *s, int i, unsigned pool,
                              unsigned token, bool started)
{
    struct told t = {.done = 0};
    const vow_permit_hold hold = hold_number(pool, token, started);
    s->store[i]->ops->renew(s->store[i], &hold, 1, LEASE_MS, on_permits, &t);
    return wait_told(s, &t);
}

static struct told limit_told(struct scene *s, int i, unsigned pool,
                              const vow_pool_limits *limits)
{
    struct told t = {.done = 0};
    const vow_name name = pool_number(pool);
    s->store[i]->ops->limit(s->store[i], &name, limits, "", on_pools, &t);
    return wait_told(s, &t);
}

static void check_status(struct told t, uint32_t status)
{
    CHECK_INT_EQ(t.code, 0);
    CHECK_UINT_EQ(t.permit.status, status);
}

static struct cas_plan plan_of(bool watch)
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

/* ---- round trips --------------------------------------------------------- */

/* The leases are granted beforehand. */
static void warm_up(struct scene *s)
{
    for (unsigned i = 0; i < INSTANCES; i++)
        check_status(acquire_told(s, (int)i, REQUEST(100 + i, 1)),
                     VOW_STATUS_OWNED);
}

POOL_TEST(free_1_queued_1_granted_1_release_1)
{
    (void)w;
    (void)watch;
    warm_up(s);
    uint64_t before = cas_world_requests(s->server);
    check_status(acquire_told(s, 0, REQUEST(1, 1)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(cas_world_requests(s->server) - before, 1);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(cas_world_requests(s->server) - before, 2);
    check_status(release_told(s, 0, 1, 1), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(s->heard[1].permits, 1);
    CHECK_UINT_EQ(cas_world_requests(s->server) - before, 3);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(cas_world_requests(s->server) - before, 4);
    check_status(release_told(s, 1, 1, 2), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(cas_world_requests(s->server) - before, 5);
}

POOL_TEST(a_rate_costs_one_request_more)
{
    warm_up(s);
    uint64_t before = cas_world_requests(s->server);
    check_status(acquire_told(s, 0, REQUEST(1, 1, .limits = RATED)),
                 VOW_STATUS_OWNED);
    CHECK_UINT_EQ(cas_world_requests(s->server) - before, 2);
    check_status(renew_told(s, 0, 1, 1, true), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(cas_world_requests(s->server) - before, 4);
    struct told t = acquire_told(s, 1, REQUEST(1, 2));
    check_status(t, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(cas_world_requests(s->server) - before, 5);
    world_advance_ms(w, t.permit.again_us / 1000 + 1);
    before = cas_world_requests(s->server);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(cas_world_requests(s->server) - before, 2);
    before = cas_world_requests(s->server); /* the start, in the same request */
    check_status(release_told(s, 1, 1, 2), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(cas_world_requests(s->server) - before, 1);
    CHECK_UINT_EQ(limit_told(s, watch ? 1 : 2, 1, NULL).info.rate_used, 1);
}

POOL_TEST(a_renewal_of_many_permits_is_one_read_for_each_pool)
{
    vow_permit_hold holds[MANY];
    (void)watch;
    for (unsigned i = 0; i < MANY; i++) {
        holds[i] = hold_number(i % 2, i, false);
        check_status(
            acquire_told(s, 0,
                         REQUEST(i % 2, i, .limits = {.concurrent = MANY})),
            VOW_STATUS_OWNED);
    }
    for (int round = 0; round < 8; round++) {
        struct told t = {.done = 0};
        world_advance_ms(w, LEASE_MS / 3);
        uint64_t before = cas_world_requests(s->server);
        s->store[0]->ops->renew(s->store[0], holds, MANY, LEASE_MS, on_permits,
                                &t);
        check_status(wait_told(s, &t), VOW_STATUS_OWNED);
        CHECK_UINT_EQ(t.n, MANY);
        CHECK(cas_world_requests(s->server) - before <= 3);
    }
    CHECK_UINT_EQ(limit_told(s, 1, 0, NULL).info.holders, MANY / 2);
}

TEST(cas_pool, no_renewal_without_permits)
{
    struct world w;
    struct scene s;
    struct told t = {.done = 0};
    const struct cas_plan plan = plan_of(true);
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    s.store[0]->ops->renew(s.store[0], NULL, 0, LEASE_MS, on_permits, &t);
    CHECK_UINT_EQ(t.done, 1);
    CHECK_INT_EQ(t.code, 0);
    CHECK_UINT_EQ(cas_world_requests(s.server), 0);
    scene_close(&s);
    world_close(&w);
}

/* ---- lanes --------------------------------------------------------------- */

TEST(cas_pool, renewals_and_releases_do_not_wait_behind_acquires)
{
    struct world w;
    struct scene s;
    static struct told acquires[MANY];
    struct told renew = {.done = 0}, release = {.done = 0};
    struct cas_plan plan = plan_of(true);
    const vow_permit_hold holds[2] = {hold_number(1, 1, false),
                                      hold_number(1, 2, false)};
    unsigned before = 0;
    plan.delay_ms = 20;
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    for (unsigned i = 1; i <= 2; i++)
        check_status(
            acquire_told(&s, 0, REQUEST(1, i, .limits = {.concurrent = 2})),
            VOW_STATUS_OWNED);
    for (unsigned i = 0; i < MANY; i++)
        s.store[0]->ops->acquire(s.store[0], REQUEST(1, 10 + i), on_permits,
                                 &acquires[i]);
    s.store[0]->ops->renew(s.store[0], &holds[0], 1, LEASE_MS, on_permits,
                           &renew);
    s.store[0]->ops->release(s.store[0], &holds[1], on_permits, &release);
    check_status(wait_told(&s, &renew), VOW_STATUS_OWNED);
    if (release.done == 0)
        (void)wait_told(&s, &release);
    CHECK_UINT_EQ(release.permit.status, VOW_STATUS_OWNED);
    for (unsigned i = 0; i < MANY; i++)
        before += acquires[i].done;
    CHECK(before < MANY / 4);
    world_advance_ms(&w, TIMEOUT_MS + 100);
    for (unsigned i = 0; i < MANY; i++)
        CHECK_UINT_EQ(acquires[i].done, 1);
    scene_close(&s);
    world_close(&w);
}

TEST(cas_pool, requests_of_a_process_queue_in_the_order_of_the_calls)
{
    struct world w;
    struct scene s;
    struct told t[20];
    struct cas_plan plan = plan_of(false);
    plan.delay_ms = 20;
    world_open(&w);
    memset(t, 0, sizeof(t));
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    for (unsigned i = 0; i < 20; i++)
        s.store[0]->ops->acquire(s.store[0], REQUEST(1, i), on_permits, &t[i]);
    for (unsigned i = 0; i < 20; i++)
        if (t[i].done == 0)
            (void)wait_told(&s, &t[i]);
    CHECK_UINT_EQ(t[0].permit.status, VOW_STATUS_OWNED);
    for (unsigned i = 1; i < 20; i++)
        CHECK_UINT_EQ(t[i].permit.ahead, i - 1);
    scene_close(&s);
    world_close(&w);
}

POOL_TEST(a_release_right_behind_an_acquire_leaves_nothing)
{
    struct told acquire = {.done = 0}, release = {.done = 0};
    const vow_permit_hold hold = hold_number(1, 1, false);
    (void)w;
    (void)watch;
    s->store[0]->ops->acquire(s->store[0], REQUEST(1, 1), on_permits, &acquire);
    s->store[0]->ops->release(s->store[0], &hold, on_permits, &release);
    check_status(wait_told(s, &release), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(acquire.done, 1);
    CHECK_UINT_EQ(limit_told(s, 1, 1, NULL).info.holders, 0);
}

/* ---- turns and leases ---------------------------------------------------- */

POOL_TEST(a_turn_that_nobody_takes_is_over_after_2_s)
{
    (void)watch;
    check_status(acquire_told(s, 0, REQUEST(1, 1)), VOW_STATUS_OWNED);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_WAITING);
    check_status(acquire_told(s, 2, REQUEST(1, 3)), VOW_STATUS_WAITING);
    check_status(release_told(s, 0, 1, 1), VOW_STATUS_OWNED);
    world_advance_ms(w, 1990);
    CHECK_UINT_EQ(s->heard[2].permits, 0);
    world_advance_ms(w, 20);
    CHECK_UINT_EQ(s->heard[2].permits, 1);
    check_status(acquire_told(s, 2, REQUEST(1, 3)), VOW_STATUS_OWNED);
    check_status(renew_told(s, 1, 1, 2, false), VOW_STATUS_NONE);
}

/* The process of the holder and the process of the head die. The waiter renews,
 * as callers do, and acquires when told. */
POOL_TEST(the_dead_cost_at_most_a_lease_and_2_s)
{
    (void)watch;
    check_status(acquire_told(s, 0, REQUEST(1, 1)), VOW_STATUS_OWNED);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_WAITING);
    check_status(acquire_told(s, 2, REQUEST(1, 3)), VOW_STATUS_WAITING);
    cas_memory_kill(s->service[0]);
    cas_memory_kill(s->service[1]);
    uint64_t began_ns = vow_loop_now_ns(w->loop);
    uint32_t status = VOW_STATUS_WAITING;
    for (int i = 0; i < 1000 && status == VOW_STATUS_WAITING; i++) {
        world_advance_ms(w, 100);
        if (s->heard[2].permits > 0 || i % 10 == 9)
            status = acquire_told(s, 2, REQUEST(1, 3)).permit.status;
    }
    CHECK_UINT_EQ(status, VOW_STATUS_OWNED);
    CHECK((vow_loop_now_ns(w->loop) - began_ns) / 1000000 <= LEASE_MS + 2000);
}

POOL_TEST(a_permit_that_is_not_renewed_ends_beside_others)
{
    (void)watch;
    check_status(acquire_told(s, 0, REQUEST(1, 1)), VOW_STATUS_OWNED);
    check_status(acquire_told(s, 0, REQUEST(2, 2)), VOW_STATUS_OWNED);
    for (int i = 0; i < 4; i++) {
        world_advance_ms(w, LEASE_MS / 3);
        check_status(renew_told(s, 0, 2, 2, false), VOW_STATUS_OWNED);
    }
    check_status(acquire_told(s, 1, REQUEST(1, 3)), VOW_STATUS_OWNED);
    check_status(acquire_told(s, 1, REQUEST(2, 4)), VOW_STATUS_WAITING);
    check_status(renew_told(s, 0, 1, 1, false), VOW_STATUS_NONE);
}

/* Work may have started when its process dies: the start counts for a window
 * from the end of the lease, or of the entry, on. */
POOL_TEST(a_start_that_was_never_told_counts)
{
    struct told t = acquire_told(s, 0, REQUEST(1, 1, .limits = RATED));
    uint64_t waited_ms = 0;
    check_status(t, VOW_STATUS_OWNED);
    (void)watch;
    for (int i = 0; i < 12; i++) { /* the open entry is written again */
        world_advance_ms(w, LEASE_MS / 3);
        check_status(renew_told(s, 0, 1, 1, false), VOW_STATUS_OWNED);
    }
    CHECK_UINT_EQ(limit_told(s, 1, 1, NULL).info.rate_used, 1);
    cas_memory_kill(s->service[0]);
    t = acquire_told(s, 1, REQUEST(1, 2));
    check_status(t, VOW_STATUS_WAITING);
    while (t.permit.status == VOW_STATUS_WAITING && waited_ms < 60000) {
        uint64_t ms = t.permit.again_us / 1000 + 1;
        world_advance_ms(w, ms < LEASE_MS / 3 ? ms : LEASE_MS / 3);
        waited_ms += ms < LEASE_MS / 3 ? ms : LEASE_MS / 3;
        t = acquire_told(s, 1, REQUEST(1, 2));
    }
    check_status(t, VOW_STATUS_OWNED);
    CHECK(waited_ms > LEASE_MS + 500);
    CHECK(waited_ms < 3 * LEASE_MS + 5000);
}

TEST(cas_pool, a_permit_whose_lease_was_ended_is_lost)
{
    struct world w;
    struct scene s;
    struct cas_plan plan = plan_of(true);
    plan.lost_leases = 1000;
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    check_status(acquire_told(&s, 0, REQUEST(1, 1)), VOW_STATUS_OWNED);
    check_status(acquire_told(&s, 1, REQUEST(1, 2)), VOW_STATUS_WAITING);
    world_advance_ms(&w, LEASE_MS - 100);
    check_status(renew_told(&s, 0, 1, 1, false), VOW_STATUS_NONE);
    CHECK_UINT_EQ(s.heard[1].permits, 1);
    check_status(acquire_told(&s, 1, REQUEST(1, 2)), VOW_STATUS_OWNED);
    check_status(acquire_told(&s, 0, REQUEST(1, 1)), VOW_STATUS_WAITING);
    scene_close(&s);
    world_close(&w);
}

static void renew_starts(struct scene *s, unsigned from, unsigned to)
{
    vow_permit_hold holds[MANY];
    struct told t = {.done = 0};
    for (unsigned i = from; i < to; i++)
        holds[i] = hold_number(1, i, true);
    s->store[0]->ops->renew(s->store[0], holds + from, to - from, LEASE_MS,
                            on_permits, &t);
    check_status(wait_told(s, &t), VOW_STATUS_OWNED);
}

/* The grants of a process share an entry, which is open until the last of them
 * has started. */
POOL_TEST(with_a_high_rate_grants_share_an_entry)
{
    const vow_pool_limits high = {.rate = 1000, .window_us = 500000};
    (void)watch;
    for (unsigned i = 0; i < MANY; i++)
        check_status(acquire_told(s, 0, REQUEST(1, i, .limits = high)),
                     VOW_STATUS_OWNED);
    CHECK_UINT_EQ(cas_world_entries(s->server), 1);
    CHECK_UINT_EQ(limit_told(s, 1, 1, NULL).info.rate_used, MANY);
    renew_starts(s, 0, MANY - 2);
    check_status(release_told(s, 0, 1, MANY - 1), VOW_STATUS_OWNED);
    world_advance_ms(w, 1000);
    CHECK_UINT_EQ(limit_told(s, 1, 1, NULL).info.rate_used, MANY);
    renew_starts(s, MANY - 2, MANY - 1);
    CHECK_UINT_EQ(limit_told(s, 1, 1, NULL).info.rate_used, MANY);
    world_advance_ms(w, 502);
    CHECK_UINT_EQ(limit_told(s, 1, 1, NULL).info.rate_used, 0);
    CHECK_UINT_EQ(cas_world_entries(s->server), 0);
}

/* Without a clock, a process knows since when a start is there. */
POOL_TEST(a_start_gets_older_while_a_process_knows_the_start)
{
    (void)watch;
    check_status(acquire_told(s, 0, REQUEST(1, 1, .limits = RATED)),
                 VOW_STATUS_OWNED);
    check_status(release_told(s, 0, 1, 1), VOW_STATUS_OWNED);
    struct told t = acquire_told(s, 1, REQUEST(1, 2));
    check_status(t, VOW_STATUS_WAITING);
    CHECK(t.permit.again_us > 490000 && t.permit.again_us <= 500001);
    world_advance_ms(w, 250);
    t = acquire_told(s, 1, REQUEST(1, 2));
    check_status(t, VOW_STATUS_WAITING);
    CHECK(t.permit.again_us > 240000 && t.permit.again_us <= 250001);
}

/* A renewal does not mark: the caller is told to acquire now. */
POOL_TEST(a_renewal_under_a_rate_says_acquire_now_when_the_turn_has_come)
{
    (void)watch;
    check_status(acquire_told(s, 0, REQUEST(1, 1, .limits = RATED)),
                 VOW_STATUS_OWNED);
    check_status(release_told(s, 0, 1, 1), VOW_STATUS_OWNED);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_WAITING);
    world_advance_ms(w, 510);
    CHECK_UINT_EQ(s->heard[1].permits, 1);
    struct told t = renew_told(s, 1, 1, 2, false);
    check_status(t, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(t.permit.again_us, 1);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_OWNED);
}

/* ---- limits -------------------------------------------------------------- */

POOL_TEST(lower_limits_take_nothing_from_holders)
{
    const vow_pool_limits two = {.concurrent = 2}, one = {.concurrent = 1};
    const vow_pool_limits rate = {
        .concurrent = 2, .rate = 1, .window_us = 1000000};
    (void)w;
    (void)watch;
    check_status(acquire_told(s, 0, REQUEST(1, 1, .limits = two)),
                 VOW_STATUS_OWNED);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_OWNED);
    check_status(acquire_told(s, 2, REQUEST(1, 3)), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(limit_told(s, 2, 1, &one).info.held, 2);
    check_status(renew_told(s, 1, 1, 2, false), VOW_STATUS_OWNED);
    check_status(release_told(s, 0, 1, 1), VOW_STATUS_OWNED);
    check_status(acquire_told(s, 2, REQUEST(1, 3)), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(limit_told(s, 2, 1, &rate).info.held, 1);
    check_status(acquire_told(s, 2, REQUEST(1, 3)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(limit_told(s, 2, 1, NULL).info.rate_used, 1);
}

/* The limits change between the join and the mark: the mark compares. */
POOL_TEST(a_mark_does_not_count_by_limits_that_have_changed)
{
    struct told t = {.done = 0};
    struct cas_plan plan = plan_of(watch);
    const vow_pool_limits two = {.rate = 2, .window_us = 1000000};
    const vow_pool_limits one = {.rate = 1, .window_us = 1000000};
    warm_up(s);
    check_status(acquire_told(s, 2, REQUEST(1, 2, .limits = two)),
                 VOW_STATUS_OWNED);
    uint64_t writes = cas_world_writes(s->server);
    plan.delay_ms = 20;
    cas_world_set(s->server, &plan);
    s->store[0]->ops->acquire(s->store[0], REQUEST(1, 1), on_permits, &t);
    for (int i = 0; i < 100 && cas_world_writes(s->server) == writes; i++)
        world_advance_ms(w, 1);
    CHECK_UINT_EQ(cas_world_writes(s->server), writes + 1);
    cas_memory_cut(s->service[0], true); /* the answer is on its way */
    CHECK_UINT_EQ(limit_told(s, 1, 1, &one).info.limits.rate, 1);
    cas_memory_cut(s->service[0], false);
    check_status(wait_told(s, &t), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(limit_told(s, 1, 1, NULL).info.rate_used, 1);
}

/* A holder that the change of limits has missed marks its row. */
POOL_TEST(a_holder_that_was_not_marked_is_marked_by_its_renewal)
{
    const vow_pool_limits two = {.concurrent = 2}, one = {.concurrent = 1};
    (void)w;
    (void)watch;
    cas_world_miss_marks(s->server, true);
    check_status(acquire_told(s, 0, REQUEST(1, 1, .limits = two)),
                 VOW_STATUS_OWNED);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(limit_told(s, 2, 1, &one).info.held, 1);
    check_status(renew_told(s, 1, 1, 2, false), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(limit_told(s, 2, 1, NULL).info.held, 1);
    check_status(acquire_told(s, 0, REQUEST(1, 1)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(limit_told(s, 2, 1, NULL).info.held, 2);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_OWNED);
}

POOL_TEST(limits_without_an_answer_are_set_once)
{
    struct cas_plan plan = plan_of(watch);
    const vow_pool_limits three = {.concurrent = 3};
    check_status(acquire_told(s, 0, REQUEST(1, 1)), VOW_STATUS_OWNED);
    plan.lost_answers = 500;
    cas_world_set(s->server, &plan);
    struct told t = limit_told(s, 0, 1, &three);
    CHECK_INT_EQ(t.code, 0);
    CHECK_UINT_EQ(t.info.limits.concurrent, 3);
    cas_world_heal(s->server);
    (void)w;
}

/* ---- requests without an answer ------------------------------------------ */

/* A request without an answer, which is done, or is lost, or comes true later:
 * the caller walks away, and nothing is left. */
static void check_orphan(bool watch, struct cas_plan plan)
{
    struct world w;
    struct scene s;
    const struct cas_plan sound = plan_of(watch);
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &sound), 0);
    warm_up(&s);
    cas_world_set(s.server, &plan);
    struct told t = acquire_told(&s, 0, REQUEST(1, 1));
    CHECK_INT_EQ(t.code, VOW_EUNSURE);
    cas_world_heal(s.server);
    world_advance_ms(&w, LEASE_MS + 25000);
    check_status(acquire_told(&s, 1, REQUEST(1, 2)), VOW_STATUS_OWNED);
    world_advance_ms(&w, 0);
    CHECK_UINT_EQ(limit_told(&s, 2, 1, NULL).info.waiting, 0);
    scene_close(&s);
    world_close(&w);
}

TEST(cas_pool, a_request_without_an_answer_leaves_nothing)
{
    for (int watch = 0; watch < 2; watch++) {
        struct cas_plan plan = plan_of(watch == 1);
        plan.lost_answers = 1000;
        check_orphan(watch == 1, plan);
        plan.lost_answers = 0;
        plan.lost_requests = 1000;
        check_orphan(watch == 1, plan);
        plan.lost_requests = 0;
        plan.late_writes = 1000;
        plan.late_ms = 20000;
        check_orphan(watch == 1, plan);
    }
}

POOL_TEST(a_repeated_acquire_finds_the_row_of_the_first)
{
    struct cas_plan plan = plan_of(watch);
    warm_up(s);
    plan.lost_answers = 1000;
    cas_world_set(s->server, &plan);
    CHECK_INT_EQ(acquire_told(s, 0, REQUEST(1, 1)).code, VOW_EUNSURE);
    cas_world_heal(s->server);
    struct told t = acquire_told(s, 0, REQUEST(1, 1));
    check_status(t, VOW_STATUS_OWNED);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_WAITING);
    world_advance_ms(w, LEASE_MS / 2);
    struct told again = renew_told(s, 0, 1, 1, false);
    check_status(again, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(again.permit.fence, t.permit.fence);
}

/* The mark under a rate has no answer, and has happened: the start is told for
 * the entry of this mark. */
POOL_TEST(a_mark_without_an_answer_is_found)
{
    struct cas_plan plan = plan_of(watch);
    struct told t = {.done = 0};
    warm_up(s);
    plan.delay_ms = 20;
    cas_world_set(s->server, &plan);
    s->store[0]->ops->acquire(s->store[0], REQUEST(1, 1, .limits = RATED),
                              on_permits, &t);
    for (int i = 0; i < 1000 && cas_world_writes(s->server) < 4; i++)
        world_advance_ms(w, 1); /* the join is done */
    plan.lost_answers = 1000;
    cas_world_set(s->server, &plan);
    CHECK(t.done == 0);
    for (int i = 0; i < 1000 && cas_world_writes(s->server) < 5; i++)
        world_advance_ms(w, 1); /* and the mark */
    cas_world_heal(s->server);
    check_status(wait_told(s, &t), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(limit_told(s, 1, 1, NULL).info.rate_used, 1);
    check_status(renew_told(s, 0, 1, 1, true), VOW_STATUS_OWNED);
    world_advance_ms(w, 700);
    CHECK_UINT_EQ(limit_told(s, 0, 1, NULL).info.rate_used, 0);
}

/* The release has no answer, and comes true when the token has joined again. */
POOL_TEST(a_late_release_does_not_hit_a_later_request)
{
    struct cas_plan plan = plan_of(watch);
    warm_up(s);
    check_status(acquire_told(s, 0, REQUEST(1, 1)), VOW_STATUS_OWNED);
    plan.late_writes = 1000;
    plan.late_ms = 5000;
    cas_world_set(s->server, &plan);
    CHECK_INT_EQ(release_told(s, 0, 1, 1).code, VOW_EUNSURE);
    cas_world_heal(s->server);
    CHECK(cas_world_faults(s->server).late > 1);
    struct told first = acquire_told(s, 0, REQUEST(1, 1));
    for (int i = 0; i < 20; i++) {
        struct told t = renew_told(s, 0, 1, 1, false);
        check_status(t, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(t.permit.fence, first.permit.fence);
        world_advance_ms(w, 300);
    }
    CHECK(cas_world_faults(s->server).late_done > 0);
}

/* ---- following ----------------------------------------------------------- */

/* Whatever overtakes whatever, the waiter is told soon: a look follows the pool
 * again. Returns whether the request waited. */
static bool meet_once(bool watch, uint64_t seed, unsigned lost)
{
    struct world w;
    struct scene s;
    struct told acquire = {.done = 0}, release = {.done = 0};
    struct cas_plan plan = plan_of(watch);
    const vow_permit_hold hold = hold_number(1, 1, false);
    plan.seed = seed;
    plan.delay_ms = 20;
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    warm_up(&s);
    check_status(acquire_told(&s, 0, REQUEST(1, 1)), VOW_STATUS_OWNED);
    plan.lost_events = lost;
    cas_world_set(s.server, &plan);
    s.store[1]->ops->acquire(s.store[1], REQUEST(1, 2), on_permits, &acquire);
    s.store[0]->ops->release(s.store[0], &hold, on_permits, &release);
    world_advance_ms(&w, 100);
    CHECK_UINT_EQ(acquire.done + release.done, 2);
    bool waited = acquire.permit.status == VOW_STATUS_WAITING;
    CHECK(!waited || s.heard[1].permits + s.heard[1].doubts > 0);
    cas_world_heal(s.server);
    world_advance_ms(&w, 200);
    CHECK(!waited || s.heard[1].permits > 0);
    scene_close(&s);
    world_close(&w);
    return waited;
}

TEST(cas_pool, no_turn_is_missed_when_an_acquire_meets_a_release)
{
    unsigned waited = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        waited += meet_once(true, seed, 0);
        waited += meet_once(false, seed, 0);
        waited += meet_once(true, seed, 300); /* then on_doubt */
    }
    CHECK(waited > 70 && waited < 230);
}

/* ---- closing ------------------------------------------------------------- */

POOL_TEST(a_close_answers_all_steps_and_gives_all_permits_back)
{
    struct told t[MANY], renew = {.done = 0}, limit = {.done = 0};
    struct told list = {.done = 0};
    struct cas_plan plan = plan_of(watch);
    const vow_permit_hold hold = hold_number(1000, 1, false);
    const vow_name name = pool_number(1);
    memset(t, 0, sizeof(t));
    warm_up(s);
    check_status(acquire_told(s, 0, REQUEST(1000, 1)), VOW_STATUS_OWNED);
    check_status(acquire_told(s, 1, REQUEST(1000, 2)), VOW_STATUS_WAITING);
    plan.delay_ms = 50;
    cas_world_set(s->server, &plan);
    for (unsigned i = 0; i < MANY; i++)
        s->store[0]->ops->acquire(s->store[0], REQUEST(i / 10, i), on_permits,
                                  &t[i]);
    s->store[0]->ops->renew(s->store[0], &hold, 1, LEASE_MS, on_permits,
                            &renew);
    s->store[0]->ops->limit(s->store[0], &name, NULL, "", on_pools, &limit);
    s->store[0]->ops->pools(s->store[0], on_pools, &list);
    world_advance_ms(w, 60); /* many requests are on their way */
    scene_close_one(s, 0);
    for (unsigned i = 0; i < MANY; i++)
        CHECK_UINT_EQ(t[i].done, 1);
    CHECK_UINT_EQ(renew.done + limit.done + list.done, 3);
    world_advance_ms(w, 100);
    CHECK(s->heard[1].permits > 0);
    for (unsigned i = 0; i < MANY / 10; i++) {
        struct told p = limit_told(s, 1, i, NULL);
        CHECK(p.code == VOW_ENOENT ||
              (p.code == 0 && p.info.holders == 0 && p.info.waiting == 0));
    }
    check_status(acquire_told(s, 1, REQUEST(1000, 2)), VOW_STATUS_OWNED);
}

POOL_TEST(a_closing_store_takes_no_steps)
{
    struct told t[5];
    const vow_permit_hold hold = hold_number(1, 1, false);
    const vow_name name = pool_number(1);
    vow_store *store = s->store[0];
    (void)watch;
    memset(t, 0, sizeof(t));
    VOW_AUTO(vow_future) closed = store->ops->close(store);
    store->ops->acquire(store, REQUEST(1, 1), on_permits, &t[0]);
    store->ops->release(store, &hold, on_permits, &t[1]);
    store->ops->renew(store, &hold, 1, LEASE_MS, on_permits, &t[2]);
    store->ops->limit(store, &name, NULL, "", on_pools, &t[3]);
    store->ops->pools(store, on_pools, &t[4]);
    for (int i = 0; i < 5; i++) {
        CHECK_UINT_EQ(t[i].done, 1);
        CHECK_INT_EQ(t[i].code, VOW_ECLOSED);
    }
    world_advance_ms(w, 10);
    CHECK(vow_state_of(closed) == VOW_FULFILLED);
    s->store[0] = NULL;
    s->service[0] = NULL;
}

TEST(cas_pool, a_service_that_is_not_reached_ends_steps_at_the_deadline)
{
    struct world w;
    struct scene s;
    struct told t[MANY];
    struct cas_plan plan = plan_of(true);
    world_open(&w);
    memset(t, 0, sizeof(t));
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    cas_memory_cut(s.service[0], true);
    for (unsigned i = 0; i < MANY; i++)
        s.store[0]->ops->acquire(s.store[0], REQUEST(1, i), on_permits, &t[i]);
    world_advance_ms(&w, TIMEOUT_MS + 100);
    for (unsigned i = 0; i < MANY; i++) {
        CHECK_UINT_EQ(t[i].done, 1);
        CHECK_INT_EQ(t[i].code, VOW_ESTORE);
    }
    cas_memory_cut(s.service[0], false);
    check_status(acquire_told(&s, 0, REQUEST(1, 1)), VOW_STATUS_OWNED);
    scene_close(&s);
    world_close(&w);
}

/* ---- failed allocations -------------------------------------------------- */

/* Without memory for an answer, a write is unsure. */
static bool is_fine(struct world *w, struct told t)
{
    CHECK(t.code == 0 || fault_explains(w, t.code) ||
          (fault_fired(w) && (t.code == VOW_EUNSURE || t.code == VOW_EAGAIN)));
    return t.code == 0;
}

/* Everything once, with three processes. */
static void sweep_pools(struct world *w, bool watch)
{
    struct scene s;
    struct told list = {.done = 0};
    const struct cas_plan plan = plan_of(watch);
    const vow_pool_limits two = {.concurrent = 2};
    int rc = scene_open(&s, w, &plan);
    CHECK(rc == 0 || fault_explains(w, rc));
    if (rc == 0) {
        (void)is_fine(w, acquire_told(&s, 0, REQUEST(1, 1)));
        (void)is_fine(w, acquire_told(&s, 1, REQUEST(1, 2)));
        (void)is_fine(w, renew_told(&s, 0, 1, 1, false));
        (void)is_fine(w, release_told(&s, 0, 1, 1));
        (void)is_fine(w, acquire_told(&s, 1, REQUEST(1, 2)));
        (void)is_fine(w, limit_told(&s, 2, 1, &two));
        (void)is_fine(w, acquire_told(&s, 0, REQUEST(2, 3, .limits = RATED)));
        (void)is_fine(w, acquire_told(&s, 1, REQUEST(2, 4)));
        (void)is_fine(w, renew_told(&s, 0, 2, 3, true));
        (void)is_fine(w, release_told(&s, 0, 2, 3));
        (void)is_fine(
            w, acquire_told(&s, 2, REQUEST(1, 5, .flags = VOW_PERMIT_TRY)));
        world_advance_ms(w, 600);
        (void)is_fine(w, acquire_told(&s, 1, REQUEST(2, 4)));
        s.store[1]->ops->pools(s.store[1], on_pools, &list);
        (void)is_fine(w, wait_told(&s, &list));
    }
    scene_close(&s);
}

FAULT_SWEEP(cas_pool, every_step_survives_every_fault_with_a_watch, FAULT_ALLOC)
{
    sweep_pools(w, true);
}

FAULT_SWEEP(cas_pool, every_step_survives_every_fault_with_registration,
            FAULT_ALLOC)
{
    sweep_pools(w, false);
}
