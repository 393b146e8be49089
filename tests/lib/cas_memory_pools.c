/* SPDX-License-Identifier: MIT */
/* cas_memory_pools.c - pools of the simulated service: rows in the order of
 * creation, entries of rates, limits. The network before them is in
 * cas_memory_permits.c. */
#include "cas_memory_inside.h"

#include <stdlib.h>
#include <string.h>

struct sim_row {
    struct rules_row row;
    uint64_t version, lease;
    int client; /* that joined */
    bool fits;  /* told, or answered */
    bool head;
};

struct sim_entry {
    struct cas_entry e;
    uint64_t written_us;
};

struct sim_limits {
    vow_name name;
    uint64_t version; /* 0: none */
    vow_pool_limits limits;
    char label[VOW_LABEL_MAX + 1];
};

struct sim_pool {
    struct cas_pool_name name;
    uint64_t revision;
    char label[VOW_LABEL_MAX + 1]; /* of a key */
    struct sim_row *rows;
    size_t n;
    struct sim_entry *entries;
    size_t n_entries;
};

struct sim_pools {
    struct cas_world *world;
    struct sim_limits *limits;
    size_t n_limits;
    struct sim_pool **pools;
    size_t n;
};

/* ---- finding ------------------------------------------------------------- */

static struct sim_limits *limits_find(struct sim_pools *ps,
                                      const vow_name *name)
{
    for (size_t i = 0; i < ps->n_limits; i++)
        if (vow_name_equal(&ps->limits[i].name, name))
            return &ps->limits[i];
    ps->limits =
        realloc(ps->limits, (ps->n_limits + 1) * sizeof(ps->limits[0]));
    CHECK(ps->limits != NULL);
    ps->limits[ps->n_limits] = (struct sim_limits){.name = *name};
    return &ps->limits[ps->n_limits++];
}

static struct sim_pool *sim_pool_find(struct sim_pools *ps,
                                      const struct cas_pool_name *name)
{
    for (size_t i = 0; i < ps->n; i++)
        if (memcmp(&ps->pools[i]->name, name, sizeof(*name)) == 0)
            return ps->pools[i];
    ps->pools = realloc(ps->pools, (ps->n + 1) * sizeof(ps->pools[0]));
    CHECK(ps->pools != NULL);
    struct sim_pool *p = cas_sim_must_alloc(sizeof(*p));
    p->name = *name;
    ps->pools[ps->n++] = p;
    return p;
}

static struct sim_row *row_find(struct sim_pool *p, const vow_token *token)
{
    for (size_t i = 0; i < p->n; i++)
        if (memcmp(&p->rows[i].row.token, token, sizeof(*token)) == 0)
            return &p->rows[i];
    return NULL;
}

static struct sim_entry *sim_entry_find(struct sim_pool *p, uint64_t id)
{
    for (size_t i = 0; i < p->n_entries; i++)
        if (p->entries[i].e.id == id)
            return &p->entries[i];
    return NULL;
}

/* Copies the rows for the rules; to be freed. */
static struct rules_row *rows_copy(const struct sim_pool *p)
{
    struct rules_row *to = cas_sim_must_alloc(p->n * sizeof(*to));
    for (size_t i = 0; i < p->n; i++)
        to[i] = p->rows[i].row;
    return to;
}

/* ---- events -------------------------------------------------------------- */

/* A change of a pool, or without a pool of limits. */
static void change_count(struct sim_pools *ps, struct sim_pool *p)
{
    ps->world->counter++;
    if (p != NULL)
        p->revision = ps->world->counter;
}

static void look_send(struct sim_pools *ps, const struct sim_pool *p,
                      const vow_token *token, int client)
{
    struct cas_world *w = ps->world;
    struct cas_client *c = w->clients[client];
    if (c == NULL || cas_sim_event_lost(c))
        return;
    int times = 1 + cas_sim_chance(w, w->plan.doubled_events);
    w->faults.doubled += times > 1;
    for (int i = 0; i < times; i++) {
        struct sim_event *e = cas_sim_event_new(c);
        e->kind = SIM_LOOK;
        e->pool = p->name;
        e->token = *token;
    }
}

/* Finds requests that begin to fit, and under a rate the new head, and tells
 * them, but for the caller. */
