/* SPDX-License-Identifier: MIT */
/* regression_test.c - what was wrong once, and how it showed.
 *
 * Each test failed before its cure. */
#include "harness.h"
#include "world.h"

#include <stdlib.h>
#include <vow.h>

/* An attempt whose start function outlasted the deadline was never timed out:
 * the time left wrapped round. */
static vow_future *slow(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    uint64_t end = vow_loop_now_ns(loop) + 5000000;
    while (vow_loop_now_ns(loop) < end) {
    }
    (void)arg;
    return vow_delay(loop, 300); /* long, but not for ever */
}

TEST(regression, retry_deadline_holds_when_start_is_slow)
{
    struct world w;
    world_open_real(&w);
    vow_future *f = vow_retry(w.loop, slow, NULL, VOW_RETRY(.deadline_ms = 2));
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), VOW_ETIMEDOUT);
    vow_future_unref(f);
    world_run(&w);
    world_close(&w);
}

/* vow_loop_advance() ran posts as if no turn were running: what is VOW_EBUSY in
 * a post run by vow_loop_run() recursed there. */
static int codes[2];
static void post(void *arg)
{
    codes[0] = vow_loop_run(arg);
    codes[1] = vow_loop_advance(arg, 1);
}

TEST(regression, post_in_run_is_told_busy)
{
    struct world w;
    world_open(&w);
    CHECK_INT_EQ(vow_loop_post(w.loop, post, w.loop), 0);
    world_run(&w);
    CHECK_INT_EQ(codes[0], VOW_EBUSY);
    CHECK_INT_EQ(codes[1], VOW_EBUSY);
    world_close(&w);
}

TEST(regression, post_in_advance_is_told_busy)
{
    struct world w;
    world_open(&w);
    CHECK_INT_EQ(vow_loop_post(w.loop, post, w.loop), 0);
    world_advance_ms(&w, 1);
    CHECK_INT_EQ(codes[0], VOW_EBUSY);
    CHECK_INT_EQ(codes[1], VOW_EBUSY);
    world_close(&w);
}

/* The same for what runs from a timer on the real clock: here the drop of a
 * step that a timeout cancels. */
static void drop_runs(void *loop)
{
    codes[0] = vow_loop_run(loop);
}

TEST(regression, drop_inside_a_timer_is_told_busy)
{
    struct world w;
    world_open_real(&w);
    vow_future *f = vow_race(w.loop, NULL, 0);
    vow_step step = {.user = w.loop, .drop = drop_runs};
    vow_future *link = vow_chain(f, &step, 1);
    vow_future *t = vow_timeout(link, 1);
    vow_future_unref(link);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, t), VOW_ETIMEDOUT);
    CHECK_INT_EQ(codes[0], VOW_EBUSY);
    vow_future_unref(t);
    vow_future_unref(f);
    world_close(&w);
}

/* With a small turn_max, closing gave up before all handlers had run. */
static int ran;
static vow_next on_fail(vow_error *e, void *user)
{
    (void)e;
    (void)user;
    ran++;
    return vow_ok(vow_nothing());
}

TEST(regression, close_runs_all_handlers_with_a_small_turn)
{
    enum { N = 30000 };
    struct world w;
    world_open_with(&w, VOW_LOOP_OPTS(.turn_max = 1));
    vow_future *f = vow_race(w.loop, NULL, 0);
    for (int i = 0; i < N; i++)
        vow_future_unref(vow_catch(f, on_fail, NULL));
    vow_future_unref(f);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    CHECK_INT_EQ(ran, N);
    world_close_dirty(&w);
}

/* vow_loop_release() without a hold took away a remote's reason to wait; when
 * the remote then settled, the loop ran for ever. */
TEST_OPTS(regression, release_without_hold_does_not_hang_the_loop,
          .timeout_s = 3)
{
    struct world w;
    vow_remote *r;
    world_open_real(&w);
    vow_future *f = vow_promise_remote(w.loop, &r);
    vow_loop_release(w.loop);
    CHECK(vow_resolve_any(r, vow_nothing()));
    vow_remote_unref(r);
    world_run(&w);
    vow_future_unref(f);
    world_close(&w);
}

/* The count of deferreds stopped at 65,535: such a promise was never broken,
 * and after so many failed vow_promise() calls the loop itself was leaked. */
enum { N = 70000 };
TEST(regression, promise_with_many_ends_is_broken_by_the_last)
{
    struct world w;
    vow_deferred *d;
    world_open(&w);
    vow_future *f = vow_promise(w.loop, &d);
    for (int i = 0; i < N; i++)
        vow_deferred_ref(d);
    for (int i = 0; i < N + 1; i++)
        vow_deferred_unref(d);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_EBROKEN);
    vow_future_unref(f);
    world_close(&w);
}

TEST(regression, many_promises_without_memory_leak_no_loop)
{
    struct world w;
    vow_deferred **d = malloc(N * sizeof(*d));
    world_open_with(&w, VOW_LOOP_OPTS(.flags = VOW_LOOP_UNPOOLED));
    w.alloc.fail_at = w.alloc.allocs + 1;
    w.alloc.fail_forever = true;
    for (int i = 0; i < N; i++)
        vow_future_unref(vow_promise(w.loop, &d[i]));
    for (int i = 0; i < N; i++)
        vow_deferred_unref(d[i]);
    free(d);
    w.alloc.fail_at = 0;
    world_close(&w);
}
