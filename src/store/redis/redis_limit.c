/* SPDX-License-Identifier: MIT */
/* redis_limit.c - the limits of a pool: read, or set for all who use it.
 *
 * HOW   Reading is pool.lua, setting limit.lua. The latter names pools of keys
 *       that have these limits and a queue, a page of them: each is looked at
 *       by pool.lua, which lets in whom they allow now, and then the next page
 *       is asked for.
 * LIMITS  A pool of one key has no limits of its own: its keys are with the one
 *       whose limits count, and who sets limits does not know which that is.
 *       If a key could not be looked at, the step ends with VOW_EUNSURE: the
 *       limits are set, and who waits there finds out when it looks again.
 * THREADS  loop thread only.
 */
#include "store/redis/redis_pools.h"

#include <string.h>

enum { PAGE_MAX = 64, AT_KEYS = 9, INFO_ITEMS = 10 };

struct limit {
    vow_pools_fn done;
    void *user;
    vow_name pool;
    bool sets;
    bool first;  /* its answer is not read yet */
    size_t left; /* looks without an answer */
    int code;
    vow_pool_info info;
    char label[VOW_LABEL_MAX + 1];
    char cursor[VOW_NAME_TEXT]; /* where the next page begins; "": none */
};

static void on_told(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *limit);
static int read_keys(struct vow__redis *r, struct limit *l,
                     const struct vow__resp *keys);
static void look_at(struct vow__redis *r, struct limit *l, const vow_name *key);
static void on_looked(struct vow__redis *r, int code,
                      const struct vow__resp *reply, void *limit);
static void look_ended(struct vow__redis *r, struct limit *l);
static int unsure(int code);
static void go_on(struct vow__redis *r, struct limit *l);

void vow__redis_limit(vow_store *store, const vow_name *pool,
                      const vow_pool_limits *limits, const char *label,
                      vow_pools_fn done, void *user)
{
    struct vow__redis *r = vow__redis_of(store);
    enum vow__script script = limits == NULL ? VOW__LUA_POOL : VOW__LUA_LIMIT;
    struct limit *l = vow__mem_zero(vow__redis_alloc(r), sizeof(*l));
    struct vow__call *c = l == NULL ? NULL : vow__call_new(r, script);
    if (c == NULL) {
        vow__mem_free(vow__redis_alloc(r), l, sizeof(*l));
        done(VOW_ENOMEM, NULL, 0, user);
        return;
    }
    l->done = done;
    l->user = user;
    l->pool = *pool;
    l->sets = limits != NULL;
    l->first = true;
    vow__redis_pool_keys(c, pool, pool);
    if (limits != NULL) {
        vow__redis_limit_args(c, limits);
        vow__redis_text_arg(c, label);
    }
    vow__call_send(c, on_told, l);
}

/* Of the pool itself; more than once if there is more than a page of keys. */
static void on_told(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *limit)
{
    struct limit *l = limit;
    bool first = l->first;
    l->first = false;
    l->cursor[0] = 0;
    l->left = 1; /* until all looks are sent */
    if (code == 0 && reply->kind == VOW__RESP_NIL)
        code = VOW_ENOENT;
    else if (code == 0 && first)
        code = vow__redis_pool_read(reply, &l->pool, &l->info, l->label);
    if (code == 0 && l->sets)
        code = read_keys(r, l, vow__resp_at(reply, AT_KEYS));
    if (code == VOW_EIO)
        vow__redis_trouble(r, "the server gave an answer that is none");
    if (code == VOW_ENOENT && !first) /* gone, and its keys with it */
        code = 0;
    if (code == VOW_EIO || (code < 0 && !first))
        code = unsure(code);
    if (l->code == 0)
        l->code = code;
    look_ended(r, l);
}

/* The limits are set, whatever came behind. */
static int unsure(int code)
{
    return code == 0 || code == VOW_ECLOSED ? code : VOW_EUNSURE;
}

static int read_keys(struct vow__redis *r, struct limit *l,
                     const struct vow__resp *keys)
{
    if (keys->kind != VOW__RESP_LIST || keys->n > PAGE_MAX)
        return VOW_EIO;
    for (size_t i = 0; i < keys->n; i++) {
        const struct vow__resp *key = vow__resp_at(keys, i);
        char text[VOW_NAME_TEXT];
        vow_name name;
        if (key->kind != VOW__RESP_TEXT || key->n != sizeof(text) - 1)
            return VOW_EIO;
        vow__redis_text_copy(text, sizeof(text), key->text, key->n);
        if (!vow_name_parse(text, &name))
            return VOW_EIO;
        look_at(r, l, &name);
        if (i == PAGE_MAX - 1)
            memcpy(l->cursor, text, sizeof(text));
    }
    return 0;
}

static void look_at(struct vow__redis *r, struct limit *l, const vow_name *key)
{
    struct vow__call *c = vow__call_new(r, VOW__LUA_POOL);
    l->left++;
    if (c == NULL) {
        on_looked(r, VOW_ENOMEM, NULL, l);
        return;
    }
    vow__redis_pool_keys(c, &l->pool, key);
    vow__call_send(c, on_looked, l);
}

static void on_looked(struct vow__redis *r, int code,
                      const struct vow__resp *reply, void *limit)
{
    struct limit *l = limit;
    (void)reply;
    if (l->code == 0)
        l->code = unsure(code);
    look_ended(r, l);
}

static void look_ended(struct vow__redis *r, struct limit *l)
{
    if (--l->left == 0)
        go_on(r, l);
}

static void go_on(struct vow__redis *r, struct limit *l)
{
    if (l->code == 0 && l->cursor[0] != 0) {
        struct vow__call *c = vow__call_new(r, VOW__LUA_POOL);
        if (c != NULL) {
            vow__redis_pool_keys(c, &l->pool, &l->pool);
            vow__call_text(c, l->cursor);
            vow__call_send(c, on_told, l);
            return;
        }
        l->code = VOW_EUNSURE;
    }
    bool good = l->code == 0;
    l->done(l->code, good ? &l->info : NULL, good, l->user);
    vow__mem_free(vow__redis_alloc(r), l, sizeof(*l));
}

int vow__redis_pool_read(const struct vow__resp *reply, const vow_name *pool,
                         vow_pool_info *out, char *label)
{
    const struct vow__resp *text = vow__resp_at(reply, 0);
    uint64_t v[4];
    if (reply->kind != VOW__RESP_LIST || reply->n != INFO_ITEMS ||
        text->kind != VOW__RESP_TEXT)
        return VOW_EIO;
    *out = (vow_pool_info){.pool = *pool, .label = label};
    vow__redis_text_copy(label, VOW_LABEL_MAX + 1, text->text, text->n);
    for (size_t i = 0; i < 4; i++) {
        v[i] = vow__resp_uint(vow__resp_at(reply, 4 + i), UINT64_MAX);
        if (v[i] == UINT64_MAX)
            return VOW_EIO;
    }
    out->held = v[0];
    out->holders = v[1];
    out->waiting = v[2];
    out->rate_used = v[3];
    return vow__redis_limits_read(reply, 1, &out->limits);
}
