/* SPDX-License-Identifier: MIT */
/* redis_look.c - lists of all names and all pools, for people.
 *
 * HOW   There is no index, which every step would have to keep: the keys of
 *       every master are walked by SCAN, a page at a time and all masters at
 *       once. What was found is sorted, for SCAN may give a key twice, and then
 *       asked for: names by peek, pools by their script, some at a time.
 * LIMITS  O(keys at the servers); a record that comes or goes meanwhile may be
 *       missing. Some hundred bytes for each that is found.
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
    AT_ONCE = 128, /* calls for pools */
    FIRST_ROOM = 64,
    PATTERN_MAX = 512,
    LETTERS = VOW_NAME_TEXT - 1 /* of a name */
};

struct found {
    vow_name tag;
    vow_name name; /* the same, or of a pool of one key */
};

/* Some records with their texts. */
struct sheet {
    struct sheet *next;
    size_t size; /* of the block */
    size_t n;
    vow_record records[];
};

struct pool_row {
    struct look *look;
    bool there;
    vow_pool_info info;
    char label[VOW_LABEL_MAX + 1];
};

struct look {
    vow_store *store;
    struct vow__redis *r;
    vow_records_fn names_done; /* NULL: it is for pools */
    vow_pools_fn pools_done;
    void *user;
    int code;
    size_t walks; /* without an end yet */
    struct found *found;
    size_t n, room;
    size_t next;    /* that is to be asked for */
    size_t in_air;  /* calls for pools */
    size_t records; /* in the sheets */
    struct sheet *sheets, *last;
    struct pool_row *rows;
};

/* The keys of one master. */
struct walk {
    struct look *look;
    size_t node;
};

static void look_begin(const struct look *like);
static int scan_words(const struct look *l, const struct vow__resp *cursor,
                      struct vow__command *ret_command);
static void on_first(struct vow__redis *r, int code,
                     const struct vow__resp *reply, size_t node, bool last,
                     void *look);
static void on_page(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *walk);
static void walk_on(struct look *l, struct walk *w,
                    const struct vow__resp *cursor);
static int read_page(struct look *l, const struct vow__resp *reply);
static int read_key(struct look *l, const struct vow__resp *key);
static bool name_at(const char *text, size_t n, vow_name *ret_name);
static int found_add(struct look *l, const struct found *f);
static void walk_ended(struct look *l);
static int by_name(const void *a, const void *b);
static void ask_names(struct look *l);
static void on_names(int code, const vow_record *records, size_t n, void *look);
static int sheet_add(struct look *l, const vow_record *records, size_t n);
static void give_names(struct look *l);
static void ask_pools(struct look *l);
static void on_pool(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *row);
static void give_pools(struct look *l);
static void tell_failure(const struct look *l, int code);
static void look_fail(struct look *l);
static void look_free(struct look *l);

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
    struct vow__command c;
    struct look *l = vow__mem_new(vow__redis_alloc(r), sizeof(*l));
    if (l == NULL) {
        tell_failure(like, VOW_ENOMEM);
        return;
    }
    *l = *like;
    l->r = r;
    l->code = scan_words(l, NULL, &c);
    if (l->code == 0) {
        l->walks = 1; /* until the last of the first answers */
        vow__redis_each(r, &c, on_first, l);
    } else {
        look_fail(l);
    }
    vow__command_fini(&c);
}

/* ---- walking ------------------------------------------------------------- */

/* The prefix has no signs of a pattern. `cursor` NULL: from the beginning. */
static int scan_words(const struct look *l, const struct vow__resp *cursor,
                      struct vow__command *ret_command)
{
    const char *prefix = vow__redis_where_of(l->r)->prefix;
    struct vow__command *c = ret_command;
    char pattern[PATTERN_MAX];
    int n = snprintf(pattern, sizeof(pattern), "%s%s", prefix,
                     l->names_done != NULL ? "p:{*" : "s:{*");
    VOW__ASSERT(n > 0 && (size_t)n < sizeof(pattern));
    vow__command_init(c, vow__redis_alloc(l->r));
    vow__command_begin(c, 6);
    vow__command_text(c, "SCAN");
    if (cursor == NULL)
        vow__command_text(c, "0");
    else
        vow__command_add(c, cursor->text, cursor->n);
    vow__command_text(c, "MATCH");
    vow__command_text(c, pattern);
    vow__command_text(c, "COUNT");
    vow__command_uint(c, SCAN_COUNT);
    return c->failed ? VOW_ENOMEM : 0;
}

