/* SPDX-License-Identifier: MIT */
/* random_place_test.c - random places of all instances, against a model.
 *
 * The model of a pool is one list in the order of arrival, and the times of all
 * starts that ever were; what was granted counts as of now until it is known to
 * have started, was given back, or is over. Each step throws out what is over,
 * does what is asked, and grants heads while they fit. On real time, and with
 * ordered permits, there is no rate, and leases last for LONG_MS.
 */
#include "contract.h"
#include <string.h>

enum {
    POOLS = 2,
    SPOTS = 64, /* in one pool at once */
    GRANTS = 4096,
    STEPS = 2000,
    STEPS_REAL = 250,
    ACCEPT_MS = 2000
};

struct spot {
    uint64_t token;
    size_t inst;
    uint32_t weight;
    bool held, fetched;
    bool open; /* held under a rate, and not known to have started */
    uint64_t end_ms;
    uint64_t fence; /* 0: not known yet */
};

struct pool {
    vow_pool_limits limits;
    size_t n;
    struct spot spots[SPOTS]; /* in the order in which they came */
    size_t granted;
    size_t starts;
    struct {
        uint64_t ms;
        uint32_t weight;
    } log[GRANTS];
};

struct model {
    struct rig *rig;
    uint64_t seed, now_ms, token, fence;
    unsigned told[RIG_INSTANCES];
    bool tell[RIG_INSTANCES];
    struct pool pools[POOLS];
};

static const char *const POOL[POOLS] = {"p", "q"};

static uint64_t roll(struct model *m, uint64_t n)
{
    return test_random(&m->seed) % n;
}

static bool is_plain(const struct model *m)
{
    return m->rig->store->real_time || m->rig->store->ordered;
}

static uint64_t span(struct model *m)
{
    if (is_plain(m) || roll(m, 3) > 0)
        return LONG_MS;
    return 1 + roll(m, 3000);
}

static void drop(struct pool *p, size_t at)
{
    p->n--;
    memmove(&p->spots[at], &p->spots[at + 1],
            (p->n - at) * sizeof(p->spots[0]));
}

static void start(const struct model *m, struct pool *p, struct spot *s)
{
    if (!s->open)
        return;
    CHECK(p->starts < GRANTS);
    p->log[p->starts].ms = m->now_ms;
    p->log[p->starts++].weight = s->weight;
    s->open = false;
}

static bool possible(const struct pool *p, uint32_t weight)
{
    return (p->limits.concurrent == 0 || weight <= p->limits.concurrent) &&
           (p->limits.rate == 0 || weight <= p->limits.rate);
}

static uint64_t held(const struct pool *p)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < p->n; i++)
        sum += p->spots[i].held ? p->spots[i].weight : 0;
    return sum;
}

/* Of the window that ends now, both ends included. */
static uint64_t used(const struct model *m, const struct pool *p)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < p->n; i++)
        sum += p->spots[i].open ? p->spots[i].weight : 0;
    for (size_t i = 0; i < p->starts; i++)
        if (p->log[i].ms * 1000 + p->limits.window_us >= m->now_ms * 1000)
            sum += p->log[i].weight;
    return sum;
}

static bool fits(const struct model *m, const struct pool *p, uint32_t weight)
{
    return (p->limits.concurrent == 0 ||
            held(p) + weight <= p->limits.concurrent) &&
           (p->limits.rate == 0 || used(m, p) + weight <= p->limits.rate);
}

static void reap(const struct model *m, struct pool *p)
{
    for (size_t i = p->n; i-- > 0;)
        if (p->spots[i].end_ms <= m->now_ms) {
            start(m, p, &p->spots[i]);
            drop(p, i);
        }
}

/* `me` is the token of who asks. */
static void grant(struct model *m, struct pool *p, uint64_t me)
{
    for (size_t i = 0; i < p->n; i++) {
        struct spot *s = &p->spots[i];
        if (s->held)
            continue;
        if (!possible(p, s->weight)) {
            m->tell[s->inst] |= s->token != me;
            drop(p, i--);
            continue;
        }
        if (!fits(m, p, s->weight))
            return;
        p->granted++;
        s->held = true;
        s->open = p->limits.rate > 0;
        s->fetched = s->token == me;
        if (s->token != me) {
            if (s->end_ms > m->now_ms + ACCEPT_MS)
                s->end_ms = m->now_ms + ACCEPT_MS;
            m->tell[s->inst] = true;
        }
    }
}

static struct spot *find(struct pool *p, uint64_t token)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->spots[i].token == token)
            return &p->spots[i];
    return NULL;
}

