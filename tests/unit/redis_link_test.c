/* SPDX-License-Identifier: MIT */
/* One connection: its greeting, commands and answers, silence, and its end. */
#include "redis_link_rig.h"

/* ---- the greeting -------------------------------------------------------- */

TEST(redis_link, greets_at_once_and_is_ready_behind_the_subscription)
{
    struct link_rig r;
    rig_link_begin(&r);
    struct vow__link_opts o = rig_link_opts(&r);
    o.db = 3;
    CHECK_INT_EQ(rig_link_try(&r, &o), 0);
    CHECK_UINT_EQ(r.ready, 0);
    RIG_UNTIL(&r, r.ready);
    CHECK_STR_EQ(r.fake.log, "HELLO SELECT ROLE EVAL SUBSCRIBE ");
    CHECK_STR_EQ(r.server.version, "7.0.15");
    CHECK(r.server.master && !r.server.cluster && !r.server.sentinel);
    rig_link_end(&r);
}

static const char *want_password(struct fake_conn *c, char **words, size_t n)
{
    (void)c;
    if (strcmp(words[0], "HELLO") == 0) {
        CHECK_UINT_EQ(n, 5);
        CHECK_STR_EQ(words[1], "3");
        CHECK_STR_EQ(words[2], "AUTH");
        CHECK_STR_EQ(words[3], "me");
        CHECK_STR_EQ(words[4], "secret");
    }
    return NULL;
}

TEST(redis_link, names_its_user_with_the_password)
{
    struct link_rig r;
    rig_link_begin(&r);
    r.fake.answer = want_password;
    rig_link_open(&r);
    RIG_UNTIL(&r, r.ready);
    rig_link_end(&r);
}

TEST(redis_link, does_not_mind_how_bytes_are_cut)
{
    for (size_t cut = 1; cut < 8; cut++) {
        struct link_rig r;
        rig_link_begin(&r);
        r.fake.cut = cut;
        rig_link_open(&r);
        RIG_UNTIL(&r, r.ready);
        rig_say(&r, "X");
        rig_say(&r, "Y");
        RIG_UNTIL(&r, r.answered == 2);
        CHECK_STR_EQ(r.answers[1].text, "OK");
        rig_link_end(&r);
    }
}

static const char *sentinel_hello(struct fake_conn *c, char **words, size_t n)
{
    (void)c;
    (void)n;
    return strcmp(words[0], "ROLE") == 0 ? "-ERR not asked\r\n" : NULL;
}

TEST(redis_link, a_bare_one_asks_neither_role_nor_scripts)
{
    struct link_rig r;
    rig_link_begin(&r);
    r.fake.mode = "sentinel";
    r.fake.answer = sentinel_hello;
    struct vow__link_opts o = rig_link_opts(&r);
    o.bare = true;
    o.db = 2;
    CHECK_INT_EQ(rig_link_try(&r, &o), 0);
    RIG_UNTIL(&r, r.ready);
    CHECK_STR_EQ(r.fake.log, "HELLO SUBSCRIBE ");
    CHECK(r.server.sentinel);
    world_advance_ms(r.w, 5000);
    fake_settle(r.w, &r.fake);
    CHECK_STR_EQ(r.fake.log, "HELLO SUBSCRIBE PING ");
    rig_link_end(&r);
}

/* What is answered to which word, and what becomes of it. */
struct refusal {
    const char *word, *answer;
    bool for_good;
    const char *says;
};
static const struct refusal *refusal;

static const char *refuse(struct fake_conn *c, char **words, size_t n)
{
    (void)c;
    (void)n;
    return strcmp(words[0], refusal->word) == 0 ? refusal->answer : NULL;
}

static const struct refusal refusals[] = {
    {"HELLO",
     "-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, "
     "`me`, `secret`, \r\n",
     true, " is an older Redis: version 6.0 or newer is needed"},
    {"HELLO", "-NOPROTO unsupported protocol version\r\n", true,
     " is an older Redis: version 6.0 or newer is needed"},
    {"HELLO", "-WRONGPASS invalid username-password pair\r\n", true,
     " does not know user me with this password: look at the user in the "
     "address and at the password file"},
    {"HELLO", "-DENIED Redis is running in protected mode\r\n", true,
     " is in protected mode: it has no password, and so serves its own machine "
     "only"},
    {"HELLO", "-ERR something with secret\r\n", false,
     " does not greet user me"},
    {"HELLO", "+OK\r\n", true, " does not answer as a Redis does"},
    {"HELLO", "%1\r\n$5\r\nproto\r\n:2\r\n", true,
     " does not answer as a Redis does"},
    {"SELECT", "-ERR DB index is out of range\r\n", true,
     " has fewer databases than that"},
    {"SELECT", "-LOADING Redis is loading\r\n", false,
     ": LOADING Redis is loading"},
    {"ROLE",
     "-NOPERM this user has no permissions to run the 'role' command\r\n", true,
     ": user me needs more rights; vow-store(7) lists them: NOPERM this user "
     "has no permissions to run the 'role' command"},
    {"ROLE",
     "*5\r\n$5\r\nslave\r\n$9\r\n10.0.0.77\r\n:6380\r\n$9\r\nconnected\r\n:1"
     "\r\n",
     false, " is a replica; its master is 10.0.0.77:6380"},
    {"EVAL", "-LOADING Redis is loading the dataset in memory\r\n", false,
     ": LOADING Redis is loading the dataset in memory"},
    {"EVAL", "-NOAUTH Authentication required.\r\n", true,
     " wants a password: name a user in the address (USER@HOST), and a "
     "password-file"},
    {"EVAL", "$3\r\nabc\r\n", true, " does not answer as a Redis does"},
    {"SUBSCRIBE", "-NOPERM no channels\r\n", true,
     ": user me needs more rights; vow-store(7) lists them: NOPERM no "
     "channels"},
    {"SUBSCRIBE", "+OK\r\n", true, " does not answer as a Redis does"},
    {"SUBSCRIBE", "-ERR a\x1b[31mb\x07\r\n", false, ": ERR a?[31mb?"},
};

