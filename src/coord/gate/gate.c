/* SPDX-License-Identifier: MIT */
/* gate.c - the gate: create, submit jobs, grant and release permits.
 *
 * WHY   Serializer, semaphore and throttle are settings of the same limiter: a
 *       single slot, weights, a rate. A gate grants all limits together, so a
 *       job holds no slots while waiting for the rate, and the reverse.
 * HOW   A request becomes a job and joins the wait queue (gate_queue.c). Every
 *       change that may let a job start calls vow__gate_admit().
 *       vow__gate_admit() runs no foreign code: admitted jobs move to
 *       `starting`, and the loop's queue begins them (gate_run.c). A permit
 *       without waiting needs no job.
 * INVARIANTS
 *   G1  a job is in the list named by the job's state
 *   G2  an admitted job or permit has taken slots from the quota of the gate
 *       and from the quota of the key
 *   G3  a job or a permit keeps the gate alive and is a user of a group
 * THREADS  loop thread only.
 */
#include "coord/gate/gate_internal.h"

enum {
    JOBS_PER_SLAB = 32,
    TIDY_MS = 1000,
    KEYS_MAX = 65536,
    QUEUE_MAX = 1048576
};

const char vow__gate_job_kind = 0;

static const vow_gate_opts gate_defaults = {.size = sizeof(gate_defaults)};
static const vow_job_opts job_defaults = {.size = sizeof(job_defaults)};

static void gate_free(vow_gate *g);
static int job_check(const vow_gate *g, const vow_job_opts *o,
                     const char **ret_text);
static vow_future *gate_refuse_job(const char *site, vow_gate *g, int code,
                                   const char *text);
VOW__INLINE struct job *gate_job_alloc(vow_gate *g,
                                       struct vow__slab_cache *cache,
                                       const char *site, uint32_t weight);
static struct extra *extra_new(vow_gate *g, const struct vow__gate_task *task,
                               const vow_job_opts *o);
static size_t extra_size(const vow_gate *g);
static void run_drop(void *context);
static void gate_tidy_later(vow_gate *g);
static void gate_tidy(void *gate);
VOW__COLD static bool permit_try_slowly(vow_gate *g, const vow_job_opts *o,
                                        uint32_t weight,
                                        vow_permit *ret_permit);
static bool permit_may_start_now(vow_gate *g, struct group *group,
                                 uint32_t weight);
static void permit_release_slowly(vow_gate *g, const vow_permit *p,
                                  uint32_t weight)
    __attribute__((noinline)); /* not cold: busy semaphores take this path */
static struct group *permit_detach_group(const vow_permit *p);
static vow_permit permit_move_out(struct job *j);
static void permit_value_drop(void *job);

/* ---- create and destroy -------------------------------------------------- */

