/* SPDX-License-Identifier: MIT */
/* uv_test.c - what vow/uv.h promises: vow on a libuv loop that the caller
 * runs. Whoever settles, from whichever kind of libuv callback, the handlers
 * run in that same uv_run(); uv_run() returns when nothing is left; after the
 * close nothing of ours stays behind.
 */
#include "harness.h"
#include "world.h"

#include "vow/uv.h"

#include <pthread.h>
#include <string.h>

/* A vow loop on a libuv loop of the test's. */
struct ground {
    struct test_alloc alloc;
    uv_loop_t uv;
    vow_loop *loop;
    vow_future *f; /* a promise that some callback settles */
    vow_deferred *d;
    int handled;
};

static vow_next count_ok(vow_value value, void *user)
{
    int *count = user;
    (void)value;
    ++*count;
    return vow_ok(vow_nothing());
}

static vow_loop *loop_on(uv_loop_t *uv, struct test_alloc *ta)
{
    vow_loop *loop = NULL;
    CHECK_INT_EQ(
        vow_loop_new_uv(uv, VOW_LOOP_OPTS(.alloc = test_alloc_hook(ta)), &loop),
        0);
    return loop;
}

static void ground_open(struct ground *g)
{
    memset(g, 0, sizeof(*g));
    test_alloc_init(&g->alloc);
    CHECK_INT_EQ(uv_loop_init(&g->uv), 0);
}

/* The vow loop, and a handler that waits to be counted. */
static void ground_build(struct ground *g)
{
    g->loop = loop_on(&g->uv, &g->alloc);
    g->f = vow_promise(g->loop, &g->d);
    vow_future_unref(vow_then(g->f, count_ok, NULL, &g->handled));
}

/* Nothing may be left: no active handle, no closing one, no block. */
static void ground_close(struct ground *g)
{
    vow_deferred_unref(g->d);
    vow_future_unref(g->f);
    CHECK_INT_EQ(vow_loop_close(g->loop), 0);
    CHECK_INT_EQ(uv_run(&g->uv, UV_RUN_DEFAULT), 0);
    CHECK_INT_EQ(uv_loop_close(&g->uv), 0);
    test_alloc_fini(TEST_HERE, &g->alloc);
}

/* Settles the promise. Callbacks of all kinds come here. */
static void settle(struct ground *g)
{
    CHECK(vow_resolve(g->d, vow_int(1)));
    CHECK_INT_EQ(g->handled, 0); /* never inside the call */
}

static void run_and_close(struct ground *g)
{
    CHECK_INT_EQ(uv_run(&g->uv, UV_RUN_DEFAULT), 0);
    CHECK_INT_EQ(g->handled, 1);
    ground_close(g);
}

/* ---- alive only with a reason ------------------------------------------- */

TEST(uv, loop_with_nothing_to_do_does_not_keep_uv_run)
{
    struct ground g;
    ground_open(&g);
    ground_build(&g);
    CHECK_PTR_EQ(vow_loop_uv(g.loop), &g.uv);
    CHECK_INT_EQ(uv_loop_alive(&g.uv), 0);
    CHECK_INT_EQ(uv_run(&g.uv, UV_RUN_DEFAULT), 0); /* a pending promise */
    CHECK_INT_EQ(g.handled, 0);
    settle(&g);
    CHECK(uv_loop_alive(&g.uv) != 0); /* a ready handler */
    run_and_close(&g);
}

TEST(uv, what_was_settled_before_uv_run_is_handled_in_it)
{
    struct ground g;
    ground_open(&g);
    ground_build(&g);
    settle(&g);
    run_and_close(&g);
}

TEST(uv, what_was_settled_between_two_runs_is_handled_in_the_second)
{
    struct ground g;
    ground_open(&g);
    ground_build(&g);
    CHECK_INT_EQ(uv_run(&g.uv, UV_RUN_DEFAULT), 0);
    settle(&g);
    run_and_close(&g);
}

TEST(uv, run_without_waiting_gets_there_in_the_end)
{
    struct ground g;
    ground_open(&g);
    ground_build(&g);
    vow_future *delay = vow_delay(g.loop, 2);
    vow_future *after = vow_then(delay, count_ok, NULL, &g.handled);
    while (uv_run(&g.uv, UV_RUN_NOWAIT) != 0)
        continue;
    CHECK_INT_EQ(g.handled, 1);
    CHECK_INT_EQ(vow_state_of(after), VOW_FULFILLED);
    vow_future_unref(after);
    vow_future_unref(delay);
    CHECK(vow_resolve(g.d, vow_nothing()));
    g.handled = 0;
    run_and_close(&g);
}

