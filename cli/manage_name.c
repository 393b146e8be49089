/* SPDX-License-Identifier: MIT */
/* manage_name.c - find the name that a word of the command line stands for.
 *
 * HOW   The word is the NAME of vow share. If the store has no record of this
 *       name, the word is the label of a record or the printed form of a name,
 *       as vow status shows them.
 */
#include "manage.h"
#include "say.h"

#include <string.h>

enum { EXIT_AMBIGUOUS = 65 };

static bool name_exists(const struct manage *m, const vow_name *name);
static vow_name find_listed_name(const struct manage *m, vow_name otherwise);
static _Noreturn void die_ambiguous(const struct manage *m, size_t n);

vow_name manage_open_name(struct manage *m)
{
    manage_needs_word(m, "no name given");
    manage_open(m);
    vow_name name = store_name_of(m->word);
    return name_exists(m, &name) ? name : find_listed_name(m, name);
}

static bool name_exists(const struct manage *m, const vow_name *name)
{
    VOW_AUTO(vow_future) f = vow_authority_peek(m->authority, name, 1);
    (void)manage_wait(m, f);
    const vow_records *r = vow_as_ptr(vow_get(f));
    return r != NULL && r->n == 1 && r->at[0].status != VOW_STATUS_NONE;
}

static vow_name find_listed_name(const struct manage *m, vow_name otherwise)
{
    vow_name found = otherwise;
    size_t n = 0;
    VOW_AUTO(vow_future) f = vow_authority_list(m->authority);
    (void)manage_wait(m, f);
    const vow_records *all = vow_as_ptr(vow_get(f));
    for (size_t i = 0; all != NULL && i < all->n; i++) {
        const vow_record *r = &all->at[i];
        if (vow_name_equal(&r->name, &otherwise)) /* the owner is lost */
            return otherwise;
        if (r->label == NULL || strcmp(r->label, m->word) != 0)
            continue;
        found = r->name;
        n++;
    }
    if (n > 1)
        die_ambiguous(m, n);
    return n == 0 && !vow_name_parse(m->word, &found) ? otherwise : found;
}

static _Noreturn void die_ambiguous(const struct manage *m, size_t n)
{
    struct text word = {0};
    text_add_quoted(&word, span_of(m->word));
    die(EXIT_AMBIGUOUS,
        "vow %s: %zu names are shown as '%s': say the id (vow status --json "
        "%s%s)",
        m->options.verb->name, n, m->word, m->word[0] == '-' ? "-- " : "",
        word.at);
}
