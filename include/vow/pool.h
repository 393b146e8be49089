/* SPDX-License-Identifier: MIT */
/* vow/pool.h - limits that have a name, shared by all who use it.
 *
 * A pool is opened on an authority and is then behind a gate or a semaphore:
 * vow_gate_opts.backing. Whatever the gate lets in asks the pool first, so that
 * limits of your own and limits of all hold at once.
 *
 * Owner: counted. Threads: that of the authority's loop.
 */
#ifndef VOW_POOL_H
#define VOW_POOL_H

#include "vow/backing.h"
#include "vow/name.h"

VOW_BEGIN_DECLS

typedef struct vow_authority vow_authority;
typedef struct vow_pool vow_pool;

typedef struct vow_pool_limits {
    uint32_t concurrent; /* weight at once; 0: any */
    uint32_t rate;       /* weight started in any window; 0: any */
    uint64_t window_us;  /* of the rate */
} vow_pool_limits;

typedef struct vow_pool_info {
    vow_name pool;
    const char *label; /* borrowed */
    vow_pool_limits limits;
    uint64_t held;      /* weight */
    uint64_t holders;   /* who holds it */
    uint64_t waiting;   /* who queues */
    uint64_t rate_used; /* weight granted within the last window */
} vow_pool_info;

typedef struct vow_pool_opts {
    size_t size;            /* set by VOW_POOL */
    vow_pool_limits limits; /* if the pool has none yet */
    uint64_t lease_ms;      /* 0: the authority's */
    uint64_t grace_ms;      /* a place that cannot be renewed counts as lost so
                               long before its lease ends, for work that takes
                               time to end; less than the lease. 0: none */
} vow_pool_opts;
#define VOW_POOL(...)                                                          \
    (&(const vow_pool_opts){.size = sizeof(vow_pool_opts), __VA_ARGS__})

/* Use the pool of that label: no round trip, errors come with the first place.
 * 0, VOW_EINVAL (a label that is empty or longer than VOW_LABEL_MAX, a rate
 * without a window, a grace that leaves nothing of the lease), or VOW_ENOMEM.
 * It does not keep the authority open. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 2, 4)
int vow_pool_open(vow_authority *a, const char *label,
                  const vow_pool_opts *opts, vow_pool **ret_pool);
VOW_API VOW_LOOP_THREAD vow_pool *vow_pool_ref(vow_pool *p);
VOW_API VOW_LOOP_THREAD vow_pool *vow_pool_unref(vow_pool *p); /* NULL */

/* What goes into vow_gate_opts.backing and vow_sem_opts.backing. Lives as long
 * as the pool. A job with a key has a place in the pool of that key, under the
 * same limits. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
const vow_backing *vow_pool_backing(vow_pool *p);

/* A place: all or none. The future has it as a grant (vow_grant_take(), then
 * vow_grant_release()). `key` may be NULL. Rejected: VOW_EINVAL (a weight of 0,
 * or above the limit), VOW_ESTORE, VOW_EUNSURE, VOW_EQUEUEFULL (more places
 * than the authority's names_max), VOW_ECLOSED. Who is in the queue stays there
 * while the store is away, for no longer than a lease. Canceling leaves the
 * queue. A place that is held when its authority is closed is lost. */
#define vow_pool_acquire(p, key, weight)                                       \
    vow_pool_acquire_at(VOW_HERE, (p), (key), (weight))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_pool_acquire_at(const char *site, vow_pool *p, const char *key,
                                uint32_t weight);

/* The same, now or not at all: rejected with VOW_EBUSY. */
#define vow_pool_try(p, key, weight)                                           \
    vow_pool_try_at(VOW_HERE, (p), (key), (weight))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_pool_try_at(const char *site, vow_pool *p, const char *key,
                            uint32_t weight);

/* Read or change the limits, for all who use the pool. The future has a
 * vow_pool_info as vow_own(); `limits` NULL reads. Rejected: VOW_ENOENT (there
 * is no such pool to read), VOW_EINVAL, VOW_ESTORE, VOW_EUNSURE (it may have
 * been changed), VOW_ECLOSED. */
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
