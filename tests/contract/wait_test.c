/* SPDX-License-Identifier: MIT */
/* wait_test.c - no wake-up is lost; results that are only for who waits. */
#include "contract.h"

/* The instance was registered and gets the result: by a wake-up, or by a claim
 * with the run the instance waited for. */
static void check_gets(struct rig *r, size_t i, const vow_claim_request *ask,
                       const char *value, size_t size)
{
    rig_expect(r, &r->news[i].records, 1);
    CHECK(vow_name_equal(&r->news[i].name, &ask->name));
    if (r->news[i].status == VOW_STATUS_SETTLED) {
        CHECK_UINT_EQ(r->news[i].value_size, size);
        CHECK_MEM_EQ(r->news[i].value, value, size);
        return;
    }
    struct rig_answer a = rig_claim(r, i, ask);
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(a.value_size, size);
    CHECK_MEM_EQ(a.value, value, size);
}

CONTRACT(wake, all_who_wait_are_told_and_nobody_else)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    (void)rig_claim(r, 1, ASK("a", 2));
    (void)rig_claim(r, 2, ASK("a", 3));
    (void)rig_claim(r, 3, ASK("b", 4));
    (void)rig_commit(r, 0, COMMIT("a", 1, epoch), "result");
    check_gets(r, 1, ASK("a", 2), "result", 6);
    check_gets(r, 2, ASK("a", 3), "result", 6);
    rig_advance_ms(r, 20);
    CHECK_UINT_EQ(r->news[0].records, 0);
    CHECK_UINT_EQ(r->news[3].records, 0);
    CHECK_UINT_EQ(r->news[4].records, 0);
}

CONTRACT(wake, never_inside_the_step_that_causes_it)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    (void)rig_claim(r, 1, ASK("a", 2));
    (void)rig_claim(r, 0, ASK("a", 3)); /* the owner's instance waits, too */
    (void)rig_commit(r, 0, COMMIT("a", 1, epoch), "x");
    /* Else the loop ran to get the answer. */
    if (!r->store->real_time && !r->store->asynchronous)
        CHECK_UINT_EQ(r->news[0].records + r->news[1].records, 0);
    check_gets(r, 0, ASK("a", 3), "x", 1);
    check_gets(r, 1, ASK("a", 2), "x", 1);
}

CONTRACT(wake, a_wait_for_each_of_many_names)
{
    char name[] = "name ?";
    uint64_t epochs[20];
    for (uint64_t i = 0; i < 20; i++) {
        name[5] = (char)('a' + i);
        epochs[i] = rig_claim(r, 0, ASK(name, i)).epoch;
        CHECK_UINT_EQ(rig_claim(r, 1, ASK(name, 100 + i)).status,
                      VOW_STATUS_WAITING);
    }
    for (uint64_t i = 0; i < 20; i++) {
        name[5] = (char)('a' + i);
        (void)rig_commit(r, 0, COMMIT(name, i, epochs[i]), name);
    }
    rig_expect(r, &r->news[1].records, 20);
}

CONTRACT(wake, a_name_that_is_claimed_anew_is_waited_for_anew)
{
    for (uint64_t i = 0; i < 5; i++) {
        struct rig_answer a =
            rig_claim(r, 0, ASK("a", 2 * i, .flags = VOW_CLAIM_FORCE));
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(rig_claim(r, 1, ASK("a", 2 * i + 1)).status,
                      VOW_STATUS_WAITING);
        r->news[1].records = 0;
        (void)rig_commit(r, 0, COMMIT("a", 2 * i, a.epoch), "x");
        check_gets(r, 1, ASK("a", 2 * i + 1), "x", 1);
    }
}

CONTRACT(wake, an_instance_that_closed_does_not_harm)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    (void)rig_claim(r, 1, ASK("a", 2));
    (void)rig_claim(r, 2, ASK("a", 3));
    rig_close(r, 1);
    (void)rig_commit(r, 0, COMMIT("a", 1, epoch), "x");
    check_gets(r, 2, ASK("a", 3), "x", 1);
}

CONTRACT(wake, an_instance_that_closes_before_it_is_told_does_not_harm)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    (void)rig_claim(r, 1, ASK("a", 2));
    (void)rig_commit(r, 0, COMMIT("a", 1, epoch), "x");
    rig_close(r, 1);
    rig_advance_ms(r, 20);
    CHECK_UINT_EQ(rig_claim(r, 2, ASK("a", 3)).status, VOW_STATUS_SETTLED);
}

CONTRACT(wake, what_a_closed_instance_owned_stays_until_its_lease_ends)
{
    (void)rig_claim(r, 0, ASK("a", 1));
    (void)rig_claim(r, 0, ASK("b", 2, .lease_ms = rig_short_ms(r)));
    rig_close(r, 0);
    CHECK_UINT_EQ(rig_claim(r, 1, ASK("a", 3)).status, VOW_STATUS_WAITING);
    rig_lapse(r);
    CHECK_UINT_EQ(rig_claim(r, 1, ASK("b", 4)).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_claim(r, 1, ASK("a", 3)).status, VOW_STATUS_WAITING);
}

/* ---- ttl 0 --------------------------------------------------------------- */

