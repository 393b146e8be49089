/* SPDX-License-Identifier: MIT */
/* follow_test.c - who follows a run sees nothing twice, whoever runs it next.
 */
#include "child_kit.h"
#include "emit.h"
#include "harness.h"
#include "poller.h"
#include "show.h"

#include <string.h>

enum { ROOM = 4096 };

/* "NULL" begins a new attempt; a leading '!' is for stderr. */
struct play {
    const char *const *parts;
    uint64_t most;
};

static void act(void *play);
static void none_fails(int fd, int error);
static void room(void);
static void check_shown(const char *const *parts, const char *want);

#define SHOWN(want, ...)                                                       \
    check_shown((const char *const[]){__VA_ARGS__, NULL}, want)

TEST(follow, shows_what_comes)
{
    SHOWN("onetwo", "one", "two");
}

TEST(follow, passes_over_what_is_the_same)
{
    SHOWN("onetwothree", "one", "two", "NULL", "onetwo", "three");
    SHOWN("onetwothree", "one", "two", "NULL", "onetwothree");
    SHOWN("onetwo", "one", "two", "NULL", "o", "n", "e", "t", "w", "o");
}

TEST(follow, waits_for_the_rest_of_a_shorter_one)
{
    SHOWN("one", "one", "NULL", "on");
    SHOWN("onex", "one", "NULL", "on", "NULL", "onex");
}

TEST(follow, tells_the_streams_apart)
{
    SHOWN("abcd", "a", "!b", "NULL", "!b", "ac", "!d");
}

TEST(follow, says_once_where_an_attempt_differs)
{
    SHOWN("onevow: the runner was lost, and the output of the next runner "
          "differs: it is shown from the first difference on\nly",
          "one", "NULL", "on", "ly");
    SHOWN("onevow: the runner was lost, and the output of the next runner "
          "differs: it is shown from the first difference on\ntwohree",
          "one", "NULL", "two", "NULL", "three");
}

TEST(follow, holds_no_more_than_it_may)
{
    char text[ROOM];
    const char *const parts[] = {"12345678", "9", NULL};
    struct play p = {.parts = parts, .most = 8};
    CHECK_INT_EQ(run_in_child(act, &p, text, sizeof(text)), 125);
    CHECK(strstr(text, "--max-output") != NULL);
}

static void check_shown(const char *const *parts, const char *want)
{
    char text[ROOM];
    struct play p = {.parts = parts, .most = 1000};
    CHECK_INT_EQ(run_in_child(act, &p, text, sizeof(text)), 0);
    CHECK_STR_EQ(text, want);
}

static void act(void *play)
{
    const struct play *p = play;
    vow_loop *loop;
    if (vow_loop_new(NULL, &loop) < 0)
        _exit(1);
    poller_open(loop);
    emit_open(loop, none_fails, room);
    show_hold(1, p->most);
    show_hold(2, p->most);
    for (size_t i = 0; p->parts[i] != NULL; i++) {
        const char *part = p->parts[i];
        bool err = part[0] == '!';
        if (strcmp(part, "NULL") == 0) {
            show_from_start(1);
            show_from_start(2);
        } else {
            show_bytes(err ? 2 : 1, part + err, strlen(part + err), NULL);
        }
        emit_drain(); /* so that the order is that of the calls */
    }
    _exit(0);
}

static void none_fails(int fd, int error)
{
    (void)fd;
    (void)error;
}

static void room(void)
{
}
