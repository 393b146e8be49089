/* SPDX-License-Identifier: MIT */
/* redis_names_test.c - names on a real server, beside the contract: epochs over
 * a flush, results that are fetched, what the server keeps, a server that was
 * tampered with, and lack of memory. */
#include "redis_names_kit.h"

#include <inttypes.h>
#include <stdlib.h>

static uint64_t server_us(struct names *n)
{
    char *end;
    const char *said = redis_say(&n->server, "TIME", NULL);
    uint64_t seconds = strtoull(said, &end, 10);
    return seconds * 1000000 + strtoull(end, NULL, 10);
}

/* ---- epochs -------------------------------------------------------------- */

TEST(redis_names, epochs_go_on_above_a_floor_that_is_ahead_of_the_clock)
{
    struct names n;
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS));
    vow_claim_request ask = {.name = vow_name_of("a"),
                             .takeovers = 9,
                             .token = token_of(1),
                             .floor = server_us(&n) + UINT64_C(3600) * 1000000};
    struct answer a = claim_with(&n, 0, &ask);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(a.epoch, ask.floor + 1);
    ask.floor = 0;
    for (int i = 2; i < 5; i++) { /* taken over */
        uint64_t before = a.epoch;
        ask.token = token_of(i);
        a = claim_with(&n, 0, &ask);
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(a.epoch, before + 1);
    }
    CHECK_UINT_EQ(commit(&n, 0, hold_of("a", 4, a.epoch), "x", 0).status,
                  VOW_STATUS_OWNED);
    ask.token = token_of(9);
    CHECK_UINT_EQ(claim_with(&n, 0, &ask).epoch, a.epoch + 1);
    names_close(&n);
}

TEST(redis_names, an_epoch_of_more_than_a_day_ahead_is_refused)
{
    struct names n;
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS));
    uint64_t far = server_us(&n) + UINT64_C(2) * 24 * 3600 * 1000000;
    vow_claim_request ask = {
        .name = vow_name_of("a"), .token = token_of(1), .floor = far};
    CHECK_INT_EQ(claim_with(&n, 0, &ask).code, VOW_EINVAL);
    ask.floor = UINT64_MAX;
    CHECK_INT_EQ(claim_with(&n, 0, &ask).code, VOW_EINVAL);
    CHECK_INT_EQ(commit(&n, 0, hold_of("a", 1, far), "x", 1).code, VOW_EINVAL);
    CHECK_INT_EQ(commit(&n, 0, hold_of("a", 1, UINT64_MAX), "x", 1).code,
                 VOW_EINVAL);
    CHECK_INT_EQ(commit(&n, 0, hold_of("a", 1, 0), "x", 1).code, VOW_EINVAL);
    CHECK_UINT_EQ(pulse(&n, 0, hold_of("a", 1, far)).status, VOW_STATUS_LOST);
    CHECK_INT_EQ(pulse(&n, 0, hold_of("a", 1, UINT64_MAX)).code, VOW_EINVAL);
    CHECK_STR_EQ(redis_say(&n.server, "DBSIZE", NULL), "0");
    names_close(&n);
}

TEST(redis_names, a_pulse_heals_a_flush_and_keeps_its_epoch)
{
    struct names n;
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS));
    struct answer own = claim(&n, 0, "a", 1);
    CHECK_STR_EQ(redis_say(&n.server, "FLUSHALL", NULL), "OK");
    struct answer a = pulse(&n, 0, hold_of("a", 1, own.epoch));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(a.epoch, own.epoch);
    CHECK_UINT_EQ(claim(&n, 1, "a", 2).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(commit(&n, 0, hold_of("a", 1, own.epoch), "x", 1).status,
                  VOW_STATUS_OWNED);
    names_close(&n);
}

TEST(redis_names, who_claimed_after_a_flush_is_not_replaced_by_a_late_result)
{
    struct names n;
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS));
    struct answer first = claim(&n, 0, "a", 1);
    CHECK_STR_EQ(redis_say(&n.server, "FLUSHALL", NULL), "OK");
    struct answer second = claim(&n, 1, "a", 2);
    CHECK_UINT_EQ(second.status, VOW_STATUS_OWNED);
    CHECK(second.epoch > first.epoch);
    CHECK_UINT_EQ(commit(&n, 0, hold_of("a", 1, first.epoch), "x", 1).status,
                  VOW_STATUS_LOST);
    CHECK_UINT_EQ(commit(&n, 1, hold_of("a", 2, second.epoch), "x", 0).status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(commit(&n, 0, hold_of("a", 1, first.epoch), "x", 1).status,
                  VOW_STATUS_LOST);
    names_close(&n);
}