int vow_gate_new(vow_loop *loop, const vow_gate_opts *opts, vow_gate **ret_gate)
{
    VOW__ASSERT_THREAD(loop);
    vow_gate_opts o = opts == NULL ? gate_defaults : *opts;
    int rc = vow__gate_complete(&o);
    if (rc < 0)
        return rc;
    const struct vow_alloc *alloc = vow_loop_alloc(loop);
    vow_gate *g = vow__mem_zero(alloc, sizeof(*g));
    if (g == NULL)
        return VOW_ENOMEM;
    g->loop = loop;
    g->alloc = *alloc;
    g->opts = o;
    g->refs = 1;
    g->timer_ns = UINT64_MAX;
    g->keyless.quota.most = UINT32_MAX;
    g->keyless.quota.most_max = UINT32_MAX;
    g->anchor = vow_resolved(loop, vow_nothing());
    rc = vow__coord_quota_init(&g->quota, &g->alloc, vow__gate_limits(&o));
    if (rc < 0 || vow_state_of(g->anchor) != VOW_FULFILLED) {
        vow_future_unref(g->anchor);
        vow__coord_quota_fini(&g->quota, alloc);
        vow__mem_free(alloc, g, sizeof(*g));
        return VOW_ENOMEM;
    }
    bool pooled = (vow_loop_flags(loop) & VOW_LOOP_UNPOOLED) == 0;
    vow__slab_init(&g->jobs, &g->alloc, g, sizeof(struct job), pooled);
    vow__slab_init(&g->permits, &g->alloc, g, offsetof(struct job, start),
                   pooled);
    vow__slab_init(&g->runs, &g->alloc, g, sizeof(struct run), pooled);
    g->jobs.walked = g->permits.walked = g->runs.walked = false;
    if (pooled) {
        g->jobs.per_slab = JOBS_PER_SLAB;
        g->permits.per_slab = JOBS_PER_SLAB;
        g->runs.per_slab = JOBS_PER_SLAB;
    }
    vow__table_init(&g->keys, &g->alloc, vow_loop_random(loop));
    vow__coord_tick_init(&g->tick, loop);
    (void)vow_oracle_ref(o.oracle);
    if (o.backing != NULL)
        o.backing->ref(o.backing);
    g->all_have_extra = vow__gate_drops(g) || o.backing != NULL;
    vow__gate_adapt(g, o.adapt_min);
    vow__gate_slow(g, SLOW_TIMED, true);
    vow__gate_slow(g, SLOW_ORACLE, o.oracle != NULL);
    vow__gate_slow(g, SLOW_BACKED, o.backing != NULL);
    *ret_gate = g;
    return 0;
}

int vow__gate_complete(vow_gate_opts *o)
{
    const uint64_t ms_max = UINT64_C(1) << 40; /* 34 years */
    const uint64_t age_max = 86400000;         /* a day */
    if (o->size != sizeof(*o) || o->rate > VOW__RATE_MAX ||
        o->key_rate > VOW__RATE_MAX || o->window_ms > ms_max ||
        o->key_window_ms > ms_max || o->age_ms > age_max ||
        o->overflow > VOW_OVERFLOW_WAIT || o->adapt_min > o->concurrent)
        return VOW_EINVAL;
    const vow_backing *b = o->backing;
    if (b != NULL && (b->acquire == NULL || b->ref == NULL || b->unref == NULL))
        return VOW_EINVAL;
    o->window_ms = o->window_ms == 0 ? 1000 : o->window_ms;
    o->key_window_ms = o->key_window_ms == 0 ? 1000 : o->key_window_ms;
    o->age_ms = o->age_ms == 0 ? 1000 : o->age_ms;
    o->queue_max = o->queue_max == 0 ? QUEUE_MAX : o->queue_max;
    o->keys_max = o->keys_max == 0 ? KEYS_MAX : o->keys_max;
    if (o->queue_bytes > SIZE_MAX / 2) /* avoids overflow when a job is added */
        o->queue_bytes = SIZE_MAX / 2;
    return 0;
}

struct vow__coord_limits vow__gate_limits(const vow_gate_opts *o)
{
    return (struct vow__coord_limits){.most = o->concurrent,
                                      .rate = o->rate,
                                      .window_ns =
                                          o->window_ms * VOW__NS_PER_MS,
                                      .even = o->even};
}

struct vow__coord_limits vow__gate_key_limits(const vow_gate_opts *o)
{
    return (struct vow__coord_limits){.most = o->key_concurrent,
                                      .rate = o->key_rate,
                                      .window_ns =
                                          o->key_window_ms * VOW__NS_PER_MS};
}

vow_gate *vow_gate_ref(vow_gate *g)
{
    VOW__ASSERT_THREAD_OF(g, g->loop);
    if (g != NULL)
        g->refs++;
    return g;
}

vow_gate *vow_gate_unref(vow_gate *g)
{
    VOW__ASSERT_THREAD_OF(g, g->loop);
    if (g != NULL && --g->refs == 0 && g->active == 0)
        gate_free(g);
    return NULL;
}

