/* SPDX-License-Identifier: MIT */
/* gate_retry_test.c - jobs that are tried again: each attempt comes back to the
 * gate, holds nothing while it backs off, counts in the rate, and one deadline
 * is over all of it. */
#include "fault.h"
#include "harness.h"
#include "load.h"

#define MS UINT64_C(1000000)

/* Backs off as long as the failures ask for: the jitter is within 1 ms. */
#define RETRY(...) VOW_RETRY(.backoff_ms = {1, 1}, __VA_ARGS__)

TEST(gate_retry, tries_again_until_an_attempt_succeeds)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    struct load_job *a = load_run(&l, 10, VOW_JOB(.retry = RETRY(.tries = 5)));
    a->fails = 3;
    world_run(l.w);
    CHECK_UINT_EQ(a->starts, 4); /* numbered from 1: load_start() checks */
    CHECK_INT_EQ(load_code(a), 0);
    CHECK_INT_EQ(vow_as_int(vow_get(a->f)), 'a');
    CHECK_UINT_EQ(load_stats(&l).started, 4);
    CHECK_UINT_EQ(load_stats(&l).ended, 4);
    CHECK_UINT_EQ(load_stats(&l).failed, 3);
    load_close(&l);
}

TEST(gate_retry, gives_up_with_the_last_failure_as_it_came)
{
    struct load l;
    load_open(&l, NULL);
    struct load_job *a = load_run(&l, 10, VOW_JOB(.retry = RETRY(.tries = 3)));
    a->fails = 99;
    a->code = VOW_EBUSY;
    world_run(l.w);
    CHECK_UINT_EQ(a->starts, 3);
    CHECK_INT_EQ(load_code(a), VOW_EBUSY);
    CHECK_STR_EQ(vow_error_message(vow_error_of(a->f)), "attempt 3");
    load_close(&l);
}

/* https://github.com/SGrondin/bottleneck/issues/170,
 * https://github.com/SGrondin/bottleneck/issues/223 */
TEST(gate_retry, holds_no_place_while_it_backs_off)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    struct load_job *a = load_run(&l, 10, VOW_JOB(.retry = RETRY(0)));
    struct load_job *b = load_run(&l, 10, NULL);
    a->fails = 1;
    a->retry_after_ms = 100;
    world_advance_ms(l.w, 15);
    CHECK_STR_EQ(l.order, "ab");
    world_advance_ms(l.w, 35);
    CHECK_INT_EQ(load_code(b), 0);
    CHECK_UINT_EQ(load_stats(&l).running, 0);
    CHECK_UINT_EQ(load_stats(&l).weight, 0);
    load_run(&l, 10, NULL);
    world_run(l.w);
    CHECK_STR_EQ(l.order, "abca");
    CHECK(load_ms(&l, 3) >= 110 && load_ms(&l, 3) <= 111);
    CHECK_INT_EQ(load_code(a), 0);
    load_close(&l);
}

TEST(gate_retry, comes_back_to_the_gate_and_waits_for_a_place)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    struct load_job *a = load_run(&l, 10, VOW_JOB(.retry = RETRY(0)));
    struct load_job *b = load_run(&l, 500, NULL);
    a->fails = 1;
    world_run(l.w);
    CHECK_STR_EQ(l.order, "aba");
    CHECK_UINT_EQ(l.peak, 1);
    CHECK_UINT_EQ(load_ms(&l, 2), 510);
    CHECK_INT_EQ(load_code(a), 0);
    CHECK_INT_EQ(load_code(b), 0);
    load_close(&l);
}

TEST(gate_retry, every_attempt_counts_in_the_rate)
{
    struct load l;
    load_open(&l, VOW_GATE(.rate = 3, .window_ms = 100));
    for (int i = 0; i < 4; i++)
        load_run(&l, 0, VOW_JOB(.retry = RETRY(.tries = 9)))->fails = 3;
    world_run(l.w);
    CHECK_UINT_EQ(l.n_starts, 16);
    CHECK_UINT_EQ(load_most_within(&l, 100), 3);
    CHECK(load_ns(&l, 15) >= 5 * (100 * MS + 1));
    for (int i = 0; i < 4; i++)
        CHECK_INT_EQ(load_code(&l.jobs[i]), 0);
    load_close(&l);
}

