/* SPDX-License-Identifier: MIT */
/* vow/store.h - the interface behind an authority: what a store must do.
 *
 * A store keeps one record per name, and pools of places. Each step below is
 * atomic at the store and one round trip. It is begun by a call and answered by
 * `done`, exactly once, on the store's loop, perhaps before the call returns.
 * What `done` gets is borrowed for the time of the call; arguments of a step
 * are copied. Steps begun by one caller take effect in their order.
 *
 * Unknown. A step that was sent and whose answer was lost ends with
 * VOW_EUNSURE: it may have happened. The same step with the same token is safe
 * to repeat, and then tells. VOW_ESTORE: it did not happen, the store cannot be
 * used. VOW_EAGAIN: it did not happen, others kept the store busy for too long;
 * try again. Nothing else is ambiguous.
 *
 * Time. A lease is ended by the store's clock alone, never by that of who holds
 * it. `left_ms` and the like are spans, not dates.
 *
 * Wake-ups. A claim that finds the name taken registers the store's instance as
 * waiting in the same atomic step; who settles it wakes all that are
 * registered. Wake-ups may be lost: who waits looks again after `left_ms`, and
 * every `recheck_ms` of the store.
 *
 * Owner: vow_store_open() or a constructor gives it; ops->close ends it.
 * Threads: the thread of the loop it was opened on.
 */
#ifndef VOW_STORE_H
#define VOW_STORE_H

#include "vow/pool.h"
#include "vow/record.h"

VOW_BEGIN_DECLS

typedef struct vow_store vow_store;

/* A permit of a pool, as the store answers. Its status is OWNED, WAITING, BUSY,
 * or NONE (the permit was lost, or never existed). */
typedef struct vow_pool_permit {
    uint32_t status;   /* enum vow_status */
    uint64_t fence;    /* OWNED: number of this grant, strictly increasing */
    uint64_t ahead;    /* WAITING: requests before this one */
    uint64_t again_us; /* WAITING: when to ask again without a wake-up */
    vow_pool_limits limits;
} vow_pool_permit;

typedef void (*vow_permits_fn)(int code, const vow_pool_permit *places,
                               size_t n, void *user);

enum { VOW_PERMIT_TRY = 1 /* do not queue */ };

typedef struct vow_permit_request {
    vow_name pool;      /* where */
    vow_name limits_of; /* whose limits; the same, or a pool of many keys */
    vow_token token;
    uint32_t weight;
    uint32_t flags; /* VOW_PERMIT_... */
    uint64_t lease_ms;
    vow_pool_limits limits;   /* those of the pool, if it has none yet */
    const char *label;        /* of the pool */
    const char *limits_label; /* of the other, if that is another */
    const char *runner;
} vow_permit_request;

typedef struct vow_permit_hold {
    vow_name pool;
    vow_name limits_of; /* as it was asked for */
    vow_token token;
    bool started; /* a renewal: what the place is for has begun */
} vow_permit_hold;

typedef void (*vow_pools_fn)(int code, const vow_pool_info *pools, size_t n,
                             void *user);

/* What was looked at, how it is, and what to do about it. */
enum { VOW_FINDING_GOOD, VOW_FINDING_WARN, VOW_FINDING_BAD };
typedef struct vow_finding {
    uint32_t level;     /* VOW_FINDING_... */
    const char *what;   /* "eviction" */
    const char *text;   /* "maxmemory-policy is allkeys-lru" */
    const char *advice; /* a sentence; "" if there is nothing to do */
} vow_finding;
typedef void (*vow_findings_fn)(int code, const vow_finding *findings, size_t n,
                                void *user);

/* What a store tells by itself. Each is a hint and may be lost, doubled or
 * late. Called on the store's loop, never inside a step. */
typedef struct vow_store_events {
    /* A name that an instance waits for has changed. With status SETTLED the
     * record is whole; with NONE only `name` is set: ask again. */
    void (*on_record)(const vow_record *r, void *user);
    /* Somebody asked to stop this name, which we own. */
    void (*on_cancel)(const vow_name *name, void *user);
    /* Chunks of a name we wait for can be read. */
    void (*on_chunks)(const vow_name *name, void *user);
    /* A place that we queue for was granted: acquire again to have it. */
    void (*on_permit)(const vow_token *token, void *user);
    /* Wake-ups may have been lost: ask again for all that waits. */
    void (*on_doubt)(void *user);
    void *user;
} vow_store_events;

enum { VOW_STORE_VERSION = 1 };
enum {
    VOW_STORE_LOCAL = 1, /* one instance only: results stay in memory */
    VOW_STORE_STARTS = 2 /* rates are those of starts, see `acquire` */
};

