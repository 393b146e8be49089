/* SPDX-License-Identifier: MIT */
/* gate_live_test.c - a gate at work: paused, resumed, told that it is too much,
 * its limits changed under load with history kept, adapting, idle, closed. */
#include "fault.h"
#include "harness.h"
#include "load.h"

#define MS UINT64_C(1000000)

/* ---- pause and resume ---------------------------------------------------- */

TEST(gate_live, paused_it_starts_nothing_until_resumed)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 2));
    struct load_job *a = load_run(&l, 50, NULL);
    world_turn(l.w);
    vow_gate_pause(l.gate);
    vow_gate_pause(l.gate);
    load_run_many(&l, 3, 10, NULL);
    vow_permit p = {0};
    CHECK(!vow_gate_try(l.gate, NULL, &p));
    world_run(l.w);
    CHECK_STR_EQ(l.order, "a");
    CHECK_INT_EQ(load_code(a), 0); /* what runs goes on */
    vow_gate_resume(l.gate);       /* once is enough */
    world_run(l.w);
    CHECK_STR_EQ(l.order, "abcd");
    vow_gate_resume(l.gate);
    load_run(&l, 0, NULL);
    world_turn(l.w);
    CHECK_STR_EQ(l.order, "abcde");
    load_close(&l);
}

TEST(gate_live, a_job_let_in_and_not_yet_begun_is_held_back_by_a_pause)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1, .rate = 1));
    struct load_job *a = load_run(&l, 0, NULL);
    vow_gate_pause(l.gate);
    world_turn(l.w);
    size_t started = l.n_starts;
    world_advance_ms(l.w, 100);
    CHECK_UINT_EQ(l.n_starts, started); /* at once, or not at all */
    vow_gate_resume(l.gate);
    world_run(l.w);
    CHECK_INT_EQ(load_code(a), 0);
    CHECK_UINT_EQ(l.n_starts, 1);
    load_close(&l);
}

/* https://github.com/SGrondin/bottleneck/issues/52,
 * https://github.com/JCSnap/claude-code-queue/issues/3 */
TEST(gate_live, report_starts_nothing_for_so_long_and_never_earlier)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 2));
    load_run(&l, 10, NULL);
    world_turn(l.w);
    vow_gate_report(l.gate, NULL, 100);
    load_run_many(&l, 3, 10, VOW_JOB(.key = "k"));
    load_run(&l, 10, VOW_JOB(.priority = 15));
    world_advance_ms(l.w, 50);
    vow_gate_report(l.gate, NULL, 20); /* the longest counts */
    world_advance_ms(l.w, 49);
    CHECK_STR_EQ(l.order, "a");
    world_advance_ms(l.w, 1);
    CHECK_UINT_EQ(l.n_starts, 3);
    world_run(l.w);
    CHECK_UINT_EQ(l.n_starts, 5);
    load_close(&l);
}

TEST(gate_live, report_of_no_time_pauses_nothing)
{
    struct load l;
    load_open(&l, NULL);
    vow_gate_report(l.gate, NULL, 0);
    vow_gate_report(l.gate, "k", 0);
    load_run(&l, 0, VOW_JOB(.key = "k"));
    world_turn(l.w);
    CHECK_UINT_EQ(l.n_starts, 1);
    load_close(&l);
}

/* ---- changing limits ----------------------------------------------------- */

static int set(struct load *l, vow_gate_opts o)
{
    return vow_gate_set(l->gate, &o);
}

