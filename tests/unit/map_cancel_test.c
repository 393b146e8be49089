/* SPDX-License-Identifier: MIT */
/* map_cancel_test.c - vow_map(): canceled from everywhere, in every state, and
 * the loop that closes in the middle. Whatever happens, the source's state is
 * dropped once, no item outlives it, and nothing begins any more. */
#include "map_work.h"

#include "vow/combine.h"

#include <string.h>

/* ---- a map that is canceled where it is told to -------------------------- */

enum place { NOWHERE, IN_PULL, IN_FN, IN_SINK, IN_ITEM_DROP, IN_STATE_DROP };

struct stop {
    struct world w;
    struct work k;
    vow_mapping *m;
    vow_future *f;
    enum place place;
    size_t at; /* with this item */
    int pulled, alive, drops;
    bool waits; /* the source, after 4 items */
    vow_deferred *more;
    bool slow; /* the sink */
    vow_deferred *busy;
    bool canceled;
};

static void cancel_here(struct stop *t, enum place place, size_t index)
{
    if (t->place != place || t->at != index || t->canceled)
        return;
    t->canceled = true;
    CHECK(vow_cancel(t->f, NULL) || place == IN_STATE_DROP);
    CHECK_INT_EQ(vow_state_of(t->f) != VOW_PENDING, 1); /* at once */
    CHECK_INT_EQ(vow_map_resize(t->m, 7), 0);
}

static void drop_item(void *ptr)
{
    struct stop *t = ptr;
    CHECK_INT_EQ(t->drops, 0);
    t->alive--;
    cancel_here(t, IN_ITEM_DROP, 0);
}

static int pull(void *state, vow_value *ret_item, vow_future **ret_wait)
{
    struct stop *t = state;
    CHECK(!t->canceled);
    if (t->waits && t->pulled == 4) {
        *ret_wait = vow_promise(t->w.loop, &t->more);
        cancel_here(t, IN_PULL, 4);
        return VOW_EAGAIN;
    }
    if (t->pulled == 12)
        return 0;
    cancel_here(t, IN_PULL, (size_t)t->pulled);
    t->pulled++;
    t->alive++;
    *ret_item = vow_own(t, drop_item);
    return 1;
}

static void drop_state(void *state)
{
    struct stop *t = state;
    CHECK_INT_EQ(t->alive, 0);
    t->drops++;
    cancel_here(t, IN_STATE_DROP, 0);
}

/* Every third ends at once. */
static vow_future *some_at_once(vow_loop *loop, vow_value item, size_t index,
                                void *user)
{
    struct stop *t = user;
    CHECK(!t->canceled);
    cancel_here(t, IN_FN, index);
    if (index % 3 == 2)
        return vow_resolved(loop, vow_nothing());
    return held(loop, item, index, &t->k);
}

static vow_future *sink(size_t index, vow_future *outcome, void *user)
{
    struct stop *t = user;
    (void)outcome;
    CHECK(!t->canceled);
    cancel_here(t, IN_SINK, index);
    return t->slow ? vow_promise(t->w.loop, &t->busy) : NULL;
}

static void stop_start(struct stop *t, vow_map_opts o)
{
    world_open(&t->w);
    o.size = sizeof(o);
    o.ret_map = &t->m;
    if (o.sink_user != NULL) {
        o.sink = sink;
        o.sink_user = t;
    }
    vow_source src = {.pull = pull, .state = t, .drop = drop_state};
    t->f = vow_map(t->w.loop, src, some_at_once, t, &o);
}

static void end_all(struct stop *t)
{
    for (int round = 0; round < 12; round++)
        for (size_t i = 0; i < 12; i++) {
            if (t->k.end[i] != NULL)
                end_ok(&t->k, i);
            world_run(&t->w);
        }
}

static void stop_close(struct stop *t)
{
    world_run(&t->w);
    CHECK_INT_EQ(t->alive, 0);
    CHECK_INT_EQ(t->drops, 1);
    CHECK_UINT_EQ(t->k.running, 0);
    vow_deferred_unref(t->more);
    vow_deferred_unref(t->busy);
    vow_mapping_unref(t->m);
    vow_future_unref(t->f);
    world_close(&t->w);
}