typedef struct vow_store_ops {
    uint32_t version; /* VOW_STORE_VERSION */
    uint32_t modes;   /* bits, 1 << enum vow_mode */
    uint32_t flags;   /* VOW_STORE_... */
    uint64_t recheck_ms;
    size_t value_max;
    const char *value_advice; /* about a longer result: what to do, a phrase;
                                 NULL: nothing */
    const char *kind;         /* "sqlite" */

    /* Set once, before the first step. */
    void (*listen)(vow_store *s, const vow_store_events *events);

    /* OWNED, WAITING, SETTLED or DOUBT. A second claim with the token of the
     * owner is OWNED again. */
    void (*claim)(vow_store *s, const vow_claim_request *ask,
                  vow_records_fn done, void *user);
    /* The status that claims would get, without values; changes nothing. NONE
     * for a name whose owner is gone. */
    void (*peek)(vow_store *s, const vow_name *names, size_t n,
                 vow_records_fn done, void *user);
    /* Renews all leases at once: OWNED, CANCELED, LOST or SETTLED for each. A
     * record that vanished is made again with the epoch of the hold, and takes
     * no more chunks (VOW_E2BIG), because the first chunks are gone. */
    void (*pulse)(vow_store *s, const vow_hold *holds, size_t n,
                  uint64_t lease_ms, vow_records_fn done, void *user);
    /* OWNED: the result was accepted (also the second time). LOST: refused,
     * another runner owns the name. SETTLED: refused, and the accepted result
     * comes with the answer. NONE: refused, the record is gone. An expired
     * lease that no other runner took over can still commit. VOW_ENOSPC: as
     * VOW_ESTORE, and a name of mode VOW_SHARED was given back. */
    void (*commit)(vow_store *s, const vow_commit_request *ask,
                   vow_records_fn done, void *user);
    /* Removes a record with a result or in doubt; epoch 0 means any epoch.
     * NONE: the record is gone. WAITING: the work runs, and the record stays.
     * SETTLED: the record is of another epoch, and stays. */
    void (*forget)(vow_store *s, const vow_name *name, uint64_t epoch,
                   vow_records_fn done, void *user);
    /* Asks the owner to stop. WAITING: the owner was asked; otherwise the
     * status of the name. */
    void (*cancel)(vow_store *s, const vow_name *name, vow_records_fn done,
                   void *user);
    /* All records, without values. */
    void (*list)(vow_store *s, vow_records_fn done, void *user);

    /* Adds a chunk for followers: OWNED or LOST. Reads the chunks of an epoch;
     * VOW_ENOENT when the epoch is over. */
    void (*write)(vow_store *s, const vow_hold *hold, vow_bytes *chunk,
                  vow_records_fn done, void *user);
    void (*read)(vow_store *s, const vow_name *name, uint64_t epoch,
                 uint64_t from, vow_chunks_fn done, void *user);

    /* Permits, first come first served, granted when concurrency limit and rate
     * limit both have room. VOW_EINVAL: a weight above a limit. A token that
     * holds a permit or waits keeps its turn. With VOW_STORE_STARTS a grant
     * counts against the rate as of now until a renewal tells the start, the
     * permit is released, or its lease ends; from then on for a window. */
    void (*acquire)(vow_store *s, const vow_permit_request *ask,
                    vow_permits_fn done, void *user);
    /* OWNED: the permit was held. WAITING: the request was in the queue. */
    void (*release)(vow_store *s, const vow_permit_hold *hold,
                    vow_permits_fn done, void *user);
    /* Renews permits and waiting requests, all at once. */
    void (*renew)(vow_store *s, const vow_permit_hold *holds, size_t n,
                  uint64_t lease_ms, vow_permits_fn done, void *user);
    /* Set the limits (NULL: read them), and tell of the pool. */
    void (*limit)(vow_store *s, const vow_name *pool,
                  const vow_pool_limits *limits, const char *label,
                  vow_pools_fn done, void *user);
    void (*pools)(vow_store *s, vow_pools_fn done, void *user);

    /* The last trouble as a sentence, borrowed; "" without one. */
    const char *(*explain)(vow_store *s);
    /* Look at it as a doctor would. NULL: there is nothing to look at. */
    void (*examine)(vow_store *s, vow_findings_fn done, void *user);

    /* Steps in flight end with VOW_ECLOSED; what is owned stays until its
     * lease ends, places are given back. The store is freed when the future is
     * settled. */
    vow_future *(*close)(vow_store *s);
} vow_store_ops;

struct vow_store {
    const vow_store_ops *ops;
};

/* Open a store by its address: "memory:", "file:DIR", "redis://HOST",
 * "rediss://HOST", "unix:PATH", "redis-sentinel://HOST/NAME", "etcd://HOST",
 * "etcds://HOST"; vow-store(7) has all of an address. The future has a
 * vow_store as vow_ptr(), which the caller closes. Rejected: VOW_EINVAL (an
 * address that is none, with a sentence), VOW_ENOTSUP (a store this library was
 * built without), or why it cannot be used. Since 0.1. */
#define vow_store_open(loop, url) vow_store_open_at(VOW_HERE, (loop), (url))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_store_open_at(const char *site, vow_loop *loop,
                              const char *url);

VOW_END_DECLS

#endif
