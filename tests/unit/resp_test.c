/* SPDX-License-Identifier: MIT */
/* resp_test.c - values from bytes: each kind, each limit, each way not to be
 * RESP, and what memory and time it takes.
 */
#include "fault.h"
#include "resp_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 1 << 20, MEGABYTE = 1 << 20 };

/* ---- kinds -------------------------------------------------------------- */

static void check_each_kind(struct resp_rig *r)
{
    CHECK_TEXT(resp_read(r, "+OK\r\n"), "OK");
    CHECK_TEXT(resp_read(r, "+\r\n"), "");
    CHECK_TEXT(resp_read(r, "$5\r\na\r\nbc\r\n"), "a\r\nbc");
    CHECK_TEXT(resp_read(r, "$0\r\n\r\n"), "");
    CHECK_TEXT(resp_read(r, "=8\r\ntxt:some\r\n"), "some");
    CHECK_TEXT(resp_read(r, "=4\r\nmkd:\r\n"), "");
    CHECK_TEXT(resp_read(r, ",3.25\r\n"), "3.25");
    CHECK_TEXT(resp_read(r, ",-inf\r\n"), "-inf");
    CHECK_TEXT(resp_read(r, "(123456789012345678901234567890\r\n"),
               "123456789012345678901234567890");
    CHECK_NUMBER(resp_read(r, ":42\r\n"), 42);
    CHECK_NUMBER(resp_read(r, ":-7\r\n"), -7);
    CHECK_NUMBER(resp_read(r, ":+7\r\n"), 7);
    CHECK_NUMBER(resp_read(r, "#t\r\n"), 1);
    CHECK_NUMBER(resp_read(r, "#f\r\n"), 0);
    CHECK_INT_EQ(resp_read(r, "_\r\n")->kind, VOW__RESP_NIL);
    CHECK_INT_EQ(resp_read(r, "-ERR no\r\n")->kind, VOW__RESP_ERROR);
    CHECK_MEM_EQ(r->v->text, "ERR no", 6);
    CHECK_INT_EQ(resp_read(r, "!5\r\nBAD x\r\n")->kind, VOW__RESP_ERROR);
    CHECK_MEM_EQ(r->v->text, "BAD x", 5);
    CHECK_INT_EQ(resp_next(r), 0);
}

TEST(resp, each_kind_is_read)
{
    struct resp_rig r;
    resp_open(&r, 1000, 100);
    check_each_kind(&r);
    resp_close(&r);
}

TEST(resp, nils_of_old_servers_are_nils)
{
    struct resp_rig r;
    resp_open(&r, 1000, 100);
    CHECK_INT_EQ(resp_read(&r, "$-1\r\n")->kind, VOW__RESP_NIL);
    CHECK_INT_EQ(resp_read(&r, "*-1\r\n")->kind, VOW__RESP_NIL);
    CHECK_LIST(resp_read(&r, "*3\r\n$-1\r\n*-1\r\n:1\r\n"), 3);
    CHECK_INT_EQ(vow__resp_at(r.v, 0)->kind, VOW__RESP_NIL);
    CHECK_INT_EQ(vow__resp_at(r.v, 1)->kind, VOW__RESP_NIL);
    CHECK_NUMBER(vow__resp_at(r.v, 2), 1);
    resp_close(&r);
}

TEST(resp, numbers_have_all_their_64_bits)
{
    struct resp_rig r;
    resp_open(&r, 1000, 100);
    CHECK_NUMBER(resp_read(&r, ":9223372036854775807\r\n"), INT64_MAX);
    CHECK_NUMBER(resp_read(&r, ":-9223372036854775808\r\n"), INT64_MIN);
    CHECK_NUMBER(resp_read(&r, ":-0\r\n"), 0);
    CHECK_NUMBER(resp_read(&r, ":00000000000000000009\r\n"), 9);
    resp_close(&r);
}

TEST(resp, lists_lie_in_lists)
{
    struct resp_rig r;
    resp_open(&r, 1000, 100);
    CHECK_LIST(resp_read(&r, "*4\r\n:1\r\n~2\r\n+a\r\n*0\r\n"
                             "%2\r\n+k\r\n:5\r\n+l\r\n*1\r\n_\r\n$1\r\nz\r\n"),
               4);
    CHECK_NUMBER(vow__resp_at(r.v, 0), 1);
    const struct vow__resp *set = vow__resp_at(r.v, 1);
    CHECK_LIST(set, 2);
    CHECK_TEXT(vow__resp_at(set, 0), "a");
    CHECK_LIST(vow__resp_at(set, 1), 0);
    const struct vow__resp *map = vow__resp_at(r.v, 2);
    CHECK_LIST(map, 4);
    CHECK_NUMBER(vow__resp_of(map, "k"), 5);
    CHECK_LIST(vow__resp_of(map, "l"), 1);
    CHECK_TEXT(vow__resp_at(r.v, 3), "z");
    resp_close(&r);
}

