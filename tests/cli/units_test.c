/* SPDX-License-Identifier: MIT */
/* units_test.c - what is taken, what is refused, and that a refusal touches
 * nothing and says what would be right.
 */
#include "harness.h"
#include "units.h"

#include <string.h>

enum { CPUS = 8 };

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Wrong behind every option that takes a number. */
static const char *const hostile[] = {
    "",    " ",    "5 ",    " 5",    "+5",  "-5",    "0x10",  "1e9",   "inf",
    "nan", "NaN",  ".",     "..",    "1..", "..1",   "1.2.3", "5.",    "s",
    "%",   "x",    "/",     "/s",    "5 s", "5s ",   "5ss",   "5z",    "\n",
    "5\n", "5s\n", "\xff",  "5\xff", "٣",   "1_000", "1,000", "1'000", "five",
    "-",   "--",   "5/s/s", "$(5)",  "5;"};

static void check_refused_everywhere(const char *s);
static uint64_t ms_of(const char *s);
static uint64_t bytes_of(const char *s);
static uint32_t jobs_of(const char *s, uint32_t cpus);
static void check_sentence(const char *sentence, const char *s);

TEST(units, refuse_hostile_numbers_and_touch_nothing)
{
    for (size_t i = 0; i < COUNT(hostile); i++)
        check_refused_everywhere(hostile[i]);
}

TEST(units, refuse_digits_without_end)
{
    static char digits[100000];
    memset(digits, '9', sizeof(digits) - 1);
    check_refused_everywhere(digits);
    memset(digits, '.', sizeof(digits) - 1);
    check_refused_everywhere(digits);
    memset(digits, ',', sizeof(digits) - 1);
    check_refused_everywhere(digits);
    memset(digits, 'A', sizeof(digits) - 1);
    check_refused_everywhere(digits);
}

static void check_refused_everywhere(const char *s)
{
    uint64_t n = 77;
    uint32_t jobs = 77;
    struct rate rate = {.n = 77, .window_ms = 77};
    struct backoff backoff = {.first_ms = 77, .most_ms = 77};
    struct retry_on on = {.codes = {77}, .signal = true};
    struct kill_seq seq = {.n = 77};
    struct halt halt = {.n = 77};
    check_sentence(units_duration(s, &n), s);
    check_sentence(units_size(s, &n), s);
    check_sentence(units_count(s, &n), s);
    CHECK_UINT_EQ(n, 77);
    check_sentence(units_jobs(s, CPUS, &jobs), s);
    CHECK_UINT_EQ(jobs, 77);
    check_sentence(units_rate(s, &rate), s);
    CHECK(rate.n == 77 && rate.window_ms == 77);
    check_sentence(units_backoff(s, &backoff), s);
    CHECK(backoff.first_ms == 77 && backoff.most_ms == 77);
    check_sentence(units_retry_on(s, &on), s);
    CHECK(on.codes[0] == 77 && on.signal && !on.timeout);
    check_sentence(units_kill_seq(s, &seq), s);
    CHECK_UINT_EQ(seq.n, 77);
    check_sentence(units_halt(s, &halt), s);
    CHECK_UINT_EQ(halt.n, 77);
}

/* One line that gives an example, to stand behind "--option value: ". */
static void check_sentence(const char *sentence, const char *s)
{
    if (sentence == NULL)
        FAIL("'%.40s' was taken", s);
    size_t n = strlen(sentence);
    CHECK(n > 10);
    CHECK(strchr(sentence, '\n') == NULL);
    CHECK(sentence[n - 1] != '.');
    CHECK(strpbrk(sentence, "0123456789") != NULL);
}

