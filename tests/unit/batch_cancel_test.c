/* SPDX-License-Identifier: MIT */
/* batch_cancel_test.c - batch: items canceled in every state, and the close of
 * the loop. */
#include "batch_rig.h"

/* ---- cancel ------------------------------------------------------------- */

/* https://github.com/sindresorhus/p-queue/issues/219 */
TEST(batch, a_canceled_item_leaves_the_queue_at_once)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.most = 3, .wait_ms = 50));
    struct token t = {0};
    vow_future *f = ask(&r, 1);
    vow_future *g = vow_batch_add(r.b, token(&t), 0);
    vow_error *why = vow_error_new(r.w.loop, VOW_EIO, "no longer");
    CHECK(vow_cancel(g, why));
    CHECK_UINT_EQ(vow_batch_stats_get(r.b).waiting, 1);
    CHECK_INT_EQ(t.drops, 0); /* no code of others inside vow_cancel() */
    CHECK_PTR_EQ(vow_error_root(vow_error_of(g)), why);
    check_code(g, VOW_ECANCELED);
    vow_error_unref(why);
    world_turn(&r.w);
    CHECK_INT_EQ(t.drops, 1);
    vow_future *h = ask(&r, 3);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 0); /* two are together */
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.sizes[0], 2);
    check_value(f, 2);
    check_value(h, 6);
    rig_close(&r);
}

TEST(batch, bytes_of_a_canceled_item_are_given_back)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.bytes = 100, .wait_ms = 50));
    vow_future *f = vow_batch_add(r.b, vow_int(1), 90);
    CHECK(vow_cancel(f, NULL));
    vow_future *g = vow_batch_add(r.b, vow_int(2), 90);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 0);
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.at_ms[0], 50);
    check_code(f, VOW_ECANCELED);
    check_value(g, 4);
    rig_close(&r);
}

TEST(batch, when_the_last_that_waits_leaves_no_call_and_no_timer_is_left)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.most = 2, .wait_ms = 50));
    vow_future *f[] = {ask(&r, 1), ask(&r, 2)}; /* full: the call is near */
    CHECK(vow_cancel(f[0], NULL));
    CHECK(vow_cancel(f[1], NULL));
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.calls, 0);
    CHECK_UINT_EQ(vow_loop_now_ns(r.w.loop), 0);
    drop_all(f, 2);
    rig_close(&r);
}

TEST(batch, when_one_of_a_full_call_leaves_the_others_wait_on)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.most = 2, .wait_ms = 50));
    vow_future *f[] = {ask(&r, 1), ask(&r, 2)};
    CHECK(vow_cancel(f[0], NULL));
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 0);
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.at_ms[0], 50);
    drop_all(f, 2);
    rig_close(&r);
}

/* Canceled through another: its hook comes from the queue, behind the call. */
TEST(batch, an_item_about_to_leave_is_not_put_into_a_call)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.most = 3, .wait_ms = 50));
    struct token t = {0};
    vow_future *f[2];
    f[0] = ask(&r, 1);
    vow_future *left = vow_batch_add(r.b, token(&t), 0);
    vow_future *bound = vow_timeout(left, 1000);
    vow_future_unref(left);
    f[1] = ask(&r, 3); /* full */
    CHECK(vow_cancel(bound, NULL));
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 0);
    CHECK_INT_EQ(t.drops, 1);
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.sizes[0], 2);
    CHECK_UINT_EQ(r.s.at_ms[0], 50);
    check_value(f[0], 2);
    check_value(f[1], 6);
    check_code(bound, VOW_ECANCELED);
    rig_close(&r);
}

TEST(batch, when_all_are_about_to_leave_there_is_no_call)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.most = 1));
    vow_future *left = ask(&r, 1);
    vow_future *bound = vow_timeout(left, 1000);
    vow_future_unref(left);
    CHECK(vow_cancel(bound, NULL));
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.calls, 0);
    check_code(bound, VOW_ECANCELED);
    rig_close(&r);
}

TEST(batch, an_item_that_timed_out_leaves)
{
    struct rig r;
    rig_open(&r, HANG, VOW_BATCH(.most = 1));
    vow_future *f = ask(&r, 1);
    vow_future *late = ask(&r, 2);
    vow_future *bound = vow_timeout(late, 30);
    vow_future_unref(late);
    world_run(&r.w);
    check_code(bound, VOW_ETIMEDOUT);
    CHECK_UINT_EQ(vow_batch_stats_get(r.b).waiting, 0);
    end_call(&r.s, 0, 1);
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.calls, 1);
    check_value(f, 1);
    rig_close(&r);
}

