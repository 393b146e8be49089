/* SPDX-License-Identifier: MIT */
/* shell_scan.c - reads a script like a shell: quotes, words, commands.
 *
 * HOW   One pass over the bytes with a stack of levels: commands (the script,
 *       $(...), `...`, (...), {...}, case with patterns, where `)` closes
 *       nothing) and the inside of words ("...", ${...}, $((...))). Quotes that
 *       do not nest are passed over at once. When a command ends, the words go
 *       to shell_guard.c. The scanner knows only as much grammar as is needed
 *       to recognize a reserved word, the first word of a command.
 *
 *       A placeholder becomes a mark, and so does every variable, because the
 *       value may come from a placeholder. Marks in a place where no value is
 *       allowed are refused here; shell_guard.c rules on marks in the words of
 *       commands.
 *
 * LIMITS   A here-document with an end word written as $'...': a value behind
 *       the here-document may be split into words. shell_guard.c explains why
 *       nothing worse can happen.
 */
#include "shell_scan.h"

#include <stdlib.h>

static bool has_split_operator(struct span script);
static void scan_step(struct scanner *s);
static void scan_step_command(struct scanner *s);
static void scan_step_double(struct scanner *s);
static void scan_step_brace(struct scanner *s);
static void scan_step_math(struct scanner *s);

static void begin_word(struct scanner *s);
static void end_word(struct scanner *s);
static bool end_first_word(struct scanner *s, struct span word);
static void end_command(struct scanner *s);
static void begin_command(struct scanner *s);
static void scan_newline(struct scanner *s);
static void scan_comment(struct scanner *s);
static void scan_separator(struct scanner *s);
static void open_paren(struct scanner *s);
static void close_paren(struct scanner *s);
static void scan_redirection(struct scanner *s);
static void announce_doc(struct scanner *s);
static void read_doc(struct scanner *s, const struct doc *d);
static size_t find_doc_end(const struct scanner *s, const struct doc *d);
static bool ends_in_backslash(struct span line);

static void scan_dollar(struct scanner *s);
static void scan_backslash(struct scanner *s);
static void scan_single_quotes(struct scanner *s);
static void scan_raw_quotes(struct scanner *s, char end, enum why why);
static void scan_backquote(struct scanner *s);
static bool close_backquote(struct scanner *s);
static size_t find_backquote(const struct scanner *s);
static void open_brace(struct scanner *s);
static void mark_variable(struct scanner *s, size_t at, size_t name, size_t n);
static void mark_subscript(struct scanner *s);

static void mark_hole(struct scanner *s, enum hole_place place);
static enum why hole_refusal(const struct scanner *s, const struct level *l,
                             enum hole_place place);
static bool stands_alone(const struct scanner *s, const struct level *l);
static void refuse_hole(struct scanner *s, enum why why);
static void add_mark(struct scanner *s, struct mark mark);
static void add_word(struct scanner *s, struct word word);
static bool is_evaluated(const struct scanner *s);

static struct level *level_push(struct scanner *s, enum kind kind);
static void level_pop(struct scanner *s);
static void level_close(struct scanner *s);
static struct level *level_top(const struct scanner *s);
static bool scan_is_ahead(const struct scanner *s, const char *text);
static size_t scan_skip_blanks(const struct scanner *s, size_t ahead);
static size_t name_length(const struct scanner *s, size_t at);
static bool is_digit(char c);
static bool follows_name(const struct scanner *s);

/* ---- the whole ----------------------------------------------------------- */

void shell_scan(struct scanner *s)
{
    if (has_split_operator(s->script))
        s->refuse_rest = WHY_SPLIT;
    level_push(s, TOP);
    while (s->at < s->script.n)
        scan_step(s);
    while (s->n_levels > 0)
        level_close(s);
    shell_guard_finish(s);
    for (size_t i = 0; i < s->n_docs; i++)
        text_free(&s->docs[i].end);
    free(s->docs);
    free(s->levels);
}

