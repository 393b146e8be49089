/* SPDX-License-Identifier: MIT */
/* core_findings_test.c - core: a handler that cancels what waits for it, whose
 * context a destructor and a handler see, and timers that are due. */
#include "world.h"

enum { NS_PER_MS = 1000000, REARMS = 3000 };

/* ---- canceling ---------------------------------------------------------- */

/* A step that, in its handler, loses its only reader and follows work. */
struct quitter {
    struct world w;
    vow_future *reader;
    vow_deferred *work;
    int asked;
};

static void on_asked(vow_error *why, void *user)
{
    struct quitter *q = user;
    q->asked++;
    (void)vow_reject(q->work, vow_error_ref(why));
}

static vow_next quit_and_follow(vow_value v, void *user)
{
    struct quitter *q = user;
    (void)v;
    CHECK(vow_cancel(q->reader, NULL));
    vow_future *f = vow_promise(q->w.loop, &q->work);
    vow_on_cancel(q->work, on_asked, q);
    return vow_follow(f);
}

TEST(cancel, a_handler_that_cancels_what_waits_for_it_lets_go_of_its_work)
{
    struct quitter q = {.asked = 0};
    world_open(&q.w);
    vow_future *step =
        vow_then_drop(vow_delay(q.w.loop, 1), quit_and_follow, NULL, &q);
    q.reader = vow_then_drop(step, NULL, NULL, NULL);
    world_advance_ms(&q.w, 10);
    CHECK_INT_EQ(q.asked, 1);
    CHECK_INT_EQ(vow_error_code(vow_error_of(q.reader)), VOW_ECANCELED);
    vow_deferred_unref(q.work);
    vow_future_unref(q.reader);
    world_close(&q.w);
}

TEST(cancel, a_handler_that_cancels_one_of_two_readers_keeps_its_work)
{
    struct quitter q = {.asked = 0};
    world_open(&q.w);
    vow_future *step =
        vow_then_drop(vow_delay(q.w.loop, 1), quit_and_follow, NULL, &q);
    q.reader = vow_then(step, NULL, NULL, NULL);
    vow_future *other = vow_then_drop(step, NULL, NULL, NULL);
    world_advance_ms(&q.w, 10);
    CHECK_INT_EQ(q.asked, 0);
    CHECK(vow_resolve_drop(q.work, vow_int(7)));
    world_advance_ms(&q.w, 1);
    CHECK_INT_EQ(vow_as_int(vow_get(other)), 7);
    vow_future_unref(other);
    vow_future_unref(q.reader);
    world_close(&q.w);
}

TEST(cancel, no_deferred_was_never_canceled)
{
    CHECK(!vow_deferred_canceled(NULL));
    CHECK(!vow_deferred_pending(NULL));
}

/* ---- contexts ----------------------------------------------------------- */

struct seen {
    vow_loop *loop;
    vow_context context;
    int looks;
    vow_context *current; /* at the last look */
};

static void look(void *user)
{
    struct seen *s = user;
    s->looks++;
    s->current = vow_context_current(s->loop);
}

static vow_next look_in_a_step(vow_value v, void *user)
{
    (void)v;
    look(user);
    return vow_ok(vow_nothing());
}

static vow_next own_something(vow_value v, void *user)
{
    (void)v;
    return vow_ok(vow_own(user, look));
}

static void no_drop(void *context)
{
    (void)context;
}

static void seen_open(struct seen *s, struct world *w)
{
    world_open(w);
    *s = (struct seen){.loop = w->loop, .context = {.drop = no_drop}};
    vow_context_init(&s->context, w->loop);
    s->current = &s->context;
}

static void seen_close(struct seen *s, struct world *w)
{
    CHECK_UINT_EQ(s->context.refs, 1);
    vow_context_unref(&s->context);
    world_close(w);
}

TEST(context, the_destructor_of_a_value_runs_in_none)
{
    struct world w;
    struct seen s;
    seen_open(&s, &w);
    vow_context *before = vow_context_enter(w.loop, &s.context);
    vow_future_unref(vow_resolved(w.loop, vow_own(&s, look)));
    CHECK_INT_EQ(s.looks, 1);
    CHECK_PTR_EQ(s.current, NULL);
    CHECK_PTR_EQ(vow_context_current(w.loop), &s.context); /* as before */
    vow_context_leave(w.loop, before);
    seen_close(&s, &w);
}

TEST(context, the_destructor_of_a_steps_value_runs_in_none)
{
    struct world w;
    struct seen s;
    seen_open(&s, &w);
    vow_context *before = vow_context_enter(w.loop, &s.context);
    CHECK_INT_EQ(vow_done(vow_delay(w.loop, 1), own_something, NULL, &s), 0);
    vow_context_leave(w.loop, before);
    world_run(&w);
    CHECK_INT_EQ(s.looks, 1);
    CHECK_PTR_EQ(s.current, NULL);
    seen_close(&s, &w);
}

