/* SPDX-License-Identifier: MIT */
/* tls_test.c - bytes by TLS: whom it talks to, and how it ends.
 */
#include "fault.h"
#include "tls_rig.h"

#include "store/net/stream_internal.h"

enum { MEGABYTE = 1 << 20 };

static void check_echo(struct visitor *v)
{
    client_send(&v->c, "hello ", 6); /* before it is open */
    WAIT_UNTIL(&v->c, v->c.opened == 1 || v->c.ended == 1);
    CHECK_STR_EQ(v->c.why, "");
    client_send(&v->c, "again", 5);
    WAIT_UNTIL(&v->c, v->c.n == 11 || v->c.ended == 1);
    CHECK_STR_EQ(v->c.why, "");
    CHECK_MEM_EQ(v->c.got, "hello again", 11);
}

/* ---- talking ------------------------------------------------------------ */

static void check_version(int version)
{
    struct office o;
    struct guard g;
    struct visitor v;
    office_open(&o);
    guard_open(&g, &o.server, secure_echo);
    CHECK(SSL_CTX_set_max_proto_version(g.ctx, version) == 1);
    guard_start(&g);
    visitor_open_to(&v, &g, &o, "redis.test");
    check_echo(&v);
    client_close(&v.c);
    guard_close(&g);
    CHECK_INT_EQ(g.version, version);
    CHECK_STR_EQ(g.asked, "redis.test");
    CHECK(g.said_bye);
    office_close(&o);
}

TEST(tls, bytes_go_and_come)
{
    check_version(TLS1_3_VERSION);
}

TEST(tls, the_oldest_version_that_is_allowed_works)
{
    check_version(TLS1_2_VERSION);
}

/* With the certificate's address, which is not asked for by name. */
TEST(tls, a_server_may_be_known_by_its_address)
{
    struct office o;
    struct guard g;
    struct visitor v;
    office_open(&o);
    guard_open(&g, &o.server, secure_echo);
    guard_start(&g);
    visitor_open_to(&v, &g, &o, NULL);
    check_echo(&v);
    client_close(&v.c);
    visitor_open_to(&v, &g, &o, "::1");
    check_echo(&v);
    client_close(&v.c);
    guard_close(&g);
    CHECK_STR_EQ(g.asked, "");
    office_close(&o);
}

TEST(tls, names_match_as_certificates_say)
{
    static const char *const names[] = {"redis.test", "redis.test.",
                                        "REDIS.test", "a.wild.test"};
    struct office o;
    office_open(&o);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct guard g;
        struct visitor v;
        guard_open(&g, &o.server, secure_echo);
        guard_start(&g);
        visitor_open_to(&v, &g, &o, names[i]);
        check_echo(&v);
        client_close(&v.c);
        guard_close(&g);
        CHECK_STR_EQ(g.asked, i == 1 ? "redis.test" : names[i]);
    }
    office_close(&o);
}

TEST(tls, many_bytes_arrive_whole_and_in_order)
{
    const size_t n = 12 * (size_t)MEGABYTE;
    struct office o;
    struct guard g;
    struct visitor v;
    uint64_t random = 1;
    char *bytes = malloc(n);
    CHECK(bytes != NULL);
    for (size_t i = 0; i < n; i += 8) {
        uint64_t x = test_random(&random);
        memcpy(bytes + i, &x, 8);
    }
    office_open(&o);
    guard_open(&g, &o.server, secure_echo);
    guard_start(&g);
    visitor_open_to(&v, &g, &o, NULL);
    for (size_t at = 0, part = 1; at < n; at += part) {
        part = part * 3 % 1000003;
        part = part < n - at ? part : n - at;
        client_send(&v.c, bytes + at, part);
        if (part % 7 == 0)
            client_turn(&v.c);
    }
    WAIT_UNTIL(&v.c, v.c.n == n || v.c.ended == 1);
    CHECK_STR_EQ(v.c.why, "");
    CHECK_MEM_EQ(v.c.got, bytes, n);
    free(bytes);
    client_close(&v.c);
    guard_close(&g);
    office_close(&o);
}

/* The server wants new keys now and then, from both. */
static void talk_new_keys(struct guard *g, SSL *ssl)
{
    char bytes[1000];
    int n;
    (void)g;
    while ((n = SSL_read(ssl, bytes, sizeof(bytes))) > 0) {
        CHECK(SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED) == 1);
        if (SSL_write(ssl, bytes, n) != n)
            return;
    }
}

