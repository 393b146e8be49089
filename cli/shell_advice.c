/* SPDX-License-Identifier: MIT */
/* shell_advice.c - explains the refusal of a placeholder: why, where, and a
 * script that works.
 *
 * HOW   A draft is the script with another text in place of the refused
 *       placeholders. Several kinds of drafts are tried, and a draft is shown
 *       only if the guard accepts the draft: no advice leads to another
 *       refusal, or to a script that runs its input.
 */
#include "shell_scan.h"

#include <stdlib.h>

struct draft {
    struct text script;
    struct hole *holes; /* holes of the draft, in order */
    size_t n;
};

static char *explain_refusal(const struct scanner *s, const struct mark *bad);
static void show_place(struct text *into, const struct scanner *s,
                       const struct mark *bad);
static char *find_better(const struct scanner *s, const struct mark *bad,
                         size_t kind);
static char *finish_draft(const struct scanner *s, struct draft *d,
                          bool any_value);
static void scanner_free(struct scanner *s);
static void copy_script(const struct scanner *s, struct draft *d, size_t from,
                        size_t to);
static void add_hole(const struct scanner *s, struct draft *d, size_t hole);
static void put_variable(const struct scanner *s, struct draft *d,
                         const struct mark *m, const char *name);
static size_t draft_special(const struct scanner *s, struct draft *d,
                            const struct mark *m);
static char *pass_as_argument(const struct scanner *s);
static void unquote_text(const struct scanner *s, struct draft *inner,
                         size_t hole);
static bool write_inner(struct draft *inner, bool numbered);

/* Texts that continue "{} cannot stand". */
static const char *const sentences[] = {
    [WHY_NOT] = NULL,
    [WHY_BRACE] = "in ${...} or behind a $",
    [WHY_MATH] = "in arithmetic: a shell runs the commands in an expression "
                 "such as a[$(command)]",
    [WHY_TEST] = "in [[...]]: a shell may run the commands in what it compares",
    [WHY_SUBSCRIPT] = "in a subscript: a shell runs the commands in it; quote "
                      "the bracket if it is meant as it is",
    [WHY_BACKQUOTES] = "in `...` that has a backslash: use $(...)",
    [WHY_ANSI] = "in $'...': end these quotes before it",
    [WHY_BACKSLASH] = "behind a backslash: write \\\\ for a backslash, or "
                      "double the braces if they are meant as they are",
    [WHY_DOC] = "in a here-document",
    [WHY_DOC_END] = "in the word that ends a here-document: use a fixed word",
    [WHY_LATE_DOC] = "behind a here-document that begins inside $(...) and "
                     "ends outside: close the $(...) behind it",
    [WHY_SPLIT] = "in a script with an operator that a backslash and a newline "
                  "may take apart: put a blank before the backslash",
    [WHY_FUNCTION] = "in a function, which has parameters of its own",
    [WHY_FUNCTION_NAME] = "in the name of a function: use a fixed name",
    [WHY_COPY] = "behind >&: bash expands the word there twice",
    [WHY_BOTH] = "behind &>, which sh reads as & and >",
    [WHY_LET] = "in an expression that a builtin calculates: a shell runs the "
                "commands in an expression such as a[$(command)]",
    [WHY_OPERAND] = "as an operand of this builtin, which takes it for the "
                    "name of a variable and runs the commands in a name such "
                    "as a[$(command)]",
    [WHY_VARIABLE] = "in the value of this variable, which shells run or "
                     "calculate: use another variable, or write the script as "
                     "a file and run that",
};

char *shell_form_scan(struct span script, const struct shell_form *form,
                      struct hole *holes, char **ret_better)
{
    struct scanner s = {.script = script, .form = form, .holes = holes};
    const struct mark *bad = NULL;
    bool plain = false;
    char *error = NULL;
    shell_scan(&s);
    for (size_t i = 0; i < s.n_marks; i++) {
        if (s.marks[i].why != WHY_NOT &&
            (bad == NULL || s.marks[i].at < bad->at))
            bad = &s.marks[i];
        plain = plain || s.marks[i].need != NEED_NOTHING;
    }
    *ret_better = NULL;
    if (bad != NULL)
        error = explain_refusal(&s, bad);
    else if (plain)
        *ret_better = pass_as_argument(&s);
    scanner_free(&s);
    return error;
}

