/* SPDX-License-Identifier: MIT */
/* resp_random_test.c - random values cut at random: the same comes out as was
 * put in; and what is damaged ends alike however it is cut.
 */
#include "resp_rig.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 3000, STORY = 1 << 18, ITEMS = 300 };

/* Bytes to be read, and the story that reading them should tell. */
struct text {
    char chars[STORY];
    size_t n;
};
struct round {
    uint64_t random;
    struct text bytes;
    struct text want;
    struct text got;
    size_t items; /* that may still be made */
};

static void say(struct text *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void make(struct round *r, int depth);
static void make_text(struct round *r);
static void make_list(struct round *r, int depth);
static void make_attributes(struct round *r, int depth);

static uint64_t draw(struct round *r, uint64_t below)
{
    return test_random(&r->random) % below;
}

static void put(struct text *t, const void *bytes, size_t n)
{
    CHECK(n <= sizeof(t->chars) - t->n);
    if (n > 0)
        memcpy(t->chars + t->n, bytes, n);
    t->n += n;
}

static void say(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t room = sizeof(t->chars) - t->n;
    int n = vsnprintf(t->chars + t->n, room, format, args);
    va_end(args);
    CHECK(n >= 0 && (size_t)n < room);
    t->n += (size_t)n;
}

/* ---- what is read, as a story ------------------------------------------- */

static void tell(struct text *t, const struct vow__resp *v)
{
    switch (v->kind) {
    case VOW__RESP_NIL:
        say(t, "nil ");
        break;
    case VOW__RESP_NUMBER:
        say(t, "%lld ", (long long)v->number);
        break;
    case VOW__RESP_TEXT:
    case VOW__RESP_ERROR:
        say(t, "%c%zu:", v->kind == VOW__RESP_TEXT ? 't' : 'e', v->n);
        put(t, v->text, v->n);
        break;
    default:
        say(t, "%c%zu(", v->kind == VOW__RESP_LIST ? 'l' : 'p', v->n);
        for (size_t i = 0; i < v->n; i++)
            tell(t, &v->items[i]);
        say(t, ")");
        break;
    }
}

/* ---- making ------------------------------------------------------------- */

static void make(struct round *r, int depth)
{
    static const int64_t edges[] = {0, 1, -1, INT64_MAX, INT64_MIN};
    if (draw(r, 12) == 0)
        make_attributes(r, depth);
    switch (draw(r, depth < VOW__RESP_DEPTH ? 7 : 5)) {
    case 0: {
        static const char *const nils[] = {"_\r\n", "$-1\r\n", "*-1\r\n"};
        say(&r->bytes, "%s", nils[draw(r, 3)]);
        say(&r->want, "nil ");
        break;
    }
    case 1: {
        int64_t n = draw(r, 2) == 0 ? edges[draw(r, 5)]
                                    : (int64_t)test_random(&r->random);
        say(&r->bytes, ":%lld\r\n", (long long)n);
        say(&r->want, "%lld ", (long long)n);
        break;
    }
    case 2: {
        bool yes = draw(r, 2) == 0;
        say(&r->bytes, "#%c\r\n", yes ? 't' : 'f');
        say(&r->want, "%d ", yes);
        break;
    }
    case 3:
    case 4:
        make_text(r);
        break;
    default:
        make_list(r, depth);
        break;
    }
}

static void make_text(struct round *r)
{
    static const char signs[] = "$=!+-,(";
    char text[600];
    char sign = signs[draw(r, sizeof(signs) - 1)];
    bool bulk = strchr("$=!", sign) != NULL;
    size_t n = (size_t)draw(r, draw(r, 20) == 0 ? sizeof(text) : 12);
    for (size_t i = 0; i < n; i++) /* many returns and newlines */
        text[i] = draw(r, 3) == 0 ? "\r\n"[draw(r, 2)] : (char)draw(r, 256);
    for (size_t i = 0; i < n && !bulk; i++)
        text[i] = text[i] == '\r' ? '\n' : text[i];
    if (bulk)
        say(&r->bytes, "%c%zu\r\n%s", sign, n + (sign == '=' ? 4 : 0),
            sign == '=' ? "txt:" : "");
    else
        say(&r->bytes, "%c", sign);
    put(&r->bytes, text, n);
    say(&r->bytes, "\r\n");
    say(&r->want, "%c%zu:", sign == '-' || sign == '!' ? 'e' : 't', n);
    put(&r->want, text, n);
}

static void make_list(struct round *r, int depth)
{
    char sign = "*~%"[draw(r, 3)];
    if (depth == 0 && draw(r, 3) == 0)
        sign = '>';
    size_t n = (size_t)draw(r, draw(r, 10) == 0 ? 20 : 4);
    n = n < r->items / 2 ? n : r->items / 2;
    size_t all = sign == '%' ? 2 * n : n;
    r->items -= all;
    say(&r->bytes, "%c%zu\r\n", sign, n);
    say(&r->want, "%c%zu(", sign == '>' ? 'p' : 'l', all);
    for (size_t i = 0; i < all; i++)
        make(r, depth + 1);
    say(&r->want, ")");
}

/* Nothing of them is wanted. */
static void make_attributes(struct round *r, int depth)
{
    size_t before = r->want.n;
    size_t n = (size_t)draw(r, 3);
    if (depth >= VOW__RESP_DEPTH || 2 * n > r->items)
        return;
    r->items -= 2 * n;
    say(&r->bytes, "|%zu\r\n", n);
    for (size_t i = 0; i < 2 * n; i++)
        make(r, depth + 1);
    r->want.n = before;
}

static void make_all(struct round *r, uint64_t seed)
{
    r->random = seed;
    r->bytes.n = 0;
    r->want.n = 0;
    for (uint64_t n = 1 + draw(r, 5); n > 0; n--) {
        r->items = ITEMS;
        make(r, 0);
        say(&r->want, "\n");
    }
}

/* ---- reading ------------------------------------------------------------ */

static int read_ready(struct round *r, struct vow__parser *p)
{
    const struct vow__resp *v = NULL;
    int rc = vow__parser_next(p, &v);
    for (; rc == 1; rc = vow__parser_next(p, &v)) {
        tell(&r->got, v);
        say(&r->got, "\n");
    }
    if (rc < 0)
        say(&r->got, "%s", vow__parser_why(p));
    return rc;
}

/* In parts of at most so many bytes; 0: whole. */
static void read_cut(struct round *r, struct vow__parser *p, size_t most)
{
    int rc = 0;
    r->got.n = 0;
    for (size_t at = 0; at < r->bytes.n && rc == 0;) {
        size_t left = r->bytes.n - at;
        size_t n = most == 0 ? left : 1 + (size_t)draw(r, most);
        n = n < left ? n : left;
        CHECK_INT_EQ(vow__parser_feed(p, r->bytes.chars + at, n), 0);
        at += n;
        if (draw(r, 8) != 0 || at == r->bytes.n)
            rc = read_ready(r, p);
    }
}

static void check_story(const struct round *r, const struct text *want)
{
    CHECK_UINT_EQ(r->got.n, want->n);
    CHECK_MEM_EQ(r->got.chars, want->chars, want->n);
}

static const size_t cuts[] = {0, 1, 2, 7, 100};
enum { CUTS = sizeof(cuts) / sizeof(cuts[0]) };

TEST(resp_random, values_are_the_same_however_they_are_cut)
{
    struct resp_rig rig;
    struct round *r = malloc(sizeof(*r));
    CHECK(r != NULL);
    resp_open(&rig, STORY, ITEMS);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        make_all(r, test_seed() + i);
        for (size_t c = 0; c < CUTS; c++) {
            resp_anew(&rig);
            read_cut(r, rig.p, cuts[c]);
            check_story(r, &r->want);
        }
    }
    free(r);
    resp_close(&rig);
}

