/* SPDX-License-Identifier: MIT */
/* stack_inner_test.c - core/stack.c: classes, reuse, giving back, and guards
 * that rotate, which the kernel that runs the tests may not need otherwise. */
#include "core/stack_internal.h"
#include "trap.h"
#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { KIB = 1024, GUARD = 64 * KIB, FEW = 4, MANY = 1000 };

struct fixture {
    struct test_alloc alloc;
    struct vow__core_stacks stacks;
};

static void open_stacks(struct fixture *x, uint32_t guards_max, bool rotate)
{
    test_alloc_init(&x->alloc);
    struct vow_alloc hook = test_alloc_hook(&x->alloc);
    vow__core_stacks_init(&x->stacks, &hook, guards_max, rotate);
}

static void close_stacks(struct fixture *x)
{
    vow__core_stacks_fini(&x->stacks);
    CHECK_UINT_EQ(x->stacks.mapped, 0);
    CHECK_UINT_EQ(x->stacks.guards, 0);
    CHECK_PTR_EQ(x->stacks.armed, NULL);
    test_alloc_fini(TEST_HERE, &x->alloc);
}

/* As a fiber does: its control block is written before it first runs. */
static struct vow__core_stack *take(struct fixture *x, int class_index)
{
    struct vow__core_stack *stack =
        vow__core_stack_take(&x->stacks, class_index);
    CHECK(stack != NULL);
    stack->low[vow__core_stack_size(stack) - 1] = 1;
    return stack;
}

static void arm(struct fixture *x, struct vow__core_stack *stack)
{
    vow__core_stack_guard(&x->stacks, stack);
}

/* Asks the kernel, which does not die of it. */
static bool is_readable(const char *at)
{
    int ends[2];
    CHECK_INT_EQ(pipe(ends), 0);
    ssize_t n = write(ends[1], at, 1);
    int error = n < 0 ? errno : 0;
    close(ends[0]);
    close(ends[1]);
    CHECK(n == 1 || error == EFAULT);
    return n == 1;
}

/* The guard is there, all of it and nothing else. */
static void check_guard(const struct vow__core_stack *stack, bool there)
{
    CHECK_INT_EQ(stack->guarded, there);
    CHECK_INT_EQ(is_readable(stack->low - 1), !there);
    CHECK_INT_EQ(is_readable(stack->low - GUARD), !there);
    CHECK(is_readable(stack->low));
    CHECK(is_readable(stack->low + vow__core_stack_size(stack) - 1));
}

/* 0 under sanitizers, whose shadows of our mappings are mappings too. */
static size_t mappings(void)
{
    size_t n = 0;
    int c;
    if (TEST_ASAN || TEST_TSAN)
        return 0;
    FILE *f = fopen("/proc/self/maps", "r");
    CHECK(f != NULL);
    while ((c = getc(f)) != EOF)
        n += c == '\n';
    fclose(f);
    return n;
}

static size_t address_space(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f != NULL);
    CHECK_INT_EQ(fscanf(f, "%lu", &pages), 1);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- classes ------------------------------------------------------------ */

TEST(stack, classes_are_powers_of_two_from_16_kib_to_1_gib)
{
    CHECK_INT_EQ(vow__core_stack_class(0), 0);
    CHECK_INT_EQ(vow__core_stack_class(1), 0);
    for (int i = 0; i < VOW__STACK_CLASSES; i++) {
        size_t size = (size_t)16 * KIB << i;
        CHECK_INT_EQ(vow__core_stack_class(size), i);
        CHECK_INT_EQ(vow__core_stack_class(size - 1), i);
        CHECK_INT_EQ(vow__core_stack_class(size + 1),
                     i + 1 < VOW__STACK_CLASSES ? i + 1 : -1);
    }
    CHECK_INT_EQ(vow__core_stack_class(SIZE_MAX), -1);
}

TEST(stack, of_each_class_can_be_written_from_end_to_end)
{
    struct fixture x;
    open_stacks(&x, 8, false);
    for (int i = 0; i < VOW__STACK_CLASSES; i++) {
        struct vow__core_stack *stack = take(&x, i);
        size_t size = vow__core_stack_size(stack);
        CHECK_UINT_EQ(size, (size_t)16 * KIB << i);
        CHECK_UINT_EQ((uintptr_t)stack->low % 4096, 0);
        stack->low[0] = 1;
        stack->low[size - 1] = 1;
        arm(&x, stack);
        check_guard(stack, true);
    }
    CHECK_UINT_EQ(x.stacks.missing, 0);
    close_stacks(&x);
}

