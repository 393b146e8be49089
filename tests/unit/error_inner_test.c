/* SPDX-License-Identifier: MIT */
/* error_inner_test.c - base/error.c: the constant errors, freeing without
 * recursion, gathered lists, and descriptions cut anywhere. */
#include "base/error.h"
#include "trap.h"
#include "world.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

enum { DEEP = 1000000, NARROW = 256 * 1024 };

/* Counts, and needs no memory of its own: there will be a million. */
static void *counting(void *ctx, void *ptr, size_t old_size, size_t new_size)
{
    size_t *live = ctx;
    (void)old_size;
    *live += new_size > 0;
    *live -= ptr != NULL;
    if (new_size > 0)
        return realloc(ptr, new_size);
    free(ptr);
    return NULL;
}

static vow_error *make(const struct vow_alloc *a, const char *site, int code,
                       vow_error *cause, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vow_error *e = vow__error_make(a, site, code, cause, format, args);
    va_end(args);
    return e;
}

/* ---- constants ---------------------------------------------------------- */

TEST(error, zero_has_a_name_and_a_text)
{
    CHECK_STR_EQ(vow_error_name(0), "OK");
    CHECK_STR_EQ(vow_error_text(0), "no error");
}

TEST(error, every_code_of_ours_has_a_constant_error)
{
#define LOOK(name, value, text)                                                \
    CHECK_INT_EQ(vow_error_code(vow__error_static(value)), value);             \
    CHECK_STR_EQ(vow_error_message(vow__error_static(value)), text);           \
    CHECK_STR_EQ(vow_error_site(vow__error_static(value)), "");
    VOW_ERROR_MAP(LOOK)
#undef LOOK
}

TEST(error, constant_of_an_unknown_code_is_that_of_no_memory)
{
    const int codes[] = {0, 1, -1, -6000, -7000};
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        CHECK_PTR_EQ(vow__error_static(codes[i]),
                     vow__error_static(VOW_ENOMEM));
}

TEST(error, constants_are_not_counted)
{
    vow_error *e = vow__error_static(VOW_EIO);
    for (int i = 0; i < 10; i++)
        CHECK_PTR_EQ(vow_error_unref(e), NULL);
    CHECK_PTR_EQ(vow_error_ref(e), e);
    CHECK_INT_EQ(vow_error_code(e), VOW_EIO);
}

/* They lie in memory that cannot be written: writing would die. */
TEST(error, constants_are_not_written)
{
    size_t live = 0;
    struct vow_alloc a = {.fn = counting, .ctx = &live};
    vow_error *e = vow__error_static(VOW_EIO);
    vow_error *cause = make(&a, NULL, VOW_EBUSY, NULL, NULL);
    vow__error_set_cause(e, cause);
    vow_error_set_retry_after_ms(e, 5);
    CHECK_PTR_EQ(vow_error_cause(e), NULL);
    CHECK_UINT_EQ(vow_error_retry_after_ms(e), 0);
    vow_error_unref(cause);
    CHECK_UINT_EQ(live, 0);
}

TEST(error, constant_may_be_a_cause)
{
    size_t live = 0;
    struct vow_alloc a = {.fn = counting, .ctx = &live};
    vow_error *e = make(&a, NULL, VOW_EIO, vow__error_static(VOW_ENOMEM), NULL);
    CHECK_PTR_EQ(vow_error_root(e), vow__error_static(VOW_ENOMEM));
    vow_error_unref(e);
    CHECK_UINT_EQ(live, 0);
}

TEST(error, is_told_once_and_a_constant_each_time)
{
    struct vow_alloc plain = {0};
    vow_error *e = make(&plain, NULL, VOW_EIO, NULL, NULL);
    CHECK(vow__error_tell(e));
    CHECK(!vow__error_tell(e));
    CHECK(!vow__error_tell(e));
    vow_error_unref(e);
    e = vow__error_static(VOW_EIO);
    CHECK(vow__error_tell(e));
    CHECK(vow__error_tell(e));
}

/* ---- making ------------------------------------------------------------- */

TEST(error, is_one_block_with_its_message)
{
    struct test_alloc ta;
    test_alloc_init(&ta);
    struct vow_alloc hook = test_alloc_hook(&ta);
    vow_error *e = make(&hook, "a.c:1", VOW_EIO, NULL, "%d of %s", 3, "four");
    CHECK_UINT_EQ(ta.live_blocks, 1);
    CHECK_STR_EQ(vow_error_message(e), "3 of four");
    CHECK_STR_EQ(vow_error_site(e), "a.c:1");
    vow_error_unref(e);
    test_alloc_fini(TEST_HERE, &ta);
}

TEST(error, message_that_cannot_be_formatted_is_the_text_of_the_code)
{
    const wchar_t bad[] = {0x7FFFFFFF, 0};
    struct vow_alloc plain = {0};
    vow_error *e = make(&plain, NULL, VOW_EIO, NULL, "%ls", bad);
    CHECK_STR_EQ(vow_error_message(e), vow_error_text(VOW_EIO));
    vow_error_unref(e);
}

