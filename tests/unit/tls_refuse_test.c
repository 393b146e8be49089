/* SPDX-License-Identifier: MIT */
/* tls_refuse_test.c - servers that are not talked to, files that are not what
 * they should be, and the sentences that say so.
 */
#define _GNU_SOURCE 1
#include "tls_rig.h"

#include "store/net/stream_internal.h"

#include <fcntl.h>
#include <sys/wait.h>

/* ---- certificates ------------------------------------------------------- */

/* Nothing is said to a server that is not the one that was meant. */
static void check_refused(const struct office *o, const struct paper *p,
                          const char *name, const char *why)
{
    struct guard g;
    struct visitor v;
    guard_open(&g, p, secure_echo);
    guard_start(&g);
    visitor_open_to(&v, &g, o, name);
    client_send(&v.c, "secret", 6);
    WAIT_UNTIL(&v.c, v.c.ended == 1);
    CHECK_INT_EQ(v.c.opened, 0);
    CHECK_INT_EQ(v.c.code, UV_EPROTO);
    CHECK_WHY(&v.c, &g.s, why);
    client_close(&v.c);
    guard_close(&g);
    CHECK(g.failed);
    CHECK(g.alert > 0); /* the server has been told */
}

#define CERTIFICATE "the certificate of 127.0.0.1:%u "
#define UNTRUSTED CERTIFICATE "is not signed by anyone who is trusted"

TEST(tls_refuse, a_certificate_of_another_name_is_refused)
{
    static const char *const names[][2] = {
        {"other.test", CERTIFICATE "is not for other.test"},
        {"redis.test.evil", CERTIFICATE "is not for redis.test.evil"},
        {"x.redis.test", CERTIFICATE "is not for x.redis.test"},
        {"a.b.wild.test", CERTIFICATE "is not for a.b.wild.test"},
        {"wild.test", CERTIFICATE "is not for wild.test"},
        {"pp.part.test", CERTIFICATE "is not for pp.part.test"},
        {"server", CERTIFICATE "is not for server"}, /* its common name */
        {"127.0.0.2", CERTIFICATE "is not for 127.0.0.2"},
        {"::2", CERTIFICATE "is not for ::2"},
    };
    struct office o;
    office_open(&o);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        check_refused(&o, &o.server, names[i][0], names[i][1]);
    office_close(&o);
}

TEST(tls_refuse, a_certificate_without_the_address_is_refused)
{
    struct office o;
    office_open(&o);
    struct paper p =
        PAPER(.name = "127.0.0.1", .alt = "DNS:127.0.0.1", .by = &o.ca);
    check_refused(&o, &p, NULL, CERTIFICATE "is not for 127.0.0.1");
    paper_free(&p);
    office_close(&o);
}

TEST(tls_refuse, a_certificate_out_of_its_time_is_refused)
{
    struct office o;
    office_open(&o);
    struct paper old = PAPER(.name = "old", .alt = "DNS:redis.test",
                             .by = &o.ca, .from_s = -7200, .until_s = -3600);
    struct paper early = PAPER(.name = "early", .alt = "DNS:redis.test",
                               .by = &o.ca, .from_s = 3600, .until_s = 7200);
    check_refused(&o, &old, "redis.test",
                  CERTIFICATE "has expired, or one that it was signed with");
    check_refused(&o, &early, "redis.test", CERTIFICATE "is not valid yet");
    paper_free(&old);
    paper_free(&early);
    office_close(&o);
}

TEST(tls_refuse, a_certificate_of_strangers_is_refused)
{
    struct office o;
    office_open(&o);
    struct paper ca = PAPER(.name = "those we trust"); /* so they say */
    struct paper p = PAPER(.name = "p", .alt = "DNS:redis.test", .by = &ca);
    struct paper self = PAPER(.name = "self", .alt = "DNS:redis.test");
    check_refused(&o, &p, "redis.test", UNTRUSTED);
    check_refused(&o, &self, "redis.test", UNTRUSTED);
    paper_free(&p);
    paper_free(&ca);
    paper_free(&self);
    office_close(&o);
}

TEST(tls_refuse, a_certificate_of_another_kind_is_refused)
{
    struct office o;
    office_open(&o);
    struct paper p = PAPER(.name = "p", .alt = "DNS:redis.test",
                           .usage = "clientAuth", .by = &o.ca);
    check_refused(&o, &p, "redis.test", CERTIFICATE "is not one of a server");
    paper_free(&p);
    office_close(&o);
}

/* Who has a certificate cannot make more of them. */
TEST(tls_refuse, a_certificate_signed_by_a_mere_server_is_refused)
{
    struct office o;
    struct guard g;
    struct visitor v;
    office_open(&o);
    struct paper p =
        PAPER(.name = "p", .alt = "DNS:redis.test", .by = &o.server);
    guard_open(&g, &p, secure_echo);
    CHECK(SSL_CTX_add1_chain_cert(g.ctx, o.server.cert) == 1);
    guard_start(&g);
    visitor_open_to(&v, &g, &o, "redis.test");
    WAIT_UNTIL(&v.c, v.c.ended == 1);
    CHECK_INT_EQ(v.c.opened, 0);
    CHECK_INT_EQ(v.c.code, UV_EPROTO);
    CHECK(strncmp(v.c.why, "the certificate of 127.0.0.1:", 29) == 0);
    CHECK(strstr(v.c.why, " cannot be trusted: ") != NULL);
    client_close(&v.c);
    guard_close(&g);
    paper_free(&p);
    office_close(&o);
}

