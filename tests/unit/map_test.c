/* SPDX-License-Identifier: MIT */
/* map_test.c - vow_map(): arguments, the limit, results in input order, who
 * owns what, a million items, fibers and contexts. Failures are in
 * map_fail_test.c, sinks, sources that wait and resizing in map_flow_test.c,
 * canceling and closing in map_cancel_test.c. */
#include "map_work.h"

#include "vow/combine.h"
#include "vow/context.h"
#include "vow/fiber.h"

#include <string.h>

/* ---- work that ends at once, or after as many ms as its item says -------- */

static vow_future *at_once(vow_loop *loop, vow_value item, size_t index,
                           void *user)
{
    (void)user;
    CHECK_INT_EQ(vow_as_int(item), (int64_t)index);
    return vow_resolved(loop, vow_int(2 * vow_as_int(item)));
}

static vow_next number_of(vow_value v, void *user)
{
    (void)v;
    return vow_ok(vow_int((int64_t)(intptr_t)user));
}

static vow_future *after_ms(vow_loop *loop, vow_value item, size_t index,
                            void *user)
{
    (void)user;
    const int *ms = vow_as_ptr(item);
    return vow_then_drop(vow_delay(loop, (uint64_t)*ms), number_of, NULL,
                         (void *)(intptr_t)index);
}

/* ---- arguments ---------------------------------------------------------- */

static int never_pull(void *state, vow_value *ret_item, vow_future **ret_wait)
{
    (void)state;
    (void)ret_item;
    (void)ret_wait;
    FAIL("pulled by a map that was refused");
}

static void count_drop(void *state)
{
    ++*(int *)state;
}

static void check_refused(vow_loop *loop, vow_pull_fn pull, vow_map_fn fn,
                          const vow_map_opts *opts)
{
    int drops = 0;
    vow_source src = {.pull = pull, .state = &drops, .drop = count_drop};
    vow_future *f = vow_map(loop, src, fn, NULL, opts);
    check_rejected(f, VOW_EINVAL);
    CHECK_INT_EQ(drops, 1);
    vow_future_unref(f);
}

/* https://github.com/rust-lang/futures-rs/issues/2348,
 * https://github.com/rust-lang/futures-rs/issues/2740: limit 0 hangs. */
TEST(map, limit_of_0_and_other_bad_arguments_are_refused)
{
    struct world w;
    world_open(&w);
    vow_map_opts other = {.size = sizeof(other) - 1, .concurrent = 1};
    check_refused(w.loop, never_pull, at_once, VOW_MAP(.concurrent = 0));
    check_refused(w.loop, never_pull, at_once, NULL);
    check_refused(w.loop, NULL, at_once, VOW_MAP(.concurrent = 1));
    check_refused(w.loop, never_pull, NULL, VOW_MAP(.concurrent = 1));
    check_refused(w.loop, never_pull, at_once,
                  VOW_MAP(.concurrent = 5, .window = 4));
    check_refused(w.loop, never_pull, at_once,
                  VOW_MAP(.concurrent = 1, .fail = VOW_FAIL_COLLECT + 1));
    check_refused(w.loop, never_pull, at_once, &other);
    world_close(&w);
}

TEST(map, handle_of_a_map_that_was_refused_is_null)
{
    struct world w;
    world_open(&w);
    vow_mapping *m = (vow_mapping *)&w;
    vow_range r;
    vow_future *f = vow_map(w.loop, vow_source_range(&r, 0, 3), at_once, NULL,
                            VOW_MAP(.concurrent = 0, .ret_map = &m));
    CHECK_PTR_EQ(m, NULL);
    CHECK_PTR_EQ(vow_mapping_unref(NULL), NULL);
    check_rejected(f, VOW_EINVAL);
    vow_future_unref(f);
    world_close(&w);
}

