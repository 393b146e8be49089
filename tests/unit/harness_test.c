/* SPDX-License-Identifier: MIT */
/* harness_test.c - the harness fails what must fail.
 *
 * The cases of the group `selftest` fail, crash, hang or lose something on
 * purpose; they are hidden. The others run this very program on them and read
 * what it says. */
#include "fault.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SELFTEST(name, ...)                                                    \
    TEST_OPTS(selftest, name, .hidden = true, __VA_ARGS__)

/* ---- cases that go wrong ------------------------------------------------ */

SELFTEST(passes, .timeout_s = 0)
{
    printf("the output of a test that passes is not shown\n");
}

SELFTEST(fails_a_check, .timeout_s = 0)
{
    printf("on stdout\n");
    fprintf(stderr, "on stderr\n");
    CHECK_INT_EQ(1 + 1, 3);
    printf("behind the check\n");
}

SELFTEST(fails_other_checks, .timeout_s = 0)
{
    uint64_t which = test_seed();
    if (which == 1)
        CHECK(which == 2);
    if (which == 2)
        CHECK_UINT_EQ(which, UINT64_MAX);
    if (which == 3)
        CHECK_STR_EQ("is", NULL);
    if (which == 4)
        CHECK_MEM_EQ("abc", "abd", 3);
    if (which == 5)
        CHECK_PTR_EQ(&which, NULL);
    if (which == 6)
        FAIL("the reason is %s", "this");
}

static void *fail_here(void *arg)
{
    (void)arg;
    FAIL("from a thread");
}

SELFTEST(fails_on_a_thread, .timeout_s = 0)
{
    pthread_t thread;
    CHECK_INT_EQ(pthread_create(&thread, NULL, fail_here, NULL), 0);
    pthread_join(thread, NULL);
}

SELFTEST(hangs, .timeout_s = 1)
{
    for (;;)
        pause();
}

SELFTEST(is_killed, .timeout_s = 0)
{
    raise(SIGKILL);
}

SELFTEST(dies_as_expected, .expect_signal = SIGSEGV)
{
    char *page =
        mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    *(volatile char *)page = 1;
}

SELFTEST(does_not_die_as_expected, .expect_signal = SIGSEGV)
{
}

SELFTEST(skips, .timeout_s = 0)
{
    fprintf(stderr, "half a line");
    SKIP("there is no server");
}

SELFTEST(calls_exit, .timeout_s = 0)
{
    exit(0);
}

SELFTEST(leaves_a_process_behind, .timeout_s = 0)
{
    if (fork() != 0)
        return;
    for (;;)
        pause();
}

SELFTEST(fails_and_says_much, .timeout_s = 0)
{
    for (int i = 0; i < 40000; i++)
        printf("line %d\n", i);
    FAIL("the end");
}

SELFTEST(misuses_the_allocator, .timeout_s = 0)
{
    struct test_alloc ta;
    test_alloc_init(&ta);
    struct vow_alloc hook = test_alloc_hook(&ta);
    char *block = hook.fn(hook.ctx, NULL, 0, 24);
    CHECK(block != NULL);
    if (test_seed() == 2)
        hook.fn(hook.ctx, block, 25, 0);
    if (test_seed() == 3) {
        volatile size_t one = 1; /* a call: ASan sees calls in any code */
        memset(block + 24, 1, one);
        hook.fn(hook.ctx, block, 24, 48);
    }
    if (test_seed() == 4) {
        hook.fn(hook.ctx, block, 24, 0);
        hook.fn(hook.ctx, block, 24, 0);
    }
    test_alloc_fini(TEST_HERE, &ta);
}

SELFTEST(leaves_a_future, .timeout_s = 0)
{
    struct world w;
    world_open(&w);
    vow_deferred *end;
    vow_future *f = vow_promise(w.loop, &end);
    CHECK(f != NULL);
    world_close(&w);
}

SELFTEST(leaves_a_rejection_unhandled, .timeout_s = 0)
{
    struct world w;
    world_open(&w);
    vow_error *e = vow_error_new(w.loop, VOW_EIO, "the line was cut");
    vow_future_unref(vow_rejected(w.loop, e));
    world_run(&w);
    world_close(&w);
}

static void allocate_nothing(struct world *w)
{
    CHECK(!fault_fired(w));
}

