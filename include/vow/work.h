/* SPDX-License-Identifier: MIT */
/* vow/work.h - blocking work on a pool of threads.
 *
 * Each loop has a thread pool of its own, started by the first job, so jobs of
 * a loop never wait behind jobs of another loop, nor behind libuv's file
 * operations and host name lookups. A job that does not return blocks a thread:
 * while jobs wait and none could start for 50 ms, the pool adds a thread, up to
 * 64 more than work_threads.
 */
#ifndef VOW_WORK_H
#define VOW_WORK_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

typedef struct vow_job vow_job;

/* The function of a job, called on a pool thread. The function may use `job`,
 * errors and byte buffers, and nothing else of the loop; vow_follow() and
 * vow_pass() are refused with VOW_EINVAL. */
typedef vow_next (*vow_work_fn)(vow_job *job, void *arg);

/* Runs `fn` on the pool and returns a future of the outcome. Canceled while the
 * job waits for a thread, `fn` never runs and the future is rejected at once;
 * canceled while the job runs, the job is asked to stop (vow_job_canceled()).
 * Rejected: VOW_EQUEUEFULL (too many jobs wait), VOW_ECLOSED, VOW_EINVAL (`fn`
 * is NULL). Since 0.1. */
#define vow_work(loop, fn, arg) vow_work_at(VOW_HERE, (loop), (fn), (arg))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_work_at(const char *site, vow_loop *loop, vow_work_fn fn,
                        void *arg);

VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
bool vow_job_canceled(const vow_job *job);

/* Tells progress from the job's thread, as vow_notify_any(). */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
bool vow_job_notify(vow_job *job, vow_value progress);

/* Returns the loop, for vow_error_new() and vow_bytes_new() inside the job. */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
vow_loop *vow_job_loop(vow_job *job);

VOW_END_DECLS

#endif
