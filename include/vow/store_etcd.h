/* SPDX-License-Identifier: MIT */
/* vow/store_etcd.h - a store for work that may happen only once: etcd 3.4 or
 * newer.
 *
 * Consistent rather than available: it promises VOW_SHARED, VOW_FENCED and
 * VOW_ONCE. Without a majority of its members nothing is promised and nothing
 * runs.
 *
 * The address:
 *
 *   etcd://[USER@]HOST[:PORT][,HOST[:PORT]...][?OPTION=VALUE&...]
 *   etcds://...                                       the same by TLS
 *
 * OPTIONs, each also a field of vow_etcd_opts: password-file, prefix, ca-file,
 * cert-file, key-file, results, timeout (ms). Percent signs escape. A password
 * within the address is taken too (USER:PASSWORD@), and is shown nowhere; where
 * others see the address, as in the arguments of a command, do not write it
 * there. Without any, that of the environment counts: VOW_STORE_PASSWORD.
 */
#ifndef VOW_STORE_ETCD_H
#define VOW_STORE_ETCD_H

#include "vow/store.h"

VOW_BEGIN_DECLS

/* What is set here counts more than the address. NULL and 0: not set. */
typedef struct vow_etcd_opts {
    size_t size; /* set by VOW_ETCD_OPTS */
    const char *user;
    const char *password;      /* copied, cleared when the store is closed */
    const char *password_file; /* its first line */
    const char *prefix;        /* of all keys; NULL: "vow/" */
    const char *ca_file;       /* who signs servers; NULL: the system's */
    const char *cert_file;     /* ours, for servers that want to know us */
    const char *key_file;      /* of that */
    const char *results;       /* address of another store, or a folder, for
                                  results above value_max; NULL: none */
    uint64_t timeout_ms;       /* for an answer; 0: 2000 */
    uint64_t recheck_ms;       /* how often who waits looks again; 0: 5000 */
    size_t value_max;          /* of a result that is kept in etcd; 0: 64 KiB */
    size_t connections;        /* at once; 0: 8 */
} vow_etcd_opts;
#define VOW_ETCD_OPTS(...)                                                     \
    (&(const vow_etcd_opts){.size = sizeof(vow_etcd_opts), __VA_ARGS__})

/* Open the store. It connects when it is first asked: the future does not wait
 * for that, and a cluster that is down is told by the steps (VOW_ESTORE and
 * ops->explain). The future has a vow_store as vow_ptr(). Rejected with a
 * sentence: VOW_EINVAL (an address or option that is none, a file that cannot
 * be read), VOW_ENOTSUP (libcurl or jansson is missing), VOW_ENOMEM. Since
 * 0.1. */
#define vow_store_etcd_open(loop, url, opts)                                   \
    vow_store_etcd_open_at(VOW_HERE, (loop), (url), (opts))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_store_etcd_open_at(const char *site, vow_loop *loop,
                                   const char *url, const vow_etcd_opts *opts);

VOW_END_DECLS

#endif
