/* SPDX-License-Identifier: MIT */
/* buf_test.c - the buffer: what is added is there, at every boundary; limits,
 * lack of memory, taking from the front, passwords, and handing over. */
#include "base/buf.h"
#include "fault.h"
#include "vow/error.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST = 511, KEEP = 1 << 20, MAX = 5000 };

struct fixture {
    struct test_alloc alloc;
    struct vow_alloc hook;
    struct vow__buf buf;
};

static void open_buffer(struct fixture *x, size_t max)
{
    memset(x, 0, sizeof(*x));
    test_alloc_init(&x->alloc);
    x->hook = test_alloc_hook(&x->alloc);
    vow__buf_init(&x->buf, &x->hook, max);
}

static void close_buffer(struct fixture *x)
{
    vow__buf_fini(&x->buf);
    CHECK_PTR_EQ(x->buf.bytes, NULL);
    test_alloc_fini(TEST_HERE, &x->alloc);
}

static void check_buffer(const struct vow__buf *b, const char *want)
{
    CHECK_UINT_EQ(b->n, strlen(want));
    CHECK_MEM_EQ(b->bytes, want, b->n);
}

/* Byte number `i` of a stream that is not the same after a power of two. */
static char byte_of(size_t i)
{
    return (char)(i % 251);
}

static void add_stream(struct vow__buf *b, size_t from, size_t n)
{
    for (size_t i = from; i < from + n; i++) {
        char byte = byte_of(i);
        vow__buf_add(b, &byte, 1);
    }
}

static void check_stream(const struct vow__buf *b, size_t from, size_t n)
{
    CHECK_UINT_EQ(b->n, n);
    for (size_t i = 0; i < n; i++)
        CHECK_INT_EQ(b->bytes[i], byte_of(from + i));
}

/* ---- adding ------------------------------------------------------------- */

TEST(buf, an_empty_one_has_no_memory)
{
    struct fixture x;
    open_buffer(&x, MAX);
    vow__buf_add(&x.buf, "", 0);
    vow__buf_add(&x.buf, NULL, 0);
    vow__buf_text(&x.buf, "");
    vow__buf_print(&x.buf, "%s", "");
    vow__buf_take(&x.buf, 0);
    vow__buf_clear(&x.buf);
    CHECK_INT_EQ(vow__buf_reserve(&x.buf, 0), 0);
    CHECK_UINT_EQ(x.buf.n, 0);
    CHECK_INT_EQ(x.buf.code, 0);
    CHECK_UINT_EQ(x.alloc.allocs, 0);
    close_buffer(&x);
}

TEST(buf, bytes_texts_and_prints_stand_behind_each_other)
{
    struct fixture x;
    open_buffer(&x, MAX);
    vow__buf_text(&x.buf, "one");
    vow__buf_add(&x.buf, " two", 4);
    vow__buf_print(&x.buf, " %d", 3);
    memcpy(vow__buf_extend(&x.buf, 100), " four", 5);
    x.buf.n += 5;
    memcpy(vow__buf_push(&x.buf, 5), " five", 5);
    check_buffer(&x.buf, "one two 3 four five");
    CHECK_INT_EQ(x.buf.code, 0);
    CHECK_UINT_EQ(x.alloc.allocs, 1);
    close_buffer(&x);
}

TEST(buf, grows_to_at_least_twice_and_keeps_the_bytes)
{
    struct fixture x;
    open_buffer(&x, KEEP);
    add_stream(&x.buf, 0, 100000);
    check_stream(&x.buf, 0, 100000);
    CHECK_UINT_EQ(x.buf.room, 130816); /* 511 doubled eight times */
    CHECK_UINT_EQ(x.alloc.allocs, 9);
    CHECK_UINT_EQ(x.alloc.live_blocks, 1);
    close_buffer(&x);
}

TEST(buf, a_large_request_gets_its_size)
{
    struct fixture x;
    open_buffer(&x, 1 << 24);
    add_stream(&x.buf, 0, 10);
    CHECK_INT_EQ(vow__buf_reserve(&x.buf, 70000), 0);
    CHECK_UINT_EQ(x.buf.room, 70010);
    check_stream(&x.buf, 0, 10);
    add_stream(&x.buf, 10, 70000);
    CHECK_UINT_EQ(x.alloc.allocs, 2);
    check_stream(&x.buf, 0, 70010);
    close_buffer(&x);
}

