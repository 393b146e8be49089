/* SPDX-License-Identifier: MIT */
/* stack_test.c - what is promised about the stacks of fibers: 100,000 at
 * once in little memory, pooled and given back, sizes, and that an overflow
 * dies at a guard page before it touches a neighbour. At the end: fibers that
 * still have a stack when their loop is closed.
 *
 * An overflow test passes when it dies by SIGSEGV. A handler of ours looks at
 * the scene first: the fault must lie where the guard page of the victim is,
 * and the locals of its neighbours must be whole. It then returns, the fault
 * repeats, and the process dies by it; what is not as promised ends the process
 * by _exit() instead, which the harness counts as a failure.
 */
#include "harness.h"
#include "world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KIB = 1024 };

/* Under tools that make each fiber cost more, there are fewer, unmeasured. */
static bool is_slow(void)
{
    return TEST_ASAN || TEST_TSAN || getenv("VOW_TEST_SLOW") != NULL;
}

static size_t many(size_t n)
{
    return is_slow() ? n / 20 : n;
}

static size_t resident_bytes(void)
{
    unsigned long all = 0;
    unsigned long resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f != NULL);
    CHECK_INT_EQ(fscanf(f, "%lu %lu", &all, &resident), 2);
    fclose(f);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static vow_loop_stats stats_of(vow_loop *loop)
{
    vow_loop_stats s;
    vow_loop_stats_get(loop, &s);
    return s;
}

/* ---- many, pooled, given back ------------------------------------------- */

struct crowd {
    vow_loop *loop;
    vow_future *gate;
    vow_deferred *opener;
    size_t waiting;
    size_t resumed;
    size_t touch; /* bytes of stack each one writes to */
};

/* Writes to the stack below `top` downwards, so that no page is skipped. */
__attribute__((noinline)) static void touch_stack(uintptr_t top, size_t bytes)
{
    volatile unsigned char block[KIB];
    for (size_t i = 0; i < sizeof(block); i += 256)
        block[i] = (unsigned char)bytes;
    if (top - (uintptr_t)__builtin_frame_address(0) < bytes - KIB)
        touch_stack(top, bytes);
    CHECK(block[0] == (unsigned char)bytes);
}

static vow_next wait_in_crowd(void *arg)
{
    struct crowd *c = arg;
    int on_stack = (int)c->waiting;
    c->waiting++;
    if (c->touch > 0)
        touch_stack((uintptr_t)__builtin_frame_address(0), c->touch);
    CHECK_INT_EQ(vow_await(c->gate), 0);
    CHECK_INT_EQ(on_stack, (int)c->resumed); /* in order, locals kept */
    c->resumed++;
    return vow_ok(vow_nothing());
}

static void crowd_gather(struct crowd *c, vow_loop *loop, size_t n)
{
    c->loop = loop;
    c->waiting = 0;
    c->resumed = 0;
    c->gate = vow_promise(loop, &c->opener);
    for (size_t i = 0; i < n; i++)
        vow_future_unref(vow_async(loop, wait_in_crowd, c));
    CHECK_INT_EQ(vow_loop_run(loop), 0);
    CHECK_UINT_EQ(c->waiting, n);
    CHECK_UINT_EQ(stats_of(loop).fibers, n);
}

static void crowd_release(struct crowd *c)
{
    CHECK(vow_resolve(c->opener, vow_nothing()));
    CHECK_INT_EQ(vow_loop_run(c->loop), 0);
    vow_deferred_unref(c->opener);
    vow_future_unref(c->gate);
    CHECK_UINT_EQ(c->resumed, c->waiting);
    CHECK_UINT_EQ(stats_of(c->loop).fibers, 0);
}

/* A loop without the test allocator, to measure what a user would get. */
static vow_loop *plain_loop(const vow_loop_opts *opts)
{
    vow_loop *loop = NULL;
    CHECK_INT_EQ(vow_loop_new(opts, &loop), 0);
    return loop;
}

