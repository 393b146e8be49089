/* SPDX-License-Identifier: MIT */
/* rate_test.c - at most so much in any window, exactly.
 *
 * A grant happened between the time before the step and the time behind it. If
 * the store is exact, the span from before one grant to behind another with
 * more than the rate between them is longer than the window: that is checked,
 * on virtual and on real time.
 */
#include "contract.h"

enum { GRANTS_MAX = 4000 };

struct grants {
    size_t n;
    struct {
        uint64_t before_us, behind_us;
        uint32_t weight;
    } at[GRANTS_MAX];
};

static void check_windows(const struct grants *g, uint64_t rate, uint64_t us)
{
    for (size_t i = 0; i < g->n; i++) {
        uint64_t sum = 0;
        for (size_t k = i; k < g->n; k++) {
            sum += g->at[k].weight;
            if (sum > rate && g->at[k].behind_us - g->at[i].before_us <= us)
                FAIL("%llu units within %llu us, and %llu are allowed",
                     (unsigned long long)sum,
                     (unsigned long long)(g->at[k].behind_us -
                                          g->at[i].before_us),
                     (unsigned long long)rate);
            if (sum > rate)
                break;
        }
    }
}

/* Ask; what is granted is written down and starts at once. */
static struct rig_place ask_once(struct rig *r, struct grants *g, size_t i,
                                 const vow_permit_request *ask)
{
    uint64_t before_us = rig_now_us(r);
    struct rig_place p = rig_acquire(r, i, ask);
    uint64_t behind_us = rig_now_us(r);
    CHECK_INT_EQ(p.code, 0);
    if (p.place.status == VOW_STATUS_OWNED) {
        CHECK(g->n < GRANTS_MAX);
        g->at[g->n].before_us = before_us;
        g->at[g->n].behind_us = behind_us;
        g->at[g->n++].weight = ask->weight;
        struct rig_place s = {.code = 0};
        const vow_permit_hold hold = {ask->pool, ask->limits_of, ask->token,
                                      true};
        rig_renew_hold(r, i, &hold, ask->lease_ms, &s);
        CHECK_UINT_EQ(s.place.status, VOW_STATUS_OWNED);
    }
    return p;
}

CONTRACT(rate, so_much_at_once_and_then_no_more)
{
    vow_pool_limits limits = {.rate = 3, .window_us = 3600000000};
    for (uint64_t i = 0; i < 3; i++) {
        struct rig_place p = rig_acquire(r, i, PLACE("p", i, .limits = limits));
        CHECK_UINT_EQ(p.place.status, VOW_STATUS_OWNED);
        (void)rig_release(r, i, "p", i);
    }
    struct rig_place p = rig_acquire(r, 3, PLACE("p", 3));
    CHECK_UINT_EQ(p.place.status, VOW_STATUS_WAITING);
    CHECK(p.place.again_us > 3500000000 && p.place.again_us <= 3600000001);
    p = rig_acquire(r, 4, PLACE("p", 4, .flags = VOW_PERMIT_TRY));
    CHECK_UINT_EQ(p.place.status, VOW_STATUS_BUSY);
    CHECK_UINT_EQ(rig_limit(r, 0, "p", NULL).info.rate_used, 3);
}

CONTRACT(rate, who_waits_is_told_when_to_ask_and_then_has_it)
{
    vow_pool_limits limits = {.rate = 2, .window_us = 100000};
    struct grants g = {.n = 0};
    for (uint64_t i = 0; i < 8; i++) {
        vow_permit_request ask = *PLACE("p", i, .limits = limits);
        struct rig_place p = ask_once(r, &g, 0, &ask);
        for (int tries = 0; p.place.status == VOW_STATUS_WAITING; tries++) {
            CHECK(p.place.again_us <= 100001);
            CHECK(tries < 3);
            rig_advance_ms(r, p.place.again_us / 1000 + 1);
            p = ask_once(r, &g, 0, &ask);
        }
        CHECK_UINT_EQ(p.place.status, VOW_STATUS_OWNED);
    }
    CHECK_UINT_EQ(g.n, 8);
    check_windows(&g, 2, limits.window_us);
}

