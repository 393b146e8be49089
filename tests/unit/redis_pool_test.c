/* SPDX-License-Identifier: MIT */
/* redis_pool_test.c - pools on a real server: keys that end, go missing, are
 * many; a clock that goes back. What pools do is in tests/contract, and in
 * redis_pool_rules_test.c. */
#include "redis_cluster_rig.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS_MAX = 64, MANY = 150, HOUR_S = 3600 };

static struct redis_server *server(struct rig *r)
{
    return r->state;
}

static vow_pool_limits at_once(uint32_t concurrent)
{
    return (vow_pool_limits){.concurrent = concurrent};
}

static uint32_t status(struct rig_place p)
{
    CHECK_INT_EQ(p.code, 0);
    return p.place.status;
}

struct renewed {
    unsigned done;
    int code;
    size_t n;
    vow_pool_permit at[2 * MANY];
};

static void on_renewed(int code, const vow_pool_permit *places, size_t n,
                       void *user)
{
    struct renewed *w = user;
    w->done++;
    w->code = code;
    w->n = n;
    if (n > 0 && n <= 2 * MANY)
        memcpy(w->at, places, n * sizeof(places[0]));
}

/* ---- keys ---------------------------------------------------------------- */

struct keys {
    size_t n;
    char at[KEYS_MAX][160];
};

static struct keys *keys_of(struct rig *r)
{
    static struct keys k;
    char all[16 * 1024];
    char *rest = NULL;
    snprintf(all, sizeof(all), "%s",
             redis_say(server(r), "KEYS", "vow:s:*", NULL));
    k.n = 0;
    for (char *at = strtok_r(all, "\n", &rest); at != NULL;
         at = strtok_r(NULL, "\n", &rest)) {
        CHECK(k.n < KEYS_MAX);
        snprintf(k.at[k.n++], sizeof(k.at[0]), "%s", at);
    }
    return &k;
}

static long ends_ms(struct rig *r, const char *key)
{
    return strtol(redis_say(server(r), "PTTL", key, NULL), NULL, 10);
}

/* A pool and one of a key, each with a holder, a queue and a rate. */
static void use_pools(struct rig *r)
{
    vow_pool_limits limits = {.concurrent = 1, .rate = 5, .window_us = 1000000};
    for (uint64_t i = 0; i < 2; i++) {
        (void)rig_acquire(r, i, PLACE("p", 10 + i, .limits = limits));
        (void)rig_acquire(r, i, PLACE("q:a", 20 + i, .limits = limits));
    }
    (void)rig_start(r, 0, "p", 10, LONG_MS);
    (void)rig_start(r, 0, "q:a", 20, LONG_MS);
}

static void every_key_ends(struct rig *r)
{
    use_pools(r);
    const struct keys *k = keys_of(r);
    CHECK_UINT_EQ(k->n, 5 + 6);
    for (size_t i = 0; i < k->n; i++) {
        long ms = ends_ms(r, k->at[i]);
        CHECK(ms > LONG_MS + 12L * HOUR_S * 1000);
        CHECK(ms < LONG_MS + 25L * HOUR_S * 1000);
    }
}

TEST(redis_pool, every_key_ends_a_day_after_the_last_lease)
{
    contract_run(&rig_redis, every_key_ends);
}

static void limits_stay(struct rig *r)
{
    vow_pool_limits three = at_once(3);
    unsigned for_good = 0;
    use_pools(r);
    CHECK_INT_EQ(rig_limit(r, 0, "p", &three).code, 0);
    CHECK_INT_EQ(rig_limit(r, 0, "new", &three).code, 0);
    (void)rig_acquire(r, 3, PLACE("p", 30));
    (void)rig_acquire(r, 3, PLACE("new", 31));
    const struct keys *k = keys_of(r);
    for (size_t i = 0; i < k->n; i++)
        for_good += ends_ms(r, k->at[i]) == -1;
    CHECK_UINT_EQ(for_good, 2);
}

