/* SPDX-License-Identifier: MIT */
/* contract.h - one suite that every store must pass, unchanged.
 *
 *     CONTRACT(claim, the_second_who_asks_waits)
 *     {
 *         CHECK_INT_EQ(rig_claim(r, 0, ASK("a", 1)).status, VOW_STATUS_OWNED);
 *         CHECK_INT_EQ(rig_claim(r, 1, ASK("a", 2)).status,
 *                      VOW_STATUS_WAITING);
 *     }
 *
 * is one test per store: contract_memory_claim.the_second_who_asks_waits and
 * so on. The body gets a rig: RIG_INSTANCES instances of an empty store on one
 * loop, each like a process of its own.
 *
 * THE CONTRACT is in vow/store.h: the section CONTRACT, and the comment of each
 * step. The tests check the contract.
 *
 * HOW A STORE REGISTERS. A file rig_NAME.c in this folder defines
 *
 *     const struct rig_store rig_NAME = {...};
 *
 * with the functions described at struct rig_store, and RIG_STORES below gets
 * an X(NAME, g, n), under an #ifdef if the store is an option of the build. No
 * test knows the store: the ops of the store (modes, value_max) say what the
 * store cannot do.
 *
 * TIME. A body waits for the end of a lease only by rig_lapse(), and depends on
 * a live lease only if the lease is LONG_MS. A lease or a TTL ends when the
 * time has passed, at most 1 ms later, or, for some stores, as late as struct
 * rig_store says. A lease of 0 ms ends with the step, and costs no time on any
 * store.
 */
#ifndef TEST_CONTRACT_H
#define TEST_CONTRACT_H

#include "harness.h"
#include "world.h"
#include <vow.h>

/* clang-format off */
#ifdef VOW_HAVE_SQLITE
#define RIG_SQLITE(X, g, n) X(sqlite, g, n)
#else
#define RIG_SQLITE(X, g, n)
#endif
#ifdef VOW_HAVE_REDIS
#define RIG_REDIS(X, g, n) X(redis, g, n)
#else
#define RIG_REDIS(X, g, n)
#endif
#ifdef VOW_HAVE_ETCD
#define RIG_ETCD(X, g, n) X(etcd, g, n)
#else
#define RIG_ETCD(X, g, n)
#endif
#define RIG_STORES(X, g, n)                                                    \
    X(memory, g, n) X(cas_watch, g, n) X(cas_register, g, n)                   \
    RIG_SQLITE(X, g, n) RIG_REDIS(X, g, n) RIG_ETCD(X, g, n)
/* clang-format on */

enum {
    RIG_INSTANCES = 5,
    RIG_VALUE_MAX = 64 * 1024, /* what a rig opens its store with */
    LONG_MS = 3600 * 1000      /* a lease that does not end in a test */
};

struct rig;
struct rig_store {
    const char *name;
    bool real_time;    /* its leases go by a clock that tests cannot move */
    bool asynchronous; /* steps are answered by the loop */
    bool counts_no_waiters; /* the number of waiters is UINT32_MAX */
    bool tells_no_pulse;    /* pulse_ms is UINT64_MAX */
    /* Permits are ordered: no step grants a permit to another process, so a
     * request under a rate is granted by its own step only, and the 2 s to
     * fetch a permit begin when the request fits, not with the next step. New
     * limits remove all requests that can never be granted, not only
     * the first. */
    bool ordered;
    unsigned short_ms; /* of rig_short_ms(), where steps take long; 0: 100 */
    unsigned late_ms; /* how much later than asked leases of who has left end */
    /* Whether all leases of rig_short_ms() have ended. NULL: with their time. */
    bool (*lapsed)(struct rig *r);
    /* Make what the instances share, in r->state. */
    void (*begin)(struct rig *r);
    /* One more instance on r->world.loop, with value_max RIG_VALUE_MAX. Runs
     * the loop if that takes time; fails the test if it cannot. */
    vow_store *(*open)(struct rig *r);
    /* All instances are closed: undo begin(). */
    void (*end)(struct rig *r);
};

/* What the store told an instance by itself. */
struct rig_news {
    unsigned records, cancels, chunks, places, doubts;
    vow_name name;   /* of the last of the first three */
    vow_token token; /* of the last place */
    uint32_t status; /* of the last record, and: */
    uint64_t epoch;
    unsigned char value[64]; /* its beginning */
    size_t value_size;
};

struct rig {
    const struct rig_store *store;
    struct world world;
    vow_store *at[RIG_INSTANCES]; /* NULL: closed */
    struct rig_news news[RIG_INSTANCES];
    void *state;
};

typedef void (*contract_fn)(struct rig *r);
void contract_run(const struct rig_store *store, contract_fn body);

#define CONTRACT(g, n)                                                         \
    static void contract_##g##_##n(struct rig *r);                             \
    RIG_STORES(CONTRACT_ON_, g, n)                                             \
    static void contract_##g##_##n(struct rig *r)