TEST(tls, new_keys_are_agreed_on_between)
{
    struct office o;
    struct guard g;
    struct visitor v;
    office_open(&o);
    guard_open(&g, &o.server, talk_new_keys);
    guard_start(&g);
    visitor_open_to(&v, &g, &o, NULL);
    for (size_t i = 1; i <= 100; i++) {
        client_send(&v.c, "0123456789", 10);
        WAIT_UNTIL(&v.c, v.c.n == 10 * i || v.c.ended == 1);
        CHECK_STR_EQ(v.c.why, "");
    }
    client_close(&v.c);
    guard_close(&g);
    office_close(&o);
}

TEST(tls, a_server_of_a_local_socket_has_a_name)
{
    struct office o;
    struct guard g;
    struct visitor v;
    office_open(&o);
    guard_open(&g, &o.server, secure_echo);
    server_listen_local(&g.s);
    server_start(&g.s, guard_talk);
    struct vow__tls_opts tls = {.ca_file = o.ca_file};
    visitor_open(&v, CLIENT_OPTS(.path = g.s.path, .server_name = "redis.test"),
                 &tls);
    check_echo(&v);
    client_close(&v.c);
    visitor_open(&v, CLIENT_OPTS(.path = g.s.path), &tls);
    WAIT_UNTIL(&v.c, v.c.ended == 1);
    CHECK_INT_EQ(v.c.code, VOW_EINVAL);
    CHECK(strstr(v.c.why, "its name in the certificate is not known"));
    client_close(&v.c);
    guard_close(&g);
    office_close(&o);
}

/* ---- who we are --------------------------------------------------------- */

TEST(tls, a_server_may_want_to_know_us)
{
    struct office o;
    struct guard g;
    struct visitor v;
    office_open(&o);
    guard_open(&g, &o.server, secure_echo);
    guard_demand(&g, &o.ca);
    guard_start(&g);
    for (int apart = 0; apart < 2; apart++) {
        struct vow__tls_opts tls = {.ca_file = o.ca_file,
                                    .cert_file =
                                        apart ? o.cert_file : o.both_file,
                                    .key_file = apart ? o.key_file : NULL};
        visitor_open(&v, CLIENT_OPTS(.host = "127.0.0.1", .port = g.s.port),
                     &tls);
        check_echo(&v);
        client_close(&v.c);
    }
    guard_close(&g);
    CHECK_STR_EQ(g.client, "client");
    office_close(&o);
}

/* TLS 1.3 has told us that it is open before the server has looked. */
static void check_unknown(int version, bool shown, const char *why)
{
    struct office o;
    struct guard g;
    struct visitor v;
    office_open(&o);
    struct paper stranger = PAPER(.name = "stranger");
    office_write(o.other_file, &stranger, true, true);
    guard_open(&g, &o.server, secure_echo);
    guard_demand(&g, &o.ca);
    CHECK(SSL_CTX_set_max_proto_version(g.ctx, version) == 1);
    guard_start(&g);
    struct vow__tls_opts tls = {.ca_file = o.ca_file,
                                .cert_file = shown ? o.other_file : NULL};
    visitor_open(&v, CLIENT_OPTS(.host = "127.0.0.1", .port = g.s.port), &tls);
    WAIT_UNTIL(&v.c, v.c.ended == 1);
    CHECK_INT_EQ(v.c.code, UV_EPROTO);
    CHECK_WHY(&v.c, &g.s, why);
    client_close(&v.c);
    guard_close(&g);
    CHECK(g.failed);
    paper_free(&stranger);
    office_close(&o);
}

#define SERVER "127.0.0.1:%u "

TEST(tls, a_server_that_wants_to_know_us_is_told)
{
    check_unknown(TLS1_3_VERSION, false, SERVER "wants a certificate of ours");
    check_unknown(TLS1_2_VERSION, false,
                  SERVER "does not agree on TLS; perhaps it wants a "
                         "certificate of ours");
}

TEST(tls, a_server_that_does_not_trust_us_is_told)
{
    check_unknown(TLS1_3_VERSION, true,
                  SERVER "does not trust our certificate");
    check_unknown(TLS1_2_VERSION, true,
                  SERVER "does not trust our certificate");
}

