/* SPDX-License-Identifier: MIT */
/* quota_test.c - how much may run at once and start within a window: the ring,
 * windows closed at both ends, weights, changes; and each answer compared with
 * a model that counts all starts there ever were. */
#include "coord/quota.h"
#include "world.h"

#include <string.h>

enum { STARTS = 4000, WINDOW = 100 };

/* A quota, and every unit of weight that ever started under it. */
struct fixture {
    struct test_alloc alloc;
    struct vow_alloc hook;
    struct vow__coord_quota quota;
    uint64_t starts[STARTS];
    size_t n;
};

static void open_quota(struct fixture *x, struct vow__coord_limits limits)
{
    memset(x, 0, sizeof(*x));
    test_alloc_init(&x->alloc);
    x->hook = test_alloc_hook(&x->alloc);
    CHECK_INT_EQ(vow__coord_quota_init(&x->quota, &x->hook, limits), 0);
}

static void open_rate(struct fixture *x, uint32_t rate)
{
    open_quota(x,
               (struct vow__coord_limits){.rate = rate, .window_ns = WINDOW});
}

static void close_quota(struct fixture *x)
{
    vow__coord_quota_fini(&x->quota, &x->hook);
    vow__coord_quota_fini(&x->quota, &x->hook); /* it frees once */
    test_alloc_fini(TEST_HERE, &x->alloc);
}

static void start(struct fixture *x, uint32_t weight, uint64_t now)
{
    CHECK(x->n + weight <= STARTS);
    for (uint32_t i = 0; i < weight; i++)
        x->starts[x->n++] = now;
    vow__coord_quota_stamp(&x->quota, weight, now);
}

static void change(struct fixture *x, struct vow__coord_limits limits,
                   uint64_t now)
{
    struct vow__coord_quota fresh;
    CHECK_INT_EQ(
        vow__coord_quota_prepare(&fresh, &x->quota, &x->hook, limits, now), 0);
    vow__coord_quota_replace(&x->quota, &fresh, &x->hook);
    CHECK_UINT_EQ(x->alloc.live_blocks, x->quota.room > 0);
}

/* When the last of `n` units may start that all start as soon as they may: the
 * one that is `rate` before it has left, and now is not over. */
static uint64_t model_when(const struct fixture *x, uint64_t n, uint64_t now)
{
    static uint64_t times[2 * STARTS];
    const uint64_t rate = x->quota.rate;
    uint64_t when = now;
    memcpy(times, x->starts, x->n * sizeof(times[0]));
    for (uint64_t i = x->n; i < x->n + n; i++) {
        if (i >= rate && times[i - rate] + x->quota.window_ns + 1 > when)
            when = times[i - rate] + x->quota.window_ns + 1;
        times[i] = when;
    }
    return when;
}

/* ---- at once ------------------------------------------------------------ */

TEST(quota, without_limits_everything_fits_and_nothing_is_kept)
{
    struct fixture x;
    open_quota(&x, (struct vow__coord_limits){.window_ns = WINDOW});
    CHECK_UINT_EQ(x.alloc.allocs, 0);
    for (uint64_t now = 0; now < 10; now++) {
        CHECK(vow__coord_quota_possible(&x.quota, UINT32_MAX));
        CHECK(vow__coord_quota_fits(&x.quota, UINT32_MAX));
        CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1000, now), 0);
        CHECK_UINT_EQ(vow__coord_quota_earliest(&x.quota, 1000, 1, now), now);
        vow__coord_quota_stamp(&x.quota, 1000, now);
    }
    CHECK_UINT_EQ(vow__coord_quota_forgotten_ns(&x.quota), 0);
    close_quota(&x);
}

TEST(quota, so_much_fits_at_once)
{
    struct fixture x;
    open_quota(&x, (struct vow__coord_limits){.most = 3, .window_ns = WINDOW});
    CHECK(vow__coord_quota_possible(&x.quota, 3));
    CHECK(!vow__coord_quota_possible(&x.quota, 4));
    CHECK(vow__coord_quota_fits(&x.quota, 3));
    CHECK(!vow__coord_quota_fits(&x.quota, 4));
    x.quota.held = 2;
    CHECK(vow__coord_quota_fits(&x.quota, 1));
    CHECK(!vow__coord_quota_fits(&x.quota, 2));
    CHECK(!vow__coord_quota_fits(&x.quota, UINT32_MAX)); /* nothing wraps */
    x.quota.held = 5;                                    /* after a change */
    CHECK(!vow__coord_quota_fits(&x.quota, 1));
    CHECK(vow__coord_quota_fits(&x.quota, 0)); /* in the places of another */
    close_quota(&x);
}