/* Waits for the name, and returns the claim that reads what is left. */
static vow_claim_request wait_for(struct rig *r, size_t i, const char *name,
                                  uint64_t token)
{
    struct rig_answer a = rig_claim(r, i, ASK(name, token));
    CHECK_UINT_EQ(a.status, VOW_STATUS_WAITING);
    return *ASK(name, token, .waited = a.first);
}

CONTRACT(for_waiters, who_waited_reads_the_result_and_nobody_else)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    vow_claim_request first = wait_for(r, 1, "a", 2);
    vow_claim_request second = wait_for(r, 2, "a", 3);
    CHECK_UINT_EQ(
        rig_commit(r, 0, COMMIT("a", 1, epoch, .ttl_ms = 0), "for you").status,
        VOW_STATUS_OWNED);
    check_gets(r, 1, &first, "for you", 7);
    check_gets(r, 2, &second, "for you", 7);
    struct rig_answer a = rig_claim(r, 3, ASK("a", 4));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK(a.epoch > epoch);
    CHECK_UINT_EQ(a.takeovers, 0);
}

CONTRACT(for_waiters, the_token_that_waited_reads_it_at_once_and_again)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    vow_claim_request ask = wait_for(r, 1, "a", 2);
    (void)rig_commit(r, 0, COMMIT("a", 1, epoch, .ttl_ms = 0), "x");
    for (int i = 0; i < 3 && r->news[1].status != VOW_STATUS_SETTLED; i++) {
        struct rig_answer a = rig_claim(r, 1, &ask);
        CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
        CHECK_UINT_EQ(a.epoch, epoch);
        CHECK_MEM_EQ(a.value, "x", 1);
    }
}

CONTRACT(for_waiters, a_new_token_of_who_waited_reads_it_too_and_again)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    vow_claim_request ask = wait_for(r, 1, "a", 2);
    (void)rig_commit(r, 0, COMMIT("a", 1, epoch, .ttl_ms = 0), "x");
    ask.token = rig_token(7);
    for (int i = 0; i < 2 && r->news[1].status != VOW_STATUS_SETTLED; i++)
        CHECK_UINT_EQ(rig_claim(r, 1, &ask).status, VOW_STATUS_SETTLED);
}

CONTRACT(for_waiters, a_claim_that_comes_first_does_not_take_it_from_them)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    vow_claim_request first = wait_for(r, 1, "a", 2);
    (void)rig_commit(r, 0, COMMIT("a", 1, epoch, .ttl_ms = 0), "first");
    struct rig_answer a = rig_claim(r, 2, ASK("a", 3));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    vow_claim_request second = wait_for(r, 3, "a", 4);
    (void)rig_commit(r, 2, COMMIT("a", 3, a.epoch, .ttl_ms = 0), "second");
    check_gets(r, 1, &first, "first", 5);
    check_gets(r, 3, &second, "second", 6);
}

/* The run has one result, also if the first owner was lost. */
CONTRACT(for_waiters, a_takeover_leaves_it_for_those_who_waited_before)
{
    vow_hold hold = {.name = rig_name("a"), .token = rig_token(1)};
    hold.epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    vow_claim_request ask = wait_for(r, 1, "a", 2);
    (void)rig_pulse(r, 0, &hold, 0);
    struct rig_answer a = rig_claim(r, 2, ASK("a", 3));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(a.takeovers, 1);
    (void)rig_commit(r, 2, COMMIT("a", 3, a.epoch, .ttl_ms = 0), "x");
    check_gets(r, 1, &ask, "x", 1);
}

CONTRACT(for_waiters, who_has_read_it_and_asks_anew_owns_it)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    vow_claim_request ask = wait_for(r, 1, "a", 2);
    (void)rig_commit(r, 0, COMMIT("a", 1, epoch, .ttl_ms = 0), "x");
    check_gets(r, 1, &ask, "x", 1);
    CHECK_UINT_EQ(rig_claim(r, 1, ASK("a", 5)).status, VOW_STATUS_OWNED);
}

CONTRACT(for_waiters, it_is_gone_for_all_who_look)
{
    struct rig_answer list[4];
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    vow_claim_request ask = wait_for(r, 1, "a", 2);
    (void)rig_commit(r, 0, COMMIT("a", 1, epoch, .ttl_ms = 0), "x");
    CHECK_UINT_EQ(rig_peek(r, 2, "a").status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(rig_cancel(r, 2, "a").status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(rig_forget(r, 2, "a", 0).status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(rig_list(r, 2, list, 4), 0);
    check_gets(r, 1, &ask, "x", 1);
}

CONTRACT(for_waiters, a_failure_reaches_them_too)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    vow_claim_request ask = wait_for(r, 1, "a", 2);
    (void)rig_commit(
        r, 0, COMMIT("a", 1, epoch, .ttl_ms = 0, .outcome = VOW_OUTCOME_FAILED),
        "why");
    check_gets(r, 1, &ask, "why", 3);
}

CONTRACT(for_waiters, without_any_it_is_gone_at_once)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    vow_commit_request ask = *COMMIT("a", 1, epoch, .ttl_ms = 0);
    CHECK_UINT_EQ(rig_commit(r, 0, &ask, "x").status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_commit(r, 0, &ask, "x").status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_peek(r, 0, "a").status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(rig_claim(r, 0, ASK("a", 2)).status, VOW_STATUS_OWNED);
}
