/* SPDX-License-Identifier: MIT */
/* Calls find their server: when it is not there yet, is lost, comes back,
 * refuses, or is busy; and they end once, and say how. */
#include "redis_route_rig.h"
#include "store/redis/redis_route.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- going --------------------------------------------------------------- */

TEST(redis_route, calls_wait_for_the_link_and_go_in_their_order)
{
    struct route_rig r;
    rig_begin(&r, 1);
    r.fakes[0].answer = say_tag;
    rig_open(&r);
    static const char *const tags[] = {"a", "b", "c"};
    for (size_t i = 0; i < 3; i++)
        rig_call(&r, tags[i]);
    CHECK_UINT_EQ(r.answered, 0);
    UNTIL(&r, r.answered == 3);
    for (size_t i = 0; i < 3; i++) {
        CHECK_INT_EQ(r.calls[i].code, 0);
        CHECK_STR_EQ(r.calls[i].text, tags[i]);
        CHECK_UINT_EQ(r.calls[i].order, i + 1);
    }
    CHECK_UINT_EQ(r.fakes[0].accepted, 1);
    CHECK_UINT_EQ(r.doubts, 0);
    rig_end(&r);
}

static const char *check_words(struct fake_conn *c, char **words, size_t n)
{
    static const char *const want[] = {"EVALSHA",     NULL,  "2", "x:p:{tag}",
                                       "x:p:{tag}:w", "tag", "7"};
    (void)c;
    if (strcmp(words[0], "EVALSHA") != 0)
        return NULL;
    CHECK_UINT_EQ(n, 7);
    for (size_t i = 0; i < n; i++)
        if (want[i] != NULL)
            CHECK_STR_EQ(words[i], want[i]);
    return "+right\r\n";
}

TEST(redis_route, keys_have_the_prefix_and_the_tag_in_braces)
{
    struct route_rig r;
    char url[64];
    rig_begin(&r, 1);
    r.fakes[0].answer = check_words;
    snprintf(url, sizeof(url),
             "redis://127.0.0.1:%u?prefix=x:", r.fakes[0].port);
    CHECK(rig_try_open(&r, url, NULL));
    CHECK_STR_EQ(rig_ask(&r, "tag")->text, "right");
    CHECK(strncmp(vow__redis_channel(r.redis), "x:i:", 4) == 0);
    CHECK_UINT_EQ(strlen(vow__redis_channel(r.redis)), 4 + 32);
    CHECK(vow__redis_one_slot(r.redis));
    rig_end(&r);
}

TEST(redis_route, an_idle_store_keeps_nobody_waiting)
{
    struct route_rig r;
    rig_begin(&r, 1);
    rig_open(&r);
    UNTIL(&r, r.fakes[0].served == 1);
    rig_settle(&r);
    world_run(r.w);
    rig_end(&r);
}

/* ---- down and up --------------------------------------------------------- */

TEST(redis_route, a_server_that_is_down_costs_one_timeout)
{
    struct route_rig r;
    rig_begin(&r, 1);
    r.fakes[0].answer = say_tag;
    fake_deaf(&r.fakes[0]);
    rig_open(&r);
    struct route_call *c = rig_call(&r, "a");
    rig_pass(&r, 990);
    CHECK_UINT_EQ(c->done, 0);
    rig_pass(&r, 20);
    CHECK_INT_EQ(c->code, VOW_ESTORE);
    CHECK_HAS(c->why, "refused");
    c = rig_call(&r, "b");
    CHECK_UINT_EQ(c->done, 1); /* at once */
    CHECK_INT_EQ(c->code, VOW_ESTORE);
    CHECK_HAS(c->why, "refused");
    fake_again(&r.fakes[0]);
    rig_pass(&r, 2000);
    CHECK_STR_EQ(rig_ask(&r, "c")->text, "c");
    CHECK_UINT_EQ(r.fakes[0].accepted, 1);
    rig_end(&r);
}

static const char *cut_greeting(struct fake_conn *c, char **words, size_t n)
{
    if (c->fake->accepted > 3)
        return say_tag(c, words, n);
    c->ends = true;
    return "";
}

static const char *load_first(struct fake_conn *c, char **words, size_t n)
{
    if (c->fake->accepted <= 3 && strcmp(words[0], "EVAL") == 0)
        return "-LOADING Redis is loading the dataset in memory\r\n";
    return say_tag(c, words, n);
}

