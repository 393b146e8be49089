/* SPDX-License-Identifier: MIT */
/* Members that stand still: each has a part of the time, what only asks goes on
 * at the next, what writes is unsure, and streams leave them. */
#include "etcd_call_rig.h"

enum { PART_MS = 666 /* a third of 2000 */ };

static struct members m;

/* Who says nothing: bits. */
static uint32_t still;

static const char *some_stand(struct members *x, size_t member,
                              const char *path, const char *body)
{
    if ((still >> member & 1) != 0)
        return "";
    if (strcmp(path, "watch") == 0)
        return "200+{\"result\":{\"n\":\"1\"}}\n";
    if (strcmp(path, "auth/authenticate") == 0)
        return "200 {\"token\":\"T\"}";
    return say_yes(x, member, path, body);
}

static void open_three(uint32_t who, const vow_etcd_opts *opts)
{
    still = who;
    members_open(&m, 3, some_stand, opts);
}

/* ---- calls --------------------------------------------------------------- */

TEST(etcd_still, what_only_asks_goes_on_at_the_next)
{
    static const char *const all[] = {"kv/range", "lease/keepalive",
                                      "maintenance/alarm",
                                      "cluster/member/list"};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct called c = {.told = 0};
        open_three(1, NULL);
        call(m.etcd, &c, all[i]);
        members_pass(&m, PART_MS - 10);
        CHECK_UINT_EQ(c.told, 0);
        members_pass(&m, 20);
        CHECK_UINT_EQ(c.told, 1);
        CHECK_INT_EQ(c.code, 0);
        CHECK_UINT_EQ(m.asked, 2);
        CHECK_INT_EQ(call_now(&m, &c), 0); /* and is not asked again */
        CHECK_UINT_EQ(m.asked, 3);
        members_close(&m);
    }
}

static void ask_txn(struct called *c, bool writes, uint64_t ms)
{
    struct vow__txn t;
    struct vow__key key = vow__key("k", NULL, "");
    vow__txn_init(&t, vow__etcd_alloc(m.etcd), "vow/");
    vow__txn_range(&t, VOW__THEN, &key, 0);
    if (writes)
        vow__txn_delete(&t, VOW__ELSE, &key, 0);
    if (ms > 0)
        t.due_ns = vow_loop_due_ns(m.w->loop, ms);
    call_txn(m.etcd, c, &t);
    vow__txn_fini(&t);
}

TEST(etcd_still, a_transaction_that_writes_is_unsure_and_one_that_reads_goes_on)
{
    struct called reads, writes;
    open_three(1, NULL);
    ask_txn(&reads, false, 0);
    ask_txn(&writes, true, 0);
    members_pass(&m, PART_MS + 10);
    CHECK_UINT_EQ(reads.told, 1);
    CHECK_INT_EQ(reads.code, 0);
    CHECK_UINT_EQ(writes.told, 1);
    CHECK_INT_EQ(writes.code, VOW_EUNSURE);
    CHECK_STR_EQ(m.log, "0:kv/txn 0:kv/txn 1:kv/txn ");
    CHECK_HAS(WHY(&m), "did not answer within 666 ms");
    members_close(&m);
}

TEST(etcd_still, when_all_stand_it_ends_in_time_and_did_not_happen)
{
    struct called c = {.told = 0};
    open_three(7, NULL);
    call(m.etcd, &c, "kv/range");
    members_pass(&m, 1980);
    CHECK_UINT_EQ(c.told, 0);
    members_pass(&m, 30);
    CHECK_UINT_EQ(c.told, 1);
    CHECK_INT_EQ(c.code, VOW_ESTORE);
    CHECK_STR_EQ(m.log, "0:kv/range 1:kv/range 2:kv/range ");
    CHECK_HAS(WHY(&m), "cannot be used: 127.0.0.1:");
    members_close(&m);
}

static const char *no_leader(struct members *x, size_t member, const char *path,
                             const char *body)
{
    const char *says = some_stand(x, member, path, body);
    return says[0] == 0
               ? says
               : "500 {\"error\":\"etcdserver: no leader\",\"code\":14}";
}

TEST(etcd_still, one_is_not_asked_again_while_the_others_elect)
{
    struct called c = {.told = 0};
    open_three(1, NULL);
    m.answer = no_leader;
    call(m.etcd, &c, "kv/range");
    members_pass(&m, PART_MS + 500);
    CHECK_UINT_EQ(c.told, 0);
    CHECK(m.asked > 6);
    CHECK(strstr(m.log + 1, "0:") == NULL);
    m.answer = some_stand;
    members_pass(&m, 60);
    CHECK_INT_EQ(c.told, 1);
    CHECK_INT_EQ(c.code, 0);
    members_close(&m);
}

TEST(etcd_still, a_refusal_that_is_no_answer_is_asked_of_another)
{
    struct called c = {.told = 0};
    open_three(0, NULL);
    m.answer = say_that;
    m.user = "503 {\"error\":\"etcdserver: request timed out\",\"code\":14}";
    call(m.etcd, &c, "kv/range");
    MEMBERS_UNTIL(&m, m.asked == 1);
    m.answer = say_yes;
    MEMBERS_UNTIL(&m, c.told);
    CHECK_INT_EQ(c.code, 0);
    CHECK_STR_EQ(m.log, "0:kv/range 1:kv/range ");
    members_close(&m);
}

