/* SPDX-License-Identifier: MIT */
/* etcd_commit_test.c - where values lie, how long they stay, and who may settle
 * what. */
#include "etcd_names_kit.h"

enum { LARGE = 20 * 1024 };

static struct answer commit_size(struct names *n, size_t i,
                                 const vow_commit_request *ask, size_t size)
{
    struct answer a = {.done = false};
    vow_commit_request with = *ask;
    VOW_AUTO(vow_bytes) value = NULL;
    CHECK_INT_EQ(vow_bytes_new(n->w->loop, NULL, size, &value), 0);
    memset(vow_bytes_data(value), 'x', size);
    with.value = value;
    n->at[i].store->ops->commit(n->at[i].store, &with, on_records, &a);
    return *await(n, &a);
}

static unsigned values(struct names *n)
{
    return (unsigned)etcd_count(n->member, "vow/v/");
}

/* ---- where values lie ---------------------------------------------------- */

TEST(etcd_commit, a_large_value_lies_apart_and_goes_with_its_record)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    CHECK_UINT_EQ(commit_size(n, 0, COMMIT("a", 1, epoch), LARGE).status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(values(n), 1);
    struct answer a = claim(n, 1, ASK("a", 2));
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(a.size, LARGE);
    CHECK_UINT_EQ(peek(n, 1, "a").size, 0);
    CHECK_UINT_EQ(forget(n, 1, "a", epoch).status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(values(n), 0);
    names_close(n);
}

TEST(etcd_commit, a_small_value_lies_within)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    (void)commit_size(n, 0, COMMIT("a", 1, epoch), 16 * 1024);
    CHECK_UINT_EQ(values(n), 0);
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 2)).size, 16 * 1024);
    names_close(n);
}

TEST(etcd_commit, a_value_that_is_replaced_goes)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    (void)commit_size(n, 0, COMMIT("a", 1, epoch), LARGE);
    uint64_t next = claim(n, 0, ASK("again", 2)).epoch;
    CHECK_UINT_EQ(
        commit(n, 0, COMMIT("a", 2, next, .flags = VOW_COMMIT_PUT), "y").status,
        VOW_STATUS_OWNED);
    CHECK_UINT_EQ(values(n), 0);
    uint64_t last = claim(n, 0, ASK("again and again", 3)).epoch;
    (void)commit_size(n, 0, COMMIT("a", 3, last, .flags = VOW_COMMIT_PUT),
                      LARGE);
    CHECK_UINT_EQ(values(n), 1);
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 4, .flags = VOW_CLAIM_FORCE)).status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(values(n), 0);
    names_close(n);
}

TEST(etcd_commit, who_waited_reads_a_large_hidden_value)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
    (void)commit_size(n, 0, COMMIT("a", 1, epoch, .ttl_ms = 0), LARGE);
    CHECK_UINT_EQ(claim(n, 0, ASK("a", 3)).status, VOW_STATUS_OWNED);
    struct answer a = claim(n, 1, ASK("a", 2));
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(a.size, LARGE);
    CHECK_UINT_EQ(a.epoch, epoch);
    names_close(n);
}

TEST(etcd_commit, a_late_owner_gets_a_large_hidden_value)
{
    struct names *n = names_open();
    uint64_t late = claim(n, 0, ASK("a", 1, .lease_ms = 0)).epoch;
    uint64_t epoch = claim(n, 1, ASK("a", 2)).epoch;
    (void)commit_size(n, 1, COMMIT("a", 2, epoch, .ttl_ms = 0), LARGE);
    struct answer a = commit(n, 0, COMMIT("a", 1, late), "late");
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(a.size, LARGE);
    names_close(n);
}

TEST(etcd_commit, a_value_that_etcd_does_not_keep_is_refused_with_a_sentence)
{
    struct names *n = names_open();
    vow_store *s = n->at[0].store;
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    struct answer a = commit_size(n, 0, COMMIT("a", 1, epoch), 64 * 1024 + 1);
    CHECK_INT_EQ(a.code, VOW_E2BIG);
    CHECK(strstr(s->ops->explain(s), "--results") != NULL);
    CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(commit(n, 0, COMMIT("a", 1, epoch), "short").status,
                  VOW_STATUS_OWNED);
    names_close(n);
}

