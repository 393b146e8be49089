/* SPDX-License-Identifier: MIT */
/* place_test.c - places in a pool: first come first served, weights, leases,
 * limits that change, and the dead. */
#include "contract.h"
#include <string.h>

static vow_pool_limits at_once(uint32_t concurrent)
{
    return (vow_pool_limits){.concurrent = concurrent};
}

static uint32_t status(struct rig_place p)
{
    CHECK_INT_EQ(p.code, 0);
    return p.place.status;
}

CONTRACT(place, as_many_hold_as_the_limit_allows)
{
    uint64_t last = 0;
    for (uint64_t i = 0; i < 3; i++) {
        struct rig_place p =
            rig_acquire(r, i, PLACE("p", i, .limits = at_once(3)));
        CHECK_UINT_EQ(status(p), VOW_STATUS_OWNED);
        CHECK(p.place.fence > last);
        CHECK_UINT_EQ(p.place.limits.concurrent, 3);
        last = p.place.fence;
    }
    struct rig_place p = rig_acquire(r, 3, PLACE("p", 3));
    CHECK_UINT_EQ(status(p), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(p.place.ahead, 0);
    p = rig_acquire(r, 4, PLACE("p", 4));
    CHECK_UINT_EQ(p.place.ahead, 1);
    struct rig_pool info = rig_limit(r, 0, "p", NULL);
    CHECK_UINT_EQ(info.info.held, 3);
    CHECK_UINT_EQ(info.info.holders, 3);
    CHECK_UINT_EQ(info.info.waiting, 2);
}

CONTRACT(place, a_pool_without_limits_has_room_for_all)
{
    for (uint64_t i = 0; i < 10; i++)
        CHECK_UINT_EQ(status(rig_acquire(r, 0, PLACE("p", i, .weight = 1000))),
                      VOW_STATUS_OWNED);
}

CONTRACT(place, a_release_grants_the_next_which_is_told)
{
    (void)rig_acquire(r, 0, PLACE("p", 1, .limits = at_once(1)));
    for (uint64_t i = 1; i < 4; i++)
        CHECK_UINT_EQ(status(rig_acquire(r, i, PLACE("p", 1 + i))),
                      VOW_STATUS_WAITING);
    for (uint64_t i = 0; i < 3; i++) {
        CHECK_UINT_EQ(status(rig_release(r, i, "p", 1 + i)), VOW_STATUS_OWNED);
        rig_expect(r, &r->news[i + 1].places, 1);
        vow_token want = rig_token(2 + i);
        CHECK_MEM_EQ(&r->news[i + 1].token, &want, sizeof(want));
        CHECK_UINT_EQ(status(rig_acquire(r, i + 1, PLACE("p", 2 + i))),
                      VOW_STATUS_OWNED);
    }
    CHECK_UINT_EQ(status(rig_release(r, 3, "p", 4)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(status(rig_release(r, 3, "p", 4)), VOW_STATUS_NONE);
}

CONTRACT(place, only_the_head_may_be_granted)
{
    (void)rig_acquire(r, 0, PLACE("p", 1, .weight = 2, .limits = at_once(3)));
    CHECK_UINT_EQ(status(rig_acquire(r, 1, PLACE("p", 2, .weight = 3))),
                  VOW_STATUS_WAITING);
    CHECK_UINT_EQ(status(rig_acquire(r, 2, PLACE("p", 3))), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(
        status(rig_acquire(r, 3, PLACE("p", 4, .flags = VOW_PERMIT_TRY))),
        VOW_STATUS_BUSY);
    (void)rig_release(r, 0, "p", 1);
    CHECK_UINT_EQ(status(rig_acquire(r, 2, PLACE("p", 3))), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(status(rig_acquire(r, 1, PLACE("p", 2))), VOW_STATUS_OWNED);
}

CONTRACT(place, who_leaves_the_queue_makes_way)
{
    (void)rig_acquire(r, 0, PLACE("p", 1, .weight = 2, .limits = at_once(3)));
    (void)rig_acquire(r, 1, PLACE("p", 2, .weight = 3));
    (void)rig_acquire(r, 2, PLACE("p", 3));
    CHECK_UINT_EQ(status(rig_release(r, 1, "p", 2)), VOW_STATUS_WAITING);
    rig_expect(r, &r->news[2].places, 1);
    CHECK_UINT_EQ(status(rig_acquire(r, 2, PLACE("p", 3))), VOW_STATUS_OWNED);
}

CONTRACT(place, positions_are_exact_when_some_leave_from_the_middle)
{
    (void)rig_acquire(r, 0, PLACE("p", 0, .limits = at_once(1)));
    for (uint64_t i = 1; i <= 6; i++)
        CHECK_UINT_EQ(rig_acquire(r, 1, PLACE("p", i)).place.ahead, i - 1);
    (void)rig_release(r, 1, "p", 2);
    (void)rig_release(r, 1, "p", 5);
    CHECK_UINT_EQ(rig_acquire(r, 1, PLACE("p", 1)).place.ahead, 0);
    CHECK_UINT_EQ(rig_acquire(r, 1, PLACE("p", 3)).place.ahead, 1);
    CHECK_UINT_EQ(rig_renew(r, 1, "p", 4, LONG_MS).place.ahead, 2);
    CHECK_UINT_EQ(rig_acquire(r, 1, PLACE("p", 6)).place.ahead, 3);
    CHECK_UINT_EQ(rig_acquire(r, 1, PLACE("p", 7)).place.ahead, 4);
}

CONTRACT(place, trying_does_not_queue)
{
    vow_permit_request ask =
        *PLACE("p", 1, .limits = at_once(1), .flags = VOW_PERMIT_TRY);
    CHECK_UINT_EQ(status(rig_acquire(r, 0, &ask)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(status(rig_acquire(r, 0, &ask)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(
        status(rig_acquire(r, 1, PLACE("p", 2, .flags = VOW_PERMIT_TRY))),
        VOW_STATUS_BUSY);
    CHECK_UINT_EQ(status(rig_renew(r, 1, "p", 2, LONG_MS)), VOW_STATUS_NONE);
    CHECK_UINT_EQ(rig_limit(r, 1, "p", NULL).info.waiting, 0);
}

CONTRACT(place, trying_with_a_token_that_queues_keeps_its_place)
{
    (void)rig_acquire(r, 0, PLACE("p", 1, .limits = at_once(1)));
    (void)rig_acquire(r, 1, PLACE("p", 2));
    vow_permit_request ask = *PLACE("p", 2, .flags = VOW_PERMIT_TRY);
    CHECK_UINT_EQ(status(rig_acquire(r, 1, &ask)), VOW_STATUS_WAITING);
}

CONTRACT(place, a_lease_of_0_is_refused_and_changes_nothing)
{
    (void)rig_acquire(r, 0, PLACE("p", 1, .limits = at_once(1)));
    (void)rig_acquire(r, 1, PLACE("p", 2));
    for (uint64_t i = 1; i <= 3; i++) {
        CHECK_INT_EQ(rig_acquire(r, 1, PLACE("p", i, .lease_ms = 0)).code,
                     VOW_EINVAL);
        CHECK_INT_EQ(rig_renew(r, 1, "p", i, 0).code, VOW_EINVAL);
    }
    CHECK_UINT_EQ(status(rig_renew(r, 0, "p", 1, LONG_MS)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(status(rig_renew(r, 1, "p", 2, LONG_MS)), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(status(rig_renew(r, 2, "p", 3, LONG_MS)), VOW_STATUS_NONE);
}

CONTRACT(place, a_weight_above_the_limit_is_refused)
{
    vow_pool_limits limits = {.concurrent = 5, .rate = 3, .window_us = 1000000};
    CHECK_INT_EQ(
        rig_acquire(r, 0, PLACE("p", 1, .weight = 6, .limits = limits)).code,
        VOW_EINVAL);
    CHECK_INT_EQ(
        rig_acquire(r, 0, PLACE("p", 1, .weight = 4, .limits = limits)).code,
        VOW_EINVAL);
    CHECK_UINT_EQ(
        status(rig_acquire(r, 0, PLACE("p", 1, .weight = 3, .limits = limits))),
        VOW_STATUS_OWNED);
}

CONTRACT(place, the_first_who_asks_sets_the_limits)
{
    (void)rig_acquire(r, 0, PLACE("p", 1, .limits = at_once(1)));
    struct rig_place p =
        rig_acquire(r, 1, PLACE("p", 2, .limits = at_once(100)));
    CHECK_UINT_EQ(status(p), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(p.place.limits.concurrent, 1);
}

CONTRACT(place, repeats_by_the_same_token_change_nothing)
{
    struct rig_place first =
        rig_acquire(r, 0, PLACE("p", 1, .limits = at_once(1)));
    for (int i = 0; i < 3; i++) {
        struct rig_place p = rig_acquire(r, 0, PLACE("p", 1));
        CHECK_UINT_EQ(status(p), VOW_STATUS_OWNED);
        CHECK_UINT_EQ(p.place.fence, first.place.fence);
        p = rig_acquire(r, 1, PLACE("p", 2));
        CHECK_UINT_EQ(status(p), VOW_STATUS_WAITING);
        CHECK_UINT_EQ(p.place.ahead, 0);
    }
    struct rig_pool info = rig_limit(r, 0, "p", NULL);
    CHECK_UINT_EQ(info.info.held, 1);
    CHECK_UINT_EQ(info.info.waiting, 1);
}

CONTRACT(place, a_token_is_of_one_pool)
{
    CHECK_UINT_EQ(
        status(rig_acquire(r, 0, PLACE("p", 1, .limits = at_once(1)))),
        VOW_STATUS_OWNED);
    CHECK_UINT_EQ(
        status(rig_acquire(r, 0, PLACE("q", 1, .limits = at_once(1)))),
        VOW_STATUS_OWNED);
    CHECK_UINT_EQ(status(rig_release(r, 0, "p", 1)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(status(rig_renew(r, 0, "q", 1, LONG_MS)), VOW_STATUS_OWNED);
}

CONTRACT(place, keys_have_the_limits_of_their_pool_each_for_itself)
{
    vow_permit_request a = *PLACE("p:a", 1, .limits = at_once(1));
    vow_permit_request b = *PLACE("p:b", 2, .limits = at_once(9));
    CHECK_UINT_EQ(status(rig_acquire(r, 0, &a)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(status(rig_acquire(r, 1, &b)), VOW_STATUS_OWNED);
    a.token = rig_token(3);
    b.token = rig_token(4);
    CHECK_UINT_EQ(status(rig_acquire(r, 2, &a)), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(status(rig_acquire(r, 3, &b)), VOW_STATUS_WAITING);
    vow_pool_limits two = at_once(2);
    CHECK_INT_EQ(rig_limit(r, 4, "p", &two).code, 0);
    CHECK_UINT_EQ(status(rig_acquire(r, 2, &a)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(status(rig_renew(r, 3, "p:b", 4, LONG_MS)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(status(rig_renew(r, 2, "p:a", 3, LONG_MS)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(status(rig_release(r, 2, "p:a", 3)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(status(rig_renew(r, 2, "p:a", 3, LONG_MS)), VOW_STATUS_NONE);
}

/* A store that does not know the name as one of a key may accept the limits. */
CONTRACT(place, a_key_has_no_limits_of_its_own)
{
    vow_pool_limits nine = at_once(9);
    CHECK_UINT_EQ(
        status(rig_acquire(r, 0, PLACE("p:a", 1, .limits = at_once(1)))),
        VOW_STATUS_OWNED);
    int code = rig_limit(r, 1, "p:a", &nine).code;
    CHECK(code == 0 || code == VOW_EINVAL);
    struct rig_place p = rig_acquire(r, 2, PLACE("p:a", 2));
    CHECK_UINT_EQ(status(p), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(p.place.limits.concurrent, 1);
    CHECK_UINT_EQ(status(rig_renew(r, 0, "p:a", 1, LONG_MS)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(status(rig_release(r, 0, "p:a", 1)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(status(rig_acquire(r, 2, PLACE("p:a", 2))), VOW_STATUS_OWNED);
}

/* ---- leases -------------------------------------------------------------- */

CONTRACT(place_lease, a_dead_holder_gives_its_place_back)
{
    CHECK_UINT_EQ(status(rig_acquire(r, 0,
                                     PLACE("p", 1, .limits = at_once(1),
                                           .lease_ms = rig_short_ms(r)))),
                  VOW_STATUS_OWNED);
    rig_lapse(r);
    CHECK_UINT_EQ(status(rig_acquire(r, 1, PLACE("p", 2))), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(status(rig_renew(r, 0, "p", 1, LONG_MS)), VOW_STATUS_NONE);
    CHECK_UINT_EQ(status(rig_release(r, 0, "p", 1)), VOW_STATUS_NONE);
    CHECK_UINT_EQ(rig_limit(r, 0, "p", NULL).info.held, 1);
}

CONTRACT(place_lease, who_waits_knows_when_a_holder_would_be_dead)
{
    (void)rig_acquire(
        r, 0, PLACE("p", 1, .limits = at_once(1), .lease_ms = rig_short_ms(r)));
    struct rig_place p = rig_acquire(r, 1, PLACE("p", 2));
    if (p.place.status == VOW_STATUS_WAITING) {
        CHECK(p.place.again_us > 0);
        CHECK(p.place.again_us <= 1000 * rig_short_ms(r) + 1000);
        rig_advance_ms(r, p.place.again_us / 1000 + 1);
        p = rig_acquire(r, 1, PLACE("p", 2));
    }
    CHECK_UINT_EQ(status(p), VOW_STATUS_OWNED);
}

CONTRACT(place_lease, a_dead_head_does_not_block_the_others)
{
    (void)rig_acquire(r, 0, PLACE("p", 1, .weight = 2, .limits = at_once(2)));
    CHECK_UINT_EQ(
        status(rig_acquire(
            r, 1, PLACE("p", 2, .weight = 2, .lease_ms = rig_short_ms(r)))),
        VOW_STATUS_WAITING);
    CHECK_UINT_EQ(status(rig_acquire(r, 2, PLACE("p", 3))), VOW_STATUS_WAITING);
    rig_lapse(r);
    CHECK_UINT_EQ(rig_acquire(r, 2, PLACE("p", 3)).place.ahead, 0);
    (void)rig_release(r, 0, "p", 1);
    rig_expect(r, &r->news[2].places, 1);
    CHECK_UINT_EQ(status(rig_acquire(r, 2, PLACE("p", 3))), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(status(rig_renew(r, 1, "p", 2, LONG_MS)), VOW_STATUS_NONE);
}

/* Both leases get short and then long again. False: a short one has ended in
 * between, as the machine was slow. */
static bool renew_short_and_long(struct rig *r, uint32_t holder,
                                 uint32_t waiter)
{
    uint64_t ms = rig_short_ms(r);
    (void)rig_acquire(r, 0, PLACE("p", holder, .limits = at_once(1)));
    (void)rig_acquire(r, 1, PLACE("p", waiter));
    CHECK_UINT_EQ(status(rig_renew(r, 0, "p", holder, ms)), VOW_STATUS_OWNED);
    if (status(rig_renew(r, 1, "p", waiter, ms)) != VOW_STATUS_WAITING ||
        status(rig_renew(r, 0, "p", holder, LONG_MS)) != VOW_STATUS_OWNED)
        return false;
    return status(rig_renew(r, 1, "p", waiter, LONG_MS)) == VOW_STATUS_WAITING;
}

CONTRACT(place_lease, renewing_keeps_a_place_and_a_place_in_the_queue)
{
    for (uint32_t i = 1; !renew_short_and_long(r, i, i + 1); i += 2) {
        (void)rig_release(r, 1, "p", i + 1);
        (void)rig_release(r, 0, "p", i);
    }
    rig_lapse(r);
    struct rig_pool info = rig_limit(r, 2, "p", NULL);
    CHECK_UINT_EQ(info.info.holders, 1);
    CHECK_UINT_EQ(info.info.waiting, 1);
}

CONTRACT(place_lease, a_granted_place_that_nobody_fetches_goes_on)
{
    (void)rig_acquire(r, 0, PLACE("p", 1, .limits = at_once(1)));
    (void)rig_acquire(r, 1, PLACE("p", 2));
    (void)rig_acquire(r, 2, PLACE("p", 3));
    (void)rig_release(r, 0, "p", 1);
    CHECK_UINT_EQ(status(rig_acquire(r, 2, PLACE("p", 3))), VOW_STATUS_WAITING);
    rig_advance_ms(r, 2100);
    CHECK_UINT_EQ(status(rig_acquire(r, 2, PLACE("p", 3))), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(status(rig_renew(r, 1, "p", 2, LONG_MS)), VOW_STATUS_NONE);
}

CONTRACT(place_lease, a_granted_place_is_fetched_by_renewing_it)
{
    (void)rig_acquire(r, 0, PLACE("p", 1, .limits = at_once(1)));
    (void)rig_acquire(r, 1, PLACE("p", 2));
    (void)rig_release(r, 0, "p", 1);
    struct rig_place p = rig_renew(r, 1, "p", 2, LONG_MS);
    CHECK_UINT_EQ(status(p), VOW_STATUS_OWNED);
    CHECK(p.place.fence > 0);
    rig_advance_ms(r, 2100);
    CHECK_UINT_EQ(status(rig_renew(r, 1, "p", 2, LONG_MS)), VOW_STATUS_OWNED);
}

CONTRACT(place_lease, a_closed_instance_gives_its_places_back)
{
    (void)rig_acquire(r, 0, PLACE("p", 1, .limits = at_once(2)));
    (void)rig_acquire(r, 0, PLACE("p", 2));
    (void)rig_acquire(r, 1, PLACE("p", 3, .weight = 2));
    (void)rig_acquire(r, 2, PLACE("p", 4));
    rig_close(r, 1); /* the head of the queue */
    rig_close(r, 0);
    rig_expect(r, &r->news[2].places, 1);
    CHECK_UINT_EQ(status(rig_acquire(r, 2, PLACE("p", 4))), VOW_STATUS_OWNED);
    struct rig_pool info = rig_limit(r, 2, "p", NULL);
    CHECK_UINT_EQ(info.info.held, 1);
    CHECK_UINT_EQ(info.info.waiting, 0);
}

/* ---- limits that change -------------------------------------------------- */

CONTRACT(place_limit, unknown_pools_cannot_be_read_but_set)
{
    vow_pool_limits three = at_once(3);
    CHECK_INT_EQ(rig_limit(r, 0, "p", NULL).code, VOW_ENOENT);
    struct rig_pool p = rig_limit(r, 0, "p", &three);
    CHECK_INT_EQ(p.code, 0);
    CHECK_UINT_EQ(p.info.limits.concurrent, 3);
    CHECK_STR_EQ(p.label, "p");
    CHECK_UINT_EQ(rig_limit(r, 1, "p", NULL).info.limits.concurrent, 3);
    CHECK_UINT_EQ(rig_acquire(r, 2, PLACE("p", 1, .limits = at_once(1)))
                      .place.limits.concurrent,
                  3);
}

CONTRACT(place_limit, raising_it_lets_those_in_who_wait)
{
    vow_pool_limits three = at_once(3);
    (void)rig_acquire(r, 0, PLACE("p", 1, .limits = at_once(1)));
    for (uint64_t i = 1; i < 4; i++)
        (void)rig_acquire(r, i, PLACE("p", 1 + i));
    CHECK_UINT_EQ(rig_limit(r, 0, "p", &three).info.held, 3);
    rig_expect(r, &r->news[1].places, 1);
    rig_expect(r, &r->news[2].places, 1);
    CHECK_UINT_EQ(status(rig_acquire(r, 2, PLACE("p", 3))), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(status(rig_acquire(r, 3, PLACE("p", 4))), VOW_STATUS_WAITING);
}

CONTRACT(place_limit, lowering_it_stops_grants_until_enough_left)
{
    vow_pool_limits one = at_once(1);
    for (uint64_t i = 0; i < 3; i++)
        (void)rig_acquire(r, 0, PLACE("p", i, .limits = at_once(3)));
    (void)rig_acquire(r, 1, PLACE("p", 9));
    CHECK_UINT_EQ(rig_limit(r, 2, "p", &one).info.held, 3);
    for (uint64_t i = 0; i < 2; i++) {
        (void)rig_release(r, 0, "p", i);
        CHECK_UINT_EQ(status(rig_acquire(r, 1, PLACE("p", 9))),
                      VOW_STATUS_WAITING);
    }
    (void)rig_release(r, 0, "p", 2);
    CHECK_UINT_EQ(status(rig_acquire(r, 1, PLACE("p", 9))), VOW_STATUS_OWNED);
}

CONTRACT(place_limit, a_weight_that_became_impossible_does_not_block)
{
    vow_pool_limits one = at_once(1);
    (void)rig_acquire(r, 0, PLACE("p", 1, .limits = at_once(2)));
    (void)rig_acquire(r, 1, PLACE("p", 2, .weight = 2));
    (void)rig_acquire(r, 2, PLACE("p", 3));
    (void)rig_limit(r, 3, "p", &one);
    rig_expect(r, &r->news[1].places, 1); /* it asks, and hears why */
    (void)rig_release(r, 0, "p", 1);
    CHECK_UINT_EQ(status(rig_acquire(r, 2, PLACE("p", 3))), VOW_STATUS_OWNED);
    CHECK_INT_EQ(rig_acquire(r, 1, PLACE("p", 2, .weight = 2)).code,
                 VOW_EINVAL);
    CHECK_UINT_EQ(status(rig_renew(r, 1, "p", 2, LONG_MS)), VOW_STATUS_NONE);
}

CONTRACT(place_limit, pools_are_listed_with_their_labels)
{
    struct rig_pool pools[4];
    vow_pool_limits limits = {
        .concurrent = 2, .rate = 9, .window_us = 60000000};
    CHECK_UINT_EQ(rig_pools(r, 0, pools, 4), 0);
    (void)rig_acquire(r, 0, PLACE("p", 1, .weight = 2, .limits = limits));
    (void)rig_acquire(r, 1, PLACE("p", 2));
    (void)rig_acquire(r, 1, PLACE("q", 3));
    CHECK_UINT_EQ(rig_pools(r, 2, pools, 4), 2);
    size_t p = strcmp(pools[0].label, "p") == 0 ? 0 : 1;
    CHECK_STR_EQ(pools[p].label, "p");
    CHECK_STR_EQ(pools[1 - p].label, "q");
    CHECK_UINT_EQ(pools[p].info.limits.rate, 9);
    CHECK_UINT_EQ(pools[p].info.limits.window_us, 60000000);
    CHECK_UINT_EQ(pools[p].info.held, 2);
    CHECK_UINT_EQ(pools[p].info.holders, 1);
    CHECK_UINT_EQ(pools[p].info.waiting, 1);
    CHECK_UINT_EQ(pools[p].info.rate_used, 2);
    vow_name name = rig_name("p");
    CHECK(vow_name_equal(&pools[p].info.pool, &name));
}