TEST(batch, canceling_one_of_a_call_leaves_the_call_to_the_others)
{
    struct rig r;
    rig_open(&r, HANG, NULL);
    vow_future *f[] = {ask(&r, 1), ask(&r, 2)};
    world_turn(&r.w);
    CHECK(vow_cancel(f[0], NULL));
    CHECK_INT_EQ(code_of(f[0]), VOW_ECANCELED);
    world_run(&r.w);
    CHECK_INT_EQ(r.s.asked, 0);
    end_call(&r.s, 0, 5);
    world_run(&r.w);
    check_code(f[0], VOW_ECANCELED);
    check_value(f[1], 5);
    rig_close(&r);
}

TEST(batch, a_call_is_canceled_with_its_last_item)
{
    struct rig r;
    rig_open(&r, HANG, NULL);
    vow_future *f[] = {ask(&r, 1), ask(&r, 2)};
    world_turn(&r.w);
    vow_error *why = vow_error_new(r.w.loop, VOW_EIO, "gone home");
    CHECK(vow_cancel(f[1], NULL));
    CHECK(vow_cancel(f[0], why));
    CHECK_INT_EQ(r.s.asked, 0); /* from the queue */
    world_run(&r.w);
    CHECK_INT_EQ(r.s.asked, 1);
    CHECK_INT_EQ(r.s.asked_code, VOW_ECANCELED);
    CHECK_PTR_EQ(r.s.asked_root, why);
    CHECK_UINT_EQ(vow_batch_stats_get(r.b).calls, 0);
    vow_error_unref(why);
    drop_all(f, 2);
    rig_close(&r);
}

TEST(batch, a_call_is_canceled_when_the_others_were_answered)
{
    struct rig r;
    rig_open(&r, PARTLY, NULL);
    vow_future *f[] = {ask(&r, 1), ask(&r, 2)};
    world_run(&r.w);
    CHECK(vow_cancel(f[1], NULL));
    world_run(&r.w);
    CHECK_INT_EQ(r.s.asked, 1);
    check_value(f[0], -1);
    check_code(f[1], VOW_ECANCELED);
    rig_close(&r);
}

TEST(batch, a_call_that_answered_all_is_left_to_end)
{
    struct rig r;
    rig_open(&r, PARTLY, VOW_BATCH(.most = 1));
    vow_future *f[] = {ask(&r, 1), ask(&r, 2)};
    world_run(&r.w);
    CHECK_INT_EQ(vow_as_int(vow_get(f[0])), -1);
    CHECK(!vow_cancel(f[0], NULL));
    world_run(&r.w);
    CHECK_INT_EQ(r.s.asked, 0);
    CHECK_UINT_EQ(r.s.calls, 1); /* it has the place until its end */
    end_call(&r.s, 0, 0);
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.calls, 2);
    end_call(&r.s, 1, 0);
    world_run(&r.w);
    drop_all(f, 2);
    rig_close(&r);
}

TEST(batch, a_canceled_call_has_its_place_and_its_items_until_it_ends)
{
    struct rig r;
    rig_open(&r, HANG, VOW_BATCH(.most = 1));
    r.s.stubborn = true;
    vow_future *f[] = {ask(&r, 1), ask(&r, 2)};
    world_turn(&r.w);
    CHECK(vow_cancel(f[0], NULL));
    world_run(&r.w);
    CHECK_INT_EQ(r.s.asked, 1);
    CHECK_UINT_EQ(r.s.calls, 1);
    CHECK_INT_EQ(vow_as_int(vow_batch_call_item(r.s.call[0], 0)), 1);
    r.s.mode = ANSWER;
    CHECK(!vow_batch_answer(r.s.call[0], 0, vow_ok(vow_int(1))));
    vow_resolve(r.s.end[0], vow_nothing());
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.calls, 2);
    check_code(f[0], VOW_ECANCELED);
    check_value(f[1], 4);
    rig_close(&r);
}

TEST(batch, a_call_settled_while_it_is_being_canceled_ends_once)
{
    struct rig r;
    rig_open(&r, HANG, NULL);
    vow_future *f = ask(&r, 1);
    world_turn(&r.w);
    CHECK(vow_cancel(f, NULL));
    vow_resolve(r.s.end[0], vow_nothing());
    world_run(&r.w);
    CHECK_INT_EQ(r.s.asked, 0);
    check_code(f, VOW_ECANCELED);
    vow_future *g = ask(&r, 1);
    world_turn(&r.w);
    vow_resolve(r.s.end[1], vow_nothing());
    CHECK(vow_cancel(g, NULL)); /* the other way round */
    world_run(&r.w);
    CHECK_INT_EQ(r.s.asked, 0);
    check_code(g, VOW_ECANCELED);
    rig_close(&r);
}

