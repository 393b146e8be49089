/* SPDX-License-Identifier: MIT */
/* etcd_write.c - writes: one transaction changes a name, or reads the name.
 *
 * HOW   The transaction compares the revision of the record, marks, the result
 *       left for waiters, and, if the write is numbered, the key `e`. On a
 *       conflict the other branch has read the name. All that belongs together
 *       is written together: record, mark, value, chunk.
 *       A write keeps the lease of a running record, if the writer is not the
 *       owner: the lease is of the owner's process. A result inside the record
 *       must be written again with the record, and is read before.
 *       A write without an answer is VOW_EUNSURE, and is never repeated here.
 *       Marks have a key for each role, with the token as the value. When a
 *       result expires, the refresher owns the name by the mark in n/H/b; the
 *       next write of the record puts the mark into n/H/a.
 * INVARIANTS
 *   W1  the record is put before other keys: a watch sees the result before the
 *       end of the mark
 *   W2  an epoch that was written is not above the epoch of a later claim: such
 *       a write raises the offset in `e`, which is never lowered
 * THREADS  loop thread only, on fibers.
 */
#include "store/etcd/etcd_service.h"

#include "base/bytes.h"

#include <stdio.h>
#include <string.h>

enum { LEASES_GONE_MAX = 2 }; /* of one write */

struct name_put {
    struct vow__etcd_service *s;
    const struct cas_write *w;
    const struct cas_found *was;
    uint64_t now_us;
    int64_t lease;    /* of the record, of values and chunks */
    vow_bytes *value; /* counted: of the result, or the ticket */
    bool elsewhere;   /* `value` is a ticket */
    uint64_t offset;  /* as the write leaves `e` */
    bool numbered;    /* compares `e` */
    struct rules_record next;
    struct vow__etcd_record record;
    uint64_t old_mod; /* of the record whose value was read */
    int code;
};