static void check_place(struct model *m, struct pool *p, uint64_t token,
                        vow_pool_permit place)
{
    struct spot *s = find(p, token);
    uint64_t ahead = 0;
    CHECK(s != NULL);
    CHECK_UINT_EQ(place.status,
                  s->held ? VOW_STATUS_OWNED : VOW_STATUS_WAITING);
    CHECK_UINT_EQ(place.limits.concurrent, p->limits.concurrent);
    if (s->held && s->fence == 0) {
        CHECK(place.fence > 0);
        s->fence = place.fence;
    }
    if (s->held) {
        CHECK_UINT_EQ(place.fence, s->fence);
        return;
    }
    for (size_t i = 0; &p->spots[i] != s; i++)
        ahead += !p->spots[i].held;
    CHECK_UINT_EQ(place.ahead, ahead);
    CHECK(place.again_us > 0);
    (void)m;
}

/* Whether a step that is refused, or time that passes, grants those who wait is
 * left open: a step that changes nothing else does. */
static void nudge(struct model *m, size_t k)
{
    CHECK_UINT_EQ(
        rig_renew(m->rig, 0, POOL[k], ++m->token, LONG_MS).place.status,
        VOW_STATUS_NONE);
    reap(m, &m->pools[k]);
    grant(m, &m->pools[k], 0);
}

/* By the limits there are, to those who wait: somebody's time is over. */
static bool may_grant(const struct model *m, const struct pool *p)
{
    bool ended = false;
    bool waits = false;
    for (size_t i = 0; i < p->n; i++) {
        ended |= p->spots[i].end_ms <= m->now_ms;
        waits |= !p->spots[i].held;
    }
    return ended && waits;
}

static void acquire(struct model *m, size_t k, struct spot ask, uint32_t flags)
{
    struct pool *p = &m->pools[k];
    struct rig_place a = rig_acquire(
        m->rig, ask.inst,
        PLACE(POOL[k], ask.token, .weight = ask.weight, .flags = flags,
              .lease_ms = ask.end_ms - m->now_ms, .limits = p->limits));
    reap(m, p);
    struct spot *s = find(p, ask.token);
    if (s == NULL && !possible(p, ask.weight)) {
        CHECK_INT_EQ(a.code, VOW_EINVAL);
        nudge(m, k);
        return;
    }
    if (s != NULL) {
        s->end_ms = ask.end_ms;
        s->fetched |= s->held;
    } else {
        CHECK(p->n < SPOTS);
        p->spots[p->n++] = ask;
    }
    bool fresh = s == NULL;
    grant(m, p, ask.token);
    s = find(p, ask.token);
    if (s == NULL) {
        CHECK_INT_EQ(a.code, VOW_EINVAL);
        return;
    }
    CHECK_INT_EQ(a.code, 0);
    if (fresh && !s->held && (flags & VOW_PERMIT_TRY) != 0) {
        CHECK_UINT_EQ(a.place.status, VOW_STATUS_BUSY);
        drop(p, (size_t)(s - p->spots));
        return;
    }
    check_place(m, p, ask.token, a.place);
}

static void step_acquire(struct model *m, size_t k)
{
    struct pool *p = &m->pools[k];
    struct spot ask = {.token = ++m->token,
                       .inst = roll(m, RIG_INSTANCES),
                       .weight = 1 + (uint32_t)roll(m, 4),
                       .end_ms = m->now_ms + span(m)};
    if (p->n == SPOTS)
        return;
    if (p->n > 0 && roll(m, 3) == 0) {
        const struct spot *s = &p->spots[roll(m, p->n)];
        ask.token = s->token;
        ask.inst = s->inst;
        ask.weight = s->weight;
    }
    acquire(m, k, ask, roll(m, 4) == 0 ? VOW_PERMIT_TRY : 0);
}

static uint64_t some_token(struct model *m, const struct pool *p)
{
    return p->n == 0 || roll(m, 10) == 0 ? ++m->token
                                         : p->spots[roll(m, p->n)].token;
}

static void step_release(struct model *m, size_t k)
{
    struct pool *p = &m->pools[k];
    bool oldest = p->n > 0 && roll(m, 2) == 0; /* else the queue only grows */
    uint64_t token = oldest ? p->spots[0].token : some_token(m, p);
    struct spot *s = find(p, token);
    size_t inst = s == NULL ? 0 : s->inst;
    struct rig_place a = rig_release(m->rig, inst, POOL[k], token);
    reap(m, p);
    s = find(p, token);
    CHECK_UINT_EQ(a.place.status, s == NULL ? VOW_STATUS_NONE
                                  : s->held ? VOW_STATUS_OWNED
                                            : VOW_STATUS_WAITING);
    if (s != NULL) {
        start(m, p, s);
        drop(p, (size_t)(s - p->spots));
    }
    grant(m, p, 0);
}