SELFTEST(sweeps_nothing, .timeout_s = 0)
{
    fault_sweep(TEST_HERE, FAULT_ALLOC, allocate_nothing);
}

static void lose_a_block_without_memory(struct world *w)
{
    vow_bytes *one = NULL, *two = NULL;
    if (vow_bytes_new(w->loop, NULL, 10, &one) < 0)
        return;
    if (vow_bytes_new(w->loop, NULL, 20, &two) < 0)
        return;
    vow_bytes_unref(two);
    vow_bytes_unref(one);
}

SELFTEST(sweep_finds_a_lost_block, .timeout_s = 0)
{
    fault_sweep(TEST_HERE, FAULT_ALLOC, lose_a_block_without_memory);
}

/* ---- this program, run again -------------------------------------------- */

struct answer {
    int code;               /* of exit, or -1 */
    char text[1024 * 1024]; /* the list of all tests, and more */
};

static struct answer *ask(const char *env, const char *args)
{
    static struct answer a;
    char self[1024], command[2048];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    CHECK(n > 0);
    self[n] = '\0';
    snprintf(command, sizeof(command),
             "VOW_TEST_SLOW=1 VOW_TEST_NO_SKIP=0 %s exec '%s' %s 2>&1", env,
             self, args);
    FILE *out = popen(command, "r");
    CHECK(out != NULL);
    a.text[fread(a.text, 1, sizeof(a.text) - 1, out)] = '\0';
    int status = pclose(out);
    a.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return &a;
}

static struct answer *ask_one(const char *name, int seed)
{
    char args[256];
    snprintf(args, sizeof(args), "--hidden --exact selftest.%s --seed %d", name,
             seed);
    return ask("", args);
}

#define CHECK_HAS(a, part) check_has(TEST_HERE, (a), (part), true)
#define CHECK_LACKS(a, part) check_has(TEST_HERE, (a), (part), false)
static void check_has(const char *site, const struct answer *a,
                      const char *part, bool want)
{
    if ((strstr(a->text, part) != NULL) != want)
        test_fail(site, "'%s' is %s in:\n%.1200s", part,
                  want ? "missing" : "found", a->text);
}

TEST(harness, lists_names_and_keeps_the_hidden_back)
{
    struct answer *a = ask("", "--list");
    CHECK_INT_EQ(a->code, 0);
    CHECK_HAS(a, "harness.lists_names_and_keeps_the_hidden_back\n");
    CHECK_LACKS(a, "selftest.");
    a = ask("", "--list --hidden --filter 'selftest.pa*' --filter "
                "selftest.fails_a_check");
    CHECK_STR_EQ(a->text, "selftest.passes\nselftest.fails_a_check\n");
}

TEST(harness, first_tests_come_before_the_others)
{
    struct answer *a = ask("", "--list --hidden --filter 'selftest.pa*' "
                               "--filter selftest.fails_a_check "
                               "--first '*fails*' --first nix");
    CHECK_STR_EQ(a->text, "selftest.fails_a_check\nselftest.passes\n");
}

TEST(harness, tells_in_tap_what_passed)
{
    struct answer *a = ask_one("passes", 1);
    CHECK_INT_EQ(a->code, 0);
    CHECK_STR_EQ(a->text, "TAP version 13\n1..1\nok 1 - selftest.passes\n"
                          "1 passed, 0 failed\n");
}

TEST(harness, shows_site_values_seed_and_output_of_a_failure)
{
    struct answer *a = ask_one("fails_a_check", 77);
    CHECK_INT_EQ(a->code, 1);
    CHECK_HAS(a, "not ok 1 - selftest.fails_a_check\n");
    CHECK_HAS(a, "# on stdout\n");
    CHECK_HAS(a, "# on stderr\n");
    CHECK_HAS(a, "harness_test.c:");
    CHECK_HAS(a, ": 1 + 1, got 2, want 3 (seed 77)\n");
    CHECK_HAS(a, "again: --hidden --exact selftest.fails_a_check --seed 77\n");
    CHECK_HAS(a, "\n0 passed, 1 failed\n");
    CHECK_LACKS(a, "behind the check");
}

