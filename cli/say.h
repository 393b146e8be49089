/* SPDX-License-Identifier: MIT */
/* say.h - what the command itself tells: one sentence per line, on stderr.
 *
 * WHY   A bar may be on the terminal; it goes away before a line is written and
 *       comes back behind it.
 */
#ifndef VOW_CLI_SAY_H
#define VOW_CLI_SAY_H

#include "text.h"

/* Exit codes that are not a job's; see vow(1). */
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

/* "vow: ...\n" in one write. What would do something to a terminal, as a name
 * that somebody else chose might, is shown as an escape. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same with all bytes as they are: a command, to be copied. */
void say_command(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* As say(), and exit with that code. Jobs that run end with us. */
_Noreturn void die(int code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same with all bytes as they are, such as newlines. */
_Noreturn void die_lines(int code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Lines go there from now on, moved; not those of die(). NULL: to stderr. */
void say_through(void (*emit)(int fd, struct text *moved));
/* Called before and after a line is written to stderr; NULL: nothing to do. */
void say_around(void (*before)(void), void (*after)(void));

#endif
