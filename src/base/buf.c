/* SPDX-License-Identifier: MIT */
/* buf.c - a buffer: bytes that grow up to a maximum.
 *
 * WHY   Requests, replies and messages are bytes of unknown number. One buffer
 *       has one answer to a full queue, to a lack of memory and to passwords.
 * HOW   One block. A block that is too small is replaced by a block of at least
 *       twice the bytes in use. Taken bytes stay in front until they are as many
 *       as the bytes in use: so moving costs no more than adding did.
 *
 *         block  | taken | in use | room for more | 1 byte |
 *                0       head     head + n        head + room
 *
 * INVARIANTS (run by buf_check() in debug builds)
 *   B1  n <= room <= max
 *   B2  head + room < size: the NUL of a print has a place
 *   B3  no bytes in use: head is 0
 * LIMITS  a block has at most 2 * max + 512 bytes. An empty buffer keeps a block
 *       of at most 1 MiB.
 * THREADS  the owner's.
 */
#include "base/buf.h"
#include "vow/error.h"

#include <stdarg.h>
#include <stdio.h>

enum { BUF_FIRST = 511, BUF_KEEP = 1 << 20 }; /* bytes */

static void buf_check(const struct vow__buf *b);
static char *block_of(const struct vow__buf *b);
static size_t room_of(const struct vow__buf *b);
static void block_set(struct vow__buf *b, char *block, size_t size);

void vow__buf_fini(struct vow__buf *b)
{
    buf_check(b);
    b->n = 0;
    b->code = 0;
    block_set(b, NULL, 0);
}

void vow__buf_move(struct vow__buf *from, struct vow__buf *ret_to)
{
    *ret_to = *from;
    from->size = 0; /* the block is of `ret_to` */
    vow__buf_fini(from);
}

int vow__buf_grow(struct vow__buf *b, size_t more)
{
    buf_check(b);
    if (more > b->max - b->n)
        return VOW_E2BIG;
    size_t want = b->n + more;
    size_t size = b->size;
    char *block = block_of(b);
    if (b->n > b->head || want >= size) {
        size = (want > 2 * b->n ? want : 2 * b->n) + 1;
        size = size > BUF_FIRST ? size : BUF_FIRST + 1;
        block = vow__mem_new(&b->alloc, size);
    }
    if (block == NULL)
        return VOW_ENOMEM;
    if (b->n > 0)
        memmove(block, b->bytes, b->n);
    block_set(b, block, size);
    return 0;
}

void vow__buf_take(struct vow__buf *b, size_t n)
{
    VOW__ASSERT(n <= b->n);
    b->n -= n;
    if (b->n == 0 && (b->size == 0 || b->size > BUF_KEEP)) {
        block_set(b, NULL, 0);
        return;
    }
    size_t head = b->n == 0 ? 0 : b->head + n; /* keeps B3 */
    b->bytes = b->bytes - b->head + head;
    b->head = head;
    b->room = room_of(b); /* keeps B2 */
    buf_check(b);
}

void vow__buf_add(struct vow__buf *b, const void *bytes, size_t n)
{
    uintptr_t at = (uintptr_t)bytes - (uintptr_t)b->bytes;
    bool own = at < b->n; /* these move with the buffer */
    char *to = n == 0 ? NULL : vow__buf_extend(b, n);
    if (to == NULL)
        return;
    memcpy(to, own ? b->bytes + at : bytes, n);
    b->n += n;
}

/* Prints into the room that is there, and again if there is too little. */
void vow__buf_print(struct vow__buf *b, const char *format, ...)
{
    va_list args;
    size_t left = b->size == 0 ? 0 : b->room - b->n + 1; /* B2 */
    va_start(args, format);
    int n = vsnprintf(left == 0 ? NULL : b->bytes + b->n, left, format, args);
    va_end(args);
    VOW__ASSERT(n >= 0);
    char *to = n == 0 ? NULL : vow__buf_extend(b, (size_t)n);
    if (to == NULL)
        return;
    va_start(args, format);
    if ((size_t)n >= left)
        (void)vsnprintf(to, (size_t)n + 1, format, args);
    va_end(args);
    b->n += (size_t)n;
}

static void buf_check(const struct vow__buf *b)
{
    VOW__DEBUG_ASSERT(b->n <= b->room && b->room <= b->max);        /* B1 */
    VOW__DEBUG_ASSERT(b->size == 0 || b->head + b->room < b->size); /* B2 */
    VOW__DEBUG_ASSERT(b->n > 0 || b->head == 0);                    /* B3 */
    (void)b; /* without asserts */
}

static char *block_of(const struct vow__buf *b)
{
    return b->size == 0 ? NULL : b->bytes - b->head;
}

/* Another block replaces the old one, which is freed. */
static void block_set(struct vow__buf *b, char *block, size_t size)
{
    char *old = block_of(b);
    if (old != block && old != NULL && b->secret)
        explicit_bzero(old, b->size);
    if (old != block)
        vow__mem_free(&b->alloc, old, b->size);
    b->bytes = block;
    b->head = 0;
    b->size = size;
    b->room = size == 0 ? 0 : room_of(b);
}

static size_t room_of(const struct vow__buf *b)
{
    size_t room = b->size - b->head - 1;
    return room < b->max ? room : b->max;
}
