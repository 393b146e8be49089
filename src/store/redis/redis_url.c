/* SPDX-License-Identifier: MIT */
/* redis_url.c - the form of an address of a store on Redis.
 *
 * HOW   net/address.c cuts the address. Here are the schemes, the path behind
 *       the hosts, the path of a socket, and the names of the options.
 * THREADS  any.
 */
#include "store/redis/redis_url.h"

#include <string.h>

enum {
    SOCKET_MAX = 107, /* of sun_path */
    DB_MAX = 1000000
};
_Static_assert((int)VOW__REDIS_HOSTS == (int)VOW__ADDRESS_HOSTS,
               "all hosts of an address have a place");
_Static_assert((int)VOW__URL_OPTIONS <= (int)VOW__ADDRESS_OPTIONS,
               "all options of an address have a place");

#define KNOWN                                                                  \
    "password-file, prefix, ca-file, cert-file, key-file, server-name, "       \
    "seal-file, timeout, sentinel-user, sentinel-password-file, user, db"
static const char *const option_names[VOW__URL_OPTIONS] = {
    "password-file", "prefix",
    "ca-file",       "cert-file",
    "key-file",      "server-name",
    "seal-file",     "timeout",
    "sentinel-user", "sentinel-password-file",
    "user",          "db",
};

static int cut_socket(struct vow__url *u, struct vow__piece rest);
static int cut_hosts(struct vow__url *u, struct vow__piece rest);
static void move_out(struct vow__url *u);
static int take_path(struct vow__url *u, struct vow__piece path);

int vow__url_cut(struct vow__url *u, const char *url)
{
    struct vow__piece rest = vow__piece_of(url);
    u->address.options = option_names;
    u->address.n_options = VOW__URL_OPTIONS;
    u->address.known = KNOWN;
    if (vow__piece_begins(&rest, "unix:"))
        return cut_socket(u, rest);
    if (vow__piece_begins(&rest, "rediss-sentinel://")) {
        u->sentinel = true;
        u->w->tls = true;
    } else if (vow__piece_begins(&rest, "redis-sentinel://")) {
        u->sentinel = true;
    } else if (vow__piece_begins(&rest, "rediss://")) {
        u->w->tls = true;
    } else if (!vow__piece_begins(&rest, "redis://")) {
        return vow__address_refuse(
            &u->address, "the address of a Redis begins with redis://, "
                         "rediss://, unix:, redis-sentinel:// or "
                         "rediss-sentinel://");
    }
    return cut_hosts(u, rest);
}

static int cut_socket(struct vow__url *u, struct vow__piece rest)
{
    u->local = true;
    struct vow__piece path = vow__piece_until(&rest, "?");
    if (path.n == 0 ||
        (path.n > 2 && memcmp(path.at, "//", 2) == 0 && path.at[2] != '/'))
        return vow__address_refuse(
            &u->address, "the path of a socket comes behind \"unix:\", without "
                         "a user or host");
    int rc = vow__address_decode(&u->address, path, &u->w->path);
    if (rc == 0 && strlen(u->w->path) > SOCKET_MAX)
        rc = vow__address_refuse(&u->address,
                                 "the path of a socket has at most %d bytes",
                                 (int)SOCKET_MAX);
    return rc < 0 ? rc : vow__address_options(&u->address, rest);
}

static int cut_hosts(struct vow__url *u, struct vow__piece rest)
{
    u->address.port = u->sentinel ? VOW__SENTINEL_PORT : VOW__REDIS_PORT;
    int rc = vow__address_hosts(&u->address, &rest);
    move_out(u);
    if (rc == 0)
        rc = take_path(u, vow__piece_until(&rest, "?"));
    return rc < 0 ? rc : vow__address_options(&u->address, rest);
}

static void move_out(struct vow__url *u)
{
    struct vow__address *a = &u->address;
    for (size_t i = 0; i < a->n_hosts; i++)
        u->w->hosts[i] = (struct vow__redis_host){.host = a->hosts[i].host,
                                                  .port = a->hosts[i].port};
    u->w->n_hosts = a->n_hosts;
    u->w->user = a->user;
    u->w->password = a->password;
    a->n_hosts = 0;
    a->user = NULL;
    a->password = NULL;
}

/* "", "/DB", for Sentinels "/MASTER" and "/MASTER/DB". */
static int take_path(struct vow__url *u, struct vow__piece path)
{
    if (u->sentinel) {
        if (path.n < 2 || path.at[1] == '/')
            return vow__address_refuse(
                &u->address, "behind the Sentinels comes the name of their "
                             "master: redis-sentinel://HOST/MASTER");
        path.at++;
        path.n--;
        int rc = vow__address_decode(&u->address, vow__piece_until(&path, "/"),
                                     &u->w->master);
        if (rc < 0)
            return rc;
    }
    if (path.n < 2)
        return 0;
    path.at++;
    path.n--;
    return vow__url_db(u, path);
}

int vow__url_db(struct vow__url *u, struct vow__piece text)
{
    uint64_t db;
    if (!vow__piece_number(text, DB_MAX, &db))
        return vow__address_refuse(&u->address,
                                   "the database is a number from 0 on");
    u->w->db = (uint32_t)db;
    return 0;
}
