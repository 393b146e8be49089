/* SPDX-License-Identifier: MIT */
/* hedge_test.c - hedge: when the next attempt starts, who wins, how all
 * fail. */
#include "hedge_rig.h"

/* ---- starting ----------------------------------------------------------- */

TEST(hedge, needs_a_start_function_and_options_of_this_version)
{
    struct rig r;
    rig_open(&r, 1);
    vow_hedge_opts o = {.size = sizeof(o) + 1};
    check_code(vow_hedge(r.loop, NULL, &r, NULL), VOW_EINVAL);
    check_code(vow_hedge(r.loop, start, &r, &o), VOW_EINVAL);
    o.size = 0;
    check_code(vow_hedge(r.loop, start, &r, &o), VOW_EINVAL);
    world_run(&r.w);
    CHECK_UINT_EQ(r.starts, 0);
    rig_close(&r);
}

TEST(hedge, an_answer_in_time_is_the_only_attempt)
{
    struct rig r;
    rig_open(&r, 1);
    vow_future *f = vow_hedge(r.loop, start, &r, NULL);
    CHECK_UINT_EQ(r.starts, 0); /* from the queue */
    world_advance_ms(&r.w, 99);
    CHECK_UINT_EQ(r.starts, 1);
    vow_resolve(r.end[1], vow_int(5));
    world_run(&r.w);
    CHECK_UINT_EQ(r.starts, 1);
    CHECK_UINT_EQ(vow_loop_now_ns(r.loop), 99000000); /* and no timer left */
    check_value(f, 5);
    rig_close(&r);
}

TEST(hedge, asks_by_default_twice_the_second_time_after_100_ms)
{
    struct rig r;
    rig_open(&r, 1);
    vow_future *f = vow_hedge(r.loop, start, &r, NULL);
    world_advance_ms(&r.w, 99);
    CHECK_UINT_EQ(r.starts, 1);
    world_advance_ms(&r.w, 1);
    CHECK_UINT_EQ(r.starts, 2);
    world_advance_ms(&r.w, 100000);
    CHECK_UINT_EQ(r.starts, 2);
    CHECK_INT_EQ(vow_state_of(f), VOW_PENDING);
    vow_resolve(r.end[2], vow_int(6));
    world_run(&r.w);
    check_value(f, 6);
    rig_close(&r);
}

TEST(hedge, asks_again_each_time_so_long_passes)
{
    struct rig r;
    rig_open(&r, 1);
    vow_future *f =
        vow_hedge(r.loop, start, &r, VOW_HEDGE(.after_ms = 30, .most = 5));
    world_run(&r.w);
    CHECK_UINT_EQ(r.starts, 5);
    for (uint32_t i = 1; i <= 5; i++)
        CHECK_UINT_EQ(r.at_ms[i], 30 * (i - 1));
    vow_resolve(r.end[3], vow_int(3));
    world_run(&r.w);
    check_value(f, 3);
    rig_close(&r);
}

TEST(hedge, asks_again_at_once_when_the_newest_fails)
{
    struct rig r;
    rig_open(&r, 3);
    r.plan[1] = VOW_EIO;
    r.plan[2] = VOW_EBUSY;
    vow_future *f =
        vow_hedge(r.loop, start, &r, VOW_HEDGE(.after_ms = 30, .most = 4));
    world_turn(&r.w);
    CHECK_UINT_EQ(r.starts, 3);
    CHECK_UINT_EQ(r.at_ms[3], 0);
    world_run(&r.w);
    CHECK_UINT_EQ(r.at_ms[4], 30); /* counted from the third */
    vow_resolve(r.end[4], vow_int(4));
    world_run(&r.w);
    check_value(f, 4);
    rig_close(&r);
}

TEST(hedge, does_not_hurry_when_an_older_one_fails)
{
    struct rig r;
    rig_open(&r, 1);
    vow_future *f =
        vow_hedge(r.loop, start, &r, VOW_HEDGE(.after_ms = 30, .most = 3));
    world_advance_ms(&r.w, 40);
    CHECK_UINT_EQ(r.starts, 2);
    vow_reject_code(r.end[1], VOW_EIO, NULL);
    world_advance_ms(&r.w, 19);
    CHECK_UINT_EQ(r.starts, 2);
    world_advance_ms(&r.w, 1);
    CHECK_UINT_EQ(r.starts, 3);
    vow_resolve(r.end[2], vow_int(2));
    world_run(&r.w);
    check_value(f, 2);
    rig_close(&r);
}

