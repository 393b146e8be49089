/* SPDX-License-Identifier: MIT */
/* rules_pool_twins.h - the pools of a store are held to the rules.
 *
 * HOW   Random steps of several instances go to the store, by twins_side, and
 *       to the rules of pools on an array of permits (rules_pool_kit.h). Both
 *       have the clock of the test, which often jumps to the end of a lease or
 *       of a window, so all answers are equal to the microsecond: status,
 *       fence, ahead, again, limits. Equal are also those who are told, and
 *       behind each step what is kept.
 * LIMITS  Windows do not change, see store/rules/pool.h.
 */
#ifndef TEST_RULES_POOL_TWINS_H
#define TEST_RULES_POOL_TWINS_H

#include "rules_pool_kit.h"

#include <stdio.h>

enum {
    TWINS_POOLS = 7,
    TWINS_INSTANCES = 3,
    TWINS_CROWD = 140, /* in one pool at once, without a rate */
    TWINS_FEW = 40,    /* in all others */
    TWINS_BATCH = 4,
    TWINS_SHORT_MS = 8000,
    TWINS_LONG_MS = 3600 * 1000
};

#define TWINS_START_US                                                         \
    (UINT64_C(40000) * 86400000000) /* no key ends meanwhile */

struct twins_pool {
    uint64_t number, law;   /* of the names */
    vow_pool_limits limits; /* the first */
    bool changes;           /* by limit */
    uint32_t weights, most; /* of one request; of requests at once */
    vow_name name, law_name;
    struct pool_kit kit;
};

/* The store: each function takes a step of an instance. */
struct twins_side {
    void *user;
    /* Sets the clock. Returns the number of struct rules_now. */
    uint64_t (*clock)(void *user, uint64_t now_us);
    int (*acquire)(void *user, unsigned inst, const vow_permit_request *request,
                   vow_pool_permit *ret);
    void (*release)(void *user, unsigned inst, const vow_permit_hold *hold,
                    vow_pool_permit *ret);
    void (*renew)(void *user, unsigned inst, const vow_permit_hold *holds,
                  size_t n, uint64_t lease_ms, vow_pool_permit *ret);
    /* `limits` NULL: looks. Returns whether there is a pool. */
    bool (*limit)(void *user, const struct twins_pool *p, bool law,
                  const vow_pool_limits *limits, vow_pool_info *ret);
    /* Calls twins_told() for each event. */
    void (*tell)(void *user);
    /* Compares what is kept about the pool. */
    void (*kept)(void *user, struct twins_pool *p);
    bool early;       /* the next end is an earlier time: see rules/pool.h */
    bool moves;       /* no two steps are at the same time */
    bool crowd_stays; /* no short leases in the pool with the crowd */
};

enum {
    TWINS_SAID = 8,
    TWINS_TOLD = TWINS_SAID,
    TWINS_TOLD_HEAD,
    TWINS_NEVER_FITS,
    TWINS_REAPED_MANY,
    TWINS_COUNTS
};

struct twins {
    struct twins_side side;
    uint64_t seed, token, clock_us;
    struct twins_pool pools[TWINS_POOLS];
    unsigned counts[TWINS_COUNTS]; /* answers by status, and events */
    vow_token told[KIT_TOLD];      /* by the rules, in this step */
    size_t n_told;
};

static const struct twins_pool TWINS_KINDS[TWINS_POOLS] = {
    {.number = 1,
     .law = 1,
     .limits = {.concurrent = 5},
     .changes = true,
     .weights = 4,
     .most = TWINS_FEW},
    {.number = 2,
     .law = 2,
     .limits = {.rate = 7, .window_us = 4000000},
     .changes = true,
     .weights = 3,
     .most = TWINS_FEW},
    {.number = 3,
     .law = 3,
     .limits = {4, 9, 7000000},
     .changes = true,
     .weights = 2,
     .most = TWINS_FEW},
    {.number = 4,
     .law = 4,
     .limits = {.rate = 50000, .window_us = 3000000},
     .weights = 9000,
     .most = TWINS_FEW},
    {.number = 6,
     .law = 5,
     .limits = {.concurrent = 3},
     .changes = true,
     .weights = 3,
     .most = TWINS_FEW},
    {.number = 8,
     .law = 7,
     .limits = {3, 5, 3000000},
     .changes = true,
     .weights = 2,
     .most = TWINS_FEW},
    {.number = 9,
     .law = 9,
     .limits = {.concurrent = 3},
     .weights = 1,
     .most = TWINS_CROWD},
};

