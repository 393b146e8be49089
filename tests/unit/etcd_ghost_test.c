/* SPDX-License-Identifier: MIT */
/* etcd_ghost_test.c - claims and pulses that nobody was answered for: what they
 * have done, or do later, must not keep others from the name. And what somebody
 * was answered for stays. */
#include "etcd_names_kit.h"

enum { SOON_MS = 300, LEASE_MS = 20000 };

static const uint32_t modes[] = {VOW_SHARED, VOW_FENCED, VOW_ONCE};

#define EACH_MODE(i) for (size_t i = 0; i < 3; i++)

/* A claim that took effect, and has no answer. */
static void lose_claim(struct names *n, const char *name, uint64_t token,
                       uint32_t mode)
{
    n->lose = 2;
    struct answer a =
        claim(n, 0, ASK(name, token, .mode = mode, .lease_ms = LEASE_MS));
    CHECK_INT_EQ(a.code, VOW_EUNSURE);
    CHECK_UINT_EQ(n->lose, 0);
    CHECK_UINT_EQ(peek(n, 1, name).status, VOW_STATUS_WAITING);
}

/* The same, but it reaches etcd only when the test says so. */
static void delay_claim(struct names *n, const char *name, uint64_t token,
                        uint32_t mode)
{
    n->lose = 2;
    n->late = true;
    struct answer a =
        claim(n, 0, ASK(name, token, .mode = mode, .lease_ms = LEASE_MS));
    CHECK_INT_EQ(a.code, VOW_EUNSURE);
    CHECK_UINT_EQ(peek(n, 1, name).status, VOW_STATUS_NONE);
}

static void close_first(struct names *n)
{
    vow_store *s = n->at[0].store;
    VOW_AUTO(vow_future) closed = s->ops->close(s);
    n->at[0].store = NULL;
    while (vow_state_of(closed) == VOW_PENDING)
        names_step(n);
    CHECK_UINT_EQ(vow_state_of(closed), VOW_FULFILLED);
}

/* ---- nothing has begun --------------------------------------------------- */

TEST(etcd_ghost, a_claim_without_an_answer_is_given_back)
{
    struct names *n = names_open();
    char name[] = "name 0";
    EACH_MODE(i)
    {
        name[5]++;
        lose_claim(n, name, 1, modes[i]);
        CHECK_UINT_EQ(claim(n, 1, ASK(name, 2)).status, VOW_STATUS_WAITING);
        names_pass(n, SOON_MS);
        CHECK_UINT_EQ(peek(n, 1, name).status, VOW_STATUS_NONE);
        CHECK_UINT_EQ(etcd_count(n->member, whole_key("w", name, "/")), 0);
        struct answer a = claim(n, 1, ASK(name, 2));
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(a.takeovers, 0);
    }
    names_close(n);
}

TEST(etcd_ghost, its_own_process_takes_it_over_at_once)
{
    struct names *n = names_open();
    char name[] = "name 0";
    EACH_MODE(i)
    {
        name[5]++;
        lose_claim(n, name, 1, modes[i]);
        uint64_t epoch = peek(n, 1, name).epoch;
        struct answer a = claim(n, 0, ASK(name, 2, .mode = modes[i]));
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(a.takeovers, 0);
        CHECK(a.epoch > epoch);
        names_pass(n, 30000); /* and keeps it */
        CHECK_UINT_EQ(peek(n, 1, name).epoch, a.epoch);
        CHECK_UINT_EQ(peek(n, 1, name).status, VOW_STATUS_WAITING);
    }
    names_close(n);
}

TEST(etcd_ghost, one_whose_lease_was_lost_is_not_in_doubt)
{
    struct names *n = names_open();
    lose_claim(n, "a", 1, VOW_ONCE);
    etcd_delete(n->member, whole_key("n", "a", "/a"));
    CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(claim(n, 0, ASK("a", 2, .mode = VOW_ONCE)).status,
                  VOW_STATUS_OWNED);
    lose_claim(n, "b", 1, VOW_ONCE);
    etcd_delete(n->member, whole_key("n", "b", "/a"));
    names_pass(n, SOON_MS);
    CHECK_UINT_EQ(peek(n, 1, "b").status, VOW_STATUS_NONE);
    names_close(n);
}

TEST(etcd_ghost, one_that_reaches_etcd_late_has_no_effect)
{
    struct names *n = names_open();
    char name[] = "name 0";
    EACH_MODE(i)
    {
        name[5]++;
        delay_claim(n, name, 1, modes[i]);
        names_pass(n, SOON_MS);
        names_arrive(n);
        CHECK_UINT_EQ(peek(n, 1, name).status, VOW_STATUS_NONE);
        CHECK_UINT_EQ(claim(n, 1, ASK(name, 2)).status, VOW_STATUS_OWNED);
    }
    names_close(n);
}

