/* SPDX-License-Identifier: MIT */
/* memory_test.c - what it costs: one allocation per link and none while
 * settling, 128 bytes per pending link, pools that are given back, and millions
 * of links with bounded stack.
 *
 * Libraries whose chains overflowed the stack, year after year:
 * https://github.com/caolan/async/issues/413, /510, /75. */
#include "harness.h"
#include "world.h"

#include "vow/combine.h"
#include "vow/scope.h"

#include <stdlib.h>

enum { MILLION = 1000000 };

/* ---- links -------------------------------------------------------------- */

static vow_next add_one(vow_value v, void *user)
{
    (void)user;
    return vow_ok(vow_int(vow_as_int(v) + 1));
}

static vow_next count_ok(vow_value v, void *user)
{
    (void)v;
    ++*(int *)user;
    return vow_ok(vow_nothing());
}

static vow_next keep_code(vow_error *e, void *user)
{
    *(int *)user = vow_error_code(e);
    return vow_ok(vow_nothing());
}

/* A chain of n links on f, whose reference is moved; gives the last. */
static vow_future *chain(vow_future *f, int n, vow_ok_fn ok)
{
    for (int i = 0; i < n; i++) {
        vow_future *next = vow_then(f, ok, NULL, NULL);
        vow_future_unref(f);
        f = next;
    }
    return f;
}

static vow_loop_stats stats(vow_loop *loop)
{
    vow_loop_stats st;
    vow_loop_stats_get(loop, &st);
    return st;
}

static void count_drop(void *ptr)
{
    ++*(int *)ptr;
}

/* ---- allocations, one by one -------------------------------------------- */

static void open_unpooled(struct world *w)
{
    world_open_with(w, VOW_LOOP_OPTS(.flags = VOW_LOOP_UNPOOLED));
}

TEST(memory, a_link_is_one_allocation_in_a_chain_and_in_a_fan)
{
    struct world w;
    open_unpooled(&w);
    vow_deferred *d;
    vow_future *f = vow_promise(w.loop, &d);
    uint64_t before = w.alloc.allocs;
    for (int i = 0; i < 1000; i++)
        vow_future_unref(vow_then(f, add_one, NULL, NULL));
    CHECK_UINT_EQ(w.alloc.allocs - before, 1000);
    before = w.alloc.allocs;
    vow_future *tail = chain(f, 1000, add_one);
    CHECK_UINT_EQ(w.alloc.allocs - before, 1000);
    vow_resolve(d, vow_int(0));
    world_run(&w);
    vow_deferred_unref(d);
    vow_future_unref(tail);
    world_close(&w);
}

TEST(memory, a_number_needs_no_allocation_of_its_own)
{
    struct world w;
    open_unpooled(&w);
    vow_future_unref(vow_resolved(w.loop, vow_int(1)));
    uint64_t before = w.alloc.allocs;
    vow_future *f = vow_resolved(w.loop, vow_int(7));
    vow_future *g = vow_resolved(w.loop, vow_nothing());
    CHECK_UINT_EQ(w.alloc.allocs - before, 2);
    vow_future_unref(f);
    vow_future_unref(g);
    world_close(&w);
}

TEST(memory, settling_a_chain_allocates_nothing)
{
    struct world w;
    open_unpooled(&w);
    vow_deferred *d;
    vow_future *tail = chain(vow_promise(w.loop, &d), 1000, add_one);
    uint64_t before = w.alloc.allocs;
    vow_resolve(d, vow_int(0));
    world_run(&w);
    CHECK_UINT_EQ(w.alloc.allocs, before);
    CHECK_INT_EQ(vow_as_int(vow_get(tail)), 1000);
    vow_deferred_unref(d);
    vow_future_unref(tail);
    CHECK_UINT_EQ(w.alloc.allocs, before);
    world_close(&w);
}