/* ---- many ---------------------------------------------------------------- */

TEST(redis_names, a_thousand_names_are_pulsed_and_peeked_by_one_step)
{
    enum { MANY = 1000 };
    static vow_hold holds[MANY];
    static vow_name all[MANY];
    struct names n;
    struct answer a = {.done = 0};
    char text[32];
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS));
    for (int i = 0; i < MANY; i++) {
        snprintf(text, sizeof(text), "name %d", i);
        holds[i] = hold_of(text, 1, 5);
        all[i] = holds[i].name;
    }
    n.at[0]->ops->pulse(n.at[0], holds, MANY, LONG_MS, on_records, &a);
    run_until(&n, &a.done, 1);
    CHECK_INT_EQ(a.code, 0);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_STR_EQ(redis_say(&n.server, "DBSIZE", NULL), "1001");
    a.done = 0;
    n.at[1]->ops->peek(n.at[1], all, MANY, on_records, &a);
    run_until(&n, &a.done, 1);
    CHECK_INT_EQ(a.code, 0);
    CHECK_UINT_EQ(a.status, VOW_STATUS_WAITING);
    names_close(&n);
}

/* ---- results that do not come with the message --------------------------- */

/* The waiter is told without the value, and reads the value that was left, as
 * often as the claim comes. */
TEST(redis_names, a_result_is_left_for_the_claims_that_waited)
{
    struct names n;
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS, .inline_max = 1));
    struct answer own = claim(&n, 0, "a", 1);
    CHECK_UINT_EQ(own.first, own.epoch);
    vow_claim_request ask = {
        .name = vow_name_of("a"), .token = token_of(2), .lease_ms = LONG_MS};
    struct answer a = claim_with(&n, 1, &ask);
    CHECK_UINT_EQ(a.status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(a.first, own.epoch);
    (void)commit(&n, 0, hold_of("a", 1, own.epoch), "result", 0);
    run_until(&n, &n.heard[1].records, 1);
    CHECK_UINT_EQ(n.heard[1].status, 0);
    ask.waited = a.first;
    for (int i = 0; i < 2; i++) {
        a = claim_with(&n, 1, &ask);
        CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
        CHECK_UINT_EQ(a.epoch, own.epoch);
        CHECK_MEM_EQ(a.value, "result", 6);
    }
    ask.waited = 0;
    CHECK_UINT_EQ(claim_with(&n, 1, &ask).status, VOW_STATUS_OWNED);
    names_close(&n);
}

/* The owner was stopped; with half a second besides the lease, as for waiters,
 * the result would be gone when the owner goes on. */
TEST(redis_names, a_result_is_left_for_a_replaced_owner)
{
    struct names n;
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS));
    vow_claim_request ask = {.name = vow_name_of("a"), .token = token_of(1)};
    struct answer lost = claim_with(&n, 0, &ask);
    CHECK_UINT_EQ(lost.status, VOW_STATUS_OWNED);
    ask.token = token_of(2);
    ask.lease_ms = 1;
    ask.takeovers = 1;
    struct answer own = claim_with(&n, 1, &ask);
    CHECK_UINT_EQ(own.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(own.first, lost.epoch);
    (void)commit(&n, 1, hold_of("a", 2, own.epoch), "result", 0);
    ask.token = token_of(1);
    ask.waited = lost.first;
    struct answer a = claim_with(&n, 0, &ask);
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_MEM_EQ(a.value, "result", 6);
    CHECK(a.left_ms > 10000); /* of a minute */
    names_close(&n);
}

/* ---- what is kept -------------------------------------------------------- */

