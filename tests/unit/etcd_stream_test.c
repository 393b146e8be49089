/* SPDX-License-Identifier: MIT */
/* Streams of etcd: lines, however they are cut; their end, and who ends it. */
#include "etcd_call_rig.h"

#include <stdlib.h>

static struct members m;

struct told {
    struct vow__etcd_stream *s; /* NULL: it has ended, or was let go */
    unsigned lines;
    unsigned ends;
    int code;
    uint64_t sum;       /* of the numbers "n" */
    unsigned close_at;  /* let it go in this line */
    bool leave_in_line; /* end all in a line */
};

static void on_line(const json_t *root, void *user)
{
    struct told *t = user;
    CHECK(t->s != NULL);
    CHECK_UINT_EQ(t->ends, 0);
    t->sum += vow__json_uint(json_object_get(root, "result"), "n");
    if (++t->lines == t->close_at) {
        vow__etcd_stream_close(t->s);
        t->s = NULL;
    }
    if (t->leave_in_line)
        vow__calls_leave(vow__etcd_calls(m.etcd));
}

static void on_end(int code, void *user)
{
    struct told *t = user;
    CHECK(t->s != NULL);
    CHECK_UINT_EQ(t->ends++, 0);
    t->code = code;
    t->s = NULL;
}

static bool stream(struct told *t)
{
    struct vow__buf body;
    const struct vow__etcd_stream_events events = {
        .on_line = on_line, .on_end = on_end, .user = t};
    vow__etcd_buf_init(&body, vow__etcd_alloc(m.etcd));
    vow__buf_text(&body, "{}");
    t->s = vow__etcd_stream(m.etcd, "watch", &body, &events);
    CHECK_UINT_EQ(t->lines + t->ends, 0);
    return t->s != NULL;
}

static void let_go(struct told *t)
{
    if (t->s != NULL)
        vow__etcd_stream_close(t->s);
    t->s = NULL;
}

static void say(size_t member, const char *text)
{
    member_say(&m, member, text, strlen(text));
}

/* A stream of these beginnings, which is open; let_go() afterwards. */
static void begin(struct told *t, const char *says)
{
    *t = (struct told){.close_at = t->close_at,
                       .leave_in_line = t->leave_in_line};
    m.user = (void *)(uintptr_t)says;
    CHECK(stream(t));
}

TEST(etcd_stream, lines_are_told_however_they_are_cut)
{
    static const char lines[] =
        "200+{\"result\":{\"n\":\"1\"}}\n\n \r\n{\"result\":{\"n\":\"20\"}}\r\n"
        "{\"result\":{\"n\":300}}\n{\"result\":";
    for (size_t cut = 0; cut < 12; cut++) {
        struct told t = {.lines = 0};
        members_open(&m, 1, say_that, NULL);
        m.cut = cut;
        begin(&t, lines);
        MEMBERS_UNTIL(&m, t.lines == 3);
        CHECK_UINT_EQ(t.sum, 321);
        members_settle(&m);
        say(0, "{\"n\":\"4000\"}}\n");
        MEMBERS_UNTIL(&m, t.lines == 4);
        CHECK_UINT_EQ(t.sum, 4321);
        CHECK_UINT_EQ(t.ends, 0);
        let_go(&t);
        MEMBERS_UNTIL(&m, !member_streams(&m, 0));
        members_close(&m);
    }
}

TEST(etcd_stream, one_that_ends_is_told_once)
{
    struct told t = {.lines = 0};
    members_open(&m, 2, say_that, NULL);
    begin(&t, "200+{\"result\":{}}\n{\"result\":{\"n\":\"5\"}}");
    MEMBERS_UNTIL(&m, t.lines == 1);
    members_settle(&m);
    CHECK_UINT_EQ(t.lines, 1); /* half a line, as far as anybody knows */
    member_hang_up(&m, 0);
    MEMBERS_UNTIL(&m, t.ends);
    CHECK_UINT_EQ(t.lines, 2);
    CHECK_UINT_EQ(t.sum, 5);
    CHECK_INT_EQ(t.code, VOW_EUNSURE);
    CHECK_HAS(WHY(&m), "ended a stream");
    members_close(&m);
}