static void on_first(struct vow__redis *r, int code,
                     const struct vow__resp *reply, size_t node, bool last,
                     void *look)
{
    struct look *l = look;
    if (code == 0)
        code = read_page(l, reply);
    if (l->code == 0)
        l->code = code;
    if (l->code == 0 && !vow__resp_is(vow__resp_at(reply, 0), "0")) {
        struct walk *w = vow__mem_new(vow__redis_alloc(r), sizeof(*w));
        if (w != NULL) {
            *w = (struct walk){.look = l, .node = node};
            l->walks++;
            walk_on(l, w, vow__resp_at(reply, 0));
        } else {
            l->code = VOW_ENOMEM;
        }
    }
    if (last)
        walk_ended(l);
}

static void walk_on(struct look *l, struct walk *w,
                    const struct vow__resp *cursor)
{
    struct vow__command c;
    int rc = scan_words(l, cursor, &c);
    if (rc < 0)
        on_page(l->r, rc, NULL, w);
    else
        vow__redis_one(l->r, w->node, &c, on_page, w);
    vow__command_fini(&c);
}

static void on_page(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *walk)
{
    struct walk *w = walk;
    struct look *l = w->look;
    if (code == 0)
        code = read_page(l, reply);
    if (l->code == 0)
        l->code = code;
    if (l->code == 0 && !vow__resp_is(vow__resp_at(reply, 0), "0")) {
        walk_on(l, w, vow__resp_at(reply, 0));
        return;
    }
    vow__mem_free(vow__redis_alloc(r), w, sizeof(*w));
    walk_ended(l);
}

static int read_page(struct look *l, const struct vow__resp *reply)
{
    const struct vow__resp *keys = vow__resp_at(reply, 1);
    if (reply->kind != VOW__RESP_LIST || keys->kind != VOW__RESP_LIST ||
        vow__resp_at(reply, 0)->kind != VOW__RESP_TEXT) {
        if (reply->kind == VOW__RESP_ERROR)
            vow__redis_trouble(l->r, "the server does not let us list: %.*s",
                               (int)(reply->n < 200 ? reply->n : 200),
                               reply->text);
        else
            vow__redis_trouble(l->r, "the server gave an answer that is none");
        return VOW_ESTORE;
    }
    int rc = 0;
    for (size_t i = 0; i < keys->n && rc == 0; i++)
        rc = read_key(l, vow__resp_at(keys, i));
    return rc;
}

/* PREFIX p:{NAME}, PREFIX s:{NAME} or PREFIX s:{NAME}:NAME. All others belong
 * to one of these. */
static int read_key(struct look *l, const struct vow__resp *key)
{
    size_t skip = strlen(vow__redis_where_of(l->r)->prefix) + 3;
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
    const struct vow_alloc *alloc = vow__redis_alloc(l->r);
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

static void walk_ended(struct look *l)
{
    size_t n = 0;
    if (--l->walks > 0)
        return;
    if (l->code < 0) {
        look_fail(l);
        return;
    }
    if (l->n > 0)
        qsort(l->found, l->n, sizeof(l->found[0]), by_name);
    for (size_t i = 0; i < l->n; i++)
        if (n == 0 || by_name(&l->found[n - 1], &l->found[i]) != 0)
            l->found[n++] = l->found[i];
    l->n = n;
    if (l->names_done != NULL) {
        ask_names(l);
        return;
    }
    size_t size = (l->n + 1) * sizeof(l->rows[0]);
    l->rows = vow__mem_zero(vow__redis_alloc(l->r), size);
    if (l->rows == NULL)
        l->code = VOW_ENOMEM;
    ask_pools(l);
}

static int by_name(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct found));
}

/* ---- names --------------------------------------------------------------- */

static void ask_names(struct look *l)
{
    vow_name names[PAGE];
    size_t n = l->n - l->next < PAGE ? l->n - l->next : PAGE;
    if (n == 0) {
        give_names(l);
        return;
    }
    for (size_t i = 0; i < n; i++)
        names[i] = l->found[l->next + i].name;
    l->next += n;
    vow__redis_peek(l->store, names, n, on_names, l);
}

static void on_names(int code, const vow_record *records, size_t n, void *look)
{
    struct look *l = look;
    l->code = code == 0 ? sheet_add(l, records, n) : code;
    if (l->code == 0)
        ask_names(l);
    else
        look_fail(l);
}

static char *text_into(const char *text, char **texts)
{
    char *at = *texts;
    size_t size = strlen(text) + 1;
    memcpy(at, text, size);
    *texts += size;
    return at;
}

