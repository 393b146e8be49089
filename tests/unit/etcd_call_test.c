/* SPDX-License-Identifier: MIT */
/* Calls of etcd: which member is asked, what an answer means, and that nothing
 * that may have happened is ever called nothing. */
#include "etcd_call_rig.h"

static struct members m;

/* ---- members ------------------------------------------------------------- */

TEST(etcd_call, an_answer_is_given_as_it_came)
{
    struct called c = {.told = 0};
    members_open(&m, 1, say_yes, NULL);
    CHECK_INT_EQ(call_now(&m, &c), 0);
    CHECK_UINT_EQ(c.revision, 7);
    CHECK_STR_EQ(m.log, "0:kv/txn ");
    CHECK_STR_EQ(m.body, "{\"key\":\"AA==\"}");
    CHECK_STR_EQ(m.who, "");
    CHECK_STR_EQ(WHY(&m), "");
    members_close(&m);
}

TEST(etcd_call, a_transaction_is_sent_and_emptied)
{
    struct called c = {.told = 0};
    struct vow__txn t;
    members_open(&m, 1, say_yes, NULL);
    vow__txn_init(&t, vow__etcd_alloc(m.etcd), "vow/");
    call_txn(m.etcd, &c, &t);
    MEMBERS_UNTIL(&m, c.told);
    CHECK_STR_EQ(m.log, "0:kv/txn ");
    CHECK_STR_EQ(m.body, "{\"compare\":[],\"success\":[],\"failure\":[]}");
    members_close(&m);
}

TEST(etcd_call, a_member_that_is_away_is_passed_over_and_not_asked_again)
{
    struct called c = {.told = 0};
    members_open(&m, 3, say_yes, NULL);
    member_deaf(&m, 0);
    member_deaf(&m, 1);
    CHECK_INT_EQ(call_now(&m, &c), 0);
    CHECK_STR_EQ(m.log, "2:kv/txn ");
    member_again(&m, 0);
    member_again(&m, 1);
    CHECK_INT_EQ(call_now(&m, &c), 0);
    CHECK_STR_EQ(m.log, "2:kv/txn 2:kv/txn ");
    member_deaf(&m, 2);
    CHECK_INT_EQ(call_now(&m, &c), 0);
    CHECK_STR_EQ(m.log, "2:kv/txn 2:kv/txn 0:kv/txn ");
    members_close(&m);
}

TEST(etcd_call, without_any_member_nothing_happened_and_why_is_said)
{
    struct called c = {.told = 0};
    char port[16];
    members_open(&m, 3, say_yes, NULL);
    for (size_t i = 0; i < 3; i++)
        member_deaf(&m, i);
    CHECK_INT_EQ(call_now(&m, &c), VOW_ESTORE);
    CHECK_HAS(WHY(&m), m.url);
    CHECK_HAS(WHY(&m), " cannot be used: 127.0.0.1:");
    CHECK_HAS(WHY(&m), "refused");
    snprintf(port, sizeof(port), ":%u ", m.at[2].port);
    CHECK_HAS(WHY(&m), port); /* the last one */
    member_again(&m, 1);
    CHECK_INT_EQ(call_now(&m, &c), 0);
    members_close(&m);
}

TEST(etcd_call, no_answer_is_unsure_and_the_next_begins_with_another)
{
    struct called c[2] = {{.told = 0}};
    members_open(&m, 2, say_that, NULL);
    m.user = "";
    for (size_t i = 0; i < 2; i++)
        call(m.etcd, &c[i], "kv/txn");
    members_pass(&m, 990); /* half of the time, for one of two */
    for (size_t i = 0; i < 2; i++)
        CHECK_UINT_EQ(c[i].told, 0);
    members_pass(&m, 20);
    for (size_t i = 0; i < 2; i++)
        CHECK_INT_EQ(c[i].code, VOW_EUNSURE);
    CHECK_STR_EQ(m.log, "0:kv/txn 0:kv/txn "); /* none twice */
    CHECK_HAS(WHY(&m), "did not answer within");
    m.answer = say_yes;
    CHECK_INT_EQ(call_now(&m, &c[0]), 0);
    CHECK_HAS(m.log, "1:kv/txn ");
    members_close(&m);
}

