/* SPDX-License-Identifier: MIT */
/* bar_test.c - every picture by its exact text, and when pictures are drawn.
 *
 * What a terminal makes of it is seen by eye; here the bar draws into a pipe,
 * and time is what bar_update() is told.
 */
#include "bar.h"

#include "harness.h"

#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct bar_opts bar_with_eta = {.style = BAR_BAR, .eta = true};
static const struct bar_opts plain_with_eta = {.style = BAR_PLAIN, .eta = true};

static const struct bar_state some = {
    .done = 370, .failed = 12, .running = 8, .total = 1000, .now_ms = 46900};

static const char *line(unsigned columns, const struct bar_opts *o,
                        struct bar_state s)
{
    static char into[1024];
    bar_line(into, sizeof(into), columns, o, &s);
    return into;
}

static void use_utf8(void)
{
    CHECK(setlocale(LC_CTYPE, "C.UTF-8") != NULL);
}

/* Columns of a line without escapes: bytes that begin a character. */
static size_t width(const char *s)
{
    size_t n = 0;
    for (; *s != '\0'; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* ---- one line ------------------------------------------------------------ */

TEST(bar, shows_how_far_it_is)
{
    use_utf8();
    CHECK_STR_EQ(line(80, &bar_with_eta, some),
                 " 37% ▕██████████▎                 ▏ 370/1000  12 failed  "
                 "8 running  1m 20s left");
}

TEST(bar, is_ascii_where_nothing_else_is_known)
{
    CHECK_STR_EQ(line(80, &bar_with_eta, some),
                 " 37% [##########>                 ] 370/1000  12 failed  "
                 "8 running  1m 20s left");
    struct bar_state s = {.total = 10};
    CHECK_STR_EQ(line(80, &bar_with_eta, s),
                 "  0% [                                ] 0/10");
    s.done = 10;
    CHECK_STR_EQ(line(80, &bar_with_eta, s),
                 "100% [################################] 10/10");
}

TEST(bar, fills_by_eighths)
{
    static const char *const cells[] = {" ", "▏", "▎", "▍", "▌",
                                        "▋", "▊", "▉", "█"};
    use_utf8();
    for (unsigned i = 0; i <= 8; i++) {
        char want[256];
        struct bar_state s = {.done = 8 + i, .total = 256};
        snprintf(want, sizeof(want),
                 "%3u%% ▕█%s                              ▏ %u/256",
                 (8 + i) * 100 / 256, cells[i], 8 + i);
        CHECK_STR_EQ(line(80, &bar_with_eta, s), want);
    }
}

TEST(bar, leaves_out_what_is_least_important)
{
    static const char *const want[] = {
        " 41% [###>    ] 412/1000  12 failed  8 running  3 retrying  "
        "42 skipped  1m 15s left",
        " 41% [###>    ] 412/1000  12 failed  8 running  3 retrying  "
        "1m 15s left",
        " 41% [###>    ] 412/1000  12 failed  8 running  1m 15s left",
        " 41% [###>    ] 412/1000  12 failed  1m 15s left",
        " 41%  412/1000  12 failed  1m 15s left",
        " 41%  412/1000  12 failed",
        " 41%  412/1000",
        " 41%",
        ""};
    static const unsigned columns[] = {84, 72, 60, 49, 39, 26, 15, 5, 4};
    struct bar_state s = some;
    s.retrying = 3;
    s.skipped = 42;
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
        CHECK_STR_EQ(line(columns[i], &bar_with_eta, s), want[i]);
    for (size_t i = 0; i + 1 < sizeof(columns) / sizeof(columns[0]); i++)
        CHECK(strcmp(line(columns[i] - 1, &bar_with_eta, s), want[i]) != 0);
}

TEST(bar, fits_in_every_width_and_leaves_the_last_column_free)
{
    struct bar_state many[] = {some, some, some};
    many[1].total = 0;
    many[1].open = true;
    many[2].done = many[2].failed = many[2].running = UINT64_MAX / 4;
    many[2].skipped = many[2].retrying = UINT64_MAX / 4;
    many[2].total = UINT64_MAX;
    use_utf8();
    for (size_t i = 0; i < sizeof(many) / sizeof(many[0]); i++) {
        size_t before = 0;
        for (unsigned columns = 1; columns <= 300; columns++) {
            size_t n = width(line(columns, &bar_with_eta, many[i]));
            CHECK(n < columns);
            CHECK(columns < 10 || n > 0 || i == 2);
            before = n;
        }
        CHECK(before > 60);
    }
}

TEST(bar, takes_80_columns_where_none_are_reported)
{
    char want[1024];
    snprintf(want, sizeof(want), "%s", line(80, &bar_with_eta, some));
    CHECK_STR_EQ(line(0, &bar_with_eta, some), want);
}

TEST(bar, never_writes_behind_its_room)
{
    use_utf8();
    const struct bar_opts colored = {
        .style = BAR_BAR, .color = true, .eta = true};
    for (size_t room = 0; room < 200; room++) {
        char *into = malloc(room + 1); /* its end is watched by sanitizers */
        CHECK(into != NULL);
        into[room] = 'x';
        bar_line(into, room, 120, &colored, &some);
        CHECK_INT_EQ(into[room], 'x');
        CHECK(room == 0 || strlen(into) < room);
        free(into);
    }
}

TEST(bar, colors_the_gauge_and_the_failures)
{
    const struct bar_opts colored = {
        .style = BAR_BAR, .color = true, .eta = true};
    CHECK_STR_EQ(line(80, &colored, some),
                 " 37% \033[32m[##########>                 ]\033[m 370/1000  "
                 "\033[31m12 failed\033[m  8 running  1m 20s left");
    const struct bar_opts plain = {.style = BAR_PLAIN, .color = true};
    CHECK_STR_EQ(line(80, &plain, some),
                 "vow: 37%  370/1000  12 failed  8 running");
}

TEST(bar, tells_what_it_knows_of_open_input)
{
    struct bar_state s = some;
    s.total = 0;
    s.open = true;
    s.now_ms = 62999;
    s.done = 2835;
    CHECK_STR_EQ(line(80, &bar_with_eta, s),
                 "2835 done  12 failed  8 running  45/s  1m 02s  "
                 "(input still open)");
    CHECK_STR_EQ(line(60, &bar_with_eta, s),
                 "2835 done  12 failed  8 running  45/s  1m 02s");
    CHECK_STR_EQ(line(10, &bar_with_eta, s), "2835 done");
    s.open = false;
    CHECK_STR_EQ(line(80, &bar_with_eta, s),
                 "2835 done  12 failed  8 running  45/s  1m 02s");
}

TEST(bar, tells_an_estimated_total_as_one)
{
    struct bar_state s = some;
    s.open = true;
    CHECK_STR_EQ(line(80, &bar_with_eta, s),
                 " 37% [#########>                 ] 370/~1000  12 failed  "
                 "8 running  1m 20s left");
    s.done = 1000;
    CHECK_STR_EQ(line(60, &bar_with_eta, s),
                 " 99% [###################] 1000/~1000  12 failed  8 running");
    s.done = 1001; /* it was wrong */
    CHECK_STR_EQ(line(80, &bar_with_eta, s),
                 "1001 done  12 failed  8 running  21/s  46s  "
                 "(input still open)");
}

TEST(bar, is_complete_only_at_the_end)
{
    struct bar_state s = {.done = 99999, .total = 100000};
    CHECK_STR_EQ(line(20, &bar_with_eta, s), " 99%  99999/100000");
    s.done++;
    CHECK_STR_EQ(line(20, &bar_with_eta, s), "100%  100000/100000");
    s = (struct bar_state){.done = UINT64_MAX - 1, .total = UINT64_MAX};
    CHECK_STR_EQ(line(20, &bar_with_eta, s), " 99%");
}

TEST(bar, shows_speed_in_a_unit_that_fits)
{
    static const struct {
        uint64_t done, ms;
        const char *want;
    } speeds[] = {
        {100000, 10000, "100000 done  10000/s  10s"},
        {996, 100000, "996 done  10/s  1m 40s"},
        {990, 100000, "990 done  9.9/s  1m 40s"},
        {100, 100000, "100 done  1.0/s  1m 40s"},
        {50, 100000, "50 done  30/m  1m 40s"},
        {3, 170000, "3 done  1.1/m  2m 50s"},
        {3, 3600000, "3 done  3.0/h  1h 00m"},
        {3, 86400000, "3 done  0.1/h  1d 00h"},
    };
    for (size_t i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++) {
        struct bar_state s = {.done = speeds[i].done, .now_ms = speeds[i].ms};
        CHECK_STR_EQ(line(80, &bar_with_eta, s), speeds[i].want);
    }
}

TEST(bar, foretells_nothing_before_it_knows_enough)
{
    struct bar_state s = {.done = 3, .total = 100, .now_ms = 999};
    CHECK_STR_EQ(line(20, &bar_with_eta, s), "  3%  3/100");
    s.now_ms = 1000;
    CHECK_STR_EQ(line(23, &bar_with_eta, s), "  3%  3/100  33s left");
    s.done = 2;
    CHECK_STR_EQ(line(23, &bar_with_eta, s), "  2% [>        ] 2/100");
    s.done = 7;
    s.running = 8; /* the first ones to end are the fast ones */
    CHECK_STR_EQ(line(23, &bar_with_eta, s), "  7% [>        ] 7/100");
    s = (struct bar_state){.done = 1, .now_ms = 500, .open = true};
    CHECK_STR_EQ(line(80, &bar_with_eta, s), "1 done  (input still open)");
}

TEST(bar, foretells_nothing_silly)
{
    struct bar_state s = {.done = 3, .total = 1000000, .now_ms = 60000};
    CHECK_STR_EQ(line(25, &bar_with_eta, s), "  0%  3/1000000");
    s = (struct bar_state){.done = 100, .total = 100, .now_ms = 60000};
    CHECK_STR_EQ(line(25, &bar_with_eta, s), "100% [#########] 100/100");
    const struct bar_opts no_eta = {.style = BAR_BAR};
    CHECK_STR_EQ(line(60, &no_eta, some),
                 " 37% [#######>             ] 370/1000  12 failed  8 running");
}

TEST(bar, does_not_count_skipped_jobs_as_speed)
{
    struct bar_state s = {
        .done = 10, .skipped = 890, .total = 1000, .now_ms = 10000};
    CHECK_STR_EQ(line(40, &plain_with_eta, s),
                 "vow: 90%  900/1000  1m 40s left");
    CHECK_STR_EQ(line(80, &plain_with_eta, s),
                 "vow: 90%  900/1000  890 skipped  1m 40s left");
}

/* ---- when it draws ------------------------------------------------------- */

static int ends[2];

static void open_into_pipe(enum bar_style style)
{
    CHECK_INT_EQ(pipe2(ends, O_NONBLOCK), 0);
    setenv("LC_ALL", "C", 1);
    bar_open(&(struct bar_opts){.style = style, .fd = ends[1], .eta = true});
}

/* What was written since the last call. */
static const char *written(void)
{
    static char bytes[65536];
    ssize_t n = read(ends[0], bytes, sizeof(bytes) - 1);
    bytes[n > 0 ? n : 0] = '\0';
    return bytes;
}

static const char *update(uint64_t now_ms, uint64_t done)
{
    struct bar_state s = {.done = done, .total = 10, .now_ms = now_ms};
    bar_update(&s);
    return written();
}

#define PICTURE(text) "\r" text "\033[K\r"
#define ERASE "\r\033[K"
#define AT_1 PICTURE(" 10% [###>                            ] 1/10")
#define AT_2 PICTURE(" 20% [######>                         ] 2/10")
#define AT_3 PICTURE(" 30% [#########>                      ] 3/10")

TEST(bar, draws_at_most_ten_times_a_second)
{
    open_into_pipe(BAR_BAR);
    size_t n = 0;
    for (uint64_t ms = 0; ms <= 10000; ms++) {
        struct bar_state s = {.done = ms, .now_ms = ms};
        bar_update(&s);
        if (written()[0] != '\0')
            n++;
    }
    CHECK_UINT_EQ(n, 99); /* from 200 ms on */
}

TEST(bar, draws_later_what_came_too_early)
{
    open_into_pipe(BAR_BAR);
    CHECK_UINT_EQ(bar_next_ms(), 200);
    CHECK_STR_EQ(update(0, 0), "");
    CHECK_STR_EQ(update(199, 1), "");
    CHECK_STR_EQ(update(200, 1), AT_1);
    CHECK_UINT_EQ(bar_next_ms(), 1200); /* the clock goes on */
    CHECK_STR_EQ(update(250, 2), "");
    CHECK_UINT_EQ(bar_next_ms(), 300);
    CHECK_STR_EQ(update(299, 2), "");
    CHECK_STR_EQ(update(300, 2), AT_2);
    CHECK_STR_EQ(update(1299, 2), "");
    CHECK_STR_EQ(update(1300, 2), AT_2);
    bar_close();
    CHECK_STR_EQ(written(), ERASE);
    CHECK_UINT_EQ(bar_next_ms(), UINT64_MAX);
    CHECK_STR_EQ(update(5000, 3), "");
}

TEST(bar, goes_out_of_the_way_and_comes_back)
{
    open_into_pipe(BAR_BAR);
    bar_hide();
    bar_show();
    CHECK_STR_EQ(written(), ""); /* it was not there */
    CHECK_STR_EQ(update(500, 1), AT_1);
    bar_hide();
    CHECK_STR_EQ(written(), ERASE);
    CHECK_STR_EQ(update(550, 2), "");
    bar_hide();
    bar_show(); /* it is still hidden once */
    CHECK_STR_EQ(written(), "");
    bar_show();
    CHECK_STR_EQ(written(), AT_1);
    CHECK_UINT_EQ(bar_next_ms(), 600);
    CHECK_STR_EQ(update(600, 2), AT_2);
    bar_show(); /* once too often */
    CHECK_STR_EQ(written(), "");
    bar_hide();
    CHECK_STR_EQ(written(), ERASE);
    bar_close();
    CHECK_STR_EQ(written(), "");
}

TEST(bar, is_drawn_anew_in_another_size)
{
    open_into_pipe(BAR_BAR);
    bar_resized();
    CHECK_STR_EQ(written(), "");
    CHECK_STR_EQ(update(300, 2), AT_2);
    bar_resized();
    CHECK_STR_EQ(written(), "\r\033[J" AT_2);
    bar_hide();
    CHECK_STR_EQ(written(), ERASE);
    bar_resized();
    CHECK_STR_EQ(written(), "");
    CHECK_STR_EQ(update(400, 3), "");
    bar_resized();
    bar_show();
    CHECK_STR_EQ(written(), AT_3);
}

TEST(bar, tells_a_log_now_and_then)
{
    static const uint64_t want[] = {1, 3, 7, 15, 31, 61, 91, 121, 151, 181};
    open_into_pipe(BAR_PLAIN);
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        struct bar_state s = {.done = 5, .now_ms = want[i] * 1000 - 1};
        CHECK_UINT_EQ(bar_next_ms(), want[i] * 1000);
        bar_update(&s);
        CHECK_STR_EQ(written(), "");
        s.now_ms++;
        bar_update(&s);
        const char *got = written();
        CHECK(strncmp(got, "vow: 5 done  ", 13) == 0);
        CHECK(strchr(got, '\n') == got + strlen(got) - 1);
        bar_hide();
        bar_show();
        CHECK_STR_EQ(written(), "");
    }
    bar_close();
    CHECK_STR_EQ(written(), ""); /* it was told already */
}

TEST(bar, tells_a_log_the_end)
{
    open_into_pipe(BAR_PLAIN);
    CHECK_STR_EQ(update(500, 10), "");
    bar_close();
    CHECK_STR_EQ(written(), "vow: 100%  10/10\n");
    open_into_pipe(BAR_PLAIN);
    bar_close();
    CHECK_STR_EQ(written(), ""); /* of what never began */
}

TEST(bar, writes_nothing_unasked)
{
    open_into_pipe(BAR_NONE);
    CHECK_UINT_EQ(bar_next_ms(), UINT64_MAX);
    CHECK_STR_EQ(update(5000, 5), "");
    bar_hide();
    bar_show();
    bar_resized();
    bar_close();
    CHECK_STR_EQ(written(), "");
}

TEST(bar, is_for_terminals)
{
    CHECK_INT_EQ(pipe2(ends, O_NONBLOCK), 0);
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(terminal >= 0);
    setenv("TERM", "xterm", 1);
    CHECK_INT_EQ(bar_choose("auto", terminal), BAR_BAR);
    CHECK_INT_EQ(bar_choose(NULL, terminal), BAR_BAR);
    CHECK_INT_EQ(bar_choose("bar", terminal), BAR_BAR);
    CHECK_INT_EQ(bar_choose("plain", terminal), BAR_PLAIN);
    CHECK_INT_EQ(bar_choose("none", terminal), BAR_NONE);
    CHECK_INT_EQ(bar_choose("auto", ends[1]), BAR_NONE);
    CHECK_INT_EQ(bar_choose("bar", ends[1]), BAR_NONE);
    CHECK_INT_EQ(bar_choose("plain", ends[1]), BAR_PLAIN);
    setenv("TERM", "dumb", 1);
    CHECK_INT_EQ(bar_choose("auto", terminal), BAR_NONE);
    unsetenv("TERM");
    CHECK_INT_EQ(bar_choose("auto", terminal), BAR_NONE);
}

/* ---- speed, lately ------------------------------------------------------- */

static struct bar_state now_at(uint64_t ms, uint64_t done, uint64_t total)
{
    struct bar_state s = {
        .done = done, .running = 1, .total = total, .now_ms = ms};
    bar_update(&s);
    return s;
}

TEST(bar, goes_by_the_speed_of_late)
{
    struct bar_state s = {0};
    open_into_pipe(BAR_BAR);
    /* A hundred a second for a minute, then one for three. */
    for (uint64_t ms = 0; ms <= 60000; ms += 10)
        s = now_at(ms, ms / 10, 10000);
    CHECK_STR_EQ(line(40, &plain_with_eta, s),
                 "vow: 60%  6000/10000  40s left");
    for (uint64_t ms = 61000; ms <= 240000; ms += 1000)
        s = now_at(ms, 6000 + (ms - 60000) / 1000, 10000);
    CHECK_STR_EQ(line(40, &plain_with_eta, s),
                 "vow: 61%  6180/10000  1h 03m left");
}

TEST(bar, forgets_an_early_burst_at_all_times)
{
    struct bar_state s = {0};
    open_into_pipe(BAR_BAR);
    for (uint64_t ms = 0; ms < 60000; ms += 10)
        now_at(ms, ms / 10, 0);
    for (uint64_t ms = 60000; ms <= 2000000; ms += 1000) {
        s = now_at(ms, 6000 + (ms - 60000) / 1000, 0);
        written();
        if (ms >= 90000)
            CHECK(strstr(line(80, &plain_with_eta, s), "  1.0/s  ") != NULL);
    }
}

TEST(bar, is_not_carried_away_by_a_moment)
{
    struct bar_state s = {0};
    open_into_pipe(BAR_BAR);
    for (uint64_t ms = 0; ms <= 100000; ms += 1000)
        now_at(ms, ms / 1000, 0);
    s = now_at(100500, 125, 0); /* 25 at once */
    CHECK_STR_EQ(line(80, &plain_with_eta, s),
                 "vow: 125 done  1 running  1.9/s  1m 40s");
}

TEST(bar, looks_back_as_far_as_slow_jobs_need)
{
    struct bar_state s = {0};
    open_into_pipe(BAR_BAR);
    for (uint64_t second = 0; second <= 630; second++)
        s = now_at(second * 1000, second / 60, 20); /* one a minute */
    CHECK_STR_EQ(line(60, &plain_with_eta, s),
                 "vow: 50%  10/20  1 running  10m 30s left");
}

TEST(bar, is_silent_when_the_last_jobs_are_of_another_kind)
{
    struct bar_state s = {0};
    open_into_pipe(BAR_BAR);
    for (uint64_t ms = 0; ms <= 99000; ms += 1000)
        s = now_at(ms, ms / 1000, 100);
    CHECK_STR_EQ(line(40, &plain_with_eta, s),
                 "vow: 99%  99/100  1 running  1s left");
    s = now_at(105000, 99, 100);
    CHECK_STR_EQ(line(40, &plain_with_eta, s), "vow: 99%  99/100  1 running");
}
