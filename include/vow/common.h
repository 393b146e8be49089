/* SPDX-License-Identifier: MIT */
/* vow/common.h - version, attributes, and the small macros every header uses.
 *
 * Options. A function with many settings takes a pointer to a struct of
 * options. The first field, `size`, is the size of the struct. A macro in
 * capitals sets `size` and takes designated fields: VOW_LOOP_OPTS(.seed = 7).
 * A zero field means the default; NULL means all defaults; the struct is
 * copied. A `size` of another version is refused with VOW_EINVAL. C++ fills the
 * struct by hand: vow_loop_opts o{}; o.size = sizeof o;
 *
 * Ownership. A handle passed as an argument is borrowed; a returned handle is
 * owned by the caller. A payload (vow_value, vow_error) is moved. The vow_next
 * returned by a step is moved as a whole. An unref function accepts NULL and
 * returns NULL.
 */
#ifndef VOW_COMMON_H
#define VOW_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VOW_VERSION_MAJOR 0
#define VOW_VERSION_MINOR 1
#define VOW_VERSION_PATCH 0
#define VOW_VERSION "0.1.0"

#ifdef __cplusplus
#define VOW_BEGIN_DECLS extern "C" {
#define VOW_END_DECLS }
#else
#define VOW_BEGIN_DECLS
#define VOW_END_DECLS
#endif

#if defined(__GNUC__)
#define VOW_API __attribute__((visibility("default")))
#define VOW_MUST_USE __attribute__((warn_unused_result))
#define VOW_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define VOW_CLEANUP(fn) __attribute__((cleanup(fn), unused))
#else
#define VOW_API
#define VOW_MUST_USE
#define VOW_PRINTF(fmt, args)
#define VOW_CLEANUP(fn)
#endif

/* Arguments that must not be NULL. Empty when libvow itself is compiled:
 * otherwise the optimizer would delete the library's own checks. */
#if defined(__GNUC__) && !defined(VOW_BUILDING)
#define VOW_NONNULL(...) __attribute__((nonnull(__VA_ARGS__)))
#else
#define VOW_NONNULL(...)
#endif

/* The thread allowed to call a function: documentation for the reader, asserted
 * in debug builds. LOOP: the thread of the loop (vow/loop.h). ANY: every
 * thread. */
#define VOW_LOOP_THREAD
#define VOW_ANY_THREAD

/* The creation site of a promise or an error, as a literal: "file.c:123". */
#define VOW_STRING_(x) #x
#define VOW_STRING(x) VOW_STRING_(x)
#define VOW_HERE __FILE__ ":" VOW_STRING(__LINE__)

/* VOW_AUTO(vow_future) f = vow_delay(loop, 5); drops the reference at the end
 * of the block, after the value of a `return` was computed. */
#define VOW_AUTO(type) VOW_CLEANUP(type##_cleanup) type *

VOW_BEGIN_DECLS

/* The two pointers of an intrusive list in the caller's memory. Private to the
 * library. */
typedef struct vow_link {
    struct vow_link *next, *prev;
} vow_link;

/* Returns the version of the running library: "0.1.0". Since 0.1. */
VOW_API VOW_ANY_THREAD const char *vow_version(void);

VOW_END_DECLS

#endif