TEST(etcd_call, a_member_that_hangs_up_leaves_it_unsure)
{
    struct called c = {.told = 0};
    members_open(&m, 2, say_that, NULL);
    m.user = "hang up";
    CHECK_INT_EQ(call_now(&m, &c), VOW_EUNSURE);
    CHECK_STR_EQ(m.log, "0:kv/txn ");
    m.answer = say_yes;
    CHECK_INT_EQ(call_now(&m, &c), 0);
    CHECK_STR_EQ(m.log, "0:kv/txn 1:kv/txn ");
    members_close(&m);
}

TEST(etcd_call, a_member_that_gives_up_is_left_too)
{
    struct called c = {.told = 0};
    members_open(&m, 2, say_that, NULL);
    m.user = "503 {\"error\":\"etcdserver: request timed out\",\"code\":14}";
    CHECK_INT_EQ(call_now(&m, &c), VOW_EUNSURE);
    m.user = "500 {\"error\":\"etcdserver: too many requests\",\"code\":8}";
    CHECK_INT_EQ(call_now(&m, &c), VOW_EAGAIN);
    m.answer = say_yes; /* who only refuses is not left */
    CHECK_INT_EQ(call_now(&m, &c), 0);
    CHECK_STR_EQ(m.log, "0:kv/txn 1:kv/txn 1:kv/txn ");
    members_close(&m);
}

/* ---- errors -------------------------------------------------------------- */

static const struct refusal_case {
    const char *text;
    int number;
    int code;
    const char *why;
} refusals[] = {
    {"etcdserver: requested lease not found", 5, VOW_ENOENT, NULL},
    {"etcdserver: request is too large", 3, VOW_E2BIG, "--max-request-bytes"},
    {"grpc: received message larger than max (9 vs. 8)", 8, VOW_E2BIG,
     "--max-request-bytes"},
    {"etcdserver: mvcc: database space exceeded", 8, VOW_ESTORE,
     "etcdctl alarm disarm"},
    {"etcdserver: permission denied", 7, VOW_ESTORE,
     "the right readwrite on all keys with the prefix vow/"},
    {"etcdserver: user name is empty", 3, VOW_ESTORE, "password-file"},
    {"etcdserver: invalid auth token", 16, VOW_ESTORE, "password-file"},
    {"etcdserver: corrupt cluster", 15, VOW_ESTORE, "the same data"},
    {"etcdserver: too many requests", 8, VOW_EAGAIN, "too many requests"},
    {"raft proposal dropped", 2, VOW_EAGAIN, "dropped"},
    {"etcdserver: request timed out", 14, VOW_EUNSURE, "timed out"},
    {"etcdserver: request timed out, possibly due to previous leader failure",
     14, VOW_EUNSURE, "leader failure"},
    {"context deadline exceeded", 2, VOW_EUNSURE, "deadline"},
    {"context deadline exceeded", 4, VOW_EUNSURE, "deadline"},
    {"etcdserver: leader changed", 14, VOW_EUNSURE, "leader changed"},
    {"etcdserver: server stopped", 14, VOW_EUNSURE, "stopped"},
    {"transport is closing", 14, VOW_EUNSURE, "transport"},
    {"something new", 14, VOW_EUNSURE, "something new"},
    {"something new", 13, VOW_EUNSURE, "something new"},
    {"something new", 8, VOW_EUNSURE, "something new"},
    {"something new", 99, VOW_EUNSURE, "something new"},
    {"something new", 0, VOW_EUNSURE, "something new"},
    {"something new", 3, VOW_ESTORE, "something new"},
    {"etcdserver: duplicate key given in txn request", 3, VOW_ESTORE,
     "duplicate key"},
    {"etcdserver: mvcc: required revision has been compacted", 11, VOW_ESTORE,
     "compacted"},
    {"Method Not Allowed", 12, VOW_ESTORE, "Method"},
    {"Not Found", 5, VOW_ESTORE, "Not Found"},
};

