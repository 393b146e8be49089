/* SPDX-License-Identifier: MIT */
/* file_change.c - a step on a name: find, decide, carry out.
 *
 * HOW   A step reads the record and asks a rule (store/rules). If the decision
 *       changes nothing, the step has only read: many that look again do not
 *       get in the way of processes that work. Otherwise the step goes over to
 *       writing, decides again by the time of then, and carries the decision
 *       out. No other process can have changed the record in between, or the
 *       step begins anew.
 *       Settled with a time to live of 0, a record goes at once if no instance
 *       is registered and no owner was replaced: no claim can ask for the
 *       result. If an owner was replaced, the result is left: the owner may
 *       have been stopped, and asks for the result when the process goes on.
 * INVARIANTS
 *   C1  change_apply() is the only writer of records, of results left for
 *       waiters, of registered instances and of chunks; but the sweep, and
 *       instances that leave
 *   C2  a row of `wait` is there only while the name runs or has a refresher
 * THREADS  loop thread only.
 */
#include "base/failure.h"
#include "store/file/file_rows.h"

#include <string.h>

static int change_look(struct vow__file *s, struct vow__file_change *c);
static int change_decide(struct vow__file *s, struct vow__file_change *c);
static int change_show(struct vow__file *s, struct vow__file_change *c);
static bool change_must_write(const struct vow__file_change *c, bool waits);
static int change_begin(struct vow__file *s, struct vow__file_change *c);
static bool change_runs(const struct vow__file_change *c);
static int change_apply(struct vow__file *s, struct vow__file_change *c);
static int apply_record(struct vow__file *s, struct vow__file_change *c);
static int apply_value(struct vow__file *s, struct vow__file_change *c);
static int apply_waiters(struct vow__file *s, struct vow__file_change *c);
static int apply_firm(struct vow__file *s, struct vow__file_change *c);
static int row_clear(struct vow__file *s, const struct vow__file_row *row);
static int wait_find(struct vow__file *s, const vow_name *name,
                     bool *ret_waits);
static int waiters_list(struct vow__file *s, struct vow__file_change *c);

int vow__file_change(struct vow__file *s, struct vow__file_change *c)
{
    bool waits = false;
    int rc = change_look(s, c);
    if (rc == 0 && c->claims && s->phase == FILE_WRITES)
        rc = vow__file_epoch_load(s);
    if (rc == 0)
        rc = change_decide(s, c);
    if (rc == 0 && s->waited)
        rc = wait_find(s, c->name, &waits);
    if (rc == 0 && change_must_write(c, waits)) {
        rc = change_begin(s, c);
        if (rc == 0)
            rc = change_apply(s, c);
    }
    if (rc == 0 && c->known && change_runs(c))
        rc = vow__file_waiters_count(s, c->name, &c->waiters);
    return rc;
}

/* The answer shows a running name. */
static bool change_runs(const struct vow__file_change *c)
{
    const struct decision *d = &c->decision;
    return (d->next.state == RULES_RUNNING || d->refresh) && !d->left;
}

/* ---- deciding ----------------------------------------------------------- */

static int change_look(struct vow__file *s, struct vow__file_change *c)
{
    c->applied = false;
    c->inherited = false;
    c->owned = 0;
    c->waiters = 0;
    c->listed = false;
    c->left.record.state = RULES_NONE;
    int rc = vow__file_row_find(s, c->name, &c->row);
    if (rc == 0 && c->waited != 0)
        rc = vow__file_left_find(s, &c->row, c->waited, &c->left);
    if (rc == 0)
        vow__file_row_bury(s, &c->row, c->token);
    c->promoted = rc == 0 && vow__file_row_promoted(s, &c->row);
    c->known = c->row.record.state != RULES_NONE;
    c->was_firm = vow__file_is_firm(&c->row.record);
    return rc;
}

static const struct rules_record *record_found(const struct vow__file_row *row)
{
    return row->record.state == RULES_NONE ? NULL : &row->record;
}

