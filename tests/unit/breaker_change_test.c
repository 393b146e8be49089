/* SPDX-License-Identifier: MIT */
/* breaker_change_test.c - breaker: who is told of a change, changes by hand,
 * use from inside. */
#include "breaker_rig.h"

#include "vow/call.h"

/* ---- told --------------------------------------------------------------- */

static void check_told(const struct rig *r, const enum vow_breaker_state *want,
                       uint32_t n)
{
    CHECK_UINT_EQ(r->n_told, n);
    for (uint32_t i = 0; i < n; i++)
        CHECK_INT_EQ(r->told[i], want[i]);
}

TEST(breaker, tells_each_change_from_the_queue_when_it_happens)
{
    struct rig r;
    rig_open(
        &r, VOW_BREAKER(.failures = 1, .open_ms = 100, .on_change = on_change));
    vow_breaker_trip(r.b);
    CHECK_UINT_EQ(r.n_told, 0);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.n_told, 1);
    world_advance_ms(&r.w, 150); /* nobody asks, and it is told */
    outcome(&r, VOW_EIO);
    world_turn(&r.w);
    world_advance_ms(&r.w, 100);
    outcome(&r, 0);
    world_run(&r.w);
    static const enum vow_breaker_state want[] = {
        VOW_BREAKER_OPEN, VOW_BREAKER_HALF_OPEN, VOW_BREAKER_OPEN,
        VOW_BREAKER_HALF_OPEN, VOW_BREAKER_CLOSED};
    static const uint64_t when[] = {0, 100, 150, 250, 250};
    check_told(&r, want, 5);
    for (int i = 0; i < 5; i++)
        CHECK_UINT_EQ(r.told_ms[i], when[i]);
    rig_close(&r);
}

TEST(breaker, changes_of_one_turn_are_told_one_by_one)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.on_change = on_change));
    vow_breaker_trip(r.b);
    vow_breaker_trip(r.b); /* no change */
    vow_breaker_reset(r.b);
    vow_breaker_reset(r.b); /* no change */
    vow_breaker_trip(r.b);
    vow_breaker_reset(r.b);
    world_turn(&r.w);
    static const enum vow_breaker_state want[] = {
        VOW_BREAKER_OPEN, VOW_BREAKER_CLOSED, VOW_BREAKER_OPEN,
        VOW_BREAKER_CLOSED};
    check_told(&r, want, 4);
    rig_close(&r);
}

TEST(breaker, of_very_many_changes_the_last_is_told)
{
    for (int last = VOW_BREAKER_CLOSED; last <= VOW_BREAKER_OPEN; last++) {
        struct rig r;
        rig_open(&r, VOW_BREAKER(.on_change = on_change));
        for (int i = 0; i < 1000; i++) {
            vow_breaker_trip(r.b);
            vow_breaker_reset(r.b);
        }
        if (last == VOW_BREAKER_OPEN)
            vow_breaker_trip(r.b);
        world_turn(&r.w);
        CHECK(r.n_told >= 32);
        CHECK_INT_EQ(r.told[r.n_told - 1], last);
        rig_close(&r);
    }
}

static void trip_it(void *user)
{
    vow_breaker_trip(((struct rig *)user)->b);
}

TEST(breaker, tripped_the_moment_it_is_half_open_both_are_told)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.open_ms = 100, .on_change = on_change));
    vow_call first = {{0}}; /* before the timer of the breaker */
    vow_call_at(&first, r.w.loop, 100000000, trip_it, &r);
    vow_breaker_trip(r.b);
    world_advance_ms(&r.w, 199);
    static const enum vow_breaker_state want[] = {
        VOW_BREAKER_OPEN, VOW_BREAKER_HALF_OPEN, VOW_BREAKER_OPEN};
    check_told(&r, want, 3);
    rig_close(&r);
}

