/* SPDX-License-Identifier: MIT */
/* redis_where.c - reads the address, the options, and the files named there.
 *
 * HOW   The options struct counts more than the address. An option without an
 *       effect is refused. Files are read last.
 * INVARIANTS
 *   W1  a secret lies in memory of the allocator, or in a buffer of a function
 *       that clears the buffer before the return
 * THREADS  any.
 */
#include "store/redis/redis_url.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum {
    VALUE_MAX = 512 * 1024 * 1024, /* proto-max-bulk-len of the server */
    DEFAULT_TIMEOUT_MS = 1000,
    DEFAULT_RECHECK_MS = 5000,
    DEFAULT_VALUE_MAX = 64 * 1024 * 1024,
    DEFAULT_INLINE_MAX = 16 * 1024
};

static const vow_redis_opts no_opts = {.size = sizeof(vow_redis_opts)};

static int read_all(struct vow__url *u, const char *url);
static int check_opts(struct vow__url *u);
static int check_belonging(struct vow__url *u);
static int settle_texts(struct vow__url *u);
static int check_prefix(struct vow__url *u);
static int settle_numbers(struct vow__url *u);
static int settle_secrets(struct vow__url *u);
static int read_seal(struct vow__url *u, const char *file);
static void show(struct vow__redis_where *w);

int vow__redis_where(const char *url, const vow_redis_opts *opts,
                     const struct vow_alloc *alloc,
                     struct vow__redis_where *ret_where, char *why,
                     size_t why_size)
{
    struct vow__redis_where w = {.alloc = *alloc};
    struct vow__url u = {
        .w = &w,
        .opts = opts != NULL ? opts : &no_opts,
        .address = {.alloc = *alloc, .why = why, .why_size = why_size}};
    if (why_size > 0)
        why[0] = 0;
    int rc = read_all(&u, url);
    if (rc < 0) {
        vow__redis_where_fini(&w);
        return rc;
    }
    show(&w);
    *ret_where = w;
    sodium_memzero(w.seal, sizeof(w.seal)); /* keeps W1 */
    return 0;
}

void vow__redis_where_fini(struct vow__redis_where *w)
{
    for (size_t i = 0; i < w->n_hosts; i++)
        vow__address_forget(&w->alloc, &w->hosts[i].host);
    w->n_hosts = 0;
    char **texts[] = {&w->path,      &w->master,        &w->user,
                      &w->password,  &w->sentinel_user, &w->sentinel_password,
                      &w->prefix,    &w->server_name,   &w->ca_file,
                      &w->cert_file, &w->key_file};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        vow__address_forget(&w->alloc, texts[i]);
    sodium_memzero(w->seal, sizeof(w->seal));
    w->sealed = false;
}

static int read_all(struct vow__url *u, const char *url)
{
    static int (*const parts[])(struct vow__url *) = {
        check_belonging, settle_texts, check_prefix, settle_numbers,
        settle_secrets};
    int rc = check_opts(u);
    if (rc == 0)
        rc = vow__url_cut(u, url);
    for (size_t i = 0; rc == 0 && i < sizeof(parts) / sizeof(parts[0]); i++)
        rc = parts[i](u);
    return rc;
}

static int check_opts(struct vow__url *u)
{
    if (u->opts->size != sizeof(*u->opts))
        return vow__address_refuse(&u->address,
                                   "the options are not those of this version");
    if (u->opts->password != NULL && u->opts->password_file != NULL)
        return vow__address_refuse(
            &u->address, "a password or a file that has it, not both");
    return 0;
}

/* ---- what counts -------------------------------------------------------- */

