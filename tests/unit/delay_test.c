/* SPDX-License-Identifier: MIT */
/* delay_test.c - futures of time: delays never early and in order, time
 * limits that cancel only what nobody else holds, the virtual clock. */
#include "harness.h"
#include "world.h"

#include "vow/combine.h"

#include <stdlib.h>
#include <string.h>

static uint64_t now_ms(const struct world *w)
{
    return vow_loop_now_ns(w->loop) / 1000000;
}

static size_t timers(const struct world *w)
{
    vow_loop_stats st;
    vow_loop_stats_get(w->loop, &st);
    return st.timers;
}

static void check_rejected(vow_future *f, int code)
{
    CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), code);
}

/* ---- the virtual clock -------------------------------------------------- */

TEST(time, virtual_time_starts_at_zero_and_stands)
{
    struct world w;
    world_open(&w);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 0);
    world_run(&w);
    world_turn(&w);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 0);
    world_close(&w);
}

TEST(time, advance_moves_virtual_time_by_exactly_so_much)
{
    struct world w;
    world_open(&w);
    world_advance_ms(&w, 7);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 7000000);
    world_advance_ms(&w, 0);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 7000000);
    world_advance_ms(&w, 86400000);
    CHECK_UINT_EQ(now_ms(&w), 86400007);
    world_close(&w);
}

TEST(time, real_time_cannot_be_advanced)
{
    struct world w;
    world_open_real(&w);
    CHECK_INT_EQ(vow_loop_advance(w.loop, 5), VOW_ENOTSUP);
    world_close(&w);
}

TEST(time, run_jumps_to_the_next_timer_when_nothing_else_is_left)
{
    struct world w;
    world_open(&w);
    vow_future *f = vow_delay(w.loop, 3600000);
    world_run(&w);
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), UINT64_C(3600000000000));
    vow_future_unref(f);
    world_close(&w);
}

TEST(time, turn_does_not_move_virtual_time)
{
    struct world w;
    world_open(&w);
    vow_future *f = vow_delay(w.loop, 1);
    world_turn(&w);
    CHECK_INT_EQ(vow_state_of(f), VOW_PENDING);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 0);
    world_run(&w);
    vow_future_unref(f);
    world_close(&w);
}

TEST(time, run_until_stops_when_its_future_is_settled)
{
    struct world w;
    world_open(&w);
    vow_future *near = vow_delay(w.loop, 10), *far = vow_delay(w.loop, 20);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, near), 0);
    CHECK_UINT_EQ(now_ms(&w), 10);
    CHECK_INT_EQ(vow_state_of(far), VOW_PENDING);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, far), 0);
    CHECK_UINT_EQ(now_ms(&w), 20);
    vow_future_unref(near);
    vow_future_unref(far);
    world_close(&w);
}

TEST(time, run_until_tells_the_code_or_that_it_is_still_pending)
{
    struct world w;
    world_open(&w);
    vow_deferred *d;
    vow_future *f = vow_promise(w.loop, &d);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), VOW_EAGAIN);
    vow_reject_code(d, VOW_EIO, NULL);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), VOW_EIO);
    vow_deferred_unref(d);
    vow_future_unref(f);
    world_close(&w);
}

TEST(time, the_same_seed_gives_the_same_random_numbers)
{
    struct world a, b, c;
    world_open_with(&a, VOW_LOOP_OPTS(.seed = 42));
    world_open_with(&b, VOW_LOOP_OPTS(.seed = 42));
    world_open_with(&c, VOW_LOOP_OPTS(.seed = 43));
    int same = 0;
    for (int i = 0; i < 100; i++) {
        uint64_t x = vow_loop_random(a.loop);
        CHECK_UINT_EQ(x, vow_loop_random(b.loop));
        same += x == vow_loop_random(c.loop);
    }
    CHECK_INT_EQ(same, 0);
    world_close(&a);
    world_close(&b);
    world_close(&c);
}

/* ---- delay -------------------------------------------------------------- */

TEST(time, delay_is_never_early)
{
    struct world w;
    world_open(&w);
    world_advance_ms(&w, 3);
    vow_future *f = vow_delay(w.loop, 5);
    CHECK_UINT_EQ(timers(&w), 1);
    world_advance_ms(&w, 4);
    CHECK_INT_EQ(vow_state_of(f), VOW_PENDING);
    world_advance_ms(&w, 1);
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    CHECK_INT_EQ(vow_kind_of(vow_get(f)), VOW_NOTHING);
    CHECK_UINT_EQ(timers(&w), 0);
    vow_future_unref(f);
    world_close(&w);
}

