/* SPDX-License-Identifier: MIT */
/* batch_test.c - batch: when a call is made, and of what; the queue, flush and
 * close. */
#include "batch_rig.h"

/* ---- making one --------------------------------------------------------- */

TEST(batch, needs_a_function_and_options_of_this_version)
{
    struct world w;
    struct server s = {0};
    world_open(&w);
    vow_batch *b = NULL;
    vow_batch_opts o = {.size = sizeof(o) - 1};
    CHECK_INT_EQ(vow_batch_new(w.loop, NULL, &s, NULL, &b), VOW_EINVAL);
    CHECK_INT_EQ(vow_batch_new(w.loop, serve, &s, &o, &b), VOW_EINVAL);
    o.size = 0;
    CHECK_INT_EQ(vow_batch_new(w.loop, serve, &s, &o, &b), VOW_EINVAL);
    CHECK_PTR_EQ(b, NULL);
    CHECK_PTR_EQ(vow_batch_unref(NULL), NULL);
    CHECK_PTR_EQ(vow_batch_ref(NULL), NULL);
    world_close(&w);
}

TEST(batch, copies_its_options)
{
    struct rig r;
    vow_batch_opts o = {.size = sizeof(o), .most = 2, .wait_ms = 100};
    rig_open(&r, ANSWER, &o);
    o.most = 50;
    vow_future *f[] = {ask(&r, 1), ask(&r, 2)};
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 1);
    drop_all(f, 2);
    rig_close(&r);
}

TEST(batch, is_counted_and_cleaned_up)
{
    struct rig r;
    rig_open(&r, ANSWER, NULL);
    {
        VOW_AUTO(vow_batch) again = vow_batch_ref(r.b);
        CHECK_PTR_EQ(again, r.b);
        CHECK_PTR_EQ(vow_batch_unref(r.b), NULL);
    }
    r.b = NULL;
    rig_close(&r);
}

/* ---- when a call is made ------------------------------------------------ */

TEST(batch, gathers_the_items_of_a_turn_into_one_call_from_the_queue)
{
    struct rig r;
    rig_open(&r, ANSWER, NULL);
    vow_future *f[] = {ask(&r, 1), ask(&r, 2), ask(&r, 3)};
    CHECK_UINT_EQ(r.s.calls, 0);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 1);
    CHECK_UINT_EQ(r.s.sizes[0], 3);
    for (int i = 0; i < 3; i++) {
        CHECK_INT_EQ(r.s.items[0][i], i + 1); /* in order of arrival */
        check_value(f[i], 2 * (i + 1));
    }
    rig_close(&r);
}

struct adder {
    struct rig *rig;
    vow_future *asked;
};

static vow_next add_one(vow_value v, void *user)
{
    struct adder *a = user;
    (void)v;
    a->asked = ask(a->rig, 5);
    return vow_ok(vow_nothing());
}

static vow_next pass_on(vow_value v, void *user)
{
    (void)user;
    return vow_ok(v);
}

/* The N+1 problem: those who ask are at different depths of their chains. */
TEST(batch, waits_for_the_end_of_the_turn)
{
    struct rig r;
    rig_open(&r, ANSWER, NULL);
    struct adder a[5];
    for (int depth = 0; depth < 5; depth++) {
        vow_future *f = vow_resolved(r.w.loop, vow_nothing());
        for (int i = 0; i < depth; i++)
            f = vow_then_drop(f, pass_on, NULL, NULL);
        a[depth] = (struct adder){.rig = &r};
        CHECK_INT_EQ(vow_done(f, add_one, NULL, &a[depth]), 0);
    }
    vow_future *f = ask(&r, 5);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 1);
    CHECK_UINT_EQ(r.s.sizes[0], 6);
    check_value(f, 10);
    for (int i = 0; i < 5; i++)
        check_value(a[i].asked, 10);
    rig_close(&r);
}

