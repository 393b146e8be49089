/* SPDX-License-Identifier: MIT */
/* redis_url.c - the address of a store on Redis, cut into its pieces.
 *
 * WHY   An address is written by people, and it may have a password in it. What
 *       is wrong with it must be said so that they can mend it, without showing
 *       that password to whoever sees the message.
 * HOW   SCHEME AUTHORITY PATH ? OPTIONS is cut first and decoded piece by piece
 *       afterwards, so that an escaped sign never cuts.
 * INVARIANTS
 *   U1  a sentence quotes nothing of the address
 *   U2  a secret lies in memory of the allocator, or in a buffer that is
 *       cleared before its function returns
 * LIMITS  16 hosts; a piece has at most 1024 bytes.
 * THREADS  any.
 */
#include "store/redis/redis_url.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    TEXT_MAX = 1024, /* bytes of a piece */
    HOST_MAX = 253,
    SOCKET_MAX = 107, /* of sun_path */
    DB_MAX = 1000000
};

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
static int take_user(struct vow__url *u, struct vow__piece user);
static int take_hosts(struct vow__url *u, struct vow__piece hosts);
static int take_host(struct vow__url *u, struct vow__piece host, size_t number);
static int take_path(struct vow__url *u, struct vow__piece path);
static int cut_options(struct vow__url *u, struct vow__piece rest);
static int take_option(struct vow__url *u, struct vow__piece option);
static int hex(char c);
static bool begins(struct vow__piece *p, const char *with);
static struct vow__piece until(struct vow__piece *rest, const char *signs);
static struct vow__piece whole(const char *text);

int vow__url_cut(struct vow__url *u, const char *url)
{
    struct vow__piece rest = whole(url);
    if (begins(&rest, "unix:"))
        return cut_socket(u, rest);
    if (begins(&rest, "rediss-sentinel://")) {
        u->sentinel = true;
        u->w->tls = true;
    } else if (begins(&rest, "redis-sentinel://")) {
        u->sentinel = true;
    } else if (begins(&rest, "rediss://")) {
        u->w->tls = true;
    } else if (!begins(&rest, "redis://")) {
        return vow__url_refuse(u,
                               "the address of a Redis begins with redis://, "
                               "rediss://, unix:, redis-sentinel:// or "
                               "rediss-sentinel://");
    }
    return cut_hosts(u, rest);
}

static int cut_socket(struct vow__url *u, struct vow__piece rest)
{
    u->local = true;
    struct vow__piece path = until(&rest, "?");
    if (path.n == 0)
        return vow__url_refuse(u,
                               "the path of a socket comes behind \"unix:\"");
    int rc = vow__url_decode(u, path, &u->w->path);
    if (rc == 0 && strlen(u->w->path) > SOCKET_MAX)
        rc = vow__url_refuse(u, "the path of a socket has at most %d bytes",
                             (int)SOCKET_MAX);
    return rc < 0 ? rc : cut_options(u, rest);
}

/* A user and password end at the last '@'. One behind the hosts would say that
 * a sign in them was not escaped: it was cut wrongly, and its pieces must not
 * be shown (keeps U1). */
static int cut_hosts(struct vow__url *u, struct vow__piece rest)
{
    struct vow__piece authority = until(&rest, "/?");
    if (memchr(rest.at, '@', rest.n) != NULL)
        return vow__url_refuse(
            u, "there is an @ behind the hosts; within a user, a "
               "password or a value write / as %%2F, ? as %%3F and "
               "@ as %%40");
    size_t at = authority.n;
    while (at > 0 && authority.at[at - 1] != '@')
        at--;
    int rc = 0;
    if (at > 0)
        rc = take_user(u, (struct vow__piece){authority.at, at - 1});
    if (rc == 0)
        rc = take_hosts(
            u, (struct vow__piece){authority.at + at, authority.n - at});
    if (rc == 0)
        rc = take_path(u, until(&rest, "?"));
    return rc < 0 ? rc : cut_options(u, rest);
}

