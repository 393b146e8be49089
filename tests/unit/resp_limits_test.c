/* SPDX-License-Identifier: MIT */
/* resp_limits_test.c - what is refused, before it costs anything, and with
 * which sentence.
 */
#include "resp_rig.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES = 1000, ITEMS = 100 };

struct refusal {
    const char *bytes;
    const char *why;
};

/* Whole, and in single bytes. */
static void check_refused(const struct refusal *all, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t size = strlen(all[i].bytes);
        struct resp_rig r;
        resp_open(&r, BYTES, ITEMS);
        resp_feed(&r, all[i].bytes, size);
        CHECK_INT_EQ(resp_next(&r), VOW_EIO);
        CHECK_STR_EQ(vow__parser_why(r.p), all[i].why);
        CHECK_PTR_EQ(r.v, NULL);
        CHECK(r.alloc.peak_bytes < 32768);
        resp_anew(&r);
        CHECK_STR_EQ(vow__parser_why(r.p), "");
        int rc = 0;
        for (size_t j = 0; j < size && rc == 0; j++) {
            resp_feed(&r, all[i].bytes + j, 1);
            rc = resp_next(&r);
        }
        CHECK_INT_EQ(rc, VOW_EIO);
        CHECK_STR_EQ(vow__parser_why(r.p), all[i].why);
        resp_close(&r);
    }
}
#define CHECK_REFUSED(all) check_refused((all), sizeof(all) / sizeof((all)[0]))

#define PIECES(sign)                                                           \
    "the server sends a value in pieces of unknown number (" sign              \
    "), which is not supported"
#define NOT "this is not RESP: "

TEST(resp_limits, values_in_pieces_are_refused)
{
    static const struct refusal all[] = {
        {"$?\r\n;4\r\nabcd\r\n;0\r\n", PIECES("$?")},
        {"*?\r\n:1\r\n.\r\n", PIECES("*?")},
        {"%?\r\n+a\r\n:1\r\n.\r\n", PIECES("%?")},
        {"~?\r\n.\r\n", PIECES("~?")},
        {">?\r\n.\r\n", PIECES(">?")},
        {"|?\r\n.\r\n", PIECES("|?")},
        {"*1\r\n$?\r\n", PIECES("$?")},
        {";4\r\nabcd\r\n", PIECES(";")},
        {".\r\n", PIECES(".")},
    };
    CHECK_REFUSED(all);
}

TEST(resp_limits, what_is_not_resp_is_refused)
{
    static const struct refusal all[] = {
        {"HTTP/1.1 400 Bad Request\r\n", NOT "a value begins with 'H'"},
        {"\r\n", NOT "a value begins with byte 13"},
        {"\x80", NOT "a value begins with byte 128"},
        {"\x15\x03\x03", NOT "the server seems to speak TLS"},
        {"\x16\x03\x01", NOT "the server seems to speak TLS"},
        {"*2\r\n:1\r\nx", NOT "a value begins with 'x'"},
        {"+a\rb\r\n", NOT "a line has a return without a newline behind it"},
        {"$3\r\nabcd\r\n", NOT "a text is longer than it says"},
        {"$3\r\nabc\n\r", NOT "a text is longer than it says"},
        {"$\r\n", NOT "a length behind $ that is none"},
        {"$-2\r\n", NOT "a length behind $ that is none"},
        {"$+1\r\na\r\n", NOT "a length behind $ that is none"},
        {"$1x\r\n", NOT "a length behind $ that is none"},
        {"$ 1\r\n", NOT "a length behind $ that is none"},
        {"=-1\r\n", NOT "a length behind = that is none"},
        {"!-1\r\n", NOT "a length behind ! that is none"},
        {"%-1\r\n", NOT "a length behind % that is none"},
        {"*1.5\r\n", NOT "a length behind * that is none"},
        {"=3\r\ntxt\r\n", NOT "a text without its form"},
        {"=5\r\ntxt-a\r\n", NOT "a text without its form"},
        {"_x\r\n", NOT "a nil with something in it"},
        {"#\r\n", NOT "neither true nor false"},
        {"#x\r\n", NOT "neither true nor false"},
        {"#tt\r\n", NOT "neither true nor false"},
        {"*1\r\n>1\r\n", NOT "a push within a value"},
        {"|1\r\n>1\r\n", NOT "a push within a value"},
    };
    CHECK_REFUSED(all);
}

#define NO_NUMBER NOT "a number that is none, or has more than 64 bits"

TEST(resp_limits, numbers_that_do_not_fit_are_refused)
{
    static const struct refusal all[] = {
        {":\r\n", NO_NUMBER},
        {":-\r\n", NO_NUMBER},
        {":+\r\n", NO_NUMBER},
        {":--1\r\n", NO_NUMBER},
        {":1 \r\n", NO_NUMBER},
        {":9223372036854775808\r\n", NO_NUMBER},
        {":-9223372036854775809\r\n", NO_NUMBER},
        {":18446744073709551616\r\n", NO_NUMBER},
        {":100000000000000000000\r\n", NO_NUMBER},
        {":000000000000000000000\r\n", NO_NUMBER},
    };
    CHECK_REFUSED(all);
}

