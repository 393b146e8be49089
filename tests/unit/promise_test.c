/* SPDX-License-Identifier: MIT */
/* promise_test.c - what vow/promise.h promises of one promise: two ends,
 * settled once, followed, never waiting for itself. */
#include "set.h"
#include <string.h>

/* ---- a world with some promises ----------------------------------------- */

static void let_go_future(struct set *s, int i)
{
    s->f[i] = vow_future_unref(s->f[i]);
}

static void let_go_deferred(struct set *s, int i)
{
    vow_deferred_unref(s->d[i]);
    s->d[i] = NULL;
}

static void set_close(struct set *s)
{
    set_settle(s);
    set_drop(s);
    world_run(&s->w);
    world_close(&s->w);
}

/* ---- what a handler saw ------------------------------------------------- */

struct seen {
    int ok, fail;
    int64_t num;
    int code;
};

static vow_next seen_ok(vow_value v, void *user)
{
    struct seen *s = user;
    s->ok++;
    s->num = vow_as_int(v);
    return vow_ok(vow_nothing());
}

static vow_next seen_fail(vow_error *e, void *user)
{
    struct seen *s = user;
    s->fail++;
    s->code = vow_error_code(e);
    return vow_ok(vow_nothing());
}

/* Attach and let go: the promise goes on without its future. */
static void watch(vow_future *f, struct seen *s)
{
    vow_future_unref(vow_then(f, seen_ok, seen_fail, s));
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

/* ---- both ends ---------------------------------------------------------- */

TEST(promise, is_pending_until_it_is_settled)
{
    struct set s;
    set_open(&s);
    world_run(&s.w);
    CHECK_INT_EQ(vow_state_of(s.f[0]), VOW_PENDING);
    CHECK(vow_deferred_pending(s.d[0]));
    CHECK_INT_EQ(vow_kind_of(vow_get(s.f[0])), VOW_NOTHING);
    CHECK_PTR_EQ(vow_error_of(s.f[0]), NULL);
    CHECK(vow_resolve(s.d[0], vow_int(1)));
    CHECK(!vow_deferred_pending(s.d[0]));
    set_close(&s);
}

TEST(promise, resolve_fulfils_with_the_value_at_once)
{
    struct set s;
    set_open(&s);
    CHECK(vow_resolve(s.d[0], vow_int(42)));
    check_fulfilled(s.f[0], 42);
    CHECK_PTR_EQ(vow_error_of(s.f[0]), NULL);
    set_close(&s);
}

TEST(promise, reject_carries_the_very_error_it_was_given)
{
    struct set s;
    vow_error *e = vow_error_new(set_open(&s), VOW_EIO, "disk %d", 3);
    CHECK(vow_reject(s.d[0], e));
    CHECK_PTR_EQ(vow_error_of(s.f[0]), e);
    CHECK_STR_EQ(vow_error_message(vow_error_of(s.f[0])), "disk 3");
    CHECK_INT_EQ(vow_kind_of(vow_get(s.f[0])), VOW_NOTHING);
    set_close(&s);
}

TEST(promise, reject_code_carries_code_and_text)
{
    struct set s;
    set_open(&s);
    CHECK(vow_reject_code(s.d[0], VOW_EBUSY, "door shut"));
    check_rejected(s.f[0], VOW_EBUSY);
    CHECK_STR_EQ(vow_error_message(vow_error_of(s.f[0])), "door shut");
    CHECK(vow_reject_code(s.d[1], VOW_EBUSY, NULL));
    CHECK_STR_EQ(vow_error_message(vow_error_of(s.f[1])),
                 vow_error_text(VOW_EBUSY));
    set_close(&s);
}

TEST(promise, reject_with_a_code_that_is_no_error_becomes_einval)
{
    struct set s;
    set_open(&s);
    CHECK(vow_reject_code(s.d[0], 7, "positive"));
    CHECK(vow_reject_code(s.d[1], 0, "zero"));
    check_rejected(s.f[0], VOW_EINVAL);
    check_rejected(s.f[1], VOW_EINVAL);
    set_close(&s);
}

TEST(promise, rejected_without_an_error_is_still_rejected)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    CHECK(vow_reject(s.d[0], NULL));
    vow_future *f = keep(&s, vow_rejected(loop, NULL));
    check_rejected(s.f[0], VOW_EINVAL);
    check_rejected(f, VOW_EINVAL);
    set_close(&s);
}

TEST(promise, dropping_the_last_deferred_rejects_with_broken)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    struct seen seen = {0};
    watch(s.f[0], &seen);
    let_go_deferred(&s, 0);
    check_rejected(s.f[0], VOW_EBROKEN);
    world_run(&s.w);
    CHECK_INT_EQ(seen.fail, 1);
    CHECK_INT_EQ(seen.code, VOW_EBROKEN);
    CHECK_UINT_EQ(stats(loop).late_settles, 0);
    set_close(&s);
}

