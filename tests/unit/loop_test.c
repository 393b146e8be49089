/* SPDX-License-Identifier: MIT */
/* loop_test.c - what vow/loop.h promises about running and closing: what
 * keeps a loop running and what does not, who may run it, that nothing starves
 * I/O and timers, what close does to whatever is pending, and what may be
 * dropped afterwards. Virtual time is in turn_test.c.
 */
#include "harness.h"
#include "world.h"

#include "vow/uv.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static vow_loop_stats stats_of(vow_loop *loop)
{
    vow_loop_stats s;
    vow_loop_stats_get(loop, &s);
    return s;
}

static vow_next count_ok(vow_value value, void *user)
{
    int *count = user;
    (void)value;
    ++*count;
    return vow_ok(vow_nothing());
}

/* Attaches a handler to something settled: it is ready to run. */
static void make_ready(vow_loop *loop, vow_ok_fn fn, void *user)
{
    vow_future *f = vow_resolved(loop, vow_nothing());
    vow_future_unref(vow_then(f, fn, NULL, user));
    vow_future_unref(f);
}

static void close_early(struct world *w)
{
    CHECK_INT_EQ(vow_loop_close(w->loop), 0);
    w->loop = NULL;
}

/* ---- making ------------------------------------------------------------- */

TEST(loop, options_of_a_size_of_no_version_are_invalid)
{
    static const size_t sizes[] = {0, 1, sizeof(vow_loop_opts) - 1,
                                   sizeof(vow_loop_opts) + 8, SIZE_MAX};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        vow_loop_opts opts = {.size = sizes[i]};
        vow_loop *loop = (vow_loop *)&opts;
        CHECK_INT_EQ(vow_loop_new(&opts, &loop), VOW_EINVAL);
        CHECK_PTR_EQ(loop, &opts); /* not written */
    }
}

TEST(loop, unknown_flags_are_invalid)
{
    for (unsigned bit = 2; bit < 32; bit++) {
        vow_loop *loop = NULL;
        uint32_t flags = UINT32_C(1) << bit;
        CHECK_INT_EQ(vow_loop_new(VOW_LOOP_OPTS(.flags = flags), &loop),
                     VOW_EINVAL);
        CHECK(loop == NULL);
    }
}

TEST(loop, is_made_without_options_and_closed_unused)
{
    vow_loop *loop = NULL;
    CHECK_INT_EQ(vow_loop_new(NULL, &loop), 0);
    CHECK(loop != NULL);
    CHECK_INT_EQ(vow_loop_close(loop), 0);
}

TEST(loop, without_memory_is_not_made_and_nothing_is_lost)
{
    for (uint64_t n = 1;; n++) {
        struct test_alloc ta;
        vow_loop *loop = NULL;
        test_alloc_init(&ta);
        ta.fail_at = n;
        ta.fail_forever = true;
        int rc =
            vow_loop_new(VOW_LOOP_OPTS(.alloc = test_alloc_hook(&ta)), &loop);
        CHECK(rc == 0 || (rc == VOW_ENOMEM && loop == NULL));
        CHECK_INT_EQ(vow_loop_close(loop), 0);
        test_alloc_fini(TEST_HERE, &ta);
        if (rc == 0)
            break;
    }
}

TEST(loop, numbers_repeat_with_the_seed_and_differ_without)
{
    vow_loop *loop[3];
    static const uint64_t seeds[] = {12345, 12345, 54321};
    int same = 0;
    for (int i = 0; i < 3; i++)
        CHECK_INT_EQ(vow_loop_new(VOW_LOOP_OPTS(.seed = seeds[i]), &loop[i]),
                     0);
    for (int i = 0; i < 100; i++) {
        uint64_t a = vow_loop_random(loop[0]);
        CHECK_UINT_EQ(vow_loop_random(loop[1]), a);
        same += vow_loop_random(loop[2]) == a;
    }
    CHECK(same < 2);
    for (int i = 0; i < 3; i++)
        CHECK_INT_EQ(vow_loop_close(loop[i]), 0);
}