TEST(harness, every_check_says_what_it_got)
{
    const char *want[] = {
        "which == 2, got false, want true (seed 1)",
        "which, got 2, want 18446744073709551615 (seed 2)",
        "\"is\", got \"is\", want \"(NULL)\" (seed 3)",
        "\"abc\", byte 2 of 3, got 0x63, want 0x64 (seed 4)",
        "&which, got 0x",
        "the reason is this (seed 6)",
    };
    for (int i = 0; i < 6; i++) {
        struct answer *a = ask_one("fails_other_checks", i + 1);
        CHECK_INT_EQ(a->code, 1);
        CHECK_HAS(a, want[i]);
    }
    CHECK_INT_EQ(ask_one("fails_other_checks", 7)->code, 0);
    CHECK_HAS(ask_one("fails_on_a_thread", 1), ": from a thread (seed 1)\n");
}

TEST(harness, ends_a_test_that_hangs)
{
    struct answer *a = ask_one("hangs", 1);
    CHECK_INT_EQ(a->code, 1);
    CHECK_HAS(a, "# timed out after 1 s;");
}

TEST(harness, tells_and_expects_signals)
{
    struct answer *a = ask_one("is_killed", 1);
    CHECK_INT_EQ(a->code, 1);
    CHECK_HAS(a, "# died by signal 9 (Killed);");
    CHECK_INT_EQ(ask_one("dies_as_expected", 1)->code, 0);
    a = ask_one("does_not_die_as_expected", 1);
    CHECK_INT_EQ(a->code, 1);
    CHECK_HAS(a, "# came to its end, want signal 11");
}

TEST(harness, refuses_a_test_that_calls_exit)
{
    struct answer *a = ask_one("calls_exit", 1);
    CHECK_INT_EQ(a->code, 1);
    CHECK_HAS(a, "exit() was called inside the test");
}

TEST(harness, a_skip_has_its_own_exit_code_or_fails)
{
    const char *args = "--hidden --exact selftest.skips";
    struct answer *a = ask("", args);
    CHECK_INT_EQ(a->code, 77);
    CHECK_HAS(a, "ok 1 - selftest.skips # SKIP there is no server\n");
    CHECK_HAS(a, "\n0 passed, 0 failed, 1 skipped\n");
    a = ask("VOW_TEST_NO_SKIP=1", args);
    CHECK_INT_EQ(a->code, 1);
    CHECK_HAS(a, "not ok 1 - selftest.skips\n# there is no server;");
    a = ask("", "--hidden --exact selftest.skips --exact selftest.passes");
    CHECK_INT_EQ(a->code, 0);
    CHECK_HAS(a, "\n1 passed, 0 failed, 1 skipped\n");
}

TEST(harness, kills_what_a_test_leaves_behind)
{
    int ends[2];
    char byte;
    CHECK_INT_EQ(pipe(ends), 0); /* inherited by whatever is left */
    CHECK_INT_EQ(ask_one("leaves_a_process_behind", 1)->code, 0);
    close(ends[1]);
    CHECK_INT_EQ(read(ends[0], &byte, 1), 0); /* it hangs if one still lives */
}

TEST(harness, keeps_the_last_of_much_output)
{
    struct answer *a = ask_one("fails_and_says_much", 1);
    CHECK_INT_EQ(a->code, 1);
    CHECK_HAS(a, " bytes of output before this are left out)\n");
    CHECK_HAS(a, "# line 39999\n");
    CHECK_LACKS(a, "# line 1\n");
}

TEST(harness, runs_several_at_a_time)
{
    struct answer *a =
        ask("", "--hidden --jobs 3 --filter selftest.passes "
                "--filter '*selftest.dies*' --filter selftest.fails_a_check "
                "--exact selftest.skips");
    CHECK_INT_EQ(a->code, 1);
    CHECK_HAS(a, "1..4\n");
    CHECK_HAS(a, "\n2 passed, 1 failed, 1 skipped\n");
}

TEST(harness, runs_in_its_own_process_for_a_debugger)
{
    struct answer *a = ask("", "--no-fork --hidden --exact selftest.passes "
                               "--exact selftest.fails_a_check "
                               "--exact selftest.skips");
    CHECK_INT_EQ(a->code, 1);
    CHECK_HAS(a, "\nok 1 - selftest.passes\n");
    CHECK_HAS(a, "\nnot ok 2 - selftest.fails_a_check\n# a check failed;");
    CHECK_HAS(a, "\n# 1 tests were not run");
    CHECK_HAS(a, "\n1 passed, 1 failed\n");
    a = ask("", "--no-fork --hidden --exact selftest.skips");
    CHECK_INT_EQ(a->code, 77);
    CHECK_HAS(a, "ok 1 - selftest.skips # SKIP there is no server\n");
}

