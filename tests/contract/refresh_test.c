/* SPDX-License-Identifier: MIT */
/* refresh_test.c - a result that is replaced while it is read. */
#include "contract.h"

#include <string.h>

/* A test of refreshes: skipped for a store that has none. */
#define CONTRACT_REFRESH(n)                                                    \
    static void contract_of_refresh_##n(struct rig *r);                        \
    CONTRACT(refresh, n)                                                       \
    {                                                                          \
        if ((r->at[0]->ops->flags & VOW_STORE_REFRESHES) != 0)                 \
            contract_of_refresh_##n(r);                                        \
    }                                                                          \
    static void contract_of_refresh_##n(struct rig *r)

/* Makes the result "old"; returns the epoch. */
static uint64_t old_result(struct rig *r, uint64_t ttl_ms)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    CHECK_UINT_EQ(
        rig_commit(r, 0, COMMIT("a", 1, epoch, .ttl_ms = ttl_ms), "old").status,
        VOW_STATUS_OWNED);
    return epoch;
}

/* Instance 1 refreshes with token 2; returns the epoch of the refresher. */
static uint64_t refresher_of(struct rig *r, uint64_t old)
{
    struct rig_answer a = rig_claim(r, 1, ASK("a", 2, .refresh = old));
    CHECK_INT_EQ(a.code, 0);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK(a.epoch > old);
    return a.epoch;
}

static void refreshed_is(struct rig *r, const char *want)
{
    struct rig_answer a = rig_claim(r, 2, ASK("a", 9));
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(a.value_size, strlen(want));
    CHECK(memcmp(a.value, want, a.value_size) == 0);
}

static vow_hold refresher_hold(uint64_t epoch)
{
    return (vow_hold){
        .name = rig_name("a"), .token = rig_token(2), .epoch = epoch};
}

