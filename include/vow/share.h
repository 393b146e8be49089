/* SPDX-License-Identifier: MIT */
/* vow/share.h - named work: one caller runs the work, all callers get the
 * result.
 *
 *     vow_name name = vow_name_of("report:2026-11");
 *     vow_future *report = vow_share(authority, &name, make_report, NULL,
 *                                    VOW_SHARE(.ttl_ms = 600000));
 *
 * Guarantee: at most one live owner, at most one accepted result. A waiter
 * replaces a lost owner. The guarantee is not "exactly once": the work of a
 * lost owner may have happened in part (see vow_lease_fence(), and VOW_ONCE).
 * The words are explained in vow/authority.h.
 *
 * Owner: the table of the authority owns the work, not a caller.
 * Threads: the thread of the handle's loop.
 */
#ifndef VOW_SHARE_H
#define VOW_SHARE_H

#include "vow/authority.h"
#include "vow/lease.h"

VOW_BEGIN_DECLS

enum {
    VOW_SHARE_MANUAL_PULSE = 1, /* no pulse without vow_lease_pulse() or kin */
    VOW_SHARE_RACE = 2,         /* when an attempt fails or is lost, reject all
                                   waiters with VOW_ERETRY */
    VOW_SHARE_NOWAIT = 4,       /* VOW_EBUSY if there is another owner */
    VOW_SHARE_PEEK = 8,         /* only an existing result; else VOW_ENOENT */
    VOW_SHARE_FORCE = 16,       /* ignore an existing result, but wait for a
                                   running owner */
    VOW_SHARE_KEEP = 32,        /* a lost lease does not cancel the work */
    VOW_SHARE_FOLLOW = 64,      /* send chunks, receive chunks by on_chunk */
    VOW_SHARE_NO_REFRESH = 128, /* do not refresh a stale result */
    VOW_SHARE_REFRESH = 256     /* refresh a result that was found stale, unless
                                   the result is being or has been refreshed:
                                   then VOW_EBUSY with VOW_SHARE_NOWAIT, else
                                   the result that there is */
};

#define VOW_NO_TAKEOVER UINT32_MAX

enum vow_role {
    VOW_ROLE_NONE = 0,
    VOW_ROLE_RAN = 1,      /* the function of this request ran */
    VOW_ROLE_JOINED = 2,   /* waited for another run */
    VOW_ROLE_CACHED = 3,   /* the result existed */
    VOW_ROLE_STALE = 4,    /* the result existed, and is older than stale_ms */
    VOW_ROLE_TAKEOVER = 5, /* RAN, after the owner before was lost */
    VOW_ROLE_ALONE = 6     /* RAN without coordination: the store is down */
};

enum { VOW_RUNNER_MAX = 64 };

/* The origin of a result; for a vow_join_fn, the current run. */
typedef struct vow_share_info {
    uint32_t role; /* enum vow_role */
    uint64_t fence;
    uint64_t age_ms; /* of the result, or of the run */
    uint32_t attempt;
    char runner[VOW_RUNNER_MAX]; /* "host:pid" */
} vow_share_info;

/* Returns whether to wait for this run. False: the request is repeated when the
 * run has ended, and the result of the run is not used. Called on the hub
 * loop. */
typedef bool (*vow_join_fn)(const vow_share_info *running, void *user);

/* Called with each chunk of the owner, borrowed; not called for the owner's own
 * request. NULL: a new attempt begins, and the chunks so far are void. The last
 * chunks may be missing; the result has everything. */
typedef void (*vow_chunk_fn)(vow_bytes *chunk, void *user);