/* It was answered, by a second try: the first is still under way. */
TEST(etcd_ghost, one_that_was_written_twice_has_effect_once)
{
    struct names *n = names_open();
    n->lose = 1;
    n->late = true;
    struct answer a = claim(n, 0, ASK("a", 1, .mode = VOW_ONCE));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    names_pass(n, SOON_MS);
    CHECK_UINT_EQ(peek(n, 1, "a").epoch, a.epoch);
    CHECK_UINT_EQ(
        commit(n, 0, COMMIT("a", 1, a.epoch, .outcome = VOW_OUTCOME_ABANDONED),
               NULL)
            .status,
        VOW_STATUS_OWNED);
    names_arrive(n);
    CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_NONE);
    names_close(n);
}

TEST(etcd_ghost, is_looked_for_until_etcd_answers)
{
    struct names *n = names_open();
    n->lose = 2;
    CHECK_INT_EQ(claim(n, 0, ASK("a", 1)).code, VOW_EUNSURE);
    n->lose = 1000;
    n->unsaid = true;
    names_pass(n, 60000);
    CHECK(n->lose < 990); /* of the last outage */
    n->lose = 0;
    CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_WAITING);
    names_pass(n, 3500);
    CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_NONE);
    n->txns = 0;
    names_pass(n, 10000);
    CHECK_UINT_EQ(n->txns, 0); /* and then it is gone */
    names_close(n);
}

TEST(etcd_ghost, a_fence_is_seen_by_who_claims_and_by_nobody_else)
{
    struct names *n = names_open();
    vow_store *s = n->at[1].store;
    struct answer a = {.done = false};
    delay_claim(n, "a", 1, VOW_ONCE);
    names_pass(n, SOON_MS);
    CHECK_UINT_EQ(etcd_count(n->member, whole_key("n", "a", "/")), 1);
    s->ops->list(s, on_records, &a);
    CHECK_UINT_EQ(await(n, &a)->n, 0);
    n->txns = 0;
    uint64_t epoch = claim(n, 1, ASK("a", 2)).epoch;
    CHECK(epoch > 0);
    CHECK_UINT_EQ(n->txns, 2);
    CHECK_UINT_EQ(commit(n, 1, COMMIT("a", 2, epoch), "x").status,
                  VOW_STATUS_OWNED);
    CHECK_STR_EQ(claim(n, 0, ASK("a", 3)).value, "x");
    names_close(n);
}

/* ---- something has ------------------------------------------------------- */

TEST(etcd_ghost, who_repeats_its_claim_owns_it)
{
    struct names *n = names_open();
    char name[] = "name 0";
    EACH_MODE(i)
    {
        name[5]++;
        lose_claim(n, name, 1, modes[i]);
        struct answer a =
            claim(n, 0, ASK(name, 1, .mode = modes[i], .lease_ms = LEASE_MS));
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        vow_hold hold = hold_of(name, 1, a.epoch);
        for (int k = 0; k < 5; k++) {
            names_pass(n, 6000);
            CHECK_UINT_EQ(pulse(n, 0, hold, LEASE_MS).status, VOW_STATUS_OWNED);
        }
        CHECK_UINT_EQ(claim(n, 1, ASK(name, 2)).epoch, a.epoch);
    }
    names_close(n);
}

TEST(etcd_ghost, who_repeats_its_claim_and_is_lost_is_in_doubt)
{
    struct names *n = names_open();
    lose_claim(n, "a", 1, VOW_ONCE);
    CHECK_UINT_EQ(
        claim(n, 0, ASK("a", 1, .mode = VOW_ONCE, .lease_ms = LEASE_MS)).status,
        VOW_STATUS_OWNED);
    names_pass(n, LEASE_MS + 1000);
    CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(claim(n, 0, ASK("a", 2, .mode = VOW_ONCE)).status,
                  VOW_STATUS_DOUBT);
    names_close(n);
}

TEST(etcd_ghost, another_process_that_repeats_the_claim_owns_it)
{
    struct names *n = names_open();
    lose_claim(n, "a", 1, VOW_ONCE);
    struct answer a = claim(n, 1, ASK("a", 1, .mode = VOW_ONCE));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    names_pass(n, SOON_MS);
    CHECK_UINT_EQ(peek(n, 1, "a").epoch, a.epoch);
    etcd_delete(n->member, whole_key("n", "a", "/a")); /* it died */
    CHECK_UINT_EQ(claim(n, 0, ASK("a", 2, .mode = VOW_ONCE)).status,
                  VOW_STATUS_DOUBT);

    lose_claim(n, "b", 1, VOW_ONCE); /* and one that died before it looked */
    CHECK_UINT_EQ(claim(n, 1, ASK("b", 1, .mode = VOW_ONCE)).status,
                  VOW_STATUS_OWNED);
    etcd_delete(n->member, whole_key("n", "b", "/a"));
    names_pass(n, SOON_MS);
    CHECK_UINT_EQ(peek(n, 1, "b").status, VOW_STATUS_DOUBT);
    names_close(n);
}

