/* SPDX-License-Identifier: MIT */
/* ledger.c - what was granted when, so that no window has too much.
 *
 * WHY   "At most M in any window W" is kept exactly by a log of the grants of
 *       the last window, and by nothing that is smaller: a token bucket lets
 *       almost 2 M through.
 * HOW   A ring of entries, each with its time and the sum of all units up to
 *       it. What is in the window is a difference of two sums, and the moment
 *       when so many units will have left it is found by halving. A window is
 *       closed at both ends: a start at t counts until t + W. What was granted
 *       and is not known to have started counts as if it were now.
 *       With a rate above ENTRIES, grants that follow each other closely share
 *       an entry, which counts at the time of its newest: it leaves the window
 *       late, never early, by at most one ENTRIES-th of the window.
 * INVARIANTS
 *   L1  times and sums rise from entry to entry
 *   L2  left is the sum before the oldest entry, total that of the newest
 * LIMITS  16 bytes per entry, about ENTRIES entries; O(log n).
 */
#include "store/ledger.h"
#include "base/assert.h"
#include "vow/error.h"

enum { ENTRIES = 10000, FIRST_ROOM = 8 };

struct vow__grants {
    uint64_t when_us; /* of the newest of them */
    uint64_t sum;     /* units up to here */
};

static struct vow__grants *entry(const struct vow__ledger *l, size_t nth);
static uint64_t leaves_us(const struct vow__ledger *l, uint64_t units,
                          uint64_t window_us);
static uint64_t plus(uint64_t a, uint64_t b);

void vow__ledger_fini(struct vow__ledger *l, const struct vow_alloc *alloc)
{
    vow__mem_free(alloc, l->at, l->room * sizeof(l->at[0]));
    *l = (struct vow__ledger){.room = 0};
}

void vow__ledger_expire(struct vow__ledger *l, uint64_t window_us,
                        uint64_t now_us)
{
    while (l->n > 0 && plus(entry(l, 0)->when_us, window_us) < now_us) {
        l->left = entry(l, 0)->sum; /* keeps L2 */
        l->first = (l->first + 1) & (l->room - 1);
        l->n--;
    }
}

uint64_t vow__ledger_used(const struct vow__ledger *l)
{
    return l->total - l->left + l->open;
}

/* Of all units that are still to be granted, number n can follow when number
 * n - rate has left the window. So whole rates ahead are whole windows. */
uint64_t vow__ledger_when(const struct vow__ledger *l,
                          const vow_pool_limits *limits, uint64_t ahead,
                          uint32_t weight, uint64_t now_us)
{
    uint64_t rate = limits->rate;
    uint64_t n = ahead + weight;
    VOW__ASSERT(rate > 0);
    uint64_t windows = n == 0 ? 0 : (n - 1) / rate;
    uint64_t first = n - windows * rate; /* 1 to rate, or 0 */
    uint64_t used = vow__ledger_used(l);
    uint64_t when = now_us;
    if (used + first > rate)
        when = used + first - rate > used - l->open
                   ? plus(plus(now_us, limits->window_us), 1)
                   : leaves_us(l, used + first - rate, limits->window_us);
    uint64_t span = plus(limits->window_us, 1);
    if (windows > (UINT64_MAX - when) / span)
        return UINT64_MAX;
    return when + windows * span;
}

/* When the oldest `units` will have left. */
static uint64_t leaves_us(const struct vow__ledger *l, uint64_t units,
                          uint64_t window_us)
{
    size_t low = 0;
    size_t high = l->n - 1;
    VOW__ASSERT(l->n > 0);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (entry(l, middle)->sum - l->left >= units)
            high = middle;
        else
            low = middle + 1;
    }
    return plus(plus(entry(l, low)->when_us, window_us), 1);
}

int vow__ledger_reserve(struct vow__ledger *l, const struct vow_alloc *alloc)
{
    if (l->n + l->n_open < l->room)
        return 0;
    size_t room = l->room == 0 ? FIRST_ROOM : 2 * l->room;
    struct vow__grants *at = vow__mem_new(alloc, room * sizeof(at[0]));
    if (at == NULL)
        return VOW_ENOMEM;
    for (size_t i = 0; i < l->n; i++)
        at[i] = *entry(l, i);
    vow__mem_free(alloc, l->at, l->room * sizeof(at[0]));
    l->at = at;
    l->room = room;
    l->first = 0;
    return 0;
}

void vow__ledger_grant(struct vow__ledger *l, uint32_t weight)
{
    l->open += weight;
    l->n_open++;
}

void vow__ledger_start(struct vow__ledger *l, const vow_pool_limits *limits,
                       uint32_t weight, uint64_t now_us)
{
    VOW__ASSERT(l->n_open > 0 && l->open >= weight);
    l->open -= weight;
    l->n_open--;
    vow__ledger_add(l, limits, weight, now_us);
}

void vow__ledger_add(struct vow__ledger *l, const vow_pool_limits *limits,
                     uint32_t weight, uint64_t now_us)
{
    uint64_t width = limits->rate > ENTRIES ? limits->window_us / ENTRIES : 0;
    VOW__ASSERT(l->n < l->room);
    l->total += weight;
    if (l->n == 0 || now_us - l->began_us > width) {
        l->n++;
        l->began_us = now_us;
    }
    *entry(l, l->n - 1) =
        (struct vow__grants){.when_us = now_us, .sum = l->total};
}

uint64_t vow__ledger_over_us(const struct vow__ledger *l, uint64_t window_us)
{
    return l->n == 0 ? 0
                     : plus(plus(entry(l, l->n - 1)->when_us, window_us), 1);
}

static struct vow__grants *entry(const struct vow__ledger *l, size_t nth)
{
    return &l->at[(l->first + nth) & (l->room - 1)];
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}
