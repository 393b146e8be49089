/* SPDX-License-Identifier: MIT */
/* hedge.c - hedged requests: start another attempt when an answer is late.
 *
 * WHY   The slowest answers come from a few slow servers; another attempt after
 *       a delay costs little and cuts the slow tail.
 * HOW   The result is a promise of the hedge. Each attempt is a link behind the
 *       future from start(): the first link with a value passes the value on,
 *       and the result follows this link. Canceling a link drops the work of
 *       the attempt. A single call on the loop starts the next attempt, soon or
 *       after a delay; once the outcome is known, the call cancels the attempts
 *       one at a time, so no foreign code runs inside vow_cancel(). The result
 *       has ended when all attempts have ended.
 * INVARIANTS
 *   H1  until the outcome is known, an attempt runs, or the call is pending, or
 *       the hedge was given up (canceled, or the loop closes) and the cancel
 *       hook is on the way
 *   H2  an attempt is freed when the outcome is known and the link has ended;
 *       the hedge is freed after the last attempt
 * LIMITS  a block per attempt, kept to the end for the error.
 * THREADS  loop thread only.
 */
#include "vow/hedge.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/list.h"
#include "coord/started.h"
#include "vow/call.h"
#include "vow/context.h"
#include "vow/watch.h"

enum { AFTER_MS = 100, MOST = 2 };

struct attempt {
    vow_link link;
    struct hedge *hedge;
    uint32_t number;     /* from 1 */
    vow_future *chained; /* the link behind the work; NULL: none */
    vow_error *error;    /* counted; NULL: not failed */
    vow_watch end;       /* of the link, once the outcome is known */
};

struct hedge {
    struct vow_alloc alloc;
    vow_loop *loop;
    const char *site;
    vow_start_fn start;
    void *arg;
    vow_hedge_opts opts;
    vow_context *context; /* of the caller, counted; may be NULL */
    vow_deferred *end;    /* of the result; NULL: the outcome is known */
    vow_deferred *over;   /* resolved when all attempts have ended */
    uint32_t ending;      /* attempts stopped and not ended */
    vow_call call;
    vow_link *attempts; /* in order of start */
    uint32_t started;
    uint32_t failed;
    vow_error *first; /* first failure; borrowed from the attempt */
    vow_error *why;   /* cancel reason, counted */
    bool no_memory;   /* no memory for another attempt */
};

static void hedge_start_attempt(void *user);
static bool hedge_given_up(const struct hedge *h);
static void attempt_attach(struct attempt *a, vow_future *work);
static vow_next on_hedge_attempt_ok(vow_value v, void *user);
static vow_next on_hedge_attempt_failed(vow_error *e, void *user);
static void attempt_note_failure(struct attempt *a, vow_error *e);
static void hedge_reject_result(struct hedge *h);
static void on_hedge_cancel(vow_error *why, void *user);
static void hedge_begin_cleanup(struct hedge *h);
static void hedge_stop_next(void *user);
static void on_hedge_attempt_ended(vow_future *chained, void *user);
static void hedge_free_if_over(struct hedge *h);
static void hedge_free(struct hedge *h);

vow_future *vow_hedge_at(const char *site, vow_loop *loop, vow_start_fn start,
                         void *arg, const vow_hedge_opts *opts)
{
    VOW__ASSERT_THREAD(loop);
    vow_hedge_opts o = {.size = sizeof(o)};
    bool known = opts == NULL || opts->size == sizeof(o);
    if (opts != NULL && known)
        o = *opts;
    if (o.after_ms == 0)
        o.after_ms = AFTER_MS;
    if (o.most == 0)
        o.most = MOST;
    if (start == NULL || !known)
        return vow_refused_at(site, loop, VOW_EINVAL,
                              "a hedge needs a start function and options of "
                              "this version");
    if (vow_loop_closing(loop))
        return vow_refused_at(site, loop, VOW_ECLOSED, NULL);
    struct hedge *h = vow__mem_zero(vow_loop_alloc(loop), sizeof(*h));
    if (h == NULL)
        return vow_refused_at(site, loop, VOW_ENOMEM, NULL);
    h->alloc = *vow_loop_alloc(loop);
    h->loop = loop;
    h->site = site;
    h->start = start;
    h->arg = arg;
    h->opts = o;
    vow_future *result = vow_promise_at(site, loop, &h->end);
    vow_future *over = vow_promise_at(site, loop, &h->over);
    if (vow_deferred_pending(h->over))
        vow_ends_with(h->end, over);
    else
        (void)vow_reject_code(h->end, VOW_ENOMEM, NULL);
    vow_future_unref(over);
    if (!vow_deferred_pending(h->end)) {
        vow_deferred_unref(h->end);
        hedge_free(h);
        return result;
    }
    vow_on_cancel_now(h->end, on_hedge_cancel, h);
    h->context = vow_context_ref(vow_context_current(loop));
    vow_call_soon(&h->call, loop, hedge_start_attempt, h);
    return result;
}

/* ---- attempts ------------------------------------------------------------ */

