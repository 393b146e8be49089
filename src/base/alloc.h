/* SPDX-License-Identifier: MIT */
/* alloc.h - memory through the caller's hook; malloc without a hook. */
#ifndef VOW_BASE_ALLOC_H
#define VOW_BASE_ALLOC_H

#include "vow/alloc.h"

/* NULL when there is none. Uninitialised, and zeroed. */
void *vow__mem_new(const struct vow_alloc *a, size_t size);
void *vow__mem_zero(const struct vow_alloc *a, size_t size);

/* `size` is the size of the block. NULL is allowed. */
void vow__mem_free(const struct vow_alloc *a, void *ptr, size_t size);

#endif
