/* SPDX-License-Identifier: MIT */
/* template_cut.c - decides which braces are placeholders.
 *
 * WHY   Commands are full of other braces: programs for awk, JSON, {{.Names}}
 *       for docker. Other text stays unchanged, with all braces.
 * HOW   Only around a placeholder are braces doubled: {{}} is the text {},
 *       {{1}} is {1}, and {{{}}} is the item in braces. Pairs are counted from
 *       the placeholder: {"a":{}} has a single pair, and the last } is text. A
 *       name from --header has priority over a number. A name with a single
 *       typing error is found too, and template.c refuses the name: otherwise
 *       the placeholder would stay as text unnoticed. ${word} belongs to the
 *       shell.
 */
#include "template_cut.h"

#include <ctype.h>
#include <string.h>

static size_t cut_braces(struct pieces *into, struct span rest,
                         const struct template_opts *o);
static void add_literal(struct pieces *into, const char *at, size_t n);
static bool read_placeholder(struct span rest, const struct template_opts *o,
                             struct piece *ret_piece);
static bool read_name(struct span body, const struct template_opts *o,
                      struct piece *ret_piece);
static bool read_field_number(struct span body, struct piece *ret_piece);
static const struct span *nearest_column(struct span body,
                                         const struct template_opts *o);
static bool is_one_edit(struct span a, struct span b);
static bool is_same_letter(char a, char b);
static bool ends_in_dollar(const struct pieces *before, const char *at);
static const char *read_ending(struct span body, size_t from);
static size_t count_repeated(struct span s, char c);

void template_cut(struct pieces *into, struct span word,
                  const struct template_opts *o)
{
    size_t replace = o->replace != NULL ? strlen(o->replace) : 0;
    while (word.n > 0) {
        size_t n = 1;
        if (replace > 0 && word.n >= replace &&
            memcmp(word.at, o->replace, replace) == 0) {
            n = replace;
            pieces_add(into, (struct piece){.source = ITEMS,
                                            .text = {word.at, n},
                                            .how = ""});
        } else if (word.at[0] == '{') {
            n = cut_braces(into, word, o);
        } else {
            add_literal(into, word.at, n);
        }
        word.at += n;
        word.n -= n;
    }
}

struct piece *pieces_add(struct pieces *into, struct piece piece)
{
    if (into->at == NULL || into->n == into->room) {
        into->room = into->room > 0 ? 2 * into->room : 8;
        into->at = mem_resize(into->at, into->room * sizeof(*into->at));
    }
    into->at[into->n] = piece;
    return &into->at[into->n++];
}

/* Adds text. Adjacent bytes of a word become one piece. */
static void add_literal(struct pieces *into, const char *at, size_t n)
{
    struct piece *last = into->n > 0 ? &into->at[into->n - 1] : NULL;
    if (n == 0)
        return;
    if (last != NULL && last->source == LITERAL &&
        last->text.at + last->text.n == at)
        last->text.n += n;
    else
        pieces_add(into, (struct piece){.source = LITERAL, .text = {at, n}});
}

/* Cuts a run of {. With a placeholder inside, pairs of braces are read from the
 * outside, each two pairs as a pair of literal braces; an odd pair belongs to
 * the placeholder. Returns the number of bytes read. */
static size_t cut_braces(struct pieces *into, struct span rest,
                         const struct template_opts *o)
{
    size_t opened = count_repeated(rest, '{');
    struct span inner = {rest.at + opened - 1, rest.n - opened + 1};
    struct piece found = {.source = LITERAL};
    if (!read_placeholder(inner, o, &found) ||
        (found.near != NULL && ends_in_dollar(into, rest.at))) {
        add_literal(into, rest.at, opened);
        return opened;
    }
    struct span behind = {inner.at + found.text.n, inner.n - found.text.n};
    size_t closed = count_repeated(behind, '}') + 1;
    size_t pairs = opened < closed ? opened : closed;
    size_t halves = (pairs - 1) / 2; /* literal braces per side */
    add_literal(into, rest.at, opened - pairs + halves);
    if (pairs % 2 == 1)
        pieces_add(into, found);
    else
        add_literal(into, found.text.at, found.text.n);
    add_literal(into, behind.at, halves);
    return opened - 1 + found.text.n + pairs - 1;
}

static bool read_placeholder(struct span rest, const struct template_opts *o,
                             struct piece *ret_piece)
{
    const char *close = memchr(rest.at, '}', rest.n);
    if (close == NULL)
        return false;
    struct span body = {rest.at + 1, (size_t)(close - rest.at) - 1};
    bool renamed = o->replace != NULL && strcmp(o->replace, "{}") != 0;
    struct piece p = {.text = {rest.at, body.n + 2}, .how = ""};
    if (read_ending(body, 0) != NULL && !(body.n == 0 && renamed)) {
        p.source = ITEMS;
        p.how = read_ending(body, 0);
    } else if (span_is(body, "#"))
        p.source = SEQ;
    else if (span_is(body, "%"))
        p.source = SLOT;
    else if (read_name(body, o, &p) || read_field_number(body, &p) ||
             (p.near = nearest_column(body, o)) != NULL)
        p.source = FIELD;
    *ret_piece = p;
    return p.source != LITERAL;
}

