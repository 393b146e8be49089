/* SPDX-License-Identifier: MIT */
/* resp_command_test.c - looking at values, and commands to bytes.
 */
#include "fault.h"
#include "resp_rig.h"

#include <stdlib.h>
#include <string.h>

/* ---- looking ------------------------------------------------------------ */

TEST(resp_look, a_text_is_equal_or_not)
{
    struct resp_rig r;
    resp_open(&r, 1000, 100);
    CHECK(vow__resp_is(resp_read(&r, "$2\r\nOK\r\n"), "OK"));
    CHECK(!vow__resp_is(r.v, "O"));
    CHECK(!vow__resp_is(r.v, "OKK"));
    CHECK(!vow__resp_is(r.v, "ok"));
    CHECK(!vow__resp_is(r.v, ""));
    CHECK(vow__resp_is(resp_read(&r, "+\r\n"), ""));
    CHECK(!vow__resp_is(resp_read(&r, "-OK\r\n"), "OK"));
    CHECK(!vow__resp_is(resp_read(&r, "_\r\n"), ""));
    CHECK(!vow__resp_is(resp_read(&r, ":1\r\n"), "1"));
    CHECK(!vow__resp_is(resp_read(&r, "*0\r\n"), ""));
    resp_close(&r);
}

TEST(resp_look, what_is_not_there_is_nil)
{
    struct resp_rig r;
    resp_open(&r, 1000, 100);
    CHECK_NUMBER(vow__resp_at(resp_read(&r, "*2\r\n:1\r\n:2\r\n"), 1), 2);
    CHECK_INT_EQ(vow__resp_at(r.v, 2)->kind, VOW__RESP_NIL);
    CHECK_INT_EQ(vow__resp_at(r.v, SIZE_MAX)->kind, VOW__RESP_NIL);
    CHECK_INT_EQ(vow__resp_at(vow__resp_at(r.v, 0), 0)->kind, VOW__RESP_NIL);
    CHECK_INT_EQ(vow__resp_at(resp_read(&r, "+text\r\n"), 0)->kind,
                 VOW__RESP_NIL);
    CHECK_INT_EQ(vow__resp_of(r.v, "text")->kind, VOW__RESP_NIL);
    CHECK_INT_EQ(vow__resp_of(resp_read(&r, "*0\r\n"), "k")->kind,
                 VOW__RESP_NIL);
    resp_close(&r);
}

/* A value that looks like a key is none, nor is a key without a value. */
TEST(resp_look, a_key_has_the_value_behind_it)
{
    struct resp_rig r;
    resp_open(&r, 1000, 100);
    resp_read(&r, "*7\r\n+a\r\n+b\r\n:1\r\n:2\r\n$1\r\nb\r\n:3\r\n+c\r\n");
    CHECK_TEXT(vow__resp_of(r.v, "a"), "b");
    CHECK_NUMBER(vow__resp_of(r.v, "b"), 3);
    CHECK_INT_EQ(vow__resp_of(r.v, "c")->kind, VOW__RESP_NIL);
    CHECK_INT_EQ(vow__resp_of(r.v, "")->kind, VOW__RESP_NIL);
    resp_close(&r);
}

TEST(resp_look, a_number_may_be_a_text)
{
    static const struct {
        const char *bytes;
        uint64_t want;
    } all[] = {
        {":5\r\n", 5},
        {":0\r\n", 0},
        {":-1\r\n", 77},
        {":9223372036854775807\r\n", INT64_MAX},
        {"$1\r\n5\r\n", 5},
        {"+0012\r\n", 12},
        {"+9223372036854775807\r\n", INT64_MAX},
        {"+9223372036854775808\r\n", 77},
        {"+99999999999999999999\r\n", 77},
        {"+111111111111111111111\r\n", 77},
        {"+\r\n", 77},
        {"+-5\r\n", 77},
        {"++5\r\n", 77},
        {"+5 \r\n", 77},
        {"+0x5\r\n", 77},
        {",5.0\r\n", 77},
        {"-5\r\n", 77},
        {"_\r\n", 77},
        {"*1\r\n:5\r\n", 77},
        {"#t\r\n", 1},
    };
    struct resp_rig r;
    resp_open(&r, 1000, 100);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        CHECK_UINT_EQ(vow__resp_uint(resp_read(&r, all[i].bytes), 77),
                      all[i].want);
    resp_close(&r);
}

/* ---- commands ----------------------------------------------------------- */

