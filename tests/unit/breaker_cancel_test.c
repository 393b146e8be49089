/* SPDX-License-Identifier: MIT */
/* breaker_cancel_test.c - breaker: calls canceled in every state, the end of
 * the loop, no memory. */
#include "breaker_rig.h"
#include "fault.h"

#include "vow/combine.h"

/* ---- cancel ------------------------------------------------------------- */

TEST(breaker, canceled_before_it_started_it_never_starts)
{
    struct rig r;
    half_open(&r, 1);
    r.code = 1;
    uint32_t starts = r.starts;
    vow_future *f = vow_breaker_run(r.b, start, &r);
    CHECK(vow_cancel(f, NULL));
    world_turn(&r.w);
    CHECK_UINT_EQ(r.starts, starts);
    check_code(f, VOW_ECANCELED);
    CHECK_INT_EQ(outcome(&r, 0), 0); /* took no place */
    rig_close(&r);
}

static void cancel_kept(struct rig *r)
{
    CHECK(vow_cancel(r->kept, NULL));
}

TEST(breaker, canceled_by_start_itself_what_was_started_is_stopped)
{
    static const int codes[] = {1, 0, VOW_EIO, 2};
    for (int k = 0; k < 4; k++) {
        struct rig r;
        half_open(&r, 1);
        r.inside = cancel_kept;
        r.code = codes[k];
        r.kept = vow_breaker_run(r.b, start, &r);
        world_turn(&r.w);
        CHECK_INT_EQ(r.asked, k == 0);
        check_code(r.kept, VOW_ECANCELED);
        check_state(&r, VOW_BREAKER_HALF_OPEN);
        r.inside = NULL;
        CHECK_INT_EQ(outcome(&r, 0), 0);
        rig_close(&r);
    }
}

TEST(breaker, canceled_while_it_runs_asks_the_work_and_counts_as_neither)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.failures = 1));
    vow_future *f = hang(&r);
    CHECK(vow_cancel(f, NULL));
    CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED);
    world_turn(&r.w);
    CHECK_INT_EQ(r.asked, 1);
    check_state(&r, VOW_BREAKER_CLOSED);
    check_code(f, VOW_ECANCELED);
    rig_close(&r);
}

TEST(breaker, a_canceled_probe_makes_room_for_another)
{
    struct rig r;
    half_open(&r, 1);
    vow_future *f = hang(&r);
    check_code(vow_breaker_run(r.b, start, &r), VOW_EOPEN);
    CHECK(vow_cancel(f, NULL));
    world_turn(&r.w);
    CHECK_INT_EQ(r.asked, 1);
    check_state(&r, VOW_BREAKER_HALF_OPEN);
    check_code(f, VOW_ECANCELED);
    CHECK_INT_EQ(outcome(&r, 0), 0);
    check_state(&r, VOW_BREAKER_CLOSED);
    rig_close(&r);
}

TEST(breaker, a_canceled_probe_has_its_place_until_its_work_has_ended)
{
    static const int ends[] = {0, VOW_EIO};
    for (int k = 0; k < 2; k++) { /* its end is not looked at any more */
        struct rig r;
        half_open(&r, 1);
        r.stubborn = true;
        vow_future *f = hang(&r);
        CHECK(vow_cancel(f, NULL));
        world_turn(&r.w);
        CHECK_INT_EQ(r.asked, 1);
        check_code(vow_breaker_run(r.b, start, &r), VOW_EOPEN);
        if (ends[k] == 0)
            vow_resolve(r.hung[0], vow_nothing());
        else
            vow_reject_code(r.hung[0], ends[k], NULL);
        world_turn(&r.w);
        check_state(&r, VOW_BREAKER_HALF_OPEN);
        check_code(f, VOW_ECANCELED);
        CHECK_INT_EQ(outcome(&r, 0), 0);
        check_state(&r, VOW_BREAKER_CLOSED);
        rig_close(&r);
    }
}

TEST(breaker, canceled_when_the_work_has_ended_gives_its_place_back)
{
    struct rig r;
    half_open(&r, 1);
    vow_future *f = hang(&r);
    vow_resolve(r.hung[0], vow_nothing());
    CHECK(vow_cancel(f, NULL)); /* nothing of it has run yet */
    world_turn(&r.w);
    check_state(&r, VOW_BREAKER_HALF_OPEN);
    check_code(f, VOW_ECANCELED);
    CHECK_INT_EQ(outcome(&r, 0), 0);
    rig_close(&r);
}

TEST(breaker, a_probe_that_timed_out_makes_room)
{
    struct rig r;
    half_open(&r, 1);
    vow_future *f = hang(&r);
    vow_future *bound = vow_timeout(f, 30);
    vow_future_unref(f);
    world_run(&r.w);
    CHECK_INT_EQ(r.asked, 1);
    check_code(bound, VOW_ETIMEDOUT);
    CHECK_INT_EQ(outcome(&r, 0), 0);
    rig_close(&r);
}

TEST(breaker, a_probe_of_an_earlier_time_holds_its_place_until_it_has_ended)
{
    struct rig r;
    half_open(&r, 1);
    vow_future *f = hang(&r);
    vow_breaker_trip(r.b);
    world_advance_ms(&r.w, 100);
    check_code(vow_breaker_run(r.b, start, &r), VOW_EOPEN);
    CHECK_UINT_EQ(r.n_hung, 1);
    vow_resolve(r.hung[0], vow_nothing()); /* counts for nothing else */
    world_turn(&r.w);
    check_state(&r, VOW_BREAKER_HALF_OPEN);
    vow_future *g = hang(&r);
    CHECK_UINT_EQ(r.n_hung, 2);
    check_code(vow_breaker_run(r.b, start, &r), VOW_EOPEN);
    vow_resolve(r.hung[1], vow_nothing());
    world_turn(&r.w);
    check_state(&r, VOW_BREAKER_CLOSED);
    vow_future_unref(f);
    vow_future_unref(g);
    rig_close(&r);
}

