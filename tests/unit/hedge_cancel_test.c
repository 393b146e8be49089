/* SPDX-License-Identifier: MIT */
/* hedge_cancel_test.c - hedge: canceled in every state, used from inside, the
 * end of the loop, no memory. */
#include "fault.h"
#include "hedge_rig.h"

#include "vow/combine.h"

/* ---- cancel ------------------------------------------------------------- */

TEST(hedge, canceled_it_cancels_all_that_run)
{
    for (uint32_t running = 0; running <= 2; running++) {
        struct rig r;
        rig_open(&r, 1);
        vow_future *f = vow_hedge(r.loop, start, &r, VOW_HEDGE(.most = 3));
        if (running > 0)
            world_advance_ms(&r.w, running == 1 ? 50 : 150);
        CHECK_UINT_EQ(r.starts, running);
        vow_error *why = vow_error_new(r.loop, VOW_EIO, "gone home");
        CHECK(vow_cancel(f, why));
        CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED); /* at once */
        CHECK_PTR_EQ(vow_error_root(vow_error_of(f)), why);
        for (uint32_t i = 1; i <= 2; i++)
            CHECK_INT_EQ(r.asked[i], 0); /* from the queue */
        uint64_t now = vow_loop_now_ns(r.loop);
        world_run(&r.w);
        for (uint32_t i = 1; i <= 2; i++)
            CHECK_INT_EQ(r.asked[i], i <= running);
        CHECK(running == 0 || r.asked_root == why);
        CHECK_UINT_EQ(r.starts, running);
        CHECK_UINT_EQ(vow_loop_now_ns(r.loop), now); /* no timer is left */
        vow_error_unref(why);
        check_code(f, VOW_ECANCELED);
        rig_close(&r);
    }
}

TEST(hedge, canceled_when_one_has_failed_cancels_the_other)
{
    struct rig r;
    rig_open(&r, 2);
    r.plan[1] = VOW_EIO;
    vow_future *f = vow_hedge(r.loop, start, &r, VOW_HEDGE(.most = 3));
    world_advance_ms(&r.w, 1);
    CHECK_UINT_EQ(r.starts, 2);
    CHECK(vow_cancel(f, NULL));
    world_run(&r.w);
    CHECK_INT_EQ(r.asked[2], 1);
    CHECK_UINT_EQ(r.starts, 2);
    check_code(f, VOW_ECANCELED);
    rig_close(&r);
}

TEST(hedge, canceled_when_the_next_is_about_to_start_starts_no_more)
{
    struct rig r;
    rig_open(&r, 1);
    vow_future *f = vow_hedge(r.loop, start, &r, NULL);
    world_turn(&r.w);
    vow_reject_code(r.end[1], VOW_EIO, NULL);
    CHECK(vow_cancel(f, NULL));
    world_run(&r.w);
    CHECK_UINT_EQ(r.starts, 1);
    check_code(f, VOW_ECANCELED);
    rig_close(&r);
}

TEST(hedge, canceled_when_a_value_is_on_its_way_stays_canceled)
{
    struct rig r;
    rig_open(&r, 1);
    int drops = 0;
    vow_future *f = vow_hedge(r.loop, start, &r, NULL);
    world_turn(&r.w);
    vow_resolve(r.end[1], vow_own(&drops, count_drop));
    r.end[1] = vow_deferred_unref(r.end[1]);
    CHECK(vow_cancel(f, NULL));
    world_run(&r.w);
    CHECK_INT_EQ(drops, 1);
    check_code(f, VOW_ECANCELED);
    rig_close(&r);
}

/* Canceled through another: its hook comes from the queue. */
TEST(hedge, about_to_be_canceled_it_starts_no_more)
{
    struct rig r;
    rig_open(&r, 1);
    vow_future *f = vow_hedge(r.loop, start, &r, NULL);
    vow_future *bound = vow_timeout(f, 1000);
    vow_future_unref(f);
    CHECK(vow_cancel(bound, NULL)); /* the first attempt is before the hook */
    world_run(&r.w);
    CHECK_UINT_EQ(r.starts, 0);
    check_code(bound, VOW_ECANCELED);
    rig_close(&r);
}

TEST(hedge, bounded_by_a_timeout_it_cancels_all)
{
    struct rig r;
    rig_open(&r, 1);
    vow_future *f = vow_hedge(r.loop, start, &r, NULL);
    vow_future *bound = vow_timeout(f, 150);
    vow_future_unref(f);
    world_run(&r.w);
    CHECK_INT_EQ(r.asked[1] + r.asked[2], 2);
    check_code(bound, VOW_ETIMEDOUT);
    rig_close(&r);
}

/* ---- from inside -------------------------------------------------------- */

static void cancel_result(struct rig *r)
{
    CHECK(vow_cancel(r->result, NULL));
}

TEST(hedge, start_may_cancel_the_result)
{
    static const int plans[] = {HANG, 0, VOW_EIO, NO_FUTURE};
    for (int k = 0; k < 4; k++) {
        struct rig r;
        rig_open(&r, 2);
        r.plan[1] = plans[k];
        r.inside = cancel_result;
        r.result = vow_hedge(r.loop, start, &r, NULL);
        world_run(&r.w);
        CHECK_UINT_EQ(r.starts, 1);
        CHECK_INT_EQ(r.asked[1], k == 0); /* what it began is stopped */
        check_code(r.result, VOW_ECANCELED);
        rig_close(&r);
    }
}

static struct rig *inner_rig;
static vow_future *inner;

static void hedge_inside(struct rig *r)
{
    if (r->starts == 1)
        inner = vow_hedge(r->loop, start, inner_rig, NULL);
}

