/* SPDX-License-Identifier: MIT */
/* census_test.c - rejections nobody handled: told once, with the place,
 * when the last reference goes or the loop is closed; and the census of live
 * promises by place.
 *
 * Warnings that did not say where, and traces that leaked:
 * https://github.com/petkaantonov/bluebird/issues/861, /846, /1446. */
#include "harness.h"
#include "world.h"

#include "vow/combine.h"
#include "vow/promise.h"

#include <stdio.h>
#include <string.h>

/* ---- rejections --------------------------------------------------------- */

static vow_future *rejected(struct world *w, const char *site)
{
    return vow_rejected_at(site, w->loop,
                           vow_error_new(w->loop, VOW_EIO, "nobody"));
}

static vow_next recover(vow_error *e, void *user)
{
    (void)e;
    (void)user;
    return vow_ok(vow_nothing());
}

static vow_next pass_on(vow_error *e, void *user)
{
    (void)e;
    (void)user;
    return vow_pass();
}

static vow_next fail_anew(vow_error *e, void *user)
{
    (void)e;
    (void)user;
    return vow_fail_code(VOW_EBUSY, "anew");
}

/* Told n times until now, and not once more until the close. */
static void check_told(struct world *w, uint64_t n)
{
    world_run(w);
    CHECK_UINT_EQ(w->unhandled, n);
    world_expect_unhandled(w, n);
}

TEST(unhandled, is_told_once_when_the_last_reference_goes)
{
    struct world w;
    world_open(&w);
    vow_future *f = rejected(&w, "kitchen.c:12");
    vow_future *second = vow_future_ref(f);
    world_run(&w);
    vow_future_unref(f);
    world_run(&w);
    CHECK_UINT_EQ(w.unhandled, 0);
    vow_future_unref(second);
    check_told(&w, 1);
    CHECK_INT_EQ(w.unhandled_code, VOW_EIO);
    CHECK_STR_EQ(w.unhandled_site, "kitchen.c:12");
    CHECK_STR_EQ(w.unhandled_message, "nobody");
    world_close(&w);
}

TEST(unhandled, is_told_when_the_loop_closes_with_the_future_still_held)
{
    struct world w;
    world_open(&w);
    vow_future *f = rejected(&w, "kitchen.c:12");
    world_run(&w);
    CHECK_UINT_EQ(w.unhandled, 0);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    CHECK_UINT_EQ(w.unhandled, 1);
    CHECK_STR_EQ(w.unhandled_site, "kitchen.c:12");
    vow_future_unref(f);
    CHECK_UINT_EQ(w.unhandled, 1);
    world_expect_unhandled(&w, 1);
    world_close_dirty(&w);
}

TEST(unhandled, a_promise_that_nobody_ever_read_is_told)
{
    struct world w;
    world_open(&w);
    vow_deferred *d;
    vow_future_unref(vow_promise(w.loop, &d));
    vow_reject_code(d, VOW_EIO, "unread");
    vow_deferred_unref(d);
    check_told(&w, 1);
    CHECK_STR_EQ(w.unhandled_message, "unread");
    CHECK(strstr(w.unhandled_site, "census_test.c:") != NULL);
    world_close(&w);
}

TEST(unhandled, a_forgotten_deferred_is_told_as_broken)
{
    struct world w;
    world_open(&w);
    vow_deferred *d;
    vow_future *f = vow_promise_at("lost.c:3", w.loop, &d);
    vow_deferred_unref(d);
    vow_future_unref(f);
    check_told(&w, 1);
    CHECK_INT_EQ(w.unhandled_code, VOW_EBROKEN);
    CHECK_STR_EQ(w.unhandled_site, "lost.c:3");
    world_close(&w);
}

TEST(unhandled, is_not_told_when_a_fail_step_got_it)
{
    struct world w;
    world_open(&w);
    vow_future *f = rejected(&w, "a.c:1");
    vow_future_unref(vow_catch(f, recover, NULL));
    vow_future_unref(f);
    check_told(&w, 0);
    world_close(&w);
}

TEST(unhandled, is_not_told_when_a_fail_step_comes_late)
{
    struct world w;
    world_open(&w);
    vow_future *f = rejected(&w, "a.c:1");
    world_run(&w);
    world_advance_ms(&w, 1000);
    vow_future_unref(vow_catch(f, recover, NULL));
    vow_future_unref(f);
    check_told(&w, 0);
    world_close(&w);
}

TEST(unhandled, is_not_told_when_somebody_read_the_error)
{
    struct world w;
    world_open(&w);
    vow_future *f = rejected(&w, "a.c:1"), *g = rejected(&w, "a.c:2");
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_EIO);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, g), VOW_EIO);
    vow_future_unref(f);
    vow_future_unref(g);
    check_told(&w, 0);
    world_close(&w);
}

