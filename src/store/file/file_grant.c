/* SPDX-License-Identifier: MIT */
/* file_grant.c - places in a pool as rows: the queue, the leases, grants.
 *
 * WHY   Limits that many processes share must hold whatever one of them does:
 *       die with a place, die in the queue, or not come for what it was given.
 * HOW   One queue per pool, and only its head may be granted, so that a heavy
 *       weight is never overtaken. Each step that writes to a pool removes
 *       whose lease is over, then grants as many heads as fit. Who gets a place
 *       by the step of another is told, and has ACCEPT_US to come for it. A
 *       head that only the rate holds back is told if it could ask sooner than
 *       it was told before.
 *       The pool has its counts in its own row: nothing is summed up.
 * INVARIANTS
 *   P1  held is the weight of all rows that hold, holders and waiting are
 *       their numbers, and held is not above the limit unless that was lowered
 *   P2  if the head could be granted, the step that made it so granted it
 *   P3  next_us is not after the end of any lease in the pool
 * THREADS  loop thread only.
 */
#include "store/file/file_pool.h"

#include <string.h>

enum { REAP_MAX = 64, ACCEPT_US = 2 * 1000 * 1000 };

static void place_read(sqlite3_stmt *q, struct vow__file_place *at);
static int next_end(struct vow__file *s, struct vow__file_pool *p);
static int let_in(struct vow__file *s, struct vow__file_pool *p,
                  struct vow__file_place *at, bool mine);
static bool has_room(const struct vow__file_pool *p, uint32_t weight);
static int rate_blocks(struct vow__file *s, struct vow__file_pool *p,
                       struct vow__file_place *head, bool mine,
                       bool *ret_blocks);
static int remove_rows(struct vow__file *s, struct vow__file_pool *p,
                       sqlite3_stmt *q);

/* ---- pools -------------------------------------------------------------- */

int vow__file_pool_find(struct vow__file *s, const vow_name *id,
                        struct vow__file_pool *p)
{
    sqlite3_stmt *q = vow__file_sql(
        s, "SELECT p.law,p.label,l.concurrent,l.rate,l.span,p.held,p.holders,"
           "p.waiting,p.seq,p.fence,p.spent,p.next"
           " FROM pool p LEFT JOIN pool l ON l.id=p.law WHERE p.id=?1");
    int rc;
    p->id = *id;
    p->there = false;
    p->open = 0;
    p->open_known = false;
    vow__file_bind(q, 1, id->hash, sizeof(id->hash));
    if (!vow__file_row(s, q, &rc))
        return rc;
    p->there = true;
    vow__file_bytes_read(q, 0, p->law.hash, sizeof(p->law.hash));
    vow__file_text_read(q, 1, p->label, sizeof(p->label));
    p->limits.concurrent = (uint32_t)sqlite3_column_int64(q, 2);
    p->limits.rate = (uint32_t)sqlite3_column_int64(q, 3);
    p->limits.window_us = (uint64_t)sqlite3_column_int64(q, 4);
    p->held = (uint64_t)sqlite3_column_int64(q, 5);
    p->holders = (uint64_t)sqlite3_column_int64(q, 6);
    p->waiting = (uint64_t)sqlite3_column_int64(q, 7);
    p->seq = sqlite3_column_int64(q, 8);
    p->fence = sqlite3_column_int64(q, 9);
    p->spent = (uint64_t)sqlite3_column_int64(q, 10);
    p->next_us = sqlite3_column_int64(q, 11);
    (void)sqlite3_reset(q);
    return 0;
}

int vow__file_pool_make(struct vow__file *s, const vow_name *id,
                        const vow_name *law, const vow_pool_limits *limits,
                        const char *label)
{
    char text[VOW_LABEL_MAX + 1];
    sqlite3_stmt *q = vow__file_sql(
        s, "INSERT INTO pool VALUES(?1,?2,?3,?4,?5,?6,0,0,0,0,0,0,?7)");
    vow__file_text_cut(text, label);
    vow__file_bind(q, 1, id->hash, sizeof(id->hash));
    vow__file_bind(q, 2, law == NULL ? id->hash : law->hash, sizeof(id->hash));
    vow__file_bind_text(q, 3, text);
    vow__file_bind_int(q, 4, limits->concurrent);
    vow__file_bind_int(q, 5, limits->rate);
    vow__file_bind_int(q, 6, (int64_t)(limits->window_us & INT64_MAX));
    vow__file_bind_int(q, 7, FILE_FOREVER);
    return vow__file_do(s, q);
}

