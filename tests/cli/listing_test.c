/* SPDX-License-Identifier: MIT */
/* listing_test.c - names and pools as a table and as JSON.
 *
 * Labels are what others chose: every control character, and whatever turns the
 * direction of writing, must come out as an escape.
 */
#include "harness.h"
#include "listing.h"
#include "table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static vow_record record_of(const char *label, uint32_t status);
static vow_pool_info pool_of(const char *label, uint32_t concurrent);
static char *names_of(const vow_record *records, size_t n, size_t width);
static char *pools_of(const vow_pool_info *pools, size_t n, size_t width);
static void check_cell(const char *bytes, size_t n, const char *want);
static size_t columns(const char *line, size_t n);
static void check_width(const char *text, size_t width);

/* ---- cells --------------------------------------------------------------- */

TEST(table, leaves_plain_text_and_letters_of_all_languages_alone)
{
    check_cell("a b~!\"'", 7, "a b~!\"'");
    check_cell("grün 日本", 12, "grün 日本");
}

TEST(table, escapes_every_control_character)
{
    check_cell("\a\b\t\n\v\f\r\\", 8, "\\a\\b\\t\\n\\v\\f\\r\\\\");
    check_cell("\x1b[2J", 4, "\\x1b[2J");
    check_cell("\0", 1, "\\x00");
    check_cell("\x7f", 1, "\\x7f");
    check_cell("\xc2\x9b", 2, "\\u009b");
    for (unsigned c = 1; c < 0x20; c++) {
        struct table t = {.align = "l"};
        char bytes[1] = {(char)c};
        table_add(&t, (struct span){.at = bytes, .n = 1}, 0);
        CHECK(t.cells[0][0] == '\\');
        table_free(&t);
    }
}

TEST(table, escapes_what_turns_or_hides_text)
{
    check_cell("\xe2\x80\xae", 3, "\\u202e"); /* right to left */
    check_cell("\xe2\x81\xa7", 3, "\\u2067");
    check_cell("\xe2\x80\x8b", 3, "\\u200b"); /* no width */
    check_cell("\xe2\x80\xa8", 3, "\\u2028"); /* a line */
    check_cell("\xef\xbb\xbf", 3, "\\ufeff");
}

TEST(table, escapes_bytes_that_are_no_text)
{
    check_cell("\xff", 1, "\\xff");
    check_cell("a\xc3", 2, "a\\xc3");
    check_cell("\xed\xa0\x80", 3, "\\xed\\xa0\\x80");
}

TEST(table, aligns_columns_and_ends_lines_without_blanks)
{
    struct table t = {.align = "lrl"};
    struct text out = {0};
    const char *cells[] = {"NAME", "N",      "X", "a", "100",
                           "y",    "longer", "7", "z"};
    for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++)
        table_addf(&t, "%s", cells[i]);
    table_show(&t, 80, &out);
    CHECK_STR_EQ(out.at, "NAME     N X\n"
                         "a      100 y\n"
                         "longer   7 z\n");
    text_free(&out);
    table_free(&t);
}

TEST(table, cuts_the_first_column_to_the_window_and_no_other)
{
    struct table t = {.align = "ll"};
    struct text out = {0};
    table_addf(&t, "a name of many words");
    table_addf(&t, "kept as it is");
    table_show(&t, 24, &out);
    CHECK_STR_EQ(out.at, "a name of… kept as it is\n");
    text_clear(&out);
    table_show(&t, 3, &out); /* never less than it needs to be told apart */
    CHECK_STR_EQ(out.at, "a name … kept as it is\n");
    text_free(&out);
    table_free(&t);
}

TEST(table, counts_wide_characters_as_two_columns_and_accents_as_none)
{
    struct table t = {.align = "lr"};
    struct text out = {0};
    const char *names[] = {"日本", "abcd", "e\xcc\x81"};
    for (size_t i = 0; i < 3; i++) {
        table_addf(&t, "%s", names[i]);
        table_addf(&t, "1");
    }
    table_show(&t, 80, &out);
    CHECK_STR_EQ(out.at, "日本 1\nabcd 1\ne\xcc\x81    1\n");
    text_free(&out);
    table_free(&t);
    struct table cut = {.align = "l"};
    table_add(&cut, span_of("日本語"), 4); /* half of one does not go */
    CHECK_STR_EQ(cut.cells[0], "日…");
    table_free(&cut);
}

/* ---- tables -------------------------------------------------------------- */

