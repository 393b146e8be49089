/* SPDX-License-Identifier: MIT */
/* openssl.h - OpenSSL's functions, loaded when the first one is needed.
 *
 * WHY   To link it takes a millisecond of every start, as long as a whole
 *       `vow share` of a kept result; and most programs never speak TLS.
 * HOW   The functions that tls.c calls are found by dlsym() and called through
 *       a table; the macros below send calls there, also those that OpenSSL's
 *       own macros make. Whoever includes this calls vow__openssl_load() first.
 */
#ifndef VOW_STORE_NET_OPENSSL_H
#define VOW_STORE_NET_OPENSSL_H

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stddef.h>

#define VOW__OPENSSL(X)                                                        \
    X(BIO_ctrl_pending)                                                        \
    X(BIO_free)                                                                \
    X(BIO_new)                                                                 \
    X(BIO_read_ex)                                                             \
    X(BIO_s_mem)                                                               \
    X(BIO_write_ex)                                                            \
    X(ERR_clear_error)                                                         \
    X(ERR_peek_error)                                                          \
    X(ERR_peek_last_error)                                                     \
    X(ERR_reason_error_string)                                                 \
    X(SSL_CTX_ctrl)                                                            \
    X(SSL_CTX_free)                                                            \
    X(SSL_CTX_load_verify_file)                                                \
    X(SSL_CTX_new)                                                             \
    X(SSL_CTX_set_default_passwd_cb)                                           \
    X(SSL_CTX_set_default_verify_paths)                                        \
    X(SSL_CTX_set_options)                                                     \
    X(SSL_CTX_set_verify)                                                      \
    X(SSL_CTX_use_PrivateKey_file)                                             \
    X(SSL_CTX_use_certificate_chain_file)                                      \
    X(SSL_ctrl)                                                                \
    X(SSL_do_handshake)                                                        \
    X(SSL_free)                                                                \
    X(SSL_get0_param)                                                          \
    X(SSL_get_error)                                                           \
    X(SSL_get_verify_result)                                                   \
    X(SSL_new)                                                                 \
    X(SSL_read)                                                                \
    X(SSL_set_bio)                                                             \
    X(SSL_set_connect_state)                                                   \
    X(SSL_shutdown)                                                            \
    X(SSL_write)                                                               \
    X(TLS_client_method)                                                       \
    X(X509_VERIFY_PARAM_set1_host)                                             \
    X(X509_VERIFY_PARAM_set1_ip)                                               \
    X(X509_VERIFY_PARAM_set_hostflags)                                         \
    X(X509_verify_cert_error_string)

struct vow__openssl {
#define VOW__POINTER(name) __typeof__(name) *name;
    VOW__OPENSSL(VOW__POINTER)
#undef VOW__POINTER
};
extern struct vow__openssl vow__openssl;

/* From any thread, any number of times. VOW_ENOTSUP with a sentence in `why`:
 * it is not installed. */
int vow__openssl_load(char *why, size_t why_size);

#ifndef VOW__OPENSSL_TABLE
#define BIO_ctrl_pending vow__openssl.BIO_ctrl_pending
#define BIO_free vow__openssl.BIO_free
#define BIO_new vow__openssl.BIO_new
#define BIO_read_ex vow__openssl.BIO_read_ex
#define BIO_s_mem vow__openssl.BIO_s_mem
#define BIO_write_ex vow__openssl.BIO_write_ex
#define ERR_clear_error vow__openssl.ERR_clear_error
#define ERR_peek_error vow__openssl.ERR_peek_error
#define ERR_peek_last_error vow__openssl.ERR_peek_last_error
#define ERR_reason_error_string vow__openssl.ERR_reason_error_string
#define SSL_CTX_ctrl vow__openssl.SSL_CTX_ctrl
#define SSL_CTX_free vow__openssl.SSL_CTX_free
#define SSL_CTX_load_verify_file vow__openssl.SSL_CTX_load_verify_file
#define SSL_CTX_new vow__openssl.SSL_CTX_new
#define SSL_CTX_set_default_passwd_cb vow__openssl.SSL_CTX_set_default_passwd_cb
#define SSL_CTX_set_default_verify_paths                                       \
    vow__openssl.SSL_CTX_set_default_verify_paths
#define SSL_CTX_set_options vow__openssl.SSL_CTX_set_options
#define SSL_CTX_set_verify vow__openssl.SSL_CTX_set_verify
#define SSL_CTX_use_PrivateKey_file vow__openssl.SSL_CTX_use_PrivateKey_file
#define SSL_CTX_use_certificate_chain_file                                     \
    vow__openssl.SSL_CTX_use_certificate_chain_file
#define SSL_ctrl vow__openssl.SSL_ctrl
#define SSL_do_handshake vow__openssl.SSL_do_handshake
#define SSL_free vow__openssl.SSL_free
#define SSL_get0_param vow__openssl.SSL_get0_param
#define SSL_get_error vow__openssl.SSL_get_error
#define SSL_get_verify_result vow__openssl.SSL_get_verify_result
#define SSL_new vow__openssl.SSL_new
#define SSL_read vow__openssl.SSL_read
#define SSL_set_bio vow__openssl.SSL_set_bio
#define SSL_set_connect_state vow__openssl.SSL_set_connect_state
#define SSL_shutdown vow__openssl.SSL_shutdown
#define SSL_write vow__openssl.SSL_write
#define TLS_client_method vow__openssl.TLS_client_method
#define X509_VERIFY_PARAM_set1_host vow__openssl.X509_VERIFY_PARAM_set1_host
#define X509_VERIFY_PARAM_set1_ip vow__openssl.X509_VERIFY_PARAM_set1_ip
#define X509_VERIFY_PARAM_set_hostflags                                        \
    vow__openssl.X509_VERIFY_PARAM_set_hostflags
#define X509_verify_cert_error_string vow__openssl.X509_verify_cert_error_string
#endif

#endif
