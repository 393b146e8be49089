/* SPDX-License-Identifier: MIT */
/* etcd_limits.c - the limits of pools, and the list of all pools.
 *
 * WHY   Without a rate a row is held because the row fits, and no key says so.
 *       Under lower limits the row fits no more, and yet stays held.
 * HOW   A change of limits reads all pools with these limits. The rules plan
 *       which rows are marked and which requests leave; each row is changed
 *       only if the row is still as it was read. Each transaction compares the
 *       old limits, and the last one puts the new limits.
 *       Nothing is written when a request is granted because rows before are
 *       gone. So a request leaves only if the rows that kept the request
 *       waiting are there.
 * INVARIANTS
 *   M1  marks are made only under the limits by which the plan was made
 *   M2  no row leaves that was held at any time
 * LIMITS  A row that began to be held after the read has no mark: the process of
 *         the row marks the row at the next renewal. A request that may have been
 *         granted, or that too many rows keep waiting, is removed by the process
 *         of the request, which is told the limits. Limits stay for ever.
 * THREADS  loop thread only, on fibers.
 */
#include "store/etcd/etcd_service.h"

enum {
    PLANS_MAX = 50, /* of a transaction: etcd takes 128 operations */
    BLOCKERS_MAX = 50
};

struct limit_change {
    struct vow__etcd_service *service;
    const vow_name *limits_of;
    const vow_pool_limits *limits;
    const char *label;
    uint64_t version, due_ns;
    struct vow__etcd_pools pools;
    size_t pool, row; /* how far the plans are carried out */
    size_t planned;   /* of the transaction */
};

/* ---- plans --------------------------------------------------------------- */

/* Compares that the request number `i` still waits: keeps M2. Returns false if
 * this takes too many rows. Under a rate, a grant is a mark. */
static bool plan_compare(const struct vow__etcd_pool *p, size_t i,
                         struct vow__txn *t)
{
    const vow_pool_limits *from = &p->found.limits;
    uint64_t sum = p->order[i].weight;
    size_t blockers = 0;
    if (from->rate > 0)
        return true;
    for (size_t k = 0; sum <= from->concurrent && k < p->n; k++) {
        const struct rules_row *r = &p->order[k];
        const struct vow__key key =
            vow__etcd_row_key(&p->found.name, &r->token);
        bool counts = r->marked || k < i;
        if (!counts || r->plan == RULES_PLAN_DROP)
            continue;
        if (++blockers > BLOCKERS_MAX)
            return false;
        vow__txn_if_created(t, &key, r->order);
        sum += r->weight;
    }
    return sum > from->concurrent;
}

/* Returns whether the plan is part of the transaction. */
static bool plan_drop(const struct limit_change *c, struct vow__txn *t,
                      const struct vow__etcd_pool *p, size_t i)
{
    const struct vow__key key =
        vow__etcd_row_key(&p->found.name, &p->order[i].token);
    struct vow__txn inner;
    vow__etcd_service_txn_init(c->service, &inner);
    vow__txn_if_mod(&inner, &key, p->rows[i].mod);
    bool waits = plan_compare(p, i, &inner);
    if (waits) {
        vow__txn_delete(&inner, VOW__THEN, &key, 0);
        vow__txn_nest(t, VOW__THEN, &inner);
    }
    vow__txn_fini(&inner);
    return waits;
}

static void plan_mark(const struct limit_change *c, struct vow__txn *t,
                      const struct vow__etcd_pool *p, const struct rules_row *r)
{
    const struct vow__key key = vow__etcd_row_key(&p->found.name, &r->token);
    struct cas_row row = vow__etcd_row_found(&c->pools, p, &r->token);
    const char *label = vow_name_equal(&p->found.name.pool, c->limits_of)
                            ? NULL
                            : p->found.label;
    struct vow__buf value;
    struct vow__txn inner;
    row.marked = true;
    vow__etcd_service_txn_init(c->service, &inner);
    vow__etcd_buf_init(&value, vow__etcd_alloc(c->service->etcd));
    vow__etcd_row_write(&row, label, NULL, &value); /* waits no more */
    vow__txn_if_mod(&inner, &key, row.version - c->service->shift);
    vow__txn_put(&inner, VOW__THEN, &key, &value, (int64_t)row.lease);
    vow__txn_nest(t, VOW__THEN, &inner);
    vow__buf_fini(&value);
    vow__txn_fini(&inner);
}

/* Returns how many operations the transaction has for the row: none or one. */
static size_t plan_add(const struct limit_change *c, struct vow__txn *t,
                       const struct vow__etcd_pool *p, size_t i)
{
    if (p->order[i].plan == RULES_PLAN_DROP)
        return plan_drop(c, t, p, i);
    if (p->order[i].plan == RULES_PLAN_STAY)
        return 0;
    plan_mark(c, t, p, &p->order[i]);
    return 1;
}

/* Adds as many plans as a transaction takes. Returns whether these are all. */
static bool plans_add(struct limit_change *c, struct vow__txn *t)
{
    c->planned = 0;
    for (; c->pool < c->pools.n; c->pool++, c->row = 0) {
        const struct vow__etcd_pool *p = &c->pools.pools[c->pool];
        for (; c->row < p->n && c->planned < PLANS_MAX; c->row++)
            c->planned += plan_add(c, t, p, c->row);
        if (c->row < p->n)
            return false;
    }
    return true;
}

/* ---- limits -------------------------------------------------------------- */

