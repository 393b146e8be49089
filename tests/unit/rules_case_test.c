/* SPDX-License-Identifier: MIT */
/* rules_case_test.c - single cases of the rules of named work, beside the table
 * of rules_table.h. */
#include "rules_table.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The clock may be set back, and the length of the lease may not be known. */
TEST(rules_case, the_end_alone_decides_whether_a_lease_is_valid)
{
    const struct subject lives = {.state = RULES_DONE, .has_refresh = true};
    struct rules_record r = build_record(&SUBJECTS[1]);
    struct rules_record result = build_record(&lives);
    CHECK_UINT_EQ(vow__rules_view(&r, 1), RULES_VIEW_RUNNING);
    CHECK(vow__rules_refreshing(&result, 1));
    r.lease_us = result.refresh.lease_us = 0;
    CHECK_UINT_EQ(vow__rules_view(&r, END_US - 1), RULES_VIEW_RUNNING);
    CHECK_UINT_EQ(vow__rules_view(&r, END_US), RULES_VIEW_LAPSED);
    CHECK(vow__rules_refreshing(&result, END_US - 1));
    CHECK(!vow__rules_refreshing(&result, END_US));
}

/* A claim with FORCE waits for the refresher, and reads the result that the
 * refresher leaves, before and after the old result expires. */
TEST(rules_case, a_forced_waiter_finds_the_result_of_the_refresher)
{
    const vow_claim_request claim = {.token = STRANGER_TOKEN,
                                     .flags = VOW_CLAIM_FORCE,
                                     .lease_ms = ASKED_LEASE_MS};
    const vow_commit_request commit = {
        .hold = {.token = REFRESHER_TOKEN, .epoch = REFRESH_EPOCH},
        .outcome = VOW_OUTCOME_DONE};
    const struct subject lives = {.state = RULES_DONE,
                                  .has_refresh = true,
                                  .refresh_end_us = 30 * SECOND};
    const struct rules_record r = build_record(&lives);
    const uint64_t times[] = {END_US - 1, END_US, END_US + LEASE_US - 1};
    for (size_t i = 0; i < COUNT(times); i++) {
        struct rules_now now = {.now_us = times[0], .recheck_ms = RECHECK_MS};
        struct decision wait = vow__rules_claim(&r, NULL, &claim, now);
        CHECK_UINT_EQ(wait.status, VOW_STATUS_WAITING);
        CHECK_UINT_EQ(wait.epoch, REFRESH_EPOCH);
        now.now_us = times[i];
        struct decision d = vow__rules_commit(&r, &commit, now);
        CHECK_UINT_EQ(d.status, VOW_STATUS_OWNED);
        CHECK((d.effects & EFFECT_LEAVE) != 0 &&
              (d.effects & EFFECT_WAKE) != 0);
        CHECK_UINT_EQ(d.next.first, wait.first);
    }
}

TEST(rules_case, an_epoch_above_the_most_is_refused)
{
    const struct rules_now now = {.now_us = END_US, .number = 1};
    const vow_claim_request claim = {.token = STRANGER_TOKEN,
                                     .floor = RULES_EPOCH_MAX + 1};
    vow_commit_request commit = {
        .hold = {.token = STRANGER_TOKEN, .epoch = RULES_EPOCH_MAX + 1},
        .outcome = VOW_OUTCOME_DONE};
    struct decision d = vow__rules_claim(NULL, NULL, &claim, now);
    CHECK_INT_EQ(d.code, VOW_EINVAL);
    CHECK_UINT_EQ(d.effects, 0);
    d = vow__rules_pulse(NULL, &commit.hold, VOW_SHARED, ASKED_LEASE_MS, now);
    CHECK_INT_EQ(d.code, VOW_EINVAL);
    CHECK_UINT_EQ(d.effects, 0);
    d = vow__rules_commit(NULL, &commit, now);
    CHECK_INT_EQ(d.code, VOW_EINVAL);
    CHECK_UINT_EQ(d.effects, 0);
    commit.hold.epoch = RULES_EPOCH_MAX;
    CHECK_INT_EQ(vow__rules_commit(NULL, &commit, now).code, 0);
}

