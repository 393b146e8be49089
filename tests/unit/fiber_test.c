/* SPDX-License-Identifier: MIT */
/* fiber_test.c - what vow/fiber.h promises about the life of a fiber: when
 * it starts, how its future settles, what canceling asks of it, and how it ends
 * when the loop is closed under it. Waiting is in await_test.c, stacks are
 * in stack_test.c.
 */
#include "harness.h"
#include "world.h"

#include "vow/combine.h"
#include "vow/fiber.h"
#include "vow/scope.h"

#include <stdlib.h>
#include <string.h>

/* What a body under test sees and leaves behind. */
struct probe {
    vow_loop *loop;
    vow_future *on;   /* what it waits for, borrowed */
    vow_future *self; /* its own future, borrowed */
    int started;
    int ended;
    int rc[4];
    bool seen;
};

static struct vow_loop_stats stats_of(vow_loop *loop)
{
    vow_loop_stats s;
    vow_loop_stats_get(loop, &s);
    return s;
}

static vow_next just_end(void *arg)
{
    struct probe *p = arg;
    p->started++;
    p->ended++;
    return vow_ok(vow_int(7));
}

static vow_next wait_once(void *arg)
{
    struct probe *p = arg;
    p->started++;
    p->rc[0] = vow_await(p->on);
    p->ended++;
    return vow_ok(vow_int(8));
}

/* Waits for `on`, then three times for a delay, and notes each outcome. */
static vow_next wait_four_times(void *arg)
{
    struct probe *p = arg;
    p->started++;
    p->rc[0] = vow_await(p->on);
    for (int i = 1; i < 4; i++)
        p->rc[i] = vow_await_drop(vow_delay(p->loop, 5));
    p->ended++;
    return vow_ok(vow_int(9));
}

/* A fiber that waits for a promise of ours. */
struct scene {
    struct world w;
    struct probe p;
    vow_deferred *d; /* settles p.on */
    vow_future *f;   /* of the fiber */
};

/* Starts `body` and, when `run`, lets it reach its first await. */
static void scene_open(struct scene *s, vow_fiber_fn body, bool run)
{
    memset(s, 0, sizeof(*s));
    world_open(&s->w);
    s->p.loop = s->w.loop;
    s->p.on = vow_promise(s->w.loop, &s->d);
    s->f = vow_async(s->w.loop, body, &s->p);
    if (run)
        world_run(&s->w);
}

static void scene_close(struct scene *s)
{
    if (vow_deferred_pending(s->d))
        CHECK(vow_resolve(s->d, vow_nothing()));
    world_run(&s->w);
    vow_deferred_unref(s->d);
    vow_future_unref(s->p.on);
    vow_future_unref(s->f);
    world_close(&s->w);
}

/* ---- starting ----------------------------------------------------------- */

TEST(fiber, never_starts_inside_vow_async)
{
    struct scene s;
    scene_open(&s, just_end, false);
    CHECK_INT_EQ(s.p.started, 0);
    CHECK_INT_EQ(vow_state_of(s.f), VOW_PENDING);
    world_run(&s.w);
    CHECK_INT_EQ(s.p.started, 1);
    CHECK_INT_EQ(s.p.ended, 1);
    scene_close(&s);
}

static int order[8];
static int order_n;

static void note(int what)
{
    CHECK(order_n < 8);
    order[order_n++] = what;
}

static vow_next note_fiber(void *arg)
{
    note((int)(intptr_t)arg);
    return vow_ok(vow_nothing());
}

static vow_next note_handler(vow_value value, void *user)
{
    (void)value;
    note((int)(intptr_t)user);
    return vow_ok(vow_nothing());
}

TEST(fiber, starts_from_the_queue_in_order_with_handlers)
{
    struct world w;
    world_open(&w);
    vow_future *done = vow_resolved(w.loop, vow_nothing());
    vow_future_unref(vow_async(w.loop, note_fiber, (void *)1));
    vow_future_unref(vow_then(done, note_handler, NULL, (void *)2));
    vow_future_unref(vow_async(w.loop, note_fiber, (void *)3));
    vow_future_unref(done);
    world_run(&w);
    CHECK_INT_EQ(order_n, 3);
    CHECK_INT_EQ(order[0], 1);
    CHECK_INT_EQ(order[1], 2);
    CHECK_INT_EQ(order[2], 3);
    world_close(&w);
}

