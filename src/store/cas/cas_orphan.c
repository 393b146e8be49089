/* SPDX-License-Identifier: MIT */
/* cas_orphan.c - claims without an answer, which may hold a name.
 *
 * WHY   All names of a process hang on shared leases. A name whose claim had no
 *       answer would be held as long as the process lives, without an owner; in
 *       mode once, the name would then be in doubt, though no work has begun.
 * HOW   The orphan stays with the name, and looks at the name when no claim is
 *       in the lane, again and again until the service answers. If the record
 *       is the token's, the run is abandoned. If the record has the version
 *       that the claim compared, the claim may still come true: the record is
 *       written again, so that the version does not fit any more. A name
 *       without a record gets a tombstone.
 *       A further claim with the token adopts the orphan: the answer to come
 *       tells the caller. A claim with another token gives the orphan back
 *       first: in mode once, the name would else be in doubt.
 * LIMITS  A write that comes true more than CAS_KEEP_MS after the tombstone has
 *         an effect. Without memory, no orphan is looked for.
 * THREADS  the thread of the loop.
 */
#include "store/cas/cas_internal.h"

#include <string.h>

enum { FIRST_MS = 200, DOUBLINGS = 5 };

struct cas_orphan {
    vow_link link; /* in the orphans of the name */
    struct cas_name *name;
    vow_token token;
    uint64_t version; /* that the claim compared */
    vow_call due;
    unsigned doublings;
};

/* One attempt to give a name back. */
struct cas_give {
    struct cas_step step;
    struct cas_change change;
    vow_token token;
    uint64_t version;
};

static void on_orphan_due(void *user);
static void orphan_free(struct cas_orphan *o);
static int give_start(struct cas_orphan *o);

static struct cas_orphan *orphan_at(vow_link *l)
{
    return VOW__OUTER(l, struct cas_orphan, link);
}

static struct cas_orphan *orphan_find(const struct cas_name *n,
                                      const vow_token *token)
{
    for (vow_link *l = n->orphans; l != NULL; l = l->next)
        if (memcmp(&orphan_at(l)->token, token, sizeof(*token)) == 0)
            return orphan_at(l);
    return NULL;
}

static void orphan_wait(struct cas_orphan *o)
{
    vow_loop *loop = o->name->cas->loop;
    uint64_t ms = (uint64_t)FIRST_MS << o->doublings;
    o->doublings += o->doublings < DOUBLINGS;
    vow_call_weakly_at(&o->due, loop, vow_loop_due_ns(loop, ms), on_orphan_due,
                       o);
}

/* ---- coming and going ---------------------------------------------------- */

void vow__cas_orphan_claim(const struct cas_change *c)
{
    struct cas_name *n = c->name;
    struct cas_orphan *o = orphan_find(n, c->token);
    if (o == NULL)
        o = vow__mem_zero(&c->cas->alloc, sizeof(*o));
    else
        vow__list_remove(&n->orphans, &o->link);
    if (o == NULL)
        return;
    o->name = n;
    o->token = *c->token;
    o->version = c->unsure ? c->unsure_version : 0;
    vow__list_push(&n->orphans, &o->link);
    if (!c->cas->closing)
        orphan_wait(o);
    else if (give_start(o) < 0)
        orphan_free(o);
}

void vow__cas_orphan_adopt(struct cas_name *n, const vow_token *token)
{
    struct cas_orphan *o = orphan_find(n, token);
    VOW__ASSERT(n->steps > 0);
    if (o != NULL)
        orphan_free(o);
}

/* During a step, so that C1 stays. */
static void orphan_free(struct cas_orphan *o)
{
    struct cas_name *n = o->name;
    VOW__ASSERT(n->steps > 0);
    (void)vow_call_stop(&o->due);
    vow__list_remove(&n->orphans, &o->link);
    vow__mem_free(&n->cas->alloc, o, sizeof(*o));
}

void vow__cas_orphans_close(struct cas *s)
{
    struct vow__table_node *node = vow__table_next(&s->names, NULL);
    while (node != NULL) {
        struct cas_name *n = VOW__OUTER(node, struct cas_name, node);
        node = vow__table_next(&s->names, node);
        (void)vow__cas_name_use(s, &n->name);
        vow_link *next;
        for (vow_link *l = n->orphans; l != NULL; l = next) {
            next = l->next;
            (void)vow_call_stop(&orphan_at(l)->due);
            if (give_start(orphan_at(l)) < 0)
                orphan_free(orphan_at(l));
        }
        vow__cas_name_drop(n);
    }
}

