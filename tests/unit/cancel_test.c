/* SPDX-License-Identifier: MIT */
/* cancel_test.c - canceling: at once for what waits, a request to what
 * runs, upstream only where nobody else holds; and the close of the loop, which
 * leaves no promise unsettled.
 *
 * Promises that hang for ever when their queue is cleared:
 * https://github.com/sindresorhus/p-limit/issues/25,
 * https://github.com/sindresorhus/p-queue/issues/239. */
#include "set.h"

#include "vow/combine.h"

/* ---- a world with some promises ----------------------------------------- */

static void let_go(struct set *s, int i)
{
    s->f[i] = vow_future_unref(s->f[i]);
}

static void set_close(struct set *s)
{
    set_settle(s);
    set_drop(s);
    world_run(&s->w);
    world_close(&s->w);
}

struct seen {
    int ok, fail, code;
};

static vow_next seen_ok(vow_value v, void *user)
{
    (void)v;
    ((struct seen *)user)->ok++;
    return vow_pass();
}

static vow_next seen_fail(vow_error *e, void *user)
{
    struct seen *s = user;
    s->fail++;
    s->code = vow_error_code(e);
    return vow_ok(vow_int(7));
}

static vow_future *then(struct set *s, vow_future *f, struct seen *seen)
{
    return keep(s, vow_then(f, seen_ok, seen_fail, seen));
}

static void count_drop(void *ptr)
{
    ++*(int *)ptr;
}

/* ---- what waits --------------------------------------------------------- */

TEST(cancel, rejects_what_waits_at_once)
{
    struct set s;
    set_open(&s);
    CHECK(vow_cancel(s.f[0], NULL));
    check_rejected(s.f[0], VOW_ECANCELED);
    CHECK_PTR_EQ(vow_error_cause(vow_error_of(s.f[0])), NULL);
    CHECK(!vow_deferred_pending(s.d[0]));
    CHECK(!vow_cancel(s.f[0], NULL));
    set_close(&s);
}

/* https://github.com/golang/go/issues/27837 */
TEST(cancel, keeps_why_as_the_cause_and_hides_no_first_cause)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_error *root = vow_error_new(loop, VOW_EIO, "the disk");
    vow_error *why = vow_error_wrap(loop, VOW_EBUSY, root, "gave up");
    vow_cancel(s.f[0], why);
    check_rejected(s.f[0], VOW_ECANCELED);
    CHECK_PTR_EQ(vow_error_cause(vow_error_of(s.f[0])), why);
    CHECK_PTR_EQ(vow_error_root(vow_error_of(s.f[0])), root);
    vow_error_unref(root);
    vow_error_unref(why);
    set_close(&s);
}

TEST(cancel, of_a_settled_future_is_refused)
{
    struct set s;
    set_open(&s);
    vow_resolve(s.d[0], vow_int(1));
    vow_reject_code(s.d[1], VOW_EIO, NULL);
    CHECK(!vow_cancel(s.f[0], NULL));
    CHECK(!vow_cancel(s.f[1], NULL));
    check_fulfilled(s.f[0], 1);
    check_rejected(s.f[1], VOW_EIO);
    set_close(&s);
}

TEST(cancel, reaches_the_handlers_below_and_they_may_recover)
{
    struct set s;
    set_open(&s);
    struct seen seen = {0};
    vow_future *g = then(&s, s.f[0], &seen);
    vow_cancel(s.f[0], NULL);
    CHECK_INT_EQ(seen.fail, 0);
    world_run(&s.w);
    CHECK_INT_EQ(seen.fail, 1);
    CHECK_INT_EQ(seen.code, VOW_ECANCELED);
    check_fulfilled(g, 7);
    set_close(&s);
}

TEST(cancel, a_canceled_step_never_runs)
{
    struct set s;
    set_open(&s);
    struct seen seen = {0};
    vow_future *g = then(&s, s.f[0], &seen);
    vow_future *h = then(&s, s.f[1], &seen);
    vow_cancel(g, NULL);
    check_rejected(g, VOW_ECANCELED);
    vow_resolve(s.d[0], vow_int(1));
    vow_resolve(s.d[1], vow_int(1));
    vow_cancel(h, NULL);
    check_rejected(h, VOW_ECANCELED);
    world_run(&s.w);
    CHECK_INT_EQ(seen.ok + seen.fail, 0);
    set_close(&s);
}

TEST(cancel, in_the_middle_goes_down_and_leaves_a_held_source)
{
    struct set s;
    set_open(&s);
    struct seen mid = {0}, below = {0};
    vow_future *m = then(&s, s.f[0], &mid);
    then(&s, m, &below);
    vow_cancel(m, NULL);
    world_run(&s.w);
    CHECK_INT_EQ(mid.ok + mid.fail, 0);
    CHECK_INT_EQ(below.code, VOW_ECANCELED);
    CHECK(vow_resolve(s.d[0], vow_int(1)));
    set_close(&s);
}

