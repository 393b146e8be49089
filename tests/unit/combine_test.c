/* SPDX-License-Identifier: MIT */
/* combine_test.c - all, all_settled, any, race: order, empty lists as in
 * ECMAScript, repeated and settled inputs, losers let go and not leaked. */
#include "set.h"

#include "vow/combine.h"

#include <stdlib.h>

/* ---- a world with some inputs ------------------------------------------- */

static void set_close(struct set *s)
{
    set_settle(s);
    world_run(&s->w);
    set_drop(s);
    world_close(&s->w);
}

/* Rejects input i and reads the error, so that it counts as handled. */
static vow_error *reject(struct set *s, int i, int code)
{
    vow_reject_code(s->d[i], code, NULL);
    return vow_error_of(s->f[i]);
}

static void check_list(vow_future *f, size_t n, const int64_t *want)
{
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    vow_value list = vow_get(f);
    CHECK_INT_EQ(vow_kind_of(list), VOW_LIST);
    CHECK_UINT_EQ(vow_list_size(list), n);
    for (size_t i = 0; i < n; i++)
        CHECK_INT_EQ(vow_as_int(vow_list_get(list, i)), want[i]);
    CHECK_PTR_EQ(vow_list_at(list, n), NULL);
    CHECK_INT_EQ(vow_kind_of(vow_list_get(list, n)), VOW_NOTHING);
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

static void count_cancel(vow_error *why, void *user)
{
    CHECK_INT_EQ(vow_error_code(why), VOW_ECANCELED);
    ++*(int *)user;
}

/* ---- all ---------------------------------------------------------------- */

TEST(combine, all_gives_the_values_in_input_order)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_future *all = keep(&s, vow_all(loop, s.f, 3));
    vow_resolve(s.d[2], vow_int(30));
    world_run(&s.w);
    vow_resolve(s.d[0], vow_int(10));
    world_run(&s.w);
    CHECK_INT_EQ(vow_state_of(all), VOW_PENDING);
    vow_resolve(s.d[1], vow_int(20));
    world_run(&s.w);
    check_list(all, 3, (const int64_t[]){10, 20, 30});
    for (size_t i = 0; i < 3; i++)
        CHECK_PTR_EQ(vow_list_at(vow_get(all), i), s.f[i]);
    set_close(&s);
}

TEST(combine, all_rejects_with_the_first_rejection_without_waiting)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_future *all = keep(&s, vow_all(loop, s.f, 3));
    vow_error *first = reject(&s, 2, VOW_EIO);
    world_run(&s.w);
    CHECK_PTR_EQ(vow_error_of(all), first);
    reject(&s, 0, VOW_EBUSY);
    world_run(&s.w);
    CHECK_PTR_EQ(vow_error_of(all), first);
    CHECK_INT_EQ(vow_state_of(s.f[1]), VOW_PENDING);
    set_close(&s);
}

TEST(combine, all_of_none_is_the_empty_list)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_future *all = keep(&s, vow_all(loop, NULL, 0));
    vow_future *settled = keep(&s, vow_all_settled(loop, NULL, 0));
    world_run(&s.w);
    check_list(all, 0, NULL);
    check_list(settled, 0, NULL);
    set_close(&s);
}

TEST(combine, all_takes_settled_and_repeated_inputs)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_resolve(s.d[0], vow_int(1));
    vow_future *in[5] = {s.f[0], s.f[1], s.f[0], s.f[1], s.f[1]};
    vow_future *all = keep(&s, vow_all(loop, in, 5));
    world_run(&s.w);
    CHECK_INT_EQ(vow_state_of(all), VOW_PENDING);
    vow_resolve(s.d[1], vow_int(2));
    world_run(&s.w);
    check_list(all, 5, (const int64_t[]){1, 2, 1, 2, 2});
    set_close(&s);
}

TEST(combine, all_reads_an_owned_value_where_it_is)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    int drops = 0;
    vow_resolve(s.d[0], vow_own(&drops, count_drop));
    vow_future *all = keep(&s, vow_all(loop, s.f, 1));
    world_run(&s.w);
    CHECK_PTR_EQ(vow_as_ptr(vow_list_get(vow_get(all), 0)), &drops);
    CHECK_INT_EQ(drops, 0);
    set_close(&s);
    CHECK_INT_EQ(drops, 1);
}

TEST(combine, a_list_keeps_its_values_when_the_inputs_are_dropped)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    int drops = 0;
    vow_future *in[2];
    in[0] = vow_resolved(loop, vow_own(&drops, count_drop));
    in[1] = vow_resolved(loop, vow_int(2));
    vow_future *all = vow_all(loop, in, 2);
    vow_future_unref(in[0]);
    vow_future_unref(in[1]);
    world_run(&s.w);
    CHECK_INT_EQ(drops, 0);
    CHECK_PTR_EQ(vow_as_ptr(vow_list_get(vow_get(all), 0)), &drops);
    vow_future_unref(all);
    world_run(&s.w);
    CHECK_INT_EQ(drops, 1);
    set_close(&s);
}

