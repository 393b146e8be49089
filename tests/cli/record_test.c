/* SPDX-License-Identifier: MIT */
/* record_test.c - the log: what is written, which files are refused as a log,
 * and what stays when writing fails or the end is torn.
 */
#include "record_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

static void check_refused(const char *path, bool resume, const char *format)
{
    char *error = NULL;
    char want[1024];
    snprintf(want, sizeof(want), format, path);
    CHECK_PTR_EQ(log_open(path, resume, &error), NULL);
    CHECK_STR_EQ(error, want);
    free(error);
}

/* ---- writing ------------------------------------------------------------- */

TEST(record, writes_a_json_line_with_all_that_is_known)
{
    char want[1024], host[256] = "";
    const char *path = file("log");
    struct record r = {.seq = 7,
                       .slot = 3,
                       .tries = 2,
                       .start_us = UINT64_C(1731720000000042),
                       .wall_us = 1500000,
                       .out_bytes = UINT64_C(10000000000),
                       .err_bytes = 5,
                       .command = span_of("echo \"a\""),
                       .hash = {0, 0x1f, 0xff}};
    r.usage.ru_utime = (struct timeval){.tv_sec = 2, .tv_usec = 30};
    r.usage.ru_stime = (struct timeval){.tv_usec = 4000};
    r.usage.ru_maxrss = 2048;
    struct log *l = open_log(path, false);
    CHECK_INT_EQ(log_write(l, &r), 0);
    CHECK_INT_EQ(log_close(l), 0);
    CHECK_INT_EQ(gethostname(host, sizeof(host) - 1), 0);
    snprintf(want, sizeof(want),
             "{\"seq\":7,\"slot\":3,\"tries\":2,\"start\":1731720000.000042,"
             "\"wall\":1.500000,\"exit\":0,\"signal\":null,\"timeout\":false,"
             "\"out\":10000000000,\"err\":5,\"user\":2.000030,"
             "\"sys\":0.004000,\"maxrss\":2048,"
             "\"hash\":\"001fff00000000000000000000000000\","
             "\"command\":\"echo \\\"a\\\"\",\"host\":\"%s\"}\n",
             host);
    check_content(path, want);
    clean_up();
}

static void check_end(struct end end, const char *want)
{
    const char *path = file("log");
    struct record r = job(1, "x", 0);
    r.end = end;
    struct log *l = open_log(path, false);
    CHECK_INT_EQ(log_write(l, &r), 0);
    CHECK_INT_EQ(log_close(l), 0);
    struct text t = get(path);
    if (strstr(t.at, want) == NULL)
        FAIL("%s is not in %s", want, t.at);
    text_free(&t);
    CHECK_INT_EQ(unlink(path), 0);
}

TEST(record, tells_every_kind_of_end_apart)
{
    check_end((struct end){END_EXIT, 255, false},
              ",\"exit\":255,\"signal\":null,\"timeout\":false,");
    check_end((struct end){END_SIGNAL, SIGSEGV, false},
              ",\"exit\":null,\"signal\":\"SEGV\",\"timeout\":false,");
    check_end((struct end){END_TIMEOUT, SIGTERM, false},
              ",\"exit\":null,\"signal\":\"TERM\",\"timeout\":true,");
    check_end((struct end){END_TIMEOUT, 7, true},
              ",\"exit\":7,\"signal\":null,\"timeout\":true,");
    check_end((struct end){END_NOT_RUN, 127, false},
              ",\"exit\":127,\"signal\":null,\"timeout\":false,");
    clean_up();
}

/* The bytes of a JSON string, with U+DC80 to U+DCFF as single ones. */
static void decode(const char *s, struct text *ret_text)
{
    static const char letters[] = "bfnrt";
    static const char meant[] = "\b\f\n\r\t";
    for (; *s != '"'; s++) {
        char c = *s;
        CHECK(c != '\n' && c != '\0');
        if (c == '\\' && s[1] == 'u') {
            char digits[5] = {s[2], s[3], s[4], s[5]};
            unsigned long code = strtoul(digits, NULL, 16);
            CHECK(code < 0x80 || (code >= 0xdc80 && code <= 0xdcff));
            c = (char)(code & 0xff);
            s += 5;
        } else if (c == '\\') {
            c = *++s;
            const char *found = strchr(letters, c);
            c = found != NULL ? meant[found - letters] : c;
        }
        text_add(ret_text, &c, 1);
    }
}