static int take_user(struct vow__url *u, struct vow__piece user)
{
    struct vow__piece password = user;
    struct vow__piece name = until(&password, ":");
    int rc = name.n > 0 ? vow__url_decode(u, name, &u->w->user) : 0;
    if (rc == 0 && password.n > 1) {
        password.at++;
        password.n--;
        rc = vow__url_decode(u, password, &u->w->password);
    }
    return rc;
}

static int take_hosts(struct vow__url *u, struct vow__piece hosts)
{
    int rc = 0;
    for (size_t i = 1; rc == 0; i++) {
        rc = take_host(u, until(&hosts, ","), i);
        if (hosts.n == 0)
            break;
        hosts.at++;
        hosts.n--;
    }
    return rc;
}

static int take_host(struct vow__url *u, struct vow__piece host,
                     size_t number_of)
{
    struct vow__redis_where *w = u->w;
    uint64_t port = u->sentinel ? VOW__SENTINEL_PORT : VOW__REDIS_PORT;
    bool v6 = host.n > 0 && host.at[0] == '[';
    if (w->n_hosts == VOW__REDIS_HOSTS)
        return vow__url_refuse(u, "at most %d hosts", (int)VOW__REDIS_HOSTS);
    if (v6) {
        host.at++;
        host.n--;
    }
    struct vow__piece rest = host;
    struct vow__piece name = until(&rest, v6 ? "]" : ":");
    if (v6 && rest.n == 0)
        return vow__url_refuse(u, "host %zu: a ] is missing", number_of);
    if (v6) {
        rest.at++;
        rest.n--;
    }
    if (rest.n > 0 && memchr(rest.at + 1, ':', rest.n - 1) != NULL)
        return vow__url_refuse(
            u, "host %zu: an address of IPv6 is written in brackets",
            number_of);
    if (name.n == 0)
        return vow__url_refuse(u, "host %zu is empty", number_of);
    if (name.n > HOST_MAX)
        return vow__url_refuse(u, "host %zu is longer than %d bytes", number_of,
                               (int)HOST_MAX);
    if (rest.n > 0 &&
        (rest.at[0] != ':' ||
         !vow__url_number((struct vow__piece){rest.at + 1, rest.n - 1},
                          UINT16_MAX, &port) ||
         port == 0))
        return vow__url_refuse(
            u, "host %zu: the port is a number from 1 to 65535", number_of);
    char *text = NULL;
    int rc = vow__url_decode(u, name, &text);
    if (rc < 0 || text == NULL)
        return rc;
    w->hosts[w->n_hosts++] =
        (struct vow__redis_host){.host = text, .port = (uint16_t)port};
    for (const char *c = text; *c != 0; c++)
        if ((unsigned char)*c <= ' ' || strchr("\"#<>[]\\^`{|}@/\x7f", *c) ||
            (*c == ':' && !v6))
            return vow__url_refuse(u, "host %zu has a sign that no host has",
                                   number_of);
    return 0;
}

