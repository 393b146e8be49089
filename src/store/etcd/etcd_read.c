/* SPDX-License-Identifier: MIT */
/* etcd_read.c - reading names, lists, values and chunks.
 *
 * HOW   All keys of a name are below n/H/: one range reads record, marks and
 *       the number of chunks. The ranges of a transaction are one snapshot. A
 *       read goes on at another member by itself (etcd_call.c).
 * LIMITS  More than NAMES_MAX names are read by several transactions.
 * THREADS  loop thread only, on fibers.
 */
#include "store/etcd/etcd_service.h"

#include "base/bytes.h"

#include <string.h>

enum {
    NAMES_MAX = 100, /* etcd takes 128 operations */
    LIST_KEYS = 100  /* of a page */
};

/* The keys of a name, in the order of keys: marks come before the record. */
struct name_keys {
    struct vow__etcd_service *s;
    const vow_name *name; /* NULL: of each name, as the keys say */
    struct {
        bool there;
        int64_t lease;
        struct vow__etcd_mark mark;
    } owner, refresher;
    bool counted, there;
    uint64_t chunks, bytes;
    uint64_t mod;
    struct vow__etcd_record record;
    struct cas_found found;
    int code;
};

static struct cas_found found_absent(const vow_name *name)
{
    return (struct cas_found){.name = *name,
                              .now_us = vow__etcd_wall_us(),
                              .valued = true,
                              .waiters = CAS_WAITERS_UNKNOWN};
}

/* ---- one name ------------------------------------------------------------ */

static struct cas_mark mark_known(uint64_t lease)
{
    return (struct cas_mark){.lease = lease,
                             .left_us = lease == 0 ? 0 : RULES_NEVER};
}

int vow__etcd_found_make(struct vow__etcd_service *s, const vow_name *name,
                         uint64_t mod, const struct vow__etcd_record *r,
                         struct cas_found *ret_found)
{
    struct cas_found f = found_absent(name);
    f.version = mod + s->shift;
    f.record = r->record;
    f.owner = mark_known(r->mark);
    f.refresher = mark_known(r->refresh_mark);
    memcpy(f.label, r->label, sizeof(f.label));
    memcpy(f.runner, r->runner, sizeof(f.runner));
    f.valued = !r->apart && !r->elsewhere;
    if (f.valued && r->size > 0) {
        int rc = vow__bytes_make(vow__etcd_alloc(s->etcd), r->value, r->size,
                                 &f.value);
        if (rc < 0)
            return rc;
    }
    *ret_found = f;
    return 0;
}

/* Completes the record by what the other keys say. */
static int keys_take_record(struct name_keys *k, const struct vow__kv *kv,
                            const vow_name *name)
{
    struct vow__etcd_record r;
    struct rules_record *rec = &r.record;
    int rc = vow__etcd_record_read(k->s->etcd, kv, &r);
    if (rc < 0)
        return rc;
    bool owned =
        rec->state == RULES_RUNNING && k->owner.there &&
        memcmp(&k->owner.mark.token, &rec->token, sizeof(rec->token)) == 0;
    bool refreshed = r.refresh_mark != 0 && k->refresher.there &&
                     memcmp(&k->refresher.mark.token, &rec->refresh.token,
                            sizeof(rec->refresh.token)) == 0;
    r.mark = owned ? (uint64_t)k->owner.lease : 0;
    r.refresh_mark = refreshed ? (uint64_t)k->refresher.lease : 0;
    if (owned && k->owner.mark.lease_ms < RULES_NEVER / 1000)
        rec->lease_us = k->owner.mark.lease_ms * 1000;
    if (rec->state == RULES_RUNNING && k->counted && k->chunks > rec->chunks) {
        rec->chunks =
            (uint32_t)k->chunks; /* by a process of earlier versions */
        rec->chunk_bytes = k->bytes;
    }
    k->there = true;
    k->mod = kv->mod;
    vow__cas_found_fini(&k->found);
    return vow__etcd_found_make(k->s, name, kv->mod, &r, &k->found);
}

