/* SPDX-License-Identifier: MIT */
/* vow/store_redis.h - a store for many machines: Redis 6 or newer, or Valkey.
 *
 * Available rather than consistent: it promises VOW_SHARED. While a server is
 * lost, flushed or replaced, work may run twice; a result is never accepted
 * from who was replaced.
 *
 * The address:
 *
 *   redis://[USER@]HOST[:PORT][,HOST[:PORT]...][/DB][?OPTION=VALUE&...]
 *   rediss://...                                      the same by TLS
 *   unix:PATH[?...]                                   a socket on this machine
 *   redis-sentinel://HOST[:PORT],.../MASTER[/DB]      asked who the master is
 *   rediss-sentinel://...                             the same by TLS
 *
 * A server that belongs to a Redis Cluster is known by its greeting; more hosts
 * are tried in turn.
 *
 * OPTIONs, each also a field of vow_redis_opts: password-file, prefix, ca-file,
 * cert-file, key-file, server-name, seal-file, timeout (ms), and for Sentinel
 * sentinel-user and sentinel-password-file; for a socket also user and db, as
 * it has no place for them. Percent signs escape. A password
 * within the address is taken too (USER:PASSWORD@), and is shown nowhere; where
 * others see the address, as in the arguments of a command, do not write it
 * there. Without any, that of the environment counts: VOW_STORE_PASSWORD, unless
 * no_environment is set.
 */
#ifndef VOW_STORE_REDIS_H
#define VOW_STORE_REDIS_H

#include "vow/store.h"

VOW_BEGIN_DECLS

/* What is set here counts more than the address. NULL and 0: not set. */
typedef struct vow_redis_opts {
    size_t size; /* set by VOW_REDIS_OPTS */
    const char *user;
    const char *password;      /* copied, cleared when the store is closed */
    const char *password_file; /* its first line */
    const char *sentinel_user;
    const char *sentinel_password_file;
    const char *prefix;      /* of all keys and channels; NULL: "vow:" */
    const char *ca_file;     /* who signs servers; NULL: the system's */
    const char *cert_file;   /* ours, for servers that want to know us */
    const char *key_file;    /* of that */
    const char *server_name; /* expected in the certificate; NULL: the host */
    const char *seal_file;   /* 32 bytes, or 64 hex digits: results are sealed,
                                so that the server cannot read or swap them */
    uint64_t timeout_ms;     /* for an answer, and to connect; 0: 1000 */
    uint64_t recheck_ms;     /* how often who waits looks again; 0: 5000 */
    size_t value_max;        /* of a result; 0: 64 MiB */
    size_t inline_max;       /* of a result that comes with the wake-up, larger
                                ones are fetched; 0: 16 KiB */
    bool no_environment;     /* VOW_STORE_PASSWORD is that of another store */
} vow_redis_opts;
#define VOW_REDIS_OPTS(...)                                                    \
    (&(const vow_redis_opts){.size = sizeof(vow_redis_opts), __VA_ARGS__})

/* Open the store. It connects by itself, now and whenever the connection is
 * lost: the future does not wait for that, and a server that is down is told by
 * the steps (VOW_ESTORE and ops->explain). The future has a vow_store as
 * vow_ptr(). Rejected with a sentence: VOW_EINVAL (an address or option that is
 * none, a file that cannot be read), VOW_ENOTSUP, VOW_ENOMEM. Since 0.1. */
#define vow_store_redis_open(loop, url, opts)                                  \
    vow_store_redis_open_at(VOW_HERE, (loop), (url), (opts))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_store_redis_open_at(const char *site, vow_loop *loop,
                                    const char *url,
                                    const vow_redis_opts *opts);

VOW_END_DECLS

#endif
