/* SPDX-License-Identifier: MIT */
/* gate_nested.c - jobs submitted from inside other jobs of the same gate.
 *
 * WHY   A job that waits for slots of an enclosing job waits for ever, without
 *       a visible reason. The job is refused instead; or, on request, runs in
 *       slots of the enclosing job.
 * HOW   The current context tells on behalf of which job code runs, through
 *       steps and fibers; every context of a job is a struct run. A lent job
 *       takes no slots of the gate, but borrows slots of the lender; so nested
 *       jobs never run with more weight than the lender has.
 * INVARIANTS
 *   N1  run.lent == sum of the weights of the jobs in borrowed slots, and is at
 *       most the weight of the lender
 * THREADS  loop thread only.
 */
#include "coord/gate/gate_internal.h"

static bool job_behind_blocked(vow_gate *g, const struct job *j, uint64_t held);
static uint64_t slots_held_above(const struct job *j, vow_context *c,
                                 uint64_t *ret_in_group);
static struct run *run_find_lender(const struct job *j, vow_context *from);
static struct run *run_next_above(const vow_gate *g, vow_context *c);
static uint64_t lent_start_ns(vow_gate *g, const struct job *j,
                              uint64_t now_ns);

bool vow__gate_job_stuck(const struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    uint64_t in_group;
    vow_context *caller = vow_context_current(g->loop);
    uint64_t held = slots_held_above(j, caller, &in_group);
    if (held == 0)
        return false;
    if (held + j->slots > g->quota.most_max ||
        in_group + j->slots > j->group->quota.most_max)
        return true;
    return held + g->heaviest > g->quota.most_max &&
           job_behind_blocked(g, j, held);
}

/* Returns whether the job waits behind a job that needs slots held by the
 * enclosing jobs. */
static bool job_behind_blocked(vow_gate *g, const struct job *j, uint64_t held)
{
    struct group *group = NULL;
    for (int i = 0; i < LEVELS; i++)
        for (vow_link *l = j->group->level[i]; l != NULL; l = l->next)
            if (held + vow__gate_job_of(l)->slots > g->quota.most_max &&
                vow__gate_job_of(l) != j &&
                vow__gate_job_before(g, vow__gate_job_of(l), j))
                return true;
    while ((group = vow__gate_group_next(g, group)) != NULL)
        if (group != j->group && group->waiting > 0 &&
            held + vow__gate_group_best(g, group)->slots > g->quota.most_max)
            return true;
    return false;
}

/* Returns the slots of the gate held by enclosing jobs, and the slots of the
 * key. */
static uint64_t slots_held_above(const struct job *j, vow_context *c,
                                 uint64_t *ret_in_group)
{
    const vow_gate *g = vow__gate_of(j);
    uint64_t held = 0;
    struct run *r = run_next_above(g, c);
    *ret_in_group = 0;
    while (r != NULL) {
        const struct job *above = r->job;
        held += above->slots;
        if (above->group == j->group)
            *ret_in_group += above->slots;
        while (above->extra != NULL && above->extra->borrows) {
            const struct run *lender = above->extra->lender;
            above = lender->job; /* run_next_above() skips an ended lender */
            held += lender->context.ended ? above->slots : 0;
        }
        r = run_next_above(g, vow_context_parent(&r->context));
    }
    return held;
}

/* Returns the nearest run of this gate, from the context upward; NULL: none. */
static struct run *run_next_above(const vow_gate *g, vow_context *c)
{
    for (; c != NULL; c = vow_context_parent(c)) {
        struct run *r = VOW__OUTER(c, struct run, context);
        if (c->owner == &vow__gate_job_kind && !c->ended && r->gate == g)
            return r;
    }
    return NULL;
}

/* ---- lend ---------------------------------------------------------------- */

bool vow__gate_job_lend(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    struct run *r = run_find_lender(j, vow_context_current(g->loop));
    if (r == NULL)
        return false;
    vow__gate_queue_leave(j);
    (void)vow_context_ref(&r->context);
    j->extra->lender = r;
    j->slots = 0;
    vow__gate_queue_lend(j);
    vow__gate_admit(g);
    return true;
}

/* Returns the nearest run with enough slots. Slots used by the runs in between
 * do not count: those runs wait for this job. */
static struct run *run_find_lender(const struct job *j, vow_context *from)
{
    const vow_gate *g = vow__gate_of(j);
    struct run *r = run_next_above(g, from);
    for (; r != NULL; r = run_next_above(g, vow_context_parent(&r->context))) {
        uint64_t taken = 0;
        struct run *q = run_next_above(g, from);
        for (; q != r; q = run_next_above(g, vow_context_parent(&q->context)))
            if (q->job->extra != NULL && q->job->extra->borrows &&
                q->job->extra->lender == r)
                taken += q->job->weight;
        if (taken + j->weight <= r->job->weight)
            break;
    }
    return r;
}

struct job *vow__gate_lent_next(vow_gate *g, uint64_t now_ns, uint64_t *wake)
{
    for (vow_link *l = g->lent; l != NULL; l = l->next) {
        uint64_t when = lent_start_ns(g, vow__gate_job_of(l), now_ns);
        if (when == 0)
            return vow__gate_job_of(l);
        *wake = when < *wake ? when : *wake;
    }
    return NULL;
}

static uint64_t lent_start_ns(vow_gate *g, const struct job *j, uint64_t now_ns)
{
    const struct run *r = j->extra->lender;
    if (r->context.ended || (uint64_t)r->lent + j->weight > r->job->weight)
        return UINT64_MAX; /* slots are in use; keeps N1 */
    uint64_t when = vow__coord_quota_when(&g->quota, j->weight, now_ns);
    uint64_t own = vow__gate_group_blocks(j->group, j, now_ns);
    return own > when ? own : when;
}

void vow__gate_job_borrow(struct job *j)
{
    if (j->extra == NULL || j->extra->lender == NULL)
        return;
    j->extra->lender->lent += j->weight;
    j->extra->borrows = true;
}

/* Moves each job to the next lender above, or else to the wait queue; rejects a
 * job that would wait there for an enclosing job. */
void vow__gate_lent_orphans(vow_gate *g, struct run *lender)
{
    vow_link *next = g->lent;
    while (next != NULL) {
        struct job *j = vow__gate_job_of(next);
        next = next->next;
        if (j->extra->lender != lender)
            continue;
        uint64_t in_group;
        vow_context *above = vow_context_parent(&lender->context);
        struct run *r = run_find_lender(j, above);
        if (r != NULL)
            (void)vow_context_ref(&r->context);
        j->extra->lender = r;
        vow_context_unref(&lender->context); /* not the last reference */
        if (r != NULL)
            continue; /* still lent */
        vow__gate_queue_leave(j);
        j->slots = j->weight;
        if (slots_held_above(j, above, &in_group) + j->slots >
            g->quota.most_max)
            vow__gate_job_leaves(j, vow_error_new_at(vow__gate_job_site(j),
                                                     g->loop, VOW_EDEADLK, NULL,
                                                     NULL));
        else
            vow__gate_queue_return(j);
    }
}
