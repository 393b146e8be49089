/* SPDX-License-Identifier: MIT */
/* manage.h - verbs that read or change records of the store: status, limit,
 * result, forget, cancel, resolve; in part doctor.
 *
 *     struct manage m = manage_of(&limit_verb, argc, argv);
 *     while ((id = manage_option(&m)) > 0)
 *         switch (id) { ... m.options.value ...; }
 *     manage_open(&m);
 *     vow_future *f = vow_authority_list(m.authority);
 *     if (manage_wait(&m, f) < 0) ...
 *     manage_close(&m);
 *
 * These verbs take a single word, a name or a pool, with options before and
 * behind the word. A failure ends the program with a message and exit code 125.
 */
#ifndef VOW_CLI_MANAGE_H
#define VOW_CLI_MANAGE_H

#include "options.h"
#include "store_open.h"
#include "text.h"

#include <vow.h>

struct manage {
    struct options options;
    struct store_opts store;
    const char *word; /* the name or pool; NULL: not given */
    vow_loop *loop;
    vow_authority *authority;
};

struct manage manage_of(const struct verb_def *verb, int argc, char **argv);
/* Returns the id of the next option that is not a store option; 0 at the end.
 * A second word is refused. */
int manage_option(struct manage *m);
/* Exits with the message `missing` ("no pool given") if there is no word. */
void manage_needs_word(const struct manage *m, const char *missing);

/* Makes the loop and opens the store. */
void manage_open(struct manage *m);
/* Does the same, and returns the name for the word: the NAME of vow share, or
 * an id or label from vow status. */
vow_name manage_open_name(struct manage *m);
/* Runs the loop until `f` is settled. Returns 0, VOW_ENOENT or VOW_EBUSY; exits
 * on other errors. */
int manage_wait(const struct manage *m, vow_future *f);
/* Writes the whole text to stdout. */
void manage_print(const struct manage *m, const struct text *t);
void manage_close(struct manage *m);

#endif
