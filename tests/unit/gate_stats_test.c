/* SPDX-License-Identifier: MIT */
/* gate_stats_test.c - what a gate tells: counts, why a job still waits and for
 * how long; and the limit that adapts, which is seen in the counts. */
#include "fault.h"
#include "harness.h"
#include "load.h"

#include <string.h>

/* ---- counts ------------------------------------------------------------- */

TEST(gate_live, counts_what_became_of_every_job)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 4, .queue_max = 5, .queue_bytes = 99,
                           .key_concurrent = 2));
    struct load_job *a =
        load_run(&l, LOAD_FOR_EVER, VOW_JOB(.weight = 2, .key = "x"));
    struct load_job *b = load_run(&l, LOAD_FOR_EVER, VOW_JOB(.weight = 2));
    b->fails = 1;
    world_turn(l.w);
    load_run(&l, 0, VOW_JOB(.bytes = 10));
    load_run(&l, 0, VOW_JOB(.bytes = 20, .key = "y"));
    load_run(&l, 0, VOW_JOB(.bytes = 30, .deadline_ms = 50));
    load_run(&l, 0, VOW_JOB(.bytes = 40)); /* more than there is room for */
    world_turn(l.w);
    vow_gate_stats st = load_stats(&l);
    CHECK_UINT_EQ(st.waiting, 3);
    CHECK_UINT_EQ(st.waiting_bytes, 60);
    CHECK_UINT_EQ(st.running, 2);
    CHECK_UINT_EQ(st.weight, 4);
    CHECK_UINT_EQ(st.concurrent, 4);
    CHECK_UINT_EQ(st.keys, 2);
    CHECK_UINT_EQ(st.started, 2);
    CHECK_UINT_EQ(st.ended, 0);
    CHECK_UINT_EQ(st.refused, 1);
    world_advance_ms(l.w, 50);
    CHECK(vow_cancel(l.jobs[2].f, NULL));
    vow_gate_clear(l.gate, NULL);
    load_end(a);
    load_end(b);
    world_run(l.w);
    st = load_stats(&l);
    CHECK_UINT_EQ(st.waiting + st.waiting_bytes + st.running + st.weight, 0);
    CHECK_UINT_EQ(st.started, 2);
    CHECK_UINT_EQ(st.ended, 2);
    CHECK_UINT_EQ(st.failed, 1);
    CHECK_UINT_EQ(st.refused, 1);
    CHECK_UINT_EQ(st.expired, 1);
    CHECK_UINT_EQ(st.canceled, 1);
    CHECK_UINT_EQ(st.dropped, 1);
    CHECK_UINT_EQ(st.keys, 0);
    load_close(&l);
}

TEST(gate_live, without_a_limit_the_limit_is_told_as_zero)
{
    struct load l;
    load_open(&l, VOW_GATE(.rate = 5));
    CHECK_UINT_EQ(load_stats(&l).concurrent, 0);
    load_close(&l);
}

/* ---- explain ------------------------------------------------------------ */

static vow_job_explain explain(const struct load_job *j)
{
    vow_job_explain x;
    memset(&x, 0xEE, sizeof(x));
    vow_gate_explain(j->load->gate, j->f, &x);
    return x;
}

TEST(gate_live, explains_where_a_job_is)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    struct load_job *a = load_run(&l, LOAD_FOR_EVER, NULL);
    CHECK_UINT_EQ(explain(a).state, VOW_JOB_STARTS);
    world_turn(l.w);
    struct load_job *b = load_run(&l, 0, NULL), *c = load_run(&l, 0, NULL);
    world_advance_ms(l.w, 120);
    vow_job_explain x = explain(a);
    CHECK_UINT_EQ(x.state, VOW_JOB_RUNS);
    CHECK_UINT_EQ(x.waited_ms, 120);
    x = explain(b);
    CHECK_UINT_EQ(x.state, VOW_JOB_WAITS);
    CHECK_UINT_EQ(x.waited_ms, 120);
    CHECK_UINT_EQ(x.ahead, 0);
    CHECK_UINT_EQ(x.blocked, VOW_BY_CONCURRENCY);
    CHECK_UINT_EQ(x.starts_in_ms, UINT64_MAX); /* none has ended so far */
    x = explain(c);
    CHECK_UINT_EQ(x.ahead, 1);
    CHECK((x.blocked & VOW_BY_ORDER) != 0);
    load_end(a);
    world_run(l.w);
    CHECK_UINT_EQ(explain(a).state, VOW_JOB_UNKNOWN);
    load_close(&l);
}