static void check_comes_back(struct span command)
{
    static const char name[] = "\"command\":\"";
    const char *path = file("log");
    struct record r = job(9, "", 0);
    struct text back = {0};
    r.command = command;
    struct log *l = open_log(path, false);
    CHECK_INT_EQ(log_write(l, &r), 0);
    CHECK_INT_EQ(log_close(l), 0);
    struct text t = get(path);
    const char *at = strstr(t.at, name);
    CHECK(at != NULL);
    decode(at + sizeof(name) - 1, &back);
    CHECK_UINT_EQ(back.n, command.n);
    CHECK_MEM_EQ(back.at, command.at, command.n);
    CHECK(memchr(t.at, '\n', t.n) == t.at + t.n - 1);
    struct done *d = read_done(path);
    CHECK(takes(d, 9, false));
    CHECK(!takes(d, 9, false));
    done_free(d);
    text_free(&t);
    text_free(&back);
    CHECK_INT_EQ(unlink(path), 0);
}

TEST(record, brings_back_every_byte_of_a_command)
{
    uint64_t random = test_seed();
    char all[3 * 255];
    for (size_t i = 0; i < 255; i++)
        all[3 * i] = all[3 * i + 1] = all[3 * i + 2] = (char)(i + 1);
    check_comes_back((struct span){all, sizeof(all)});
    check_comes_back(
        span_of("\xed\xa0\x80 \xff \xc3 \xf0\x9f\x98\x80 ü\\u0041"));
    for (int round = 0; round < 200; round++) {
        char bytes[64];
        size_t n = 1 + test_random(&random) % sizeof(bytes);
        for (size_t i = 0; i < n; i++)
            bytes[i] = (char)(1 + test_random(&random) % 255);
        check_comes_back((struct span){bytes, n});
    }
    clean_up();
}

TEST(record, takes_a_command_of_two_megabytes)
{
    enum { LONG = 2 * 1024 * 1024 };
    char *bytes = mem_new(LONG);
    memset(bytes, 'x', LONG);
    check_comes_back((struct span){bytes, LONG});
    memset(bytes, 0xff, LONG); /* six times as long in JSON */
    check_comes_back((struct span){bytes, LONG});
    free(bytes);
    clean_up();
}

TEST(record, adds_to_a_log_that_is_resumed)
{
    const char *path = file("log");
    for (uint64_t i = 1; i <= 3; i++) {
        struct record r = job(i, "true", 0);
        struct log *l = open_log(path, i > 1);
        CHECK_INT_EQ(log_write(l, &r), 0);
        CHECK_INT_EQ(log_close(l), 0);
    }
    struct done *d = read_done(path);
    for (int i = 1; i <= 3; i++)
        CHECK(takes(d, i, false));
    done_free(d);
    clean_up();
}

/* ---- logs that cannot be used -------------------------------------------- */

TEST(record, refuses_a_log_with_something_in_it)
{
    const char *path = put("log", "precious\n");
    check_refused(path, false,
                  "%s is not empty; add --resume to go on with it, "
                  "or remove it");
    check_content(path, "precious\n");
    clean_up();
}

TEST(record, takes_an_empty_file)
{
    const char *path = put("log", "");
    struct done *d = read_done(path);
    CHECK(!takes(d, 0, true));
    done_free(d);
    CHECK_INT_EQ(log_close(open_log(path, false)), 0);
    CHECK_INT_EQ(log_close(open_log(path, true)), 0);
    check_content(path, "");
    clean_up();
}