#define MANY_BYTES "a value has more than the 1000 bytes that are allowed"
#define MANY_ITEMS "a value has more than the 100 items that are allowed"

TEST(resp_limits, large_values_are_refused_by_their_header)
{
    static const struct refusal all[] = {
        {"$1000\r\n", MANY_BYTES},
        {"$994\r\n", MANY_BYTES},
        {"$67108864\r\n", MANY_BYTES},
        {"$4294967296\r\n", MANY_BYTES},
        {"$9223372036854775807\r\n", MANY_BYTES},
        {"=9223372036854775806\r\n", MANY_BYTES},
        {"!9223372036854775805\r\n", MANY_BYTES},
        {"$9223372036854775808\r\n", NOT "a length behind $ that is none"},
        {"*101\r\n", MANY_ITEMS},
        {"%51\r\n", MANY_ITEMS},
        {"|51\r\n", MANY_ITEMS},
        {"~4294967296\r\n", MANY_ITEMS},
        {">9223372036854775807\r\n", MANY_ITEMS},
        {"%4611686018427387904\r\n", MANY_ITEMS},
        {"*460000000000000000\r\n", MANY_ITEMS},
        {"*50\r\n*51\r\n", MANY_ITEMS},
        {"*50\r\n|26\r\n", MANY_ITEMS},
        {"|50\r\n*1\r\n", MANY_ITEMS},
    };
    CHECK_REFUSED(all);
}

TEST(resp_limits, the_items_of_all_levels_count_together)
{
    for (int more = 0; more < 2; more++) {
        struct resp_rig r;
        resp_open(&r, BYTES, ITEMS);
        resp_feed(&r, "*3\r\n*60\r\n", 9);
        for (int i = 0; i < 60; i++)
            resp_feed(&r, "_\r\n", 3);
        resp_feed(&r, more == 0 ? "*37\r\n" : "*38\r\n", 5);
        CHECK_INT_EQ(resp_next(&r), more == 0 ? 0 : VOW_EIO);
        CHECK_STR_EQ(vow__parser_why(r.p), more == 0 ? "" : MANY_ITEMS);
        resp_close(&r);
    }
}

TEST(resp_limits, a_value_may_be_as_large_as_the_limit_and_no_larger)
{
    char bytes[BYTES + 2];
    for (size_t more = 0; more < 2; more++) {
        struct resp_rig r;
        resp_open(&r, BYTES, ITEMS);
        memset(bytes, 'x', sizeof(bytes));
        bytes[0] = '+';
        memcpy(bytes + BYTES - 2 + more, "\r\n", 2);
        resp_feed(&r, bytes, BYTES + more);
        CHECK_INT_EQ(resp_next(&r), more == 0 ? 1 : VOW_EIO);
        resp_anew(&r);
        memcpy(bytes, more == 0 ? "$992\r\n" : "$993\r\n", 6);
        resp_feed(&r, bytes, BYTES + more);
        CHECK_INT_EQ(resp_next(&r), more == 0 ? 1 : VOW_EIO);
        resp_anew(&r);
        memcpy(bytes, "*2\r\n+\r\n", 7);
        bytes[7] = '+';
        resp_feed(&r, bytes, BYTES + more);
        CHECK_INT_EQ(resp_next(&r), more == 0 ? 1 : VOW_EIO);
        CHECK_STR_EQ(vow__parser_why(r.p), more == 0 ? "" : MANY_BYTES);
        resp_close(&r);
    }
}

/* Nothing behind the limit is looked at, whether it is there or not. */
TEST(resp_limits, what_lies_behind_the_limit_does_not_matter)
{
    char bytes[BYTES + 1];
    for (int there = 0; there < 2; there++) {
        struct resp_rig r;
        resp_open(&r, BYTES, ITEMS);
        memset(bytes, 'x', sizeof(bytes));
        memcpy(bytes, "*2\r\n+", 5);
        memcpy(bytes + BYTES - 2, "\r\n", 2);
        resp_feed(&r, bytes, BYTES + (size_t)there);
        CHECK_INT_EQ(resp_next(&r), VOW_EIO);
        CHECK_STR_EQ(vow__parser_why(r.p), MANY_BYTES);
        resp_close(&r);
    }
}

TEST(resp_limits, an_empty_text_behind_the_last_byte_is_refused)
{
    struct resp_rig r;
    resp_open(&r, 7, ITEMS);
    resp_feed(&r, "$0000\r\n\r\n", 9);
    CHECK_INT_EQ(resp_next(&r), VOW_EIO);
    resp_close(&r);
}

TEST(resp_limits, a_line_without_an_end_is_refused)
{
    struct resp_rig r;
    resp_open(&r, BYTES, ITEMS);
    resp_feed(&r, "-", 1);
    int rc = 0;
    size_t fed = 1;
    for (; rc == 0; fed++) {
        rc = resp_next(&r);
        resp_feed(&r, "x", 1);
    }
    CHECK_INT_EQ(rc, VOW_EIO);
    CHECK_UINT_EQ(fed, BYTES + 1);
    resp_close(&r);
}