TEST(map, canceled_before_it_begins_it_calls_nothing)
{
    struct stop t = {0};
    stop_start(&t, (vow_map_opts){.concurrent = 3});
    CHECK(vow_cancel(t.f, NULL));
    check_rejected(t.f, VOW_ECANCELED);
    CHECK_INT_EQ(t.drops, 0); /* code of others is called from the queue */
    world_run(&t.w);
    CHECK_INT_EQ(t.pulled, 0);
    stop_close(&t);
}

TEST(map, canceled_it_is_rejected_at_once_and_what_runs_is_asked)
{
    struct stop t = {.k.stubborn = true};
    stop_start(&t, (vow_map_opts){.concurrent = 3});
    world_run(&t.w);
    CHECK_UINT_EQ(t.k.running, 3);
    vow_error *why = vow_error_new(t.w.loop, VOW_EIO, "no more");
    CHECK(vow_cancel(t.f, why));
    check_rejected(t.f, VOW_ECANCELED);
    CHECK_PTR_EQ(vow_error_cause(vow_error_of(t.f)), why);
    vow_error_unref(why);
    world_run(&t.w);
    CHECK_INT_EQ(t.k.asked[0] + t.k.asked[1] + t.k.asked[3], 3);
    CHECK_INT_EQ(t.alive, 3);
    CHECK_INT_EQ(t.drops, 0);
    end_ok(&t.k, 0);
    end_fail(t.w.loop, &t.k, 1, VOW_EIO); /* handled: nobody is told */
    world_run(&t.w);
    CHECK_INT_EQ(t.alive, 1);
    CHECK_INT_EQ(t.drops, 0); /* freed when the last has ended */
    end_ok(&t.k, 3);
    world_run(&t.w);
    CHECK_INT_EQ(t.drops, 1);
    CHECK_INT_EQ(t.pulled, 4);
    stop_close(&t);
}

static vow_future *never(vow_loop *loop, vow_value item, size_t index,
                         void *user)
{
    (void)item;
    (void)index;
    (void)user;
    return vow_race(loop, NULL, 0);
}

TEST(map, canceled_work_that_only_waits_is_rejected_inside_the_cancel)
{
    struct world w;
    vow_loop_stats s;
    world_open(&w);
    vow_range r;
    vow_future *f = vow_map(w.loop, vow_source_range(&r, 0, 9), never, NULL,
                            VOW_MAP(.concurrent = 5));
    world_run(&w);
    CHECK(vow_cancel(f, NULL));
    vow_loop_stats_get(w.loop, &s);
    CHECK_UINT_EQ(s.pending, 1); /* what its result ends with */
    world_run(&w);
    vow_loop_stats_get(w.loop, &s);
    CHECK_UINT_EQ(s.futures, 2); /* it keeps that until it is asked */
    vow_future_unref(f);
    world_close(&w);
}

TEST(map, timeout_of_a_map_cancels_what_runs)
{
    struct world w;
    world_open(&w);
    vow_range r;
    struct work k = {0};
    vow_future *f = vow_map(w.loop, vow_source_range(&r, 0, 9), held, &k,
                            VOW_MAP(.concurrent = 5));
    vow_future *g = vow_timeout(f, 50);
    vow_future_unref(f);
    world_advance_ms(&w, 49);
    CHECK_UINT_EQ(k.running, 5);
    world_advance_ms(&w, 1);
    check_rejected(g, VOW_ETIMEDOUT);
    CHECK_UINT_EQ(k.running, 0);
    CHECK_UINT_EQ(k.begun, 5);
    vow_future_unref(g);
    world_close(&w);
}

static vow_future *map_again(vow_loop *loop, vow_value item, size_t index,
                             void *user)
{
    struct work *k = user;
    static vow_range inner[MANY];
    (void)item;
    return vow_map(loop, vow_source_range(&inner[index], 0, 5), held, k,
                   VOW_MAP(.concurrent = 1));
}

