/* SPDX-License-Identifier: MIT */
/* gate_backing.c - the backing: a shared limit outside of the gate, asked
 * before a job starts.
 *
 * WHY   A limit shared by processes is far away and often used up. A job that
 *       cannot start in this process must not take from the shared limit, so
 *       the limits of the gate come first.
 * HOW   An admitted job holds slots and a part of the rate while asking. The
 *       request is sent from the loop's queue, because admission runs no
 *       foreign code. The job has a single watch: first for the answer, then
 *       for the loss of the grant. A change of the limits or a pause cancels
 *       the requests: the jobs return to their position in the wait queue, and
 *       ask again. A grant is held as long as the slots.
 * INVARIANTS
 *   A1  a job in `asking` has slots and no grant
 *   A2  a grant is held by a job in STARTS, RUNS or ENDED, or by a permit; a
 *       running job has a grant, or uses the grant of the lender
 * LIMITS  at most as many requests at a time as the limits of the gate admit.
 * THREADS  loop thread only.
 */
#include "coord/gate/gate_internal.h"
#include "coord/started.h"

static void job_ask_backing(void *job);
static vow_future *job_leave_asking(struct job *j);
static void on_backing_answer(vow_future *request, void *job);
static void job_take_answer(struct job *j, vow_future *request);
static void backed_permit_grant(struct job *j);
static void on_grant_lost(vow_future *lost, void *job);
static void grant_report_start(vow_grant *g);
static void backed_value_drop(void *job);

static struct backed *job_backed_of(const struct job *j)
{
    return VOW__OUTER(j->extra, struct backed, extra);
}

/* ---- request ------------------------------------------------------------- */

void vow__gate_backing_ask(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    g->quota.reserved += j->weight;
    j->group->quota.reserved += j->weight;
    j->state = JOB_BACKING;
    vow__list_push(&g->asking, &j->link);
    g->asking_count++;
    vow_call_soon(&j->extra->call, g->loop, job_ask_backing, j);
}

static void job_ask_backing(void *job)
{
    struct job *j = job;
    vow_gate *g = vow__gate_of(j);
    const vow_backing *backing = g->opts.backing;
    const char *site = vow__gate_job_site(j);
    const char *key = j->group == &g->keyless ? NULL : j->group->key_node.name;
    if (vow_deferred_canceled(j->out) || vow_loop_closing(g->loop))
        return; /* the cancel hook is queued, or will be */
    vow_future *request = backing->acquire(backing, site, key, j->weight);
    job_backed_of(j)->request = vow__coord_started(site, g->loop, request);
    vow_watch_settled(&job_backed_of(j)->watch, job_backed_of(j)->request,
                      on_backing_answer, j);
    vow__gate_job_bound(j);
}

void vow__gate_backing_ask_end(struct job *j)
{
    vow_future *request = job_leave_asking(j);
    vow__gate_job_give_back(j);
    if (request == NULL)
        return;
    (void)vow_cancel(request, NULL);
    (void)vow_error_of(request);
    vow_future_unref(request);
}

/* Removes the job from `asking`; the job keeps the slots. Returns the request,
 * owned; NULL: not sent yet. */
static vow_future *job_leave_asking(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    struct backed *b = job_backed_of(j);
    vow_future *request = b->request;
    vow__list_remove(&g->asking, &j->link);
    g->asking_count--;
    (void)vow_call_stop(&j->extra->call);
    (void)vow_watch_stop(&b->watch);
    b->request = NULL;
    return request;
}

/* Goes from the last job to the first: each job is inserted before later
 * jobs. */
void vow__gate_backing_recall(vow_gate *g, const struct group *group)
{
    vow_link *l = g->asking == NULL ? NULL : g->asking->prev;
    while (l != NULL) {
        struct job *j = vow__gate_job_of(l);
        l = l == g->asking ? NULL : l->prev;
        if (group != NULL && j->group != group)
            continue;
        vow__gate_backing_ask_end(j);
        vow__gate_queue_return(j);
    }
}

/* ---- answer -------------------------------------------------------------- */

static void on_backing_answer(vow_future *request, void *job)
{
    vow_gate *g = vow_gate_ref(vow__gate_of(job));
    vow_future *own = job_leave_asking(job);
    job_take_answer(job, request);
    vow_future_unref(own);
    vow__gate_admit(g);
    vow_gate_unref(g);
}

