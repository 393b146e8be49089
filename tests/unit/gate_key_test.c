/* SPDX-License-Identifier: MIT */
/* gate_key_test.c - keys: limits of their own under those of the gate, fair
 * turns, a pause for one of them, and memory for as many as are in use. */
#include "fault.h"
#include "harness.h"
#include "load.h"

#include <stdio.h>
#include <string.h>

#define MS UINT64_C(1000000)

/* Queue jobs of 10 ms behind a pause: one per letter, '-' has no key. */
static void queue_keys(struct load *l, const char *keys)
{
    for (; *keys != '\0'; keys++) {
        char key[2] = {*keys, '\0'};
        load_run(l, 10, VOW_JOB(.key = *keys == '-' ? NULL : key));
    }
}

/* ---- limits of each key -------------------------------------------------- */

/* https://github.com/egeominotti/bunqueue/issues/44,
 * https://github.com/hardbyte/awa/issues/340 */
TEST(gate_key, so_many_in_all_and_so_many_of_each)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 20, .key_concurrent = 3));
    for (int i = 0; i < 100; i++) {
        char key[8];
        snprintf(key, sizeof(key), "%d", i % 10);
        load_run(&l, 10, VOW_JOB(.key = key));
    }
    world_turn(l.w);
    CHECK_UINT_EQ(l.weight, 20);
    int runs[10] = {0};
    for (int i = 0; i < 100; i++)
        runs[i % 10] += l.jobs[i].runs;
    for (int i = 0; i < 10; i++) /* taking turns, two of each */
        CHECK_INT_EQ(runs[i], 2);
    world_run(l.w);
    CHECK_UINT_EQ(l.peak, 20);
    CHECK_UINT_EQ(load_now_ms(&l), 50);
    load_close(&l);
}

TEST(gate_key, a_key_that_is_full_stops_no_other)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 9, .key_concurrent = 1));
    queue_keys(&l, "xxxyyz-");
    world_turn(l.w);
    CHECK_UINT_EQ(l.weight, 4);
    CHECK(l.jobs[0].runs && l.jobs[3].runs && l.jobs[5].runs && l.jobs[6].runs);
    world_advance_ms(l.w, 10);
    CHECK_UINT_EQ(l.weight, 2);
    world_run(l.w);
    CHECK_UINT_EQ(load_now_ms(&l), 30);
    load_close(&l);
}

TEST(gate_key, weight_counts_in_the_limits_of_a_key)
{
    struct load l;
    load_open(&l, VOW_GATE(.key_concurrent = 3));
    load_run(&l, 10, VOW_JOB(.key = "x", .weight = 2));
    load_run(&l, 10, VOW_JOB(.key = "x", .weight = 2));
    load_run(&l, 10, VOW_JOB(.key = "x", .weight = 1)); /* passes nobody */
    load_run(&l, 10, VOW_JOB(.key = "y", .weight = 3));
    world_turn(l.w);
    CHECK_STR_EQ(l.order, "ad");
    world_run(l.w);
    CHECK_STR_EQ(l.order, "adbc");
    CHECK_UINT_EQ(load_ms(&l, 3), 10);
    load_close(&l);
}

TEST(gate_key, each_has_a_rate_of_its_own_and_it_is_exact)
{
    struct load l;
    load_open(&l, VOW_GATE(.key_rate = 2, .key_window_ms = 100));
    for (int i = 0; i < 10; i++)
        load_run(&l, 0, VOW_JOB(.key = i % 2 == 0 ? "x" : "y"));
    world_run(l.w);
    CHECK_UINT_EQ(l.n_starts, 10);
    for (size_t i = 0; i < 10; i++)
        CHECK_UINT_EQ(load_ns(&l, i), i / 4 * (100 * MS + 1));
    load_close(&l);
}

TEST(gate_key, its_window_is_a_second_unless_said)
{
    struct load l;
    load_open(&l, VOW_GATE(.key_rate = 1));
    load_run_many(&l, 2, 0, VOW_JOB(.key = "x"));
    world_run(l.w);
    CHECK_UINT_EQ(load_ns(&l, 1), 1000 * MS + 1);
    load_close(&l);
}

TEST(gate_key, the_limits_of_the_gate_hold_for_all_keys_together)
{
    struct load l;
    load_open(&l, VOW_GATE(.rate = 3, .window_ms = 100, .key_rate = 2,
                           .key_window_ms = 100));
    queue_keys(&l, "xxxyyyzzz");
    world_run(l.w);
    CHECK_UINT_EQ(load_most_within(&l, 100), 3);
    CHECK_UINT_EQ(load_ns(&l, 8), 2 * (100 * MS + 1));
    load_close(&l);
}