TEST(cancel, settling_afterwards_is_late_and_drops_the_value_once)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    int drops = 0;
    vow_cancel(s.f[0], NULL);
    CHECK(!vow_resolve(s.d[0], vow_own(&drops, count_drop)));
    CHECK_INT_EQ(drops, 1);
    vow_loop_stats st;
    vow_loop_stats_get(loop, &st);
    CHECK_UINT_EQ(st.late_settles, 1);
    set_close(&s);
    CHECK_INT_EQ(drops, 1);
}

TEST(cancel, is_never_told_as_unhandled)
{
    struct set s;
    set_open(&s);
    for (int i = 0; i < MANY; i++) {
        vow_future *g = vow_then(s.f[i], NULL, NULL, NULL);
        let_go(&s, i);
        vow_cancel(g, NULL);
        vow_future_unref(g);
    }
    world_run(&s.w);
    set_close(&s); /* which expects none */
}

static vow_next cancel_user(vow_value v, void *user)
{
    (void)v;
    CHECK(vow_cancel(*(vow_future **)user, NULL));
    return vow_ok(vow_int(1));
}

TEST(cancel, from_inside_a_handler_takes_back_what_is_already_queued)
{
    struct set s;
    set_open(&s);
    struct seen seen = {0};
    vow_future *victim = NULL;
    keep(&s, vow_then(s.f[0], cancel_user, NULL, &victim));
    victim = then(&s, s.f[0], &seen);
    vow_resolve(s.d[0], vow_int(1));
    world_run(&s.w);
    CHECK_INT_EQ(seen.ok + seen.fail, 0);
    check_rejected(victim, VOW_ECANCELED);
    set_close(&s);
}

TEST(cancel, of_its_own_future_inside_a_step_loses_what_the_step_returns)
{
    struct set s;
    set_open(&s);
    vow_future *own = NULL;
    own = keep(&s, vow_then(s.f[0], cancel_user, NULL, &own));
    vow_resolve(s.d[0], vow_int(1));
    world_run(&s.w);
    check_rejected(own, VOW_ECANCELED);
    set_close(&s);
}

/* ---- upstream ----------------------------------------------------------- */

TEST(cancel, goes_up_to_a_source_that_nobody_else_holds)
{
    struct set s;
    set_open(&s);
    vow_future *g = s.f[0];
    for (int i = 0; i < 3; i++) {
        vow_future *next = vow_then(g, NULL, NULL, NULL);
        vow_future_unref(g);
        g = next;
    }
    s.f[0] = NULL;
    keep(&s, g);
    CHECK(vow_cancel(g, NULL));
    world_run(&s.w);
    CHECK(!vow_deferred_pending(s.d[0]));
    CHECK(!vow_resolve(s.d[0], vow_int(1)));
    set_close(&s);
}

TEST(cancel, stops_at_a_source_that_somebody_holds)
{
    struct set s;
    set_open(&s);
    struct seen seen = {0};
    vow_future *g = then(&s, s.f[0], &seen);
    vow_cancel(g, NULL);
    world_run(&s.w);
    CHECK_INT_EQ(vow_state_of(s.f[0]), VOW_PENDING);
    CHECK(vow_resolve(s.d[0], vow_int(1)));
    set_close(&s);
}

TEST(cancel, stops_at_a_source_until_its_last_link_is_canceled)
{
    struct set s;
    set_open(&s);
    struct seen seen[3] = {{0}};
    vow_future *g[3];
    for (int i = 0; i < 3; i++)
        g[i] = then(&s, s.f[0], &seen[i]);
    let_go(&s, 0);
    vow_cancel(g[0], NULL);
    vow_cancel(g[2], NULL);
    world_run(&s.w);
    CHECK(vow_deferred_pending(s.d[0]));
    vow_cancel(g[1], NULL);
    world_run(&s.w);
    CHECK(!vow_deferred_pending(s.d[0]));
    set_close(&s);
}

TEST(cancel, leaves_the_value_to_the_other_links_of_a_source)
{
    struct set s;
    set_open(&s);
    struct seen gone = {0}, stays = {0};
    vow_future *g = then(&s, s.f[0], &gone);
    then(&s, s.f[0], &stays);
    let_go(&s, 0);
    vow_cancel(g, NULL);
    CHECK(vow_resolve(s.d[0], vow_int(1)));
    world_run(&s.w);
    CHECK_INT_EQ(gone.ok + gone.fail, 0);
    CHECK_INT_EQ(stays.ok, 1);
    set_close(&s);
}