static int sheet_add(struct look *l, const vow_record *records, size_t n)
{
    size_t size = sizeof(struct sheet) + n * sizeof(records[0]);
    for (size_t i = 0; i < n; i++)
        size += strlen(records[i].label) + strlen(records[i].runner) + 2;
    struct sheet *s = vow__mem_new(vow__redis_alloc(l->r), size);
    if (s == NULL)
        return VOW_ENOMEM;
    *s = (struct sheet){.size = size};
    char *texts = (char *)&s->records[n];
    for (size_t i = 0; i < n; i++) {
        if (records[i].status == VOW_STATUS_NONE) /* it has gone since */
            continue;
        vow_record *to = &s->records[s->n++];
        *to = records[i];
        to->label = text_into(records[i].label, &texts);
        to->runner = text_into(records[i].runner, &texts);
    }
    if (l->last == NULL)
        l->sheets = s;
    else
        l->last->next = s;
    l->last = s;
    l->records += s->n;
    return 0;
}

static void give_names(struct look *l)
{
    size_t size = (l->records + 1) * sizeof(vow_record);
    size_t n = 0;
    vow_record *all = vow__mem_new(vow__redis_alloc(l->r), size);
    if (all == NULL) {
        l->code = VOW_ENOMEM;
        look_fail(l);
        return;
    }
    for (const struct sheet *s = l->sheets; s != NULL; s = s->next)
        for (size_t i = 0; i < s->n; i++)
            all[n++] = s->records[i];
    l->names_done(0, all, n, l->user);
    vow__mem_free(vow__redis_alloc(l->r), all, size);
    look_free(l);
}

/* ---- pools --------------------------------------------------------------- */

/* As many as may be under way. Answers that come at once only count. */
static void ask_pools(struct look *l)
{
    l->in_air++; /* until this is over */
    while (l->code == 0 && l->rows != NULL && l->next < l->n &&
           l->in_air <= AT_ONCE) {
        const struct found *f = &l->found[l->next];
        struct pool_row *row = &l->rows[l->next];
        struct vow__call *c = vow__call_new(l->r, VOW__LUA_POOL);
        if (c == NULL) {
            l->code = VOW_ENOMEM;
            break;
        }
        *row = (struct pool_row){.look = l, .info = {.pool = f->name}};
        vow__redis_pool_keys(c, &f->tag, &f->name);
        l->next++;
        l->in_air++;
        vow__call_send(c, on_pool, row);
    }
    if (--l->in_air > 0)
        return;
    if (l->code == 0)
        give_pools(l);
    else
        look_fail(l);
}

static void on_pool(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *row)
{
    struct pool_row *p = row;
    struct look *l = p->look;
    vow_name name = p->info.pool;
    if (code == 0 && reply->kind != VOW__RESP_NIL) {
        code = vow__redis_pool_read(reply, &name, &p->info, p->label);
        p->there = code == 0;
    }
    if (code == VOW_EIO) {
        vow__redis_trouble(r, "the server gave an answer that is none");
        code = VOW_ESTORE;
    }
    if (l->code == 0)
        l->code = code;
    /* Half of them at once, so that they leave together. */
    if (--l->in_air == 0 || (l->in_air == AT_ONCE / 2 && l->next < l->n))
        ask_pools(l);
}

static void give_pools(struct look *l)
{
    VOW__ASSERT(l->rows != NULL);
    size_t size = (l->n + 1) * sizeof(vow_pool_info);
    size_t n = 0;
    vow_pool_info *infos = vow__mem_new(vow__redis_alloc(l->r), size);
    if (infos == NULL) {
        l->code = VOW_ENOMEM;
        look_fail(l);
        return;
    }
    for (size_t i = 0; i < l->n; i++)
        if (l->rows[i].there)
            infos[n++] = l->rows[i].info;
    l->pools_done(0, infos, n, l->user);
    vow__mem_free(vow__redis_alloc(l->r), infos, size);
    look_free(l);
}

/* ---- the end ------------------------------------------------------------- */

static void tell_failure(const struct look *l, int code)
{
    if (l->names_done != NULL)
        l->names_done(code, NULL, 0, l->user);
    else if (l->pools_done != NULL)
        l->pools_done(code, NULL, 0, l->user);
}

static void look_fail(struct look *l)
{
    VOW__ASSERT(l->code < 0);
    tell_failure(l, l->code);
    look_free(l);
}

static void look_free(struct look *l)
{
    const struct vow_alloc *alloc = vow__redis_alloc(l->r);
    while (l->sheets != NULL) {
        struct sheet *s = l->sheets;
        l->sheets = s->next;
        vow__mem_free(alloc, s, s->size);
    }
    if (l->rows != NULL)
        vow__mem_free(alloc, l->rows, (l->n + 1) * sizeof(l->rows[0]));
    vow__mem_free(alloc, l->found, l->room * sizeof(l->found[0]));
    vow__mem_free(alloc, l, sizeof(*l));
}
