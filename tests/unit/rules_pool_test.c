/* SPDX-License-Identifier: MIT */
/* rules_pool_test.c - the rules of pools: each step on each state, and single
 * cases. */
#include "rules_pool_kit.h"

enum { MS = 1000, LEASE_MS = 30000, ME = 1, OTHER = 2, FIRST = 3, LAST = 4 };
static const uint64_t START_US = 1000000000;
static const uint64_t LEASE_US = UINT64_C(30000000);

static void check_counts(const struct pool_kit *k)
{
    uint64_t held = 0;
    uint64_t holders = 0;
    uint64_t waiting = 0;
    uint64_t open = 0;
    for (size_t i = 0; i < k->n; i++) {
        const struct rules_permit *t = &k->permits[i];
        held += t->held ? t->weight : 0;
        holders += t->held;
        waiting += !t->held;
        open += t->open ? t->weight : 0;
        CHECK((t->fence > 0) == t->held);
        CHECK(t->held || !t->open);
    }
    CHECK_UINT_EQ(k->pool.held, held);
    CHECK_UINT_EQ(k->pool.holders, holders);
    CHECK_UINT_EQ(k->pool.waiting, waiting);
    CHECK_UINT_EQ(k->pool.open, open);
}

static vow_pool_permit want(struct pool_kit *k, uint64_t token, uint32_t weight,
                            uint32_t status)
{
    vow_pool_permit p = {.status = 99};
    CHECK_INT_EQ(kit_acquire(k, token, weight, LEASE_MS, 0, &p), 0);
    CHECK_UINT_EQ(p.status, status);
    check_counts(k);
    return p;
}

static vow_pool_permit drop(struct pool_kit *k, uint64_t token, uint32_t status)
{
    vow_pool_permit p = {.status = 99};
    CHECK_INT_EQ(kit_release(k, token, &p), 0);
    CHECK_UINT_EQ(p.status, status);
    check_counts(k);
    return p;
}

static vow_pool_permit renew(struct pool_kit *k, uint64_t token, bool started,
                             uint32_t status)
{
    vow_pool_permit p = {.status = 99};
    CHECK_INT_EQ(kit_renew(k, token, LEASE_MS, started, &p), 0);
    CHECK_UINT_EQ(p.status, status);
    check_counts(k);
    return p;
}

/* ---- weights at the limits ---------------------------------------------- */

TEST(rules_pool, the_rank_of_a_weight_at_each_limit)
{
    enum { W = RULES_RANK_WAITING, H = RULES_RANK_HELD, T = RULES_RANK_TURN };
    enum { N = RULES_RANK_NEVER };
    static const struct {
        uint32_t concurrent, rate;
        uint64_t held, open, used, before;
        uint32_t weight;
        bool marked;
        int rank;
    } rows[] = {
        {0, 0, 0, 0, 0, 0, UINT32_MAX, false, H},
        {0, 0, 1000, 0, 0, 5, 1, false, H},
        {4, 0, 0, 0, 0, 0, 4, false, H},
        {4, 0, 0, 0, 0, 0, 5, false, N},
        {4, 0, 9, 0, 0, 9, 5, true, H},
        {4, 0, 3, 0, 0, 0, 1, false, H},
        {4, 0, 3, 0, 0, 0, 2, false, W},
        {4, 0, 2, 0, 0, 1, 1, false, H},
        {4, 0, 2, 0, 0, 1, 2, false, W},
        {4, 0, 9, 0, 0, 0, 1, false, W},
        {0, 4, 0, 0, 0, 0, 4, false, T},
        {0, 4, 0, 0, 0, 0, 5, false, N},
        {0, 4, 3, 0, 3, 0, 1, false, T},
        {0, 4, 3, 0, 3, 0, 2, false, W},
        {0, 4, 3, 2, 1, 0, 1, false, T},
        {0, 4, 3, 2, 1, 0, 2, false, W},
        {0, 4, 3, 2, 1, 1, 1, false, W},
        {0, 4, 3, 2, 0, 1, 1, false, T},
        {0, 4, 9, 9, 9, 9, 1, true, H},
        {4, 2, 0, 0, 0, 0, 3, false, N},
        {2, 4, 0, 0, 0, 0, 3, false, N},
        {4, 9, 3, 0, 0, 0, 1, false, T},
        {4, 9, 3, 0, 0, 0, 2, false, W},
        {UINT32_MAX, 0, UINT32_MAX, 0, 0, 0, UINT32_MAX, false, W},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct pool_kit k;
        kit_open(&k, (vow_pool_limits){.concurrent = rows[i].concurrent,
                                       .rate = rows[i].rate,
                                       .window_us = 100});
        k.pool.held = rows[i].held;
        k.pool.open = rows[i].open;
        vow__rules_rate_add(&k.pool.rate, &k.pool.limits, rows[i].used, 50);
        int got = (int)vow__rules_rank(&k.pool, rows[i].before, rows[i].weight,
                                       rows[i].marked, 150);
        if (got != rows[i].rank)
            FAIL("row %zu: got %d, want %d", i, got, rows[i].rank);
    }
}