/* A claim in the lane comes first: the answer may tell more. */
static void on_orphan_due(void *user)
{
    struct cas_orphan *o = user;
    if (o->name->lanes[CAS_ASK].active != NULL || give_start(o) < 0)
        orphan_wait(o);
}

/* ---- giving back --------------------------------------------------------- */

static struct decision decide_give(const struct cas_change *c,
                                   const struct rules_record *r,
                                   const struct rules_record *left,
                                   struct rules_now now)
{
    const struct cas_give *g = VOW__OUTER(c, struct cas_give, change);
    vow_commit_request q = {.hold = {.name = c->name->name, .token = g->token},
                            .outcome = VOW_OUTCOME_ABANDONED};
    (void)left;
    if (vow__cas_name_owned(c->name, &g->token))
        q.flags = VOW_COMMIT_RESOLVE; /* a later claim was answered */
    else if (r != NULL && r->state == RULES_RUNNING &&
             memcmp(&r->token, &g->token, sizeof(g->token)) == 0)
        q.hold.epoch = r->epoch;
    else if (r != NULL && r->refresh.epoch != 0 &&
             memcmp(&r->refresh.token, &g->token, sizeof(g->token)) == 0)
        q.hold.epoch = r->refresh.epoch;
    else
        q.flags = VOW_COMMIT_RESOLVE; /* epoch 0: nothing changes */
    struct decision d = vow__rules_commit(r, &q, now);
    if (q.hold.epoch == 0 && c->found.version == g->version) {
        d.effects = EFFECT_WRITE;
        if (d.next.state == RULES_NONE)
            d.effects |= EFFECT_CLEAR;
    } else if (q.hold.epoch == 0) {
        d.effects = 0;
    }
    return d;
}

static int give_change(struct cas_give *g, struct cas_name *n, uint64_t due_ns)
{
    struct cas_change *c = &g->change;
    c->cas = n->cas;
    c->name = n;
    c->decide = decide_give;
    c->token = &g->token;
    c->insist = true;
    c->due_ns = due_ns;
    return vow__cas_change_run(c);
}

void vow__cas_orphans_settle(struct cas_name *n, uint64_t due_ns)
{
    int rc = 0;
    while (rc == 0 && n->orphans != NULL) {
        struct cas_orphan *o = orphan_at(n->orphans);
        struct cas_give g = {.token = o->token, .version = o->version};
        rc = give_change(&g, n, due_ns);
        vow__cas_change_fini(&g.change);
        o = orphan_find(n, &g.token);
        if (rc == 0 && o != NULL)
            orphan_free(o);
    }
}

static int give_run(struct cas_step *step)
{
    struct cas_give *g = VOW__OUTER(step, struct cas_give, step);
    if (orphan_find(step->name, &g->token) == NULL)
        return 0; /* adopted */
    int rc = give_change(g, step->name, step->due_ns);
    struct cas_orphan *o = orphan_find(step->name, &g->token);
    if (o == NULL)
        return rc;
    if (rc == 0 || step->cas->closing)
        orphan_free(o);
    else
        orphan_wait(o);
    return rc;
}

static void give_fini(struct cas_step *step)
{
    struct cas_give *g = VOW__OUTER(step, struct cas_give, step);
    struct cas_orphan *o = orphan_find(step->name, &g->token);
    vow__cas_change_fini(&g->change);
    if (o == NULL || vow_call_pending(&o->due))
        return;
    if (step->cas->closing) /* the step did not begin */
        orphan_free(o);
    else
        orphan_wait(o);
}

static const struct cas_step_ops give_ops = {
    .size = sizeof(struct cas_give), .run = give_run, .fini = give_fini};

static int give_start(struct cas_orphan *o)
{
    struct cas_name *n = o->name;
    struct cas_step *step =
        vow__cas_step_new(n->cas, &give_ops, CAS_ASK, &n->name);
    if (step == NULL)
        return VOW_ENOMEM;
    struct cas_give *g = VOW__OUTER(step, struct cas_give, step);
    g->token = o->token;
    g->version = o->version;
    vow__cas_step_start(step);
    return 0;
}
