/* SPDX-License-Identifier: MIT */
/* vow/step.h - the return value of a step, a fiber or a job: a value, an error,
 * or a future to follow.
 *
 * Owner: a vow_next is moved to the library as a whole. A handler passes a
 * borrowed value on by vow_pass(), never by vow_ok().
 */
#ifndef VOW_STEP_H
#define VOW_STEP_H

#include "vow/value.h"

VOW_BEGIN_DECLS

/* Made by vow_ok(), vow_fail(), vow_fail_code(), vow_follow(), vow_pass(). */
typedef struct vow_next {
    vow_value out;
} vow_next;

/* Tags of a vow_next without a value, negative as numbers, as are the codes of
 * vow_fail_code(). Private to the library. */
#define VOW_TAG_ERROR ((uintptr_t)INTPTR_MIN)
#define VOW_TAG_FOLLOW (VOW_TAG_ERROR + 1)
#define VOW_TAG_PASS (VOW_TAG_ERROR + 2)

/* Ends the step with a value, which is moved. */
static inline vow_next vow_ok(vow_value v)
{
    vow_next n;
    n.out = v;
    return n;
}

/* Ends the step with an error; the reference is moved. */
static inline vow_next vow_fail(vow_error *e)
{
    vow_next n;
    n.out.as.ptr = e;
    n.out.tag = VOW_TAG_ERROR;
    return n;
}

/* Ends the step with an error of this code; needs no loop. `text` must be
 * static; NULL: the text of the code. */
static inline vow_next vow_fail_code(int code, const char *text)
{
    vow_next n;
    n.out.as.ptr = (void *)(uintptr_t)text;
    n.out.tag = (uintptr_t)(intptr_t)(code < 0 ? code : VOW_EINVAL);
    return n;
}

/* Inserts a future into the chain: the outcome of `f` becomes the outcome of
 * the step. The reference is moved: `return vow_follow(start_again(x));`. */
static inline vow_next vow_follow(vow_future *f)
{
    vow_next n;
    n.out.as.ptr = f;
    n.out.tag = VOW_TAG_FOLLOW;
    return n;
}

/* Passes the incoming value or error on, as a step without a handler does. */
static inline vow_next vow_pass(void)
{
    vow_next n;
    n.out.as.ptr = NULL;
    n.out.tag = VOW_TAG_PASS;
    return n;
}

VOW_END_DECLS

#endif