TEST(memory, settling_a_fan_allocates_nothing)
{
    struct world w;
    open_unpooled(&w);
    int runs = 0;
    vow_deferred *d;
    vow_future *f = vow_promise(w.loop, &d);
    for (int i = 0; i < 1000; i++)
        vow_future_unref(vow_then(f, count_ok, NULL, &runs));
    uint64_t before = w.alloc.allocs;
    vow_resolve(d, vow_int(0));
    world_run(&w);
    CHECK_INT_EQ(runs, 1000);
    CHECK_UINT_EQ(w.alloc.allocs, before);
    vow_deferred_unref(d);
    vow_future_unref(f);
    world_close(&w);
}

TEST(memory, rejecting_a_chain_allocates_nothing)
{
    struct world w;
    open_unpooled(&w);
    vow_deferred *d;
    vow_future *tail = chain(vow_promise(w.loop, &d), 1000, add_one);
    vow_error *e = vow_error_new(w.loop, VOW_EIO, "ready");
    uint64_t before = w.alloc.allocs;
    vow_reject(d, e);
    world_run(&w);
    CHECK_PTR_EQ(vow_error_of(tail), e);
    CHECK_UINT_EQ(w.alloc.allocs, before);
    vow_deferred_unref(d);
    vow_future_unref(tail);
    world_close(&w);
}

TEST(memory, an_owned_value_goes_down_without_allocation_or_copy)
{
    struct world w;
    open_unpooled(&w);
    int drops = 0;
    vow_deferred *d;
    vow_future *tail = chain(vow_promise(w.loop, &d), 1000, NULL);
    uint64_t before = w.alloc.allocs;
    vow_resolve(d, vow_own(&drops, count_drop));
    vow_deferred_unref(d);
    world_run(&w);
    CHECK_UINT_EQ(w.alloc.allocs, before);
    CHECK_PTR_EQ(vow_as_ptr(vow_get(tail)), &drops);
    CHECK_INT_EQ(drops, 0);
    vow_future_unref(tail);
    CHECK_INT_EQ(drops, 1);
    world_close(&w);
}

TEST(memory, following_allocates_nothing)
{
    struct world w;
    open_unpooled(&w);
    vow_deferred *d, *od;
    vow_future *f = vow_promise(w.loop, &d);
    vow_future *other = vow_promise(w.loop, &od);
    uint64_t before = w.alloc.allocs;
    vow_resolve_with(d, other);
    vow_resolve(od, vow_int(3));
    world_run(&w);
    CHECK_UINT_EQ(w.alloc.allocs, before);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 3);
    vow_deferred_unref(d);
    vow_deferred_unref(od);
    vow_future_unref(f);
    vow_future_unref(other);
    world_close(&w);
}

/* ---- pools -------------------------------------------------------------- */

/* A loop with pools in every build; a world has none under sanitizers. */
struct pool {
    struct test_alloc alloc;
    vow_loop *loop;
};

static vow_loop *pool_open(struct pool *p)
{
    test_alloc_init(&p->alloc);
    CHECK_INT_EQ(
        vow_loop_new(VOW_LOOP_OPTS(.flags = VOW_LOOP_VIRTUAL_TIME,
                                   .alloc = test_alloc_hook(&p->alloc)),
                     &p->loop),
        0);
    return p->loop;
}

static void pool_close(struct pool *p)
{
    CHECK_INT_EQ(vow_loop_close(p->loop), 0);
    test_alloc_fini(TEST_HERE, &p->alloc);
}

/* 100,000 links come and go. */
static void fill_and_empty(vow_loop *loop)
{
    vow_deferred *d;
    vow_future *tail = chain(vow_promise(loop, &d), 100000, add_one);
    vow_resolve(d, vow_int(0));
    CHECK_INT_EQ(vow_loop_run_until(loop, tail), 0);
    vow_deferred_unref(d);
    vow_future_unref(tail);
    CHECK_UINT_EQ(stats(loop).futures, 0);
}

