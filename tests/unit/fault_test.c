/* SPDX-License-Identifier: MIT */
/* fault_test.c - no memory, at every single allocation, once and for ever:
 * every future settles, none is NULL, nothing leaks, every user and value is
 * freed exactly once, and whatever fails says VOW_ENOMEM. */
#include "fault.h"
#include "harness.h"

#include "vow/combine.h"
#include "vow/retry.h"
#include "vow/scope.h"

/* ---- ends --------------------------------------------------------------- */

/* Runs until f is settled, with `want` or for lack of memory; drops it. */
static int ends(struct world *w, vow_future *f, int want)
{
    CHECK(f != NULL);
    int rc = vow_loop_run_until(w->loop, f);
    CHECK(vow_state_of(f) != VOW_PENDING);
    CHECK(rc == want || fault_explains(w, rc));
    vow_future_unref(f);
    return rc;
}

/* Drops f, which may have been refused and then counts as handled. */
static void let_go(vow_future *f)
{
    vow_error_of(f);
    vow_future_unref(f);
}

static vow_future *promise(struct world *w, vow_deferred **ret_end)
{
    *ret_end = NULL;
    vow_future *f = vow_promise(w->loop, ret_end);
    CHECK(f != NULL);
    CHECK(*ret_end != NULL);
    return f;
}

static void resolve(vow_deferred *d, vow_value v)
{
    vow_resolve(d, v);
    vow_deferred_unref(d);
}

static vow_future *refused(struct world *w)
{
    vow_error *e = vow_error_new(w->loop, VOW_EIO, "refused %d", 1);
    CHECK(e != NULL);
    return vow_rejected(w->loop, e);
}

/* VOW_EIO, unless there was no memory to say so. */
static vow_next recover(vow_error *e, void *user)
{
    struct world *w = user;
    int code = vow_error_code(e);
    CHECK(code == VOW_EIO || fault_explains(w, code));
    return vow_ok(vow_int(1));
}

static vow_next add_one(vow_value v, void *user)
{
    (void)user;
    return vow_ok(vow_int(vow_as_int(v) + 1));
}

static void count_drop(void *ptr)
{
    ++*(int *)ptr;
}

/* ---- promise.h ---------------------------------------------------------- */

FAULT_SWEEP(fault, promise_resolve_survives, FAULT_ALLOC)
{
    vow_deferred *d;
    vow_future *f = promise(w, &d);
    vow_deferred *second = vow_deferred_ref(d);
    bool first = vow_resolve(d, vow_int(1));
    CHECK(first || fault_fired(w));
    CHECK(!vow_resolve(second, vow_int(2)));
    CHECK(!vow_deferred_pending(second));
    vow_deferred_unref(d);
    vow_deferred_unref(second);
    ends(w, f, 0);
}

FAULT_SWEEP(fault, promise_reject_survives, FAULT_ALLOC)
{
    vow_deferred *d[3];
    vow_future *f[3];
    for (int i = 0; i < 3; i++)
        f[i] = promise(w, &d[i]);
    vow_reject(d[0], vow_error_new(w->loop, VOW_EIO, "no"));
    vow_reject_code(d[1], VOW_EIO, "no");
    vow_settle(d[2], vow_fail_code(VOW_EIO, "static"));
    for (int i = 0; i < 3; i++) {
        vow_deferred_unref(d[i]);
        ends(w, f[i], VOW_EIO);
    }
}

FAULT_SWEEP(fault, a_broken_promise_and_a_cycle_survive, FAULT_ALLOC)
{
    vow_deferred *d, *own;
    vow_future *f = promise(w, &d), *g = promise(w, &own);
    vow_deferred_unref(d);
    vow_resolve_with(own, g);
    vow_deferred_unref(own);
    ends(w, f, VOW_EBROKEN);
    ends(w, g, VOW_ECYCLE);
}

FAULT_SWEEP(fault, settled_promises_and_bytes_survive, FAULT_ALLOC)
{
    int drops = 0;
    ends(w, vow_resolved(w->loop, vow_own(&drops, count_drop)), 0);
    CHECK_INT_EQ(drops, 1);
    ends(w, refused(w), VOW_EIO);
    vow_bytes *b = NULL;
    int rc = vow_bytes_new(w->loop, "abc", 4, &b);
    CHECK(rc == 0 ? b != NULL : fault_explains(w, rc) && b == NULL);
    ends(w, vow_resolved(w->loop, vow_bytes_value(b)), 0);
}

