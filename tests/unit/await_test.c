/* SPDX-License-Identifier: MIT */
/* await_test.c - what vow/fiber.h promises about waiting: what an await
 * returns, when it returns, what survives it, that it is refused outside a
 * fiber, and that yielding is fair. vow_sleep() is in turn_test.c.
 */
#include "harness.h"
#include "world.h"

#include "vow/combine.h"
#include "vow/fiber.h"

#include <string.h>

/* What a body under test waits for, and what came of it. */
struct probe {
    vow_loop *loop;
    vow_future *on;
    int rc;
    int64_t value;
    int ended;
};

static vow_next await_on(void *arg)
{
    struct probe *p = arg;
    p->rc = vow_await(p->on);
    p->value = vow_as_int(vow_get(p->on));
    p->ended++;
    return vow_ok(vow_nothing());
}

/* A fiber that has reached its await of a promise of ours. */
struct scene {
    struct world w;
    struct probe p;
    vow_deferred *d;
};

static void scene_open(struct scene *s, vow_fiber_fn body)
{
    memset(s, 0, sizeof(*s));
    world_open(&s->w);
    s->p.loop = s->w.loop;
    s->p.on = vow_promise(s->w.loop, &s->d);
    vow_future_unref(vow_async(s->w.loop, body, &s->p));
    world_run(&s->w);
}

static void scene_close(struct scene *s)
{
    if (vow_deferred_pending(s->d))
        CHECK(vow_resolve(s->d, vow_nothing()));
    world_run(&s->w);
    vow_deferred_unref(s->d);
    vow_future_unref(s->p.on);
    world_close(&s->w);
}

/* ---- what it returns ---------------------------------------------------- */

TEST(await, of_pending_returns_when_it_is_resolved)
{
    struct scene s;
    scene_open(&s, await_on);
    CHECK_INT_EQ(s.p.ended, 0);
    s.p.rc = 1;
    CHECK(vow_resolve(s.d, vow_int(5)));
    CHECK_INT_EQ(s.p.ended, 0); /* never inside the call that settles */
    world_run(&s.w);
    CHECK_INT_EQ(s.p.ended, 1);
    CHECK_INT_EQ(s.p.rc, 0);
    CHECK_INT_EQ(s.p.value, 5);
    scene_close(&s);
}

TEST(await, of_rejected_later_returns_its_code_and_handles_it)
{
    struct scene s;
    scene_open(&s, await_on);
    CHECK(vow_reject(s.d, vow_error_new(s.w.loop, VOW_EIO, "broken pipe")));
    world_run(&s.w);
    CHECK_INT_EQ(s.p.rc, VOW_EIO);
    CHECK_STR_EQ(vow_error_message(vow_error_of(s.p.on)), "broken pipe");
    scene_close(&s);
}

TEST(await, counts_as_handling_the_rejection)
{
    struct world w;
    struct probe p = {0};
    vow_loop_stats stats;
    world_open(&w);
    p.on = vow_rejected(w.loop, vow_error_new(w.loop, VOW_EIO, "x"));
    vow_future_unref(vow_async(w.loop, await_on, &p));
    world_run(&w);
    CHECK_INT_EQ(p.rc, VOW_EIO);
    vow_future_unref(p.on);
    vow_loop_stats_get(w.loop, &stats);
    CHECK_UINT_EQ(stats.unhandled, 0);
    world_close(&w);
}

TEST(await, of_broken_promise_returns_ebroken)
{
    struct scene s;
    scene_open(&s, await_on);
    s.d = vow_deferred_unref(s.d);
    world_run(&s.w);
    CHECK_INT_EQ(s.p.rc, VOW_EBROKEN);
    vow_future_unref(s.p.on);
    world_close(&s.w);
}

static int ticks;

static vow_next tick(vow_value value, void *user)
{
    (void)value;
    (void)user;
    ticks++;
    return vow_ok(vow_nothing());
}

