/* SPDX-License-Identifier: MIT */
/* vow/remote.h - the settling end of a promise for other threads.
 *
 * All memory for settling is allocated when the remote is made, so a thread can
 * always deliver a result: settling cannot fail for lack of memory or room.
 *
 * Owner: counted, from any thread. Dropping the last reference of an unsettled
 * remote rejects the promise with VOW_EBROKEN. While a remote is alive and
 * unsettled, vow_loop_run() waits. A remote may outlive the loop; settling then
 * returns false.
 */
#ifndef VOW_REMOTE_H
#define VOW_REMOTE_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

typedef struct vow_remote vow_remote;

/* Makes a promise with a settling end for other threads. Without memory, the
 * future is rejected with VOW_ENOMEM, and if the loop closes with VOW_ECLOSED;
 * *ret_end is then NULL, which the functions below accept. Since 0.1. */
#define vow_promise_remote(loop, ret_end)                                      \
    vow_promise_remote_at(VOW_HERE, (loop), (ret_end))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_promise_remote_at(const char *site, vow_loop *loop,
                                  vow_remote **ret_end);

/* Settle the promise from any thread. Return true for the first call; otherwise
 * return false and drop the value or error on the calling thread. If the
 * promise was canceled on the loop meanwhile, the first call counts as a late
 * settle there. */
VOW_API VOW_ANY_THREAD bool vow_resolve_any(vow_remote *r, vow_value v);
VOW_API VOW_ANY_THREAD bool vow_reject_any(vow_remote *r, vow_error *e);

/* Tells progress from any thread; a later value replaces an earlier value not
 * yet delivered. The value is moved. Returns false, and drops the value on the
 * calling thread, if the promise is settled, or if a value with a destructor
 * cannot be sent: no memory, or 64 replaced values wait for the loop. */
VOW_API VOW_ANY_THREAD bool vow_notify_any(vow_remote *r, vow_value progress);

/* Returns whether the future was canceled: the work may stop. */
VOW_API VOW_ANY_THREAD bool vow_remote_canceled(const vow_remote *r);
/* Returns the loop, for vow_error_new() and vow_bytes_new(), until the loop is
 * closed. */
VOW_API VOW_ANY_THREAD vow_loop *vow_remote_loop(const vow_remote *r);
VOW_API VOW_ANY_THREAD vow_remote *vow_remote_ref(vow_remote *r);
VOW_API VOW_ANY_THREAD vow_remote *vow_remote_unref(vow_remote *r); /* NULL */

static inline void vow_remote_cleanup(vow_remote **r)
{
    vow_remote_unref(*r);
}

VOW_END_DECLS

#endif
