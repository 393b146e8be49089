/* SPDX-License-Identifier: MIT */
/* library.h - functions of a library that is loaded when it is first needed.
 * See library.c.
 */
#ifndef VOW_STORE_NET_LIBRARY_H
#define VOW_STORE_NET_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

struct vow__symbol {
    const char *name;
    void *ret_function; /* a pointer to a pointer to a function */
};

/* Load it and find all of them; it is never let go. False: what is missing is
 * in `trouble`. */
bool vow__library_load(const char *file, const struct vow__symbol *symbols,
                       size_t n, char *trouble, size_t trouble_size);

#endif