static void scanner_free(struct scanner *s)
{
    free(s->marks);
    free(s->words);
    free(s->taints);
}

static char *explain_refusal(const struct scanner *s, const struct mark *bad)
{
    struct text error = {0};
    struct span what = bad->name.at == NULL
                           ? s->holes[bad->hole].text
                           : (struct span){s->script.at + bad->at, bad->n};
    text_add(&error, what.at, what.n);
    if (bad->name.at != NULL)
        text_add_str(&error, ", which has an item,");
    text_addf(&error, " cannot stand %s", sentences[bad->why]);
    show_place(&error, s, bad);
    char *better = NULL;
    for (size_t kind = 0; kind < 3 && better == NULL; kind++)
        better = find_better(s, bad, kind);
    if (better != NULL)
        text_addf(&error, "\nwrite instead:\n  %s", better);
    free(better);
    return error.at;
}

/* Adds the line of the script, with carets below the mark. */
static void show_place(struct text *into, const struct scanner *s,
                       const struct mark *bad)
{
    struct text below = {0};
    size_t hole = 0;
    size_t from = bad->at;
    while (from > 0 && s->script.at[from - 1] != '\n')
        from--;
    for (size_t i = 0; i < from; i++)
        hole += s->script.at[i] == '\0';
    text_add_str(into, "\n  ");
    for (size_t i = from; i < s->script.n && s->script.at[i] != '\n'; i++) {
        struct span shown = {s->script.at + i, 1};
        if (shown.at[0] == '\0')
            shown = s->holes[hole++].text;
        text_add(into, shown.at, shown.n);
        bool here = i >= bad->at && i < bad->at + bad->n;
        for (size_t k = 0; k < shown.n && i < bad->at + bad->n; k++)
            if ((shown.at[k] & 0xc0) != 0x80) /* a column for each character */
                text_add_str(&below, here                  ? "^"
                                     : shown.at[k] == '\t' ? "\t"
                                                           : " ");
    }
    text_addf(into, "\n  %s", below.at);
    text_free(&below);
}

/* ---- drafts -------------------------------------------------------------- */

/* Makes a draft. Kind 0: a rewriting for the place; 1: a variable; 2: a number.
 * Returns NULL if the draft does not help. */
static char *find_better(const struct scanner *s, const struct mark *bad,
                         size_t kind)
{
    static const char *const names[] = {"", "item", "n"};
    bool numeric = bad->why == WHY_MATH || bad->why == WHY_LET ||
                   bad->why == WHY_SUBSCRIPT || bad->why == WHY_TEST;
    bool variable = bad->name.at != NULL;
    struct draft d = {0};
    size_t at = 0;
    if (s->form->exec || bad->why == WHY_VARIABLE || (kind == 2 && !numeric))
        return NULL;
    d.holes = mem_new((2 * s->hole + 1) * sizeof(*d.holes));
    struct span text = variable ? bad->name : s->holes[bad->hole].text;
    if (kind > 0 && !variable) {
        text_addf(&d.script, kind == 1 ? "%s=" : "%s=$(expr ", names[kind]);
        add_hole(s, &d, bad->hole);
        text_add_str(&d.script, kind == 1 ? "; " : " + 0); ");
    }
    for (size_t i = 0; i < s->n_marks; i++) {
        const struct mark *m = &s->marks[i];
        if (m->name.at != NULL || m->at < at)
            continue;
        struct span own = s->holes[m->hole].text;
        bool same = m->why != WHY_NOT && own.n == text.n &&
                    memcmp(own.at, text.at, own.n) == 0;
        if (!same && !(variable && kind == 2))
            continue;
        copy_script(s, &d, at, m->at);
        at = m->at + 1;
        if (kind == 0)
            at = draft_special(s, &d, m);
        else if (!variable)
            put_variable(s, &d, m, names[kind]);
        else {
            text_add_str(&d.script, "$(expr ");
            add_hole(s, &d, m->hole);
            text_add_str(&d.script, " + 0)");
        }
    }
    copy_script(s, &d, at, s->script.n);
    return finish_draft(s, &d, false);
}