static vow_next start_one_more(vow_value value, void *user)
{
    struct probe *p = user;
    (void)value;
    vow_future *f = vow_async(p->loop, just_end, p);
    CHECK_INT_EQ(p->started, 0);
    return vow_follow(f);
}

TEST(fiber, can_be_started_in_a_handler_and_followed_there)
{
    struct world w;
    struct probe p = {0};
    world_open(&w);
    p.loop = w.loop;
    vow_future *first = vow_resolved(w.loop, vow_nothing());
    vow_future *f = vow_then(first, start_one_more, NULL, &p);
    world_run(&w);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 7);
    vow_future_unref(first);
    vow_future_unref(f);
    world_close(&w);
}

TEST(fiber, without_a_body_is_rejected_as_invalid)
{
    struct world w;
    world_open(&w);
    vow_future *f = vow_async(w.loop, NULL, NULL);
    CHECK(f != NULL);
    world_run(&w);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_EINVAL);
    vow_future_unref(f);
    world_close(&w);
}

TEST(fiber, with_options_of_a_wrong_size_is_rejected_as_invalid)
{
    const size_t wrong[] = {0, 1, sizeof(vow_async_opts) + 64};
    struct world w;
    struct probe p = {0};
    world_open(&w);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        vow_async_opts opts = {.size = wrong[i]};
        vow_future *f = vow_async_with(w.loop, just_end, &p, &opts);
        world_run(&w);
        CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_EINVAL);
        vow_future_unref(f);
    }
    CHECK_INT_EQ(p.started, 0);
    world_close(&w);
}

TEST(fiber, future_tells_where_the_fiber_was_started)
{
    struct scene s;
    scene_open(&s, just_end, false);
    CHECK(strstr(vow_future_site(s.f), "fiber_test.c:") != NULL);
    CHECK_PTR_EQ(vow_future_loop(s.f), s.w.loop);
    scene_close(&s);
}

TEST(fiber, runs_to_its_end_when_its_future_is_dropped_at_once)
{
    struct scene s;
    scene_open(&s, wait_once, false);
    s.f = vow_future_unref(s.f);
    world_run(&s.w);
    CHECK_INT_EQ(s.p.started, 1);
    CHECK_INT_EQ(s.p.ended, 0);
    CHECK(vow_resolve(s.d, vow_nothing()));
    world_run(&s.w);
    CHECK_INT_EQ(s.p.ended, 1);
    CHECK_INT_EQ(s.p.rc[0], 0);
    scene_close(&s);
}

TEST(fiber, is_counted_from_its_start_to_its_end)
{
    struct scene s;
    scene_open(&s, wait_once, true);
    CHECK_UINT_EQ(stats_of(s.w.loop).fibers, 1);
    CHECK(vow_resolve(s.d, vow_nothing()));
    world_run(&s.w);
    CHECK_UINT_EQ(stats_of(s.w.loop).fibers, 0);
    scene_close(&s);
}

static vow_next look_around(void *arg)
{
    struct probe *p = arg;
    p->seen = vow_in_fiber(p->loop) && !vow_fiber_canceled(p->loop);
    vow_await(p->on);
    p->ended += vow_in_fiber(p->loop) ? 1 : 0;
    return vow_ok(vow_nothing());
}

static vow_next look_in_handler(vow_value value, void *user)
{
    struct probe *p = user;
    (void)value;
    CHECK(!vow_in_fiber(p->loop));
    CHECK(!vow_fiber_canceled(p->loop));
    p->rc[1] = 1;
    return vow_ok(vow_nothing());
}

TEST(fiber, knows_whether_it_is_inside_one)
{
    struct scene s;
    scene_open(&s, look_around, true);
    CHECK(s.p.seen);
    CHECK(!vow_in_fiber(s.w.loop));
    CHECK(!vow_fiber_canceled(s.w.loop));
    vow_future_unref(vow_then(s.p.on, look_in_handler, NULL, &s.p));
    CHECK(vow_resolve(s.d, vow_nothing()));
    world_run(&s.w);
    CHECK_INT_EQ(s.p.ended, 1);
    CHECK_INT_EQ(s.p.rc[1], 1);
    scene_close(&s);
}

