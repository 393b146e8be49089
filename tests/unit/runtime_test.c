/* SPDX-License-Identifier: MIT */
/* runtime_test.c - loops, threads and fibers where they meet: fairness, the
 * close with others still at work, libuv's callbacks, a loop that changes its
 * thread, and what is asked of a loop that is closed.
 *
 * Each test failed before its cure. Some of the old faults showed only under
 * AddressSanitizer, or in builds with assertions. */
#include "harness.h"
#include "world.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <unistd.h>
#include <vow.h>
#include <vow/uv.h>

static int code_of(vow_future *f)
{
    return vow_error_code(vow_error_of(f));
}

static void check_code(vow_future *f, int code)
{
    CHECK_INT_EQ(code_of(f), code);
    vow_future_unref(f);
}

/* Close the world's loop, with some of its futures still held. */
static void close_loop(struct world *w)
{
    CHECK_INT_EQ(vow_loop_close(w->loop), 0);
    w->loop = NULL;
}

static void sem_take(sem_t *sem)
{
    while (sem_wait(sem) != 0)
        continue;
}

/* ---- fairness ----------------------------------------------------------- */

enum { KNOCK_AT = 10, ROUNDS_MAX = 100000 };

/* What goes round without end, a post, and a pipe that becomes readable. */
struct spin {
    struct world w;
    uv_poll_t poll;
    int pipe[2];
    bool posted;
    bool readable;
    int rounds;
};

static void on_post(void *arg)
{
    struct spin *s = arg;
    s->posted = true;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct spin *s = poll->data;
    CHECK_INT_EQ(status, 0);
    CHECK(events & UV_READABLE);
    s->readable = true;
    uv_close((uv_handle_t *)poll, NULL);
}

static void spin_open(struct spin *s)
{
    *s = (struct spin){.rounds = 0};
    world_open_real(&s->w);
    CHECK_INT_EQ(pipe(s->pipe), 0);
    s->poll.data = s;
    CHECK_INT_EQ(uv_poll_init(vow_loop_uv(s->w.loop), &s->poll, s->pipe[0]), 0);
    CHECK_INT_EQ(uv_poll_start(&s->poll, UV_READABLE, on_readable), 0);
}

/* True while it has to go on; knocks at both doors once it goes round. */
static bool spin_on(struct spin *s)
{
    if (s->rounds++ == KNOCK_AT) {
        CHECK_INT_EQ(vow_loop_post(s->w.loop, on_post, s), 0);
        CHECK_INT_EQ(write(s->pipe[1], "!", 1), 1);
    }
    return !(s->posted && s->readable) && s->rounds < ROUNDS_MAX;
}

static void spin_run(struct spin *s, vow_future *f)
{
    CHECK_INT_EQ(vow_loop_run_until(s->w.loop, f), 0);
    CHECK(s->rounds < ROUNDS_MAX);
    vow_future_unref(f);
    world_run(&s->w);
    close(s->pipe[0]);
    close(s->pipe[1]);
    world_close(&s->w);
}

static vow_next sleep_without_end(void *arg)
{
    struct spin *s = arg;
    while (spin_on(s))
        CHECK_INT_EQ(vow_sleep(s->w.loop, 0), 0);
    return vow_ok(vow_nothing());
}

TEST(runtime, fiber_that_sleeps_for_no_time_lets_posts_and_io_in)
{
    struct spin s;
    spin_open(&s);
    spin_run(&s, vow_async(s.w.loop, sleep_without_end, &s));
}

static vow_next delay_without_end(vow_value v, void *user)
{
    struct spin *s = user;
    (void)v;
    if (!spin_on(s))
        return vow_ok(vow_nothing());
    vow_future *f = vow_delay(s->w.loop, 0);
    vow_future *next = vow_then(f, delay_without_end, NULL, s);
    vow_future_unref(f);
    return vow_follow(next);
}

TEST(runtime, chain_of_delays_of_no_time_lets_posts_and_io_in)
{
    struct spin s;
    spin_open(&s);
    vow_future *f = vow_delay(s.w.loop, 0);
    vow_future *last = vow_then(f, delay_without_end, NULL, &s);
    vow_future_unref(f);
    spin_run(&s, last);
}

/* The timer is due before the run begins, so that nothing but the hold is left
 * when it polls. */
TEST(runtime, run_until_ends_with_a_due_timer_in_spite_of_a_hold)
{
    struct world w;
    world_open_real(&w);
    vow_loop_hold(w.loop);
    vow_future *f = vow_delay(w.loop, 1);
    uint64_t due = vow_loop_now_ns(w.loop) + 2000000;
    while (vow_loop_now_ns(w.loop) < due)
        continue;
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), 0);
    vow_future_unref(f);
    vow_loop_release(w.loop);
    world_close(&w);
}