TEST(gate_key, history_outlives_the_jobs_of_a_key)
{
    struct load l;
    load_open(&l, VOW_GATE(.key_rate = 1, .key_window_ms = 100));
    load_run(&l, 0, VOW_JOB(.key = "x"));
    world_advance_ms(l.w, 60); /* nothing of it waits or runs */
    load_run(&l, 0, VOW_JOB(.key = "x"));
    world_run(l.w);
    CHECK_UINT_EQ(load_ns(&l, 1), 100 * MS + 1);
    load_close(&l);
}

TEST(gate_key, a_key_is_copied_and_told_by_its_text)
{
    struct load l;
    load_open(&l, VOW_GATE(.key_concurrent = 1));
    char key[64] = "the same and of some length: example.org";
    load_run(&l, 10, VOW_JOB(.key = key));
    key[0] = 'T';
    load_run(&l, 10, VOW_JOB(.key = key));
    key[0] = 't';
    load_run(&l, 10, VOW_JOB(.key = key));
    load_run(&l, 10, VOW_JOB(.key = ""));
    world_turn(l.w);
    CHECK_STR_EQ(l.order, "abd");
    world_run(l.w);
    CHECK_STR_EQ(l.order, "abdc");
    load_close(&l);
}

TEST(gate_key, permits_hold_places_of_a_key)
{
    struct load l;
    load_open(&l, VOW_GATE(.key_concurrent = 1));
    vow_permit p = {0}, q = {0};
    CHECK(vow_gate_try(l.gate, VOW_JOB(.key = "x"), &p));
    CHECK(!vow_gate_try(l.gate, VOW_JOB(.key = "x"), &q));
    CHECK(vow_gate_try(l.gate, VOW_JOB(.key = "y"), &q));
    load_run(&l, 0, VOW_JOB(.key = "x"));
    world_turn(l.w);
    CHECK_UINT_EQ(l.n_starts, 0);
    vow_permit_release(&p);
    world_turn(l.w);
    CHECK_UINT_EQ(l.n_starts, 1);
    vow_permit_release(&q);
    load_close(&l);
}

/* ---- turns -------------------------------------------------------------- */

TEST(gate_key, keys_take_turns_and_those_without_are_one_of_them)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    vow_gate_pause(l.gate);
    queue_keys(&l, "xxxx--yyz"); /* a b c d, e f, g h, i */
    vow_gate_resume(l.gate);
    world_run(l.w);
    CHECK_STR_EQ(l.order, "aegibfhcd");
    load_close(&l);
}

/* https://github.com/triggerdotdev/trigger.dev/issues/2617,
 * https://github.com/graphile/worker/issues/331,
 * https://github.com/palantir/conjure-java-runtime/pull/939 */
TEST(gate_key, the_backlog_of_one_stops_no_other)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    load_run_many(&l, 1000, 10, VOW_JOB(.key = "big"));
    world_advance_ms(l.w, 995);
    size_t before = l.n_starts;
    for (int i = 0; i < 5; i++)
        load_run(&l, 10, VOW_JOB(.key = "small"));
    world_advance_ms(l.w, 110);
    CHECK_UINT_EQ(l.n_starts, before + 11);
    for (int i = 1000; i < 1005; i++) /* every second turn is theirs */
        CHECK_UINT_EQ(l.jobs[i].starts, 1);
    vow_gate_clear(l.gate, NULL);
    load_close(&l);
}

TEST(gate_key, priority_counts_within_a_key_only)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    vow_gate_pause(l.gate);
    load_run(&l, 0, VOW_JOB(.key = "x"));
    load_run(&l, 0, VOW_JOB(.key = "y", .priority = 5));
    load_run(&l, 0, VOW_JOB(.key = "y", .priority = 6));
    load_run(&l, 0, VOW_JOB(.key = "x", .priority = 1));
    vow_gate_resume(l.gate);
    world_run(l.w);
    CHECK_STR_EQ(l.order, "dcab");
    load_close(&l);
}

TEST(gate_key, a_big_job_whose_turn_it_is_is_not_passed_by_other_keys)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 3));
    load_run(&l, LOAD_FOR_EVER, NULL);
    load_run(&l, 0, VOW_JOB(.key = "x", .weight = 3));
    load_run(&l, 0, VOW_JOB(.key = "y"));
    world_run(l.w);
    CHECK_STR_EQ(l.order, "a");
    load_end(&l.jobs[0]);
    world_run(l.w);
    CHECK_STR_EQ(l.order, "abc");
    load_close(&l);
}

/* ---- a pause for one key ------------------------------------------------- */

TEST(gate_key, report_pauses_one_key_and_no_other)
{
    struct load l;
    load_open(&l, NULL);
    vow_gate_report(l.gate, "x", 100);
    load_run(&l, 0, VOW_JOB(.key = "x"));
    load_run(&l, 0, VOW_JOB(.key = "y"));
    load_run(&l, 0, NULL);
    world_advance_ms(l.w, 99);
    CHECK_STR_EQ(l.order, "bc");
    world_run(l.w);
    CHECK_STR_EQ(l.order, "bca");
    CHECK_UINT_EQ(load_ms(&l, 2), 100);
    load_close(&l);
}