TEST(gate_live, its_limits_are_read_back_and_set_again)
{
    struct load l;
    load_open(&l,
              VOW_GATE(.concurrent = 7, .rate = 5, .window_ms = 300,
                       .even = true, .queue_max = 9, .queue_bytes = 11,
                       .overflow = VOW_OVERFLOW_WAIT, .age_ms = 13,
                       .bypass_count = 14, .bypass_ms = 15, .key_concurrent = 2,
                       .key_rate = 3, .key_window_ms = 16, .keys_max = 17,
                       .adapt_min = 7));
    vow_gate_opts o = vow_gate_get(l.gate);
    CHECK_UINT_EQ(o.size, sizeof(o));
    CHECK_UINT_EQ(o.concurrent, 7);
    CHECK_UINT_EQ(o.rate, 5);
    CHECK_UINT_EQ(o.window_ms, 300);
    CHECK(o.even);
    CHECK_UINT_EQ(o.queue_max, 9);
    CHECK_UINT_EQ(o.queue_bytes, 11);
    CHECK_UINT_EQ(o.overflow, VOW_OVERFLOW_WAIT);
    CHECK_UINT_EQ(o.age_ms, 13);
    CHECK_UINT_EQ(o.bypass_count, 14);
    CHECK_UINT_EQ(o.bypass_ms, 15);
    CHECK_UINT_EQ(o.key_concurrent, 2);
    CHECK_UINT_EQ(o.key_rate, 3);
    CHECK_UINT_EQ(o.key_window_ms, 16);
    CHECK_UINT_EQ(o.keys_max, 17);
    CHECK_UINT_EQ(o.adapt_min, 7);
    o.concurrent = 8;
    o.overflow = VOW_OVERFLOW_REJECT; /* stays as it was made */
    CHECK_INT_EQ(set(&l, o), 0);
    o = vow_gate_get(l.gate);
    CHECK_UINT_EQ(o.concurrent, 8);
    CHECK_UINT_EQ(o.rate, 5);
    CHECK_UINT_EQ(o.overflow, VOW_OVERFLOW_WAIT);
    load_close(&l);
}

TEST(gate_live, refuses_limits_that_cannot_be_and_changes_nothing)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 2, .rate = 3));
    CHECK_INT_EQ(set(&l, (vow_gate_opts){.size = 3}), VOW_EINVAL);
    vow_gate_opts o = vow_gate_get(l.gate);
    o.concurrent = 50;
    o.rate = (1u << 24) + 1;
    CHECK_INT_EQ(set(&l, o), VOW_EINVAL);
    o.rate = 9;
    o.adapt_min = 51;
    CHECK_INT_EQ(set(&l, o), VOW_EINVAL);
    CHECK_UINT_EQ(vow_gate_get(l.gate).concurrent, 2);
    CHECK_UINT_EQ(vow_gate_get(l.gate).rate, 3);
    load_run_many(&l, 4, 10, NULL);
    world_turn(l.w);
    CHECK_UINT_EQ(l.n_starts, 2);
    load_close(&l);
}

TEST(gate_live, more_places_are_used_at_once_and_fewer_are_waited_for)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    load_run_many(&l, 20, 100, NULL);
    world_turn(l.w);
    vow_gate_opts o = vow_gate_get(l.gate);
    o.concurrent = 4;
    CHECK_INT_EQ(set(&l, o), 0);
    world_turn(l.w);
    CHECK_UINT_EQ(l.weight, 4);
    o.concurrent = 2;
    CHECK_INT_EQ(set(&l, o), 0);
    world_advance_ms(l.w, 99);
    CHECK_UINT_EQ(l.weight, 4);
    world_advance_ms(l.w, 1);
    CHECK_UINT_EQ(l.weight, 2);
    o.concurrent = 0; /* any */
    CHECK_INT_EQ(set(&l, o), 0);
    world_turn(l.w);
    CHECK_UINT_EQ(l.n_starts, 20);
    load_close(&l);
}

