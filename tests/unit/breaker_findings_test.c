/* SPDX-License-Identifier: MIT */
/* breaker_findings_test.c - breaker: telling after the last handle, a loop that
 * ends or closes, other loops, and whose line an error names. */
#include "breaker_rig.h"

#include "vow/combine.h"

#include <string.h>

/* ---- telling ------------------------------------------------------------ */

TEST(breaker, a_change_is_told_though_the_last_handle_is_gone)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.failures = 1, .on_change = on_change));
    r.code = VOW_EIO;
    vow_future *f = vow_breaker_run(r.b, start, &r);
    r.b = vow_breaker_unref(r.b); /* the call alone keeps it */
    world_advance_ms(&r.w, 1);
    check_code(f, VOW_EIO);
    CHECK_UINT_EQ(r.n_told, 1);
    CHECK_INT_EQ(r.told[0], VOW_BREAKER_OPEN);
    rig_close(&r);
}

TEST(breaker, changes_are_told_when_the_loop_closes_right_after)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.on_change = on_change));
    vow_breaker_trip(r.b);
    vow_breaker_reset(r.b);
    r.b = vow_breaker_unref(r.b);
    CHECK_INT_EQ(vow_loop_close(r.w.loop), 0);
    CHECK_UINT_EQ(r.n_told, 2);
    r.w.loop = NULL;
    world_close_dirty(&r.w);
}

TEST(breaker, changed_after_its_loop_was_closed_it_tells_nobody)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.on_change = on_change));
    CHECK_INT_EQ(vow_loop_close(r.w.loop), 0);
    r.w.loop = NULL;
    vow_breaker_trip(r.b);
    check_state(&r, VOW_BREAKER_OPEN);
    vow_breaker_reset(r.b);
    check_state(&r, VOW_BREAKER_CLOSED);
    vow_breaker_unref(r.b);
    world_close_dirty(&r.w);
    CHECK_UINT_EQ(r.n_told, 0);
}

TEST(breaker, open_it_does_not_keep_the_loop_running)
{
    struct rig r;
    rig_open(&r, VOW_BREAKER(.open_ms = 3600000, .on_change = on_change));
    vow_breaker_trip(r.b);
    world_run(&r.w);
    CHECK_UINT_EQ(vow_loop_now_ns(r.w.loop), 0);
    CHECK_UINT_EQ(r.n_told, 1);
    world_advance_ms(&r.w, 3600000); /* and others may */
    CHECK_UINT_EQ(r.n_told, 2);
    CHECK_INT_EQ(r.told[1], VOW_BREAKER_HALF_OPEN);
    rig_close(&r);
}

/* ---- a loop that closes ------------------------------------------------- */

static vow_next note_code(vow_error *e, void *user)
{
    *(int *)user = vow_error_code(e);
    return vow_ok(vow_nothing());
}

TEST(breaker, starts_nothing_on_a_loop_that_closes)
{
    struct rig r;
    int code = 0;
    rig_open(&r, NULL);
    vow_future *f = vow_breaker_run(r.b, start, &r);
    CHECK_INT_EQ(vow_done(f, NULL, note_code, &code), 0);
    CHECK_INT_EQ(vow_loop_close(r.w.loop), 0);
    r.w.loop = NULL;
    vow_breaker_unref(r.b);
    world_close_dirty(&r.w);
    CHECK_UINT_EQ(r.starts, 0);
    CHECK_INT_EQ(code, VOW_ECLOSED);
}

/* ---- what does not count, and probes ------------------------------------ */

TEST(breaker, an_error_that_does_not_count_is_a_success)
{
    struct rig r;
    rig_open(&r,
             VOW_BREAKER(.failures = 2, .open_ms = 100, .counts = only_busy));
    CHECK_INT_EQ(outcome(&r, VOW_EBUSY), VOW_EBUSY);
    CHECK_INT_EQ(outcome(&r, VOW_EIO), VOW_EIO);
    CHECK_INT_EQ(outcome(&r, VOW_EBUSY), VOW_EBUSY);
    check_state(&r, VOW_BREAKER_CLOSED); /* not two in a row */
    vow_breaker_trip(r.b);
    world_advance_ms(&r.w, 100);
    CHECK_INT_EQ(outcome(&r, VOW_EIO), VOW_EIO);
    check_state(&r, VOW_BREAKER_CLOSED);
    rig_close(&r);
}

TEST(breaker, with_all_probes_out_it_rejects_and_cannot_say_until_when)
{
    struct rig r;
    half_open(&r, 1);
    vow_future *probe = hang(&r);
    vow_future *f = vow_breaker_run(r.b, start, &r);
    CHECK_UINT_EQ(vow_error_retry_after_ms(vow_error_of(f)), 0);
    check_code(f, VOW_EOPEN);
    vow_resolve(r.hung[0], vow_int(42));
    world_run(&r.w);
    check_state(&r, VOW_BREAKER_CLOSED);
    vow_future_unref(probe);
    rig_close(&r);
}

/* ---- other loops, and lines --------------------------------------------- */

static vow_future *elsewhere(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)loop;
    (void)attempt;
    return vow_future_ref(arg);
}

static bool is_here(vow_future *f)
{
    const char *site = vow_error_site(vow_error_of(f));
    return strstr(site, "breaker_findings_test.c") != NULL;
}

TEST(breaker, work_of_another_loop_is_refused)
{
    struct rig r;
    struct world other;
    rig_open(&r, VOW_BREAKER(.failures = 1));
    world_open(&other);
    vow_deferred *end;
    vow_future *foreign = vow_promise(other.loop, &end);
    vow_future *f = vow_breaker_run(r.b, elsewhere, foreign);
    world_turn(&r.w);
    CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED);
    CHECK(is_here(f));
    check_code(f, VOW_EINVAL);
    check_state(&r, VOW_BREAKER_OPEN); /* it counts as a failure */
    CHECK_INT_EQ(vow_state_of(foreign), VOW_PENDING);
    vow_resolve_drop(end, vow_nothing());
    vow_future_unref(foreign);
    world_close(&other);
    rig_close(&r);
}

TEST(breaker, refused_it_names_the_line_that_asked)
{
    struct rig r;
    rig_open(&r, NULL);
    vow_future *f = vow_breaker_run(r.b, NULL, NULL);
    CHECK(is_here(f));
    check_code(f, VOW_EINVAL);
    rig_close(&r);
}

TEST(retry, refused_it_names_the_line_that_asked)
{
    struct world w;
    world_open(&w);
    vow_future *f = vow_retry(w.loop, NULL, NULL, NULL);
    CHECK(is_here(f));
    check_code(f, VOW_EINVAL);
    world_close(&w);
}
