/* SPDX-License-Identifier: MIT */
/* refused_test.c - refusals say where they were asked for; due times end at the
 * end of time; and calls at a time come from the queue. */
#include "harness.h"
#include "world.h"

#include <string.h>

/* ---- refusals ------------------------------------------------------------ */

static void check_here(vow_future *f, int code, const char *text)
{
    CHECK(vow_state_of(f) == VOW_REJECTED);
    vow_error *e = vow_error_of(f);
    CHECK_INT_EQ(vow_error_code(e), code);
    CHECK(strstr(vow_error_message(e), text) != NULL);
    CHECK(strstr(vow_error_site(e), "refused_test.c:") != NULL);
}

TEST(refused, has_the_code_the_text_and_the_site)
{
    struct world w;
    world_open(&w);
    VOW_AUTO(vow_future) a = vow_refused(w.loop, VOW_EBUSY, "in use");
    VOW_AUTO(vow_future) b = vow_refused(w.loop, VOW_EBUSY, NULL);
    check_here(a, VOW_EBUSY, "in use");
    check_here(b, VOW_EBUSY, vow_error_text(VOW_EBUSY));
    a = vow_future_unref(a);
    b = vow_future_unref(b);
    world_close(&w);
}

static vow_gate_stats stats_of(const vow_gate *g)
{
    vow_gate_stats s;
    vow_gate_stats_get(g, &s);
    return s;
}

static vow_future *never_ends(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    (void)arg;
    return vow_delay(loop, 1000000);
}

static vow_future *of_another(vow_loop *loop, uint32_t attempt, void *other)
{
    (void)loop;
    (void)attempt;
    return vow_resolved((vow_loop *)other, vow_nothing());
}

TEST(refused, a_gate_refuses_a_future_of_another_loop)
{
    struct world w, other;
    vow_gate *g;
    world_open(&w);
    world_open(&other);
    CHECK_INT_EQ(vow_gate_new(w.loop, VOW_GATE(.concurrent = 1), &g), 0);
    vow_future *f = vow_gate_run(g, of_another, other.loop, NULL);
    world_run(&w);
    check_here(f, VOW_EINVAL, "no future of this loop");
    CHECK_UINT_EQ(stats_of(g).running, 0);
    vow_future_unref(f);
    vow_gate_unref(g);
    world_close(&other);
    world_close(&w);
}

TEST(refused, who_is_cleared_or_closed_out_hears_it_at_its_own_site)
{
    for (int close = 0; close < 2; close++) {
        struct world w;
        vow_gate *g;
        world_open(&w);
        CHECK_INT_EQ(vow_gate_new(w.loop, VOW_GATE(.concurrent = 1), &g), 0);
        vow_future *runs = vow_gate_run(g, never_ends, NULL, NULL);
        vow_future *waits = vow_gate_run(g, never_ends, NULL, NULL);
        world_advance_ms(&w, 1);
        if (close)
            vow_gate_close(g);
        else
            vow_gate_clear(g, NULL);
        check_here(waits, close ? VOW_ECLOSED : VOW_ECANCELED,
                   close ? "the gate is closed" : "cleared");
        CHECK(vow_cancel(runs, NULL));
        world_advance_ms(&w, 1);
        (void)vow_error_of(runs);
        vow_future_unref(runs);
        vow_future_unref(waits);
        vow_gate_unref(g);
        world_close(&w);
    }
}

TEST(refused, room_that_will_never_be_names_who_waited)
{
    struct world w;
    vow_gate *g;
    world_open(&w);
    CHECK_INT_EQ(
        vow_gate_new(w.loop, VOW_GATE(.concurrent = 1, .queue_bytes = 100), &g),
        0);
    vow_future *at_once = vow_gate_room(g, 101);
    check_here(at_once, VOW_EINVAL, "never be room");
    vow_future *runs = vow_gate_run(g, never_ends, NULL, NULL);
    vow_future *waits = vow_gate_run(g, never_ends, NULL, VOW_JOB(.bytes = 90));
    vow_future *room = vow_gate_room(g, 50);
    CHECK(vow_state_of(room) == VOW_PENDING);
    vow_gate_opts o = vow_gate_get(g);
    o.queue_bytes = 40;
    CHECK_INT_EQ(vow_gate_set(g, &o), 0);
    check_here(room, VOW_EINVAL, "never be room");
    world_turn(&w); /* that one runs */
    vow_gate_close(g);
    (void)vow_error_of(waits);
    CHECK(vow_cancel(runs, NULL));
    world_advance_ms(&w, 1);
    (void)vow_error_of(runs);
    vow_future_unref(at_once);
    vow_future_unref(runs);
    vow_future_unref(waits);
    vow_future_unref(room);
    vow_gate_unref(g);
    world_close(&w);
}

