/* SPDX-License-Identifier: MIT */
/* tls.c - TLS by OpenSSL, between two blocks of memory.
 *
 * WHY   The other end must be the server that was meant, on every connection
 *       and without a way to switch that off; and who must mend something is
 *       told what it is.
 * HOW   OpenSSL never sees a socket: it reads from one memory BIO and writes to
 *       another. TLS 1.2 or newer, the chain checked up to the given or the
 *       system's authorities, and the name or address against the certificate.
 *       OpenSSL's list of errors belongs to the thread and may have some of
 *       other users: it is cleared before each call whose errors are read, and
 *       after it, so that nobody finds ours.
 * LIMITS  memory of OpenSSL is OpenSSL's own. Keys with a passphrase are
 *       refused: nobody is there to ask. Sessions are not resumed.
 * THREADS  loop thread only.
 */
#include "store/net/tls.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "store/net/openssl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

enum { NAME_MAX_ = 256, WHY = 512 };

struct vow__tls {
    struct vow_alloc alloc;
    uint32_t refs;
    SSL_CTX *ctx;
};

struct vow__session {
    struct vow_alloc alloc;
    struct vow__tls *tls;
    SSL *ssl; /* with both BIOs */
    BIO *in;
    BIO *out;
    const char *shown;
    bool refused; /* our certificate, or the lack of one */
    char name[NAME_MAX_];
    char why[WHY];
};

/* Where a sentence goes. */
struct sentence {
    char *text;
    size_t size;
};

static int context_fill(SSL_CTX *ctx, const struct vow__tls_opts *opts,
                        struct sentence why);
static int trust(SSL_CTX *ctx, const char *file, struct sentence why);
static int introduce(SSL_CTX *ctx, const struct vow__tls_opts *opts,
                     struct sentence why);
static int readable(const char *file, struct sentence why);
static int no_passphrase(char *text, int size, int writing, void *user);
static int expect(struct vow__session *s);
static int failed(struct vow__session *s, int rc);
static bool no_memory(unsigned long error);
static void explain(struct vow__session *s, unsigned long error);
static const char *certificate_text(long verdict);
static bool refuses_ours(int reason);
static const char *alert_text(int reason);

/* ---- whom to trust and who we are --------------------------------------- */

int vow__tls_new(vow_loop *loop, const struct vow__tls_opts *opts,
                 struct vow__tls **ret_tls, char *why, size_t why_size)
{
    const struct vow_alloc *alloc = vow_loop_alloc(loop);
    int rc = vow__openssl_load(why, why_size);
    if (rc < 0)
        return rc;
    struct vow__tls *t = vow__mem_zero(alloc, sizeof(*t));
    if (t == NULL)
        return VOW_ENOMEM;
    t->alloc = *alloc;
    t->refs = 1;
    ERR_clear_error();
    t->ctx = SSL_CTX_new(TLS_client_method());
    rc = t->ctx == NULL ? VOW_ENOMEM : 0;
    if (rc == 0)
        rc = context_fill(t->ctx, opts, (struct sentence){why, why_size});
    if (rc < 0 && no_memory(ERR_peek_last_error()))
        rc = VOW_ENOMEM;
    ERR_clear_error();
    if (rc < 0) {
        (void)vow__tls_unref(t);
        return rc;
    }
    *ret_tls = t;
    return 0;
}

static int context_fill(SSL_CTX *ctx, const struct vow__tls_opts *opts,
                        struct sentence why)
{
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1)
        return VOW_ENOMEM;
    (void)SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION |
                                       SSL_OP_NO_COMPRESSION |
                                       SSL_OP_IGNORE_UNEXPECTED_EOF);
    (void)SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                    SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    (void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
    int rc = trust(ctx, opts->ca_file, why);
    return rc < 0 || opts->cert_file == NULL ? rc : introduce(ctx, opts, why);
}

static int trust(SSL_CTX *ctx, const char *file, struct sentence why)
{
    if (file == NULL) {
        if (SSL_CTX_set_default_verify_paths(ctx) == 1)
            return 0;
        (void)snprintf(why.text, why.size,
                       "the system's certificates cannot be read");
        return VOW_EINVAL;
    }
    int rc = readable(file, why);
    if (rc < 0)
        return rc;
    if (SSL_CTX_load_verify_file(ctx, file) == 1)
        return 0;
    (void)snprintf(why.text, why.size, "%s has no certificate in PEM form",
                   file);
    return VOW_EINVAL;
}