/* ---- closing while others work ------------------------------------------ */

static vow_next give_one(vow_job *job, void *arg)
{
    (void)job;
    (void)arg;
    return vow_ok(vow_int(1));
}

static vow_next tell(vow_job *job, void *arg)
{
    (void)job;
    sem_post(arg);
    return vow_ok(vow_nothing());
}

static void cancel_job(void *arg)
{
    vow_future **job = arg;
    (void)vow_cancel(*job, NULL);
}

/* The only thread tells when it has begun the second job: the result of the
 * first is in the inbox then, behind the post. */
TEST(runtime, post_in_the_close_may_cancel_a_job_whose_result_waits)
{
    struct world w;
    sem_t second;
    vow_future *job;
    CHECK_INT_EQ(sem_init(&second, 0, 0), 0);
    world_open_with(&w, VOW_LOOP_OPTS(.work_threads = 1));
    CHECK_INT_EQ(vow_loop_post(w.loop, cancel_job, &job), 0);
    job = vow_work(w.loop, give_one, NULL);
    vow_future *other = vow_work(w.loop, tell, &second);
    sem_take(&second);
    close_loop(&w);
    CHECK(vow_state_of(job) != VOW_PENDING);
    CHECK(vow_state_of(other) != VOW_PENDING);
    (void)vow_error_of(job);
    vow_future_unref(job);
    vow_future_unref(other);
    world_close_dirty(&w);
    sem_destroy(&second);
}

struct late {
    sem_t started;
    sem_t closed;
};

static vow_next fail_late(vow_job *job, void *arg)
{
    struct late *l = arg;
    sem_post(&l->started);
    sem_take(&l->closed);
    vow_error *e = vow_error_new(vow_job_loop(job), VOW_EIO, "late by %d", 1);
    CHECK_INT_EQ(vow_error_code(e), VOW_EIO);
    CHECK_STR_EQ(vow_error_message(e), "late by 1");
    return vow_fail(e);
}

static size_t live_blocks(struct test_alloc *ta)
{
    pthread_mutex_lock(&ta->lock);
    size_t n = ta->live_blocks;
    pthread_mutex_unlock(&ta->lock);
    return n;
}

/* The close waits a second for it, and gives up. */
TEST(runtime, job_that_outlives_the_close_may_still_make_errors)
{
    static struct late l;
    static struct world w; /* the job's thread frees into it at the end */
    CHECK_INT_EQ(sem_init(&l.started, 0, 0), 0);
    CHECK_INT_EQ(sem_init(&l.closed, 0, 0), 0);
    world_open(&w);
    vow_future *f = vow_work(w.loop, fail_late, &l);
    sem_take(&l.started);
    close_loop(&w);
    check_code(f, VOW_ECLOSED);
    CHECK(live_blocks(&w.alloc) > 0);
    sem_post(&l.closed);
    while (live_blocks(&w.alloc) > 0)
        sched_yield();
    world_close_dirty(&w);
}

/* ---- libuv's callbacks and the user's handles --------------------------- */

struct caller {
    vow_loop *loop;
    int rc_run;
    int rc_close;
    int calls;
    uint64_t seen_ns;
};

static void run_and_close(uv_timer_t *timer)
{
    struct caller *c = timer->data;
    c->calls++;
    c->rc_run = vow_loop_run(c->loop);
    c->rc_close = vow_loop_close(c->loop);
    uv_close((uv_handle_t *)timer, NULL);
}

TEST(runtime, run_and_close_inside_a_callback_of_libuv_are_busy)
{
    struct world w;
    uv_timer_t timer;
    world_open_real(&w);
    struct caller c = {.loop = w.loop};
    CHECK_INT_EQ(uv_timer_init(vow_loop_uv(w.loop), &timer), 0);
    timer.data = &c;
    CHECK_INT_EQ(uv_timer_start(&timer, run_and_close, 0, 0), 0);
    world_run(&w);
    CHECK_INT_EQ(c.calls, 1);
    CHECK_INT_EQ(c.rc_run, VOW_EBUSY);
    CHECK_INT_EQ(c.rc_close, VOW_EBUSY);
    world_close(&w);
}

static void ask_the_time(uv_timer_t *timer)
{
    struct caller *c = timer->data;
    uint64_t now_ns = vow_loop_now_ns(c->loop);
    CHECK(now_ns >= c->seen_ns);
    c->seen_ns = now_ns;
    if (++c->calls == 3)
        uv_close((uv_handle_t *)timer, NULL);
}

