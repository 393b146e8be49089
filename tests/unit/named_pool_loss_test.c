/* SPDX-License-Identifier: MIT */
/* named_pool_loss_test.c - places and what goes wrong with them: leases that
 * end, answers and wake-ups that are lost, a store that is down, those who
 * leave at each moment. */
#include "named_pool_rig.h"

static const vow_pool_limits ONE = {.concurrent = 1};

/* Milliseconds until it is settled, of `most` at most. */
static uint64_t until_settled(struct rig *r, vow_future *f, uint64_t most)
{
    uint64_t ms = 0;
    while (vow_state_of(f) == VOW_PENDING && ms < most) {
        world_advance_ms(r->w, 1);
        ms++;
    }
    CHECK(vow_state_of(f) != VOW_PENDING);
    return ms;
}

/* ---- leases -------------------------------------------------------------- */

TEST(named_pool_loss, a_place_is_lost_here_before_another_process_gets_it)
{
    struct rig r;
    rig_open(&r, 2, &ONE);
    vow_grant *g = rig_get(&r, 0);
    vow_future *f = vow_pool_acquire(r.pool[1], NULL, 1);
    world_advance_ms(r.w, 5000);
    r.line[0].frozen = true;
    uint64_t lost = until_settled(&r, g->lost, LEASE_MS);
    CHECK_CODE(g->lost, VOW_ELOST);
    CHECK(lost >= 500); /* it was renewed not long ago */
    CHECK_PENDING(f);
    uint64_t other = until_settled(&r, f, LEASE_MS);
    CHECK(other > 0);
    vow_grant *h = rig_take(&r, f);
    CHECK(h->fence > g->fence);
    line_thaw(&r.line[0]);
    world_advance_ms(r.w, 5000);
    CHECK_PENDING(h->lost);
    vow_grant_release(g);
    world_advance_ms(r.w, 5000);
    CHECK_PENDING(h->lost); /* that was not its place */
    CHECK_UINT_EQ(rig_info(&r, 1).held, 1);
    vow_grant_release(h);
    rig_close(&r);
}

TEST(named_pool_loss, with_a_grace_it_is_lost_so_much_sooner)
{
    struct rig r;
    vow_pool *p;
    rig_open(&r, 2, &ONE);
    CHECK_INT_EQ(vow_pool_open(r.at[0], "slow",
                               VOW_POOL(.grace_ms = 400, .limits = ONE), &p),
                 0);
    vow_grant *g = rig_take(&r, vow_pool_acquire(p, NULL, 1));
    r.line[0].frozen = true;
    uint64_t lost = until_settled(&r, g->lost, LEASE_MS);
    CHECK(lost > 550 && lost < 600);
    line_thaw(&r.line[0]); /* too late, but it is still there for the work */
    VOW_AUTO(vow_future) f = vow_pool_limit(r.at[1], "slow", NULL);
    CHECK_INT_EQ(vow_loop_run_until(r.w->loop, f), 0);
    CHECK_UINT_EQ(((const vow_pool_info *)vow_as_ptr(vow_get(f)))->held, 1);
    f = vow_future_unref(f);
    world_advance_ms(r.w, 100);
    CHECK_UINT_EQ(r.line[0].releases, 0);
    vow_grant_release(g); /* and comes back as soon as it has ended */
    world_turn(r.w);
    CHECK_UINT_EQ(r.line[0].releases, 1);
    f = vow_pool_limit(r.at[1], "slow", NULL);
    CHECK_INT_EQ(vow_loop_run_until(r.w->loop, f), 0);
    CHECK_UINT_EQ(((const vow_pool_info *)vow_as_ptr(vow_get(f)))->held, 0);
    f = vow_future_unref(f);
    vow_pool_unref(p);
    rig_close(&r);
}

TEST(named_pool_loss, a_store_that_knows_it_no_more_loses_it_at_once)
{
    struct rig r;
    rig_open(&r, 1, &ONE);
    vow_grant *g = rig_get(&r, 0);
    r.line[0].forgets = true;
    CHECK(until_settled(&r, g->lost, LEASE_MS) < 400);
    CHECK_CODE(g->lost, VOW_ELOST);
    vow_grant_release(g);
    world_advance_ms(r.w, 5000);
    CHECK_UINT_EQ(r.line[0].releases, 0);
    rig_close(&r);
}