/* The grant would have an epoch with which the owner can do nothing. */
TEST(rules_case, no_grant_has_an_epoch_above_the_most)
{
    const vow_claim_request claim = {.token = STRANGER_TOKEN,
                                     .lease_ms = ASKED_LEASE_MS,
                                     .floor = RULES_EPOCH_MAX};
    const vow_claim_request plain = {.token = STRANGER_TOKEN,
                                     .lease_ms = ASKED_LEASE_MS};
    const vow_claim_request refresh = {
        .token = STRANGER_TOKEN, .lease_ms = ASKED_LEASE_MS, .refresh = EPOCH};
    const struct rules_now now = {.now_us = END_US, .number = 1};
    const struct rules_now high = {.now_us = END_US,
                                   .number = RULES_EPOCH_MAX + 1};
    const struct rules_now before = {.now_us = END_US - 1,
                                     .number = RULES_EPOCH_MAX + 1};
    const struct rules_record done = build_record(&SUBJECTS[8]);
    struct decision d = vow__rules_claim(NULL, NULL, &claim, now);
    CHECK_INT_EQ(d.code, VOW_EINVAL);
    CHECK_UINT_EQ(d.effects, 0);
    d = vow__rules_claim(NULL, NULL, &plain, high);
    CHECK_INT_EQ(d.code, VOW_EINVAL);
    CHECK_UINT_EQ(d.effects, 0);
    d = vow__rules_claim(&done, NULL, &refresh, before);
    CHECK_INT_EQ(d.code, VOW_EINVAL);
    CHECK_UINT_EQ(d.effects, 0);
}

TEST(rules_case, a_mode_that_does_not_exist_is_refused)
{
    const struct rules_record r = build_record(&SUBJECTS[1]);
    const struct rules_now now = {.now_us = END_US - 1};
    const vow_claim_request claim = {.token = STRANGER_TOKEN,
                                     .mode = VOW_ONCE + 1};
    const vow_hold hold = {.token = OWNER_TOKEN, .epoch = EPOCH};
    struct decision d = vow__rules_claim(&r, NULL, &claim, now);
    CHECK_INT_EQ(d.code, VOW_EINVAL);
    d = vow__rules_pulse(&r, &hold, VOW_ONCE + 1, ASKED_LEASE_MS, now);
    CHECK_INT_EQ(d.code, VOW_EINVAL);
    CHECK_UINT_EQ(d.effects, 0);
    d = vow__rules_pulse(&r, &hold, VOW_ONCE, ASKED_LEASE_MS, now);
    CHECK_INT_EQ(d.code, 0);
}

/* A record without a token has no owner. */
TEST(rules_case, no_run_begins_with_a_token_of_zeros)
{
    const struct rules_record running = build_record(&SUBJECTS[1]);
    const struct rules_record done = build_record(&SUBJECTS[8]);
    const struct rules_now now = {.now_us = END_US - 1, .number = 1000};
    vow_claim_request claim = {.lease_ms = ASKED_LEASE_MS};
    const vow_hold hold = {.epoch = EPOCH};
    const struct rules_record *const records[] = {NULL, &running, &done};
    for (size_t i = 0; i < COUNT(records); i++)
        for (claim.refresh = 0; claim.refresh <= EPOCH;
             claim.refresh += EPOCH) {
            struct decision d = vow__rules_claim(records[i], NULL, &claim, now);
            CHECK_INT_EQ(d.code, VOW_EINVAL);
            CHECK_UINT_EQ(d.effects, 0);
        }
    struct decision d = vow__rules_pulse(NULL, &hold, VOW_SHARED, 1, now);
    CHECK_INT_EQ(d.code, VOW_EINVAL);
    CHECK_UINT_EQ(d.effects, 0);
    d = vow__rules_pulse(NULL, &hold, VOW_FENCED, 1, now); /* revives nothing */
    CHECK_UINT_EQ(d.status, VOW_STATUS_LOST);
    d = vow__rules_pulse(&running, &hold, VOW_SHARED, 1, now);
    CHECK_UINT_EQ(d.status, VOW_STATUS_LOST);
}