/* Each round of the queue brings one that asks and leaves again. */
static vow_next ask_and_leave(vow_value v, void *user)
{
    struct rig *r = user;
    if (r->s.calls > 0)
        return vow_ok(v);
    vow_future *f = ask(r, 1);
    CHECK(vow_cancel(f, NULL));
    vow_future_unref(f);
    return vow_follow(vow_then_drop(vow_resolved(r->w.loop, vow_nothing()),
                                    ask_and_leave, NULL, r));
}

TEST(batch, is_not_put_off_for_ever_by_a_turn_without_end)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.most = 10));
    vow_future *f = ask(&r, 4);
    vow_future *other = vow_then_drop(vow_resolved(r.w.loop, vow_nothing()),
                                      ask_and_leave, NULL, &r);
    world_run(&r.w);
    check_value(f, 8);
    CHECK_UINT_EQ(r.s.sizes[0], 1);
    vow_future_unref(other);
    rig_close(&r);
}

TEST(batch, makes_a_call_when_the_most_are_together)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.most = 3, .wait_ms = 50));
    vow_future *f[4];
    for (int i = 0; i < 4; i++)
        f[i] = ask(&r, i);
    CHECK_UINT_EQ(r.s.calls, 0); /* from the queue all the same */
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 1);
    CHECK_UINT_EQ(r.s.sizes[0], 3);
    CHECK_UINT_EQ(vow_batch_stats_get(r.b).waiting, 1);
    world_advance_ms(&r.w, 49);
    CHECK_UINT_EQ(r.s.calls, 1);
    world_advance_ms(&r.w, 1);
    CHECK_UINT_EQ(r.s.calls, 2);
    CHECK_UINT_EQ(r.s.sizes[1], 1);
    CHECK_INT_EQ(r.s.items[1][0], 3);
    drop_all(f, 4);
    rig_close(&r);
}

TEST(batch, by_default_makes_one_call_at_a_time_of_a_hundred_items)
{
    struct rig r;
    rig_open(&r, HANG, NULL);
    vow_future *f[250];
    for (int i = 0; i < 250; i++)
        f[i] = ask(&r, i);
    static const size_t want[] = {100, 100, 50};
    for (size_t k = 0; k < 3; k++) {
        world_run(&r.w);
        CHECK_UINT_EQ(r.s.calls, k + 1);
        CHECK_UINT_EQ(r.s.sizes[k], want[k]);
        CHECK_UINT_EQ(vow_batch_stats_get(r.b).calls, 1);
        end_call(&r.s, k, 1);
    }
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.calls, 3);
    drop_all(f, 250);
    rig_close(&r);
}

TEST(batch, waits_so_long_from_the_first_item)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.wait_ms = 20));
    vow_future *f[3];
    f[0] = ask(&r, 1);
    world_advance_ms(&r.w, 15);
    f[1] = ask(&r, 2);
    world_advance_ms(&r.w, 4);
    CHECK_UINT_EQ(r.s.calls, 0);
    world_advance_ms(&r.w, 1);
    CHECK_UINT_EQ(r.s.sizes[0], 2);
    CHECK_UINT_EQ(r.s.at_ms[0], 20);
    f[2] = ask(&r, 3);
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.calls, 2);
    CHECK_UINT_EQ(r.s.at_ms[1], 40);
    drop_all(f, 3);
    rig_close(&r);
}

TEST(batch, waits_anew_from_the_next_when_the_first_leaves)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.wait_ms = 20));
    vow_future *f = ask(&r, 1);
    world_advance_ms(&r.w, 15);
    vow_future *g = ask(&r, 2);
    CHECK(vow_cancel(f, NULL));
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.calls, 1);
    CHECK_UINT_EQ(r.s.at_ms[0], 35);
    check_code(f, VOW_ECANCELED);
    check_value(g, 4);
    rig_close(&r);
}

