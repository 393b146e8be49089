/* SPDX-License-Identifier: MIT */
/* redis_names_kit.h - two stores on a server of their own, and steps on names
 * that wait for their answer. */
#ifndef TEST_REDIS_NAMES_KIT_H
#define TEST_REDIS_NAMES_KIT_H

#include "redis_kit.h"
#include "store/redis/redis_names.h"
#include "world.h"

#include <stdio.h>
#include <string.h>

enum { LONG_MS = 3600 * 1000, PATIENCE_MS = 60000, STORES = 2 };

struct heard {
    unsigned records;
    uint32_t status;
    unsigned doubts;
};

struct names {
    struct world world;
    struct redis_server server;
    vow_store *at[STORES];
    struct heard heard[STORES];
    uint64_t epoch;   /* of what runs, and: */
    vow_bytes *chunk; /* for tests that want one */
};

struct answer {
    unsigned done;
    int code;
    uint32_t status;
    uint64_t epoch, first, left_ms;
    bool failed;
    char value[64];
    size_t size;
    size_t n; /* of chunks */
    char chunks[256];
};

static inline void on_record(const vow_record *r, void *user)
{
    struct heard *h = user;
    h->records++;
    h->status = r->status;
}

static inline void on_doubt(void *user)
{
    struct heard *h = user;
    h->doubts++;
}

static inline void names_open(struct names *n, const vow_redis_opts *opts)
{
    *n = (struct names){.heard = {{0}}};
    world_open_real(&n->world);
    redis_start(&n->server, NULL);
    for (size_t i = 0; i < STORES; i++) {
        VOW_AUTO(vow_future)
        opened = vow_store_redis_open(n->world.loop, n->server.url, opts);
        if (vow_state_of(opened) != VOW_FULFILLED)
            FAIL("%s", vow_error_message(vow_error_of(opened)));
        n->at[i] = vow_as_ptr(vow_get(opened));
        n->at[i]->ops->listen(n->at[i],
                              &(const vow_store_events){.on_record = on_record,
                                                        .on_doubt = on_doubt,
                                                        .user = &n->heard[i]});
    }
}

static inline void names_close(struct names *n)
{
    for (size_t i = 0; i < STORES; i++) {
        VOW_AUTO(vow_future) closed = n->at[i]->ops->close(n->at[i]);
        CHECK_INT_EQ(vow_loop_run_until(n->world.loop, closed), 0);
    }
    redis_stop(&n->server);
    world_close(&n->world);
}

static inline void let_pass_ms(struct names *n, uint64_t ms)
{
    VOW_AUTO(vow_future) pause = vow_delay(n->world.loop, ms);
    CHECK_INT_EQ(vow_loop_run_until(n->world.loop, pause), 0);
}

static inline void run_until(struct names *n, const unsigned *counter,
                             unsigned count)
{
    for (int i = 0; *counter < count; i++) {
        let_pass_ms(n, 1);
        if (i > PATIENCE_MS)
            FAIL("waited for %u, and there are %u", count, *counter);
    }
}

/* ---- steps --------------------------------------------------------------- */

static inline void on_records(int code, const vow_record *r, size_t n,
                              void *user)
{
    struct answer *a = user;
    a->done++;
    a->code = code;
    if (n == 0)
        return;
    a->status = r->status;
    a->epoch = r->epoch;
    a->first = r->first;
    a->left_ms = r->left_ms;
    a->failed = r->failed;
    a->size = vow_bytes_size(r->value);
    if (a->size > 0 && a->size <= sizeof(a->value))
        memcpy(a->value, vow_bytes_data(r->value), a->size);
}

static inline void on_chunks(int code, vow_bytes *const *chunks, size_t n,
                             uint64_t next, void *user)
{
    struct answer *a = user;
    size_t at = 0;
    (void)next;
    a->done++;
    a->code = code;
    a->n = n;
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(a->chunks + at, sizeof(a->chunks) - at, "%.*s|",
                               (int)vow_bytes_size(chunks[i]),
                               (const char *)vow_bytes_data(chunks[i]));
}

static inline vow_token token_of(int number)
{
    vow_token t;
    memset(t.bytes, number, sizeof(t.bytes));
    return t;
}

static inline vow_hold hold_of(const char *name, int token, uint64_t epoch)
{
    return (vow_hold){
        .name = vow_name_of(name), .token = token_of(token), .epoch = epoch};
}

static inline vow_bytes *bytes_of(struct names *n, const char *text)
{
    vow_bytes *b;
    CHECK_INT_EQ(vow_bytes_new(n->world.loop, text, strlen(text), &b), 0);
    return b;
}

static inline struct answer claim_with(struct names *n, size_t i,
                                       const vow_claim_request *ask)
{
    struct answer a = {.done = 0};
    n->at[i]->ops->claim(n->at[i], ask, on_records, &a);
    run_until(n, &a.done, 1);
    return a;
}

static inline struct answer claim(struct names *n, size_t i, const char *name,
                                  int token)
{
    return claim_with(n, i,
                      &(vow_claim_request){.name = vow_name_of(name),
                                           .token = token_of(token),
                                           .lease_ms = LONG_MS,
                                           .takeovers = 3,
                                           .label = "label",
                                           .runner = "host:1"});
}

static inline struct answer commit(struct names *n, size_t i, vow_hold hold,
                                   const char *text, uint64_t ttl_ms)
{
    struct answer a = {.done = 0};
    VOW_AUTO(vow_bytes) value = bytes_of(n, text);
    n->at[i]->ops->commit(n->at[i],
                          &(vow_commit_request){.hold = hold,
                                                .outcome = VOW_OUTCOME_DONE,
                                                .value = value,
                                                .ttl_ms = ttl_ms},
                          on_records, &a);
    run_until(n, &a.done, 1);
    return a;
}

static inline struct answer pulse(struct names *n, size_t i, vow_hold hold)
{
    struct answer a = {.done = 0};
    n->at[i]->ops->pulse(n->at[i], &hold, 1, LONG_MS, on_records, &a);
    run_until(n, &a.done, 1);
    return a;
}

static inline struct answer write_one(struct names *n, size_t i, vow_hold hold,
                                      uint64_t number, const char *text)
{
    struct answer a = {.done = 0};
    VOW_AUTO(vow_bytes) chunk = bytes_of(n, text);
    n->at[i]->ops->write(n->at[i], &hold, number, chunk, on_records, &a);
    run_until(n, &a.done, 1);
    return a;
}

static inline struct answer read_all(struct names *n, size_t i, vow_hold hold)
{
    struct answer a = {.done = 0};
    n->at[i]->ops->read(n->at[i], &hold.name, hold.epoch, 0, on_chunks, &a);
    run_until(n, &a.done, 1);
    return a;
}

#endif
