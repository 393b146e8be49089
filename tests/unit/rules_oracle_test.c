/* SPDX-License-Identifier: MIT */
/* rules_oracle_test.c - the requests of tests/lib/oracle.h reach every cell of
 * the state table, and the oracle carries out decisions. */
#include "oracle.h"
#include "world.h"

#include <string.h>

enum { STEPS = 200, ENOUGH = 100, HISTORIES_MAX = 5000 };
#define START_US (UINT64_C(1000) * RULES_DAY_US)
#define RECHECK_MS (UINT64_C(300) * RULES_MINUTE_US / 1000)

static struct oracle oracle;

static void open_oracle(void)
{
    oracle_init(&oracle, &(struct oracle_opts){.recheck_ms = RECHECK_MS});
    oracle.now_us = oracle.number = START_US;
}

TEST(rules_oracle, random_requests_reach_every_cell)
{
    struct world w;
    uint64_t seed = test_seed();
    const vow_name name = vow_name_of("a");
    char missing[128] = "";
    int histories = 0;
    world_open(&w);
    open_oracle();
    while (oracle_missing(&oracle, ENOUGH, missing, sizeof(missing))) {
        if (histories++ == HISTORIES_MAX)
            FAIL("not reached: %s", missing);
        oracle_clear(&oracle);
        for (int i = 0; i < STEPS; i++) {
            struct oracle_request q;
            struct oracle_answer a;
            struct oracle_event e;
            vow_bytes *value;
            oracle_choose(&oracle, &name, oracle_draw(&seed, (size_t)i), &q);
            CHECK_INT_EQ(
                vow_bytes_new(w.loop, q.bytes, strlen(q.bytes), &value), 0);
            oracle_do(&oracle, &q, value, &a);
            vow_bytes_unref(value);
            CHECK_INT_EQ(a.code, 0);
            for (size_t k = 0; k < ORACLE_INSTANCES; k++)
                while (oracle_event_take(&oracle, k, &e))
                    CHECK(vow_name_equal(&e.name, &name));
        }
    }
    world_close(&w);
}

TEST(rules_oracle, a_registered_instance_is_told_the_result_and_reads_it)
{
    struct oracle_answer a;
    struct oracle_event e;
    struct world w;
    vow_bytes *value;
    const vow_name name = vow_name_of("a");
    vow_claim_request claim = {
        .name = name, .token = {{1}}, .lease_ms = 60000, .runner = "host:1"};
    world_open(&w);
    open_oracle();
    oracle_claim(&oracle, 0, &claim, &a);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    vow_commit_request commit = {
        .hold = {name, claim.token, a.epoch, VOW_SHARED},
        .outcome = VOW_OUTCOME_DONE};
    claim.token.bytes[0] = 2;
    oracle_claim(&oracle, 1, &claim, &a);
    CHECK_UINT_EQ(a.status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(a.waiters, 1);
    CHECK_INT_EQ(vow_bytes_new(w.loop, "text", 4, &value), 0);
    commit.value = value;
    oracle_commit(&oracle, 0, &commit, &a);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK(oracle_event_take(&oracle, 1, &e));
    CHECK_INT_EQ(e.kind, ORACLE_SETTLED);
    CHECK_MEM_EQ(e.record.value.bytes, "text", 4);
    CHECK(!oracle_event_take(&oracle, 1, &e));
    claim.waited = commit.hold.epoch;
    oracle_claim(&oracle, 1, &claim, &a);
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK(a.shows_value);
    CHECK_MEM_EQ(a.record.value.bytes, "text", 4);
    CHECK_STR_EQ(a.record.runner, "host:1");
    claim.waited = 0;
    oracle_claim(&oracle, 1, &claim, &a);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    vow_bytes_unref(value);
    world_close(&w);
}