/* https://github.com/HoneyryderChuck/httpx/issues/141 */
TEST(gate_retry, never_comes_back_earlier_than_the_server_asked)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    struct load_job *a = load_run(
        &l, 0,
        VOW_JOB(.retry = VOW_RETRY(.tries = 5, .backoff_ms = {10, 300})));
    a->fails = 4;
    a->retry_after_ms = 700;
    world_run(l.w);
    CHECK_UINT_EQ(l.n_starts, 5);
    for (size_t i = 1; i < 5; i++)
        CHECK(load_ns(&l, i) - load_ns(&l, i - 1) >= 700 * MS);
    load_close(&l);
}

static bool is_io(vow_error *e, void *user)
{
    ++*(int *)user;
    return vow_error_code(e) == VOW_EIO;
}

TEST(gate_retry, asks_which_failures_are_worth_it)
{
    struct load l;
    load_open(&l, NULL);
    int asked = 0;
    const vow_job_opts *opts =
        VOW_JOB(.retry = RETRY(.tries = 9, .retry_if = is_io,
                               .retry_if_user = &asked));
    struct load_job *a = load_run(&l, 0, opts);
    struct load_job *b = load_run(&l, 0, opts);
    a->fails = 2;
    b->fails = 2;
    b->code = VOW_EBUSY;
    world_run(l.w);
    CHECK_INT_EQ(load_code(a), 0);
    CHECK_INT_EQ(load_code(b), VOW_EBUSY);
    CHECK_UINT_EQ(b->starts, 1);
    CHECK_INT_EQ(asked, 3);
    load_close(&l);
}

/* https://github.com/apache/opendal/issues/7376,
 * https://github.com/joshrotenberg/tower-resilience/issues/171 */
TEST(gate_retry, many_jobs_share_a_budget)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 3));
    vow_retry_budget *b;
    CHECK_INT_EQ(vow_retry_budget_new(l.w->loop, 10, 5, &b), 0);
    for (int i = 0; i < 50; i++)
        load_run(&l, 1, VOW_JOB(.retry = RETRY(.tries = 9, .budget = b)))
            ->fails = 99;
    vow_retry_budget_unref(b);
    world_run(l.w);
    CHECK(l.n_starts >= 50 + 5);
    CHECK(l.n_starts <= 50 + 5 + 5);
    load_close(&l);
}

TEST(gate_retry, copies_its_options)
{
    struct load l;
    load_open(&l, NULL);
    vow_retry_opts r = {.size = sizeof(r), .tries = 4, .backoff_ms = {1, 1}};
    vow_job_opts o = {.size = sizeof(o), .retry = &r};
    struct load_job *a = load_run(&l, 0, &o);
    a->fails = 3;
    r.tries = 1;
    o.retry = NULL;
    world_run(l.w);
    CHECK_INT_EQ(load_code(a), 0);
    load_close(&l);
}

TEST(gate_retry, refuses_a_retry_that_cannot_be)
{
    struct load l;
    load_open(&l, NULL);
    struct load_job *a =
        load_run(&l, 0, VOW_JOB(.retry = VOW_RETRY(.backoff_ms = {100, 50})));
    vow_retry_opts r = {.size = 3};
    struct load_job *b = load_run(&l, 0, VOW_JOB(.retry = &r));
    world_run(l.w);
    CHECK_INT_EQ(load_code(a), VOW_EINVAL);
    CHECK_INT_EQ(load_code(b), VOW_EINVAL);
    CHECK_UINT_EQ(l.n_starts, 0);
    load_close(&l);
}

TEST(gate_retry, a_job_that_cannot_be_is_refused_at_once)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 2));
    const vow_retry_opts *r = VOW_RETRY(.tries = 9, .backoff_ms = {500, 500});
    load_run(&l, 0, VOW_JOB(.weight = 3, .retry = r));
    load_run(&l, 0, VOW_JOB(.priority = 99, .retry = r));
    vow_future *f = vow_gate_run(l.gate, NULL, NULL, VOW_JOB(.retry = r));
    world_turn(l.w);
    CHECK_INT_EQ(load_code(&l.jobs[0]), VOW_EINVAL);
    CHECK_INT_EQ(load_code(&l.jobs[1]), VOW_EINVAL);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_EINVAL);
    vow_future_unref(f);
    load_close(&l);
}