TEST(time, delay_of_nothing_is_over_in_the_next_turn_not_at_once)
{
    struct world w;
    world_open(&w);
    vow_future *f = vow_delay(w.loop, 0);
    CHECK_INT_EQ(vow_state_of(f), VOW_PENDING);
    world_turn(&w);
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 0);
    vow_future_unref(f);
    world_close(&w);
}

/* What fired, in order, and when. */
struct fired {
    struct world *w;
    size_t n;
    int id[8];
    uint64_t at_ms[8];
};

struct alarm {
    struct fired *fired;
    int id;
};

static vow_next note_alarm(vow_value v, void *user)
{
    struct alarm *a = user;
    struct fired *f = a->fired;
    (void)v;
    f->id[f->n] = a->id;
    f->at_ms[f->n++] = now_ms(f->w);
    return vow_ok(vow_nothing());
}

static void set_alarm(struct alarm *a, uint64_t ms)
{
    vow_future *f = vow_delay(a->fired->w->loop, ms);
    vow_future_unref(vow_then(f, note_alarm, NULL, a));
    vow_future_unref(f);
}

TEST(time, delays_fire_by_due_time_then_by_creation_each_at_its_own_time)
{
    struct world w;
    world_open(&w);
    struct fired fired = {.w = &w};
    static const uint64_t ms[6] = {30, 10, 20, 10, 0, 30};
    static const int order[6] = {4, 1, 3, 2, 0, 5};
    struct alarm a[6];
    for (int i = 0; i < 6; i++) {
        a[i] = (struct alarm){&fired, i};
        set_alarm(&a[i], ms[i]);
    }
    world_advance_ms(&w, 1000);
    CHECK_UINT_EQ(fired.n, 6);
    for (int i = 0; i < 6; i++) {
        CHECK_INT_EQ(fired.id[i], order[i]);
        CHECK_UINT_EQ(fired.at_ms[i], ms[order[i]]);
    }
    CHECK_UINT_EQ(now_ms(&w), 1000);
    world_close(&w);
}

/* One of ten thousand, drawn at random. */
struct draw {
    struct world *w;
    uint64_t due_ms;
    size_t id;
    const struct draw **last;
};

static vow_next check_draw(vow_value v, void *user)
{
    const struct draw *me = user, *last = *me->last;
    (void)v;
    CHECK_UINT_EQ(now_ms(me->w), me->due_ms);
    if (last != NULL)
        CHECK(last->due_ms < me->due_ms ||
              (last->due_ms == me->due_ms && last->id < me->id));
    *me->last = me;
    return vow_ok(vow_nothing());
}

TEST(time, ten_thousand_random_delays_fire_in_order_and_every_third_not)
{
    enum { N = 10000 };
    struct world w;
    world_open(&w);
    uint64_t state = test_seed();
    const struct draw *last = NULL;
    struct draw *draws = calloc(N, sizeof(*draws));
    CHECK(draws != NULL);
    for (size_t i = 0; i < N; i++) {
        uint64_t ms = test_random(&state) % 1000;
        draws[i] = (struct draw){&w, ms, i, &last};
        vow_future *f = vow_delay(w.loop, ms);
        vow_future *g = vow_then(f, check_draw, NULL, &draws[i]);
        vow_future_unref(f);
        if (i % 3 == 0)
            vow_cancel(g, NULL);
        vow_future_unref(g);
    }
    CHECK_UINT_EQ(timers(&w), N - (N + 2) / 3);
    world_run(&w);
    CHECK_UINT_EQ(timers(&w), 0);
    CHECK(last != NULL);
    free(draws);
    world_close(&w);
}

struct ticker {
    struct world *w;
    int ticks;
};

static vow_next tick(vow_value v, void *user)
{
    struct ticker *t = user;
    (void)v;
    t->ticks++;
    CHECK_UINT_EQ(now_ms(t->w), (uint64_t)t->ticks * 10);
    if (t->ticks == 12)
        return vow_ok(vow_nothing());
    vow_future *f = vow_delay(t->w->loop, 10);
    vow_future_unref(vow_then(f, tick, NULL, t));
    vow_future_unref(f);
    return vow_ok(vow_nothing());
}

TEST(time, delays_made_while_time_advances_fire_at_their_own_time)
{
    struct world w;
    world_open(&w);
    struct ticker t = {.w = &w};
    vow_future *f = vow_delay(w.loop, 10);
    vow_future_unref(vow_then(f, tick, NULL, &t));
    vow_future_unref(f);
    world_advance_ms(&w, 105);
    CHECK_INT_EQ(t.ticks, 10);
    CHECK_UINT_EQ(now_ms(&w), 105);
    world_run(&w);
    CHECK_INT_EQ(t.ticks, 12);
    world_close(&w);
}

