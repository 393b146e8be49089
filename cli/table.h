/* SPDX-License-Identifier: MIT */
/* table.h - tables for a terminal; cells cannot control the terminal.
 *
 * HOW   Cells are added row by row, the headings first. Characters that move
 *       the cursor, change colors or hide text are written as escapes, such as
 *       \n, \x1b or \u202e: another user may have chosen the names in the
 *       table. Columns are as wide as needed, and an empty column is left out.
 *       If the window is too narrow, the first column is made narrower; a cut
 *       cell ends with an ellipsis.
 */
#ifndef VOW_CLI_TABLE_H
#define VOW_CLI_TABLE_H

#include "text.h"

enum { TABLE_COLUMNS = 8, TABLE_FIRST_MIN = 8 };

/* A struct that is zero except for `align` is an empty table. */
struct table {
    const char *align; /* a letter per column: 'l' or 'r' */
    size_t gap;        /* blanks between columns; 0: 1 */
    char **cells;      /* escaped; owned, as the array */
    size_t n;          /* cells */
    size_t room;       /* size of the array */
};

/* Adds the next cell, escaped and copied, and cut to `width` columns; 0: not
 * cut. */
void table_add(struct table *t, struct span cell, size_t width);
void table_addf(struct table *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Returns the width of the table with at most `first` for the first column. */
size_t table_width(const struct table *t, size_t first);
/* Adds all rows to the text, as lines of at most `width` columns. If `width` is
 * too small, the first column keeps TABLE_FIRST_MIN, and lines are longer. */
void table_show(const struct table *t, size_t width, struct text *ret_text);
void table_free(struct table *t);

/* Adds text with the escapes of a cell, except for backslashes. */
void table_add_visible(struct text *ret_text, struct span s);

/* Returns the columns of the terminal of `fd`; 80 without a terminal. */
size_t table_window(int fd);

#endif