/* ---- each step on each state -------------------------------------------- */

/* States of the permit ME, of weight 2, in a pool of 6. */
enum state {
    FREE,     /* unknown; as much room as ME needs */
    TIGHT,    /* unknown; one unit too little room */
    BEHIND,   /* unknown; room, but the queue is not empty */
    HEAD,     /* waiting, first in the queue */
    SECOND,   /* waiting, behind FIRST */
    HELD,     /* started, if there is a rate */
    ASSIGNED, /* granted by the step of another request, not fetched */
    STATES
};
enum step { ACQUIRE, TRY, RELEASE, RENEW, START, LOOK, STEPS };

enum { NONE = VOW_STATUS_NONE, OWNED = VOW_STATUS_OWNED };
enum { WAITS = VOW_STATUS_WAITING, BUSY = VOW_STATUS_BUSY };

/* The answer to each step, on a valid lease. LOOK answers nothing. */
static const uint32_t ANSWERS[STATES][STEPS] = {
    [FREE] = {OWNED, OWNED, NONE, NONE, NONE, 0},
    [TIGHT] = {WAITS, BUSY, NONE, NONE, NONE, 0},
    [BEHIND] = {WAITS, BUSY, NONE, NONE, NONE, 0},
    [HEAD] = {WAITS, WAITS, WAITS, WAITS, WAITS, 0},
    [SECOND] = {WAITS, WAITS, WAITS, WAITS, WAITS, 0},
    [HELD] = {OWNED, OWNED, OWNED, OWNED, OWNED, 0},
    [ASSIGNED] = {OWNED, OWNED, OWNED, OWNED, OWNED, 0},
};

static void build_state(struct pool_kit *k, enum state state, bool rated)
{
    vow_pool_limits limits = {.concurrent = 6};
    if (rated) {
        limits.rate = 100;
        limits.window_us = UINT64_C(3600000000);
    }
    kit_open(k, limits);
    k->now_us = START_US;
    uint32_t other = state == FREE || state == BEHIND || state == HELD ? 4 : 5;
    (void)want(k, OTHER, other, OWNED);
    if (state == BEHIND || state == SECOND)
        (void)want(k, FIRST, 3, WAITS);
    if (state == HEAD || state == SECOND || state == ASSIGNED)
        (void)want(k, ME, 2, WAITS);
    if (state == HELD) {
        (void)want(k, ME, 2, OWNED);
        (void)renew(k, ME, true, OWNED);
    }
    if (state == ASSIGNED) {
        (void)drop(k, OTHER, OWNED);
        CHECK(kit_told(k, ME));
        (void)want(k, OTHER, 4, OWNED);
    }
    (void)want(k, LAST, 6, WAITS);
    k->now_us += 1;
}

static int do_step(struct pool_kit *k, enum step step, vow_pool_permit *ret)
{
    *ret = (vow_pool_permit){.status = 0};
    switch (step) {
    case ACQUIRE:
        return kit_acquire(k, ME, 2, LEASE_MS, 0, ret);
    case TRY:
        return kit_acquire(k, ME, 2, LEASE_MS, VOW_PERMIT_TRY, ret);
    case RELEASE:
        return kit_release(k, ME, ret);
    case RENEW:
    case START:
        return kit_renew(k, ME, LEASE_MS, step == START, ret);
    default:
        return vow__rules_limit(&k->pool, &k->storage, NULL, kit_step(k));
    }
}

static bool same_permit(const struct rules_permit *a,
                        const struct rules_permit *b)
{
    return kit_same(&a->token, &b->token) && a->order == b->order &&
           a->fence == b->fence && a->end_us == b->end_us &&
           a->weight == b->weight && a->held == b->held && a->open == b->open;
}