TEST(redis_link, tells_what_a_server_refuses_and_what_to_do)
{
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct link_rig r;
        char want[VOW__REDIS_WHY];
        rig_link_begin(&r);
        refusal = &refusals[i];
        r.fake.answer = refuse;
        struct vow__link_opts o = rig_link_opts(&r);
        o.db = 3;
        CHECK_INT_EQ(rig_link_try(&r, &o), 0);
        RIG_UNTIL(&r, r.ended);
        snprintf(want, sizeof(want), "127.0.0.1:%u%s", r.fake.port,
                 refusal->says);
        CHECK_STR_EQ(r.why, want);
        CHECK(strstr(r.why, "secret") == NULL);
        CHECK(r.for_good == refusal->for_good);
        CHECK_UINT_EQ(r.ready, 0);
        rig_link_end(&r);
    }
}

TEST(redis_link, tells_sentinels_and_servers_apart)
{
    for (int bare = 0; bare < 2; bare++) {
        struct link_rig r;
        char want[VOW__REDIS_WHY];
        rig_link_begin(&r);
        r.fake.mode = bare ? NULL : "sentinel";
        struct vow__link_opts o = rig_link_opts(&r);
        o.bare = bare;
        CHECK_INT_EQ(rig_link_try(&r, &o), 0);
        RIG_UNTIL(&r, r.ended);
        CHECK(r.for_good);
        snprintf(want, sizeof(want),
                 bare ? "127.0.0.1:%u is no Sentinel: the address of a server "
                        "itself begins with redis://"
                      : "127.0.0.1:%u is a Sentinel, which knows where the "
                        "data are: its address is "
                        "redis-sentinel://127.0.0.1:%u/MASTER",
                 r.fake.port, r.fake.port);
        CHECK_STR_EQ(r.why, want);
        rig_link_end(&r);
    }
}

TEST(redis_link, a_replica_of_a_cluster_can_be_listened_to)
{
    struct link_rig r;
    rig_link_begin(&r);
    r.fake.mode = "cluster";
    r.fake.role = "*5\r\n$5\r\nslave\r\n$1\r\nh\r\n:1\r\n$1\r\nx\r\n:1\r\n";
    rig_link_open(&r);
    RIG_UNTIL(&r, r.ready);
    CHECK(r.server.cluster && !r.server.master);
    world_advance_ms(r.w, 5000);
    fake_settle(r.w, &r.fake);
    CHECK_UINT_EQ(r.ended, 0);
    rig_link_end(&r);
}

TEST(redis_link, a_cluster_has_one_database)
{
    static const struct refusal no = {
        .word = "SELECT", .answer = "-ERR SELECT is not allowed\r\n"};
    struct link_rig r;
    rig_link_begin(&r);
    refusal = &no;
    r.fake.mode = "cluster";
    r.fake.answer = refuse;
    struct vow__link_opts o = rig_link_opts(&r);
    o.db = 1;
    CHECK_INT_EQ(rig_link_try(&r, &o), 0);
    RIG_UNTIL(&r, r.ended);
    CHECK(r.for_good);
    CHECK(strstr(r.why, "which has database 0 only") != NULL);
    rig_link_end(&r);
}

TEST(redis_link, a_server_that_is_silent_in_the_greeting_is_left)
{
    struct link_rig r;
    rig_link_begin(&r);
    static const struct refusal silence = {.word = "EVAL", .answer = ""};
    refusal = &silence;
    r.fake.answer = refuse;
    rig_link_open(&r);
    RIG_UNTIL(&r, strstr(r.fake.log, "SUBSCRIBE") != NULL);
    fake_settle(r.w, &r.fake);
    world_advance_ms(r.w, 999);
    CHECK_UINT_EQ(r.ended, 0);
    world_advance_ms(r.w, 1);
    CHECK_UINT_EQ(r.ended, 1);
    CHECK(strstr(r.why, "did not answer for 1000 ms") != NULL);
    rig_link_end(&r);
}

