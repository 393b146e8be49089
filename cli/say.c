/* SPDX-License-Identifier: MIT */
/* say.c - write a line to stderr, next to a progress bar.
 *
 * HOW   A line is made in memory and written with a single write, so lines of
 *       several processes do not mix. No stdio: a signal or a hook may
 *       interrupt code that uses the same stdio buffer. errno is preserved, so
 *       a caller may say something between a failed call and the handling of
 *       the error; %m may be used.
 * LIMITS  Without memory, a line is cut at about 1000 bytes.
 */
#include "say.h"
#include "table.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHORT_LINE = 1024 };

static void say_line(bool as_is, const char *format, va_list args);
static void write_line(bool as_is, const char *format, va_list args);
static bool line_is_plain(const char *at, size_t n);
static size_t make_line(char *into, size_t room, const char *format,
                        va_list args);
static void write_stderr(const char *at, size_t n);
static void call_hook(void (*fn)(void));

static void (*emit_line)(int fd, struct text *moved);
static void (*before_line)(void);
static void (*after_line)(void);

void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say_line(false, format, args);
    va_end(args);
}

void say_command(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say_line(true, format, args);
    va_end(args);
}

static void say_line(bool as_is, const char *format, va_list args)
{
    int saved = errno;
    write_line(as_is, format, args);
    call_hook(after_line);
    errno = saved;
}

void say_through(void (*emit)(int fd, struct text *moved))
{
    emit_line = emit;
}

_Noreturn void die(int code, const char *format, ...)
{
    va_list args;
    emit_line = NULL;
    va_start(args, format);
    write_line(false, format, args);
    va_end(args);
    exit(code);
}

_Noreturn void die_lines(int code, const char *format, ...)
{
    va_list args;
    emit_line = NULL;
    va_start(args, format);
    write_line(true, format, args);
    va_end(args);
    exit(code);
}

void say_around(void (*before)(void), void (*after)(void))
{
    before_line = before;
    after_line = after;
}

/* Calls a hook. If the hook itself says a line, no hook is called for this
 * line. */
static void call_hook(void (*fn)(void))
{
    static bool busy;
    if (fn == NULL || busy)
        return;
    busy = true;
    fn();
    busy = false;
}

static void write_line(bool as_is, const char *format, va_list args)
{
    char line[SHORT_LINE];
    int saved = errno; /* for %m */
    va_list again;
    call_hook(before_line);
    errno = saved;
    va_copy(again, args);
    size_t n = make_line(line, sizeof(line), format, args);
    char *whole = n > sizeof(line) ? malloc(n) : NULL;
    errno = saved;
    if (whole != NULL)
        make_line(whole, n, format, again);
    else if (n > sizeof(line)) {
        n = sizeof(line);
        memcpy(line + n - 5, "...\n", 4);
    }
    va_end(again);
    const char *at = whole != NULL ? whole : line;
    struct text moved = {0};
    if (!as_is && !line_is_plain(at, n - 2)) {
        table_add_visible(&moved, (struct span){.at = at, .n = n - 2});
        text_add_str(&moved, "\n");
    } else if (emit_line != NULL) {
        text_add(&moved, at, n - 1);
    }
    if (emit_line != NULL)
        emit_line(STDERR_FILENO, &moved);
    else
        write_stderr(moved.at != NULL ? moved.at : at,
                     moved.at != NULL ? moved.n : n - 1);
    text_free(&moved);
    free(whole);
}

/* Returns whether the line is printable ASCII, and needs no escapes. Messages
 * about missing memory are plain: a plain line needs no memory. */
static bool line_is_plain(const char *at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (at[i] < ' ' || (unsigned char)at[i] >= 0x7f)
            return false;
    return true;
}

/* Returns the size of the line, with the newline and a NUL. A sentence that
 * begins with "vow ", as in "vow map: ...", gets no further "vow: ". */
static size_t make_line(char *into, size_t room, const char *format,
                        va_list args)
{
    static const char name[] = "vow: ";
    size_t n = strncmp(format, "vow ", 4) != 0 ? sizeof(name) - 1 : 0;
    memcpy(into, name, n);
    int more = vsnprintf(into + n, room - n, format, args);
    n += more > 0 ? (size_t)more : 0;
    if (n + 2 <= room)
        memcpy(into + n, "\n", 2);
    return n + 2;
}

/* Writes the line: a single write, unless stderr is non-blocking or a signal
 * interrupts. */
static void write_stderr(const char *at, size_t n)
{
    while (n > 0) {
        ssize_t done = write(STDERR_FILENO, at, n);
        if (done > 0) {
            at += done;
            n -= (size_t)done;
        } else if (done < 0 && errno == EAGAIN) {
            struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
            poll(&ready, 1, 1000);
        } else if (done == 0 || errno != EINTR) {
            return; /* stderr cannot be written */
        }
    }
}
