/* SPDX-License-Identifier: MIT */
/* gate_live.c - changes of a gate while jobs wait and run: limits, pauses,
 * reported overload, clear and close.
 *
 * HOW   A change of the limits allocates everything first, so a failed change
 *       leaves the gate as before. The adaptive limit grows while all slots are
 *       in use and jobs succeed, by one slot per round of jobs. Overload
 *       multiplies the limit by 0.7; jobs begun before the last decrease do not
 *       lower the limit again. Jobs to reject leave all lists first and are
 *       settled at the end, because settling may run foreign code.
 * THREADS  loop thread only.
 */
#include "coord/gate/gate_internal.h"

static const double DECREASE = 0.7;
enum { MEAN_OF = 8 };

typedef bool (*job_test)(const struct job *j);

struct rejection {
    int code;
    const char *text;
    vow_error *cause; /* borrowed, may be NULL */
};

static int quotas_new(vow_gate *g, const vow_gate_opts *o,
                      struct vow__coord_quota **ret_fresh);
static void quotas_change(vow_gate *g, const vow_gate_opts *o,
                          struct vow__coord_quota *fresh);
static void jobs_reject_waiting(vow_gate *g, job_test selects,
                                const struct rejection *r);
static void jobs_reject_in_list(vow_link *first, job_test selects,
                                const struct rejection *r);
static bool job_is_any(const struct job *j);
static bool job_never_fits(const struct job *j);
static void gate_apply_overload(vow_gate *g, struct group *group, uint64_t ms,
                                uint64_t began_ns);

/* ---- limits -------------------------------------------------------------- */

vow_gate_opts vow_gate_get(const vow_gate *g)
{
    VOW__ASSERT_THREAD(g->loop);
    return g->opts;
}

int vow_gate_set(vow_gate *g, const vow_gate_opts *opts)
{
    VOW__ASSERT_THREAD(g->loop);
    vow_gate_opts o = *opts;
    struct vow__coord_quota *fresh = NULL;
    int rc = vow__gate_complete(&o);
    bool rates = o.rate != g->opts.rate || o.key_rate != g->opts.key_rate;
    if (rc == 0 && rates)
        rc = quotas_new(g, &o, &fresh);
    if (rc < 0)
        return rc;
    vow__gate_recall(g);
    quotas_change(g, &o, fresh);
    o.overflow = g->opts.overflow;
    o.oracle = g->opts.oracle;
    o.backing = g->opts.backing;
    bool adapts = g->opts.adapt_min > 0;
    g->opts = o;
    vow__gate_adapt(g, adapts ? g->adaptive_limit : o.adapt_min);
    if (o.oracle != NULL)
        vow_oracle_expect(o.oracle, o.concurrent, o.rate, o.window_ms);
    struct group *group = NULL;
    while ((group = vow__gate_group_next(g, group)) != NULL)
        if (group->waiting > 0 && group->place != GROUP_IN_RING)
            vow__gate_group_place(g, group, GROUP_IN_RING, 0);
    vow__gate_refuse_waits(g);
    jobs_reject_waiting(
        g, job_never_fits,
        &(struct rejection){.code = VOW_EINVAL,
                            .text = "the limits became smaller than the job"});
    return 0;
}

/* Makes quotas with the new limits: for the gate, then for the keys in
 * order. */
static int quotas_new(vow_gate *g, const vow_gate_opts *o,
                      struct vow__coord_quota **ret_fresh)
{
    size_t n = g->keys.count + 1;
    uint64_t now = vow__gate_now(g);
    struct vow__coord_quota *fresh =
        vow__mem_zero(&g->alloc, n * sizeof(fresh[0]));
    if (fresh == NULL)
        return VOW_ENOMEM;
    struct vow__coord_quota *next = fresh;
    struct group *group = &g->keyless;
    int rc = vow__coord_quota_prepare(next++, &g->quota, &g->alloc,
                                      vow__gate_limits(o), now);
    while (rc == 0 && (group = vow__gate_group_next(g, group)) != NULL)
        rc = vow__coord_quota_prepare(next++, &group->quota, &g->alloc,
                                      vow__gate_key_limits(o), now);
    if (rc == 0) {
        *ret_fresh = fresh;
        return 0;
    }
    while (next > fresh)
        vow__coord_quota_fini(--next, &g->alloc);
    vow__mem_free(&g->alloc, fresh, n * sizeof(fresh[0]));
    return rc;
}

/* Applies the new limits. `fresh` is NULL if no rate changes. */
static void quotas_change(vow_gate *g, const vow_gate_opts *o,
                          struct vow__coord_quota *fresh)
{
    struct vow__coord_quota *next = fresh;
    struct group *group = &g->keyless;
    if (fresh == NULL)
        vow__coord_quota_change(&g->quota, vow__gate_limits(o));
    else
        vow__coord_quota_replace(&g->quota, next++, &g->alloc);
    while ((group = vow__gate_group_next(g, group)) != NULL)
        if (fresh == NULL)
            vow__coord_quota_change(&group->quota, vow__gate_key_limits(o));
        else
            vow__coord_quota_replace(&group->quota, next++, &g->alloc);
    vow__mem_free(&g->alloc, fresh, (g->keys.count + 1) * sizeof(fresh[0]));
}

/* ---- pause --------------------------------------------------------------- */

void vow_gate_pause(vow_gate *g)
{
    VOW__ASSERT_THREAD(g->loop);
    g->paused = true;
    vow__gate_slow(g, SLOW_PAUSED, true);
    vow__gate_recall(g);
    vow__gate_admit(g); /* stops the timer */
}