TEST(stack, a_hundred_thousand_fibers_wait_at_once_in_little_memory)
{
    vow_loop *loop = plain_loop(NULL);
    size_t n = many(100000);
    struct crowd c = {0};
    size_t before = resident_bytes();
    crowd_gather(&c, loop, n);
    size_t each = (resident_bytes() - before) / n;
    CHECK(is_slow() || each <= 10 * KIB); /* two touched pages and objects */
    CHECK_UINT_EQ(stats_of(loop).guards_missing, 0);
    crowd_release(&c);
    CHECK_UINT_EQ(stats_of(loop).futures, 0);
    CHECK_INT_EQ(vow_loop_close(loop), 0);
}

TEST(stack, second_crowd_uses_the_stacks_of_the_first)
{
    vow_loop *loop = plain_loop(VOW_LOOP_OPTS(.flags = VOW_LOOP_VIRTUAL_TIME));
    struct crowd c = {0};
    crowd_gather(&c, loop, 1000);
    size_t mapped = stats_of(loop).stacks;
    CHECK(mapped >= 1000);
    crowd_release(&c);
    crowd_gather(&c, loop, 1000);
    CHECK(stats_of(loop).stacks <= mapped);
    crowd_release(&c);
    CHECK_INT_EQ(vow_loop_close(loop), 0);
}

static vow_next count_run(void *arg)
{
    int *runs = arg;
    ++*runs;
    return vow_ok(vow_nothing());
}

TEST(stack, ten_thousand_fibers_after_one_another_share_few_stacks)
{
    struct world w;
    int runs = 0;
    world_open(&w);
    for (int i = 0; i < 10000; i++) {
        vow_future_unref(vow_async(w.loop, count_run, &runs));
        world_turn(&w);
    }
    world_run(&w);
    CHECK_INT_EQ(runs, 10000);
    CHECK(stats_of(w.loop).stacks >= 1);
    CHECK(stats_of(w.loop).stacks <= 64);
    world_close(&w);
}

TEST(stack, trim_gives_all_unused_stacks_back)
{
    struct world w;
    struct crowd c = {0};
    world_open(&w);
    crowd_gather(&c, w.loop, 500);
    vow_loop_trim(w.loop); /* all are in use */
    CHECK(stats_of(w.loop).stacks >= 500);
    crowd_release(&c);
    vow_loop_trim(w.loop);
    CHECK_UINT_EQ(stats_of(w.loop).stacks, 0);
    crowd_gather(&c, w.loop, 10); /* and there are more where they came from */
    crowd_release(&c);
    world_close(&w);
}

TEST(stack, trim_gives_their_memory_back_to_the_system)
{
    vow_loop *loop = plain_loop(NULL);
    struct crowd c = {.touch = 64 * KIB};
    size_t n = many(2000);
    size_t before = resident_bytes();
    crowd_gather(&c, loop, n);
    size_t used = resident_bytes() - before;
    CHECK(is_slow() || used > n * 48 * KIB); /* else it measures nothing */
    crowd_release(&c);
    vow_loop_trim(loop);
    CHECK(is_slow() || resident_bytes() < before + used / 4);
    CHECK_INT_EQ(vow_loop_close(loop), 0);
}

TEST(stack, unused_stacks_go_back_as_seconds_pass)
{
    struct world w;
    struct crowd c = {0};
    world_open(&w);
    crowd_gather(&c, w.loop, 1000);
    crowd_release(&c);
    for (int second = 0; second < 20; second++)
        world_advance_ms(&w, 1000);
    CHECK(stats_of(w.loop).stacks < 500);
    world_close(&w);
}

/* ---- sizes -------------------------------------------------------------- */

struct sized {
    size_t bytes; /* that the body writes to */
    int ended;
};

static vow_next use_stack(void *arg)
{
    struct sized *s = arg;
    char text[64];
    touch_stack((uintptr_t)__builtin_frame_address(0), s->bytes);
    /* The printing of a double saves vector registers: it dies at once on a
     * stack that is not aligned. */
    snprintf(text, sizeof(text), "%.3f", 1.5 + s->ended);
    CHECK_STR_EQ(text, "1.500");
    s->ended++;
    return vow_ok(vow_int(1));
}