/* A pool of one key is there as long as it is used, or remembers grants. */
int vow__file_pool_put(struct vow__file *s, const struct vow__file_pool *p)
{
    bool unused = p->holders == 0 && p->waiting == 0 && p->spent == 0 &&
                  !vow_name_equal(&p->id, &p->law);
    sqlite3_stmt *q;
    if (unused) {
        q = vow__file_sql(s, "DELETE FROM pool WHERE id=?1");
        vow__file_bind(q, 1, p->id.hash, sizeof(p->id.hash));
        return vow__file_do(s, q);
    }
    q = vow__file_sql(s, "UPDATE pool SET held=?2,holders=?3,waiting=?4,seq=?5,"
                         "fence=?6,spent=?7,next=?8 WHERE id=?1");
    vow__file_bind(q, 1, p->id.hash, sizeof(p->id.hash));
    vow__file_bind_int(q, 2, (int64_t)p->held);
    vow__file_bind_int(q, 3, (int64_t)p->holders);
    vow__file_bind_int(q, 4, (int64_t)p->waiting);
    vow__file_bind_int(q, 5, p->seq);
    vow__file_bind_int(q, 6, p->fence);
    vow__file_bind_int(q, 7, (int64_t)p->spent);
    vow__file_bind_int(q, 8, p->next_us);
    return vow__file_do(s, q);
}

bool vow__file_pool_allows(const struct vow__file_pool *p, uint64_t weight)
{
    const vow_pool_limits *l = &p->limits;
    return (l->concurrent == 0 || weight <= l->concurrent) &&
           (l->rate == 0 || weight <= l->rate);
}

/* ---- places ------------------------------------------------------------- */

#define PLACE_COLUMNS "tok,inst,held,seq,weight,ends,fence,again"

static void place_read(sqlite3_stmt *q, struct vow__file_place *at)
{
    at->there = true;
    vow__file_bytes_read(q, 0, &at->token, sizeof(at->token));
    vow__file_bytes_read(q, 1, at->inst, FILE_ID);
    at->held = sqlite3_column_int(q, 2) != 0;
    at->seq = sqlite3_column_int64(q, 3);
    at->weight = (uint32_t)sqlite3_column_int64(q, 4);
    at->end_us = sqlite3_column_int64(q, 5);
    at->fence = sqlite3_column_int64(q, 6);
    at->again_us = sqlite3_column_int64(q, 7);
}

int vow__file_place_find(struct vow__file *s, const struct vow__file_pool *p,
                         const vow_token *token, struct vow__file_place *at)
{
    sqlite3_stmt *q = vow__file_sql(s, "SELECT " PLACE_COLUMNS " FROM place"
                                       " WHERE pool=?1 AND tok=?2");
    int rc;
    at->there = false;
    vow__file_bind(q, 1, p->id.hash, sizeof(p->id.hash));
    vow__file_bind(q, 2, token, sizeof(*token));
    if (vow__file_row(s, q, &rc)) {
        place_read(q, at);
        (void)sqlite3_reset(q);
    }
    return rc;
}

int vow__file_place_head(struct vow__file *s, const struct vow__file_pool *p,
                         struct vow__file_place *at)
{
    sqlite3_stmt *q = vow__file_sql(s, "SELECT " PLACE_COLUMNS " FROM place"
                                       " WHERE pool=?1 AND held=0"
                                       " ORDER BY seq LIMIT 1");
    int rc;
    at->there = false;
    vow__file_bind(q, 1, p->id.hash, sizeof(p->id.hash));
    if (p->waiting == 0)
        return 0;
    if (vow__file_row(s, q, &rc)) {
        place_read(q, at);
        (void)sqlite3_reset(q);
    }
    return rc;
}

