/* SPDX-License-Identifier: MIT */
/* turn_test.c - time and turns. Virtual time stands until it is moved,
 * runs everything at its own time, and jumps over what nobody waits for; real
 * time is never short. Then fibers in time: vow_sleep() and vow_yield().
 */
#include "harness.h"
#include "world.h"

#include "vow/uv.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MS(n) ((uint64_t)(n)*1000000u)

enum { NOTES = 64 };

/* What happened, and at which time. */
static struct {
    int what[NOTES];
    uint64_t when[NOTES];
    int n;
} notes;

struct event {
    vow_loop *loop;
    int what;
    uint64_t ms;
};

static void note(vow_loop *loop, int what)
{
    CHECK(notes.n < NOTES);
    notes.what[notes.n] = what;
    notes.when[notes.n++] = vow_loop_now_ns(loop);
}

static vow_next note_event(vow_value value, void *user)
{
    struct event *e = user;
    (void)value;
    note(e->loop, e->what);
    return vow_ok(vow_nothing());
}

/* Notes `e` after its time. */
static void expect_after_delay(struct event *e)
{
    vow_future *f = vow_delay(e->loop, e->ms);
    vow_future_unref(vow_then(f, note_event, NULL, e));
    vow_future_unref(f);
}

static vow_loop_stats stats_of(vow_loop *loop)
{
    vow_loop_stats s;
    vow_loop_stats_get(loop, &s);
    return s;
}

/* ---- virtual time ------------------------------------------------------- */

TEST(clock, virtual_time_starts_at_zero_and_stands)
{
    struct world w;
    world_open(&w);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 0);
    world_turn(&w);
    world_run(&w);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 0);
    world_close(&w);
}

TEST(clock, advance_moves_exactly_so_far)
{
    struct world w;
    world_open(&w);
    world_advance_ms(&w, 0);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 0);
    world_advance_ms(&w, 7);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), MS(7));
    world_advance_ms(&w, 86400000);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), MS(86400007));
    world_close(&w);
}

TEST(clock, advance_runs_what_is_ready_without_moving)
{
    struct world w;
    world_open(&w);
    struct event e = {w.loop, 1, 0};
    vow_future *f = vow_resolved(w.loop, vow_nothing());
    vow_future_unref(vow_then(f, note_event, NULL, &e));
    vow_future_unref(f);
    world_advance_ms(&w, 0);
    CHECK_INT_EQ(notes.n, 1);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 0);
    world_close(&w);
}

TEST(clock, advance_runs_each_timer_at_its_own_time_and_none_beyond)
{
    struct world w;
    world_open(&w);
    struct event e[] = {
        {w.loop, 3, 100}, {w.loop, 1, 10}, {w.loop, 4, 101}, {w.loop, 2, 20}};
    for (int i = 0; i < 4; i++)
        expect_after_delay(&e[i]);
    world_advance_ms(&w, 9);
    CHECK_INT_EQ(notes.n, 0);
    world_advance_ms(&w, 91);
    CHECK_INT_EQ(notes.n, 3);
    static const uint64_t times[] = {MS(10), MS(20), MS(100)};
    for (int i = 0; i < 3; i++) {
        CHECK_INT_EQ(notes.what[i], i + 1);
        CHECK_UINT_EQ(notes.when[i], times[i]);
    }
    CHECK_UINT_EQ(stats_of(w.loop).timers, 1);
    world_advance_ms(&w, 1);
    CHECK_INT_EQ(notes.n, 4);
    world_close(&w);
}

struct chain {
    vow_loop *loop;
    int left;
};

/* Each link starts the next delay when it runs. */
static vow_next next_link(vow_value value, void *user)
{
    struct chain *c = user;
    (void)value;
    note(c->loop, c->left);
    if (--c->left == 0)
        return vow_ok(vow_nothing());
    vow_future *f = vow_delay(c->loop, 10);
    vow_future_unref(vow_then(f, next_link, NULL, c));
    vow_future_unref(f);
    return vow_ok(vow_nothing());
}

TEST(clock, advance_runs_timers_that_were_made_on_the_way)
{
    struct world w;
    struct chain c = {.left = 10};
    world_open(&w);
    c.loop = w.loop;
    vow_future *f = vow_delay(w.loop, 10);
    vow_future_unref(vow_then(f, next_link, NULL, &c));
    vow_future_unref(f);
    world_advance_ms(&w, 95);
    CHECK_INT_EQ(notes.n, 9);
    for (int i = 0; i < 9; i++)
        CHECK_UINT_EQ(notes.when[i], MS(10 * (i + 1)));
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), MS(95));
    world_run(&w);
    CHECK_INT_EQ(c.left, 0);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), MS(100));
    world_close(&w);
}

