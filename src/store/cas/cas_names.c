/* SPDX-License-Identifier: MIT */
/* cas_names.c - claim, commit, forget, cancel, write: one name, one change.
 *
 * HOW   A step copies the request, and its fiber runs one cas_change. Here is
 *       which rule decides, and what the cache learns from the answer.
 * THREADS  the thread of the loop.
 */
#include "store/cas/cas_internal.h"

#include <stdio.h>
#include <string.h>

/* ---- one change ---------------------------------------------------------- */

struct cas_one {
    struct cas_step step;
    struct cas_change change;
    union {
        vow_claim_request claim;
        vow_commit_request commit;
        uint64_t epoch; /* of forget */
        struct {
            vow_hold hold;
            uint64_t number;
            size_t size;
            size_t most;
        } chunk;
    } ask;
    char label[VOW_LABEL_MAX + 1];
    char runner[VOW_LABEL_MAX + 1];
};

static struct cas_one *one_of(struct cas_step *step)
{
    return VOW__OUTER(step, struct cas_one, step);
}

/* Makes a step, or refuses by `done`. */
static struct cas_one *one_new(vow_store *store, const struct cas_step_ops *ops,
                               enum cas_class class, const vow_name *name,
                               vow_records_fn done, void *user)
{
    struct cas *s = vow__cas_of(store);
    struct cas_step *step = NULL;
    if (!s->closing)
        step = vow__cas_step_new(s, ops, class, name);
    if (step == NULL) {
        done(s->closing ? VOW_ECLOSED : VOW_ENOMEM, NULL, 0, user);
        return NULL;
    }
    step->done.records = done;
    step->user = user;
    struct cas_one *one = one_of(step);
    one->change.cas = s;
    one->change.name = step->name;
    one->change.due_ns = step->due_ns;
    one->change.request = &one->ask;
    return one;
}

static int one_run(struct cas_step *step)
{
    return vow__cas_change_run(&one_of(step)->change);
}

static void one_answer(struct cas_step *step, int code)
{
    const struct cas_one *one = one_of(step);
    if (code < 0) {
        step->done.records(code, NULL, 0, step->user);
        return;
    }
    const vow_record r = vow__cas_change_answer(&one->change);
    step->done.records(0, &r, 1, step->user);
}

static void one_fini(struct cas_step *step)
{
    struct cas_one *one = one_of(step);
    vow_bytes_unref(one->change.value);
    vow__cas_change_fini(&one->change);
}

static void label_copy(char to[VOW_LABEL_MAX + 1], const char *from)
{
    (void)snprintf(to, VOW_LABEL_MAX + 1, "%s", from == NULL ? "" : from);
}

/* ---- claim --------------------------------------------------------------- */

static struct decision decide_claim(const struct cas_change *c,
                                    const struct rules_record *r,
                                    const struct rules_record *left,
                                    struct rules_now now)
{
    return vow__rules_claim(r, left, c->request, now);
}

/* Returns whether the step itself made the caller the owner, by the last write
 * or by a write without an answer. */
static bool claim_granted(const struct cas_change *c)
{
    if (c->d.code != 0 || c->d.status != VOW_STATUS_OWNED ||
        vow__cas_name_owned(c->name, c->token))
        return false;
    return c->was_unsure ||
           (c->wrote && (c->d.refresh || (c->d.effects & EFFECT_TEXTS) != 0));
}

static int claim_run(struct cas_step *step)
{
    struct cas_one *one = one_of(step);
    struct cas_change *c = &one->change;
    struct cas_name *n = step->name;
    vow__cas_orphan_adopt(n, c->token);
    vow__cas_orphans_settle(n, c->due_ns);
    n->renewals++;
    int rc = vow__cas_change_run(c);
    n->renewals--;
    if (c->unsure || (step->answered && claim_granted(c))) {
        vow__cas_orphan_claim(c); /* the caller does not know of a grant */
        if (step->answered)
            return rc;
    }
    if (rc < 0)
        return rc;
    if (c->d.status == VOW_STATUS_OWNED)
        vow__cas_name_own(n, c->token, c->lease_ms);
    if (c->d.status != VOW_STATUS_WAITING)
        vow__cas_name_await(n, false, 0);
    else if (c->wait)
        vow__cas_name_await(n, true, c->d.first);
    return rc;
}

