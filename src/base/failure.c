/* SPDX-License-Identifier: MIT */
/* failure.c - a failure as the bytes of a record.
 *
 * WHY   A store keeps bytes. Processes share failures through a store, where
 *       people should be able to read them.
 * HOW   The code in decimal, a newline, the message: "-110\nno answer".
 * LIMITS  What comes from a store may be anything: bytes that are no failure
 *       read as VOW_EIO, with all of them as the message.
 * THREADS  any.
 */
#include "base/failure.h"
#include "base/bytes.h"

#include <stdio.h>
#include <string.h>

enum { CODE_MAX = 999999 };

static bool failure_parse(vow_bytes *b, struct vow__failure *ret);

int vow__failure_make(const struct vow_alloc *a, int code, const char *message,
                      vow_bytes **ret_bytes)
{
    char head[16];
    const char *text = message == NULL ? vow_error_text(code) : message;
    int n = snprintf(head, sizeof(head), "%d\n", code);
    size_t length = strlen(text);
    vow_bytes *b;
    int rc = vow__bytes_make(a, NULL, (size_t)n + length, &b);
    if (rc < 0)
        return rc;
    memcpy(vow_bytes_data(b), head, (size_t)n);
    memcpy(vow_bytes_data(b) + n, text, length);
    *ret_bytes = b;
    return 0;
}

bool vow__failure_is(vow_bytes *b)
{
    struct vow__failure f;
    return b != NULL && failure_parse(b, &f);
}

struct vow__failure vow__failure_read(vow_bytes *b)
{
    struct vow__failure f = {.code = VOW_EIO,
                             .message = (const char *)vow_bytes_data(b),
                             .length = vow_bytes_size(b)};
    (void)failure_parse(b, &f);
    return f;
}

static bool failure_parse(vow_bytes *b, struct vow__failure *ret)
{
    const char *text = (const char *)vow_bytes_data(b);
    size_t size = vow_bytes_size(b);
    size_t at = 1;
    int code = 0;
    if (size == 0 || text[0] != '-')
        return false;
    while (at < size && text[at] >= '0' && text[at] <= '9' && code <= CODE_MAX)
        code = 10 * code + (text[at++] - '0');
    if (at == size || text[at] != '\n' || code == 0 || code > CODE_MAX)
        return false;
    *ret = (struct vow__failure){
        .code = -code, .message = text + at + 1, .length = size - at - 1};
    return true;
}
