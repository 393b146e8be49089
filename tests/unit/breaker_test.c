/* SPDX-License-Identifier: MIT */
/* breaker_test.c - breaker: when it opens, lets probes through and closes, and
 * which outcomes count. */
#include "breaker_rig.h"

/* ---- making one --------------------------------------------------------- */

TEST(breaker, refuses_options_that_make_no_sense)
{
    struct world w;
    world_open(&w);
    vow_breaker *b = NULL;
    vow_breaker_opts o = {.size = sizeof(o) + 8};
    CHECK_INT_EQ(vow_breaker_new(w.loop, &o, &b), VOW_EINVAL);
    o.size = 0;
    CHECK_INT_EQ(vow_breaker_new(w.loop, &o, &b), VOW_EINVAL);
    CHECK_INT_EQ(vow_breaker_new(w.loop, VOW_BREAKER(.calls = 65), &b),
                 VOW_EINVAL);
    CHECK_INT_EQ(vow_breaker_new(w.loop, VOW_BREAKER(.failures = 65), &b),
                 VOW_EINVAL);
    CHECK_INT_EQ(
        vow_breaker_new(w.loop, VOW_BREAKER(.failures = 6, .calls = 5), &b),
        VOW_EINVAL);
    CHECK_INT_EQ(vow_breaker_new(w.loop, VOW_BREAKER(.calls = 4), &b),
                 VOW_EINVAL); /* five failures by default */
    CHECK_PTR_EQ(b, NULL);
    CHECK_INT_EQ(
        vow_breaker_new(w.loop, VOW_BREAKER(.failures = 64, .calls = 64), &b),
        0);
    CHECK_PTR_EQ(vow_breaker_ref(b), b);
    CHECK_PTR_EQ(vow_breaker_unref(b), NULL);
    vow_breaker_cleanup(&b);
    CHECK_PTR_EQ(vow_breaker_unref(NULL), NULL);
    CHECK_PTR_EQ(vow_breaker_ref(NULL), NULL);
    world_close(&w);
}

TEST(breaker, needs_a_start_function)
{
    struct rig r;
    rig_open(&r, NULL);
    check_code(vow_breaker_run(r.b, NULL, &r), VOW_EINVAL);
    rig_close(&r);
}

TEST(breaker, calls_start_from_the_queue_and_has_its_outcome)
{
    struct rig r;
    rig_open(&r, NULL);
    vow_future *f = vow_breaker_run(r.b, start, &r);
    CHECK_UINT_EQ(r.starts, 0);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.starts, 1);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 42);
    vow_future_unref(f);
    r.code = VOW_EBUSY;
    f = vow_breaker_run(r.b, start, &r);
    world_turn(&r.w);
    CHECK_STR_EQ(vow_error_message(vow_error_of(f)), "down");
    check_code(f, VOW_EBUSY);
    rig_close(&r);
}

static void keep_progress(vow_value v, void *user)
{
    *(int64_t *)user = vow_as_int(v);
}

TEST(breaker, progress_of_the_work_goes_on)
{
    struct rig r;
    rig_open(&r, NULL);
    int64_t heard = 0;
    vow_future *f = hang(&r);
    vow_future *g = vow_on_progress(f, keep_progress, &heard);
    CHECK(vow_notify(r.hung[0], vow_int(5)));
    world_turn(&r.w);
    CHECK_INT_EQ(heard, 5);
    vow_resolve(r.hung[0], vow_nothing());
    world_turn(&r.w);
    vow_future_unref(f);
    vow_future_unref(g);
    rig_close(&r);
}

TEST(breaker, a_start_that_returns_no_future_is_a_failure)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.failures = 1));
    CHECK_INT_EQ(outcome(&r, 2), VOW_EINVAL);
    check_state(&r, VOW_BREAKER_OPEN);
    rig_close(&r);
}

/* ---- closed, then open -------------------------------------------------- */

