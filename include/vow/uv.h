/* SPDX-License-Identifier: MIT */
/* vow/uv.h - vow on a libuv loop that you have. The only public header that
 * includes <uv.h>, and so not part of <vow.h>.
 *
 * You run the libuv loop by uv_run(); handlers and fibers run in it. After
 * vow_loop_close(), let it run until it is done, then uv_loop_close() it.
 */
#ifndef VOW_UV_H
#define VOW_UV_H

#include "vow/loop.h"
#include <uv.h>

VOW_BEGIN_DECLS

/* As vow_loop_new(), on `uv`, which must outlive it. Since 0.1. */
VOW_API VOW_MUST_USE VOW_NONNULL(1, 3)
int vow_loop_new_uv(uv_loop_t *uv, const vow_loop_opts *opts,
                    vow_loop **ret_loop);

/* The libuv loop under a vow loop, to put your own handles on. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
uv_loop_t *vow_loop_uv(vow_loop *loop);

VOW_END_DECLS

#endif
