/* SPDX-License-Identifier: MIT */
/* vow/store.h - the interface of a store, and the contract of all stores.
 *
 * A store keeps a record per name, and pools of permits. An *instance* is an
 * open vow_store; every process has instances of its own. A *step* is a call of
 * vow_store_ops, atomic at the store and a single round trip. A step is
 * answered by `done`, exactly once, on the instance's loop, perhaps before the
 * call returns. The arguments of `done` are borrowed for the call; the
 * arguments of a step are copied. Steps of a caller take effect in order.
 *
 * CONTRACT (checked for every store by tests/contract)
 *
 * Failures. VOW_EUNSURE: the step was sent and the answer was lost, so the step
 * may have happened. VOW_ESTORE: the step did not happen, the store cannot be
 * used. VOW_EAGAIN: the step did not happen, other processes kept the store
 * busy for too long; try again. No other code leaves the outcome open.
 *
 * Repeats. A step that ended with VOW_EUNSURE may be repeated with the same
 * token: the repeat has no second effect, and gives the answer.
 *
 * Time. Only the store's clock expires a lease; the owner's clock is never
 * used. `left_ms` and kin are durations, not dates. A lease or a TTL expires
 * when the time has passed, at most 1 ms later, or as late as the store
 * documents. The lease of a name may be 0 ms, and then expires at the end of
 * the step.
 *
 * Owners. A claim of a free name makes the caller the owner, with a larger
 * epoch. A claim of a name with an expired lease does the same, as a takeover,
 * unless the mode of the owner is VOW_ONCE (DOUBT) or no takeover is left
 * (SETTLED, with a failure). A claim or a pulse with the owner's token renews
 * the lease, also an expired lease, if no other owner took over. commit and
 * write compare token and epoch, not the time. cancel, forget and peek treat an
 * expired lease as NONE (VOW_ONCE: as DOUBT), and do not change the record.
 *
 * Waiters. A claim answered WAITING registers the instance, in the same atomic
 * step, unless VOW_CLAIM_NOWAIT. Settling or abandoning the name wakes all
 * registered instances. A claim with any other answer ends the registration.
 * Wake-ups may be lost: a waiter claims again after `left_ms`, and every
 * `recheck_ms` of the store.
 *
 * Results with ttl_ms 0. The result is only for the claims that waited for the
 * run, also across takeovers: a claim whose `waited` is the `first` of the run
 * reads the result, whatever became of the name since, as often as the claim
 * comes. The result can be read until on_record has delivered SETTLED to the
 * instance, or else at least for 2 * recheck_ms plus the owner's lease. For
 * every other claim, and for peek, list, forget and VOW_COMMIT_PUT, the result
 * does not exist. A store may leave out a result without registered instances.
 *
 * Refreshes (VOW_STORE_REFRESHES). A claim with `refresh` of a name whose
 * result has that epoch makes the caller the refresher: OWNED, with an epoch
 * larger than the result's. The result stays, and every other claim reads the
 * result. The refresher has a lease of its own, and pulses, commits and writes
 * as an owner does; chunks are not kept. DONE replaces the result and wakes all
 * registered instances. FAILED and ABANDONED keep the result, and after FAILED
 * no refresh is granted for a second. When the result expires, the refresher is
 * the owner. SETTLED, without the value: the result has another epoch, is a
 * failure, is of mode VOW_ONCE, or is being refreshed; or the claim is of mode
 * VOW_ONCE. A name without a result is claimed as without `refresh`. A claim
 * with VOW_CLAIM_FORCE waits for the refresher. cancel is told to the
 * refresher. forget of any epoch is WAITING while the result is refreshed; with
 * the epoch of the result, the result goes and the refresher is the owner.
 *
 * Pools. Every step on a pool first removes permits and requests with an
 * expired lease, then does the request, then grants waiting requests in order.
 * A permit granted by a step of another request must be fetched within 2 s, by
 * acquire or renew, or is granted to the next request. VOW_PERMIT_TRY gets a
 * permit if the wait queue is empty and the permit fits. A step on the pool of
 * a key reads the limits of the pool with the limits: changed limits reach a
 * waiting request of a key with the next step on the pool of the key, at the
 * latest its next renewal. If new limits can never allow the weight of the
 * first waiting request, the request leaves the queue and on_permit is called;
 * the next acquire with the token gives VOW_EINVAL. A rate is exact: at most
 * `rate` in any window. Above a rate of 256 a start may count for a 256th of
 * the window longer (etcd: vow-store(7)).
 *
 * Owner: vow_store_open() or a constructor makes a store; ops->close frees it.
 * Threads: the thread of the loop the store was opened on.
 */
#ifndef VOW_STORE_H
#define VOW_STORE_H

#include "vow/pool.h"
#include "vow/record.h"

VOW_BEGIN_DECLS

typedef struct vow_store vow_store;

