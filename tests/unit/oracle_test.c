/* SPDX-License-Identifier: MIT */
/* oracle_test.c - the oracle tells every kind of breach at its exact edge, and
 * nothing else: closed spans, weights, changed limits, slices, lost memory. */
#include "fault.h"
#include "harness.h"
#include "world.h"

#include <stdlib.h>
#include <string.h>

enum { NS = 1000000 }; /* per ms */

struct seen {
    struct world w;
    vow_oracle *oracle;
    uint32_t told;
    vow_breach last;
};

static void on_breach(const vow_breach *b, void *user)
{
    struct seen *s = user;
    s->told++;
    s->last = *b;
}

static void open_with(struct seen *s, vow_oracle_opts o)
{
    s->told = 0;
    world_open(&s->w);
    o.size = sizeof(o);
    o.on_breach = on_breach;
    o.on_breach_user = s;
    CHECK_INT_EQ(vow_oracle_new(s->w.loop, &o, &s->oracle), 0);
}

/* The breaches told to the function and those counted are the same. */
static void close_all(struct seen *s)
{
    CHECK_UINT_EQ(vow_oracle_stats_get(s->oracle).breaches, s->told);
    s->oracle = vow_oracle_unref(s->oracle);
    world_close(&s->w);
}

static uint64_t unjudged(const struct seen *s)
{
    return vow_oracle_stats_get(s->oracle).unjudged;
}

static void nothing(void *user)
{
    (void)user;
}

/* Virtual time goes by milliseconds; a call at a time goes by nanoseconds. */
static void go_to(struct seen *s, uint64_t ns)
{
    vow_call c = {{0}};
    vow_call_at(&c, s->w.loop, ns, nothing, NULL);
    world_run(&s->w);
    CHECK_UINT_EQ(vow_loop_now_ns(s->w.loop), ns);
}

/* A start must break that limit with these figures, and no other; kind 0: it
 * must break none. */
static void start_breaks(struct seen *s, uint32_t weight, vow_breach want)
{
    uint32_t before = s->told;
    vow_oracle_start(s->oracle, weight, 0);
    CHECK_UINT_EQ(s->told, before + (want.kind != 0));
    if (want.kind == 0)
        return;
    CHECK_INT_EQ(s->last.kind, want.kind);
    CHECK_UINT_EQ(s->last.at_ns, vow_loop_now_ns(s->w.loop));
    CHECK_UINT_EQ(s->last.span_ns, want.span_ns);
    CHECK_UINT_EQ(s->last.seen, want.seen);
    CHECK_UINT_EQ(s->last.allowed, want.allowed);
}
#define FINE(s, weight) start_breaks(s, weight, (vow_breach){.at_ns = 0})
#define PLACES(s, weight, seen, allowed)                                       \
    start_breaks(s, weight,                                                    \
                 (vow_breach){VOW_BREACH_CONCURRENCY, 0, 0, seen, allowed})
#define RATE(s, weight, span, seen, allowed)                                   \
    start_breaks(s, weight,                                                    \
                 (vow_breach){VOW_BREACH_RATE, 0, span, seen, allowed})

/* A test of one oracle with these options. */
#define WATCH(name, ...)                                                       \
    static void watch_##name(struct seen *s);                                  \
    TEST(oracle, name)                                                         \
    {                                                                          \
        struct seen seen;                                                      \
        open_with(&seen, (vow_oracle_opts){__VA_ARGS__});                      \
        watch_##name(&seen);                                                   \
        close_all(&seen);                                                      \
    }                                                                          \
    static void watch_##name(struct seen *s)

/* ---- at once ------------------------------------------------------------- */

WATCH(tells_the_first_above_the_number_at_once, .concurrent = 3)
{
    FINE(s, 1);
    FINE(s, 1);
    FINE(s, 1);
    PLACES(s, 1, 4, 3);
    PLACES(s, 1, 5, 3);
}

WATCH(counts_weight_at_once_to_the_unit, .concurrent = UINT32_MAX)
{
    FINE(s, UINT32_MAX - 7);
    FINE(s, 7);
    FINE(s, 0);
    PLACES(s, 1, UINT64_C(1) << 32, UINT32_MAX);
}

