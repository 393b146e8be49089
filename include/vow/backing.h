/* SPDX-License-Identifier: MIT */
/* vow/backing.h - limits of somebody else, behind a gate or a semaphore.
 *
 * A gate with a backing lets a job in when its own limits allow it, then asks
 * the backing, and starts it when that has granted. Whatever ends the job
 * releases the grant. The backing of processes that share limits is vow_pool.
 *
 * Threads: the gate's loop.
 */
#ifndef VOW_BACKING_H
#define VOW_BACKING_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

/* What a backing granted. The maker embeds it, zeroed but for `release`, `free`
 * and what it has to tell; the rest is private. */
typedef struct vow_grant vow_grant;
struct vow_grant {
    void (*release)(vow_grant *g); /* give it back: called once */
    void (*free)(vow_grant *g);    /* nobody knows it any more */
    uint64_t fence;                /* strictly increasing; 0: none */
    /* Rejected with VOW_ELOST when the grant is lost; else pending until it is
     * released. Borrowed; NULL: it cannot be lost. */
    vow_future *lost;
    /* The work has begun: a rate counts from here on. Called once by a gate,
     * before `release`, or not at all. NULL: that is of no interest. */
    void (*started)(vow_grant *g);
    uint32_t refs;
    bool taken;
    bool released;
};

/* What a gate calls. None of it, nor what a grant has, calls that gate. */
typedef struct vow_backing vow_backing;
struct vow_backing {
    /* Called from the loop's queue. The future, whose reference is moved, has
     * a vow_grant (vow_grant_value()). `key` may be NULL. Canceling it takes
     * the request back. */
    vow_future *(*acquire)(const vow_backing *b, const char *site,
                           const char *key, uint32_t weight);
    void (*ref)(const vow_backing *b);
    void (*unref)(const vow_backing *b);
};

/* For the maker: the grant as the value of a future. What nobody takes is
 * released with it. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_value vow_grant_value(vow_grant *g);

/* Take the grant out of such a value, in a handler its argument; NULL if there
 * is none, or it was taken before. */
VOW_API VOW_LOOP_THREAD vow_grant *vow_grant_take(vow_value granted);

/* Give it back, and forget it. NULL does nothing. */
VOW_API VOW_LOOP_THREAD void vow_grant_release(vow_grant *g);

VOW_END_DECLS

#endif