TEST(units, read_times)
{
    CHECK_UINT_EQ(ms_of("30"), 30000);
    CHECK_UINT_EQ(ms_of("30s"), 30000);
    CHECK_UINT_EQ(ms_of("1.5m"), 90000);
    CHECK_UINT_EQ(ms_of("500ms"), 500);
    CHECK_UINT_EQ(ms_of("2h"), 7200000);
    CHECK_UINT_EQ(ms_of("1d"), 86400000);
    CHECK_UINT_EQ(ms_of("0"), 0);
    CHECK_UINT_EQ(ms_of("0.0s"), 0);
    CHECK_UINT_EQ(ms_of(".5"), 500);
    CHECK_UINT_EQ(ms_of("007s"), 7000);
    CHECK_UINT_EQ(ms_of("0.1s"), 100);
    CHECK_UINT_EQ(ms_of("1.001s"), 1001);
    CHECK_UINT_EQ(ms_of("1.999999999999999999999s"), 2000);
    CHECK_UINT_EQ(ms_of("0.0000001s"), 1); /* not 0, which is no limit */
    CHECK_UINT_EQ(ms_of("10000d"), UINT64_C(864000000000));
}

TEST(units, refuse_times_that_are_too_long)
{
    static const char *const long_ones[] = {"10001d",
                                            "10000.1d",
                                            "18446744073709551615",
                                            "18446744073709551616ms",
                                            "99999999999999999999999d",
                                            "213503982335d"};
    uint64_t ms = 5;
    for (size_t i = 0; i < COUNT(long_ones); i++)
        CHECK_STR_EQ(units_duration(long_ones[i], &ms),
                     "this time is too long: 10000d is the most");
    CHECK_UINT_EQ(ms, 5);
}

static uint64_t ms_of(const char *s)
{
    uint64_t ms = UINT64_MAX;
    const char *wrong = units_duration(s, &ms);
    if (wrong != NULL)
        FAIL("%s: %s", s, wrong);
    return ms;
}

TEST(units, read_rates)
{
    static const struct {
        const char *s;
        struct rate want;
    } all[] = {{"50/s", {50, 1000}},
               {"50/1s", {50, 1000}},
               {"100/m", {100, 60000}},
               {"10/500ms", {10, 500}},
               {"1000/h", {1000, 3600000}},
               {"5/d", {5, 86400000}},
               {"1/1.5s", {1, 1500}},
               {"1/ms", {1, 1}},
               {"16777216/s", {16777216, 1000}}};
    for (size_t i = 0; i < COUNT(all); i++) {
        struct rate got = {0};
        CHECK(units_rate(all[i].s, &got) == NULL);
        CHECK_UINT_EQ(got.n, all[i].want.n);
        CHECK_UINT_EQ(got.window_ms, all[i].want.window_ms);
    }
}

TEST(units, say_what_a_rate_lacks)
{
    static const char no_unit[] =
        "a rate needs a unit: 50/s, 100/m or 10/500ms";
    struct rate r;
    CHECK_STR_EQ(units_rate("50", &r), no_unit);
    CHECK_STR_EQ(units_rate("50/", &r), no_unit);
    CHECK_STR_EQ(units_rate("50/2", &r), no_unit);
    CHECK_STR_EQ(units_rate("50/1.5", &r), no_unit);
    CHECK_STR_EQ(units_rate("12s", &r), no_unit);
    CHECK_STR_EQ(units_rate("0/s", &r),
                 "a rate starts at 1: 1/s, or 1/10m for fewer");
    CHECK_STR_EQ(units_rate("0.5/s", &r),
                 "a rate counts whole starts: write 1/2s for 0.5/s");
    CHECK_STR_EQ(
        units_rate("16777217/s", &r),
        "this rate is too high: 16777216 starts in a unit are the most");
    CHECK_STR_EQ(units_rate("5/0s", &r),
                 "the unit of a rate is a time above 0: 50/s or 10/500ms");
    CHECK_STR_EQ(units_rate("5/20000d", &r),
                 "this time is too long: 10000d is the most");
    CHECK_STR_EQ(units_rate("5/sec", &r),
                 "a time is a number and ms, s, m, h or d: 30s, 1.5m or 500ms");
}

