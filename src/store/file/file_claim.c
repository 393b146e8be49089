/* SPDX-License-Identifier: MIT */
/* file_claim.c - who does the work: claim and pulse.
 *
 * HOW   A claim begins by reading, unless the one before it had to write. A
 *       result that is there, and a wait that is registered, are answered
 *       without writing: many who look again do not get in the way of those
 *       who work. Whoever finds no record, or one whose
 *       lease has lapsed or whose owner has died, owns it from that step on,
 *       with a larger epoch. Who finds it taken is registered in the same step,
 *       so that no wake-up is lost in between.
 * THREADS  loop thread only.
 */
#include "base/failure.h"
#include "store/file/file_rows.h"

#include <string.h>

enum { GAVE_UP_MS = 60 * 1000 }; /* how long that is remembered */

struct claim {
    const vow_claim_request *ask;
    struct vow__file_rec rec;
    uint32_t status;
    bool wrote;     /* it had to */
    bool waits;     /* it was registered */
    bool inherited; /* from one that is perhaps dead: */
    unsigned char dead[FILE_ID];
    vow_bytes *value;
};

struct pulse {
    const vow_hold *holds;
    size_t n;
    uint64_t lease_ms;
    vow_record *out; /* room for n */
};

static int claim_step(struct vow__file *s, void *arg);
static bool gift_for(const struct vow__file_rec *r,
                     const vow_claim_request *ask);
static int take_gift(struct vow__file *s, struct claim *c);
static uint32_t finds(struct vow__file *s, const struct claim *c);
static bool same(const vow_token *a, const vow_token *b);
static int keep(struct vow__file *s, struct claim *c);
static int own(struct vow__file *s, struct claim *c);
static int begin_once(struct vow__file *s);
static int give_up(struct vow__file *s, struct claim *c);
static int await(struct vow__file *s, struct claim *c);
static int stop_waiting(struct vow__file *s, const struct vow__file_rec *r);
static int pulse_step(struct vow__file *s, void *arg);
static int pulse_one(struct vow__file *s, const vow_hold *hold,
                     uint64_t lease_ms, vow_record *out);
static int revive(struct vow__file *s, const vow_hold *hold,
                  struct vow__file_rec *r);

/* ---- claim -------------------------------------------------------------- */

void vow__file_claim(vow_store *store, const vow_claim_request *ask,
                     vow_records_fn done, void *user)
{
    struct vow__file *s = vow__file_of(store);
    struct claim c = {.ask = ask, .value = NULL};
    if (ask->floor > FILE_EPOCH_MAX || ask->mode > VOW_ONCE) {
        done(VOW_EINVAL, NULL, 0, user);
        return;
    }
    bool joined = s->joined;
    int code = vow__file_step(
        s, s->claim_wrote ? VOW__FILE_GUESS : VOW__FILE_READ, claim_step, &c);
    s->claim_wrote = c.wrote;
    if (!joined && !c.wrote && !c.waits)
        vow__file_leave(
            s); /* it was to work or to wait, and need not any more */
    if (code == 0) {
        vow_record r = vow__file_record(s, &c.rec, c.status);
        r.value = c.value;
        if (c.status == VOW_STATUS_WAITING && c.rec.owned)
            vow__file_watch(s, c.rec.inst);
        if (c.status == VOW_STATUS_OWNED && ask->mode == VOW_ONCE)
            vow__file_age_mark(s, s->high);
        if (c.inherited)
            vow__file_bury(s, c.dead);
        done(0, &r, 1, user);
    } else {
        done(code, NULL, 0, user);
    }
    vow_bytes_unref(c.value);
}

