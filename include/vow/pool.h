/* SPDX-License-Identifier: MIT */
/* vow/pool.h - a pool: limits with a name, shared by all processes of a store.
 *
 * A pool is opened on an authority and is then the backing of a gate or a
 * semaphore (vow_gate_opts.backing). A job admitted by the gate also needs a
 * *pool permit*, so the gate's own limits and the pool's limits hold together.
 *
 * Owner: counted.
 * Threads: the thread of the authority's loop.
 */
#ifndef VOW_POOL_H
#define VOW_POOL_H

#include "vow/backing.h"
#include "vow/name.h"

VOW_BEGIN_DECLS

typedef struct vow_authority vow_authority;
typedef struct vow_pool vow_pool;

typedef struct vow_pool_limits {
    uint32_t concurrent; /* weight at a time; 0: any */
    uint32_t rate;       /* weight started in any window; 0: any */
    uint64_t window_us;  /* of the rate */
} vow_pool_limits;

typedef struct vow_pool_info {
    vow_name pool;
    const char *label; /* borrowed */
    vow_pool_limits limits;
    uint64_t held;      /* weight of all permits */
    uint64_t holders;   /* number of permits */
    uint64_t waiting;   /* requests in the wait queue */
    uint64_t rate_used; /* weight that counts against the rate now */
} vow_pool_info;

typedef struct vow_pool_opts {
    size_t size;            /* set by VOW_POOL */
    vow_pool_limits limits; /* used if the pool has no limits yet */
    uint64_t lease_ms;      /* of a permit; 0: the authority's */
    uint64_t grace_ms;      /* a permit that cannot be renewed counts as lost
                               grace_ms before the lease ends, for work that
                               needs time to end; less than the lease. 0: 0 */
} vow_pool_opts;
#define VOW_POOL(...)                                                          \
    (&(const vow_pool_opts){.size = sizeof(vow_pool_opts), __VA_ARGS__})

/* Opens the pool of a label. Makes no round trip: errors of the store come with
 * the first permit. Returns 0, VOW_EINVAL (a label that is empty or longer than
 * VOW_LABEL_MAX, a rate without a window, a grace that leaves nothing of the
 * lease) or VOW_ENOMEM. The pool does not keep the authority open. Since
 * 0.1. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 2, 4)
int vow_pool_open(vow_authority *a, const char *label,
                  const vow_pool_opts *opts, vow_pool **ret_pool);
VOW_API VOW_LOOP_THREAD vow_pool *vow_pool_ref(vow_pool *p);
VOW_API VOW_LOOP_THREAD vow_pool *vow_pool_unref(vow_pool *p); /* NULL */

/* Returns the backing for vow_gate_opts and vow_sem_opts, borrowed from the
 * pool. A job with a key gets a permit of the key's own pool, which has the
 * same limits. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
const vow_backing *vow_pool_backing(vow_pool *p);

/* Requests a permit of `weight`, all or none. The future has the permit as a
 * grant (vow_grant_take(), then vow_grant_release()). `key` may be NULL.
 * Rejected: VOW_EINVAL (a weight of 0 or above a limit), VOW_ESTORE,
 * VOW_EUNSURE, VOW_EQUEUEFULL (more permits than the authority's names_max),
 * VOW_ECLOSED. While the store cannot be used, a queued request keeps its turn,
 * for at most a lease. Canceling leaves the wait queue. A permit held when the
 * authority closes is lost. */
#define vow_pool_acquire(p, key, weight)                                       \
    vow_pool_acquire_at(VOW_HERE, (p), (key), (weight))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_pool_acquire_at(const char *site, vow_pool *p, const char *key,
                                uint32_t weight);

/* As vow_pool_acquire(), but does not wait: rejected with VOW_EBUSY. */
#define vow_pool_try(p, key, weight)                                           \
    vow_pool_try_at(VOW_HERE, (p), (key), (weight))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_pool_try_at(const char *site, vow_pool *p, const char *key,
                            uint32_t weight);

/* Changes the limits of a pool, for all users of the pool; `limits` NULL reads.
 * The future has a vow_pool_info as vow_own(). Rejected: VOW_ENOENT (no pool to
 * read), VOW_EINVAL, VOW_ESTORE, VOW_EUNSURE (the limits may have changed),
 * VOW_ECLOSED. */
#define vow_pool_limit(a, label, limits)                                       \
    vow_pool_limit_at(VOW_HERE, (a), (label), (limits))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_pool_limit_at(const char *site, vow_authority *a,
                              const char *label, const vow_pool_limits *limits);

static inline void vow_pool_cleanup(vow_pool **p)
{
    vow_pool_unref(*p);
}

VOW_END_DECLS

#endif
