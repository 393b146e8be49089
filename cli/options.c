/* SPDX-License-Identifier: MIT */
/* options.c - reading options from the table of a verb.
 *
 * WHY   getopt_long() would also take the options of the command, accepts
 *       abbreviated long names, and does not suggest an option.
 * HOW   Words are read from the left up to the first word that is no option;
 *       the rest belongs to the command. The option to suggest is the option
 *       with the fewest edits: a letter inserted, removed, replaced or swapped.
 */
#include "options.h"

#include "say.h"
#include "text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NAMES = 128, MOST_NAME = 48 };

static int read_long_option(struct options *o, const char *word);
static int read_short_option(struct options *o);
static int take_option_value(struct options *o, const struct option_def *def);
static const struct option_def *find_option(const struct verb_def *verb,
                                            char letter, struct span name);
static _Noreturn void refuse_unknown_option(const struct options *o,
                                            struct span name, const char *word);
static struct span name_before_equals(const char *s);
static const char *nearest_name(const struct verb_def *verb, struct span name);
static const char *listed_name(const struct verb_def *verb, const char *name);
static char nearest_letter(const struct verb_def *verb, struct span name,
                           bool two_dashes);
static bool is_long_name(const struct options *o, const char *name);
static bool requires_value(const struct option_def *def);
static bool next_is_known_word(const struct option_def *def,
                               const struct options *o);
static _Noreturn void help_and_exit(const struct verb_def *verb);
static unsigned edit_distance(const char *a, const char *b);
static unsigned least_of(unsigned a, unsigned b);

static const struct option_def no_options[] = {{.id = 0}};
/* Known to all verbs; searched after the options of the verb. */
static const struct option_def help_option = {
    .id = -1, .letter = 'h', .name = "help"};

struct options options_of(const struct verb_def *verb, int argc, char **argv)
{
    return (struct options){
        .verb = verb, .argc = argc, .argv = argv, .at = argc > 0 ? 1 : 0};
}

int options_next(struct options *o)
{
    o->value = NULL;
    if (o->letters != NULL)
        return read_short_option(o);
    const char *word = o->at < o->argc ? o->argv[o->at] : NULL;
    if (word == NULL || word[0] != '-' || word[1] == '\0')
        return 0;
    o->at++;
    if (strcmp(word, "--") == 0)
        return 0;
    if (word[1] == '-')
        return read_long_option(o, word);
    if (is_long_name(o, word + 1))
        refuse_unknown_option(o, name_before_equals(word + 1), word);
    o->letters = word + 1;
    return read_short_option(o);
}

static int read_long_option(struct options *o, const char *word)
{
    static char spelled[MOST_NAME + 2]; /* outlives *o */
    struct span name = name_before_equals(word + 2);
    const struct option_def *def = find_option(o->verb, '\0', name);
    if (def == NULL) {
        refuse_unknown_option(o, name, word);
        return 0; /* never reached; for static analyzers */
    }
    snprintf(spelled, sizeof(spelled), "--%s", def->name);
    o->spelled = spelled;
    if (name.at[name.n] == '=')
        o->value = name.at + name.n + 1;
    if (o->value != NULL && def->value == NULL)
        die(o->verb->usage_code,
            "vow %s: %s: it takes no value; write %s alone", o->verb->name,
            word, spelled);
    return take_option_value(o, def);
}

/* Reads the first letter of o->letters, the rest of the word before o->at. */
static int read_short_option(struct options *o)
{
    const char *word = o->argv[o->at - 1];
    const char *letter = o->letters;
    const struct option_def *def =
        find_option(o->verb, *letter, (struct span){0});
    snprintf(o->buffer, sizeof(o->buffer), "-%c", *letter);
    if (def == NULL && letter == word + 1)
        refuse_unknown_option(o, name_before_equals(letter), word);
    if (def == NULL)
        refuse_unknown_option(o, (struct span){.at = letter, .n = 1},
                              o->buffer);
    o->spelled = o->buffer;
    o->letters = letter[1] != '\0' ? letter + 1 : NULL;
    if (requires_value(def) && o->letters != NULL) {
        o->value = o->letters;
        o->letters = NULL;
    }
    return take_option_value(o, def);
}

static int take_option_value(struct options *o, const struct option_def *def)
{
    if (def == &help_option)
        help_and_exit(o->verb);
    if (o->value != NULL || def->value == NULL)
        return def->id;
    if (!requires_value(def) && !next_is_known_word(def, o))
        return def->id;
    if (o->at >= o->argc)
        die(o->verb->usage_code, "vow %s: %s needs a value: %s %s",
            o->verb->name, o->spelled, o->spelled, def->value);
    o->value = o->argv[o->at++];
    return def->id;
}

static bool requires_value(const struct option_def *def)
{
    return def->value != NULL && def->value[0] != '[';
}

/* Returns whether the next word is an optional value: --progress plain, but not
 * --progress make. */
static bool next_is_known_word(const struct option_def *def,
                               const struct options *o)
{
    const char *next = o->at < o->argc ? o->argv[o->at] : "";
    const char *at = def->words != NULL ? def->words : "";
    while (*at != '\0') {
        struct span word = {.at = at, .n = strcspn(at, " ")};
        if (span_is(word, next))
            return true;
        at += word.n + (at[word.n] == ' ');
    }
    return false;
}

static const struct option_def *find_option(const struct verb_def *verb,
                                            char letter, struct span name)
{
    const struct option_def *def =
        verb->options != NULL ? verb->options : no_options;
    for (;; def++) {
        if (def->id == 0)
            def = &help_option;
        if (letter != '\0' && letter == def->letter)
            return def;
        if (letter == '\0' && def->name != NULL && span_is(name, def->name))
            return def;
        if (def == &help_option)
            return NULL;
    }
}

