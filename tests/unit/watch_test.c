/* SPDX-License-Identifier: MIT */
/* watch_test.c - watches: told once and from the queue, no reader of what they
 * watch, stopped at any time, many of them, and none of it needs memory. */
#include "world.h"

#include "vow/watch.h"

#include <stdlib.h>

enum { COUNTED = 8000, TOO_MANY = 8191, MANY = 8300 };

struct watcher {
    vow_watch watch;
    int told;
    enum vow_state state; /* of the future, when told */
    vow_future *f;
};

static void on_settled(vow_future *settled, void *user)
{
    struct watcher *x = user;
    x->told++;
    x->state = vow_state_of(settled);
    x->f = settled;
}

static void watch(struct watcher *x, vow_future *f)
{
    *x = (struct watcher){.told = 0};
    vow_watch_start(&x->watch, f, on_settled, x);
}

/* A world with one promise, which is watched. */
static vow_future *open_watched(struct world *w, struct watcher *x,
                                vow_deferred **ret_d)
{
    world_open(w);
    vow_future *f = vow_promise(w->loop, ret_d);
    watch(x, f);
    return f;
}

/* ---- told --------------------------------------------------------------- */

TEST(watch, is_told_once_from_the_queue_when_it_is_settled)
{
    struct world w;
    struct watcher x;
    vow_deferred *d;
    vow_future *f = open_watched(&w, &x, &d);
    world_advance_ms(&w, 10);
    CHECK_INT_EQ(x.told, 0);
    CHECK(vow_resolve(d, vow_int(1)));
    CHECK_INT_EQ(x.told, 0); /* not inside the call */
    world_turn(&w);
    CHECK_INT_EQ(x.told, 1);
    CHECK_PTR_EQ(x.f, f);
    CHECK_INT_EQ(x.state, VOW_FULFILLED);
    CHECK(!vow_resolve(d, vow_int(2)));
    world_run(&w);
    CHECK_INT_EQ(x.told, 1);
    CHECK(!vow_watch_stop(&x.watch)); /* it is not pending any more */
    vow_deferred_unref(d);
    vow_future_unref(f);
    world_close(&w);
}

TEST(watch, of_one_that_is_settled_already_is_told_from_the_queue)
{
    struct world w;
    struct watcher x;
    world_open(&w);
    vow_future *f = vow_resolved(w.loop, vow_nothing());
    watch(&x, f);
    CHECK_INT_EQ(x.told, 0);
    world_turn(&w);
    CHECK_INT_EQ(x.told, 1);
    vow_future_unref(f);
    world_close(&w);
}

static vow_next check_told(vow_value v, void *user)
{
    (void)v;
    CHECK_INT_EQ(((struct watcher *)user)->told, 1);
    return vow_ok(vow_nothing());
}

TEST(watch, is_told_before_what_is_attached_later)
{
    struct world w;
    struct watcher x;
    vow_deferred *d;
    vow_future *f = open_watched(&w, &x, &d);
    vow_future *later = vow_then_drop(f, check_told, NULL, &x);
    CHECK(vow_resolve_drop(d, vow_nothing()));
    world_run(&w);
    CHECK_INT_EQ(vow_state_of(later), VOW_FULFILLED);
    vow_future_unref(later);
    world_close(&w);
}

TEST(watch, keeps_what_it_watches_until_it_was_told)
{
    struct world w;
    struct watcher x;
    vow_deferred *d;
    vow_future *f = open_watched(&w, &x, &d);
    vow_future_unref(f);
    CHECK(vow_resolve_drop(d, vow_nothing()));
    world_run(&w);
    CHECK_INT_EQ(x.told, 1);
    CHECK_INT_EQ(x.state, VOW_FULFILLED);
    world_close(&w);
}

TEST(watch, needs_no_memory)
{
    struct world w;
    struct watcher x;
    world_open(&w);
    vow_future *f = vow_resolved(w.loop, vow_nothing());
    const uint64_t allocs = w.alloc.allocs;
    w.alloc.fail_at = allocs + 1;
    w.alloc.fail_forever = true;
    for (int i = 0; i < 100; i++) {
        watch(&x, f);
        world_turn(&w);
        CHECK_INT_EQ(x.told, 1);
    }
    CHECK_UINT_EQ(w.alloc.fails, 0);
    w.alloc.fail_at = 0;
    vow_future_unref(f);
    world_close(&w);
}

