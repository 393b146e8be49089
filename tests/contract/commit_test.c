/* SPDX-License-Identifier: MIT */
/* commit_test.c - pulse, commit, abandon; fences; results that expire. */
#include "contract.h"

static vow_hold hold_of(const char *text, uint64_t number, uint64_t epoch)
{
    return (vow_hold){
        .name = rig_name(text), .token = rig_token(number), .epoch = epoch};
}

/* ---- pulse --------------------------------------------------------------- */

CONTRACT(pulse, it_renews_the_lease)
{
    struct rig_answer own = rig_claim(r, 0, ASK("a", 1, .lease_ms = 0));
    vow_hold hold = hold_of("a", 1, own.epoch);
    struct rig_answer a = rig_pulse(r, 0, &hold, LONG_MS);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(a.epoch, own.epoch);
    CHECK_UINT_EQ(rig_claim(r, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
}

CONTRACT(pulse, a_lease_lasts_as_long_as_it_is_pulsed)
{
    vow_hold hold = hold_of("a", 1, 0);
    hold.epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    CHECK_UINT_EQ(rig_pulse(r, 0, &hold, rig_short_ms(r)).status,
                  VOW_STATUS_OWNED);
    rig_advance_ms(r, rig_short_ms(r) / 2);
    CHECK_UINT_EQ(rig_pulse(r, 0, &hold, LONG_MS).status, VOW_STATUS_OWNED);
    rig_lapse(r);
    CHECK_UINT_EQ(rig_claim(r, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
}

CONTRACT(pulse, another_owner_is_told_as_lost)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1, .lease_ms = 0)).epoch;
    uint64_t second = rig_claim(r, 1, ASK("a", 2)).epoch;
    vow_hold hold = hold_of("a", 1, epoch);
    struct rig_answer a = rig_pulse(r, 0, &hold, LONG_MS);
    CHECK_UINT_EQ(a.status, VOW_STATUS_LOST);
    CHECK_UINT_EQ(a.epoch, second);
}

CONTRACT(pulse, a_settled_name_is_told_as_settled)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1, .lease_ms = 0)).epoch;
    uint64_t second = rig_claim(r, 1, ASK("a", 2)).epoch;
    (void)rig_commit(r, 1, COMMIT("a", 2, second), "x");
    vow_hold hold = hold_of("a", 1, epoch);
    CHECK_UINT_EQ(rig_pulse(r, 0, &hold, LONG_MS).status, VOW_STATUS_SETTLED);
}

/* The command of its owner was told that epoch, and nobody can tell it of
 * another. */
