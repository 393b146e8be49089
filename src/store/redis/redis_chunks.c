/* SPDX-License-Identifier: MIT */
/* redis_chunks.c - what an owner writes for those who follow.
 *
 * WHY   A chunk whose answer was lost is written again by the same step. It
 *       must not be there twice, and none may be missing between two others.
 * HOW   Each chunk has its number among those of the run, which is sent with
 *       it: the server adds the next one only. A writer counts them for each
 *       run it writes to, and sends one after the other. If one is unsure, its
 *       bytes are kept: the same bytes once more are the same chunk. A writer
 *       that does not know how many there are, because another one wrote, is
 *       told, and sends it again.
 *       The number is sealed in, too: chunks cannot be left out or swapped.
 * INVARIANTS
 *   W1  of the chunks of a writer the first is on its way, the others wait
 *   W2  a writer without chunks is in the list of idle ones
 * LIMITS  IDLE_MAX idle writers are remembered; a forgotten one is told how
 *       many chunks there are. What waits is not larger than a result. When a
 *       chunk fails, those that wait behind it fail too; behind one that is
 *       unsure and not there, all fail with VOW_EAGAIN.
 * THREADS  loop thread only.
 */
#include "base/bytes.h"
#include "store/redis/redis_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    IDLE_MAX = 1024,
    TRIES = 4,     /* to learn how many there are */
    READ_MAX = 64, /* by one step */
    INSTANCE = 32, /* digits at the end of a channel */
    ID_SIZE = 64
};
/* What write.lua says besides VOW_STATUS_...: */
enum { TOO_LARGE = 253, NOT_THE_NEXT = 254 };

struct writer {
    struct vow__table_node named;
    struct {
        vow_name name;
        uint64_t epoch;
    } key;
    vow_link idle;
    vow_link *chunks;
    size_t bytes;      /* of them */
    uint64_t next;     /* number */
    vow_bytes *unsure; /* that may be the next, and there; NULL: none */
    uint64_t id;       /* of no other of this instance */
};

struct chunk {
    vow_link link;
    struct writer *of; /* NULL: the run is over for us */
    vow_hold hold;
    vow_bytes *bytes;
    bool sent;
    int tries;
    vow_records_fn done;
    void *user;
};

/* A read that is on its way. */
struct look {
    vow_name name;
    uint64_t epoch;
    uint64_t from;
    vow_chunks_fn done;
    void *user;
};

static struct writer *writer_find(struct vow__redis_told *t,
                                  const vow_name *name, uint64_t epoch);
static struct writer *writer_for(struct vow__redis_told *t,
                                 const vow_hold *hold);
static void writer_free(struct vow__redis_told *t, struct writer *w);
static struct chunk *chunk_new(struct vow__redis_told *t, struct writer *w,
                               vow_bytes *bytes);
static void writer_id(struct vow__redis *r, const struct writer *w,
                      char id[ID_SIZE]);
static bool same_bytes(vow_bytes *a, vow_bytes *b);
static void chunk_leave(struct vow__redis_told *t, struct chunk *c);
static void chunk_end(struct vow__redis_told *t, struct chunk *c, int code,
                      uint32_t status);
static void chunk_send(struct vow__redis *r, struct chunk *c);
static void on_written(struct vow__redis *r, int code,
                       const struct vow__resp *reply, void *chunk);
static bool send_again(struct chunk *c, uint64_t there);
static void answered(struct vow__redis *r, struct chunk *c, int code,
                     uint32_t status);
static void failed(struct vow__redis *r, struct chunk *c, int code);
static void on_read(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *look);
static int open_chunks(struct vow__redis *r, const struct look *l,
                       const struct vow__resp *reply, vow_bytes **chunks);

/* ---- write -------------------------------------------------------------- */