/* A pool permit, as answered by the store. `status` is OWNED, WAITING, BUSY, or
 * NONE (the permit or request was lost, or never existed). */
typedef struct vow_pool_permit {
    uint32_t status;   /* enum vow_status */
    uint64_t fence;    /* OWNED: number of the grant, strictly increasing */
    uint64_t ahead;    /* WAITING: requests ahead in the wait queue */
    uint64_t again_us; /* WAITING: time until the next acquire, in microseconds,
                          unless on_permit comes first */
    vow_pool_limits limits;
} vow_pool_permit;

typedef void (*vow_permits_fn)(int code, const vow_pool_permit *permits,
                               size_t n, void *user);

enum { VOW_PERMIT_TRY = 1 /* do not queue */ };

typedef struct vow_permit_request {
    vow_name pool;      /* the pool, or the pool of a key */
    vow_name limits_of; /* the pool with the limits; `pool` without a key */
    vow_token token;
    uint32_t weight;
    uint32_t flags; /* VOW_PERMIT_... */
    uint64_t lease_ms;
    vow_pool_limits limits;   /* used if the pool has no limits yet */
    const char *label;        /* of `pool` */
    const char *limits_label; /* of `limits_of`, if another pool */
    const char *runner;
} vow_permit_request;

typedef struct vow_permit_hold {
    vow_name pool;
    vow_name limits_of; /* as in the request */
    vow_token token;
    bool started; /* for renew: the work has started */
} vow_permit_hold;

typedef void (*vow_pools_fn)(int code, const vow_pool_info *pools, size_t n,
                             void *user);

/* A finding of `examine`: a subject, a level, and advice. */
enum { VOW_FINDING_GOOD, VOW_FINDING_WARN, VOW_FINDING_BAD };
typedef struct vow_finding {
    uint32_t level;     /* VOW_FINDING_... */
    const char *what;   /* subject: "eviction" */
    const char *text;   /* "maxmemory-policy is allkeys-lru" */
    const char *advice; /* a sentence; "": nothing to do */
} vow_finding;
typedef void (*vow_findings_fn)(int code, const vow_finding *findings, size_t n,
                                void *user);

/* The events of an instance. An event is a hint, and may be lost, doubled or
 * late. Called on the instance's loop, never inside a step. */
typedef struct vow_store_events {
    /* A name this instance waits for has changed. Status SETTLED: the record is
     * complete, of this run if the epoch is not below the epoch that the
     * instance waits for; NONE: only `name` is set, claim again. */
    void (*on_record)(const vow_record *r, void *user);
    /* The work of a name owned by this instance should stop. */
    void (*on_cancel)(const vow_name *name, void *user);
    /* A name this instance waits for has new chunks. */
    void (*on_chunks)(const vow_name *name, void *user);
    /* A waiting request may be granted: acquire again with the token. */
    void (*on_permit)(const vow_token *token, void *user);
    /* Wake-ups may have been lost: repeat all waiting claims and requests. */
    void (*on_doubt)(void *user);
    void *user;
} vow_store_events;

enum { VOW_STORE_VERSION = 2 };
enum {
    VOW_STORE_LOCAL = 1,    /* a single instance: the authority keeps results */
    VOW_STORE_STARTS = 2,   /* a rate limit counts starts, see `acquire` */
    VOW_STORE_REFRESHES = 4 /* without it no result is refreshed */
};

