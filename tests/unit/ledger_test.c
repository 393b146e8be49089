/* SPDX-License-Identifier: MIT */
#include "store/ledger.h"
#include "world.h"

static const struct vow_alloc PLAIN = {.fn = NULL};

static void add(struct vow__ledger *l, const vow_pool_limits *limits,
                uint32_t weight, uint64_t now_us)
{
    vow__ledger_expire(l, limits->window_us, now_us);
    CHECK_INT_EQ(vow__ledger_reserve(l, &PLAIN), 0);
    vow__ledger_add(l, limits, weight, now_us);
}

TEST(ledger, a_window_is_closed_at_both_ends)
{
    vow_pool_limits limits = {.rate = 2, .window_us = 100};
    struct vow__ledger l = {.n = 0};
    CHECK_UINT_EQ(vow__ledger_when(&l, &limits, 0, 2, 50), 50);
    add(&l, &limits, 1, 50);
    add(&l, &limits, 1, 60);
    CHECK_UINT_EQ(vow__ledger_when(&l, &limits, 0, 1, 60), 151);
    CHECK_UINT_EQ(vow__ledger_when(&l, &limits, 0, 2, 60), 161);
    vow__ledger_expire(&l, limits.window_us, 150);
    CHECK_UINT_EQ(vow__ledger_used(&l), 2);
    vow__ledger_expire(&l, limits.window_us, 151);
    CHECK_UINT_EQ(vow__ledger_used(&l), 1);
    CHECK_UINT_EQ(vow__ledger_when(&l, &limits, 0, 1, 151), 151);
    CHECK_UINT_EQ(vow__ledger_over_us(&l, limits.window_us), 161);
    vow__ledger_fini(&l, &PLAIN);
}

TEST(ledger, who_stands_behind_others_waits_whole_windows)
{
    vow_pool_limits limits = {.rate = 3, .window_us = 99};
    struct vow__ledger l = {.n = 0};
    CHECK_UINT_EQ(vow__ledger_when(&l, &limits, 2, 1, 0), 0);
    CHECK_UINT_EQ(vow__ledger_when(&l, &limits, 3, 1, 0), 100);
    CHECK_UINT_EQ(vow__ledger_when(&l, &limits, 5, 1, 0), 100);
    CHECK_UINT_EQ(vow__ledger_when(&l, &limits, 6, 1, 0), 200);
    add(&l, &limits, 1, 10);
    CHECK_UINT_EQ(vow__ledger_when(&l, &limits, 1, 1, 20), 20);
    CHECK_UINT_EQ(vow__ledger_when(&l, &limits, 2, 1, 20), 110);
    CHECK_UINT_EQ(vow__ledger_when(&l, &limits, 5, 1, 20), 210);
    vow__ledger_fini(&l, &PLAIN);
}

TEST(ledger, spans_without_end_do_not_overflow)
{
    vow_pool_limits limits = {.rate = 1, .window_us = UINT64_MAX};
    struct vow__ledger l = {.n = 0};
    add(&l, &limits, 1, 5);
    CHECK_UINT_EQ(vow__ledger_when(&l, &limits, 0, 1, 6), UINT64_MAX);
    CHECK_UINT_EQ(vow__ledger_when(&l, &limits, UINT32_MAX, 1, 6), UINT64_MAX);
    vow__ledger_expire(&l, limits.window_us, UINT64_MAX - 1);
    CHECK_UINT_EQ(vow__ledger_used(&l), 1);
    vow__ledger_fini(&l, &PLAIN);
}

/* A rate above the number of entries: entries are shared, and no window has
 * too much. */
TEST(ledger, a_high_rate_has_few_entries_and_is_never_exceeded)
{
    enum { RATE = 200000, WINDOW = 1000000, N = 300000 };
    static uint64_t granted[N];
    vow_pool_limits limits = {.rate = RATE, .window_us = WINDOW};
    struct vow__ledger l = {.n = 0};
    uint64_t seed = test_seed();
    uint64_t now = 0;
    for (size_t i = 0; i < N; i++) {
        now += test_random(&seed) % 6;
        vow__ledger_expire(&l, WINDOW, now);
        uint64_t when = vow__ledger_when(&l, &limits, 0, 1, now);
        now = when > now ? when : now;
        add(&l, &limits, 1, now);
        granted[i] = now;
        CHECK(l.n <= 10002);
        if (i >= RATE)
            CHECK(granted[i] - granted[i - RATE] > WINDOW);
    }
    CHECK(now < (uint64_t)N * WINDOW / RATE + WINDOW + WINDOW / 100);
    vow__ledger_fini(&l, &PLAIN);
}