/* Returns the draft as text if the guard accepts the draft, else NULL. With
 * `any_value`, no value may need to be plain. */
static char *finish_draft(const struct scanner *s, struct draft *d,
                          bool any_value)
{
    struct scanner check = {
        .script = text_span(&d->script), .form = s->form, .holes = d->holes};
    struct text out = {0};
    bool good = d->script.n != s->script.n ||
                (d->script.n > 0 &&
                 memcmp(d->script.at, s->script.at, s->script.n) != 0);
    shell_scan(&check);
    for (size_t i = 0; i < check.n_marks; i++)
        good = good && check.marks[i].why == WHY_NOT &&
               (!any_value || check.marks[i].need == NEED_NOTHING);
    for (size_t i = 0, hole = 0; i < d->script.n; i++) {
        struct span shown = {d->script.at + i, 1};
        if (shown.at[0] == '\0')
            shown = d->holes[hole++].text;
        text_add(&out, shown.at, shown.n);
    }
    scanner_free(&check);
    text_free(&d->script);
    free(d->holes);
    if (good)
        return out.at;
    text_free(&out);
    return NULL;
}

static void copy_script(const struct scanner *s, struct draft *d, size_t from,
                        size_t to)
{
    size_t hole = 0;
    for (size_t i = 0; i < from; i++)
        hole += s->script.at[i] == '\0';
    for (size_t i = from; i < to; i++) {
        if (s->script.at[i] == '\0')
            add_hole(s, d, hole++);
        else
            text_add(&d->script, s->script.at + i, 1);
    }
}

static void add_hole(const struct scanner *s, struct draft *d, size_t hole)
{
    d->holes[d->n++] = (struct hole){.number = s->holes[hole].number,
                                     .text = s->holes[hole].text};
    text_add(&d->script, "", 1);
}

/* Writes the variable as the place requires. A $ before the placeholder is
 * dropped. */
static void put_variable(const struct scanner *s, struct draft *d,
                         const struct mark *m, const char *name)
{
    bool bare = m->why == WHY_FUNCTION || m->why == WHY_TEST ||
                m->why == WHY_BACKQUOTES;
    enum hole_place place = s->holes[m->hole].place;
    if (m->at > 0 && s->script.at[m->at - 1] == '$' && m->why == WHY_BRACE)
        d->script.n--;
    int next = m->at + 1 < s->script.n ? s->script.at[m->at + 1] : ' ';
    bool quoted = place == HOLE_SINGLE || (bare && place != HOLE_DOUBLE);
    const char *form = quoted                 ? "\"$%s\""
                       : scan_name_char(next) ? "${%s}"
                                              : "$%s";
    text_add_str(&d->script, place == HOLE_SINGLE ? "'" : "");
    text_addf(&d->script, form, name);
    text_add_str(&d->script, place == HOLE_SINGLE ? "'" : "");
}

/* Writes the text of kind 0. Returns where the script goes on. */
static size_t draft_special(const struct scanner *s, struct draft *d,
                            const struct mark *m)
{
    size_t to = m->at + 1;
    if (m->why == WHY_ANSI) {
        text_add_str(&d->script, "'");
        add_hole(s, d, m->hole);
        text_add_str(&d->script, "$'");
    } else if (m->why == WHY_BACKSLASH) {
        text_add_str(&d->script, "\\");
        add_hole(s, d, m->hole);
    } else if (m->why == WHY_COPY) { /* >& f becomes > f 2>&1 */
        char *amp = memrchr(d->script.at, '&', d->script.n);
        memmove(amp, amp + 1, (size_t)(d->script.at + d->script.n - amp));
        d->script.n--;
        add_hole(s, d, m->hole);
        while (to < s->script.n && !scan_one_of(s->script.at[to], " \t\n;&|)"))
            copy_script(s, d, to, to + 1), to++;
        text_add_str(&d->script, " 2>&1");
    } else {
        add_hole(s, d, m->hole);
    }
    return to;
}

/* ---- text for another shell ---------------------------------------------- */