TEST(map, options_are_copied)
{
    struct world w;
    world_open(&w);
    vow_range r;
    struct work k = {0};
    vow_map_opts o = {.size = sizeof(o), .concurrent = 2};
    vow_future *f = vow_map(w.loop, vow_source_range(&r, 0, 3), held, &k, &o);
    memset(&o, 0xff, sizeof(o));
    world_run(&w);
    CHECK_UINT_EQ(k.begun, 2);
    end_ok(&k, 0);
    end_ok(&k, 1);
    world_run(&w);
    end_ok(&k, 2);
    world_run(&w);
    check_list(f, 3, 100, 1);
    vow_future_unref(f);
    world_close(&w);
}

/* ---- the limit and the order -------------------------------------------- */

TEST(map, values_of_a_range_come_in_input_order)
{
    struct world w;
    world_open(&w);
    vow_range r;
    vow_future *f = vow_map(w.loop, vow_source_range(&r, 0, 200), at_once, NULL,
                            VOW_MAP(.concurrent = 3));
    world_run(&w);
    check_list(f, 200, 0, 2);
    vow_future_unref(f);
    world_close(&w);
}

TEST(map, results_of_an_array_keep_its_order_whoever_ends_first)
{
    static const int ms[] = {50, 10, 40, 20, 30, 1, 60};
    struct world w;
    world_open(&w);
    vow_span s;
    vow_future *f =
        vow_map(w.loop, vow_source_array(&s, ms, 7, sizeof(ms[0])), after_ms,
                NULL, VOW_MAP(.concurrent = 4, .as_completed = true));
    world_run(&w);
    check_list(f, 7, 0, 1);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop) / 1000000, 81); /* 20 + 1 + 60 */
    vow_future_unref(f);
    world_close(&w);
}

TEST(map, without_items_the_list_is_empty_and_the_number_0)
{
    struct world w;
    world_open(&w);
    vow_range r;
    vow_span s;
    vow_future *f = vow_map(w.loop, vow_source_range(&r, 5, 5), at_once, NULL,
                            VOW_MAP(.concurrent = 1));
    vow_future *g = vow_map(w.loop, vow_source_array(&s, NULL, 0, 8), at_once,
                            NULL, VOW_MAP(.concurrent = 1, .discard = true));
    vow_future *h = vow_map(w.loop, vow_source_range(&r, 5, 4), at_once, NULL,
                            VOW_MAP(.concurrent = 1));
    world_run(&w);
    check_list(f, 0, 0, 0);
    check_list(h, 0, 0, 0);
    CHECK_INT_EQ(vow_kind_of(vow_get(g)), VOW_INT);
    CHECK_INT_EQ(vow_as_int(vow_get(g)), 0);
    vow_future_unref(f);
    vow_future_unref(g);
    vow_future_unref(h);
    world_close(&w);
}

TEST(map, so_many_run_and_the_next_begins_when_one_ends)
{
    struct world w;
    world_open(&w);
    vow_range r;
    struct work k = {0};
    vow_future *f = vow_map(w.loop, vow_source_range(&r, 0, 10), held, &k,
                            VOW_MAP(.concurrent = 3));
    CHECK_UINT_EQ(k.begun, 0); /* from the queue, not inside the call */
    world_run(&w);
    CHECK_UINT_EQ(k.begun, 3);
    end_ok(&k, 1);
    CHECK_UINT_EQ(k.begun, 3);
    world_run(&w);
    CHECK_UINT_EQ(k.begun, 4);
    for (size_t i = 0; i < 10; i++) {
        if (i != 1)
            end_ok(&k, i);
        world_run(&w);
    }
    CHECK_UINT_EQ(k.most, 3);
    for (size_t i = 0; i < 10; i++)
        CHECK_UINT_EQ(k.order[i], i);
    check_list(f, 10, 100, 1);
    vow_future_unref(f);
    world_close(&w);
}

TEST(map, limit_larger_than_anything_takes_memory_for_what_runs)
{
    struct world w;
    world_open(&w);
    vow_range r;
    struct work k = {0};
    size_t before = w.alloc.live_bytes;
    vow_future *f = vow_map(w.loop, vow_source_range(&r, 0, MANY), held, &k,
                            VOW_MAP(.concurrent = UINT32_MAX));
    world_run(&w);
    CHECK_UINT_EQ(k.running, MANY);
    CHECK(w.alloc.live_bytes - before < 100000);
    for (size_t i = 0; i < MANY; i++)
        end_ok(&k, MANY - 1 - i);
    world_run(&w);
    check_list(f, MANY, 100, 1);
    vow_future_unref(f);
    world_close(&w);
}