/* ---- running ------------------------------------------------------------ */

TEST(loop, run_returns_when_there_is_nothing_to_do)
{
    struct world w;
    world_open_real(&w);
    for (int i = 0; i < 3; i++)
        world_run(&w);
    world_close(&w);
}

TEST(loop, run_can_be_repeated_and_runs_what_came_since)
{
    struct world w;
    int count = 0;
    world_open_real(&w);
    for (int i = 1; i <= 3; i++) {
        make_ready(w.loop, count_ok, &count);
        CHECK_INT_EQ(count, i - 1);
        world_run(&w);
        CHECK_INT_EQ(count, i);
    }
    world_close(&w);
}

static vow_next await_arg(void *arg)
{
    vow_await(arg);
    return vow_ok(vow_nothing());
}

TEST(loop, pending_promise_and_its_waiters_do_not_keep_it_running)
{
    struct world w;
    vow_deferred *d;
    int count = 0;
    world_open_real(&w);
    vow_future *f = vow_promise(w.loop, &d);
    vow_future_unref(vow_then(f, count_ok, NULL, &count));
    vow_future_unref(vow_async(w.loop, await_arg, f));
    world_run(&w); /* returns */
    CHECK_UINT_EQ(stats_of(w.loop).fibers, 1);
    CHECK_INT_EQ(count, 0);
    CHECK(vow_resolve(d, vow_nothing()));
    world_run(&w);
    CHECK_INT_EQ(count, 1);
    vow_deferred_unref(d);
    vow_future_unref(f);
    world_close(&w);
}

TEST(loop, timer_keeps_it_running)
{
    struct world w;
    int count = 0;
    world_open_real(&w);
    vow_future *f = vow_delay(w.loop, 3);
    vow_future_unref(vow_then(f, count_ok, NULL, &count));
    vow_future_unref(f);
    world_run(&w);
    CHECK_INT_EQ(count, 1);
    world_close(&w);
}

/* A sender that posts only after the loop runs, and once more after that. */
struct sender {
    vow_loop *loop;
    sem_t go;
    pthread_t thread;
    int received;
};

static void release_and_go_on(void *arg)
{
    struct sender *s = arg;
    s->received++;
    vow_loop_release(s->loop);
    sem_post(&s->go);
}

static void *send_twice(void *arg)
{
    struct sender *s = arg;
    for (int i = 0; i < 2; i++) {
        CHECK_INT_EQ(sem_wait(&s->go), 0);
        CHECK_INT_EQ(vow_loop_post(s->loop, release_and_go_on, s), 0);
    }
    return NULL;
}

static vow_next let_sender_go(vow_value value, void *user)
{
    struct sender *s = user;
    (void)value;
    sem_post(&s->go);
    return vow_ok(vow_nothing());
}

TEST(loop, runs_until_each_hold_is_released)
{
    struct world w;
    struct sender s = {0};
    world_open_real(&w);
    s.loop = w.loop;
    CHECK_INT_EQ(sem_init(&s.go, 0, 0), 0);
    CHECK_INT_EQ(pthread_create(&s.thread, NULL, send_twice, &s), 0);
    vow_loop_hold(w.loop);
    vow_loop_hold(w.loop);
    make_ready(w.loop, let_sender_go, &s);
    world_run(&w);
    CHECK_INT_EQ(s.received, 2);
    CHECK_INT_EQ(pthread_join(s.thread, NULL), 0);
    sem_destroy(&s.go);
    world_close(&w);
}

struct busy {
    vow_loop *loop;
    vow_future *pending;
    int asked;
};

