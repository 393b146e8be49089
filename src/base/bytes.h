/* SPDX-License-Identifier: MIT */
/* bytes.h - making counted buffers from an allocator. See bytes.c. */
#ifndef VOW_BASE_BYTES_H
#define VOW_BASE_BYTES_H

#include "base/alloc.h"
#include "vow/value.h"

int vow__bytes_make(const struct vow_alloc *a, const void *data, size_t size,
                    vow_bytes **ret_bytes);

/* The same with contents that are not set: to be written at once. */
int vow__bytes_room(const struct vow_alloc *a, size_t size,
                    vow_bytes **ret_bytes);

#endif