TEST(time, a_delay_longer_than_the_clock_does_not_wrap_round)
{
    struct world w;
    world_open(&w);
    world_advance_ms(&w, 5);
    vow_future *f = vow_delay(w.loop, UINT64_MAX);
    vow_future *g = vow_delay(w.loop, UINT64_MAX / 1000000);
    world_advance_ms(&w, 1000000000);
    CHECK_INT_EQ(vow_state_of(f), VOW_PENDING);
    CHECK_INT_EQ(vow_state_of(g), VOW_PENDING);
    CHECK(vow_cancel(f, NULL));
    CHECK(vow_cancel(g, NULL));
    vow_future_unref(f);
    vow_future_unref(g);
    world_close(&w);
}

TEST(time, a_canceled_delay_is_rejected_at_once_and_its_timer_is_gone)
{
    struct world w;
    world_open(&w);
    vow_future *f = vow_delay(w.loop, 50);
    CHECK(vow_cancel(f, NULL));
    check_rejected(f, VOW_ECANCELED);
    CHECK_UINT_EQ(timers(&w), 0);
    world_run(&w);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 0);
    check_rejected(f, VOW_ECANCELED);
    vow_future_unref(f);
    world_close(&w);
}

static vow_next note_real(vow_value v, void *user)
{
    struct world *w = *(struct world **)user;
    (void)v;
    return vow_ok(vow_int((int64_t)vow_loop_now_ns(w->loop)));
}

/* https://github.com/libuv/libuv/issues/1068: a stale clock fires early. */
TEST(time, delay_is_never_early_on_the_real_clock)
{
    enum { N = 20 };
    struct world w, *user = &w;
    world_open_real(&w);
    vow_future *f[N];
    uint64_t made[N];
    for (uint64_t i = 0; i < N; i++) {
        made[i] = vow_loop_now_ns(w.loop);
        vow_future *delay = vow_delay(w.loop, i / 2);
        f[i] = vow_then(delay, note_real, NULL, &user);
        vow_future_unref(delay);
        while (vow_loop_now_ns(w.loop) < made[i] + 300000)
            ; /* the loop's cached time goes stale meanwhile */
    }
    world_run(&w);
    for (uint64_t i = 0; i < N; i++) {
        uint64_t fired = (uint64_t)vow_as_int(vow_get(f[i]));
        CHECK(fired >= made[i] + i / 2 * 1000000);
        vow_future_unref(f[i]);
    }
    world_close(&w);
}

/* ---- timeout ------------------------------------------------------------ */

/* A source, its time limit of 10 ms, and whether it was asked to stop. */
struct limited {
    struct world w;
    vow_deferred *d;
    vow_future *f; /* NULL when only the limit holds it */
    vow_future *limit;
};

static vow_loop *limited_open(struct limited *l, bool shared)
{
    memset(l, 0, sizeof(*l));
    world_open(&l->w);
    l->f = vow_promise(l->w.loop, &l->d);
    l->limit = vow_timeout(l->f, 10);
    if (!shared)
        l->f = vow_future_unref(l->f);
    return l->w.loop;
}

static void limited_close(struct limited *l)
{
    if (vow_deferred_pending(l->d))
        vow_resolve(l->d, vow_nothing());
    vow_deferred_unref(l->d);
    vow_future_unref(l->f);
    vow_future_unref(l->limit);
    world_run(&l->w);
    world_close(&l->w);
}

TEST(time, timeout_has_the_value_and_leaves_no_timer)
{
    struct limited l;
    limited_open(&l, true);
    world_advance_ms(&l.w, 9);
    vow_resolve(l.d, vow_int(4));
    world_turn(&l.w);
    CHECK_INT_EQ(vow_state_of(l.limit), VOW_FULFILLED);
    CHECK_INT_EQ(vow_as_int(vow_get(l.limit)), 4);
    CHECK_UINT_EQ(timers(&l.w), 0);
    world_advance_ms(&l.w, 100);
    CHECK_INT_EQ(vow_state_of(l.limit), VOW_FULFILLED);
    limited_close(&l);
}

TEST(time, timeout_has_the_very_error)
{
    struct limited l;
    vow_error *e = vow_error_new(limited_open(&l, true), VOW_EIO, "no");
    vow_reject(l.d, e);
    world_turn(&l.w);
    CHECK_PTR_EQ(vow_error_of(l.limit), e);
    CHECK_UINT_EQ(timers(&l.w), 0);
    limited_close(&l);
}

