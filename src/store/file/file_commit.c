/* SPDX-License-Identifier: MIT */
/* file_commit.c - how work ends: commit, forget, cancel.
 *
 * HOW   A commit is judged by the token and the epoch of the owner and not by
 *       the time: a late one that nobody replaced counts, one that was replaced
 *       does not. A result with ttl 0 is hidden: the record itself only
 *       remembers who settled it, and those who waited find the value in a
 *       table of its own, whatever becomes of the name since.
 * THREADS  loop thread only.
 */
#include "store/file/file_rows.h"

#include <string.h>

struct commit {
    const vow_commit_request *ask;
    struct vow__file_value value;
    struct vow__file_rec rec;
    uint32_t status;
    bool effect;         /* it takes effect now */
    vow_bytes *standing; /* the value that stands instead */
};

struct look {
    const vow_name *name;
    int64_t epoch;
    struct vow__file_rec rec;
    uint32_t status;
};

static int no_room_step(struct vow__file *s, void *arg);
static int commit_step(struct vow__file *s, void *arg);
static void judge(struct vow__file *s, struct commit *c);
static void judge_absent(struct commit *c);
static void judge_running(struct vow__file *s, struct commit *c);
static void judge_settled(struct commit *c);
static bool holds(const struct vow__file_rec *r, const vow_hold *hold);
static int take_effect(struct vow__file *s, struct commit *c);
static int abandon(struct vow__file *s, const struct vow__file_rec *r);
static int forget_step(struct vow__file *s, void *arg);
static int cancel_step(struct vow__file *s, void *arg);

/* ---- commit ------------------------------------------------------------- */

void vow__file_commit(vow_store *store, const vow_commit_request *ask,
                      vow_records_fn done, void *user)
{
    struct vow__file *s = vow__file_of(store);
    struct commit c = {.ask = ask};
    int code = 0;
    if (ask->outcome < VOW_OUTCOME_DONE ||
        ask->outcome > VOW_OUTCOME_ABANDONED ||
        ask->hold.epoch > FILE_EPOCH_MAX)
        code = VOW_EINVAL;
    else if (vow_bytes_size(ask->value) > s->opts.value_max)
        code = VOW_E2BIG;
    if (code == 0 && ask->outcome != VOW_OUTCOME_ABANDONED)
        code = vow__file_value_write(s, &ask->hold.name, ask->value, &c.value);
    if (code == 0)
        code = vow__file_step(s, VOW__FILE_WRITE, commit_step, &c);
    if (code != 0 || !c.effect)
        vow__file_value_unlink(s, c.value.file);
    if (code == VOW_ESTORE && s->full) {
        code = VOW_ENOSPC;
        (void)vow__file_step(s, VOW__FILE_WRITE, no_room_step, &c);
    }
    if (code != 0) {
        done(code, NULL, 0, user);
        return;
    }
    vow_record r = vow__file_record(s, &c.rec, c.status);
    r.value = c.standing;
    done(0, &r, 1, user);
    vow_bytes_unref(c.standing);
}

/* There is no room for the result. The name is given back, so that nobody waits
 * for the end of the lease; but one that must not be begun twice stays. */
static int no_room_step(struct vow__file *s, void *arg)
{
    struct commit *c = arg;
    int rc = vow__file_rec_find(s, &c->ask->hold.name, &c->rec);
    if (rc != 0 || !c->rec.there || c->rec.state != FILE_RUNS ||
        c->rec.mode != VOW_SHARED || !holds(&c->rec, &c->ask->hold))
        return rc;
    s->owns--;
    return abandon(s, &c->rec);
}

static int commit_step(struct vow__file *s, void *arg)
{
    struct commit *c = arg;
    struct vow__file_rec *r = &c->rec;
    c->standing = vow_bytes_unref(c->standing);
    int rc = vow__file_rec_find(s, &c->ask->hold.name, r);
    if (rc != 0)
        return rc;
    judge(s, c);
    bool hidden = r->there && r->hidden;
    if (c->status == VOW_STATUS_SETTLED)
        rc = vow__file_value_get(s, &r->name, hidden ? r->epoch : 0,
                                 &c->standing);
    if (rc == VOW_ENOENT) { /* the one that stood is gone */
        judge_absent(c);
        rc = 0;
    }
    if (rc == 0 && c->effect)
        rc = take_effect(s, c);
    if (rc == 0 && c->status == VOW_STATUS_LOST)
        rc = vow__file_rec_count(s, r);
    if (c->status == VOW_STATUS_OWNED || c->status == VOW_STATUS_NONE)
        *r = (struct vow__file_rec){.name = r->name};
    if (c->status == VOW_STATUS_OWNED) {
        r->there = true;
        r->epoch = (int64_t)c->ask->hold.epoch;
        r->since_us = s->now_us;
        r->pulse_us = s->now_us;
    }
    return rc;
}

