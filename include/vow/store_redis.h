/* SPDX-License-Identifier: MIT */
/* vow/store_redis.h - a store for many machines: Redis 6 or newer, or Valkey.
 *
 * Available rather than consistent: the store supports only VOW_SHARED. While a
 * server is lost, flushed or replaced, work may run twice; a result of a
 * replaced owner is never accepted.
 *
 * The address:
 *
 *   redis://[USER@]HOST[:PORT][,HOST[:PORT]...][/DB][?OPTION=VALUE&...]
 *   rediss://...                                      as redis://, by TLS
 *   unix:PATH[?...]                                   a socket on this machine
 *   redis-sentinel://HOST[:PORT],.../MASTER[/DB]      Sentinels name the master
 *   rediss-sentinel://...                             the same, by TLS
 *
 * Several hosts are tried in turn. A node of a Redis Cluster is recognized by
 * the greeting.
 *
 * OPTIONs, each also a field of vow_redis_opts: password-file, prefix, ca-file,
 * cert-file, key-file, server-name, seal-file, timeout (ms); for Sentinel also
 * sentinel-user and sentinel-password-file; for a socket also user and db.
 * %HH escapes a character. The address may contain a password (USER:PASSWORD@),
 * which is never shown; do not use a password where other users see the
 * address, as in the arguments of a command. Without a password, the
 * environment variable VOW_STORE_PASSWORD is used, unless no_environment is
 * set.
 */
#ifndef VOW_STORE_REDIS_H
#define VOW_STORE_REDIS_H

#include "vow/store.h"

VOW_BEGIN_DECLS

/* A field set here overrides the address. NULL and 0: not set. */
typedef struct vow_redis_opts {
    size_t size; /* set by VOW_REDIS_OPTS */
    const char *user;
    const char *password;      /* copied, cleared when the store is closed */
    const char *password_file; /* the first line is the password */
    const char *sentinel_user;
    const char *sentinel_password_file;
    const char *prefix;      /* of all keys and channels; NULL: "vow:" */
    const char *ca_file;     /* trusted CAs; NULL: the system's */
    const char *cert_file;   /* client certificate */
    const char *key_file;    /* key of cert_file; NULL: in cert_file */
    const char *server_name; /* expected in the certificate; NULL: the host */
    const char *seal_file;   /* key of 32 bytes or 64 hex digits: results are
                                encrypted, the server cannot read or swap
                                results */
    uint64_t timeout_ms;     /* for an answer, and to connect; 0: 1000 */
    uint64_t recheck_ms;     /* a waiter looks again after this; 0: 5000 */
    size_t value_max;        /* bytes of a result; 0: 64 MiB */
    size_t inline_max;       /* bytes of a result sent with the wake-up, larger
                                results are fetched; 0: 16 KiB */
    bool no_environment;     /* do not use VOW_STORE_PASSWORD */
} vow_redis_opts;
#define VOW_REDIS_OPTS(...)                                                    \
    (&(const vow_redis_opts){.size = sizeof(vow_redis_opts), __VA_ARGS__})

/* Opens the store. The store connects in the background, now and whenever the
 * connection is lost; the future does not wait for the connection. While the
 * server is down, steps end with VOW_ESTORE, and ops->explain says why. The
 * future has a vow_store as vow_ptr(). Rejected, with a message: VOW_EINVAL (an
 * invalid address or option, a file that cannot be read), VOW_ENOTSUP,
 * VOW_ENOMEM. Since 0.1. */
#define vow_store_redis_open(loop, url, opts)                                  \
    vow_store_redis_open_at(VOW_HERE, (loop), (url), (opts))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_store_redis_open_at(const char *site, vow_loop *loop,
                                    const char *url,
                                    const vow_redis_opts *opts);

VOW_END_DECLS

#endif
