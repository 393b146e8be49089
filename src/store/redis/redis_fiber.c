/* SPDX-License-Identifier: MIT */
/* redis_fiber.c - steps of several requests, as fibers.
 *
 * WHY   A list and an examination send request after request. As a fiber, such
 *       a step is a function from the first line to the last.
 * HOW   A request is counted when the request begins and when the answer has
 *       been read, by a function on the stack of the loop: answers are
 *       borrowed. The fiber sleeps until few enough requests are under way.
 *       The answer of the step comes from the loop's queue, not from the stack
 *       of the fiber. A close of the store ends all requests, and so the fiber,
 *       and waits for the answer of the step.
 * INVARIANTS
 *   F1  a step ends once, when the fiber and all requests have ended: a fiber
 *       without memory to sleep ends at once
 * THREADS  loop thread only.
 */
#include "store/redis/redis_internal.h"
#include "vow/fiber.h"

static vow_next fiber_run_step(void *arg);
static void fiber_end_soon(struct vow__redis_fiber *f);
static void on_fiber_over(void *user);

void vow__redis_fiber_start(struct vow__redis_fiber *f, struct vow__redis *r,
                            int (*run)(struct vow__redis_fiber *f),
                            void (*end)(struct vow__redis_fiber *f, int code))
{
    *f = (struct vow__redis_fiber){.r = r, .run = run, .end = end};
    int rc = vow__redis_hold(r);
    if (rc < 0) {
        end(f, rc);
        return;
    }
    VOW_AUTO(vow_future)
    fiber = vow_async(vow__redis_loop(r), fiber_run_step, f);
    if (vow_state_of(fiber) == VOW_REJECTED) {
        end(f, vow_error_code(vow_error_of(fiber)));
        vow__redis_drop(r);
    }
}

static vow_next fiber_run_step(void *arg)
{
    struct vow__redis_fiber *f = arg;
    f->code = f->run(f);
    f->over = true;
    fiber_end_soon(f);
    return vow_ok(vow_nothing());
}

/* Keeps F1. */
static void fiber_end_soon(struct vow__redis_fiber *f)
{
    if (f->over && f->requests == 0)
        vow_call_soon(&f->last, vow__redis_loop(f->r), on_fiber_over, f);
}

static void on_fiber_over(void *user)
{
    struct vow__redis_fiber *f = user;
    struct vow__redis *r = f->r;
    f->end(f, f->code);
    vow__redis_drop(r);
}

void vow__redis_fiber_begin(struct vow__redis_fiber *f)
{
    f->requests++;
}

void vow__redis_fiber_answered(struct vow__redis_fiber *f, int code)
{
    vow_deferred *wake = f->wake;
    VOW__ASSERT(f->requests > 0);
    f->requests--;
    if (f->code == 0)
        f->code = code;
    if (wake != NULL && f->requests <= f->most) {
        f->wake = NULL;
        (void)vow_resolve_drop(wake, vow_nothing());
    }
    fiber_end_soon(f);
}

int vow__redis_fiber_wait(struct vow__redis_fiber *f, size_t most)
{
    int rc = 0;
    f->most = most;
    while (rc == 0 && f->requests > most) {
        VOW_AUTO(vow_future)
        woken = vow_promise(vow__redis_loop(f->r), &f->wake);
        rc = vow_await(woken);
        vow_deferred_unref(f->wake); /* without memory, or the loop closes */
        f->wake = NULL;
    }
    if (f->code == 0)
        f->code = rc;
    return f->code;
}
