/* SPDX-License-Identifier: MIT */
/* turn.c - running a loop: a drain, a turn, until done, and virtual time.
 *
 * WHY   Handlers run from the ready queue, first in first out, never
 *       recursively; and a test moves time by hand.
 * HOW   A drain runs nodes until the ready queue is empty or turn_max have run.
 *       Then libuv polls, so that handlers which always queue more nodes cannot
 *       starve I/O. Under virtual time the clock jumps from timer to timer.
 * THREADS  loop thread only.
 */
#include "core/promise_internal.h"

static inline bool loop_turn_begin(vow_loop *loop);
static inline void loop_turn_run_ready(vow_loop *loop);
static inline void loop_turn_end(vow_loop *loop);
static bool virtual_time_step(vow_loop *loop);
static void turns_until_idle(vow_loop *loop);
static int loop_run_while(vow_loop *loop, const vow_future *until);

bool vow__core_loop_drain(vow_loop *loop)
{
    if (loop_turn_begin(loop))
        loop_turn_run_ready(loop);
    return loop->ready != NULL;
}

/* Runs the ready nodes, at most turn_max, and ends the turn. */
static inline void loop_turn_run_ready(vow_loop *loop)
{
    loop->handlers_run += vow__core_nodes_run(loop, loop->turn_max);
    loop_turn_end(loop);
    if (VOW__UNLIKELY(loop->futures.empties > 0))
        vow__core_loop_idle_memory(loop);
}

static inline void loop_turn_end(vow_loop *loop)
{
    loop->busy = false;
    loop->in = loop->outside;
}

/* Begins a turn. Returns false if a turn is running. */
static inline bool loop_turn_begin(vow_loop *loop)
{
    if (loop->busy)
        return false;
    loop->busy = true;
    loop->outside = loop->in; /* handlers have contexts of their own */
    loop->in = NULL;
    vow_loop_adopt(loop);
    return true;
}

int vow_loop_turn(vow_loop *loop)
{
    if (!loop_turn_begin(loop))
        return VOW_EBUSY;
    (void)vow__core_inbox_run(loop);
    if (loop->timers != NULL)
        vow__core_timers_run(loop);
    loop_turn_run_ready(loop);
    return 0;
}

int vow_loop_run(vow_loop *loop)
{
    return loop_run_while(loop, NULL);
}

int vow_loop_run_until(vow_loop *loop, vow_future *f)
{
    vow__core_future_ref(f);
    int rc = loop_run_while(loop, f);
    if (rc == 0)
        rc = vow__core_future_is_pending(f) ? VOW_EAGAIN
                                            : vow_error_code(vow_error_of(f));
    vow__core_future_unref(f);
    return rc;
}

static int loop_run_while(vow_loop *loop, const vow_future *until)
{
    if (loop->running || !loop_turn_begin(loop))
        return VOW_EBUSY;
    loop_turn_end(loop);
    loop->running = true;
    loop->until = until;
    bool more = true;
    while (more && (until == NULL || vow__core_future_is_pending(until))) {
        (void)loop_turn_begin(loop);
        bool posted = vow__core_inbox_run(loop); /* keeps no loop alive */
        loop_turn_end(loop);
        if (loop->clock.is_virtual)
            more = virtual_time_step(loop);
        else if (until == NULL)
            more = uv_run(loop->uv, UV_RUN_DEFAULT) == 0 && posted;
        else
            more = uv_run(loop->uv, UV_RUN_ONCE) != 0 || posted;
    }
    loop->running = false;
    loop->until = NULL;
    return 0;
}

/* Does a step of virtual time: runs ready nodes; else waits for libuv, if a
 * handle or request is active; else jumps to the next timer. Returns false if
 * there is nothing to do. */
static bool virtual_time_step(vow_loop *loop)
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
    turns_until_idle(loop);
    while (loop->timers != NULL && loop->timers->key <= end) {
        if (loop->timers->key > loop->clock.virtual_ns)
            loop->clock.virtual_ns = loop->timers->key;
        (void)vow_loop_turn(loop);
        turns_until_idle(loop);
    }
    loop->clock.virtual_ns = end;
    return 0;
}

/* Runs messages and ready nodes until none are left. */
static void turns_until_idle(vow_loop *loop)
{
    bool more = true;
    while (more) {
        (void)loop_turn_begin(loop);
        more = vow__core_inbox_run(loop);
        loop_turn_run_ready(loop);
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
