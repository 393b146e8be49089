/* SPDX-License-Identifier: MIT */
/* resp_rig.h - a parser on the allocator of a world, and what its tests say. */
#ifndef TEST_RESP_RIG_H
#define TEST_RESP_RIG_H

#include "store/redis/resp.h"
#include "world.h"

#include <string.h>

struct resp_rig {
    struct test_alloc alloc;
    struct vow_alloc hook;
    struct vow__parser *p;
    const struct vow__resp *v; /* of the last resp_next() */
    struct vow__resp_limits limits;
};

static inline void resp_open(struct resp_rig *r, size_t bytes, size_t items)
{
    *r = (struct resp_rig){.limits = {.bytes = bytes, .items = items}};
    test_alloc_init(&r->alloc);
    r->hook = test_alloc_hook(&r->alloc);
    CHECK_INT_EQ(vow__parser_new(&r->hook, &r->limits, &r->p), 0);
}

static inline void resp_close(struct resp_rig *r)
{
    vow__parser_free(r->p);
    test_alloc_fini(TEST_HERE, &r->alloc);
}

/* Another connection. */
static inline void resp_anew(struct resp_rig *r)
{
    vow__parser_free(r->p);
    CHECK_INT_EQ(vow__parser_new(&r->hook, &r->limits, &r->p), 0);
}

static inline void resp_feed(struct resp_rig *r, const char *bytes, size_t n)
{
    CHECK_INT_EQ(vow__parser_feed(r->p, bytes, n), 0);
}

static inline int resp_next(struct resp_rig *r)
{
    r->v = NULL;
    return vow__parser_next(r->p, &r->v);
}

/* Feed a text and take the one value that is in it. */
static inline const struct vow__resp *resp_read(struct resp_rig *r,
                                                const char *text)
{
    resp_feed(r, text, strlen(text));
    CHECK_INT_EQ(resp_next(r), 1);
    return r->v;
}

#define CHECK_TEXT(v, want)                                                    \
    do {                                                                       \
        const struct vow__resp *v_ = (v);                                      \
        CHECK_INT_EQ(v_->kind, VOW__RESP_TEXT);                                \
        CHECK_UINT_EQ(v_->n, strlen(want));                                    \
        CHECK_MEM_EQ(v_->text, want, strlen(want));                            \
    } while (0)
#define CHECK_NUMBER(v, want)                                                  \
    do {                                                                       \
        const struct vow__resp *v_ = (v);                                      \
        CHECK_INT_EQ(v_->kind, VOW__RESP_NUMBER);                              \
        CHECK_INT_EQ(v_->number, want);                                        \
    } while (0)
#define CHECK_LIST(v, want_n)                                                  \
    do {                                                                       \
        const struct vow__resp *v_ = (v);                                      \
        CHECK_INT_EQ(v_->kind, VOW__RESP_LIST);                                \
        CHECK_UINT_EQ(v_->n, want_n);                                          \
    } while (0)

#endif