TEST(combine, lists_may_hold_lists)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_future *in[2];
    in[0] = keep(&s, vow_all(loop, s.f, 2));
    in[1] = keep(&s, vow_all_settled(loop, s.f, 1));
    vow_future *all = keep(&s, vow_all(loop, in, 2));
    vow_resolve(s.d[0], vow_int(1));
    vow_resolve(s.d[1], vow_int(2));
    world_run(&s.w);
    vow_value inner = vow_list_get(vow_get(all), 0);
    CHECK_UINT_EQ(vow_list_size(inner), 2);
    CHECK_INT_EQ(vow_as_int(vow_list_get(inner, 1)), 2);
    set_close(&s);
}

TEST(combine, a_missing_input_is_an_invalid_argument)
{
    typedef vow_future *combine_fn(const char *, vow_loop *,
                                   vow_future *const *, size_t);
    combine_fn *const kinds[] = {vow_all_at, vow_all_settled_at, vow_any_at,
                                 vow_race_at};
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_future *in[3] = {s.f[0], NULL, s.f[1]};
    for (size_t i = 0; i < 4; i++) {
        vow_future *f = keep(&s, kinds[i]("here", loop, in, 3));
        vow_future *g = keep(&s, kinds[i]("here", loop, NULL, 3));
        world_run(&s.w);
        check_rejected(f, VOW_EINVAL);
        check_rejected(g, VOW_EINVAL);
        CHECK_STR_EQ(vow_future_site(f), "here");
    }
    set_close(&s);
}

TEST(combine, all_of_a_hundred_thousand_keeps_their_order)
{
    enum { N = 100000 };
    struct world w;
    world_open(&w);
    vow_future **in = calloc(N, sizeof(vow_future *));
    vow_deferred **d = calloc(N, sizeof(vow_deferred *));
    CHECK(in != NULL && d != NULL);
    for (size_t i = 0; i < N; i++)
        in[i] = vow_promise(w.loop, &d[i]);
    vow_future *all = vow_all(w.loop, in, N);
    for (size_t i = N; i-- > 0;) {
        vow_future_unref(in[i]);
        vow_resolve(d[i], vow_int((int64_t)i));
        vow_deferred_unref(d[i]);
    }
    world_run(&w);
    CHECK_UINT_EQ(vow_list_size(vow_get(all)), N);
    for (size_t i = 0; i < N; i++)
        CHECK_INT_EQ(vow_as_int(vow_list_get(vow_get(all), i)), (int64_t)i);
    vow_future_unref(all);
    free(in);
    free(d);
    world_close(&w);
}

/* ---- all_settled -------------------------------------------------------- */

TEST(combine, all_settled_gives_every_outcome_and_is_never_rejected)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_future *all = keep(&s, vow_all_settled(loop, s.f, 3));
    reject(&s, 1, VOW_EIO);
    vow_resolve(s.d[0], vow_int(1));
    world_run(&s.w);
    CHECK_INT_EQ(vow_state_of(all), VOW_PENDING);
    vow_resolve(s.d[2], vow_int(3));
    world_run(&s.w);
    check_list(all, 3, (const int64_t[]){1, 0, 3});
    vow_value list = vow_get(all);
    CHECK_INT_EQ(vow_kind_of(vow_list_get(list, 1)), VOW_NOTHING);
    check_rejected(vow_list_at(list, 1), VOW_EIO);
    set_close(&s);
}

/* ---- any ---------------------------------------------------------------- */

TEST(combine, any_gives_the_first_value_and_passes_over_errors)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_future *any = keep(&s, vow_any(loop, s.f, 3));
    reject(&s, 0, VOW_EIO);
    world_run(&s.w);
    CHECK_INT_EQ(vow_state_of(any), VOW_PENDING);
    vow_resolve(s.d[2], vow_int(3));
    world_run(&s.w);
    check_fulfilled(any, 3);
    vow_resolve(s.d[1], vow_int(2));
    world_run(&s.w);
    check_fulfilled(any, 3);
    set_close(&s);
}

TEST(combine, any_of_failures_has_all_errors_and_the_first_as_cause)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_future *any = keep(&s, vow_any(loop, s.f, 3));
    vow_error *e[3];
    e[2] = reject(&s, 2, VOW_EBUSY);
    world_run(&s.w);
    e[0] = reject(&s, 0, VOW_EIO);
    world_run(&s.w);
    e[1] = reject(&s, 1, VOW_ETIMEDOUT);
    world_run(&s.w);
    check_rejected(any, VOW_EALLFAILED);
    vow_error *all = vow_error_of(any);
    CHECK_UINT_EQ(vow_error_count(all), 3);
    for (size_t i = 0; i < 3; i++)
        CHECK_PTR_EQ(vow_error_at(all, i), e[i]);
    CHECK_PTR_EQ(vow_error_at(all, 3), NULL);
    CHECK_PTR_EQ(vow_error_cause(all), e[2]);
    set_close(&s);
}

