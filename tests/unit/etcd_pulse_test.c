/* SPDX-License-Identifier: MIT */
/* etcd_pulse_test.c - what a pulse costs, when it is believed without asking,
 * and when not. */
#include "etcd_names_kit.h"

enum { LEASE_MS = 20000, MANY = 100 };

static struct names *with_one(vow_hold *hold)
{
    struct names *n = names_open();
    *hold = hold_of("a", 1, 0);
    hold->epoch = claim(n, 0, ASK("a", 1, .lease_ms = LEASE_MS)).epoch;
    names_pass(n, LEASE_MS / 8);
    n->txns = 0;
    n->leases = 0;
    return n;
}

TEST(etcd_pulse, many_names_are_one_keepalive)
{
    struct names *n = names_open();
    vow_hold holds[MANY];
    char name[16];
    for (uint64_t i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "name %u", (unsigned)i);
        holds[i] = hold_of(name, i, 0);
        holds[i].epoch =
            claim(n, 0,
                  ASK(name, i, .lease_ms = LEASE_MS, .mode = (uint32_t)(i % 3)))
                .epoch;
    }
    for (int i = 0; i < 3; i++) {
        struct answer a = {.done = false};
        vow_store *s = n->at[0].store;
        names_pass(n, LEASE_MS / 3);
        n->txns = 0;
        n->leases = 0;
        s->ops->pulse(s, holds, MANY, LEASE_MS, on_records, &a);
        await(n, &a);
        CHECK_INT_EQ(a.code, 0);
        CHECK_UINT_EQ(a.n, MANY);
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(a.epoch, holds[0].epoch);
        CHECK_UINT_EQ(n->txns, 0);
        CHECK_UINT_EQ(n->leases, 1);
    }
    names_close(n);
}

