/* SPDX-License-Identifier: MIT */
/* semaphore_test.c - permits by weight, in order of arrival: all or none,
 * bounded bypass, cancel and timeout anywhere in the queue, resize, close, and
 * what gives permits back. */
#include "room.h"

/* ---- making ------------------------------------------------------------- */

TEST(sem, has_one_permit_by_default)
{
    struct room r;
    room_open(&r, NULL);
    CHECK_UINT_EQ(vow_sem_stats_get(r.s).permits, 1);
    int a = hold(&r, 1), b = ask(&r, 1);
    CHECK(waits(&r, b));
    give(&r, a);
    CHECK(got(&r, b));
    room_close(&r);
}

TEST(sem, refuses_options_of_an_unknown_size)
{
    struct world w;
    world_open(&w);
    vow_sem *s = NULL;
    vow_sem_opts o = {.size = 3, .permits = 1};
    CHECK_INT_EQ(vow_sem_new(w.loop, &o, &s), VOW_EINVAL);
    CHECK_PTR_EQ(s, NULL);
    CHECK_PTR_EQ(vow_sem_unref(NULL), NULL);
    world_close(&w);
}

/* https://github.com/golang/go/issues/53940 */
TEST(sem, tells_its_size_and_its_use)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 5));
    int a = hold(&r, 3), b = ask(&r, 4), c = ask(&r, 1);
    CHECK_UINT_EQ(vow_sem_stats_get(r.s).permits, 5);
    check_use(&r, 3, 2);
    give(&r, a);
    check_use(&r, 5, 0);
    CHECK(got(&r, b) && got(&r, c));
    room_close(&r);
}

/* ---- all or none, in order ---------------------------------------------- */

/* https://github.com/tokio-rs/tokio/pull/1973,
 * https://github.com/typelevel/cats-effect/pull/403 */
TEST(sem, a_waiter_holds_nothing_until_it_gets_all)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 4));
    int a = hold(&r, 1), b = hold(&r, 2), big = ask(&r, 4);
    check_use(&r, 3, 1);
    give(&r, a);
    check_use(&r, 2, 1);
    vow_cancel(r.ask[big], NULL);
    check_use(&r, 2, 0);
    int c = hold(&r, 2);
    give(&r, b);
    give(&r, c);
    room_close(&r);
}

/* https://github.com/smol-rs/async-lock/issues/23,
 * https://github.com/tokio-rs/tokio/pull/3693 */
TEST(sem, a_small_one_never_passes_a_big_one_that_waits)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 3));
    int a = hold(&r, 1), big = ask(&r, 3);
    for (int i = 0; i < 10; i++)
        ask(&r, 1); /* two are free all the time */
    world_advance_ms(&r.w, 100000);
    check_use(&r, 1, 11);
    give(&r, a);
    CHECK(got(&r, big));
    check_use(&r, 3, 10);
    room_close(&r);
}

TEST(sem, serves_waiters_of_all_weights_in_order_of_arrival)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 4));
    int first = hold(&r, 4), order[ASKS];
    for (int i = 0; i < 40; i++)
        order[i] = ask(&r, (uint32_t)(i * 7 % 4) + 1);
    give(&r, first);
    for (int i = 0; i < 40; i++) {
        CHECK(got(&r, order[i]));
        for (int k = i + 1; k < 40; k++) /* who is in came without a gap */
            CHECK(waits(&r, order[k]) || got(&r, order[k - 1]));
        give(&r, order[i]);
    }
    room_close(&r);
}

TEST(sem, refuses_no_weight_and_more_than_there_is_at_once)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 3));
    CHECK_INT_EQ(code_of(r.ask[ask(&r, 0)]), VOW_EINVAL);
    CHECK_INT_EQ(code_of(r.ask[ask(&r, 4)]), VOW_EINVAL);
    CHECK_INT_EQ(code_of(r.ask[ask(&r, UINT32_MAX)]), VOW_EINVAL);
    vow_permit p = {0};
    CHECK(!vow_sem_try(r.s, 0, &p));
    CHECK(!vow_sem_try(r.s, 4, &p));
    CHECK(!vow_permit_held(&p));
    hold(&r, 3);
    room_close(&r);
}

