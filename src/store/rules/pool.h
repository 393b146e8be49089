/* SPDX-License-Identifier: MIT */
/* store/rules/pool.h - the protocol of pools and of their rate, as functions
 * without I/O, clock and allocation.
 *
 * WHY   Limits that many processes share must hold whatever a process does: die
 *       with a permit, die in the wait queue, or not fetch a granted permit.
 *       Every store must decide alike; the decisions are stated here once.
 * HOW   A store whose own steps grant permits (memory, the file) reads the row
 *       of a pool, calls one rule, and saves the row, all in one atomic step.
 *       The rule finds and writes permits by struct rules_storage. The scripts
 *       of Redis state the rules in Lua, and tests compare the scripts with the
 *       rules. A store on etcd has rules of its own.
 *
 * A permit is WAITING (a request in the wait queue) or HELD. Under a rate, a
 * held permit is *open* until the start of the work is known: by a renewal with
 * `started`, the release, or the end of the lease. An open permit counts
 * against the rate as if the work started now; from the start on, the weight is
 * in the rate log for a window.
 *
 * Each rule does, in this order:
 *
 *   1  removes permits with an expired lease, at most RULES_REAP_MAX
 *   2  does what the request asks for
 *   3  grants heads of the wait queue while the heads fit, and tells them.
 *      A head that can never fit leaves the queue and is told; a head with an
 *      expired lease leaves the queue. The permit of the caller is not told
 *   4  under a rate, tells a request that became the head and cannot be granted
 *      yet: only the head knows when the rate has room
 *
 * INVARIANTS  run by vow__rules_pool_check() before and after each rule
 *   P1  held is the weight of all held permits, and 0 with no holders; open is
 *       a part of held
 *   P2  times in the rate log never fall, every entry has a weight, and the
 *       newest entry began no later than its time
 * and by design, checked by tests:
 *   P3  no rule raises `held` above the concurrency limit, or the weight
 *       started and open in any window above the rate
 *   P4  behind each rule the head does not fit; permits are granted in the
 *       order of the requests
 *   P5  fences strictly rise
 * LIMITS
 *   - More than RULES_REAP_MAX expired permits take several steps, but for
 *     expired heads. The answer to a waiting request then says: ask again at
 *     once.
 *   - Time never falls: a store with a clock that may be set back lets the
 *     time stand until the clock has caught up.
 *   - A start that has left the window may be forgotten: a window that is made
 *     longer later may miss such starts.
 *   - Weight that was granted while the pool had no rate limit is not in the
 *     rate log of a later rate limit.
 *   - The limits of a pool are read with each step, also of a pool with the
 *     limits of another pool: changed limits grant a waiting request with the
 *     next step on its pool, at the latest the renewal of the request.
 *   - A release that is repeated answers NONE.
 *   - If a head that was granted by another request is dead, nobody is told
 *     when its 2 s are over: the next head asks with its next renewal, or
 *     when the answer to its last request said.
 * THREADS  any.
 */
#ifndef VOW_STORE_RULES_POOL_H
#define VOW_STORE_RULES_POOL_H

#include "store/rules/rules.h"
#include "vow/store.h"

/* ---- constants of the protocol ----------------------------------------- */

/* A permit granted by the step of another request is dropped unless the holder
 * renews or acquires within this time. */
#define RULES_ACCEPT_US UINT64_C(2000000)
enum {
    RULES_REAP_MAX = 64, /* expired permits removed by one step */
    /* With a rate above this number, starts within so small a part of the
     * window share an entry of the rate log. Entries of a window are then at
     * most one more. */
    RULES_RATE_PARTS = 256,
    RULES_RATE_ENTRIES = RULES_RATE_PARTS + 1
};

/* ---- the rate log ------------------------------------------------------- */

/* Weight that started at the same time, or at times that share an entry:
 * `at_us` is the newest of these times. */
struct rules_start {
    uint64_t at_us;
    uint64_t weight;
};

/* The starts of the last window, oldest first. To save a log: began_us and the
 * n entries. The store provides the array, with room for 1 to
 * RULES_RATE_ENTRIES; with RULES_RATE_ENTRIES the log is exact. With less room
 * a full log joins a start to the newest entry: a window gets too long, never
 * too short. */
struct rules_rate {
    struct rules_start *starts;
    uint32_t n;
    uint32_t room;
    uint64_t began_us; /* first start in the newest entry */
};

/* Returns the weight in the log that counts against the rate. A start at t
 * counts until t + window, both ends included. */
uint64_t vow__rules_rate_used(const struct rules_rate *l,
                              const vow_pool_limits *limits, uint64_t now_us);

/* Returns the time when `weight` fits behind requests with weight `ahead`, if
 * these requests start as early as the rate allows; at most now_us: now.
 * `open`: weight of open permits. The rate must not be 0. */
uint64_t vow__rules_rate_when(const struct rules_rate *l,
                              const vow_pool_limits *limits, uint64_t open,
                              uint64_t ahead, uint64_t weight, uint64_t now_us);

/* Enters a start, and removes entries that no longer count. A rate of 0 enters
 * nothing. All starts with the same now_us share an entry, so a step adds at
 * most one entry. */
void vow__rules_rate_add(struct rules_rate *l, const vow_pool_limits *limits,
                         uint64_t weight, uint64_t now_us);

/* Returns the first time when no entry counts any more; 0: no entry. */
uint64_t vow__rules_rate_over(const struct rules_rate *l,
                              const vow_pool_limits *limits);

/* ---- pools and permits -------------------------------------------------- */