/* One transaction. The last one puts the limits, and reads the pool. */
static int limit_send(struct limit_change *c, const char *label, bool *ret_last,
                      struct cas_pool_found *ret_pool)
{
    struct vow__etcd_service *s = c->service;
    const struct cas_pool_name name = {.pool = *c->limits_of,
                                       .limits_of = *c->limits_of};
    const struct vow__key key = vow__etcd_limits_key(c->limits_of);
    struct vow__buf value;
    struct vow__txn t;
    json_t *root = NULL;
    vow__etcd_service_txn_init(s, &t);
    vow__txn_if_mod(&t, &key, c->version == 0 ? 0 : c->version - s->shift);
    *ret_last = plans_add(c, &t);
    if (*ret_last) {
        vow__etcd_buf_init(&value, vow__etcd_alloc(s->etcd));
        vow__etcd_limits_write(c->limits, label, &value);
        vow__txn_put(&t, VOW__THEN, &key, &value, 0);
        vow__buf_fini(&value);
        vow__etcd_pool_ask(&t, VOW__THEN, &name);
    }
    int rc = vow__etcd_service_txn(s, &t, c->due_ns, &root);
    if (rc == 0 && !vow__json_succeeded(root))
        rc = VOW_EAGAIN;
    if (rc == 0 && *ret_last &&
        vow__etcd_pool_answer(s, root, c->planned + 1, &name, NULL, 0, ret_pool,
                              NULL) < 0)
        rc = VOW_EUNSURE;
    json_decref(root);
    return rc == VOW_ENOENT ? VOW_EAGAIN : rc; /* a row that was read is gone */
}

static int limit_set(struct limit_change *c, struct cas_pool_found *ret_pool)
{
    const struct vow__key tree = vow__key("s", c->limits_of, "/");
    struct vow__etcd_pool *own = NULL;
    bool last = false;
    int rc = vow__etcd_pools_read(&c->pools, &tree, c->due_ns);
    for (size_t i = 0; rc == 0 && i < c->pools.n; i++) {
        struct vow__etcd_pool *p = &c->pools.pools[i];
        vow__rules_order_limit(&p->found.limits, c->limits, p->order, p->n);
        if (p->found.limits_version != c->version)
            rc = VOW_EAGAIN;
        if (vow_name_equal(&p->found.name.pool, c->limits_of))
            own = p;
    }
    const char *label =
        c->label[0] == 0 && own != NULL ? own->found.label : c->label;
    while (rc == 0 && !last)
        rc = limit_send(c, label, &last, ret_pool);
    return rc;
}

static bool limits_allow(const vow_pool_limits *l, uint64_t sum)
{
    return l->concurrent == 0 || sum <= l->concurrent;
}

/* Tells the requests that fit under the new limits, that are gone, and that are
 * the first under a rate. */
static void limit_tell(struct limit_change *c)
{
    struct vow__etcd_turns turns;
    vow__etcd_turns_init(c->service, &turns);
    for (size_t k = 0; k < c->pools.n; k++) {
        const struct vow__etcd_pool *p = &c->pools.pools[k];
        const vow_pool_limits *from = &p->found.limits;
        uint64_t sum = p->found.sums.marked;
        bool first = from->rate > 0;
        for (size_t i = 0; i < p->n; i++) {
            const struct rules_row *r = &p->order[i];
            bool drop = r->plan == RULES_PLAN_DROP;
            if (r->marked)
                continue;
            sum += drop ? 0 : r->weight;
            if (drop || first ||
                (!limits_allow(from, sum) && limits_allow(c->limits, sum)))
                vow__etcd_turns_add(&turns, &c->pools, p, i, c->due_ns);
            first = first && drop;
        }
    }
    vow__etcd_turns_tell(&turns, c->due_ns);
}

/* NOLINTNEXTLINE(readability-function-size): the type is of the service table */
int vow__etcd_pool_limit(struct cas_service *service, const vow_name *pool,
                         const vow_pool_limits *limits, const char *label,
                         uint64_t version, uint64_t due_ns,
                         struct cas_pool_found *ret_pool)
{
    struct limit_change c = {.service = vow__etcd_service_of(service),
                             .limits_of = pool,
                             .limits = limits,
                             .label = label,
                             .version = version,
                             .due_ns = due_ns};
    const struct cas_pool_name name = {.pool = *pool, .limits_of = *pool};
    if (limits == NULL)
        return vow__etcd_permit_look(service, &name, NULL, 0, due_ns, ret_pool,
                                     NULL);
    vow__etcd_pools_init(c.service, &c.pools);
    int rc = limit_set(&c, ret_pool);
    if (rc == 0)
        limit_tell(&c);
    vow__etcd_pools_fini(&c.pools);
    return rc;
}

/* ---- all pools ----------------------------------------------------------- */

int vow__etcd_pool_list(struct cas_service *service, uint64_t due_ns,
                        struct cas_pools_found *ret_pools)
{
    const struct vow__key tree = vow__key("s", NULL, "/");
    struct vow__etcd_pools ps;
    vow__etcd_pools_init(vow__etcd_service_of(service), &ps);
    int rc = vow__etcd_pools_read(&ps, &tree, due_ns);
    for (size_t i = 0; rc == 0 && i < ps.n; i++) {
        struct cas_pool_found f = {.alloc = ret_pools->alloc};
        vow__etcd_pool_move(&ps.pools[i], &f);
        if (f.there)
            rc = vow__cas_pools_add(ret_pools, &f);
        vow__cas_pool_found_fini(&f);
    }
    vow__etcd_pools_fini(&ps);
    return rc;
}