/* The store still has the value of the result that has expired. */
TEST(rules_case, a_run_over_an_expired_result_drops_the_old_value_once)
{
    const struct subject lives = {.state = RULES_DONE,
                                  .has_refresh = true,
                                  .refresh_end_us = 30 * SECOND};
    const struct rules_record done = build_record(&SUBJECTS[8]);
    const struct rules_record promoted = build_record(&lives);
    const struct rules_now now = {.now_us = END_US};
    const vow_hold owner = {.token = OWNER_TOKEN, .epoch = EPOCH};
    const vow_hold refresher = {.token = REFRESHER_TOKEN,
                                .epoch = REFRESH_EPOCH};
    const struct decision first[] = {
        vow__rules_pulse(&done, &owner, VOW_SHARED, ASKED_LEASE_MS, now),
        vow__rules_pulse(&promoted, &refresher, VOW_SHARED, ASKED_LEASE_MS,
                         now),
        vow__rules_cancel(&promoted, now),
        vow__rules_chunk(&promoted, &refresher, 0, 1, 1, now)};
    for (size_t i = 0; i < COUNT(first); i++) {
        CHECK_UINT_EQ(first[i].next.state, RULES_RUNNING);
        CHECK((first[i].effects & EFFECT_WRITE) != 0);
        CHECK((first[i].effects & EFFECT_CLEAR) != 0);
        struct decision d = vow__rules_cancel(&first[i].next, now);
        CHECK((d.effects & EFFECT_WRITE) != 0);
        CHECK_UINT_EQ(d.effects & EFFECT_CLEAR, 0);
    }
}

/* The store deletes a spent record at once only if no owner was replaced: the
 * result of a replaced owner does not count. */
TEST(rules_case, an_exact_store_refuses_a_late_result_after_a_late_takeover)
{
    const struct rules_record lapsed = build_record(&SUBJECTS[2]);
    const vow_claim_request claim = {.token = STRANGER_TOKEN,
                                     .lease_ms = ASKED_LEASE_MS};
    struct rules_now now = {.now_us = END_US + RULES_MINUTE_US,
                            .number = 1000,
                            .recheck_ms = RECHECK_MS,
                            .exact = true};
    struct decision d = vow__rules_claim(&lapsed, NULL, &claim, now);
    CHECK_UINT_EQ(d.status, VOW_STATUS_OWNED);
    vow_commit_request commit = {
        .hold = {.token = STRANGER_TOKEN, .epoch = d.epoch},
        .outcome = VOW_OUTCOME_DONE};
    d = vow__rules_commit(&d.next, &commit, now);
    CHECK_UINT_EQ(d.status, VOW_STATUS_OWNED);
    commit.hold = (vow_hold){.token = OWNER_TOKEN, .epoch = EPOCH};
    d = vow__rules_commit(d.next.state == RULES_NONE ? NULL : &d.next, &commit,
                          now);
    CHECK_UINT_EQ(d.status, VOW_STATUS_LOST);
}

/* Waiters ask within the interval of the store; a replaced owner may have been
 * stopped, and asks when it goes on. */
TEST(rules_case, a_spent_result_is_kept_for_waiters_and_for_a_replaced_owner)
{
    CHECK_UINT_EQ(vow__rules_keep_us(250, false), 500000);
    CHECK_UINT_EQ(vow__rules_keep_us(250, true), 60000000);
    CHECK_UINT_EQ(vow__rules_keep_us(40000, true), 80000000);
    CHECK_UINT_EQ(vow__rules_keep_us(UINT64_MAX, false), RULES_NEVER);
    struct rules_record r = build_record(&SUBJECTS[1]);
    const vow_commit_request commit = {
        .hold = {.token = r.token, .epoch = r.epoch},
        .outcome = VOW_OUTCOME_DONE};
    const struct rules_now now = {.now_us = END_US - 1, .recheck_ms = 250};
    for (int replaced = 0; replaced < 2; replaced++) {
        r.first = r.epoch - (unsigned)replaced;
        r.takeovers = 0; /* none that counts: the owner was lost long ago */
        struct decision d = vow__rules_commit(&r, &commit, now);
        CHECK_UINT_EQ(d.next.end_us - now.now_us - r.lease_us,
                      vow__rules_keep_us(250, replaced != 0));
    }
}

