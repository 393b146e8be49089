/* SPDX-License-Identifier: MIT */
/* gate_nested.c - jobs asked for from inside other jobs of the same gate.
 *
 * WHY   A job that waits for places which only the end of its own caller can
 *       free waits for ever, and nobody sees why. It is refused instead; or, if
 *       it asks for that, it runs in the places of its caller.
 * HOW   The context tells on whose behalf the asking code runs, through steps
 *       and fibers; every context of a job is a job. A lent job takes nothing
 *       of the concurrency, but its part of what one caller has, so that what
 *       is lent never runs wider than the lender.
 * INVARIANTS
 *   N1  lent of a job == weights of those that run in its places <= its weight
 * THREADS  loop thread only.
 */
#include "coord/gate/gate_internal.h"

static bool behind_one(vow_gate *g, const struct job *j, uint64_t held);
static uint64_t held_above(const struct job *j, vow_context *c,
                           uint64_t *ret_in_group);
static struct run *lender_above(const struct job *j, vow_context *from);
static struct run *next_above(const vow_gate *g, vow_context *c);
static uint64_t when_lent(vow_gate *g, const struct job *j, uint64_t now_ns);

bool vow__gate_job_stuck(const struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    uint64_t in_group;
    vow_context *caller = vow_context_current(g->loop);
    uint64_t held = held_above(j, caller, &in_group);
    if (held == 0)
        return false;
    if (held + j->slots > g->quota.top ||
        in_group + j->slots > j->group->quota.top)
        return true;
    return held + g->heaviest > g->quota.top && behind_one(g, j, held);
}

/* Does it wait behind one that waits for what the jobs around it hold? */
static bool behind_one(vow_gate *g, const struct job *j, uint64_t held)
{
    struct group *group = NULL;
    for (int i = 0; i < LEVELS; i++)
        for (vow_link *l = j->group->level[i]; l != NULL; l = l->next)
            if (held + vow__gate_job_of(l)->slots > g->quota.top &&
                vow__gate_job_of(l) != j &&
                vow__gate_job_before(g, vow__gate_job_of(l), j))
                return true;
    while ((group = vow__gate_group_next(g, group)) != NULL)
        if (group != j->group && group->waiting > 0 &&
            held + vow__gate_group_best(g, group)->slots > g->quota.top)
            return true;
    return false;
}

/* What jobs around the caller hold of this gate, and of this key. */
static uint64_t held_above(const struct job *j, vow_context *c,
                           uint64_t *ret_in_group)
{
    const vow_gate *g = vow__gate_of(j);
    uint64_t held = 0;
    struct run *r = next_above(g, c);
    *ret_in_group = 0;
    while (r != NULL) {
        const struct job *above = r->job;
        held += above->slots;
        if (above->group == j->group)
            *ret_in_group += above->slots;
        while (above->extra != NULL && above->extra->borrows) {
            const struct run *lender = above->extra->lender;
            above = lender->job; /* one that has ended is not above */
            held += lender->context.ended ? above->slots : 0;
        }
        r = next_above(g, vow_context_parent(&r->context));
    }
    return held;
}

/* The nearest job of this gate, from this context on; NULL: none. */
static struct run *next_above(const vow_gate *g, vow_context *c)
{
    for (; c != NULL; c = vow_context_parent(c)) {
        struct run *r = VOW__OUTER(c, struct run, context);
        if (c->owner == &vow__gate_job_kind && !c->ended && r->gate == g)
            return r;
    }
    return NULL;
}

/* ---- lending ------------------------------------------------------------- */

bool vow__gate_job_lend(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    struct run *r = lender_above(j, vow_context_current(g->loop));
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

/* The nearest with as many places, not counting those in which the jobs between
 * run: these wait for this one. */
static struct run *lender_above(const struct job *j, vow_context *from)
{
    const vow_gate *g = vow__gate_of(j);
    struct run *r = next_above(g, from);
    for (; r != NULL; r = next_above(g, vow_context_parent(&r->context))) {
        uint64_t taken = 0;
        struct run *q = next_above(g, from);
        for (; q != r; q = next_above(g, vow_context_parent(&q->context)))
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
        uint64_t when = when_lent(g, vow__gate_job_of(l), now_ns);
        if (when == 0)
            return vow__gate_job_of(l);
        *wake = when < *wake ? when : *wake;
    }
    return NULL;
}

static uint64_t when_lent(vow_gate *g, const struct job *j, uint64_t now_ns)
{
    const struct run *r = j->extra->lender;
    if (r->context.ended || (uint64_t)r->lent + j->weight > r->job->weight)
        return UINT64_MAX; /* another has them: keeps N1 */
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

/* To the next above that has as many, or else to the line: unless it would
 * wait there for one above. */
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
        struct run *r = lender_above(j, above);
        if (r != NULL)
            (void)vow_context_ref(&r->context);
        j->extra->lender = r;
        vow_context_unref(&lender->context); /* which has its own job's left */
        if (r != NULL)
            continue; /* still lent */
        vow__gate_queue_leave(j);
        j->slots = j->weight;
        if (held_above(j, above, &in_group) + j->slots > g->quota.top)
            vow__gate_job_leaves(j, vow_error_new_at(vow__gate_job_site(j),
                                                     g->loop, VOW_EDEADLK, NULL,
                                                     NULL));
        else
            vow__gate_queue_return(j);
    }
}
