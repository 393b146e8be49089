/* SPDX-License-Identifier: MIT */
/* vow/hedge.h - hedged requests: starts another attempt when an answer is late,
 * and takes the first answer.
 *
 * Threads: loop thread only.
 */
#ifndef VOW_HEDGE_H
#define VOW_HEDGE_H

#include "vow/retry.h"

VOW_BEGIN_DECLS

typedef struct vow_hedge_opts {
    size_t size;       /* set by VOW_HEDGE */
    uint64_t after_ms; /* wait before the next attempt; 0: 100 */
    uint32_t most;     /* attempts in all; 0: 2 */
} vow_hedge_opts;
#define VOW_HEDGE(...)                                                         \
    (&(const vow_hedge_opts){.size = sizeof(vow_hedge_opts), __VA_ARGS__})

/* Calls start(loop, attempt, arg) from the loop's queue, and again each time
 * `after_ms` pass without success or the newest attempt fails. The first value
 * is the outcome, and the other attempts are canceled. Canceling the future
 * cancels all attempts. An attempt fails with VOW_EINVAL if `start` returns
 * NULL or a future of another loop. Rejected: VOW_EALLFAILED with all errors
 * (vow_error_at()) when all `most` attempts have failed, VOW_EINVAL (`start` is
 * NULL), VOW_ECLOSED (the loop closes). Since 0.1. */
#define vow_hedge(loop, start, arg, opts)                                      \
    vow_hedge_at(VOW_HERE, (loop), (start), (arg), (opts))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_hedge_at(const char *site, vow_loop *loop, vow_start_fn start,
                         void *arg, const vow_hedge_opts *opts);

VOW_END_DECLS

#endif