TEST(listing, says_nothing_of_nothing)
{
    struct text out = {0};
    listing_names(&out, &(vow_records){.n = 0}, 80);
    listing_pools(&out, &(vow_pools){.n = 0}, 80);
    CHECK_UINT_EQ(out.n, 0);
    text_free(&out);
}

TEST(listing, shows_names_that_run_first)
{
    vow_record all[] = {record_of("old", VOW_STATUS_SETTLED),
                        record_of("bad", VOW_STATUS_SETTLED),
                        record_of("unsure", VOW_STATUS_DOUBT),
                        record_of("nightly", VOW_STATUS_WAITING)};
    all[0].left_ms = 7200000;
    all[1].failed = true;
    all[1].left_ms = UINT64_MAX;
    all[3].age_ms = 192000;
    char *out = names_of(all, 4, 80);
    CHECK_STR_EQ(out,
                 "NAME    STATE   RUNNER   AGE PULSE WAITERS LEFT FENCE\n"
                 "nightly running vm:1234   3m 250ms       2 9.2s    17\n"
                 "unsure  doubt   vm:1234 1.5s     -       2 9.2s    17\n"
                 "bad     failed  vm:1234 1.5s     -       2    -    17\n"
                 "old     done    vm:1234 1.5s     -       2   2h    17\n");
    free(out);
}

TEST(listing, fits_into_eighty_columns_whatever_is_in_it)
{
    char label[VOW_LABEL_MAX + 1];
    memset(label, 'x', VOW_LABEL_MAX);
    label[VOW_LABEL_MAX] = '\0';
    vow_record r = record_of(label, VOW_STATUS_WAITING);
    r.runner = "a-host-with-a-very-long-name.example.org:4194304";
    r.epoch = 1794804892000000;
    r.age_ms = UINT64_MAX / 2;
    r.pulse_ms = 999;
    r.waiters = 9999;
    char *out = names_of(&r, 1, 80);
    CHECK(strstr(out, "…") != NULL);
    CHECK(strstr(out, ":4194304") != NULL);
    CHECK(strstr(out, "1794804892000000\n") != NULL);
    free(out);
    r.age_ms = 99 * 86400000ULL;
    out = names_of(&r, 1, 80);
    check_width(out, 80);
    free(out);
    vow_pool_info p = pool_of(label, 1 << 20);
    p.held = 1 << 20;
    p.limits.rate = 1 << 24;
    p.limits.window_us = 333334;
    p.rate_used = 1 << 24;
    out = pools_of(&p, 1, 80);
    check_width(out, 80);
    free(out);
}

TEST(listing, shows_the_hash_of_a_name_without_a_label)
{
    vow_record r = record_of("", VOW_STATUS_WAITING);
    char printed[VOW_NAME_TEXT];
    r.name = vow_name_of("x");
    r.runner = "";
    char *out = names_of(&r, 1, 200);
    CHECK(strstr(out, vow_name_text(&r.name, printed)) != NULL);
    CHECK(strstr(out, "running -") != NULL);
    free(out);
}

TEST(listing, does_not_let_a_label_act_on_the_terminal)
{
    vow_record r =
        record_of("a\x1b]0;title\x07\n\xe2\x80\xae", VOW_STATUS_WAITING);
    r.runner = "\x1b[31m:1";
    char *out = names_of(&r, 1, 200);
    CHECK(strstr(out, "a\\x1b]0;title\\a\\n\\u202e") != NULL);
    CHECK(strstr(out, "\\x1b[31m:1") != NULL);
    CHECK(strchr(out, '\x1b') == NULL);
    free(out);
}

TEST(listing, shows_all_of_a_runner_if_there_is_room)
{
    vow_record r = record_of("x", VOW_STATUS_WAITING);
    r.runner = "a-host-with-a-name.example:4194304";
    char *out = names_of(&r, 1, 80);
    CHECK(strstr(out, r.runner) != NULL);
    check_width(out, 80);
    free(out);
}

TEST(listing, shows_pools_with_what_is_used_of_what)
{
    vow_pool_info all[] = {pool_of("heavy", 4), pool_of("api", 20)};
    all[0].held = 3;
    all[0].waiting = 12;
    all[1].limits.rate = 50;
    all[1].limits.window_us = 1000000;
    all[1].rate_used = 49;
    char *out = pools_of(all, 2, 80);
    CHECK_STR_EQ(out, "api    running 0/20  rate 49/50 per 1s  queue 0\n"
                      "heavy  running 3/4                      queue 12\n");
    free(out);
    out = pools_of(all, 1, 80);
    CHECK_STR_EQ(out, "heavy  running 3/4  queue 12\n");
    free(out);
    all[0].limits.concurrent = 0;
    out = pools_of(all, 1, 80);
    CHECK_STR_EQ(out, "heavy  running 3  queue 12\n");
    free(out);
}

