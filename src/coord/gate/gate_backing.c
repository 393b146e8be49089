/* SPDX-License-Identifier: MIT */
/* gate_backing.c - limits of somebody else: a job that has its places here asks the
 * backing, and what it was granted is held as long as its places are.
 *
 * WHY   A limit that processes share is far away, and often used up. Who cannot
 *       start here shall not take from there; so the own limits come first.
 * HOW   A job that was let in holds its places and its part of the rate while
 *       it asks, and does so from the loop's queue, since letting in runs
 *       nobody's code. One watch of the job is for the answer, and then for the
 *       loss of the grant. What changes the limits or stops the gate takes the
 *       questions back: their jobs wait where they waited, and ask again.
 * INVARIANTS
 *   A1  a job in `asking` has its places, and no grant
 *   A2  a grant is held by a job in STARTS, RUNS or ENDED, or by a permit; all
 *       that run have one, or that of the job in whose places they are
 * LIMITS  as many ask at once as the own limits let in.
 * THREADS  loop thread only.
 */
#include "coord/gate/gate_internal.h"
#include "coord/started.h"

static void ask(void *job);
static vow_future *leave(struct job *j);
static void on_answer(vow_future *asked, void *job);
static void answered(struct job *j, vow_future *asked);
static void grant(struct job *j);
static void on_lost(vow_future *lost, void *job);
static void tell_start(vow_grant *g);
static void permit_drop(void *job);

static struct backed *backed_of(const struct job *j)
{
    return VOW__OUTER(j->extra, struct backed, extra);
}

/* ---- asking -------------------------------------------------------------- */

void vow__gate_backing_ask(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    g->quota.reserved += j->weight;
    j->group->quota.reserved += j->weight;
    j->state = JOB_BACKING;
    vow__list_push(&g->asking, &j->link);
    g->asking_count++;
    vow_call_soon(&j->extra->call, g->loop, ask, j);
}

static void ask(void *job)
{
    struct job *j = job;
    vow_gate *g = vow__gate_of(j);
    const vow_backing *to = g->opts.backing;
    const char *site = vow__gate_job_site(j);
    const char *key = j->group == &g->no_key ? NULL : j->group->named.name;
    if (vow_deferred_canceled(j->out) || vow_loop_closing(g->loop))
        return; /* its hook is in the queue, or will be */
    vow_future *asked = to->acquire(to, site, key, j->weight);
    backed_of(j)->asked = vow__coord_started(site, g->loop, asked);
    vow_watch_settled(&backed_of(j)->watch, backed_of(j)->asked, on_answer, j);
    vow__gate_job_bound(j);
}

void vow__gate_backing_ask_end(struct job *j)
{
    vow_future *asked = leave(j);
    vow__gate_job_give_back(j);
    if (asked == NULL)
        return;
    (void)vow_cancel(asked, NULL);
    (void)vow_error_of(asked);
    vow_future_unref(asked);
}

/* Out of the list, with its places; returns what it asked for, owned. */
static vow_future *leave(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    struct backed *b = backed_of(j);
    vow_future *asked = b->asked;
    vow__list_remove(&g->asking, &j->link);
    g->asking_count--;
    (void)vow_call_stop(&j->extra->call);
    (void)vow_watch_stop(&b->watch);
    b->asked = NULL;
    return asked;
}

/* From the last to the first, each before all that came after it. */
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

/* ---- the answer ---------------------------------------------------------- */

static void on_answer(vow_future *asked, void *job)
{
    vow_gate *g = vow_gate_ref(vow__gate_of(job));
    vow_future *own = leave(job);
    answered(job, asked);
    vow_future_unref(own);
    vow__gate_admit(g);
    vow_gate_unref(g);
}

static void answered(struct job *j, vow_future *asked)
{
    vow_gate *g = vow__gate_of(j);
    vow_grant *granted = vow_grant_take(vow_get(asked));
    vow_error *refusal = vow_error_of(asked);
    if (granted != NULL && granted->lost != NULL)
        refusal = vow_error_of(granted->lost); /* it is too late already */
    backed_of(j)->grant = granted;
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
        j->state = JOB_LEFT; /* its hook is in the queue */
    } else if (j->is_task) {
        vow__gate_job_starts(j);
    } else {
        grant(j);
    }
}

/* The value of the future is the job, as without a backing, but of another
 * kind: so that those are not asked which they are. */
static void grant(struct job *j)
{
    vow_deferred *out = j->out;
    j->state = JOB_RUNS;
    j->out = NULL;
    j->u.since_ns =
        vow__gate_begins(vow__gate_of(j), j->group, j->weight, j->number);
    vow__gate_job_unreserve(j);
    (void)vow_resolve_drop(out, vow_own(j, permit_drop));
}

/* ---- the grant ----------------------------------------------------------- */

static void tell_start(vow_grant *g)
{
    if (g->started != NULL)
        g->started(g);
}

void vow__gate_grant_watch(struct job *j, vow_future *attempt)
{
    const struct job *holder = j;
    while (holder->extra->borrows)
        holder = holder->extra->lender->job;
    vow_grant *grant = backed_of(holder)->grant;
    vow_future *lost = grant->lost;
    backed_of(j)->attempt = attempt;
    if (holder == j)
        tell_start(grant);
    if (lost != NULL)
        vow_watch_settled(&backed_of(j)->watch, lost, on_lost, j);
}

static void on_lost(vow_future *lost, void *job)
{
    struct job *j = job;
    vow_error *why = vow_error_of(lost);
    if (why != NULL && j->state == JOB_RUNS)
        (void)vow_cancel(backed_of(j)->attempt, why);
}

void vow__gate_grant_return(struct job *j)
{
    vow_grant *g = backed_of(j)->grant;
    backed_of(j)->grant = NULL;
    vow_grant_release(g);
}

/* ---- permits ------------------------------------------------------------- */

/* Moved out with the extra, which has the grant and the use of the group. */
vow_permit vow__gate_backed_take(vow_value granted)
{
    vow_permit p = {0};
    struct job *j = granted.as.ptr;
    if (granted.tag != vow_own(NULL, permit_drop).tag || j->weight == 0)
        return p;
    vow_gate *g = vow__gate_of(j);
    tell_start(backed_of(j)->grant);
    backed_of(j)->group = j->group;
    p = (vow_permit){.of = g, .group = backed_of(j), .weight = j->weight};
    p.since_ns = j->u.since_ns;
    j->extra = NULL;
    j->group = &g->no_key;
    j->weight = 0;
    return p;
}

/* The future is gone; with it goes what nobody took. */
static void permit_drop(void *job)
{
    vow_permit p = vow__gate_backed_take(vow_own(job, permit_drop));
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

static const vow_grant *grant_of(const vow_permit *p)
{
    if (!vow_permit_held(p) || !vow__gate_backed(p->of))
        return NULL;
    return ((const struct backed *)p->group)->grant;
}

vow_future *vow_permit_lost(const vow_permit *p)
{
    const vow_grant *g = grant_of(p);
    return g == NULL ? NULL : g->lost;
}

uint64_t vow_permit_fence(const vow_permit *p)
{
    const vow_grant *g = grant_of(p);
    return g == NULL ? 0 : g->fence;
}