static int run_sized(struct world *w, size_t stack_size, struct sized *s)
{
    vow_future *f = vow_async_with(w->loop, use_stack, s,
                                   VOW_ASYNC_OPTS(.stack_size = stack_size));
    world_run(w);
    int rc = vow_error_code(vow_error_of(f));
    CHECK_INT_EQ(s->ended, rc == 0);
    vow_future_unref(f);
    return rc;
}

TEST(stack, of_each_size_can_be_used_for_the_most_part)
{
    static const struct {
        size_t asked;
        size_t used;
    } sizes[] = {
        {0, 96 * KIB},                 /* the default: 128 KiB */
        {1, 4 * KIB},                  /* rounded up to the smallest */
        {16 * KIB, 4 * KIB},           /* the smallest */
        {17 * KIB, 22 * KIB},          /* rounded up to 32 KiB */
        {1024 * KIB, 900 * KIB},       /* 1 MiB */
        {8 * 1024 * KIB, 7000 * KIB},  /* 8 MiB */
        {1024 * 1024 * KIB, 64 * KIB}, /* the largest: untouched, it is free */
    };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct world w;
        struct sized s = {.bytes = sizes[i].used};
        world_open(&w);
        CHECK_INT_EQ(run_sized(&w, sizes[i].asked, &s), 0);
        world_close(&w);
    }
}

TEST(stack, larger_than_a_gibibyte_is_refused_as_invalid)
{
    static const size_t sizes[] = {(size_t)1024 * 1024 * KIB + 1, SIZE_MAX / 2,
                                   SIZE_MAX - 4095, SIZE_MAX};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct world w;
        struct sized s = {.bytes = KIB};
        world_open(&w);
        CHECK_INT_EQ(run_sized(&w, sizes[i], &s), VOW_EINVAL);
        world_close(&w);
    }
}

TEST(stack, sizes_can_be_mixed_and_come_back_to_the_right_pool)
{
    static const size_t sizes[] = {1024 * KIB, 16 * KIB, 0, 256 * KIB};
    static const size_t used[] = {900 * KIB, 4 * KIB, 96 * KIB, 200 * KIB};
    struct world w;
    world_open(&w);
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 4; i++) {
            struct sized s = {.bytes = used[i]};
            CHECK_INT_EQ(run_sized(&w, sizes[i], &s), 0);
        }
    }
    world_close(&w);
}

/* ---- overflow ----------------------------------------------------------- */

enum { CANARY = 256, NEIGHBOURS_MAX = 20000 };

static struct {
    volatile sig_atomic_t digging; /* the victim is about to overflow */
    uintptr_t top;                 /* a frame near the victim's first */
    size_t stack_size;
    const volatile unsigned char *canary[NEIGHBOURS_MAX];
    size_t canaries;
} crime;

static unsigned char canary_byte(size_t i)
{
    return (unsigned char)(i % 251 + 1);
}

static void refuse(const char *why)
{
    ssize_t ignored = write(STDERR_FILENO, why, strlen(why));
    (void)ignored;
    _exit(1);
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)context;
    uintptr_t at = (uintptr_t)info->si_addr;
    if (!crime.digging)
        refuse("a fault before the overflow\n");
    if (at >= crime.top || crime.top - at > crime.stack_size + 64 * KIB)
        refuse("a fault away from the guard page\n");
    for (size_t i = 0; i < crime.canaries; i++)
        for (size_t k = 0; k < CANARY; k++)
            if (crime.canary[i][k] != canary_byte(i))
                refuse("a neighbour was damaged\n");
}

static void watch_for_fault(void)
{
    static unsigned char alternate[64 * KIB];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof(alternate)};
    struct sigaction action = {.sa_sigaction = on_fault};
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | (int)SA_RESETHAND;
    CHECK_INT_EQ(sigaltstack(&stack, NULL), 0);
    CHECK_INT_EQ(sigaction(SIGSEGV, &action, NULL), 0);
}