TEST(named_pool_loss, a_renewal_that_fails_is_tried_again_in_time)
{
    struct rig r;
    rig_open(&r, 2, &ONE);
    vow_grant *g = rig_get(&r, 0);
    vow_future *f = vow_pool_acquire(r.pool[1], NULL, 1);
    for (int i = 0; i < 5; i++) {
        r.line[0].refuse = i % 2 == 0 ? VOW_ESTORE : VOW_EUNSURE;
        world_advance_ms(r.w, 500);
        r.line[0].refuse = 0;
        world_advance_ms(r.w, 300);
        CHECK_PENDING(g->lost);
        CHECK_PENDING(f);
    }
    vow_grant_release(g);
    vow_grant_release(rig_take(&r, f));
    rig_close(&r);
}

TEST(named_pool_loss, many_places_are_renewed_by_few_steps)
{
    enum { MANY = 200 };
    struct rig r;
    vow_future *f[MANY];
    rig_open(&r, 2, &ONE);
    vow_grant *g = rig_get(&r, 0);
    for (size_t i = 0; i < MANY; i++)
        f[i] = vow_pool_acquire(r.pool[1], NULL, 1);
    world_advance_ms(r.w, 20 * LEASE_MS);
    CHECK_POOL(&r, 1, MANY);
    CHECK(r.line[1].most_renewed <= 128);
    CHECK(r.line[1].renewed > 20 * MANY);
    const vow_pool_limits all = {.concurrent = MANY + 1};
    VOW_AUTO(vow_future) set = vow_pool_limit(r.at[0], "api", &all);
    CHECK_INT_EQ(vow_loop_run_until(r.w->loop, set), 0);
    set = vow_future_unref(set);
    uint64_t fence = g->fence;
    for (size_t i = 0; i < MANY; i++) {
        vow_grant *h = rig_take(&r, f[i]);
        CHECK(h->fence > fence);
        fence = h->fence;
        vow_grant_release(h);
    }
    vow_grant_release(g);
    rig_close(&r);
}

TEST(named_pool_loss, an_answer_that_came_too_late_is_asked_for_again)
{
    struct rig r;
    rig_open(&r, 1, &ONE);
    r.line[0].from_ms = LEASE_MS + 100;
    vow_future *f = vow_pool_acquire(r.pool[0], NULL, 1);
    world_advance_ms(r.w, LEASE_MS);
    r.line[0].from_ms = 0;
    CHECK_PENDING(f);
    world_advance_ms(r.w, 100);
    vow_grant *g = rig_take(&r, f);
    CHECK_UINT_EQ(r.line[0].acquires, 2);
    world_advance_ms(r.w, 5000);
    CHECK_PENDING(g->lost);
    vow_grant_release(g);
    rig_close(&r);
}

TEST(named_pool_loss, a_renewal_of_before_says_nothing_of_now)
{
    struct rig r;
    rig_open(&r, 2, &ONE);
    vow_grant *g = rig_get(&r, 0);
    vow_future *f = vow_pool_acquire(r.pool[1], NULL, 1);
    world_turn(r.w);
    uint32_t renews = r.line[1].renews;
    r.line[1].from_ms = 100;
    while (r.line[1].renews == renews)
        world_advance_ms(r.w, 1);
    r.line[1].from_ms = 0;
    vow_grant_release(g); /* it is granted while "you wait" is on its way */
    vow_grant *h = rig_take(&r, f);
    world_advance_ms(r.w, 5000);
    CHECK_PENDING(h->lost);
    CHECK_POOL(&r, 1, 0);
    vow_grant_release(h);
    rig_close(&r);
}

/* ---- wake-ups ------------------------------------------------------------ */

TEST(named_pool_loss, a_lost_wake_up_costs_one_look)
{
    struct rig r;
    rig_open(&r, 2, &ONE);
    vow_grant *g = rig_get(&r, 0);
    vow_future *f = vow_pool_acquire(r.pool[1], NULL, 1);
    world_advance_ms(r.w, 5000);
    r.line[1].deaf = true;
    vow_grant_release(g);
    CHECK(until_settled(&r, f, 120) > 0);
    vow_grant_release(rig_take(&r, f));
    rig_close(&r);
}