static void check_refusal(const struct refusal_case *r, const char *says)
{
    struct called c = {.told = 0};
    members_open(&m, 1, say_that, NULL);
    m.user = (void *)(uintptr_t)says;
    if (call_now(&m, &c) != r->code)
        FAIL("%s: code %d, want %d", says, c.code, r->code);
    CHECK_UINT_EQ(m.asked, 1); /* never twice */
    if (r->why != NULL) {
        CHECK_HAS(WHY(&m), "127.0.0.1:");
        CHECK_HAS(WHY(&m), r->why);
    }
    members_close(&m);
}

TEST(etcd_call, errors_mean_what_they_say_in_all_their_shapes)
{
    static const char *const shapes[] = {
        "500 {\"error\":\"%s\",\"message\":\"%s\",\"code\":%d}",
        "200 {\"error\":{\"grpc_code\":%3$d,\"message\":\"%1$s\"}}",
        "503 {\"error\":{\"code\":%3$d,\"message\":\"%1$s\"}}",
        "400 {\"code\":%3$d,\"message\":\"%1$s\",\"details\":[]}",
        "500 {\"error\":\"%1$s\",\"code\":\"%3$d\"}",
    };
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
        for (size_t j = 0; j < sizeof(shapes) / sizeof(shapes[0]); j++) {
            char says[512];
            const struct refusal_case *r = &refusals[i];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(says, sizeof(says), shapes[j], r->text, r->text,
                     r->number);
#pragma GCC diagnostic pop
            check_refusal(r, says);
        }
}

TEST(etcd_call, an_error_without_words_is_unsure)
{
    static const char *const all[] = {
        "200 {\"error\":null}", "200 {\"error\":17}",
        "200 {\"error\":[]}",   "500 {}",
        "503 {\"error\":{}}",   "200 {\"error\":{\"message\":3}}",
        "500 {\"code\":\"x\"}", "204 {}",
        "500 {\"error\":\"\"}",
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const struct refusal_case r = {"", 0, VOW_EUNSURE, ""};
        check_refusal(&r, all[i]);
    }
}

/* A request that was refused is not for the next member; one that a member
 * could not even look at is. */
TEST(etcd_call, a_member_that_is_not_ready_is_passed_over)
{
    static const char *const all[] = {
        "500 {\"error\":\"etcdserver: no leader\",\"code\":14}",
        "200 {\"error\":{\"grpc_code\":14,\"message\":\"etcdserver: no "
        "leader\"}}",
        "503 {\"error\":\"etcdserver: not capable\",\"code\":14}",
        "503 {\"error\":\"etcdserver: rpc not supported for learner\","
        "\"code\":14}",
        "503 {\"error\":\"connection error: desc = \\\"transport: Error while "
        "dialing dial tcp\\\"\",\"code\":14}",
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct called c = {.told = 0};
        members_open(&m, 2, say_that, NULL);
        m.user = (void *)(uintptr_t)all[i];
        call(m.etcd, &c, "kv/txn");
        MEMBERS_UNTIL(&m, m.asked == 1);
        m.answer = say_yes;
        MEMBERS_UNTIL(&m, c.told);
        CHECK_INT_EQ(c.code, 0);
        CHECK_STR_EQ(m.log, "0:kv/txn 1:kv/txn ");
        members_close(&m);
    }
}

TEST(etcd_call, while_a_leader_is_elected_all_are_asked_until_there_is_one)
{
    struct called c = {.told = 0};
    members_open(&m, 2, say_that, NULL);
    m.user = "500 {\"error\":\"etcdserver: no leader\",\"code\":14}";
    call(m.etcd, &c, "kv/txn");
    members_pass(&m, 1000);
    CHECK_UINT_EQ(c.told, 0);
    CHECK(m.asked > 10 && m.asked < 60);
    m.answer = say_yes;
    members_pass(&m, 60);
    CHECK_UINT_EQ(c.told, 1);
    CHECK_INT_EQ(c.code, 0);
    members_close(&m);
}

