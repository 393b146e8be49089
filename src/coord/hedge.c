/* SPDX-License-Identifier: MIT */
/* hedge.c - ask a second time when the first answer is late.
 *
 * WHY   One slow server in a hundred makes the slowest answers; asking another
 *       after a while costs little and cuts them off.
 * HOW   The result is a promise of ours. Each attempt is a link behind what
 *       start() returned: the one that brings a value passes it on, and the
 *       result follows that link. Canceling a link lets go of its work. The one
 *       call on the loop starts the next attempt, soon or when it is late; once
 *       the outcome is known it cancels the attempts, one at a time, so that no
 *       code of others runs inside vow_cancel(). The result has ended when all
 *       of them have.
 * INVARIANTS
 *   H1  until the outcome is known an attempt runs, or the call is pending, or
 *       it was given up: then the hook of its cancel is on its way
 *   H2  an attempt is freed when the outcome is known and its link has ended,
 *       and the hedge behind the last of them
 * LIMITS  one block per attempt, kept until the end for its error.
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
    uint32_t number;  /* from 1 */
    vow_future *seen; /* the link behind its work; NULL: there is none */
    vow_error *error; /* counted, when it has failed */
    vow_watch end;    /* of the link, once the outcome is known */
};

struct hedge {
    struct vow_alloc alloc;
    vow_loop *loop;
    const char *site;
    vow_start_fn start;
    void *arg;
    vow_hedge_opts opts;
    vow_context *context; /* of who asked, counted; may be NULL */
    vow_deferred *end;    /* of the result; NULL: the outcome is known */
    vow_deferred *over;   /* of what the result ends with */
    uint32_t ending;      /* attempts that have not ended since */
    vow_call call;
    vow_link *attempts; /* in their order */
    uint32_t started;
    uint32_t failed;
    vow_error *first; /* failure in time, borrowed from its attempt */
    vow_error *why;   /* it was canceled, counted */
    bool starved;     /* no memory for another attempt */
};

static void start_attempt(void *user);
static bool given_up(const struct hedge *h);
static void attach(struct attempt *a, vow_future *work);
static vow_next attempt_succeeded(vow_value v, void *user);
static vow_next attempt_failed(vow_error *e, void *user);
static void note_failure(struct attempt *a, vow_error *e);
static void all_failed(struct hedge *h);
static void canceled(vow_error *why, void *user);
static void conclude(struct hedge *h);
static void stop_next(void *user);
static void attempt_ended(vow_future *seen, void *user);
static void maybe_over(struct hedge *h);
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
    vow_on_cancel_now(h->end, canceled, h);
    h->context = vow_context_ref(vow_context_current(loop));
    vow_call_soon(&h->call, loop, start_attempt, h);
    return result;
}

/* ---- attempts ------------------------------------------------------------ */

static void start_attempt(void *user)
{
    struct hedge *h = user;
    if (given_up(h))
        return;
    struct attempt *a = vow__mem_zero(&h->alloc, sizeof(*a));
    if (a == NULL) { /* those that run may still succeed */
        h->starved = true;
        if (h->failed == h->started)
            all_failed(h);
        return;
    }
    a->hedge = h;
    a->number = ++h->started;
    vow__list_push(&h->attempts, &a->link);
    vow_context *before = vow_context_enter(h->loop, h->context);
    vow_future *work = h->start(h->loop, a->number, h->arg);
    vow_context_leave(h->loop, before);
    work = vow__coord_started(h->site, h->loop, work);
    attach(a, work);
    vow_future_unref(work);
    if (h->end == NULL || a->seen == NULL || h->started >= h->opts.most)
        return;
    vow_call_at(&h->call, h->loop, vow_loop_due_ns(h->loop, h->opts.after_ms),
                start_attempt, h);
}

/* What its attempts come to is not its outcome any more. */
static bool given_up(const struct hedge *h)
{
    return vow_deferred_canceled(h->end) || vow_loop_closing(h->loop);
}