static void ask_all(struct busy *b)
{
    CHECK_INT_EQ(vow_loop_run(b->loop), VOW_EBUSY);
    CHECK_INT_EQ(vow_loop_run_until(b->loop, b->pending), VOW_EBUSY);
    CHECK_INT_EQ(vow_loop_turn(b->loop), VOW_EBUSY);
    CHECK_INT_EQ(vow_loop_advance(b->loop, 5), VOW_EBUSY);
    CHECK_INT_EQ(vow_loop_close(b->loop), VOW_EBUSY);
    CHECK_INT_EQ(vow_state_of(b->pending), VOW_PENDING);
    b->asked++;
}

static vow_next ask_in_handler(vow_value value, void *user)
{
    (void)value;
    ask_all(user);
    return vow_ok(vow_nothing());
}

static vow_next ask_in_fiber(void *arg)
{
    struct busy *b = arg;
    ask_all(b);
    CHECK_INT_EQ(vow_yield(b->loop), 0);
    ask_all(b);
    return vow_ok(vow_nothing());
}

TEST(loop, cannot_be_run_or_closed_from_inside)
{
    struct world w;
    struct busy b = {0};
    vow_deferred *d;
    int count = 0;
    world_open(&w);
    b.loop = w.loop;
    b.pending = vow_promise(w.loop, &d);
    vow_future_unref(vow_then(b.pending, count_ok, NULL, &count));
    make_ready(w.loop, ask_in_handler, &b);
    vow_future_unref(vow_async(w.loop, ask_in_fiber, &b));
    world_run(&w);
    CHECK_INT_EQ(b.asked, 3);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 0);
    CHECK(vow_resolve(d, vow_nothing())); /* it still works */
    world_run(&w);
    CHECK_INT_EQ(count, 1);
    vow_deferred_unref(d);
    vow_future_unref(b.pending);
    world_close(&w);
}

/* ---- nothing starves ---------------------------------------------------- */

struct spinner {
    vow_loop *loop;
    bool stop;
    uv_poll_t poll;
};

/* Makes itself ready again for ever: only I/O or a timer can end it. */
static vow_next spin(vow_value value, void *user)
{
    struct spinner *s = user;
    (void)value;
    if (!s->stop)
        make_ready(s->loop, spin, s);
    return vow_ok(vow_nothing());
}

static vow_next stop_spinning(vow_value value, void *user)
{
    struct spinner *s = user;
    (void)value;
    s->stop = true;
    return vow_ok(vow_nothing());
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct spinner *s = poll->data;
    (void)events;
    CHECK_INT_EQ(status, 0);
    s->stop = true;
    uv_close((uv_handle_t *)poll, NULL);
}

static void spin_until_io(uint32_t turn_max)
{
    struct world w;
    struct spinner s = {0};
    int fds[2];
    world_open_with(
        &w, VOW_LOOP_OPTS(.flags = WORLD_REAL_TIME, .turn_max = turn_max));
    s.loop = w.loop;
    CHECK_INT_EQ(pipe(fds), 0);
    CHECK_INT_EQ(write(fds[1], "x", 1), 1);
    CHECK_INT_EQ(uv_poll_init(vow_loop_uv(w.loop), &s.poll, fds[0]), 0);
    s.poll.data = &s;
    CHECK_INT_EQ(uv_poll_start(&s.poll, UV_READABLE, on_readable), 0);
    make_ready(w.loop, spin, &s);
    world_run(&w);
    CHECK(s.stop);
    close(fds[0]);
    close(fds[1]);
    world_close(&w);
}

TEST(loop, handlers_without_end_let_io_in)
{
    spin_until_io(0);
    spin_until_io(1);
    spin_until_io(10);
}

TEST(loop, handlers_without_end_let_timers_in)
{
    struct world w;
    struct spinner s = {0};
    world_open_real(&w);
    s.loop = w.loop;
    vow_future *f = vow_delay(w.loop, 2);
    vow_future_unref(vow_then(f, stop_spinning, NULL, &s));
    make_ready(w.loop, spin, &s);
    world_run(&w);
    CHECK(s.stop);
    vow_future_unref(f);
    world_close(&w);
}

/* ---- run_until, turn ---------------------------------------------------- */

