/* SPDX-License-Identifier: MIT */
/* vow/authority.h - the central authority: who does named work, who waits.
 *
 * An authority keeps a table of the names that are asked for in this process,
 * and has a store behind it, where processes meet. Of all who ask for a name at
 * the same time one does the work and all get its result (vow/share.h).
 *
 * Loops. It has a home: a thread of its own, which no code of yours can block,
 * so that the pulse goes on; or, with VOW_AUTHORITY_HERE and with "memory:",
 * the loop it was opened on. Other loops join it by vow_authority_join().
 *
 * Owner: counted. Dropping the last handle closes it.
 * Threads: a handle belongs to its loop.
 */
#ifndef VOW_AUTHORITY_H
#define VOW_AUTHORITY_H

#include "vow/pool.h"
#include "vow/store.h"

VOW_BEGIN_DECLS

/* When the store cannot be used. */
enum vow_store_down {
    VOW_DOWN_DEFAULT = 0, /* run for VOW_SHARED, else fail */
    VOW_DOWN_RUN = 1,     /* do the work, uncoordinated; VOW_SHARED only */
    VOW_DOWN_WAIT = 2,    /* ask again, with growing pauses */
    VOW_DOWN_FAIL = 3     /* reject with VOW_ESTORE */
};

enum {
    VOW_AUTHORITY_HERE = 1,  /* its home is this loop, which never blocks */
    VOW_AUTHORITY_THREAD = 2 /* a thread of its own, also with "memory:" */
};

/* What happened, for logs and tests. */
enum vow_event_kind {
    VOW_EVENT_CLAIMED = 1,  /* this process does the work */
    VOW_EVENT_JOINED = 2,   /* another process does it */
    VOW_EVENT_TAKEOVER = 3, /* claimed, after the one before was lost */
    VOW_EVENT_SETTLED = 4,  /* our result was accepted */
    VOW_EVENT_LATE = 5,     /* our result came too late and was ignored */
    VOW_EVENT_LOST = 6,     /* our lease was lost */
    VOW_EVENT_RETRY = 7,    /* an attempt failed, another follows */
    VOW_EVENT_DOWN = 8,     /* the store cannot be used; once until it can */
    VOW_EVENT_UP = 9
};
typedef struct vow_event {
    uint32_t kind; /* enum vow_event_kind */
    vow_name name; /* zero for DOWN and UP */
    uint64_t fence;
    int code; /* of RETRY and DOWN */
    const char *text;
} vow_event;
typedef void (*vow_event_fn)(const vow_event *event, void *user);

typedef struct vow_authority_opts {
    size_t size;         /* set by VOW_AUTHORITY */
    uint32_t flags;      /* VOW_AUTHORITY_... */
    uint64_t lease_ms;   /* silence after which another takes over; 0: 10000 */
    uint64_t pulse_ms;   /* 0: a third of the lease */
    uint64_t recheck_ms; /* who waits looks at least so often; 0: the store's */
    uint32_t names_max;  /* names at once; 0: 1048576, then VOW_EQUEUEFULL */
    size_t value_max;    /* bytes of a result; 0: the store's */
    vow_event_fn on_event; /* on the home's thread; may be NULL */
    void *on_event_user;
    vow_store *store; /* use this one, opened on the loop, instead of the
                         address; with VOW_AUTHORITY_HERE; closed with it */
} vow_authority_opts;
#define VOW_AUTHORITY(...)                                                     \
    (&(const vow_authority_opts){.size = sizeof(vow_authority_opts),           \
                                 __VA_ARGS__})

/* Open an authority on a store: "memory:", "file:DIR", "redis://HOST" and its
 * kin (vow/store_redis.h), "etcd://HOST" (vow/store_etcd.h). The future has it
 * as vow_own(): keep it by vow_authority_ref(vow_as_ptr(value)). Rejected as
 * vow_store_open() says, and VOW_EINVAL (a pulse that is not shorter than the
 * lease, unknown flags). Since 0.1. */
