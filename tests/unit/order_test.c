/* SPDX-License-Identifier: MIT */
/* order_test.c - when handlers run: never inside a call, first in first
 * out, one at a time, waiting links in place. Promises/A+ 2.2.4 and 2.2.6. */
#include "harness.h"
#include "world.h"

#include "vow/combine.h"
#include "vow/promise.h"

#include <string.h>

/* ---- a world that writes down who ran ----------------------------------- */

enum { MANY = 4, MARKS = 64 };

struct mark {
    struct set *set;
    char name;
};

struct set {
    struct world w;
    vow_deferred *d[MANY];
    vow_future *f[MANY];
    vow_future *kept[32];
    size_t n_kept;
    struct mark marks[MARKS];
    size_t n_marks;
    char log[128]; /* one letter for each handler that ran */
    size_t n_log;
};

static vow_loop *set_open(struct set *s)
{
    memset(s, 0, sizeof(*s));
    world_open(&s->w);
    for (int i = 0; i < MANY; i++)
        s->f[i] = vow_promise(s->w.loop, &s->d[i]);
    return s->w.loop;
}

static vow_future *keep(struct set *s, vow_future *f)
{
    CHECK(f != NULL);
    s->kept[s->n_kept++] = f;
    return f;
}

static void set_close(struct set *s)
{
    for (int i = 0; i < MANY; i++) {
        if (s->d[i] != NULL && vow_deferred_pending(s->d[i]))
            vow_resolve(s->d[i], vow_nothing());
        vow_deferred_unref(s->d[i]);
        vow_future_unref(s->f[i]);
    }
    for (size_t i = 0; i < s->n_kept; i++)
        vow_future_unref(s->kept[i]);
    world_run(&s->w);
    world_close(&s->w);
}

static vow_next write_down(struct mark *m)
{
    CHECK(m->set->n_log + 1 < sizeof(m->set->log));
    m->set->log[m->set->n_log++] = m->name;
    return vow_pass();
}

static vow_next mark_ok(vow_value v, void *user)
{
    (void)v;
    return write_down(user);
}

static vow_next mark_fail(vow_error *e, void *user)
{
    (void)e;
    write_down(user);
    return vow_ok(vow_nothing());
}

static struct mark *new_mark(struct set *s, char name)
{
    CHECK(s->n_marks < MARKS);
    struct mark *m = &s->marks[s->n_marks++];
    *m = (struct mark){s, name};
    return m;
}

/* When f settles, write this letter. */
static vow_future *mark(struct set *s, vow_future *f, char name)
{
    return keep(s, vow_then(f, mark_ok, mark_fail, new_mark(s, name)));
}

static void check_log(const struct set *s, const char *want)
{
    CHECK_STR_EQ(s->log, want);
}

static void run_and_check(struct set *s, const char *want)
{
    world_run(&s->w);
    check_log(s, want);
}

/* ---- never inside the call ---------------------------------------------- */

TEST(order, no_handler_runs_inside_then)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    mark(&s, keep(&s, vow_resolved(loop, vow_int(1))), 'a');
    vow_error *e = vow_error_new(loop, VOW_EIO, "no");
    mark(&s, keep(&s, vow_rejected(loop, e)), 'b');
    check_log(&s, "");
    run_and_check(&s, "ab");
    set_close(&s);
}

TEST(order, no_handler_runs_inside_resolve)
{
    struct set s;
    set_open(&s);
    mark(&s, s.f[0], 'a');
    vow_resolve(s.d[0], vow_int(1));
    check_log(&s, "");
    run_and_check(&s, "a");
    set_close(&s);
}

TEST(order, no_handler_runs_inside_reject)
{
    struct set s;
    set_open(&s);
    mark(&s, s.f[0], 'a');
    mark(&s, s.f[1], 'b');
    vow_reject_code(s.d[0], VOW_EIO, NULL);
    vow_settle(s.d[1], vow_fail_code(VOW_EIO, NULL));
    check_log(&s, "");
    run_and_check(&s, "ab");
    set_close(&s);
}

