/* SPDX-License-Identifier: MIT */
/* retry.c - retries with backoff, by promise insertion.
 *
 * WHY   "Actual code should not blindly retry": tries, backoff, jitter, a
 *       deadline and a shared budget keep retries from becoming a storm.
 * HOW   Each round is a chain of two steps: start the attempt, and catch the
 *       failure. The catch returns the future of the next round, which is
 *       inserted into the chain; so progress, cancel and bounded memory come
 *       from the chain, and there is no state machine here.
 * THREADS  loop thread only.
 */
#include "vow/retry.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "coord/started.h"
#include "vow/combine.h"

enum { PERCENT = 100 };

struct vow_retry_budget {
    struct vow_alloc alloc;
    uint32_t refs;
    uint32_t percent; /* earned by a first attempt */
    uint64_t saved;   /* in hundredths of a retry */
    uint64_t most;
};

struct retry {
    vow_loop *loop;
    const char *site;
    vow_start_fn start;
    void *arg;
    vow_retry_opts opts;
    struct vow_alloc alloc;
    uint32_t refs;    /* a reference per waiting step */
    uint32_t attempt; /* number of the last started attempt */
    uint64_t due_ns;  /* deadline; UINT64_MAX: none */
    vow_error *last;  /* failure of the previous attempt, counted */
};

static vow_future *retry_next_round(struct retry *r, vow_future *after);
static vow_next retry_start_attempt(vow_value v, void *user);
static vow_next retry_after_failure(vow_error *e, void *user);
static bool retry_is_allowed(struct retry *r, vow_error *e);
static uint64_t retry_backoff_ms(struct retry *r, vow_error *e);
static bool retry_past_deadline(const struct retry *r, uint64_t ms);
static void retry_unref(void *user);
static bool retry_budget_spend(vow_retry_budget *b);

vow_future *vow_retry_at(const char *site, vow_loop *loop, vow_start_fn start,
                         void *arg, const vow_retry_opts *opts)
{
    VOW__ASSERT_THREAD(loop);
    vow_retry_opts o = {.size = sizeof(o)};
    bool known = opts == NULL || opts->size == sizeof(o);
    if (opts != NULL && known)
        o = *opts;
    if (o.tries == 0)
        o.tries = 3;
    if (o.backoff_ms[0] == 0)
        o.backoff_ms[0] = 100;
    if (o.backoff_ms[1] == 0)
        o.backoff_ms[1] = o.backoff_ms[0] > 10000 ? o.backoff_ms[0] : 10000;
    if (start == NULL || !known || o.backoff_ms[1] < o.backoff_ms[0])
        return vow_refused_at(site, loop, VOW_EINVAL,
                              "a retry needs a start function and a largest "
                              "wait that is not below the first");
    struct retry *r = vow__mem_new(vow_loop_alloc(loop), sizeof(*r));
    if (r == NULL)
        return vow_refused_at(site, loop, VOW_ENOMEM, NULL);
    *r = (struct retry){.loop = loop, .site = site, .start = start, .arg = arg};
    r->opts = o;
    r->alloc = *vow_loop_alloc(loop);
    r->refs = 1;
    r->due_ns = UINT64_MAX;
    if (o.deadline_ms > 0)
        r->due_ns = vow_loop_due_ns(loop, o.deadline_ms);
    if (o.budget != NULL) {
        uint64_t saved = o.budget->saved + o.budget->percent;
        o.budget->saved = saved < o.budget->most ? saved : o.budget->most;
        (void)vow_retry_budget_ref(o.budget);
    }
    VOW_AUTO(vow_future) now = vow_resolved_at(site, loop, vow_nothing());
    vow_future *result = retry_next_round(r, now);
    retry_unref(r);
    return result;
}

/* Starts an attempt after the future `after`, and catches the failure. */
static vow_future *retry_next_round(struct retry *r, vow_future *after)
{
    const vow_step round[] = {
        {.ok = retry_start_attempt, .user = r, .drop = retry_unref},
        {.fail = retry_after_failure, .user = r, .drop = retry_unref},
    };
    r->refs += 2;
    return vow_chain_at(r->site, after, round, 2);
}

static vow_next retry_start_attempt(vow_value v, void *user)
{
    struct retry *r = user;
    (void)v;
    if (retry_past_deadline(r, 0))
        return vow_fail_code(VOW_ETIMEDOUT, NULL);
    vow_future *attempt = r->start(r->loop, ++r->attempt, r->arg);
    attempt = vow__coord_started(r->site, r->loop, attempt);
    if (r->due_ns == UINT64_MAX)
        return vow_follow(attempt);
    uint64_t now = vow_loop_now_ns(r->loop); /* start() may have taken long */
    uint64_t left = now < r->due_ns ? r->due_ns - now : 0;
    uint64_t ms = left / VOW__NS_PER_MS + (left % VOW__NS_PER_MS != 0);
    vow_future *bounded = vow_timeout_at(r->site, attempt, ms);
    if (vow_state_of(bounded) == VOW_REJECTED) { /* no timeout set */
        (void)vow_error_of(attempt);
        (void)vow_cancel(attempt, NULL);
    }
    vow_future_unref(attempt);
    return vow_follow(bounded);
}

