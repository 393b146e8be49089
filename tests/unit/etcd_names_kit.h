/* SPDX-License-Identifier: MIT */
/* etcd_names_kit.h - two stores on a member of etcd of their own, each behind a
 * bridge that counts what is asked and can lose answers; and steps that wait
 * for theirs. Time is virtual, but for the leases of etcd. Changes are not
 * watched, unless a test says them. */
#ifndef TEST_ETCD_NAMES_KIT_H
#define TEST_ETCD_NAMES_KIT_H

#include "etcd_fake.h"
#include "etcd_kit.h"
#include "store/etcd/etcd_service.h"

#include <inttypes.h>
#include <sodium.h>

enum { LONG_MS = 3600 * 1000, STORES = 2 };

struct heard {
    unsigned records, cancels, chunks, doubts;
    uint32_t status; /* of the last record, and: */
    char value[64];
};

struct names {
    struct world *w;
    struct etcd_kit *member;
    struct fake_etcd at[STORES];
    struct heard heard[STORES];
    unsigned txns, leases; /* requests of all */
    unsigned lose;         /* the answer of so many transactions from now on */
    bool unsaid;           /* they do not reach etcd either, */
    bool late;             /* but the next that is lost may, later: */
    char delayed[FAKE_ROOM];
    bool hold; /* the next answer waits for names_let_go() */
    struct fake_talk *talk;
    char held[FAKE_ROOM]; /* "": nothing is held */
};

struct answer {
    bool done;
    int code;
    size_t n;
    uint32_t status;
    uint64_t epoch, first, left_ms;
    uint32_t takeovers, waiters;
    bool failed;
    char value[64];
    size_t size;
    char label[VOW_LABEL_MAX + 1];
};

static inline void told_record(const vow_record *r, void *user)
{
    struct heard *h = user;
    h->records++;
    h->status = r->status;
    snprintf(h->value, sizeof(h->value), "%.*s", (int)vow_bytes_size(r->value),
             r->value == NULL ? "" : (const char *)vow_bytes_data(r->value));
}

static inline void told_cancel(const vow_name *name, void *user)
{
    (void)name;
    ((struct heard *)user)->cancels++;
}

static inline void told_chunks(const vow_name *name, void *user)
{
    (void)name;
    ((struct heard *)user)->chunks++;
}

static inline void told_doubt(void *user)
{
    ((struct heard *)user)->doubts++;
}

/* ---- the bridge ---------------------------------------------------------- */

static inline void base64_of(char *to, size_t room, const char *text)
{
    (void)sodium_bin2base64(to, room, (const unsigned char *)text, strlen(text),
                            sodium_base64_VARIANT_ORIGINAL);
}

/* A change as the watch of a store tells it: "PUT" or "DELETE", at `mod`. The
 * key is a whole one. */
static inline void tell_event(struct names *n, size_t i, const char *kind,
                              const char *key, const char *value, uint64_t mod)
{
    char key64[256], value64[2048], line[4096];
    base64_of(key64, sizeof(key64), key);
    base64_of(value64, sizeof(value64), value);
    snprintf(line, sizeof(line),
             "{\"result\":{\"header\":{\"revision\":\"%" PRIu64
             "\"},\"events\":[{%s\"kv\":{\"key\":\"%s\",\"mod_revision\":"
             "\"%" PRIu64 "\",\"value\":\"%s\"}}]}}",
             mod, strcmp(kind, "PUT") == 0 ? "" : "\"type\":\"DELETE\",", key64,
             mod, value64);
    fake_line(&n->at[i], line);
    fake_etcd_settle(&n->at[i]);
}

static inline const char *bridge(struct fake_etcd *f, const char *path,
                                 const char *body)
{
    struct names *n = f->user;
    bool txn = strcmp(path, "kv/txn") == 0;
    bool lost = txn && n->lose > 0;
    if (strcmp(path, "watch") == 0)
        return "{\"result\":{\"header\":{\"revision\":\"1\"},"
               "\"created\":true}}";
    n->txns += txn;
    n->leases += strncmp(path, "lease/", 6) == 0;
    n->lose -= lost;
    if (lost && n->late) {
        n->late = false;
        snprintf(n->delayed, sizeof(n->delayed), "%s", body);
        return FAKE_HANG_UP;
    }
    if (lost && n->unsaid)
        return FAKE_HANG_UP;
    const char *said = etcd_ask(n->member, 0, path, body);
    if (txn && n->hold) {
        n->hold = false;
        n->talk = f->last;
        snprintf(n->held, sizeof(n->held), "%s", said);
        return FAKE_SILENCE;
    }
    return lost ? FAKE_HANG_UP : said;
}

