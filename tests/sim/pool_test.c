/* SPDX-License-Identifier: MIT */
/* pool_test.c - pools of the authority itself, in several processes, under all
 * that can go wrong.
 *
 * Users come at random times, some leave, each holds its place for a while. The
 * store is watched as everywhere (sim_places.c). Here is looked at what the
 * library does with it:
 *   every user who stays is answered in the end,
 *   who is told of a loss is told before the store gives the place to another,
 *   so that what is really in use is never above the limit,
 *   no window has more starts than the rate allows, however long the answer of
 *   a grant was under way,
 *   fences rise from place to place,
 *   and nothing is held when all have gone.
 */
#include "sim_plan.h"

#include <string.h>

enum { LEASE_MS = 1000, USERS = 20 };

struct scene;

struct user {
    struct sim_event comes, leaves;
    struct scene *scene;
    struct sim_node *node;
    vow_future *future;
    vow_watch watch, lost;
    vow_grant *grant;
    vow_call end;
    uint32_t number, weight;
    bool keyed, tries;
    bool begun, gone, settled, holds;
    uint64_t started_ns; /* by the time of all; 0: it has not */
    int code;
};

struct scene {
    struct sim_plan plan;
    struct sim sim;
    vow_authority *at[SIM_NODES];
    vow_pool *pools[SIM_NODES];
    vow_pool_limits limits;
    struct user users[USERS];
    uint32_t n_users;
    uint64_t hold_ms;
};

static void on_settled(vow_future *f, void *user);
static void check_starts(struct scene *t, bool keyed);
static void on_lost(vow_future *f, void *user);
static void release(void *user);

/* ---- users -------------------------------------------------------------- */

static void come(struct sim *s, struct sim_event *e)
{
    struct user *u = VOW__OUTER(e, struct user, comes);
    struct scene *t = u->scene;
    struct sim_node *n = &s->nodes[sim_draw(s, s->n_nodes)];
    if (!sim_up(n))
        return;
    vow_pool *p = t->pools[n->number];
    const char *key = u->keyed ? "key" : NULL;
    u->node = n;
    u->begun = true;
    sim_node_clock(n);
    sim_say(s, n, "user %u comes%s", u->number, u->keyed ? ", with a key" : "");
    u->future = u->tries ? vow_pool_try(p, key, u->weight)
                         : vow_pool_acquire(p, key, u->weight);
    vow_watch_start(&u->watch, u->future, on_settled, u);
    sim_node_run(n);
}

static void on_settled(vow_future *f, void *user)
{
    struct user *u = user;
    struct sim *s = u->node->sim;
    u->settled = true;
    u->code = vow_error_code(vow_error_of(f));
    if (u->code == 0)
        u->grant = vow_grant_take(vow_get(f));
    sim_say(s, u->node, "user %u: %s, fence %llu", u->number,
            u->code == 0 ? "has it" : vow_error_name(u->code),
            u->grant == NULL ? 0 : (unsigned long long)u->grant->fence);
    if (u->grant == NULL)
        return;
    SIM_CHECK(s, u->grant->fence > 0);
    u->holds = true;
    u->started_ns = s->now_ns;
    check_starts(u->scene, u->keyed);
    vow_watch_start(&u->lost, u->grant->lost, on_lost, u);
    vow_call_at(&u->end, u->node->loop,
                vow_loop_due_ns(u->node->loop, sim_draw(s, u->scene->hold_ms)),
                release, u);
}

static void on_lost(vow_future *f, void *user)
{
    struct user *u = user;
    (void)vow_error_of(f);
    if (u->holds)
        sim_say(u->node->sim, u->node, "user %u has lost it", u->number);
    u->holds = false;
}

static void release(void *user)
{
    struct user *u = user;
    vow_grant *g = u->grant;
    sim_say(u->node->sim, u->node, "user %u gives it back", u->number);
    u->holds = false;
    u->grant = NULL;
    (void)vow_watch_stop(&u->lost);
    vow_grant_release(g);
}

static void leave(struct sim *s, struct sim_event *e)
{
    struct user *u = VOW__OUTER(e, struct user, leaves);
    if (!u->begun || u->settled || !sim_up(u->node))
        return;
    sim_say(s, u->node, "user %u leaves", u->number);
    u->gone = true;
    sim_node_clock(u->node);
    (void)vow_cancel(u->future, NULL);
    sim_node_run(u->node);
}

/* ---- what is watched ---------------------------------------------------- */

/* What is in use, as far as its users can know: a process that is stopped, or
 * whose timers are due, uses nothing. */
static void check_use(struct scene *t, bool keyed)
{
    struct sim *s = &t->sim;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t->n_users; i++) {
        const struct user *u = &t->users[i];
        if (u->begun && u->holds && u->keyed == keyed && sim_up(u->node) &&
            !sim_node_late(u->node))
            sum += u->weight;
    }
    if (t->limits.concurrent > 0 && sum > t->limits.concurrent)
        sim_fail(TEST_HERE, s, "%llu in use, at most %u",
                 (unsigned long long)sum, t->limits.concurrent);
}

