/* SPDX-License-Identifier: MIT */
/* size_test.c - what is too long or too large; steps that are repeated because
 * their answer was lost. */
#include "contract.h"
#include <string.h>

static vow_bytes *bytes_of(struct rig *r, size_t size)
{
    vow_bytes *b;
    CHECK_INT_EQ(vow_bytes_new(r->world.loop, NULL, size, &b), 0);
    memset(vow_bytes_data(b), 'x', size);
    return b;
}

CONTRACT(size, labels_and_runners_are_cut)
{
    char longest[VOW_LABEL_MAX + 1];
    char longer[VOW_LABEL_MAX + 100];
    memset(longer, 'a', sizeof(longer));
    longer[sizeof(longer) - 1] = 0;
    memcpy(longest, longer, VOW_LABEL_MAX);
    longest[VOW_LABEL_MAX] = 0;
    (void)rig_claim(r, 0, ASK("a", 1, .label = longer, .runner = longer));
    (void)rig_claim(r, 0, ASK("b", 2, .label = longest, .runner = longest));
    (void)rig_claim(r, 0, ASK("c", 3, .label = "", .runner = ""));
    static const char *const names[] = {"a", "b"};
    for (size_t i = 0; i < 2; i++) {
        struct rig_answer a = rig_peek(r, 1, names[i]);
        CHECK_STR_EQ(a.label, longest);
        CHECK_STR_EQ(a.runner, longest);
    }
    CHECK_STR_EQ(rig_peek(r, 1, "c").label, "");
}

CONTRACT(size, a_result_of_the_largest_size_and_one_above)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    VOW_AUTO(vow_bytes) above = bytes_of(r, RIG_VALUE_MAX + 1);
    VOW_AUTO(vow_bytes) largest = bytes_of(r, RIG_VALUE_MAX);
    vow_commit_request ask = *COMMIT("a", 1, epoch, .value = above);
    CHECK_INT_EQ(rig_commit(r, 0, &ask, NULL).code, VOW_E2BIG);
    CHECK_UINT_EQ(rig_claim(r, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
    ask.value = largest;
    CHECK_UINT_EQ(rig_commit(r, 0, &ask, NULL).status, VOW_STATUS_OWNED);
    struct rig_answer a = rig_claim(r, 1, ASK("a", 2));
    CHECK_UINT_EQ(a.value_size, RIG_VALUE_MAX);
    for (size_t i = 0; i < sizeof(a.value); i++)
        CHECK(a.value[i] == 'x');
}

CONTRACT(size, chunks_have_the_size_of_a_result_together)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    vow_hold hold = {
        .name = rig_name("a"), .token = rig_token(1), .epoch = epoch};
    char text[RIG_VALUE_MAX / 2 + 1];
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = 0;
    CHECK_UINT_EQ(rig_write(r, 0, &hold, 0, text).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_write(r, 0, &hold, 1, text).status, VOW_STATUS_OWNED);
    CHECK_INT_EQ(rig_write(r, 0, &hold, 2, "x").code, VOW_E2BIG);
    CHECK_UINT_EQ(rig_pulse(r, 0, &hold, LONG_MS).status, VOW_STATUS_OWNED);
}

CONTRACT(size, a_result_is_any_bytes)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    VOW_AUTO(vow_bytes) b = bytes_of(r, 128);
    for (int i = 0; i < 128; i++)
        vow_bytes_data(b)[i] = (unsigned char)(2 * i);
    (void)rig_commit(r, 0, COMMIT("a", 1, epoch, .value = b), NULL);
    struct rig_answer a = rig_claim(r, 1, ASK("a", 2));
    CHECK_UINT_EQ(a.value_size, 128);
    CHECK_MEM_EQ(a.value, vow_bytes_data(b), 128);
}

/* ---- repeats ------------------------------------------------------------- */

CONTRACT(repeat, every_step_of_a_run_twice)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    CHECK_UINT_EQ(rig_claim(r, 0, ASK("a", 1)).epoch, epoch);
    vow_hold hold = {
        .name = rig_name("a"), .token = rig_token(1), .epoch = epoch};
    for (int i = 0; i < 2; i++)
        CHECK_UINT_EQ(rig_pulse(r, 0, &hold, LONG_MS).epoch, epoch);
    for (int i = 0; i < 2; i++)
        CHECK_UINT_EQ(rig_commit(r, 0, COMMIT("a", 1, epoch), "x").status,
                      VOW_STATUS_OWNED);
    for (int i = 0; i < 2; i++)
        CHECK_UINT_EQ(rig_claim(r, 1, ASK("a", 2)).status, VOW_STATUS_SETTLED);
}

CONTRACT(repeat, a_strict_commit_is_known_the_second_time)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1, .mode = VOW_FENCED)).epoch;
    vow_commit_request ask = *COMMIT("a", 1, epoch, .flags = VOW_COMMIT_STRICT);
    CHECK_UINT_EQ(rig_commit(r, 0, &ask, "x").status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_commit(r, 0, &ask, "x").status, VOW_STATUS_OWNED);
}

CONTRACT(repeat, a_takeover_is_counted_once)
{
    (void)rig_claim(r, 0, ASK("a", 1, .lease_ms = 0));
    struct rig_answer a = rig_claim(r, 1, ASK("a", 2, .takeovers = 1));
    CHECK_UINT_EQ(a.takeovers, 1);
    struct rig_answer b = rig_claim(r, 1, ASK("a", 2, .takeovers = 1));
    CHECK_UINT_EQ(b.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(b.takeovers, 1);
    CHECK_UINT_EQ(b.epoch, a.epoch);
}

CONTRACT(repeat, a_forced_claim_does_not_undo_its_own_result)
{
    vow_claim_request ask = *ASK("a", 1, .flags = VOW_CLAIM_FORCE);
    uint64_t epoch = rig_claim(r, 0, &ask).epoch;
    CHECK_UINT_EQ(rig_claim(r, 0, &ask).epoch, epoch);
    (void)rig_commit(r, 0, COMMIT("a", 1, epoch), "x");
    CHECK_UINT_EQ(rig_claim(r, 0, &ask).status, VOW_STATUS_SETTLED);
}

CONTRACT(repeat, a_commit_is_not_changed_by_its_repeat)
{
    uint64_t epoch = rig_claim(r, 0, ASK("a", 1)).epoch;
    CHECK_UINT_EQ(rig_commit(r, 0, COMMIT("a", 1, epoch), "first").status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_commit(r, 0, COMMIT("a", 1, epoch), "other").status,
                  VOW_STATUS_OWNED);
    CHECK_MEM_EQ(rig_claim(r, 1, ASK("a", 2)).value, "first", 5);
}
