/* SPDX-License-Identifier: MIT */
/* redis_look.c - lists of all names and of all pools.
 *
 * HOW   A list is a fiber (redis_fiber.c). No index of names is kept, because
 *       every step would have to write the index: SCAN walks the keys of all
 *       masters at once, a page of each master at a time. The names found are
 *       sorted, because SCAN may give a key twice. Then the records are read by
 *       peek, a page at a time, and the pools by a script per pool, many pools
 *       at a time.
 * LIMITS  O(keys at the servers). A record that is made or deleted during the
 *       walk may be missing. Some hundred bytes per name or pool.
 * THREADS  loop thread only.
 */
#include "store/redis/redis_pools.h"

#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SCAN_COUNT = 512,
    PAGE = 256,    /* names in one peek */
    AT_ONCE = 128, /* requests for pools */
    FIRST_ROOM = 64,
    PATTERN_MAX = 512,
    CURSOR_MAX = 32,
    LETTERS = VOW_NAME_TEXT - 1 /* of a name */
};

struct found {
    vow_name tag;
    vow_name name; /* the same, or the name of the pool of a key */
};

/* The labels and runners of a page of records. */
struct texts {
    struct texts *next;
    size_t size; /* of the block */
    char bytes[];
};

struct pool_row {
    struct look *look;
    vow_pool_info *info;
    char label[VOW_LABEL_MAX + 1];
};

struct look {
    struct vow__redis_fiber fiber;
    vow_store *store;
    vow_records_fn names_done; /* NULL: a list of pools */
    vow_pools_fn pools_done;
    void *user;
    vow_link *walks; /* that have another page */
    struct found *found;
    size_t n, room;
    vow_record *records; /* room for n, as have infos and rows */
    vow_pool_info *infos;
    size_t kept; /* records or infos in the answer */
    struct texts *texts;
    struct pool_row *rows;
};

/* The keys of one master. */
struct walk {
    vow_link link;
    struct look *look;
    size_t node;
    char cursor[CURSOR_MAX];
};

static void look_begin(const struct look *like);
static int look_run(struct vow__redis_fiber *f);
static int walk_masters(struct look *l);
static void scan_words(const struct look *l, const char *cursor,
                       struct vow__buf *ret_command);
static void on_first_page(struct vow__redis *r, int code,
                          const struct vow__resp *reply, size_t node, bool last,
                          void *look);
static void on_next_page(struct vow__redis *r, int code,
                         const struct vow__resp *reply, void *walk);
static int read_page(struct look *l, const struct vow__resp *reply);
static int found_read(struct look *l, const struct vow__resp *key);
static bool name_at(const char *text, size_t n, vow_name *ret_name);
static int found_add(struct look *l, const struct found *f);
static void found_sort(struct look *l);
static int compare_found(const void *a, const void *b);
static int ask_names(struct look *l);
static void on_names(int code, const vow_record *records, size_t n, void *look);
static int records_keep(struct look *l, const vow_record *records, size_t n);
static int ask_pools(struct look *l);
static void ask_pool(struct look *l, size_t i);
static void on_pool(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *row);
static void look_give(const struct look *l, int code);
static void look_end(struct vow__redis_fiber *f, int code);

void vow__redis_list(vow_store *store, vow_records_fn done, void *user)
{
    look_begin(
        &(struct look){.store = store, .names_done = done, .user = user});
}

void vow__redis_pools(vow_store *store, vow_pools_fn done, void *user)
{
    look_begin(
        &(struct look){.store = store, .pools_done = done, .user = user});
}

static void look_begin(const struct look *like)
{
    struct vow__redis *r = vow__redis_of(like->store);
    struct look *l = vow__mem_new(vow__redis_alloc(r), sizeof(*l));
    if (l == NULL) {
        look_give(like, VOW_ENOMEM);
        return;
    }
    *l = *like;
    vow__redis_fiber_start(&l->fiber, r, look_run, look_end);
}

static int look_run(struct vow__redis_fiber *f)
{
    struct look *l = VOW__OUTER(f, struct look, fiber);
    int rc = walk_masters(l);
    if (rc < 0)
        return rc;
    found_sort(l);
    return l->names_done != NULL ? ask_names(l) : ask_pools(l);
}

