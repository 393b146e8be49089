/* SPDX-License-Identifier: MIT */
/* oracle.c - a second opinion on limits, by means of its own.
 *
 * WHY   A limiter that is wrong is wrong in its own counters too. What is to
 *       be believed must be counted again by somebody who knows only what was
 *       promised: starts, ends, and the clock.
 * HOW   What runs is one number. For the rate, the starts of the last window
 *       lie in a ring with their sum: a new start pushes out those that are
 *       older than the window, and the sum tells. The ring grows on demand.
 *       A start that the ring cannot take leaves a hole. While the hole is
 *       within a window, the sum is a lower bound: a breach that it shows is
 *       one, any other start is counted as unjudged. So it may be silent, but
 *       never wrong.
 *       Outside the slices that are looked at only what runs and the last
 *       number are kept. Between two such slices lies more than a window: each
 *       begins without a past.
 * INVARIANTS
 *   O1  times in the ring never decrease, all are within the window
 *   O2  `weight` is the sum over the ring
 * LIMITS  16 bytes per start within a window; O(1) per start, amortised.
 * THREADS  loop thread only.
 */
#include "vow/oracle.h"
#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "vow/promise.h"

#include <stdio.h>

enum { NS_PER_US = 1000, US_PER_MS = 1000 };
enum { WINDOW_MS = 1000, SLICE_WINDOWS = 4 };
enum { REMEMBER = 1 << 20, RING_FIRST = 16 };

struct started {
    uint64_t at_ns;
    uint32_t weight;
};

struct vow_oracle {
    vow_loop *loop;
    vow_future *anchor; /* keeps the loop's clock beyond its close */
    struct vow_alloc alloc;
    vow_oracle_opts opts; /* the limits as they are now */
    uint32_t refs;
    uint64_t running;     /* weight */
    uint64_t last_number; /* of the start before, if there was one */
    uint64_t window_ns;
    uint64_t slice;        /* the one we are in, from 0 */
    uint64_t slice_end_ns; /* UINT64_MAX: never */

    struct started *ring;
    uint32_t room;          /* of the ring, at most opts.remember */
    uint32_t first;         /* the oldest */
    uint32_t count;         /* from there on, round the end */
    uint64_t weight;        /* of these */
    uint64_t hole_until_ns; /* the last lost start leaves the window then */
    bool hole;              /* there was one */
    vow_oracle_stats stats;
};

static bool looked_at(vow_oracle *o, uint64_t now);
static uint64_t slice_ns(const vow_oracle *o);
static void set_window(vow_oracle *o, uint64_t window_ms);
static void judge_rate(vow_oracle *o, uint32_t weight, uint64_t now);
static void leave_window(vow_oracle *o, uint64_t now);
static bool keep(vow_oracle *o, uint32_t weight, uint64_t now);
static bool grow(vow_oracle *o);
static void forget(vow_oracle *o);
static void breach(vow_oracle *o, vow_breach b);
static uint64_t plus(uint64_t a, uint64_t b);

int vow_oracle_new(vow_loop *loop, const vow_oracle_opts *opts,
                   vow_oracle **ret_oracle)
{
    VOW__ASSERT_THREAD(loop);
    if (opts != NULL && opts->size != sizeof(*opts))
        return VOW_EINVAL;
    vow_oracle *o = vow__mem_zero(vow_loop_alloc(loop), sizeof(*o));
    if (o == NULL)
        return VOW_ENOMEM;
    o->alloc = *vow_loop_alloc(loop);
    o->loop = loop;
    o->refs = 1;
    if (opts != NULL)
        o->opts = *opts;
    if (o->opts.remember == 0)
        o->opts.remember = REMEMBER;
    set_window(o, o->opts.window_ms);
    o->slice_end_ns = plus(vow_loop_now_ns(loop), slice_ns(o));
    o->anchor = vow_resolved(loop, vow_nothing());
    if (vow_state_of(o->anchor) != VOW_FULFILLED) {
        vow_oracle_unref(o);
        return VOW_ENOMEM;
    }
    *ret_oracle = o;
    return 0;
}

