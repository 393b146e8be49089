/* SPDX-License-Identifier: MIT */
/* options_help.c - the help of a verb, laid out for 80 columns.
 *
 * HOW   Two columns: the option, and the help. The left column is as wide as
 *       the widest entry of at most MOST_LEFT columns; a wider entry has a line
 *       of its own. Long lines are broken between words and continue in the
 *       same column. Lines that begin with a blank, such as examples, are not
 *       changed.
 */
#include "options.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 79, MOST_LEFT = 28 };

static size_t left_width(const struct option_def *options);
static void put_option(FILE *out, const struct option_def *def, size_t left);
static void put_entry(FILE *out, const char *entry, const char *help,
                      size_t left);
static void add_entry(struct text *t, const struct option_def *def);
static void put_wrapped(FILE *out, const char *s, size_t column, size_t indent);
static void put_story(FILE *out, const char *story);
static size_t text_columns(const char *s, size_t n);
static bool has_verb(const char *name);

static const struct option_def help_option = {
    .id = 1, .letter = 'h', .name = "help", .help = "show this help"};

void options_help(FILE *out, const struct verb_def *verb)
{
    const struct option_def *def = verb->options;
    size_t left = left_width(def);
    int column = fprintf(out, "Usage: vow %s ", verb->name);
    put_wrapped(out, verb->usage, (size_t)column, (size_t)column);
    fputc('\n', out);
    put_wrapped(out, verb->about, 0, 0);
    for (bool first = true; def != NULL && def->id != 0; def++) {
        if (def->help == NULL)
            continue;
        if (def->group != NULL || first)
            fprintf(out, "\n%s:\n",
                    def->group != NULL ? def->group : "Options");
        first = false;
        put_option(out, def, left);
    }
    fputc('\n', out);
    put_option(out, &help_option, left);
    if (verb->story != NULL && verb->story[0] != '\0')
        put_story(out, verb->story);
}

void options_help_all(FILE *out)
{
    size_t left = strlen("completion");
    for (size_t i = 0; verbs[i] != NULL; i++)
        if (strlen(verbs[i]->name) > left)
            left = strlen(verbs[i]->name);
    left += 4; /* two blanks on each side */
    fputs("Usage: vow VERB [OPTION...] ...\n\nVerbs:\n", out);
    for (size_t i = 0; verbs[i] != NULL; i++)
        put_entry(out, verbs[i]->name, verbs[i]->about, left);
    if (!has_verb("completion"))
        put_entry(out, "completion",
                  "print a completion script: bash, zsh or fish", left);
    if (!has_verb("help"))
        put_entry(out, "help", "show this, or the help of a verb", left);
    fputs("\nvow VERB --help shows what a verb does, and its options;\n"
          "vow --version tells the version.\n",
          out);
}

static bool has_verb(const char *name)
{
    for (size_t i = 0; verbs[i] != NULL; i++)
        if (strcmp(verbs[i]->name, name) == 0)
            return true;
    return false;
}

/* Returns the width of the left column. */
static size_t left_width(const struct option_def *options)
{
    struct text entry = {0};
    size_t most = strlen("  -h, --help");
    for (; options != NULL && options->id != 0; options++) {
        text_clear(&entry);
        add_entry(&entry, options);
        size_t n = 2 + text_columns(entry.at, entry.n);
        if (options->help != NULL && n > most && n + 2 <= MOST_LEFT)
            most = n;
    }
    text_free(&entry);
    return most + 2;
}

static void put_option(FILE *out, const struct option_def *def, size_t left)
{
    struct text entry = {0};
    add_entry(&entry, def);
    put_entry(out, entry.at, def->help, left);
    text_free(&entry);
}

/* Adds "-j, --jobs N|N%|Nx"; names without a letter are indented. */
static void add_entry(struct text *t, const struct option_def *def)
{
    if (def->letter != '\0')
        text_addf(t, "-%c", def->letter);
    else
        text_add_str(t, "    ");
    if (def->letter != '\0' && def->name != NULL)
        text_add_str(t, ", ");
    if (def->name != NULL)
        text_addf(t, "--%s", def->name);
    if (def->value == NULL)
        return;
    if (def->value[0] == '[')
        text_addf(t, "[=%s", def->value + 1);
    else
        text_addf(t, " %s", def->value);
}

static void put_entry(FILE *out, const char *entry, const char *help,
                      size_t left)
{
    size_t column = 2 + text_columns(entry, strlen(entry));
    fprintf(out, "  %s", entry);
    if (column + 2 > left) {
        fputc('\n', out);
        column = 0;
    }
    fprintf(out, "%*s", (int)(left - column), "");
    put_wrapped(out, help, left, left);
}

static void put_story(FILE *out, const char *story)
{
    fputc('\n', out);
    while (*story != '\0') {
        size_t n = strcspn(story, "\n");
        char *line = mem_copy(story, n);
        if (line[0] == ' ' || line[0] == '\t')
            fprintf(out, "%s\n", line);
        else
            put_wrapped(out, line, 0, 0);
        free(line);
        story += n + (story[n] == '\n' ? 1 : 0);
    }
}

/* Prints words from `column` on; further lines are indented. */
static void put_wrapped(FILE *out, const char *s, size_t column, size_t indent)
{
    bool first = true;
    while (*s != '\0') {
        size_t n = strcspn(s, " ");
        size_t width = text_columns(s, n);
        if (!first && column + 1 + width > COLUMNS) {
            fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (!first) {
            fputc(' ', out);
            column++;
        }
        fwrite(s, 1, n, out);
        column += width;
        first = false;
        s += n + (s[n] == ' ' ? 1 : 0);
    }
    fputc('\n', out);
}

/* Returns the columns of UTF-8 text in which every character has width 1. */
static size_t text_columns(const char *s, size_t n)
{
    size_t width = 0;
    for (size_t i = 0; i < n; i++)
        width += ((unsigned char)s[i] & 0xc0) != 0x80;
    return width;
}
