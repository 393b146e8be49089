/* SPDX-License-Identifier: MIT */
/* cas_memory_permits.c - requests that change pools of the simulated service:
 * lost, done without an answer, and done late, as requests on names are. */
#include "cas_memory_inside.h"

#include <stdlib.h>
#include <string.h>

/* A request on its way, with copies of all that the request borrows. */
struct sim_late_op {
    vow_link link;
    struct cas_world *world;
    struct cas_client *client; /* NULL: gone */
    vow_call due;
    struct sim_op op;
    struct cas_pool_write write;
    struct cas_row_change *rows;
    struct cas_row *seen; /* that the changes point to */
    struct cas_entry *entries, *spent;
    char label[VOW_LABEL_MAX + 1], limits_label[VOW_LABEL_MAX + 1];
};

/* ---- the network --------------------------------------------------------- */

static void late_op_free(struct sim_late_op *l)
{
    (void)vow_call_stop(&l->due);
    vow__list_remove(&l->world->late_ops, &l->link);
    free(l->rows);
    free(l->seen);
    free(l->entries);
    free(l->spent);
    free(l);
}

static void on_late_op(void *user)
{
    struct sim_late_op *l = user;
    struct cas_world *w = l->world;
    const struct vow_alloc *alloc = vow_loop_alloc(w->loop);
    struct cas_pool_found found = {.alloc = alloc};
    struct cas_row row;
    uint64_t version = 0;
    if (l->client != NULL &&
        cas_sim_pools_do(l->client, &l->op, &found, &row, &version) == 0)
        w->faults.late_done++;
    vow__cas_pool_found_fini(&found);
    late_op_free(l);
}

static void *copy_array(const void *from, size_t size)
{
    void *to = cas_sim_must_alloc(size);
    if (size > 0)
        memcpy(to, from, size);
    return to;
}

static void op_keep_late(struct cas_client *c, const struct sim_op *op)
{
    struct cas_world *w = c->world;
    struct sim_late_op *l = cas_sim_must_alloc(sizeof(*l));
    l->world = w;
    l->client = c;
    l->op = *op;
    if (op->kind == SIM_WRITE) {
        l->write = *op->write;
        l->rows =
            copy_array(l->write.rows, l->write.n_rows * sizeof(l->rows[0]));
        l->entries = copy_array(l->write.entries,
                                l->write.n_entries * sizeof(l->entries[0]));
        l->seen = cas_sim_must_alloc(l->write.n_rows * sizeof(l->seen[0]));
        for (size_t i = 0; i < l->write.n_rows; i++) {
            l->seen[i] = *l->rows[i].row;
            l->rows[i].row = &l->seen[i];
        }
        l->spent =
            copy_array(l->write.spent, l->write.n_spent * sizeof(l->spent[0]));
        l->write.spent = l->spent;
        l->write.rows = l->rows;
        l->write.entries = l->entries;
        l->op.write = &l->write;
    }
    if (op->label != NULL)
        (void)strncpy(l->label, op->label, VOW_LABEL_MAX);
    if (op->kind == SIM_JOIN) {
        (void)strncpy(l->label, op->request.label, VOW_LABEL_MAX);
        (void)strncpy(l->limits_label, op->request.limits_label, VOW_LABEL_MAX);
    }
    l->op.label = l->op.request.label = l->label;
    l->op.request.limits_label = l->limits_label;
    l->op.request.runner = "";
    vow__list_push(&w->late_ops, &l->link);
    vow_call_at(&l->due, w->loop,
                vow_loop_due_ns(w->loop, 1 + cas_sim_roll(w, w->plan.late_ms)),
                on_late_op, l);
}

