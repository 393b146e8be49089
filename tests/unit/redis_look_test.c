/* SPDX-License-Identifier: MIT */
/* redis_look_test.c - lists of all names and pools, among keys of others; and
 * every block of memory that looking and places need missing in turn. */
#include "contract.h"
#include "redis_kit.h"
#include "vow/store_redis.h"
#include "vow/uv.h"
#include <stdio.h>
#include <string.h>

extern const struct rig_store rig_redis;

enum { NAMES = 1300 };

static struct redis_server *server(struct rig *r)
{
    return r->state;
}

static void among_others(struct rig *r)
{
    static struct rig_answer list[NAMES + 1];
    static const char strangers[] =
        "for i = 1, 2000 do redis.call('SET', 'other:' .. i, 1) end "
        "redis.call('SET', 'vow:p:{short}', 1) "
        "redis.call('SET', 'vow:p:{' .. string.rep('!', 43) .. '}', 1) "
        "redis.call('SET', 'vow:p:{' .. string.rep('A', 43) .. '}:w', 1) "
        "redis.call('SET', 'vow:s:{' .. string.rep('A', 43) .. '}:x', 1) "
        "redis.call('SET', 'xvow:p:{' .. string.rep('A', 43) .. '}', 1) "
        "return 'OK'";
    char name[32];
    CHECK_STR_EQ(redis_say(server(r), "EVAL", strangers, "0", NULL), "OK");
    for (uint64_t i = 0; i < NAMES; i++) {
        snprintf(name, sizeof(name), "name %llu", (unsigned long long)i);
        CHECK_UINT_EQ(rig_claim(r, 0, ASK(name, i, .label = name)).status,
                      VOW_STATUS_OWNED);
    }
    CHECK_UINT_EQ(rig_list(r, 1, list, NAMES + 1), NAMES);
    for (size_t i = 0; i < NAMES; i++) {
        vow_name want = rig_name(list[i].label);
        CHECK(vow_name_equal(&list[i].name, &want));
        CHECK_UINT_EQ(list[i].status, VOW_STATUS_WAITING);
    }
    CHECK_UINT_EQ(rig_pools(r, 1, NULL, 0), 0);
}

TEST(redis_look, lists_many_names_among_keys_of_others)
{
    contract_run(&rig_redis, among_others);
}

/* ---- prefixes ------------------------------------------------------------ */

static const char *prefix;

static vow_store *open_prefixed(struct rig *r)
{
    VOW_AUTO(vow_future)
    opened = vow_store_redis_open(r->world.loop, server(r)->url,
                                  VOW_REDIS_OPTS(.value_max = RIG_VALUE_MAX,
                                                 .timeout_ms = 60000,
                                                 .prefix = prefix));
    CHECK_INT_EQ(vow_state_of(opened), VOW_FULFILLED);
    return vow_as_ptr(vow_get(opened));
}

static void each_its_own(struct rig *r)
{
    static const char *const prefixes[] = {"a:", "ab:", "a-b:", "A:"};
    struct rig_store kind = rig_redis;
    struct rig_answer list[8];
    kind.open = open_prefixed;
    r->store = &kind;
    for (size_t i = 0; i < 4; i++) {
        rig_close(r, i);
        prefix = prefixes[i];
        rig_reopen(r, i);
        CHECK_UINT_EQ(rig_claim(r, i, ASK("a", 1)).status, VOW_STATUS_OWNED);
        (void)rig_acquire(r, i, PLACE("p", 1));
    }
    for (size_t i = 0; i < 4; i++) {
        CHECK_UINT_EQ(rig_list(r, i, list, 8), 1);
        CHECK_UINT_EQ(rig_pools(r, i, NULL, 0), 1);
    }
    r->store = &rig_redis;
}

TEST(redis_look, each_prefix_is_a_store_of_its_own)
{
    contract_run(&rig_redis, each_its_own);
}

/* ---- without memory ------------------------------------------------------ */

struct answer {
    unsigned done;
    int code;
};

