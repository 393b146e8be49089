/* SPDX-License-Identifier: MIT */
/* shell_form.h - where the placeholders of a shell script stand, which values
 * they may have there, and how a value is written.
 *
 * A script is given with a NUL byte in place of each placeholder, a "hole":
 * neither a command line nor a shell can hold that byte, so that no look ahead
 * mistakes it for something else.
 */
#ifndef VOW_CLI_SHELL_FORM_H
#define VOW_CLI_SHELL_FORM_H

#include "text.h"

enum hole_place {
    HOLE_WORDS,  /* a bare word of its own, where several words may stand */
    HOLE_BARE,   /* outside of quotes, where only one word may stand */
    HOLE_DOUBLE, /* within "..." */
    HOLE_SINGLE, /* within '...' */
    HOLE_MATH,   /* a number in $((...)) */
    HOLE_COMMENT /* nothing is written */
};

/* Which values may stand in a hole. */
enum value_need {
    NEED_NOTHING, /* any value */
    NEED_PLAIN,   /* letters, digits and _@%+=:,./- only */
    NEED_NUMBER   /* digits and + - . only */
};

struct hole {
    bool number;      /* given: stands for digits only, harmless in $((...)) */
    struct span text; /* given: how the placeholder is written */
    enum hole_place place; /* found, as are the others */
    bool argument;         /* behind the name of a command, in nothing else */
    bool redirected;       /* `>` or `<` comes next: 2> would be a descriptor */
    bool single;           /* an operand: several items are joined */
    enum value_need need;
};

struct shell_form {
    bool exec;   /* words of a command that no shell reads */
    bool strict; /* the shell is none of sh, dash, bash and ash: its builtins
                    may calculate with every word */
};

/* Finds the places of all holes, in their order. Returns NULL, or an error
 * (owned by the caller) that shows the place and a script that works.
 * *ret_better (owned by the caller) is a script in which values need not be
 * plain, if some need to be and there is one; else NULL. */
char *shell_form_scan(struct span script, const struct shell_form *form,
                      struct hole *holes, char **ret_better);

/* The positional parameters `first` and the n - 1 behind it. n is 1 but for
 * HOLE_WORDS. */
void shell_form_write(struct text *into, enum hole_place place, size_t first,
                      size_t n);

/* The value itself, for people who paste the script elsewhere. */
void shell_form_show(struct text *into, const struct hole *hole,
                     struct span value);

/* Whether a command of one word has to be given to a shell: `rest` is some of
 * it, without placeholders; `begins`: it is where the word begins. */
bool shell_form_wanted(struct span rest, bool begins);

/* The name of a shell that has -c, perhaps with a path before it. */
bool shell_form_is_shell(struct span word);
/* The name of sh, dash, bash or ash. */
bool shell_form_is_common(struct span word);

/* Whether the value is what the need says. */
bool shell_form_fits(enum value_need need, struct span value);

#endif