WATCH(an_end_makes_room_for_as_much, .concurrent = 5)
{
    FINE(s, 5);
    vow_oracle_end(s->oracle, 2);
    FINE(s, 2);
    vow_oracle_end(s->oracle, 2);
    PLACES(s, 3, 6, 5);
}

WATCH(tells_when_more_ends_than_ran_and_counts_on_from_nothing, .concurrent = 2)
{
    FINE(s, 2);
    vow_oracle_end(s->oracle, 1);
    CHECK_UINT_EQ(s->told, 0);
    go_to(s, 77);
    vow_oracle_end(s->oracle, 2);
    CHECK_UINT_EQ(s->told, 1);
    CHECK_INT_EQ(s->last.kind, VOW_BREACH_END);
    CHECK_UINT_EQ(s->last.at_ns, 77);
    CHECK_UINT_EQ(s->last.seen, 2);
    CHECK_UINT_EQ(s->last.allowed, 1);
    vow_oracle_end(s->oracle, 0);
    FINE(s, 2);
    PLACES(s, 1, 3, 2);
}

/* ---- the rate ------------------------------------------------------------ */

WATCH(a_span_has_both_of_its_ends, .rate = 1, .window_ms = 10)
{
    FINE(s, 1);
    go_to(s, 10 * NS);
    RATE(s, 1, 10 * NS, 2, 1);
    go_to(s, 20 * NS + 1);
    FINE(s, 1);
    go_to(s, 30 * NS + 1);
    RATE(s, 1, 10 * NS, 2, 1);
    go_to(s, 40 * NS + 2);
    FINE(s, 1);
}

WATCH(a_window_is_a_second_unless_told, .rate = 2)
{
    FINE(s, 2);
    go_to(s, UINT64_C(1000) * NS);
    RATE(s, 1, 1000 * NS, 3, 2);
    go_to(s, UINT64_C(2000) * NS + 1);
    FINE(s, 2);
}

WATCH(counts_weight_in_a_span_to_the_unit, .rate = 10, .window_ms = 10)
{
    FINE(s, 4);
    go_to(s, 5 * NS);
    FINE(s, 6);
    go_to(s, 10 * NS + 1); /* the 4 have left */
    FINE(s, 4);
    RATE(s, 1, 5 * NS + 1, 11, 10);
    go_to(s, 15 * NS + 1); /* the 6 have left */
    FINE(s, 5);
    RATE(s, 1, 5 * NS, 11, 10);
}

WATCH(ends_do_not_make_room_in_the_rate, .rate = 3, .concurrent = 4)
{
    RATE(s, 4, 0, 4, 3); /* one alone can be too heavy */
    vow_oracle_end(s->oracle, 4);
    RATE(s, 1, 0, 5, 3);
}

WATCH(a_window_beyond_the_end_of_time_never_ends, .rate = 1,
      .window_ms = UINT64_MAX, .sample = 2)
{
    FINE(s, 1);
    go_to(s, UINT64_MAX / 2);
    RATE(s, 1, UINT64_MAX / 2, 2, 1);
}

/* Every start against all spans that end with it, counted one by one. */
TEST(oracle, agrees_with_counting_every_span_one_by_one)
{
    enum { STARTS = 400, WINDOW = 5 };
    uint64_t random = test_seed();
    for (int round = 0; round < 20; round++) {
        struct seen s;
        uint64_t at[STARTS], now = 0;
        uint32_t weight[STARTS];
        uint32_t rate = 1 + (uint32_t)(test_random(&random) % 40);
        open_with(&s, (vow_oracle_opts){.rate = rate, .window_ms = WINDOW});
        for (int i = 0; i < STARTS; i++) {
            uint64_t step = test_random(&random) % 4;
            now += step == 3   ? test_random(&random) % (WINDOW * NS + 2)
                   : step == 2 ? WINDOW * NS / rate
                               : step;
            go_to(&s, now);
            at[i] = now;
            weight[i] = (uint32_t)(test_random(&random) % 4);
            vow_breach want = {.seen = 0};
            for (int k = i; k >= 0 && now - at[k] <= WINDOW * NS; k--) {
                want.seen += weight[k];
                want.span_ns = now - at[k];
            }
            want.allowed = rate;
            if (want.seen > rate)
                want.kind = VOW_BREACH_RATE;
            start_breaks(&s, weight[i], want);
        }
        CHECK_UINT_EQ(vow_oracle_stats_get(s.oracle).checked, STARTS);
        CHECK_UINT_EQ(unjudged(&s), 0);
        close_all(&s);
    }
}

