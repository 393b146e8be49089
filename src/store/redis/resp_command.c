/* SPDX-License-Identifier: MIT */
/* resp_command.c - commands to bytes: a list of texts, each with the length.
 *
 * HOW   One block that doubles. A command may have a password in the words:
 *       blocks are cleared before the free.
 * THREADS  one at a time.
 */
#include "store/redis/resp.h"

#include <string.h>

enum {
    DIGITS = 20, /* of a number */
    AROUND = 32  /* bytes around a word */
};

static char *reserve(struct vow__command *c, size_t n);
static size_t header(char sign, uint64_t n, char *to);
static size_t digits(uint64_t n, char *text);

void vow__command_init(struct vow__command *c, const struct vow_alloc *alloc)
{
    *c = (struct vow__command){.alloc = *alloc};
}

void vow__command_fini(struct vow__command *c)
{
    if (c->bytes != NULL)
        explicit_bzero(c->bytes, c->n);
    vow__mem_free(&c->alloc, c->bytes, c->room);
    c->bytes = NULL;
    c->n = 0;
    c->room = 0;
}

void vow__command_begin(struct vow__command *c, size_t words)
{
    char *to = reserve(c, AROUND);
    if (to != NULL)
        c->n += header('*', words, to);
}

void vow__command_add(struct vow__command *c, const void *bytes, size_t n)
{
    char *to = n > SIZE_MAX / 8 ? NULL : reserve(c, n + AROUND);
    if (to == NULL) {
        c->failed = true;
        return;
    }
    to += header('$', n, to);
    if (n > 0)
        memcpy(to, bytes, n);
    memcpy(to + n, "\r\n", 2);
    c->n = (size_t)(to - c->bytes) + n + 2;
}

void vow__command_text(struct vow__command *c, const char *text)
{
    vow__command_add(c, text, strlen(text));
}

void vow__command_uint(struct vow__command *c, uint64_t number)
{
    char text[DIGITS];
    vow__command_add(c, text, digits(number, text));
}

/* Room for `n` more bytes; NULL: none. What is left behind may be a password.
 */
static char *reserve(struct vow__command *c, size_t n)
{
    if (c->failed || n <= c->room - c->n)
        return c->failed ? NULL : c->bytes + c->n;
    size_t room = 2 * (c->n + n); /* n is no more than can be */
    char *bytes = c->n > SIZE_MAX / 8 ? NULL : vow__mem_new(&c->alloc, room);
    c->failed = bytes == NULL;
    if (c->failed)
        return NULL;
    if (c->n > 0) {
        memcpy(bytes, c->bytes, c->n);
        explicit_bzero(c->bytes, c->n);
    }
    vow__mem_free(&c->alloc, c->bytes, c->room);
    c->bytes = bytes;
    c->room = room;
    return bytes + c->n;
}

static size_t header(char sign, uint64_t n, char *to)
{
    to[0] = sign;
    size_t size = 1 + digits(n, to + 1);
    memcpy(to + size, "\r\n", 2);
    return size + 2;
}

static size_t digits(uint64_t n, char *text)
{
    char back[DIGITS];
    size_t size = 0;
    do {
        back[size++] = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    for (size_t i = 0; i < size; i++)
        text[i] = back[size - 1 - i];
    return size;
}
