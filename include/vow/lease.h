/* SPDX-License-Identifier: MIT */
/* vow/lease.h - the lease of a name: the settling end, held by the owner.
 *
 * A lease is like a deferred of the name, with a fence and a time limit. Pulses
 * keep the lease alive: sent by the hub loop (vow/authority.h), or only after
 * signs of life by hand (VOW_SHARE_MANUAL_PULSE), so work without progress
 * loses the lease. The first call to settle counts, and none if the lease was
 * lost: a successor has the name then.
 *
 * Owner: counted. Dropping the last reference of an unsettled lease abandons
 * the work: the next waiter runs the work.
 * Threads: the thread of the loop that made the request.
 */
#ifndef VOW_LEASE_H
#define VOW_LEASE_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

typedef struct vow_lease vow_lease;

/* Settle the name, for all waiters in all processes. Return false if the lease
 * was settled or lost before; the value or error is then dropped. A result that
 * leaves the process must be bytes or nothing. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_lease_resolve(vow_lease *l, vow_value v);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_lease_reject(vow_lease *l, vow_error *e);
/* Abandons the work: the next waiter may run the work now. Work started by
 * vow_share() is canceled, unless VOW_SHARE_KEEP. After a request to stop
 * (vow_authority_cancel()) no waiter runs the work: all waiters are rejected.
 * Returns false if the lease was settled or lost before. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_lease_abandon(vow_lease *l);

/* Returns a future of the store's answer: nothing when the store has accepted
 * the result, VOW_ELOST when the result came too late. Owned, never NULL. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1)
vow_future *vow_lease_settled(vow_lease *l);

/* Returns the fence: a number larger for every new lease of the name. A service
 * the work writes to can refuse a fence smaller than the largest fence seen. An
 * attempt after a failed attempt has the same fence. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
uint64_t vow_lease_fence(const vow_lease *l);
/* Returns the number of the attempt, from 1. Failed, lost and abandoned
 * attempts count; abandoned attempts only as far as this process knows. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
uint32_t vow_lease_attempt(const vow_lease *l);
/* Returns the milliseconds until the lease must be considered lost, by the
 * local clock; 0 if the lease is lost or settled; UINT64_MAX if the lease
 * cannot be lost. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
uint64_t vow_lease_left_ms(const vow_lease *l);
/* Returns the approximate number of waiters in this process: 1 if only the
 * request of this lease waits, 0 if no request does. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
size_t vow_lease_waiters(const vow_lease *l);

/* Returns a future, owned: rejected with VOW_ELOST as soon as the lease is lost
 * or can no longer be known to be held, fulfilled when the result was accepted.
 * On a loss, work started by vow_share() is canceled, unless VOW_SHARE_KEEP.
 * VOW_ECANCELED, only for a lease of vow_claim_name(), is a request to stop
 * (vow_authority_cancel()): the lease is still held; stop the work, then settle
 * the lease. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1)
vow_future *vow_lease_lost(vow_lease *l);

/* Give a sign of life by hand; vow_lease_notify() also tells the progress to
 * all waiters in this process, as vow_notify(). Return false if the lease is
 * settled or lost. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_lease_pulse(vow_lease *l);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_lease_notify(vow_lease *l, vow_value progress);

/* Sends a chunk of the result to all followers (VOW_SHARE_FOLLOW), in all
 * processes. Every follower gets all chunks in order, from the first on. Counts
 * as a sign of life. The future settles when there is room for more; rejected
 * with VOW_ELOST. `chunk` is borrowed. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 2)
vow_future *vow_lease_write(vow_lease *l, vow_bytes *chunk);

/* Sets how long the result will be kept, instead of .ttl_ms and
 * .fail_ttl_ms. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_lease_keep(vow_lease *l, uint64_t ttl_ms);

/* Marks the coming value as a failure: all waiters get the value, the store
 * keeps the value for .fail_ttl_ms and lists the name as failed. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_lease_mark_failed(vow_lease *l);

VOW_API VOW_LOOP_THREAD vow_lease *vow_lease_ref(vow_lease *l);
VOW_API VOW_LOOP_THREAD vow_lease *vow_lease_unref(vow_lease *l); /* NULL */

static inline void vow_lease_cleanup(vow_lease **l)
{
    vow_lease_unref(*l);
}

VOW_END_DECLS

#endif