/* ---- printing ----------------------------------------------------------- */

/* A text that fills the room, or all but a byte, needs no second block. */
TEST(buf, prints_at_every_distance_from_the_end_of_the_room)
{
    static char text[2 * FIRST + 1];
    for (size_t used = FIRST - 20; used <= FIRST; used++)
        for (size_t n = 0; n <= 40; n++) {
            struct fixture x;
            open_buffer(&x, MAX);
            memset(text, 'a', used);
            memset(text + used, 'b', n);
            text[used + n] = '\0';
            vow__buf_add(&x.buf, text, used);
            vow__buf_print(&x.buf, "%s", text + used);
            check_buffer(&x.buf, text);
            CHECK_UINT_EQ(x.alloc.allocs, used + n > FIRST ? 2 : 1);
            close_buffer(&x);
        }
}

TEST(buf, prints_into_an_empty_buffer_up_to_the_maximum)
{
    struct fixture x;
    for (int n = 1; n < 4; n++) {
        open_buffer(&x, 3);
        vow__buf_print(&x.buf, "%.*s", n, "abcd");
        CHECK_INT_EQ(x.buf.code, 0);
        CHECK_UINT_EQ(x.buf.n, (size_t)n);
        CHECK_MEM_EQ(x.buf.bytes, "abcd", (size_t)n);
        close_buffer(&x);
    }
    open_buffer(&x, 3);
    vow__buf_print(&x.buf, "%s", "abcd");
    CHECK_INT_EQ(x.buf.code, VOW_E2BIG);
    CHECK_UINT_EQ(x.buf.n, 0);
    close_buffer(&x);
}

/* ---- bytes of the buffer itself ----------------------------------------- */

TEST(buf, adds_its_own_bytes_though_they_move)
{
    struct fixture x;
    open_buffer(&x, MAX);
    for (size_t n = 1; n <= 2048; n *= 2) {
        vow__buf_fini(&x.buf);
        add_stream(&x.buf, 0, n);
        vow__buf_add(&x.buf, x.buf.bytes + n / 2, n - n / 2);
        CHECK_UINT_EQ(x.buf.n, n + n - n / 2);
        for (size_t i = n / 2; i < n; i++)
            CHECK_INT_EQ(x.buf.bytes[n + i - n / 2], byte_of(i));
    }
    close_buffer(&x);
}

TEST(buf, adds_its_own_bytes_though_they_move_to_the_front)
{
    struct fixture x;
    open_buffer(&x, MAX);
    add_stream(&x.buf, 0, FIRST);
    vow__buf_take(&x.buf, FIRST - 10);
    vow__buf_add(&x.buf, x.buf.bytes, x.buf.n);
    CHECK_UINT_EQ(x.alloc.allocs, 1);
    CHECK_UINT_EQ(x.buf.n, 20);
    for (size_t i = 0; i < 20; i++)
        CHECK_INT_EQ(x.buf.bytes[i], byte_of(FIRST - 10 + i % 10));
    close_buffer(&x);
}

/* ---- taking ------------------------------------------------------------- */

TEST(buf, bytes_are_taken_in_order)
{
    struct fixture x;
    uint64_t random = test_seed();
    size_t in = 0, out = 0;
    open_buffer(&x, MAX);
    for (int round = 0; round < 5000; round++) {
        size_t n = (size_t)(test_random(&random) % 300);
        add_stream(&x.buf, in, in - out + n > MAX ? 0 : n);
        in = out + x.buf.n;
        n = (size_t)(test_random(&random) % 300);
        n = n < x.buf.n ? n : x.buf.n;
        vow__buf_take(&x.buf, n);
        out += n;
        if (round % 10 == 0)
            check_stream(&x.buf, out, in - out);
        CHECK(x.buf.size <= 2 * MAX + 512);
    }
    CHECK(in > 100000);
    close_buffer(&x);
}

/* The bytes that move are never more than the bytes taken since the last move,
 * so the block neither grows nor is replaced. */
