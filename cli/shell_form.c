/* SPDX-License-Identifier: MIT */
/* shell_form.c - what of a job may stand where in a script, and how.
 *
 * WHY   Input is never shell text. A value reaches the script as a positional
 *       parameter only, and what a shell expands it does not read again as
 *       commands. So no mistake made here about quotes can run anything: it
 *       could only split a value into words or show a parameter's name. Quotes
 *       have to be known so that a value arrives as one word, byte for byte:
 *
 *           bare {}     "${1}"           "a {} b"   "a ${1} b"
 *           $(f {})     $(f "${1}")      'a {} b'   'a '"${1}"' b'
 *
 * HOW   shell_scan.c finds the quotes and commands around each hole; what may
 *       stand there is judged here.
 *
 * REFUSED   Where a shell does read what it expanded once more: arithmetic in
 *       $((...)), ((...)), $[...], [[...]] and a[...]=; in bash the value
 *       b[$(command)] runs the command there. Numbers of ours, {#} and {%}, are
 *       digits and may stand there. Where shells do not agree or nobody could
 *       tell what is meant: ${...}, `...`, $'...', here-documents, behind a
 *       backslash. In a function, whose parameters are its own.
 *
 * PLAIN VALUES   In the text of eval, trap and `sh -c`, when these words are
 *       there to be seen, a value becomes part of what another shell reads. So
 *       it may only have characters there that no shell does anything with; a
 *       job with another value is not run.
 *
 * LIMITS   It cannot know what a command does with its arguments. What an eval
 *       by another name gets (ssh, su -c, the text of an awk program), or a
 *       builtin as a number or a variable's name (let, read, unset, declare -i,
 *       [ -v in bash, [ -eq in ksh), is read as these please; and `sh -c {}` or
 *       `eval {}`, a placeholder alone, runs its input because that was asked.
 *       The script's own $1, $@ and $# are our parameters: the values in the
 *       order of their first use, each once; a bare $1 is split into words, as
 *       always. `set --` and `shift` move them, and a {} behind that gets
 *       something else. Within '...', as in awk '{print $1}', they are only
 *       characters, and stay.
 */
#include "shell_scan.h"

static enum why refusal(const struct scanner *s, const struct level *l,
                        enum hole_place place, size_t from);
static bool in_subscript(const struct scanner *s, size_t from);
static bool stands_alone(const struct scanner *s, const struct level *l);
static void show_in_double(struct text *into, struct span value);
static void show_in_single(struct text *into, struct span value);

/* To be read behind "{} cannot stand". */
static const char *const sentences[] = {
    [WHY_NOT] = NULL,
    [WHY_BRACE] = "in ${...} or behind a $: assign it to a variable before, "
                  "and use that",
    [WHY_MATH] = "in $((...)) or ((...)), where a shell may run what it "
                 "evaluates: use expr or [ ... ], and for two subshells "
                 "write ( (",
    [WHY_TEST] = "in [[...]], where a shell may run what it evaluates: use "
                 "[ ... ] or case",
    [WHY_SUBSCRIPT] = "in the subscript of an array, where a shell may run "
                      "what it evaluates: with declare -A, assign it to a "
                      "variable before, and use that",
    [WHY_BACKQUOTES] = "in `...`: write $(...) instead",
    [WHY_ANSI] = "in $'...': end these quotes before it",
    [WHY_BACKSLASH] = "behind a backslash: write \\\\ for a backslash, or "
                      "double the braces if they are meant as they are",
    [WHY_DOC] = "in a here-document: assign it to a variable before, and use "
                "that",
    [WHY_DOC_END] = "in the word that ends a here-document: use a fixed word",
    [WHY_LATE_DOC] = "behind a here-document that begins inside $(...) and "
                     "ends outside: close the $(...) behind it",
    [WHY_FUNCTION] = "in a function, which has parameters of its own: write "
                     "\"$1\" there, and the placeholder where it is called",
};

const char *shell_form_scan(struct span script, struct hole *holes,
                            size_t *ret_bad)
{
    struct scanner s = {.script = script, .holes = holes};
    shell_scan(&s);
    *ret_bad = s.hole;
    return sentences[s.why];
}