TEST(harness, a_file_is_selected_and_a_pattern_left_out)
{
    struct answer *a = ask("", "--list --hidden --file unit/harness_test.c "
                               "--skip 'selftest.[!p]*' --skip world "
                               "--skip harness --skip fault");
    CHECK_STR_EQ(a->text, "selftest.passes\n");
    a = ask("", "--list --skip '*[!x]*'");
    CHECK_INT_EQ(a->code, 2);
    CHECK_HAS(a, "There are no tests");
    a = ask("", "--list --skip nix");
    CHECK_STR_EQ(a->text, "No test matches 'nix'; --help tells more.\n");
}

TEST(harness, bad_usage_is_one_sentence)
{
    const struct {
        const char *args, *text;
    } bad[] = {
        {"--what", "Unknown option '--what'"},
        {"--seed", "An argument is missing after '--seed'"},
        {"--seed 0", "A seed is from 1 to 2^64-1, not '0'"},
        {"--seed 5x", "A seed is from 1 to 2^64-1, not '5x'"},
        {"--jobs 65", "Jobs are from 1 to 64, not '65'"},
        {"more", "Unexpected argument 'more'"},
        {"--exact selftest.passes", "No test matches 'selftest.passes'"},
        {"--filter harness --filter nix", "No test matches 'nix'"},
    };
    char want[128];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct answer *a = ask("", bad[i].args);
        snprintf(want, sizeof(want), "%s; --help tells more.\n", bad[i].text);
        CHECK_STR_EQ(a->text, want);
        CHECK_INT_EQ(a->code, 2);
    }
    CHECK_INT_EQ(ask("VOW_TEST_SLOW=fast", "--list")->code, 2);
    CHECK_INT_EQ(ask("", "--help")->code, 0);
}

TEST(harness, random_numbers_repeat_with_their_seed)
{
    uint64_t a = test_seed(), b = test_seed();
    CHECK(a != 0);
    for (int i = 0; i < 100; i++)
        CHECK_UINT_EQ(test_random(&a), test_random(&b));
    a++;
    CHECK(test_random(&a) != test_random(&b));
}

/* ---- the world and the sweep -------------------------------------------- */

TEST(world, the_allocator_counts)
{
    struct test_alloc ta;
    test_alloc_init(&ta);
    struct vow_alloc hook = test_alloc_hook(&ta);
    unsigned char *p = hook.fn(hook.ctx, NULL, 0, 10);
    CHECK_MEM_EQ(p, "\xA5\xA5\xA5\xA5\xA5\xA5\xA5\xA5\xA5\xA5", 10);
    memcpy(p, "0123456789", 10);
    p = hook.fn(hook.ctx, p, 10, 30);
    CHECK_MEM_EQ(p, "0123456789\xA5", 11);
    CHECK_UINT_EQ(ta.live_bytes, 30);
    p = hook.fn(hook.ctx, p, 30, 5);
    CHECK_MEM_EQ(p, "01234", 5);
    void *q = hook.fn(hook.ctx, NULL, 0, 7);
    CHECK_UINT_EQ((uintptr_t)q % _Alignof(max_align_t), 0);
    CHECK_UINT_EQ(ta.live_blocks, 2);
    CHECK_UINT_EQ(ta.live_bytes, 12);
    CHECK_UINT_EQ(ta.peak_bytes, 30);
    CHECK_UINT_EQ(ta.allocs, 3); /* making it smaller is not counted */
    CHECK_PTR_EQ(hook.fn(hook.ctx, p, 5, 0), NULL);
    CHECK_PTR_EQ(hook.fn(hook.ctx, q, 7, 0), NULL);
    CHECK_PTR_EQ(hook.fn(hook.ctx, NULL, 0, 0), NULL);
    test_alloc_fini(TEST_HERE, &ta);
}