typedef struct vow_store_ops {
    uint32_t version;    /* VOW_STORE_VERSION */
    uint32_t modes;      /* bits, 1 << enum vow_mode */
    uint32_t flags;      /* VOW_STORE_... */
    uint64_t recheck_ms; /* a waiter claims again after this */
    size_t value_max;    /* bytes of a result, and of all chunks of a run */
    const char *value_advice; /* for a larger result: advice, as a phrase; NULL:
                                 none */
    const char *kind;         /* "sqlite" */

    /* Sets the event functions (copied). Called once, before the first step. */
    void (*listen)(vow_store *s, const vow_store_events *events);

    /* Claims a name: OWNED, WAITING, SETTLED (with the value) or DOUBT. A
     * repeat with the owner's token is OWNED again. */
    void (*claim)(vow_store *s, const vow_claim_request *request,
                  vow_records_fn done, void *user);
    /* Answers, per name, the status a claim would find, without values: NONE,
     * WAITING, SETTLED or DOUBT. Changes nothing. */
    void (*peek)(vow_store *s, const vow_name *names, size_t n,
                 vow_records_fn done, void *user);
    /* Renews the leases of all holds: OWNED, CANCELED, LOST or SETTLED for
     * each. A vanished record of mode VOW_SHARED is made again with the epoch
     * of the hold; for other modes the answer is LOST. */
    void (*pulse)(vow_store *s, const vow_hold *holds, size_t n,
                  uint64_t lease_ms, vow_records_fn done, void *user);
    /* Settles or abandons a name. OWNED: accepted, also the second time. LOST:
     * refused, another owner has or had the name; also for PUT and RESOLVE of
     * a running name. SETTLED: refused, the accepted result comes with the
     * answer. NONE: refused, the record is gone. VOW_E2BIG: the value is above
     * value_max. VOW_ENOSPC: as VOW_ESTORE, and a name of mode VOW_SHARED was
     * abandoned. */
    void (*commit)(vow_store *s, const vow_commit_request *request,
                   vow_records_fn done, void *user);
    /* Removes a record with a result or in doubt, if the epoch is `epoch`; 0:
     * any epoch. NONE: the record is gone. WAITING: the work runs, the record
     * stays. SETTLED or DOUBT: the record has another epoch, and stays. */
    void (*forget)(vow_store *s, const vow_name *name, uint64_t epoch,
                   vow_records_fn done, void *user);
    /* Asks the owner to stop. WAITING: the owner was asked; otherwise the
     * status of the name. */
    void (*cancel)(vow_store *s, const vow_name *name, vow_records_fn done,
                   void *user);
    /* Answers all records, without values. Records with an expired lease may be
     * missing. */
    void (*list)(vow_store *s, vow_records_fn done, void *user);

    /* Adds a chunk for followers: OWNED or LOST. `number` counts the chunks of
     * the claim from 0. A number that is there already is a repeat; a number
     * beyond the next is not stored, because chunks before were lost with the
     * record: followers get the rest with the result. VOW_E2BIG: all chunks
     * together are above value_max. */
    void (*write)(vow_store *s, const vow_hold *hold, uint64_t number,
                  vow_bytes *chunk, vow_records_fn done, void *user);
    /* Reads chunks of an epoch, from number `from` on; the remaining chunks
     * need more reads. VOW_ENOENT: the epoch is over. */
    void (*read)(vow_store *s, const vow_name *name, uint64_t epoch,
                 uint64_t from, vow_chunks_fn done, void *user);

    /* Requests a permit: OWNED, WAITING or BUSY. Permits are granted first come
     * first served, when concurrency limit and rate limit both have room.
     * VOW_EINVAL: a weight of 0 or above a limit, a lease of 0. A token that
     * holds a permit or waits keeps its turn. With VOW_STORE_STARTS, a grant
     * counts against the rate as if started now, until a renewal tells the
     * start, the permit is released or the lease ends; from then on, for a
     * window. */
    void (*acquire)(vow_store *s, const vow_permit_request *request,
                    vow_permits_fn done, void *user);
    /* Releases a permit or withdraws a request. OWNED: the permit was held.
     * WAITING: the request was in the queue. */
    void (*release)(vow_store *s, const vow_permit_hold *hold,
                    vow_permits_fn done, void *user);
    /* Renews the leases of permits and of waiting requests. VOW_EINVAL: a lease
     * of 0. */
    void (*renew)(vow_store *s, const vow_permit_hold *holds, size_t n,
                  uint64_t lease_ms, vow_permits_fn done, void *user);
    /* Sets the limits of a pool (NULL: only reads), and answers the pool.
     * VOW_ENOENT: no pool to read. The pool of a key has no limits of its own:
     * to set them is VOW_EINVAL, or has no effect on the key. */
    void (*limit)(vow_store *s, const vow_name *pool,
                  const vow_pool_limits *limits, const char *label,
                  vow_pools_fn done, void *user);
    void (*pools)(vow_store *s, vow_pools_fn done, void *user);

    /* Returns the last failure as a sentence, borrowed; "": none. */
    const char *(*explain)(vow_store *s);
    /* Examines the store, for `vow doctor`. NULL: nothing to examine. */
    void (*examine)(vow_store *s, vow_findings_fn done, void *user);

    /* Closes the instance: steps in flight end with VOW_ECLOSED, permits are
     * released, owned names stay owned until the lease ends. The store is freed
     * when the future is settled. */
    vow_future *(*close)(vow_store *s);
} vow_store_ops;

struct vow_store {
    const vow_store_ops *ops;
};

/* Opens a store by address: "memory:", "file:DIR", "redis://HOST",
 * "rediss://HOST", "unix:PATH", "redis-sentinel://HOST/MASTER",
 * "rediss-sentinel://HOST/MASTER", "etcd://HOST", "etcds://HOST"; vow-store(7)
 * describes addresses. The future has a vow_store as vow_ptr(); the caller
 * closes the store. Rejected: VOW_EINVAL (an invalid address, with a message),
 * VOW_ENOTSUP (a store not in this build), or the error of the store. Since
 * 0.1. */
#define vow_store_open(loop, url) vow_store_open_at(VOW_HERE, (loop), (url))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_store_open_at(const char *site, vow_loop *loop,
                              const char *url);

VOW_END_DECLS

#endif