/* It is up in time: nobody is told. */
TEST(redis_route, the_first_tries_may_fail)
{
    static const fake_fn answers[] = {cut_greeting, load_first};
    for (size_t i = 0; i < 2; i++) {
        struct route_rig r;
        rig_begin(&r, 1);
        r.fakes[0].answer = answers[i];
        rig_open(&r);
        struct route_call *c = rig_call(&r, "a");
        rig_pass(&r, 300);
        CHECK_STR_EQ(c->text, "a");
        CHECK_UINT_EQ(r.fakes[0].accepted, 4);
        rig_end(&r);
    }
}

TEST(redis_route, a_step_calls_for_the_next_try)
{
    struct route_rig r;
    rig_begin(&r, 1);
    fake_deaf(&r.fakes[0]);
    rig_open(&r);
    rig_pass(&r, 60000); /* by now it rests for long */
    const struct vow__node *n = &vow__redis_route(r.redis)->main;
    while (n->again_ns < vow_loop_now_ns(r.w->loop) + 100000000)
        rig_pass(&r, 5); /* not long enough any more */
    fake_again(&r.fakes[0]);
    rig_pass(&r, 20);
    CHECK_UINT_EQ(r.fakes[0].accepted, 0);
    (void)rig_call(&r, "a");
    rig_pass(&r, 25);
    CHECK_UINT_EQ(r.fakes[0].served, 1);
    rig_end(&r);
}

TEST(redis_route, a_short_loss_is_not_seen)
{
    struct route_rig r;
    rig_begin(&r, 1);
    r.fakes[0].answer = say_tag;
    rig_open(&r);
    CHECK_INT_EQ(rig_ask(&r, "a")->code, 0);
    fake_deaf(&r.fakes[0]);
    fake_hang_up(&r.fakes[0]);
    rig_pass(&r, 300);
    struct route_call *c = rig_call(&r, "b");
    rig_pass(&r, 300);
    CHECK_UINT_EQ(c->done, 0);
    fake_again(&r.fakes[0]);
    rig_pass(&r, 400);
    CHECK_STR_EQ(c->text, "b");
    CHECK_UINT_EQ(r.doubts, 1); /* messages may have been lost */
    rig_end(&r);
}

TEST(redis_route, a_long_loss_is_told)
{
    struct route_rig r;
    rig_begin(&r, 1);
    rig_open(&r);
    rig_ask(&r, "a");
    fake_deaf(&r.fakes[0]);
    fake_hang_up(&r.fakes[0]);
    rig_settle(&r);
    struct route_call *c = rig_call(&r, "b");
    rig_pass(&r, 990);
    CHECK_UINT_EQ(c->done, 0);
    rig_pass(&r, 20);
    CHECK_INT_EQ(c->code, VOW_ESTORE);
    CHECK_HAS(c->why, "refused");
    CHECK_UINT_EQ(rig_call(&r, "c")->done, 1);
    rig_end(&r);
}

static const char *only_greet(struct fake_conn *c, char **words, size_t n)
{
    (void)c;
    (void)n;
    return strcmp(words[0], "EVALSHA") == 0 ? "" : NULL;
}

static const char *mute(struct fake_conn *c, char **words, size_t n)
{
    (void)c;
    (void)words;
    (void)n;
    return "";
}

TEST(redis_route, what_was_sent_and_lost_is_unsure)
{
    struct route_rig r;
    rig_begin(&r, 1);
    r.fakes[0].answer = only_greet;
    rig_open(&r);
    struct route_call *c = rig_call(&r, "a");
    UNTIL(&r, strstr(r.fakes[0].log, "EVALSHA") != NULL);
    fake_hang_up(&r.fakes[0]);
    UNTIL(&r, c->done);
    CHECK_INT_EQ(c->code, VOW_EUNSURE);
    CHECK(c->why[0] != 0);
    rig_pass(&r, 100);
    CHECK_UINT_EQ(r.fakes[0].served, 2);
    r.fakes[0].answer = mute;
    c = rig_call(&r, "b");
    rig_settle(&r);
    rig_pass(&r, 1000);
    CHECK_INT_EQ(c->code, VOW_EUNSURE);
    CHECK_HAS(c->why, "did not answer for 1000 ms");
    rig_end(&r);
}