TEST(named_pool_loss, a_wake_up_that_overtakes_the_answer_is_heard)
{
    struct rig r;
    rig_open(&r, 2, &ONE);
    vow_grant *g = rig_get(&r, 0);
    r.line[1].from_ms = 50;
    vow_future *f = vow_pool_acquire(r.pool[1], NULL, 1);
    world_advance_ms(r.w, 10);
    vow_grant_release(g);
    CHECK_UINT_EQ(until_settled(&r, f, 500), 90);
    vow_grant_release(rig_take(&r, f));
    rig_close(&r);
}

TEST(named_pool_loss, in_doubt_all_that_queue_ask_again)
{
    struct rig r;
    rig_open(&r, 2, &ONE);
    vow_grant *g = rig_get(&r, 0);
    vow_future *a = vow_pool_acquire(r.pool[1], NULL, 1);
    vow_future *b = vow_pool_acquire(r.pool[1], "b", 1);
    vow_grant *k = rig_take(&r, b);
    b = vow_pool_acquire(r.pool[1], "b", 1);
    r.line[1].deaf = true;
    world_turn(r.w);
    uint32_t before = r.line[1].acquires;
    vow_grant_release(g);
    world_turn(r.w);
    CHECK_PENDING(a);
    r.line[1].events.on_doubt(r.line[1].events.user);
    world_turn(r.w);
    CHECK_UINT_EQ(r.line[1].acquires, before + 2);
    vow_grant_release(rig_take(&r, a));
    CHECK_PENDING(b);
    vow_grant_release(k);
    CHECK(until_settled(&r, b, 120) > 0);
    vow_grant_release(rig_take(&r, b));
    rig_close(&r);
}

TEST(named_pool_loss, who_was_thrown_out_of_the_queue_comes_in_again)
{
    struct rig r;
    rig_open(&r, 2, &ONE);
    vow_grant *g = rig_get(&r, 0);
    vow_future *f = vow_pool_acquire(r.pool[1], NULL, 1);
    world_turn(r.w);
    r.line[1].frozen = true;
    world_advance_ms(r.w, 2 * LEASE_MS);
    CHECK_UINT_EQ(rig_info(&r, 0).waiting, 0);
    line_thaw(&r.line[1]);
    world_advance_ms(r.w, LEASE_MS);
    CHECK_UINT_EQ(rig_info(&r, 0).waiting, 1);
    vow_grant_release(g);
    vow_grant_release(rig_take(&r, f));
    rig_close(&r);
}

/* ---- a line that is cut -------------------------------------------------- */

TEST(named_pool_loss, an_answer_that_was_lost_is_had_with_the_same_token)
{
    struct rig r;
    rig_open(&r, 1, &(vow_pool_limits){.concurrent = 2});
    r.line[0].unsure = 3; /* they happen */
    vow_future *f = vow_pool_acquire(r.pool[0], NULL, 1);
    CHECK(until_settled(&r, f, 1000) > 0);
    CHECK_UINT_EQ(r.line[0].acquires, 4);
    CHECK_POOL(&r, 1, 0);
    vow_grant *g = rig_take(&r, f);
    r.line[0].refuse = VOW_EUNSURE; /* they do not */
    f = vow_pool_acquire(r.pool[0], NULL, 1);
    world_advance_ms(r.w, 200);
    CHECK_PENDING(f);
    r.line[0].refuse = 0;
    (void)until_settled(&r, f, 1000);
    CHECK_POOL(&r, 2, 0);
    vow_grant_release(rig_take(&r, f));
    r.line[0].unsure = 1;
    vow_grant_release(g);
    world_advance_ms(r.w, 100);
    CHECK_UINT_EQ(r.line[0].releases, 3);
    CHECK_POOL(&r, 0, 0);
    rig_close(&r);
}

TEST(named_pool_loss, without_the_store_there_is_no_place)
{
    struct rig r;
    rig_open(&r, 2, &ONE);
    r.line[0].refuse = VOW_ESTORE;
    VOW_AUTO(vow_future) f = vow_pool_acquire(r.pool[0], NULL, 1);
    world_turn(r.w);
    CHECK_CODE(f, VOW_ESTORE);
    CHECK_STR_EQ(vow_error_message(vow_error_of(f)), "the line is cut");
    f = vow_future_unref(f);
    f = vow_pool_limit(r.at[0], "api", &ONE);
    CHECK_INT_EQ(vow_loop_run_until(r.w->loop, f), VOW_ESTORE);
    CHECK_STR_EQ(vow_error_message(vow_error_of(f)), "the line is cut");
    f = vow_future_unref(f);
    rig_close(&r);
}

