/* SPDX-License-Identifier: MIT */
/* cas_permit.c - acquire and release of a permit, and the end of a permit.
 *
 * HOW   A join creates the row and reads the pool in one request. Without a
 *       rate, the answer says whether the permit is held, and nobody takes the
 *       permit away: that is all. Under a rate, a second request marks the row
 *       and writes an entry, open. The mark compares the row and the limits
 *       only: store/rules/order.h says why.
 *       A row that must not stay is removed before the answer: a weight that is
 *       never allowed, a try that found no room.
 *       A join or a mark without an answer is followed by another join while
 *       there is time: this join finds what the first has done.
 *       A removal compares the order of the row, so a late removal never hits a
 *       later row of the token. When a removal has no answer, the permit counts
 *       as lost, whatever happens then.
 * INVARIANTS  Q1 to Q4 in cas_pools.h
 * LIMITS  A try that finds no room counts for the requests of the same moment.
 *         Each process has entries of its own: at most one more than
 *         RULES_RATE_PARTS for a window.
 * THREADS  the thread of the loop.
 */
#include "store/cas/cas_pools.h"

#include <stdio.h>
#include <string.h>

enum { AHEAD_FAR = 8, US_PER_MS = 1000 };

/* A step on one permit. */
struct cas_one_permit {
    struct cas_step step;
    struct cas_pool *pool;
    struct cas_permit *permit;
    vow_permit_request request; /* of acquire */
    char label[VOW_LABEL_MAX + 1];
    char limits_label[VOW_LABEL_MAX + 1];
    char runner[VOW_LABEL_MAX + 1];
    bool unknown; /* the caller was not told of a row before this step */
    bool wrote;   /* there is a row, or there may be */
    uint64_t doubts;
    struct cas_pool_found found;
    struct cas_row row;
    vow_pool_permit answer;
};

enum { ACQUIRE_DONE = 0, ACQUIRE_AGAIN = 1 };

static int acquire_decide(struct cas_one_permit *one,
                          const struct cas_lease *lease);
static int acquire_change(struct cas_one_permit *one,
                          const struct cas_lease *lease, bool mark,
                          bool charge);
static int acquire_refuse(struct cas_one_permit *one, int code);

static struct cas_one_permit *one_permit(struct cas_step *step)
{
    return VOW__OUTER(step, struct cas_one_permit, step);
}

/* ---- answers ------------------------------------------------------------- */

/* When to ask again: now, if the request has its turn; when the rate has room
 * for all requests ahead and this request, which is never too late; or else when
 * the shortest lease ends, or in case the turn is not told, later far behind,
 * and before the own lease ends. */
static uint64_t again_us(const struct cas *s, const struct rules_pool *tally,
                         const struct cas_pool_found *found,
                         const struct cas_row *row, uint64_t lease_ms)
{
    uint64_t now_us = vow__cas_loop_us(s);
    uint64_t recheck_ms = s->ops.recheck_ms;
    uint64_t least_ms = found->sums.lease_ms;
    uint64_t times = 1 + row->ahead / AHEAD_FAR;
    uint64_t own_us = lease_ms > RULES_NEVER / US_PER_MS / 2
                          ? RULES_NEVER / 2
                          : lease_ms * US_PER_MS / 2 + 1;
    if (tally->limits.rate > 0) {
        uint64_t when_us =
            vow__rules_rate_when(&tally->rate, &tally->limits, tally->open,
                                 row->before, row->weight, now_us);
        if (when_us > now_us)
            return when_us - now_us;
        if (vow__rules_rank(tally, row->before, row->weight, row->marked,
                            now_us) == RULES_RANK_TURN)
            return 1;
    }
    if (recheck_ms != 0 && recheck_ms < least_ms)
        least_ms = recheck_ms;
    if (least_ms > own_us / US_PER_MS / times)
        return own_us;
    return least_ms * US_PER_MS * times + US_PER_MS;
}