/* Without memory to wait for it, it has failed. */
static void attach(struct attempt *a, vow_future *work)
{
    vow_future *seen =
        vow_then_at(a->hedge->site, work, attempt_succeeded, attempt_failed, a);
    if (vow_state_of(seen) == VOW_PENDING) {
        a->seen = seen;
        return;
    }
    (void)vow_error_of(work);
    (void)vow_cancel(work, NULL);
    note_failure(a, vow_error_of(seen));
    vow_future_unref(seen);
}

/* The link is pending while this runs: it settles with what came in. */
static vow_next attempt_succeeded(vow_value v, void *user)
{
    struct attempt *a = user;
    struct hedge *h = a->hedge;
    (void)v;
    if (h->end == NULL) /* late; nobody wants it */
        return vow_ok(vow_nothing());
    (void)vow_resolve_with(h->end, a->seen);
    conclude(h);
    return vow_pass();
}

static vow_next attempt_failed(vow_error *e, void *user)
{
    note_failure(user, e);
    return vow_ok(vow_nothing());
}

static void note_failure(struct attempt *a, vow_error *e)
{
    struct hedge *h = a->hedge;
    a->error = vow_error_ref(e);
    h->failed++;
    if (h->first == NULL)
        h->first = a->error;
    if (h->end == NULL || given_up(h))
        return;
    bool more = h->started < h->opts.most && !h->starved;
    if (more && a->number == h->started) /* the newest: no need to wait */
        vow_call_soon(&h->call, h->loop, start_attempt, h);
    else if (!more && h->failed == h->started)
        all_failed(h);
}

/* ---- the outcome --------------------------------------------------------- */

static void all_failed(struct hedge *h)
{
    vow_error *e = NULL;
    if (!h->starved)
        e = vow__error_make_list(&h->alloc, h->site, VOW_EALLFAILED,
                                 h->started);
    if (e == NULL) {
        (void)vow_reject_code(h->end, VOW_ENOMEM, NULL);
        conclude(h);
        return;
    }
    for (vow_link *l = h->attempts; l != NULL; l = l->next) {
        struct attempt *a = VOW__OUTER(l, struct attempt, link);
        vow__error_set_at(e, a->number - 1, a->error);
    }
    vow__error_set_cause(e, h->first);
    (void)vow_reject(h->end, e);
    conclude(h);
}

/* Inside vow_cancel(): calls nobody. */
static void canceled(vow_error *why, void *user)
{
    struct hedge *h = user;
    h->why = vow_error_ref(why);
    (void)vow_reject(h->end, vow_error_ref(why));
    conclude(h);
}

/* It is settled: the rest is cleaning up. */
static void conclude(struct hedge *h)
{
    vow_deferred_unref(h->end);
    h->end = NULL;
    vow_call_soon(&h->call, h->loop, stop_next, h);
}

static void stop_next(void *user)
{
    struct hedge *h = user;
    vow_link *l = vow__list_take(&h->attempts);
    if (l == NULL) {
        maybe_over(h);
        return;
    }
    struct attempt *a = VOW__OUTER(l, struct attempt, link);
    h->ending++;
    if (a->seen != NULL)
        (void)vow_cancel(a->seen, h->why);
    vow_call_soon(&h->call, h->loop, stop_next, h);
    if (a->seen == NULL || vow_ended(a->seen))
        attempt_ended(a->seen, a);
    else
        vow_watch_start(&a->end, a->seen, attempt_ended, a);
}

static void attempt_ended(vow_future *seen, void *user)
{
    struct attempt *a = user;
    struct hedge *h = a->hedge;
    vow_error_unref(a->error);
    vow__mem_free(&h->alloc, a, sizeof(*a));
    vow_future_unref(seen);
    h->ending--;
    maybe_over(h);
}

static void maybe_over(struct hedge *h)
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
