/* SPDX-License-Identifier: MIT */
/* manage.h - verbs that look at what is in the store, or change it: status,
 * limit, result, forget, cancel, resolve.
 *
 *     struct manage m = manage_of(&limit_verb, argc, argv);
 *     while ((id = manage_option(&m)) > 0)
 *         switch (id) { ... m.options.value ...; }
 *     manage_open(&m);
 *     vow_future *f = vow_authority_list(m.authority);
 *     if (manage_wait(&m, f) < 0) ...
 *     return manage_end(&m, f, code);
 *
 * They have one word, a name or a pool, with options before and behind it. What
 * fails ends the program with one sentence and 125.
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
    const char *word; /* NULL: none was given */
    vow_loop *loop;
    vow_authority *authority;
};

struct manage manage_of(const struct verb_def *verb, int argc, char **argv);
/* The next option of the verb itself; 0 at the end. More than one word is
 * refused. */
int manage_option(struct manage *m);
/* Without a word, say what is missing: "say which pool". */
void manage_needs_word(const struct manage *m, const char *missing);

void manage_open(struct manage *m);
/* The same, for a word that names work: whose name it is, or an id or label
 * that vow status shows. */
vow_name manage_open_name(struct manage *m);
/* Wait for it: 0, or VOW_ENOENT, VOW_EBUSY. */
int manage_wait(const struct manage *m, vow_future *f);
/* Write to stdout, all of it. */
void manage_print(const struct manage *m, const struct text *t);
void manage_close(struct manage *m);

#endif