static void check_same_kit(struct pool_kit *a, struct pool_kit *b)
{
    CHECK_UINT_EQ(a->n, b->n);
    for (size_t i = 0; i < a->n; i++) {
        struct rules_permit *t = kit_permit(b, &a->permits[i].token);
        CHECK(t != NULL && same_permit(&a->permits[i], t));
    }
    CHECK_UINT_EQ(a->pool.order, b->pool.order);
    CHECK_UINT_EQ(a->pool.fence, b->pool.fence);
    CHECK_UINT_EQ(a->pool.rate.n, b->pool.rate.n);
    CHECK_UINT_EQ(a->pool.rate.began_us, b->pool.rate.began_us);
    CHECK_MEM_EQ(a->starts, b->starts, sizeof(a->starts));
}

/* Checks what is stored about ME behind a step. */
static void check_me(struct pool_kit *k, enum step step, uint32_t before,
                     uint32_t status, bool rated)
{
    vow_token token = kit_token(ME);
    const struct rules_permit *t = kit_permit(k, &token);
    CHECK(!kit_told(k, ME));
    if (step == RELEASE || status == NONE || status == BUSY) {
        CHECK(t == NULL || step == LOOK);
        return;
    }
    CHECK(t != NULL);
    CHECK(t->held == (status == OWNED));
    CHECK_UINT_EQ(t->weight, 2);
    CHECK_UINT_EQ(t->end_us, k->now_us + LEASE_US);
    CHECK_UINT_EQ(t->open, rated && t->held && before != HELD && step != START);
}

static void run_cell(enum state state, enum step step, bool rated)
{
    static struct pool_kit k, twice;
    vow_pool_permit p, again;
    build_state(&k, state, rated);
    uint64_t log = k.pool.rate.n;
    uint64_t used = vow__rules_pool_used(&k.pool, k.now_us);
    CHECK_INT_EQ(do_step(&k, step, &p), 0);
    check_counts(&k);
    uint32_t status = ANSWERS[state][step];
    if (p.status != status)
        FAIL("state %d, step %d, rate %d: got %u, want %u", state, step, rated,
             p.status, status);
    if (step != LOOK) {
        check_me(&k, step, state, status, rated);
        CHECK_UINT_EQ(p.limits.concurrent, 6);
        CHECK((p.fence > 0) == (status == OWNED));
    }
    if (status == WAITS && step != RELEASE) {
        CHECK_UINT_EQ(p.ahead, state == HEAD ? 0 : state == TIGHT ? 1 : 1);
        CHECK(p.again_us > 0);
    }
    bool logs = rated && ((state == ASSIGNED && step == START) ||
                          (state == ASSIGNED && step == RELEASE));
    CHECK_UINT_EQ(k.pool.rate.n, log + logs);
    if (status != OWNED || state == HELD || state == ASSIGNED)
        CHECK_UINT_EQ(vow__rules_pool_used(&k.pool, k.now_us), used);
    kit_copy(&twice, &k);
    CHECK_INT_EQ(do_step(&twice, step, &again), 0);
    check_counts(&twice);
    check_same_kit(&k, &twice);
    if (step != RELEASE) {
        CHECK_UINT_EQ(again.status, p.status);
        CHECK_UINT_EQ(again.fence, p.fence);
        CHECK_UINT_EQ(again.ahead, p.ahead);
        CHECK_UINT_EQ(again.again_us, p.again_us);
    } else {
        CHECK_UINT_EQ(again.status, NONE);
    }
}

/* TIGHT and FREE have LAST in the queue: LAST comes after ME there. */
static void run_cell_alone(enum state state, enum step step, bool rated)
{
    static struct pool_kit k;
    vow_pool_permit p;
    build_state(&k, state, rated);
    (void)drop(&k, LAST, WAITS);
    CHECK_INT_EQ(do_step(&k, step, &p), 0);
    check_counts(&k);
    CHECK_UINT_EQ(p.status, ANSWERS[state][step]);
    if (p.status == WAITS && step != RELEASE)
        CHECK_UINT_EQ(p.ahead, state == BEHIND || state == SECOND ? 1 : 0);
}

TEST(rules_pool, each_step_on_each_state_and_each_step_twice)
{
    for (int rated = 0; rated < 2; rated++)
        for (int state = 0; state < STATES; state++)
            for (int step = 0; step < STEPS; step++) {
                if (state == FREE || state == TIGHT || state == BEHIND)
                    run_cell_alone((enum state)state, (enum step)step, rated);
                else
                    run_cell((enum state)state, (enum step)step, rated);
            }
}

