/* SPDX-License-Identifier: MIT */
/* sim_plan.h - what goes wrong in a schedule, drawn from its seed.
 *
 * Every schedule has a time of faults, with crashes, stops and cuts at random
 * moments and a network that is bad in its own way, and then a time in which
 * all is well: whoever waits must be settled by its end.
 */
#ifndef TEST_SIM_PLAN_H
#define TEST_SIM_PLAN_H

#include "sim.h"

enum { PLAN_DEEDS = 24 };

/* What a schedule has; each test takes some. */
enum {
    PLAN_LOSS = 1,
    PLAN_TWICE = 2,
    PLAN_STOPS = 4,
    PLAN_CUTS = 8,
    PLAN_CRASHES = 16,
    PLAN_ALL = 31,
    PLAN_STRAGGLE = 32 /* what comes twice comes late the second time */
};

struct sim_plan_deed {
    struct sim_event event;
    uint32_t kind;
};

struct sim_plan {
    struct sim *sim;
    uint32_t faults;                /* PLAN_... that this schedule has */
    uint64_t lease_ms;              /* to measure stops and cuts by */
    uint64_t healed_ns;             /* when all is well */
    void (*restart)(struct sim *s); /* another process begins; may be NULL */
    uint32_t n_deeds;
    struct sim_plan_deed deeds[PLAN_DEEDS];
};

static inline struct sim_node *sim_plan_victim(struct sim *s)
{
    struct sim_node *n = &s->nodes[sim_draw(s, s->n_nodes)];
    return n->dead || n->closed ? NULL : n;
}

static inline void sim_plan_stop(struct sim *s, struct sim_event *e)
{
    struct sim_plan *p = s->user;
    struct sim_node *n = sim_plan_victim(s);
    (void)e;
    if (n != NULL)
        sim_stop(n, sim_draw(s, 3 * p->lease_ms) * SIM_MS);
}

static inline void sim_plan_cut(struct sim *s, struct sim_event *e)
{
    struct sim_plan *p = s->user;
    struct sim_node *n = sim_plan_victim(s);
    (void)e;
    if (n != NULL)
        sim_cut(n, sim_draw(s, 3 * p->lease_ms) * SIM_MS);
}

static inline void sim_plan_crash(struct sim *s, struct sim_event *e)
{
    struct sim_plan *p = s->user;
    struct sim_node *n = sim_plan_victim(s);
    uint32_t alive = 0;
    (void)e;
    for (uint32_t i = 0; i < s->n_nodes; i++)
        alive += !s->nodes[i].dead;
    if (n == NULL || alive < 2)
        return;
    sim_crash(n, sim_draw(s, 3) == 0);
    if (p->restart != NULL && s->n_nodes < SIM_NODES && sim_draw(s, 2) == 0)
        p->restart(s);
}

static inline void sim_plan_heal(struct sim *s, struct sim_event *e)
{
    (void)e;
    sim_heal(s);
}

/* The plan is the simulation's user; its own is behind it. */
static inline void sim_plan_make(struct sim_plan *p, struct sim *s,
                                 uint32_t features, uint64_t lease_ms)
{
    static void (*const DEEDS[])(struct sim *, struct sim_event *) = {
        sim_plan_stop, sim_plan_cut, sim_plan_crash};
    uint64_t span_ns = sim_between(s, 1, 6) * lease_ms * SIM_MS;
    p->sim = s;
    p->lease_ms = lease_ms;
    p->faults = features & (uint32_t)sim_draw(s, PLAN_ALL + 1);
    s->prompt = (p->faults & ~(uint32_t)PLAN_CRASHES) == 0;
    p->healed_ns = s->now_ns + span_ns;
    p->n_deeds = 0;
    s->user = p;
    s->faults.delay_us = 21 + (uint32_t)sim_draw(s, 1 << sim_between(s, 5, 15));
    if ((p->faults & PLAN_LOSS) != 0) {
        uint32_t most = 1u << sim_between(s, 3, 9);
        s->faults.lose_request = (uint32_t)sim_draw(s, most);
        s->faults.lose_reply = (uint32_t)sim_draw(s, most);
        s->faults.lose_wake = (uint32_t)sim_draw(s, 2 * most);
        s->faults.refuse = (uint32_t)sim_draw(s, most / 2);
        s->faults.slow = (uint32_t)sim_draw(s, most / 2);
    }
    if ((p->faults & PLAN_TWICE) != 0)
        s->faults.twice = (uint32_t)sim_draw(s, 300);
    s->faults.straggle = (features & PLAN_STRAGGLE) != 0;
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t n = sim_draw(s, 6);
        if ((p->faults & ((uint32_t)PLAN_STOPS << i)) == 0)
            continue;
        for (; n > 0; n--)
            sim_at(s, &p->deeds[p->n_deeds++].event,
                   s->now_ns + sim_draw(s, span_ns), DEEDS[i]);
    }
    sim_at(s, &p->deeds[p->n_deeds++].event, p->healed_ns, sim_plan_heal);
}

#endif
