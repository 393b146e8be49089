/* SPDX-License-Identifier: MIT */
/* timer_test.c - core/timer.c: order, timers that start and stop timers, weak
 * ones, the one libuv timer under them, and a model. */
#include "core/loop_internal.h"
#include "trap.h"
#include "vow/combine.h"
#include "world.h"

enum { MS = 1000000, MANY = 200 };

/* A timer that writes down when it fired, and then does `then`. */
struct probe {
    struct vow__core_timer timer;
    int id;
    int fired;
    uint64_t at_ns;
    void (*then)(vow_loop *loop, struct probe *p);
    struct probe *other;
};

static int order[MANY];
static size_t n_order;

static void on_fire(vow_loop *loop, struct vow__core_timer *t)
{
    struct probe *p = VOW__OUTER(t, struct probe, timer);
    CHECK(!t->armed);
    p->at_ns = vow_loop_now_ns(loop);
    CHECK(p->at_ns >= t->node.key); /* T1 */
    p->fired++;
    if (n_order < MANY)
        order[n_order++] = p->id;
    if (p->then != NULL)
        p->then(loop, p);
}

static struct probe probe(int id, bool weak)
{
    return (struct probe){.id = id, .timer = {.fire = on_fire, .weak = weak}};
}

static void start_ms(struct world *w, struct probe *p, uint64_t ms)
{
    vow__core_timer_start(w->loop, &p->timer,
                          vow__clock_due_ns(&w->loop->clock, ms));
}

static void check_order(const int *ids, size_t n)
{
    CHECK_UINT_EQ(n_order, n);
    for (size_t i = 0; i < n; i++)
        CHECK_INT_EQ(order[i], ids[i]);
}

/* ---- order -------------------------------------------------------------- */

TEST(timer, fire_by_due_time_and_at_it)
{
    struct world w;
    world_open(&w);
    struct probe p[3] = {probe(0, false), probe(1, false), probe(2, false)};
    start_ms(&w, &p[0], 30);
    start_ms(&w, &p[1], 10);
    start_ms(&w, &p[2], 20);
    world_advance_ms(&w, 100);
    check_order((int[]){1, 2, 0}, 3);
    CHECK_UINT_EQ(p[0].at_ns, 30 * MS);
    CHECK_UINT_EQ(p[1].at_ns, 10 * MS);
    CHECK_UINT_EQ(p[2].at_ns, 20 * MS);
    world_close(&w);
}

TEST(timer, of_equal_times_fire_in_the_order_they_were_started)
{
    struct world w;
    struct probe p[MANY];
    world_open(&w);
    for (int i = 0; i < MANY; i++) {
        p[i] = probe(i, i % 3 == 0);
        start_ms(&w, &p[i], 5);
    }
    world_advance_ms(&w, 5);
    CHECK_UINT_EQ(n_order, MANY);
    for (int i = 0; i < MANY; i++)
        CHECK_INT_EQ(order[i], i);
    world_close(&w);
}

TEST(timer, stopped_and_started_again_goes_behind_its_equals)
{
    struct world w;
    world_open(&w);
    struct probe p[3] = {probe(0, false), probe(1, false), probe(2, false)};
    for (int i = 0; i < 3; i++)
        start_ms(&w, &p[i], 5);
    vow__core_timer_stop(w.loop, &p[0].timer);
    start_ms(&w, &p[0], 5);
    world_advance_ms(&w, 5);
    check_order((int[]){1, 2, 0}, 3);
    world_close(&w);
}

TEST(timer, delays_and_sleeps_share_one_order_with_it)
{
    struct world w;
    world_open(&w);
    struct probe p = probe(0, false);
    vow_future *before = vow_delay(w.loop, 5);
    start_ms(&w, &p, 5);
    vow_future *after = vow_delay(w.loop, 5);
    w.loop->clock.virtual_ns = 5 * MS;
    vow__core_timers_run(w.loop);
    CHECK_INT_EQ(vow_state_of(before), VOW_FULFILLED);
    CHECK_INT_EQ(p.fired, 1);
    CHECK_INT_EQ(vow_state_of(after), VOW_FULFILLED);
    vow_future_unref(before);
    vow_future_unref(after);
    world_close(&w);
}

