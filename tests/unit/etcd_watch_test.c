/* SPDX-License-Identifier: MIT */
/* etcd_watch_test.c - a watch tells every change once, in order, whatever
 * happens to its stream; and where it cannot, it says so. */
#include "etcd_fake.h"
#include "etcd_heard.h"

#include <inttypes.h>

static struct {
    uint64_t revision; /* the newest; also of "created" */
    uint64_t member;   /* of "created", if not 0 */
    uint64_t start;    /* of the last stream */
    unsigned streams, asked;
    unsigned refuse;    /* streams that are hung up on */
    bool mute;          /* streams are not answered */
    bool cancel_always; /* as for who has no right to read */
    bool holds;         /* the newest revision is not told */
} server;

static const char *tell(struct fake_etcd *f, const char *path, const char *body)
{
    if (strcmp(path, "kv/range") == 0) {
        server.asked++;
        CHECK(strstr(body, "\"count_only\":true") != NULL);
        CHECK(strstr(body, "serializable") == NULL);
        snprintf(f->said, sizeof(f->said),
                 "{\"header\":{\"revision\":\"%" PRIu64 "\"}}",
                 server.revision);
        return server.holds ? FAKE_SILENCE : f->said;
    }
    CHECK_STR_EQ(path, "watch");
    const char *start = strstr(body, "\"start_revision\":\"");
    CHECK(start != NULL);
    server.start = strtoull(start + 18, NULL, 10);
    server.streams++;
    if (server.refuse > 0) {
        server.refuse--;
        return FAKE_HANG_UP;
    }
    if (server.mute)
        return "";
    snprintf(f->said, sizeof(f->said),
             "{\"result\":{\"header\":{\"revision\":\"%" PRIu64
             "\"},\"created\":true%s}}",
             server.member != 0 ? server.member : server.revision,
             server.cancel_always ? ",\"canceled\":true,\"cancel_reason\":"
                                    "\"permission denied\""
                                  : "");
    return f->said;
}

/* A watch on a gateway at revision 5, whose stream is open. */
static void begin(struct fake_etcd *f, struct heard *h)
{
    memset(h, 0, sizeof(*h));
    memset(&server, 0, sizeof(server));
    server.revision = 5;
    fake_etcd_open(f, tell);
    CHECK_INT_EQ(hear(f->etcd, h, 5), 0);
    fake_etcd_settle(f);
    CHECK_UINT_EQ(server.streams, 1);
    CHECK_UINT_EQ(server.start, 6);
}

static void finish(struct fake_etcd *f, struct heard *h)
{
    if (h->watch != NULL)
        heard_close(h);
    fake_etcd_close(f);
}

/* "vow/n/a", "vow/n/b" */
#define A "\"key\":\"dm93L24vYQ==\""
#define B "\"key\":\"dm93L24vYg==\""
#define PUT(key, mod)                                                          \
    "{\"kv\":{" key ",\"create_revision\":\"6\",\"mod_revision\":\"" mod       \
    "\",\"version\":\"1\",\"value\":\"MQ==\"}}"
#define DELETE(key, mod)                                                       \
    "{\"type\":\"DELETE\",\"kv\":{" key ",\"mod_revision\":\"" mod "\"}}"
#define LINE(revision, more)                                                   \
    "{\"result\":{\"header\":{\"revision\":\"" revision "\"}" more "}}"
#define EVENTS(revision, events) LINE(revision, ",\"events\":[" events "]")

static void cut(struct fake_etcd *f)
{
    struct fake_talk *t = fake_stream(f);
    CHECK(t != NULL);
    fake_talk_end(t);
}

/* ---- what it tells ------------------------------------------------------- */

TEST(etcd_watch, changes_are_told_in_their_order)
{
    struct fake_etcd f;
    struct heard h;
    begin(&f, &h);
    CHECK(strstr(f.body, "\"key\":\"dm93L24v\"") != NULL);
    CHECK(strstr(f.body, "\"range_end\":\"dm93L24w\"") != NULL);
    CHECK(strstr(f.body, "\"progress_notify\":true") != NULL);
    fake_line(&f, EVENTS("6", PUT(A, "6")));
    fake_line(&f, EVENTS("8", DELETE(A, "8") "," PUT(B, "8")));
    fake_line(&f, EVENTS("9", DELETE(B, "9")));
    fake_etcd_settle(&f);
    CHECK_STR_EQ(h.log, "+n/a=1@6 -n/a@8 +n/b=1@8 -n/b@9 ");
    finish(&f, &h);
}

