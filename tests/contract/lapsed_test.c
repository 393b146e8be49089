/* SPDX-License-Identifier: MIT */
/* lapsed_test.c - what a store remembers of a lost owner, minutes and days later:
 * on the store in memory, where such times pass at once. The other stores are
 * held to the same rules by their own tests. */
#include "contract.h"

enum { LEASE = 1000, MINUTE = 60 * 1000, HOUR = 60 * MINUTE, DAY = 24 * HOUR };

#define LAPSED(n)                                                              \
    static void lapsed_##n(struct rig *r);                                     \
    TEST(lapsed, n)                                                            \
    {                                                                          \
        contract_run(&rig_memory, lapsed_##n);                                 \
    }                                                                          \
    static void lapsed_##n(struct rig *r)

/* Claims with a lease of a second, which has expired on return. */
static uint64_t own_and_lapse(struct rig *r, const char *name, uint64_t token,
                              uint32_t mode)
{
    struct rig_answer a =
        rig_claim(r, 0, ASK(name, token, .lease_ms = LEASE, .mode = mode));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    rig_advance_ms(r, LEASE + 1);
    return a.epoch;
}

/* A job that is killed every night does not use up its takeovers. */
LAPSED(a_loss_counts_as_a_takeover_for_a_minute)
{
    for (uint64_t night = 0; night < 5; night++) {
        struct rig_answer a = rig_claim(
            r, 1, ASK("nightly", night, .lease_ms = LEASE, .takeovers = 1));
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(a.takeovers, 0);
        rig_advance_ms(r, LEASE + MINUTE + 1);
    }
    (void)own_and_lapse(r, "often", 1, VOW_SHARED);
    rig_advance_ms(r, MINUTE - 2);
    struct rig_answer a = rig_claim(r, 1, ASK("often", 2, .takeovers = 1));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(a.takeovers, 1);
}

LAPSED(giving_up_is_remembered_for_a_minute)
{
    (void)own_and_lapse(r, "a", 1, VOW_SHARED);
    struct rig_answer a = rig_claim(r, 1, ASK("a", 2, .takeovers = 0));
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK(a.failed);
    rig_advance_ms(r, MINUTE - 1);
    CHECK(rig_claim(r, 2, ASK("a", 3)).failed);
    rig_advance_ms(r, 2);
    a = rig_claim(r, 2, ASK("a", 4));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(a.takeovers, 0);
}

/* A laptop that was closed for hours keeps what it has worked for. */
LAPSED(an_owner_that_was_silent_for_hours_may_pulse_and_commit)
{
    const uint32_t modes[] = {VOW_SHARED, VOW_FENCED, VOW_ONCE};
    const char *const names[] = {"shared", "fenced", "once"};
    for (uint64_t i = 0; i < 3; i++) {
        vow_hold hold = {.name = rig_name(names[i]),
                         .token = rig_token(1),
                         .mode = modes[i]};
        hold.epoch = own_and_lapse(r, names[i], 1, modes[i]);
        rig_advance_ms(r, 5 * (uint64_t)HOUR);
        CHECK_UINT_EQ(rig_pulse(r, 0, &hold, LEASE).status, VOW_STATUS_OWNED);
        rig_advance_ms(r, 5 * (uint64_t)HOUR);
        vow_commit_request commit =
            *COMMIT(names[i], 1, hold.epoch, .flags = VOW_COMMIT_STRICT);
        commit.hold.mode = modes[i];
        CHECK_UINT_EQ(rig_commit(r, 0, &commit, "late").status,
                      VOW_STATUS_OWNED);
        struct rig_answer a = rig_claim(r, 1, ASK(names[i], 2));
        CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
        CHECK_MEM_EQ(a.value, "late", 4);
    }
}

LAPSED(an_owner_that_was_replaced_after_hours_has_lost)
{
    vow_hold hold = {.name = rig_name("a"), .token = rig_token(1)};
    hold.epoch = own_and_lapse(r, "a", 1, VOW_SHARED);
    rig_advance_ms(r, 5 * (uint64_t)HOUR);
    struct rig_answer a = rig_claim(r, 1, ASK("a", 2));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(a.takeovers, 0);
    CHECK(a.epoch > hold.epoch);
    CHECK_UINT_EQ(rig_pulse(r, 0, &hold, LEASE).status, VOW_STATUS_LOST);
    CHECK_UINT_EQ(rig_commit(r, 0, COMMIT("a", 1, hold.epoch), "x").status,
                  VOW_STATUS_LOST);
}

/* After a day the record of the lost owner is gone: shared work goes on as after
 * any loss of a record, other work is lost. */
LAPSED(after_a_day_the_record_is_gone)
{
    vow_hold shared = {.name = rig_name("shared"), .token = rig_token(1)};
    vow_hold fenced = {
        .name = rig_name("fenced"), .token = rig_token(2), .mode = VOW_FENCED};
    shared.epoch = own_and_lapse(r, "shared", 1, VOW_SHARED);
    fenced.epoch = own_and_lapse(r, "fenced", 2, VOW_FENCED);
    rig_advance_ms(r, DAY + 1);
    vow_commit_request commit =
        *COMMIT("fenced", 2, fenced.epoch, .flags = VOW_COMMIT_STRICT);
    commit.hold.mode = VOW_FENCED;
    CHECK_UINT_EQ(rig_commit(r, 0, &commit, "x").status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(rig_pulse(r, 0, &fenced, LEASE).status, VOW_STATUS_LOST);
    struct rig_answer a = rig_pulse(r, 0, &shared, LEASE);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(a.epoch, shared.epoch);
}

LAPSED(a_doubt_has_no_end)
{
    uint64_t epoch = own_and_lapse(r, "pay", 1, VOW_ONCE);
    for (int week = 0; week < 3; week++) {
        rig_advance_ms(r, 7 * (uint64_t)DAY);
        struct rig_answer a = rig_claim(
            r, 1, ASK("pay", 2, .mode = VOW_ONCE, .flags = VOW_CLAIM_FORCE));
        CHECK_UINT_EQ(a.status, VOW_STATUS_DOUBT);
        CHECK_UINT_EQ(a.epoch, epoch);
    }
}
