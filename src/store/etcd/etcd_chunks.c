/* SPDX-License-Identifier: MIT */
/* etcd_chunks.c - what an owner writes for those who follow.
 *
 * WHY   A chunk whose answer was lost is written again by the same step. It
 *       must not be there twice, and none may be missing between two others.
 * HOW   A chunk is c/H/EPOCH/NUMBER, and n/H/c says how many there are: who
 *       waits sees that by the watch, a bell. Both are written together, and
 *       compared with what was read, so each number is stored once. The owner
 *       numbers its chunks: a number below the count came twice, a number above
 *       follows chunks that were lost with the record, and is not stored.
 *       Chunks hang on the lease of the record, and go with the run.
 * LIMITS  All chunks of a run have the size of a result together.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_names.h"

#include "base/bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { READ_MAX = 64 /* by one step */ };

struct writing {
    struct vow__step_lane lane;
    struct vow__trip trip;
    vow_hold hold;
    uint64_t number;
    vow_bytes *chunk; /* counted */
    vow_records_fn done;
    void *user;
    uint32_t status;
};

struct reading {
    struct vow_alloc alloc;
    vow_name name;
    uint64_t epoch;
    uint64_t from;
    vow_chunks_fn done;
    void *user;
    vow_bytes *chunks[READ_MAX];
    size_t n;
    int code;
};

static void begin(struct vow__step_lane *lane);
static void refuse(struct vow__step_lane *lane, int code);
static void judge(struct vow__trip *t);
static void write_chunk(struct writing *w);
static void wrote(struct vow__trip *t, const json_t *root);
static void finish(struct writing *w, uint32_t status);
static void answer(struct vow__trip *t, int code);
static struct vow__key key_of(const vow_name *name, uint64_t epoch,
                              uint64_t number);
static struct vow__key key_of_all(const vow_name *name, uint64_t epoch);
static void ask_chunks(struct vow__etcd *e, struct reading *r);
static void on_read(struct vow__etcd *e, int code, const json_t *root,
                    void *reading);
static int read_all(struct vow__etcd *e, struct reading *r, const json_t *root);
static bool on_chunk(const struct vow__kv *kv, void *reading);

static const struct vow__trip_ops operations = {
    .judge = judge, .wrote = wrote, .answer = answer};

static struct writing *writing_of(struct vow__trip *t)
{
    return VOW__OUTER(t, struct writing, trip);
}

/* ---- write --------------------------------------------------------------- */

void vow__etcd_write(vow_store *s, const vow_hold *hold, uint64_t number,
                     vow_bytes *chunk, vow_records_fn done, void *user)
{
    struct vow__etcd *e = vow__etcd_of(s);
    struct writing *w = NULL;
    int rc = vow__etcd_usable(e);
    if (rc == 0 && vow_bytes_size(chunk) > vow__etcd_where_of(e)->value_max)
        rc = VOW_E2BIG;
    if (rc == 0 && (w = vow__mem_zero(vow__etcd_alloc(e), sizeof(*w))) == NULL)
        rc = VOW_ENOMEM;
    if (w == NULL) {
        done(rc, NULL, 0, user);
        return;
    }
    w->lane = (struct vow__step_lane){
        .lane = hold->name, .begin = begin, .refuse = refuse};
    w->trip = (struct vow__trip){
        .ops = &operations, .etcd = e, .lane = &w->lane, .name = hold->name};
    w->hold = *hold;
    w->number = number;
    w->chunk = vow_bytes_ref(chunk);
    w->done = done;
    w->user = user;
    vow__step_begin(e, &w->lane);
}

static void begin(struct vow__step_lane *lane)
{
    struct writing *w = VOW__OUTER(lane, struct writing, lane);
    struct vow__trip *t = &w->trip;
    if (!vow__trip_begin(t))
        return;
    const struct vow__near *near = t->near;
    if (near->own == NULL || !near->sure || near->own->chunks != w->number ||
        !vow__er_held(near->own, &w->hold)) {
        vow__trip_read(t);
        return;
    }
    t->er = *near->own;
    judge(t);
}