CONTRACT_REFRESH(one_refresher_replaces_the_result)
{
    uint64_t old = old_result(r, LONG_MS);
    uint64_t epoch = refresher_of(r, old);
    CHECK_UINT_EQ(rig_claim(r, 2, ASK("a", 3, .refresh = old)).status,
                  VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(rig_claim(r, 1, ASK("a", 2, .refresh = old)).epoch, epoch);
    vow_hold hold = refresher_hold(epoch);
    CHECK_UINT_EQ(rig_pulse(r, 1, &hold, LONG_MS).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_write(r, 1, &hold, 0, "x").status, VOW_STATUS_OWNED);
    refreshed_is(r, "old");
    CHECK_UINT_EQ(rig_commit(r, 1, COMMIT("a", 2, epoch), "new").status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_commit(r, 1, COMMIT("a", 2, epoch), "new").status,
                  VOW_STATUS_OWNED);
    refreshed_is(r, "new");
    CHECK_UINT_EQ(rig_claim(r, 2, ASK("a", 9)).epoch, epoch);
}

CONTRACT_REFRESH(a_result_of_another_epoch_is_not_refreshed)
{
    uint64_t old = old_result(r, LONG_MS);
    CHECK_UINT_EQ(rig_claim(r, 1, ASK("a", 2, .refresh = old + 1)).status,
                  VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(
        rig_claim(r, 1, ASK("a", 2, .refresh = old, .mode = VOW_ONCE)).status,
        VOW_STATUS_SETTLED);
    (void)refresher_of(r, old);
}

CONTRACT_REFRESH(a_name_without_a_result_is_claimed)
{
    CHECK_UINT_EQ(rig_claim(r, 0, ASK("a", 1, .refresh = 7)).status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_claim(r, 1, ASK("a", 2, .refresh = 7)).status,
                  VOW_STATUS_WAITING);
}

CONTRACT_REFRESH(a_failure_keeps_the_result_and_is_not_followed_at_once)
{
    uint64_t old = old_result(r, LONG_MS);
    uint64_t epoch = refresher_of(r, old);
    const vow_commit_request *fails =
        COMMIT("a", 2, epoch, .outcome = VOW_OUTCOME_FAILED);
    CHECK_UINT_EQ(rig_commit(r, 1, fails, "bad").status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_commit(r, 1, fails, "bad").status, VOW_STATUS_OWNED);
    refreshed_is(r, "old");
    if (!r->store->real_time) /* the pause may be over */
        CHECK_UINT_EQ(rig_claim(r, 2, ASK("a", 3, .refresh = old)).status,
                      VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(rig_commit(r, 1, COMMIT("a", 2, epoch), "new").status,
                  VOW_STATUS_SETTLED);
}

CONTRACT_REFRESH(an_abandoned_refresh_can_be_followed_at_once)
{
    uint64_t old = old_result(r, LONG_MS);
    uint64_t epoch = refresher_of(r, old);
    CHECK_UINT_EQ(
        rig_commit(
            r, 1, COMMIT("a", 2, epoch, .outcome = VOW_OUTCOME_ABANDONED), NULL)
            .status,
        VOW_STATUS_OWNED);
    refreshed_is(r, "old");
    struct rig_answer a = rig_claim(r, 2, ASK("a", 3, .refresh = old));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK(a.epoch > epoch);
    vow_hold hold = refresher_hold(epoch);
    CHECK_UINT_EQ(rig_pulse(r, 1, &hold, LONG_MS).status, VOW_STATUS_SETTLED);
}

CONTRACT_REFRESH(a_silent_refresher_is_replaced)
{
    uint64_t old = old_result(r, LONG_MS);
    (void)rig_claim(r, 1,
                    ASK("a", 2, .refresh = old, .lease_ms = rig_short_ms(r)));
    rig_lapse(r);
    refreshed_is(r, "old");
    CHECK_UINT_EQ(rig_claim(r, 2, ASK("a", 3, .refresh = old)).status,
                  VOW_STATUS_OWNED);
}

CONTRACT_REFRESH(the_refresher_of_an_expired_result_is_the_owner)
{
    uint64_t old = old_result(r, rig_short_ms(r));
    uint64_t epoch = refresher_of(r, old);
    rig_lapse(r);
    struct rig_answer a = rig_peek(r, 2, "a");
    CHECK_UINT_EQ(a.status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(a.epoch, epoch);
    a = rig_claim(r, 2, ASK("a", 3));
    CHECK_UINT_EQ(a.status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(a.epoch, epoch);
    CHECK_UINT_EQ(a.first, epoch);
    rig_check_waiters(r, a.waiters, 1);
    vow_hold hold = refresher_hold(epoch);
    CHECK_UINT_EQ(rig_pulse(r, 1, &hold, LONG_MS).status, VOW_STATUS_OWNED);
    r->news[2].records = 0;
    CHECK_UINT_EQ(rig_commit(r, 1, COMMIT("a", 2, epoch), "new").status,
                  VOW_STATUS_OWNED);
    rig_expect(r, &r->news[2].records, 1);
    a = rig_claim(r, 2, ASK("a", 3, .waited = epoch));
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(a.epoch, epoch);
    refreshed_is(r, "new");
}

CONTRACT_REFRESH(who_ignores_the_result_waits_for_the_refresher)
{
    uint64_t old = old_result(r, LONG_MS);
    uint64_t epoch = refresher_of(r, old);
    struct rig_answer a =
        rig_claim(r, 2, ASK("a", 3, .flags = VOW_CLAIM_FORCE));
    CHECK_UINT_EQ(a.status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(a.epoch, epoch);
    r->news[2].records = 0;
    (void)rig_commit(r, 1, COMMIT("a", 2, epoch), "new");
    rig_expect(r, &r->news[2].records, 1);
    refreshed_is(r, "new");
}

CONTRACT_REFRESH(the_refresher_is_asked_to_stop)
{
    uint64_t old = old_result(r, LONG_MS);
    uint64_t epoch = refresher_of(r, old);
    vow_hold hold = refresher_hold(epoch);
    CHECK_UINT_EQ(rig_cancel(r, 2, "a").status, VOW_STATUS_WAITING);
    rig_expect(r, &r->news[1].cancels, 1);
    CHECK_UINT_EQ(rig_pulse(r, 1, &hold, LONG_MS).status, VOW_STATUS_CANCELED);
    CHECK_UINT_EQ(rig_peek(r, 2, "a").status, VOW_STATUS_SETTLED);
}

CONTRACT_REFRESH(a_result_that_is_refreshed_is_forgotten_by_its_epoch)
{
    uint64_t old = old_result(r, LONG_MS);
    uint64_t epoch = refresher_of(r, old);
    CHECK_UINT_EQ(rig_forget(r, 2, "a", 0).status, VOW_STATUS_WAITING);
    refreshed_is(r, "old");
    CHECK_UINT_EQ(rig_forget(r, 2, "a", old).status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(rig_claim(r, 2, ASK("a", 3)).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(rig_commit(r, 1, COMMIT("a", 2, epoch), "new").status,
                  VOW_STATUS_OWNED);
    refreshed_is(r, "new");
}