FAULT_SWEEP(fault, follow_survives, FAULT_ALLOC)
{
    vow_deferred *d, *od, *sd;
    vow_future *f = promise(w, &d), *other = promise(w, &od);
    vow_future *g = promise(w, &sd);
    vow_resolve_with(d, other);
    vow_settle(sd, vow_follow(vow_future_ref(other)));
    vow_deferred_unref(d);
    vow_deferred_unref(sd);
    resolve(od, vow_int(3));
    let_go(other);
    ends(w, f, 0);
    ends(w, g, 0);
}

FAULT_SWEEP(fault, then_survives_in_chain_and_fan, FAULT_ALLOC)
{
    vow_deferred *d;
    vow_future *f = promise(w, &d), *fan[3];
    for (int i = 0; i < 3; i++)
        fan[i] = vow_then(f, add_one, recover, w);
    vow_future *tail = vow_then(f, add_one, recover, w);
    for (int i = 0; i < 3; i++) {
        vow_future *next = vow_then(tail, add_one, NULL, w);
        let_go(tail);
        tail = next;
    }
    resolve(d, vow_int(1));
    let_go(f);
    for (int i = 0; i < 3; i++)
        ends(w, fan[i], 0);
    ends(w, tail, 0);
}

static vow_next insert(vow_error *e, void *user)
{
    struct world *w = user;
    recover(e, w);
    vow_future *f = refused(w);
    vow_future *g = vow_catch(f, recover, w);
    let_go(f);
    return vow_follow(g);
}

FAULT_SWEEP(fault, insertion_survives, FAULT_ALLOC)
{
    vow_future *f = refused(w);
    vow_future *g = vow_catch(f, insert, w);
    let_go(f);
    ends(w, g, 0);
}

FAULT_SWEEP(fault, chain_frees_every_user_exactly_once, FAULT_ALLOC)
{
    enum { N = 5 };
    int drops[N] = {0};
    vow_step steps[N];
    for (int i = 0; i < N; i++)
        steps[i] = (vow_step){add_one, NULL, &drops[i], count_drop};
    vow_deferred *d;
    vow_future *f = promise(w, &d);
    vow_future *g = vow_chain(f, steps, N);
    resolve(d, vow_int(0));
    let_go(f);
    ends(w, g, 0);
    world_run(w);
    for (int i = 0; i < N; i++)
        CHECK_INT_EQ(drops[i], 1);
}

static vow_next wait_a_little(void *user)
{
    struct world *w = user;
    return vow_follow(vow_delay(w->loop, 5));
}

FAULT_SWEEP(fault, finally_survives, FAULT_ALLOC)
{
    vow_deferred *d;
    vow_future *f = promise(w, &d);
    vow_future *g = vow_finally(f, wait_a_little, w);
    resolve(d, vow_int(0));
    let_go(f);
    ends(w, g, 0);
}

static void hear(vow_value v, void *user)
{
    (void)v;
    ++*(int *)user;
}

FAULT_SWEEP(fault, progress_survives_and_its_values_are_freed, FAULT_ALLOC)
{
    vow_deferred *d;
    int drops = 0, heard = 0;
    vow_future *f = promise(w, &d);
    vow_future *g = vow_then(f, NULL, NULL, NULL);
    vow_future *h = vow_on_progress(g, hear, &heard);
    bool told = vow_notify(d, vow_own(&drops, count_drop));
    CHECK(told || fault_fired(w));
    world_run(w);
    vow_notify(d, vow_own(&drops, count_drop));
    resolve(d, vow_nothing());
    let_go(f);
    let_go(g);
    ends(w, h, 0);
    world_run(w);
    CHECK_INT_EQ(drops, 2);
    CHECK(heard > 0 || fault_fired(w));
}

FAULT_SWEEP(fault, cancel_rejects_at_once_also_without_memory, FAULT_ALLOC)
{
    vow_deferred *d;
    vow_future *f = promise(w, &d);
    vow_future *g = vow_then(f, add_one, NULL, w);
    let_go(f);
    vow_error *why = vow_error_new(w->loop, VOW_EBUSY, "why");
    vow_cancel(g, why);
    CHECK_INT_EQ(vow_state_of(g), VOW_REJECTED);
    vow_error_unref(why);
    ends(w, g, VOW_ECANCELED);
    resolve(d, vow_int(1));
}

