/* SPDX-License-Identifier: MIT */
/* text.c - growing bytes, written for other programs as JSON or for sh.
 *
 * WHY   File names may have any bytes but NUL and '/', JSON strings and shell
 *       words may not. Both notations here are exact, so that a log can be read
 *       back and a printed command can be pasted.
 * HOW   JSON: a byte that is not part of UTF-8 becomes U+DC00 plus the byte, as
 *       with Python's surrogateescape. sh: a pair of single quotes, inside
 *       which only the quote itself is special.
 */
#include "text.h"

#include "say.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void text_grow(struct text *t, size_t more);
static bool json_is_plain(unsigned char c);
static void json_add_escape(struct text *t, unsigned char c);
static bool word_is_plain(struct span s);
static bool word_is_reserved(struct span s);

void *mem_new(size_t n)
{
    void *p = calloc(1, n > 0 ? n : 1);
    if (p == NULL)
        die(EXIT_BROKEN, "out of memory");
    return p;
}

void *mem_resize(void *p, size_t n)
{
    p = realloc(p, n > 0 ? n : 1);
    if (p == NULL)
        die(EXIT_BROKEN, "out of memory");
    return p;
}

char *mem_copy(const char *at, size_t n)
{
    char *copy = mem_new(n + 1);
    if (n > 0)
        memcpy(copy, at, n);
    return copy;
}

void text_add(struct text *t, const void *at, size_t n)
{
    text_grow(t, n);
    if (n > 0)
        memcpy(t->at + t->n, at, n);
    t->n += n;
    t->at[t->n] = '\0';
}

void text_add_str(struct text *t, const char *s)
{
    text_add(t, s, strlen(s));
}

void text_addf(struct text *t, const char *format, ...)
{
    va_list args;
    text_grow(t, 0);
    va_start(args, format);
    int n = vsnprintf(t->at + t->n, t->room - t->n, format, args);
    va_end(args);
    if (n < 0)
        die(EXIT_BROKEN, "cannot format a line: %m");
    if ((size_t)n >= t->room - t->n) {
        text_grow(t, (size_t)n);
        va_start(args, format);
        vsnprintf(t->at + t->n, t->room - t->n, format, args);
        va_end(args);
    }
    t->n += (size_t)n;
}

/* Makes room for `more` bytes and a NUL. */
static void text_grow(struct text *t, size_t more)
{
    if (more >= SIZE_MAX / 2 - t->n)
        die(EXIT_BROKEN, "out of memory");
    if (t->n + more < t->room)
        return;
    size_t room = t->room > 0 ? t->room : 32;
    while (room <= t->n + more)
        room *= 2;
    t->at = mem_resize(t->at, room);
    t->room = room;
}

void text_add_json(struct text *t, struct span s)
{
    text_add(t, "\"", 1);
    text_add_json_part(t, s);
    text_add(t, "\"", 1);
}

void text_add_json_part(struct text *t, struct span s)
{
    const unsigned char *at = (const unsigned char *)s.at;
    for (size_t i = 0; i < s.n;) {
        size_t n = 0;
        while (i + n < s.n && json_is_plain(at[i + n]))
            n++;
        text_add(t, at + i, n);
        i += n;
        if (i == s.n)
            break;
        n = utf8_length(at + i, s.n - i);
        if (n == 0)
            text_addf(t, "\\udc%02x", at[i]);
        else if (n == 1)
            json_add_escape(t, at[i]);
        else
            text_add(t, at + i, n);
        i += n > 0 ? n : 1;
    }
}

static bool json_is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

/* Checks by the table of RFC 3629. */
size_t utf8_length(const unsigned char *at, size_t n)
{
    unsigned char low = 0x80;
    unsigned char high = 0xbf;
    size_t length = 1;
    if (at[0] < 0x80)
        return 1;
    if (at[0] >= 0xc2 && at[0] <= 0xdf)
        length = 2;
    else if (at[0] >= 0xe0 && at[0] <= 0xef)
        length = 3;
    else if (at[0] >= 0xf0 && at[0] <= 0xf4)
        length = 4;
    if (length == 1 || length > n)
        return 0;
    switch (at[0]) {
    case 0xe0: /* overlong */
        low = 0xa0;
        break;
    case 0xed: /* surrogates */
        high = 0x9f;
        break;
    case 0xf0: /* overlong */
        low = 0x90;
        break;
    case 0xf4: /* above U+10FFFF */
        high = 0x8f;
        break;
    }
    if (at[1] < low || at[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if (at[i] < 0x80 || at[i] > 0xbf)
            return 0;
    return length;
}

static void json_add_escape(struct text *t, unsigned char c)
{
    static const char escaped[] = "\"\\\b\f\n\r\t";
    static const char letters[] = "\"\\bfnrt";
    const char *found = c != 0 ? strchr(escaped, c) : NULL;
    if (found != NULL)
        text_add(t, (char[]){'\\', letters[found - escaped]}, 2);
    else
        text_addf(t, "\\u%04x", c);
}

void text_add_quoted(struct text *t, struct span s)
{
    if (word_is_plain(s)) {
        text_add(t, s.at, s.n);
        return;
    }
    text_add(t, "'", 1);
    while (s.n > 0) {
        const char *quote = memchr(s.at, '\'', s.n);
        size_t n = quote != NULL ? (size_t)(quote - s.at) : s.n;
        text_add(t, s.at, n);
        if (quote != NULL) {
            text_add_str(t, "'\\''");
            n++;
        }
        s.at += n;
        s.n -= n;
    }
    text_add(t, "'", 1);
}

/* Returns whether every sh, also an interactive bash or zsh, takes the word
 * unchanged. As a first word a=b would be an assignment and %1 a job; -a=b is
 * neither. */
static bool word_is_plain(struct span s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.at[i];
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
            (c >= '0' && c <= '9'))
            continue;
        if (c != '\0' && strchr("-+_./:,@", c) != NULL)
            continue;
        if (i > 0 && (c == '%' || (c == '=' && s.at[0] == '-')))
            continue;
        return false;
    }
    return s.n > 0 && !word_is_reserved(s);
}

static bool word_is_reserved(struct span s)
{
    static const char *const words[] = {
        "case",  "coproc",    "do",       "done",   "elif",    "else",
        "end",   "esac",      "fi",       "for",    "foreach", "if",
        "in",    "nocorrect", "function", "repeat", "then",    "select",
        "until", "while",     "time",     NULL};
    for (size_t i = 0; words[i] != NULL; i++)
        if (span_is(s, words[i]))
            return true;
    return false;
}

void text_clear(struct text *t)
{
    t->n = 0;
    if (t->at != NULL)
        t->at[0] = '\0';
}

void text_free(struct text *t)
{
    free(t->at);
    *t = (struct text){0};
}

struct span span_of(const char *s)
{
    return (struct span){.at = s, .n = strlen(s)};
}

bool span_is(struct span a, const char *s)
{
    return a.n == strlen(s) && (a.n == 0 || memcmp(a.at, s, a.n) == 0);
}
