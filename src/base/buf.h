/* SPDX-License-Identifier: MIT */
/* buf.h - a buffer: bytes that grow up to a maximum. See buf.c.
 *
 * A writer adds, and looks at `code` once, at the end. A queue reserves, so that
 * a failure changes nothing, and takes from the front.
 */
#ifndef VOW_BASE_BUF_H
#define VOW_BASE_BUF_H

#include "base/alloc.h"
#include "base/assert.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct vow__buf {
    char *bytes; /* the first byte in use; moves when the buffer grows */
    size_t n;    /* bytes in use */
    size_t room; /* bytes from `bytes` on that can be in use without a move */
    int code;    /* of a writer, until cleared: 0, VOW_ENOMEM or VOW_E2BIG */
    bool secret; /* set after init: blocks are cleared before they are freed */
    size_t head; /* bytes in front of `bytes`: taken */
    size_t size; /* of the block; 0: no block */
    size_t max;  /* of n */
    struct vow_alloc alloc;
};

/* Allocates nothing. No sum of sizes overflows: `max` is at most SIZE_MAX / 8. */
static inline void vow__buf_init(struct vow__buf *b,
                                 const struct vow_alloc *alloc, size_t max)
{
    *b = (struct vow__buf){.alloc = *alloc,
                           .max = max < SIZE_MAX / 8 ? max : SIZE_MAX / 8};
}
/* Frees the block; the buffer is as after init. */
void vow__buf_fini(struct vow__buf *b);
/* Hands the bytes and the failure over; `from` is as after init. */
void vow__buf_move(struct vow__buf *from, struct vow__buf *ret_to);

/* Makes room for `more` bytes behind the last. VOW_ENOMEM, VOW_E2BIG: nothing
 * has changed. */
int vow__buf_grow(struct vow__buf *b, size_t more);
static inline int vow__buf_reserve(struct vow__buf *b, size_t more)
{
    return VOW__LIKELY(more <= b->room - b->n) ? 0 : vow__buf_grow(b, more);
}
/* Adds bytes that the caller sets (at least 1). NULL: nothing has changed. */
static inline void *vow__buf_push(struct vow__buf *b, size_t size)
{
    if (vow__buf_reserve(b, size) < 0)
        return NULL;
    b->n += size;
    return b->bytes + (b->n - size);
}
/* Drops bytes from the front. An empty buffer keeps a block up to 1 MiB. */
void vow__buf_take(struct vow__buf *b, size_t n);
/* Forgets all bytes and the failure. */
static inline void vow__buf_clear(struct vow__buf *b)
{
    vow__buf_take(b, b->n);
    b->code = 0;
}

/* ---- for writers: the first failure stays, and nothing is added then ----- */

/* Where the caller may write up to `more` bytes (at least 1), and then adds the
 * bytes written to `n`; NULL: failed. */
static inline char *vow__buf_extend(struct vow__buf *b, size_t more)
{
    if (VOW__LIKELY(b->code == 0))
        b->code = vow__buf_reserve(b, more);
    return VOW__LIKELY(b->code == 0) ? b->bytes + b->n : NULL;
}
/* The bytes may be bytes of the buffer itself. */
void vow__buf_add(struct vow__buf *b, const void *bytes, size_t n);
static inline void vow__buf_text(struct vow__buf *b, const char *text)
{
    vow__buf_add(b, text, strlen(text));
}
/* The arguments must not lie in the buffer. */
void vow__buf_print(struct vow__buf *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
