/* SPDX-License-Identifier: MIT */
/* claim_test.c - one owns, the others wait; takeover when a lease lapses. */
#include "contract.h"

CONTRACT(claim, the_first_who_asks_owns_it)
{
    struct rig_answer a =
        rig_claim(r, 0, ASK("a", 1, .label = "the report", .runner = "host:1"));
    CHECK_INT_EQ(a.code, 0);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK(a.epoch > 0);
    CHECK_UINT_EQ(a.takeovers, 0);
    CHECK_UINT_EQ(a.value_size, 0);
    CHECK(vow_name_equal(&a.name, &ASK("a", 1)->name));
}

CONTRACT(claim, the_second_who_asks_waits_and_sees_who_works)
{
    uint64_t epoch = rig_claim(r, 0,
                               ASK("a", 1, .label = "the report",
                                   .runner = "host:1", .mode = VOW_FENCED))
                         .epoch;
    struct rig_answer a = rig_claim(r, 1, ASK("a", 2, .runner = "host:2"));
    CHECK_UINT_EQ(a.status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(a.epoch, epoch);
    CHECK_UINT_EQ(a.mode, VOW_FENCED);
    CHECK_STR_EQ(a.label, "the report");
    CHECK_STR_EQ(a.runner, "host:1");
    rig_check_waiters(r, a.waiters, 1);
    CHECK(a.left_ms > 0 && a.left_ms <= LONG_MS);
    a = rig_claim(r, 2, ASK("a", 3));
    CHECK_UINT_EQ(a.status, VOW_STATUS_WAITING);
    rig_check_waiters(r, a.waiters, 2);
}

CONTRACT(claim, a_second_claim_of_the_same_instance_waits_too)
{
    CHECK_UINT_EQ(rig_claim(r, 0, ASK("a", 1)).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_claim(r, 0, ASK("a", 2)).status, VOW_STATUS_WAITING);
}

CONTRACT(claim, names_do_not_touch_each_other)
{
    uint64_t last = 0;
    char name[] = "name 0";
    for (uint64_t i = 0; i < 10; i++) {
        name[5] = (char)('0' + i);
        struct rig_answer a = rig_claim(r, i % RIG_INSTANCES, ASK(name, i));
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        CHECK(a.epoch > last);
        last = a.epoch;
    }
}

CONTRACT(claim, the_same_token_owns_it_still)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    for (int i = 0; i < 3; i++) {
        struct rig_answer a = rig_claim(r, 0, ASK("a", 1));
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(a.epoch, epoch);
    }
}

CONTRACT(claim, waiting_twice_is_waiting_once)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    rig_check_waiters(r, rig_claim(r, 1, ASK("a", 2)).waiters, 1);
    rig_check_waiters(r, rig_claim(r, 1, ASK("a", 2)).waiters, 1);
    CHECK_UINT_EQ(rig_commit(r, 0, COMMIT("a", 1, epoch), "x").status,
                  VOW_STATUS_OWNED);
    rig_expect(r, &r->news[1].records, 1);
}

CONTRACT(claim, an_epoch_is_above_the_floor)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1, .floor = 1000000)).epoch;
    CHECK(epoch > 1000000);
    CHECK(rig_claim(r, 1, ASK("b", 2)).epoch > epoch);
}

CONTRACT(claim, nowait_is_not_registered)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    struct rig_answer a =
        rig_claim(r, 1, ASK("a", 2, .flags = VOW_CLAIM_NOWAIT));
    CHECK_UINT_EQ(a.status, VOW_STATUS_WAITING);
    rig_check_waiters(r, a.waiters, 0);
    CHECK_UINT_EQ(rig_commit(r, 0, COMMIT("a", 1, epoch), "x").status,
                  VOW_STATUS_OWNED);
    rig_advance_ms(r, 20);
    CHECK_UINT_EQ(r->news[1].records, 0);
}

CONTRACT(claim, force_does_not_take_a_result_that_is_there)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    (void)rig_commit(r, 0, COMMIT("a", 1, epoch), "old");
    CHECK_UINT_EQ(rig_claim(r, 1, ASK("a", 2)).status, VOW_STATUS_SETTLED);
    struct rig_answer a =
        rig_claim(r, 1, ASK("a", 3, .flags = VOW_CLAIM_FORCE));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK(a.epoch > epoch);
    CHECK_UINT_EQ(rig_claim(r, 2, ASK("a", 4)).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(rig_commit(r, 0, COMMIT("a", 1, epoch), "late").status,
                  VOW_STATUS_LOST);
}

CONTRACT(claim, force_waits_for_who_works_already)
{
    CHECK_UINT_EQ(rig_claim(r, 0, ASK("a", 1)).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_claim(r, 1, ASK("a", 2, .flags = VOW_CLAIM_FORCE)).status,
                  VOW_STATUS_WAITING);
}

/* ---- takeover ------------------------------------------------------------ */