static void refuse(struct vow__step_lane *lane, int code)
{
    answer(&VOW__OUTER(lane, struct writing, lane)->trip, code);
}

static void judge(struct vow__trip *t)
{
    struct writing *w = writing_of(t);
    size_t most = vow__etcd_where_of(t->etcd)->value_max;
    if (t->er.state != VOW__ER_RUNS || !vow__er_held(&t->er, &w->hold))
        finish(w, VOW_STATUS_LOST);
    else if (t->er.chunks != w->number)
        finish(w, VOW_STATUS_OWNED);
    else if (t->er.chunk_bytes > most ||
             vow_bytes_size(w->chunk) > most - t->er.chunk_bytes)
        vow__trip_end(t, VOW_E2BIG);
    else
        write_chunk(w);
}

static void write_chunk(struct writing *w)
{
    struct vow__trip *t = &w->trip;
    struct vow__key record = vow__key("n", &t->name, "/r");
    struct vow__key bell = vow__key("n", &t->name, "/c");
    struct vow__key chunk = key_of(&t->name, t->er.epoch, t->er.chunks);
    size_t size = vow_bytes_size(w->chunk);
    struct vow__jot bytes, value;
    struct vow__txn txn;
    vow__trip_txn(t, &txn);
    vow__jot_init(&bytes, vow__etcd_alloc(t->etcd));
    vow__jot_init(&value, vow__etcd_alloc(t->etcd));
    vow__jot_bytes(&bytes, size == 0 ? NULL : vow_bytes_data(w->chunk), size);
    t->next.chunks = t->er.chunks + 1;
    t->next.chunk_bytes = t->er.chunk_bytes + size;
    vow__er_write_bell(&t->next, &value);
    vow__txn_if_mod(&txn, &record, t->er.mod);
    vow__txn_if_mod(&txn, &bell, t->er.bell);
    vow__txn_put(&txn, VOW__THEN, &chunk, &bytes, t->er.lease);
    vow__txn_put(&txn, VOW__THEN, &bell, &value, t->er.lease);
    vow__jot_fini(&bytes);
    vow__jot_fini(&value);
    vow__trip_write(t, &txn);
}

static void wrote(struct vow__trip *t, const json_t *root)
{
    t->er.bell = vow__json_revision(root);
    t->er.chunks = t->next.chunks;
    t->er.chunk_bytes = t->next.chunk_bytes;
    finish(writing_of(t), VOW_STATUS_OWNED);
}

static void finish(struct writing *w, uint32_t status)
{
    const struct vow__er *er = &w->trip.er;
    struct vow__er *own = w->trip.near->own;
    w->status = status;
    if (own != NULL && status == VOW_STATUS_OWNED &&
        vow__er_held(own, &w->hold)) {
        own->bell = er->bell;
        own->chunks = er->chunks;
        own->chunk_bytes = er->chunk_bytes;
    }
    vow__trip_end(&w->trip, 0);
}

static void answer(struct vow__trip *t, int code)
{
    struct writing *w = writing_of(t);
    const struct vow_alloc alloc = *vow__etcd_alloc(t->etcd);
    const vow_record r = {.name = t->name,
                          .status = w->status,
                          .epoch =
                              w->status == VOW_STATUS_OWNED ? w->hold.epoch : 0,
                          .label = "",
                          .runner = ""};
    w->done(code, code == 0 ? &r : NULL, code == 0, w->user);
    vow_bytes_unref(w->chunk);
    vow__trip_fini(t);
    vow__mem_free(&alloc, w, sizeof(*w));
}

/* ---- keys ---------------------------------------------------------------- */