TEST(uv, run_once_runs_what_is_ready)
{
    struct ground g;
    ground_open(&g);
    ground_build(&g);
    settle(&g);
    uv_run(&g.uv, UV_RUN_ONCE);
    CHECK_INT_EQ(g.handled, 1);
    ground_close(&g);
}

/* ---- settled from each kind of callback --------------------------------- */

static void on_timer(uv_timer_t *timer)
{
    settle(timer->data);
    uv_close((uv_handle_t *)timer, NULL);
}

TEST(uv, settled_in_a_timer_callback_is_handled_in_the_same_run)
{
    struct ground g;
    uv_timer_t timer;
    ground_open(&g);
    ground_build(&g);
    CHECK_INT_EQ(uv_timer_init(&g.uv, &timer), 0);
    timer.data = &g;
    CHECK_INT_EQ(uv_timer_start(&timer, on_timer, 1, 0), 0);
    run_and_close(&g);
}

/* The timer stays active: uv_run() must not sleep until its next time, an hour
 * from now, with a handler waiting. */
static void on_endless_timer(uv_timer_t *timer)
{
    settle(timer->data);
}

static vow_next close_handle(vow_value value, void *user)
{
    (void)value;
    uv_close(user, NULL);
    return vow_ok(vow_nothing());
}

TEST(uv, handlers_do_not_wait_for_the_next_event)
{
    struct ground g;
    uv_timer_t timer;
    ground_open(&g);
    ground_build(&g);
    CHECK_INT_EQ(uv_timer_init(&g.uv, &timer), 0);
    timer.data = &g;
    CHECK_INT_EQ(uv_timer_start(&timer, on_endless_timer, 1, 3600 * 1000), 0);
    vow_future_unref(vow_then(g.f, close_handle, NULL, &timer));
    run_and_close(&g);
}

static void on_async(uv_async_t *async)
{
    settle(async->data);
    uv_close((uv_handle_t *)async, NULL);
}

static void *send_async(void *arg)
{
    CHECK_INT_EQ(uv_async_send(arg), 0);
    return NULL;
}

TEST(uv, settled_in_an_async_callback_is_handled_in_the_same_run)
{
    struct ground g;
    uv_async_t async;
    pthread_t thread;
    ground_open(&g);
    ground_build(&g);
    CHECK_INT_EQ(uv_async_init(&g.uv, &async, on_async), 0);
    async.data = &g;
    CHECK_INT_EQ(pthread_create(&thread, NULL, send_async, &async), 0);
    CHECK_INT_EQ(uv_run(&g.uv, UV_RUN_DEFAULT), 0);
    CHECK_INT_EQ(pthread_join(thread, NULL), 0);
    CHECK_INT_EQ(g.handled, 1);
    ground_close(&g);
}

static void on_prepare(uv_prepare_t *prepare)
{
    settle(prepare->data);
    uv_close((uv_handle_t *)prepare, NULL);
}

static void start_prepare(struct ground *g, uv_prepare_t *prepare)
{
    CHECK_INT_EQ(uv_prepare_init(&g->uv, prepare), 0);
    prepare->data = g;
    CHECK_INT_EQ(uv_prepare_start(prepare, on_prepare), 0);
}

static void on_check(uv_check_t *check)
{
    settle(check->data);
    uv_close((uv_handle_t *)check, NULL);
}

static void on_idle(uv_idle_t *idle)
{
    settle(idle->data);
    uv_close((uv_handle_t *)idle, NULL);
}

TEST(uv, settled_in_a_prepare_callback_started_before_us_is_handled)
{
    struct ground g;
    uv_prepare_t prepare;
    ground_open(&g);
    start_prepare(&g, &prepare);
    ground_build(&g);
    run_and_close(&g);
}

TEST(uv, settled_in_a_prepare_callback_started_after_us_is_handled)
{
    struct ground g;
    uv_prepare_t prepare;
    ground_open(&g);
    ground_build(&g);
    start_prepare(&g, &prepare);
    run_and_close(&g);
}

TEST(uv, settled_in_an_idle_callback_is_handled_in_the_same_run)
{
    struct ground g;
    uv_idle_t idle;
    ground_open(&g);
    ground_build(&g);
    CHECK_INT_EQ(uv_idle_init(&g.uv, &idle), 0);
    idle.data = &g;
    CHECK_INT_EQ(uv_idle_start(&idle, on_idle), 0);
    run_and_close(&g);
}

static void on_wake_up(uv_timer_t *timer)
{
    uv_close((uv_handle_t *)timer, NULL);
}

/* An active check handle alone would let uv_run() wait for ever. */
static void check_callback_case(bool before)
{
    struct ground g;
    uv_check_t check;
    uv_timer_t timer;
    ground_open(&g);
    if (!before)
        ground_build(&g);
    CHECK_INT_EQ(uv_check_init(&g.uv, &check), 0);
    check.data = &g;
    CHECK_INT_EQ(uv_check_start(&check, on_check), 0);
    if (before)
        ground_build(&g);
    CHECK_INT_EQ(uv_timer_init(&g.uv, &timer), 0);
    CHECK_INT_EQ(uv_timer_start(&timer, on_wake_up, 1, 0), 0);
    run_and_close(&g);
}

