/* SPDX-License-Identifier: MIT */
/* shell_scan.c - reading a script as a shell would, as far as quotes go.
 *
 * HOW   One pass over the bytes with a stack of levels: commands (the script,
 *       $(...), (...), {...}, case with its patterns, whose `)` closes nothing)
 *       and what is inside of words ("...", ${...}, $((...))). Quotes that do
 *       not nest are passed over at once. Words are known by where they began;
 *       of grammar only as much as tells a reserved word: is it the first of
 *       its command?
 *
 * LIMITS   A here-document whose word was put together by $'...', a backslash
 *       and a newline inside of an operator: a value that stands behind these
 *       may be split into words. See shell_form.c for why it is not worse.
 */
#include "shell_scan.h"

#include <stdlib.h>

static void step_command(struct scanner *s);
static void step_double(struct scanner *s);
static void step_brace(struct scanner *s);
static void step_math(struct scanner *s);

static void begin_word(struct scanner *s);
static void end_word(struct scanner *s);
static void end_first_word(struct scanner *s, struct span word);
static void start_command(struct level *l);
static void newline(struct scanner *s);
static void comment(struct scanner *s);
static void separator(struct scanner *s);
static void open_paren(struct scanner *s);
static void close_paren(struct scanner *s);
static void redirection(struct scanner *s);
static void announce_doc(struct scanner *s);
static void read_doc(struct scanner *s, const struct doc *d);
static bool ends_in_backslash(struct span line);

static void dollar(struct scanner *s);
static void backslash(struct scanner *s);
static void single(struct scanner *s);
static void raw(struct scanner *s, char end, enum why why);

static void meet_hole(struct scanner *s, enum hole_place place, size_t from);
static void refuse(struct scanner *s, enum why why);

static struct level *push(struct scanner *s, enum kind kind);
static void pop(struct scanner *s);
static struct level *top(const struct scanner *s);
static bool ahead(const struct scanner *s, const char *text);
static bool is_assignment(struct span word);
static bool ends_with_equals(const struct scanner *s);

/* ---- the whole ----------------------------------------------------------- */

void shell_scan(struct scanner *s)
{
    push(s, TOP);
    while (s->at < s->script.n && s->why == WHY_NOT) {
        switch (top(s)->kind) {
        case DOUBLE:
            step_double(s);
            break;
        case BRACE:
            step_brace(s);
            break;
        case MATH:
            step_math(s);
            break;
        default:
            step_command(s);
        }
    }
    for (size_t i = 0; i < s->n_docs; i++)
        text_free(&s->docs[i].end);
    free(s->docs);
    free(s->levels);
}

static void step_command(struct scanner *s)
{
    int c = scan_peek(s, 0);
    if (c == '\n')
        newline(s);
    else if (c == ' ' || c == '\t') {
        end_word(s);
        s->at++;
    } else if (c == '#' && top(s)->word == NO_WORD)
        comment(s);
    else if (scan_one_of(c, ";&|"))
        separator(s);
    else if (scan_one_of(c, "<>"))
        redirection(s);
    else if (c == '(')
        open_paren(s);
    else if (c == ')')
        close_paren(s);
    else if (ahead(s, "\\\n"))
        s->at += 2; /* the line goes on, and so does the word */
    else {
        begin_word(s);
        if (c == '\0')
            meet_hole(s, HOLE_BARE, s->at);
        else if (c == '"') {
            push(s, DOUBLE);
            s->at++;
        } else if (c == '\'')
            single(s);
        else if (c == '`')
            raw(s, '`', WHY_BACKQUOTES);
        else if (c == '$')
            dollar(s);
        else if (c == '\\')
            backslash(s);
        else
            s->at++;
    }
}

static void step_double(struct scanner *s)
{
    switch (scan_peek(s, 0)) {
    case '"':
        pop(s);
        s->at++;
        break;
    case '\0':
        meet_hole(s, HOLE_DOUBLE, s->at);
        break;
    case '`':
        raw(s, '`', WHY_BACKQUOTES);
        break;
    case '$':
        dollar(s);
        break;
    case '\\':
        backslash(s);
        break;
    default:
        s->at++;
    }
}

/* A ' is a quote here, but within "..." it is none: dash and POSIX say so, and
 * bash differs only when there is a } between two of them. */