/* Returns whether the script has an operator split over two lines. A shell
 * joins lines before reading operators: > and & of two lines are >&. Quotes are
 * ignored here, so that a few harmless scripts are refused. */
static bool has_split_operator(struct span script)
{
    for (size_t i = 1; i + 2 < script.n; i++)
        if (script.at[i] == '\\' && script.at[i + 1] == '\n' &&
            scan_one_of(script.at[i - 1], "$<>&|([") &&
            !scan_one_of(script.at[i + 2], " \t\n"))
            return true;
    return false;
}

static void scan_step(struct scanner *s)
{
    if (scan_peek(s, 0) == '`' && close_backquote(s))
        return;
    switch (level_top(s)->kind) {
    case DOUBLE:
    case DOC:
        scan_step_double(s);
        break;
    case BRACE:
        scan_step_brace(s);
        break;
    case MATH:
        scan_step_math(s);
        break;
    default:
        scan_step_command(s);
    }
}

static void scan_step_command(struct scanner *s)
{
    int c = scan_peek(s, 0);
    if (c == '\n')
        scan_newline(s);
    else if (c == ' ' || c == '\t') {
        end_word(s);
        s->at++;
    } else if (c == '#' && level_top(s)->word == NO_WORD)
        scan_comment(s);
    else if (scan_is_ahead(s, "&>"))
        scan_redirection(s);
    else if (scan_one_of(c, ";&|"))
        scan_separator(s);
    else if (scan_one_of(c, "<>"))
        scan_redirection(s);
    else if (c == '(')
        open_paren(s);
    else if (c == ')')
        close_paren(s);
    else if (scan_is_ahead(s, "\\\n"))
        s->at += 2; /* the line and the word go on */
    else {
        bool begins = level_top(s)->word == NO_WORD;
        begin_word(s);
        if (c == '\0')
            mark_hole(s, HOLE_BARE);
        else if (c == '"') {
            level_push(s, DOUBLE);
            s->at++;
        } else if (c == '\'')
            scan_single_quotes(s);
        else if (c == '`')
            scan_backquote(s);
        else if (c == '$')
            scan_dollar(s);
        else if (c == '\\')
            scan_backslash(s);
        else {
            if (c == '[' && (begins ? level_top(s)->array : follows_name(s)))
                mark_subscript(s);
            s->at++;
        }
    }
}

static void scan_step_double(struct scanner *s)
{
    switch (scan_peek(s, 0)) {
    case '"':
        if (level_top(s)->kind == DOUBLE)
            level_pop(s);
        s->at++;
        break;
    case '\0':
        mark_hole(s, HOLE_DOUBLE);
        break;
    case '`':
        scan_backquote(s);
        break;
    case '$':
        scan_dollar(s);
        break;
    case '\\':
        scan_backslash(s);
        break;
    default:
        s->at++;
    }
}

/* Reads a byte within ${...}. A ' is a quote here, except within "...": dash
 * and POSIX say so, and bash differs only when there is a } between two
 * quotes. */
static void scan_step_brace(struct scanner *s)
{
    int c = scan_peek(s, 0);
    if (c == '}') {
        level_pop(s);
        s->at++;
    } else if (c == '"') {
        level_push(s, DOUBLE);
        s->at++;
    } else if (c == '\'' && !level_top(s)->quoted)
        scan_single_quotes(s);
    else
        scan_step_double(s);
}

static void scan_step_math(struct scanner *s)
{
    struct level *l = level_top(s);
    int c = scan_peek(s, 0);
    if (c == l->open) {
        l->depth++;
        s->at++;
    } else if (c == (l->open == '(' ? ')' : ']')) {
        s->at++;
        if (--l->depth == 0)
            level_pop(s);
    } else if (c == '"') {
        level_push(s, DOUBLE);
        s->at++;
    } else if (c == '\'')
        scan_single_quotes(s);
    else if (c == '\0')
        mark_hole(s, HOLE_MATH);
    else
        scan_step_double(s);
}