TEST(etcd_call, without_a_leader_it_ends_in_time_and_did_not_happen)
{
    struct called c = {.told = 0};
    members_open(&m, 3, say_that, NULL);
    member_deaf(&m, 1);
    m.user = "500 {\"error\":\"etcdserver: no leader\",\"code\":14}";
    call(m.etcd, &c, "kv/txn");
    members_pass(&m, 1900);
    CHECK_UINT_EQ(c.told, 0);
    members_pass(&m, 200);
    CHECK_UINT_EQ(c.told, 1);
    CHECK_INT_EQ(c.code, VOW_ESTORE);
    CHECK_HAS(WHY(&m), "cannot be used: 127.0.0.1:");
    members_close(&m);
}

/* ---- who is no etcd ------------------------------------------------------ */

TEST(etcd_call, an_answer_that_is_no_json_says_who_it_is)
{
    static const struct {
        const char *says;
        int code;
    } all[] = {
        {"200 <html>", VOW_EUNSURE},
        {"200 ", VOW_EUNSURE},
        {"200 [1]", VOW_EUNSURE},
        {"200 {\"a\":1} x", VOW_EUNSURE},
        {"502 bad gateway", VOW_EUNSURE},
        {"200 \"text\"", VOW_EUNSURE},
        {"404 Not Found\n", VOW_ESTORE},
        {"301 ", VOW_ESTORE},
        {"200 {\"a\":\"\xff\"}", VOW_EUNSURE},
        {"200 {\"a\":99999999999999999999}", VOW_EUNSURE},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct called c = {.told = 0};
        members_open(&m, 1, say_that, NULL);
        m.user = (void *)(uintptr_t)all[i].says;
        if (call_now(&m, &c) != all[i].code)
            FAIL("%s: %d", all[i].says, c.code);
        CHECK_HAS(WHY(&m), "127.0.0.1:");
        CHECK_HAS(WHY(&m), " is no etcd server: its answer ");
        members_close(&m);
    }
}

TEST(etcd_call, what_a_server_says_is_cut_and_cleaned)
{
    struct called c = {.told = 0};
    static char says[4096];
    members_open(&m, 1, say_that, NULL);
    size_t n =
        (size_t)snprintf(says, sizeof(says), "500 {\"error\":\"a\\n\\u001bb");
    memset(says + n, 'x', 3000);
    snprintf(says + n + 3000, 20, "\",\"code\":3}");
    m.user = says;
    CHECK_INT_EQ(call_now(&m, &c), VOW_ESTORE);
    CHECK_HAS(WHY(&m), "a??bxxx");
    CHECK(strlen(WHY(&m)) < 300);
    members_close(&m);
}

/* ---- the end ------------------------------------------------------------- */

TEST(etcd_call, leaving_ends_what_runs_and_sends_what_comes)
{
    struct called later = {.told = 0};
    struct called c[2] = {{.again = true, .next = &later}, {.told = 0}};
    members_open(&m, 1, say_that, NULL);
    m.user = "";
    call(m.etcd, &c[0], "kv/txn");
    call(m.etcd, &c[1], "kv/txn");
    MEMBERS_UNTIL(&m, m.asked == 2);
    m.answer = say_yes;
    vow__calls_leave(vow__etcd_calls(m.etcd));
    MEMBERS_UNTIL(&m, c[0].told && c[1].told);
    CHECK_INT_EQ(c[0].code, VOW_ECLOSED);
    CHECK_INT_EQ(c[1].code, VOW_ECLOSED);
    MEMBERS_UNTIL(&m, later.told);
    CHECK_INT_EQ(later.code, 0);
    CHECK_STR_EQ(m.log, "0:kv/txn 0:kv/txn 0:kv/again ");
    members_close(&m);
}