/* Reads the longest name that fits: there may be a column "a" and a column
 * "a.". */
static bool read_name(struct span body, const struct template_opts *o,
                      struct piece *ret_piece)
{
    size_t longest = 0;
    for (size_t i = 0; i < o->n_names; i++) {
        struct span name = o->names[i];
        if (name.n <= longest || name.n > body.n ||
            memcmp(body.at, name.at, name.n) != 0 ||
            read_ending(body, name.n) == NULL)
            continue;
        longest = name.n;
        ret_piece->how = read_ending(body, name.n);
        ret_piece->field = i;
    }
    return longest > 0;
}

static const struct span *nearest_column(struct span body,
                                         const struct template_opts *o)
{
    while (body.n > 1 &&
           (body.at[body.n - 1] == '.' || body.at[body.n - 1] == '/'))
        body.n--;
    for (size_t i = 0; i < o->n_names; i++)
        if (is_one_edit(body, o->names[i]))
            return &o->names[i];
    return NULL;
}

/* Returns whether a and b differ at most by a letter more, less or changed, or
 * by two swapped letters, ignoring case; some letter must be the same. */
static bool is_one_edit(struct span a, struct span b)
{
    size_t least = a.n < b.n ? a.n : b.n, begin = 0, end = 0;
    while (begin < least && is_same_letter(a.at[begin], b.at[begin]))
        begin++;
    while (end < least - begin &&
           is_same_letter(a.at[a.n - 1 - end], b.at[b.n - 1 - end]))
        end++;
    const char *x = a.at + begin, *y = b.at + begin;
    size_t m = a.n - begin - end, n = b.n - begin - end;
    bool swapped = m == 2 && n == 2 && is_same_letter(x[0], y[1]) &&
                   is_same_letter(x[1], y[0]);
    return begin + end > 0 && ((m <= 1 && n <= 1) || swapped);
}

static bool is_same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

static bool ends_in_dollar(const struct pieces *before, const char *at)
{
    if (before->n == 0)
        return false;
    struct span last = before->at[before->n - 1].text;
    return last.at + last.n == at && last.n > 0 && at[-1] == '$';
}

static bool read_field_number(struct span body, struct piece *ret_piece)
{
    size_t number = 0;
    size_t n = 0;
    for (; n < body.n && body.at[n] >= '0' && body.at[n] <= '9'; n++)
        if (number < SIZE_MAX / 100) /* far beyond any column */
            number = 10 * number + (size_t)(body.at[n] - '0');
    ret_piece->how = read_ending(body, n);
    ret_piece->field = number - 1;
    return n > 0 && ret_piece->how != NULL;
}

/* Returns the ending of a placeholder; NULL: the body has other text. */
static const char *read_ending(struct span body, size_t from)
{
    static const char *const endings[] = {"", ".", "/", "//", "/."};
    struct span rest = {body.at + from, body.n - from};
    for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++)
        if (span_is(rest, endings[i]))
            return endings[i];
    return NULL;
}

static size_t count_repeated(struct span s, char c)
{
    size_t n = 0;
    while (n < s.n && s.at[n] == c)
        n++;
    return n;
}

/* ---- parts of a value ---------------------------------------------------- */

struct span template_part(struct span value, const char *how)
{
    const char *at = value.n > 0 ? value.at : "";
    size_t end = value.n;
    while (how[0] == '/' && end > 1 && at[end - 1] == '/')
        end--; /* read a/b/ as a/b */
    size_t base = end;
    while (base > 0 && (at[base - 1] != '/' || end == 1))
        base--;
    if (strcmp(how, "//") == 0) {
        while (base > 1 && at[base - 1] == '/')
            base--;
        bool root = end > 0 && at[0] == '/';
        return base > 0 || root ? (struct span){at, base > 0 ? base : 1}
                                : (struct span){".", 1};
    }
    size_t begin = how[0] == '/' ? base : 0;
    if (how[0] == '.' || (how[0] == '/' && how[1] == '.')) {
        size_t name = base; /* the dots of .profile begin no extension */
        size_t dot = end;
        while (name < end && at[name] == '.')
            name++;
        while (dot > name && at[dot - 1] != '.')
            dot--;
        end = dot > name ? dot - 1 : end;
    }
    return (struct span){at + begin, end - begin};
}