static void judge(struct vow__file *s, struct commit *c)
{
    const struct vow__file_rec *r = &c->rec;
    if (!r->there || (r->state != FILE_RUNS && r->end_us <= s->now_us))
        judge_absent(c);
    else if (r->state == FILE_RUNS)
        judge_running(s, c);
    else
        judge_settled(c);
}

static void judge_absent(struct commit *c)
{
    uint32_t wanted = VOW_COMMIT_STRICT | VOW_COMMIT_RESOLVE;
    if (c->ask->outcome == VOW_OUTCOME_ABANDONED)
        wanted = VOW_COMMIT_RESOLVE;
    c->effect = (c->ask->flags & wanted) == 0;
    c->status = c->effect ? VOW_STATUS_OWNED : VOW_STATUS_NONE;
}

static void judge_running(struct vow__file *s, struct commit *c)
{
    const struct vow__file_rec *r = &c->rec;
    const vow_commit_request *ask = c->ask;
    bool right = (ask->flags & VOW_COMMIT_PUT) == 0 && holds(r, &ask->hold);
    if ((ask->flags & VOW_COMMIT_RESOLVE) != 0)
        right = (uint64_t)r->epoch == ask->hold.epoch &&
                vow__file_rec_says(s, r) == VOW_STATUS_DOUBT;
    c->effect = right;
    c->status = right ? VOW_STATUS_OWNED : VOW_STATUS_LOST;
}

static void judge_settled(struct commit *c)
{
    const struct vow__file_rec *r = &c->rec;
    bool put = (c->ask->flags & VOW_COMMIT_PUT) != 0;
    bool newer = c->ask->hold.epoch > (uint64_t)r->epoch;
    c->effect = false;
    c->status = VOW_STATUS_SETTLED;
    if (holds(r, &c->ask->hold)) {
        c->status = VOW_STATUS_OWNED; /* it did, and this is the second time */
    } else if (r->hidden && (put || newer)) {
        judge_absent(c);
    } else if (put && newer) {
        c->effect = true;
        c->status = VOW_STATUS_OWNED;
    }
}

static bool holds(const struct vow__file_rec *r, const vow_hold *hold)
{
    return (uint64_t)r->epoch == hold->epoch &&
           memcmp(&r->token, &hold->token, sizeof(r->token)) == 0;
}

static int take_effect(struct vow__file *s, struct commit *c)
{
    const vow_commit_request *ask = c->ask;
    struct vow__file_rec *r = &c->rec;
    bool runs = r->there && r->state == FILE_RUNS;
    int rc = vow__file_epoch_seen(s, (int64_t)ask->hold.epoch);
    if (rc != 0)
        return rc;
    s->owns -= runs;
    if (ask->outcome == VOW_OUTCOME_ABANDONED)
        return runs ? abandon(s, r) : 0;
    rc = vow__file_rec_clear(s, r);
    if (rc != 0)
        return rc;
    if (!runs) {
        *r = (struct vow__file_rec){.name = ask->hold.name};
        vow__file_text_cut(r->runner, s->runner);
    }
    if (ask->label != NULL && ask->label[0] != '\0')
        vow__file_text_cut(r->label, ask->label);
    r->token = ask->hold.token;
    r->epoch = (int64_t)ask->hold.epoch;
    struct vow__file_result result = {.value = c->value,
                                      .failed =
                                          ask->outcome == VOW_OUTCOME_FAILED,
                                      .ttl_ms = ask->ttl_ms,
                                      .cost_ms = ask->cost_ms};
    return vow__file_settle(s, r, &result);
}

static int abandon(struct vow__file *s, const struct vow__file_rec *r)
{
    size_t n;
    int rc = vow__file_rec_wake(s, r, 0, &n);
    return rc == 0 ? vow__file_rec_delete(s, r) : rc;
}

/* What was in the row is cleared already. A hidden value is wanted by who
 * waited, and by an owner that was thought lost and comes late. */
