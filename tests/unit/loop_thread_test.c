/* SPDX-License-Identifier: MIT */
/* loop_thread_test.c - a call from a thread that does not run the
 * loop is stopped by an assertion in debug builds, whether the loop runs or
 * not. */
#include "trap.h"
#include "world.h"

#include "vow/batch.h"
#include "vow/breaker.h"
#include "vow/gate_stats.h"
#include "vow/hedge.h"
#include "vow/map.h"
#include "vow/retry.h"
#include "vow/uv.h"

#include <pthread.h>

/* Everything that a thread could call wrongly. */
struct stranger {
    struct world w;
    vow_loop *loop;
    vow_deferred *d;
    vow_future *f; /* of `d`, pending */
    vow_gate *g;
    vow_sem *s;
    vow_scope *scope;
    vow_hook hook;
    vow_batch *batch;
    vow_breaker *breaker;
    vow_mapping *map;
    vow_future *mapped;
    vow_range range;
    vow_call call;
    void (*fn)(struct stranger *s);
};

static vow_future *start_no_work(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    (void)arg;
    return vow_resolved(loop, vow_nothing());
}

static vow_future *item_pending(vow_loop *loop, vow_value item, size_t index,
                                void *user)
{
    (void)loop;
    (void)item;
    (void)index;
    return vow_future_ref(((struct stranger *)user)->f);
}

static vow_future *call_nothing(vow_loop *loop, vow_batch_call *call,
                                void *user)
{
    (void)call;
    (void)user;
    return vow_resolved(loop, vow_nothing());
}

static vow_next pass_value(vow_value v, void *user)
{
    (void)v;
    (void)user;
    return vow_pass();
}

static vow_next end_fiber(void *arg)
{
    (void)arg;
    return vow_ok(vow_nothing());
}

static void hear_cancel(vow_error *why, void *user)
{
    (void)why;
    (void)user;
}

static void call_back(void *user)
{
    (void)user;
}

static void stranger_open(struct stranger *s, bool real)
{
    *s = (struct stranger){.loop = NULL};
    world_open_with(&s->w, VOW_LOOP_OPTS(.flags = real ? WORLD_REAL_TIME : 0));
    s->loop = s->w.loop;
    s->f = vow_promise(s->loop, &s->d);
    CHECK_INT_EQ(vow_gate_new(s->loop, NULL, &s->g), 0);
    CHECK_INT_EQ(vow_sem_new(s->loop, NULL, &s->s), 0);
    CHECK_INT_EQ(vow_scope_new(s->loop, NULL, &s->scope), 0);
    CHECK_INT_EQ(vow_batch_new(s->loop, call_nothing, NULL, NULL, &s->batch),
                 0);
    CHECK_INT_EQ(vow_breaker_new(s->loop, NULL, &s->breaker), 0);
    s->mapped =
        vow_map(s->loop, vow_source_range(&s->range, 0, 9), item_pending, s,
                VOW_MAP(.concurrent = 1, .discard = true, .ret_map = &s->map));
    world_turn(&s->w);
}

static void *stranger_main(void *arg)
{
    struct stranger *s = arg;
    s->fn(s);
    return NULL;
}

static void call_on(struct stranger *s, void *(*entry)(void *))
{
    pthread_t t;
    CHECK_INT_EQ(pthread_create(&t, NULL, entry, s), 0);
    CHECK_INT_EQ(pthread_join(t, NULL), 0);
}

#ifndef NDEBUG

/* If the call was not stopped, the test ends well, and so fails. */
static void stranger_close(struct stranger *s)
{
    s->w.loop = NULL;
    (void)vow_loop_close(s->loop);
    _exit(0);
}

static void *stranger_posts(void *arg)
{
    struct stranger *s = arg;
    s->fn(s);
    _exit(0);
    return NULL;
}

/* While nothing runs. */
static void call_while_idle(void (*fn)(struct stranger *s))
{
    struct stranger s;
    stranger_open(&s, false);
    s.fn = fn;
    call_on(&s, stranger_main);
    stranger_close(&s);
}