/* A mark that somebody has put without a lease does not end by itself. */
static int64_t mark_lease(const struct vow__kv *kv)
{
    return kv->lease != 0 ? kv->lease : 1;
}

static int keys_take(struct name_keys *k, const struct vow__kv *kv, char letter,
                     const vow_name *name)
{
    bool good = true;
    if (letter == 'a') {
        k->owner.there = good = vow__etcd_mark_read(kv, &k->owner.mark);
        k->owner.lease = mark_lease(kv);
    } else if (letter == 'b') {
        k->refresher.there = good = vow__etcd_mark_read(kv, &k->refresher.mark);
        k->refresher.lease = mark_lease(kv);
    } else if (letter == 'c') {
        k->counted = good = vow__etcd_count_read(kv, &k->chunks, &k->bytes);
    } else if (letter == 'r') {
        return keys_take_record(k, kv, name);
    }
    if (good)
        return 0;
    vow__etcd_trouble(k->s->etcd, "the key %s%s in etcd is not one of ours",
                      vow__etcd_where_of(k->s->etcd)->prefix, kv->key);
    return VOW_EIO;
}

static bool on_name_key(const struct vow__kv *kv, void *user)
{
    struct name_keys *k = user;
    vow_name name;
    char letter = vow__etcd_name_key(kv->key, &name);
    if (letter != 0 && vow_name_equal(&name, k->name))
        k->code = keys_take(k, kv, letter, k->name);
    return k->code == 0;
}

static bool on_left_key(const struct vow__kv *kv, void *user)
{
    struct name_keys *k = user;
    struct vow__etcd_record r;
    k->code = vow__etcd_record_read(k->s->etcd, kv, &r);
    k->there = k->code == 0;
    if (k->there)
        k->code = vow__etcd_found_make(k->s, k->name, kv->mod, &r, &k->found);
    return false;
}

static bool on_offset_key(const struct vow__kv *kv, void *user)
{
    struct name_keys *k = user;
    if (!vow__etcd_offset_read(kv, &k->s->offset))
        k->code = VOW_EIO;
    k->s->offset_mod = kv->mod;
    return true;
}

void vow__etcd_name_ask(struct vow__txn *t, enum vow__branch b,
                        const vow_name *name, uint64_t waited)
{
    const struct vow__key offset = vow__key("e", NULL, "");
    const struct vow__key keys = vow__key("n", name, "/");
    const struct vow__key left = vow__etcd_left_key(name, waited);
    vow__txn_range(t, b, &offset, 0);
    vow__txn_range(t, b, &keys, VOW__TREE);
    if (waited != 0)
        vow__txn_range(t, b, &left, 0);
}

/* Broken text is as good as no answer: nothing can be decided. */
static int read_code(struct vow__etcd_service *s, bool good, int code)
{
    if (!good)
        vow__etcd_trouble(s->etcd, "etcd gave an unknown answer");
    return !good || code == VOW_EIO ? VOW_ESTORE : code;
}

int vow__etcd_offset_take(struct vow__etcd_service *s, const json_t *range)
{
    struct name_keys k = {.s = s};
    s->offset = s->offset_mod = 0;
    bool good = vow__json_each(s->etcd, range, on_offset_key, &k);
    if (good && k.code != 0)
        vow__etcd_trouble(s->etcd, "the key %se in etcd is not one of ours",
                          vow__etcd_where_of(s->etcd)->prefix);
    return read_code(s, good, k.code);
}

static int keys_read(struct vow__etcd_service *s, const json_t *range,
                     const vow_name *name, struct cas_found *ret_found)
{
    struct name_keys k = {.s = s, .name = name, .found = found_absent(name)};
    bool good = vow__json_each(s->etcd, range, on_name_key, &k);
    int rc = read_code(s, good, k.code);
    if (rc < 0)
        vow__cas_found_fini(&k.found);
    else
        *ret_found = k.found;
    return rc;
}

/* The result left for waiters; a record of earlier versions has the result
 * itself. */