TEST(refused, bytes_that_would_wrap_around_are_refused)
{
    struct world w;
    vow_gate *g;
    world_open(&w);
    CHECK_INT_EQ(
        vow_gate_new(w.loop, VOW_GATE(.concurrent = 1, .queue_bytes = SIZE_MAX),
                     &g),
        0);
    vow_future *runs = vow_gate_run(g, never_ends, NULL, NULL);
    vow_future *half =
        vow_gate_run(g, never_ends, NULL, VOW_JOB(.bytes = SIZE_MAX / 2));
    vow_future *more = vow_gate_run(g, never_ends, NULL, VOW_JOB(.bytes = 2));
    vow_future *all =
        vow_gate_run(g, never_ends, NULL, VOW_JOB(.bytes = SIZE_MAX));
    CHECK(vow_state_of(half) == VOW_PENDING);
    check_here(more, VOW_EQUEUEFULL, "full");
    check_here(all, VOW_EQUEUEFULL, "full");
    CHECK_UINT_EQ(stats_of(g).waiting, 1);
    world_turn(&w); /* that one runs */
    vow_gate_close(g);
    (void)vow_error_of(half);
    CHECK(vow_cancel(runs, NULL));
    world_advance_ms(&w, 1);
    (void)vow_error_of(runs);
    vow_future_unref(runs);
    vow_future_unref(half);
    vow_future_unref(more);
    vow_future_unref(all);
    vow_gate_unref(g);
    world_close(&w);
}

/* ---- time ---------------------------------------------------------------- */

TEST(due, is_so_much_later_and_never_past_the_end_of_time)
{
    struct world w;
    world_open(&w);
    world_advance_ms(&w, 7);
    CHECK_UINT_EQ(vow_loop_due_ns(w.loop, 0), UINT64_C(7000000));
    CHECK_UINT_EQ(vow_loop_due_ns(w.loop, 5), UINT64_C(12000000));
    CHECK_UINT_EQ(vow_loop_due_ns(w.loop, UINT64_MAX), UINT64_MAX);
    CHECK_UINT_EQ(vow_loop_due_ns(w.loop, UINT64_MAX / 1000000), UINT64_MAX);
    world_close(&w);
}

struct order {
    vow_call call;
    vow_deferred *end;
    int at;
    int called;
    int settled;
};

static void settle_then_look(void *user)
{
    struct order *o = user;
    o->called = ++o->at;
    CHECK(vow_resolve(o->end, vow_nothing()));
    CHECK_INT_EQ(o->settled, 0); /* handlers come behind it, in the queue */
}

static vow_next on_settled(vow_value v, void *user)
{
    struct order *o = user;
    (void)v;
    o->settled = ++o->at;
    return vow_ok(vow_nothing());
}

static vow_next before_it(vow_value v, void *user)
{
    struct order *o = user;
    (void)v;
    CHECK_INT_EQ(o->called, 0);
    o->at++;
    return vow_ok(vow_nothing());
}

TEST(call, at_a_time_comes_from_the_queue_behind_what_became_ready_before)
{
    struct world w;
    struct order o = {.at = 0};
    world_open(&w);
    vow_future *first = vow_delay(w.loop, 5); /* due then too, and before it */
    CHECK_INT_EQ(vow_done(first, before_it, NULL, &o), 0);
    vow_future *f = vow_promise(w.loop, &o.end);
    CHECK_INT_EQ(vow_done(f, on_settled, NULL, &o), 0);
    vow_call_at(&o.call, w.loop, vow_loop_due_ns(w.loop, 5), settle_then_look,
                &o);
    world_advance_ms(&w, 5);
    CHECK_INT_EQ(o.called, 2);
    CHECK_INT_EQ(o.settled, 3);
    vow_deferred_unref(o.end);
    world_close(&w);
}