TEST(combine, any_keeps_the_errors_of_inputs_that_are_gone)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_future *in[2];
    in[0] = vow_rejected(loop, vow_error_new(loop, VOW_EIO, "left"));
    in[1] = vow_rejected(loop, vow_error_new(loop, VOW_EBUSY, "right"));
    vow_future *any = vow_any(loop, in, 2);
    vow_future_unref(in[0]);
    vow_future_unref(in[1]);
    world_run(&s.w);
    vow_error *e = vow_error_ref(vow_error_of(any));
    vow_future_unref(any);
    CHECK_STR_EQ(vow_error_message(vow_error_at(e, 0)), "left");
    CHECK_STR_EQ(vow_error_message(vow_error_at(e, 1)), "right");
    vow_error_unref(e);
    set_close(&s);
}

TEST(combine, any_of_none_is_all_failed)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_future *any = keep(&s, vow_any(loop, NULL, 0));
    world_run(&s.w);
    check_rejected(any, VOW_EALLFAILED);
    CHECK_UINT_EQ(vow_error_count(vow_error_of(any)), 0);
    set_close(&s);
}

TEST(combine, any_of_one_failure_repeated_has_it_at_every_place)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_future *in[3] = {s.f[0], s.f[0], s.f[0]};
    vow_future *any = keep(&s, vow_any(loop, in, 3));
    vow_error *e = reject(&s, 0, VOW_EIO);
    world_run(&s.w);
    check_rejected(any, VOW_EALLFAILED);
    for (size_t i = 0; i < 3; i++)
        CHECK_PTR_EQ(vow_error_at(vow_error_of(any), i), e);
    set_close(&s);
}

/* ---- race --------------------------------------------------------------- */

TEST(combine, race_has_the_first_outcome_of_either_kind)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_future *ok = keep(&s, vow_race(loop, s.f, 2));
    vow_future *bad = keep(&s, vow_race(loop, s.f + 2, 2));
    vow_resolve(s.d[1], vow_int(1));
    vow_error *e = reject(&s, 2, VOW_EIO);
    world_run(&s.w);
    check_fulfilled(ok, 1);
    CHECK_PTR_EQ(vow_error_of(bad), e);
    vow_resolve(s.d[0], vow_int(0));
    vow_resolve(s.d[3], vow_int(0));
    world_run(&s.w);
    check_fulfilled(ok, 1);
    CHECK_PTR_EQ(vow_error_of(bad), e);
    set_close(&s);
}

TEST(combine, race_of_settled_inputs_goes_to_the_first_in_the_list)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_resolve(s.d[2], vow_int(2));
    vow_resolve(s.d[1], vow_int(1));
    vow_future *race = keep(&s, vow_race(loop, s.f, 3));
    world_run(&s.w);
    check_fulfilled(race, 1);
    set_close(&s);
}

static vow_next keep_code(vow_error *e, void *user)
{
    *(int *)user = vow_error_code(e);
    return vow_ok(vow_nothing());
}

TEST(combine, race_of_none_is_pending_until_the_loop_closes)
{
    struct world w;
    world_open(&w);
    int code = 0;
    vow_future *race = vow_race(w.loop, NULL, 0);
    vow_future_unref(vow_catch(race, keep_code, &code));
    world_run(&w);
    CHECK_INT_EQ(vow_state_of(race), VOW_PENDING);
    vow_future_unref(race);
    world_close_dirty(&w);
    CHECK_INT_EQ(code, VOW_ECLOSED);
}

/* ---- losers ------------------------------------------------------------- */

TEST(combine, losers_are_let_go_and_not_canceled)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    int canceled = 0;
    for (int i = 0; i < MANY; i++)
        vow_on_cancel(s.d[i], count_cancel, &canceled);
    keep(&s, vow_race(loop, s.f, 2));
    keep(&s, vow_any(loop, s.f, 2));
    vow_future *all = keep(&s, vow_all(loop, s.f + 1, 2));
    vow_resolve(s.d[0], vow_int(1));
    reject(&s, 2, VOW_EIO);
    world_run(&s.w);
    check_rejected(all, VOW_EIO);
    CHECK_INT_EQ(canceled, 0);
    CHECK(vow_deferred_pending(s.d[1]));
    CHECK(vow_resolve(s.d[1], vow_int(9)));
    CHECK_UINT_EQ(stats(loop).late_settles, 0);
    set_close(&s);
}