TEST(context, the_destructor_of_a_step_that_never_runs_runs_in_none)
{
    struct world w;
    struct seen s;
    vow_deferred *d;
    seen_open(&s, &w);
    vow_context *before = vow_context_enter(w.loop, &s.context);
    const vow_step step = {.ok = look_in_a_step, .user = &s, .drop = look};
    vow_future *f = vow_promise(w.loop, &d);
    vow_future *last = vow_chain(f, &step, 1);
    CHECK(vow_cancel(last, NULL));
    vow_context_leave(w.loop, before);
    world_run(&w);
    CHECK_INT_EQ(s.looks, 1); /* the drop alone */
    CHECK_PTR_EQ(s.current, NULL);
    vow_deferred_unref(d);
    vow_future_unref(f);
    vow_future_unref(last);
    seen_close(&s, &w);
}

/* What is entered around a run is of the caller of the run. */
TEST(context, entered_around_a_run_it_is_not_seen_by_handlers)
{
    struct world w;
    struct seen s;
    seen_open(&s, &w);
    vow_future *f =
        vow_then_drop(vow_delay(w.loop, 1), look_in_a_step, NULL, &s);
    vow_context *before = vow_context_enter(w.loop, &s.context);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), 0);
    CHECK_INT_EQ(s.looks, 1);
    CHECK_PTR_EQ(s.current, NULL);
    CHECK_PTR_EQ(vow_context_current(w.loop), &s.context);
    vow_context_leave(w.loop, before);
    vow_future_unref(f);
    seen_close(&s, &w);
}

TEST(context, entered_around_a_run_it_is_not_seen_by_calls)
{
    struct world w;
    struct seen s;
    vow_call soon = {0};
    vow_call timed = {0};
    seen_open(&s, &w);
    vow_call_soon(&soon, w.loop, look, &s);
    vow_call_at(&timed, w.loop, NS_PER_MS, look, &s);
    vow_context *before = vow_context_enter(w.loop, &s.context);
    world_turn(&w);
    CHECK_INT_EQ(s.looks, 1);
    CHECK_PTR_EQ(s.current, NULL);
    s.current = &s.context;
    world_advance_ms(&w, 1);
    CHECK_INT_EQ(s.looks, 2);
    CHECK_PTR_EQ(s.current, NULL);
    CHECK_PTR_EQ(vow_context_current(w.loop), &s.context);
    vow_context_leave(w.loop, before);
    seen_close(&s, &w);
}

/* ---- timers ------------------------------------------------------------- */

struct rearm {
    vow_call call;
    vow_loop *loop;
    vow_future *until; /* it is settled */
    int calls;
};

static void call_again(void *user)
{
    struct rearm *r = user;
    bool over = vow_state_of(r->until) != VOW_PENDING;
    if (r->calls++ < REARMS && !over)
        vow_call_at(&r->call, r->loop, 0, call_again, r);
}

/* Its time, 0, is before that of all others: it must not always be next. */
TEST(call, one_that_is_always_overdue_does_not_starve_other_timers)
{
    struct world w;
    world_open(&w);
    world_advance_ms(&w, 5);
    struct rearm r = {.loop = w.loop, .until = vow_delay(w.loop, 0)};
    vow_call_at(&r.call, w.loop, 0, call_again, &r);
    world_run(&w);
    CHECK_INT_EQ(vow_state_of(r.until), VOW_FULFILLED);
    CHECK(r.calls < 10);
    vow_future_unref(r.until);
    world_close(&w);
}

TEST(call, one_that_is_always_overdue_does_not_stop_the_real_clock)
{
    struct world w;
    world_open_real(&w);
    uint64_t began = vow_loop_now_ns(w.loop);
    struct rearm r = {.loop = w.loop, .until = vow_delay(w.loop, 1)};
    r.calls = INT32_MIN; /* until the delay is over, however fast we are */
    vow_call_at(&r.call, w.loop, 0, call_again, &r);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, r.until), 0);
    CHECK(vow_loop_now_ns(w.loop) - began >= NS_PER_MS);
    (void)vow_call_stop(&r.call);
    vow_future_unref(r.until);
    world_close(&w);
}

struct holder {
    vow_call call;
    vow_loop *loop;
    int calls;
};

static void release(void *user)
{
    struct holder *h = user;
    h->calls++;
    vow_loop_release(h->loop);
}

/* Time stands while the loop is held, and what is due by then is due. */
TEST(call, a_due_timer_fires_while_the_loop_is_held)
{
    struct world w;
    world_open(&w);
    world_advance_ms(&w, 3);
    struct holder h = {.loop = w.loop};
    vow_loop_hold(w.loop);
    vow_call_at(&h.call, w.loop, 3 * NS_PER_MS, release, &h);
    world_run(&w);
    CHECK_INT_EQ(h.calls, 1);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 3 * NS_PER_MS);
    world_close(&w);
}

static vow_next release_in_a_step(vow_value v, void *user)
{
    (void)v;
    release(user);
    return vow_ok(vow_nothing());
}

TEST(delay, of_nothing_is_over_while_the_loop_is_held)
{
    struct world w;
    world_open(&w);
    struct holder h = {.loop = w.loop};
    vow_loop_hold(w.loop);
    CHECK_INT_EQ(vow_done(vow_delay(w.loop, 0), release_in_a_step, NULL, &h),
                 0);
    world_run(&w);
    CHECK_INT_EQ(h.calls, 1);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 0);
    world_close(&w);
}
