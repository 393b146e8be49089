/* SPDX-License-Identifier: MIT */
/* promise_inner_test.c - corners of promises, links, progress, remotes and
 * retries that come up only when something else happens first: a hook that is
 * queued, a listener with news, a value that has other readers. */
#include "core/promise_internal.h"
#include "vow/remote.h"
#include "vow/retry.h"
#include "vow/scope.h"
#include "world.h"

static int code_of(vow_future *f)
{
    return vow_error_code(vow_error_of(f));
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

/* ---- values ------------------------------------------------------------- */

TEST(promise, bytes_with_other_readers_are_shared_and_not_copied)
{
    struct world w;
    vow_bytes *b;
    world_open(&w);
    CHECK_INT_EQ(vow_bytes_new(w.loop, "abc", 3, &b), 0);
    vow_future *f = vow_resolved(w.loop, vow_bytes_value(b));
    vow_future *next = vow_then(f, NULL, NULL, NULL);
    world_run(&w);
    CHECK_PTR_EQ(vow_as_bytes(vow_get(next)), b);
    vow_future_unref(f); /* the reader has a reference of its own */
    CHECK_MEM_EQ(vow_bytes_data(vow_as_bytes(vow_get(next))), "abc", 3);
    vow_future_unref(next);
    world_close(&w);
}

TEST(promise, null_ends_are_accepted)
{
    CHECK_PTR_EQ(vow_deferred_ref(NULL), NULL);
    CHECK_PTR_EQ(vow_deferred_unref(NULL), NULL);
    CHECK(!vow_deferred_pending(NULL));
    CHECK_PTR_EQ(vow_future_ref(NULL), NULL);
    CHECK_PTR_EQ(vow_future_unref(NULL), NULL);
}

/* ---- other loops -------------------------------------------------------- */

static vow_next follow_user(void *user)
{
    return vow_follow(vow_future_ref(user));
}

TEST(promise, future_of_another_loop_is_refused_wherever_it_is_given)
{
    struct world w;
    struct world other;
    vow_deferred *d;
    vow_scope *s;
    world_open(&w);
    world_open(&other);
    vow_future *foreign = vow_race(other.loop, NULL, 0);
    vow_future *f[3];
    f[0] = vow_promise(w.loop, &d);
    CHECK(vow_resolve_with(d, foreign));
    vow_deferred_unref(d);
    CHECK_INT_EQ(vow_scope_new(w.loop, NULL, &s), 0);
    f[1] = vow_scope_add(s, foreign);
    vow_scope_unref(s);
    vow_future *begin = vow_resolved(w.loop, vow_nothing());
    f[2] = vow_finally(begin, follow_user, foreign);
    vow_future_unref(begin);
    world_run(&w);
    for (int i = 0; i < 3; i++) {
        CHECK_INT_EQ(code_of(f[i]), VOW_EINVAL);
        vow_future_unref(f[i]);
    }
    vow_future_unref(foreign);
    world_close(&w);
    world_close(&other);
}

/* ---- links -------------------------------------------------------------- */

static vow_next follow_itself(void *user)
{
    return vow_follow(vow_future_ref(*(vow_future **)user));
}

TEST(promise, finally_that_waits_for_itself_is_a_cycle)
{
    struct world w;
    world_open(&w);
    vow_future *link = NULL;
    vow_future *begin = vow_resolved(w.loop, vow_int(1));
    link = vow_finally(begin, follow_itself, &link);
    world_run(&w);
    CHECK_INT_EQ(code_of(link), VOW_ECYCLE);
    vow_future_unref(begin);
    vow_future_unref(link);
    world_close(&w);
}

/* Takes the future. */
static void check_seven(struct world *w, vow_future *f)
{
    world_run(w);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 7);
    vow_future_unref(f);
}

TEST(promise, finally_without_a_function_passes_on)
{
    struct world w;
    world_open(&w);
    vow_future *seven = vow_resolved(w.loop, vow_int(7));
    check_seven(&w, vow_finally(seven, NULL, NULL));
    vow_future_unref(seven);
    world_close(&w);
}