static void gate_free(vow_gate *g)
{
    struct vow_alloc alloc = g->alloc;
    vow_future *anchor = g->anchor;
    const vow_backing *backing = g->opts.backing;
    VOW__ASSERT(g->waiting == 0);
    VOW__ASSERT(g->idle_waits == NULL);
    VOW__ASSERT(g->room_waits == NULL);
    (void)vow_call_stop(&g->timer);
    (void)vow_call_stop(&g->begin);
    (void)vow_call_stop(&g->tidy);
    vow__gate_groups_free(g);
    vow__table_fini(&g->keys);
    vow__slab_fini(&g->jobs);
    vow__slab_fini(&g->permits);
    vow__slab_fini(&g->runs);
    vow__coord_quota_fini(&g->quota, &alloc);
    vow_oracle_unref(g->opts.oracle);
    vow__mem_free(&alloc, g, sizeof(*g));
    if (backing != NULL)
        backing->unref(backing);
    vow_future_unref(anchor);
}

void vow__gate_slow(vow_gate *g, uint32_t bit, bool on)
{
    g->slow = on ? g->slow | bit : g->slow & ~bit;
}

uint64_t vow__gate_now(vow_gate *g)
{
    return (g->slow & SLOW_TIMED) == 0 ? 0 : vow__coord_tick_low(&g->tick);
}

/* ---- submit -------------------------------------------------------------- */

vow_future *vow_gate_run_at(const char *site, vow_gate *g, vow_start_fn start,
                            void *arg, const vow_job_opts *job)
{
    VOW__ASSERT_THREAD(g->loop);
    const vow_job_opts *o = job == NULL ? &job_defaults : job;
    const struct vow__gate_task task = {.start = start, .arg = arg};
    if (start == NULL)
        return gate_refuse_job(site, g, VOW_EINVAL,
                               "a job needs a start function");
    if (o->size == sizeof(*o) && o->retry != NULL)
        return vow__gate_retry(site, g, start, arg, o);
    return vow__gate_submit(g, site, &task, o);
}

vow_future *vow_gate_enter_at(const char *site, vow_gate *g,
                              const vow_job_opts *job)
{
    VOW__ASSERT_THREAD(g->loop);
    const vow_job_opts *o = job == NULL ? &job_defaults : job;
    const struct vow__gate_task task = {.start = NULL};
    if (o->size == sizeof(*o) &&
        (o->retry != NULL || o->nested == VOW_NESTED_LEND))
        return gate_refuse_job(site, g, VOW_EINVAL,
                               "a permit is neither retried nor lent");
    return vow__gate_submit(g, site, &task, o);
}

vow_future *vow__gate_submit(vow_gate *g, const char *site,
                             const struct vow__gate_task *task,
                             const vow_job_opts *o)
{
    const char *text = NULL;
    struct group *group;
    int rc = job_check(g, o, &text);
    if (rc == 0)
        rc = vow__gate_group_get(g, o->key, &group);
    if (rc < 0)
        return gate_refuse_job(site, g, rc, text);
    struct job *j = NULL;
    if (!vow__coord_quota_possible(&group->quota, o->weight))
        text = "the weight is above what the key's limits will ever allow";
    else
        j = vow__gate_job_new(g, site, task, o);
    if (j == NULL) {
        vow__gate_group_leave(g, group);
        rc = text == NULL ? VOW_ENOMEM : VOW_EINVAL;
        return gate_refuse_job(site, g, rc, text);
    }
    j->group = group;
    vow_future *future = vow_deferred_future(j->out);
    rc = vow__gate_queue_join(j, &text);
    if (rc < 0) {
        g->refused++;
        vow__gate_job_reject(j, rc, text);
    }
    if (g->leaving != NULL)
        vow__gate_flush(g);
    return future;
}