/* What reads, and a claim, whose token tells: both are sent again. */
TEST(redis_route, what_may_be_repeated_is_repeated_until_its_time_is_over)
{
    static const enum vow__script scripts[] = {VOW__LUA_CLAIM, VOW__LUA_PEEK};
    for (size_t i = 0; i < 2; i++) {
        struct route_rig r;
        rig_begin(&r, 1);
        r.fakes[0].answer = only_greet;
        rig_open(&r);
        struct route_call *c = rig_call_of(&r, scripts[i], "a");
        UNTIL(&r, strstr(r.fakes[0].log, "EVALSHA") != NULL);
        r.fakes[0].answer = say_tag;
        fake_hang_up(&r.fakes[0]);
        rig_settle(&r);
        CHECK_UINT_EQ(c->done, 0);
        rig_pass(&r, 100);
        CHECK_STR_EQ(c->text, "a");

        r.fakes[0].answer = only_greet;
        r.fakes[0].log[0] = 0;
        c = rig_call_of(&r, scripts[i], "b");
        UNTIL(&r, strstr(r.fakes[0].log, "EVALSHA") != NULL);
        fake_deaf(&r.fakes[0]);
        fake_hang_up(&r.fakes[0]);
        rig_pass(&r, 980);
        CHECK_UINT_EQ(c->done, 0);
        rig_pass(&r, 30);
        CHECK_INT_EQ(c->code, VOW_EUNSURE); /* it may have happened */
        CHECK_HAS(c->why, "refused");
        rig_end(&r);
    }
}

/* A megabyte of pushes every 5 ms, with attributes and without. */
static void flood(struct route_rig *r, const struct route_call *c, uint64_t ms)
{
    enum { PUSH = 100 * 1000 };
    static const char *const heads[] = {">2\r\n+message\r\n",
                                        "|1\r\n+a\r\n+b\r\n>2\r\n+x\r\n"};
    char *push = malloc(PUSH + 64);
    CHECK(push != NULL);
    for (uint64_t i = 0; i < ms && !c->done; i += 5) {
        for (int k = 0; k < 10 && !c->done; k++) {
            struct fake_conn *to = fake_last(&r->fakes[0]);
            int n = sprintf(push, "%s$%d\r\n", heads[k % 2], PUSH - 2);
            memset(push + n, 'x', PUSH - 2);
            memcpy(push + n + PUSH - 2, "\r\n", 3);
            if (to != NULL && to->out_n < PUSH)
                fake_say(to, push);
            fake_serve(&r->fakes[0]);
            fake_turn(r->w);
        }
        world_advance_ms(r->w, 5);
    }
    free(push);
}

/* Neither before nor after the greeting. */
TEST(redis_route, pushes_give_no_more_time)
{
    static const fake_fn answers[] = {only_greet, mute};
    for (size_t i = 0; i < 2; i++) {
        struct route_rig r;
        rig_begin(&r, 1);
        r.fakes[0].answer = answers[i];
        rig_open(&r);
        struct route_call *c = rig_call(&r, "a");
        UNTIL(&r, strstr(r.fakes[0].log, i == 0 ? "EVALSHA" : "SUBSCRIBE"));
        flood(&r, c, 2500);
        CHECK_UINT_EQ(c->done, 1);
        CHECK_INT_EQ(c->code, i == 0 ? VOW_EUNSURE : VOW_ESTORE);
        CHECK_HAS(c->why, "for 1000 ms");
        rig_end(&r);
    }
}

static const char *say_long(struct fake_conn *c, char **words, size_t n)
{
    (void)n;
    return strcmp(words[0], "EVALSHA") == 0 ? c->fake->user : NULL;
}

/* What announces more than a step can return ends the link at once. */
TEST(redis_route, an_answer_is_no_longer_than_it_can_be)
{
    static const struct {
        enum vow__script script;
        const char *says;
        bool taken;
    } all[] = {
        {VOW__LUA_PULSE, "$2000000\r\n", false},
        {VOW__LUA_PULSE, "*400000\r\n", false},
        {VOW__LUA_ACQUIRE, "*1\r\n$2000000\r\n", false},
        {VOW__LUA_COMMIT, "$2000000\r\n", true},
        {VOW__LUA_COMMIT, "$67108864\r\n", true},
        {VOW__LUA_COMMIT, "$69000000\r\n", false},
        {VOW__LUA_COMMIT, ">2\r\n+message\r\n$2000000\r\n", false},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct route_rig r;
        rig_begin(&r, 1);
        r.fakes[0].answer = say_long;
        r.fakes[0].user = (void *)all[i].says;
        rig_open(&r);
        struct route_call *c = rig_call_of(&r, all[i].script, "a");
        rig_settle(&r);
        if (all[i].taken != !c->done)
            FAIL("%zu: %s", i, c->why);
        if (c->done)
            CHECK_HAS(c->why, "that are allowed");
        rig_end(&r);
    }
}