TEST(unhandled, looking_at_the_state_handles_nothing)
{
    struct world w;
    world_open(&w);
    vow_future *f = rejected(&w, "a.c:1");
    CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED);
    CHECK_INT_EQ(vow_kind_of(vow_get(f)), VOW_NOTHING);
    vow_future_unref(f);
    check_told(&w, 1);
    world_close(&w);
}

TEST(unhandled, is_told_once_at_the_end_of_a_chain_without_fail_steps)
{
    struct world w;
    world_open(&w);
    vow_future *f = rejected(&w, "a.c:1");
    for (int i = 0; i < 5; i++) {
        vow_future *next = vow_then(f, NULL, NULL, NULL);
        vow_future_unref(f);
        f = next;
    }
    world_run(&w);
    CHECK_UINT_EQ(w.unhandled, 0);
    vow_future_unref(f);
    check_told(&w, 1);
    CHECK_STR_EQ(w.unhandled_message, "nobody");
    world_close(&w);
}

TEST(unhandled, one_error_in_many_branches_is_told_once)
{
    struct world w;
    world_open(&w);
    vow_future *f = rejected(&w, "a.c:1");
    for (int i = 0; i < 3; i++)
        vow_future_unref(vow_then(f, NULL, NULL, NULL));
    vow_future_unref(f);
    check_told(&w, 1);
    world_close(&w);
}

TEST(unhandled, two_errors_are_told_one_by_one)
{
    struct world w;
    world_open(&w);
    vow_future_unref(rejected(&w, "a.c:1"));
    vow_future_unref(rejected(&w, "a.c:2"));
    check_told(&w, 2);
    CHECK_STR_EQ(w.unhandled_site, "a.c:2");
    vow_loop_stats st;
    vow_loop_stats_get(w.loop, &st);
    CHECK_UINT_EQ(st.unhandled, 2);
    world_close(&w);
}

TEST(unhandled, an_error_that_a_step_passes_on_is_told)
{
    struct world w;
    world_open(&w);
    vow_future *f = rejected(&w, "a.c:1");
    vow_future_unref(vow_catch(f, pass_on, NULL));
    vow_future_unref(f);
    check_told(&w, 1);
    CHECK_INT_EQ(w.unhandled_code, VOW_EIO);
    world_close(&w);
}

TEST(unhandled, an_error_that_a_step_makes_anew_is_told_and_the_old_is_not)
{
    struct world w;
    world_open(&w);
    vow_future *f = rejected(&w, "a.c:1");
    vow_future_unref(vow_catch(f, fail_anew, NULL));
    vow_future_unref(f);
    check_told(&w, 1);
    CHECK_INT_EQ(w.unhandled_code, VOW_EBUSY);
    CHECK_STR_EQ(w.unhandled_message, "anew");
    world_close(&w);
}

TEST(unhandled, what_a_follower_handles_is_handled)
{
    struct world w;
    world_open(&w);
    vow_deferred *d;
    vow_future *f = vow_promise(w.loop, &d);
    vow_settle(d, vow_follow(rejected(&w, "a.c:1")));
    vow_deferred_unref(d);
    vow_future_unref(vow_catch(f, recover, NULL));
    vow_future_unref(f);
    check_told(&w, 0);
    world_close(&w);
}

TEST(unhandled, what_goes_on_through_all_is_told_once)
{
    struct world w;
    world_open(&w);
    vow_future *in[2] = {rejected(&w, "a.c:1"),
                         vow_resolved(w.loop, vow_int(1))};
    vow_future_unref(vow_all(w.loop, in, 2));
    vow_future_unref(in[0]);
    vow_future_unref(in[1]);
    check_told(&w, 1);
    CHECK_INT_EQ(w.unhandled_code, VOW_EIO);
    world_close(&w);
}

TEST(unhandled, cancel_and_close_are_never_told)
{
    struct world w;
    world_open(&w);
    vow_deferred *d, *pending;
    vow_future *f = vow_promise(w.loop, &d);
    vow_reject_code(d, VOW_ECANCELED, "by hand");
    vow_deferred_unref(d);
    vow_future_unref(f);
    f = vow_delay(w.loop, 10);
    vow_cancel(f, NULL);
    vow_future_unref(f);
    vow_future *g = vow_promise(w.loop, &pending);
    world_run(&w);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    vow_deferred_unref(pending);
    vow_future_unref(g);
    CHECK_UINT_EQ(w.unhandled, 0);
    world_close_dirty(&w);
}

/* ---- the hook ----------------------------------------------------------- */

struct hook {
    vow_loop *loop;
    int told;
    vow_future *made;
};

/* A hook may use the loop: it starts work and drops another rejection. */
static void busy_hook(vow_error *e, const char *site, void *user)
{
    struct hook *h = user;
    CHECK(site != NULL);
    h->told++;
    if (h->told > 1)
        return;
    CHECK_INT_EQ(vow_error_code(e), VOW_EIO);
    h->made = vow_resolved(h->loop, vow_int(5));
    vow_future_unref(
        vow_rejected(h->loop, vow_error_new(h->loop, VOW_EBUSY, "inside")));
}

