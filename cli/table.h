/* SPDX-License-Identifier: MIT */
/* table.h - a table for people: what is in it is data, never the terminal's.
 *
 * HOW   Cells are added row by row, the headings first. What would move the
 *       cursor, change colors or hide is written as an escape, as \n, \x1b or
 *       \u202e, so that the name somebody else chose does nothing but stand
 *       there. All columns are as wide as they need, and a column of
 *       nothing is left out; the first gives way when the window is too narrow,
 *       and what is cut ends with an ellipsis.
 */
#ifndef VOW_CLI_TABLE_H
#define VOW_CLI_TABLE_H

#include "text.h"

enum { TABLE_COLUMNS = 8, TABLE_FIRST_MIN = 8 };

/* Zeroed but for `align`, it is empty. */
struct table {
    const char *align; /* a letter per column: 'l' or 'r' */
    size_t gap;        /* blanks between columns; 0: 1 */
    char **cells;
    size_t n;
    size_t room;
};

/* The next cell; escaped and copied. `width`: it has at most so many columns;
 * 0: any. */
void table_add(struct table *t, struct span cell, size_t width);
void table_addf(struct table *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* How wide it would be with so much for the first column at the most. */
size_t table_width(const struct table *t, size_t first);
/* All rows as lines of at most `width` columns. */
void table_show(const struct table *t, size_t width, struct text *ret_text);
void table_free(struct table *t);

/* As a cell has it, but a backslash is itself: for sentences. */
void table_add_visible(struct text *ret_text, struct span s);

/* Columns that the window of `fd` has; 80 if it is none. */
size_t table_window(int fd);

#endif
