/* SPDX-License-Identifier: MIT */
/* redis_url.h - an address that is being read: redis_url.c cuts it into pieces,
 * redis_where.c decides what counts. */
#ifndef VOW_STORE_REDIS_URL_H
#define VOW_STORE_REDIS_URL_H

#include "store/redis/redis_internal.h"

/* A piece of the address. */
struct vow__piece {
    const char *at; /* NULL: none */
    size_t n;
};

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
    struct vow__piece given[VOW__URL_OPTIONS];
    char *why;
    size_t why_size;
};

/* Hosts, user, password, master and database go to `w`, options to `given`. */
int vow__url_cut(struct vow__url *u, const char *url);
/* A text of its own, without escapes. */
int vow__url_decode(struct vow__url *u, struct vow__piece p, char **ret_text);
int vow__url_copy(struct vow__url *u, const char *text, char **ret_text);
/* Clear and free it; NULL from then on. */
void vow__url_forget(const struct vow_alloc *alloc, char **text);
bool vow__url_number(struct vow__piece p, uint64_t max, uint64_t *ret_number);
int vow__url_db(struct vow__url *u, struct vow__piece text);
/* VOW_EINVAL, with a sentence. */
int vow__url_refuse(struct vow__url *u, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