TEST(runtime, timer_of_the_user_may_ask_the_time_during_the_close)
{
    struct world w;
    uv_timer_t timer;
    world_open_real(&w);
    struct caller c = {.loop = w.loop, .seen_ns = vow_loop_now_ns(w.loop)};
    CHECK_INT_EQ(uv_timer_init(vow_loop_uv(w.loop), &timer), 0);
    timer.data = &c;
    CHECK_INT_EQ(uv_timer_start(&timer, ask_the_time, 1, 1), 0);
    world_close(&w);
    CHECK_INT_EQ(c.calls, 3);
}

static void never(uv_timer_t *timer)
{
    (void)timer;
    FAIL("a timer of an hour has run");
}

TEST(runtime, close_ends_though_handles_of_the_user_are_idle_and_not_closed)
{
    struct world w;
    uv_timer_t idle;
    uv_timer_t unreferenced;
    world_open_real(&w);
    uv_loop_t *uv = vow_loop_uv(w.loop);
    CHECK_INT_EQ(uv_timer_init(uv, &idle), 0);
    CHECK_INT_EQ(uv_timer_init(uv, &unreferenced), 0);
    CHECK_INT_EQ(uv_timer_start(&unreferenced, never, 3600000, 0), 0);
    uv_unref((uv_handle_t *)&unreferenced);
    world_close(&w);
}

TEST(runtime, second_close_on_a_loop_of_the_user_is_busy)
{
    struct test_alloc ta;
    uv_loop_t uv;
    vow_loop *loop;
    test_alloc_init(&ta);
    CHECK_INT_EQ(uv_loop_init(&uv), 0);
    const vow_loop_opts *opts = VOW_LOOP_OPTS(.alloc = test_alloc_hook(&ta));
    CHECK_INT_EQ(vow_loop_new_uv(&uv, opts, &loop), 0);
    CHECK_INT_EQ(vow_loop_close(loop), 0);
    CHECK_INT_EQ(vow_loop_close(loop), VOW_EBUSY);
    CHECK_INT_EQ(uv_run(&uv, UV_RUN_DEFAULT), 0);
    CHECK_INT_EQ(uv_loop_close(&uv), 0);
    test_alloc_fini(TEST_HERE, &ta);
}

/* ---- a loop that changes its thread ------------------------------------- */

static void in_another_thread(void *(*fn)(void *), void *arg)
{
    pthread_t thread;
    CHECK_INT_EQ(pthread_create(&thread, NULL, fn, arg), 0);
    CHECK_INT_EQ(pthread_join(thread, NULL), 0);
}

static void *settle_run_and_close(void *arg)
{
    struct world *w = arg;
    vow_deferred *d;
    vow_loop_adopt(w->loop);
    vow_future *f = vow_promise(w->loop, &d);
    vow_future *slow = vow_delay(w->loop, 5);
    CHECK(vow_resolve(d, vow_int(1)));
    world_run(w);
    CHECK_INT_EQ(vow_state_of(slow), VOW_FULFILLED);
    vow_deferred_unref(d);
    vow_future_unref(f);
    vow_future_unref(slow);
    world_close(w);
    return NULL;
}

TEST(runtime, loop_made_in_one_thread_runs_and_closes_in_another)
{
    struct world w;
    world_open(&w);
    in_another_thread(settle_run_and_close, &w);
}

static vow_next yield_once(void *arg)
{
    CHECK_INT_EQ(vow_yield(arg), 0);
    return vow_ok(vow_nothing());
}

static jmp_buf back;

/* AddressSanitizer cleans the stack at a jump, from here to where it believes
 * the stack to end; what it misses is found when that memory is used again. */
static __attribute__((noinline)) _Noreturn void jump(void)
{
    volatile char frame[1000];
    frame[999] = 1;
    longjmp(back, frame[999]);
}

static __attribute__((noinline)) void use_stack(void)
{
    volatile char frame[8000];
    for (size_t i = 0; i < sizeof(frame); i++)
        frame[i] = 1;
    CHECK_INT_EQ(frame[4000], 1);
}

static void *run_fibers(void *arg)
{
    struct world *w = arg;
    vow_loop_adopt(w->loop);
    for (int i = 0; i < 3; i++) {
        vow_future *f = vow_async(w->loop, yield_once, w->loop);
        CHECK_INT_EQ(vow_loop_run_until(w->loop, f), 0);
        vow_future_unref(f);
    }
    if (setjmp(back) == 0)
        jump();
    use_stack();
    return NULL;
}

TEST(runtime, fibers_of_a_loop_that_changes_its_thread_have_sound_stacks)
{
    struct world w;
    world_open(&w);
    (void)run_fibers(&w);
    in_another_thread(run_fibers, &w);
    (void)run_fibers(&w);
    world_close(&w);
}

/* ---- destructors -------------------------------------------------------- */

static void count_drop(void *ptr)
{
    ++*(int *)ptr;
}

