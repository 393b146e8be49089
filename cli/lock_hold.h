/* SPDX-License-Identifier: MIT */
/* lock_hold.h - getting, holding and releasing a lock. See lock_hold.c. */
#ifndef VOW_CLI_LOCK_HOLD_H
#define VOW_CLI_LOCK_HOLD_H

#include "store_open.h"

struct lock_request {
    const char *label; /* "lock:deploy" */
    bool once;         /* --once: claim a name, not a pool permit */
    uint32_t limit;    /* the limit of the pool; not with `once` */
    uint32_t weight;   /* the part of the limit to get; not with `once` */
    bool try_once;     /* the holder waits for this process: do not wait */
    uint64_t grace_ms; /* the lock counts as lost so long before the lease ends;
                          not with `once` */
    const struct store_opts *store;
};

/* A zeroed struct holds nothing. */
struct lock_hold {
    vow_loop *loop;
    const struct lock_request *request;
    uint64_t fence;
    vow_future *lost; /* rejected when the lock is lost; may be NULL; borrowed
                         from the grant, counted with `once` */

    /* a pool permit */
    vow_pool *pool;
    vow_grant *grant;
    /* a name */
    vow_lease *lease;
    vow_future *result;     /* of the name; canceled to stop waiting */
    vow_deferred *acquired; /* resolved when the lease comes; NULL: settled */
};

/* Requests the lock; the request must stay where it is. The future, owned by
 * the caller, is fulfilled when the lock is held: then call lock_take().
 * Rejected with VOW_EBUSY, VOW_ETIMEDOUT, VOW_EDOUBT and others. */
vow_future *lock_get(struct lock_hold *h, vow_authority *a,
                     const struct lock_request *request);
/* Reads the fence and the grant from the fulfilled future of lock_get(). */
void lock_take(struct lock_hold *h, vow_future *got);
/* Releases the lock and runs the loop until the store knows; or leaves the wait
 * queue. */
void lock_leave(struct lock_hold *h);

#endif