/* A lease is valid before its end, and over at its end. */
TEST(rules_pool, each_step_at_the_end_of_a_lease)
{
    static struct pool_kit k;
    for (int rated = 0; rated < 2; rated++)
        for (int state = HEAD; state <= ASSIGNED; state++)
            for (int step = 0; step < STEPS; step++)
                for (int after = -1; after <= 1; after++) {
                    vow_pool_permit p;
                    vow_token me = kit_token(ME);
                    build_state(&k, (enum state)state, rated);
                    uint64_t end_us = kit_permit(&k, &me)->end_us;
                    CHECK_UINT_EQ(end_us, START_US + (state == ASSIGNED
                                                          ? RULES_ACCEPT_US
                                                          : LEASE_US));
                    k.now_us = end_us - 1000;
                    (void)renew(&k, OTHER, false, OWNED);
                    if (state == SECOND)
                        (void)renew(&k, FIRST, false, WAITS);
                    (void)renew(&k, LAST, false, WAITS);
                    k.now_us = end_us + (uint64_t)(int64_t)after;
                    CHECK_INT_EQ(do_step(&k, (enum step)step, &p), 0);
                    check_counts(&k);
                    uint32_t status = ANSWERS[state][step];
                    bool over = after >= 0;
                    if (over && step != LOOK)
                        status = step == ACQUIRE ? WAITS
                                 : step == TRY   ? BUSY
                                                 : NONE;
                    CHECK_UINT_EQ(p.status, status);
                    const struct rules_permit *t = kit_permit(&k, &me);
                    CHECK((t == NULL) ==
                          ((over && step != ACQUIRE) || step == RELEASE));
                    if (status == WAITS && over) /* a new request */
                        CHECK_UINT_EQ(p.ahead, state == SECOND ? 2 : 1);
                }
}

/* ---- single cases -------------------------------------------------------- */

TEST(rules_pool, invalid_requests_change_nothing)
{
    static struct pool_kit k, before;
    vow_pool_permit p;
    build_state(&k, HEAD, true);
    k.now_us += 2 * LEASE_US; /* all leases are over */
    kit_copy(&before, &k);
    CHECK_INT_EQ(kit_acquire(&k, 9, 0, LEASE_MS, 0, &p), VOW_EINVAL);
    CHECK_INT_EQ(kit_acquire(&k, 9, 1, 0, 0, &p), VOW_EINVAL);
    CHECK_INT_EQ(kit_acquire(&k, ME, 2, 0, 0, &p), VOW_EINVAL);
    CHECK_INT_EQ(kit_renew(&k, ME, 0, false, &p), VOW_EINVAL);
    check_same_kit(&k, &before);
    CHECK_INT_EQ(kit_acquire(&k, 9, 7, LEASE_MS, 0, &p), VOW_EINVAL);
    check_counts(&k);
    CHECK_UINT_EQ(k.n, 0);
}

TEST(rules_pool, a_pool_without_limits_has_room_for_all)
{
    static struct pool_kit k;
    kit_open(&k, (vow_pool_limits){.concurrent = 0});
    for (uint64_t i = 0; i < 100; i++)
        (void)want(&k, i, UINT32_MAX, OWNED);
    CHECK_UINT_EQ(k.pool.rate.n, 0);
    CHECK_UINT_EQ(k.pool.open, 0);
    CHECK_UINT_EQ(vow__rules_pool_used(&k.pool, 0), 0);
}

TEST(rules_pool, fences_rise_above_the_number_of_the_store)
{
    static struct pool_kit k;
    kit_open(&k, (vow_pool_limits){.concurrent = 2});
    CHECK_UINT_EQ(want(&k, 1, 1, OWNED).fence, 1);
    k.number = 100;
    CHECK_UINT_EQ(want(&k, 2, 1, OWNED).fence, 100);
    (void)want(&k, 3, 1, WAITS);
    (void)want(&k, 4, 1, WAITS);
    (void)drop(&k, 1, OWNED);
    (void)drop(&k, 2, OWNED);
    CHECK_UINT_EQ(want(&k, 3, 1, OWNED).fence, 101);
    CHECK_UINT_EQ(want(&k, 4, 1, OWNED).fence, 102);
}

