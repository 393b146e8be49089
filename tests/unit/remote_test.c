/* SPDX-License-Identifier: MIT */
/* remote_test.c - what vow/remote.h promises: a promise settled from any
 * thread, once, always: without memory, with a full inbox, against another
 * thread; and what dropping, canceling and closing do to it.
 */
#include "harness.h"
#include "world.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static vow_loop_stats stats_of(vow_loop *loop)
{
    vow_loop_stats s;
    vow_loop_stats_get(loop, &s);
    return s;
}

static void run_thread(void *(*fn)(void *), void *arg)
{
    pthread_t thread;
    CHECK_INT_EQ(pthread_create(&thread, NULL, fn, arg), 0);
    CHECK_INT_EQ(pthread_join(thread, NULL), 0);
}

static atomic_int drops;
static _Atomic(pthread_t) dropped_on;

static void note_drop(void *ptr)
{
    atomic_store(&dropped_on, pthread_self());
    atomic_fetch_add(&drops, 1);
    free(ptr);
}

static vow_value owned(void)
{
    return vow_own(malloc(16), note_drop);
}

/* ---- settling ----------------------------------------------------------- */

static void *resolve_five(void *arg)
{
    vow_remote *r = arg;
    CHECK(vow_resolve_any(r, vow_int(5)));
    CHECK(!vow_resolve_any(r, vow_int(6)));
    vow_remote_unref(r);
    return NULL;
}

TEST(remote, is_resolved_from_a_thread_while_the_loop_waits_for_it)
{
    struct world w;
    vow_remote *r;
    pthread_t thread;
    world_open_real(&w);
    vow_future *f = vow_promise_remote(w.loop, &r);
    CHECK_INT_EQ(vow_state_of(f), VOW_PENDING);
    CHECK(strstr(vow_future_site(f), "remote_test.c:") != NULL);
    CHECK_INT_EQ(pthread_create(&thread, NULL, resolve_five, r), 0);
    world_run(&w); /* waits: it is alive and unsettled */
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 5);
    CHECK_INT_EQ(pthread_join(thread, NULL), 0);
    vow_future_unref(f);
    world_run(&w);
    world_close(&w);
}

static void *reject_with_cause(void *arg)
{
    vow_remote *r = arg;
    vow_loop *loop = vow_remote_loop(r);
    vow_error *cause = vow_error_new(loop, VOW_EIO, "cable");
    vow_error *e = vow_error_wrap(loop, VOW_ETIMEDOUT, cause, "port %d", 80);
    vow_error_unref(cause);
    CHECK(vow_reject_any(r, e));
    vow_remote_unref(r);
    return NULL;
}

TEST(remote, is_rejected_from_a_thread_with_message_and_cause)
{
    struct world w;
    vow_remote *r;
    world_open_real(&w);
    vow_future *f = vow_promise_remote(w.loop, &r);
    CHECK_PTR_EQ(vow_remote_loop(r), w.loop);
    run_thread(reject_with_cause, r);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), VOW_ETIMEDOUT);
    CHECK_STR_EQ(vow_error_message(vow_error_of(f)), "port 80");
    CHECK_STR_EQ(vow_error_message(vow_error_root(vow_error_of(f))), "cable");
    vow_future_unref(f);
    world_run(&w);
    world_close(&w);
}

static void *resolve_bytes(void *arg)
{
    vow_remote *r = arg;
    vow_bytes *b;
    CHECK_INT_EQ(vow_bytes_new(vow_remote_loop(r), "far", 3, &b), 0);
    CHECK(vow_resolve_any(r, vow_bytes_value(b)));
    vow_remote_unref(r);
    return NULL;
}

TEST(remote, carries_bytes_made_on_a_thread)
{
    struct world w;
    vow_remote *r;
    world_open_real(&w);
    vow_future *f = vow_promise_remote(w.loop, &r);
    run_thread(resolve_bytes, r);
    world_run(&w);
    CHECK_UINT_EQ(vow_bytes_size(vow_as_bytes(vow_get(f))), 3);
    CHECK_MEM_EQ(vow_bytes_data(vow_as_bytes(vow_get(f))), "far", 3);
    vow_future_unref(f);
    world_close(&w);
}

static void *resolve_owned(void *arg)
{
    vow_remote *r = arg;
    CHECK(vow_resolve_any(r, owned()));
    vow_remote_unref(r);
    return NULL;
}

TEST(remote, owned_value_is_dropped_once_on_the_loops_thread)
{
    struct world w;
    vow_remote *r;
    world_open_real(&w);
    vow_future *f = vow_promise_remote(w.loop, &r);
    run_thread(resolve_owned, r);
    CHECK_INT_EQ(atomic_load(&drops), 0);
    world_run(&w);
    vow_future_unref(f);
    CHECK_INT_EQ(atomic_load(&drops), 1);
    CHECK(pthread_equal(atomic_load(&dropped_on), pthread_self()));
    world_close(&w);
}