TEST(gate_retry, is_explained_by_its_future_as_any_job)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    load_run(&l, 100, NULL);
    struct load_job *b = load_run(&l, 50, VOW_JOB(.retry = RETRY(0)));
    world_advance_ms(l.w, 40);
    vow_job_explain x;
    vow_gate_explain(l.gate, b->f, &x);
    CHECK_UINT_EQ(x.state, VOW_JOB_WAITS);
    CHECK_UINT_EQ(x.waited_ms, 40);
    world_advance_ms(l.w, 80);
    vow_gate_explain(l.gate, b->f, &x);
    CHECK_UINT_EQ(x.state, VOW_JOB_RUNS);
    load_close(&l);
}

TEST(gate_retry, keeps_its_key_and_its_weight)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 4, .key_concurrent = 3));
    struct load_job *a =
        load_run(&l, 10, VOW_JOB(.key = "x", .weight = 3, .retry = RETRY(0)));
    a->fails = 1;
    struct load_job *b = load_run(&l, 50, VOW_JOB(.key = "x"));
    world_run(l.w);
    CHECK_STR_EQ(l.order, "aba"); /* the key has no 3 places before 60 */
    CHECK_UINT_EQ(load_ms(&l, 2), 60);
    CHECK_UINT_EQ(l.peak, 3);
    CHECK_INT_EQ(load_code(a), 0);
    CHECK_INT_EQ(load_code(b), 0);
    load_close(&l);
}

TEST(gate_retry, every_attempt_tells_the_gate_of_overload)
{
    struct load l;
    int asked = 0;
    load_open(&l, VOW_GATE(.concurrent = 8, .adapt_min = 1, .overloaded = is_io,
                           .overloaded_user = &asked));
    struct load_job *a = load_run(&l, 10, VOW_JOB(.retry = RETRY(.tries = 9)));
    a->fails = 8;
    world_run(l.w);
    CHECK_INT_EQ(load_code(a), 0);
    CHECK_INT_EQ(asked, 8);
    load_close(&l);
}

/* ---- cancel ------------------------------------------------------------- */

TEST(gate_retry, canceled_while_it_backs_off_it_never_comes_back)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    struct load_job *a = load_run(&l, 10, VOW_JOB(.retry = RETRY(0)));
    a->fails = 1;
    a->retry_after_ms = 60000;
    world_advance_ms(l.w, 20);
    CHECK_UINT_EQ(a->starts, 1);
    CHECK(vow_cancel(a->f, NULL));
    world_run(l.w);
    CHECK_INT_EQ(load_code(a), VOW_ECANCELED);
    CHECK_UINT_EQ(load_now_ms(&l), 20);
    CHECK_UINT_EQ(a->starts, 1);
    load_close(&l);
}

TEST(gate_retry, canceled_while_it_waits_again_it_leaves)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    struct load_job *a = load_run(&l, 10, VOW_JOB(.retry = RETRY(0)));
    struct load_job *b = load_run(&l, 100, NULL);
    a->fails = 1;
    world_advance_ms(l.w, 50);
    CHECK_UINT_EQ(load_stats(&l).waiting, 1);
    CHECK(vow_cancel(a->f, NULL));
    world_turn(l.w);
    CHECK_UINT_EQ(load_stats(&l).waiting, 0);
    CHECK_INT_EQ(load_code(a), VOW_ECANCELED);
    world_run(l.w);
    CHECK_STR_EQ(l.order, "ab");
    CHECK_INT_EQ(load_code(b), 0);
    load_close(&l);
}

TEST(gate_retry, canceled_in_its_second_run_it_is_asked)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    struct load_job *a = load_run(&l, 10, VOW_JOB(.retry = RETRY(0)));
    a->fails = 9;
    world_advance_ms(l.w, 15);
    CHECK_UINT_EQ(a->starts, 2);
    CHECK(vow_cancel(a->f, NULL));
    world_run(l.w);
    CHECK(a->asked);
    CHECK_INT_EQ(load_code(a), VOW_ECANCELED);
    CHECK_UINT_EQ(a->starts, 2);
    CHECK_UINT_EQ(load_stats(&l).running, 0);
    load_close(&l);
}

TEST(gate_retry, a_closed_gate_ends_what_backs_off)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    struct load_job *a = load_run(&l, 10, VOW_JOB(.retry = RETRY(.tries = 9)));
    a->fails = 9;
    a->retry_after_ms = 100;
    world_advance_ms(l.w, 50);
    vow_gate_close(l.gate);
    world_run(l.w);
    CHECK_INT_EQ(load_code(a), VOW_ECLOSED);
    CHECK_UINT_EQ(a->starts, 1);
    load_close(&l);
}

