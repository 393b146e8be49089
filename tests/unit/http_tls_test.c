/* SPDX-License-Identifier: MIT */
/* http_tls_test.c - requests by TLS: who is trusted, who we are, and what is
 * said when it is wrong.
 */
#include "http_rig.h"
#include "names.h"
#include "tls_rig.h"

#include <stdatomic.h>

/* Answers each request with what was sent, until the other closes. */
static void talk_web(struct guard *g, SSL *ssl)
{
    char in[8192];
    char out[8192];
    int n = 0;
    (void)g;
    for (;;) {
        int m = SSL_read(ssl, in + n, (int)sizeof(in) - 1 - n);
        if (m <= 0)
            return;
        n += m;
        in[n] = '\0';
        const char *size = strstr(in, "Content-Length: ");
        const char *body = strstr(in, "\r\n\r\n");
        if (size == NULL || body == NULL ||
            strlen(body + 4) < strtoul(size + 16, NULL, 10))
            continue;
        int k = snprintf(out, sizeof(out),
                         "HTTP/1.1 200 X\r\nContent-Length: %zu\r\n\r\n%s",
                         strlen(body + 4), body + 4);
        if (SSL_write(ssl, out, k) != k)
            return;
        n = 0;
    }
}

static void ask(struct browser *b, struct reply *p, const struct guard *g,
                const char *host)
{
    char url[128];
    (void)snprintf(url, sizeof(url), "https://%s:%u/echo", host,
                   (unsigned)g->s.port);
    reply_free(p);
    CHECK(reply_ask(p, b, url, ASK(.timeout_ms = 9000)) != NULL);
    WAIT_FOR(b, p->told == 1);
}

/* One question to a server, in words that are wanted. */
static void check_refused(struct guard *g, const struct vow__http_opts *opts,
                          const char *host, const char *format)
{
    struct browser b;
    struct reply p = {.told = 0};
    browser_open_with(&b, opts);
    ask(&b, &p, g, host);
    CHECK_SAYS(&p, &g->s, format);
    CHECK_INT_EQ(p.code, VOW_ESTORE);
    browser_close(&b);
}

TEST(http_tls, who_is_trusted_is_spoken_to)
{
    struct office o;
    struct guard g;
    struct browser b;
    struct reply p = {.told = 0};
    office_open(&o);
    guard_open(&g, &o.server, talk_web);
    guard_start(&g);
    browser_open_with(&b, HTTP_OPTS(.ca_file = o.ca_file));
    for (int i = 0; i < 3; i++) {
        ask(&b, &p, &g, "127.0.0.1");
        CHECK_STR_EQ(p.why, "");
        CHECK_STR_EQ(p.body, "hello");
    }
    reply_free(&p);
    browser_close(&b);
    guard_close(&g);
    CHECK(g.said_bye);
    office_close(&o);
}

TEST(http_tls, a_name_is_looked_for_in_the_certificate)
{
    struct office o;
    struct guard g;
    struct browser b;
    struct reply p = {.told = 0};
    office_open(&o);
    guard_open(&g, &o.server, talk_web);
    guard_start(&g);
    names.addresses[0] = "127.0.0.1";
    browser_open_with(&b, HTTP_OPTS(.ca_file = o.ca_file));
    ask(&b, &p, &g, "redis.test");
    CHECK_STR_EQ(p.why, "");
    CHECK_STR_EQ(p.body, "hello");
    reply_free(&p);
    browser_close(&b);
    CHECK_STR_EQ(g.asked, "redis.test");
    check_refused(&g, HTTP_OPTS(.ca_file = o.ca_file), "other.test",
                  "the certificate of other.test:%u is not for other.test");
    guard_close(&g);
    office_close(&o);
}

TEST(http_tls, one_that_nobody_trusts_is_not_spoken_to)
{
    struct office o;
    struct guard g;
    struct paper other = PAPER(.name = "others");
    office_open(&o);
    office_write(o.other_file, &other, true, false);
    guard_open(&g, &o.server, talk_web);
    guard_start(&g);
    check_refused(&g, HTTP_OPTS(.ca_file = o.other_file), "127.0.0.1",
                  "the certificate of 127.0.0.1:%u is not signed by anyone "
                  "who is trusted");
    check_refused(&g, HTTP_OPTS(.tls = true), "127.0.0.1", /* the system's */
                  "the certificate of 127.0.0.1:%u is not signed by anyone "
                  "who is trusted");
    guard_close(&g);
    office_close(&o);
    paper_free(&other);
}

TEST(http_tls, one_that_has_expired_is_not_spoken_to)
{
    struct office o;
    struct guard g;
    office_open(&o);
    struct paper old = PAPER(.name = "old", .by = &o.ca, .alt = "IP:127.0.0.1",
                             .from_s = -7200, .until_s = -3600);
    guard_open(&g, &old, talk_web);
    guard_start(&g);
    check_refused(&g, HTTP_OPTS(.ca_file = o.ca_file), "127.0.0.1",
                  "the certificate of 127.0.0.1:%u has expired, or one that it "
                  "was signed with");
    guard_close(&g);
    office_close(&o);
    paper_free(&old);
}

