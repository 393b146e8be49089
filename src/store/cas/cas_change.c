/* SPDX-License-Identifier: MIT */
/* cas_change.c - a change of one name: read, decide, write if unchanged.
 *
 * HOW   The first try assumes the name as the cache knows the name, or absent:
 *       a free name costs one round trip. A guess decides only about a write,
 *       which compares the version; an answer without a write needs a read. A
 *       conflict answers with the name as it is, so each further try is one
 *       round trip. After a write without an answer the name is read: if the
 *       write has happened, the rules find the token of the caller, and the
 *       step is a repeat.
 *       All tries share the deadline of the step.
 * INVARIANTS
 *   G1  a change that failed and may have happened is `unsure`
 * LIMITS  A write without an answer that has happened, and was overwritten
 *         before the name is read, is answered as if refused: a commit as LOST.
 * THREADS  the thread of the loop, on a fiber.
 */
#include "store/cas/cas_internal.h"

#include "base/failure.h"

#include <string.h>

static void change_guess(struct cas_change *c);
static int change_read(struct cas_change *c);
static void change_look(struct cas_change *c, struct cas_found *now);
static void change_decide(struct cas_change *c, uint64_t now_us);
static bool change_writes(const struct cas_change *c,
                          const struct cas_lease *lease);
static int change_write(struct cas_change *c, const struct cas_lease *lease);
static int change_show(struct cas_change *c);

