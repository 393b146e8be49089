/* SPDX-License-Identifier: MIT */
/* etcd_permits.c - rows of pools: each step is one transaction.
 *
 * HOW   A join puts the row if there is none, and reads the first rows of the
 *       pool, or under a rate the whole pool. A change compares the revisions of
 *       rows, entries and limits. A row keeps its place in the order: etcd keeps
 *       the revision of the creation when a key is put again.
 *       A removal compares the revision of the creation, so that a late removal
 *       never hits a later row of the token. Mostly nobody asks for the pool
 *       then, and a removal reads the row, the limits, and the first rows of the
 *       pool: to tell whose turn it is (etcd_turns.c).
 *       An entry hangs on a lease that lives a little longer than the entry.
 * THREADS  loop thread only, on fibers.
 */
#include "store/etcd/etcd_service.h"

#include <stdio.h>
#include <string.h>

enum { FIRST_MAX = 1000 /* rows to read instead of all rows */ };

/* Returns the code of a read that has changed nothing. */
static int code_of_read(int rc)
{
    return rc == VOW_EUNSURE || rc == VOW_ENOENT ? VOW_ESTORE : rc;
}

static const char *label_of_key(const struct cas_pool_name *name,
                                const char *label)
{
    return vow_name_equal(&name->pool, &name->limits_of) ? NULL : label;
}

/* Reads as many rows as may hold permits, and one more. */
static void first_ask(struct vow__txn *t, enum vow__branch b,
                      const struct cas_pool_name *name, uint32_t concurrent)
{
    const struct vow__key rows = vow__etcd_rows_key(name);
    const struct vow__some some = {.by_creation = true,
                                   .limit = concurrent + 1};
    vow__txn_some(t, b, &rows, &some);
}

/* ---- join ---------------------------------------------------------------- */

/* Limits and label, if the pool has none. */
static void join_limits(struct vow__etcd_service *s,
                        const vow_permit_request *q, struct vow__txn *t,
                        enum vow__branch b)
{
    const struct vow__key limits = vow__etcd_limits_key(&q->limits_of);
    struct vow__buf value;
    struct vow__txn inner;
    vow__etcd_service_txn_init(s, &inner);
    vow__etcd_buf_init(&value, vow__etcd_alloc(s->etcd));
    vow__etcd_limits_write(&q->limits, q->limits_label, &value);
    vow__txn_if_absent(&inner, &limits);
    vow__txn_put(&inner, VOW__THEN, &limits, &value, 0);
    vow__txn_nest(t, b, &inner);
    vow__buf_fini(&value);
    vow__txn_fini(&inner);
}

/* Returns whether all held rows are among the first rows. */
static bool first_will_do(const vow_pool_limits *l)
{
    return l->rate == 0 && l->concurrent > 0 && l->concurrent < FIRST_MAX;
}

static void join_make(struct vow__etcd_service *s, const vow_permit_request *q,
                      const struct cas_pool_name *name,
                      const struct cas_lease *lease, struct vow__txn *ret_txn)
{
    const struct vow__key key = vow__etcd_row_key(name, &q->token);
    const struct vow__key limits = vow__etcd_limits_key(&name->limits_of);
    const struct vow__key offset = vow__key("e", NULL, "");
    struct cas_row row = {.weight = q->weight,
                          .lease_ms = q->lease_ms,
                          .since_us = vow__etcd_wall_us()};
    struct vow__buf value;
    (void)snprintf(row.runner, sizeof(row.runner), "%s", q->runner);
    vow__etcd_service_txn_init(s, ret_txn);
    vow__txn_if_absent(ret_txn, &key);
    vow__etcd_buf_init(&value, vow__etcd_alloc(s->etcd));
    vow__etcd_row_write(&row, label_of_key(name, q->label),
                        vow__etcd_inst(s->etcd), &value);
    vow__txn_put(ret_txn, VOW__THEN, &key, &value, (int64_t)lease->id);
    vow__buf_fini(&value);
    for (enum vow__branch b = VOW__THEN; b <= VOW__ELSE; b++) {
        vow__etcd_turns_join(s, ret_txn, b, (int64_t)lease->id);
        join_limits(s, q, ret_txn, b);
        if (!first_will_do(&q->limits)) {
            vow__etcd_pool_ask(ret_txn, b, name);
            continue;
        }
        vow__txn_range(ret_txn, b, &offset, 0);
        vow__txn_range(ret_txn, b, &limits, 0);
        first_ask(ret_txn, b, name, q->limits.concurrent);
        vow__txn_range(ret_txn, b, &key, 0);
    }
}