TEST(record, refuses_a_second_run_and_names_the_first)
{
    char want[64], byte;
    const char *path = file("log");
    int ready[2];
    CHECK_INT_EQ(pipe(ready), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        open_log(path, false);
        CHECK_INT_EQ(write(ready[1], "x", 1), 1);
        pause();
    }
    CHECK_INT_EQ(read(ready[0], &byte, 1), 1);
    snprintf(want, sizeof(want), "%%s is in use by another run (pid %d)",
             (int)child);
    check_refused(path, false, want);
    check_refused(path, true, want);
    CHECK_INT_EQ(kill(child, SIGKILL), 0);
    CHECK_INT_EQ(waitpid(child, NULL, 0), child);
    CHECK_INT_EQ(log_close(open_log(path, false)), 0);
    clean_up();
}

TEST(record, is_not_held_by_what_a_job_leaves_behind)
{
    const char *path = file("log");
    struct log *l = open_log(path, false);
    int started[2];
    char byte;
    CHECK_INT_EQ(pipe2(started, O_CLOEXEC), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execlp("sleep", "sleep", "100", (char *)NULL);
        _exit(127);
    }
    close(started[1]);
    CHECK_INT_EQ(read(started[0], &byte, 1), 0); /* closed by the exec */
    CHECK_INT_EQ(log_close(l), 0);
    CHECK_INT_EQ(log_close(open_log(path, false)), 0);
    CHECK_INT_EQ(kill(child, SIGKILL), 0);
    CHECK_INT_EQ(waitpid(child, NULL, 0), child);
    clean_up();
}

TEST(record, says_why_a_log_cannot_be_opened)
{
    char *error = NULL;
    check_refused(file("."), false, "cannot open %s: Is a directory");
    check_refused(file("none/log"), false,
                  "cannot open %s: No such file or directory");
    CHECK_PTR_EQ(done_read("/", &error), NULL);
    CHECK_STR_EQ(error, "cannot read /: Is a directory");
    free(error);
    CHECK_PTR_EQ(joblog_open("/", false, &error), NULL);
    CHECK_STR_EQ(error, "cannot open /: Is a directory");
    free(error);
    clean_up();
}

TEST(record, says_that_a_folder_is_read_only)
{
    const char *path = file("log");
    CHECK_INT_EQ(chmod(folder, 0555), 0);
    if (geteuid() == 0) /* who may write everywhere */
        CHECK_INT_EQ(seteuid(65534), 0);
    check_refused(path, false, "cannot open %s: Permission denied");
    if (getuid() == 0)
        CHECK_INT_EQ(seteuid(0), 0);
    CHECK_INT_EQ(chmod(folder, 0755), 0);
    clean_up();
}

TEST(record, tells_a_full_disk)
{
    char *error = NULL;
    struct record r = job(1, "x", 0);
    struct log *l = open_log("/dev/full", false);
    CHECK_INT_EQ(log_write(l, &r), ENOSPC);
    CHECK_INT_EQ(log_write(l, &r), ENOSPC);
    CHECK_INT_EQ(log_close(l), 0);
    CHECK_PTR_EQ(joblog_open("/dev/full", false, &error), NULL);
    CHECK_STR_EQ(error, "cannot write to /dev/full: No space left on device");
    free(error);
}

TEST(record, leaves_nothing_torn_when_a_write_ends_early)
{
    const char *path = file("log");
    struct record r = job(1, "some command", 0);
    struct log *l = open_log(path, false);
    CHECK_INT_EQ(log_write(l, &r), 0);
    struct text first = get(path);
    signal(SIGXFSZ, SIG_IGN);
    for (size_t more = 0; more < first.n; more += 13) {
        allow_bytes(first.n + more);
        CHECK_INT_EQ(log_write(l, &r), EFBIG);
        check_content(path, first.at);
    }
    allow_bytes(0);
    CHECK_INT_EQ(log_write(l, &r), 0);
    CHECK_INT_EQ(log_close(l), 0);
    struct text both = get(path);
    CHECK_UINT_EQ(both.n, 2 * first.n);
    text_free(&first);
    text_free(&both);
    clean_up();
}