/* NOLINTNEXTLINE(readability-function-size): all that the answer depends on */
vow_pool_permit vow__cas_permit_answer(const struct cas *s,
                                       const struct rules_pool *tally,
                                       const struct cas_pool_found *found,
                                       const struct cas_row *row, bool held,
                                       uint64_t lease_ms)
{
    vow_pool_permit a = {.status = VOW_STATUS_OWNED,
                         .fence = row->fence,
                         .limits = found->limits};
    if (held)
        return a;
    a.status = VOW_STATUS_WAITING;
    a.fence = 0;
    a.ahead = row->ahead;
    a.again_us = again_us(s, tally, found, row, lease_ms);
    return a;
}

/* An open entry stays for a window behind the lease, if written again with
 * every second lease; see cas_renew.c. */
static uint64_t entry_keep_ms(const struct cas_pool_found *found, bool open,
                              uint64_t lease_ms)
{
    uint64_t window_ms = found->limits.window_us / US_PER_MS + 1;
    return window_ms + (open ? 2 * lease_ms : 0);
}

/* As in the rate log (store/rules/rate.c): with a high rate, grants within a
 * part of the window share an entry, which counts from the newest start on. */
struct cas_entry vow__cas_entry_charge(const struct cas_pool *pool,
                                       const struct cas_pool_found *found,
                                       const struct cas_row *row,
                                       uint64_t lease_ms)
{
    const struct cas_entry *known = vow__cas_entry_find(found, pool->share);
    uint64_t part_us = found->limits.window_us / RULES_RATE_PARTS;
    struct cas_entry e = {.id = row->order,
                          .weight = row->weight,
                          .open = 1,
                          .age_us = RULES_NEVER,
                          .keep_ms = entry_keep_ms(found, true, lease_ms)};
    if (found->limits.rate <= RULES_RATE_PARTS || known == NULL ||
        vow__cas_loop_us(pool->cas) - pool->share_us > part_us)
        return e;
    e.id = known->id;
    e.version = known->version;
    e.weight += known->weight;
    e.open += known->open;
    return e;
}

/* Only this instance writes the entry: permits that are lost count no more. */
struct cas_entry vow__cas_entry_close(const struct cas_permit *p,
                                      const struct cas_pool_found *found)
{
    const struct cas_entry *known = vow__cas_entry_find(found, p->entry.id);
    struct vow__table_node *node = NULL;
    struct cas_entry e = {.id = p->entry.id, .age_us = RULES_NEVER};
    uint64_t lease_ms = 0;
    if (known == NULL)
        return e;
    while ((node = vow__table_next(&p->pool->permits, node)) != NULL) {
        const struct cas_permit *o = VOW__OUTER(node, struct cas_permit, node);
        if (o->entry.version == 0 || o->entry.id != e.id || o->closing)
            continue;
        e.open++;
        lease_ms = o->lease_ms > lease_ms ? o->lease_ms : lease_ms;
    }
    e.version = known->version;
    e.weight = known->weight;
    e.keep_ms = entry_keep_ms(found, e.open > 0, lease_ms);
    return e;
}

/* The id is known from the mark, also if the mark had no answer. */
void vow__cas_permit_charged(struct cas_permit *p,
                             const struct cas_pool_found *found)
{
    const struct cas_entry *e = vow__cas_entry_find(found, p->entry.id);
    if (e == NULL || e->open == 0)
        p->entry.version = 0;
}

/* ---- steps on one permit ------------------------------------------------- */

static void one_permit_fini(struct cas_step *step)
{
    struct cas_one_permit *one = one_permit(step);
    vow__cas_pool_found_fini(&one->found);
    vow__cas_permit_drop(one->permit);
    vow__cas_pool_drop(one->pool);
}

static void one_permit_answer(struct cas_step *step, int code)
{
    const struct cas_one_permit *one = one_permit(step);
    step->done.permits(code, code == 0 ? &one->answer : NULL, code == 0,
                       step->user);
}