TEST(timer, stopping_one_that_is_not_started_does_nothing)
{
    struct world w;
    world_open(&w);
    struct probe p = probe(0, false);
    vow__core_timer_stop(w.loop, &p.timer);
    start_ms(&w, &p, 1);
    vow__core_timer_stop(w.loop, &p.timer);
    vow__core_timer_stop(w.loop, &p.timer);
    CHECK_UINT_EQ(w.loop->timers_strong, 0);
    world_advance_ms(&w, 10);
    CHECK_INT_EQ(p.fired, 0);
    world_close(&w);
}

TEST_TRAPS(timer, starting_one_twice_dies)
{
    struct world w;
    world_open(&w);
    struct probe p = probe(0, false);
    start_ms(&w, &p, 1);
    start_ms(&w, &p, 2);
}

/* ---- from inside a timer ------------------------------------------------ */

static void start_again_now(vow_loop *loop, struct probe *p)
{
    vow__core_timer_start(loop, &p->timer, vow_loop_now_ns(loop));
}

static void start_again_in_2_ms(vow_loop *loop, struct probe *p)
{
    vow__core_timer_start(loop, &p->timer, vow_loop_now_ns(loop) + 2 * MS);
}

static void stop_other(vow_loop *loop, struct probe *p)
{
    vow__core_timer_stop(loop, &p->other->timer);
}

static void start_other_now(vow_loop *loop, struct probe *p)
{
    vow__core_timer_start(loop, &p->other->timer, vow_loop_now_ns(loop));
}

TEST(timer, restarted_inside_fire_for_now_waits_for_the_next_run)
{
    struct world w;
    world_open(&w);
    struct probe p = probe(0, false);
    p.then = start_again_now;
    start_ms(&w, &p, 0);
    for (int i = 1; i <= 3; i++) {
        vow__core_timers_run(w.loop);
        CHECK_INT_EQ(p.fired, i);
    }
    vow__core_timer_stop(w.loop, &p.timer);
    world_close(&w);
}

TEST(timer, restarted_inside_fire_does_not_hold_up_its_equals)
{
    struct world w;
    world_open(&w);
    struct probe p[2] = {probe(0, false), probe(1, false)};
    p[0].then = start_again_now;
    start_ms(&w, &p[0], 0);
    start_ms(&w, &p[1], 0);
    vow__core_timers_run(w.loop);
    check_order((int[]){0, 1}, 2);
    vow__core_timer_stop(w.loop, &p[0].timer);
    world_close(&w);
}

TEST(timer, restarted_inside_fire_for_later_fires_at_each_time)
{
    struct world w;
    world_open(&w);
    struct probe p = probe(0, false);
    p.then = start_again_in_2_ms;
    start_ms(&w, &p, 1);
    world_advance_ms(&w, 10);
    CHECK_INT_EQ(p.fired, 5); /* 1 3 5 7 9 */
    CHECK_UINT_EQ(p.at_ns, 9 * MS);
    vow__core_timer_stop(w.loop, &p.timer);
    world_close(&w);
}

TEST(timer, may_stop_another_that_is_due_too)
{
    struct world w;
    world_open(&w);
    struct probe p[2] = {probe(0, false), probe(1, false)};
    p[0].then = stop_other;
    p[0].other = &p[1];
    start_ms(&w, &p[0], 1);
    start_ms(&w, &p[1], 1);
    world_advance_ms(&w, 5);
    check_order((int[]){0}, 1);
    world_close(&w);
}

TEST(timer, may_start_another)
{
    struct world w;
    world_open(&w);
    struct probe p[2] = {probe(0, false), probe(1, false)};
    p[0].then = start_other_now;
    p[0].other = &p[1];
    start_ms(&w, &p[0], 1);
    world_run(&w);
    check_order((int[]){0, 1}, 2);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), MS);
    world_close(&w);
}

/* ---- weak --------------------------------------------------------------- */

TEST(timer, weak_one_does_not_keep_a_virtual_loop_running)
{
    struct world w;
    world_open(&w);
    struct probe p = probe(0, true);
    start_ms(&w, &p, 1);
    CHECK_UINT_EQ(vow__core_timers_next_ns(w.loop), UINT64_MAX);
    world_run(&w);
    CHECK_INT_EQ(p.fired, 0);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 0);
    vow__core_timer_stop(w.loop, &p.timer);
    world_close(&w);
}

