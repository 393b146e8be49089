/* SPDX-License-Identifier: MIT */
/* etcd_judge_test.c - the rules, without etcd. */
#include "etcd_names_kit.h"

static struct vow__er er_of(uint8_t state, uint64_t number)
{
    return (struct vow__er){.state = state,
                            .token = token_of(number),
                            .epoch = 10,
                            .takeovers = 2,
                            .mod = 5};
}

TEST(etcd_judge, claims)
{
    struct vow__er er = {.state = VOW__ER_ABSENT};
    CHECK_INT_EQ(vow__judge_claim(&er, ASK("a", 1)), VOW__ACT_OWN);
    er = er_of(VOW__ER_RUNS, 1);
    CHECK_INT_EQ(vow__judge_claim(&er, ASK("a", 1)), VOW__ACT_RENEW);
    CHECK_INT_EQ(vow__judge_claim(&er, ASK("a", 2)), VOW__ACT_REPLACE);
    CHECK_INT_EQ(vow__judge_claim(&er, ASK("a", 2, .takeovers = 2)),
                 VOW__ACT_GIVE_UP);
    er.mode = VOW_ONCE;
    CHECK_INT_EQ(vow__judge_claim(&er, ASK("a", 2)), VOW__ACT_DOUBT);
    CHECK_INT_EQ(vow__judge_claim(&er, ASK("a", 2, .flags = VOW_CLAIM_FORCE)),
                 VOW__ACT_DOUBT);
    er.alive = 5;
    CHECK_INT_EQ(vow__judge_claim(&er, ASK("a", 2)), VOW__ACT_WAIT);
}

TEST(etcd_judge, claims_of_what_is_settled)
{
    struct vow__er er = er_of(VOW__ER_DONE, 1);
    const vow_claim_request *force = ASK("a", 2, .flags = VOW_CLAIM_FORCE);
    const vow_claim_request *own = ASK("a", 1, .flags = VOW_CLAIM_FORCE);
    CHECK_INT_EQ(vow__judge_claim(&er, ASK("a", 2)), VOW__ACT_SETTLED);
    CHECK_INT_EQ(vow__judge_claim(&er, force), VOW__ACT_OWN);
    CHECK_INT_EQ(vow__judge_claim(&er, own), VOW__ACT_SETTLED);
    er.hidden = true;
    CHECK_INT_EQ(vow__judge_claim(&er, ASK("a", 2)), VOW__ACT_OWN);
    CHECK_INT_EQ(vow__judge_claim(&er, own), VOW__ACT_SETTLED);
    er = er_of(VOW__ER_GAVE_UP, 0);
    CHECK_INT_EQ(vow__judge_claim(&er, ASK("a", 2)), VOW__ACT_SETTLED);
}

TEST(etcd_judge, pulses)
{
    vow_token one = token_of(1), two = token_of(2);
    struct vow__er er = {.state = VOW__ER_ABSENT};
    CHECK_INT_EQ(vow__judge_pulse(&er, &one), VOW__ACT_OWN);
    er = er_of(VOW__ER_RUNS, 1);
    CHECK_INT_EQ(vow__judge_pulse(&er, &one), VOW__ACT_RENEW);
    CHECK_INT_EQ(vow__judge_pulse(&er, &two), VOW__ACT_LOST);
    er.state = VOW__ER_FAILED;
    er.hidden = true;
    CHECK_INT_EQ(vow__judge_pulse(&er, &one), VOW__ACT_SETTLED);
}

static void check_commit(const struct vow__er *er,
                         const vow_commit_request *ask, uint32_t status,
                         bool effect)
{
    struct vow__verdict v = vow__judge_commit(er, ask);
    CHECK_UINT_EQ(v.status, status);
    CHECK_UINT_EQ(v.effect, effect);
}

TEST(etcd_judge, commits_of_what_is_absent)
{
    const struct vow__er er = {.state = VOW__ER_ABSENT};
    check_commit(&er, COMMIT("a", 1, 10), VOW_STATUS_OWNED, true);
    check_commit(&er, COMMIT("a", 1, 10, .flags = VOW_COMMIT_PUT),
                 VOW_STATUS_OWNED, true);
    check_commit(&er, COMMIT("a", 1, 10, .flags = VOW_COMMIT_STRICT),
                 VOW_STATUS_NONE, false);
    check_commit(&er, COMMIT("a", 1, 10, .flags = VOW_COMMIT_RESOLVE),
                 VOW_STATUS_NONE, false);
}

TEST(etcd_judge, commits_of_what_runs)
{
    struct vow__er er = er_of(VOW__ER_RUNS, 1);
    check_commit(&er, COMMIT("a", 1, 10), VOW_STATUS_OWNED, true);
    check_commit(&er, COMMIT("a", 1, 11), VOW_STATUS_LOST, false);
    check_commit(&er, COMMIT("a", 2, 10), VOW_STATUS_LOST, false);
    check_commit(&er, COMMIT("a", 1, 10, .flags = VOW_COMMIT_PUT),
                 VOW_STATUS_LOST, false);
    const vow_commit_request *resolve =
        COMMIT("a", 2, 10, .flags = VOW_COMMIT_RESOLVE);
    check_commit(&er, resolve, VOW_STATUS_LOST, false);
    er.mode = VOW_ONCE;
    check_commit(&er, resolve, VOW_STATUS_OWNED, true);
    check_commit(&er, COMMIT("a", 2, 9, .flags = VOW_COMMIT_RESOLVE),
                 VOW_STATUS_LOST, false);
    er.alive = 5;
    check_commit(&er, resolve, VOW_STATUS_LOST, false);
}

TEST(etcd_judge, commits_of_what_is_settled)
{
    struct vow__er er = er_of(VOW__ER_DONE, 1);
    const vow_commit_request *put = COMMIT("a", 2, 11, .flags = VOW_COMMIT_PUT);
    check_commit(&er, COMMIT("a", 1, 10), VOW_STATUS_OWNED, false);
    check_commit(&er, COMMIT("a", 2, 10), VOW_STATUS_SETTLED, false);
    check_commit(&er, COMMIT("a", 2, 11), VOW_STATUS_SETTLED, false);
    check_commit(&er, put, VOW_STATUS_OWNED, true);
    check_commit(&er, COMMIT("a", 2, 9, .flags = VOW_COMMIT_PUT),
                 VOW_STATUS_SETTLED, false);
    er.hidden = true;
    check_commit(&er, COMMIT("a", 2, 9), VOW_STATUS_SETTLED, false);
    check_commit(&er, COMMIT("a", 2, 11), VOW_STATUS_OWNED, true);
    check_commit(&er, put, VOW_STATUS_OWNED, true);
    check_commit(&er, COMMIT("a", 2, 11, .flags = VOW_COMMIT_STRICT),
                 VOW_STATUS_NONE, false);
}