TEST(gate_key, of_several_pauses_the_longest_counts)
{
    struct load l;
    load_open(&l, NULL);
    vow_gate_report(l.gate, "x", 100);
    vow_gate_report(l.gate, "x", 50);
    vow_gate_report(l.gate, "y", 50);
    vow_gate_report(l.gate, NULL, 70);
    load_run(&l, 0, VOW_JOB(.key = "x"));
    load_run(&l, 0, VOW_JOB(.key = "y"));
    world_advance_ms(l.w, 60);
    vow_gate_report(l.gate, "x", 30); /* ends earlier than the first */
    world_run(l.w);
    CHECK_STR_EQ(l.order, "ba");
    CHECK_UINT_EQ(load_ms(&l, 0), 70);
    CHECK_UINT_EQ(load_ms(&l, 1), 100);
    load_close(&l);
}

TEST(gate_key, a_pause_reaches_jobs_that_wait_already)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    struct load_job *a = load_run(&l, LOAD_FOR_EVER, NULL);
    load_run(&l, 0, VOW_JOB(.key = "x"));
    load_run(&l, 0, VOW_JOB(.key = "y"));
    world_turn(l.w);
    vow_gate_report(l.gate, "x", 100);
    load_end(a);
    world_run(l.w);
    CHECK_STR_EQ(l.order, "acb");
    CHECK_UINT_EQ(load_ms(&l, 2), 100);
    load_close(&l);
}

/* ---- how many keys ------------------------------------------------------- */

TEST(gate_key, more_keys_at_a_time_than_allowed_are_refused)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1, .keys_max = 2));
    queue_keys(&l, "xyz-x");
    world_turn(l.w);
    CHECK_INT_EQ(load_code(&l.jobs[2]), VOW_EQUEUEFULL);
    CHECK_UINT_EQ(load_stats(&l).keys, 2);
    world_run(l.w);
    for (int i = 0; i < 5; i++)
        CHECK_INT_EQ(load_code(&l.jobs[i]), i == 2 ? VOW_EQUEUEFULL : 0);
    struct load_job *z = load_run(&l, 0, VOW_JOB(.key = "z"));
    world_run(l.w);
    CHECK_INT_EQ(load_code(z), 0);
    load_close(&l);
}

/* What is remembered does not grow with all keys that ever were. */
TEST(gate_key, keys_that_are_over_are_forgotten)
{
    struct world w;
    world_open_with(&w, VOW_LOOP_OPTS(.flags = VOW_LOOP_UNPOOLED));
    vow_gate *g;
    CHECK_INT_EQ(vow_gate_new(w.loop,
                              VOW_GATE(.key_rate = 5, .key_window_ms = 10,
                                       .key_concurrent = 2),
                              &g),
                 0);
    size_t after_some = 0;
    for (int i = 0; i < 20000; i++) {
        char key[32];
        snprintf(key, sizeof(key), "customer number %d", i);
        vow_permit p = {0};
        CHECK(vow_gate_try(g, VOW_JOB(.key = key), &p));
        vow_permit_release(&p);
        if (i % 10 == 9)
            world_advance_ms(&w, 5);
        if (i == 1000)
            after_some = w.alloc.live_bytes;
    }
    CHECK(w.alloc.live_bytes <= after_some * 2);
    vow_gate_stats st;
    vow_gate_stats_get(g, &st);
    CHECK(st.keys < 1000);
    vow_gate_unref(g);
    world_close(&w);
}

TEST(gate_key, many_keys_are_found_and_served_in_turn)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1, .key_concurrent = 1));
    vow_gate_pause(l.gate);
    for (int i = 0; i < 1000; i++) {
        char key[16];
        snprintf(key, sizeof(key), "key %d", i % 500);
        load_run(&l, 0, VOW_JOB(.key = key));
    }
    CHECK_UINT_EQ(load_stats(&l).keys, 500);
    vow_gate_resume(l.gate);
    world_run(l.w);
    CHECK_UINT_EQ(l.n_starts, 1000);
    for (size_t i = 0; i < 1000; i++)
        CHECK_PTR_EQ(l.starts[i].job, &l.jobs[i]);
    load_close(&l);
}

/* ---- no memory ---------------------------------------------------------- */

FAULT_SWEEP(gate_key, keys_survive_every_fault, FAULT_ALLOC)
{
    static struct load l;
    if (load_join(
            &l, w,
            VOW_GATE(.concurrent = 2, .key_concurrent = 1, .key_rate = 2)) != 0)
        return;
    vow_gate_report(l.gate, "y", 20);
    queue_keys(&l, "xxy-zzy");
    CHECK_INT_EQ(vow_loop_run(w->loop), 0);
    CHECK(l.n_starts == 7 || fault_fired(w));
    CHECK(l.peak <= 2);
    CHECK_UINT_EQ(load_stats(&l).running, 0);
    CHECK_UINT_EQ(load_stats(&l).waiting, 0);
    load_leave(&l);
}