TEST(watch, is_told_when_the_loop_closes)
{
    struct world w;
    struct watcher x;
    vow_deferred *d;
    vow_future *f = open_watched(&w, &x, &d);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    CHECK_INT_EQ(x.told, 1);
    CHECK_INT_EQ(x.state, VOW_REJECTED);
    vow_deferred_unref(d);
    vow_future_unref(f);
    world_close_dirty(&w);
}

/* ---- no reader ---------------------------------------------------------- */

TEST(watch, does_not_count_as_handling_a_rejection)
{
    struct world w;
    struct watcher x;
    world_open(&w);
    vow_future *f = vow_rejected(w.loop, vow_error_new(w.loop, VOW_EIO, "no"));
    watch(&x, f);
    world_run(&w);
    CHECK_INT_EQ(x.state, VOW_REJECTED);
    CHECK_UINT_EQ(w.unhandled, 0);
    vow_future_unref(f);
    world_expect_unhandled(&w, 1);
    world_close(&w);
}

TEST(watch, leaves_a_rejection_handled_that_was)
{
    struct world w;
    struct watcher x;
    world_open(&w);
    vow_future *f = vow_rejected(w.loop, vow_error_new(w.loop, VOW_EIO, "no"));
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_EIO);
    watch(&x, f);
    world_run(&w);
    vow_future_unref(f);
    world_close(&w);
}

/* Work that is asked to stop and takes a while. */
struct work {
    vow_deferred *end;
    int asked;
};

static void on_asked(vow_error *why, void *user)
{
    (void)why;
    ((struct work *)user)->asked++;
}

static vow_future *work_start(struct work *k, vow_loop *loop)
{
    vow_future *f = vow_promise(loop, &k->end);
    k->asked = 0;
    vow_on_cancel(k->end, on_asked, k);
    return f;
}

/* The last reader goes: is the work asked to stop, under so many watches? */
static void check_canceled_under(int watches, bool canceled)
{
    static struct watcher x[MANY];
    struct world w;
    struct work k;
    world_open(&w);
    vow_future *f = work_start(&k, w.loop);
    vow_future *reader = vow_then(f, NULL, NULL, NULL);
    for (int i = 0; i < watches; i++)
        watch(&x[i], f);
    vow_future_unref(f);
    CHECK(vow_cancel(reader, NULL));
    world_run(&w);
    CHECK_INT_EQ(k.asked, canceled ? 1 : 0);
    for (int i = 0; i < watches; i++)
        CHECK_INT_EQ(x[i].told, 0); /* it has not ended yet */
    CHECK(vow_resolve_drop(k.end, vow_nothing()));
    world_run(&w);
    for (int i = 0; i < watches; i++)
        CHECK_INT_EQ(x[i].told, 1);
    vow_future_unref(reader);
    world_close(&w);
}

TEST(watch, what_it_watches_is_canceled_as_if_it_were_not_there)
{
    check_canceled_under(0, true);
    check_canceled_under(1, true);
    check_canceled_under(2, true);
    check_canceled_under(COUNTED, true);
}

TEST(watch, from_8191_on_it_is_not_canceled_and_all_are_told)
{
    check_canceled_under(TOO_MANY, false);
    check_canceled_under(MANY, false);
}

TEST(watch, a_canceled_future_without_work_is_told_as_rejected)
{
    struct world w;
    struct watcher x;
    vow_deferred *d;
    vow_future *f = open_watched(&w, &x, &d);
    CHECK(vow_cancel(f, NULL));
    world_run(&w);
    CHECK_INT_EQ(x.told, 1);
    CHECK_INT_EQ(x.state, VOW_REJECTED);
    CHECK(!vow_deferred_pending(d));
    vow_deferred_unref(d);
    vow_future_unref(f);
    world_close(&w);
}

/* ---- stopped ------------------------------------------------------------ */

TEST(watch, zeroed_it_is_not_pending)
{
    vow_watch x = {0};
    CHECK(!vow_watch_stop(&x));
}

TEST(watch, stopped_it_is_not_told)
{
    for (int settled = 0; settled < 2; settled++) {
        struct world w;
        struct watcher x;
        vow_deferred *d;
        vow_future *f = open_watched(&w, &x, &d);
        if (settled != 0) /* it is in the queue already */
            CHECK(vow_resolve(d, vow_nothing()));
        CHECK(vow_watch_stop(&x.watch));
        CHECK(!vow_watch_stop(&x.watch));
        (void)vow_resolve(d, vow_nothing());
        world_run(&w);
        CHECK_INT_EQ(x.told, 0);
        vow_deferred_unref(d);
        vow_future_unref(f);
        world_close(&w);
    }
}