/* Some bytes are changed, doubled or lost; limits are met, too. */
static void damage(struct round *r)
{
    for (uint64_t n = 1 + draw(r, 3); n > 0 && r->bytes.n > 0; n--) {
        static const char likely[] = "$*%|>~:+-_#0129?\r\n";
        char *at = r->bytes.chars + draw(r, r->bytes.n);
        size_t behind = r->bytes.n - (size_t)(at - r->bytes.chars);
        switch (draw(r, 4)) {
        case 0:
            *at = (char)draw(r, 256);
            break;
        case 1:
            *at = likely[draw(r, sizeof(likely) - 1)];
            break;
        case 2:
            memmove(at, at + 1, behind - 1);
            r->bytes.n--;
            break;
        default:
            if (r->bytes.n < sizeof(r->bytes.chars)) {
                memmove(at + 1, at, behind);
                r->bytes.n++;
            }
            break;
        }
    }
}

TEST(resp_random, what_is_damaged_ends_alike_however_it_is_cut)
{
    struct resp_rig rig;
    struct round *r = malloc(sizeof(*r));
    CHECK(r != NULL);
    resp_open(&rig, 400, 40);
    size_t refused = 0;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        make_all(r, test_seed() + i);
        damage(r);
        resp_anew(&rig);
        read_cut(r, rig.p, 0);
        refused += *vow__parser_why(rig.p) != '\0';
        r->want = r->got;
        for (size_t c = 1; c < CUTS; c++) {
            resp_anew(&rig);
            read_cut(r, rig.p, cuts[c]);
            check_story(r, &r->want);
        }
    }
    CHECK(refused > ROUNDS / 10 && refused < ROUNDS);
    free(r);
    resp_close(&rig);
}