TEST(remote, value_is_dropped_when_nobody_holds_the_future)
{
    struct world w;
    vow_remote *r;
    world_open_real(&w);
    vow_future_unref(vow_promise_remote(w.loop, &r));
    run_thread(resolve_owned, r);
    world_run(&w);
    CHECK_INT_EQ(atomic_load(&drops), 1);
    CHECK(pthread_equal(atomic_load(&dropped_on), pthread_self()));
    world_close(&w);
}

static vow_next count_ok(vow_value value, void *user)
{
    (void)value;
    ++*(int *)user;
    return vow_ok(vow_nothing());
}

TEST(remote, settled_on_the_loops_own_thread_runs_no_handler_inside)
{
    struct world w;
    vow_remote *r;
    int count = 0;
    world_open(&w);
    vow_future *f = vow_promise_remote(w.loop, &r);
    vow_future_unref(vow_then(f, count_ok, NULL, &count));
    CHECK(vow_resolve_any(r, vow_nothing()));
    CHECK_INT_EQ(count, 0);
    world_run(&w); /* settled: it does not wait, though the end is alive */
    CHECK_INT_EQ(count, 1);
    CHECK(!vow_resolve_any(r, owned()));
    CHECK(!vow_reject_any(r, vow_error_new(w.loop, VOW_EIO, "late")));
    CHECK(!vow_notify_any(r, owned()));
    world_run(&w);
    CHECK_INT_EQ(atomic_load(&drops), 2); /* what came late */
    vow_remote_unref(r);
    vow_future_unref(f);
    world_run(&w);
    world_close(&w);
}

/* Two threads settle the same promise at the same time. */
struct duel {
    vow_remote *r;
    pthread_barrier_t *start;
    int wins;
};

static void *fight(void *arg)
{
    struct duel *d = arg;
    pthread_barrier_wait(d->start);
    d->wins += vow_resolve_any(d->r, owned()) ? 1 : 0;
    vow_remote_unref(d->r);
    return NULL;
}

TEST(remote, of_two_threads_exactly_one_settles)
{
    enum { ROUNDS = 500 };
    struct world w;
    pthread_barrier_t start;
    world_open_real(&w);
    CHECK_INT_EQ(pthread_barrier_init(&start, NULL, 2), 0);
    for (int i = 0; i < ROUNDS; i++) {
        struct duel d[2] = {{.start = &start}, {.start = &start}};
        pthread_t thread[2];
        vow_future *f = vow_promise_remote(w.loop, &d[0].r);
        d[1].r = vow_remote_ref(d[0].r);
        for (int k = 0; k < 2; k++)
            CHECK_INT_EQ(pthread_create(&thread[k], NULL, fight, &d[k]), 0);
        world_run(&w);
        for (int k = 0; k < 2; k++)
            CHECK_INT_EQ(pthread_join(thread[k], NULL), 0);
        CHECK_INT_EQ(d[0].wins + d[1].wins, 1);
        CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
        vow_future_unref(f);
    }
    world_run(&w);
    CHECK_INT_EQ(atomic_load(&drops), 2 * ROUNDS); /* won or lost, once */
    pthread_barrier_destroy(&start);
    world_close(&w);
}

/* Settled by one thread one after the other, they arrive so. */
enum { LINE = 1000 };

static int line_next;

static vow_next expect_next(vow_value value, void *user)
{
    CHECK_INT_EQ(vow_as_int(value), (intptr_t)user);
    CHECK_INT_EQ((intptr_t)user, line_next);
    line_next++;
    return vow_ok(vow_nothing());
}

static void *settle_line(void *arg)
{
    vow_remote **r = arg;
    for (int i = 0; i < LINE; i++) {
        CHECK(vow_resolve_any(r[i], vow_int(i)));
        vow_remote_unref(r[i]);
    }
    return NULL;
}

TEST(remote, a_thousand_of_one_thread_arrive_in_its_order)
{
    static vow_remote *r[LINE];
    struct world w;
    pthread_t thread;
    world_open_real(&w);
    for (intptr_t i = 0; i < LINE; i++) {
        vow_future *f = vow_promise_remote(w.loop, &r[i]);
        vow_future_unref(vow_then(f, expect_next, NULL, (void *)i));
        vow_future_unref(f);
    }
    CHECK_INT_EQ(pthread_create(&thread, NULL, settle_line, r), 0);
    world_run(&w);
    CHECK_INT_EQ(pthread_join(thread, NULL), 0);
    CHECK_INT_EQ(line_next, LINE);
    world_run(&w);
    world_close(&w);
}

