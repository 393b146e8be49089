/* SPDX-License-Identifier: MIT */
/* say.h - messages of vow itself on stderr, a sentence per line.
 *
 * WHY   A progress bar may be on the terminal; the bar is hidden before a line
 *       is written, and shown again after the line.
 */
#ifndef VOW_CLI_SAY_H
#define VOW_CLI_SAY_H

#include "text.h"

/* Exit codes of vow itself; see vow(1). */
enum {
    EXIT_SOME_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_STOPPED = 3,
    EXIT_TIMEOUT = 124,
    EXIT_BROKEN = 125,
    EXIT_CANNOT_RUN = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_SIGNAL = 128
};

/* Writes "vow: ...\n" with a single write. Bytes that control a terminal are
 * shown as escapes: another user may have chosen a name in the message. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Does the same without escapes: for a command that the user may copy. */
void say_command(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Does the same as say(), and exits with the code. Running jobs are killed by
 * the reaper. */
_Noreturn void die(int code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Does the same as die() without escapes: for several lines. */
_Noreturn void die_lines(int code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Sets the function for lines, which moves the text; not used by die(). NULL:
 * lines are written to stderr. */
void say_through(void (*emit)(int fd, struct text *moved));
/* Sets functions to call before and after a line is written; may be NULL. */
void say_around(void (*before)(void), void (*after)(void));

#endif