/* ---- hooks -------------------------------------------------------------- */

TEST(promise, cancel_before_it_follows_another_cancels_the_following)
{
    struct world w;
    vow_deferred *d;
    int asked = 0;
    world_open(&w);
    vow_future *other = vow_race(w.loop, NULL, 0);
    vow_future *f = vow_promise(w.loop, &d);
    vow_on_cancel(d, count_cancel, &asked);
    CHECK(vow_cancel(f, NULL));
    CHECK(vow_resolve_with(d, other));
    world_run(&w);
    CHECK_INT_EQ(asked, 0); /* its end is spent: there is nobody to ask */
    CHECK_INT_EQ(code_of(f), VOW_ECANCELED);
    CHECK_INT_EQ(vow_state_of(other), VOW_PENDING); /* we hold it */
    vow_deferred_unref(d);
    vow_future_unref(f);
    vow_future_unref(other);
    world_close(&w);
}

TEST(promise, queued_hook_is_forgotten_when_the_promise_is_settled)
{
    struct world w;
    vow_deferred *d;
    int asked = 0;
    world_open(&w);
    for (int i = 0; i < 2; i++) {
        vow_future *f = vow_promise(w.loop, &d);
        vow_on_cancel(d, count_cancel, &asked);
        CHECK(vow_cancel(f, NULL));
        CHECK(i == 0 ? vow_resolve(d, vow_int(1))
                     : vow_reject_code(d, VOW_EIO, NULL));
        world_run(&w);
        CHECK_INT_EQ(asked, 0);
        CHECK_INT_EQ(code_of(f), i == 0 ? 0 : VOW_EIO);
        vow_deferred_unref(d);
        vow_future_unref(f);
    }
    world_close(&w);
}

/* ---- progress ----------------------------------------------------------- */

static void count_progress(vow_value progress, void *user)
{
    (void)progress;
    ++*(int *)user;
}

TEST(progress, without_a_listener_is_a_link_that_passes_on)
{
    struct world w;
    world_open(&w);
    vow_future *seven = vow_resolved(w.loop, vow_int(7));
    check_seven(&w, vow_on_progress(seven, NULL, NULL));
    vow_future_unref(seven);
    world_close(&w);
}

TEST(progress, of_a_settled_promise_is_refused_and_dropped)
{
    struct world w;
    vow_deferred *d;
    int drops = 0;
    world_open(&w);
    vow_future *f = vow_promise(w.loop, &d);
    CHECK(vow_resolve(d, vow_nothing()));
    CHECK(!vow_notify(d, vow_own(&drops, count_drop)));
    CHECK_INT_EQ(drops, 1);
    vow_deferred_unref(d);
    vow_future_unref(f);
    world_close(&w);
}

TEST(progress, canceled_listener_takes_its_news_along)
{
    struct world w;
    vow_deferred *d;
    int drops = 0;
    int heard = 0;
    world_open(&w);
    vow_future *f = vow_promise(w.loop, &d);
    vow_future *listens = vow_on_progress(f, count_progress, &heard);
    CHECK(vow_notify(d, vow_own(&drops, count_drop)));
    CHECK(vow_cancel(listens, NULL));
    CHECK_INT_EQ(drops, 1);
    world_run(&w);
    CHECK_INT_EQ(heard, 0);
    CHECK_INT_EQ(code_of(listens), VOW_ECANCELED);
    CHECK(vow_resolve(d, vow_nothing())); /* others hold it */
    vow_deferred_unref(d);
    vow_future_unref(f);
    vow_future_unref(listens);
    world_close(&w);
}