TEST(listing, shows_a_lock_as_a_lock_and_slots_as_slots)
{
    vow_pool_info all[] = {
        pool_of("lock:a", LOCK_PLACES), pool_of("lock:b", LOCK_PLACES),
        pool_of("lock:c", LOCK_PLACES), pool_of("other", LOCK_PLACES),
        pool_of("slots:gpu", 2)};
    all[0].held = LOCK_PLACES;
    all[1].held = 3;
    all[4].held = 1;
    char *out = pools_of(all, 5, 80);
    CHECK_STR_EQ(out, "other  running 0/1048576  queue 0\n"
                      "gpu    slots 1/2          queue 0\n"
                      "a      locked             queue 0\n"
                      "b      shared by 3        queue 0\n"
                      "c      free               queue 0\n");
    free(out);
}

TEST(listing, knows_locks_that_nobody_has)
{
    vow_pool_info p = pool_of("lock:a", LOCK_PLACES);
    CHECK(listing_is_idle_lock(&p));
    p.waiting = 1;
    CHECK(!listing_is_idle_lock(&p));
    p.waiting = 0;
    p.holders = 1;
    CHECK(!listing_is_idle_lock(&p));
    p = pool_of("slots:a", 3);
    CHECK(listing_is_idle_lock(&p));
    p = pool_of("a", 3);
    CHECK(!listing_is_idle_lock(&p));
}

TEST(listing, says_limits_as_options)
{
    char into[LISTING_LIMITS];
    vow_pool_limits l = {.concurrent = 20, .rate = 50, .window_us = 1000000};
    CHECK_STR_EQ(listing_limits(&l, into), "-j 20 and 50/1s");
    l.concurrent = 0;
    l.window_us = 500000;
    CHECK_STR_EQ(listing_limits(&l, into), "50/500ms");
    l.window_us = 333334;
    CHECK_STR_EQ(listing_limits(&l, into), "50/333334us");
    l.window_us = 7200000000;
    CHECK_STR_EQ(listing_limits(&l, into), "50/2h");
    l = (vow_pool_limits){.concurrent = 4};
    CHECK_STR_EQ(listing_limits(&l, into), "-j 4");
    l.concurrent = 0;
    CHECK_STR_EQ(listing_limits(&l, into), "no limits");
}

/* ---- JSON ---------------------------------------------------------------- */

TEST(listing, tells_programs_everything_of_a_name)
{
    struct text out = {0}, want = {0};
    char printed[VOW_NAME_TEXT];
    vow_record r = record_of("a\"\n", VOW_STATUS_WAITING);
    r.left_ms = UINT64_MAX;
    listing_name_json(&out, &r);
    text_addf(&want,
              "{\"kind\":\"name\",\"name\":\"a\\\"\\n\",\"id\":\"%s\","
              "\"state\":\"running\",\"mode\":\"shared\","
              "\"runner\":\"vm:1234\",\"age_ms\":1500,\"pulse_ms\":250,"
              "\"waiters\":2,\"left_ms\":null,\"fence\":17,\"takeovers\":0,"
              "\"cost_ms\":null}\n",
              vow_name_text(&r.name, printed));
    CHECK_STR_EQ(out.at, want.at);
    r.status = VOW_STATUS_SETTLED;
    r.left_ms = 60000;
    r.cost_ms = 12;
    text_clear(&out);
    listing_name_json(&out, &r);
    CHECK(strstr(out.at, "\"state\":\"done\"") != NULL);
    CHECK(strstr(out.at, "\"pulse_ms\":null") != NULL);
    CHECK(strstr(out.at, "\"left_ms\":60000") != NULL);
    CHECK(strstr(out.at, "\"cost_ms\":12}") != NULL);
    text_free(&out);
    text_free(&want);
}