TEST(gate_live, explains_nothing_about_futures_of_others)
{
    struct load l, other;
    load_open(&l, VOW_GATE(.concurrent = 1));
    CHECK_INT_EQ(load_join(&other, l.w, VOW_GATE(.concurrent = 1)), 0);
    struct load_job *foreign = load_run(&other, LOAD_FOR_EVER, NULL);
    vow_deferred *d;
    vow_future *plain = vow_promise(l.w->loop, &d);
    vow_job_explain x = {.state = 77};
    vow_gate_explain(l.gate, foreign->f, &x);
    CHECK_UINT_EQ(x.state, VOW_JOB_UNKNOWN);
    x.state = 77;
    vow_gate_explain(l.gate, plain, &x);
    CHECK_UINT_EQ(x.state, VOW_JOB_UNKNOWN);
    vow_deferred_unref(d);
    (void)vow_error_of(plain);
    vow_future_unref(plain);
    world_turn(l.w);
    load_end(foreign);
    world_turn(l.w);
    load_drop(&other);
    load_close(&l);
}

TEST(gate_live, explains_a_wait_for_the_rate)
{
    struct load l;
    load_open(&l, VOW_GATE(.rate = 1));
    load_run(&l, 0, NULL);
    world_turn(l.w);
    struct load_job *b = load_run(&l, 0, NULL), *c = load_run(&l, 0, NULL);
    world_advance_ms(l.w, 300);
    vow_job_explain x = explain(b);
    CHECK_UINT_EQ(x.blocked, VOW_BY_RATE);
    CHECK_UINT_EQ(x.ahead, 0);
    CHECK(x.starts_in_ms == 700 || x.starts_in_ms == 701);
    x = explain(c);
    CHECK((x.blocked & VOW_BY_ORDER) != 0);
    CHECK_UINT_EQ(x.ahead, 1);
    CHECK(x.starts_in_ms >= 1700 && x.starts_in_ms <= 1701);
    load_close(&l);
}

TEST(gate_live, explains_a_pause_a_key_and_a_full_queue)
{
    struct load l;
    load_open(&l, VOW_GATE(.key_rate = 1, .queue_max = 3,
                           .overflow = VOW_OVERFLOW_WAIT));
    load_run(&l, 0, VOW_JOB(.key = "x"));
    world_turn(l.w);
    struct load_job *b = load_run(&l, 0, VOW_JOB(.key = "x"));
    vow_job_explain x = explain(b);
    CHECK_UINT_EQ(x.blocked, VOW_BY_KEY);
    CHECK(x.starts_in_ms >= 1000 && x.starts_in_ms <= 1001);
    vow_gate_report(l.gate, "y", 200);
    struct load_job *c = load_run(&l, 0, VOW_JOB(.key = "y"));
    x = explain(c);
    CHECK((x.blocked & VOW_BY_PAUSE) != 0);
    CHECK_UINT_EQ(x.starts_in_ms, 200);
    vow_gate_pause(l.gate);
    struct load_job *d = load_run(&l, 0, NULL);
    x = explain(d);
    CHECK((x.blocked & VOW_BY_PAUSE) != 0);
    CHECK_UINT_EQ(x.starts_in_ms, UINT64_MAX);
    struct load_job *e = load_run(&l, 0, NULL);
    x = explain(e);
    CHECK_UINT_EQ(x.state, VOW_JOB_WAITS);
    CHECK((x.blocked & VOW_BY_ROOM) != 0);
    vow_gate_resume(l.gate);
    load_close(&l);
}

