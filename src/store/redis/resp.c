/* SPDX-License-Identifier: MIT */
/* resp.c - the protocol of Redis: RESP3 values from bytes.
 *
 * WHY   A server, or an attacker in between, may send anything, cut anywhere.
 * HOW   Bytes are gathered in a buffer. An element (a line, or a header with
 *       the bulk) is taken when the whole element is there; until then `need`
 *       is the least number of bytes of the element, so that no byte is looked
 *       at twice and a large bulk finds the room at once. Lists in lists are a
 *       small stack of the items to come. The items of a value lie in one
 *       array, the items of a list side by side. Buffer and array move when
 *       they grow: until a value is whole, texts and lists are known by offsets, and
 *       then get pointers.
 *
 *         in     | a value: what was read . what was not |
 *                0                        at             n
 *
 * INVARIANTS
 *   R1  at <= n, and at <= most
 *   R2  an element is taken as a whole or not at all: without memory, nothing
 *       has changed
 *   R3  between two elements the topmost list has items to come
 * LIMITS  the work is linear in the bytes and items; memory is at most twice
 *       the bytes that are there or announced within the limits, and 40 bytes
 *       for each item announced within the limits. Blocks above 1 MiB are freed
 *       when the value is done.
 * THREADS  one at a time.
 */
#include "store/redis/resp.h"

#include "base/assert.h"
#include "vow/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    ITEMS_MIN = 64,
    KEEP_MAX = 1 << 20, /* bytes of a block that stay for the next value */
    LENGTH_MAX = 20,    /* digits of a number */
    ITEM_MIN = 3,       /* bytes of an item */
    WHY = 160
};

static const size_t LIMIT_MAX = SIZE_MAX / 8;

/* A list, or the attributes before a value, of which some items are to come. */
struct frame {
    size_t left;
    size_t at; /* place of the next item */
    bool skip; /* attributes, and all in them */
};

struct vow__parser {
    struct vow_alloc alloc;
    struct vow__resp_limits limits;
    struct vow__buf in; /* begins with the value that is being read */
    size_t most;        /* bytes of that value */
    size_t at;          /* the next element */
    size_t seen;        /* no line ends before */
    size_t need;        /* fewer bytes do not help */

    struct vow__resp root;
    bool has_root;
    bool done; /* the caller has it */
    struct vow__resp *items;
    size_t items_room;
    size_t used;    /* of the array */
    size_t counted; /* of the limit, with those of attributes */
    struct frame frames[VOW__RESP_DEPTH];
    size_t depth;
    char why[WHY]; /* "": it works */
};

/* A line that begins with the sign of its kind. */
struct line {
    char sign;
    const char *text; /* behind the sign */
    size_t n;
    size_t end; /* of the value: behind the line */
};

static void forget(struct vow__parser *p);
static int element(struct vow__parser *p);
static int read_line(struct vow__parser *p, struct line *l);
static int more(struct vow__parser *p, size_t need);
static int scalar(struct vow__parser *p, const struct line *l);
static int bulk(struct vow__parser *p, const struct line *l);
static int list(struct vow__parser *p, const struct line *l);
static int length(struct vow__parser *p, const struct line *l, size_t max,
                  size_t *ret_n);
static size_t most_items(const struct vow__parser *p);
static bool is_null(const struct line *l);
static int items_reserve(struct vow__parser *p, size_t n);
static void push(struct vow__parser *p, size_t n, bool skip);
static int put(struct vow__parser *p, const struct line *l, struct vow__resp v);
static void place(struct vow__parser *p, struct vow__resp v);
static void take(struct vow__parser *p, size_t end);
static void point(struct vow__parser *p, struct vow__resp *v);
static bool signed_number(const char *text, size_t n, int64_t *ret_number);
static bool number(const char *text, size_t n, uint64_t max,
                   uint64_t *ret_number);