TEST(clock, timers_of_one_time_run_in_the_order_they_were_made)
{
    struct world w;
    struct event e[NOTES];
    world_open(&w);
    for (int i = 0; i < NOTES; i++) {
        e[i] = (struct event){w.loop, i, 5};
        expect_after_delay(&e[i]);
    }
    world_advance_ms(&w, 5);
    CHECK_INT_EQ(notes.n, NOTES);
    for (int i = 0; i < NOTES; i++)
        CHECK_INT_EQ(notes.what[i], i);
    world_close(&w);
}

TEST(clock, run_jumps_from_timer_to_timer_however_far)
{
    struct world w;
    world_open(&w);
    uint64_t year = UINT64_C(365) * 86400 * 1000;
    struct event e[] = {{w.loop, 2, year}, {w.loop, 1, 1}};
    expect_after_delay(&e[0]);
    expect_after_delay(&e[1]);
    world_run(&w); /* at once */
    CHECK_INT_EQ(notes.n, 2);
    CHECK_UINT_EQ(notes.when[0], MS(1));
    CHECK_UINT_EQ(notes.when[1], MS(year));
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), MS(year));
    world_close(&w);
}

TEST(clock, run_does_not_jump_to_a_timer_that_was_canceled)
{
    struct world w;
    world_open(&w);
    vow_future *f = vow_delay(w.loop, 1000);
    CHECK_UINT_EQ(stats_of(w.loop).timers, 1);
    CHECK(vow_cancel(f, NULL));
    CHECK_UINT_EQ(stats_of(w.loop).timers, 0);
    world_run(&w);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 0);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_ECANCELED);
    vow_future_unref(f);
    world_close(&w);
}

TEST(clock, turn_does_not_move_virtual_time)
{
    struct world w;
    world_open(&w);
    vow_future *f = vow_delay(w.loop, 1);
    for (int i = 0; i < 10; i++)
        world_turn(&w);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 0);
    CHECK_INT_EQ(vow_state_of(f), VOW_PENDING);
    world_advance_ms(&w, 1);
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    vow_future_unref(f);
    world_close(&w);
}

static vow_next check_due(vow_value value, void *user)
{
    static uint64_t last;
    struct event *e = user;
    (void)value;
    uint64_t now = vow_loop_now_ns(e->loop);
    CHECK_UINT_EQ(now, MS(e->ms));
    CHECK(now >= last);
    last = now;
    notes.n++;
    return vow_ok(vow_nothing());
}

TEST(clock, ten_thousand_timers_in_random_order_each_run_on_time)
{
    enum { N = 10000 };
    static struct event e[N];
    struct world w;
    uint64_t state = test_seed();
    world_open(&w);
    for (int i = 0; i < N; i++) {
        e[i] = (struct event){w.loop, i, test_random(&state) % 5000};
        vow_future *f = vow_delay(w.loop, e[i].ms);
        vow_future_unref(vow_then(f, check_due, NULL, &e[i]));
        vow_future_unref(f);
    }
    world_run(&w);
    CHECK_INT_EQ(notes.n, N);
    world_close(&w);
}

/* ---- real time ---------------------------------------------------------- */