/* Completes the row by the rows that were not read, of `total` rows. Returns
 * false if these may matter. Without a rate and without marks, held rows are the
 * first. All rows before a first row were read; a row that was read apart waits
 * if the first rows fill the limit, and is behind all rows if it is new. */
static bool first_decide(const struct vow__etcd_pool *p, uint64_t total,
                         bool is_first, bool made, struct cas_row *row)
{
    const vow_pool_limits *l = &p->found.limits;
    uint64_t missing = total > p->n ? total - p->n : 0;
    if (l->rate > 0)
        return false;
    if (missing == 0)
        return true;
    if (l->concurrent == 0 || p->found.sums.marked > 0)
        return false;
    if (is_first)
        return true;
    if (!made || row->before < l->concurrent)
        return false;
    row->before += missing;
    row->ahead += missing;
    return true;
}

/* Reads what the join has answered from response `first` on. VOW_EAGAIN: the
 * pool must be read. */
static int first_answer(struct vow__etcd_service *s, const json_t *root,
                        size_t first, const vow_permit_request *q,
                        struct cas_pool_found *ret_pool,
                        struct cas_row *ret_row)
{
    const struct cas_pool_name name = {.pool = q->pool,
                                       .limits_of = q->limits_of};
    const json_t *rows = vow__json_response(root, first + 2);
    struct vow__etcd_pools ps;
    vow__etcd_pools_init(s, &ps);
    int rc = vow__etcd_offset_take(s, vow__json_response(root, first));
    if (rc == 0)
        rc = vow__etcd_pool_take(&ps, vow__json_response(root, first + 1), rows,
                                 &name);
    size_t n_first = rc == 0 ? ps.pools[0].n : 0;
    if (rc == 0)
        rc = vow__etcd_pool_take(&ps, NULL, vow__json_response(root, first + 3),
                                 &name);
    if (rc == 0)
        *ret_row = vow__etcd_row_found(&ps, &ps.pools[0], &q->token);
    if (rc == 0 && ret_row->there &&
        !first_decide(&ps.pools[0], vow__json_uint(rows, "count"),
                      ps.pools[0].n == n_first, vow__json_succeeded(root),
                      ret_row))
        rc = VOW_EAGAIN;
    if (rc == 0)
        vow__etcd_pool_move(&ps.pools[0], ret_pool);
    vow__etcd_pools_fini(&ps);
    return rc;
}

static bool row_waits(const struct cas_pool_found *found,
                      const struct cas_row *row)
{
    const struct rules_pool p = {.limits = found->limits,
                                 .held = found->sums.marked};
    return vow__rules_rank(&p, row->before, row->weight, row->marked, 0) !=
           RULES_RANK_HELD;
}

int vow__etcd_permit_join(struct cas_service *service,
                          const vow_permit_request *q,
                          const struct cas_lease *lease, uint64_t due_ns,
                          struct cas_pool_found *ret_pool,
                          struct cas_row *ret_row)
{
    struct vow__etcd_service *s = vow__etcd_service_of(service);
    const struct cas_pool_name name = {.pool = q->pool,
                                       .limits_of = q->limits_of};
    struct vow__txn t;
    json_t *root = NULL;
    join_make(s, q, &name, lease, &t);
    int rc = vow__etcd_service_txn(s, &t, due_ns, &root);
    bool made = rc == 0 && vow__json_succeeded(root);
    if (rc == 0) {
        uint64_t revision = vow__json_revision(root);
        if (first_will_do(&q->limits))
            rc = first_answer(s, root, made ? 3 : 2, q, ret_pool, ret_row);
        else
            rc = vow__etcd_pool_answer(s, root, made ? 3 : 2, &name, &q->token,
                                       1, ret_pool, ret_row);
        if (rc == VOW_EAGAIN)
            rc = vow__etcd_permit_look(service, &name, &q->token, 1, due_ns,
                                       ret_pool, ret_row);
        if (rc == 0 && !ret_row->there) {
            vow__etcd_trouble(s->etcd, "a permit in etcd is not one of ours");
            rc = VOW_ESTORE;
        }
        ret_row->made = made;
        if (rc == 0 && row_waits(ret_pool, ret_row))
            vow__etcd_turns_begin(s, revision);
        rc = rc < 0 ? VOW_EUNSURE : 0;
    }
    json_decref(root);
    return rc;
}