TEST(etcd_watch, keys_that_are_not_ours_are_passed_over)
{
    struct fake_etcd f;
    struct heard h;
    begin(&f, &h);
    fake_line(&f, EVENTS("6", PUT("\"key\":\"dm93L24AYQ==\"", "6")));
    fake_line(&f, EVENTS("7", PUT(A, "7")));
    fake_etcd_settle(&f);
    CHECK_STR_EQ(h.log, "+n/a=1@7 ");
    finish(&f, &h);
}

/* ---- when the stream ends ------------------------------------------------ */

TEST(etcd_watch, it_goes_on_behind_the_last_change)
{
    struct fake_etcd f;
    struct heard h;
    begin(&f, &h);
    server.revision = 9;
    fake_line(&f, EVENTS("9", PUT(A, "7"))); /* there is more to come */
    fake_etcd_settle(&f);
    cut(&f);
    fake_etcd_pass(&f, 60);
    CHECK_UINT_EQ(server.streams, 2);
    CHECK_UINT_EQ(server.start, 8);
    fake_line(&f, EVENTS("9", PUT(A, "7") "," PUT(A, "9")));
    fake_etcd_settle(&f);
    CHECK_STR_EQ(h.log, "+n/a=1@7 +n/a=1@9 ");
    finish(&f, &h);
}

TEST(etcd_watch, how_far_it_is_counts_when_it_begins_again)
{
    struct fake_etcd f;
    struct heard h;
    begin(&f, &h);
    server.revision = 70;
    cut(&f);
    fake_etcd_pass(&f, 60);
    CHECK_UINT_EQ(server.start, 6); /* "created" says nothing of the past */
    fake_line(&f, LINE("40", ""));
    fake_etcd_settle(&f);
    cut(&f);
    fake_etcd_pass(&f, 200);
    CHECK_UINT_EQ(server.start, 41);
    CHECK_STR_EQ(h.log, "");
    finish(&f, &h);
}

TEST(etcd_watch, a_revision_that_was_cut_in_two_is_told_whole)
{
    struct fake_etcd f;
    struct heard h;
    begin(&f, &h);
    server.revision = 7;
    fake_line(&f, LINE("7", ",\"fragment\":true,\"events\":[" PUT(
                                A, "6") "," PUT(A, "7") "]"));
    fake_etcd_settle(&f);
    cut(&f);
    fake_etcd_pass(&f, 60);
    CHECK_UINT_EQ(server.start, 7);
    fake_line(&f, LINE("7", ",\"fragment\":true,\"events\":[" PUT(A, "7") "]"));
    fake_line(&f, EVENTS("7", DELETE(B, "7")));
    fake_etcd_settle(&f);
    CHECK_STR_EQ(h.log, "+n/a=1@6 +n/a=1@7 +n/a=1@7 -n/b@7 ");
    cut(&f);
    fake_etcd_pass(&f, 200);
    CHECK_UINT_EQ(server.start, 8);
    finish(&f, &h);
}

TEST(etcd_watch, rests_grow_while_nothing_works_and_have_an_end)
{
    struct fake_etcd f;
    struct heard h;
    begin(&f, &h);
    server.refuse = 1000;
    cut(&f);
    for (int i = 0; i < 200; i++)
        fake_etcd_pass(&f, 100);
    CHECK(server.streams >= 10);
    CHECK(server.streams <= 28);
    server.refuse = 0;
    fake_etcd_pass(&f, 2100);
    CHECK(fake_stream(&f) != NULL);
    CHECK_UINT_EQ(h.doubts, 0);
    finish(&f, &h);
}

TEST(etcd_watch, one_that_is_refused_tries_again_and_tells_why)
{
    struct fake_etcd f;
    struct heard h;
    begin(&f, &h);
    server.cancel_always = true;
    cut(&f);
    fake_etcd_pass(&f, 1000);
    CHECK(server.streams >= 3);
    CHECK(server.streams <= 8);
    CHECK(strstr(f.store->ops->explain(f.store), "permission denied") != NULL);
    server.cancel_always = false;
    fake_etcd_pass(&f, 2100);
    fake_line(&f, EVENTS("6", PUT(A, "6")));
    fake_etcd_settle(&f);
    CHECK_STR_EQ(h.log, "+n/a=1@6 ");
    finish(&f, &h);
}

/* ---- when the place is lost ---------------------------------------------- */

