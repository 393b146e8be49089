/* SPDX-License-Identifier: MIT */
/* vow/fiber.h - await: ordinary C with ordinary locals, on the loop's thread.
 *
 * A fiber is a function with a stack of its own. vow_await() leaves it until a
 * future is settled; meanwhile the loop runs others. Nothing runs in parallel
 * and nothing is interrupted: between two awaits a fiber has the loop for
 * itself, so it must not block the thread.
 *
 * Stacks come from a pool, each with a guard page below it: an overflow ends
 * the process with SIGSEGV instead of damaging a neighbour.
 * Threads: loop thread only.
 */
#ifndef VOW_FIBER_H
#define VOW_FIBER_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

/* The body of a fiber. What it returns settles the fiber's future. */
typedef vow_next (*vow_fiber_fn)(void *arg);

typedef struct vow_async_opts {
    size_t size;       /* set by VOW_ASYNC_OPTS */
    size_t stack_size; /* bytes, rounded up to a power of two from 16 KiB to
                          1 GiB; 0: 128 KiB. Untouched pages cost no memory. */
} vow_async_opts;
#define VOW_ASYNC_OPTS(...)                                                    \
    (&(const vow_async_opts){.size = sizeof(vow_async_opts), __VA_ARGS__})

/* Start a fiber; it begins from the loop's queue. The future settles when the
 * body returns; without memory it is rejected with VOW_ENOMEM and the body
 * never runs. Canceling the future makes the pending await, else the next one,
 * return VOW_ECANCELED, once for each call; the body always runs to its end,
 * unless it still waits after a million turns of a closing loop. Since 0.1. */
#define vow_async(loop, fn, arg)                                               \
    vow_async_at(VOW_HERE, (loop), (fn), (arg), NULL)
#define vow_async_with(loop, fn, arg, opts)                                    \
    vow_async_at(VOW_HERE, (loop), (fn), (arg), (opts))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_async_at(const char *site, vow_loop *loop, vow_fiber_fn fn,
                         void *arg, const vow_async_opts *opts);

/* Wait for `f`. 0, or the code it was rejected with (it then counts as
 * handled); read more by vow_get() and vow_error_of(). VOW_ECANCELED also when
 * this fiber was canceled: `f` is then left alone, and if work runs behind it
 * that nobody else holds, the fiber has not ended before that (vow_ended()).
 * Outside a fiber
 * VOW_ENOFIBER, at once. A settled future returns at once. A fiber that awaits
 * its own future gets VOW_ECYCLE. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
int vow_await(vow_future *f);

/* Wait for `f` and drop the caller's reference:
 * vow_await_drop(vow_delay(…)). */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
int vow_await_drop(vow_future *f);

/* Wait so long, never shorter; no allocation. 0, VOW_ECANCELED, VOW_ENOFIBER,
 * or VOW_ECLOSED while the loop closes. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
int vow_sleep(vow_loop *loop, uint64_t ms);

/* Let everything that is ready run first. The same codes. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
int vow_yield(vow_loop *loop);

/* True inside a fiber of this loop; true if this fiber was ever canceled; and
 * why, for the first time: VOW_ECANCELED with its cause, borrowed, or NULL. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_in_fiber(const vow_loop *loop);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_fiber_canceled(const vow_loop *loop);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_error *vow_fiber_why(const vow_loop *loop);

VOW_END_DECLS

#endif