/* Makes a step in the lane of the permit. NULL without memory. */
static struct cas_one_permit *one_permit_new(struct cas *s,
                                             const struct cas_step_ops *ops,
                                             enum cas_class class,
                                             const struct cas_pool_name *name,
                                             const vow_token *token)
{
    struct cas_pool *pool = vow__cas_pool_use(s, name);
    struct cas_permit *p =
        pool == NULL ? NULL : vow__cas_permit_use(pool, token);
    struct cas_step *step =
        p == NULL ? NULL : vow__cas_step_new(s, ops, class, NULL);
    if (step == NULL) {
        if (p != NULL)
            vow__cas_permit_drop(p);
        if (pool != NULL)
            vow__cas_pool_drop(pool);
        return NULL;
    }
    struct cas_one_permit *one = one_permit(step);
    one->pool = pool;
    one->permit = p;
    one->found = vow__cas_pool_found(s);
    step->lanes[0] = &p->lane;
    return one;
}

/* ---- acquire ------------------------------------------------------------- */

static int acquire_join(struct cas_one_permit *one,
                        const struct cas_lease *lease)
{
    struct cas *s = one->step.cas;
    struct cas_permit *p = one->permit;
    vow__cas_pool_found_fini(&one->found);
    vow__cas_permit_lease(p, one->request.lease_ms);
    one->doubts = s->doubts;
    int rc =
        s->service->ops->permit_join(s->service, &one->request, lease,
                                     one->step.due_ns, &one->found, &one->row);
    if (rc == VOW_EUNSURE) {
        one->wrote = true;
        vow__cas_permit_late(p);
        return ACQUIRE_AGAIN;
    }
    if (rc == VOW_ENOENT) {
        vow__cas_lease_gone(s, lease->id);
        return ACQUIRE_AGAIN;
    }
    if (rc < 0)
        return rc;
    one->wrote = true;
    vow__cas_entries_age(one->step.cas, one->pool, &one->found);
    return acquire_decide(one, lease);
}

static int acquire_run(struct cas_step *step)
{
    struct cas_one_permit *one = one_permit(step);
    struct cas_permit *p = one->permit;
    struct cas_lease lease;
    int rc = 0;
    if (p->state == CAS_PERMIT_ENDING) {
        rc = vow__cas_permit_leave(p, false, step->due_ns, &one->found,
                                   &one->row);
        if (rc < 0)
            return rc == VOW_EUNSURE ? VOW_ESTORE : rc;
        vow__cas_permit_gone(p);
    }
    bool fresh = p->end_ns == 0;
    one->unknown = p->state == CAS_PERMIT_ASKED;
    rc = ACQUIRE_AGAIN;
    for (int tries = 0; rc == ACQUIRE_AGAIN && tries < CAS_TRIES_MAX; tries++) {
        rc = vow__cas_lease_use(step->cas, one->request.lease_ms, false,
                                step->due_ns, &lease);
        if (rc == 0)
            rc = acquire_join(one, &lease);
    }
    if (rc == ACQUIRE_AGAIN)
        rc = VOW_EAGAIN;
    if (fresh && !one->wrote && p->end_ns != 0)
        vow__cas_permit_gone(p); /* there is no row */
    return one->wrote && rc < 0 && rc != VOW_EINVAL ? VOW_EUNSURE : rc;
}

/* Decides by the answer of one read. Returns 0, ACQUIRE_AGAIN or an error. */
static int acquire_decide(struct cas_one_permit *one,
                          const struct cas_lease *lease)
{
    struct cas_permit *p = one->permit;
    const struct cas_row *row = &one->row;
    const struct rules_pool tally = vow__cas_pool_tally(&one->found);
    uint64_t now_us = vow__cas_loop_us(one->step.cas);
    enum rules_rank rank =
        vow__rules_rank(&tally, row->before, row->weight, row->marked, now_us);
    bool was_held = p->state == CAS_PERMIT_HELD && p->order == row->order;
    bool held = was_held || rank == RULES_RANK_HELD;
    bool turn = !held && rank == RULES_RANK_TURN;
    VOW__ASSERT(row->there);
    vow__cas_permit_fence(p, &one->row);
    if (!held && rank == RULES_RANK_NEVER)
        return acquire_refuse(one, VOW_EINVAL);
    if (!held && !turn && (one->unknown || row->made) &&
        (one->request.flags & VOW_PERMIT_TRY) != 0) {
        one->answer = (vow_pool_permit){.status = VOW_STATUS_BUSY,
                                        .limits = one->found.limits};
        return acquire_refuse(one, 0);
    }
    bool mark = turn || (was_held && rank != RULES_RANK_HELD);
    int rc = 0;
    if (mark || row->lease != lease->id)
        rc = acquire_change(one, lease, mark, turn);
    if (rc != 0)
        return rc;
    held = held || turn;
    one->answer = vow__cas_permit_answer(one->step.cas, &tally, &one->found,
                                         row, held, one->request.lease_ms);
    vow__cas_permit_seat(p, row, held);
    vow__cas_permit_charged(p, &one->found);
    vow__cas_pool_see(one->pool, &one->found, row, 1, one->doubts);
    return ACQUIRE_DONE;
}

