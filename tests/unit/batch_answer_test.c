/* SPDX-License-Identifier: MIT */
/* batch_answer_test.c - batch: how items are answered: one by one, by a list,
 * by an error, not at all. */
#include "batch_rig.h"

/* ---- answers ------------------------------------------------------------ */

TEST(batch, an_item_is_answered_with_what_a_step_returns)
{
    struct rig r;
    rig_open(&r, HANG, NULL);
    vow_future *f[5];
    for (int i = 0; i < 5; i++)
        f[i] = ask(&r, i);
    world_turn(&r.w);
    vow_batch_call *c = r.s.call[0];
    vow_deferred *later;
    struct token t = {0};
    CHECK(vow_batch_answer(c, 0, vow_ok(token(&t))));
    CHECK(vow_batch_answer(c, 1,
                           vow_fail(vow_error_new(r.w.loop, VOW_EIO, "one"))));
    CHECK(vow_batch_answer(c, 2, vow_fail_code(VOW_EAGAIN, NULL)));
    CHECK(vow_batch_answer(c, 3, vow_follow(vow_promise(r.w.loop, &later))));
    CHECK(vow_batch_answer(c, 4, vow_pass()));   /* nothing came in */
    CHECK_PTR_EQ(vow_as_ptr(vow_get(f[0])), &t); /* before the call ends */
    CHECK_INT_EQ(vow_state_of(f[3]), VOW_PENDING);
    CHECK(!vow_batch_answer(c, 3, vow_ok(vow_nothing())));
    vow_resolve(r.s.end[0], vow_nothing());
    world_run(&r.w);
    CHECK_INT_EQ(vow_state_of(f[3]), VOW_PENDING);
    vow_resolve_drop(later, vow_int(33));
    world_run(&r.w);
    CHECK_INT_EQ(t.drops, 0);
    vow_future_unref(f[0]);
    CHECK_INT_EQ(t.drops, 1);
    check_code(f[1], VOW_EIO);
    check_code(f[2], VOW_EAGAIN);
    check_value(f[3], 33);
    check_code(f[4], VOW_EINVAL);
    rig_close(&r);
}

TEST(batch, an_answer_that_is_not_wanted_is_dropped)
{
    struct rig r;
    rig_open(&r, HANG, NULL);
    vow_future *f[] = {ask(&r, 1), ask(&r, 2)};
    world_turn(&r.w);
    vow_batch_call *c = r.s.call[0];
    CHECK(vow_cancel(f[1], NULL));
    CHECK(vow_batch_answer(c, 0, vow_ok(vow_int(1))));
    struct token t[3] = {{0}};
    for (size_t i = 0; i < 3; i++) { /* answered, canceled, beyond the end */
        CHECK(!vow_batch_answer(c, i, vow_ok(token(&t[i]))));
        CHECK_INT_EQ(t[i].drops, 1);
        CHECK(!vow_batch_answer(
            c, i, vow_fail(vow_error_new(r.w.loop, VOW_EIO, "late"))));
        CHECK(!vow_batch_answer(c, i, vow_fail_code(VOW_EIO, NULL)));
        CHECK(!vow_batch_answer(
            c, i, vow_follow(vow_resolved(r.w.loop, vow_int(1)))));
        CHECK(!vow_batch_answer(c, i, vow_pass()));
    }
    CHECK(!vow_batch_answer(c, SIZE_MAX, vow_ok(vow_nothing())));
    end_call(&r.s, 0, 0);
    world_run(&r.w);
    check_value(f[0], 1);
    check_code(f[1], VOW_ECANCELED);
    rig_close(&r);
}

TEST(batch, items_are_lent_until_the_future_of_the_call_is_settled)
{
    struct rig r;
    rig_open(&r, HANG, NULL);
    struct token t[3] = {{0}};
    vow_future *f[3];
    for (int i = 0; i < 3; i++)
        f[i] = vow_batch_add(r.b, token(&t[i]), 0);
    world_turn(&r.w);
    vow_batch_call *c = r.s.call[0];
    CHECK_UINT_EQ(vow_batch_call_size(c), 3);
    CHECK(vow_batch_answer(c, 0, vow_ok(vow_nothing())));
    CHECK(vow_cancel(f[1], NULL));
    drop_all(f, 3);
    world_run(&r.w);
    for (size_t i = 0; i < 3; i++) {
        CHECK_PTR_EQ(vow_as_ptr(vow_batch_call_item(c, i)), &t[i]);
        CHECK_INT_EQ(t[i].drops, 0);
    }
    CHECK_INT_EQ(vow_kind_of(vow_batch_call_item(c, 3)), VOW_NOTHING);
    CHECK(vow_batch_answer(c, 2, vow_ok(vow_nothing())));
    vow_resolve(r.s.end[0], vow_nothing());
    world_run(&r.w);
    for (int i = 0; i < 3; i++)
        CHECK_INT_EQ(t[i].drops, 1);
    rig_close(&r);
}

/* https://github.com/sourcegraph/conc/issues/156: each input its outcome. */
TEST(batch, a_list_of_outcomes_answers_each_item)
{
    struct rig r;
    rig_open(&r, LISTED, NULL);
    vow_future *f[5];
    for (int i = 0; i < 5; i++)
        f[i] = ask(&r, i);
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.calls, 1);
    for (int i = 0; i < 5; i++) {
        if (i % 2 == 0)
            check_value(f[i], 2 * i);
        else
            check_code(f[i], VOW_EIO);
    }
    rig_close(&r);
}

