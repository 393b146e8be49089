/* SPDX-License-Identifier: MIT */
/* joblog_test.c - the joblog: columns as GNU parallel writes them, and reading
 * both its joblogs and ours.
 */
#include "record_kit.h"

#include <errno.h>
#include <signal.h>

#define HEAD                                                                   \
    "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\t"       \
    "Command\n"

static void write_joblog(const char *path, bool append, struct record r)
{
    char *error = NULL;
    FILE *f = joblog_open(path, append, &error);
    CHECK_STR_EQ(error, NULL);
    CHECK(f != NULL);
    CHECK_INT_EQ(joblog_write(f, &r), 0);
    CHECK_INT_EQ(fclose(f), 0);
}

static struct done *read_joblog(const char *path)
{
    char *error = NULL;
    struct done *d = done_read_joblog(path, &error);
    CHECK_STR_EQ(error, NULL);
    CHECK(d != NULL);
    return d;
}

TEST(joblog, has_the_columns_of_gnu_parallel)
{
    const char *path = file("joblog");
    struct record r = job(12, "exit 3", 3);
    r.start_us = UINT64_C(1794793212359678);
    r.wall_us = 2345;
    r.out_bytes = 17;
    r.err_bytes = 4;
    write_joblog(path, false, r);
    check_content(path, HEAD "12\t:\t1794793212.359\t     0.002\t0\t17\t3\t0\t"
                             "exit 3\n");
    r.wall_us = UINT64_C(123456789012345);
    r.start_us = 1000;
    write_joblog(path, false, r);
    check_content(path, HEAD "12\t:\t0.001\t123456789.012\t0\t17\t3\t0\t"
                             "exit 3\n");
    clean_up();
}

static void check_columns(struct end end, const char *want)
{
    const char *path = file("joblog");
    struct record r = job(1, "x", 0);
    r.end = end;
    write_joblog(path, false, r);
    struct text t = get(path);
    if (strstr(t.at, want) == NULL)
        FAIL("%s is not in %s", want, t.at);
    text_free(&t);
}

TEST(joblog, tells_the_truth_of_every_end)
{
    check_columns((struct end){END_EXIT, 0, false}, "\t0\t0\tx\n");
    check_columns((struct end){END_EXIT, 255, false}, "\t255\t0\tx\n");
    check_columns((struct end){END_SIGNAL, 9, false}, "\t137\t9\tx\n");
    check_columns((struct end){END_TIMEOUT, 15, false}, "\t143\t15\tx\n");
    check_columns((struct end){END_TIMEOUT, 7, true}, "\t7\t0\tx\n");
    check_columns((struct end){END_TIMEOUT, 0, true}, "\t124\t0\tx\n");
    check_columns((struct end){END_NOT_RUN, 127, false}, "\t127\t0\tx\n");
    clean_up();
}

TEST(joblog, is_added_to_or_begun_again)
{
    static const char line[] = "1\t:\t0.000\t     0.000\t0\t0\t0\t0\tx\n";
    char want[1024];
    const char *path = put("joblog", "");
    write_joblog(path, true, job(1, "x", 0));
    write_joblog(path, true, job(1, "x", 0));
    snprintf(want, sizeof(want), HEAD "%s%s", line, line);
    check_content(path, want);
    put("joblog", HEAD "1\t:\t0.000\t     0.0");
    write_joblog(path, true, job(1, "x", 0)); /* the torn line is cut off */
    snprintf(want, sizeof(want), HEAD "%s", line);
    check_content(path, want);
    put("joblog", "Seq\tHost\tSta");
    write_joblog(path, true, job(1, "x", 0));
    check_content(path, want);
    put("joblog", "anything");
    write_joblog(path, false, job(1, "x", 0));
    check_content(path, want);
    clean_up();
}

TEST(joblog, is_not_added_to_another_file)
{
    char *error = NULL;
    char want[1024];
    const char *path = put("joblog", "milk\nbread");
    snprintf(want, sizeof(want), "%s is not a joblog; it was left as it is",
             path);
    CHECK_PTR_EQ(joblog_open(path, true, &error), NULL);
    CHECK_STR_EQ(error, want);
    check_content(path, "milk\nbread");
    free(error);
    clean_up();
}

TEST(joblog, keeps_every_command_in_one_line_and_apart)
{
    static const char *const commands[] = {"printf 'a\\nb'",
                                           "printf 'a\nb'",
                                           "printf 'a\tb'",
                                           "printf 'a\\tb'",
                                           "$'printf'",
                                           "$'a\\nb'",
                                           "a\nb",
                                           "\n",
                                           "x\r",
                                           "x",
                                           "'",
                                           "\xff\\",
                                           "\xff\\\n",
                                           "",
                                           "a\\\nb'c",
                                           "$'"};
    enum { N = sizeof(commands) / sizeof(commands[0]) };
    const char *path = file("joblog");
    for (size_t i = 0; i < N; i++)
        write_joblog(path, i > 0, job(i, commands[i], 0));
    struct text t = get(path);
    size_t lines = 0;
    for (size_t i = 0; i < t.n; i++)
        lines += t.at[i] == '\n';
    CHECK_UINT_EQ(lines, N + 1);
    CHECK(strstr(t.at, "\tprintf 'a\\nb'\n") != NULL);
    CHECK(strstr(t.at, "\t$'printf \\'a\\nb\\''\n") != NULL);
    CHECK(strstr(t.at, "\t$'a\\\\\\nb\\'c'\n") != NULL);
    struct done *d = read_joblog(path);
    for (size_t i = 0; i < N; i++) {
        CHECK(takes_command(d, commands[i], false));
        CHECK(!takes_command(d, commands[i], true));
    }
    done_free(d);
    text_free(&t);
    clean_up();
}

