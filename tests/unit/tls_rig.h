/* SPDX-License-Identifier: MIT */
/* tls_rig.h - certificates that are made for the test, in a folder of its own,
 * and a server that speaks TLS by plain sockets.
 */
#ifndef TEST_TLS_RIG_H
#define TEST_TLS_RIG_H

#include "folder.h"
#include "stream_rig.h"

#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>

/* ---- certificates ------------------------------------------------------- */

struct paper {
    EVP_PKEY *key;
    X509 *cert;
};

struct paper_opts {
    const char *name;
    const char *alt;        /* "DNS:redis.test,IP:127.0.0.1"; NULL: none */
    const char *usage;      /* "clientAuth"; NULL: all */
    const struct paper *by; /* who signs it; NULL: itself, and others */
    long from_s;            /* from now; 0, 0: from an hour ago for a day */
    long until_s;
};

static inline void paper_extend(X509 *cert, X509 *by, int kind,
                                const char *text)
{
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, by, cert, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, kind, text);
    CHECK(e != NULL);
    CHECK(X509_add_ext(cert, e, -1) == 1);
    X509_EXTENSION_free(e);
}

static inline struct paper paper_make(const struct paper_opts *o)
{
    static long serial = 1;
    struct paper p = {.key = EVP_EC_gen("P-256"), .cert = X509_new()};
    CHECK(p.key != NULL && p.cert != NULL);
    const struct paper *by = o->by == NULL ? &p : o->by;
    bool day = o->from_s == 0 && o->until_s == 0;
    X509_NAME *name = X509_get_subject_name(p.cert);
    CHECK(X509_set_version(p.cert, 2) == 1);
    CHECK(ASN1_INTEGER_set(X509_get_serialNumber(p.cert), serial++) == 1);
    CHECK(X509_gmtime_adj(X509_getm_notBefore(p.cert),
                          day ? -3600 : o->from_s) != NULL);
    CHECK(X509_gmtime_adj(X509_getm_notAfter(p.cert),
                          day ? 86400 : o->until_s) != NULL);
    CHECK(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                                     (const unsigned char *)o->name, -1, -1,
                                     0) == 1);
    CHECK(X509_set_issuer_name(p.cert, X509_get_subject_name(by->cert)) == 1);
    CHECK(X509_set_pubkey(p.cert, p.key) == 1);
    if (o->by == NULL) {
        paper_extend(p.cert, by->cert, NID_basic_constraints,
                     "critical,CA:TRUE");
        paper_extend(p.cert, by->cert, NID_subject_key_identifier, "hash");
    }
    if (o->usage != NULL)
        paper_extend(p.cert, by->cert, NID_ext_key_usage, o->usage);
    if (o->alt != NULL)
        paper_extend(p.cert, by->cert, NID_subject_alt_name, o->alt);
    CHECK(X509_sign(p.cert, by->key, EVP_sha256()) > 0);
    return p;
}
#define PAPER(...) paper_make(&(const struct paper_opts){__VA_ARGS__})

static inline void paper_free(struct paper *p)
{
    X509_free(p->cert);
    EVP_PKEY_free(p->key);
}

/* ---- a folder of them --------------------------------------------------- */

struct office {
    struct folder folder;
    char ca_file[96];
    char both_file[96]; /* our certificate and its key */
    char cert_file[96];
    char key_file[96];
    char other_file[96]; /* whatever a test wants */
    struct paper ca;     /* trusted */
    struct paper server; /* redis.test, *.wild.test, 127.0.0.1 and ::1 */
    struct paper client;
};

static inline FILE *office_file(const char *path)
{
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    return f;
}

static inline void office_write(const char *path, const struct paper *p,
                                bool cert, bool key)
{
    FILE *f = office_file(path);
    if (cert)
        CHECK(PEM_write_X509(f, p->cert) == 1);
    if (key)
        CHECK(PEM_write_PrivateKey(f, p->key, NULL, NULL, 0, NULL, NULL) == 1);
    CHECK(fclose(f) == 0);
}

static inline void office_path(const struct office *o, char *path,
                               const char *name)
{
    (void)snprintf(path, 96, "%s/%s", o->folder.path, name);
}

static inline void office_open(struct office *o)
{
    memset(o, 0, sizeof(*o));
    folder_open(&o->folder);
    office_path(o, o->ca_file, "ca.pem");
    office_path(o, o->both_file, "both.pem");
    office_path(o, o->cert_file, "cert.pem");
    office_path(o, o->key_file, "key.pem");
    office_path(o, o->other_file, "other.pem");
    o->ca = PAPER(.name = "those we trust");
    o->server = PAPER(.name = "server", .by = &o->ca,
                      .alt = "DNS:redis.test,DNS:*.wild.test,DNS:p*.part.test,"
                             "IP:127.0.0.1,IP:::1");
    o->client = PAPER(.name = "client", .by = &o->ca);
    office_write(o->ca_file, &o->ca, true, false);
    office_write(o->both_file, &o->client, true, true);
    office_write(o->cert_file, &o->client, true, false);
    office_write(o->key_file, &o->client, false, true);
}