TEST(named_pool_loss, who_queues_waits_for_the_store_as_long_as_a_lease)
{
    const int codes[] = {VOW_ESTORE, VOW_EUNSURE, VOW_EAGAIN};
    struct rig r;
    rig_open(&r, 2, &ONE);
    for (size_t i = 0; i < 3; i++) {
        vow_grant *g = rig_get(&r, 1);
        VOW_AUTO(vow_future) f = vow_pool_acquire(r.pool[0], NULL, 1);
        world_turn(r.w);
        r.line[0].refuse = codes[i];
        vow_grant_release(g); /* its turn, but the store cannot be asked */
        uint32_t before = r.line[0].acquires;
        uint64_t ms = until_settled(&r, f, 3 * LEASE_MS);
        CHECK(ms > LEASE_MS / 2 && ms <= LEASE_MS + 1);
        CHECK(r.line[0].acquires - before < 20);
        CHECK_CODE(f, codes[i] == VOW_EAGAIN ? VOW_ESTORE : codes[i]);
        CHECK_STR_EQ(vow_error_message(vow_error_of(f)), "the line is cut");
        f = vow_future_unref(f);
        r.line[0].refuse = 0;
        world_advance_ms(r.w, LEASE_MS);
        CHECK_POOL(&r, 0, 0); /* given back when it could be */
    }
    rig_close(&r);
}

TEST(named_pool_loss, who_queues_keeps_its_turn_while_the_store_is_away)
{
    struct rig r;
    rig_open(&r, 2, &ONE);
    vow_grant *g = rig_get(&r, 1);
    vow_future *f = vow_pool_acquire(r.pool[0], NULL, 1);
    world_turn(r.w);
    vow_future *behind = vow_pool_acquire(r.pool[1], NULL, 1);
    world_turn(r.w);
    r.line[0].refuse = VOW_ESTORE;
    r.line[0].events.on_doubt(r.line[0].events.user);
    world_advance_ms(r.w, LEASE_MS / 2);
    CHECK_PENDING(f);
    r.line[0].refuse = 0;
    world_advance_ms(r.w, LEASE_MS);
    CHECK_POOL(&r, 1, 2);
    vow_grant_release(g);
    g = rig_take(&r, f);
    CHECK_PENDING(behind);
    vow_grant_release(g);
    vow_grant_release(rig_take(&r, behind));
    rig_close(&r);
}

TEST(named_pool_loss, who_may_be_known_is_asked_for_no_longer_than_a_lease)
{
    struct rig r;
    rig_open(&r, 1, &ONE);
    r.line[0].refuse = VOW_EUNSURE;
    VOW_AUTO(vow_future) f = vow_pool_acquire(r.pool[0], NULL, 1);
    uint64_t ms = until_settled(&r, f, 3 * LEASE_MS);
    CHECK(ms >= LEASE_MS && ms <= LEASE_MS + 1);
    CHECK_CODE(f, VOW_EUNSURE);
    CHECK_STR_EQ(vow_error_message(vow_error_of(f)), "the line is cut");
    f = vow_future_unref(f);
    r.line[0].refuse = 0;
    rig_close(&r);
}

TEST(named_pool_loss, a_release_is_tried_again_for_a_lease_and_no_longer)
{
    struct rig r;
    rig_open(&r, 2, &ONE);
    vow_grant *g = rig_get(&r, 0);
    r.line[0].refuse = VOW_ESTORE;
    vow_grant_release(g);
    world_advance_ms(r.w, 300);
    uint32_t tries = r.line[0].releases;
    CHECK(tries > 2 && tries < 20);
    CHECK_UINT_EQ(rig_info(&r, 1).held, 1);
    r.line[0].refuse = 0;
    world_advance_ms(r.w, 700);
    CHECK_UINT_EQ(r.line[0].releases, tries + 1);
    CHECK_POOL(&r, 0, 0);
    g = rig_get(&r, 0);
    r.line[0].refuse = VOW_EUNSURE;
    vow_grant_release(g);
    world_advance_ms(r.w, 3 * LEASE_MS);
    tries = r.line[0].releases;
    world_advance_ms(r.w, 10 * LEASE_MS);
    CHECK_UINT_EQ(r.line[0].releases, tries);
    r.line[0].refuse = 0;
    CHECK_POOL(&r, 0, 0); /* the lease has ended it */
    rig_close(&r);
}