TEST(gate_live, expects_by_how_long_jobs_ran)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    load_run_many(&l, 10, 100, NULL);
    world_advance_ms(l.w, 540); /* five have ended, f runs for 40 */
    uint64_t next = explain(&l.jobs[6]).starts_in_ms;
    CHECK(next >= 30 && next <= 130);
    uint64_t behind = explain(&l.jobs[7]).starts_in_ms;
    CHECK(behind > next && behind <= next + 150);
    load_close(&l);
}

TEST(gate_live, an_entry_is_explained_as_well)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    vow_future *in = vow_gate_enter(l.gate, NULL);
    vow_future *waits = vow_gate_enter(l.gate, NULL);
    world_turn(l.w);
    vow_job_explain x;
    vow_gate_explain(l.gate, waits, &x);
    CHECK_UINT_EQ(x.state, VOW_JOB_WAITS);
    CHECK_UINT_EQ(x.blocked, VOW_BY_CONCURRENCY);
    vow_future_unref(in);
    vow_future_unref(waits);
    world_run(l.w);
    load_close(&l);
}

TEST(gate_live, explains_in_a_sentence)
{
    vow_job_explain x = {.state = VOW_JOB_WAITS,
                         .blocked = VOW_BY_ORDER | VOW_BY_CONCURRENCY,
                         .ahead = 3,
                         .waited_ms = 120,
                         .starts_in_ms = 80};
    char text[300], part[10];
    size_t n = vow_job_explain_text(&x, text, sizeof(text));
    CHECK_UINT_EQ(n, strlen(text));
    CHECK(strstr(text, "waits for 120 ms") != NULL);
    CHECK(strstr(text, "3 others") != NULL);
    CHECK(strstr(text, "80 ms") != NULL);
    CHECK_UINT_EQ(vow_job_explain_text(&x, part, sizeof(part)), n);
    CHECK_UINT_EQ(strlen(part), sizeof(part) - 1);
    CHECK(strncmp(part, text, sizeof(part) - 1) == 0);
    CHECK_UINT_EQ(vow_job_explain_text(&x, NULL, 0), n);
    for (x.state = 0; x.state <= VOW_JOB_RUNS; x.state++)
        for (x.blocked = 0; x.blocked < 64; x.blocked++) {
            x.starts_in_ms = x.blocked % 2 == 0 ? UINT64_MAX : 5;
            n = vow_job_explain_text(&x, text, sizeof(text));
            CHECK(n > 0 && n < sizeof(text));
            CHECK_UINT_EQ(n, strlen(text));
        }
}

/* ---- a limit that adapts ------------------------------------------------- */

/* https://github.com/resilience4j/resilience4j/issues/201 */

static bool is_busy(vow_error *e, void *user)
{
    ++*(int *)user;
    return vow_error_code(e) == VOW_EBUSY;
}

static int asked_overloaded;

#define ADAPT(most)                                                            \
    VOW_GATE(.concurrent = (most), .adapt_min = 2, .overloaded = is_busy,      \
             .overloaded_user = &asked_overloaded)

/* Jobs one after the other that fail so; the limit afterwards. */
static uint32_t after_failures(struct load *l, int n, int code)
{
    for (int i = 0; i < n; i++) {
        struct load_job *j = load_run(l, 10, NULL);
        j->fails = 1;
        j->code = code;
        world_run(l->w);
    }
    return load_stats(l).concurrent;
}

/* Full use and success for so long; the limit afterwards. */
static uint32_t after_success(struct load *l, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        load_run_many(l, 20, 10, NULL);
        CHECK(load_stats(l).concurrent >= l->weight);
        world_run(l->w);
    }
    return load_stats(l).concurrent;
}