TEST(listing, tells_programs_everything_of_a_pool)
{
    struct text out = {0};
    vow_pool_info p = pool_of("api", 20);
    p.held = 3;
    p.holders = 2;
    p.waiting = 1;
    listing_pool_json(&out, &p);
    CHECK(strstr(out.at, "{\"kind\":\"pool\",\"name\":\"api\",") == out.at);
    CHECK(strstr(out.at, "\"running\":3,\"limit\":20,"
                         "\"holders\":2,\"queue\":1,\"rate_used\":0,"
                         "\"rate\":null,\"window_ms\":null}\n") != NULL);
    p.limits = (vow_pool_limits){.rate = 50, .window_us = 1000000};
    text_clear(&out);
    listing_pool_json(&out, &p);
    CHECK(strstr(out.at, "\"limit\":null,") != NULL);
    CHECK(strstr(out.at, "\"rate\":50,\"window_ms\":1000}") != NULL);
    p.limits.window_us = 333034;
    text_clear(&out);
    listing_pool_json(&out, &p);
    CHECK(strstr(out.at, "\"window_ms\":333.034}") != NULL);
    text_free(&out);
}

TEST(listing, tells_programs_of_a_lock_who_has_it_not_its_places)
{
    struct text out = {0};
    vow_pool_info p = pool_of("lock:deploy:eu", LOCK_PLACES);
    p.held = LOCK_PLACES;
    p.holders = 1;
    listing_pool_json(&out, &p);
    CHECK(strstr(out.at, "{\"kind\":\"lock\",\"name\":\"deploy:eu\",") ==
          out.at);
    CHECK(strstr(out.at, "\"running\":1,\"limit\":1,") != NULL);
    p.held = p.holders = 3; /* shared */
    text_clear(&out);
    listing_pool_json(&out, &p);
    CHECK(strstr(out.at, "\"running\":3,\"limit\":null,") != NULL);
    text_clear(&out);
    p = pool_of("slots:gpu", 2);
    listing_pool_json(&out, &p);
    CHECK(strstr(out.at, "{\"kind\":\"slots\",\"name\":\"gpu\",") == out.at);
    CHECK(strstr(out.at, "\"running\":0,\"limit\":2,") != NULL);
    text_free(&out);
}

TEST(listing, tells_states_apart)
{
    vow_record r = {.status = VOW_STATUS_SETTLED};
    CHECK_STR_EQ(listing_state(&r), "done");
    r.failed = true;
    CHECK_STR_EQ(listing_state(&r), "failed");
    r.status = VOW_STATUS_WAITING;
    CHECK_STR_EQ(listing_state(&r), "running");
    r.status = VOW_STATUS_OWNED;
    CHECK_STR_EQ(listing_state(&r), "running");
    r.status = VOW_STATUS_DOUBT;
    CHECK_STR_EQ(listing_state(&r), "doubt");
    r.status = VOW_STATUS_NONE;
    CHECK_STR_EQ(listing_state(&r), "lost");
}

/* ---- what the tests are made with ---------------------------------------- */

static vow_record record_of(const char *label, uint32_t status)
{
    return (vow_record){.name = {{1}},
                        .status = status,
                        .epoch = 17,
                        .waiters = 2,
                        .age_ms = 1500,
                        .pulse_ms = 250,
                        .left_ms = 9299,
                        .label = label,
                        .runner = "vm:1234"};
}

static vow_pool_info pool_of(const char *label, uint32_t concurrent)
{
    return (vow_pool_info){
        .pool = {{2}}, .label = label, .limits.concurrent = concurrent};
}

static char *names_of(const vow_record *records, size_t n, size_t width)
{
    struct text out = {0};
    listing_names(&out, &(vow_records){.n = n, .at = records}, width);
    return out.at;
}

static char *pools_of(const vow_pool_info *pools, size_t n, size_t width)
{
    struct text out = {0};
    listing_pools(&out, &(vow_pools){.n = n, .at = pools}, width);
    return out.at;
}

static void check_cell(const char *bytes, size_t n, const char *want)
{
    struct table t = {.align = "l"};
    table_add(&t, (struct span){.at = bytes, .n = n}, 0);
    CHECK_STR_EQ(t.cells[0], want);
    table_free(&t);
}

/* Of text whose characters are all one column wide. */
static size_t columns(const char *line, size_t n)
{
    size_t wide = 0;
    for (size_t i = 0; i < n; i++)
        wide += ((unsigned char)line[i] & 0xc0) != 0x80;
    return wide;
}

static void check_width(const char *text, size_t width)
{
    while (*text != '\0') {
        size_t n = strcspn(text, "\n");
        CHECK(columns(text, n) <= width);
        text += n + 1;
    }
}
