/* SPDX-License-Identifier: MIT */
/* etcd_pool_read.c - reading pools: one pool, or all pools of a range of keys.
 *
 * HOW   Each key belongs to a pool of the reading; limits are those of another
 *       pool for a key of that pool, so they are given out when all keys are
 *       read. Then the rows of each pool are sorted by creation and summed up
 *       (store/rules/order.h).
 * LIMITS  Of rows that one transaction of somebody else has created, the first
 *         counts. A list is read page by page: a row that comes or goes
 *         meanwhile may be missing; a list is for people.
 * THREADS  loop thread only, on fibers.
 */
#include "store/etcd/etcd_service.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 16, PAGE = 1000 };

/* ---- the rows of a pool -------------------------------------------------- */

/* A block has room for rows, and behind them for the rows of the rules. */
static size_t rows_size(size_t room)
{
    return room * (sizeof(struct vow__etcd_row) + sizeof(struct rules_row));
}

static int row_add(struct vow__etcd_pools *ps, struct vow__etcd_pool *p,
                   const struct vow__etcd_row *row)
{
    if (p->n == p->room) {
        size_t room = p->room == 0 ? FIRST_ROOM : 2 * p->room;
        struct vow__etcd_row *more = vow__mem_new(ps->alloc, rows_size(room));
        if (more == NULL)
            return VOW_ENOMEM;
        if (p->n > 0)
            memcpy(more, p->rows, p->n * sizeof(more[0]));
        vow__mem_free(ps->alloc, p->rows, rows_size(p->room));
        p->rows = more;
        p->room = room;
    }
    p->rows[p->n++] = *row;
    return 0;
}

static int rows_by_order(const void *a, const void *b)
{
    uint64_t left = ((const struct vow__etcd_row *)a)->row.order;
    uint64_t right = ((const struct vow__etcd_row *)b)->row.order;
    return left < right ? -1 : left > right;
}

/* Sorts the rows and makes the rows of the rules. */
static void rows_sort(struct vow__etcd_pool *p)
{
    size_t n = 0;
    if (p->n > 1)
        qsort(p->rows, p->n, sizeof(p->rows[0]), rows_by_order);
    for (size_t i = 0; i < p->n; i++)
        if (n == 0 || p->rows[n - 1].row.order < p->rows[i].row.order)
            p->rows[n++] = p->rows[i];
    p->n = n;
    if (n == 0)
        return;
    p->order = (struct rules_row *)(void *)(p->rows + p->room);
    for (size_t i = 0; i < n; i++)
        p->order[i] = p->rows[i].row;
}

/* ---- pools --------------------------------------------------------------- */

void vow__etcd_pools_init(struct vow__etcd_service *s,
                          struct vow__etcd_pools *ret_pools)
{
    *ret_pools = (struct vow__etcd_pools){.service = s,
                                          .alloc = vow__etcd_alloc(s->etcd)};
    vow__etcd_buf_init(&ret_pools->texts, ret_pools->alloc);
}

void vow__etcd_pools_fini(struct vow__etcd_pools *ps)
{
    for (size_t i = 0; i < ps->n; i++) {
        struct vow__etcd_pool *p = &ps->pools[i];
        vow__cas_pool_found_fini(&p->found);
        vow__mem_free(ps->alloc, p->rows, rows_size(p->room));
    }
    vow__mem_free(ps->alloc, ps->pools, ps->room * sizeof(ps->pools[0]));
    vow__buf_fini(&ps->texts);
    vow__etcd_pools_init(ps->service, ps);
}

static bool names_match(const struct cas_pool_name *a,
                        const struct cas_pool_name *b)
{
    return vow_name_equal(&a->pool, &b->pool) &&
           vow_name_equal(&a->limits_of, &b->limits_of);
}

static bool is_key(const struct cas_pool_name *name)
{
    return !vow_name_equal(&name->pool, &name->limits_of);
}

/* Finds a pool among the pools with the same limits, which stand together. */
static struct vow__etcd_pool *pool_find(const struct vow__etcd_pools *ps,
                                        const struct cas_pool_name *name)
{
    for (size_t i = ps->n; i-- > 0;) {
        struct vow__etcd_pool *p = &ps->pools[i];
        if (names_match(&p->found.name, name))
            return p;
        if (!vow_name_equal(&p->found.name.limits_of, &name->limits_of))
            break;
    }
    return NULL;
}