/* ---- walking ------------------------------------------------------------- */

static int walk_masters(struct look *l)
{
    struct vow__redis_fiber *f = &l->fiber;
    struct vow__buf c;
    scan_words(l, "0", &c);
    vow__redis_fiber_begin(f);
    vow__redis_each(f->r, &c, on_first_page, l);
    vow__buf_fini(&c);
    while (vow__redis_fiber_wait(f, 0) == 0 && l->walks != NULL) {
        vow_link *walks = l->walks;
        l->walks = NULL;
        for (vow_link *at; (at = vow__list_take(&walks)) != NULL;) {
            struct walk *w = VOW__OUTER(at, struct walk, link);
            scan_words(l, w->cursor, &c);
            vow__redis_fiber_begin(f);
            vow__redis_one(f->r, w->node, &c, on_next_page, w);
            vow__buf_fini(&c);
        }
    }
    return f->code;
}

/* Makes a SCAN. The prefix has no signs of a pattern. */
static void scan_words(const struct look *l, const char *cursor,
                       struct vow__buf *ret_command)
{
    const char *prefix = vow__redis_where_of(l->fiber.r)->prefix;
    struct vow__buf *c = ret_command;
    char pattern[PATTERN_MAX];
    int n = snprintf(pattern, sizeof(pattern), "%s%s", prefix,
                     l->names_done != NULL ? "p:{*" : "s:{*");
    VOW__ASSERT(n > 0 && (size_t)n < sizeof(pattern));
    vow__command_init(c, vow__redis_alloc(l->fiber.r));
    vow__command_begin(c, 6);
    vow__command_text(c, "SCAN");
    vow__command_text(c, cursor);
    vow__command_text(c, "MATCH");
    vow__command_text(c, pattern);
    vow__command_text(c, "COUNT");
    vow__command_uint(c, SCAN_COUNT);
}

/* Takes the first page of a master. One request of the fiber has an answer per
 * master: each answer but the last counts as a request more. */
static void on_first_page(struct vow__redis *r, int code,
                          const struct vow__resp *reply, size_t node, bool last,
                          void *look)
{
    struct look *l = look;
    struct walk *w = vow__mem_new(vow__redis_alloc(r), sizeof(*w));
    if (!last)
        vow__redis_fiber_begin(&l->fiber);
    if (w == NULL) {
        vow__redis_fiber_answered(&l->fiber, VOW_ENOMEM);
        return;
    }
    *w = (struct walk){.look = l, .node = node};
    on_next_page(r, code, reply, w);
}

/* Takes a page. The walk goes on, unless all keys of the master were seen. */
static void on_next_page(struct vow__redis *r, int code,
                         const struct vow__resp *reply, void *walk)
{
    struct walk *w = walk;
    struct look *l = w->look;
    const struct vow__resp *cursor = NULL;
    if (code == 0)
        code = read_page(l, reply);
    if (code == 0)
        cursor = vow__resp_at(reply, 0);
    if (cursor != NULL && !vow__resp_is(cursor, "0")) {
        vow__redis_text_copy(w->cursor, CURSOR_MAX, cursor->text, cursor->n);
        vow__list_push(&l->walks, &w->link);
    } else {
        vow__mem_free(vow__redis_alloc(r), w, sizeof(*w));
    }
    vow__redis_fiber_answered(&l->fiber, code);
}

static int read_page(struct look *l, const struct vow__resp *reply)
{
    const struct vow__resp *keys = vow__resp_at(reply, 1);
    if (reply->kind != VOW__RESP_LIST || keys->kind != VOW__RESP_LIST ||
        vow__resp_at(reply, 0)->kind != VOW__RESP_TEXT) {
        if (reply->kind == VOW__RESP_ERROR)
            vow__redis_trouble(
                l->fiber.r, "the server does not let us list: %.*s",
                (int)(reply->n < 200 ? reply->n : 200), reply->text);
        else
            vow__redis_trouble(l->fiber.r,
                               "the server gave an answer that is none");
        return VOW_ESTORE;
    }
    int rc = 0;
    for (size_t i = 0; i < keys->n && rc == 0; i++)
        rc = found_read(l, vow__resp_at(keys, i));
    return rc;
}

