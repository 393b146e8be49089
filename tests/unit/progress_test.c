/* SPDX-License-Identifier: MIT */
/* progress_test.c - progress: down the chain to every listener, through
 * follow, fan-out and combinators, the latest of a turn, never after the end.
 *
 * Others gave progress up because it neither bubbled nor composed:
 * https://github.com/kriskowal/q/issues/333, /113,
 * https://github.com/reactphp/promise/issues/32. */
#include "set.h"

#include "vow/combine.h"

/* ---- a world with ears -------------------------------------------------- */

enum { HEARD_MAX = 8 };

static void set_close(struct set *s)
{
    set_settle(s);
    world_run(&s->w);
    set_drop(s);
    world_close(&s->w);
}

struct ear {
    int n;
    int64_t heard[HEARD_MAX];
};

static void hear(vow_value v, void *user)
{
    struct ear *e = user;
    CHECK(e->n < HEARD_MAX);
    e->heard[e->n++] = vow_as_int(v);
}

static vow_future *listen(struct set *s, vow_future *f, struct ear *e)
{
    return keep(s, vow_on_progress(f, hear, e));
}

static void check_heard(const struct ear *e, int n, const int64_t *want)
{
    CHECK_INT_EQ(e->n, n);
    for (int i = 0; i < n; i++)
        CHECK_INT_EQ(e->heard[i], want[i]);
}
#define CHECK_HEARD(e, ...)                                                    \
    check_heard((e),                                                           \
                (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),     \
                (const int64_t[]){__VA_ARGS__})

static void notify_and_turn(struct set *s, int i, int64_t progress)
{
    CHECK(vow_notify(s->d[i], vow_int(progress)));
    world_turn(&s->w);
}

static vow_next pass_ok(vow_value v, void *user)
{
    (void)v;
    ++*(int *)user;
    return vow_pass();
}

static void count_drop(void *ptr)
{
    ++*(int *)ptr;
}

/* ---- one listener ------------------------------------------------------- */

TEST(progress, is_heard_from_the_queue_not_inside_notify)
{
    struct set s;
    set_open(&s);
    struct ear e = {0};
    listen(&s, s.f[0], &e);
    CHECK(vow_notify(s.d[0], vow_int(5)));
    CHECK_INT_EQ(e.n, 0);
    world_turn(&s.w);
    CHECK_HEARD(&e, 5);
    CHECK_INT_EQ(vow_state_of(s.f[0]), VOW_PENDING);
    set_close(&s);
}

TEST(progress, of_one_turn_is_coalesced_to_the_latest)
{
    struct set s;
    set_open(&s);
    struct ear e = {0};
    listen(&s, s.f[0], &e);
    for (int i = 1; i <= 100; i++)
        CHECK(vow_notify(s.d[0], vow_int(i)));
    world_turn(&s.w);
    CHECK_HEARD(&e, 100);
    world_run(&s.w);
    CHECK_INT_EQ(e.n, 1);
    set_close(&s);
}

TEST(progress, of_two_turns_is_heard_twice)
{
    struct set s;
    set_open(&s);
    struct ear e = {0};
    listen(&s, s.f[0], &e);
    notify_and_turn(&s, 0, 1);
    notify_and_turn(&s, 0, 2);
    CHECK_HEARD(&e, 1, 2);
    set_close(&s);
}

TEST(progress, after_settling_is_refused_and_dropped)
{
    struct set s;
    set_open(&s);
    struct ear e = {0};
    int drops = 0;
    listen(&s, s.f[0], &e);
    vow_resolve(s.d[0], vow_int(1));
    CHECK(!vow_notify(s.d[0], vow_own(&drops, count_drop)));
    CHECK_INT_EQ(drops, 1);
    world_run(&s.w);
    CHECK(!vow_notify(s.d[0], vow_int(3)));
    world_run(&s.w);
    CHECK_INT_EQ(e.n, 0);
    set_close(&s);
}

TEST(progress, after_canceling_is_refused)
{
    struct set s;
    set_open(&s);
    struct ear e = {0};
    vow_future *g = listen(&s, s.f[0], &e);
    vow_cancel(s.f[0], NULL);
    CHECK(!vow_notify(s.d[0], vow_int(3)));
    world_run(&s.w);
    CHECK_INT_EQ(e.n, 0);
    CHECK_INT_EQ(vow_error_code(vow_error_of(g)), VOW_ECANCELED);
    set_close(&s);
}