/* Finds closed entries that count no more. Returns how many. */
static size_t entries_spent(const struct cas *s,
                            const struct cas_pool_found *found,
                            struct cas_entry spent[CAS_SPENT_MAX])
{
    uint64_t now_us = vow__cas_loop_us(s);
    size_t n = 0;
    for (size_t i = 0; i < found->n && n < CAS_SPENT_MAX; i++)
        if (found->entries[i].open == 0 &&
            now_us - found->entries[i].since_us > found->limits.window_us)
            spent[n++] = found->entries[i];
    return n;
}

/* Marks the row, with an entry if the grant is charged to a rate, and moves the
 * row to the lease. */
static int acquire_change(struct cas_one_permit *one,
                          const struct cas_lease *lease, bool mark, bool charge)
{
    struct cas *s = one->step.cas;
    struct cas_permit *p = one->permit;
    const struct cas_row_change row = {.row = &one->row,
                                       .mark = mark,
                                       .lease = *lease,
                                       .lease_ms = one->request.lease_ms};
    struct cas_pool_write w = {.pool = one->pool->name,
                               .rows = &row,
                               .n_rows = 1,
                               .label = one->label,
                               .due_ns = one->step.due_ns};
    struct cas_entry entry;
    struct cas_entry spent[CAS_SPENT_MAX];
    uint64_t version = 0;
    if (charge) {
        w.spent = spent;
        w.n_spent = entries_spent(s, &one->found, spent);
        entry = vow__cas_entry_charge(one->pool, &one->found, &one->row,
                                      one->request.lease_ms);
        p->order = one->row.order;
        p->entry = entry;
        p->entry.version = UINT64_MAX; /* until an answer tells */
        p->entry_ns = vow__cas_now_ns(s);
        p->started = false;
        w.limits_version = one->found.limits_version;
        w.entries = &entry;
        w.n_entries = 1;
    }
    int rc = s->service->ops->permit_write(s->service, &w, &version);
    if (rc == VOW_ENOENT)
        vow__cas_lease_gone(s, lease->id);
    if (charge && rc < 0 && rc != VOW_EUNSURE)
        p->entry.version = 0; /* there is no entry of this mark */
    if (rc == VOW_EAGAIN || rc == VOW_EUNSURE || rc == VOW_ENOENT)
        return ACQUIRE_AGAIN;
    if (rc < 0)
        return rc;
    one->row.version = version;
    one->row.marked = one->row.marked || mark;
    if (!charge)
        return 0;
    entry.version = p->entry.version = version;
    entry.since_us = vow__cas_loop_us(s);
    if (one->pool->share != entry.id)
        one->pool->share_us = entry.since_us;
    one->pool->share = entry.id;
    (void)vow__cas_entries_put(&one->found, &entry); /* or the event tells */
    return 0;
}

/* The row must not stay. */
static int acquire_refuse(struct cas_one_permit *one, int code)
{
    struct cas_pool_found found = vow__cas_pool_found(one->step.cas);
    struct cas_permit *p = one->permit;
    struct cas_row row;
    p->order = one->row.order;
    int rc = vow__cas_permit_leave(p, false, one->step.due_ns, &found, &row);
    vow__cas_pool_found_fini(&found);
    if (rc < 0)
        return VOW_EUNSURE;
    vow__cas_permit_gone(p);
    return code;
}