CONTRACT(pulse, a_record_that_vanished_is_made_again_with_its_epoch)
{
    vow_hold hold = hold_of("a", 1, 500);
    struct rig_answer a = rig_pulse(r, 0, &hold, LONG_MS);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(a.epoch, 500);
    CHECK_UINT_EQ(rig_pulse(r, 0, &hold, LONG_MS).epoch, 500);
    a = rig_claim(r, 1, ASK("a", 2));
    CHECK_UINT_EQ(a.status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(a.epoch, 500);
    CHECK_UINT_EQ(rig_commit(r, 0, COMMIT("a", 1, 499), "x").status,
                  VOW_STATUS_LOST);
    CHECK_UINT_EQ(rig_commit(r, 0, COMMIT("a", 1, 500), "x").status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_forget(r, 0, "a", 500).status, VOW_STATUS_NONE);
    CHECK(rig_claim(r, 1, ASK("a", 3)).epoch > 500);
}

CONTRACT(pulse, a_vanished_record_is_lost_unless_shared)
{
    vow_hold hold = hold_of("a", 1, 500);
    for (hold.mode = VOW_FENCED; hold.mode <= VOW_ONCE; hold.mode++)
        CHECK_UINT_EQ(rig_pulse(r, 0, &hold, LONG_MS).status, VOW_STATUS_LOST);
    CHECK_UINT_EQ(rig_claim(r, 1, ASK("a", 2)).status, VOW_STATUS_OWNED);
}

/* The first chunks are gone, so a later chunk is not stored. */
CONTRACT(pulse, a_record_that_was_made_again_takes_no_later_chunks)
{
    vow_hold hold = hold_of("a", 1, 500);
    CHECK_UINT_EQ(rig_pulse(r, 0, &hold, LONG_MS).status, VOW_STATUS_OWNED);
    struct rig_answer a = rig_write(r, 0, &hold, 1, "the second");
    CHECK(a.code == VOW_E2BIG || a.status == VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_read(r, 1, "a", hold.epoch, 0).n, 0);
    CHECK_UINT_EQ(rig_pulse(r, 0, &hold, LONG_MS).status, VOW_STATUS_OWNED);
}

CONTRACT(pulse, many_at_once_are_answered_in_their_order)
{
    vow_hold holds[20];
    struct rig_answer out[20];
    char name[] = "name ?";
    for (uint64_t i = 0; i < 20; i++) {
        name[5] = (char)('a' + i);
        holds[i] = hold_of(name, i, 0);
        uint64_t lease = i % 3 == 1 ? 0 : LONG_MS;
        holds[i].epoch = rig_claim(r, 0, ASK(name, i, .lease_ms = lease)).epoch;
        if (i % 3 == 1)
            (void)rig_claim(r, 1, ASK(name, 100 + i));
        if (i % 3 == 2)
            (void)rig_commit(r, 0, COMMIT(name, i, holds[i].epoch), "x");
    }
    CHECK_INT_EQ(rig_pulse_all(r, 0, holds, 20, out), 0);
    static const uint32_t want[] = {VOW_STATUS_OWNED, VOW_STATUS_LOST,
                                    VOW_STATUS_SETTLED};
    for (size_t i = 0; i < 20; i++)
        CHECK_UINT_EQ(out[i].status, want[i % 3]);
}

/* ---- commit -------------------------------------------------------------- */

CONTRACT(commit, a_result_is_there_for_all_who_ask)
{
    uint64_t epoch =
        rig_claim(r, 0, ASK("a", 1, .label = "old", .runner = "host:1")).epoch;
    struct rig_answer a = rig_commit(
        r, 0, COMMIT("a", 1, epoch, .cost_ms = 77, .label = "new"), "result");
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(a.epoch, epoch);
    for (size_t i = 0; i < RIG_INSTANCES; i++) {
        a = rig_claim(r, i, ASK("a", 10 + i));
        CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
        CHECK_UINT_EQ(a.epoch, epoch);
        CHECK(!a.failed);
        CHECK_UINT_EQ(a.value_size, 6);
        CHECK_MEM_EQ(a.value, "result", 6);
        CHECK_UINT_EQ(a.cost_ms, 77);
        CHECK_STR_EQ(a.label, "new");
        CHECK_STR_EQ(a.runner, "host:1");
        CHECK(a.left_ms > 0 && a.left_ms <= LONG_MS);
    }
}

CONTRACT(commit, an_empty_result_and_a_failure)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    (void)rig_commit(r, 0, COMMIT("a", 1, epoch), NULL);
    struct rig_answer a = rig_claim(r, 1, ASK("a", 2));
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(a.value_size, 0);
    CHECK(!a.failed);

    epoch = rig_claim(r, 0, ASK("b", 3)).epoch;
    (void)rig_commit(r, 0, COMMIT("b", 3, epoch, .outcome = VOW_OUTCOME_FAILED),
                     "why");
    a = rig_claim(r, 1, ASK("b", 4));
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK(a.failed);
    CHECK_MEM_EQ(a.value, "why", 3);
}

CONTRACT(commit, a_result_without_an_end_says_so)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    (void)rig_commit(r, 0, COMMIT("a", 1, epoch, .ttl_ms = UINT64_MAX), "x");
    struct rig_answer a = rig_claim(r, 1, ASK("a", 2));
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(a.left_ms, UINT64_MAX);
}

CONTRACT(commit, a_result_expires)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    (void)rig_commit(r, 0, COMMIT("a", 1, epoch, .ttl_ms = rig_short_ms(r)),
                     "x");
    rig_lapse(r);
    CHECK_UINT_EQ(rig_peek(r, 1, "a").status, VOW_STATUS_NONE);
    struct rig_answer a = rig_claim(r, 1, ASK("a", 2));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK(a.epoch > epoch);
    CHECK_UINT_EQ(a.takeovers, 0);
}

CONTRACT(commit, a_vanished_record_takes_the_result_unless_strict)
{
    struct rig_answer a =
        rig_commit(r, 0, COMMIT("a", 1, 5, .flags = VOW_COMMIT_STRICT), "x");
    CHECK_UINT_EQ(a.status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(rig_peek(r, 1, "a").status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(rig_commit(r, 0, COMMIT("a", 1, 5), "x").status,
                  VOW_STATUS_OWNED);
    a = rig_claim(r, 1, ASK("a", 2));
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(a.epoch, 5);
    CHECK(rig_claim(r, 1, ASK("b", 2)).epoch > 5);
}

CONTRACT(commit, strict_is_no_matter_while_the_record_is_there)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1, .lease_ms = 0)).epoch;
    CHECK_UINT_EQ(
        rig_commit(r, 0, COMMIT("a", 1, epoch, .flags = VOW_COMMIT_STRICT), "x")
            .status,
        VOW_STATUS_OWNED);
}

/* ---- fence --------------------------------------------------------------- */