/* Ends in the end, so that a missing guard page is a failure, not a hang. */
__attribute__((noinline)) static unsigned dig(size_t levels)
{
    volatile unsigned char hole[256];
    for (size_t i = 0; i < sizeof(hole); i += 32)
        hole[i] = 0xDD;
    if (levels == 0)
        return hole[0];
    return dig(levels - 1) + hole[32];
}

static vow_next overflow(void *arg)
{
    vow_future *on = arg;
    if (on != NULL)
        CHECK_INT_EQ(vow_await(on), 0);
    crime.top = (uintptr_t)__builtin_frame_address(0);
    crime.digging = 1;
    dig(crime.stack_size / 256 * 4);
    FAIL("the stack had no end");
}

static void overflow_alone(size_t stack_size)
{
    struct world w;
    world_open(&w);
    watch_for_fault();
    crime.stack_size = stack_size;
    vow_future_unref(vow_async_with(w.loop, overflow, NULL,
                                    VOW_ASYNC_OPTS(.stack_size = stack_size)));
    world_run(&w);
}

TEST_OPTS(stack, overflow_of_the_default_size_dies, .expect_signal = SIGSEGV)
{
    overflow_alone(128 * KIB);
}

TEST_OPTS(stack, overflow_of_16_kib_dies, .expect_signal = SIGSEGV)
{
    overflow_alone(16 * KIB);
}

TEST_OPTS(stack, overflow_of_1_mib_dies, .expect_signal = SIGSEGV)
{
    overflow_alone(1024 * KIB);
}

/* A neighbour: it paints its first frame and waits for its turn. */
struct neighbour {
    vow_future *first;
    vow_future *second;
};

static vow_next stand_by(void *arg)
{
    struct neighbour *n = arg;
    volatile unsigned char canary[CANARY];
    size_t i = crime.canaries++;
    for (size_t k = 0; k < CANARY; k++)
        canary[k] = canary_byte(i);
    crime.canary[i] = canary;
    CHECK_INT_EQ(vow_await(n->first), 0);
    CHECK_INT_EQ(vow_await(n->second), 0); /* never settled in these tests */
    return vow_ok(vow_nothing());
}

/* `n` neighbours, and a victim in their midst that starts among the first, is
 * resumed after all of them ran again, and then overflows. */
static void overflow_late_among(const vow_loop_opts *opts, size_t n)
{
    vow_loop *loop = plain_loop(opts);
    vow_deferred *go;
    vow_deferred *never;
    vow_deferred *last;
    struct neighbour common;
    common.first = vow_promise(loop, &go);
    common.second = vow_promise(loop, &never);
    vow_future *turn = vow_promise(loop, &last);
    watch_for_fault();
    crime.stack_size = 128 * KIB;
    for (size_t i = 0; i < n; i++) {
        vow_future_unref(vow_async(loop, stand_by, &common));
        if (i == n / 3)
            vow_future_unref(vow_async(loop, overflow, turn));
    }
    CHECK_INT_EQ(vow_loop_run(loop), 0);
    CHECK_UINT_EQ(crime.canaries, n);
    CHECK(vow_resolve(go, vow_nothing()));
    CHECK_INT_EQ(vow_loop_run(loop), 0);
    CHECK_UINT_EQ(stats_of(loop).fibers, n + 1);
    CHECK_UINT_EQ(stats_of(loop).guards_missing, 0);
    CHECK(vow_resolve(last, vow_nothing()));
    vow_loop_run(loop);
}

TEST_OPTS(stack, overflow_among_20000_fibers_dies_and_harms_none,
          .expect_signal = SIGSEGV)
{
    overflow_late_among(NULL, many(NEIGHBOURS_MAX));
}

TEST_OPTS(stack, overflow_dies_where_guard_pages_rotate,
          .expect_signal = SIGSEGV)
{
    overflow_late_among(VOW_LOOP_OPTS(.fiber_guards = 4), 100);
}

TEST_OPTS(stack, overflow_dies_with_a_single_guard_page,
          .expect_signal = SIGSEGV)
{
    overflow_late_among(VOW_LOOP_OPTS(.fiber_guards = 1), 30);
}