TEST(breaker, reset_it_leaves_no_timer)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.on_change = on_change));
    vow_breaker_trip(r.b);
    vow_breaker_reset(r.b);
    world_run(&r.w);
    CHECK_UINT_EQ(vow_loop_now_ns(r.w.loop), 0);
    rig_close(&r);
}

TEST(breaker, without_a_listener_it_does_not_keep_the_loop_running)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.failures = 1));
    outcome(&r, VOW_EIO);
    world_run(&r.w);
    CHECK_UINT_EQ(vow_loop_now_ns(r.w.loop), 0);
    rig_close(&r);
}

/* https://github.com/SGrondin/bottleneck/issues/192: no hidden timer. */
TEST(breaker, dropped_it_tells_what_has_happened_and_leaves_no_timer)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.on_change = on_change));
    vow_breaker_trip(r.b);
    r.b = vow_breaker_unref(r.b);
    world_advance_ms(&r.w, 0);
    CHECK_UINT_EQ(r.n_told, 1);
    world_advance_ms(&r.w, 100000);
    CHECK_UINT_EQ(r.n_told, 1);
    rig_close(&r);
}

static void flip(struct rig *r, enum vow_breaker_state state)
{
    if (r->n_told >= 20)
        return;
    if (state == VOW_BREAKER_OPEN)
        vow_breaker_reset(r->b);
    else
        vow_breaker_trip(r->b);
}

TEST(breaker, who_is_told_may_trip_and_reset_it)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.on_change = on_change));
    r.on_told = flip;
    vow_breaker_trip(r.b);
    world_turn(&r.w);
    CHECK_UINT_EQ(r.n_told, 20);
    for (uint32_t i = 0; i < 20; i++)
        CHECK_INT_EQ(r.told[i], i % 2 ? VOW_BREAKER_CLOSED : VOW_BREAKER_OPEN);
    rig_close(&r);
}

static void drop_it(struct rig *r, enum vow_breaker_state state)
{
    (void)state;
    r->b = vow_breaker_unref(r->b);
}

TEST(breaker, who_is_told_may_drop_the_last_reference)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.on_change = on_change));
    r.on_told = drop_it;
    vow_breaker_trip(r.b);
    vow_breaker_reset(r.b);
    world_run(&r.w);
    CHECK_UINT_EQ(r.n_told, 2); /* what has happened is told all the same */
    CHECK_PTR_EQ(r.b, NULL);
    rig_close(&r);
}

static void run_again(struct rig *r, enum vow_breaker_state state)
{
    if (state == VOW_BREAKER_HALF_OPEN) {
        r->code = 0;
        r->kept = vow_breaker_run(r->b, start, r);
    }
}

TEST(breaker, who_is_told_may_send_the_probe)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.open_ms = 50, .on_change = on_change));
    r.on_told = run_again;
    vow_breaker_trip(r.b);
    world_advance_ms(&r.w, 50);
    CHECK_INT_EQ(vow_as_int(vow_get(r.kept)), 42);
    check_state(&r, VOW_BREAKER_CLOSED);
    CHECK_UINT_EQ(r.n_told, 3);
    CHECK_UINT_EQ(vow_loop_now_ns(r.w.loop), 50000000);
    vow_future_unref(r.kept);
    rig_close(&r);
}

/* ---- by hand ------------------------------------------------------------ */

TEST(breaker, tripped_it_is_open_from_now_in_every_state)
{
    struct rig r;
    half_open(&r, 1);
    vow_breaker_trip(r.b);
    check_state(&r, VOW_BREAKER_OPEN);
    world_advance_ms(&r.w, 60);
    vow_breaker_trip(r.b); /* once more, from now */
    world_advance_ms(&r.w, 99);
    check_state(&r, VOW_BREAKER_OPEN);
    world_advance_ms(&r.w, 1);
    check_state(&r, VOW_BREAKER_HALF_OPEN);
    rig_close(&r);
}