/* ---- one deadline -------------------------------------------------------- */

TEST(gate_retry, one_deadline_is_over_queue_backoff_and_run)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    load_run(&l, 100, NULL);
    struct load_job *b = load_run(
        &l, 100, VOW_JOB(.deadline_ms = 450, .retry = RETRY(.tries = 9)));
    b->fails = 9;
    b->retry_after_ms = 120; /* 100 to 200, 320 to 420, then too late */
    world_advance_ms(l.w, 100);
    load_run(&l, 0, NULL);
    world_run(l.w);
    CHECK_STR_EQ(l.order, "abcb");
    CHECK_INT_EQ(load_code(b), VOW_EIO);
    CHECK(load_now_ms(&l) >= 420 && load_now_ms(&l) <= 421);
    load_close(&l);
}

TEST(gate_retry, at_the_deadline_a_later_attempt_is_asked_to_stop)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    load_run(&l, 100, NULL);
    struct load_job *b = load_run(
        &l, 200, VOW_JOB(.deadline_ms = 480, .retry = RETRY(.tries = 9)));
    b->fails = 9;
    world_advance_ms(l.w, 479);
    CHECK_UINT_EQ(b->starts, 2);
    CHECK_INT_EQ(load_code(b), LOAD_PENDING);
    world_advance_ms(l.w, 1);
    CHECK_INT_EQ(load_code(b), VOW_ETIMEDOUT);
    CHECK(b->asked);
    CHECK_INT_EQ(vow_error_code(vow_error_root(vow_error_of(b->f))), VOW_EIO);
    world_run(l.w);
    CHECK_UINT_EQ(load_now_ms(&l), 480);
    CHECK_UINT_EQ(b->starts, 2);
    load_close(&l);
}

TEST(gate_retry, waiting_again_it_leaves_at_its_deadline)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    struct load_job *a =
        load_run(&l, 10, VOW_JOB(.deadline_ms = 50, .retry = RETRY(0)));
    struct load_job *b = load_run(&l, 100, NULL);
    a->fails = 1;
    world_advance_ms(l.w, 49);
    CHECK_INT_EQ(load_code(a), LOAD_PENDING);
    world_advance_ms(l.w, 1);
    CHECK_INT_EQ(load_code(a), VOW_ETIMEDOUT);
    world_run(l.w);
    CHECK_STR_EQ(l.order, "ab");
    CHECK_INT_EQ(load_code(b), 0);
    load_close(&l);
}

/* ---- no memory, and the end of the loop ---------------------------------- */

TEST(gate_retry, the_loop_closes_over_what_backs_off)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    load_run(&l, 10, VOW_JOB(.deadline_ms = 9999, .retry = RETRY(0)))->fails =
        9;
    l.jobs[0].retry_after_ms = 1000;
    load_run(&l, 10, VOW_JOB(.retry = RETRY(0)))->fails = 9;
    world_advance_ms(l.w, 15);
    load_close_loop(&l);
    CHECK_INT_EQ(load_code(&l.jobs[0]), VOW_ECLOSED);
    CHECK_INT_EQ(load_code(&l.jobs[1]), VOW_ECLOSED);
    load_close_dirty(&l);
}

FAULT_SWEEP(gate_retry, retries_survive_every_fault, FAULT_ALLOC)
{
    static struct load l;
    if (load_join(&l, w, VOW_GATE(.concurrent = 1, .rate = 3)) != 0)
        return;
    const vow_job_opts *opts =
        VOW_JOB(.key = "k", .deadline_ms = 9000, .retry = RETRY(.tries = 3));
    for (int i = 0; i < 2; i++)
        load_run(&l, 10, opts)->fails = 2;
    CHECK_INT_EQ(vow_loop_run(w->loop), 0);
    for (int i = 0; i < 2; i++) {
        int rc = load_code(&l.jobs[i]);
        CHECK(rc == 0 || rc == VOW_EIO || fault_explains(w, rc));
        CHECK(rc != VOW_EIO || fault_fired(w));
    }
    CHECK_UINT_EQ(load_stats(&l).running, 0);
    CHECK_UINT_EQ(load_stats(&l).waiting, 0);
    CHECK(load_most_within(&l, 1000) <= 3);
    load_drop(&l);
}