/* Adds the name of PREFIX p:{NAME}, PREFIX s:{NAME} or PREFIX s:{NAME}:NAME.
 * All other keys belong to one of these keys. */
static int found_read(struct look *l, const struct vow__resp *key)
{
    size_t skip = strlen(vow__redis_where_of(l->fiber.r)->prefix) + 3;
    struct found f;
    if (key->kind != VOW__RESP_TEXT || key->n < skip + LETTERS + 1 ||
        key->text[skip + LETTERS] != '}' ||
        !name_at(key->text + skip, LETTERS, &f.tag))
        return 0;
    const char *rest = key->text + skip + LETTERS + 1;
    size_t n = key->n - skip - LETTERS - 1;
    f.name = f.tag;
    bool good = n == 0;
    if (n == LETTERS + 1 && rest[0] == ':' && l->names_done == NULL)
        good = name_at(rest + 1, LETTERS, &f.name);
    return good ? found_add(l, &f) : 0;
}

static bool name_at(const char *text, size_t n, vow_name *ret_name)
{
    char copy[VOW_NAME_TEXT];
    vow__redis_text_copy(copy, sizeof(copy), text, n);
    return vow_name_parse(copy, ret_name);
}

static int found_add(struct look *l, const struct found *f)
{
    const struct vow_alloc *alloc = vow__redis_alloc(l->fiber.r);
    if (l->n == l->room) {
        size_t room = l->room == 0 ? FIRST_ROOM : 2 * l->room;
        struct found *found = vow__mem_new(alloc, room * sizeof(*found));
        if (found == NULL)
            return VOW_ENOMEM;
        if (l->n > 0)
            memcpy(found, l->found, l->n * sizeof(*found));
        vow__mem_free(alloc, l->found, l->room * sizeof(*found));
        l->found = found;
        l->room = room;
    }
    l->found[l->n++] = *f;
    return 0;
}

static void found_sort(struct look *l)
{
    size_t n = 0;
    if (l->n > 0)
        qsort(l->found, l->n, sizeof(l->found[0]), compare_found);
    for (size_t i = 0; i < l->n; i++)
        if (n == 0 || compare_found(&l->found[n - 1], &l->found[i]) != 0)
            l->found[n++] = l->found[i];
    l->n = n;
}

static int compare_found(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct found));
}

/* ---- names --------------------------------------------------------------- */

static int ask_names(struct look *l)
{
    struct vow__redis_fiber *f = &l->fiber;
    vow_name names[PAGE];
    l->records = vow__mem_new(vow__redis_alloc(f->r),
                              (l->n + 1) * sizeof(l->records[0]));
    if (l->records == NULL)
        return VOW_ENOMEM;
    for (size_t at = 0; f->code == 0 && at < l->n; at += PAGE) {
        size_t n = l->n - at < PAGE ? l->n - at : PAGE;
        for (size_t i = 0; i < n; i++)
            names[i] = l->found[at + i].name;
        vow__redis_fiber_begin(f);
        vow__redis_peek(l->store, names, n, on_names, l);
        (void)vow__redis_fiber_wait(f, 0);
    }
    return f->code;
}

static void on_names(int code, const vow_record *records, size_t n, void *look)
{
    struct look *l = look;
    vow__redis_fiber_answered(&l->fiber,
                              code == 0 ? records_keep(l, records, n) : code);
}

static char *text_into(const char *text, char **texts)
{
    char *at = *texts;
    size_t size = strlen(text) + 1;
    memcpy(at, text, size);
    *texts += size;
    return at;
}