TEST(resp, empty_lists_are_values)
{
    struct resp_rig r;
    resp_open(&r, 1000, 0);
    CHECK_LIST(resp_read(&r, "*0\r\n"), 0);
    CHECK_LIST(resp_read(&r, "~0\r\n"), 0);
    CHECK_LIST(resp_read(&r, "%0\r\n"), 0);
    CHECK_INT_EQ(resp_read(&r, ">0\r\n")->kind, VOW__RESP_PUSH);
    resp_close(&r);
}

TEST(resp, a_push_stands_between_answers)
{
    struct resp_rig r;
    resp_open(&r, 1000, 100);
    const char *bytes = "+one\r\n>3\r\n+message\r\n+c\r\n$2\r\nhi\r\n+two\r\n";
    CHECK_TEXT(resp_read(&r, bytes), "one");
    CHECK_INT_EQ(resp_next(&r), 1);
    CHECK_INT_EQ(r.v->kind, VOW__RESP_PUSH);
    CHECK_UINT_EQ(r.v->n, 3);
    CHECK_TEXT(vow__resp_at(r.v, 2), "hi");
    CHECK_INT_EQ(resp_next(&r), 1);
    CHECK_TEXT(r.v, "two");
    CHECK_INT_EQ(resp_next(&r), 0);
    resp_close(&r);
}

TEST(resp, attributes_are_left_out)
{
    static const char *const outer[] = {
        "|1\r\n+a\r\n:1\r\n+v\r\n",
        "|0\r\n+v\r\n",
        "|0\r\n|0\r\n|1\r\n+a\r\n*2\r\n:1\r\n%1\r\n+x\r\n+y\r\n+v\r\n",
        "|1\r\n|1\r\n+in\r\n+in\r\n+a\r\n+b\r\n+v\r\n",
    };
    struct resp_rig r;
    resp_open(&r, 1000, 100);
    for (size_t i = 0; i < sizeof(outer) / sizeof(outer[0]); i++)
        CHECK_TEXT(resp_read(&r, outer[i]), "v");
    CHECK_LIST(resp_read(&r, "*2\r\n|1\r\n+a\r\n*1\r\n:9\r\n*2\r\n:1\r\n"
                             "|1\r\n+a\r\n+b\r\n:2\r\n|1\r\n_\r\n_\r\n+e\r\n"),
               2);
    CHECK_LIST(vow__resp_at(r.v, 0), 2);
    CHECK_NUMBER(vow__resp_at(vow__resp_at(r.v, 0), 0), 1);
    CHECK_NUMBER(vow__resp_at(vow__resp_at(r.v, 0), 1), 2);
    CHECK_TEXT(vow__resp_at(r.v, 1), "e");
    CHECK_INT_EQ(resp_read(&r, "|1\r\n+a\r\n+b\r\n>1\r\n+p\r\n")->kind,
                 VOW__RESP_PUSH);
    CHECK_INT_EQ(resp_next(&r), 0);
    resp_close(&r);
}

/* ---- cuts --------------------------------------------------------------- */

TEST(resp, bytes_may_come_one_at_a_time)
{
    const char bytes[] = "*3\r\n$5\r\na\r\nbc\r\n%1\r\n+k\r\n:-12\r\n-no\r\n";
    struct resp_rig r;
    resp_open(&r, 1000, 100);
    for (size_t i = 0; i + 1 < sizeof(bytes); i++) {
        CHECK_INT_EQ(resp_next(&r), 0);
        resp_feed(&r, &bytes[i], 1);
    }
    CHECK_INT_EQ(resp_next(&r), 1);
    CHECK_LIST(r.v, 3);
    CHECK_TEXT(vow__resp_at(r.v, 0), "a\r\nbc");
    CHECK_NUMBER(vow__resp_of(vow__resp_at(r.v, 1), "k"), -12);
    CHECK_INT_EQ(vow__resp_at(r.v, 2)->kind, VOW__RESP_ERROR);
    CHECK_INT_EQ(resp_next(&r), 0);
    resp_close(&r);
}