/* Finds or adds a pool. NULL without memory. */
static struct vow__etcd_pool *pool_use(struct vow__etcd_pools *ps,
                                       const struct cas_pool_name *name)
{
    struct vow__etcd_pool *p = pool_find(ps, name);
    if (p != NULL)
        return p;
    if (ps->n == ps->room) {
        size_t room = ps->room == 0 ? 2 : 2 * ps->room;
        struct vow__etcd_pool *more =
            vow__mem_new(ps->alloc, room * sizeof(more[0]));
        if (more == NULL)
            return NULL;
        if (ps->n > 0)
            memcpy(more, ps->pools, ps->n * sizeof(more[0]));
        vow__mem_free(ps->alloc, ps->pools, ps->room * sizeof(more[0]));
        ps->pools = more;
        ps->room = room;
    }
    p = &ps->pools[ps->n++];
    *p = (struct vow__etcd_pool){.found = {.alloc = ps->alloc, .name = *name}};
    return p;
}

static int pool_take(struct vow__etcd_pools *ps, struct vow__etcd_pool *p,
                     const struct vow__etcd_pool_key *key,
                     const struct vow__kv *kv)
{
    struct cas_pool_found *f = &p->found;
    struct vow__etcd_row row = {.mod = kv->mod,
                                .lease = kv->lease,
                                .text = ps->texts.n,
                                .size = kv->size};
    struct cas_entry entry;
    if (f->label[0] == 0)
        vow__etcd_label_read(kv, f->label);
    if (key->kind == VOW__ETCD_KEY_LIMITS) {
        f->there = vow__etcd_limits_read(kv, &f->limits);
        f->limits_version = kv->mod + ps->service->shift;
        return 0;
    }
    if (key->kind == VOW__ETCD_KEY_ROW &&
        vow__etcd_row_read(kv, &key->token, &row.row)) {
        vow__buf_add(&ps->texts, kv->value, kv->size);
        return ps->texts.code != 0 ? VOW_ENOMEM : row_add(ps, p, &row);
    }
    if (key->kind == VOW__ETCD_KEY_ENTRY &&
        vow__etcd_entry_read(ps->service, kv, key->id, &entry))
        return vow__cas_entries_add(f, &entry);
    return 0;
}

static bool on_pool_key(const struct vow__kv *kv, void *user)
{
    struct vow__etcd_pools *ps = user;
    struct vow__etcd_pool_key key;
    ps->next = vow__key_behind(kv->key);
    if (vow__etcd_pool_key_read(kv->key, &key)) {
        struct vow__etcd_pool *p = pool_use(ps, &key.name);
        ps->code = p == NULL ? VOW_ENOMEM : pool_take(ps, p, &key, kv);
    }
    return ps->code == 0;
}

/* A pool of a key has the limits of the other pool. */
static void pools_complete(struct vow__etcd_pools *ps)
{
    for (size_t i = 0; i < ps->n; i++) {
        struct cas_pool_found *f = &ps->pools[i].found;
        const struct cas_pool_name own = {.pool = f->name.limits_of,
                                          .limits_of = f->name.limits_of};
        const struct vow__etcd_pool *limits = NULL;
        for (size_t k = 0; is_key(&f->name) && k < ps->n; k++)
            if (names_match(&ps->pools[k].found.name, &own))
                limits = &ps->pools[k];
        if (limits != NULL) {
            f->there = limits->found.there;
            f->limits = limits->found.limits;
            f->limits_version = limits->found.limits_version;
        }
        rows_sort(&ps->pools[i]);
        f->revision = ps->revision;
        f->now_us = vow__etcd_wall_us();
        f->sums = vow__rules_order_sum(&f->limits, ps->pools[i].order,
                                       ps->pools[i].n);
    }
}

/* ---- one pool ------------------------------------------------------------ */

void vow__etcd_pool_ask(struct vow__txn *t, enum vow__branch b,
                        const struct cas_pool_name *name)
{
    const struct vow__key tree = vow__etcd_pool_key(name);
    const struct vow__key limits = vow__etcd_limits_key(&name->limits_of);
    const struct vow__key offset = vow__key("e", NULL, "");
    vow__txn_range(t, b, &offset, 0);
    vow__txn_range(t, b, &limits, 0);
    vow__txn_range(t, b, &tree, VOW__TREE);
}