TEST(rules_pool, one_step_grants_all_heads_that_fit)
{
    static struct pool_kit k;
    kit_open(&k, (vow_pool_limits){.concurrent = 4});
    (void)want(&k, 1, 4, OWNED);
    (void)want(&k, 2, 1, WAITS);
    (void)want(&k, 3, 3, WAITS);
    (void)want(&k, 4, 1, WAITS);
    (void)drop(&k, 1, OWNED);
    CHECK(kit_told(&k, 2) && kit_told(&k, 3));
    CHECK_UINT_EQ(k.n_told, 2);
    CHECK_UINT_EQ(k.pool.held, 4);
    CHECK_UINT_EQ(k.pool.waiting, 1);
    CHECK(want(&k, 2, 1, OWNED).fence < want(&k, 3, 3, OWNED).fence);
}

/* Fetching by acquire or renew gives the full lease; 2 s never lengthen. */
TEST(rules_pool, a_permit_granted_by_another_is_fetched_within_2_s)
{
    static struct pool_kit k;
    for (int how = 0; how < 3; how++) {
        vow_pool_permit p;
        vow_token t = kit_token(2);
        kit_open(&k, (vow_pool_limits){.concurrent = 1});
        (void)want(&k, 1, 1, OWNED);
        CHECK_INT_EQ(kit_acquire(&k, 2, 1, how == 2 ? 1500 : LEASE_MS, 0, &p),
                     0);
        (void)want(&k, 3, 1, WAITS);
        k.now_us = 100;
        (void)drop(&k, 1, OWNED);
        CHECK_UINT_EQ(kit_permit(&k, &t)->end_us,
                      how == 2 ? 1500 * MS : 100 + 2000000);
        k.now_us = kit_permit(&k, &t)->end_us - 1;
        if (how == 0)
            (void)want(&k, 2, 1, OWNED);
        else if (how == 1)
            (void)renew(&k, 2, false, OWNED);
        k.now_us++;
        (void)want(&k, 3, 1, how == 2 ? OWNED : WAITS);
    }
}

/* A renewal that grants its own request has fetched the permit. */
TEST(rules_pool, a_renewal_can_be_granted_and_keeps_its_lease)
{
    static struct pool_kit k;
    vow_token t = kit_token(2);
    kit_open(&k, (vow_pool_limits){.concurrent = 1});
    (void)want(&k, 1, 1, OWNED);
    (void)want(&k, 2, 1, WAITS);
    k.pool.limits.concurrent = 2; /* those of another pool were raised */
    (void)renew(&k, 2, false, OWNED);
    CHECK(!kit_told(&k, 2));
    CHECK_UINT_EQ(kit_permit(&k, &t)->end_us, LEASE_US);
}

TEST(rules_pool, a_waiter_is_told_when_a_lease_ends)
{
    static struct pool_kit k;
    vow_pool_permit p;
    kit_open(&k, (vow_pool_limits){.concurrent = 1});
    CHECK_INT_EQ(kit_acquire(&k, 1, 1, 10, 0, &p), 0);
    CHECK_UINT_EQ(want(&k, 2, 1, WAITS).again_us, 10 * MS + 1);
    CHECK_INT_EQ(kit_acquire(&k, 3, 1, 4, 0, &p), 0);
    CHECK_UINT_EQ(p.again_us, 2 * MS + 1); /* before its own is over */
    k.now_us = 10 * MS;
    (void)want(&k, 2, 1, OWNED);
    CHECK_UINT_EQ(k.n, 1);
}

TEST(rules_pool, a_head_that_can_never_fit_leaves_and_is_told)
{
    static struct pool_kit k;
    vow_pool_permit p;
    vow_pool_limits two = {.concurrent = 2};
    kit_open(&k, (vow_pool_limits){.concurrent = 3});
    (void)want(&k, 1, 1, OWNED);
    (void)want(&k, 2, 3, WAITS);
    (void)want(&k, 3, 1, WAITS);
    (void)want(&k, 4, 3, WAITS);
    (void)want(&k, 5, 1, WAITS);
    CHECK_INT_EQ(vow__rules_limit(&k.pool, &k.storage, &two, kit_step(&k)), 0);
    check_counts(&k);
    CHECK(kit_told(&k, 2) && kit_told(&k, 3) && kit_told(&k, 4));
    CHECK_UINT_EQ(k.n_told, 3);
    CHECK_UINT_EQ(k.n, 3);
    CHECK_INT_EQ(kit_acquire(&k, 2, 3, LEASE_MS, 0, &p), VOW_EINVAL);
    (void)renew(&k, 4, false, NONE);
    (void)want(&k, 5, 1, WAITS);
}

