/* SPDX-License-Identifier: MIT */
/* alloc_test.c - the door to memory: what the hook is asked, and that the C
 * library is asked when there is no hook. */
#include "base/alloc.h"
#include "harness.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

/* A hook that writes down its last call and gives what it was told to. */
struct recorder {
    int calls;
    void *ptr;
    size_t old_size;
    size_t new_size;
    void *answer;
};

static void *record(void *ctx, void *ptr, size_t old_size, size_t new_size)
{
    struct recorder *r = ctx;
    r->calls++;
    r->ptr = ptr;
    r->old_size = old_size;
    r->new_size = new_size;
    return r->answer;
}

TEST(alloc, new_block_is_asked_from_the_hook_with_its_size)
{
    char block[24];
    struct recorder r = {.answer = block, .ptr = block, .old_size = 1};
    struct vow_alloc a = {.fn = record, .ctx = &r};
    CHECK_PTR_EQ(vow__mem_new(&a, sizeof(block)), block);
    CHECK_INT_EQ(r.calls, 1);
    CHECK_PTR_EQ(r.ptr, NULL);
    CHECK_UINT_EQ(r.old_size, 0);
    CHECK_UINT_EQ(r.new_size, sizeof(block));
}

TEST(alloc, new_block_is_given_as_the_hook_left_it)
{
    unsigned char block[] = {1, 2, 3};
    const unsigned char same[] = {1, 2, 3};
    struct recorder r = {.answer = block};
    struct vow_alloc a = {.fn = record, .ctx = &r};
    CHECK_PTR_EQ(vow__mem_new(&a, sizeof(block)), block);
    CHECK_MEM_EQ(block, same, sizeof(same));
}

TEST(alloc, zeroed_block_is_zero_to_its_end_and_no_further)
{
    unsigned char block[65];
    memset(block, 0xA5, sizeof(block));
    struct recorder r = {.answer = block};
    struct vow_alloc a = {.fn = record, .ctx = &r};
    CHECK_PTR_EQ(vow__mem_zero(&a, 64), block);
    CHECK_UINT_EQ(r.new_size, 64);
    for (int i = 0; i < 64; i++)
        CHECK_UINT_EQ(block[i], 0);
    CHECK_UINT_EQ(block[64], 0xA5);
}

TEST(alloc, no_memory_is_null)
{
    struct recorder r = {.answer = NULL};
    struct vow_alloc a = {.fn = record, .ctx = &r};
    CHECK_PTR_EQ(vow__mem_new(&a, 8), NULL);
    CHECK_PTR_EQ(vow__mem_zero(&a, 8), NULL);
    CHECK_INT_EQ(r.calls, 2);
}

TEST(alloc, freeing_tells_the_hook_the_size_and_heeds_no_answer)
{
    char block[24];
    struct recorder r = {.answer = block};
    struct vow_alloc a = {.fn = record, .ctx = &r};
    vow__mem_free(&a, block, sizeof(block));
    CHECK_INT_EQ(r.calls, 1);
    CHECK_PTR_EQ(r.ptr, block);
    CHECK_UINT_EQ(r.old_size, sizeof(block));
    CHECK_UINT_EQ(r.new_size, 0);
}

TEST(alloc, freeing_null_asks_nobody)
{
    struct recorder r = {.answer = NULL};
    struct vow_alloc hooked = {.fn = record, .ctx = &r};
    struct vow_alloc plain = {0};
    vow__mem_free(&hooked, NULL, 24);
    vow__mem_free(&plain, NULL, 24);
    CHECK_INT_EQ(r.calls, 0);
}

TEST(alloc, without_a_hook_blocks_are_those_of_the_c_library)
{
    struct vow_alloc plain = {0};
    char *block = vow__mem_new(&plain, 1000);
    CHECK(block != NULL);
    CHECK_UINT_EQ((uintptr_t)block % alignof(max_align_t), 0);
    memset(block, 0xA5, 1000);
    free(block); /* and not ours to mourn */
    block = malloc(1000);
    vow__mem_free(&plain, block, 1000);
}

TEST(alloc, without_a_hook_zeroed_is_zeroed)
{
    struct vow_alloc plain = {0};
    for (int round = 0; round < 2; round++) { /* the second gets dirty memory */
        unsigned char *block = vow__mem_zero(&plain, 1000);
        CHECK(block != NULL);
        for (int i = 0; i < 1000; i++)
            CHECK_UINT_EQ(block[i], 0);
        memset(block, 0xA5, 1000);
        vow__mem_free(&plain, block, 1000);
    }
}