TEST(redis_link, nobody_there_is_told)
{
    struct link_rig r;
    rig_link_begin(&r);
    fake_deaf(&r.fake);
    rig_link_open(&r);
    RIG_UNTIL(&r, r.ended);
    CHECK(!r.for_good);
    CHECK(strstr(r.why, "refused") != NULL);
    rig_link_end(&r);
}

/* ---- commands ------------------------------------------------------------ */

static const char *say_word(struct fake_conn *c, char **words, size_t n)
{
    static char text[256];
    if (strlen(words[0]) > 1 && strcmp(words[0], "EVALSHA") != 0)
        return NULL;
    if (strcmp(words[0], "P") == 0)
        fake_say(c, ">3\r\n$7\r\nmessage\r\n$4\r\nchan\r\n$2\r\nhi\r\n");
    snprintf(text, sizeof(text), "+%s\r\n", n > 1 ? words[3] : words[0]);
    return text;
}

TEST(redis_link, answers_come_in_order_with_messages_between)
{
    struct link_rig r;
    rig_link_ready(&r);
    r.fake.answer = say_word;
    r.fake.cut = 3;
    const char *words[] = {"A", "P", "C", "P", "E"};
    for (size_t i = 0; i < 5; i++)
        CHECK_UINT_EQ(rig_say(&r, words[i]), i);
    CHECK(vow__link_busy(r.link) == 5 * 11);
    RIG_UNTIL(&r, r.answered == 5);
    for (size_t i = 0; i < 5; i++)
        CHECK_STR_EQ(r.answers[i].text, words[i]);
    CHECK_UINT_EQ(r.pushes, 2);
    CHECK_STR_EQ(r.push, "hi");
    CHECK_UINT_EQ(vow__link_busy(r.link), 0);
    rig_link_end(&r);
}

TEST(redis_link, a_script_is_called_by_its_hash)
{
    struct link_rig r;
    struct vow__buf tail;
    rig_link_ready(&r);
    r.fake.answer = say_word;
    rig_eval(&r, VOW__LUA_COMMIT, "the-key", &tail);
    RIG_UNTIL(&r, r.answered == 1);
    CHECK_STR_EQ(r.answers[0].text, "the-key");
    CHECK(strstr(r.fake.log, " EVALSHA ") != NULL);
    vow__buf_fini(&tail);
    rig_link_end(&r);
}

static const char *no_script(struct fake_conn *c, char **words, size_t n)
{
    const int *times = c->fake->user;
    if (strcmp(words[0], "EVALSHA") == 0) {
        CHECK_STR_EQ(words[1], vow__redis_scripts[VOW__LUA_PEEK].sha);
        return "-NOSCRIPT No matching script. Please use EVAL.\r\n";
    }
    if (strcmp(words[0], "EVAL") != 0)
        return NULL;
    CHECK_UINT_EQ(n, 4);
    size_t line = strcspn(vow__redis_scripts[VOW__LUA_PEEK].text, "\n");
    CHECK(strncmp(words[1], vow__redis_scripts[VOW__LUA_PEEK].text, line) == 0);
    CHECK_STR_EQ(words[2], "1");
    CHECK_STR_EQ(words[3], "k");
    return *times == 1 ? "+fine\r\n" : "-NOSCRIPT again\r\n";
}

TEST(redis_link, a_script_that_is_not_known_is_sent_with_its_text_once)
{
    for (int times = 1; times < 3; times++) {
        struct link_rig r;
        struct vow__buf tail;
        rig_link_ready(&r);
        r.fake.answer = no_script;
        r.fake.user = &times;
        rig_eval(&r, VOW__LUA_PEEK, "k", &tail);
        RIG_UNTIL(&r, r.answered == 1);
        CHECK_STR_EQ(r.answers[0].text, times == 1 ? "fine" : "NOSCRIPT again");
        CHECK_UINT_EQ(vow__link_busy(r.link), 0);
        vow__buf_fini(&tail);
        rig_link_end(&r);
    }
}

static const char *count_asking(struct fake_conn *c, char **words, size_t n)
{
    int *asked = c->fake->user;
    (void)n;
    if (strcmp(words[0], "ASKING") == 0)
        ++*asked;
    else if (strcmp(words[0], "EVALSHA") == 0)
        return "-NOSCRIPT\r\n";
    else if (strcmp(words[0], "EVAL") == 0)
        return "+fine\r\n";
    return NULL;
}

TEST(redis_link, asking_goes_before_each_of_them)
{
    struct link_rig r;
    struct vow__buf tail;
    int asked = 0;
    rig_link_ready(&r);
    r.fake.answer = count_asking;
    r.fake.user = &asked;
    vow__link_asking(r.link);
    rig_eval(&r, VOW__LUA_PEEK, "k", &tail);
    RIG_UNTIL(&r, r.answered == 1);
    CHECK_STR_EQ(r.answers[0].text, "fine");
    CHECK_INT_EQ(asked, 2);
    vow__buf_fini(&tail);
    rig_eval(&r, VOW__LUA_PEEK, "k", &tail);
    RIG_UNTIL(&r, r.answered == 2);
    CHECK_INT_EQ(asked, 2);
    vow__buf_fini(&tail);
    rig_link_end(&r);
}