/* ---- look ---------------------------------------------------------------- */

/* NOLINTNEXTLINE(readability-function-size): the type is of the service table */
int vow__etcd_permit_look(struct cas_service *service,
                          const struct cas_pool_name *name,
                          const vow_token *tokens, size_t n, uint64_t due_ns,
                          struct cas_pool_found *ret_pool,
                          struct cas_row *ret_rows)
{
    struct vow__etcd_service *s = vow__etcd_service_of(service);
    struct vow__txn t;
    json_t *root = NULL;
    vow__etcd_service_txn_init(s, &t);
    vow__etcd_pool_ask(&t, VOW__THEN, name);
    int rc = vow__etcd_service_txn(s, &t, due_ns, &root);
    if (rc == 0)
        rc = vow__etcd_pool_answer(s, root, 0, name, tokens, n, ret_pool,
                                   ret_rows);
    json_decref(root);
    return code_of_read(rc);
}

/* ---- writes -------------------------------------------------------------- */

static uint64_t mod_of(const struct vow__etcd_service *s, uint64_t version)
{
    return version == 0 ? 0 : version - s->shift;
}

static void permit_put_row(const struct vow__etcd_service *s,
                           struct vow__txn *t, const struct cas_pool_write *w,
                           const struct cas_row_change *change)
{
    const struct vow__key key =
        vow__etcd_row_key(&w->pool, &change->row->token);
    struct cas_row row = *change->row;
    struct vow__buf value;
    row.marked = row.marked || change->mark;
    row.lease_ms = change->lease_ms;
    vow__etcd_buf_init(&value, vow__etcd_alloc(s->etcd));
    vow__etcd_row_write(&row, label_of_key(&w->pool, w->label),
                        vow__etcd_inst(s->etcd), &value);
    vow__txn_if_mod(t, &key, mod_of(s, row.version));
    vow__txn_put(t, VOW__THEN, &key, &value, (int64_t)change->lease.id);
    vow__buf_fini(&value);
}

static void permit_put_entry(const struct vow__etcd_service *s,
                             struct vow__txn *t,
                             const struct cas_pool_name *name,
                             const struct cas_entry *e, const char *label,
                             int64_t lease)
{
    const struct vow__key key = vow__etcd_entry_key(name, e->id);
    struct vow__buf value;
    vow__etcd_buf_init(&value, vow__etcd_alloc(s->etcd));
    vow__etcd_entry_write(s, e, label_of_key(name, label), &value);
    vow__txn_if_mod(t, &key, mod_of(s, e->version));
    vow__txn_put(t, VOW__THEN, &key, &value, lease);
    vow__buf_fini(&value);
}

static void permit_drop_entry(const struct vow__etcd_service *s,
                              struct vow__txn *t,
                              const struct cas_pool_name *name,
                              const struct cas_entry *e)
{
    const struct vow__key key = vow__etcd_entry_key(name, e->id);
    struct vow__txn inner;
    vow__etcd_service_txn_init(s, &inner);
    vow__txn_if_mod(&inner, &key, mod_of(s, e->version));
    vow__txn_delete(&inner, VOW__THEN, &key, 0);
    vow__txn_nest(t, VOW__THEN, &inner);
    vow__txn_fini(&inner);
}

