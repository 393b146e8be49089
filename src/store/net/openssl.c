/* SPDX-License-Identifier: MIT */
/* openssl.c - finding OpenSSL's functions. See openssl.h.
 *
 * THREADS  any; loaded once, and never let go.
 */
#define VOW__OPENSSL_TABLE
#include "store/net/openssl.h"

#include "store/net/library.h"
#include "vow/error.h"

#include <pthread.h>
#include <stdio.h>

static void load(void);

struct vow__openssl vow__openssl;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded;
static char trouble[256];

int vow__openssl_load(char *why, size_t why_size)
{
    (void)pthread_once(&once, load);
    if (loaded)
        return 0;
    (void)snprintf(why, why_size, "TLS needs OpenSSL 3: %s", trouble);
    return VOW_ENOTSUP;
}

/* libssl brings libcrypto, whose functions are found through it. */
static void load(void)
{
#define SYMBOL(name) {#name, &vow__openssl.name},
    static const struct vow__symbol symbols[] = {VOW__OPENSSL(SYMBOL)};
#undef SYMBOL
    loaded = vow__library_load("libssl.so.3", symbols,
                               sizeof(symbols) / sizeof(symbols[0]), trouble,
                               sizeof(trouble));
}
