/* SPDX-License-Identifier: MIT */
/* bytes.c - counted byte buffers.
 *
 * WHY   A result goes to ten waiters, to a store and to another thread without
 *       a copy.
 * HOW   One block: count, allocator, size, then the bytes. The count is atomic,
 *       the contents are not: a buffer is shared only after the last write.
 * THREADS  any.
 */
#include "base/bytes.h"
#include "base/assert.h"

#include <stdatomic.h>
#include <string.h>

struct vow_bytes {
    atomic_size_t refs;
    struct vow_alloc alloc;
    size_t size;
    unsigned char data[];
};

int vow__bytes_make(const struct vow_alloc *a, const void *data, size_t size,
                    vow_bytes **ret_bytes)
{
    vow_bytes *b;
    int rc = vow__bytes_room(a, size, &b);
    if (rc < 0)
        return rc;
    if (data == NULL)
        memset(b->data, 0, size);
    else
        memcpy(b->data, data, size);
    *ret_bytes = b;
    return 0;
}

int vow__bytes_room(const struct vow_alloc *a, size_t size,
                    vow_bytes **ret_bytes)
{
    if (size > SIZE_MAX - sizeof(vow_bytes))
        return VOW_ENOMEM;
    vow_bytes *b = vow__mem_new(a, sizeof(*b) + size);
    if (b == NULL)
        return VOW_ENOMEM;
    atomic_init(&b->refs, 1);
    b->alloc = *a;
    b->size = size;
    *ret_bytes = b;
    return 0;
}

vow_bytes *vow_bytes_ref(vow_bytes *b)
{
    if (b != NULL)
        atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

vow_bytes *vow_bytes_unref(vow_bytes *b)
{
    if (b == NULL)
        return NULL;
    size_t before =
        atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel);
    VOW__ASSERT(before > 0);
    if (before == 1) {
        struct vow_alloc a = b->alloc;
        vow__mem_free(&a, b, sizeof(*b) + b->size);
    }
    return NULL;
}

unsigned char *vow_bytes_data(vow_bytes *b)
{
    return b == NULL ? NULL : b->data;
}

size_t vow_bytes_size(const vow_bytes *b)
{
    return b == NULL ? 0 : b->size;
}