int vow__file_settle(struct vow__file *s, struct vow__file_rec *r,
                     const struct vow__file_result *result)
{
    const int64_t floor_us = 2 * FILE_RECHECK_MS * FILE_US_PER_MS;
    size_t waiting;
    r->there = true;
    r->state = result->failed ? FILE_FAILED : FILE_DONE;
    r->hidden = result->ttl_ms == 0;
    r->canceled = false;
    r->owned = false;
    r->since_us = s->now_us;
    r->pulse_us = s->now_us;
    r->cost_ms = vow__file_us_of_ms(result->cost_ms) / FILE_US_PER_MS;
    r->chunks = 0;
    r->bytes = 0;
    int64_t ttl_us = vow__file_us_of_ms(result->ttl_ms);
    if (r->hidden)
        ttl_us = r->lease_us > FILE_FOREVER - floor_us ? FILE_FOREVER
                                                       : r->lease_us + floor_us;
    if (r->hidden && r->takeovers > 0 && ttl_us < FILE_LATE_MS * FILE_US_PER_MS)
        ttl_us = FILE_LATE_MS * FILE_US_PER_MS;
    r->end_us = vow__file_after(s, ttl_us);
    int rc = vow__file_rec_wake(s, r, r->hidden ? r->epoch : 0, &waiting);
    if (rc != 0)
        return rc;
    r->waited = false;
    if (!r->hidden)
        return vow__file_rec_put(s, r, &result->value);
    if (waiting > 0 || r->takeovers > 0)
        rc = vow__file_once_put(s, r, &result->value);
    else if (result->value.file[0] != '\0')
        rc = vow__file_litter(s, result->value.file);
    return rc == 0 ? vow__file_rec_put(s, r, NULL) : rc;
}

/* ---- forget ------------------------------------------------------------- */

void vow__file_forget(vow_store *store, const vow_name *name, uint64_t epoch,
                      vow_records_fn done, void *user)
{
    struct vow__file *s = vow__file_of(store);
    struct look l = {.name = name, .epoch = (int64_t)epoch};
    int code = vow__file_step(s, VOW__FILE_READ, forget_step, &l);
    vow_record r = vow__file_record(s, &l.rec, l.status);
    done(code, code == 0 ? &r : NULL, code == 0, user);
}

static int forget_step(struct vow__file *s, void *arg)
{
    struct look *l = arg;
    struct vow__file_rec *r = &l->rec;
    size_t n;
    int rc = vow__file_rec_find(s, l->name, r);
    if (rc != 0)
        return rc;
    l->status = vow__file_rec_says(s, r);
    bool right = l->epoch == 0 || l->epoch == r->epoch;
    bool over =
        l->status == VOW_STATUS_SETTLED || l->status == VOW_STATUS_DOUBT;
    if (over && right) {
        rc = vow__file_write(s);
        if (rc == 0)
            rc = vow__file_rec_wake(s, r, 0, &n);
        if (rc == 0)
            rc = vow__file_rec_delete(s, r);
        l->status = VOW_STATUS_NONE;
    }
    if (l->status == VOW_STATUS_NONE)
        r->there = false;
    return rc;
}

/* ---- cancel ------------------------------------------------------------- */

void vow__file_cancel(vow_store *store, const vow_name *name,
                      vow_records_fn done, void *user)
{
    struct vow__file *s = vow__file_of(store);
    struct look l = {.name = name};
    int code = vow__file_step(s, VOW__FILE_READ, cancel_step, &l);
    vow_record r = vow__file_record(s, &l.rec, l.status);
    done(code, code == 0 ? &r : NULL, code == 0, user);
}

static int cancel_step(struct vow__file *s, void *arg)
{
    struct look *l = arg;
    struct vow__file_rec *r = &l->rec;
    int rc = vow__file_rec_find(s, l->name, r);
    if (rc != 0)
        return rc;
    l->status = vow__file_rec_says(s, r);
    if (l->status == VOW_STATUS_NONE)
        r->there = false;
    if (l->status != VOW_STATUS_WAITING)
        return 0;
    rc = vow__file_write(s);
    if (rc != 0)
        return rc;
    r->canceled = true;
    if (r->owned)
        vow__file_tell(s, r->inst, FILE_CANCEL, r->name.hash,
                       sizeof(r->name.hash));
    rc = vow__file_rec_put(s, r, NULL);
    return rc == 0 ? vow__file_rec_count(s, r) : rc;
}