#define CONTRACT_ON_(store, g, n)                                              \
    TEST(contract_##store##_##g, n)                                            \
    {                                                                          \
        contract_run(&rig_##store, contract_##g##_##n);                        \
    }

#define RIG_DECLARE_(store, g, n) extern const struct rig_store rig_##store;
RIG_STORES(RIG_DECLARE_, 0, 0)
#undef RIG_DECLARE_

/* ---- asking ------------------------------------------------------------- */

/* An answer, copied: it needs no freeing. */
struct rig_answer {
    int code;
    uint32_t status;
    uint64_t epoch, first;
    uint32_t mode, takeovers, waiters;
    bool failed;
    uint64_t age_ms, pulse_ms, left_ms, cost_ms;
    char label[VOW_LABEL_MAX + 1];
    char runner[VOW_LABEL_MAX + 1];
    vow_name name;
    unsigned char value[128]; /* the beginning of it */
    size_t value_size;
};

/* The name of a text; token number so and so. Short forms of asks: the
 * address of a temporary, with LONG_MS, takeovers 3 and what is given. */
vow_name rig_name(const char *text);
vow_name rig_limits_name(const char *pool); /* of "p:a": that of "p" */
vow_token rig_token(uint64_t number);
#pragma GCC diagnostic ignored "-Woverride-init" /* what is given counts */
#define ASK(text, number, ...)                                                 \
    (&(const vow_claim_request){.name = rig_name(text),                        \
                                .token = rig_token(number),                    \
                                .lease_ms = LONG_MS,                           \
                                .takeovers = 3,                                \
                                __VA_ARGS__})
#define COMMIT(text, number, fence, ...)                                       \
    (&(const vow_commit_request){.hold = {.name = rig_name(text),              \
                                          .token = rig_token(number),          \
                                          .epoch = (fence)},                   \
                                 .outcome = VOW_OUTCOME_DONE,                  \
                                 .ttl_ms = LONG_MS,                            \
                                 __VA_ARGS__})

struct rig_answer rig_claim(struct rig *r, size_t i,
                            const vow_claim_request *ask);
struct rig_answer rig_peek(struct rig *r, size_t i, const char *text);
struct rig_answer rig_pulse(struct rig *r, size_t i, const vow_hold *hold,
                            uint64_t lease_ms);
/* The value is the text, without its NUL; NULL: what the ask has. */
struct rig_answer rig_commit(struct rig *r, size_t i,
                             const vow_commit_request *ask, const char *text);
struct rig_answer rig_forget(struct rig *r, size_t i, const char *text,
                             uint64_t epoch);
struct rig_answer rig_cancel(struct rig *r, size_t i, const char *text);
struct rig_answer rig_write(struct rig *r, size_t i, const vow_hold *hold,
                            uint64_t number, const char *text);

/* Checks the number of waiters, if the store counts waiters. */
void rig_check_waiters(const struct rig *r, uint32_t got, uint32_t want);

/* Several at once; `out` has room for n. The code is returned. */
int rig_peek_all(struct rig *r, size_t i, const vow_name *names, size_t n,
                 struct rig_answer *out);
int rig_pulse_all(struct rig *r, size_t i, const vow_hold *holds, size_t n,
                  struct rig_answer *out);
/* Returns how many there are; at most `room` are written. */
size_t rig_list(struct rig *r, size_t i, struct rig_answer *out, size_t room);

/* All chunks that one read gives, behind one another and each with a '|'. */
struct rig_chunks {
    int code;
    size_t n;
    uint64_t next;
    char text[2048];
};
struct rig_chunks rig_read(struct rig *r, size_t i, const char *text,
                           uint64_t epoch, uint64_t from);

/* ---- places ------------------------------------------------------------- */

#define PLACE(text, number, ...)                                               \
    (&(const vow_permit_request){.pool = rig_name(text),                       \
                                 .limits_of = rig_limits_name(text),           \
                                 .token = rig_token(number),                   \
                                 .weight = 1,                                  \
                                 .lease_ms = LONG_MS,                          \
                                 .label = (text),                              \
                                 __VA_ARGS__})

struct rig_place {
    int code;
    vow_pool_permit place;
};
struct rig_place rig_acquire(struct rig *r, size_t i,
                             const vow_permit_request *ask);
struct rig_place rig_release(struct rig *r, size_t i, const char *text,
                             uint64_t number);
struct rig_place rig_renew(struct rig *r, size_t i, const char *text,
                           uint64_t number, uint64_t lease_ms);
void rig_renew_hold(struct rig *r, size_t i, const vow_permit_hold *hold,
                    uint64_t lease_ms, struct rig_place *ret_place);
/* A renewal that says that it has started. */
struct rig_place rig_start(struct rig *r, size_t i, const char *text,
                           uint64_t number, uint64_t lease_ms);

struct rig_pool {
    int code;
    vow_pool_info info; /* without its label, which is: */
    char label[VOW_LABEL_MAX + 1];
};
/* `limits` NULL reads. */
struct rig_pool rig_limit(struct rig *r, size_t i, const char *text,
                          const vow_pool_limits *limits);
size_t rig_pools(struct rig *r, size_t i, struct rig_pool *out, size_t room);

/* ---- time, and what is told --------------------------------------------- */

/* Claim or renew with this lease, then rig_lapse(): it has ended. */
uint64_t rig_short_ms(const struct rig *r);
void rig_lapse(struct rig *r);

/* Let so much time pass, and what is on its way arrive. */
void rig_advance_ms(struct rig *r, uint64_t ms);
uint64_t rig_now_us(const struct rig *r);

/* Run until the counter, one of r->news, has reached `count`; the test fails
 * if it does not within a minute and more. */
void rig_expect(struct rig *r, const unsigned *counter, unsigned count);

/* Close an instance; open another in its place. */
void rig_close(struct rig *r, size_t i);
void rig_reopen(struct rig *r, size_t i);

#endif
