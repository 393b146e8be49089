/* SPDX-License-Identifier: MIT */
/* text.h - growing bytes, and memory allocation that exits on failure.
 *
 * Without memory vow cannot go on, and has no caller to report to: vow writes
 * an error and exits with 125. The jobs end with vow.
 */
#ifndef VOW_CLI_TEXT_H
#define VOW_CLI_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Borrowed bytes; any byte may occur, and no NUL need follow. */
struct span {
    const char *at;
    size_t n;
};

/* Owned bytes; zeroed: empty. at[n] is NUL once bytes were added. */
struct text {
    char *at;
    size_t n;
    size_t room;
};

void *mem_new(size_t n); /* zeroed */
void *mem_resize(void *p, size_t n);
char *mem_copy(const char *at, size_t n); /* adds a NUL */

void text_add(struct text *t, const void *at, size_t n);
void text_add_str(struct text *t, const char *s);
void text_addf(struct text *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Adds a JSON string with quotes. Bytes that are not UTF-8 become the
 * characters U+DC80 to U+DCFF written as escapes, so that nothing is lost. */
void text_add_json(struct text *t, struct span s);
/* Adds a part of a JSON string, without quotes. A part may end before any byte
 * not in 0x80 to 0xbf: there no character is torn. */
void text_add_json_part(struct text *t, struct span s);
/* Adds a word for pasting into a shell: unchanged if safe, else quoted. */
void text_add_quoted(struct text *t, struct span s);
void text_clear(struct text *t);
void text_free(struct text *t);

static inline struct span text_span(const struct text *t)
{
    return (struct span){.at = t->at, .n = t->n};
}

/* Returns the number of bytes of the UTF-8 character at `at`; 0: not UTF-8. */
size_t utf8_length(const unsigned char *at, size_t n);

struct span span_of(const char *s);
bool span_is(struct span a, const char *s);

#endif
