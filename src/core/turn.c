/* SPDX-License-Identifier: MIT */
/* turn.c - running: the ready queue, one turn, until done, and virtual time.
 *
 * WHY   Handlers run from one queue, first in first out, never recursively; and
 *       a test moves time by hand.
 * HOW   A drain takes nodes until the queue is empty or turn_max have run; then
 *       libuv gets to poll, so that handlers which always queue more cannot
 *       starve I/O. Under virtual time the clock jumps from timer to timer.
 * THREADS  loop thread only.
 */
#include "core/promise_internal.h"

static inline bool enter(vow_loop *loop);
static inline void leave(vow_loop *loop);
static inline void done(vow_loop *loop);
static bool step(vow_loop *loop);
static void settle_down(vow_loop *loop);
static int run_while(vow_loop *loop, const vow_future *until);

bool vow__core_loop_drain(vow_loop *loop)
{
    if (enter(loop))
        leave(loop);
    return loop->ready != NULL;
}

/* The end of a turn: run what is ready. */
static inline void leave(vow_loop *loop)
{
    loop->handlers_run += vow__core_nodes_run(loop, loop->turn_max);
    done(loop);
    if (VOW__UNLIKELY(loop->futures.empties > 0))
        vow__core_loop_idle_memory(loop);
}

static inline void done(vow_loop *loop)
{
    loop->busy = false;
    loop->in = loop->outside;
}

/* A turn begins, unless one is running. */
static inline bool enter(vow_loop *loop)
{
    if (loop->busy)
        return false;
    loop->busy = true;
    loop->outside = loop->in; /* handlers are in no context but their own */
    loop->in = NULL;
    vow_loop_adopt(loop);
    return true;
}

int vow_loop_turn(vow_loop *loop)
{
    if (!enter(loop))
        return VOW_EBUSY;
    (void)vow__core_inbox_run(loop);
    if (loop->timers != NULL)
        vow__core_timers_run(loop);
    leave(loop);
    return 0;
}

int vow_loop_run(vow_loop *loop)
{
    return run_while(loop, NULL);
}

int vow_loop_run_until(vow_loop *loop, vow_future *f)
{
    vow__core_future_ref(f);
    int rc = run_while(loop, f);
    if (rc == 0)
        rc = vow__core_future_is_pending(f) ? VOW_EAGAIN
                                            : vow_error_code(vow_error_of(f));
    vow__core_future_unref(f);
    return rc;
}

static int run_while(vow_loop *loop, const vow_future *until)
{
    if (loop->running || !enter(loop))
        return VOW_EBUSY;
    done(loop);
    loop->running = true;
    loop->until = until;
    bool more = true;
    while (more && (until == NULL || vow__core_future_is_pending(until))) {
        (void)enter(loop);
        bool posted = vow__core_inbox_run(loop); /* it keeps no loop alive */
        done(loop);
        if (loop->clock.is_virtual)
            more = step(loop);
        else if (until == NULL)
            more = uv_run(loop->uv, UV_RUN_DEFAULT) == 0 && posted;
        else
            more = uv_run(loop->uv, UV_RUN_ONCE) != 0 || posted;
    }
    loop->running = false;
    loop->until = NULL;
    return 0;
}

/* One step of virtual time: what is ready, else what is really under way, else
 * the next timer. False when nothing of these is left. */
static bool step(vow_loop *loop)
{
    if (loop->ready != NULL || loop->armed) {
        (void)uv_run(loop->uv, UV_RUN_NOWAIT);
        return true;
    }
    uint64_t next = vow__core_timers_next_ns(loop);
    if (next > loop->clock.virtual_ns && uv_loop_alive(loop->uv)) {
        (void)uv_run(loop->uv, UV_RUN_ONCE);
        return true;
    }
    if (next == UINT64_MAX)
        return false;
    if (next > loop->clock.virtual_ns)
        loop->clock.virtual_ns = next;
    (void)vow_loop_turn(loop);
    return true;
}

int vow_loop_advance(vow_loop *loop, uint64_t ms)
{
    if (!loop->clock.is_virtual)
        return VOW_ENOTSUP;
    if (loop->busy)
        return VOW_EBUSY;
    uint64_t end = vow__clock_due_ns(&loop->clock, ms);
    settle_down(loop);
    while (loop->timers != NULL && loop->timers->key <= end) {
        if (loop->timers->key > loop->clock.virtual_ns)
            loop->clock.virtual_ns = loop->timers->key;
        (void)vow_loop_turn(loop);
        settle_down(loop);
    }
    loop->clock.virtual_ns = end;
    return 0;
}

static void settle_down(vow_loop *loop)
{
    bool more = true;
    while (more) {
        (void)enter(loop);
        more = vow__core_inbox_run(loop);
        leave(loop);
        more |= loop->ready != NULL;
    }
}

uint64_t vow_loop_now_ns(const vow_loop *loop)
{
    VOW__ASSERT_THREAD(loop);
    return vow__clock_now_ns(&loop->clock);
}

uint64_t vow_loop_due_ns(const vow_loop *loop, uint64_t ms)
{
    VOW__ASSERT_THREAD(loop);
    return vow__clock_due_ns(&loop->clock, ms);
}

uint32_t vow_loop_flags(const vow_loop *loop)
{
    return (loop->clock.is_virtual ? VOW_LOOP_VIRTUAL_TIME : 0) |
           (loop->futures.per_slab == 1 ? VOW_LOOP_UNPOOLED : 0);
}

bool vow_loop_closing(const vow_loop *loop)
{
    VOW__ASSERT_THREAD(loop);
    return loop->closing;
}

/* xorshift128+: for jitter, not for secrets. */
uint64_t vow_loop_random(vow_loop *loop)
{
    VOW__ASSERT_THREAD(loop);
    uint64_t a = loop->random[0];
    uint64_t b = loop->random[1];
    loop->random[0] = b;
    a ^= a << 23;
    loop->random[1] = a ^ b ^ (a >> 17) ^ (b >> 26);
    return loop->random[1] + b;
}