TEST(redis_names, every_key_has_an_end)
{
    struct names n;
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS));
    struct answer own = claim(&n, 0, "a", 1);
    (void)claim(&n, 1, "a", 2);
    (void)write_one(&n, 0, hold_of("a", 1, own.epoch), 0, "chunk");
    own = claim(&n, 0, "b", 1);
    (void)claim(&n, 1, "b", 2);
    (void)commit(&n, 0, hold_of("b", 1, own.epoch), "x", 0);
    own = claim(&n, 0, "c", 1);
    (void)commit(&n, 0, hold_of("c", 1, own.epoch), "x", LONG_MS);
    (void)pulse(&n, 0, hold_of("d", 1, 5));
    char keys[4096];
    snprintf(keys, sizeof(keys), "%s",
             redis_say(&n.server, "KEYS", "vow:*", NULL));
    unsigned seen = 0;
    for (char *key = strtok(keys, "\n"); key != NULL;
         key = strtok(NULL, "\n")) {
        const char *left = redis_say(&n.server, "PTTL", key, NULL);
        if (strtoll(left, NULL, 10) <= 0)
            FAIL("%s has no end", key);
        seen++;
    }
    CHECK_UINT_EQ(seen, 8);
    names_close(&n);
}

/* As if its clock had been an hour ahead until now. */
TEST(redis_names, a_clock_that_is_set_back_takes_no_epoch_back)
{
    enum { HOUR_US = 3600 * 1000000L };
    struct names n;
    char key[128];
    char ahead[32];
    char name[VOW_NAME_TEXT];
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS));
    uint64_t epoch = claim(&n, 0, "a", 1).epoch + (uint64_t)HOUR_US;
    memset(name, '-', sizeof(name));
    snprintf(key, sizeof(key), "vow:p:{%.*s}:e", VOW_NAME_TEXT - 1, name);
    snprintf(ahead, sizeof(ahead), "%" PRIu64, epoch);
    CHECK_STR_EQ(redis_say(&n.server, "SET", key, ahead, NULL), "OK");
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "new %d", i);
        CHECK_UINT_EQ(claim(&n, 1, name, 2 + i).epoch, epoch + 1 + (uint64_t)i);
    }
    CHECK_UINT_EQ(pulse(&n, 0, hold_of("gone", 9, 5)).epoch, 5);
    CHECK_UINT_EQ(claim(&n, 1, "last", 8).epoch, epoch + 4);
    names_close(&n);
}

/* ---- a server that was tampered with ------------------------------------- */

static void key_of(const char *text, char key[128])
{
    char name[VOW_NAME_TEXT];
    vow_name a = vow_name_of(text);
    snprintf(key, 128, "vow:p:{%s}", vow_name_text(&a, name));
}

/* As if its clock had been an hour ahead when the owner, who is dead now, gave
 * its last sign. */
TEST(redis_names, a_clock_that_is_set_back_keeps_nobody_waiting)
{
    enum { LEASE_MS = 200 };
    static const char hour_us[] = "3600000000";
    struct names n;
    char key[128];
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS));
    vow_claim_request ask = {.name = vow_name_of("a"),
                             .token = token_of(1),
                             .lease_ms = LEASE_MS,
                             .takeovers = 3};
    CHECK_UINT_EQ(claim_with(&n, 0, &ask).status, VOW_STATUS_OWNED);
    key_of("a", key);
    (void)redis_say(&n.server, "HINCRBY", key, "d", hour_us, NULL);
    struct answer seen = {.done = 0};
    n.at[1]->ops->peek(n.at[1], &ask.name, 1, on_records, &seen);
    run_until(&n, &seen.done, 1);
    CHECK_UINT_EQ(seen.status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(seen.left_ms, LEASE_MS);
    ask.token = token_of(2);
    CHECK_UINT_EQ(claim_with(&n, 1, &ask).status, VOW_STATUS_WAITING);
    let_pass_ms(&n, LEASE_MS + 1);
    CHECK_UINT_EQ(claim_with(&n, 1, &ask).status, VOW_STATUS_OWNED);
    names_close(&n);
}

TEST(redis_names, a_record_that_makes_no_sense_is_trouble)
{
    static const struct {
        const char *field, *value;
    } cases[] = {
        {"s", "Q"},  {"s", "RR"},         {"e", "0"},
        {"e", "-5"}, {"e", "x"},          {"e", "18446744073709551616"},
        {"m", "7"},  {"a", "5000000000"}, {"d", "tomorrow"}};
    struct names n;
    char key[128];
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS));
    key_of("a", key);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void)redis_say(&n.server, "DEL", key, NULL);
        CHECK_UINT_EQ(claim(&n, 0, "a", 1).status, VOW_STATUS_OWNED);
        (void)redis_say(&n.server, "HSET", key, cases[i].field, cases[i].value,
                        NULL);
        struct answer a = claim(&n, 1, "a", 2);
        if (a.code != VOW_EUNSURE && a.code != VOW_ESTORE)
            FAIL("%s %s: code %d, says %u", cases[i].field, cases[i].value,
                 a.code, a.status);
        CHECK(n.at[1]->ops->explain(n.at[1])[0] != 0);
    }
    (void)redis_say(&n.server, "DEL", key, NULL);
    (void)redis_say(&n.server, "SET", key, "text", NULL);
    CHECK_INT_EQ(claim(&n, 0, "a", 1).code, VOW_ESTORE);
    names_close(&n);
}

