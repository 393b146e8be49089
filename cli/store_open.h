/* SPDX-License-Identifier: MIT */
/* store_open.h - choosing and opening the store; options for the store.
 *
 * WHY   share, lock, pipe, status and other verbs have the same options for the
 *       store.
 * HOW   The last source wins: /etc/vow.conf, then the user's config, then
 *       VOW_STORE, then the option. Nothing is read from the current folder: a
 *       folder of another user must not choose the store. A password is allowed
 *       in the files and in VOW_STORE, not in the option, and is never shown.
 *
 *     static const struct option_def options[] = {
 *         {ID_TTL, '\0', "ttl", ...}, STORE_ROWS, LEASE_ROWS, {.id = 0}};
 *
 *     struct store_opts s = store_opts_of(&share_verb);
 *     while ((id = options_next(&o)) > 0)
 *         if (!store_option(&s, id, &o))
 *             switch (id) { ... }
 *     vow_authority *a = store_open(loop, &s, &failed);
 */
#ifndef VOW_CLI_STORE_OPEN_H
#define VOW_CLI_STORE_OPEN_H

#include "options.h"
#include "text.h"

#include <vow.h>

/* Exit codes of verbs with a store; see say.h for the others. */
enum { EXIT_NOTHING = 66, EXIT_BUSY = 75, EXIT_LOST = 121 };

/* Ids above the ids of any verb. */
enum {
    ID_STORE = 1000,
    ID_RESULTS_IN,
    ID_STORE_DOWN,
    ID_LEASE,
    ID_PULSE,
    ID_NO_WAIT,
    ID_WAIT,
    ID_BUSY_CODE
};

/* Rows for the option table of a verb; the first row has the heading. */
/* clang-format off */
#define STORE_ROW                                                              \
    {ID_STORE, '\0', "store", "ADDRESS",                                       \
     "file:DIR, redis:// or etcd://HOST (default: $VOW_STORE)", "Store", NULL}
#define RESULTS_ROW                                                            \
    {ID_RESULTS_IN, '\0', "results", "ADDRESS",                                \
     "where a store on etcd keeps long results: redis://HOST, DIR", NULL, NULL}
#define STORE_ROWS                                                             \
    STORE_ROW, RESULTS_ROW,                                                    \
    {ID_STORE_DOWN, '\0', "if-store-down", "HOW",                              \
     "without the store: run, wait or fail", NULL, "run wait fail"}
#define LEASE_ROWS                                                             \
    {ID_LEASE, '\0', "lease", "D",                                             \
     "a waiter takes over after D without a pulse (default 10s)", "Life",      \
     NULL},                                                                    \
    {ID_PULSE, '\0', "pulse", "D",                                             \
     "time between two pulses (default: lease/3)", NULL, NULL}
#define WAIT_ROWS                                                              \
    {ID_NO_WAIT, 'n', "nonblock", NULL,                                        \
     "do not wait: exit with 75 if the name is taken", "Waiting", NULL},       \
    {ID_WAIT, 'w', "wait", "D",                                                \
     "wait at most D, then exit with 75", NULL, NULL},                         \
    {ID_BUSY_CODE, 'E', "conflict-exit-code", "N",                             \
     "exit with N instead of 75", NULL, NULL}
/* clang-format on */

struct store_opts {
    const struct verb_def *verb;
    const char *url;       /* the address; NULL: not given */
    const char *results;   /* address for long results; NULL: not given */
    uint64_t lease_ms;     /* 0: the default */
    uint64_t pulse_ms;     /* 0: the default */
    uint32_t down;         /* enum vow_store_down */
    uint32_t mode;         /* enum vow_mode; the store must support the mode */
    bool no_wait;          /* --nonblock */
    bool waits;            /* --wait: wait at most wait_ms */
    uint64_t wait_ms;      /* used with `waits` */
    int busy_code;         /* exit code if the name is taken */
    bool alone;            /* url is a private store of this process */
    vow_event_fn on_event; /* set by the verb; may be NULL */
    void *on_event_user;
};

/* Returns the options of the config files and the environment. A line with an
 * error ends the program. */
struct store_opts store_opts_of(const struct verb_def *verb);
/* Takes an option of the ids above. Returns false for other ids. */
bool store_option(struct store_opts *s, int id, const struct options *o);

/* Reads the other options of the verb in the config files: `take` gets each
 * option as options_next() would return the option. */
typedef void (*store_option_fn)(void *user, int id, const struct options *o);
void store_config(const struct verb_def *verb, store_option_fn take,
                  void *user);

/* Return the address of the store, and the address without a password for
 * messages; both owned by the caller. */
char *store_address(const struct store_opts *s);
char *store_shown(const struct store_opts *s);
/* Returns whether a request for a name makes a lease in the store (etcd), which
 * ends when the store is closed. */
bool store_has_leases(const struct store_opts *s);

/* Opens an authority on the loop, and runs the loop meanwhile. The caller
 * closes the authority. Returns NULL on failure: *ret_failed has a message for
 * users, and is owned by the caller. */
vow_authority *store_open(vow_loop *loop, const struct store_opts *s,
                          vow_error **ret_failed);
/* Does the same; a failure ends the program with a message and code 125. */
vow_authority *store_open_or_die(vow_loop *loop, const struct store_opts *s);
/* Closes the authority: releases leases and permits, and wakes waiters. Takes
 * at most a second. */
void store_close(vow_loop *loop, vow_authority *a);

/* Returns whether the error code of reading a result means that there is no
 * result. A canceled or too big result is reported only to its waiters. */
bool store_has_none(int code);

/* Returns the name for the NAME of vow share NAME. */
vow_name store_name_of(const char *word);

#endif