static const struct cas_step_ops claim_ops = {.size = sizeof(struct cas_one),
                                              .run = claim_run,
                                              .answer = one_answer,
                                              .fini = one_fini};

void vow__cas_claim(vow_store *s, const vow_claim_request *q,
                    vow_records_fn done, void *user)
{
    struct cas_one *one = one_new(s, &claim_ops, CAS_ASK, &q->name, done, user);
    if (one == NULL)
        return;
    struct cas_change *c = &one->change;
    one->ask.claim = *q;
    label_copy(one->label, q->label);
    label_copy(one->runner, q->runner);
    c->decide = decide_claim;
    c->token = &one->ask.claim.token;
    c->lease_ms = q->lease_ms;
    c->leases = true;
    c->wait = (q->flags & VOW_CLAIM_NOWAIT) == 0;
    c->waited = (q->flags & VOW_CLAIM_FORCE) != 0 ? 0 : q->waited;
    c->label = one->label;
    c->runner = one->runner;
    vow__cas_step_start(&one->step);
}

/* ---- commit -------------------------------------------------------------- */

static struct decision decide_commit(const struct cas_change *c,
                                     const struct rules_record *r,
                                     const struct rules_record *left,
                                     struct rules_now now)
{
    (void)left;
    return vow__rules_commit(r, c->request, now);
}

/* Returns whether a write of the step has perhaps settled the run, before
 * another write replaced the result. */
static bool commit_is_unsure(const struct cas_change *c)
{
    return c->was_unsure && !c->wrote && c->d.status != VOW_STATUS_OWNED;
}

/* The end of the run ends the ownership. Without an answer, the mark stays
 * until the lease is over: the caller may commit again. */
static int commit_run(struct cas_step *step)
{
    struct cas_one *one = one_of(step);
    const struct cas_change *c = &one->change;
    int rc = vow__cas_change_run(&one->change);
    if (rc == 0 && commit_is_unsure(c))
        rc = VOW_EUNSURE;
    if (rc == 0 && vow__cas_name_owned(step->name, c->token) &&
        vow__cas_mark(&c->found, c->token) == NULL)
        vow__cas_name_disown(step->name);
    return rc;
}

static const struct cas_step_ops commit_ops = {.size = sizeof(struct cas_one),
                                               .run = commit_run,
                                               .answer = one_answer,
                                               .fini = one_fini};

void vow__cas_commit(vow_store *s, const vow_commit_request *q,
                     vow_records_fn done, void *user)
{
    if (vow_bytes_size(q->value) > s->ops->value_max) {
        done(VOW_E2BIG, NULL, 0, user);
        return;
    }
    struct cas_one *one =
        one_new(s, &commit_ops, CAS_OWN, &q->hold.name, done, user);
    if (one == NULL)
        return;
    struct cas_change *c = &one->change;
    one->ask.commit = *q;
    label_copy(one->label, q->label);
    c->decide = decide_commit;
    c->token = &one->ask.commit.hold.token;
    c->value = vow_bytes_ref(q->value);
    c->label = one->label;
    vow__cas_step_start(&one->step);
}

/* ---- chunks -------------------------------------------------------------- */

static struct decision decide_chunk(const struct cas_change *c,
                                    const struct rules_record *r,
                                    const struct rules_record *left,
                                    struct rules_now now)
{
    const struct cas_one *one = VOW__OUTER(c, struct cas_one, change);
    (void)left;
    return vow__rules_chunk(r, &one->ask.chunk.hold, one->ask.chunk.number,
                            one->ask.chunk.size, one->ask.chunk.most, now);
}

static const struct cas_step_ops chunk_ops = {.size = sizeof(struct cas_one),
                                              .run = one_run,
                                              .answer = one_answer,
                                              .fini = one_fini};

void vow__cas_write(vow_store *s, const vow_hold *hold, uint64_t number,
                    vow_bytes *chunk, vow_records_fn done, void *user)
{
    struct cas_one *one =
        one_new(s, &chunk_ops, CAS_OWN, &hold->name, done, user);
    if (one == NULL)
        return;
    struct cas_change *c = &one->change;
    one->ask.chunk.hold = *hold;
    one->ask.chunk.number = number;
    one->ask.chunk.size = vow_bytes_size(chunk);
    one->ask.chunk.most = s->ops->value_max;
    c->decide = decide_chunk;
    c->token = &one->ask.chunk.hold.token;
    c->value = vow_bytes_ref(chunk);
    vow__cas_step_start(&one->step);
}

