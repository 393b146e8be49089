/* SPDX-License-Identifier: MIT */
/* rules_pool_kit.h - a pool on an array of permits, for tests of the rules of
 * pools, and as the other side of a store that is compared with the rules. */
#ifndef TEST_RULES_POOL_KIT_H
#define TEST_RULES_POOL_KIT_H

#include "harness.h"
#include "store/rules/pool.h"

#include <string.h>

enum { KIT_PERMITS = 256, KIT_TOLD = 512 };

struct pool_kit {
    struct rules_pool pool;
    struct rules_start starts[RULES_RATE_ENTRIES];
    size_t n; /* permits, in no order */
    struct rules_permit permits[KIT_PERMITS];
    size_t n_told; /* since the last kit_step() */
    vow_token told[KIT_TOLD];
    uint64_t now_us;
    uint64_t number; /* of struct rules_now */
    int fail_in;     /* so many storage calls later VOW_EIO; 0: never */
    struct rules_storage storage;
};

static inline vow_token kit_token(uint64_t n)
{
    vow_token t = {{0}};
    memcpy(t.bytes, &n, sizeof(n));
    return t;
}

static inline bool kit_same(const vow_token *a, const vow_token *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static inline struct rules_permit *kit_permit(struct pool_kit *k,
                                              const vow_token *token)
{
    for (size_t i = 0; i < k->n; i++)
        if (kit_same(&k->permits[i].token, token))
            return &k->permits[i];
    return NULL;
}

static inline bool kit_fails(struct pool_kit *k)
{
    return k->fail_in > 0 && --k->fail_in == 0;
}

static inline int kit_give(const struct rules_permit *t,
                           struct rules_permit *ret)
{
    if (t == NULL)
        return VOW_ENOENT;
    *ret = *t;
    return 0;
}

static inline int kit_find(void *user, const vow_token *token,
                           struct rules_permit *ret)
{
    if (kit_fails(user))
        return VOW_EIO;
    return kit_give(kit_permit(user, token), ret);
}

static inline int kit_head(void *user, struct rules_permit *ret)
{
    struct pool_kit *k = user;
    struct rules_permit *head = NULL;
    if (kit_fails(k))
        return VOW_EIO;
    for (size_t i = 0; i < k->n; i++)
        if (!k->permits[i].held &&
            (head == NULL || k->permits[i].order < head->order))
            head = &k->permits[i];
    return kit_give(head, ret);
}

/* Is `a` the earlier end? Of two at the same time, that of the smaller token. */
static inline bool kit_earlier(const struct rules_permit *a,
                               const struct rules_permit *b)
{
    return a->end_us != b->end_us
               ? a->end_us < b->end_us
               : memcmp(&a->token, &b->token, sizeof(a->token)) < 0;
}

static inline struct rules_permit *kit_first_end(struct pool_kit *k)
{
    struct rules_permit *first = NULL;
    for (size_t i = 0; i < k->n; i++)
        if (first == NULL || kit_earlier(&k->permits[i], first))
            first = &k->permits[i];
    return first;
}

static inline int kit_ended(void *user, uint64_t now_us,
                            struct rules_permit *ret)
{
    struct rules_permit *first = kit_first_end(user);
    if (kit_fails(user))
        return VOW_EIO;
    return kit_give(first != NULL && first->end_us <= now_us ? first : NULL,
                    ret);
}

static inline int kit_next_end(void *user, uint64_t *ret_us)
{
    struct rules_permit *first = kit_first_end(user);
    if (kit_fails(user))
        return VOW_EIO;
    CHECK(first != NULL);
    *ret_us = first->end_us;
    return 0;
}

static inline int kit_put(void *user, const struct rules_permit *permit)
{
    struct pool_kit *k = user;
    struct rules_permit *t = kit_permit(k, &permit->token);
    if (kit_fails(k))
        return VOW_EIO;
    CHECK((t == NULL) == (permit->at == NULL));
    if (t == NULL) {
        CHECK(k->n < KIT_PERMITS);
        t = &k->permits[k->n++];
    }
    *t = *permit;
    t->at = k;
    return 0;
}

static inline int kit_drop(void *user, const struct rules_permit *permit)
{
    struct pool_kit *k = user;
    struct rules_permit *t = kit_permit(k, &permit->token);
    if (kit_fails(k))
        return VOW_EIO;
    CHECK(t != NULL);
    *t = k->permits[--k->n];
    return 0;
}

static inline int kit_ahead(void *user, const struct rules_permit *permit,
                            uint64_t *ret_n, uint64_t *ret_weight)
{
    struct pool_kit *k = user;
    if (kit_fails(k))
        return VOW_EIO;
    *ret_n = 0;
    *ret_weight = 0;
    for (size_t i = 0; i < k->n; i++)
        if (!k->permits[i].held && k->permits[i].order < permit->order) {
            ++*ret_n;
            *ret_weight += k->permits[i].weight;
        }
    return 0;
}

static inline void kit_tell(void *user, const struct rules_permit *permit)
{
    struct pool_kit *k = user;
    CHECK(k->n_told < KIT_TOLD);
    k->told[k->n_told++] = permit->token;
}

static inline void kit_open(struct pool_kit *k, vow_pool_limits limits)
{
    *k = (struct pool_kit){.pool = {.limits = limits}};
    k->pool.rate.starts = k->starts;
    k->pool.rate.room = RULES_RATE_ENTRIES;
    k->storage = (struct rules_storage){k,         kit_find,     kit_head,
                                        kit_ended, kit_next_end, kit_put,
                                        kit_drop,  kit_ahead,    kit_tell};
}

/* Copies a kit; storage and log of the copy are the copy's own. */
static inline void kit_copy(struct pool_kit *to, const struct pool_kit *from)
{
    *to = *from;
    to->pool.rate.starts = to->starts;
    to->storage.user = to;
}

static inline bool kit_told(const struct pool_kit *k, uint64_t token)
{
    vow_token t = kit_token(token);
    for (size_t i = 0; i < k->n_told; i++)
        if (kit_same(&k->told[i], &t))
            return true;
    return false;
}

/* Begins a step. */
static inline struct rules_now kit_step(struct pool_kit *k)
{
    k->n_told = 0;
    return (struct rules_now){.now_us = k->now_us, .number = k->number};
}

static inline int kit_acquire(struct pool_kit *k, uint64_t token,
                              uint32_t weight, uint64_t lease_ms,
                              uint32_t flags, vow_pool_permit *ret)
{
    const vow_permit_request q = {.token = kit_token(token),
                                  .weight = weight,
                                  .lease_ms = lease_ms,
                                  .flags = flags};
    return vow__rules_acquire(&k->pool, &k->storage, &q, kit_step(k), ret);
}

static inline int kit_release(struct pool_kit *k, uint64_t token,
                              vow_pool_permit *ret)
{
    vow_token t = kit_token(token);
    return vow__rules_release(&k->pool, &k->storage, &t, kit_step(k), ret);
}

static inline int kit_renew(struct pool_kit *k, uint64_t token,
                            uint64_t lease_ms, bool started,
                            vow_pool_permit *ret)
{
    const vow_permit_hold h = {.token = kit_token(token), .started = started};
    return vow__rules_renew(&k->pool, &k->storage, &h, lease_ms, kit_step(k),
                            ret);
}

#endif