static uint64_t monotonic_ns(void)
{
    struct timespec t;
    CHECK_INT_EQ(clock_gettime(CLOCK_MONOTONIC, &t), 0);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

TEST(clock, real_time_cannot_be_advanced)
{
    struct world w;
    world_open_real(&w);
    CHECK_INT_EQ(vow_loop_advance(w.loop, 1), VOW_ENOTSUP);
    world_close(&w);
}

TEST(clock, real_delay_is_never_shorter)
{
    struct world w;
    world_open_real(&w);
    for (uint64_t ms = 0; ms < 12; ms++) {
        uint64_t ours = vow_loop_now_ns(w.loop);
        uint64_t theirs = monotonic_ns();
        vow_future *f = vow_delay(w.loop, ms);
        CHECK_INT_EQ(vow_loop_run_until(w.loop, f), 0);
        CHECK(vow_loop_now_ns(w.loop) - ours >= MS(ms));
        CHECK(monotonic_ns() - theirs >= MS(ms));
        vow_future_unref(f);
    }
    world_close(&w);
}

static vow_next burn_then_wait(void *arg)
{
    vow_loop *loop = arg;
    uint64_t before = vow_loop_now_ns(loop);
    while (vow_loop_now_ns(loop) < before + MS(5)) /* hangs if cached */
        continue;
    uint64_t start = monotonic_ns();
    CHECK_INT_EQ(vow_await_drop(vow_delay(loop, 3)), 0);
    CHECK(monotonic_ns() - start >= MS(3));
    return vow_ok(vow_nothing());
}

/* A delay begins when it is made, also late in a long turn: counted from the
 * start of the turn it would be short. */
TEST(clock, real_time_is_current_and_not_that_of_the_turn)
{
    struct world w;
    world_open_real(&w);
    vow_future_unref(vow_async(w.loop, burn_then_wait, w.loop));
    world_run(&w);
    world_close(&w);
}

/* ---- sleep -------------------------------------------------------------- */

static vow_next sleep_and_note(void *arg)
{
    struct event *e = arg;
    int rc = vow_sleep(e->loop, e->ms);
    note(e->loop, rc == 0 ? e->what : rc);
    return vow_ok(vow_nothing());
}

TEST(await, sleep_lasts_exactly_so_long_in_virtual_time)
{
    struct world w;
    world_open(&w);
    struct event e[] = {{w.loop, 3, 30}, {w.loop, 1, 10}, {w.loop, 2, 20}};
    for (int i = 0; i < 3; i++)
        vow_future_unref(vow_async(w.loop, sleep_and_note, &e[i]));
    world_advance_ms(&w, 9);
    CHECK_INT_EQ(notes.n, 0);
    world_run(&w);
    CHECK_INT_EQ(notes.n, 3);
    for (int i = 0; i < 3; i++) {
        CHECK_INT_EQ(notes.what[i], i + 1);
        CHECK_UINT_EQ(notes.when[i], MS(10 * (i + 1)));
    }
    world_close(&w);
}

TEST(await, sleep_of_nothing_returns_without_time_passing)
{
    struct world w;
    world_open(&w);
    struct event e = {w.loop, 1, 0};
    vow_future_unref(vow_async(w.loop, sleep_and_note, &e));
    world_run(&w);
    CHECK_INT_EQ(notes.n, 1);
    CHECK_INT_EQ(notes.what[0], 1);
    CHECK_UINT_EQ(notes.when[0], 0);
    world_close(&w);
}

static vow_next sleep_in_real_time(void *arg)
{
    vow_loop *loop = arg;
    for (uint64_t ms = 0; ms < 8; ms++) {
        uint64_t before = monotonic_ns();
        CHECK_INT_EQ(vow_sleep(loop, ms), 0);
        CHECK(monotonic_ns() - before >= MS(ms));
    }
    return vow_ok(vow_nothing());
}

TEST(await, sleep_is_never_shorter_in_real_time)
{
    struct world w;
    world_open_real(&w);
    vow_future_unref(vow_async(w.loop, sleep_in_real_time, w.loop));
    world_run(&w);
    world_close(&w);
}

TEST(await, sleep_for_ever_ends_only_by_cancel_and_takes_its_timer_along)
{
    struct world w;
    world_open(&w);
    struct event e = {w.loop, 1, UINT64_MAX};
    vow_future *f = vow_async(w.loop, sleep_and_note, &e);
    world_advance_ms(&w, 1000);
    CHECK_INT_EQ(notes.n, 0);
    CHECK(vow_cancel(f, NULL));
    world_turn(&w);
    CHECK_INT_EQ(notes.n, 1);
    CHECK_INT_EQ(notes.what[0], VOW_ECANCELED);
    CHECK_UINT_EQ(notes.when[0], MS(1000)); /* without time passing */
    CHECK_UINT_EQ(stats_of(w.loop).timers, 0);
    vow_future_unref(f);
    world_close(&w);
}

/* ---- yield -------------------------------------------------------------- */

static vow_next yield_five_times(void *arg)
{
    struct event *e = arg;
    for (int i = 0; i < 5; i++) {
        note(e->loop, e->what);
        CHECK_INT_EQ(vow_yield(e->loop), 0);
    }
    return vow_ok(vow_nothing());
}

TEST(await, yielding_fibers_take_turns_one_after_the_other)
{
    struct world w;
    world_open(&w);
    struct event e[] = {{w.loop, 0, 0}, {w.loop, 1, 0}, {w.loop, 2, 0}};
    for (int i = 0; i < 3; i++)
        vow_future_unref(vow_async(w.loop, yield_five_times, &e[i]));
    world_run(&w);
    CHECK_INT_EQ(notes.n, 15);
    for (int i = 0; i < 15; i++)
        CHECK_INT_EQ(notes.what[i], i % 3);
    world_close(&w);
}

static vow_next yield_to_ready(void *arg)
{
    struct event *e = arg;
    vow_future *f = vow_resolved(e->loop, vow_nothing());
    vow_future_unref(vow_then(f, note_event, NULL, e));
    vow_future_unref(f);
    CHECK_INT_EQ(notes.n, 0);
    CHECK_INT_EQ(vow_yield(e->loop), 0);
    CHECK_INT_EQ(notes.n, 1); /* everything that was ready ran first */
    return vow_ok(vow_nothing());
}

TEST(await, yield_lets_what_is_ready_run_first)
{
    struct world w;
    world_open(&w);
    struct event e = {w.loop, 1, 0};
    vow_future_unref(vow_async(w.loop, yield_to_ready, &e));
    world_run(&w);
    CHECK_INT_EQ(notes.n, 1);
    world_close(&w);
}

/* Yields until somebody else says stop: a starved loop never ends. */
struct spinner {
    vow_loop *loop;
    bool stop;
    uv_poll_t poll;
};

static vow_next yield_until_stopped(void *arg)
{
    struct spinner *s = arg;
    while (!s->stop)
        CHECK_INT_EQ(vow_yield(s->loop), 0);
    return vow_ok(vow_nothing());
}

static vow_next stop_it(vow_value value, void *user)
{
    struct spinner *s = user;
    (void)value;
    s->stop = true;
    return vow_ok(vow_nothing());
}

TEST(await, fiber_that_yields_for_ever_does_not_starve_timers)
{
    struct world w;
    struct spinner s = {0};
    world_open_real(&w);
    s.loop = w.loop;
    vow_future_unref(vow_async(w.loop, yield_until_stopped, &s));
    vow_future *f = vow_delay(w.loop, 3);
    vow_future_unref(vow_then(f, stop_it, NULL, &s));
    vow_future_unref(f);
    world_run(&w);
    CHECK(s.stop);
    world_close(&w);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct spinner *s = poll->data;
    (void)events;
    CHECK_INT_EQ(status, 0);
    s->stop = true;
    uv_close((uv_handle_t *)poll, NULL);
}

TEST(await, fiber_that_yields_for_ever_does_not_starve_io)
{
    struct world w;
    struct spinner s = {0};
    int fds[2];
    world_open_real(&w);
    s.loop = w.loop;
    CHECK_INT_EQ(pipe(fds), 0);
    CHECK_INT_EQ(write(fds[1], "x", 1), 1);
    CHECK_INT_EQ(uv_poll_init(vow_loop_uv(w.loop), &s.poll, fds[0]), 0);
    s.poll.data = &s;
    CHECK_INT_EQ(uv_poll_start(&s.poll, UV_READABLE, on_readable), 0);
    vow_future_unref(vow_async(w.loop, yield_until_stopped, &s));
    world_run(&w);
    CHECK(s.stop);
    close(fds[0]);
    close(fds[1]);
    world_close(&w);
}

/* ---- fibers of fibers --------------------------------------------------- */

struct fib {
    vow_loop *loop;
    int n;
};

static vow_next fibonacci(void *arg)
{
    struct fib *me = arg;
    if (me->n < 2)
        return vow_ok(vow_int(me->n));
    struct fib a = {me->loop, me->n - 1};
    struct fib b = {me->loop, me->n - 2};
    vow_future *fa = vow_async(me->loop, fibonacci, &a);
    vow_future *fb = vow_async(me->loop, fibonacci, &b);
    CHECK_INT_EQ(vow_await(fb), 0);
    CHECK_INT_EQ(vow_await(fa), 0);
    int64_t sum = vow_as_int(vow_get(fa)) + vow_as_int(vow_get(fb));
    vow_future_unref(fa);
    vow_future_unref(fb);
    return vow_ok(vow_int(sum));
}

TEST(fiber, can_start_fibers_that_start_fibers_and_await_them)
{
    struct world w;
    world_open(&w);
    struct fib root = {w.loop, 13};
    vow_future *f = vow_async(w.loop, fibonacci, &root);
    world_run(&w);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 233);
    vow_future_unref(f);
    world_close(&w);
}
