/* SPDX-License-Identifier: MIT */
/* etcd_service_test.c - named work on etcd: how many requests a step takes,
 * which keys and leases there are, and late requests. */
#include "etcd_names_kit.h"

enum { LEASE_MS = 20000, SOON_MS = 300 };

static uint32_t status_of(struct names *n, const char *text)
{
    return peek(n, 1, text).status;
}

/* The text of the record. */
static const char *record_text(struct names *n, const char *text)
{
    return etcd_get(n->member, whole_key("n", text, "/r"));
}

static void check_word(struct names *n, const char *text, const char *line)
{
    const char *record = record_text(n, text);
    if (strstr(record, line) == NULL)
        FAIL("no \"%s\" in \"%s\"", line, record);
}

/* ---- requests ------------------------------------------------------------ */

TEST(etcd_service, a_step_is_one_transaction)
{
    struct names *n = names_open();
    (void)claim(n, 0, ASK("warm", 9));
    (void)claim(n, 1, ASK("warm", 9));
    n->txns = n->leases = 0;
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch; /* free */
    CHECK_UINT_EQ(n->txns, 1);
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(n->txns, 2); /* taken */
    CHECK_UINT_EQ(n->leases, 0);
    CHECK_UINT_EQ(commit(n, 0, COMMIT("a", 1, epoch), "x").status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(n->txns, 3);
    CHECK_UINT_EQ(n->leases, 1); /* of results */
    CHECK_STR_EQ(claim(n, 1, ASK("a", 2)).value, "x");
    CHECK_UINT_EQ(n->txns, 4);
    epoch = claim(n, 0, ASK("b", 1)).epoch;
    (void)commit(n, 0, COMMIT("b", 1, epoch), "x");
    CHECK_UINT_EQ(n->txns, 6);
    CHECK_UINT_EQ(n->leases, 1); /* is shared */
    names_close(n);
}

TEST(etcd_service, a_first_claim_grants_two_leases_at_once)
{
    struct names *n = names_open();
    CHECK_UINT_EQ(claim(n, 0, ASK("a", 1)).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(n->leases, 2);
    CHECK_UINT_EQ(n->txns, 1);
    names_close(n);
}

TEST(etcd_service, a_pulse_of_many_names_is_one_keepalive)
{
    enum { NAMES = 150 };
    static vow_hold holds[NAMES];
    struct names *n = names_open();
    struct answer a = {.done = false};
    vow_store *s = n->at[0].store;
    for (unsigned i = 0; i < NAMES; i++) {
        char text[16];
        snprintf(text, sizeof(text), "n %u", i);
        holds[i] = hold_of(
            text, i, claim(n, 0, ASK(text, i, .lease_ms = LEASE_MS)).epoch);
    }
    names_pass(n, LEASE_MS / 3);
    n->txns = n->leases = 0;
    s->ops->pulse(s, holds, NAMES, LEASE_MS, on_records, &a);
    CHECK_UINT_EQ(await(n, &a)->n, NAMES);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(n->txns, 0);
    CHECK_UINT_EQ(n->leases, 1);
    names_close(n);
}

TEST(etcd_service, many_names_are_read_by_few_transactions)
{
    enum { NAMES = 250 };
    static vow_name names[NAMES];
    struct names *n = names_open();
    struct answer a = {.done = false};
    vow_store *s = n->at[1].store;
    for (unsigned i = 0; i < NAMES; i++) {
        char text[16];
        snprintf(text, sizeof(text), "n %u", i);
        names[i] = vow_name_of(text);
        if (i % 10 == 0)
            (void)claim(n, 0, ASK(text, i));
    }
    n->txns = 0;
    s->ops->peek(s, names, NAMES, on_records, &a);
    CHECK_UINT_EQ(await(n, &a)->n, NAMES);
    CHECK_UINT_EQ(a.status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(n->txns, 3);
    a = (struct answer){.done = false};
    s->ops->list(s, on_records, &a);
    CHECK_UINT_EQ(await(n, &a)->n, NAMES / 10);
    names_close(n);
}

/* ---- leases -------------------------------------------------------------- */

TEST(etcd_service, leases_that_etcd_has_lost_are_granted_again)
{
    struct names *n = names_open();
    (void)claim(n, 0, ASK("a", 1));
    CHECK(etcd_revoke_all(n->member) >= 2);
    struct answer a = claim(n, 0, ASK("b", 2));
    CHECK_INT_EQ(a.code, 0);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(claim(n, 1, ASK("b", 3)).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 3)).status, VOW_STATUS_OWNED);
    names_close(n);
}

TEST(etcd_service, a_name_that_is_not_renewed_lapses_while_others_are)
{
    struct names *n = names_open();
    vow_hold other = hold_of("other", 9, 0);
    other.epoch = claim(n, 0, ASK("other", 9, .lease_ms = LEASE_MS)).epoch;
    (void)claim(n, 0, ASK("a", 1, .mode = VOW_ONCE, .lease_ms = LEASE_MS));
    for (int i = 0; i < 3; i++) { /* which keeps the lease alive */
        names_pass(n, LEASE_MS / 4);
        CHECK_UINT_EQ(pulse(n, 0, other, LEASE_MS).status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(status_of(n, "a"), VOW_STATUS_WAITING);
    }
    names_pass(n, LEASE_MS / 4 + SOON_MS);
    CHECK_UINT_EQ(status_of(n, "a"), VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(status_of(n, "other"), VOW_STATUS_WAITING);
    names_close(n);
}

TEST(etcd_service, a_process_that_owns_nothing_leaves_no_lease_of_an_owner)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    (void)commit(n, 0, COMMIT("a", 1, epoch), "x");
    names_end(n);
    CHECK_UINT_EQ(etcd_revoke_all(n->member), 1); /* of the result */
    world_run(n->w);
    world_close(n->w);
    etcd_stop(n->member);
}

/* ---- late requests ------------------------------------------------------- */

/* A claim that reaches etcd only when the test says so. */
static void delay_claim(struct names *n, const char *name, uint32_t mode)
{
    n->lose = 2;
    n->late = true;
    struct answer a =
        claim(n, 0, ASK(name, 1, .mode = mode, .lease_ms = LEASE_MS));
    CHECK_INT_EQ(a.code, VOW_EUNSURE);
    CHECK_UINT_EQ(status_of(n, name), VOW_STATUS_NONE);
}

TEST(etcd_service, a_claim_that_reaches_etcd_late_meets_a_tombstone)
{
    struct names *n = names_open();
    char name[] = "name 0";
    for (uint32_t mode = VOW_SHARED; mode <= VOW_ONCE; mode++) {
        name[5]++;
        delay_claim(n, name, mode);
        names_pass(n, SOON_MS);
        check_word(n, name, "vacant yes\n");
        names_arrive(n);
        CHECK_UINT_EQ(status_of(n, name), VOW_STATUS_NONE);
        CHECK_UINT_EQ(claim(n, 1, ASK(name, 2)).status, VOW_STATUS_OWNED);
    }
    names_close(n);
}

TEST(etcd_service, a_claim_without_an_answer_is_given_back)
{
    struct names *n = names_open();
    n->lose = 2;
    CHECK_INT_EQ(claim(n, 0, ASK("a", 1, .mode = VOW_ONCE)).code, VOW_EUNSURE);
    CHECK_UINT_EQ(status_of(n, "a"), VOW_STATUS_WAITING);
    names_pass(n, SOON_MS);
    CHECK_UINT_EQ(status_of(n, "a"), VOW_STATUS_NONE);
    struct answer a = claim(n, 1, ASK("a", 2, .mode = VOW_ONCE));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(a.takeovers, 0);
    names_close(n);
}

TEST(etcd_service, another_claim_of_the_process_gives_it_back_first)
{
    struct names *n = names_open();
    char name[] = "name 0";
    for (uint32_t mode = VOW_SHARED; mode <= VOW_ONCE; mode++) {
        name[5]++;
        n->lose = 2;
        CHECK_INT_EQ(claim(n, 0, ASK(name, 1, .mode = mode)).code, VOW_EUNSURE);
        uint64_t epoch = peek(n, 1, name).epoch;
        etcd_delete(n->member, whole_key("n", name, "/a"));
        struct answer a = claim(n, 0, ASK(name, 2, .mode = mode));
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(a.takeovers, 0);
        CHECK(a.epoch > epoch);
    }
    names_close(n);
}

TEST(etcd_service, a_claim_under_way_at_the_close_is_given_back)
{
    struct names *n = names_open();
    struct answer a = {.done = false};
    vow_store *s = n->at[0].store;
    CHECK_UINT_EQ(claim(n, 0, ASK("mine", 9, .mode = VOW_ONCE)).status,
                  VOW_STATUS_OWNED);
    n->hold = true;
    s->ops->claim(s, ASK("a", 1, .mode = VOW_ONCE), on_records, &a);
    while (n->held[0] == 0)
        names_step(n);
    CHECK_UINT_EQ(status_of(n, "a"), VOW_STATUS_WAITING);
    VOW_AUTO(vow_future) closed = s->ops->close(s);
    n->at[0].store = NULL;
    while (vow_state_of(closed) == VOW_PENDING)
        names_step(n);
    CHECK_INT_EQ(a.code, VOW_ECLOSED);
    CHECK_UINT_EQ(status_of(n, "a"), VOW_STATUS_NONE);
    CHECK_UINT_EQ(status_of(n, "mine"), VOW_STATUS_WAITING);
    closed = vow_future_unref(closed);
    names_close(n);
}

/* ---- keys ---------------------------------------------------------------- */

TEST(etcd_service, a_run_leaves_nothing_but_the_result)
{
    struct names *n = names_open();
    vow_hold hold = hold_of("a", 1, 0);
    hold.epoch = claim(n, 0, ASK("a", 1)).epoch;
    (void)write_text(n, 0, hold, 0, "one");
    (void)write_text(n, 0, hold, 1, "two");
    CHECK_UINT_EQ(etcd_count(n->member, "vow/c/"), 2);
    CHECK_UINT_EQ(etcd_count(n->member, "vow/n/"), 3);
    (void)commit(n, 0, COMMIT("a", 1, hold.epoch), "x");
    CHECK_UINT_EQ(etcd_count(n->member, "vow/"), 1);
    CHECK_UINT_EQ(forget(n, 1, "a", 0).status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(etcd_count(n->member, "vow/"), 1);
    check_word(n, "a", "vacant yes\n");
    names_close(n);
}

TEST(etcd_service, long_values_are_apart_and_go_with_the_record)
{
    static char text[40000];
    struct names *n = names_open();
    memset(text, 'x', sizeof(text) - 1);
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    (void)commit(n, 0, COMMIT("a", 1, epoch), text);
    CHECK_UINT_EQ(etcd_count(n->member, "vow/v/"), 1);
    CHECK(strlen(record_text(n, "a")) < 1000);
    struct answer a = claim(n, 1, ASK("a", 2));
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(a.size, sizeof(text) - 1);
    CHECK_UINT_EQ(claim(n, 0, ASK("a", 3, .flags = VOW_CLAIM_FORCE)).status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(etcd_count(n->member, "vow/v/"), 0);
    names_close(n);
}

TEST(etcd_service, who_waited_reads_a_long_value_that_was_left)
{
    static char text[40000];
    struct names *n = names_open();
    memset(text, 'x', sizeof(text) - 1);
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    uint64_t first = claim(n, 1, ASK("a", 2)).first;
    CHECK_UINT_EQ(first, epoch);
    (void)commit(n, 0, COMMIT("a", 1, epoch, .ttl_ms = 0), text);
    CHECK_UINT_EQ(claim(n, 0, ASK("a", 3)).status, VOW_STATUS_OWNED);
    struct answer a = claim(n, 1, ASK("a", 2, .waited = first));
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(a.size, sizeof(text) - 1);
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
    names_close(n);
}

TEST(etcd_service, a_result_beyond_the_limit_is_refused_with_advice)
{
    static char text[70000];
    struct names *n = names_open();
    vow_store *s = n->at[0].store;
    memset(text, 'x', sizeof(text) - 1);
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    CHECK_INT_EQ(commit(n, 0, COMMIT("a", 1, epoch), text).code, VOW_E2BIG);
    CHECK(strstr(s->ops->explain(s), "--results") != NULL);
    names_close(n);
}

TEST(etcd_service, keys_of_others_stop_the_step_with_a_sentence)
{
    struct names *n = names_open();
    const char *key = whole_key("n", "a", "/r");
    vow_store *s = n->at[0].store;
    etcd_put(n->member, key, "gibberish");
    CHECK_INT_EQ(claim(n, 0, ASK("a", 1)).code, VOW_ESTORE);
    CHECK(strstr(s->ops->explain(s), "is not one of ours") != NULL);
    CHECK_INT_EQ(peek(n, 0, "a").code, VOW_ESTORE);
    CHECK_STR_EQ(etcd_get(n->member, key), "gibberish");
    etcd_delete(n->member, key);
    etcd_put(n->member, "vow/e", "plus much");
    CHECK_INT_EQ(claim(n, 0, ASK("a", 1)).code, VOW_ESTORE);
    CHECK(strstr(s->ops->explain(s), "vow/e") != NULL);
    names_close(n);
}

/* ---- epochs -------------------------------------------------------------- */

TEST(etcd_service, an_epoch_is_above_the_floor_and_stays_so_for_all)
{
    struct names *n = names_open();
    (void)claim(n, 0, ASK("a", 1));
    struct answer b = claim(n, 0, ASK("b", 1, .floor = 5000));
    CHECK(b.epoch > 5000);
    CHECK(strncmp(etcd_get(n->member, "vow/e"), "plus 49", 7) == 0);
    struct answer c = claim(n, 1, ASK("c", 2)); /* which has no floor */
    CHECK(c.epoch > b.epoch);
    CHECK_UINT_EQ(claim(n, 1, ASK("b", 3)).epoch, b.epoch);
    names_close(n);
}

/* ---- refreshers ---------------------------------------------------------- */

static uint64_t record_lease(struct names *n, const char *text)
{
    char key64[256];
    base64_of(key64, sizeof(key64), whole_key("n", text, "/r"));
    return etcd_number(
        etcd_say(n->member, "kv/range", "{\"key\":\"%s\"}", key64), "lease");
}

TEST(etcd_service, a_refresh_is_one_more_transaction_than_a_claim)
{
    struct names *n = names_open();
    (void)claim(n, 0, ASK("warm", 9));
    uint64_t old = claim(n, 0, ASK("a", 1)).epoch;
    (void)commit(n, 0, COMMIT("a", 1, old), "old");
    n->txns = n->leases = 0;
    uint64_t epoch = claim(n, 0, ASK("a", 2, .refresh = old)).epoch;
    CHECK_UINT_EQ(n->txns, 2); /* the result is read, and written again */
    CHECK_UINT_EQ(pulse(n, 0, hold_of("a", 2, epoch), LONG_MS).status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(n->txns, 2);
    CHECK_UINT_EQ(commit(n, 0, COMMIT("a", 2, epoch), "new").status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(n->txns, 3);
    CHECK_UINT_EQ(etcd_count(n->member, whole_key("n", "a", "/b")), 0);
    names_close(n);
}

/* The lease of the process that forgets may end with this process. */
TEST(etcd_service, a_refresher_without_the_result_keeps_the_record)
{
    struct names *n = names_open();
    uint64_t old = claim(n, 0, ASK("a", 1)).epoch;
    (void)commit(n, 0, COMMIT("a", 1, old), "old");
    uint64_t epoch = claim(n, 1, ASK("a", 2, .refresh = old)).epoch;
    uint64_t lease = record_lease(n, "a");
    CHECK(lease != 0);
    CHECK_UINT_EQ(forget(n, 0, "a", old).status, VOW_STATUS_NONE);
    CHECK(strncmp(record_text(n, "a"), "state runs\n", 11) == 0);
    CHECK_UINT_EQ(record_lease(n, "a"), lease);
    CHECK_UINT_EQ(etcd_count(n->member, whole_key("n", "a", "/a")), 1);
    CHECK_UINT_EQ(etcd_count(n->member, whole_key("n", "a", "/b")), 0);
    CHECK_UINT_EQ(claim(n, 0, ASK("a", 3)).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(commit(n, 1, COMMIT("a", 2, epoch), "new").status,
                  VOW_STATUS_OWNED);
    CHECK_STR_EQ(claim(n, 0, ASK("a", 3)).value, "new");
    names_close(n);
}