/* ---- order --------------------------------------------------------------- */

WATCH(numbers_rise_from_one_start_to_the_next, .ordered = true)
{
    vow_oracle_start(s->oracle, 1, 0); /* any number may be the first */
    vow_oracle_start(s->oracle, 1, 1);
    vow_oracle_start(s->oracle, 1, UINT64_MAX);
    CHECK_UINT_EQ(s->told, 0);
    vow_oracle_start(s->oracle, 1, UINT64_MAX); /* the same is no rise */
    CHECK_UINT_EQ(s->told, 1);
    CHECK_INT_EQ(s->last.kind, VOW_BREACH_ORDER);
    CHECK_UINT_EQ(s->last.seen, UINT64_MAX);
    CHECK_UINT_EQ(s->last.allowed, UINT64_MAX);
    vow_oracle_start(s->oracle, 1, 5);
    CHECK_UINT_EQ(s->told, 2);
    CHECK_UINT_EQ(s->last.seen, 5);
    CHECK_UINT_EQ(s->last.allowed, UINT64_MAX);
    vow_oracle_start(s->oracle, 1, 6);
    CHECK_UINT_EQ(s->told, 2);
}

WATCH(numbers_are_not_looked_at_unless_asked, .concurrent = 4)
{
    vow_oracle_start(s->oracle, 1, 9);
    vow_oracle_start(s->oracle, 1, 3);
    CHECK_UINT_EQ(s->told, 0);
}

/* ---- telling ------------------------------------------------------------- */

WATCH(one_start_can_break_every_limit, .concurrent = 1, .rate = 2,
      .ordered = true)
{
    vow_oracle_start(s->oracle, 1, 7);
    vow_oracle_start(s->oracle, 2, 6);
    vow_oracle_stats st = vow_oracle_stats_get(s->oracle);
    CHECK_UINT_EQ(s->told, 3);
    CHECK_UINT_EQ(st.starts, 2);
    CHECK_UINT_EQ(st.checked, 2);
    CHECK_INT_EQ(st.first.kind, VOW_BREACH_CONCURRENCY);
    CHECK_UINT_EQ(st.first.seen, 3);
}

TEST(oracle, without_limits_and_without_a_function_it_only_counts)
{
    struct world w;
    world_open(&w);
    vow_oracle *o = NULL;
    CHECK_INT_EQ(vow_oracle_new(w.loop, NULL, &o), 0);
    for (int i = 0; i < 100; i++)
        vow_oracle_start(o, 1000, 5);
    CHECK_UINT_EQ(vow_oracle_stats_get(o).breaches, 0);
    vow_oracle_end(o, 100000);
    vow_oracle_end(o, 1);
    vow_oracle_stats st = vow_oracle_stats_get(o);
    CHECK_UINT_EQ(st.starts, 100);
    CHECK_UINT_EQ(st.breaches, 1);
    CHECK_INT_EQ(st.first.kind, VOW_BREACH_END);
    o = vow_oracle_unref(o);
    world_close(&w);
}

static void check_text(vow_breach b, const char *want)
{
    char text[120];
    CHECK_UINT_EQ(vow_breach_text(&b, text, sizeof(text)), strlen(want));
    CHECK_STR_EQ(text, want);
}

TEST(oracle, each_breach_is_a_sentence)
{
    check_text(
        (vow_breach){.kind = VOW_BREACH_CONCURRENCY, .seen = 17, .allowed = 16},
        "17 at once where 16 are allowed");
    check_text((vow_breach){.kind = VOW_BREACH_RATE,
                            .span_ns = 999998765,
                            .seen = 52,
                            .allowed = 50},
               "52 started within 999.998 ms where 50 are allowed");
    check_text((vow_breach){.kind = VOW_BREACH_ORDER, .seen = 3, .allowed = 12},
               "number 3 started after number 12");
    check_text((vow_breach){.kind = VOW_BREACH_END, .seen = 2, .allowed = 1},
               "2 ended where 1 ran");
    check_text((vow_breach){.seen = 2}, "no breach");
}

