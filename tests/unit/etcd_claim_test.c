/* SPDX-License-Identifier: MIT */
/* etcd_claim_test.c - what a claim costs, epochs above floors, seats, and what
 * is found that should not be there. */
#include "etcd_names_kit.h"

/* ---- what it costs ------------------------------------------------------- */

TEST(etcd_claim, is_one_transaction_if_it_is_free_and_one_if_it_is_taken)
{
    struct names *n = names_open();
    CHECK_UINT_EQ(claim(n, 0, ASK("a", 1)).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(n->txns, 1);
    CHECK_UINT_EQ(n->leases, 3); /* its life, the record's, those who wait */
    CHECK_UINT_EQ(claim(n, 0, ASK("b", 2)).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(n->txns, 2);
    CHECK_UINT_EQ(n->leases, 3);
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 3)).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(n->txns, 3);
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 3)).waiters, 1);
    CHECK_UINT_EQ(n->txns, 4);
    names_close(n);
}

TEST(etcd_claim, a_commit_of_what_it_owns_is_one_transaction)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    CHECK_UINT_EQ(commit(n, 0, COMMIT("a", 1, epoch), "x").status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(n->txns, 2);
    CHECK_STR_EQ(claim(n, 1, ASK("a", 2)).value, "x");
    CHECK_UINT_EQ(n->txns, 3);
    names_close(n);
}

/* ---- epochs -------------------------------------------------------------- */

TEST(etcd_claim, an_epoch_is_the_revision)
{
    struct names *n = names_open();
    struct answer a = claim(n, 0, ASK("a", 1));
    CHECK_UINT_EQ(a.epoch, etcd_revision(n->member));
    CHECK(etcd_get(n->member, "vow/e") == NULL);
    names_close(n);
}

TEST(etcd_claim, a_floor_that_is_passed_already_raises_nothing)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    CHECK_UINT_EQ(claim(n, 0, ASK("b", 2, .floor = epoch)).epoch, epoch + 1);
    CHECK(etcd_get(n->member, "vow/e") == NULL);
    CHECK_UINT_EQ(n->txns, 2);
    names_close(n);
}

TEST(etcd_claim, a_floor_above_raises_what_is_added_for_all)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1, .floor = 1000000)).epoch;
    CHECK_UINT_EQ(epoch, 1000001);
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 2)).epoch, epoch);
    CHECK(claim(n, 1, ASK("b", 3)).epoch > epoch);
    CHECK_UINT_EQ(commit(n, 0, COMMIT("a", 1, epoch), "x").status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 4)).epoch, epoch);
    uint64_t next = claim(n, 0, ASK("c", 5)).epoch;
    CHECK(next > epoch && next < epoch + 10);
    names_close(n);
}

TEST(etcd_claim, a_record_keeps_its_epoch_when_more_is_added_later)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    (void)claim(n, 0, ASK("b", 2, .floor = 5000));
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 3)).epoch, epoch);
    CHECK_UINT_EQ(pulse(n, 0, hold_of("a", 1, epoch), LONG_MS).epoch, epoch);
    names_close(n);
}

TEST(etcd_claim, after_etcd_has_begun_anew_an_epoch_is_above_the_floor)
{
    struct names *n = names_open();
    struct vow__etcd_news *news = vow__etcd_news(n->at[0].etcd);
    (void)claim(n, 0, ASK("a", 1));
    news->revision = 900; /* as it was before */
    struct answer a = claim(n, 0, ASK("b", 2, .floor = 800));
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK(a.epoch > 800);
    CHECK_UINT_EQ(claim(n, 1, ASK("b", 3)).epoch, a.epoch);
    CHECK_UINT_EQ(commit(n, 0, COMMIT("b", 2, a.epoch), "x").status,
                  VOW_STATUS_OWNED);
    names_close(n);
}

TEST(etcd_claim, numbers_that_would_use_up_all_others_are_refused)
{
    struct names *n = names_open();
    uint64_t most = UINT64_MAX / 4;
    CHECK_INT_EQ(claim(n, 0, ASK("a", 1, .floor = most + 1)).code, VOW_EINVAL);
    CHECK_INT_EQ(claim(n, 0, ASK("a", 1, .mode = 3)).code, VOW_EINVAL);
    CHECK_INT_EQ(commit(n, 0, COMMIT("a", 1, most + 1), "x").code, VOW_EINVAL);
    CHECK_INT_EQ(commit(n, 0, COMMIT("a", 1, 0), "x").code, VOW_EINVAL);
    CHECK_INT_EQ(pulse(n, 0, hold_of("a", 1, most + 1), 1).code, VOW_EINVAL);
    CHECK_UINT_EQ(n->txns, 0);
    CHECK(claim(n, 0, ASK("a", 1, .floor = most)).epoch > most);
    names_close(n);
}

/* ---- seats --------------------------------------------------------------- */

static unsigned seats(struct names *n, const char *text)
{
    return (unsigned)etcd_count(n->member, whole_key("w", text, "/"));
}

