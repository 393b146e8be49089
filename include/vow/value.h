/* SPDX-License-Identifier: MIT */
/* vow/value.h - the value of a promise: nothing, a number, a pointer, bytes, or
 * a list of outcomes.
 *
 * Owner: a value is moved into the promise; a reader borrows the value while
 * the callback runs or while holding the future. vow_own() moves a pointer with
 * a destructor, which runs once, on the loop's thread. Byte buffers are
 * counted, so many waiters share a result without a copy.
 * Threads: a value belongs to one thread at a time. Byte buffers may be
 * referenced and read from any thread.
 */
#ifndef VOW_VALUE_H
#define VOW_VALUE_H

#include "vow/error.h"

VOW_BEGIN_DECLS

typedef struct vow_bytes vow_bytes;
typedef void (*vow_drop_fn)(void *ptr);

enum vow_kind {
    VOW_NOTHING = 0,
    VOW_INT = 1,
    VOW_REAL = 2,
    VOW_PTR = 3,   /* a pointer not owned by the promise */
    VOW_OWNED = 4, /* a pointer with a destructor */
    VOW_BYTES = 5,
    VOW_LIST = 6 /* from vow_all() and vow_all_settled() */
};

/* Two machine words, passed in registers. Made and read by the functions
 * below. */
typedef struct vow_value {
    union {
        void *ptr;
        int64_t num;
        double real;
    } as;
    uintptr_t tag; /* an enum vow_kind, or a destructor's address */
} vow_value;

static inline vow_value vow_nothing(void)
{
    vow_value v;
    v.as.num = 0;
    v.tag = VOW_NOTHING;
    return v;
}

static inline vow_value vow_int(int64_t num)
{
    vow_value v;
    v.as.num = num;
    v.tag = VOW_INT;
    return v;
}

static inline vow_value vow_real(double real)
{
    vow_value v;
    v.as.real = real;
    v.tag = VOW_REAL;
    return v;
}

/* Returns a value of a pointer, which must outlive the promise: a literal, an
 * object of yours. */
static inline vow_value vow_ptr(const void *ptr)
{
    vow_value v;
    v.as.ptr = (void *)(uintptr_t)ptr;
    v.tag = VOW_PTR;
    return v;
}

/* Returns a value of a pointer owned by the promise from now on; `drop` frees
 * the pointer. With `drop` NULL, as vow_ptr(). */
static inline vow_value vow_own(void *ptr, vow_drop_fn drop)
{
    vow_value v;
    v.as.ptr = ptr;
    v.tag = drop == NULL ? (uintptr_t)VOW_PTR : (uintptr_t)drop;
    return v;
}

static inline enum vow_kind vow_kind_of(vow_value v)
{
    return v.tag > VOW_LIST || v.tag == VOW_OWNED ? VOW_OWNED
                                                  : (enum vow_kind)v.tag;
}

/* Read a value; a value of another kind reads as 0 or NULL. */
static inline int64_t vow_as_int(vow_value v)
{
    return v.tag == VOW_INT ? v.as.num : 0;
}

static inline double vow_as_real(vow_value v)
{
    return v.tag == VOW_REAL ? v.as.real : 0;
}

static inline void *vow_as_ptr(vow_value v)
{
    enum vow_kind kind = vow_kind_of(v);
    return kind == VOW_PTR || kind == VOW_OWNED ? v.as.ptr : NULL;
}

/* Destroys a value that was not moved. */
VOW_API void vow_value_drop(vow_value v);

/* Makes a counted buffer with a copy of `size` bytes at `data` (NULL: zeros).
 * The contents may be written until the buffer is shared. Returns 0 or
 * VOW_ENOMEM; *ret_bytes is written only on success. Since 0.1. */
VOW_API VOW_ANY_THREAD VOW_MUST_USE VOW_NONNULL(1, 4)
int vow_bytes_new(vow_loop *loop, const void *data, size_t size,
                  vow_bytes **ret_bytes);
VOW_API VOW_ANY_THREAD vow_bytes *vow_bytes_ref(vow_bytes *b);
VOW_API VOW_ANY_THREAD vow_bytes *vow_bytes_unref(vow_bytes *b); /* NULL */
VOW_API VOW_ANY_THREAD unsigned char *vow_bytes_data(vow_bytes *b);
VOW_API VOW_ANY_THREAD size_t vow_bytes_size(const vow_bytes *b);

/* Moves the caller's reference into a value. NULL gives vow_nothing(). */
static inline vow_value vow_bytes_value(vow_bytes *b)
{
    vow_value v;
    v.as.ptr = b;
    v.tag = b == NULL ? VOW_NOTHING : VOW_BYTES;
    return v;
}

static inline vow_bytes *vow_as_bytes(vow_value v)
{
    return v.tag == VOW_BYTES ? (vow_bytes *)v.as.ptr : NULL;
}

/* Read a list of settled futures, in input order. vow_list_at() returns a
 * future, borrowed, NULL beyond the end; vow_list_get() returns the value of
 * the future, nothing if rejected. */
VOW_API size_t vow_list_size(vow_value list);
VOW_API vow_future *vow_list_at(vow_value list, size_t index);
VOW_API vow_value vow_list_get(vow_value list, size_t index);

/* Makes a list of settled futures of this loop. The references are moved, also
 * on failure. Returns 0, VOW_EINVAL (a future is pending, NULL or of another
 * loop) or VOW_ENOMEM. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 4)
int vow_list_new(vow_loop *loop, vow_future *const *futures, size_t n,
                 vow_value *ret_list);

static inline void vow_bytes_cleanup(vow_bytes **b)
{
    vow_bytes_unref(*b);
}

VOW_END_DECLS

#endif