TEST(breaker, open_beyond_the_end_of_time_it_stays_open)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.open_ms = UINT64_MAX));
    world_advance_ms(&r.w, 1000);
    vow_breaker_trip(r.b);
    world_advance_ms(&r.w, UINT64_C(1) << 40);
    check_state(&r, VOW_BREAKER_OPEN);
    check_code(vow_breaker_run(r.b, start, &r), VOW_EOPEN);
    rig_close(&r);
}

TEST(breaker, reset_it_is_closed_and_the_past_is_forgotten)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.failures = 2, .open_ms = 100));
    outcome(&r, VOW_EIO);
    vow_future *f = hang(&r);
    vow_breaker_reset(r.b);
    outcome(&r, VOW_EIO);
    vow_reject_code(r.hung[0], VOW_EIO, NULL); /* was of the past */
    world_turn(&r.w);
    check_state(&r, VOW_BREAKER_CLOSED);
    outcome(&r, VOW_EIO);
    check_state(&r, VOW_BREAKER_OPEN);
    vow_breaker_reset(r.b);
    check_state(&r, VOW_BREAKER_CLOSED);
    CHECK_INT_EQ(outcome(&r, 0), 0);
    check_code(f, VOW_EIO);
    rig_close(&r);
}

/* ---- from inside, and its life ------------------------------------------ */

static void run_inside(struct rig *r)
{
    if (r->starts > 1)
        return;
    r->kept = vow_breaker_run(r->b, start, r);
}

TEST(breaker, start_may_call_it_again)
{
    struct rig r;
    rig_open(&r, NULL);
    r.inside = run_inside;
    CHECK_INT_EQ(outcome(&r, 0), 0);
    CHECK_UINT_EQ(r.starts, 2);
    CHECK_INT_EQ(vow_as_int(vow_get(r.kept)), 42);
    vow_future_unref(r.kept);
    rig_close(&r);
}

static void run_beside_a_probe(struct rig *r)
{
    check_code(vow_breaker_run(r->b, start, r), VOW_EOPEN);
}

TEST(breaker, a_probe_has_its_place_while_start_runs)
{
    struct rig r;
    half_open(&r, 1);
    r.inside = run_beside_a_probe;
    CHECK_INT_EQ(outcome(&r, 0), 0);
    check_state(&r, VOW_BREAKER_CLOSED);
    rig_close(&r);
}

static void trip_and_drop(struct rig *r)
{
    vow_breaker_trip(r->b);
    r->b = vow_breaker_unref(r->b);
}

TEST(breaker, start_may_trip_it_and_drop_the_last_reference)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.on_change = on_change));
    r.inside = trip_and_drop;
    vow_future *f = vow_breaker_run(r.b, start, &r);
    world_run(&r.w);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 42);
    vow_future_unref(f);
    rig_close(&r);
}

TEST(breaker, calls_under_way_keep_it_alive)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.failures = 1, .on_change = on_change));
    vow_future *f = hang(&r);
    r.b = vow_breaker_unref(r.b);
    world_run(&r.w);
    vow_reject_code(r.hung[0], VOW_EIO, NULL);
    world_run(&r.w);
    check_code(f, VOW_EIO);
    rig_close(&r);
}

static vow_next run_until_it_opens(vow_error *e, void *user)
{
    struct rig *r = user;
    if (vow_error_code(e) == VOW_EOPEN)
        return vow_ok(vow_int((int64_t)r->starts));
    return vow_follow(
        vow_catch_drop(vow_breaker_run(r->b, start, r), run_until_it_opens, r));
}

TEST(breaker, calls_one_behind_the_other_take_bounded_memory)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.failures = 64, .counts = only_busy));
    r.code = VOW_EIO;
    vow_future *f =
        vow_catch_drop(vow_breaker_run(r.b, start, &r), run_until_it_opens, &r);
    while (r.starts < 100000)
        world_turn(&r.w);
    CHECK(r.w.alloc.peak_bytes < 1000000);
    vow_breaker_trip(r.b);
    world_run(&r.w);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), r.starts);
    vow_future_unref(f);
    rig_close(&r);
}