static void step_brace(struct scanner *s)
{
    int c = scan_peek(s, 0);
    if (c == '}') {
        pop(s);
        s->at++;
    } else if (c == '"') {
        push(s, DOUBLE);
        s->at++;
    } else if (c == '\'' && !top(s)->quoted)
        single(s);
    else
        step_double(s);
}

static void step_math(struct scanner *s)
{
    struct level *l = top(s);
    int c = scan_peek(s, 0);
    if (c == l->open) {
        l->depth++;
        s->at++;
    } else if (c == (l->open == '(' ? ')' : ']')) {
        s->at++;
        if (--l->depth == 0)
            pop(s);
    } else if (c == '"') {
        push(s, DOUBLE);
        s->at++;
    } else if (c == '\'')
        single(s);
    else if (c == '\0')
        meet_hole(s, HOLE_MATH, s->at);
    else
        step_double(s);
}

/* ---- commands and their words -------------------------------------------- */

static void begin_word(struct scanner *s)
{
    if (top(s)->word == NO_WORD)
        top(s)->word = s->at;
}

static void end_word(struct scanner *s)
{
    struct level *l = top(s);
    if (l->word == NO_WORD)
        return;
    struct span word = {.at = s->script.at + l->word, .n = s->at - l->word};
    l->word = NO_WORD;
    if (l->target) {
        l->target = false;
        return;
    }
    l->reads = shell_form_reads(l->reads, word);
    if (l->kind == TEST) {
        if (span_is(word, "]]"))
            pop(s);
    } else if (l->kind == CASE_HEAD && l->position == LATER) {
        if (span_is(word, "in"))
            *l = (struct level){.kind = CASE_PATTERN,
                                .function = l->function,
                                .word = NO_WORD,
                                .docs = l->docs};
    } else if (l->kind != CASE_HEAD &&
               (l->position == FIRST || (l->body_next && span_is(word, "{")))) {
        end_first_word(s, word);
    } else {
        bool body = l->loop > 0 && --l->loop == 0 && span_is(word, "do");
        l->position = body ? FIRST : LATER; /* for x do */
    }
}

/* The words that are only then reserved (-p and -- belong to time), and the two
 * commands that read text. A pattern of case has no such words but esac. */
static void end_first_word(struct scanner *s, struct span word)
{
    static const char *const openers[] = {
        "if", "then", "else", "elif", "do",     "while", "until",
        "!",  "time", "-p",   "--",   "coproc", NULL};
    static const char *const closers[] = {"fi", "done", NULL};
    static const char *const loops[] = {"for", "select", NULL};
    struct level *l = top(s);
    bool pattern = l->kind == CASE_PATTERN;
    if (!pattern && (scan_among(word, openers) || is_assignment(word)))
        return;
    l->position = !pattern && scan_among(word, closers) ? CLOSED : LATER;
    l->loop = !pattern && scan_among(word, loops) ? 2 : 0;
    if (span_is(word, "esac") && (pattern || l->kind == CASE_BODY))
        pop(s);
    else if (pattern)
        return;
    else if (span_is(word, "}") && l->kind == GROUP)
        pop(s);
    else if (span_is(word, "{"))
        push(s, GROUP);
    else if (span_is(word, "case"))
        push(s, CASE_HEAD);
    else if (span_is(word, "[["))
        push(s, TEST)->position = LATER;
    else if (span_is(word, "function"))
        l->body_next = true;
    else if (span_is(word, "eval"))
        l->reads = READS_EVAL;
    else if (span_is(word, "trap"))
        l->reads = READS_NEXT;
}

static void start_command(struct level *l)
{
    if (l->kind != CASE_HEAD && l->kind != TEST)
        l->position = FIRST;
    l->target = false;
    l->reads = READS_NOTHING;
}

static void newline(struct scanner *s)
{
    end_word(s);
    s->at++;
    start_command(top(s));
    for (size_t i = top(s)->docs; i < s->n_docs; i++)
        read_doc(s, &s->docs[i]);
    while (s->n_docs > top(s)->docs)
        text_free(&s->docs[--s->n_docs].end);
}

static void comment(struct scanner *s)
{
    for (; s->at < s->script.n && scan_peek(s, 0) != '\n'; s->at++)
        if (scan_peek(s, 0) == '\0')
            s->holes[s->hole++].place = HOLE_COMMENT;
}

