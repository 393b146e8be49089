/* SPDX-License-Identifier: MIT */
/* vow/authority.h - the authority: decides which caller runs named work and
 * which callers wait.
 *
 * An authority keeps a table of the names requested in this process. Behind the
 * authority is a store, which connects processes. Of all callers requesting a
 * name at the same time, one runs the work and all get the result
 * (vow/share.h).
 *
 * Words. A *lease* is the right to run the work of a name for a limited time;
 * the *owner* holds the lease. A *pulse* (keepalive, heartbeat) renews the
 * lease. A *waiter* is a pending request for a name. A *fence* is a number,
 * larger for every new lease of the name.
 *
 * Loops. The table, the pulses and the store run on the *hub loop*: the loop of
 * a thread of the authority's own, which no code of yours can block; or, with
 * VOW_AUTHORITY_HERE, with "memory:", with .store and on virtual time, the loop
 * the authority was opened on. Other loops join by vow_authority_join().
 *
 * Owner: counted. Dropping the last handle closes the authority.
 * Threads: a handle belongs to a loop.
 */
#ifndef VOW_AUTHORITY_H
#define VOW_AUTHORITY_H

#include "vow/pool.h"
#include "vow/store.h"

VOW_BEGIN_DECLS

/* The policy of a request while the store cannot be used. */
enum vow_store_down {
    VOW_DOWN_DEFAULT = 0, /* VOW_SHARED: RUN (with PEEK: FAIL); else FAIL */
    VOW_DOWN_RUN = 1,     /* run the work without coordination; VOW_SHARED */
    VOW_DOWN_WAIT = 2,    /* try again, with growing pauses */
    VOW_DOWN_FAIL = 3     /* reject with VOW_ESTORE */
};

enum {
    VOW_AUTHORITY_HERE = 1,  /* this loop, which must never block, is the hub */
    VOW_AUTHORITY_THREAD = 2 /* a thread of its own, also with "memory:" */
};

/* Events for logs and tests. */
enum vow_event_kind {
    VOW_EVENT_CLAIMED = 1,  /* this process owns the name */
    VOW_EVENT_JOINED = 2,   /* another process owns the name */
    VOW_EVENT_TAKEOVER = 3, /* CLAIMED, after the owner before was lost */
    VOW_EVENT_SETTLED = 4,  /* the result of this process was accepted */
    VOW_EVENT_LATE = 5,     /* the result came too late and was ignored */
    VOW_EVENT_LOST = 6,     /* this process lost the lease */
    VOW_EVENT_RETRY = 7,    /* an attempt failed, another attempt follows */
    VOW_EVENT_DOWN = 8,     /* the store cannot be used; once until UP */
    VOW_EVENT_UP = 9
};
typedef struct vow_event {
    uint32_t kind; /* enum vow_event_kind */
    vow_name name; /* zero for DOWN and UP */
    uint64_t fence;
    int code; /* of RETRY, DOWN, LATE and LOST */
    const char *text;
} vow_event;
typedef void (*vow_event_fn)(const vow_event *event, void *user);

typedef struct vow_authority_opts {
    size_t size;         /* set by VOW_AUTHORITY */
    uint32_t flags;      /* VOW_AUTHORITY_... */
    uint64_t lease_ms;   /* takeover after so long without a pulse; 0: 10000 */
    uint64_t pulse_ms;   /* between two pulses; 0: a third of the lease */
    uint64_t recheck_ms; /* a waiter looks again after this; 0: the store's */
    uint32_t names_max;  /* names at a time, then VOW_EQUEUEFULL; 0: 1048576 */
    size_t value_max;    /* bytes of a result; 0: the store's */
    vow_event_fn on_event; /* called on the hub loop; may be NULL */
    void *on_event_user;
    vow_store *store; /* a store opened on this loop, instead of the address;
                         not with VOW_AUTHORITY_THREAD; closed with the
                         authority */
} vow_authority_opts;
#define VOW_AUTHORITY(...)                                                     \
    (&(const vow_authority_opts){.size = sizeof(vow_authority_opts),           \
                                 __VA_ARGS__})

/* Opens an authority on a store: "memory:", "file:DIR", "redis://HOST" and kin
 * (vow/store_redis.h), "etcd://HOST" (vow/store_etcd.h). The future has the
 * authority as vow_own(); vow_authority_ref(vow_as_ptr(value)) keeps the
 * authority. Rejected as vow_store_open(), and with VOW_EINVAL (a pulse not
 * shorter than the lease, unknown flags). Since 0.1. */
#define vow_authority_open(loop, url, opts)                                    \
    vow_authority_open_at(VOW_HERE, (loop), (url), (opts))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_authority_open_at(const char *site, vow_loop *loop,
                                  const char *url,
                                  const vow_authority_opts *opts);

/* Makes a handle of the authority for another loop. Called on the thread of
 * `loop`, while the handle `a` is held. Returns 0; VOW_EINVAL (VOW_EBUSY if
 * `loop` is the loop of `a`) if the authority has no thread of its own;
 * VOW_ENOMEM, VOW_EQUEUEFULL or VOW_ECLOSED. */
