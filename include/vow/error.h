/* SPDX-License-Identifier: MIT */
/* vow/error.h - error codes, and the error of a rejected promise.
 *
 * A code is an int: 0, or negative. Codes known to libuv have libuv's value;
 * codes of libvow start at -6001.
 *
 * Owner: counted. vow_error_new() returns a reference, which vow_reject(),
 * vow_fail() and kin move. A handler borrows the error; vow_error_ref() keeps
 * the error.
 * Threads: an error may be made on any thread, and then belongs, with all
 * causes, to one thread at a time.
 */
#ifndef VOW_ERROR_H
#define VOW_ERROR_H

#include "vow/common.h"

VOW_BEGIN_DECLS

typedef struct vow_loop vow_loop;
typedef struct vow_future vow_future;
typedef struct vow_deferred vow_deferred;
typedef struct vow_error vow_error;

/* clang-format off */
#define VOW_ERROR_MAP(X)                                                       \
    X(EINVAL, -22, "an argument is not allowed")                               \
    X(ENOMEM, -12, "out of memory")                                            \
    X(ECANCELED, -125, "canceled")                                             \
    X(ETIMEDOUT, -110, "the time limit passed")                                \
    X(EAGAIN, -11, "not now, try again")                                       \
    X(EBUSY, -16, "busy")                                                      \
    X(EIO, -5, "input or output failed")                                       \
    X(ENOTSUP, -95, "not supported")                                           \
    X(ENOENT, -2, "not there")                                                 \
    X(E2BIG, -7, "too big")                                                    \
    X(ENOSPC, -28, "no space left")                                            \
    X(EBROKEN, -6001, "the promise was dropped before it was settled")         \
    X(ECYCLE, -6002, "the promise would wait for itself")                      \
    X(EQUEUEFULL, -6003, "the queue is full")                                  \
    X(ENOFIBER, -6004, "await outside a fiber")                                \
    X(EALLFAILED, -6005, "all attempts or inputs failed")                      \
    X(ECLOSED, -6006, "closed")                                                \
    X(EOPEN, -6007, "the circuit breaker is open")                             \
    X(EDEADLK, -6008, "deadlock: the job would wait for itself")               \
    X(ELOST, -6009, "the lease was lost: another runner may do the work")      \
    X(ERETRY, -6010, "the runner was lost: ask again")                         \
    X(EUNSURE, -6011, "unsure: the step may or may not have happened")         \
    X(EDOUBT, -6012, "in doubt: the owner died, the work may have happened")   \
    X(ESTORE, -6013, "the store cannot be used")                               \
    X(EGAVEUP, -6014, "gave up: every runner of the work was lost")
/* clang-format on */

enum vow_error_code {
#define VOW_ERROR_ENUM(name, code, text) VOW_##name = (code),
    VOW_ERROR_MAP(VOW_ERROR_ENUM)
#undef VOW_ERROR_ENUM
};

/* Return the name ("ETIMEDOUT") and the text ("the time limit passed") of a
 * code, also of libuv's other codes; "EUNKNOWN" and "unknown error" for an
 * unknown code. Static texts. Since 0.1. */
VOW_API VOW_ANY_THREAD const char *vow_error_name(int code);
VOW_API VOW_ANY_THREAD const char *vow_error_text(int code);

/* Makes an error. `code` is negative (any other code becomes VOW_EINVAL).
 * `format` NULL: the message is the text of the code. `cause` is borrowed, may
 * be NULL. Never returns NULL: without memory, returns a constant error with
 * code VOW_ENOMEM. Since 0.1. */
#define vow_error_new(loop, code, ...)                                         \
    vow_error_new_at(VOW_HERE, (loop), (code), NULL, __VA_ARGS__)
#define vow_error_wrap(loop, code, cause, ...)                                 \
    vow_error_new_at(VOW_HERE, (loop), (code), (cause), __VA_ARGS__)
VOW_API VOW_ANY_THREAD VOW_MUST_USE VOW_NONNULL(2)
VOW_PRINTF(5, 6)
vow_error *vow_error_new_at(const char *site, vow_loop *loop, int code,
                            vow_error *cause, const char *format, ...);

VOW_API vow_error *vow_error_ref(vow_error *e);
VOW_API vow_error *vow_error_unref(vow_error *e); /* NULL */

/* Read an error. Texts and cause are borrowed. A NULL error reads as code 0,
 * empty texts and no cause. */
VOW_API int vow_error_code(const vow_error *e);
VOW_API const char *vow_error_message(const vow_error *e);
VOW_API const char *vow_error_site(const vow_error *e); /* "file.c:12" */
VOW_API vow_error *vow_error_cause(const vow_error *e);

/* Returns the first cause: follows vow_error_cause() to the end. */
VOW_API vow_error *vow_error_root(vow_error *e);

/* Return the number of gathered errors, and the error at an index (borrowed,
 * NULL beyond the end). vow_any() gathers in the order of the inputs,
 * vow_hedge() in the order of the attempts. Any other error has none. */
VOW_API size_t vow_error_count(const vow_error *e);
VOW_API vow_error *vow_error_at(const vow_error *e, size_t index);

/* Set and return the delay after which a server allows a retry, in
 * milliseconds: vow_retry() waits at least as long. 0: none was given. */
VOW_API void vow_error_set_retry_after_ms(vow_error *e, uint64_t ms);
VOW_API uint64_t vow_error_retry_after_ms(const vow_error *e);

/* Writes a line for people: "ETIMEDOUT: no answer (client.c:12), because EIO:
 * ...", at most `size` bytes with the final NUL. Returns the length of the
 * whole line, as snprintf does. */
VOW_API size_t vow_error_describe(const vow_error *e, char *text, size_t size);

static inline void vow_error_cleanup(vow_error **e)
{
    vow_error_unref(*e);
}

VOW_END_DECLS

#endif