/* Gives the lease that all entries of a write hang on. */
static int entries_lease(struct vow__etcd_service *s,
                         const struct cas_entry *entries, size_t n,
                         uint64_t due_ns, int64_t *ret_lease)
{
    uint64_t ms = 0;
    for (size_t i = 0; i < n; i++)
        ms = entries[i].keep_ms > ms ? entries[i].keep_ms : ms;
    *ret_lease = 0;
    return n == 0 ? 0
                  : vow__etcd_keep_use(s, ms, VOW__ETCD_KEEP_ENTRIES, due_ns,
                                       ret_lease);
}

/* Reads the row behind a row that is marked under a rate: the next in the
 * queue. */
static void next_ask(const struct cas_pool_write *w, struct vow__txn *t)
{
    const struct vow__key rows = vow__etcd_rows_key(&w->pool);
    const struct vow__some some = {
        .by_creation = true, .since = w->rows[0].row->order + 1, .limit = 1};
    vow__txn_some(t, VOW__THEN, &rows, &some);
}

static void next_tell(struct vow__etcd_service *s,
                      const struct cas_pool_write *w, const json_t *root)
{
    const json_t *rows =
        vow__json_response(root, w->n_rows + w->n_entries + w->n_spent);
    struct vow__etcd_pools ps;
    struct vow__etcd_turns turns;
    vow__etcd_pools_init(s, &ps);
    vow__etcd_turns_init(s, &turns);
    if (vow__etcd_pool_take(&ps, NULL, rows, &w->pool) == 0 &&
        ps.pools[0].n > 0 && !ps.pools[0].order[0].marked)
        vow__etcd_turns_add(&turns, &ps, &ps.pools[0], 0, w->due_ns);
    vow__etcd_turns_tell(&turns, w->due_ns);
    vow__etcd_pools_fini(&ps);
}

int vow__etcd_permit_write(struct cas_service *service,
                           const struct cas_pool_write *w,
                           uint64_t *ret_version)
{
    struct vow__etcd_service *s = vow__etcd_service_of(service);
    const struct vow__key limits = vow__etcd_limits_key(&w->pool.limits_of);
    bool charges = w->n_rows > 0 && w->limits_version != 0;
    struct vow__txn t;
    json_t *root = NULL;
    int64_t lease;
    int rc = entries_lease(s, w->entries, w->n_entries, w->due_ns, &lease);
    if (rc < 0)
        return rc;
    vow__etcd_service_txn_init(s, &t);
    if (w->limits_version != 0)
        vow__txn_if_mod(&t, &limits, mod_of(s, w->limits_version));
    for (size_t i = 0; i < w->n_rows; i++)
        permit_put_row(s, &t, w, &w->rows[i]);
    for (size_t i = 0; i < w->n_entries; i++)
        permit_put_entry(s, &t, &w->pool, &w->entries[i], w->label, lease);
    for (size_t i = 0; i < w->n_spent; i++)
        permit_drop_entry(s, &t, &w->pool, &w->spent[i]);
    if (charges)
        next_ask(w, &t);
    rc = vow__etcd_service_txn(s, &t, w->due_ns, &root);
    if (rc == 0 && !vow__json_succeeded(root))
        rc = VOW_EAGAIN;
    if (rc == 0)
        *ret_version = s->answered;
    if (rc == 0 && charges)
        next_tell(s, w, root);
    if (rc == VOW_ENOENT && vow__etcd_keep_gone(s, lease, w->due_ns) == 0)
        rc = VOW_EAGAIN; /* the lease of the entries, not of the permit */
    json_decref(root);
    return rc;
}

/* ---- leaving ------------------------------------------------------------- */

/* Reads the limits and the first rows. */
static int first_read(struct vow__etcd_service *s, const struct cas_leave *l,
                      uint32_t concurrent, struct vow__etcd_pools *ps)
{
    const struct vow__key limits = vow__etcd_limits_key(&l->pool.limits_of);
    struct vow__txn t;
    json_t *root = NULL;
    vow__etcd_service_txn_init(s, &t);
    vow__txn_range(&t, VOW__THEN, &limits, 0);
    first_ask(&t, VOW__THEN, &l->pool, concurrent);
    int rc = vow__etcd_service_txn(s, &t, l->due_ns, &root);
    vow__etcd_pools_fini(ps);
    if (rc == 0)
        rc = vow__etcd_pool_take(ps, vow__json_response(root, 0),
                                 vow__json_response(root, 1), &l->pool);
    json_decref(root);
    return rc;
}

