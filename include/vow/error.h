/* SPDX-License-Identifier: MIT */
/* vow/error.h - codes, and the error a rejected promise carries.
 *
 * Codes are one int domain: 0, or negative. Those that libuv knows have
 * libuv's value; ours start at -6001.
 *
 * Owner: counted. vow_error_new() gives one reference, which vow_reject(),
 * vow_fail() and kin move in. A handler borrows the error it is called with;
 * vow_error_ref() keeps it.
 * Threads: an error may be made on any thread and then belongs, with all its
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
    X(EALLFAILED, -6005, "all of them failed")                                 \
    X(ECLOSED, -6006, "closed")                                                \
    X(EOPEN, -6007, "the circuit breaker is open")                             \
    X(EDEADLK, -6008, "it would wait for what waits for it")                   \
    X(ELOST, -6009, "the lease was lost: another may do the work")             \
    X(ERETRY, -6010, "the one who did the work was lost; ask again")           \
    X(EUNSURE, -6011, "it is not known whether the step took place")           \
    X(EDOUBT, -6012, "in doubt: its owner died, and it may have happened")     \
    X(ESTORE, -6013, "the store cannot be used")                               \
    X(EGAVEUP, -6014, "all who did the work were lost")
/* clang-format on */

enum vow_error_code {
#define VOW_ERROR_ENUM(name, code, text) VOW_##name = (code),
    VOW_ERROR_MAP(VOW_ERROR_ENUM)
#undef VOW_ERROR_ENUM
};

/* "ETIMEDOUT" and "the time limit passed" for a code; also for libuv's other
 * codes. An unknown code gives "EUNKNOWN". Static texts. Since 0.1. */
VOW_API VOW_ANY_THREAD const char *vow_error_name(int code);
VOW_API VOW_ANY_THREAD const char *vow_error_text(int code);

/* Make an error. `code` is negative (anything else becomes VOW_EINVAL). The
 * message may be NULL: then it is the code's text. Never NULL: without memory
 * it is the loop's ready-made VOW_ENOMEM error. `cause` is borrowed, may be
 * NULL. Since 0.1. */
#define vow_error_new(loop, code, ...)                                         \
    vow_error_new_at(VOW_HERE, (loop), (code), NULL, __VA_ARGS__)
#define vow_error_wrap(loop, code, cause, ...)                                 \
    vow_error_new_at(VOW_HERE, (loop), (code), (cause), __VA_ARGS__)
VOW_API VOW_ANY_THREAD VOW_MUST_USE VOW_NONNULL(2)
VOW_PRINTF(5, 6)
vow_error *vow_error_new_at(const char *site, vow_loop *loop, int code,
                            vow_error *cause, const char *format, ...);

VOW_API vow_error *vow_error_ref(vow_error *e);
VOW_API vow_error *vow_error_unref(vow_error *e); /* always NULL */

/* Read an error. The texts and the cause are borrowed. NULL reads as code 0,
 * an empty text and no cause. */
VOW_API int vow_error_code(const vow_error *e);
VOW_API const char *vow_error_message(const vow_error *e);
VOW_API const char *vow_error_site(const vow_error *e); /* "file.c:12" */
VOW_API vow_error *vow_error_cause(const vow_error *e);

/* The first cause: follows vow_error_cause() to its end. */
VOW_API vow_error *vow_error_root(vow_error *e);

/* The errors that vow_any() gathered, in the order of its inputs; 0 for every
 * other error. vow_error_at() is borrowed, NULL beyond the end. */
VOW_API size_t vow_error_count(const vow_error *e);
VOW_API vow_error *vow_error_at(const vow_error *e, size_t index);

/* A server's "try again in so many milliseconds": vow_retry() waits at least
 * so long. 0: none was given. */
VOW_API void vow_error_set_retry_after_ms(vow_error *e, uint64_t ms);
VOW_API uint64_t vow_error_retry_after_ms(const vow_error *e);

/* One line for people: "ETIMEDOUT: no answer (client.c:12), because EIO: ...".
 * Writes at most `size` bytes with the final NUL and returns the length the
 * whole line has, as snprintf does. */
VOW_API size_t vow_error_describe(const vow_error *e, char *text, size_t size);

static inline void vow_error_cleanup(vow_error **e)
{
    vow_error_unref(*e);
}

VOW_END_DECLS

#endif
