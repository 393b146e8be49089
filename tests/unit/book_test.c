/* SPDX-License-Identifier: MIT */
/* book_test.c - what the contract of stores does not show of the state of a
 * memory store: lost events, dead instances, and that nothing stays after its
 * time. The answers are tested by tests/contract on the memory store. */
#include "book_rig.h"
#include "store/memory/memory_pools.h"
#include "store/memory/memory_slots.h"
#include <string.h>

/* ---- results left -------------------------------------------------------- */

/* Instance 0 runs name 1 with a waiter, instance 1, and settles with a time to
 * live of 0. Returns the run. */
static vow_record leave_result(struct book_rig *r)
{
    vow_record own;
    (void)book_claim(r, 0, BOOK_CLAIM(1, 1), &own);
    CHECK_UINT_EQ(book_claim(r, 1, BOOK_CLAIM(1, 2), NULL), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(book_commit(r, 0, BOOK_COMMIT(1, 1, own.epoch)),
                  VOW_STATUS_OWNED);
    return own;
}

static uint32_t claim_left(struct book_rig *r, uint64_t token, uint64_t first)
{
    return book_claim(r, 1, BOOK_CLAIM(1, token, .waited = first), NULL);
}

TEST(book, an_event_that_is_lost_loses_no_result)
{
    struct book_rig r;
    uint32_t status = 0;
    book_open(&r, false);
    vow_record own = leave_result(&r);
    CHECK_UINT_EQ(r.woken[1], 1);
    CHECK_INT_EQ(book_mail(&r, 1, &status), VOW__MEMORY_RECORD);
    CHECK_UINT_EQ(status, VOW_STATUS_SETTLED);
    r.now_us += 12 * (uint64_t)S - 1; /* lease + 2 * recheck = 12 s */
    for (int i = 0; i < 2; i++)
        CHECK_UINT_EQ(claim_left(&r, 2, own.first), VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(claim_left(&r, 3, own.first + 1), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(claim_left(&r, 4, own.first), VOW_STATUS_SETTLED);
    r.now_us++;
    CHECK_UINT_EQ(claim_left(&r, 4, own.first), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(r.book->left.count, 0);
    book_close(&r);
}

TEST(book, a_result_for_waiters_goes_after_its_time)
{
    struct book_rig r;
    book_open(&r, false);
    vow_record own = leave_result(&r);
    r.now_us += 12 * (uint64_t)S;
    CHECK_UINT_EQ(claim_left(&r, 2, own.first), VOW_STATUS_OWNED);
    book_close(&r);
}

TEST(book, a_claim_that_comes_twice_does_not_begin_again)
{
    struct book_rig r;
    vow_record own;
    book_open(&r, false);
    (void)book_claim(&r, 0, BOOK_CLAIM(1, 1), &own);
    vow_commit_request commit =
        *BOOK_COMMIT(1, 1, own.epoch, .flags = VOW_COMMIT_STRICT);
    for (int i = 0; i < 2; i++)
        CHECK_UINT_EQ(book_commit(&r, 0, &commit), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(book_claim(&r, 0, BOOK_CLAIM(1, 1), NULL),
                  VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(book_claim(&r, 0, BOOK_CLAIM(1, 2), NULL), VOW_STATUS_OWNED);
    r.now_us += 12 * (uint64_t)S;
    book_close(&r);
}

TEST(book, the_last_event_deletes_the_result_left)
{
    struct book_rig r;
    uint32_t status = 0;
    book_open(&r, true);
    (void)leave_result(&r);
    CHECK_UINT_EQ(r.book->names.count, 1);
    CHECK_INT_EQ(book_mail(&r, 1, &status), VOW__MEMORY_RECORD);
    CHECK_UINT_EQ(status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(r.book->names.count, 0);
    CHECK_UINT_EQ(r.book->waits.count, 0);
    CHECK_INT_EQ(book_mail(&r, 1, &status), VOW__MEMORY_NO_EVENT);
    book_close(&r);
}

TEST(book, a_result_set_aside_goes_with_its_last_event)
{
    struct book_rig r;
    uint32_t status = 0;
    book_open(&r, true);
    vow_record own = leave_result(&r);
    CHECK_UINT_EQ(book_claim(&r, 2, BOOK_CLAIM(1, 3), NULL), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(r.book->left.count, 1);
    for (int i = 0; i < 2; i++) /* a claim does not end it */
        CHECK_UINT_EQ(claim_left(&r, 2, own.first), VOW_STATUS_SETTLED);
    CHECK_INT_EQ(book_mail(&r, 1, &status), VOW__MEMORY_RECORD);
    CHECK_UINT_EQ(status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(r.book->left.count, 0);
    CHECK_UINT_EQ(r.book->names.count, 1);
    book_close(&r);
}

TEST(book, a_result_whose_event_was_withdrawn_stays_for_its_time)
{
    struct book_rig r;
    book_open(&r, true);
    vow_record own = leave_result(&r);
    CHECK_UINT_EQ(book_claim(&r, 2, BOOK_CLAIM(1, 3), NULL), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(book_claim(&r, 1, BOOK_CLAIM(1, 4), NULL),
                  VOW_STATUS_WAITING); /* for the second run */
    CHECK_INT_EQ(book_mail(&r, 1, NULL), VOW__MEMORY_NO_EVENT);
    CHECK_UINT_EQ(claim_left(&r, 2, own.first), VOW_STATUS_SETTLED);
    r.now_us += 12 * (uint64_t)S;
    CHECK_UINT_EQ(book_peek(&r, 2), VOW_STATUS_NONE);
    CHECK_UINT_EQ(r.book->left.count, 0);
    book_close(&r);
}

TEST(book, a_result_after_a_takeover_stays_for_the_owner_that_was_lost)
{
    struct book_rig r;
    vow_record own, next;
    book_open(&r, true);
    (void)book_claim(&r, 0, BOOK_CLAIM(1, 1, .lease_ms = 0), &own);
    CHECK_UINT_EQ(book_claim(&r, 1, BOOK_CLAIM(1, 2), &next), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(next.first, own.epoch);
    CHECK_UINT_EQ(book_commit(&r, 1, BOOK_COMMIT(1, 2, next.epoch)),
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(
        book_claim(&r, 0, BOOK_CLAIM(1, 3, .waited = own.first), NULL),
        VOW_STATUS_SETTLED);
    r.now_us += 60 * (uint64_t)S; /* the owner may have been stopped */
    CHECK_UINT_EQ(
        book_claim(&r, 0, BOOK_CLAIM(1, 3, .waited = own.first), NULL),
        VOW_STATUS_SETTLED);
    r.now_us += 12 * (uint64_t)S;
    CHECK_UINT_EQ(book_peek(&r, 2), VOW_STATUS_NONE);
    CHECK_UINT_EQ(r.book->names.count, 0);
    book_close(&r);
}

TEST(book, an_uncontended_run_with_ttl_0_leaves_nothing)
{
    struct book_rig r;
    vow_record own;
    book_open(&r, true);
    for (uint64_t i = 0; i < 1000; i++) {
        (void)book_claim(&r, 0, BOOK_CLAIM(i, i), &own);
        (void)book_commit(&r, 0, BOOK_COMMIT(i, i, own.epoch));
        CHECK_UINT_EQ(r.book->names.count, 0);
    }
    CHECK(!vow__memory_untidy(r.book));
    book_close(&r);
}

TEST(book, chunks_and_a_result_are_one_letter)
{
    struct book_rig r;
    vow_record own;
    struct vow__memory_answer a;
    uint32_t status = 0;
    book_open(&r, true);
    (void)book_claim(&r, 0, BOOK_CLAIM(1, 1), &own);
    (void)book_claim(&r, 1, BOOK_CLAIM(1, 2), NULL);
    vow_hold hold = {
        .name = book_name(1), .token = book_token(1), .epoch = own.epoch};
    struct vow__memory_step s = book_step(&r, 0);
    for (uint64_t i = 0; i < 3; i++)
        CHECK_INT_EQ(vow__memory_write(&s, &hold, i, NULL, &a), 0);
    (void)book_commit(&r, 0, BOOK_COMMIT(1, 1, own.epoch, .ttl_ms = 1000));
    CHECK_INT_EQ(book_mail(&r, 1, &status), VOW__MEMORY_RECORD);
    CHECK_UINT_EQ(status, VOW_STATUS_SETTLED);
    CHECK_INT_EQ(book_mail(&r, 1, &status), VOW__MEMORY_NO_EVENT);
    book_close(&r);
}

TEST(book, a_letter_tells_what_is_true_when_it_is_read)
{
    struct book_rig r;
    vow_record own;
    uint32_t status = 0;
    book_open(&r, true);
    (void)book_claim(&r, 0, BOOK_CLAIM(1, 1), &own);
    (void)book_claim(&r, 1, BOOK_CLAIM(1, 2), NULL);
    (void)book_commit(&r, 0, BOOK_COMMIT(1, 1, own.epoch, .ttl_ms = 10));
    r.now_us += 10 * MS;
    CHECK_INT_EQ(book_mail(&r, 1, &status), VOW__MEMORY_RECORD);
    CHECK_UINT_EQ(status, 0);
    book_close(&r);
}

TEST(book, who_asks_again_hears_no_old_story)
{
    struct book_rig r;
    vow_record own;
    book_open(&r, true);
    (void)book_claim(&r, 0, BOOK_CLAIM(1, 1), &own);
    (void)book_claim(&r, 1, BOOK_CLAIM(1, 2), NULL);
    (void)book_commit(
        &r, 0, BOOK_COMMIT(1, 1, own.epoch, .outcome = VOW_OUTCOME_ABANDONED));
    (void)book_claim(&r, 2, BOOK_CLAIM(1, 3), NULL);
    CHECK_UINT_EQ(book_claim(&r, 1, BOOK_CLAIM(1, 2), NULL),
                  VOW_STATUS_WAITING);
    CHECK_INT_EQ(book_mail(&r, 1, NULL), VOW__MEMORY_NO_EVENT);
    book_close(&r);
}

/* ---- the dead ------------------------------------------------------------ */

TEST(book, what_a_dead_instance_owned_is_free_at_once)
{
    struct book_rig r;
    vow_record own;
    uint32_t status = 0;
    book_open(&r, true);
    (void)book_claim(&r, 0, BOOK_CLAIM(1, 1), NULL);
    (void)book_claim(&r, 0, BOOK_CLAIM(2, 2, .mode = VOW_ONCE), NULL);
    CHECK_UINT_EQ(book_claim(&r, 1, BOOK_CLAIM(1, 3), NULL),
                  VOW_STATUS_WAITING);
    CHECK_UINT_EQ(book_claim(&r, 2, BOOK_CLAIM(1, 4), NULL),
                  VOW_STATUS_WAITING);
    CHECK_UINT_EQ(book_claim(&r, 1, BOOK_CLAIM(2, 5), NULL),
                  VOW_STATUS_WAITING);
    vow__memory_leave(r.book, r.at[0], r.now_us, true);
    r.at[0] = NULL;
    CHECK_INT_EQ(book_mail(&r, 2, &status), VOW__MEMORY_RECORD);
    CHECK_UINT_EQ(status, 0);
    CHECK_UINT_EQ(r.woken[1], 2);
    CHECK_UINT_EQ(book_claim(&r, 1, BOOK_CLAIM(1, 3), &own), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(own.takeovers, 1);
    CHECK_UINT_EQ(own.waiters, 1);
    CHECK_UINT_EQ(book_claim(&r, 2, BOOK_CLAIM(1, 4), NULL),
                  VOW_STATUS_WAITING);
    CHECK_UINT_EQ(book_claim(&r, 1, BOOK_CLAIM(2, 5), NULL), VOW_STATUS_DOUBT);
    book_close(&r);
}

TEST(book, what_was_lost_long_ago_counts_no_more)
{
    struct book_rig r;
    vow_record own;
    book_open(&r, false);
    for (unsigned i = 0; i < 3; i++)
        CHECK_UINT_EQ(
            book_claim(&r, 0,
                       BOOK_CLAIM(1, 1 + i, .lease_ms = 0, .takeovers = 2),
                       &own),
            VOW_STATUS_OWNED);
    CHECK_UINT_EQ(own.takeovers, 2);
    r.now_us += 59 * UINT64_C(1000000);
    CHECK_UINT_EQ(book_claim(&r, 0, BOOK_CLAIM(1, 8, .takeovers = 3), &own),
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(own.takeovers, 3);
    r.now_us += 24 * 3600 * UINT64_C(1000000);
    CHECK_UINT_EQ(book_claim(&r, 0, BOOK_CLAIM(1, 9, .takeovers = 2), &own),
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(own.takeovers, 0);
    book_close(&r);
}

TEST(book, a_dead_instance_waits_and_queues_no_more)
{
    struct book_rig r;
    vow_record w;
    book_open(&r, true);
    (void)book_claim(&r, 0, BOOK_CLAIM(1, 1), NULL);
    (void)book_claim(&r, 1, BOOK_CLAIM(1, 2), NULL);
    vow_pool_limits one = {.concurrent = 1};
    (void)book_acquire(&r, 1, BOOK_PLACE(9, 1, .limits = one));
    (void)book_acquire(&r, 1, BOOK_PLACE(9, 2));
    CHECK_UINT_EQ(book_acquire(&r, 2, BOOK_PLACE(9, 3)), VOW_STATUS_WAITING);
    vow__memory_leave(r.book, r.at[1], r.now_us, true);
    r.at[1] = NULL;
    (void)book_claim(&r, 2, BOOK_CLAIM(1, 4), &w);
    CHECK_UINT_EQ(w.waiters, 1);
    CHECK_INT_EQ(book_mail(&r, 2, NULL), VOW__MEMORY_PERMIT);
    CHECK_UINT_EQ(book_acquire(&r, 2, BOOK_PLACE(9, 3)), VOW_STATUS_OWNED);
    book_close(&r);
}

TEST(book, the_last_letters_of_who_leaves_are_dropped)
{
    struct book_rig r;
    vow_record own;
    struct vow__memory_answer a;
    book_open(&r, false);
    (void)book_claim(&r, 0, BOOK_CLAIM(1, 1), &own);
    (void)book_claim(&r, 1, BOOK_CLAIM(1, 2), NULL);
    (void)book_claim(&r, 1, BOOK_CLAIM(2, 3), NULL);
    vow_name two = book_name(2);
    struct vow__memory_step s = book_step(&r, 0);
    (void)vow__memory_cancel(&s, &two, &a);
    (void)book_commit(&r, 0, BOOK_COMMIT(1, 1, own.epoch));
    CHECK_UINT_EQ(r.woken[1], 2);
    vow__memory_leave(r.book, r.at[1], r.now_us, false);
    r.at[1] = NULL;
    CHECK_UINT_EQ(r.book->waits.count, 0);
    book_close(&r);
}

/* ---- what is over -------------------------------------------------------- */

TEST(book, a_step_throws_away_a_bounded_number)
{
    struct book_rig r;
    vow_record own;
    book_open(&r, true);
    for (uint64_t i = 0; i < 200; i++) {
        (void)book_claim(&r, 0, BOOK_CLAIM(i, i), &own);
        (void)book_commit(&r, 0, BOOK_COMMIT(i, i, own.epoch, .ttl_ms = 10));
    }
    r.now_us += 10 * MS;
    CHECK_UINT_EQ(book_peek(&r, 199), VOW_STATUS_NONE);
    CHECK_UINT_EQ(r.book->names.count, 200 - 64 - 1); /* and its own */
    while (vow__memory_tidy(r.book, r.now_us) != UINT64_MAX)
        CHECK(r.book->names.count < 200);
    CHECK_UINT_EQ(r.book->names.count, 0);
    CHECK(!vow__memory_untidy(r.book));
    book_close(&r);
}

TEST(book, a_name_that_is_over_can_be_used_before_it_is_thrown_away)
{
    struct book_rig r;
    vow_record own;
    vow_hold hold = {
        .name = book_name(150), .token = book_token(9), .epoch = 7};
    book_open(&r, true);
    for (uint64_t i = 0; i < 400; i++) {
        (void)book_claim(&r, 0, BOOK_CLAIM(i, i), &own);
        (void)book_commit(&r, 0, BOOK_COMMIT(i, i, own.epoch, .ttl_ms = 10));
    }
    r.now_us += 10 * MS;
    CHECK_UINT_EQ(book_claim(&r, 0, BOOK_CLAIM(399, 1000), NULL),
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(book_commit(&r, 0,
                              BOOK_COMMIT(398, 398, 1, .ttl_ms = 10,
                                          .flags = VOW_COMMIT_STRICT)),
                  VOW_STATUS_NONE);
    hold.name = book_name(397);
    struct vow__memory_step s = book_step(&r, 0);
    CHECK_INT_EQ(vow__memory_pulse(&s, &hold, 1, 10, &own), 0);
    CHECK_UINT_EQ(own.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(own.epoch, 7);
    book_close(&r);
}

TEST(book, a_lapsed_lease_that_nobody_asks_for_goes_after_a_day)
{
    struct book_rig r;
    book_open(&r, true);
    (void)book_claim(&r, 0, BOOK_CLAIM(1, 1), NULL);
    (void)book_claim(&r, 0, BOOK_CLAIM(2, 2, .mode = VOW_ONCE), NULL);
    r.now_us += 24 * 3600 * (uint64_t)S;
    (void)book_peek(&r, 1);
    CHECK_UINT_EQ(r.book->names.count, 2);
    r.now_us += 10 * (uint64_t)S;
    (void)book_peek(&r, 1);
    CHECK_UINT_EQ(r.book->names.count, 1);
    CHECK_UINT_EQ(book_peek(&r, 2), VOW_STATUS_DOUBT);
    book_close(&r);
}

TEST(book, a_pool_of_a_key_goes_when_its_window_has_passed)
{
    struct book_rig r;
    vow_pool_permit out;
    book_open(&r, true);
    for (uint64_t i = 0; i < 100; i++) {
        vow_permit_request ask =
            *BOOK_PLACE(100 + i, i, .limits = {.rate = 5, .window_us = 3 * S});
        ask.limits_of = book_name(1);
        CHECK_UINT_EQ(book_acquire(&r, 0, &ask), VOW_STATUS_OWNED);
        vow_permit_hold hold = {.pool = ask.pool, .token = ask.token};
        struct vow__memory_step s = book_step(&r, 0);
        vow__memory_release(&s, &hold, &out);
    }
    CHECK_UINT_EQ(r.book->pools.by_name.count, 101);
    r.now_us += 3 * S;
    CHECK_UINT_EQ(vow__memory_tidy(r.book, r.now_us), r.now_us + 1);
    CHECK_UINT_EQ(r.book->pools.by_name.count, 101);
    r.now_us++;
    while (vow__memory_tidy(r.book, r.now_us) != UINT64_MAX)
        CHECK(r.book->pools.by_name.count < 101);
    CHECK_UINT_EQ(r.book->pools.by_name.count, 1); /* whose limits they had */
    book_close(&r);
}

TEST(book, a_key_has_no_limits_of_its_own)
{
    struct book_rig r;
    struct vow__memory_pool_answer info;
    book_open(&r, true);
    vow_permit_request ask =
        *BOOK_PLACE(2, 1, .limits = {.rate = 5, .window_us = 3 * S});
    ask.limits_of = book_name(1);
    CHECK_UINT_EQ(book_acquire(&r, 0, &ask), VOW_STATUS_OWNED);
    struct vow__memory_step s = book_step(&r, 0);
    vow_pool_limits mine = {.concurrent = 77};
    CHECK_INT_EQ(vow__memory_limit(&s, &ask.pool, &mine, NULL, &info),
                 VOW_EINVAL);
    CHECK_INT_EQ(vow__memory_limit(&s, &ask.pool, NULL, NULL, &info), 0);
    CHECK_UINT_EQ(info.info.limits.rate, 5);
    CHECK_UINT_EQ(info.info.rate_used, 1);
    book_close(&r);
}

/* The event of a request that has left the queue is delivered, or goes with the
 * instance; a request with the same token is another one. */
TEST(book, a_request_that_can_never_fit_is_told_and_freed)
{
    struct book_rig r;
    struct vow__memory_pool_answer info;
    vow_pool_limits two = {.concurrent = 2};
    vow_name name = book_name(1);
    book_open(&r, true);
    (void)book_acquire(&r, 0, BOOK_PLACE(1, 1, .limits = {.concurrent = 3}));
    for (uint64_t i = 2; i < 5; i++)
        CHECK_UINT_EQ(book_acquire(&r, 1, BOOK_PLACE(1, i, .weight = 3)),
                      VOW_STATUS_WAITING);
    struct vow__memory_step s = book_step(&r, 0);
    CHECK_INT_EQ(vow__memory_limit(&s, &name, &two, NULL, &info), 0);
    CHECK_UINT_EQ(r.book->pools.permits.count, 1);
    CHECK_INT_EQ(book_mail(&r, 1, NULL), VOW__MEMORY_PERMIT);
    CHECK_UINT_EQ(book_acquire(&r, 1, BOOK_PLACE(1, 3)), VOW_STATUS_OWNED);
    book_close(&r);
}

TEST(book, dead_places_are_thrown_out_a_bounded_number_at_a_time)
{
    struct book_rig r;
    book_open(&r, true);
    vow_pool_limits most = {.concurrent = 200};
    for (uint64_t i = 1; i <= 200; i++)
        (void)book_acquire(&r, 0,
                           BOOK_PLACE(1, i, .limits = most, .lease_ms = 10));
    CHECK_UINT_EQ(r.book->pools.permits.count, 200);
    r.now_us += 10 * MS;
    CHECK_UINT_EQ(book_acquire(&r, 1, BOOK_PLACE(1, 999, .weight = 200)),
                  VOW_STATUS_WAITING);
    CHECK_UINT_EQ(r.book->pools.permits.count, 201 - 64);
    CHECK_UINT_EQ(book_acquire(&r, 1, BOOK_PLACE(1, 200)), VOW_STATUS_WAITING);
    book_close(&r);
}

/* ---- arguments ----------------------------------------------------------- */

TEST(book, numbers_cannot_be_used_up)
{
    struct book_rig r;
    struct vow__memory_answer a;
    vow_record out;
    book_open(&r, true);
    struct vow__memory_step s = book_step(&r, 0);
    vow_hold hold = {
        .name = book_name(1), .token = book_token(1), .epoch = UINT64_MAX};
    CHECK_INT_EQ(
        vow__memory_claim(&s, BOOK_CLAIM(1, 1, .floor = UINT64_MAX), &a),
        VOW_EINVAL);
    CHECK_INT_EQ(vow__memory_claim(&s, BOOK_CLAIM(1, 1, .mode = 3), &a),
                 VOW_EINVAL);
    CHECK_INT_EQ(vow__memory_commit(&s, BOOK_COMMIT(1, 1, UINT64_MAX), &a),
                 VOW_EINVAL);
    CHECK_INT_EQ(vow__memory_commit(&s, BOOK_COMMIT(1, 1, 1, .outcome = 0), &a),
                 VOW_EINVAL);
    CHECK_INT_EQ(vow__memory_commit(&s, BOOK_COMMIT(1, 1, 1, .outcome = 4), &a),
                 VOW_EINVAL);
    CHECK_INT_EQ(vow__memory_pulse(&s, &hold, 1, 10, &out), VOW_EINVAL);
    vow_pool_permit place;
    CHECK_INT_EQ(vow__memory_acquire(&s, BOOK_PLACE(1, 1, .weight = 0), &place),
                 VOW_EINVAL);
    CHECK_UINT_EQ(r.book->names.count, 0);
    book_close(&r);
}

TEST(book, time_that_falls_counts_as_standing)
{
    struct book_rig r;
    vow_record w;
    book_open(&r, true);
    (void)book_claim(&r, 0, BOOK_CLAIM(1, 1), NULL);
    r.now_us -= 3 * S;
    CHECK_UINT_EQ(book_claim(&r, 1, BOOK_CLAIM(1, 2), &w), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(w.left_ms, 10000);
    CHECK_UINT_EQ(w.age_ms, 0);
    r.now_us += 3 * S;
    book_close(&r);
}

TEST(book, who_looks_after_the_time_that_is_left_finds_it_over)
{
    struct book_rig r;
    vow_record w;
    book_open(&r, true);
    (void)book_claim(&r, 0, BOOK_CLAIM(1, 1, .lease_ms = 2), NULL);
    r.now_us += 500;
    CHECK_UINT_EQ(book_claim(&r, 1, BOOK_CLAIM(1, 2), &w), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(w.left_ms, 2);
    r.now_us += w.left_ms * MS;
    CHECK_UINT_EQ(book_claim(&r, 1, BOOK_CLAIM(1, 2), NULL), VOW_STATUS_OWNED);
    book_close(&r);
}

TEST(book, spans_without_end_do_not_overflow)
{
    struct book_rig r;
    vow_record out;
    book_open(&r, true);
    (void)book_claim(&r, 0, BOOK_CLAIM(1, 1, .lease_ms = UINT64_MAX), &out);
    CHECK_UINT_EQ(out.left_ms, UINT64_MAX);
    CHECK_UINT_EQ(book_claim(&r, 1, BOOK_CLAIM(1, 2), NULL),
                  VOW_STATUS_WAITING);
    (void)book_commit(&r, 0, BOOK_COMMIT(1, 1, out.epoch));
    CHECK_UINT_EQ(book_acquire(&r, 0, BOOK_PLACE(1, 1, .lease_ms = UINT64_MAX)),
                  VOW_STATUS_OWNED);
    book_close(&r);
}

TEST(book, a_text_is_not_cut_within_a_character)
{
    struct book_rig r;
    struct vow__memory_answer a;
    char label[300];
    book_open(&r, true);
    memset(label, 'a', 254);
    memcpy(label + 254, "\xc3\xa4 and more", 12);
    struct vow__memory_step s = book_step(&r, 0);
    CHECK_INT_EQ(vow__memory_claim(&s, BOOK_CLAIM(1, 1, .label = label), &a),
                 0);
    CHECK_UINT_EQ(strlen(a.record.label), 254);
    book_close(&r);
}

/* ---- memory -------------------------------------------------------------- */

/* A little of everything; 0, or the first error. */
static int some_steps(struct book_rig *r)
{
    struct vow__memory_answer a;
    struct vow__memory_records sheet = {.size = 0};
    struct vow__memory_step s = book_step(r, 0);
    struct vow__memory_step t = book_step(r, 1);
    vow_record rec;
    vow_pool_permit place;
    struct vow__memory_pool_answer info;
    struct vow_alloc alloc = test_alloc_hook(&r->alloc);
    vow_name name = book_name(1);
    vow_pool_limits limits = {.concurrent = 1, .rate = 9, .window_us = S};
    int rc = vow__memory_claim(
        &s, BOOK_CLAIM(1, 1, .label = "label", .runner = "host:1"), &a);
    if (rc < 0)
        return rc;
    vow_hold hold = {
        .name = name, .token = book_token(1), .epoch = a.record.epoch};
    if ((rc = vow__memory_claim(&t, BOOK_CLAIM(1, 2), &a)) < 0 ||
        (rc = vow__memory_pulse(&s, &hold, 1, 10000, &rec)) < 0 ||
        (rc = vow__memory_write(&s, &hold, 0, NULL, &a)) < 0 ||
        (rc = vow__memory_peek(&s, &name, 1, &sheet)) < 0)
        return rc;
    alloc.fn(alloc.ctx, sheet.records, sheet.size, 0);
    rc = vow__memory_commit(
        &s, BOOK_COMMIT(1, 1, hold.epoch, .ttl_ms = 10, .label = "new"), &a);
    if (rc < 0)
        return rc;
    CHECK_UINT_EQ(a.record.status, VOW_STATUS_OWNED);
    hold.name = book_name(2);
    if ((rc = vow__memory_commit(
             &s, BOOK_COMMIT(1, 3, 100, .flags = VOW_COMMIT_PUT, .ttl_ms = 10),
             &a)) < 0 ||
        (rc = vow__memory_pulse(&s, &hold, 1, 0, &rec)) < 0 ||
        (rc = vow__memory_claim(&t, BOOK_CLAIM(2, 2, .takeovers = 0), &a)) < 0)
        return rc;
    vow__memory_answer_fini(&a);
    if ((rc = vow__memory_claim(&s, BOOK_CLAIM(3, 1), &a)) < 0)
        return rc;
    uint64_t epoch = a.record.epoch; /* its result is set aside */
    if ((rc = vow__memory_claim(&t, BOOK_CLAIM(3, 2), &a)) < 0 ||
        (rc = vow__memory_commit(&s, BOOK_COMMIT(3, 1, epoch), &a)) < 0 ||
        (rc = vow__memory_claim(&s, BOOK_CLAIM(3, 3), &a)) < 0)
        return rc;
    CHECK_UINT_EQ(r->book->left.count, 1);
    vow_permit_request ask =
        *BOOK_PLACE(5, 1, .limits = limits, .label = "pool");
    ask.limits_of = book_name(4);
    if ((rc = vow__memory_acquire(&s, &ask, &place)) < 0)
        return rc;
    ask.token = book_token(2);
    if ((rc = vow__memory_acquire(&t, &ask, &place)) < 0)
        return rc;
    return vow__memory_limit(&s, &name, &limits, "other", &info);
}

TEST(book, survives_every_lack_of_memory)
{
    bool fired = true;
    for (uint64_t at = 1; fired; at++) {
        struct book_rig r;
        book_open(&r, true);
        r.alloc.fail_at = r.alloc.allocs + at;
        int rc = some_steps(&r);
        fired = r.alloc.fails > 0;
        CHECK_INT_EQ(rc, fired ? VOW_ENOMEM : 0);
        r.alloc.fail_at = 0;
        CHECK_UINT_EQ(book_claim(&r, 2, BOOK_CLAIM(9, 9), NULL),
                      VOW_STATUS_OWNED);
        book_close(&r);
    }
}