TEST(loop, run_until_stops_when_the_future_settles)
{
    struct world w;
    world_open(&w);
    vow_future *soon = vow_delay(w.loop, 10);
    vow_future *late = vow_delay(w.loop, 100);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, soon), 0);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 10 * 1000000);
    CHECK_INT_EQ(vow_state_of(late), VOW_PENDING);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, soon), 0); /* settled: at once */
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 10 * 1000000);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, late), 0);
    vow_future_unref(soon);
    vow_future_unref(late);
    world_close(&w);
}

TEST(loop, run_until_returns_the_code_of_a_rejection_and_handles_it)
{
    struct world w;
    world_open(&w);
    vow_future *f =
        vow_rejected(w.loop, vow_error_new(w.loop, VOW_EIO, "no disk"));
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), VOW_EIO);
    vow_future_unref(f);
    CHECK_UINT_EQ(stats_of(w.loop).unhandled, 0);
    world_close(&w);
}

TEST(loop, run_until_says_again_when_nothing_is_left_to_do)
{
    struct world w;
    vow_deferred *d;
    world_open_real(&w);
    vow_future *f = vow_promise(w.loop, &d);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), VOW_EAGAIN);
    CHECK(vow_resolve(d, vow_nothing()));
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), 0);
    vow_deferred_unref(d);
    vow_future_unref(f);
    world_close(&w);
}

TEST(loop, turn_runs_what_is_ready_and_does_not_wait)
{
    struct world w;
    int count = 0;
    world_open_real(&w);
    vow_future *hour = vow_delay(w.loop, 3600 * 1000);
    make_ready(w.loop, count_ok, &count);
    world_turn(&w);
    CHECK_INT_EQ(count, 1);
    CHECK_INT_EQ(vow_state_of(hour), VOW_PENDING);
    CHECK(vow_cancel(hour, NULL));
    CHECK_INT_EQ(vow_error_code(vow_error_of(hour)), VOW_ECANCELED);
    vow_future_unref(hour);
    world_close(&w);
}

TEST(loop, turn_runs_timers_that_are_due_and_posts)
{
    struct world w;
    struct sender s = {0};
    world_open_real(&w);
    s.loop = w.loop;
    CHECK_INT_EQ(sem_init(&s.go, 0, 0), 0);
    vow_loop_hold(w.loop);
    CHECK_INT_EQ(vow_loop_post(w.loop, release_and_go_on, &s), 0);
    vow_future *f = vow_delay(w.loop, 2);
    while (vow_state_of(f) == VOW_PENDING)
        world_turn(&w);
    CHECK_INT_EQ(s.received, 1);
    vow_future_unref(f);
    sem_destroy(&s.go);
    world_close(&w);
}

/* ---- closing ------------------------------------------------------------ */

TEST(loop, close_of_null_does_nothing)
{
    CHECK_INT_EQ(vow_loop_close(NULL), 0);
}

struct farewell {
    vow_loop *loop;
    int codes[4];
    int n;
};

static vow_next note_code(vow_error *error, void *user)
{
    struct farewell *f = user;
    CHECK(f->n < 4);
    f->codes[f->n++] = vow_error_code(error);
    return vow_ok(vow_nothing());
}

/* A handler that begins new work while the loop closes. */
static vow_next begin_anew(vow_error *error, void *user)
{
    struct farewell *f = user;
    note_code(error, f);
    return vow_follow(vow_delay(f->loop, 1000));
}