TEST(time, timeout_rejects_after_its_time_and_not_before)
{
    struct limited l;
    limited_open(&l, true);
    world_advance_ms(&l.w, 9);
    CHECK_INT_EQ(vow_state_of(l.limit), VOW_PENDING);
    world_advance_ms(&l.w, 1);
    check_rejected(l.limit, VOW_ETIMEDOUT);
    limited_close(&l);
}

TEST(time, timeout_cancels_a_source_that_nobody_else_holds)
{
    struct limited l;
    limited_open(&l, false);
    world_advance_ms(&l.w, 10);
    check_rejected(l.limit, VOW_ETIMEDOUT);
    CHECK(!vow_deferred_pending(l.d));
    CHECK(!vow_resolve(l.d, vow_int(1)));
    limited_close(&l);
}

TEST(time, timeout_leaves_a_source_that_somebody_holds)
{
    struct limited l;
    vow_loop *loop = limited_open(&l, true);
    world_advance_ms(&l.w, 10);
    check_rejected(l.limit, VOW_ETIMEDOUT);
    CHECK_INT_EQ(vow_state_of(l.f), VOW_PENDING);
    CHECK(vow_resolve(l.d, vow_int(1)));
    world_run(&l.w);
    CHECK_INT_EQ(vow_as_int(vow_get(l.f)), 1);
    check_rejected(l.limit, VOW_ETIMEDOUT);
    vow_loop_stats st;
    vow_loop_stats_get(loop, &st);
    CHECK_UINT_EQ(st.late_settles, 0);
    limited_close(&l);
}

TEST(time, timeout_leaves_a_source_that_another_link_waits_for)
{
    struct limited l;
    limited_open(&l, true);
    vow_future *link = vow_then(l.f, NULL, NULL, NULL);
    l.f = vow_future_unref(l.f);
    world_advance_ms(&l.w, 10);
    check_rejected(l.limit, VOW_ETIMEDOUT);
    CHECK(vow_resolve(l.d, vow_int(1)));
    world_run(&l.w);
    CHECK_INT_EQ(vow_as_int(vow_get(link)), 1);
    vow_future_unref(link);
    limited_close(&l);
}

static void note_cancel(vow_error *why, void *user)
{
    *(int *)user = vow_error_code(why);
}

TEST(time, timeout_asks_a_source_that_runs_and_does_not_wait_for_it)
{
    struct limited l;
    limited_open(&l, false);
    int why = 0;
    vow_on_cancel(l.d, note_cancel, &why);
    world_advance_ms(&l.w, 10);
    check_rejected(l.limit, VOW_ETIMEDOUT);
    CHECK_INT_EQ(why, VOW_ECANCELED);
    CHECK(vow_deferred_pending(l.d));
    limited_close(&l);
}

TEST(time, timeout_of_a_settled_future_has_its_outcome)
{
    struct world w;
    world_open(&w);
    vow_future *f = vow_resolved(w.loop, vow_int(3));
    vow_future *limit = vow_timeout(f, 0);
    world_run(&w);
    CHECK_INT_EQ(vow_as_int(vow_get(limit)), 3);
    vow_future_unref(f);
    vow_future_unref(limit);
    world_close(&w);
}

TEST(time, canceling_a_timeout_cancels_source_and_timer)
{
    struct limited l;
    limited_open(&l, false);
    CHECK(vow_cancel(l.limit, NULL));
    check_rejected(l.limit, VOW_ECANCELED);
    CHECK(!vow_deferred_pending(l.d));
    CHECK_UINT_EQ(timers(&l.w), 0);
    limited_close(&l);
}

/* https://github.com/nodejs/node/issues/48951 */
TEST(time, a_hundred_thousand_timeouts_on_one_future_leak_nothing)
{
    struct limited l;
    vow_loop *loop = limited_open(&l, true);
    size_t bytes = 0;
    for (int i = 0; i < 100000; i++) {
        vow_future *f = vow_timeout(l.f, 1);
        world_advance_ms(&l.w, 1);
        check_rejected(f, VOW_ETIMEDOUT);
        vow_future_unref(f);
        if (i == 1000)
            bytes = l.w.alloc.live_bytes;
    }
    check_rejected(l.limit, VOW_ETIMEDOUT);
    CHECK(l.w.alloc.live_bytes <= bytes + 65536);
    vow_loop_stats st;
    vow_loop_stats_get(loop, &st);
    CHECK_UINT_EQ(st.futures, 2);
    CHECK_UINT_EQ(st.timers, 0);
    limited_close(&l);
}