TEST(timer, weak_one_does_not_keep_a_real_loop_running)
{
    struct world w;
    world_open_real(&w);
    struct probe p = probe(0, true);
    start_ms(&w, &p, 3600 * 1000); /* else the test would time out */
    world_run(&w);
    CHECK_INT_EQ(p.fired, 0);
    vow__core_timer_stop(w.loop, &p.timer);
    world_close(&w);
}

TEST(timer, weak_one_fires_while_a_strong_one_keeps_the_loop_running)
{
    struct world w;
    world_open(&w);
    struct probe p[2] = {probe(0, true), probe(1, false)};
    start_ms(&w, &p[0], 1);
    start_ms(&w, &p[1], 2);
    world_run(&w);
    check_order((int[]){0, 1}, 2);
    CHECK_UINT_EQ(p[0].at_ns, MS);
    world_close(&w);
}

TEST(timer, loop_goes_no_further_than_the_last_strong_one)
{
    struct world w;
    world_open(&w);
    struct probe p[2] = {probe(0, false), probe(1, true)};
    start_ms(&w, &p[0], 1);
    start_ms(&w, &p[1], 2);
    world_run(&w);
    check_order((int[]){0}, 1);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), MS);
    vow__core_timer_stop(w.loop, &p[1].timer);
    world_close(&w);
}

TEST(timer, weak_ones_are_not_counted_as_alive)
{
    struct world w;
    vow_loop_stats st;
    world_open(&w);
    struct probe p[2] = {probe(0, true), probe(1, false)};
    start_ms(&w, &p[0], 1);
    start_ms(&w, &p[1], 1);
    vow_loop_stats_get(w.loop, &st);
    CHECK_UINT_EQ(st.timers, 1);
    world_advance_ms(&w, 1);
    vow_loop_stats_get(w.loop, &st);
    CHECK_UINT_EQ(st.timers, 0);
    world_close(&w);
}

/* ---- real time ---------------------------------------------------------- */

TEST(timer, is_never_early_in_real_time)
{
    struct world w;
    struct probe p[MANY];
    uint64_t random = test_seed();
    world_open_real(&w);
    uint64_t now = vow_loop_now_ns(w.loop);
    for (int i = 0; i < MANY; i++) { /* parts of milliseconds too */
        p[i] = probe(i, false);
        vow__core_timer_start(w.loop, &p[i].timer,
                              now + test_random(&random) % (20 * MS));
    }
    world_run(&w);
    for (int i = 0; i < MANY; i++)
        CHECK_INT_EQ(p[i].fired, 1); /* on_fire() looked at the time */
    world_close(&w);
}

TEST(timer, libuv_that_is_early_fires_nothing_and_is_set_again)
{
    struct world w;
    world_open_real(&w);
    struct probe p = probe(0, false);
    start_ms(&w, &p, 3600 * 1000);
    (void)uv_timer_stop(&w.loop->timer);
    vow__core_timers_on_uv(&w.loop->timer);
    CHECK_INT_EQ(p.fired, 0);
    CHECK(uv_is_active((uv_handle_t *)&w.loop->timer));
    vow__core_timer_stop(w.loop, &p.timer);
    world_close(&w);
}

TEST(timer, libuv_timer_is_set_for_the_first_and_only_while_there_is_one)
{
    struct world w;
    world_open_real(&w);
    uv_timer_t *handle = &w.loop->timer;
    struct probe p[3] = {probe(0, false), probe(1, false), probe(2, true)};
    CHECK(!uv_is_active((uv_handle_t *)handle));
    start_ms(&w, &p[0], 3600 * 1000);
    uint64_t far = uv_timer_get_due_in(handle);
    CHECK(far > 3000 * 1000);
    start_ms(&w, &p[1], 1000 * 1000);
    CHECK(uv_timer_get_due_in(handle) <= 1000 * 1000);
    start_ms(&w, &p[2], 2000 * 1000); /* later: nothing changes */
    CHECK(uv_timer_get_due_in(handle) <= 1000 * 1000);
    vow__core_timer_stop(w.loop, &p[1].timer);
    CHECK(uv_timer_get_due_in(handle) > 1000 * 1000);
    CHECK(uv_has_ref((uv_handle_t *)handle));
    vow__core_timer_stop(w.loop, &p[0].timer);
    CHECK(uv_is_active((uv_handle_t *)handle));
    CHECK(!uv_has_ref((uv_handle_t *)handle)); /* T2 */
    vow__core_timer_stop(w.loop, &p[2].timer);
    CHECK(!uv_is_active((uv_handle_t *)handle));
    world_close(&w);
}

