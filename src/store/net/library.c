/* SPDX-License-Identifier: MIT */
/* library.c - loading a library by its name.
 *
 * WHY   To link OpenSSL or jansson takes time of every start, and most
 *       programs never need them.
 * HOW   dlopen() and dlsym(). Names are not added to those of the program. A
 *       library whose functions are not all there is as good as absent.
 * THREADS  any; who calls this sees to it that a table is filled once.
 */
#include "store/net/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

bool vow__library_load(const char *file, const struct vow__symbol *symbols,
                       size_t n, char *trouble, size_t trouble_size)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        (void)snprintf(trouble, trouble_size, "%s", dlerror());
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        void *at = dlsym(library, symbols[i].name);
        if (at == NULL) {
            (void)snprintf(trouble, trouble_size, "%s is missing in %s",
                           symbols[i].name, file);
            return false;
        }
        memcpy(symbols[i].ret_function, &at, sizeof(at));
    }
    return true;
}
