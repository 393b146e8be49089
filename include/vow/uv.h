/* SPDX-License-Identifier: MIT */
/* vow/uv.h - a vow_loop on a libuv loop of yours. Not part of <vow.h>: only
 * this public header includes <uv.h>.
 *
 * uv_run() on the libuv loop runs handlers and fibers. After vow_loop_close(),
 * run the libuv loop until done, then call uv_loop_close().
 */
#ifndef VOW_UV_H
#define VOW_UV_H

#include "vow/loop.h"
#include <uv.h>

VOW_BEGIN_DECLS

/* As vow_loop_new(), on `uv`, which must outlive the loop. Since 0.1. */
VOW_API VOW_MUST_USE VOW_NONNULL(1, 3)
int vow_loop_new_uv(uv_loop_t *uv, const vow_loop_opts *opts,
                    vow_loop **ret_loop);

/* Returns the libuv loop of a vow_loop, for handles of yours. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
uv_loop_t *vow_loop_uv(vow_loop *loop);

VOW_END_DECLS

#endif