/* ---- commands and their words -------------------------------------------- */

static void begin_word(struct scanner *s)
{
    if (level_top(s)->word != NO_WORD)
        return;
    level_top(s)->word = s->at;
    level_top(s)->marks = s->n_marks;
}

static void end_word(struct scanner *s)
{
    struct level *l = level_top(s);
    if (l->word == NO_WORD)
        return;
    struct span word = {.at = s->script.at + l->word, .n = s->at - l->word};
    struct word w = {l->word, s->at, l->marks, s->n_marks, l->target};
    l->word = NO_WORD;
    l->target = NO_TARGET;
    if (w.target != NO_TARGET) {
        add_word(s, w);
    } else if (l->kind == TEST) {
        l->evaluated = l->evaluated || shell_guard_calculates(word);
        if (span_is(word, "]]"))
            level_pop(s);
    } else if (l->kind == CASE_HEAD && l->position == LATER) {
        if (span_is(word, "in"))
            *l = (struct level){.kind = CASE_PATTERN,
                                .function = l->function,
                                .word = NO_WORD,
                                .words = l->words,
                                .docs = l->docs};
    } else if (s->form->exec || l->array) {
        l->position = LATER; /* no reserved words */
        add_word(s, w);
    } else if (l->kind != CASE_HEAD &&
               (l->position == FIRST || (l->body_next && span_is(word, "{")))) {
        if (!end_first_word(s, word))
            add_word(s, w);
    } else {
        bool body = l->loop > 0 && --l->loop == 0 && span_is(word, "do");
        l->position = body ? FIRST : LATER; /* as in `for x do` */
        if (body)
            end_command(s);
        else if (l->kind != CASE_HEAD && l->kind != CASE_PATTERN)
            add_word(s, w);
    }
}

/* Returns whether the word is reserved: only the first word of a command may be
 * (-p and -- belong to time). A pattern of case has no reserved word but
 * esac. */
static bool end_first_word(struct scanner *s, struct span word)
{
    static const char *const openers[] = {"if",   "then",  "else",  "elif",
                                          "do",   "while", "until", "!",
                                          "time", "-p",    "--",    NULL};
    static const char *const closers[] = {"fi", "done", NULL};
    static const char *const loops[] = {"for", "select", NULL};
    struct level *l = level_top(s);
    bool pattern = l->kind == CASE_PATTERN;
    if (!pattern && scan_among(word, openers))
        return true;
    if (!pattern && shell_scan_assigned(word) > 0)
        return false;
    l->position = !pattern && scan_among(word, closers) ? CLOSED : LATER;
    l->loop = !pattern && scan_among(word, loops) ? 2 : 0;
    if (span_is(word, "esac") && (pattern || l->kind == CASE_BODY))
        level_pop(s);
    else if (pattern || l->position == CLOSED)
        return true;
    else if (span_is(word, "}") && l->kind == GROUP)
        level_pop(s);
    else if (span_is(word, "{"))
        level_push(s, GROUP);
    else if (span_is(word, "case"))
        level_push(s, CASE_HEAD);
    else if (span_is(word, "[["))
        level_push(s, TEST)->position = LATER;
    else if (span_is(word, "function"))
        l->body_next = true;
    else
        return false;
    return true;
}

static void end_command(struct scanner *s)
{
    struct level *l = level_top(s);
    if (l->kind <= TEST && s->n_words > l->words)
        shell_guard_command(s, s->words + l->words, s->n_words - l->words,
                            l->function || l->body_next);
    s->n_words = l->words;
    l->both = false;
}

static void begin_command(struct scanner *s)
{
    struct level *l = level_top(s);
    end_command(s);
    if (l->kind != CASE_HEAD && l->kind != TEST)
        l->position = FIRST;
    l->target = NO_TARGET;
}