TEST(memory, a_pending_link_takes_at_most_128_bytes)
{
    enum { N = 100000 };
    struct pool p;
    vow_loop *loop = pool_open(&p);
    vow_deferred *d;
    vow_future *f = vow_promise(loop, &d);
    size_t pool = stats(loop).pool_bytes, bytes = p.alloc.live_bytes;
    vow_future *tail = chain(f, N, add_one);
    CHECK((stats(loop).pool_bytes - pool) / N <= 128);
    CHECK((p.alloc.live_bytes - bytes) / N <= 128);
    vow_resolve(d, vow_int(0));
    CHECK_INT_EQ(vow_loop_run_until(loop, tail), 0);
    vow_deferred_unref(d);
    vow_future_unref(tail);
    pool_close(&p);
}

TEST(memory, what_was_freed_is_used_again)
{
    struct pool p;
    vow_loop *loop = pool_open(&p);
    fill_and_empty(loop);
    size_t pool = stats(loop).pool_bytes;
    uint64_t allocs = p.alloc.allocs;
    for (int i = 0; i < 5; i++)
        fill_and_empty(loop);
    CHECK(stats(loop).pool_bytes <= pool);
    CHECK_UINT_EQ(p.alloc.allocs, allocs);
    pool_close(&p);
}

TEST(memory, trim_gives_unused_pools_back_at_once)
{
    struct pool p;
    vow_loop *loop = pool_open(&p);
    fill_and_empty(loop);
    size_t bytes = p.alloc.live_bytes;
    CHECK(bytes > 1000000);
    vow_loop_trim(loop);
    CHECK(stats(loop).pool_bytes < bytes / 20);
    CHECK(p.alloc.live_bytes < bytes / 20);
    fill_and_empty(loop);
    pool_close(&p);
}

TEST(memory, time_gives_unused_pools_back_half_by_half)
{
    struct pool p;
    vow_loop *loop = pool_open(&p);
    fill_and_empty(loop);
    size_t before = p.alloc.live_bytes;
    for (int second = 0; second < 3; second++)
        CHECK_INT_EQ(vow_loop_advance(loop, 1000), 0);
    CHECK(p.alloc.live_bytes < before / 2);
    for (int second = 0; second < 30; second++)
        CHECK_INT_EQ(vow_loop_advance(loop, 1000), 0);
    CHECK(p.alloc.live_bytes < before / 20);
    pool_close(&p);
}

TEST(memory, giving_pools_back_does_not_keep_the_loop_running)
{
    struct pool p;
    vow_loop *loop = pool_open(&p);
    fill_and_empty(loop);
    CHECK_INT_EQ(vow_loop_run(loop), 0);
    CHECK_UINT_EQ(vow_loop_now_ns(loop), 0);
    pool_close(&p);
}

/* ---- millions ----------------------------------------------------------- */

TEST(memory, a_chain_of_a_million_links_settles)
{
    struct world w;
    world_open(&w);
    vow_deferred *d;
    vow_future *tail = chain(vow_promise(w.loop, &d), MILLION, add_one);
    vow_resolve(d, vow_int(0));
    vow_deferred_unref(d);
    world_run(&w);
    CHECK_INT_EQ(vow_as_int(vow_get(tail)), MILLION);
    vow_future_unref(tail);
    world_close(&w);
}

TEST(memory, a_chain_of_a_million_links_broken_at_its_head_is_freed)
{
    struct world w;
    world_open(&w);
    int code = 0;
    vow_deferred *d;
    vow_future *tail = chain(vow_promise(w.loop, &d), MILLION, add_one);
    vow_future_unref(vow_catch(tail, keep_code, &code));
    vow_future_unref(tail);
    vow_deferred_unref(d);
    world_run(&w);
    CHECK_INT_EQ(code, VOW_EBROKEN);
    world_close(&w);
}

TEST(memory, the_close_settles_a_million_pending_links)
{
    struct world w;
    world_open(&w);
    int code = 0;
    vow_deferred *d;
    vow_future *tail = chain(vow_promise(w.loop, &d), MILLION, add_one);
    vow_future_unref(vow_catch(tail, keep_code, &code));
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    CHECK_INT_EQ(code, VOW_ECLOSED);
    vow_future_unref(tail);
    vow_deferred_unref(d);
    world_close_dirty(&w);
}

