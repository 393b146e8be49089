/* SPDX-License-Identifier: MIT */
/* options.h - the verbs and their options in a table, from which parsing, help
 * and shell completion are made; so they cannot disagree.
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
    const char *value; /* "N|N%|Nx"; NULL: no value. "[W]": an optional value;
                          the next word is the value only if in `words` */
    const char *help;  /* a line; NULL: another spelling, not listed */
    const char *group; /* heading in the help, such as "Limits"; NULL: as the
                          option before */
    const char *words; /* possible values for completion, between blanks; or
                          "FILE", "DIR", "COMMAND"; NULL: any */
};

struct verb_def {
    const char *name;     /* "map" */
    const char *usage;    /* "[OPTION...] COMMAND [ARG...] [::: INPUT...]" */
    const char *about;    /* a line for `vow help` */
    const char *story;    /* paragraphs and examples below the options */
    const char *operands; /* for completion: "NAME", "NAME COMMAND" (the command
                             only after --), "" for none; NULL: a command */
    const struct option_def *options;  /* ends with id 0 */
    int (*run)(int argc, char **argv); /* argv[0] is the verb */
    int usage_code;                    /* exit code of bad usage */
};

extern const struct verb_def *const verbs[]; /* ends with NULL; cli/main.c */

/* Reads options from left to right:
 *
 *     struct options o = options_of(&map_verb, argc, argv);
 *     while ((id = options_next(&o)) > 0)
 *         switch (id) { case OPT_JOBS: ... o.value ...; }
 *     rest = argv + o.at;
 *
 * -j8 · -j 8 · -k0 (several letters) · --jobs 8 · --jobs=8. Ends at the first
 * word that is no option (also at a lone "-"), or after "--". An unknown
 * option, a missing or an unwanted value ends the program by die(), with a
 * message that names the nearest known option: "vow map: unknown option
 * '--retrys'; did you mean '--retries'? See vow map --help". `-h` and `--help`
 * are known to all verbs, print the help on stdout and exit with 0. */
struct options {
    const struct verb_def *verb;
    int argc;
    char **argv;
    int at;              /* index of the next word */
    const char *letters; /* the rest of a word like -k0; NULL: none */
    const char *value;   /* of the option just read; NULL: none */
    const char *spelled; /* the option for messages: "--rate", "-j" */
    char buffer[4];      /* for `spelled` */
};
struct options options_of(const struct verb_def *verb, int argc, char **argv);
int options_next(struct options *o); /* returns the id; 0 at the end */

/* Calls die() with "vow map: invalid --rate 50: " and the sentence. A value
 * that may contain a password is not shown. */
_Noreturn void options_refuse(const struct options *o, const char *sentence);

/* Prints the help of a verb, and of all verbs, for 80 columns. */
void options_help(FILE *out, const struct verb_def *verb);
void options_help_all(FILE *out);

/* Prints a script for bash, zsh or fish. Returns false for another shell. */
bool options_completion(FILE *out, const char *shell);

/* Returns the word with the fewest edits from `word`; NULL: no word is near.
 * `words` ends with NULL. */
const char *options_nearest(const char *word, const char *const *words);

#endif
