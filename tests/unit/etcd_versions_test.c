/* SPDX-License-Identifier: MIT */
/* etcd_versions_test.c - processes of earlier versions at the same prefix: the
 * texts that they have written are read, and what is written now has the lines
 * that they read. */
#include "etcd_names_kit.h"

#define TOKEN "07000000000000000000000000000001"

enum { OLD = 7 }; /* token_of() a process of an earlier version */

static uint64_t now_us(void)
{
    return vow__etcd_wall_us();
}

/* The record of a name, as an earlier version has written it. */
static void put_record(struct names *n, const char *text, const char *state,
                       const char *mode, const char *more)
{
    char record[1024];
    snprintf(record, sizeof(record),
             "state %s\nmode %s\ntoken " TOKEN "\nplus 40\ntakeovers 0\n"
             "lease 60000\nsince %" PRIu64 "\n%s",
             state, mode, now_us(), more);
    etcd_put(n->member, whole_key("n", text, "/r"), record);
}

static void put_alive(struct names *n, const char *text)
{
    etcd_put(n->member, whole_key("n", text, "/a"),
             "token " TOKEN "\nlease 60000\n");
}

static void check_line(struct names *n, const char *key, const char *line)
{
    const char *value = etcd_get(n->member, key);
    if (strstr(value, line) == NULL)
        FAIL("no \"%s\" in \"%s\"", line, value);
}

/* ---- reading ------------------------------------------------------------- */

TEST(etcd_versions, an_owner_of_an_earlier_version_keeps_the_name)
{
    struct names *n = names_open();
    etcd_put(n->member, "vow/e", "plus 40\n");
    put_record(n, "a", "runs", "fenced", "label old\nrunner host:1\n");
    put_alive(n, "a");
    uint64_t revision = etcd_revision(n->member);
    struct answer a = claim(n, 0, ASK("a", 1));
    CHECK_UINT_EQ(a.status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(a.epoch, revision - 1 + 40);
    CHECK_UINT_EQ(a.first, a.epoch);
    CHECK_UINT_EQ(a.left_ms, 60000);
    CHECK_STR_EQ(a.label, "old");
    CHECK_UINT_EQ(cancel(n, 0, "a").status, VOW_STATUS_WAITING);
    check_line(n, whole_key("n", "a", "/r"), "\ncanceled yes\n");
    CHECK_UINT_EQ(peek(n, 1, "a").epoch, a.epoch);
    etcd_delete(n->member, whole_key("n", "a", "/a")); /* it died */
    struct answer b = claim(n, 0, ASK("a", 1));
    CHECK_UINT_EQ(b.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(b.takeovers, 1);
    CHECK(b.epoch > a.epoch);
    CHECK_UINT_EQ(b.first, a.epoch);
    names_close(n);
}

TEST(etcd_versions, a_doubt_of_an_earlier_version_stays_and_is_resolved)
{
    struct names *n = names_open();
    put_record(n, "a", "runs", "once", "");
    uint64_t epoch = peek(n, 0, "a").epoch;
    CHECK_UINT_EQ(peek(n, 0, "a").status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(claim(n, 0, ASK("a", 1)).status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 1, .flags = VOW_CLAIM_FORCE)).status,
                  VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(
        commit(n, 0, COMMIT("a", 1, epoch, .flags = VOW_COMMIT_RESOLVE), "x")
            .status,
        VOW_STATUS_OWNED);
    CHECK_STR_EQ(claim(n, 1, ASK("a", 2)).value, "x");
    names_close(n);
}

TEST(etcd_versions, results_of_an_earlier_version_are_read)
{
    struct names *n = names_open();
    char record[512];
    put_record(n, "a", "done", "once", "ttl never\ncost 5\n\nthe value");
    CHECK_STR_EQ(claim(n, 0, ASK("a", 1)).value, "the value");
    put_record(n, "b", "failed", "shared", "ttl 60000\ncost 5\napart yes\n");
    uint64_t epoch = peek(n, 0, "b").epoch;
    snprintf(record, sizeof(record),
             "state failed\nmode shared\ntoken " TOKEN "\nepoch %" PRIu64
             "\ntakeovers 0\nlease 60000\nsince %" PRIu64
             "\nttl 60000\ncost 5\n\nthe long value",
             epoch, now_us());
    char rest[32];
    snprintf(rest, sizeof(rest), "/%" PRIu64, epoch);
    etcd_put(n->member, whole_key("v", "b", rest), record);
    struct answer b = claim(n, 0, ASK("b", 1));
    CHECK_UINT_EQ(b.status, VOW_STATUS_SETTLED);
    CHECK(b.failed);
    CHECK_STR_EQ(b.value, "the long value");
    put_record(n, "c", "gave-up", "shared", "ttl 60000\ncost 0\n");
    CHECK(claim(n, 0, ASK("c", 1)).failed);
    names_close(n);
}

/* A result for waiters is in the record, and beside the record only if
 * processes were registered. */
TEST(etcd_versions, a_result_left_by_an_earlier_version_is_for_waiters)
{
    struct names *n = names_open();
    put_record(n, "a", "runs", "shared", "");
    put_alive(n, "a");
    struct answer a = claim(n, 0, ASK("a", 1));
    CHECK_UINT_EQ(a.status, VOW_STATUS_WAITING);
    char record[512];
    snprintf(record, sizeof(record),
             "state done\nmode shared\ntoken " TOKEN "\nepoch %" PRIu64
             "\ntakeovers 0\nlease 60000\nsince %" PRIu64
             "\nttl 70000\ncost 5\nhidden yes\n\nfor you",
             a.epoch, now_us());
    etcd_put(n->member, whole_key("n", "a", "/r"), record);
    etcd_delete(n->member, whole_key("n", "a", "/a"));
    struct answer b = claim(n, 0, ASK("a", 1, .waited = a.first));
    CHECK_UINT_EQ(b.status, VOW_STATUS_SETTLED);
    CHECK_STR_EQ(b.value, "for you");
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 2)).status, VOW_STATUS_OWNED);
    names_close(n);
}