TEST(error, empty_message_stays_empty)
{
    struct vow_alloc plain = {0};
    vow_error *e = make(&plain, NULL, VOW_EIO, NULL, "%s", "");
    CHECK_STR_EQ(vow_error_message(e), "");
    vow_error_unref(e);
}

TEST(error, without_memory_is_null_and_keeps_no_cause)
{
    struct test_alloc ta;
    test_alloc_init(&ta);
    struct vow_alloc hook = test_alloc_hook(&ta);
    vow_error *cause = make(&hook, NULL, VOW_EBUSY, NULL, NULL);
    ta.fail_at = 2;
    ta.fail_forever = true;
    CHECK_PTR_EQ(make(&hook, NULL, VOW_EIO, cause, "text"), NULL);
    CHECK_PTR_EQ(vow__error_make_list(&hook, NULL, VOW_EIO, 4), NULL);
    vow_error_unref(cause);
    test_alloc_fini(TEST_HERE, &ta);
}

TEST(error, is_never_its_own_cause)
{
    struct test_alloc ta;
    test_alloc_init(&ta);
    struct vow_alloc hook = test_alloc_hook(&ta);
    vow_error *e = make(&hook, NULL, VOW_EIO, NULL, NULL);
    vow__error_set_cause(e, e);
    CHECK_PTR_EQ(vow_error_cause(e), NULL);
    vow_error_unref(e);
    test_alloc_fini(TEST_HERE, &ta);
}

TEST(error, retry_after_of_null_is_none)
{
    vow_error_set_retry_after_ms(NULL, 5);
    CHECK_UINT_EQ(vow_error_retry_after_ms(NULL), 0);
}

/* ---- freeing without recursion ------------------------------------------ */

static vow_error *chain(const struct vow_alloc *a, size_t n)
{
    vow_error *e = NULL;
    for (size_t i = 0; i < n; i++) {
        vow_error *outer = make(a, NULL, VOW_EIO, e, NULL);
        CHECK(outer != NULL);
        vow_error_unref(e);
        e = outer;
    }
    return e;
}

static void *unref_thread(void *e)
{
    vow_error_unref(e);
    return NULL;
}

