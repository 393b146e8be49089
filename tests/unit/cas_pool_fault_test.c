/* SPDX-License-Identifier: MIT */
/* cas_pool_fault_test.c - pools on the engine over a compare-and-set service:
 * requests without an answer, events that overtake answers, the close, and
 * every failed allocation. */
#include "cas_pool_rig.h"
#include "fault.h"

/* ---- requests without an answer ------------------------------------------ */

/* A request without an answer, which is done, or is lost, or comes true later:
 * the caller walks away, and nothing is left. */
static void check_orphan(bool watch, struct cas_plan plan)
{
    struct world w;
    struct scene s;
    const struct cas_plan sound = plan_of(watch);
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &sound), 0);
    warm_up(&s);
    cas_world_set(s.server, &plan);
    struct told t = acquire_told(&s, 0, REQUEST(1, 1));
    CHECK_INT_EQ(t.code, VOW_EUNSURE);
    cas_world_heal(s.server);
    world_advance_ms(&w, LEASE_MS + 25000);
    check_status(acquire_told(&s, 1, REQUEST(1, 2)), VOW_STATUS_OWNED);
    world_advance_ms(&w, 0);
    CHECK_UINT_EQ(limit_told(&s, 2, 1, NULL).info.waiting, 0);
    scene_close(&s);
    world_close(&w);
}

TEST(cas_pool, a_request_without_an_answer_leaves_nothing)
{
    for (int watch = 0; watch < 2; watch++) {
        struct cas_plan plan = plan_of(watch == 1);
        plan.lost_answers = 1000;
        check_orphan(watch == 1, plan);
        plan.lost_answers = 0;
        plan.lost_requests = 1000;
        check_orphan(watch == 1, plan);
        plan.lost_requests = 0;
        plan.late_writes = 1000;
        plan.late_ms = 20000;
        check_orphan(watch == 1, plan);
    }
}