TEST(oracle, a_sentence_is_cut_as_snprintf_cuts)
{
    vow_breach b = {.kind = VOW_BREACH_END, .seen = 2, .allowed = 1};
    char text[8] = "1234567";
    CHECK_UINT_EQ(vow_breach_text(&b, NULL, 0), 19);
    CHECK_UINT_EQ(vow_breach_text(&b, text, 6), 19);
    CHECK_STR_EQ(text, "2 end");
}

/* ---- changed limits ------------------------------------------------------ */

WATCH(with_fewer_places_what_runs_may_stay_and_nothing_starts, .concurrent = 10)
{
    FINE(s, 10);
    vow_oracle_expect(s->oracle, 4, 0, 0);
    CHECK_UINT_EQ(s->told, 0);
    vow_oracle_end(s->oracle, 6);
    PLACES(s, 1, 5, 4);
    vow_oracle_end(s->oracle, 2);
    FINE(s, 1);
    vow_oracle_expect(s->oracle, 0, 0, 0); /* any */
    FINE(s, 100);
    vow_oracle_expect(s->oracle, 105, 0, 0);
    FINE(s, 1);
    PLACES(s, 1, 106, 105);
}

WATCH(what_started_before_is_judged_by_the_old_limits_only, .rate = 5,
      .window_ms = 10)
{
    FINE(s, 5);
    vow_oracle_expect(s->oracle, 0, 2, 10);
    FINE(s, 2);
    RATE(s, 1, 0, 3, 2);
    vow_oracle_expect(s->oracle, 0, 2, 20); /* another window */
    FINE(s, 2);
    go_to(s, 20 * NS);
    RATE(s, 1, 20 * NS, 3, 2);
    vow_oracle_expect(s->oracle, 0, 0, 0);
    FINE(s, 100);
    vow_oracle_expect(s->oracle, 0, 1, 0);
    FINE(s, 1);
    go_to(s, UINT64_C(1020) * NS);
    RATE(s, 1, 1000 * NS, 2, 1);
}

WATCH(the_same_rate_again_forgets_nothing, .rate = 5)
{
    FINE(s, 5);
    vow_oracle_expect(s->oracle, 7, 5, 1000); /* 1000 is the default */
    RATE(s, 1, 0, 6, 5);
    RATE(s, 0, 0, 6, 5);
}

/* ---- slices -------------------------------------------------------------- */

WATCH(checks_one_slice_of_four_windows_in_so_many, .rate = 1, .window_ms = 10,
      .sample = 3)
{
    const uint64_t slice = UINT64_C(40) * NS;
    for (uint64_t i = 0; i < 12; i++) {
        uint32_t want = s->told + (i % 3 == 0);
        if (i > 0) {
            go_to(s, i * slice);
            vow_oracle_start(s->oracle, 1, 0); /* the first instant is in it */
        }
        go_to(s, (i + 1) * slice - 1);
        FINE(s, 1);
        vow_oracle_start(s->oracle, 1, 0);
        CHECK_UINT_EQ(s->told, want);
    }
    vow_oracle_stats st = vow_oracle_stats_get(s->oracle);
    CHECK_UINT_EQ(st.starts, 35);
    CHECK_UINT_EQ(st.checked, 11);
}

WATCH(a_slice_begins_without_a_past, .rate = 1, .window_ms = 10, .sample = 2)
{
    go_to(s, 80 * NS - 1);
    FINE(s, 1); /* in slice 1, which is not looked at */
    go_to(s, 80 * NS);
    FINE(s, 1);
    RATE(s, 1, 0, 2, 1);
    go_to(s, 1600 * NS); /* some slices were slept through */
    FINE(s, 1);
    RATE(s, 1, 0, 2, 1);
    go_to(s, 1640 * NS);
    FINE(s, 1);
}