/* What a server that looks closer says, by the number of its alert. */
static int on_name(SSL *ssl, int *ret_alert, void *user)
{
    (void)ssl;
    *ret_alert = *(int *)user;
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

TEST(tls, what_a_server_objects_to_is_told)
{
    static const struct {
        int alert;
        const char *why;
    } all[] = {
        {SSL_AD_UNRECOGNIZED_NAME,
         SERVER "does not know the name that it was asked for"},
        {SSL_AD_CERTIFICATE_EXPIRED,
         SERVER "says that our certificate has expired"},
        {SSL_AD_CERTIFICATE_REVOKED,
         SERVER "says that our certificate was revoked"},
        {SSL_AD_ACCESS_DENIED, SERVER "does not trust our certificate"},
        {SSL_AD_PROTOCOL_VERSION, SERVER "speaks no TLS 1.2 or newer"},
        {SSL_AD_INTERNAL_ERROR,
         "127.0.0.1:%u: TLS failed: tlsv1 alert internal error"},
    };
    struct office o;
    struct guard g;
    struct visitor v;
    int alert = 0;
    office_open(&o);
    guard_open(&g, &o.server, secure_echo);
    SSL_CTX_set_tlsext_servername_callback(g.ctx, on_name);
    SSL_CTX_set_tlsext_servername_arg(g.ctx, &alert);
    guard_start(&g);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        alert = all[i].alert;
        visitor_open_to(&v, &g, &o, "redis.test");
        WAIT_UNTIL(&v.c, v.c.ended == 1);
        CHECK_INT_EQ(v.c.opened, 0);
        CHECK_INT_EQ(v.c.code, UV_EPROTO);
        CHECK_WHY(&v.c, &g.s, all[i].why);
        client_close(&v.c);
    }
    guard_close(&g);
    office_close(&o);
}

/* ---- ends --------------------------------------------------------------- */

static void secure_bye(struct guard *g, SSL *ssl)
{
    (void)g;
    (void)SSL_write(ssl, "bye", 3); /* who closes at once does not hear it */
    (void)SSL_shutdown(ssl);
}

static void secure_cut(struct guard *g, SSL *ssl)
{
    (void)g;
    CHECK(SSL_write(ssl, "bye", 3) == 3);
}

/* Who cuts the line gains nothing: values say how long they are. */
TEST(tls, a_server_that_closes_is_named)
{
    struct office o;
    struct guard g;
    struct visitor v;
    office_open(&o);
    for (int cut = 0; cut < 2; cut++) {
        guard_open(&g, &o.server, cut ? secure_cut : secure_bye);
        guard_start(&g);
        visitor_open_to(&v, &g, &o, NULL);
        WAIT_UNTIL(&v.c, v.c.ended == 1);
        CHECK_INT_EQ(v.c.code, UV_EOF);
        CHECK_WHY(&v.c, &g.s, SERVER "closed the connection");
        CHECK_UINT_EQ(v.c.n, 3);
        client_close(&v.c);
        guard_close(&g);
    }
    office_close(&o);
}

static void talk_garbage(struct guard *g, SSL *ssl)
{
    char byte;
    (void)g;
    CHECK(SSL_write(ssl, "fine", 4) == 4);
    CHECK(SSL_read(ssl, &byte, 1) == 1);
    (void)send(SSL_get_fd(ssl),
               "\x17\x03\x03\0\x20this is not encrypted "
               "by anyone",
               5 + 32, MSG_NOSIGNAL);
    (void)SSL_read(ssl, &byte, 1);
}

TEST(tls, bytes_that_somebody_else_has_put_in_end_it)
{
    struct office o;
    struct guard g;
    struct visitor v;
    office_open(&o);
    guard_open(&g, &o.server, talk_garbage);
    guard_start(&g);
    visitor_open_to(&v, &g, &o, NULL);
    WAIT_UNTIL(&v.c, v.c.n == 4);
    client_send(&v.c, "x", 1);
    WAIT_UNTIL(&v.c, v.c.ended == 1);
    CHECK_INT_EQ(v.c.code, UV_EPROTO);
    CHECK(strstr(v.c.why, ": TLS failed: ") != NULL);
    CHECK_UINT_EQ(v.c.n, 4);
    client_close(&v.c);
    guard_close(&g);
    office_close(&o);
}

TEST(tls, it_may_be_closed_in_each_of_its_calls)
{
    struct office o;
    struct guard g;
    struct visitor v;
    office_open(&o);
    guard_open(&g, &o.server, secure_bye);
    guard_start(&g);
    for (int i = 0; i < 4; i++) {
        visitor_open_to(&v, &g, &o, i == 3 ? "wrong.test" : NULL);
        v.c.close_in_open = i == 0;
        v.c.close_in_bytes = i == 1;
        v.c.close_in_end = i >= 2;
        WAIT_UNTIL(&v.c, v.c.s == NULL);
        CHECK_INT_EQ(v.c.ended, i >= 2);
        client_close(&v.c);
    }
    guard_close(&g);
    office_close(&o);
}