/* Makes a script that passes values as arguments: sh -c "f {}" becomes
 * sh -c 'f "$1"' _ {}, and eval "f {}" becomes item={}; eval 'f "$item"'. */
static char *pass_as_argument(const struct scanner *s)
{
    struct draft d = {0}, inner = {0};
    size_t hole = 0;
    if (!s->text.simple)
        return NULL;
    d.holes = mem_new((2 * s->hole + 1) * sizeof(*d.holes));
    for (size_t i = 0; i < s->text.from; i++)
        hole += s->script.at[i] == '\0';
    unquote_text(s, &inner, hole);
    bool good = write_inner(&inner, s->text.takes_more);
    if (!s->text.takes_more) {
        text_add_str(&d.script, "item=");
        d.holes[d.n++] = inner.holes[0];
        text_add(&d.script, "", 1);
        text_add_str(&d.script, "; ");
    }
    copy_script(s, &d, 0, s->text.from);
    text_add_quoted(&d.script, text_span(&inner.script));
    for (size_t i = 0; s->text.takes_more && i < inner.n; i++) {
        text_add_str(&d.script, i == 0 ? " _ " : " ");
        d.holes[d.n++] = inner.holes[i];
        text_add(&d.script, "", 1);
    }
    copy_script(s, &d, s->text.to, s->script.n);
    text_free(&inner.script);
    free(inner.holes);
    char *better = finish_draft(s, &d, true);
    if (good)
        return better;
    free(better);
    return NULL;
}

/* Copies the text of the word without quotes. */
static void unquote_text(const struct scanner *s, struct draft *inner,
                         size_t hole)
{
    char quote = '\0';
    inner->holes = mem_new((s->hole + 1) * sizeof(*inner->holes));
    for (size_t i = s->text.from; i < s->text.to; i++) {
        char c = s->script.at[i];
        if (c == '\0')
            add_hole(s, inner, hole++);
        else if (c == quote)
            quote = '\0';
        else if (quote == '\0' && (c == '"' || c == '\''))
            quote = c;
        else if (c == '\\' && quote != '\'' && i + 1 < s->text.to &&
                 (quote == '\0' || scan_one_of(s->script.at[i + 1], "$`\"\\")))
            text_add(&inner->script, s->script.at + ++i, 1);
        else
            text_add(&inner->script, &c, 1);
    }
}

/* Puts "$1" and so on, or "$item", in place of the placeholders, and lists each
 * placeholder once. Returns whether the guard accepts the text with these. */
static bool write_inner(struct draft *inner, bool numbered)
{
    struct shell_form form = {0};
    struct text out = {0};
    struct scanner check = {.script = text_span(&inner->script),
                            .form = &form,
                            .holes = inner->holes};
    bool good = inner->n > 0;
    size_t n = 0;
    shell_scan(&check);
    for (size_t i = 0; i < check.n_marks; i++)
        good = good && check.marks[i].why == WHY_NOT &&
               check.marks[i].need == NEED_NOTHING;
    for (size_t i = 0, hole = 0; i < inner->script.n; i++) {
        if (inner->script.at[i] != '\0') {
            text_add(&out, inner->script.at + i, 1);
            continue;
        }
        struct hole h = inner->holes[hole++];
        size_t k = 0;
        while (k < n &&
               !(inner->holes[k].text.n == h.text.n &&
                 memcmp(inner->holes[k].text.at, h.text.at, h.text.n) == 0))
            k++;
        if (k == n)
            inner->holes[n++] = h;
        bool open = h.place == HOLE_DOUBLE;
        text_add_str(&out, h.place == HOLE_SINGLE ? "'\"$"
                           : open                 ? "$"
                                                  : "\"$");
        if (numbered)
            text_addf(&out, "%zu", k + 1);
        else
            text_add_str(&out, "item");
        text_add_str(&out, h.place == HOLE_SINGLE ? "\"'" : open ? "" : "\"");
        int next = i + 1 < inner->script.n ? inner->script.at[i + 1] : ' ';
        good = good && k < 9 && (numbered || n == 1) &&
               !(open && scan_name_char(next));
    }
    scanner_free(&check);
    text_free(&inner->script);
    inner->script = out;
    inner->n = n;
    return good;
}