static int claim_step(struct vow__file *s, void *arg)
{
    struct claim *c = arg;
    struct vow__file_rec *r = &c->rec;
    c->value = vow_bytes_unref(c->value);
    c->wrote = false;
    c->waits = false;
    c->inherited = false;
    int rc = vow__file_rec_find(s, &c->ask->name, r);
    if (rc != 0)
        return rc;
    if (gift_for(r, c->ask)) {
        rc = take_gift(s, c);
        if (rc != VOW_ENOENT)
            return rc;
    }
    c->status = finds(s, c);
    if (c->status == VOW_STATUS_SETTLED) {
        rc = vow__file_value_get(s, &r->name, 0, &c->value);
        if (rc == VOW_ENOENT) /* its file is gone, and so is the result */
            c->status = VOW_STATUS_NONE;
        else if (rc != 0)
            return rc;
    }
    switch (c->status) {
    case VOW_STATUS_OWNED:
        c->wrote = true;
        return keep(s, c);
    case VOW_STATUS_NONE:
        c->wrote = true;
        return own(s, c);
    case VOW_STATUS_WAITING:
        return await(s, c);
    default:
        return stop_waiting(s, r);
    }
}

/* Is there a hidden result that this instance waited for? */
static bool gift_for(const struct vow__file_rec *r,
                     const vow_claim_request *ask)
{
    return r->waits && r->wait_epoch != 0 &&
           (ask->flags & VOW_CLAIM_FORCE) == 0 &&
           (!r->wait_read || same(&r->wait_token, &ask->token));
}

static int take_gift(struct vow__file *s, struct claim *c)
{
    struct vow__file_rec *r = &c->rec;
    sqlite3_stmt *q = vow__file_sql(s, "SELECT " FILE_REC_COLUMNS
                                       " FROM once r WHERE h=?1 AND epoch=?2");
    int rc;
    vow__file_bind(q, 1, r->name.hash, sizeof(r->name.hash));
    vow__file_bind_int(q, 2, r->wait_epoch);
    if (!vow__file_row(s, q, &rc))
        return rc == 0 ? VOW_ENOENT : rc;
    struct vow__file_rec gift = *r;
    rc = vow__file_rec_read(q, 0, &gift);
    (void)sqlite3_reset(q);
    if (rc != 0 || gift.end_us <= s->now_us)
        return rc == 0 ? VOW_ENOENT : rc;
    rc = vow__file_value_get(s, &r->name, r->wait_epoch, &c->value);
    if (rc != 0)
        return rc;
    c->status = VOW_STATUS_SETTLED;
    bool read = r->wait_read;
    *r = gift;
    if (read)
        return 0;
    rc = vow__file_write(s);
    if (rc != 0)
        return rc;
    q = vow__file_sql(s,
                      "UPDATE wait SET read=1,tok=?3 WHERE h=?1 AND inst=?2");
    vow__file_bind(q, 1, r->name.hash, sizeof(r->name.hash));
    vow__file_bind(q, 2, s->id, FILE_ID);
    vow__file_bind(q, 3, &c->ask->token, sizeof(c->ask->token));
    return vow__file_do(s, q);
}

/* OWN: it is the asker's already. NONE: it can be. */
static uint32_t finds(struct vow__file *s, const struct claim *c)
{
    const struct vow__file_rec *r = &c->rec;
    bool mine = r->there && same(&r->token, &c->ask->token);
    if (mine && r->state == FILE_RUNS)
        return VOW_STATUS_OWNED;
    if (r->there && r->state != FILE_RUNS && !mine &&
        (c->ask->flags & VOW_CLAIM_FORCE) != 0)
        return VOW_STATUS_NONE;
    return vow__file_rec_says(s, r);
}

