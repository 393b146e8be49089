/* SPDX-License-Identifier: MIT */
/* cas_renew.c - renewals of permits and of waiting requests.
 *
 * HOW   A renewal is cut into parts, a step for each pool. All parts share a
 *       lease of the service, so a renewal is at most a keepalive, and a read
 *       for each pool. A part writes only rows that must hang on another lease
 *       or must be marked because limits were lowered, and entries: of work
 *       that has started, and open entries that would end too soon.
 *       The ends of the permits are put off before the pool is read: a permit
 *       that is renewed is not ended behind the read. A part enters no lane. A
 *       permit with a step under way is answered by the read, and left alone; a
 *       permit that changed meanwhile is read again.
 *       The same read, without writes, looks for turns that were missed
 *       (pool_look_run).
 * THREADS  the thread of the loop.
 */
#include "store/cas/cas_pools.h"

#include <string.h>

struct renewal_part;

/* A renewal; freed with the last part, answered when all parts are. */
struct cas_renewal {
    struct cas *cas;
    vow_permits_fn done;
    void *user;
    uint64_t lease_ms;
    size_t n;
    size_t unanswered, parts;
    int code;
    vow_pool_permit *answers;
};

struct renewal_item {
    struct cas_permit *permit;
    size_t at; /* in the answers */
    bool started;
    bool known; /* before the read: there may be a row of this instance. Such a
                   permit that is ASKED was never answered, or is lost */
    enum cas_permit_state state;
    uint64_t order;
};

struct renewal_part {
    struct cas_step step;
    struct cas_renewal *renewal;
    struct cas_pool *pool;
    size_t n, room;
    struct cas_pool_found found;
    struct renewal_item *items;
    struct cas_row *rows;
    struct cas_row_change *changes;
    struct cas_entry *entries;
    vow_token *tokens;
    size_t block; /* bytes of the five arrays */
    size_t n_changes, n_entries;
    uint64_t doubts;
    bool wrote;
};

enum { PART_DONE = 0, PART_AGAIN = 1 };

static struct renewal_part *renewal_part_of(struct cas_step *step)
{
    return VOW__OUTER(step, struct renewal_part, step);
}

/* ---- deciding ------------------------------------------------------------ */

/* Writes what the row needs. */
static void part_add_change(struct renewal_part *part, size_t i,
                            const struct cas_lease *lease, bool mark)
{
    const struct cas_row *row = &part->rows[i];
    if (mark || row->lease != lease->id)
        part->changes[part->n_changes++] =
            (struct cas_row_change){.row = row,
                                    .mark = mark,
                                    .lease = *lease,
                                    .lease_ms = part->renewal->lease_ms};
}

/* Returns whether the entry is a part of the write already. */
static bool part_has_entry(const struct renewal_part *part, uint64_t id)
{
    for (size_t k = 0; k < part->n_entries; k++)
        if (part->entries[k].id == id)
            return true;
    return false;
}

/* Tells the start, or keeps an open entry from ending before the permit. All
 * permits that are closing are known. */
static void part_add_entry(struct renewal_part *part, size_t i)
{
    struct cas_permit *p = part->items[i].permit;
    uint64_t age_ms = (vow__cas_now_ns(part->step.cas) - p->entry_ns) / 1000000;
    if (p->entry.version == 0 || part_has_entry(part, p->entry.id) ||
        (!p->closing && age_ms < part->renewal->lease_ms))
        return;
    struct cas_entry e = vow__cas_entry_close(p, &part->found);
    if (e.version != 0)
        part->entries[part->n_entries++] = e;
}

/* Returns whether another step has changed the permit since the read began. */
static bool item_changed(const struct renewal_item *item)
{
    const struct cas_permit *p = item->permit;
    return p->state != item->state || p->order != item->order ||
           (item->known && p->end_ns == 0);
}