TEST(map, goes_on_when_its_future_is_dropped)
{
    struct world w;
    world_open(&w);
    vow_range r;
    struct work k = {0};
    vow_future_unref(vow_map(w.loop, vow_source_range(&r, 0, 2), held, &k,
                             VOW_MAP(.concurrent = 1)));
    world_run(&w);
    end_ok(&k, 0);
    world_run(&w);
    CHECK_UINT_EQ(k.begun, 2);
    end_ok(&k, 1);
    world_run(&w);
    world_close(&w);
}

static void progress_is(vow_value v, void *user)
{
    int64_t *last = user;
    CHECK(vow_as_int(v) > *last);
    *last = vow_as_int(v);
}

TEST(map, progress_is_the_number_of_items_that_have_ended)
{
    struct world w;
    world_open(&w);
    vow_range r;
    struct work k = {0};
    int64_t last = 0;
    vow_future *f = vow_map(w.loop, vow_source_range(&r, 0, 5), held, &k,
                            VOW_MAP(.concurrent = 5));
    vow_future *g = vow_on_progress(f, progress_is, &last);
    for (size_t i = 0; i < 5; i++) {
        world_run(&w);
        CHECK_INT_EQ(last, (int64_t)i);
        end_ok(&k, 4 - i);
    }
    world_run(&w);
    CHECK_INT_EQ(last, 5);
    vow_future_unref(f);
    vow_future_unref(g);
    world_close(&w);
}

/* ---- who owns what ------------------------------------------------------ */

struct store {
    struct work k;
    int next;
    bool alive[MANY]; /* items */
    int state_drops;
};

static void item_drop(void *ptr)
{
    bool *alive = ptr;
    CHECK(*alive);
    *alive = false;
}

static int store_pull(void *state, vow_value *ret_item, vow_future **ret_wait)
{
    struct store *s = state;
    (void)ret_wait;
    if (s->next == 6)
        return 0;
    s->alive[s->next] = true;
    *ret_item = vow_own(&s->alive[s->next++], item_drop);
    return 1;
}

static void store_drop(void *state)
{
    struct store *s = state;
    for (size_t i = 0; i < MANY; i++)
        CHECK(!s->alive[i]); /* items may point into it */
    s->state_drops++;
}

TEST(map, item_lives_until_its_future_is_settled_and_the_source_longer)
{
    struct world w;
    world_open(&w);
    struct store s = {.k.stubborn = true};
    vow_source src = {.pull = store_pull, .state = &s, .drop = store_drop};
    vow_future *f = vow_map(w.loop, src, held, &s.k, VOW_MAP(.concurrent = 6));
    world_run(&w);
    for (size_t i = 0; i < 3; i++) {
        end_ok(&s.k, i);
        CHECK(s.alive[i]);
        world_run(&w);
        CHECK(!s.alive[i]);
    }
    end_fail(w.loop, &s.k, 3, VOW_EIO);
    world_run(&w);
    check_rejected(f, VOW_EIO); /* and two still run and have their items */
    CHECK(s.alive[4] && s.alive[5]);
    CHECK_INT_EQ(s.state_drops, 0);
    end_ok(&s.k, 4);
    world_run(&w);
    CHECK_INT_EQ(s.state_drops, 0);
    end_ok(&s.k, 5);
    world_run(&w);
    CHECK_INT_EQ(s.state_drops, 1);
    vow_future_unref(f);
    world_close(&w);
}

