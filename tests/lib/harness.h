/* SPDX-License-Identifier: MIT */
/* harness.h - tests that register themselves, and checks.
 *
 *     TEST(list, keeps_the_order_of_arrival)
 *     {
 *         CHECK_INT_EQ(first(), 1);
 *     }
 *
 * Each test runs in a forked process of its own, with a time limit, and leaves
 * nothing behind. A failed check ends that process at once, by _exit(): a jump
 * back to the runner would be fatal on a fiber's stack and on other threads.
 * The executable has main() from harness.c; --help lists its options.
 */
#ifndef TEST_HARNESS_H
#define TEST_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define TEST_ASAN 1
#else
#define TEST_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define TEST_TSAN 1
#else
#define TEST_TSAN 0
#endif

struct test_opts {
    int timeout_s;     /* 0: 180; times VOW_TEST_SLOW from the environment */
    int expect_signal; /* passes only when it dies by this one; 0: none */
    bool hidden;       /* neither run nor listed without --hidden */
};

struct test {
    const char *name; /* "group.name" */
    void (*fn)(void);
    const char *file;
    int line;
    struct test_opts opts;
    struct test *next;
};

#define TEST(g, n) TEST_OPTS(g, n, .timeout_s = 0)

/* TEST_OPTS(fiber, overflow_dies, .expect_signal = SIGSEGV) { ... } */
#define TEST_OPTS(g, n, ...)                                                   \
    static void test_##g##_##n(void);                                          \
    __attribute__((constructor)) static void register_##g##_##n(void)          \
    {                                                                          \
        static struct test entry = {.name = #g "." #n,                         \
                                    .fn = test_##g##_##n,                      \
                                    .file = __FILE__,                          \
                                    .line = __LINE__,                          \
                                    .opts = {__VA_ARGS__}};                    \
        test_register(&entry);                                                 \
    }                                                                          \
    static void test_##g##_##n(void)

void test_register(struct test *t);

/* The seed of this run: --seed, else random. Never 0; told with a failure. */
uint64_t test_seed(void);
/* The next number of a small generator that starts anywhere (splitmix64). */
uint64_t test_random(uint64_t *state);

#define TEST_STRING_(x) #x
#define TEST_STRING(x) TEST_STRING_(x)
#define TEST_HERE __FILE__ ":" TEST_STRING(__LINE__)

/* End the test, from any stack and thread. */
#define SKIP(reason) test_skip(reason)
#define FAIL(...) test_fail(TEST_HERE, __VA_ARGS__)

#define CHECK(cond)                                                            \
    ((cond) ? (void)0 : test_fail(TEST_HERE, "%s, got false, want true", #cond))
#define CHECK_INT_EQ(got, want) TEST_EQ_(intmax_t, "%jd", #got, got, want)
#define CHECK_UINT_EQ(got, want) TEST_EQ_(uintmax_t, "%ju", #got, got, want)
#define CHECK_PTR_EQ(got, want) TEST_EQ_(const void *, "%p", #got, got, want)
#define CHECK_STR_EQ(got, want) test_str_eq(TEST_HERE, #got, got, want)
#define CHECK_MEM_EQ(got, want, size)                                          \
    test_mem_eq(TEST_HERE, #got, got, want, size)

#define TEST_EQ_(type, format, what, got, want)                                \
    do {                                                                       \
        type got_ = (got);                                                     \
        type want_ = (want);                                                   \
        if (got_ != want_)                                                     \
            test_fail(TEST_HERE, "%s, got " format ", want " format, what,     \
                      got_, want_);                                            \
    } while (0)

_Noreturn void test_skip(const char *reason);
_Noreturn void test_fail(const char *site, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void test_str_eq(const char *site, const char *what, const char *got,
                 const char *want);
void test_mem_eq(const char *site, const char *what, const void *got,
                 const void *want, size_t size);

#endif