CONTRACT(rate, concurrency_and_rate_hold_at_once)
{
    vow_pool_limits limits = {
        .concurrent = 2, .rate = 3, .window_us = 3600000000};
    (void)rig_acquire(r, 0, PLACE("p", 1, .limits = limits));
    (void)rig_acquire(r, 0, PLACE("p", 2));
    CHECK_UINT_EQ(rig_acquire(r, 0, PLACE("p", 3)).place.status,
                  VOW_STATUS_WAITING);
    (void)rig_release(r, 0, "p", 1);
    CHECK_UINT_EQ(rig_acquire(r, 0, PLACE("p", 3)).place.status,
                  VOW_STATUS_OWNED);
    (void)rig_release(r, 0, "p", 2);
    (void)rig_release(r, 0, "p", 3);
    struct rig_place p = rig_acquire(r, 0, PLACE("p", 4));
    CHECK_UINT_EQ(p.place.status, VOW_STATUS_WAITING);
    CHECK(p.place.again_us > 3000000000);
}

CONTRACT(rate, a_head_that_can_go_sooner_hears_of_it)
{
    vow_pool_limits limits = {
        .rate = 10, .window_us = r->store->real_time ? 3000000 : 300000};
    (void)rig_acquire(r, 0, PLACE("p", 1, .weight = 9, .limits = limits));
    (void)rig_start(r, 0, "p", 1, LONG_MS);
    struct rig_place heavy = rig_acquire(r, 1, PLACE("p", 2, .weight = 10));
    CHECK_UINT_EQ(heavy.place.status, VOW_STATUS_WAITING);
    struct rig_place light = rig_acquire(r, 2, PLACE("p", 3, .weight = 2));
    CHECK_UINT_EQ(light.place.status, VOW_STATUS_WAITING);
    CHECK(light.place.again_us >= heavy.place.again_us);
    (void)rig_release(r, 1, "p", 2);
    rig_expect(r, &r->news[2].places, 1);
    light = rig_acquire(r, 2, PLACE("p", 3, .weight = 2));
    if (light.place.status == VOW_STATUS_WAITING) {
        CHECK(light.place.again_us <= limits.window_us + 1);
        rig_advance_ms(r, light.place.again_us / 1000 + 1);
        light = rig_acquire(r, 2, PLACE("p", 3, .weight = 2));
    }
    CHECK_UINT_EQ(light.place.status, VOW_STATUS_OWNED);
}

CONTRACT(rate, changed_limits_count_what_was_granted)
{
    vow_pool_limits ten = {.rate = 10, .window_us = 3600000000};
    vow_pool_limits four = {.rate = 4, .window_us = 3600000000};
    vow_pool_limits six = {.rate = 6, .window_us = 3600000000};
    for (uint64_t i = 0; i < 5; i++)
        (void)rig_acquire(r, 0, PLACE("p", i, .limits = ten));
    (void)rig_limit(r, 0, "p", &four);
    CHECK_UINT_EQ(rig_acquire(r, 0, PLACE("p", 9)).place.status,
                  VOW_STATUS_WAITING);
    (void)rig_limit(r, 0, "p", &six);
    CHECK_UINT_EQ(rig_acquire(r, 0, PLACE("p", 9)).place.status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_acquire(r, 0, PLACE("p", 10)).place.status,
                  VOW_STATUS_WAITING);
}