/* Who trusts the system trusts nobody of ours. */
TEST(tls_refuse, without_a_file_the_system_is_trusted)
{
    struct office o;
    struct guard g;
    struct visitor v;
    office_open(&o);
    guard_open(&g, &o.server, secure_echo);
    guard_start(&g);
    visitor_open(&v, CLIENT_OPTS(.host = "127.0.0.1", .port = g.s.port),
                 &(const struct vow__tls_opts){.ca_file = NULL});
    WAIT_UNTIL(&v.c, v.c.ended == 1);
    CHECK_INT_EQ(v.c.opened, 0);
    CHECK_WHY(&v.c, &g.s, UNTRUSTED);
    client_close(&v.c);
    CHECK(setenv("SSL_CERT_FILE", o.ca_file, 1) == 0);
    visitor_open(&v, CLIENT_OPTS(.host = "127.0.0.1", .port = g.s.port),
                 &(const struct vow__tls_opts){.ca_file = NULL});
    WAIT_UNTIL(&v.c, v.c.opened == 1);
    client_close(&v.c);
    guard_close(&g);
    office_close(&o);
}

/* A name that begins with a point would match all that end so. */
TEST(tls_refuse, names_that_are_none_are_refused)
{
    static const char *const names[] = {"", ".", ".test", ".redis.test"};
    struct office o;
    struct guard g;
    struct visitor v;
    char much[600];
    office_open(&o);
    guard_open(&g, &o.server, secure_echo);
    guard_start(&g);
    memset(much, 'n', sizeof(much));
    much[sizeof(much) - 1] = '\0';
    for (size_t i = 0; i <= sizeof(names) / sizeof(names[0]); i++) {
        bool last = i == sizeof(names) / sizeof(names[0]);
        visitor_open_to(&v, &g, &o, last ? much : names[i]);
        WAIT_UNTIL(&v.c, v.c.ended == 1);
        CHECK_INT_EQ(v.c.opened, 0);
        CHECK_INT_EQ(v.c.code, VOW_EINVAL);
        CHECK_WHY(&v.c, &g.s,
                  "127.0.0.1:%u: its name in the certificate is not known");
        client_close(&v.c);
    }
    guard_close(&g);
    office_close(&o);
}

/* ---- servers without TLS ------------------------------------------------ */

static void visit_plain(struct visitor *v, const struct server *s)
{
    visitor_open(v, CLIENT_OPTS(.host = "127.0.0.1", .port = s->port),
                 &(const struct vow__tls_opts){.ca_file = NULL});
}

static void talk_plain(struct server *s, int fd)
{
    char bytes[4096];
    (void)recv(fd, bytes, sizeof(bytes), 0);
    (void)send(fd, s->user, strlen(s->user), MSG_NOSIGNAL);
    talk_listen(s, fd);
}

TEST(tls_refuse, a_server_that_speaks_no_tls_is_told)
{
    static const char *const said[] = {
        "-ERR unknown command\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "\x80\x01\x02 some noise that goes on",
    };
    struct server s;
    struct visitor v;
    server_open(&s, talk_plain);
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
        s.user = (void *)(uintptr_t)said[i];
        visit_plain(&v, &s);
        WAIT_UNTIL(&v.c, v.c.ended == 1);
        CHECK_INT_EQ(v.c.opened, 0);
        CHECK_INT_EQ(v.c.code, UV_EPROTO);
        CHECK_WHY(&v.c, &s, "127.0.0.1:%u speaks no TLS");
        client_close(&v.c);
    }
    server_close(&s);
}

static void talk_hang_up(struct server *s, int fd)
{
    char bytes[4096];
    (void)s;
    (void)recv(fd, bytes, sizeof(bytes), 0);
}

TEST(tls_refuse, a_server_that_hangs_up_perhaps_speaks_no_tls)
{
    struct server s;
    struct visitor v;
    server_open(&s, talk_hang_up);
    visit_plain(&v, &s);
    WAIT_UNTIL(&v.c, v.c.ended == 1);
    CHECK_INT_EQ(v.c.opened, 0);
    CHECK_INT_EQ(v.c.code, UV_EOF);
    CHECK_WHY(&v.c, &s,
              "127.0.0.1:%u ended the connection before TLS was agreed on; "
              "perhaps it speaks none");
    client_close(&v.c);
    server_close(&s);
}

