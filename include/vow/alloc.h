/* SPDX-License-Identifier: MIT */
/* vow/alloc.h - the allocator hook of a loop.
 *
 * Lifetime: the hook must work until the last handle of the loop is dropped and
 * the last job on the loop's thread pool has returned.
 * Threads: the hook is called on the loop's thread. For posts, errors and byte
 * buffers made on another thread the hook is called there. So the hook must be
 * thread-safe, as malloc is.
 */
#ifndef VOW_ALLOC_H
#define VOW_ALLOC_H

#include "vow/common.h"

VOW_BEGIN_DECLS

/* Allocates a block (`ptr` is NULL), resizes a block, or frees a block
 * (`new_size` is 0). `old_size` is the size of the block in bytes, 0 for a new
 * block. Blocks are aligned as malloc's. Returns NULL without memory; the old
 * block then stays valid. Freeing cannot fail. */
typedef void *(*vow_alloc_fn)(void *ctx, void *ptr, size_t old_size,
                              size_t new_size);

struct vow_alloc {
    vow_alloc_fn fn; /* NULL: the C library's malloc, realloc, free */
    void *ctx;       /* first argument of fn */
};

VOW_END_DECLS

#endif