/* A resolve has no token, and neither has a run that was given up. */
TEST(rules_case, a_commit_without_a_token_owns_no_run_that_was_given_up)
{
    const struct subject gave_up = {.state = RULES_GAVE_UP};
    const struct rules_record r = build_record(&gave_up);
    const uint32_t flags[] = {VOW_COMMIT_RESOLVE, 0};
    const struct rules_now now = {.now_us = END_US - 1,
                                  .recheck_ms = RECHECK_MS};
    for (size_t i = 0; i < COUNT(flags); i++) {
        const vow_commit_request commit = {.hold = {.epoch = EPOCH},
                                           .outcome = VOW_OUTCOME_DONE,
                                           .flags = flags[i]};
        struct decision d = vow__rules_commit(&r, &commit, now);
        CHECK_UINT_EQ(d.effects & EFFECT_WRITE, 0);
        CHECK_UINT_EQ(d.status, VOW_STATUS_SETTLED);
    }
}

/* ---- invariants --------------------------------------------------------- */

/* Returns whether vow__rules_check() ends the process. */
static bool check_traps(const struct rules_record *r)
{
    int status = 0;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGILL, SIG_DFL);
        signal(SIGTRAP, SIG_DFL);
        vow__rules_check(r);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status);
}

/* Checks that a record is valid, and that each change makes the record invalid.
 * A change has the values of one broken record. */
#define CHECK_BROKEN(record, change)                                           \
    do {                                                                       \
        struct rules_record r = (record);                                      \
        CHECK(!check_traps(&r));                                               \
        change;                                                                \
        CHECK(check_traps(&r));                                                \
    } while (0)

TEST(rules_case, each_invariant_of_a_record_is_checked)
{
    const struct subject lives = {.state = RULES_DONE, .has_refresh = true};
    const struct rules_record none = {0};
    const struct rules_record running = build_record(&SUBJECTS[1]);
    const struct rules_record done = build_record(&SUBJECTS[8]);
    const struct rules_record gave_up = build_record(&SUBJECTS[11]);
    const struct rules_record refreshed = build_record(&lives);
    CHECK_BROKEN(running, r.token = none.token); /* R1 */
    CHECK_BROKEN(gave_up, r.token = OWNER_TOKEN);
    CHECK_BROKEN(gave_up, r.spent = true);
    CHECK_BROKEN(gave_up, r.refresh = refreshed.refresh);
    CHECK_BROKEN(done, r.first = r.epoch + 1); /* R3 */
    CHECK_BROKEN(done, r.epoch = RULES_EPOCH_MAX + 1);
    CHECK_BROKEN(refreshed, r.refresh.epoch = RULES_EPOCH_MAX + 1);
    CHECK_BROKEN(refreshed, r.refresh.epoch = r.epoch); /* R4 */
    CHECK_BROKEN(refreshed, r.refresh.token = none.token);
    CHECK_BROKEN(refreshed, r.state = RULES_FAILED);
    CHECK_BROKEN(refreshed, r.spent = true);
    CHECK_BROKEN(refreshed, r.mode = VOW_ONCE);
    CHECK_BROKEN(done, r.canceled = true); /* R5 */
    CHECK_BROKEN(done, r.chunks = 1);
    CHECK_BROKEN(done, r.chunk_bytes = 1);
    CHECK_BROKEN(running, r.spent = true);
    CHECK_BROKEN(none, r.mode = VOW_FENCED); /* R6 */
    CHECK_BROKEN(none, r.canceled = true);
    CHECK_BROKEN(none, r.spent = true);
    CHECK_BROKEN(none, r.takeovers = 1);
    CHECK_BROKEN(none, r.chunks = 1);
    CHECK_BROKEN(none, r.chunk_bytes = 1);
    CHECK_BROKEN(none, r.token = OWNER_TOKEN);
    CHECK_BROKEN(none, r.epoch = 1);
    CHECK_BROKEN(none, r.first = 1);
    CHECK_BROKEN(none, r.since_us = 1);
    CHECK_BROKEN(none, r.end_us = 1);
    CHECK_BROKEN(none, r.lease_us = 1);
    CHECK_BROKEN(none, r.cost_ms = 1);
    CHECK_BROKEN(none, r.refresh.token = OWNER_TOKEN);
    CHECK_BROKEN(done, r.refresh.since_us = 1);
    CHECK_BROKEN(done, r.refresh.end_us = 1);
    CHECK_BROKEN(done, r.refresh.lease_us = 1);
    CHECK_BROKEN(done, r.refresh.failed = true);
    CHECK_BROKEN(done, r.refresh.canceled = true);
    CHECK_BROKEN(done, r.state = RULES_GAVE_UP + 1);
    CHECK_BROKEN(done, r.mode = VOW_ONCE + 1);
}