TEST(memory, a_million_handlers_on_one_promise_run)
{
    struct world w;
    world_open(&w);
    int runs = 0;
    vow_deferred *d;
    vow_future *f = vow_promise(w.loop, &d);
    for (int i = 0; i < MILLION; i++)
        vow_future_unref(vow_then(f, count_ok, NULL, &runs));
    vow_resolve(d, vow_int(1));
    world_run(&w);
    CHECK_INT_EQ(runs, MILLION);
    CHECK_UINT_EQ(stats(w.loop).futures, 1);
    vow_deferred_unref(d);
    vow_future_unref(f);
    world_close(&w);
}

/* Promise i follows promise i+1; built from either end. */
static void check_follow_chain(bool front_to_back)
{
    struct world w;
    world_open(&w);
    vow_deferred **d = calloc(MILLION, sizeof(vow_deferred *));
    vow_future **f = calloc(MILLION, sizeof(vow_future *));
    CHECK(d != NULL && f != NULL);
    for (int i = 0; i < MILLION; i++)
        f[i] = vow_promise(w.loop, &d[i]);
    for (int n = 0; n < MILLION - 1; n++) {
        int i = front_to_back ? n : MILLION - 2 - n;
        CHECK(vow_resolve_with(d[i], f[i + 1]));
    }
    vow_resolve(d[MILLION - 1], vow_int(5));
    world_run(&w);
    for (int i = 0; i < MILLION; i++) {
        CHECK_INT_EQ(vow_as_int(vow_get(f[i])), 5);
        vow_deferred_unref(d[i]);
        vow_future_unref(f[i]);
    }
    free(d);
    free(f);
    world_close(&w);
}

TEST(memory, a_million_follows_built_front_to_back_settle)
{
    check_follow_chain(true);
}

TEST(memory, a_million_follows_built_back_to_front_settle)
{
    check_follow_chain(false);
}

/* Each step inserts the next: the chain must not grow while it runs. */
struct spin {
    struct world *w;
    int i, n;
    bool fails, waits;
    size_t futures_most, bytes_early;
};

static vow_future *spin_again(struct spin *s);

static vow_next spin_step(struct spin *s)
{
    s->i++;
    if (s->i % 4096 == 0) {
        size_t futures = stats(s->w->loop).futures;
        if (futures > s->futures_most)
            s->futures_most = futures;
    }
    if (s->i == 4096)
        s->bytes_early = s->w->alloc.live_bytes;
    if (s->i >= s->n)
        return vow_ok(vow_int(s->i));
    return vow_follow(spin_again(s));
}

static vow_next spin_ok(vow_value v, void *user)
{
    (void)v;
    return spin_step(user);
}

static vow_next spin_fail(vow_error *e, void *user)
{
    (void)e;
    return spin_step(user);
}

static vow_future *spin_again(struct spin *s)
{
    vow_loop *loop = s->w->loop;
    vow_future *start;
    if (s->fails)
        start = vow_rejected(loop, vow_error_new(loop, VOW_EIO, "again"));
    else if (s->waits)
        start = vow_delay(loop, 1);
    else
        start = vow_resolved(loop, vow_nothing());
    vow_future *next = vow_then(start, spin_ok, spin_fail, s);
    vow_future_unref(start);
    return next;
}

static void check_spin(struct spin s)
{
    struct world w;
    world_open(&w);
    s.w = &w;
    int runs = 0;
    vow_future *f = spin_again(&s);
    for (int i = 0; i < 10; i++)
        vow_future_unref(vow_then(f, count_ok, NULL, &runs));
    world_run(&w);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), s.n);
    CHECK_INT_EQ(runs, 10);
    CHECK(s.futures_most < 64);
    CHECK(w.alloc.peak_bytes < s.bytes_early + 1000000);
    vow_future_unref(f);
    world_close(&w);
}

