/* SPDX-License-Identifier: MIT */
/* etcd_list.c - all records, for people.
 *
 * HOW   Keys of names are read a page at a time in their order, so those of one
 *       name are neighbours; then the seats of all who wait, keys only, which
 *       are counted for their names. A seat that belongs to none of the names
 *       is passed over.
 * LIMITS  O(keys); a record that comes or goes meanwhile may be missing. About
 *         800 bytes for each that is found. Values that lie within records are
 *         read along, at most a page of them at once.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAGE = 100, /* keys */
    SEATS = 1000,
    FIRST_ROOM = 64,
    LETTERS = VOW_NAME_TEXT - 1 /* of a name */
};

struct list {
    struct vow__etcd *etcd;
    struct vow_alloc alloc;
    vow_records_fn done;
    void *user;
    int code;
    bool seats;           /* else names are read */
    struct vow__key last; /* that was read; "": none */
    struct vow__er *ers;
    size_t n, room;
    size_t at; /* where the last seat belongs */
};

static void ask_page(struct list *l);
static void on_page(struct vow__etcd *e, int code, const json_t *root,
                    void *list);
static bool on_key(const struct vow__kv *kv, void *list);
static struct vow__er *er_for(struct list *l, const vow_name *name);
static bool on_seat(const struct vow__kv *kv, void *list);
static int compare(const vow_name *name, const char *text);
static void list_end(struct list *l);
static bool shown(const struct vow__er *er);

void vow__etcd_list(vow_store *s, vow_records_fn done, void *user)
{
    struct vow__etcd *e = vow__etcd_of(s);
    struct list *l = NULL;
    int rc = vow__etcd_usable(e);
    if (rc == 0 && (l = vow__mem_zero(vow__etcd_alloc(e), sizeof(*l))) == NULL)
        rc = VOW_ENOMEM;
    if (l == NULL) {
        done(rc, NULL, 0, user);
        return;
    }
    l->etcd = e;
    l->alloc = *vow__etcd_alloc(e);
    l->done = done;
    l->user = user;
    ask_page(l);
}

/* Behind the last key; no key of ours has a byte 1 in it. */
static void ask_page(struct list *l)
{
    struct vow__key tree = vow__key(l->seats ? "w" : "n", NULL, "/");
    struct vow__key from;
    struct vow__some some = {.keys_only = l->seats,
                             .limit = l->seats ? SEATS : PAGE};
    struct vow__txn txn;
    if (l->last.text[0] != 0) {
        from = vow__key(l->last.text, NULL, "\x01");
        some.from = &from;
    }
    if (vow__etcd_closing(l->etcd)) {
        l->code = VOW_ECLOSED;
        list_end(l);
        return;
    }
    vow__txn_init(&txn, &l->alloc, vow__etcd_where_of(l->etcd)->prefix);
    vow__txn_some(&txn, VOW__THEN, &tree, &some);
    vow__etcd_txn(l->etcd, &txn, on_page, l);
    vow__txn_fini(&txn);
}

static void on_page(struct vow__etcd *e, int code, const json_t *root,
                    void *list)
{
    struct list *l = list;
    const json_t *range = vow__json_response(root, 0);
    if (code == 0 &&
        !vow__json_each(e, range, l->seats ? on_seat : on_key, l)) {
        vow__etcd_trouble(e, "etcd gave an answer that is none");
        code = VOW_ESTORE;
    }
    if (code != 0)
        l->code = code == VOW_EUNSURE ? VOW_ESTORE : code;
    bool more = l->code == 0 && json_is_true(json_object_get(range, "more"));
    if (l->code == 0 && !more && !l->seats && l->n > 0) {
        l->seats = true;
        l->last.text[0] = 0;
        more = true;
    }
    if (more)
        ask_page(l);
    else
        list_end(l);
}

/* ---- names --------------------------------------------------------------- */

/* What is not ours is not listed. */
static bool on_key(const struct vow__kv *kv, void *list)
{
    struct list *l = list;
    vow_name name;
    char letter = vow__er_key(kv->key, &name);
    (void)snprintf(l->last.text, sizeof(l->last.text), "%s", kv->key);
    if (letter == 0)
        return true;
    struct vow__er *er = er_for(l, &name);
    if (er == NULL) {
        l->code = VOW_ENOMEM;
        return false;
    }
    if (vow__er_read_key(l->etcd, kv, letter, er) == VOW_ENOMEM)
        l->code = VOW_ENOMEM;
    er->value = vow_bytes_unref(er->value);
    vow__er_expire(er);
    return l->code == 0;
}

/* The last one, or a new one. */
static struct vow__er *er_for(struct list *l, const vow_name *name)
{
    if (l->n > 0 && vow_name_equal(&l->ers[l->n - 1].name, name))
        return &l->ers[l->n - 1];
    if (l->n == l->room) {
        size_t room = l->room == 0 ? FIRST_ROOM : 2 * l->room;
        struct vow__er *ers = vow__mem_new(&l->alloc, room * sizeof(*ers));
        if (ers == NULL)
            return NULL;
        if (l->n > 0)
            memcpy(ers, l->ers, l->n * sizeof(*ers));
        vow__mem_free(&l->alloc, l->ers, l->room * sizeof(*ers));
        l->ers = ers;
        l->room = room;
    }
    l->ers[l->n] = (struct vow__er){.name = *name};
    return &l->ers[l->n++];
}

/* ---- seats --------------------------------------------------------------- */

/* "w/H/INST", in the order of names. */
static bool on_seat(const struct vow__kv *kv, void *list)
{
    struct list *l = list;
    const char *text = kv->key + 2;
    (void)snprintf(l->last.text, sizeof(l->last.text), "%s", kv->key);
    if (strlen(kv->key) < 2 + LETTERS)
        return true;
    while (l->at < l->n && compare(&l->ers[l->at].name, text) < 0)
        l->at++;
    if (l->at < l->n && compare(&l->ers[l->at].name, text) == 0)
        l->ers[l->at].waiters++;
    return true;
}

static int compare(const vow_name *name, const char *text)
{
    char own[VOW_NAME_TEXT];
    return memcmp(vow_name_text(name, own), text, LETTERS);
}

/* ---- the end ------------------------------------------------------------- */

static void list_end(struct list *l)
{
    const struct vow_alloc alloc = l->alloc;
    size_t size = (l->n + 1) * sizeof(vow_record);
    vow_record *records = l->code < 0 ? NULL : vow__mem_new(&alloc, size);
    size_t n = 0;
    if (l->code == 0 && records == NULL)
        l->code = VOW_ENOMEM;
    for (size_t i = 0; records != NULL && i < l->n; i++)
        if (shown(&l->ers[i]))
            records[n++] = vow__er_record(&l->ers[i], vow__er_says(&l->ers[i]));
    l->done(l->code, records, n, l->user);
    vow__mem_free(&alloc, records, size);
    vow__mem_free(&alloc, l->ers, l->room * sizeof(l->ers[0]));
    vow__mem_free(&alloc, l, sizeof(*l));
}

/* A lease that has lapsed is shown, a result that is hidden is not. */
static bool shown(const struct vow__er *er)
{
    return er->state == VOW__ER_RUNS || vow__er_says(er) == VOW_STATUS_SETTLED;
}
