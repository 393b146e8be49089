/* SPDX-License-Identifier: MIT */
/* core_fiber.c - the raw switch, await, yield, start and finish of a fiber, and
 * the memory of one that waits.
 */
#include "core.h"
#include "core/switch.h"

/* ---- the raw switch ----------------------------------------------------- */

enum { SWITCH_STACK = 65536 };

static struct vow__core_context main_context, side_context;

static void switch_back(void *arg)
{
    (void)arg;
    for (;;)
        vow__core_switch(&side_context, &main_context);
}

/* One way, registers and stack only: no queue, no promise. Compared with
 * Boost's jump_fcontext, which does just this. */
void bench_switch(void)
{
    void *stack = aligned_alloc(4096, SWITCH_STACK);
    MUST(stack != NULL);
    vow__core_context_here(&main_context);
    vow__core_context_make(&side_context, stack, SWITCH_STACK, switch_back,
                           NULL);
    vow__core_switch(&main_context, &side_context);
    double begin = now_ns();
    for (long i = 0; i < SWITCHES; i++)
        vow__core_switch(&main_context, &side_context);
    row("switch", "vow", (now_ns() - begin) / (2.0 * SWITCHES), "ns");
    vow__core_context_end(&side_context);
    free(stack);
}

/* ---- await -------------------------------------------------------------- */

struct player {
    vow_loop *loop;
    struct player *other;
    vow_deferred *end; /* settles the promise this player waits for */
};

static void wake(struct player *p)
{
    vow_deferred *end = p->end;
    if (end == NULL)
        return;
    p->end = NULL;
    vow_resolve(end, vow_int(1));
    vow_deferred_unref(end);
}

/* Each round: make a promise, settle the other's, wait for mine. */
static vow_next play(void *arg)
{
    struct player *p = arg;
    int64_t sum = 0;
    for (long i = 0; i < TURNS; i++) {
        vow_future *f = vow_promise(p->loop, &p->end);
        wake(p->other);
        MUST(vow_await(f) == 0);
        sum += vow_as_int(vow_get(f));
        vow_future_unref(f);
    }
    wake(p->other);
    MUST(sum == TURNS);
    return vow_ok(vow_nothing());
}

/* Two fibers wake each other in turn. One await is: create, resolve from the
 * other fiber, through the loop's queue, a switch out and a switch in, free.
 * Compared with one send and receive between two goroutines, and with a task
 * switch of tokio. */
void bench_await(void)
{
    vow_loop *loop = open_loop();
    struct player a = {.loop = loop}, b = {.loop = loop, .other = &a};
    a.other = &b;
    double begin = now_ns();
    vow_future *first = vow_async(loop, play, &a);
    vow_future *second = vow_async(loop, play, &b);
    MUST(vow_loop_run_until(loop, first) == 0);
    MUST(vow_loop_run_until(loop, second) == 0);
    row("await", "vow", (now_ns() - begin) / (2.0 * TURNS), "ns");
    vow_future_unref(first);
    vow_future_unref(second);
    MUST(vow_loop_close(loop) == 0);
}

static vow_next give_way(void *arg)
{
    vow_loop *loop = arg;
    for (long i = 0; i < YIELDS; i++)
        MUST(vow_yield(loop) == 0);
    return vow_ok(vow_nothing());
}

/* Two fibers give way to each other: the queue without a promise. */
void bench_yield(void)
{
    vow_loop *loop = open_loop();
    double begin = now_ns();
    vow_future *first = vow_async(loop, give_way, loop);
    vow_future *second = vow_async(loop, give_way, loop);
    MUST(vow_loop_run_until(loop, first) == 0);
    MUST(vow_loop_run_until(loop, second) == 0);
    row("yield", "vow", (now_ns() - begin) / (2.0 * YIELDS), "ns");
    vow_future_unref(first);
    vow_future_unref(second);
    MUST(vow_loop_close(loop) == 0);
}

/* ---- start and finish --------------------------------------------------- */

static vow_next one(void *arg)
{
    (void)arg;
    return vow_ok(vow_int(1));
}

static vow_next start_many(void *arg)
{
    vow_loop *loop = arg;
    int64_t sum = 0;
    for (long i = 0; i < SPAWNS; i++) {
        vow_future *f = vow_async(loop, one, NULL);
        MUST(vow_await(f) == 0);
        sum += vow_as_int(vow_get(f));
        vow_future_unref(f);
    }
    return vow_ok(vow_int(sum));
}

/* A fiber starts another and waits for its result, one at a time. */
void bench_spawn(void)
{
    vow_loop *loop = open_loop();
    double begin = now_ns();
    vow_future *f = vow_async(loop, start_many, loop);
    MUST(vow_loop_run_until(loop, f) == 0);
    row("spawn", "vow", (now_ns() - begin) / SPAWNS, "ns");
    MUST(vow_as_int(vow_get(f)) == SPAWNS);
    vow_future_unref(f);
    MUST(vow_loop_close(loop) == 0);
}

/* ---- memory ------------------------------------------------------------- */

struct crowd {
    vow_future *gate;
    long waiting, done;
};

static vow_next wait_at_gate(void *arg)
{
    struct crowd *c = arg;
    c->waiting++;
    MUST(vow_await(c->gate) == 0);
    c->done++;
    return vow_ok(vow_nothing());
}

/* Resident memory of a fiber that waits, default stack size, and the kernel's
 * page tables for its stack, which no process's resident memory shows. */
void bench_fiber_bytes(void)
{
    vow_loop *loop = open_loop();
    struct crowd c = {0};
    vow_deferred *end;
    c.gate = vow_promise(loop, &end);
    double rss = status_bytes("VmRSS:"), tables = status_bytes("VmPTE:");
    for (long i = 0; i < WAITERS; i++) {
        vow_future *f = vow_async(loop, wait_at_gate, &c);
        vow_future_unref(f);
    }
    while (c.waiting < WAITERS)
        MUST(vow_loop_turn(loop) == 0);
    row("fiber-bytes", "vow", (status_bytes("VmRSS:") - rss) / WAITERS,
        "bytes");
    row("fiber-tables", "vow", (status_bytes("VmPTE:") - tables) / WAITERS,
        "bytes");
    vow_resolve(end, vow_nothing());
    vow_deferred_unref(end);
    MUST(vow_loop_run(loop) == 0);
    MUST(c.done == WAITERS);
    vow_future_unref(c.gate);
    MUST(vow_loop_close(loop) == 0);
}