static int introduce(SSL_CTX *ctx, const struct vow__tls_opts *opts,
                     struct sentence why)
{
    const char *key = opts->key_file == NULL ? opts->cert_file : opts->key_file;
    int rc = readable(opts->cert_file, why);
    if (rc == 0)
        rc = readable(key, why);
    if (rc < 0)
        return rc;
    if (SSL_CTX_use_certificate_chain_file(ctx, opts->cert_file) != 1) {
        (void)snprintf(why.text, why.size, "%s has no certificate in PEM form",
                       opts->cert_file);
        return VOW_EINVAL;
    }
    ERR_clear_error();
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) == 1)
        return 0; /* it has looked whether they belong together */
    unsigned long error = ERR_peek_last_error();
    if (ERR_GET_LIB(error) == ERR_LIB_X509)
        (void)snprintf(why.text, why.size,
                       "the key in %s is not that of the certificate in %s",
                       key, opts->cert_file);
    else
        (void)snprintf(why.text, why.size,
                       "%s has no private key in PEM form that can be read "
                       "without a passphrase",
                       key);
    return VOW_EINVAL;
}

static int readable(const char *file, struct sentence why)
{
    char text[128];
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)close(fd);
        return 0;
    }
    (void)snprintf(why.text, why.size, "%s cannot be read: %s", file,
                   uv_strerror_r(-errno, text, sizeof(text)));
    return VOW_EINVAL;
}

/* OpenSSL's own would ask at the terminal. */
static int no_passphrase(char *text, int size, int writing, void *user)
{
    (void)writing;
    (void)user;
    if (size > 0)
        text[0] = '\0';
    return -1;
}

struct vow__tls *vow__tls_ref(struct vow__tls *t)
{
    t->refs++;
    return t;
}

struct vow__tls *vow__tls_unref(struct vow__tls *t)
{
    if (t == NULL || --t->refs > 0)
        return NULL;
    struct vow_alloc alloc = t->alloc;
    SSL_CTX_free(t->ctx);
    vow__mem_free(&alloc, t, sizeof(*t));
    return NULL;
}

/* ---- a session ---------------------------------------------------------- */

int vow__session_new(struct vow__tls *t, const char *name, const char *shown,
                     struct vow__session **ret_session)
{
    size_t n = strlen(name);
    if (n == 0 || n >= NAME_MAX_)
        return VOW_EINVAL;
    struct vow__session *s = vow__mem_zero(&t->alloc, sizeof(*s));
    if (s == NULL)
        return VOW_ENOMEM;
    s->alloc = t->alloc;
    s->tls = vow__tls_ref(t);
    s->shown = shown;
    memcpy(s->name, name, n);
    ERR_clear_error();
    s->ssl = SSL_new(t->ctx);
    s->in = BIO_new(BIO_s_mem());
    s->out = BIO_new(BIO_s_mem());
    int rc = VOW_ENOMEM;
    if (s->ssl != NULL && s->in != NULL && s->out != NULL) {
        SSL_set_bio(s->ssl, s->in, s->out); /* which now belong to it */
        SSL_set_connect_state(s->ssl);
        rc = expect(s);
    } else {
        (void)BIO_free(s->in);
        (void)BIO_free(s->out);
    }
    ERR_clear_error();
    if (rc < 0) {
        vow__session_free(s);
        return rc;
    }
    *ret_session = s;
    return 0;
}

/* The certificate must be for the name. A point at the end belongs to the name
 * server's way to write it, not to certificates'. Addresses are not sent as
 * names. */
static int expect(struct vow__session *s)
{
    unsigned char address[sizeof(struct in6_addr)];
    X509_VERIFY_PARAM *param = SSL_get0_param(s->ssl);
    char *name = s->name;
    if (inet_pton(AF_INET, name, address) == 1)
        return X509_VERIFY_PARAM_set1_ip(param, address, 4) == 1 ? 0
                                                                 : VOW_ENOMEM;
    if (inet_pton(AF_INET6, name, address) == 1)
        return X509_VERIFY_PARAM_set1_ip(param, address, 16) == 1 ? 0
                                                                  : VOW_ENOMEM;
    size_t n = strlen(name);
    if (name[n - 1] == '.')
        name[--n] = '\0';
    if (n == 0 || name[0] == '.') /* that would match what ends so */
        return VOW_EINVAL;
    X509_VERIFY_PARAM_set_hostflags(param,
                                    X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    bool set = X509_VERIFY_PARAM_set1_host(param, name, n) == 1 &&
               SSL_set_tlsext_host_name(s->ssl, name) == 1;
    return set ? 0 : VOW_ENOMEM;
}

void vow__session_free(struct vow__session *s)
{
    if (s == NULL)
        return;
    struct vow_alloc alloc = s->alloc;
    SSL_free(s->ssl);
    (void)vow__tls_unref(s->tls);
    vow__mem_free(&alloc, s, sizeof(*s));
}

int vow__session_take(struct vow__session *s, const char *bytes, size_t n)
{
    size_t written = 0;
    ERR_clear_error();
    bool ok = BIO_write_ex(s->in, bytes, n, &written) == 1 && written == n;
    ERR_clear_error();
    return ok ? 0 : VOW_ENOMEM;
}

size_t vow__session_give(struct vow__session *s, char *bytes, size_t size)
{
    size_t n = 0;
    if (BIO_ctrl_pending(s->out) == 0)
        return 0;
    if (BIO_read_ex(s->out, bytes, size, &n) != 1)
        return 0;
    return n;
}

int vow__session_greet(struct vow__session *s)
{
    ERR_clear_error();
    int rc = SSL_do_handshake(s->ssl);
    return rc == 1 ? 1 : failed(s, rc);
}

int vow__session_read(struct vow__session *s, char *bytes, size_t size)
{
    ERR_clear_error();
    int n = SSL_read(s->ssl, bytes, (int)size);
    return n > 0 ? n : failed(s, n);
}

int vow__session_write(struct vow__session *s, const char *bytes, size_t n)
{
    ERR_clear_error();
    int size = SSL_write(s->ssl, bytes, (int)n);
    return size > 0 ? size : failed(s, size);
}

void vow__session_bye(struct vow__session *s)
{
    ERR_clear_error();
    (void)SSL_shutdown(s->ssl);
    ERR_clear_error();
}

const char *vow__session_why(const struct vow__session *s)
{
    return s->why;
}

bool vow__session_refused(const struct vow__session *s)
{
    return s->refused;
}

/* ---- sentences ---------------------------------------------------------- */

/* 0: it only wants more bytes. */
static int failed(struct vow__session *s, int rc)
{
    int kind = SSL_get_error(s->ssl, rc);
    unsigned long error = ERR_peek_error();
    ERR_clear_error();
    if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE)
        return 0;
    if (kind == SSL_ERROR_ZERO_RETURN)
        return VOW_ECLOSED;
    if (no_memory(error)) {
        (void)snprintf(s->why, sizeof(s->why), "%s: out of memory for TLS",
                       s->shown);
        return VOW_ENOMEM;
    }
    explain(s, error);
    return UV_EPROTO;
}