/* A token that owns is asked for once more, without an answer. */
TEST(etcd_ghost, what_has_begun_lapses_and_is_not_given_back)
{
    struct names *n = names_open();
    vow_hold other = hold_of("other", 9, 0);
    other.epoch = claim(n, 0, ASK("other", 9, .lease_ms = LEASE_MS)).epoch;
    uint64_t epoch =
        claim(n, 0, ASK("a", 1, .mode = VOW_ONCE, .lease_ms = LEASE_MS)).epoch;
    n->lose = 3; /* its reading, */
    CHECK_INT_EQ(
        claim(n, 0, ASK("a", 1, .mode = VOW_ONCE, .lease_ms = LEASE_MS)).code,
        VOW_ESTORE);
    n->lose = 0;
    n->hold = true; /* or what it writes */
    struct answer a = {.done = false};
    vow_store *s = n->at[0].store;
    s->ops->claim(s, ASK("a", 1, .mode = VOW_ONCE, .lease_ms = LEASE_MS),
                  on_records, &a);
    while (n->held[0] == 0)
        names_step(n);
    n->lose = 2;
    names_let_go(n);
    CHECK_INT_EQ(await(n, &a)->code, VOW_EUNSURE);
    for (int i = 0; i < 3; i++) { /* which keeps their lease alive */
        names_pass(n, 6000);
        CHECK_UINT_EQ(pulse(n, 0, other, LEASE_MS).status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_WAITING);
        CHECK_UINT_EQ(peek(n, 1, "a").epoch, epoch);
    }
    names_pass(n, 4000);
    CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(peek(n, 1, "other").status, VOW_STATUS_WAITING);
    names_close(n);
}

TEST(etcd_ghost, a_pulse_without_an_answer_lapses_as_if_its_process_had_died)
{
    struct names *n = names_open();
    vow_hold other = hold_of("other", 9, 0);
    vow_hold hold = hold_of("a", 1, 0);
    struct answer a = {.done = false};
    vow_store *s = n->at[0].store;
    other.epoch = claim(n, 0, ASK("other", 9, .lease_ms = LEASE_MS)).epoch;
    hold.epoch = claim(n, 0, ASK("a", 1, .lease_ms = LEASE_MS)).epoch;
    etcd_delete(n->member, whole_key("n", "a", "/r"));
    n->hold = true; /* its reading */
    s->ops->pulse(s, &hold, 1, LEASE_MS, on_records, &a);
    while (n->held[0] == 0)
        names_step(n);
    n->lose = 2;
    names_let_go(n);
    CHECK_INT_EQ(await(n, &a)->code, VOW_EUNSURE);
    for (int i = 0; i < 3; i++) {
        names_pass(n, 6000);
        CHECK_UINT_EQ(pulse(n, 0, other, LEASE_MS).status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_WAITING);
    }
    names_pass(n, 4000);
    struct answer next = claim(n, 1, ASK("a", 2));
    CHECK_UINT_EQ(next.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(next.takeovers, 1);
    names_close(n);
}

/* ---- the end of the store ------------------------------------------------ */

TEST(etcd_ghost,
     a_claim_that_is_under_way_when_its_store_is_closed_is_given_back)
{
    struct names *n = names_open();
    struct answer a = {.done = false};
    vow_store *s = n->at[0].store;
    CHECK_UINT_EQ(claim(n, 0, ASK("mine", 9, .mode = VOW_ONCE)).status,
                  VOW_STATUS_OWNED);
    n->hold = true;
    s->ops->claim(s, ASK("a", 1, .mode = VOW_ONCE, .label = "l"), on_records,
                  &a);
    while (n->held[0] == 0)
        names_step(n);
    CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_WAITING);
    close_first(n);
    CHECK_INT_EQ(a.code, VOW_ECLOSED);
    CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(peek(n, 1, "mine").status,
                  VOW_STATUS_WAITING); /* it has begun */
    names_close(n);
}

TEST(etcd_ghost, so_is_one_that_reaches_etcd_only_afterwards)
{
    struct names *n = names_open();
    delay_claim(n, "a", 1, VOW_ONCE);
    close_first(n);
    names_arrive(n);
    CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 2, .mode = VOW_ONCE)).status,
                  VOW_STATUS_OWNED);
    names_close(n);
}

TEST(etcd_ghost, closing_gives_back_nothing_that_has_begun)
{
    struct names *n = names_open();
    lose_claim(n, "a", 1, VOW_ONCE);
    CHECK_UINT_EQ(
        claim(n, 0, ASK("a", 1, .mode = VOW_ONCE, .lease_ms = LEASE_MS)).status,
        VOW_STATUS_OWNED);
    lose_claim(n, "b", 1, VOW_ONCE);
    CHECK_UINT_EQ(claim(n, 1, ASK("b", 1, .mode = VOW_ONCE)).status,
                  VOW_STATUS_OWNED);
    close_first(n);
    CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(peek(n, 1, "b").status, VOW_STATUS_WAITING);
    names_close(n);
}
