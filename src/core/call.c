/* SPDX-License-Identifier: MIT */
/* call.c - functions the loop calls soon, or at a time, in the caller's memory.
 *
 * HOW   Soon: a watch in the ready queue. At a time: a timer of the loop. One
 *       block is used for the one or the other, never for both.
 * THREADS  loop thread only.
 */
#include "vow/call.h"
#include "core/promise_internal.h"

enum place { NOWHERE = 0, IN_QUEUE, IN_TIMERS };

struct call {
    union {
        struct vow__watch watch;
        struct vow__timer timer;
    } u;
    vow_call_fn fn;
    void *user;
    vow_loop *loop;
    enum place place;
};
_Static_assert(sizeof(struct call) <= sizeof(vow_call),
               "vow_call is too small");

static struct call *begin(vow_call *c, vow_loop *loop, vow_call_fn fn,
                          void *user, enum place place);
static void at(vow_call *call, vow_loop *loop, uint64_t due_ns, vow_call_fn fn,
               void *user, bool weak);
static void run(struct vow__watch *w);
static void fire(vow_loop *loop, struct vow__timer *t);
static void finish(struct call *c);

void vow_call_soon(vow_call *call, vow_loop *loop, vow_call_fn fn, void *user)
{
    struct call *c = begin(call, loop, fn, user, IN_QUEUE);
    c->u.watch = (struct vow__watch){.node.kind = VOW__WATCH, .run = run};
    vow__enqueue(loop, &c->u.watch.node.link);
}

void vow_call_at(vow_call *call, vow_loop *loop, uint64_t due_ns,
                 vow_call_fn fn, void *user)
{
    at(call, loop, due_ns, fn, user, false);
}

void vow_call_weakly_at(vow_call *call, vow_loop *loop, uint64_t due_ns,
                        vow_call_fn fn, void *user)
{
    at(call, loop, due_ns, fn, user, true);
}

/* A time that is over is now: else one that starts itself again would stay
 * before all others. */
static void at(vow_call *call, vow_loop *loop, uint64_t due_ns, vow_call_fn fn,
               void *user, bool weak)
{
    struct call *c = begin(call, loop, fn, user, IN_TIMERS);
    uint64_t now = vow__clock_now_ns(&loop->clock);
    c->u.timer = (struct vow__timer){.fire = fire, .weak = weak};
    vow__timer_start(loop, &c->u.timer, due_ns > now ? due_ns : now);
}

bool vow_call_stop(vow_call *call)
{
    struct call *c = (struct call *)(void *)call;
    if (c->place == NOWHERE)
        return false;
    if (c->place == IN_QUEUE)
        vow__list_remove(&c->loop->ready, &c->u.watch.node.link);
    else
        vow__timer_stop(c->loop, &c->u.timer);
    c->place = NOWHERE;
    return true;
}

bool vow_call_pending(const vow_call *call)
{
    return ((const struct call *)(const void *)call)->place != NOWHERE;
}

static struct call *begin(vow_call *call, vow_loop *loop, vow_call_fn fn,
                          void *user, enum place place)
{
    struct call *c = (struct call *)(void *)call;
    (void)vow_call_stop(call);
    c->fn = fn;
    c->user = user;
    c->loop = loop;
    c->place = place;
    return c;
}

static void run(struct vow__watch *w)
{
    finish(VOW__OUTER(w, struct call, u.watch));
}

static void fire(vow_loop *loop, struct vow__timer *t)
{
    (void)loop;
    finish(VOW__OUTER(t, struct call, u.timer));
}

/* The block may be gone when fn returns. */
static void finish(struct call *c)
{
    c->place = NOWHERE;
    c->fn(c->user);
}