static inline uint64_t twins_roll(struct twins *t, uint64_t n)
{
    return test_random(&t->seed) % n;
}

static inline uint64_t twins_number(const vow_token *token)
{
    uint64_t n;
    memcpy(&n, token->bytes, sizeof(n));
    return n;
}

/* The instance of a token, which never changes. */
static inline unsigned twins_instance(const vow_token *token)
{
    return (unsigned)(twins_number(token) % TWINS_INSTANCES);
}

static inline vow_name twins_name(uint64_t number)
{
    vow_name name = {.hash = {[31] = 1}};
    memcpy(name.hash, &number, sizeof(number));
    return name;
}

static inline vow_permit_hold twins_hold(const struct twins_pool *p,
                                         uint64_t token, bool started)
{
    return (vow_permit_hold){.pool = p->name,
                             .limits_of = p->law_name,
                             .token = kit_token(token),
                             .started = started};
}

static inline void twins_clock(struct twins *t)
{
    t->clock_us += t->side.moves;
    uint64_t number = t->side.clock(t->side.user, t->clock_us);
    for (size_t i = 0; i < TWINS_POOLS; i++) {
        t->pools[i].kit.now_us = t->clock_us;
        t->pools[i].kit.number = number;
    }
}

/* ---- comparing ----------------------------------------------------------- */

static inline void twins_limits(const vow_pool_limits *got,
                                const vow_pool_limits *want)
{
    CHECK_UINT_EQ(got->concurrent, want->concurrent);
    CHECK_UINT_EQ(got->rate, want->rate);
    CHECK_UINT_EQ(got->window_us, want->window_us);
}

static inline void twins_permit(struct twins *t, const vow_pool_permit *got,
                                const vow_pool_permit *want)
{
    CHECK_UINT_EQ(got->status, want->status);
    CHECK_UINT_EQ(got->fence, want->fence);
    CHECK_UINT_EQ(got->ahead, want->ahead);
    if (t->side.early && want->again_us > 0) /* half-way to its own end? */
        CHECK(got->again_us > 0 && got->again_us <= 2 * want->again_us);
    else
        CHECK_UINT_EQ(got->again_us, want->again_us);
    t->counts[want->status]++;
    if (want->status != VOW_STATUS_NONE)
        twins_limits(&got->limits, &want->limits);
}

static inline void twins_info(const vow_pool_info *got,
                              const struct twins_pool *p)
{
    const struct rules_pool *want = &p->kit.pool;
    twins_limits(&got->limits, &want->limits);
    CHECK_UINT_EQ(got->held, want->held);
    CHECK_UINT_EQ(got->holders, want->holders);
    CHECK_UINT_EQ(got->waiting, want->waiting);
    CHECK_UINT_EQ(got->rate_used, vow__rules_pool_used(want, p->kit.now_us));
}

/* A rule ran: what it told counts for the step. */
static inline void twins_rule_ran(struct twins *t, struct twins_pool *p)
{
    for (size_t i = 0; i < p->kit.n_told; i++) {
        const struct rules_permit *at = kit_permit(&p->kit, &p->kit.told[i]);
        CHECK(t->n_told < KIT_TOLD);
        t->told[t->n_told++] = p->kit.told[i];
        t->counts[TWINS_TOLD]++;
        t->counts[TWINS_TOLD_HEAD] += at != NULL && !at->held;
    }
    p->kit.n_told = 0;
}

/* The store has told an instance of a permit. */
static inline void twins_told(struct twins *t, unsigned inst,
                              const vow_token *token)
{
    size_t i = 0;
    while (i < t->n_told && !kit_same(&t->told[i], token))
        i++;
    if (i == t->n_told)
        FAIL("the store told %ju, the rules do not",
             (uintmax_t)twins_number(token));
    CHECK_UINT_EQ(inst, twins_instance(token));
    t->told[i] = t->told[--t->n_told];
}

static inline void twins_check_told(struct twins *t)
{
    t->side.tell(t->side.user);
    if (t->n_told > 0)
        FAIL("the rules tell %ju, the store did not",
             (uintmax_t)twins_number(&t->told[0]));
}

/* ---- steps --------------------------------------------------------------- */

