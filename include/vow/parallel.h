/* SPDX-License-Identifier: MIT */
/* vow/parallel.h - runs callback-style tasks with a concurrency limit.
 *
 * Threads: loop thread only.
 */
#ifndef VOW_PARALLEL_H
#define VOW_PARALLEL_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

/* The handle by which a running task reports the end. */
typedef struct vow_slot vow_slot;

/* Begins a task. The task calls vow_slot_ok() or vow_slot_fail() once: inside
 * this call, or later. */
typedef void (*vow_task_fn)(vow_slot *slot, void *arg);

typedef struct vow_task {
    vow_task_fn run;
    void *arg;
} vow_task;

/* Called with all results in the order of the tasks and a NULL error, or with
 * the first error in time and no results. Both are borrowed. */
typedef void (*vow_parallel_fn)(vow_error *error, const vow_value *results,
                                size_t n, void *user);

/* Runs the tasks in order, at most `concurrency` at a time, each begun from the
 * loop's queue. `done` is called exactly once, from the loop's queue, when all
 * tasks have ended or a task has failed. After a failure no task begins, and
 * the results of running tasks are dropped. Without tasks, `done` is called
 * with 0 results. The array is copied. A task that never reports counts as
 * running for ever; if the loop closes first, `done` gets VOW_ECLOSED. Returns
 * 0, or VOW_EINVAL (concurrency 0, a NULL function), VOW_ENOMEM or VOW_ECLOSED:
 * then `done` is not called. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1)
int vow_parallel(vow_loop *loop, const vow_task *tasks, size_t n,
                 uint32_t concurrency, vow_parallel_fn done, void *user);

/* Report the end of the task. The value or the error is moved. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_slot_ok(vow_slot *slot, vow_value value);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_slot_fail(vow_slot *slot, vow_error *error);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_loop *vow_slot_loop(vow_slot *slot);
/* Returns whether the result is still wanted: no task has failed so far. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_slot_wanted(vow_slot *slot);

VOW_END_DECLS

#endif