/* The result counts as no result; but work of mode once is not begun again. */
static int result_gone(struct vow__file *s, struct vow__file_row *row)
{
    if (row->record.mode == VOW_ONCE)
        return vow__file_fail(s, VOW_EIO,
                              "the work is done, but its result is gone from "
                              "%s/val: forget the name if the work may run "
                              "again",
                              s->folder);
    row->record = (struct rules_record){.state = RULES_NONE};
    return 0;
}

/* Decides. A value that is gone is found on the way: then it decides again. */
static int change_decide(struct vow__file *s, struct vow__file_change *c)
{
    struct rules_now now = {.now_us = (uint64_t)s->now_us,
                            .number = vow__file_epoch_number(s),
                            .recheck_ms = FILE_RECHECK_MS};
    int rc = 0;
    c->shown = vow_bytes_unref(c->shown);
    if (c->settles) /* only then `exact` matters */
        rc = waiters_list(s, c);
    now.exact = c->settles && s->n_waiting == 0;
    for (int i = 0; rc == 0; i++) {
        c->decision =
            c->decide(c, record_found(&c->row), record_found(&c->left), now);
        rc = c->decision.code;
        if (rc == 0)
            rc = change_show(s, c);
        if (rc != VOW_ENOENT || i > 1)
            return rc;
        rc = result_gone(s, c->decision.left ? &c->left : &c->row);
    }
    return rc;
}

/* Fetches the value of the answer. VOW_ENOENT: the value is gone. */
static int change_show(struct vow__file *s, struct vow__file_change *c)
{
    const struct decision *d = &c->decision;
    if ((d->effects & EFFECT_SHOW) == 0)
        return 0;
    if (!d->left && d->next.state == RULES_GAVE_UP)
        return vow__failure_make(&s->alloc, VOW_EGAVEUP, NULL, &c->shown);
    return vow__file_value_get(s, d->left ? &c->left : &c->row, d->left,
                               &c->shown);
}

static bool change_must_write(const struct vow__file_change *c, bool waits)
{
    uint32_t effects = c->decision.effects & ~(uint32_t)EFFECT_SHOW;
    if (waits)
        effects &= ~(uint32_t)EFFECT_WAIT;
    else
        effects &= ~(uint32_t)EFFECT_UNWAIT;
    return effects != 0;
}

/* From here on the step writes. A decision that was made while reading is made
 * again, by the time and the numbers of now. */
static int change_begin(struct vow__file *s, struct vow__file_change *c)
{
    bool joins = c->owns || (c->decision.effects & EFFECT_WAIT) != 0;
    int rc = joins ? vow__file_join(s) : 0;
    if (rc != 0 || s->phase == FILE_WRITES)
        return rc;
    rc = vow__file_write(s);
    if (rc == 0 && c->claims)
        rc = vow__file_epoch_load(s);
    return rc == 0 ? change_decide(s, c) : rc;
}

/* ---- carrying out ------------------------------------------------------- */

/* Nothing in mode once is begun in a store that has lost its records. */
static int begin_once(struct vow__file *s)
{
    char why[FILE_LOST_MAX] = "";
    if (!vow__file_lost_read(s, why))
        return vow__file_epoch_count(s);
    return vow__file_fail(s, VOW_EIO,
                          "the store has lost its records (%s), and this may "
                          "have been begun before: find out, then remove "
                          "%s/lost",
                          why, s->folder);
}