static void separator(struct scanner *s)
{
    end_word(s);
    if (top(s)->kind == CASE_BODY && (ahead(s, ";;") || ahead(s, ";&"))) {
        top(s)->kind = CASE_PATTERN;
        s->at += ahead(s, ";;&") ? 3 : 2;
    } else {
        s->at++;
    }
    start_command(top(s));
}

static void open_paren(struct scanner *s)
{
    struct level *l = top(s);
    size_t close = 1;
    while (scan_peek(s, close) == ' ')
        close++;
    if (scan_peek(s, close) == ')' && !ends_with_equals(s)) {
        end_word(s); /* the name of a function */
        top(s)->body_next = true;
        start_command(top(s));
        s->at += close + 1;
    } else if (l->kind == CASE_PATTERN && l->word == NO_WORD) {
        s->at++;
    } else if (ahead(s, "((") && l->word == NO_WORD && !l->target) {
        push(s, MATH)->open = '(';
    } else {
        if (l->target) /* <(...) is a word */
            begin_word(s);
        l->target = false;
        push(s, PAREN);
        s->at++;
    }
}

static void close_paren(struct scanner *s)
{
    end_word(s);
    s->at++;
    if (top(s)->kind == CASE_PATTERN) {
        top(s)->kind = CASE_BODY;
        start_command(top(s));
        return;
    }
    while (top(s)->kind != PAREN && top(s)->kind != SUBST && s->n_levels > 1)
        pop(s); /* something in it was not ended */
    if (top(s)->kind == SUBST && s->n_docs > top(s)->docs)
        s->lost = WHY_LATE_DOC;
    if (s->n_levels > 1)
        pop(s);
}

/* Of <<< no more is to be known than of < : a word follows. */
static void redirection(struct scanner *s)
{
    end_word(s);
    if (ahead(s, "<<") && !ahead(s, "<<<")) {
        s->at += 2;
        announce_doc(s);
        return;
    }
    s->at++;
    while (scan_one_of(scan_peek(s, 0), "<>&|"))
        s->at++;
    top(s)->target = true;
}

/* ---- here-documents ------------------------------------------------------ */

/* The word behind << without its quotes. */
static void announce_doc(struct scanner *s)
{
    struct doc d = {.tabs = scan_peek(s, 0) == '-'};
    int quote = '\0';
    s->at += d.tabs;
    while (scan_one_of(scan_peek(s, 0), " \t"))
        s->at++;
    for (; s->at < s->script.n; s->at++) {
        int c = scan_peek(s, 0);
        bool hidden = c == '\\' && quote != '\'';
        if (quote == '\0' && scan_one_of(c, " \t\n;&|<>()"))
            break;
        s->at += hidden;
        c = scan_peek(s, 0);
        d.quoted = d.quoted || hidden || scan_one_of(c, "'\"");
        if (c == '\0')
            refuse(s, WHY_DOC_END);
        else if (!hidden && c == quote)
            quote = '\0';
        else if (!hidden && quote == '\0' && scan_one_of(c, "'\""))
            quote = c;
        else if (c > 0)
            text_add(&d.end, s->script.at + s->at, 1);
    }
    s->docs = mem_resize(s->docs, (s->n_docs + 1) * sizeof(*s->docs));
    s->docs[s->n_docs++] = d;
}

/* Line by line, until one is the end word. */
static void read_doc(struct scanner *s, const struct doc *d)
{
    bool joined = false;
    while (s->at < s->script.n && s->why == WHY_NOT) {
        struct span line = {.at = s->script.at + s->at};
        while (d->tabs && s->at < s->script.n && scan_peek(s, 0) == '\t') {
            line.at++;
            s->at++;
        }
        for (; s->at < s->script.n && scan_peek(s, 0) != '\n'; s->at++) {
            if (scan_peek(s, 0) == '\0')
                refuse(s, WHY_DOC);
            line.n++;
        }
        s->at += s->at < s->script.n;
        if (!joined && line.n == d->end.n &&
            (line.n == 0 || memcmp(line.at, d->end.at, line.n) == 0))
            return;
        joined = !d->quoted && ends_in_backslash(line);
    }
}

