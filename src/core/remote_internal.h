/* SPDX-License-Identifier: MIT */
/* remote_internal.h - functions of a remote for jobs of the thread pool. */
#ifndef VOW_CORE_REMOTE_INTERNAL_H
#define VOW_CORE_REMOTE_INTERNAL_H

#include "vow/remote.h"

/* Settles with the return value of a step; any thread. Returns false if the
 * remote was settled before, or the loop is closed. */
bool vow__core_remote_settle(vow_remote *r, vow_next outcome);

/* Functions of an object attached to a remote. on_cancel runs when the future
 * is canceled, which then is not rejected at once. on_detach runs when the
 * promise is settled or closed; on_cancel does not run afterwards. Both run on
 * the loop's thread. */
struct vow__core_remote_ops {
    void (*on_cancel)(vow_future *out, vow_error *why, void *user);
    void (*on_detach)(void *user);
};
void vow__core_remote_attach(vow_remote *r,
                             const struct vow__core_remote_ops *ops,
                             void *user);

/* Returns the promise, borrowed, until the promise is settled. Loop thread. */
vow_future *vow__core_remote_future(vow_remote *r);

/* Marks all remotes of a loop as canceled: running work may stop. Loop
 * thread. */
void vow__core_remotes_ask(vow_loop *loop);

/* Drops the only handle without settling: the caller has settled the promise.
 * Loop thread. */
void vow__core_remote_discard(vow_remote *r);

#endif
