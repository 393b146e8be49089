/* SPDX-License-Identifier: MIT */
/* etcd_census.c - many pools at once: those of one law, and all there are.
 *
 * HOW   Keys come in their order, so those of a pool follow each other, and
 *       the pools of a law as well; its limits are somewhere among them.
 *       The list of all pools is read page by page.
 * LIMITS  A place that comes or goes while pages are read may be missing, and
 *         who holds and who waits may then be off by it: a list is for people.
 *         Memory for all places of all pools.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_pools.h"

#include <stdio.h>
#include <string.h>

enum { FIRST_ROOM = 16, PAGE = 1000 };

struct list {
    vow_pools_fn done;
    void *user;
    struct vow__census census;
    size_t keys;          /* of this page */
    struct vow__key from; /* where the next begins */
};

static struct vow__census_row *row_of(struct vow__census *c,
                                      const struct vow__hall_name *name);
static struct vow__census_row *row_new(struct vow__census *c,
                                       const struct vow__hall_name *name);
static void list_on(struct vow__etcd *e, struct list *l);
static bool each_key(const struct vow__kv *kv, void *list);
static void on_page(struct vow__etcd *e, int code, const json_t *root,
                    void *list);
static void list_reap(struct vow__etcd *e, struct list *l);
static void on_reaped(struct vow__etcd *e, int code, const json_t *root,
                      void *list);
static int list_tell(struct list *l);
static void list_end(struct vow__etcd *e, struct list *l, int code);

/* ---- counting ------------------------------------------------------------ */

void vow__census_init(struct vow__census *c, struct vow__etcd *e)
{
    *c = (struct vow__census){.alloc = *vow__etcd_alloc(e),
                              .now = vow__places_now(e)};
}

void vow__census_fini(struct vow__census *c)
{
    for (size_t i = 0; i < c->n; i++)
        vow__crowd_fini(&c->rows[i].crowd);
    vow__mem_free(&c->alloc, c->rows, c->room * sizeof(c->rows[0]));
    c->rows = NULL;
    c->n = c->room = c->group = 0;
}

bool vow__census_add(const struct vow__kv *kv, void *census)
{
    struct vow__census *c = census;
    struct vow__hall_key key;
    if (!vow__hall_parse(kv->key, &key))
        return true;
    if (key.kind == VOW__KEY_LIMITS)
        key.hall.pool = key.hall.law;
    struct vow__census_row *row = row_of(c, &key.hall);
    c->code = row == NULL ? VOW_ENOMEM
                          : vow__crowd_take(&row->crowd, &key, kv, &c->now);
    return c->code == 0;
}

/* Only the law's own row is not the last one, because of its limits. */
static struct vow__census_row *row_of(struct vow__census *c,
                                      const struct vow__hall_name *name)
{
    bool own = vow_name_equal(&name->law, &name->pool);
    if (c->n == 0 || !vow_name_equal(&c->rows[c->group].name.law, &name->law)) {
        c->group = c->n;
        return row_new(c, name);
    }
    for (size_t i = own ? c->group : c->n - 1; i < c->n; i++)
        if (vow_name_equal(&c->rows[i].name.pool, &name->pool))
            return &c->rows[i];
    return row_new(c, name);
}

static struct vow__census_row *row_new(struct vow__census *c,
                                       const struct vow__hall_name *name)
{
    if (c->n == c->room) {
        size_t room = c->room == 0 ? FIRST_ROOM : 2 * c->room;
        struct vow__census_row *rows =
            vow__mem_new(&c->alloc, room * sizeof(rows[0]));
        if (rows == NULL)
            return NULL;
        if (c->n > 0)
            memcpy(rows, c->rows, c->n * sizeof(rows[0]));
        vow__mem_free(&c->alloc, c->rows, c->room * sizeof(rows[0]));
        c->rows = rows;
        c->room = room;
    }
    struct vow__census_row *row = &c->rows[c->n++];
    row->name = *name;
    vow__crowd_init(&row->crowd, &c->alloc);
    row->crowd.keyed = !vow_name_equal(&name->law, &name->pool);
    return row;
}

void vow__census_end(struct vow__census *c)
{
    const struct vow__crowd *law = NULL;
    for (size_t i = 0, k = 0; i < c->n; i = k) {
        law = NULL;
        for (k = i; k < c->n &&
                    vow_name_equal(&c->rows[k].name.law, &c->rows[i].name.law);
             k++)
            if (!c->rows[k].crowd.keyed)
                law = &c->rows[k].crowd;
        for (size_t row = i; row < k && law != NULL; row++) {
            c->rows[row].crowd.there = law->there;
            c->rows[row].crowd.limits = law->limits;
            c->rows[row].crowd.limits_mod = law->limits_mod;
        }
    }
}

/* ---- all pools ----------------------------------------------------------- */

