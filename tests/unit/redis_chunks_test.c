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
                                   const char *text)
{
    struct answer a;
    do {
        let_pass_ms(n, 5);
        a = write_one(n, 0, hold, text);
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
    CHECK_UINT_EQ(write_at_last(&n, hold, "one").status, VOW_STATUS_OWNED);
    struct answer two = {.done = 0};
    struct answer three = {.done = 0};
    VOW_AUTO(vow_bytes) chunk = bytes_of(&n, "two");
    VOW_AUTO(vow_bytes) other = bytes_of(&n, "three");
    CHECK_INT_EQ(kill(n.server.pid, SIGSTOP), 0);
    n.at[0]->ops->write(n.at[0], &hold, 0, chunk, on_records, &two);
    n.at[0]->ops->write(n.at[0], &hold, 0, other, on_records, &three);
    run_until(&n, &two.done, 1);
    CHECK_INT_EQ(kill(n.server.pid, SIGCONT), 0); /* it is written now */
    CHECK_INT_EQ(two.code, VOW_EUNSURE);
    run_until(&n, &three.done, 1);
    CHECK_INT_EQ(three.code, VOW_EAGAIN);
    CHECK_UINT_EQ(write_at_last(&n, hold, "two").status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(write_at_last(&n, hold, "three").status, VOW_STATUS_OWNED);
    CHECK_STR_EQ(read_at_last(&n, hold).chunks, "one|two|three|");
    chunk = vow_bytes_unref(chunk);
    other = vow_bytes_unref(other);
    names_close(&n);
}

TEST(redis_chunks, nothing_is_written_behind_a_chunk_that_is_missing)
{
    struct names n;
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = 300));
    struct answer own = claim_at_last(&n, "a");
    vow_hold hold = hold_of("a", 1, own.epoch);
    CHECK_UINT_EQ(write_at_last(&n, hold, "one").status, VOW_STATUS_OWNED);
    CHECK_STR_EQ(redis_say(&n.server, "CLIENT", "PAUSE", "1000", NULL), "OK");
    struct answer two = write_one(&n, 0, hold, "two");
    CHECK(two.code == VOW_EUNSURE || two.code == 0); /* the pause was over */
    struct answer a = write_at_last(&n, hold, "three");
    if (a.code == 0) { /* it was written before its connection was lost */
        CHECK_STR_EQ(read_at_last(&n, hold).chunks, "one|two|three|");
    } else {
        CHECK_INT_EQ(a.code, VOW_EAGAIN);
        CHECK_UINT_EQ(write_at_last(&n, hold, "two").status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(write_at_last(&n, hold, "three").status,
                      VOW_STATUS_OWNED);
        CHECK_STR_EQ(read_at_last(&n, hold).chunks, "one|two|three|");
    }
    names_close(&n);
}

TEST(redis_chunks, chunks_that_wait_end_with_the_run)
{
    struct names n;
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS));
    struct answer own = claim(&n, 0, "a", 1);
    vow_hold hold = hold_of("a", 1, own.epoch);
    struct answer a[3] = {{.done = 0}};
    VOW_AUTO(vow_bytes) chunk = bytes_of(&n, "chunk");
    for (size_t i = 0; i < 3; i++)
        n.at[0]->ops->write(n.at[0], &hold, 0, chunk, on_records, &a[i]);
    CHECK_UINT_EQ(commit(&n, 0, hold, "x", 1).status, VOW_STATUS_OWNED);
    for (size_t i = 0; i < 3; i++)
        run_until(&n, &a[i].done, 1);
    CHECK_UINT_EQ(a[0].status, VOW_STATUS_OWNED);
    CHECK_INT_EQ(a[1].code, VOW_EAGAIN);
    CHECK_INT_EQ(a[2].code, VOW_EAGAIN);
    chunk = vow_bytes_unref(chunk);
    names_close(&n);
}

TEST(redis_chunks, another_who_writes_to_the_run_is_counted)
{
    struct names n;
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS));
    struct answer own = claim(&n, 0, "a", 1);
    vow_hold hold = hold_of("a", 1, own.epoch);
    static const char *const texts[] = {"a", "b", "c", "d", "e", "f"};
    static const size_t who[] = {0, 1, 0, 0, 1, 1};
    for (size_t i = 0; i < 6; i++)
        CHECK_UINT_EQ(write_one(&n, who[i], hold, texts[i]).status,
                      VOW_STATUS_OWNED);
    CHECK_STR_EQ(read_all(&n, 0, hold).chunks, "a|b|c|d|e|f|");
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
        n.at[0]->ops->write(n.at[0], &hold, 0, chunk, on_records, &a[i]);
    }
    for (size_t i = 0; i < 10; i++) {
        run_until(&n, &a[i].done, 1);
        CHECK_UINT_EQ(a[i].status, VOW_STATUS_OWNED);
    }
    CHECK_STR_EQ(read_all(&n, 0, hold).chunks, "0|1|2|3|4|5|6|7|8|9|");
    names_close(&n);
}

TEST(redis_chunks, what_waits_is_not_larger_than_a_result)
{
    struct names n;
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS, .value_max = 10));
    struct answer own = claim(&n, 0, "a", 1);
    vow_hold hold = hold_of("a", 1, own.epoch);
    struct answer a[4] = {{.done = 0}};
    VOW_AUTO(vow_bytes) chunk = bytes_of(&n, "1234");
    for (size_t i = 0; i < 4; i++)
        n.at[0]->ops->write(n.at[0], &hold, 0, chunk, on_records, &a[i]);
    for (size_t i = 0; i < 4; i++) {
        run_until(&n, &a[i].done, 1);
        CHECK_INT_EQ(a[i].code, i < 2 ? 0 : VOW_E2BIG);
    }
    CHECK_INT_EQ(write_one(&n, 0, hold, "1234").code, VOW_E2BIG);
    CHECK_UINT_EQ(write_one(&n, 0, hold, "12").status, VOW_STATUS_OWNED);
    CHECK_STR_EQ(read_all(&n, 0, hold).chunks, "1234|1234|12|");
    chunk = vow_bytes_unref(chunk);
    names_close(&n);
}