TEST(etcd_still, there_is_time_for_two_however_short_it_is)
{
    static const struct {
        uint64_t timeout_ms;
        uint64_t part_ms;
    } all[] = {{3, 2}, {100, 50}, {999, 500}, {1200, 500}, {6000, 2000}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        open_three(0, VOW_ETCD_OPTS(.timeout_ms = all[i].timeout_ms));
        CHECK_UINT_EQ(vow__etcd_calls(m.etcd)->part_ms, all[i].part_ms);
        members_close(&m);
    }
    members_open(&m, 1, some_stand, VOW_ETCD_OPTS(.timeout_ms = 100));
    CHECK_UINT_EQ(vow__etcd_calls(m.etcd)->part_ms, 100);
    members_close(&m);
}

/* ---- a time of its own --------------------------------------------------- */

TEST(etcd_still, a_transaction_has_the_time_that_it_is_given)
{
    struct called reads, writes, late;
    open_three(7, NULL);
    ask_txn(&reads, false, 300);
    ask_txn(&writes, true, 300);
    members_pass(&m, 290);
    CHECK_UINT_EQ(reads.told + writes.told, 0);
    members_pass(&m, 20);
    CHECK_INT_EQ(reads.code, VOW_ESTORE);
    CHECK_INT_EQ(writes.code, VOW_EUNSURE);
    unsigned asked = m.asked;
    late = (struct called){.told = 0};
    ask_txn(&late, true, 1);
    world_advance_ms(m.w, 5); /* before it could be sent */
    members_settle(&m);
    CHECK_UINT_EQ(late.told, 1);
    CHECK(late.code == VOW_ESTORE || m.asked > asked);
    members_close(&m);
}

TEST(etcd_still, who_waits_for_a_token_waits_no_longer_than_that)
{
    struct called c = {.told = 0};
    open_three(7, VOW_ETCD_OPTS(.user = "me", .password = "secret"));
    ask_txn(&c, true, 300);
    members_pass(&m, 290);
    CHECK_UINT_EQ(c.told, 0);
    members_pass(&m, 20);
    CHECK_UINT_EQ(c.told, 1);
    CHECK_INT_EQ(c.code, VOW_ESTORE); /* it was never sent */
    members_close(&m);
}

TEST(etcd_still, a_token_is_asked_of_the_next)
{
    struct called c = {.told = 0};
    open_three(1, VOW_ETCD_OPTS(.user = "me", .password = "secret"));
    call(m.etcd, &c, "kv/txn");
    members_pass(&m, PART_MS + 10);
    MEMBERS_UNTIL(&m, c.told);
    CHECK_INT_EQ(c.code, 0);
    CHECK_STR_EQ(m.log, "0:auth/authenticate 1:auth/authenticate 1:kv/txn ");
    members_close(&m);
}

/* ---- streams ------------------------------------------------------------- */

struct told {
    struct vow__etcd_stream *s; /* NULL: it has ended */
    unsigned lines;
    int code;
};

static void on_line(const json_t *root, void *user)
{
    struct told *t = user;
    (void)root;
    t->lines++;
}

static void on_end(int code, void *user)
{
    struct told *t = user;
    t->code = code;
    t->s = NULL;
}

static void stream(struct told *t)
{
    struct vow__buf body;
    const struct vow__etcd_stream_events events = {
        .on_line = on_line, .on_end = on_end, .user = t};
    *t = (struct told){.lines = 0};
    vow__etcd_buf_init(&body, vow__etcd_alloc(m.etcd));
    vow__buf_text(&body, "{}");
    t->s = vow__etcd_stream(m.etcd, "watch", &body, &events);
    CHECK(t->s != NULL);
}

TEST(etcd_still, a_stream_that_does_not_begin_goes_to_the_next)
{
    struct told t;
    open_three(3, NULL);
    stream(&t);
    members_pass(&m, 2 * PART_MS - 10);
    CHECK_UINT_EQ(t.lines, 0);
    members_pass(&m, 30);
    CHECK_UINT_EQ(t.lines, 1);
    CHECK_STR_EQ(m.log, "0:watch 1:watch 2:watch ");
    members_pass(&m, 5000); /* it has time from then on */
    CHECK(t.s != NULL);
    vow__etcd_stream_close(t.s);
    members_close(&m);
}

TEST(etcd_still, a_stream_ends_when_a_call_finds_that_its_member_stands)
{
    struct told t;
    struct called c = {.told = 0};
    open_three(0, NULL);
    stream(&t);
    MEMBERS_UNTIL(&m, t.lines == 1);
    members_pass(&m, 5000);
    CHECK(t.s != NULL);
    still = 1;
    call(m.etcd, &c, "kv/range");
    members_pass(&m, PART_MS + 20);
    CHECK_INT_EQ(c.code, 0);
    CHECK(t.s == NULL);
    CHECK_INT_EQ(t.code, VOW_EUNSURE);
    stream(&t);
    MEMBERS_UNTIL(&m, t.lines == 1);
    CHECK_STR_EQ(m.log, "0:watch 0:kv/range 1:kv/range 1:watch ");
    vow__etcd_stream_close(t.s);
    members_close(&m);
}

TEST(etcd_still, a_stream_stays_with_a_member_that_is_only_slow)
{
    struct told t;
    struct called c = {.told = 0};
    open_three(0, NULL);
    stream(&t);
    MEMBERS_UNTIL(&m, t.lines == 1);
    still = 1;
    members_pass(&m, 10);
    call(m.etcd, &c, "kv/range");
    members_pass(&m, 100);
    member_say(&m, 0, "{\"result\":{}}\n", strlen("{\"result\":{}}\n"));
    members_pass(&m, PART_MS);
    CHECK_INT_EQ(c.code, 0);
    CHECK_UINT_EQ(t.lines, 2);
    CHECK(t.s != NULL);
    vow__etcd_stream_close(t.s);
    members_close(&m);
}