/* Something is ready while it awaits what is settled: it must not run. */
static vow_next await_settled(void *arg)
{
    struct probe *p = arg;
    vow_future *ready = vow_resolved(p->loop, vow_int(3));
    vow_future_unref(vow_then(ready, tick, NULL, NULL));
    p->rc = vow_await(ready);
    p->value = vow_as_int(vow_get(ready));
    CHECK_INT_EQ(ticks, 0);
    vow_future *bad = vow_rejected(
        p->loop, vow_error_new(p->loop, VOW_ETIMEDOUT, "too late"));
    CHECK_INT_EQ(vow_await(bad), VOW_ETIMEDOUT);
    CHECK_INT_EQ(ticks, 0);
    vow_future_unref(ready);
    vow_future_unref(bad);
    p->ended++;
    return vow_ok(vow_nothing());
}

TEST(await, of_settled_returns_at_once)
{
    struct scene s;
    scene_open(&s, await_settled);
    CHECK_INT_EQ(s.p.ended, 1);
    CHECK_INT_EQ(s.p.rc, 0);
    CHECK_INT_EQ(s.p.value, 3);
    CHECK_INT_EQ(ticks, 1);
    scene_close(&s);
}

static vow_next await_delays_and_drop(void *arg)
{
    struct probe *p = arg;
    p->rc = vow_await_drop(vow_delay(p->loop, 7));
    CHECK_INT_EQ(vow_await_drop(vow_resolved(p->loop, vow_int(1))), 0);
    CHECK_INT_EQ(vow_await_drop(vow_rejected(
                     p->loop, vow_error_new(p->loop, VOW_EIO, "x"))),
                 VOW_EIO);
    p->ended++;
    return vow_ok(vow_nothing());
}

TEST(await, drop_waits_and_gives_the_reference_back)
{
    struct scene s;
    vow_loop_stats stats;
    scene_open(&s, await_delays_and_drop);
    CHECK_INT_EQ(s.p.rc, 0);
    CHECK_INT_EQ(s.p.ended, 1);
    CHECK_UINT_EQ(vow_loop_now_ns(s.w.loop), 7 * 1000000);
    vow_loop_stats_get(s.w.loop, &stats);
    CHECK_UINT_EQ(stats.futures, 1); /* the scene's own promise */
    CHECK_UINT_EQ(stats.unhandled, 0);
    scene_close(&s);
}

TEST(await, of_one_future_resumes_fifty_fibers_and_a_handler)
{
    enum { N = 50 };
    struct scene s;
    struct probe p[N] = {{0}};
    scene_open(&s, await_on);
    for (int i = 0; i < N; i++) {
        p[i].on = s.p.on;
        vow_future_unref(vow_async(s.w.loop, await_on, &p[i]));
    }
    world_run(&s.w);
    vow_future_unref(vow_then(s.p.on, tick, NULL, NULL));
    CHECK(vow_resolve(s.d, vow_int(77)));
    world_run(&s.w);
    for (int i = 0; i < N; i++) {
        CHECK_INT_EQ(p[i].ended, 1);
        CHECK_INT_EQ(p[i].value, 77);
    }
    CHECK_INT_EQ(ticks, 1);
    scene_close(&s);
}

static int order[16];
static int order_n;

static void note(int what)
{
    CHECK(order_n < 16);
    order[order_n++] = what;
}

struct numbered {
    vow_loop *loop;
    vow_future *on;
    int number;
};

static vow_next note_after_await(void *arg)
{
    struct numbered *n = arg;
    CHECK_INT_EQ(vow_await(n->on), 0);
    note(n->number);
    return vow_ok(vow_nothing());
}

static vow_next note_in_handler(vow_value value, void *user)
{
    (void)value;
    note((int)(intptr_t)user);
    return vow_ok(vow_nothing());
}

