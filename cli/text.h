/* SPDX-License-Identifier: MIT */
/* text.h - bytes that grow, and memory that is there or ends the program.
 *
 * A command without memory cannot go on and has nothing to tell a caller: it
 * says so and exits with 125. Its jobs end with it.
 */
#ifndef VOW_CLI_TEXT_H
#define VOW_CLI_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of somebody else; they may contain any byte and end without NUL. */
struct span {
    const char *at;
    size_t n;
};

/* Zeroed, it is empty. at[n] is NUL once something was added. */
struct text {
    char *at;
    size_t n;
    size_t room;
};

void *mem_new(size_t n); /* zeroed */
void *mem_resize(void *p, size_t n);
char *mem_copy(const char *at, size_t n); /* with a NUL behind */

void text_add(struct text *t, const void *at, size_t n);
void text_add_str(struct text *t, const char *s);
void text_addf(struct text *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* As a JSON string with its quotes. Bytes that are not UTF-8 become the
 * characters U+DC80 to U+DCFF written as escapes, so that nothing is lost. */
void text_add_json(struct text *t, struct span s);
/* The same without its quotes. A part may end before any byte that is none of
 * 0x80 to 0xbf: there no character is torn. */
void text_add_json_part(struct text *t, struct span s);
/* For pasting into a shell: as it is if that is safe, else quoted. */
void text_add_quoted(struct text *t, struct span s);
void text_clear(struct text *t);
void text_free(struct text *t);

static inline struct span text_span(const struct text *t)
{
    return (struct span){.at = t->at, .n = t->n};
}

/* Bytes of the character of UTF-8 that begins there; 0: it is none. */
size_t utf8_length(const unsigned char *at, size_t n);

struct span span_of(const char *s);
bool span_is(struct span a, const char *s);

#endif
