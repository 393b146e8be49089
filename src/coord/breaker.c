/* SPDX-License-Identifier: MIT */
/* breaker.c - stop asking what keeps failing, and ask again later.
 *
 *               so many failures             open_ms passed
 *       CLOSED ------------------> OPEN ----------------------> HALF OPEN
 *         ^                         ^                             |   |
 *         |                         |          a probe failed     |   |
 *         |                         +-----------------------------+   |
 *         +-----------------------------------------------------------+
 *                            `probes` of them succeeded
 *
 * WHY   A server that is down is not helped by more requests, and those who ask
 *       are not helped by waiting for it.
 * HOW   The last outcomes are bits of one word. Half open is no event but a
 *       look at the clock; only if somebody wants to be told is there a timer.
 *       A call is a chain: a step that starts the work, and one behind the work
 *       that sees the outcome. A watch of the work knows its end even when the
 *       caller has gone.
 * INVARIANTS
 *   K1  an outcome counts only in the era its call was started in; each change
 *       of state begins a new one
 *   K2  probes under way never exceed `probes`; one counts until its work has
 *       ended, also when it was canceled or is of an earlier era
 * LIMITS  O(1). Of more than 32 changes in one go, the last ones are told as
 *       one.
 * THREADS  loop thread only.
 */
#include "vow/breaker.h"
#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "coord/started.h"
#include "vow/call.h"
#include "vow/watch.h"

enum {
    FAILURES = 5,
    OPEN_MS = 10000,
    CALLS_MAX = 64, /* bits in `past` */
    STATE_BITS = 2,
    UNTOLD_MAX = 32 /* states in `untold` */
};

struct vow_breaker {
    struct vow_alloc alloc;
    vow_loop *loop;
    vow_future *anchor; /* settled; keeps the memory of a closed loop */
    vow_breaker_opts opts;
    uint32_t refs;
    enum vow_breaker_state state;
    uint64_t era;      /* of this state */
    uint64_t past;     /* outcomes, the newest in bit 0; 1: a failure */
    uint64_t until_ns; /* OPEN: then it is half open */
    uint32_t probing;  /* probes under way, of whatever era */
    uint32_t passed;   /* and those that succeeded */
    vow_call timer;    /* OPEN, with on_change: at until_ns */
    vow_call tell;     /* pending: has a reference */
    uint64_t untold; /* states on_change has not heard of, the oldest lowest */
    uint32_t untold_count;
};

struct call {
    vow_breaker *breaker; /* counted */
    vow_start_fn start;
    void *arg;
    const char *site;
    vow_watch end; /* of the work */
    uint32_t refs; /* one per step that waits, and the watch's */
    uint64_t era;  /* it was started in */
    bool probe;    /* it counts in `probing` */
};

static vow_next start_call(vow_value v, void *user);
static void work_ended(vow_future *work, void *user);
static vow_next call_succeeded(vow_value v, void *user);
static vow_next call_failed(vow_error *e, void *user);
static void call_unref(void *user);
static void count(struct call *c, bool failed);
static bool admits(vow_breaker *b);
static vow_error *refusal(vow_breaker *b, const char *site);
static void open_now(vow_breaker *b);
static void look_at_clock(vow_breaker *b);
static void on_timer(void *user);
static void move(vow_breaker *b, enum vow_breaker_state to);
static void tell_soon(vow_breaker *b);
static void tell(void *user);

/* ---- the breaker --------------------------------------------------------- */

int vow_breaker_new(vow_loop *loop, const vow_breaker_opts *opts,
                    vow_breaker **ret_breaker)
{
    VOW__ASSERT_THREAD(loop);
    vow_breaker_opts o = {.size = sizeof(o)};
    if (opts != NULL && opts->size != sizeof(o))
        return VOW_EINVAL;
    if (opts != NULL)
        o = *opts;
    if (o.failures == 0)
        o.failures = FAILURES;
    if (o.calls == 0)
        o.calls = o.failures;
    if (o.open_ms == 0)
        o.open_ms = OPEN_MS;
    if (o.probes == 0)
        o.probes = 1;
    if (o.calls > CALLS_MAX || o.calls < o.failures)
        return VOW_EINVAL;
    vow_breaker *b = vow__mem_zero(vow_loop_alloc(loop), sizeof(*b));
    if (b == NULL)
        return VOW_ENOMEM;
    b->alloc = *vow_loop_alloc(loop);
    b->loop = loop;
    b->opts = o;
    b->refs = 1;
    b->anchor = vow_resolved(loop, vow_nothing());
    if (vow_state_of(b->anchor) == VOW_REJECTED) {
        vow_breaker_unref(b);
        return VOW_ENOMEM;
    }
    *ret_breaker = b;
    return 0;
}

