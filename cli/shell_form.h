/* SPDX-License-Identifier: MIT */
/* shell_form.h - where the placeholders of a shell script stand, and how a
 * value is written there.
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

struct hole {
    bool number; /* given: stands for digits only, harmless in $((...)) */
    enum hole_place place; /* found, as are the others */
    bool argument;         /* behind the name of a command, in nothing else */
    bool redirected;       /* `>` or `<` comes next: 2> would be a descriptor */
    bool text; /* in what another shell reads as commands: plain words only */
};

/* Finds the places of all holes, in their order. Returns NULL, or why a value
 * cannot stand in hole *ret_bad, to be read behind "{} cannot stand". */
const char *shell_form_scan(struct span script, struct hole *holes,
                            size_t *ret_bad);

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

/* What of a command's words will be read as shell text. Told one word after the
 * other, it knows of `sh -c TEXT`, wherever it stands in the command. */
enum shell_reads {
    READS_NOTHING,
    READS_OPTIONS, /* the name of a shell was seen */
    READS_VALUE,   /* and -o, which has a word of its own */
    READS_NEXT,    /* the next word is text */
    READS_EVAL,    /* so are all that come */
    READS_ALL      /* and one of them has come */
};
enum shell_reads shell_form_reads(enum shell_reads before, struct span word);

/* A value that may be a part of such text: letters, digits and _@%+=:,./- only,
 * which no shell does anything with. */
bool shell_form_plain(struct span value);

/* A copy, owned by the caller, with $(...) for each `...` that has a brace in
 * it; NULL: there is none, or it is too tangled to tell. */
char *shell_form_without_backquotes(const char *script);

#endif
