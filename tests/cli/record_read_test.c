/* SPDX-License-Identifier: MIT */
/* record_read_test.c - what a later run reads out of a log: copies of jobs,
 * lines of other spellings, damage with its line number.
 */
#include "record_kit.h"

#include <inttypes.h>

#define H1 "\"hash\":\"01010101010101010101010101010101\""
#define H2 "\"hash\":\"02020202020202020202020202020202\""
#define GOOD "{\"exit\":0," H1 "}\n"

TEST(record, a_log_that_is_not_there_says_nothing)
{
    struct done *d = read_done(file("log"));
    CHECK(!takes(d, 1, true));
    done_free(d);
    clean_up();
}

TEST(record, counts_every_copy_of_a_job)
{
    struct done *d = read_done(
        put("log", "{\"exit\":0," H1 "}\n{\"exit\":1," H1 "}\n{\"exit\":0," H2
                   "}\n{\"exit\":0," H1 "}\n{\"exit\":null," H2 "}\n"));
    CHECK(takes(d, 1, false));
    CHECK(takes(d, 1, false));
    CHECK(!takes(d, 1, false)); /* the third one failed */
    CHECK(takes(d, 1, true));
    CHECK(!takes(d, 1, true)); /* a fourth one was never run */
    CHECK(takes(d, 2, true));
    CHECK(takes(d, 2, true));
    CHECK(!takes(d, 2, true));
    CHECK(!takes(d, 3, true));
    done_free(d);
    clean_up();
}

TEST(record, a_job_that_ended_by_timeout_did_not_end_well)
{
    struct done *d =
        read_done(put("log", "{\"timeout\":true,\"exit\":0," H1
                             "}\n{\"timeout\":false,\"exit\":0," H2 "}\n"));
    CHECK(!takes(d, 1, false));
    CHECK(takes(d, 1, true));
    CHECK(takes(d, 2, false));
    done_free(d);
    clean_up();
}

TEST(record, reads_any_order_other_fields_blanks_and_crlf)
{
    struct done *d = read_done(
        put("log",
            "{" H1 ",\"exit\":0}\r\n"
            " { \"x\" : [ 1 , -2.5e+3, [] , {\"y\":{}, \"exit\":9} ] ,"
            " \"exit\"\t:0 , \"u\":\"\\ud800\\n\\\"}\"," H1 "} \t\r\n"
            "{\"\":null,\"t\":true,\"f\":false,\"z\":0,\"exit\":0," H1 "}\n"));
    for (int i = 0; i < 3; i++)
        CHECK(takes(d, 1, false));
    CHECK(!takes(d, 1, true));
    done_free(d);
    clean_up();
}

static void check_damaged(const char *line)
{
    char *error = NULL;
    char want[1024];
    struct text t = {0};
    text_addf(&t, GOOD "%s\n" GOOD, line);
    const char *path = put_bytes("log", t.at, t.n);
    snprintf(want, sizeof(want),
             "%s: line 2 is damaged or not from a log of vow", path);
    if (done_read(path, &error) != NULL)
        FAIL("%s was read", line);
    CHECK_STR_EQ(error, want);
    free(error);
    text_free(&t);
}