TEST(await, stands_in_one_line_with_handlers_in_attachment_order)
{
    struct world w;
    vow_deferred *d;
    world_open(&w);
    vow_future *f = vow_promise(w.loop, &d);
    struct numbered a = {w.loop, f, 1};
    struct numbered b = {w.loop, f, 3};
    vow_future_unref(vow_async(w.loop, note_after_await, &a));
    world_run(&w);
    vow_future_unref(vow_then(f, note_in_handler, NULL, (void *)2));
    vow_future_unref(vow_async(w.loop, note_after_await, &b));
    world_run(&w);
    CHECK(vow_resolve(d, vow_nothing()));
    world_run(&w);
    CHECK_INT_EQ(order_n, 3);
    for (int i = 0; i < 3; i++)
        CHECK_INT_EQ(order[i], i + 1);
    vow_deferred_unref(d);
    vow_future_unref(f);
    world_close(&w);
}

static vow_next await_all_of_three(void *arg)
{
    struct probe *p = arg;
    vow_future *f[3];
    for (uint64_t i = 0; i < 3; i++)
        f[i] = vow_delay(p->loop, 10 * (i + 1));
    vow_future *all = vow_all(p->loop, f, 3);
    for (int i = 0; i < 3; i++)
        vow_future_unref(f[i]);
    p->rc = vow_await(all);
    p->value = (int64_t)vow_list_size(vow_get(all));
    vow_future_unref(all);
    p->ended++;
    return vow_ok(vow_nothing());
}

TEST(await, works_on_what_a_combinator_returns)
{
    struct scene s;
    scene_open(&s, await_all_of_three);
    CHECK_INT_EQ(s.p.rc, 0);
    CHECK_INT_EQ(s.p.value, 3);
    CHECK_UINT_EQ(vow_loop_now_ns(s.w.loop), 30 * 1000000);
    scene_close(&s);
}

/* ---- what survives it --------------------------------------------------- */

static vow_next keep_locals(void *arg)
{
    struct probe *p = arg;
    uint64_t state = 1;
    unsigned char block[4096];
    double real[8];
    for (size_t i = 0; i < sizeof(block); i++)
        block[i] = (unsigned char)test_random(&state);
    for (int i = 0; i < 8; i++)
        real[i] = 1.5 * i;
    for (int round = 0; round < 100; round++) {
        CHECK_INT_EQ(vow_await_drop(vow_delay(p->loop, 1)), 0);
        state = 1;
        for (size_t i = 0; i < sizeof(block); i++)
            CHECK(block[i] == (unsigned char)test_random(&state));
        for (int i = 0; i < 8; i++)
            CHECK(real[i] == 1.5 * i);
        p->value++;
    }
    p->ended++;
    return vow_ok(vow_nothing());
}

TEST(await, keeps_the_locals_of_fibers_that_take_turns)
{
    struct scene s;
    struct probe q = {0};
    scene_open(&s, await_on);
    q.loop = s.w.loop;
    for (int i = 0; i < 5; i++)
        vow_future_unref(vow_async(s.w.loop, keep_locals, &q));
    world_run(&s.w);
    CHECK_INT_EQ(q.ended, 5);
    CHECK_INT_EQ(q.value, 500);
    scene_close(&s);
}

/* Many values live across one await: the compiler keeps some in the registers
 * that a callee must preserve. */
static vow_next keep_registers(void *arg)
{
    struct probe *p = arg;
    volatile uint64_t source = 0x0101010101010101u;
    uint64_t a = source * 1, b = source * 2, c = source * 3, d = source * 4;
    uint64_t e = source * 5, f = source * 6, g = source * 7, h = source * 8;
    for (int round = 0; round < 1000; round++) {
        CHECK_INT_EQ(vow_yield(p->loop), 0);
        a += 1, b += 2, c += 3, d += 4, e += 5, f += 6, g += 7, h += 8;
    }
    CHECK_UINT_EQ(a, source * 1 + 1000);
    CHECK_UINT_EQ(b, source * 2 + 2000);
    CHECK_UINT_EQ(c, source * 3 + 3000);
    CHECK_UINT_EQ(d, source * 4 + 4000);
    CHECK_UINT_EQ(e, source * 5 + 5000);
    CHECK_UINT_EQ(f, source * 6 + 6000);
    CHECK_UINT_EQ(g, source * 7 + 7000);
    CHECK_UINT_EQ(h, source * 8 + 8000);
    p->ended++;
    return vow_ok(vow_nothing());
}