/* Returns whether the word is a long name with a single dash: -rate means
 * --rate, not -r -a -t -e. */
static bool is_long_name(const struct options *o, const char *name)
{
    struct span s = name_before_equals(name);
    return s.n > 2 && find_option(o->verb, '\0', s) != NULL;
}

static struct span name_before_equals(const char *s)
{
    return (struct span){.at = s, .n = strcspn(s, "=")};
}

/* `name` is the word without dashes and value. `word` is shown up to "=". */
static _Noreturn void refuse_unknown_option(const struct options *o,
                                            struct span name, const char *word)
{
    struct text hint = {0};
    const char *near = nearest_name(o->verb, name);
    char letter = nearest_letter(o->verb, name, word[1] == '-');
    if (near != NULL)
        text_addf(&hint, "did you mean '--%s'? See", near);
    else if (letter != '\0')
        text_addf(&hint, "did you mean '-%c'? See", letter);
    else
        text_add_str(&hint, "see");
    size_t shown = name.n > 0 ? strcspn(word, "=") : strlen(word);
    die(o->verb->usage_code, "vow %s: unknown option '%.*s'; %s vow %s --help",
        o->verb->name, (int)shown, word, hint.at, o->verb->name);
}

static const char *nearest_name(const struct verb_def *verb, struct span name)
{
    const char *names[MOST_NAMES + 1] = {help_option.name};
    size_t n = 1;
    const struct option_def *def =
        verb->options != NULL ? verb->options : no_options;
    for (; def->id != 0 && n < MOST_NAMES; def++)
        if (def->name != NULL)
            names[n++] = def->name;
    if (name.n < 2)
        return NULL;
    char *word = mem_copy(name.at, name.n);
    const char *near = options_nearest(word, names);
    free(word);
    return near == NULL ? NULL : listed_name(verb, near);
}

/* Returns the spelling of the help: --retries for --retry. */
static const char *listed_name(const struct verb_def *verb, const char *name)
{
    const struct option_def *def = find_option(verb, '\0', span_of(name));
    if (def == NULL || def == &help_option || def->help != NULL)
        return name;
    for (const struct option_def *d = verb->options; d->id != 0; d++)
        if (d->id == def->id && d->help != NULL && d->name != NULL)
            return d->name;
    return name;
}

/* Returns the letter for `--x`, or the letter in the other case for `-x`; NUL
 * if there is no such option. */
static char nearest_letter(const struct verb_def *verb, struct span name,
                           bool two_dashes)
{
    unsigned char c = (unsigned char)(name.n > 0 ? name.at[0] : '\0');
    if (two_dashes && name.n != 1)
        return '\0';
    if (!two_dashes)
        c = (unsigned char)(islower(c) ? toupper(c) : tolower(c));
    return find_option(verb, (char)c, (struct span){0}) != NULL ? (char)c
                                                                : '\0';
}

_Noreturn void options_refuse(const struct options *o, const char *sentence)
{
    struct text value = {0};
    bool secret = o->value != NULL && strstr(o->value, "://") != NULL &&
                  strchr(o->value, '@') != NULL; /* may contain a password */
    if (o->value != NULL) {
        text_add(&value, " ", 1);
        text_add_quoted(&value, span_of(secret ? "..." : o->value));
    }
    die(o->verb->usage_code, "vow %s: invalid %s%s: %s", o->verb->name,
        o->spelled, value.at != NULL ? value.at : "", sentence);
}

static _Noreturn void help_and_exit(const struct verb_def *verb)
{
    options_help(stdout, verb);
    if (fflush(stdout) != 0 || ferror(stdout))
        die(EXIT_BROKEN, "cannot write the help: %m");
    exit(0);
}

/* A word is near if it begins with `word`, or has at most an edit per three
 * letters. */
const char *options_nearest(const char *word, const char *const *words)
{
    const char *best = NULL;
    size_t n = strlen(word);
    unsigned best_edits = 0;
    if (n == 0 || n > MOST_NAME)
        return NULL;
    for (; *words != NULL; words++) {
        size_t m = strlen(*words);
        bool begins = n >= 2 && strncasecmp(word, *words, n) == 0;
        unsigned far = begins && n < m ? 1 : edit_distance(word, *words);
        unsigned allowed = (unsigned)((n > m ? n : m) + 1) / 3;
        if (allowed == 0)
            allowed = 1;
        if (far <= allowed && far < m && (best == NULL || far < best_edits)) {
            best = *words;
            best_edits = far;
        }
    }
    return best;
}

/* Returns how many letters to insert, remove, replace or swap with the next
 * letter turn `a` into `b`. Words have at most MOST_NAME letters; case does not
 * count. */
static unsigned edit_distance(const char *a, const char *b)
{
    unsigned rows[3][MOST_NAME + 1];
    unsigned *before = rows[0];
    unsigned *above = rows[1];
    unsigned *row = rows[2];
    size_t m = strlen(b);
    if (m > MOST_NAME)
        return MOST_NAME;
    for (unsigned j = 0; j <= m; j++)
        row[j] = j;
    for (unsigned i = 1; a[i - 1] != '\0'; i++) {
        unsigned *oldest = before;
        before = above;
        above = row;
        row = oldest;
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            int x = tolower((unsigned char)a[i - 1]);
            int y = tolower((unsigned char)b[j - 1]);
            row[j] = least_of(above[j - 1] + (x != y),
                              least_of(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                y == tolower((unsigned char)a[i - 2]))
                row[j] = least_of(row[j], before[j - 2] + 1);
        }
    }
    return row[m];
}

static unsigned least_of(unsigned a, unsigned b)
{
    return a < b ? a : b;
}