TEST(progress, from_a_remote_is_dropped_when_the_promise_was_canceled)
{
    struct world w;
    vow_remote *r;
    int drops = 0;
    int heard = 0;
    world_open(&w);
    vow_future *f = vow_promise_remote(w.loop, &r);
    vow_future *listens = vow_on_progress(f, count_progress, &heard);
    CHECK(vow_notify_any(r, vow_own(&drops, count_drop)));
    CHECK(vow_cancel(f, NULL)); /* the message is under way */
    vow_remote_unref(r);
    world_run(&w);
    CHECK_INT_EQ(drops, 1);
    CHECK_INT_EQ(heard, 0);
    CHECK_INT_EQ(code_of(listens), VOW_ECANCELED);
    vow_future_unref(f);
    vow_future_unref(listens);
    world_close(&w);
}

/* ---- scopes ------------------------------------------------------------- */

TEST(scope, canceling_a_members_result_cancels_what_nobody_else_holds)
{
    struct world w;
    vow_scope *s;
    world_open(&w);
    CHECK_INT_EQ(vow_scope_new(w.loop, NULL, &s), 0);
    for (int held = 0; held < 2; held++) {
        vow_future *f = vow_delay(w.loop, 5);
        vow_future *m = vow_scope_add(s, f);
        if (!held)
            f = vow_future_unref(f);
        CHECK(vow_cancel(m, NULL));
        CHECK_INT_EQ(code_of(m), VOW_ECANCELED);
        CHECK_UINT_EQ(vow_scope_size(s), 1); /* until its future ends */
        world_run(&w);
        CHECK_UINT_EQ(vow_scope_size(s), 0);
        CHECK_UINT_EQ(vow_loop_now_ns(w.loop), held ? 5000000 : 0);
        if (held)
            CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
        vow_future_unref(f);
        vow_future_unref(m);
    }
    vow_scope_unref(s);
    world_close(&w);
}

TEST(scope, canceled_wait_leaves_the_scope_alone)
{
    struct world w;
    vow_scope *s;
    world_open(&w);
    CHECK_INT_EQ(vow_scope_new(w.loop, NULL, &s), 0);
    vow_future *f = vow_delay(w.loop, 5);
    vow_future *m = vow_scope_add(s, f);
    vow_future *wait[2] = {vow_scope_wait(s), vow_scope_wait(s)};
    CHECK(vow_cancel(wait[0], NULL));
    CHECK_INT_EQ(code_of(wait[0]), VOW_ECANCELED);
    CHECK(!vow_scope_canceled(s));
    world_run(&w);
    CHECK_INT_EQ(vow_state_of(m), VOW_FULFILLED);
    CHECK_INT_EQ(vow_state_of(wait[1]), VOW_FULFILLED);
    vow_future_unref(wait[0]);
    vow_future_unref(wait[1]);
    vow_future_unref(f);
    vow_future_unref(m);
    vow_scope_unref(s);
    world_close(&w);
}

/* ---- retry -------------------------------------------------------------- */

static vow_future *start_nothing(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)loop;
    *(uint32_t *)arg = attempt;
    return NULL;
}

TEST(retry, start_that_returns_null_is_a_failed_attempt)
{
    struct world w;
    uint32_t attempts = 0;
    world_open(&w);
    vow_future *f = vow_retry(w.loop, start_nothing, &attempts, NULL);
    world_run(&w);
    CHECK_INT_EQ(code_of(f), VOW_EINVAL);
    CHECK_UINT_EQ(attempts, 3);
    vow_future_unref(f);
    world_close(&w);
}

/* The queue is run late, as when another handler took its time. */
TEST(retry, deadline_that_passes_before_the_first_attempt_starts_none)
{
    struct world w;
    uint32_t attempts = 0;
    world_open(&w);
    vow_future *f = vow_retry(w.loop, start_nothing, &attempts,
                              VOW_RETRY(.deadline_ms = 5));
    w.loop->clock.virtual_ns = 5000000;
    world_run(&w);
    CHECK_INT_EQ(code_of(f), VOW_ETIMEDOUT);
    CHECK_UINT_EQ(attempts, 0);
    vow_future_unref(f);
    world_close(&w);
}
