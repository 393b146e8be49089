/* SPDX-License-Identifier: MIT */
/* vow/alloc.h - the one door through which libvow gets memory.
 *
 * Threads: the function is called on the loop's thread and, for posts, errors
 * and byte buffers made there, on any other thread; it must allow that, as
 * malloc does. It must stay usable until the last handle of the loop is dropped
 * and the last job on its thread pool has returned.
 */
#ifndef VOW_ALLOC_H
#define VOW_ALLOC_H

#include "vow/common.h"

VOW_BEGIN_DECLS

/* Allocate (ptr NULL), resize, or free (new_size 0). `old_size` is what was
 * asked for before, 0 for a new block. Blocks are aligned as malloc's. NULL
 * means no memory; the old block then stays valid. Freeing cannot fail. */
typedef void *(*vow_alloc_fn)(void *ctx, void *ptr, size_t old_size,
                              size_t new_size);

struct vow_alloc {
    vow_alloc_fn fn; /* NULL: the C library's malloc, realloc, free */
    void *ctx;       /* first argument of fn */
};

VOW_END_DECLS

#endif