/* Chunks and who waited go; a result does not have the end of its lease. */
TEST(redis_names, what_a_commit_leaves_ends_when_it_should)
{
    static const struct {
        uint64_t ttl_ms;
        long long least_ms, most_ms;
        const char *keys; /* with the one of epochs */
    } cases[] = {{0, 1, 2 * LONG_MS, "3"},
                 {600000, 1, 600000, "2"},
                 {86400000000, 86000000000, 86400000000, "2"},
                 {UINT64_MAX, -1, -1, "2"}};
    struct names n;
    char key[128];
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS));
    key_of("a", key);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void)redis_say(&n.server, "FLUSHALL", NULL);
        struct answer own = claim(&n, 0, "a", 1);
        vow_hold hold = hold_of("a", 1, own.epoch);
        (void)write_one(&n, 0, hold, 0, "chunk");
        CHECK_UINT_EQ(claim(&n, 1, "a", 2).status, VOW_STATUS_WAITING);
        CHECK_STR_EQ(redis_say(&n.server, "DBSIZE", NULL), "4");
        (void)commit(&n, 0, hold, "x", cases[i].ttl_ms);
        CHECK_STR_EQ(redis_say(&n.server, "DBSIZE", NULL), cases[i].keys);
        long long left =
            strtoll(redis_say(&n.server, "PTTL", key, NULL), NULL, 10);
        if (left < cases[i].least_ms || left > cases[i].most_ms)
            FAIL("case %zu: %lld ms are left", i, left);
    }
    names_close(&n);
}

TEST(redis_names, any_field_that_is_missing_is_survived)
{
    static const char fields[] = "semftdclroiLanbxhv";
    struct names n;
    char key[128];
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS));
    key_of("a", key);
    for (size_t i = 0; i < sizeof(fields) - 1; i++) {
        const char field[2] = {fields[i], 0};
        for (int settled = 0; settled < 2; settled++) {
            (void)redis_say(&n.server, "FLUSHALL", NULL);
            struct answer own = claim(&n, 0, "a", 1);
            vow_hold hold = hold_of("a", 1, own.epoch);
            (void)write_one(&n, 0, hold, 0, "chunk");
            if (settled)
                (void)commit(&n, 0, hold, "x", 1000);
            (void)redis_say(&n.server, "HDEL", key, field, NULL);
            (void)claim(&n, 1, "a", 2);
            (void)pulse(&n, 0, hold);
            (void)write_one(&n, 0, hold, 0, "chunk");
            (void)read_all(&n, 0, hold);
            struct answer a = commit(&n, 0, hold, "x", 0);
            CHECK(a.code == 0 || a.code == VOW_EUNSURE);
        }
    }
    names_close(&n);
}

TEST(redis_names, sealed_results_cannot_be_swapped_or_turned_into_failures)
{
    struct names n;
    struct folder f;
    char file[FOLDER_MAX + 8];
    char keys[2][128];
    folder_open(&f);
    snprintf(file, sizeof(file), "%s/key", f.path);
    FILE *out = fopen(file, "w");
    CHECK(out != NULL);
    CHECK(fputs("0123456789abcdef0123456789abcdef", out) >= 0);
    CHECK_INT_EQ(fclose(out), 0);
    names_open(&n,
               VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS, .seal_file = file));
    static const char *const texts[] = {"a", "b"};
    for (int i = 0; i < 2; i++) {
        struct answer own = claim(&n, 0, texts[i], 1);
        (void)commit(&n, 0, hold_of(texts[i], 1, own.epoch), "secret", LONG_MS);
        key_of(texts[i], keys[i]);
        CHECK_MEM_EQ(claim(&n, 1, texts[i], 2).value, "secret", 6);
    }
    (void)redis_say(&n.server, "HSET", keys[0], "s", "E", NULL);
    CHECK_INT_EQ(claim(&n, 1, "a", 3).code, VOW_ESTORE);
    (void)redis_say(&n.server, "HSET", keys[0], "s", "D", NULL);
    CHECK_INT_EQ(claim(&n, 1, "a", 3).code, 0);
    (void)redis_say(&n.server, "HSET", keys[0], "e", "5", NULL);
    CHECK_INT_EQ(claim(&n, 1, "a", 3).code, VOW_ESTORE);
    CHECK(strstr(n.at[1]->ops->explain(n.at[1]), "sealed") != NULL);
    (void)redis_say(&n.server, "HDEL", keys[0], "v", NULL);
    CHECK_INT_EQ(claim(&n, 1, "a", 3).code, VOW_ESTORE);
    (void)redis_say(&n.server, "DEL", keys[0], NULL);
    (void)redis_say(&n.server, "RENAME", keys[1], keys[0], NULL);
    CHECK_INT_EQ(claim(&n, 1, "a", 3).code, VOW_ESTORE);
    names_close(&n);
    folder_close(&f);
}

