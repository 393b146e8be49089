/* SPDX-License-Identifier: MIT */
/* rules_pool_history_test.c - random histories of a pool, under the rules.
 *
 * Processes request, fetch, start, renew, release, fall silent and repeat,
 * while the time jumps from boundary to boundary. The properties are checked
 * from the permits before and behind each step, and from lists of requests and
 * starts that the test keeps, never from the counts of the pool:
 *
 *   H1  a grant never raises the weight held above the concurrency limit
 *   H2  no window has starts of more weight than the rate; with shared entries
 *       a window is too long by at most a 256th
 *   H3  requests are granted in the order of their arrival
 *   H4  behind each step the head does not fit: no turn is lost
 *   H5  fences strictly rise
 *   H6  a try never queues
 *   H7  a permit granted by another is told, and ends within 2 s and within the
 *       own lease; other leases end only as requested
 *   H8  under a rate a new head is told
 *   H9  a repeated step has the same answer and no second effect
 *   H10 a waiter that asks when told, and when the answer says, is never late
 */
#include "rules_pool_kit.h"

enum { HISTORIES = 400, STEPS = 250, TOKENS_MAX = 4000, STARTS_MAX = 4000 };
enum { EVENT_MIN = 100, SHORT_MS = 700, LONG_MS = 30000 };

/* Events that the histories must reach. */
enum { GRANT, FETCH, EXPIRE, UNFETCHED, BLOCKED, NEW_HEAD, WITHDRAWN, EVENTS };

struct fact {
    bool counted; /* a start of this permit counts, and is not listed yet */
    bool lent;    /* granted by another, and not fetched */
};

struct history {
    struct pool_kit k;
    struct pool_kit before;
    uint64_t seed, random;
    int step;
    uint64_t caller; /* token of the step; 0: none */
    uint64_t tokens;
    uint64_t fence;
    bool limits_change;
    struct fact facts[TOKENS_MAX];
    size_t n_starts;
    struct rules_start starts[STARTS_MAX];
    uint64_t *events;
};

#define EXPECT(h, cond)                                                        \
    ((cond) ? (void)0                                                          \
            : test_fail(TEST_HERE, "history %ju, step %d: %s",                 \
                        (uintmax_t)(h)->seed, (h)->step, #cond))

static uint64_t pick(struct history *h, uint64_t below)
{
    return test_random(&h->random) % below;
}

static uint64_t number_of(const vow_token *t)
{
    uint64_t n;
    memcpy(&n, t->bytes, sizeof(n));
    return n;
}

static const vow_pool_limits *limits_of(const struct history *h)
{
    return &h->k.pool.limits;
}

static uint64_t held_by_list(const struct pool_kit *k)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < k->n; i++)
        sum += k->permits[i].held ? k->permits[i].weight : 0;
    return sum;
}

/* Weight that counts against the rate at a time, by the list of the test. */
static uint64_t used_by_list(const struct history *h, uint64_t window_us,
                             uint64_t now_us)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < h->k.n; i++)
        if (h->facts[number_of(&h->k.permits[i].token)].counted)
            sum += h->k.permits[i].weight;
    for (size_t i = 0; i < h->n_starts; i++)
        if (h->starts[i].at_us + window_us >= now_us)
            sum += h->starts[i].weight;
    return sum;
}

static uint64_t window_part(const vow_pool_limits *l)
{
    return l->rate > 256 ? l->window_us / 256 : 0;
}

/* Whether a waiting permit fits for sure: also if a window is too long. */
static bool head_fits(const struct history *h, const struct rules_permit *t,
                      uint64_t now_us)
{
    const vow_pool_limits *l = limits_of(h);
    if (l->concurrent > 0 && held_by_list(&h->k) + t->weight > l->concurrent)
        return false;
    return l->rate == 0 ||
           used_by_list(h, l->window_us + window_part(l), now_us) + t->weight <=
               l->rate;
}

static const struct rules_permit *head_of(const struct pool_kit *k)
{
    const struct rules_permit *head = NULL;
    for (size_t i = 0; i < k->n; i++)
        if (!k->permits[i].held &&
            (head == NULL ||
             number_of(&k->permits[i].token) < number_of(&head->token)))
            head = &k->permits[i];
    return head;
}

static void list_start(struct history *h, const struct rules_permit *t)
{
    struct fact *f = &h->facts[number_of(&t->token)];
    if (!f->counted)
        return;
    f->counted = false;
    CHECK(h->n_starts < STARTS_MAX);
    h->starts[h->n_starts++] = (struct rules_start){h->k.now_us, t->weight};
}

