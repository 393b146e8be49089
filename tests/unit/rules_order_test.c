/* SPDX-License-Identifier: MIT */
/* rules_order_test.c - ordered permits: sums, positions, changed limits. The
 * rules of pools (store/rules/pool.h) are the other side of a comparison. */
#include "harness.h"
#include "rules_pool_kit.h"
#include "store/rules/order.h"

enum { ROWS = 24, HISTORIES = 300, STEPS = 200 };

static struct rules_row row_of(uint64_t number, uint32_t weight, bool marked)
{
    return (struct rules_row){.token = kit_token(number),
                              .order = number,
                              .lease_ms = 100 * number,
                              .weight = weight,
                              .marked = marked};
}

TEST(rules_order, rows_are_held_in_order_while_they_fit)
{
    const vow_pool_limits limits = {.concurrent = 5};
    const struct rules_row rows[] = {row_of(1, 2, false), row_of(2, 2, false),
                                     row_of(3, 2, false), row_of(4, 1, false)};
    struct rules_order o = vow__rules_order_sum(&limits, rows, 4);
    uint64_t before, ahead;
    CHECK_UINT_EQ(o.marked, 0);
    CHECK_UINT_EQ(o.held, 4);
    CHECK_UINT_EQ(o.holders, 2);
    CHECK_UINT_EQ(o.waiting, 2); /* the light row does not overtake */
    CHECK_UINT_EQ(o.lease_ms, 100);
    CHECK(vow__rules_order_find(&limits, rows, 4, &rows[3].token, &before,
                                &ahead) == &rows[3]);
    CHECK_UINT_EQ(before, 6);
    CHECK_UINT_EQ(ahead, 1);
}

TEST(rules_order, marked_rows_count_wherever_they_are)
{
    const vow_pool_limits limits = {.concurrent = 5};
    const struct rules_row rows[] = {row_of(1, 2, false), row_of(2, 4, true)};
    struct rules_order o = vow__rules_order_sum(&limits, rows, 2);
    uint64_t before, ahead;
    CHECK_UINT_EQ(o.marked, 4);
    CHECK_UINT_EQ(o.held, 4);
    CHECK_UINT_EQ(o.waiting, 1);
    CHECK(vow__rules_order_find(&limits, rows, 2, &rows[1].token, &before,
                                &ahead) != NULL);
    CHECK_UINT_EQ(before, 2);
    CHECK_UINT_EQ(ahead, 1);
}

TEST(rules_order, under_a_rate_only_marked_rows_are_held)
{
    const vow_pool_limits limits = {.rate = 9, .window_us = 1000};
    const struct rules_row rows[] = {row_of(1, 2, true), row_of(2, 2, false)};
    struct rules_order o = vow__rules_order_sum(&limits, rows, 2);
    CHECK_UINT_EQ(o.held, 2);
    CHECK_UINT_EQ(o.waiting, 1);
}

TEST(rules_order, an_empty_pool_and_an_unknown_token_have_no_rows)
{
    const vow_pool_limits limits = {.concurrent = 1};
    const vow_token token = kit_token(7);
    const struct rules_row row = row_of(1, 1, false);
    struct rules_order o = vow__rules_order_sum(&limits, NULL, 0);
    uint64_t before, ahead;
    CHECK_UINT_EQ(o.lease_ms, UINT64_MAX);
    CHECK_UINT_EQ(o.held + o.waiting + o.holders, 0);
    CHECK(vow__rules_order_find(&limits, &row, 1, &token, &before, &ahead) ==
          NULL);
}

TEST(rules_order, lower_limits_mark_holders_and_drop_the_impossible)
{
    const vow_pool_limits five = {.concurrent = 5};
    const vow_pool_limits one = {.concurrent = 1};
    const vow_pool_limits rate = {.concurrent = 5, .rate = 4, .window_us = 1};
    struct rules_row rows[] = {row_of(1, 2, true), row_of(2, 3, false),
                               row_of(3, 1, false), row_of(4, 5, false)};
    vow__rules_order_limit(&five, &one, rows, 4);
    CHECK_UINT_EQ(rows[0].plan, RULES_PLAN_STAY);
    CHECK_UINT_EQ(rows[1].plan, RULES_PLAN_MARK);
    CHECK_UINT_EQ(rows[2].plan, RULES_PLAN_STAY);
    CHECK_UINT_EQ(rows[3].plan, RULES_PLAN_DROP);
    vow__rules_order_limit(&five, &rate, rows, 4);
    CHECK_UINT_EQ(rows[1].plan, RULES_PLAN_MARK);
    CHECK_UINT_EQ(rows[3].plan, RULES_PLAN_DROP);
    vow__rules_order_limit(&rate, &five, rows, 4);
    for (int i = 0; i < 4; i++)
        CHECK_UINT_EQ(rows[i].plan, RULES_PLAN_STAY);
}

