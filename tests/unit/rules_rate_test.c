/* SPDX-License-Identifier: MIT */
/* rules_rate_test.c - the rate log: exact windows, shared entries. */
#include "harness.h"
#include "store/rules/pool.h"

struct log {
    struct rules_rate rate;
    struct rules_start starts[RULES_RATE_ENTRIES];
};

static void log_open(struct log *l, uint32_t room)
{
    *l = (struct log){.rate = {.room = room}};
    l->rate.starts = l->starts;
}

TEST(rules_rate, a_window_is_closed_at_both_ends)
{
    vow_pool_limits limits = {.rate = 2, .window_us = 100};
    struct log l;
    log_open(&l, RULES_RATE_ENTRIES);
    CHECK_UINT_EQ(vow__rules_rate_over(&l.rate, &limits), 0);
    CHECK_UINT_EQ(vow__rules_rate_when(&l.rate, &limits, 0, 0, 2, 50), 50);
    vow__rules_rate_add(&l.rate, &limits, 1, 50);
    vow__rules_rate_add(&l.rate, &limits, 1, 60);
    CHECK_UINT_EQ(vow__rules_rate_when(&l.rate, &limits, 0, 0, 1, 60), 151);
    CHECK_UINT_EQ(vow__rules_rate_when(&l.rate, &limits, 0, 0, 2, 60), 161);
    CHECK_UINT_EQ(vow__rules_rate_used(&l.rate, &limits, 150), 2);
    CHECK_UINT_EQ(vow__rules_rate_used(&l.rate, &limits, 151), 1);
    CHECK_UINT_EQ(vow__rules_rate_when(&l.rate, &limits, 0, 0, 1, 151), 151);
    CHECK_UINT_EQ(vow__rules_rate_when(&l.rate, &limits, 0, 0, 2, 151), 161);
    CHECK_UINT_EQ(vow__rules_rate_over(&l.rate, &limits), 161);
    CHECK_UINT_EQ(vow__rules_rate_used(&l.rate, &limits, 161), 0);
}

TEST(rules_rate, requests_behind_others_wait_whole_windows)
{
    vow_pool_limits limits = {.rate = 3, .window_us = 99};
    struct log l;
    log_open(&l, RULES_RATE_ENTRIES);
    CHECK_UINT_EQ(vow__rules_rate_when(&l.rate, &limits, 0, 2, 1, 0), 0);
    CHECK_UINT_EQ(vow__rules_rate_when(&l.rate, &limits, 0, 3, 1, 0), 100);
    CHECK_UINT_EQ(vow__rules_rate_when(&l.rate, &limits, 0, 5, 1, 0), 100);
    CHECK_UINT_EQ(vow__rules_rate_when(&l.rate, &limits, 0, 6, 1, 0), 200);
    vow__rules_rate_add(&l.rate, &limits, 1, 10);
    CHECK_UINT_EQ(vow__rules_rate_when(&l.rate, &limits, 0, 1, 1, 20), 20);
    CHECK_UINT_EQ(vow__rules_rate_when(&l.rate, &limits, 0, 2, 1, 20), 110);
    CHECK_UINT_EQ(vow__rules_rate_when(&l.rate, &limits, 0, 5, 1, 20), 210);
}

/* An open permit starts at the earliest now, so it leaves a window from now. */
TEST(rules_rate, open_weight_counts_as_of_now)
{
    vow_pool_limits limits = {.rate = 3, .window_us = 99};
    struct log l;
    log_open(&l, RULES_RATE_ENTRIES);
    vow__rules_rate_add(&l.rate, &limits, 1, 10);
    CHECK_UINT_EQ(vow__rules_rate_when(&l.rate, &limits, 1, 0, 1, 20), 20);
    CHECK_UINT_EQ(vow__rules_rate_when(&l.rate, &limits, 1, 0, 2, 20), 110);
    CHECK_UINT_EQ(vow__rules_rate_when(&l.rate, &limits, 1, 0, 3, 20), 120);
    CHECK_UINT_EQ(vow__rules_rate_when(&l.rate, &limits, 2, 0, 1, 20), 110);
    CHECK_UINT_EQ(vow__rules_rate_when(&l.rate, &limits, 2, 0, 2, 20), 120);
}

TEST(rules_rate, spans_without_end_do_not_overflow)
{
    vow_pool_limits limits = {.rate = 1, .window_us = UINT64_MAX};
    struct log l;
    log_open(&l, RULES_RATE_ENTRIES);
    vow__rules_rate_add(&l.rate, &limits, 1, 5);
    CHECK_UINT_EQ(vow__rules_rate_when(&l.rate, &limits, 0, 0, 1, 6),
                  UINT64_MAX);
    CHECK_UINT_EQ(vow__rules_rate_when(&l.rate, &limits, 0, UINT32_MAX, 1, 6),
                  UINT64_MAX);
    CHECK_UINT_EQ(vow__rules_rate_used(&l.rate, &limits, UINT64_MAX - 1), 1);
    CHECK_UINT_EQ(vow__rules_rate_over(&l.rate, &limits), UINT64_MAX);
    limits.window_us = 1000;
    CHECK_UINT_EQ(
        vow__rules_rate_when(&l.rate, &limits, 0, UINT64_MAX / 2, 1, 6),
        UINT64_MAX);
}

