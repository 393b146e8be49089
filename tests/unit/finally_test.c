/* SPDX-License-Identifier: MIT */
/* finally_test.c - a cleanup runs once, whatever becomes of its link. */
#include "harness.h"
#include "world.h"

#include <vow.h>

struct cleanup {
    int runs;
    vow_deferred *end; /* of the source: was it settled when fn ran? */
    bool after_end;
};

static vow_next clean(void *user)
{
    struct cleanup *c = user;
    c->runs++;
    c->after_end = !vow_deferred_pending(c->end);
    return vow_ok(vow_nothing());
}

static void settle_later(vow_error *why, void *user)
{
    (void)why;
    (void)user;
}

/* A world and a link behind work that goes on when it is asked to stop. */
static vow_future *open_slow(struct world *w, struct cleanup *c)
{
    world_open(w);
    vow_future *f = vow_promise(w->loop, &c->end);
    vow_on_cancel(c->end, settle_later, NULL);
    vow_future *link = vow_finally(f, clean, c);
    vow_future_unref(f);
    return link;
}

TEST(finally, runs_though_its_link_was_canceled)
{
    struct world w;
    struct cleanup c = {0};
    world_open(&w);
    vow_future *f = vow_promise(w.loop, &c.end);
    vow_future *link = vow_finally(f, clean, &c);
    vow_future_unref(f);
    CHECK(vow_cancel(link, NULL));
    CHECK_INT_EQ(vow_error_code(vow_error_of(link)), VOW_ECANCELED);
    CHECK_INT_EQ(c.runs, 0);
    CHECK(!vow_deferred_pending(c.end)); /* nobody else held it */
    world_run(&w);
    CHECK_INT_EQ(c.runs, 1);
    vow_deferred_unref(c.end);
    vow_future_unref(link);
    world_close(&w);
}

TEST(finally, waits_for_what_still_runs_when_its_link_is_canceled)
{
    struct world w;
    struct cleanup c = {0};
    vow_future *link = open_slow(&w, &c);
    vow_future *reader = vow_then(link, NULL, NULL, NULL);
    CHECK(vow_cancel(link, NULL));
    vow_future_unref(link);
    world_run(&w);
    CHECK_INT_EQ(vow_error_code(vow_error_of(reader)), VOW_ECANCELED);
    CHECK_INT_EQ(c.runs, 0); /* asked, but it has not ended */
    CHECK(vow_resolve(c.end, vow_int(1)));
    world_run(&w);
    CHECK_INT_EQ(c.runs, 1);
    CHECK(c.after_end);
    vow_deferred_unref(c.end);
    vow_future_unref(reader);
    world_close(&w);
}

TEST(finally, leaves_a_source_that_others_hold_alone_when_canceled)
{
    struct world w;
    struct cleanup c = {0};
    world_open(&w);
    vow_future *f = vow_promise(w.loop, &c.end);
    vow_future *link = vow_finally(f, clean, &c);
    CHECK(vow_cancel(link, NULL));
    CHECK(!vow_cancel(link, NULL));
    CHECK_INT_EQ(vow_state_of(f), VOW_PENDING);
    CHECK(vow_resolve(c.end, vow_int(7)));
    world_run(&w);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 7);
    CHECK_INT_EQ(c.runs, 1);
    vow_loop_stats stats;
    vow_loop_stats_get(w.loop, &stats);
    CHECK_UINT_EQ(stats.late_settles, 0);
    vow_deferred_unref(c.end);
    vow_future_unref(link);
    vow_future_unref(f);
    world_close(&w);
}

enum { LONG = 100000 };

static vow_next count(void *user)
{
    ++*(int *)user;
    return vow_ok(vow_nothing());
}

TEST(finally, all_of_a_long_chain_run_when_its_end_is_canceled)
{
    struct world w;
    int runs = 0;
    world_open(&w);
    vow_deferred *end;
    vow_future *last = vow_promise(w.loop, &end);
    for (int i = 0; i < LONG; i++) {
        vow_future *next = vow_finally(last, count, &runs);
        vow_future_unref(last);
        last = next;
    }
    CHECK(vow_cancel(last, NULL));
    CHECK(!vow_deferred_pending(end));
    world_run(&w);
    CHECK_INT_EQ(runs, LONG);
    vow_future_unref(last);
    vow_deferred_unref(end);
    world_close(&w);
}

TEST(finally, of_a_canceled_link_runs_when_the_loop_closes)
{
    struct world w;
    struct cleanup c = {0};
    vow_future *link = open_slow(&w, &c);
    CHECK(vow_cancel(link, NULL));
    vow_future_unref(link);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    CHECK_INT_EQ(c.runs, 1);
    vow_deferred_unref(c.end);
    world_close_dirty(&w);
}