POOL_TEST(a_repeated_acquire_finds_the_row_of_the_first)
{
    struct cas_plan plan = plan_of(watch);
    warm_up(s);
    plan.lost_answers = 1000;
    cas_world_set(s->server, &plan);
    CHECK_INT_EQ(acquire_told(s, 0, REQUEST(1, 1)).code, VOW_EUNSURE);
    cas_world_heal(s->server);
    struct told t = acquire_told(s, 0, REQUEST(1, 1));
    check_status(t, VOW_STATUS_OWNED);
    check_status(acquire_told(s, 1, REQUEST(1, 2)), VOW_STATUS_WAITING);
    world_advance_ms(w, LEASE_MS / 2);
    struct told again = renew_told(s, 0, 1, 1, false);
    check_status(again, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(again.permit.fence, t.permit.fence);
}

/* The mark under a rate has no answer, and has happened: the start is told for
 * the entry of this mark. */
POOL_TEST(a_mark_without_an_answer_is_found)
{
    struct cas_plan plan = plan_of(watch);
    struct told t = {.done = 0};
    warm_up(s);
    plan.delay_ms = 20;
    cas_world_set(s->server, &plan);
    s->store[0]->ops->acquire(s->store[0], REQUEST(1, 1, .limits = RATED),
                              on_permits, &t);
    for (int i = 0; i < 1000 && cas_world_writes(s->server) < 4; i++)
        world_advance_ms(w, 1); /* the join is done */
    plan.lost_answers = 1000;
    cas_world_set(s->server, &plan);
    CHECK(t.done == 0);
    for (int i = 0; i < 1000 && cas_world_writes(s->server) < 5; i++)
        world_advance_ms(w, 1); /* and the mark */
    cas_world_heal(s->server);
    check_status(wait_told(s, &t), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(limit_told(s, 1, 1, NULL).info.rate_used, 1);
    check_status(renew_told(s, 0, 1, 1, true), VOW_STATUS_OWNED);
    world_advance_ms(w, 700);
    CHECK_UINT_EQ(limit_told(s, 0, 1, NULL).info.rate_used, 0);
}

/* The release has no answer, and comes true when the token has joined again. */
POOL_TEST(a_late_release_does_not_hit_a_later_request)
{
    struct cas_plan plan = plan_of(watch);
    warm_up(s);
    check_status(acquire_told(s, 0, REQUEST(1, 1)), VOW_STATUS_OWNED);
    plan.late_writes = 1000;
    plan.late_ms = 5000;
    cas_world_set(s->server, &plan);
    CHECK_INT_EQ(release_told(s, 0, 1, 1).code, VOW_EUNSURE);
    cas_world_heal(s->server);
    CHECK(cas_world_faults(s->server).late > 1);
    struct told first = acquire_told(s, 0, REQUEST(1, 1));
    for (int i = 0; i < 20; i++) {
        struct told t = renew_told(s, 0, 1, 1, false);
        check_status(t, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(t.permit.fence, first.permit.fence);
        world_advance_ms(w, 300);
    }
    CHECK(cas_world_faults(s->server).late_done > 0);
}

/* ---- following ----------------------------------------------------------- */

/* Whatever overtakes whatever, the waiter is told soon: a look follows the pool
 * again. Returns whether the request waited. */
static bool meet_once(bool watch, uint64_t seed, unsigned lost)
{
    struct world w;
    struct scene s;
    struct told acquire = {.done = 0}, release = {.done = 0};
    struct cas_plan plan = plan_of(watch);
    const vow_permit_hold hold = hold_number(1, 1, false);
    plan.seed = seed;
    plan.delay_ms = 20;
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    warm_up(&s);
    check_status(acquire_told(&s, 0, REQUEST(1, 1)), VOW_STATUS_OWNED);
    plan.lost_events = lost;
    cas_world_set(s.server, &plan);
    s.store[1]->ops->acquire(s.store[1], REQUEST(1, 2), on_permits, &acquire);
    s.store[0]->ops->release(s.store[0], &hold, on_permits, &release);
    world_advance_ms(&w, 100);
    CHECK_UINT_EQ(acquire.done + release.done, 2);
    bool waited = acquire.permit.status == VOW_STATUS_WAITING;
    CHECK(!waited || s.heard[1].permits + s.heard[1].doubts > 0);
    cas_world_heal(s.server);
    world_advance_ms(&w, 200);
    CHECK(!waited || s.heard[1].permits > 0);
    scene_close(&s);
    world_close(&w);
    return waited;
}

TEST(cas_pool, no_turn_is_missed_when_an_acquire_meets_a_release)
{
    unsigned waited = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        waited += meet_once(true, seed, 0);
        waited += meet_once(false, seed, 0);
        waited += meet_once(true, seed, 300); /* then on_doubt */
    }
    CHECK(waited > 70 && waited < 230);
}

/* ---- closing ------------------------------------------------------------- */

POOL_TEST(a_close_answers_all_steps_and_gives_all_permits_back)
{
    struct told t[MANY], renew = {.done = 0}, limit = {.done = 0};
    struct told list = {.done = 0};
    struct cas_plan plan = plan_of(watch);
    const vow_permit_hold hold = hold_number(1000, 1, false);
    const vow_name name = pool_number(1);
    memset(t, 0, sizeof(t));
    warm_up(s);
    check_status(acquire_told(s, 0, REQUEST(1000, 1)), VOW_STATUS_OWNED);
    check_status(acquire_told(s, 1, REQUEST(1000, 2)), VOW_STATUS_WAITING);
    plan.delay_ms = 50;
    cas_world_set(s->server, &plan);
    for (unsigned i = 0; i < MANY; i++)
        s->store[0]->ops->acquire(s->store[0], REQUEST(i / 10, i), on_permits,
                                  &t[i]);
    s->store[0]->ops->renew(s->store[0], &hold, 1, LEASE_MS, on_permits,
                            &renew);
    s->store[0]->ops->limit(s->store[0], &name, NULL, "", on_pools, &limit);
    s->store[0]->ops->pools(s->store[0], on_pools, &list);
    world_advance_ms(w, 60); /* many requests are on their way */
    scene_close_one(s, 0);
    for (unsigned i = 0; i < MANY; i++)
        CHECK_UINT_EQ(t[i].done, 1);
    CHECK_UINT_EQ(renew.done + limit.done + list.done, 3);
    world_advance_ms(w, 100);
    CHECK(s->heard[1].permits > 0);
    for (unsigned i = 0; i < MANY / 10; i++) {
        struct told p = limit_told(s, 1, i, NULL);
        CHECK(p.code == VOW_ENOENT ||
              (p.code == 0 && p.info.holders == 0 && p.info.waiting == 0));
    }
    check_status(acquire_told(s, 1, REQUEST(1000, 2)), VOW_STATUS_OWNED);
}

POOL_TEST(a_closing_store_takes_no_steps)
{
    struct told t[5];
    const vow_permit_hold hold = hold_number(1, 1, false);
    const vow_name name = pool_number(1);
    vow_store *store = s->store[0];
    (void)watch;
    memset(t, 0, sizeof(t));
    VOW_AUTO(vow_future) closed = store->ops->close(store);
    store->ops->acquire(store, REQUEST(1, 1), on_permits, &t[0]);
    store->ops->release(store, &hold, on_permits, &t[1]);
    store->ops->renew(store, &hold, 1, LEASE_MS, on_permits, &t[2]);
    store->ops->limit(store, &name, NULL, "", on_pools, &t[3]);
    store->ops->pools(store, on_pools, &t[4]);
    for (int i = 0; i < 5; i++) {
        CHECK_UINT_EQ(t[i].done, 1);
        CHECK_INT_EQ(t[i].code, VOW_ECLOSED);
    }
    world_advance_ms(w, 10);
    CHECK(vow_state_of(closed) == VOW_FULFILLED);
    s->store[0] = NULL;
    s->service[0] = NULL;
}

TEST(cas_pool, a_service_that_is_not_reached_ends_steps_at_the_deadline)
{
    struct world w;
    struct scene s;
    struct told t[MANY];
    struct cas_plan plan = plan_of(true);
    world_open(&w);
    memset(t, 0, sizeof(t));
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    cas_memory_cut(s.service[0], true);
    for (unsigned i = 0; i < MANY; i++)
        s.store[0]->ops->acquire(s.store[0], REQUEST(1, i), on_permits, &t[i]);
    world_advance_ms(&w, TIMEOUT_MS + 100);
    for (unsigned i = 0; i < MANY; i++) {
        CHECK_UINT_EQ(t[i].done, 1);
        CHECK_INT_EQ(t[i].code, VOW_ESTORE);
    }
    cas_memory_cut(s.service[0], false);
    check_status(acquire_told(&s, 0, REQUEST(1, 1)), VOW_STATUS_OWNED);
    scene_close(&s);
    world_close(&w);
}

/* ---- failed allocations -------------------------------------------------- */

/* Without memory for an answer, a write is unsure. */
static bool is_fine(struct world *w, struct told t)
{
    CHECK(t.code == 0 || fault_explains(w, t.code) ||
          (fault_fired(w) && (t.code == VOW_EUNSURE || t.code == VOW_EAGAIN)));
    return t.code == 0;
}

/* Everything once, with three processes. */
static void sweep_pools(struct world *w, bool watch)
{
    struct scene s;
    struct told list = {.done = 0};
    const struct cas_plan plan = plan_of(watch);
    const vow_pool_limits two = {.concurrent = 2};
    int rc = scene_open(&s, w, &plan);
    CHECK(rc == 0 || fault_explains(w, rc));
    if (rc == 0) {
        (void)is_fine(w, acquire_told(&s, 0, REQUEST(1, 1)));
        (void)is_fine(w, acquire_told(&s, 1, REQUEST(1, 2)));
        (void)is_fine(w, renew_told(&s, 0, 1, 1, false));
        (void)is_fine(w, release_told(&s, 0, 1, 1));
        (void)is_fine(w, acquire_told(&s, 1, REQUEST(1, 2)));
        (void)is_fine(w, limit_told(&s, 2, 1, &two));
        (void)is_fine(w, acquire_told(&s, 0, REQUEST(2, 3, .limits = RATED)));
        (void)is_fine(w, acquire_told(&s, 1, REQUEST(2, 4)));
        (void)is_fine(w, renew_told(&s, 0, 2, 3, true));
        (void)is_fine(w, release_told(&s, 0, 2, 3));
        (void)is_fine(
            w, acquire_told(&s, 2, REQUEST(1, 5, .flags = VOW_PERMIT_TRY)));
        world_advance_ms(w, 600);
        (void)is_fine(w, acquire_told(&s, 1, REQUEST(2, 4)));
        s.store[1]->ops->pools(s.store[1], on_pools, &list);
        (void)is_fine(w, wait_told(&s, &list));
    }
    scene_close(&s);
}

FAULT_SWEEP(cas_pool, every_step_survives_every_fault_with_a_watch, FAULT_ALLOC)
{
    sweep_pools(w, true);
}

FAULT_SWEEP(cas_pool, every_step_survives_every_fault_with_registration,
            FAULT_ALLOC)
{
    sweep_pools(w, false);
}