TEST(await, keeps_the_registers_of_fibers_that_take_turns)
{
    struct scene s;
    struct probe q = {0};
    scene_open(&s, await_on);
    q.loop = s.w.loop;
    for (int i = 0; i < 3; i++)
        vow_future_unref(vow_async(s.w.loop, keep_registers, &q));
    world_run(&s.w);
    CHECK_INT_EQ(q.ended, 3);
    scene_close(&s);
}

static int64_t third_level(vow_loop *loop, int64_t x)
{
    CHECK_INT_EQ(vow_await_drop(vow_delay(loop, 3)), 0);
    return x + 1;
}

static int64_t second_level(vow_loop *loop, int64_t x)
{
    int64_t before = third_level(loop, x);
    CHECK_INT_EQ(vow_await_drop(vow_delay(loop, 2)), 0);
    return before * 10 + third_level(loop, x);
}

static vow_next first_level(void *arg)
{
    struct probe *p = arg;
    p->value = second_level(p->loop, 4);
    p->rc = vow_await_drop(vow_delay(p->loop, 1));
    p->ended++;
    return vow_ok(vow_nothing());
}

TEST(await, works_three_ordinary_calls_deep)
{
    struct scene s;
    scene_open(&s, first_level);
    CHECK_INT_EQ(s.p.ended, 1);
    CHECK_INT_EQ(s.p.value, 55);
    CHECK_UINT_EQ(vow_loop_now_ns(s.w.loop), 9 * 1000000);
    scene_close(&s);
}

/* The rounding mode, read and set without libm. Mode 0 is "to nearest" and 3
 * is "toward zero" on both machines. */
#if defined(__x86_64__)
static unsigned rounding(void)
{
    return (__builtin_ia32_stmxcsr() >> 13) & 3u;
}

static void set_rounding(unsigned mode)
{
    unsigned csr = __builtin_ia32_stmxcsr() & ~(3u << 13);
    __builtin_ia32_ldmxcsr(csr | mode << 13);
}
#elif defined(__aarch64__)
static unsigned rounding(void)
{
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return (unsigned)(fpcr >> 22) & 3u;
}

static void set_rounding(unsigned mode)
{
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    fpcr = (fpcr & ~((uint64_t)3 << 22)) | (uint64_t)mode << 22;
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr));
}
#endif

#if defined(__x86_64__) || defined(__aarch64__)
/* 1/10 rounds up to nearest, so toward zero it is smaller than 0.1. */
static bool tenth_is_cut(void)
{
    volatile double one = 1.0;
    volatile double ten = 10.0;
    return one / ten < 0.1;
}

static vow_next round_toward_zero(void *arg)
{
    struct probe *p = arg;
    set_rounding(3);
    for (int i = 0; i < 10; i++) {
        CHECK_INT_EQ(vow_yield(p->loop), 0);
        CHECK_UINT_EQ(rounding(), 3);
        CHECK(tenth_is_cut());
    }
    p->ended++;
    set_rounding(0);
    return vow_ok(vow_nothing());
}

static vow_next round_to_nearest(void *arg)
{
    struct probe *p = arg;
    set_rounding(0);
    for (int i = 0; i < 10; i++) {
        CHECK_INT_EQ(vow_yield(p->loop), 0);
        CHECK_UINT_EQ(rounding(), 0);
        CHECK(!tenth_is_cut());
    }
    p->ended++;
    return vow_ok(vow_nothing());
}

TEST(await, keeps_the_rounding_mode_of_each_fiber)
{
    struct scene s;
    struct probe q = {0};
    scene_open(&s, await_on);
    q.loop = s.w.loop;
    vow_future_unref(vow_async(s.w.loop, round_toward_zero, &q));
    vow_future_unref(vow_async(s.w.loop, round_to_nearest, &q));
    world_run(&s.w);
    CHECK_INT_EQ(q.ended, 2);
    CHECK_UINT_EQ(rounding(), 0); /* the loop's own stack was not touched */
    CHECK(!tenth_is_cut());
    scene_close(&s);
}
#endif