/* ---- the end of the loop ------------------------------------------------ */

TEST(breaker, the_close_of_the_loop_settles_its_calls)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.failures = 1, .on_change = on_change));
    vow_future *f = hang(&r);
    vow_future *g = hang(&r);
    r.stubborn = true;
    CHECK(vow_cancel(g, NULL));
    CHECK_INT_EQ(vow_loop_close(r.w.loop), 0);
    check_code(f, VOW_ECLOSED);
    check_code(g, VOW_ECANCELED);
    check_state(&r, VOW_BREAKER_CLOSED); /* closed counts as neither */
    CHECK_UINT_EQ(r.n_told, 0);
    vow_future *late = vow_breaker_run(r.b, start, &r);
    CHECK_INT_EQ(vow_state_of(late), VOW_REJECTED);
    check_code(late, VOW_ECLOSED);
    vow_breaker_trip(r.b);
    check_state(&r, VOW_BREAKER_OPEN);
    check_code(vow_breaker_run(r.b, start, &r), VOW_EOPEN);
    vow_breaker_reset(r.b);
    for (uint32_t i = 0; i < r.n_hung; i++)
        vow_deferred_unref(r.hung[i]);
    vow_breaker_unref(r.b);
    r.w.loop = NULL;
    world_close_dirty(&r.w);
}

TEST(breaker, the_loop_may_close_while_it_is_open)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.failures = 1, .on_change = on_change));
    outcome(&r, VOW_EIO);
    vow_breaker *also = vow_breaker_ref(r.b);
    vow_future *f = vow_breaker_run(r.b, start, &r);
    check_code(f, VOW_EOPEN);
    vow_breaker_unref(r.b);
    CHECK_INT_EQ(vow_loop_close(r.w.loop), 0);
    r.w.loop = NULL;
    vow_breaker_unref(also);
    world_close_dirty(&r.w);
}

/* ---- no memory ---------------------------------------------------------- */

FAULT_SWEEP(breaker, survives_every_fault, FAULT_ALLOC)
{
    struct rig r = {.w.loop = w->loop};
    vow_breaker *b;
    int rc = vow_breaker_new(w->loop,
                             VOW_BREAKER(.failures = 2, .open_ms = 10,
                                         .on_change = on_change,
                                         .on_change_user = &r),
                             &b);
    CHECK(rc == 0 || fault_explains(w, rc));
    if (rc != 0)
        return;
    r.b = b;
    static const int codes[] = {0, VOW_EIO, 1, VOW_EIO, 2, VOW_EIO, 0};
    for (size_t i = 0; i < 7; i++) {
        r.code = codes[i];
        uint32_t starts = r.starts;
        vow_future *f = vow_breaker_run(b, start, &r);
        world_turn(w);
        if (codes[i] == 1 && vow_state_of(f) == VOW_PENDING)
            CHECK(vow_cancel(f, NULL));
        world_advance_ms(w, 10);
        int code = vow_error_code(vow_error_of(f));
        CHECK(vow_state_of(f) != VOW_PENDING);
        CHECK(code != VOW_ENOMEM || fault_fired(w));
        CHECK(r.starts - starts <= 1);
        CHECK(code == 0 ? r.starts > starts : true);
        vow_future_unref(f);
    }
    vow_breaker_trip(b);
    world_advance_ms(w, 10);
    CHECK(vow_breaker_state_of(b) == VOW_BREAKER_HALF_OPEN);
    r.code = 0; /* no fault has left a place taken */
    w->alloc.fail_at = 0;
    vow_future *f = vow_breaker_run(b, start, &r);
    world_run(w);
    CHECK(vow_breaker_state_of(b) == VOW_BREAKER_CLOSED);
    vow_future_unref(f);
    for (uint32_t i = 0; i < r.n_hung; i++)
        vow_deferred_unref(r.hung[i]);
    vow_breaker_unref(b);
}

/* Memory runs out in start(): what it began is not left alone. */
FAULT_SWEEP(breaker, a_probe_without_memory_gives_its_place_back, FAULT_ALLOC)
{
    struct rig r = {.w.loop = w->loop};
    if (vow_breaker_new(w->loop, VOW_BREAKER(.open_ms = 10), &r.b) != 0)
        return;
    vow_breaker_trip(r.b);
    world_advance_ms(w, 10);
    r.code = 1;
    vow_future *f = vow_breaker_run(r.b, start, &r);
    world_run(w);
    if (vow_state_of(f) == VOW_REJECTED)
        CHECK(fault_explains(w, vow_error_code(vow_error_of(f))));
    if (vow_state_of(f) == VOW_REJECTED && r.n_hung > 0)
        CHECK(!vow_deferred_pending(r.hung[0]));
    (void)vow_cancel(f, NULL);
    vow_future_unref(f);
    world_run(w);
    w->alloc.fail_at = 0;
    if (vow_breaker_state_of(r.b) == VOW_BREAKER_OPEN)
        world_advance_ms(w, 10); /* the work itself had no memory: it failed */
    r.code = 0;
    f = vow_breaker_run(r.b, start, &r);
    world_run(w);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 42);
    vow_future_unref(f);
    for (uint32_t i = 0; i < r.n_hung; i++)
        vow_deferred_unref(r.hung[i]);
    vow_breaker_unref(r.b);
}