TEST(batch, a_call_may_end_just_before_it_is_canceled)
{
    struct rig r = {.s.mode = HANG};
    world_open_with(&r.w, VOW_LOOP_OPTS(.turn_max = 1)); /* step by step */
    r.s.loop = r.w.loop;
    CHECK_INT_EQ(vow_batch_new(r.w.loop, serve, &r.s, NULL, &r.b), 0);
    for (int steps = 0; steps < 4; steps++) {
        vow_future *f = ask(&r, 1);
        world_run(&r.w);
        vow_resolve(r.s.end[steps], vow_nothing());
        for (int i = 0; i < steps; i++)
            world_turn(&r.w);
        (void)vow_cancel(f, NULL);
        world_run(&r.w);
        CHECK(vow_state_of(f) == VOW_REJECTED);
        (void)vow_error_of(f);
        vow_future_unref(f);
    }
    CHECK_INT_EQ(r.s.asked, 0);
    rig_close(&r);
}

TEST(batch, an_answer_that_follows_can_be_canceled)
{
    struct rig r;
    rig_open(&r, HANG, NULL);
    vow_future *f = ask(&r, 1);
    world_turn(&r.w);
    vow_deferred *inner;
    vow_batch_answer(r.s.call[0], 0, vow_follow(vow_promise(r.w.loop, &inner)));
    vow_resolve(r.s.end[0], vow_nothing());
    world_run(&r.w);
    CHECK(vow_cancel(f, NULL));
    world_run(&r.w);
    CHECK(!vow_deferred_pending(inner));
    CHECK_INT_EQ(r.s.asked, 0);
    vow_deferred_unref(inner);
    check_code(f, VOW_ECANCELED);
    rig_close(&r);
}

/* ---- the loop closes ---------------------------------------------------- */

TEST(batch, the_close_of_the_loop_settles_items_in_every_state)
{
    struct rig r;
    rig_open(&r, PARTLY, VOW_BATCH(.most = 2, .wait_ms = 10));
    struct token t[4] = {{0}};
    vow_future *f[4];
    for (int i = 0; i < 4; i++)
        f[i] = vow_batch_add(r.b, token(&t[i]), 0);
    CHECK(vow_cancel(f[3], NULL));
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 1);
    CHECK_INT_EQ(vow_loop_close(r.w.loop), 0);
    r.w.loop = NULL;
    CHECK_UINT_EQ(r.s.calls, 1);
    CHECK_UINT_EQ(vow_batch_stats_get(r.b).waiting, 0);
    CHECK_UINT_EQ(vow_batch_stats_get(r.b).calls, 0);
    check_value(f[0], -1);
    check_code(f[1], VOW_ECLOSED);
    check_code(f[2], VOW_ECLOSED);
    check_code(f[3], VOW_ECANCELED);
    for (int i = 0; i < 4; i++)
        CHECK_INT_EQ(t[i].drops, 1);
    struct token late = {0};
    check_code(vow_batch_add(r.b, token(&late), 0), VOW_ECLOSED);
    CHECK_INT_EQ(late.drops, 1);
    vow_batch_flush(r.b);
    vow_batch_close(r.b);
    vow_deferred_unref(r.s.end[0]);
    vow_batch_unref(r.b);
    world_close_dirty(&r.w);
}

TEST(batch, what_is_about_to_be_called_is_not_when_the_loop_closes)
{
    for (uint32_t most = 1; most <= 2; most++) { /* full, or not */
        struct rig r;
        rig_open(&r, ANSWER, VOW_BATCH(.most = most));
        vow_future *f = ask(&r, 1);
        CHECK_INT_EQ(vow_loop_close(r.w.loop), 0);
        r.w.loop = NULL;
        CHECK_UINT_EQ(r.s.calls, 0);
        check_code(f, VOW_ECLOSED);
        vow_batch_unref(r.b);
        world_close_dirty(&r.w);
    }
}

TEST(batch, the_loop_may_close_when_only_items_hold_it)
{
    for (int called = 0; called < 2; called++) {
        struct rig r;
        rig_open(&r, HANG, VOW_BATCH(.wait_ms = 10));
        vow_future *f = ask(&r, 1);
        r.b = vow_batch_unref(r.b);
        world_advance_ms(&r.w, called ? 10 : 5);
        CHECK_UINT_EQ(r.s.calls, (size_t)called);
        CHECK_INT_EQ(vow_loop_close(r.w.loop), 0);
        r.w.loop = NULL;
        check_code(f, VOW_ECLOSED);
        vow_deferred_unref(r.s.end[0]);
        world_close_dirty(&r.w);
    }
}

static vow_next add_while_closing(vow_error *e, void *user)
{
    struct rig *r = user;
    CHECK_INT_EQ(vow_error_code(e), VOW_ECLOSED);
    check_code(ask(r, 2), VOW_ECLOSED);
    return vow_ok(vow_nothing());
}

TEST(batch, takes_nothing_while_the_loop_closes)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.wait_ms = 10));
    CHECK_INT_EQ(vow_done(ask(&r, 1), NULL, add_while_closing, &r), 0);
    CHECK_INT_EQ(vow_loop_close(r.w.loop), 0);
    r.w.loop = NULL;
    CHECK_UINT_EQ(r.s.calls, 0);
    vow_batch_unref(r.b);
    world_close_dirty(&r.w);
}