TEST(rules_rate, a_rate_of_zero_enters_nothing)
{
    vow_pool_limits limits = {.rate = 0, .window_us = 100};
    struct log l;
    log_open(&l, RULES_RATE_ENTRIES);
    vow__rules_rate_add(&l.rate, &limits, 1, 5);
    CHECK_UINT_EQ(l.rate.n, 0);
    limits.rate = 1;
    vow__rules_rate_add(&l.rate, &limits, 0, 5); /* nor does no weight */
    CHECK_UINT_EQ(l.rate.n, 0);
}

TEST(rules_rate, up_to_256_each_time_has_its_own_entry)
{
    vow_pool_limits limits = {.rate = RULES_RATE_PARTS, .window_us = 25600000};
    struct log l;
    log_open(&l, RULES_RATE_ENTRIES);
    for (uint32_t i = 0; i < RULES_RATE_PARTS; i++)
        vow__rules_rate_add(&l.rate, &limits, 1, 1000 + i);
    CHECK_UINT_EQ(l.rate.n, RULES_RATE_PARTS);
    vow__rules_rate_add(&l.rate, &limits, 1, 999 + RULES_RATE_PARTS);
    CHECK_UINT_EQ(l.rate.n, RULES_RATE_PARTS); /* the same time */
    for (uint32_t i = 0; i < RULES_RATE_PARTS; i++)
        CHECK_UINT_EQ(l.starts[i].at_us, 1000 + i);
    limits.rate++;
    vow__rules_rate_add(&l.rate, &limits, 1, 5000);
    CHECK_UINT_EQ(l.rate.n, RULES_RATE_PARTS); /* shared from here on */
    CHECK_UINT_EQ(l.starts[RULES_RATE_PARTS - 1].weight, 3);
    CHECK_UINT_EQ(l.starts[RULES_RATE_PARTS - 1].at_us, 5000);
}

/* Sharing is counted from the first start of an entry, and never crosses to
 * the entry before. */
TEST(rules_rate, starts_within_a_part_of_the_window_share_an_entry)
{
    vow_pool_limits limits = {.rate = 1000, .window_us = 256 * 100 + 99};
    struct log l;
    log_open(&l, RULES_RATE_ENTRIES);
    vow__rules_rate_add(&l.rate, &limits, 1, 1000);
    vow__rules_rate_add(&l.rate, &limits, 2, 1060);
    vow__rules_rate_add(&l.rate, &limits, 3, 1100);
    CHECK_UINT_EQ(l.rate.n, 1);
    CHECK_UINT_EQ(l.starts[0].weight, 6);
    CHECK_UINT_EQ(l.starts[0].at_us, 1100);
    vow__rules_rate_add(&l.rate, &limits, 4, 1101);
    CHECK_UINT_EQ(l.rate.n, 2);
    CHECK_UINT_EQ(l.starts[0].at_us, 1100);
    vow__rules_rate_add(&l.rate, &limits, 1, 1201);
    CHECK_UINT_EQ(l.rate.n, 2);
    CHECK_UINT_EQ(l.starts[1].weight, 5);
    vow__rules_rate_add(&l.rate, &limits, 1, 1202);
    CHECK_UINT_EQ(l.rate.n, 3);
}

/* So a step adds at most one entry, whatever was shared before. */
TEST(rules_rate, starts_at_the_same_time_share_an_entry)
{
    vow_pool_limits limits = {.rate = 1000, .window_us = 256 * 100};
    struct log l;
    log_open(&l, RULES_RATE_ENTRIES);
    vow__rules_rate_add(&l.rate, &limits, 1, 1000);
    vow__rules_rate_add(&l.rate, &limits, 1, 1100);
    limits.rate = 100;
    vow__rules_rate_add(&l.rate, &limits, 1, 1100);
    CHECK_UINT_EQ(l.rate.n, 1);
    vow__rules_rate_add(&l.rate, &limits, 1, 1101);
    CHECK_UINT_EQ(l.rate.n, 2);
}