TEST(map, handle_may_be_dropped_first_or_after_the_loop)
{
    struct world w;
    world_open(&w);
    vow_range r[2];
    vow_mapping *m[2];
    struct work k = {0};
    vow_future *f = vow_map(w.loop, vow_source_range(&r[0], 0, 1), held, &k,
                            VOW_MAP(.concurrent = 1, .ret_map = &m[0]));
    vow_mapping_unref(m[0]);
    world_run(&w);
    end_ok(&k, 0);
    vow_future *g = vow_map(w.loop, vow_source_range(&r[1], 0, 9), at_once,
                            NULL, VOW_MAP(.concurrent = 1, .ret_map = &m[1]));
    world_run(&w);
    vow_future_unref(f);
    vow_future_unref(g);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    CHECK_UINT_EQ(vow_map_stats_get(m[1]).ended, 9);
    CHECK_INT_EQ(vow_map_resize(m[1], 4), 0);
    vow_mapping_unref(m[1]);
    world_close_dirty(&w);
}

/* ---- a million ---------------------------------------------------------- */

struct depth {
    uintptr_t low, high;
};

static vow_future *depth_seen(vow_loop *loop, vow_value item, size_t index,
                              void *user)
{
    struct depth *d = user;
    char here;
    uintptr_t at = (uintptr_t)&here;
    (void)index;
    if (d->low == 0 || at < d->low)
        d->low = at;
    if (at > d->high)
        d->high = at;
    return vow_resolved(loop, item);
}

/* https://github.com/caolan/async/issues/413,
 * https://github.com/caolan/async/issues/510,
 * https://github.com/caolan/async/pull/1514: the stack overflows when tasks
 * complete synchronously. */
TEST(map, million_items_that_end_at_once_take_no_stack_and_no_memory)
{
    struct world w;
    world_open(&w);
    vow_range r;
    struct depth d = {0};
    size_t before = w.alloc.live_bytes;
    vow_future *f =
        vow_map(w.loop, vow_source_range(&r, 0, 1000000), depth_seen, &d,
                VOW_MAP(.concurrent = 16, .discard = true));
    world_run(&w);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 1000000);
    CHECK(d.high - d.low < 4096);
    CHECK(w.alloc.peak_bytes < before + 100000);
    vow_future_unref(f);
    world_close(&w);
}

static vow_future *some_by_the_queue(vow_loop *loop, vow_value item,
                                     size_t index, void *user)
{
    (void)user;
    vow_future *f = vow_resolved(loop, item);
    return index % 7 == 3 ? vow_then_drop(f, NULL, NULL, NULL) : f;
}

TEST(map, no_more_than_a_thousand_items_pass_between_two_polls)
{
    struct world w;
    world_open(&w);
    vow_range r;
    vow_future *f =
        vow_map(w.loop, vow_source_range(&r, 0, 7777), some_by_the_queue, NULL,
                VOW_MAP(.concurrent = 3, .discard = true));
    for (int64_t before = -1; r.next > before;) {
        before = r.next;
        world_turn(&w);
        CHECK(r.next - before <= 1000);
    }
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 7777);
    vow_future_unref(f);
    world_close(&w);
}

static vow_future *first_held(vow_loop *loop, vow_value item, size_t index,
                              void *user)
{
    return index == 0 ? held(loop, item, index, user)
                      : vow_resolved(loop, item);
}

static vow_future *count_in_order(size_t index, vow_future *outcome, void *user)
{
    (void)outcome;
    CHECK_UINT_EQ(index, *(size_t *)user);
    ++*(size_t *)user;
    return NULL;
}

TEST(map, long_line_behind_a_slow_item_is_delivered_between_polls)
{
    struct world w;
    world_open(&w);
    vow_range r;
    struct work k = {0};
    size_t got = 0;
    vow_future *f =
        vow_map(w.loop, vow_source_range(&r, 0, 5000), first_held, &k,
                VOW_MAP(.concurrent = 2, .window = 6000, .fail = VOW_FAIL_DRAIN,
                        .sink = count_in_order, .sink_user = &got));
    world_run(&w);
    CHECK_INT_EQ(r.next, 5000);
    CHECK_UINT_EQ(got, 0);
    end_ok(&k, 0);
    size_t before = 0;
    while (got < 5000) {
        world_turn(&w);
        CHECK(got > before && got - before <= 1000);
        before = got;
    }
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 5000);
    vow_future_unref(f);
    world_close(&w);
}

