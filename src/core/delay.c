/* SPDX-License-Identifier: MIT */
/* delay.c - futures of time: delay and timeout.
 *
 * HOW   A delay is a timer with the deferred of a promise. A timeout is a watch
 *       on the source and a timer; the first of the two settles the result and
 *       stops the other. Canceling a delay or a timeout stops the timer. If an
 *       expired timeout canceled the source, the timeout has ended when the
 *       source has ended.
 * THREADS  loop thread only.
 */
#include "core/promise_internal.h"

struct delay {
    struct vow__core_timer timer;
    vow_future *out; /* the result; the delay holds the deferred */
};

struct timeout {
    struct vow__core_watch watch;
    struct vow__core_timer timer;
    vow_loop *loop;
    uint64_t ms; /* for the message */
};

static void delay_fire(vow_loop *loop, struct vow__core_timer *t);
static void delay_cancel(vow_error *why, void *user);
static void delay_free(vow_loop *loop, struct delay *d);
static vow_future *timeout_new(const char *site, vow_future *f, uint64_t due_ns,
                               uint64_t ms);
static void timeout_run(struct vow__core_watch *w);
static void timeout_fire(vow_loop *loop, struct vow__core_timer *timer);
static void timeout_cancel(vow_error *why, void *user);
static void timeout_reject(struct timeout *t, vow_future *source, vow_error *e,
                           vow_error *why);
static void timeout_free(struct timeout *t);

vow_future *vow_delay_at(const char *site, vow_loop *loop, uint64_t ms)
{
    VOW__ASSERT_THREAD(loop);
    if (loop->closing)
        return vow_refused_at(site, loop, VOW_ECLOSED, NULL);
    struct delay *d = vow__mem_zero(&loop->alloc, sizeof(*d));
    if (d == NULL)
        return vow__core_future_no_memory(loop);
    d->out = vow__core_promise_new(loop, site, delay_cancel, d);
    if (d->out == NULL) {
        vow__mem_free(&loop->alloc, d, sizeof(*d));
        return vow__core_future_no_memory(loop);
    }
    d->timer.fire = delay_fire;
    vow__core_timer_start(loop, &d->timer, vow__clock_due_ns(&loop->clock, ms));
    return d->out;
}

vow_future *vow_timeout_at(const char *site, vow_future *f, uint64_t ms)
{
    VOW__ASSERT_THREAD(vow__core_future_loop(f));
    const struct vow__clock *clock = &vow__core_future_loop(f)->clock;
    return timeout_new(site, f, vow__clock_due_ns(clock, ms), ms);
}

vow_future *vow_deadline_at(const char *site, vow_future *f, uint64_t due_ns)
{
    VOW__ASSERT_THREAD(vow__core_future_loop(f));
    uint64_t now = vow__clock_now_ns(&vow__core_future_loop(f)->clock);
    uint64_t left = due_ns > now ? due_ns - now : 0;
    return timeout_new(site, f, due_ns, left / VOW__NS_PER_MS);
}

static vow_future *timeout_new(const char *site, vow_future *f, uint64_t due_ns,
                               uint64_t ms)
{
    vow_loop *loop = vow__core_future_loop(f);
    if (loop->closing)
        return vow_refused_at(site, loop, VOW_ECLOSED, NULL);
    struct timeout *t = vow__mem_zero(&loop->alloc, sizeof(*t));
    if (t == NULL)
        return vow__core_future_no_memory(loop);
    vow_future *out =
        vow__core_promise_new(loop, site, timeout_cancel, &t->watch);
    if (out == NULL) {
        vow__mem_free(&loop->alloc, t, sizeof(*t));
        return vow__core_future_no_memory(loop);
    }
    out->node.relayed = 1;
    t->loop = loop;
    t->ms = ms;
    t->watch.node.kind = VOW__WATCH;
    t->watch.run = timeout_run;
    t->watch.out = out;
    t->timer.fire = timeout_fire;
    vow__core_timer_start(loop, &t->timer, due_ns);
    vow__core_node_wait(loop, &t->watch.node, f);
    return out;
}

static void delay_fire(vow_loop *loop, struct vow__core_timer *t)
{
    struct delay *d = VOW__OUTER(t, struct delay, timer);
    vow__core_future_fulfil(loop, d->out, vow_nothing());
    delay_free(loop, d);
}

static void delay_cancel(vow_error *why, void *user)
{
    struct delay *d = user;
    vow_loop *loop = vow__core_future_loop(d->out);
    vow__core_future_reject(loop, d->out, vow_error_ref(why));
    delay_free(loop, d);
}

static void delay_free(vow_loop *loop, struct delay *d)
{
    vow_future *out = d->out;
    vow__core_timer_stop(loop, &d->timer);
    vow__mem_free(&loop->alloc, d, sizeof(*d));
    vow_deferred_unref(vow__core_deferred_of(out));
}

static void timeout_run(struct vow__core_watch *w)
{
    struct timeout *t = VOW__OUTER(w, struct timeout, watch);
    vow_future *source = w->node.source;
    vow__core_future_adopt(t->loop, w->out, source);
    timeout_free(t);
    vow__core_future_unref(source);
}

static void timeout_fire(vow_loop *loop, struct vow__core_timer *timer)
{
    struct timeout *t = VOW__OUTER(timer, struct timeout, timer);
    vow_future *out = t->watch.out;
    if (!vow__core_future_is_pending(t->watch.node.source))
        return; /* settled in time: the watch is in the ready queue */
    vow_future *source = vow__core_node_unwait(loop, &t->watch.node);
    vow_error *e = vow__core_error_or(
        vow_error_new_at(out->site, loop, VOW_ETIMEDOUT, NULL,
                         "no result within %llu ms", (unsigned long long)t->ms),
        VOW_ETIMEDOUT);
    vow_error *why = vow__core_cancel_error(loop, out->site, e);
    timeout_reject(t, source, e, why);
    vow_error_unref(why);
}

static void timeout_cancel(vow_error *why, void *user)
{
    struct timeout *t = VOW__OUTER(user, struct timeout, watch);
    vow_future *source = vow__core_node_unwait(t->loop, &t->watch.node);
    timeout_reject(t, source, vow_error_ref(why), why);
}

/* Rejects the timeout before the source is settled, and leaves the source. `e`
 * and `source` are moved; `why` is borrowed. */
static void timeout_reject(struct timeout *t, vow_future *source, vow_error *e,
                           vow_error *why)
{
    vow_loop *loop = t->loop;
    vow_future *out = vow__core_future_ref(t->watch.out);
    vow__core_future_reject(loop, out, e);
    timeout_free(t);
    vow__core_source_leave(loop, out, source, why);
    vow__core_future_unref(out);
}

static void timeout_free(struct timeout *t)
{
    vow_loop *loop = t->loop;
    vow_future *out = t->watch.out;
    vow__core_timer_stop(loop, &t->timer);
    vow__mem_free(&loop->alloc, t, sizeof(*t));
    vow_deferred_unref(vow__core_deferred_of(out));
}