static inline void names_let_go(struct names *n)
{
    fake_talk_answer(n->talk, n->held);
    n->held[0] = 0;
}

/* The request that was late reaches etcd. */
static inline void names_arrive(struct names *n)
{
    CHECK(n->delayed[0] != 0);
    (void)etcd_ask(n->member, 0, "kv/txn", n->delayed);
    n->delayed[0] = 0;
}

/* ---- opening ------------------------------------------------------------- */

/* In a world, with a member that runs. */
static inline void names_begin(struct names *n, struct world *w,
                               struct etcd_kit *member)
{
    memset(n, 0, sizeof(*n));
    n->w = w;
    n->member = member;
    for (size_t i = 0; i < STORES; i++) {
        fake_etcd_begin(&n->at[i], w, bridge);
        n->at[i].user = n;
        vow_store *s = n->at[i].store;
        if (s != NULL)
            s->ops->listen(s,
                           &(const vow_store_events){.on_record = told_record,
                                                     .on_cancel = told_cancel,
                                                     .on_chunks = told_chunks,
                                                     .on_doubt = told_doubt,
                                                     .user = &n->heard[i]});
    }
}

static inline void names_end(struct names *n)
{
    for (size_t i = 0; i < STORES; i++)
        fake_etcd_end(&n->at[i]);
}

static inline struct names *names_open(void)
{
    static struct names n;
    static struct world w;
    static struct etcd_kit member;
    etcd_start(&member, NULL);
    world_open(&w);
    names_begin(&n, &w, &member);
    return &n;
}

static inline void names_close(struct names *n)
{
    names_end(n);
    world_run(n->w);
    world_close(n->w);
    etcd_stop(n->member);
}

/* All who speak with the stores. */
static inline void names_step(struct names *n)
{
    for (size_t i = 0; i < STORES; i++)
        fake_etcd_step(&n->at[i]);
}

static inline void names_settle(struct names *n)
{
    for (size_t i = 0; i < STORES; i++)
        fake_etcd_settle(&n->at[i]);
}

static inline void names_pass(struct names *n, uint64_t ms)
{
    for (; ms > 0; ms -= ms < 100 ? ms : 100) {
        world_advance_ms(n->w, ms < 100 ? ms : 100);
        names_step(n);
    }
    names_settle(n);
}

/* ---- steps --------------------------------------------------------------- */

static inline vow_token token_of(uint64_t number)
{
    vow_token t = {.bytes = {0}};
    memcpy(t.bytes, &number, sizeof(number));
    t.bytes[15] = 1;
    return t;
}

static inline void on_records(int code, const vow_record *r, size_t n,
                              void *user)
{
    struct answer *a = user;
    CHECK(!a->done);
    a->done = true;
    a->code = code;
    a->n = n;
    if (n == 0)
        return;
    a->status = r->status;
    a->epoch = r->epoch;
    a->first = r->first;
    a->left_ms = r->left_ms;
    a->takeovers = r->takeovers;
    a->waiters = r->waiters;
    a->failed = r->failed;
    a->size = vow_bytes_size(r->value);
    size_t cut = a->size < sizeof(a->value) ? a->size : sizeof(a->value) - 1;
    if (cut > 0)
        memcpy(a->value, vow_bytes_data(r->value), cut);
    snprintf(a->label, sizeof(a->label), "%s", r->label);
}

static inline struct answer *await(struct names *n, struct answer *a)
{
    while (!a->done)
        names_step(n);
    return a;
}

static inline struct answer claim(struct names *n, size_t i,
                                  const vow_claim_request *ask)
{
    struct answer a = {.done = false};
    n->at[i].store->ops->claim(n->at[i].store, ask, on_records, &a);
    return *await(n, &a);
}