/* By the step of the request itself: limits of another pool were lowered. */
TEST(rules_pool, a_caller_that_can_never_fit_hears_why)
{
    static struct pool_kit k;
    vow_pool_permit p;
    for (int how = 0; how < 2; how++) {
        kit_open(&k, (vow_pool_limits){.concurrent = 3});
        (void)want(&k, 1, 2, OWNED);
        (void)want(&k, 2, 3, WAITS);
        (void)want(&k, 3, 1, WAITS);
        k.pool.limits.concurrent = 2;
        if (how == 0)
            CHECK_INT_EQ(kit_acquire(&k, 2, 3, LEASE_MS, 0, &p), VOW_EINVAL);
        else
            (void)renew(&k, 2, false, NONE);
        check_counts(&k);
        CHECK(!kit_told(&k, 2));
        CHECK_UINT_EQ(k.n, 2);
        CHECK_UINT_EQ(want(&k, 3, 1, WAITS).ahead, 0);
    }
}

TEST(rules_pool, lowered_limits_take_nothing_from_holders)
{
    static struct pool_kit k;
    vow_pool_limits one = {.concurrent = 1};
    kit_open(&k, (vow_pool_limits){.concurrent = 3});
    (void)want(&k, 1, 3, OWNED);
    CHECK_INT_EQ(vow__rules_limit(&k.pool, &k.storage, &one, kit_step(&k)), 0);
    (void)want(&k, 1, 3, OWNED);
    (void)renew(&k, 1, false, OWNED);
    CHECK_UINT_EQ(k.pool.held, 3);
    (void)want(&k, 2, 1, WAITS);
    (void)drop(&k, 1, OWNED);
    (void)want(&k, 2, 1, OWNED);
}

TEST(rules_pool, a_new_head_under_a_rate_is_told)
{
    static struct pool_kit k;
    vow_pool_limits limits = {.concurrent = 9, .rate = 4, .window_us = 100};
    kit_open(&k, limits);
    (void)want(&k, 1, 4, OWNED);
    (void)want(&k, 2, 4, WAITS);
    (void)want(&k, 3, 1, WAITS);
    (void)want(&k, 4, 1, WAITS);
    (void)drop(&k, 3, WAITS);
    CHECK_UINT_EQ(k.n_told, 0); /* the head is the same */
    (void)drop(&k, 2, WAITS);
    CHECK(kit_told(&k, 4));
    (void)want(&k, 3, 1, WAITS);
    (void)drop(&k, 1, OWNED);
    CHECK_UINT_EQ(k.n_told, 0); /* the head knows when */
    limits.concurrent = 8;
    CHECK_INT_EQ(vow__rules_limit(&k.pool, &k.storage, &limits, kit_step(&k)),
                 0);
    CHECK(kit_told(&k, 4)); /* limits have changed */
    CHECK_UINT_EQ(k.n_told, 1);
    CHECK_INT_EQ(vow__rules_limit(&k.pool, &k.storage, NULL, kit_step(&k)), 0);
    CHECK_UINT_EQ(k.n_told, 0);
}

TEST(rules_pool, a_caller_that_becomes_the_head_is_not_told)
{
    static struct pool_kit k;
    vow_pool_permit p;
    kit_open(&k, (vow_pool_limits){.rate = 4, .window_us = 100});
    (void)want(&k, 1, 4, OWNED);
    CHECK_INT_EQ(kit_acquire(&k, 2, 4, 5, 0, &p), 0);
    (void)want(&k, 3, 1, WAITS);
    k.now_us = 5 * MS;
    CHECK_UINT_EQ(want(&k, 3, 1, WAITS).ahead, 0);
    CHECK_UINT_EQ(k.n_told, 0);
}

/* Also while the concurrency limit holds the head back: when a permit is
 * released, only the rate counts. */
TEST(rules_pool, a_new_head_behind_holders_is_told_as_well)
{
    static struct pool_kit k;
    kit_open(&k,
             (vow_pool_limits){.concurrent = 1, .rate = 4, .window_us = 100});
    (void)want(&k, 1, 1, OWNED);
    (void)want(&k, 2, 1, WAITS);
    (void)want(&k, 3, 1, WAITS);
    (void)drop(&k, 1, OWNED);
    CHECK(kit_told(&k, 2) && kit_told(&k, 3));
    k.now_us += LEASE_US;
    (void)renew(&k, 9, false, NONE);
    (void)want(&k, 2, 1, OWNED);
    (void)want(&k, 3, 1, WAITS);
    CHECK_UINT_EQ(k.n_told, 0); /* the caller is answered */
}