static inline uint64_t twins_some_lease(struct twins *t,
                                        const struct twins_pool *p)
{
    bool crowd = p->most == TWINS_CROWD;
    if (crowd && t->side.crowd_stays)
        return TWINS_LONG_MS + twins_roll(t, TWINS_LONG_MS);
    return twins_roll(t, crowd ? 5 : 2) == 0
               ? TWINS_LONG_MS
               : 1 + twins_roll(t, TWINS_SHORT_MS);
}

/* Of a permit, or now and then of none. */
static inline uint64_t twins_some_token(struct twins *t,
                                        const struct twins_pool *p)
{
    if (p->kit.n == 0 || twins_roll(t, 8) == 0)
        return ++t->token;
    return twins_number(&p->kit.permits[twins_roll(t, p->kit.n)].token);
}

static inline void twins_acquire(struct twins *t, struct twins_pool *p)
{
    bool is_new = p->kit.n < p->most && twins_roll(t, 2) == 0;
    uint64_t token = is_new ? ++t->token : twins_some_token(t, p);
    const vow_permit_request q = {
        .pool = p->name,
        .limits_of = p->law_name,
        .token = kit_token(token),
        .weight = 1 + (uint32_t)twins_roll(t, p->weights),
        .lease_ms = twins_some_lease(t, p),
        .flags = twins_roll(t, 4) == 0 ? VOW_PERMIT_TRY : 0,
        .limits = p->limits,
        .label = "pool",
        .limits_label = "law"};
    vow_pool_permit want = {.status = VOW_STATUS_NONE};
    vow_pool_permit got = {.status = VOW_STATUS_NONE};
    if (p->kit.n >= p->most && kit_permit(&p->kit, &q.token) == NULL)
        return;
    int code =
        t->side.acquire(t->side.user, twins_instance(&q.token), &q, &got);
    int rc = kit_acquire(&p->kit, token, q.weight, q.lease_ms, q.flags, &want);
    twins_rule_ran(t, p);
    CHECK_INT_EQ(code, rc);
    CHECK(rc == 0 || rc == VOW_EINVAL);
    t->counts[TWINS_NEVER_FITS] += rc < 0;
    if (rc == 0)
        twins_permit(t, &got, &want);
}

static inline void twins_release(struct twins *t, struct twins_pool *p)
{
    uint64_t token = twins_some_token(t, p);
    vow_permit_hold hold = twins_hold(p, token, false);
    vow_pool_permit want;
    vow_pool_permit got;
    t->side.release(t->side.user, twins_instance(&hold.token), &hold, &got);
    CHECK_INT_EQ(kit_release(&p->kit, token, &want), 0);
    twins_rule_ran(t, p);
    twins_permit(t, &got, &want);
}

/* Of one instance; as if each were renewed by a step of its own. */
static inline void twins_renew(struct twins *t, struct twins_pool *p)
{
    vow_permit_hold holds[TWINS_BATCH];
    vow_pool_permit got[TWINS_BATCH];
    uint64_t lease_ms = twins_some_lease(t, p);
    size_t n = 1;
    holds[0] = twins_hold(p, twins_some_token(t, p), twins_roll(t, 2) == 0);
    unsigned inst = twins_instance(&holds[0].token);
    for (size_t more = twins_roll(t, TWINS_BATCH); more > 0; more--) {
        holds[n] = twins_hold(p, twins_some_token(t, p), twins_roll(t, 2) == 0);
        n += twins_instance(&holds[n].token) == inst && p->kit.n <= TWINS_FEW;
    }
    t->side.renew(t->side.user, inst, holds, n, lease_ms, got);
    for (size_t i = 0; i < n; i++) {
        vow_pool_permit want;
        CHECK_INT_EQ(kit_renew(&p->kit, twins_number(&holds[i].token), lease_ms,
                               holds[i].started, &want),
                     0);
        twins_rule_ran(t, p);
        twins_permit(t, &got[i], &want);
    }
}

/* Limits of a pool of keys reach the key with its next step. */
static inline void twins_limit(struct twins *t, struct twins_pool *p)
{
    vow_pool_limits limits = p->limits;
    vow_pool_info got;
    if (!p->changes)
        return;
    limits.concurrent =
        twins_roll(t, 6) == 0 ? 0 : 2 + (uint32_t)twins_roll(t, 5);
    if (limits.rate > 0)
        limits.rate =
            twins_roll(t, 6) == 0 ? 0 : 2 + (uint32_t)twins_roll(t, 9);
    CHECK(t->side.limit(t->side.user, p, true, &limits, &got));
    if (p->law != p->number) {
        p->kit.pool.limits = limits;
        return;
    }
    CHECK_INT_EQ(vow__rules_limit(&p->kit.pool, &p->kit.storage, &limits,
                                  kit_step(&p->kit)),
                 0);
    twins_rule_ran(t, p);
    twins_info(&got, p);
}