static int records_keep(struct look *l, const vow_record *records, size_t n)
{
    size_t size = sizeof(struct texts);
    for (size_t i = 0; i < n; i++)
        size += strlen(records[i].label) + strlen(records[i].runner) + 2;
    struct texts *t = vow__mem_new(vow__redis_alloc(l->fiber.r), size);
    if (t == NULL)
        return VOW_ENOMEM;
    *t = (struct texts){.next = l->texts, .size = size};
    l->texts = t;
    char *texts = t->bytes;
    for (size_t i = 0; i < n; i++) {
        if (records[i].status == VOW_STATUS_NONE) /* deleted since the walk */
            continue;
        vow_record *to = &l->records[l->kept++];
        *to = records[i];
        to->label = text_into(records[i].label, &texts);
        to->runner = text_into(records[i].runner, &texts);
    }
    return 0;
}

/* ---- pools --------------------------------------------------------------- */

/* Waits for half of the requests, so that the next requests leave together. */
static int ask_pools(struct look *l)
{
    struct vow__redis_fiber *f = &l->fiber;
    const struct vow_alloc *alloc = vow__redis_alloc(f->r);
    l->infos = vow__mem_zero(alloc, (l->n + 1) * sizeof(l->infos[0]));
    l->rows = vow__mem_new(alloc, (l->n + 1) * sizeof(l->rows[0]));
    if (l->infos == NULL || l->rows == NULL)
        return VOW_ENOMEM;
    for (size_t i = 0; f->code == 0 && i < l->n; i++)
        if (f->requests < AT_ONCE || vow__redis_fiber_wait(f, AT_ONCE / 2) == 0)
            ask_pool(l, i);
    int rc = vow__redis_fiber_wait(f, 0);
    for (size_t i = 0; rc == 0 && i < l->n; i++)
        if (l->infos[i].label != NULL)
            l->infos[l->kept++] = l->infos[i];
    return rc;
}

static void ask_pool(struct look *l, size_t i)
{
    struct vow__redis_fiber *f = &l->fiber;
    struct vow__call *c = vow__call_new(f->r, VOW__LUA_POOL);
    l->rows[i].look = l;
    l->rows[i].info = &l->infos[i];
    l->infos[i].pool = l->found[i].name;
    vow__redis_fiber_begin(f);
    if (c == NULL) {
        vow__redis_fiber_answered(f, VOW_ENOMEM);
        return;
    }
    vow__redis_pool_keys(c, &l->found[i].tag, &l->found[i].name);
    vow__call_send(c, on_pool, &l->rows[i]);
}

/* A pool that is gone gets no label in `info`. */
static void on_pool(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *row)
{
    struct pool_row *p = row;
    vow_name name = p->info->pool;
    if (code == 0 && reply->kind != VOW__RESP_NIL)
        code = vow__redis_pool_read(reply, &name, p->info, p->label);
    if (code == VOW_EIO) {
        vow__redis_trouble(r, "the server gave an answer that is none");
        code = VOW_ESTORE;
    }
    vow__redis_fiber_answered(&p->look->fiber, code);
}

/* ---- the end ------------------------------------------------------------- */

static void look_give(const struct look *l, int code)
{
    size_t n = code == 0 ? l->kept : 0;
    if (l->names_done != NULL)
        l->names_done(code, code == 0 ? l->records : NULL, n, l->user);
    else
        l->pools_done(code, code == 0 ? l->infos : NULL, n, l->user);
}

static void look_end(struct vow__redis_fiber *f, int code)
{
    struct look *l = VOW__OUTER(f, struct look, fiber);
    const struct vow_alloc *alloc = vow__redis_alloc(f->r);
    look_give(l, code);
    for (vow_link *at; (at = vow__list_take(&l->walks)) != NULL;)
        vow__mem_free(alloc, VOW__OUTER(at, struct walk, link),
                      sizeof(struct walk));
    while (l->texts != NULL) {
        struct texts *t = l->texts;
        l->texts = t->next;
        vow__mem_free(alloc, t, t->size);
    }
    vow__mem_free(alloc, l->rows, (l->n + 1) * sizeof(l->rows[0]));
    vow__mem_free(alloc, l->infos, (l->n + 1) * sizeof(l->infos[0]));
    vow__mem_free(alloc, l->records, (l->n + 1) * sizeof(l->records[0]));
    vow__mem_free(alloc, l->found, l->room * sizeof(l->found[0]));
    vow__mem_free(alloc, l, sizeof(*l));
}