/* The row of a pool. All zeros, with a log, is a pool without permits. */
struct rules_pool {
    vow_pool_limits limits; /* filled in by the store before each rule: of the
                               pool itself, or of the pool with the limits */
    uint64_t held;          /* weight */
    uint64_t holders;
    uint64_t waiting; /* requests in the wait queue */
    uint64_t open;    /* weight of open permits */
    uint64_t order;   /* of the newest request */
    uint64_t fence;   /* of the newest grant */
    struct rules_rate rate;
};

struct rules_permit {
    vow_token token;
    uint64_t order;  /* of the request: the waiting permit with the smallest
                        order is the head */
    uint64_t fence;  /* of the grant; 0: waiting */
    uint64_t end_us; /* of the lease, by the store's clock */
    uint32_t weight; /* of the first request; never changes */
    bool held;
    bool open;
    void *at; /* for the storage alone: handed back as found; NULL: of a permit
                 that is new in this step */
};

/* Permits of one pool. Each function but tell() returns 0, VOW_ENOENT where
 * said, or an error, which ends the rule and is returned by the rule. */
struct rules_storage {
    void *user;
    /* Finds a permit by token, also with an expired lease. VOW_ENOENT. */
    int (*find)(void *user, const vow_token *token, struct rules_permit *ret);
    /* Finds the waiting permit with the smallest order. VOW_ENOENT. */
    int (*head)(void *user, struct rules_permit *ret);
    /* Finds some permit with end_us at most now_us. VOW_ENOENT. A store may
     * count the permits of a dead process as expired. */
    int (*ended)(void *user, uint64_t now_us, struct rules_permit *ret);
    /* Tells the earliest end_us of all permits; or an earlier time, if a
     * waiter may ask too early. Called if a permit is waiting. */
    int (*next_end)(void *user, uint64_t *ret_us);
    /* Inserts a new permit (of the caller), or replaces one. */
    int (*put)(void *user, const struct rules_permit *permit);
    int (*drop)(void *user, const struct rules_permit *permit);
    /* Counts the waiting permits with a smaller order, and their weight. */
    int (*ahead)(void *user, const struct rules_permit *permit, uint64_t *ret_n,
                 uint64_t *ret_weight);
    /* Sends on_permit to the instance of the permit, which may be dropped
     * already. */
    void (*tell)(void *user, const struct rules_permit *permit);
};

/* Asserts P1 and P2. */
void vow__rules_pool_check(const struct rules_pool *p);

/* What a request may do, seen from the request. */
enum rules_rank {
    RULES_RANK_WAITING, /* does not fit now */
    RULES_RANK_HELD,    /* fits, and the pool has no rate */
    RULES_RANK_TURN,    /* fits now, under a rate: may be granted and counted */
    RULES_RANK_NEVER    /* weight above a limit */
};

/* Returns the rank of a request. The rules below decide by the rank about the
 * head, with `before` 0 and `marked` false. The other values are for a store in
 * which each request finds out by itself whether to hold a permit; no store
 * calls this yet. p->held and p->open: weight that is marked as held. `before`:
 * weight of the requests ahead; `marked`: this permit is one of the held, and
 * stays HELD whatever the limits. */
enum rules_rank vow__rules_rank(const struct rules_pool *p, uint64_t before,
                                uint32_t weight, bool marked, uint64_t now_us);

/* ---- rules -------------------------------------------------------------- */

/* Each rule changes *p and permits by the storage. With 0 or VOW_EINVAL the
 * store saves *p. With another code, from the storage, a store with
 * transactions rolls back; a store without makes sure that only put() of a new
 * permit can fail: then nothing but steps 1 and 3 has happened.
 * now.number: above every fence that the store has granted; 0: the fences of
 * the pool alone count. Other fields but now_us are not read.
 *
 * A rule that is repeated has the same answer and no second effect, but
 * release, which then answers NONE. */

/* Answers OWNED, WAITING or BUSY. VOW_EINVAL: a weight of 0 or above a limit, a
 * lease of 0. A token that is known keeps its order and weight. The caller
 * fetches a granted permit: the lease is the lease of the request. */
int vow__rules_acquire(struct rules_pool *p, const struct rules_storage *s,
                       const vow_permit_request *request, struct rules_now now,
                       vow_pool_permit *ret);

/* Answers OWNED: was held, WAITING: was in the queue, or NONE. *ret is complete
 * also if granting heads fails. */
int vow__rules_release(struct rules_pool *p, const struct rules_storage *s,
                       const vow_token *token, struct rules_now now,
                       vow_pool_permit *ret);

/* Answers OWNED, WAITING or NONE. VOW_EINVAL: a lease of 0. */
int vow__rules_renew(struct rules_pool *p, const struct rules_storage *s,
                     const vow_permit_hold *hold, uint64_t lease_ms,
                     struct rules_now now, vow_pool_permit *ret);

/* Sets the limits of this pool, or with NULL only does steps 1, 3 and 4: before
 * a pool is shown, and behind changed limits of another pool if the store
 * likes. The head is told of changed limits. */
int vow__rules_limit(struct rules_pool *p, const struct rules_storage *s,
                     const vow_pool_limits *limits, struct rules_now now);

/* Returns the weight that counts against the rate: the log, and open permits.
 * 0 without a rate. */
uint64_t vow__rules_pool_used(const struct rules_pool *p, uint64_t now_us);

/* Returns a time plus a span, at most RULES_NEVER. */
static inline uint64_t vow__rules_after(uint64_t at_us, uint64_t span_us)
{
    return span_us > RULES_NEVER - at_us ? RULES_NEVER : at_us + span_us;
}

#endif