TEST(buf, a_queue_of_few_bytes_needs_one_block)
{
    struct fixture x;
    open_buffer(&x, MAX);
    add_stream(&x.buf, 0, 99);
    for (size_t i = 0; i < 10000; i++) {
        add_stream(&x.buf, 99 + i * 100, 100);
        vow__buf_take(&x.buf, 100);
    }
    check_stream(&x.buf, 1000000, 99);
    CHECK_UINT_EQ(x.alloc.allocs, 1);
    close_buffer(&x);
}

TEST(buf, emptied_it_keeps_a_block_of_usual_size_only)
{
    struct fixture x;
    open_buffer(&x, 4 * KEEP);
    add_stream(&x.buf, 0, FIRST);
    vow__buf_take(&x.buf, 500);
    vow__buf_take(&x.buf, FIRST - 500);
    CHECK_UINT_EQ(x.buf.room, FIRST);
    CHECK_UINT_EQ(x.alloc.live_blocks, 1);
    CHECK(vow__buf_push(&x.buf, KEEP) != NULL);
    vow__buf_take(&x.buf, KEEP - 1);
    CHECK_UINT_EQ(x.alloc.live_blocks, 1);
    vow__buf_take(&x.buf, 1);
    CHECK_UINT_EQ(x.alloc.live_blocks, 0);
    CHECK_UINT_EQ(x.buf.room, 0);
    vow__buf_text(&x.buf, "again");
    check_buffer(&x.buf, "again");
    close_buffer(&x);
}

/* ---- failures ----------------------------------------------------------- */

TEST(buf, holds_the_maximum_and_not_a_byte_more)
{
    struct fixture x;
    open_buffer(&x, MAX);
    add_stream(&x.buf, 0, MAX);
    CHECK_INT_EQ(x.buf.code, 0);
    CHECK_INT_EQ(vow__buf_reserve(&x.buf, 1), VOW_E2BIG);
    CHECK_PTR_EQ(vow__buf_push(&x.buf, 1), NULL);
    CHECK_INT_EQ(x.buf.code, 0); /* a queue may go on */
    vow__buf_take(&x.buf, 10);
    CHECK_INT_EQ(vow__buf_reserve(&x.buf, 10), 0);
    CHECK_INT_EQ(vow__buf_reserve(&x.buf, 11), VOW_E2BIG);
    CHECK_INT_EQ(vow__buf_reserve(&x.buf, SIZE_MAX), VOW_E2BIG);
    check_stream(&x.buf, 10, MAX - 10);
    close_buffer(&x);
}

TEST(buf, what_cannot_be_is_too_much)
{
    struct fixture x;
    open_buffer(&x, SIZE_MAX);
    vow__buf_text(&x.buf, "a");
    CHECK_INT_EQ(vow__buf_reserve(&x.buf, SIZE_MAX), VOW_E2BIG);
    CHECK_INT_EQ(vow__buf_reserve(&x.buf, SIZE_MAX / 8), VOW_E2BIG);
    close_buffer(&x);
}

/* The block may have more room than the maximum allows. */
TEST(buf, the_maximum_holds_in_a_larger_block)
{
    struct fixture x;
    open_buffer(&x, 10);
    vow__buf_text(&x.buf, "0123456789");
    CHECK(x.buf.size > 11);
    vow__buf_take(&x.buf, 1);
    vow__buf_text(&x.buf, "a");
    CHECK_INT_EQ(x.buf.code, 0);
    vow__buf_text(&x.buf, "b");
    CHECK_INT_EQ(x.buf.code, VOW_E2BIG);
    check_buffer(&x.buf, "123456789a");
    close_buffer(&x);
}

TEST(buf, a_writer_that_failed_adds_nothing_until_it_is_cleared)
{
    struct fixture x;
    open_buffer(&x, 10);
    vow__buf_text(&x.buf, "123456");
    vow__buf_text(&x.buf, "12345");
    vow__buf_text(&x.buf, "1");
    vow__buf_print(&x.buf, "%d", 1);
    CHECK_PTR_EQ(vow__buf_extend(&x.buf, 1), NULL);
    CHECK_INT_EQ(x.buf.code, VOW_E2BIG);
    check_buffer(&x.buf, "123456");
    vow__buf_clear(&x.buf);
    vow__buf_text(&x.buf, "1");
    check_buffer(&x.buf, "1");
    CHECK_INT_EQ(x.buf.code, 0);
    close_buffer(&x);
}

