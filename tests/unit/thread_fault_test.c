/* SPDX-License-Identifier: MIT */
/* thread_fault_test.c - fibers, jobs, remote ends and posts when memory
 * runs out: each allocation fails once, then each with all behind it. Lack of
 * memory arrives as VOW_ENOMEM where the headers say so, nothing is lost, and
 * what the headers call free of allocation works without any.
 */
#include "fault.h"
#include "harness.h"
#include "world.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static void run_thread(void *(*fn)(void *), void *arg)
{
    pthread_t thread;
    CHECK_INT_EQ(pthread_create(&thread, NULL, fn, arg), 0);
    CHECK_INT_EQ(pthread_join(thread, NULL), 0);
}

/* From now on there is no memory. */
static void starve(struct world *w)
{
    w->alloc.fail_at = w->alloc.allocs + 1;
    w->alloc.fail_forever = true;
}

static void feed(struct world *w)
{
    w->alloc.fail_at = 0;
    w->alloc.fail_forever = false;
}

/* Runs until `f` settles, drops it, and accepts only what a fault explains. */
static int finish(struct world *w, vow_future *f)
{
    CHECK(f != NULL);
    int rc = vow_loop_run_until(w->loop, f);
    vow_future_unref(f);
    CHECK(rc == 0 || fault_explains(w, rc));
    return rc;
}

/* ---- fibers ------------------------------------------------------------- */

struct probe {
    vow_loop *loop;
    int started;
    int ended;
};

static vow_next only_sleep(void *arg)
{
    struct probe *p = arg;
    p->started++;
    CHECK_INT_EQ(vow_sleep(p->loop, 5), 0);
    CHECK_INT_EQ(vow_yield(p->loop), 0);
    p->ended++;
    return vow_ok(vow_int(1));
}

FAULT_SWEEP(fiber, start_survives_every_fault, FAULT_ALLOC)
{
    struct probe p = {.loop = w->loop};
    int rc = finish(w, vow_async(w->loop, only_sleep, &p));
    CHECK_INT_EQ(p.started, rc == 0); /* else the body never ran */
    CHECK_INT_EQ(p.ended, rc == 0);
}

FAULT_SWEEP(fiber, start_with_options_survives_every_fault, FAULT_ALLOC)
{
    struct probe p = {.loop = w->loop};
    int rc = finish(w, vow_async_with(w->loop, only_sleep, &p,
                                      VOW_ASYNC_OPTS(.stack_size = 65536)));
    CHECK_INT_EQ(p.ended, rc == 0);
}

static vow_next await_delay(void *arg)
{
    struct probe *p = arg;
    p->started++;
    int rc = vow_await_drop(vow_delay(p->loop, 3));
    p->ended++;
    return rc == 0 ? vow_ok(vow_int(1)) : vow_fail_code(rc, NULL);
}

/* A fiber that starts two and awaits both. */
static vow_next await_children(void *arg)
{
    struct probe *p = arg;
    p->started++;
    vow_future *a = vow_async(p->loop, await_delay, p);
    vow_future *b = vow_async(p->loop, await_delay, p);
    int rc = vow_await(a);
    int other = vow_await(b);
    vow_future_unref(a);
    vow_future_unref(b);
    p->ended++;
    rc = rc != 0 ? rc : other;
    return rc == 0 ? vow_ok(vow_int(1)) : vow_fail_code(rc, NULL);
}

FAULT_SWEEP(fiber, fibers_of_fibers_survive_every_fault, FAULT_ALLOC)
{
    struct probe p = {.loop = w->loop};
    int rc = finish(w, vow_async(w->loop, await_children, &p));
    CHECK_INT_EQ(p.started, p.ended);
    CHECK(rc != 0 || p.ended == 3);
}

static vow_next follow_delay(void *arg)
{
    struct probe *p = arg;
    return vow_follow(vow_delay(p->loop, 3));
}

static vow_next fail_with_error(void *arg)
{
    struct probe *p = arg;
    return vow_fail(vow_error_new(p->loop, VOW_EIO, "out %d", 1));
}

FAULT_SWEEP(fiber, results_survive_every_fault, FAULT_ALLOC)
{
    struct probe p = {.loop = w->loop};
    finish(w, vow_async(w->loop, follow_delay, &p));
    vow_future *f = vow_async(w->loop, fail_with_error, &p);
    int rc = vow_loop_run_until(w->loop, f);
    CHECK(rc == VOW_EIO || fault_explains(w, rc));
    vow_future_unref(f);
}