static inline void office_close(struct office *o)
{
    folder_close(&o->folder);
    paper_free(&o->ca);
    paper_free(&o->server);
    paper_free(&o->client);
}

/* ---- a server ----------------------------------------------------------- */

struct guard {
    struct server s;
    SSL_CTX *ctx;
    /* Called for each that TLS was agreed on with. */
    void (*talk)(struct guard *g, SSL *ssl);
    char asked[64];  /* the name the client has asked for; "": none */
    char client[64]; /* the name in its certificate; "": none */
    int version;     /* of TLS */
    bool said_bye;   /* by TLS */
    bool failed;     /* no agreement */
    int alert;       /* then: what the client has said; 0: nothing */
};

static inline void guard_talk(struct server *s, int fd)
{
    struct guard *g = (struct guard *)(void *)s;
    int on = 1;
    SSL *ssl = SSL_new(g->ctx);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    CHECK(ssl != NULL && SSL_set_fd(ssl, fd) == 1);
    g->failed = SSL_accept(ssl) != 1;
    g->alert = ERR_GET_REASON(ERR_peek_error()) - SSL_AD_REASON_OFFSET;
    if (!g->failed) {
        const char *asked = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
        X509 *cert = SSL_get0_peer_certificate(ssl);
        (void)snprintf(g->asked, sizeof(g->asked), "%s",
                       asked == NULL ? "" : asked);
        g->client[0] = '\0';
        if (cert != NULL)
            (void)X509_NAME_get_text_by_NID(X509_get_subject_name(cert),
                                            NID_commonName, g->client,
                                            sizeof(g->client));
        g->version = SSL_version(ssl);
        g->talk(g, ssl);
        g->said_bye = (SSL_get_shutdown(ssl) & SSL_RECEIVED_SHUTDOWN) != 0;
    }
    SSL_free(ssl);
    ERR_clear_error();
}

static inline void secure_echo(struct guard *g, SSL *ssl)
{
    static _Thread_local char bytes[65536];
    int n;
    (void)g;
    while ((n = SSL_read(ssl, bytes, sizeof(bytes))) > 0)
        if (SSL_write(ssl, bytes, n) != n)
            return;
}

/* It shows `p`, and begins when guard_start() is called. */
static inline void guard_open(struct guard *g, const struct paper *p,
                              void (*talk)(struct guard *g, SSL *ssl))
{
    memset(g, 0, sizeof(*g));
    g->s.fd = -1;
    g->talk = talk;
    (void)signal(SIGPIPE, SIG_IGN); /* the server's own writes */
    g->ctx = SSL_CTX_new(TLS_server_method());
    CHECK(g->ctx != NULL);
    CHECK(SSL_CTX_use_certificate(g->ctx, p->cert) == 1);
    CHECK(SSL_CTX_use_PrivateKey(g->ctx, p->key) == 1);
}

static inline void guard_start(struct guard *g)
{
    server_listen(&g->s, 16);
    server_start(&g->s, guard_talk);
}

static inline void guard_close(struct guard *g)
{
    server_close(&g->s);
    SSL_CTX_free(g->ctx);
}

/* It lets in only who shows a certificate that `ca` has signed. */
static inline void guard_demand(struct guard *g, const struct paper *ca)
{
    X509_STORE *store = SSL_CTX_get_cert_store(g->ctx);
    CHECK(X509_STORE_add_cert(store, ca->cert) == 1);
    SSL_CTX_set_verify(g->ctx,
                       SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
}

/* ---- a client ----------------------------------------------------------- */

struct visitor {
    struct client c;
    struct vow__tls *tls;
};

static inline void visitor_open(struct visitor *v,
                                const struct vow__stream_opts *opts,
                                const struct vow__tls_opts *tls)
{
    char why[256] = "";
    struct vow__stream_opts o = *opts;
    memset(v, 0, sizeof(*v));
    v->c.w = &v->c.own;
    world_open(v->c.w);
    int rc = vow__tls_new(v->c.w->loop, tls, &v->tls, why, sizeof(why));
    CHECK_STR_EQ(why, "");
    CHECK_INT_EQ(rc, 0);
    o.tls = v->tls;
    CHECK_INT_EQ(client_try_open(&v->c, &o), 0);
    v->tls = vow__tls_unref(v->tls); /* the stream has one */
}

/* Of the server at 127.0.0.1 that should be `name`; NULL: the address. */
static inline void visitor_open_to(struct visitor *v, const struct guard *g,
                                   const struct office *o, const char *name)
{
    visitor_open(v,
                 CLIENT_OPTS(.host = "127.0.0.1", .port = g->s.port,
                             .server_name = name),
                 &(const struct vow__tls_opts){.ca_file = o->ca_file});
}

#endif
