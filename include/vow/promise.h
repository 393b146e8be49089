/* SPDX-License-Identifier: MIT */
/* vow/promise.h - a promise with both ends: the deferred settles, futures
 * wait, and steps are chained onto futures.
 *
 * Rules. The first resolve, reject or follow wins, later ones return false and
 * change nothing. Handlers run from the loop's queue, first in first out,
 * never inside the call that attached or settled. A function that starts work
 * always returns a future: bad arguments and lack of memory arrive as its
 * rejection, never as NULL.
 *
 * Settled is not ended. Canceling, a timeout and a combinator settle what
 * others read at once, and only ask the work behind it. What runs counts as
 * running until it has ended, whatever is chained to it: a future has ended
 * when it is settled and all work that it let go of has ended too. Work is a
 * fiber, a job on the thread pool, a promise with vow_on_cancel(). Gates,
 * semaphores, maps, scopes, vow_share() and all who watch (vow/watch.h) go by
 * the end.
 *
 * Owner: both ends are counted. The promise goes on when the caller drops the
 * future; dropping the last deferred unsettled rejects with VOW_EBROKEN.
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
/* `why` is VOW_ECANCELED with the first cause behind it, borrowed. */
typedef void (*vow_cancel_fn)(vow_error *why, void *user);

/* ---- both ends ---------------------------------------------------------- */

/* Make a promise. Without memory the future is rejected with VOW_ENOMEM and
 * the deferred is one that is already settled. Since 0.1. */
#define vow_promise(loop, ret_end) vow_promise_at(VOW_HERE, (loop), (ret_end))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_promise_at(const char *site, vow_loop *loop,
                           vow_deferred **ret_end);

/* A promise that is settled from the start. vow_refused() makes the error of a
 * code and a text, which may be NULL: the text of the code. */
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

/* Settle. True for the one call that did it; false otherwise: then the value or
 * error is dropped and the loop counts a late settle. vow_resolve_with()
 * borrows the other future and settles as it settles; a promise that would wait
 * for itself, directly or round a ring of links, timeouts and scope members, is
 * rejected with VOW_ECYCLE. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_resolve(vow_deferred *d, vow_value v);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_reject(vow_deferred *d, vow_error *e);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_reject_code(vow_deferred *d, int code, const char *text);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_resolve_with(vow_deferred *d, vow_future *other);
/* Settle with what a step returned. */
VOW_API VOW_LOOP_THREAD bool vow_settle(vow_deferred *d, vow_next next);
/* Settle and drop the caller's deferred. */
VOW_API VOW_LOOP_THREAD bool vow_resolve_drop(vow_deferred *d, vow_value v);
VOW_API VOW_LOOP_THREAD bool vow_reject_drop(vow_deferred *d, vow_error *e);

/* Tell the listeners down the chain how far it is. The value is moved. Those
 * of one turn are coalesced: a listener sees the latest. False when settled,
 * or when memory for the message is lacking. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_notify(vow_deferred *d, vow_value progress);

/* Say that work runs behind this promise: canceling the future then asks
 * instead of rejecting. fn(why, user) runs from the loop's queue; it stops the
 * work and settles, at once or later, for instance by
 * vow_reject(d, vow_error_ref(why)). One per promise; NULL removes it. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_on_cancel(vow_deferred *d, vow_cancel_fn fn, void *user);

/* The same for what waits in a list: fn runs inside vow_cancel(), leaves the
 * list, settles `d` and calls no code of others. A cancel through vow_timeout()
 * and kin, or the loop's close, runs it from the queue; until then
 * vow_deferred_canceled() tells. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_on_cancel_now(vow_deferred *d, vow_cancel_fn fn, void *user);
VOW_API VOW_LOOP_THREAD bool vow_deferred_canceled(const vow_deferred *d);
VOW_API VOW_LOOP_THREAD vow_future *vow_deferred_future(vow_deferred *d);
VOW_API VOW_LOOP_THREAD bool vow_deferred_pending(const vow_deferred *d);
VOW_API VOW_LOOP_THREAD vow_deferred *vow_deferred_ref(vow_deferred *d);
VOW_API VOW_LOOP_THREAD vow_deferred *vow_deferred_unref(vow_deferred *d);
VOW_API VOW_LOOP_THREAD vow_future *vow_future_ref(vow_future *f);
VOW_API VOW_LOOP_THREAD vow_future *vow_future_unref(vow_future *f); /* NULL */