/* ---- always -------------------------------------------------------------- */

static void *resolve_and_notify(void *arg)
{
    vow_remote *r = arg;
    vow_notify_any(r, owned()); /* may be lost, not leaked */
    CHECK(vow_resolve_any(r, vow_int(8)));
    vow_remote_unref(r);
    return NULL;
}

TEST(remote, settles_when_every_allocation_fails)
{
    struct world w;
    vow_remote *r;
    vow_remote *broken;
    world_open_real(&w);
    vow_future *f = vow_promise_remote(w.loop, &r);
    vow_future *g = vow_promise_remote(w.loop, &broken);
    w.alloc.fail_at = w.alloc.allocs + 1;
    w.alloc.fail_forever = true;
    run_thread(resolve_and_notify, r);
    vow_remote_unref(broken);
    world_run(&w);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 8);
    CHECK_INT_EQ(vow_error_code(vow_error_of(g)), VOW_EBROKEN);
    CHECK_INT_EQ(atomic_load(&drops), 1);
    w.alloc.fail_forever = false;
    vow_future_unref(f);
    vow_future_unref(g);
    world_close(&w);
}

static void nothing_to_do(void *arg)
{
    (void)arg;
}

TEST(remote, settles_when_the_inbox_is_full)
{
    struct world w;
    vow_remote *r[3];
    vow_future *f[3];
    world_open_with(&w,
                    VOW_LOOP_OPTS(.flags = WORLD_REAL_TIME, .inbox_max = 1));
    for (int i = 0; i < 3; i++)
        f[i] = vow_promise_remote(w.loop, &r[i]);
    CHECK_INT_EQ(vow_loop_post(w.loop, nothing_to_do, NULL), 0);
    CHECK_INT_EQ(vow_loop_post(w.loop, nothing_to_do, NULL), VOW_EQUEUEFULL);
    for (int i = 0; i < 3; i++)
        run_thread(resolve_five, r[i]);
    world_run(&w);
    for (int i = 0; i < 3; i++) {
        CHECK_INT_EQ(vow_as_int(vow_get(f[i])), 5);
        vow_future_unref(f[i]);
    }
    world_run(&w);
    world_close(&w);
}

TEST(remote, without_memory_is_rejected_and_its_end_is_null)
{
    struct world w;
    vow_remote *r = (vow_remote *)&w;
    world_open_with(&w, VOW_LOOP_OPTS(.flags = VOW_LOOP_UNPOOLED));
    w.alloc.fail_at = w.alloc.allocs + 1;
    w.alloc.fail_forever = true;
    vow_future *f = vow_promise_remote(w.loop, &r);
    w.alloc.fail_forever = false;
    CHECK(f != NULL);
    CHECK(r == NULL);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_ENOMEM);
    vow_future_unref(f);
    world_close(&w);
}

TEST(remote, null_end_is_accepted_by_every_function)
{
    struct world w;
    world_open(&w);
    CHECK(!vow_resolve_any(NULL, owned()));
    CHECK(!vow_notify_any(NULL, owned()));
    CHECK_INT_EQ(atomic_load(&drops), 2);
    CHECK(!vow_reject_any(NULL, vow_error_new(w.loop, VOW_EIO, "x")));
    CHECK(vow_remote_loop(NULL) == NULL);
    CHECK(vow_remote_ref(NULL) == NULL);
    CHECK(vow_remote_unref(NULL) == NULL);
    vow_remote_canceled(NULL); /* either answer, no crash */
    world_close(&w);
}

/* ---- dropping, canceling, progress, closing ----------------------------- */

static void *drop_it(void *arg)
{
    CHECK(vow_remote_unref(arg) == NULL);
    return NULL;
}

TEST(remote, dropped_unsettled_by_its_last_holder_breaks_the_promise)
{
    struct world w;
    vow_remote *r;
    world_open_real(&w);
    vow_future *f = vow_promise_remote(w.loop, &r);
    CHECK_PTR_EQ(vow_remote_ref(r), r);
    run_thread(drop_it, r); /* not the last */
    world_turn(&w);
    CHECK_INT_EQ(vow_state_of(f), VOW_PENDING);
    run_thread(drop_it, r);
    world_run(&w);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_EBROKEN);
    vow_future_unref(f);
    world_close(&w);
}

struct watch {
    vow_remote *r;
    sem_t started;
};

