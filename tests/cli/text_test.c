/* SPDX-License-Identifier: MIT */
/* text_test.c - growing bytes, JSON and sh spellings, and lines on stderr.
 *
 * What is quoted goes through a real sh and must come back to the byte. Lines
 * are read from a pipe that keeps writes apart (O_DIRECT), so that a line made
 * of two writes would be seen.
 */
#include "child_kit.h"
#include "harness.h"
#include "say.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROOM = 8192 };

static void check_json(const char *at, size_t n, const char *want);
static void check_quoted(const char *s, const char *want);
static void check_through_sh(const char *sh, struct span s);
static int stderr_to_pipe(void);
static size_t packet(int fd, char *into);

TEST(text, grows_and_keeps_a_nul_behind)
{
    struct text t = {0};
    for (int i = 0; i < 10000; i++)
        text_add(&t, "ab", 2);
    CHECK_UINT_EQ(t.n, 20000);
    CHECK_UINT_EQ(strlen(t.at), 20000);
    text_clear(&t);
    CHECK_UINT_EQ(t.n, 0);
    CHECK_STR_EQ(t.at, "");
    text_free(&t);
    CHECK(t.at == NULL);
    text_free(&t);
}

TEST(text, adds_nothing_as_an_empty_string)
{
    struct text t = {0};
    text_clear(&t);
    CHECK(t.at == NULL);
    text_add(&t, NULL, 0);
    CHECK_STR_EQ(t.at, "");
    text_free(&t);
}

TEST(text, keeps_nul_bytes)
{
    struct text t = {0};
    text_add(&t, "a\0b", 3);
    CHECK_UINT_EQ(text_span(&t).n, 3);
    CHECK_MEM_EQ(text_span(&t).at, "a\0b", 4);
    text_free(&t);
}

TEST(text, formats_at_every_length)
{
    for (int n = 0; n < 300; n++) {
        struct text t = {0};
        text_add_str(&t, "x");
        text_addf(&t, "%0*d|", n, 7);
        CHECK_UINT_EQ(t.n, (size_t)(n < 1 ? 1 : n) + 2);
        CHECK_UINT_EQ(strlen(t.at), t.n);
        CHECK(t.at[t.n - 1] == '|');
        text_free(&t);
    }
}

TEST(text, memory_is_zeroed_and_copies_end_with_nul)
{
    char *p = mem_new(100);
    for (size_t i = 0; i < 100; i++)
        CHECK_INT_EQ(p[i], 0);
    p = mem_resize(p, 0);
    free(p);
    p = mem_copy("abc", 2);
    CHECK_STR_EQ(p, "ab");
    free(p);
    p = mem_copy(NULL, 0);
    CHECK_STR_EQ(p, "");
    free(p);
}

static void ask_for_too_much(void *arg)
{
    (void)arg;
    /* volatile: the compiler knows that nobody has so much */
    volatile size_t n = SIZE_MAX / 4;
    mem_new(n);
}

static void add_too_much(void *arg)
{
    (void)arg;
    struct text t = {0};
    text_add(&t, "", SIZE_MAX - 1);
}

/* A sanitizer would end the program itself. */
TEST_OPTS(text, no_memory_ends_the_program_with_125,
          .hidden = TEST_ASAN || TEST_TSAN)
{
    char said[ROOM];
    CHECK_INT_EQ(run_in_child(ask_for_too_much, NULL, said, ROOM), EXIT_BROKEN);
    CHECK_STR_EQ(said, "vow: out of memory\n");
}

TEST(text, too_long_ends_the_program_with_125)
{
    char said[ROOM];
    CHECK_INT_EQ(run_in_child(add_too_much, NULL, said, ROOM), EXIT_BROKEN);
    CHECK_STR_EQ(said, "vow: out of memory\n");
}

TEST(text, spans_compare_whole)
{
    CHECK(span_is(span_of("map"), "map"));
    CHECK(!span_is(span_of("map"), "ma"));
    CHECK(!span_is(span_of("ma"), "map"));
    CHECK(span_is((struct span){0}, ""));
    CHECK(!span_is((struct span){.at = "a\0b", .n = 3}, "a"));
}

TEST(text, json_escapes_what_it_must)
{
    check_json("", 0, "\"\"");
    check_json("plain", 5, "\"plain\"");
    check_json("\"\\/", 3, "\"\\\"\\\\/\"");
    check_json("\b\f\n\r\t", 5, "\"\\b\\f\\n\\r\\t\"");
    check_json("\0\1\x1f\x7f", 4, "\"\\u0000\\u0001\\u001f\\u007f\"");
    check_json("a\0b", 3, "\"a\\u0000b\"");
}

TEST(text, json_keeps_utf8)
{
    const char s[] = "\xc2\x80 \xdf\xbf \xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 "
                     "\xf0\x90\x80\x80 \xf4\x8f\xbf\xbf";
    struct text want = {0};
    text_addf(&want, "\"%s\"", s);
    check_json(s, sizeof(s) - 1, want.at);
    text_free(&want);
}