/* Decides about a permit by the answer of the read. */
static void part_decide_one(struct renewal_part *part, size_t i,
                            const struct rules_pool *tally,
                            const struct cas_lease *lease)
{
    const struct renewal_item *item = &part->items[i];
    const struct cas_row *row = &part->rows[i];
    struct cas_permit *p = item->permit;
    uint64_t now_us = vow__cas_loop_us(part->step.cas);
    vow_pool_permit *answer = &part->renewal->answers[item->at];
    enum rules_rank rank =
        vow__rules_rank(tally, row->before, row->weight, row->marked, now_us);
    bool was_held = p->state == CAS_PERMIT_HELD;
    bool held = was_held || rank == RULES_RANK_HELD;
    bool other = was_held && p->order != row->order; /* of a late join */
    bool lost = p->state == CAS_PERMIT_ENDING ||
                (item->known && p->state == CAS_PERMIT_ASKED);
    *answer = (vow_pool_permit){.status = VOW_STATUS_NONE,
                                .limits = part->found.limits};
    if (!row->there || other || lost || (!held && rank == RULES_RANK_NEVER))
        return;
    *answer = vow__cas_permit_answer(part->step.cas, tally, &part->found, row,
                                     held, part->renewal->lease_ms);
    if (p->lane.active != NULL)
        return;
    part_add_change(part, i, lease, was_held && rank != RULES_RANK_HELD);
    vow__cas_permit_charged(p, &part->found);
    p->closing = held && item->started && p->entry.version != 0;
}

static int part_decide(struct renewal_part *part, const struct cas_lease *lease)
{
    const struct rules_pool tally = vow__cas_pool_tally(&part->found);
    part->n_changes = part->n_entries = 0;
    for (size_t i = 0; i < part->n; i++)
        if (item_changed(&part->items[i]))
            return PART_AGAIN;
    for (size_t i = 0; i < part->n; i++) {
        vow__cas_permit_fence(part->items[i].permit, &part->rows[i]);
        part_decide_one(part, i, &tally, lease);
    }
    for (size_t i = 0; i < part->n; i++)
        if (part->items[i].permit->lane.active == NULL)
            part_add_entry(part, i);
    return PART_DONE;
}

/* ---- reading and writing ------------------------------------------------- */

static int part_look(struct renewal_part *part)
{
    struct cas *s = part->step.cas;
    vow__cas_pool_found_fini(&part->found);
    for (size_t i = 0; i < part->n; i++) {
        struct renewal_item *item = &part->items[i];
        struct cas_permit *p = item->permit;
        item->known = p->end_ns != 0;
        item->state = p->state;
        item->order = p->order;
        part->tokens[i] = p->token;
        if (p->state == CAS_PERMIT_QUEUED || p->state == CAS_PERMIT_HELD)
            vow__cas_permit_lease(p, part->renewal->lease_ms);
    }
    part->doubts = s->doubts;
    int rc = s->service->ops->permit_look(
        s->service, &part->pool->name, part->tokens, part->n, part->step.due_ns,
        &part->found, part->rows);
    if (rc == 0)
        vow__cas_entries_age(s, part->pool, &part->found);
    return rc;
}

/* Takes over what was written. */
static void part_wrote(struct renewal_part *part,
                       const struct cas_pool_write *w, uint64_t version)
{
    struct cas *s = part->step.cas;
    for (size_t k = 0; k < w->n_rows; k++)
        part->rows[w->rows[k].row - part->rows].marked |= w->rows[k].mark;
    for (size_t k = 0; k < w->n_entries; k++) {
        struct cas_entry e = w->entries[k];
        e.version = version;
        e.since_us = vow__cas_loop_us(s);
        (void)vow__cas_entries_put(&part->found, &e); /* or the event tells */
        for (size_t i = 0; i < part->n; i++) {
            struct cas_permit *p = part->items[i].permit;
            if (p->entry.version == 0 || p->entry.id != e.id)
                continue;
            p->started = p->started || p->closing;
            p->entry.version = p->closing ? 0 : version;
            p->closing = false;
            p->entry_ns = vow__cas_now_ns(s);
        }
    }
}