/* Those of the window that ends now, both ends included. */
static void check_starts(struct scene *t, bool keyed)
{
    struct sim *s = &t->sim;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t->n_users; i++) {
        const struct user *u = &t->users[i];
        if (u->started_ns > 0 && u->keyed == keyed &&
            u->started_ns + t->limits.window_us * 1000 >= s->now_ns)
            sum += u->weight;
    }
    if (t->limits.rate > 0 && sum > t->limits.rate)
        sim_fail(TEST_HERE, s, "%llu have started within %llu us, at most %u",
                 (unsigned long long)sum,
                 (unsigned long long)t->limits.window_us, t->limits.rate);
}

static void on_grant(struct sim *s)
{
    struct scene *t = VOW__OUTER(s, struct scene, sim);
    check_use(t, false);
    check_use(t, true);
}

static void check_user(struct scene *t, const struct user *u)
{
    struct sim *s = &t->sim;
    if (!u->settled)
        sim_fail(TEST_HERE, s, "p%u: user %u is not answered", u->node->number,
                 u->number);
    bool down = u->code == VOW_ESTORE || u->code == VOW_EUNSURE;
    if (u->code == 0 || (u->code == VOW_EBUSY && u->tries) ||
        (u->code == VOW_ECANCELED && u->gone) || (down && t->plan.faults != 0))
        return;
    sim_fail(TEST_HERE, s, "p%u: user %u got %s", u->node->number, u->number,
             vow_error_name(u->code));
}

/* ---- a schedule --------------------------------------------------------- */

static void begin(struct sim *s)
{
    struct scene *t = VOW__OUTER(s, struct scene, sim);
    struct sim_node *n = sim_node_new(s);
    n->instant = sim_draw(s, 8) == 0;
    VOW_AUTO(vow_future)
    f = vow_authority_open(n->loop, NULL,
                           VOW_AUTHORITY(.store = &n->store,
                                         .flags = VOW_AUTHORITY_HERE,
                                         .lease_ms = LEASE_MS));
    sim_node_run(n);
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    t->at[n->number] = vow_authority_ref(vow_as_ptr(vow_get(f)));
    CHECK_INT_EQ(vow_pool_open(t->at[n->number], "pool",
                               VOW_POOL(.limits = t->limits),
                               &t->pools[n->number]),
                 0);
}

static void draw(struct scene *t)
{
    struct sim *s = &t->sim;
    t->limits.concurrent = (uint32_t)sim_draw(s, 5);
    if (t->limits.concurrent == 0 || sim_draw(s, 2) == 0) {
        t->limits.rate = (uint32_t)sim_between(s, 1, 6);
        t->limits.window_us = sim_between(s, 1, 2000) * 1000;
    }
    t->hold_ms = sim_between(s, 1, 3 * LEASE_MS);
}

static void draw_user(struct scene *t, struct user *u)
{
    struct sim *s = &t->sim;
    uint64_t span = t->plan.healed_ns - s->now_ns;
    uint32_t most = t->limits.concurrent;
    if (most == 0 || (t->limits.rate > 0 && t->limits.rate < most))
        most = t->limits.rate;
    u->weight = 1 + (uint32_t)sim_draw(s, most);
    u->keyed = sim_draw(s, 3) == 0;
    u->tries = sim_draw(s, 8) == 0;
    sim_at(s, &u->comes, s->now_ns + sim_draw(s, span), come);
    if (sim_draw(s, 8) == 0)
        sim_at(s, &u->leaves, s->now_ns + sim_draw(s, 2 * span), leave);
}

static void forget(struct user *u)
{
    (void)vow_call_stop(&u->end);
    (void)vow_watch_stop(&u->watch);
    (void)vow_watch_stop(&u->lost);
    vow_grant_release(u->grant);
    vow_future_unref(u->future);
}

static void close_all(struct scene *t)
{
    struct sim *s = &t->sim;
    for (uint32_t i = 0; i < t->n_users; i++)
        forget(&t->users[i]);
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        vow_pool_unref(t->pools[i]);
        vow_authority_unref(t->at[i]);
        if (s->nodes[i].dead)
            (void)vow_loop_run(s->nodes[i].loop);
    }
    sim_run(s, s->now_ns + 10 * SIM_S);
    for (uint32_t i = 0; i < s->n_nodes; i++)
        SIM_CHECK(s, s->nodes[i].closed);
}

static void schedule(uint64_t seed)
{
    static struct scene all;
    struct scene *t = &all;
    struct sim *s = &t->sim;
    memset(t, 0, sizeof(*t));
    sim_open(s, seed);
    draw(t);
    sim_plan_make(&t->plan, s, PLAN_ALL, LEASE_MS);
    t->plan.restart = begin;
    s->on_grant = on_grant;
    for (uint64_t n = sim_between(s, 2, 4); n > 0; n--)
        begin(s);
    t->n_users = (uint32_t)sim_between(s, 2, USERS);
    for (uint32_t i = 0; i < t->n_users; i++) {
        t->users[i].scene = t;
        t->users[i].number = i;
        draw_user(t, &t->users[i]);
    }
    sim_run(s, t->plan.healed_ns);
    sim_run(s, s->now_ns + 200 * (uint64_t)LEASE_MS * SIM_MS);
    for (uint32_t i = 0; i < t->n_users; i++)
        if (t->users[i].begun && !t->users[i].node->dead)
            check_user(t, &t->users[i]);
    close_all(t);
    sim_close(s);
}

TEST(sim_pool, serves_all_within_the_limits_whatever_goes_wrong)
{
    sim_many(4000, schedule);
}
