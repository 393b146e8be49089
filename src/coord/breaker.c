/* SPDX-License-Identifier: MIT */
/* breaker.c - circuit breaker: stop calling a failing service for a while.
 *
 *               too many failures            open_ms passed
 *       CLOSED ------------------> OPEN ----------------------> HALF OPEN
 *         ^                         ^                             |   |
 *         |                         |          a probe failed     |   |
 *         |                         +-----------------------------+   |
 *         +-----------------------------------------------------------+
 *                            `probes` of them succeeded
 *
 * WHY   More requests do not help a server that is down, and waiting for the
 *       server does not help the callers.
 * HOW   The last outcomes are bits of a word. Half open is not an event: the
 *       state follows from the clock; a timer exists only with on_change. A
 *       call is a chain: a step starts the work, and a step behind the work
 *       counts the outcome. A watch notices the end of the work even after the
 *       caller has gone.
 * INVARIANTS
 *   K1  an outcome counts only in the generation in which the call was started;
 *       each change of state begins a new generation
 *   K2  running probes never exceed `probes`; a probe counts until the work has
 *       ended, also if canceled or of an earlier generation
 * LIMITS  O(1). If more than 32 changes are pending, the last ones are merged
 *       for on_change.
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
    CALLS_MAX = 64, /* bits in `outcomes` */
    STATE_BITS = 2,
    UNREPORTED_MAX = 32 /* states in `unreported` */
};

struct vow_breaker {
    struct vow_alloc alloc;
    vow_loop *loop;
    vow_future *anchor; /* settled; keeps the memory of a closed loop */
    vow_breaker_opts opts;
    uint32_t refs;
    enum vow_breaker_state state;
    uint64_t generation; /* counts changes of state */
    uint64_t outcomes;   /* the newest in bit 0; 1: a failure */
    uint64_t until_ns;   /* OPEN: start of half open */
    uint32_t probing;    /* running probes of all generations */
    uint32_t successes;  /* probes succeeded in this generation */
    vow_call timer;      /* OPEN, with on_change: at until_ns */
    vow_call notify;     /* calls on_change; pending: has a reference */
    uint64_t unreported; /* states for on_change, the oldest lowest */
    uint32_t unreported_count;
};

struct call {
    vow_breaker *breaker; /* counted */
    vow_start_fn start;
    void *arg;
    const char *site;
    vow_watch end;       /* of the work */
    uint32_t refs;       /* waiting steps and the watch */
    uint64_t generation; /* at the start */
    bool probe;          /* counts in `probing` */
};

static vow_next breaker_start_call(vow_value v, void *user);
static void on_breaker_work_ended(vow_future *work, void *user);
static vow_next on_breaker_call_ok(vow_value v, void *user);
static vow_next on_breaker_call_failed(vow_error *e, void *user);
static void breaker_call_unref(void *user);
static void breaker_count_outcome(struct call *c, bool failed);
static bool breaker_admits(vow_breaker *b);
static vow_error *breaker_refusal(vow_breaker *b, const char *site);
static void breaker_open(vow_breaker *b);
static void breaker_check_clock(vow_breaker *b);
static void on_breaker_timer(void *user);
static void breaker_move(vow_breaker *b, enum vow_breaker_state to);
static void breaker_notify_soon(vow_breaker *b);
static void breaker_notify(void *user);

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
    VOW__ASSERT(!vow_call_pending(&b->notify)); /* has a reference */
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
    breaker_check_clock(b);
    breaker_open(b);
}

void vow_breaker_reset(vow_breaker *b)
{
    VOW__ASSERT_THREAD(b->loop);
    breaker_check_clock(b);
    breaker_move(b, VOW_BREAKER_CLOSED);
}

/* ---- calls --------------------------------------------------------------- */

vow_future *vow_breaker_run_at(const char *site, vow_breaker *b,
                               vow_start_fn start, void *arg)
{
    VOW__ASSERT_THREAD(b->loop);
    if (start == NULL)
        return vow_refused_at(site, b->loop, VOW_EINVAL,
                              "a breaker needs a start function");
    if (!breaker_admits(b))
        return vow_rejected_at(site, b->loop, breaker_refusal(b, site));
    struct call *c = vow__mem_new(&b->alloc, sizeof(*c));
    if (c == NULL)
        return vow_refused_at(site, b->loop, VOW_ENOMEM, NULL);
    *c = (struct call){.breaker = vow_breaker_ref(b),
                       .start = start,
                       .arg = arg,
                       .site = site,
                       .refs = 1};
    const vow_step begin = {
        .ok = breaker_start_call, .user = c, .drop = breaker_call_unref};
    VOW_AUTO(vow_future) now = vow_resolved_at(site, b->loop, vow_nothing());
    return vow_chain_at(site, now, &begin, 1);
}

/* Starts the work. Asks breaker_admits() again: the state may have changed
 * since vow_breaker_run(). */
