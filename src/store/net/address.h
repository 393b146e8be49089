/* SPDX-License-Identifier: MIT */
/* address.h - the address of a store on a server, cut into its pieces:
 *
 *   SCHEME://[USER[:PASSWORD]@]HOST[:PORT][,...][/PATH][?OPTION=VALUE&...]
 *
 * The scheme and the path are the caller's. See address.c.
 */
#ifndef VOW_STORE_NET_ADDRESS_H
#define VOW_STORE_NET_ADDRESS_H

#include "base/alloc.h"

enum {
    VOW__ADDRESS_HOSTS = 16,
    VOW__ADDRESS_OPTIONS = 16,
    VOW__ADDRESS_PREFIX = 128,  /* bytes */
    VOW__ADDRESS_SECRET = 4096, /* bytes of a file with a secret */
    VOW__ADDRESS_DAY_MS = 24 * 3600 * 1000
};

/* A piece of the address. */
struct vow__piece {
    const char *at; /* NULL: none */
    size_t n;
};

/* An address that is being read. Texts are owned; who moves one out sets NULL.
 */
struct vow__address {
    struct vow_alloc alloc;
    char *why; /* a sentence, when something is refused */
    size_t why_size;
    const char *const *options; /* their names */
    size_t n_options;
    const char *known; /* the same for people: "there are a, b" */
    uint16_t port;     /* of hosts without one */
    struct {
        char *host;
        uint16_t port;
    } hosts[VOW__ADDRESS_HOSTS];
    size_t n_hosts;
    char *user;
    char *password;
    struct vow__piece given[VOW__ADDRESS_OPTIONS]; /* values, not decoded */
};
void vow__address_fini(struct vow__address *a);

/* User, password and hosts at the beginning of `rest`; path and options stay in
 * it. Each of these: 0, VOW_EINVAL with a sentence, VOW_ENOMEM. */
int vow__address_hosts(struct vow__address *a, struct vow__piece *rest);
/* "?NAME=VALUE&...", or nothing. */
int vow__address_options(struct vow__address *a, struct vow__piece rest);

/* ---- what counts --------------------------------------------------------- */

/* What is set counts more than the option; without either the text stays. */
int vow__address_text(struct vow__address *a, const char *set, size_t option,
                      char **text);
/* Where a password may come from, apart from the address itself. */
struct vow__address_password {
    const char *text; /* at most one of these */
    const char *file;
    size_t option;    /* with the name of a file */
    bool environment; /* if there is none */
};
int vow__address_password(struct vow__address *a,
                          const struct vow__address_password *from,
                          char **password);
/* Visible ASCII without these signs. */
int vow__address_prefix(struct vow__address *a, const char *prefix,
                        const char *without);
/* At most a day; 0: neither is set. */
int vow__address_timeout(struct vow__address *a, uint64_t set_ms, size_t option,
                         uint64_t *ret_ms);

/* ---- pieces -------------------------------------------------------------- */

struct vow__piece vow__piece_of(const char *text);
/* It begins with this, which is taken off then. */
bool vow__piece_begins(struct vow__piece *p, const char *with);
/* What stands before the first of the signs; that one stays in the rest. */
struct vow__piece vow__piece_until(struct vow__piece *rest, const char *signs);
bool vow__piece_number(struct vow__piece p, uint64_t max, uint64_t *ret_number);

/* A text of its own, without escapes; a copy. */
int vow__address_decode(struct vow__address *a, struct vow__piece p,
                        char **ret_text);
int vow__address_copy(struct vow__address *a, const char *text,
                      char **ret_text);
/* Clear and free it; NULL from then on. */
void vow__address_forget(const struct vow_alloc *alloc, char **text);
/* The first line of a file; all of it: at most VOW__ADDRESS_SECRET bytes, and
 * room for one more. */
int vow__address_line(struct vow__address *a, const char *file,
                      char **ret_text);
int vow__address_file(struct vow__address *a, const char *file, char *bytes,
                      size_t *ret_n);
/* Is a file with a secret closed to others? NULL, and one that cannot be looked
 * at, is. The functions above ask this themselves. */
int vow__address_closed(struct vow__address *a, const char *file);
/* VOW_EINVAL, with a sentence. */
int vow__address_refuse(struct vow__address *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
