/* SPDX-License-Identifier: MIT */
/* drop_test.c - the calls that drop the caller's reference on the way:
 * vow_then_drop(), vow_catch_drop(), vow_done(), vow_resolve_drop(),
 * vow_reject_drop(). Each on its fast way and on the others: settled before,
 * without a slab, canceled, shared, late, closed. */
#include "fault.h"
#include "harness.h"
#include "world.h"

#include <vow.h>

static vow_next add(vow_value v, void *user)
{
    *(int64_t *)user += vow_as_int(v);
    return vow_ok(vow_int(vow_as_int(v) + 1));
}

static vow_next note_error(vow_error *e, void *user)
{
    *(int64_t *)user = vow_error_code(e);
    return vow_ok(vow_int(7));
}

TEST(drop, chain_without_names_runs_and_leaves_nothing)
{
    struct world w;
    int64_t sum = 0;
    vow_deferred *d;
    world_open(&w);
    vow_future *f = vow_promise(w.loop, &d);
    for (int i = 0; i < 1000; i++)
        f = vow_then_drop(f, add, NULL, &sum);
    CHECK(vow_resolve_drop(d, vow_int(1)));
    world_run(&w);
    CHECK_INT_EQ(sum, 1000 * 1001 / 2);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 1001);
    vow_future_unref(f);
    world_close(&w);
}

TEST(drop, then_on_a_settled_future_runs_from_the_queue)
{
    struct world w;
    int64_t sum = 0;
    world_open(&w);
    vow_future *f =
        vow_then_drop(vow_resolved(w.loop, vow_int(3)), add, NULL, &sum);
    CHECK_INT_EQ(sum, 0);
    world_run(&w);
    CHECK_INT_EQ(sum, 3);
    vow_future_unref(f);
    world_close(&w);
}

TEST(drop, done_is_the_end_of_a_chain)
{
    struct world w;
    int64_t sum = 0;
    int64_t code = 0;
    vow_deferred *d;
    world_open(&w);
    vow_future *f = vow_promise(w.loop, &d);
    CHECK_INT_EQ(vow_done(vow_future_ref(f), add, NULL, &sum), 0);
    CHECK_INT_EQ(vow_done(f, NULL, note_error, &code), 0);
    CHECK(vow_resolve_drop(d, vow_int(5)));
    CHECK_INT_EQ(sum, 0);
    world_run(&w);
    CHECK_INT_EQ(sum, 5);
    CHECK_INT_EQ(code, 0);
    world_close(&w);
}

TEST(drop, done_of_a_settled_future_runs_too)
{
    struct world w;
    int64_t code = 0;
    world_open(&w);
    vow_future *f = vow_rejected(w.loop, vow_error_new(w.loop, VOW_EIO, "cut"));
    CHECK_INT_EQ(vow_done(f, NULL, note_error, &code), 0);
    world_run(&w);
    CHECK_INT_EQ(code, VOW_EIO);
    world_close(&w);
}

TEST(drop, failure_behind_done_is_told_as_unhandled)
{
    struct world w;
    vow_deferred *d;
    int64_t sum = 0;
    world_open(&w);
    vow_future *f = vow_promise(w.loop, &d);
    CHECK_INT_EQ(vow_done(f, add, NULL, &sum), 0);
    CHECK(vow_reject_drop(d, vow_error_new(w.loop, VOW_EIO, "cut")));
    world_expect_unhandled(&w, 1);
    world_run(&w);
    CHECK_INT_EQ(sum, 0);
    world_close(&w);
}

TEST(drop, resolve_of_a_shared_deferred_drops_one_reference_only)
{
    struct world w;
    vow_deferred *d;
    world_open(&w);
    vow_future *f = vow_promise(w.loop, &d);
    vow_deferred_ref(d);
    CHECK(vow_resolve_drop(d, vow_int(1)));
    CHECK(!vow_resolve_drop(d, vow_int(2))); /* late, and the last */
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 1);
    vow_future_unref(f);
    world_close(&w);
}

TEST(drop, resolve_that_nobody_reads_frees_the_promise)
{
    struct world w;
    vow_deferred *d;
    world_open(&w);
    vow_future_unref(vow_promise(w.loop, &d));
    CHECK(vow_resolve_drop(d, vow_int(1)));
    world_close(&w);
}

static void never(vow_error *why, void *user)
{
    (void)why;
    (void)user;
}

TEST(drop, resolve_of_a_promise_that_was_asked_to_stop_settles_it)
{
    struct world w;
    vow_deferred *d;
    world_open(&w);
    vow_future *f = vow_promise(w.loop, &d);
    vow_on_cancel(d, never, NULL);
    CHECK(vow_cancel(f, NULL));
    CHECK(vow_resolve_drop(d, vow_int(4)));
    world_run(&w);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 4);
    vow_future_unref(f);
    world_close(&w);
}

TEST(drop, done_after_the_close_is_refused)
{
    struct world w;
    int64_t sum = 0;
    world_open(&w);
    vow_future *f = vow_resolved(w.loop, vow_int(1));
    vow_future *g = vow_future_ref(f);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    CHECK_INT_EQ(vow_done(f, add, NULL, &sum), VOW_ECLOSED);
    vow_future *h = vow_then_drop(g, add, NULL, &sum);
    CHECK_INT_EQ(vow_error_code(vow_error_of(h)), VOW_ECLOSED);
    vow_future_unref(h);
    CHECK_INT_EQ(sum, 0);
    world_close_dirty(&w);
}

FAULT_SWEEP(drop, calls_that_drop_survive_every_fault, FAULT_ALLOC)
{
    int64_t sum = 0;
    vow_deferred *d;
    vow_future *f = vow_promise(w->loop, &d);
    f = vow_then_drop(f, add, NULL, &sum);
    int rc = vow_done(f, add, NULL, &sum);
    CHECK(rc == 0 || fault_explains(w, rc));
    (void)vow_resolve_drop(d, vow_int(1));
    CHECK_INT_EQ(vow_loop_run(w->loop), 0);
    CHECK(sum == 3 || fault_fired(w));
}
