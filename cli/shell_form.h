/* SPDX-License-Identifier: MIT */
/* shell_form.h - finds the places of the placeholders in a shell script and
 * the values allowed there, and writes values.
 *
 * A script is given with a NUL byte, a "hole", in place of each placeholder.
 * Neither a command line nor a shell can contain a NUL, so the scanner cannot
 * mistake a hole for any other character.
 */
#ifndef VOW_CLI_SHELL_FORM_H
#define VOW_CLI_SHELL_FORM_H

#include "text.h"

enum hole_place {
    HOLE_WORDS,  /* a bare word of its own; several words are allowed */
    HOLE_BARE,   /* outside of quotes; only one word is allowed */
    HOLE_DOUBLE, /* within "..." */
    HOLE_SINGLE, /* within '...' */
    HOLE_MATH,   /* a number in $((...)) */
    HOLE_COMMENT /* in a comment: nothing is written */
};

/* The values allowed in a hole. */
enum value_need {
    NEED_NOTHING, /* any value */
    NEED_PLAIN,   /* letters, digits and _@%+=:,./- only */
    NEED_NUMBER   /* digits and + - . only */
};

struct hole {
    bool number;           /* given: only digits, harmless in $((...)) */
    struct span text;      /* given: the placeholder as written */
    enum hole_place place; /* found by the scan, like all fields below */
    bool argument;         /* behind the name of a command, at the top level */
    bool redirected;       /* `>` or `<` follows: 2> would be a descriptor */
    bool single;           /* an operand of test: several items are joined */
    enum value_need need;
};

struct shell_form {
    bool exec;   /* words of a command that is run without a shell */
    bool strict; /* not sh, dash, bash or ash: builtins of other shells may
                    calculate with every word */
};

/* Finds the places of all holes, in order. Returns NULL, or an error (owned by
 * the caller) that shows the place and a script that works. If some values must
 * be plain, *ret_better (owned by the caller) is a script without this need, or
 * NULL if none was found; else NULL. */
char *shell_form_scan(struct span script, const struct shell_form *form,
                      struct hole *holes, char **ret_better);

/* Writes the positional parameters from `first` to first + n - 1. n is 1 except
 * for HOLE_WORDS. */
void shell_form_write(struct text *into, enum hole_place place, size_t first,
                      size_t n);

/* Writes the value itself, for pasting the script into a shell. */
void shell_form_show(struct text *into, const struct hole *hole,
                     struct span value);

/* Returns whether a command of one word must be run by a shell. `rest` is a
 * part of the word, without placeholders; `begins`: `rest` is the beginning of
 * the word. */
bool shell_form_wanted(struct span rest, bool begins);

/* Returns whether the word is the name of a shell with -c, perhaps with a
 * path. */
bool shell_form_is_shell(struct span word);
/* Returns whether the word is sh, dash, bash, rbash, ash or busybox, perhaps
 * with a path. */
bool shell_form_is_common(struct span word);

/* Returns whether the value meets the need. */
bool shell_form_fits(enum value_need need, struct span value);

#endif