TEST(breaker, opens_by_default_at_five_failures_in_a_row_for_ten_seconds)
{
    struct rig r;
    rig_open(&r, NULL);
    for (int i = 0; i < 4; i++)
        CHECK_INT_EQ(outcome(&r, VOW_EIO), VOW_EIO);
    CHECK_INT_EQ(outcome(&r, 0), 0); /* looks back on five */
    for (int i = 0; i < 5; i++) {
        check_state(&r, VOW_BREAKER_CLOSED);
        CHECK_INT_EQ(outcome(&r, VOW_EIO), VOW_EIO);
    }
    check_state(&r, VOW_BREAKER_OPEN);
    world_advance_ms(&r.w, 9999);
    check_state(&r, VOW_BREAKER_OPEN);
    world_advance_ms(&r.w, 1);
    check_state(&r, VOW_BREAKER_HALF_OPEN);
    rig_close(&r);
}

TEST(breaker, counts_the_failures_of_the_last_calls)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.failures = 3, .calls = 6));
    static const int fails[] = {1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 1};
    for (size_t i = 0; i < 12; i++) { /* never 3 of 6 until the last */
        check_state(&r, VOW_BREAKER_CLOSED);
        outcome(&r, fails[i] ? VOW_EIO : 0);
    }
    check_state(&r, VOW_BREAKER_OPEN);
    rig_close(&r);
}

/* Against counting by hand. */
TEST(breaker, opens_exactly_then_for_any_history)
{
    uint64_t random = test_seed();
    for (int round = 0; round < 200; round++) {
        uint32_t calls = 1 + (uint32_t)(test_random(&random) % 64);
        uint32_t failures = 1 + (uint32_t)(test_random(&random) % calls);
        struct rig r;
        rig_open(&r, VOW_BREAKER(.failures = failures, .calls = calls));
        bool failed[300];
        for (uint32_t i = 0; i < 300; i++) {
            failed[i] = test_random(&random) % (2 + (uint64_t)round % 5) == 0;
            outcome(&r, failed[i] ? VOW_EIO : 0);
            uint32_t n = 0;
            for (uint32_t k = 0; k < calls && k <= i; k++)
                n += failed[i - k];
            check_state(&r,
                        n >= failures ? VOW_BREAKER_OPEN : VOW_BREAKER_CLOSED);
            if (n >= failures)
                break;
        }
        rig_close(&r);
    }
}

TEST(breaker, when_open_rejects_at_once_and_says_when_to_come_back)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.failures = 1, .open_ms = 500));
    outcome(&r, VOW_EIO);
    uint32_t starts = r.starts;
    vow_future *f = vow_breaker_run(r.b, start, &r);
    CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED); /* not from the queue */
    CHECK_UINT_EQ(vow_error_retry_after_ms(vow_error_of(f)), 500);
    check_code(f, VOW_EOPEN);
    world_advance_ms(&r.w, 499);
    f = vow_breaker_run(r.b, start, &r);
    CHECK_UINT_EQ(vow_error_retry_after_ms(vow_error_of(f)), 1);
    check_code(f, VOW_EOPEN);
    CHECK_UINT_EQ(r.starts, starts);
    rig_close(&r);
}

TEST(breaker, a_retry_waits_until_it_is_half_open)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.failures = 1, .open_ms = 700));
    outcome(&r, VOW_EIO);
    r.code = 0;
    vow_future *f = vow_breaker_run(r.b, start, &r);
    uint64_t ms = vow_error_retry_after_ms(vow_error_of(f));
    check_code(f, VOW_EOPEN);
    world_advance_ms(&r.w, ms);
    CHECK_INT_EQ(outcome(&r, 0), 0);
    rig_close(&r);
}

