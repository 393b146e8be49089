/* SPDX-License-Identifier: MIT */
/* quota.c - exact limits on the weight at a time and per window.
 *
 * WHY   "50 per second" means at most 50 in every second, wherever the second
 *       begins. Fixed windows allow 100 at the edge, token buckets allow a
 *       burst on top of the rate.
 * HOW   A ring keeps the start time (the stamp) of each of the last `rate`
 *       units of weight. Unit n may start when unit n - rate is more than a
 *       window old, so one look at the ring answers for any weight. Weight
 *       that was admitted and has not started is reserved: it counts, and is
 *       stamped at the start. After a change of the rate the ring has room for
 *       all starts inside the window.
 * INVARIANTS
 *   Q1  stamps in the ring never decrease
 *   Q2  used <= room; the ring has all starts of the window that still count
 * LIMITS  8 bytes per unit of rate; a query is O(1), a start O(weight).
 */
#include "coord/quota.h"

#include <string.h>

static int quota_new(struct vow__coord_quota *q, const struct vow_alloc *alloc,
                     struct vow__coord_limits limits, uint32_t room);
static uint64_t quota_stamp_at(const struct vow__coord_quota *q, uint64_t nth);
static void quota_set_even_ns(struct vow__coord_quota *q);
static uint64_t quota_add_ns(uint64_t a, uint64_t b);

int vow__coord_quota_init(struct vow__coord_quota *q,
                          const struct vow_alloc *alloc,
                          struct vow__coord_limits limits)
{
    return quota_new(q, alloc, limits, limits.rate);
}

static int quota_new(struct vow__coord_quota *q, const struct vow_alloc *alloc,
                     struct vow__coord_limits limits, uint32_t room)
{
    *q = (struct vow__coord_quota){.rate = limits.rate, .room = room};
    vow__coord_quota_change(q, limits);
    if (room > 0)
        q->ring = vow__mem_new(alloc, room * sizeof(q->ring[0]));
    return room > 0 && q->ring == NULL ? VOW_ENOMEM : 0;
}

void vow__coord_quota_fini(struct vow__coord_quota *q,
                           const struct vow_alloc *alloc)
{
    vow__mem_free(alloc, q->ring, q->room * sizeof(q->ring[0]));
    q->ring = NULL;
}

void vow__coord_quota_change(struct vow__coord_quota *q,
                             struct vow__coord_limits limits)
{
    q->most = limits.most == 0 ? UINT32_MAX : limits.most;
    q->most_max = q->most;
    q->window_ns = limits.window_ns;
    q->even = limits.even && q->rate > 0;
    quota_set_even_ns(q);
}

int vow__coord_quota_prepare(struct vow__coord_quota *fresh,
                             const struct vow__coord_quota *q,
                             const struct vow_alloc *alloc,
                             struct vow__coord_limits limits, uint64_t now_ns)
{
    uint32_t kept = 0;
    while (kept < q->used && quota_add_ns(quota_stamp_at(q, q->used - kept),
                                          limits.window_ns) >= now_ns)
        kept++;
    return quota_new(fresh, alloc, limits,
                     kept > limits.rate ? kept : limits.rate);
}

void vow__coord_quota_replace(struct vow__coord_quota *q,
                              struct vow__coord_quota *fresh,
                              const struct vow_alloc *alloc)
{
    uint32_t kept = q->used < fresh->room ? q->used : fresh->room;
    for (uint32_t i = 0; i < kept; i++)
        fresh->ring[i] = quota_stamp_at(q, q->used - kept + i + 1);
    fresh->used = kept;
    fresh->next = kept == fresh->room ? 0 : kept;
    fresh->held = q->held;
    fresh->reserved = q->reserved;
    fresh->last_weight = kept > 0 ? q->last_weight : 0;
    quota_set_even_ns(fresh);
    vow__coord_quota_fini(q, alloc);
    *q = *fresh;
}

