/* SPDX-License-Identifier: MIT */
/* semaphore.c - a semaphore: a gate with a single limit.
 *
 * HOW   Nothing depends on time, so a semaphore never reads the clock, unless
 *       bypass_ms is set. A free permit costs a few nanoseconds.
 * THREADS  loop thread only.
 */
#include "vow/semaphore.h"
#include "coord/gate/gate_internal.h"

static bool sem_joins_simply(const vow_gate *g, uint32_t weight);

static inline vow_gate *sem_gate_of(const vow_sem *s)
{
    return (vow_gate *)(uintptr_t)s;
}

int vow_sem_new(vow_loop *loop, const vow_sem_opts *opts, vow_sem **ret_sem)
{
    static const vow_sem_opts defaults = {.size = sizeof(defaults)};
    const vow_sem_opts *o = opts == NULL ? &defaults : opts;
    vow_gate *g;
    if (o->size != sizeof(*o))
        return VOW_EINVAL;
    int rc = vow_gate_new(
        loop,
        VOW_GATE(.concurrent = o->permits == 0 ? 1 : o->permits,
                 .queue_max = o->queue_max, .bypass_count = o->bypass_count,
                 .bypass_ms = o->bypass_ms, .backing = o->backing),
        &g);
    if (rc < 0)
        return rc;
    vow__gate_slow(g, SLOW_TIMED, o->bypass_ms > 0);
    *ret_sem = (vow_sem *)(void *)g;
    return 0;
}

vow_sem *vow_sem_ref(vow_sem *s)
{
    (void)vow_gate_ref(sem_gate_of(s));
    return s;
}

vow_sem *vow_sem_unref(vow_sem *s)
{
    (void)vow_gate_unref(sem_gate_of(s));
    return NULL;
}

vow_future *vow_sem_acquire_at(const char *site, vow_sem *s, uint32_t weight)
{
    VOW__ASSERT_THREAD(sem_gate_of(s)->loop);
    vow_gate *g = sem_gate_of(s);
    if (weight == 0)
        return vow_refused_at(site, g->loop, VOW_EINVAL,
                              "a permit of weight 0");
    struct job *j = NULL;
    if (VOW__LIKELY(sem_joins_simply(g, weight)))
        j = vow__gate_permit_new(g, site, weight);
    if (VOW__UNLIKELY(j == NULL)) /* slow path; reports errors */
        return vow_gate_enter_at(site, g, VOW_JOB(.weight = weight));
    vow_future *future = vow_deferred_future(j->out);
    if (g->waiting == 0 && vow__coord_quota_fits(&g->quota, weight)) {
        vow__gate_job_let_in(j);
    } else {
        vow_on_cancel_now(j->out, vow__gate_job_cancel, j);
        vow__gate_queue_insert(j);
    }
    return future;
}

/* Returns whether the number of slots is the only thing to check: the new job
 * then waits at the end of the queue, or not at all. */
static bool sem_joins_simply(const vow_gate *g, uint32_t weight)
{
    return vow__gate_plain(g) && g->queued < g->opts.queue_max &&
           weight <= g->quota.most_max && g->opts.queue_max != VOW_NO_QUEUE &&
           vow_context_current(g->loop) == NULL && !vow_loop_closing(g->loop);
}

bool vow_sem_try(vow_sem *s, uint32_t weight, vow_permit *ret_permit)
{
    VOW__ASSERT_THREAD(sem_gate_of(s)->loop);
    vow_gate *g = sem_gate_of(s);
    if (VOW__UNLIKELY((g->slow & SLOW_MASK) != 0))
        return weight > 0 &&
               vow_gate_try(g, VOW_JOB(.weight = weight), ret_permit);
    if (weight == 0 || !vow__coord_quota_fits(&g->quota, weight))
        return false;
    vow__gate_grant(g, weight, ret_permit);
    return true;
}

vow_future *vow_sem_with_at(const char *site, vow_sem *s, uint32_t weight,
                            vow_start_fn start, void *arg)
{
    if (weight == 0)
        return vow_sem_acquire_at(site, s, 0);
    return vow_gate_run_at(site, sem_gate_of(s), start, arg,
                           VOW_JOB(.weight = weight));
}

vow_future *vow_sem_wait_at(const char *site, vow_sem *s)
{
    return vow_gate_idle_at(site, sem_gate_of(s));
}

int vow_sem_resize(vow_sem *s, uint32_t permits)
{
    vow_gate_opts o = vow_gate_get(sem_gate_of(s));
    if (permits == 0)
        return VOW_EINVAL;
    o.concurrent = permits;
    return vow_gate_set(sem_gate_of(s), &o);
}

void vow_sem_close(vow_sem *s)
{
    vow_gate_close(sem_gate_of(s));
}

vow_sem_stats vow_sem_stats_get(const vow_sem *s)
{
    VOW__ASSERT_THREAD(sem_gate_of(s)->loop);
    const vow_gate *g = sem_gate_of(s);
    return (vow_sem_stats){.permits = g->quota.most,
                           .held = g->quota.held,
                           .waiting = g->waiting + g->asking_count};
}
