/* SPDX-License-Identifier: MIT */
/* Sentinels say where the master is; it is followed when they change it. */
#include "redis_route_rig.h"

enum { MASTER, OTHER, FIRST, SECOND };

/* What a Sentinel answers, by its number. */
static char address[RIG_FAKES][128];

static const char *sentinel(struct fake_conn *c, char **words, size_t n)
{
    (void)n;
    if (strcmp(words[0], "SENTINEL") == 0) {
        CHECK_STR_EQ(words[1], "GET-MASTER-ADDR-BY-NAME");
        CHECK_STR_EQ(words[2], "main");
        return c->fake->user;
    }
    CHECK(strcmp(words[0], "ROLE") != 0);
    return NULL;
}

static const char *server(struct fake_conn *c, char **words, size_t n)
{
    static char text[32];
    (void)n;
    if (strcmp(words[0], "EVALSHA") != 0)
        return NULL;
    snprintf(text, sizeof(text), "+%s\r\n", (const char *)c->fake->user);
    return text;
}

static void names(struct route_rig *r, size_t which, size_t master)
{
    snprintf(address[which], sizeof(address[which]),
             "*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%u\r\n",
             snprintf(NULL, 0, "%u", r->fakes[master].port),
             r->fakes[master].port);
}

static void watched_begin(struct route_rig *r)
{
    static const char *const who[] = {"master", "other"};
    rig_begin(r, 4);
    for (size_t i = MASTER; i <= OTHER; i++) {
        r->fakes[i].answer = server;
        r->fakes[i].user = (void *)who[i];
    }
    for (size_t i = FIRST; i <= SECOND; i++) {
        r->fakes[i].mode = "sentinel";
        r->fakes[i].answer = sentinel;
        r->fakes[i].user = address[i];
        names(r, i, MASTER);
    }
}

static void watched_open(struct route_rig *r)
{
    char url[128];
    snprintf(url, sizeof(url),
             "redis-sentinel://127.0.0.1:%u,127.0.0.1:%u/main",
             r->fakes[FIRST].port, r->fakes[SECOND].port);
    CHECK(rig_try_open(r, url, NULL));
}

TEST(redis_sentinel, the_master_it_names_is_used)
{
    struct route_rig r;
    watched_begin(&r);
    watched_open(&r);
    CHECK_STR_EQ(rig_ask(&r, "a")->text, "master");
    CHECK_UINT_EQ(r.fakes[FIRST].accepted, 1);
    CHECK_UINT_EQ(r.fakes[SECOND].accepted, 0);
    CHECK_UINT_EQ(r.fakes[FIRST].served, 1); /* it is listened to */
    rig_end(&r);
}

TEST(redis_sentinel, another_one_is_asked_when_the_first_does_not_help)
{
    for (int how = 0; how < 4; how++) {
        struct route_rig r;
        watched_begin(&r);
        if (how == 0)
            fake_deaf(&r.fakes[FIRST]);
        else if (how == 1)
            snprintf(address[FIRST], sizeof(address[FIRST]), "_\r\n");
        else if (how == 2)
            snprintf(address[FIRST], sizeof(address[FIRST]),
                     "-IDONTKNOW I have not enough information\r\n");
        else
            r.fakes[FIRST].mode = NULL; /* it is none */
        watched_open(&r);
        CHECK_STR_EQ(rig_ask(&r, "a")->text, "master");
        CHECK_UINT_EQ(r.fakes[SECOND].accepted, 1);
        rig_end(&r);
    }
}

TEST(redis_sentinel, a_master_that_nobody_knows_is_told)
{
    struct route_rig r;
    watched_begin(&r);
    snprintf(address[FIRST], sizeof(address[FIRST]), "*-1\r\n");
    snprintf(address[SECOND], sizeof(address[SECOND]), "*-1\r\n");
    watched_open(&r);
    struct route_call *c = rig_ask(&r, "a");
    CHECK_INT_EQ(c->code, VOW_ESTORE);
    CHECK_HAS(c->why, "knows no master named main");
    CHECK_UINT_EQ(rig_call(&r, "b")->done, 1);
    names(&r, FIRST, MASTER);
    names(&r, SECOND, MASTER);
    rig_pass(&r, 2100);
    CHECK_STR_EQ(rig_ask(&r, "c")->text, "master");
    rig_end(&r);
}

TEST(redis_sentinel, all_of_them_down_is_told)
{
    struct route_rig r;
    watched_begin(&r);
    fake_deaf(&r.fakes[FIRST]);
    fake_deaf(&r.fakes[SECOND]);
    watched_open(&r);
    struct route_call *c = rig_ask(&r, "a");
    CHECK_INT_EQ(c->code, VOW_ESTORE);
    CHECK_HAS(c->why, "refused");
    rig_end(&r);
}

TEST(redis_sentinel, a_replica_it_names_is_not_believed)
{
    struct route_rig r;
    watched_begin(&r);
    r.fakes[MASTER].role =
        "*5\r\n$5\r\nslave\r\n$1\r\nh\r\n:1\r\n$1\r\nx\r\n:1\r\n";
    watched_open(&r);
    struct route_call *c = rig_call(&r, "a");
    rig_pass(&r, 1010);
    CHECK_INT_EQ(c->code, VOW_ESTORE);
    CHECK_HAS(c->why, "is a replica; its master is h:1");
    rig_end(&r);

    watched_begin(&r);
    r.fakes[MASTER].role =
        "*5\r\n$5\r\nslave\r\n$1\r\nh\r\n:1\r\n$1\r\nx\r\n:1\r\n";
    names(&r, SECOND, OTHER); /* which is asked the next time */
    watched_open(&r);
    CHECK_STR_EQ(rig_ask(&r, "b")->text, "other");
    rig_end(&r);
}