TEST(cancel, goes_to_what_the_promise_follows_if_nobody_else_holds_it)
{
    struct set s;
    set_open(&s);
    vow_resolve_with(s.d[0], s.f[1]);
    vow_resolve_with(s.d[2], s.f[0]);
    let_go(&s, 1);
    CHECK(vow_cancel(s.f[2], NULL));
    world_run(&s.w);
    CHECK_INT_EQ(vow_state_of(s.f[0]), VOW_PENDING);
    CHECK(vow_deferred_pending(s.d[1]));
    CHECK(vow_cancel(s.f[0], NULL));
    check_rejected(s.f[0], VOW_ECANCELED);
    world_run(&s.w);
    CHECK(!vow_deferred_pending(s.d[1]));
    set_close(&s);
}

static vow_next follow_user(vow_value v, void *user)
{
    (void)v;
    return vow_follow(user);
}

TEST(cancel, goes_to_a_promise_that_a_step_inserted)
{
    struct set s;
    set_open(&s);
    vow_future *g = keep(&s, vow_then(s.f[0], follow_user, NULL, s.f[1]));
    s.f[1] = NULL; /* moved by the step */
    vow_resolve(s.d[0], vow_int(1));
    world_run(&s.w);
    CHECK(vow_deferred_pending(s.d[1]));
    CHECK(vow_cancel(g, NULL));
    check_rejected(g, VOW_ECANCELED);
    world_run(&s.w);
    CHECK(!vow_deferred_pending(s.d[1]));
    set_close(&s);
}

TEST(cancel, goes_up_a_million_links_with_bounded_stack)
{
    struct world w;
    world_open(&w);
    vow_deferred *d;
    vow_future *g = vow_promise(w.loop, &d);
    for (int i = 0; i < 1000000; i++) {
        vow_future *next = vow_then(g, NULL, NULL, NULL);
        vow_future_unref(g);
        g = next;
    }
    CHECK(vow_cancel(g, NULL));
    check_rejected(g, VOW_ECANCELED);
    world_run(&w);
    CHECK(!vow_resolve(d, vow_int(1)));
    vow_deferred_unref(d);
    vow_future_unref(g);
    world_close(&w);
}

TEST(cancel, goes_along_a_million_followed_promises_with_bounded_stack)
{
    struct world w;
    world_open(&w);
    vow_deferred *d, *next;
    vow_future *head = vow_promise(w.loop, &d);
    for (int i = 0; i < 1000000; i++) {
        vow_future *f = vow_promise(w.loop, &next);
        vow_resolve_with(d, f);
        vow_future_unref(f);
        vow_deferred_unref(d);
        d = next;
    }
    CHECK(vow_cancel(head, NULL));
    check_rejected(head, VOW_ECANCELED);
    world_run(&w);
    CHECK(!vow_deferred_pending(d));
    vow_deferred_unref(d);
    vow_future_unref(head);
    world_close(&w);
}

/* ---- what runs ---------------------------------------------------------- */

struct worker {
    vow_deferred *d;
    int asked, code;
    vow_error *cause; /* only to compare */
    bool stops;       /* settles as the header shows */
};

static void worker_asked(vow_error *why, void *user)
{
    struct worker *k = user;
    k->asked++;
    k->code = vow_error_code(why);
    k->cause = vow_error_cause(why);
    if (k->stops)
        CHECK(vow_reject(k->d, vow_error_ref(why)));
}

TEST(cancel, asks_what_runs_from_the_queue_and_does_not_reject_it)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    struct worker k = {.d = s.d[0]};
    vow_on_cancel(s.d[0], worker_asked, &k);
    vow_error *why = vow_error_new(loop, VOW_EBUSY, "enough");
    CHECK(vow_cancel(s.f[0], why));
    CHECK_INT_EQ(k.asked, 0);
    world_run(&s.w);
    CHECK_INT_EQ(k.asked, 1);
    CHECK_INT_EQ(k.code, VOW_ECANCELED);
    CHECK_PTR_EQ(k.cause, why);
    CHECK_INT_EQ(vow_state_of(s.f[0]), VOW_PENDING);
    CHECK(vow_resolve(s.d[0], vow_int(5)));
    check_fulfilled(s.f[0], 5);
    vow_error_unref(why);
    set_close(&s);
}

TEST(cancel, what_runs_may_stop_by_rejecting_with_why)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    struct worker k = {.d = s.d[0], .stops = true};
    struct seen seen = {0};
    then(&s, s.f[0], &seen);
    vow_on_cancel(s.d[0], worker_asked, &k);
    vow_error *why = vow_error_new(loop, VOW_EBUSY, "enough");
    vow_cancel(s.f[0], why);
    world_run(&s.w);
    check_rejected(s.f[0], VOW_ECANCELED);
    CHECK_PTR_EQ(vow_error_root(vow_error_of(s.f[0])), why);
    CHECK_INT_EQ(seen.code, VOW_ECANCELED);
    vow_error_unref(why);
    set_close(&s);
}

