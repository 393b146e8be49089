/* SPDX-License-Identifier: MIT */
/* remote_internal.h - what a job on the thread pool needs of its remote. */
#ifndef VOW_CORE_REMOTE_INTERNAL_H
#define VOW_CORE_REMOTE_INTERNAL_H

#include "vow/remote.h"

/* Settle with what a step returned; any thread. */
bool vow__core_remote_settle(vow_remote *r, vow_next outcome);

/* Something goes with the remote. on_cancel: what canceling the future does
 * instead of rejecting it at once. on_detach: the promise is settled or closed,
 * and on_cancel will not come any more. Both run on the loop's thread. */
struct vow__core_remote_ops {
    void (*on_cancel)(vow_future *out, vow_error *why, void *user);
    void (*on_detach)(void *user);
};
void vow__core_remote_attach(vow_remote *r,
                             const struct vow__core_remote_ops *ops,
                             void *user);

/* Its promise; loop thread, until it is settled. */
vow_future *vow__core_remote_future(vow_remote *r);

/* Tell all remotes of a loop that nobody waits any more. Loop thread. */
void vow__core_remotes_ask(vow_loop *loop);

/* Drop the only handle without settling: the promise has its outcome, or gets
 * it from whoever calls this. Loop thread. */
void vow__core_remote_discard(vow_remote *r);

#endif
