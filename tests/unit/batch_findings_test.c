/* SPDX-License-Identifier: MIT */
/* batch_findings_test.c - batch: destructors that cancel, answers that follow,
 * sums beyond all numbers, timers, other loops, and whose line an error names.
 */
#include "batch_rig.h"

#include "vow/call.h"

#include <string.h>

/* ---- destructors -------------------------------------------------------- */

static vow_future *other_item;

static void cancel_other(struct rig *r)
{
    vow_future *f = other_item;
    (void)r;
    other_item = NULL;
    CHECK(vow_cancel(f, NULL));
    vow_future_unref(f);
}

TEST(batch, the_destructor_of_the_last_dead_item_may_cancel_another)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.wait_ms = 100));
    struct token t = {.rig = &r, .on_drop = cancel_other};
    vow_future *f = vow_batch_add(r.b, token(&t), 0);
    other_item = ask(&r, 2);
    r.b = vow_batch_unref(r.b); /* the items alone keep it */
    CHECK(vow_cancel(f, NULL));
    vow_future_unref(f);
    world_advance_ms(&r.w, 200);
    CHECK_INT_EQ(t.drops, 1);
    CHECK_UINT_EQ(r.s.calls, 0);
    rig_close(&r);
}

TEST(batch, a_destructor_may_cancel_another_and_the_batch_goes_on)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.wait_ms = 100));
    struct token t = {.rig = &r, .on_drop = cancel_other};
    vow_future *f = vow_batch_add(r.b, token(&t), 0);
    other_item = ask(&r, 2);
    CHECK(vow_cancel(f, NULL));
    vow_future_unref(f);
    world_advance_ms(&r.w, 1);
    f = ask(&r, 3);
    CHECK(vow_cancel(f, NULL)); /* the next burial is seen to as well */
    vow_future_unref(f);
    f = ask(&r, 4);
    world_run(&r.w);
    check_value(f, 8);
    rig_close(&r);
}

/* ---- answers that follow ------------------------------------------------ */

TEST(batch, an_answer_that_waits_for_the_call_survives_the_others)
{
    struct rig r;
    rig_open(&r, HANG, NULL);
    vow_future *a = ask(&r, 1), *b = ask(&r, 2);
    world_turn(&r.w);
    vow_future *work = vow_future_ref(vow_deferred_future(r.s.end[0]));
    CHECK(vow_batch_answer(r.s.call[0], 0,
                           vow_follow(vow_then_drop(work, NULL, NULL, NULL))));
    CHECK(vow_cancel(b, NULL));
    world_turn(&r.w);
    CHECK_INT_EQ(r.s.asked, 0);
    CHECK_INT_EQ(vow_state_of(a), VOW_PENDING);
    vow_resolve(r.s.end[0], vow_int(5));
    world_run(&r.w);
    check_value(a, 5);
    check_code(b, VOW_ECANCELED);
    rig_close(&r);
}

TEST(batch, an_answer_that_follows_what_is_settled_does_not_keep_the_call)
{
    struct rig r;
    rig_open(&r, HANG, NULL);
    vow_future *a = ask(&r, 1), *b = ask(&r, 2);
    world_turn(&r.w);
    vow_future *known = vow_resolved(r.w.loop, vow_int(5));
    CHECK(vow_batch_answer(r.s.call[0], 0, vow_follow(known)));
    CHECK(vow_cancel(b, NULL));
    world_run(&r.w);
    CHECK_INT_EQ(r.s.asked, 1);
    check_value(a, 5);
    check_code(b, VOW_ECANCELED);
    rig_close(&r);
}

/* ---- bytes -------------------------------------------------------------- */

TEST(batch, bytes_beyond_the_largest_number_fill_a_call)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.bytes = 100, .wait_ms = 1000));
    vow_future *a = vow_batch_add(r.b, vow_int(1), SIZE_MAX);
    vow_future *b = vow_batch_add(r.b, vow_int(2), 1);
    world_advance_ms(&r.w, 10);
    CHECK_UINT_EQ(r.s.calls, 1);
    check_value(a, 2);
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.at_ms[1], 1000); /* one byte is not full */
    check_value(b, 4);
    rig_close(&r);
}

TEST(batch, canceled_bytes_beyond_the_largest_number_are_given_back)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.bytes = SIZE_MAX, .wait_ms = 1000));
    vow_future *f[4];
    for (int i = 0; i < 4; i++)
        f[i] = vow_batch_add(r.b, vow_int(i), SIZE_MAX - 5);
    for (int i = 3; i > 0; i--)
        CHECK(vow_cancel(f[i], NULL));
    drop_all(f + 1, 3);
    f[1] = vow_batch_add(r.b, vow_int(1), 5);
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.calls, 1);
    CHECK_UINT_EQ(r.s.sizes[0], 2);
    check_value(f[0], 0);
    check_value(f[1], 2);
    rig_close(&r);
}

/* ---- the timer ---------------------------------------------------------- */

static size_t calls_at_timer;

static vow_next note_calls(vow_value v, void *user)
{
    (void)v;
    calls_at_timer = ((struct rig *)user)->s.calls;
    return vow_ok(vow_nothing());
}

TEST(batch, the_function_is_called_from_the_queue_not_from_the_timer)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.wait_ms = 10));
    calls_at_timer = 99; /* what it waits for is due before the batch is */
    CHECK_INT_EQ(vow_done(vow_delay(r.w.loop, 10), note_calls, NULL, &r), 0);
    vow_future *f = ask(&r, 1);
    world_advance_ms(&r.w, 10);
    CHECK_UINT_EQ(calls_at_timer, 0);
    CHECK_UINT_EQ(r.s.at_ms[0], 10);
    check_value(f, 2);
    rig_close(&r);
}

/* ---- other loops, and lines --------------------------------------------- */

static vow_future *elsewhere(vow_loop *loop, vow_batch_call *c, void *user)
{
    (void)loop;
    (void)c;
    return vow_future_ref(user);
}

TEST(batch, a_future_of_another_loop_is_refused)
{
    struct world w, other;
    world_open(&w);
    world_open(&other);
    vow_deferred *end;
    vow_batch *b;
    vow_future *foreign = vow_promise(other.loop, &end);
    CHECK_INT_EQ(vow_batch_new(w.loop, elsewhere, foreign, NULL, &b), 0);
    vow_future *f = vow_batch_add(b, vow_int(1), 0);
    world_turn(&w);
    check_code(f, VOW_EINVAL);
    CHECK_INT_EQ(vow_state_of(foreign), VOW_PENDING);
    vow_resolve_drop(end, vow_nothing());
    vow_future_unref(foreign);
    vow_batch_unref(b);
    world_close(&w);
    world_close(&other);
}

TEST(batch, its_errors_name_the_line_that_asked)
{
    static const enum mode modes[] = {NO_FUTURE, NOTHING};
    for (int i = 0; i < 2; i++) {
        struct rig r;
        rig_open(&r, modes[i], NULL);
        vow_future *f = vow_batch_add(r.b, vow_int(1), 0);
        world_turn(&r.w);
        const char *site = vow_error_site(vow_error_of(f));
        CHECK(strstr(site, "batch_findings_test.c") != NULL);
        vow_future_unref(f);
        rig_close(&r);
    }
}