TEST(promise, a_second_deferred_reference_keeps_it_open)
{
    struct set s;
    set_open(&s);
    vow_deferred *second = vow_deferred_ref(s.d[0]);
    let_go_deferred(&s, 0);
    world_run(&s.w);
    CHECK_INT_EQ(vow_state_of(s.f[0]), VOW_PENDING);
    CHECK(vow_resolve(second, vow_int(5)));
    vow_deferred_unref(second);
    check_fulfilled(s.f[0], 5);
    set_close(&s);
}

TEST(promise, dropping_a_settled_deferred_changes_nothing)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_resolve(s.d[0], vow_int(9));
    let_go_deferred(&s, 0);
    world_run(&s.w);
    check_fulfilled(s.f[0], 9);
    CHECK_UINT_EQ(stats(loop).late_settles, 0);
    set_close(&s);
}

TEST(promise, goes_on_when_its_future_is_dropped)
{
    struct set s;
    set_open(&s);
    struct seen seen = {0};
    watch(s.f[0], &seen);
    let_go_future(&s, 0);
    world_run(&s.w);
    CHECK(vow_deferred_pending(s.d[0]));
    CHECK(vow_resolve(s.d[0], vow_int(3)));
    world_run(&s.w);
    CHECK_INT_EQ(seen.ok, 1);
    CHECK_INT_EQ(seen.num, 3);
    set_close(&s);
}

TEST(promise, without_any_reader_is_resolved_once_like_any_other)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    size_t before = stats(loop).futures;
    let_go_future(&s, 0);
    CHECK(vow_resolve(s.d[0], vow_int(3)));
    CHECK(!vow_resolve(s.d[0], vow_int(4)));
    let_go_deferred(&s, 0);
    CHECK_UINT_EQ(stats(loop).futures, before - 1);
    set_close(&s);
}

TEST(promise, made_settled_is_settled_from_the_start)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    check_fulfilled(keep(&s, vow_resolved(loop, vow_int(6))), 6);
    vow_error *e = vow_error_new(loop, VOW_EIO, "x");
    check_rejected(keep(&s, vow_rejected(loop, e)), VOW_EIO);
    set_close(&s);
}

TEST(promise, knows_its_loop_and_where_it_was_made)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_future *f = keep(&s, vow_resolved_at("kitchen.c:12", loop, vow_int(1)));
    CHECK_PTR_EQ(vow_future_loop(f), loop);
    CHECK_STR_EQ(vow_future_site(f), "kitchen.c:12");
    CHECK(strstr(vow_future_site(s.f[0]), "set.h:") != NULL); /* set_open() */
    set_close(&s);
}

TEST(promise, destroyers_accept_null)
{
    CHECK_PTR_EQ(vow_future_unref(NULL), NULL);
    CHECK_PTR_EQ(vow_deferred_unref(NULL), NULL);
    CHECK_INT_EQ(vow_loop_close(NULL), 0);
}

TEST(promise, every_future_is_counted_while_it_lives)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    CHECK_UINT_EQ(stats(loop).futures, MANY);
    CHECK_UINT_EQ(stats(loop).pending, MANY);
    vow_future *link = vow_then(s.f[0], NULL, NULL, NULL);
    CHECK_UINT_EQ(stats(loop).futures, MANY + 1);
    vow_resolve(s.d[0], vow_int(1));
    world_run(&s.w);
    CHECK_UINT_EQ(stats(loop).futures, MANY + 1);
    CHECK_UINT_EQ(stats(loop).pending, MANY - 1);
    vow_future_unref(link);
    CHECK_UINT_EQ(stats(loop).futures, MANY);
    set_close(&s);
}

/* ---- settle once -------------------------------------------------------- */

enum { BY_RESOLVE, BY_REJECT, BY_CODE, BY_FOLLOW, BY_STEP, WAYS };

static bool settle_by(int way, vow_deferred *d, vow_future *other)
{
    vow_loop *loop = vow_future_loop(other);
    switch (way) {
    case BY_RESOLVE:
        return vow_resolve(d, vow_int(1));
    case BY_REJECT:
        return vow_reject(d, vow_error_new(loop, VOW_EIO, "by reject"));
    case BY_CODE:
        return vow_reject_code(d, VOW_EBUSY, "by code");
    case BY_FOLLOW:
        return vow_resolve_with(d, other);
    default:
        return vow_settle(d, vow_ok(vow_int(4)));
    }
}

