/* SPDX-License-Identifier: MIT */
/* redis_server_rig.h - the rig of tests/contract on servers that a test hurts:
 * how they are started and addressed is the test's affair. */
#ifndef TEST_REDIS_SERVER_RIG_H
#define TEST_REDIS_SERVER_RIG_H

#include "contract.h"
#include "redis_kit.h"
#include "vow/store_redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hurt {
    struct redis_server server;
    char url[256];
    vow_redis_opts opts;
};

/* `args` and `acl` (after "ACL SETUSER vow") may be NULL. */
struct hurt_setup {
    const char *const *args;
    const char *const *acl;
    const char *url_format; /* of the port; NULL: redis://127.0.0.1:%u */
    const char *password;
    uint64_t timeout_ms; /* 0: longer than any pause of a busy machine */
};
static struct hurt_setup hurt_setup;

static inline void hurt_acl(struct redis_server *s)
{
    for (size_t i = 0; hurt_setup.acl[i] != NULL; i++)
        CHECK_STR_EQ(
            redis_say(s, "ACL", "SETUSER", "vow", hurt_setup.acl[i], NULL),
            "OK");
}

static inline void hurt_begin(struct rig *r)
{
    struct hurt *h = malloc(sizeof(*h));
    CHECK(h != NULL);
    redis_start(&h->server, hurt_setup.args);
    if (hurt_setup.acl != NULL)
        hurt_acl(&h->server);
    const char *format = hurt_setup.url_format != NULL ? hurt_setup.url_format
                                                       : "redis://127.0.0.1:%u";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(h->url, sizeof(h->url), format, h->server.port);
#pragma GCC diagnostic pop
    h->opts = *VOW_REDIS_OPTS(.value_max = RIG_VALUE_MAX,
                              .password = hurt_setup.password,
                              .timeout_ms = hurt_setup.timeout_ms);
    if (h->opts.timeout_ms == 0)
        h->opts.timeout_ms = 60000;
    r->state = h;
}

static inline vow_store *hurt_open(struct rig *r)
{
    struct hurt *h = r->state;
    VOW_AUTO(vow_future)
    opened = vow_store_redis_open(r->world.loop, h->url, &h->opts);
    if (vow_state_of(opened) != VOW_FULFILLED)
        FAIL("%s", vow_error_message(vow_error_of(opened)));
    return vow_as_ptr(vow_get(opened));
}

static inline void hurt_end(struct rig *r)
{
    struct hurt *h = r->state;
    redis_stop(&h->server);
    free(h);
}

static const struct rig_store rig_hurt = {.name = "redis",
                                          .real_time = true,
                                          .begin = hurt_begin,
                                          .open = hurt_open,
                                          .end = hurt_end};

/* HURT(group, name, .args = ...) { uses r and s } */
#define HURT(g, n, ...)                                                        \
    static void hurt_##g##_##n(struct rig *r, struct redis_server *s);         \
    static void hurt_body_##g##_##n(struct rig *r)                             \
    {                                                                          \
        hurt_##g##_##n(r, &((struct hurt *)r->state)->server);                 \
    }                                                                          \
    TEST(g, n)                                                                 \
    {                                                                          \
        hurt_setup = (struct hurt_setup){__VA_ARGS__};                         \
        contract_run(&rig_hurt, hurt_body_##g##_##n);                          \
    }                                                                          \
    static void hurt_##g##_##n(struct rig *r, struct redis_server *s)

/* Claims until one is answered without an error; the test fails after a minute
 * and more. */
static inline struct rig_answer claim_at_last(struct rig *r, size_t i,
                                              const vow_claim_request *ask)
{
    uint64_t ends_us = rig_now_us(r) + 90 * 1000 * 1000;
    while (rig_now_us(r) < ends_us) {
        struct rig_answer a = rig_claim(r, i, ask);
        if (a.code == 0)
            return a;
        CHECK(a.code == VOW_ESTORE || a.code == VOW_EUNSURE ||
              a.code == VOW_EAGAIN);
        rig_advance_ms(r, 20);
    }
    FAIL("%s", r->at[i]->ops->explain(r->at[i]));
}

#define WHY(r, i) ((r)->at[i]->ops->explain((r)->at[i]))
#define CHECK_HAS(text, part)                                                  \
    (strstr((text), (part)) != NULL                                            \
         ? (void)0                                                             \
         : FAIL("no \"%s\" in \"%s\"", (part), (text)))

#endif
