/* SPDX-License-Identifier: MIT */
/* etcd_news_test.c - what the watch says, before and behind the answers, and
 * what is made of it. */
#include "etcd_names_kit.h"

enum { LEASE_MS = 20000 };

/* The record that is there, as a change at this revision. */
static void tell_record(struct names *n, size_t i, uint64_t mod)
{
    char record[1024];
    snprintf(record, sizeof(record), "%s",
             etcd_get(n->member, whole_key("n", "a", "/r")));
    tell_event(n, i, "PUT", whole_key("n", "a", "/r"), record, mod);
}

/* Store 0 owns a, store 1 waits for it. */
static struct names *with_a_wait(uint64_t *epoch)
{
    struct names *n = names_open();
    *epoch = claim(n, 0, ASK("a", 1, .lease_ms = LEASE_MS)).epoch;
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
    names_settle(n);
    return n;
}

/* ---- who waits ----------------------------------------------------------- */

TEST(etcd_news, a_result_in_the_change_is_told_whole_and_once)
{
    uint64_t epoch;
    struct names *n = with_a_wait(&epoch);
    (void)commit(n, 0, COMMIT("a", 1, epoch), "result");
    uint64_t mod = etcd_revision(n->member);
    tell_record(n, 1, mod);
    CHECK_UINT_EQ(n->heard[1].records, 1);
    CHECK_UINT_EQ(n->heard[1].status, VOW_STATUS_SETTLED);
    CHECK_STR_EQ(n->heard[1].value, "result");
    tell_event(n, 1, "DELETE", whole_key("n", "a", "/a"), "", mod);
    tell_record(n, 1, mod);
    CHECK_UINT_EQ(n->heard[1].records, 1);
    names_close(n);
}

TEST(etcd_news, a_result_that_lies_apart_is_asked_for)
{
    uint64_t epoch;
    struct names *n = with_a_wait(&epoch);
    char large[20 * 1024 + 1];
    memset(large, 'x', sizeof(large) - 1);
    large[sizeof(large) - 1] = 0;
    (void)commit(n, 0, COMMIT("a", 1, epoch), large);
    tell_record(n, 1, etcd_revision(n->member));
    CHECK_UINT_EQ(n->heard[1].records, 1);
    CHECK_UINT_EQ(n->heard[1].status, 0);
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 2)).size, sizeof(large) - 1);
    names_close(n);
}

TEST(etcd_news, an_owner_that_lapsed_is_a_reason_to_ask)
{
    uint64_t epoch;
    struct names *n = with_a_wait(&epoch);
    uint64_t mod = etcd_revision(n->member);
    tell_event(n, 1, "DELETE", whole_key("n", "a", "/a"), "", mod + 1);
    CHECK_UINT_EQ(n->heard[1].records, 1);
    CHECK_UINT_EQ(n->heard[1].status, 0);
    tell_record(n, 1, mod + 2); /* another has it, it goes on waiting */
    CHECK_UINT_EQ(n->heard[1].records, 1);
    tell_event(n, 1, "DELETE", whole_key("n", "a", "/r"), "", mod + 3);
    CHECK_UINT_EQ(n->heard[1].records, 2);
    tell_event(n, 1, "DELETE", whole_key("n", "a", "/a"), "", mod + 4);
    CHECK_UINT_EQ(n->heard[1].records, 2); /* nobody waits any more */
    names_close(n);
}

TEST(etcd_news, what_was_known_already_is_not_told)
{
    uint64_t epoch;
    struct names *n = with_a_wait(&epoch);
    tell_event(n, 1, "DELETE", whole_key("n", "a", "/a"), "", epoch);
    tell_record(n, 1, epoch);
    tell_record(n, 0, epoch);
    tell_event(n, 1, "PUT", whole_key("n", "b", "/r"), "gibberish", epoch + 9);
    tell_event(n, 1, "PUT", "vow/n/short", "x", epoch + 9);
    CHECK_UINT_EQ(n->heard[0].records + n->heard[1].records, 0);
    names_close(n);
}

