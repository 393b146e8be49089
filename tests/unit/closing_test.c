/* SPDX-License-Identifier: MIT */
/* closing_test.c - the end of a loop in core/loop.c and core/fiber.c: what is
 * started while it closes, fibers that do not end, handles of the user. */
#include "core/loop_internal.h"
#include "vow/combine.h"
#include "vow/fiber.h"
#include "vow/remote.h"
#include "vow/uv.h"
#include "vow/work.h"
#include "world.h"

static int code_of(vow_future *f)
{
    return vow_error_code(vow_error_of(f));
}

static vow_next never_run(void *arg)
{
    (void)arg;
    FAIL("a fiber was started by a loop that closes");
}

static vow_next never_work(vow_job *job, void *arg)
{
    (void)job;
    (void)arg;
    FAIL("a job was started by a loop that closes");
}

static void check_closed(vow_future *f)
{
    CHECK_INT_EQ(code_of(f), VOW_ECLOSED);
    vow_future_unref(f);
}

static vow_next start_everything(vow_error *e, void *user)
{
    vow_loop *loop = user;
    vow_remote *r;
    CHECK_INT_EQ(vow_error_code(e), VOW_ECLOSED);
    check_closed(vow_async(loop, never_run, NULL));
    check_closed(vow_work(loop, never_work, NULL));
    check_closed(vow_delay(loop, 0));
    check_closed(vow_promise_remote(loop, &r));
    CHECK_PTR_EQ(r, NULL);
    vow_future *f = vow_race(loop, NULL, 0);
    check_closed(vow_timeout(f, 1));
    vow_future_unref(f);
    CHECK_INT_EQ(vow_loop_post(loop, NULL, NULL), VOW_EINVAL);
    CHECK_INT_EQ(vow_loop_close(loop), VOW_EBUSY);
    return vow_ok(vow_int(1));
}

TEST(loop, starts_nothing_new_while_it_closes)
{
    struct world w;
    world_open(&w);
    vow_future *f = vow_race(w.loop, NULL, 0);
    vow_future *seen = vow_catch(f, start_everything, w.loop);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    CHECK_INT_EQ(vow_as_int(vow_get(seen)), 1);
    CHECK_INT_EQ(code_of(f), VOW_ECLOSED);
    vow_future_unref(f);
    vow_future_unref(seen);
    world_close_dirty(&w);
}

TEST(loop, closing_null_does_nothing)
{
    CHECK_INT_EQ(vow_loop_close(NULL), 0);
}

/* ---- fibers ------------------------------------------------------------- */

struct stubborn {
    vow_loop *loop;
    vow_future *awaited;
    int codes[4];
    uint64_t rounds;
};

static vow_next sleep_while_closing(void *arg)
{
    struct stubborn *s = arg;
    s->codes[0] = vow_sleep(s->loop, 1000);
    s->codes[1] = vow_sleep(s->loop, 1000);
    s->codes[2] = vow_yield(s->loop);
    s->codes[3] = vow_fiber_canceled(s->loop);
    return vow_ok(vow_nothing());
}

TEST(loop, fiber_cannot_sleep_through_the_close)
{
    struct world w;
    world_open(&w);
    struct stubborn s = {.loop = w.loop};
    vow_future *f = vow_async(w.loop, sleep_while_closing, &s);
    world_turn(&w);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    CHECK_INT_EQ(s.codes[0], VOW_ECLOSED);
    CHECK_INT_EQ(s.codes[1], VOW_ECLOSED);
    CHECK_INT_EQ(s.codes[2], VOW_ECLOSED);
    CHECK_INT_EQ(s.codes[3], 1);
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    vow_future_unref(f);
    world_close_dirty(&w);
}

static vow_next yield_for_ever(void *arg)
{
    struct stubborn *s = arg;
    for (; s->loop != NULL; s->rounds++)
        (void)vow_yield(s->loop);
    return vow_ok(vow_nothing());
}

