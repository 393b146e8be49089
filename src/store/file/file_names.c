/* SPDX-License-Identifier: MIT */
/* file_names.c - the steps on names: each is a rule of store/rules, carried out
 * by file_change.c.
 *
 * HOW   A claim begins by reading, unless the claim before had to write. A
 *       value longer than a row is in a file before the step that commits it
 *       begins. When the disk has no room for a result, shared work is given
 *       back, so that no waiter waits for the end of the lease.
 * THREADS  loop thread only.
 */
#include "store/file/file_rows.h"

#include <string.h>

static struct decision decide_claim(const struct vow__file_change *c,
                                    const struct rules_record *r,
                                    const struct rules_record *left,
                                    struct rules_now now);
static struct decision decide_commit(const struct vow__file_change *c,
                                     const struct rules_record *r,
                                     const struct rules_record *left,
                                     struct rules_now now);
static struct decision decide_forget(const struct vow__file_change *c,
                                     const struct rules_record *r,
                                     const struct rules_record *left,
                                     struct rules_now now);
static struct decision decide_cancel(const struct vow__file_change *c,
                                     const struct rules_record *r,
                                     const struct rules_record *left,
                                     struct rules_now now);
static struct decision decide_pulse(const struct vow__file_change *c,
                                    const struct rules_record *r,
                                    const struct rules_record *left,
                                    struct rules_now now);
static struct decision decide_chunk(const struct vow__file_change *c,
                                    const struct rules_record *r,
                                    const struct rules_record *left,
                                    struct rules_now now);
static int change_step(struct vow__file *s, void *arg);
static int pulse_step(struct vow__file *s, void *arg);

/* The disk may not have confirmed the step. */
static bool step_happened(int code)
{
    return code == 0 || code == VOW_EUNSURE;
}

static void answer_change(struct vow__file *s, int code,
                          struct vow__file_change *c, vow_records_fn done,
                          void *user)
{
    if (step_happened(code))
        s->owns += c->owned;
    if (code == 0) {
        vow_record r = vow__file_change_record(s, c);
        done(0, &r, 1, user);
    } else {
        done(code, NULL, 0, user);
    }
    c->shown = vow_bytes_unref(c->shown);
}

/* Runs the step and answers. */
static void run_change(struct vow__file *s, enum vow__file_how how,
                       struct vow__file_change *c, vow_records_fn done,
                       void *user)
{
    int code = vow__file_step(s, how, change_step, c);
    answer_change(s, code, c, done, user);
}

static int change_step(struct vow__file *s, void *arg)
{
    return vow__file_change(s, arg);
}

/* ---- claim -------------------------------------------------------------- */

void vow__file_claim(vow_store *store, const vow_claim_request *request,
                     vow_records_fn done, void *user)
{
    struct vow__file *s = vow__file_of(store);
    struct vow__file_change c = {.name = &request->name,
                                 .decide = decide_claim,
                                 .request = request,
                                 .token = &request->token,
                                 .waited = request->waited,
                                 .claims = true,
                                 .owns = true,
                                 .label = request->label,
                                 .runner = request->runner};
    bool joined = s->joined;
    int code = vow__file_step(
        s, s->claim_wrote ? VOW__FILE_GUESS : VOW__FILE_READ, change_step, &c);
    const struct decision *d = &c.decision;
    s->claim_wrote = c.applied && (d->effects & EFFECT_WRITE) != 0;
    if (!joined && !c.applied)
        vow__file_leave(s); /* neither owner nor waiter */
    if (code == 0 && d->status == VOW_STATUS_WAITING && c.row.owned)
        vow__file_watch(s, c.row.inst);
    if (code == 0 && d->status == VOW_STATUS_OWNED && request->mode == VOW_ONCE)
        vow__file_age_mark(s, s->high);
    if (code == 0 && c.inherited)
        vow__file_bury(s, c.dead);
    if (code == 0 && request->runner != NULL && request->runner[0] != '\0')
        vow__file_text_cut(s->runner, request->runner);
    answer_change(s, code, &c, done, user);
}

static struct decision decide_claim(const struct vow__file_change *c,
                                    const struct rules_record *r,
                                    const struct rules_record *left,
                                    struct rules_now now)
{
    return vow__rules_claim(r, left, c->request, now);
}

/* ---- pulse -------------------------------------------------------------- */

struct file_pulse {
    const vow_hold *holds;
    size_t n;
    uint64_t lease_ms;
    vow_record *out; /* room for n */
    int owned;       /* names more */
};

void vow__file_pulse(vow_store *store, const vow_hold *holds, size_t n,
                     uint64_t lease_ms, vow_records_fn done, void *user)
{
    struct vow__file *s = vow__file_of(store);
    struct file_pulse p = {.holds = holds, .n = n, .lease_ms = lease_ms};
    if (n == 0) {
        done(0, NULL, 0, user);
        return;
    }
    p.out = vow__mem_new(&s->alloc, n * sizeof(p.out[0]));
    int code = VOW_ENOMEM;
    if (p.out != NULL)
        code = vow__file_step(s, VOW__FILE_WRITE, pulse_step, &p);
    if (step_happened(code))
        s->owns += p.owned;
    done(code, code == 0 ? p.out : NULL, code == 0 ? n : 0, user);
    vow__mem_free(&s->alloc, p.out, n * sizeof(p.out[0]));
}

struct one_pulse {
    const vow_hold *hold;
    uint64_t lease_ms;
};

