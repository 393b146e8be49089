/* SPDX-License-Identifier: MIT */
/* file_rate.c - what was granted when, so that no window has too much.
 *
 * HOW   A row per start, for as long as it is in the window, which is closed at
 *       both ends: a start at t counts until t + W. What was granted and is not
 *       known to have started has no row and counts as if it were now: see
 *       FILE_OPEN. The sum of the rows is kept with the pool. With a rate above
 *       ENTRIES, grants that follow each other closely share a row, which
 *       counts at the time of its newest grant: the row leaves the window
 *       late, never early, by one ENTRIES-th of the window at most.
 * INVARIANTS
 *   Q1  spent of a pool is the sum of the weights in its rows
 * THREADS  loop thread only.
 */
#include "store/file/file_pool.h"

enum { ENTRIES = 10000 };

static int64_t window(const struct vow__file_pool *p);
static int add_row(struct vow__file *s, const struct vow__file_pool *p,
                   uint64_t weight);
static int join_row(struct vow__file *s, const struct vow__file_pool *p,
                    uint64_t weight, bool *ret_done);
static int leaves(struct vow__file *s, const struct vow__file_pool *p,
                  uint64_t units, int64_t *ret_us);

static int64_t window(const struct vow__file_pool *p)
{
    return p->limits.window_us > (uint64_t)FILE_FOREVER / 4
               ? FILE_FOREVER / 4
               : (int64_t)p->limits.window_us;
}

int vow__file_rate_expire(struct vow__file *s, struct vow__file_pool *p)
{
    sqlite3_stmt *q = vow__file_sql(
        s, "DELETE FROM spent WHERE pool=?1 AND at<?2 RETURNING weight");
    int rc;
    if (p->spent == 0)
        return 0;
    vow__file_bind(q, 1, p->id.hash, sizeof(p->id.hash));
    vow__file_bind_int(q, 2, s->now_us - window(p));
    while (vow__file_row(s, q, &rc)) {
        uint64_t weight = (uint64_t)sqlite3_column_int64(q, 0);
        p->spent -= weight < p->spent ? weight : p->spent; /* keeps Q1 */
    }
    return rc;
}

int vow__file_rate_open(struct vow__file *s, struct vow__file_pool *p)
{
    sqlite3_stmt *q =
        vow__file_sql(s, "SELECT sum(weight) FROM place"
                         " WHERE pool=?1 AND held=1 AND again=?2");
    int rc;
    if (p->open_known)
        return 0;
    p->open = 0;
    vow__file_bind(q, 1, p->id.hash, sizeof(p->id.hash));
    vow__file_bind_int(q, 2, FILE_OPEN);
    if (vow__file_row(s, q, &rc)) {
        p->open = (uint64_t)sqlite3_column_int64(q, 0);
        (void)sqlite3_reset(q);
    }
    p->open_known = rc == 0;
    return rc;
}

int vow__file_rate_used(struct vow__file *s, struct vow__file_pool *p,
                        uint64_t *ret_used)
{
    sqlite3_stmt *q = vow__file_sql(s, "SELECT sum(weight) FROM spent"
                                       " WHERE pool=?1 AND at>=?2");
    int rc;
    *ret_used = 0;
    vow__file_bind(q, 1, p->id.hash, sizeof(p->id.hash));
    vow__file_bind_int(q, 2, s->now_us - window(p));
    if (vow__file_row(s, q, &rc)) {
        *ret_used = (uint64_t)sqlite3_column_int64(q, 0);
        (void)sqlite3_reset(q);
    }
    if (rc == 0)
        rc = vow__file_rate_open(s, p);
    *ret_used += p->open;
    return rc;
}

int vow__file_rate_add(struct vow__file *s, struct vow__file_pool *p,
                       uint64_t weight)
{
    bool done = false;
    int rc = 0;
    p->spent += weight; /* keeps Q1 */
    if (p->limits.rate > ENTRIES)
        rc = join_row(s, p, weight, &done);
    return rc == 0 && !done ? add_row(s, p, weight) : rc;
}

static int add_row(struct vow__file *s, const struct vow__file_pool *p,
                   uint64_t weight)
{
    sqlite3_stmt *q = vow__file_sql(
        s, "INSERT INTO spent VALUES(?1,?2,?2,?3)"
           " ON CONFLICT(pool,at) DO UPDATE SET weight=weight+excluded.weight");
    vow__file_bind(q, 1, p->id.hash, sizeof(p->id.hash));
    vow__file_bind_int(q, 2, s->now_us);
    vow__file_bind_int(q, 3, (int64_t)weight);
    return vow__file_do(s, q);
}

static int join_row(struct vow__file *s, const struct vow__file_pool *p,
                    uint64_t weight, bool *ret_done)
{
    sqlite3_stmt *q = vow__file_sql(
        s, "UPDATE spent SET at=?2,weight=weight+?3 WHERE pool=?1 AND began>=?4"
           " AND at=(SELECT max(at) FROM spent WHERE pool=?1)");
    vow__file_bind(q, 1, p->id.hash, sizeof(p->id.hash));
    vow__file_bind_int(q, 2, s->now_us);
    vow__file_bind_int(q, 3, (int64_t)weight);
    vow__file_bind_int(q, 4, s->now_us - window(p) / ENTRIES);
    int rc = vow__file_do(s, q);
    *ret_done = rc == 0 && sqlite3_changes(s->db) > 0;
    return rc;
}

/* Of all units that are still to be granted, number n can follow when number
 * n - rate has left the window. So whole rates ahead are whole windows. */
int vow__file_rate_when(struct vow__file *s, struct vow__file_pool *p,
                        uint64_t ahead, uint32_t weight, int64_t *ret_us)
{
    uint64_t rate = p->limits.rate;
    uint64_t n = ahead + weight;
    uint64_t windows = n == 0 ? 0 : (n - 1) / rate;
    uint64_t first = n - windows * rate;
    int rc = vow__file_rate_open(s, p);
    uint64_t used = p->spent + p->open;
    *ret_us = s->now_us;
    if (rc == 0 && used + first > rate) {
        uint64_t over = used + first - rate;
        if (over > p->spent) /* what has not started counts as of now */
            *ret_us = s->now_us + window(p) + 1;
        else
            rc = leaves(s, p, over, ret_us);
    }
    int64_t span = window(p) + 1;
    if (windows > (uint64_t)((FILE_FOREVER - *ret_us) / span))
        *ret_us = FILE_FOREVER;
    else
        *ret_us += (int64_t)windows * span;
    return rc;
}

/* When the oldest `units` will have left. */
static int leaves(struct vow__file *s, const struct vow__file_pool *p,
                  uint64_t units, int64_t *ret_us)
{
    sqlite3_stmt *q = vow__file_sql(
        s, "SELECT at,weight FROM spent WHERE pool=?1 ORDER BY at");
    uint64_t sum = 0;
    int64_t at = s->now_us;
    int rc;
    vow__file_bind(q, 1, p->id.hash, sizeof(p->id.hash));
    while (vow__file_row(s, q, &rc)) {
        at = sqlite3_column_int64(q, 0);
        sum += (uint64_t)sqlite3_column_int64(q, 1);
        if (sum >= units) {
            (void)sqlite3_reset(q);
            break;
        }
    }
    *ret_us = at + window(p) + 1;
    return rc;
}