TEST(redis_route, a_call_out_of_a_lost_one_waits_for_the_next_link)
{
    struct route_rig r;
    rig_begin(&r, 1);
    r.fakes[0].answer = only_greet;
    rig_open(&r);
    (void)rig_call(&r, "a");
    UNTIL(&r, strstr(r.fakes[0].log, "EVALSHA") != NULL);
    r.call_in_answer = true;
    r.fakes[0].answer = say_tag;
    fake_hang_up(&r.fakes[0]);
    UNTIL(&r, r.answered == 1);
    CHECK_INT_EQ(r.calls[0].code, VOW_EUNSURE);
    rig_pass(&r, 100);
    CHECK_STR_EQ(r.calls[1].text, "in-answer");
    rig_end(&r);
}

static const char *hang_up(struct fake_conn *c, char **words, size_t n)
{
    (void)words;
    (void)n;
    c->ends = true;
    return "";
}

TEST(redis_route, tries_become_rare_and_never_too_frequent)
{
    struct route_rig r;
    rig_begin(&r, 1);
    r.fakes[0].answer = hang_up;
    rig_open(&r);
    rig_pass(&r, 20000);
    unsigned alone = r.fakes[0].accepted;
    CHECK(alone >= 10 && alone <= 30); /* some that double, then 1 to 2 s */
    for (int i = 0; i < 100; i++) {
        (void)rig_call(&r, "a");
        rig_pass(&r, 5);
    }
    unsigned asked = r.fakes[0].accepted - alone;
    CHECK(asked >= 15 && asked <= 26); /* 500 ms by 20 ms */
    rig_end(&r);
}

static const char *wrong_password(struct fake_conn *c, char **words, size_t n)
{
    (void)c;
    (void)n;
    return strcmp(words[0], "HELLO") == 0 ? "-WRONGPASS no\r\n" : NULL;
}

TEST(redis_route, a_wrong_password_is_told_at_once_and_not_tried_often)
{
    struct route_rig r;
    rig_begin(&r, 1);
    r.fakes[0].answer = wrong_password;
    rig_open(&r);
    struct route_call *c = rig_ask(&r, "a");
    CHECK_INT_EQ(c->code, VOW_ESTORE);
    CHECK_HAS(c->why, "does not know user default with this password");
    for (int i = 0; i < 20; i++) {
        CHECK_UINT_EQ(rig_call(&r, "b")->done, 1);
        rig_pass(&r, 95);
    }
    CHECK_UINT_EQ(r.fakes[0].accepted, 1);
    r.fakes[0].answer = say_tag; /* somebody mended it */
    rig_pass(&r, 200);
    CHECK_STR_EQ(rig_ask(&r, "c")->text, "c");
    rig_end(&r);
}

TEST(redis_route, more_hosts_are_tried_in_turn)
{
    struct route_rig r;
    char url[128];
    rig_begin(&r, 3);
    fake_deaf(&r.fakes[0]);
    r.fakes[1].role = "*5\r\n$5\r\nslave\r\n$1\r\nh\r\n:1\r\n$1\r\nx\r\n:1\r\n";
    r.fakes[2].answer = say_tag;
    snprintf(url, sizeof(url), "redis://127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u",
             r.fakes[0].port, r.fakes[1].port, r.fakes[2].port);
    CHECK(rig_try_open(&r, url, NULL));
    CHECK_STR_EQ(rig_ask(&r, "a")->text, "a"); /* without a rest */
    fake_deaf(&r.fakes[2]);
    fake_hang_up(&r.fakes[2]);
    rig_settle(&r);
    struct route_call *c = rig_call(&r, "b");
    rig_pass(&r, 1010);
    CHECK_INT_EQ(c->code, VOW_ESTORE);
    CHECK(c->why[0] != 0);
    rig_end(&r);
}