static size_t write_room(size_t n)
{
    return n < CAS_WRITE_MAX ? n : CAS_WRITE_MAX;
}

/* Writes the changes, as many at once as the service takes. */
static int part_write(struct renewal_part *part, const struct cas_lease *lease)
{
    struct cas *s = part->step.cas;
    size_t row = 0;
    size_t entry = 0;
    while (row < part->n_changes || entry < part->n_entries) {
        const struct cas_pool_write w = {
            .pool = part->pool->name,
            .rows = part->changes + row,
            .n_rows = write_room(part->n_changes - row),
            .entries = part->entries + entry,
            .n_entries = write_room(part->n_entries - entry),
            .label = part->found.label,
            .due_ns = part->step.due_ns};
        uint64_t version = 0;
        int rc = s->service->ops->permit_write(s->service, &w, &version);
        if (rc == VOW_ENOENT)
            vow__cas_lease_gone(s, lease->id);
        part->wrote = part->wrote || rc == VOW_EUNSURE;
        if (rc == VOW_EAGAIN || rc == VOW_EUNSURE || rc == VOW_ENOENT)
            return PART_AGAIN;
        if (rc < 0)
            return rc;
        part_wrote(part, &w, version);
        row += w.n_rows;
        entry += w.n_entries;
    }
    return PART_DONE;
}

/* What the permits are from now on. A permit that another step has changed
 * during the write is left to this step. */
static void part_settle(struct renewal_part *part)
{
    for (size_t i = 0; i < part->n; i++) {
        const struct renewal_item *item = &part->items[i];
        const struct cas_row *row = &part->rows[i];
        struct cas_permit *p = item->permit;
        uint32_t status = part->renewal->answers[item->at].status;
        if (p->lane.active != NULL || p->state == CAS_PERMIT_ENDING ||
            (item->known && p->state == CAS_PERMIT_ASKED) || item_changed(item))
            continue;
        if (status != VOW_STATUS_NONE) {
            if (!item->known)
                vow__cas_permit_lease(p, part->renewal->lease_ms);
            vow__cas_permit_seat(p, row, status == VOW_STATUS_OWNED);
        } else if (!row->there) {
            vow__cas_permit_gone(p);
        } else { /* another row, or a row that can never be granted */
            p->order = row->order;
            vow__cas_permit_lease(p, 0);
            vow__cas_permit_lose(p);
        }
    }
    vow__cas_pool_see(part->pool, &part->found, part->rows, part->n,
                      part->doubts);
}

static int part_run(struct cas_step *step)
{
    struct renewal_part *part = renewal_part_of(step);
    struct cas_lease lease;
    int rc = PART_AGAIN;
    for (int tries = 0; rc == PART_AGAIN && tries < CAS_TRIES_MAX; tries++) {
        rc = vow__cas_lease_use(step->cas, part->renewal->lease_ms, false,
                                step->due_ns, &lease);
        if (rc == 0)
            rc = part_look(part);
        if (rc == 0)
            rc = part_decide(part, &lease);
        if (rc == PART_DONE)
            rc = part_write(part, &lease);
        if (rc == PART_DONE)
            part_settle(part);
    }
    for (size_t i = 0; rc != PART_DONE && i < part->n; i++)
        if (part->items[i].permit->lane.active == NULL)
            part->items[i].permit->closing = false; /* the start is not told */
    if (rc == PART_AGAIN)
        rc = VOW_EAGAIN;
    return rc < 0 && part->wrote ? VOW_EUNSURE : rc;
}

/* ---- parts --------------------------------------------------------------- */

static void part_answer(struct cas_step *step, int code)
{
    struct cas_renewal *w = renewal_part_of(step)->renewal;
    if (code < 0)
        w->code = code;
    if (--w->unanswered == 0)
        w->done(w->code, w->code == 0 ? w->answers : NULL,
                w->code == 0 ? w->n : 0, w->user);
}

