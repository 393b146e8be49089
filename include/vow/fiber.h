/* SPDX-License-Identifier: MIT */
/* vow/fiber.h - await: ordinary C with ordinary locals, on the loop's thread.
 *
 * A fiber is a function with a stack of its own. vow_await() suspends the fiber
 * until a future is settled; meanwhile the loop runs other code. Nothing runs
 * in parallel and nothing is preempted: between two awaits a fiber has the loop
 * alone, so a fiber must not block the thread.
 *
 * Stacks are pooled, with a guard page below each stack: an overflow ends the
 * process with SIGSEGV instead of damaging the next stack. If a guard page
 * cannot be set up, the fiber runs without, and guards_missing counts
 * (vow/loop.h).
 * Threads: loop thread only.
 */
#ifndef VOW_FIBER_H
#define VOW_FIBER_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

/* The body of a fiber. The returned vow_next settles the fiber's future. */
typedef vow_next (*vow_fiber_fn)(void *arg);

typedef struct vow_async_opts {
    size_t size;       /* set by VOW_ASYNC_OPTS */
    size_t stack_size; /* bytes, rounded up to a power of two from 16 KiB to
                          1 GiB; 0: 128 KiB. Untouched pages cost no memory. */
} vow_async_opts;
#define VOW_ASYNC_OPTS(...)                                                    \
    (&(const vow_async_opts){.size = sizeof(vow_async_opts), __VA_ARGS__})

/* Starts a fiber; the body begins from the loop's queue. The future settles
 * when the body returns. Canceling the future makes the pending await, or else
 * the next await, return VOW_ECANCELED, once per cancel. The body always runs
 * to the end, unless the fiber still waits when a closing loop has run a
 * million handlers. Rejected, and the body never runs: VOW_ENOMEM, VOW_ECLOSED
 * (the loop closes), VOW_EINVAL (`fn` is NULL, a stack above 1 GiB). Since
 * 0.1. */
#define vow_async(loop, fn, arg)                                               \
    vow_async_at(VOW_HERE, (loop), (fn), (arg), NULL)
#define vow_async_with(loop, fn, arg, opts)                                    \
    vow_async_at(VOW_HERE, (loop), (fn), (arg), (opts))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_async_at(const char *site, vow_loop *loop, vow_fiber_fn fn,
                         void *arg, const vow_async_opts *opts);

/* Waits for `f`. Returns 0, or the code of the rejection, which then counts as
 * handled; vow_get() and vow_error_of() have the value and the error. Returns
 * VOW_ECANCELED also if this fiber was canceled: `f` is then left alone. If
 * work runs behind `f` and `f` has no other reader, the fiber has not ended
 * before the work (vow_ended()). Returns at once if `f` is settled;
 * VOW_ENOFIBER outside a fiber; VOW_ECYCLE if `f` is the fiber's own future;
 * VOW_ECLOSED if the loop closes. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
int vow_await(vow_future *f);

/* Waits for `f` and drops the caller's reference:
 * vow_await_drop(vow_delay(…)). */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
int vow_await_drop(vow_future *f);

/* Waits for `ms` milliseconds, never shorter, without an allocation. Returns 0,
 * VOW_ECANCELED, VOW_ENOFIBER, or VOW_ECLOSED while the loop closes. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
int vow_sleep(vow_loop *loop, uint64_t ms);

/* Lets everything that is ready run first. Returns the same codes. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
int vow_yield(vow_loop *loop);

/* Returns whether the caller is inside a fiber of this loop. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_in_fiber(const vow_loop *loop);
/* Returns whether the calling fiber was ever canceled; and the error of the
 * first cancel, borrowed: VOW_ECANCELED with the cause, VOW_ECLOSED if the loop
 * closes, or NULL. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_fiber_canceled(const vow_loop *loop);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_error *vow_fiber_why(const vow_loop *loop);

VOW_END_DECLS

#endif