TEST(etcd_news, what_makes_no_sense_is_a_reason_to_ask)
{
    uint64_t epoch;
    struct names *n = with_a_wait(&epoch);
    tell_event(n, 1, "PUT", whole_key("n", "a", "/r"), "gibberish",
               etcd_revision(n->member) + 1);
    CHECK_UINT_EQ(n->heard[1].records, 1);
    CHECK_UINT_EQ(n->heard[1].status, 0);
    names_close(n);
}

TEST(etcd_news, chunks_are_told_to_who_waits)
{
    uint64_t epoch;
    struct names *n = with_a_wait(&epoch);
    (void)write_text(n, 0, hold_of("a", 1, epoch), 0, "one");
    uint64_t mod = etcd_revision(n->member);
    for (size_t i = 0; i < STORES; i++)
        tell_event(n, i, "PUT", whole_key("n", "a", "/c"), "chunks 1\n", mod);
    CHECK_UINT_EQ(n->heard[1].chunks, 1);
    CHECK_UINT_EQ(n->heard[0].chunks, 0);
    names_close(n);
}

/* ---- hidden results ------------------------------------------------------ */

TEST(etcd_news, a_hidden_result_that_was_told_is_not_given_to_a_new_token)
{
    uint64_t epoch;
    struct names *n = with_a_wait(&epoch);
    (void)commit(n, 0, COMMIT("a", 1, epoch, .ttl_ms = 0), "for you");
    uint64_t mod = etcd_revision(n->member);
    tell_record(n, 1, mod);
    CHECK_UINT_EQ(n->heard[1].status, VOW_STATUS_SETTLED);
    CHECK_STR_EQ(n->heard[1].value, "for you");
    tell_event(n, 1, "DELETE", whole_key("n", "a", "/r"), "", mod + 5);
    CHECK_UINT_EQ(n->heard[1].records, 1);
    CHECK_STR_EQ(claim(n, 1, ASK("a", 2)).value, "for you"); /* a repeat */
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 3)).status, VOW_STATUS_OWNED);
    names_close(n);
}

/* ---- before the answer --------------------------------------------------- */

TEST(etcd_news, a_change_behind_an_answer_that_comes_before_it_is_told)
{
    uint64_t epoch;
    struct names *n = with_a_wait(&epoch);
    struct answer a = {.done = false};
    vow_store *s = n->at[1].store;
    n->hold = true;
    s->ops->claim(s, ASK("a", 2), on_records, &a);
    while (n->held[0] == 0)
        names_step(n);
    CHECK_UINT_EQ(commit(n, 0, COMMIT("a", 1, epoch), "x").status,
                  VOW_STATUS_OWNED);
    tell_record(n, 1, etcd_revision(n->member));
    CHECK_UINT_EQ(n->heard[1].records, 0);
    names_let_go(n);
    CHECK_UINT_EQ(await(n, &a)->status, VOW_STATUS_WAITING);
    names_settle(n);
    CHECK_UINT_EQ(n->heard[1].records, 1);
    CHECK_UINT_EQ(n->heard[1].status, 0);
    CHECK_STR_EQ(claim(n, 1, ASK("a", 2)).value, "x");
    names_close(n);
}

