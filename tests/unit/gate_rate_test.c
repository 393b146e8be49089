/* SPDX-License-Identifier: MIT */
/* gate_rate_test.c - so many per window, exactly: never more in any span, both
 * ends included, and never fewer than that allows; together with places, in
 * one step; and gates inside gates. */
#include "fault.h"
#include "harness.h"
#include "load.h"

#include <string.h>

#define MS UINT64_C(1000000)

/* When start number `i` was, in windows of so many ms that begin one
 * nanosecond behind the end of the one before. */
static void check_window(const struct load *l, size_t i, uint64_t windows,
                         uint64_t window_ms)
{
    CHECK_UINT_EQ(load_ns(l, i), windows * (window_ms * MS + 1));
}

/* ---- exact -------------------------------------------------------------- */

/* https://github.com/resilience4j/resilience4j/issues/1356,
 * https://github.com/redisson/redisson/issues/2931,
 * https://github.com/tower-rs/tower/issues/842 */
TEST(gate_rate, starts_so_many_at_once_and_the_rest_window_by_window)
{
    struct load l;
    load_open(&l, VOW_GATE(.rate = 50));
    load_run_many(&l, 500, 0, NULL);
    world_run(l.w);
    CHECK_UINT_EQ(l.n_starts, 500);
    for (size_t i = 0; i < 500; i++)
        check_window(&l, i, i / 50, 1000);
    CHECK_UINT_EQ(load_most_within(&l, 1000), 50);
    load_close(&l);
}

TEST(gate_rate, takes_as_many_windows_as_it_must_and_no_more)
{
    for (uint32_t rate = 1; rate <= 7; rate++)
        for (uint32_t k = 1; k <= 20; k++) {
            struct load l;
            load_open(&l, VOW_GATE(.rate = rate, .window_ms = 70));
            load_run_many(&l, (int)k, 0, NULL);
            world_run(l.w);
            CHECK_UINT_EQ(l.n_starts, k);
            check_window(&l, k - 1, (k + rate - 1) / rate - 1, 70);
            CHECK(load_most_within(&l, 70) <= rate);
            load_close(&l);
        }
}

/* A full bucket lets almost twice as many through:
 * https://github.com/boinkor-net/governor/issues/219,
 * https://github.com/google/guava/issues/5372 */
TEST(gate_rate, one_start_early_and_the_rest_late_in_a_window)
{
    struct load l;
    load_open(&l, VOW_GATE(.rate = 50));
    load_run(&l, 0, NULL);
    world_advance_ms(l.w, 900);
    load_run_many(&l, 499, 0, NULL);
    world_run(l.w);
    CHECK_UINT_EQ(l.n_starts, 500);
    for (uint64_t i = 0; i < 500; i++)
        CHECK_UINT_EQ(load_ns(&l, i), (i / 50) * (1000 * MS + 1) +
                                          (i % 50 == 0 ? 0 : 900 * MS));
    CHECK_UINT_EQ(load_most_within(&l, 1000), 50);
    load_close(&l);
}

TEST(gate_rate, a_start_exactly_one_window_later_is_still_too_early)
{
    struct load l;
    load_open(&l, VOW_GATE(.rate = 1, .window_ms = 100));
    load_run(&l, 0, NULL);
    world_advance_ms(l.w, 100);
    load_run(&l, 0, NULL);
    world_turn(l.w);
    CHECK_UINT_EQ(l.n_starts, 1);
    world_run(l.w);
    check_window(&l, 1, 1, 100);
    load_close(&l);
}

/* https://github.com/sindresorhus/p-queue/issues/251 */
TEST(gate_rate, with_free_places_a_start_is_immediate)
{
    struct load l;
    load_open(&l, VOW_GATE(.rate = 3, .window_ms = 100));
    static const uint64_t at_ms[] = {0, 60, 99, 101, 161, 200, 202, 500};
    for (size_t i = 0; i < 8; i++) {
        world_advance_ms(l.w, at_ms[i] - load_now_ms(&l));
        load_run(&l, 0, NULL);
        world_turn(l.w);
        CHECK_UINT_EQ(l.n_starts, i + 1);
        CHECK_UINT_EQ(load_ms(&l, i), at_ms[i]);
    }
    CHECK_UINT_EQ(load_most_within(&l, 100), 3);
    load_close(&l);
}

