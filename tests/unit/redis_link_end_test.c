/* SPDX-License-Identifier: MIT */
/* How a connection ends: silence, a server that is no master any more, bytes
 * that make no sense, no memory; and that all are answered once. */
#include "redis_link_rig.h"

static const char *silent(struct fake_conn *c, char **words, size_t n)
{
    (void)c;
    (void)words;
    (void)n;
    return "";
}

static void check_all(const struct link_rig *r, int code)
{
    for (size_t i = 0; i < r->asked; i++) {
        CHECK_UINT_EQ(r->answers[i].done, 1);
        CHECK_INT_EQ(r->answers[i].code, code);
    }
}

/* ---- silence ------------------------------------------------------------- */

TEST(redis_link, silence_ends_it_and_nobody_knows_what_happened)
{
    struct link_rig r;
    rig_link_ready(&r);
    r.fake.answer = silent;
    rig_say(&r, "A");
    world_advance_ms(r.w, 500);
    rig_say(&r, "B");
    fake_settle(r.w, &r.fake);
    world_advance_ms(r.w, 499);
    CHECK_UINT_EQ(r.answered, 0);
    world_advance_ms(r.w, 1);
    CHECK_UINT_EQ(r.answered, 2);
    check_all(&r, VOW_EUNSURE);
    CHECK_UINT_EQ(r.ended, 1);
    CHECK(!r.for_good);
    CHECK(strstr(r.why, "did not answer for 1000 ms") != NULL);
    struct vow__buf tail;
    rig_say(&r, "C"); /* it is not sent any more */
    rig_eval(&r, VOW__LUA_PEEK, "k", &tail);
    vow__buf_fini(&tail);
    CHECK_INT_EQ(r.answers[2].code, VOW_ESTORE);
    CHECK_INT_EQ(r.answers[3].code, VOW_ESTORE);
    rig_link_end(&r);
}

/* Timers come before sockets. */
TEST(redis_link, who_did_not_run_for_a_while_looks_before_it_calls_it_silence)
{
    struct link_rig r;
    rig_link_ready(&r);
    r.fake.answer = silent;
    rig_say(&r, "A");
    fake_settle(r.w, &r.fake);
    fake_say(fake_last(&r.fake), "+OK\r\n");
    CHECK(fake_serve(&r.fake));
    world_advance_ms(r.w, 1000);
    CHECK_UINT_EQ(r.answered, 1);
    CHECK_INT_EQ(r.answers[0].code, 0);
    CHECK_UINT_EQ(r.ended, 0);
    rig_say(&r, "B");
    fake_settle(r.w, &r.fake);
    fake_hang_up(&r.fake);
    world_advance_ms(r.w, 1000);
    CHECK_UINT_EQ(r.ended, 1);
    CHECK_INT_EQ(r.answers[1].code, VOW_EUNSURE);
    CHECK(strstr(r.why, "closed the connection") != NULL);
    rig_link_end(&r);
}

TEST(redis_link, a_server_that_goes_on_answering_has_more_time)
{
    struct link_rig r;
    rig_link_ready(&r);
    r.fake.answer = silent;
    for (int i = 0; i < 5; i++)
        rig_say(&r, "A");
    fake_settle(r.w, &r.fake);
    for (unsigned i = 1; i <= 4; i++) {
        world_advance_ms(r.w, 900);
        fake_say(fake_last(&r.fake), "+OK\r\n");
        RIG_UNTIL(&r, r.answered == i);
    }
    CHECK_UINT_EQ(r.ended, 0);
    world_advance_ms(r.w, 1000);
    CHECK_UINT_EQ(r.ended, 1);
    CHECK_INT_EQ(r.answers[4].code, VOW_EUNSURE);
    rig_link_end(&r);
}

TEST(redis_link, bytes_on_their_way_are_no_silence)
{
    static char part[64 * 1024 + 1];
    struct link_rig r;
    rig_link_ready(&r);
    r.fake.answer = silent;
    rig_say(&r, "A");
    fake_settle(r.w, &r.fake);
    memset(part, 'x', sizeof(part) - 1);
    fake_say(fake_last(&r.fake), "$262144\r\n"); /* four parts */
    for (int i = 0; i < 3; i++) {
        fake_say(fake_last(&r.fake), part);
        fake_settle(r.w, &r.fake);
    }
    world_advance_ms(r.w, 1000 + 3 * 64 - 1); /* a KiB is a millisecond */
    CHECK_UINT_EQ(r.ended, 0);
    fake_say(fake_last(&r.fake), part);
    fake_say(fake_last(&r.fake), "\r\n");
    RIG_UNTIL(&r, r.answered == 1);
    CHECK_INT_EQ(r.answers[0].code, 0);
    rig_say(&r, "B");
    fake_settle(r.w, &r.fake);
    world_advance_ms(r.w, 1000);
    CHECK_UINT_EQ(r.ended, 1);
    rig_link_end(&r);
}