/* ---- without memory ------------------------------------------------------ */

typedef void (*try_fn)(struct names *n, struct answer *out);

static void try_claim(struct names *n, struct answer *out)
{
    n->at[0]->ops->claim(n->at[0],
                         &(vow_claim_request){.name = vow_name_of("a"),
                                              .token = token_of(1),
                                              .lease_ms = LONG_MS},
                         on_records, out);
}

static void try_result(struct names *n, struct answer *out)
{
    n->at[1]->ops->claim(
        n->at[1],
        &(vow_claim_request){.name = vow_name_of("done"), .token = token_of(7)},
        on_records, out);
}

static void try_peek(struct names *n, struct answer *out)
{
    vow_name name = vow_name_of("a");
    n->at[0]->ops->peek(n->at[0], &name, 1, on_records, out);
}

static void try_pulse(struct names *n, struct answer *out)
{
    vow_hold hold = hold_of("p", 1, 5);
    n->at[0]->ops->pulse(n->at[0], &hold, 1, LONG_MS, on_records, out);
}

static void try_read(struct names *n, struct answer *out)
{
    vow_name name = vow_name_of("runs");
    n->at[0]->ops->read(n->at[0], &name, n->epoch, 0, on_chunks, out);
}

static void try_write(struct names *n, struct answer *out)
{
    vow_hold hold = hold_of("runs", 1, n->epoch);
    n->at[0]->ops->write(n->at[0], &hold, 0, n->chunk, on_records, out);
}

static void try_commit(struct names *n, struct answer *out)
{
    n->at[0]->ops->commit(n->at[0],
                          &(vow_commit_request){.hold = hold_of("runs", 1, 5),
                                                .outcome = VOW_OUTCOME_DONE,
                                                .value = n->chunk},
                          on_records, out);
}

TEST(redis_names, every_step_is_answered_once_also_without_memory)
{
    static const try_fn tries[] = {try_claim, try_result, try_peek,  try_pulse,
                                   try_read,  try_write,  try_commit};
    struct names n;
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS));
    struct answer own = claim(&n, 0, "done", 1);
    (void)commit(&n, 0, hold_of("done", 1, own.epoch), "x", LONG_MS);
    n.epoch = claim(&n, 0, "runs", 1).epoch;
    n.chunk = bytes_of(&n, "chunk");
    (void)write_one(&n, 0, hold_of("runs", 1, n.epoch), 0, "chunk");
    for (size_t k = 0; k < sizeof(tries) / sizeof(tries[0]); k++) {
        bool fired = true;
        for (uint64_t i = 1; fired && i < 60; i++) {
            struct answer a = {.done = 0};
            uint64_t fails = n.world.alloc.fails;
            n.world.alloc.fail_at = n.world.alloc.allocs + i;
            tries[k](&n, &a);
            while (a.done == 0 && n.world.alloc.fails == fails) {
                VOW_AUTO(vow_future) pause = vow_delay(n.world.loop, 1);
                (void)vow_loop_run_until(n.world.loop, pause);
            }
            fired = n.world.alloc.fails > fails;
            n.world.alloc.fail_at = 0;
            run_until(&n, &a.done, 1);
            CHECK_UINT_EQ(a.done, 1);
            CHECK(fired || a.code == 0);
        }
        CHECK(!fired);
    }
    vow_bytes_unref(n.chunk);
    names_close(&n);
}