TEST(gate_live, jobs_that_ask_for_more_than_will_be_are_rejected)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 4, .rate = 100, .key_rate = 4));
    load_run(&l, LOAD_FOR_EVER, NULL);
    struct load_job *big = load_run(&l, 0, VOW_JOB(.weight = 4));
    struct load_job *fits = load_run(&l, 0, VOW_JOB(.weight = 3));
    struct load_job *keyed = load_run(&l, 0, VOW_JOB(.weight = 3, .key = "k"));
    world_turn(l.w);
    vow_gate_opts o = vow_gate_get(l.gate);
    o.concurrent = 3;
    o.key_rate = 2;
    CHECK_INT_EQ(set(&l, o), 0);
    world_turn(l.w);
    CHECK_INT_EQ(load_code(big), VOW_EINVAL);
    CHECK_INT_EQ(load_code(keyed), VOW_EINVAL);
    CHECK_INT_EQ(load_code(fits), LOAD_PENDING);
    CHECK_UINT_EQ(load_stats(&l).dropped, 2);
    load_close(&l);
    CHECK_STR_EQ(l.order, "ac");
}

TEST(gate_live, a_higher_rate_counts_what_has_started)
{
    struct load l;
    load_open(&l, VOW_GATE(.rate = 3));
    load_run_many(&l, 20, 0, NULL);
    world_advance_ms(l.w, 400);
    CHECK_UINT_EQ(l.n_starts, 3);
    vow_gate_opts o = vow_gate_get(l.gate);
    o.rate = 5;
    CHECK_INT_EQ(set(&l, o), 0);
    world_turn(l.w);
    CHECK_UINT_EQ(l.n_starts, 5);
    world_run(l.w);
    CHECK_UINT_EQ(load_ns(&l, 5), 1000 * MS + 1);
    CHECK_UINT_EQ(load_ns(&l, 8), 1400 * MS + 1);
    CHECK_UINT_EQ(load_most_within(&l, 1000), 5);
    load_close(&l);
}

TEST(gate_live, a_lower_rate_counts_what_has_started)
{
    struct load l;
    load_open(&l, VOW_GATE(.rate = 10));
    load_run_many(&l, 8, 0, NULL);
    world_advance_ms(l.w, 500);
    vow_gate_opts o = vow_gate_get(l.gate);
    o.rate = 3;
    CHECK_INT_EQ(set(&l, o), 0);
    load_run_many(&l, 6, 0, NULL);
    world_run(l.w);
    for (size_t i = 8; i < 14; i++)
        CHECK_UINT_EQ(load_ns(&l, i), (1 + (i - 8) / 3) * (1000 * MS + 1));
    load_close(&l);
}

/* https://github.com/resilience4j/resilience4j/issues/1645 */
TEST(gate_live, another_window_counts_what_has_started)
{
    static const uint64_t windows[] = {200, 700, 3000};
    for (int i = 0; i < 3; i++) {
        struct load l;
        load_open(&l, VOW_GATE(.rate = 2));
        load_run_many(&l, 4, 0, NULL);
        world_advance_ms(l.w, 500);
        vow_gate_opts o = vow_gate_get(l.gate);
        o.window_ms = windows[i];
        CHECK_INT_EQ(set(&l, o), 0);
        world_run(l.w);
        CHECK_UINT_EQ(l.n_starts, 4);
        CHECK_UINT_EQ(load_ns(&l, 2), i == 0 ? 500 * MS : windows[i] * MS + 1);
        load_close(&l);
    }
}

TEST(gate_live, limits_of_keys_change_as_well)
{
    struct load l;
    load_open(&l, VOW_GATE(.key_concurrent = 1, .key_rate = 9));
    load_run_many(&l, 6, 100, VOW_JOB(.key = "x"));
    world_turn(l.w);
    CHECK_UINT_EQ(l.weight, 1);
    vow_gate_opts o = vow_gate_get(l.gate);
    o.key_concurrent = 3;
    CHECK_INT_EQ(set(&l, o), 0);
    world_turn(l.w);
    CHECK_UINT_EQ(l.weight, 3);
    o.key_concurrent = 0;
    o.key_rate = 4;
    CHECK_INT_EQ(set(&l, o), 0);
    world_turn(l.w);
    CHECK_UINT_EQ(l.n_starts, 4);
    world_run(l.w);
    CHECK_UINT_EQ(load_ns(&l, 4), 1000 * MS + 1);
    load_close(&l);
}

