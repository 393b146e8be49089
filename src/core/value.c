/* SPDX-License-Identifier: MIT */
/* value.c - reading futures, destroying values, and making errors and byte
 * buffers with the loop's allocator.
 *
 * THREADS  making errors and buffers: any. Other functions: loop thread only.
 */
#include "base/bytes.h"
#include "core/promise_internal.h"

void vow_value_drop(vow_value v)
{
    switch (v.tag) {
    case VOW_NOTHING:
    case VOW_INT:
    case VOW_REAL:
    case VOW_PTR:
    case VOW_OWNED:
        break;
    case VOW_BYTES:
        vow_bytes_unref(v.as.ptr);
        break;
    case VOW_LIST:
        vow__core_value_list_drop(v.as.ptr);
        break;
    case VOW__TAG_ALIAS:
        vow__core_future_unref(v.as.ptr);
        break;
    default:
        ((vow_drop_fn)v.tag)(v.as.ptr);
        break;
    }
}

enum vow_state vow_state_of(const vow_future *f)
{
    VOW__ASSERT_THREAD_OF(f, vow__core_future_loop(f));
    return (enum vow_state)f->node.state;
}

vow_value vow_get(const vow_future *f)
{
    VOW__ASSERT_THREAD_OF(f, vow__core_future_loop(f));
    return f->node.state == VOW_FULFILLED ? *vow__core_future_value(f)
                                          : vow_nothing();
}

vow_error *vow_error_of(vow_future *f)
{
    VOW__ASSERT_THREAD_OF(f, vow__core_future_loop(f));
    if (f->node.state != VOW_REJECTED)
        return NULL;
    f->node.handled = 1;
    return vow__core_future_error(f);
}

vow_loop *vow_future_loop(const vow_future *f)
{
    return vow__core_future_loop(f);
}

const char *vow_future_site(const vow_future *f)
{
    return f->site == NULL ? "" : f->site;
}

vow_error *vow_error_new_at(const char *site, vow_loop *loop, int code,
                            vow_error *cause, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vow_error *e =
        vow__error_make(&loop->alloc, site, code, cause, format, args);
    va_end(args);
    return e != NULL ? e : vow__error_static(VOW_ENOMEM);
}

/* Makes an error of core. Without memory, returns the constant error of the
 * same code, so that VOW_EBROKEN stays VOW_EBROKEN. */
vow_error *vow__core_error_new(vow_loop *loop, const char *site, int code,
                               vow_error *cause, const char *text)
{
    return vow__core_error_or(vow_error_new_at(site, loop, code, cause,
                                               text == NULL ? NULL : "%s",
                                               text),
                              code);
}

vow_error *vow__core_error_or(vow_error *e, int code)
{
    return e == vow__error_static(VOW_ENOMEM) ? vow__error_static(code) : e;
}

int vow_bytes_new(vow_loop *loop, const void *data, size_t size,
                  vow_bytes **ret_bytes)
{
    return vow__bytes_make(&loop->alloc, data, size, ret_bytes);
}
