/* SPDX-License-Identifier: MIT */
/* ended_test.c - settled is not ended: what a future let go of while it ran
 * counts until it has ended, behind links, timeouts, combinators and finally;
 * and waiting for that costs no memory. */
#include "world.h"

#include "vow/watch.h"

enum { MANY = 20000, ROUNDS = 2000 };

/* Work that ends when the test says so, whoever has let go of it. */
struct work {
    vow_deferred *end;
    int asked;
};

static void on_asked(vow_error *why, void *user)
{
    (void)why;
    ((struct work *)user)->asked++;
}

static vow_future *work_open(struct work *k, vow_loop *loop)
{
    vow_future *f = vow_promise(loop, &k->end);
    k->asked = 0;
    vow_on_cancel(k->end, on_asked, k);
    return f;
}

static void work_end(struct work *k)
{
    CHECK(vow_resolve_drop(k->end, vow_nothing()));
}

struct watcher {
    vow_watch watch;
    int told;
};

static void on_end(vow_future *f, void *user)
{
    CHECK(vow_ended(f));
    ((struct watcher *)user)->told++;
}

static void count_settled(vow_future *f, void *user)
{
    (void)f;
    (*(int *)user)++;
}

static vow_next pass_value(vow_value v, void *user)
{
    (void)v;
    (void)user;
    return vow_pass();
}

static vow_next ignore_error(vow_error *e, void *user)
{
    (void)e;
    (void)user;
    return vow_ok(vow_nothing());
}

static vow_next count_call(void *user)
{
    (*(int *)user)++;
    return vow_ok(vow_nothing());
}

static void no_progress(vow_value v, void *user)
{
    (void)v;
    (void)user;
}

/* ---- one link, one work -------------------------------------------------- */

typedef vow_future *(*wrap_fn)(vow_loop *loop, vow_future *f, void *calls);

static vow_future *wrap_then(vow_loop *loop, vow_future *f, void *calls)
{
    (void)loop;
    (void)calls;
    return vow_then(f, pass_value, NULL, NULL);
}

static vow_future *wrap_finally(vow_loop *loop, vow_future *f, void *calls)
{
    (void)loop;
    return vow_finally(f, count_call, calls);
}

static vow_future *wrap_listen(vow_loop *loop, vow_future *f, void *calls)
{
    (void)loop;
    (void)calls;
    return vow_on_progress(f, no_progress, NULL);
}

static vow_future *wrap_timeout(vow_loop *loop, vow_future *f, void *calls)
{
    (void)loop;
    (void)calls;
    return vow_timeout(f, 60000);
}

static vow_future *wrap_follow(vow_loop *loop, vow_future *f, void *calls)
{
    vow_deferred *d;
    vow_future *out = vow_promise(loop, &d);
    (void)calls;
    CHECK(vow_resolve_with(d, f));
    vow_deferred_unref(d);
    return out;
}

static vow_future *wrap_all(vow_loop *loop, vow_future *f, void *calls)
{
    (void)calls;
    return vow_all(loop, &f, 1);
}

static vow_future *wrap_race(vow_loop *loop, vow_future *f, void *calls)
{
    (void)calls;
    return vow_race(loop, &f, 1);
}

static vow_future *wrap_deep(vow_loop *loop, vow_future *f, void *calls)
{
    VOW_AUTO(vow_future) a = wrap_finally(loop, f, calls);
    VOW_AUTO(vow_future) b = wrap_timeout(loop, a, calls);
    VOW_AUTO(vow_future) c = wrap_all(loop, b, calls);
    VOW_AUTO(vow_future) d = wrap_finally(loop, c, calls);
    return vow_then(d, pass_value, NULL, NULL);
}

static const wrap_fn wraps[] = {wrap_then,    wrap_finally, wrap_listen,
                                wrap_timeout, wrap_follow,  wrap_all,
                                wrap_race,    wrap_deep};

static void check_canceled_ends_late(wrap_fn wrap, bool late)
{
    struct world w;
    struct work k;
    struct watcher x = {.told = 0};
    int calls = 0;
    world_open(&w);
    vow_future *f = work_open(&k, w.loop);
    vow_future *out = wrap(w.loop, f, &calls);
    vow_future_unref(f);
    if (!late)
        vow_watch_start(&x.watch, out, on_end, &x);
    CHECK(vow_cancel(out, NULL));
    CHECK_INT_EQ(vow_error_code(vow_error_of(out)), VOW_ECANCELED);
    CHECK(!vow_ended(out));
    world_turn(&w);
    if (late)
        vow_watch_start(&x.watch, out, on_end, &x);
    world_turn(&w);
    CHECK_INT_EQ(k.asked, 1);
    CHECK_INT_EQ(x.told, 0);
    CHECK_INT_EQ(calls, 0);
    work_end(&k);
    world_run(&w);
    CHECK_INT_EQ(x.told, 1);
    CHECK(vow_ended(out));
    vow_future_unref(out);
    world_close(&w);
}

