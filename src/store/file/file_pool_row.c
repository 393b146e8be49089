/* SPDX-License-Identifier: MIT */
/* file_pool_row.c - a pool as a row.
 *
 * HOW   The counts and the rate log are in the row, so nothing is summed up and
 *       a step on a pool reads and writes one row of it. The log is a column of
 *       numbers of one to ten bytes: how long before its end the newest entry
 *       began, and for each entry the time since the entry before and the
 *       weight. A row may hold anything, as a damaged file does: only a row
 *       that keeps the invariants of rules/pool.h becomes a pool.
 *       The pool of a key goes when nobody holds or waits and the log is over:
 *       by the step, or from `ends` on by the sweep.
 * THREADS  loop thread only.
 */
#include "store/file/file_make.h"
#include "store/file/file_pool.h"

#include <string.h>

enum { LOG_MAX = 10 * (1 + 2 * RULES_RATE_ENTRIES) };

#define POOL_SELECT                                                            \
    "SELECT p.law,p.label,l.concurrent,l.rate,l.span,p.held,p.holders,"        \
    "p.waiting,p.open,p.seq,p.fence,p.next,p.uncounted,p.log,p.id"             \
    " FROM pool p LEFT JOIN pool l ON l.id=p.law WHERE p.id"
#define POOL_UPDATE                                                            \
    "UPDATE pool SET held=?2,holders=?3,waiting=?4,open=?5,seq=?6,fence=?7,"   \
    "uncounted=?8,next=?9,ends=?10"

static int64_t us_stored(uint64_t us)
{
    return us > (uint64_t)FILE_FOREVER ? FILE_FOREVER : (int64_t)us;
}

/* ---- the rate log ------------------------------------------------------- */

static size_t log_write(const struct rules_rate *l, unsigned char to[LOG_MAX])
{
    unsigned char *at = to;
    uint64_t before_us = 0;
    if (l->n == 0)
        return 0;
    uint64_t began = l->starts[l->n - 1].at_us - l->began_us;
    at = vow__file_body_put(at, &began, 1);
    for (uint32_t i = 0; i < l->n; i++) {
        const struct rules_start *e = &l->starts[i];
        const uint64_t n[] = {e->at_us - before_us, e->weight};
        at = vow__file_body_put(at, n, 2);
        before_us = e->at_us;
    }
    return (size_t)(at - to);
}

/* False: no log keeps P2. */
static bool log_read(sqlite3_stmt *q, int column, struct rules_rate *l)
{
    const unsigned char *from = sqlite3_column_blob(q, column);
    size_t size = (size_t)sqlite3_column_bytes(q, column);
    struct vow__file_body b = {.at = from, .end = from, .sound = true};
    uint64_t began = 0;
    uint64_t at_us = 0;
    l->n = 0;
    if (from == NULL)
        return true;
    b.end += size;
    vow__file_body_numbers(&b, &began, 1);
    while (b.sound && b.at < b.end && l->n < l->room) {
        uint64_t n[2];
        vow__file_body_numbers(&b, n, 2);
        b.sound = b.sound && n[1] > 0 && n[1] <= INT64_MAX &&
                  n[0] <= INT64_MAX - at_us;
        at_us += n[0];
        l->starts[l->n++] = (struct rules_start){at_us, n[1]};
    }
    l->began_us = at_us - began;
    return b.sound && b.at == b.end && l->n > 0 && began <= at_us;
}

/* A change enters a start, and nothing else. */
static bool log_changed(const struct vow__file_pool *p)
{
    const struct rules_rate *l = &p->rule.rate;
    return l->n != p->n_read ||
           (l->n > 0 && (l->starts[l->n - 1].at_us != p->newest.at_us ||
                         l->starts[l->n - 1].weight != p->newest.weight));
}

/* ---- the row ------------------------------------------------------------ */

static bool pool_sound(const struct vow__file_pool *p)
{
    const struct rules_pool *r = &p->rule;
    const uint64_t most = UINT64_C(1) << 56; /* far from any overflow */
    return r->held >= r->holders && (r->held == 0) == (r->holders == 0) &&
           r->open <= r->held && r->held < most && r->waiting < most &&
           r->order < most && r->fence <= INT64_MAX && p->uncounted >= 0 &&
           (uint64_t)p->uncounted <= r->order;
}

