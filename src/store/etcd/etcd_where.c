/* SPDX-License-Identifier: MIT */
/* etcd_where.c - all that an address of etcd, its options and the file they
 * name say.
 *
 * HOW   See net/address.c, which cuts it. What would be silently without effect
 *       is refused: a path, files for TLS without it, a user without a password
 *       or the other way round. Only a password of the environment may be meant
 *       for somebody else.
 * INVARIANTS
 *   W1  `shown`, and no sentence, has a password in it
 * THREADS  any.
 */
#include "store/etcd/etcd_internal.h"

#include "store/net/address.h"

#include <stdio.h>
#include <string.h>

enum {
    DEFAULT_TIMEOUT_MS = 2000,
    DEFAULT_RECHECK_MS = 5000,
    DEFAULT_VALUE_MAX = 64 * 1024,
    DEFAULT_CONNECTIONS = 8,
    VALUE_MAX = 1024 * 1024, /* a request has at most 1.5 MiB */
    CONNECTIONS_MAX = 1024,
};

enum option {
    PASSWORD_FILE,
    PREFIX,
    CA_FILE,
    CERT_FILE,
    KEY_FILE,
    RESULTS,
    TIMEOUT,
    OPTIONS
};
#define KNOWN                                                                  \
    "password-file, prefix, ca-file, cert-file, key-file, results, timeout"
static const char *const option_names[OPTIONS] = {
    "password-file", "prefix",  "ca-file", "cert-file",
    "key-file",      "results", "timeout",
};

_Static_assert((int)VOW__ETCD_HOSTS == (int)VOW__ADDRESS_HOSTS,
               "all hosts of an address have a place");
_Static_assert((int)VOW__ETCD_PREFIX_MAX == (int)VOW__ADDRESS_PREFIX,
               "a key has room for its prefix");

/* An address that is being read. */
struct reading {
    struct vow__etcd_where *w;
    const vow_etcd_opts *opts;
    struct vow__address address;
    bool tls;
};

static const vow_etcd_opts no_opts = {.size = sizeof(vow_etcd_opts)};

static int read_all(struct reading *r, const char *url);
static int check_opts(struct reading *r);
static int cut(struct reading *r, const char *url);
static int take_hosts(struct reading *r);
static int check_belonging(struct reading *r);
static int settle_texts(struct reading *r);
static int settle_numbers(struct reading *r);
static int settle_password(struct reading *r);
static void show(struct vow__etcd_where *w);

int vow__etcd_where(const char *url, const vow_etcd_opts *opts,
                    const struct vow_alloc *alloc,
                    struct vow__etcd_where *ret_where, char *why,
                    size_t why_size)
{
    struct vow__etcd_where w = {.alloc = *alloc};
    struct reading r = {.w = &w,
                        .opts = opts != NULL ? opts : &no_opts,
                        .address = {.alloc = *alloc,
                                    .why = why,
                                    .why_size = why_size,
                                    .options = option_names,
                                    .n_options = OPTIONS,
                                    .known = KNOWN,
                                    .port = VOW__ETCD_PORT}};
    if (why_size > 0)
        why[0] = 0;
    int rc = read_all(&r, url);
    vow__address_fini(&r.address);
    if (rc < 0) {
        vow__etcd_where_fini(&w);
        return rc;
    }
    show(&w);
    *ret_where = w;
    return 0;
}

void vow__etcd_where_fini(struct vow__etcd_where *w)
{
    char **texts[] = {&w->user,      &w->password, &w->prefix, &w->ca_file,
                      &w->cert_file, &w->key_file, &w->results};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        vow__address_forget(&w->alloc, texts[i]);
}

static int read_all(struct reading *r, const char *url)
{
    static int (*const parts[])(struct reading *) = {
        check_belonging, settle_texts, settle_numbers, settle_password};
    int rc = check_opts(r);
    if (rc == 0)
        rc = cut(r, url);
    for (size_t i = 0; rc == 0 && i < sizeof(parts) / sizeof(parts[0]); i++)
        rc = parts[i](r);
    return rc;
}

static int check_opts(struct reading *r)
{
    if (r->opts->size != sizeof(*r->opts))
        return vow__address_refuse(&r->address,
                                   "the options are not those of this version");
    if (r->opts->password != NULL && r->opts->password_file != NULL)
        return vow__address_refuse(
            &r->address, "a password or a file that has it, not both");
    return 0;
}

/* ---- hosts --------------------------------------------------------------- */

static int cut(struct reading *r, const char *url)
{
    struct vow__address *a = &r->address;
    struct vow__piece rest = vow__piece_of(url);
    r->tls = vow__piece_begins(&rest, "etcds://");
    if (!r->tls && !vow__piece_begins(&rest, "etcd://"))
        return vow__address_refuse(
            a, "the address of an etcd begins with etcd:// or etcds://");
    int rc = vow__address_hosts(a, &rest);
    if (rc < 0)
        return rc;
    if (vow__piece_until(&rest, "?").n > 1)
        return vow__address_refuse(
            a, "an address of etcd has no path behind its hosts; what all "
               "keys begin with is the option prefix");
    rc = vow__address_options(a, rest);
    r->w->user = a->user;
    r->w->password = a->password;
    a->user = NULL;
    a->password = NULL;
    return rc < 0 ? rc : take_hosts(r);
}