TEST(text, json_tells_bytes_that_are_no_utf8)
{
    check_json("\xff", 1, "\"\\udcff\"");
    check_json("\x80", 1, "\"\\udc80\"");
    check_json("a\xc3", 2, "\"a\\udcc3\"");          /* cut short */
    check_json("\xc3(", 2, "\"\\udcc3(\"");          /* no follower */
    check_json("\xc0\xaf", 2, "\"\\udcc0\\udcaf\""); /* overlong */
    check_json("\xe0\x80\xaf", 3, "\"\\udce0\\udc80\\udcaf\"");
    check_json("\xf0\x80\x80\x80", 4, "\"\\udcf0\\udc80\\udc80\\udc80\"");
    check_json("\xed\xa0\x80", 3, "\"\\udced\\udca0\\udc80\""); /* surrogate */
    check_json("\xf4\x90\x80\x80", 4, "\"\\udcf4\\udc90\\udc80\\udc80\"");
    check_json("\xe2\x82\xac", 2, "\"\\udce2\\udc82\"");
    check_json("\xf5\x80\x80\x80", 4, "\"\\udcf5\\udc80\\udc80\\udc80\"");
}

static void check_json(const char *at, size_t n, const char *want)
{
    struct text t = {0};
    text_add_json(&t, (struct span){.at = at, .n = n});
    CHECK_STR_EQ(t.at, want);
    text_free(&t);
}

TEST(text, quotes_only_what_needs_it)
{
    check_quoted("a.b/c-d_e:f,g@h+i", "a.b/c-d_e:f,g@h+i");
    check_quoted("-j8", "-j8");
    check_quoted("--rate=5", "--rate=5");
    check_quoted("50%", "50%");
    check_quoted("", "''");
    check_quoted("a b", "'a b'");
    check_quoted("it's", "'it'\\''s'");
    check_quoted("'", "''\\'''");
    check_quoted("a\nb", "'a\nb'");
    check_quoted("~", "'~'");
    check_quoted("#", "'#'");
    check_quoted("!!", "'!!'");
    check_quoted("{}", "'{}'");
    check_quoted("\xff", "'\xff'");
}

TEST(text, quotes_what_a_first_word_would_mean)
{
    check_quoted("A=b", "'A=b'");
    check_quoted("=ls", "'=ls'");
    check_quoted("%1", "'%1'");
    check_quoted("while", "'while'");
    check_quoted("whiles", "whiles");
}

static void check_quoted(const char *s, const char *want)
{
    struct text t = {0};
    text_add_quoted(&t, span_of(s));
    CHECK_STR_EQ(t.at, want);
    text_free(&t);
}

TEST(text, quoted_words_come_back_from_sh_to_the_byte)
{
    static const char *const values[] = {
        "",      "'",       "''",    "\"",       "$(echo no)", "`echo no`",
        ";",     "a;b",     "\n",    "a\n",      "\na",        "-n",
        "--",    "*",       "?",     "[a-z]",    "\\",         "a\\",
        "\\'",   "'\\",     "~",     "~root",    "{}",         "{a,b}",
        "$HOME", "${HOME}", "!",     "!!",       "#",          "a#",
        "&",     "|",       "<",     ">",        "(",          ")",
        "a b",   " ",       "\t",    "\xff\xfe", "\x01\x7f",   "\xc3\xa9",
        "A=b",   "if",      "time",  "^",        "a=~",        "%1",
        "=",     "''''",    "a'b'c", "\r",       "in"};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        check_through_sh("/bin/sh", span_of(values[i]));
        check_through_sh("/bin/bash", span_of(values[i]));
    }
}

TEST(text, any_bytes_come_back_from_sh)
{
    uint64_t seed = test_seed();
    for (int i = 0; i < 50; i++) {
        char s[40];
        size_t n = test_random(&seed) % sizeof(s);
        for (size_t k = 0; k < n; k++)
            s[k] = (char)(1 + test_random(&seed) % 255);
        check_through_sh("/bin/sh", (struct span){.at = s, .n = n});
    }
}