TEST(gate_live, a_longer_queue_lets_those_outside_in)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1, .queue_max = 1,
                           .overflow = VOW_OVERFLOW_WAIT));
    struct load_job *a = load_run(&l, LOAD_FOR_EVER, NULL);
    world_turn(l.w);
    load_run_many(&l, 2, 0, NULL);
    load_run(&l, 0, VOW_JOB(.priority = 9));
    vow_gate_opts o = vow_gate_get(l.gate);
    o.queue_max = 10;
    CHECK_INT_EQ(set(&l, o), 0);
    load_end(a);
    world_run(l.w);
    CHECK_STR_EQ(l.order, "adbc"); /* inside, priority counts */
    load_close(&l);
}

/* ---- numbers beyond all time --------------------------------------------- */

TEST(gate_live, numbers_that_nothing_can_reach_are_refused_or_do_not_wrap)
{
    struct load l;
    const uint64_t years = UINT64_C(1) << 40;
    load_open(&l, VOW_GATE(.rate = 2, .window_ms = years, .age_ms = 86400000,
                           .bypass_ms = UINT64_MAX, .key_rate = 1,
                           .key_window_ms = years));
    vow_gate_opts o = vow_gate_get(l.gate);
    o.window_ms = UINT64_MAX;
    CHECK_INT_EQ(set(&l, o), VOW_EINVAL);
    o = vow_gate_get(l.gate);
    o.age_ms = UINT64_MAX;
    CHECK_INT_EQ(set(&l, o), VOW_EINVAL);
    world_advance_ms(l.w, 3);
    load_run(&l, 0, VOW_JOB(.key = "k", .deadline_ms = UINT64_MAX));
    load_run(&l, 0, VOW_JOB(.key = "k", .deadline_ms = UINT64_MAX / 1000000));
    load_run(&l, 0, VOW_JOB(.priority = 15));
    load_run(&l, 0, VOW_JOB(.priority = -16));
    world_advance_ms(l.w, 100000);
    CHECK_STR_EQ(l.order, "ac");
    vow_gate_clear(l.gate, NULL);
    load_close(&l);
}

TEST(gate_live, a_pause_beyond_all_time_does_not_wrap)
{
    static const uint64_t huge[] = {UINT64_MAX, UINT64_MAX / 1000000 + 1,
                                    UINT64_MAX / 1000000 - 1};
    for (int i = 0; i < 3; i++) {
        struct load l;
        load_open(&l, NULL);
        world_advance_ms(l.w, 3);
        vow_gate_report(l.gate, i == 1 ? "k" : NULL, huge[i]);
        struct load_job *j = load_run(&l, 0, VOW_JOB(.key = "k"));
        world_advance_ms(l.w, 100000);
        CHECK_INT_EQ(load_code(j), LOAD_PENDING);
        vow_gate_clear(l.gate, NULL);
        load_close(&l);
    }
}

/* ---- idle --------------------------------------------------------------- */

TEST(gate_live, idle_settles_when_nothing_waits_and_nothing_runs)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    vow_future *at_once = vow_gate_idle(l.gate);
    world_turn(l.w);
    CHECK_INT_EQ(vow_state_of(at_once), VOW_FULFILLED);
    load_run_many(&l, 3, 10, NULL);
    vow_future *idle = vow_gate_idle(l.gate), *gone = vow_gate_idle(l.gate);
    vow_permit p = {0};
    world_advance_ms(l.w, 29);
    CHECK_INT_EQ(vow_state_of(idle), VOW_PENDING);
    CHECK(vow_cancel(gone, NULL));
    world_advance_ms(l.w, 1);
    CHECK_INT_EQ(vow_state_of(idle), VOW_FULFILLED);
    vow_future_unref(idle);
    CHECK(vow_gate_try(l.gate, NULL, &p));
    idle = vow_gate_idle(l.gate);
    world_turn(l.w);
    CHECK_INT_EQ(vow_state_of(idle), VOW_PENDING);
    vow_permit_release(&p);
    world_turn(l.w);
    CHECK_INT_EQ(vow_state_of(idle), VOW_FULFILLED);
    vow_future_unref(at_once);
    vow_future_unref(idle);
    vow_future_unref(gone);
    load_close(&l);
}