void vow__etcd_pools(vow_store *store, vow_pools_fn done, void *user)
{
    struct vow__etcd *e = vow__etcd_of(store);
    int rc = vow__etcd_usable(e);
    struct list *l =
        rc < 0 ? NULL : vow__mem_zero(vow__etcd_alloc(e), sizeof(*l));
    if (l == NULL) {
        done(rc < 0 ? rc : VOW_ENOMEM, NULL, 0, user);
        return;
    }
    l->done = done;
    l->user = user;
    l->from = vow__key("s", NULL, "/");
    vow__census_init(&l->census, e);
    list_on(e, l);
}

static void list_on(struct vow__etcd *e, struct list *l)
{
    struct vow__key tree = vow__key("s", NULL, "/");
    struct vow__txn t;
    l->keys = 0;
    vow__txn_init(&t, vow__etcd_alloc(e), vow__etcd_where_of(e)->prefix);
    vow__txn_some(&t, VOW__THEN, &tree,
                  &(const struct vow__some){.from = &l->from, .limit = PAGE});
    vow__etcd_txn(e, &t, on_page, l);
    vow__txn_fini(&t);
}

/* The next page begins right behind its last key. One that is longer than ours
 * are is none of ours: those that begin alike are passed over. */
static bool each_key(const struct vow__kv *kv, void *list)
{
    struct list *l = list;
    size_t n = strlen(kv->key);
    size_t room = sizeof(l->from.text) - 2;
    l->keys++;
    (void)snprintf(l->from.text, sizeof(l->from.text), "%.*s%s", (int)room,
                   kv->key, n > room ? "" : "\x01");
    if (n > room)
        l->from.text[room - 1]++;
    return vow__census_add(kv, &l->census);
}

static void on_page(struct vow__etcd *e, int code, const json_t *root,
                    void *list)
{
    struct list *l = list;
    const json_t *range = vow__json_response(root, 0);
    if (code == 0 && !vow__json_each(e, range, each_key, l)) {
        vow__etcd_trouble(e, "etcd gave an answer that is none");
        code = VOW_ESTORE;
    }
    if (code == 0)
        code = l->census.code;
    if (code == 0 && l->keys > 0 &&
        json_is_true(json_object_get(range, "more")))
        list_on(e, l);
    else if (code < 0)
        list_end(e, l, code);
    else
        list_reap(e, l);
}

/* Those who are over go, some of them. */
static void list_reap(struct vow__etcd *e, struct list *l)
{
    struct vow__census *c = &l->census;
    struct vow__txn t;
    size_t n = 0;
    vow__txn_init(&t, vow__etcd_alloc(e), vow__etcd_where_of(e)->prefix);
    for (size_t i = 0; i < c->n && n < VOW__REAP_MAX; i++)
        n += vow__hall_reap(&t, &c->rows[i].name, &c->rows[i].crowd, NULL);
    if (n > 0)
        vow__etcd_txn(e, &t, on_reaped, l);
    else
        list_end(e, l, list_tell(l));
    vow__txn_fini(&t);
}

static void on_reaped(struct vow__etcd *e, int code, const json_t *root,
                      void *list)
{
    struct list *l = list;
    bool good = code == 0 || code == VOW_EUNSURE; /* another will see to it */
    (void)root;
    list_end(e, l, good ? list_tell(l) : code);
}

/* Not those of a law that has no limits any more, nor a key without use. */
static int list_tell(struct list *l)
{
    struct vow__census *c = &l->census;
    size_t n = 0;
    vow__census_end(c);
    vow_pool_info *infos =
        c->n == 0 ? NULL : vow__mem_new(&c->alloc, c->n * sizeof(infos[0]));
    if (infos == NULL && c->n > 0)
        return VOW_ENOMEM;
    for (size_t i = 0; i < c->n; i++) {
        struct vow__crowd *crowd = &c->rows[i].crowd;
        if (!crowd->there)
            continue;
        infos[n] = (vow_pool_info){.pool = c->rows[i].name.pool,
                                   .label = crowd->label,
                                   .limits = crowd->limits};
        vow__crowd_reap(crowd);
        vow__crowd_rank(crowd, c->now.loop_us);
        vow__crowd_count(crowd, c->now.loop_us, &infos[n]);
        n += !crowd->keyed || crowd->n > 0 || infos[n].rate_used > 0;
    }
    vow_pools_fn done = l->done;
    l->done = NULL;
    done(0, infos, n, l->user);
    vow__mem_free(&c->alloc, infos, c->n * sizeof(infos[0]));
    return 0;
}

static void list_end(struct vow__etcd *e, struct list *l, int code)
{
    if (l->done != NULL)
        l->done(code, NULL, 0, l->user);
    vow__census_fini(&l->census);
    vow__mem_free(vow__etcd_alloc(e), l, sizeof(*l));
}