uint64_t vow__coord_quota_when_slow(const struct vow__coord_quota *q,
                                    uint32_t weight, uint64_t now_ns)
{
    uint64_t when = q->even ? q->even_ns : 0;
    uint64_t n = (uint64_t)q->used + q->reserved + weight;
    if (q->even && q->reserved > 0)
        return UINT64_MAX;
    if (n > q->rate) {
        uint64_t leaves = n - q->rate; /* last stamp that must have left */
        if (leaves > q->used)
            return UINT64_MAX;
        uint64_t free =
            quota_add_ns(quota_stamp_at(q, leaves), q->window_ns + 1);
        when = free > when ? free : when;
    }
    return when <= now_ns ? 0 : when;
}

uint64_t vow__coord_quota_earliest(const struct vow__coord_quota *q,
                                   uint64_t ahead, uint32_t weight,
                                   uint64_t now_ns)
{
    if (q->rate == 0)
        return now_ns;
    uint64_t n = q->reserved + ahead + weight; /* weight to start from now on */
    uint64_t rounds = n / q->rate + (n % q->rate != 0);
    uint64_t span = q->window_ns + 1;
    uint64_t when = rounds - 1 > (UINT64_MAX - now_ns) / span
                        ? UINT64_MAX
                        : now_ns + (rounds - 1) * span;
    uint64_t back = rounds * q->rate - n; /* stamps newer than `stamp` */
    if (back < q->used) {
        uint64_t stamp = quota_stamp_at(q, q->used - back);
        uint64_t then = rounds > (UINT64_MAX - stamp) / span
                            ? UINT64_MAX
                            : stamp + rounds * span;
        when = then > when ? then : when;
    }
    return q->even && q->even_ns > when ? q->even_ns : when;
}

uint64_t vow__coord_quota_forgotten_ns(const struct vow__coord_quota *q)
{
    uint64_t when = q->even ? q->even_ns : 0;
    if (q->used > 0) {
        uint64_t free =
            quota_add_ns(quota_stamp_at(q, q->used), q->window_ns + 1);
        when = free > when ? free : when;
    }
    return when;
}

void vow__coord_quota_stamp(struct vow__coord_quota *q, uint32_t weight,
                            uint64_t now_ns)
{
    if (q->rate == 0)
        return;
    for (uint32_t i = 0; i < weight; i++) {
        q->ring[q->next] = now_ns;
        q->next = q->next + 1 == q->room ? 0 : q->next + 1;
        q->used += q->used < q->room;
    }
    q->last_weight = weight;
    if (q->even)
        quota_set_even_ns(q);
}

/* Sets the earliest next start: the last start uses a share of the window. */
static void quota_set_even_ns(struct vow__coord_quota *q)
{
    q->even_ns = 0;
    if (!q->even || q->last_weight == 0 || q->used == 0)
        return;
    uint64_t gap = q->window_ns / q->rate * q->last_weight;
    uint64_t rest = q->window_ns % q->rate * q->last_weight;
    gap += rest / q->rate + (rest % q->rate != 0);
    q->even_ns = quota_add_ns(quota_stamp_at(q, q->used), gap);
}

/* Returns the nth stamp, counted from 1 for the oldest. */
static uint64_t quota_stamp_at(const struct vow__coord_quota *q, uint64_t nth)
{
    VOW__ASSERT(nth >= 1);
    VOW__ASSERT(nth <= q->used);
    uint64_t back = q->used - nth + 1; /* distance from `next` */
    uint64_t at = q->next >= back ? q->next - back : q->next + q->room - back;
    return q->ring[at];
}

static uint64_t quota_add_ns(uint64_t a, uint64_t b)
{
    return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

void vow__coord_tick_init(struct vow__coord_tick *t, vow_loop *loop)
{
    bool real = (vow_loop_flags(loop) & VOW_LOOP_VIRTUAL_TIME) == 0;
    *t = (struct vow__coord_tick){.loop = loop};
    t->quick = real && vow__clock_has_cycles();
    (void)vow__coord_tick_read(t);
}