TEST(gate_live, idle_settles_when_the_last_that_waits_is_canceled)
{
    struct load l;
    load_open(&l, NULL);
    vow_gate_pause(l.gate);
    struct load_job *a = load_run(&l, 0, NULL);
    vow_future *idle = vow_gate_idle(l.gate);
    world_turn(l.w);
    CHECK_INT_EQ(vow_state_of(idle), VOW_PENDING);
    CHECK(vow_cancel(a->f, NULL));
    world_turn(l.w);
    CHECK_INT_EQ(vow_state_of(idle), VOW_FULFILLED);
    vow_future_unref(idle);
    load_close(&l);
}

/* ---- close -------------------------------------------------------------- */

TEST(gate_live, close_rejects_what_waits_and_what_will_come)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1, .queue_max = 2,
                           .overflow = VOW_OVERFLOW_WAIT));
    struct load_job *a = load_run(&l, LOAD_FOR_EVER, NULL);
    world_turn(l.w);
    load_run_many(&l, 3, 0, NULL);
    vow_future *idle = vow_gate_idle(l.gate);
    vow_future *room = vow_gate_room(l.gate, 0);
    vow_gate_close(l.gate);
    vow_gate_close(l.gate);
    load_run(&l, 0, NULL);
    vow_future *enter = vow_gate_enter(l.gate, NULL);
    vow_permit p = {0};
    CHECK(!vow_gate_try(l.gate, NULL, &p));
    world_turn(l.w);
    for (int i = 1; i < 5; i++)
        CHECK_INT_EQ(load_code(&l.jobs[i]), VOW_ECLOSED);
    CHECK_INT_EQ(vow_error_code(vow_error_of(enter)), VOW_ECLOSED);
    CHECK(vow_state_of(room) != VOW_PENDING);
    (void)vow_error_of(room);
    CHECK_INT_EQ(vow_state_of(idle), VOW_PENDING);
    CHECK_UINT_EQ(load_stats(&l).dropped, 3);
    CHECK_UINT_EQ(load_stats(&l).refused, 2);
    load_end(a);
    world_run(l.w);
    CHECK_INT_EQ(load_code(a), 0); /* what runs goes on */
    CHECK_INT_EQ(vow_state_of(idle), VOW_FULFILLED);
    CHECK_STR_EQ(l.order, "a");
    vow_future_unref(idle);
    vow_future_unref(room);
    vow_future_unref(enter);
    load_close(&l);
}

/* ---- no memory ---------------------------------------------------------- */

FAULT_SWEEP(gate_live, changes_survive_every_fault, FAULT_ALLOC)
{
    static struct load l;
    if (load_join(&l, w, VOW_GATE(.concurrent = 1, .rate = 2)) != 0)
        return;
    load_run_many(&l, 3, 10, NULL);
    vow_gate_opts o = vow_gate_get(l.gate);
    o.rate = 500; /* more to remember */
    o.key_rate = 3;
    o.concurrent = 3;
    int rc = vow_gate_set(l.gate, &o);
    CHECK(rc == 0 || fault_explains(w, rc));
    CHECK_UINT_EQ(vow_gate_get(l.gate).rate, rc == 0 ? 500 : 2);
    CHECK_UINT_EQ(vow_gate_get(l.gate).concurrent, rc == 0 ? 3 : 1);
    vow_gate_pause(l.gate);
    load_run(&l, 10, VOW_JOB(.key = "k"));
    vow_gate_resume(l.gate);
    vow_gate_report(l.gate, "k", 30);
    CHECK_INT_EQ(vow_loop_run(w->loop), 0);
    CHECK(l.n_starts == 4 || fault_fired(w));
    vow_gate_close(l.gate);
    CHECK_UINT_EQ(load_stats(&l).running, 0);
    load_leave(&l);
}