/* They become part of requests by HTTP: what has a meaning there is refused. */
static int take_hosts(struct reading *r)
{
    struct vow__address *a = &r->address;
    r->w->tls = r->tls;
    for (size_t i = 0; i < a->n_hosts; i++) {
        const char *host = a->hosts[i].host;
        bool v6 = strchr(host, ':') != NULL;
        for (const char *c = host; *c != 0; c++)
            if (strchr("!$&'()*+,;=?~", *c) != NULL || (*c == '%' && !v6))
                return vow__address_refuse(
                    a, "host %zu has a sign that no host has", i + 1);
        if (vow__http_server(host, a->hosts[i].port,
                             &r->w->hosts[r->w->n_hosts++]) < 0)
            return vow__address_refuse(a, "host %zu is too long", i + 1);
    }
    return 0;
}

/* ---- what counts --------------------------------------------------------- */

static int check_belonging(struct reading *r)
{
    const vow_etcd_opts *o = r->opts;
    const struct vow__piece *given = r->address.given;
    bool ca = given[CA_FILE].at != NULL || o->ca_file != NULL;
    bool cert = given[CERT_FILE].at != NULL || o->cert_file != NULL;
    bool key = given[KEY_FILE].at != NULL || o->key_file != NULL;
    if ((ca || cert || key) && !r->tls)
        return vow__address_refuse(
            &r->address,
            "ca-file, cert-file and key-file are for TLS: etcds://");
    if (key && !cert)
        return vow__address_refuse(&r->address, "key-file goes with cert-file");
    return 0;
}

static int settle_texts(struct reading *r)
{
    struct vow__etcd_where *w = r->w;
    const vow_etcd_opts *o = r->opts;
    const struct {
        char **text;
        const char *set;
        enum option option;
    } texts[] = {
        {&w->prefix, o->prefix, PREFIX},
        {&w->ca_file, o->ca_file, CA_FILE},
        {&w->cert_file, o->cert_file, CERT_FILE},
        {&w->key_file, o->key_file, KEY_FILE},
        {&w->results, o->results, RESULTS},
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof(texts) / sizeof(texts[0]); i++)
        rc = vow__address_text(&r->address, texts[i].set, texts[i].option,
                               texts[i].text);
    if (rc == 0) /* without a file of its own the key is with its certificate */
        rc = vow__address_closed(
            &r->address, w->key_file != NULL ? w->key_file : w->cert_file);
    if (rc == 0 && o->user != NULL) {
        vow__address_forget(&w->alloc, &w->user);
        rc = vow__address_copy(&r->address, o->user, &w->user);
    }
    if (rc == 0 && w->prefix == NULL)
        rc = vow__address_copy(&r->address, "vow/", &w->prefix);
    return rc < 0 ? rc : vow__address_prefix(&r->address, w->prefix, "");
}

static int settle_numbers(struct reading *r)
{
    struct vow__etcd_where *w = r->w;
    const vow_etcd_opts *o = r->opts;
    uint64_t timeout;
    int rc =
        vow__address_timeout(&r->address, o->timeout_ms, TIMEOUT, &timeout);
    if (rc < 0)
        return rc;
    if (timeout > VOW__ADDRESS_DAY_MS || o->recheck_ms > VOW__ADDRESS_DAY_MS)
        return vow__address_refuse(&r->address,
                                   "timeout and recheck are at most a day");
    if (o->value_max > VALUE_MAX)
        return vow__address_refuse(
            &r->address, "a result that is kept in etcd has at most %d KiB",
            (int)VALUE_MAX / 1024);
    if (o->connections > CONNECTIONS_MAX)
        return vow__address_refuse(&r->address, "at most %d connections",
                                   (int)CONNECTIONS_MAX);
    w->timeout_ms = timeout != 0 ? timeout : DEFAULT_TIMEOUT_MS;
    w->recheck_ms = o->recheck_ms != 0 ? o->recheck_ms : DEFAULT_RECHECK_MS;
    w->value_max = o->value_max != 0 ? o->value_max : DEFAULT_VALUE_MAX;
    w->connections = o->connections != 0 ? o->connections : DEFAULT_CONNECTIONS;
    return 0;
}

static int settle_password(struct reading *r)
{
    struct vow__etcd_where *w = r->w;
    const struct vow__address_password from = {.text = r->opts->password,
                                               .file = r->opts->password_file,
                                               .option = PASSWORD_FILE,
                                               .environment = w->user != NULL};
    int rc = vow__address_password(&r->address, &from, &w->password);
    if (rc < 0)
        return rc;
    if (w->user == NULL && w->password != NULL)
        return vow__address_refuse(
            &r->address, "a password is that of a user: etcd://USER@HOST");
    if (w->user != NULL && w->password == NULL)
        return vow__address_refuse(
            &r->address, "a user has a password: give a password-file");
    return 0;
}

/* ---- for people ---------------------------------------------------------- */

/* Nothing is escaped, and it may be cut. Keeps W1. */
static void show(struct vow__etcd_where *w)
{
    size_t room = sizeof(w->shown);
    size_t n = 0;
#define SHOW(...)                                                              \
    (n += n < room ? (size_t)snprintf(w->shown + n, room - n, __VA_ARGS__) : 0)
    SHOW("etcd%s://", w->tls ? "s" : "");
    if (w->user != NULL)
        SHOW("%s@", w->user);
    for (size_t i = 0; i < w->n_hosts; i++)
        SHOW("%s%s", i > 0 ? "," : "", w->hosts[i].shown);
#undef SHOW
}