TEST(etcd_call, what_runs_when_the_store_is_closed_ends_at_once)
{
    struct called c[4] = {{.told = 0}};
    members_open(&m, 1, say_that, NULL);
    m.user = "";
    for (size_t i = 0; i < 4; i++)
        call(m.etcd, &c[i], "kv/txn");
    MEMBERS_UNTIL(&m, m.asked == 4);
    VOW_AUTO(vow_future) closed = m.store->ops->close(m.store);
    m.store = NULL;
    world_advance_ms(m.w, 0); /* no member says anything */
    for (size_t i = 0; i < 4; i++)
        CHECK(c[i].told == 1 && c[i].code == VOW_ECLOSED);
    MEMBERS_UNTIL(&m, vow_state_of(closed) != VOW_PENDING);
    closed = vow_future_unref(closed);
    members_close(&m);
}

/* ---- faults, and anything at all ----------------------------------------- */

FAULT_SWEEP(etcd_call, calls_survive_every_fault, FAULT_ALLOC)
{
    struct called later = {.told = 0};
    struct called c[2] = {{.again = true, .next = &later}, {.told = 0}};
    members_begin(&m, w, 2, say_yes);
    members_store(&m, NULL);
    if (m.etcd != NULL) {
        call(m.etcd, &c[0], "kv/txn");
        call(m.etcd, &c[1], "kv/txn");
        MEMBERS_UNTIL(&m, c[0].told && c[1].told && later.told);
        CHECK(c[0].code == 0 || c[0].code == VOW_EUNSURE ||
              fault_explains(w, c[0].code));
        CHECK(later.code == 0 || later.code == VOW_EUNSURE ||
              fault_explains(w, later.code));
    }
    members_end(&m);
}

static const char *say_anything(struct members *mm, size_t member,
                                const char *path, const char *body)
{
    static const char *const seeds[] = {
        "200 {\"header\":{\"revision\":\"7\"},\"kvs\":[{\"key\":\"AA==\"}]}",
        "500 {\"error\":\"etcdserver: no leader\",\"code\":14}",
        "503 {\"error\":{\"grpc_code\":16,\"message\":\"x\",\"http_code\":1}}",
        "401 {\"error\":\"etcdserver: invalid auth token\",\"code\":16}",
        "200 {\"header\":{},\"token\":\"abc.5\"}",
        "200+{\"result\":{}}\n{\"error\":{\"message\":\"y\"}}\n",
    };
    static const char signs[] = "{}[]\":,0\\n";
    static char says[256];
    uint64_t *state = mm->user;
    (void)member;
    (void)path;
    (void)body;
    size_t n = (size_t)snprintf(says, sizeof(says), "%s",
                                seeds[test_random(state) % 6]);
    for (uint64_t i = test_random(state) % 4; i > 0; i--) {
        size_t at = 4 + test_random(state) % (n - 4);
        says[at] = signs[test_random(state) % (sizeof(signs) - 1)];
        if (test_random(state) % 3 == 0)
            says[at] = (char)(1 + test_random(state) % 255);
    }
    if (test_random(state) % 8 == 0)
        says[4 + test_random(state) % (n - 4)] = 0;
    return says;
}

static bool code_is_known(int code)
{
    static const int known[] = {0,          VOW_ENOENT, VOW_ESTORE,
                                VOW_EAGAIN, VOW_E2BIG,  VOW_EUNSURE};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i] == code)
            return true;
    return false;
}

TEST(etcd_call, whatever_members_say_each_call_ends_once)
{
    uint64_t state = test_seed();
    struct called c = {.told = 0};
    members_open(&m, 2, say_anything,
                 VOW_ETCD_OPTS(.user = "me", .password = "open sesame",
                               .timeout_ms = 100));
    m.user = &state;
    for (int i = 0; i < 500; i++) {
        m.log[0] = 0;
        call(m.etcd, &c, "kv/txn");
        members_settle(&m);
        for (int j = 0; j < 20 && !c.told; j++)
            members_pass(&m, 100); /* a stream that does not end */
        CHECK_UINT_EQ(c.told, 1);
        CHECK(code_is_known(c.code));
        CHECK(strstr(WHY(&m), "sesame") == NULL);
    }
    members_close(&m);
}