TEST(etcd_commit, a_value_that_has_gone_is_not_the_result_any_more)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    struct answer a = {.done = false};
    vow_store *s = n->at[1].store;
    (void)commit_size(n, 0, COMMIT("a", 1, epoch), LARGE);
    n->hold = true;
    s->ops->claim(s, ASK("a", 2), on_records, &a);
    while (n->held[0] == 0)
        names_step(n);
    CHECK_UINT_EQ(forget(n, 0, "a", 0).status, VOW_STATUS_NONE);
    names_let_go(n);
    CHECK_UINT_EQ(await(n, &a)->status, VOW_STATUS_OWNED);
    names_close(n);
}

/* ---- how long ------------------------------------------------------------ */

TEST(etcd_commit, a_short_ttl_ends_when_it_is_over)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    (void)commit(n, 0, COMMIT("a", 1, epoch, .ttl_ms = 5000), "x");
    names_pass(n, 4900);
    CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_SETTLED);
    names_pass(n, 200);
    CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_NONE);
    names_close(n);
}

TEST(etcd_commit, a_result_that_was_replaced_has_its_own_time)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    (void)commit(n, 0, COMMIT("a", 1, epoch, .ttl_ms = 5000), "x");
    epoch = claim(n, 1, ASK("other", 2)).epoch;
    (void)commit(n, 1, COMMIT("a", 2, epoch, .flags = VOW_COMMIT_PUT), "y");
    names_pass(n, 6000);
    CHECK_STR_EQ(claim(n, 1, ASK("a", 3)).value, "y");
    names_close(n);
}

TEST(etcd_commit, one_without_an_end_hangs_on_nothing)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    (void)commit(n, 0, COMMIT("a", 1, epoch, .ttl_ms = UINT64_MAX), "x");
    CHECK(etcd_revoke_all(n->member) > 0);
    struct answer a = claim(n, 1, ASK("a", 2));
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(a.left_ms, UINT64_MAX);
    names_close(n);
}

TEST(etcd_commit, in_mode_once_a_record_hangs_on_nothing)
{
    struct names *n = names_open();
    (void)claim(n, 0, ASK("a", 1, .mode = VOW_ONCE));
    (void)claim(n, 0, ASK("b", 2, .mode = VOW_FENCED));
    CHECK(etcd_revoke_all(n->member) > 0);
    CHECK_UINT_EQ(peek(n, 1, "a").status, VOW_STATUS_DOUBT);
    CHECK(etcd_get(n->member, whole_key("n", "b", "/r")) == NULL);
    names_close(n);
}

TEST(etcd_commit, a_run_leaves_nothing_but_its_result)
{
    struct names *n = names_open();
    vow_hold hold = hold_of("a", 1, 0);
    hold.epoch = claim(n, 0, ASK("a", 1)).epoch;
    (void)claim(n, 1, ASK("a", 2));
    (void)write_text(n, 0, hold, 0, "one");
    (void)cancel(n, 1, "a");
    CHECK_UINT_EQ(etcd_count(n->member, "vow/"), 5);
    CHECK_UINT_EQ(commit(n, 0, COMMIT("a", 1, hold.epoch), "x").status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(etcd_count(n->member, "vow/"), 1);
    names_close(n);
}

/* ---- closing ------------------------------------------------------------- */

TEST(etcd_commit, a_store_that_owns_nothing_takes_its_long_lease_along)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    (void)commit(n, 0, COMMIT("a", 1, epoch), "x");
    (void)claim(n, 1, ASK("b", 2));
    fake_etcd_end(&n->at[0]);
    CHECK(strstr(n->at[0].log, "lease/revoke") != NULL);
    fake_etcd_end(&n->at[1]);
    CHECK(strstr(n->at[1].log, "lease/revoke") == NULL);
    CHECK(etcd_get(n->member, whole_key("n", "a", "/r")) != NULL);
    CHECK(etcd_get(n->member, whole_key("n", "b", "/r")) != NULL);
    world_run(n->w);
    world_close(n->w);
    etcd_stop(n->member);
}