/* ---- leaving ------------------------------------------------------------- */

/* How far it has come when it is canceled. */
enum moment {
    NOT_SENT,
    UNDER_WAY,
    ON_ITS_WAY_BACK,
    QUEUES,
    QUEUES_ON_ITS_WAY_BACK,
    PAUSES,
    HAS_IT,
    MOMENTS
};

static void cancel_at(struct rig *r, enum moment m)
{
    struct line *l = &r->line[1];
    bool behind = m == QUEUES || m == QUEUES_ON_ITS_WAY_BACK;
    vow_grant *g = behind ? rig_get(r, 0) : NULL;
    l->to_ms = m == UNDER_WAY ? 50 : 0;
    l->from_ms = m == ON_ITS_WAY_BACK || m == QUEUES_ON_ITS_WAY_BACK ? 50 : 0;
    l->unsure = m == PAUSES;
    vow_future *f = vow_pool_acquire(r->pool[1], NULL, 1);
    if (m != NOT_SENT)
        world_turn(r->w);
    CHECK_INT_EQ(vow_cancel(f, NULL), m != HAS_IT);
    if (m != HAS_IT)
        CHECK_CODE(f, VOW_ECANCELED);
    vow_future_unref(f);
    world_advance_ms(r->w, 200);
    CHECK_POOL(r, behind ? 1 : 0, 0);
    CHECK_UINT_EQ(l->releases, m != NOT_SENT);
    CHECK_UINT_EQ(l->acquires, m != NOT_SENT);
    vow_grant_release(g);
    world_turn(r->w);
}

TEST(named_pool_loss, canceling_gives_the_place_back_at_every_moment)
{
    for (enum moment m = 0; m < MOMENTS; m++) {
        struct rig r;
        rig_open(&r, 2, &ONE);
        vow_grant_release(rig_get(&r, 0)); /* the pool is there */
        world_turn(r.w);
        cancel_at(&r, m);
        rig_close(&r);
    }
}

TEST(named_pool_loss, a_time_limit_leaves_the_queue)
{
    struct rig r;
    rig_open(&r, 2, &ONE);
    vow_grant *g = rig_get(&r, 0);
    vow_future *f = vow_pool_acquire(r.pool[1], NULL, 1);
    VOW_AUTO(vow_future) bounded = vow_timeout(f, 100);
    vow_future_unref(f);
    world_advance_ms(r.w, 100);
    CHECK_CODE(bounded, VOW_ETIMEDOUT);
    CHECK_POOL(&r, 1, 0);
    bounded = vow_future_unref(bounded);
    vow_grant_release(g);
    rig_close(&r);
}

TEST(named_pool_loss, a_process_that_closes_gives_back_all_it_has)
{
    struct rig r;
    rig_open(&r, 2, &(vow_pool_limits){.concurrent = 2});
    vow_grant *g = rig_take(&r, vow_pool_acquire(r.pool[0], NULL, 2));
    vow_future *queues = vow_pool_acquire(r.pool[0], NULL, 1);
    vow_future *f = vow_pool_acquire(r.pool[1], NULL, 2);
    world_turn(r.w);
    r.line[0].from_ms = 50;
    vow_future *asks = vow_pool_acquire(r.pool[0], "key", 1);
    world_turn(r.w);
    vow_future *new = vow_pool_acquire(r.pool[0], NULL, 1);
    vow_pool *p = vow_pool_ref(r.pool[0]);
    vow_authority *a = vow_authority_ref(r.at[0]);
    rig_leave(&r, 0);
    CHECK_CODE(queues, VOW_ECLOSED);
    CHECK_CODE(asks, VOW_ECLOSED);
    CHECK_CODE(new, VOW_ECLOSED);
    CHECK_CODE(g->lost, VOW_ELOST);
    CHECK_STR_EQ(vow_error_message(vow_error_of(g->lost)),
                 "the authority was closed");
    vow_future_unref(queues);
    vow_future_unref(asks);
    vow_future_unref(new);
    vow_grant *h = rig_take(&r, f); /* without waiting for a lease */
    queues = vow_pool_acquire(p, NULL, 1);
    CHECK_CODE(queues, VOW_ECLOSED);
    vow_future_unref(queues);
    asks = vow_pool_limit(a, "api", NULL);
    CHECK_CODE(asks, VOW_ECLOSED);
    vow_future_unref(asks);
    vow_grant_release(g);
    world_turn(r.w);
    CHECK_PENDING(h->lost);
    vow_grant_release(h);
    vow_pool_unref(p);
    vow_authority_unref(a);
    rig_close(&r);
}