static int pool_read(struct vow__file *s, sqlite3_stmt *q,
                     struct vow__file_pool *p)
{
    struct rules_pool *r = &p->rule;
    int rc;
    p->there = vow__file_row(s, q, &rc);
    if (!p->there)
        return rc;
    vow__file_bytes_read(q, 0, p->law.hash, sizeof(p->law.hash));
    vow__file_text_read(q, 1, p->label, sizeof(p->label));
    *r = (struct rules_pool){
        .limits = {.concurrent = (uint32_t)sqlite3_column_int64(q, 2),
                   .rate = (uint32_t)sqlite3_column_int64(q, 3),
                   .window_us = (uint64_t)sqlite3_column_int64(q, 4)},
        .held = (uint64_t)sqlite3_column_int64(q, 5),
        .holders = (uint64_t)sqlite3_column_int64(q, 6),
        .waiting = (uint64_t)sqlite3_column_int64(q, 7),
        .open = (uint64_t)sqlite3_column_int64(q, 8),
        .order = (uint64_t)sqlite3_column_int64(q, 9),
        .fence = (uint64_t)sqlite3_column_int64(q, 10),
        .rate = {.starts = p->starts, .room = RULES_RATE_ENTRIES}};
    p->next_us = sqlite3_column_int64(q, 11);
    p->uncounted = sqlite3_column_int64(q, 12);
    bool sound = log_read(q, 13, &r->rate) && pool_sound(p);
    p->n_read = r->rate.n;
    if (p->n_read > 0)
        p->newest = p->starts[p->n_read - 1];
    rc = vow__file_name_read(q, 14, &p->id);
    (void)sqlite3_reset(q);
    return rc == 0 && !sound ? SQLITE_CORRUPT : rc;
}

int vow__file_pool_find(struct vow__file *s, const vow_name *id,
                        struct vow__file_pool *p)
{
    sqlite3_stmt *q = vow__file_sql(s, POOL_SELECT "=?1");
    vow__file_bind(q, 1, id->hash, sizeof(id->hash));
    return pool_read(s, q, p);
}

int vow__file_pool_next(struct vow__file *s, const vow_name *behind,
                        struct vow__file_pool *p)
{
    sqlite3_stmt *q = vow__file_sql(s, POOL_SELECT ">?1 ORDER BY p.id LIMIT 1");
    vow__file_bind(q, 1, behind == NULL ? (const void *)"" : behind->hash,
                   behind == NULL ? 0 : sizeof(behind->hash));
    return pool_read(s, q, p);
}

static int limits_do(struct vow__file *s, sqlite3_stmt *q, const vow_name *id,
                     const vow_pool_limits *limits, const char *label)
{
    char text[VOW_LABEL_MAX + 1];
    vow__file_text_cut(text, label);
    vow__file_bind(q, 1, id->hash, sizeof(id->hash));
    vow__file_bind_int(q, 2, limits->concurrent);
    vow__file_bind_int(q, 3, limits->rate);
    vow__file_bind_int(q, 4, us_stored(limits->window_us));
    vow__file_bind_text(q, 5, text);
    return vow__file_do(s, q);
}

int vow__file_pool_make(struct vow__file *s, const vow_name *id,
                        const vow_name *law, const vow_pool_limits *limits,
                        const char *label, struct vow__file_pool *p)
{
    sqlite3_stmt *q =
        vow__file_sql(s, "INSERT INTO pool VALUES(?1,?6,?5,?2,?3,?4,0,0,0,0,0,"
                         "0,?7,0,?7,NULL)");
    vow__file_bind(q, 6, law == NULL ? id->hash : law->hash, sizeof(id->hash));
    vow__file_bind_int(q, 7, FILE_FOREVER);
    int rc = limits_do(s, q, id, limits, label);
    return rc == 0 ? vow__file_pool_find(s, id, p) : rc;
}