static void on_places(int code, const vow_pool_permit *places, size_t n,
                      void *user)
{
    struct answer *a = user;
    a->done++;
    a->code = code;
    CHECK(code == 0 || n == 0);
    (void)places;
}

static void on_pools(int code, const vow_pool_info *pools, size_t n, void *user)
{
    struct answer *a = user;
    a->done++;
    a->code = code;
    CHECK(code == 0 || n == 0);
    (void)pools;
}

static void on_records(int code, const vow_record *records, size_t n,
                       void *user)
{
    struct answer *a = user;
    a->done++;
    a->code = code;
    CHECK(code == 0 || n == 0);
    (void)records;
}

static void on_findings(int code, const vow_finding *findings, size_t n,
                        void *user)
{
    struct answer *a = user;
    a->done++;
    a->code = code;
    CHECK(code == 0 || n == 0);
    (void)findings;
}

enum { STEPS = 8 };

static void begin_step(vow_store *s, int step, struct answer *a)
{
    vow_pool_limits limits = {.concurrent = 2, .rate = 50, .window_us = 1000};
    vow_name p = rig_name("p");
    vow_permit_request ask = *PLACE("p:a", 9);
    vow_permit_hold holds[] = {
        {ask.pool, ask.limits_of, ask.token, false},
        {rig_name("q"), rig_name("q"), rig_token(4), false},
    };
    if (step == 0)
        s->ops->acquire(s, &ask, on_places, a);
    else if (step == 1)
        s->ops->renew(s, holds, 2, LONG_MS, on_places, a);
    else if (step == 2)
        s->ops->limit(s, &p, &limits, "p", on_pools, a);
    else if (step == 3)
        s->ops->limit(s, &p, NULL, NULL, on_pools, a);
    else if (step == 4)
        s->ops->pools(s, on_pools, a);
    else if (step == 5)
        s->ops->list(s, on_records, a);
    else if (step == 6)
        s->ops->examine(s, on_findings, a);
    else
        s->ops->release(s, holds, on_places, a);
}

/* One that is in the way of nothing that comes later. */
static bool fails_as_it_may(int code)
{
    return code == VOW_ENOMEM || code == VOW_ESTORE || code == VOW_EUNSURE ||
           code == VOW_EAGAIN;
}

static void try_step(struct rig *r, int step)
{
    struct test_alloc *alloc = &r->world.alloc;
    for (uint64_t nth = 1; nth < 2000; nth++) {
        struct answer a = {.done = 0};
        uint64_t fails = alloc->fails;
        alloc->fail_at = alloc->allocs + nth;
        begin_step(r->at[0], step, &a);
        while (a.done == 0) /* rig_expect() needs memory of its own */
            (void)uv_run(vow_loop_uv(r->world.loop), UV_RUN_ONCE);
        alloc->fail_at = 0;
        CHECK_UINT_EQ(a.done, 1);
        CHECK(a.code == 0 || fails_as_it_may(a.code));
        bool fired = alloc->fails > fails;
        CHECK(a.code == 0 || fired);
        for (int i = 0; i < 100 && a.code != 0; i++) {
            a = (struct answer){.done = 0};
            begin_step(r->at[0], step, &a);
            rig_expect(r, &a.done, 1);
            rig_advance_ms(r, a.code == 0 ? 0 : 20);
        }
        CHECK_INT_EQ(a.code, 0);
        if (!fired)
            return;
    }
    FAIL("the sweep does not end");
}

static void sweep(struct rig *r)
{
    (void)rig_claim(r, 1, ASK("a", 1, .label = "a", .runner = "b"));
    (void)rig_acquire(
        r, 1,
        PLACE("p:b", 1,
              .limits = {.concurrent = 1, .rate = 9, .window_us = 1000000}));
    (void)rig_acquire(r, 1, PLACE("p:b", 2));
    (void)rig_acquire(r, 1, PLACE("q", 3));
    for (int i = 0; i < STEPS; i++)
        try_step(r, i);
}

TEST(redis_look, every_block_of_memory_may_be_missing)
{
    contract_run(&rig_redis, sweep);
}