FAULT_SWEEP(fiber, cancel_survives_every_fault, FAULT_ALLOC)
{
    struct probe p = {.loop = w->loop};
    vow_future *f = vow_async(w->loop, await_delay, &p);
    bool alive = vow_state_of(f) == VOW_PENDING;
    CHECK(alive || fault_explains(w, vow_error_code(vow_error_of(f))));
    CHECK(vow_cancel(f, NULL) == alive);
    int rc = vow_loop_run_until(w->loop, f);
    CHECK(rc == VOW_ECANCELED || fault_explains(w, rc));
    CHECK_INT_EQ(p.started, p.ended);
    vow_future_unref(f);
}

struct hungry {
    struct world *w;
    vow_future *gate;
    int failed;
    int ended;
};

static vow_next wait_without_memory(void *arg)
{
    struct hungry *h = arg;
    h->failed += vow_await(h->gate) != 0;
    h->failed += vow_sleep(h->w->loop, 5) != 0;
    h->failed += vow_yield(h->w->loop) != 0;
    h->failed += vow_await(h->gate) != 0;
    h->ended++;
    return vow_ok(vow_int(1));
}

/* A hundred sleep at once, so that no table of timers may grow either. */
TEST(fiber, await_sleep_and_yield_need_no_memory)
{
    enum { N = 100 };
    struct world w;
    struct hungry h = {0};
    vow_deferred *d;
    world_open_with(&w, VOW_LOOP_OPTS(.flags = VOW_LOOP_UNPOOLED));
    h.w = &w;
    h.gate = vow_promise(w.loop, &d);
    for (int i = 0; i < N; i++)
        vow_future_unref(vow_async(w.loop, wait_without_memory, &h));
    world_run(&w);
    starve(&w);
    CHECK(vow_resolve(d, vow_nothing()));
    world_run(&w);
    feed(&w);
    CHECK_INT_EQ(h.ended, N);
    CHECK_INT_EQ(h.failed, 0);
    vow_deferred_unref(d);
    vow_future_unref(h.gate);
    world_close(&w);
}

static vow_next count_allocs_of_sleep(void *arg)
{
    struct hungry *h = arg;
    uint64_t before = h->w->alloc.allocs;
    for (uint64_t ms = 0; ms < 50; ms++)
        h->failed += vow_sleep(h->w->loop, ms) != 0;
    CHECK_UINT_EQ(h->w->alloc.allocs, before);
    h->ended++;
    return vow_ok(vow_nothing());
}

TEST(fiber, sleep_asks_for_no_memory)
{
    struct world w;
    struct hungry h = {.w = &w};
    world_open_with(&w, VOW_LOOP_OPTS(.flags = VOW_LOOP_UNPOOLED));
    vow_future_unref(vow_async(w.loop, count_allocs_of_sleep, &h));
    world_run(&w);
    CHECK_INT_EQ(h.ended, 1);
    CHECK_INT_EQ(h.failed, 0);
    world_close(&w);
}

/* ---- jobs --------------------------------------------------------------- */

static vow_next job_value(vow_job *job, void *arg)
{
    struct probe *p = arg;
    (void)job;
    p->started++;
    return vow_ok(vow_int(42));
}

FAULT_SWEEP(work, value_survives_every_fault, FAULT_ALLOC)
{
    struct probe p = {0};
    vow_future *f = vow_work(w->loop, job_value, &p);
    int rc = vow_loop_run_until(w->loop, f);
    CHECK(rc == 0 || fault_explains(w, rc));
    CHECK(rc != 0 || p.started == 1);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), rc == 0 ? 42 : 0);
    vow_future_unref(f);
}

static vow_next job_error(vow_job *job, void *arg)
{
    (void)arg;
    return vow_fail(vow_error_new(vow_job_loop(job), VOW_EIO, "bad %d", 3));
}

FAULT_SWEEP(work, error_survives_every_fault, FAULT_ALLOC)
{
    vow_future *f = vow_work(w->loop, job_error, NULL);
    int rc = vow_loop_run_until(w->loop, f);
    CHECK(rc == VOW_EIO || fault_explains(w, rc));
    vow_future_unref(f);
}