TEST(stack, rotating_guard_pages_disturb_nobody)
{
    vow_loop *loop = plain_loop(VOW_LOOP_OPTS(.fiber_guards = 4));
    struct crowd c = {.touch = 100 * KIB};
    for (int round = 0; round < 3; round++) {
        crowd_gather(&c, loop, 100);
        crowd_release(&c);
    }
    CHECK_UINT_EQ(stats_of(loop).guards_missing, 0);
    CHECK_INT_EQ(vow_loop_close(loop), 0);
}

/* ---- closed under them -------------------------------------------------- */

struct leaver {
    vow_loop *loop;
    vow_future *on; /* never settled */
    vow_future *self;
    int rc[2];
    int ended;
    int told;
};

/* Closes the loop of a world; what is held may be dropped afterwards. */
static void close_early(struct world *w)
{
    CHECK_INT_EQ(vow_loop_close(w->loop), 0);
    w->loop = NULL;
}

/* The memory it holds is lost unless the body runs to its end. */
static vow_next leave_await(void *arg)
{
    struct leaver *l = arg;
    void *memory = malloc(100);
    l->rc[0] = vow_await(l->on);
    l->rc[1] = vow_await(l->on);
    free(memory);
    l->ended++;
    return vow_ok(vow_nothing());
}

static vow_next leave_sleep(void *arg)
{
    struct leaver *l = arg;
    l->rc[0] = vow_sleep(l->loop, 1000);
    l->rc[1] = vow_await_drop(vow_delay(l->loop, 1000));
    l->ended++;
    return vow_ok(vow_nothing());
}

static vow_next leave_child(void *arg)
{
    struct leaver *l = arg;
    vow_future *child = vow_async(l->loop, leave_await, l);
    vow_await(child);
    vow_future_unref(child);
    l->ended++;
    return vow_ok(vow_nothing());
}

static void close_under(vow_fiber_fn body, bool run_first, int ends)
{
    struct world w;
    struct leaver l = {0};
    vow_deferred *d;
    world_open(&w);
    l.loop = w.loop;
    l.on = vow_promise(w.loop, &d);
    vow_future_unref(vow_async(w.loop, body, &l));
    if (run_first)
        world_turn(&w);
    CHECK_INT_EQ(l.ended, 0);
    close_early(&w);
    CHECK_INT_EQ(l.ended, ends);
    for (int i = 0; i < 2; i++)
        CHECK(l.rc[i] == VOW_ECLOSED || l.rc[i] == VOW_ECANCELED);
    vow_deferred_unref(d);
    vow_future_unref(l.on);
    world_close_dirty(&w);
}

TEST(fiber, in_await_runs_to_its_end_when_the_loop_is_closed)
{
    close_under(leave_await, true, 1);
}

TEST(fiber, in_sleep_runs_to_its_end_when_the_loop_is_closed)
{
    close_under(leave_sleep, true, 1);
}

TEST(fiber, not_yet_started_runs_to_its_end_when_the_loop_is_closed)
{
    close_under(leave_await, false, 1);
}

TEST(fiber, that_awaits_a_fiber_ends_with_it_when_the_loop_is_closed)
{
    close_under(leave_child, true, 2);
}

static vow_next await_own_future(void *arg)
{
    struct leaver *l = arg;
    l->rc[0] = vow_await(l->self);
    l->ended++;
    return vow_ok(vow_nothing());
}

static vow_next count_told(void *user)
{
    struct leaver *l = user;
    l->told++;
    return vow_ok(vow_nothing());
}

/* Refused at once or never settled, it must not outlive its loop. */
TEST(fiber, that_awaits_itself_ends_when_the_loop_is_closed)
{
    struct world w;
    struct leaver l = {0};
    world_open(&w);
    l.self = vow_async(w.loop, await_own_future, &l);
    vow_future_unref(vow_finally(l.self, count_told, &l));
    world_run(&w);
    close_early(&w);
    CHECK_INT_EQ(l.ended, 1);
    CHECK(l.rc[0] < 0);
    CHECK_INT_EQ(l.told, 1);
    vow_future_unref(l.self);
    world_close_dirty(&w);
}