TEST(uv, settled_in_a_check_callback_is_handled_in_the_same_run)
{
    check_callback_case(true);
    check_callback_case(false);
}

static void on_closed(uv_handle_t *handle)
{
    settle(handle->data);
}

TEST(uv, settled_in_a_close_callback_as_the_last_thing_is_handled)
{
    struct ground g;
    uv_timer_t timer;
    ground_open(&g);
    ground_build(&g);
    CHECK_INT_EQ(uv_timer_init(&g.uv, &timer), 0);
    timer.data = &g;
    uv_close((uv_handle_t *)&timer, on_closed);
    run_and_close(&g);
}

static void on_work(uv_work_t *req)
{
    (void)req;
}

static void on_work_done(uv_work_t *req, int status)
{
    CHECK_INT_EQ(status, 0);
    settle(req->data);
}

TEST(uv, settled_in_a_work_callback_is_handled_in_the_same_run)
{
    struct ground g;
    uv_work_t req;
    ground_open(&g);
    ground_build(&g);
    req.data = &g;
    CHECK_INT_EQ(uv_queue_work(&g.uv, &req, on_work, on_work_done), 0);
    run_and_close(&g);
}

/* ---- fibers, timers, threads on it -------------------------------------- */

static vow_next await_then_sleep(void *arg)
{
    struct ground *g = arg;
    CHECK_INT_EQ(vow_await(g->f), 0);
    CHECK_INT_EQ(vow_sleep(g->loop, 2), 0);
    CHECK_INT_EQ(vow_yield(g->loop), 0);
    g->handled += 10;
    return vow_ok(vow_nothing());
}

TEST(uv, fiber_awaits_what_a_timer_callback_settles)
{
    struct ground g;
    uv_timer_t timer;
    ground_open(&g);
    ground_build(&g);
    vow_future_unref(vow_async(g.loop, await_then_sleep, &g));
    CHECK_INT_EQ(uv_timer_init(&g.uv, &timer), 0);
    timer.data = &g;
    CHECK_INT_EQ(uv_timer_start(&timer, on_timer, 1, 0), 0);
    CHECK_INT_EQ(uv_run(&g.uv, UV_RUN_DEFAULT), 0);
    CHECK_INT_EQ(g.handled, 11);
    ground_close(&g);
}

static void settle_by_post(void *arg)
{
    struct ground *g = arg;
    settle(g);
    vow_loop_release(g->loop);
}

static void *post_once(void *arg)
{
    struct ground *g = arg;
    CHECK_INT_EQ(vow_loop_post(g->loop, settle_by_post, g), 0);
    return NULL;
}

TEST(uv, post_wakes_a_held_run)
{
    struct ground g;
    pthread_t thread;
    ground_open(&g);
    ground_build(&g);
    vow_loop_hold(g.loop);
    CHECK_INT_EQ(pthread_create(&thread, NULL, post_once, &g), 0);
    CHECK_INT_EQ(uv_run(&g.uv, UV_RUN_DEFAULT), 0);
    CHECK_INT_EQ(pthread_join(thread, NULL), 0);
    CHECK_INT_EQ(g.handled, 1);
    ground_close(&g);
}

static vow_next work_42(vow_job *job, void *arg)
{
    (void)job;
    (void)arg;
    return vow_ok(vow_int(42));
}

TEST(uv, jobs_keep_uv_run_until_they_are_done)
{
    struct ground g;
    ground_open(&g);
    ground_build(&g);
    vow_future *f = vow_work(g.loop, work_42, NULL);
    CHECK_INT_EQ(uv_run(&g.uv, UV_RUN_DEFAULT), 0);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 42);
    vow_future_unref(f);
    settle(&g);
    run_and_close(&g);
}

/* ---- two on one, and the end -------------------------------------------- */

TEST(uv, two_loops_share_one_and_the_first_may_leave)
{
    struct ground g;
    int other = 0;
    ground_open(&g);
    ground_build(&g);
    vow_loop *second = loop_on(&g.uv, &g.alloc);
    CHECK_PTR_EQ(vow_loop_uv(second), &g.uv);
    vow_future *delay = vow_delay(second, 1);
    vow_future_unref(vow_then(delay, count_ok, NULL, &other));
    vow_future_unref(delay);
    settle(&g);
    CHECK_INT_EQ(uv_run(&g.uv, UV_RUN_DEFAULT), 0);
    CHECK_INT_EQ(g.handled, 1);
    CHECK_INT_EQ(other, 1);
    CHECK_INT_EQ(vow_loop_close(second), 0);
    CHECK_INT_EQ(uv_run(&g.uv, UV_RUN_DEFAULT), 0);
    vow_future *after = vow_resolved(g.loop, vow_nothing());
    vow_future_unref(vow_then(after, count_ok, NULL, &g.handled));
    vow_future_unref(after);
    CHECK_INT_EQ(uv_run(&g.uv, UV_RUN_DEFAULT), 0);
    CHECK_INT_EQ(g.handled, 2);
    ground_close(&g);
}