TEST(buf, without_memory_nothing_changes)
{
    struct fixture x;
    open_buffer(&x, MAX);
    add_stream(&x.buf, 0, FIRST);
    vow__buf_take(&x.buf, 1);
    x.alloc.fail_at = x.alloc.allocs + 1;
    CHECK_INT_EQ(vow__buf_reserve(&x.buf, 2), VOW_ENOMEM);
    check_stream(&x.buf, 1, FIRST - 1);
    vow__buf_text(&x.buf, "ab"); /* there is memory again */
    CHECK_INT_EQ(x.buf.code, 0);
    CHECK_UINT_EQ(x.buf.n, FIRST + 1);
    close_buffer(&x);
}

FAULT_SWEEP(buf, a_writer_survives_every_fault, FAULT_ALLOC)
{
    struct vow__buf b;
    size_t n = 0;
    vow__buf_init(&b, vow_loop_alloc(w->loop), (size_t)1 << 20);
    for (size_t i = 0; i < 300; i++) {
        int before = b.code;
        vow__buf_print(&b, "%020zu", i);
        vow__buf_text(&b, "-");
        CHECK(before == 0 || (b.code == before && b.n == n));
        n = b.n;
    }
    CHECK_INT_EQ(b.code, fault_fired(w) ? VOW_ENOMEM : 0);
    CHECK(b.code != 0 || b.n == (size_t)300 * 21);
    for (size_t i = 0; i < b.n / 21; i++)
        CHECK_UINT_EQ(strtoul(b.bytes + i * 21, NULL, 10), i);
    vow__buf_fini(&b);
}

/* ---- passwords ---------------------------------------------------------- */

/* Looks into what is given back. */
static void *looking_alloc(void *ctx, void *ptr, size_t old_size,
                           size_t new_size)
{
    size_t *found = ctx;
    if (new_size > 0)
        return calloc(1, new_size);
    for (size_t i = 0; i + 6 <= old_size; i++)
        *found += memcmp((char *)ptr + i, "secret", 6) == 0;
    free(ptr);
    return NULL;
}

static size_t secrets_found(bool secret)
{
    size_t found = 0;
    struct vow_alloc hook = {.fn = looking_alloc, .ctx = &found};
    struct vow__buf b;
    vow__buf_init(&b, &hook, MAX);
    b.secret = secret;
    for (int i = 0; i < 300; i++)
        vow__buf_print(&b, "%s", "secret");
    vow__buf_take(&b, 12);
    vow__buf_text(&b, "secret");
    vow__buf_clear(&b);
    vow__buf_fini(&b);
    return found;
}

TEST(buf, no_password_stays_in_memory)
{
    CHECK_UINT_EQ(secrets_found(true), 0);
    CHECK(secrets_found(false) > 0); /* the look finds passwords */
}

/* ---- handing over ------------------------------------------------------- */

TEST(buf, handed_over_the_first_is_empty_and_works)
{
    struct fixture x;
    struct vow__buf to;
    open_buffer(&x, 10);
    x.buf.secret = true;
    vow__buf_text(&x.buf, "0123456");
    vow__buf_take(&x.buf, 2);
    vow__buf_text(&x.buf, "too long a text");
    vow__buf_move(&x.buf, &to);
    check_buffer(&to, "23456");
    CHECK_INT_EQ(to.code, VOW_E2BIG);
    CHECK(to.secret && x.buf.secret);
    CHECK_UINT_EQ(x.buf.n, 0);
    CHECK_INT_EQ(x.buf.code, 0);
    CHECK_UINT_EQ(x.alloc.live_blocks, 1);
    vow__buf_text(&x.buf, "0123456789");
    check_buffer(&x.buf, "0123456789");
    CHECK_INT_EQ(x.buf.code, 0);
    vow__buf_fini(&to);
    close_buffer(&x);
}