TEST(hedge, start_may_hedge_and_settle_others)
{
    struct rig r;
    static struct rig in;
    rig_open(&r, 1);
    in = (struct rig){.loop = r.loop, .w.loop = r.loop};
    inner_rig = &in;
    r.inside = hedge_inside;
    vow_future *f = vow_hedge(r.loop, start, &r, NULL);
    world_advance_ms(&r.w, 1);
    check_value(inner, 1);
    vow_resolve(r.end[1], vow_int(8));
    world_run(&r.w);
    check_value(f, 8);
    rig_close(&r);
}

static void settle_first(struct rig *r)
{
    if (r->starts == 2)
        vow_resolve(r->end[1], vow_int(1));
}

TEST(hedge, the_first_may_be_settled_while_the_second_starts)
{
    struct rig r;
    rig_open(&r, 1);
    r.inside = settle_first;
    vow_future *f = vow_hedge(r.loop, start, &r, NULL);
    world_run(&r.w);
    CHECK_UINT_EQ(r.starts, 2);
    CHECK_INT_EQ(r.asked[2], 1);
    check_value(f, 1);
    rig_close(&r);
}

/* ---- the end of the loop, and no memory --------------------------------- */

TEST(hedge, the_close_of_the_loop_ends_it_in_every_state)
{
    for (uint32_t running = 0; running <= 2; running++) {
        struct rig r;
        rig_open(&r, 1);
        vow_future *f = vow_hedge(r.loop, start, &r, VOW_HEDGE(.most = 5));
        vow_future *lost = vow_hedge(r.loop, start, &r, VOW_HEDGE(.most = 1));
        CHECK(vow_cancel(lost, NULL));
        if (running > 0)
            world_advance_ms(&r.w, running == 1 ? 50 : 150);
        CHECK_UINT_EQ(r.starts, running);
        CHECK_INT_EQ(vow_loop_close(r.w.loop), 0);
        r.w.loop = NULL;
        CHECK(r.starts <= running + 2); /* not on and on */
        check_code(f, VOW_ECLOSED);
        check_code(lost, VOW_ECANCELED);
        drop_ends(&r);
        world_close_dirty(&r.w);
    }
}

static vow_next hedge_while_closing(vow_error *e, void *user)
{
    struct rig *r = user;
    CHECK_INT_EQ(vow_error_code(e), VOW_ECLOSED);
    check_code(vow_hedge(r->loop, start, r, NULL), VOW_ECLOSED);
    return vow_ok(vow_nothing());
}

TEST(hedge, starts_nothing_on_a_loop_that_closes)
{
    struct rig r;
    rig_open(&r, 1);
    CHECK_INT_EQ(
        vow_done(vow_race(r.loop, NULL, 0), NULL, hedge_while_closing, &r), 0);
    CHECK_INT_EQ(vow_loop_close(r.w.loop), 0);
    r.w.loop = NULL;
    CHECK_UINT_EQ(r.starts, 0);
    world_close_dirty(&r.w);
}

TEST(hedge, without_memory_for_another_attempt_those_that_run_decide)
{
    for (int fails = 0; fails < 2; fails++) {
        struct rig r;
        rig_open(&r, 1);
        vow_future *f = vow_hedge(r.loop, start, &r, VOW_HEDGE(.most = 3));
        world_advance_ms(&r.w, 50);
        r.w.alloc.fail_at = r.w.alloc.allocs + 1;
        world_advance_ms(&r.w, 1000);
        CHECK_UINT_EQ(r.w.alloc.fails, 1);
        CHECK_UINT_EQ(r.starts, 1);
        CHECK_INT_EQ(vow_state_of(f), VOW_PENDING);
        if (fails)
            vow_reject_code(r.end[1], VOW_EIO, NULL);
        else
            vow_resolve(r.end[1], vow_int(1));
        world_run(&r.w);
        CHECK_UINT_EQ(r.starts, 1);
        if (fails)
            check_code(f, VOW_ENOMEM);
        else
            check_value(f, 1);
        rig_close(&r);
    }
}

FAULT_SWEEP(hedge, survives_every_fault, FAULT_ALLOC)
{
    static const int plans[][3] = {
        {HANG, 0, 0}, {VOW_EIO, VOW_EIO, VOW_EIO}, {VOW_EIO, HANG, HANG}};
    for (int k = 0; k < 3; k++) {
        struct rig r = {.loop = w->loop, .w.loop = w->loop};
        for (int i = 0; i < 3; i++)
            r.plan[i + 1] = plans[k][i];
        vow_future *f = vow_hedge(w->loop, start, &r, VOW_HEDGE(.most = 3));
        world_run(w);
        if (k == 2)
            (void)vow_cancel(f, NULL);
        else if (vow_state_of(f) == VOW_PENDING) /* the others were not begun */
            vow_resolve(r.end[1], vow_int(1));
        world_run(w);
        int code = vow_error_code(vow_error_of(f));
        CHECK(vow_state_of(f) != VOW_PENDING);
        CHECK(k != 0 || code == 0 || fault_fired(w));
        CHECK(k != 1 || code == VOW_EALLFAILED || fault_explains(w, code));
        CHECK(k != 2 || code == VOW_ECANCELED || fault_fired(w));
        if (code == VOW_EALLFAILED)
            CHECK_UINT_EQ(vow_error_count(vow_error_of(f)), 3);
        vow_future_unref(f);
        for (int i = 1; i <= 3; i++)
            CHECK(!vow_deferred_pending(r.end[i])); /* no work is left alone */
        drop_ends(&r);
    }
}