/* ---- what a step has changed --------------------------------------------- */

static void see_gone(struct history *h, const struct rules_permit *old,
                     bool released)
{
    uint64_t n = number_of(&old->token);
    const vow_pool_limits *l = limits_of(h);
    bool never = (l->concurrent > 0 && old->weight > l->concurrent) ||
                 (l->rate > 0 && old->weight > l->rate);
    bool over = old->end_us <= h->k.now_us;
    EXPECT(h, over || (released && n == h->caller) || (!old->held && never));
    if (!over && never && n != h->caller)
        EXPECT(h, kit_told(&h->k, n));
    h->events[EXPIRE] += over;
    h->events[UNFETCHED] += over && h->facts[n].lent;
    h->events[WITHDRAWN] += !old->held && !over;
    list_start(h, old);
}

/* Tokens are numbers in the order of arrival. */
static void see_grant(struct history *h, const struct rules_permit *old,
                      const struct rules_permit *t)
{
    uint64_t n = number_of(&t->token);
    struct fact *f = &h->facts[n];
    EXPECT(h, t->fence > h->fence); /* H5 */
    for (size_t i = 0; i < h->k.n; i++) {
        const struct rules_permit *x = &h->k.permits[i];
        uint64_t m = number_of(&x->token);
        struct rules_permit *was = kit_permit(&h->before, &x->token);
        if (!x->held)
            EXPECT(h, m > n); /* H3 */
        else if (was == NULL || !was->held)
            EXPECT(h, (m > n) == (x->fence > t->fence) || m == n);
    }
    f->counted = limits_of(h)->rate > 0;
    f->lent = n != h->caller;
    if (f->lent) { /* H7 */
        EXPECT(h, kit_told(&h->k, n));
        EXPECT(h, old != NULL && t->end_us <= old->end_us);
        EXPECT(h, t->end_us == old->end_us ||
                      t->end_us == h->k.now_us + RULES_ACCEPT_US);
    }
    h->events[GRANT]++;
}

static void see_limits(struct history *h, bool granted)
{
    const vow_pool_limits *l = limits_of(h);
    if (!granted)
        return;
    if (l->concurrent > 0) /* H1 */
        EXPECT(h, held_by_list(&h->k) <= l->concurrent);
    if (l->rate > 0) /* H2 */
        EXPECT(h, used_by_list(h, l->window_us, h->k.now_us) <= l->rate);
}

static void see_head(struct history *h, bool limits_changed)
{
    const struct rules_permit *head = head_of(&h->k);
    const struct rules_permit *was = head_of(&h->before);
    if (head == NULL)
        return;
    EXPECT(h, head->end_us > h->k.now_us);
    EXPECT(h, !head_fits(h, head, h->k.now_us)); /* H4 */
    h->events[BLOCKED]++;
    bool fresh = was == NULL || !kit_same(&was->token, &head->token);
    if (number_of(&head->token) != h->caller && limits_of(h)->rate > 0 &&
        (fresh || limits_changed)) {
        EXPECT(h, kit_told(&h->k, number_of(&head->token))); /* H8 */
        h->events[NEW_HEAD]++;
    }
}

static void see_step(struct history *h, bool released, bool limits_changed)
{
    bool granted = false;
    uint64_t fence = h->fence;
    for (size_t i = 0; i < h->before.n; i++)
        if (kit_permit(&h->k, &h->before.permits[i].token) == NULL)
            see_gone(h, &h->before.permits[i], released);
    for (size_t i = 0; i < h->k.n; i++) {
        const struct rules_permit *t = &h->k.permits[i];
        const struct rules_permit *old = kit_permit(&h->before, &t->token);
        bool mine = number_of(&t->token) == h->caller;
        EXPECT(h, old == NULL || !old->held || t->held);
        EXPECT(h, old != NULL || mine);
        if (t->held && (old == NULL || !old->held)) {
            see_grant(h, old, t);
            granted = true;
            fence = t->fence > fence ? t->fence : fence;
        } else if (old != NULL && !mine) {
            EXPECT(h, t->end_us == old->end_us && t->fence == old->fence);
        }
    }
    h->fence = fence;
    see_limits(h, granted);
    see_head(h, limits_changed);
}

/* ---- steps ---------------------------------------------------------------- */

static uint64_t some_token(struct history *h)
{
    if (h->k.n == 0 || pick(h, 12) == 0)
        return 1 + pick(h, h->tokens + 1);
    return number_of(&h->k.permits[pick(h, h->k.n)].token);
}