TEST(sem, refuses_more_waiters_than_the_queue_holds)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.queue_max = 2));
    hold(&r, 1);
    int b = ask(&r, 1), c = ask(&r, 1), d = ask(&r, 1);
    CHECK_INT_EQ(code_of(r.ask[d]), VOW_EQUEUEFULL);
    vow_cancel(r.ask[b], NULL);
    int e = ask(&r, 1);
    CHECK(waits(&r, c) && waits(&r, e));
    CHECK_INT_EQ(code_of(r.ask[ask(&r, 1)]), VOW_EQUEUEFULL);
    room_close(&r);
}

/* ---- bypass ------------------------------------------------------------- */

/* https://github.com/Effect-TS/effect/pull/2107 */
TEST(sem, so_many_small_ones_pass_a_waiter_and_no_more)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 4, .bypass_count = 3));
    int a = hold(&r, 3), big = ask(&r, 4);
    for (int i = 0; i < 3; i++) {
        world_advance_ms(&r.w, 100000);
        give(&r, hold(&r, 1));
    }
    int fourth = ask(&r, 1);
    CHECK(waits(&r, fourth));
    give(&r, a);
    CHECK(got(&r, big));
    CHECK(waits(&r, fourth));
    give(&r, big);
    CHECK(got(&r, fourth));
    room_close(&r);
}

TEST(sem, small_ones_pass_while_a_waiter_waited_less_than_the_bound)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 4, .bypass_ms = 100));
    int a = hold(&r, 3), big = ask(&r, 4);
    for (int i = 0; i < 20; i++)
        give(&r, hold(&r, 1));
    world_advance_ms(&r.w, 99);
    give(&r, hold(&r, 1));
    world_advance_ms(&r.w, 1);
    CHECK(waits(&r, ask(&r, 1)));
    give(&r, a);
    CHECK(got(&r, big));
    room_close(&r);
}

TEST(sem, both_bounds_of_bypass_hold_together)
{
    struct room r;
    room_open(&r,
              VOW_SEM_OPTS(.permits = 4, .bypass_count = 1, .bypass_ms = 100));
    hold(&r, 3);
    ask(&r, 4);
    give(&r, hold(&r, 1));
    CHECK(waits(&r, ask(&r, 1))); /* by count */
    room_drop(&r);
    world_run(&r.w);
    hold(&r, 3);
    int big = ask(&r, 4);
    world_advance_ms(&r.w, 100);
    CHECK(waits(&r, ask(&r, 1))); /* by time */
    CHECK(waits(&r, big));
    room_close(&r);
}

TEST(sem, a_queued_small_one_passes_each_waiter_before_it_once)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 4, .bypass_count = 1));
    int a = hold(&r, 1);
    int b = hold(&r, 3);
    int big = ask(&r, 4), medium = ask(&r, 3);
    int small = ask(&r, 1), other = ask(&r, 1);
    give(&r, a);
    CHECK(got(&r, small)); /* and has passed both */
    CHECK(waits(&r, big) && waits(&r, medium) && waits(&r, other));
    give(&r, small);
    CHECK(waits(&r, other));
    CHECK(waits(&r, medium));
    give(&r, b);
    CHECK(got(&r, big));
    CHECK(waits(&r, medium));
    room_close(&r);
}

TEST(sem, try_passes_nobody_even_where_bypass_is_allowed)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 4, .bypass_count = 9));
    hold(&r, 3);
    ask(&r, 4);
    vow_permit p = {0};
    CHECK(!vow_sem_try(r.s, 1, &p));
    room_close(&r);
}

/* ---- permits ------------------------------------------------------------ */

TEST(sem, try_takes_what_is_free_and_needs_no_memory)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 3));
    vow_permit p = {0}, q = {0};
    r.w.alloc.fail_at = r.w.alloc.allocs + 1;
    r.w.alloc.fail_forever = true;
    CHECK(vow_sem_try(r.s, 2, &p));
    CHECK(!vow_sem_try(r.s, 2, &q));
    CHECK(vow_sem_try(r.s, 1, &q));
    check_use(&r, 3, 0);
    vow_permit_release(&p);
    vow_permit_release(&q);
    CHECK_UINT_EQ(r.w.alloc.fails, 0);
    r.w.alloc.fail_at = 0;
    room_close(&r);
}