static vow_next await_again_and_again(void *arg)
{
    struct probe *p = arg;
    for (int i = 0; i < 100000; i++) {
        vow_deferred *d;
        vow_future *f = vow_promise(p->loop, &d);
        CHECK(vow_resolve(d, vow_int(i)));
        CHECK_INT_EQ(vow_await(f), 0);
        CHECK_INT_EQ(vow_as_int(vow_get(f)), i);
        CHECK_INT_EQ(vow_yield(p->loop), 0);
        vow_deferred_unref(d);
        vow_future_unref(f);
    }
    p->ended++;
    return vow_ok(vow_nothing());
}

TEST(await, a_hundred_thousand_times_in_one_fiber)
{
    struct scene s;
    scene_open(&s, await_again_and_again);
    CHECK_INT_EQ(s.p.ended, 1);
    scene_close(&s);
}

/* ---- outside a fiber ---------------------------------------------------- */

TEST(await, outside_a_fiber_is_refused_at_once)
{
    struct scene s;
    scene_open(&s, await_on);
    CHECK_INT_EQ(vow_await(s.p.on), VOW_ENOFIBER);
    CHECK_INT_EQ(vow_sleep(s.w.loop, 5), VOW_ENOFIBER);
    CHECK_INT_EQ(vow_yield(s.w.loop), VOW_ENOFIBER);
    CHECK_INT_EQ(vow_state_of(s.p.on), VOW_PENDING);
    CHECK_UINT_EQ(vow_loop_now_ns(s.w.loop), 0);
    scene_close(&s);
}

TEST(await, of_settled_outside_a_fiber_is_refused_too)
{
    struct world w;
    world_open(&w);
    vow_future *f = vow_resolved(w.loop, vow_int(1));
    CHECK_INT_EQ(vow_await(f), VOW_ENOFIBER);
    vow_future_unref(f);
    world_close(&w);
}

TEST(await, drop_outside_a_fiber_still_drops)
{
    struct world w;
    vow_deferred *d;
    world_open(&w);
    vow_future *f = vow_promise(w.loop, &d);
    CHECK_INT_EQ(vow_await_drop(f), VOW_ENOFIBER);
    CHECK(vow_resolve(d, vow_nothing()));
    vow_deferred_unref(d);
    world_close(&w); /* fails if the future is still alive */
}

static vow_next await_in_handler(vow_value value, void *user)
{
    struct probe *p = user;
    (void)value;
    p->rc = vow_await(p->on);
    CHECK_INT_EQ(vow_yield(p->loop), VOW_ENOFIBER);
    return vow_ok(vow_nothing());
}

/* A fiber is waiting meanwhile: the handler must not be taken for it. */
TEST(await, in_a_handler_is_refused_while_a_fiber_waits)
{
    struct scene s;
    struct probe q = {0};
    scene_open(&s, await_on);
    q.loop = s.w.loop;
    q.on = s.p.on;
    vow_future *ready = vow_resolved(s.w.loop, vow_nothing());
    vow_future_unref(vow_then(ready, await_in_handler, NULL, &q));
    vow_future_unref(ready);
    world_run(&s.w);
    CHECK_INT_EQ(q.rc, VOW_ENOFIBER);
    CHECK_INT_EQ(s.p.ended, 0);
    scene_close(&s);
}

static void await_in_post(void *arg)
{
    struct probe *p = arg;
    p->rc = vow_await(p->on);
}

TEST(await, in_a_posted_function_is_refused)
{
    struct scene s;
    struct probe q = {0};
    scene_open(&s, await_on);
    q.loop = s.w.loop;
    q.on = s.p.on;
    CHECK_INT_EQ(vow_loop_post(s.w.loop, await_in_post, &q), 0);
    world_run(&s.w);
    CHECK_INT_EQ(q.rc, VOW_ENOFIBER);
    scene_close(&s);
}