static int job_check(const vow_gate *g, const vow_job_opts *o,
                     const char **ret_text)
{
    if (g->closed || vow_loop_closing(g->loop))
        return VOW_ECLOSED;
    if (o->size != sizeof(*o))
        *ret_text = "options of another version";
    else if (o->priority < LOWEST || o->priority > HIGHEST)
        *ret_text = "the priority is not between -16 and 15";
    else if (!vow__coord_quota_possible(&g->quota, o->weight))
        *ret_text = "the weight is above what the limits will ever allow";
    else if (o->nested > VOW_NESTED_APART)
        *ret_text = "unknown .nested: use VOW_NESTED_REFUSE, VOW_NESTED_LEND "
                    "or VOW_NESTED_APART";
    return *ret_text == NULL ? 0 : VOW_EINVAL;
}

static vow_future *gate_refuse_job(const char *site, vow_gate *g, int code,
                                   const char *text)
{
    g->refused++;
    return vow_refused_at(site, g->loop, code, text);
}

struct job *vow__gate_job_new(vow_gate *g, const char *site,
                              const struct vow__gate_task *task,
                              const vow_job_opts *o)
{
    struct extra *x = NULL;
    bool is_task = task->start != NULL;
    if ((o->deadline_ms > 0 || o->bytes > 0 || task->attempts != NULL ||
         o->nested == VOW_NESTED_LEND || g->all_have_extra) &&
        (x = extra_new(g, task, o)) == NULL)
        return NULL;
    struct job *j = gate_job_alloc(g, is_task ? &g->jobs : &g->permits, site,
                                   o->weight == 0 ? 1 : o->weight);
    if (j == NULL) {
        vow__gate_extra_free(g, x);
        return NULL;
    }
    j->extra = x;
    if (x != NULL)
        x->job = j;
    j->level = (uint8_t)(o->priority - LOWEST);
    j->nested = (uint8_t)o->nested;
    if (is_task) {
        j->is_task = true;
        j->start = task->start;
        j->arg = task->arg;
        j->in.caller = vow_context_ref(vow_context_current(g->loop));
    }
    return j;
}

struct job *vow__gate_permit_new(vow_gate *g, const char *site, uint32_t weight)
{
    return gate_job_alloc(g, &g->permits, site, weight);
}

VOW__INLINE struct job *gate_job_alloc(vow_gate *g,
                                       struct vow__slab_cache *cache,
                                       const char *site, uint32_t weight)
{
    struct vow__slab *slab;
    struct job *j = vow__slab_take(cache, &slab);
    if (j == NULL)
        return NULL;
    vow_future *future = vow_promise_at(site, g->loop, &j->out);
    if (!vow_deferred_pending(j->out)) { /* no memory for the promise */
        vow_deferred_unref(j->out);
        vow_future_unref(future);
        vow__slab_give(slab, j);
        return NULL;
    }
    g->refs++;
    j->slab = slab;
    j->group = &g->keyless;
    j->extra = NULL;
    j->u.since_ns = 0;
    j->number = ++g->last_number;
    j->weight = weight;
    j->slots = weight;
    j->bypassed = 0;
    j->level = -LOWEST;
    j->nested = VOW_NESTED_REFUSE;
    j->is_task = false;
    return j;
}

static struct extra *extra_new(vow_gate *g, const struct vow__gate_task *task,
                               const vow_job_opts *o)
{
    struct extra *x = vow__mem_zero(&g->alloc, extra_size(g));
    if (x == NULL)
        return NULL;
    x->bytes = o->bytes;
    x->attempts = vow__gate_attempts_ref(task->attempts);
    x->deadline_ms = o->deadline_ms;
    if (o->deadline_ms > 0)
        x->due_ns = vow_loop_due_ns(g->loop, o->deadline_ms);
    return x;
}

static size_t extra_size(const vow_gate *g)
{
    return vow__gate_backed(g) ? sizeof(struct backed) : sizeof(struct extra);
}