/* ---- errors -------------------------------------------------------------- */

struct failing {
    const char *error;
    int code;
    bool leaves;
    const char *why;
};
static const struct failing failings[] = {
    {"-READONLY You can't write against a read only replica.\r\n", VOW_ESTORE,
     true, "is a replica now"},
    {"-LOADING Redis is loading the dataset in memory\r\n", VOW_ESTORE, true,
     "is loading its data"},
    {"-MASTERDOWN Link with MASTER is down\r\n", VOW_ESTORE, true,
     "lost its master"},
    {"-NOAUTH Authentication required.\r\n", VOW_ESTORE, true,
     "wants a password"},
    {"-OOM command not allowed when used memory > 'maxmemory'.\r\n", VOW_ESTORE,
     false, "its maxmemory is reached"},
    {"-NOREPLICAS Not enough good replicas to write.\r\n", VOW_ESTORE, false,
     "min-replicas-to-write"},
    {"-MISCONF Redis is configured to save RDB snapshots\r\n", VOW_ESTORE,
     false, "cannot save its data to disk"},
    {"-NOPERM this user has no permissions\r\n", VOW_ESTORE, false,
     "needs more rights; vow-store(7) lists them: NOPERM this user"},
    {"-ERR user_script:3: something is wrong script: abc\r\n", VOW_ESTORE,
     false, ": ERR user_script:3: something is wrong script: abc"},
    {"-WRONGTYPE Operation against a key\r\n", VOW_ESTORE, false,
     ": WRONGTYPE Operation against a key"},
    {"-ERR Error running script (call to f_1): @user_script:1: -OOM command "
     "not allowed\r\n",
     VOW_ESTORE, false, "its maxmemory is reached"},
    {"-MOVED 1 127.0.0.1:1\r\n", VOW_ESTORE, false, ": MOVED 1 127.0.0.1:1"},
};

static const char *fail_so(struct fake_conn *c, char **words, size_t n)
{
    const struct failing *f = c->fake->user;
    (void)n;
    return strcmp(words[0], "EVALSHA") == 0 ? f->error : NULL;
}

TEST(redis_route, errors_of_a_server_are_told_in_words)
{
    for (size_t i = 0; i < sizeof(failings) / sizeof(failings[0]); i++) {
        struct route_rig r;
        struct failing f = failings[i];
        char name[32];
        rig_begin(&r, 1);
        r.fakes[0].answer = fail_so;
        r.fakes[0].user = &f;
        rig_open(&r);
        struct route_call *c = rig_call(&r, "a");
        rig_pass(&r, f.leaves ? 1010 : 10);
        CHECK_INT_EQ(c->code, f.code);
        CHECK_HAS(c->why, f.why);
        snprintf(name, sizeof(name), "127.0.0.1:%u", r.fakes[0].port);
        CHECK_HAS(c->why, name);
        r.fakes[0].answer = say_tag;
        c = rig_call(&r, "b");
        rig_pass(&r, 100);
        if (!c->done || c->code != 0)
            FAIL("%s", f.error);
        CHECK((r.fakes[0].accepted > 1) == f.leaves);
        rig_end(&r);
    }
}

static const char *load_once(struct fake_conn *c, char **words, size_t n)
{
    if (c->fake->accepted == 1 && strcmp(words[0], "EVALSHA") == 0)
        return "-LOADING Redis is loading the dataset in memory\r\n";
    return say_tag(c, words, n);
}

TEST(redis_route, a_server_that_is_left_is_asked_again)
{
    struct route_rig r;
    rig_begin(&r, 1);
    r.fakes[0].answer = load_once;
    rig_open(&r);
    struct route_call *c = rig_call(&r, "a");
    rig_pass(&r, 100);
    CHECK_STR_EQ(c->text, "a");
    CHECK_UINT_EQ(r.fakes[0].accepted, 2);
    rig_end(&r);
}

static const char *not_now(struct fake_conn *c, char **words, size_t n)
{
    static const char *const errors[] = {
        "-BUSY Redis is busy\r\n", "-TRYAGAIN Multiple keys\r\n",
        "-CLUSTERDOWN The cluster is down\r\n"};
    int *left = c->fake->user;
    (void)n;
    if (strcmp(words[0], "EVALSHA") != 0)
        return NULL;
    return --*left >= 0 ? errors[*left % 3] : say_tag(c, words, n);
}