TEST(etcd_pulse, what_was_written_just_now_is_asked_for)
{
    vow_hold hold;
    struct names *n = with_one(&hold);
    (void)claim(n, 0, ASK("a", 1, .lease_ms = LEASE_MS));
    n->txns = 0;
    CHECK_UINT_EQ(pulse(n, 0, hold, LEASE_MS).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(n->txns, 2);
    CHECK_UINT_EQ(pulse(n, 0, hold, LEASE_MS).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(n->txns, 4);
    names_pass(n, LEASE_MS / 8);
    CHECK_UINT_EQ(pulse(n, 0, hold, LEASE_MS).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(n->txns, 4);
    names_close(n);
}

TEST(etcd_pulse, another_token_or_lease_is_asked_for)
{
    vow_hold hold;
    struct names *n = with_one(&hold);
    vow_hold other = hold;
    other.token = token_of(2);
    CHECK_UINT_EQ(pulse(n, 0, other, LEASE_MS).status, VOW_STATUS_LOST);
    CHECK_UINT_EQ(n->txns, 1);
    CHECK_UINT_EQ(pulse(n, 0, hold, LEASE_MS).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(n->txns, 1);
    CHECK_UINT_EQ(pulse(n, 0, hold, 2 * LEASE_MS).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(n->txns, 3);
    CHECK_UINT_EQ(peek(n, 1, "a").left_ms, 2 * LEASE_MS);
    names_close(n);
}

TEST(etcd_pulse, what_is_not_pulsed_ends_while_others_are)
{
    vow_hold hold;
    struct names *n = with_one(&hold);
    (void)claim(n, 0, ASK("b", 2, .lease_ms = LEASE_MS));
    for (int i = 0; i < 5; i++) {
        CHECK_UINT_EQ(pulse(n, 0, hold, LEASE_MS).status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(peek(n, 1, "b").status,
                      i < 4 ? VOW_STATUS_WAITING : VOW_STATUS_NONE);
        names_pass(n, LEASE_MS / 4 + 100);
    }
    CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(claim(n, 1, ASK("b", 3)).takeovers, 1);
    names_close(n);
}

TEST(etcd_pulse, one_that_comes_late_is_not_believed)
{
    vow_hold hold;
    struct names *n = with_one(&hold);
    names_pass(n, LEASE_MS - LEASE_MS / 8 - 10);
    n->txns = 0;
    world_advance_ms(n->w, 20); /* its end is under way */
    CHECK_UINT_EQ(pulse(n, 0, hold, LEASE_MS).status, VOW_STATUS_OWNED);
    CHECK(n->txns > 1);
    names_settle(n);
    CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_WAITING);
    names_close(n);
}

TEST(etcd_pulse, who_was_replaced_meanwhile_is_told)
{
    vow_hold hold;
    struct names *n = with_one(&hold);
    names_pass(n, LEASE_MS);
    struct answer a = claim(n, 1, ASK("a", 2));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    struct answer b = pulse(n, 0, hold, LEASE_MS);
    CHECK_UINT_EQ(b.status, VOW_STATUS_LOST);
    CHECK_UINT_EQ(b.epoch, a.epoch);
    CHECK_UINT_EQ(pulse(n, 0, hold, LEASE_MS).status, VOW_STATUS_LOST);
    names_close(n);
}

TEST(etcd_pulse, a_lease_of_nothing_lets_go_at_once)
{
    vow_hold hold;
    struct names *n = with_one(&hold);
    CHECK_UINT_EQ(pulse(n, 0, hold, 0).status, VOW_STATUS_OWNED);
    CHECK(etcd_get(n->member, whole_key("n", "a", "/a")) == NULL);
    CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(pulse(n, 0, hold, LEASE_MS).epoch, hold.epoch);
    CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_WAITING);
    names_close(n);
}

TEST(etcd_pulse, what_the_watch_has_said_is_asked_for)
{
    static const char *const said[] = {"/a", "/r"};
    for (size_t i = 0; i < 2; i++) {
        vow_hold hold;
        struct names *n = with_one(&hold);
        tell_event(n, 0, "DELETE", whole_key("n", "a", said[i]), "",
                   etcd_revision(n->member) + 1);
        CHECK_UINT_EQ(pulse(n, 0, hold, LEASE_MS).status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(n->txns, 2);
        names_close(n);
    }
}

TEST(etcd_pulse, a_wish_to_stop_is_told_and_answered_without_asking)
{
    vow_hold hold;
    struct names *n = with_one(&hold);
    CHECK_UINT_EQ(cancel(n, 1, "a").status, VOW_STATUS_WAITING);
    char record[1024];
    snprintf(record, sizeof(record), "%s",
             etcd_get(n->member, whole_key("n", "a", "/r")));
    tell_event(n, 0, "PUT", whole_key("n", "a", "/r"), record,
               etcd_revision(n->member));
    CHECK_UINT_EQ(n->heard[0].cancels, 1);
    n->txns = 0;
    CHECK_UINT_EQ(pulse(n, 0, hold, LEASE_MS).status, VOW_STATUS_CANCELED);
    CHECK_UINT_EQ(n->txns, 0);
    CHECK_UINT_EQ(commit(n, 0, COMMIT("a", 1, hold.epoch), "x").status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(n->txns, 1);
    names_close(n);
}

TEST(etcd_pulse, records_and_leases_that_vanished_are_made_again)
{
    vow_hold hold;
    struct names *n = with_one(&hold);
    CHECK(etcd_revoke_all(n->member) > 0);
    CHECK(etcd_get(n->member, whole_key("n", "a", "/r")) == NULL);
    tell_event(n, 0, "DELETE", whole_key("n", "a", "/r"), "",
               etcd_revision(n->member));
    struct answer a = pulse(n, 0, hold, LEASE_MS);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(a.epoch, hold.epoch);
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(commit(n, 0, COMMIT("a", 1, a.epoch), "x").status,
                  VOW_STATUS_OWNED);
    names_close(n);
}

TEST(etcd_pulse, a_commit_that_was_begun_before_it_counts_before_it)
{
    vow_hold hold;
    struct names *n = with_one(&hold);
    struct answer a = {.done = false}, b = {.done = false};
    vow_store *s = n->at[0].store;
    s->ops->commit(s,
                   COMMIT("a", 1, hold.epoch, .outcome = VOW_OUTCOME_ABANDONED),
                   on_records, &a);
    s->ops->pulse(s, &hold, 1, LEASE_MS, on_records, &b);
    await(n, &a);
    await(n, &b);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(b.status, VOW_STATUS_OWNED); /* it is made again behind it */
    names_close(n);
}

TEST(etcd_pulse, one_that_was_begun_before_a_commit_revives_nothing)
{
    vow_hold hold;
    struct names *n = with_one(&hold);
    struct answer a = {.done = false}, b = {.done = false};
    vow_store *s = n->at[0].store;
    s->ops->pulse(s, &hold, 1, LEASE_MS, on_records, &a);
    s->ops->commit(s,
                   COMMIT("a", 1, hold.epoch, .outcome = VOW_OUTCOME_ABANDONED),
                   on_records, &b);
    await(n, &a);
    await(n, &b);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(b.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_NONE);
    names_close(n);
}

TEST(etcd_pulse, of_none_and_of_one_name_twice)
{
    vow_hold hold;
    struct names *n = with_one(&hold);
    struct answer a = {.done = false}, b = {.done = false};
    vow_store *s = n->at[0].store;
    vow_hold twice[] = {hold, hold};
    s->ops->pulse(s, NULL, 0, LEASE_MS, on_records, &a);
    CHECK(a.done && a.code == 0 && a.n == 0);
    s->ops->pulse(s, twice, 2, LEASE_MS, on_records, &b);
    CHECK_UINT_EQ(await(n, &b)->n, 2);
    names_close(n);
}

TEST(etcd_pulse, closing_ends_one_with_many_names)
{
    struct names *n = names_open();
    vow_hold holds[MANY];
    struct answer a = {.done = false};
    char name[16];
    for (uint64_t i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "name %u", (unsigned)i);
        holds[i] = hold_of(name, i, 7);
    }
    vow_store *s = n->at[0].store;
    s->ops->pulse(s, holds, MANY, LEASE_MS, on_records, &a);
    while (n->txns < 20)
        names_step(n);
    VOW_AUTO(vow_future) closed = s->ops->close(s);
    CHECK(a.done);
    CHECK_INT_EQ(a.code, VOW_ECLOSED);
    while (vow_state_of(closed) == VOW_PENDING)
        names_step(n);
    n->at[0].store = NULL;
    closed = vow_future_unref(closed);
    names_close(n);
}