/* https://github.com/joshrotenberg/tower-resilience/issues/363 */
TEST(gate_rate, holds_for_arrivals_at_any_time)
{
    uint64_t random = test_seed();
    for (int round = 0; round < 50; round++) {
        struct load l;
        uint32_t rate = 1 + (uint32_t)(test_random(&random) % 9);
        uint64_t window = 1 + test_random(&random) % 200;
        load_open(&l, VOW_GATE(.rate = rate, .window_ms = window));
        for (int i = 0; i < 200; i++) {
            uint32_t weight = 1 + (uint32_t)(test_random(&random) % rate);
            load_run(&l, test_random(&random) % 30, VOW_JOB(.weight = weight));
            if (test_random(&random) % 3 == 0)
                world_advance_ms(l.w, test_random(&random) % window);
        }
        world_run(l.w);
        CHECK_UINT_EQ(l.n_starts, 200);
        CHECK(load_most_within(&l, window) <= rate);
        for (size_t i = 1; i < 200; i++) /* strictly in order */
            CHECK(l.starts[i].job > l.starts[i - 1].job);
        load_close(&l);
    }
}

TEST(gate_rate, counts_weight)
{
    struct load l;
    load_open(&l, VOW_GATE(.rate = 5, .window_ms = 100));
    load_run(&l, 0, VOW_JOB(.weight = 2));
    world_advance_ms(l.w, 40);
    load_run(&l, 0, VOW_JOB(.weight = 3));
    load_run(&l, 0, VOW_JOB(.weight = 3)); /* two come free at 100 */
    load_run(&l, 0, VOW_JOB(.weight = 2));
    load_run(&l, 0, VOW_JOB(.weight = 5));
    world_run(l.w);
    CHECK_STR_EQ(l.order, "abcde");
    CHECK_UINT_EQ(load_ns(&l, 1), 40 * MS);
    CHECK_UINT_EQ(load_ns(&l, 2), 140 * MS + 1);
    CHECK_UINT_EQ(load_ns(&l, 3), 140 * MS + 1);
    CHECK_UINT_EQ(load_ns(&l, 4), 240 * MS + 2);
    load_close(&l);
}

TEST(gate_rate, a_permit_is_a_start_also_when_nobody_took_it)
{
    struct load l;
    load_open(&l, VOW_GATE(.rate = 2, .window_ms = 100));
    vow_permit p = {0};
    CHECK(vow_gate_try(l.gate, NULL, &p));
    vow_permit_release(&p);
    vow_future_unref(vow_gate_enter(l.gate, NULL));
    world_turn(l.w);
    CHECK(!vow_gate_try(l.gate, NULL, &p));
    load_run(&l, 0, NULL);
    world_run(l.w);
    check_window(&l, 0, 1, 100);
    load_close(&l);
}

/* https://github.com/google/guava/issues/1754,
 * https://github.com/sidekiq/sidekiq/issues/5315 */
TEST(gate_rate, one_timer_serves_all_that_wait)
{
    struct load l;
    load_open(&l, VOW_GATE(.rate = 1, .window_ms = 10));
    load_run_many(&l, 1000, 0, NULL);
    world_turn(l.w);
    vow_loop_stats st;
    vow_loop_stats_get(l.w->loop, &st);
    CHECK_UINT_EQ(st.timers, 1);
    uint64_t before = st.handlers_run;
    world_run(l.w);
    vow_loop_stats_get(l.w->loop, &st);
    CHECK_UINT_EQ(l.n_starts, 1000);
    CHECK(st.handlers_run - before < 10000); /* not a wake-up for each pair */
    load_close(&l);
}

TEST(gate_rate, remembers_eight_bytes_for_each_start_of_a_window)
{
    enum { RATE = 100000 };
    struct world w;
    world_open_with(&w, VOW_LOOP_OPTS(.flags = VOW_LOOP_UNPOOLED));
    vow_gate *g;
    vow_permit p = {0};
    size_t before = w.alloc.live_bytes;
    CHECK_INT_EQ(vow_gate_new(w.loop, VOW_GATE(.rate = RATE), &g), 0);
    for (int i = 0; i < RATE; i++) {
        CHECK(vow_gate_try(g, NULL, &p));
        vow_permit_release(&p);
    }
    CHECK(!vow_gate_try(g, NULL, &p));
    CHECK(w.alloc.live_bytes - before <= RATE * 8 + 4096);
    vow_gate_unref(g);
    world_close(&w);
}

/* ---- cancel gives the token back ----------------------------------------- */

/* https://github.com/sindresorhus/p-queue/issues/219 */
TEST(gate_rate, canceled_jobs_use_up_none_of_the_rate)
{
    struct load l;
    load_open(&l, VOW_GATE(.rate = 2, .window_ms = 100));
    load_run_many(&l, 50, 0, NULL);
    world_turn(l.w);
    for (int i = 2; i < 48; i++)
        CHECK(vow_cancel(l.jobs[i].f, NULL));
    world_run(l.w);
    CHECK_UINT_EQ(l.n_starts, 4);
    check_window(&l, 2, 1, 100);
    check_window(&l, 3, 1, 100);
    CHECK_UINT_EQ(load_now_ms(&l), 100);
    load_close(&l);
}