static void hedge_start_attempt(void *user)
{
    struct hedge *h = user;
    if (hedge_given_up(h))
        return;
    struct attempt *a = vow__mem_zero(&h->alloc, sizeof(*a));
    if (a == NULL) { /* running attempts may succeed */
        h->no_memory = true;
        if (h->failed == h->started)
            hedge_reject_result(h);
        return;
    }
    a->hedge = h;
    a->number = ++h->started;
    vow__list_push(&h->attempts, &a->link);
    vow_context *before = vow_context_enter(h->loop, h->context);
    vow_future *work = h->start(h->loop, a->number, h->arg);
    vow_context_leave(h->loop, before);
    work = vow__coord_started(h->site, h->loop, work);
    attempt_attach(a, work);
    vow_future_unref(work);
    if (h->end == NULL || a->chained == NULL || h->started >= h->opts.most)
        return;
    vow_call_at(&h->call, h->loop, vow_loop_due_ns(h->loop, h->opts.after_ms),
                hedge_start_attempt, h);
}

/* Returns whether the hedge is canceled or the loop closes: attempts no longer
 * decide the outcome. */
static bool hedge_given_up(const struct hedge *h)
{
    return vow_deferred_canceled(h->end) || vow_loop_closing(h->loop);
}

/* Attaches the link to the work. Without memory the attempt has failed. */
static void attempt_attach(struct attempt *a, vow_future *work)
{
    vow_future *chained = vow_then_at(a->hedge->site, work, on_hedge_attempt_ok,
                                      on_hedge_attempt_failed, a);
    if (vow_state_of(chained) == VOW_PENDING) {
        a->chained = chained;
        return;
    }
    (void)vow_error_of(work);
    (void)vow_cancel(work, NULL);
    attempt_note_failure(a, vow_error_of(chained));
    vow_future_unref(chained);
}

/* Runs while the link is pending; the link then settles with the value. */
static vow_next on_hedge_attempt_ok(vow_value v, void *user)
{
    struct attempt *a = user;
    struct hedge *h = a->hedge;
    (void)v;
    if (h->end == NULL) /* too late */
        return vow_ok(vow_nothing());
    (void)vow_resolve_with(h->end, a->chained);
    hedge_begin_cleanup(h);
    return vow_pass();
}

static vow_next on_hedge_attempt_failed(vow_error *e, void *user)
{
    attempt_note_failure(user, e);
    return vow_ok(vow_nothing());
}

static void attempt_note_failure(struct attempt *a, vow_error *e)
{
    struct hedge *h = a->hedge;
    a->error = vow_error_ref(e);
    h->failed++;
    if (h->first == NULL)
        h->first = a->error;
    if (h->end == NULL || hedge_given_up(h))
        return;
    bool more = h->started < h->opts.most && !h->no_memory;
    if (more && a->number == h->started) /* the newest: no delay */
        vow_call_soon(&h->call, h->loop, hedge_start_attempt, h);
    else if (!more && h->failed == h->started)
        hedge_reject_result(h);
}

/* ---- outcome ------------------------------------------------------------- */

static void hedge_reject_result(struct hedge *h)
{
    vow_error *e = NULL;
    if (!h->no_memory)
        e = vow__error_make_list(&h->alloc, h->site, VOW_EALLFAILED,
                                 h->started);
    if (e == NULL) {
        (void)vow_reject_code(h->end, VOW_ENOMEM, NULL);
        hedge_begin_cleanup(h);
        return;
    }
    for (vow_link *l = h->attempts; l != NULL; l = l->next) {
        struct attempt *a = VOW__OUTER(l, struct attempt, link);
        vow__error_set_at(e, a->number - 1, a->error);
    }
    vow__error_set_cause(e, h->first);
    (void)vow_reject(h->end, e);
    hedge_begin_cleanup(h);
}

/* Runs inside vow_cancel(), so calls no user code. */
static void on_hedge_cancel(vow_error *why, void *user)
{
    struct hedge *h = user;
    h->why = vow_error_ref(why);
    (void)vow_reject(h->end, vow_error_ref(why));
    hedge_begin_cleanup(h);
}

/* Begins the cleanup: the result is settled. */
static void hedge_begin_cleanup(struct hedge *h)
{
    vow_deferred_unref(h->end);
    h->end = NULL;
    vow_call_soon(&h->call, h->loop, hedge_stop_next, h);
}

static void hedge_stop_next(void *user)
{
    struct hedge *h = user;
    vow_link *l = vow__list_take(&h->attempts);
    if (l == NULL) {
        hedge_free_if_over(h);
        return;
    }
    struct attempt *a = VOW__OUTER(l, struct attempt, link);
    h->ending++;
    if (a->chained != NULL)
        (void)vow_cancel(a->chained, h->why);
    vow_call_soon(&h->call, h->loop, hedge_stop_next, h);
    if (a->chained == NULL || vow_ended(a->chained))
        on_hedge_attempt_ended(a->chained, a);
    else
        vow_watch_start(&a->end, a->chained, on_hedge_attempt_ended, a);
}

static void on_hedge_attempt_ended(vow_future *chained, void *user)
{
    struct attempt *a = user;
    struct hedge *h = a->hedge;
    vow_error_unref(a->error);
    vow__mem_free(&h->alloc, a, sizeof(*a));
    vow_future_unref(chained);
    h->ending--;
    hedge_free_if_over(h);
}

static void hedge_free_if_over(struct hedge *h)
{
    if (h->ending == 0 && h->attempts == NULL && !vow_call_pending(&h->call))
        hedge_free(h); /* keeps H2 */
}

static void hedge_free(struct hedge *h)
{
    struct vow_alloc alloc = h->alloc;
    if (vow_deferred_pending(h->over))
        (void)vow_resolve(h->over, vow_nothing());
    vow_deferred_unref(h->over);
    vow_context_unref(h->context);
    vow_error_unref(h->why);
    vow__mem_free(&alloc, h, sizeof(*h));
}