/* The latest and 64 that it replaced. */
TEST(runtime, progress_with_destructors_is_refused_when_65_wait)
{
    enum { WAIT_MAX = 65 };
    struct world w;
    vow_remote *r;
    int drops = 0;
    world_open(&w);
    vow_future *f = vow_promise_remote(w.loop, &r);
    for (int i = 0; i < WAIT_MAX; i++)
        CHECK(vow_notify_any(r, vow_own(&drops, count_drop)));
    CHECK_INT_EQ(drops, 0);
    CHECK(!vow_notify_any(r, vow_own(&drops, count_drop)));
    CHECK_INT_EQ(drops, 1); /* here, and no other */
    world_turn(&w);
    CHECK_INT_EQ(drops, 1 + WAIT_MAX);
    CHECK(vow_notify_any(r, vow_own(&drops, count_drop)));
    CHECK(vow_resolve_any(r, vow_nothing()));
    vow_remote_unref(r);
    world_run(&w);
    CHECK_INT_EQ(drops, 2 + WAIT_MAX);
    vow_future_unref(f);
    world_close(&w);
}

struct waiter {
    struct world w;
    vow_future *owner; /* of a value whose destructor waits */
    vow_future *pending;
    int rc_await;
    int rc_sleep;
    int rc_yield;
};

static void wait_in_drop(void *ptr)
{
    struct waiter *x = ptr;
    x->rc_await = vow_await(x->pending);
    x->rc_sleep = vow_sleep(x->w.loop, 1);
    x->rc_yield = vow_yield(x->w.loop);
}

static vow_next drop_owner(void *arg)
{
    struct waiter *x = arg;
    vow_future_unref(x->owner);
    CHECK(vow_in_fiber(x->w.loop));
    return vow_ok(vow_int(vow_yield(x->w.loop)));
}

TEST(runtime, destructor_in_a_fiber_cannot_await)
{
    struct waiter x = {.rc_await = 0};
    world_open(&x.w);
    x.owner = vow_resolved(x.w.loop, vow_own(&x, wait_in_drop));
    x.pending = vow_race(x.w.loop, NULL, 0);
    vow_future *f = vow_async(x.w.loop, drop_owner, &x);
    CHECK_INT_EQ(vow_loop_run_until(x.w.loop, f), 0);
    CHECK_INT_EQ(x.rc_await, VOW_ENOFIBER);
    CHECK_INT_EQ(x.rc_sleep, VOW_ENOFIBER);
    CHECK_INT_EQ(x.rc_yield, VOW_ENOFIBER);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 0);
    vow_future_unref(f);
    vow_future_unref(x.pending);
    world_close_dirty(&x.w);
}

/* ---- a closed loop of which something is held --------------------------- */

static void never_posted(void *arg)
{
    (void)arg;
    FAIL("a post was run by a closed loop");
}

TEST(runtime, post_to_a_closed_loop_is_refused)
{
    struct world w;
    world_open(&w);
    vow_future *f = vow_resolved(w.loop, vow_int(1));
    close_loop(&w);
    vow_loop *loop = vow_future_loop(f);
    CHECK_INT_EQ(vow_loop_post(loop, never_posted, NULL), VOW_ECLOSED);
    vow_future_unref(f);
    world_close_dirty(&w);
}

static vow_next never_ok(vow_value v, void *user)
{
    (void)v;
    (void)user;
    FAIL("a step was run by a closed loop");
}

static vow_next never_finally(void *user)
{
    return never_ok(vow_nothing(), user);
}

static void never_progress(vow_value v, void *user)
{
    (void)never_ok(v, user);
}

TEST(runtime, nothing_is_attached_to_futures_of_a_closed_loop)
{
    struct world w;
    vow_scope *scope;
    int drops = 0;
    const vow_step steps[2] = {
        {.ok = never_ok, .user = &drops, .drop = count_drop},
        {.ok = never_ok, .user = &drops, .drop = count_drop}};
    world_open(&w);
    vow_future *f = vow_resolved(w.loop, vow_int(1));
    CHECK_INT_EQ(vow_scope_new(w.loop, NULL, &scope), 0);
    close_loop(&w);
    check_code(vow_then(f, never_ok, NULL, NULL), VOW_ECLOSED);
    check_code(vow_finally(f, never_finally, NULL), VOW_ECLOSED);
    check_code(vow_on_progress(f, never_progress, NULL), VOW_ECLOSED);
    check_code(vow_all(vow_future_loop(f), &f, 1), VOW_ECLOSED);
    check_code(vow_scope_add(scope, f), VOW_ECLOSED);
    check_code(vow_chain(f, steps, 2), VOW_ECLOSED);
    CHECK_INT_EQ(drops, 2);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 1);
    vow_scope_unref(scope);
    vow_future_unref(f);
    world_close_dirty(&w);
}