/* While the limit is adapted to less than the weight of a job. */
TEST(quota, alone_as_much_may_run_as_the_limit_may_become)
{
    struct fixture x;
    open_quota(&x, (struct vow__coord_limits){.most = 8, .window_ns = WINDOW});
    x.quota.most = 2;
    CHECK(vow__coord_quota_fits(&x.quota, 8));
    CHECK(!vow__coord_quota_fits(&x.quota, 9));
    x.quota.held = 1;
    CHECK(vow__coord_quota_fits(&x.quota, 1));
    CHECK(!vow__coord_quota_fits(&x.quota, 2));
    close_quota(&x);
}

TEST(quota, more_than_the_rate_will_never_start)
{
    struct fixture x;
    open_rate(&x, 3);
    CHECK(vow__coord_quota_possible(&x.quota, 3));
    CHECK(!vow__coord_quota_possible(&x.quota, 4));
    close_quota(&x);
}

TEST(quota, without_memory_for_its_ring_there_is_none)
{
    struct fixture x;
    open_rate(&x, 0);
    x.alloc.fail_at = 1;
    CHECK_INT_EQ(vow__coord_quota_init(&x.quota, &x.hook,
                                       (struct vow__coord_limits){.rate = 4}),
                 VOW_ENOMEM);
    close_quota(&x);
}

/* ---- windows ------------------------------------------------------------ */

TEST(quota, a_window_is_closed_at_both_ends)
{
    struct fixture x;
    open_rate(&x, 2);
    start(&x, 1, 10);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 10), 0);
    start(&x, 1, 20);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 20), 111);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 110), 111);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 111), 0);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 2, 111), 121);
    CHECK_UINT_EQ(vow__coord_quota_forgotten_ns(&x.quota), 121);
    close_quota(&x);
}

TEST(quota, the_ring_goes_round_and_keeps_the_last)
{
    struct fixture x;
    open_rate(&x, 3);
    for (uint64_t i = 0; i < 20; i++) {
        uint64_t now = i * 50;
        CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, now), 0);
        start(&x, 1, now);
        CHECK_UINT_EQ(x.quota.used, i < 3 ? i + 1 : 3);
        CHECK_UINT_EQ(vow__coord_quota_forgotten_ns(&x.quota),
                      now + WINDOW + 1);
    }
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 950), 951); /* of 850 */
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 3, 950), 1051);
    close_quota(&x);
}

TEST(quota, what_is_let_in_and_not_stamped_counts)
{
    struct fixture x;
    open_rate(&x, 3);
    start(&x, 1, 0);
    x.quota.reserved = 1;
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 0), 0);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 2, 0), 101);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 3, 0),
                  UINT64_MAX); /* who knows */
    CHECK_UINT_EQ(vow__coord_quota_earliest(&x.quota, 0, 2, 0), 101);
    x.quota.reserved = 2;
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 0), 101);
    close_quota(&x);
}

TEST(quota, at_the_end_of_time_nothing_wraps)
{
    struct fixture x;
    open_quota(
        &x, (struct vow__coord_limits){.rate = 1, .window_ns = UINT64_MAX / 2});
    start(&x, 1, UINT64_MAX - 10);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, UINT64_MAX - 5),
                  UINT64_MAX);
    CHECK_UINT_EQ(vow__coord_quota_earliest(&x.quota, 9, 1, UINT64_MAX - 5),
                  UINT64_MAX);
    CHECK_UINT_EQ(vow__coord_quota_earliest(&x.quota, UINT64_MAX / 2, 1, 5),
                  UINT64_MAX);
    CHECK_UINT_EQ(vow__coord_quota_forgotten_ns(&x.quota), UINT64_MAX);
    close_quota(&x);
}

/* ---- even --------------------------------------------------------------- */

TEST(quota, even_each_start_uses_up_its_share_of_the_window)
{
    struct fixture x;
    open_quota(&x, (struct vow__coord_limits){
                       .rate = 4, .window_ns = WINDOW, .even = true});
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 7), 0);
    start(&x, 1, 7);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 7), 32);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 32), 0);
    start(&x, 2, 32);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 32), 82);
    x.quota.reserved = 1;
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 200), UINT64_MAX);
    close_quota(&x);
}