void vow__gate_extra_free(vow_gate *g, struct extra *x)
{
    if (x == NULL)
        return;
    (void)vow_call_stop(&x->call);
    if (x->lender != NULL)
        vow_context_unref(&x->lender->context);
    vow__gate_attempts_unref(x->attempts);
    if (vow__gate_backed(g))
        (void)vow_watch_stop(&VOW__OUTER(x, struct backed, extra)->watch);
    vow__mem_free(&g->alloc, x, extra_size(g));
}

/* Drops the reference to the gate last: the job lies in memory of the gate. */
void vow__gate_job_free(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    if (j->is_task && j->state >= JOB_RUNS && j->state <= JOB_ENDED)
        vow_context_unref(&j->in.run->context);
    else if (j->is_task)
        vow_context_unref(j->in.caller);
    if (j->extra != NULL)
        vow__gate_extra_free(g, j->extra);
    if (j->group != &g->keyless)
        vow__gate_group_leave(g, j->group);
    vow__slab_give(j->slab, j);
    if (!g->tidy_pending && g->jobs.empties + g->permits.empties > 0)
        gate_tidy_later(g);
    vow_gate_unref(g);
}

struct run *vow__gate_run_new(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    struct vow__slab *slab;
    struct run *r = vow__slab_take(&g->runs, &slab);
    if (r == NULL)
        return NULL;
    r->slab = slab;
    r->gate = vow_gate_ref(g);
    r->job = j;
    r->lent = 0;
    r->context.owner = &vow__gate_job_kind;
    r->context.drop = run_drop;
    vow_context *before = vow_context_enter(g->loop, j->in.caller);
    vow_context_init(&r->context, g->loop);
    vow_context_leave(g->loop, before);
    vow_context *caller = j->in.caller;
    j->in.run = r;
    j->state = JOB_RUNS;
    vow__list_push(&g->running, &j->link);
    vow_context_unref(caller); /* may run foreign code */
    return r;
}

static void run_drop(void *context)
{
    struct run *r = VOW__OUTER(context, struct run, context);
    vow_gate *g = r->gate;
    vow__slab_give(r->slab, r);
    vow_gate_unref(g);
}

/* Trims in TIDY_MS steps: a burst must not keep memory for ever, and a steady
 * load must not free and allocate all the time. */
static void gate_tidy_later(vow_gate *g)
{
    g->tidy_pending = true;
    vow_call_weakly_at(&g->tidy, g->loop, vow_loop_due_ns(g->loop, TIDY_MS),
                       gate_tidy, g);
}

static void gate_tidy(void *gate)
{
    vow_gate *g = gate;
    g->tidy_pending = false;
    bool jobs = vow__slab_decay(&g->jobs);
    bool permits = vow__slab_decay(&g->permits);
    bool runs = vow__slab_decay(&g->runs);
    if (jobs || permits || runs)
        gate_tidy_later(g);
}

/* ---- permits ------------------------------------------------------------- */

bool vow_gate_try(vow_gate *g, const vow_job_opts *job, vow_permit *ret_permit)
{
    VOW__ASSERT_THREAD(g->loop);
    uint32_t weight = job == NULL || job->weight == 0 ? 1 : job->weight;
    if (VOW__UNLIKELY(
            (g->slow & SLOW_MASK) != 0 ||
            (job != NULL && (job->key != NULL || job->size != sizeof(*job)))))
        return permit_try_slowly(g, job == NULL ? &job_defaults : job, weight,
                                 ret_permit);
    if (!vow__coord_quota_fits(&g->quota, weight))
        return false;
    if (g->quota.rate > 0) {
        if (weight > g->quota.rate ||
            vow__coord_quota_when(&g->quota, weight,
                                  vow__coord_tick_low(&g->tick)) != 0)
            return false;
        vow__coord_quota_stamp(&g->quota, weight,
                               vow__coord_tick_high(&g->tick));
    }
    vow__gate_grant(g, weight, ret_permit);
    return true;
}

