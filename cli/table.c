/* SPDX-License-Identifier: MIT */
/* table.c - see table.h.
 *
 * HOW   A character has the columns of a terminal: two for East Asian
 *       characters and emoji, none for combining accents. The lists of ranges
 *       are short: an unknown character counts as a column, and at worst a line
 *       is ragged.
 */
#include "table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

enum { DEFAULT_WINDOW = 80 };

struct range {
    uint32_t from, to;
};

static void add_escaped(struct text *t, struct span s);
static void add_character(struct text *t, struct span c, uint32_t code);
static bool is_within(const struct range *ranges, uint32_t code);
static uint32_t code_point_of(const char *at, size_t n);
static size_t character_width(const char *at, size_t n);
static size_t columns_of(const char *s);
static void cut_text(struct text *t, size_t width);
static void put_cell(struct text *t, const char *cell, size_t width,
                     bool right);
static void put_first_cell(struct text *t, const char *cell, size_t width);
static size_t measure_columns(const struct table *t, size_t *ret_widths);
static void end_line(struct text *t);

/* ---- cells --------------------------------------------------------------- */

void table_add(struct table *t, struct span cell, size_t width)
{
    struct text text = {0};
    text_add(&text, "", 0);
    add_escaped(&text, cell);
    if (width > 0)
        cut_text(&text, width);
    if (t->n == t->room) {
        t->room = t->room == 0 ? 64 : 2 * t->room;
        t->cells = mem_resize(t->cells, t->room * sizeof(t->cells[0]));
    }
    t->cells[t->n++] = text.at;
}

void table_addf(struct table *t, const char *format, ...)
{
    char cell[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(cell, sizeof(cell), format, args);
    va_end(args);
    table_add(t, span_of(n < 0 ? "" : cell), 0);
}

void table_free(struct table *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->cells[i]);
    free(t->cells);
    t->cells = NULL;
    t->n = t->room = 0;
}

/* Escapes backslashes, too, so plain text cannot look like an escape. */
static void add_escaped(struct text *t, struct span s)
{
    while (s.n > 0) {
        const char *slash = memchr(s.at, '\\', s.n);
        size_t n = slash != NULL ? (size_t)(slash - s.at) : s.n;
        table_add_visible(t, (struct span){.at = s.at, .n = n});
        if (slash != NULL) {
            text_add_str(t, "\\\\");
            n++;
        }
        s.at += n;
        s.n -= n;
    }
}

void table_add_visible(struct text *t, struct span s)
{
    for (size_t i = 0; i < s.n;) {
        size_t n = utf8_length((const unsigned char *)s.at + i, s.n - i);
        if (n == 0)
            text_addf(t, "\\x%02x", (unsigned char)s.at[i]);
        else
            add_character(t, (struct span){.at = s.at + i, .n = n},
                          code_point_of(s.at + i, n));
        i += n > 0 ? n : 1;
    }
}

/* Adds a character; control characters, characters that change the direction of
 * writing, and invisible characters as escapes. */
static void add_character(struct text *t, struct span c, uint32_t code)
{
    static const struct range hidden[] = {{0x00, 0x1f},       {0x7f, 0x9f},
                                          {0xad, 0xad},       {0x61c, 0x61c},
                                          {0x180e, 0x180e},   {0x200b, 0x200f},
                                          {0x2028, 0x202e},   {0x2060, 0x206f},

                                          {0xfeff, 0xfeff},   {0xfff9, 0xfffb},
                                          {0xe0000, 0xe0fff}, {1, 0}};
    static const char known[] = "\a\b\t\n\v\f\r";
    static const char letters[] = "abtnvfr";
    const char *found =
        code != 0 && code < 0x80 ? strchr(known, (int)code) : NULL;
    if (found != NULL)
        text_addf(t, "\\%c", letters[found - known]);
    else if (!is_within(hidden, code))
        text_add(t, c.at, c.n);
    else if (code < 0x80)
        text_addf(t, "\\x%02x", (unsigned)code);
    else
        text_addf(t, "\\u%04x", (unsigned)code);
}

static bool is_within(const struct range *ranges, uint32_t code)
{
    for (; ranges->from <= ranges->to; ranges++)
        if (code >= ranges->from && code <= ranges->to)
            return true;
    return false;
}

/* Returns the code point of a character of `n` bytes. */
static uint32_t code_point_of(const char *at, size_t n)
{
    uint32_t code = (unsigned char)at[0];
    if (n > 1)
        code &= 0x7fU >> n;
    for (size_t i = 1; i < n; i++)
        code = code << 6 | ((unsigned char)at[i] & 0x3fU);
    return code;
}

/* ---- columns ------------------------------------------------------------- */