static void stop(vow_error *why, void *user)
{
    CHECK(why != NULL);
    vow_reject(user, vow_error_ref(why));
}

FAULT_SWEEP(fault, a_request_to_cancel_arrives_without_memory, FAULT_ALLOC)
{
    vow_deferred *d;
    vow_future *f = promise(w, &d);
    vow_on_cancel(d, stop, d);
    vow_cancel(f, NULL);
    world_run(w);
    CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED);
    vow_deferred_unref(d);
    ends(w, f, VOW_ECANCELED);
}

FAULT_SWEEP(fault, an_owned_value_is_freed_once_whatever_fails, FAULT_ALLOC)
{
    vow_deferred *d;
    int drops = 0;
    vow_future *f = promise(w, &d), *links[3];
    for (int i = 0; i < 3; i++)
        links[i] = vow_then(f, NULL, NULL, NULL);
    resolve(d, vow_own(&drops, count_drop));
    let_go(f);
    for (int i = 0; i < 3; i++)
        ends(w, links[i], 0);
    world_run(w);
    CHECK_INT_EQ(drops, 1);
}

/* ---- combine.h ---------------------------------------------------------- */

typedef vow_future *combine_fn(const char *site, vow_loop *loop,
                               vow_future *const *futures, size_t n);

/* Combines two that come later and one that is there; all succeed or fail. */
static void combine(struct world *w, combine_fn *fn, bool fail, int want)
{
    vow_deferred *d[2];
    vow_future *in[3];
    for (int i = 0; i < 2; i++)
        in[i] = promise(w, &d[i]);
    in[2] = fail ? refused(w) : vow_resolved(w->loop, vow_int(1));
    vow_future *f = fn("here", w->loop, in, 3);
    for (int i = 0; i < 2; i++) {
        if (fail)
            vow_reject_code(d[i], VOW_EIO, NULL);
        resolve(d[i], vow_int(i));
    }
    for (int i = 0; i < 3; i++)
        let_go(in[i]);
    ends(w, f, want);
}

FAULT_SWEEP(fault, all_survives, FAULT_ALLOC)
{
    combine(w, vow_all_at, false, 0);
    combine(w, vow_all_at, true, VOW_EIO);
    ends(w, vow_all(w->loop, NULL, 0), 0);
}

FAULT_SWEEP(fault, all_settled_survives, FAULT_ALLOC)
{
    combine(w, vow_all_settled_at, false, 0);
    combine(w, vow_all_settled_at, true, 0);
}

FAULT_SWEEP(fault, any_survives, FAULT_ALLOC)
{
    combine(w, vow_any_at, false, 0);
    combine(w, vow_any_at, true, VOW_EALLFAILED);
    ends(w, vow_any(w->loop, NULL, 0), VOW_EALLFAILED);
}

FAULT_SWEEP(fault, race_survives, FAULT_ALLOC)
{
    combine(w, vow_race_at, false, 0);
    combine(w, vow_race_at, true, VOW_EIO);
}

FAULT_SWEEP(fault, canceling_a_combination_survives, FAULT_ALLOC)
{
    vow_deferred *d[2];
    vow_future *in[2] = {promise(w, &d[0]), promise(w, &d[1])};
    vow_future *f = vow_all(w->loop, in, 2);
    let_go(in[0]);
    let_go(in[1]);
    vow_cancel(f, NULL);
    CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED);
    ends(w, f, VOW_ECANCELED);
    resolve(d[0], vow_nothing());
    resolve(d[1], vow_nothing());
}

FAULT_SWEEP(fault, delays_survive, FAULT_ALLOC)
{
    vow_future *f[20];
    for (uint64_t i = 0; i < 20; i++)
        f[i] = vow_delay(w->loop, i);
    for (int i = 0; i < 20; i++)
        ends(w, f[i], 0);
}

FAULT_SWEEP(fault, timeout_survives, FAULT_ALLOC)
{
    vow_deferred *slow, *quick;
    vow_future *f = promise(w, &slow), *g = promise(w, &quick);
    vow_future *late = vow_timeout(f, 5), *early = vow_timeout(g, 5);
    let_go(f);
    let_go(g);
    resolve(quick, vow_int(1));
    ends(w, early, 0);
    ends(w, late, VOW_ETIMEDOUT);
    resolve(slow, vow_int(1));
}