static const struct cas_step_ops acquire_ops = {
    .size = sizeof(struct cas_one_permit),
    .run = acquire_run,
    .answer = one_permit_answer,
    .fini = one_permit_fini};

static void text_copy(char to[VOW_LABEL_MAX + 1], const char *from)
{
    (void)snprintf(to, VOW_LABEL_MAX + 1, "%s", from == NULL ? "" : from);
}

void vow__cas_acquire(vow_store *store, const vow_permit_request *q,
                      vow_permits_fn done, void *user)
{
    struct cas *s = vow__cas_of(store);
    const struct cas_pool_name name = {.pool = q->pool,
                                       .limits_of = q->limits_of};
    struct cas_one_permit *one = NULL;
    int rc = s->closing                           ? VOW_ECLOSED
             : q->weight == 0 || q->lease_ms == 0 ? VOW_EINVAL
                                                  : 0;
    if (rc == 0)
        one = one_permit_new(s, &acquire_ops, CAS_ASK, &name, &q->token);
    if (one == NULL) {
        done(rc < 0 ? rc : VOW_ENOMEM, NULL, 0, user);
        return;
    }
    bool own = vow_name_equal(&q->pool, &q->limits_of);
    one->step.done.permits = done;
    one->step.user = user;
    one->step.lanes[1] = &one->pool->lane;
    one->request = *q;
    text_copy(one->label, q->label);
    text_copy(one->limits_label, own ? q->label : q->limits_label);
    text_copy(one->runner, q->runner);
    one->request.label = one->label;
    one->request.limits_label = one->limits_label;
    one->request.runner = one->runner;
    vow__cas_step_start(&one->step);
}

/* ---- leaving ------------------------------------------------------------- */

/* A removal that had no answer may have happened: then the entry is closed,
 * too, and the row is not there. A removal that failed is tried again soon,
 * whatever the caller does. */
int vow__cas_permit_leave(struct cas_permit *p, bool look, uint64_t due_ns,
                          struct cas_pool_found *ret_pool,
                          struct cas_row *ret_row)
{
    struct cas_pool *pool = p->pool;
    struct cas_service *service = pool->cas->service;
    struct cas_leave leave = {.pool = pool->name,
                              .token = p->token,
                              .order = p->order,
                              .label = pool->found.label,
                              .concurrent = pool->found.limits.concurrent,
                              .look = look || p->state != CAS_PERMIT_HELD,
                              .due_ns = due_ns};
    bool closes = p->entry.version != 0;
    int rc = VOW_EAGAIN;
    p->closing = true;
    struct cas_entry entry = vow__cas_entry_close(p, &pool->found);
    if (p->state != CAS_PERMIT_ENDING)
        vow__cas_permit_lose(p);
    for (int tries = 0; rc == VOW_EAGAIN && tries < CAS_TRIES_MAX; tries++) {
        vow__cas_pool_found_fini(ret_pool);
        if (leave.order == 0) { /* compared: the removal may come late */
            rc = service->ops->permit_look(service, &pool->name, &p->token, 1,
                                           due_ns, ret_pool, ret_row);
            if (rc < 0 || !ret_row->there)
                break;
            leave.order = ret_row->order;
            vow__cas_pool_found_fini(ret_pool);
        }
        leave.entry = closes ? &entry : NULL;
        rc = service->ops->permit_leave(service, &leave, ret_pool, ret_row);
        if (rc == VOW_EAGAIN) {
            entry = vow__cas_entry_close(p, ret_pool);
            closes = entry.version != 0;
        }
    }
    if (rc < 0)
        vow__cas_permit_lease(p, CAS_END_AGAIN_MS);
    return rc == VOW_EAGAIN ? VOW_ESTORE : rc;
}

/* ---- release ------------------------------------------------------------- */

/* The row as before the removal says what the permit was; a permit that was
 * held here was held. */