TEST(stack, many_share_a_mapping_each_with_room_for_its_guard)
{
    struct fixture x;
    struct vow__core_stack *stacks[64];
    open_stacks(&x, 8, false);
    for (int i = 0; i < 64; i++) {
        stacks[i] = take(&x, 0);
        if (i > 0)
            CHECK_UINT_EQ((size_t)(stacks[i]->low - stacks[i - 1]->low),
                          16 * KIB + GUARD);
    }
    CHECK_UINT_EQ(x.stacks.mapped, 64);
    CHECK_UINT_EQ(x.alloc.live_blocks, 1);
    (void)take(&x, 0);
    CHECK_UINT_EQ(x.stacks.mapped, 128);
    close_stacks(&x);
}

TEST(stack, of_a_gibibyte_has_a_mapping_of_its_own)
{
    struct fixture x;
    open_stacks(&x, 8, false);
    (void)take(&x, VOW__STACK_CLASSES - 1);
    CHECK_UINT_EQ(x.stacks.mapped, 1);
    close_stacks(&x);
}

TEST_TRAPS(stack, room_for_no_guard_at_all_is_refused)
{
    struct fixture x;
    open_stacks(&x, 0, true);
}

/* ---- reuse -------------------------------------------------------------- */

TEST(stack, given_back_last_is_taken_first)
{
    struct fixture x;
    struct vow__core_stack *stacks[FEW];
    open_stacks(&x, 8, false);
    for (int i = 0; i < FEW; i++)
        stacks[i] = take(&x, 3);
    for (int i = 0; i < FEW; i++)
        vow__core_stack_give(&x.stacks, stacks[i]);
    for (int i = FEW; i-- > 0;)
        CHECK_PTR_EQ(take(&x, 3), stacks[i]);
    close_stacks(&x);
}

TEST(stack, is_taken_again_by_its_own_class_only)
{
    struct fixture x;
    open_stacks(&x, 8, false);
    struct vow__core_stack *small = take(&x, 0);
    struct vow__core_stack *large = take(&x, 3);
    vow__core_stack_give(&x.stacks, small);
    vow__core_stack_give(&x.stacks, large);
    CHECK_PTR_EQ(take(&x, 3), large);
    CHECK_PTR_EQ(take(&x, 0), small);
    close_stacks(&x);
}

TEST(stack, without_memory_for_its_books_is_null)
{
    struct fixture x;
    open_stacks(&x, 8, false);
    x.alloc.fail_at = 1;
    CHECK_PTR_EQ(vow__core_stack_take(&x.stacks, 0), NULL);
    CHECK_UINT_EQ(x.stacks.mapped, 0);
    (void)take(&x, 0);
    close_stacks(&x);
}