TEST(ended, a_canceled_link_ends_when_its_work_does)
{
    for (size_t i = 0; i < sizeof(wraps) / sizeof(wraps[0]); i++)
        check_canceled_ends_late(wraps[i], false);
}

TEST(ended, a_watch_that_starts_late_waits_as_well)
{
    for (size_t i = 0; i < sizeof(wraps) / sizeof(wraps[0]); i++)
        check_canceled_ends_late(wraps[i], true);
}

TEST(ended, what_only_waits_has_ended_with_its_cancel)
{
    for (size_t i = 0; i < sizeof(wraps) / sizeof(wraps[0]); i++) {
        struct world w;
        int calls = 0;
        world_open(&w);
        vow_future *f = vow_delay(w.loop, 1000);
        vow_future *out = wraps[i](w.loop, f, &calls);
        vow_future_unref(f);
        CHECK(vow_cancel(out, NULL));
        world_turn(&w);
        world_turn(&w);
        CHECK(vow_ended(out));
        vow_future_unref(out);
        world_close(&w);
    }
}

TEST(ended, a_settled_watch_is_told_before_the_end)
{
    struct world w;
    struct work k;
    struct watcher x = {.told = 0};
    world_open(&w);
    vow_future *f = work_open(&k, w.loop);
    vow_future *out = vow_timeout(f, 10);
    vow_future_unref(f);
    vow_watch_start(&x.watch, out, on_end, &x);
    vow_watch s = {0};
    int settled = 0;
    vow_watch_settled(&s, out, count_settled, &settled);
    world_advance_ms(&w, 10);
    CHECK_INT_EQ(settled, 1);
    CHECK_INT_EQ(vow_error_code(vow_error_of(out)), VOW_ETIMEDOUT);
    CHECK_INT_EQ(x.told, 0);
    work_end(&k);
    world_run(&w);
    CHECK_INT_EQ(x.told, 1);
    vow_future_unref(out);
    world_close(&w);
}

/* ---- what goes on behind a settled one ----------------------------------- */

TEST(ended, what_is_chained_to_an_expired_timeout_ends_with_its_work)
{
    struct world w;
    struct work k;
    world_open(&w);
    vow_future *f = work_open(&k, w.loop);
    vow_future *out = vow_then_drop(vow_timeout(f, 10), NULL, ignore_error, 0);
    out = vow_then_drop(out, pass_value, NULL, NULL);
    vow_future_unref(f);
    world_advance_ms(&w, 10);
    CHECK_INT_EQ(vow_state_of(out), VOW_FULFILLED);
    CHECK(!vow_ended(out));
    work_end(&k);
    CHECK(vow_ended(out));
    vow_future_unref(out);
    world_run(&w);
    world_close(&w);
}

static vow_next follow_link(void *link)
{
    return vow_follow(vow_future_ref(*(vow_future **)link));
}

TEST(ended, a_finally_that_waits_for_itself_ends_with_the_work_before_it)
{
    struct world w;
    struct work k;
    vow_future *out = NULL;
    world_open(&w);
    vow_future *f = work_open(&k, w.loop);
    vow_future *late = vow_timeout(f, 10);
    out = vow_finally(late, follow_link, &out);
    vow_future_unref(late);
    vow_future_unref(f);
    world_advance_ms(&w, 10);
    CHECK_INT_EQ(vow_error_code(vow_error_of(out)), VOW_ECYCLE);
    CHECK(!vow_ended(out));
    work_end(&k);
    world_run(&w);
    CHECK(vow_ended(out));
    vow_future_unref(out);
    world_close(&w);
}

TEST(ended, a_race_ends_when_its_losers_do)
{
    struct world w;
    struct work k[2];
    world_open(&w);
    vow_future *f[3] = {work_open(&k[0], w.loop), work_open(&k[1], w.loop),
                        vow_delay(w.loop, 60000)};
    vow_future *out = vow_race(w.loop, f, 3);
    for (int i = 0; i < 3; i++)
        vow_future_unref(f[i]);
    work_end(&k[0]);
    world_turn(&w);
    CHECK_INT_EQ(vow_state_of(out), VOW_FULFILLED);
    CHECK(!vow_ended(out));
    work_end(&k[1]);
    CHECK(vow_ended(out)); /* the delay only waits */
    vow_future_unref(out);
    world_run(&w);
    world_close(&w);
}

