/* SPDX-License-Identifier: MIT */
/* template.h - the command with its placeholders, and the command line made of
 * it for one job. See vow-map(1), "COMMAND" and "PLACEHOLDERS".
 *
 * Two forms. Exec: each word is an argument; a word that is a placeholder of
 * several values becomes several arguments, elsewhere they are joined by
 * blanks. Shell: the command was one word with blanks or shell characters; it
 * is run as  SHELL -c SCRIPT sh VALUE...  where every placeholder in SCRIPT was
 * replaced by a positional parameter written according to the quotes around it,
 * so that no byte of the input is ever read as shell text.
 *
 *     {}    the item, or all items of the job        {#}  job number
 *     {.}   without its last extension               {%}  slot number
 *     {/}   base name      {//}  folder              {{ }}  literal braces
 *     {/.}  base name without extension
 *     {1} {2.} {3/} {name} {name.} ...  one field, with the same endings
 *
 * An unknown {word} stays as it is. Without any placeholder the items are
 * appended: as arguments, or in the shell form as parameters at the end of the
 * line. `sh -c SCRIPT` is the shell form as well, with that shell.
 */
#ifndef VOW_CLI_TEMPLATE_H
#define VOW_CLI_TEMPLATE_H

#include "text.h"

/* What one job's placeholders stand for; everything is borrowed. */
struct fields {
    const struct span *items; /* {}: of this job, in order */
    size_t n_items;
    const struct span *fields; /* {1}...; often the same as the items */
    size_t n_fields;
    uint64_t seq;  /* {#} */
    uint32_t slot; /* {%} */
};

struct template_opts {
    const char *replace;      /* -I: instead of {}; NULL: {} */
    const char *shell;        /* --shell PATH; NULL: sh */
    bool exec;                /* --exec: never the shell form */
    const struct span *names; /* --header: names of the fields */
    size_t n_names;
    size_t n_fields; /* that a job has at most; 0: not known */
};

struct template;

/* `words` are the command and its arguments as given; they are borrowed for as
 * long as the template lives, the options are not. Returns NULL and an error
 * in *ret_error (owned by the caller; it may have several lines) when a
 * placeholder is where it cannot be (see shell_guard.c), names a field 0
 * ("fields are counted from 1"), one that no job has, or nearly a column. Bad
 * options of the caller are no concern. */
struct template *template_new(char *const *words, size_t n,
                              const struct template_opts *o, char **ret_error);
void template_free(struct template *t);

/* The program that would be run: the first word, or the shell; NULL when it
 * depends on the input. */
const char *template_program(const struct template *t);

/* A command line, made again and again in the same memory. */
struct command {
    char **argv; /* ends with NULL */
    size_t argc;
    size_t bytes; /* with all NULs and pointers, as the kernel counts them */
    struct text arena;
    size_t room;
};
/* A field that a job has not got is empty. NULL; or why this job cannot be run:
 * a value would become a part of what a shell reads as commands. The template
 * owns the sentence. */
const char *template_expand(struct template *t, const struct fields *f,
                            struct command *ret_command);
void command_free(struct command *c);

/* Ready to be pasted into a shell, for --dry-run, -v and the logs: the exec
 * form quoted word by word; the shell form as the script with its values in
 * place, properly quoted. */
void template_show(struct template *t, const struct fields *f,
                   struct text *ret_text);
/* The same for that descriptor: on a terminal, what a value would do to it is
 * shown as escapes. Newlines of the script itself stay. */
void template_show_on(int fd, struct template *t, const struct fields *f,
                      struct text *ret_text);

/* What identifies the job by content: 16 bytes that depend on the words of the
 * command and the values in their places, each with its length, and on neither
 * {#} nor {%}. */
void template_hash(struct template *t, const struct fields *f,
                   unsigned char ret_hash[16]);

/* One value of a placeholder by hand: {"/.", "/a/b.c"} -> "b". Exposed for
 * --results and --tag. `how` is the ending: "", ".", "/", "//", "/.". */
struct span template_part(struct span value, const char *how);

#endif