TEST(etcd_stream, before_the_first_line_it_goes_to_another_member)
{
    static const char *const all[] = {
        "200+{\"error\":{\"grpc_code\":14,\"message\":\"etcdserver: no "
        "leader\"}}\n",
        "503 {\"error\":{\"grpc_code\":14,\"message\":\"etcdserver: no "
        "leader\"}}",
    };
    for (size_t i = 0; i < 2; i++) {
        struct told t = {.lines = 0};
        members_open(&m, 3, say_that, NULL);
        member_deaf(&m, 1);
        begin(&t, all[i]);
        MEMBERS_UNTIL(&m, m.asked == 1);
        m.user = "200+{\"result\":{\"n\":\"1\"}}\n";
        MEMBERS_UNTIL(&m, t.lines == 1);
        CHECK_STR_EQ(m.log, "0:watch 2:watch ");
        CHECK(!member_streams(&m, 0) && member_streams(&m, 2));
        let_go(&t);
        members_close(&m);
    }
}

TEST(etcd_stream, behind_the_first_line_an_error_ends_it)
{
    static const struct {
        const char *error;
        int code;
    } all[] = {
        {"{\"error\":{\"grpc_code\":14,\"message\":\"etcdserver: no "
         "leader\"}}\n",
         VOW_ESTORE},
        {"{\"error\":{\"grpc_code\":14,\"message\":\"etcdserver: server "
         "stopped\"}}\n",
         VOW_EUNSURE},
        {"{\"error\":\"etcdserver: permission denied\",\"code\":7}\n",
         VOW_ESTORE},
        {"{\"error\":{\"grpc_code\":16,\"message\":\"x\"}}\n", VOW_ESTORE},
        {"what?\n", VOW_EUNSURE},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct told t = {.lines = 0};
        members_open(&m, 2, say_that, NULL);
        begin(&t, "200+{\"result\":{}}\n");
        MEMBERS_UNTIL(&m, t.lines == 1);
        say(0, all[i].error);
        say(0, "{\"result\":{}}\n"); /* it is not told */
        MEMBERS_UNTIL(&m, t.ends);
        CHECK_INT_EQ(t.code, all[i].code);
        members_settle(&m);
        CHECK_UINT_EQ(t.lines, 1);
        CHECK_STR_EQ(m.log, "0:watch ");
        CHECK(!member_streams(&m, 0));
        members_close(&m);
    }
}

TEST(etcd_stream, without_a_member_it_ends_and_says_why)
{
    struct told t = {.lines = 0};
    members_open(&m, 2, say_that, NULL);
    member_deaf(&m, 0);
    member_deaf(&m, 1);
    begin(&t, "");
    MEMBERS_UNTIL(&m, t.ends);
    CHECK_INT_EQ(t.code, VOW_ESTORE);
    CHECK_HAS(WHY(&m), "cannot be used");
    members_close(&m);
}

TEST(etcd_stream, a_line_may_let_it_go)
{
    for (unsigned at = 1; at <= 3; at++) {
        struct told t = {.close_at = at};
        members_open(&m, 1, say_that, NULL);
        begin(&t, "200+{\"result\":{}}\n{\"result\":{}}\n{\"result\":{}}\n");
        MEMBERS_UNTIL(&m, t.s == NULL);
        members_settle(&m);
        CHECK_UINT_EQ(t.lines, at);
        CHECK_UINT_EQ(t.ends, 0);
        CHECK(!member_streams(&m, 0));
        members_close(&m);
    }
}

TEST(etcd_stream, a_line_may_end_all)
{
    struct told t = {.leave_in_line = true};
    members_open(&m, 1, say_that, NULL);
    begin(&t, "200+{\"result\":{}}\n{\"result\":{}}\n");
    MEMBERS_UNTIL(&m, t.ends);
    CHECK_UINT_EQ(t.lines, 1);
    CHECK_INT_EQ(t.code, VOW_ECLOSED);
    members_close(&m);
}