TEST(order, no_handler_runs_inside_resolve_with)
{
    struct set s;
    set_open(&s);
    mark(&s, s.f[0], 'a');
    vow_resolve(s.d[1], vow_int(1));
    vow_resolve_with(s.d[0], s.f[1]);
    check_log(&s, "");
    run_and_check(&s, "a");
    set_close(&s);
}

TEST(order, no_handler_runs_inside_unref)
{
    struct set s;
    set_open(&s);
    mark(&s, s.f[0], 'a');
    mark(&s, s.f[1], 'b');
    vow_deferred_unref(s.d[0]);
    s.d[0] = NULL;
    check_log(&s, "");
    vow_resolve(s.d[1], vow_int(1));
    s.f[1] = vow_future_unref(s.f[1]);
    check_log(&s, "");
    run_and_check(&s, "ab");
    set_close(&s);
}

TEST(order, no_handler_runs_inside_cancel)
{
    struct set s;
    set_open(&s);
    mark(&s, s.f[0], 'a');
    vow_cancel(s.f[0], NULL);
    check_log(&s, "");
    run_and_check(&s, "a");
    set_close(&s);
}

/* ---- never inside one another ------------------------------------------- */

struct nest {
    struct set *set;
    int depth, deepest, runs;
};

static vow_next nest_settle(vow_value v, void *user)
{
    struct nest *n = user;
    n->depth++;
    if (n->depth > n->deepest)
        n->deepest = n->depth;
    int next = (int)vow_as_int(v) + 1;
    if (n->runs++ < MANY - 1) {
        vow_resolve(n->set->d[next], vow_int(next));
        mark(n->set, n->set->f[next], 'm');
        check_log(n->set, n->runs == 3 ? "m" : "");
    }
    n->depth--;
    return vow_ok(vow_nothing());
}

TEST(order, a_handler_that_settles_another_promise_is_not_interrupted)
{
    struct set s;
    set_open(&s);
    struct nest n = {.set = &s};
    for (int i = 0; i < MANY; i++)
        keep(&s, vow_then(s.f[i], nest_settle, NULL, &n));
    vow_resolve(s.d[0], vow_int(0));
    run_and_check(&s, "mmm");
    CHECK_INT_EQ(n.runs, MANY);
    CHECK_INT_EQ(n.deepest, 1);
    set_close(&s);
}

static vow_next call_the_loop(vow_value v, void *user)
{
    struct set *s = user;
    (void)v;
    CHECK_INT_EQ(vow_loop_run(s->w.loop), VOW_EBUSY);
    CHECK_INT_EQ(vow_loop_run_until(s->w.loop, s->f[1]), VOW_EBUSY);
    CHECK_INT_EQ(vow_loop_turn(s->w.loop), VOW_EBUSY);
    CHECK_INT_EQ(vow_loop_advance(s->w.loop, 5), VOW_EBUSY);
    CHECK_INT_EQ(vow_loop_close(s->w.loop), VOW_EBUSY);
    return vow_ok(vow_int(12));
}

TEST(order, the_loop_is_busy_for_those_who_call_it_from_a_handler)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_future *f = keep(&s, vow_then(s.f[0], call_the_loop, NULL, &s));
    vow_resolve(s.d[0], vow_nothing());
    CHECK_INT_EQ(vow_loop_run_until(loop, f), 0);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 12);
    CHECK_INT_EQ(vow_state_of(s.f[1]), VOW_PENDING);
    set_close(&s);
}

/* ---- first in first out ------------------------------------------------- */

TEST(order, handlers_of_one_promise_run_in_the_order_they_were_attached)
{
    struct set s;
    set_open(&s);
    for (char c = 'a'; c <= 'z'; c++)
        mark(&s, s.f[0], c);
    vow_resolve(s.d[0], vow_int(1));
    run_and_check(&s, "abcdefghijklmnopqrstuvwxyz");
    set_close(&s);
}

