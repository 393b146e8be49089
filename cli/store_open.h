/* SPDX-License-Identifier: MIT */
/* store_open.h - the store where the verbs meet: which, and opening it.
 *
 * WHY   share, lock, pipe, status and their kin are told of it in the same way.
 * HOW   What was said last wins: /etc/vow.conf, then the user's config, then
 *       VOW_STORE, then the option. Nothing is read from the current folder: a
 *       folder of somebody else must not choose where we meet. A password may
 *       stand in the files and in VOW_STORE, not in the option, and is shown
 *       nowhere.
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

/* Exit codes of verbs that meet others; see say.h for the rest. */
enum { EXIT_NOTHING = 66, EXIT_BUSY = 75, EXIT_LOST = 121 };

/* Above those of any verb. */
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

/* Rows for the table of a verb; the first of each has a heading. */
/* clang-format off */
#define STORE_ROW                                                              \
    {ID_STORE, '\0', "store", "ADDRESS",                                       \
     "file:DIR, redis:// or etcd://HOST (default: $VOW_STORE)", "Store", NULL}
#define RESULTS_ROW                                                            \
    {ID_RESULTS_IN, '\0', "results", "ADDRESS",                                \
     "where a store on etcd keeps long results: redis://HOST, DIR", NULL, NULL}
#define STORE_ROWS                                                             \
    STORE_ROW, RESULTS_ROW,                                                    \
    {ID_STORE_DOWN, '\0', "if-store-down", "HOW", "run, wait or fail", NULL,   \
     "run wait fail"}
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
    const char *url;     /* NULL: not said */
    const char *results; /* of long ones, apart; NULL: not said */
    uint64_t lease_ms;   /* 0: the default */
    uint64_t pulse_ms;
    uint32_t down; /* enum vow_store_down */
    uint32_t mode; /* enum vow_mode; the store must have it */
    bool no_wait;
    bool waits; /* at most wait_ms */
    uint64_t wait_ms;
    int busy_code;
    bool alone;            /* url is a store that only we know */
    vow_event_fn on_event; /* set by the verb; may be NULL */
    void *on_event_user;
};

/* What the config files and the environment say. A line that cannot be
 * understood ends the program. */
struct store_opts store_opts_of(const struct verb_def *verb);
/* True: it was one of the options above. */
bool store_option(struct store_opts *s, int id, const struct options *o);

/* What the config files say of the other options of a verb: `take` gets each as
 * options_next() would give it. */
typedef void (*store_option_fn)(void *user, int id, const struct options *o);
void store_config(const struct verb_def *verb, store_option_fn take,
                  void *user);

/* The address that holds, owned by the caller; and as it may be shown. */
char *store_address(const struct store_opts *s);
char *store_shown(const struct store_opts *s);
/* Whoever asks it for a name has leases there, which end when it is closed. */
bool store_has_leases(const struct store_opts *s);

/* Open an authority on this loop, which runs meanwhile. The caller closes it.
 * NULL: *ret_failed is why, owned by the caller: a sentence for people. */
vow_authority *store_open(vow_loop *loop, const struct store_opts *s,
                          vow_error **ret_failed);
/* The same, or one sentence and exit 125. */
vow_authority *store_open_or_die(vow_loop *loop, const struct store_opts *s);
/* Give back what we hold, and tell who waits; not longer than a second. */
void store_close(vow_loop *loop, vow_authority *a);

/* Why a look at a result failed: is there none? One that was canceled or too
 * big is only told to those who waited for it. */
bool store_has_none(int code);

/* The name of a word of people, as in vow share NAME. */
vow_name store_name_of(const char *word);

#endif