static int change_apply(struct vow__file *s, struct vow__file_change *c)
{
    const struct decision *d = &c->decision;
    const bool grants =
        d->next.state == RULES_RUNNING && (d->effects & EFFECT_TEXTS) != 0;
    int rc = 0;
    c->applied = true;
    if (grants && d->next.mode == VOW_ONCE)
        rc = begin_once(s);
    if (rc == 0 && grants && c->row.record.state == RULES_RUNNING &&
        c->row.owned) {
        c->inherited = true;
        memcpy(c->dead, c->row.inst, FILE_ID);
    }
    if (rc == 0 && (d->effects & EFFECT_CLEAR) != 0)
        rc = row_clear(s, &c->row);
    if (rc == 0 && (d->effects & EFFECT_TELL_OWNER) != 0 && c->row.owned)
        vow__file_tell(s, c->row.inst, FILE_CANCEL, c->name->hash,
                       sizeof(c->name->hash));
    if (rc == 0 && (d->effects & EFFECT_CHUNK) != 0)
        rc = vow__file_chunk_add(s, c->name, c->row.record.chunks, c->value);
    if (rc == 0 && (d->effects & EFFECT_WRITE) != 0)
        rc = apply_record(s, c);
    if (rc == 0)
        rc = apply_waiters(s, c);
    if (rc == 0 && (d->effects & EFFECT_WRITE) != 0)
        rc = apply_firm(s, c);
    return rc;
}

/* Texts of the record that is written over the row. A claim brings both, and a
 * claimed refresh the runner; other steps keep the texts of a run. */
static void apply_texts(struct vow__file *s, struct vow__file_change *c)
{
    struct vow__file_row *row = &c->row;
    const bool texts = (c->decision.effects & EFFECT_TEXTS) != 0;
    const bool claims = texts && c->decision.next.state == RULES_RUNNING;
    const bool ran =
        vow__rules_view(record_found(row), (uint64_t)s->now_us) !=
            RULES_VIEW_NONE &&
        (row->record.state == RULES_RUNNING || c->promoted || !texts);
    if (row->record.refresh.epoch != 0 && !texts &&
        c->decision.next.state == RULES_RUNNING) /* the refresher owns now */
        vow__file_text_cut(row->runner, row->refresher);
    else if (c->decision.next.refresh.epoch > row->record.refresh.epoch)
        vow__file_text_cut(row->refresher, c->runner);
    if (claims) {
        vow__file_text_cut(row->label, c->label);
        vow__file_text_cut(row->runner, c->runner);
        return;
    }
    if (!ran) {
        row->label[0] = '\0';
        vow__file_text_cut(row->runner, s->runner);
    }
    if (texts && c->label != NULL && c->label[0] != '\0')
        vow__file_text_cut(row->label, c->label);
}

/* Drops chunks and value of what is about to be replaced. A value that is left
 * for waiters stays. */
static int row_clear(struct vow__file *s, const struct vow__file_row *row)
{
    const struct rules_record *r = &row->record;
    int rc = 0;
    if ((r->state == RULES_DONE || r->state == RULES_FAILED) && !r->spent)
        rc = vow__file_cache_drop(s, &row->name);
    if (rc == 0 && row->left)
        rc = vow__file_left_keep(s, row);
    else if (rc == 0 && row->file[0] != '\0')
        rc = vow__file_litter(s, row->file);
    if (rc != 0 || r->chunks == 0)
        return rc;
    sqlite3_stmt *q = vow__file_sql(s, "DELETE FROM chunk WHERE h=?1");
    vow__file_bind(q, 1, row->name.hash, sizeof(row->name.hash));
    return vow__file_do(s, q);
}

static bool row_is_ours(const struct vow__file *s,
                        const struct vow__file_row *row)
{
    return row->owned && memcmp(row->inst, s->id, FILE_ID) == 0;
}

/* Whose death expires a lease of the record that is about to be written. */
static void apply_owner(struct vow__file *s, struct vow__file_change *c)
{
    const struct decision *d = &c->decision;
    const struct rules_refresh *f = &d->next.refresh;
    const bool runs = d->next.state == RULES_RUNNING;
    const bool refreshes = f->epoch != 0 && !f->failed;
    struct vow__file_row *row = &c->row;
    c->owned = -(int)row_is_ours(s, row);
    row->owned = row->owned && (runs || refreshes);
    if (c->owns &&
        (d->status == VOW_STATUS_OWNED || d->status == VOW_STATUS_CANCELED)) {
        uint64_t end_us = runs ? d->next.end_us : f->end_us;
        row->owned = true;
        memcpy(row->inst, s->id, FILE_ID);
        if (s->owns_until_us < end_us)
            s->owns_until_us = end_us;
    }
    c->owned += (int)row_is_ours(s, row);
}