static vow_next job_bytes(vow_job *job, void *arg)
{
    vow_bytes *b = NULL;
    (void)arg;
    int rc = vow_bytes_new(vow_job_loop(job), "xyz", 3, &b);
    if (rc < 0)
        return vow_fail_code(rc, NULL);
    return vow_ok(vow_bytes_value(b));
}

FAULT_SWEEP(work, bytes_survive_every_fault, FAULT_ALLOC)
{
    finish(w, vow_work(w->loop, job_bytes, NULL));
}

static atomic_int made;
static atomic_int dropped;

static void note_drop(void *ptr)
{
    atomic_fetch_add(&dropped, 1);
    free(ptr);
}

static vow_value owned(void)
{
    atomic_fetch_add(&made, 1);
    return vow_own(malloc(8), note_drop);
}

static vow_next job_progress(vow_job *job, void *arg)
{
    (void)arg;
    for (int i = 0; i < 5; i++)
        vow_job_notify(job, owned());
    return vow_ok(owned());
}

static void ignore_progress(vow_value progress, void *user)
{
    (void)progress;
    (void)user;
}

FAULT_SWEEP(work, progress_and_owned_values_survive_every_fault, FAULT_ALLOC)
{
    vow_future *f = vow_work(w->loop, job_progress, NULL);
    vow_future_unref(vow_on_progress(f, ignore_progress, NULL));
    finish(w, f);
    CHECK_INT_EQ(vow_loop_run(w->loop), 0);
    CHECK_INT_EQ(atomic_load(&dropped), atomic_load(&made));
}

FAULT_SWEEP(work, several_jobs_survive_every_fault, FAULT_ALLOC)
{
    enum { N = 8 };
    struct probe p[N] = {{0}};
    vow_future *f[N];
    for (int i = 0; i < N; i++)
        f[i] = vow_work(w->loop, job_value, &p[i]);
    CHECK_INT_EQ(vow_loop_run(w->loop), 0);
    for (int i = 0; i < N; i++) {
        int rc = vow_error_code(vow_error_of(f[i]));
        CHECK(rc == 0 || fault_explains(w, rc));
        CHECK(vow_state_of(f[i]) != VOW_PENDING);
        vow_future_unref(f[i]);
    }
}

/* ---- remote ends -------------------------------------------------------- */

struct errand {
    vow_remote *r;
    bool settled;
};

static void *resolve_it(void *arg)
{
    struct errand *e = arg;
    vow_notify_any(e->r, owned());
    e->settled = vow_resolve_any(e->r, owned());
    vow_remote_unref(e->r);
    return NULL;
}

/* Once it was made, it settles: only the making can meet the fault. */
FAULT_SWEEP(remote, resolve_survives_every_fault, FAULT_ALLOC)
{
    struct errand e = {0};
    vow_future *f = vow_promise_remote(w->loop, &e.r);
    bool was_made = e.r != NULL;
    run_thread(resolve_it, &e);
    CHECK(e.settled == was_made);
    int rc = vow_loop_run_until(w->loop, f);
    CHECK((rc == 0) == was_made);
    CHECK(rc == 0 || fault_explains(w, rc));
    CHECK_INT_EQ(vow_loop_run(w->loop), 0);
    vow_future_unref(f);
    CHECK_INT_EQ(atomic_load(&dropped), atomic_load(&made));
}

static void *reject_it(void *arg)
{
    struct errand *e = arg;
    vow_loop *loop = vow_remote_loop(e->r);
    if (loop != NULL)
        e->settled =
            vow_reject_any(e->r, vow_error_new(loop, VOW_EIO, "far %d", 2));
    vow_remote_unref(e->r);
    return NULL;
}

FAULT_SWEEP(remote, reject_survives_every_fault, FAULT_ALLOC)
{
    struct errand e = {0};
    vow_future *f = vow_promise_remote(w->loop, &e.r);
    run_thread(reject_it, &e);
    int rc = vow_loop_run_until(w->loop, f);
    CHECK(rc == VOW_EIO || fault_explains(w, rc));
    CHECK_INT_EQ(vow_loop_run(w->loop), 0);
    vow_future_unref(f);
}

static void *drop_it(void *arg)
{
    vow_remote_unref(arg);
    return NULL;
}