static void looks_find(struct sim_pools *ps, struct sim_pool *p,
                       const vow_token *caller, bool silent)
{
    const vow_pool_limits l = limits_find(ps, &p->name.limits_of)->limits;
    uint64_t sum = 0;
    bool head = true;
    for (size_t i = 0; i < p->n; i++)
        sum += p->rows[i].row.marked ? p->rows[i].row.weight : 0;
    for (size_t i = 0; i < p->n; i++) {
        struct sim_row *r = &p->rows[i];
        if (r->row.marked)
            continue;
        sum += r->row.weight;
        bool fits = l.concurrent == 0 || sum <= l.concurrent;
        bool first = head && l.rate > 0;
        bool tell = (fits && !r->fits) || (first && !r->head);
        bool mine = caller != NULL &&
                    memcmp(caller, &r->row.token, sizeof(*caller)) == 0;
        r->fits = fits;
        r->head = first;
        head = false;
        if (tell && !mine && !silent)
            look_send(ps, p, &r->row.token, r->client);
    }
}

static void looks_tell(struct sim_pools *ps, struct sim_pool *p,
                       const vow_token *caller)
{
    looks_find(ps, p, caller, false);
}

/* ---- rows and entries ---------------------------------------------------- */

static void entry_set(struct sim_pools *ps, struct sim_pool *p,
                      struct cas_entry e, uint64_t version)
{
    struct sim_entry *at = sim_entry_find(p, e.id);
    if (at == NULL) {
        p->entries =
            realloc(p->entries, (p->n_entries + 1) * sizeof(p->entries[0]));
        CHECK(p->entries != NULL);
        at = &p->entries[p->n_entries++];
    }
    e.version = version;
    e.age_us = RULES_NEVER;
    *at = (struct sim_entry){.e = e, .written_us = cas_sim_world_us(ps->world)};
    change_count(ps, p);
}

static void row_remove(struct sim_pools *ps, struct sim_pool *p, size_t i)
{
    p->n--;
    memmove(&p->rows[i], &p->rows[i + 1], (p->n - i) * sizeof(p->rows[0]));
    change_count(ps, p);
}

static void row_mark(struct sim_pools *ps, struct sim_pool *p,
                     struct sim_row *r, uint64_t version)
{
    r->version = version;
    if (r->row.marked)
        return;
    r->row.marked = true;
    change_count(ps, p);
}

void cas_sim_pools_lease_end(struct sim_pools *ps, uint64_t lease)
{
    for (size_t k = 0; k < ps->n; k++) {
        struct sim_pool *p = ps->pools[k];
        bool any = false;
        for (size_t i = p->n; i-- > 0;) {
            if (p->rows[i].lease != lease)
                continue;
            struct sim_entry *e = sim_entry_find(p, p->rows[i].row.order);
            if (e != NULL && e->e.open > 0 && ps->world->plan.clock) {
                e->e.open = 0;
                entry_set(ps, p, e->e, ++ps->world->counter);
            }
            row_remove(ps, p, i);
            any = true;
        }
        if (any)
            looks_find(ps, p, NULL, true);
    }
}

static void entry_remove(struct sim_pools *ps, struct sim_pool *p, size_t i)
{
    p->entries[i] = p->entries[--p->n_entries];
    change_count(ps, p);
}

/* Ends leases that are over, and removes entries. */
static void pool_expire(struct sim_pools *ps, struct sim_pool *p)
{
    uint64_t now_us = cas_sim_world_us(ps->world);
    for (size_t i = 0; i < p->n;) {
        struct sim_lease *l = cas_sim_lease_find(ps->world, p->rows[i].lease);
        CHECK(l != NULL);
        if (l->end_us > now_us) {
            i++;
            continue;
        }
        cas_sim_lease_end(l);
        i = 0;
    }
    for (size_t i = 0; i < p->n_entries;) {
        const struct sim_entry *e = &p->entries[i];
        if (now_us < e->written_us + e->e.keep_ms * 1000)
            i++;
        else
            entry_remove(ps, p, i);
    }
}

/* ---- seeing -------------------------------------------------------------- */