static void talk_deaf(struct guard *g, SSL *ssl)
{
    char byte;
    (void)ssl; /* until the test says so */
    (void)read(*(int *)g->s.user, &byte, 1);
}

TEST(tls, a_server_that_takes_nothing_does_not_fill_the_memory)
{
    int go[2];
    struct office o;
    struct guard g;
    struct visitor v;
    char *much = calloc(1, MEGABYTE);
    CHECK(much != NULL && pipe(go) == 0);
    office_open(&o);
    guard_open(&g, &o.server, talk_deaf);
    g.s.user = &go[0];
    guard_start(&g);
    visitor_open(&v,
                 CLIENT_OPTS(.host = "127.0.0.1", .port = g.s.port,
                             .unsent_max = MEGABYTE),
                 &(const struct vow__tls_opts){.ca_file = o.ca_file});
    for (int i = 0; i < 100 && v.c.ended == 0; i++) {
        client_send(&v.c, much, MEGABYTE);
        client_turn(&v.c);
    }
    CHECK_INT_EQ(v.c.code, VOW_EQUEUEFULL);
    CHECK(write(go[1], "x", 1) == 1);
    client_close(&v.c);
    guard_close(&g);
    office_close(&o);
    (void)close(go[0]);
    (void)close(go[1]);
    free(much);
}

/* ---- among others ------------------------------------------------------- */

static void raise_error(struct client *c)
{
    (void)c;
    ERR_raise(ERR_LIB_USER, ERR_R_INTERNAL_ERROR);
}

/* OpenSSL's errors are kept for each thread, whoever made them. */
TEST(tls, errors_of_others_do_no_harm_and_ours_are_not_left_behind)
{
    struct office o;
    struct guard g;
    struct visitor v;
    office_open(&o);
    guard_open(&g, &o.server, secure_echo);
    guard_start(&g);
    raise_error(NULL);
    visitor_open_to(&v, &g, &o, NULL);
    v.c.hook = raise_error;
    raise_error(NULL);
    WAIT_UNTIL(&v.c, v.c.opened == 1);
    for (size_t i = 1; i <= 10; i++) {
        raise_error(NULL);
        client_send(&v.c, "x", 1);
        WAIT_UNTIL(&v.c, v.c.n == i || v.c.ended == 1);
        CHECK_STR_EQ(v.c.why, "");
    }
    client_close(&v.c);
    visitor_open_to(&v, &g, &o, "wrong.test");
    WAIT_UNTIL(&v.c, v.c.ended == 1);
    CHECK_UINT_EQ(ERR_peek_error(), 0);
    client_close(&v.c);
    guard_close(&g);
    office_close(&o);
}

static struct guard fault_guard;
static struct office fault_office;

static void one_echo(struct client *c)
{
    char why[256];
    struct vow__tls *tls = NULL;
    struct vow__tls_opts opts = {.ca_file = fault_office.ca_file};
    int rc = vow__tls_new(c->w->loop, &opts, &tls, why, sizeof(why));
    CHECK(rc == 0 || fault_explains(c->w, rc));
    if (rc < 0)
        return;
    rc =
        client_try_open(c, CLIENT_OPTS(.host = "127.0.0.1",
                                       .port = fault_guard.s.port, .tls = tls));
    (void)vow__tls_unref(tls);
    CHECK(rc == 0 || fault_explains(c->w, rc));
    if (rc < 0)
        return;
    rc = vow__stream_send(c->s, "hello", 5);
    CHECK(rc == 0 || fault_explains(c->w, rc));
    WAIT_UNTIL(c, c->ended == 1 || (c->opened == 1 && (rc < 0 || c->n == 5)));
    CHECK(c->ended == 0 || fault_explains(c->w, c->code));
    client_close_stream(c);
}

FAULT_SWEEP(tls, an_echo_survives_every_fault, FAULT_ALLOC)
{
    struct client c;
    memset(&c, 0, sizeof(c));
    office_open(&fault_office);
    guard_open(&fault_guard, &fault_office.server, secure_echo);
    guard_start(&fault_guard);
    c.w = w;
    one_echo(&c);
    world_run(w);
    guard_close(&fault_guard);
    office_close(&fault_office);
    free(c.got);
}