/* ---- what may stand where ------------------------------------------------ */

void shell_form_meet(struct scanner *s, const struct level *l,
                     enum hole_place place, size_t from)
{
    struct hole *h = &s->holes[s->hole];
    if (place == HOLE_BARE && stands_alone(s, l))
        place = HOLE_WORDS;
    h->place = place;
    h->argument = place == HOLE_WORDS && l->kind == TOP && l->position == LATER;
    h->redirected = scan_one_of(scan_peek(s, 1), "<>");
    s->why = refusal(s, l, place, from);
    bool asked = place == HOLE_WORDS && l->reads != READS_ALL;
    h->text = !h->number && l->reads >= READS_NEXT && !asked;
}

static enum why refusal(const struct scanner *s, const struct level *l,
                        enum hole_place place, size_t from)
{
    bool number = s->holes[s->hole].number;
    if (s->lost != WHY_NOT)
        return s->lost;
    if (l->function || l->body_next)
        return WHY_FUNCTION;
    if (l->kind == BRACE)
        return WHY_BRACE;
    if (l->kind == MATH)
        return number && place != HOLE_SINGLE ? WHY_NOT : WHY_MATH;
    if (number)
        return WHY_NOT;
    if (l->kind == TEST)
        return WHY_TEST;
    return in_subscript(s, from) ? WHY_SUBSCRIPT : WHY_NOT;
}

/* a[{}]=x, a["{}"]+=x, a=([{}]=x), with blanks or without; but not "a[{}]=x",
 * whose bracket is within the quotes. */
static bool in_subscript(const struct scanner *s, size_t from)
{
    const char *script = s->script.at;
    size_t to = s->at;
    while (from > 0 && !scan_one_of(script[from - 1], "[]\n;&|"))
        from--;
    if (from < 2 || script[from - 1] != '[')
        return false;
    if (!scan_name_char(script[from - 2]) &&
        !scan_one_of(script[from - 2], " \t("))
        return false;
    while (to < s->script.n && !scan_one_of(script[to], "]\n"))
        to++;
    while (to < s->script.n && script[to] == ']')
        to++;
    to += to < s->script.n && script[to] == '+';
    return to < s->script.n && script[to] == '=';
}

/* Whether several words may stand there. Behind `>` only the first would be
 * the file and the second perhaps a command; behind `v=` as well. */
static bool stands_alone(const struct scanner *s, const struct level *l)
{
    int next = scan_peek(s, 1);
    return l->word == s->at && !l->target && l->kind != CASE_HEAD &&
           l->kind != CASE_PATTERN &&
           (next < 0 || scan_one_of(next, " \t\n;&|<>)"));
}

enum shell_reads shell_form_reads(enum shell_reads before, struct span word)
{
    static const char *const shells[] = {"sh",  "bash", "dash", "ash",  "ksh",
                                         "zsh", "mksh", "fish", "tcsh", NULL};
    const char *slash = word.n > 0 ? memrchr(word.at, '/', word.n) : NULL;
    const char *name = slash != NULL ? slash + 1 : word.at;
    size_t n = word.n - (size_t)(name - word.at);
    if (before >= READS_EVAL)
        return READS_ALL;
    if (scan_among((struct span){name, n}, shells))
        return READS_OPTIONS;
    if (before == READS_VALUE)
        return READS_OPTIONS;
    if (before != READS_OPTIONS || word.n < 2 ||
        !scan_one_of(word.at[0], "-+")) /* the name of a file ends them */
        return READS_NOTHING;
    if (word.at[1] != '-' && memchr(word.at, 'c', word.n) != NULL)
        return READS_NEXT;
    return scan_one_of(word.at[word.n - 1], "oO") ? READS_VALUE : READS_OPTIONS;
}

bool shell_form_plain(struct span value)
{
    for (size_t i = 0; i < value.n; i++)
        if (!scan_name_char(value.at[i]) &&
            !scan_one_of(value.at[i], "@%+=:,./-"))
            return false;
    return value.n > 0;
}

/* Only where quotes cannot be mistaken: no here-document, no $(...) beside it,
 * no comment, no backslash within. The two spellings then mean the same. */