static vow_next look_at_other_loop(void *arg)
{
    struct probe *p = arg;
    p->seen = vow_in_fiber(p->loop);
    return vow_ok(vow_nothing());
}

TEST(fiber, of_one_loop_is_not_a_fiber_of_another)
{
    struct world w;
    struct world x;
    struct probe p = {0};
    world_open(&w);
    world_open(&x);
    p.loop = x.loop;
    p.seen = true;
    vow_future_unref(vow_async(w.loop, look_at_other_loop, &p));
    world_run(&w);
    CHECK(!p.seen);
    world_close(&x);
    world_close(&w);
}

/* ---- results ------------------------------------------------------------ */

TEST(fiber, value_of_vow_ok_is_the_value_of_its_future)
{
    struct scene s;
    scene_open(&s, just_end, true);
    CHECK_INT_EQ(vow_state_of(s.f), VOW_FULFILLED);
    CHECK_INT_EQ(vow_as_int(vow_get(s.f)), 7);
    scene_close(&s);
}

static vow_next fail_with_message(void *arg)
{
    return vow_fail(vow_error_new(arg, VOW_EIO, "disk %d is gone", 3));
}

static vow_next fail_with_code(void *arg)
{
    (void)arg;
    return vow_fail_code(VOW_ETIMEDOUT, "no answer");
}

TEST(fiber, error_of_vow_fail_is_the_error_of_its_future)
{
    struct world w;
    world_open(&w);
    vow_future *f = vow_async(w.loop, fail_with_message, w.loop);
    vow_future *g = vow_async(w.loop, fail_with_code, NULL);
    world_run(&w);
    CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_EIO);
    CHECK_STR_EQ(vow_error_message(vow_error_of(f)), "disk 3 is gone");
    CHECK_INT_EQ(vow_error_code(vow_error_of(g)), VOW_ETIMEDOUT);
    CHECK_STR_EQ(vow_error_message(vow_error_of(g)), "no answer");
    vow_future_unref(f);
    vow_future_unref(g);
    world_close(&w);
}

TEST(fiber, failure_that_nobody_reads_is_told_once)
{
    struct world w;
    world_open(&w);
    world_expect_unhandled(&w, 1);
    vow_future_unref(vow_async(w.loop, fail_with_code, NULL));
    world_run(&w);
    CHECK_UINT_EQ(stats_of(w.loop).unhandled, 1);
    world_close(&w);
}

static vow_next follow_on(void *arg)
{
    struct probe *p = arg;
    p->ended++;
    return vow_follow(vow_future_ref(p->on));
}

TEST(fiber, that_follows_has_ended_before_its_future_settles)
{
    struct scene s;
    scene_open(&s, follow_on, true);
    CHECK_INT_EQ(s.p.ended, 1);
    CHECK_UINT_EQ(stats_of(s.w.loop).fibers, 0);
    CHECK_INT_EQ(vow_state_of(s.f), VOW_PENDING);
    CHECK(vow_resolve(s.d, vow_int(42)));
    world_run(&s.w);
    CHECK_INT_EQ(vow_as_int(vow_get(s.f)), 42);
    scene_close(&s);
}

TEST(fiber, that_follows_a_failure_fails_with_it)
{
    struct world w;
    struct probe p = {0};
    world_open(&w);
    p.on = vow_rejected(w.loop, vow_error_new(w.loop, VOW_EIO, "far away"));
    vow_future *f = vow_async(w.loop, follow_on, &p);
    world_run(&w);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_EIO);
    CHECK_STR_EQ(vow_error_message(vow_error_of(f)), "far away");
    (void)vow_error_of(p.on);
    vow_future_unref(p.on);
    vow_future_unref(f);
    world_close(&w);
}

static int drops;

static void count_drop(void *ptr)
{
    drops++;
    free(ptr);
}

static vow_next give_owned(void *arg)
{
    (void)arg;
    int *n = malloc(sizeof(*n));
    CHECK(n != NULL);
    *n = 11;
    return vow_ok(vow_own(n, count_drop));
}