TEST(batch, a_wait_beyond_the_end_of_time_ends_by_size)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.most = 2, .wait_ms = UINT64_MAX));
    world_advance_ms(&r.w, 1000);
    vow_future *f[] = {ask(&r, 1), NULL};
    world_advance_ms(&r.w, 100000);
    CHECK_UINT_EQ(r.s.calls, 0);
    f[1] = ask(&r, 2);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 1);
    drop_all(f, 2);
    rig_close(&r);
}

/* ---- bytes -------------------------------------------------------------- */

TEST(batch, makes_a_call_when_so_many_bytes_are_together)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.bytes = 100, .wait_ms = 1000));
    vow_future *f[4];
    f[0] = vow_batch_add(r.b, vow_int(0), 40);
    f[1] = vow_batch_add(r.b, vow_int(1), 59);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 0);
    f[2] = vow_batch_add(r.b, vow_int(2), 1);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 1);
    CHECK_UINT_EQ(r.s.sizes[0], 3);
    f[3] = vow_batch_add(r.b, vow_int(3), 99);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 1);
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.at_ms[1], 1000);
    drop_all(f, 4);
    rig_close(&r);
}

TEST(batch, what_does_not_fit_goes_into_the_next_call)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.bytes = 100, .wait_ms = 1000));
    vow_future *f[3];
    for (int i = 0; i < 3; i++)
        f[i] = vow_batch_add(r.b, vow_int(i), 40);
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.calls, 2);
    CHECK_UINT_EQ(r.s.sizes[0], 2);
    CHECK_UINT_EQ(r.s.at_ms[0], 0);
    CHECK_UINT_EQ(r.s.sizes[1], 1);
    CHECK_UINT_EQ(r.s.at_ms[1], 1000);
    drop_all(f, 3);
    rig_close(&r);
}

TEST(batch, a_bigger_item_goes_alone)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.bytes = 100, .wait_ms = 1000));
    vow_future *f[4];
    f[0] = vow_batch_add(r.b, vow_int(0), 1);
    f[1] = vow_batch_add(r.b, vow_int(1), SIZE_MAX);
    f[2] = vow_batch_add(r.b, vow_int(2), 101);
    f[3] = vow_batch_add(r.b, vow_int(3), 1);
    world_advance_ms(&r.w, 999);
    CHECK_UINT_EQ(r.s.calls, 3);
    for (int k = 0; k < 3; k++) {
        CHECK_UINT_EQ(r.s.sizes[k], 1);
        CHECK_INT_EQ(r.s.items[k][0], k);
    }
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.calls, 4);
    drop_all(f, 4);
    rig_close(&r);
}

TEST(batch, without_a_limit_bytes_do_not_matter)
{
    struct rig r;
    rig_open(&r, ANSWER, NULL);
    vow_future *f[3];
    for (int i = 0; i < 3; i++)
        f[i] = vow_batch_add(r.b, vow_int(i), SIZE_MAX);
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.calls, 1);
    CHECK_UINT_EQ(r.s.sizes[0], 3);
    drop_all(f, 3);
    rig_close(&r);
}

/* ---- calls at once, and the queue --------------------------------------- */

TEST(batch, so_many_calls_at_once_and_the_others_gather)
{
    struct rig r;
    rig_open(&r, HANG, VOW_BATCH(.most = 2, .concurrent = 2, .wait_ms = 10));
    vow_future *f[8];
    for (int i = 0; i < 5; i++)
        f[i] = ask(&r, i);
    world_advance_ms(&r.w, 100);
    CHECK_UINT_EQ(r.s.calls, 2);
    CHECK_UINT_EQ(vow_batch_stats_get(r.b).calls, 2);
    CHECK_UINT_EQ(vow_batch_stats_get(r.b).waiting, 1);
    f[5] = ask(&r, 5);
    world_advance_ms(&r.w, 100);
    CHECK_UINT_EQ(r.s.calls, 2);
    end_call(&r.s, 1, 9); /* in any order */
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 3); /* due long ago */
    CHECK_UINT_EQ(r.s.sizes[2], 2);
    f[6] = ask(&r, 6);
    end_call(&r.s, 0, 9);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 3); /* has its own time to wait */
    world_advance_ms(&r.w, 10);
    CHECK_UINT_EQ(r.s.calls, 4);
    end_call(&r.s, 2, 9);
    end_call(&r.s, 3, 9);
    world_run(&r.w);
    for (int i = 0; i < 7; i++)
        check_value(f[i], 9);
    rig_close(&r);
}