/* https://github.com/thomhurst/Kevlar/issues/15,
 * https://github.com/cadence-workflow/cadence/pull/6030 */
TEST(gate_rate, whoever_leaves_from_head_middle_or_tail_moves_the_rest_up)
{
    for (int gone = 1; gone <= 3; gone++) {
        struct load l;
        load_open(&l, VOW_GATE(.rate = 1, .window_ms = 100));
        load_run_many(&l, 4, 0, NULL);
        world_advance_ms(l.w, 50);
        CHECK(vow_cancel(l.jobs[gone].f, NULL));
        world_run(l.w);
        CHECK_UINT_EQ(l.n_starts, 3);
        check_window(&l, 1, 1, 100);
        check_window(&l, 2, 2, 100);
        load_close(&l);
    }
}

TEST(gate_rate, a_job_canceled_before_it_began_gives_its_token_back)
{
    struct load l;
    load_open(&l, VOW_GATE(.rate = 1, .concurrent = 1));
    struct load_job *a = load_run(&l, 0, NULL);
    CHECK(vow_cancel(a->f, NULL)); /* let in, and not yet begun */
    load_run(&l, 0, NULL);
    world_turn(l.w);
    CHECK_STR_EQ(l.order, "b");
    CHECK_INT_EQ(load_code(a), VOW_ECANCELED);
    CHECK_UINT_EQ(load_stats(&l).started, 1);
    world_run(l.w);
    CHECK_UINT_EQ(load_now_ms(&l), 0);
    load_close(&l);
}

TEST(gate_rate, a_job_canceled_as_it_begins_lets_the_next_one_in)
{
    struct load l;
    load_open(&l, VOW_GATE(.rate = 1, .concurrent = 1));
    struct load_job *a = load_run(&l, 0, NULL);
    load_run(&l, 0, NULL); /* waits already when the token comes back */
    CHECK(vow_cancel(a->f, NULL));
    world_turn(l.w);
    CHECK_STR_EQ(l.order, "b");
    load_close(&l);
}

TEST(gate_rate, an_entry_let_go_by_its_last_reader_uses_no_token)
{
    struct load l;
    vow_permit p = {0};
    load_open(&l, VOW_GATE(.concurrent = 1, .rate = 2));
    CHECK(vow_gate_try(l.gate, NULL, &p));
    vow_future *entry = vow_gate_enter(l.gate, NULL);
    vow_future *all = vow_all(l.w->loop, &entry, 1);
    vow_future_unref(entry);
    load_run(&l, 0, NULL);
    vow_cancel(all, NULL);
    vow_permit_release(&p); /* before the queue has run */
    world_turn(l.w);
    CHECK_STR_EQ(l.order, "a");
    (void)vow_error_of(all);
    vow_future_unref(all);
    load_close(&l);
}

/* ---- even --------------------------------------------------------------- */

TEST(gate_rate, evenly_starts_are_a_part_of_the_window_apart)
{
    for (uint32_t rate = 1; rate <= 12; rate++) {
        struct load l;
        load_open(&l, VOW_GATE(.rate = rate, .even = true));
        load_run_many(&l, 40, 0, NULL);
        world_run(l.w);
        CHECK_UINT_EQ(l.n_starts, 40);
        CHECK_UINT_EQ(load_ns(&l, 0), 0);
        for (size_t i = 1; i < 40; i++) {
            uint64_t gap = load_ns(&l, i) - load_ns(&l, i - 1);
            CHECK(gap * rate >= 1000 * MS);
            CHECK(gap <= 1000 * MS / rate + 2);
        }
        CHECK(load_most_within(&l, 1000) <= rate);
        load_close(&l);
    }
}

TEST(gate_rate, evenly_nothing_is_saved_up_while_nothing_comes)
{
    struct load l;
    load_open(&l, VOW_GATE(.rate = 4, .even = true));
    load_run(&l, 0, NULL);
    world_advance_ms(l.w, 5000);
    load_run_many(&l, 3, 0, NULL);
    world_run(l.w);
    CHECK_UINT_EQ(load_ms(&l, 1), 5000);
    CHECK_UINT_EQ(load_ms(&l, 2), 5250);
    CHECK_UINT_EQ(load_ms(&l, 3), 5500);
    load_close(&l);
}

TEST(gate_rate, evenly_weight_counts_as_well)
{
    struct load l;
    load_open(&l, VOW_GATE(.rate = 4, .even = true));
    for (int i = 0; i < 20; i++)
        load_run(&l, 0, VOW_JOB(.weight = (uint32_t)(i % 4) + 1));
    world_run(l.w);
    CHECK_UINT_EQ(l.n_starts, 20);
    CHECK(load_most_within(&l, 1000) <= 4);
    for (size_t i = 1; i < 20; i++)
        CHECK(load_ns(&l, i) - load_ns(&l, i - 1) >= 250 * MS);
    load_close(&l);
}