static size_t character_width(const char *at, size_t n)
{
    static const struct range none[] = {{0x300, 0x36f},
                                        {0x1ab0, 0x1aff},
                                        {0x1dc0, 0x1dff},
                                        {0x20d0, 0x20ff},
                                        {0xfe00, 0xfe0f},
                                        {0xfe20, 0xfe2f},
                                        {1, 0}};
    static const struct range two[] = {{0x1100, 0x115f},   {0x2e80, 0x303e},
                                       {0x3041, 0xa4cf},   {0xa960, 0xa97f},
                                       {0xac00, 0xd7a3},   {0xf900, 0xfaff},
                                       {0xfe30, 0xfe6f},   {0xff00, 0xff60},
                                       {0xffe0, 0xffe6},   {0x1f300, 0x1f64f},
                                       {0x1f680, 0x1f6ff}, {0x1f900, 0x1faff},
                                       {0x20000, 0x3fffd}, {1, 0}};
    uint32_t code = code_point_of(at, n);
    return is_within(none, code) ? 0 : is_within(two, code) ? 2 : 1;
}

/* Returns the columns of a text made by add_escaped(). */
static size_t columns_of(const char *s)
{
    size_t left = strlen(s), columns = 0;
    while (left > 0) {
        size_t n = utf8_length((const unsigned char *)s, left);
        columns += character_width(s, n);
        s += n;
        left -= n;
    }
    return columns;
}

static void cut_text(struct text *t, size_t width)
{
    size_t columns = 0, at = 0;
    if (columns_of(t->at) <= width)
        return;
    while (at < t->n) {
        size_t n = utf8_length((const unsigned char *)t->at + at, t->n - at);
        columns += character_width(t->at + at, n);
        if (columns + 1 > width)
            break;
        at += n;
    }
    t->n = at;
    text_add_str(t, "…");
}

/* ---- lines --------------------------------------------------------------- */

size_t table_width(const struct table *t, size_t first)
{
    size_t widths[TABLE_COLUMNS];
    size_t rest = measure_columns(t, widths);
    return rest + (widths[0] < first ? widths[0] : first);
}

void table_show(const struct table *t, size_t width, struct text *ret_text)
{
    size_t columns = strlen(t->align), column = 0, widths[TABLE_COLUMNS];
    size_t rest = measure_columns(t, widths);
    size_t room =
        width > rest + TABLE_FIRST_MIN ? width - rest : TABLE_FIRST_MIN;
    widths[0] = widths[0] > room ? room : widths[0];
    for (size_t i = 0; i < t->n; i++) {
        if (column == 0)
            put_first_cell(ret_text, t->cells[i], widths[0]);
        else if (widths[column] > 0)
            put_cell(ret_text, t->cells[i], widths[column],
                     t->align[column] == 'r');
        column = column + 1 == columns ? 0 : column + 1;
        if (column == 0)
            end_line(ret_text);
        else if (widths[column] > 0)
            put_cell(ret_text, "", t->gap > 0 ? t->gap : 1, false);
    }
}

/* Measures all columns. Returns the width of all columns but the first, with
 * the gaps. */
static size_t measure_columns(const struct table *t, size_t *ret_widths)
{
    size_t columns = strlen(t->align), column = 0, rest = 0;
    memset(ret_widths, 0, columns * sizeof(ret_widths[0]));
    for (size_t i = 0; i < t->n; i++) {
        size_t w = columns_of(t->cells[i]);
        size_t *most = &ret_widths[column];
        *most = w > *most ? w : *most;
        column = column + 1 == columns ? 0 : column + 1;
    }
    for (size_t i = 1; i < columns; i++)
        if (ret_widths[i] > 0)
            rest += ret_widths[i] + (t->gap > 0 ? t->gap : 1);
    return rest;
}

/* Ends the line, without trailing blanks. */
static void end_line(struct text *t)
{
    while (t->n > 0 && t->at[t->n - 1] == ' ')
        t->n--;
    text_add_str(t, "\n");
}

static void put_first_cell(struct text *t, const char *cell, size_t width)
{
    struct text shown = {0};
    text_add_str(&shown, cell);
    cut_text(&shown, width);
    put_cell(t, shown.at, width, false);
    text_free(&shown);
}

static void put_cell(struct text *t, const char *cell, size_t width, bool right)
{
    size_t used = columns_of(cell);
    size_t blanks = used < width ? width - used : 0;
    if (!right)
        text_add_str(t, cell);
    for (; blanks > 0; blanks--)
        text_add_str(t, " ");
    if (right)
        text_add_str(t, cell);
}

size_t table_window(int fd)
{
    struct winsize window;
    if (ioctl(fd, TIOCGWINSZ, &window) == 0 && window.ws_col > 0)
        return window.ws_col;
    return DEFAULT_WINDOW;
}