TEST(world, the_allocator_refuses_by_plan)
{
    struct test_alloc ta;
    test_alloc_init(&ta);
    struct vow_alloc hook = test_alloc_hook(&ta);
    ta.fail_at = 2;
    char *p = hook.fn(hook.ctx, NULL, 0, 8);
    CHECK(p != NULL);
    CHECK_PTR_EQ(hook.fn(hook.ctx, p, 8, 16), NULL); /* p stays valid */
    p = hook.fn(hook.ctx, p, 8, 4);
    CHECK(p != NULL);
    p = hook.fn(hook.ctx, p, 4, 16);
    CHECK(p != NULL);
    ta.fail_at = 4;
    ta.fail_forever = true;
    CHECK_PTR_EQ(hook.fn(hook.ctx, NULL, 0, 1), NULL);
    CHECK_PTR_EQ(hook.fn(hook.ctx, NULL, 0, 1), NULL);
    CHECK_UINT_EQ(ta.fails, 3);
    hook.fn(hook.ctx, p, 16, 0);
    test_alloc_fini(TEST_HERE, &ta);
}

TEST(world, the_allocator_finds_misuse)
{
    struct answer *a = ask_one("misuses_the_allocator", 1);
    CHECK_INT_EQ(a->code, 1);
    CHECK_HAS(a, "lost 1 blocks of 24 bytes, the newest: number 1 (24 bytes)");
    a = ask_one("misuses_the_allocator", 2);
    CHECK_HAS(a, "old size of block number 1, got 25, want 24");
    a = ask_one("misuses_the_allocator", 3);
    CHECK_HAS(a, TEST_ASAN ? "heap-buffer-overflow" : "a write behind block");
    a = ask_one("misuses_the_allocator", 4);
    CHECK_INT_EQ(a->code, 1);
    CHECK(strstr(a->text, "use-after-free") != NULL ||
          strstr(a->text, "freed before") != NULL);
}

TEST(world, close_names_what_is_still_alive)
{
    struct answer *a = ask_one("leaves_a_future", 1);
    CHECK_INT_EQ(a->code, 1);
    CHECK_HAS(a, ": still alive: 1 futures\n");
    CHECK_HAS(a, "harness_test.c:");
    CHECK_HAS(a, ": 1 pending, 0 settled");
}

TEST(world, close_tells_an_unhandled_rejection)
{
    struct answer *a = ask_one("leaves_a_rejection_unhandled", 1);
    CHECK_INT_EQ(a->code, 1);
    CHECK_HAS(a, "unhandled rejections, got 1, want 0; the last: EIO, "
                 "the line was cut, of the promise made at ");
}

TEST(world, a_dirty_close_lets_pending_things_be)
{
    struct world w;
    vow_deferred *end;
    world_open(&w);
    vow_future *f = vow_promise(w.loop, &end);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    vow_future_unref(f);
    vow_deferred_unref(end);
    world_close_dirty(&w);
}

TEST(world, time_is_virtual_unless_asked_otherwise)
{
    struct world w;
    world_open(&w);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 0);
    world_advance_ms(&w, 50);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 50000000);
    world_turn(&w);
    world_close(&w);
    world_open_real(&w);
    CHECK_INT_EQ(vow_loop_advance(w.loop, 1), VOW_ENOTSUP);
    world_close(&w);
}

static uint64_t sweep_runs, sweep_faults;

static void count_runs(struct world *w)
{
    vow_bytes *b = NULL;
    int rc = vow_bytes_new(w->loop, NULL, 10, &b);
    CHECK(rc == 0 || fault_explains(w, rc));
    CHECK(!fault_explains(w, VOW_EINVAL));
    sweep_runs++;
    sweep_faults += fault_fired(w);
    vow_bytes_unref(b);
}

TEST(fault, a_sweep_meets_every_allocation_twice)
{
    fault_sweep(TEST_HERE, FAULT_ALLOC, count_runs);
    CHECK(sweep_faults >= 2);                    /* once, and for ever */
    CHECK_UINT_EQ(sweep_runs - sweep_faults, 3); /* none; once and for ever
                                                    beyond the last one */
}

FAULT_SWEEP(fault, a_sweep_is_a_test, FAULT_ALLOC)
{
    count_runs(w);
}

TEST(fault, a_sweep_fails_when_it_must)
{
    struct answer *a = ask_one("sweeps_nothing", 1);
    CHECK_INT_EQ(a->code, 1);
    CHECK_HAS(a, "sweeps nothing: the body allocates nothing");
    a = ask_one("sweep_finds_a_lost_block", 1);
    CHECK_INT_EQ(a->code, 1);
    CHECK_HAS(a, "lost 1 blocks of ");
    CHECK_HAS(a, "# sweep: allocation ");
}
