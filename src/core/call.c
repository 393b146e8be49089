/* SPDX-License-Identifier: MIT */
/* call.c - functions that the loop calls soon or at a time, without allocation.
 *
 * HOW   A vow_call lies in the caller's memory. Soon: a watch in the ready
 *       queue. At a time: a timer of the loop, and then the ready queue. The
 *       vow_call holds either the watch or the timer.
 * THREADS  loop thread only.
 */
#include "vow/call.h"
#include "core/promise_internal.h"

enum place { NOWHERE = 0, IN_QUEUE, IN_TIMERS };

struct call_state {
    union {
        struct vow__core_watch watch;
        struct vow__core_timer timer;
    } u;
    vow_call_fn fn;
    void *user;
    vow_loop *loop;
    enum place place;
};
_Static_assert(sizeof(struct call_state) <= sizeof(vow_call),
               "vow_call is too small");

static struct call_state *call_prepare(vow_call *c, vow_loop *loop,
                                       vow_call_fn fn, void *user,
                                       enum place place);
static void call_start_at(vow_call *call, vow_loop *loop, uint64_t due_ns,
                          vow_call_fn fn, void *user, bool weak);
static void call_enqueue(vow_loop *loop, struct call_state *c);
static void call_fire(vow_loop *loop, struct vow__core_timer *t);
static void call_run(struct vow__core_watch *w);

void vow_call_soon(vow_call *call, vow_loop *loop, vow_call_fn fn, void *user)
{
    VOW__ASSERT_THREAD(loop);
    call_enqueue(loop, call_prepare(call, loop, fn, user, IN_QUEUE));
}

void vow_call_at(vow_call *call, vow_loop *loop, uint64_t due_ns,
                 vow_call_fn fn, void *user)
{
    VOW__ASSERT_THREAD(loop);
    call_start_at(call, loop, due_ns, fn, user, false);
}

void vow_call_weakly_at(vow_call *call, vow_loop *loop, uint64_t due_ns,
                        vow_call_fn fn, void *user)
{
    VOW__ASSERT_THREAD(loop);
    call_start_at(call, loop, due_ns, fn, user, true);
}

static void call_start_at(vow_call *call, vow_loop *loop, uint64_t due_ns,
                          vow_call_fn fn, void *user, bool weak)
{
    struct call_state *c = call_prepare(call, loop, fn, user, IN_TIMERS);
    c->u.timer = (struct vow__core_timer){.fire = call_fire, .weak = weak};
    vow__core_timer_start(loop, &c->u.timer, due_ns);
}

bool vow_call_stop(vow_call *call)
{
    struct call_state *c = (struct call_state *)(void *)call;
    if (c->place == NOWHERE)
        return false;
    if (c->place == IN_QUEUE)
        vow__list_remove(&c->loop->ready, &c->u.watch.node.link);
    else
        vow__core_timer_stop(c->loop, &c->u.timer);
    c->place = NOWHERE;
    return true;
}

bool vow_call_pending(const vow_call *call)
{
    return ((const struct call_state *)(const void *)call)->place != NOWHERE;
}

static struct call_state *call_prepare(vow_call *call, vow_loop *loop,
                                       vow_call_fn fn, void *user,
                                       enum place place)
{
    struct call_state *c = (struct call_state *)(void *)call;
    (void)vow_call_stop(call);
    c->fn = fn;
    c->user = user;
    c->loop = loop;
    c->place = place;
    return c;
}

static void call_enqueue(vow_loop *loop, struct call_state *c)
{
    c->place = IN_QUEUE;
    c->u.watch =
        (struct vow__core_watch){.node.kind = VOW__WATCH, .run = call_run};
    vow__core_loop_enqueue(loop, &c->u.watch.node.link);
}

static void call_fire(vow_loop *loop, struct vow__core_timer *t)
{
    call_enqueue(loop, VOW__OUTER(t, struct call_state, u.timer));
}

/* Runs fn, which may free the vow_call. */
static void call_run(struct vow__core_watch *w)
{
    struct call_state *c = VOW__OUTER(w, struct call_state, u.watch);
    c->place = NOWHERE;
    c->fn(c->user);
}