vow_oracle *vow_oracle_ref(vow_oracle *o)
{
    VOW__ASSERT_THREAD_OF(o, o->loop);
    if (o != NULL)
        o->refs++;
    return o;
}

vow_oracle *vow_oracle_unref(vow_oracle *o)
{
    VOW__ASSERT_THREAD_OF(o, o->loop);
    if (o == NULL || --o->refs > 0)
        return NULL;
    struct vow_alloc alloc = o->alloc;
    vow_future *anchor = o->anchor;
    vow__mem_free(&alloc, o->ring, o->room * sizeof(*o->ring));
    vow__mem_free(&alloc, o, sizeof(*o));
    vow_future_unref(anchor);
    return NULL;
}

void vow_oracle_start(vow_oracle *o, uint32_t weight, uint64_t number)
{
    VOW__ASSERT_THREAD(o->loop);
    uint64_t now = vow_loop_now_ns(o->loop);
    bool is_first = o->stats.starts == 0;
    uint64_t before = o->last_number;
    o->stats.starts++;
    o->running += weight;
    o->last_number = number;
    if (!looked_at(o, now))
        return;
    o->stats.checked++;
    if (o->opts.concurrent > 0 && o->running > o->opts.concurrent)
        breach(o, (vow_breach){.kind = VOW_BREACH_CONCURRENCY,
                               .at_ns = now,
                               .seen = o->running,
                               .allowed = o->opts.concurrent});
    if (o->opts.rate > 0)
        judge_rate(o, weight, now);
    if (o->opts.ordered && !is_first && number <= before)
        breach(o, (vow_breach){.kind = VOW_BREACH_ORDER,
                               .at_ns = now,
                               .seen = number,
                               .allowed = before});
}

void vow_oracle_end(vow_oracle *o, uint32_t weight)
{
    VOW__ASSERT_THREAD(o->loop);
    if (weight <= o->running) {
        o->running -= weight;
        return;
    }
    uint64_t had = o->running;
    uint64_t now = vow_loop_now_ns(o->loop);
    o->running = 0;
    if (looked_at(o, now))
        breach(o, (vow_breach){.kind = VOW_BREACH_END,
                               .at_ns = now,
                               .seen = weight,
                               .allowed = had});
}

void vow_oracle_expect(vow_oracle *o, uint32_t concurrent, uint32_t rate,
                       uint64_t window_ms)
{
    VOW__ASSERT_THREAD(o->loop);
    uint64_t window_ns = o->window_ns;
    (void)looked_at(o, vow_loop_now_ns(o->loop)); /* slices end as they began */
    o->opts.concurrent = concurrent;
    set_window(o, window_ms);
    if (rate != o->opts.rate || window_ns != o->window_ns)
        forget(o);
    o->opts.rate = rate;
}

vow_oracle_stats vow_oracle_stats_get(const vow_oracle *o)
{
    VOW__ASSERT_THREAD(o->loop);
    return o->stats;
}

size_t vow_breach_text(const vow_breach *b, char *text, size_t size)
{
    unsigned long long seen = b->seen, allowed = b->allowed;
    int n = 0;
    switch (b->kind) {
    case VOW_BREACH_CONCURRENCY:
        n = snprintf(text, size, "%llu at once where %llu are allowed", seen,
                     allowed);
        break;
    case VOW_BREACH_RATE:
        n = snprintf(text, size,
                     "%llu started within %llu.%03llu ms where %llu are "
                     "allowed",
                     seen, (unsigned long long)(b->span_ns / VOW__NS_PER_MS),
                     (unsigned long long)(b->span_ns / NS_PER_US % US_PER_MS),
                     allowed);
        break;
    case VOW_BREACH_ORDER:
        n = snprintf(text, size, "number %llu started after number %llu", seen,
                     allowed);
        break;
    case VOW_BREACH_END:
        n = snprintf(text, size, "%llu ended where %llu ran", seen, allowed);
        break;
    default:
        n = snprintf(text, size, "no breach");
        break;
    }
    return n < 0 ? 0 : (size_t)n;
}