vow_breaker *vow_breaker_ref(vow_breaker *b)
{
    VOW__ASSERT_THREAD_OF(b, b->loop);
    if (b != NULL)
        b->refs++;
    return b;
}

vow_breaker *vow_breaker_unref(vow_breaker *b)
{
    VOW__ASSERT_THREAD_OF(b, b->loop);
    if (b == NULL || --b->refs > 0)
        return NULL;
    (void)vow_call_stop(&b->timer);
    VOW__ASSERT(!vow_call_pending(&b->tell)); /* it has a reference */
    struct vow_alloc alloc = b->alloc;
    vow_future *anchor = b->anchor;
    vow__mem_free(&alloc, b, sizeof(*b));
    vow_future_unref(anchor);
    return NULL;
}

enum vow_breaker_state vow_breaker_state_of(const vow_breaker *b)
{
    VOW__ASSERT_THREAD(b->loop);
    if (b->state == VOW_BREAKER_OPEN && vow_loop_now_ns(b->loop) >= b->until_ns)
        return VOW_BREAKER_HALF_OPEN;
    return b->state;
}

void vow_breaker_trip(vow_breaker *b)
{
    VOW__ASSERT_THREAD(b->loop);
    look_at_clock(b);
    open_now(b);
}

void vow_breaker_reset(vow_breaker *b)
{
    VOW__ASSERT_THREAD(b->loop);
    look_at_clock(b);
    move(b, VOW_BREAKER_CLOSED);
}

/* ---- calls --------------------------------------------------------------- */

vow_future *vow_breaker_run_at(const char *site, vow_breaker *b,
                               vow_start_fn start, void *arg)
{
    VOW__ASSERT_THREAD(b->loop);
    if (start == NULL)
        return vow_refused_at(site, b->loop, VOW_EINVAL,
                              "a breaker needs a start function");
    if (!admits(b))
        return vow_rejected_at(site, b->loop, refusal(b, site));
    struct call *c = vow__mem_new(&b->alloc, sizeof(*c));
    if (c == NULL)
        return vow_refused_at(site, b->loop, VOW_ENOMEM, NULL);
    *c = (struct call){.breaker = vow_breaker_ref(b),
                       .start = start,
                       .arg = arg,
                       .site = site,
                       .refs = 1};
    const vow_step begin = {.ok = start_call, .user = c, .drop = call_unref};
    VOW_AUTO(vow_future) now = vow_resolved_at(site, b->loop, vow_nothing());
    return vow_chain_at(site, now, &begin, 1);
}

/* The state may have changed since it was asked for. */
static vow_next start_call(vow_value v, void *user)
{
    struct call *c = user;
    vow_breaker *b = c->breaker;
    (void)v;
    if (vow_loop_closing(b->loop))
        return vow_fail_code(VOW_ECLOSED, NULL);
    if (!admits(b))
        return vow_fail(refusal(b, c->site));
    c->era = b->era;
    c->probe = b->state == VOW_BREAKER_HALF_OPEN;
    b->probing += c->probe;
    vow_future *work =
        vow__coord_started(c->site, b->loop, c->start(b->loop, 1, c->arg));
    const vow_step see = {.ok = call_succeeded,
                          .fail = call_failed,
                          .user = c,
                          .drop = call_unref};
    c->refs += 2;
    vow_watch_start(&c->end, work, work_ended, c);
    vow_future *seen = vow_chain_at(c->site, work, &see, 1);
    if (vow_state_of(seen) == VOW_REJECTED) { /* it was not attached */
        (void)vow_error_of(work);
        (void)vow_cancel(work, NULL);
    }
    vow_future_unref(work);
    return vow_follow(seen); /* which is let go if start() canceled this */
}

static void work_ended(vow_future *work, void *user)
{
    (void)work;
    call_unref(user);
}

static vow_next call_succeeded(vow_value v, void *user)
{
    (void)v;
    count(user, false);
    return vow_pass();
}

