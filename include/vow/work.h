/* SPDX-License-Identifier: MIT */
/* vow/work.h - work that would block the loop, on a pool of threads.
 *
 * Each loop has its own pool, started by its first job, so that one loop's jobs
 * never wait behind another's, nor behind libuv's file and name lookups. A job
 * that does not return takes its thread with it: when no job could start for
 * 50 ms the pool adds a thread, up to 64 more than asked for.
 */
#ifndef VOW_WORK_H
#define VOW_WORK_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

typedef struct vow_job vow_job;

/* Runs on a pool thread. It may use `job`, errors and byte buffers, and nothing
 * else of the loop; vow_follow() and vow_pass() are refused with VOW_EINVAL. */
typedef vow_next (*vow_work_fn)(vow_job *job, void *arg);

/* Run `fn` on the pool; the future is of what it returns. Canceled while it
 * waits for a thread, it never runs and the future is rejected at once;
 * canceled while it runs, it is asked (vow_job_canceled()). VOW_EQUEUEFULL when
 * too many wait. Since 0.1. */
#define vow_work(loop, fn, arg) vow_work_at(VOW_HERE, (loop), (fn), (arg))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_work_at(const char *site, vow_loop *loop, vow_work_fn fn,
                        void *arg);

VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
bool vow_job_canceled(const vow_job *job);

/* Progress from the job's thread, the latest wins; as vow_notify_any(). */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
bool vow_job_notify(vow_job *job, vow_value progress);

/* For vow_error_new() and vow_bytes_new() inside the job. */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
vow_loop *vow_job_loop(vow_job *job);

VOW_END_DECLS

#endif