static void say_switch(struct route_rig *r, const char *name, size_t to)
{
    char text[128], push[256];
    snprintf(text, sizeof(text), "%s 127.0.0.1 %u 127.0.0.1 %u", name,
             r->fakes[MASTER].port, r->fakes[to].port);
    snprintf(push, sizeof(push),
             ">3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$%zu\r\n%s\r\n",
             strlen(text), text);
    fake_say(fake_last(&r->fakes[FIRST]), push);
}

TEST(redis_sentinel, a_new_master_is_followed_at_once)
{
    struct route_rig r;
    watched_begin(&r);
    watched_open(&r);
    CHECK_STR_EQ(rig_ask(&r, "a")->text, "master");
    rig_pass(&r, 100);
    say_switch(&r, "another", OTHER); /* not ours */
    say_switch(&r, "main", MASTER);   /* we know */
    rig_pass(&r, 50);
    CHECK_UINT_EQ(r.fakes[MASTER].accepted, 1);
    names(&r, FIRST, OTHER);
    say_switch(&r, "main", OTHER);
    rig_settle(&r);
    struct route_call *c = rig_call(&r, "b");
    rig_pass(&r, 50);
    CHECK_STR_EQ(c->text, "other");
    CHECK_UINT_EQ(r.doubts, 1);
    rig_end(&r);
}

static const char *mute(struct fake_conn *c, char **words, size_t n)
{
    (void)c;
    (void)words;
    (void)n;
    return "";
}

TEST(redis_sentinel, a_new_master_is_followed_while_the_old_one_is_tried)
{
    struct route_rig r;
    watched_begin(&r);
    r.fakes[MASTER].answer = mute;
    watched_open(&r);
    struct route_call *c = rig_call(&r, "a");
    UNTIL(&r, r.fakes[MASTER].accepted == 1);
    names(&r, FIRST, OTHER);
    names(&r, SECOND, OTHER);
    say_switch(&r, "main", OTHER);
    rig_pass(&r, 50);
    CHECK_STR_EQ(c->text, "other");
    rig_end(&r);
}

TEST(redis_sentinel, messages_that_make_no_sense_do_no_harm)
{
    static const char *const all[] = {
        ">3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$4\r\nmain\r\n",
        ">3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n_\r\n",
        ">3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$14\r\nmain a 1 b "
        "9999\r\n",
        ">3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$10\r\nmain a 1 b"
        "\r\n",
        ">1\r\n$7\r\nmessage\r\n",
    };
    struct route_rig r;
    watched_begin(&r);
    watched_open(&r);
    CHECK_INT_EQ(rig_ask(&r, "a")->code, 0);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (fake_last(&r.fakes[FIRST]) != NULL)
            fake_say(fake_last(&r.fakes[FIRST]), all[i]);
        rig_pass(&r, 50);
    }
    struct route_call *c = rig_call(&r, "b");
    rig_pass(&r, 100);
    CHECK_STR_EQ(c->text, "master");
    rig_end(&r);
}

TEST(redis_sentinel, one_that_is_lost_is_replaced_while_the_master_works)
{
    struct route_rig r;
    watched_begin(&r);
    watched_open(&r);
    CHECK_INT_EQ(rig_ask(&r, "a")->code, 0);
    fake_deaf(&r.fakes[FIRST]);
    fake_hang_up(&r.fakes[FIRST]);
    rig_pass(&r, 1100);
    CHECK_UINT_EQ(r.fakes[SECOND].served, 1);
    CHECK_UINT_EQ(r.fakes[MASTER].accepted, 1);
    CHECK_STR_EQ(rig_ask(&r, "b")->text, "master");
    rig_end(&r);
}

TEST(redis_sentinel, it_can_be_closed_at_any_time)
{
    for (int turns = 0; turns < 30; turns++) {
        struct route_rig r;
        watched_begin(&r);
        watched_open(&r);
        (void)rig_call(&r, "a");
        for (int i = 0; i < turns; i++)
            rig_step(&r);
        rig_end(&r);
    }
}

FAULT_SWEEP(redis_sentinel, seeking_survives_every_fault, FAULT_ALLOC)
{
    static struct route_rig r;
    char url[128];
    memset(&r, 0, sizeof(r));
    r.w = w;
    for (r.n = 0; r.n < 3; r.n++)
        fake_open(&r.fakes[r.n]);
    r.fakes[MASTER].answer = server;
    r.fakes[MASTER].user = "master";
    r.fakes[FIRST].mode = "sentinel";
    r.fakes[FIRST].answer = sentinel;
    r.fakes[FIRST].user = address[FIRST];
    names(&r, FIRST, MASTER);
    snprintf(url, sizeof(url), "redis-sentinel://127.0.0.1:%u/main",
             r.fakes[FIRST].port);
    if (rig_try_open(&r, url, NULL)) {
        rig_call(&r, "a");
        for (int i = 0; i < 60 && r.answered < r.asked; i++)
            rig_pass(&r, 50);
        CHECK_UINT_EQ(r.answered, r.asked);
        CHECK(r.calls[0].code == 0 || fault_fired(w));
        rig_end(&r);
    } else {
        for (size_t i = 0; i < r.n; i++)
            fake_close(&r.fakes[i]);
    }
}