TEST(timer, virtual_time_uses_no_libuv_timer)
{
    struct world w;
    world_open(&w);
    struct probe p = probe(0, false);
    start_ms(&w, &p, 1);
    CHECK(!uv_is_active((uv_handle_t *)&w.loop->timer));
    vow__core_timer_stop(w.loop, &p.timer);
    world_close(&w);
}

/* ---- the end of time ---------------------------------------------------- */

TEST(timer, due_at_the_end_of_time_waits_in_real_time)
{
    struct world w;
    world_open_real(&w);
    struct probe p[2] = {probe(0, true), probe(1, false)};
    vow__core_timer_start(w.loop, &p[0].timer, UINT64_MAX);
    CHECK(uv_timer_get_due_in(&w.loop->timer) > UINT32_MAX);
    start_ms(&w, &p[1], 1);
    world_run(&w);
    check_order((int[]){1}, 1);
    CHECK(p[0].timer.armed);
    vow__core_timer_stop(w.loop, &p[0].timer);
    world_close(&w);
}

TEST(timer, due_at_the_end_of_time_is_not_jumped_to)
{
    struct world w;
    world_open(&w);
    struct probe p[2] = {probe(0, false), probe(1, false)};
    vow__core_timer_start(w.loop, &p[0].timer, UINT64_MAX);
    start_ms(&w, &p[1], 1);
    world_run(&w);
    check_order((int[]){1}, 1);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), MS);
    vow__core_timer_stop(w.loop, &p[0].timer);
    world_close(&w);
}

TEST(timer, due_centuries_from_now_fires_then)
{
    const uint64_t due = UINT64_MAX - 1;
    struct world w;
    world_open(&w);
    struct probe p = probe(0, false);
    vow__core_timer_start(w.loop, &p.timer, due);
    world_run(&w);
    CHECK_INT_EQ(p.fired, 1);
    CHECK_UINT_EQ(p.at_ns, due);
    world_close(&w);
}

TEST(timer, due_before_now_fires_without_turning_time_back)
{
    struct world w;
    world_open(&w);
    world_advance_ms(&w, 100);
    struct probe p = probe(0, false);
    vow__core_timer_start(w.loop, &p.timer, 7);
    world_run(&w);
    CHECK_INT_EQ(p.fired, 1);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 100 * MS);
    start_ms(&w, &p, 0);
    world_advance_ms(&w, 0);
    CHECK_INT_EQ(p.fired, 2);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 100 * MS);
    world_close(&w);
}

/* ---- against a model ---------------------------------------------------- */

TEST(timer, agree_with_a_model_in_random_starts_stops_and_advances)
{
    static struct probe p[MANY];
    static int want[MANY];
    struct world w;
    uint64_t random = test_seed();
    world_open(&w);
    for (int i = 0; i < MANY; i++)
        p[i] = probe(i, i % 5 == 0);
    for (int round = 0; round < 20000; round++) {
        uint64_t r = test_random(&random);
        size_t any = (r >> 8) % MANY;
        if (r % 16 == 0) {
            uint64_t ms = (r >> 32) % 30;
            uint64_t end = vow__clock_due_ns(&w.loop->clock, ms);
            for (int i = 0; i < MANY; i++)
                want[i] += p[i].timer.armed && p[i].timer.node.key <= end;
            world_advance_ms(&w, ms);
            for (int i = 0; i < MANY; i++)
                CHECK_INT_EQ(p[i].fired, want[i]);
        } else if (p[any].timer.armed) {
            vow__core_timer_stop(w.loop, &p[any].timer);
        } else {
            start_ms(&w, &p[any], (r >> 32) % 100);
        }
    }
    for (int i = 0; i < MANY; i++)
        vow__core_timer_stop(w.loop, &p[i].timer);
    CHECK_PTR_EQ(w.loop->timers, NULL);
    CHECK_UINT_EQ(w.loop->timers_strong, 0);
    world_close(&w);
}