static void fetch(struct history *h, vow_pool_permit p)
{
    if (p.status == VOW_STATUS_OWNED) {
        h->events[FETCH] += h->facts[h->caller].lent;
        h->facts[h->caller].lent = false;
    }
}

/* H9: on a copy. */
static void check_same_again(struct history *h, const vow_pool_permit *p,
                             uint32_t weight, uint64_t lease_ms, int kind)
{
    static struct pool_kit copy;
    vow_pool_permit again = {.status = 0};
    kit_copy(&copy, &h->k);
    int rc = kind == 0
                 ? kit_acquire(&copy, h->caller, weight, lease_ms, 0, &again)
                 : kit_renew(&copy, h->caller, lease_ms, kind == 2, &again);
    EXPECT(h, rc == 0 && again.status == p->status && again.fence == p->fence &&
                  again.ahead == p->ahead && again.again_us == p->again_us);
    EXPECT(h, copy.n == h->k.n && copy.n_told == 0);
    EXPECT(h, copy.pool.held == h->k.pool.held &&
                  copy.pool.waiting == h->k.pool.waiting &&
                  copy.pool.open == h->k.pool.open &&
                  copy.pool.rate.n == h->k.pool.rate.n);
}

static uint64_t pick_lease(struct history *h)
{
    return pick(h, 2) == 0 ? LONG_MS : 1 + pick(h, SHORT_MS);
}

static void step_acquire(struct history *h)
{
    const vow_pool_limits *l = limits_of(h);
    vow_pool_permit p;
    uint32_t flags = pick(h, 4) == 0 ? VOW_PERMIT_TRY : 0;
    uint32_t most = l->rate > 256 ? l->rate / 8 : 4;
    bool again = h->k.n > 0 && pick(h, 3) == 0;
    h->caller =
        again ? number_of(&h->k.permits[pick(h, h->k.n)].token) : ++h->tokens;
    CHECK(h->tokens < TOKENS_MAX);
    uint32_t weight = 1 + (uint32_t)pick(h, most);
    uint64_t lease_ms = pick_lease(h);
    vow_token token = kit_token(h->caller);
    const struct rules_permit *old = kit_permit(&h->k, &token);
    bool known = old != NULL && old->end_us > h->k.now_us;
    if (old != NULL && !known) { /* its order would be that of a new request */
        h->caller = ++h->tokens;
        token = kit_token(h->caller);
    }
    int rc = kit_acquire(&h->k, h->caller, weight, lease_ms, flags, &p);
    const struct rules_permit *t = kit_permit(&h->k, &token);
    EXPECT(h, rc == 0 || rc == VOW_EINVAL);
    EXPECT(h, (t != NULL) == (rc == 0 && p.status != VOW_STATUS_BUSY));
    if (!known && (flags & VOW_PERMIT_TRY) != 0) /* H6 */
        EXPECT(h, t == NULL || t->held);
    if (t != NULL)
        EXPECT(h, t->end_us == h->k.now_us + lease_ms * 1000 &&
                      t->held == (p.status == VOW_STATUS_OWNED));
    see_step(h, rc != 0, false);
    if (rc == 0 && p.status != VOW_STATUS_BUSY) {
        fetch(h, p);
        check_same_again(h, &p, weight, lease_ms, 0);
    }
}

static void step_release(struct history *h)
{
    vow_pool_permit p;
    h->caller = some_token(h);
    vow_token token = kit_token(h->caller);
    EXPECT(h, kit_release(&h->k, h->caller, &p) == 0);
    const struct rules_permit *old = kit_permit(&h->before, &token);
    bool valid = old != NULL && old->end_us > h->k.now_us;
    EXPECT(h, p.status == (!valid      ? VOW_STATUS_NONE
                           : old->held ? VOW_STATUS_OWNED
                                       : VOW_STATUS_WAITING));
    see_step(h, true, false);
}

static void step_renew(struct history *h)
{
    vow_pool_permit p;
    h->caller = some_token(h);
    vow_token token = kit_token(h->caller);
    bool starts = pick(h, 2) == 0;
    uint64_t lease_ms = pick_lease(h);
    const struct rules_permit *old = kit_permit(&h->before, &token);
    bool valid = old != NULL && old->end_us > h->k.now_us;
    EXPECT(h, kit_renew(&h->k, h->caller, lease_ms, starts, &p) == 0);
    if (valid && old->held && starts)
        list_start(h, old);
    see_step(h, true, false);
    fetch(h, p);
    if (p.status != VOW_STATUS_NONE && !(starts && !old->held))
        check_same_again(h, &p, 0, lease_ms, starts ? 2 : 1);
}