static int left_read(struct vow__etcd_service *s, const json_t *range,
                     const vow_name *name, uint64_t waited, struct cas_found *f)
{
    struct name_keys k = {.s = s, .name = name};
    bool good = vow__json_each(s->etcd, range, on_left_key, &k);
    int rc = read_code(s, good, k.code);
    if (rc < 0)
        return rc;
    if (k.there) {
        vow__cas_found_fini(f);
        f->value = k.found.value;
        f->valued = k.found.valued;
        f->left = k.found.record;
    } else if (f->record.spent && f->record.first == waited) {
        f->left = f->record;
    } else {
        return 0;
    }
    f->has_left = true;
    return 0;
}

int vow__etcd_name_take(struct vow__etcd_service *s, const json_t *root,
                        size_t first, const vow_name *name, uint64_t waited,
                        struct cas_found *ret_found)
{
    struct cas_found f = found_absent(name);
    int rc = vow__etcd_offset_take(s, vow__json_response(root, first));
    if (rc == 0)
        rc = keys_read(s, vow__json_response(root, first + 1), name, &f);
    if (rc < 0)
        return rc;
    if (waited != 0)
        rc =
            left_read(s, vow__json_response(root, first + 2), name, waited, &f);
    if (rc < 0)
        vow__cas_found_fini(&f);
    else
        *ret_found = f;
    return rc;
}

/* ---- names --------------------------------------------------------------- */

static int read_page(struct vow__etcd_service *s, const struct cas_read *read,
                     size_t from, size_t n, struct cas_found *ret_found)
{
    struct vow__txn t;
    json_t *root = NULL;
    size_t i = 0;
    vow__etcd_service_txn_init(s, &t);
    vow__etcd_name_ask(&t, VOW__THEN, &read->names[from], read->waited);
    for (i = 1; i < n; i++) {
        struct vow__key keys = vow__key("n", &read->names[from + i], "/");
        vow__txn_range(&t, VOW__THEN, &keys, VOW__TREE);
    }
    int rc = vow__etcd_names_txn(s, &t, read->due_ns, &root);
    if (rc == 0)
        rc = vow__etcd_name_take(s, root, 0, &read->names[from], read->waited,
                                 &ret_found[from]);
    for (i = 1; rc == 0 && i < n; i++)
        rc = keys_read(s, vow__json_response(root, i + 1),
                       &read->names[from + i], &ret_found[from + i]);
    if (rc < 0)
        for (size_t k = 0; k + 1 < i; k++)
            vow__cas_found_fini(&ret_found[from + k]);
    json_decref(root);
    return rc == VOW_EUNSURE || rc == VOW_ENOENT ? VOW_ESTORE : rc;
}

int vow__etcd_service_read(struct cas_service *service,
                           const struct cas_read *read,
                           struct cas_found *ret_found)
{
    struct vow__etcd_service *s = vow__etcd_service_of(service);
    size_t i = 0;
    int rc = 0;
    for (; rc == 0 && i < read->n; i += NAMES_MAX) {
        size_t n = read->n - i < NAMES_MAX ? read->n - i : NAMES_MAX;
        rc = read_page(s, read, i, n, ret_found);
        for (size_t k = 0; rc == 0 && !read->values && k < n; k++) {
            vow__cas_found_fini(&ret_found[i + k]);
            ret_found[i + k].valued = false;
        }
    }
    for (size_t k = 0; rc < 0 && k + NAMES_MAX < i; k++)
        vow__cas_found_fini(&ret_found[k]);
    return rc;
}

/* ---- lists --------------------------------------------------------------- */

struct name_list {
    struct name_keys keys;
    struct cas_found *found;
    size_t n, room;
    vow_name at; /* of `keys` */
    bool any;
    struct vow__key next; /* behind the last key */
};

/* Ends the name whose keys were read. */
static void list_end_name(struct name_list *l)
{
    if (l->any && l->keys.there && l->n < l->room) {
        vow__cas_found_fini(&l->keys.found);
        l->keys.found.valued = false;
        l->found[l->n++] = l->keys.found;
    }
    l->any = false;
    l->keys.found.value = NULL;
}

