/* SPDX-License-Identifier: MIT */
/* file_permit.c - permits as rows: the storage of the rules of pools.
 *
 * HOW   The rules (store/rules/pool.h) decide inside the transaction; here is
 *       what they find and write. A permit is found by its token, the head by
 *       the index `permit_queue`, which has only waiting requests. A place in
 *       the queue is a sum: of a part, PART numbers, the rows; of all parts in
 *       between, above `uncounted`, the counts in `part`. A short queue has no
 *       counts. `permit_inst` has the permits of an instance by `due`; so it
 *       tells both who is in a pool and whose lease may have ended. A renewal
 *       leaves `due` as it is, as `due` is only a bound: when it is reached, it
 *       is put right, once per lease.
 *       A step that only reads answers FILE_MUST_WRITE where it would write;
 *       but a waiting request whose lease has more than half left is not
 *       renewed for that.
 * INVARIANTS
 *   Q1  `part` has the number and weight of the waiting rows of each part
 *       above `uncounted`; a queue begins in that part, or in a later one
 *   Q2  next of a pool is not after any `due`, and `due` of a permit not after
 *       the end of its lease
 * LIMITS  O(log n) rows per step, and n / PART rows of `part` for a place in
 *         the queue; O(instances) when a lease may have ended.
 * THREADS  loop thread only.
 */
#include "store/file/file_pool.h"

#include <string.h>

enum { PART = 64 };

#define PERMIT_COLUMNS "tok,permit.inst,held,open,seq,fence,weight,ends,due"
static const char PERMIT_UPDATE[] =
    "UPDATE permit SET ends=?3,open=?4,inst=?5,held=?6,seq=?7,fence=?8,"
    "weight=?9,due=?10 WHERE pool=?1 AND tok=?2";
/* The instances of pool ?1, each found in the index behind the one before. */
#define CROWD                                                                  \
    "WITH RECURSIVE crowd(inst) AS(SELECT min(inst) FROM permit"               \
    " INDEXED BY permit_inst WHERE pool=?1 UNION ALL"                          \
    " SELECT(SELECT min(inst) FROM permit INDEXED BY permit_inst"              \
    " WHERE pool=?1 AND inst>crowd.inst)"                                      \
    " FROM crowd WHERE crowd.inst IS NOT NULL)"

static const vow_name *pool_id(const struct vow__file_pool_use *u)
{
    return &u->p->id;
}