static void step_renew(struct model *m, size_t k)
{
    struct pool *p = &m->pools[k];
    uint64_t token = some_token(m, p);
    uint64_t lease_ms = span(m);
    struct spot *s = find(p, token);
    size_t inst = s == NULL ? 0 : s->inst;
    bool starts = roll(m, 2) == 0;
    struct rig_place a =
        starts ? rig_start(m->rig, inst, POOL[k], token, lease_ms)
               : rig_renew(m->rig, inst, POOL[k], token, lease_ms);
    reap(m, p);
    s = find(p, token);
    if (s != NULL && starts)
        start(m, p, s);
    if (s != NULL) {
        s->end_ms = m->now_ms + lease_ms;
        s->fetched |= s->held;
    }
    bool waited = s != NULL && !s->held;
    grant(m, p, token);
    s = find(p, token);
    if (waited && s != NULL && s->held) /* some stores grant it for 2 s only */
        s->fetched = !is_plain(m);
    if (s == NULL)
        CHECK_UINT_EQ(a.place.status, VOW_STATUS_NONE);
    else
        check_place(m, p, token, a.place);
}

/* New limits remove requests that can never be granted. */
static void drop_impossible(struct model *m, struct pool *p)
{
    for (size_t i = p->n; i-- > 0;) {
        if (p->spots[i].held || possible(p, p->spots[i].weight))
            continue;
        m->tell[p->spots[i].inst] = true;
        drop(p, i);
    }
}

static void step_limit(struct model *m, size_t k)
{
    struct pool *p = &m->pools[k];
    if (may_grant(m, p))
        nudge(m, k);
    p->limits.concurrent = roll(m, 6) == 0 ? 0 : 2 + (uint32_t)roll(m, 8);
    if (p->limits.rate > 0)
        p->limits.rate = 3 + (uint32_t)roll(m, 8);
    struct rig_pool a = rig_limit(m->rig, 0, POOL[k], &p->limits);
    CHECK_INT_EQ(a.code, 0);
    reap(m, p);
    if (m->rig->store->ordered)
        drop_impossible(m, p);
    grant(m, p, 0);
    CHECK_UINT_EQ(a.info.held, held(p));
}

static void step(struct model *m)
{
    size_t k = roll(m, POOLS);
    uint64_t x = roll(m, 20);
    for (size_t i = 0; i < RIG_INSTANCES; i++) {
        m->told[i] = m->rig->news[i].places;
        m->tell[i] = false;
    }
    if (x < 10)
        step_acquire(m, k);
    else if (x < 16)
        step_release(m, k);
    else if (x < 19)
        step_renew(m, k);
    else
        step_limit(m, k);
    for (size_t i = 0; i < RIG_INSTANCES; i++)
        if (m->tell[i])
            rig_expect(m->rig, &m->rig->news[i].places, m->told[i] + 1);
    struct pool *p = &m->pools[k];
    for (size_t i = 0; i < p->n; i++) {
        bool fetch = is_plain(m) || roll(m, 8) > 0;
        if (!p->spots[i].held || p->spots[i].fetched || !fetch)
            continue;
        struct spot again = p->spots[i];
        again.end_ms = m->now_ms + LONG_MS;
        acquire(m, k, again, 0);
    }
}

static void check_pools(struct model *m)
{
    struct rig_pool out[POOLS];
    size_t n = rig_pools(m->rig, 0, out, POOLS);
    CHECK(n <= POOLS);
    for (size_t i = 0; i < n; i++) {
        struct pool *p = &m->pools[strcmp(out[i].label, "p") == 0 ? 0 : 1];
        memset(m->tell, 0, sizeof(m->tell));
        reap(m, p);
        grant(m, p, 0);
        uint64_t holders = 0;
        for (size_t k = 0; k < p->n; k++)
            holders += p->spots[k].held;
        CHECK_UINT_EQ(out[i].info.held, held(p));
        CHECK_UINT_EQ(out[i].info.holders, holders);
        CHECK_UINT_EQ(out[i].info.waiting, p->n - holders);
        if (p->limits.rate > 0)
            CHECK_UINT_EQ(out[i].info.rate_used, used(m, p));
    }
}

CONTRACT(random, every_place_is_that_of_the_model)
{
    static struct model m;
    m = (struct model){.rig = r, .seed = test_seed()};
    bool plain = is_plain(&m);
    m.pools[0].limits = (vow_pool_limits){.concurrent = 5};
    m.pools[1].limits = (vow_pool_limits){.concurrent = 4};
    if (!plain) {
        m.pools[1].limits.rate = 6;
        m.pools[1].limits.window_us = 700000;
    }
    for (int i = 0; i < (r->store->real_time ? STEPS_REAL : STEPS); i++) {
        step(&m);
        if (roll(&m, 20) == 0)
            check_pools(&m);
        if (!plain && roll(&m, 3) == 0) {
            uint64_t ms = roll(&m, 500);
            rig_advance_ms(r, ms);
            m.now_ms += ms;
        }
    }
    CHECK(m.pools[0].granted > 10);
}