TEST(etcd_watch, what_was_compacted_is_in_doubt)
{
    struct fake_etcd f;
    struct heard h;
    begin(&f, &h);
    server.revision = 99;
    fake_line(&f, LINE("99", ",\"canceled\":true,\"compact_revision\":\"80\""));
    fake_etcd_pass(&f, 60);
    CHECK_STR_EQ(h.log, "? ");
    CHECK_UINT_EQ(server.start, 100);
    fake_line(&f, EVENTS("100", PUT(A, "100")));
    fake_etcd_settle(&f);
    CHECK_STR_EQ(h.log, "? +n/a=1@100 ");
    finish(&f, &h);
}

TEST(etcd_watch, what_cannot_be_read_is_in_doubt)
{
    static const char *const bad[] = {
        "{}",
        "{\"result\":7}",
        LINE("9", ",\"events\":{}"),
        LINE("9", ",\"events\":[7]"),
        EVENTS("9", "{}"),
        EVENTS("9", "{\"kv\":{\"key\":\"*\",\"mod_revision\":\"9\"}}"),
        EVENTS("9", "{\"kv\":{" A ",\"mod_revision\":\"9\",\"value\":\"*\"}}"),
        "{\"result\":{\"events\":[]}}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct fake_etcd f;
        struct heard h;
        begin(&f, &h);
        server.revision = 20 + i;
        fake_line(&f, bad[i]);
        fake_etcd_pass(&f, 60);
        if (h.doubts != 1)
            FAIL("no doubt: %s", bad[i]);
        CHECK_UINT_EQ(server.start, 21 + i);
        CHECK_UINT_EQ(h.puts + h.deletes, 0);
        finish(&f, &h);
    }
}

TEST(etcd_watch, an_etcd_that_was_put_back_is_in_doubt)
{
    struct fake_etcd f;
    struct heard h;
    begin(&f, &h);
    fake_line(&f, EVENTS("50", PUT(A, "50")));
    fake_etcd_settle(&f);
    server.revision = 8;
    cut(&f);
    fake_etcd_pass(&f, 60);
    CHECK_STR_EQ(h.log, "+n/a=1@50 ? ");
    CHECK_UINT_EQ(server.start, 9);
    fake_line(&f, EVENTS("9", PUT(A, "9")));
    fake_etcd_settle(&f);
    CHECK_STR_EQ(h.log, "+n/a=1@50 ? +n/a=1@9 ");
    finish(&f, &h);
}

TEST(etcd_watch, a_member_that_is_late_is_not)
{
    struct fake_etcd f;
    struct heard h;
    begin(&f, &h);
    fake_line(&f, EVENTS("50", PUT(A, "50")));
    fake_etcd_settle(&f);
    server.member = 49;
    server.revision = 53;
    cut(&f);
    fake_etcd_pass(&f, 60);
    CHECK_UINT_EQ(server.streams, 2);
    CHECK_UINT_EQ(server.asked, 1);
    fake_etcd_pass(&f, 500);
    CHECK_UINT_EQ(server.streams, 2);
    CHECK_UINT_EQ(h.doubts, 0);
    finish(&f, &h);
}

/* ---- silence ------------------------------------------------------------- */

TEST(etcd_watch, silence_is_well_while_nothing_changes)
{
    struct fake_etcd f;
    struct heard h;
    begin(&f, &h);
    fake_etcd_pass(&f, 1990);
    CHECK_UINT_EQ(server.asked, 0);
    fake_etcd_pass(&f, 4100);
    CHECK(server.asked >= 2);
    CHECK(server.asked <= 3);
    CHECK_UINT_EQ(server.streams, 1);
    CHECK_UINT_EQ(h.doubts, 0);
    finish(&f, &h);
}

TEST(etcd_watch, a_stream_that_may_be_dead_is_followed_by_another)
{
    struct fake_etcd f;
    struct heard h;
    begin(&f, &h);
    server.revision = 9;
    fake_etcd_pass(&f, 2010);
    CHECK_UINT_EQ(server.streams, 2);
    CHECK_UINT_EQ(server.start, 6);
    CHECK_UINT_EQ(h.doubts, 0); /* it will be told */
    fake_line(&f, EVENTS("9", PUT(A, "7")));
    fake_etcd_settle(&f);
    CHECK_STR_EQ(h.log, "+n/a=1@7 ");
    finish(&f, &h);
}

TEST(etcd_watch, one_that_speaks_while_we_ask_is_alive)
{
    struct fake_etcd f;
    struct heard h;
    begin(&f, &h);
    server.revision = 9;
    server.holds = true;
    fake_etcd_pass(&f, 2010);
    CHECK_UINT_EQ(server.asked, 1);
    struct fake_talk *asks = f.last;
    fake_line(&f, EVENTS("7", PUT(A, "7")));
    fake_etcd_settle(&f);
    fake_talk_answer(asks, f.said);
    fake_etcd_settle(&f);
    CHECK_UINT_EQ(server.streams, 1);
    CHECK_STR_EQ(h.log, "+n/a=1@7 ");
    finish(&f, &h);
}

