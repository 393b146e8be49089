/* SPDX-License-Identifier: MIT */
/* cas_pool_test.c - pools on the engine over a compare-and-set service: round
 * trips, lanes, turns, leases, rates, limits. What all stores promise is in
 * tests/contract, histories with faults in tests/sim. */
#include "cas_pool_rig.h"

/* ---- round trips --------------------------------------------------------- */

POOL_TEST(free_1_queued_1_granted_1_release_1)
{
    (void)w;
    (void)watch;
    warm_up(s);
    uint64_t before = cas_world_requests(s->server);
    check_status(acquire_told(s, 0, REQUEST(1, 1)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(cas_world_requests(s->server) - before, 1);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(cas_world_requests(s->server) - before, 2);
    check_status(release_told(s, 0, 1, 1), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(s->heard[1].permits, 1);
    CHECK_UINT_EQ(cas_world_requests(s->server) - before, 3);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(cas_world_requests(s->server) - before, 4);
    check_status(release_told(s, 1, 1, 2), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(cas_world_requests(s->server) - before, 5);
}

POOL_TEST(a_rate_costs_one_request_more)
{
    warm_up(s);
    uint64_t before = cas_world_requests(s->server);
    check_status(acquire_told(s, 0, REQUEST(1, 1, .limits = RATED)),
                 VOW_STATUS_OWNED);
    CHECK_UINT_EQ(cas_world_requests(s->server) - before, 2);
    check_status(renew_told(s, 0, 1, 1, true), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(cas_world_requests(s->server) - before, 4);
    struct told t = acquire_told(s, 1, REQUEST(1, 2));
    check_status(t, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(cas_world_requests(s->server) - before, 5);
    world_advance_ms(w, t.permit.again_us / 1000 + 1);
    before = cas_world_requests(s->server);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(cas_world_requests(s->server) - before, 2);
    before = cas_world_requests(s->server); /* the start, in the same request */
    check_status(release_told(s, 1, 1, 2), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(cas_world_requests(s->server) - before, 1);
    CHECK_UINT_EQ(limit_told(s, watch ? 1 : 2, 1, NULL).info.rate_used, 1);
}

POOL_TEST(a_renewal_of_many_permits_is_one_read_for_each_pool)
{
    vow_permit_hold holds[MANY];
    (void)watch;
    for (unsigned i = 0; i < MANY; i++) {
        holds[i] = hold_number(i % 2, i, false);
        check_status(
            acquire_told(s, 0,
                         REQUEST(i % 2, i, .limits = {.concurrent = MANY})),
            VOW_STATUS_OWNED);
    }
    for (int round = 0; round < 8; round++) {
        struct told t = {.done = 0};
        world_advance_ms(w, LEASE_MS / 3);
        uint64_t before = cas_world_requests(s->server);
        s->store[0]->ops->renew(s->store[0], holds, MANY, LEASE_MS, on_permits,
                                &t);
        check_status(wait_told(s, &t), VOW_STATUS_OWNED);
        CHECK_UINT_EQ(t.n, MANY);
        CHECK(cas_world_requests(s->server) - before <= 3);
    }
    CHECK_UINT_EQ(limit_told(s, 1, 0, NULL).info.holders, MANY / 2);
}

TEST(cas_pool, no_renewal_without_permits)
{
    struct world w;
    struct scene s;
    struct told t = {.done = 0};
    const struct cas_plan plan = plan_of(true);
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    s.store[0]->ops->renew(s.store[0], NULL, 0, LEASE_MS, on_permits, &t);
    CHECK_UINT_EQ(t.done, 1);
    CHECK_INT_EQ(t.code, 0);
    CHECK_UINT_EQ(cas_world_requests(s.server), 0);
    scene_close(&s);
    world_close(&w);
}

/* ---- lanes --------------------------------------------------------------- */

TEST(cas_pool, renewals_and_releases_do_not_wait_behind_acquires)
{
    struct world w;
    struct scene s;
    static struct told acquires[MANY];
    struct told renew = {.done = 0}, release = {.done = 0};
    struct cas_plan plan = plan_of(true);
    const vow_permit_hold holds[2] = {hold_number(1, 1, false),
                                      hold_number(1, 2, false)};
    unsigned before = 0;
    plan.delay_ms = 20;
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    for (unsigned i = 1; i <= 2; i++)
        check_status(
            acquire_told(&s, 0, REQUEST(1, i, .limits = {.concurrent = 2})),
            VOW_STATUS_OWNED);
    for (unsigned i = 0; i < MANY; i++)
        s.store[0]->ops->acquire(s.store[0], REQUEST(1, 10 + i), on_permits,
                                 &acquires[i]);
    s.store[0]->ops->renew(s.store[0], &holds[0], 1, LEASE_MS, on_permits,
                           &renew);
    s.store[0]->ops->release(s.store[0], &holds[1], on_permits, &release);
    check_status(wait_told(&s, &renew), VOW_STATUS_OWNED);
    if (release.done == 0)
        (void)wait_told(&s, &release);
    CHECK_UINT_EQ(release.permit.status, VOW_STATUS_OWNED);
    for (unsigned i = 0; i < MANY; i++)
        before += acquires[i].done;
    CHECK(before < MANY / 4);
    world_advance_ms(&w, TIMEOUT_MS + 100);
    for (unsigned i = 0; i < MANY; i++)
        CHECK_UINT_EQ(acquires[i].done, 1);
    scene_close(&s);
    world_close(&w);
}

TEST(cas_pool, requests_of_a_process_queue_in_the_order_of_the_calls)
{
    struct world w;
    struct scene s;
    struct told t[20];
    struct cas_plan plan = plan_of(false);
    plan.delay_ms = 20;
    world_open(&w);
    memset(t, 0, sizeof(t));
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    for (unsigned i = 0; i < 20; i++)
        s.store[0]->ops->acquire(s.store[0], REQUEST(1, i), on_permits, &t[i]);
    for (unsigned i = 0; i < 20; i++)
        if (t[i].done == 0)
            (void)wait_told(&s, &t[i]);
    CHECK_UINT_EQ(t[0].permit.status, VOW_STATUS_OWNED);
    for (unsigned i = 1; i < 20; i++)
        CHECK_UINT_EQ(t[i].permit.ahead, i - 1);
    scene_close(&s);
    world_close(&w);
}

POOL_TEST(a_release_right_behind_an_acquire_leaves_nothing)
{
    struct told acquire = {.done = 0}, release = {.done = 0};
    const vow_permit_hold hold = hold_number(1, 1, false);
    (void)w;
    (void)watch;
    s->store[0]->ops->acquire(s->store[0], REQUEST(1, 1), on_permits, &acquire);
    s->store[0]->ops->release(s->store[0], &hold, on_permits, &release);
    check_status(wait_told(s, &release), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(acquire.done, 1);
    CHECK_UINT_EQ(limit_told(s, 1, 1, NULL).info.holders, 0);
}

/* ---- turns and leases ---------------------------------------------------- */

POOL_TEST(a_turn_that_nobody_takes_is_over_after_2_s)
{
    (void)watch;
    check_status(acquire_told(s, 0, REQUEST(1, 1)), VOW_STATUS_OWNED);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_WAITING);
    check_status(acquire_told(s, 2, REQUEST(1, 3)), VOW_STATUS_WAITING);
    check_status(release_told(s, 0, 1, 1), VOW_STATUS_OWNED);
    world_advance_ms(w, 1990);
    CHECK_UINT_EQ(s->heard[2].permits, 0);
    world_advance_ms(w, 20);
    CHECK_UINT_EQ(s->heard[2].permits, 1);
    check_status(acquire_told(s, 2, REQUEST(1, 3)), VOW_STATUS_OWNED);
    check_status(renew_told(s, 1, 1, 2, false), VOW_STATUS_NONE);
}

/* The process of the holder and the process of the head die. The waiter renews,
 * as callers do, and acquires when told. */
POOL_TEST(the_dead_cost_at_most_a_lease_and_2_s)
{
    (void)watch;
    check_status(acquire_told(s, 0, REQUEST(1, 1)), VOW_STATUS_OWNED);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_WAITING);
    check_status(acquire_told(s, 2, REQUEST(1, 3)), VOW_STATUS_WAITING);
    cas_memory_kill(s->service[0]);
    cas_memory_kill(s->service[1]);
    uint64_t began_ns = vow_loop_now_ns(w->loop);
    uint32_t status = VOW_STATUS_WAITING;
    for (int i = 0; i < 1000 && status == VOW_STATUS_WAITING; i++) {
        world_advance_ms(w, 100);
        if (s->heard[2].permits > 0 || i % 10 == 9)
            status = acquire_told(s, 2, REQUEST(1, 3)).permit.status;
    }
    CHECK_UINT_EQ(status, VOW_STATUS_OWNED);
    CHECK((vow_loop_now_ns(w->loop) - began_ns) / 1000000 <= LEASE_MS + 2000);
}

POOL_TEST(a_permit_that_is_not_renewed_ends_beside_others)
{
    (void)watch;
    check_status(acquire_told(s, 0, REQUEST(1, 1)), VOW_STATUS_OWNED);
    check_status(acquire_told(s, 0, REQUEST(2, 2)), VOW_STATUS_OWNED);
    for (int i = 0; i < 4; i++) {
        world_advance_ms(w, LEASE_MS / 3);
        check_status(renew_told(s, 0, 2, 2, false), VOW_STATUS_OWNED);
    }
    check_status(acquire_told(s, 1, REQUEST(1, 3)), VOW_STATUS_OWNED);
    check_status(acquire_told(s, 1, REQUEST(2, 4)), VOW_STATUS_WAITING);
    check_status(renew_told(s, 0, 1, 1, false), VOW_STATUS_NONE);
}

/* Work may have started when its process dies: the start counts for a window
 * from the end of the lease, or of the entry, on. */
POOL_TEST(a_start_that_was_never_told_counts)
{
    struct told t = acquire_told(s, 0, REQUEST(1, 1, .limits = RATED));
    uint64_t waited_ms = 0;
    check_status(t, VOW_STATUS_OWNED);
    (void)watch;
    for (int i = 0; i < 12; i++) { /* the open entry is written again */
        world_advance_ms(w, LEASE_MS / 3);
        check_status(renew_told(s, 0, 1, 1, false), VOW_STATUS_OWNED);
    }
    CHECK_UINT_EQ(limit_told(s, 1, 1, NULL).info.rate_used, 1);
    cas_memory_kill(s->service[0]);
    t = acquire_told(s, 1, REQUEST(1, 2));
    check_status(t, VOW_STATUS_WAITING);
    while (t.permit.status == VOW_STATUS_WAITING && waited_ms < 60000) {
        uint64_t ms = t.permit.again_us / 1000 + 1;
        world_advance_ms(w, ms < LEASE_MS / 3 ? ms : LEASE_MS / 3);
        waited_ms += ms < LEASE_MS / 3 ? ms : LEASE_MS / 3;
        t = acquire_told(s, 1, REQUEST(1, 2));
    }
    check_status(t, VOW_STATUS_OWNED);
    CHECK(waited_ms > LEASE_MS + 500);
    CHECK(waited_ms < 3 * LEASE_MS + 5000);
}

TEST(cas_pool, a_permit_whose_lease_was_ended_is_lost)
{
    struct world w;
    struct scene s;
    struct cas_plan plan = plan_of(true);
    plan.lost_leases = 1000;
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    check_status(acquire_told(&s, 0, REQUEST(1, 1)), VOW_STATUS_OWNED);
    check_status(acquire_told(&s, 1, REQUEST(1, 2)), VOW_STATUS_WAITING);
    world_advance_ms(&w, LEASE_MS - 100);
    check_status(renew_told(&s, 0, 1, 1, false), VOW_STATUS_NONE);
    check_status(acquire_told(&s, 1, REQUEST(1, 2)), VOW_STATUS_OWNED);
    check_status(acquire_told(&s, 0, REQUEST(1, 1)), VOW_STATUS_WAITING);
    scene_close(&s);
    world_close(&w);
}

static void renew_starts(struct scene *s, unsigned from, unsigned to)
{
    vow_permit_hold holds[MANY];
    struct told t = {.done = 0};
    for (unsigned i = from; i < to; i++)
        holds[i] = hold_number(1, i, true);
    s->store[0]->ops->renew(s->store[0], holds + from, to - from, LEASE_MS,
                            on_permits, &t);
    check_status(wait_told(s, &t), VOW_STATUS_OWNED);
}

/* The grants of a process share an entry, which is open until the last of them
 * has started. */
POOL_TEST(with_a_high_rate_grants_share_an_entry)
{
    const vow_pool_limits high = {.rate = 1000, .window_us = 500000};
    (void)watch;
    for (unsigned i = 0; i < MANY; i++)
        check_status(acquire_told(s, 0, REQUEST(1, i, .limits = high)),
                     VOW_STATUS_OWNED);
    CHECK_UINT_EQ(cas_world_entries(s->server), 1);
    CHECK_UINT_EQ(limit_told(s, 1, 1, NULL).info.rate_used, MANY);
    renew_starts(s, 0, MANY - 2);
    check_status(release_told(s, 0, 1, MANY - 1), VOW_STATUS_OWNED);
    world_advance_ms(w, 1000);
    CHECK_UINT_EQ(limit_told(s, 1, 1, NULL).info.rate_used, MANY);
    renew_starts(s, MANY - 2, MANY - 1);
    CHECK_UINT_EQ(limit_told(s, 1, 1, NULL).info.rate_used, MANY);
    world_advance_ms(w, 502);
    CHECK_UINT_EQ(limit_told(s, 1, 1, NULL).info.rate_used, 0);
    CHECK_UINT_EQ(cas_world_entries(s->server), 0);
}

/* Without a clock, a process knows since when a start is there. */
POOL_TEST(a_start_gets_older_while_a_process_knows_the_start)
{
    (void)watch;
    check_status(acquire_told(s, 0, REQUEST(1, 1, .limits = RATED)),
                 VOW_STATUS_OWNED);
    check_status(release_told(s, 0, 1, 1), VOW_STATUS_OWNED);
    struct told t = acquire_told(s, 1, REQUEST(1, 2));
    check_status(t, VOW_STATUS_WAITING);
    CHECK(t.permit.again_us > 490000 && t.permit.again_us <= 500001);
    world_advance_ms(w, 250);
    t = acquire_told(s, 1, REQUEST(1, 2));
    check_status(t, VOW_STATUS_WAITING);
    CHECK(t.permit.again_us > 240000 && t.permit.again_us <= 250001);
}

/* A renewal does not mark: the caller is told to acquire now. */
POOL_TEST(a_renewal_under_a_rate_says_acquire_now_when_the_turn_has_come)
{
    (void)watch;
    check_status(acquire_told(s, 0, REQUEST(1, 1, .limits = RATED)),
                 VOW_STATUS_OWNED);
    check_status(release_told(s, 0, 1, 1), VOW_STATUS_OWNED);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_WAITING);
    world_advance_ms(w, 510);
    CHECK_UINT_EQ(s->heard[1].permits, 1);
    struct told t = renew_told(s, 1, 1, 2, false);
    check_status(t, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(t.permit.again_us, 1);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_OWNED);
}

/* ---- limits -------------------------------------------------------------- */

POOL_TEST(lower_limits_take_nothing_from_holders)
{
    const vow_pool_limits two = {.concurrent = 2}, one = {.concurrent = 1};
    const vow_pool_limits rate = {
        .concurrent = 2, .rate = 1, .window_us = 1000000};
    (void)w;
    (void)watch;
    check_status(acquire_told(s, 0, REQUEST(1, 1, .limits = two)),
                 VOW_STATUS_OWNED);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_OWNED);
    check_status(acquire_told(s, 2, REQUEST(1, 3)), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(limit_told(s, 2, 1, &one).info.held, 2);
    check_status(renew_told(s, 1, 1, 2, false), VOW_STATUS_OWNED);
    check_status(release_told(s, 0, 1, 1), VOW_STATUS_OWNED);
    check_status(acquire_told(s, 2, REQUEST(1, 3)), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(limit_told(s, 2, 1, &rate).info.held, 1);
    check_status(acquire_told(s, 2, REQUEST(1, 3)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(limit_told(s, 2, 1, NULL).info.rate_used, 1);
}

/* The limits change between the join and the mark: the mark compares. */
POOL_TEST(a_mark_does_not_count_by_limits_that_have_changed)
{
    struct told t = {.done = 0};
    struct cas_plan plan = plan_of(watch);
    const vow_pool_limits two = {.rate = 2, .window_us = 1000000};
    const vow_pool_limits one = {.rate = 1, .window_us = 1000000};
    warm_up(s);
    check_status(acquire_told(s, 2, REQUEST(1, 2, .limits = two)),
                 VOW_STATUS_OWNED);
    uint64_t writes = cas_world_writes(s->server);
    plan.delay_ms = 20;
    cas_world_set(s->server, &plan);
    s->store[0]->ops->acquire(s->store[0], REQUEST(1, 1), on_permits, &t);
    for (int i = 0; i < 100 && cas_world_writes(s->server) == writes; i++)
        world_advance_ms(w, 1);
    CHECK_UINT_EQ(cas_world_writes(s->server), writes + 1);
    cas_memory_cut(s->service[0], true); /* the answer is on its way */
    CHECK_UINT_EQ(limit_told(s, 1, 1, &one).info.limits.rate, 1);
    cas_memory_cut(s->service[0], false);
    check_status(wait_told(s, &t), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(limit_told(s, 1, 1, NULL).info.rate_used, 1);
}

/* A holder that the change of limits has missed marks its row. */
POOL_TEST(a_holder_that_was_not_marked_is_marked_by_its_renewal)
{
    const vow_pool_limits two = {.concurrent = 2}, one = {.concurrent = 1};
    (void)w;
    (void)watch;
    cas_world_miss_marks(s->server, true);
    check_status(acquire_told(s, 0, REQUEST(1, 1, .limits = two)),
                 VOW_STATUS_OWNED);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(limit_told(s, 2, 1, &one).info.held, 1);
    check_status(renew_told(s, 1, 1, 2, false), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(limit_told(s, 2, 1, NULL).info.held, 1);
    check_status(acquire_told(s, 0, REQUEST(1, 1)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(limit_told(s, 2, 1, NULL).info.held, 2);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_OWNED);
}

POOL_TEST(limits_without_an_answer_are_set_once)
{
    struct cas_plan plan = plan_of(watch);
    const vow_pool_limits three = {.concurrent = 3};
    check_status(acquire_told(s, 0, REQUEST(1, 1)), VOW_STATUS_OWNED);
    plan.lost_answers = 500;
    cas_world_set(s->server, &plan);
    struct told t = limit_told(s, 0, 1, &three);
    CHECK_INT_EQ(t.code, 0);
    CHECK_UINT_EQ(t.info.limits.concurrent, 3);
    cas_world_heal(s->server);
    (void)w;
}