static vow_next breaker_start_call(vow_value v, void *user)
{
    struct call *c = user;
    vow_breaker *b = c->breaker;
    (void)v;
    if (vow_loop_closing(b->loop))
        return vow_fail_code(VOW_ECLOSED, NULL);
    if (!breaker_admits(b))
        return vow_fail(breaker_refusal(b, c->site));
    c->generation = b->generation;
    c->probe = b->state == VOW_BREAKER_HALF_OPEN;
    b->probing += c->probe;
    vow_future *work =
        vow__coord_started(c->site, b->loop, c->start(b->loop, 1, c->arg));
    const vow_step observe = {.ok = on_breaker_call_ok,
                              .fail = on_breaker_call_failed,
                              .user = c,
                              .drop = breaker_call_unref};
    c->refs += 2;
    vow_watch_start(&c->end, work, on_breaker_work_ended, c);
    vow_future *observed = vow_chain_at(c->site, work, &observe, 1);
    if (vow_state_of(observed) == VOW_REJECTED) { /* not attached */
        (void)vow_error_of(work);
        (void)vow_cancel(work, NULL);
    }
    vow_future_unref(work);
    return vow_follow(observed); /* dropped if start() canceled the call */
}

static void on_breaker_work_ended(vow_future *work, void *user)
{
    (void)work;
    breaker_call_unref(user);
}

static vow_next on_breaker_call_ok(vow_value v, void *user)
{
    (void)v;
    breaker_count_outcome(user, false);
    return vow_pass();
}

static vow_next on_breaker_call_failed(vow_error *e, void *user)
{
    struct call *c = user;
    const vow_breaker_opts *o = &c->breaker->opts;
    int code = vow_error_code(e);
    if (code != VOW_ECANCELED && code != VOW_ECLOSED)
        breaker_count_outcome(c, o->counts == NULL ||
                                     o->counts(e, o->counts_user));
    return vow_pass();
}

/* Frees the call after the work has ended and no step waits for the outcome. */
static void breaker_call_unref(void *user)
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

/* Counts the outcome of a call. */
static void breaker_count_outcome(struct call *c, bool failed)
{
    vow_breaker *b = c->breaker;
    if (c->generation != b->generation) /* K1 */
        return;
    if (b->state == VOW_BREAKER_HALF_OPEN) {
        if (failed)
            breaker_open(b);
        else if (++b->successes >= b->opts.probes)
            breaker_move(b, VOW_BREAKER_CLOSED);
        return;
    }
    VOW__ASSERT(b->state == VOW_BREAKER_CLOSED);
    uint64_t kept = UINT64_MAX >> (CALLS_MAX - b->opts.calls);
    b->outcomes = (b->outcomes << 1 | failed) & kept;
    if (__builtin_popcountll(b->outcomes) >= (int)b->opts.failures)
        breaker_open(b);
}

static bool breaker_admits(vow_breaker *b)
{
    breaker_check_clock(b);
    return b->state == VOW_BREAKER_CLOSED ||
           (b->state == VOW_BREAKER_HALF_OPEN && b->probing < b->opts.probes);
}

/* Returns the error for a refused call, owned. */
static vow_error *breaker_refusal(vow_breaker *b, const char *site)
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

static void breaker_open(vow_breaker *b)
{
    b->until_ns = vow_loop_due_ns(b->loop, b->opts.open_ms);
    breaker_move(b, VOW_BREAKER_OPEN);
    if (b->opts.on_change != NULL)
        vow_call_weakly_at(&b->timer, b->loop, b->until_ns, on_breaker_timer,
                           b);
}

static void breaker_check_clock(vow_breaker *b)
{
    if (vow_breaker_state_of(b) != b->state)
        breaker_move(b, VOW_BREAKER_HALF_OPEN);
}

static void on_breaker_timer(void *user)
{
    breaker_check_clock(user);
}

/* Begins a new generation and reports a changed state (keeps K1). */
static void breaker_move(vow_breaker *b, enum vow_breaker_state to)
{
    bool same = b->state == to;
    b->state = to;
    b->generation++;
    b->outcomes = 0;
    b->successes = 0;
    (void)vow_call_stop(&b->timer);
    if (same || b->opts.on_change == NULL || vow_loop_closing(b->loop))
        return;
    if (b->unreported_count == UNREPORTED_MAX)
        b->unreported_count--;
    uint32_t at = STATE_BITS * b->unreported_count++;
    b->unreported &= ~(UINT64_C(3) << at);
    b->unreported |= (uint64_t)to << at;
    if (!vow_call_pending(&b->notify))
        breaker_notify_soon(b);
}

/* Queues a report. The reference keeps the breaker until the report. */
static void breaker_notify_soon(vow_breaker *b)
{
    vow_call_soon(&b->notify, b->loop, breaker_notify, vow_breaker_ref(b));
}

/* Reports a single change. The function may do anything to the breaker. */
static void breaker_notify(void *user)
{
    vow_breaker *b = user; /* the reference of the call */
    enum vow_breaker_state state = (enum vow_breaker_state)(b->unreported & 3);
    b->unreported >>= STATE_BITS;
    if (--b->unreported_count > 0)
        breaker_notify_soon(b);
    b->opts.on_change(state, b->opts.on_change_user);
    vow_breaker_unref(b);
}
