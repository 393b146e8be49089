/* SPDX-License-Identifier: MIT */
/* vow/step.h - what a step, a fiber or a job returns: a value, an error, or a
 * future whose outcome becomes its own.
 *
 * Owner: whatever is in a vow_next is moved to the engine as a whole. A value
 * that a handler only borrows goes on by vow_pass(), never by vow_ok().
 */
#ifndef VOW_STEP_H
#define VOW_STEP_H

#include "vow/value.h"

VOW_BEGIN_DECLS

/* Made by vow_ok(), vow_fail(), vow_fail_code(), vow_follow(), vow_pass(). */
typedef struct vow_next {
    vow_value out;
} vow_next;

/* Tags that are no value's, all negative as a number: so are the error codes of
 * vow_fail_code(). Private to the library. */
#define VOW_TAG_ERROR ((uintptr_t)INTPTR_MIN)
#define VOW_TAG_FOLLOW (VOW_TAG_ERROR + 1)
#define VOW_TAG_PASS (VOW_TAG_ERROR + 2)

/* The step succeeded with this value, which is moved. */
static inline vow_next vow_ok(vow_value v)
{
    vow_next n;
    n.out = v;
    return n;
}

/* The step failed with this error, whose reference is moved. */
static inline vow_next vow_fail(vow_error *e)
{
    vow_next n;
    n.out.as.ptr = e;
    n.out.tag = VOW_TAG_ERROR;
    return n;
}

/* The step failed; a static text, no loop needed. NULL: the code's text. */
static inline vow_next vow_fail_code(int code, const char *text)
{
    vow_next n;
    n.out.as.ptr = (void *)(uintptr_t)text;
    n.out.tag = (uintptr_t)(intptr_t)(code < 0 ? code : VOW_EINVAL);
    return n;
}

/* Promise insertion: the chain goes on with what this future becomes. The
 * reference is moved, so that `return vow_follow(start_again(x));` is whole. */
static inline vow_next vow_follow(vow_future *f)
{
    vow_next n;
    n.out.as.ptr = f;
    n.out.tag = VOW_TAG_FOLLOW;
    return n;
}

/* What came in goes on, value or error, as if the handler were missing. */
static inline vow_next vow_pass(void)
{
    vow_next n;
    n.out.as.ptr = NULL;
    n.out.tag = VOW_TAG_PASS;
    return n;
}

VOW_END_DECLS

#endif