TEST(breaker, a_call_asked_for_before_it_opened_is_not_started)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.failures = 1));
    r.code = VOW_EIO;
    vow_future *f = vow_breaker_run(r.b, start, &r);
    vow_future *g = vow_breaker_run(r.b, start, &r);
    vow_breaker_trip(r.b);
    CHECK_INT_EQ(vow_state_of(f), VOW_PENDING);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.starts, 0);
    CHECK_UINT_EQ(vow_error_retry_after_ms(vow_error_of(g)), 10000);
    check_code(f, VOW_EOPEN);
    check_code(g, VOW_EOPEN);
    rig_close(&r);
}

TEST(breaker, outcomes_of_calls_from_before_it_opened_do_not_count)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.failures = 1, .open_ms = 100));
    vow_future *f = hang(&r);
    vow_future *g = hang(&r);
    outcome(&r, VOW_EIO);
    check_state(&r, VOW_BREAKER_OPEN);
    vow_resolve(r.hung[0], vow_nothing());
    world_advance_ms(&r.w, 100);
    check_state(&r, VOW_BREAKER_HALF_OPEN);
    vow_reject_code(r.hung[1], VOW_EIO, NULL);
    world_turn(&r.w);
    check_state(&r, VOW_BREAKER_HALF_OPEN);
    vow_future_unref(f);
    check_code(g, VOW_EIO);
    CHECK_INT_EQ(outcome(&r, 0), 0);
    check_state(&r, VOW_BREAKER_CLOSED);
    rig_close(&r);
}

/* ---- half open ---------------------------------------------------------- */

TEST(breaker, lets_so_many_probes_through_at_a_time)
{
    struct rig r;
    half_open(&r, 3);
    vow_future *f[3];
    for (int i = 0; i < 3; i++)
        f[i] = hang(&r);
    CHECK_UINT_EQ(r.n_hung, 3);
    vow_future *no = vow_breaker_run(r.b, start, &r);
    CHECK_INT_EQ(vow_state_of(no), VOW_REJECTED);
    CHECK_UINT_EQ(vow_error_retry_after_ms(vow_error_of(no)), 0);
    check_code(no, VOW_EOPEN);
    vow_resolve(r.hung[1], vow_nothing());
    world_turn(&r.w);
    check_state(&r, VOW_BREAKER_HALF_OPEN);
    vow_future *fourth = hang(&r);
    CHECK_UINT_EQ(r.n_hung, 4);
    vow_resolve(r.hung[0], vow_nothing());
    vow_resolve(r.hung[3], vow_nothing());
    world_turn(&r.w);
    check_state(&r, VOW_BREAKER_CLOSED); /* three have succeeded */
    for (int i = 0; i < 3; i++)
        vow_future_unref(f[i]);
    vow_future_unref(fourth);
    rig_close(&r);
}

TEST(breaker, probes_asked_for_together_are_counted_when_they_start)
{
    struct rig r;
    half_open(&r, 2);
    r.code = 1;
    vow_future *f[4];
    for (int i = 0; i < 4; i++)
        f[i] = vow_breaker_run(r.b, start, &r);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.n_hung, 2);
    check_code(f[2], VOW_EOPEN);
    check_code(f[3], VOW_EOPEN);
    vow_resolve(r.hung[0], vow_nothing());
    vow_resolve(r.hung[1], vow_nothing());
    world_turn(&r.w);
    check_state(&r, VOW_BREAKER_CLOSED);
    vow_future_unref(f[0]);
    vow_future_unref(f[1]);
    rig_close(&r);
}

TEST(breaker, by_default_one_probe_decides)
{
    struct rig r;
    half_open(&r, 0);
    vow_future *f = hang(&r);
    check_code(vow_breaker_run(r.b, start, &r), VOW_EOPEN);
    vow_resolve(r.hung[0], vow_nothing());
    world_turn(&r.w);
    check_state(&r, VOW_BREAKER_CLOSED);
    vow_future_unref(f);
    rig_close(&r);
}