static void renewal_drop(struct cas_renewal *w)
{
    const struct vow_alloc *a = &w->cas->alloc;
    if (--w->parts > 0)
        return;
    vow__mem_free(a, w->answers, w->n * sizeof(w->answers[0]));
    vow__mem_free(a, w, sizeof(*w));
}

static void part_fini(struct cas_step *step)
{
    struct renewal_part *part = renewal_part_of(step);
    for (size_t i = 0; i < part->n; i++)
        vow__cas_permit_drop(part->items[i].permit);
    vow__cas_pool_found_fini(&part->found);
    vow__mem_free(&step->cas->alloc, part->items, part->block);
    if (part->pool != NULL)
        vow__cas_pool_drop(part->pool);
    renewal_drop(part->renewal);
}

static const struct cas_step_ops part_ops = {.size =
                                                 sizeof(struct renewal_part),
                                             .run = part_run,
                                             .answer = part_answer,
                                             .fini = part_fini};

/* The arrays lie in one block, the tokens last: they need no alignment. */
static int part_arrays(struct renewal_part *part, size_t room)
{
    size_t each = sizeof(*part->items) + sizeof(*part->rows) +
                  sizeof(*part->changes) + sizeof(*part->entries) +
                  sizeof(*part->tokens);
    part->block = room * each;
    part->items = vow__mem_zero(&part->step.cas->alloc, part->block);
    if (part->items == NULL)
        return VOW_ENOMEM;
    part->rows = (struct cas_row *)(void *)(part->items + room);
    part->changes = (struct cas_row_change *)(void *)(part->rows + room);
    part->entries = (struct cas_entry *)(void *)(part->changes + room);
    part->tokens = (vow_token *)(void *)(part->entries + room);
    return 0;
}

static bool holds_share_pool(const vow_permit_hold *a, const vow_permit_hold *b)
{
    return vow_name_equal(&a->pool, &b->pool) &&
           vow_name_equal(&a->limits_of, &b->limits_of);
}

/* Fills a part with all holds of the pool of hold number `first`. */
static int part_fill(struct renewal_part *part, const vow_permit_hold *holds,
                     size_t n, size_t first)
{
    const struct cas_pool_name name = {.pool = holds[first].pool,
                                       .limits_of = holds[first].limits_of};
    size_t room = 0;
    for (size_t i = first; i < n; i++)
        room += holds_share_pool(&holds[i], &holds[first]);
    part->pool = vow__cas_pool_use(part->step.cas, &name);
    int rc = part->pool == NULL ? VOW_ENOMEM : part_arrays(part, room);
    for (size_t i = first; rc == 0 && i < n; i++) {
        if (!holds_share_pool(&holds[i], &holds[first]))
            continue;
        struct cas_permit *p = vow__cas_permit_use(part->pool, &holds[i].token);
        if (p == NULL)
            return VOW_ENOMEM;
        part->items[part->n++] = (struct renewal_item){
            .permit = p, .at = i, .started = holds[i].started};
    }
    return rc;
}

static struct renewal_part *part_new(struct cas_renewal *w)
{
    struct cas_step *step = vow__cas_step_new(w->cas, &part_ops, CAS_OWN, NULL);
    if (step == NULL)
        return NULL;
    struct renewal_part *part = renewal_part_of(step);
    part->renewal = w;
    part->found = vow__cas_pool_found(w->cas);
    w->parts++;
    w->unanswered++;
    return part;
}

/* Returns whether an earlier hold is of the same pool. */
static bool hold_is_later(const vow_permit_hold *holds, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (holds_share_pool(&holds[k], &holds[i]))
            return true;
    return false;
}

static struct cas_renewal *renewal_make(struct cas *s, size_t n)
{
    struct cas_renewal *w = vow__mem_zero(&s->alloc, sizeof(*w));
    if (w == NULL)
        return NULL;
    w->cas = s;
    w->n = n;
    w->answers = vow__mem_zero(&s->alloc, n * sizeof(w->answers[0]));
    if (w->answers != NULL)
        return w;
    vow__mem_free(&s->alloc, w, sizeof(*w));
    return NULL;
}

