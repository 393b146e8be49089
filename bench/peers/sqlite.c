/* SPDX-License-Identifier: MIT */
/* sqlite.c - the floor of claims in a file: SQLite by itself, one immediate
 * transaction with one statement for each step.
 *
 * It has the journal and the durability of the store, and nothing else: no
 * leases, no epochs, nobody who is woken, and SQLite's own way of waiting for
 * others that write. The distance to it is the price of all that.
 */
#include "../named.h"

#include <sqlite3.h>

enum { BUSY_MS = 30000 };

struct bare {
    sqlite3 *db;
    sqlite3_stmt *begin;
    sqlite3_stmt *claim;
    sqlite3_stmt *commit;
    sqlite3_stmt *end;
};

static sqlite3_stmt *prepare(struct bare *b, const char *sql)
{
    sqlite3_stmt *q = NULL;
    MUST(sqlite3_prepare_v2(b->db, sql, -1, &q, NULL) == SQLITE_OK);
    return q;
}

static void run(sqlite3_stmt *q)
{
    MUST(sqlite3_step(q) == SQLITE_DONE);
    MUST(sqlite3_reset(q) == SQLITE_OK);
}

/* The file is made by the first; the others wait for it. */
struct bare *bare_open(const char *folder)
{
    struct bare *b = calloc(1, sizeof(*b));
    char path[300];
    MUST(b != NULL);
    (void)snprintf(path, sizeof(path), "%s/bare.db", folder);
    MUST(sqlite3_open(path, &b->db) == SQLITE_OK);
    MUST(sqlite3_busy_timeout(b->db, BUSY_MS) == SQLITE_OK);
    while (
        sqlite3_exec(b->db,
                     "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;"
                     "CREATE TABLE IF NOT EXISTS claim(name BLOB PRIMARY KEY,"
                     "owner BLOB,ends INT,value BLOB)WITHOUT ROWID",
                     NULL, NULL, NULL) == SQLITE_BUSY)
        nap_us(1000);
    b->begin = prepare(b, "BEGIN IMMEDIATE");
    b->claim = prepare(b, "INSERT INTO claim VALUES(?1,?2,?3,NULL)"
                          " ON CONFLICT DO NOTHING");
    b->commit = prepare(b, "INSERT INTO claim VALUES(?1,?2,?3,?4)"
                           " ON CONFLICT DO UPDATE SET ends=?3,value=?4"
                           " WHERE owner=?2");
    b->end = prepare(b, "COMMIT");
    return b;
}

static void transact(struct bare *b, sqlite3_stmt *q, const vow_name *name,
                     const vow_token *owner)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    (void)sqlite3_bind_blob(q, 1, name, sizeof(*name), SQLITE_STATIC);
    (void)sqlite3_bind_blob(q, 2, owner, sizeof(*owner), SQLITE_STATIC);
    (void)sqlite3_bind_int64(q, 3, t.tv_sec * 1000000 + t.tv_nsec / 1000);
    run(b->begin);
    run(q);
    MUST(sqlite3_changes(b->db) == 1);
    run(b->end);
}

void bare_claim(struct bare *b, const vow_name *name, const vow_token *owner)
{
    transact(b, b->claim, name, owner);
}

void bare_commit(struct bare *b, const vow_name *name, const vow_token *owner,
                 vow_bytes *value)
{
    (void)sqlite3_bind_blob64(b->commit, 4, vow_bytes_data(value),
                              vow_bytes_size(value), SQLITE_STATIC);
    transact(b, b->commit, name, owner);
}

void bare_close(struct bare *b)
{
    (void)sqlite3_finalize(b->begin);
    (void)sqlite3_finalize(b->claim);
    (void)sqlite3_finalize(b->commit);
    (void)sqlite3_finalize(b->end);
    MUST(sqlite3_close(b->db) == SQLITE_OK);
    free(b);
}