static int pool_seen(struct cas_client *c, struct sim_pool *p,
                     struct cas_pool_found *ret)
{
    struct sim_pools *ps = c->world->pools;
    const struct sim_limits *l = limits_find(ps, &p->name.limits_of);
    struct rules_row *rows = rows_copy(p);
    bool own = vow_name_equal(&p->name.pool, &p->name.limits_of);
    int rc = 0;
    ret->revision = p->revision > l->version ? p->revision : l->version;
    ret->now_us = cas_sim_client_us(c);
    ret->there = l->version != 0;
    ret->limits_version = l->version;
    ret->limits = l->limits;
    ret->name = p->name;
    ret->sums = vow__rules_order_sum(&l->limits, rows, p->n);
    free(rows);
    memcpy(ret->label, own ? l->label : p->label, sizeof(ret->label));
    for (size_t i = 0; rc == 0 && i < p->n_entries; i++) {
        struct cas_entry e = p->entries[i].e;
        if (c->world->plan.clock)
            e.age_us = cas_sim_world_us(c->world) - p->entries[i].written_us;
        rc = vow__cas_entries_add(ret, &e);
    }
    return rc;
}

static void row_seen(struct cas_client *c, struct sim_pool *p,
                     const vow_token *token, struct cas_row *ret)
{
    struct sim_pools *ps = c->world->pools;
    const struct sim_limits *l = limits_find(ps, &p->name.limits_of);
    const struct sim_row *r = row_find(p, token);
    *ret = (struct cas_row){.token = *token};
    if (r == NULL)
        return;
    *ret = (struct cas_row){.token = *token,
                            .there = true,
                            .marked = r->row.marked,
                            .weight = r->row.weight,
                            .order = r->row.order,
                            .version = r->version,
                            .fence = r->row.order,
                            .lease = r->lease,
                            .lease_ms = r->row.lease_ms};
    struct rules_row *rows = rows_copy(p);
    CHECK(vow__rules_order_find(&l->limits, rows, p->n, token, &ret->before,
                                &ret->ahead) != NULL);
    free(rows);
}

/* ---- the server ---------------------------------------------------------- */

static bool lease_lives(struct cas_world *w, uint64_t id)
{
    const struct sim_lease *l = cas_sim_lease_find(w, id);
    return l != NULL && l->end_us > cas_sim_world_us(w);
}

static int server_join(struct cas_client *c, const struct sim_op *op,
                       struct cas_pool_found *ret, struct cas_row *row)
{
    struct cas_world *w = c->world;
    const vow_permit_request *q = &op->request;
    struct sim_pool *p = sim_pool_find(w->pools, &op->name);
    struct sim_limits *l = limits_find(w->pools, &q->limits_of);
    pool_expire(w->pools, p);
    bool makes = row_find(p, &q->token) == NULL;
    if (makes && !lease_lives(w, op->lease.id))
        return VOW_ENOENT;
    if (l->version == 0) {
        l->version = ++w->counter;
        l->limits = q->limits;
        (void)strncpy(l->label, q->limits_label, VOW_LABEL_MAX);
    }
    if (makes) {
        p->rows = realloc(p->rows, (p->n + 1) * sizeof(p->rows[0]));
        CHECK(p->rows != NULL);
        struct sim_row *r = &p->rows[p->n++];
        w->writes++;
        p->revision = ++w->counter;
        *r = (struct sim_row){.row = {.token = q->token,
                                      .order = p->revision,
                                      .lease_ms = q->lease_ms,
                                      .weight = q->weight},
                              .version = p->revision,
                              .lease = op->lease.id,
                              .client = c->index};
        (void)strncpy(p->label, q->label, VOW_LABEL_MAX);
    }
    looks_tell(w->pools, p, &q->token); /* of a lease that was over */
    row_seen(c, p, &q->token, row);
    row->made = makes;
    return pool_seen(c, p, ret) < 0 ? VOW_EUNSURE : 0;
}