void vow__redis_write(vow_store *store, const vow_hold *hold, uint64_t number,
                      vow_bytes *chunk, vow_records_fn done, void *user)
{
    (void)number;
    struct vow__redis *r = vow__redis_of(store);
    struct vow__redis_told *t = vow__redis_told(r);
    struct writer *w = writer_for(t, hold);
    size_t waits = w == NULL ? 0 : w->bytes;
    size_t most = vow__redis_where_of(r)->value_max;
    struct chunk *c = NULL;
    int rc = VOW_ENOMEM;
    if (waits > most || vow_bytes_size(chunk) > most - waits)
        rc = VOW_E2BIG;
    else if (w != NULL)
        c = chunk_new(t, w, chunk);
    if (c == NULL) {
        done(rc, NULL, 0, user);
        return;
    }
    c->hold = *hold;
    c->done = done;
    c->user = user;
    if (w->chunks == &c->link)
        chunk_send(r, c);
}

/* NULL without memory. */
static struct chunk *chunk_new(struct vow__redis_told *t, struct writer *w,
                               vow_bytes *bytes)
{
    struct chunk *c = vow__mem_zero(&t->alloc, sizeof(*c));
    if (c == NULL)
        return NULL;
    if (w->chunks == NULL) /* keeps W2 */
        vow__list_remove(&t->writers_idle, &w->idle);
    vow__list_push(&w->chunks, &c->link);
    w->bytes += vow_bytes_size(bytes);
    c->of = w;
    c->bytes = vow_bytes_ref(bytes);
    return c;
}

/* The first of its writer. If it is not the one that is unsure, that is taken
 * to be there: else the server will refuse this one. */
static void chunk_send(struct vow__redis *r, struct chunk *c)
{
    const vow_hold *hold = &c->hold;
    struct writer *w = c->of;
    char name[VOW_NAME_TEXT];
    char id[ID_SIZE];
    vow_bytes *sealed = NULL;
    uint64_t number = w->next;
    if (w->unsure != NULL && !same_bytes(w->unsure, c->bytes))
        number++;
    int rc = vow__redis_seal(
        r, &(struct vow__seal_of){&hold->name, hold->epoch, number + 1},
        UINT64_MAX, c->bytes, &sealed);
    struct vow__call *call = rc < 0 ? NULL : vow__call_new(r, VOW__LUA_WRITE);
    if (call == NULL) {
        vow_bytes_unref(sealed);
        failed(r, c, VOW_ENOMEM);
        return;
    }
    (void)vow_name_text(&hold->name, name);
    writer_id(r, w, id);
    vow__call_key(call, "p:", name, "");
    vow__call_key(call, "p:", name, ":w");
    vow__call_key(call, "p:", name, ":c");
    vow__call_arg(call, hold->token.bytes, sizeof(hold->token.bytes));
    vow__call_uint(call, hold->epoch);
    vow__call_uint(call, number);
    vow__call_text(call, id);
    vow__call_uint(call, vow_bytes_size(c->bytes));
    vow__call_uint(call, vow__redis_where_of(r)->value_max);
    vow__call_text(call, name);
    vow__call_arg(call, sealed == NULL ? "" : (char *)vow_bytes_data(sealed),
                  vow_bytes_size(sealed));
    vow_bytes_unref(sealed);
    c->sent = true;
    vow__call_send(call, on_written, c);
}

/* Of this instance, and among its writers. */
static void writer_id(struct vow__redis *r, const struct writer *w,
                      char id[ID_SIZE])
{
    const char *channel = vow__redis_channel(r);
    size_t n = strlen(channel);
    (void)snprintf(id, ID_SIZE, "%s %" PRIu64,
                   channel + (n > INSTANCE ? n - INSTANCE : 0), w->id);
}

static bool same_bytes(vow_bytes *a, vow_bytes *b)
{
    size_t n = vow_bytes_size(a);
    return a == b ||
           (n == vow_bytes_size(b) &&
            (n == 0 || memcmp(vow_bytes_data(a), vow_bytes_data(b), n) == 0));
}

