/* SPDX-License-Identifier: MIT */
/* address.c - the address of a store on a server: its pieces, and the secrets
 * that belong to it.
 *
 * WHY   An address is written by people, and it may have a password in it. What
 *       is wrong with it must be said so that they can mend it, without showing
 *       that password to whoever sees the message.
 * HOW   SCHEME AUTHORITY PATH ? OPTIONS is cut first and decoded piece by piece
 *       afterwards, so that an escaped sign never cuts. What the caller's
 *       options have counts more than the address. Files are read last.
 * INVARIANTS
 *   U1  a sentence quotes nothing of the address
 *   U2  a secret lies in memory of the allocator, or in a buffer that is
 *       cleared before its function returns
 * LIMITS  16 hosts; a piece has at most 1024 bytes, a file with a secret 4096.
 * THREADS  any.
 */
#include "store/net/address.h"

#include "vow/error.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TEXT_MAX = 1024, /* bytes of a piece */
    HOST_MAX = 253
};

static int check_closed(struct vow__address *a, const char *file,
                        const struct stat *st);
static int take_user(struct vow__address *a, struct vow__piece user);
static int take_host(struct vow__address *a, struct vow__piece host,
                     size_t number_of);
static int keep_host(struct vow__address *a, struct vow__piece name,
                     uint16_t port, bool v6);
static int take_option(struct vow__address *a, struct vow__piece option);
static int hex(char c);

void vow__address_fini(struct vow__address *a)
{
    for (size_t i = 0; i < a->n_hosts; i++)
        vow__address_forget(&a->alloc, &a->hosts[i].host);
    a->n_hosts = 0;
    vow__address_forget(&a->alloc, &a->user);
    vow__address_forget(&a->alloc, &a->password);
}

/* ---- cutting ------------------------------------------------------------- */

/* A user and password end at the last '@'. One behind the hosts would say that
 * a sign in them was not escaped: it was cut wrongly, and its pieces must not
 * be shown (keeps U1). */
int vow__address_hosts(struct vow__address *a, struct vow__piece *rest)
{
    struct vow__piece authority = vow__piece_until(rest, "/?");
    if (memchr(rest->at, '@', rest->n) != NULL)
        return vow__address_refuse(
            a, "there is an @ behind the hosts; within a user, a "
               "password or a value write / as %%2F, ? as %%3F and "
               "@ as %%40");
    size_t at = authority.n;
    while (at > 0 && authority.at[at - 1] != '@')
        at--;
    int rc = 0;
    if (at > 0)
        rc = take_user(a, (struct vow__piece){authority.at, at - 1});
    struct vow__piece hosts = {authority.at + at, authority.n - at};
    for (size_t i = 1; rc == 0; i++) {
        rc = take_host(a, vow__piece_until(&hosts, ","), i);
        if (hosts.n == 0)
            break;
        hosts.at++;
        hosts.n--;
    }
    return rc;
}

static int take_user(struct vow__address *a, struct vow__piece user)
{
    struct vow__piece password = user;
    struct vow__piece name = vow__piece_until(&password, ":");
    int rc = name.n > 0 ? vow__address_decode(a, name, &a->user) : 0;
    if (rc == 0 && password.n > 1) {
        password.at++;
        password.n--;
        rc = vow__address_decode(a, password, &a->password);
    }
    return rc;
}

static int take_host(struct vow__address *a, struct vow__piece host,
                     size_t number_of)
{
    uint64_t port = a->port;
    bool v6 = host.n > 0 && host.at[0] == '[';
    if (a->n_hosts == VOW__ADDRESS_HOSTS)
        return vow__address_refuse(a, "at most %d hosts",
                                   (int)VOW__ADDRESS_HOSTS);
    if (v6) {
        host.at++;
        host.n--;
    }
    struct vow__piece rest = host;
    struct vow__piece name = vow__piece_until(&rest, v6 ? "]" : ":");
    if (v6 && rest.n == 0)
        return vow__address_refuse(a, "host %zu: a ] is missing", number_of);
    if (v6) {
        rest.at++;
        rest.n--;
    }
    if (rest.n > 0 && memchr(rest.at + 1, ':', rest.n - 1) != NULL)
        return vow__address_refuse(
            a, "host %zu: an address of IPv6 is written in brackets",
            number_of);
    if (name.n == 0)
        return vow__address_refuse(a, "host %zu is empty", number_of);
    if (name.n > HOST_MAX)
        return vow__address_refuse(a, "host %zu is longer than %d bytes",
                                   number_of, (int)HOST_MAX);
    if (rest.n > 0 &&
        (rest.at[0] != ':' ||
         !vow__piece_number((struct vow__piece){rest.at + 1, rest.n - 1},
                            UINT16_MAX, &port) ||
         port == 0))
        return vow__address_refuse(
            a, "host %zu: the port is a number from 1 to 65535", number_of);
    return keep_host(a, name, (uint16_t)port, v6);
}

