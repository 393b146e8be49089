/* SPDX-License-Identifier: MIT */
/* etcd_lost_test.c - steps whose answers are lost: they happened, or did not,
 * and the same step once more tells. */
#include "etcd_names_kit.h"

/* Each loss both before and after etcd has heard it. */
#define BOTH(n) for (int i_ = 0; i_ < 2; (n)->unsaid = ++i_ == 1)

TEST(etcd_lost, a_claim_with_one_lost_answer_knows_nevertheless)
{
    struct names *n = names_open();
    char name[] = "name 0";
    BOTH(n)
    {
        name[5]++;
        n->lose = 1;
        struct answer a = claim(n, 0, ASK(name, 1));
        CHECK_INT_EQ(a.code, 0);
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(a.takeovers, 0);
        CHECK_UINT_EQ(n->lose, 0);
        CHECK_UINT_EQ(claim(n, 0, ASK(name, 1)).epoch, a.epoch);
        CHECK_UINT_EQ(claim(n, 1, ASK(name, 2)).epoch, a.epoch);
        CHECK_UINT_EQ(commit(n, 0, COMMIT(name, 1, a.epoch), "x").status,
                      VOW_STATUS_OWNED);
    }
    names_close(n);
}

TEST(etcd_lost, a_claim_without_answers_is_unsure_and_its_repeat_tells)
{
    struct names *n = names_open();
    char name[] = "name 0";
    BOTH(n)
    {
        name[5]++;
        n->lose = 2;
        CHECK_INT_EQ(claim(n, 0, ASK(name, 1)).code, VOW_EUNSURE);
        struct answer other = peek(n, 1, name);
        CHECK_UINT_EQ(other.status,
                      n->unsaid ? VOW_STATUS_NONE : VOW_STATUS_WAITING);
        struct answer a = claim(n, 0, ASK(name, 1));
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        CHECK(n->unsaid || a.epoch == other.epoch);
    }
    names_close(n);
}

TEST(etcd_lost, a_reading_without_an_answer_has_changed_nothing)
{
    struct names *n = names_open();
    n->lose = 1;
    CHECK_INT_EQ(forget(n, 0, "a", 0).code, VOW_ESTORE);
    n->lose = 1;
    CHECK_INT_EQ(peek(n, 0, "a").code, VOW_ESTORE);
    n->lose = 1;
    CHECK_INT_EQ(read_text(n, 0, hold_of("a", 1, 1)).code, VOW_ESTORE);
    names_close(n);
}

TEST(etcd_lost, a_commit_with_lost_answers_has_effect_once)
{
    struct names *n = names_open();
    char name[] = "name 0";
    for (unsigned lose = 1; lose <= 2; lose++) {
        BOTH(n)
        {
            name[5]++;
            uint64_t epoch = claim(n, 0, ASK(name, 1)).epoch;
            n->lose = lose;
            struct answer a = commit(n, 0, COMMIT(name, 1, epoch), "x");
            CHECK_INT_EQ(a.code, lose == 2 ? VOW_EUNSURE : 0);
            a = commit(n, 0, COMMIT(name, 1, epoch), "x");
            CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
            CHECK_STR_EQ(claim(n, 1, ASK(name, 2)).value, "x");
        }
    }
    names_close(n);
}

TEST(etcd_lost, behind_a_commit_without_an_answer_a_claim_tells)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    n->lose = 2;
    CHECK_INT_EQ(commit(n, 0, COMMIT("a", 1, epoch), "x").code, VOW_EUNSURE);
    struct answer a = claim(n, 0, ASK("a", 2));
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_STR_EQ(a.value, "x");
    CHECK_UINT_EQ(pulse(n, 0, hold_of("a", 1, epoch), LONG_MS).status,
                  VOW_STATUS_SETTLED);
    names_close(n);
}

TEST(etcd_lost, a_name_that_was_given_back_is_free)
{
    struct names *n = names_open();
    BOTH(n)
    {
        uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
        n->lose = 1;
        CHECK_UINT_EQ(
            commit(n, 0,
                   COMMIT("a", 1, epoch, .outcome = VOW_OUTCOME_ABANDONED),
                   NULL)
                .status,
            VOW_STATUS_OWNED);
        CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_NONE);
    }
    names_close(n);
}