static vow_next retry_after_failure(vow_error *e, void *user)
{
    struct retry *r = user;
    if (retry_past_deadline(r, 0) && vow_error_code(e) == VOW_ETIMEDOUT &&
        r->last != NULL)
        return vow_fail(vow_error_new_at(
            r->site, r->loop, VOW_ETIMEDOUT, r->last,
            "no success within %llu ms and %u attempts",
            (unsigned long long)r->opts.deadline_ms, r->attempt));
    if (!retry_is_allowed(r, e))
        return vow_pass();
    uint64_t ms = retry_backoff_ms(r, e);
    if (retry_past_deadline(r, ms) ||
        (r->opts.budget != NULL && !retry_budget_spend(r->opts.budget)))
        return vow_pass();
    vow_error_unref(r->last);
    r->last = vow_error_ref(e);
    VOW_AUTO(vow_future) wait = vow_delay_at(r->site, r->loop, ms);
    if (vow_error_of(wait) != NULL) /* no memory, or the loop closes */
        return vow_fail(vow_error_ref(vow_error_of(wait)));
    return vow_follow(retry_next_round(r, wait));
}

static bool retry_is_allowed(struct retry *r, vow_error *e)
{
    if (r->attempt >= r->opts.tries)
        return false;
    if (r->opts.retry_if != NULL)
        return r->opts.retry_if(e, r->opts.retry_if_user);
    return vow_error_code(e) != VOW_ECANCELED &&
           vow_error_code(e) != VOW_ECLOSED;
}

/* Returns the backoff with full jitter, at least the retry-after of the
 * error. */
static uint64_t retry_backoff_ms(struct retry *r, vow_error *e)
{
    uint64_t cap = r->opts.backoff_ms[0];
    for (uint32_t k = 1; k < r->attempt && cap < r->opts.backoff_ms[1]; k++)
        cap = cap > UINT64_MAX / 2 ? UINT64_MAX : 2 * cap;
    if (cap > r->opts.backoff_ms[1])
        cap = r->opts.backoff_ms[1];
    uint64_t any = vow_loop_random(r->loop);
    uint64_t ms = cap == UINT64_MAX ? any : any % (cap + 1);
    uint64_t asked = vow_error_retry_after_ms(e);
    return ms < asked ? asked : ms;
}

/* Returns whether the deadline comes within the next `ms` milliseconds. */
static bool retry_past_deadline(const struct retry *r, uint64_t ms)
{
    uint64_t now = vow_loop_now_ns(r->loop);
    if (r->due_ns == UINT64_MAX)
        return false;
    return now >= r->due_ns ||
           ms >= (r->due_ns - now + VOW__NS_PER_MS - 1) / VOW__NS_PER_MS;
}

static void retry_unref(void *user)
{
    struct retry *r = user;
    if (--r->refs > 0)
        return;
    vow_error_unref(r->last);
    vow_retry_budget_unref(r->opts.budget);
    struct vow_alloc alloc = r->alloc;
    vow__mem_free(&alloc, r, sizeof(*r));
}

/* ---- budget -------------------------------------------------------------- */

int vow_retry_budget_new(vow_loop *loop, uint32_t percent, uint32_t reserve,
                         vow_retry_budget **ret_budget)
{
    VOW__ASSERT_THREAD(loop);
    vow_retry_budget *b = vow__mem_new(vow_loop_alloc(loop), sizeof(*b));
    if (b == NULL)
        return VOW_ENOMEM;
    uint64_t most = (uint64_t)reserve * PERCENT;
    *b = (vow_retry_budget){.alloc = *vow_loop_alloc(loop),
                            .refs = 1,
                            .percent = percent,
                            .saved = most,
                            .most = most};
    *ret_budget = b;
    return 0;
}

vow_retry_budget *vow_retry_budget_ref(vow_retry_budget *b)
{
    if (b != NULL)
        b->refs++;
    return b;
}

vow_retry_budget *vow_retry_budget_unref(vow_retry_budget *b)
{
    if (b != NULL && --b->refs == 0) {
        struct vow_alloc alloc = b->alloc;
        vow__mem_free(&alloc, b, sizeof(*b));
    }
    return NULL;
}

static bool retry_budget_spend(vow_retry_budget *b)
{
    if (b->saved < PERCENT)
        return false;
    b->saved -= PERCENT;
    return true;
}