void vow__cas_renew(vow_store *store, const vow_permit_hold *holds, size_t n,
                    uint64_t lease_ms, vow_permits_fn done, void *user)
{
    struct cas *s = vow__cas_of(store);
    struct cas_renewal *w = NULL;
    int rc = s->closing ? VOW_ECLOSED : lease_ms == 0 ? VOW_EINVAL : 0;
    if (rc == 0 && n > 0) {
        w = renewal_make(s, n);
        rc = w == NULL ? VOW_ENOMEM : 0;
    }
    if (w == NULL) {
        done(rc, NULL, 0, user);
        return;
    }
    w->done = done;
    w->user = user;
    w->lease_ms = lease_ms;
    w->parts = w->unanswered = 1; /* until all parts are started */
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (hold_is_later(holds, i))
            continue;
        struct renewal_part *part = part_new(w);
        rc = part == NULL ? VOW_ENOMEM : part_fill(part, holds, n, i);
        if (part != NULL)
            vow__cas_step_start_with(&part->step, rc);
    }
    if (rc < 0)
        w->code = rc;
    if (--w->unanswered == 0)
        done(w->code, NULL, 0, user);
    renewal_drop(w);
}

/* ---- missed turns -------------------------------------------------------- */

struct pool_look {
    struct cas_step step;
    struct cas_pool *pool;
};

static struct pool_look *pool_look_of(struct cas_step *step)
{
    return VOW__OUTER(step, struct pool_look, step);
}

/* Reads the pool, and the rows of all waiting requests. */
static int pool_look_run(struct cas_step *step)
{
    struct cas_pool *pool = pool_look_of(step)->pool;
    struct cas *s = step->cas;
    size_t room = pool->n_queued;
    size_t each = sizeof(struct cas_row) + sizeof(vow_token);
    struct cas_row *rows = vow__mem_zero(&s->alloc, room * each);
    struct cas_pool_found found = vow__cas_pool_found(s);
    struct vow__table_node *node = NULL;
    uint64_t doubts = s->doubts;
    size_t n = 0;
    if (rows == NULL)
        return room == 0 ? 0 : VOW_ENOMEM;
    vow_token *tokens = (vow_token *)(void *)(rows + room);
    while ((node = vow__table_next(&pool->permits, node)) != NULL) {
        const struct cas_permit *p = VOW__OUTER(node, struct cas_permit, node);
        if (p->state == CAS_PERMIT_QUEUED && p->lane.active == NULL)
            tokens[n++] = p->token;
    }
    int rc = s->service->ops->permit_look(s->service, &pool->name, tokens, n,
                                          step->due_ns, &found, rows);
    pool->looking = false;
    if (rc == 0) {
        vow__cas_entries_age(s, pool, &found);
        vow__cas_pool_see(pool, &found, rows, n, doubts);
    }
    vow__cas_pool_found_fini(&found);
    vow__mem_free(&s->alloc, rows, room * each);
    return rc;
}

/* Without success, the next renewal reads the pool. */
static void pool_look_fini(struct cas_step *step)
{
    struct cas_pool *pool = pool_look_of(step)->pool;
    pool->looking = false;
    vow__cas_pool_drop(pool);
}

static const struct cas_step_ops pool_look_ops = {.size =
                                                      sizeof(struct pool_look),
                                                  .run = pool_look_run,
                                                  .fini = pool_look_fini};

void vow__cas_pool_look_start(struct cas_pool *pool)
{
    struct cas *s = pool->cas;
    struct cas_step *step = vow__cas_step_new(s, &pool_look_ops, CAS_OWN, NULL);
    if (step == NULL)
        return;
    pool_look_of(step)->pool = pool;
    pool->steps++;
    pool->looking = true;
    vow__cas_step_start(step);
}
