/* SPDX-License-Identifier: MIT */
/* file_chunk.c - pieces of a result, for those who follow while it is made.
 *
 * HOW   A row per chunk, numbered from 0, as long as the epoch runs. The record
 *       counts them, so that the end of a run without any costs nothing. Who
 *       waits for the name is woken by each; who reads gets some at a time.
 * LIMITS  All chunks of a run together are at most as long as a value.
 * THREADS  loop thread only.
 */
#include "base/bytes.h"
#include "store/file/file_rows.h"

#include <string.h>

enum { PAGE_MAX = 64, PAGE_BYTES = 1 << 20 };

struct writing {
    const vow_hold *hold;
    vow_bytes *chunk;
    struct vow__file_rec rec;
    uint32_t status;
};

struct reading {
    const vow_name *name;
    uint64_t epoch;
    uint64_t from;
    size_t n;
    vow_bytes *chunks[PAGE_MAX];
};

static int write_step(struct vow__file *s, void *arg);
static int tell_all(struct vow__file *s, const vow_name *name);
static int read_step(struct vow__file *s, void *arg);
static int collect(struct vow__file *s, struct reading *r, int64_t chunks);
static void drop(struct reading *r);

void vow__file_chunk_write(vow_store *store, const vow_hold *hold,
                           uint64_t number, vow_bytes *chunk,
                           vow_records_fn done, void *user)
{
    (void)number;
    struct vow__file *s = vow__file_of(store);
    struct writing w = {.hold = hold, .chunk = chunk};
    int code = vow_bytes_size(chunk) > s->opts.value_max ? VOW_E2BIG : 0;
    if (code == 0)
        code = vow__file_step(s, VOW__FILE_WRITE, write_step, &w);
    vow_record r = {
        .name = hold->name, .status = w.status, .label = "", .runner = ""};
    if (w.status == VOW_STATUS_OWNED)
        r.epoch = hold->epoch;
    done(code, code == 0 ? &r : NULL, code == 0, user);
}

static int write_step(struct vow__file *s, void *arg)
{
    struct writing *w = arg;
    struct vow__file_rec *r = &w->rec;
    int rc = vow__file_rec_find(s, &w->hold->name, r);
    if (rc != 0)
        return rc;
    w->status = VOW_STATUS_LOST;
    if (!r->there || r->state != FILE_RUNS ||
        (uint64_t)r->epoch != w->hold->epoch ||
        memcmp(&r->token, &w->hold->token, sizeof(r->token)) != 0)
        return 0;
    w->status = VOW_STATUS_OWNED;
    int64_t size = (int64_t)vow_bytes_size(w->chunk);
    if (size > (int64_t)s->opts.value_max - r->bytes)
        return VOW_E2BIG;
    sqlite3_stmt *q =
        vow__file_sql(s, "INSERT OR REPLACE INTO chunk VALUES(?1,?2,?3)");
    vow__file_bind(q, 1, r->name.hash, sizeof(r->name.hash));
    vow__file_bind_int(q, 2, r->chunks);
    vow__file_value_bind(q, 3, &(struct vow__file_value){.bytes = w->chunk});
    rc = vow__file_do(s, q);
    if (rc != 0)
        return rc;
    r->chunks++;
    r->bytes += size;
    rc = vow__file_rec_put(s, r, NULL);
    return rc == 0 ? tell_all(s, &r->name) : rc;
}

static int tell_all(struct vow__file *s, const vow_name *name)
{
    sqlite3_stmt *q =
        vow__file_sql(s, "SELECT inst FROM wait WHERE h=?1 AND epoch=0");
    int rc;
    vow__file_bind(q, 1, name->hash, sizeof(name->hash));
    while (vow__file_row(s, q, &rc)) {
        unsigned char id[FILE_ID];
        vow__file_bytes_read(q, 0, id, FILE_ID);
        vow__file_tell(s, id, FILE_CHUNKS, name->hash, sizeof(name->hash));
    }
    return rc;
}

void vow__file_chunk_read(vow_store *store, const vow_name *name,
                          uint64_t epoch, uint64_t from, vow_chunks_fn done,
                          void *user)
{
    struct vow__file *s = vow__file_of(store);
    struct reading r = {.name = name, .epoch = epoch, .from = from};
    int code = vow__file_step(s, VOW__FILE_READ, read_step, &r);
    if (code == 0)
        done(0, r.chunks, r.n, from + r.n, user);
    else
        done(code, NULL, 0, from, user);
    drop(&r);
}

static int read_step(struct vow__file *s, void *arg)
{
    struct reading *r = arg;
    struct vow__file_rec rec;
    drop(r);
    int rc = vow__file_rec_find(s, r->name, &rec);
    if (rc != 0)
        return rc;
    if (!rec.there || rec.state != FILE_RUNS || (uint64_t)rec.epoch != r->epoch)
        return VOW_ENOENT;
    return r->from >= (uint64_t)rec.chunks ? 0 : collect(s, r, rec.chunks);
}

static int collect(struct vow__file *s, struct reading *r, int64_t chunks)
{
    sqlite3_stmt *q = vow__file_sql(
        s, "SELECT data FROM chunk WHERE h=?1 AND seq>=?2 AND seq<?3"
           " ORDER BY seq");
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

static void drop(struct reading *r)
{
    for (size_t i = 0; i < r->n; i++)
        vow_bytes_unref(r->chunks[i]);
    r->n = 0;
}