/* ---- writing ------------------------------------------------------------- */

TEST(etcd_versions, an_earlier_version_reads_an_owner)
{
    struct names *n = names_open();
    const char *text = "mode fenced\n";
    etcd_put(n->member, "vow/e", "plus 40\n");
    struct answer a = claim(
        n, 0, ASK("a", OLD, .mode = VOW_FENCED, .label = "l", .runner = "h:1"));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(a.epoch, etcd_revision(n->member) + 40);
    const char *record = whole_key("n", "a", "/r");
    CHECK(strncmp(etcd_get(n->member, record), "state runs\n", 11) == 0);
    check_line(n, record, text);
    check_line(n, record, "\ntoken " TOKEN "\nplus 40\n");
    check_line(n, record, "\ntakeovers 0\nlease 3600000\nsince ");
    check_line(n, record, "\nlabel l\nrunner h:1\n");
    CHECK_STR_EQ(etcd_get(n->member, whole_key("n", "a", "/a")),
                 "token " TOKEN "\nlease 3600000\n");
    names_close(n);
}

/* As a result for waiters that is over: free, and never a value. */
TEST(etcd_versions, an_earlier_version_reads_a_tombstone_as_a_free_name)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    (void)commit(n, 0, COMMIT("a", 1, epoch, .outcome = VOW_OUTCOME_ABANDONED),
                 NULL);
    const char *record = whole_key("n", "a", "/r");
    CHECK(strncmp(etcd_get(n->member, record), "state done\n", 11) == 0);
    check_line(n, record, "\nepoch 1\n");
    check_line(n, record, "\nttl 1\n");
    check_line(n, record, "\nhidden yes\napart yes\n");
    CHECK_UINT_EQ(etcd_count(n->member, whole_key("n", "a", "/a")), 0);
    names_close(n);
}

TEST(etcd_versions, an_earlier_version_reads_results)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", OLD)).epoch;
    char left[32], line[64];
    (void)commit(n, 0, COMMIT("a", OLD, epoch), "the value");
    const char *record = whole_key("n", "a", "/r");
    CHECK(strncmp(etcd_get(n->member, record), "state done\n", 11) == 0);
    check_line(n, record, "\nttl 3600000\ncost 0\n");
    check_line(n, record, "\n\nthe value");
    epoch = claim(n, 0, ASK("b", OLD)).epoch;
    (void)commit(n, 0, COMMIT("b", OLD, epoch, .ttl_ms = 0), "for you");
    check_line(n, whole_key("n", "b", "/r"), "\nhidden yes\n");
    snprintf(left, sizeof(left), "/g/%" PRIu64, epoch);
    snprintf(line, sizeof(line), "\nepoch %" PRIu64 "\n", epoch);
    check_line(n, whole_key("v", "b", left), line);
    check_line(n, whole_key("v", "b", left), "\n\nfor you");
    names_close(n);
}

TEST(etcd_versions, chunks_of_both_are_counted_alike)
{
    struct names *n = names_open();
    vow_hold hold = hold_of("a", 1, 0);
    hold.epoch = claim(n, 0, ASK("a", 1)).epoch;
    (void)write_text(n, 0, hold, 0, "one");
    CHECK_STR_EQ(etcd_get(n->member, whole_key("n", "a", "/c")),
                 "chunks 1\nbytes 3\n");
    char rest[64];
    snprintf(rest, sizeof(rest), "/%" PRIu64 "/%016x", hold.epoch, 1);
    etcd_put(n->member, whole_key("c", "a", rest), "two");
    etcd_put(n->member, whole_key("n", "a", "/c"), "chunks 2\nbytes 6\n");
    CHECK_STR_EQ(read_text(n, 1, hold).value, "one|two|");
    names_close(n);
}