TEST(tls_refuse, a_server_that_waits_perhaps_speaks_no_tls)
{
    struct server s;
    struct visitor v;
    server_open(&s, talk_listen);
    visit_plain(&v, &s);
    WAIT_UNTIL(&v.c, v.c.s->state == VOW__STREAM_GREETS);
    world_advance_ms(v.c.w, 999);
    CHECK_INT_EQ(v.c.ended, 0);
    world_advance_ms(v.c.w, 1);
    CHECK_INT_EQ(v.c.ended, 1);
    CHECK_INT_EQ(v.c.code, VOW_ETIMEDOUT);
    CHECK_WHY(&v.c, &s,
              "127.0.0.1:%u did not agree on TLS within 1000 ms; perhaps it "
              "speaks none");
    client_close(&v.c);
    server_close(&s);
}

TEST(tls_refuse, a_server_of_an_older_version_is_told)
{
    struct office o;
    struct guard g;
    struct visitor v;
    office_open(&o);
    guard_open(&g, &o.server, secure_echo);
    CHECK(SSL_CTX_set_cipher_list(g.ctx, "ALL:@SECLEVEL=0") == 1);
    CHECK(SSL_CTX_set_min_proto_version(g.ctx, TLS1_VERSION) == 1);
    CHECK(SSL_CTX_set_max_proto_version(g.ctx, TLS1_1_VERSION) == 1);
    guard_start(&g);
    visitor_open_to(&v, &g, &o, NULL);
    WAIT_UNTIL(&v.c, v.c.ended == 1);
    CHECK_INT_EQ(v.c.opened, 0);
    CHECK_WHY(&v.c, &g.s, "127.0.0.1:%u speaks no TLS 1.2 or newer");
    client_close(&v.c);
    guard_close(&g);
    office_close(&o);
}

/* ---- files -------------------------------------------------------------- */

static void check_files(const struct vow__tls_opts *opts, const char *format,
                        const char *file)
{
    struct world w;
    struct vow__tls *tls = NULL;
    char why[256] = "";
    char want[256];
    world_open(&w);
    (void)snprintf(want, sizeof(want), format, file);
    CHECK_INT_EQ(vow__tls_new(w.loop, opts, &tls, why, sizeof(why)),
                 VOW_EINVAL);
    CHECK_STR_EQ(why, want);
    CHECK_PTR_EQ(tls, NULL);
    CHECK_UINT_EQ(ERR_peek_error(), 0);
    world_close(&w);
}
#define CHECK_FILES(format, file, ...)                                         \
    check_files(&(const struct vow__tls_opts){__VA_ARGS__}, format, file)

TEST(tls_refuse, a_file_that_is_not_there_is_named)
{
    struct office o;
    office_open(&o);
    const char *no = o.other_file;
    const char *why = "%s cannot be read: no such file or directory";
    CHECK_FILES(why, no, .ca_file = no);
    CHECK_FILES(why, no, .ca_file = o.ca_file, .cert_file = no);
    CHECK_FILES(why, no, .cert_file = o.cert_file, .key_file = no);
    office_close(&o);
}

TEST(tls_refuse, a_file_of_another_kind_is_named)
{
    struct office o;
    office_open(&o);
    FILE *f = office_file(o.other_file);
    CHECK(fputs("this is no certificate\n", f) >= 0 && fclose(f) == 0);
    const char *no = o.other_file;
    const char *cert = "%s has no certificate in PEM form";
    const char *key = "%s has no private key in PEM form that can be read "
                      "without a passphrase";
    CHECK_FILES(cert, no, .ca_file = no);
    CHECK_FILES(cert, o.folder.path, .ca_file = o.folder.path);
    CHECK_FILES(cert, no, .cert_file = no);
    CHECK_FILES(cert, o.key_file, .cert_file = o.key_file);
    CHECK_FILES(key, no, .cert_file = o.cert_file, .key_file = no);
    CHECK_FILES(key, o.cert_file, .cert_file = o.cert_file);
    office_close(&o);
}

TEST(tls_refuse, a_key_of_another_certificate_is_named)
{
    struct office o;
    char why[256];
    office_open(&o);
    office_write(o.other_file, &o.server, false, true);
    (void)snprintf(why, sizeof(why),
                   "the key in %%s is not that of the certificate in %s",
                   o.cert_file);
    CHECK_FILES(why, o.other_file, .cert_file = o.cert_file,
                .key_file = o.other_file);
    office_close(&o);
}

/* Nobody is asked at the terminal. */
TEST(tls_refuse, a_key_with_a_passphrase_is_named)
{
    struct office o;
    office_open(&o);
    FILE *f = office_file(o.other_file);
    CHECK(PEM_write_PrivateKey(f, o.client.key, EVP_aes_128_cbc(),
                               (const unsigned char *)"word", 4, NULL,
                               NULL) == 1);
    CHECK(fclose(f) == 0);
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(setsid() >= 0 && open(ptsname(terminal), O_RDWR) >= 0);
        CHECK_FILES("%s has no private key in PEM form that can be read "
                    "without a passphrase",
                    o.other_file, .cert_file = o.cert_file,
                    .key_file = o.other_file);
        _exit(0);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_INT_EQ(status, 0);
    (void)close(terminal);
    office_close(&o);
}