TEST(record, names_the_damaged_line)
{
    static const char *const lines[] = {
        "",
        "{}",
        "null",
        "[" H1 ",\"exit\":0]",
        "level=info msg=\"hello\"",
        "{\"exit\":0}",
        "{" H1 "}",
        "{" H1 ",\"exit\":0",
        "{" H1 ",\"exit\":0}}",
        "{" H1 ",\"exit\":0,}",
        "{," H1 ",\"exit\":0}",
        "{" H1 " \"exit\":0}",
        "{" H1 ",\"exit\" 0}",
        "{" H1 ",\"exit\":}",
        "{" H1 ",exit:0}",
        "{" H1 "," H1 ",\"exit\":0}",
        "{" H1 ",\"exit\":0,\"exit\":1}",
        "{" H1 ",\"exit\":\"0\"}",
        "{" H1 ",\"exit\":0.0}",
        "{" H1 ",\"exit\":-1}",
        "{" H1 ",\"exit\":00}",
        "{" H1 ",\"exit\":99999999999999999999}",
        "{" H1 ",\"exit\":true}",
        "{" H1 ",\"exit\":nul}",
        "{" H1 ",\"exit\":0,\"timeout\":0}",
        "{\"hash\":\"0101010101010101010101010101010\",\"exit\":0}",
        "{\"hash\":\"010101010101010101010101010101010\",\"exit\":0}",
        "{\"hash\":\"0101010101010101010101010101010g\",\"exit\":0}",
        "{\"hash\":1,\"exit\":0}",
        "{" H1 ",\"exit\":0,\"c\":\"a\tb\"}",
        "{" H1 ",\"exit\":0,\"c\":\"a\\x\"}",
        "{" H1 ",\"exit\":0,\"c\":\"a\\u12g4\"}",
        "{" H1 ",\"exit\":0,\"c\":\"a\\",
        "{" H1 ",\"exit\":0,\"c\":\"a\\u12",
        "{" H1 ",\"exit\":0,\"c\":[1,]}",
        "{" H1 ",\"exit\":0,\"c\":[1}",
        "{" H1 ",\"exit\":0,\"c\":{1:2}}",
        "{" H1 ",\"exit\":0,\"c\":{\"a\":1]}",
        "{" H1 ",\"exit\":0,\"c\":1.}",
        "{" H1 ",\"exit\":0,\"c\":.5}",
        "{" H1 ",\"exit\":0,\"c\":1e}",
        "{" H1 ",\"exit\":0,\"c\":+1}",
        "{" H1 ",\"exit\":0,\"c\":-}",
        "{" H1 ",\"exit\":0}{" H2 ",\"exit\":0}",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        check_damaged(lines[i]);
    clean_up();
}

TEST(record, looks_only_so_deep_into_other_fields)
{
    struct text t = {0};
    text_add_str(&t, "{" H1 ",\"exit\":0,\"x\":");
    size_t from = t.n;
    for (int i = 0; i < 16; i++)
        text_add(&t, "[", 1);
    for (int i = 0; i < 16; i++)
        text_add(&t, "]", 1);
    text_add_str(&t, "}\n");
    struct done *d = read_done(put_bytes("log", t.at, t.n));
    CHECK(takes(d, 1, false));
    done_free(d);
    t.n = from;
    for (int i = 0; i < 1000000; i++)
        text_add(&t, "[", 1);
    check_damaged(t.at);
    text_free(&t);
    clean_up();
}

TEST(record, a_nul_in_a_line_is_damage)
{
    static const char log[] = GOOD "{" H1 ",\"exit\":0,\"c\":\"\0\"}\n" GOOD;
    static const char zeros[] = GOOD "\0\0\0\0\n" GOOD;
    char *error = NULL;
    CHECK_PTR_EQ(done_read(put_bytes("log", log, sizeof(log) - 1), &error),
                 NULL);
    CHECK(strstr(error, ": line 2 is damaged") != NULL);
    free(error);
    CHECK_PTR_EQ(done_read(put_bytes("log", zeros, sizeof(zeros) - 1), &error),
                 NULL);
    CHECK(strstr(error, ": line 2 is damaged") != NULL);
    free(error);
    clean_up();
}

TEST(record, survives_any_change_of_a_line)
{
    uint64_t random = test_seed();
    const char *path = file("log");
    struct record r = job(1, "echo \xff \"quoted\" \n", 0);
    struct log *l = open_log(path, false);
    CHECK_INT_EQ(log_write(l, &r), 0);
    CHECK_INT_EQ(log_close(l), 0);
    struct text whole = get(path);
    for (int round = 0; round < 3000; round++) {
        char *error = NULL;
        char *changed = mem_copy(whole.at, whole.n);
        for (uint64_t i = test_random(&random) % 4; i < 5; i++)
            changed[test_random(&random) % whole.n] =
                "\"\\{}[]:,0\n\r\t u"[test_random(&random) % 14];
        struct done *d = done_read(put_bytes("log", changed, whole.n), &error);
        CHECK((d == NULL) == (error != NULL));
        done_free(d);
        free(error);
        free(changed);
    }
    text_free(&whole);
    clean_up();
}

TEST(record, refuses_a_line_without_end)
{
    char *error = NULL;
    const char *path = put("log", "");
    CHECK_INT_EQ(truncate(path, 65 * 1024 * 1024 + 1), 0);
    CHECK_PTR_EQ(done_read(path, &error), NULL);
    CHECK(strstr(error, ": line 1 is damaged") != NULL);
    free(error);
    clean_up();
}

TEST(record, reads_hashes_in_both_cases)
{
    struct done *d = read_done(
        put("log", "{\"exit\":0,\"hash\":\"abcdefABCDEF00000000000000000000\"}"
                   "\n"));
    const unsigned char hash[16] = {0xab, 0xcd, 0xef, 0xab, 0xcd, 0xef};
    CHECK(done_take(d, hash, false));
    done_free(d);
    clean_up();
}

TEST(record, reads_many_jobs)
{
    enum { JOBS = 100000 };
    struct text t = {0};
    uint64_t random = 1;
    for (int i = 0; i < JOBS; i++) {
        uint64_t a = test_random(&random), b = test_random(&random);
        text_addf(&t, "{\"seq\":%d,\"exit\":%d,\"hash\":\"%016" PRIx64, i,
                  i % 10 == 0, a);
        text_addf(&t, "%016" PRIx64 "\",\"command\":\"echo %d\"}\n", b, i);
    }
    struct done *d = read_done(put_bytes("log", t.at, t.n));
    random = 1;
    for (int i = 0; i < JOBS; i++) {
        uint64_t half[2];
        unsigned char hash[16];
        half[0] = __builtin_bswap64(test_random(&random));
        half[1] = __builtin_bswap64(test_random(&random));
        memcpy(hash, half, sizeof(hash));
        CHECK_INT_EQ(done_take(d, hash, false), i % 10 != 0);
        CHECK_INT_EQ(done_take(d, hash, true), i % 10 == 0);
        CHECK(!done_take(d, hash, true));
    }
    done_free(d);
    text_free(&t);
    clean_up();
}
