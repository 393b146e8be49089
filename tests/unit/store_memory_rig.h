/* SPDX-License-Identifier: MIT */
/* store_memory_rig.h - asking a store that answers before it returns. */
#ifndef TEST_STORE_MEMORY_RIG_H
#define TEST_STORE_MEMORY_RIG_H

#include "world.h"
#include <string.h>

static inline vow_name name_of(uint64_t number)
{
    vow_name name = {.hash = {[31] = 1}};
    memcpy(name.hash, &number, sizeof(number));
    return name;
}

static inline vow_token token_of(uint64_t number)
{
    vow_token token = {.bytes = {[15] = 1}};
    memcpy(token.bytes, &number, sizeof(number));
    return token;
}

struct said {
    unsigned n; /* answers */
    int code;
    size_t records;
    uint32_t status;
    uint64_t epoch;
};

static inline void on_said(int code, const vow_record *records, size_t n,
                           void *user)
{
    struct said *s = user;
    s->n++;
    s->code = code;
    s->records = n;
    s->status = n > 0 ? records[n - 1].status : 0;
    s->epoch = n > 0 ? records[n - 1].epoch : 0;
}

static inline struct said claim(vow_store *s, uint64_t name, uint64_t token)
{
    struct said said = {.n = 0};
    vow_claim_request ask = {.name = name_of(name),
                             .token = token_of(token),
                             .lease_ms = 10000,
                             .takeovers = 3,
                             .runner = "host:1"};
    s->ops->claim(s, &ask, on_said, &said);
    CHECK_UINT_EQ(said.n, 1);
    return said;
}

static inline struct said commit(vow_store *s, uint64_t name, uint64_t token,
                                 uint64_t epoch, uint64_t ttl_ms)
{
    struct said said = {.n = 0};
    vow_commit_request ask = {.hold = {.name = name_of(name),
                                       .token = token_of(token),
                                       .epoch = epoch},
                              .outcome = VOW_OUTCOME_DONE,
                              .ttl_ms = ttl_ms};
    s->ops->commit(s, &ask, on_said, &said);
    CHECK_UINT_EQ(said.n, 1);
    return said;
}

static inline void close_store(vow_loop *loop, vow_store *s)
{
    VOW_AUTO(vow_future) closed = s->ops->close(s);
    CHECK_INT_EQ(vow_loop_run_until(loop, closed), 0);
}

static inline vow_store *open_store(struct world *w, vow_memory *m)
{
    vow_store *s;
    CHECK_INT_EQ(vow_store_memory_new(w->loop, m, &s), 0);
    return s;
}

static inline vow_memory *open_memory(struct world *w)
{
    struct vow_alloc alloc = test_alloc_hook(&w->alloc);
    vow_memory *m;
    CHECK_INT_EQ(vow_memory_new(&alloc, &m), 0);
    return m;
}

struct heard {
    unsigned records;
    vow_store *close; /* when it hears */
};

static inline void on_record(const vow_record *r, void *user)
{
    struct heard *h = user;
    (void)r;
    h->records++;
    if (h->close != NULL)
        vow_future_unref(h->close->ops->close(h->close));
}

static inline void hear(vow_store *s, struct heard *h)
{
    s->ops->listen(
        s, &(const vow_store_events){.on_record = on_record, .user = h});
}

#endif