char *shell_form_without_backquotes(const char *script)
{
    struct text out = {0};
    bool within = false, some = false, lost = false;
    char quote = '\0', outer = '\0';
    if (strchr(script, '`') == NULL || strstr(script, "<<") != NULL ||
        strstr(script, "$(") != NULL)
        return NULL;
    for (const char *c = script; *c != '\0' && !lost; c++) {
        if (*c == '`' && quote != '\'') {
            const char *end = strchr(c + 1, '`');
            some |= !within && end != NULL &&
                    memchr(c, '{', (size_t)(end - c)) != NULL;
            text_add_str(&out, within ? ")" : "$(");
            within = !within;
            char before = quote; /* quotes begin anew inside, go on behind */
            quote = within ? '\0' : outer;
            outer = before;
            continue;
        }
        if ((*c == '"' || *c == '\'') && (quote == '\0' || quote == *c))
            quote = quote == '\0' ? *c : '\0';
        lost = quote != '\'' && ((*c == '\\' && within) || *c == '#');
        if (*c == '\\' && quote != '\'' && c[1] != '\0')
            text_add(&out, c++, 1);
        text_add(&out, c, 1);
    }
    if (some && !within && !lost)
        return out.at;
    text_free(&out);
    return NULL;
}

/* What a shell would do something with; quotes and blanks first of all. These
 * are not enough: a tilde that does not begin the word, = # % ! { } , and ],
 * which in one word without blanks are what file names and options hold. So
 * ./my%prog, a=b and c# are run as they are, and ~/bin/prog and 'A=1 prog' by
 * a shell. */
bool shell_form_wanted(struct span rest, bool begins)
{
    if (begins && rest.n > 0 && rest.at[0] == '~')
        return true;
    for (size_t i = 0; i < rest.n; i++)
        if (scan_one_of(rest.at[i], " \t\n|&;<>()$`\\\"'*?["))
            return true;
    return false;
}

/* ---- writing ------------------------------------------------------------- */

void shell_form_write(struct text *into, enum hole_place place, size_t first,
                      size_t n)
{
    switch (place) {
    case HOLE_WORDS:
    case HOLE_BARE:
        for (size_t i = 0; i < n; i++)
            text_addf(into, "%s\"${%zu}\"", i > 0 ? " " : "", first + i);
        break;
    case HOLE_DOUBLE:
    case HOLE_MATH:
        text_addf(into, "${%zu}", first);
        break;
    case HOLE_SINGLE:
        text_addf(into, "'\"${%zu}\"'", first);
        break;
    case HOLE_COMMENT:
        break;
    }
}

void shell_form_show(struct text *into, const struct hole *hole,
                     struct span value)
{
    switch (hole->place) {
    case HOLE_WORDS:
    case HOLE_BARE:
        if (hole->place == HOLE_WORDS && !hole->redirected) {
            text_add_quoted(into, value);
            break;
        }
        text_add_str(into, "'"); /* a$b{}, ~{}, v{}=: a part of nothing */
        show_in_single(into, value);
        text_add_str(into, "'");
        break;
    case HOLE_DOUBLE:
        show_in_double(into, value);
        break;
    case HOLE_SINGLE:
        show_in_single(into, value);
        break;
    case HOLE_MATH:
        text_add(into, value.at, value.n);
        break;
    case HOLE_COMMENT:
        break;
    }
}

/* As it is, unless something in it is special there or it would lengthen the
 * name of a variable before it: then the quotes are closed around it. */
static void show_in_double(struct text *into, struct span value)
{
    bool plain = into->n == 0 || !scan_name_char(into->at[into->n - 1]);
    for (size_t i = 0; i < value.n && plain; i++)
        plain = !scan_one_of(value.at[i], "\"$`\\!");
    if (plain) {
        text_add(into, value.at, value.n);
        return;
    }
    text_add_str(into, "\"'");
    show_in_single(into, value);
    text_add_str(into, "'\"");
}

static void show_in_single(struct text *into, struct span value)
{
    for (size_t i = 0; i < value.n; i++) {
        if (value.at[i] == '\'')
            text_add_str(into, "'\\''");
        else
            text_add(into, value.at + i, 1);
    }
}