/* https://github.com/oras-project/oras-go/pull/363 */
TEST(sem, release_gives_back_once_and_does_nothing_again)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 2));
    int a = hold(&r, 1);
    hold(&r, 1);
    give(&r, a);
    vow_permit_release(&r.held[a]);
    check_use(&r, 1, 0);
    vow_permit nothing = {0};
    vow_permit_release(&nothing);
    CHECK(!vow_permit_held(&nothing));
    check_use(&r, 1, 0);
    room_close(&r);
}

TEST(sem, a_permit_is_taken_once_and_moved_by_assignment)
{
    struct room r;
    room_open(&r, NULL);
    int a = hold(&r, 1);
    vow_permit again = vow_permit_take(vow_get(r.ask[a]));
    CHECK(!vow_permit_held(&again));
    vow_permit moved = r.held[a];
    r.held[a] = (vow_permit){0};
    check_use(&r, 1, 0);
    vow_permit_release(&moved);
    check_use(&r, 0, 0);
    room_close(&r);
}

TEST(sem, there_is_no_permit_in_other_futures)
{
    struct room r;
    room_open(&r, NULL);
    int a = hold(&r, 1), b = ask(&r, 1), bad = ask(&r, 9);
    vow_future *other = vow_resolved(r.w.loop, vow_int(5));
    vow_permit p = vow_permit_take(vow_get(other));
    CHECK(!vow_permit_held(&p));
    p = vow_permit_take(vow_get(r.ask[b]));
    CHECK(!vow_permit_held(&p));
    p = vow_permit_take(vow_get(r.ask[bad]));
    CHECK(!vow_permit_held(&p));
    vow_future_unref(other);
    give(&r, a);
    CHECK(got(&r, b));
    room_close(&r);
}

TEST(sem, what_nobody_takes_comes_back_with_the_last_reference)
{
    struct room r;
    room_open(&r, NULL);
    int a = ask(&r, 1), b = ask(&r, 1);
    vow_future *second = vow_future_ref(r.ask[a]);
    r.ask[a] = vow_future_unref(r.ask[a]);
    CHECK(waits(&r, b));
    vow_future_unref(second);
    CHECK(got(&r, b));
    room_close(&r);
}

TEST(sem, a_waiter_whose_future_was_dropped_stops_nobody)
{
    struct room r;
    room_open(&r, NULL);
    int a = hold(&r, 1), b = ask(&r, 1), c = ask(&r, 1);
    r.ask[b] = vow_future_unref(r.ask[b]);
    give(&r, a);
    CHECK(got(&r, c));
    room_close(&r);
}

/* https://github.com/scylladb/seastar/issues/1323 */
TEST(sem, permits_and_waiters_keep_it_alive)
{
    struct room r;
    room_open(&r, NULL);
    int a = hold(&r, 1), b = ask(&r, 1);
    CHECK_PTR_EQ(vow_sem_ref(r.s), r.s);
    vow_sem_unref(r.s);
    vow_sem_unref(r.s);
    give(&r, a);
    CHECK(got(&r, b));
    give(&r, b);
    room_drop(&r);
    world_run(&r.w);
    world_close(&r.w);
}

TEST(sem, a_permit_may_be_given_back_after_the_loop_was_closed)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 3));
    int a = hold(&r, 2), unread = ask(&r, 1);
    ask(&r, 3);
    vow_future *idle = vow_sem_wait(r.s);
    CHECK_INT_EQ(vow_loop_close(r.w.loop), 0);
    r.w.loop = NULL;
    CHECK_INT_EQ(code_of(r.ask[2]), VOW_ECLOSED);
    CHECK_INT_EQ(code_of(idle), VOW_ECLOSED);
    CHECK(vow_permit_held(&r.held[a]));
    CHECK(vow_state_of(r.ask[unread]) == VOW_FULFILLED);
    vow_future_unref(idle);
    vow_sem_unref(r.s);
    room_drop(&r);
    world_close_dirty(&r.w);
}

/* ---- cancel ------------------------------------------------------------- */

/* https://github.com/vercel/async-sema/issues/31 */
TEST(sem, a_canceled_waiter_leaves_from_head_middle_and_tail)
{
    for (int gone = 1; gone <= 3; gone++) {
        struct room r;
        room_open(&r, VOW_SEM_OPTS(.permits = 2));
        int a = hold(&r, 2);
        for (int i = 0; i < 3; i++)
            ask(&r, 2);
        CHECK(vow_cancel(r.ask[gone], NULL));
        CHECK_INT_EQ(code_of(r.ask[gone]), VOW_ECANCELED);
        check_use(&r, 2, 2);
        give(&r, a);
        for (int i = 1; i <= 3; i++)
            if (i != gone) {
                CHECK(got(&r, i));
                give(&r, i);
            }
        room_close(&r);
    }
}