TEST(hedge, after_a_time_beyond_the_end_of_time_asks_when_it_fails)
{
    struct rig r;
    rig_open(&r, 1);
    r.plan[2] = 0;
    world_advance_ms(&r.w, 5);
    vow_future *f =
        vow_hedge(r.loop, start, &r, VOW_HEDGE(.after_ms = UINT64_MAX));
    world_advance_ms(&r.w, 1000000);
    CHECK_UINT_EQ(r.starts, 1);
    vow_reject_code(r.end[1], VOW_EIO, NULL);
    world_run(&r.w);
    check_value(f, 2);
    rig_close(&r);
}

TEST(hedge, copies_its_options)
{
    struct rig r;
    rig_open(&r, 1);
    vow_hedge_opts o = {.size = sizeof(o), .after_ms = 10, .most = 3};
    vow_future *f = vow_hedge(r.loop, start, &r, &o);
    o.most = 1;
    o.after_ms = 1;
    world_run(&r.w);
    CHECK_UINT_EQ(r.starts, 3);
    CHECK_UINT_EQ(r.at_ms[2], 10);
    vow_resolve(r.end[1], vow_int(1));
    world_run(&r.w);
    check_value(f, 1);
    rig_close(&r);
}

TEST(hedge, starts_every_attempt_on_behalf_of_who_asked)
{
    struct rig r;
    rig_open(&r, 1);
    r.plan[2] = VOW_EIO;
    vow_context c = {.owner = &r};
    vow_context_init(&c, r.loop);
    vow_context *before = vow_context_enter(r.loop, &c);
    vow_future *f = vow_hedge(r.loop, start, &r, VOW_HEDGE(.most = 3));
    vow_context_leave(r.loop, before);
    for (uint32_t i = 1; i <= 3; i++) {
        world_advance_ms(&r.w, i == 1 ? 1 : 100); /* first, late, at once */
        CHECK_PTR_EQ(r.seen, &c);
        CHECK_PTR_EQ(vow_context_current(r.loop), NULL);
    }
    CHECK_UINT_EQ(r.starts, 3);
    vow_resolve(r.end[3], vow_int(3));
    world_run(&r.w);
    check_value(f, 3);
    CHECK_UINT_EQ(c.refs, 1); /* given back */
    vow_context_unref(&c);
    rig_close(&r);
}

/* ---- who wins ----------------------------------------------------------- */

TEST(hedge, the_first_value_wins_and_the_others_are_canceled)
{
    for (uint32_t winner = 1; winner <= 3; winner++) {
        struct rig r;
        rig_open(&r, 1);
        vow_future *f =
            vow_hedge(r.loop, start, &r, VOW_HEDGE(.after_ms = 10, .most = 3));
        world_run(&r.w);
        vow_resolve(r.end[winner], vow_int(winner));
        world_run(&r.w);
        for (uint32_t i = 1; i <= 3; i++)
            CHECK_INT_EQ(r.asked[i], i != winner);
        check_value(f, winner);
        rig_close(&r);
    }
}

TEST(hedge, of_two_values_the_first_wins)
{
    struct rig r;
    rig_open(&r, 1);
    vow_future *f = vow_hedge(r.loop, start, &r, NULL);
    world_run(&r.w);
    vow_resolve(r.end[2], vow_int(22));
    vow_resolve(r.end[1], vow_int(11));
    world_run(&r.w);
    check_value(f, 22);
    rig_close(&r);
}

TEST(hedge, an_owned_value_reaches_the_caller_and_a_late_one_is_dropped)
{
    struct rig r;
    rig_open(&r, 1);
    int won = 0, lost = 0;
    vow_future *f = vow_hedge(r.loop, start, &r, NULL);
    world_run(&r.w);
    vow_resolve(r.end[1], vow_own(&won, count_drop));
    vow_resolve(r.end[2], vow_own(&lost, count_drop));
    for (int i = 1; i <= 2; i++)
        r.end[i] = vow_deferred_unref(r.end[i]);
    world_run(&r.w);
    CHECK_PTR_EQ(vow_as_ptr(vow_get(f)), &won);
    CHECK_INT_EQ(won, 0);
    CHECK_INT_EQ(lost, 1);
    vow_future_unref(f);
    CHECK_INT_EQ(won, 1);
    rig_close(&r);
}

TEST(hedge, one_that_fails_late_does_not_matter)
{
    struct rig r;
    rig_open(&r, 1);
    r.stubborn = true;
    vow_future *f = vow_hedge(r.loop, start, &r, NULL);
    world_run(&r.w);
    vow_resolve(r.end[2], vow_int(2));
    vow_reject_code(r.end[1], VOW_EIO, NULL); /* in the same turn */
    world_run(&r.w);
    check_value(f, 2);
    rig_close(&r);
}