TEST(redis_link, messages_do_not_hide_that_answers_are_missing)
{
    struct link_rig r;
    rig_link_ready(&r);
    r.fake.answer = silent;
    rig_say(&r, "A");
    fake_settle(r.w, &r.fake);
    for (int i = 0; i < 10 && !r.ended; i++) {
        world_advance_ms(r.w, 101);
        if (r.ended)
            break;
        fake_say(fake_last(&r.fake),
                 ">3\r\n$7\r\nmessage\r\n$4\r\nchan\r\n$2\r\nhi\r\n");
        fake_settle(r.w, &r.fake);
    }
    CHECK_UINT_EQ(r.ended, 1);
    CHECK_UINT_EQ(r.pushes, 9);
    rig_link_end(&r);
}

TEST(redis_link, an_idle_one_keeps_nobody_waiting)
{
    struct link_rig r;
    rig_link_ready(&r);
    world_run(r.w); /* it returns, though the link is open */
    CHECK_UINT_EQ(r.ended, 0);
    rig_link_end(&r);
}

/* ---- roles --------------------------------------------------------------- */

TEST(redis_link, a_master_that_became_a_replica_is_left)
{
    struct link_rig r;
    rig_link_ready(&r);
    world_advance_ms(r.w, 5000);
    fake_settle(r.w, &r.fake);
    CHECK_UINT_EQ(r.ended, 0);
    r.fake.role = "*5\r\n$5\r\nslave\r\n$1\r\nh\r\n:1\r\n$1\r\nx\r\n:1\r\n";
    world_advance_ms(r.w, 4999);
    fake_settle(r.w, &r.fake);
    CHECK_UINT_EQ(r.ended, 0);
    world_advance_ms(r.w, 1);
    RIG_UNTIL(&r, r.ended);
    CHECK(strstr(r.why, "is no master any more") != NULL);
    CHECK(!r.for_good);
    rig_link_end(&r);
}

TEST(redis_link, a_server_that_vanished_is_noticed_without_commands)
{
    struct link_rig r;
    rig_link_ready(&r);
    r.fake.answer = silent;
    world_advance_ms(r.w, 5000);
    fake_settle(r.w, &r.fake);
    CHECK_UINT_EQ(r.ended, 0);
    world_advance_ms(r.w, 1000);
    CHECK_UINT_EQ(r.ended, 1);
    rig_link_end(&r);
}

/* ---- what makes no sense ------------------------------------------------- */

TEST(redis_link, a_server_that_hangs_up_leaves_nobody_waiting)
{
    struct link_rig r;
    rig_link_ready(&r);
    r.fake.answer = silent;
    rig_say(&r, "A");
    rig_say(&r, "B");
    fake_settle(r.w, &r.fake);
    fake_say(fake_last(&r.fake), "+OK\r\n$5\r\nab"); /* in the middle */
    fake_settle(r.w, &r.fake);
    fake_hang_up(&r.fake);
    RIG_UNTIL(&r, r.ended);
    CHECK_INT_EQ(r.answers[0].code, 0);
    CHECK_INT_EQ(r.answers[1].code, VOW_EUNSURE);
    rig_link_end(&r);
}

TEST(redis_link, what_is_no_answer_ends_it)
{
    static const struct {
        const char *says, *why;
    } all[] = {
        {"HTTP/1.1 400 Bad Request\r\n", "does not speak as a Redis"},
        {"$99999999\r\n", "does not speak as a Redis"},
        {"+OK\r\n+OK\r\n", "answered what nobody asked"},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct link_rig r;
        rig_link_ready(&r);
        r.fake.answer = silent;
        rig_say(&r, "A");
        fake_settle(r.w, &r.fake);
        fake_say(fake_last(&r.fake), all[i].says);
        RIG_UNTIL(&r, r.ended);
        CHECK_UINT_EQ(r.answered, 1);
        if (strstr(r.why, all[i].why) == NULL)
            FAIL("%s", r.why);
        rig_link_end(&r);
    }
}

