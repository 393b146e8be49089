/* SPDX-License-Identifier: MIT */
/* vow/lease.h - the working end of named work: what its one runner holds.
 *
 * A lease is the deferred of the name, with a fence and a time. It is kept
 * alive by a pulse: by itself from the authority's own thread, or by hand
 * (VOW_SHARE_MANUAL_PULSE), so that work which makes no progress loses it.
 * Settling counts once, and not at all when the lease is lost: the others have
 * long gone on with the next one.
 *
 * Owner: counted. Dropping the last reference unsettled abandons the work: the
 * next who waits does it.
 * Threads: that of the loop which asked.
 */
#ifndef VOW_LEASE_H
#define VOW_LEASE_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

typedef struct vow_lease vow_lease;

/* Settle the name with a result, for all who wait anywhere. False: it was
 * settled or lost before, and the value or error is dropped. A result that
 * leaves the process is bytes, or nothing. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_lease_resolve(vow_lease *l, vow_value v);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_lease_reject(vow_lease *l, vow_error *e);
/* Let somebody else do it, now. What was started by vow_share() is canceled,
 * unless VOW_SHARE_KEEP. If it was to stop (vow_authority_cancel()), nobody
 * does it: all who wait are rejected. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_lease_abandon(vow_lease *l);

/* Settled at the store: fulfilled with nothing when the result was accepted,
 * rejected with VOW_ELOST when it came too late. Never NULL, owned. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1)
vow_future *vow_lease_settled(vow_lease *l);

/* The number to show to whatever the work writes to: larger for every new
 * lease of the name, so that it can refuse a smaller one than it has seen. An
 * attempt after one that failed has the same. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
uint64_t vow_lease_fence(const vow_lease *l);
/* Which attempt this is, from 1: failed, lost and abandoned ones count, the
 * latter as far as this process knows. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
uint32_t vow_lease_attempt(const vow_lease *l);
/* Time until it must be taken for lost, by our own clock; 0: it is. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
uint64_t vow_lease_left_ms(const vow_lease *l);
/* 1: nobody in this process but its asker waits; more: others do; 0: nobody
 * does. Not an exact number. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
size_t vow_lease_waiters(const vow_lease *l);

/* Rejected with VOW_ELOST as soon as the lease is lost or cannot be known to be
 * held; fulfilled when it was settled in time. Owned. What was started by
 * vow_share() is canceled then, unless VOW_SHARE_KEEP. A lease of
 * vow_claim_name() is still held when it is rejected with VOW_ECANCELED:
 * somebody asks to stop (vow_authority_cancel()). Stop, and settle it. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1)
vow_future *vow_lease_lost(vow_lease *l);

/* The pulse by hand; and with news for all who wait in this process, as
 * vow_notify(). False: the lease is settled or lost. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_lease_pulse(vow_lease *l);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_lease_notify(vow_lease *l, vow_value progress);

/* A piece of the result for those who follow (VOW_SHARE_FOLLOW), whoever and
 * wherever they are, in order and from the first on. Counts as a pulse. The
 * future settles when there is room for more; rejected with VOW_ELOST. `chunk`
 * is borrowed. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 2)
vow_future *vow_lease_write(vow_lease *l, vow_bytes *chunk);

/* How long the result will be kept, instead of what the options say. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_lease_keep(vow_lease *l, uint64_t ttl_ms);

/* The value it will be settled with counts as a failure: all get it, it is kept
 * for .fail_ttl_ms and listed as failed. */
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