void vow_gate_resume(vow_gate *g)
{
    VOW__ASSERT_THREAD(g->loop);
    g->paused = false;
    g->paused_ns = 0;
    vow__gate_slow(g, SLOW_PAUSED, false);
    vow__gate_admit(g);
}

void vow_gate_report(vow_gate *g, const char *key, uint64_t retry_after_ms)
{
    VOW__ASSERT_THREAD(g->loop);
    struct group *group;
    if (vow__gate_group_get(g, key, &group) < 0)
        group = &g->keyless; /* no room for the key: pause all */
    gate_apply_overload(g, group, retry_after_ms, UINT64_MAX);
    vow__gate_group_leave(g, group);
    vow__gate_recall(g);
    vow__gate_admit(g);
}

bool vow__gate_paused(vow_gate *g, uint64_t now_ns)
{
    if (!g->paused && g->paused_ns > 0 && now_ns >= g->paused_ns) {
        g->paused_ns = 0;
        vow__gate_slow(g, SLOW_PAUSED, false);
    }
    return g->paused || now_ns < g->paused_ns;
}

/* Pauses a key, or with `keyless` the whole gate, and lowers the adaptive
 * limit. */
static void gate_apply_overload(vow_gate *g, struct group *group, uint64_t ms,
                                uint64_t began_ns)
{
    uint64_t now = vow_loop_now_ns(g->loop);
    uint64_t until = vow_loop_due_ns(g->loop, ms);
    uint64_t *paused = group == &g->keyless ? &g->paused_ns : &group->paused_ns;
    if (ms > 0 && until > *paused) {
        *paused = until;
        vow__gate_backing_recall(g, group == &g->keyless ? NULL : group);
    }
    vow__gate_slow(g, SLOW_PAUSED, g->paused || g->paused_ns > now);
    if (g->opts.adapt_min > 0 && began_ns >= g->lowered_ns) {
        g->lowered_ns = now;
        vow__gate_adapt(g, g->adaptive_limit * DECREASE);
    }
}

/* ---- adaptive limit ------------------------------------------------------ */

void vow__gate_adapt(vow_gate *g, double from)
{
    double min = g->opts.adapt_min;
    double max = g->opts.concurrent;
    vow__gate_slow(g, SLOW_ADAPT, min > 0);
    if (g->opts.adapt_min == 0)
        return;
    g->adaptive_limit = from < min ? min : from > max ? max : from;
    g->quota.most = (uint32_t)g->adaptive_limit;
}

void vow__gate_learn(vow_gate *g, uint64_t began_ns, vow_error *failure,
                     struct group *group)
{
    if ((g->slow & SLOW_TIMED) == 0)
        return;
    uint64_t now = g->beginning ? g->tick.ns : vow__gate_now(g);
    uint64_t took = now > began_ns ? now - began_ns : 0;
    g->mean_ns = g->mean_ns == 0
                     ? took
                     : g->mean_ns - g->mean_ns / MEAN_OF + took / MEAN_OF;
    bool full = g->waiting > 0 || g->quota.held >= g->quota.most;
    if (failure == NULL && g->opts.adapt_min > 0 && full)
        vow__gate_adapt(g, g->adaptive_limit + 1 / g->adaptive_limit);
    if (failure != NULL && g->opts.overloaded != NULL &&
        g->opts.overloaded(failure, g->opts.overloaded_user))
        gate_apply_overload(g, group, vow_error_retry_after_ms(failure),
                            began_ns);
}

/* ---- clear and close ----------------------------------------------------- */

void vow_gate_clear(vow_gate *g, vow_error *why)
{
    VOW__ASSERT_THREAD(g->loop);
    jobs_reject_waiting(
        g, job_is_any,
        &(struct rejection){.code = VOW_ECANCELED,
                            .text = "the gate's queue was cleared",
                            .cause = why});
}

void vow_gate_close(vow_gate *g)
{
    VOW__ASSERT_THREAD(g->loop);
    g->closed = true;
    vow__gate_slow(g, SLOW_CLOSED, true);
    jobs_reject_waiting(
        g, job_is_any,
        &(struct rejection){.code = VOW_ECLOSED, .text = "the gate is closed"});
}

/* Rejects the waiting jobs selected by the test. */
static void jobs_reject_waiting(vow_gate *g, job_test selects,
                                const struct rejection *r)
{
    struct group *group = NULL;
    vow_gate_ref(g);
    vow__gate_recall(g); /* jobs not begun count as waiting */
    while ((group = vow__gate_group_next(g, group)) != NULL)
        for (uint32_t left = group->levels; left != 0; left &= left - 1)
            jobs_reject_in_list(group->level[__builtin_ctz(left)], selects, r);
    jobs_reject_in_list(g->lent, selects, r);
    jobs_reject_in_list(g->outside, selects, r);
    vow__gate_admit(g);
    vow__gate_flush(g);
    vow_gate_unref(g);
}

/* Gives each job an error of its own, with the call site of the job. */
static void jobs_reject_in_list(vow_link *first, job_test selects,
                                const struct rejection *r)
{
    while (first != NULL) {
        struct job *j = vow__gate_job_of(first);
        first = first->next;
        if (!selects(j))
            continue;
        vow__gate_queue_leave(j);
        vow__gate_job_leaves(j, vow_error_new_at(vow__gate_job_site(j),
                                                 vow__gate_of(j)->loop, r->code,
                                                 r->cause, "%s", r->text));
    }
}

static bool job_is_any(const struct job *j)
{
    (void)j;
    return true;
}

static bool job_never_fits(const struct job *j)
{
    if (j->state == JOB_OUTSIDE && !vow__gate_job_may_queue(j))
        return true;
    return !vow__coord_quota_possible(&vow__gate_of(j)->quota, j->weight) ||
           !vow__coord_quota_possible(&j->group->quota, j->weight);
}