/* ---- scope.h ------------------------------------------------------------ */

static vow_scope *scope(struct world *w, const vow_scope_opts *opts)
{
    vow_scope *s = NULL;
    int rc = vow_scope_new(w->loop, opts, &s);
    CHECK(rc == 0 ? s != NULL : fault_explains(w, rc) && s == NULL);
    return s;
}

static void run_in_scope(struct world *w, vow_scope *s)
{
    vow_deferred *d;
    vow_future *f = promise(w, &d);
    vow_future *m = vow_scope_add(s, f);
    vow_future *wait = vow_scope_wait(s);
    resolve(d, vow_int(1));
    let_go(f);
    ends(w, m, 0);
    ends(w, wait, 0);
}

FAULT_SWEEP(fault, scopes_survive, FAULT_ALLOC)
{
    vow_scope *parent = scope(w, NULL);
    if (parent == NULL)
        return;
    vow_scope *child = scope(w, VOW_SCOPE_OPTS(.parent = parent));
    if (child != NULL)
        run_in_scope(w, child);
    run_in_scope(w, parent);
    vow_scope_unref(child);
    vow_scope_unref(parent);
}

static void count_hook(vow_error *why, void *user)
{
    CHECK(why != NULL);
    ++*(int *)user;
}

FAULT_SWEEP(fault, canceling_a_scope_reaches_everybody, FAULT_ALLOC)
{
    vow_scope *s = scope(w, NULL);
    if (s == NULL)
        return;
    int runs = 0;
    vow_hook hook = {.fn = NULL};
    CHECK_INT_EQ(vow_hook_add(&hook, s, count_hook, &runs), 0);
    vow_deferred *d;
    vow_future *f = promise(w, &d);
    vow_future *m = vow_scope_add(s, f);
    vow_future *wait = vow_scope_wait(s);
    let_go(f);
    CHECK(vow_scope_cancel(s, NULL));
    CHECK(vow_scope_canceled(s));
    CHECK(vow_scope_cause(s) != NULL);
    CHECK_INT_EQ(vow_state_of(m), VOW_REJECTED);
    ends(w, m, VOW_ECANCELED);
    /* Without its member the scope was empty before it was canceled. */
    bool empty = fault_fired(w) && vow_state_of(wait) == VOW_FULFILLED;
    ends(w, wait, empty ? 0 : VOW_ECANCELED);
    resolve(d, vow_nothing());
    world_run(w);
    CHECK_INT_EQ(runs, 1);
    vow_scope_unref(s);
}

FAULT_SWEEP(fault, a_deadline_survives, FAULT_ALLOC)
{
    vow_scope *s = scope(w, VOW_SCOPE_OPTS(.deadline_ms = 20));
    if (s == NULL)
        return;
    vow_deferred *d;
    vow_future *f = promise(w, &d);
    vow_future *m = vow_scope_add(s, f);
    let_go(f);
    ends(w, m, VOW_ECANCELED);
    resolve(d, vow_nothing());
    vow_scope_unref(s);
}

FAULT_SWEEP(fault, fail_fast_survives, FAULT_ALLOC)
{
    vow_scope *s = scope(w, VOW_SCOPE_OPTS(.flags = VOW_SCOPE_FAIL_FAST));
    if (s == NULL)
        return;
    vow_deferred *d[2];
    vow_future *f[2], *m[2];
    for (int i = 0; i < 2; i++) {
        f[i] = promise(w, &d[i]);
        m[i] = vow_scope_add(s, f[i]);
    }
    vow_reject_code(d[0], VOW_EIO, NULL);
    world_run(w);
    resolve(d[0], vow_nothing());
    resolve(d[1], vow_nothing());
    for (int i = 0; i < 2; i++)
        let_go(f[i]);
    /* A member that was refused cancels the other, or cannot cancel it. */
    for (int i = 0; i < 2; i++) {
        int rc = vow_loop_run_until(w->loop, m[i]);
        CHECK(rc == (i == 0 ? VOW_EIO : VOW_ECANCELED) || fault_fired(w));
        CHECK(rc != VOW_EAGAIN);
        vow_future_unref(m[i]);
    }
    vow_scope_unref(s);
}

/* ---- retry.h ------------------------------------------------------------ */

static vow_future *third_time(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct world *w = arg;
    if (attempt == 3)
        return vow_resolved(loop, vow_int(3));
    return refused(w);
}