TEST(cancel, of_a_link_rejects_the_link_and_asks_the_source_that_runs)
{
    struct set s;
    set_open(&s);
    struct worker k = {.d = s.d[0]};
    struct seen seen = {0};
    vow_on_cancel(s.d[0], worker_asked, &k);
    vow_future *g = then(&s, s.f[0], &seen);
    let_go(&s, 0);
    vow_cancel(g, NULL);
    check_rejected(g, VOW_ECANCELED);
    CHECK(vow_deferred_pending(s.d[0]));
    world_run(&s.w);
    CHECK_INT_EQ(k.asked, 1);
    CHECK(vow_resolve(s.d[0], vow_int(1)));
    set_close(&s);
}

TEST(cancel, what_runs_is_not_asked_once_it_took_the_hook_back)
{
    struct set s;
    set_open(&s);
    struct worker k = {.d = s.d[0]};
    vow_on_cancel(s.d[0], worker_asked, &k);
    vow_on_cancel(s.d[0], NULL, NULL);
    vow_cancel(s.f[0], NULL);
    check_rejected(s.f[0], VOW_ECANCELED);
    vow_on_cancel(s.d[1], worker_asked, &k);
    vow_cancel(s.f[1], NULL);
    vow_on_cancel(s.d[1], NULL, NULL);
    world_run(&s.w);
    CHECK_INT_EQ(k.asked, 0);
    set_close(&s);
}

TEST(cancel, what_ran_is_not_asked_after_it_settled)
{
    struct set s;
    set_open(&s);
    struct worker k = {.d = s.d[0]};
    vow_on_cancel(s.d[0], worker_asked, &k);
    vow_resolve(s.d[0], vow_int(1));
    CHECK(!vow_cancel(s.f[0], NULL));
    vow_on_cancel(s.d[1], worker_asked, &k);
    CHECK(vow_cancel(s.f[1], NULL));
    CHECK(vow_resolve(s.d[1], vow_int(2)));
    world_run(&s.w);
    CHECK_INT_EQ(k.asked, 0);
    check_fulfilled(s.f[1], 2);
    set_close(&s);
}

/* ---- the close of the loop ---------------------------------------------- */

static void close_loop(struct world *w)
{
    CHECK_INT_EQ(vow_loop_close(w->loop), 0);
    w->loop = NULL;
}

TEST(cancel, the_close_rejects_what_is_pending_and_runs_its_handlers)
{
    struct world w;
    world_open(&w);
    vow_deferred *d;
    vow_future *f = vow_promise(w.loop, &d);
    vow_future *delay = vow_delay(w.loop, 1000);
    struct seen seen = {0}, timer = {0}, after = {0};
    vow_future *g = vow_then(f, seen_ok, seen_fail, &seen);
    vow_future *h = vow_then(g, seen_ok, seen_fail, &after);
    vow_future_unref(vow_then(delay, seen_ok, seen_fail, &timer));
    close_loop(&w);
    CHECK_INT_EQ(seen.code, VOW_ECLOSED);
    CHECK_INT_EQ(seen.fail, 1);
    CHECK_INT_EQ(timer.code, VOW_ECLOSED);
    CHECK_INT_EQ(after.ok + after.fail, 1);
    vow_deferred_unref(d);
    vow_future_unref(f);
    vow_future_unref(g);
    vow_future_unref(h);
    vow_future_unref(delay);
    world_close_dirty(&w);
}

struct starter {
    struct seen seen;
    vow_loop *loop;
};

static vow_next start_more(vow_error *e, void *user)
{
    struct starter *st = user;
    (void)e;
    vow_future *delay = vow_delay(st->loop, 5);
    vow_future_unref(vow_then(delay, seen_ok, seen_fail, &st->seen));
    vow_future_unref(delay);
    return vow_ok(vow_nothing());
}

TEST(cancel, the_close_settles_also_what_a_handler_starts_meanwhile)
{
    struct world w;
    world_open(&w);
    struct starter st = {.loop = w.loop};
    vow_deferred *d;
    vow_future *f = vow_promise(w.loop, &d);
    vow_future_unref(vow_catch(f, start_more, &st));
    close_loop(&w);
    CHECK_INT_EQ(st.seen.fail, 1);
    CHECK_INT_EQ(st.seen.code, VOW_ECLOSED);
    vow_deferred_unref(d);
    vow_future_unref(f);
    world_close_dirty(&w);
}