/* ---- refreshers ---------------------------------------------------------- */

/* Store 0 has made the result of "a", and store 1 refreshes with token 2.
 * Returns the epoch of the refresher. */
static uint64_t refresh_begun(struct names *n, uint64_t *ret_old)
{
    *ret_old = claim(n, 0, ASK("a", OLD)).epoch;
    (void)commit(n, 0, COMMIT("a", OLD, *ret_old), "old");
    struct answer a = claim(n, 1, ASK("a", 2, .refresh = *ret_old));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK(a.epoch > *ret_old);
    return a.epoch;
}

TEST(etcd_versions, an_earlier_version_reads_a_result_beside_a_refresher)
{
    struct names *n = names_open();
    const char *refresher = "02000000000000000000000000000001";
    char line[64];
    uint64_t old;
    uint64_t epoch = refresh_begun(n, &old);
    const char *record = whole_key("n", "a", "/r");
    snprintf(line, sizeof(line), "\nepoch %" PRIu64 "\ntakeovers 0\n", old);
    CHECK(strncmp(etcd_get(n->member, record), "state done\n", 11) == 0);
    check_line(n, record, "\ntoken " TOKEN "\n");
    check_line(n, record, line);
    check_line(n, record, "\nttl 3600000\n");
    check_line(n, record, "\n\nold");
    snprintf(line, sizeof(line), "\nrefresh-token %s\n", refresher);
    check_line(n, record, line);
    check_line(n, record, "\nrefresh-lease 3600000\n");
    CHECK_UINT_EQ(etcd_count(n->member, whole_key("n", "a", "/a")), 0);
    snprintf(line, sizeof(line), "token %s\nlease 3600000\n", refresher);
    CHECK_STR_EQ(etcd_get(n->member, whole_key("n", "a", "/b")), line);
    CHECK_UINT_EQ(cancel(n, 0, "a").status, VOW_STATUS_WAITING);
    record = whole_key("n", "a", "/r");
    snprintf(line, sizeof(line), "\nrefresh-epoch %" PRIu64 "\n", epoch);
    check_line(n, record, line);
    check_line(n, record, "\nrefresh-canceled yes\n");
    check_line(n, record, "\n\nold");
    names_close(n);
}

TEST(etcd_versions, the_end_of_a_refresh_is_a_line_and_the_mark_goes)
{
    struct names *n = names_open();
    uint64_t old;
    uint64_t epoch = refresh_begun(n, &old);
    const vow_commit_request *fails =
        COMMIT("a", 2, epoch, .outcome = VOW_OUTCOME_FAILED);
    CHECK_UINT_EQ(commit(n, 1, fails, "bad").status, VOW_STATUS_OWNED);
    check_line(n, whole_key("n", "a", "/r"), "\nrefresh-until ");
    check_line(n, whole_key("n", "a", "/r"), "\n\nold");
    CHECK_UINT_EQ(etcd_count(n->member, whole_key("n", "a", "/b")), 0);
    CHECK_UINT_EQ(commit(n, 0, fails, "bad").status, VOW_STATUS_OWNED);
    CHECK_STR_EQ(claim(n, 0, ASK("a", 3)).value, "old");
    names_close(n);
}

/* An earlier version takes the name: the lines of the refresher go. */
TEST(etcd_versions, an_owner_of_an_earlier_version_ends_a_refresh)
{
    struct names *n = names_open();
    uint64_t old;
    uint64_t epoch = refresh_begun(n, &old);
    put_record(n, "a", "runs", "shared", "");
    put_alive(n, "a");
    CHECK_UINT_EQ(claim(n, 0, ASK("a", 3)).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(commit(n, 1, COMMIT("a", 2, epoch), "new").status,
                  VOW_STATUS_LOST);
    CHECK_UINT_EQ(pulse(n, 1, hold_of("a", 2, epoch), LONG_MS).status,
                  VOW_STATUS_LOST);
    put_record(n, "a", "done", "shared", "ttl 60000\ncost 5\n\ntheirs");
    etcd_delete(n->member, whole_key("n", "a", "/a"));
    CHECK_UINT_EQ(commit(n, 1, COMMIT("a", 2, epoch), "new").status,
                  VOW_STATUS_SETTLED);
    struct answer a = claim(n, 0, ASK("a", 4));
    CHECK_STR_EQ(a.value, "theirs");
    struct answer b = claim(n, 0, ASK("a", 5, .refresh = a.epoch));
    CHECK_UINT_EQ(b.status, VOW_STATUS_OWNED); /* the old mark is overwritten */
    CHECK_UINT_EQ(commit(n, 0, COMMIT("a", 5, b.epoch), "ours").status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(etcd_count(n->member, whole_key("n", "a", "/b")), 0);
    names_close(n);
}