/* Were any byte looked at again for each that comes, these would take hours. */
static void feed_singly(struct resp_rig *r, const char *head, size_t n)
{
    resp_feed(r, head, strlen(head));
    for (size_t i = 0; i < n; i++) {
        CHECK_INT_EQ(resp_next(r), 0);
        resp_feed(r, "x", 1);
    }
    CHECK_INT_EQ(resp_next(r), 0);
    resp_feed(r, "\r\n", 2);
}

TEST(resp, a_long_line_in_single_bytes_takes_linear_time)
{
    const size_t n = 4 * MEGABYTE;
    struct resp_rig r;
    resp_open(&r, n + 100, 10);
    feed_singly(&r, "+", n);
    CHECK_INT_EQ(resp_next(&r), 1);
    CHECK_UINT_EQ(r.v->n, n);
    resp_close(&r);
}

TEST(resp, a_long_text_in_single_bytes_takes_linear_time)
{
    const size_t n = 4 * MEGABYTE;
    struct resp_rig r;
    resp_open(&r, n + 100, 10);
    feed_singly(&r, "$4194304\r\n", n);
    CHECK_INT_EQ(resp_next(&r), 1);
    CHECK_UINT_EQ(r.v->n, n);
    resp_close(&r);
}

TEST(resp, many_items_in_single_bytes_take_linear_time)
{
    const char item[] = "$1\r\nx\r\n";
    struct resp_rig r;
    resp_open(&r, 100 * (size_t)MEGABYTE, MANY);
    resp_feed(&r, "*1048576\r\n", 10);
    for (size_t i = 0; i < MANY * (sizeof(item) - 1); i++) {
        CHECK_INT_EQ(resp_next(&r), 0);
        resp_feed(&r, &item[i % (sizeof(item) - 1)], 1);
    }
    CHECK_INT_EQ(resp_next(&r), 1);
    CHECK_LIST(r.v, MANY);
    CHECK_TEXT(vow__resp_at(r.v, MANY - 1), "x");
    resp_close(&r);
}

/* They lie in one block, of which the front is done. */
TEST(resp, many_values_at_once_take_linear_time)
{
    struct resp_rig r;
    char *bytes = malloc(4 * (size_t)MANY);
    CHECK(bytes != NULL);
    for (size_t i = 0; i < MANY; i++)
        memcpy(bytes + 4 * i, ":7\r\n", 4);
    resp_open(&r, 100, 10);
    resp_feed(&r, bytes, 4 * (size_t)MANY);
    for (size_t i = 0; i < MANY; i++) {
        CHECK_INT_EQ(resp_next(&r), 1);
        CHECK_NUMBER(r.v, 7);
        resp_feed(&r, ":8\r\n", 4);
    }
    for (size_t i = 0; i < MANY; i++) {
        CHECK_INT_EQ(resp_next(&r), 1);
        CHECK_NUMBER(r.v, 8);
    }
    CHECK_INT_EQ(resp_next(&r), 0);
    free(bytes);
    resp_close(&r);
}

/* ---- memory ------------------------------------------------------------- */

/* All that was ever asked for. */
struct tally {
    size_t bytes;
    size_t blocks;
};

static void *tally_alloc(void *ctx, void *ptr, size_t old_size, size_t new_size)
{
    struct tally *t = ctx;
    (void)old_size;
    if (new_size == 0) {
        free(ptr);
        return NULL;
    }
    t->bytes += new_size;
    t->blocks++;
    return realloc(ptr, new_size);
}

/* In parts as they come from a socket. */
TEST(resp, a_large_text_has_its_room_at_once)
{
    const size_t n = 32 * (size_t)MEGABYTE;
    const size_t part = 65536;
    struct tally t = {.bytes = 0};
    struct vow_alloc hook = {.fn = tally_alloc, .ctx = &t};
    struct vow__resp_limits limits = {.bytes = n + 100, .items = 10};
    struct vow__parser *p = NULL;
    const struct vow__resp *v = NULL;
    char *bytes = calloc(1, n + 2);
    CHECK(bytes != NULL);
    CHECK_INT_EQ(vow__parser_new(&hook, &limits, &p), 0);
    memcpy(bytes + n, "\r\n", 2);
    CHECK_INT_EQ(vow__parser_feed(p, "$33554432\r\n", 11), 0);
    for (size_t i = 0; i < n + 2; i += part) {
        CHECK_INT_EQ(vow__parser_next(p, &v), 0);
        size_t size = n + 2 - i < part ? n + 2 - i : part;
        CHECK_INT_EQ(vow__parser_feed(p, bytes + i, size), 0);
    }
    CHECK_INT_EQ(vow__parser_next(p, &v), 1);
    CHECK_UINT_EQ(v->n, n);
    CHECK(t.bytes < n + 4 * part);
    CHECK(t.blocks < 6);
    vow__parser_free(p);
    free(bytes);
}