/* A file that cannot get shorter: what was torn stays torn. */
static const char *open_growing(int *ret_fd)
{
    static char path[64];
    *ret_fd = memfd_create("log", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(*ret_fd >= 0);
    CHECK_INT_EQ(fcntl(*ret_fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", *ret_fd);
    return path;
}

TEST(record, writes_nothing_behind_a_torn_line)
{
    int fd;
    struct stat st;
    const char *path = open_growing(&fd);
    struct record r = job(1, "some command", 0);
    struct log *l = open_log(path, false);
    signal(SIGXFSZ, SIG_IGN);
    allow_bytes(100);
    CHECK_INT_EQ(log_write(l, &r), EFBIG);
    allow_bytes(0);
    CHECK_INT_EQ(log_write(l, &r), EFBIG);
    CHECK_INT_EQ(log_close(l), 0);
    CHECK_INT_EQ(fstat(fd, &st), 0);
    CHECK_INT_EQ(st.st_size, 100);
    check_refused(path, true,
                  "cannot cut off the torn last line of %s: Operation not "
                  "permitted");
}

TEST(record, writes_to_a_pipe_but_cannot_resume_from_it)
{
    char path[64], line[1024];
    int ends[2];
    struct record r = job(1, "x", 0);
    CHECK_INT_EQ(pipe(ends), 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", ends[1]);
    check_refused(path, true, "%s is not a file to --resume from");
    struct log *l = open_log(path, false);
    CHECK_INT_EQ(log_write(l, &r), 0);
    ssize_t n = read(ends[0], line, sizeof(line));
    CHECK(n > 0 && line[0] == '{' && line[n - 1] == '\n');
    signal(SIGPIPE, SIG_IGN);
    close(ends[0]);
    CHECK_INT_EQ(log_write(l, &r), EPIPE);
    CHECK_INT_EQ(log_close(l), 0);
}

/* ---- torn ends ----------------------------------------------------------- */

TEST(record, forgets_a_torn_last_line_wherever_it_was_torn)
{
    const char *path = file("log");
    struct record first = job(1, "a", 0), second = job(2, "b\xff", 3);
    struct log *l = open_log(path, false);
    CHECK_INT_EQ(log_write(l, &first), 0);
    struct text one = get(path);
    CHECK_INT_EQ(log_write(l, &second), 0);
    CHECK_INT_EQ(log_close(l), 0);
    struct text two = get(path);
    for (size_t n = 0; n <= two.n; n++) {
        put_bytes("log", two.at, n);
        struct done *d = read_done(path);
        CHECK_INT_EQ(takes(d, 1, false), n >= one.n);
        CHECK_INT_EQ(takes(d, 2, true), n == two.n);
        done_free(d);
        CHECK_INT_EQ(log_close(open_log(path, true)), 0);
        struct text left = get(path);
        CHECK_UINT_EQ(left.n, n < one.n ? 0 : n < two.n ? one.n : two.n);
        CHECK_MEM_EQ(left.at, two.at, left.n);
        text_free(&left);
    }
    text_free(&one);
    text_free(&two);
    clean_up();
}

TEST(record, cuts_off_a_very_long_torn_line)
{
    struct text t = {0};
    text_add_str(&t, "{\"seq\":1}\n{\"seq\":2,\"command\":\"");
    for (int i = 0; i < 300000; i++)
        text_add_str(&t, "word ");
    const char *path = put_bytes("log", t.at, t.n);
    CHECK_INT_EQ(log_close(open_log(path, true)), 0);
    check_content(path, "{\"seq\":1}\n");
    text_free(&t);
    clean_up();
}

TEST(record, cuts_off_the_nuls_of_a_crash)
{
    static const char left[] = "{\"seq\":1}\n\0\0\0\0\0";
    const char *path = put_bytes("log", left, sizeof(left));
    CHECK_INT_EQ(log_close(open_log(path, true)), 0);
    check_content(path, "{\"seq\":1}\n");
    clean_up();
}

TEST(record, keeps_the_end_of_a_file_that_is_no_log)
{
    static const char *const ends[] = {"# notes\nbuy milk", "x", "{\"a\":1}",
                                       "{\"seq\" : 1"};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        const char *path = put("log", ends[i]);
        check_refused(path, true,
                      "%s is not a log of vow; it was left as it "
                      "is");
        check_content(path, ends[i]);
    }
    clean_up();
}