TEST(order, fail_handlers_run_in_the_order_they_were_attached)
{
    struct set s;
    set_open(&s);
    for (char c = 'a'; c <= 'g'; c++)
        mark(&s, s.f[0], c);
    vow_reject_code(s.d[0], VOW_EIO, NULL);
    run_and_check(&s, "abcdefg");
    set_close(&s);
}

TEST(order, handlers_attached_after_settling_come_after_those_before)
{
    struct set s;
    set_open(&s);
    mark(&s, s.f[0], 'a');
    mark(&s, s.f[0], 'b');
    vow_resolve(s.d[0], vow_int(1));
    mark(&s, s.f[0], 'c');
    run_and_check(&s, "abc");
    mark(&s, s.f[0], 'd');
    check_log(&s, "abc");
    run_and_check(&s, "abcd");
    set_close(&s);
}

static vow_next attach_more(vow_value v, void *user)
{
    struct mark *m = user;
    mark(m->set, m->set->f[0], 'x');
    return mark_ok(v, user);
}

TEST(order, a_handler_attached_by_a_handler_runs_after_those_that_wait)
{
    struct set s;
    set_open(&s);
    keep(&s, vow_then(s.f[0], attach_more, NULL, new_mark(&s, 'a')));
    mark(&s, s.f[0], 'b');
    mark(&s, s.f[0], 'c');
    vow_resolve(s.d[0], vow_int(1));
    run_and_check(&s, "abcx");
    set_close(&s);
}

TEST(order, promises_run_in_the_order_they_were_settled_not_made)
{
    struct set s;
    set_open(&s);
    mark(&s, s.f[0], 'a');
    mark(&s, s.f[1], 'b');
    mark(&s, s.f[2], 'c');
    mark(&s, s.f[0], 'd');
    vow_resolve(s.d[2], vow_int(1));
    vow_reject_code(s.d[0], VOW_EIO, NULL);
    vow_resolve(s.d[1], vow_int(1));
    run_and_check(&s, "cadb");
    set_close(&s);
}

TEST(order, a_late_handler_waits_behind_what_is_already_queued)
{
    struct set s;
    set_open(&s);
    mark(&s, s.f[0], 'a');
    mark(&s, s.f[1], 'b');
    vow_resolve(s.d[0], vow_int(1));
    vow_resolve(s.d[1], vow_int(1));
    mark(&s, s.f[0], 'c');
    run_and_check(&s, "abc");
    set_close(&s);
}

TEST(order, two_chains_that_start_together_take_turns)
{
    struct set s;
    set_open(&s);
    vow_future *left = s.f[0], *right = s.f[1];
    for (int i = 0; i < 4; i++) {
        left = mark(&s, left, (char)('a' + i));
        right = mark(&s, right, (char)('A' + i));
    }
    vow_resolve(s.d[0], vow_int(1));
    vow_resolve(s.d[1], vow_int(1));
    run_and_check(&s, "aAbBcCdD");
    set_close(&s);
}

TEST(order, a_pass_through_link_keeps_its_place)
{
    struct set s;
    set_open(&s);
    mark(&s, s.f[0], 'a');
    vow_future *link = keep(&s, vow_then(s.f[0], NULL, NULL, NULL));
    mark(&s, s.f[0], 'b');
    mark(&s, link, 'c');
    vow_resolve(s.d[0], vow_int(1));
    run_and_check(&s, "abc");
    set_close(&s);
}

/* ---- insertion ---------------------------------------------------------- */

static vow_next insert(vow_value v, void *user)
{
    struct mark *m = user;
    write_down(m);
    (void)v;
    return vow_follow(vow_future_ref(m->set->f[1]));
}

TEST(order, insertion_keeps_the_waiting_links_in_place)
{
    struct set s;
    set_open(&s);
    vow_future *g = keep(&s, vow_then(s.f[0], insert, NULL, new_mark(&s, 'i')));
    vow_future *a = mark(&s, g, 'a');
    mark(&s, g, 'b');
    mark(&s, a, 'z');
    vow_resolve(s.d[0], vow_int(1));
    run_and_check(&s, "i");
    mark(&s, g, 'c');
    vow_resolve(s.d[1], vow_int(1));
    run_and_check(&s, "iabcz");
    set_close(&s);
}