TEST(sem, canceling_a_big_one_at_the_head_lets_small_ones_in)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 3));
    hold(&r, 1);
    int big = ask(&r, 3), b = ask(&r, 1), c = ask(&r, 1);
    vow_cancel(r.ask[big], NULL);
    CHECK(got(&r, b) && got(&r, c));
    room_close(&r);
}

TEST(sem, a_wait_is_bounded_by_a_timeout)
{
    struct room r;
    room_open(&r, NULL);
    int a = hold(&r, 1), b = ask(&r, 1), c = ask(&r, 1);
    for (int i = b; i <= c; i++) {
        vow_future *bounded = vow_timeout(r.ask[i], i == b ? 50 : 500);
        vow_future_unref(r.ask[i]);
        r.ask[i] = bounded;
    }
    world_advance_ms(&r.w, 49);
    CHECK(waits(&r, b));
    world_advance_ms(&r.w, 1);
    CHECK_INT_EQ(code_of(r.ask[b]), VOW_ETIMEDOUT);
    check_use(&r, 1, 1);
    give(&r, a);
    CHECK(got(&r, c)); /* out of the future that bounds it */
    world_advance_ms(&r.w, 1000);
    check_use(&r, 1, 0);
    room_close(&r);
}

TEST(sem, a_permit_released_as_its_waiters_go_is_not_lost)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 1));
    int a = hold(&r, 1);
    vow_future *some[2] = {vow_sem_acquire(r.s, 1), vow_sem_acquire(r.s, 1)};
    int last = ask(&r, 1);
    vow_future *all = vow_all(r.w.loop, some, 2);
    vow_future_unref(some[0]);
    vow_future_unref(some[1]);
    vow_cancel(all, NULL);
    vow_permit_release(&r.held[a]); /* before the queue has run */
    CHECK(got(&r, last));
    CHECK_INT_EQ(code_of(all), VOW_ECANCELED);
    vow_future_unref(all);
    room_close(&r);
}

TEST(sem, a_canceled_scope_takes_its_waiters_out)
{
    struct room r;
    room_open(&r, NULL);
    vow_scope *scope;
    CHECK_INT_EQ(vow_scope_new(r.w.loop, NULL, &scope), 0);
    hold(&r, 1);
    for (int i = 1; i <= 2; i++) {
        vow_future *f = vow_sem_acquire(r.s, 1);
        r.ask[r.n++] = vow_scope_add(scope, f);
        vow_future_unref(f);
    }
    check_use(&r, 1, 2);
    vow_scope_cancel(scope, NULL);
    world_turn(&r.w);
    CHECK_INT_EQ(code_of(r.ask[1]), VOW_ECANCELED);
    CHECK_INT_EQ(code_of(r.ask[2]), VOW_ECANCELED);
    check_use(&r, 1, 0);
    vow_scope_unref(scope);
    room_close(&r);
}

/* https://github.com/thomhurst/AsyncSemaphore/pull/566 */
TEST(sem, canceled_waiters_leave_no_memory_behind_a_long_holder)
{
    enum { N = 20000 };
    static vow_future *waiting[N];
    struct world w;
    world_open_with(&w, VOW_LOOP_OPTS(.flags = VOW_LOOP_UNPOOLED));
    vow_sem *s;
    vow_permit p = {0};
    CHECK_INT_EQ(vow_sem_new(w.loop, NULL, &s), 0);
    CHECK(vow_sem_try(s, 1, &p));
    size_t before = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++)
            waiting[i] = vow_sem_acquire(s, 1);
        for (int i = 0; i < N; i++) { /* from all over the queue */
            vow_future *f = waiting[i * 7919L % N];
            CHECK(vow_cancel(f, NULL));
            vow_future_unref(f);
        }
        world_turn(&w);
        CHECK_UINT_EQ(vow_sem_stats_get(s).waiting, 0);
        if (round == 0)
            before = w.alloc.live_bytes;
        CHECK(w.alloc.live_bytes <= before + 1000);
    }
    vow_permit_release(&p);
    vow_sem_unref(s);
    world_close(&w);
}
