/* SPDX-License-Identifier: MIT */
/* template.h - the command with placeholders, and the command line of one job.
 * See vow-map(1), "COMMAND" and "PLACEHOLDERS".
 *
 * There are two forms. Exec: each word is an argument; a word that is a
 * placeholder with several values becomes several arguments, elsewhere the
 * values are joined by blanks. Shell: a command of one word with blanks or
 * shell characters is run as  SHELL -c SCRIPT sh VALUE...  where SCRIPT has a
 * positional parameter in place of every placeholder, written according to the
 * quotes around, so that no byte of the input is ever read as shell text.
 *
 *     {}    the item, or all items of the job        {#}  job number
 *     {.}   without its last extension               {%}  slot number
 *     {/}   base name      {//}  folder              {{ }}  literal braces
 *     {/.}  base name without extension
 *     {1} {2.} {3/} {name} {name.} ...  one field, with the same endings
 *
 * An unknown {word} stays unchanged. Without any placeholder the items are
 * appended: as arguments, or in the shell form as parameters at the end of the
 * line. `sh -c SCRIPT` is the shell form as well, with the given shell.
 */
#ifndef VOW_CLI_TEMPLATE_H
#define VOW_CLI_TEMPLATE_H

#include "text.h"

/* The values of the placeholders of one job; everything is borrowed. */
struct fields {
    const struct span *items; /* {}: items of this job, in order */
    size_t n_items;
    const struct span *fields; /* {1}...; without -C the same as the items */
    size_t n_fields;
    uint64_t seq;  /* {#} */
    uint32_t slot; /* {%} */
};

struct template_opts {
    const char *replace;      /* -I: placeholder instead of {}; NULL: {} */
    const char *shell;        /* --shell PATH; NULL: sh */
    bool exec;                /* --exec: never the shell form */
    const struct span *names; /* --header: names of the fields */
    size_t n_names;
    size_t n_fields; /* most fields of a job; 0: not known */
};

struct template;

/* Makes a template. `words` are the command and the arguments as given,
 * borrowed for the life of the template; the options are copied. Returns NULL
 * and an error in *ret_error (owned by the caller, perhaps several lines) when
 * a placeholder is not allowed in its place (see shell_guard.c), names the
 * field 0 ("fields are counted from 1"), a field that no job has, or a
 * misspelled column. Bad options of the caller are not checked. */
struct template *template_new(char *const *words, size_t n,
                              const struct template_opts *o, char **ret_error);
void template_free(struct template *t);

/* Returns the program: the first word, or the shell; NULL: depends on the
 * input. */
const char *template_program(const struct template *t);

/* A command line. The memory is used again for each job. */
struct command {
    char **argv;
    size_t argc;
    size_t bytes; /* with NULs and pointers, as the kernel counts */
    struct text arena;
    size_t room;
};
/* Makes the command line of a job. A field that the job does not have is empty.
 * Returns NULL, or why this job cannot be run: a shell would read a value as
 * commands. The message belongs to the template. */
const char *template_expand(struct template *t, const struct fields *f,
                            struct command *ret_command);
void command_free(struct command *c);

/* Adds the command as text for pasting into a shell, for --dry-run, -v and the
 * logs: the exec form quoted word by word; the shell form as the script with
 * quoted values in place. */
void template_show(struct template *t, const struct fields *f,
                   struct text *ret_text);
/* The same for descriptor `fd`: on a terminal, control characters of values are
 * shown as escapes. Newlines of the script itself stay. */
void template_show_on(int fd, struct template *t, const struct fields *f,
                      struct text *ret_text);

/* Computes 16 bytes that identify the job by content: by the words of the
 * command and the values in place, each with a length, but not by {#} and
 * {%}. */
void template_hash(struct template *t, const struct fields *f,
                   unsigned char ret_hash[16]);

/* Returns the part of a value for an ending: {"/.", "/a/b.c"} -> "b". Not
 * static for the tests. `how` is the ending: "", ".", "/", "//", "/.". */
struct span template_part(struct span value, const char *how);

#endif