TEST(unhandled, the_hook_may_use_the_loop)
{
    struct world w;
    struct hook h = {0};
    world_open_with(
        &w, VOW_LOOP_OPTS(.on_unhandled = busy_hook, .on_unhandled_user = &h));
    h.loop = w.loop;
    vow_future_unref(rejected(&w, "a.c:1"));
    world_run(&w);
    CHECK_INT_EQ(h.told, 2);
    CHECK_INT_EQ(vow_as_int(vow_get(h.made)), 5);
    vow_future_unref(h.made);
    world_close(&w);
}

TEST(unhandled, without_a_hook_is_counted)
{
    vow_loop *loop;
    CHECK_INT_EQ(vow_loop_new(NULL, &loop), 0);
    vow_future_unref(vow_rejected(loop, vow_error_new(loop, VOW_EIO, "quiet")));
    CHECK_INT_EQ(vow_loop_run(loop), 0);
    vow_loop_stats st;
    vow_loop_stats_get(loop, &st);
    CHECK_UINT_EQ(st.unhandled, 1);
    CHECK_INT_EQ(vow_loop_close(loop), 0);
}

/* ---- the census --------------------------------------------------------- */

struct census {
    size_t n;
    vow_census line[8];
};

static void take_line(const vow_census *line, void *user)
{
    struct census *c = user;
    CHECK(c->n < 8);
    c->line[c->n++] = *line;
}

static void check_line(const vow_census *l, const char *site, size_t pending,
                       size_t settled)
{
    CHECK_STR_EQ(l->site, site);
    CHECK_UINT_EQ(l->pending, pending);
    CHECK_UINT_EQ(l->settled, settled);
}

TEST(unhandled, census_counts_live_promises_by_place_most_frequent_first)
{
    struct world w;
    world_open(&w);
    vow_deferred *d[4];
    vow_future *f[9];
    for (int i = 0; i < 4; i++)
        f[i] = vow_promise_at("pair.c:1", w.loop, &d[i]);
    vow_resolve(d[0], vow_int(1));
    for (int i = 4; i < 6; i++)
        f[i] = vow_resolved_at("settled.c:2", w.loop, vow_int(1));
    for (int i = 6; i < 9; i++)
        f[i] = vow_then_at("link.c:3", f[1], NULL, NULL, NULL);
    struct census c = {0};
    CHECK_INT_EQ(vow_loop_census(w.loop, take_line, &c), 0);
    CHECK_UINT_EQ(c.n, 3);
    check_line(&c.line[0], "pair.c:1", 3, 1);
    check_line(&c.line[1], "link.c:3", 3, 0);
    check_line(&c.line[2], "settled.c:2", 0, 2);
    for (int i = 0; i < 4; i++) {
        if (i > 0)
            vow_resolve(d[i], vow_int(1));
        vow_deferred_unref(d[i]);
    }
    world_run(&w);
    for (int i = 0; i < 9; i++)
        vow_future_unref(f[i]);
    world_close(&w);
}

TEST(unhandled, census_of_nothing_is_empty)
{
    struct world w;
    world_open(&w);
    struct census c = {0};
    CHECK_INT_EQ(vow_loop_census(w.loop, take_line, &c), 0);
    CHECK_UINT_EQ(c.n, 0);
    vow_future_unref(vow_resolved(w.loop, vow_int(1)));
    CHECK_INT_EQ(vow_loop_census(w.loop, take_line, &c), 0);
    CHECK_UINT_EQ(c.n, 0);
    world_close(&w);
}

struct sum {
    size_t lines, promises, last;
};

static void add_line(const vow_census *line, void *user)
{
    struct sum *s = user;
    size_t n = line->pending + line->settled;
    CHECK(n > 0);
    CHECK(s->lines == 0 || n <= s->last);
    s->last = n;
    s->lines++;
    s->promises += n;
}

TEST(unhandled, census_of_many_places_leaves_none_out)
{
    enum { PLACES = 500 };
    static char site[PLACES][24];
    static vow_future *f[PLACES * 2];
    struct world w;
    world_open(&w);
    for (int i = 0; i < PLACES; i++)
        snprintf(site[i], sizeof(site[i]), "place.c:%d", i + 1);
    for (int i = 0; i < PLACES * 2; i++)
        f[i] = vow_resolved_at(site[i * 7 % PLACES], w.loop, vow_int(1));
    struct sum s = {0};
    CHECK_INT_EQ(vow_loop_census(w.loop, add_line, &s), 0);
    CHECK_UINT_EQ(s.lines, PLACES);
    CHECK_UINT_EQ(s.promises, PLACES * 2);
    for (int i = 0; i < PLACES * 2; i++)
        vow_future_unref(f[i]);
    world_close(&w);
}