static int apply_record(struct vow__file *s, struct vow__file_change *c)
{
    static const struct vow__file_value empty;
    const struct decision *d = &c->decision;
    struct vow__file_row *row = &c->row;
    const uint64_t other = d->next.refresh.epoch;
    const bool there = row->record.state != RULES_NONE;
    const bool insert = !there || (d->effects & EFFECT_CLEAR) != 0;
    int rc =
        vow__file_epoch_seen(s, d->next.epoch > other ? d->next.epoch : other);
    if (rc != 0)
        return rc;
    apply_owner(s, c);
    if (d->next.state == RULES_NONE) {
        row->record = d->next;
        return there ? vow__file_row_delete(s, c->name) : 0;
    }
    apply_texts(s, c);
    row->record = d->next;
    row->left = row->left && !insert;
    if ((d->effects & EFFECT_VALUE) != 0)
        return apply_value(s, c);
    return vow__file_row_put(s, row, d->keep_until_us, insert ? &empty : NULL);
}

/* A result; with a time to live of 0 the value is kept only for the claims that
 * waited, and for an owner that was replaced. */
static int apply_value(struct vow__file *s, struct vow__file_change *c)
{
    static const struct vow__file_value empty;
    const struct decision *d = &c->decision;
    const struct vow__file_value *value = c->value == NULL ? &empty : c->value;
    struct vow__file_row *row = &c->row;
    const bool leaves = (d->effects & EFFECT_LEAVE) != 0;
    const bool replaced = d->next.first != d->next.epoch;
    int rc = leaves && !replaced ? waiters_list(s, c) : 0;
    row->left = leaves && (replaced || s->n_waiting > 0);
    if (rc == 0 && leaves && !row->left && value->file[0] != '\0')
        rc = vow__file_litter(s, value->file);
    if (leaves && !row->left)
        value = &empty;
    memcpy(row->file, value->file, sizeof(row->file));
    return rc == 0 ? vow__file_row_put(s, row, d->keep_until_us, value) : rc;
}

/* The copy that survives a reboot. A renewed lease needs none: after a reboot
 * every lease has expired. */
static int apply_firm(struct vow__file *s, struct vow__file_change *c)
{
    const uint32_t changes = EFFECT_CLEAR | EFFECT_TEXTS | EFFECT_VALUE;
    bool is_firm = vow__file_is_firm(&c->row.record);
    if (is_firm && (!c->was_firm || (c->decision.effects & changes) != 0))
        return vow__file_firm_put(s, c->name);
    return c->was_firm && !is_firm ? vow__file_firm_delete(s, c->name) : 0;
}

/* ---- registered instances ----------------------------------------------- */

static int wait_find(struct vow__file *s, const vow_name *name, bool *ret_waits)
{
    sqlite3_stmt *q =
        vow__file_sql(s, "SELECT 1 FROM wait WHERE h=?1 AND inst=?2");
    int rc;
    vow__file_bind(q, 1, name->hash, sizeof(name->hash));
    vow__file_bind(q, 2, s->id, FILE_ID);
    *ret_waits = vow__file_row(s, q, &rc);
    if (*ret_waits)
        (void)sqlite3_reset(q);
    return rc;
}

int vow__file_waiters_count(struct vow__file *s, const vow_name *name,
                            uint32_t *ret_n)
{
    sqlite3_stmt *q = vow__file_sql(s, "SELECT count(*) FROM wait WHERE h=?1");
    int rc;
    vow__file_bind(q, 1, name->hash, sizeof(name->hash));
    *ret_n = 0;
    if (vow__file_row(s, q, &rc)) {
        *ret_n = (uint32_t)sqlite3_column_int64(q, 0);
        (void)sqlite3_reset(q);
    }
    return rc;
}

/* Reads the registered instances, once in a step. Without memory for an id its
 * instance is counted, and not told. */
