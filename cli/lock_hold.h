/* SPDX-License-Identifier: MIT */
/* lock_hold.h - what vow lock has while it has the lock. See lock_hold.c. */
#ifndef VOW_CLI_LOCK_HOLD_H
#define VOW_CLI_LOCK_HOLD_H

#include "store_open.h"

struct lock_ask {
    const char *label; /* "lock:deploy" */
    bool once;
    uint32_t places; /* of the pool, and how many of them; not with `once` */
    uint32_t weight;
    bool try_once;     /* who has it waits for us: do not wait */
    uint64_t grace_ms; /* before the lease ends, it counts as lost */
    const struct store_opts *store;
};

/* Zeroed, it has nothing. */
struct lock_hold {
    vow_loop *loop;
    const struct lock_ask *ask;
    uint64_t fence;
    vow_future *lost; /* rejected when it is; may be NULL; borrowed */

    vow_pool *pool;
    vow_grant *grant;
    vow_lease *lease;
    vow_future *result;  /* of the name, that we wait for */
    vow_deferred *comes; /* with the lease */
};

/* Ask for it; the ask stays where it is. Fulfilled when we have it: then
 * lock_take(). Rejected: VOW_EBUSY, VOW_ETIMEDOUT, VOW_EDOUBT and others. */
vow_future *lock_get(struct lock_hold *h, vow_authority *a,
                     const struct lock_ask *ask);
/* Read the fence and the rest from what lock_get() was fulfilled with. */
void lock_take(struct lock_hold *h, vow_future *got);
/* Give it back, and wait until that is known; or leave the queue. */
void lock_leave(struct lock_hold *h);

#endif