/* ---- closing ------------------------------------------------------------- */

TEST(redis_link, closing_answers_all_that_waits)
{
    struct link_rig r;
    rig_link_ready(&r);
    r.fake.answer = silent;
    rig_say(&r, "A");
    rig_say(&r, "B");
    fake_settle(r.w, &r.fake);
    rig_link_close(&r, VOW_ECLOSED);
    CHECK_UINT_EQ(r.answered, 2);
    check_all(&r, VOW_ECLOSED);
    fake_settle(r.w, &r.fake);
    CHECK_UINT_EQ(r.ended, 0);
    rig_link_end(&r);
}

TEST(redis_link, many_can_wait)
{
    struct link_rig r;
    rig_link_ready(&r);
    for (int i = 0; i < 100; i++)
        rig_say(&r, "A");
    RIG_UNTIL(&r, r.answered == 100);
    check_all(&r, 0);
    rig_link_end(&r);
}

TEST(redis_link, it_can_be_closed_before_it_is_open)
{
    for (int turns = 0; turns < 12; turns++) {
        struct link_rig r;
        rig_link_begin(&r);
        rig_link_open(&r);
        for (int i = 0; i < turns; i++)
            fake_step(r.w, &r.fake);
        rig_link_end(&r);
        CHECK_UINT_EQ(r.ended, 0);
    }
}

TEST(redis_link, it_can_be_closed_inside_all_that_it_calls)
{
    for (int where = 0; where < 4; where++) {
        struct link_rig r;
        rig_link_begin(&r);
        r.close_in_ready = where == 0;
        r.close_in_push = where == 1;
        r.close_in_answer = where == 2;
        r.close_in_end = where == 3;
        rig_link_open(&r);
        RIG_UNTIL(&r, r.ready);
        r.fake.answer = silent;
        if (where > 0) {
            rig_say(&r, "A");
            rig_say(&r, "B");
            fake_settle(r.w, &r.fake);
            fake_say(fake_last(&r.fake),
                     where == 1 ? ">3\r\n+message\r\n+c\r\n+x\r\n+OK\r\n+OK\r\n"
                     : where == 2 ? "+OK\r\n+OK\r\n>3\r\n+a\r\n+b\r\n+c\r\n"
                                  : "?\r\n");
        }
        RIG_UNTIL(&r, r.link == NULL);
        fake_settle(r.w, &r.fake);
        CHECK_UINT_EQ(r.answered, r.asked);
        CHECK_UINT_EQ(r.ended, where == 3);
        CHECK_UINT_EQ(r.pushes, where == 1);
        rig_link_end(&r);
    }
}

/* ---- memory -------------------------------------------------------------- */

static const char *both(struct fake_conn *c, char **words, size_t n)
{
    (void)c;
    (void)n;
    return strcmp(words[0], "EVALSHA") == 0 ? "-NOSCRIPT\r\n" : NULL;
}

FAULT_SWEEP(redis_link, a_conversation_survives_every_fault, FAULT_ALLOC)
{
    static struct link_rig r;
    static char key[40000];
    struct vow__buf tail;
    memset(&r, 0, sizeof(r));
    memset(key, 'k', sizeof(key) - 1);
    r.w = w;
    fake_open(&r.fake);
    r.fake.answer = both;
    struct vow__link_opts o = rig_link_opts(&r);
    int rc = rig_link_try(&r, &o);
    CHECK(rc == 0 || fault_explains(w, rc));
    if (rc == 0) {
        RIG_UNTIL(&r, r.ready || r.ended);
        CHECK(r.ready || fault_fired(w));
        bool eval = r.ready;
        if (eval) {
            rig_say(&r, "A");
            vow__link_asking(r.link);
            rig_eval(&r, VOW__LUA_PEEK, key, &tail);
            rig_say(&r, "B");
            RIG_UNTIL(&r, r.answered == 3);
        }
        for (size_t i = 0; i < r.asked; i++)
            CHECK(r.answers[i].code == 0 || fault_fired(w));
        rig_link_close(&r, VOW_ECLOSED);
        if (eval)
            vow__buf_fini(&tail);
    }
    r.link = NULL;
    rig_link_end(&r);
}