TEST(rules_pool, a_new_head_without_a_rate_is_not_told)
{
    static struct pool_kit k;
    kit_open(&k, (vow_pool_limits){.concurrent = 1});
    (void)want(&k, 1, 1, OWNED);
    (void)want(&k, 2, 1, WAITS);
    (void)want(&k, 3, 1, WAITS);
    (void)drop(&k, 2, WAITS);
    CHECK_UINT_EQ(k.n_told, 0);
    (void)want(&k, 4, 1, WAITS);
    (void)drop(&k, 1, OWNED);
    CHECK_UINT_EQ(k.n_told, 1);
}

/* An open permit counts as of now; once the start is told, for a window. */
TEST(rules_pool, a_start_is_counted_once_from_when_it_is_told)
{
    static struct pool_kit k;
    kit_open(&k, (vow_pool_limits){.rate = 2, .window_us = 100});
    (void)want(&k, 1, 1, OWNED);
    (void)want(&k, 2, 1, OWNED);
    for (int i = 0; i < 5; i++) {
        k.now_us += 70;
        CHECK_UINT_EQ(want(&k, 3, 1, WAITS).again_us, 101);
        (void)renew(&k, 1, false, OWNED);
    }
    (void)renew(&k, 1, true, OWNED);
    k.now_us += 50;
    CHECK_UINT_EQ(want(&k, 3, 1, WAITS).again_us, 51);
    (void)renew(&k, 1, true, OWNED);
    (void)drop(&k, 1, OWNED); /* both are no second start */
    CHECK_UINT_EQ(want(&k, 3, 1, WAITS).again_us, 51);
    k.now_us += 50;
    (void)want(&k, 3, 1, WAITS);
    k.now_us++;
    (void)want(&k, 3, 1, OWNED);
    CHECK_UINT_EQ(k.pool.rate.n, 1);
}

TEST(rules_pool, a_release_and_the_end_of_a_lease_are_starts)
{
    static struct pool_kit k;
    kit_open(&k, (vow_pool_limits){.rate = 2, .window_us = 40000000});
    (void)want(&k, 1, 1, OWNED);
    (void)want(&k, 2, 1, OWNED);
    k.now_us = 500;
    (void)drop(&k, 1, OWNED);
    k.now_us = LEASE_US;
    CHECK_UINT_EQ(want(&k, 3, 2, WAITS).again_us, 40000001);
    CHECK_UINT_EQ(k.n, 1);
    CHECK_UINT_EQ(k.pool.rate.n, 2);
    CHECK_UINT_EQ(k.starts[0].at_us, 500);
    CHECK_UINT_EQ(k.starts[1].at_us, LEASE_US);
    CHECK_UINT_EQ(vow__rules_pool_used(&k.pool, k.now_us), 2);
}

/* Time in the queue is bounded by the rate behind others as well. */
TEST(rules_pool, a_waiter_behind_others_hears_of_whole_windows)
{
    static struct pool_kit k;
    kit_open(&k, (vow_pool_limits){.rate = 2, .window_us = 99});
    (void)want(&k, 1, 2, OWNED);
    CHECK_UINT_EQ(want(&k, 2, 2, WAITS).again_us, 100);
    CHECK_UINT_EQ(want(&k, 3, 1, WAITS).again_us, 200);
    CHECK_UINT_EQ(want(&k, 4, 1, WAITS).again_us, 200);
    CHECK_UINT_EQ(want(&k, 5, 1, WAITS).again_us, 300);
}

TEST(rules_pool, one_step_removes_64_expired_permits)
{
    static struct pool_kit k;
    vow_pool_permit p;
    kit_open(&k, (vow_pool_limits){.concurrent = 100});
    for (uint64_t i = 0; i < 100; i++)
        CHECK_INT_EQ(kit_acquire(&k, 100 + i, 1, 5, 0, &p), 0);
    (void)want(&k, 1, 100, WAITS);
    k.now_us = 5 * MS;
    CHECK_UINT_EQ(want(&k, 1, 100, WAITS).again_us, 1);
    CHECK_UINT_EQ(k.n, 101 - RULES_REAP_MAX);
    (void)want(&k, 1, 100, OWNED);
}