#pragma GCC diagnostic ignored "-Woverride-init" /* what is given counts */
#define ASK(text, number, ...)                                                 \
    (&(const vow_claim_request){.name = vow_name_of(text),                     \
                                .token = token_of(number),                     \
                                .lease_ms = LONG_MS,                           \
                                .takeovers = 3,                                \
                                __VA_ARGS__})
#define COMMIT(text, number, fence, ...)                                       \
    (&(const vow_commit_request){.hold = {.name = vow_name_of(text),           \
                                          .token = token_of(number),           \
                                          .epoch = (fence)},                   \
                                 .outcome = VOW_OUTCOME_DONE,                  \
                                 .ttl_ms = LONG_MS,                            \
                                 __VA_ARGS__})

static inline struct answer commit(struct names *n, size_t i,
                                   const vow_commit_request *ask,
                                   const char *text)
{
    struct answer a = {.done = false};
    vow_commit_request with = *ask;
    VOW_AUTO(vow_bytes) value = NULL;
    if (text != NULL) {
        int rc = vow_bytes_new(n->w->loop, text, strlen(text), &value);
        CHECK(rc == 0 || fault_explains(n->w, rc));
        with.value = value;
    }
    n->at[i].store->ops->commit(n->at[i].store, &with, on_records, &a);
    return *await(n, &a);
}

static inline vow_hold hold_of(const char *text, uint64_t number,
                               uint64_t epoch)
{
    return (vow_hold){
        .name = vow_name_of(text), .token = token_of(number), .epoch = epoch};
}

static inline struct answer pulse(struct names *n, size_t i, vow_hold hold,
                                  uint64_t lease_ms)
{
    struct answer a = {.done = false};
    n->at[i].store->ops->pulse(n->at[i].store, &hold, 1, lease_ms, on_records,
                               &a);
    return *await(n, &a);
}

static inline struct answer forget(struct names *n, size_t i, const char *text,
                                   uint64_t epoch)
{
    struct answer a = {.done = false};
    vow_name name = vow_name_of(text);
    n->at[i].store->ops->forget(n->at[i].store, &name, epoch, on_records, &a);
    return *await(n, &a);
}

static inline struct answer cancel(struct names *n, size_t i, const char *text)
{
    struct answer a = {.done = false};
    vow_name name = vow_name_of(text);
    n->at[i].store->ops->cancel(n->at[i].store, &name, on_records, &a);
    return *await(n, &a);
}

static inline struct answer peek(struct names *n, size_t i, const char *text)
{
    struct answer a = {.done = false};
    vow_name name = vow_name_of(text);
    n->at[i].store->ops->peek(n->at[i].store, &name, 1, on_records, &a);
    return *await(n, &a);
}

static inline struct answer write_text(struct names *n, size_t i, vow_hold hold,
                                       uint64_t number, const char *text)
{
    struct answer a = {.done = false};
    VOW_AUTO(vow_bytes) chunk = NULL;
    CHECK_INT_EQ(vow_bytes_new(n->w->loop, text, strlen(text), &chunk), 0);
    n->at[i].store->ops->write(n->at[i].store, &hold, number, chunk, on_records,
                               &a);
    return *await(n, &a);
}

static inline void on_chunks(int code, vow_bytes *const *chunks, size_t n,
                             uint64_t next, void *user)
{
    struct answer *a = user;
    a->done = true;
    a->code = code;
    a->n = n;
    a->epoch = next;
    for (size_t i = 0; i < n; i++) {
        size_t used = strlen(a->value);
        snprintf(a->value + used, sizeof(a->value) - used, "%.*s|",
                 (int)vow_bytes_size(chunks[i]),
                 (const char *)vow_bytes_data(chunks[i]));
    }
}

/* All chunks, each with a '|' behind it. */
static inline struct answer read_text(struct names *n, size_t i, vow_hold hold)
{
    struct answer a = {.done = false};
    n->at[i].store->ops->read(n->at[i].store, &hold.name, hold.epoch, 0,
                              on_chunks, &a);
    return *await(n, &a);
}

/* "vow/n/H/r". */
static inline const char *whole_key(const char *kind, const char *text,
                                    const char *rest)
{
    static char whole[4 + sizeof(struct vow__key)];
    vow_name name = vow_name_of(text);
    struct vow__key key = vow__key(kind, &name, rest);
    snprintf(whole, sizeof(whole), "vow/%s", key.text);
    return whole;
}

#endif