TEST(fiber, owned_result_is_dropped_once_with_its_future)
{
    struct world w;
    world_open(&w);
    vow_future *f = vow_async(w.loop, give_owned, NULL);
    world_run(&w);
    int *n = vow_as_ptr(vow_get(f));
    CHECK(n != NULL);
    CHECK_INT_EQ(*n, 11);
    CHECK_INT_EQ(drops, 0);
    vow_future_unref(f);
    CHECK_INT_EQ(drops, 1);
    vow_future_unref(vow_async(w.loop, give_owned, NULL));
    world_run(&w);
    CHECK_INT_EQ(drops, 2);
    world_close(&w);
}

/* ---- canceling ---------------------------------------------------------- */

TEST(fiber, canceled_in_await_returns_and_leaves_the_awaited_alone)
{
    struct scene s;
    scene_open(&s, wait_once, true);
    CHECK(vow_cancel(s.f, NULL));
    CHECK_INT_EQ(vow_state_of(s.f), VOW_PENDING); /* asked, not ended */
    CHECK_INT_EQ(s.p.ended, 0);                   /* never inside the call */
    world_run(&s.w);
    CHECK_INT_EQ(s.p.rc[0], VOW_ECANCELED);
    CHECK_INT_EQ(vow_state_of(s.p.on), VOW_PENDING);
    CHECK_INT_EQ(vow_as_int(vow_get(s.f)), 8); /* what the body returned */
    CHECK(vow_resolve(s.d, vow_int(1)));       /* it was not canceled */
    scene_close(&s);
}

TEST(fiber, canceled_in_await_is_not_saved_by_a_later_settle)
{
    struct scene s;
    scene_open(&s, wait_once, true);
    CHECK(vow_cancel(s.f, NULL));
    CHECK(vow_resolve(s.d, vow_int(1)));
    world_run(&s.w);
    CHECK_INT_EQ(s.p.rc[0], VOW_ECANCELED);
    CHECK_INT_EQ(s.p.ended, 1);
    scene_close(&s);
}

TEST(fiber, canceled_before_it_started_fails_its_first_await_only)
{
    struct scene s;
    scene_open(&s, wait_four_times, false);
    CHECK(vow_cancel(s.f, NULL));
    world_run(&s.w);
    CHECK_INT_EQ(s.p.ended, 1);
    CHECK_INT_EQ(s.p.rc[0], VOW_ECANCELED);
    for (int i = 1; i < 4; i++)
        CHECK_INT_EQ(s.p.rc[i], 0);
    CHECK_INT_EQ(vow_as_int(vow_get(s.f)), 9);
    scene_close(&s);
}

TEST(fiber, canceled_before_an_await_of_something_settled_fails_it_too)
{
    struct scene s;
    scene_open(&s, wait_four_times, false);
    CHECK(vow_resolve(s.d, vow_nothing()));
    CHECK(vow_cancel(s.f, NULL));
    world_run(&s.w);
    CHECK_INT_EQ(s.p.rc[0], VOW_ECANCELED);
    CHECK_INT_EQ(s.p.rc[1], 0);
    scene_close(&s);
}

TEST(fiber, canceled_while_ready_sees_it_exactly_once)
{
    struct scene s;
    scene_open(&s, wait_four_times, true);
    CHECK(vow_resolve(s.d, vow_nothing())); /* ready to go on, not yet run */
    CHECK(vow_cancel(s.f, NULL));
    world_run(&s.w);
    int canceled = 0;
    for (int i = 0; i < 4; i++)
        canceled += s.p.rc[i] == VOW_ECANCELED;
    CHECK_INT_EQ(canceled, 1);
    CHECK(s.p.rc[0] == VOW_ECANCELED || s.p.rc[1] == VOW_ECANCELED);
    CHECK_INT_EQ(s.p.ended, 1);
    scene_close(&s);
}

TEST(fiber, canceled_once_may_still_await_to_clean_up)
{
    struct scene s;
    scene_open(&s, wait_four_times, true);
    CHECK(vow_cancel(s.f, NULL));
    world_run(&s.w);
    CHECK_INT_EQ(s.p.rc[0], VOW_ECANCELED);
    for (int i = 1; i < 4; i++)
        CHECK_INT_EQ(s.p.rc[i], 0);
    CHECK_UINT_EQ(vow_loop_now_ns(s.w.loop), 15 * 1000000);
    scene_close(&s);
}