TEST(quota, even_a_share_is_rounded_up)
{
    struct fixture x;
    open_quota(&x, (struct vow__coord_limits){
                       .rate = 3, .window_ns = WINDOW, .even = true});
    start(&x, 1, 0);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 0), 34);
    CHECK_UINT_EQ(vow__coord_quota_earliest(&x.quota, 0, 1, 0), 34);
    start(&x, 2, 34);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 34), 101); /* 34 + 66.7 */
    close_quota(&x);
}

TEST(quota, even_from_now_on_counts_from_the_last_start)
{
    struct fixture x;
    struct vow__coord_limits even = {
        .rate = 4, .window_ns = WINDOW, .even = true};
    open_rate(&x, 4);
    start(&x, 1, 10);
    vow__coord_quota_change(&x.quota, even);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 10), 35);
    even.rate = 2;
    change(&x, even, 20);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 20), 60);
    even.even = false;
    vow__coord_quota_change(&x.quota, even);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 20), 0);
    close_quota(&x);
}

/* ---- changes ------------------------------------------------------------ */

TEST(quota, a_change_of_the_window_counts_what_has_started)
{
    struct fixture x;
    open_rate(&x, 1);
    start(&x, 1, 10);
    vow__coord_quota_change(
        &x.quota, (struct vow__coord_limits){.rate = 1, .window_ns = 500});
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 200), 511);
    vow__coord_quota_change(
        &x.quota, (struct vow__coord_limits){.rate = 1, .window_ns = 20});
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 20), 31);
    close_quota(&x);
}

TEST(quota, lowered_and_raised_within_a_window_no_start_is_forgotten)
{
    struct fixture x;
    struct vow__coord_limits limits = {.rate = 2, .window_ns = WINDOW};
    open_rate(&x, 10);
    for (uint64_t i = 0; i < 10; i++)
        start(&x, 1, i);
    change(&x, limits, 20);
    CHECK_UINT_EQ(x.quota.room, 10);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 20), 8 + WINDOW + 1);
    limits.rate = 10;
    change(&x, limits, 30);
    for (uint32_t weight = 1; weight <= 10; weight++)
        CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, weight, 30),
                      weight - 1 + WINDOW + 1);
    close_quota(&x);
}

TEST(quota, a_change_after_the_window_needs_no_longer_ring)
{
    struct fixture x;
    open_rate(&x, 10);
    start(&x, 10, 0);
    change(&x, (struct vow__coord_limits){.rate = 2, .window_ns = WINDOW}, 101);
    CHECK_UINT_EQ(x.quota.room, 2);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 2, 101), 0);
    close_quota(&x);
}

TEST(quota, without_a_rate_for_a_while_it_remembers_what_it_knew)
{
    struct fixture x;
    struct vow__coord_limits limits = {.rate = 0, .window_ns = WINDOW};
    open_rate(&x, 2);
    start(&x, 2, 0);
    change(&x, limits, 10);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 10), 0);
    limits.rate = 2;
    change(&x, limits, 20);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 20), 101);
    close_quota(&x);
}

TEST(quota, a_change_keeps_what_is_held_and_reserved)
{
    struct fixture x;
    open_quota(&x, (struct vow__coord_limits){
                       .most = 5, .rate = 5, .window_ns = WINDOW});
    x.quota.held = 4;
    x.quota.reserved = 3;
    change(
        &x,
        (struct vow__coord_limits){.most = 2, .rate = 4, .window_ns = WINDOW},
        0);
    CHECK_UINT_EQ(x.quota.held, 4);
    CHECK_UINT_EQ(x.quota.most, 2);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 0), 0);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 2, 0), UINT64_MAX);
    close_quota(&x);
}

TEST(quota, without_memory_for_a_change_nothing_changed)
{
    struct fixture x;
    struct vow__coord_quota fresh;
    open_rate(&x, 2);
    start(&x, 2, 0);
    x.alloc.fail_at = x.alloc.allocs + 1;
    CHECK_INT_EQ(vow__coord_quota_prepare(
                     &fresh, &x.quota, &x.hook,
                     (struct vow__coord_limits){.rate = 9, .window_ns = WINDOW},
                     0),
                 VOW_ENOMEM);
    vow__coord_quota_fini(&fresh, &x.hook);
    CHECK_UINT_EQ(vow__coord_quota_when(&x.quota, 1, 0), 101);
    close_quota(&x);
}

/* ---- against the model -------------------------------------------------- */

