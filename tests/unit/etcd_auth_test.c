/* SPDX-License-Identifier: MIT */
/* Who we are to etcd: tokens, that all wait for, that are forgotten and asked
 * for again; and passwords that are shown nowhere. */
#include "etcd_call_rig.h"

static struct members m;
static const char *token_says;

#define ME .user = "me", .password = "open \"sesame\"\\"
#define NO_TOKEN                                                               \
    "401 {\"error\":\"etcdserver: invalid auth token\",\"code\":16}"

/* Only the last token that was given is known. */
static const char *say_who(struct members *mm, size_t member, const char *path,
                           const char *body)
{
    static char says[128];
    static char good[32];
    (void)member;
    (void)body;
    if (strcmp(path, "auth/authenticate") == 0) {
        if (token_says != NULL)
            return token_says;
        snprintf(good, sizeof(good), "token.%u", mm->asked);
        snprintf(says, sizeof(says), "200 {\"header\":{},\"token\":\"%s\"}",
                 good);
        return says;
    }
    if (strcmp(mm->who, good) != 0 || mm->who[0] == 0)
        return NO_TOKEN;
    return "200 {\"header\":{\"revision\":\"7\"}}";
}

static void open_as_me(members_fn answer)
{
    token_says = NULL;
    members_open(&m, 1, answer, VOW_ETCD_OPTS(ME));
}

TEST(etcd_auth, all_wait_for_one_token)
{
    struct called c[3] = {{.told = 0}};
    open_as_me(say_who);
    for (size_t i = 0; i < 3; i++)
        call(m.etcd, &c[i], "kv/txn");
    MEMBERS_UNTIL(&m, m.asked == 1);
    CHECK_STR_EQ(m.body, "{\"name\":\"me\",\"password\":"
                         "\"open \\u0022sesame\\u0022\\u005c\"}");
    CHECK_STR_EQ(m.who, "");
    MEMBERS_UNTIL(&m, c[0].told && c[1].told && c[2].told);
    CHECK_STR_EQ(m.log, "0:auth/authenticate 0:kv/txn 0:kv/txn "
                        "0:kv/txn ");
    CHECK_STR_EQ(m.who, "token.1");
    for (size_t i = 0; i < 3; i++)
        CHECK_INT_EQ(c[i].code, 0);
    CHECK_INT_EQ(call_now(&m, &c[0]), 0);
    CHECK_UINT_EQ(m.asked, 5);
    members_close(&m);
}

TEST(etcd_auth, a_token_that_was_forgotten_is_asked_for_again_by_one)
{
    struct called c[3] = {{.told = 0}};
    open_as_me(say_who);
    CHECK_INT_EQ(call_now(&m, &c[0]), 0);
    m.log[0] = 0;
    m.answer = say_that;
    m.user = NO_TOKEN;
    for (size_t i = 0; i < 3; i++)
        call(m.etcd, &c[i], "kv/txn");
    MEMBERS_UNTIL(&m, m.asked == 5);
    m.answer = say_who;
    MEMBERS_UNTIL(&m, c[0].told && c[1].told && c[2].told);
    for (size_t i = 0; i < 3; i++)
        CHECK_INT_EQ(c[i].code, 0);
    CHECK_STR_EQ(m.log, "0:kv/txn 0:kv/txn 0:kv/txn 0:auth/authenticate "
                        "0:kv/txn 0:kv/txn 0:kv/txn ");
    members_close(&m);
}

/* What is said to "kv/late" is whole when the connection ends. */
static const char *say_late(struct members *mm, size_t member, const char *path,
                            const char *body)
{
    return strcmp(path, "kv/late") == 0
               ? "401+{\"error\":\"invalid auth token\",\"code\":16}"
               : say_who(mm, member, path, body);
}

TEST(etcd_auth, who_hears_of_an_old_token_late_uses_the_new_one)
{
    struct called c[2] = {{.told = 0}};
    open_as_me(say_late);
    CHECK_INT_EQ(call_now(&m, &c[0]), 0);
    call(m.etcd, &c[1], "kv/late");
    MEMBERS_UNTIL(&m, member_streams(&m, 0));
    m.answer = say_that;
    m.user = NO_TOKEN;
    call(m.etcd, &c[0], "kv/txn");
    MEMBERS_UNTIL(&m, m.asked == 4);
    m.answer = say_who;
    MEMBERS_UNTIL(&m, c[0].told);
    CHECK_UINT_EQ(c[1].told, 0);
    m.log[0] = 0;
    member_hang_up(&m, 0);
    MEMBERS_UNTIL(&m, c[1].told);
    CHECK_INT_EQ(c[1].code, 0);
    CHECK_STR_EQ(m.log, "0:kv/late "); /* and no other token */
    members_close(&m);
}