static bool on_list_key(const struct vow__kv *kv, void *user)
{
    struct name_list *l = user;
    vow_name name;
    char letter = vow__etcd_name_key(kv->key, &name);
    l->next = vow__key_behind(kv->key);
    if (letter == 0)
        return true;
    if (!l->any || !vow_name_equal(&name, &l->at)) {
        list_end_name(l);
        if (l->n == l->room)
            return false;
        l->keys = (struct name_keys){.s = l->keys.s};
        l->at = name;
        l->any = true;
    }
    if (keys_take(&l->keys, kv, letter, &l->at) == VOW_ENOMEM)
        l->keys.code = VOW_ENOMEM;
    return l->keys.code == 0;
}

/* Keys from `from` on; a name may go on in the next page. */
static int list_page(struct vow__etcd_service *s, const struct vow__key *from,
                     uint64_t due_ns, struct name_list *l, bool *ret_more)
{
    const struct vow__key tree = vow__key("n", NULL, "/");
    const struct vow__some some = {.from = from, .limit = LIST_KEYS};
    struct vow__txn t;
    json_t *root = NULL;
    vow__etcd_service_txn_init(s, &t);
    vow__txn_some(&t, VOW__THEN, &tree, &some);
    int rc = vow__etcd_names_txn(s, &t, due_ns, &root);
    if (rc == 0) {
        const json_t *range = vow__json_response(root, 0);
        bool good = vow__json_each(s->etcd, range, on_list_key, l);
        rc = read_code(s, good, l->keys.code);
        *ret_more = json_is_true(json_object_get(range, "more"));
    }
    json_decref(root);
    return rc == VOW_EUNSURE || rc == VOW_ENOENT ? VOW_ESTORE : rc;
}

int vow__etcd_service_list(struct cas_service *service, const vow_name *after,
                           uint64_t due_ns, struct cas_found *ret_found,
                           size_t room, size_t *ret_n)
{
    static const vow_name FIRST = {.hash = {0}};
    struct vow__etcd_service *s = vow__etcd_service_of(service);
    struct name_list l = {.keys.s = s, .found = ret_found, .room = room};
    struct vow__key from = vow__key("n", after, "0"); /* behind "n/H/" */
    bool more = true;
    int rc = 0;
    if (vow_name_equal(after, &FIRST))
        from = vow__key("n", NULL, "/");
    while (rc == 0 && more && l.n < room) {
        rc = list_page(s, &from, due_ns, &l, &more);
        more = more && strcmp(from.text, l.next.text) != 0;
        from = l.next;
    }
    if (rc == 0)
        list_end_name(&l);
    vow__cas_found_fini(&l.keys.found);
    *ret_n = l.n;
    return rc;
}

/* ---- values -------------------------------------------------------------- */

struct value_keys {
    struct vow__etcd_service *s;
    uint64_t epoch;
    bool there, elsewhere;
    vow_bytes *value;
    int code;
};

static bool on_value_key(const struct vow__kv *kv, void *user)
{
    struct value_keys *k = user;
    struct vow__etcd_record r;
    k->code = vow__etcd_record_read(k->s->etcd, kv, &r);
    if (k->code < 0 || k->there || r.apart || r.record.epoch != k->epoch)
        return false;
    k->there = true;
    k->elsewhere = r.elsewhere;
    if (r.size > 0)
        k->code = vow__bytes_make(vow__etcd_alloc(k->s->etcd), r.value, r.size,
                                  &k->value);
    return false;
}

