/* SPDX-License-Identifier: MIT */
/* file_chunk.c - chunks of a result, for followers of the run.
 *
 * HOW   A row per chunk, with the number that the owner gave, as long as the
 *       epoch runs. The record counts the chunks, so that the end of a run
 *       without chunks costs nothing. Each chunk wakes the waiters; a follower
 *       reads some chunks at a time.
 * LIMITS  All chunks of a run together are at most as long as a value.
 * THREADS  loop thread only.
 */
#include "base/bytes.h"
#include "store/file/file_rows.h"

#include <string.h>

enum { PAGE_MAX = 64, PAGE_BYTES = 1 << 20 };

struct chunk_reading {
    const vow_name *name;
    uint64_t epoch;
    uint64_t from;
    size_t n;
    vow_bytes *chunks[PAGE_MAX];
};

static int chunk_read_step(struct vow__file *s, void *arg);
static int collect_chunks(struct vow__file *s, struct chunk_reading *r,
                          int64_t chunks);
static void drop_chunks(struct chunk_reading *r);

int vow__file_chunk_add(struct vow__file *s, const vow_name *name,
                        uint32_t number, const struct vow__file_value *chunk)
{
    sqlite3_stmt *q =
        vow__file_sql(s, "INSERT OR REPLACE INTO chunk VALUES(?1,?2,?3)");
    vow__file_bind(q, 1, name->hash, sizeof(name->hash));
    vow__file_bind_int(q, 2, number);
    vow__file_value_bind(q, 3, chunk);
    return vow__file_do(s, q);
}

void vow__file_chunk_read(vow_store *store, const vow_name *name,
                          uint64_t epoch, uint64_t from, vow_chunks_fn done,
                          void *user)
{
    struct vow__file *s = vow__file_of(store);
    struct chunk_reading r = {.name = name, .epoch = epoch, .from = from};
    int code = vow__file_step(s, VOW__FILE_READ, chunk_read_step, &r);
    if (code == 0)
        done(0, r.chunks, r.n, from + r.n, user);
    else
        done(code, NULL, 0, from, user);
    drop_chunks(&r);
}

static int chunk_read_step(struct vow__file *s, void *arg)
{
    struct chunk_reading *r = arg;
    struct vow__file_row row;
    drop_chunks(r);
    int rc = vow__file_row_find(s, r->name, &row);
    if (rc != 0)
        return rc;
    if (row.record.state != RULES_RUNNING || row.record.epoch != r->epoch)
        return VOW_ENOENT;
    return r->from >= row.record.chunks
               ? 0
               : collect_chunks(s, r, row.record.chunks);
}

static int collect_chunks(struct vow__file *s, struct chunk_reading *r,
                          int64_t chunks)
{
    sqlite3_stmt *q =
        vow__file_sql(s, "SELECT data FROM chunk WHERE h=?1 AND n>=?2 AND n<?3"
                         " ORDER BY n");
    size_t bytes = 0;
    int rc;
    vow__file_bind(q, 1, r->name->hash, sizeof(r->name->hash));
    vow__file_bind_int(q, 2, (int64_t)r->from);
    vow__file_bind_int(q, 3, chunks);
    while (vow__file_row(s, q, &rc)) {
        size_t size = (size_t)sqlite3_column_bytes(q, 0);
        rc = vow__bytes_make(&s->alloc, sqlite3_column_blob(q, 0), size,
                             &r->chunks[r->n]);
        bytes += size;
        if (rc == 0)
            r->n++;
        if (rc == 0 && r->n < PAGE_MAX && bytes < PAGE_BYTES)
            continue;
        (void)sqlite3_reset(q);
        return rc;
    }
    return rc;
}

static void drop_chunks(struct chunk_reading *r)
{
    for (size_t i = 0; i < r->n; i++)
        vow_bytes_unref(r->chunks[i]);
    r->n = 0;
}