static const char *say_nobody(struct members *mm, size_t member,
                              const char *path, const char *body)
{
    return strcmp(path, "auth/authenticate") == 0
               ? say_who(mm, member, path, body)
               : NO_TOKEN;
}

TEST(etcd_auth, a_token_that_is_never_known_ends_it)
{
    struct called c = {.told = 0};
    open_as_me(say_nobody);
    CHECK_INT_EQ(call_now(&m, &c), VOW_ESTORE);
    CHECK_STR_EQ(m.log, "0:auth/authenticate 0:kv/txn 0:auth/authenticate "
                        "0:kv/txn ");
    CHECK_HAS(WHY(&m), "invalid auth token");
    members_close(&m);
}

TEST(etcd_auth, a_wrong_password_ends_all_and_is_not_tried_at_once)
{
    struct called c[3] = {{.told = 0}};
    open_as_me(say_who);
    token_says = "400 {\"error\":\"etcdserver: authentication failed, invalid "
                 "user ID or password\",\"code\":3}";
    for (size_t i = 0; i < 3; i++)
        call(m.etcd, &c[i], "kv/txn");
    MEMBERS_UNTIL(&m, c[0].told && c[1].told && c[2].told);
    for (size_t i = 0; i < 3; i++)
        CHECK_INT_EQ(c[i].code, VOW_ESTORE);
    CHECK_HAS(WHY(&m), "does not let me in: the user or the password is wrong");
    CHECK(strstr(WHY(&m), "sesame") == NULL);
    CHECK_INT_EQ(call_now(&m, &c[0]), VOW_ESTORE);
    CHECK_HAS(WHY(&m), "does not let me in");
    CHECK_STR_EQ(m.log, "0:auth/authenticate ");
    token_says = NULL;
    members_pass(&m, 1000);
    CHECK_INT_EQ(call_now(&m, &c[0]), 0);
    members_close(&m);
}

TEST(etcd_auth, a_cluster_that_knows_no_users_takes_us_as_we_are)
{
    struct called c = {.told = 0};
    open_as_me(say_who);
    token_says = "412 {\"error\":\"etcdserver: authentication is not "
                 "enabled\",\"code\":9}";
    m.answer = say_that;
    m.user = (void *)(uintptr_t)token_says;
    call(m.etcd, &c, "kv/txn");
    MEMBERS_UNTIL(&m, m.asked == 1);
    m.answer = say_yes;
    MEMBERS_UNTIL(&m, c.told);
    CHECK_INT_EQ(c.code, 0);
    CHECK_STR_EQ(m.who, "");
    CHECK_HAS(WHY(&m), "authentication is not enabled");
    CHECK_INT_EQ(call_now(&m, &c), 0);
    CHECK_STR_EQ(m.log, "0:auth/authenticate 0:kv/txn 0:kv/txn ");
    /* It learns to. */
    m.answer = say_that;
    m.user = "400 {\"error\":\"etcdserver: user name is empty\",\"code\":3}";
    m.log[0] = 0;
    token_says = NULL;
    call(m.etcd, &c, "kv/txn");
    MEMBERS_UNTIL(&m, m.asked == 4);
    m.answer = say_who;
    MEMBERS_UNTIL(&m, c.told);
    CHECK_INT_EQ(c.code, 0);
    CHECK_STR_EQ(m.log, "0:kv/txn 0:auth/authenticate 0:kv/txn ");
    members_close(&m);
}

TEST(etcd_auth, without_a_user_it_is_said_what_to_give)
{
    struct called c = {.told = 0};
    members_open(&m, 1, say_that, NULL);
    m.user = "400 {\"error\":\"etcdserver: user name is empty\",\"code\":3}";
    CHECK_INT_EQ(call_now(&m, &c), VOW_ESTORE);
    CHECK_HAS(WHY(&m), "wants to know who we are");
    CHECK_UINT_EQ(m.asked, 1);
    members_close(&m);
}