TEST(redis_route, what_passes_is_waited_for)
{
    struct route_rig r;
    int left = 6;
    rig_begin(&r, 1);
    r.fakes[0].answer = not_now;
    r.fakes[0].user = &left;
    rig_open(&r);
    struct route_call *c = rig_call(&r, "a");
    rig_settle(&r);
    CHECK_INT_EQ(left, 5);
    rig_pass(&r, 300);
    CHECK_STR_EQ(c->text, "a");
    CHECK_UINT_EQ(r.fakes[0].accepted, 1);
    rig_end(&r);
}

TEST(redis_route, what_does_not_pass_in_time_is_told)
{
    static const struct failing all[] = {
        {"-BUSY Redis is busy\r\n", VOW_EAGAIN, false, "somebody's script"},
        {"-TRYAGAIN Multiple keys\r\n", VOW_ESTORE, false, "is moving"},
        {"-CLUSTERDOWN down\r\n", VOW_ESTORE, false, "cluster that is down"},
    };
    for (size_t i = 0; i < 3; i++) {
        struct route_rig r;
        struct failing f = all[i];
        rig_begin(&r, 1);
        r.fakes[0].answer = fail_so;
        r.fakes[0].user = &f;
        rig_open(&r);
        struct route_call *c = rig_call(&r, "a");
        rig_settle(&r);
        rig_pass(&r, 900);
        CHECK_UINT_EQ(c->done, 0);
        rig_pass(&r, 150);
        CHECK_INT_EQ(c->code, f.code);
        CHECK_HAS(c->why, f.why);
        rig_end(&r);
    }
}

/* ---- every server -------------------------------------------------------- */

static void on_each(struct vow__redis *redis, int code,
                    const struct vow__resp *reply, size_t node, bool last,
                    void *user)
{
    struct route_call *c = user;
    (void)redis;
    c->done++;
    c->rig->answered++;
    c->node = node;
    c->last = last;
    rig_note(c, code, reply);
}

TEST(redis_route, one_server_is_each_server)
{
    struct route_rig r;
    struct vow__buf c;
    rig_begin(&r, 1);
    rig_open(&r);
    struct route_call *each = rig_next(&r);
    struct route_call *one = rig_next(&r);
    rig_plain(&r, "DBSIZE", &c);
    vow__redis_each(r.redis, &c, on_each, each);
    vow__redis_one(r.redis, 0, &c, rig_reply, one);
    vow__buf_fini(&c);
    UNTIL(&r, r.answered == 2);
    CHECK_STR_EQ(each->text, "OK");
    CHECK(each->last && each->node == 0);
    CHECK_STR_EQ(one->text, "OK");
    rig_end(&r);
}

static const char *refuse_plain(struct fake_conn *c, char **words, size_t n)
{
    (void)c;
    (void)n;
    return strcmp(words[0], "CONFIG") == 0 ? "-NOPERM no\r\n" : NULL;
}

static void on_error(struct vow__redis *redis, int code,
                     const struct vow__resp *reply, void *user)
{
    struct route_call *c = user;
    (void)redis;
    c->done++;
    c->rig->answered++;
    CHECK_INT_EQ(code, 0);
    CHECK(vow__error_is(reply, "NOPERM"));
}

TEST(redis_route, what_a_plain_command_is_refused_is_its_answer)
{
    struct route_rig r;
    struct vow__buf c;
    rig_begin(&r, 1);
    r.fakes[0].answer = refuse_plain;
    rig_open(&r);
    struct route_call *one = rig_next(&r);
    rig_plain(&r, "CONFIG", &c);
    vow__redis_one(r.redis, 0, &c, on_error, one);
    vow__buf_fini(&c);
    UNTIL(&r, one->done);
    rig_end(&r);
}

TEST(redis_route, nobody_to_ask_is_told_once)
{
    struct route_rig r;
    struct vow__buf c;
    rig_begin(&r, 1);
    fake_deaf(&r.fakes[0]);
    rig_open(&r);
    struct route_call *each = rig_next(&r);
    rig_plain(&r, "DBSIZE", &c);
    vow__redis_each(r.redis, &c, on_each, each);
    vow__buf_fini(&c);
    rig_pass(&r, 1010);
    CHECK_UINT_EQ(r.answered, 1);
    CHECK_INT_EQ(each->code, VOW_ESTORE);
    CHECK(each->last);
    rig_end(&r);
}

