/* SPDX-License-Identifier: MIT */
/* look_test.c - peek, list, forget, cancel; chunks; names in doubt. */
#include "contract.h"
#include <string.h>

static vow_hold hold_of(const char *text, uint64_t number, uint64_t epoch)
{
    return (vow_hold){
        .name = rig_name(text), .token = rig_token(number), .epoch = epoch};
}

/* One of each: b runs, c is settled, d is in doubt, e has lapsed. */
static void make_one_of_each(struct rig *r)
{
    (void)rig_claim(r, 0, ASK("b", 1, .label = "runs", .runner = "host:1"));
    uint64_t epoch = rig_claim(r, 0, ASK("c", 2, .label = "done")).epoch;
    (void)rig_commit(r, 0, COMMIT("c", 2, epoch), "value");
    (void)rig_claim(r, 0, ASK("d", 3, .lease_ms = 0, .mode = VOW_ONCE));
    (void)rig_claim(r, 0, ASK("e", 4, .lease_ms = 0));
}

CONTRACT(look, peek_says_what_claims_would_and_changes_nothing)
{
    make_one_of_each(r);
    vow_name names[] = {rig_name("a"), rig_name("b"), rig_name("c"),
                        rig_name("d"), rig_name("e"), rig_name("b")};
    static const uint32_t want[] = {VOW_STATUS_NONE,    VOW_STATUS_WAITING,
                                    VOW_STATUS_SETTLED, VOW_STATUS_DOUBT,
                                    VOW_STATUS_NONE,    VOW_STATUS_WAITING};
    struct rig_answer out[6];
    for (int again = 0; again < 2; again++) {
        CHECK_INT_EQ(rig_peek_all(r, 1, names, 6, out), 0);
        for (size_t i = 0; i < 6; i++)
            CHECK_UINT_EQ(out[i].status, want[i]);
        rig_check_waiters(r, out[1].waiters, 0);
        CHECK_STR_EQ(out[1].label, "runs");
        CHECK_STR_EQ(out[1].runner, "host:1");
        CHECK_STR_EQ(out[2].label, "done");
    }
    CHECK_UINT_EQ(rig_claim(r, 1, ASK("e", 9)).takeovers, 1);
}

CONTRACT(look, peek_of_none_is_answered)
{
    CHECK_INT_EQ(rig_peek_all(r, 0, NULL, 0, NULL), 0);
}

CONTRACT(look, list_has_all_records)
{
    struct rig_answer list[8];
    unsigned seen = 0;
    CHECK_UINT_EQ(rig_list(r, 1, list, 8), 0);
    make_one_of_each(r);
    (void)rig_claim(r, 2, ASK("b", 7));
    size_t n = rig_list(r, 1, list, 8);
    CHECK(n == 3 || n == 4); /* what has lapsed may be shown */
    for (size_t i = 0; i < n; i++) {
        CHECK_UINT_EQ(list[i].value_size, 0);
        if (strcmp(list[i].label, "runs") == 0) {
            CHECK_UINT_EQ(list[i].status, VOW_STATUS_WAITING);
            rig_check_waiters(r, list[i].waiters, 1);
            CHECK_STR_EQ(list[i].runner, "host:1");
            seen |= 1;
        }
        if (strcmp(list[i].label, "done") == 0) {
            CHECK_UINT_EQ(list[i].status, VOW_STATUS_SETTLED);
            seen |= 2;
        }
        if (list[i].status == VOW_STATUS_DOUBT) {
            CHECK_UINT_EQ(list[i].mode, VOW_ONCE);
            seen |= 4;
        }
    }
    CHECK_UINT_EQ(seen, 7);
}

CONTRACT(look, ages_are_told)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    vow_hold hold = hold_of("a", 1, epoch);
    rig_advance_ms(r, 60);
    (void)rig_pulse(r, 0, &hold, LONG_MS);
    struct rig_answer a = rig_peek(r, 1, "a");
    CHECK(a.age_ms >= 59);
    if (r->store->tells_no_pulse)
        CHECK_UINT_EQ(a.pulse_ms, UINT64_MAX);
    else
        CHECK(a.pulse_ms < a.age_ms);
    CHECK(a.left_ms > LONG_MS / 2);
    uint64_t since_us = rig_now_us(r);
    (void)rig_commit(r, 0, COMMIT("a", 1, epoch), "x");
    a = rig_peek(r, 1, "a"); /* counts from the commit */
    CHECK(a.age_ms <= (rig_now_us(r) - since_us) / 1000 + 1);
}