/* https://github.com/SGrondin/bottleneck/issues/151: bounded, and said so. */
TEST(batch, a_full_queue_refuses_and_what_is_in_a_call_is_not_in_it)
{
    struct rig r;
    rig_open(&r, HANG, VOW_BATCH(.most = 2, .queue_max = 3, .wait_ms = 5));
    vow_future *f[6];
    struct token t = {0};
    for (int i = 0; i < 3; i++)
        f[i] = ask(&r, i);
    check_code(vow_batch_add(r.b, token(&t), 0), VOW_EQUEUEFULL);
    CHECK_INT_EQ(t.drops, 1);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.sizes[0], 2);
    f[3] = ask(&r, 3);
    f[4] = ask(&r, 4);
    check_code(ask(&r, 5), VOW_EQUEUEFULL);
    CHECK(vow_cancel(f[3], NULL)); /* makes room */
    f[5] = ask(&r, 5);
    check_code(ask(&r, 6), VOW_EQUEUEFULL);
    r.s.mode = ANSWER;
    end_call(&r.s, 0, 1);
    world_run(&r.w);
    CHECK_INT_EQ(vow_as_int(vow_get(f[5])), 10);
    drop_all(f, 6);
    rig_close(&r);
}

TEST(batch, counts_what_waits_what_runs_and_what_was)
{
    struct rig r;
    rig_open(&r, HANG, VOW_BATCH(.most = 2));
    vow_future *f[3];
    for (int i = 0; i < 3; i++)
        f[i] = ask(&r, i);
    vow_batch_stats s = vow_batch_stats_get(r.b);
    CHECK_UINT_EQ(s.waiting, 3);
    CHECK_UINT_EQ(s.calls + s.made + s.items, 0);
    world_turn(&r.w);
    s = vow_batch_stats_get(r.b);
    CHECK_UINT_EQ(s.waiting, 1);
    CHECK_UINT_EQ(s.calls, 1);
    CHECK_UINT_EQ(s.made, 1);
    CHECK_UINT_EQ(s.items, 2);
    end_call(&r.s, 0, 1);
    world_turn(&r.w);
    end_call(&r.s, 1, 1);
    world_turn(&r.w);
    s = vow_batch_stats_get(r.b);
    CHECK_UINT_EQ(s.waiting + s.calls, 0);
    CHECK_UINT_EQ(s.made, 2);
    CHECK_UINT_EQ(s.items, 3);
    drop_all(f, 3);
    rig_close(&r);
}

/* ---- flush and close ---------------------------------------------------- */

TEST(batch, a_flush_makes_a_call_of_what_has_come_so_far)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.wait_ms = 100));
    vow_batch_flush(r.b); /* of nothing */
    vow_future *f[4] = {ask(&r, 1), ask(&r, 2), ask(&r, 3), NULL};
    CHECK(vow_cancel(f[1], NULL));
    vow_batch_flush(r.b);
    f[3] = ask(&r, 4); /* came later */
    CHECK_UINT_EQ(r.s.calls, 0);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 1);
    CHECK_UINT_EQ(r.s.sizes[0], 2);
    CHECK_INT_EQ(r.s.items[0][1], 3);
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.calls, 2);
    CHECK_UINT_EQ(r.s.at_ms[1], 100);
    drop_all(f, 4);
    rig_close(&r);
}