static bool permit_try_slowly(vow_gate *g, const vow_job_opts *o,
                              uint32_t weight, vow_permit *ret_permit)
{
    const char *text = NULL;
    struct group *group;
    if (vow__gate_backed(g) || job_check(g, o, &text) < 0 ||
        vow__gate_group_get(g, o->key, &group) < 0)
        return false;
    if (!permit_may_start_now(g, group, weight)) {
        vow__gate_group_leave(g, group);
        return false;
    }
    g->last_number++;
    uint64_t now = vow__gate_begins(g, group, weight, g->last_number);
    vow__gate_take(g, group, weight);
    *ret_permit = (vow_permit){.of = g, .since_ns = now, .weight = weight};
    ret_permit->group = group == &g->keyless ? NULL : group;
    return true;
}

/* Returns whether a new permit can start now without passing a waiting job. */
static bool permit_may_start_now(vow_gate *g, struct group *group,
                                 uint32_t weight)
{
    uint64_t now = vow__gate_now(g);
    if (vow__gate_paused(g, now) || now < group->paused_ns)
        return false;
    if (g->ring != NULL || g->lent != NULL || g->outside != NULL ||
        group->waiting > 0)
        return false;
    return vow__coord_quota_possible(&group->quota, weight) &&
           vow__coord_quota_fits(&g->quota, weight) &&
           vow__coord_quota_fits(&group->quota, weight) &&
           vow__coord_quota_when(&g->quota, weight, now) == 0 &&
           vow__coord_quota_when(&group->quota, weight, now) == 0;
}

vow_value vow__gate_permit_value(struct job *j)
{
    return vow_own(j, permit_value_drop);
}

vow_permit vow_permit_take(vow_value granted)
{
    vow_permit p = {0};
    struct job *j = granted.as.ptr;
    if (VOW__UNLIKELY(granted.tag != vow__gate_permit_value(NULL).tag))
        return vow__gate_backed_take(granted);
    if (j->weight == 0)
        return p;
    return permit_move_out(j);
}

/* Moves the permit out of the job; the permit becomes the user of the group. */
static vow_permit permit_move_out(struct job *j)
{
    struct group *keyless = &vow__gate_of(j)->keyless;
    vow_permit p = {.of = vow__gate_of(j), .since_ns = j->u.since_ns};
    p.group = j->group == keyless ? NULL : j->group;
    p.weight = j->weight;
    j->group = keyless;
    j->weight = 0;
    return p;
}

/* Runs when the future is destroyed; releases a permit that was not taken. */
static void permit_value_drop(void *job)
{
    struct job *j = job;
    vow_permit p = permit_move_out(j);
    vow__gate_job_free(j);
    vow_permit_release(&p);
}

void vow_permit_release(vow_permit *p)
{
    vow_gate *g = p->of;
    uint32_t weight = p->weight;
    if (weight == 0)
        return;
    VOW__ASSERT_THREAD(g->loop);
    p->weight = 0;
    if (VOW__UNLIKELY((g->slow & SLOW_MASK) != 0 || p->group != NULL ||
                      g->refs == 0)) {
        permit_release_slowly(g, p, weight);
        return;
    }
    g->quota.held -= weight;
    g->active--;
}

/* Returns the group of a permit, and releases the grant if there is a
 * backing. */
static struct group *permit_detach_group(const vow_permit *p)
{
    return vow__gate_backed(p->of) ? vow__gate_backed_release(p) : p->group;
}

static void permit_release_slowly(vow_gate *g, const vow_permit *p,
                                  uint32_t weight)
{
    struct group *group =
        p->group == NULL ? &g->keyless : permit_detach_group(p);
    g->refs++;
    if (g->opts.oracle != NULL)
        vow_oracle_end(g->opts.oracle, weight);
    if (p->since_ns > 0)
        vow__gate_learn(g, p->since_ns, NULL, group);
    vow__gate_release(g, group, weight);
    vow__gate_group_leave(g, group);
    vow__gate_admit(g);
    vow_gate_unref(g);
}