/* First starts as close as can be: a window has 257 entries, and no more. */
TEST(rules_rate, a_window_has_at_most_257_entries)
{
    enum { PART = 1000, WINDOW = 256 * PART + 255 };
    vow_pool_limits limits = {.rate = 100000, .window_us = WINDOW};
    struct log l;
    log_open(&l, RULES_RATE_ENTRIES);
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t first = i * (PART + 1);
        vow__rules_rate_add(&l.rate, &limits, 1, first);
        CHECK_UINT_EQ(l.rate.n, i < 257 ? i + 1 : 257);
        CHECK_UINT_EQ(l.rate.began_us, first);
        vow__rules_rate_add(&l.rate, &limits, 1, first + PART);
        CHECK_UINT_EQ(l.rate.began_us, first);
    }
}

TEST(rules_rate, time_that_falls_counts_as_standing)
{
    vow_pool_limits limits = {.rate = 5, .window_us = 100};
    struct log l;
    log_open(&l, RULES_RATE_ENTRIES);
    vow__rules_rate_add(&l.rate, &limits, 1, 500);
    vow__rules_rate_add(&l.rate, &limits, 1, 400);
    CHECK_UINT_EQ(l.rate.n, 1);
    CHECK_UINT_EQ(l.starts[0].at_us, 500);
    CHECK_UINT_EQ(vow__rules_rate_used(&l.rate, &limits, 600), 2);
}

/* The log is bounded, and all weight in it stays until it may leave. */
TEST(rules_rate, a_full_log_joins_the_newest_entry)
{
    vow_pool_limits limits = {.rate = 200, .window_us = 1000000};
    struct log l;
    log_open(&l, 4);
    for (uint64_t i = 0; i < 10; i++)
        vow__rules_rate_add(&l.rate, &limits, 1, 1000 * i);
    CHECK_UINT_EQ(l.rate.n, 4);
    CHECK_UINT_EQ(l.starts[3].at_us, 9000);
    CHECK_UINT_EQ(vow__rules_rate_used(&l.rate, &limits, 1000000), 10);
    CHECK_UINT_EQ(vow__rules_rate_used(&l.rate, &limits, 1000001), 9);
    CHECK_UINT_EQ(vow__rules_rate_used(&l.rate, &limits, 1009000), 7);
    vow__rules_rate_add(&l.rate, &limits, 1, 1000001);
    CHECK_UINT_EQ(l.rate.n, 4); /* what has left makes room */
    CHECK_UINT_EQ(l.starts[3].at_us, 1000001);
    CHECK_UINT_EQ(l.starts[3].weight, 1);
}

/* For rates and windows of all kinds: starts as early as the log allows, of
 * random weights, are never too many in a window, and weight leaves at most a
 * part of the window late. */
static void run_rate(uint32_t rate, uint64_t window_us, uint64_t *seed)
{
    enum { N = 6000 };
    static struct {
        uint64_t at_us, sum;
    } s[N];
    vow_pool_limits limits = {.rate = rate, .window_us = window_us};
    uint64_t part = rate > RULES_RATE_PARTS ? window_us / RULES_RATE_PARTS : 0;
    uint64_t sum = 0;
    uint64_t now = 7;
    size_t first = 0;
    struct log l;
    log_open(&l, RULES_RATE_ENTRIES);
    for (size_t i = 0; i < N; i++) {
        uint64_t most = test_random(seed) % 3 == 0 ? 20 : 2;
        uint64_t weight =
            1 + test_random(seed) % (1 + rate * most / 1000 % rate);
        now += test_random(seed) % (1 + window_us * most / 1000);
        uint64_t when =
            vow__rules_rate_when(&l.rate, &limits, 0, 0, weight, now);
        /* What an exact log allows: starts of which so much has left. */
        uint64_t over = sum + weight > rate ? sum + weight - rate : 0;
        while (first < i && s[first].sum < over)
            first++;
        uint64_t exact = over == 0 ? 0 : s[first].at_us + window_us + 1;
        CHECK(when >= exact);
        CHECK(when <= (exact > now ? exact : now) + part);
        now = when > now ? when : now;
        CHECK(vow__rules_rate_used(&l.rate, &limits, now) + weight <= rate);
        vow__rules_rate_add(&l.rate, &limits, weight, now);
        sum += weight;
        s[i].at_us = now;
        s[i].sum = sum;
        CHECK(l.rate.n <= l.rate.room);
    }
}

TEST(rules_rate, no_window_has_too_much_and_none_is_too_long)
{
    static const uint64_t windows[] = {0,     1,       2,       255,    256,
                                       257,   1000,    25600,   256001, 511999,
                                       65535, 1000000, 60000000};
    static const uint32_t rates[] = {1,   2,   7,   100,  255,
                                     256, 257, 300, 5000, 1000000};
    uint64_t seed = test_seed();
    for (size_t w = 0; w < sizeof(windows) / sizeof(windows[0]); w++)
        for (size_t r = 0; r < sizeof(rates) / sizeof(rates[0]); r++)
            run_rate(rates[r], windows[w], &seed);
}
