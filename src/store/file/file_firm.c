/* SPDX-License-Identifier: MIT */
/* file_firm.c - records that survive a reboot, an upgrade, and damage.
 *
 * WHY   Most records are a cache: the work can be done again. Work of mode once
 *       cannot. Its records are on the disk before a step is answered, and are
 *       kept when all other records are void.
 * HOW   Each such record has a copy in a table of its own, `firm`, which is
 *       small, so that damage seldom hits it. After a reboot `rec` is made
 *       anew from the copies: every owner is gone, so a run is in doubt; the
 *       time to live of a result begins again, because no clock says how long
 *       the machine was off. A file of the schema of an earlier vow is changed
 *       in one transaction.
 * LIMITS  An upgrade keeps at most CACHE_MAX results of other modes.
 * THREADS  loop thread only.
 */
#include "store/file/file_make.h"
#include "store/file/file_rows.h"

enum { CACHE_MAX = 10000 };

/* Where records come from. Both statements go through the rows by the name ?1;
 * the second also has the end ?2 and the new body ?3. */
struct firm_source {
    const char *next; /* h, and FILE_ROW_COLUMNS */
    const char *copy;
    int (*read)(sqlite3_stmt *q, int at, struct vow__file_row *row);
    size_t most;   /* rows */
    bool rebooted; /* else the times are of this boot */
};

static int old_row_read(sqlite3_stmt *q, int at, struct vow__file_row *row);

bool vow__file_is_firm(const struct rules_record *r)
{
    return r->mode == VOW_ONCE && !r->spent &&
           (r->state == RULES_RUNNING || r->state == RULES_DONE ||
            r->state == RULES_FAILED);
}

static int firm_do(struct vow__file *s, sqlite3_stmt *q, const vow_name *name)
{
    vow__file_bind(q, 1, name->hash, sizeof(name->hash));
    s->firm = true;
    return vow__file_do(s, q);
}

int vow__file_firm_put(struct vow__file *s, const vow_name *name)
{
    return firm_do(s,
                   vow__file_sql(s, "INSERT OR REPLACE INTO firm SELECT"
                                    " h,file,body,val FROM rec WHERE h=?1"),
                   name);
}

int vow__file_firm_delete(struct vow__file *s, const vow_name *name)
{
    return firm_do(s, vow__file_sql(s, "DELETE FROM firm WHERE h=?1"), name);
}

/* ---- copying ------------------------------------------------------------ */

/* Fits the times of a record to the clock of now. Returns until when the record
 * is kept. No owner lives. */
static uint64_t firm_fit(struct vow__file *s, struct rules_record *r,
                         bool rebooted)
{
    uint64_t now_us = (uint64_t)s->now_us;
    uint64_t span_us = r->end_us > r->since_us ? r->end_us - r->since_us : 0;
    if (r->state == RULES_RUNNING) {
        r->end_us = !rebooted && r->end_us < now_us ? r->end_us : now_us;
        if (r->since_us > now_us)
            r->since_us = now_us;
        return RULES_NEVER;
    }
    if (rebooted) {
        r->end_us = r->end_us == RULES_NEVER || span_us > RULES_NEVER - now_us
                        ? RULES_NEVER
                        : now_us + span_us;
        r->since_us = now_us;
    }
    return r->end_us;
}

static int firm_copy_row(struct vow__file *s, const struct firm_source *from,
                         struct vow__file_row *row)
{
    uint64_t until_us = firm_fit(s, &row->record, from->rebooted);
    row->record.chunks = 0; /* chunks of a run that is gone are not kept */
    row->record.chunk_bytes = 0;
    sqlite3_stmt *q = vow__file_sql(s, from->copy);
    int rc = vow__file_row_copy(s, q, row, until_us);
    return rc == 0 && vow__file_is_firm(&row->record)
               ? vow__file_firm_put(s, &row->name)
               : rc;
}

/* Copies all rows of a source to `rec`. A row that cannot be read is lost. */
static int firm_copy_all(struct vow__file *s, const struct firm_source *from)
{
    struct vow__file_row row;
    size_t size = 0; /* of the name before: none */
    int rc = 0;
    for (size_t i = 0; i < from->most; i++) {
        sqlite3_stmt *q = vow__file_sql(s, from->next);
        vow__file_bind(q, 1, row.name.hash, size);
        if (!vow__file_row(s, q, &rc))
            return rc;
        rc = vow__file_name_read(q, 0, &row.name);
        bool sound = rc == 0 && from->read(q, 1, &row) == 0;
        (void)sqlite3_reset(q);
        if (rc == 0 && sound)
            rc = firm_copy_row(s, from, &row);
        else if (rc == 0)
            rc = vow__file_lost_write(s, "vow.db had rows that made no sense");
        if (rc != 0)
            return rc;
        size = sizeof(row.name.hash);
    }
    return 0;
}

int vow__file_firm_reboot(struct vow__file *s)
{
    static const struct firm_source firm = {
        .next = "SELECT h,x'',file,body FROM firm WHERE h>?1"
                " ORDER BY h LIMIT 1",
        .copy = "INSERT OR REPLACE INTO rec(h,ends,inst,body,file,val)"
                " SELECT h,?2,x'',?3,file,val FROM firm WHERE h=?1",
        .read = vow__file_row_read,
        .most = SIZE_MAX,
        .rebooted = true};
    return firm_copy_all(s, &firm);
}

