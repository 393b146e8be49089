/* SPDX-License-Identifier: MIT */
/* shell_scan.h - shared by shell_scan.c, shell_guard.c, shell_form.c and
 * shell_advice.c; no other file includes this header.
 *
 * shell_scan.c reads a script: the words, quotes and commands.
 * shell_guard.c rules which values a word of a command may have.
 * shell_form.c writes the values.
 * shell_advice.c explains a refusal, and proposes a script that works.
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
    TEST, /* [[ ... ]]; the last kind with words */
    DOUBLE,
    BRACE, /* ${...} */
    MATH,  /* $((...)), ((...)), $[...] */
    DOC    /* a here-document without quotes */
};

/* Why a placeholder is refused. */
enum why {
    WHY_NOT, /* not refused */
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

/* A placeholder, or a variable with a value that may come from a
 * placeholder. */
struct mark {
    size_t at;
    size_t n;         /* bytes in the script: 1 for a placeholder */
    struct span name; /* name of the variable; .at is NULL for a placeholder */
    size_t hole;      /* index of the placeholder */
    size_t depth;     /* number of $(...) and `...` around the mark */
    enum why why;
    enum value_need need;
};

enum target {
    NO_TARGET,
    TARGET,
    TARGET_COPY, /* behind >& */
    TARGET_TEXT  /* behind <<< */
};

/* A word of a command, as written. */
struct word {
    size_t from;
    size_t to;
    size_t marks; /* first mark within the word, also in $(...) */
    size_t marks_end;
    enum target target;
};

/* The variable `name` was assigned the placeholders and variables among these
 * marks. */
struct taint {
    struct span name;
    size_t depth; /* only marks of this depth count */
    size_t marks;
    size_t marks_end;
};

/* A word that is the text of another shell. */
struct shell_text {
    size_t from;
    size_t to;       /* 0: no such word */
    bool simple;     /* has no variables and no other expansions */
    bool takes_more; /* a word behind the text becomes $1 of the text */
};

enum position { FIRST, LATER, CLOSED }; /* CLOSED: behind ) } fi done esac */

#define NO_WORD SIZE_MAX

struct level {
    enum kind kind;
    size_t start;  /* offset where the level begins */
    bool function; /* within the body of a function */

    /* for kinds with commands: */
    size_t word;  /* begin of the present word, or NO_WORD */
    size_t marks; /* first mark within the present word */
    size_t words; /* index of the first word of the present command */
    enum position position;
    enum target target; /* set if the next word belongs to a redirection */
    bool body_next;     /* the body of a function follows */
    bool both;          /* behind &>, which dash reads as & and > */
    unsigned loop;      /* behind for: words until a do is possible */
    size_t docs;        /* index of the first here-document of this level */

    bool array;     /* PAREN: x=(...) */
    bool evaluated; /* BRACE, TEST, PAREN: a shell calculates with the text */
    bool quoted;    /* BRACE: within "..." */
    char open;      /* MATH: the kind of bracket, */
    size_t depth;   /* and the number of open brackets */
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
    size_t hole;          /* index of the next placeholder */
    size_t evaluated_to;  /* end of a subscript */
    enum why refuse_rest; /* if set, every further placeholder is refused */
    struct level *levels;
    size_t n_levels;
    struct doc *docs; /* announced here-documents, not yet read */
    size_t n_docs;
    struct mark *marks;
    size_t n_marks;
    struct word *words; /* words of the commands that have begun */
    size_t n_words;
    struct taint *taints;
    size_t n_taints;
    struct shell_text text; /* first word that needs plain values */
    bool line_runs_text;    /* a command of this line names a text runner */
    bool hides_runner;      /* a function or alias may name a text runner */
    bool hides_eval;        /* an alias, or a function that evaluates text: any
                               later command may evaluate its words */
    bool stores_runner;     /* a variable has the name of a text runner */
    bool evaluates;         /* a command evaluates the value of a variable */
};

/* Reads the whole script. The caller frees marks, words and taints. */
void shell_scan(struct scanner *s);

/* Marks each name within these bytes: a shell would calculate with the
 * variable. */
void shell_scan_names(struct scanner *s, size_t from, size_t to, enum why why);

/* In shell_guard.c: called when a command has ended; rules on the marks in the
 * words of the command. */
void shell_guard_command(struct scanner *s, const struct word *words, size_t n,
                         bool function);
/* In shell_guard.c: called when the script has ended. Applies the rulings on a
 * variable to the placeholders assigned to the variable. */
void shell_guard_finish(struct scanner *s);

/* Returns how many $(...) and `...` are open. */
size_t shell_scan_depth(const struct scanner *s);

/* Returns whether the word is an operator of [[ that calculates with operands,
 * or takes the name of a variable or option. */
bool shell_guard_calculates(struct span word);

/* Returns the bytes of the name in NAME=, NAME+= or NAME[, else 0. */
size_t shell_scan_assigned(struct span word);

/* Makes room for one element behind n. */
static inline void *scan_grow(void *at, size_t n, size_t size)
{
    return (n & (n - 1)) == 0 ? mem_resize(at, (n > 0 ? 2 * n : 1) * size) : at;
}

/* Returns the byte `ahead` bytes ahead; -1: the script has ended. */
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