static void scan_newline(struct scanner *s)
{
    end_word(s);
    s->at++;
    begin_command(s);
    for (size_t i = level_top(s)->docs; i < s->n_docs; i++)
        read_doc(s, &s->docs[i]);
    while (s->n_docs > level_top(s)->docs)
        text_free(&s->docs[--s->n_docs].end);
    begin_command(s); /* the here-documents were levels of their own */
    s->line_runs_text = false;
}

static void scan_comment(struct scanner *s)
{
    int end = find_backquote(s) > 0 ? '`' : '\n';
    for (; s->at < s->script.n && scan_peek(s, 0) != '\n' &&
           scan_peek(s, 0) != end;
         s->at++)
        if (scan_peek(s, 0) == '\0')
            s->holes[s->hole++].place = HOLE_COMMENT;
}

static void scan_separator(struct scanner *s)
{
    end_word(s);
    if (level_top(s)->kind == CASE_BODY &&
        (scan_is_ahead(s, ";;") || scan_is_ahead(s, ";&"))) {
        level_top(s)->kind = CASE_PATTERN;
        s->at += scan_is_ahead(s, ";;&") ? 3 : 2;
    } else {
        s->at++;
    }
    begin_command(s);
}

static void open_paren(struct scanner *s)
{
    struct level *l = level_top(s);
    size_t close = scan_skip_blanks(s, 1);
    size_t before = l->word != NO_WORD ? s->at - l->word : 0;
    struct span word = {s->script.at + s->at - before, before};
    bool array = before > 0 && word.at[before - 1] == '=' &&
                 shell_scan_assigned(word) > 0;
    if (scan_peek(s, close) == ')' && !array) {
        end_word(s); /* ends the name of a function */
        for (size_t i = s->n_words; i > level_top(s)->words; i--)
            for (size_t m = s->words[i - 1].marks; m < s->n_marks; m++)
                s->marks[m].why = WHY_FUNCTION_NAME;
        level_top(s)->body_next = true;
        begin_command(s);
        s->at += close + 1;
    } else if (l->kind == CASE_PATTERN && l->word == NO_WORD) {
        s->at++;
    } else if (scan_is_ahead(s, "((") && l->word == NO_WORD) {
        level_push(s, MATH)->open = '(';
    } else {
        /* A pattern for zsh, which evaluates its end even if quoted */
        bool evaluated =
            s->form->strict &&
            (before > 0 ? !(array && l->position == FIRST)
                        : l->position == LATER && l->target == NO_TARGET);
        if (l->target != NO_TARGET) /* <(...) is a word */
            begin_word(s);
        l = level_push(s, PAREN);
        l->array = array;
        l->evaluated = evaluated;
        s->at++;
    }
}

static void close_paren(struct scanner *s)
{
    end_word(s);
    s->at++;
    if (level_top(s)->kind == CASE_PATTERN) {
        level_top(s)->kind = CASE_BODY;
        begin_command(s);
        return;
    }
    while (level_top(s)->kind != PAREN && level_top(s)->kind != SUBST &&
           s->n_levels > 1)
        level_pop(s); /* levels that were not closed */
    if (level_top(s)->kind == SUBST && s->n_docs > level_top(s)->docs)
        s->refuse_rest = WHY_LATE_DOC;
    if (s->n_levels > 1)
        level_pop(s);
}

/* Reads a redirection. A number or {name} directly before the operator is the
 * descriptor. <<< is read like < : a word follows. */
static void scan_redirection(struct scanner *s)
{
    struct level *l = level_top(s);
    size_t n = l->word == NO_WORD ? 0 : s->at - l->word;
    const char *word = s->script.at + s->at - n;
    if (n > 0 && (strspn(word, "0123456789") >= n ||
                  (word[0] == '{' && word[n - 1] == '}')))
        l->word = NO_WORD;
    end_word(s);
    l = level_top(s);
    if (scan_is_ahead(s, "<<") && !scan_is_ahead(s, "<<<")) {
        s->at += 2;
        announce_doc(s);
        return;
    }
    l->both = l->both || scan_is_ahead(s, "&>");
    l->target = scan_is_ahead(s, ">&")    ? TARGET_COPY
                : scan_is_ahead(s, "<<<") ? TARGET_TEXT
                                          : TARGET;
    s->at++;
    while (scan_one_of(scan_peek(s, 0), "<>&|"))
        s->at++;
}

