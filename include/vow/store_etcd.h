/* SPDX-License-Identifier: MIT */
/* vow/store_etcd.h - a store for many machines, also for work that may happen
 * only once: etcd 3.4 or newer.
 *
 * Consistent rather than available: the store supports VOW_SHARED, VOW_FENCED
 * and VOW_ONCE. Without a majority of the etcd members no step succeeds, and
 * VOW_FENCED and VOW_ONCE work does not start.
 *
 * The address:
 *
 *   etcd://[USER@]HOST[:PORT][,HOST[:PORT]...][?OPTION=VALUE&...]
 *   etcds://...                                       as etcd://, by TLS
 *
 * OPTIONs, each also a field of vow_etcd_opts: password-file, prefix, ca-file,
 * cert-file, key-file, results, timeout (ms). %HH escapes a character. The
 * address may contain a password (USER:PASSWORD@), which is never shown; do not
 * use a password where other users see the address, as in the arguments of a
 * command. For a user without a password, the environment variable
 * VOW_STORE_PASSWORD is used.
 */
#ifndef VOW_STORE_ETCD_H
#define VOW_STORE_ETCD_H

#include "vow/store.h"

VOW_BEGIN_DECLS

/* A field set here overrides the address. NULL and 0: not set. */
typedef struct vow_etcd_opts {
    size_t size; /* set by VOW_ETCD_OPTS */
    const char *user;
    const char *password;      /* copied, cleared when the store is closed */
    const char *password_file; /* the first line is the password */
    const char *prefix;        /* of all keys; NULL: "vow/" */
    const char *ca_file;       /* trusted CAs; NULL: the system's */
    const char *cert_file;     /* client certificate */
    const char *key_file;      /* key of cert_file; NULL: in cert_file */
    const char *results;       /* address of another store, or a folder, for
                                  results above value_max; NULL: none */
    uint64_t timeout_ms;       /* for an answer; 0: 2000 */
    uint64_t recheck_ms;       /* a waiter looks again after this; 0: 5000 */
    size_t value_max;          /* bytes of a result kept in etcd; 0: 64 KiB */
    size_t connections;        /* at a time; 0: 8 */
} vow_etcd_opts;
#define VOW_ETCD_OPTS(...)                                                     \
    (&(const vow_etcd_opts){.size = sizeof(vow_etcd_opts), __VA_ARGS__})

/* Opens the store. The store connects with the first step; the future does not
 * wait for the connection. While the cluster is down, steps end with
 * VOW_ESTORE, and ops->explain says why. The future has a vow_store as
 * vow_ptr(). Rejected, with a message: VOW_EINVAL (an invalid address or
 * option, a file that cannot be read), VOW_ENOTSUP (jansson is
 * missing, or for TLS OpenSSL), VOW_ENOMEM. Since 0.1. */
#define vow_store_etcd_open(loop, url, opts)                                   \
    vow_store_etcd_open_at(VOW_HERE, (loop), (url), (opts))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_store_etcd_open_at(const char *site, vow_loop *loop,
                                   const char *url, const vow_etcd_opts *opts);

VOW_END_DECLS

#endif