TEST(etcd_news, a_change_of_our_own_that_comes_before_the_answer_is_ours)
{
    struct names *n = names_open();
    struct answer a = {.done = false};
    vow_store *s = n->at[0].store;
    (void)claim(n, 0, ASK("other", 9)); /* for a watch */
    n->hold = true;
    s->ops->claim(s, ASK("a", 1, .lease_ms = LEASE_MS), on_records, &a);
    while (n->held[0] == 0)
        names_step(n);
    uint64_t mod = etcd_revision(n->member);
    tell_record(n, 0, mod);
    tell_event(n, 0, "PUT", whole_key("n", "a", "/a"), "lease 20000\n", mod);
    names_let_go(n);
    CHECK_UINT_EQ(await(n, &a)->status, VOW_STATUS_OWNED);
    names_pass(n, LEASE_MS / 8);
    n->txns = 0;
    CHECK_UINT_EQ(pulse(n, 0, hold_of("a", 1, a.epoch), LEASE_MS).status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(n->txns, 0);
    names_close(n);
}

TEST(etcd_news, a_change_of_another_that_comes_before_the_answer_is_not)
{
    struct names *n = names_open();
    struct answer a = {.done = false};
    vow_store *s = n->at[0].store;
    (void)claim(n, 0, ASK("other", 9));
    n->hold = true;
    s->ops->claim(s, ASK("a", 1, .lease_ms = LEASE_MS), on_records, &a);
    while (n->held[0] == 0)
        names_step(n);
    uint64_t mod = etcd_revision(n->member);
    CHECK_UINT_EQ(cancel(n, 1, "a").status, VOW_STATUS_WAITING);
    tell_record(n, 0, mod + 1);
    names_let_go(n);
    CHECK_UINT_EQ(await(n, &a)->status, VOW_STATUS_OWNED);
    names_pass(n, LEASE_MS / 8);
    CHECK_UINT_EQ(pulse(n, 0, hold_of("a", 1, a.epoch), LEASE_MS).status,
                  VOW_STATUS_CANCELED);
    names_close(n);
}

/* What lies between an answer and the beginning of the watch is not told. */
TEST(etcd_news, who_was_answered_before_the_watch_began_asks_again)
{
    struct names *n = names_open();
    struct answer a = {.done = false};
    vow_store *s = n->at[1].store;
    (void)claim(n, 0, ASK("a", 1));
    n->hold = true;
    s->ops->claim(s, ASK("a", 2), on_records, &a);
    while (n->held[0] == 0)
        names_step(n);
    (void)claim(n, 0, ASK("b", 3));
    CHECK_UINT_EQ(claim(n, 1, ASK("b", 4)).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(n->heard[1].records, 0);
    names_let_go(n);
    CHECK_UINT_EQ(await(n, &a)->status, VOW_STATUS_WAITING);
    names_settle(n);
    CHECK_UINT_EQ(n->heard[1].records, 1);
    CHECK_UINT_EQ(n->heard[1].status, 0);
    names_close(n);
}

/* ---- doubt --------------------------------------------------------------- */

TEST(etcd_news, when_changes_may_be_lost_all_are_told_and_nothing_is_believed)
{
    uint64_t epoch;
    struct names *n = with_a_wait(&epoch);
    names_pass(n, LEASE_MS / 8);
    for (size_t i = 0; i < STORES; i++) {
        fake_line(&n->at[i], "{\"result\":{\"header\":{\"revision\":\"9\"},"
                             "\"canceled\":true,\"compact_revision\":\"9\"}}");
        unsigned doubts = n->heard[i].doubts;
        for (int k = 0; k < 50 && n->heard[i].doubts == doubts; k++)
            names_pass(n, 100);
        CHECK(n->heard[i].doubts > doubts);
    }
    n->txns = 0;
    CHECK_UINT_EQ(pulse(n, 0, hold_of("a", 1, epoch), LEASE_MS).status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(n->txns, 2);
    names_close(n);
}

TEST(etcd_news, names_that_nobody_asks_for_are_forgotten)
{
    struct names *n = names_open();
    struct vow__etcd_news *news = vow__etcd_news(n->at[1].etcd);
    char name[] = "name 0";
    for (uint64_t i = 0; i < 10; i++) {
        name[5] = (char)('0' + i);
        (void)claim(n, 0, ASK(name, i));
        CHECK_UINT_EQ(claim(n, 1, ASK(name, 90 + i)).status,
                      VOW_STATUS_WAITING);
    }
    CHECK_UINT_EQ(news->nears.count, 10);
    names_pass(n, 11000); /* ten rechecks, and more */
    for (uint64_t i = 0; i < 10; i++) {
        name[4] = '+';
        name[5] = (char)('0' + i);
        (void)claim(n, 1, ASK(name, i, .lease_ms = 0));
    }
    CHECK_UINT_EQ(news->nears.count, 10);
    CHECK_UINT_EQ(vow__etcd_news(n->at[0].etcd)->nears.count, 10); /* owned */
    names_close(n);
}