static void release_decide(struct cas_one_permit *one, bool known, bool unsure,
                           uint64_t fence)
{
    const struct cas_row *row = &one->row;
    one->answer = (vow_pool_permit){.status = VOW_STATUS_NONE,
                                    .limits = one->found.limits};
    if (known && (row->there || unsure)) {
        one->answer.status = VOW_STATUS_OWNED;
        one->answer.fence = fence;
        return;
    }
    if (!row->there)
        return;
    vow__cas_entries_age(one->step.cas, one->pool, &one->found);
    const struct rules_pool tally = vow__cas_pool_tally(&one->found);
    bool held =
        vow__rules_rank(&tally, row->before, row->weight, row->marked,
                        vow__cas_loop_us(one->step.cas)) == RULES_RANK_HELD;
    one->answer.status = held ? VOW_STATUS_OWNED : VOW_STATUS_WAITING;
    one->answer.fence = held ? row->fence : 0;
}

static int release_run(struct cas_step *step)
{
    struct cas_one_permit *one = one_permit(step);
    struct cas_permit *p = one->permit;
    bool known = p->state == CAS_PERMIT_HELD;
    bool lost = p->state == CAS_PERMIT_ENDING; /* before this step */
    bool unsure = false;
    uint64_t fence = p->fence;
    int rc = VOW_EUNSURE;
    if (p->end_ns == 0) /* nothing is known here: until the row is gone */
        vow__cas_permit_lease(p, CAS_END_AGAIN_MS);
    for (int tries = 0; rc == VOW_EUNSURE && tries < CAS_TRIES_MAX; tries++) {
        rc = vow__cas_permit_leave(p, !known, step->due_ns, &one->found,
                                   &one->row);
        unsure = unsure || rc == VOW_EUNSURE;
    }
    if (rc < 0)
        return unsure ? VOW_EUNSURE : rc;
    vow__cas_permit_gone(p);
    release_decide(one, known, unsure, fence);
    if (lost)
        one->answer.status = VOW_STATUS_NONE;
    return 0;
}

static const struct cas_step_ops release_ops = {
    .size = sizeof(struct cas_one_permit),
    .run = release_run,
    .answer = one_permit_answer,
    .fini = one_permit_fini};

void vow__cas_release(vow_store *store, const vow_permit_hold *hold,
                      vow_permits_fn done, void *user)
{
    struct cas *s = vow__cas_of(store);
    const struct cas_pool_name name = {.pool = hold->pool,
                                       .limits_of = hold->limits_of};
    struct cas_one_permit *one = NULL;
    if (!s->closing)
        one = one_permit_new(s, &release_ops, CAS_OWN, &name, &hold->token);
    if (one == NULL) {
        done(s->closing ? VOW_ECLOSED : VOW_ENOMEM, NULL, 0, user);
        return;
    }
    one->step.done.permits = done;
    one->step.user = user;
    vow__cas_step_start(&one->step);
}

/* ---- the end of a permit ------------------------------------------------- */

/* The lease may have been renewed meanwhile. */
static int permit_end_run(struct cas_step *step)
{
    struct cas_one_permit *one = one_permit(step);
    struct cas_permit *p = one->permit;
    if (!step->cas->closing && !vow__cas_permit_is_over(p) &&
        p->state != CAS_PERMIT_ENDING)
        return 0;
    if (p->end_ns == 0)
        return 0; /* gone by a step before */
    int rc =
        vow__cas_permit_leave(p, false, step->due_ns, &one->found, &one->row);
    if (rc == 0)
        vow__cas_permit_gone(p);
    return rc;
}

static void permit_end_fini(struct cas_step *step)
{
    vow__cas_permit_end_later(one_permit(step)->permit, step->code < 0);
    one_permit_fini(step);
}

static const struct cas_step_ops permit_end_ops = {
    .size = sizeof(struct cas_one_permit),
    .run = permit_end_run,
    .fini = permit_end_fini};

int vow__cas_permit_end(struct cas_permit *p)
{
    struct cas_pool *pool = p->pool;
    struct cas_one_permit *one = one_permit_new(
        pool->cas, &permit_end_ops, CAS_OWN, &pool->name, &p->token);
    if (one == NULL)
        return VOW_ENOMEM;
    p->ending = true;
    vow__cas_step_start(&one->step);
    return 0;
}