/* "", "/DB", for Sentinels "/MASTER" and "/MASTER/DB". */
static int take_path(struct vow__url *u, struct vow__piece path)
{
    if (u->sentinel) {
        if (path.n < 2 || path.at[1] == '/')
            return vow__url_refuse(
                u, "behind the Sentinels comes the name of their "
                   "master: redis-sentinel://HOST/MASTER");
        path.at++;
        path.n--;
        int rc = vow__url_decode(u, until(&path, "/"), &u->w->master);
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
    if (!vow__url_number(text, DB_MAX, &db))
        return vow__url_refuse(u, "the database is a number from 0 on");
    u->w->db = (uint32_t)db;
    return 0;
}

static int cut_options(struct vow__url *u, struct vow__piece rest)
{
    int rc = 0;
    while (rc == 0 && rest.n > 0) {
        rest.at++; /* ? or & */
        rest.n--;
        struct vow__piece option = until(&rest, "&");
        if (option.n > 0)
            rc = take_option(u, option);
    }
    return rc;
}

static int take_option(struct vow__url *u, struct vow__piece option)
{
    struct vow__piece value = option;
    struct vow__piece name = until(&value, "=");
    for (size_t i = 0; i < VOW__URL_OPTIONS; i++) {
        if (name.n != strlen(option_names[i]) ||
            memcmp(name.at, option_names[i], name.n) != 0)
            continue;
        if (u->given[i].at != NULL)
            return vow__url_refuse(u, "option %s is given twice",
                                   option_names[i]);
        if (value.n < 2)
            return vow__url_refuse(u, "option %s has no value",
                                   option_names[i]);
        u->given[i] = (struct vow__piece){value.at + 1, value.n - 1};
        return 0;
    }
    if (name.n == 8 && memcmp(name.at, "password", 8) == 0)
        return vow__url_refuse(
            u, "a password is not an option: write it to a file, and "
               "give that with password-file");
    return vow__url_refuse(u, "an option that is none; there are " KNOWN);
}

/* ---- small things ------------------------------------------------------- */

int vow__url_decode(struct vow__url *u, struct vow__piece p, char **ret_text)
{
    char text[TEXT_MAX + 1];
    size_t n = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p.n; i++) {
        char c = p.at[i];
        if (c == '%') {
            int high = i + 2 < p.n ? hex(p.at[i + 1]) : -1;
            int low = high >= 0 ? hex(p.at[i + 2]) : -1;
            if (low < 0)
                rc = vow__url_refuse(
                    u, "behind a %% come two hex digits; %% itself is "
                       "written as %%25");
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (rc == 0 && c == 0)
            rc = vow__url_refuse(u, "there is a zero byte in the address");
        if (rc == 0 && n == TEXT_MAX)
            rc = vow__url_refuse(u,
                                 "a part of the address has more than %d bytes",
                                 (int)TEXT_MAX);
        if (rc == 0)
            text[n++] = c;
    }
    text[n] = 0;
    if (rc == 0)
        rc = vow__url_copy(u, text, ret_text);
    sodium_memzero(text, sizeof(text)); /* keeps U2 */
    return rc;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int vow__url_copy(struct vow__url *u, const char *text, char **ret_text)
{
    size_t size = strlen(text) + 1;
    char *to = vow__mem_new(&u->w->alloc, size);
    if (to == NULL)
        return VOW_ENOMEM;
    memcpy(to, text, size);
    *ret_text = to;
    return 0;
}

void vow__url_forget(const struct vow_alloc *alloc, char **text)
{
    if (*text == NULL)
        return;
    size_t size = strlen(*text) + 1;
    sodium_memzero(*text, size);
    vow__mem_free(alloc, *text, size);
    *text = NULL;
}

bool vow__url_number(struct vow__piece p, uint64_t max, uint64_t *ret_number)
{
    uint64_t n = 0;
    if (p.n == 0 || p.n > 18)
        return false;
    for (size_t i = 0; i < p.n; i++) {
        if (p.at[i] < '0' || p.at[i] > '9')
            return false;
        n = n * 10 + (uint64_t)(p.at[i] - '0');
    }
    *ret_number = n;
    return n <= max;
}

static bool begins(struct vow__piece *p, const char *with)
{
    size_t n = strlen(with);
    if (p->n < n || memcmp(p->at, with, n) != 0)
        return false;
    p->at += n;
    p->n -= n;
    return true;
}

/* What stands before the first of the signs; that one stays in the rest. */
static struct vow__piece until(struct vow__piece *rest, const char *signs)
{
    struct vow__piece before = {rest->at, 0};
    while (before.n < rest->n && strchr(signs, rest->at[before.n]) == NULL)
        before.n++;
    rest->at += before.n;
    rest->n -= before.n;
    return before;
}

static struct vow__piece whole(const char *text)
{
    return (struct vow__piece){text, strlen(text)};
}

int vow__url_refuse(struct vow__url *u, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(u->why, u->why_size, format, args);
    va_end(args);
    return VOW_EINVAL;
}
