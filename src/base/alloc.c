/* SPDX-License-Identifier: MIT */
/* alloc.c - the only file that calls malloc.
 *
 * WHY   Every allocation is failed in turn by tests: all go through here.
 * HOW   The hook gets the old and the new size, so that a counting allocator
 *       needs no block headers.
 * THREADS  any; the hook must be safe for that.
 */
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

void *vow__mem_new(const struct vow_alloc *a, size_t size)
{
    if (a->fn != NULL)
        return a->fn(a->ctx, NULL, 0, size);
    return malloc(size);
}

void *vow__mem_zero(const struct vow_alloc *a, size_t size)
{
    void *ptr = vow__mem_new(a, size);
    if (ptr != NULL)
        memset(ptr, 0, size);
    return ptr;
}

void vow__mem_free(const struct vow_alloc *a, void *ptr, size_t size)
{
    if (ptr == NULL)
        return;
    if (a->fn != NULL)
        (void)a->fn(a->ctx, ptr, size, 0);
    else
        free(ptr);
}