TEST(redis_pool, limits_that_were_set_have_no_end_and_places_have)
{
    contract_run(&rig_redis, limits_stay);
}

/* A busy machine has taken so long that something may have ended. */
static bool passed(struct rig *r, uint64_t since_us, uint64_t us)
{
    rig_advance_ms(r, 1); /* the loop looks at the clock */
    return rig_now_us(r) - since_us >= us;
}

static void key_leaves_nothing(struct rig *r)
{
    vow_pool_limits limits = {.concurrent = 1, .rate = 5, .window_us = 1500000};
    uint64_t since = rig_now_us(r);
    (void)rig_acquire(r, 0, PLACE("p:a", 1, .limits = limits));
    (void)rig_acquire(r, 1, PLACE("p:a", 2));
    (void)rig_start(r, 0, "p:a", 1, LONG_MS);
    size_t keys = keys_of(r)->n;
    CHECK(keys == 6 || passed(r, since, limits.window_us));
    CHECK_UINT_EQ(status(rig_release(r, 1, "p:a", 2)), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(status(rig_release(r, 0, "p:a", 1)), VOW_STATUS_OWNED);
    CHECK(keys_of(r)->n <= 3); /* what the rate remembers */
    for (int i = 0; i < 4000 && keys_of(r)->n > 1; i++)
        rig_advance_ms(r, 20);
    CHECK_UINT_EQ(keys_of(r)->n, 1);
    CHECK(ends_ms(r, keys_of(r)->at[0]) > 0);
    CHECK_UINT_EQ(status(rig_acquire(r, 0, PLACE("p:a", 3))), VOW_STATUS_OWNED);
}

TEST(redis_pool, a_key_that_nobody_uses_leaves_the_limits_only)
{
    contract_run(&rig_redis, key_leaves_nothing);
}

/* Whatever was thrown away: steps go on, and who held a place that is not there
 * any more hears of it. */
static void keys_go_missing(struct rig *r)
{
    vow_pool_limits two = at_once(2);
    for (size_t i = 0; i < 11; i++) {
        CHECK_STR_EQ(redis_say(server(r), "FLUSHALL", NULL), "OK");
        use_pools(r);
        CHECK_STR_EQ(redis_say(server(r), "DEL", keys_of(r)->at[i], NULL), "1");
        for (uint64_t t = 10; t < 30; t += t == 11 ? 9 : 1) {
            const char *pool = t < 20 ? "p" : "q:a";
            struct rig_place p = rig_renew(r, t % 10, pool, t, LONG_MS);
            CHECK(status(p) != VOW_STATUS_BUSY);
            CHECK_INT_EQ(rig_release(r, t % 10, pool, t).code, 0);
            if (t == 21)
                break;
        }
        CHECK_INT_EQ(rig_limit(r, 0, "p", &two).code, 0);
        CHECK_INT_EQ(rig_limit(r, 0, "q", &two).code, 0);
        for (uint64_t t = 40; t < 42; t++) {
            CHECK_UINT_EQ(status(rig_acquire(r, 0, PLACE("p", t))),
                          VOW_STATUS_OWNED);
            CHECK_UINT_EQ(status(rig_acquire(r, 0, PLACE("q:a", t))),
                          VOW_STATUS_OWNED);
        }
        CHECK_UINT_EQ(status(rig_acquire(r, 0, PLACE("p", 42))),
                      VOW_STATUS_WAITING);
    }
}

TEST(redis_pool, goes_on_without_any_of_its_keys)
{
    contract_run(&rig_redis, keys_go_missing);
}

static void flushed(struct rig *r)
{
    struct rig_place first =
        rig_acquire(r, 0, PLACE("p", 1, .limits = at_once(1)));
    (void)rig_acquire(r, 1, PLACE("p", 2));
    CHECK_STR_EQ(redis_say(server(r), "FLUSHALL", NULL), "OK");
    CHECK_UINT_EQ(status(rig_renew(r, 0, "p", 1, LONG_MS)), VOW_STATUS_NONE);
    CHECK_UINT_EQ(status(rig_renew(r, 1, "p", 2, LONG_MS)), VOW_STATUS_NONE);
    CHECK_UINT_EQ(status(rig_release(r, 0, "p", 1)), VOW_STATUS_NONE);
    struct rig_place p = rig_acquire(r, 2, PLACE("p", 3, .limits = at_once(1)));
    CHECK_UINT_EQ(status(p), VOW_STATUS_OWNED);
    CHECK(p.place.fence > first.place.fence);
}

TEST(redis_pool, a_flush_takes_all_places_and_fences_go_on)
{
    contract_run(&rig_redis, flushed);
}

/* What was not sent yet when it is closed. */
static void released_and_closed(struct rig *r)
{
    static struct renewed got; /* counts only */
    vow_permit_hold hold = {rig_name("p"), rig_name("p"), rig_token(1), false};
    got = (struct renewed){.done = 0};
    CHECK_UINT_EQ(
        status(rig_acquire(r, 0, PLACE("p", 1, .limits = at_once(1)))),
        VOW_STATUS_OWNED);
    r->at[0]->ops->release(r->at[0], &hold, on_renewed, &got);
    rig_close(r, 0);
    CHECK_UINT_EQ(got.done, 1);
    CHECK_UINT_EQ(status(rig_acquire(r, 1, PLACE("p", 2))), VOW_STATUS_OWNED);
    r->at[1]->ops->acquire(r->at[1], PLACE("q", 3, .limits = at_once(1)),
                           on_renewed, &got);
    rig_close(r, 1);
    CHECK_UINT_EQ(got.done, 2);
    CHECK_UINT_EQ(
        status(rig_acquire(r, 2, PLACE("q", 4, .limits = at_once(1)))),
        VOW_STATUS_OWNED);
}

TEST(redis_pool, a_step_that_was_just_begun_when_it_is_closed_leaves_no_place)
{
    contract_run(&rig_redis, released_and_closed);
}

/* ---- many ---------------------------------------------------------------- */

static void many_are_let_in(struct rig *r)
{
    vow_pool_limits all = at_once(2 * MANY);
    unsigned waiting = MANY;
    (void)rig_acquire(r, 0, PLACE("p", 0, .limits = at_once(1)));
    for (uint64_t i = 1; i <= MANY; i++)
        CHECK_UINT_EQ(status(rig_acquire(r, 1, PLACE("p", i))),
                      VOW_STATUS_WAITING);
    struct rig_pool p = rig_limit(r, 2, "p", &all);
    CHECK(p.info.held > 64 && p.info.held < MANY); /* a step is bounded */
    for (int round = 0; round < 2 && waiting > 0; round++) {
        waiting = 0;
        for (uint64_t i = 1; i <= MANY; i++)
            waiting +=
                status(rig_acquire(r, 1, PLACE("p", i))) != VOW_STATUS_OWNED;
    }
    CHECK_UINT_EQ(waiting, 0);
    CHECK_UINT_EQ(r->news[1].places, MANY);
}

TEST(redis_pool, lets_many_in_by_several_steps)
{
    contract_run(&rig_redis, many_are_let_in);
}

static void many_are_dead(struct rig *r)
{
    (void)rig_acquire(r, 0, PLACE("p", 0, .limits = at_once(1)));
    uint64_t since = rig_now_us(r);
    for (uint64_t i = 1; i <= MANY; i++)
        (void)rig_acquire(r, 1, PLACE("p", i, .lease_ms = 2000));
    uint64_t before = rig_limit(r, 0, "p", NULL).info.waiting;
    CHECK(before == MANY || passed(r, since, 2000 * 1000));
    rig_advance_ms(r, 2001);
    for (int i = 0; i < 3; i++) {
        uint64_t now = rig_limit(r, 0, "p", NULL).info.waiting;
        CHECK((now < before || now == 0) &&
              before - now <= 64 + 128); /* the latter as heads */
        before = now;
    }
    CHECK_UINT_EQ(before, 0);
    /* One that is dead and not yet swept is not found either. */
    for (uint64_t i = 1; i <= MANY; i++)
        (void)rig_acquire(r, 1, PLACE("p", i, .lease_ms = 500));
    rig_advance_ms(r, 600);
    CHECK_UINT_EQ(status(rig_renew(r, 1, "p", MANY, LONG_MS)), VOW_STATUS_NONE);
}

TEST(redis_pool, sweeps_the_dead_by_several_steps)
{
    contract_run(&rig_redis, many_are_dead);
}

static void key_name(char name[16], uint64_t i)
{
    snprintf(name, 16, "p:%llu", (unsigned long long)i);
}

static void many_keys(struct rig *r)
{
    vow_pool_limits two = at_once(2);
    char name[16];
    for (uint64_t i = 0; i < MANY; i++) {
        key_name(name, i);
        (void)rig_acquire(r, 0, PLACE(name, i, .limits = at_once(1)));
        CHECK_UINT_EQ(status(rig_acquire(r, 1, PLACE(name, MANY + i))),
                      VOW_STATUS_WAITING);
    }
    CHECK_INT_EQ(rig_limit(r, 2, "p", &two).code, 0);
    CHECK_UINT_EQ(r->news[1].places, 0); /* each with a step on its key */
    for (uint64_t i = 0; i < MANY; i++) {
        key_name(name, i);
        CHECK_UINT_EQ(status(rig_renew(r, 1, name, MANY + i, LONG_MS)),
                      VOW_STATUS_OWNED);
    }
    CHECK_UINT_EQ(rig_pools(r, 3, NULL, 0), MANY + 1);
}

TEST(redis_pool, new_limits_reach_a_key_with_its_next_step)
{
    contract_run(&rig_redis, many_keys);
}

static void many_renewals(struct rig *r)
{
    static vow_permit_hold holds[2 * MANY];
    static uint64_t fences[2 * MANY];
    static struct renewed got;
    uint64_t seed = test_seed();
    char name[16];
    got = (struct renewed){.done = 0};
    for (uint64_t i = 0; i < 2 * MANY; i++) {
        key_name(name, test_random(&seed) % 50);
        holds[i] = (vow_permit_hold){rig_name(name), rig_limits_name(name),
                                     rig_token(i), false};
        if (i % 3 == 0)
            continue;
        struct rig_place p = rig_acquire(r, 0, PLACE(name, i));
        CHECK_UINT_EQ(status(p), VOW_STATUS_OWNED);
        fences[i] = p.place.fence;
    }
    r->at[0]->ops->renew(r->at[0], holds, 2 * MANY, LONG_MS, on_renewed, &got);
    rig_expect(r, &got.done, 1);
    CHECK_INT_EQ(got.code, 0);
    CHECK_UINT_EQ(got.n, 2 * MANY);
    for (uint64_t i = 0; i < 2 * MANY; i++) {
        CHECK_UINT_EQ(got.at[i].status,
                      i % 3 == 0 ? VOW_STATUS_NONE : VOW_STATUS_OWNED);
        CHECK_UINT_EQ(got.at[i].fence, i % 3 == 0 ? 0 : fences[i]);
    }
    r->at[0]->ops->renew(r->at[0], NULL, 0, LONG_MS, on_renewed, &got);
    rig_expect(r, &got.done, 2);
    CHECK_UINT_EQ(got.n, 0);
}

TEST(redis_pool, many_renewals_of_many_pools_in_any_order)
{
    contract_run(&rig_redis, many_renewals);
}

/* ---- in a cluster -------------------------------------------------------- */

/* Pools of several tags in one renewal: each node has its own. */
static void spread(struct rig *r)
{
    static struct renewed got;
    vow_permit_hold holds[2 * MANY];
    struct rig_answer list[4];
    char name[16];
    got = (struct renewed){.done = 0};
    for (uint64_t i = 0; i < 60; i++) {
        snprintf(name, sizeof(name), "%llu:a", (unsigned long long)(i % 20));
        holds[i] = (vow_permit_hold){rig_name(name), rig_limits_name(name),
                                     rig_token(i), false};
        CHECK_UINT_EQ(status(rig_acquire(r, 0, PLACE(name, i))),
                      VOW_STATUS_OWNED);
        snprintf(name, sizeof(name), "n%llu", (unsigned long long)i);
        CHECK_UINT_EQ(rig_claim(r, 0, ASK(name, i)).status, VOW_STATUS_OWNED);
    }
    r->at[0]->ops->renew(r->at[0], holds, 60, LONG_MS, on_renewed, &got);
    rig_expect(r, &got.done, 1);
    CHECK_INT_EQ(got.code, 0);
    for (size_t i = 0; i < 60; i++)
        CHECK_UINT_EQ(got.at[i].status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_pools(r, 1, NULL, 0), 40);
    CHECK_UINT_EQ(rig_list(r, 1, list, 4), 60);
}

TEST(redis_pool, renews_and_lists_over_all_nodes)
{
    contract_run(&rig_redis_cluster, spread);
}

TEST(redis_pool, keys_of_one_pool_are_on_one_node)
{
    contract_run(&rig_redis_cluster, many_keys);
}

/* ---- time ---------------------------------------------------------------- */

/* As if its last step had been an hour later than it is now. */
static void clock_goes_back(struct rig *r)
{
    static const char script[] =
        "for _, k in ipairs(redis.call('KEYS', 'vow:s:*')) do "
        "if redis.call('TYPE', k).ok == 'zset' then "
        "for _, m in ipairs(redis.call('ZRANGE', k, 0, -1)) do "
        "redis.call('ZINCRBY', k, 3600000000, m) end "
        "else if redis.call('HEXISTS', k, 't') == 1 then "
        "redis.call('HINCRBY', k, 't', 3600000000) end end end return 'OK'";
    CHECK_STR_EQ(redis_say(server(r), "EVAL", script, "0", NULL), "OK");
}

static void time_stands(struct rig *r)
{
    vow_pool_limits limits = {.concurrent = 1, .rate = 9, .window_us = 300000};
    (void)rig_acquire(
        r, 0, PLACE("p", 1, .limits = limits, .lease_ms = rig_short_ms(r)));
    (void)rig_acquire(r, 0, PLACE("q", 2, .weight = 9, .limits = limits));
    (void)rig_release(r, 0, "q", 2);
    uint64_t fence =
        rig_acquire(r, 0, PLACE("r", 3, .limits = at_once(9))).place.fence;
    clock_goes_back(r);
    struct rig_place p = rig_acquire(r, 1, PLACE("p", 4));
    if (p.place.status == VOW_STATUS_WAITING) {
        CHECK(p.place.again_us <= 1000 * rig_short_ms(r) + 1);
        rig_lapse(r);
        p = rig_acquire(r, 1, PLACE("p", 4));
    }
    CHECK_UINT_EQ(status(p), VOW_STATUS_OWNED);
    p = rig_acquire(r, 1, PLACE("q", 5));
    CHECK(p.place.status == VOW_STATUS_OWNED || p.place.again_us <= 300001);
    rig_advance_ms(r, 310);
    CHECK_UINT_EQ(status(rig_acquire(r, 1, PLACE("q", 5))), VOW_STATUS_OWNED);
    p = rig_acquire(r, 1, PLACE("r", 6));
    CHECK(p.place.fence > fence);
}

TEST(redis_pool, a_clock_that_goes_back_makes_no_lease_and_no_window_longer)
{
    contract_run(&rig_redis, time_stands);
}