/* Tells whose turn it is. The limits may be higher than the caller knew. */
static void leave_tell(struct vow__etcd_service *s, const struct cas_leave *l,
                       const json_t *root, const struct cas_pool_found *found,
                       const struct cas_row *gone)
{
    uint32_t now = found->limits.concurrent;
    struct vow__etcd_pools ps;
    int rc = 0;
    vow__etcd_pools_init(s, &ps);
    if (l->look)
        rc = vow__etcd_pool_take(&ps, vow__json_response(root, 1),
                                 vow__json_response(root, 2), &l->pool);
    else if (now > l->concurrent)
        rc = first_read(s, l, now, &ps);
    else if (l->concurrent > 0)
        rc = vow__etcd_pool_take(&ps, vow__json_response(root, 1),
                                 vow__json_response(root, 3), &l->pool);
    if (rc == 0 && ps.n > 0)
        vow__etcd_turns_freed(&ps, gone, l->due_ns);
    vow__etcd_pools_fini(&ps);
}

static void leave_make(struct vow__etcd_service *s, const struct cas_leave *l,
                       int64_t lease, struct vow__txn *ret_txn)
{
    const struct vow__key key = vow__etcd_row_key(&l->pool, &l->token);
    const struct vow__key limits = vow__etcd_limits_key(&l->pool.limits_of);
    const struct vow__key offset = vow__key("e", NULL, "");
    struct vow__txn inner;
    vow__etcd_service_txn_init(s, ret_txn);
    if (l->look) {
        vow__etcd_pool_ask(ret_txn, VOW__THEN, &l->pool);
    } else {
        vow__txn_range(ret_txn, VOW__THEN, &offset, 0);
        vow__txn_range(ret_txn, VOW__THEN, &limits, 0);
        vow__txn_range(ret_txn, VOW__THEN, &key, 0);
        if (l->concurrent > 0)
            first_ask(ret_txn, VOW__THEN, &l->pool, l->concurrent);
    }
    if (l->entry != NULL)
        permit_put_entry(s, ret_txn, &l->pool, l->entry, l->label, lease);
    vow__etcd_service_txn_init(s, &inner);
    if (l->order != 0)
        vow__txn_if_created(&inner, &key, l->order);
    vow__txn_delete(&inner, VOW__THEN, &key, 0);
    vow__txn_nest(ret_txn, VOW__THEN, &inner);
    vow__txn_fini(&inner);
    vow__etcd_pool_ask(ret_txn, VOW__ELSE, &l->pool);
}

int vow__etcd_permit_leave(struct cas_service *service,
                           const struct cas_leave *l,
                           struct cas_pool_found *ret_pool,
                           struct cas_row *ret_row)
{
    struct vow__etcd_service *s = vow__etcd_service_of(service);
    struct vow__txn t;
    json_t *root = NULL;
    int64_t lease;
    int rc =
        entries_lease(s, l->entry, l->entry == NULL ? 0 : 1, l->due_ns, &lease);
    if (rc < 0)
        return rc;
    leave_make(s, l, lease, &t);
    rc = vow__etcd_service_txn(s, &t, l->due_ns, &root);
    if (rc == 0) {
        bool done = vow__json_succeeded(root);
        rc = vow__etcd_pool_answer(s, root, 0, &l->pool, &l->token, 1, ret_pool,
                                   ret_row);
        if (rc == 0 && done)
            leave_tell(s, l, root, ret_pool, ret_row);
        else if (rc == 0)
            rc = VOW_EAGAIN;
        else if (done)
            rc = VOW_EUNSURE;
    }
    if (rc == VOW_ENOENT)
        rc = vow__etcd_keep_gone(s, lease, l->due_ns) == 0 ? VOW_EUNSURE
                                                           : VOW_ESTORE;
    json_decref(root);
    return rc;
}