static void job_take_answer(struct job *j, vow_future *request)
{
    vow_gate *g = vow__gate_of(j);
    vow_grant *granted = vow_grant_take(vow_get(request));
    vow_error *refusal = vow_error_of(request);
    if (granted != NULL && granted->lost != NULL)
        refusal = vow_error_of(granted->lost); /* lost before the start */
    job_backed_of(j)->grant = granted;
    if (refusal != NULL || granted == NULL) {
        g->refused++;
        vow_error_ref(refusal);
        vow__gate_job_give_back(j);
        if (refusal != NULL)
            vow__gate_job_reject_with(j, refusal);
        else
            vow__gate_job_reject(j, VOW_EINVAL, "the backing granted nothing");
    } else if (vow_deferred_canceled(j->out)) {
        vow__gate_job_give_back(j);
        j->state = JOB_CANCELING; /* the cancel hook is queued */
    } else if (j->is_task) {
        vow__gate_job_starts(j);
    } else {
        backed_permit_grant(j);
    }
}

/* Resolves the future with the job, as without a backing. The destructor of the
 * value is another function: the tag tells the two kinds of permits apart. */
static void backed_permit_grant(struct job *j)
{
    vow_deferred *out = j->out;
    j->state = JOB_RUNS;
    j->out = NULL;
    j->u.since_ns =
        vow__gate_begins(vow__gate_of(j), j->group, j->weight, j->number);
    vow__gate_job_unreserve(j);
    (void)vow_resolve_drop(out, vow_own(j, backed_value_drop));
}

/* ---- grant --------------------------------------------------------------- */

static void grant_report_start(vow_grant *g)
{
    if (g->started != NULL)
        g->started(g);
}

void vow__gate_grant_watch(struct job *j, vow_future *attempt)
{
    const struct job *holder = j;
    while (holder->extra->borrows)
        holder = holder->extra->lender->job;
    vow_grant *grant = job_backed_of(holder)->grant;
    vow_future *lost = grant->lost;
    job_backed_of(j)->attempt = attempt;
    if (holder == j)
        grant_report_start(grant);
    if (lost != NULL)
        vow_watch_settled(&job_backed_of(j)->watch, lost, on_grant_lost, j);
}

static void on_grant_lost(vow_future *lost, void *job)
{
    struct job *j = job;
    vow_error *why = vow_error_of(lost);
    if (why != NULL && j->state == JOB_RUNS)
        (void)vow_cancel(job_backed_of(j)->attempt, why);
}

void vow__gate_grant_return(struct job *j)
{
    vow_grant *g = job_backed_of(j)->grant;
    job_backed_of(j)->grant = NULL;
    vow_grant_release(g);
}

/* ---- permits ------------------------------------------------------------- */

/* Moves the permit out together with the extra, which has the grant and the
 * group. */
vow_permit vow__gate_backed_take(vow_value granted)
{
    vow_permit p = {0};
    struct job *j = granted.as.ptr;
    if (granted.tag != vow_own(NULL, backed_value_drop).tag || j->weight == 0)
        return p;
    vow_gate *g = vow__gate_of(j);
    grant_report_start(job_backed_of(j)->grant);
    job_backed_of(j)->group = j->group;
    p = (vow_permit){.of = g, .group = job_backed_of(j), .weight = j->weight};
    p.since_ns = j->u.since_ns;
    j->extra = NULL;
    j->group = &g->keyless;
    j->weight = 0;
    return p;
}

/* Runs when the future is destroyed; releases a permit that was not taken. */
static void backed_value_drop(void *job)
{
    vow_permit p = vow__gate_backed_take(vow_own(job, backed_value_drop));
    vow__gate_job_free(job);
    vow_permit_release(&p);
}

struct group *vow__gate_backed_release(const vow_permit *p)
{
    struct backed *b = p->group;
    struct group *group = b->group;
    vow_grant *granted = b->grant;
    vow__gate_extra_free(p->of, &b->extra);
    vow_grant_release(granted);
    return group;
}

static const vow_grant *permit_grant_of(const vow_permit *p)
{
    if (!vow_permit_held(p) || !vow__gate_backed(p->of))
        return NULL;
    return ((const struct backed *)p->group)->grant;
}

vow_future *vow_permit_lost(const vow_permit *p)
{
    const vow_grant *g = permit_grant_of(p);
    return g == NULL ? NULL : g->lost;
}

uint64_t vow_permit_fence(const vow_permit *p)
{
    const vow_grant *g = permit_grant_of(p);
    return g == NULL ? 0 : g->fence;
}
