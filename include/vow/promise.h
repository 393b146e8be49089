/* SPDX-License-Identifier: MIT */
/* vow/promise.h - a promise with two ends: a deferred settles the promise, a
 * future waits. Steps are chained onto futures.
 *
 * Rules. The first resolve, reject or follow wins; later calls return false and
 * change nothing. Handlers run from the loop's queue, first in first out, never
 * inside the call that attached the handler or settled the promise. A function
 * that starts work always returns a future: bad arguments and lack of memory
 * reject the future, and NULL is never returned.
 *
 * Settled is not ended. A cancel, a timeout and a combinator settle the future
 * of the reader at once, while the work behind may still run. A future has
 * ended when the future is settled and all work behind the future has ended,
 * also work the future has let go of. Work is a fiber, a job on the thread
 * pool, or a promise with vow_on_cancel(). Gates, semaphores, maps, scopes,
 * vow_share() and watches (vow/watch.h) wait for the end.
 *
 * Owner: both ends are counted. Dropping the future does not stop the promise.
 * Dropping the last deferred of a pending promise rejects the promise with
 * VOW_EBROKEN.
 * Threads: loop thread only; vow/remote.h has an end for other threads.
 */
#ifndef VOW_PROMISE_H
#define VOW_PROMISE_H

#include "vow/loop.h"
#include "vow/step.h"
#include "vow/value.h"

VOW_BEGIN_DECLS

enum vow_state { VOW_PENDING = 0, VOW_FULFILLED = 1, VOW_REJECTED = 2 };

typedef vow_next (*vow_ok_fn)(vow_value value, void *user);
typedef vow_next (*vow_fail_fn)(vow_error *error, void *user);
typedef vow_next (*vow_finally_fn)(void *user);
typedef void (*vow_progress_fn)(vow_value progress, void *user);
/* `why`, borrowed, is VOW_ECANCELED with the first cause behind; VOW_ECLOSED if
 * the loop closes. */
typedef void (*vow_cancel_fn)(vow_error *why, void *user);

/* ---- both ends ---------------------------------------------------------- */

/* Makes a promise: returns the future and writes the deferred to *ret_end.
 * Without memory, the future is rejected with VOW_ENOMEM and the deferred is
 * already settled. Since 0.1. */
#define vow_promise(loop, ret_end) vow_promise_at(VOW_HERE, (loop), (ret_end))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_promise_at(const char *site, vow_loop *loop,
                           vow_deferred **ret_end);

/* Return a future settled from the start. vow_refused() makes an error of a
 * code and a text, which is copied; NULL: the text of the code. */
#define vow_resolved(loop, value) vow_resolved_at(VOW_HERE, (loop), (value))
#define vow_rejected(loop, error) vow_rejected_at(VOW_HERE, (loop), (error))
#define vow_refused(loop, code, text)                                          \
    vow_refused_at(VOW_HERE, (loop), (code), (text))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_resolved_at(const char *site, vow_loop *loop, vow_value v);
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_rejected_at(const char *site, vow_loop *loop, vow_error *e);
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_refused_at(const char *site, vow_loop *loop, int code,
                           const char *text);

/* Settle the promise. Return true for the first call; otherwise return false,
 * drop the value or error, and the loop counts a late settle.
 * vow_resolve_with() borrows `other` and takes over the outcome of `other`. A
 * promise waiting for itself, directly or through a cycle of links, timeouts
 * and scope members, is rejected with VOW_ECYCLE. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_resolve(vow_deferred *d, vow_value v);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_reject(vow_deferred *d, vow_error *e);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_reject_code(vow_deferred *d, int code, const char *text);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_resolve_with(vow_deferred *d, vow_future *other);
/* Settles the promise with the vow_next of a step. */
VOW_API VOW_LOOP_THREAD bool vow_settle(vow_deferred *d, vow_next next);
/* Settle the promise and drop the caller's deferred. */
VOW_API VOW_LOOP_THREAD bool vow_resolve_drop(vow_deferred *d, vow_value v);
VOW_API VOW_LOOP_THREAD bool vow_reject_drop(vow_deferred *d, vow_error *e);

/* Tells the progress of the work to the listeners down the chain. The value is
 * moved. Several calls in a turn are coalesced: a listener gets the latest
 * value. Returns false if the promise is settled, or without memory for the
 * message. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_notify(vow_deferred *d, vow_value progress);

/* Declares that work runs behind the promise: canceling the future does not
 * reject the promise, but calls fn(why, user) from the loop's queue. `fn` stops
 * the work and settles the promise, at once or later, for instance by
 * vow_reject(d, vow_error_ref(why)). A promise has one such function; NULL
 * removes the function. A closing loop rejects the promise with VOW_ECLOSED
 * and does not call `fn`. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_on_cancel(vow_deferred *d, vow_cancel_fn fn, void *user);

/* As vow_on_cancel(), for a promise that waits in a list: `fn` is called inside
 * vow_cancel(), removes the promise from the list, settles `d`, and must not
 * call foreign code. A cancel through vow_timeout() and kin, or by the close of
 * the loop, calls `fn` from the queue; until then vow_deferred_canceled()
 * returns true. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_on_cancel_now(vow_deferred *d, vow_cancel_fn fn, void *user);
VOW_API VOW_LOOP_THREAD bool vow_deferred_canceled(const vow_deferred *d);
VOW_API VOW_LOOP_THREAD vow_future *vow_deferred_future(vow_deferred *d);
VOW_API VOW_LOOP_THREAD bool vow_deferred_pending(const vow_deferred *d);
VOW_API VOW_LOOP_THREAD vow_deferred *vow_deferred_ref(vow_deferred *d);
VOW_API VOW_LOOP_THREAD vow_deferred *vow_deferred_unref(vow_deferred *d);
VOW_API VOW_LOOP_THREAD vow_future *vow_future_ref(vow_future *f);
VOW_API VOW_LOOP_THREAD vow_future *vow_future_unref(vow_future *f); /* NULL */