static void on_written(struct vow__redis *r, int code,
                       const struct vow__resp *reply, void *chunk)
{
    struct chunk *c = chunk;
    uint64_t status = 0;
    if (code == 0)
        status = vow__resp_uint(vow__resp_at(reply, 0), 0);
    if (code != 0) {
        failed(r, c, code);
    } else if (status == VOW_STATUS_OWNED || status == VOW_STATUS_LOST) {
        answered(r, c, 0, (uint32_t)status);
    } else if (status == TOO_LARGE) {
        answered(r, c, VOW_E2BIG, 0);
    } else if (status == NOT_THE_NEXT) {
        if (send_again(c, vow__resp_uint(vow__resp_at(reply, 1), 0)))
            chunk_send(r, c);
        else
            failed(r, c, VOW_EAGAIN);
    } else {
        vow__redis_trouble(r, "the answer of the server makes no sense");
        failed(r, c, VOW_EUNSURE);
    }
}

/* There are more than it thought, written by others: this is the next. */
static bool send_again(struct chunk *c, uint64_t there)
{
    struct writer *w = c->of;
    if (w == NULL || there <= w->next || there >= VOW__REDIS_NUMBER_MAX ||
        w->unsure != NULL || ++c->tries > TRIES)
        return false;
    w->next = there;
    return true;
}

static void answered(struct vow__redis *r, struct chunk *c, int code,
                     uint32_t status)
{
    struct vow__redis_told *t = vow__redis_told(r);
    const vow_hold hold = c->hold;
    struct writer *w = c->of;
    if (w != NULL && status == VOW_STATUS_OWNED) {
        w->next += w->unsure != NULL && !same_bytes(w->unsure, c->bytes);
        w->next++;
        w->unsure = vow_bytes_unref(w->unsure);
    }
    chunk_end(t, c, code, status);
    w = writer_find(t, &hold.name, hold.epoch); /* it may be another's now */
    if (w == NULL || w->chunks == NULL)
        return;
    c = VOW__OUTER(w->chunks, struct chunk, link);
    if (!c->sent)
        chunk_send(r, c);
}

/* So do those behind it; only of this one it may not be known. */
static void failed(struct vow__redis *r, struct chunk *c, int code)
{
    struct vow__redis_told *t = vow__redis_told(r);
    struct writer *w = c->of;
    vow_link *l;
    vow_link *rest = NULL;
    while (w != NULL && (l = c->link.next) != NULL) {
        chunk_leave(t, VOW__OUTER(l, struct chunk, link));
        vow__list_push(&rest, l);
    }
    if (w != NULL && code == VOW_EUNSURE && w->unsure == NULL)
        w->unsure = vow_bytes_ref(c->bytes);
    chunk_end(t, c, code, 0);
    while ((l = vow__list_take(&rest)) != NULL)
        chunk_end(t, VOW__OUTER(l, struct chunk, link),
                  code == VOW_EUNSURE ? VOW_EAGAIN : code, 0);
}

/* It is answered, and gone. */
static void chunk_end(struct vow__redis_told *t, struct chunk *c, int code,
                      uint32_t status)
{
    vow_records_fn done = c->done;
    void *user = c->user;
    vow_record rec = {.name = c->hold.name,
                      .status = status,
                      .epoch = status == VOW_STATUS_OWNED ? c->hold.epoch : 0,
                      .label = "",
                      .runner = ""};
    chunk_leave(t, c);
    vow_bytes_unref(c->bytes);
    vow__mem_free(&t->alloc, c, sizeof(*c));
    done(code, code == 0 ? &rec : NULL, code == 0, user);
}

static void chunk_leave(struct vow__redis_told *t, struct chunk *c)
{
    struct writer *w = c->of;
    if (w == NULL)
        return;
    vow__list_remove(&w->chunks, &c->link);
    w->bytes -= vow_bytes_size(c->bytes);
    c->of = NULL;
    if (w->chunks == NULL) /* keeps W2 */
        vow__list_push(&t->writers_idle, &w->idle);
}

/* ---- writers ------------------------------------------------------------ */