static void check_way(int way, vow_future *f)
{
    static const int64_t value[WAYS] = {1, 0, 0, 77, 4};
    static const int code[WAYS] = {0, VOW_EIO, VOW_EBUSY, 0, 0};
    if (code[way] < 0)
        check_rejected(f, code[way]);
    else
        check_fulfilled(f, value[way]);
}

TEST(promise, the_first_of_any_two_settles_wins_and_the_second_is_late)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_future *other = keep(&s, vow_resolved(loop, vow_int(77)));
    for (int way = 0; way < WAYS * WAYS; way++) {
        int first = way / WAYS, second = way % WAYS;
        uint64_t late = stats(loop).late_settles;
        vow_deferred *d;
        vow_future *f = vow_promise(loop, &d);
        CHECK(settle_by(first, d, other));
        CHECK(!settle_by(second, d, other));
        world_run(&s.w);
        check_way(first, f);
        CHECK(!settle_by(second, d, other));
        CHECK_UINT_EQ(stats(loop).late_settles, late + 2);
        check_way(first, f);
        vow_deferred_unref(d);
        vow_future_unref(f);
    }
    set_close(&s);
}

TEST(promise, a_late_value_is_dropped_exactly_once)
{
    struct set s;
    set_open(&s);
    int first = 0, second = 0, third = 0;
    CHECK(vow_resolve(s.d[0], vow_own(&first, count_drop)));
    CHECK(!vow_resolve(s.d[0], vow_own(&second, count_drop)));
    CHECK(!vow_settle(s.d[0], vow_ok(vow_own(&third, count_drop))));
    world_run(&s.w);
    CHECK_INT_EQ(first, 0);
    CHECK_INT_EQ(second, 1);
    CHECK_INT_EQ(third, 1);
    set_close(&s);
    CHECK_INT_EQ(first, 1);
    CHECK_INT_EQ(second, 1);
}

TEST(promise, a_future_that_a_late_step_moved_in_is_let_go)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_resolve(s.d[0], vow_int(1));
    size_t before = stats(loop).futures;
    CHECK(!vow_settle(s.d[0], vow_follow(vow_resolved(loop, vow_int(2)))));
    CHECK(!vow_settle(s.d[0], vow_fail(vow_error_new(loop, -5, "e"))));
    CHECK_UINT_EQ(stats(loop).futures, before);
    check_fulfilled(s.f[0], 1);
    set_close(&s);
}

TEST(promise, a_falsely_dead_worker_changes_nothing_when_it_comes_back)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    enum { DEAD, SUCCESSOR };
    struct seen seen = {0};
    CHECK(vow_resolve_with(s.d[DEAD], s.f[SUCCESSOR]));
    watch(s.f[DEAD], &seen);
    CHECK(!vow_resolve(s.d[DEAD], vow_int(1)));
    world_run(&s.w);
    CHECK_INT_EQ(seen.ok, 0);
    CHECK(vow_resolve(s.d[SUCCESSOR], vow_int(2)));
    world_run(&s.w);
    CHECK_INT_EQ(seen.ok, 1);
    CHECK_INT_EQ(seen.num, 2);
    CHECK_UINT_EQ(stats(loop).late_settles, 1);
    set_close(&s);
}

/* ---- follow ------------------------------------------------------------- */

TEST(promise, resolve_with_is_fulfilled_as_the_other_is)
{
    struct set s;
    set_open(&s);
    CHECK(vow_resolve_with(s.d[0], s.f[1]));
    world_run(&s.w);
    CHECK_INT_EQ(vow_state_of(s.f[0]), VOW_PENDING);
    vow_resolve(s.d[1], vow_int(8));
    world_run(&s.w);
    check_fulfilled(s.f[0], 8);
    set_close(&s);
}

TEST(promise, resolve_with_is_rejected_with_the_others_very_error)
{
    struct set s;
    set_open(&s);
    CHECK(vow_resolve_with(s.d[0], s.f[1]));
    vow_reject_code(s.d[1], VOW_EIO, NULL);
    world_run(&s.w);
    check_rejected(s.f[0], VOW_EIO);
    CHECK_PTR_EQ(vow_error_of(s.f[0]), vow_error_of(s.f[1]));
    set_close(&s);
}

TEST(promise, resolve_with_a_settled_future_settles)
{
    struct set s;
    set_open(&s);
    vow_resolve(s.d[1], vow_int(8));
    vow_reject_code(s.d[2], VOW_EIO, NULL);
    CHECK(vow_resolve_with(s.d[0], s.f[1]));
    CHECK(vow_resolve_with(s.d[3], s.f[2]));
    world_run(&s.w);
    check_fulfilled(s.f[0], 8);
    check_rejected(s.f[3], VOW_EIO);
    check_rejected(s.f[2], VOW_EIO);
    set_close(&s);
}