TEST(resp_limits, attributes_without_an_end_are_refused)
{
    struct resp_rig r;
    resp_open(&r, BYTES, ITEMS);
    int rc = 0;
    for (int i = 0; i < BYTES && rc == 0; i++) {
        resp_feed(&r, "|0\r\n", 4);
        rc = resp_next(&r);
    }
    CHECK_INT_EQ(rc, VOW_EIO);
    CHECK_STR_EQ(vow__parser_why(r.p), MANY_BYTES);
    resp_close(&r);
}

TEST(resp_limits, lists_are_eight_deep_and_no_deeper)
{
    static const char *const kinds[] = {"*1\r\n", "~1\r\n", "*2\r\n:1\r\n",
                                        "%1\r\n+k\r\n"};
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        struct resp_rig r;
        resp_open(&r, BYTES, ITEMS);
        for (int i = 0; i < VOW__RESP_DEPTH; i++)
            resp_feed(&r, kinds[k], strlen(kinds[k]));
        resp_feed(&r, "+in\r\n", 5);
        CHECK_INT_EQ(resp_next(&r), 1);
        const struct vow__resp *v = r.v;
        for (int i = 0; i < VOW__RESP_DEPTH; i++)
            v = vow__resp_at(v, v->n - 1);
        CHECK_TEXT(v, "in");
        for (int i = 0; i < VOW__RESP_DEPTH; i++)
            resp_feed(&r, kinds[k], strlen(kinds[k]));
        resp_feed(&r, "*0\r\n", 4);
        CHECK_INT_EQ(resp_next(&r), VOW_EIO);
        CHECK_STR_EQ(vow__parser_why(r.p),
                     "a value has lists in lists, more than 8 deep");
        resp_close(&r);
    }
}

TEST(resp_limits, no_depth_overflows_the_stack)
{
    const size_t n = 4 << 20;
    struct resp_rig r;
    char *bytes = malloc(n);
    CHECK(bytes != NULL);
    for (size_t i = 0; i + 4 <= n; i += 4)
        memcpy(bytes + i, "*1\r\n", 4);
    resp_open(&r, n, n);
    resp_feed(&r, bytes, n);
    CHECK_INT_EQ(resp_next(&r), VOW_EIO);
    resp_anew(&r);
    for (size_t i = 0; i + 4 <= n; i += 4)
        memcpy(bytes + i, "|1\r\n", 4);
    resp_feed(&r, bytes, n);
    CHECK_INT_EQ(resp_next(&r), VOW_EIO);
    free(bytes);
    resp_close(&r);
}

TEST(resp_limits, a_refusal_is_for_good)
{
    struct resp_rig r;
    resp_open(&r, BYTES, ITEMS);
    resp_feed(&r, ":1\r\nx:2\r\n", 9);
    CHECK_INT_EQ(resp_next(&r), 1);
    CHECK_NUMBER(r.v, 1);
    for (int i = 0; i < 3; i++) {
        CHECK_INT_EQ(resp_next(&r), VOW_EIO);
        resp_feed(&r, ":3\r\n", 4);
    }
    resp_anew(&r);
    CHECK_INT_EQ(resp_next(&r), 0);
    CHECK_NUMBER(resp_read(&r, ":4\r\n"), 4);
    CHECK_INT_EQ(resp_next(&r), 0);
    resp_close(&r);
}

TEST(resp_limits, half_a_value_is_forgotten_with_all_it_has)
{
    static const char *const halves[] = {"*3\r\n:1\r\n", "$5\r\nab",
                                         "$5",           "|1\r\n+a\r\n",
                                         "+a\r",         "*2\r\n*2\r\n"};
    struct resp_rig r;
    resp_open(&r, BYTES, ITEMS);
    for (size_t i = 0; i < sizeof(halves) / sizeof(halves[0]); i++) {
        resp_feed(&r, halves[i], strlen(halves[i]));
        CHECK_INT_EQ(resp_next(&r), 0);
        resp_anew(&r);
        CHECK_NUMBER(resp_read(&r, ":7\r\n"), 7);
    }
    resp_anew(&r); /* with a value that was lent */
    CHECK_INT_EQ(resp_next(&r), 0);
    resp_close(&r);
}

TEST(resp_limits, no_limit_is_too_large)
{
    struct resp_rig r;
    resp_open(&r, SIZE_MAX, SIZE_MAX);
    CHECK_TEXT(resp_read(&r, "$1\r\na\r\n"), "a");
    resp_feed(&r, "$9223372036854775807\r\n", 22);
    CHECK_INT_EQ(resp_next(&r), VOW_EIO);
    resp_anew(&r);
    resp_feed(&r, "*768614336404564650\r\n", 21);
    CHECK_INT_EQ(resp_next(&r), VOW_ENOMEM);
    resp_close(&r);
}