static int keep_host(struct vow__address *a, struct vow__piece name,
                     uint16_t port, bool v6)
{
    char *text = NULL;
    int rc = vow__address_decode(a, name, &text);
    if (rc < 0 || text == NULL)
        return rc;
    a->hosts[a->n_hosts].host = text;
    a->hosts[a->n_hosts++].port = port;
    for (const char *c = text; *c != 0; c++)
        if ((unsigned char)*c <= ' ' || strchr("\"#<>[]\\^`{|}@/\x7f", *c) ||
            (*c == ':' && !v6))
            return vow__address_refuse(
                a, "host %zu has a sign that no host has", a->n_hosts);
    return 0;
}

int vow__address_options(struct vow__address *a, struct vow__piece rest)
{
    int rc = 0;
    while (rc == 0 && rest.n > 0) {
        rest.at++; /* ? or & */
        rest.n--;
        struct vow__piece option = vow__piece_until(&rest, "&");
        if (option.n > 0)
            rc = take_option(a, option);
    }
    return rc;
}

static int take_option(struct vow__address *a, struct vow__piece option)
{
    struct vow__piece value = option;
    struct vow__piece name = vow__piece_until(&value, "=");
    for (size_t i = 0; i < a->n_options; i++) {
        const char *known = a->options[i];
        if (name.n != strlen(known) || memcmp(name.at, known, name.n) != 0)
            continue;
        if (a->given[i].at != NULL)
            return vow__address_refuse(a, "option %s is given twice", known);
        if (value.n < 2)
            return vow__address_refuse(a, "option %s has no value", known);
        a->given[i] = (struct vow__piece){value.at + 1, value.n - 1};
        return 0;
    }
    if (name.n == 8 && memcmp(name.at, "password", 8) == 0)
        return vow__address_refuse(
            a, "a password is not an option: write it to a file, and "
               "give that with password-file");
    return vow__address_refuse(a, "an option that is none; there are %s",
                               a->known);
}

/* ---- what counts --------------------------------------------------------- */

int vow__address_text(struct vow__address *a, const char *set, size_t option,
                      char **text)
{
    if (set != NULL) {
        vow__address_forget(&a->alloc, text);
        return vow__address_copy(a, set, text);
    }
    return a->given[option].at == NULL
               ? 0
               : vow__address_decode(a, a->given[option], text);
}

int vow__address_password(struct vow__address *a,
                          const struct vow__address_password *from,
                          char **password)
{
    struct vow__piece given = a->given[from->option];
    if (from->text != NULL || from->file != NULL) {
        vow__address_forget(&a->alloc, password);
        return from->text != NULL ? vow__address_copy(a, from->text, password)
                                  : vow__address_line(a, from->file, password);
    }
    const char *secret =
        from->environment ? secure_getenv("VOW_STORE_PASSWORD") : NULL;
    if (given.at == NULL && *password == NULL && secret != NULL &&
        secret[0] != 0)
        return vow__address_copy(a, secret, password);
    if (given.at == NULL)
        return 0;
    if (*password != NULL)
        return vow__address_refuse(a,
                                   "a password or a password-file, not both");
    char *file = NULL;
    int rc = vow__address_decode(a, given, &file);
    if (file == NULL)
        return rc;
    rc = vow__address_line(a, file, password);
    vow__address_forget(&a->alloc, &file);
    return rc;
}

int vow__address_prefix(struct vow__address *a, const char *prefix,
                        const char *without)
{
    if (strlen(prefix) > VOW__ADDRESS_PREFIX)
        return vow__address_refuse(a, "the prefix has at most %d bytes",
                                   (int)VOW__ADDRESS_PREFIX);
    for (const char *c = prefix; *c != 0; c++)
        if (*c <= ' ' || *c > '~' || strchr(without, *c) != NULL)
            return vow__address_refuse(
                a,
                "the prefix has letters, digits and signs, but no "
                "blanks%s%s",
                without[0] != 0 ? " and none of " : "", without);
    return 0;
}

int vow__address_timeout(struct vow__address *a, uint64_t set_ms, size_t option,
                         uint64_t *ret_ms)
{
    uint64_t ms = set_ms;
    if (ms == 0 && a->given[option].at != NULL &&
        (!vow__piece_number(a->given[option], VOW__ADDRESS_DAY_MS, &ms) ||
         ms == 0))
        return vow__address_refuse(
            a, "timeout is a number of milliseconds, from 1 to %d",
            (int)VOW__ADDRESS_DAY_MS);
    *ret_ms = ms;
    return 0;
}

/* ---- pieces -------------------------------------------------------------- */

struct vow__piece vow__piece_of(const char *text)
{
    return (struct vow__piece){text, strlen(text)};
}

