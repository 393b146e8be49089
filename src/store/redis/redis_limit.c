/* SPDX-License-Identifier: MIT */
/* redis_limit.c - the limits of a pool: read, or set for all users of the pool.
 *
 * HOW   pool.lua reads, limit.lua sets. A pool of a key reads the limits with
 *       each of its own steps, so setting limits does not look at keys.
 * LIMITS  Limits for the pool of one key make a pool that nobody uses: the keys
 *       of the pool of a key are with the pool whose limits count, and neither
 *       the caller nor a script in another slot knows that pool. A label, as
 *       vow_pool_limit() takes, is never the name of the pool of a key.
 * THREADS  loop thread only.
 */
#include "store/redis/redis_pools.h"

enum { INFO_ITEMS = 9 };

struct limit {
    vow_pools_fn done;
    void *user;
    vow_name pool;
};

static void on_told(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *limit);

void vow__redis_limit(vow_store *store, const vow_name *pool,
                      const vow_pool_limits *limits, const char *label,
                      vow_pools_fn done, void *user)
{
    struct vow__redis *r = vow__redis_of(store);
    enum vow__script script = limits == NULL ? VOW__LUA_POOL : VOW__LUA_LIMIT;
    struct limit *l = vow__mem_new(vow__redis_alloc(r), sizeof(*l));
    struct vow__call *c = l == NULL ? NULL : vow__call_new(r, script);
    if (c == NULL) {
        vow__mem_free(vow__redis_alloc(r), l, sizeof(*l));
        done(VOW_ENOMEM, NULL, 0, user);
        return;
    }
    *l = (struct limit){done, user, *pool};
    vow__redis_pool_keys(c, pool, pool);
    if (limits != NULL) {
        vow__redis_limit_args(c, limits);
        vow__redis_text_arg(c, label);
    }
    vow__call_send(c, on_told, l);
}

static void on_told(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *limit)
{
    struct limit *l = limit;
    char label[VOW_LABEL_MAX + 1];
    vow_pool_info info;
    if (code == 0 && reply->kind == VOW__RESP_NIL)
        code = VOW_ENOENT;
    else if (code == 0)
        code = vow__redis_pool_read(reply, &l->pool, &info, label);
    if (code == VOW_EIO) {
        vow__redis_trouble(r, "the server gave an answer that is none");
        code = VOW_EUNSURE;
    }
    l->done(code, code == 0 ? &info : NULL, code == 0, l->user);
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
