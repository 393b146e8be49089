/* SPDX-License-Identifier: MIT */
/* redis_url.h - an address that is being read: redis_url.c knows what addresses
 * of Redis look like, redis_where.c decides what counts. */
#ifndef VOW_STORE_REDIS_URL_H
#define VOW_STORE_REDIS_URL_H

#include "store/net/address.h"
#include "store/redis/redis_internal.h"

enum vow__url_option {
    VOW__URL_PASSWORD_FILE,
    VOW__URL_PREFIX,
    VOW__URL_CA_FILE,
    VOW__URL_CERT_FILE,
    VOW__URL_KEY_FILE,
    VOW__URL_SERVER_NAME,
    VOW__URL_SEAL_FILE,
    VOW__URL_TIMEOUT,
    VOW__URL_SENTINEL_USER,
    VOW__URL_SENTINEL_PASSWORD_FILE,
    VOW__URL_USER,
    VOW__URL_DB,
    VOW__URL_OPTIONS
};

struct vow__url {
    struct vow__redis_where *w;
    const vow_redis_opts *opts;
    bool sentinel;
    bool local; /* unix: */
    struct vow__address address;
};

/* Hosts, user, password, master and database go to `w`, options stay in the
 * address. */
int vow__url_cut(struct vow__url *u, const char *url);
int vow__url_db(struct vow__url *u, struct vow__piece text);

#endif