/* ---- forget -------------------------------------------------------------- */

CONTRACT(forget, a_result_goes)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    (void)rig_commit(r, 0, COMMIT("a", 1, epoch), "x");
    CHECK_UINT_EQ(rig_forget(r, 1, "a", 0).status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(rig_forget(r, 1, "a", 0).status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(rig_claim(r, 2, ASK("a", 2)).status, VOW_STATUS_OWNED);
}

CONTRACT(forget, only_of_the_epoch_that_is_meant)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    (void)rig_commit(r, 0, COMMIT("a", 1, epoch), "x");
    CHECK_UINT_EQ(rig_forget(r, 1, "a", epoch + 1).status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(rig_claim(r, 2, ASK("a", 2)).status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(rig_forget(r, 1, "a", epoch).status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(rig_peek(r, 2, "a").status, VOW_STATUS_NONE);
}

CONTRACT(forget, what_runs_stays)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    CHECK_UINT_EQ(rig_forget(r, 1, "a", 0).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(rig_forget(r, 1, "a", epoch).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(rig_claim(r, 2, ASK("a", 2)).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(rig_commit(r, 0, COMMIT("a", 1, epoch), "x").status,
                  VOW_STATUS_OWNED);
}

/* ---- cancel -------------------------------------------------------------- */

CONTRACT(cancel, the_owner_hears_of_it_and_its_pulse_says_so)
{
    vow_hold hold = hold_of("a", 1, 0);
    hold.epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    CHECK_UINT_EQ(rig_cancel(r, 1, "a").status, VOW_STATUS_WAITING);
    rig_expect(r, &r->news[0].cancels, 1);
    CHECK(vow_name_equal(&r->news[0].name, &hold.name));
    CHECK_UINT_EQ(rig_pulse(r, 0, &hold, LONG_MS).status, VOW_STATUS_CANCELED);
    CHECK_UINT_EQ(rig_pulse(r, 0, &hold, LONG_MS).status, VOW_STATUS_CANCELED);
    CHECK_UINT_EQ(rig_commit(r, 0, COMMIT("a", 1, hold.epoch), "x").status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(r->news[1].cancels, 0);
}

CONTRACT(cancel, what_does_not_run_is_told_as_it_is)
{
    make_one_of_each(r);
    CHECK_UINT_EQ(rig_cancel(r, 1, "a").status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(rig_cancel(r, 1, "c").status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(rig_cancel(r, 1, "d").status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(rig_cancel(r, 1, "e").status, VOW_STATUS_NONE);
}

CONTRACT(cancel, the_next_owner_is_not_meant)
{
    vow_hold hold = hold_of("a", 1, 0);
    hold.epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    (void)rig_cancel(r, 1, "a");
    (void)rig_pulse(r, 0, &hold, 0);
    hold = hold_of("a", 2, rig_claim(r, 1, ASK("a", 2)).epoch);
    CHECK_UINT_EQ(rig_pulse(r, 1, &hold, LONG_MS).status, VOW_STATUS_OWNED);
}

/* ---- chunks -------------------------------------------------------------- */

CONTRACT(chunks, are_read_in_order_and_from_any_number)
{
    vow_hold hold = hold_of("a", 1, 0);
    hold.epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    struct rig_chunks c = rig_read(r, 1, "a", hold.epoch, 0);
    CHECK_INT_EQ(c.code, 0);
    CHECK_UINT_EQ(c.n, 0);
    CHECK_UINT_EQ(c.next, 0);
    CHECK_UINT_EQ(rig_write(r, 0, &hold, 0, "one").status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_write(r, 0, &hold, 1, "").status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_write(r, 0, &hold, 2, "three").status, VOW_STATUS_OWNED);
    c = rig_read(r, 1, "a", hold.epoch, 0);
    CHECK_STR_EQ(c.text, "one||three|");
    CHECK_UINT_EQ(c.next, 3);
    c = rig_read(r, 2, "a", hold.epoch, 2);
    CHECK_STR_EQ(c.text, "three|");
    c = rig_read(r, 2, "a", hold.epoch, 3);
    CHECK_UINT_EQ(c.n, 0);
    CHECK_UINT_EQ(c.next, 3);
}

CONTRACT(chunks, many_come_by_several_reads)
{
    vow_hold hold = hold_of("a", 1, 0);
    hold.epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    for (uint64_t i = 0; i < 200; i++)
        CHECK_UINT_EQ(rig_write(r, 0, &hold, i, i % 2 ? "b" : "a").status,
                      VOW_STATUS_OWNED);
    uint64_t next = 0;
    while (next < 200) {
        struct rig_chunks c = rig_read(r, 1, "a", hold.epoch, next);
        CHECK_INT_EQ(c.code, 0);
        CHECK(c.n > 0);
        for (size_t i = 0; i < c.n; i++)
            CHECK(c.text[2 * i] == ((next + i) % 2 ? 'b' : 'a'));
        CHECK_UINT_EQ(c.next, next + c.n);
        next = c.next;
    }
}

CONTRACT(chunks, who_waits_is_told)
{
    vow_hold hold = hold_of("a", 1, 0);
    hold.epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    (void)rig_claim(r, 1, ASK("a", 2));
    (void)rig_write(r, 0, &hold, 0, "x");
    rig_expect(r, &r->news[1].chunks, 1);
    CHECK(vow_name_equal(&r->news[1].name, &hold.name));
    unsigned before = r->news[1].chunks;
    (void)rig_write(r, 0, &hold, 1, "y");
    rig_expect(r, &r->news[1].chunks, before + 1);
    CHECK_STR_EQ(rig_read(r, 1, "a", hold.epoch, 1).text, "y|");
    (void)rig_commit(r, 0, COMMIT("a", 1, hold.epoch), "xy");
    rig_expect(r, &r->news[1].records, 1);
}

CONTRACT(chunks, of_another_epoch_or_none_are_not_there)
{
    vow_hold hold = hold_of("a", 1, 0);
    CHECK_INT_EQ(rig_read(r, 1, "a", 1, 0).code, VOW_ENOENT);
    hold.epoch = rig_claim(r, 0, ASK("a", 1, .lease_ms = 0)).epoch;
    (void)rig_write(r, 0, &hold, 0, "old");
    CHECK_INT_EQ(rig_read(r, 1, "a", hold.epoch + 1, 0).code, VOW_ENOENT);
    hold.epoch++;
    CHECK_UINT_EQ(rig_write(r, 0, &hold, 1, "x").status, VOW_STATUS_LOST);
    hold.epoch--;
    vow_hold next = hold_of("a", 2, rig_claim(r, 1, ASK("a", 2)).epoch);
    CHECK_INT_EQ(rig_read(r, 2, "a", hold.epoch, 0).code, VOW_ENOENT);
    CHECK_UINT_EQ(rig_write(r, 0, &hold, 1, "late").status, VOW_STATUS_LOST);
    CHECK_UINT_EQ(rig_write(r, 1, &next, 0, "new").status, VOW_STATUS_OWNED);
    CHECK_STR_EQ(rig_read(r, 2, "a", next.epoch, 0).text, "new|");
    (void)rig_commit(r, 1, COMMIT("a", 2, next.epoch), "new");
    CHECK_INT_EQ(rig_read(r, 2, "a", next.epoch, 0).code, VOW_ENOENT);
    CHECK_UINT_EQ(rig_write(r, 1, &next, 1, "more").status, VOW_STATUS_LOST);
}

/* ---- once ---------------------------------------------------------------- */

static bool gives_once(const struct rig *r)
{
    return (r->at[0]->ops->modes & 1u << VOW_ONCE) != 0;
}

CONTRACT(once, a_lapsed_owner_leaves_it_in_doubt)
{
    if (!gives_once(r))
        return;
    uint64_t epoch =
        rig_claim(r, 0, ASK("a", 1, .lease_ms = 0, .mode = VOW_ONCE)).epoch;
    for (uint64_t i = 1; i < 4; i++) {
        struct rig_answer a =
            rig_claim(r, i, ASK("a", 1 + i, .mode = VOW_ONCE));
        CHECK_UINT_EQ(a.status, VOW_STATUS_DOUBT);
        CHECK_UINT_EQ(a.epoch, epoch);
    }
    CHECK_UINT_EQ(rig_commit(r, 0, COMMIT("a", 1, epoch), "after all").status,
                  VOW_STATUS_OWNED);
    CHECK_MEM_EQ(rig_claim(r, 1, ASK("a", 2, .mode = VOW_ONCE)).value,
                 "after all", 9);
}

CONTRACT(once, doubt_is_resolved_with_a_result)
{
    if (!gives_once(r))
        return;
    uint64_t epoch =
        rig_claim(r, 0, ASK("a", 1, .lease_ms = 0, .mode = VOW_ONCE)).epoch;
    vow_commit_request ask =
        *COMMIT("a", 7, epoch, .flags = VOW_COMMIT_RESOLVE);
    CHECK_UINT_EQ(
        rig_commit(r, 1, COMMIT("a", 7, epoch + 1, .flags = VOW_COMMIT_RESOLVE),
                   "x")
            .status,
        VOW_STATUS_LOST);
    CHECK_UINT_EQ(rig_commit(r, 1, &ask, "it happened").status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_commit(r, 1, &ask, "it happened").status,
                  VOW_STATUS_OWNED);
    struct rig_answer a = rig_claim(r, 2, ASK("a", 3, .mode = VOW_ONCE));
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_MEM_EQ(a.value, "it happened", 11);
    CHECK_UINT_EQ(rig_commit(r, 0, COMMIT("a", 1, epoch), "late").status,
                  VOW_STATUS_SETTLED);
}

CONTRACT(once, doubt_is_resolved_by_doing_it_again)
{
    if (!gives_once(r))
        return;
    vow_hold hold = hold_of("a", 1, 0);
    hold.epoch = rig_claim(r, 0, ASK("a", 1, .mode = VOW_ONCE)).epoch;
    (void)rig_claim(r, 2, ASK("a", 2, .mode = VOW_ONCE));
    (void)rig_pulse(r, 0, &hold, 0);
    CHECK_UINT_EQ(
        rig_commit(r, 1,
                   COMMIT("a", 7, hold.epoch, .flags = VOW_COMMIT_RESOLVE,
                          .outcome = VOW_OUTCOME_ABANDONED),
                   NULL)
            .status,
        VOW_STATUS_OWNED);
    rig_expect(r, &r->news[2].records, 1);
    struct rig_answer a = rig_claim(r, 2, ASK("a", 2, .mode = VOW_ONCE));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK(a.epoch > hold.epoch);
}

CONTRACT(once, what_is_not_in_doubt_is_not_resolved)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    vow_commit_request ask =
        *COMMIT("a", 7, epoch, .flags = VOW_COMMIT_RESOLVE);
    CHECK_UINT_EQ(rig_commit(r, 1, &ask, "x").status, VOW_STATUS_LOST);
    (void)rig_commit(r, 0, COMMIT("a", 1, epoch), "done");
    CHECK_UINT_EQ(rig_commit(r, 1, &ask, "x").status, VOW_STATUS_SETTLED);
    (void)rig_forget(r, 0, "a", 0);
    CHECK_UINT_EQ(rig_commit(r, 1, &ask, "x").status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(rig_peek(r, 2, "a").status, VOW_STATUS_NONE);
}

CONTRACT(once, doubt_can_be_forgotten)
{
    if (!gives_once(r))
        return;
    uint64_t epoch =
        rig_claim(r, 0, ASK("a", 1, .lease_ms = 0, .mode = VOW_ONCE)).epoch;
    CHECK_UINT_EQ(rig_forget(r, 1, "a", epoch + 1).status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(rig_forget(r, 1, "a", epoch).status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(rig_claim(r, 2, ASK("a", 2, .mode = VOW_ONCE)).status,
                  VOW_STATUS_OWNED);
}