TEST(etcd_lost, forget_and_cancel_with_lost_answers)
{
    struct names *n = names_open();
    vow_store *s = n->at[0].store;
    vow_name name = vow_name_of("a");
    BOTH(n)
    {
        struct answer a = {.done = false}, b = {.done = false};
        uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
        n->hold = true;
        s->ops->cancel(s, &name, on_records, &a);
        while (n->held[0] == 0)
            names_step(n);
        n->lose = 1;
        names_let_go(n);
        CHECK_UINT_EQ(await(n, &a)->status, VOW_STATUS_WAITING);
        CHECK_UINT_EQ(pulse(n, 0, hold_of("a", 1, epoch), LONG_MS).status,
                      VOW_STATUS_CANCELED);
        (void)commit(n, 0, COMMIT("a", 1, epoch), "x");
        n->hold = true;
        s->ops->forget(s, &name, epoch, on_records, &b);
        while (n->held[0] == 0)
            names_step(n);
        n->lose = 1;
        names_let_go(n);
        CHECK_UINT_EQ(await(n, &b)->status, VOW_STATUS_NONE);
        CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_NONE);
    }
    names_close(n);
}

/* ---- chunks -------------------------------------------------------------- */

TEST(etcd_lost, a_chunk_is_there_once_whatever_is_lost)
{
    struct names *n = names_open();
    vow_hold hold = hold_of("a", 1, 0);
    hold.epoch = claim(n, 0, ASK("a", 1)).epoch;
    CHECK_UINT_EQ(write_text(n, 0, hold, 0, "one").status, VOW_STATUS_OWNED);
    n->lose = 1;
    CHECK_UINT_EQ(write_text(n, 0, hold, 1, "two").status, VOW_STATUS_OWNED);
    CHECK_STR_EQ(read_text(n, 1, hold).value, "one|two|");
    n->lose = 2;
    CHECK_INT_EQ(write_text(n, 0, hold, 2, "three").code, VOW_EUNSURE);
    CHECK_UINT_EQ(write_text(n, 0, hold, 2, "three").status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(write_text(n, 0, hold, 3, "three").status, VOW_STATUS_OWNED);
    CHECK_STR_EQ(read_text(n, 1, hold).value, "one|two|three|three|");
    (void)pulse(n, 0, hold, LONG_MS); /* it is sure again: no reading first */
    n->unsaid = true;
    n->lose = 2;
    CHECK_INT_EQ(write_text(n, 0, hold, 4, "five").code, VOW_EUNSURE);
    CHECK_UINT_EQ(write_text(n, 0, hold, 4, "five").status, VOW_STATUS_OWNED);
    CHECK_STR_EQ(read_text(n, 1, hold).value, "one|two|three|three|five|");
    names_close(n);
}

TEST(etcd_lost, behind_a_chunk_that_is_not_there_no_other_is_written)
{
    struct names *n = names_open();
    vow_hold hold = hold_of("a", 1, 0);
    hold.epoch = claim(n, 0, ASK("a", 1)).epoch;
    n->unsaid = true;
    n->lose = 2;
    CHECK_INT_EQ(write_text(n, 0, hold, 0, "one").code, VOW_EUNSURE);
    CHECK_UINT_EQ(write_text(n, 0, hold, 1, "two").status, VOW_STATUS_OWNED);
    CHECK_STR_EQ(read_text(n, 1, hold).value, "");
    CHECK_UINT_EQ(write_text(n, 0, hold, 0, "one").status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(write_text(n, 0, hold, 1, "two").status, VOW_STATUS_OWNED);
    CHECK_STR_EQ(read_text(n, 1, hold).value, "one|two|");
    (void)pulse(n, 0, hold, LONG_MS);
    n->unsaid = false;
    n->lose = 2;
    CHECK_INT_EQ(write_text(n, 0, hold, 2, "three").code, VOW_EUNSURE);
    CHECK_UINT_EQ(write_text(n, 0, hold, 3, "four").status, VOW_STATUS_OWNED);
    CHECK_STR_EQ(read_text(n, 1, hold).value, "one|two|three|four|");
    names_close(n);
}

TEST(etcd_lost, another_writer_with_the_same_token_goes_on_where_one_stopped)
{
    struct names *n = names_open();
    vow_hold hold = hold_of("a", 1, 0);
    hold.epoch = claim(n, 0, ASK("a", 1)).epoch;
    CHECK_UINT_EQ(write_text(n, 0, hold, 0, "one").status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(write_text(n, 1, hold, 1, "two").status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(write_text(n, 0, hold, 2, "three").status, VOW_STATUS_OWNED);
    CHECK_STR_EQ(read_text(n, 1, hold).value, "one|two|three|");
    names_close(n);
}