TEST(watch, stopped_it_may_be_started_again)
{
    struct world w;
    struct watcher x;
    vow_deferred *d;
    world_open(&w);
    vow_future *f = vow_promise(w.loop, &d);
    vow_future *other = vow_resolved(w.loop, vow_nothing());
    watch(&x, f);
    CHECK(vow_watch_stop(&x.watch));
    watch(&x, other);
    world_run(&w);
    CHECK_INT_EQ(x.told, 1);
    CHECK_PTR_EQ(x.f, other);
    vow_deferred_unref(d);
    (void)vow_error_of(f);
    vow_future_unref(f);
    vow_future_unref(other);
    world_close(&w);
}

TEST(watch, stopped_it_was_never_a_reader)
{
    struct world w;
    struct watcher x;
    struct work k;
    world_open(&w);
    vow_future *f = work_start(&k, w.loop);
    vow_future *reader = vow_then(f, NULL, NULL, NULL);
    watch(&x, f);
    CHECK(vow_watch_stop(&x.watch));
    vow_future_unref(f);
    CHECK(vow_cancel(reader, NULL));
    world_run(&w);
    CHECK_INT_EQ(k.asked, 1);
    CHECK(vow_resolve_drop(k.end, vow_nothing()));
    world_run(&w);
    vow_future_unref(reader);
    world_close(&w);
}

TEST(watch, what_ended_under_a_watch_is_a_future_as_any_other)
{
    struct world w;
    struct watcher x;
    struct work k;
    world_open(&w);
    vow_future *f = work_start(&k, w.loop);
    watch(&x, f);
    vow_future *reader = vow_then(f, NULL, NULL, NULL);
    CHECK(vow_resolve_drop(k.end, vow_int(5)));
    world_run(&w);
    CHECK_INT_EQ(x.told, 1);
    CHECK_INT_EQ(vow_as_int(vow_get(reader)), 5);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 5);
    vow_future_unref(f);
    vow_future_unref(reader);
    world_close(&w);
}

/* ---- inside its own call ------------------------------------------------ */

struct inside {
    vow_watch watch;
    vow_watch *other; /* to stop */
    vow_future *next; /* to watch then */
    int told;
};

static void stop_the_other(vow_future *settled, void *user)
{
    struct inside *x = user;
    (void)settled;
    x->told++;
    CHECK(vow_watch_stop(x->other));
}

TEST(watch, one_may_stop_another_that_is_ready)
{
    struct world w;
    struct watcher other;
    struct inside x = {.other = &other.watch};
    world_open(&w);
    vow_future *f = vow_resolved(w.loop, vow_nothing());
    vow_watch_start(&x.watch, f, stop_the_other, &x);
    watch(&other, f);
    world_run(&w);
    CHECK_INT_EQ(x.told, 1);
    CHECK_INT_EQ(other.told, 0);
    vow_future_unref(f);
    world_close(&w);
}

static void watch_the_next(vow_future *settled, void *user)
{
    struct inside *x = user;
    (void)settled;
    x->told++;
    vow_future *next = x->next;
    x->next = NULL;
    if (next != NULL)
        vow_watch_start(&x->watch, next, watch_the_next, x);
}

TEST(watch, may_be_started_again_in_its_own_call)
{
    struct world w;
    world_open(&w);
    vow_future *f = vow_resolved(w.loop, vow_nothing());
    vow_future *next = vow_delay(w.loop, 10);
    struct inside x = {.next = next};
    vow_watch_start(&x.watch, f, watch_the_next, &x);
    world_advance_ms(&w, 9);
    CHECK_INT_EQ(x.told, 1);
    world_advance_ms(&w, 1);
    CHECK_INT_EQ(x.told, 2);
    vow_future_unref(f);
    vow_future_unref(next);
    world_close(&w);
}

static int freed;

static void free_itself(vow_future *settled, void *user)
{
    (void)settled;
    freed++;
    free(user);
}

TEST(watch, may_be_freed_in_its_own_call)
{
    struct world w;
    world_open(&w);
    vow_future *f = vow_resolved(w.loop, vow_nothing());
    for (int i = 0; i < 3; i++) {
        vow_watch *x = calloc(1, sizeof(*x));
        CHECK(x != NULL);
        vow_watch_start(x, f, free_itself, x);
    }
    vow_future_unref(f); /* each call has the last reference of its own */
    world_run(&w);
    CHECK_INT_EQ(freed, 3);
    world_close(&w);
}