TEST(joblog, of_gnu_parallel_can_be_read)
{
    static const char theirs[] =
        HEAD "1\t:\t1794793212.356\t     0.000\t0\t0\t0\t0\texit 0\n"
             "2\t:\t1794793212.359\t     0.002\t0\t0\t3\t0\texit 3\n"
             "1\tserver\t1794793212.482\t     0.001\t0\t0\t0\t9\tkill -9 $$\n"
             "1\t:\t1794793212.593\t     1.450\t0\t0\t-1\t15\tsleep 5\n"
             "1\t:\t1794793214.334\t     0.003\t0\t3\t0\t0\tprintf %s 'a\tb'\n"
             "1\t:\t1794793222.021\t     0.001\t0\t4\t0\t0\techo 'a\0b'\n"
             "6\t:\t1794793222.021\t     0.001\t0\t4\t0\t0\t$'a\\x41'\n"
             "6\t:\t1794793222.021\t     0.001\t0\t4\t0\t0\t$'a\\'\n"
             "7\t:\t1794793222.021\t     0.001\t0\t4\t0\t0\ttorn";
    struct done *d =
        read_joblog(put_bytes("joblog", theirs, sizeof(theirs) - 1));
    CHECK(takes_command(d, "exit 0", false));
    CHECK(!takes_command(d, "exit 0", true));
    CHECK(!takes_command(d, "exit 3", false));
    CHECK(takes_command(d, "exit 3", true));
    CHECK(!takes_command(d, "kill -9 $$", false));
    CHECK(takes_command(d, "kill -9 $$", true));
    CHECK(!takes_command(d, "sleep 5", false));
    CHECK(takes_command(d, "sleep 5", true));
    CHECK(takes_command(d, "printf %s 'a\tb'", false));
    CHECK(takes_command(d, "echo 'a\nb'", false));
    CHECK(takes_command(d, "$'a\\x41'", false));
    CHECK(takes_command(d, "$'a\\'", false));
    CHECK(!takes_command(d, "torn", true));
    done_free(d);
    clean_up();
}

TEST(joblog, may_have_been_edited_on_another_system)
{
    const char *path =
        put("joblog", "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\t"
                      "Exitval\tSignal\tCommand\r\n"
                      "1\t:\t1.000\t     0.000\t0\t0\t0\t0\techo 1\r\n");
    struct done *d = read_joblog(path);
    CHECK(takes_command(d, "echo 1", false));
    done_free(d);
    write_joblog(path, true, job(2, "echo 2", 0));
    d = read_joblog(path);
    CHECK(takes_command(d, "echo 1", false));
    CHECK(takes_command(d, "echo 2", false));
    done_free(d);
    clean_up();
}

TEST(joblog, names_the_damaged_line)
{
    static const char *const lines[] = {
        "",
        "hello",
        "1\t:\t1.000\t     0.000\t0\t0\t0\t0",
        "1\t:\t1.000\t     0.000\t0\t0\tx\t0\tc",
        "1\t:\t1.000\t     0.000\t0\t0\t\t0\tc",
        "1\t:\t1.000\t     0.000\t0\t0\t0\t-\tc",
        "x\t:\t1.000\t     0.000\t0\t0\t0\t0\tc",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        char *error = NULL;
        char text[1024], want[1024];
        snprintf(text, sizeof(text), HEAD "%s\n", lines[i]);
        const char *path = put("joblog", text);
        snprintf(want, sizeof(want),
                 "%s: line 2 is damaged or not from a joblog", path);
        if (done_read_joblog(path, &error) != NULL)
            FAIL("%s was read", lines[i]);
        CHECK_STR_EQ(error, want);
        free(error);
    }
    clean_up();
}

TEST(joblog, has_no_torn_line_after_a_write_that_ended_early)
{
    char *error = NULL;
    const char *path = file("joblog");
    struct record r = job(1, "some command", 0);
    FILE *f = joblog_open(path, false, &error);
    CHECK(f != NULL);
    CHECK_INT_EQ(joblog_write(f, &r), 0);
    struct text first = get(path);
    signal(SIGXFSZ, SIG_IGN);
    allow_bytes(first.n + 10);
    CHECK_INT_EQ(joblog_write(f, &r), EFBIG);
    check_content(path, first.at);
    allow_bytes(0);
    CHECK_INT_EQ(joblog_write(f, &r), 0);
    fclose(f);
    struct done *d = done_read_joblog(path, &error);
    CHECK(takes_command(d, "some command", false));
    CHECK(takes_command(d, "some command", false));
    CHECK(!takes_command(d, "some command", true));
    done_free(d);
    text_free(&first);
    clean_up();
}