TEST(etcd_stream, closing_the_store_ends_it)
{
    struct told t = {.lines = 0};
    members_open(&m, 1, say_that, NULL);
    begin(&t, "200+{\"result\":{}}\n");
    MEMBERS_UNTIL(&m, t.lines == 1);
    members_close(&m);
    CHECK_UINT_EQ(t.ends, 1);
    CHECK_INT_EQ(t.code, VOW_ECLOSED);
}

TEST(etcd_stream, a_line_has_at_most_eight_mebibytes)
{
    enum { MIB = 1 << 20 };
    static char many[MIB];
    struct told t = {.lines = 0};
    members_open(&m, 1, say_that, NULL);
    memset(many, ' ', sizeof(many));
    begin(&t, "200+{\"result\":");
    MEMBERS_UNTIL(&m, member_streams(&m, 0));
    for (int i = 0; i < 7; i++)
        member_say(&m, 0, many, MIB);
    say(0, "{\"n\":\"3\"}}\n");
    MEMBERS_UNTIL(&m, t.lines == 1);
    CHECK_UINT_EQ(t.sum, 3);
    for (int i = 0; i < 9; i++)
        member_say(&m, 0, many, MIB);
    MEMBERS_UNTIL(&m, t.ends);
    CHECK_INT_EQ(t.code, VOW_E2BIG);
    CHECK_HAS(WHY(&m), "no end");
    members_close(&m);
}

static const char *say_token(struct members *mm, size_t member,
                             const char *path, const char *body)
{
    (void)member;
    (void)body;
    if (strcmp(path, "watch") != 0)
        return "200 {\"token\":\"a\"}";
    if (mm->asked == 2)
        return "200+{\"error\":{\"grpc_code\":16,\"message\":\"etcdserver: "
               "invalid auth token\"}}\n";
    return "200+{\"result\":{}}\n";
}

TEST(etcd_stream, it_waits_for_a_token_and_asks_for_another)
{
    struct told t = {.lines = 0};
    members_open(&m, 1, say_token,
                 VOW_ETCD_OPTS(.user = "me", .password = "p"));
    CHECK(stream(&t));
    MEMBERS_UNTIL(&m, t.lines == 1);
    CHECK_STR_EQ(m.log,
                 "0:auth/authenticate 0:watch 0:auth/authenticate 0:watch ");
    CHECK_STR_EQ(m.who, "a");
    let_go(&t);
    members_close(&m);
}

FAULT_SWEEP(etcd_stream, streams_survive_every_fault, FAULT_ALLOC)
{
    struct told t = {.lines = 0};
    members_begin(&m, w, 1, say_that);
    m.user = "200+{\"result\":{}}\n{\"result\":{}}\n";
    members_store(&m, NULL);
    if (m.etcd != NULL && stream(&t)) {
        MEMBERS_UNTIL(&m, t.lines == 2 || t.ends);
        CHECK(t.ends == 0 || t.code == VOW_EUNSURE ||
              fault_explains(w, t.code));
        let_go(&t);
    }
    members_end(&m);
}

/* Lines that were changed at random: all is told in order, or it ends. */
TEST(etcd_stream, whatever_comes_it_ends_at_most_once)
{
    uint64_t state = test_seed();
    for (int i = 0; i < 200; i++) {
        char says[256];
        struct told t = {.lines = 0};
        size_t n = (size_t)snprintf(
            says, sizeof(says),
            "200+{\"result\":{\"n\":\"1\"}}\n{\"result\":{\"n\":\"1\"}}\n"
            "{\"result\":{\"n\":\"1\"}}\n{\"error\":{\"message\":\"m\"}}\n");
        for (uint64_t j = test_random(&state) % 3; j > 0; j--)
            says[4 + test_random(&state) % (n - 4)] =
                (char)(1 + test_random(&state) % 255);
        members_open(&m, 1, say_that, NULL);
        m.cut = test_random(&state) % 40;
        begin(&t, says);
        for (int j = 0; j < 20 && !t.ends; j++)
            members_settle(&m);
        CHECK(t.lines <= 4 && t.ends <= 1);
        CHECK(t.ends == 0 || t.code == VOW_EUNSURE);
        let_go(&t);
        members_close(&m);
    }
}