TEST(batch, a_flush_makes_as_many_calls_as_it_takes)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.most = 4, .bytes = 30, .wait_ms = 100));
    vow_future *f[5];
    for (int i = 0; i < 5; i++)
        f[i] = vow_batch_add(r.b, vow_int(i), i == 4 ? 1 : 5);
    CHECK_UINT_EQ(r.s.calls, 0);
    vow_batch_flush(r.b);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 2);
    CHECK_UINT_EQ(r.s.sizes[0], 4);
    CHECK_UINT_EQ(r.s.sizes[1], 1);
    CHECK_UINT_EQ(vow_loop_now_ns(r.w.loop), 0);
    drop_all(f, 5);
    rig_close(&r);
}

TEST(batch, a_flush_waits_for_its_turn_but_not_for_more)
{
    struct rig r;
    rig_open(&r, HANG, VOW_BATCH(.most = 2, .wait_ms = 100));
    vow_future *f[] = {ask(&r, 1), ask(&r, 2), ask(&r, 3), NULL};
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 1);
    vow_batch_flush(r.b);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 1); /* one at a time */
    end_call(&r.s, 0, 1);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 2);
    CHECK_UINT_EQ(r.s.sizes[1], 1);
    f[3] = ask(&r, 4);
    end_call(&r.s, 1, 1);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 2); /* not flushed */
    vow_batch_flush(r.b);
    vow_batch_flush(r.b);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.s.calls, 3);
    end_call(&r.s, 2, 1);
    world_run(&r.w);
    drop_all(f, 4);
    rig_close(&r);
}

/* https://github.com/sindresorhus/p-limit/issues/25: nobody hangs. */
TEST(batch, close_rejects_what_waits_and_what_will_come)
{
    struct rig r;
    rig_open(&r, HANG, VOW_BATCH(.most = 1));
    struct token t[2] = {{0}};
    vow_future *f = ask(&r, 1);
    vow_future *g = vow_batch_add(r.b, token(&t[0]), 0);
    world_turn(&r.w);
    vow_batch_close(r.b);
    CHECK_INT_EQ(code_of(g), VOW_ECLOSED);
    check_code(vow_batch_add(r.b, token(&t[1]), 0), VOW_ECLOSED);
    CHECK_INT_EQ(t[1].drops, 1);
    vow_batch_close(r.b);
    vow_batch_flush(r.b);
    CHECK_UINT_EQ(vow_batch_stats_get(r.b).waiting, 0);
    CHECK_UINT_EQ(vow_batch_stats_get(r.b).calls, 1);
    world_run(&r.w);
    CHECK_INT_EQ(t[0].drops, 1);
    end_call(&r.s, 0, 8); /* goes on */
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.calls, 1);
    check_value(f, 8);
    check_code(g, VOW_ECLOSED);
    rig_close(&r);
}

TEST(batch, items_that_wait_keep_it_alive)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.wait_ms = 10));
    vow_future *f = ask(&r, 4);
    r.b = vow_batch_unref(r.b);
    world_run(&r.w);
    check_value(f, 8);
    rig_close(&r);
}

TEST(batch, items_being_answered_keep_it_alive)
{
    struct rig r;
    rig_open(&r, HANG, NULL);
    vow_future *f = ask(&r, 4);
    world_turn(&r.w);
    r.b = vow_batch_unref(r.b);
    world_run(&r.w);
    end_call(&r.s, 0, 3);
    world_run(&r.w);
    check_value(f, 3);
    rig_close(&r);
}

TEST(batch, the_last_item_to_leave_takes_it_along)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.wait_ms = 10));
    vow_future *f = ask(&r, 4);
    r.b = vow_batch_unref(r.b);
    CHECK(vow_cancel(f, NULL));
    world_run(&r.w);
    CHECK_UINT_EQ(vow_loop_now_ns(r.w.loop), 0);
    check_code(f, VOW_ECANCELED);
    rig_close(&r);
}