TEST(gate_live, overload_lowers_the_limit_down_to_its_least)
{
    struct load l;
    load_open(&l, ADAPT(16));
    after_success(&l, 10);
    uint32_t before = load_stats(&l).concurrent;
    uint32_t after = after_failures(&l, 1, VOW_EBUSY);
    CHECK(after < before && after >= 2);
    CHECK(asked_overloaded > 0);
    for (int i = 0; i < 30; i++) {
        before = after;
        after = after_failures(&l, 1, VOW_EBUSY);
        CHECK(after <= before && after >= 2);
    }
    CHECK_UINT_EQ(after, 2);
    load_close(&l);
}

TEST(gate_live, other_failures_do_not_lower_the_limit)
{
    struct load l;
    load_open(&l, ADAPT(16));
    uint32_t before = after_success(&l, 10);
    CHECK(after_failures(&l, 20, VOW_EIO) >= before);
    load_close(&l);
}

TEST(gate_live, success_under_full_use_raises_the_limit_up_to_its_most)
{
    struct load l;
    load_open(&l, ADAPT(8));
    CHECK_UINT_EQ(after_failures(&l, 30, VOW_EBUSY), 2);
    uint32_t before = 2;
    for (int i = 0; i < 20; i++) {
        uint32_t now = after_success(&l, 1);
        CHECK(now >= before && now <= 8);
        before = now;
    }
    CHECK_UINT_EQ(before, 8);
    l.peak = 0;
    after_success(&l, 1);
    CHECK_UINT_EQ(l.peak, 8);
    load_close(&l);
}

TEST(gate_live, a_limit_that_is_not_used_up_is_not_raised)
{
    struct load l;
    load_open(&l, ADAPT(8));
    CHECK_UINT_EQ(after_failures(&l, 30, VOW_EBUSY), 2);
    for (int i = 0; i < 200; i++) {
        load_run(&l, 10, NULL);
        world_run(l.w);
    }
    CHECK_UINT_EQ(load_stats(&l).concurrent, 2);
    load_close(&l);
}

TEST(gate_live, report_lowers_the_limit_too)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 8, .adapt_min = 2));
    uint32_t before = after_success(&l, 20);
    CHECK_UINT_EQ(before, 8);
    vow_gate_report(l.gate, NULL, 10);
    CHECK(load_stats(&l).concurrent < before);
    for (int i = 0; i < 30; i++) {
        vow_gate_report(l.gate, NULL, 10);
        world_advance_ms(l.w, 1000);
    }
    CHECK_UINT_EQ(load_stats(&l).concurrent, 2);
    load_close(&l);
}

TEST(gate_live, the_adapted_limit_is_what_holds)
{
    struct load l;
    load_open(&l, ADAPT(8));
    CHECK_UINT_EQ(after_failures(&l, 30, VOW_EBUSY), 2);
    l.peak = 0;
    load_run_many(&l, 10, 10, NULL);
    world_advance_ms(l.w, 9);
    CHECK_UINT_EQ(l.peak, 2);
    load_close(&l);
}

TEST(gate_live, a_job_above_the_adapted_limit_still_gets_its_turn)
{
    struct load l;
    load_open(&l, ADAPT(8));
    CHECK_UINT_EQ(after_failures(&l, 30, VOW_EBUSY), 2);
    struct load_job *big = load_run(&l, 10, VOW_JOB(.weight = 8));
    load_run_many(&l, 10, 10, NULL);
    world_run(l.w);
    CHECK_INT_EQ(load_code(big), 0);
    load_close(&l);
}

TEST(gate_live, without_a_least_the_limit_stays)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 8, .overloaded = is_busy,
                           .overloaded_user = &asked_overloaded));
    CHECK_UINT_EQ(after_failures(&l, 30, VOW_EBUSY), 8);
    vow_gate_report(l.gate, NULL, 10);
    CHECK_UINT_EQ(load_stats(&l).concurrent, 8);
    load_close(&l);
}