static struct vow__key key_of(const vow_name *name, uint64_t epoch,
                              uint64_t number)
{
    char rest[64];
    (void)snprintf(rest, sizeof(rest), "/%" PRIu64 "/%016" PRIx64, epoch,
                   number);
    return vow__key("c", name, rest);
}

static struct vow__key key_of_all(const vow_name *name, uint64_t epoch)
{
    char rest[32];
    (void)snprintf(rest, sizeof(rest), "/%" PRIu64 "/", epoch);
    return vow__key("c", name, rest);
}

/* ---- read ---------------------------------------------------------------- */

void vow__etcd_read(vow_store *s, const vow_name *name, uint64_t epoch,
                    uint64_t from, vow_chunks_fn done, void *user)
{
    struct vow__etcd *e = vow__etcd_of(s);
    struct reading *r = NULL;
    int rc = vow__etcd_usable(e);
    if (rc == 0 && (r = vow__mem_zero(vow__etcd_alloc(e), sizeof(*r))) == NULL)
        rc = VOW_ENOMEM;
    if (r == NULL) {
        done(rc, NULL, 0, 0, user);
        return;
    }
    r->alloc = *vow__etcd_alloc(e);
    r->name = *name;
    r->epoch = epoch;
    r->from = from;
    r->done = done;
    r->user = user;
    ask_chunks(e, r);
}

static void ask_chunks(struct vow__etcd *e, struct reading *r)
{
    struct vow__key all = key_of_all(&r->name, r->epoch);
    struct vow__key from = key_of(&r->name, r->epoch, r->from);
    const struct vow__some some = {.from = &from, .limit = READ_MAX};
    struct vow__txn txn;
    vow__txn_init(&txn, &r->alloc, vow__etcd_where_of(e)->prefix);
    vow__er_ask(&txn, VOW__THEN, &r->name);
    vow__txn_some(&txn, VOW__THEN, &all, &some);
    vow__etcd_txn(e, &txn, on_read, r);
    vow__txn_fini(&txn);
}

static void on_read(struct vow__etcd *e, int code, const json_t *root,
                    void *reading)
{
    struct reading *r = reading;
    const struct vow_alloc alloc = r->alloc;
    if (code == 0)
        code = read_all(e, r, root);
    if (code == VOW_EUNSURE || code == VOW_EIO)
        code = VOW_ESTORE;
    if (code == 0)
        r->done(0, r->chunks, r->n, r->from + r->n, r->user);
    else
        r->done(code, NULL, 0, 0, r->user);
    for (size_t i = 0; i < r->n; i++)
        vow_bytes_unref(r->chunks[i]);
    vow__mem_free(&alloc, r, sizeof(*r));
}

/* All that there are, or none: one that is missing was never there. */
static int read_all(struct vow__etcd *e, struct reading *r, const json_t *root)
{
    struct vow__er er;
    const json_t *range = vow__json_response(root, VOW__ER_RANGES);
    int rc = vow__er_read(e, root, 0, &r->name, &er);
    if (rc < 0)
        return rc;
    bool runs = er.state == VOW__ER_RUNS && er.epoch == r->epoch;
    uint64_t there = er.chunks;
    vow__er_fini(&er);
    if (!runs)
        return VOW_ENOENT;
    if (!vow__json_each(e, range, on_chunk, r))
        return VOW_EIO;
    if (r->code == 0 && r->n < READ_MAX && r->from < there &&
        r->n != there - r->from)
        return VOW_ENOENT;
    return r->code;
}

static bool on_chunk(const struct vow__kv *kv, void *reading)
{
    struct reading *r = reading;
    struct vow__key key = key_of(&r->name, r->epoch, r->from + r->n);
    if (strcmp(kv->key, key.text) != 0 || r->n == READ_MAX) {
        r->code = VOW_EIO;
        return false;
    }
    r->code = vow__bytes_make(&r->alloc, kv->value, kv->size, &r->chunks[r->n]);
    r->n += r->code == 0;
    return r->code == 0;
}