bool vow__piece_begins(struct vow__piece *p, const char *with)
{
    size_t n = strlen(with);
    if (p->n < n || memcmp(p->at, with, n) != 0)
        return false;
    p->at += n;
    p->n -= n;
    return true;
}

struct vow__piece vow__piece_until(struct vow__piece *rest, const char *signs)
{
    struct vow__piece before = {rest->at, 0};
    while (before.n < rest->n && strchr(signs, rest->at[before.n]) == NULL)
        before.n++;
    rest->at += before.n;
    rest->n -= before.n;
    return before;
}

bool vow__piece_number(struct vow__piece p, uint64_t max, uint64_t *ret_number)
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

int vow__address_decode(struct vow__address *a, struct vow__piece p,
                        char **ret_text)
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
                rc = vow__address_refuse(
                    a, "behind a %% come two hex digits; %% itself is "
                       "written as %%25");
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (rc == 0 && c == 0)
            rc = vow__address_refuse(a, "there is a zero byte in the address");
        if (rc == 0 && n == TEXT_MAX)
            rc = vow__address_refuse(
                a, "a part of the address has more than %d bytes",
                (int)TEXT_MAX);
        if (rc == 0)
            text[n++] = c;
    }
    text[n] = 0;
    if (rc == 0)
        rc = vow__address_copy(a, text, ret_text);
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

int vow__address_copy(struct vow__address *a, const char *text, char **ret_text)
{
    size_t size = strlen(text) + 1;
    char *to = vow__mem_new(&a->alloc, size);
    if (to == NULL)
        return VOW_ENOMEM;
    memcpy(to, text, size);
    *ret_text = to;
    return 0;
}

void vow__address_forget(const struct vow_alloc *alloc, char **text)
{
    if (*text == NULL)
        return;
    size_t size = strlen(*text) + 1;
    sodium_memzero(*text, size);
    vow__mem_free(alloc, *text, size);
    *text = NULL;
}

int vow__address_refuse(struct vow__address *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(a->why, a->why_size, format, args);
    va_end(args);
    return VOW_EINVAL;
}

/* ---- files --------------------------------------------------------------- */

int vow__address_closed(struct vow__address *a, const char *file)
{
    struct stat st;
    if (file == NULL || stat(file, &st) != 0)
        return 0; /* who opens it tells */
    return check_closed(a, file, &st);
}

/* A secret that everybody can read is none, and one that another user has
 * written is that user's. */
static int check_closed(struct vow__address *a, const char *file,
                        const struct stat *st)
{
    if (!S_ISREG(st->st_mode))
        return 0;
    if (st->st_uid != 0 && st->st_uid != geteuid())
        return vow__address_refuse(a,
                                   "%s belongs to user %ld: use a file of your "
                                   "own, or of root",
                                   file, (long)st->st_uid);
    if ((st->st_mode & S_IRWXO) != 0)
        return vow__address_refuse(a,
                                   "%s can be read by everybody (mode %04o): "
                                   "chmod 600 it",
                                   file, (unsigned)(st->st_mode & 07777));
    return 0;
}

/* Also of a pipe. */
int vow__address_file(struct vow__address *a, const char *file, char *bytes,
                      size_t *ret_n)
{
    size_t n = 0;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return vow__address_refuse(a, "%s: %s", file, strerror(errno));
    struct stat st;
    int rc = fstat(fd, &st) == 0 ? check_closed(a, file, &st) : 0;
    if (rc < 0) {
        (void)close(fd);
        return rc;
    }
    for (;;) {
        ssize_t got = read(fd, bytes + n, VOW__ADDRESS_SECRET + 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int error = errno;
            (void)close(fd);
            return vow__address_refuse(a, "%s: %s", file, strerror(error));
        }
        n += (size_t)got;
        if (got == 0 || n > VOW__ADDRESS_SECRET)
            break;
    }
    (void)close(fd);
    if (n > VOW__ADDRESS_SECRET)
        return vow__address_refuse(a, "%s: it has more than %d bytes", file,
                                   (int)VOW__ADDRESS_SECRET);
    *ret_n = n;
    return 0;
}

int vow__address_line(struct vow__address *a, const char *file, char **ret_text)
{
    char secret[VOW__ADDRESS_SECRET + 1];
    size_t n = 0;
    int rc = vow__address_file(a, file, secret, &n);
    if (rc == 0) {
        const char *end = memchr(secret, '\n', n);
        if (end != NULL)
            n = (size_t)(end - secret);
        if (n > 0 && secret[n - 1] == '\r')
            n--;
        secret[n] = 0;
        if (n == 0)
            rc = vow__address_refuse(a, "%s: its first line is empty", file);
        else if (strlen(secret) != n)
            rc = vow__address_refuse(
                a, "%s: there is a zero byte in its first line", file);
        else
            rc = vow__address_copy(a, secret, ret_text);
    }
    sodium_memzero(secret, sizeof(secret)); /* keeps U2 */
    return rc;
}