TEST(memory, a_million_nested_insertions_run_in_bounded_memory)
{
    check_spin((struct spin){.n = MILLION});
}

TEST(memory, a_million_retries_by_insertion_run_in_bounded_memory)
{
    check_spin((struct spin){.n = MILLION, .fails = true});
}

TEST(memory, insertions_that_wait_run_in_bounded_memory)
{
    check_spin((struct spin){.n = 100000, .waits = true});
}

TEST(memory, lists_nested_a_hundred_thousand_deep_are_freed)
{
    struct world w;
    world_open(&w);
    vow_deferred *d;
    vow_future *f = vow_promise(w.loop, &d);
    for (int i = 0; i < 100000; i++) {
        vow_future *next = vow_all(w.loop, &f, 1);
        vow_future_unref(f);
        f = next;
    }
    vow_resolve(d, vow_int(1));
    vow_deferred_unref(d);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), 0);
    CHECK_UINT_EQ(vow_list_size(vow_get(f)), 1);
    vow_future_unref(f);
    world_close(&w);
}

/* ---- scopes ------------------------------------------------------------- */

TEST(memory, scopes_a_hundred_thousand_deep_are_canceled_and_freed)
{
    struct world w;
    world_open(&w);
    vow_scope *root, *leaf;
    CHECK_INT_EQ(vow_scope_new(w.loop, NULL, &root), 0);
    leaf = vow_scope_ref(root);
    for (int i = 0; i < 100000; i++) {
        vow_scope *child;
        CHECK_INT_EQ(
            vow_scope_new(w.loop, VOW_SCOPE_OPTS(.parent = leaf), &child), 0);
        vow_scope_unref(leaf);
        leaf = child;
    }
    CHECK(vow_scope_cancel(root, NULL));
    world_run(&w);
    CHECK(vow_scope_canceled(leaf));
    vow_scope_unref(root);
    vow_scope_unref(leaf);
    world_run(&w);
    world_close(&w);
}

/* https://github.com/nodejs/node/issues/54614 */
TEST(memory, a_long_lived_scope_keeps_nothing_of_members_that_ended)
{
    struct world w;
    world_open(&w);
    vow_scope *s;
    CHECK_INT_EQ(vow_scope_new(w.loop, NULL, &s), 0);
    size_t bytes = 0;
    for (int i = 0; i < 200000; i++) {
        vow_future *f = vow_resolved(w.loop, vow_int(i));
        vow_future_unref(vow_scope_add(s, f));
        vow_future_unref(f);
        world_turn(&w);
        if (i == 1000)
            bytes = w.alloc.live_bytes;
    }
    CHECK_UINT_EQ(vow_scope_size(s), 0);
    CHECK_UINT_EQ(stats(w.loop).futures, 0);
    CHECK(w.alloc.live_bytes <= bytes + 65536);
    vow_scope_unref(s);
    world_close(&w);
}

static void count_hook(vow_error *why, void *user)
{
    (void)why;
    ++*(int *)user;
}

TEST(memory, hooks_take_no_memory)
{
    enum { N = 100000 };
    struct world w;
    world_open(&w);
    vow_scope *s;
    CHECK_INT_EQ(vow_scope_new(w.loop, NULL, &s), 0);
    vow_hook *hooks = calloc(N, sizeof(*hooks));
    CHECK(hooks != NULL);
    int runs = 0;
    uint64_t allocs = w.alloc.allocs;
    for (int i = 0; i < N; i++)
        CHECK_INT_EQ(vow_hook_add(&hooks[i], s, count_hook, &runs), 0);
    for (int i = 0; i < N; i += 2)
        CHECK(vow_hook_remove(&hooks[i]));
    CHECK_UINT_EQ(w.alloc.allocs, allocs);
    vow_scope_cancel(s, NULL);
    world_run(&w);
    CHECK_INT_EQ(runs, N / 2);
    free(hooks);
    vow_scope_unref(s);
    world_close(&w);
}
