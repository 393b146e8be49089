/* SPDX-License-Identifier: MIT */
/* jansson.c - finding jansson's functions. See jansson.h.
 *
 * THREADS  any; loaded once, and never let go.
 */
#define VOW__JANSSON_TABLE
#include "store/net/jansson.h"

#include "store/net/library.h"
#include "vow/error.h"

#include <pthread.h>
#include <stdio.h>

static void load(void);

struct vow__jansson vow__jansson;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded;
static char trouble[256];

int vow__jansson_load(char *why, size_t why_size)
{
    (void)pthread_once(&once, load);
    if (loaded)
        return 0;
    (void)snprintf(why, why_size, "etcd needs jansson: %s", trouble);
    return VOW_ENOTSUP;
}

static void load(void)
{
#define SYMBOL(name) {#name, &vow__jansson.name},
    static const struct vow__symbol symbols[] = {VOW__JANSSON(SYMBOL)};
#undef SYMBOL
    loaded = vow__library_load("libjansson.so.4", symbols,
                               sizeof(symbols) / sizeof(symbols[0]), trouble,
                               sizeof(trouble));
}

/* A macro makes this vow__jansson_delete(), for json_decref(). */
void json_delete(json_t *json)
{
    vow__jansson.json_delete(json);
}