TEST(hedge, work_that_others_hold_is_let_go_not_canceled)
{
    struct rig r;
    rig_open(&r, 2);
    vow_deferred *shared_end;
    vow_future *shared = vow_promise(r.loop, &shared_end);
    vow_future *f = vow_then(shared, NULL, NULL, NULL); /* somebody else */
    r.plan[1] = HANG;
    vow_future *h = vow_hedge(r.loop, start, &r, NULL);
    world_turn(&r.w);
    vow_resolve_with(r.end[1], shared);
    vow_future_unref(shared);
    world_run(&r.w);
    vow_resolve(r.end[2], vow_int(2));
    world_run(&r.w);
    check_value(h, 2);
    CHECK(vow_deferred_pending(shared_end));
    vow_resolve_drop(shared_end, vow_int(9));
    world_run(&r.w);
    check_value(f, 9);
    rig_close(&r);
}

TEST(hedge, goes_on_when_its_future_is_dropped)
{
    struct rig r;
    rig_open(&r, 1);
    vow_future_unref(vow_hedge(r.loop, start, &r, NULL));
    world_run(&r.w);
    CHECK_UINT_EQ(r.starts, 2);
    vow_resolve(r.end[1], vow_nothing());
    world_run(&r.w);
    CHECK_INT_EQ(r.asked[2], 1);
    rig_close(&r);
}

/* ---- all fail ----------------------------------------------------------- */

TEST(hedge, when_all_have_failed_it_has_all_errors_in_order_of_attempts)
{
    struct rig r;
    rig_open(&r, 1);
    vow_future *f = vow_hedge(r.loop, start, &r, VOW_HEDGE(.most = 3));
    world_run(&r.w);
    static const int order[] = {2, 3, 1};
    vow_error *e[4] = {NULL};
    for (int i = 0; i < 3; i++) {
        CHECK_INT_EQ(vow_state_of(f), VOW_PENDING);
        e[order[i]] = vow_error_new(r.loop, VOW_EIO, "%d", order[i]);
        vow_reject(r.end[order[i]], e[order[i]]);
        world_run(&r.w);
    }
    vow_error *all = vow_error_of(f);
    CHECK_UINT_EQ(vow_error_count(all), 3);
    for (size_t i = 0; i < 3; i++)
        CHECK_PTR_EQ(vow_error_at(all, i), e[i + 1]);
    CHECK_PTR_EQ(vow_error_cause(all), e[2]); /* the first in time */
    check_code(f, VOW_EALLFAILED);
    rig_close(&r);
}

TEST(hedge, one_attempt_that_fails_is_all)
{
    struct rig r;
    rig_open(&r, 2);
    r.plan[1] = VOW_EIO;
    vow_future *f = vow_hedge(r.loop, start, &r, VOW_HEDGE(.most = 1));
    world_run(&r.w);
    CHECK_UINT_EQ(r.starts, 1);
    CHECK_UINT_EQ(vow_loop_now_ns(r.loop), 0);
    CHECK_UINT_EQ(vow_error_count(vow_error_of(f)), 1);
    CHECK_PTR_EQ(vow_error_at(vow_error_of(f), 0), r.errors[1]);
    check_code(f, VOW_EALLFAILED);
    rig_close(&r);
}

TEST(hedge, a_start_that_returns_no_future_has_failed)
{
    struct rig r;
    rig_open(&r, 3);
    r.plan[1] = NO_FUTURE;
    r.plan[2] = NO_FUTURE;
    vow_future *f = vow_hedge(r.loop, start, &r, NULL);
    world_run(&r.w);
    for (size_t i = 0; i < 2; i++)
        CHECK_INT_EQ(vow_error_code(vow_error_at(vow_error_of(f), i)),
                     VOW_EINVAL);
    check_code(f, VOW_EALLFAILED);
    rig_close(&r);
}

static vow_future *fail_at_once(vow_loop *loop, uint32_t attempt, void *arg)
{
    ++*(uint32_t *)arg;
    CHECK_UINT_EQ(attempt, *(uint32_t *)arg);
    return vow_rejected(loop, vow_error_new(loop, VOW_EIO, NULL));
}

TEST(hedge, a_hundred_thousand_that_fail_at_once_take_little_stack)
{
    struct world w;
    world_open(&w);
    uint32_t starts = 0;
    vow_future *f =
        vow_hedge(w.loop, fail_at_once, &starts, VOW_HEDGE(.most = 100000));
    world_run(&w);
    CHECK_UINT_EQ(starts, 100000);
    CHECK_UINT_EQ(vow_error_count(vow_error_of(f)), 100000);
    check_code(f, VOW_EALLFAILED);
    world_close(&w);
}