/* Waits for something new each time, and keeps it where we can drop it. */
static vow_next await_for_ever(void *arg)
{
    struct stubborn *s = arg;
    for (; s->loop != NULL; s->rounds++) {
        vow_future_unref(s->awaited);
        s->awaited = vow_race(s->loop, NULL, 0);
        (void)vow_await(s->awaited);
    }
    return vow_ok(vow_nothing());
}

/* One handler a turn, because a turn that never ends has 10,000. */
static void check_abandoned(vow_fiber_fn fn)
{
    struct world w;
    world_open_with(&w, VOW_LOOP_OPTS(.turn_max = 1));
    struct stubborn s = {.loop = w.loop};
    vow_future *f = vow_async(w.loop, fn, &s);
    world_turn(&w);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    CHECK(s.rounds > 4000); /* so long it was granted */
    CHECK_INT_EQ(code_of(f), VOW_ECLOSED);
    vow_future_unref(s.awaited);
    vow_future_unref(f);
    world_close_dirty(&w);
}

TEST(loop, fiber_that_yields_for_ever_is_left_behind_by_the_close)
{
    check_abandoned(yield_for_ever);
}

TEST(loop, fiber_that_awaits_for_ever_is_left_behind_by_the_close)
{
    check_abandoned(await_for_ever);
}

static vow_next await_once(void *arg)
{
    struct stubborn *s = arg;
    s->rounds += vow_await(s->awaited) != 0;
    return vow_ok(vow_nothing());
}

/* With one handler a turn, the close asks a second time before the first was
 * heard. */
TEST(loop, close_asks_each_fiber_once_however_short_its_turns)
{
    enum { FIBERS = 20 };
    struct world w;
    vow_future *f[FIBERS];
    world_open_with(&w, VOW_LOOP_OPTS(.turn_max = 1));
    vow_future *awaited = vow_race(w.loop, NULL, 0);
    struct stubborn s = {.loop = w.loop, .awaited = awaited};
    for (int i = 0; i < FIBERS; i++)
        f[i] = vow_async(w.loop, await_once, &s);
    for (int i = 0; i < FIBERS; i++)
        world_turn(&w);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    CHECK_UINT_EQ(s.rounds, FIBERS);
    for (int i = 0; i < FIBERS; i++) {
        CHECK_INT_EQ(vow_state_of(f[i]), VOW_FULFILLED);
        vow_future_unref(f[i]);
    }
    vow_future_unref(awaited);
    world_close_dirty(&w);
}

/* ---- the user's handles ------------------------------------------------- */

static void on_user_closed(uv_handle_t *handle)
{
    *(bool *)handle->data = true;
}

static void on_user_timer(uv_timer_t *handle)
{
    uv_close((uv_handle_t *)handle, on_user_closed);
}

TEST(loop, close_waits_for_handles_that_the_user_put_on_its_loop)
{
    struct world w;
    uv_timer_t timer;
    bool closed = false;
    world_open(&w);
    CHECK_INT_EQ(uv_timer_init(vow_loop_uv(w.loop), &timer), 0);
    timer.data = &closed;
    CHECK_INT_EQ(uv_timer_start(&timer, on_user_timer, 2, 0), 0);
    world_close(&w);
    CHECK(closed);
}

/* ---- the thread pool's tick --------------------------------------------- */

static vow_next work_nothing(vow_job *job, void *arg)
{
    (void)job;
    (void)arg;
    return vow_ok(vow_nothing());
}

TEST(loop, tick_of_the_thread_pool_ends_when_no_job_waits)
{
    struct world w;
    world_open(&w);
    vow_future *f = vow_work(w.loop, work_nothing, NULL);
    uv_timer_t *tick = &w.loop->work_timer;
    CHECK(uv_is_active((uv_handle_t *)tick));
    CHECK(!uv_has_ref((uv_handle_t *)tick));
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), 0);
    tick->timer_cb(tick);
    CHECK(!uv_is_active((uv_handle_t *)tick));
    vow_future_unref(f);
    world_close(&w);
}