/* What would be silently without effect is refused. */
static int check_belonging(struct vow__url *u)
{
    const vow_redis_opts *o = u->opts;
    const struct vow__piece *given = u->address.given;
    bool tls = given[VOW__URL_CA_FILE].at != NULL ||
               given[VOW__URL_CERT_FILE].at != NULL ||
               given[VOW__URL_KEY_FILE].at != NULL ||
               given[VOW__URL_SERVER_NAME].at != NULL || o->ca_file != NULL ||
               o->cert_file != NULL || o->key_file != NULL ||
               o->server_name != NULL;
    bool sentinel = given[VOW__URL_SENTINEL_USER].at != NULL ||
                    given[VOW__URL_SENTINEL_PASSWORD_FILE].at != NULL ||
                    o->sentinel_user != NULL ||
                    o->sentinel_password_file != NULL;
    if (tls && !u->w->tls)
        return vow__address_refuse(
            &u->address, "ca-file, cert-file, key-file and server-name are for "
                         "TLS: rediss://");
    if (sentinel && !u->sentinel)
        return vow__address_refuse(
            &u->address, "sentinel-user and sentinel-password-file are for "
                         "redis-sentinel://");
    if (!u->local &&
        (given[VOW__URL_USER].at != NULL || given[VOW__URL_DB].at != NULL))
        return vow__address_refuse(
            &u->address, "user and db are options of unix: only; here it is "
                         "redis://USER@HOST/DB");
    if (u->w->tls &&
        (given[VOW__URL_KEY_FILE].at != NULL || o->key_file != NULL) &&
        given[VOW__URL_CERT_FILE].at == NULL && o->cert_file == NULL)
        return vow__address_refuse(&u->address, "key-file goes with cert-file");
    return 0;
}

static int settle_texts(struct vow__url *u)
{
    struct vow__redis_where *w = u->w;
    const vow_redis_opts *o = u->opts;
    const struct {
        char **text;
        const char *set;
        enum vow__url_option option;
    } texts[] = {
        {&w->prefix, o->prefix, VOW__URL_PREFIX},
        {&w->ca_file, o->ca_file, VOW__URL_CA_FILE},
        {&w->cert_file, o->cert_file, VOW__URL_CERT_FILE},
        {&w->key_file, o->key_file, VOW__URL_KEY_FILE},
        {&w->server_name, o->server_name, VOW__URL_SERVER_NAME},
        {&w->sentinel_user, o->sentinel_user, VOW__URL_SENTINEL_USER},
        {&w->user, o->user, VOW__URL_USER},
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof(texts) / sizeof(texts[0]); i++)
        rc = vow__address_text(&u->address, texts[i].set, texts[i].option,
                               texts[i].text);
    if (rc == 0) /* without a file of its own the key is with its certificate */
        rc = vow__address_closed(
            &u->address, w->key_file != NULL ? w->key_file : w->cert_file);
    if (rc == 0 && w->prefix == NULL)
        rc = vow__address_copy(&u->address, "vow:", &w->prefix);
    return rc;
}

/* Braces would be the tag that chooses the slot; the others are patterns where
 * keys are listed. */
static int check_prefix(struct vow__url *u)
{
    return vow__address_prefix(&u->address, u->w->prefix, "{}[]*?\\^\"");
}

static int settle_numbers(struct vow__url *u)
{
    struct vow__redis_where *w = u->w;
    const vow_redis_opts *o = u->opts;
    uint64_t timeout;
    int rc = vow__address_timeout(&u->address, o->timeout_ms, VOW__URL_TIMEOUT,
                                  &timeout);
    if (rc < 0)
        return rc;
    if (timeout > VOW__ADDRESS_DAY_MS || o->recheck_ms > VOW__ADDRESS_DAY_MS)
        return vow__address_refuse(&u->address,
                                   "timeout and recheck are at most a day");
    if (o->value_max > VALUE_MAX)
        return vow__address_refuse(&u->address, "a result has at most %d MiB",
                                   (int)VALUE_MAX / 1024 / 1024);
    w->timeout_ms = timeout != 0 ? timeout : DEFAULT_TIMEOUT_MS;
    w->recheck_ms = o->recheck_ms != 0 ? o->recheck_ms : DEFAULT_RECHECK_MS;
    w->value_max = o->value_max != 0 ? o->value_max : DEFAULT_VALUE_MAX;
    w->inline_max = o->inline_max != 0 ? o->inline_max : DEFAULT_INLINE_MAX;
    if (w->inline_max > w->value_max)
        w->inline_max = w->value_max;
    return u->address.given[VOW__URL_DB].at != NULL
               ? vow__url_db(u, u->address.given[VOW__URL_DB])
               : 0;
}

