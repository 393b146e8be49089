/* SPDX-License-Identifier: MIT */
/* failure.h - a failure as the bytes of a record. See failure.c. */
#ifndef VOW_BASE_FAILURE_H
#define VOW_BASE_FAILURE_H

#include "base/alloc.h"
#include "vow/value.h"

/* `message` NULL: the text of the code. VOW_ENOMEM. */
int vow__failure_make(const struct vow_alloc *a, int code, const char *message,
                      vow_bytes **ret_bytes);

/* What vow__failure_make() was given. The message lies in the bytes and has no
 * final NUL. */
struct vow__failure {
    int code;
    const char *message;
    size_t length;
};
struct vow__failure vow__failure_read(vow_bytes *b);
/* Were they made by vow__failure_make()? NULL: no. */
bool vow__failure_is(vow_bytes *b);

#endif