/* What was told before the end arrives before the end, also in one turn. */
struct tale {
    int n;
    char text[8];
};

static void tale_progress(vow_value v, void *user)
{
    struct tale *t = user;
    (void)v;
    t->text[t->n++] = 'p';
}

static vow_next tale_ok(vow_value v, void *user)
{
    struct tale *t = user;
    (void)v;
    t->text[t->n++] = 's';
    return vow_pass();
}

TEST(progress, comes_before_the_settlement_of_the_same_turn)
{
    struct set s;
    set_open(&s);
    struct tale t = {0};
    keep(&s, vow_then(s.f[0], tale_ok, NULL, &t));
    keep(&s, vow_on_progress(s.f[0], tale_progress, &t));
    CHECK(vow_notify(s.d[0], vow_int(1)));
    CHECK(vow_resolve(s.d[0], vow_int(2)));
    world_run(&s.w);
    CHECK_STR_EQ(t.text, "ps");
    set_close(&s);
}

TEST(progress, comes_before_the_settlement_at_the_end_of_a_chain)
{
    struct set s;
    set_open(&s);
    struct tale t = {0};
    int runs = 0;
    vow_future *g = keep(&s, vow_then(s.f[0], pass_ok, NULL, &runs));
    g = keep(&s, vow_then(g, pass_ok, NULL, &runs));
    keep(&s, vow_on_progress(g, tale_progress, &t));
    keep(&s, vow_then(g, tale_ok, NULL, &t));
    vow_notify(s.d[0], vow_int(1));
    vow_resolve(s.d[0], vow_int(2));
    world_run(&s.w);
    CHECK_STR_EQ(t.text, "ps");
    set_close(&s);
}

TEST(progress, is_not_kept_for_those_who_listen_later)
{
    struct set s;
    set_open(&s);
    struct ear early = {0}, late = {0};
    listen(&s, s.f[0], &early);
    notify_and_turn(&s, 0, 1);
    listen(&s, s.f[0], &late);
    world_turn(&s.w);
    CHECK_INT_EQ(late.n, 0);
    notify_and_turn(&s, 0, 2);
    CHECK_HEARD(&early, 1, 2);
    CHECK_HEARD(&late, 2);
    set_close(&s);
}

TEST(progress, is_heard_though_the_listeners_future_was_dropped)
{
    struct set s;
    set_open(&s);
    struct ear e = {0};
    vow_future_unref(vow_on_progress(s.f[0], hear, &e));
    notify_and_turn(&s, 0, 7);
    CHECK_HEARD(&e, 7);
    set_close(&s);
}

TEST(progress, listeners_future_has_the_outcome)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    struct ear e = {0};
    vow_future *ok = listen(&s, s.f[0], &e);
    vow_future *bad = listen(&s, s.f[1], &e);
    vow_error *error = vow_error_new(loop, VOW_EIO, "no");
    vow_resolve(s.d[0], vow_int(3));
    vow_reject(s.d[1], error);
    world_run(&s.w);
    CHECK_INT_EQ(vow_as_int(vow_get(ok)), 3);
    CHECK_PTR_EQ(vow_error_of(bad), error);
    CHECK_INT_EQ(e.n, 0);
    set_close(&s);
}

struct echo {
    vow_deferred *d;
    int runs, depth, deepest;
};

static void echo_back(vow_value v, void *user)
{
    struct echo *e = user;
    e->depth++;
    if (e->depth > e->deepest)
        e->deepest = e->depth;
    if (e->runs++ < 3)
        CHECK(vow_notify(e->d, vow_int(vow_as_int(v) + 1)));
    e->depth--;
}

TEST(progress, told_by_a_listener_is_heard_later_not_inside)
{
    struct set s;
    set_open(&s);
    struct echo e = {.d = s.d[0]};
    keep(&s, vow_on_progress(s.f[0], echo_back, &e));
    vow_notify(s.d[0], vow_int(1));
    world_run(&s.w);
    CHECK_INT_EQ(e.runs, 4);
    CHECK_INT_EQ(e.deepest, 1);
    set_close(&s);
}

