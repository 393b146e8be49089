/* SPDX-License-Identifier: MIT */
/* shell_scan.h - the scanner of shell_form.c: what its two halves share.
 *
 * shell_scan.c knows where in a script it is, shell_form.c what may stand
 * there. Nobody else includes this.
 */
#ifndef VOW_CLI_SHELL_SCAN_H
#define VOW_CLI_SHELL_SCAN_H

#include "shell_form.h"

#include <string.h>

enum kind {
    TOP,
    SUBST, /* $(...) */
    PAREN, /* a subshell, an array, <(...), a pattern of bash */
    GROUP, /* { ...; } */
    CASE_HEAD,
    CASE_PATTERN,
    CASE_BODY,
    TEST, /* [[ ... ]]; the last in which there are words */
    DOUBLE,
    BRACE, /* ${...} */
    MATH   /* $((...)), ((...)), $[...] */
};

/* Why a value cannot stand somewhere. */
enum why {
    WHY_NOT, /* it can */
    WHY_BRACE,
    WHY_MATH,
    WHY_TEST,
    WHY_SUBSCRIPT,
    WHY_BACKQUOTES,
    WHY_ANSI,
    WHY_BACKSLASH,
    WHY_DOC,
    WHY_DOC_END,
    WHY_LATE_DOC,
    WHY_FUNCTION
};

enum position { FIRST, LATER, CLOSED }; /* CLOSED: behind ) } fi done esac */

#define NO_WORD SIZE_MAX

struct level {
    enum kind kind;
    size_t start;  /* of what opened it */
    bool function; /* within the body of one */

    /* where there are commands */
    size_t word; /* where the present one began, or NO_WORD */
    enum position position;
    bool target;    /* the next word belongs to a redirection */
    bool body_next; /* of a function that was just named */
    enum shell_reads reads;
    unsigned loop; /* words until there may be a do, behind for */
    size_t docs;   /* here-documents below this one are of others */

    bool quoted;  /* BRACE: within "..." */
    char open;    /* MATH: which brackets, */
    size_t depth; /* and how many are open */
};

struct doc {
    struct text end;
    bool tabs;   /* <<- */
    bool quoted; /* a backslash at the end of a line does not join lines */
};

struct scanner {
    struct span script;
    size_t at;
    struct hole *holes;
    size_t hole;   /* the next one */
    enum why why;  /* it was refused */
    enum why lost; /* from here on, every one is */
    struct level *levels;
    size_t n_levels;
    size_t room;
    struct doc *docs; /* announced, their bodies not read */
    size_t n_docs;
};

/* Passes over the whole script, or up to a hole that is refused. */
void shell_scan(struct scanner *s);

/* In shell_form.c: the scanner stands on a hole. Sets what is known of it, or
 * s->why. `l` is the level around it and its quotes, which begin at `from`. */
void shell_form_meet(struct scanner *s, const struct level *l,
                     enum hole_place place, size_t from);

/* The byte so far ahead; -1: the script has ended. */
static inline int scan_peek(const struct scanner *s, size_t ahead)
{
    size_t at = s->at + ahead;
    return at < s->script.n ? (unsigned char)s->script.at[at] : -1;
}

static inline bool scan_one_of(int c, const char *set)
{
    return c > 0 && strchr(set, c) != NULL;
}

static inline bool scan_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_';
}

static inline bool scan_among(struct span word, const char *const *words)
{
    for (; *words != NULL; words++)
        if (span_is(word, *words))
            return true;
    return false;
}

#endif
