/* SPDX-License-Identifier: MIT */
/* error.h - the inside of vow_error. */
#ifndef VOW_BASE_ERROR_H
#define VOW_BASE_ERROR_H

#include "base/alloc.h"
#include "vow/error.h"

#include <stdarg.h>

/* NULL without memory. `format` may be NULL. `cause` is borrowed. */
vow_error *vow__error_make(const struct vow_alloc *a, const char *site,
                           int code, vow_error *cause, const char *format,
                           va_list args);

/* An error with room for `n` gathered ones, all NULL. NULL without memory. */
vow_error *vow__error_make_list(const struct vow_alloc *a, const char *site,
                                int code, size_t n);
void vow__error_set_at(vow_error *list, size_t index, vow_error *borrowed);
void vow__error_set_cause(vow_error *e, vow_error *borrowed);

/* A constant error of this code: for when there is no memory. Counting and
 * setting do nothing to it. Unknown codes give VOW_ENOMEM's. */
vow_error *vow__error_static(int code);

/* True for the first call on this error: an error is told once. */
bool vow__error_tell(vow_error *e);

#endif