TEST(loop, close_rejects_what_is_pending_and_runs_its_handlers)
{
    struct world w;
    struct farewell f = {0};
    vow_deferred *d;
    world_open_real(&w);
    f.loop = w.loop;
    vow_future *p = vow_promise(w.loop, &d);
    vow_future *again = vow_catch(p, begin_anew, &f);
    vow_future_unref(vow_catch(again, note_code, &f));
    vow_future *hour = vow_delay(w.loop, 3600 * 1000);
    vow_future_unref(vow_catch(hour, note_code, &f));
    vow_loop_hold(w.loop); /* a hold does not hold the close */
    close_early(&w);
    CHECK_INT_EQ(f.n, 3);
    for (int i = 0; i < 3; i++)
        CHECK_INT_EQ(f.codes[i], VOW_ECLOSED);
    vow_deferred_unref(d);
    vow_future_unref(p);
    vow_future_unref(again);
    vow_future_unref(hour);
    world_close_dirty(&w);
}

TEST(loop, close_tells_a_rejection_that_nobody_handled_once)
{
    struct world w;
    world_open(&w);
    world_expect_unhandled(&w, 1);
    vow_future *f =
        vow_rejected(w.loop, vow_error_new(w.loop, VOW_EIO, "lost"));
    world_run(&w);
    CHECK_UINT_EQ(w.unhandled, 0); /* somebody may still ask */
    close_early(&w);
    CHECK_UINT_EQ(w.unhandled, 1);
    CHECK_INT_EQ(w.unhandled_code, VOW_EIO);
    CHECK_STR_EQ(w.unhandled_message, "lost");
    CHECK(strstr(w.unhandled_site, "loop_test.c:") != NULL);
    vow_future_unref(f);
    CHECK_UINT_EQ(w.unhandled, 1);
    world_close_dirty(&w);
}

TEST(loop, handles_of_every_kind_may_be_dropped_after_close)
{
    struct world w;
    vow_deferred *d;
    vow_remote *remote;
    vow_bytes *bytes;
    vow_scope *scope;
    vow_retry_budget *budget;
    world_open(&w);
    vow_future *f = vow_promise(w.loop, &d);
    vow_future *then = vow_then(f, NULL, NULL, NULL);
    vow_future *far = vow_promise_remote(w.loop, &remote);
    vow_future *settled = vow_resolved(w.loop, vow_own(malloc(8), free));
    vow_error *e = vow_error_new(w.loop, VOW_EIO, "kept %d", 1);
    CHECK_INT_EQ(vow_bytes_new(w.loop, "abc", 3, &bytes), 0);
    CHECK_INT_EQ(vow_scope_new(w.loop, NULL, &scope), 0);
    CHECK_INT_EQ(vow_retry_budget_new(w.loop, 10, 10, &budget), 0);
    close_early(&w);
    vow_deferred_unref(d);
    vow_future_unref(then);
    vow_future_unref(f);
    vow_future_unref(far);
    vow_future_unref(settled);
    vow_remote_unref(remote);
    vow_error_unref(e);
    vow_bytes_unref(bytes);
    vow_scope_unref(scope);
    vow_retry_budget_unref(budget);
    world_close_dirty(&w); /* every block came back */
}

static void *run_a_loop(void *arg)
{
    vow_loop *loop = NULL;
    int count = 0;
    (void)arg;
    CHECK_INT_EQ(vow_loop_new(NULL, &loop), 0);
    for (int i = 0; i < 500; i++) {
        make_ready(loop, count_ok, &count);
        vow_future *f = vow_delay(loop, (uint64_t)i % 3);
        vow_future_unref(vow_async(loop, await_arg, f));
        CHECK_INT_EQ(vow_loop_run_until(loop, f), 0);
        CHECK_INT_EQ(vow_loop_run(loop), 0); /* the fiber ends */
        vow_future_unref(f);
    }
    CHECK_INT_EQ(count, 500);
    CHECK_UINT_EQ(stats_of(loop).futures, 0);
    CHECK_INT_EQ(vow_loop_close(loop), 0);
    return NULL;
}

TEST(loop, one_in_each_of_four_threads_do_not_meet)
{
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        CHECK_INT_EQ(pthread_create(&thread[i], NULL, run_a_loop, NULL), 0);
    for (int i = 0; i < 4; i++)
        CHECK_INT_EQ(pthread_join(thread[i], NULL), 0);
}
