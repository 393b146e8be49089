/* SPDX-License-Identifier: MIT */
/* redis_chunks.c - reads the chunks that an owner writes for followers.
 *
 * WHY   A follower shows the output of a run while the run lasts.
 * HOW   Chunks are numbered by the owner, see lua/write.lua. The number is
 *       sealed in, too: chunks cannot be left out or swapped.
 * LIMITS  READ_MAX chunks by one step.
 * THREADS  loop thread only.
 */
#include "store/redis/redis_names.h"

#include <string.h>

enum { READ_MAX = 64 };

/* A read that is on its way. */
struct chunk_read {
    vow_name name;
    uint64_t epoch;
    uint64_t from;
    vow_chunks_fn done;
    void *user;
};

static void chunks_read(struct vow__redis *r, int code,
                        const struct vow__resp *reply, void *read);
static int chunks_open(struct vow__redis *r, const struct chunk_read *l,
                       const struct vow__resp *reply, vow_bytes **chunks);

/* ---- read --------------------------------------------------------------- */

void vow__redis_read(vow_store *store, const vow_name *name, uint64_t epoch,
                     uint64_t from, vow_chunks_fn done, void *user)
{
    struct vow__redis *r = vow__redis_of(store);
    const struct vow_alloc *alloc = vow__redis_alloc(r);
    char text[VOW_NAME_TEXT];
    if (from >= VOW__REDIS_NUMBER_MAX) {
        done(VOW_EINVAL, NULL, 0, 0, user);
        return;
    }
    struct chunk_read *l = vow__mem_new(alloc, sizeof(*l));
    struct vow__call *c = l == NULL ? NULL : vow__call_new(r, VOW__LUA_READ);
    if (c == NULL) {
        vow__mem_free(alloc, l, sizeof(*l));
        done(VOW_ENOMEM, NULL, 0, 0, user);
        return;
    }
    *l = (struct chunk_read){*name, epoch, from, done, user};
    (void)vow_name_text(name, text);
    vow__call_key(c, "p:", text, "");
    vow__call_key(c, "p:", text, ":c");
    vow__call_uint(c, epoch);
    vow__call_uint(c, from);
    vow__call_uint(c, READ_MAX);
    vow__call_send(c, chunks_read, l);
}

static void chunks_read(struct vow__redis *r, int code,
                        const struct vow__resp *reply, void *read)
{
    struct chunk_read l = *(struct chunk_read *)read;
    vow_bytes *chunks[READ_MAX];
    size_t n = 0;
    vow__mem_free(vow__redis_alloc(r), read, sizeof(l));
    uint64_t status = 2;
    if (code == 0)
        status = vow__resp_uint(vow__resp_at(reply, 0), 2);
    if (code == 0 && status == 0)
        code = VOW_ENOENT;
    else if (code == 0 && (status != 1 || reply->n > READ_MAX + 1))
        code = VOW_EIO;
    else if (code == 0)
        code = chunks_open(r, &l, reply, chunks);
    if (code == VOW_EIO) {
        vow__redis_trouble(r, "chunks in the store cannot be opened: they were "
                              "sealed with another key, or changed");
        code = VOW_ESTORE;
    }
    if (code == 0)
        n = reply->n - 1;
    l.done(code, code == 0 ? chunks : NULL, n, code == 0 ? l.from + n : 0,
           l.user);
    for (size_t i = 0; i < n; i++)
        vow_bytes_unref(chunks[i]);
}

/* All of them or none. */
static int chunks_open(struct vow__redis *r, const struct chunk_read *l,
                       const struct vow__resp *reply, vow_bytes **chunks)
{
    const struct vow__redis_where *w = vow__redis_where_of(r);
    size_t most = w->value_max + (w->sealed ? VOW__SEAL_MORE : 0);
    for (size_t i = 0; i + 1 < reply->n; i++) {
        const struct vow__resp *v = &reply->items[i + 1];
        int rc = VOW_EIO;
        if (v->kind == VOW__RESP_TEXT && v->n <= most)
            rc = vow__redis_unseal(
                r, &(struct vow__seal_of){&l->name, l->epoch, l->from + i + 1},
                v->text, v->n, &chunks[i]);
        if (rc == 0)
            continue;
        while (i > 0)
            vow_bytes_unref(chunks[--i]);
        return rc == VOW_ENOENT ? VOW_EIO : rc;
    }
    return 0;
}
