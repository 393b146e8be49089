/* SPDX-License-Identifier: MIT */
/* tls_memory_test.c - OpenSSL has its own memory: what if it gets none. */
#include "tls_rig.h"

#include <openssl/crypto.h>

enum { STEPS = 150 };

static _Thread_local bool counted; /* only the client's thread */
static uint64_t asked;
static uint64_t refused_at; /* 0: never */

static bool refused(void)
{
    return counted && ++asked == refused_at;
}

static void *refuse_malloc(size_t n, const char *file, int line)
{
    (void)file;
    (void)line;
    return refused() ? NULL : malloc(n);
}

static void *refuse_realloc(void *p, size_t n, const char *file, int line)
{
    (void)file;
    (void)line;
    return refused() ? NULL : realloc(p, n);
}

static void plain_free(void *p, const char *file, int line)
{
    (void)file;
    (void)line;
    free(p);
}

/* 0: it was told; else it worked. */
static size_t echo_once(const struct guard *g, const struct office *o)
{
    struct client c;
    struct vow__tls *tls = NULL;
    char why[256] = "";
    memset(&c, 0, sizeof(c));
    c.w = &c.own;
    world_open(c.w);
    counted = true;
    asked = 0;
    struct vow__tls_opts opts = {.ca_file = o->ca_file};
    int rc = vow__tls_new(c.w->loop, &opts, &tls, why, sizeof(why));
    CHECK(rc == 0 || rc == VOW_ENOMEM || why[0] != '\0');
    if (rc == 0) {
        CHECK_INT_EQ(
            client_try_open(&c, CLIENT_OPTS(.host = "127.0.0.1",
                                            .port = g->s.port, .tls = tls)),
            0);
        client_send(&c, "hello", 5);
        WAIT_UNTIL(&c, c.n == 5 || c.ended == 1);
        CHECK(c.ended == 0 || c.why[0] != '\0');
    }
    (void)vow__tls_unref(tls);
    counted = false;
    client_close(&c);
    return c.n;
}

TEST(tls_memory, without_memory_for_openssl_it_ends_and_says_so)
{
    struct office o;
    struct guard g;
    CHECK(CRYPTO_set_mem_functions(refuse_malloc, refuse_realloc, plain_free) ==
          1);
    office_open(&o);
    guard_open(&g, &o.server, secure_echo);
    guard_start(&g);
    CHECK_UINT_EQ(echo_once(&g, &o), 5);
    CHECK_UINT_EQ(echo_once(&g, &o), 5);
    uint64_t all = asked;
    uint64_t random = test_seed();
    size_t told = 0;
    for (int i = 0; i < STEPS; i++) {
        refused_at = 1 + test_random(&random) % all;
        told += echo_once(&g, &o) == 0;
    }
    refused_at = 0;
    CHECK_UINT_EQ(echo_once(&g, &o), 5);
    CHECK(told > STEPS / 4);
    guard_close(&g);
    office_close(&o);
}