int vow__file_pool_limits(struct vow__file *s, const vow_name *id,
                          const vow_pool_limits *limits, const char *label)
{
    return limits_do(
        s,
        vow__file_sql(s, "UPDATE pool SET concurrent=?2,rate=?3,span=?4,"
                         "label=CASE ?5 WHEN '' THEN label ELSE ?5 END"
                         " WHERE id=?1"),
        id, limits, label);
}

int vow__file_pool_put(struct vow__file *s, const struct vow__file_pool *p)
{
    const struct rules_pool *r = &p->rule;
    unsigned char log[LOG_MAX];
    int64_t ends_us = FILE_FOREVER;
    sqlite3_stmt *q;
    if (r->holders == 0 && r->waiting == 0 && !vow_name_equal(&p->id, &p->law))
        ends_us = us_stored(vow__rules_rate_over(&r->rate, &r->limits));
    if (ends_us <= s->now_us) {
        q = vow__file_sql(s, "DELETE FROM pool WHERE id=?1");
        vow__file_bind(q, 1, p->id.hash, sizeof(p->id.hash));
        return vow__file_do(s, q);
    }
    const int64_t numbers[] = {
        (int64_t)r->held,      (int64_t)r->holders, (int64_t)r->waiting,
        (int64_t)r->open,      (int64_t)r->order,   (int64_t)r->fence,
        (int64_t)p->uncounted, p->next_us,          ends_us};
    bool changed = log_changed(p);
    q = changed ? vow__file_sql(s, POOL_UPDATE ",log=?11 WHERE id=?1")
                : vow__file_sql(s, POOL_UPDATE " WHERE id=?1");
    vow__file_bind(q, 1, p->id.hash, sizeof(p->id.hash));
    for (int i = 0; i < 9; i++)
        vow__file_bind_int(q, 2 + i, numbers[i]);
    if (changed)
        vow__file_bind(q, 11, log, log_write(&r->rate, log));
    return vow__file_do(s, q);
}

/* ---- another boot, and an earlier schema -------------------------------- */

/* No permit is left. No clock says how long the machine was off: what has
 * started, or may have, counts as started now. */
static int pool_reboot(struct vow__file *s, struct vow__file_pool *p)
{
    struct rules_pool *r = &p->rule;
    uint64_t weight = r->open;
    for (uint32_t i = 0; i < r->rate.n; i++)
        weight += r->rate.starts[i].weight;
    r->rate.n = 0;
    r->held = r->holders = r->waiting = r->open = 0;
    p->next_us = FILE_FOREVER;
    vow__rules_rate_add(&r->rate, &r->limits, weight, (uint64_t)s->now_us);
    return vow__file_pool_put(s, p);
}

/* Version 1 has a row for each start. Starts of another boot count as of now,
 * as in pool_reboot(): the times are of another clock. */
static int pool_upgrade(struct vow__file *s, struct vow__file_pool *p,
                        bool this_boot)
{
    sqlite3_stmt *q = vow__file_sql(
        s, "SELECT at,weight FROM old_spent WHERE pool=?1 ORDER BY at");
    int rc;
    vow__file_bind(q, 1, p->id.hash, sizeof(p->id.hash));
    while (vow__file_row(s, q, &rc)) {
        int64_t at_us = sqlite3_column_int64(q, 0);
        int64_t weight = sqlite3_column_int64(q, 1);
        if (!this_boot || at_us < 0 || at_us > s->now_us)
            at_us = s->now_us;
        if (weight > 0)
            vow__rules_rate_add(&p->rule.rate, &p->rule.limits,
                                (uint64_t)weight, (uint64_t)at_us);
    }
    return rc == 0 ? vow__file_pool_put(s, p) : rc;
}

int vow__file_pools_change(struct vow__file *s, bool upgrade)
{
    struct vow__file_pool p = {.there = false};
    bool this_boot = false;
    int rc = upgrade ? vow__file_clock_ours(s, &this_boot) : 0;
    if (rc == 0)
        rc = vow__file_pool_next(s, NULL, &p);
    while (rc == 0 && p.there) {
        rc = upgrade ? pool_upgrade(s, &p, this_boot) : pool_reboot(s, &p);
        if (rc == 0)
            rc = vow__file_pool_next(s, &p.id, &p);
    }
    return rc;
}
