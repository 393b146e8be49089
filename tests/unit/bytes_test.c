/* SPDX-License-Identifier: MIT */
/* bytes_test.c - counted buffers: contents, lack of memory, and counting from
 * many threads. */
#include "base/bytes.h"
#include "trap.h"
#include "world.h"

#include <pthread.h>
#include <stdalign.h>
#include <string.h>

static vow_bytes *make(const struct vow_alloc *a, const void *data, size_t size)
{
    vow_bytes *b = NULL;
    CHECK_INT_EQ(vow__bytes_make(a, data, size, &b), 0);
    CHECK(b != NULL);
    return b;
}

TEST(bytes, are_a_copy)
{
    struct test_alloc ta;
    test_alloc_init(&ta);
    struct vow_alloc hook = test_alloc_hook(&ta);
    char text[] = "as it was";
    vow_bytes *b = make(&hook, text, sizeof(text));
    text[0] = 'X';
    CHECK_STR_EQ((const char *)vow_bytes_data(b), "as it was");
    CHECK_UINT_EQ(vow_bytes_size(b), sizeof(text));
    CHECK_UINT_EQ(ta.live_blocks, 1);
    CHECK_PTR_EQ(vow_bytes_unref(b), NULL);
    test_alloc_fini(TEST_HERE, &ta);
}

TEST(bytes, without_data_are_zero)
{
    struct test_alloc ta;
    test_alloc_init(&ta);
    struct vow_alloc hook = test_alloc_hook(&ta);
    vow_bytes *b = make(&hook, NULL, 1000);
    for (size_t i = 0; i < 1000; i++)
        CHECK_UINT_EQ(vow_bytes_data(b)[i], 0);
    memset(vow_bytes_data(b), 0xA5, 1000); /* all of it is ours */
    vow_bytes_unref(b);
    test_alloc_fini(TEST_HERE, &ta);
}

TEST(bytes, may_be_none)
{
    struct vow_alloc plain = {0};
    vow_bytes *b = make(&plain, NULL, 0);
    CHECK_UINT_EQ(vow_bytes_size(b), 0);
    CHECK(vow_bytes_data(b) != NULL);
    vow_bytes_unref(b);
    b = make(&plain, "x", 0);
    CHECK_UINT_EQ(vow_bytes_size(b), 0);
    vow_bytes_unref(b);
}

TEST(bytes, are_aligned_for_words)
{
    struct vow_alloc plain = {0};
    vow_bytes *b = make(&plain, NULL, 16);
    CHECK_UINT_EQ((uintptr_t)vow_bytes_data(b) % alignof(uint64_t), 0);
    vow_bytes_unref(b);
}

TEST(bytes, without_memory_say_so_and_leave_the_result_alone)
{
    struct test_alloc ta;
    test_alloc_init(&ta);
    ta.fail_at = 1;
    struct vow_alloc hook = test_alloc_hook(&ta);
    vow_bytes *b = (vow_bytes *)(void *)&ta;
    CHECK_INT_EQ(vow__bytes_make(&hook, "x", 1, &b), VOW_ENOMEM);
    CHECK_PTR_EQ(b, &ta);
    test_alloc_fini(TEST_HERE, &ta);
}

TEST(bytes, of_a_size_that_would_wrap_round_are_refused_unasked)
{
    struct test_alloc ta;
    test_alloc_init(&ta);
    struct vow_alloc hook = test_alloc_hook(&ta);
    vow_bytes *b = NULL;
    for (size_t less = 0; less < 8; less++)
        CHECK_INT_EQ(vow__bytes_make(&hook, NULL, SIZE_MAX - less, &b),
                     VOW_ENOMEM);
    CHECK_PTR_EQ(b, NULL);
    CHECK_UINT_EQ(ta.allocs, 0);
    test_alloc_fini(TEST_HERE, &ta);
}

TEST(bytes, null_is_no_buffer)
{
    CHECK_PTR_EQ(vow_bytes_ref(NULL), NULL);
    CHECK_PTR_EQ(vow_bytes_unref(NULL), NULL);
    CHECK_PTR_EQ(vow_bytes_data(NULL), NULL);
    CHECK_UINT_EQ(vow_bytes_size(NULL), 0);
}

TEST(bytes, live_until_the_last_reference_goes)
{
    struct test_alloc ta;
    test_alloc_init(&ta);
    struct vow_alloc hook = test_alloc_hook(&ta);
    vow_bytes *b = make(&hook, "x", 2);
    CHECK_PTR_EQ(vow_bytes_ref(b), b);
    CHECK_PTR_EQ(vow_bytes_ref(b), b);
    vow_bytes_unref(b);
    vow_bytes_unref(b);
    CHECK_STR_EQ((const char *)vow_bytes_data(b), "x");
    vow_bytes_unref(b);
    CHECK_UINT_EQ(ta.live_blocks, 0);
    test_alloc_fini(TEST_HERE, &ta);
}

TEST(bytes, free_their_block_with_the_allocator_they_were_made_with)
{
    struct test_alloc ta;
    test_alloc_init(&ta);
    struct vow_alloc hook = test_alloc_hook(&ta);
    vow_bytes *b = make(&hook, "x", 2);
    hook = (struct vow_alloc){0}; /* the caller's own is not needed */
    vow_bytes_unref(b);
    test_alloc_fini(TEST_HERE, &ta);
}

static void *ref_and_unref(void *arg)
{
    vow_bytes *b = arg;
    for (int i = 0; i < 20000; i++) {
        vow_bytes *mine = vow_bytes_ref(b);
        CHECK_UINT_EQ(vow_bytes_data(mine)[0], 'x');
        vow_bytes_unref(mine);
    }
    vow_bytes_unref(b); /* the thread's own */
    return NULL;
}

TEST(bytes, are_freed_once_by_whichever_thread_is_last)
{
    enum { THREADS = 4 };
    struct test_alloc ta;
    pthread_t threads[THREADS];
    test_alloc_init(&ta);
    struct vow_alloc hook = test_alloc_hook(&ta);
    vow_bytes *b = make(&hook, "x", 1);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT_EQ(
            pthread_create(&threads[i], NULL, ref_and_unref, vow_bytes_ref(b)),
            0);
    vow_bytes_unref(b);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT_EQ(pthread_join(threads[i], NULL), 0);
    test_alloc_fini(TEST_HERE, &ta);
}