static bool ends_in_backslash(struct span line)
{
    size_t n = 0;
    while (n < line.n && line.at[line.n - 1 - n] == '\\')
        n++;
    return n % 2 == 1;
}

/* ---- inside of words ----------------------------------------------------- */

static void dollar(struct scanner *s)
{
    int next = scan_peek(s, 1);
    bool bare = top(s)->kind <= TEST;
    if (next == '\0') {
        s->at++;
        refuse(s, WHY_BRACE);
    } else if (ahead(s, "$((") || next == '[') {
        push(s, MATH)->open = (char)next;
        s->at++;
    } else if (next == '(') {
        push(s, SUBST)->docs = s->n_docs;
        s->at += 2;
    } else if (next == '{') {
        bool quoted = top(s)->kind == DOUBLE || top(s)->quoted;
        push(s, BRACE)->quoted = quoted;
        s->at += 2;
    } else if (next == '\'' && bare) {
        s->at++;
        raw(s, '\'', WHY_ANSI);
    } else {
        s->at += scan_one_of(next, "$#?!@*-") ? 2 : 1;
    }
}

static void backslash(struct scanner *s)
{
    if (scan_peek(s, 1) == '\0')
        refuse(s, WHY_BACKSLASH);
    s->at += scan_peek(s, 1) < 0 ? 1 : 2;
}

static void single(struct scanner *s)
{
    size_t start = s->at++;
    while (s->at < s->script.n && scan_peek(s, 0) != '\'' &&
           s->why == WHY_NOT) {
        if (scan_peek(s, 0) == '\0')
            meet_hole(s, HOLE_SINGLE, start);
        else
            s->at++;
    }
    s->at += s->at < s->script.n;
}

/* Up to the same character again, which a backslash may hide. */
static void raw(struct scanner *s, char end, enum why why)
{
    for (s->at++; s->at < s->script.n && scan_peek(s, 0) != end; s->at++) {
        s->at += scan_peek(s, 0) == '\\';
        if (scan_peek(s, 0) == '\0') {
            refuse(s, why);
            return;
        }
    }
    s->at += s->at < s->script.n;
}

/* ---- levels and bytes ---------------------------------------------------- */

/* `from` is where the quote began that it is in, else where it is. */
static void meet_hole(struct scanner *s, enum hole_place place, size_t from)
{
    const struct level *l = top(s);
    for (; l->kind == DOUBLE; l--)
        from = l->start;
    shell_form_meet(s, l, place, from);
    if (s->why == WHY_NOT) {
        s->hole++;
        s->at++;
    }
}

static void refuse(struct scanner *s, enum why why)
{
    if (s->why == WHY_NOT)
        s->why = why;
}

static struct level *push(struct scanner *s, enum kind kind)
{
    struct level l = {.kind = kind, .start = s->at, .word = NO_WORD};
    if (s->n_levels > 0) {
        struct level *outer = top(s);
        l.function = outer->function || outer->body_next;
        l.docs = outer->docs;
        if (kind == GROUP || kind == PAREN)
            outer->body_next = false;
    }
    if (s->n_levels == s->room) {
        s->room = s->room > 0 ? 2 * s->room : 8;
        s->levels = mem_resize(s->levels, s->room * sizeof(*s->levels));
    }
    s->levels[s->n_levels++] = l;
    return top(s);
}

/* What was no part of a word was a command of its own. */
static void pop(struct scanner *s)
{
    s->n_levels--;
    if (top(s)->word == NO_WORD)
        top(s)->position = CLOSED;
}

static struct level *top(const struct scanner *s)
{
    return &s->levels[s->n_levels - 1];
}

static bool ahead(const struct scanner *s, const char *text)
{
    size_t n = strlen(text);
    return s->script.n - s->at >= n &&
           memcmp(s->script.at + s->at, text, n) == 0;
}

/* NAME=, NAME+= or NAME[ */
static bool is_assignment(struct span word)
{
    size_t n = 0;
    while (n < word.n && scan_name_char(word.at[n]))
        n++;
    if (n == 0 || n == word.n || (word.at[0] >= '0' && word.at[0] <= '9'))
        return false;
    n += word.at[n] == '+';
    return n < word.n && (word.at[n] == '=' || word.at[n] == '[');
}

static bool ends_with_equals(const struct scanner *s)
{
    return s->at > 0 && s->script.at[s->at - 1] == '=';
}