static void settle_it(vow_value v, void *user)
{
    (void)v;
    vow_resolve(user, vow_int(9));
}

TEST(progress, listener_may_settle_what_it_listens_to)
{
    struct set s;
    set_open(&s);
    struct ear e = {0};
    vow_future *g = keep(&s, vow_on_progress(s.f[0], settle_it, s.d[0]));
    vow_notify(s.d[0], vow_int(1));
    world_run(&s.w);
    CHECK_INT_EQ(vow_as_int(vow_get(g)), 9);
    listen(&s, s.f[0], &e);
    world_run(&s.w);
    CHECK_INT_EQ(e.n, 0);
    set_close(&s);
}

/* ---- values ------------------------------------------------------------- */

TEST(progress, values_are_destroyed_once_however_they_end)
{
    struct set s;
    set_open(&s);
    int coalesced = 0, delivered = 0, unheard = 0, cut = 0;
    struct ear e = {0};
    listen(&s, s.f[0], &e);
    vow_notify(s.d[0], vow_own(&coalesced, count_drop));
    vow_notify(s.d[0], vow_own(&delivered, count_drop));
    vow_notify(s.d[1], vow_own(&unheard, count_drop));
    world_run(&s.w);
    CHECK_INT_EQ(coalesced, 1);
    CHECK_INT_EQ(e.n, 1);
    vow_notify(s.d[0], vow_own(&cut, count_drop));
    set_close(&s);
    CHECK_INT_EQ(coalesced, 1);
    CHECK_INT_EQ(delivered, 1);
    CHECK_INT_EQ(unheard, 1);
    CHECK_INT_EQ(cut, 1);
}

TEST(progress, told_a_million_times_takes_no_more_memory_than_once)
{
    struct set s;
    set_open(&s);
    struct ear e = {0};
    listen(&s, s.f[0], &e);
    vow_notify(s.d[0], vow_int(0));
    size_t bytes = s.w.alloc.live_bytes;
    for (int i = 1; i <= 1000000; i++)
        CHECK(vow_notify(s.d[0], vow_int(i)));
    CHECK_UINT_EQ(s.w.alloc.live_bytes, bytes);
    world_turn(&s.w);
    CHECK_HEARD(&e, 1000000);
    set_close(&s);
}

/* ---- down the chain ----------------------------------------------------- */

TEST(progress, goes_down_the_chain_to_every_listener)
{
    struct set s;
    set_open(&s);
    struct ear e[3] = {{0}};
    int runs = 0;
    vow_future *g = listen(&s, s.f[0], &e[0]);
    g = keep(&s, vow_then(g, pass_ok, NULL, &runs));
    g = listen(&s, g, &e[1]);
    g = keep(&s, vow_then(g, pass_ok, NULL, &runs));
    g = keep(&s, vow_then(g, NULL, NULL, NULL));
    listen(&s, g, &e[2]);
    notify_and_turn(&s, 0, 1);
    world_run(&s.w);
    notify_and_turn(&s, 0, 2);
    world_run(&s.w);
    for (int i = 0; i < 3; i++)
        CHECK_HEARD(&e[i], 1, 2);
    CHECK_INT_EQ(runs, 0);
    set_close(&s);
}

TEST(progress, fans_out_to_every_branch)
{
    struct set s;
    set_open(&s);
    struct ear e[6] = {{0}};
    int runs = 0;
    for (int i = 0; i < 3; i++) {
        vow_future *g = keep(&s, vow_then(s.f[0], pass_ok, NULL, &runs));
        listen(&s, g, &e[2 * i]);
        listen(&s, g, &e[2 * i + 1]);
    }
    notify_and_turn(&s, 0, 4);
    world_run(&s.w);
    for (int i = 0; i < 6; i++)
        CHECK_HEARD(&e[i], 4);
    set_close(&s);
}

static vow_next no_op(void *user)
{
    (void)user;
    return vow_pass();
}

TEST(progress, goes_through_finally)
{
    struct set s;
    set_open(&s);
    struct ear e = {0};
    listen(&s, keep(&s, vow_finally(s.f[0], no_op, NULL)), &e);
    notify_and_turn(&s, 0, 4);
    world_run(&s.w);
    CHECK_HEARD(&e, 4);
    set_close(&s);
}