static vow_next note_code(vow_error *error, void *user)
{
    int *code = user;
    *code = vow_error_code(error);
    return vow_ok(vow_nothing());
}

static void on_timer_close_vow(uv_timer_t *timer)
{
    struct ground *g = timer->data;
    CHECK_INT_EQ(vow_loop_close(g->loop), 0);
    uv_close((uv_handle_t *)timer, NULL);
}

TEST(uv, loop_may_be_closed_in_a_uv_callback)
{
    struct ground g;
    uv_timer_t timer;
    int code = 0;
    ground_open(&g);
    g.loop = loop_on(&g.uv, &g.alloc);
    vow_future *hour = vow_delay(g.loop, 3600 * 1000);
    vow_future_unref(vow_catch(hour, note_code, &code));
    vow_future_unref(hour);
    CHECK_INT_EQ(uv_timer_init(&g.uv, &timer), 0);
    timer.data = &g;
    CHECK_INT_EQ(uv_timer_start(&timer, on_timer_close_vow, 1, 0), 0);
    CHECK_INT_EQ(uv_run(&g.uv, UV_RUN_DEFAULT), 0); /* returns: it is gone */
    CHECK_INT_EQ(code, VOW_ECLOSED);
    CHECK_INT_EQ(uv_loop_close(&g.uv), 0);
    test_alloc_fini(TEST_HERE, &g.alloc);
}

/* A body that stops at the first await that fails. */
static vow_next await_once(void *arg)
{
    struct ground *g = arg;
    CHECK(vow_await(g->f) < 0);
    return vow_ok(vow_nothing());
}

TEST(uv, close_of_a_full_loop_leaves_uv_clean)
{
    struct ground g;
    int code = 0;
    ground_open(&g);
    ground_build(&g);
    vow_loop_hold(g.loop);
    vow_future *hour = vow_delay(g.loop, 3600 * 1000);
    vow_future_unref(vow_catch(hour, note_code, &code));
    vow_future_unref(hour);
    vow_future_unref(vow_async(g.loop, await_once, &g));
    CHECK(uv_run(&g.uv, UV_RUN_NOWAIT) != 0);
    CHECK_INT_EQ(vow_loop_close(g.loop), 0);
    CHECK_INT_EQ(code, VOW_ECLOSED);
    vow_deferred_unref(g.d);
    vow_future_unref(g.f);
    CHECK_INT_EQ(uv_run(&g.uv, UV_RUN_DEFAULT), 0);
    CHECK_INT_EQ(uv_loop_close(&g.uv), 0);
    test_alloc_fini(TEST_HERE, &g.alloc);
}

TEST(uv, loop_without_memory_leaves_uv_clean)
{
    for (uint64_t n = 1;; n++) {
        struct ground g;
        ground_open(&g);
        g.alloc.fail_at = n;
        g.alloc.fail_forever = true;
        int rc = vow_loop_new_uv(
            &g.uv, VOW_LOOP_OPTS(.alloc = test_alloc_hook(&g.alloc)), &g.loop);
        CHECK(rc == 0 || (rc == VOW_ENOMEM && g.loop == NULL));
        CHECK_INT_EQ(vow_loop_close(g.loop), 0);
        CHECK_INT_EQ(uv_run(&g.uv, UV_RUN_DEFAULT), 0);
        CHECK_INT_EQ(uv_loop_close(&g.uv), 0);
        test_alloc_fini(TEST_HERE, &g.alloc);
        if (rc == 0)
            break;
    }
}

TEST(uv, handle_of_mine_on_its_own_loop_keeps_it_running)
{
    struct world w;
    struct ground g = {0};
    uv_timer_t timer;
    world_open_real(&w);
    g.f = vow_promise(w.loop, &g.d);
    vow_future_unref(vow_then(g.f, count_ok, NULL, &g.handled));
    CHECK_INT_EQ(uv_timer_init(vow_loop_uv(w.loop), &timer), 0);
    timer.data = &g;
    CHECK_INT_EQ(uv_timer_start(&timer, on_timer, 1, 0), 0);
    world_run(&w);
    CHECK_INT_EQ(g.handled, 1);
    vow_deferred_unref(g.d);
    vow_future_unref(g.f);
    world_close(&w);
}