WATCH(without_a_rate_a_slice_is_four_seconds, .concurrent = 1, .window_ms = 10,
      .sample = 2)
{
    const uint64_t slice = UINT64_C(4000) * NS;
    FINE(s, 1);
    go_to(s, slice - 1);
    PLACES(s, 1, 2, 1);
    go_to(s, slice);
    FINE(s, 1);
    go_to(s, 2 * slice - 1);
    FINE(s, 1);
    go_to(s, 2 * slice);
    PLACES(s, 1, 5, 1);
}

WATCH(what_runs_and_the_last_number_are_known_in_every_slice, .concurrent = 2,
      .sample = 2, .ordered = true)
{
    vow_oracle_start(s->oracle, 1, 1);
    go_to(s, UINT64_C(4000) * NS);
    vow_oracle_start(s->oracle, 1, 9);
    vow_oracle_end(s->oracle, 1);
    go_to(s, UINT64_C(8000) * NS);
    CHECK_UINT_EQ(s->told, 0);
    vow_oracle_start(s->oracle, 1, 5);
    CHECK_UINT_EQ(s->told, 1);
    CHECK_INT_EQ(s->last.kind, VOW_BREACH_ORDER);
    CHECK_UINT_EQ(s->last.allowed, 9);
    vow_oracle_start(s->oracle, 1, 6);
    CHECK_UINT_EQ(s->told, 2);
    CHECK_INT_EQ(s->last.kind, VOW_BREACH_CONCURRENCY);
    go_to(s, UINT64_C(12000) * NS);
    vow_oracle_end(s->oracle, 9); /* nobody looks */
    CHECK_UINT_EQ(s->told, 2);
    go_to(s, UINT64_C(16000) * NS);
    vow_oracle_end(s->oracle, 1);
    CHECK_UINT_EQ(s->told, 3);
    CHECK_INT_EQ(s->last.kind, VOW_BREACH_END);
}

WATCH(a_slice_ends_as_it_began_when_the_window_changes, .rate = 1,
      .window_ms = 10, .sample = 2)
{
    go_to(s, 100 * NS); /* slice 2, to 120 ms */
    vow_oracle_expect(s->oracle, 0, 1, 100);
    go_to(s, 120 * NS - 1);
    FINE(s, 1);
    RATE(s, 1, 0, 2, 1);
    go_to(s, 120 * NS); /* slice 3, of 400 ms, is not looked at */
    FINE(s, 1);
    go_to(s, 520 * NS - 1);
    FINE(s, 2);
    go_to(s, 520 * NS);
    RATE(s, 2, 0, 2, 1);
}

/* ---- memory -------------------------------------------------------------- */

/* A hole: what is seen beyond doubt is told, what cannot be seen is counted,
 * until the lost ones have left the window. */
WATCH(beyond_what_it_remembers_it_says_that_it_does_not_know, .rate = 6,
      .window_ms = 10, .remember = 4)
{
    for (int i = 0; i < 4; i++)
        FINE(s, 1);
    CHECK_UINT_EQ(unjudged(s), 0);
    FINE(s, 1);
    FINE(s, 1);
    FINE(s, 1); /* the seventh: not seen */
    CHECK_UINT_EQ(unjudged(s), 3);
    RATE(s, 3, 0, 7, 6);
    CHECK_UINT_EQ(unjudged(s), 3);
    go_to(s, 10 * NS);
    FINE(s, 1);
    CHECK_UINT_EQ(unjudged(s), 4);
    go_to(s, 20 * NS + 1); /* the one at 10 was lost too, and has left */
    FINE(s, 5);
    FINE(s, 1);
    RATE(s, 1, 0, 7, 6);
    vow_oracle_stats st = vow_oracle_stats_get(s->oracle);
    CHECK_UINT_EQ(st.unjudged, 4);
    CHECK_UINT_EQ(st.checked, st.starts);
}

WATCH(remembers_as_many_as_the_rate_allows_and_misses_nothing, .rate = 100,
      .remember = 100)
{
    for (int i = 0; i < 100; i++)
        FINE(s, 1);
    CHECK_UINT_EQ(unjudged(s), 0);
    RATE(s, 1, 0, 101, 100);
}