FAULT_SWEEP(remote, drop_and_cancel_survive_every_fault, FAULT_ALLOC)
{
    vow_remote *r;
    vow_remote *s;
    vow_future *f = vow_promise_remote(w->loop, &r);
    vow_future *g = vow_promise_remote(w->loop, &s);
    vow_cancel(g, NULL);
    CHECK_INT_EQ(s == NULL || vow_remote_canceled(s), 1);
    run_thread(drop_it, r);
    run_thread(drop_it, s);
    int rc = vow_loop_run_until(w->loop, f);
    CHECK(rc == VOW_EBROKEN || fault_explains(w, rc));
    rc = vow_loop_run_until(w->loop, g);
    CHECK(rc == VOW_ECANCELED || fault_explains(w, rc));
    CHECK_INT_EQ(vow_loop_run(w->loop), 0);
    vow_future_unref(f);
    vow_future_unref(g);
}

/* ---- posts -------------------------------------------------------------- */

struct sender {
    vow_loop *loop;
    int accepted;
    int ran;
    int rc;
};

static void count_run(void *arg)
{
    struct sender *s = arg;
    s->ran++;
}

static void *post_ten(void *arg)
{
    struct sender *s = arg;
    for (int i = 0; i < 10; i++) {
        int rc = vow_loop_post(s->loop, count_run, s);
        s->accepted += rc == 0;
        s->rc = rc != 0 ? rc : s->rc;
    }
    return NULL;
}

FAULT_SWEEP(post, from_the_loops_thread_survives_every_fault, FAULT_ALLOC)
{
    struct sender s = {.loop = w->loop};
    post_ten(&s);
    CHECK_INT_EQ(vow_loop_run(w->loop), 0);
    CHECK_INT_EQ(s.ran, s.accepted);
    CHECK(s.accepted == 10 || fault_explains(w, s.rc));
}

FAULT_SWEEP(post, from_a_thread_survives_every_fault, FAULT_ALLOC)
{
    struct sender s = {.loop = w->loop};
    run_thread(post_ten, &s);
    CHECK_INT_EQ(vow_loop_run(w->loop), 0);
    CHECK_INT_EQ(s.ran, s.accepted);
    CHECK(s.accepted == 10 || fault_explains(w, s.rc));
}

/* ---- closing without memory --------------------------------------------- */

static vow_next await_arg(void *arg)
{
    CHECK(vow_await(arg) < 0);
    return vow_ok(vow_nothing());
}

static vow_next run_until_asked(vow_job *job, void *arg)
{
    sem_post(arg);
    while (!vow_job_canceled(job))
        sched_yield();
    return vow_ok(vow_nothing());
}

static vow_next count_value(vow_value value, void *user)
{
    (void)value;
    ++*(int *)user;
    return vow_ok(vow_nothing());
}

static vow_next count_error(vow_error *error, void *user)
{
    (void)error;
    ++*(int *)user;
    return vow_ok(vow_nothing());
}

/* Fibers, jobs, remote ends, timers and messages are all alive when memory
 * ends; the close must come to its end, and every handler must be told. */
TEST(loop, closes_without_memory_with_everything_alive)
{
    struct world w;
    struct sender s = {0};
    sem_t started;
    vow_remote *r;
    vow_deferred *d;
    int told = 0;
    CHECK_INT_EQ(sem_init(&started, 0, 0), 0);
    world_open_with(&w, VOW_LOOP_OPTS(.flags = WORLD_REAL_TIME));
    vow_future *p = vow_promise(w.loop, &d);
    vow_future *f[4] = {vow_async(w.loop, await_arg, p),
                        vow_work(w.loop, run_until_asked, &started),
                        vow_promise_remote(w.loop, &r),
                        vow_delay(w.loop, 3600 * 1000)};
    for (int i = 0; i < 4; i++)
        vow_future_unref(vow_then(f[i], count_value, count_error, &told));
    world_turn(&w);
    CHECK_INT_EQ(sem_wait(&started), 0);
    s.loop = w.loop;
    post_ten(&s);
    starve(&w);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    feed(&w);
    CHECK_INT_EQ(told, 4);
    CHECK_INT_EQ(s.ran, s.accepted);
    for (int i = 0; i < 4; i++)
        vow_future_unref(f[i]);
    vow_future_unref(p);
    vow_deferred_unref(d);
    vow_remote_unref(r);
    world_close_dirty(&w);
}