TEST(fiber, canceled_twice_fails_two_awaits)
{
    struct scene s;
    scene_open(&s, wait_four_times, true);
    CHECK(vow_cancel(s.f, NULL));
    CHECK(vow_cancel(s.f, NULL));
    world_run(&s.w);
    CHECK_INT_EQ(s.p.rc[0], VOW_ECANCELED);
    CHECK_INT_EQ(s.p.rc[1], VOW_ECANCELED);
    CHECK_INT_EQ(s.p.rc[2], 0);
    CHECK_INT_EQ(s.p.rc[3], 0);
    scene_close(&s);
}

static vow_next cancel_self(void *arg)
{
    struct probe *p = arg;
    CHECK(!vow_fiber_canceled(p->loop));
    CHECK(vow_cancel(p->self, NULL));
    p->seen = vow_fiber_canceled(p->loop);
    p->rc[0] = vow_yield(p->loop);
    p->rc[1] = vow_yield(p->loop);
    p->ended += vow_fiber_canceled(p->loop) ? 1 : 0; /* "ever" */
    return vow_ok(vow_nothing());
}

TEST(fiber, canceled_by_itself_fails_its_next_await)
{
    struct world w;
    struct probe p = {0};
    world_open(&w);
    p.loop = w.loop;
    p.self = vow_async(w.loop, cancel_self, &p);
    world_run(&w);
    CHECK(p.seen);
    CHECK_INT_EQ(p.rc[0], VOW_ECANCELED);
    CHECK_INT_EQ(p.rc[1], 0);
    CHECK_INT_EQ(p.ended, 1);
    CHECK_INT_EQ(vow_state_of(p.self), VOW_FULFILLED);
    CHECK(!vow_cancel(p.self, NULL)); /* settled: nothing to cancel */
    vow_future_unref(p.self);
    world_close(&w);
}

TEST(fiber, that_ended_by_following_is_canceled_at_once)
{
    struct scene s;
    scene_open(&s, follow_on, true);
    CHECK(vow_cancel(s.f, NULL));
    CHECK_INT_EQ(vow_state_of(s.f), VOW_REJECTED);
    CHECK_INT_EQ(vow_error_code(vow_error_of(s.f)), VOW_ECANCELED);
    CHECK_INT_EQ(vow_state_of(s.p.on), VOW_PENDING); /* we hold it too */
    scene_close(&s);
}

TEST(fiber, in_a_scope_is_asked_and_waited_for)
{
    struct scene s;
    vow_scope *scope;
    scene_open(&s, wait_four_times, false);
    CHECK_INT_EQ(vow_scope_new(s.w.loop, NULL, &scope), 0);
    vow_future *member = vow_scope_add(scope, s.f);
    world_run(&s.w);
    CHECK(vow_scope_cancel(scope, NULL));
    vow_future *empty = vow_scope_wait(scope);
    world_turn(&s.w);
    CHECK_INT_EQ(vow_error_code(vow_error_of(member)), VOW_ECANCELED);
    CHECK_INT_EQ(s.p.ended, 0); /* it still cleans up, for 15 ms */
    CHECK_INT_EQ(vow_state_of(empty), VOW_PENDING);
    CHECK_UINT_EQ(vow_scope_size(scope), 1);
    world_run(&s.w);
    CHECK_INT_EQ(s.p.rc[0], VOW_ECANCELED);
    CHECK_INT_EQ(s.p.ended, 1);
    CHECK_INT_EQ(vow_error_code(vow_error_of(empty)), VOW_ECANCELED);
    vow_future_unref(member);
    vow_future_unref(empty);
    vow_scope_unref(scope);
    scene_close(&s);
}

TEST(fiber, whose_time_limit_passed_is_canceled)
{
    struct scene s;
    scene_open(&s, wait_once, false);
    vow_future *limited = vow_timeout(s.f, 10);
    s.f = vow_future_unref(s.f); /* nobody else holds it */
    world_run(&s.w);
    CHECK_INT_EQ(vow_error_code(vow_error_of(limited)), VOW_ETIMEDOUT);
    CHECK_INT_EQ(s.p.rc[0], VOW_ECANCELED);
    CHECK_INT_EQ(s.p.ended, 1);
    vow_future_unref(limited);
    scene_close(&s);
}
