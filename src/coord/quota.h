/* SPDX-License-Identifier: MIT */
/* quota.h - limits on the weight at a time and per window. See quota.c. */
#ifndef VOW_COORD_QUOTA_H
#define VOW_COORD_QUOTA_H

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "vow/loop.h"

enum { VOW__RATE_MAX = 1 << 24 };

struct vow__coord_quota {
    uint32_t most;     /* weight at a time; UINT32_MAX: any */
    uint32_t most_max; /* limit for adapting `most`, and for a job alone */
    uint32_t held;     /* weight in use; may exceed `most` after a change */
    uint32_t rate;     /* weight started per window; 0: any */
    uint32_t reserved; /* weight admitted and not stamped yet */
    uint32_t room;     /* ring size: the rate, or more after a change */
    uint32_t used;     /* stamps in the ring */
    uint32_t next;     /* index of the next stamp */
    bool even;
    uint32_t last_weight; /* weight of the last start */
    uint64_t window_ns;
    uint64_t even_ns; /* earliest next start, if even */
    uint64_t *ring;   /* last `room` stamps, a stamp per unit of weight */
};

/* Limits of a quota; 0 means any. vow__coord_quota_init() returns 0 or
 * VOW_ENOMEM. */
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

/* Changes the limits; the rate must be the same. */
void vow__coord_quota_change(struct vow__coord_quota *q,
                             struct vow__coord_limits limits);
/* Change all limits, and keep the weight in use and all known starts inside the
 * new window. First vow__coord_quota_prepare() makes `fresh`, which can fail;
 * then vow__coord_quota_replace() moves `fresh` into `q`, which cannot. */
int vow__coord_quota_prepare(struct vow__coord_quota *fresh,
                             const struct vow__coord_quota *q,
                             const struct vow_alloc *alloc,
                             struct vow__coord_limits limits, uint64_t now_ns);
void vow__coord_quota_replace(struct vow__coord_quota *q,
                              struct vow__coord_quota *fresh,
                              const struct vow_alloc *alloc);

/* Returns when the rate allows a start of this weight: 0 if now, UINT64_MAX
 * while the time depends on starts without a stamp. */
uint64_t vow__coord_quota_when_slow(const struct vow__coord_quota *q,
                                    uint32_t weight, uint64_t now_ns);
static inline uint64_t vow__coord_quota_when(const struct vow__coord_quota *q,
                                             uint32_t weight, uint64_t now_ns)
{
    if (q->rate == 0)
        return 0;
    return vow__coord_quota_when_slow(q, weight, now_ns);
}
/* Returns a lower bound for the start of this weight after `ahead` units of
 * weight. */
uint64_t vow__coord_quota_earliest(const struct vow__coord_quota *q,
                                   uint64_t ahead, uint32_t weight,
                                   uint64_t now_ns);
/* Returns when all starts have left the window; 0: no start is known. */
uint64_t vow__coord_quota_forgotten_ns(const struct vow__coord_quota *q);
void vow__coord_quota_stamp(struct vow__coord_quota *q, uint32_t weight,
                            uint64_t now_ns);

/* Returns whether the weight could ever fit. */
static inline bool vow__coord_quota_possible(const struct vow__coord_quota *q,
                                             uint32_t weight)
{
    return weight <= q->most_max && (q->rate == 0 || weight <= q->rate);
}

static inline bool vow__coord_quota_fits(const struct vow__coord_quota *q,
                                         uint32_t weight)
{
    return (uint64_t)q->held + weight <= q->most || weight == 0 ||
           (q->held == 0 && weight <= q->most_max);
}

/* A cheap clock. Real time is read at most every 4096 cycles; in between, `low`
 * is not above real time and `high` is not below. */
struct vow__coord_tick {
    vow_loop *loop;
    bool quick; /* the cycle counter is usable */
    uint64_t cycles;
    uint64_t ns;
};
void vow__coord_tick_init(struct vow__coord_tick *t, vow_loop *loop);
enum { VOW__TICK_CYCLES = 4096, VOW__TICK_NS = 8192 };

static inline uint64_t vow__coord_tick_read(struct vow__coord_tick *t)
{
    t->cycles = t->quick ? vow__clock_cycles() : 0; /* first: keeps `high` */
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

/* Returns the stamp for a start that vow__coord_tick_low() has just
 * allowed. */
static inline uint64_t vow__coord_tick_high(const struct vow__coord_tick *t)
{
    return t->quick ? t->ns + VOW__TICK_NS : t->ns;
}

#endif
