/* SPDX-License-Identifier: MIT */
/* http_parse.c - a strict parser for responses by HTTP/1.1.
 *
 *     STATUS -> FIELDS -> SIZED, UNTIL_CLOSE, or nothing ------> END
 *        ^        |  \                                            ^
 *        +--1xx---+   CHUNK_SIZE -> CHUNK -> CHUNK_CLOSE --+      |
 *                         ^    \_____ TRAILER _____________|______|
 *                         +--------------------------------+
 *
 * WHY   A response that two programs understand in two ways ends at two places:
 *       the rest of the one would be the answer of the next request.
 * HOW   What is not expected is refused: lines end with CRLF and have no
 *       control byte, a length has only digits, the only encoding is "chunked",
 *       and there is one length or "chunked". Lines are gathered, bodies are
 *       handed out where they lie.
 * LIMITS  VOW__HTTP_LINE and VOW__HTTP_HEAD. No continued lines, no upgrade.
 * THREADS  any.
 */
#include "store/net/http_parse.h"

#include <string.h>
#include <strings.h>

enum {
    STATUS,
    FIELDS,
    SIZED,
    UNTIL_CLOSE,
    CHUNK_SIZE,
    CHUNK,
    CHUNK_CLOSE,
    TRAILER,
    END,
    BAD
};

/* Gathers a line. False: more must arrive, or the line is bad. */
static bool line_gather(struct vow__http_parser *p, const char **bytes,
                        size_t *n)
{
    for (; *n > 0; (*bytes)++, (*n)--) {
        unsigned char c = (unsigned char)**bytes;
        bool ended = p->line_n > 0 && p->line[p->line_n - 1] == '\r';
        if (++p->head > VOW__HTTP_HEAD || p->line_n == sizeof(p->line) ||
            ended != (c == '\n') ||
            (c < ' ' && c != '\t' && c != '\r' && c != '\n') || c == 0x7f) {
            p->state = BAD;
            return false;
        }
        if (c == '\n') {
            p->line[p->line_n - 1] = 0;
            p->line_n = 0;
            (*bytes)++;
            (*n)--;
            return true;
        }
        p->line[p->line_n++] = (char)c;
    }
    return false;
}

/* "HTTP/1.1 200 OK"; the reason may be empty. */
static void status_read(struct vow__http_parser *p)
{
    const char *line = p->line;
    bool good = strncmp(line, "HTTP/1.1 ", 9) == 0 ||
                strncmp(line, "HTTP/1.0 ", 9) == 0;
    unsigned status = 0;
    for (size_t i = 9; good && i < 12; i++) {
        good = line[i] >= '0' && line[i] <= '9';
        status = 10 * status + (unsigned)(line[i] - '0');
    }
    good = good && (line[12] == 0 || line[12] == ' ');
    p->status = status;
    p->old = good && line[7] == '0';
    p->closes = p->old;
    p->chunked = false;
    p->sized = false;
    p->left = 0;
    p->state = good && status >= 100 && status != 101 ? FIELDS : BAD;
}

/* Returns whether the text is a number below 10^18, or 2^60 for base 16. */
static bool number_read(const char *text, size_t n, unsigned base,
                        uint64_t *ret_number)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    uint64_t number = 0;
    if (n == 0 || n > (base == 10 ? 18 : 15))
        return false;
    for (size_t i = 0; i < n; i++) {
        const char *digit = memchr(digits, text[i], sizeof(digits) - 1);
        unsigned value = digit == NULL ? 16 : (unsigned)(digit - digits) % 16;
        if (value >= base)
            return false;
        number = base * number + value;
    }
    *ret_number = number;
    return true;
}

static bool length_take(struct vow__http_parser *p, const char *value, size_t n)
{
    uint64_t length;
    if (!number_read(value, n, 10, &length) || (p->sized && p->left != length))
        return false;
    p->sized = true;
    p->left = length;
    return true;
}

/* "Name: value". Most fields are of no interest. */
static void field_read(struct vow__http_parser *p)
{
    const char *name = p->line;
    size_t name_n = strcspn(name, ": \t");
    const char *value = name + name_n + 1;
    bool good = name_n > 0 && name[name_n] == ':';
    if (good) {
        value += strspn(value, " \t");
        size_t n = strlen(value);
        while (n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t'))
            n--;
        if (name_n == 14 && strncasecmp(name, "content-length", 14) == 0) {
            good = length_take(p, value, n);
        } else if (name_n == 17 &&
                   strncasecmp(name, "transfer-encoding", 17) == 0) {
            good =
                !p->chunked && n == 7 && strncasecmp(value, "chunked", 7) == 0;
            p->chunked = true;
        } else if (name_n == 10 && strncasecmp(name, "connection", 10) == 0) {
            p->closes |= strcasestr(value, "close") != NULL;
        }
    }
    if (!good)
        p->state = BAD;
}

static void head_end(struct vow__http_parser *p)
{
    if (p->chunked && (p->sized || p->old))
        p->state = BAD;
    else if (p->status < 200)
        p->state = STATUS;
    else if (p->status == 204 || p->status == 304)
        p->state = END;
    else if (p->chunked)
        p->state = CHUNK_SIZE;
    else if (p->sized)
        p->state = p->left > 0 ? SIZED : END;
    else
        p->state = UNTIL_CLOSE;
    p->closes |= p->state == UNTIL_CLOSE;
}

/* "1a0", perhaps with an extension behind. */
static void chunk_begin(struct vow__http_parser *p)
{
    size_t n = strcspn(p->line, "; \t");
    p->head = 0;
    if (!number_read(p->line, n, 16, &p->left))
        p->state = BAD;
    else
        p->state = p->left > 0 ? CHUNK : TRAILER;
}

static void line_read(struct vow__http_parser *p)
{
    bool empty = p->line[0] == 0;
    if (p->state == STATUS)
        status_read(p);
    else if (p->state == CHUNK_SIZE)
        chunk_begin(p);
    else if (p->state == CHUNK_CLOSE)
        p->state = empty ? CHUNK_SIZE : BAD;
    else if (p->state == TRAILER)
        p->state = empty ? END : TRAILER;
    else if (empty)
        head_end(p);
    else
        field_read(p);
}

static void body_take(struct vow__http_parser *p, const char **bytes, size_t *n,
                      const char **ret_body, size_t *ret_n)
{
    bool all = p->state != UNTIL_CLOSE && *n > p->left;
    *ret_body = *bytes;
    *ret_n = all ? (size_t)p->left : *n;
    *bytes += *ret_n;
    *n -= *ret_n;
    if (p->state == UNTIL_CLOSE)
        return;
    p->left -= *ret_n;
    if (p->left == 0)
        p->state = p->state == CHUNK ? CHUNK_CLOSE : END;
}

enum vow__http_event vow__http_parse(struct vow__http_parser *p,
                                     const char **bytes, size_t *n,
                                     const char **ret_body, size_t *ret_n)
{
    while (*n > 0 && p->state < END) {
        if (p->state == SIZED || p->state == UNTIL_CLOSE || p->state == CHUNK) {
            body_take(p, bytes, n, ret_body, ret_n);
            return VOW__HTTP_BODY;
        }
        if (line_gather(p, bytes, n))
            line_read(p);
    }
    if (p->state == BAD)
        return VOW__HTTP_BAD;
    return p->state == END ? VOW__HTTP_END : VOW__HTTP_MORE;
}

bool vow__http_parse_close(const struct vow__http_parser *p)
{
    return p->state == UNTIL_CLOSE;
}