CONTRACT(takeover, a_lapsed_lease_goes_to_who_asks)
{
    struct rig_answer first =
        rig_claim(r, 0, ASK("a", 1, .lease_ms = rig_short_ms(r)));
    CHECK_UINT_EQ(first.status, VOW_STATUS_OWNED);
    rig_lapse(r);
    struct rig_answer a = rig_claim(r, 1, ASK("a", 2, .runner = "host:2"));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK(a.epoch > first.epoch);
    CHECK_UINT_EQ(a.takeovers, 1);
    a = rig_claim(r, 2, ASK("a", 3));
    CHECK_UINT_EQ(a.status, VOW_STATUS_WAITING);
    CHECK_STR_EQ(a.runner, "host:2");
}

CONTRACT(takeover, who_waits_knows_when_to_look)
{
    (void)rig_claim(r, 0, ASK("a", 1, .lease_ms = rig_short_ms(r)));
    struct rig_answer a = rig_claim(r, 1, ASK("a", 2));
    /* On a slow machine it may have lapsed, or the server ends leases late. */
    for (int tries = 0; a.status == VOW_STATUS_WAITING; tries++) {
        CHECK(tries == 0 || r->store->real_time);
        CHECK(a.left_ms <= rig_short_ms(r));
        rig_advance_ms(r, a.left_ms == 0 ? 1 : a.left_ms);
        a = rig_claim(r, 1, ASK("a", 2));
    }
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
}

CONTRACT(takeover, the_owner_can_still_commit_if_nobody_took_over)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1, .lease_ms = 0)).epoch;
    CHECK_UINT_EQ(rig_commit(r, 0, COMMIT("a", 1, epoch), "late").status,
                  VOW_STATUS_OWNED);
    struct rig_answer a = rig_claim(r, 1, ASK("a", 2));
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_MEM_EQ(a.value, "late", 4);
}

CONTRACT(takeover, the_owner_comes_back_by_its_token)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1, .lease_ms = 0)).epoch;
    struct rig_answer a = rig_claim(r, 0, ASK("a", 1));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(a.epoch, epoch);
    CHECK_UINT_EQ(rig_claim(r, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
}

CONTRACT(takeover, others_that_wait_stay_registered)
{
    vow_hold hold = {.name = rig_name("a"), .token = rig_token(1), .epoch = 0};
    hold.epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    CHECK_UINT_EQ(rig_claim(r, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(rig_pulse(r, 0, &hold, 0).status, VOW_STATUS_OWNED);
    struct rig_answer a = rig_claim(r, 2, ASK("a", 3));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    rig_check_waiters(r, a.waiters, 1);
    CHECK_UINT_EQ(rig_commit(r, 2, COMMIT("a", 3, a.epoch), "x").status,
                  VOW_STATUS_OWNED);
    rig_expect(r, &r->news[1].records, 1);
}

CONTRACT(takeover, too_many_give_up_as_a_failure)
{
    (void)rig_claim(r, 0, ASK("a", 1, .lease_ms = 0));
    for (uint64_t i = 1; i <= 2; i++) {
        struct rig_answer a =
            rig_claim(r, i, ASK("a", 1 + i, .lease_ms = 0, .takeovers = 2));
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(a.takeovers, i);
    }
    struct rig_answer a = rig_claim(r, 3, ASK("a", 9, .takeovers = 2));
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK(a.failed);
    CHECK_MEM_EQ(a.value, "-6014\n", 6);
    CHECK(a.left_ms > 0 && a.left_ms <= 60000);
    a = rig_claim(r, 4, ASK("a", 10));
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK(a.failed);
}

CONTRACT(takeover, force_takes_a_lapsed_name_whatever_the_count)
{
    (void)rig_claim(r, 0, ASK("a", 1, .lease_ms = 0));
    const vow_claim_request *ask =
        ASK("a", 2, .takeovers = 0, .flags = VOW_CLAIM_FORCE);
    struct rig_answer a = rig_claim(r, 1, ask);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(a.takeovers, 1);
    CHECK_UINT_EQ(rig_claim(r, 1, ask).epoch, a.epoch);
}

CONTRACT(takeover, giving_up_wakes_who_waits_and_refuses_the_lost_owner)
{
    struct rig_answer own = rig_claim(r, 0, ASK("a", 1));
    CHECK_UINT_EQ(rig_claim(r, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
    vow_hold hold = {
        .name = rig_name("a"), .token = rig_token(1), .epoch = own.epoch};
    CHECK_UINT_EQ(rig_pulse(r, 0, &hold, 0).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_claim(r, 2, ASK("a", 3, .takeovers = 0)).status,
                  VOW_STATUS_SETTLED);
    rig_expect(r, &r->news[1].records, 1);
    struct rig_answer a = rig_commit(r, 0, COMMIT("a", 1, own.epoch), "x");
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK(a.failed);
}

CONTRACT(takeover, an_abandoned_name_counts_none)
{
    (void)rig_claim(r, 0, ASK("a", 1, .lease_ms = 0));
    struct rig_answer a = rig_claim(r, 1, ASK("a", 2));
    CHECK_UINT_EQ(a.takeovers, 1);
    (void)rig_commit(
        r, 1, COMMIT("a", 2, a.epoch, .outcome = VOW_OUTCOME_ABANDONED), NULL);
    a = rig_claim(r, 2, ASK("a", 3));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(a.takeovers, 0);
}