TEST(map, canceled_map_of_maps_cancels_to_the_ground)
{
    struct world w;
    world_open(&w);
    vow_range r;
    struct work k = {0};
    vow_future *f = vow_map(w.loop, vow_source_range(&r, 0, 9), map_again, &k,
                            VOW_MAP(.concurrent = 1));
    world_run(&w);
    end_ok(&k, 0);
    world_run(&w);
    CHECK_UINT_EQ(k.running, 1);
    end_ok(&k, 1); /* the inner one hears of this first, and begins nothing */
    CHECK(vow_cancel(f, NULL));
    world_run(&w);
    CHECK_UINT_EQ(k.running, 0);
    CHECK_UINT_EQ(k.begun, 2);
    vow_future_unref(f);
    world_close(&w);
}

/* Cancel and complete race from all sides:
 * https://github.com/sindresorhus/p-queue/issues/168. */
TEST(map, can_be_canceled_from_everything_it_calls)
{
    for (enum place place = IN_PULL; place <= IN_STATE_DROP; place++) {
        for (unsigned i = 0; i < 8 * 6; i++) {
            struct stop t = {.place = place,
                             .at = i % 6,
                             .waits = i / 6 % 2 == 1,
                             .k.stubborn = i / 12 % 2 == 1};
            stop_start(&t, (vow_map_opts){.concurrent = 3,
                                          .as_completed = i / 24 % 2 == 1,
                                          .sink_user = &t});
            end_all(&t);
            if (t.waits && t.pulled == 4 && !t.canceled)
                vow_cancel(t.f, NULL);
            CHECK(vow_state_of(t.f) != VOW_PENDING || !t.canceled);
            stop_close(&t);
        }
    }
}

TEST(map, cancel_while_the_sink_is_busy_cancels_that)
{
    struct stop t = {.slow = true};
    stop_start(&t, (vow_map_opts){.concurrent = 3, .sink_user = &t});
    world_run(&t.w);
    end_ok(&t.k, 0);
    world_run(&t.w);
    CHECK(vow_deferred_pending(t.busy));
    CHECK(vow_cancel(t.f, NULL));
    CHECK(!vow_deferred_pending(t.busy));
    stop_close(&t);
}

TEST(map, cancel_while_the_source_has_none_cancels_its_wait)
{
    struct stop t = {.waits = true};
    stop_start(&t, (vow_map_opts){.concurrent = 9});
    world_run(&t.w);
    CHECK(vow_deferred_pending(t.more));
    CHECK(vow_cancel(t.f, NULL));
    CHECK(!vow_deferred_pending(t.more));
    stop_close(&t);
}

TEST(map, cancel_while_it_drains_keeps_the_error_it_drains_for)
{
    struct stop t = {.k.stubborn = true};
    stop_start(&t, (vow_map_opts){.concurrent = 3, .fail = VOW_FAIL_DRAIN});
    world_run(&t.w);
    end_fail(t.w.loop, &t.k, 1, VOW_EIO);
    world_run(&t.w);
    CHECK_INT_EQ(vow_state_of(t.f), VOW_PENDING);
    CHECK(vow_cancel(t.f, NULL));
    check_rejected(t.f, VOW_EIO);
    world_run(&t.w);
    CHECK_INT_EQ(t.k.asked[0] + t.k.asked[3], 2);
    end_ok(&t.k, 0);
    end_ok(&t.k, 3);
    stop_close(&t);
}

/* ---- the close of the loop ---------------------------------------------- */

static void check_closes(struct stop *t)
{
    CHECK_INT_EQ(vow_loop_close(t->w.loop), 0);
    t->w.loop = NULL;
    check_rejected(t->f, VOW_ECLOSED);
    CHECK_INT_EQ(t->alive, 0);
    CHECK_INT_EQ(t->drops, 1);
    for (size_t i = 0; i < MANY; i++)
        vow_deferred_unref(t->k.end[i]);
    vow_deferred_unref(t->more);
    vow_deferred_unref(t->busy);
    vow_future_unref(t->f);
    CHECK_INT_EQ(vow_map_resize(t->m, 2), 0);
    vow_mapping_unref(t->m);
    world_close_dirty(&t->w);
}