/* ---- fibers and contexts ------------------------------------------------- */

struct sale {
    vow_loop *loop;
    int64_t amount;
};

static vow_next fetch_sale(void *arg)
{
    struct sale *s = arg;
    int rc = vow_sleep(s->loop, (uint64_t)s->amount);
    return rc < 0 ? vow_fail_code(rc, NULL) : vow_ok(vow_int(s->amount));
}

static vow_future *in_a_fiber(vow_loop *loop, vow_value item, size_t index,
                              void *user)
{
    (void)index;
    (void)user;
    return vow_async(loop, fetch_sale, vow_as_ptr(item));
}

static vow_next total_of_sales(void *arg)
{
    struct sale *sales = arg;
    vow_span s;
    VOW_AUTO(vow_future)
    f = vow_map(sales->loop, vow_source_array(&s, sales, 8, sizeof(*sales)),
                in_a_fiber, NULL, VOW_MAP(.concurrent = 3));
    int rc = vow_await(f);
    if (rc < 0)
        return vow_fail_code(rc, NULL);
    int64_t total = 0;
    for (size_t i = 0; i < vow_list_size(vow_get(f)); i++)
        total += vow_as_int(vow_list_get(vow_get(f), i));
    return vow_ok(vow_int(total));
}

TEST(map, fiber_awaits_a_map_whose_items_are_fibers)
{
    struct world w;
    world_open(&w);
    struct sale sales[8];
    for (int i = 0; i < 8; i++)
        sales[i] = (struct sale){.loop = w.loop, .amount = 10 * (i + 1)};
    vow_future *f = vow_async(w.loop, total_of_sales, sales);
    world_run(&w);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 360);
    vow_future_unref(f);
    world_close(&w);
}

struct whose {
    vow_context context;
    int calls;
};

static void whose_is_it(vow_loop *loop, struct whose *c)
{
    CHECK_PTR_EQ(vow_context_current(loop), &c->context);
    c->calls++;
}

struct asking {
    vow_loop *loop;
    struct whose *whose;
    int left;
};

static int pull_in_context(void *state, vow_value *ret_item,
                           vow_future **ret_wait)
{
    struct asking *a = state;
    (void)ret_wait;
    whose_is_it(a->loop, a->whose);
    *ret_item = vow_int(a->left);
    return a->left-- > 0;
}

static vow_future *fn_in_context(vow_loop *loop, vow_value item, size_t index,
                                 void *user)
{
    struct asking *a = user;
    (void)item;
    whose_is_it(loop, a->whose);
    return index % 2 == 0 ? vow_delay(loop, 1)
                          : vow_resolved(loop, vow_nothing());
}

static vow_future *sink_in_context(size_t index, vow_future *outcome,
                                   void *user)
{
    struct asking *a = user;
    (void)outcome;
    whose_is_it(a->loop, a->whose);
    return index == 3 ? vow_delay(a->loop, 5) : NULL;
}

/* https://github.com/sindresorhus/p-queue/issues/200: the context is lost in
 * queued tasks. */
TEST(map, functions_run_in_the_context_of_the_caller)
{
    struct world w;
    world_open(&w);
    struct whose c = {.context = {.owner = &w}};
    struct asking a = {.loop = w.loop, .whose = &c, .left = 9};
    vow_context_init(&c.context, w.loop);
    vow_context *before = vow_context_enter(w.loop, &c.context);
    vow_source src = {.pull = pull_in_context, .state = &a};
    vow_future *f = vow_map(
        w.loop, src, fn_in_context, &a,
        VOW_MAP(.concurrent = 3, .sink = sink_in_context, .sink_user = &a));
    vow_context_leave(w.loop, before);
    world_run(&w);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 9);
    CHECK_INT_EQ(c.calls, 10 + 9 + 9);
    CHECK_PTR_EQ(vow_context_current(w.loop), NULL);
    CHECK_UINT_EQ(c.context.refs, 1);
    vow_context_unref(&c.context);
    vow_future_unref(f);
    world_close(&w);
}
