/* SPDX-License-Identifier: MIT */
/* vow/backing.h - external limits behind a gate or a semaphore.
 *
 * A gate with a backing admits a job by the gate's own limits first. Then the
 * gate asks the backing for a grant, and starts the job when the backing has
 * granted. However the job ends, the grant is released. vow_pool is the backing
 * for limits shared by processes.
 *
 * Threads: the thread of the gate's loop.
 */
#ifndef VOW_BACKING_H
#define VOW_BACKING_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

/* A grant of a backing. The backing embeds the struct in an object of its own
 * and sets `release`, `free` and, if used, `fence`, `lost` and `started`. The
 * other fields are zeroed and private. */
typedef struct vow_grant vow_grant;
struct vow_grant {
    void (*release)(vow_grant *g); /* gives the grant back; called once */
    void (*free)(vow_grant *g);    /* frees the object; called last */
    uint64_t fence;                /* strictly increasing; 0: none */
    /* Rejected with VOW_ELOST when the grant is lost, otherwise pending until
     * the grant is released. Borrowed; NULL: the grant cannot be lost. */
    vow_future *lost;
    /* Tells the backing that the work has begun: a rate limit counts from this
     * call on. Called at most once, before `release`. NULL: not needed. */
    void (*started)(vow_grant *g);
    uint32_t refs;
    bool taken;
    bool released;
};

/* The functions a gate calls. Neither these functions nor the functions of a
 * grant may call the gate. */
typedef struct vow_backing vow_backing;
struct vow_backing {
    /* Requests a grant of `weight`. Returns a future with a vow_grant
     * (vow_grant_value()); the reference is moved. `key` may be NULL. Called
     * from the loop's queue. Canceling the future withdraws the request. */
    vow_future *(*acquire)(const vow_backing *b, const char *site,
                           const char *key, uint32_t weight);
    void (*ref)(const vow_backing *b);
    void (*unref)(const vow_backing *b);
};

/* Returns the grant as the value of a future: for the backing, once per grant.
 * A grant never taken is released when the value is dropped. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_value vow_grant_value(vow_grant *g);

/* Takes the grant out of a value; in a handler, the value is the argument.
 * Returns NULL if the value has no grant, or if the grant was taken before. */
VOW_API VOW_LOOP_THREAD vow_grant *vow_grant_take(vow_value granted);

/* Releases the grant and drops the caller's reference. NULL does nothing. */
VOW_API VOW_LOOP_THREAD void vow_grant_release(vow_grant *g);

VOW_END_DECLS

#endif