TEST(order, what_waited_on_the_inserted_promise_before_runs_before)
{
    struct set s;
    set_open(&s);
    mark(&s, s.f[0], 'b');
    mark(&s, s.f[0], 'c');
    mark(&s, s.f[1], 'a');
    vow_resolve_with(s.d[0], s.f[1]);
    vow_resolve(s.d[1], vow_int(1));
    run_and_check(&s, "abc");
    set_close(&s);
}

TEST(order, insertion_does_not_disturb_other_promises)
{
    struct set s;
    set_open(&s);
    mark(&s, s.f[0], 'd');
    mark(&s, s.f[2], 'a');
    vow_resolve_with(s.d[0], s.f[1]);
    mark(&s, s.f[3], 'b');
    vow_resolve(s.d[2], vow_int(1));
    vow_resolve(s.d[3], vow_int(1));
    mark(&s, s.f[1], 'c');
    vow_resolve(s.d[1], vow_int(1));
    world_run(&s.w);
    CHECK_UINT_EQ(strlen(s.log), 4);
    CHECK(s.log[0] == 'a');
    CHECK(s.log[1] == 'b');
    set_close(&s);
}

/* ---- turns -------------------------------------------------------------- */

TEST(order, every_handler_that_ran_is_counted)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_loop_stats before, after;
    vow_loop_stats_get(loop, &before);
    for (int i = 0; i < 10; i++)
        mark(&s, s.f[0], 'a');
    vow_resolve(s.d[0], vow_int(1));
    world_run(&s.w);
    vow_loop_stats_get(loop, &after);
    CHECK_UINT_EQ(after.handlers_run - before.handlers_run, 10);
    set_close(&s);
}

/* An endless chain by insertion, until somebody stops it. */
struct endless {
    vow_loop *loop;
    uint64_t runs;
    bool stop;
};

static vow_next once_more(vow_value v, void *user)
{
    struct endless *e = user;
    (void)v;
    e->runs++;
    if (e->stop)
        return vow_ok(vow_nothing());
    vow_future *start = vow_resolved(e->loop, vow_nothing());
    vow_future *next = vow_then(start, once_more, NULL, e);
    vow_future_unref(start);
    return vow_follow(next);
}

static vow_next stop_it(vow_value v, void *user)
{
    (void)v;
    ((struct endless *)user)->stop = true;
    return vow_ok(vow_nothing());
}

static void stop_by_post(void *arg)
{
    ((struct endless *)arg)->stop = true;
}

static vow_loop *start_endless(struct endless *e)
{
    CHECK_INT_EQ(vow_loop_new(VOW_LOOP_OPTS(.turn_max = 10), &e->loop), 0);
    vow_future *start = vow_resolved(e->loop, vow_nothing());
    vow_future_unref(vow_then(start, once_more, NULL, e));
    vow_future_unref(start);
    return e->loop;
}

TEST(order, an_endless_chain_does_not_starve_timers)
{
    struct endless e = {0};
    vow_loop *loop = start_endless(&e);
    vow_future *timer = vow_delay(loop, 1);
    vow_future_unref(vow_then(timer, stop_it, NULL, &e));
    CHECK_INT_EQ(vow_loop_run(loop), 0);
    CHECK(e.stop);
    CHECK(e.runs > 0); /* how many, the speed of the machine decides */
    vow_future_unref(timer);
    CHECK_INT_EQ(vow_loop_close(loop), 0);
}

TEST(order, an_endless_chain_does_not_starve_posts)
{
    struct endless e = {0};
    vow_loop *loop = start_endless(&e);
    CHECK_INT_EQ(vow_loop_post(loop, stop_by_post, &e), 0);
    CHECK_INT_EQ(vow_loop_run(loop), 0);
    CHECK(e.stop);
    CHECK_INT_EQ(vow_loop_close(loop), 0);
}