static void answer_second(struct server *s, vow_batch_call *c)
{
    (void)s;
    CHECK(vow_batch_answer(c, 1, vow_ok(vow_int(111))));
}

TEST(batch, a_list_answers_only_those_not_answered_yet)
{
    struct rig r;
    rig_open(&r, LISTED, NULL);
    r.s.inside = answer_second;
    vow_future *f[3];
    for (int i = 0; i < 3; i++)
        f[i] = ask(&r, i);
    world_run(&r.w);
    check_value(f[0], 0);
    check_value(f[1], 111);
    check_value(f[2], 4);
    rig_close(&r);
}

TEST(batch, owned_outcomes_of_a_list_reach_their_items)
{
    struct rig r;
    rig_open(&r, HANG, NULL);
    vow_future *f[] = {ask(&r, 1), ask(&r, 2)};
    world_turn(&r.w);
    struct token t[2] = {{0}};
    vow_future *each[] = {vow_resolved(r.w.loop, token(&t[0])),
                          vow_resolved(r.w.loop, token(&t[1]))};
    vow_future *all = vow_all(r.w.loop, each, 2);
    vow_resolve_with(r.s.end[0], all);
    drop_all(each, 2);
    vow_future_unref(all);
    r.s.end[0] = vow_deferred_unref(r.s.end[0]); /* has the list, too */
    world_run(&r.w);
    for (int i = 0; i < 2; i++) {
        CHECK_PTR_EQ(vow_as_ptr(vow_get(f[i])), &t[i]);
        CHECK_INT_EQ(t[i].drops, 0);
        vow_future_unref(f[i]);
        CHECK_INT_EQ(t[i].drops, 1);
    }
    rig_close(&r);
}

static void end_with_list(struct rig *r, size_t n)
{
    vow_future *each[4];
    for (size_t i = 0; i < n; i++)
        each[i] = vow_resolved(r->w.loop, vow_int(1));
    vow_future *all = vow_all_settled(r->w.loop, each, n);
    vow_resolve_with(r->s.end[r->s.calls - 1], all);
    drop_all(each, n);
    vow_future_unref(all);
}

TEST(batch, items_are_broken_when_the_call_ends_without_their_answers)
{
    struct rig r;
    rig_open(&r, NOTHING, NULL);
    vow_future *f = ask(&r, 1);
    world_run(&r.w);
    check_code(f, VOW_EBROKEN);
    r.s.mode = PARTLY;
    static const size_t sizes[] = {0, 1, 3, 2};
    for (size_t k = 0; k < 4; k++) { /* as many, or they do not count */
        vow_future *a = ask(&r, 1);
        vow_future *b = ask(&r, 2);
        world_turn(&r.w);
        end_with_list(&r, sizes[k]);
        world_run(&r.w);
        check_value(a, -1);
        if (sizes[k] == 2)
            check_value(b, 1);
        else
            check_code(b, VOW_EBROKEN);
    }
    rig_close(&r);
}

TEST(batch, a_dropped_end_of_the_call_breaks_its_items)
{
    struct rig r;
    rig_open(&r, HANG, NULL);
    vow_future *f = ask(&r, 1);
    world_turn(&r.w);
    r.s.end[0] = vow_deferred_unref(r.s.end[0]);
    world_run(&r.w);
    check_code(f, VOW_EBROKEN);
    rig_close(&r);
}

TEST(batch, items_get_the_error_of_the_call)
{
    struct rig r;
    rig_open(&r, REFUSE, NULL);
    vow_future *f[] = {ask(&r, 1), ask(&r, 2)};
    world_run(&r.w);
    CHECK_PTR_EQ(vow_error_of(f[0]), r.s.error);
    CHECK_PTR_EQ(vow_error_of(f[1]), r.s.error);
    drop_all(f, 2);
    r.s.mode = PARTLY;
    vow_future *g[] = {ask(&r, 1), ask(&r, 2)};
    world_turn(&r.w);
    vow_reject_code(r.s.end[1], VOW_EIO, "half way");
    world_run(&r.w);
    check_value(g[0], -1);
    check_code(g[1], VOW_EIO);
    rig_close(&r);
}

TEST(batch, a_call_that_fails_does_not_stop_the_next)
{
    struct rig r;
    rig_open(&r, REFUSE, VOW_BATCH(.most = 1));
    vow_future *f[3];
    for (int i = 0; i < 3; i++)
        f[i] = ask(&r, i);
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.calls, 3);
    drop_all(f, 3);
    rig_close(&r);
}

TEST(batch, a_function_that_returns_no_future_is_refused)
{
    struct rig r;
    rig_open(&r, NO_FUTURE, NULL);
    r.s.inside = answer_second;
    vow_future *f[] = {ask(&r, 1), ask(&r, 2)};
    world_run(&r.w);
    check_code(f[0], VOW_EINVAL);
    check_value(f[1], 111);
    CHECK_UINT_EQ(vow_batch_stats_get(r.b).calls, 0);
    r.s.mode = ANSWER;
    r.s.inside = NULL;
    vow_future *g = ask(&r, 3);
    world_run(&r.w);
    check_value(g, 6);
    rig_close(&r);
}

TEST(batch, goes_on_when_nobody_holds_the_futures)
{
    struct rig r;
    rig_open(&r, ANSWER, NULL);
    vow_future_unref(ask(&r, 1));
    vow_future_unref(ask(&r, 2));
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.sizes[0], 2);
    rig_close(&r);
}