/* ---- files -------------------------------------------------------------- */

static int settle_secrets(struct vow__url *u)
{
    struct vow__redis_where *w = u->w;
    struct vow__address *a = &u->address;
    const vow_redis_opts *o = u->opts;
    const struct vow__address_password from = {.text = o->password,
                                               .file = o->password_file,
                                               .option = VOW__URL_PASSWORD_FILE,
                                               .environment =
                                                   !o->no_environment};
    char *file = NULL;
    int rc = vow__address_password(a, &from, &w->password);
    if (rc == 0)
        rc = vow__address_text(a, o->sentinel_password_file,
                               VOW__URL_SENTINEL_PASSWORD_FILE, &file);
    if (rc == 0 && file != NULL)
        rc = vow__address_line(a, file, &w->sentinel_password);
    vow__address_forget(&w->alloc, &file);
    if (rc == 0)
        rc = vow__address_text(a, o->seal_file, VOW__URL_SEAL_FILE, &file);
    if (rc == 0 && file != NULL)
        rc = read_seal(u, file);
    vow__address_forget(&w->alloc, &file);
    return rc;
}

/* 32 bytes as they are, or in hex with a line's end behind it. */
static int read_seal(struct vow__url *u, const char *file)
{
    struct vow__redis_where *w = u->w;
    char secret[VOW__ADDRESS_SECRET + 1];
    size_t n = 0;
    size_t got = 0;
    int rc = vow__address_file(&u->address, file, secret, &n);
    if (rc == 0 && n == sizeof(w->seal)) {
        memcpy(w->seal, secret, n);
        w->sealed = true;
    } else if (rc == 0) {
        while (n > 0 && strchr(" \r\n", secret[n - 1]) != NULL)
            n--;
        w->sealed = n == 2 * sizeof(w->seal) &&
                    sodium_hex2bin(w->seal, sizeof(w->seal), secret, n, NULL,
                                   &got, NULL) == 0 &&
                    got == sizeof(w->seal);
        if (!w->sealed)
            rc = vow__address_refuse(
                &u->address, "%s: a key is 32 bytes, or 64 hex digits", file);
    }
    sodium_memzero(secret, sizeof(secret)); /* keeps W1 */
    return rc;
}

/* ---- for people --------------------------------------------------------- */

/* For people: nothing is escaped, and it may be cut. */
static void show(struct vow__redis_where *w)
{
    size_t room = sizeof(w->shown);
    size_t n = 0;
#define SHOW(...)                                                              \
    (n += n < room ? (size_t)snprintf(w->shown + n, room - n, __VA_ARGS__) : 0)
    if (w->path != NULL) {
        SHOW("unix:%s", w->path);
        return;
    }
    SHOW("redis%s%s://", w->tls ? "s" : "",
         w->master != NULL ? "-sentinel" : "");
    if (w->user != NULL)
        SHOW("%s@", w->user);
    for (size_t i = 0; i < w->n_hosts; i++) {
        const char *host = w->hosts[i].host;
        bool v6 = strchr(host, ':') != NULL;
        SHOW("%s%s%s%s:%u", i > 0 ? "," : "", v6 ? "[" : "", host,
             v6 ? "]" : "", (unsigned)w->hosts[i].port);
    }
    if (w->master != NULL)
        SHOW("/%s", w->master);
    if (w->db != 0)
        SHOW("/%u", (unsigned)w->db);
#undef SHOW
}
