/* SPDX-License-Identifier: MIT */
/* pipeline_leave_test.c - pipelines that are canceled, whose time is over,
 * whose authority or loop is closed. */
#include "pipeline_rig.h"

#include "vow/call.h"

static struct rig rig;

TEST(pipeline_leave, a_cancel_leaves_all_steps)
{
    rig_open(&rig);
    for (uint64_t at = 0; at < 40; at += 5) {
        vow_future *f =
            ask_with(&rig, rig.a[0], "abc", (vow_share_opts){0}, NULL);
        world_advance_ms(rig.w, at);
        bool over = vow_state_of(f) != VOW_PENDING;
        CHECK_INT_EQ(vow_cancel(f, NULL), !over);
        if (over)
            check_text(f, "abc");
        else
            check_code(f, VOW_ECANCELED);
        world_advance_ms(rig.w, 1);
        CHECK_INT_EQ(rig.running, 0);
        CHECK_UINT_EQ(vow_authority_stats_get(rig.a[0]).names, 0);
        world_advance_ms(rig.w, 100);
    }
    rig_close(&rig);
}

TEST(pipeline_leave, a_cancel_in_the_turn_it_was_begun_leaves_nothing)
{
    rig_open(&rig);
    for (int turns = 0; turns < 12; turns++) {
        vow_future *f = ask_for(&rig, "abc");
        for (int i = 0; i < turns; i++)
            world_turn(rig.w);
        CHECK(vow_cancel(f, NULL));
        check_code(f, VOW_ECANCELED);
        world_advance_ms(rig.w, 0);
        CHECK_INT_EQ(rig.running, 0);
        CHECK_UINT_EQ(vow_authority_stats_get(rig.a[0]).names, 0);
    }
    rig_close(&rig);
}

TEST(pipeline_leave, others_keep_the_work_of_one_who_leaves)
{
    rig_open(&rig);
    vow_future *f = ask_for(&rig, "abc");
    vow_future *g = ask_for(&rig, "abd");
    world_advance_ms(rig.w, 15);
    CHECK(vow_cancel(f, NULL)); /* it did b */
    check_code(f, VOW_ECANCELED);
    world_advance_ms(rig.w, 100);
    check_text(g, "abd");
    CHECK_INT_EQ(runs(&rig, "ab"), 1);
    CHECK_INT_EQ(runs(&rig, "abc"), 0);
    rig_close(&rig);
}

TEST(pipeline_leave, a_private_step_is_canceled_with_its_pipeline)
{
    rig_open(&rig);
    act(&rig, 'p')->flags = VOW_STEP_PRIVATE;
    vow_future *f = ask_for(&rig, "ap");
    vow_future *g = ask_for(&rig, "apb");
    world_advance_ms(rig.w, 15);
    CHECK_INT_EQ(rig.running, 2);
    CHECK(vow_cancel(f, NULL));
    check_code(f, VOW_ECANCELED);
    CHECK(vow_cancel(g, NULL));
    check_code(g, VOW_ECANCELED);
    world_advance_ms(rig.w, 0);
    CHECK_INT_EQ(rig.running, 0);
    CHECK_INT_EQ(act(&rig, 'p')->cancels, 2);
    rig_close(&rig);
}

TEST(pipeline_leave, the_deadline_is_that_of_the_whole)
{
    rig_open(&rig);
    const vow_share_opts share = {.deadline_ms = 25, .ttl_ms = 60000};
    vow_step_info info[3];
    vow_future *f = ask_with(&rig, rig.a[0], "abc", share, info);
    world_advance_ms(rig.w, 25);
    check_code(f, VOW_ETIMEDOUT);
    CHECK_UINT_EQ(info[1].role, VOW_ROLE_RAN);
    CHECK_UINT_EQ(info[2].role, VOW_ROLE_NONE);
    f = ask_with(&rig, rig.a[0], "abc", share, NULL);
    world_advance_ms(rig.w, 10);
    check_text(f, "abc");
    rig_close(&rig);
}

TEST(pipeline_leave, a_closed_authority_ends_it)
{
    rig_open(&rig);
    vow_future *f = ask_for(&rig, "abc");
    vow_future *g = ask_with(&rig, rig.a[1], "abc",
                             (vow_share_opts){.ttl_ms = 60000}, NULL);
    world_advance_ms(rig.w, 15);
    vow_future *closed = vow_authority_close(rig.a[0]);
    CHECK_INT_EQ(vow_loop_run_until(rig.loop, closed), 0);
    vow_future_unref(closed);
    check_code(f, VOW_ECLOSED);
    rig.a[0] = vow_authority_unref(rig.a[0]);
    world_advance_ms(rig.w, 100);
    check_text(g, "abc");
    CHECK_INT_EQ(runs(&rig, "a"), 1);
    rig_close(&rig);
}

struct quitter {
    vow_future *f;
    vow_call call;
};

static void quit(void *user)
{
    struct quitter *q = user;
    CHECK(vow_cancel(q->f, NULL));
}

/* The call comes between the claim and the work. */
static void on_event(const vow_event *event, void *user)
{
    struct quitter *q = user;
    if (event->kind == VOW_EVENT_CLAIMED)
        vow_call_soon(&q->call, rig.loop, quit, q);
}

TEST(pipeline_leave, a_turn_that_comes_after_the_cancel_is_given_back)
{
    rig_open(&rig);
    struct quitter q = {.f = NULL};
    vow_future *opened = vow_authority_open(
        rig.loop,
        "memory:", VOW_AUTHORITY(.on_event = on_event, .on_event_user = &q));
    CHECK_INT_EQ(vow_loop_run_until(rig.loop, opened), 0);
    rig.a[2] = vow_authority_ref(vow_as_ptr(vow_get(opened)));
    vow_future_unref(opened);
    q.f = ask_with(&rig, rig.a[2], "abc", (vow_share_opts){0}, NULL);
    world_advance_ms(rig.w, 100);
    check_code(q.f, VOW_ECANCELED);
    CHECK_UINT_EQ(rig.n_tallies, 0);
    CHECK_UINT_EQ(vow_authority_stats_get(rig.a[2]).names, 0);
    rig_close(&rig);
}

TEST(pipeline_leave, keeps_the_authority_it_was_given)
{
    rig_open(&rig);
    vow_future *f = ask_for(&rig, "abc");
    rig.a[0] = vow_authority_unref(rig.a[0]);
    world_advance_ms(rig.w, 100);
    check_text(f, "abc");
    rig_close(&rig);
}

TEST(pipeline_leave, a_loop_that_closes_ends_it)
{
    for (uint64_t at = 0; at < 30; at += 5) {
        rig_open(&rig);
        act(&rig, 'p')->flags = VOW_STEP_PRIVATE;
        vow_future *f = ask_for(&rig, "abp");
        vow_future *g = ask_for(&rig, "abcd");
        world_advance_ms(rig.w, at);
        CHECK_INT_EQ(vow_loop_close(rig.w->loop), 0);
        rig.w->loop = NULL;
        check_code(f, VOW_ECLOSED);
        check_code(g, VOW_ECLOSED);
        for (int i = 0; i < 2; i++)
            rig.a[i] = vow_authority_unref(rig.a[i]);
        vow_memory_unref(rig.memory);
        world_close_dirty(rig.w);
    }
}