TEST(breaker, a_probe_that_fails_opens_it_again_for_as_long)
{
    struct rig r;
    half_open(&r, 3);
    vow_future *f = hang(&r);
    outcome(&r, 0);
    world_advance_ms(&r.w, 50);
    outcome(&r, VOW_EIO);
    check_state(&r, VOW_BREAKER_OPEN);
    vow_resolve(r.hung[0], vow_nothing()); /* comes too late to count */
    world_advance_ms(&r.w, 99);
    check_state(&r, VOW_BREAKER_OPEN);
    world_advance_ms(&r.w, 1);
    check_state(&r, VOW_BREAKER_HALF_OPEN);
    outcome(&r, 0);
    outcome(&r, 0);
    check_state(&r, VOW_BREAKER_HALF_OPEN); /* successes are counted anew */
    outcome(&r, 0);
    check_state(&r, VOW_BREAKER_CLOSED);
    vow_future_unref(f);
    rig_close(&r);
}

TEST(breaker, closed_again_it_has_forgotten_the_failures)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.failures = 2, .calls = 4, .open_ms = 100));
    outcome(&r, VOW_EIO);
    outcome(&r, VOW_EIO);
    world_advance_ms(&r.w, 100);
    outcome(&r, 0);
    check_state(&r, VOW_BREAKER_CLOSED);
    outcome(&r, VOW_EIO);
    check_state(&r, VOW_BREAKER_CLOSED);
    outcome(&r, VOW_EIO);
    check_state(&r, VOW_BREAKER_OPEN);
    rig_close(&r);
}

/* ---- what counts -------------------------------------------------------- */

TEST(breaker, canceled_and_closed_count_as_neither)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.failures = 2, .open_ms = 100));
    outcome(&r, VOW_EIO);
    for (int i = 0; i < 5; i++) { /* nor do they push out the failure */
        CHECK_INT_EQ(outcome(&r, VOW_ECANCELED), VOW_ECANCELED);
        CHECK_INT_EQ(outcome(&r, VOW_ECLOSED), VOW_ECLOSED);
    }
    check_state(&r, VOW_BREAKER_CLOSED);
    outcome(&r, VOW_EIO);
    check_state(&r, VOW_BREAKER_OPEN);
    world_advance_ms(&r.w, 100);
    outcome(&r, VOW_ECANCELED);
    outcome(&r, VOW_ECLOSED);
    check_state(&r, VOW_BREAKER_HALF_OPEN);
    outcome(&r, 0); /* each made room for another */
    check_state(&r, VOW_BREAKER_CLOSED);
    rig_close(&r);
}

TEST(breaker, which_errors_are_failures_can_be_said)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.failures = 2, .open_ms = 10, .probes = 2,
                             .counts = only_busy));
    outcome(&r, VOW_EBUSY);
    outcome(&r, VOW_EIO); /* an answer, so it is up */
    outcome(&r, VOW_EBUSY);
    check_state(&r, VOW_BREAKER_CLOSED);
    CHECK_INT_EQ(r.judged, 3);
    outcome(&r, VOW_ECANCELED); /* never asked about */
    outcome(&r, VOW_ECLOSED);
    CHECK_INT_EQ(r.judged, 3);
    outcome(&r, VOW_EBUSY);
    check_state(&r, VOW_BREAKER_OPEN);
    world_advance_ms(&r.w, 10);
    outcome(&r, VOW_EIO);
    outcome(&r, 0);
    check_state(&r, VOW_BREAKER_CLOSED);
    rig_close(&r);
}

static bool reset_and_say_yes(vow_error *e, void *user)
{
    struct rig *r = user;
    (void)e;
    vow_breaker_reset(r->b);
    return true;
}

TEST(breaker, the_judge_may_reset_it)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.failures = 1, .counts = reset_and_say_yes));
    CHECK_INT_EQ(outcome(&r, VOW_EIO), VOW_EIO);
    check_state(&r, VOW_BREAKER_CLOSED); /* it was of the past */
    rig_close(&r);
}