TEST(etcd_watch, a_stream_that_is_not_answered_is_given_up)
{
    struct fake_etcd f;
    struct heard h;
    begin(&f, &h);
    server.mute = true;
    cut(&f);
    fake_etcd_pass(&f, 60);
    CHECK_UINT_EQ(server.streams, 2);
    fake_etcd_pass(&f, 3000);
    CHECK_UINT_EQ(server.asked, 1);
    CHECK_UINT_EQ(server.streams, 3);
    CHECK_UINT_EQ(server.start, 6);
    finish(&f, &h);
}

TEST(etcd_watch, without_an_answer_to_our_question_it_begins_again)
{
    struct fake_etcd f;
    struct heard h;
    begin(&f, &h);
    server.holds = true;
    fake_etcd_pass(&f, 2010);
    CHECK_UINT_EQ(server.asked, 1);
    fake_etcd_pass(&f, 3100);
    CHECK_UINT_EQ(server.streams, 2);
    CHECK_UINT_EQ(h.doubts, 0);
    finish(&f, &h);
}

/* ---- the end ------------------------------------------------------------- */

TEST(etcd_watch, its_events_may_close_it)
{
    struct fake_etcd f;
    struct heard h;
    begin(&f, &h);
    h.close_in_event = true;
    fake_line(&f, EVENTS("6", PUT(A, "6") "," PUT(B, "6")));
    fake_line(&f, EVENTS("7", PUT(A, "7")));
    fake_etcd_settle(&f);
    CHECK_STR_EQ(h.log, "+n/a=1@6 ");
    CHECK(fake_stream(&f) == NULL);
    finish(&f, &h);

    begin(&f, &h);
    h.close_in_doubt = true;
    fake_line(&f, LINE("9", ",\"canceled\":true,\"compact_revision\":\"8\""));
    fake_etcd_pass(&f, 60);
    CHECK_STR_EQ(h.log, "? ");
    CHECK(fake_stream(&f) == NULL);
    finish(&f, &h);
}

TEST(etcd_watch, it_can_be_closed_at_any_time)
{
    for (uint64_t ms = 0; ms < 6000; ms += 370) {
        struct fake_etcd f;
        struct heard h;
        begin(&f, &h);
        server.holds = ms % 2 == 0;
        server.refuse = ms % 3 == 0;
        fake_etcd_pass(&f, ms / 2 + 1);
        if (fake_stream(&f) != NULL)
            cut(&f);
        fake_etcd_pass(&f, ms / 2 + 1);
        finish(&f, &h);
    }
}

TEST(etcd_watch, a_store_can_be_closed_before_it)
{
    for (int i = 0; i < 3; i++) {
        struct fake_etcd f;
        struct heard h;
        begin(&f, &h);
        if (i == 1) { /* it rests */
            server.refuse = 100;
            cut(&f);
            fake_etcd_pass(&f, 300);
        } else if (i == 2) { /* it asks */
            server.holds = true;
            fake_etcd_pass(&f, 2010);
            CHECK_UINT_EQ(server.asked, 1);
        }
        fake_etcd_end(&f);
        CHECK_UINT_EQ(h.doubts, 0);
        heard_close(&h);
        world_run(f.w);
        world_close(f.w);
    }
}

FAULT_SWEEP(etcd_watch, without_memory_it_tells_or_begins_again, FAULT_ALLOC)
{
    static struct fake_etcd f;
    static struct heard h;
    memset(&h, 0, sizeof(h));
    memset(&server, 0, sizeof(server));
    server.revision = 5;
    fake_etcd_begin(&f, w, tell);
    int rc = f.store == NULL ? VOW_ENOMEM : hear(f.etcd, &h, 5);
    CHECK(rc == 0 || fault_explains(w, rc));
    if (rc == 0 && !w->alloc.fail_forever) {
        while (fake_stream(&f) == NULL)
            fake_etcd_pass(&f, 100);
        fake_line(&f, EVENTS("6", PUT(A, "6") "," DELETE(B, "6")));
        fake_etcd_settle(&f);
        CHECK(strcmp(h.log, "+n/a=1@6 -n/b@6 ") == 0 || fault_fired(w));
    } else if (rc == 0) {
        fake_etcd_pass(&f, 500);
    }
    if (h.watch != NULL)
        heard_close(&h);
    fake_etcd_end(&f);
}