static int unknown(struct vow__parser *p, unsigned char sign);
static int fail(struct vow__parser *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- values from bytes -------------------------------------------------- */

int vow__parser_new(const struct vow_alloc *alloc,
                    const struct vow__resp_limits *limits,
                    struct vow__parser **ret_parser)
{
    struct vow__parser *p = vow__mem_zero(alloc, sizeof(*p));
    if (p == NULL)
        return VOW_ENOMEM;
    p->alloc = *alloc;
    vow__buf_init(&p->in, alloc, SIZE_MAX);
    p->limits = *limits;
    if (p->limits.bytes > LIMIT_MAX) /* so that sums cannot overflow */
        p->limits.bytes = LIMIT_MAX;
    if (p->limits.items > LIMIT_MAX)
        p->limits.items = LIMIT_MAX;
    if (p->limits.push == 0 || p->limits.push > LIMIT_MAX)
        p->limits.push = p->limits.bytes;
    *ret_parser = p;
    return 0;
}

void vow__parser_expect(struct vow__parser *p, size_t bytes)
{
    p->limits.bytes = bytes < LIMIT_MAX ? bytes : LIMIT_MAX;
}

size_t vow__parser_partial(const struct vow__parser *p)
{
    size_t at = p->done ? p->at : 0;
    const char *bytes = p->in.bytes;
    bool some = at < p->in.n && bytes[at] != '>' && bytes[at] != '|';
    return some ? p->in.n - at : 0;
}

void vow__parser_free(struct vow__parser *p)
{
    if (p == NULL)
        return;
    struct vow_alloc alloc = p->alloc;
    vow__buf_fini(&p->in);
    vow__mem_free(&alloc, p->items, p->items_room * sizeof(*p->items));
    vow__mem_free(&alloc, p, sizeof(*p));
}

const char *vow__parser_why(const struct vow__parser *p)
{
    return p->why;
}

int vow__parser_feed(struct vow__parser *p, const char *bytes, size_t n)
{
    if (p->why[0] != '\0' || n == 0)
        return 0;
    if (p->done)
        forget(p);
    size_t want = p->need > p->in.n ? p->need - p->in.n : 0;
    if (vow__buf_reserve(&p->in, n > want ? n : want) < 0)
        return VOW_ENOMEM;
    VOW__ASSERT(p->in.bytes != NULL);
    memcpy(p->in.bytes + p->in.n, bytes, n);
    p->in.n += n;
    return 0;
}

int vow__parser_next(struct vow__parser *p, const struct vow__resp **ret_value)
{
    if (p->why[0] != '\0')
        return VOW_EIO;
    if (p->done)
        forget(p);
    while (!p->has_root || p->depth > 0) {
        if (p->in.n < p->need)
            return 0;
        int rc = element(p);
        if (rc <= 0)
            return rc;
    }
    VOW__ASSERT(p->items != NULL || p->used == 0);
    for (size_t i = 0; i < p->used; i++)
        point(p, &p->items[i]);
    point(p, &p->root);
    p->done = true;
    *ret_value = &p->root;
    return 1;
}

/* The value is over; the next one begins behind it. */
static void forget(struct vow__parser *p)
{
    vow__buf_take(&p->in, p->at);
    p->at = 0;
    p->seen = 0;
    p->need = 0;
    p->has_root = false;
    p->done = false;
    p->used = 0;
    p->counted = 0;
    p->depth = 0;
    if (p->items_room > KEEP_MAX / sizeof(*p->items)) {
        vow__mem_free(&p->alloc, p->items, p->items_room * sizeof(*p->items));
        p->items = NULL;
        p->items_room = 0;
    }
}

/* ---- elements ----------------------------------------------------------- */

/* Take the next one: 1. 0: it is not there as a whole. */
static int element(struct vow__parser *p)
{
    struct line l = {.sign = '\0'};
    int rc = read_line(p, &l);
    if (rc <= 0)
        return rc;
    switch (l.sign) {
    case '$':
    case '=':
    case '!':
        return bulk(p, &l);
    case '*':
    case '~':
    case '%':
    case '>':
    case '|':
        return list(p, &l);
    default:
        return scalar(p, &l);
    }
}

static int read_line(struct vow__parser *p, struct line *l)
{
    size_t have = p->in.n;
    if (p->at == 0) /* which value it is, is not known before its first byte */
        p->most = have > 0 && p->in.bytes[0] == '>' ? p->limits.push
                                                    : p->limits.bytes;
    if (have == p->at || p->at == p->most)
        return more(p, p->at + 1);
    VOW__ASSERT(p->in.bytes != NULL);
    const char *base = p->in.bytes;
    l->sign = base[p->at];
    if (l->sign == '\0' || strchr("$=!*~%>|+-:,(#_", l->sign) == NULL)
        return unknown(p, (unsigned char)l->sign);
    size_t from = p->seen > p->at ? p->seen : p->at + 1;
    const char *cr =
        from < have ? memchr(base + from, '\r', have - from) : NULL;
    p->seen = cr == NULL ? have : (size_t)(cr - base);
    if (cr == NULL || p->seen + 1 == have)
        return more(p, have + 1);
    l->text = base + p->at + 1;
    l->n = p->seen - p->at - 1;
    l->end = p->seen + 2;
    if (l->end > p->most)
        return more(p, l->end);
    if (cr[1] != '\n')
        return fail(p, "this is not RESP: a line has a return without a "
                       "newline behind it");
    return 1;
}

/* Nothing can be done before there are so many bytes. */
static int more(struct vow__parser *p, size_t need)
{
    if (need > p->most)
        return fail(p, "a value has more than the %zu bytes that are allowed",
                    p->most);
    p->need = need;
    return 0;
}

static int scalar(struct vow__parser *p, const struct line *l)
{
    struct vow__resp v = {.kind = VOW__RESP_TEXT};
    switch (l->sign) {
    case '_':
        v.kind = VOW__RESP_NIL;
        if (l->n != 0)
            return fail(p, "this is not RESP: a nil with something in it");
        break;
    case ':':
        v.kind = VOW__RESP_NUMBER;
        if (!signed_number(l->text, l->n, &v.number))
            return fail(p, "this is not RESP: a number that is none, or has "
                           "more than 64 bits");
        break;
    case '#':
        v.kind = VOW__RESP_NUMBER;
        if (l->n != 1 || (l->text[0] != 't' && l->text[0] != 'f'))
            return fail(p, "this is not RESP: neither true nor false");
        v.number = l->text[0] == 't';
        break;
    default:
        v.kind = l->sign == '-' ? VOW__RESP_ERROR : VOW__RESP_TEXT;
        v.number = (int64_t)(p->at + 1);
        v.n = l->n;
        break;
    }
    return put(p, l, v);
}

static int bulk(struct vow__parser *p, const struct line *l)
{
    struct vow__resp v = {.kind = VOW__RESP_TEXT};
    struct line whole = *l;
    if (l->sign == '$' && is_null(l))
        return put(p, l, (struct vow__resp){.kind = VOW__RESP_NIL});
    int rc = length(p, l, p->most - l->end, &v.n);
    if (rc < 0)
        return rc;
    whole.end = l->end + v.n + 2;
    if (p->in.n < whole.end || whole.end > p->most)
        return more(p, whole.end); /* keeps R1 */
    const char *text = p->in.bytes + l->end;
    if (text[v.n] != '\r' || text[v.n + 1] != '\n')
        return fail(p, "this is not RESP: a text is longer than it says");
    v.number = (int64_t)l->end;
    if (l->sign == '!')
        v.kind = VOW__RESP_ERROR;
    if (l->sign == '=') {
        if (v.n < 4 || text[3] != ':')
            return fail(p, "this is not RESP: a text without its form");
        v.n -= 4;
        v.number += 4;
    }
    return put(p, &whole, v);
}

static int list(struct vow__parser *p, const struct line *l)
{
    struct vow__resp v = {.kind = VOW__RESP_LIST};
    bool pairs = l->sign == '%' || l->sign == '|';
    if (l->sign == '*' && is_null(l))
        return put(p, l, (struct vow__resp){.kind = VOW__RESP_NIL});
    if (l->sign == '>' && p->depth > 0)
        return fail(p, "this is not RESP: a push within a value");
    size_t max = most_items(p) - p->counted;
    int rc = length(p, l, pairs ? max / 2 : max, &v.n);
    if (rc < 0)
        return rc;
    v.n *= pairs ? 2 : 1;
    if (p->depth == VOW__RESP_DEPTH)
        return fail(p, "a value has lists in lists, more than %d deep",
                    VOW__RESP_DEPTH);
    if (l->sign == '|') { /* no value: that comes behind them */
        push(p, v.n, true);
        take(p, l->end);
        return 1;
    }
    if (l->sign == '>')
        v.kind = VOW__RESP_PUSH;
    bool skip = p->depth > 0 && p->frames[p->depth - 1].skip;
    if (!skip) {
        rc = items_reserve(p, v.n);
        if (rc < 0)
            return rc;
        v.number = (int64_t)p->used;
    }
    place(p, v);
    push(p, v.n, skip);
    take(p, l->end);
    return 1;
}

/* The length in a header, not above `max`. */
static int length(struct vow__parser *p, const struct line *l, size_t max,
                  size_t *ret_n)
{
    uint64_t n;
    if (l->n == 1 && l->text[0] == '?')
        return fail(p,
                    "the server sends a value in pieces of unknown number "
                    "(%c?), which is not supported",
                    l->sign);
    if (!number(l->text, l->n, INT64_MAX, &n))
        return fail(p, "this is not RESP: a length behind %c that is none",
                    l->sign);
    if (n <= max) {
        *ret_n = (size_t)n;
        return 0;
    }
    if (strchr("$=!", l->sign) != NULL)
        return fail(p, "a value has more than the %zu bytes that are allowed",
                    p->most);
    return fail(p, "a value has more than the %zu items that are allowed",
                most_items(p));
}

/* Their room is taken when they are announced: not for more than can come. */
static size_t most_items(const struct vow__parser *p)
{
    size_t fit = p->most / ITEM_MIN;
    return p->limits.items < fit ? p->limits.items : fit;
}

static bool is_null(const struct line *l)
{
    return l->n == 2 && l->text[0] == '-' && l->text[1] == '1';
}

/* ---- the value that they make ------------------------------------------- */

static int items_reserve(struct vow__parser *p, size_t n)
{
    const size_t size = sizeof(*p->items);
    if (n <= p->items_room - p->used)
        return 0;
    size_t room = p->used + n > 2 * p->used ? p->used + n : 2 * p->used;
    room = room > ITEMS_MIN ? room : ITEMS_MIN;
    if (room > SIZE_MAX / 2 / size)
        return VOW_ENOMEM;
    struct vow__resp *items = vow__mem_new(&p->alloc, room * size);
    if (items == NULL)
        return VOW_ENOMEM;
    if (p->used > 0)
        memcpy(items, p->items, p->used * size);
    vow__mem_free(&p->alloc, p->items, p->items_room * size);
    p->items = items;
    p->items_room = room;
    return 0;
}

/* The items that come now are those of a list. */
static void push(struct vow__parser *p, size_t n, bool skip)
{
    VOW__ASSERT(p->depth < VOW__RESP_DEPTH);
    p->frames[p->depth++] =
        (struct frame){.left = n, .at = p->used, .skip = skip};
    p->counted += n;
    if (!skip)
        p->used += n;
}

static int put(struct vow__parser *p, const struct line *l, struct vow__resp v)
{
    place(p, v);
    take(p, l->end);
    return 1;
}

static void place(struct vow__parser *p, struct vow__resp v)
{
    if (p->depth == 0) {
        p->root = v;
        p->has_root = true;
        return;
    }
    struct frame *f = &p->frames[p->depth - 1];
    VOW__ASSERT(f->left > 0); /* R3 */
    f->left--;
    if (!f->skip)
        p->items[f->at++] = v;
}

/* The element is read, and lists that are whole are left. */
static void take(struct vow__parser *p, size_t end)
{
    p->at = end;
    while (p->depth > 0 && p->frames[p->depth - 1].left == 0) /* keeps R3 */
        p->depth--;
}

static void point(struct vow__parser *p, struct vow__resp *v)
{
    size_t at = (size_t)v->number;
    if (v->kind == VOW__RESP_NIL || v->kind == VOW__RESP_NUMBER)
        return;
    v->number = 0;
    if (v->kind == VOW__RESP_TEXT || v->kind == VOW__RESP_ERROR)
        v->text = p->in.bytes + at;
    else if (v->n > 0)
        v->items = p->items + at;
}

/* ---- numbers and sentences ---------------------------------------------- */

static bool signed_number(const char *text, size_t n, int64_t *ret_number)
{
    uint64_t u;
    bool minus = n > 0 && text[0] == '-';
    size_t sign = minus || (n > 0 && text[0] == '+') ? 1 : 0;
    uint64_t max = (uint64_t)INT64_MAX + (minus ? 1 : 0);
    if (!number(text + sign, n - sign, max, &u))
        return false;
    *ret_number = minus && u > 0 ? -(int64_t)(u - 1) - 1 : (int64_t)u;
    return true;
}

static bool number(const char *text, size_t n, uint64_t max,
                   uint64_t *ret_number)
{
    uint64_t u = 0;
    if (n == 0 || n > LENGTH_MAX)
        return false;
    for (size_t i = 0; i < n; i++) {
        uint64_t digit = (uint64_t)(unsigned char)text[i] - '0';
        if (digit > 9 || u > (max - digit) / 10)
            return false;
        u = u * 10 + digit;
    }
    *ret_number = u;
    return true;
}

static int unknown(struct vow__parser *p, unsigned char sign)
{
    if (sign == ';' || sign == '.')
        return fail(p,
                    "the server sends a value in pieces of unknown number "
                    "(%c), which is not supported",
                    sign);
    if (sign == 0x15 || sign == 0x16)
        return fail(p, "this is not RESP: the server seems to speak TLS");
    if (sign > ' ' && sign < 0x7f)
        return fail(p, "this is not RESP: a value begins with '%c'", sign);
    return fail(p, "this is not RESP: a value begins with byte %u", sign);
}

static int fail(struct vow__parser *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(p->why, sizeof(p->why), format, args);
    va_end(args);
    return VOW_EIO;
}

/* ---- looking at values -------------------------------------------------- */

bool vow__resp_is(const struct vow__resp *v, const char *text)
{
    size_t n = strlen(text);
    return v->kind == VOW__RESP_TEXT && v->n == n &&
           memcmp(v->text, text, n) == 0;
}

const struct vow__resp *vow__resp_at(const struct vow__resp *v, size_t i)
{
    static const struct vow__resp nil = {.kind = VOW__RESP_NIL};
    bool many = v->kind == VOW__RESP_LIST || v->kind == VOW__RESP_PUSH;
    return many && i < v->n ? &v->items[i] : &nil;
}

const struct vow__resp *vow__resp_of(const struct vow__resp *v, const char *key)
{
    size_t i = 0;
    bool many = v->kind == VOW__RESP_LIST || v->kind == VOW__RESP_PUSH;
    size_t n = many ? v->n : 0;
    while (i + 1 < n && !vow__resp_is(&v->items[i], key))
        i += 2;
    return vow__resp_at(v, i + 1 < n ? i + 1 : n);
}

uint64_t vow__resp_uint(const struct vow__resp *v, uint64_t otherwise)
{
    uint64_t u;
    if (v->kind == VOW__RESP_NUMBER && v->number >= 0)
        return (uint64_t)v->number;
    if (v->kind == VOW__RESP_TEXT && number(v->text, v->n, INT64_MAX, &u))
        return u;
    return otherwise;
}