TEST(map, loop_that_closes_in_the_middle_leaves_nothing)
{
    for (uint32_t mode = VOW_FAIL_NOW; mode <= VOW_FAIL_COLLECT; mode++) {
        for (unsigned i = 0; i < 8; i++) {
            struct stop t = {.waits = i % 2 == 1, .slow = i / 2 % 2 == 1};
            vow_map_opts o = {.concurrent = 3, .fail = mode};
            o.sink_user = i / 4 % 2 == 1 ? &t : NULL;
            stop_start(&t, o);
            world_run(&t.w);
            end_ok(&t.k, 0);
            end_ok(&t.k, 1);
            world_run(&t.w);
            check_closes(&t);
        }
    }
}

TEST(map, loop_that_closes_before_it_begins_leaves_nothing)
{
    struct stop t = {0};
    stop_start(&t, (vow_map_opts){.concurrent = 3});
    check_closes(&t);
    CHECK_INT_EQ(t.pulled, 0);
}

TEST(map, loop_that_closes_while_canceled_work_runs_leaves_nothing)
{
    struct stop t = {.k.stubborn = true};
    stop_start(&t, (vow_map_opts){.concurrent = 3});
    world_run(&t.w);
    CHECK(vow_cancel(t.f, NULL));
    world_run(&t.w);
    CHECK_INT_EQ(vow_loop_close(t.w.loop), 0);
    t.w.loop = NULL;
    CHECK_INT_EQ(t.drops, 1);
    for (size_t i = 0; i < MANY; i++)
        vow_deferred_unref(t.k.end[i]);
    vow_future_unref(t.f);
    vow_mapping_unref(t.m);
    world_close_dirty(&t.w);
}

static int endless(void *state, vow_value *ret_item, vow_future **ret_wait)
{
    (void)ret_wait;
    *ret_item = vow_int(++*(int64_t *)state);
    return 1;
}

static vow_future *same(vow_loop *loop, vow_value item, size_t index,
                        void *user)
{
    (void)index;
    (void)user;
    return vow_resolved(loop, item);
}

TEST(map, loop_that_closes_ends_an_endless_one)
{
    struct world w;
    world_open(&w);
    int64_t pulled = 0;
    vow_source src = {.pull = endless, .state = &pulled};
    vow_future *f = vow_map(w.loop, src, same, NULL,
                            VOW_MAP(.concurrent = 2, .discard = true));
    world_turn(&w);
    world_turn(&w);
    CHECK(pulled > 0 && pulled < 10000);
    int64_t before = pulled;
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    check_rejected(f, VOW_ECLOSED);
    CHECK_INT_EQ(pulled, before);
    vow_future_unref(f);
    world_close_dirty(&w);
}

static vow_next map_while_closing(vow_error *e, void *user)
{
    struct stop *t = user;
    (void)e;
    vow_source src = {.pull = pull, .state = t, .drop = drop_state};
    t->f = vow_map(t->w.loop, src, some_at_once, t,
                   VOW_MAP(.concurrent = 1, .ret_map = &t->m));
    return vow_ok(vow_nothing());
}

TEST(map, is_refused_by_a_loop_that_closes)
{
    struct stop t = {0};
    world_open(&t.w);
    vow_future *f = vow_race(t.w.loop, NULL, 0);
    vow_future_unref(vow_catch(f, map_while_closing, &t));
    CHECK_INT_EQ(vow_loop_close(t.w.loop), 0);
    t.w.loop = NULL;
    check_rejected(t.f, VOW_ECLOSED);
    CHECK_PTR_EQ(t.m, NULL);
    CHECK_INT_EQ(t.drops, 1);
    vow_future_unref(t.f);
    vow_future_unref(f);
    world_close_dirty(&t.w);
}