/* Even a loser that only the race held is let go, not canceled. */
TEST(combine, a_loser_that_nobody_holds_goes_on)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    int canceled = 0;
    vow_deferred *d;
    vow_future *in[2] = {s.f[0], vow_promise(loop, &d)};
    vow_on_cancel(d, count_cancel, &canceled);
    keep(&s, vow_race(loop, in, 2));
    vow_future_unref(in[1]);
    vow_resolve(s.d[0], vow_int(1));
    world_run(&s.w);
    CHECK_INT_EQ(canceled, 0);
    CHECK(vow_resolve(d, vow_int(1)));
    vow_deferred_unref(d);
    set_close(&s);
}

/* https://github.com/nodejs/node/issues/54614: races against one long-lived
 * future must not leave anything on it. */
static void check_no_leak(vow_future *(*combine)(struct set *s), int rounds)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    size_t futures = stats(loop).futures, bytes = 0;
    for (int i = 0; i < rounds; i++) {
        vow_future *f = combine(&s);
        world_turn(&s.w);
        CHECK(vow_state_of(f) != VOW_PENDING);
        vow_error_of(f);
        vow_future_unref(f);
        if (i == rounds / 100)
            bytes = s.w.alloc.live_bytes;
    }
    CHECK_UINT_EQ(stats(loop).futures, futures);
    CHECK(s.w.alloc.live_bytes <= bytes + 65536);
    set_close(&s);
}

static vow_future *race_quick(struct set *s)
{
    vow_future *in[2] = {s->f[0], vow_resolved(s->w.loop, vow_int(1))};
    vow_future *f = vow_race(s->w.loop, in, 2);
    vow_future_unref(in[1]);
    return f;
}

static vow_future *any_quick(struct set *s)
{
    vow_future *in[2] = {s->f[0], vow_resolved(s->w.loop, vow_int(1))};
    vow_future *f = vow_any(s->w.loop, in, 2);
    vow_future_unref(in[1]);
    return f;
}

static vow_future *all_fails(struct set *s)
{
    vow_error *e = vow_error_new(s->w.loop, VOW_EIO, "quick");
    vow_future *in[2] = {s->f[0], vow_rejected(s->w.loop, e)};
    vow_future *f = vow_all(s->w.loop, in, 2);
    vow_future_unref(in[1]);
    return f;
}

static vow_future *race_canceled(struct set *s)
{
    vow_future *f = vow_race(s->w.loop, s->f, MANY);
    vow_cancel(f, NULL);
    return f;
}

TEST(combine, a_million_races_against_one_future_leak_nothing)
{
    check_no_leak(race_quick, 1000000);
}

TEST(combine, repeated_any_against_one_future_leaks_nothing)
{
    check_no_leak(any_quick, 100000);
}

TEST(combine, repeated_failing_all_against_one_future_leaks_nothing)
{
    check_no_leak(all_fails, 100000);
}

TEST(combine, repeated_canceled_races_leak_nothing)
{
    check_no_leak(race_canceled, 100000);
}

/* ---- cancel ------------------------------------------------------------- */

TEST(combine, canceling_the_result_cancels_inputs_that_nobody_else_holds)
{
    struct set s;
    vow_loop *loop = set_open(&s);
    vow_future *in[3] = {s.f[0], s.f[1], s.f[0]};
    vow_future *all = keep(&s, vow_all(loop, in, 3));
    s.f[0] = vow_future_unref(s.f[0]);
    CHECK(vow_cancel(all, NULL));
    check_rejected(all, VOW_ECANCELED);
    world_run(&s.w);
    CHECK(!vow_deferred_pending(s.d[0]));
    CHECK(vow_deferred_pending(s.d[1]));
    set_close(&s);
}

TEST(combine, canceling_the_result_asks_an_input_that_runs_only_once)
{
    typedef vow_future *combine_fn(const char *, vow_loop *,
                                   vow_future *const *, size_t);
    combine_fn *const kinds[] = {vow_all_at, vow_all_settled_at, vow_any_at,
                                 vow_race_at};
    struct set s;
    vow_loop *loop = set_open(&s);
    for (int i = 0; i < 4; i++) {
        int canceled = 0;
        vow_on_cancel(s.d[i], count_cancel, &canceled);
        vow_future *in[3] = {s.f[i], s.f[i], s.f[i]};
        vow_future *f = keep(&s, kinds[i]("here", loop, in, 3));
        s.f[i] = vow_future_unref(s.f[i]);
        CHECK(vow_cancel(f, NULL));
        check_rejected(f, VOW_ECANCELED);
        CHECK_INT_EQ(canceled, 0);
        world_run(&s.w);
        CHECK_INT_EQ(canceled, 1);
        CHECK(vow_resolve(s.d[i], vow_int(1)));
    }
    set_close(&s);
}