TEST(promise, dropping_the_deferred_after_following_breaks_nothing)
{
    struct set s;
    set_open(&s);
    vow_resolve_with(s.d[0], s.f[1]);
    let_go_deferred(&s, 0);
    let_go_future(&s, 1);
    world_run(&s.w);
    CHECK_INT_EQ(vow_state_of(s.f[0]), VOW_PENDING);
    vow_resolve(s.d[1], vow_int(8));
    world_run(&s.w);
    check_fulfilled(s.f[0], 8);
    set_close(&s);
}

TEST(promise, a_broken_promise_breaks_those_that_follow_it)
{
    struct set s;
    set_open(&s);
    vow_resolve_with(s.d[0], s.f[1]);
    let_go_future(&s, 1);
    let_go_deferred(&s, 1);
    world_run(&s.w);
    check_rejected(s.f[0], VOW_EBROKEN);
    set_close(&s);
}

TEST(promise, following_no_future_is_an_invalid_argument)
{
    struct set s;
    set_open(&s);
    CHECK(vow_resolve_with(s.d[0], NULL));
    CHECK(vow_settle(s.d[1], vow_follow(NULL)));
    world_run(&s.w);
    check_rejected(s.f[0], VOW_EINVAL);
    check_rejected(s.f[1], VOW_EINVAL);
    set_close(&s);
}

TEST(promise, settle_takes_every_kind_of_next)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    CHECK(vow_settle(s.d[0], vow_ok(vow_int(11))));
    CHECK(vow_settle(s.d[1], vow_fail(vow_error_new(loop, -5, "moved"))));
    CHECK(vow_settle(s.d[2], vow_fail_code(VOW_EBUSY, "coded")));
    CHECK(vow_settle(s.d[3], vow_follow(vow_resolved(loop, vow_int(12)))));
    world_run(&s.w);
    check_fulfilled(s.f[0], 11);
    check_rejected(s.f[1], VOW_EIO);
    check_rejected(s.f[2], VOW_EBUSY);
    check_fulfilled(s.f[3], 12);
    set_close(&s);
}

/* ---- never waiting for itself ------------------------------------------- */

/* Promise i follows promise i+1, the last one the first. */
static void check_ring(int n)
{
    struct set s;
    set_open(&s);
    for (int i = 0; i < n; i++)
        CHECK(vow_resolve_with(s.d[i], s.f[(i + 1) % n]));
    world_run(&s.w);
    for (int i = 0; i < n; i++) {
        check_rejected(s.f[i], VOW_ECYCLE);
        CHECK(!vow_resolve(s.d[i], vow_int(1)));
    }
    set_close(&s);
}

TEST(promise, that_follows_itself_is_rejected_with_cycle)
{
    check_ring(1);
}

TEST(promise, ring_of_two_is_rejected_with_cycle)
{
    check_ring(2);
}

TEST(promise, ring_of_five_is_rejected_with_cycle)
{
    check_ring(5);
}

TEST(promise, ring_through_then_links_is_rejected_with_cycle)
{
    for (int links = 1; links <= 4; links++) {
        struct set s;
        set_open(&s);
        vow_future *tail = s.f[0];
        for (int i = 0; i < links; i++)
            tail = keep(&s, vow_then(tail, NULL, NULL, NULL));
        vow_resolve_with(s.d[0], tail);
        world_run(&s.w);
        check_rejected(s.f[0], VOW_ECYCLE);
        check_rejected(tail, VOW_ECYCLE);
        set_close(&s);
    }
}

static vow_next follow_user(vow_value v, void *user)
{
    (void)v;
    return vow_follow(vow_future_ref(*(vow_future **)user));
}

/* Promises/A+ 2.3.1. */
TEST(promise, a_step_that_returns_its_own_future_is_rejected_with_cycle)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_future *own = NULL;
    vow_future *src = keep(&s, vow_resolved(loop, vow_int(1)));
    own = keep(&s, vow_then(src, follow_user, NULL, &own));
    world_run(&s.w);
    check_rejected(own, VOW_ECYCLE);
    set_close(&s);
}

TEST(promise, two_ways_to_one_future_are_no_cycle)
{
    struct set s;
    set_open(&s);
    CHECK(vow_resolve_with(s.d[1], s.f[0]));
    vow_future *link = keep(&s, vow_then(s.f[1], NULL, NULL, NULL));
    CHECK(vow_resolve_with(s.d[2], link));
    CHECK(vow_resolve_with(s.d[3], s.f[0]));
    vow_resolve(s.d[0], vow_int(2));
    world_run(&s.w);
    for (int i = 1; i <= 3; i++)
        check_fulfilled(s.f[i], 2);
    set_close(&s);
}