static bool no_memory(unsigned long error)
{
    return ERR_GET_REASON(error) == ERR_R_MALLOC_FAILURE;
}

static void explain(struct vow__session *s, unsigned long error)
{
    long verdict = SSL_get_verify_result(s->ssl);
    int reason = ERR_GET_REASON(error);
    const char *text = ERR_reason_error_string(error);
    if (verdict != X509_V_OK) { /* then nothing else went wrong */
        const char *is = certificate_text(verdict);
        if (verdict == X509_V_ERR_HOSTNAME_MISMATCH ||
            verdict == X509_V_ERR_IP_ADDRESS_MISMATCH)
            (void)snprintf(s->why, sizeof(s->why),
                           "the certificate of %s is not for %s", s->shown,
                           s->name);
        else if (is != NULL)
            (void)snprintf(s->why, sizeof(s->why), "the certificate of %s %s",
                           s->shown, is);
        else
            (void)snprintf(s->why, sizeof(s->why),
                           "the certificate of %s cannot be trusted: %s",
                           s->shown, X509_verify_cert_error_string(verdict));
        return;
    }
    bool alerted = ERR_GET_LIB(error) == ERR_LIB_SSL;
    const char *alert = alerted ? alert_text(reason) : NULL;
    s->refused = alerted && refuses_ours(reason);
    if (alert != NULL)
        (void)snprintf(s->why, sizeof(s->why), "%s %s", s->shown, alert);
    else
        (void)snprintf(s->why, sizeof(s->why), "%s: TLS failed: %s", s->shown,
                       text == NULL ? "no reason was given" : text);
}

static const char *certificate_text(long verdict)
{
    switch (verdict) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return "has expired, or one that it was signed with";
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return "is not valid yet";
    case X509_V_ERR_CERT_REVOKED:
        return "was revoked";
    case X509_V_ERR_INVALID_PURPOSE:
        return "is not one of a server";
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_CERT_UNTRUSTED:
        return "is not signed by anyone who is trusted";
    default:
        return NULL;
    }
}

/* Alerts that answer to our certificate: a server that sends one ends the
 * greeting, and reads nothing behind it. */
static bool refuses_ours(int reason)
{
    static const int all[] = {SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED,
                              SSL_R_TLSV1_ALERT_UNKNOWN_CA,
                              SSL_R_SSLV3_ALERT_BAD_CERTIFICATE,
                              SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN,
                              SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE,
                              SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED,
                              SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i] == reason)
            return true;
    return false;
}

static const char *alert_text(int reason)
{
    switch (reason) {
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_UNKNOWN_PROTOCOL:
    case SSL_R_UNEXPECTED_MESSAGE:
    case SSL_R_BAD_RECORD_TYPE:
        return "speaks no TLS";
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
        return "speaks no TLS 1.2 or newer";
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        return "wants a certificate of ours";
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
        return "does not agree on TLS; perhaps it wants a certificate of ours";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
        return "does not trust our certificate";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
        return "says that our certificate has expired";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
        return "says that our certificate was revoked";
    case SSL_R_TLSV1_UNRECOGNIZED_NAME:
        return "does not know the name that it was asked for";
    default:
        return NULL;
    }
}