CONTRACT(fence, who_was_replaced_commits_nothing)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1, .lease_ms = 0)).epoch;
    uint64_t second = rig_claim(r, 1, ASK("a", 2)).epoch;
    struct rig_answer a = rig_commit(r, 0, COMMIT("a", 1, epoch), "late");
    CHECK_UINT_EQ(a.status, VOW_STATUS_LOST);
    CHECK_UINT_EQ(a.epoch, second);
    CHECK_UINT_EQ(rig_claim(r, 2, ASK("a", 3)).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(rig_commit(r, 1, COMMIT("a", 2, second), "good").status,
                  VOW_STATUS_OWNED);
    a = rig_commit(r, 0, COMMIT("a", 1, epoch), "late");
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(a.epoch, second);
    CHECK_MEM_EQ(a.value, "good", 4);
    CHECK_MEM_EQ(rig_claim(r, 2, ASK("a", 3)).value, "good", 4);
}

CONTRACT(fence, the_token_alone_is_not_enough_nor_is_the_epoch)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    CHECK_UINT_EQ(rig_commit(r, 0, COMMIT("a", 1, epoch + 1), "x").status,
                  VOW_STATUS_LOST);
    CHECK_UINT_EQ(rig_commit(r, 0, COMMIT("a", 2, epoch), "x").status,
                  VOW_STATUS_LOST);
    CHECK_UINT_EQ(rig_commit(r, 0, COMMIT("a", 1, epoch), "x").status,
                  VOW_STATUS_OWNED);
}

CONTRACT(fence, who_was_replaced_abandons_nothing)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1, .lease_ms = 0)).epoch;
    (void)rig_claim(r, 1, ASK("a", 2));
    CHECK_UINT_EQ(
        rig_commit(
            r, 0, COMMIT("a", 1, epoch, .outcome = VOW_OUTCOME_ABANDONED), NULL)
            .status,
        VOW_STATUS_LOST);
    CHECK_UINT_EQ(rig_claim(r, 2, ASK("a", 3)).status, VOW_STATUS_WAITING);
}

CONTRACT(fence, a_late_result_is_refused_also_when_the_good_one_was_for_waiters)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1, .lease_ms = 0)).epoch;
    uint64_t second = rig_claim(r, 1, ASK("a", 2)).epoch;
    CHECK_UINT_EQ(
        rig_commit(r, 1, COMMIT("a", 2, second, .ttl_ms = 0), "good").status,
        VOW_STATUS_OWNED);
    struct rig_answer a = rig_commit(r, 0, COMMIT("a", 1, epoch), "late");
    CHECK(a.status == VOW_STATUS_LOST || a.status == VOW_STATUS_SETTLED);
    if (a.status == VOW_STATUS_SETTLED)
        CHECK_MEM_EQ(a.value, "good", 4);
    vow_hold hold = hold_of("a", 1, epoch);
    CHECK_UINT_EQ(rig_pulse(r, 0, &hold, LONG_MS).status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(rig_claim(r, 2, ASK("a", 3)).status, VOW_STATUS_OWNED);
}

/* What an authority asks when its lease was lost. */
CONTRACT(fence, who_was_lost_may_ask_what_became_of_it_and_changes_nothing)
{
    struct rig_answer own = rig_claim(r, 0, ASK("a", 1, .lease_ms = 0));
    uint64_t epoch = own.epoch;
    const vow_commit_request *ask =
        COMMIT("a", 1, epoch, .outcome = VOW_OUTCOME_ABANDONED,
               .flags = VOW_COMMIT_RESOLVE);
    struct rig_answer a = rig_commit(r, 0, ask, NULL);
    CHECK_UINT_EQ(a.status, VOW_STATUS_LOST);
    CHECK_UINT_EQ(a.epoch, epoch); /* nobody has taken over */
    uint64_t second = rig_claim(r, 1, ASK("a", 2)).epoch;
    a = rig_commit(r, 0, ask, NULL);
    CHECK_UINT_EQ(a.status, VOW_STATUS_LOST);
    CHECK_UINT_EQ(a.epoch, second);
    CHECK_UINT_EQ(
        rig_commit(r, 1, COMMIT("a", 2, second, .ttl_ms = 0), "good").status,
        VOW_STATUS_OWNED);
    for (int i = 0; i < 2; i++) {
        a = rig_commit(r, 0, ask, NULL);
        if (a.status == VOW_STATUS_LOST) /* the result is left for waiters */
            a = rig_claim(r, 0, ASK("a", 5, .waited = own.first));
        CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
        CHECK_MEM_EQ(a.value, "good", 4);
    }
    CHECK_UINT_EQ(rig_claim(r, 2, ASK("a", 3)).status, VOW_STATUS_OWNED);
    ask = COMMIT("b", 1, epoch, .outcome = VOW_OUTCOME_ABANDONED,
                 .flags = VOW_COMMIT_RESOLVE);
    CHECK_UINT_EQ(rig_commit(r, 0, ask, NULL).status, VOW_STATUS_NONE);
}

