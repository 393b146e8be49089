/* SPDX-License-Identifier: MIT */
/* curl.c - finding libcurl's functions. See curl.h.
 *
 * LIMITS  since 7.87 a name that is being looked up can be let go without
 *       waiting for its answer (CURLOPT_QUICK_EXIT). One that looks names up
 *       while the loop waits is refused.
 * THREADS  any; loaded once, and never let go.
 */
#define VOW__CURL_TABLE
#include "store/net/curl.h"

#include "store/net/library.h"
#include "vow/error.h"

#include <pthread.h>
#include <stdio.h>

enum { OLDEST = 0x075700 };

static void load(void);
static bool start(void);

struct vow__curl vow__curl;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded;
static char trouble[256];

int vow__curl_load(char *why, size_t why_size)
{
    (void)pthread_once(&once, load);
    if (loaded)
        return 0;
    (void)snprintf(why, why_size, "etcd needs libcurl 7.87 or newer: %s",
                   trouble);
    return VOW_ENOTSUP;
}

static void load(void)
{
#define SYMBOL(name) {#name, &vow__curl.name},
    static const struct vow__symbol symbols[] = {VOW__CURL(SYMBOL)};
#undef SYMBOL
    loaded = vow__library_load("libcurl.so.4", symbols,
                               sizeof(symbols) / sizeof(symbols[0]), trouble,
                               sizeof(trouble)) &&
             start();
}

static bool start(void)
{
    const curl_version_info_data *is =
        vow__curl.curl_version_info(CURLVERSION_NOW);
    if (is->version_num < OLDEST)
        (void)snprintf(trouble, sizeof(trouble), "this is %s", is->version);
    else if ((is->features & CURL_VERSION_ASYNCHDNS) == 0)
        (void)snprintf(trouble, sizeof(trouble),
                       "this one waits while it looks names up");
    else if (vow__curl.curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        (void)snprintf(trouble, sizeof(trouble), "it cannot be started");
    else
        return true;
    return false;
}