/* ---- from schema version 1 ---------------------------------------------- */

/* Where mode and state are in a body, as SQL counts: behind the token. */
#define OLD_STATE "substr(body,17,1)"
#define OLD_MODE "substr(body,19,1)"
#define OLD_ONCE(table)                                                        \
    "SELECT h,ends,file,body FROM " table " WHERE h>?1"                        \
    " AND " OLD_MODE "=x'02' ORDER BY h LIMIT 1"
#define OLD_COPY(table)                                                        \
    "INSERT OR REPLACE INTO rec(h,ends,inst,body,file,val)"                    \
    " SELECT h,?2,x'',?3,file,val FROM " table " WHERE h=?1"

int vow__file_firm_upgrade(struct vow__file *s)
{
    static const struct firm_source sources[] = {
        {.next = OLD_ONCE("old_rec"),
         .copy = OLD_COPY("old_rec"),
         .read = old_row_read,
         .most = SIZE_MAX},
        {.next = "SELECT h,ends,file,body FROM old_rec WHERE h>?1"
                 " AND " OLD_MODE "<>x'02' AND " OLD_STATE "<>x'00'"
                 " AND substr(body,18,1)=x'00' ORDER BY h LIMIT 1",
         .copy = OLD_COPY("old_rec"),
         .read = old_row_read,
         .most = CACHE_MAX}};
    int rc = 0;
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]) && rc == 0; i++)
        rc = firm_copy_all(s, &sources[i]);
    return rc;
}

/* A body of version 1: the token, and numbers of one to ten bytes. */
static int old_row_read(sqlite3_stmt *q, int at, struct vow__file_row *row)
{
    enum { /* numbers */
           STATE,
           FLAGS,
           MODE,
           TAKEOVERS,
           EPOCH,
           SINCE,
           PULSE,
           LEASE,
           COST,
           CHUNKS,
           BYTES,
           LABEL,
           RUNNER,
           NUMBERS
    };
    static const uint8_t states[] = {RULES_RUNNING, RULES_DONE, RULES_FAILED};
    const uint64_t hidden = 1;
    const unsigned char *from = sqlite3_column_blob(q, at + 2);
    size_t size = (size_t)sqlite3_column_bytes(q, at + 2);
    int64_t end_us = sqlite3_column_int64(q, at);
    struct rules_record *r = &row->record;
    struct vow__file_body b = {.at = from, .end = from + size, .sound = true};
    uint64_t n[NUMBERS] = {0};
    *r = (struct rules_record){.state = RULES_NONE};
    vow__file_body_bytes(&b, &r->token, sizeof(r->token));
    vow__file_body_numbers(&b, n, NUMBERS);
    vow__file_body_text(&b, row->label, n[LABEL]);
    vow__file_body_text(&b, row->runner, n[RUNNER]);
    if (!b.sound || n[STATE] > 2 || n[MODE] > VOW_ONCE ||
        n[TAKEOVERS] > UINT32_MAX)
        return SQLITE_CORRUPT;
    r->state = states[n[STATE]];
    r->mode = (uint8_t)n[MODE];
    r->spent = (n[FLAGS] & hidden) != 0;
    r->takeovers = (uint32_t)n[TAKEOVERS];
    r->epoch = r->first = n[EPOCH];
    r->since_us = n[SINCE];
    r->end_us = end_us == FILE_FOREVER ? RULES_NEVER
                : end_us < 0           ? 0
                                       : (uint64_t)end_us;
    r->lease_us = n[LEASE];
    r->cost_ms = n[COST];
    row->owned = false;
    row->left = false;
    vow__file_text_read(q, at + 1, row->file, sizeof(row->file));
    return vow__file_record_sound(r) ? 0 : SQLITE_CORRUPT;
}

/* ---- from a damaged file ------------------------------------------------ */

/* Copies what can be read; where the reading fails, the copying ends. Only what
 * is wrong with the new file is an error. */
int vow__file_firm_salvage(struct vow__file *s)
{
    static const struct firm_source firm = {
        .next = "SELECT h,x'',file,body FROM old.firm WHERE h>?1"
                " ORDER BY h LIMIT 1",
        .copy = "INSERT OR REPLACE INTO rec(h,ends,inst,body,file,val)"
                " SELECT h,?2,x'',?3,file,val FROM old.firm WHERE h=?1",
        .read = vow__file_row_read,
        .most = SIZE_MAX,
        .rebooted = true};
    static const struct firm_source version_1 = {.next = OLD_ONCE("old.rec"),
                                                 .copy = OLD_COPY("old.rec"),
                                                 .read = old_row_read,
                                                 .most = SIZE_MAX,
                                                 .rebooted = true};
    static const char pools[] =
        "INSERT OR IGNORE INTO pool"
        " SELECT id,law,label,concurrent,rate,span,0,0,0,0,0,fence,0,0,"
        "9223372036854775807,NULL"
        " FROM old.pool WHERE id=law AND length(id)=32";
    int64_t version = 0;
    int rc = vow__file_pragma(s, "PRAGMA old.user_version", &version);
    if (rc == 0)
        rc = firm_copy_all(s, version == 1 ? &version_1 : &firm);
    if (rc != SQLITE_FULL && rc != SQLITE_NOMEM)
        rc = vow__file_do(s, vow__file_sql(s, pools));
    return rc == SQLITE_FULL || rc == SQLITE_NOMEM ? rc : 0;
}