typedef struct vow_share_opts {
    size_t size;           /* set by VOW_SHARE */
    uint32_t mode;         /* enum vow_mode */
    uint32_t flags;        /* VOW_SHARE_... */
    const char *label;     /* for people; copied; NULL: none */
    uint64_t ttl_ms;       /* keep results; 0: only for waiters */
    uint64_t fail_ttl_ms;  /* keep failures; 0: only for waiters */
    uint64_t stale_ms;     /* return an older result, and let one of all callers
                              refresh the result in the background; 0 and
                              UINT64_MAX: never. Not with VOW_ONCE */
    double early;          /* refresh before the result expires, by chance, more
                              likely the longer the work takes: 1 is usual,
                              larger is earlier; 0: never */
    uint64_t lease_ms;     /* 0: the authority's */
    uint64_t pulse_ms;     /* 0: the authority's, or a third of lease_ms */
    uint32_t takeovers;    /* of lost owners; 0: 3; VOW_NO_TAKEOVER: none */
    uint32_t tries;        /* attempts that may fail, in all; 0: 1 */
    uint64_t deadline_ms;  /* of this request alone; 0: none */
    uint32_t store_down;   /* enum vow_store_down */
    vow_join_fn join;      /* NULL: wait for every run */
    vow_chunk_fn on_chunk; /* with VOW_SHARE_FOLLOW */
    void *user;            /* argument of join and on_chunk */
    vow_share_info *info;  /* written before the future settles; must stay until
                              then; may be NULL */
} vow_share_opts;
#define VOW_SHARE(...)                                                         \
    (&(const vow_share_opts){.size = sizeof(vow_share_opts), __VA_ARGS__})

/* Runs the work and returns a future of the result; the reference is moved. The
 * lease is borrowed: vow_lease_ref() keeps the lease, to read the fence, to
 * pulse, to write chunks. */
typedef vow_future *(*vow_shared_fn)(vow_lease *lease, void *arg);

/* Requests named work. If the name has no owner, `work` is called on this loop,
 * and the outcome is the result for all waiters. Canceling the future, or the
 * deadline, only removes this waiter; when the last waiter of this process has
 * left, the work is canceled. An authority with a thread of its own learns of a
 * cancel when this loop turns next. For a later attempt, the function of any
 * waiter may be called: `arg` must stay until the future is settled and the
 * work begun by the function has ended; with .stale_ms or .early, until the
 * authority is closed.
 * Rejected: the first failure of an attempt, VOW_EGAVEUP (all owners were
 * lost), VOW_ETIMEDOUT, VOW_EDOUBT, VOW_ESTORE, VOW_EUNSURE (not VOW_SHARED:
 * the work was done, and the store's answer is lost), VOW_EQUEUEFULL, VOW_E2BIG
 * (the result), VOW_ENOTSUP (the store does not support the mode), VOW_ECLOSED,
 * VOW_EINVAL. Since 0.1. */
#define vow_share(a, name, work, arg, opts)                                    \
    vow_share_at(VOW_HERE, (a), (name), (work), (arg), (opts))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_share_at(const char *site, vow_authority *a,
                         const vow_name *name, vow_shared_fn work, void *arg,
                         const vow_share_opts *opts);

/* Requests named work without a function. The future settles as soon as the
 * owner is known, and has a vow_claim (vow_as_ptr()). With a lease, the caller
 * is the owner and settles the lease. Without, another owner runs the work, and
 * the caller waits for `result`; if that owner is lost and the caller is next,
 * on_lease gets the lease (on_lease NULL: VOW_ERETRY). */
typedef struct vow_claim {
    vow_lease *lease;   /* borrowed from the value; NULL: another owner */
    vow_future *result; /* borrowed from the value */
} vow_claim;
typedef void (*vow_lease_fn)(vow_lease *lease, void *user);
#define vow_claim_name(a, name, on_lease, user, opts)                          \
    vow_claim_name_at(VOW_HERE, (a), (name), (on_lease), (user), (opts))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_claim_name_at(const char *site, vow_authority *a,
                              const vow_name *name, vow_lease_fn on_lease,
                              void *user, const vow_share_opts *opts);

VOW_END_DECLS

#endif
