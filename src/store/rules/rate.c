/* SPDX-License-Identifier: MIT */
/* rate.c - the starts of the last window, so that no window has too many.
 *
 * WHY   "At most M in any window" needs the times of the starts: a token bucket
 *       lets almost 2 M through.
 * HOW   A window is closed at both ends: a start at t counts until t + window.
 *       With a rate above RULES_RATE_PARTS, starts within one part of the
 *       window from the first start of an entry share the entry, at the time of
 *       the newest start: weight leaves the window late, by at most one part,
 *       and never early. First starts are more than a part apart, so no window
 *       has more than RULES_RATE_ENTRIES entries. Below, a start has an entry
 *       of its own, and the rate itself bounds the entries. A log that is full
 *       nevertheless, because the limits were changed, joins the newest entry.
 * INVARIANTS  P2 in pool.h
 * LIMITS  O(entries).
 * THREADS  any.
 */
#include "base/assert.h"
#include "store/rules/pool.h"

#include <string.h>

static bool start_counts(const struct rules_start *start,
                         const vow_pool_limits *limits, uint64_t now_us);
static void expired_remove(struct rules_rate *l, const vow_pool_limits *limits,
                           uint64_t now_us);
static uint64_t weight_leaves(const struct rules_rate *l,
                              const vow_pool_limits *limits, uint64_t weight,
                              uint64_t now_us);

static bool start_counts(const struct rules_start *start,
                         const vow_pool_limits *limits, uint64_t now_us)
{
    return vow__rules_after(start->at_us, limits->window_us) >= now_us;
}

uint64_t vow__rules_rate_used(const struct rules_rate *l,
                              const vow_pool_limits *limits, uint64_t now_us)
{
    uint64_t sum = 0;
    for (uint32_t i = l->n; i > 0; i--) {
        if (!start_counts(&l->starts[i - 1], limits, now_us))
            break;
        sum += l->starts[i - 1].weight;
    }
    return sum;
}

/* Of all weight that is still to start, unit number n can start when unit
 * number n - rate has left the window. So whole rates ahead are whole
 * windows. */
uint64_t vow__rules_rate_when(const struct rules_rate *l,
                              const vow_pool_limits *limits, uint64_t open,
                              uint64_t ahead, uint64_t weight, uint64_t now_us)
{
    uint64_t rate = limits->rate;
    VOW__ASSERT(rate > 0);
    uint64_t n = ahead + weight;
    uint64_t windows = n == 0 ? 0 : (n - 1) / rate;
    uint64_t used = vow__rules_rate_used(l, limits, now_us);
    uint64_t sum = used + open + (n - windows * rate);
    uint64_t span = vow__rules_after(limits->window_us, 1);
    uint64_t when = now_us;
    if (sum > rate)
        when = sum - rate > used ? vow__rules_after(now_us, span)
                                 : weight_leaves(l, limits, sum - rate, now_us);
    return windows > (RULES_NEVER - when) / span ? RULES_NEVER
                                                 : when + windows * span;
}

/* Returns when the oldest `weight` that counts will have left the window. */
static uint64_t weight_leaves(const struct rules_rate *l,
                              const vow_pool_limits *limits, uint64_t weight,
                              uint64_t now_us)
{
    uint64_t sum = 0;
    uint64_t at_us = now_us;
    for (uint32_t i = 0; i < l->n && sum < weight; i++) {
        if (!start_counts(&l->starts[i], limits, now_us))
            continue;
        sum += l->starts[i].weight;
        at_us = l->starts[i].at_us;
    }
    return vow__rules_after(vow__rules_after(at_us, limits->window_us), 1);
}

void vow__rules_rate_add(struct rules_rate *l, const vow_pool_limits *limits,
                         uint64_t weight, uint64_t now_us)
{
    if (limits->rate == 0 || weight == 0)
        return;
    VOW__ASSERT(l->room > 0);
    expired_remove(l, limits, now_us);
    uint64_t part = limits->rate > RULES_RATE_PARTS
                        ? limits->window_us / RULES_RATE_PARTS
                        : 0;
    struct rules_start *last = l->n == 0 ? NULL : &l->starts[l->n - 1];
    if (last != NULL && last->at_us > now_us)
        now_us = last->at_us; /* keeps P2 */
    if (last != NULL && (last->at_us == now_us || l->n == l->room ||
                         now_us - l->began_us <= part)) {
        last->at_us = now_us;
        last->weight += weight;
        return;
    }
    l->starts[l->n++] = (struct rules_start){now_us, weight};
    l->began_us = now_us;
}

static void expired_remove(struct rules_rate *l, const vow_pool_limits *limits,
                           uint64_t now_us)
{
    uint32_t gone = 0;
    while (gone < l->n && !start_counts(&l->starts[gone], limits, now_us))
        gone++;
    if (gone == 0)
        return;
    l->n -= gone;
    memmove(l->starts, l->starts + gone, l->n * sizeof(l->starts[0]));
}

uint64_t vow__rules_rate_over(const struct rules_rate *l,
                              const vow_pool_limits *limits)
{
    if (l->n == 0)
        return 0;
    return vow__rules_after(
        vow__rules_after(l->starts[l->n - 1].at_us, limits->window_us), 1);
}