/* ---- places and rate in one step ----------------------------------------- */

/* https://github.com/apollographql/router/pull/9034,
 * https://github.com/vectordotdev/vector/pull/26457 */
TEST(gate_rate, no_place_is_held_while_a_job_waits_for_the_rate)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1, .key_rate = 1));
    load_run(&l, 0, VOW_JOB(.key = "x"));
    struct load_job *waits = load_run(&l, 0, VOW_JOB(.key = "x"));
    world_advance_ms(l.w, 10);
    CHECK_UINT_EQ(load_stats(&l).running, 0);
    CHECK_UINT_EQ(load_stats(&l).weight, 0);
    load_run(&l, 0, VOW_JOB(.key = "y"));
    world_advance_ms(l.w, 0);
    CHECK_STR_EQ(l.order, "ac");
    CHECK_INT_EQ(load_code(waits), LOAD_PENDING);
    world_run(l.w);
    CHECK_STR_EQ(l.order, "acb");
    load_close(&l);
}

TEST(gate_rate, none_of_the_rate_is_used_up_while_a_job_waits_for_a_place)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1, .rate = 2));
    load_run(&l, 900, NULL);
    load_run(&l, 0, NULL); /* waits for the place until 900 */
    load_run(&l, 0, NULL);
    load_run(&l, 0, NULL);
    world_run(l.w);
    CHECK_UINT_EQ(load_ns(&l, 1), 900 * MS);
    CHECK_UINT_EQ(load_ns(&l, 2), 1000 * MS + 1);
    CHECK_UINT_EQ(load_ns(&l, 3), 1900 * MS + 1);
    load_close(&l);
}

TEST(gate_rate, both_limits_hold_and_are_used_up_together)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 3, .rate = 5, .window_ms = 100));
    load_run_many(&l, 60, 35, NULL);
    world_run(l.w);
    CHECK_UINT_EQ(l.peak, 3);
    CHECK_UINT_EQ(load_most_within(&l, 100), 5);
    /* 3 at 0, 2 at 35; and so again in each of the 12 windows */
    for (uint64_t i = 0; i < 60; i++)
        CHECK_UINT_EQ(load_ns(&l, i),
                      i / 5 * (100 * MS + 1) + (i % 5 < 3 ? 0 : 35 * MS));
    load_close(&l);
}

/* ---- gates inside gates -------------------------------------------------- */

struct chain {
    struct load l;
    vow_gate *inner;
};

static struct chain *the_chain; /* a start function has one argument */

static vow_future *into_inner(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)loop;
    (void)attempt;
    return vow_gate_run(the_chain->inner, load_start, arg, NULL);
}

/* The first runs for 2 s; the others are fast. */
static void chain_run(struct chain *c, const vow_gate_opts *outer,
                      const vow_gate_opts *inner)
{
    the_chain = c;
    load_open(&c->l, outer);
    CHECK_INT_EQ(vow_gate_new(c->l.w->loop, inner, &c->inner), 0);
    for (int i = 0; i < 3; i++) {
        struct load_job *j = load_job(&c->l, i == 0 ? 2000 : 10);
        j->f = vow_gate_run(c->l.gate, into_inner, j, NULL);
    }
    world_run(c->l.w);
    CHECK_STR_EQ(c->l.order, "abc");
    CHECK_UINT_EQ(c->l.peak, 1);
    vow_gate_unref(c->inner);
}

TEST(gate_rate, limiting_the_rate_before_the_places_breaks_the_rate)
{
    struct chain c;
    chain_run(&c, VOW_GATE(.rate = 1), VOW_GATE(.concurrent = 1));
    CHECK_UINT_EQ(load_ms(&c.l, 1), 2000);
    CHECK_UINT_EQ(load_ms(&c.l, 2), 2010); /* 10 ms later, not 1000 */
    load_close(&c.l);
}

TEST(gate_rate, limiting_the_places_before_the_rate_keeps_both)
{
    struct chain c;
    chain_run(&c, VOW_GATE(.concurrent = 1), VOW_GATE(.rate = 1));
    CHECK_UINT_EQ(load_ms(&c.l, 1), 2000);
    CHECK_UINT_EQ(load_ns(&c.l, 2), 3000 * MS + 1);
    load_close(&c.l);
}

TEST(gate_rate, one_gate_with_both_limits_keeps_both)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1, .rate = 1));
    load_run(&l, 2000, NULL);
    load_run_many(&l, 2, 10, NULL);
    world_run(l.w);
    CHECK_UINT_EQ(load_ms(&l, 1), 2000);
    CHECK_UINT_EQ(load_ns(&l, 2), 3000 * MS + 1);
    load_close(&l);
}