static int pools_code(struct vow__etcd_service *s, bool good, int code)
{
    if (!good)
        vow__etcd_trouble(s->etcd, "etcd gave an unknown answer");
    return good ? code : VOW_ESTORE;
}

int vow__etcd_pool_take(struct vow__etcd_pools *ps, const json_t *limits,
                        const json_t *rows, const struct cas_pool_name *name)
{
    struct vow__etcd_service *s = ps->service;
    if (pool_use(ps, name) == NULL)
        return VOW_ENOMEM;
    ps->revision = s->answered;
    bool good =
        limits == NULL || vow__json_each(s->etcd, limits, on_pool_key, ps);
    if (good && ps->code == 0)
        good = vow__json_each(s->etcd, rows, on_pool_key, ps);
    pools_complete(ps);
    return pools_code(s, good, ps->code);
}

/* ---- for the engine ------------------------------------------------------ */

struct cas_row vow__etcd_row_found(const struct vow__etcd_pools *ps,
                                   const struct vow__etcd_pool *p,
                                   const vow_token *token)
{
    const struct vow__etcd_service *s = ps->service;
    struct cas_row row = {.token = *token};
    const struct rules_row *r = vow__rules_order_find(
        &p->found.limits, p->order, p->n, token, &row.before, &row.ahead);
    if (r == NULL)
        return row;
    const struct vow__etcd_row *own = &p->rows[r - p->order];
    const struct vow__kv kv = {.value = ps->texts.bytes + own->text,
                               .size = own->size};
    row.there = true;
    row.marked = r->marked;
    row.weight = r->weight;
    row.order = r->order;
    row.version = own->mod + s->shift;
    row.fence = r->order + s->offset;
    row.lease = (uint64_t)own->lease;
    row.lease_ms = r->lease_ms;
    vow__etcd_row_texts(&kv, &row);
    return row;
}

void vow__etcd_pool_move(struct vow__etcd_pool *p,
                         struct cas_pool_found *ret_found)
{
    const struct vow_alloc *alloc = ret_found->alloc;
    *ret_found = p->found;
    ret_found->alloc = alloc;
    p->found.entries = NULL;
    p->found.n = p->found.room = 0;
}

/* NOLINTNEXTLINE(readability-function-size): as the service table has them */
int vow__etcd_pool_answer(struct vow__etcd_service *s, const json_t *root,
                          size_t first, const struct cas_pool_name *name,
                          const vow_token *tokens, size_t n,
                          struct cas_pool_found *ret_pool,
                          struct cas_row *ret_rows)
{
    struct vow__etcd_pools ps;
    vow__etcd_pools_init(s, &ps);
    int rc = vow__etcd_offset_take(s, vow__json_response(root, first));
    if (rc == 0)
        rc = vow__etcd_pool_take(&ps, vow__json_response(root, first + 1),
                                 vow__json_response(root, first + 2), name);
    for (size_t i = 0; rc == 0 && i < n; i++)
        ret_rows[i] = vow__etcd_row_found(&ps, &ps.pools[0], &tokens[i]);
    if (rc == 0)
        vow__etcd_pool_move(&ps.pools[0], ret_pool);
    vow__etcd_pools_fini(&ps);
    return rc;
}

/* ---- many pools ---------------------------------------------------------- */

int vow__etcd_pools_read(struct vow__etcd_pools *ps,
                         const struct vow__key *tree, uint64_t due_ns)
{
    struct vow__etcd_service *s = ps->service;
    bool more = true;
    int rc = 0;
    ps->next = *tree;
    while (rc == 0 && more) {
        const struct vow__key from = ps->next;
        const struct vow__some some = {.from = &from, .limit = PAGE};
        struct vow__txn t;
        json_t *root = NULL;
        vow__etcd_service_txn_init(s, &t);
        vow__txn_some(&t, VOW__THEN, tree, &some);
        rc = vow__etcd_service_txn(s, &t, due_ns, &root);
        if (rc == 0) {
            const json_t *range = vow__json_response(root, 0);
            bool good = vow__json_each(s->etcd, range, on_pool_key, ps);
            rc = pools_code(s, good, ps->code);
            more = json_is_true(json_object_get(range, "more")) &&
                   strcmp(from.text, ps->next.text) != 0;
        }
        json_decref(root);
    }
    ps->revision = s->answered;
    pools_complete(ps);
    return rc == VOW_EUNSURE || rc == VOW_ENOENT ? VOW_ESTORE : rc;
}