static bool same_token(const vow_token *a, const vow_token *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* ---- the clock of the service -------------------------------------------- */

uint64_t vow__cas_clock_us(const struct cas *s)
{
    return s->clock_us == 0
               ? 1
               : s->clock_us + (vow__cas_now_ns(s) - s->clock_ns) / 1000;
}

void vow__cas_clock_set(struct cas *s, uint64_t now_us)
{
    s->clock_us = now_us;
    s->clock_ns = vow__cas_now_ns(s);
}

/* ---- records and marks --------------------------------------------------- */

/* A mark that was there is valid until a write finds the mark gone. */
static uint64_t mark_end_us(const struct cas_mark *m, uint64_t lease_us,
                            uint64_t seen_us, uint64_t now_us)
{
    uint64_t left_us = m->left_us < lease_us ? m->left_us : lease_us;
    if (m->lease == 0)
        return seen_us > m->gone_us ? seen_us - m->gone_us : 0;
    if (left_us > RULES_NEVER - now_us)
        return RULES_NEVER;
    return seen_us + left_us > now_us ? seen_us + left_us : now_us + 1;
}

struct rules_record vow__cas_record(const struct cas_found *f, uint64_t now_us)
{
    struct rules_record r = f->record;
    if (r.state == RULES_RUNNING)
        r.end_us = mark_end_us(&f->owner, r.lease_us, f->now_us, now_us);
    if (r.refresh.epoch != 0 && !r.refresh.failed)
        r.refresh.end_us =
            mark_end_us(&f->refresher, r.refresh.lease_us, f->now_us, now_us);
    return r;
}

/* Clears the ends of leases: the marks tell. */
static void drop_ends(struct rules_record *r)
{
    if (r->state == RULES_RUNNING)
        r->end_us = 0;
    if (r->refresh.epoch != 0 && !r->refresh.failed)
        r->refresh.end_us = 0;
}

struct rules_record vow__cas_write_record(const struct cas_write *w,
                                          uint64_t now_us, uint64_t number)
{
    struct rules_record r = w->next;
    if (w->fresh) {
        r.since_us = now_us;
        if (r.end_us != RULES_NEVER)
            r.end_us = now_us + (r.end_us - w->now_us);
    }
    if (w->number == CAS_NUMBER_OWNER && number > r.epoch) {
        if (r.first == r.epoch)
            r.first = number;
        r.epoch = number;
    }
    if (w->number == CAS_NUMBER_REFRESHER && number > r.refresh.epoch)
        r.refresh.epoch = number;
    drop_ends(&r);
    return r;
}

void vow__cas_found_fini(struct cas_found *found)
{
    vow_bytes_unref(found->value);
    found->value = NULL;
}

const struct cas_mark *vow__cas_mark(const struct cas_found *f,
                                     const vow_token *token)
{
    const struct rules_record *r = &f->record;
    if (r->state == RULES_RUNNING && same_token(&r->token, token))
        return &f->owner;
    if (r->refresh.epoch != 0 && !r->refresh.failed &&
        same_token(&r->refresh.token, token))
        return &f->refresher;
    return NULL;
}

/* ---- the loop ------------------------------------------------------------ */

int vow__cas_change_run(struct cas_change *c)
{
    struct cas_lease lease = {.id = 0};
    int rc = 0;
    change_guess(c);
    for (int tries = 0; rc == 0 && tries < CAS_TRIES_MAX; tries++) {
        if (c->leases && c->lease_ms > 0)
            rc = vow__cas_lease_use(c->cas, c->lease_ms, true, c->due_ns,
                                    &lease);
        if (rc < 0)
            break;
        change_decide(c, c->now_us);
        if (c->d.code != 0)
            return c->d.code;
        if (change_writes(c, &lease)) {
            rc = change_write(c, &lease);
            if (rc == 0 && c->wrote)
                return change_show(c);
        } else if (!c->seen) {
            rc = change_read(c);
        } else {
            rc = change_show(c);
            if (rc != VOW_ENOENT)
                return rc;
            rc = change_read(c); /* the value went with its record */
        }
    }
    if (c->unsure) /* keeps G1 */
        return VOW_EUNSURE;
    return rc == 0 ? VOW_EAGAIN : rc == VOW_EUNSURE ? VOW_ESTORE : rc;
}

void vow__cas_change_fini(struct cas_change *c)
{
    vow__cas_found_fini(&c->found);
    vow_bytes_unref(c->shown);
    c->shown = NULL;
}

/* Begins with what the caller or the cache knows, else with an absent name. */
static void change_guess(struct cas_change *c)
{
    struct cas_name *n = c->name;
    c->now_us = vow__cas_clock_us(c->cas);
    if (c->seen)
        return;
    if (n->known) {
        c->found = n->found;
        c->found.value = NULL;
        if (c->now_us < c->found.now_us)
            c->now_us = c->found.now_us;
    }
    c->found.name = n->name;
    c->found.has_left = false;
    c->found.registered = false;
}

static int change_read(struct cas_change *c)
{
    struct cas_found now = {.version = 0};
    const struct cas_read read = {.names = &c->name->name,
                                  .n = 1,
                                  .waited = c->waited,
                                  .values = true,
                                  .due_ns = c->due_ns};
    struct cas_service *service = c->cas->service;
    int rc = service->ops->read(service, &read, &now);
    if (rc == 0)
        change_look(c, &now);
    return rc;
}

/* Goes on with the name as an answer has shown the name. */
static void change_look(struct cas_change *c, struct cas_found *now)
{
    vow__cas_found_fini(&c->found);
    c->found = *now;
    c->now_us = now->now_us;
    c->seen = true;
    if (c->unsure && now->version != c->unsure_version)
        c->unsure = false; /* the write cannot happen any more */
    vow__cas_clock_set(c->cas, now->now_us);
    vow__cas_name_note(c->name, now);
}

static void change_decide(struct cas_change *c, uint64_t now_us)
{
    const struct cas_found *f = &c->found;
    const struct rules_record r = vow__cas_record(f, now_us);
    const struct rules_now now = {.now_us = now_us,
                                  .recheck_ms = c->cas->ops.recheck_ms};
    c->d = c->decide(c, r.state == RULES_NONE ? NULL : &r,
                     f->has_left ? &f->left : NULL, now);
}

/* ---- writing ------------------------------------------------------------- */

/* Returns whether the decision makes the token an owner or refresher, or keeps
 * the token so. */
static bool change_leases(const struct cas_change *c)
{
    return c->leases && (c->d.effects & EFFECT_WRITE) != 0 &&
           (c->d.status == VOW_STATUS_OWNED ||
            c->d.status == VOW_STATUS_CANCELED);
}

/* Returns whether the decision changes anything at the service. A renewal
 * changes nothing if the mark hangs on the lease already. */
static bool change_writes(const struct cas_change *c,
                          const struct cas_lease *lease)
{
    const uint32_t changes = EFFECT_TEXTS | EFFECT_VALUE | EFFECT_CLEAR |
                             EFFECT_WAKE | EFFECT_TELL_OWNER | EFFECT_CHUNK;
    const struct cas_found *f = &c->found;
    uint32_t effects = c->d.effects;
    struct rules_record next = c->d.next;
    struct rules_record old = f->record;
    if ((c->cas->flags & CAS_REGISTERS) != 0 &&
        (((effects & EFFECT_WAIT) != 0 && !f->registered) ||
         ((effects & EFFECT_UNWAIT) != 0 && f->registered)))
        return true;
    if ((effects & EFFECT_WRITE) == 0)
        return false;
    if (c->insist || (effects & changes) != 0)
        return true;
    if (change_leases(c)) {
        const struct cas_mark *m = vow__cas_mark(f, c->token);
        uint64_t want = c->lease_ms > 0 ? lease->id : 0;
        if (m == NULL || m->lease != want ||
            (c->name->remark && vow__cas_name_owned(c->name, c->token)))
            return true;
    }
    drop_ends(&next);
    drop_ends(&old);
    return next.state != old.state || next.lease_us != old.lease_us ||
           next.epoch != old.epoch || next.canceled != old.canceled ||
           next.refresh.epoch != old.refresh.epoch ||
           next.refresh.lease_us != old.refresh.lease_us ||
           next.refresh.failed != old.refresh.failed ||
           next.refresh.canceled != old.refresh.canceled;
}

static uint64_t change_keep_ms(const struct cas_change *c)
{
    uint64_t until_us = c->d.keep_until_us;
    uint64_t ms = until_us > c->now_us ? (until_us - c->now_us) / 1000 + 1 : 0;
    if (until_us == RULES_NEVER)
        return UINT64_MAX;
    return ms < CAS_KEEP_MS ? CAS_KEEP_MS : ms;
}

static struct cas_write change_make_write(const struct cas_change *c,
                                          const struct cas_lease *lease)
{
    const struct decision *d = &c->d;
    const struct cas_found *f = &c->found;
    bool texts = (d->effects & EFFECT_TEXTS) != 0;
    struct cas_write w = {
        .name = c->name->name,
        .was = f,
        .waited = d->left ? 0 : c->waited,
        .marks = c->token == NULL || vow__cas_mark(f, c->token) == NULL,
        .wait = c->wait,
        .effects = d->effects,
        .next = d->next,
        .now_us = c->now_us,
        .fresh = d->next.state != RULES_NONE && d->next.since_us == c->now_us,
        .label = f->label,
        .runner = f->runner,
        .keep_ms = change_keep_ms(c),
        .value = c->value,
        .due_ns = c->due_ns};
    if (texts && c->label != NULL && c->label[0] != 0)
        w.label = c->label;
    if (texts && c->runner != NULL)
        w.runner = c->runner;
    if (d->next.state == RULES_NONE)
        w.label = w.runner = "";
    if (!change_leases(c))
        return w;
    w.token = c->token;
    if (c->lease_ms > 0)
        w.lease = *lease;
    if (d->refresh && d->next.refresh.epoch != f->record.refresh.epoch &&
        d->next.state == f->record.state)
        w.number = CAS_NUMBER_REFRESHER;
    else if (!d->refresh && texts)
        w.number = CAS_NUMBER_OWNER;
    return w;
}

/* Writes if the name is unchanged. Without success, `found` has the name as it
 * is now, and 0 is returned for another try. */
static int change_write(struct cas_change *c, const struct cas_lease *lease)
{
    struct cas_service *service = c->cas->service;
    struct cas_found now = {.version = 0};
    struct cas_write w = change_make_write(c, lease);
    uint64_t version = c->found.version;
    int rc = service->ops->write(service, &w, &now);
    if (rc == VOW_EUNSURE) {
        c->unsure = c->was_unsure = true;
        c->unsure_version = version;
        return change_read(c);
    }
    if (rc == VOW_ENOENT) {
        vow__cas_lease_gone(c->cas, lease->id);
        return 0;
    }
    if (rc < 0 && rc != VOW_EAGAIN)
        return rc;
    if (rc == 0 && (w.effects & (EFFECT_WRITE | EFFECT_WAIT)) == 0) {
        c->found.registered = false; /* and the decision stays */
        c->found.waiters = now.waiters;
        return 0;
    }
    change_look(c, &now);
    c->wrote = rc == 0 && (w.effects & EFFECT_WRITE) != 0;
    if (!c->wrote && w.waited != c->waited)
        return change_read(c); /* the answer has no result left for waiters */
    if (!c->wrote)
        return 0;
    c->unsure = false;
    if (w.number == CAS_NUMBER_OWNER) {
        c->d.epoch = now.record.epoch;
        c->d.first = now.record.first;
    } else if (w.number == CAS_NUMBER_REFRESHER) {
        c->d.epoch = c->d.first = now.record.refresh.epoch;
    }
    return 0;
}

/* ---- answers ------------------------------------------------------------- */

/* Fetches the value of the answer. VOW_ENOENT: the value is gone. */
static int change_show(struct cas_change *c)
{
    const struct cas_found *f = &c->found;
    struct cas_service *service = c->cas->service;
    vow_bytes_unref(c->shown);
    c->shown = NULL;
    if ((c->d.effects & EFFECT_SHOW) == 0)
        return 0;
    if (!c->d.left && c->d.next.state == RULES_GAVE_UP)
        return vow__failure_make(&c->cas->alloc, VOW_EGAVEUP, NULL, &c->shown);
    if (!f->valued)
        return service->ops->value(service, &f->name, c->d.epoch,
                                   c->d.left ? c->d.first : 0, c->due_ns,
                                   &c->shown);
    c->shown = vow_bytes_ref(f->value);
    return 0;
}

/* Makes an answer about a run or a result; texts are borrowed. */
static vow_record record_answer(const struct cas_found *f,
                                const struct rules_record *r, uint64_t now_us)
{
    bool runs = r->state == RULES_RUNNING;
    const struct cas_mark *m = runs ? vow__cas_mark(f, &r->token) : NULL;
    bool clocked = m == NULL || m->left_us != RULES_NEVER;
    uint64_t left_us = r->end_us > now_us ? r->end_us - now_us : 0;
    if (runs && left_us > r->lease_us)
        left_us = r->lease_us;
    else if (r->end_us == RULES_NEVER)
        left_us = RULES_NEVER;
    return (vow_record){
        .name = f->name,
        .mode = r->mode,
        .epoch = r->epoch,
        .first = r->first,
        .takeovers = r->takeovers,
        .waiters = f->waiters,
        .failed = r->state == RULES_FAILED || r->state == RULES_GAVE_UP,
        .age_ms = now_us > r->since_us ? (now_us - r->since_us) / 1000 : 0,
        .pulse_ms = !runs      ? 0
                    : !clocked ? UINT64_MAX
                               : (r->lease_us - left_us) / 1000,
        .left_ms = left_us == RULES_NEVER ? UINT64_MAX : (left_us + 999) / 1000,
        .cost_ms = r->cost_ms,
        .label = f->label,
        .runner = f->runner};
}

vow_record vow__cas_change_answer(const struct cas_change *c)
{
    const struct decision *d = &c->d;
    struct rules_record r = d->next;
    if (d->left)
        r = c->found.left;
    else if (c->wrote)
        r = vow__cas_record(&c->found, c->now_us);
    if (d->refresh)
        r = vow__rules_refresher(&r);
    vow_record a = record_answer(&c->found, &r, c->now_us);
    a.status = d->status;
    a.epoch = d->epoch;
    a.first = d->first;
    a.value = c->shown;
    return a;
}

vow_record vow__cas_found_answer(const struct cas_found *f)
{
    const struct rules_record stored = vow__cas_record(f, f->now_us);
    const struct rules_record r = vow__rules_current(&stored, f->now_us);
    vow_record a = record_answer(f, &r, f->now_us);
    a.status = vow__rules_peek(&stored, f->now_us);
    return a;
}