static struct writer *writer_find(struct vow__redis_told *t,
                                  const vow_name *name, uint64_t epoch)
{
    struct writer w = {.key = {.name = *name, .epoch = epoch}};
    struct vow__table_node *n =
        vow__table_find(&t->writers, (const char *)&w.key, sizeof(w.key));
    return n == NULL ? NULL : VOW__OUTER(n, struct writer, named);
}

/* NULL without memory. */
static struct writer *writer_for(struct vow__redis_told *t,
                                 const vow_hold *hold)
{
    struct writer *w = writer_find(t, &hold->name, hold->epoch);
    if (w != NULL)
        return w;
    if (t->writers.count >= IDLE_MAX && t->writers_idle != NULL)
        writer_free(t, VOW__OUTER(t->writers_idle, struct writer, idle));
    w = vow__mem_zero(&t->alloc, sizeof(*w));
    if (w == NULL)
        return NULL;
    w->key.name = hold->name;
    w->key.epoch = hold->epoch;
    w->named.name = (const char *)&w->key;
    w->named.length = sizeof(w->key);
    w->id = ++t->writers_made;
    if (vow__table_add(&t->writers, &w->named) < 0) {
        vow__mem_free(&t->alloc, w, sizeof(*w));
        return NULL;
    }
    vow__list_push(&t->writers_idle, &w->idle);
    return w;
}

/* It has no chunks. */
static void writer_free(struct vow__redis_told *t, struct writer *w)
{
    VOW__ASSERT(w->chunks == NULL);
    vow__list_remove(&t->writers_idle, &w->idle);
    vow__table_remove(&t->writers, &w->named);
    vow_bytes_unref(w->unsure);
    vow__mem_free(&t->alloc, w, sizeof(*w));
}

void vow__writer_over(struct vow__redis *r, const vow_name *name,
                      uint64_t epoch)
{
    struct vow__redis_told *t = vow__redis_told(r);
    struct writer *w = writer_find(t, name, epoch);
    vow_link *l;
    vow_link *rest = NULL;
    if (w == NULL)
        return;
    while ((l = w->chunks) != NULL) {
        struct chunk *c = VOW__OUTER(l, struct chunk, link);
        chunk_leave(t, c);
        if (!c->sent) /* else it ends by itself */
            vow__list_push(&rest, l);
    }
    writer_free(t, w);
    while ((l = vow__list_take(&rest)) != NULL)
        chunk_end(t, VOW__OUTER(l, struct chunk, link), VOW_EAGAIN, 0);
}

/* All steps were answered. */
void vow__writers_close(struct vow__redis_told *t)
{
    struct vow__table_node *n;
    while ((n = vow__table_next(&t->writers, NULL)) != NULL)
        writer_free(t, VOW__OUTER(n, struct writer, named));
}

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
    struct look *l = vow__mem_new(alloc, sizeof(*l));
    struct vow__call *c = l == NULL ? NULL : vow__call_new(r, VOW__LUA_READ);
    if (c == NULL) {
        vow__mem_free(alloc, l, sizeof(*l));
        done(VOW_ENOMEM, NULL, 0, 0, user);
        return;
    }
    *l = (struct look){*name, epoch, from, done, user};
    (void)vow_name_text(name, text);
    vow__call_key(c, "p:", text, "");
    vow__call_key(c, "p:", text, ":c");
    vow__call_uint(c, epoch);
    vow__call_uint(c, from);
    vow__call_uint(c, READ_MAX);
    vow__call_send(c, on_read, l);
}

static void on_read(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *look)
{
    struct look l = *(struct look *)look;
    vow_bytes *chunks[READ_MAX];
    size_t n = 0;
    vow__mem_free(vow__redis_alloc(r), look, sizeof(l));
    uint64_t status = 2;
    if (code == 0)
        status = vow__resp_uint(vow__resp_at(reply, 0), 2);
    if (code == 0 && status == 0)
        code = VOW_ENOENT;
    else if (code == 0 && (status != 1 || reply->n > READ_MAX + 1))
        code = VOW_EIO;
    else if (code == 0)
        code = open_chunks(r, &l, reply, chunks);
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
static int open_chunks(struct vow__redis *r, const struct look *l,
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