static void step_limit(struct history *h)
{
    vow_pool_limits l = *limits_of(h);
    bool change = h->limits_change && pick(h, 2) == 0;
    h->caller = 0;
    l.concurrent = pick(h, 5) == 0 ? 0 : 2 + (uint32_t)pick(h, 7);
    if (l.rate > 0 && l.rate <= 256)
        l.rate = 2 + (uint32_t)pick(h, 9);
    EXPECT(h, vow__rules_limit(&h->k.pool, &h->k.storage, change ? &l : NULL,
                               kit_step(&h->k)) == 0);
    see_step(h, false, change);
}

/* To the end of a lease or of a window, and a little more or less. */
static void jump(struct history *h)
{
    uint64_t to = h->k.now_us;
    uint64_t x = pick(h, 10);
    if (x < 3)
        to += pick(h, 200000);
    else if (x < 6 && h->k.n > 0)
        to = h->k.permits[pick(h, h->k.n)].end_us - 1 + pick(h, 3);
    else if (x < 9 && h->n_starts > 0)
        to = h->starts[h->n_starts - 1 - pick(h, h->n_starts) / 4].at_us +
             limits_of(h)->window_us + pick(h, 3);
    if (to > h->k.now_us && to < h->k.now_us + 40000000)
        h->k.now_us = to;
}

/* H2, over the whole history: starts i to j are of too much weight, so they are
 * more than a window apart. */
static void check_windows(const struct history *h)
{
    const vow_pool_limits *l = limits_of(h);
    for (size_t i = 0; i < h->n_starts && l->rate > 0; i++) {
        uint64_t sum = 0;
        for (size_t j = i; j < h->n_starts && sum <= l->rate; j++) {
            sum += h->starts[j].weight;
            EXPECT(h,
                   sum <= l->rate ||
                       h->starts[j].at_us - h->starts[i].at_us > l->window_us);
        }
    }
}

static void run_history(uint64_t seed, uint64_t *events)
{
    static struct history h;
    static const uint32_t rates[] = {0, 5, 9, 2000};
    h = (struct history){.seed = seed, .random = seed};
    h.events = events;
    vow_pool_limits l = {.rate = rates[pick(&h, 4)]};
    l.window_us = l.rate > 0 ? 200000 + pick(&h, 3) * 128000 : 0;
    if (l.rate <= 256 && pick(&h, 4) > 0)
        l.concurrent = 4 + (uint32_t)pick(&h, 5);
    h.limits_change = pick(&h, 2) == 0;
    kit_open(&h.k, l);
    h.k.now_us = 1000000;
    h.k.number = pick(&h, 2) * 1000;
    for (h.step = 0; h.step < STEPS && h.k.n < KIT_PERMITS - 2; h.step++) {
        uint64_t x = pick(&h, 20);
        if (pick(&h, 3) == 0)
            jump(&h);
        kit_copy(&h.before, &h.k);
        if (x < 10)
            step_acquire(&h);
        else if (x < 14)
            step_release(&h);
        else if (x < 19)
            step_renew(&h);
        else
            step_limit(&h);
    }
    if (!h.limits_change)
        check_windows(&h);
}

TEST(rules_pool_history, all_properties_hold)
{
    uint64_t events[EVENTS] = {0};
    uint64_t seed = test_seed();
    for (uint64_t i = 0; i < HISTORIES; i++)
        run_history(seed + i, events);
    for (int i = 0; i < EVENTS; i++)
        if (events[i] < EVENT_MIN)
            FAIL("event %d came only %ju times", i, (uintmax_t)events[i]);
}

/* ---- waiters that ask when told ------------------------------------------ */

enum { WAITERS = 24 };

struct waiter {
    uint32_t weight;
    uint64_t ask_us;     /* next acquire */
    uint64_t start_us;   /* granted: when the start is told; 0: told */
    uint64_t release_us; /* granted: when the permit is released */
    bool held, gone;
};

struct crowd {
    struct history h;
    struct waiter at[WAITERS + 1];
    uint64_t last_us; /* of the last event */
};