static int waiters_list(struct vow__file *s, struct vow__file_change *c)
{
    int rc = 0;
    if (c->listed)
        return 0;
    sqlite3_stmt *q = vow__file_sql(s, "SELECT inst FROM wait WHERE h=?1");
    vow__buf_clear(&s->waiting);
    s->n_waiting = 0;
    vow__file_bind(q, 1, c->name->hash, sizeof(c->name->hash));
    while (vow__file_row(s, q, &rc)) {
        void *at = vow__buf_push(&s->waiting, FILE_ID);
        if (at != NULL)
            vow__file_bytes_read(q, 0, at, FILE_ID);
        s->n_waiting++;
    }
    c->listed = rc == 0;
    return rc;
}

static int tell_waiters(struct vow__file *s, struct vow__file_change *c,
                        enum vow__file_message_kind kind)
{
    int rc = waiters_list(s, c);
    for (size_t at = 0; rc == 0 && at < s->waiting.n; at += FILE_ID)
        vow__file_tell(s, s->waiting.bytes + at, kind, c->name->hash,
                       sizeof(c->name->hash));
    return rc;
}

/* Runs a statement about this instance as a waiter for the name. */
static int wait_do(struct vow__file *s, sqlite3_stmt *q, const vow_name *name)
{
    vow__file_bind(q, 1, name->hash, sizeof(name->hash));
    vow__file_bind(q, 2, s->id, FILE_ID);
    return vow__file_do(s, q);
}

static int apply_waiters(struct vow__file *s, struct vow__file_change *c)
{
    const uint32_t effects = c->decision.effects;
    int rc = 0;
    if ((effects & EFFECT_UNWAIT) != 0 && s->waited)
        rc = wait_do(s,
                     vow__file_sql(s, "DELETE FROM wait"
                                      " WHERE h=?1 AND inst=?2"),
                     c->name);
    if (rc == 0 && (effects & EFFECT_WAIT) != 0) {
        s->waited = true;
        rc = wait_do(s,
                     vow__file_sql(s, "INSERT OR IGNORE INTO wait"
                                      " VALUES(?1,?2)"),
                     c->name);
    }
    if (rc == 0 && (effects & EFFECT_CHUNK) != 0)
        rc = tell_waiters(s, c, FILE_CHUNKS);
    if (rc != 0 || (effects & EFFECT_WAKE) == 0)
        return rc;
    rc = tell_waiters(s, c, FILE_RECORD);
    if (rc != 0 || s->n_waiting == 0)
        return rc;
    if ((effects & EFFECT_VALUE) != 0) {
        vow_record told = vow__file_record(s, &c->row, VOW_STATUS_SETTLED);
        told.value = c->value == NULL ? NULL : c->value->bytes;
        vow__file_tell_result(s, &told);
    }
    sqlite3_stmt *q = vow__file_sql(s, "DELETE FROM wait WHERE h=?1");
    vow__file_bind(q, 1, c->name->hash, sizeof(c->name->hash));
    return vow__file_do(s, q); /* keeps C2 */
}

/* ---- answers ------------------------------------------------------------ */

vow_record vow__file_change_record(const struct vow__file *s,
                                   const struct vow__file_change *c)
{
    const struct decision *d = &c->decision;
    const struct vow__file_row *from = d->left ? &c->left : &c->row;
    const struct rules_record r = d->left      ? c->left.record
                                  : d->refresh ? vow__rules_refresher(&d->next)
                                               : d->next;
    vow_record out = {.status = d->status, .label = "", .runner = ""};
    if (d->status != VOW_STATUS_NONE)
        out = vow__file_record_of(s, &r, d->status);
    out.name = *c->name;
    if (d->status == VOW_STATUS_NONE)
        return out;
    out.epoch = d->epoch;
    out.first = d->first;
    out.waiters = c->waiters;
    out.value = c->shown;
    if (r.state != RULES_NONE) {
        out.label = from->label;
        out.runner = d->refresh ? from->refresher : from->runner;
    }
    return out;
}
