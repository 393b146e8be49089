/* SPDX-License-Identifier: MIT */
/* vow/share.h - named work: one does it, all who ask get its result.
 *
 *     vow_name name = vow_name_of("report:2026-11");
 *     vow_future *report = vow_share(authority, &name, make_report, NULL,
 *                                    VOW_SHARE(.ttl_ms = 600000));
 *
 * Promise: at most one live leased runner, at most one accepted result. A
 * runner that is lost is replaced by one who waits. It is not "exactly once":
 * work that was lost may have happened in part (see vow_lease_fence(), and
 * VOW_ONCE).
 */
#ifndef VOW_SHARE_H
#define VOW_SHARE_H

#include "vow/authority.h"
#include "vow/lease.h"

VOW_BEGIN_DECLS

enum {
    VOW_SHARE_MANUAL_PULSE = 1, /* only vow_lease_pulse() and kin keep it */
    VOW_SHARE_RACE = 2,    /* when an attempt fails or is lost, reject all who
                             wait with VOW_ERETRY: each asks again by itself */
    VOW_SHARE_NOWAIT = 4,  /* if another does it, reject with VOW_EBUSY */
    VOW_SHARE_PEEK = 8,    /* only a result that is there; else VOW_ENOENT */
    VOW_SHARE_FORCE = 16,  /* do not take a result that is there; who does the
                             work already is waited for */
    VOW_SHARE_KEEP = 32,   /* do not cancel the work when its lease is lost */
    VOW_SHARE_FOLLOW = 64, /* chunks go out, and come in by on_chunk */
    VOW_SHARE_NO_REFRESH = 128, /* a stale result is left to the caller */
    VOW_SHARE_REFRESH = 256 /* do what a stale result would cause: make it anew
                               out of sight, if no other does */
};

#define VOW_NO_TAKEOVER UINT32_MAX

enum vow_role {
    VOW_ROLE_NONE = 0,
    VOW_ROLE_RAN = 1,      /* this asker's function did it */
    VOW_ROLE_JOINED = 2,   /* another did, while this one waited */
    VOW_ROLE_CACHED = 3,   /* the result was there */
    VOW_ROLE_STALE = 4,    /* it was there, and is being made anew */
    VOW_ROLE_TAKEOVER = 5, /* ran, after the one before was lost */
    VOW_ROLE_ALONE = 6     /* ran uncoordinated: the store is down */
};

enum { VOW_RUNNER_MAX = 64 };

/* How it came about; also what a join predicate is shown of what runs. */
typedef struct vow_share_info {
    uint32_t role; /* enum vow_role */
    uint64_t fence;
    uint64_t age_ms; /* of the result, or of the run */
    uint32_t attempt;
    char runner[VOW_RUNNER_MAX]; /* "host:pid" */
} vow_share_info;

/* Whether to wait for this run. False: this one asks again when it has ended,
 * and does not take its result. On the home's thread. */
typedef bool (*vow_join_fn)(const vow_share_info *running, void *user);

/* A chunk of the runner's, borrowed; the runner itself gets none. A new attempt
 * begins anew: then `chunk` is NULL once, if there were any. The last ones may
 * be missing when the result is there, which has them. */
typedef void (*vow_chunk_fn)(vow_bytes *chunk, void *user);

typedef struct vow_share_opts {
    size_t size;           /* set by VOW_SHARE */
    uint32_t mode;         /* enum vow_mode */
    uint32_t flags;        /* VOW_SHARE_... */
    const char *label;     /* for people who look; NULL: none */
    uint64_t ttl_ms;       /* results are kept; 0: for those who wait */
    uint64_t fail_ttl_ms;  /* failures are kept */
    uint64_t stale_ms;     /* older: answer with it, and let ONE of all who ask
                              make it anew, out of sight; 0: never;
                              UINT64_MAX: never, but wait for one who does if
                              the result has expired. Not with VOW_ONCE */
    double early;          /* make it anew before it expires, by chance, the
                              more likely the longer it takes to make: 1 is
                              usual, larger is earlier; 0: never */
    uint64_t lease_ms;     /* 0: the authority's */
    uint64_t pulse_ms;     /* 0: the authority's, or a third of lease_ms */
    uint32_t takeovers;    /* of lost runners; 0: 3; VOW_NO_TAKEOVER: none */
    uint32_t tries;        /* attempts that may fail, in all; 0: 1 */
    uint64_t deadline_ms;  /* of this asker alone; 0: none */
    uint32_t store_down;   /* enum vow_store_down */
    vow_join_fn join;      /* NULL: always */
    vow_chunk_fn on_chunk; /* with VOW_SHARE_FOLLOW */
    void *user;            /* of join and on_chunk */
    vow_share_info *info;  /* written before the future settles; stays until
                              then. May be NULL. */
} vow_share_opts;
#define VOW_SHARE(...)                                                         \
    (&(const vow_share_opts){.size = sizeof(vow_share_opts), __VA_ARGS__})

/* Does the work; the future's reference is moved. The lease is borrowed: keep
 * it by vow_lease_ref() to read the fence, to pulse, to write chunks. */
typedef vow_future *(*vow_shared_fn)(vow_lease *lease, void *arg);

/* Ask for named work. If nobody does it, `work` is called on this loop, and its
 * outcome is the result. The table owns the work: canceling the future, or its
 * deadline, only leaves; when the last of all who ask in this process has left,
 * the work is canceled. Which of the askers' functions is called when an
 * attempt follows another is not defined: `arg` must stay until the future is
 * settled and the work it began has ended; with .stale_ms or .early, until the
 * authority is closed.
 * Rejected: the first failure of an attempt, VOW_EGAVEUP (all were lost),
 * VOW_ETIMEDOUT, VOW_EDOUBT, VOW_ESTORE, VOW_EUNSURE (not VOW_SHARED: it was
 * done, and the store's answer is lost), VOW_EQUEUEFULL, VOW_E2BIG (the
 * result), VOW_ENOTSUP (the store does not promise that mode), VOW_EINVAL.
 * Since 0.1. */
#define vow_share(a, name, work, arg, opts)                                    \
    vow_share_at(VOW_HERE, (a), (name), (work), (arg), (opts))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_share_at(const char *site, vow_authority *a,
                         const vow_name *name, vow_shared_fn work, void *arg,
                         const vow_share_opts *opts);

/* The two-handed form. The future settles as soon as it is known who works, and
 * then has a vow_claim: its lease is the asker's to settle, or NULL, and its
 * result is the future of the result, whoever does the work. An asker that
 * holds only the result waits, and may be called upon: when the runner is lost
 * and its turn comes, on_lease gets the lease. */
typedef struct vow_claim {
    vow_lease *lease;   /* borrowed from the value; NULL: wait */
    vow_future *result; /* borrowed */
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
