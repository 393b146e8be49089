/* SPDX-License-Identifier: MIT */
/* redis_gifts_test.c - results of ttl 0 at a real server: where they are, for
 * whom, and that those who waited for one do not wait for what comes next. */
#include "redis_names_kit.h"

#include <stdlib.h>

static const char a_while[] = "3600000";
static const char a_moment[] = "50";

struct keys {
    char record[128];
    char waits[132];
    char gifts[132];
};

static struct keys keys_of(const char *name)
{
    struct keys k;
    char text[VOW_NAME_TEXT];
    vow_name a = vow_name_of(name);
    snprintf(k.record, sizeof(k.record), "vow:p:{%s}", vow_name_text(&a, text));
    snprintf(k.waits, sizeof(k.waits), "%s:w", k.record);
    snprintf(k.gifts, sizeof(k.gifts), "%s:g", k.record);
    return k;
}

/* By the first store, while the second waits, which hears of it; kept for so
 * long, and as long again as who waits looks. */
static uint64_t give(struct names *n, const char *value, const char *kept_ms)
{
    struct keys k = keys_of("a");
    uint64_t epoch = claim(n, 0, "a", 1).epoch;
    unsigned before = n->heard[1].records;
    CHECK_UINT_EQ(claim(n, 1, "a", 2).status, VOW_STATUS_WAITING);
    (void)redis_say(&n->server, "HSET", k.record, "L", kept_ms, NULL);
    CHECK_UINT_EQ(commit(n, 0, hold_of("a", 1, epoch), value, 0).status,
                  VOW_STATUS_OWNED);
    run_until(n, &n->heard[1].records, before + 1);
    return epoch;
}

static long number_said(struct names *n, const char *word, const char *key)
{
    return strtol(redis_say(&n->server, word, key, NULL), NULL, 10);
}

static bool is_there(struct names *n, const char *key)
{
    return number_said(n, "EXISTS", key) == 1;
}

TEST(redis_gifts, a_hidden_result_stays_in_its_record_until_somebody_asks)
{
    struct names n;
    struct keys k = keys_of("a");
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS, .inline_max = 1));
    uint64_t epoch = give(&n, "result", a_while);
    CHECK(!is_there(&n, k.gifts));
    CHECK_STR_EQ(redis_say(&n.server, "HGET", k.record, "v", NULL), "result");
    CHECK_INT_EQ(number_said(&n, "HLEN", k.waits), 1);
    struct answer next = claim(&n, 0, "a", 3);
    CHECK_UINT_EQ(next.status, VOW_STATUS_OWNED);
    CHECK(is_there(&n, k.gifts) && !is_there(&n, k.waits));
    struct answer a = claim(&n, 1, "a", 4); /* which waited for the first */
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(a.epoch, epoch);
    CHECK_MEM_EQ(a.value, "result", 6);
    CHECK_UINT_EQ(claim(&n, 1, "a", 5).status, VOW_STATUS_WAITING);
    CHECK(!is_there(&n, k.gifts));
    names_close(&n);
}

TEST(redis_gifts, who_waited_for_one_does_not_hear_of_the_next)
{
    struct names n;
    struct keys k = keys_of("a");
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS));
    (void)give(&n, "result", a_while);
    unsigned heard = n.heard[1].records;
    struct answer next = claim(&n, 0, "a", 3);
    CHECK_UINT_EQ(next.status, VOW_STATUS_OWNED);
    CHECK_INT_EQ(number_said(&n, "HLEN", k.waits), 0);
    (void)commit(&n, 0, hold_of("a", 3, next.epoch), "next", LONG_MS);
    CHECK_UINT_EQ(claim(&n, 1, "a", 4).status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(n.heard[1].records, heard);
    names_close(&n);
}

TEST(redis_gifts, a_result_that_is_put_keeps_the_hidden_one_for_who_waited)
{
    struct names n;
    struct keys k = keys_of("a");
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS, .inline_max = 1));
    uint64_t epoch = give(&n, "result", a_while);
    unsigned heard = n.heard[1].records;
    (void)commit(&n, 0, hold_of("a", 7, epoch + 1), "put", LONG_MS);
    CHECK(is_there(&n, k.gifts) && !is_there(&n, k.waits));
    struct answer a = claim(&n, 1, "a", 4);
    CHECK_UINT_EQ(a.epoch, epoch);
    CHECK_MEM_EQ(a.value, "result", 6);
    CHECK_MEM_EQ(claim(&n, 1, "a", 5).value, "put", 3);
    CHECK_UINT_EQ(n.heard[1].records, heard);
    names_close(&n);
}

TEST(redis_gifts, the_list_of_who_waited_ends_with_the_result)
{
    struct names n;
    struct keys k = keys_of("a");
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS, .recheck_ms = 1));
    uint64_t epoch = give(&n, "result", a_moment);
    unsigned heard = n.heard[1].records;
    for (int i = 0; is_there(&n, k.record); i++) {
        CHECK(i < PATIENCE_MS);
        let_pass_ms(&n, 1);
    }
    CHECK(!is_there(&n, k.waits));
    struct answer a = pulse(&n, 0, hold_of("a", 1, epoch));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    (void)commit(&n, 0, hold_of("a", 1, a.epoch), "next", LONG_MS);
    CHECK_UINT_EQ(claim(&n, 1, "a", 4).status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(n.heard[1].records, heard);
    names_close(&n);
}

/* Its keys may be there for a moment longer. */
static void end_record(struct names *n, const struct keys *k)
{
    (void)redis_say(&n->server, "HSET", k->record, "d", "1", NULL);
}

TEST(redis_gifts, a_list_that_outlives_its_result_is_not_the_next_ones)
{
    struct names n;
    struct keys k = keys_of("a");
    names_open(&n, VOW_REDIS_OPTS(.timeout_ms = PATIENCE_MS, .inline_max = 1));
    (void)give(&n, "result", a_while);
    end_record(&n, &k);
    CHECK_UINT_EQ(claim(&n, 0, "a", 4).status, VOW_STATUS_OWNED);
    CHECK(!is_there(&n, k.waits) && !is_there(&n, k.gifts));
    CHECK_STR_EQ(redis_say(&n.server, "DEL", k.record, NULL), "1");
    uint64_t epoch = give(&n, "result", a_while);
    end_record(&n, &k);
    unsigned heard = n.heard[1].records;
    (void)commit(&n, 0, hold_of("a", 7, epoch + 1), "next", LONG_MS);
    CHECK(!is_there(&n, k.waits) && !is_there(&n, k.gifts));
    CHECK_MEM_EQ(claim(&n, 1, "a", 5).value, "next", 4);
    CHECK_UINT_EQ(n.heard[1].records, heard);
    names_close(&n);
}
