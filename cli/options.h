/* SPDX-License-Identifier: MIT */
/* options.h - the verbs and their options in one table, from which parsing,
 * help and shell completion are made; so they cannot disagree.
 */
#ifndef VOW_CLI_OPTIONS_H
#define VOW_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct option_def {
    int id;            /* of the verb's own enum, from 1 */
    char letter;       /* '\0': none */
    const char *name;  /* without dashes; NULL: none */
    const char *value; /* "N|N%|Nx"; NULL: takes none. "[W]": may be left out;
                          the next word is the value only if `words` has it */
    const char *help;  /* one line; NULL: another spelling, not listed */
    const char *group; /* heading in the help, such as "Limits"; NULL: the one
                          before */
    const char *words; /* what the value may be, by blanks, for completion;
                          "FILE", "DIR", "COMMAND"; NULL: anything */
};

struct verb_def {
    const char *name;     /* "map" */
    const char *usage;    /* "[OPTION...] COMMAND [ARG...] [::: INPUT...]" */
    const char *about;    /* one line for `vow help` */
    const char *story;    /* paragraphs and examples behind the options */
    const char *operands; /* for completion: "NAME", "NAME COMMAND" (the command
                             only behind --), "" for none; NULL: a command */
    const struct option_def *options;  /* ends with id 0 */
    int (*run)(int argc, char **argv); /* argv[0] is the verb */
    int usage_code;                    /* exit code of bad usage */
};

extern const struct verb_def *const verbs[]; /* ends with NULL; cli/main.c */

/* Reading options one after the other:
 *
 *     struct options o = options_of(&map_verb, argc, argv);
 *     while ((id = options_next(&o)) > 0)
 *         switch (id) { case OPT_JOBS: ... o.value ...; }
 *     rest = argv + o.at;
 *
 * -j8 · -j 8 · -k0 (several letters) · --jobs 8 · --jobs=8. Ends at the first
 * word that is no option (a lone "-" is none), or behind "--". An unknown
 * option, a missing or an unwanted value ends the program by die() with one
 * sentence that names the nearest known option: "vow map: unknown option
 * '--retrys'; did you mean '--retries'? See vow map --help". `-h` and `--help`
 * are known to all verbs, print the help on stdout and exit with 0. */
struct options {
    const struct verb_def *verb;
    int argc;
    char **argv;
    int at;              /* the next word */
    const char *letters; /* the rest of a word of letters; NULL: none */
    const char *value;   /* of the option just read; NULL: none */
    const char *spelled; /* as it was written, for messages: "--rate", "-j" */
    char buffer[4];
};
struct options options_of(const struct verb_def *verb, int argc, char **argv);
int options_next(struct options *o); /* the id; 0 at the end */

/* die() with: "vow map: --rate 50: a rate needs a unit ..." */
_Noreturn void options_refuse(const struct options *o, const char *sentence);

/* Help of one verb, and of all. Fits in 80 columns. */
void options_help(FILE *out, const struct verb_def *verb);
void options_help_all(FILE *out);

/* A script for bash, zsh or fish; false: another shell. */
bool options_completion(FILE *out, const char *shell);

/* The nearest of words (ends with NULL) by edits, NULL: none is near. */
const char *options_nearest(const char *word, const char *const *words);

#endif
