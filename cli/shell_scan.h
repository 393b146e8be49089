/* SPDX-License-Identifier: MIT */
/* shell_scan.h - what shell_scan.c, shell_guard.c and shell_form.c share.
 *
 * shell_scan.c reads a script: where the words, quotes and commands are.
 * shell_guard.c rules which values may stand in a word of a command.
 * shell_form.c writes the values. No other file includes this header.
 */
#ifndef VOW_CLI_SHELL_SCAN_H
#define VOW_CLI_SHELL_SCAN_H

#include "shell_form.h"

#include <string.h>

enum kind {
    TOP,
    SUBST,     /* $(...) */
    BACKQUOTE, /* `...` */
    PAREN,     /* a subshell, an array, <(...), a pattern of bash */
    GROUP,     /* { ...; } */
    CASE_HEAD,
    CASE_PATTERN,
    CASE_BODY,
    TEST, /* [[ ... ]]; the last kind that has words */
    DOUBLE,
    BRACE, /* ${...} */
    MATH,  /* $((...)), ((...)), $[...] */
    DOC    /* a here-document without quotes */
};

/* Why a placeholder is refused. */
enum why {
    WHY_NOT, /* it is not */
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
    WHY_SPLIT,
    WHY_FUNCTION,
    WHY_FUNCTION_NAME,
    WHY_COPY,
    WHY_BOTH,
    WHY_LET,
    WHY_OPERAND,
    WHY_VARIABLE
};

/* A placeholder, or a variable whose value may come from one. */
struct mark {
    size_t at;
    size_t n;         /* bytes of the script: 1 for a placeholder */
    struct span name; /* of the variable; .at is NULL for a placeholder */
    size_t hole;      /* of the placeholder */
    size_t depth;     /* how many $(...) are around it */
    enum why why;
    enum value_need need;
};

enum target {
    NO_TARGET,
    TARGET,
    TARGET_COPY, /* behind >& */
    TARGET_TEXT  /* behind <<< */
};

/* A word of a command, as it is written. */
struct word {
    size_t from;
    size_t to;
    size_t marks; /* those within, also in its $(...) */
    size_t marks_end;
    enum target target;
};

/* `name` was given the placeholders and variables among these marks. */
struct taint {
    struct span name;
    size_t depth; /* of these marks, those that are in no further $(...) */
    size_t marks;
    size_t marks_end;
};

/* A word that is text for another shell. */
struct shell_text {
    size_t from;
    size_t to;       /* 0: there is none */
    bool simple;     /* no variables or other expansions are in it */
    bool takes_more; /* what is put behind it becomes its $1 */
};

enum position { FIRST, LATER, CLOSED }; /* CLOSED: behind ) } fi done esac */

#define NO_WORD SIZE_MAX

struct level {
    enum kind kind;
    size_t start;  /* of what opened it */
    bool function; /* within the body of one */

    /* where there are commands */
    size_t word;  /* where the present one began, or NO_WORD */
    size_t marks; /* the first mark within it */
    size_t words; /* the first word of the present command */
    enum position position;
    enum target target; /* the next word belongs to a redirection */
    bool body_next;     /* of a function that was just named */
    bool both;          /* &> stands before, which dash reads as & and > */
    unsigned loop;      /* words until there may be a do, behind for */
    size_t docs;        /* here-documents below this one are of others */

    bool array;     /* PAREN: x=(...) */
    bool evaluated; /* BRACE, TEST, PAREN: a shell calculates with its text */
    bool quoted;    /* BRACE: within "..." */
    char open;      /* MATH: which brackets, */
    size_t depth;   /* and how many are open */
};

struct doc {
    struct text end;
    bool tabs;   /* <<- */
    bool quoted; /* a backslash at the end of a line does not join lines */
};

struct scanner {
    struct span script;
    const struct shell_form *form;
    size_t at;
    struct hole *holes;
    size_t hole;         /* the next one */
    size_t evaluated_to; /* a subscript ends there */
    enum why lost;       /* from here on, every placeholder is refused */
    struct level *levels;
    size_t n_levels;
    struct doc *docs; /* announced, their bodies not read */
    size_t n_docs;
    struct mark *marks;
    size_t n_marks;
    struct word *words; /* of the commands that have begun */
    size_t n_words;
    struct taint *taints;
    size_t n_taints;
    struct shell_text text; /* the first that may have plain values only */
    bool line_runs_text;    /* a command of this line names a shell or kin */
    bool hides_runner;      /* so does a function, or there is an alias */
    bool hides_eval;        /* an alias, or a function that evaluates text: any
                               later command may evaluate each of its words */
    bool stores_runner;     /* a variable has the name of a shell or kin */
    bool evaluates;         /* a command evaluates the value of a variable */
};

/* Reads the whole script. Whoever calls frees marks, words and taints. */
void shell_scan(struct scanner *s);

/* Marks each name within these bytes: a shell would calculate with it. */
void shell_scan_names(struct scanner *s, size_t from, size_t to, enum why why);

/* In shell_guard.c: a command has ended; rules on the marks in its words. */
void shell_guard_command(struct scanner *s, const struct word *words, size_t n,
                         bool function);
/* In shell_guard.c: the script has ended. What was ruled on a variable holds
 * for the placeholders that it was given. */
void shell_guard_finish(struct scanner *s);

/* How many $(...) are open. */
size_t shell_scan_depth(const struct scanner *s);

/* An operator of [[ that calculates with its operands. */
bool shell_guard_calculates(struct span word);

/* NAME=, NAME+= or NAME[: the bytes of the name, else 0. */
size_t shell_scan_assigned(struct span word);

/* Room for one more behind n. */
static inline void *scan_grow(void *at, size_t n, size_t size)
{
    return (n & (n - 1)) == 0 ? mem_resize(at, (n > 0 ? 2 * n : 1) * size) : at;
}

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

static inline bool scan_name_char(int c)
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