static vow_next call_failed(vow_error *e, void *user)
{
    struct call *c = user;
    const vow_breaker_opts *o = &c->breaker->opts;
    int code = vow_error_code(e);
    if (code != VOW_ECANCELED && code != VOW_ECLOSED)
        count(c, o->counts == NULL || o->counts(e, o->counts_user));
    return vow_pass();
}

/* The work has ended, and nobody waits for its outcome any more. */
static void call_unref(void *user)
{
    struct call *c = user;
    vow_breaker *b = c->breaker;
    if (--c->refs > 0)
        return;
    b->probing -= c->probe; /* keeps K2 */
    vow__mem_free(&b->alloc, c, sizeof(*c));
    vow_breaker_unref(b);
}

/* ---- states -------------------------------------------------------------- */

/* One more outcome of a call. */
static void count(struct call *c, bool failed)
{
    vow_breaker *b = c->breaker;
    if (c->era != b->era) /* K1 */
        return;
    if (b->state == VOW_BREAKER_HALF_OPEN) {
        if (failed)
            open_now(b);
        else if (++b->passed >= b->opts.probes)
            move(b, VOW_BREAKER_CLOSED);
        return;
    }
    VOW__ASSERT(b->state == VOW_BREAKER_CLOSED);
    uint64_t kept = UINT64_MAX >> (CALLS_MAX - b->opts.calls);
    b->past = (b->past << 1 | failed) & kept;
    if (__builtin_popcountll(b->past) >= (int)b->opts.failures)
        open_now(b);
}

static bool admits(vow_breaker *b)
{
    look_at_clock(b);
    return b->state == VOW_BREAKER_CLOSED ||
           (b->state == VOW_BREAKER_HALF_OPEN && b->probing < b->opts.probes);
}

/* Owned. */
static vow_error *refusal(vow_breaker *b, const char *site)
{
    bool open = b->state == VOW_BREAKER_OPEN;
    vow_error *e = vow_error_new_at(
        site, b->loop, VOW_EOPEN, NULL,
        open ? NULL : "the circuit breaker waits for its probes");
    uint64_t now = vow_loop_now_ns(b->loop);
    if (open && now < b->until_ns)
        vow_error_set_retry_after_ms(
            e, (b->until_ns - now - 1) / VOW__NS_PER_MS + 1);
    return e;
}

static void open_now(vow_breaker *b)
{
    b->until_ns = vow_loop_due_ns(b->loop, b->opts.open_ms);
    move(b, VOW_BREAKER_OPEN);
    if (b->opts.on_change != NULL)
        vow_call_weakly_at(&b->timer, b->loop, b->until_ns, on_timer, b);
}

static void look_at_clock(vow_breaker *b)
{
    if (vow_breaker_state_of(b) != b->state)
        move(b, VOW_BREAKER_HALF_OPEN);
}

static void on_timer(void *user)
{
    look_at_clock(user);
}

/* Begin a new era, and say so if the state is another (keeps K1). */
static void move(vow_breaker *b, enum vow_breaker_state to)
{
    bool same = b->state == to;
    b->state = to;
    b->era++;
    b->past = 0;
    b->passed = 0;
    (void)vow_call_stop(&b->timer);
    if (same || b->opts.on_change == NULL || vow_loop_closing(b->loop))
        return;
    if (b->untold_count == UNTOLD_MAX)
        b->untold_count--;
    uint32_t at = STATE_BITS * b->untold_count++;
    b->untold &= ~(UINT64_C(3) << at);
    b->untold |= (uint64_t)to << at;
    if (!vow_call_pending(&b->tell))
        tell_soon(b);
}

/* A change is told also when the last handle is dropped meanwhile. */
static void tell_soon(vow_breaker *b)
{
    vow_call_soon(&b->tell, b->loop, tell, vow_breaker_ref(b));
}

/* One change at a time. The function may do anything to the breaker. */
static void tell(void *user)
{
    vow_breaker *b = user; /* with the reference of the call */
    enum vow_breaker_state state = (enum vow_breaker_state)(b->untold & 3);
    b->untold >>= STATE_BITS;
    if (--b->untold_count > 0)
        tell_soon(b);
    b->opts.on_change(state, b->opts.on_change_user);
    vow_breaker_unref(b);
}