static bool same(const vow_token *a, const vow_token *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static int keep(struct vow__file *s, struct claim *c)
{
    int rc = vow__file_join(s);
    if (rc == 0)
        rc = vow__file_write(s);
    if (rc == 0)
        rc = vow__file_rec_renew(s, &c->rec, c->ask->lease_ms);
    if (rc == 0)
        rc = stop_waiting(s, &c->rec);
    if (rc == 0)
        rc = vow__file_rec_count(s, &c->rec);
    return rc;
}

static int own(struct vow__file *s, struct claim *c)
{
    const vow_claim_request *ask = c->ask;
    struct vow__file_rec *r = &c->rec;
    bool over = r->there && r->state == FILE_RUNS;
    bool anew = /* a run that was lost long ago counts no more */
        !over ||
        r->end_us <= s->now_us - (int64_t)vow__file_us_of_ms(GAVE_UP_MS);
    int rc = vow__file_join(s);
    if (rc == 0)
        rc = vow__file_write(s);
    if (rc == 0)
        rc = stop_waiting(s, r);
    if (rc == 0)
        rc = vow__file_rec_clear(s, r);
    bool force = (ask->flags & VOW_CLAIM_FORCE) != 0;
    if (rc == 0 && !anew && !force && r->takeovers >= ask->takeovers)
        return give_up(s, c);
    int64_t above = r->there ? r->epoch : 0;
    if (above < (int64_t)ask->floor)
        above = (int64_t)ask->floor;
    if (rc == 0)
        rc = vow__file_epoch(s, above, &r->epoch);
    if (rc == 0 && over)
        rc = vow__file_rec_count(s, r);
    if (rc == 0 && ask->mode == VOW_ONCE)
        rc = begin_once(s);
    if (rc != 0)
        return rc;
    c->inherited = over && r->owned;
    memcpy(c->dead, r->inst, FILE_ID);
    r->takeovers = anew ? 0 : r->takeovers + 1;
    r->there = true;
    r->state = FILE_RUNS;
    r->hidden = false;
    r->canceled = false;
    r->waited = over && r->waited;
    r->mode = ask->mode;
    r->token = ask->token;
    r->owned = true;
    memcpy(r->inst, s->id, FILE_ID);
    r->since_us = s->now_us;
    r->pulse_us = s->now_us;
    r->lease_us = vow__file_us_of_ms(ask->lease_ms);
    r->end_us = vow__file_after(s, r->lease_us);
    r->cost_ms = 0;
    r->chunks = 0;
    r->bytes = 0;
    r->file[0] = '\0';
    vow__file_text_cut(r->label, ask->label);
    vow__file_text_cut(r->runner, ask->runner);
    if (r->runner[0] != '\0')
        vow__file_text_cut(s->runner, r->runner);
    c->status = VOW_STATUS_OWNED;
    s->owns++;
    return vow__file_rec_put(s, r, NULL);
}

/* Nobody knows whether it was begun before, if records were lost. */
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

/* Too many owners were lost: that is its result, and nobody's. */
static int give_up(struct vow__file *s, struct claim *c)
{
    struct vow__file_result failed = {.failed = true, .ttl_ms = GAVE_UP_MS};
    int rc = vow__failure_make(&s->alloc, VOW_EGAVEUP, NULL, &c->value);
    if (rc < 0)
        return rc;
    memset(&c->rec.token, 0, sizeof(c->rec.token));
    failed.value.bytes = c->value;
    c->status = VOW_STATUS_SETTLED;
    return vow__file_settle(s, &c->rec, &failed);
}

static int await(struct vow__file *s, struct claim *c)
{
    struct vow__file_rec *r = &c->rec;
    bool registered =
        r->waits && r->wait_epoch == 0 && same(&r->wait_token, &c->ask->token);
    if (registered || (c->ask->flags & VOW_CLAIM_NOWAIT) != 0)
        return vow__file_rec_count(s, r);
    int rc = vow__file_join(s);
    if (rc == 0)
        rc = vow__file_write(s);
    if (rc != 0)
        return rc;
    s->waited = true;
    c->waits = true;
    sqlite3_stmt *q =
        vow__file_sql(s, "INSERT OR REPLACE INTO wait VALUES(?1,?2,?3,0,0)");
    vow__file_bind(q, 1, r->name.hash, sizeof(r->name.hash));
    vow__file_bind(q, 2, s->id, FILE_ID);
    vow__file_bind(q, 3, &c->ask->token, sizeof(c->ask->token));
    rc = vow__file_do(s, q);
    if (rc == 0 && !r->waited) {
        r->waited = true;
        rc = vow__file_rec_put(s, r, NULL);
    }
    return rc == 0 ? vow__file_rec_count(s, r) : rc;
}

static int stop_waiting(struct vow__file *s, const struct vow__file_rec *r)
{
    if (!r->waits)
        return 0;
    int rc = vow__file_write(s);
    if (rc != 0)
        return rc;
    sqlite3_stmt *q =
        vow__file_sql(s, "DELETE FROM wait WHERE h=?1 AND inst=?2");
    vow__file_bind(q, 1, r->name.hash, sizeof(r->name.hash));
    vow__file_bind(q, 2, s->id, FILE_ID);
    return vow__file_do(s, q);
}

/* ---- pulse -------------------------------------------------------------- */

void vow__file_pulse(vow_store *store, const vow_hold *holds, size_t n,
                     uint64_t lease_ms, vow_records_fn done, void *user)
{
    struct vow__file *s = vow__file_of(store);
    struct pulse p = {.holds = holds, .n = n, .lease_ms = lease_ms};
    if (n == 0) {
        done(0, NULL, 0, user);
        return;
    }
    p.out = vow__mem_new(&s->alloc, n * sizeof(p.out[0]));
    int code = VOW_ENOMEM;
    if (p.out != NULL)
        code = vow__file_step(s, VOW__FILE_WRITE, pulse_step, &p);
    done(code, code == 0 ? p.out : NULL, code == 0 ? n : 0, user);
    vow__mem_free(&s->alloc, p.out, n * sizeof(p.out[0]));
}

static int pulse_step(struct vow__file *s, void *arg)
{
    struct pulse *p = arg;
    int rc = vow__file_join(s);
    for (size_t i = 0; i < p->n && rc == 0; i++)
        rc = pulse_one(s, &p->holds[i], p->lease_ms, &p->out[i]);
    return rc;
}

static int pulse_one(struct vow__file *s, const vow_hold *hold,
                     uint64_t lease_ms, vow_record *out)
{
    struct vow__file_rec r;
    uint32_t status = VOW_STATUS_SETTLED;
    int rc = vow__file_rec_find(s, &hold->name, &r);
    bool vanished = !r.there || (r.state != FILE_RUNS && r.end_us <= s->now_us);
    if (rc == 0 && vanished)
        rc = revive(s, hold, &r);
    if (rc != 0)
        return rc;
    if (r.state == FILE_RUNS) {
        status = VOW_STATUS_LOST;
        if (same(&r.token, &hold->token)) {
            rc = vow__file_rec_renew(s, &r, lease_ms);
            status = r.canceled ? VOW_STATUS_CANCELED : VOW_STATUS_OWNED;
        }
        if (rc == 0)
            rc = vow__file_rec_count(s, &r);
    }
    *out = vow__file_record(s, &r, status);
    out->label = ""; /* the texts are not asked for */
    out->runner = "";
    return rc;
}

/* The record has vanished: its owner is still there, and keeps its epoch. */
static int revive(struct vow__file *s, const vow_hold *hold,
                  struct vow__file_rec *r)
{
    if (hold->epoch > FILE_EPOCH_MAX)
        return VOW_EINVAL;
    struct vow__file_rec old = *r;
    int rc = vow__file_rec_clear(s, &old);
    *r = (struct vow__file_rec){.name = hold->name,
                                .there = true,
                                .state = FILE_RUNS,
                                .token = hold->token,
                                .epoch = (int64_t)hold->epoch,
                                .since_us = s->now_us,
                                /* the first chunks are gone: no more */
                                .bytes = (int64_t)s->opts.value_max};
    vow__file_text_cut(r->runner, s->runner);
    if (rc == 0)
        rc = vow__file_epoch_seen(s, r->epoch);
    return rc == 0 ? vow__file_rec_put(s, r, NULL) : rc;
}