TEST(units, read_sizes)
{
    CHECK_UINT_EQ(bytes_of("0"), 0);
    CHECK_UINT_EQ(bytes_of("100"), 100);
    CHECK_UINT_EQ(bytes_of("100B"), 100);
    CHECK_UINT_EQ(bytes_of("64K"), 65536);
    CHECK_UINT_EQ(bytes_of("64k"), 65536);
    CHECK_UINT_EQ(bytes_of("64kB"), 65536);
    CHECK_UINT_EQ(bytes_of("64KiB"), 65536);
    CHECK_UINT_EQ(bytes_of("64M"), 64 << 20);
    CHECK_UINT_EQ(bytes_of("1.5G"), UINT64_C(3) << 29);
    CHECK_UINT_EQ(bytes_of("1T"), UINT64_C(1) << 40);
    CHECK_UINT_EQ(bytes_of("0.001K"), 1);
    CHECK_UINT_EQ(bytes_of("8388607T"), UINT64_C(8388607) << 40);
}

TEST(units, refuse_sizes_that_are_none)
{
    static const char *const wrong[] = {"1.5", "1.5B",  "5i", "5iB", "5KB ",
                                        "5KK", "5Kib1", "5P", "5 K", "-1K"};
    uint64_t n = 7;
    for (size_t i = 0; i < COUNT(wrong); i++)
        CHECK_STR_EQ(
            units_size(wrong[i], &n),
            "a size is a number of bytes, or one with K, M, G or T: 64M");
    CHECK_STR_EQ(units_size("8388608T", &n),
                 "this size is too large: 8388607T is the most");
    CHECK_STR_EQ(units_size("18446744073709551616", &n),
                 "this size is too large: 8388607T is the most");
    CHECK_STR_EQ(units_size("18446744073709551615T", &n),
                 "this size is too large: 8388607T is the most");
    CHECK_UINT_EQ(n, 7);
}

static uint64_t bytes_of(const char *s)
{
    uint64_t bytes = UINT64_MAX;
    const char *wrong = units_size(s, &bytes);
    if (wrong != NULL)
        FAIL("%s: %s", s, wrong);
    return bytes;
}

TEST(units, read_numbers_of_jobs)
{
    CHECK_UINT_EQ(jobs_of("8", 4), 8);
    CHECK_UINT_EQ(jobs_of("1000000", 4), 1000000);
    CHECK_UINT_EQ(jobs_of("50%", 8), 4);
    CHECK_UINT_EQ(jobs_of("50%", 3), 1); /* never more than the share */
    CHECK_UINT_EQ(jobs_of("1%", 4), 1);  /* but one */
    CHECK_UINT_EQ(jobs_of("200%", 4), 8);
    CHECK_UINT_EQ(jobs_of("2x", 4), 8);
    CHECK_UINT_EQ(jobs_of("1.5x", 4), 6);
    CHECK_UINT_EQ(jobs_of("0.1x", 4), 1);
    CHECK_UINT_EQ(jobs_of("100%", 1), 1);
}

TEST(units, refuse_no_jobs_and_too_many)
{
    static const char none[] =
        "0 jobs do nothing: for as many as possible write a big number, such "
        "as 1000000";
    static const char many[] = "these are too many jobs: 1000000 are the most";
    uint32_t jobs = 7;
    CHECK_STR_EQ(units_jobs("0", 4, &jobs), none);
    CHECK_STR_EQ(units_jobs("0%", 4, &jobs), none);
    CHECK_STR_EQ(units_jobs("0.0x", 4, &jobs), none);
    CHECK_STR_EQ(units_jobs("1000001", 4, &jobs), many);
    CHECK_STR_EQ(units_jobs("4294967297", 4, &jobs), many);
    CHECK_STR_EQ(units_jobs("500000x", 4, &jobs), many);
    CHECK_STR_EQ(units_jobs("18446744073709551616%", 4, &jobs), many);
    CHECK_STR_EQ(units_jobs("1.5", 4, &jobs),
                 "a number of jobs is 8, 50% or 2x of the processors");
    CHECK_STR_EQ(units_jobs("50%%", 4, &jobs),
                 "a number of jobs is 8, 50% or 2x of the processors");
    CHECK_UINT_EQ(jobs, 7);
}