TEST(ended, a_list_of_outcomes_keeps_them_while_their_work_ends)
{
    struct world w;
    struct work k;
    world_open(&w);
    vow_future *f = work_open(&k, w.loop);
    vow_future *in[2] = {vow_timeout(f, 10), vow_resolved(w.loop, vow_int(7))};
    vow_future *out = vow_all_settled(w.loop, in, 2);
    vow_future_unref(f);
    vow_future_unref(in[0]);
    vow_future_unref(in[1]);
    world_advance_ms(&w, 10);
    CHECK_INT_EQ(vow_state_of(out), VOW_FULFILLED);
    CHECK(!vow_ended(out));
    work_end(&k);
    CHECK(vow_ended(out));
    CHECK_INT_EQ(vow_as_int(vow_list_get(vow_get(out), 1)), 7);
    CHECK_INT_EQ(vow_error_code(vow_error_of(vow_list_at(vow_get(out), 0))),
                 VOW_ETIMEDOUT);
    vow_future_unref(out);
    world_run(&w);
    world_close(&w);
}

TEST(ended, a_promise_ends_with_what_it_names)
{
    struct world w;
    struct work k;
    vow_deferred *d;
    world_open(&w);
    vow_future *f = work_open(&k, w.loop);
    vow_future *out = vow_promise(w.loop, &d);
    vow_ends_with(d, f);
    vow_future_unref(f);
    CHECK(vow_resolve_drop(d, vow_int(1)));
    CHECK(!vow_ended(out));
    work_end(&k);
    CHECK(vow_ended(out));
    vow_future_unref(out);
    world_close(&w);
}

/* ---- finally ------------------------------------------------------------- */

TEST(ended, a_canceled_finally_runs_when_the_work_behind_its_links_has_ended)
{
    struct world w;
    struct work k;
    int calls = 0;
    world_open(&w);
    vow_future *f = work_open(&k, w.loop);
    vow_future *out = vow_then(f, pass_value, NULL, NULL);
    vow_future *last = vow_finally(out, count_call, &calls);
    vow_future_unref(f);
    vow_future_unref(out);
    CHECK(vow_cancel(last, NULL));
    world_turn(&w);
    CHECK_INT_EQ(k.asked, 1);
    CHECK_INT_EQ(calls, 0);
    CHECK(!vow_ended(last));
    work_end(&k);
    world_run(&w);
    CHECK_INT_EQ(calls, 1);
    CHECK(vow_ended(last));
    vow_future_unref(last);
    world_close(&w);
}

/* ---- memory -------------------------------------------------------------- */

TEST(ended, expired_timeouts_of_a_shared_work_leave_nothing_behind)
{
    struct world w;
    struct work k;
    vow_loop_stats s;
    world_open(&w);
    vow_future *f = work_open(&k, w.loop);
    for (int i = 0; i < MANY; i++) {
        vow_future *t = vow_timeout(f, 1);
        (void)vow_error_of(t);
        (void)vow_cancel(t, NULL);
        vow_future_unref(t);
    }
    vow_loop_stats_get(w.loop, &s);
    CHECK_UINT_EQ(s.futures, 1);
    CHECK_INT_EQ(k.asked, 0);
    CHECK(vow_cancel(f, NULL));
    world_run(&w);
    CHECK_INT_EQ(k.asked, 1);
    work_end(&k);
    vow_future_unref(f);
    world_close(&w);
}

struct rounds {
    vow_loop *loop;
    int left;
    struct work now, before;
};

static vow_future *next_round(struct rounds *r);

/* The last attempt ends after the next has begun, as most do. */
static vow_next after_timeout(vow_error *e, void *user)
{
    struct rounds *r = user;
    (void)e;
    if (r->before.end != NULL)
        work_end(&r->before);
    r->before = r->now;
    if (r->left-- == 0) {
        work_end(&r->before);
        return vow_ok(vow_nothing());
    }
    return vow_follow(next_round(r));
}

static vow_future *next_round(struct rounds *r)
{
    vow_future *f = work_open(&r->now, r->loop);
    vow_future *t = vow_timeout(f, 1);
    vow_future_unref(f);
    return vow_then_drop(t, NULL, after_timeout, r);
}

TEST(ended, a_retry_of_attempts_that_end_late_stays_short)
{
    struct world w;
    vow_loop_stats s;
    world_open(&w);
    struct rounds r = {.loop = w.loop, .left = ROUNDS};
    vow_future *out = next_round(&r);
    world_advance_ms(&w, ROUNDS / 2);
    vow_loop_stats_get(w.loop, &s);
    CHECK(s.futures < 20);
    world_run(&w);
    CHECK_INT_EQ(vow_state_of(out), VOW_FULFILLED);
    CHECK(vow_ended(out));
    vow_future_unref(out);
    world_close(&w);
}