static bool write_fits(struct cas_world *w, struct sim_pool *p,
                       const struct cas_pool_write *q)
{
    const struct sim_limits *l = limits_find(w->pools, &p->name.limits_of);
    if (q->limits_version != 0 && q->limits_version != l->version)
        return false;
    for (size_t i = 0; i < q->n_rows; i++) {
        const struct cas_row *was = q->rows[i].row;
        const struct sim_row *r = row_find(p, &was->token);
        if (r == NULL || r->version != was->version)
            return false;
    }
    for (size_t i = 0; i < q->n_entries; i++) {
        const struct sim_entry *e = sim_entry_find(p, q->entries[i].id);
        if ((e == NULL ? 0 : e->e.version) != q->entries[i].version)
            return false;
    }
    return true;
}

static int server_permits(struct cas_client *c, const struct sim_op *op,
                          uint64_t *ret_version)
{
    struct cas_world *w = c->world;
    const struct cas_pool_write *q = op->write;
    struct sim_pool *p = sim_pool_find(w->pools, &op->name);
    pool_expire(w->pools, p);
    if (!write_fits(w, p, q))
        return VOW_EAGAIN;
    for (size_t i = 0; i < q->n_rows; i++)
        if (!lease_lives(w, q->rows[i].lease.id))
            return VOW_ENOENT;
    uint64_t version = ++w->counter;
    w->writes++;
    for (size_t i = 0; i < q->n_rows; i++) {
        struct sim_row *r = row_find(p, &q->rows[i].row->token);
        r->lease = q->rows[i].lease.id;
        r->row.lease_ms = q->rows[i].lease_ms;
        r->version = version;
        if (q->rows[i].mark)
            row_mark(w->pools, p, r, version);
    }
    for (size_t i = 0; i < q->n_entries; i++)
        entry_set(w->pools, p, q->entries[i], version);
    for (size_t i = 0; i < q->n_spent; i++) {
        struct sim_entry *e = sim_entry_find(p, q->spent[i].id);
        if (e != NULL && e->e.version == q->spent[i].version)
            entry_remove(w->pools, p, (size_t)(e - p->entries));
    }
    looks_tell(w->pools, p, NULL);
    *ret_version = version;
    return 0;
}

static int server_leave(struct cas_client *c, const struct sim_op *op,
                        struct cas_pool_found *ret, struct cas_row *row)
{
    struct cas_world *w = c->world;
    struct sim_pool *p = sim_pool_find(w->pools, &op->name);
    pool_expire(w->pools, p);
    int rc = pool_seen(c, p, ret);
    row_seen(c, p, &op->token, row);
    if (rc < 0)
        return rc;
    const struct sim_entry *e =
        op->has_entry ? sim_entry_find(p, op->entry.id) : NULL;
    if (op->has_entry && (e == NULL || e->e.version != op->entry.version))
        return VOW_EAGAIN;
    w->writes++;
    if (op->has_entry)
        entry_set(w->pools, p, op->entry, ++w->counter);
    const struct sim_row *r = row_find(p, &op->token);
    if (r != NULL && (op->order == 0 || r->row.order == op->order))
        row_remove(w->pools, p, (size_t)(r - p->rows));
    looks_tell(w->pools, p, NULL);
    return 0;
}

static void limits_plan(struct cas_world *w, struct sim_pool *p,
                        const vow_pool_limits *from, const vow_pool_limits *to)
{
    struct rules_row *rows = rows_copy(p);
    size_t n = p->n;
    vow__rules_order_limit(from, to, rows, n);
    for (size_t i = 0; i < n; i++) {
        struct sim_row *r = row_find(p, &rows[i].token);
        if (rows[i].plan == RULES_PLAN_MARK && !w->misses_marks) {
            row_mark(w->pools, p, r, ++w->counter);
        } else if (rows[i].plan == RULES_PLAN_DROP) {
            int client = r->client;
            row_remove(w->pools, p, (size_t)(r - p->rows));
            look_send(w->pools, p, &rows[i].token, client);
        }
    }
    free(rows);
}

