/* SPDX-License-Identifier: MIT */
/* vow/remote.h - the settling end of a promise for other threads.
 *
 * Everything it needs to settle is allocated when it is made, so that a thread
 * which has a result can always deliver it: settling cannot fail for lack of
 * memory or room.
 *
 * Owner: counted, from any thread. The last reference dropped unsettled rejects
 * with VOW_EBROKEN. While it is alive and unsettled, vow_loop_run() waits for
 * it. It may outlive the loop: settling it then returns false.
 */
#ifndef VOW_REMOTE_H
#define VOW_REMOTE_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

typedef struct vow_remote vow_remote;

/* Make a promise whose end may go to another thread. Without memory the future
 * is rejected with VOW_ENOMEM and *ret_end is NULL, which the functions below
 * accept. Since 0.1. */
#define vow_promise_remote(loop, ret_end)                                      \
    vow_promise_remote_at(VOW_HERE, (loop), (ret_end))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_promise_remote_at(const char *site, vow_loop *loop,
                                  vow_remote **ret_end);

/* Settle from any thread. True for the one call that did it; false otherwise,
 * and the value or error is dropped on the calling thread. The promise may
 * have been canceled on its loop meanwhile: then this is a late settle
 * there. */
VOW_API VOW_ANY_THREAD bool vow_resolve_any(vow_remote *r, vow_value v);
VOW_API VOW_ANY_THREAD bool vow_reject_any(vow_remote *r, vow_error *e);

/* Progress from any thread, the latest wins. The value is moved; false when the
 * promise is settled, or when a value with a destructor cannot be carried: no
 * memory, or 64 others wait for the loop. It is dropped on this thread then. */
VOW_API VOW_ANY_THREAD bool vow_notify_any(vow_remote *r, vow_value progress);

/* True once the future was canceled: the work may stop. */
VOW_API VOW_ANY_THREAD bool vow_remote_canceled(const vow_remote *r);
/* For vow_error_new() and vow_bytes_new(), until the loop is closed. */
VOW_API VOW_ANY_THREAD vow_loop *vow_remote_loop(const vow_remote *r);
VOW_API VOW_ANY_THREAD vow_remote *vow_remote_ref(vow_remote *r);
VOW_API VOW_ANY_THREAD vow_remote *vow_remote_unref(vow_remote *r); /* NULL */

static inline void vow_remote_cleanup(vow_remote **r)
{
    vow_remote_unref(*r);
}

VOW_END_DECLS

#endif