static int client_op(struct cas_client *c, const struct sim_op *op,
                     uint64_t due_ns, struct cas_pool_found *ret,
                     struct cas_row *row, uint64_t *ret_version)
{
    struct cas_world *w = c->world;
    int rc = cas_sim_travel_there(c, due_ns);
    if (rc < 0)
        return rc;
    if (cas_sim_chance(w, w->plan.lost_requests)) {
        w->faults.requests++;
        return cas_sim_give_up(c);
    }
    if (cas_sim_chance(w, w->plan.late_writes)) {
        w->faults.late++;
        op_keep_late(c, op);
        return cas_sim_give_up(c);
    }
    rc = cas_sim_pools_do(c, op, ret, row, ret_version);
    if (cas_sim_chance(w, w->plan.lost_answers) ||
        cas_sim_travel(c, due_ns) < 0) {
        w->faults.answers++;
        return cas_sim_give_up(c);
    }
    return rc;
}

/* ---- the functions of the service ---------------------------------------- */

static int client_join(struct cas_service *s, const vow_permit_request *q,
                       const struct cas_lease *lease, uint64_t due_ns,
                       struct cas_pool_found *ret_pool, struct cas_row *ret_row)
{
    const struct sim_op op = {
        .kind = SIM_JOIN,
        .name = {.pool = q->pool, .limits_of = q->limits_of},
        .request = *q,
        .lease = *lease};
    return client_op(cas_sim_client_of(s), &op, due_ns, ret_pool, ret_row,
                     NULL);
}

static int client_permits(struct cas_service *s, const struct cas_pool_write *w,
                          uint64_t *ret_version)
{
    const struct sim_op op = {.kind = SIM_WRITE, .name = w->pool, .write = w};
    return client_op(cas_sim_client_of(s), &op, w->due_ns, NULL, NULL,
                     ret_version);
}

/* Without a look, what the service need not answer is wrong. */
static int client_leave(struct cas_service *s, const struct cas_leave *l,
                        struct cas_pool_found *ret_pool,
                        struct cas_row *ret_row)
{
    struct sim_op op = {.kind = SIM_LEAVE,
                        .name = l->pool,
                        .token = l->token,
                        .order = l->order,
                        .has_entry = l->entry != NULL};
    if (l->entry != NULL)
        op.entry = *l->entry;
    int rc = client_op(cas_sim_client_of(s), &op, l->due_ns, ret_pool, ret_row,
                       NULL);
    if (rc == 0 && !l->look) {
        memset(&ret_pool->sums, 0xa5, sizeof(ret_pool->sums));
        ret_row->before = ret_row->ahead = UINT64_MAX;
    }
    return rc;
}

/* NOLINTNEXTLINE(readability-function-size): the type is of the table */
static int client_limit(struct cas_service *s, const vow_name *pool,
                        const vow_pool_limits *limits, const char *label,
                        uint64_t version, uint64_t due_ns,
                        struct cas_pool_found *ret_pool)
{
    struct cas_client *c = cas_sim_client_of(s);
    struct sim_op op = {.kind = SIM_LIMIT,
                        .name = {.pool = *pool, .limits_of = *pool},
                        .sets = limits != NULL,
                        .version = version,
                        .label = label};
    if (limits != NULL) {
        op.limits = *limits;
        return client_op(c, &op, due_ns, ret_pool, NULL, NULL);
    }
    int rc = cas_sim_travel_there(c, due_ns);
    if (rc == 0)
        rc = cas_sim_pools_do(c, &op, ret_pool, NULL, NULL);
    int back = rc < 0 ? rc : cas_sim_travel(c, due_ns);
    return back < 0 ? (back == VOW_EUNSURE ? VOW_ENOMEM : back) : rc;
}

void cas_sim_late_free(struct cas_world *w)
{
    while (w->late_ops != NULL)
        late_op_free(VOW__OUTER(w->late_ops, struct sim_late_op, link));
}

void cas_sim_late_orphan(struct cas_client *c)
{
    for (vow_link *l = c->world->late_ops; l != NULL; l = l->next) {
        struct sim_late_op *late = VOW__OUTER(l, struct sim_late_op, link);
        if (late->client == c)
            late->client = NULL;
    }
}

void cas_sim_permits_ops(struct cas_service_ops *ops)
{
    ops->permit_join = client_join;
    ops->permit_write = client_permits;
    ops->permit_leave = client_leave;
    ops->pool_limit = client_limit;
}