/* Drops the error where a recursion of any depth would die. */
static void unref_on_a_narrow_stack(vow_error *e)
{
    pthread_attr_t attr;
    pthread_t thread;
    CHECK_INT_EQ(pthread_attr_init(&attr), 0);
    CHECK_INT_EQ(pthread_attr_setstacksize(&attr, NARROW), 0);
    CHECK_INT_EQ(pthread_create(&thread, &attr, unref_thread, e), 0);
    CHECK_INT_EQ(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
}

TEST(error, chain_of_a_million_causes_is_freed_on_a_narrow_stack)
{
    size_t live = 0;
    struct vow_alloc a = {.fn = counting, .ctx = &live};
    vow_error *e = chain(&a, DEEP);
    CHECK_UINT_EQ(live, DEEP);
    CHECK(vow_error_root(e) != e);
    unref_on_a_narrow_stack(e);
    CHECK_UINT_EQ(live, 0);
}

TEST(error, freeing_stops_at_a_cause_that_somebody_holds)
{
    size_t live = 0;
    struct vow_alloc a = {.fn = counting, .ctx = &live};
    vow_error *inner = chain(&a, 10);
    vow_error *outer = vow_error_ref(inner);
    for (int i = 0; i < 10; i++) {
        vow_error *next = make(&a, NULL, VOW_EIO, outer, NULL);
        vow_error_unref(outer);
        outer = next;
    }
    vow_error_unref(outer);
    CHECK_UINT_EQ(live, 10);
    vow_error_unref(inner);
    CHECK_UINT_EQ(live, 0);
}

/* ---- lists -------------------------------------------------------------- */

TEST(error, new_list_is_of_nothing)
{
    struct vow_alloc plain = {0};
    vow_error *list = vow__error_make_list(&plain, "a.c:1", VOW_EALLFAILED, 3);
    CHECK_UINT_EQ(vow_error_count(list), 3);
    for (size_t i = 0; i < 4; i++)
        CHECK_PTR_EQ(vow_error_at(list, i), NULL);
    CHECK_STR_EQ(vow_error_message(list), vow_error_text(VOW_EALLFAILED));
    vow_error_unref(list);
    list = vow__error_make_list(&plain, NULL, VOW_EALLFAILED, 0);
    CHECK_UINT_EQ(vow_error_count(list), 0);
    vow_error_unref(list);
}

TEST(error, list_longer_than_memory_is_refused_unasked)
{
    struct test_alloc ta;
    test_alloc_init(&ta);
    struct vow_alloc hook = test_alloc_hook(&ta);
    CHECK_PTR_EQ(vow__error_make_list(&hook, NULL, VOW_EIO,
                                      SIZE_MAX / sizeof(vow_error *)),
                 NULL);
    CHECK_UINT_EQ(ta.allocs, 0);
    test_alloc_fini(TEST_HERE, &ta);
}

TEST(error, list_keeps_what_it_gathers_and_lets_go_what_is_replaced)
{
    size_t live = 0;
    struct vow_alloc a = {.fn = counting, .ctx = &live};
    vow_error *list = vow__error_make_list(&a, NULL, VOW_EALLFAILED, 2);
    vow_error *x = make(&a, NULL, VOW_EIO, NULL, NULL);
    vow_error *y = make(&a, NULL, VOW_EBUSY, NULL, NULL);
    vow__error_set_at(list, 0, x);
    vow__error_set_at(list, 1, x); /* in two places */
    vow_error_unref(x);
    CHECK_PTR_EQ(vow_error_at(list, 0), x);
    vow__error_set_at(list, 0, y);
    CHECK_UINT_EQ(live, 3);
    vow__error_set_at(list, 1, y);
    CHECK_UINT_EQ(live, 2);
    vow__error_set_at(list, 1, y); /* by itself */
    vow_error_unref(y);
    vow__error_set_at(list, 1, NULL);
    CHECK_PTR_EQ(vow_error_at(list, 0), y);
    CHECK_PTR_EQ(vow_error_at(list, 1), NULL);
    vow_error_unref(list);
    CHECK_UINT_EQ(live, 0);
}

TEST_TRAPS(error, writing_behind_the_end_of_a_list_dies)
{
    struct vow_alloc plain = {0};
    vow_error *list = vow__error_make_list(&plain, NULL, VOW_EALLFAILED, 2);
    vow__error_set_at(list, 2, vow__error_static(VOW_EIO));
}

/* Each list holds the next in one place and has the one before as its cause
 * too, so both ways of going down are long. */
TEST(error, lists_nested_a_hundred_thousand_deep_are_freed_on_a_narrow_stack)
{
    enum { LISTS = 100000 };
    size_t live = 0;
    struct vow_alloc a = {.fn = counting, .ctx = &live};
    vow_error *e = make(&a, NULL, VOW_EIO, NULL, NULL);
    for (size_t i = 0; i < LISTS; i++) {
        vow_error *list = vow__error_make_list(&a, NULL, VOW_EALLFAILED, 3);
        vow__error_set_at(list, i % 3, e);
        if (i % 2 == 0)
            vow__error_set_cause(list, e);
        vow_error_unref(e);
        e = list;
    }
    CHECK_UINT_EQ(live, LISTS + 1);
    unref_on_a_narrow_stack(e);
    CHECK_UINT_EQ(live, 0);
}

/* ---- describing --------------------------------------------------------- */

static const char LINE[] = "EBROKEN: gone (a.c:1), because EIO: " /* no site */
                           "disk 7, because ENOMEM: out of memory (b.c:22)";

static vow_error *three(const struct vow_alloc *a)
{
    vow_error *last = make(a, "b.c:22", VOW_ENOMEM, NULL, NULL);
    vow_error *middle = make(a, NULL, VOW_EIO, last, "disk %d", 7);
    vow_error *first = make(a, "a.c:1", VOW_EBROKEN, middle, "gone");
    vow_error_unref(last);
    vow_error_unref(middle);
    return first;
}

TEST(error, description_is_cut_at_every_length_and_writes_no_further)
{
    struct vow_alloc plain = {0};
    vow_error *e = three(&plain);
    for (size_t size = 0; size < sizeof(LINE) + 8; size++) {
        char text[sizeof(LINE) + 16];
        memset(text, '#', sizeof(text));
        CHECK_UINT_EQ(vow_error_describe(e, text, size), sizeof(LINE) - 1);
        size_t n = size < sizeof(LINE) ? size : sizeof(LINE);
        if (size > 0) {
            CHECK_MEM_EQ(text, LINE, n - 1);
            CHECK_INT_EQ(text[n - 1], '\0');
        }
        for (size_t i = n; i < sizeof(text); i++)
            CHECK_INT_EQ(text[i], '#');
    }
    vow_error_unref(e);
}

TEST(error, description_may_be_measured_without_room)
{
    struct vow_alloc plain = {0};
    vow_error *e = three(&plain);
    CHECK_UINT_EQ(vow_error_describe(e, NULL, 0), sizeof(LINE) - 1);
    vow_error_unref(e);
}

TEST(error, description_of_nothing_is_empty)
{
    char text[] = "before";
    CHECK_UINT_EQ(vow_error_describe(NULL, text, sizeof(text)), 0);
    CHECK_STR_EQ(text, "");
}

TEST(error, description_of_many_causes_is_measured_to_its_end)
{
    size_t live = 0;
    struct vow_alloc a = {.fn = counting, .ctx = &live};
    vow_error *one = chain(&a, 1);
    vow_error *many = chain(&a, 1000);
    char text[64];
    size_t length = vow_error_describe(one, text, sizeof(text));
    size_t joint = strlen(", because ");
    CHECK_UINT_EQ(vow_error_describe(many, text, sizeof(text)),
                  1000 * length + 999 * joint);
    CHECK_UINT_EQ(strlen(text), sizeof(text) - 1);
    vow_error_unref(one);
    vow_error_unref(many);
    CHECK_UINT_EQ(live, 0);
}