TEST(resp, what_a_large_value_took_goes_back)
{
    const size_t n = 8 * (size_t)MEGABYTE;
    struct resp_rig r;
    resp_open(&r, 2 * n, MANY);
    char *bytes = calloc(1, n);
    CHECK(bytes != NULL);
    resp_feed(&r, "$8388608\r\n", 10);
    CHECK_INT_EQ(resp_next(&r), 0);
    resp_feed(&r, bytes, n);
    resp_feed(&r, "\r\n", 2);
    CHECK_INT_EQ(resp_next(&r), 1);
    CHECK_INT_EQ(resp_next(&r), 0);
    CHECK(r.alloc.live_bytes < 2 * MEGABYTE);
    for (size_t i = 0; i < n; i += 4)
        memcpy(bytes + i, ":1\r\n", 4);
    resp_feed(&r, "*1000000\r\n", 10);
    resp_feed(&r, bytes, 4000000);
    CHECK_INT_EQ(resp_next(&r), 1);
    CHECK_INT_EQ(resp_next(&r), 0);
    CHECK(r.alloc.live_bytes < 2 * MEGABYTE);
    free(bytes);
    resp_close(&r);
}

/* After a fault the same call is made again, and nothing is lost. */
static int next_again(struct world *w, struct vow__parser *p,
                      const struct vow__resp **v)
{
    int rc = VOW_ENOMEM;
    for (int i = 0; i < 2 && rc == VOW_ENOMEM; i++)
        rc = vow__parser_next(p, v);
    CHECK(rc != VOW_ENOMEM || fault_explains(w, rc));
    return rc;
}

static int feed_again(struct world *w, struct vow__parser *p, const char *bytes,
                      size_t n)
{
    int rc = VOW_ENOMEM;
    for (int i = 0; i < 2 && rc == VOW_ENOMEM; i++)
        rc = vow__parser_feed(p, bytes, n);
    CHECK(rc == 0 || fault_explains(w, rc));
    return rc;
}

/* Values that grow both blocks more than once. */
static int read_growing(struct world *w, struct vow__parser *p)
{
    char item[6000];
    const struct vow__resp *v = NULL;
    memset(item, 'x', sizeof(item));
    int rc = feed_again(w, p, "*3\r\n", 4);
    for (int i = 0; i < 3 && rc == 0; i++) {
        char head[64];
        int n = snprintf(head, sizeof(head), "*2\r\n$6000\r\n");
        rc = feed_again(w, p, head, (size_t)n);
        if (rc == 0)
            rc = next_again(w, p, &v);
        if (rc == 0)
            rc = feed_again(w, p, item, sizeof(item));
        if (rc == 0)
            rc = feed_again(w, p, "\r\n*50\r\n", 7);
        for (int j = 0; j < 50 && rc == 0; j++)
            rc = feed_again(w, p, ":5\r\n", 4);
    }
    if (rc == 0)
        rc = next_again(w, p, &v);
    if (rc != 1)
        return rc;
    CHECK_LIST(v, 3);
    for (size_t i = 0; i < 3; i++) {
        const struct vow__resp *pair = vow__resp_at(v, i);
        CHECK_UINT_EQ(vow__resp_at(pair, 0)->n, sizeof(item));
        CHECK_MEM_EQ(vow__resp_at(pair, 0)->text, item, sizeof(item));
        CHECK_NUMBER(vow__resp_at(vow__resp_at(pair, 1), 49), 5);
    }
    return 1;
}

FAULT_SWEEP(resp, reading_survives_every_fault, FAULT_ALLOC)
{
    struct vow__resp_limits limits = {.bytes = 1 << 20, .items = 1000};
    struct vow__parser *p = NULL;
    int rc = vow__parser_new(vow_loop_alloc(w->loop), &limits, &p);
    CHECK(rc == 0 || fault_explains(w, rc));
    if (rc < 0)
        return;
    rc = read_growing(w, p);
    CHECK(rc == 1 || fault_explains(w, rc));
    vow__parser_free(p);
}