static uint32_t jobs_of(const char *s, uint32_t cpus)
{
    uint32_t jobs = UINT32_MAX;
    const char *wrong = units_jobs(s, cpus, &jobs);
    if (wrong != NULL)
        FAIL("%s: %s", s, wrong);
    return jobs;
}

TEST(units, read_counts)
{
    uint64_t n = 7;
    CHECK(units_count("0", &n) == NULL);
    CHECK_UINT_EQ(n, 0);
    CHECK(units_count("0042", &n) == NULL);
    CHECK_UINT_EQ(n, 42);
    CHECK(units_count("18446744073709551614", &n) == NULL);
    CHECK_UINT_EQ(n, UINT64_MAX - 1);
    CHECK(units_count("18446744073709551615", &n) != NULL);
    CHECK(units_count("18446744073709551616", &n) != NULL);
    CHECK(units_count("184467440737095516150", &n) != NULL);
    CHECK(units_count("1.0", &n) != NULL);
    CHECK(units_count("5s", &n) != NULL);
    CHECK_UINT_EQ(n, UINT64_MAX - 1);
}

TEST(units, read_waits_that_grow)
{
    struct backoff b;
    CHECK(units_backoff("1s..1m", &b) == NULL);
    CHECK(b.first_ms == 1000 && b.most_ms == 60000);
    CHECK(units_backoff("5s", &b) == NULL);
    CHECK(b.first_ms == 5000 && b.most_ms == 5000);
    CHECK(units_backoff("1..2", &b) == NULL);
    CHECK(b.first_ms == 1000 && b.most_ms == 2000);
    CHECK(units_backoff("0.5s...75s", &b) == NULL); /* 0.5s .. .75s */
    CHECK(b.first_ms == 500 && b.most_ms == 750);
    CHECK(units_backoff("0", &b) == NULL);
    CHECK(b.first_ms == 0 && b.most_ms == 0);
}

TEST(units, refuse_waits_that_shrink_or_lack_an_end)
{
    static const char shape[] =
        "a backoff is the first and longest wait: 1s..1m, or 5s for always 5s";
    struct backoff b;
    CHECK_STR_EQ(units_backoff("1m..1s", &b),
                 "the first wait is longer than the longest: write 1s..1m");
    CHECK_STR_EQ(units_backoff("1s..", &b), shape);
    CHECK_STR_EQ(units_backoff("..1s", &b), shape);
    CHECK(units_backoff("1s..1m..2m", &b) != NULL);
    CHECK(units_backoff("1s.. 1m", &b) != NULL);
    CHECK(units_backoff("1s-1m", &b) != NULL);
}

TEST(units, read_what_to_try_again_after)
{
    struct retry_on on;
    CHECK(units_retry_on("1,3-5,64,255,signal", &on) == NULL);
    CHECK(on.signal && !on.timeout);
    CHECK_UINT_EQ(on.codes[0], 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5);
    CHECK_UINT_EQ(on.codes[1], 1);
    CHECK_UINT_EQ(on.codes[2], 0);
    CHECK_UINT_EQ(on.codes[3], UINT64_C(1) << 63);
    CHECK(units_retry_on("timeout", &on) == NULL);
    CHECK(!on.signal && on.timeout);
    CHECK_UINT_EQ(on.codes[0], 0);
    CHECK(units_retry_on("any", &on) == NULL);
    CHECK(on.signal && on.timeout);
    CHECK_UINT_EQ(on.codes[0], UINT64_MAX - 1); /* 0 is no failure */
    CHECK_UINT_EQ(on.codes[3], UINT64_MAX);
    CHECK(units_retry_on("1-255", &on) == NULL);
    CHECK_UINT_EQ(on.codes[0], UINT64_MAX - 1);
    CHECK(!on.signal);
}