/* Who holds it starts later than it was granted, and nobody knows how much. */
CONTRACT(rate, a_grant_counts_as_of_now_until_it_has_started)
{
    vow_pool_limits limits = {.rate = 1, .window_us = 200000};
    if ((r->at[0]->ops->flags & VOW_STORE_STARTS) == 0)
        return;
    (void)rig_acquire(r, 0, PLACE("p", 1, .limits = limits));
    CHECK_UINT_EQ(rig_acquire(r, 1, PLACE("p", 2)).place.status,
                  VOW_STATUS_WAITING);
    for (int i = 0; i < 3; i++) {
        rig_advance_ms(r, 250);
        (void)rig_renew(r, 0, "p", 1, LONG_MS); /* says nothing of a start */
        struct rig_place p = rig_acquire(r, 1, PLACE("p", 2));
        CHECK_UINT_EQ(p.place.status, VOW_STATUS_WAITING);
        CHECK(p.place.again_us > 150000 && p.place.again_us <= 200001);
        CHECK_UINT_EQ(rig_limit(r, 1, "p", NULL).info.rate_used, 1);
    }
    uint64_t before_us = rig_now_us(r);
    (void)rig_start(r, 0, "p", 1, LONG_MS);
    (void)rig_start(r, 0, "p", 1, LONG_MS); /* only the first counts */
    struct rig_place p = rig_acquire(r, 1, PLACE("p", 2));
    while (p.place.status == VOW_STATUS_WAITING) {
        rig_advance_ms(r, p.place.again_us / 1000 + 1);
        p = rig_acquire(r, 1, PLACE("p", 2));
    }
    CHECK_UINT_EQ(p.place.status, VOW_STATUS_OWNED);
    CHECK(rig_now_us(r) - before_us > limits.window_us);
}

CONTRACT(rate, what_is_given_back_or_lost_has_started)
{
    vow_pool_limits limits = {.rate = 1, .window_us = 3600000000};
    if ((r->at[0]->ops->flags & VOW_STORE_STARTS) == 0)
        return;
    (void)rig_acquire(r, 0, PLACE("p", 1, .limits = limits));
    (void)rig_release(r, 0, "p", 1);
    (void)rig_acquire(
        r, 0, PLACE("q", 1, .limits = limits, .lease_ms = rig_short_ms(r)));
    rig_lapse(r);
    for (uint64_t i = 2; i < 4; i++) {
        struct rig_place p = rig_acquire(r, 1, PLACE(i == 2 ? "p" : "q", i));
        CHECK_UINT_EQ(p.place.status, VOW_STATUS_WAITING);
        CHECK(p.place.again_us > 3500000000 && p.place.again_us <= 3600000001);
    }
    CHECK_UINT_EQ(rig_limit(r, 0, "q", NULL).info.rate_used, 1);
}

/* Random weights by random instances, at random times: on virtual time long,
 * on real time for a second. */
static void ask_at_random(struct rig *r, uint32_t rate, uint64_t window_us,
                          uint64_t steps)
{
    static struct grants g;
    uint64_t seed = test_seed();
    vow_pool_limits limits = {.rate = rate, .window_us = window_us};
    g.n = 0;
    for (uint64_t i = 0; i < steps; i++) {
        uint64_t x = test_random(&seed);
        vow_permit_request ask = *PLACE("p", i, .limits = limits,
                                        .weight = 1 + (uint32_t)(x % rate) / 2);
        struct rig_place p = ask_once(r, &g, x % RIG_INSTANCES, &ask);
        if (p.place.status == VOW_STATUS_WAITING && x % 4 == 0) {
            (void)rig_release(r, x % RIG_INSTANCES, "p", i);
            continue;
        }
        while (p.place.status == VOW_STATUS_WAITING) {
            rig_advance_ms(r, p.place.again_us / 1000 + 1);
            p = ask_once(r, &g, x % RIG_INSTANCES, &ask);
        }
        if (x % 7 == 0)
            rig_advance_ms(r, x % (window_us / 1000));
    }
    CHECK(g.n > 10);
    check_windows(&g, rate, window_us);
}

CONTRACT(rate, no_window_has_too_much_whatever_is_asked)
{
    ask_at_random(r, 7, r->store->real_time ? 40000 : 1000000,
                  r->store->real_time ? 60 : 1500);
}

CONTRACT(rate, no_window_has_too_much_at_a_high_rate)
{
    ask_at_random(r, 50000, r->store->real_time ? 40000 : 1000000,
                  r->store->real_time ? 60 : 1500);
}