CONTRACT(fence, epochs_of_a_name_rise_whatever_happens)
{
    uint64_t last = 0;
    uint64_t seed = test_seed();
    for (uint64_t i = 0; i < 60; i++) {
        struct rig_answer a =
            rig_claim(r, i % RIG_INSTANCES,
                      ASK("a", i, .lease_ms = 0, .takeovers = 1000,
                          .flags = VOW_CLAIM_FORCE));
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        CHECK(a.epoch > last);
        last = a.epoch;
        uint64_t how = test_random(&seed) % 5;
        if (how == 0)
            (void)rig_commit(r, 0, COMMIT("a", i, last), "x");
        if (how == 1)
            (void)rig_commit(r, 0, COMMIT("a", i, last, .ttl_ms = 0), "x");
        if (how == 2)
            (void)rig_commit(
                r, 0, COMMIT("a", i, last, .outcome = VOW_OUTCOME_ABANDONED),
                NULL);
        if (how == 3)
            (void)rig_forget(r, 0, "a", 0);
    }
}

/* ---- abandon ------------------------------------------------------------- */

CONTRACT(abandon, the_next_who_asks_owns_it)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    CHECK_UINT_EQ(rig_claim(r, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(rig_claim(r, 2, ASK("a", 3)).status, VOW_STATUS_WAITING);
    vow_commit_request ask =
        *COMMIT("a", 1, epoch, .outcome = VOW_OUTCOME_ABANDONED);
    CHECK_UINT_EQ(rig_commit(r, 0, &ask, NULL).status, VOW_STATUS_OWNED);
    rig_expect(r, &r->news[1].records, 1);
    rig_expect(r, &r->news[2].records, 1);
    CHECK_UINT_EQ(r->news[1].status, 0);
    CHECK(vow_name_equal(&r->news[1].name, &ask.hold.name));
    struct rig_answer a = rig_claim(r, 1, ASK("a", 2));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK(a.epoch > epoch);
    CHECK_UINT_EQ(rig_claim(r, 2, ASK("a", 3)).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(rig_commit(r, 0, &ask, NULL).status, VOW_STATUS_LOST);
}

/* ---- put ----------------------------------------------------------------- */

CONTRACT(put, it_replaces_an_older_result_of_another_name)
{
    uint64_t old = rig_claim(r, 0, ASK("a", 1)).epoch;
    (void)rig_commit(r, 0, COMMIT("a", 1, old), "old");
    uint64_t epoch = rig_claim(r, 1, ASK("refresh a", 2)).epoch;
    vow_commit_request ask = *COMMIT("a", 2, epoch, .flags = VOW_COMMIT_PUT);
    CHECK_UINT_EQ(rig_commit(r, 1, &ask, "new").status, VOW_STATUS_OWNED);
    struct rig_answer a = rig_claim(r, 2, ASK("a", 3));
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(a.epoch, epoch);
    CHECK_MEM_EQ(a.value, "new", 3);
    CHECK_UINT_EQ(rig_commit(r, 1, &ask, "new").status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_claim(r, 2, ASK("refresh a", 4)).status,
                  VOW_STATUS_WAITING);
}

CONTRACT(put, it_does_not_replace_a_newer_one_or_one_that_runs)
{
    uint64_t epoch = rig_claim(r, 0, ASK("refresh a", 1)).epoch;
    uint64_t newer = rig_claim(r, 1, ASK("a", 2)).epoch;
    vow_commit_request ask = *COMMIT("a", 1, epoch, .flags = VOW_COMMIT_PUT);
    CHECK_UINT_EQ(rig_commit(r, 0, &ask, "old").status, VOW_STATUS_LOST);
    (void)rig_commit(r, 1, COMMIT("a", 2, newer), "newer");
    struct rig_answer a = rig_commit(r, 0, &ask, "old");
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_MEM_EQ(a.value, "newer", 5);
    CHECK_MEM_EQ(rig_claim(r, 2, ASK("a", 3)).value, "newer", 5);
}

CONTRACT(put, it_makes_a_result_where_nothing_is)
{
    uint64_t epoch = rig_claim(r, 0, ASK("refresh a", 1)).epoch;
    CHECK_UINT_EQ(
        rig_commit(r, 0, COMMIT("a", 1, epoch, .flags = VOW_COMMIT_PUT), "x")
            .status,
        VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_claim(r, 1, ASK("a", 2)).status, VOW_STATUS_SETTLED);
}