static void check_through_sh(const char *sh, struct span s)
{
    struct text script = {0};
    int fds[2];
    char got[256];
    size_t n = 0;
    text_add_str(&script, "printf '%s.' ");
    text_add_quoted(&script, s);
    CHECK_INT_EQ(pipe(fds), 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        dup2(fds[1], STDOUT_FILENO);
        execl(sh, sh, "-c", script.at, (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    for (ssize_t more; (more = read(fds[0], got + n, sizeof(got) - n)) > 0;)
        n += (size_t)more;
    close(fds[0]);
    CHECK_INT_EQ(waitpid(pid, NULL, 0), pid);
    CHECK_UINT_EQ(n, s.n + 1);
    CHECK_MEM_EQ(got, s.at, s.n);
    text_free(&script);
}

TEST(say, is_one_write_with_the_name_before)
{
    char got[ROOM];
    int fd = stderr_to_pipe();
    say("job %d failed", 3);
    say("%s", "");
    CHECK_UINT_EQ(packet(fd, got), 18);
    CHECK_STR_EQ(got, "vow: job 3 failed\n");
    packet(fd, got);
    CHECK_STR_EQ(got, "vow: \n");
}

TEST(say, does_not_name_itself_twice)
{
    char got[ROOM];
    int fd = stderr_to_pipe();
    say("vow map: no");
    packet(fd, got);
    CHECK_STR_EQ(got, "vow map: no\n");
    say("%s", "vow map: no");
    packet(fd, got);
    CHECK_STR_EQ(got, "vow: vow map: no\n");
}

/* Around the length where the line no longer fits on the stack. */
TEST(say, writes_lines_of_any_length_whole)
{
    char got[ROOM];
    int fd = stderr_to_pipe();
    for (int n = 1000; n < 1040; n++) {
        say("%0*d!", n, 0);
        CHECK_UINT_EQ(packet(fd, got), (size_t)n + 7);
        CHECK_STR_EQ(got + 5 + n, "!\n");
    }
    say("%04000d!", 0);
    CHECK_UINT_EQ(packet(fd, got), 4007);
}

TEST(say, keeps_errno_and_may_tell_it)
{
    char got[ROOM];
    int fd = stderr_to_pipe();
    errno = ENOENT;
    say("%01100d %m", 0);
    CHECK_INT_EQ(errno, ENOENT);
    packet(fd, got);
    CHECK_STR_EQ(got + 5 + 1100, " No such file or directory\n");
    close(STDERR_FILENO);
    errno = ENOENT;
    say("nobody hears this");
    CHECK_INT_EQ(errno, ENOENT);
}

static void take_away(void)
{
    errno = EIO;
    CHECK_INT_EQ(write(STDERR_FILENO, "<", 1), 1);
}

static void bring_back(void)
{
    errno = EIO;
    say("inside");
    CHECK_INT_EQ(write(STDERR_FILENO, ">", 1), 1);
}

TEST(say, calls_the_hooks_around_but_not_for_their_own_lines)
{
    char got[ROOM];
    int fd = stderr_to_pipe();
    say_around(take_away, bring_back);
    errno = ENOENT;
    say("%m");
    CHECK_INT_EQ(errno, ENOENT);
    packet(fd, got);
    CHECK_STR_EQ(got, "<");
    packet(fd, got);
    CHECK_STR_EQ(got, "vow: No such file or directory\n");
    packet(fd, got);
    CHECK_STR_EQ(got, "vow: inside\n");
    packet(fd, got);
    CHECK_STR_EQ(got, ">");
    say_around(NULL, NULL);
    say("alone");
    packet(fd, got);
    CHECK_STR_EQ(got, "vow: alone\n");
}

TEST(say, waits_for_a_reader_that_is_slow)
{
    char got[ROOM];
    size_t n = 0;
    int fds[2];
    CHECK_INT_EQ(pipe2(fds, O_NONBLOCK), 0);
    CHECK(fcntl(fds[1], F_SETPIPE_SZ, 4096) >= 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        dup2(fds[1], STDERR_FILENO);
        say("%020000d", 0); /* more than the pipe holds */
        _exit(0);
    }
    close(fds[1]);
    CHECK_INT_EQ(fcntl(fds[0], F_SETFL, 0), 0);
    for (ssize_t more; (more = read(fds[0], got, sizeof(got))) > 0;)
        n += (size_t)more;
    CHECK_UINT_EQ(n, 20006);
    CHECK_INT_EQ(waitpid(pid, NULL, 0), pid);
}

static void die_with_hooks(void *arg)
{
    (void)arg;
    say_around(take_away, bring_back);
    errno = ENOENT;
    die(7, "first: %m");
}

static void die_plainly(void *arg)
{
    (void)arg;
    printf("buffered"); /* exit() must write it */
    die(3, "no");
}

TEST(say, dies_with_its_code_and_line)
{
    char said[ROOM];
    CHECK_INT_EQ(run_in_child(die_plainly, NULL, said, ROOM), 3);
    CHECK_STR_EQ(said, "vow: no\nbuffered");
}

/* The bar goes away, and does not come back. */
TEST(say, dies_with_the_hook_before_and_not_the_one_behind)
{
    char said[ROOM];
    CHECK_INT_EQ(run_in_child(die_with_hooks, NULL, said, ROOM), 7);
    CHECK_STR_EQ(said, "<vow: first: No such file or directory\n");
}

static int stderr_to_pipe(void)
{
    int fds[2];
    CHECK_INT_EQ(pipe2(fds, O_DIRECT), 0);
    dup2(fds[1], STDERR_FILENO);
    close(fds[1]);
    return fds[0];
}

/* What one write gave. */
static size_t packet(int fd, char *into)
{
    ssize_t n = read(fd, into, ROOM - 1);
    CHECK(n > 0);
    into[n] = '\0';
    return (size_t)n;
}