TEST(units, refuse_codes_that_no_failure_has)
{
    static const char shape[] =
        "a list of exit codes, signal, timeout or any is needed: 1,3-9,signal";
    static const char bounds[] = "exit codes of failures go from 1 to 255";
    struct retry_on on;
    CHECK_STR_EQ(units_retry_on("0", &on), bounds);
    CHECK_STR_EQ(units_retry_on("256", &on), bounds);
    CHECK_STR_EQ(units_retry_on("0-5", &on), bounds);
    CHECK_STR_EQ(units_retry_on("250-256", &on), bounds);
    CHECK_STR_EQ(units_retry_on("18446744073709551613", &on), bounds);
    CHECK_STR_EQ(units_retry_on("9-3", &on),
                 "a span of exit codes begins with the smaller: 3-9");
    CHECK_STR_EQ(units_retry_on("1,", &on), shape);
    CHECK_STR_EQ(units_retry_on(",1", &on), shape);
    CHECK_STR_EQ(units_retry_on("1,,2", &on), shape);
    CHECK_STR_EQ(units_retry_on("1-", &on), shape);
    CHECK_STR_EQ(units_retry_on("1-2-3", &on), shape);
    CHECK_STR_EQ(units_retry_on("1, 2", &on), shape);
    CHECK_STR_EQ(units_retry_on("signals", &on), shape);
}

TEST(units, read_how_to_kill)
{
    struct kill_seq q;
    CHECK(units_kill_seq("TERM,5s,KILL", &q) == NULL);
    CHECK_UINT_EQ(q.n, 2);
    CHECK(q.steps[0].signal == 15 && q.steps[0].wait_ms == 5000);
    CHECK(q.steps[1].signal == 9 && q.steps[1].wait_ms == 0);
    CHECK(units_kill_seq("SIGINT,1.5s,sigterm,500ms,9", &q) == NULL);
    CHECK_UINT_EQ(q.n, 3);
    CHECK(q.steps[0].signal == 2 && q.steps[0].wait_ms == 1500);
    CHECK(q.steps[1].signal == 15 && q.steps[1].wait_ms == 500);
    CHECK_INT_EQ(q.steps[2].signal, 9);
    CHECK(units_kill_seq("TERM,CONT,2s", &q) == NULL);
    CHECK_UINT_EQ(q.n, 2);
    CHECK(q.steps[0].signal == 15 && q.steps[0].wait_ms == 0);
    CHECK(q.steps[1].signal == 18 && q.steps[1].wait_ms == 2000);
    CHECK(units_kill_seq("5s,KILL", &q) == NULL);
    CHECK_UINT_EQ(q.n, 2);
    CHECK(q.steps[0].signal == 0 && q.steps[0].wait_ms == 5000);
    CHECK(units_kill_seq("TERM,1s,2s,KILL", &q) == NULL);
    CHECK_UINT_EQ(q.n, 3);
    CHECK(q.steps[1].signal == 0 && q.steps[1].wait_ms == 2000);
    CHECK(units_kill_seq("64", &q) == NULL);
    CHECK_INT_EQ(q.steps[0].signal, 64);
}

TEST(units, refuse_a_kill_that_may_be_meant_otherwise)
{
    static const char shape[] =
        "signals with waits between them are needed: TERM,5s,KILL";
    static const char no_unit[] =
        "a wait needs a unit, and a signal directly behind another signal must "
        "be a name: TERM,5s,KILL";
    static const char no_signal[] =
        "there is no such signal: use a name or a number, as TERM, SIGINT or 9";
    struct kill_seq q;
    CHECK_STR_EQ(units_kill_seq("TERM,5,KILL", &q), no_unit);
    CHECK_STR_EQ(units_kill_seq("TERM,200,TERM,100,KILL,25", &q), no_unit);
    CHECK_STR_EQ(units_kill_seq("TERN", &q), no_signal);
    CHECK_STR_EQ(units_kill_seq("0", &q), no_signal);
    CHECK_STR_EQ(units_kill_seq("65", &q), no_signal);
    CHECK_STR_EQ(units_kill_seq("18446744073709551616", &q), no_signal);
    CHECK_STR_EQ(units_kill_seq("SIG", &q), no_signal);
    CHECK_STR_EQ(units_kill_seq("TERM,,KILL", &q), shape);
    CHECK_STR_EQ(units_kill_seq("TERM,", &q), shape);
    CHECK_STR_EQ(units_kill_seq("TERM,5y", &q),
                 "the unit of a time is ms, s, m, h or d: 30s, 1.5m or 500ms");
    CHECK(units_kill_seq("INT,INT,INT,INT,INT,INT,INT,KILL,1s", &q) == NULL);
    CHECK_STR_EQ(units_kill_seq("INT,INT,INT,INT,INT,INT,INT,INT,KILL", &q),
                 "these are too many steps: 8 are the most");
}