VOW_API VOW_ANY_THREAD VOW_MUST_USE VOW_NONNULL(1, 2, 3)
int vow_authority_join(vow_loop *loop, vow_authority *a,
                       vow_authority **ret_authority);
/* Returns the loop of this handle. */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
vow_loop *vow_authority_loop(const vow_authority *a);
VOW_API VOW_LOOP_THREAD vow_authority *vow_authority_ref(vow_authority *a);
VOW_API VOW_LOOP_THREAD vow_authority *
vow_authority_unref(vow_authority *a); /* NULL */

/* Closes the handle: rejects the waiters of this loop with VOW_ECLOSED, and
 * cancels and abandons the work of this loop. With the last handle the store is
 * closed and the thread ends. The future settles when all this is done. */
#define vow_authority_close(a) vow_authority_close_at(VOW_HERE, (a))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_authority_close_at(const char *site, vow_authority *a);

/* ---- looking and managing ------------------------------------------------ */

/* All records, and all pools, of the store. vow_as_ptr() of the value is a
 * vow_records or a vow_pools, in memory of the value. */
typedef struct vow_records {
    size_t n;
    const vow_record *at; /* `status` as for a claim: running is WAITING */
} vow_records;
typedef struct vow_pools {
    size_t n;
    const vow_pool_info *at;
} vow_pools;
#define vow_authority_list(a) vow_authority_list_at(VOW_HERE, (a))
#define vow_authority_pools(a) vow_authority_pools_at(VOW_HERE, (a))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_authority_list_at(const char *site, vow_authority *a);
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_authority_pools_at(const char *site, vow_authority *a);

/* Returns a future of the records of `n` names, in the order of the names, by a
 * single round trip: vow_records, as above. */
#define vow_authority_peek(a, names, n)                                        \
    vow_authority_peek_at(VOW_HERE, (a), (names), (n))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_authority_peek_at(const char *site, vow_authority *a,
                                  const vow_name *names, size_t n);

/* Forgets the result of a name, only if the result has this fence; 0: any
 * fence. The future has vow_int(1) if the result is gone, vow_int(0) if the
 * result has another fence. Rejected with VOW_EBUSY while the work runs or,
 * with fence 0, while a refresh of the result runs. */
#define vow_authority_forget(a, name, fence)                                   \
    vow_authority_forget_at(VOW_HERE, (a), (name), (fence))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_authority_forget_at(const char *site, vow_authority *a,
                                    const vow_name *name, uint64_t fence);

/* Asks the owner of a name, or of a refresh of the name, to stop: the owner
 * cancels the work; a lease of vow_claim_name() is told by vow_lease_lost().
 * When the work has ended, all waiters are rejected with VOW_ECANCELED.
 * VOW_ENOENT: the name has no owner. */
#define vow_authority_cancel(a, name)                                          \
    vow_authority_cancel_at(VOW_HERE, (a), (name))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_authority_cancel_at(const char *site, vow_authority *a,
                                    const vow_name *name);

/* Settles a name in doubt (VOW_ONCE, and the owner died): with a result, with a
 * failure, or by allowing the work to run again. `fence` is the fence of the
 * lost lease. Rejected: VOW_ENOENT if the name is not in doubt with this fence,
 * VOW_EINVAL if the fence is impossible. `value` (borrowed) may be NULL. */
enum vow_what_happened {
    VOW_IT_HAPPENED = 1,
    VOW_IT_FAILED = 2,
    VOW_DO_IT_AGAIN = 3
};
typedef struct vow_resolution {
    enum vow_what_happened how;
    vow_bytes *value;
    uint64_t ttl_ms;
} vow_resolution;
static inline vow_resolution
vow_resolution_of(enum vow_what_happened how, vow_bytes *value, uint64_t ttl_ms)
{
    vow_resolution r = {how, value, ttl_ms};
    return r;
}
#define vow_authority_resolve(a, name, fence, how, value, ttl_ms)              \
    vow_authority_resolve_at(VOW_HERE, (a), (name), (fence),                   \
                             vow_resolution_of((how), (value), (ttl_ms)))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_authority_resolve_at(const char *site, vow_authority *a,
                                     const vow_name *name, uint64_t fence,
                                     vow_resolution what);

typedef struct vow_authority_stats {
    size_t names;    /* in the table */
    size_t waiting;  /* waiters; equal waiters may count as one */
    size_t running;  /* leases of this process */
    uint64_t asked;  /* requests; this and below: since the open */
    uint64_t claims; /* sent to the store */
    uint64_t runs;   /* leases handed out */
    uint64_t joined; /* requests for a name already in the table */
    uint64_t late;   /* results that came too late */
    uint64_t lost;   /* leases */
    uint64_t takeovers;
    uint64_t refreshes;
} vow_authority_stats;
/* Returns the counters of the whole authority; a moment old if the authority
 * has a thread. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_authority_stats vow_authority_stats_get(vow_authority *a);

static inline void vow_authority_cleanup(vow_authority **a)
{
    vow_authority_unref(*a);
}

VOW_END_DECLS

#endif