static bool tokens_match(const vow_token *a, const vow_token *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static bool has_refresher(const struct rules_record *r)
{
    return r->refresh.epoch != 0 && !r->refresh.failed;
}

static uint64_t highest_epoch(const struct rules_record *r)
{
    return r->refresh.epoch > r->epoch ? r->refresh.epoch : r->epoch;
}

static uint64_t ms_between(uint64_t from_us, uint64_t to_us)
{
    if (to_us == RULES_NEVER)
        return UINT64_MAX;
    return to_us > from_us ? (to_us - from_us) / 1000 : 0;
}

static struct vow__key key_of(const struct name_put *p, const char *rest)
{
    return vow__key("n", &p->w->name, rest);
}

/* ---- what is written ----------------------------------------------------- */

/* Reads the name instead of writing: the compare would fail, or what is written
 * depends on the value. VOW_EAGAIN: `ret_found` has the name. */
static int put_conflict(const struct name_put *p, struct cas_found *ret_found)
{
    const struct cas_read read = {.names = &p->w->name,
                                  .n = 1,
                                  .waited = p->w->waited,
                                  .values = true,
                                  .due_ns = p->w->due_ns};
    int rc = vow__etcd_service_read(&p->s->service, &read, ret_found);
    return rc == 0 ? VOW_EAGAIN : rc;
}

/* A version from before a restore fits no revision. A result left by version
 * 0.1.0 is only in the record. */
static bool put_conflicts(const struct name_put *p)
{
    const struct cas_found *was = p->was;
    return (was->version != 0 && was->version <= p->s->shift) ||
           (p->w->waited != 0 && was->record.spent &&
            was->record.first == p->w->waited);
}

static bool on_old_record(const struct vow__kv *kv, void *user)
{
    struct name_put *p = user;
    struct vow__etcd_record r;
    p->code = vow__etcd_record_read(p->s->etcd, kv, &r);
    p->old_mod = kv->mod;
    p->record.apart = p->code == 0 && r.apart;
    p->elsewhere = p->code == 0 && r.elsewhere;
    if (p->code == 0 && r.size > 0)
        p->code = vow__bytes_make(vow__etcd_alloc(p->s->etcd), r.value, r.size,
                                  &p->value);
    return false;
}

/* The result in the record stays: reads the value. */
static int put_old_value(struct name_put *p, struct cas_found *ret_found)
{
    struct vow__etcd_service *s = p->s;
    struct vow__key key = key_of(p, "/r");
    struct vow__txn t;
    json_t *root = NULL;
    vow__etcd_service_txn_init(s, &t);
    vow__txn_range(&t, VOW__THEN, &key, 0);
    int rc = vow__etcd_names_txn(s, &t, p->w->due_ns, &root);
    if (rc == 0 &&
        !vow__json_each(s->etcd, vow__json_response(root, 0), on_old_record, p))
        rc = VOW_ESTORE;
    json_decref(root);
    if (rc == 0)
        rc = p->code;
    if (rc < 0)
        return rc == VOW_ENOMEM || rc == VOW_ECLOSED ? rc : VOW_ESTORE;
    return p->old_mod + s->shift == p->was->version
               ? 0
               : put_conflict(p, ret_found);
}

static int put_value_elsewhere(struct name_put *p)
{
    const struct rules_record *r = &p->next;
    const vow_commit_request put = {
        .hold = {.name = p->w->name, .token = r->token, .epoch = r->epoch},
        .outcome = VOW_OUTCOME_DONE,
        .value = p->w->value,
        .ttl_ms = r->spent ? 0 : ms_between(r->since_us, r->end_us)};
    p->elsewhere = true;
    int rc = vow__results_put(p->s->etcd, &put, &p->value);
    return rc == VOW_EUNSURE || rc == VOW_ENOENT ? VOW_ESTORE : rc;
}

static int put_new_value(struct name_put *p, struct cas_found *ret_found)
{
    const struct cas_write *w = p->w;
    size_t most = vow__etcd_where_of(p->s->etcd)->value_max;
    bool settled = p->next.state == RULES_DONE || p->next.state == RULES_FAILED;
    if ((w->effects & EFFECT_CHUNK) != 0 && p->next.chunk_bytes > most)
        return VOW_E2BIG;
    if ((w->effects & EFFECT_VALUE) != 0 && vow_bytes_size(w->value) > most)
        return put_value_elsewhere(p);
    if ((w->effects & EFFECT_VALUE) != 0)
        p->value = w->value == NULL ? NULL : vow_bytes_ref(w->value);
    else if (settled && (w->effects & EFFECT_CLEAR) == 0)
        return put_old_value(p, ret_found);
    return 0;
}

/* Returns whether the record keeps the lease of another process: of the owner,
 * or of the refresher whom the write makes the owner. */
static bool put_keeps_lease(const struct name_put *p)
{
    const struct rules_record *was = &p->was->record;
    return p->next.state == RULES_RUNNING && p->w->token == NULL &&
           (was->state == RULES_RUNNING || has_refresher(was));
}

static int put_lease(struct name_put *p)
{
    bool runs = p->next.state == RULES_RUNNING;
    uint64_t ms = p->w->keep_ms;
    if (put_keeps_lease(p) && (p->w->effects & EFFECT_CHUNK) == 0)
        return 0;
    if (put_keeps_lease(p) && ms == UINT64_MAX)
        ms = 0; /* chunks of mode once */
    return vow__etcd_keep_use(
        p->s, ms, runs ? VOW__ETCD_KEEP_RUNS : VOW__ETCD_KEEP_RESULTS,
        p->w->due_ns, &p->lease);
}

/* Returns the lease of the token's mark; 0: none. */
static uint64_t put_mark_lease(const struct name_put *p, const vow_token *token)
{
    const struct rules_record *r = &p->was->record;
    if (p->w->token != NULL && tokens_match(p->w->token, token))
        return p->w->lease.id;
    if (r->state == RULES_RUNNING && tokens_match(&r->token, token))
        return p->was->owner.lease;
    if (has_refresher(r) && tokens_match(&r->refresh.token, token))
        return p->was->refresher.lease;
    return 0;
}

/* Completes what the transaction is made of. */
static void put_prepare(struct name_put *p)
{
    struct vow__etcd_record *r = &p->record;
    size_t size = vow_bytes_size(p->value);
    r->record = p->next;
    if (p->next.state == RULES_RUNNING)
        r->mark = put_mark_lease(p, &p->next.token);
    if (has_refresher(&p->next))
        r->refresh_mark = put_mark_lease(p, &p->next.refresh.token);
    (void)snprintf(r->label, sizeof(r->label), "%s", p->w->label);
    (void)snprintf(r->runner, sizeof(r->runner), "%s", p->w->runner);
    r->elsewhere = p->elsewhere;
    r->apart = r->apart || size > VOW__ETCD_INLINE_MAX;
    if (p->next.state == RULES_RUNNING || size == 0)
        return;
    r->value = (const char *)vow_bytes_data(p->value);
    r->size = size;
}

/* ---- the transaction ----------------------------------------------------- */

/* Keeps W2. */
static void put_offset(struct name_put *p, struct vow__txn *t)
{
    const struct vow__etcd_service *s = p->s;
    const struct vow__key key = vow__key("e", NULL, "");
    uint64_t epoch = highest_epoch(&p->next);
    uint64_t number = s->revision + 1 + s->offset;
    struct vow__buf value;
    p->offset = s->offset;
    p->numbered = p->w->number != CAS_NUMBER_NONE || epoch > number;
    if (!p->numbered)
        return;
    vow__txn_if_mod(t, &key, s->offset_mod);
    if (epoch <= number)
        return;
    p->offset = epoch - (s->revision + 1);
    vow__etcd_buf_init(&value, vow__etcd_alloc(s->etcd));
    vow__etcd_offset_write(p->offset, &value);
    vow__txn_put(t, VOW__THEN, &key, &value, 0);
    vow__buf_fini(&value);
}

static void compare_mark(const struct name_put *p, struct vow__txn *t,
                         const char *rest, uint64_t lease)
{
    struct vow__key key = key_of(p, rest);
    if (lease != 0)
        vow__txn_if_there(t, &key);
    else
        vow__txn_if_absent(t, &key);
}

static void put_compares(const struct name_put *p, struct vow__txn *t)
{
    const struct cas_found *was = p->was;
    struct vow__key record = key_of(p, "/r");
    struct vow__key left = vow__etcd_left_key(&p->w->name, p->w->waited);
    vow__txn_if_mod(t, &record,
                    was->version == 0 ? 0 : was->version - p->s->shift);
    if (p->w->marks && was->record.state == RULES_RUNNING)
        compare_mark(p, t, "/a", was->owner.lease);
    if (p->w->marks && has_refresher(&was->record))
        compare_mark(p, t, "/b", was->refresher.lease);
    if (p->w->waited != 0)
        vow__txn_if_absent(t, &left);
}

static void put_text(const struct name_put *p, struct vow__txn *t,
                     const struct vow__key *key,
                     const struct vow__etcd_record *r, int64_t lease)
{
    struct vow__buf value;
    vow__etcd_buf_init(&value, vow__etcd_alloc(p->s->etcd));
    vow__etcd_record_write(r, p->w->number, p->offset, &value);
    vow__txn_put(t, VOW__THEN, key, &value, lease);
    vow__buf_fini(&value);
}

static void put_record(const struct name_put *p, struct vow__txn *t)
{
    struct vow__key key = key_of(p, "/r");
    struct vow__key apart = vow__etcd_value_key(&p->w->name, p->next.epoch);
    struct vow__key left = vow__etcd_left_key(&p->w->name, p->next.first);
    struct vow__etcd_record whole = p->record;
    put_text(p, t, &key, &p->record,
             put_keeps_lease(p) ? VOW__SAME_LEASE : p->lease);
    whole.apart = false;
    if ((p->w->effects & EFFECT_LEAVE) != 0)
        put_text(p, t, &left, &whole, p->lease);
    else if ((p->w->effects & EFFECT_VALUE) != 0 && p->record.apart)
        put_text(p, t, &apart, &whole, p->lease);
}

/* The mark of the token is in the key n/H/a of the owner, or n/H/b of the
 * refresher: a refresher that became the owner moves. */
static void put_mark(const struct name_put *p, struct vow__txn *t,
                     const char *rest, const vow_token *token,
                     uint64_t lease_us)
{
    const struct rules_record *was = &p->was->record;
    bool stood =
        rest[1] == 'a'
            ? was->state == RULES_RUNNING && tokens_match(&was->token, token)
            : has_refresher(was) && tokens_match(&was->refresh.token, token);
    bool mine = p->w->token != NULL && tokens_match(p->w->token, token);
    struct vow__key key = key_of(p, rest);
    struct vow__etcd_mark m = {.token = *token, .lease_ms = lease_us / 1000};
    uint64_t lease = put_mark_lease(p, token);
    struct vow__buf value;
    if (stood && !mine)
        return;
    if (lease == 0) {
        vow__txn_delete(t, VOW__THEN, &key, 0);
        return;
    }
    vow__etcd_buf_init(&value, vow__etcd_alloc(p->s->etcd));
    vow__etcd_mark_write(&m, &value);
    vow__txn_put(t, VOW__THEN, &key, &value, (int64_t)lease);
    vow__buf_fini(&value);
}

static void put_marks(const struct name_put *p, struct vow__txn *t)
{
    const struct rules_record *r = &p->next;
    struct vow__key owner = key_of(p, "/a");
    struct vow__key refresher = key_of(p, "/b");
    if (r->state == RULES_RUNNING)
        put_mark(p, t, "/a", &r->token, r->lease_us);
    else
        vow__txn_delete(t, VOW__THEN, &owner, 0);
    if (has_refresher(r))
        put_mark(p, t, "/b", &r->refresh.token, r->refresh.lease_us);
    else if (has_refresher(&p->was->record))
        vow__txn_delete(t, VOW__THEN, &refresher, 0);
}

static void put_chunk(const struct name_put *p, struct vow__txn *t)
{
    const struct rules_record *r = &p->next;
    struct vow__key count = key_of(p, "/c");
    struct vow__key chunk =
        vow__etcd_chunk_key(&p->w->name, r->epoch, r->chunks - 1);
    struct vow__buf value;
    size_t size = vow_bytes_size(p->w->value);
    vow__etcd_buf_init(&value, vow__etcd_alloc(p->s->etcd));
    vow__buf_add(&value, size == 0 ? NULL : vow_bytes_data(p->w->value), size);
    vow__txn_put(t, VOW__THEN, &chunk, &value, p->lease);
    vow__buf_fini(&value);
    vow__etcd_count_write(r, &value);
    vow__txn_put(t, VOW__THEN, &count, &value, p->lease);
    vow__buf_fini(&value);
}

/* Value and chunks of the former epoch go. */
static void put_clear(const struct name_put *p, struct vow__txn *t)
{
    const struct rules_record *was = &p->was->record;
    const vow_name *name = &p->w->name;
    struct vow__key count = key_of(p, "/c");
    struct vow__key value = vow__etcd_value_key(name, was->epoch);
    struct vow__key chunks = vow__etcd_chunks_key(name, was->epoch);
    if (was->state == RULES_RUNNING) {
        vow__txn_delete(t, VOW__THEN, &chunks, VOW__TREE);
        if ((p->w->effects & EFFECT_CHUNK) == 0)
            vow__txn_delete(t, VOW__THEN, &count, 0);
    } else if (was->state != RULES_NONE && was->epoch != p->next.epoch) {
        vow__txn_delete(t, VOW__THEN, &value, 0);
    }
}

static void put_make(struct name_put *p, struct vow__txn *t)
{
    vow__etcd_service_txn_init(p->s, t);
    put_compares(p, t);
    put_offset(p, t);
    put_record(p, t); /* keeps W1 */
    put_marks(p, t);
    if ((p->w->effects & EFFECT_CLEAR) != 0)
        put_clear(p, t);
    if ((p->w->effects & EFFECT_CHUNK) != 0)
        put_chunk(p, t);
    vow__etcd_name_ask(t, VOW__ELSE, &p->w->name, p->w->waited);
}

/* ---- the answer ---------------------------------------------------------- */

/* After a restore from a backup the number may be below the epoch in the
 * record: keeps W2. Without success, the next claim tries. */
static void raise_offset(struct vow__etcd_service *s, uint64_t epoch,
                         uint64_t due_ns)
{
    const struct vow__key key = vow__key("e", NULL, "");
    struct vow__buf value;
    struct vow__txn t;
    json_t *root = NULL;
    uint64_t offset = epoch - s->revision;
    vow__etcd_service_txn_init(s, &t);
    vow__etcd_buf_init(&value, vow__etcd_alloc(s->etcd));
    vow__etcd_offset_write(offset, &value);
    vow__txn_if_mod(&t, &key, s->offset_mod);
    vow__txn_put(&t, VOW__THEN, &key, &value, 0);
    vow__buf_fini(&value);
    if (vow__etcd_names_txn(s, &t, due_ns, &root) == 0 &&
        vow__json_succeeded(root)) {
        s->offset = offset;
        s->offset_mod = vow__json_revision(root);
    }
    json_decref(root);
}

static void put_done(struct name_put *p, uint64_t revision,
                     struct cas_found *ret_found)
{
    struct vow__etcd_service *s = p->s;
    const struct cas_write *w = p->w;
    uint64_t number = revision + p->offset;
    struct cas_found f = {.name = w->name,
                          .version = revision + s->shift,
                          .now_us = p->now_us,
                          .waiters = CAS_WAITERS_UNKNOWN};
    if (p->offset != s->offset) {
        s->offset = p->offset;
        s->offset_mod = revision;
    }
    f.record = vow__cas_write_record(
        w, p->now_us, number < RULES_EPOCH_MAX ? number : RULES_EPOCH_MAX);
    f.owner.lease = p->record.mark;
    f.owner.left_us = f.owner.lease == 0 ? 0 : RULES_NEVER;
    f.refresher.lease = p->record.refresh_mark;
    f.refresher.left_us = f.refresher.lease == 0 ? 0 : RULES_NEVER;
    memcpy(f.label, p->record.label, sizeof(f.label));
    memcpy(f.runner, p->record.runner, sizeof(f.runner));
    *ret_found = f;
    if (w->number != CAS_NUMBER_NONE && number < highest_epoch(&p->next))
        raise_offset(s, highest_epoch(&p->next), w->due_ns);
}

/* One transaction. VOW_ENOENT: one of the leases has ended. */
static int put_send(struct name_put *p, struct cas_found *ret_found)
{
    struct vow__txn t;
    json_t *root = NULL;
    put_make(p, &t);
    int rc = vow__etcd_names_txn(p->s, &t, p->w->due_ns, &root);
    if (rc == 0 && vow__json_succeeded(root)) {
        put_done(p, vow__json_revision(root), ret_found);
    } else if (rc == 0) {
        rc = vow__etcd_name_take(p->s, root, 0, &p->w->name, p->w->waited,
                                 ret_found);
        rc = rc == 0 ? VOW_EAGAIN : rc;
    }
    json_decref(root);
    return rc;
}

int vow__etcd_service_write(struct cas_service *service,
                            const struct cas_write *w,
                            struct cas_found *ret_found)
{
    struct name_put p = {.s = vow__etcd_service_of(service),
                         .w = w,
                         .was = w->was,
                         .now_us = vow__etcd_wall_us()};
    p.next = vow__cas_write_record(w, p.now_us, 0);
    if (put_conflicts(&p))
        return put_conflict(&p, ret_found);
    int rc = put_new_value(&p, ret_found);
    if (rc == 0)
        put_prepare(&p);
    for (int tries = 0; rc == 0; tries++) {
        rc = put_lease(&p);
        if (rc == 0)
            rc = put_send(&p, ret_found);
        if (rc != VOW_ENOENT)
            break;
        rc = tries < LEASES_GONE_MAX
                 ? vow__etcd_keep_gone(p.s, p.lease, w->due_ns)
                 : VOW_ESTORE;
    }
    vow_bytes_unref(p.value);
    return rc;
}

/* ---- marks --------------------------------------------------------------- */

struct mark_search {
    const vow_token *token;
    struct vow__key key;
    uint64_t mod; /* 0: not found */
};

static bool on_mark_key(const struct vow__kv *kv, void *user)
{
    struct mark_search *m = user;
    struct vow__etcd_mark mark;
    vow_name name;
    char letter = vow__etcd_name_key(kv->key, &name);
    if ((letter == 'a' || letter == 'b') && vow__etcd_mark_read(kv, &mark) &&
        tokens_match(&mark.token, m->token)) {
        m->key = vow__key(kv->key, NULL, "");
        m->mod = kv->mod;
    }
    return true;
}

static int drop_mark(struct vow__etcd_service *s, const vow_name *name,
                     uint64_t mod, const struct mark_search *m, uint64_t due_ns)
{
    struct vow__key record = vow__key("n", name, "/r");
    struct vow__txn t;
    json_t *root = NULL;
    vow__etcd_service_txn_init(s, &t);
    vow__txn_if_mod(&t, &record, mod);
    vow__txn_if_mod(&t, &m->key, m->mod);
    vow__txn_delete(&t, VOW__THEN, &m->key, 0);
    int rc = vow__etcd_names_txn(s, &t, due_ns, &root);
    if (rc == 0 && !vow__json_succeeded(root))
        rc = VOW_EAGAIN;
    json_decref(root);
    return rc;
}

/* Which key has the mark is read before. */
int vow__etcd_service_drop(struct cas_service *service, const vow_name *name,
                           const vow_token *token, uint64_t version,
                           uint64_t due_ns)
{
    struct vow__etcd_service *s = vow__etcd_service_of(service);
    struct mark_search m = {.token = token};
    struct cas_found f;
    struct vow__txn t;
    json_t *root = NULL;
    vow__etcd_service_txn_init(s, &t);
    vow__etcd_name_ask(&t, VOW__THEN, name, 0);
    int rc = vow__etcd_names_txn(s, &t, due_ns, &root);
    s->littered = true;
    if (rc == 0)
        rc = vow__etcd_name_take(s, root, 0, name, 0, &f);
    if (rc == 0) {
        rc = f.version != version ? VOW_EAGAIN : 0;
        vow__cas_found_fini(&f);
    }
    if (rc == 0 &&
        !vow__json_each(s->etcd, vow__json_response(root, 1), on_mark_key, &m))
        rc = VOW_ESTORE;
    json_decref(root);
    if (rc != 0 || m.mod == 0)
        return rc == VOW_EUNSURE ? VOW_ESTORE : rc;
    return drop_mark(s, name, version - s->shift, &m, due_ns);
}
