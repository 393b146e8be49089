/* SPDX-License-Identifier: MIT */
/* oracle.c - independent check of limits.
 *
 * WHY   A wrong limiter has wrong counters, too. A trusted check counts again
 *       and knows only the contract: starts, ends, and the clock.
 * HOW   The running weight is a number. For the rate, a ring has the starts of
 *       the last window and `weight` their sum: a new start drops the starts
 *       older than the window, then the sum is compared. The ring grows on
 *       demand. A start without room in the ring leaves a hole. While the hole
 *       is inside the window, the sum is a lower bound: a breach shown by the
 *       sum is real, any other start counts as unjudged. So the oracle may miss
 *       a breach, but never reports a false breach.
 *       Outside of the checked slices only the running weight and the last
 *       number are updated. More than a window lies between two checked slices,
 *       so each slice begins without past starts.
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
    vow_future *anchor; /* settled; keeps the clock of a closed loop */
    struct vow_alloc alloc;
    vow_oracle_opts opts; /* the current limits */
    uint32_t refs;
    uint64_t running;     /* weight */
    uint64_t last_number; /* of the last start, if any */
    uint64_t window_ns;
    uint64_t slice;        /* index of the current slice */
    uint64_t slice_end_ns; /* UINT64_MAX: never */

    struct started *ring;
    uint32_t room;          /* size of the ring, at most opts.remember */
    uint32_t first;         /* index of the oldest start */
    uint32_t count;         /* starts in the ring */
    uint64_t weight;        /* of starts in the ring */
    uint64_t hole_until_ns; /* when the last lost start leaves the window */
    bool hole;              /* a start was lost */
    vow_oracle_stats stats;
};

static bool slice_is_checked(vow_oracle *o, uint64_t now);
static uint64_t slice_length_ns(const vow_oracle *o);
static void oracle_set_window(vow_oracle *o, uint64_t window_ms);
static void oracle_check_rate(vow_oracle *o, uint32_t weight, uint64_t now);
static void oracle_ring_drop_old(vow_oracle *o, uint64_t now);
static bool oracle_ring_add(vow_oracle *o, uint32_t weight, uint64_t now);
static bool oracle_ring_grow(vow_oracle *o);
static void oracle_ring_clear(vow_oracle *o);
static void oracle_report_breach(vow_oracle *o, vow_breach b);
static uint64_t oracle_add_ns(uint64_t a, uint64_t b);

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
    oracle_set_window(o, o->opts.window_ms);
    o->slice_end_ns = oracle_add_ns(vow_loop_now_ns(loop), slice_length_ns(o));
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
    if (!slice_is_checked(o, now))
        return;
    o->stats.checked++;
    if (o->opts.concurrent > 0 && o->running > o->opts.concurrent)
        oracle_report_breach(o, (vow_breach){.kind = VOW_BREACH_CONCURRENCY,
                                             .at_ns = now,
                                             .seen = o->running,
                                             .allowed = o->opts.concurrent});
    if (o->opts.rate > 0)
        oracle_check_rate(o, weight, now);
    if (o->opts.ordered && !is_first && number <= before)
        oracle_report_breach(o, (vow_breach){.kind = VOW_BREACH_ORDER,
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
    if (slice_is_checked(o, now))
        oracle_report_breach(o, (vow_breach){.kind = VOW_BREACH_END,
                                             .at_ns = now,
                                             .seen = weight,
                                             .allowed = had});
}

void vow_oracle_expect(vow_oracle *o, uint32_t concurrent, uint32_t rate,
                       uint64_t window_ms)
{
    VOW__ASSERT_THREAD(o->loop);
    uint64_t window_ns = o->window_ns;
    (void)slice_is_checked(o, vow_loop_now_ns(o->loop)); /* by the old window */
    o->opts.concurrent = concurrent;
    oracle_set_window(o, window_ms);
    if (rate != o->opts.rate || window_ns != o->window_ns)
        oracle_ring_clear(o);
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

/* Returns whether the slice around `now` is checked; updates the slice. */
static bool slice_is_checked(vow_oracle *o, uint64_t now)
{
    if (o->opts.sample <= 1)
        return true;
    if (now >= o->slice_end_ns) {
        uint64_t late = now - o->slice_end_ns;
        o->slice += late / slice_length_ns(o) + 1;
        o->slice_end_ns =
            oracle_add_ns(now - late % slice_length_ns(o), slice_length_ns(o));
    }
    return o->slice % o->opts.sample == 0;
}

static uint64_t slice_length_ns(const vow_oracle *o)
{
    uint64_t ns = o->window_ns;
    if (o->opts.rate == 0)
        ns = (uint64_t)WINDOW_MS * VOW__NS_PER_MS;
    return ns > UINT64_MAX / SLICE_WINDOWS ? UINT64_MAX : SLICE_WINDOWS * ns;
}

static void oracle_set_window(vow_oracle *o, uint64_t window_ms)
{
    uint64_t ms = window_ms == 0 ? WINDOW_MS : window_ms;
    o->opts.window_ms = ms;
    o->window_ns =
        ms > UINT64_MAX / VOW__NS_PER_MS ? UINT64_MAX : ms * VOW__NS_PER_MS;
}

/* ---- rate ---------------------------------------------------------------- */

static void oracle_check_rate(vow_oracle *o, uint32_t weight, uint64_t now)
{
    oracle_ring_drop_old(o, now);
    uint64_t known = o->weight + weight;
    uint64_t since = o->count > 0 ? o->ring[o->first].at_ns : now;
    if (!oracle_ring_add(o, weight, now)) {
        o->hole = true;
        o->hole_until_ns = oracle_add_ns(now, o->window_ns);
    }
    if (known > o->opts.rate)
        oracle_report_breach(o, (vow_breach){.kind = VOW_BREACH_RATE,
                                             .at_ns = now,
                                             .span_ns = now - since,
                                             .seen = known,
                                             .allowed = o->opts.rate});
    else if (o->hole && now <= o->hole_until_ns)
        o->stats.unjudged++;
}

/* Drops the starts more than a window before `now`; keeps O1. */
static void oracle_ring_drop_old(vow_oracle *o, uint64_t now)
{
    while (o->count > 0 && now - o->ring[o->first].at_ns > o->window_ns) {
        o->weight -= o->ring[o->first].weight;
        o->first = o->first + 1 == o->room ? 0 : o->first + 1;
        o->count--;
    }
}

/* Adds a start to the ring. False: no room. */
static bool oracle_ring_add(vow_oracle *o, uint32_t weight, uint64_t now)
{
    if (o->count == o->room && !oracle_ring_grow(o))
        return false;
    uint32_t before_end = o->room - o->first;
    uint32_t at =
        o->count < before_end ? o->first + o->count : o->count - before_end;
    o->ring[at] = (struct started){.at_ns = now, .weight = weight};
    o->weight += weight;
    o->count++;
    return true;
}

static bool oracle_ring_grow(vow_oracle *o)
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

static void oracle_ring_clear(vow_oracle *o)
{
    o->first = 0;
    o->count = 0;
    o->weight = 0;
    o->hole = false;
}

/* ---- breaches ------------------------------------------------------------ */

static void oracle_report_breach(vow_oracle *o, vow_breach b)
{
    if (o->stats.breaches++ == 0)
        o->stats.first = b;
    if (o->opts.on_breach != NULL)
        o->opts.on_breach(&b, o->opts.on_breach_user);
}

static uint64_t oracle_add_ns(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}