static int server_limit(struct cas_client *c, const struct sim_op *op,
                        struct cas_pool_found *ret)
{
    struct cas_world *w = c->world;
    struct sim_pools *ps = w->pools;
    struct sim_pool *p = sim_pool_find(ps, &op->name);
    struct sim_limits *l = limits_find(ps, &op->name.pool);
    pool_expire(ps, p);
    if (op->sets && l->version != op->version)
        return VOW_EAGAIN;
    for (size_t i = 0; op->sets && i < ps->n; i++) {
        if (!vow_name_equal(&ps->pools[i]->name.limits_of, &op->name.pool))
            continue;
        pool_expire(ps, ps->pools[i]);
        limits_plan(w, ps->pools[i], &l->limits, &op->limits);
    }
    if (op->sets) {
        w->writes++;
        l->limits = op->limits;
        if (op->label[0] != 0)
            (void)strncpy(l->label, op->label, VOW_LABEL_MAX);
        l->version = w->counter + 1;
        change_count(ps, NULL);
        for (size_t i = 0; i < ps->n; i++)
            if (vow_name_equal(&ps->pools[i]->name.limits_of, &l->name))
                looks_tell(ps, ps->pools[i], NULL);
    }
    return pool_seen(c, p, ret) < 0 ? VOW_EUNSURE : 0;
}

int cas_sim_pools_do(struct cas_client *c, const struct sim_op *op,
                     struct cas_pool_found *ret, struct cas_row *row,
                     uint64_t *ret_version)
{
    switch (op->kind) {
    case SIM_JOIN:
        return server_join(c, op, ret, row);
    case SIM_WRITE:
        return server_permits(c, op, ret_version);
    case SIM_LEAVE:
        return server_leave(c, op, ret, row);
    default:
        return server_limit(c, op, ret);
    }
}

void cas_world_miss_marks(struct cas_world *w, bool miss)
{
    w->misses_marks = miss;
}

size_t cas_world_entries(const struct cas_world *w)
{
    size_t n = 0;
    for (size_t i = 0; i < w->pools->n; i++)
        n += w->pools->pools[i]->n_entries;
    return n;
}

/* ---- all pools ----------------------------------------------------------- */

struct sim_pools *cas_sim_pools_new(struct cas_world *w)
{
    struct sim_pools *ps = cas_sim_must_alloc(sizeof(*ps));
    ps->world = w;
    return ps;
}

void cas_sim_pools_free(struct sim_pools *ps)
{
    cas_sim_late_free(ps->world);
    for (size_t i = 0; i < ps->n; i++) {
        free(ps->pools[i]->entries);
        free(ps->pools[i]->rows);
        free(ps->pools[i]);
    }
    free(ps->pools);
    free(ps->limits);
    free(ps);
}

/* ---- reading ------------------------------------------------------------- */

/* NOLINTNEXTLINE(readability-function-size): the type is of the table */
static int client_look(struct cas_service *s, const struct cas_pool_name *name,
                       const vow_token *tokens, size_t n, uint64_t due_ns,
                       struct cas_pool_found *ret_pool,
                       struct cas_row *ret_rows)
{
    struct cas_client *c = cas_sim_client_of(s);
    int rc = cas_sim_travel_there(c, due_ns);
    if (rc < 0)
        return rc;
    struct sim_pool *p = sim_pool_find(c->world->pools, name);
    pool_expire(c->world->pools, p);
    for (size_t i = 0; i < n; i++)
        row_seen(c, p, &tokens[i], &ret_rows[i]);
    rc = pool_seen(c, p, ret_pool);
    int back = cas_sim_travel(c, due_ns);
    return back < 0 ? back : rc;
}

static int client_pools(struct cas_service *s, uint64_t due_ns,
                        struct cas_pools_found *ret)
{
    struct cas_client *c = cas_sim_client_of(s);
    struct sim_pools *ps = c->world->pools;
    int rc = cas_sim_travel_there(c, due_ns);
    for (size_t i = 0; rc == 0 && i < ps->n; i++) {
        struct cas_pool_found f = {.alloc = ret->alloc};
        if (limits_find(ps, &ps->pools[i]->name.limits_of)->version == 0)
            continue;
        pool_expire(ps, ps->pools[i]);
        rc = pool_seen(c, ps->pools[i], &f);
        if (rc == 0)
            rc = vow__cas_pools_add(ret, &f);
        vow__cas_pool_found_fini(&f);
    }
    return rc < 0 ? rc : cas_sim_travel(c, due_ns);
}

void cas_sim_pools_ops(struct cas_service_ops *ops)
{
    ops->permit_look = client_look;
    ops->pool_list = client_pools;
    cas_sim_permits_ops(ops);
}