/* ---- closing ------------------------------------------------------------- */

TEST(redis_route, closing_ends_all_at_once)
{
    struct route_rig r;
    rig_begin(&r, 1);
    r.fakes[0].answer = only_greet;
    rig_open(&r);
    rig_call(&r, "waits");
    UNTIL(&r, strstr(r.fakes[0].log, "EVALSHA") != NULL);
    rig_call(&r, "sent");
    rig_close(&r);
    CHECK_UINT_EQ(r.answered, 2);
    CHECK_INT_EQ(r.calls[0].code, VOW_ECLOSED);
    CHECK_INT_EQ(r.calls[1].code, VOW_ECLOSED);
    CHECK_INT_EQ(rig_call(&r, "late")->code, VOW_ECLOSED);
    rig_end(&r);
    rig_begin(&r, 1); /* before it was connected */
    rig_open(&r);
    rig_call(&r, "waits");
    rig_close(&r);
    CHECK_INT_EQ(r.calls[0].code, VOW_ECLOSED);
    rig_end(&r);
}

TEST(redis_route, it_can_be_closed_inside_what_it_calls)
{
    for (int where = 0; where < 4; where++) {
        struct route_rig r;
        rig_begin(&r, 1);
        if (where == 0)
            r.fakes[0].answer = say_tag;
        if (where == 1)
            fake_deaf(&r.fakes[0]);
        r.close_in_answer = where != 3;
        r.close_in_doubt = where == 3;
        rig_open(&r);
        rig_call(&r, "a");
        rig_call(&r, "b");
        if (where == 1)
            rig_pass(&r, 1010);
        UNTIL(&r, r.answered > 0 || where == 2);
        if (where == 2) { /* lost, with both in flight */
            r.fakes[0].answer = only_greet;
            UNTIL(&r, strstr(r.fakes[0].log, "EVALSHA") != NULL);
        }
        if (where >= 2) {
            fake_hang_up(&r.fakes[0]);
            rig_pass(&r, 100);
        }
        UNTIL(&r, r.closed != NULL);
        rig_end(&r);
    }
}

TEST(redis_route, a_child_leaves_its_parents_store_alone)
{
    struct route_rig r;
    rig_begin(&r, 1);
    r.fakes[0].answer = say_tag;
    rig_open(&r);
    CHECK_INT_EQ(rig_ask(&r, "a")->code, 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct route_call *c = rig_call(&r, "b");
        bool right = c->done == 1 && c->code == VOW_ESTORE &&
                     strstr(c->why, "does not survive a fork") != NULL;
        VOW_AUTO(vow_future) closed = r.store->ops->close(r.store);
        right = right && vow_state_of(closed) == VOW_FULFILLED;
        _exit(right ? 0 : 1);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT_EQ(status, 0);
    CHECK_STR_EQ(rig_ask(&r, "c")->text, "c");
    CHECK_UINT_EQ(r.fakes[0].accepted, 1);
    rig_end(&r);
}

/* ---- memory -------------------------------------------------------------- */

FAULT_SWEEP(redis_route, a_store_survives_every_fault, FAULT_ALLOC)
{
    static struct route_rig r;
    struct vow__buf c;
    char url[64];
    memset(&r, 0, sizeof(r));
    r.w = w;
    r.n = 1;
    fake_open(&r.fakes[0]);
    r.fakes[0].answer = say_tag;
    snprintf(url, sizeof(url), "redis://127.0.0.1:%u", r.fakes[0].port);
    if (rig_try_open(&r, url, NULL)) {
        rig_call(&r, "a");
        rig_call(&r, "b");
        struct route_call *each = rig_next(&r);
        rig_plain(&r, "DBSIZE", &c);
        vow__redis_each(r.redis, &c, on_each, each);
        vow__buf_fini(&c);
        for (int i = 0; i < 30 && r.answered < r.asked; i++)
            rig_pass(&r, 50);
        CHECK_UINT_EQ(r.answered, r.asked);
        for (size_t i = 0; i < r.asked; i++)
            CHECK(r.calls[i].code == 0 || fault_fired(w));
        rig_end(&r);
    } else {
        fake_close(&r.fakes[0]);
    }
}