static int pulse_step(struct vow__file *s, void *arg)
{
    struct file_pulse *p = arg;
    int rc = vow__file_join(s);
    p->owned = 0;
    for (size_t i = 0; i < p->n && rc == 0; i++) {
        struct one_pulse one = {&p->holds[i], p->lease_ms};
        struct vow__file_change c = {.name = &one.hold->name,
                                     .decide = decide_pulse,
                                     .request = &one,
                                     .token = &one.hold->token,
                                     .owns = true};
        rc = vow__file_change(s, &c);
        p->out[i] = vow__file_change_record(s, &c);
        p->out[i].label = ""; /* the texts are not asked for */
        p->out[i].runner = "";
        p->owned += c.owned;
    }
    return rc;
}

static struct decision decide_pulse(const struct vow__file_change *c,
                                    const struct rules_record *r,
                                    const struct rules_record *left,
                                    struct rules_now now)
{
    const struct one_pulse *one = c->request;
    (void)left;
    return vow__rules_pulse(r, one->hold, one->hold->mode, one->lease_ms, now);
}

/* ---- commit ------------------------------------------------------------- */

static int give_back_step(struct vow__file *s, void *arg);

void vow__file_commit(vow_store *store, const vow_commit_request *request,
                      vow_records_fn done, void *user)
{
    struct vow__file *s = vow__file_of(store);
    struct vow__file_value value = {.bytes = NULL};
    struct vow__file_change c = {.name = &request->hold.name,
                                 .decide = decide_commit,
                                 .request = request,
                                 .token = &request->hold.token,
                                 .settles = request->ttl_ms == 0,
                                 .label = request->label,
                                 .value = &value};
    int code =
        vow_bytes_size(request->value) > s->opts.value_max ? VOW_E2BIG : 0;
    bool firm = request->hold.mode == VOW_ONCE ||
                (request->flags & VOW_COMMIT_RESOLVE) != 0;
    if (code == 0 && request->outcome != VOW_OUTCOME_ABANDONED)
        code = vow__file_value_write(s, c.name, request->value, firm, &value);
    if (code == 0)
        code = vow__file_step(s, VOW__FILE_WRITE, change_step, &c);
    bool stored = step_happened(code) && c.applied &&
                  (c.decision.effects & EFFECT_VALUE) != 0;
    if (!stored)
        vow__file_value_unlink(s, value.file);
    if (code == VOW_ESTORE && s->full) {
        code = VOW_ENOSPC;
        if (step_happened(
                vow__file_step(s, VOW__FILE_WRITE, give_back_step, &c)))
            s->owns += c.owned;
    }
    answer_change(s, code, &c, done, user);
}

static struct decision decide_commit(const struct vow__file_change *c,
                                     const struct rules_record *r,
                                     const struct rules_record *left,
                                     struct rules_now now)
{
    (void)left;
    return vow__rules_commit(r, c->request, now);
}

/* There is no room for the result. Fenced work and work of mode once stay as
 * they are. */
static int give_back_step(struct vow__file *s, void *arg)
{
    struct vow__file_change *c = arg;
    const vow_commit_request *request = c->request;
    vow_commit_request abandon = *request;
    struct vow__file_row row;
    int rc = vow__file_row_find(s, c->name, &row);
    c->owned = 0;
    if (rc != 0 || row.record.mode != VOW_SHARED ||
        (row.record.state != RULES_RUNNING &&
         row.record.refresh.epoch != request->hold.epoch))
        return rc;
    abandon.outcome = VOW_OUTCOME_ABANDONED;
    abandon.flags = VOW_COMMIT_STRICT;
    c->request = &abandon;
    rc = vow__file_change(s, c);
    c->request = request;
    return rc;
}

/* ---- forget and cancel -------------------------------------------------- */

void vow__file_forget(vow_store *store, const vow_name *name, uint64_t epoch,
                      vow_records_fn done, void *user)
{
    struct vow__file_change c = {
        .name = name, .decide = decide_forget, .request = &epoch};
    run_change(vow__file_of(store), VOW__FILE_READ, &c, done, user);
}

static struct decision decide_forget(const struct vow__file_change *c,
                                     const struct rules_record *r,
                                     const struct rules_record *left,
                                     struct rules_now now)
{
    const uint64_t *epoch = c->request;
    (void)left;
    return vow__rules_forget(r, *epoch, now);
}

void vow__file_cancel(vow_store *store, const vow_name *name,
                      vow_records_fn done, void *user)
{
    struct vow__file_change c = {.name = name, .decide = decide_cancel};
    run_change(vow__file_of(store), VOW__FILE_READ, &c, done, user);
}

static struct decision decide_cancel(const struct vow__file_change *c,
                                     const struct rules_record *r,
                                     const struct rules_record *left,
                                     struct rules_now now)
{
    (void)c;
    (void)left;
    return vow__rules_cancel(r, now);
}

/* ---- chunks ------------------------------------------------------------- */

struct chunk_written {
    const vow_hold *hold;
    uint64_t number;
    size_t size;
    size_t most;
};

void vow__file_chunk_write(vow_store *store, const vow_hold *hold,
                           uint64_t number, vow_bytes *chunk,
                           vow_records_fn done, void *user)
{
    struct vow__file *s = vow__file_of(store);
    struct chunk_written w = {hold, number, vow_bytes_size(chunk),
                              s->opts.value_max};
    struct vow__file_value value = {.bytes = chunk};
    struct vow__file_change c = {.name = &hold->name,
                                 .decide = decide_chunk,
                                 .request = &w,
                                 .token = &hold->token,
                                 .value = &value};
    if (w.size > w.most)
        done(VOW_E2BIG, NULL, 0, user);
    else
        run_change(s, VOW__FILE_WRITE, &c, done, user);
}

static struct decision decide_chunk(const struct vow__file_change *c,
                                    const struct rules_record *r,
                                    const struct rules_record *left,
                                    struct rules_now now)
{
    const struct chunk_written *w = c->request;
    (void)left;
    return vow__rules_chunk(r, w->hold, w->number, w->size, w->most, now);
}