TEST(etcd_claim, who_waits_has_a_seat_until_it_is_answered_otherwise)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 2)).waiters, 1);
    CHECK_UINT_EQ(claim(n, 0, ASK("a", 3)).waiters, 2);
    CHECK_UINT_EQ(seats(n, "a"), 2);
    CHECK_UINT_EQ(claim(n, 0, ASK("a", 1)).waiters, 2); /* as it was found */
    CHECK_UINT_EQ(seats(n, "a"), 1);
    CHECK_UINT_EQ(commit(n, 0, COMMIT("a", 1, epoch), "x").status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(seats(n, "a"), 0);
    names_close(n);
}

TEST(etcd_claim, a_name_in_doubt_has_no_seats_for_who_asks)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1, .mode = VOW_ONCE)).epoch;
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(pulse(n, 0, hold_of("a", 1, epoch), 0).status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(seats(n, "a"), 1);
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 2)).status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(seats(n, "a"), 0);
    names_close(n);
}

TEST(etcd_claim, a_seat_that_nobody_asks_for_again_is_given_back)
{
    struct names *n = names_open();
    (void)claim(n, 0, ASK("a", 1));
    (void)claim(n, 1, ASK("a", 2));
    names_pass(n, 1900);
    (void)claim(n, 1, ASK("a", 2));
    names_pass(n, 1900);
    CHECK_UINT_EQ(seats(n, "a"), 1);
    names_pass(n, 200); /* two rechecks */
    CHECK_UINT_EQ(seats(n, "a"), 0);
    names_close(n);
}

TEST(etcd_claim, a_seat_that_was_lost_is_taken_again)
{
    struct names *n = names_open();
    char key[256];
    (void)claim(n, 0, ASK("a", 1));
    (void)claim(n, 1, ASK("a", 2));
    vow_name name = vow_name_of("a");
    snprintf(key, sizeof(key), "vow/%s",
             vow__key_seat(n->at[1].etcd, &name).text);
    etcd_delete(n->member, key);
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 2)).waiters, 1);
    CHECK_UINT_EQ(seats(n, "a"), 1);
    names_close(n);
}

TEST(etcd_claim, who_has_to_read_first_takes_a_seat_then)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    struct answer a = claim(n, 1, ASK("a", 2, .floor = epoch + 100));
    CHECK_UINT_EQ(a.status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(a.waiters, 1);
    CHECK_UINT_EQ(seats(n, "a"), 1);
    CHECK_UINT_EQ(n->txns, 3);
    names_close(n);
}

TEST(etcd_claim, who_comes_second_for_a_lapsed_name_waits_for_the_first)
{
    struct names *n = names_open();
    struct answer a = {.done = false};
    vow_store *s = n->at[1].store;
    vow_hold hold = hold_of("a", 1, 0);
    hold.epoch = claim(n, 0, ASK("a", 1)).epoch;
    (void)write_text(n, 0, hold, 0, "of the first");
    (void)pulse(n, 0, hold, 0);
    n->hold = true;
    s->ops->claim(s, ASK("a", 2), on_records, &a);
    while (n->held[0] == 0)
        names_step(n);
    hold = hold_of("a", 3, claim(n, 0, ASK("a", 3)).epoch);
    CHECK_UINT_EQ(read_text(n, 1, hold).n, 0);
    CHECK_UINT_EQ(etcd_count(n->member, "vow/c/"), 0);
    names_let_go(n);
    await(n, &a);
    CHECK_UINT_EQ(a.status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(a.epoch, hold.epoch);
    CHECK_UINT_EQ(a.waiters, 1);
    names_close(n);
}

TEST(etcd_claim, a_token_that_moves_to_another_process_takes_the_record_along)
{
    struct names *n = names_open();
    vow_hold hold = hold_of("a", 1, 0);
    hold.epoch = claim(n, 0, ASK("a", 1, .lease_ms = UINT64_MAX)).epoch;
    CHECK_UINT_EQ(pulse(n, 1, hold, LONG_MS).epoch, hold.epoch);
    fake_etcd_end(&n->at[0]); /* whose leases do not matter any more */
    CHECK_UINT_EQ(pulse(n, 1, hold, LONG_MS).epoch, hold.epoch);
    CHECK_UINT_EQ(commit(n, 1, COMMIT("a", 1, hold.epoch), "x").status,
                  VOW_STATUS_OWNED);
    fake_etcd_end(&n->at[1]);
    world_run(n->w);
    world_close(n->w);
    etcd_stop(n->member);
}

/* ---- hidden results ------------------------------------------------------ */

TEST(etcd_claim, a_hidden_result_is_kept_only_for_who_has_a_seat)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    (void)commit(n, 0, COMMIT("a", 1, epoch, .ttl_ms = 0), "x");
    CHECK_UINT_EQ(etcd_count(n->member, "vow/v/"), 0);
    epoch = claim(n, 0, ASK("a", 2)).epoch;
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 3)).status, VOW_STATUS_WAITING);
    (void)commit(n, 0, COMMIT("a", 2, epoch, .ttl_ms = 0), "y");
    CHECK_UINT_EQ(etcd_count(n->member, "vow/v/"), 1);
    CHECK_STR_EQ(claim(n, 1, ASK("a", 3)).value, "y");
    names_close(n);
}