/* ---- here-documents ------------------------------------------------------ */

/* Reads the word behind << without the quotes. */
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
            refuse_hole(s, WHY_DOC_END);
        else if (!hidden && c == quote)
            quote = '\0';
        else if (!hidden && quote == '\0' && scan_one_of(c, "'\""))
            quote = c;
        else if (c > 0)
            text_add(&d.end, s->script.at + s->at, 1);
    }
    s->docs = scan_grow(s->docs, s->n_docs, sizeof(*s->docs));
    s->docs[s->n_docs++] = d;
}

/* Reads a here-document. Placeholders are refused there, and variables are
 * marked. */
static void read_doc(struct scanner *s, const struct doc *d)
{
    size_t to = find_doc_end(s, d);
    size_t levels = s->n_levels;
    size_t mark = s->n_marks;
    struct span script = s->script;
    s->script.n = to;
    if (!d->quoted)
        level_push(s, DOC);
    while (s->at < to)
        if (!d->quoted)
            scan_step(s);
        else if (scan_peek(s, 0) == '\0')
            mark_hole(s, HOLE_DOUBLE);
        else
            s->at++;
    while (s->n_levels > levels)
        level_close(s);
    s->script = script;
    for (; mark < s->n_marks; mark++) {
        if (s->marks[mark].name.at == NULL)
            s->marks[mark].why = WHY_DOC;
        else if (s->line_runs_text) {
            s->marks[mark].need = NEED_PLAIN;
            s->evaluates = true;
        }
    }
}

/* Looks for the line with the end word. Returns where the next line begins. */
static size_t find_doc_end(const struct scanner *s, const struct doc *d)
{
    bool joined = false;
    size_t at = s->at;
    while (at < s->script.n) {
        const char *end = memchr(s->script.at + at, '\n', s->script.n - at);
        size_t next = end != NULL ? (size_t)(end - s->script.at) : s->script.n;
        while (d->tabs && at < next && s->script.at[at] == '\t')
            at++;
        struct span line = {s->script.at + at, next - at};
        at = next + (next < s->script.n);
        if (!joined && line.n == d->end.n &&
            (line.n == 0 || memcmp(line.at, d->end.at, line.n) == 0))
            break;
        joined = !d->quoted && ends_in_backslash(line);
    }
    return at;
}

static bool ends_in_backslash(struct span line)
{
    size_t n = 0;
    while (n < line.n && line.at[line.n - 1 - n] == '\\')
        n++;
    return n % 2 == 1;
}

/* ---- inside of words ----------------------------------------------------- */

static void scan_dollar(struct scanner *s)
{
    int next = scan_peek(s, 1);
    bool bare = level_top(s)->kind <= TEST;
    if (next == '\0') {
        s->at++;
        refuse_hole(s, WHY_BRACE);
        s->at++;
    } else if (scan_is_ahead(s, "$((") || next == '[') {
        level_push(s, MATH)->open = (char)next;
        s->at++;
    } else if (next == '(') {
        level_push(s, SUBST)->docs = s->n_docs;
        s->at += 2;
    } else if (next == '{') {
        open_brace(s);
    } else if (next == '\'' && bare) {
        s->at++;
        scan_raw_quotes(s, '\'', WHY_ANSI);
    } else if (scan_name_char(next) || scan_one_of(next, "$#?!@*-")) {
        size_t n = name_length(s, s->at + 1);
        if (n > 0)
            mark_variable(s, s->at, s->at + 1, n);
        s->at += 1 + (n > 0 ? n : 1);
        if (scan_peek(s, 0) == '[') /* zsh: $x[1] */
            mark_subscript(s);
    } else {
        s->at++;
    }
}