static void check_answers(const struct fixture *x, uint64_t r, uint64_t now)
{
    const uint32_t weight = (uint32_t)(r % x->quota.rate) + 1;
    const uint64_t ahead = (r >> 16) % 40;
    uint64_t when = vow__coord_quota_when(&x->quota, weight, now);
    CHECK_UINT_EQ(when == 0 ? now : when, model_when(x, weight, now));
    /* Without weights among those ahead it is more than a bound. */
    CHECK_UINT_EQ(vow__coord_quota_earliest(&x->quota, ahead, weight, now),
                  model_when(x, ahead + weight, now));
}

/* Starts whenever it may, at random times and weights; with changes of the
 * rate between starts, of which all are known that may count. */
static void run_model(uint64_t seed, bool changes)
{
    static struct fixture x;
    uint64_t random = seed;
    uint64_t now = 0;
    open_rate(&x, (uint32_t)(test_random(&random) % 12) + 1);
    for (int round = 0; round < 300; round++) {
        uint64_t r = test_random(&random);
        now += (r >> 40) % 30;
        check_answers(&x, r, now);
        uint32_t weight = (uint32_t)((r >> 8) % x.quota.rate) + 1;
        if (vow__coord_quota_when(&x.quota, weight, now) == 0)
            start(&x, weight, now);
        if (changes && (r >> 32) % 8 == 0)
            change(
                &x,
                (struct vow__coord_limits){.rate = (uint32_t)(r >> 24) % 12 + 1,
                                           .window_ns = WINDOW},
                now);
    }
    close_quota(&x);
}

TEST(quota, answers_as_if_it_counted_all_starts)
{
    uint64_t random = test_seed();
    for (int i = 0; i < 100; i++)
        run_model(test_random(&random), false);
}

TEST(quota, answers_as_if_it_counted_all_starts_when_the_rate_changes)
{
    uint64_t random = test_seed();
    for (int i = 0; i < 100; i++)
        run_model(test_random(&random), true);
}

/* Jobs ahead have weights, some are reserved, and starts may be even: whatever
 * comes of it, the job does not start before the time that was told. */
static void check_bound(uint64_t seed)
{
    static struct fixture x;
    uint64_t random = seed;
    uint64_t now = 0;
    const uint32_t rate = (uint32_t)(test_random(&random) % 9) + 1;
    open_quota(&x, (struct vow__coord_limits){.rate = rate,
                                              .window_ns = WINDOW,
                                              .even = (seed & 1) != 0});
    uint32_t weights[20];
    for (int round = 0; round < 20; round++) {
        uint64_t ahead = 0;
        size_t n = test_random(&random) % 20;
        for (size_t i = 0; i <= n; i++) {
            weights[i] = (uint32_t)(test_random(&random) % rate) + 1;
            ahead += i < n ? weights[i] : 0;
        }
        now += test_random(&random) % 150;
        uint64_t told =
            vow__coord_quota_earliest(&x.quota, ahead, weights[n], now);
        for (size_t i = 0; i <= n; i++) {
            uint64_t when = vow__coord_quota_when(&x.quota, weights[i], now);
            now = when == 0 ? now : when;
            start(&x, weights[i], now);
        }
        CHECK(told <= now);
    }
    close_quota(&x);
}

TEST(quota, nothing_starts_before_the_earliest_time_it_tells)
{
    uint64_t random = test_seed();
    for (int i = 0; i < 500; i++)
        check_bound(test_random(&random));
}

/* ---- ticks -------------------------------------------------------------- */

TEST(tick, is_the_clock_itself_under_virtual_time)
{
    struct world w;
    struct vow__coord_tick t;
    world_open(&w);
    vow__coord_tick_init(&t, w.loop);
    CHECK(!t.quick);
    for (uint64_t ms = 0; ms < 3; ms++) {
        CHECK_UINT_EQ(vow__coord_tick_low(&t), ms * 1000000);
        CHECK_UINT_EQ(vow__coord_tick_high(&t), ms * 1000000);
        world_advance_ms(&w, 1);
    }
    world_close(&w);
}

TEST(tick, is_never_above_and_never_below_the_real_clock)
{
    struct world w;
    struct vow__coord_tick t;
    world_open_real(&w);
    vow__coord_tick_init(&t, w.loop);
    for (int i = 0; i < 100000; i++) {
        uint64_t before = vow_loop_now_ns(w.loop);
        uint64_t low = vow__coord_tick_low(&t);
        CHECK(vow__coord_tick_high(&t) >= before);
        CHECK(low <= vow_loop_now_ns(w.loop));
    }
    world_close(&w);
}