FAULT_SWEEP(fault, retry_survives, FAULT_ALLOC)
{
    ends(w, vow_retry(w->loop, third_time, w, NULL), 0);
    ends(w, vow_retry(w->loop, third_time, w, VOW_RETRY(.tries = 2)), VOW_EIO);
    ends(w, vow_retry(w->loop, NULL, w, NULL), VOW_EINVAL);
}

FAULT_SWEEP(fault, retry_with_budget_and_deadline_survives, FAULT_ALLOC)
{
    vow_retry_budget *b = NULL;
    int rc = vow_retry_budget_new(w->loop, 100, 10, &b);
    CHECK(rc == 0 ? b != NULL : fault_explains(w, rc) && b == NULL);
    vow_future *f =
        vow_retry(w->loop, third_time, w,
                  VOW_RETRY(.tries = 2, .budget = b, .deadline_ms = 60000));
    vow_retry_budget_unref(b);
    ends(w, f, VOW_EIO);
}

FAULT_SWEEP(fault, canceling_a_retry_survives, FAULT_ALLOC)
{
    vow_future *f = vow_retry(w->loop, third_time, w, NULL);
    world_turn(w);
    vow_cancel(f, NULL);
    CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED);
    ends(w, f, VOW_ECANCELED);
}

/* ---- error.h ------------------------------------------------------------ */

FAULT_SWEEP(fault, an_error_is_never_null, FAULT_ALLOC)
{
    vow_error *root = vow_error_new(w->loop, VOW_EIO, "%s", "root");
    CHECK(root != NULL);
    vow_error *e = vow_error_wrap(w->loop, VOW_EBUSY, root, "top");
    CHECK(e != NULL);
    int code = vow_error_code(e);
    CHECK(code == VOW_EBUSY || fault_explains(w, code));
    CHECK(vow_error_message(e)[0] != '\0');
    char line[100];
    CHECK(vow_error_describe(e, line, sizeof(line)) > 0);
    vow_error_unref(root);
    vow_error_unref(e);
}

/* ---- loop.h ------------------------------------------------------------- */

FAULT_SWEEP(fault, a_second_loop_is_made_or_refused, FAULT_ALLOC)
{
    vow_loop *loop = NULL;
    int rc = vow_loop_new(
        VOW_LOOP_OPTS(.alloc = *vow_loop_alloc(w->loop), .seed = 1), &loop);
    CHECK(rc == 0 ? loop != NULL : fault_explains(w, rc) && loop == NULL);
    CHECK_INT_EQ(vow_loop_close(loop), 0);
}

static void count_post(void *arg)
{
    ++*(int *)arg;
}

FAULT_SWEEP(fault, every_accepted_post_runs, FAULT_ALLOC)
{
    int runs = 0, accepted = 0;
    for (int i = 0; i < 5; i++) {
        int rc = vow_loop_post(w->loop, count_post, &runs);
        CHECK(rc == 0 || fault_explains(w, rc));
        accepted += rc == 0;
    }
    world_run(w);
    CHECK_INT_EQ(runs, accepted);
}

static void count_line(const vow_census *line, void *user)
{
    CHECK(line->pending + line->settled > 0);
    ++*(int *)user;
}

FAULT_SWEEP(fault, census_and_stats_survive, FAULT_ALLOC)
{
    vow_future *f = vow_resolved(w->loop, vow_int(1));
    vow_future *g = vow_then(f, add_one, NULL, NULL);
    int lines = 0;
    int rc = vow_loop_census(w->loop, count_line, &lines);
    CHECK(rc == 0 || fault_explains(w, rc));
    CHECK(lines == 2 || fault_fired(w));
    vow_loop_stats st;
    vow_loop_stats_get(w->loop, &st);
    CHECK(st.futures == 2 || fault_fired(w));
    vow_loop_trim(w->loop);
    let_go(f);
    ends(w, g, 0);
}

FAULT_SWEEP(fault, turns_and_advances_survive, FAULT_ALLOC)
{
    vow_future *f = vow_delay(w->loop, 10);
    vow_future *g = vow_then(f, add_one, NULL, NULL);
    let_go(f);
    world_turn(w);
    world_advance_ms(w, 10);
    CHECK(vow_state_of(g) != VOW_PENDING);
    ends(w, g, 0);
}