/* Reads ${name} or ${#name}, then perhaps a subscript, an offset or @P. Other
 * forms, such as ${!name} of bash and ${(e)name} of zsh, read a value again. */
static void open_brace(struct scanner *s)
{
    bool quoted = level_top(s)->kind == DOUBLE || level_top(s)->quoted;
    size_t start = s->at;
    s->at += 2;
    s->at += scan_peek(s, 0) == '#' && scan_peek(s, 1) != '}';
    size_t n = name_length(s, s->at);
    int next = scan_peek(s, n);
    if (n > 0)
        mark_variable(s, start, s->at, n);
    struct level *l = level_push(s, BRACE);
    l->quoted = quoted;
    l->evaluated = n == 0 || scan_one_of(next, "[@") ||
                   (next == ':' && !scan_one_of(scan_peek(s, n + 1), "-=?+"));
    s->at += n;
    if (next != '@')
        l->start = s->at; /* with @, the name is read again */
}

/* Marks a variable. $1 in a function is a parameter of the function, and not
 * marked. */
static void mark_variable(struct scanner *s, size_t at, size_t name, size_t n)
{
    const struct level *l = level_top(s);
    struct span span = {s->script.at + name, n};
    bool ours = is_digit(span.at[0]) || scan_one_of(span.at[0], "@*");
    if (ours && (l->function || l->body_next))
        return;
    add_mark(s, (struct mark){.at = at,
                              .n = name + n - at,
                              .name = span,
                              .why = is_evaluated(s)        ? WHY_MATH
                                     : at < s->evaluated_to ? WHY_SUBSCRIPT
                                                            : WHY_NOT});
}

/* Reads a subscript x[...], $x[...], or an element of x=([...]=): up to the
 * closing bracket, or to the end of the script without a closing bracket. */
static void mark_subscript(struct scanner *s)
{
    size_t depth = 0;
    size_t to = s->at;
    for (; to < s->script.n; to++) {
        depth += s->script.at[to] == '[';
        if (s->script.at[to] == ']' && --depth == 0)
            break;
    }
    if (to <= s->evaluated_to)
        return;
    s->evaluated_to = to;
    shell_scan_names(s, s->at, to, WHY_SUBSCRIPT);
}

void shell_scan_names(struct scanner *s, size_t from, size_t to, enum why why)
{
    for (size_t i = from; i < to; i++) {
        size_t n = name_length(s, i);
        if (n == 0)
            continue;
        bool ours = i > 0 && scan_one_of(s->script.at[i - 1], "$!{)");
        if (!ours &&
            (is_digit(s->script.at[i]) || !scan_name_char(s->script.at[i]))) {
            i += n - 1;
            continue;
        }
        add_mark(
            s, (struct mark){
                   .at = i, .n = n, .name = {s->script.at + i, n}, .why = why});
        i += n - 1;
    }
}

static void scan_backslash(struct scanner *s)
{
    s->at++;
    if (scan_peek(s, 0) == '\0')
        refuse_hole(s, WHY_BACKSLASH);
    s->at += s->at < s->script.n;
}

static void scan_single_quotes(struct scanner *s)
{
    s->at++;
    while (s->at < s->script.n && scan_peek(s, 0) != '\'') {
        if (scan_peek(s, 0) == '\0')
            mark_hole(s, HOLE_SINGLE);
        else
            s->at++;
    }
    s->at += s->at < s->script.n;
}

/* Skips to the next `end`, which a backslash may hide, and refuses
 * placeholders. */
static void scan_raw_quotes(struct scanner *s, char end, enum why why)
{
    for (s->at++; s->at < s->script.n && scan_peek(s, 0) != end; s->at++) {
        s->at += scan_peek(s, 0) == '\\';
        if (scan_peek(s, 0) == '\0')
            refuse_hole(s, why);
    }
    s->at += s->at < s->script.n;
}

/* Reads `...` as commands, unless a backslash within changes the meaning of
 * quotes. */