/* Declares that the promise has not ended before `work`, a future of the same
 * loop, has ended: for a promise settled before the work has ended, as by
 * vow_on_cancel_now(). A later call replaces `work`. Has no effect if the
 * promise follows another future. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2)
void vow_ends_with(vow_deferred *d, vow_future *work);

/* ---- reading ------------------------------------------------------------ */

VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
enum vow_state vow_state_of(const vow_future *f);
/* Returns the value, borrowed; nothing unless fulfilled. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_value vow_get(const vow_future *f);
/* Returns the error, borrowed; NULL unless rejected. The rejection then counts
 * as handled. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_error *vow_error_of(vow_future *f);
/* Returns whether `f` has ended: settled, and no work still runs behind `f`
 * (see vow_cancel()). vow/watch.h tells when. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_ended(vow_future *f);
VOW_API VOW_ANY_THREAD vow_loop *vow_future_loop(const vow_future *f);
VOW_API VOW_ANY_THREAD const char *vow_future_site(const vow_future *f);

/* ---- chaining ----------------------------------------------------------- */

/* A link of a chain. `ok` or `fail` may be NULL: the value or the error is then
 * passed on. `drop` (may be NULL) frees `user` exactly once: after the handler
 * ran, or if the handler never will run. */
typedef struct vow_step {
    vow_ok_fn ok;
    vow_fail_fn fail;
    void *user;
    vow_drop_fn drop;
} vow_step;

/* Attaches a step and returns the future of the step's outcome. Since 0.1. */
#define vow_then(f, ok, fail, user)                                            \
    vow_then_at(VOW_HERE, (f), (ok), (fail), (user))
#define vow_catch(f, fail, user)                                               \
    vow_then_at(VOW_HERE, (f), NULL, (fail), (user))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_then_at(const char *site, vow_future *f, vow_ok_fn ok,
                        vow_fail_fn fail, void *user);

/* Attaches a step and drops the caller's reference to `f`, so links need no
 * variables: vow_then_drop(vow_delay(loop, 10), ring, NULL, bell). */
#define vow_then_drop(f, ok, fail, user)                                       \
    vow_then_drop_at(VOW_HERE, (f), (ok), (fail), (user))
#define vow_catch_drop(f, fail, user)                                          \
    vow_then_drop_at(VOW_HERE, (f), NULL, (fail), (user))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_then_drop_at(const char *site, vow_future *f, vow_ok_fn ok,
                             vow_fail_fn fail, void *user);

/* Attaches the last step of a chain and drops the caller's reference to `f`. A
 * failure of the step is an unhandled rejection. Returns 0, or VOW_ENOMEM or
 * VOW_ECLOSED: the step never runs. */
#define vow_done(f, ok, fail, user)                                            \
    vow_done_at(VOW_HERE, (f), (ok), (fail), (user))
VOW_API VOW_LOOP_THREAD VOW_NONNULL(2)
int vow_done_at(const char *site, vow_future *f, vow_ok_fn ok, vow_fail_fn fail,
                void *user);

/* Attaches `n` steps, each behind the step before, and returns the future of
 * the last. Without memory for a step, the steps before never run and the steps
 * behind get VOW_ENOMEM. */
#define vow_chain(f, steps, n) vow_chain_at(VOW_HERE, (f), (steps), (n))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_chain_at(const char *site, vow_future *f, const vow_step *steps,
                         size_t n);

/* Calls `fn` when `f` is settled, whatever the outcome. The outcome is passed
 * on, after a future followed by `fn` is settled, unless `fn` fails or the
 * followed future is rejected. A canceled finally is rejected at once; `fn` is
 * still called, when `f` has ended. The finally has ended when `fn` has run and
 * the followed future has ended. */
#define vow_finally(f, fn, user) vow_finally_at(VOW_HERE, (f), (fn), (user))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_finally_at(const char *site, vow_future *f, vow_finally_fn fn,
                           void *user);

/* Calls `fn` with the progress of `f`, and of every future the chain of `f`
 * follows, until `f` is settled. The returned future has the outcome of `f`. */
#define vow_on_progress(f, fn, user)                                           \
    vow_on_progress_at(VOW_HERE, (f), (fn), (user))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_on_progress_at(const char *site, vow_future *f,
                               vow_progress_fn fn, void *user);

/* Cancels `f`. A waiting future is rejected with VOW_ECANCELED at once; `why`
 * (borrowed, may be NULL) is the cause. The future `f` waited for is canceled
 * too, if no other reader holds that future. Running work (a fiber, a job on
 * the thread pool, a promise with vow_on_cancel()) is asked to stop, and the
 * future of the work settles when the work ends; a future that waited for the
 * work has not ended before (vow_ended()). Returns false if `f` was already
 * settled. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_cancel(vow_future *f, vow_error *why);

static inline void vow_future_cleanup(vow_future **f)
{
    vow_future_unref(*f);
}

static inline void vow_deferred_cleanup(vow_deferred **d)
{
    vow_deferred_unref(*d);
}

VOW_END_DECLS

#endif