TEST(resp_command, words_become_bytes)
{
    static const char want[] = "*6\r\n$3\r\nSET\r\n$0\r\n\r\n$3\r\na\0b\r\n"
                               "$1\r\n0\r\n$2\r\n10\r\n"
                               "$20\r\n18446744073709551615\r\n*0\r\n";
    struct test_alloc alloc;
    struct vow__buf c;
    test_alloc_init(&alloc);
    struct vow_alloc hook = test_alloc_hook(&alloc);
    vow__command_init(&c, &hook);
    vow__command_begin(&c, 6);
    vow__command_text(&c, "SET");
    vow__command_add(&c, NULL, 0);
    vow__command_add(&c, "a\0b", 3);
    vow__command_uint(&c, 0);
    vow__command_uint(&c, 10);
    vow__command_uint(&c, UINT64_MAX);
    vow__command_begin(&c, 0);
    CHECK_INT_EQ(c.code, 0);
    CHECK_UINT_EQ(c.n, sizeof(want) - 1);
    CHECK_MEM_EQ(c.bytes, want, c.n);
    vow__buf_fini(&c);
    CHECK_PTR_EQ(c.bytes, NULL);
    vow__buf_fini(&c);
    test_alloc_fini(TEST_HERE, &alloc);
}

TEST(resp_command, what_was_written_is_read_again)
{
    enum { WORDS = 500, BIG = 100000 };
    struct resp_rig r;
    struct vow__buf c;
    char *big = calloc(1, BIG);
    CHECK(big != NULL);
    resp_open(&r, 10 << 20, WORDS + 1);
    vow__command_init(&c, &r.hook);
    vow__command_begin(&c, WORDS + 1);
    for (uint64_t i = 0; i < WORDS; i++)
        vow__command_uint(&c, i * i * i);
    vow__command_add(&c, big, BIG);
    CHECK_INT_EQ(c.code, 0);
    resp_feed(&r, c.bytes, c.n);
    vow__buf_fini(&c);
    CHECK_INT_EQ(resp_next(&r), 1);
    CHECK_LIST(r.v, WORDS + 1);
    for (uint64_t i = 0; i < WORDS; i++)
        CHECK_UINT_EQ(vow__resp_uint(vow__resp_at(r.v, i), 1), i * i * i);
    CHECK_UINT_EQ(vow__resp_at(r.v, WORDS)->n, BIG);
    CHECK_MEM_EQ(vow__resp_at(r.v, WORDS)->text, big, BIG);
    free(big);
    resp_close(&r);
}

/* Looks into what is given back. */
static void *secret_alloc(void *ctx, void *ptr, size_t old_size,
                          size_t new_size)
{
    size_t *frees = ctx;
    if (new_size > 0)
        return calloc(1, new_size);
    for (size_t i = 0; i + 6 <= old_size; i++)
        CHECK(memcmp((char *)ptr + i, "secret", 6) != 0);
    ++*frees;
    free(ptr);
    return NULL;
}

TEST(resp_command, no_password_stays_in_memory)
{
    size_t frees = 0;
    struct vow_alloc hook = {.fn = secret_alloc, .ctx = &frees};
    struct vow__buf c;
    vow__command_init(&c, &hook);
    vow__command_begin(&c, 100);
    for (int i = 0; i < 100; i++)
        vow__command_text(&c, "secret");
    vow__buf_fini(&c);
    CHECK(frees > 2);
}

TEST(resp_command, what_cannot_be_is_too_much)
{
    struct test_alloc alloc;
    struct vow__buf c;
    test_alloc_init(&alloc);
    struct vow_alloc hook = test_alloc_hook(&alloc);
    vow__command_init(&c, &hook);
    vow__command_text(&c, "a");
    vow__command_add(&c, "b", SIZE_MAX - 3);
    CHECK_INT_EQ(c.code, VOW_E2BIG);
    vow__buf_fini(&c);
    vow__command_init(&c, &hook);
    vow__command_text(&c, "a");
    vow__command_add(&c, "b", SIZE_MAX / 4);
    CHECK_INT_EQ(c.code, VOW_E2BIG);
    vow__buf_fini(&c);
    test_alloc_fini(TEST_HERE, &alloc);
}

FAULT_SWEEP(resp_command, a_command_without_memory_stays_failed, FAULT_ALLOC)
{
    struct vow__buf c;
    vow__command_init(&c, vow_loop_alloc(w->loop));
    size_t n = 0;
    bool failed = false;
    for (uint64_t i = 0; i < 200; i++) {
        vow__command_begin(&c, 1);
        vow__command_uint(&c, i);
        CHECK(!failed || (c.code == VOW_ENOMEM && c.n == n));
        failed = c.code != 0;
        n = c.n;
    }
    CHECK_INT_EQ(failed, fault_fired(w));
    vow__buf_fini(&c);
}