static void scan_backquote(struct scanner *s)
{
    const char *from = s->script.at + s->at + 1;
    const char *end = memchr(from, '`', s->script.n - s->at - 1);
    size_t n = end != NULL ? (size_t)(end - from) : 0;
    if (n == 0 || memchr(from, '\\', n) != NULL ||
        (memchr(from, '\0', n) == NULL && memchr(from, '$', n) == NULL)) {
        scan_raw_quotes(s, '`', WHY_BACKQUOTES);
        return;
    }
    level_push(s, BACKQUOTE)->docs = s->n_docs;
    s->at++;
}

static bool close_backquote(struct scanner *s)
{
    size_t n = find_backquote(s);
    if (n == 0)
        return false;
    while (s->n_levels >= n)
        level_close(s);
    s->at++;
    return true;
}

/* Returns the number of levels up to the innermost `; 0: no ` is open. */
static size_t find_backquote(const struct scanner *s)
{
    size_t n = s->n_levels;
    while (n > 0 && s->levels[n - 1].kind != BACKQUOTE)
        n--;
    return n;
}

/* ---- marks --------------------------------------------------------------- */

static void mark_hole(struct scanner *s, enum hole_place place)
{
    struct hole *h = &s->holes[s->hole];
    const struct level *l = level_top(s);
    while (l->kind == DOUBLE)
        l--;
    if (place == HOLE_BARE && stands_alone(s, l))
        place = HOLE_WORDS;
    h->place = place;
    h->argument = place == HOLE_WORDS && l->kind == TOP && l->position == LATER;
    h->redirected = scan_one_of(scan_peek(s, 1), "<>");
    enum why why = hole_refusal(s, l, place);
    add_mark(s,
             (struct mark){.at = s->at, .n = 1, .hole = s->hole, .why = why});
    s->hole++;
    s->at++;
}

static enum why hole_refusal(const struct scanner *s, const struct level *l,
                             enum hole_place place)
{
    bool number = s->holes[s->hole].number;
    if (s->refuse_rest != WHY_NOT)
        return s->refuse_rest;
    if (l->function || l->body_next)
        return WHY_FUNCTION;
    if (l->kind == BRACE)
        return WHY_BRACE;
    if (l->kind == MATH && number)
        return place == HOLE_SINGLE ? WHY_MATH : WHY_NOT;
    if (number)
        return WHY_NOT;
    if (is_evaluated(s))
        return WHY_MATH;
    if (s->at < s->evaluated_to)
        return WHY_SUBSCRIPT;
    if (l->kind == TEST)
        return WHY_TEST;
    return l->both && l->target == NO_TARGET ? WHY_BOTH : WHY_NOT;
}

/* Returns whether the present place is evaluated, also within $(...): a shell
 * calculates with the output of the command. */
static bool is_evaluated(const struct scanner *s)
{
    for (size_t i = 0; i < s->n_levels; i++)
        if (s->levels[i].kind == MATH ||
            (s->levels[i].kind != TEST && s->levels[i].evaluated))
            return true;
    return false;
}

/* Returns whether several words are allowed. Behind `>` only the first word
 * would be the file and the second perhaps a command; behind `v=` likewise. */
static bool stands_alone(const struct scanner *s, const struct level *l)
{
    int next = scan_peek(s, 1);
    return l->word == s->at && l->target == NO_TARGET && l->kind != CASE_HEAD &&
           l->kind != CASE_PATTERN &&
           (next < 0 || scan_one_of(next, " \t\n;&|<>)`"));
}

static void refuse_hole(struct scanner *s, enum why why)
{
    s->holes[s->hole].place = HOLE_COMMENT;
    add_mark(s,
             (struct mark){.at = s->at, .n = 1, .hole = s->hole++, .why = why});
}

static void add_mark(struct scanner *s, struct mark mark)
{
    mark.depth = shell_scan_depth(s);
    s->marks = scan_grow(s->marks, s->n_marks, sizeof(*s->marks));
    s->marks[s->n_marks++] = mark;
}