TEST(progress, goes_down_a_hundred_thousand_links)
{
    struct world w;
    world_open(&w);
    vow_deferred *d;
    vow_future *tail = vow_promise(w.loop, &d);
    for (int i = 0; i < 100000; i++) {
        vow_future *next = vow_then(tail, NULL, NULL, NULL);
        vow_future_unref(tail);
        tail = next;
    }
    struct ear e = {0};
    vow_future *g = vow_on_progress(tail, hear, &e);
    vow_notify(d, vow_int(1));
    world_run(&w);
    CHECK_HEARD(&e, 1);
    vow_resolve(d, vow_nothing());
    world_run(&w);
    vow_deferred_unref(d);
    vow_future_unref(tail);
    vow_future_unref(g);
    world_close(&w);
}

/* ---- through follow ----------------------------------------------------- */

TEST(progress, comes_from_what_the_promise_follows)
{
    struct set s;
    set_open(&s);
    struct ear e = {0};
    listen(&s, s.f[0], &e);
    notify_and_turn(&s, 1, 100);
    CHECK_INT_EQ(e.n, 0);
    vow_resolve_with(s.d[0], s.f[1]);
    world_turn(&s.w);
    notify_and_turn(&s, 1, 1);
    world_run(&s.w);
    notify_and_turn(&s, 1, 2);
    world_run(&s.w);
    CHECK_HEARD(&e, 1, 2);
    set_close(&s);
}

TEST(progress, comes_through_a_chain_of_follows)
{
    struct set s;
    set_open(&s);
    struct ear e[3] = {{0}};
    for (int i = 0; i < 3; i++) {
        listen(&s, s.f[i], &e[i]);
        vow_resolve_with(s.d[i], s.f[i + 1]);
    }
    notify_and_turn(&s, 3, 8);
    world_run(&s.w);
    for (int i = 0; i < 3; i++)
        CHECK_HEARD(&e[i], 8);
    set_close(&s);
}

static vow_next insert(vow_value v, void *user)
{
    (void)v;
    return vow_follow(vow_future_ref(user));
}

TEST(progress, comes_from_a_promise_that_a_step_inserted)
{
    struct set s;
    set_open(&s);
    struct ear e = {0}, below = {0};
    vow_future *g = keep(&s, vow_then(s.f[0], insert, NULL, s.f[1]));
    listen(&s, g, &e);
    listen(&s, keep(&s, vow_then(g, NULL, NULL, NULL)), &below);
    notify_and_turn(&s, 0, 1);
    vow_resolve(s.d[0], vow_nothing());
    world_run(&s.w);
    notify_and_turn(&s, 1, 2);
    world_run(&s.w);
    CHECK_HEARD(&e, 1, 2);
    CHECK_HEARD(&below, 1, 2);
    set_close(&s);
}

/* ---- through combinators ------------------------------------------------ */

/* The inputs settle one by one; the last may or may not still be told. */
static void check_count(struct set *s, vow_future *all, bool reject)
{
    struct ear e = {0};
    vow_future *g = listen(s, all, &e);
    for (int i = 0; i < 3; i++) {
        vow_notify(s->d[i], vow_int(1000));
        world_turn(&s->w);
        if (reject)
            vow_reject_code(s->d[i], VOW_EIO, NULL);
        else
            vow_resolve(s->d[i], vow_int(i));
        world_run(&s->w);
        vow_error_of(s->f[i]);
    }
    vow_error_of(g);
    CHECK(e.n == 2 || e.n == 3);
    for (int i = 0; i < e.n; i++)
        CHECK_INT_EQ(e.heard[i], i + 1);
}

TEST(progress, of_all_is_the_number_of_inputs_that_settled)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    check_count(&s, keep(&s, vow_all(loop, s.f, 3)), false);
    set_close(&s);
}

TEST(progress, of_all_settled_is_the_number_of_inputs_that_settled)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    check_count(&s, keep(&s, vow_all_settled(loop, s.f, 3)), true);
    set_close(&s);
}

TEST(progress, of_any_is_the_number_of_inputs_that_failed_so_far)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_future *any = keep(&s, vow_any(loop, s.f, 3));
    check_count(&s, any, true);
    CHECK_INT_EQ(vow_error_code(vow_error_of(any)), VOW_EALLFAILED);
    set_close(&s);
}