/* The counts are the caller's. */
int vow__file_place_put(struct vow__file *s, struct vow__file_pool *p,
                        const struct vow__file_place *at)
{
    sqlite3_stmt *q = vow__file_sql(
        s, "INSERT INTO place(pool," PLACE_COLUMNS ")"
           " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)"
           " ON CONFLICT(pool,tok) DO UPDATE SET inst=excluded.inst,"
           "held=excluded.held,ends=excluded.ends,fence=excluded.fence,"
           "again=excluded.again");
    vow__file_bind(q, 1, p->id.hash, sizeof(p->id.hash));
    vow__file_bind(q, 2, &at->token, sizeof(at->token));
    vow__file_bind(q, 3, at->inst, FILE_ID);
    vow__file_bind_int(q, 4, at->held);
    vow__file_bind_int(q, 5, at->seq);
    vow__file_bind_int(q, 6, at->weight);
    vow__file_bind_int(q, 7, at->end_us);
    vow__file_bind_int(q, 8, at->fence);
    vow__file_bind_int(q, 9, at->again_us);
    if (at->end_us < p->next_us)
        p->next_us = at->end_us; /* keeps P3 */
    return vow__file_do(s, q);
}

int vow__file_place_delete(struct vow__file *s, struct vow__file_pool *p,
                           const struct vow__file_place *at)
{
    sqlite3_stmt *q =
        vow__file_sql(s, "DELETE FROM place WHERE pool=?1 AND tok=?2"
                         " RETURNING held,weight,again");
    vow__file_bind(q, 1, p->id.hash, sizeof(p->id.hash));
    vow__file_bind(q, 2, &at->token, sizeof(at->token));
    return remove_rows(s, p, q);
}

/* Count what a statement deletes and returns: keeps P1. */
static int remove_rows(struct vow__file *s, struct vow__file_pool *p,
                       sqlite3_stmt *q)
{
    uint64_t open = 0;
    int rc;
    while (vow__file_row(s, q, &rc)) {
        uint64_t weight = (uint64_t)sqlite3_column_int64(q, 1);
        if (sqlite3_column_int(q, 0) == 0) {
            p->waiting -= p->waiting > 0;
        } else {
            p->holders -= p->holders > 0;
            p->held -= weight < p->held ? weight : p->held;
            open += sqlite3_column_int64(q, 2) == FILE_OPEN ? weight : 0;
        }
    }
    p->open_known = p->open_known && open == 0;
    return rc == 0 && open > 0 ? vow__file_rate_add(s, p, open) : rc;
}

/* ---- whose time is over ------------------------------------------------- */

int vow__file_reap(struct vow__file *s, struct vow__file_pool *p)
{
    if (p->next_us > s->now_us)
        return 0;
    sqlite3_stmt *q =
        vow__file_sql(s, "DELETE FROM place WHERE pool=?1"
                         " AND ends<=?2 RETURNING held,weight,again");
    vow__file_bind(q, 1, p->id.hash, sizeof(p->id.hash));
    vow__file_bind_int(q, 2, s->now_us);
    int rc = remove_rows(s, p, q);
    return rc == 0 ? next_end(s, p) : rc;
}

int vow__file_reap_inst(struct vow__file *s, struct vow__file_pool *p,
                        const unsigned char *id)
{
    sqlite3_stmt *q =
        vow__file_sql(s, "DELETE FROM place WHERE pool=?1"
                         " AND inst=?2 RETURNING held,weight,again");
    vow__file_bind(q, 1, p->id.hash, sizeof(p->id.hash));
    vow__file_bind(q, 2, id, FILE_ID);
    return remove_rows(s, p, q);
}

static int next_end(struct vow__file *s, struct vow__file_pool *p)
{
    sqlite3_stmt *q =
        vow__file_sql(s, "SELECT min(ends) FROM place WHERE pool=?1");
    int rc;
    p->next_us = FILE_FOREVER;
    vow__file_bind(q, 1, p->id.hash, sizeof(p->id.hash));
    if (vow__file_row(s, q, &rc)) {
        if (sqlite3_column_type(q, 0) != SQLITE_NULL)
            p->next_us = sqlite3_column_int64(q, 0); /* keeps P3 */
        (void)sqlite3_reset(q);
    }
    return rc;
}

/* ---- granting ----------------------------------------------------------- */