TEST(rules_pool, a_permit_that_the_64_did_not_reach_is_over)
{
    static struct pool_kit k;
    vow_pool_permit p;
    for (int held = 0; held < 2; held++) {
        kit_open(&k, (vow_pool_limits){.concurrent = 100});
        k.now_us = 1;
        (void)want(&k, 1, held ? 1 : 100, OWNED);
        CHECK_INT_EQ(kit_acquire(&k, ME + 1, 3, 5, 0, &p), 0);
        k.now_us = 0;
        for (uint64_t i = 0; i < 90; i++)
            CHECK_INT_EQ(kit_acquire(&k, 100 + i, 1, 5, 0, &p), 0);
        k.now_us = 5 * MS + 1;
        if (held) {
            (void)renew(&k, ME + 1, false, NONE);
            CHECK_UINT_EQ(k.n, 1 + 90 - RULES_REAP_MAX);
            continue;
        }
        uint64_t fence = k.pool.fence;
        CHECK_INT_EQ(kit_acquire(&k, ME + 1, 3, LEASE_MS, 0, &p), 0);
        check_counts(&k);
        CHECK_UINT_EQ(p.status, WAITS);
        CHECK_UINT_EQ(p.ahead, 0);
        CHECK_UINT_EQ(k.pool.fence, fence);
    }
}

/* However many dead requests are before a live one. */
TEST(rules_pool, dead_heads_do_not_block_a_grant)
{
    static struct pool_kit k;
    vow_pool_permit p;
    kit_open(&k, (vow_pool_limits){.concurrent = 1});
    (void)want(&k, 1, 1, OWNED);
    for (uint64_t i = 0; i < 200; i++)
        CHECK_INT_EQ(kit_acquire(&k, 100 + i, 1, 5, 0, &p), 0);
    (void)want(&k, 2, 1, WAITS);
    k.now_us = 5 * MS;
    (void)drop(&k, 1, OWNED);
    CHECK(kit_told(&k, 2));
    CHECK_UINT_EQ(k.n_told, 1);
    CHECK_UINT_EQ(k.pool.holders, 1);
    (void)want(&k, 2, 1, OWNED);
}

TEST(rules_pool, leases_without_end_do_not_overflow)
{
    static struct pool_kit k;
    vow_pool_permit p;
    kit_open(&k, (vow_pool_limits){.concurrent = 1});
    k.now_us = 1000;
    CHECK_INT_EQ(kit_acquire(&k, 1, 1, UINT64_MAX, 0, &p), 0);
    CHECK_UINT_EQ(k.permits[0].end_us, RULES_NEVER);
    CHECK_INT_EQ(kit_acquire(&k, 2, 1, UINT64_MAX / 1000, 0, &p), 0);
    CHECK_INT_EQ(kit_renew(&k, 2, UINT64_MAX, false, &p), 0);
    CHECK_UINT_EQ(p.status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(p.again_us, (RULES_NEVER - 1000) / 2 + 1);
}

/* An error of the storage ends the rule, and the counts stay sound as far as a
 * store without transactions needs: only the put of a new permit fails. */
TEST(rules_pool, errors_of_the_storage_are_returned)
{
    static struct pool_kit k;
    for (int rated = 0; rated < 2; rated++)
        for (int state = 0; state < STATES; state++)
            for (int step = 0; step < STEPS; step++)
                for (int nth = 1;; nth++) {
                    vow_pool_permit p;
                    build_state(&k, (enum state)state, rated);
                    k.fail_in = nth;
                    int rc = do_step(&k, (enum step)step, &p);
                    CHECK_INT_EQ(rc, k.fail_in == 0 ? VOW_EIO : 0);
                    if (rc == 0)
                        break;
                }
}

TEST(rules_pool, a_new_permit_that_cannot_be_stored_leaves_no_trace)
{
    static struct pool_kit k, before;
    for (uint32_t weight = 1; weight < 3; weight++) {
        vow_pool_permit p;
        kit_open(&k, (vow_pool_limits){
                         .concurrent = 2, .rate = 9, .window_us = 100});
        (void)want(&k, 1, 1, OWNED);
        kit_copy(&before, &k);
        k.fail_in = 3; /* ended, find, put */
        CHECK_INT_EQ(kit_acquire(&k, 2, weight, LEASE_MS, 0, &p), VOW_EIO);
        check_counts(&k);
        check_same_kit(&k, &before);
    }
}
