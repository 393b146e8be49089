/* SPDX-License-Identifier: MIT */
#include "base/bytes.h"
#include "base/failure.h"
#include "world.h"
#include <string.h>

static struct vow__failure read_text(const char *text, size_t size)
{
    static const struct vow_alloc plain = {.fn = NULL};
    static char copy[64];
    vow_bytes *b;
    CHECK_INT_EQ(vow__bytes_make(&plain, text, size, &b), 0);
    struct vow__failure f = vow__failure_read(b);
    CHECK(f.length < sizeof(copy));
    memcpy(copy, f.message, f.length);
    copy[f.length] = 0;
    f.message = copy;
    vow_bytes_unref(b);
    return f;
}

TEST(failure, reads_what_was_written)
{
    static const int codes[] = {VOW_EGAVEUP, VOW_EIO, -1, -999999};
    struct test_alloc ta;
    test_alloc_init(&ta);
    struct vow_alloc alloc = test_alloc_hook(&ta);
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        vow_bytes *b;
        CHECK_INT_EQ(vow__failure_make(&alloc, codes[i], "two\nlines", &b), 0);
        struct vow__failure f = vow__failure_read(b);
        CHECK_INT_EQ(f.code, codes[i]);
        CHECK(vow__failure_is(b));
        CHECK_UINT_EQ(f.length, 9);
        CHECK_MEM_EQ(f.message, "two\nlines", 9);
        vow_bytes_unref(b);
    }
    test_alloc_fini(TEST_HERE, &ta);
}

TEST(failure, has_the_text_of_its_code_without_a_message)
{
    static const struct vow_alloc plain = {.fn = NULL};
    vow_bytes *b;
    CHECK_INT_EQ(vow__failure_make(&plain, VOW_EGAVEUP, NULL, &b), 0);
    struct vow__failure f = vow__failure_read(b);
    const char *want = vow_error_text(VOW_EGAVEUP);
    CHECK_UINT_EQ(f.length, strlen(want));
    CHECK_MEM_EQ(f.message, want, f.length);
    vow_bytes_unref(b);
}

TEST(failure, of_any_bytes_is_an_error_with_them_as_its_message)
{
    static const char *const texts[] = {
        "",     "-",      "5\nx",        "-5",  "-x\n",           "--5\n",
        "-0\n", "- 5\nx", "-1000000\nx", "why", "-99999999999\nx"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct vow__failure f = read_text(texts[i], strlen(texts[i]));
        CHECK_INT_EQ(f.code, VOW_EIO);
        CHECK_STR_EQ(f.message, texts[i]);
    }
    CHECK(!vow__failure_is(NULL));
    CHECK_INT_EQ(vow__failure_read(NULL).code, VOW_EIO);
    CHECK_UINT_EQ(vow__failure_read(NULL).length, 0);
    CHECK_INT_EQ(read_text("-5\n", 3).code, -5);
    CHECK_UINT_EQ(read_text("-5\n", 3).length, 0);
}

TEST(failure, needs_memory)
{
    struct test_alloc ta;
    test_alloc_init(&ta);
    ta.fail_at = 1;
    struct vow_alloc alloc = test_alloc_hook(&ta);
    vow_bytes *b = NULL;
    CHECK_INT_EQ(vow__failure_make(&alloc, VOW_EIO, "x", &b), VOW_ENOMEM);
    CHECK(b == NULL);
    test_alloc_fini(TEST_HERE, &ta);
}