static void *work_until_canceled(void *arg)
{
    struct watch *t = arg;
    CHECK(!vow_remote_canceled(t->r));
    sem_post(&t->started);
    while (!vow_remote_canceled(t->r))
        sched_yield();
    vow_resolve_any(t->r, owned());
    vow_remote_unref(t->r);
    return NULL;
}

TEST(remote, cancel_is_seen_by_the_thread_and_its_result_comes_late)
{
    struct world w;
    struct watch t;
    pthread_t thread;
    world_open_real(&w);
    vow_future *f = vow_promise_remote(w.loop, &t.r);
    CHECK_INT_EQ(sem_init(&t.started, 0, 0), 0);
    CHECK_INT_EQ(pthread_create(&thread, NULL, work_until_canceled, &t), 0);
    CHECK_INT_EQ(sem_wait(&t.started), 0);
    CHECK(vow_cancel(f, NULL));
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_ECANCELED); /* at once */
    CHECK_INT_EQ(pthread_join(thread, NULL), 0);
    world_run(&w);
    CHECK_INT_EQ(atomic_load(&drops), 1);
    CHECK_UINT_EQ(stats_of(w.loop).late_settles, 1);
    sem_destroy(&t.started);
    vow_future_unref(f);
    world_close(&w);
}

struct talk {
    vow_remote *r;
    sem_t heard_it;
    int64_t heard[4];
    int n;
};

static void hear(vow_value progress, void *user)
{
    struct talk *t = user;
    CHECK(t->n < 4);
    t->heard[t->n++] = vow_as_int(progress);
    sem_post(&t->heard_it);
}

static void *tell_three_times(void *arg)
{
    struct talk *t = arg;
    for (int i = 1; i <= 3; i++) {
        CHECK(vow_notify_any(t->r, vow_int(i)));
        CHECK_INT_EQ(sem_wait(&t->heard_it), 0);
    }
    CHECK(vow_resolve_any(t->r, vow_nothing()));
    CHECK(!vow_notify_any(t->r, vow_int(4)));
    vow_remote_unref(t->r);
    return NULL;
}

TEST(remote, progress_reaches_listeners_until_it_is_settled)
{
    struct world w;
    struct talk t = {0};
    pthread_t thread;
    world_open_real(&w);
    CHECK_INT_EQ(sem_init(&t.heard_it, 0, 0), 0);
    vow_future *f = vow_promise_remote(w.loop, &t.r);
    vow_future_unref(vow_on_progress(f, hear, &t));
    CHECK_INT_EQ(pthread_create(&thread, NULL, tell_three_times, &t), 0);
    world_run(&w);
    CHECK_INT_EQ(pthread_join(thread, NULL), 0);
    CHECK_INT_EQ(t.n, 3);
    for (int i = 0; i < 3; i++)
        CHECK_INT_EQ(t.heard[i], i + 1);
    sem_destroy(&t.heard_it);
    vow_future_unref(f);
    world_run(&w);
    world_close(&w);
}

static vow_next await_it(void *arg)
{
    CHECK_INT_EQ(vow_await(arg), 0);
    return vow_ok(vow_int(vow_as_int(vow_get(arg)) + 1));
}

TEST(remote, can_be_awaited)
{
    struct world w;
    vow_remote *r;
    pthread_t thread;
    world_open_real(&w);
    vow_future *f = vow_promise_remote(w.loop, &r);
    vow_future *fiber = vow_async(w.loop, await_it, f);
    world_turn(&w);
    CHECK_INT_EQ(pthread_create(&thread, NULL, resolve_five, r), 0);
    world_run(&w);
    CHECK_INT_EQ(pthread_join(thread, NULL), 0);
    CHECK_INT_EQ(vow_as_int(vow_get(fiber)), 6);
    vow_future_unref(f);
    vow_future_unref(fiber);
    world_run(&w);
    world_close(&w);
}

static vow_next note_code(vow_error *error, void *user)
{
    *(int *)user = vow_error_code(error);
    return vow_ok(vow_nothing());
}

TEST(remote, may_be_dropped_by_a_thread_after_the_loop_was_closed)
{
    struct world w;
    vow_remote *unsettled;
    vow_remote *settled;
    int code = 0;
    world_open_real(&w);
    vow_future *f = vow_promise_remote(w.loop, &unsettled);
    vow_future *g = vow_promise_remote(w.loop, &settled);
    vow_future_unref(vow_catch(f, note_code, &code));
    CHECK(vow_resolve_any(settled, owned()));
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    CHECK_INT_EQ(code, VOW_ECLOSED);
    vow_future_unref(f);
    vow_future_unref(g);
    CHECK_INT_EQ(atomic_load(&drops), 1);
    run_thread(drop_it, unsettled);
    run_thread(drop_it, settled);
    world_close_dirty(&w); /* every block came back */
}
