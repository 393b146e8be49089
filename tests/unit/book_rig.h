/* SPDX-License-Identifier: MIT */
/* book_rig.h - a book with three instances, on a counting allocator. */
#ifndef TEST_BOOK_RIG_H
#define TEST_BOOK_RIG_H

#include "store/memory/memory_state.h"
#include "world.h"
#include <string.h>

enum { BOOK_INSTANCES = 3, MS = 1000, S = 1000000 };

struct book_rig {
    struct test_alloc alloc;
    struct vow__memory_state *book;
    struct vow__memory_instance *at[BOOK_INSTANCES]; /* NULL: it has left */
    unsigned woken[BOOK_INSTANCES];
    uint64_t now_us;
};

static inline void book_woken(void *user)
{
    ++*(unsigned *)user;
}

static inline void book_open(struct book_rig *r, bool exact)
{
    *r = (struct book_rig){.now_us = 5 * (uint64_t)S};
    test_alloc_init(&r->alloc);
    struct vow__memory_opts opts = {.alloc = test_alloc_hook(&r->alloc),
                                    .exact = exact,
                                    .seed = test_seed(),
                                    .recheck_ms = 1000,
                                    .value_max = 1000};
    CHECK_INT_EQ(vow__memory_state_new(&opts, &r->book), 0);
    for (size_t i = 0; i < BOOK_INSTANCES; i++)
        CHECK_INT_EQ(
            vow__memory_join(r->book, book_woken, &r->woken[i], &r->at[i]), 0);
}

static inline void book_close(struct book_rig *r)
{
    for (size_t i = 0; i < BOOK_INSTANCES; i++)
        if (r->at[i] != NULL)
            vow__memory_leave(r->book, r->at[i], r->now_us, false);
    vow__memory_state_free(r->book);
    test_alloc_fini(TEST_HERE, &r->alloc);
}

static inline vow_name book_name(uint64_t number)
{
    vow_name name = {.hash = {[31] = 1}};
    memcpy(name.hash, &number, sizeof(number));
    return name;
}

static inline vow_token book_token(uint64_t number)
{
    vow_token token = {.bytes = {[15] = 1}};
    memcpy(token.bytes, &number, sizeof(number));
    return token;
}

static inline struct vow__memory_step book_step(struct book_rig *r, size_t i)
{
    return (struct vow__memory_step){r->book, r->at[i], r->now_us};
}

/* What is said; the rest of the answer is in *ret if that is not NULL, without
 * what it points to. */
static inline uint32_t book_claim(struct book_rig *r, size_t i,
                                  const vow_claim_request *ask, vow_record *ret)
{
    struct vow__memory_answer a;
    struct vow__memory_step s = book_step(r, i);
    CHECK_INT_EQ(vow__memory_claim(&s, ask, &a), 0);
    vow__memory_answer_fini(&a);
    if (ret != NULL)
        *ret = a.record;
    return a.record.status;
}

static inline uint32_t book_commit(struct book_rig *r, size_t i,
                                   const vow_commit_request *ask)
{
    struct vow__memory_answer a;
    struct vow__memory_step s = book_step(r, i);
    CHECK_INT_EQ(vow__memory_commit(&s, ask, &a), 0);
    vow__memory_answer_fini(&a);
    return a.record.status;
}

static inline uint32_t book_acquire(struct book_rig *r, size_t i,
                                    const vow_permit_request *ask)
{
    vow_pool_permit place;
    struct vow__memory_step s = book_step(r, i);
    CHECK_INT_EQ(vow__memory_acquire(&s, ask, &place), 0);
    return place.status;
}

static inline uint32_t book_peek(struct book_rig *r, uint64_t name)
{
    struct vow__memory_records sheet;
    struct vow__memory_step s = book_step(r, 0);
    vow_name n = book_name(name);
    CHECK_INT_EQ(vow__memory_peek(&s, &n, 1, &sheet), 0);
    uint32_t status = sheet.records[0].status;
    struct vow_alloc alloc = test_alloc_hook(&r->alloc);
    alloc.fn(alloc.ctx, sheet.records, sheet.size, 0);
    return status;
}

/* The kind of the next letter, and what it says. */
static inline enum vow__memory_event_kind
book_mail(struct book_rig *r, size_t i, uint32_t *ret_says)
{
    struct vow__memory_event news;
    struct vow__memory_step s = book_step(r, i);
    if (!vow__memory_event_take(&s, &news))
        return VOW__MEMORY_NO_EVENT;
    if (news.kind != VOW__MEMORY_PERMIT) {
        if (ret_says != NULL)
            *ret_says = news.answer.record.status;
        vow__memory_answer_fini(&news.answer);
    }
    return news.kind;
}

#define BOOK_CLAIM(n, number, ...)                                             \
    (&(const vow_claim_request){.name = book_name(n),                          \
                                .token = book_token(number),                   \
                                .lease_ms = 10000,                             \
                                .takeovers = 3,                                \
                                __VA_ARGS__})
#define BOOK_COMMIT(n, number, fence, ...)                                     \
    (&(const vow_commit_request){.hold = {.name = book_name(n),                \
                                          .token = book_token(number),         \
                                          .epoch = (fence)},                   \
                                 .outcome = VOW_OUTCOME_DONE,                  \
                                 __VA_ARGS__})
#define BOOK_PLACE(n, number, ...)                                             \
    (&(const vow_permit_request){.pool = book_name(n),                         \
                                 .limits_of = book_name(n),                    \
                                 .token = book_token(number),                  \
                                 .weight = 1,                                  \
                                 .lease_ms = 10000,                            \
                                 __VA_ARGS__})
#pragma GCC diagnostic ignored "-Woverride-init" /* what is given counts */

#endif