int vow__file_grant(struct vow__file *s, struct vow__file_pool *p,
                    const vow_token *me)
{
    struct vow__file_place head;
    bool blocked = false;
    for (;;) {
        int rc = vow__file_place_head(s, p, &head);
        if (rc != 0 || !head.there)
            return rc;
        bool mine =
            me != NULL && memcmp(me, &head.token, sizeof(head.token)) == 0;
        if (!vow__file_pool_allows(p, head.weight)) {
            rc = vow__file_place_delete(s, p, &head); /* and it will hear why */
        } else if (!has_room(p, head.weight)) {
            return 0;
        } else {
            if (p->limits.rate > 0)
                rc = rate_blocks(s, p, &head, mine, &blocked);
            if (rc != 0 || blocked)
                return rc;
            rc = let_in(s, p, &head, mine);
        }
        if (rc != 0)
            return rc;
        if (!mine)
            vow__file_tell(s, head.inst, FILE_PLACE, &head.token,
                           sizeof(head.token));
    }
}

static bool has_room(const struct vow__file_pool *p, uint32_t weight)
{
    return p->limits.concurrent == 0 ||
           p->held + weight <= p->limits.concurrent;
}

static int rate_blocks(struct vow__file *s, struct vow__file_pool *p,
                       struct vow__file_place *head, bool mine,
                       bool *ret_blocks)
{
    int64_t when;
    int rc = vow__file_rate_expire(s, p);
    if (rc == 0)
        rc = vow__file_rate_when(s, p, 0, head->weight, &when);
    if (rc != 0)
        return rc;
    *ret_blocks = when > s->now_us;
    if (!*ret_blocks || mine || when >= head->again_us)
        return 0;
    head->again_us = when;
    vow__file_tell(s, head->inst, FILE_PLACE, &head->token,
                   sizeof(head->token));
    return vow__file_place_put(s, p, head);
}

static int let_in(struct vow__file *s, struct vow__file_pool *p,
                  struct vow__file_place *at, bool mine)
{
    int rc = vow__file_epoch(s, p->fence, &at->fence);
    if (rc != 0)
        return rc;
    p->fence = at->fence;
    p->held += at->weight; /* keeps P1 */
    p->holders++;
    p->waiting--;
    at->held = true;
    if (!mine)
        at->end_us = vow__file_after(s, ACCEPT_US);
    at->again_us = p->limits.rate > 0 ? FILE_OPEN : 0;
    p->open += p->limits.rate > 0 ? at->weight : 0;
    return vow__file_place_put(s, p, at);
}

int vow__file_place_start(struct vow__file *s, struct vow__file_pool *p,
                          struct vow__file_place *at)
{
    if (!at->held || at->again_us != FILE_OPEN)
        return 0;
    at->again_us = 0;
    p->open_known = false;
    return vow__file_rate_add(s, p, at->weight);
}

int vow__file_pool_stale(struct vow__file *s, struct vow__file_pool *p,
                         bool *ret_stale)
{
    struct vow__file_place head;
    *ret_stale = p->next_us <= s->now_us;
    if (*ret_stale)
        return 0;
    int rc = vow__file_place_head(s, p, &head);
    if (rc != 0 || !head.there)
        return rc;
    *ret_stale = !vow__file_pool_allows(p, head.weight);
    if (*ret_stale || !has_room(p, head.weight))
        return 0;
    int64_t when = s->now_us;
    if (p->limits.rate > 0)
        rc = vow__file_rate_when(s, p, 0, head.weight, &when);
    *ret_stale = when <= s->now_us;
    return rc;
}

/* ---- all of an instance ------------------------------------------------- */

int vow__file_places_of(struct vow__file *s, const unsigned char *id)
{
    sqlite3_stmt *q =
        vow__file_sql(s, "SELECT pool FROM place WHERE inst=?1 LIMIT 1");
    struct vow__file_pool p;
    vow_name pool;
    int rc;
    vow__file_bind(q, 1, id, FILE_ID);
    while (vow__file_row(s, q, &rc)) {
        rc = vow__file_name_read(q, 0, &pool);
        (void)sqlite3_reset(q);
        if (rc == 0)
            rc = vow__file_pool_find(s, &pool, &p);
        if (rc == 0)
            rc = vow__file_reap_inst(s, &p, id);
        if (rc == 0 && p.there)
            rc = vow__file_grant(s, &p, NULL);
        if (rc == 0 && p.there)
            rc = vow__file_pool_put(s, &p);
        if (rc != 0)
            return rc;
    }
    return rc;
}