TEST(etcd_auth, a_token_that_is_none_is_refused)
{
    static const char *const all[] = {
        "200 {}",
        "200 {\"token\":\"\"}",
        "200 {\"token\":17}",
        "200 {\"token\":\"a\\r\\nX-Other: b\"}",
        "200 {\"token\":\"a b\"}",
        "200 {\"token\":\"\\u00e4\"}",
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct called c = {.told = 0};
        open_as_me(say_who);
        token_says = all[i];
        CHECK_INT_EQ(call_now(&m, &c), VOW_ESTORE);
        CHECK_STR_EQ(m.log, "0:auth/authenticate ");
        CHECK_HAS(WHY(&m), "gave no token for me");
        members_close(&m);
    }
}

TEST(etcd_auth, no_sentence_shows_a_password_or_a_token)
{
    struct called c = {.told = 0};
    open_as_me(say_who);
    token_says = "500 {\"error\":\"what is open \\\"sesame\\\"\\\\ for?\","
                 "\"code\":3}";
    CHECK_INT_EQ(call_now(&m, &c), VOW_ESTORE);
    CHECK(strstr(WHY(&m), "sesame") == NULL);
    token_says = NULL;
    CHECK_INT_EQ(call_now(&m, &c), 0);
    m.answer = say_that;
    m.user = "500 {\"error\":\"token.2 does not help\",\"code\":3}";
    CHECK_INT_EQ(call_now(&m, &c), VOW_ESTORE);
    CHECK_STR_EQ(m.who, "token.2");
    CHECK(strstr(WHY(&m), "token.2") == NULL);
    CHECK_HAS(WHY(&m), "not shown");
    members_close(&m);
}

TEST(etcd_auth, without_a_member_all_who_wait_are_told)
{
    struct called c[2] = {{.told = 0}};
    open_as_me(say_who);
    member_deaf(&m, 0);
    call(m.etcd, &c[0], "kv/txn");
    call(m.etcd, &c[1], "kv/txn");
    MEMBERS_UNTIL(&m, c[0].told && c[1].told);
    CHECK_INT_EQ(c[0].code, VOW_ESTORE);
    CHECK_INT_EQ(c[1].code, VOW_ESTORE);
    member_again(&m, 0);
    CHECK_INT_EQ(call_now(&m, &c[0]), 0);
    members_close(&m);
}

/* Of those who wait when all is left, none is sent; who comes by that, is. */
TEST(etcd_auth, leaving_while_a_token_is_asked_for_asks_again_for_who_comes)
{
    struct called later = {.told = 0};
    struct called c[2] = {{.again = true, .next = &later}, {.told = 0}};
    open_as_me(say_that);
    m.user = "";
    call(m.etcd, &c[0], "kv/txn");
    call(m.etcd, &c[1], "kv/txn");
    MEMBERS_UNTIL(&m, m.asked == 1);
    m.answer = say_who;
    vow__calls_leave(vow__etcd_calls(m.etcd));
    MEMBERS_UNTIL(&m, c[0].told && c[1].told);
    CHECK_INT_EQ(c[0].code, VOW_ECLOSED);
    CHECK_INT_EQ(c[1].code, VOW_ECLOSED);
    MEMBERS_UNTIL(&m, later.told);
    CHECK_INT_EQ(later.code, 0);
    CHECK_STR_EQ(m.log, "0:auth/authenticate 0:auth/authenticate 0:kv/again ");
    members_close(&m);
}

FAULT_SWEEP(etcd_auth, asking_for_a_token_survives_every_fault, FAULT_ALLOC)
{
    struct called c[2] = {{.told = 0}};
    token_says = NULL;
    members_begin(&m, w, 1, say_who);
    members_store(&m, VOW_ETCD_OPTS(ME));
    if (m.etcd != NULL) {
        call(m.etcd, &c[0], "kv/txn");
        call(m.etcd, &c[1], "kv/txn");
        MEMBERS_UNTIL(&m, c[0].told && c[1].told);
        for (size_t i = 0; i < 2; i++)
            CHECK(c[i].code == 0 || c[i].code == VOW_EUNSURE ||
                  c[i].code == VOW_ESTORE || /* there was no token */
                  fault_explains(w, c[i].code));
    }
    members_end(&m);
}