static void start_stranger(void *arg)
{
    pthread_t t;
    CHECK_INT_EQ(pthread_create(&t, NULL, stranger_posts, arg), 0);
    (void)pthread_detach(t);
}

/* While the loop's thread waits inside vow_loop_run(). */
static void call_while_running(void (*fn)(struct stranger *s))
{
    struct stranger s;
    stranger_open(&s, true);
    s.fn = fn;
    vow_loop_hold(s.loop);
    vow_call_soon(&s.call, s.loop, start_stranger, &s);
    (void)vow_loop_run(s.loop);
    stranger_close(&s);
}

#define STRANGER(n, ...)                                                       \
    static void stranger_##n(struct stranger *s)                               \
    {                                                                          \
        __VA_ARGS__;                                                           \
    }                                                                          \
    TEST_TRAPS(loop_thread, n##_is_stopped_on_an_idle_loop)                    \
    {                                                                          \
        call_while_idle(stranger_##n);                                         \
    }                                                                          \
    TEST_TRAPS(loop_thread, n##_is_stopped_on_a_running_loop)                  \
    {                                                                          \
        call_while_running(stranger_##n);                                      \
    }

#else

#define STRANGER(n, ...)                                                       \
    __attribute__((unused)) static void stranger_##n(struct stranger *s)       \
    {                                                                          \
        __VA_ARGS__;                                                           \
    }

#endif

/* ---- promises ------------------------------------------------------------ */

STRANGER(promise, vow_deferred *d; vow_future_unref(vow_promise(s->loop, &d)))
STRANGER(resolve, vow_resolve(s->d, vow_nothing()))
STRANGER(reject, vow_reject_code(s->d, VOW_EIO, NULL))
STRANGER(resolve_with, vow_resolve_with(s->d, s->f))
STRANGER(resolve_drop, vow_resolve_drop(s->d, vow_nothing()))
STRANGER(notify, vow_notify(s->d, vow_int(1)))
STRANGER(on_cancel, vow_on_cancel(s->d, hear_cancel, NULL))
STRANGER(then, vow_future_unref(vow_then(s->f, pass_value, NULL, NULL)))
STRANGER(done, (void)vow_done(vow_future_ref(s->f), pass_value, NULL, NULL))
STRANGER(cancel, vow_cancel(s->f, NULL))
STRANGER(all, vow_future_unref(vow_all(s->loop, &s->f, 1)))
STRANGER(timeout, vow_future_unref(vow_timeout(s->f, 10)))
STRANGER(delay, vow_future_unref(vow_delay(s->loop, 10)))
STRANGER(async, vow_future_unref(vow_async(s->loop, end_fiber, NULL)))
STRANGER(call_soon, vow_call_soon(&s->call, s->loop, call_back, NULL))

/* ---- gate ---------------------------------------------------------------- */

STRANGER(gate_new, vow_gate *g;
         CHECK_INT_EQ(vow_gate_new(s->loop, NULL, &g), 0))
STRANGER(gate_run,
         vow_future_unref(vow_gate_run(s->g, start_no_work, NULL, NULL)))
STRANGER(gate_enter, vow_future_unref(vow_gate_enter(s->g, NULL)))
STRANGER(gate_try, vow_permit p; CHECK(vow_gate_try(s->g, NULL, &p)))
STRANGER(gate_set, (void)vow_gate_set(s->g, VOW_GATE(.concurrent = 3)))
STRANGER(gate_pause, vow_gate_pause(s->g))
STRANGER(gate_resume, vow_gate_resume(s->g))
STRANGER(gate_report, vow_gate_report(s->g, NULL, 10))
STRANGER(gate_clear, vow_gate_clear(s->g, NULL))
STRANGER(gate_close, vow_gate_close(s->g))
STRANGER(gate_idle, vow_future_unref(vow_gate_idle(s->g)))
STRANGER(gate_room, vow_future_unref(vow_gate_room(s->g, 1)))

/* ---- semaphore ----------------------------------------------------------- */

STRANGER(sem_new, vow_sem *x; CHECK_INT_EQ(vow_sem_new(s->loop, NULL, &x), 0))
STRANGER(sem_acquire, vow_future_unref(vow_sem_acquire(s->s, 1)))
STRANGER(sem_try, vow_permit p; CHECK(vow_sem_try(s->s, 1, &p)))
STRANGER(sem_with, vow_future_unref(vow_sem_with(s->s, 1, start_no_work, NULL)))
STRANGER(sem_wait, vow_future_unref(vow_sem_wait(s->s)))
STRANGER(sem_resize, (void)vow_sem_resize(s->s, 3))
STRANGER(sem_close, vow_sem_close(s->s))

/* ---- map ----------------------------------------------------------------- */

STRANGER(map, vow_range r;
         vow_future_unref(vow_map(s->loop, vow_source_range(&r, 0, 1),
                                  item_pending, s, VOW_MAP(.concurrent = 1))))
STRANGER(map_resize, (void)vow_map_resize(s->map, 3))

/* ---- scope --------------------------------------------------------------- */

STRANGER(scope_new, vow_scope *x;
         CHECK_INT_EQ(vow_scope_new(s->loop, NULL, &x), 0))
STRANGER(scope_add, vow_future_unref(vow_scope_add(s->scope, s->f)))
STRANGER(scope_cancel, vow_scope_cancel(s->scope, NULL))
STRANGER(scope_wait, vow_future_unref(vow_scope_wait(s->scope)))
STRANGER(hook_add,
         CHECK_INT_EQ(vow_hook_add(&s->hook, s->scope, hear_cancel, NULL), 0))

/* ---- and what stands on them --------------------------------------------- */

STRANGER(batch_add, vow_future_unref(vow_batch_add(s->batch, vow_int(1), 0)))
STRANGER(breaker_run,
         vow_future_unref(vow_breaker_run(s->breaker, start_no_work, NULL)))
STRANGER(hedge, vow_future_unref(vow_hedge(s->loop, start_no_work, NULL, NULL)))
STRANGER(retry, vow_future_unref(vow_retry(s->loop, start_no_work, NULL, NULL)))

#ifndef NDEBUG

/* A job on the thread pool is such a thread. */
static vow_next resolve_in_job(vow_job *job, void *arg)
{
    struct stranger *s = arg;
    (void)job;
    (void)vow_resolve(s->d, vow_nothing());
    return vow_ok(vow_nothing());
}

TEST_TRAPS(loop_thread, a_job_that_resolves_is_stopped)
{
    struct stranger s;
    stranger_open(&s, false);
    vow_future *f = vow_work(s.loop, resolve_in_job, &s);
    (void)vow_loop_run_until(s.loop, f);
    stranger_close(&s);
}

static void turn_strange_loop(struct stranger *s)
{
    (void)vow_loop_turn(s->loop);
}

/* The thread that ran it last is the loop's: the one that made it is not. */
TEST_TRAPS(loop_thread, one_that_ran_before_another_is_stopped)
{
    struct stranger s;
    stranger_open(&s, false);
    s.fn = turn_strange_loop;
    call_on(&s, stranger_main);
    (void)vow_resolve(s.d, vow_nothing());
    stranger_close(&s);
}

#endif

/* ---- what is allowed ----------------------------------------------------- */

static void use_and_run(struct stranger *s)
{
    vow_loop_adopt(s->loop);
    CHECK(vow_loop_on_thread(s->loop));
    vow_future *f = vow_gate_run(s->g, start_no_work, NULL, NULL);
    vow_future *h = vow_sem_with(s->s, 1, start_no_work, NULL);
    CHECK(vow_resolve(s->d, vow_nothing()));
    CHECK_INT_EQ(vow_loop_run(s->loop), 0);
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    CHECK_INT_EQ(vow_state_of(h), VOW_FULFILLED);
    vow_future_unref(f);
    vow_future_unref(h);
    vow_deferred_unref(s->d);
    vow_future_unref(s->f);
    vow_gate_unref(s->g);
    vow_sem_unref(s->s);
    vow_scope_unref(s->scope);
    vow_batch_unref(s->batch);
    vow_breaker_unref(s->breaker);
    vow_mapping_unref(s->map);
    vow_future_unref(s->mapped);
    CHECK_INT_EQ(vow_loop_run(s->loop), 0);
}

/* One thread makes the loop, another runs it, the first closes it. */
TEST(loop_thread, a_loop_goes_to_the_thread_that_runs_it)
{
    struct stranger s;
    stranger_open(&s, false);
    s.fn = use_and_run;
    call_on(&s, stranger_main);
    CHECK(!vow_loop_on_thread(s.loop));
    world_close(&s.w);
}

/* Of a loop of the user's, uv_run() is enough: our callbacks adopt it. */
struct own_uv {
    uv_loop_t uv;
    vow_loop *loop;
    vow_call soon, later;
    int calls;
};

static void resolve_one(void *user)
{
    struct own_uv *o = user;
    vow_deferred *d;
    vow_future *f = vow_promise(o->loop, &d);
    CHECK(vow_resolve_drop(d, vow_nothing()));
    vow_future_unref(f);
    CHECK(vow_loop_on_thread(o->loop));
    o->calls++;
}

static void *run_uv(void *arg)
{
    struct own_uv *o = arg;
    CHECK(!vow_loop_on_thread(o->loop));
    CHECK_INT_EQ(uv_run(&o->uv, UV_RUN_DEFAULT), 0);
    CHECK(vow_loop_on_thread(o->loop));
    return NULL;
}

TEST(loop_thread, a_loop_of_the_user_goes_to_the_thread_of_uv_run)
{
    struct own_uv o = {.calls = 0};
    pthread_t t;
    CHECK_INT_EQ(uv_loop_init(&o.uv), 0);
    CHECK_INT_EQ(vow_loop_new_uv(&o.uv, NULL, &o.loop), 0);
    vow_call_at(&o.later, o.loop, vow_loop_due_ns(o.loop, 5), resolve_one, &o);
    CHECK_INT_EQ(vow_loop_post(o.loop, resolve_one, &o), 0);
    vow_call_soon(&o.soon, o.loop, resolve_one, &o);
    CHECK_INT_EQ(pthread_create(&t, NULL, run_uv, &o), 0);
    CHECK_INT_EQ(pthread_join(t, NULL), 0);
    CHECK_INT_EQ(o.calls, 3);
    CHECK(!vow_loop_on_thread(o.loop));
    CHECK_INT_EQ(vow_loop_close(o.loop), 0); /* here it is ours again */
    CHECK_INT_EQ(uv_run(&o.uv, UV_RUN_DEFAULT), 0);
    CHECK_INT_EQ(uv_loop_close(&o.uv), 0);
}

static void post_nothing(void *arg)
{
    (void)arg;
}

static void use_from_anywhere(struct stranger *s)
{
    vow_bytes *b;
    CHECK_INT_EQ(vow_loop_post(s->loop, post_nothing, NULL), 0);
    CHECK_INT_EQ(vow_bytes_new(s->loop, "x", 1, &b), 0);
    vow_bytes_unref(b);
    vow_error_unref(vow_error_new(s->loop, VOW_EIO, "from another thread"));
    CHECK_PTR_EQ(vow_future_loop(s->f), s->loop);
    CHECK(vow_loop_alloc(s->loop) != NULL);
    (void)vow_loop_flags(s->loop);
}

/* What is for any thread is not stopped. */
TEST(loop_thread, what_is_for_any_thread_goes_on)
{
    struct stranger s;
    stranger_open(&s, false);
    s.fn = use_from_anywhere;
    call_on(&s, stranger_main);
    s.fn = use_and_run;
    s.fn(&s);
    world_close(&s.w);
}
