/* SPDX-License-Identifier: MIT */
/* cancel_running_memory_test.c - what lets go of a shared future that stays
 * pending leaves nothing behind at it. */
#include "cancel_rig.h"

#include "vow/share.h"

enum {
    MANY_LINKS = TEST_ASAN || TEST_TSAN ? 50 * 1000 : 1000 * 1000,
    SOME_LINKS = MANY_LINKS / 10,
    WARM_UP = 2000,
    GROWTH_MAX = 256 * 1024 /* bytes, for pools that fill up */
};

static void check_growth(struct cancel_rig *r, size_t before)
{
    size_t now = r->w.alloc.live_bytes;
    if (now > before + GROWTH_MAX)
        FAIL("%s: grew from %zu to %zu bytes", r->name, before, now);
}

/* Attaches and cancels so many links of one kind. */
static void cancel_many_links(enum body_kind kind, enum body_wrap wrap, int n)
{
    struct cancel_rig r;
    size_t before = 0;
    cancel_open(&r, 1);
    struct body *b = cancel_body(&r, kind, wrap);
    cancel_name(&r, "links", b, OUTSIDE_CANCEL);
    vow_future *shared = body_open(b);
    for (int i = 0; i < n; i++) {
        vow_future *f = chain_link(r.w.loop, wrap, vow_future_ref(shared));
        if (wrap == WRAP_RESOLVE_WITH)
            world_turn(&r.w);
        (void)vow_cancel(f, NULL);
        vow_future_unref(f);
        if (i % 500 == 0)
            world_turn(&r.w);
        if (i == WARM_UP)
            before = r.w.alloc.live_bytes;
    }
    world_turn(&r.w);
    check_growth(&r, before);
    CHECK_INT_EQ(vow_state_of(shared), VOW_PENDING);
    vow_future_unref(shared);
    CHECK_INT_EQ(cancel_close(&r), 0);
}

TEST(cancel_running_memory, a_million_canceled_links_leave_nothing)
{
    cancel_many_links(BODY_PROMISE, WRAP_THEN, MANY_LINKS);
}

/* A finally runs when its source ends, and a member stays in its scope until
 * then: so many wait. The race here has a timer that nobody cancels. */
TEST(cancel_running_memory, canceled_links_of_every_kind_leave_nothing)
{
    for (int wrap = WRAP_THEN; wrap < WRAP_LINKS; wrap++) {
        if (wrap == WRAP_FINALLY || wrap == WRAP_THEN_FINALLY_CATCH ||
            wrap == WRAP_FOLLOW || wrap == WRAP_FINALLY_FOLLOW ||
            wrap == WRAP_RACE || wrap == WRAP_SCOPE ||
            wrap == WRAP_DONE_BESIDE || wrap == WRAP_FINALLY_BESIDE)
            continue;
        cancel_many_links(BODY_FIBER, (enum body_wrap)wrap, SOME_LINKS);
        cancel_many_links(BODY_PROMISE, (enum body_wrap)wrap, SOME_LINKS);
    }
}

TEST(cancel_running_memory, a_million_timeouts_leave_nothing)
{
    struct cancel_rig r;
    size_t before = 0;
    cancel_open(&r, 1);
    struct body *b = cancel_body(&r, BODY_FIBER, WRAP_BARE);
    cancel_name(&r, "timeouts", b, OUTSIDE_TIMEOUT);
    vow_future *shared = body_open(b);
    for (int i = 0; i < MANY_LINKS; i++) {
        vow_future *f = vow_timeout(shared, 1 + (uint64_t)i % 3);
        if (i % 4 == 0) /* a link on the timeout, which nobody else holds */
            f = vow_then_drop(f, chain_ok, NULL, NULL);
        CHECK_INT_EQ(vow_done(f, NULL, chain_ignore, NULL), 0);
        if (i % 100 == 0)
            world_advance_ms(&r.w, 4);
        if (i == WARM_UP)
            before = r.w.alloc.live_bytes;
    }
    world_advance_ms(&r.w, 4);
    check_growth(&r, before);
    CHECK_INT_EQ(vow_state_of(shared), VOW_PENDING);
    vow_future_unref(shared);
    CHECK_INT_EQ(cancel_close(&r), 0);
}

/* Waiting in turns: a fiber that looks every few milliseconds. */
static vow_next await_in_turns(void *arg)
{
    struct body *b = arg;
    for (int i = 0; i < SOME_LINKS; i++) {
        VOW_AUTO(vow_future) f = vow_timeout(b->raw, 1);
        CHECK_INT_EQ(vow_await(f), VOW_ETIMEDOUT);
        if (i == WARM_UP)
            b->range.next = (int64_t)b->rig->w.alloc.live_bytes;
    }
    return vow_ok(vow_nothing());
}

TEST(cancel_running_memory, a_fiber_that_waits_in_turns_leaves_nothing)
{
    struct cancel_rig r;
    cancel_open(&r, 1);
    struct body *b = cancel_body(&r, BODY_PROMISE, WRAP_BARE);
    b->keeps = true;
    vow_future_unref(body_open(b));
    vow_future *f = vow_async(r.w.loop, await_in_turns, b);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
    check_growth(&r, (size_t)b->range.next);
    vow_future_unref(f);
    CHECK_INT_EQ(cancel_close(&r), 0);
}