TEST(etcd_claim, of_several_hidden_results_the_first_is_read)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 9)).status, VOW_STATUS_WAITING);
    (void)commit(n, 0, COMMIT("a", 1, epoch, .ttl_ms = 0), "first");
    for (uint64_t i = 2; i < 5; i++) {
        epoch = claim(n, 0, ASK("a", i)).epoch;
        etcd_put(n->member, whole_key("w", "a", "/somebody"), "");
        (void)commit(n, 0, COMMIT("a", i, epoch, .ttl_ms = 0), "later");
    }
    for (int i = 0; i < 2; i++) {
        struct answer a = claim(n, 1, ASK("a", 9));
        CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
        CHECK_STR_EQ(a.value, "first");
    }
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 10)).status, VOW_STATUS_OWNED);
    names_close(n);
}

TEST(etcd_claim, a_hidden_result_is_read_also_when_the_name_is_free_again)
{
    struct names *n = names_open();
    uint64_t epoch = claim(n, 0, ASK("a", 1)).epoch;
    (void)claim(n, 1, ASK("a", 9));
    (void)commit(n, 0, COMMIT("a", 1, epoch, .ttl_ms = 0), "for you");
    epoch = claim(n, 0, ASK("a", 2)).epoch;
    (void)commit(n, 0, COMMIT("a", 2, epoch, .outcome = VOW_OUTCOME_ABANDONED),
                 NULL);
    CHECK_STR_EQ(claim(n, 1, ASK("a", 9)).value, "for you");
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 9, .flags = VOW_CLAIM_FORCE)).status,
                  VOW_STATUS_OWNED);
    names_close(n);
}

/* ---- what should not be there -------------------------------------------- */

TEST(etcd_claim, what_is_not_ours_stops_the_step_with_a_sentence)
{
    struct names *n = names_open();
    const char *key = whole_key("n", "a", "/r");
    etcd_put(n->member, key, "gibberish");
    struct answer a = claim(n, 0, ASK("a", 1));
    CHECK_INT_EQ(a.code, VOW_ESTORE);
    vow_store *s = n->at[0].store;
    CHECK(strstr(s->ops->explain(s), "is not one of ours") != NULL);
    CHECK_INT_EQ(peek(n, 0, "a").code, VOW_ESTORE);
    CHECK_STR_EQ(etcd_get(n->member, key), "gibberish");
    etcd_delete(n->member, key);
    etcd_put(n->member, "vow/e", "plus much");
    CHECK_INT_EQ(claim(n, 0, ASK("a", 1)).code, VOW_ESTORE);
    CHECK(strstr(s->ops->explain(s), "vow/e") != NULL);
    names_close(n);
}

TEST(etcd_claim, leases_that_etcd_has_lost_are_asked_for_again)
{
    struct names *n = names_open();
    (void)claim(n, 0, ASK("a", 1));
    CHECK(etcd_revoke_all(n->member) >= 3);
    struct answer a = claim(n, 0, ASK("b", 2));
    CHECK_INT_EQ(a.code, 0);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(claim(n, 1, ASK("b", 3)).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(claim(n, 1, ASK("a", 3)).status, VOW_STATUS_OWNED);
    names_close(n);
}

TEST(etcd_claim, a_name_that_always_changes_is_given_up)
{
    struct names *n = names_open();
    struct answer a = {.done = false};
    vow_store *s = n->at[0].store;
    (void)claim(n, 1, ASK("a", 1, .lease_ms = 0));
    (void)claim(n, 0, ASK("other", 9));
    n->txns = 0;
    s->ops->claim(s, ASK("a", 2), on_records, &a);
    while (!a.done) { /* the record is another each time */
        n->hold = n->held[0] == 0;
        names_step(n);
        if (n->held[0] == 0)
            continue;
        vow_name name = vow_name_of("a");
        struct vow__er er = {.state = VOW__ER_RUNS, .name = name};
        struct vow__jot text;
        vow__jot_init(&text, vow__etcd_alloc(n->at[0].etcd));
        vow__er_write(&er, false, &text);
        vow__jot_bytes(&text, "", 1);
        etcd_put(n->member, whole_key("n", "a", "/r"), text.text);
        vow__jot_fini(&text);
        names_let_go(n);
    }
    CHECK_INT_EQ(a.code, VOW_EAGAIN);
    CHECK_UINT_EQ(n->txns, 16);
    n->hold = false;
    CHECK_UINT_EQ(claim(n, 0, ASK("a", 2)).status, VOW_STATUS_OWNED);
    names_close(n);
}