TEST(stack, without_address_space_is_null_and_loses_nothing)
{
    struct fixture x;
    struct rlimit limit;
    open_stacks(&x, 8, false);
    CHECK_INT_EQ(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = address_space() + (size_t)512 * KIB * KIB;
    CHECK_INT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    CHECK_PTR_EQ(vow__core_stack_take(&x.stacks, VOW__STACK_CLASSES - 1), NULL);
    CHECK_UINT_EQ(x.alloc.live_blocks, 0);
    CHECK_PTR_EQ(x.stacks.slabs, NULL);
    (void)take(&x, 0);
    close_stacks(&x);
}

/* ---- giving back -------------------------------------------------------- */

TEST(stack, trim_unmaps_what_is_not_in_use)
{
    struct fixture x;
    open_stacks(&x, 8, false);
    struct vow__core_stack *stack = take(&x, 2);
    char *low = stack->low;
    vow__core_stack_give(&x.stacks, stack);
    CHECK(is_readable(low));
    CHECK(!vow__core_stacks_trim(&x.stacks, true));
    CHECK(!is_readable(low));
    CHECK_UINT_EQ(x.stacks.mapped, 0);
    CHECK_UINT_EQ(x.alloc.live_blocks, 0);
    (void)take(&x, 2); /* the list of free ones does not point there */
    close_stacks(&x);
}

TEST(stack, trim_of_none_does_nothing)
{
    struct fixture x;
    open_stacks(&x, 8, false);
    CHECK(!vow__core_stacks_trim(&x.stacks, true));
    CHECK(!vow__core_stacks_trim(&x.stacks, false));
    close_stacks(&x);
}

TEST(stack, trim_gives_the_pages_of_free_neighbours_back_and_keeps_the_used)
{
    struct fixture x;
    open_stacks(&x, 8, false);
    struct vow__core_stack *used = take(&x, 2);
    struct vow__core_stack *freed = take(&x, 2);
    used->low[0] = 7;
    freed->low[0] = 8;
    vow__core_stack_give(&x.stacks, freed);
    CHECK(!vow__core_stacks_trim(&x.stacks, true));
    CHECK_INT_EQ(used->low[0], 7);
    CHECK_INT_EQ(freed->low[0], 0); /* a fresh page */
    CHECK_INT_EQ(used->low[vow__core_stack_size(used) - 1], 1);
    check_guard(freed, freed->guarded);
    CHECK_PTR_EQ(take(&x, 2), freed);
    close_stacks(&x);
}

TEST(stack, idle_one_goes_back_with_the_second_trim)
{
    struct fixture x;
    open_stacks(&x, 8, false);
    struct vow__core_stack *stack = take(&x, 2);
    vow__core_stack_give(&x.stacks, stack);
    CHECK(vow__core_stacks_trim(&x.stacks, false));
    CHECK(x.stacks.mapped > 0);
    CHECK(!vow__core_stacks_trim(&x.stacks, false));
    CHECK_UINT_EQ(x.stacks.mapped, 0);
    close_stacks(&x);
}

TEST(stack, used_between_two_trims_stays)
{
    struct fixture x;
    open_stacks(&x, 8, false);
    for (int i = 0; i < 5; i++) {
        struct vow__core_stack *stack = take(&x, 2);
        stack->low[0] = 9;
        vow__core_stack_give(&x.stacks, stack);
        CHECK(vow__core_stacks_trim(&x.stacks, false));
        CHECK_INT_EQ(stack->low[0], 9);
    }
    CHECK_UINT_EQ(x.alloc.allocs, 1);
    close_stacks(&x);
}

TEST(stack, trim_of_one_mapping_keeps_the_free_ones_of_others)
{
    struct fixture x;
    static struct vow__core_stack *stacks[64 + 3];
    open_stacks(&x, 8, false);
    for (int i = 0; i < 64 + 3; i++) /* a full mapping, and some of another */
        stacks[i] = take(&x, 0);
    struct vow__core_stack *large = take(&x, 3);
    for (int i = 0; i < 64; i++)
        vow__core_stack_give(&x.stacks, stacks[i]);
    vow__core_stack_give(&x.stacks, stacks[65]);
    CHECK(!vow__core_stacks_trim(&x.stacks, true));
    CHECK_UINT_EQ(x.alloc.live_blocks, 2);
    size_t mapped = x.stacks.mapped;
    for (int i = 0; i < 64 - 2; i++) {
        struct vow__core_stack *again = take(&x, 0);
        CHECK(again != stacks[64]);
        CHECK(again != stacks[66]);
        CHECK_PTR_EQ(again->slab, stacks[64]->slab);
    }
    CHECK(take(&x, 3) != large);
    CHECK_UINT_EQ(x.stacks.mapped, mapped);
    close_stacks(&x);
}

TEST(stack, all_go_back_at_the_end_also_those_in_use)
{
    struct fixture x;
    size_t before = mappings();
    open_stacks(&x, 4, true);
    for (int i = 0; i < 200; i++)
        arm(&x, take(&x, i % 3));
    close_stacks(&x);
    CHECK(mappings() <= before + 2); /* libc may have taken some */
}

/* ---- guards that rotate ------------------------------------------------- */

static size_t armed_length(const struct fixture *x)
{
    size_t n = 0;
    for (const vow_link *l = x->stacks.armed; l != NULL; l = l->next)
        n++;
    return n;
}

TEST(stack, rotating_guard_is_there_once_it_is_armed)
{
    struct fixture x;
    open_stacks(&x, FEW, true);
    struct vow__core_stack *stack = take(&x, 0);
    check_guard(stack, false);
    arm(&x, stack);
    check_guard(stack, true);
    arm(&x, stack); /* again: nothing to do */
    CHECK_UINT_EQ(x.stacks.guards, 1);
    CHECK_UINT_EQ(armed_length(&x), 1);
    close_stacks(&x);
}

TEST(stack, oldest_rotating_guard_makes_room_for_the_newest)
{
    struct fixture x;
    struct vow__core_stack *stacks[3 * FEW];
    open_stacks(&x, FEW, true);
    for (int i = 0; i < 3 * FEW; i++) {
        stacks[i] = take(&x, 0);
        arm(&x, stacks[i]);
        for (int k = 0; k <= i; k++)
            check_guard(stacks[k], k > i - FEW);
        CHECK(x.stacks.guards <= FEW);
        CHECK_UINT_EQ(x.stacks.guards, armed_length(&x));
    }
    CHECK_UINT_EQ(x.stacks.missing, 0);
    close_stacks(&x);
}

TEST(stack, rotating_guard_comes_back_when_its_stack_runs_again)
{
    struct fixture x;
    struct vow__core_stack *stacks[FEW + 1];
    open_stacks(&x, FEW, true);
    for (int i = 0; i <= FEW; i++) {
        stacks[i] = take(&x, 0);
        arm(&x, stacks[i]);
    }
    check_guard(stacks[0], false);
    arm(&x, stacks[0]);
    check_guard(stacks[0], true);
    check_guard(stacks[1], false);
    close_stacks(&x);
}

TEST(stack, single_rotating_guard_follows_whoever_runs)
{
    struct fixture x;
    open_stacks(&x, 1, true);
    struct vow__core_stack *a = take(&x, 0);
    struct vow__core_stack *b = take(&x, 0);
    for (int i = 0; i < 10; i++) {
        arm(&x, a);
        check_guard(a, true);
        check_guard(b, false);
        arm(&x, b);
        check_guard(a, false);
        check_guard(b, true);
    }
    close_stacks(&x);
}

TEST_OPTS(stack, write_into_a_rotating_guard_dies, .expect_signal = SIGSEGV)
{
    struct fixture x;
    open_stacks(&x, FEW, true);
    struct vow__core_stack *stack = take(&x, 0);
    arm(&x, stack);
    ((volatile char *)stack->low)[-1] = 1;
}

TEST_OPTS(stack, write_into_a_guard_that_came_back_dies,
          .expect_signal = SIGSEGV)
{
    struct fixture x;
    open_stacks(&x, 1, true);
    struct vow__core_stack *a = take(&x, 0);
    arm(&x, a);
    arm(&x, take(&x, 0));
    ((volatile char *)a->low)[-1] = 1; /* not there now */
    arm(&x, a);
    ((volatile char *)a->low)[-1] = 1;
}

TEST_OPTS(stack, write_into_the_far_end_of_a_guard_dies,
          .expect_signal = SIGSEGV)
{
    struct fixture x;
    open_stacks(&x, FEW, true);
    struct vow__core_stack *stack = take(&x, 0);
    arm(&x, stack);
    ((volatile char *)stack->low)[-GUARD] = 1;
}

TEST_OPTS(stack, write_below_dies_with_whatever_guard_the_kernel_has,
          .expect_signal = SIGSEGV)
{
    struct fixture x;
    open_stacks(&x, FEW, false);
    struct vow__core_stack *stack = take(&x, 0);
    arm(&x, stack);
    ((volatile char *)stack->low)[-1] = 1;
}

TEST(stack, contents_survive_the_rotation_of_guards)
{
    struct fixture x;
    struct vow__core_stack *stacks[3 * FEW];
    open_stacks(&x, FEW, true);
    for (int i = 0; i < 3 * FEW; i++) {
        stacks[i] = take(&x, 0);
        arm(&x, stacks[i]);
        memset(stacks[i]->low, i + 1, 16 * KIB);
    }
    for (int i = 0; i < 3 * FEW; i++) {
        arm(&x, stacks[i]);
        for (int k = 0; k < 16 * KIB; k++)
            CHECK_INT_EQ(stacks[i]->low[k], i + 1);
    }
    close_stacks(&x);
}

TEST(stack, thousand_stacks_with_8_rotating_guards_need_few_mappings)
{
    struct fixture x;
    static struct vow__core_stack *stacks[MANY];
    size_t before = mappings();
    open_stacks(&x, 8, true);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++) {
            if (round == 0)
                stacks[i] = take(&x, 0);
            arm(&x, stacks[i]);
            stacks[i]->low[0] = 1; /* it runs */
        }
        /* a guard splits one mapping into three; 16 mappings of stacks */
        CHECK(mappings() - before <= 2 * 8 + 16 + 8);
        CHECK_UINT_EQ(x.stacks.guards, 8);
    }
    CHECK_UINT_EQ(x.stacks.missing, 0);
    close_stacks(&x);
}