/* ---- jobs of a gate ------------------------------------------------------ */

/* Jobs that end behind a link of a future that goes on for others: a limit that
 * is held by one at a time keeps the number of such jobs small. */
TEST(cancel_running_memory, jobs_that_wait_and_leave_leave_nothing)
{
    struct cancel_rig r;
    vow_gate *g;
    size_t before = 0;
    cancel_open(&r, 1);
    CHECK_INT_EQ(vow_gate_new(r.w.loop, VOW_GATE(.concurrent = 1), &g), 0);
    struct body *a = cancel_body(&r, BODY_FIBER, WRAP_THEN);
    struct body *b = cancel_short_body(&r, BODY_FIBER, WRAP_BARE);
    vow_future *fa = vow_gate_run(g, body_start, a, NULL);
    world_turn(&r.w);
    CHECK(vow_cancel(fa, NULL) || vow_state_of(fa) != VOW_PENDING);
    for (int i = 0; i < SOME_LINKS; i++) {
        vow_future *f = vow_gate_run(g, body_start, b, NULL);
        vow_future *t = vow_timeout(f, 1);
        vow_future_unref(f);
        CHECK_INT_EQ(vow_done(t, NULL, chain_ignore, NULL), 0);
        if (i % 50 == 0)
            world_advance_ms(&r.w, 2);
        if (i == WARM_UP)
            before = r.w.alloc.live_bytes;
    }
    world_advance_ms(&r.w, 2);
    check_growth(&r, before);
    CHECK_INT_EQ(b->calls, 0);
    body_release(a);
    world_run(&r.w);
    cancel_settled(&r, fa, "the first job");
    vow_gate_unref(g);
    CHECK_INT_EQ(cancel_close(&r), 0);
}

/* Jobs that run one after the other and are all canceled behind a link. */
TEST(cancel_running_memory, jobs_canceled_in_their_run_leave_nothing)
{
    struct cancel_rig r;
    vow_gate *g;
    size_t before = 0;
    cancel_open(&r, 1);
    CHECK_INT_EQ(vow_gate_new(r.w.loop, VOW_GATE(.concurrent = 1), &g), 0);
    for (int i = 0; i < SOME_LINKS; i++) {
        struct body *b = &r.bodies[0];
        if (i == 0)
            b = cancel_body(&r, BODY_PROMISE, WRAP_THEN_FINALLY_CATCH);
        b->released = false;
        vow_future *f = vow_gate_run(g, body_start, b, NULL);
        world_turn(&r.w);
        CHECK_INT_EQ(b->calls, i + 1);
        (void)vow_cancel(f, NULL);
        vow_future_unref(f);
        world_turn(&r.w);
        body_release(b);
        world_turn(&r.w);
        if (i == WARM_UP)
            before = r.w.alloc.live_bytes;
    }
    check_growth(&r, before);
    vow_gate_unref(g);
    CHECK_INT_EQ(cancel_close(&r), 0);
}

/* ---- named work ---------------------------------------------------------- */

static vow_future *run_for_many(vow_lease *lease, void *body)
{
    (void)lease;
    return body_begin(body);
}

TEST(cancel_running_memory, askers_who_leave_leave_nothing)
{
    struct cancel_rig r;
    vow_name name = vow_name_of("shared");
    size_t before = 0;
    cancel_open(&r, 1);
    vow_future *open = vow_authority_open(r.w.loop, "memory:", NULL);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, open), 0);
    vow_authority *at = vow_authority_ref(vow_as_ptr(vow_get(open)));
    vow_future_unref(open);
    struct body *b = cancel_body(&r, BODY_FIBER, WRAP_THEN);
    vow_future *stays = vow_share(at, &name, run_for_many, b, NULL);
    for (int i = 0; i < SOME_LINKS; i++) {
        vow_future *f =
            vow_share(at, &name, run_for_many, b,
                      i % 2 == 0 ? NULL : VOW_SHARE(.deadline_ms = 1));
        if (i % 4 == 0)
            (void)vow_cancel(f, NULL);
        vow_future *t = vow_timeout(f, 2);
        vow_future_unref(f);
        CHECK_INT_EQ(vow_done(t, NULL, chain_ignore, NULL), 0);
        if (i % 50 == 0)
            world_advance_ms(&r.w, 3);
        if (i == WARM_UP)
            before = r.w.alloc.live_bytes;
    }
    world_advance_ms(&r.w, 3);
    check_growth(&r, before);
    CHECK_INT_EQ(b->calls, 1);
    body_release(b);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, stays), 0);
    vow_future_unref(stays);
    vow_future *closed = vow_authority_close(at);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, closed), 0);
    vow_future_unref(closed);
    vow_authority_unref(at);
    CHECK_INT_EQ(cancel_close(&r), 0);
}