static bool token_same(const vow_token *a, const vow_token *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* ---- reading ------------------------------------------------------------ */

/* Counts of the pool without the permit would be less than nothing. */
static bool permit_sound(const struct rules_pool *p,
                         const struct rules_permit *t)
{
    return t->weight > 0 && (!t->open || t->held) &&
           (t->held ? t->weight <= p->held && p->holders > 0
                    : p->waiting > 0) &&
           (!t->open || t->weight <= p->open);
}

/* Reads the only row of a statement: 0 or VOW_ENOENT. */
static int permit_read(struct vow__file_pool_use *u, sqlite3_stmt *q,
                       struct vow__file_permit *at)
{
    struct rules_permit *t = &at->rule;
    int rc;
    vow__file_bind(q, 1, pool_id(u)->hash, sizeof(pool_id(u)->hash));
    if (!vow__file_row(u->s, q, &rc))
        return rc == 0 ? VOW_ENOENT : rc;
    vow__file_bytes_read(q, 0, &t->token, sizeof(t->token));
    vow__file_bytes_read(q, 1, at->inst, FILE_ID);
    t->held = sqlite3_column_int(q, 2) != 0;
    t->open = sqlite3_column_int(q, 3) != 0;
    t->order = (uint64_t)sqlite3_column_int64(q, 4);
    t->fence = (uint64_t)sqlite3_column_int64(q, 5);
    t->weight = (uint32_t)sqlite3_column_int64(q, 6);
    t->end_us = (uint64_t)sqlite3_column_int64(q, 7);
    at->due_us = sqlite3_column_int64(q, 8);
    (void)sqlite3_reset(q);
    t->at = at;
    return permit_sound(&u->p->rule, t) ? 0 : SQLITE_CORRUPT;
}

int vow__file_permit_find(struct vow__file_pool_use *u, const vow_token *token)
{
    sqlite3_stmt *q =
        vow__file_sql(u->s, "SELECT " PERMIT_COLUMNS " FROM permit"
                            " WHERE pool=?1 AND tok=?2");
    vow__file_bind(q, 2, token, sizeof(*token));
    int rc = permit_read(u, q, &u->mine);
    u->known = rc == 0 || rc == VOW_ENOENT;
    if (rc == VOW_ENOENT)
        u->mine.rule = (struct rules_permit){.token = *token};
    return rc;
}

static int rows_find(void *user, const vow_token *token,
                     struct rules_permit *ret)
{
    struct vow__file_pool_use *u = user;
    int rc = 0;
    if (!u->known || !token_same(token, &u->mine.rule.token))
        rc = vow__file_permit_find(u, token);
    else if (u->mine.rule.end_us == 0)
        rc = VOW_ENOENT;
    *ret = u->mine.rule;
    return rc;
}

static bool inst_dead(const struct vow__file_pool_use *u,
                      const unsigned char *inst)
{
    for (size_t i = 0; u->crowd != NULL && i < u->crowd->n_dead; i++)
        if (memcmp(u->crowd->dead[i], inst, FILE_ID) == 0)
            return true;
    return false;
}

static int64_t queue_part(const struct rules_permit *t)
{
    return (int64_t)(t->order / PART);
}

/* The queue begins in a part: counts up to the part are not needed. */
static int parts_forget(struct vow__file_pool_use *u, int64_t part)
{
    sqlite3_stmt *q =
        vow__file_sql(u->s, "DELETE FROM part WHERE pool=?1 AND nth<=?2");
    u->p->uncounted = part;
    vow__file_bind(q, 1, pool_id(u)->hash, sizeof(pool_id(u)->hash));
    vow__file_bind_int(q, 2, part);
    return vow__file_do(u->s, q);
}

static int rows_head(void *user, struct rules_permit *ret)
{
    struct vow__file_pool_use *u = user;
    int rc = 0;
    if (!u->head_known)
        rc = permit_read(
            u,
            vow__file_sql(u->s,
                          "SELECT " PERMIT_COLUMNS " FROM permit"
                          " INDEXED BY permit_queue WHERE pool=?1 AND held=0"
                          " ORDER BY seq LIMIT 1"),
            &u->head);
    u->head_known = rc == 0;
    *ret = u->head.rule;
    if (rc == 0 && inst_dead(u, u->head.inst))
        ret->end_us = 0;
    if (rc == 0 && queue_part(ret) > u->p->uncounted &&
        u->s->phase == FILE_WRITES)
        rc = parts_forget(u, queue_part(ret));
    return rc == VOW_ENOENT ? SQLITE_CORRUPT : rc;
}

/* Adds the sums of a statement with the bounds ?2 and ?3. */
static int sum_read(struct vow__file_pool_use *u, sqlite3_stmt *q, int64_t from,
                    int64_t to, uint64_t *n, uint64_t *weight)
{
    int rc;
    vow__file_bind(q, 1, pool_id(u)->hash, sizeof(pool_id(u)->hash));
    vow__file_bind_int(q, 2, from);
    vow__file_bind_int(q, 3, to);
    if (!vow__file_row(u->s, q, &rc))
        return rc;
    *n += (uint64_t)sqlite3_column_int64(q, 0);
    *weight += (uint64_t)sqlite3_column_int64(q, 1);
    (void)sqlite3_reset(q);
    return 0;
}

static int rows_sum(struct vow__file_pool_use *u, int64_t from, int64_t to,
                    uint64_t *n, uint64_t *weight)
{
    sqlite3_stmt *q = vow__file_sql(
        u->s, "SELECT count(*),sum(weight) FROM permit INDEXED BY permit_queue"
              " WHERE pool=?1 AND held=0 AND seq>=?2 AND seq<?3");
    return sum_read(u, q, from, to, n, weight);
}

static int rows_ahead(void *user, const struct rules_permit *permit,
                      uint64_t *ret_n, uint64_t *ret_weight)
{
    struct vow__file_pool_use *u = user;
    const int64_t part = queue_part(permit);
    const int64_t order = (int64_t)permit->order;
    int rc = 0;
    *ret_n = *ret_weight = 0;
    if (u->p->rule.waiting == 1)
        return 0;
    if (part <= u->p->uncounted)
        return rows_sum(u, 0, order, ret_n, ret_weight);
    rc = rows_sum(u, 0, (u->p->uncounted + 1) * PART, ret_n, ret_weight);
    if (rc == 0)
        rc = rows_sum(u, part * PART, order, ret_n, ret_weight);
    sqlite3_stmt *q =
        vow__file_sql(u->s, "SELECT sum(waiting),sum(weight) FROM part"
                            " WHERE pool=?1 AND nth>?2 AND nth<?3");
    return rc == 0 ? sum_read(u, q, u->p->uncounted, part, ret_n, ret_weight)
                   : rc;
}

/* ---- writing ------------------------------------------------------------ */

/* Counts a request that begins or ends to wait: keeps Q1. */
static int part_count(struct vow__file_pool_use *u,
                      const struct rules_permit *t, int change)
{
    int64_t part = queue_part(t);
    u->head_known = u->head_known && change > 0;
    if (u->p->rule.waiting == 1) { /* the queue begins, or ends */
        int64_t newest = (int64_t)u->p->rule.order / PART;
        newest = newest > part ? newest : part;
        return newest > u->p->uncounted ? parts_forget(u, newest) : 0;
    }
    if (part <= u->p->uncounted)
        return 0;
    sqlite3_stmt *q = vow__file_sql(
        u->s, "INSERT INTO part VALUES(?1,?2,?3,?4) ON CONFLICT(pool,nth)"
              " DO UPDATE SET waiting=waiting+?3,weight=weight+?4");
    vow__file_bind(q, 1, pool_id(u)->hash, sizeof(pool_id(u)->hash));
    vow__file_bind_int(q, 2, part);
    vow__file_bind_int(q, 3, change);
    vow__file_bind_int(q, 4, change * (int64_t)t->weight);
    return vow__file_do(u->s, q);
}

/* Writes ?1 pool, ?2 token, ?3 end, ?4 open, and if `all` the rest. */
static int permit_write(struct vow__file_pool_use *u, sqlite3_stmt *q,
                        const struct vow__file_permit *at, bool all)
{
    const struct rules_permit *t = &at->rule;
    vow__file_bind(q, 1, pool_id(u)->hash, sizeof(pool_id(u)->hash));
    vow__file_bind(q, 2, &t->token, sizeof(t->token));
    vow__file_bind_int(q, 3, (int64_t)t->end_us);
    vow__file_bind_int(q, 4, t->open);
    if (all) {
        vow__file_bind(q, 5, at->inst, FILE_ID);
        vow__file_bind_int(q, 6, t->held);
        vow__file_bind_int(q, 7, (int64_t)t->order);
        vow__file_bind_int(q, 8, (int64_t)t->fence);
        vow__file_bind_int(q, 9, t->weight);
        vow__file_bind_int(q, 10, at->due_us);
    }
    if (at->due_us < u->p->next_us)
        u->p->next_us = at->due_us; /* keeps Q2 */
    return vow__file_do(u->s, q);
}

static int row_insert(struct vow__file_pool_use *u, struct vow__file_permit *at)
{
    sqlite3_stmt *q =
        vow__file_sql(u->s, "INSERT INTO permit VALUES(?1,?2,?5,?6,?4,?7,?8,?9,"
                            "?3,?10)");
    u->known = false;
    at->due_us = (int64_t)at->rule.end_us;
    memcpy(at->inst, u->s->id, FILE_ID);
    int rc = permit_write(u, q, at, true);
    return rc == 0 && !at->rule.held ? part_count(u, &at->rule, 1) : rc;
}

/* The lease is long enough for a step that only reads. */
static bool lease_lasts(const struct vow__file_pool_use *u,
                        const struct vow__file_permit *was,
                        const struct rules_permit *t)
{
    uint64_t now_us = (uint64_t)u->s->now_us;
    return !t->held && memcmp(was->inst, u->s->id, FILE_ID) == 0 &&
           was->rule.end_us <= t->end_us &&
           was->rule.end_us - now_us > (t->end_us - now_us) / 2;
}

/* The caller's permit becomes a permit of this instance. */
static int rows_put(void *user, const struct rules_permit *permit)
{
    struct vow__file_pool_use *u = user;
    struct vow__file_permit *was = permit->at;
    struct vow__file_permit now = {.rule = *permit};
    int rc = 0;
    if (permit->end_us > (uint64_t)FILE_FOREVER)
        now.rule.end_us = (uint64_t)FILE_FOREVER;
    if (u->s->phase != FILE_WRITES)
        return was != NULL && lease_lasts(u, was, permit) ? 0 : FILE_MUST_WRITE;
    if (was == NULL)
        return row_insert(u, &now);
    bool granted = permit->held && !was->rule.held;
    now.due_us = was->due_us;
    if (now.due_us > (int64_t)now.rule.end_us)
        now.due_us = (int64_t)now.rule.end_us;
    memcpy(now.inst, was == &u->mine ? u->s->id : was->inst, FILE_ID);
    if (granted || now.due_us != was->due_us ||
        memcmp(now.inst, was->inst, FILE_ID) != 0)
        rc = permit_write(u, vow__file_sql(u->s, PERMIT_UPDATE), &now, true);
    else
        rc =
            permit_write(u,
                         vow__file_sql(u->s, "UPDATE permit SET ends=?3,open=?4"
                                             " WHERE pool=?1 AND tok=?2"),
                         &now, false);
    if (rc == 0 && granted)
        rc = part_count(u, permit, -1);
    u->known = u->known && (was == &u->mine ||
                            !token_same(&permit->token, &u->mine.rule.token));
    u->head_known =
        u->head_known && !token_same(&permit->token, &u->head.rule.token);
    *was = now;
    return rc;
}

static int rows_drop(void *user, const struct rules_permit *permit)
{
    struct vow__file_pool_use *u = user;
    struct vow__file_permit *was = permit->at;
    if (u->s->phase != FILE_WRITES)
        return FILE_MUST_WRITE;
    sqlite3_stmt *q =
        vow__file_sql(u->s, "DELETE FROM permit WHERE pool=?1 AND tok=?2");
    vow__file_bind(q, 1, pool_id(u)->hash, sizeof(pool_id(u)->hash));
    vow__file_bind(q, 2, &permit->token, sizeof(permit->token));
    int rc = vow__file_do(u->s, q);
    if (token_same(&permit->token, &u->mine.rule.token))
        u->known = false;
    return rc == 0 && !was->rule.held ? part_count(u, permit, -1) : rc;
}

static void rows_tell(void *user, const struct rules_permit *permit)
{
    struct vow__file_pool_use *u = user;
    const struct vow__file_permit *at = permit->at;
    vow__file_tell(u->s, at->inst, FILE_PLACE, &permit->token,
                   sizeof(permit->token));
}

/* ---- leases ------------------------------------------------------------- */

/* Finds a permit of an instance that has died. */
static int dead_find(struct vow__file_pool_use *u)
{
    sqlite3_stmt *q = vow__file_sql(u->s, "SELECT " PERMIT_COLUMNS
                                          " FROM permit INDEXED BY permit_inst"
                                          " WHERE pool=?1 AND inst=?2 LIMIT 1");
    int rc = VOW_ENOENT;
    while (u->crowd != NULL && u->n_dropped < u->crowd->n_dead) {
        vow__file_bind(q, 2, u->crowd->dead[u->n_dropped], FILE_ID);
        rc = permit_read(u, q, &u->ended);
        if (rc != VOW_ENOENT)
            return rc;
        u->n_dropped++;
    }
    return rc;
}

/* Learns the earliest `due`. */
static int next_learn(struct vow__file_pool_use *u)
{
    sqlite3_stmt *q = vow__file_sql(
        u->s, CROWD " SELECT min((SELECT min(due) FROM permit"
                    " INDEXED BY permit_inst WHERE pool=?1 AND"
                    " inst=crowd.inst)) FROM crowd WHERE inst IS NOT NULL");
    int rc;
    vow__file_bind(q, 1, pool_id(u)->hash, sizeof(pool_id(u)->hash));
    if (!vow__file_row(u->s, q, &rc))
        return rc;
    u->p->next_us = sqlite3_column_type(q, 0) == SQLITE_NULL
                        ? FILE_FOREVER
                        : sqlite3_column_int64(q, 0);
    (void)sqlite3_reset(q);
    return 0;
}

/* Finds a permit by `due`, which is put right where the lease goes on. */
static int due_find(struct vow__file_pool_use *u, uint64_t now_us)
{
    for (;;) {
        sqlite3_stmt *q = vow__file_sql(
            u->s, CROWD " SELECT " PERMIT_COLUMNS
                        " FROM crowd CROSS JOIN permit INDEXED BY permit_inst"
                        " ON pool=?1 AND permit.inst=crowd.inst AND due<=?2"
                        " LIMIT 1");
        vow__file_bind_int(q, 2, (int64_t)now_us);
        int rc = permit_read(u, q, &u->ended);
        if (rc != 0 || u->ended.rule.end_us <= now_us)
            return rc;
        if (u->s->phase != FILE_WRITES)
            return FILE_MUST_WRITE;
        u->known = u->head_known = false;
        u->ended.due_us = (int64_t)u->ended.rule.end_us;
        rc = permit_write(u, vow__file_sql(u->s, PERMIT_UPDATE), &u->ended,
                          true);
        if (rc != 0)
            return rc;
    }
}

static int rows_ended(void *user, uint64_t now_us, struct rules_permit *ret)
{
    struct vow__file_pool_use *u = user;
    int rc = dead_find(u);
    if (rc == VOW_ENOENT && u->p->next_us <= (int64_t)now_us) {
        rc = due_find(u, now_us);
        int code = rc == VOW_ENOENT ? next_learn(u) : 0;
        rc = code == 0 ? rc : code;
    }
    *ret = u->ended.rule;
    return rc;
}

static int rows_next_end(void *user, uint64_t *ret_us)
{
    *ret_us = (uint64_t)((struct vow__file_pool_use *)user)->p->next_us;
    return 0;
}

/* ---- instances ---------------------------------------------------------- */

int vow__file_crowd_see(struct vow__file *s, const vow_name *pool,
                        struct vow__file_crowd *c)
{
    sqlite3_stmt *q = vow__file_sql(
        s, CROWD " SELECT inst FROM crowd WHERE inst IS NOT NULL LIMIT 64");
    int rc;
    vow__file_bind(q, 1, pool->hash, sizeof(pool->hash));
    c->n_alive = 0;
    c->n_dead = 0;
    while (vow__file_row(s, q, &rc)) {
        unsigned char id[FILE_ID];
        vow__file_bytes_read(q, 0, id, FILE_ID);
        if (vow__file_gone(s, id))
            memcpy(c->dead[c->n_dead++], id, FILE_ID);
        else
            memcpy(c->alive[c->n_alive++], id, FILE_ID);
    }
    return rc;
}

int vow__file_permits_find(struct vow__file *s, const unsigned char *id,
                           vow_name *pool, bool *ret_there)
{
    sqlite3_stmt *q = vow__file_sql(
        s, "WITH RECURSIVE used(pool) AS(SELECT min(pool) FROM permit"
           " WHERE pool>=?2 UNION ALL SELECT(SELECT min(pool) FROM permit"
           " WHERE pool>used.pool) FROM used WHERE used.pool IS NOT NULL)"
           " SELECT pool FROM used WHERE EXISTS(SELECT 1 FROM permit p"
           " INDEXED BY permit_inst WHERE p.pool=used.pool AND p.inst=?1)"
           " LIMIT 1");
    int rc;
    vow__file_bind(q, 1, id, FILE_ID);
    vow__file_bind(q, 2, pool->hash, sizeof(pool->hash));
    *ret_there = vow__file_row(s, q, &rc);
    if (!*ret_there)
        return rc;
    rc = vow__file_name_read(q, 0, pool);
    (void)sqlite3_reset(q);
    return rc;
}

void vow__file_pool_use(struct vow__file_pool_use *u, struct vow__file *s,
                        struct vow__file_pool *p,
                        const struct vow__file_crowd *crowd)
{
    u->s = s;
    u->p = p;
    u->crowd = crowd;
    u->known = u->head_known = false;
    u->n_dropped = 0;
    u->mine.rule = u->ended.rule = (struct rules_permit){.held = false};
    u->storage = (struct rules_storage){.user = u,
                                        .find = rows_find,
                                        .head = rows_head,
                                        .ended = rows_ended,
                                        .next_end = rows_next_end,
                                        .put = rows_put,
                                        .drop = rows_drop,
                                        .ahead = rows_ahead,
                                        .tell = rows_tell};
}
