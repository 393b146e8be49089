/* SPDX-License-Identifier: MIT */
/* redis_chunks_test.c - chunks on a real server, whose answers are lost. */
#include "redis_names_kit.h"

#include <signal.h>

/* With a timeout that a busy machine may exceed: until there is an answer. */
static struct answer claim_at_last(struct names *n, const char *name)
{
    struct answer a;
    do
        a = claim(n, 0, name, 1);
    while (a.code == VOW_EUNSURE || a.code == VOW_ESTORE);
    return a;
}

static struct answer write_at_last(struct names *n, vow_hold hold,
                                   uint64_t number, const char *text)
{
    struct answer a;
    do {
        let_pass_ms(n, 5);
        a = write_one(n, 0, hold, number, text);
    } while (a.code == VOW_EUNSURE || a.code == VOW_ESTORE);
    return a;
}

static struct answer read_at_last(struct names *n, vow_hold hold)
{
    struct answer a;
    do
        a = read_all(n, 0, hold);
    while (a.code == VOW_EUNSURE || a.code == VOW_ESTORE);
    return a;
}

TEST(redis_chunks, a_chunk_whose_answer_was_lost_is_there_once)
{
    struct names n;
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = 300));
    struct answer own = claim_at_last(&n, "a");
    vow_hold hold = hold_of("a", 1, own.epoch);
    CHECK_UINT_EQ(write_at_last(&n, hold, 0, "one").status, VOW_STATUS_OWNED);
    struct answer two = {.done = 0};
    VOW_AUTO(vow_bytes) chunk = bytes_of(&n, "two");
    CHECK_INT_EQ(kill(n.server.pid, SIGSTOP), 0);
    n.at[0]->ops->write(n.at[0], &hold, 1, chunk, on_records, &two);
    run_until(&n, &two.done, 1);
    CHECK_INT_EQ(kill(n.server.pid, SIGCONT), 0); /* the chunk is stored now */
    CHECK_INT_EQ(two.code, VOW_EUNSURE);
    CHECK_UINT_EQ(write_at_last(&n, hold, 1, "two").status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(write_at_last(&n, hold, 2, "three").status, VOW_STATUS_OWNED);
    CHECK_STR_EQ(read_at_last(&n, hold).chunks, "one|two|three|");
    chunk = vow_bytes_unref(chunk);
    names_close(&n);
}

TEST(redis_chunks, a_number_beyond_the_next_is_not_stored)
{
    struct names n;
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS));
    struct answer own = claim(&n, 0, "a", 1);
    vow_hold hold = hold_of("a", 1, own.epoch);
    static const char *const texts[] = {"a", "c", "b", "again", "c"};
    static const uint64_t numbers[] = {0, 2, 1, 0, 2};
    for (size_t i = 0; i < 5; i++)
        CHECK_UINT_EQ(write_one(&n, 0, hold, numbers[i], texts[i]).status,
                      VOW_STATUS_OWNED);
    CHECK_STR_EQ(read_all(&n, 0, hold).chunks, "a|b|c|");
    names_close(&n);
}

TEST(redis_chunks, chunks_after_the_end_of_the_run_are_lost)
{
    struct names n;
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS));
    struct answer own = claim(&n, 0, "a", 1);
    vow_hold hold = hold_of("a", 1, own.epoch);
    struct answer a[2] = {{.done = 0}};
    struct answer committed = {.done = 0};
    VOW_AUTO(vow_bytes) chunk = bytes_of(&n, "chunk");
    const vow_commit_request ask = {
        .hold = hold, .outcome = VOW_OUTCOME_DONE, .ttl_ms = LONG_MS};
    n.at[0]->ops->write(n.at[0], &hold, 0, chunk, on_records, &a[0]);
    n.at[0]->ops->commit(n.at[0], &ask, on_records, &committed);
    n.at[0]->ops->write(n.at[0], &hold, 1, chunk, on_records, &a[1]);
    run_until(&n, &a[1].done, 1);
    CHECK_UINT_EQ(a[0].status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(committed.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(a[1].status, VOW_STATUS_LOST);
    chunk = vow_bytes_unref(chunk);
    names_close(&n);
}

TEST(redis_chunks, many_at_once_come_in_their_order)
{
    struct names n;
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS));
    struct answer own = claim(&n, 0, "a", 1);
    vow_hold hold = hold_of("a", 1, own.epoch);
    struct answer a[10] = {{.done = 0}};
    for (size_t i = 0; i < 10; i++) {
        const char text[2] = {(char)('0' + i), 0};
        VOW_AUTO(vow_bytes) chunk = bytes_of(&n, text);
        n.at[0]->ops->write(n.at[0], &hold, i, chunk, on_records, &a[i]);
    }
    for (size_t i = 0; i < 10; i++) {
        run_until(&n, &a[i].done, 1);
        CHECK_UINT_EQ(a[i].status, VOW_STATUS_OWNED);
    }
    CHECK_STR_EQ(read_all(&n, 0, hold).chunks, "0|1|2|3|4|5|6|7|8|9|");
    names_close(&n);
}

TEST(redis_chunks, all_chunks_are_not_larger_than_a_result)
{
    struct names n;
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS, .value_max = 10));
    struct answer own = claim(&n, 0, "a", 1);
    vow_hold hold = hold_of("a", 1, own.epoch);
    CHECK_INT_EQ(write_one(&n, 0, hold, 0, "01234567890").code, VOW_E2BIG);
    CHECK_UINT_EQ(write_one(&n, 0, hold, 0, "1234").status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(write_one(&n, 0, hold, 1, "1234").status, VOW_STATUS_OWNED);
    CHECK_INT_EQ(write_one(&n, 0, hold, 2, "1234").code, VOW_E2BIG);
    CHECK_UINT_EQ(write_one(&n, 0, hold, 2, "12").status, VOW_STATUS_OWNED);
    CHECK_STR_EQ(read_all(&n, 0, hold).chunks, "1234|1234|12|");
    names_close(&n);
}
