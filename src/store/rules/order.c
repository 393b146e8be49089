/* SPDX-License-Identifier: MIT */
/* order.c - sums over ordered permits, and the plan for changed limits.
 *
 * HOW   The sums of unmarked rows grow from row to row, so the held rows
 *       without a mark are the first unmarked rows. The time of the rate does
 *       not matter here: under a rate, only marked rows are held.
 * INVARIANTS  O1 to O3 in order.h
 * THREADS  any.
 */
#include "store/rules/order.h"
#include "base/assert.h"

#include <string.h>

static uint64_t weight_marked(const struct rules_row *rows, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        VOW__ASSERT(i == 0 || rows[i - 1].order < rows[i].order);
        sum += rows[i].marked ? rows[i].weight : 0;
    }
    return sum;
}

/* Returns whether a row is held, behind unmarked rows of weight `before`. */
static bool row_is_held(const vow_pool_limits *limits, uint64_t marked,
                        uint64_t before, const struct rules_row *row)
{
    const struct rules_pool p = {.limits = *limits, .held = marked};
    return vow__rules_rank(&p, before, row->weight, row->marked, 0) ==
           RULES_RANK_HELD;
}

struct rules_order vow__rules_order_sum(const vow_pool_limits *limits,
                                        const struct rules_row *rows, size_t n)
{
    struct rules_order o = {.marked = weight_marked(rows, n),
                            .lease_ms = UINT64_MAX};
    uint64_t before = 0;
    for (size_t i = 0; i < n; i++) {
        const struct rules_row *row = &rows[i];
        bool held = row_is_held(limits, o.marked, before, row);
        o.held += held ? row->weight : 0;
        o.holders += held;
        o.waiting += !held;
        before += row->marked ? 0 : row->weight;
        if (row->lease_ms < o.lease_ms)
            o.lease_ms = row->lease_ms;
    }
    return o;
}

const struct rules_row *vow__rules_order_find(const vow_pool_limits *limits,
                                              const struct rules_row *rows,
                                              size_t n, const vow_token *token,
                                              uint64_t *ret_before,
                                              uint64_t *ret_ahead)
{
    uint64_t marked = weight_marked(rows, n);
    uint64_t before = 0;
    uint64_t ahead = 0;
    for (size_t i = 0; i < n; i++) {
        const struct rules_row *row = &rows[i];
        if (memcmp(&row->token, token, sizeof(*token)) == 0) {
            *ret_before = before;
            *ret_ahead = ahead;
            return row;
        }
        ahead += !row_is_held(limits, marked, before, row);
        before += row->marked ? 0 : row->weight;
    }
    return NULL;
}

/* ---- changed limits ------------------------------------------------------ */

/* Returns whether a held row may fit no more. */
static bool limits_are_lower(const vow_pool_limits *from,
                             const vow_pool_limits *to)
{
    return to->rate > 0 ||
           (to->concurrent > 0 &&
            (from->concurrent == 0 || to->concurrent < from->concurrent));
}

void vow__rules_order_limit(const vow_pool_limits *from,
                            const vow_pool_limits *to, struct rules_row *rows,
                            size_t n)
{
    const struct rules_pool after = {.limits = *to};
    uint64_t marked = weight_marked(rows, n);
    uint64_t before = 0;
    bool fall = limits_are_lower(from, to);
    for (size_t i = 0; i < n; i++) {
        struct rules_row *row = &rows[i];
        row->plan = RULES_PLAN_STAY;
        if (row->marked)
            continue;
        if (row_is_held(from, marked, before, row))
            row->plan = fall ? RULES_PLAN_MARK : RULES_PLAN_STAY;
        else if (vow__rules_rank(&after, 0, row->weight, false, 0) ==
                 RULES_RANK_NEVER)
            row->plan = RULES_PLAN_DROP;
        before += row->weight;
    }
}