/* ---- slices -------------------------------------------------------------- */

/* Whether the slice that `now` lies in is one that is checked. */
static bool looked_at(vow_oracle *o, uint64_t now)
{
    if (o->opts.sample <= 1)
        return true;
    if (now >= o->slice_end_ns) {
        uint64_t late = now - o->slice_end_ns;
        o->slice += late / slice_ns(o) + 1;
        o->slice_end_ns = plus(now - late % slice_ns(o), slice_ns(o));
    }
    return o->slice % o->opts.sample == 0;
}

static uint64_t slice_ns(const vow_oracle *o)
{
    uint64_t ns = o->window_ns;
    if (o->opts.rate == 0)
        ns = (uint64_t)WINDOW_MS * VOW__NS_PER_MS;
    return ns > UINT64_MAX / SLICE_WINDOWS ? UINT64_MAX : SLICE_WINDOWS * ns;
}

static void set_window(vow_oracle *o, uint64_t window_ms)
{
    uint64_t ms = window_ms == 0 ? WINDOW_MS : window_ms;
    o->opts.window_ms = ms;
    o->window_ns =
        ms > UINT64_MAX / VOW__NS_PER_MS ? UINT64_MAX : ms * VOW__NS_PER_MS;
}

/* ---- the rate ------------------------------------------------------------ */

static void judge_rate(vow_oracle *o, uint32_t weight, uint64_t now)
{
    leave_window(o, now);
    uint64_t known = o->weight + weight;
    uint64_t since = o->count > 0 ? o->ring[o->first].at_ns : now;
    if (!keep(o, weight, now)) {
        o->hole = true;
        o->hole_until_ns = plus(now, o->window_ns);
    }
    if (known > o->opts.rate)
        breach(o, (vow_breach){.kind = VOW_BREACH_RATE,
                               .at_ns = now,
                               .span_ns = now - since,
                               .seen = known,
                               .allowed = o->opts.rate});
    else if (o->hole && now <= o->hole_until_ns)
        o->stats.unjudged++;
}

/* Drop what lies in no closed span of a window with `now`; keeps O1. */
static void leave_window(vow_oracle *o, uint64_t now)
{
    while (o->count > 0 && now - o->ring[o->first].at_ns > o->window_ns) {
        o->weight -= o->ring[o->first].weight;
        o->first = o->first + 1 == o->room ? 0 : o->first + 1;
        o->count--;
    }
}

/* False when there is no place for it. */
static bool keep(vow_oracle *o, uint32_t weight, uint64_t now)
{
    if (o->count == o->room && !grow(o))
        return false;
    uint32_t before_end = o->room - o->first;
    uint32_t at =
        o->count < before_end ? o->first + o->count : o->count - before_end;
    o->ring[at] = (struct started){.at_ns = now, .weight = weight};
    o->weight += weight;
    o->count++;
    return true;
}

static bool grow(vow_oracle *o)
{
    uint32_t most = o->opts.remember;
    if (o->room == most)
        return false;
    uint32_t more = o->room == 0 ? RING_FIRST : o->room;
    uint32_t room = more < most - o->room ? o->room + more : most;
    struct started *ring = vow__mem_new(&o->alloc, room * sizeof(*ring));
    if (ring == NULL)
        return false;
    for (uint32_t i = 0; i < o->count; i++)
        ring[i] = o->ring[((size_t)o->first + i) % o->room];
    vow__mem_free(&o->alloc, o->ring, o->room * sizeof(*ring));
    o->ring = ring;
    o->room = room;
    o->first = 0;
    return true;
}

static void forget(vow_oracle *o)
{
    o->first = 0;
    o->count = 0;
    o->weight = 0;
    o->hole = false;
}

/* -------------------------------------------------------------------------- */

static void breach(vow_oracle *o, vow_breach b)
{
    if (o->stats.breaches++ == 0)
        o->stats.first = b;
    if (o->opts.on_breach != NULL)
        o->opts.on_breach(&b, o->opts.on_breach_user);
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}