size_t shell_scan_depth(const struct scanner *s)
{
    size_t depth = 0;
    for (size_t i = 0; i < s->n_levels; i++)
        depth += s->levels[i].kind == SUBST || s->levels[i].kind == BACKQUOTE;
    return depth;
}

static void add_word(struct scanner *s, struct word word)
{
    s->words = scan_grow(s->words, s->n_words, sizeof(*s->words));
    s->words[s->n_words++] = word;
}

/* ---- levels and bytes ---------------------------------------------------- */

static struct level *level_push(struct scanner *s, enum kind kind)
{
    struct level l = {.kind = kind, .start = s->at, .word = NO_WORD};
    l.words = s->n_words;
    if (s->n_levels > 0) {
        struct level *outer = level_top(s);
        l.function = outer->function || outer->body_next;
        l.docs = outer->docs;
        if (kind == GROUP || kind == PAREN)
            outer->body_next = false;
    }
    s->levels = scan_grow(s->levels, s->n_levels, sizeof(*s->levels));
    s->levels[s->n_levels++] = l;
    return level_top(s);
}

/* Closes a level. A level outside of any word was a command of its own. */
static void level_pop(struct scanner *s)
{
    const struct level *l = level_top(s);
    end_command(s);
    if (l->kind == MATH || (l->kind >= TEST && l->evaluated))
        shell_scan_names(s, l->start, s->at, WHY_MATH);
    for (size_t m = 0; l->kind == TEST && l->evaluated && m < s->n_marks; m++)
        if (s->marks[m].at >= l->start && s->marks[m].need < NEED_PLAIN)
            s->marks[m].need = NEED_PLAIN; /* [[ $(f {}) -eq 1 ]] */
    s->n_levels--;
    if (s->n_levels > 0 && level_top(s)->word == NO_WORD) {
        level_top(s)->position = CLOSED;
        end_command(s);
    }
}

/* Closes a level, unless the last word of the level has closed the level. */
static void level_close(struct scanner *s)
{
    size_t n = s->n_levels;
    end_word(s);
    if (s->n_levels == n)
        level_pop(s);
}

static struct level *level_top(const struct scanner *s)
{
    return &s->levels[s->n_levels - 1];
}

static bool scan_is_ahead(const struct scanner *s, const char *text)
{
    size_t n = strlen(text);
    return s->script.n - s->at >= n &&
           memcmp(s->script.at + s->at, text, n) == 0;
}

/* Skips blanks and newlines from `ahead` on. Returns the offset of the next
 * byte. */
static size_t scan_skip_blanks(const struct scanner *s, size_t ahead)
{
    while (scan_one_of(scan_peek(s, ahead), " \t\n") ||
           (scan_peek(s, ahead) == '\\' && scan_peek(s, ahead + 1) == '\n'))
        ahead++;
    return ahead;
}

/* Returns the length of the name of a variable, or of $1 or $@; 0: no name. */
static size_t name_length(const struct scanner *s, size_t at)
{
    size_t n = 0;
    while (at + n < s->script.n && scan_name_char(s->script.at[at + n]))
        n++;
    return n == 0 && at < s->script.n && scan_one_of(s->script.at[at], "@*")
               ? 1
               : n;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns whether the word so far ends like x or x[1]; lines may have been
 * joined. */
static bool follows_name(const struct scanner *s)
{
    size_t at = s->at;
    const char *script = s->script.at;
    while (at > 1 && script[at - 1] == '\n' && script[at - 2] == '\\')
        at -= 2;
    return at > 0 && (scan_name_char(script[at - 1]) || script[at - 1] == ']');
}

size_t shell_scan_assigned(struct span word)
{
    size_t n = 0;
    while (n < word.n && scan_name_char(word.at[n]))
        n++;
    if (n == 0 || n == word.n || is_digit(word.at[0]))
        return 0;
    size_t equals = n + (word.at[n] == '+');
    bool subscript = word.at[n] == '[';
    return subscript || (equals < word.n && word.at[equals] == '=') ? n : 0;
}