/* Say that the work behind this promise ends when `work`, of the same loop,
 * has: the promise may be settled before, and ends not before it. For what
 * settles early, as by vow_on_cancel_now(), and lets its work end alone. One
 * per promise; not for one that follows another. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2)
void vow_ends_with(vow_deferred *d, vow_future *work);

/* ---- reading ------------------------------------------------------------ */

VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
enum vow_state vow_state_of(const vow_future *f);
/* The value, borrowed; nothing unless fulfilled. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_value vow_get(const vow_future *f);
/* The error, borrowed; NULL unless rejected. It then counts as handled. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_error *vow_error_of(vow_future *f);
/* Settled, and no work that it let go of still runs (see vow_cancel()). To be
 * told, vow/watch.h. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_ended(vow_future *f);
VOW_API VOW_ANY_THREAD vow_loop *vow_future_loop(const vow_future *f);
VOW_API VOW_ANY_THREAD const char *vow_future_site(const vow_future *f);

/* ---- chaining ----------------------------------------------------------- */

/* One link of a chain. `ok` or `fail` may be NULL: then the value or the error
 * goes on. `drop` (may be NULL) frees `user`, exactly once, after the handler
 * ran or when it never will. */
typedef struct vow_step {
    vow_ok_fn ok;
    vow_fail_fn fail;
    void *user;
    vow_drop_fn drop;
} vow_step;

/* Attach a step; the future is of what the step returns. Since 0.1. */
#define vow_then(f, ok, fail, user)                                            \
    vow_then_at(VOW_HERE, (f), (ok), (fail), (user))
#define vow_catch(f, fail, user)                                               \
    vow_then_at(VOW_HERE, (f), NULL, (fail), (user))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_then_at(const char *site, vow_future *f, vow_ok_fn ok,
                        vow_fail_fn fail, void *user);

/* Attach a step and drop the caller's reference to `f`, so that links need no
 * names: vow_then_drop(vow_delay(loop, 10), ring, NULL, bell). */
#define vow_then_drop(f, ok, fail, user)                                       \
    vow_then_drop_at(VOW_HERE, (f), (ok), (fail), (user))
#define vow_catch_drop(f, fail, user)                                          \
    vow_then_drop_at(VOW_HERE, (f), NULL, (fail), (user))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_then_drop_at(const char *site, vow_future *f, vow_ok_fn ok,
                             vow_fail_fn fail, void *user);

/* The end of a chain: attach a last step that nobody waits for, and drop the
 * caller's reference to `f`. What it returns, if it fails, is an unhandled
 * rejection. 0, VOW_ENOMEM or VOW_ECLOSED: then it never runs. */
#define vow_done(f, ok, fail, user)                                            \
    vow_done_at(VOW_HERE, (f), (ok), (fail), (user))
VOW_API VOW_LOOP_THREAD VOW_NONNULL(2)
int vow_done_at(const char *site, vow_future *f, vow_ok_fn ok, vow_fail_fn fail,
                void *user);

/* Attach `n` steps one behind the other; the future is of the last. Without
 * memory for a step, those before it never run and those behind it get
 * VOW_ENOMEM. */
#define vow_chain(f, steps, n) vow_chain_at(VOW_HERE, (f), (steps), (n))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_chain_at(const char *site, vow_future *f, const vow_step *steps,
                         size_t n);

/* Run `fn` however it ends. The outcome goes on, unless fn fails or follows a
 * future that is rejected; a followed future is waited for. A canceled finally
 * is rejected at once, and fn runs all the same, when `f` has ended; the
 * finally has ended when fn has run, and what it followed has ended. */
#define vow_finally(f, fn, user) vow_finally_at(VOW_HERE, (f), (fn), (user))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_finally_at(const char *site, vow_future *f, vow_finally_fn fn,
                           void *user);

/* Listen to progress of `f` and of whatever its chain follows, until `f`
 * settles. The future has the outcome of `f`. */
#define vow_on_progress(f, fn, user)                                           \
    vow_on_progress_at(VOW_HERE, (f), (fn), (user))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_on_progress_at(const char *site, vow_future *f,
                               vow_progress_fn fn, void *user);

/* Nobody needs it any more. What waits is rejected with VOW_ECANCELED at once,
 * with `why` (borrowed, may be NULL) as its cause; what it waited for is
 * canceled too if nobody else holds it. What runs (a fiber, a job on the
 * thread pool, a promise with vow_on_cancel()) is asked, and settles when it
 * ends; what waited for it has not ended before (vow_ended()). False if already
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