/* ---- forget and cancel --------------------------------------------------- */

static struct decision decide_forget(const struct cas_change *c,
                                     const struct rules_record *r,
                                     const struct rules_record *left,
                                     struct rules_now now)
{
    const struct cas_one *one = VOW__OUTER(c, struct cas_one, change);
    (void)left;
    return vow__rules_forget(r, one->ask.epoch, now);
}

static struct decision decide_cancel(const struct cas_change *c,
                                     const struct rules_record *r,
                                     const struct rules_record *left,
                                     struct rules_now now)
{
    (void)c;
    (void)left;
    return vow__rules_cancel(r, now);
}

static const struct cas_step_ops manage_ops = {.size = sizeof(struct cas_one),
                                               .run = one_run,
                                               .answer = one_answer,
                                               .fini = one_fini};

void vow__cas_forget(vow_store *s, const vow_name *name, uint64_t epoch,
                     vow_records_fn done, void *user)
{
    struct cas_one *one = one_new(s, &manage_ops, CAS_ASK, name, done, user);
    if (one == NULL)
        return;
    one->ask.epoch = epoch;
    one->change.decide = decide_forget;
    vow__cas_step_start(&one->step);
}

void vow__cas_cancel(vow_store *s, const vow_name *name, vow_records_fn done,
                     void *user)
{
    struct cas_one *one = one_new(s, &manage_ops, CAS_ASK, name, done, user);
    if (one == NULL)
        return;
    one->change.decide = decide_cancel;
    vow__cas_step_start(&one->step);
}

/* ---- the end of a lease -------------------------------------------------- */

/* Drops the mark of the name, unless the owner renews. While the answer is
 * open, `remark` makes a renewal write a new version, which a late drop does
 * not fit. */
/* Returns whether the lease of the name is over, and nobody renews it. */
static bool lapse_is_due(const struct cas_name *n, const vow_token *token)
{
    return vow__cas_name_owned(n, token) && n->renewals == 0 &&
           n->end_ns <= vow__cas_now_ns(n->cas);
}

/* Returns whether the token has a mark of this instance: another instance may
 * have renewed the lease with the same token. */
static bool lapse_has_mark(const struct cas_change *c)
{
    const struct cas_mark *m = vow__cas_mark(&c->found, c->token);
    return m != NULL && vow__cas_lease_mine(c->cas, m->lease);
}

static int lapse_read(struct cas_change *c)
{
    const struct cas_read read = {
        .names = &c->name->name, .n = 1, .due_ns = c->due_ns};
    struct cas_service *service = c->cas->service;
    int rc = service->ops->read(service, &read, &c->found);
    if (rc == 0)
        vow__cas_name_note(c->name, &c->found);
    return rc;
}

static int lapse_run(struct cas_step *step)
{
    struct cas *s = step->cas;
    struct cas_name *n = step->name;
    struct cas_change *c = &one_of(step)->change;
    struct cas_service *service = s->service;
    const vow_token token = n->token;
    int rc = 0;
    c->cas = s;
    c->name = n;
    c->token = &token;
    c->due_ns = step->due_ns;
    c->found = n->found;
    c->found.value = NULL;
    if (!n->known)
        rc = lapse_read(c);
    for (int tries = 0; tries < CAS_TRIES_MAX; tries++) {
        if (rc < 0 || !lapse_is_due(n, &token))
            return rc;
        if (!lapse_has_mark(c))
            break;
        n->remark = true;
        rc = service->ops->mark_drop(service, &n->name, &token,
                                     c->found.version, step->due_ns);
        if (rc != VOW_EAGAIN)
            break;
        rc = lapse_read(c);
    }
    if (rc == 0 && lapse_is_due(n, &token)) {
        n->fresh = false;
        vow__cas_name_disown(n);
    }
    return rc;
}

static const struct cas_step_ops lapse_ops = {
    .size = sizeof(struct cas_one), .run = lapse_run, .fini = one_fini};

/* Without memory, the cache asks again. */
void vow__cas_name_lapse(struct cas_name *n)
{
    struct cas *s = n->cas;
    struct cas_step *step;
    if (n->lanes[CAS_OWN].active != NULL || s->closing)
        return;
    step = vow__cas_step_new(s, &lapse_ops, CAS_OWN, &n->name);
    if (step != NULL)
        vow__cas_step_start(step);
}