TEST(named_pool_loss, a_process_that_dies_leaves_its_places_to_the_lease)
{
    struct rig r;
    rig_open(&r, 2, &ONE);
    vow_grant *g = rig_get(&r, 0);
    vow_future *f = vow_pool_acquire(r.pool[1], NULL, 1);
    world_turn(r.w);
    r.line[0].frozen = true; /* and nothing of it will ever come */
    uint64_t ms = until_settled(&r, f, 2 * LEASE_MS);
    CHECK(ms >= LEASE_MS && ms <= LEASE_MS + 120);
    vow_grant_release(rig_take(&r, f));
    vow_grant_release(g);
    rig_close(&r);
}

/* The user closes the authority from inside the event that the store is down,
 * in the middle of our looking. */
static void close_when_down(const vow_event *e, void *rig)
{
    struct rig *r = rig;
    if (e->kind == VOW_EVENT_DOWN && r->at[0] != NULL)
        vow_future_unref(vow_authority_close(r->at[0]));
}

TEST(named_pool_loss, the_user_may_close_while_we_look)
{
    for (int n = 1; n <= 3; n++) {
        struct rig r = {.on_event = close_when_down};
        world_open(&r.own);
        CHECK_INT_EQ(rig_open_in(&r, &r.own, 1, &ONE), 0);
        vow_grant *g = rig_get(&r, 0);
        vow_grant *k = rig_take(&r, vow_pool_acquire(r.pool[0], "k", 1));
        vow_future *f = vow_pool_acquire(r.pool[0], NULL, 1);
        world_turn(r.w);
        r.line[0].refuse = VOW_ESTORE;
        if (n == 1)
            vow_grant_release(g);
        if (n == 2)
            CHECK(vow_cancel(f, NULL));
        world_advance_ms(r.w, LEASE_MS);
        CHECK_CODE(f, n == 2 ? VOW_ECANCELED : VOW_ECLOSED);
        CHECK_CODE(k->lost, VOW_ELOST);
        vow_future_unref(f);
        if (n != 1)
            vow_grant_release(g);
        vow_grant_release(k);
        rig_close(&r);
    }
}

TEST(named_pool_loss, the_loop_may_close_at_every_moment)
{
    for (enum moment m = 0; m < MOMENTS; m++) {
        struct rig r;
        rig_open(&r, 2, &ONE);
        struct line *l = &r.line[1];
        vow_grant *g = m == QUEUES ? rig_get(&r, 0) : NULL;
        l->to_ms = m == UNDER_WAY ? 50 : 0;
        l->from_ms = m == ON_ITS_WAY_BACK ? 50 : 0;
        l->unsure = m == PAUSES;
        vow_future *f = vow_pool_acquire(r.pool[1], NULL, 1);
        if (m != NOT_SENT)
            world_turn(r.w);
        vow_grant *h = vow_grant_take(vow_get(f));
        CHECK_INT_EQ(vow_loop_close(r.w->loop), 0);
        if (m == NOT_SENT) /* what is in the queue still runs */
            CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
        else if (h == NULL)
            CHECK_CODE(f, VOW_ECLOSED);
        vow_future_unref(f);
        vow_grant_release(g);
        vow_grant_release(h);
        for (size_t i = 0; i < r.n; i++) {
            vow_pool_unref(r.pool[i]);
            vow_authority_unref(r.at[i]);
        }
        vow_memory_unref(r.memory);
        r.w->loop = NULL;
        world_close_dirty(r.w);
    }
}