WATCH(a_refused_growth_is_a_hole_in_its_memory, .rate = 1000, .window_ms = 10)
{
    s->w.alloc.fail_at = s->w.alloc.allocs + 1;
    FINE(s, 1000);
    FINE(s, 999); /* far too many, but nobody knows */
    CHECK_UINT_EQ(s->w.alloc.fails, 1);
    CHECK_UINT_EQ(unjudged(s), 2);
    go_to(s, 10 * NS);
    FINE(s, 1);
    CHECK_UINT_EQ(unjudged(s), 3);
    RATE(s, 1, 10 * NS, 1001, 1000);
    go_to(s, 10 * NS + 1);
    FINE(s, 998);
    CHECK_UINT_EQ(unjudged(s), 3);
}

WATCH(new_limits_and_new_slices_have_no_holes, .rate = 9, .window_ms = 10,
      .remember = 1, .sample = 2)
{
    FINE(s, 1);
    FINE(s, 1);
    CHECK_UINT_EQ(unjudged(s), 1);
    vow_oracle_expect(s->oracle, 0, 8, 10);
    FINE(s, 1);
    CHECK_UINT_EQ(unjudged(s), 1);
    FINE(s, 1);
    CHECK_UINT_EQ(unjudged(s), 2);
    go_to(s, 80 * NS);
    FINE(s, 1);
    CHECK_UINT_EQ(unjudged(s), 2);
}

/* It grows while its oldest lies in the middle. */
WATCH(the_ring_turns_and_grows_without_losing_its_place, .rate = 40,
      .window_ms = 1)
{
    for (uint64_t i = 0; i < 10; i++) {
        go_to(s, i);
        FINE(s, 1);
    }
    go_to(s, NS + 8); /* 8 have left, 2 and 38 more are within */
    for (uint32_t i = 0; i < 38; i++)
        FINE(s, 1);
    RATE(s, 1, NS, 41, 40);
    go_to(s, NS + 10); /* these 39 are within */
    FINE(s, 1);
    RATE(s, 1, 2, 41, 40);
}

FAULT_SWEEP(oracle, tells_no_breach_that_was_none_whatever_is_refused,
            FAULT_ALLOC)
{
    vow_oracle *o = NULL;
    int rc =
        vow_oracle_new(w->loop, VOW_ORACLE(.concurrent = 100, .rate = 100), &o);
    CHECK(rc == 0 || fault_explains(w, rc));
    CHECK((o != NULL) == (rc == 0));
    for (int i = 0; o != NULL && i < 100; i++)
        vow_oracle_start(o, 1, 0);
    if (o != NULL) {
        vow_oracle_stats st = vow_oracle_stats_get(o);
        CHECK_UINT_EQ(st.breaches, 0);
        CHECK_UINT_EQ(st.checked, 100);
        CHECK((st.unjudged > 0) == fault_fired(w));
    }
    vow_oracle_unref(o);
}

/* ---- its life ------------------------------------------------------------ */

TEST(oracle, options_of_another_size_are_refused)
{
    struct world w;
    world_open(&w);
    vow_oracle *o = NULL;
    vow_oracle_opts opts = {.size = sizeof(opts) - 1};
    CHECK_INT_EQ(vow_oracle_new(w.loop, &opts, &o), VOW_EINVAL);
    opts.size = 0;
    CHECK_INT_EQ(vow_oracle_new(w.loop, &opts, &o), VOW_EINVAL);
    CHECK_PTR_EQ(o, NULL);
    world_close(&w);
}

TEST(oracle, is_counted_and_outlives_its_loop)
{
    struct world w;
    world_open(&w);
    vow_oracle *o = NULL;
    CHECK_INT_EQ(vow_oracle_new(w.loop, VOW_ORACLE(.rate = 1), &o), 0);
    CHECK_PTR_EQ(vow_oracle_ref(o), o);
    CHECK_PTR_EQ(vow_oracle_unref(o), NULL);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    vow_oracle_start(o, 1, 0);
    vow_oracle_start(o, 1, 0);
    CHECK_UINT_EQ(vow_oracle_stats_get(o).breaches, 1);
    o = vow_oracle_unref(o);
    CHECK_PTR_EQ(vow_oracle_ref(NULL), NULL);
    CHECK_PTR_EQ(vow_oracle_unref(NULL), NULL);
    world_close_dirty(&w);
}