#define vow_authority_open(loop, url, opts)                                    \
    vow_authority_open_at(VOW_HERE, (loop), (url), (opts))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_authority_open_at(const char *site, vow_loop *loop,
                                  const char *url,
                                  const vow_authority_opts *opts);

/* A handle of the same authority for another loop, called on that loop's
 * thread, while the first is held. VOW_EINVAL: its home is a loop; VOW_ENOMEM,
 * VOW_ECLOSED. */
VOW_API VOW_ANY_THREAD VOW_MUST_USE VOW_NONNULL(1, 2, 3)
int vow_authority_join(vow_loop *loop, vow_authority *a,
                       vow_authority **ret_authority);
/* The loop of this handle. */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
vow_loop *vow_authority_loop(const vow_authority *a);
VOW_API VOW_LOOP_THREAD vow_authority *vow_authority_ref(vow_authority *a);
VOW_API VOW_LOOP_THREAD vow_authority *
vow_authority_unref(vow_authority *a); /* NULL */

/* Close the handle: what this loop waits for is rejected with VOW_ECLOSED, what
 * it does is canceled and abandoned. With the last handle the store is closed
 * and the thread ends. The future settles when that is done. */
#define vow_authority_close(a) vow_authority_close_at(VOW_HERE, (a))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_authority_close_at(const char *site, vow_authority *a);

/* ---- looking and managing ------------------------------------------------ */

/* A list of records, or of pools, in memory of the value: vow_as_ptr(). */
typedef struct vow_records {
    size_t n;
    const vow_record *at; /* status as a claim gets; a run is WAITING */
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

/* What is known of some names, in one round trip and in their order; the future
 * has vow_records. */
#define vow_authority_peek(a, names, n)                                        \
    vow_authority_peek_at(VOW_HERE, (a), (names), (n))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_authority_peek_at(const char *site, vow_authority *a,
                                  const vow_name *names, size_t n);

/* Forget a result: of this fence only, or 0: whichever. The future has true as
 * vow_int(1) if it is gone, vow_int(0) if it is of another fence, and is
 * rejected with VOW_EBUSY while the work runs, or, without a fence, while the
 * result is being made anew. */
#define vow_authority_forget(a, name, fence)                                   \
    vow_authority_forget_at(VOW_HERE, (a), (name), (fence))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_authority_forget_at(const char *site, vow_authority *a,
                                    const vow_name *name, uint64_t fence);

/* Ask whoever does the work, or makes its result anew, to stop: it is canceled
 * there, or told by vow_lease_lost() if the lease is held by hand; when it has
 * ended all who wait are rejected with VOW_ECANCELED. VOW_ENOENT: nobody does
 * it. */
#define vow_authority_cancel(a, name)                                          \
    vow_authority_cancel_at(VOW_HERE, (a), (name))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_authority_cancel_at(const char *site, vow_authority *a,
                                    const vow_name *name);

/* Settle a name that is in doubt (VOW_ONCE, its owner died): with a result,
 * with a failure, or let it be done again. `fence` is the one it was in doubt
 * with: VOW_ENOENT if it is not, VOW_EINVAL if no work can have it. `value`
 * (borrowed) may be NULL. */
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
    size_t waiting;  /* askers; those who are alike may count as one */
    size_t running;  /* leases of this process */
    uint64_t asked;  /* since it was opened: */
    uint64_t claims; /* sent to the store */
    uint64_t runs;   /* leases given out */
    uint64_t joined; /* askers that found the name asked for here */
    uint64_t late;   /* results that came too late */
    uint64_t lost;   /* leases */
    uint64_t takeovers;
    uint64_t refreshes;
} vow_authority_stats;
/* Of the whole authority; as of a moment ago, when its home is a thread. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_authority_stats vow_authority_stats_get(vow_authority *a);

static inline void vow_authority_cleanup(vow_authority **a)
{
    vow_authority_unref(*a);
}

VOW_END_DECLS

#endif