/* A key that nobody uses may be gone. */
static inline void twins_look(struct twins *t, struct twins_pool *p)
{
    vow_pool_info got;
    bool there = t->side.limit(t->side.user, p, false, NULL, &got);
    CHECK_INT_EQ(vow__rules_limit(&p->kit.pool, &p->kit.storage, NULL,
                                  kit_step(&p->kit)),
                 0);
    twins_rule_ran(t, p);
    if (there)
        twins_info(&got, p);
    else
        CHECK_UINT_EQ(p->kit.n, 0);
}

/* A little, or to the end of a lease or of the window of a start. */
static inline void twins_move_clock(struct twins *t)
{
    const struct twins_pool *p = &t->pools[twins_roll(t, TWINS_POOLS)];
    const struct rules_rate *l = &p->kit.pool.rate;
    uint64_t to = t->clock_us + 1 + twins_roll(t, 3000);
    uint64_t x = twins_roll(t, 20);
    if (x < 3 && p->kit.n > 0)
        to = p->kit.permits[twins_roll(t, p->kit.n)].end_us - 1 +
             twins_roll(t, 3);
    else if (x < 6 && l->n > 0)
        to = l->starts[twins_roll(t, l->n)].at_us + p->limits.window_us +
             twins_roll(t, 3);
    else if (x < 7)
        to = t->clock_us + twins_roll(t, 3000000);
    if (to > t->clock_us && to < t->clock_us + 40000000)
        t->clock_us = to;
}

static inline void twins_step(struct twins *t)
{
    struct twins_pool *p = &t->pools[twins_roll(t, TWINS_POOLS)];
    uint64_t x = twins_roll(t, 20);
    size_t ended = 0;
    if (twins_roll(t, 3) > 0)
        twins_move_clock(t);
    twins_clock(t);
    for (size_t i = 0; i < p->kit.n; i++)
        ended += p->kit.permits[i].end_us <= p->kit.now_us;
    t->counts[TWINS_REAPED_MANY] += ended > RULES_REAP_MAX;
    if (x < 10)
        twins_acquire(t, p);
    else if (x < 13)
        twins_release(t, p);
    else if (x < 18)
        twins_renew(t, p);
    else if (x < 19)
        twins_look(t, p);
    else
        twins_limit(t, p);
    twins_check_told(t);
    t->side.kept(t->side.user, p);
}

/* A crowd; short leases of the crowd end together. */
static inline void twins_fill_crowd(struct twins *t)
{
    struct twins_pool *p = &t->pools[TWINS_POOLS - 1];
    for (int i = 0; i < 400 && p->kit.n < TWINS_CROWD; i++) {
        twins_clock(t);
        twins_acquire(t, p);
        twins_check_told(t);
        t->side.kept(t->side.user, p);
    }
    if (!t->side.crowd_stays)
        t->clock_us += UINT64_C(1000) * TWINS_SHORT_MS;
}

static inline void twins_open(struct twins *t, const struct twins_side *side)
{
    t->side = *side;
    t->seed = test_seed();
    t->clock_us = TWINS_START_US;
    for (size_t i = 0; i < TWINS_POOLS; i++) {
        struct twins_pool *p = &t->pools[i];
        *p = TWINS_KINDS[i];
        p->name = twins_name(p->number);
        p->law_name = twins_name(p->law);
        kit_open(&p->kit, p->limits);
    }
}

/* Takes steps; each thing happens often. */
static inline void twins_run(struct twins *t, int steps)
{
    for (int i = 0; i < steps; i++) {
        if (i % (steps / 20) == 0)
            twins_fill_crowd(t);
        twins_step(t);
    }
    CHECK(t->counts[VOW_STATUS_OWNED] > (unsigned)steps / 24 &&
          t->counts[VOW_STATUS_WAITING] > (unsigned)steps / 24);
    CHECK(t->counts[VOW_STATUS_BUSY] > (unsigned)steps / 240 &&
          t->counts[VOW_STATUS_NONE] > (unsigned)steps / 240);
    CHECK(t->counts[TWINS_TOLD] > (unsigned)steps / 60 &&
          t->counts[TWINS_TOLD_HEAD] > 10);
    CHECK(t->counts[TWINS_NEVER_FITS] > 20);
}

#endif