/* ---- histories ----------------------------------------------------------- */

/* Rows, and the same pool by the rules of stores that grant. */
struct twins {
    struct pool_kit kit;
    struct rules_row rows[ROWS];
    size_t n;
    uint64_t number;
    vow_pool_limits limits;
};

static void row_leave(struct twins *t, size_t i)
{
    t->n--;
    memmove(&t->rows[i], &t->rows[i + 1], (t->n - i) * sizeof(t->rows[0]));
}

/* Every row has the status and the position of the twin. */
static void twins_compare(struct twins *t)
{
    struct rules_order o = vow__rules_order_sum(&t->limits, t->rows, t->n);
    CHECK_UINT_EQ(o.held, t->kit.pool.held);
    CHECK_UINT_EQ(o.holders, t->kit.pool.holders);
    CHECK_UINT_EQ(o.waiting, t->kit.pool.waiting);
    for (size_t i = 0; i < t->n; i++) {
        const struct rules_permit *p = kit_permit(&t->kit, &t->rows[i].token);
        const struct rules_pool sums = {.limits = t->limits, .held = o.marked};
        uint64_t before = 0, ahead = 0, want = 0, weight = 0;
        CHECK(p != NULL);
        CHECK(vow__rules_order_find(&t->limits, t->rows, t->n,
                                    &t->rows[i].token, &before,
                                    &ahead) == &t->rows[i]);
        CHECK(p->held ==
              (vow__rules_rank(&sums, before, p->weight, t->rows[i].marked,
                               0) == RULES_RANK_HELD));
        CHECK_INT_EQ(t->kit.storage.ahead(&t->kit, p, &want, &weight), 0);
        if (!p->held)
            CHECK_UINT_EQ(ahead, want);
    }
}

static void twins_limit(struct twins *t, uint64_t *seed)
{
    vow_pool_limits to = {.concurrent = (uint32_t)(test_random(seed) % 8)};
    vow_pool_permit out;
    vow__rules_order_limit(&t->limits, &to, t->rows, t->n);
    CHECK_INT_EQ(
        vow__rules_limit(&t->kit.pool, &t->kit.storage, &to, kit_step(&t->kit)),
        0);
    t->limits = to;
    for (size_t i = t->n; i-- > 0;) {
        struct rules_row *row = &t->rows[i];
        row->marked = row->marked || row->plan == RULES_PLAN_MARK;
        if (row->plan != RULES_PLAN_DROP)
            continue;
        /* The twin drops the impossible at the head only. */
        CHECK_INT_EQ(kit_release(&t->kit, row->order, &out), 0);
        row_leave(t, i);
    }
}

static void twins_join(struct twins *t, uint64_t *seed)
{
    uint32_t weight = 1 + (uint32_t)(test_random(seed) % 4);
    vow_pool_permit out;
    if (t->n == ROWS)
        return;
    t->number++;
    int rc = kit_acquire(&t->kit, t->number, weight, 1000, 0, &out);
    CHECK(rc == 0 || (rc == VOW_EINVAL && t->limits.concurrent > 0 &&
                      weight > t->limits.concurrent));
    if (rc == 0)
        t->rows[t->n++] = row_of(t->number, weight, false);
}

static void twins_leave(struct twins *t, uint64_t *seed)
{
    vow_pool_permit out;
    if (t->n == 0)
        return;
    size_t i = test_random(seed) % t->n;
    if (test_random(seed) % 2 == 0)
        i = 0;
    CHECK_INT_EQ(kit_release(&t->kit, t->rows[i].order, &out), 0);
    row_leave(t, i);
}

TEST(rules_order, random_histories_are_those_of_a_store_that_grants)
{
    static struct twins t;
    uint64_t seed = test_seed();
    uint64_t waited = 0;
    for (int h = 0; h < HISTORIES; h++) {
        t = (struct twins){.number = 0};
        kit_open(&t.kit, (vow_pool_limits){.concurrent = 4});
        t.limits.concurrent = 4;
        for (int i = 0; i < STEPS; i++) {
            uint64_t x = test_random(&seed) % 20;
            if (x == 0)
                twins_limit(&t, &seed);
            else if (x < 11)
                twins_join(&t, &seed);
            else
                twins_leave(&t, &seed);
            twins_compare(&t);
            waited += t.kit.pool.waiting > 0;
        }
    }
    CHECK(waited > HISTORIES);
}
