/* SPDX-License-Identifier: MIT */
/* hedge_findings_test.c - hedge: an answer at the last moment, a loop that
 * closes, other loops, and whose line an error names. */
#include "hedge_rig.h"

#include "vow/call.h"
#include "vow/combine.h"

#include <string.h>

/* ---- the last moment ---------------------------------------------------- */

static vow_future *in_100_ms(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    ++*(int *)arg;
    return vow_delay(loop, 100);
}

TEST(hedge, an_answer_of_the_same_instant_is_in_time)
{
    struct world w;
    world_open(&w);
    int starts = 0;
    vow_future *f =
        vow_hedge(w.loop, in_100_ms, &starts, VOW_HEDGE(.after_ms = 100));
    world_advance_ms(&w, 300);
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    CHECK_INT_EQ(starts, 1);
    vow_future_unref(f);
    world_close(&w);
}

static uint32_t starts_at_timer;

static vow_next note_starts(vow_value v, void *user)
{
    (void)v;
    starts_at_timer = ((struct rig *)user)->starts;
    return vow_ok(vow_nothing());
}

TEST(hedge, later_attempts_start_from_the_queue_not_from_the_timer)
{
    struct rig r;
    rig_open(&r, 1);
    starts_at_timer = 99; /* what it waits for is due before the hedge is */
    CHECK_INT_EQ(vow_done(vow_delay(r.loop, 10), note_starts, NULL, &r), 0);
    vow_future *f = vow_hedge(r.loop, start, &r, VOW_HEDGE(.after_ms = 10));
    world_turn(&r.w);
    world_advance_ms(&r.w, 10);
    CHECK_UINT_EQ(starts_at_timer, 1);
    CHECK_UINT_EQ(r.starts, 2);
    CHECK_UINT_EQ(r.at_ms[2], 10);
    vow_resolve(r.end[2], vow_int(2));
    world_run(&r.w);
    check_value(f, 2);
    rig_close(&r);
}

/* ---- a loop that closes ------------------------------------------------- */

static vow_next note_code(vow_error *e, void *user)
{
    *(int *)user = vow_error_code(e);
    return vow_ok(vow_nothing());
}

static vow_future *hang(vow_loop *loop, uint32_t attempt, void *arg)
{
    vow_deferred **ends = arg;
    return vow_promise(loop, &ends[attempt]);
}

/* The pool hands out what was freed last: with it the attempts may be closed
 * before the hedge, or behind it. */
static void close_while_it_runs(uint32_t flags, uint32_t most, int stirred)
{
    struct world w;
    vow_future *f[64];
    vow_deferred *ends[4] = {NULL};
    int code = 0;
    world_open_with(&w, VOW_LOOP_OPTS(.flags = flags));
    for (int i = 0; i < stirred; i++)
        f[i] = vow_resolved(w.loop, vow_nothing());
    for (int i = 0; i < stirred; i++)
        vow_future_unref(f[i]);
    vow_future *result =
        vow_hedge(w.loop, hang, ends, VOW_HEDGE(.most = most, .after_ms = 10));
    CHECK_INT_EQ(vow_done(result, NULL, note_code, &code), 0);
    world_advance_ms(&w, 100);
    CHECK(ends[most] != NULL);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    for (int i = 0; i < 4; i++)
        vow_deferred_unref(ends[i]);
    world_close_dirty(&w);
    CHECK_INT_EQ(code, VOW_ECLOSED);
}

TEST(hedge, closed_with_the_loop_it_is_closed_not_failed)
{
    for (uint32_t most = 1; most <= 3; most++) {
        close_while_it_runs(0, most, 0);
        close_while_it_runs(0, most, 64);
        close_while_it_runs(VOW_LOOP_UNPOOLED, most, 0);
    }
}

TEST(hedge, starts_nothing_on_a_loop_that_closes)
{
    struct world w;
    world_open(&w);
    int starts = 0, code = 0;
    vow_future *f = vow_hedge(w.loop, in_100_ms, &starts, NULL);
    CHECK_INT_EQ(vow_done(f, NULL, note_code, &code), 0);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    world_close_dirty(&w);
    CHECK_INT_EQ(starts, 0);
    CHECK_INT_EQ(code, VOW_ECLOSED);
}

/* ---- other loops, and lines --------------------------------------------- */

static vow_future *elsewhere(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)loop;
    (void)attempt;
    return vow_future_ref(arg);
}

TEST(hedge, an_attempt_of_another_loop_has_failed)
{
    struct world w, other;
    world_open(&w);
    world_open(&other);
    vow_deferred *end;
    vow_future *foreign = vow_promise(other.loop, &end);
    vow_future *f = vow_hedge(w.loop, elsewhere, foreign, VOW_HEDGE(.most = 2));
    world_turn(&w);
    CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED);
    vow_error *e = vow_error_of(f);
    CHECK_INT_EQ(vow_error_code(e), VOW_EALLFAILED);
    CHECK_UINT_EQ(vow_error_count(e), 2);
    for (size_t i = 0; i < 2; i++) {
        CHECK_INT_EQ(vow_error_code(vow_error_at(e, i)), VOW_EINVAL);
        CHECK(strstr(vow_error_site(vow_error_at(e, i)),
                     "hedge_findings_test.c") != NULL);
    }
    CHECK_INT_EQ(vow_state_of(foreign), VOW_PENDING);
    vow_future_unref(f);
    vow_resolve_drop(end, vow_nothing());
    vow_future_unref(foreign);
    world_close(&w);
    world_close(&other);
}

TEST(hedge, refused_it_names_the_line_that_asked)
{
    struct world w;
    world_open(&w);
    vow_future *f = vow_hedge(w.loop, NULL, NULL, NULL);
    CHECK(strstr(vow_error_site(vow_error_of(f)), "hedge_findings_test.c") !=
          NULL);
    check_code(f, VOW_EINVAL);
    world_close(&w);
}