static void waiter_answer(struct crowd *c, uint64_t n, const vow_pool_permit *p)
{
    struct waiter *w = &c->at[n];
    struct history *h = &c->h;
    if (p->status == VOW_STATUS_WAITING) {
        EXPECT(h, p->again_us > 0);
        w->ask_us = h->k.now_us + p->again_us;
        return;
    }
    EXPECT(h, p->status == VOW_STATUS_OWNED);
    if (w->held)
        return;
    w->held = true;
    w->ask_us = UINT64_MAX;
    w->start_us = h->k.now_us + pick(h, 2) * (1 + pick(h, 90000));
    w->release_us = w->start_us + pick(h, 2) * pick(h, 400000);
}

static void waiter_ask(struct crowd *c, uint64_t n)
{
    vow_pool_permit p;
    EXPECT(&c->h, kit_acquire(&c->h.k, n, c->at[n].weight, 1000 * LONG_MS, 0,
                              &p) == 0);
    waiter_answer(c, n, &p);
}

static uint64_t waiter_due(const struct waiter *w)
{
    if (w->gone)
        return UINT64_MAX;
    if (!w->held)
        return w->ask_us;
    return w->start_us != 0 ? w->start_us : w->release_us;
}

static void waiter_act(struct crowd *c, uint64_t n)
{
    struct waiter *w = &c->at[n];
    vow_pool_permit p;
    bool leaves = !w->held && pick(&c->h, 30) == 0;
    if (w->held && w->start_us != 0) {
        vow_token t = kit_token(n);
        EXPECT(&c->h, kit_renew(&c->h.k, n, 1000 * LONG_MS, true, &p) == 0);
        list_start(&c->h, kit_permit(&c->h.k, &t));
        w->start_us = 0;
    } else if (w->held || leaves) {
        EXPECT(&c->h, kit_release(&c->h.k, n, &p) == 0);
        w->gone = true;
    } else {
        waiter_ask(c, n);
    }
}

/* All told waiters ask, at once. A step that tells others lists them anew. */
static void waiters_told(struct crowd *c)
{
    struct pool_kit *k = &c->h.k;
    bool told[WAITERS + 1] = {false};
    for (uint64_t n = 1; n <= WAITERS; n++) {
        for (size_t i = 0; i < k->n_told; i++)
            told[number_of(&k->told[i])] = true;
        k->n_told = 0;
        if (!told[n])
            continue;
        told[n] = false;
        waiter_ask(c, n);
        n = 0;
    }
}

static void see_counted(struct crowd *c)
{
    for (size_t i = 0; i < c->h.k.n; i++) {
        const struct rules_permit *t = &c->h.k.permits[i];
        c->h.facts[number_of(&t->token)].counted = t->open;
    }
}

static void run_crowd(uint64_t seed)
{
    static struct crowd c;
    static const uint32_t rates[] = {0, 3, 7};
    c = (struct crowd){.h = {.seed = seed, .random = seed}};
    struct history *h = &c.h;
    vow_pool_limits l = {.rate = rates[pick(h, 3)], .window_us = 300000};
    l.concurrent = l.rate == 0 || pick(h, 2) == 0 ? 3 : 0;
    kit_open(&h->k, l);
    h->k.now_us = 1000000;
    for (uint64_t n = 1; n <= WAITERS; n++) {
        c.at[n].weight = 1 + (uint32_t)pick(h, 3);
        c.at[n].ask_us = h->k.now_us + pick(h, 600000);
    }
    for (h->step = 0;; h->step++) {
        uint64_t due = UINT64_MAX;
        uint64_t who = 0;
        for (uint64_t n = 1; n <= WAITERS; n++)
            if (waiter_due(&c.at[n]) < due) {
                due = waiter_due(&c.at[n]);
                who = n;
            }
        if (who == 0)
            break;
        EXPECT(h, h->step < 20000 && due < UINT64_C(4000000000));
        const struct rules_permit *head = NULL;
        for (size_t i = 0; i < h->k.n; i++)
            if (!h->k.permits[i].held &&
                (head == NULL || h->k.permits[i].order < head->order))
                head = &h->k.permits[i];
        see_counted(&c);
        if (head != NULL && due > c.last_us + 1) /* H10 */
            EXPECT(h, !head_fits(h, head, due - 1));
        h->k.now_us = due > h->k.now_us ? due : h->k.now_us;
        c.last_us = h->k.now_us;
        waiter_act(&c, who);
        waiters_told(&c);
    }
    CHECK_UINT_EQ(h->k.n, 0);
}

TEST(rules_pool_history, waiters_that_ask_when_told_are_never_late)
{
    uint64_t seed = test_seed();
    for (uint64_t i = 0; i < HISTORIES; i++)
        run_crowd(seed + i);
}