TEST(units, read_when_to_stop)
{
    struct halt h;
    CHECK(units_halt("never", &h) == NULL);
    CHECK_INT_EQ(h.when, HALT_NEVER);
    CHECK(units_halt("now,fail=1", &h) == NULL);
    CHECK(h.when == HALT_NOW && h.what == HALT_FAIL && !h.percent && h.n == 1);
    CHECK(units_halt("soon,success=20", &h) == NULL);
    CHECK(h.when == HALT_SOON && h.what == HALT_SUCCESS && h.n == 20);
    CHECK(units_halt("soon,done=100%", &h) == NULL);
    CHECK(h.what == HALT_DONE && h.percent && h.n == 100);
}

TEST(units, refuse_stops_that_never_or_always_come)
{
    static const char *const wrong[] = {
        "now",         "soon",
        "now,",        "now,fail",
        "now,fail=",   "now,fail=%",
        "now,fail=x",  "now,fail=1.5%",
        "fail=1",      "later,fail=1",
        "now,fails=1", "now,fail=1,done=2",
        "now, fail=1", "never,fail=1",
        "NOW,fail=1",  "now,fail=18446744073709551616"};
    struct halt h = {.n = 7};
    for (size_t i = 0; i < COUNT(wrong); i++)
        check_sentence(units_halt(wrong[i], &h), wrong[i]);
    CHECK_STR_EQ(units_halt("now,fail=0", &h),
                 "a number to stop at is at least 1: now,fail=1");
    CHECK_STR_EQ(units_halt("now,fail=0%", &h),
                 "a share to stop at goes from 1% to 100%");
    CHECK_STR_EQ(units_halt("now,done=101%", &h),
                 "a share to stop at goes from 1% to 100%");
    CHECK_UINT_EQ(h.n, 7);
}

TEST(units, show_times_to_people)
{
    char s[32];
    CHECK_STR_EQ(units_show_ms(0, s), "0ms");
    CHECK_STR_EQ(units_show_ms(999, s), "999ms");
    CHECK_STR_EQ(units_show_ms(1000, s), "1s");
    CHECK_STR_EQ(units_show_ms(1500, s), "1.5s");
    CHECK_STR_EQ(units_show_ms(59999, s), "59.9s");
    CHECK_STR_EQ(units_show_ms(60000, s), "1m 00s");
    CHECK_STR_EQ(units_show_ms(200000, s), "3m 20s");
    CHECK_STR_EQ(units_show_ms(3599999, s), "59m 59s");
    CHECK_STR_EQ(units_show_ms(7500000, s), "2h 05m");
    CHECK_STR_EQ(units_show_ms(86400000, s), "1d 00h");
    CHECK_STR_EQ(units_show_ms(UINT64_MAX, s), "213503982334d 14h");
}

TEST(units, name_signals)
{
    char s[32];
    char all[64];
    CHECK_STR_EQ(units_signal_name(15, s), "TERM");
    CHECK_STR_EQ(units_signal_name(9, s), "KILL");
    CHECK_STR_EQ(units_signal_name(34, s), "34");
    CHECK_STR_EQ(units_signal_name(-1, s), "-1");
    for (int i = 1; i < 32; i++) { /* each name is read back as its number */
        struct kill_seq q;
        strncpy(all, units_signal_name(i, s), sizeof(all) - 1);
        all[sizeof(all) - 1] = '\0';
        CHECK(strspn(all, "0123456789") == 0);
        CHECK(units_kill_seq(all, &q) == NULL);
        CHECK_INT_EQ(q.steps[0].signal, i);
    }
}
