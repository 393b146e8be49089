/* SPDX-License-Identifier: MIT */
/* openssl.c - finding OpenSSL's functions. See openssl.h.
 *
 * THREADS  any; loaded once, and never let go.
 */
#define VOW__OPENSSL_TABLE
#include "store/net/openssl.h"

#include "vow/error.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void load(void);
static bool find(const char *name, void *ret_function);

struct vow__openssl vow__openssl;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *library;
static char trouble[256];

int vow__openssl_load(char *why, size_t why_size)
{
    (void)pthread_once(&once, load);
    if (trouble[0] == '\0')
        return 0;
    (void)snprintf(why, why_size, "TLS needs OpenSSL 3: %s", trouble);
    return VOW_ENOTSUP;
}

/* libssl brings libcrypto, whose functions are found through it. */
static void load(void)
{
    library = dlopen("libssl.so.3", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        (void)snprintf(trouble, sizeof(trouble), "%s", dlerror());
        return;
    }
#define FIND(name)                                                             \
    if (!find(#name, &vow__openssl.name))                                      \
        return;
    VOW__OPENSSL(FIND)
#undef FIND
}

static bool find(const char *name, void *ret_function)
{
    void *at = dlsym(library, name);
    if (at == NULL)
        (void)snprintf(trouble, sizeof(trouble), "%s is missing", name);
    memcpy(ret_function, &at, sizeof(at));
    return at != NULL;
}
