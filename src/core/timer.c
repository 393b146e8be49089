/* SPDX-License-Identifier: MIT */
/* timer.c - all timers of a loop on one libuv timer.
 *
 * WHY   libuv's timers count milliseconds from a cached time and so may fire
 *       early; and a thousand retries need not be a thousand handles.
 * HOW   A heap ordered by due time, then by start. The libuv timer is set for
 *       the head, rounded up. When the libuv timer fires, real time is read and
 *       only due timers fire. Under virtual time there is no libuv timer:
 *       vow_loop_advance() moves the clock from head to head.
 * INVARIANTS
 *   T1  a timer never fires before its due time
 *   T2  the libuv timer is set for the head of the heap, and keeps the loop
 *       running only while a timer without `weak` is armed
 * THREADS  loop thread only.
 */
#include "core/loop_internal.h"

static void timers_rearm_uv(vow_loop *loop);

void vow__core_timer_start(vow_loop *loop, struct vow__core_timer *t,
                           uint64_t due_ns)
{
    VOW__ASSERT(!t->armed);
    t->armed = true;
    t->node.key = due_ns;
    t->node.seq = loop->timer_seq++;
    vow__heap_insert(&loop->timers, &t->node);
    loop->timers_strong += !t->weak;
    timers_rearm_uv(loop);
}

void vow__core_timer_stop(vow_loop *loop, struct vow__core_timer *t)
{
    if (!t->armed)
        return;
    t->armed = false;
    vow__heap_remove(&loop->timers, &t->node);
    loop->timers_strong -= !t->weak;
    timers_rearm_uv(loop);
}

/* Timers started during the call wait for the next call, so that a timer that
 * starts itself again cannot hold the loop. */
void vow__core_timers_run(vow_loop *loop)
{
    uint64_t now = vow__clock_now_ns(&loop->clock);
    uint64_t seq = loop->timer_seq;
    while (loop->timers != NULL && loop->timers->key <= now &&
           loop->timers->seq < seq) {
        struct vow__core_timer *t =
            VOW__OUTER(loop->timers, struct vow__core_timer, node);
        vow__core_timer_stop(loop, t);
        t->fire(loop, t);
    }
}

uint64_t vow__core_timers_next_ns(const vow_loop *loop)
{
    if (loop->timers_strong == 0)
        return UINT64_MAX;
    return loop->timers->key;
}

void vow__core_timers_on_uv(uv_timer_t *handle)
{
    vow_loop *loop = handle->data;
    bool busy = loop->busy;
    struct vow_context *in = loop->in;
    vow_loop_adopt(loop);
    loop->busy = true;
    loop->in = NULL;
    loop->timer_armed_ns = 0;
    vow__core_timers_run(loop);
    timers_rearm_uv(loop); /* libuv may have been early: keeps T1 */
    loop->in = in;
    loop->busy = busy; /* on_prepare() runs the ready nodes before polling */
}

static void timers_rearm_uv(vow_loop *loop)
{
    if (loop->clock.is_virtual || loop->closing)
        return;
    uv_handle_t *handle = (uv_handle_t *)&loop->timer;
    if (loop->timers == NULL) {
        if (loop->timer_armed_ns != 0)
            (void)uv_timer_stop(&loop->timer);
        loop->timer_armed_ns = 0;
        return;
    }
    if (loop->timers_strong > 0)
        uv_ref(handle);
    else
        uv_unref(handle);
    uint64_t due = loop->timers->key;
    due = due == 0 ? 1 : due; /* 0: not set */
    if (due == loop->timer_armed_ns)
        return;
    uint64_t now = vow__clock_now_ns(&loop->clock);
    uint64_t wait_ns = due > now ? due - now : 0;
    uint64_t ms = wait_ns / VOW__NS_PER_MS + (wait_ns % VOW__NS_PER_MS != 0);
    uv_update_time(loop->uv);
    (void)uv_timer_start(&loop->timer, vow__core_timers_on_uv, ms, 0);
    loop->timer_armed_ns = due;
}
