/* SPDX-License-Identifier: MIT */
/* quota.h - how much may run at once, and start within a window. See quota.c.
 */
#ifndef VOW_COORD_QUOTA_H
#define VOW_COORD_QUOTA_H

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "vow/loop.h"

enum { VOW__RATE_MAX = 1 << 24 };

struct vow__coord_quota {
    uint32_t most;     /* weight at once; UINT32_MAX: any */
    uint32_t top;      /* what `most` may become; alone, so much may run */
    uint32_t held;     /* may be above them after a change */
    uint32_t rate;     /* weight started per window; 0: any */
    uint32_t reserved; /* let in, and not stamped yet */
    uint32_t room;     /* of the ring: the rate, or more after a change */
    uint32_t used;     /* stamps in the ring */
    uint32_t next;     /* where the next one goes */
    bool even;
    uint32_t last_weight; /* of the last start */
    uint64_t window_ns;
    uint64_t even_ns; /* when the next may start, if even */
    uint64_t *ring;   /* the last `room` stamps, one per unit of weight */
};

/* Limits of a quota; 0 means any. VOW_ENOMEM. */
struct vow__coord_limits {
    uint32_t most;
    uint32_t rate;
    uint64_t window_ns;
    bool even;
};
int vow__coord_quota_init(struct vow__coord_quota *q,
                          const struct vow_alloc *alloc,
                          struct vow__coord_limits limits);
void vow__coord_quota_fini(struct vow__coord_quota *q,
                           const struct vow_alloc *alloc);

/* Other limits, of the same rate. */
void vow__coord_quota_change(struct vow__coord_quota *q,
                             struct vow__coord_limits limits);
/* Other limits for the same holders and the same past: all starts that are
 * known and not yet out of the new window. First `fresh` is made, which can
 * fail; then it takes the place of `q`, which cannot. */
int vow__coord_quota_prepare(struct vow__coord_quota *fresh,
                             const struct vow__coord_quota *q,
                             const struct vow_alloc *alloc,
                             struct vow__coord_limits limits, uint64_t now_ns);
void vow__coord_quota_replace(struct vow__coord_quota *q,
                              struct vow__coord_quota *fresh,
                              const struct vow_alloc *alloc);

/* When the rate lets this weight start: 0 if at once, UINT64_MAX while that
 * depends on starts that are not stamped yet. */
uint64_t vow__coord_quota_when_slow(const struct vow__coord_quota *q,
                                    uint32_t weight, uint64_t now_ns);
static inline uint64_t vow__coord_quota_when(const struct vow__coord_quota *q,
                                             uint32_t weight, uint64_t now_ns)
{
    if (q->rate == 0)
        return 0;
    return vow__coord_quota_when_slow(q, weight, now_ns);
}
/* The earliest start of this weight behind so much else: no later than it can
 * really be. */
uint64_t vow__coord_quota_earliest(const struct vow__coord_quota *q,
                                   uint64_t ahead, uint32_t weight,
                                   uint64_t now_ns);
/* When everything that started has left the window. */
uint64_t vow__coord_quota_forgotten_ns(const struct vow__coord_quota *q);
void vow__coord_quota_stamp(struct vow__coord_quota *q, uint32_t weight,
                            uint64_t now_ns);

/* Will it ever fit? */
static inline bool vow__coord_quota_possible(const struct vow__coord_quota *q,
                                             uint32_t weight)
{
    return weight <= q->top && (q->rate == 0 || weight <= q->rate);
}

static inline bool vow__coord_quota_fits(const struct vow__coord_quota *q,
                                         uint32_t weight)
{
    return (uint64_t)q->held + weight <= q->most || weight == 0 ||
           (q->held == 0 && weight <= q->top);
}

/* Time at small cost. Real time is read at most every four thousand cycles; in
 * between `low` is not above and `high` not below it. */
struct vow__coord_tick {
    vow_loop *loop;
    bool quick; /* there are cycles to go by */
    uint64_t cycles;
    uint64_t ns;
};
void vow__coord_tick_init(struct vow__coord_tick *t, vow_loop *loop);
enum { VOW__TICK_CYCLES = 4096, VOW__TICK_NS = 8192 };

static inline uint64_t vow__coord_tick_read(struct vow__coord_tick *t)
{
    t->cycles = t->quick ? vow__clock_cycles() : 0; /* before: keeps `high` */
    t->ns = vow_loop_now_ns(t->loop);
    return t->ns;
}

static inline uint64_t vow__coord_tick_low(struct vow__coord_tick *t)
{
    if (VOW__LIKELY(t->quick &&
                    vow__clock_cycles() - t->cycles < VOW__TICK_CYCLES))
        return t->ns;
    return vow__coord_tick_read(t);
}

/* For what vow__coord_tick_low() has just allowed. */
static inline uint64_t vow__coord_tick_high(const struct vow__coord_tick *t)
{
    return t->quick ? t->ns + VOW__TICK_NS : t->ns;
}

#endif