TEST(stack, trim_takes_armed_guards_along)
{
    struct fixture x;
    open_stacks(&x, FEW, true);
    struct vow__core_stack *kept = take(&x, 0);
    arm(&x, kept);
    struct vow__core_stack *gone[2] = {take(&x, 3), take(&x, 3)};
    arm(&x, gone[0]);
    arm(&x, gone[1]);
    vow__core_stack_give(&x.stacks, gone[0]);
    vow__core_stack_give(&x.stacks, gone[1]);
    CHECK_UINT_EQ(x.stacks.guards, 3);
    CHECK(!vow__core_stacks_trim(&x.stacks, true));
    CHECK_UINT_EQ(x.stacks.guards, 1);
    CHECK_UINT_EQ(armed_length(&x), 1);
    check_guard(kept, true);
    close_stacks(&x);
}

/* The kernel refuses to protect what is not mapped: so we unmap it. */
TEST(stack, guard_that_cannot_be_armed_is_counted_and_gives_all_others_up)
{
    struct fixture x;
    struct vow__core_stack *stacks[3];
    open_stacks(&x, FEW, true);
    for (int i = 0; i < 3; i++)
        stacks[i] = take(&x, 0);
    arm(&x, stacks[1]);
    arm(&x, stacks[2]);
    char *guard = stacks[0]->low - GUARD;
    CHECK_INT_EQ(munmap(guard, GUARD), 0);
    arm(&x, stacks[0]);
    CHECK_UINT_EQ(x.stacks.missing, 1);
    CHECK_UINT_EQ(x.stacks.guards, 0);
    CHECK(!stacks[0]->guarded);
    check_guard(stacks[1], false);
    check_guard(stacks[2], false);
    CHECK_PTR_EQ(mmap(guard, GUARD, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                 guard);
    arm(&x, stacks[0]); /* the next run tries again */
    check_guard(stacks[0], true);
    CHECK_UINT_EQ(x.stacks.missing, 1);
    close_stacks(&x);
}

/* ---- against a model ---------------------------------------------------- */

/* Stacks in use carry their number at both ends; the model knows the order in
 * which guards were armed. */
struct model {
    struct vow__core_stack *stacks[100];
    size_t n;
};

static void check_model(const struct fixture *x, const struct model *m)
{
    CHECK_UINT_EQ(x->stacks.guards, armed_length(x));
    CHECK(x->stacks.guards <= x->stacks.guards_max);
    for (const vow_link *l = x->stacks.armed; l != NULL; l = l->next)
        CHECK(VOW__OUTER(l, struct vow__core_stack, in_armed)->guarded);
    for (size_t i = 0; i < m->n; i++) {
        CHECK(m->stacks[i]->in_use);
        CHECK_INT_EQ(m->stacks[i]->low[0], m->stacks[i]->low[100]);
    }
}

TEST(stack, rotating_guards_keep_their_invariants_in_random_operations)
{
    struct fixture x;
    static struct model m;
    uint64_t random = test_seed();
    open_stacks(&x, 7, true);
    for (int round = 0; round < 5000; round++) {
        uint64_t r = test_random(&random);
        size_t any = m.n == 0 ? 0 : (r >> 8) % m.n;
        if (r % 32 == 0) {
            (void)vow__core_stacks_trim(&x.stacks, r % 64 == 0);
        } else if (r % 4 == 1 && m.n > 0) {
            vow__core_stack_give(&x.stacks, m.stacks[any]);
            m.stacks[any] = m.stacks[--m.n];
        } else if (r % 4 == 2 && m.n > 0) {
            arm(&x, m.stacks[any]);
            CHECK(!is_readable(m.stacks[any]->low - 1));
        } else if (m.n < 100) {
            struct vow__core_stack *stack = take(&x, (int)((r >> 16) % 6));
            stack->low[0] = stack->low[100] = (char)(r >> 24);
            m.stacks[m.n++] = stack;
        }
        check_model(&x, &m);
    }
    CHECK_UINT_EQ(x.stacks.missing, 0);
    close_stacks(&x);
}
