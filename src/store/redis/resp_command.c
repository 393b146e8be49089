/* SPDX-License-Identifier: MIT */
/* resp_command.c - commands to bytes: a list of texts, each with the length.
 *
 * HOW   A command may have a password in the words: the buffer is secret.
 * THREADS  one at a time.
 */
#include "store/redis/resp.h"

#include <string.h>

enum {
    DIGITS = 20,          /* of a number */
    AROUND = 32,          /* bytes around a word */
    COMMAND_MAX = 1 << 30 /* client-query-buffer-limit of the server */
};

static size_t header(char sign, uint64_t n, char *to);
static size_t digits(uint64_t n, char *text);

void vow__command_init(struct vow__buf *c, const struct vow_alloc *alloc)
{
    vow__buf_init(c, alloc, COMMAND_MAX);
    c->secret = true;
}

void vow__command_begin(struct vow__buf *c, size_t words)
{
    char *to = vow__buf_extend(c, AROUND);
    if (to != NULL)
        c->n += header('*', words, to);
}

void vow__command_add(struct vow__buf *c, const void *bytes, size_t n)
{
    char *to = vow__buf_extend(c, n > COMMAND_MAX ? n : n + AROUND);
    if (to == NULL)
        return;
    to += header('$', n, to);
    if (n > 0)
        memcpy(to, bytes, n);
    memcpy(to + n, "\r\n", 2);
    c->n = (size_t)(to - c->bytes) + n + 2;
}

void vow__command_text(struct vow__buf *c, const char *text)
{
    vow__command_add(c, text, strlen(text));
}

void vow__command_uint(struct vow__buf *c, uint64_t number)
{
    char text[DIGITS];
    vow__command_add(c, text, digits(number, text));
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