TEST(http_tls, one_that_speaks_no_tls_is_told)
{
    struct server s;
    struct office o;
    struct browser b;
    struct reply p = {.told = 0};
    char url[64];
    office_open(&o);
    server_open(&s, talk_bye);
    browser_open_with(&b, HTTP_OPTS(.ca_file = o.ca_file));
    (void)snprintf(url, sizeof(url), "https://127.0.0.1:%u/", (unsigned)s.port);
    CHECK(reply_ask(&p, &b, url, ASK(.timeout_ms = 9000)) != NULL);
    WAIT_FOR(&b, p.told == 1);
    CHECK_INT_EQ(p.code, VOW_ESTORE);
    CHECK_SAYS(&p, &s,
               "127.0.0.1:%u ended the connection before TLS was agreed on; "
               "perhaps it speaks none");
    browser_close(&b);
    server_close(&s);
    office_close(&o);
}

static atomic_bool greeted;

static void talk_deaf(struct server *s, int fd)
{
    char byte;
    CHECK(recv(fd, &byte, 1, 0) == 1);
    atomic_store(&greeted, true);
    talk_listen(s, fd);
}

TEST(http_tls, one_that_does_not_greet_is_told_in_time)
{
    struct server s;
    struct browser b;
    struct reply p = {.told = 0};
    char url[64];
    server_open(&s, talk_deaf);
    browser_open_with(&b, HTTP_OPTS(.tls = true, .connect_ms = 50000));
    (void)snprintf(url, sizeof(url), "https://127.0.0.1:%u/", (unsigned)s.port);
    CHECK(reply_ask(&p, &b, url, ASK(.timeout_ms = 90000)) != NULL);
    WAIT_BUSY(&b, atomic_load(&greeted)); /* its first words */
    world_advance_ms(b.w, 49999);
    CHECK_INT_EQ(p.told, 0);
    world_advance_ms(b.w, 1);
    CHECK_INT_EQ(p.told, 1);
    CHECK_INT_EQ(p.code, VOW_ESTORE);
    CHECK_SAYS(&p, &s,
               "127.0.0.1:%u did not agree on TLS within 50000 ms; perhaps "
               "it speaks none");
    browser_close(&b);
    server_close(&s);
}

TEST(http_tls, our_certificate_is_shown_to_who_wants_it)
{
    struct office o;
    office_open(&o);
    for (int i = 0; i < 2; i++) { /* its key with it, or apart */
        struct guard g;
        struct browser b;
        struct reply p = {.told = 0};
        guard_open(&g, &o.server, talk_web);
        guard_demand(&g, &o.ca);
        guard_start(&g);
        browser_open_with(
            &b, HTTP_OPTS(.ca_file = o.ca_file,
                          .cert_file = i == 0 ? o.both_file : o.cert_file,
                          .key_file = i == 0 ? NULL : o.key_file));
        ask(&b, &p, &g, "127.0.0.1");
        CHECK_STR_EQ(p.why, "");
        CHECK_STR_EQ(p.body, "hello");
        reply_free(&p);
        browser_close(&b);
        CHECK_STR_EQ(g.client, "client");
        guard_close(&g);
    }
    office_close(&o);
}

/* Says why it does not go on, and hears the other out. */
static void talk_strict(struct server *s, int fd)
{
    struct guard *g = (struct guard *)(void *)s;
    SSL *ssl = SSL_new(g->ctx);
    CHECK(ssl != NULL && SSL_set_fd(ssl, fd) == 1);
    CHECK(SSL_accept(ssl) != 1);
    SSL_free(ssl);
    ERR_clear_error();
    talk_listen(s, fd);
}

/* By TLS 1.3 it refuses when the request has been sent. */
TEST(http_tls, who_refuses_our_certificate_was_never_asked)
{
    struct office o;
    struct guard g;
    office_open(&o);
    guard_open(&g, &o.server, talk_web);
    guard_demand(&g, &o.ca);
    server_listen(&g.s, 16);
    server_start(&g.s, talk_strict);
    check_refused(&g, HTTP_OPTS(.ca_file = o.ca_file), "127.0.0.1",
                  "127.0.0.1:%u wants a certificate of ours");
    guard_close(&g);
    office_close(&o);
}

static void check_files(const struct vow__http_opts *opts, const char *part)
{
    struct browser b = {.w = &b.own};
    char why[512] = "";
    world_open(b.w);
    CHECK_INT_EQ(browser_try_open(&b, opts, why, sizeof(why)), VOW_EINVAL);
    CHECK(strstr(why, part) != NULL);
    world_close(b.w);
}

TEST(http_tls, files_that_cannot_be_used_are_told_when_it_is_opened)
{
    struct office o;
    office_open(&o);
    check_files(HTTP_OPTS(.ca_file = "/none/ca.pem"), "/none/ca.pem");
    check_files(HTTP_OPTS(.cert_file = o.key_file), o.key_file);
    check_files(HTTP_OPTS(.cert_file = o.cert_file, .key_file = o.ca_file),
                o.ca_file);
    office_close(&o);
}