/* The result left for waiters, a value apart, or the ticket in the record. */
int vow__etcd_service_value(struct cas_service *service, const vow_name *name,
                            uint64_t epoch, uint64_t left, uint64_t due_ns,
                            vow_bytes **ret_value)
{
    struct vow__etcd_service *s = vow__etcd_service_of(service);
    const struct vow__key keys[] = {left != 0
                                        ? vow__etcd_left_key(name, left)
                                        : vow__etcd_value_key(name, epoch),
                                    vow__key("n", name, "/r")};
    struct value_keys k = {.s = s, .epoch = epoch};
    struct vow__txn t;
    json_t *root = NULL;
    bool good = true;
    vow__etcd_service_txn_init(s, &t);
    for (size_t i = 0; i < 2; i++)
        vow__txn_range(&t, VOW__THEN, &keys[i], 0);
    int rc = vow__etcd_names_txn(s, &t, due_ns, &root);
    for (size_t i = 0; rc == 0 && good && k.code == 0 && i < 2; i++)
        good = vow__json_each(s->etcd, vow__json_response(root, i),
                              on_value_key, &k);
    json_decref(root);
    if (rc == 0)
        rc = read_code(s, good, k.code);
    if (rc == 0 && !k.there)
        return VOW_ENOENT;
    if (rc == 0 && k.elsewhere) {
        vow_bytes *ticket = k.value;
        k.value = NULL;
        rc = vow__results_get(s->etcd, name, epoch, ticket, &k.value);
        vow_bytes_unref(ticket);
    }
    *ret_value = rc == 0 ? k.value : NULL;
    return rc == VOW_EUNSURE || rc == VOW_ENOENT ? VOW_ESTORE : rc;
}

/* ---- chunks -------------------------------------------------------------- */

struct chunk_keys {
    struct vow__etcd_service *s;
    const vow_name *name;
    uint64_t epoch, from;
    vow_bytes **chunks;
    size_t n, room;
    int code;
};

/* A chunk that is not the next one: chunks were lost. */
static bool on_chunk_key(const struct vow__kv *kv, void *user)
{
    struct chunk_keys *k = user;
    struct vow__key key =
        vow__etcd_chunk_key(k->name, k->epoch, k->from + k->n);
    if (strcmp(kv->key, key.text) != 0 || k->n == k->room)
        return false;
    k->code = vow__bytes_make(vow__etcd_alloc(k->s->etcd), kv->value, kv->size,
                              &k->chunks[k->n]);
    k->n += k->code == 0;
    return k->code == 0;
}

/* VOW_ENOENT: chunks are missing, which went with a lease. */
static int chunks_take(struct vow__etcd_service *s, const json_t *root,
                       struct chunk_keys *k, struct cas_found *ret_found)
{
    int rc = vow__etcd_name_take(s, root, 0, k->name, 0, ret_found);
    if (rc < 0)
        return rc;
    bool good =
        vow__json_each(s->etcd, vow__json_response(root, 2), on_chunk_key, k);
    const struct rules_record *r = &ret_found->record;
    uint64_t left = r->chunks > k->from ? r->chunks - k->from : 0;
    rc = read_code(s, good, k->code);
    if (rc == 0 && r->epoch == k->epoch && k->n < k->room && k->n < left)
        rc = VOW_ENOENT;
    vow__cas_found_fini(ret_found);
    ret_found->valued = false;
    return rc;
}

/* NOLINTNEXTLINE(readability-function-size): the type is of the service table */
int vow__etcd_service_chunks(struct cas_service *service, const vow_name *name,
                             uint64_t epoch, uint64_t from, uint64_t due_ns,
                             struct cas_found *ret_found,
                             vow_bytes **ret_chunks, size_t room, size_t *ret_n)
{
    struct vow__etcd_service *s = vow__etcd_service_of(service);
    const struct vow__key all = vow__etcd_chunks_key(name, epoch);
    const struct vow__key first = vow__etcd_chunk_key(name, epoch, from);
    const struct vow__some some = {.from = &first, .limit = (unsigned)room};
    struct chunk_keys k = {.s = s,
                           .name = name,
                           .epoch = epoch,
                           .from = from,
                           .chunks = ret_chunks,
                           .room = room};
    struct vow__txn t;
    json_t *root = NULL;
    vow__etcd_service_txn_init(s, &t);
    vow__etcd_name_ask(&t, VOW__THEN, name, 0);
    vow__txn_some(&t, VOW__THEN, &all, &some);
    int rc = vow__etcd_names_txn(s, &t, due_ns, &root);
    if (rc == 0)
        rc = chunks_take(s, root, &k, ret_found);
    else if (rc == VOW_EUNSURE || rc == VOW_ENOENT)
        rc = VOW_ESTORE;
    json_decref(root);
    *ret_n = k.n; /* the caller drops the chunks, also after an error */
    return rc;
}
