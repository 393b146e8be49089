/* SPDX-License-Identifier: MIT */
/* names_test.c - named work on bare store steps, by the shortest worker there
 * is, under all that can go wrong.
 *
 * A worker claims a name; works, pulses and commits if it is its own; else
 * waits for a wake-up or its timer and claims again; repeats with the same
 * token what it is not sure of; stops when its lease may be over. That is all
 * of the rules that a client of a store has to keep. The simulation compares
 * what the store says with what it promises (sim_names.c); here is looked at
 * what becomes of the workers: each is settled in the end, with a result that
 * was accepted.
 */
#include "sim_plan.h"

#include <string.h>

enum { LEASE_MS = 1000, ASKS = 24 };

struct worker;

/* One who asks for a name. */
struct ask {
    struct sim_event comes;
    struct worker *worker;
    struct sim_node *node;
    struct sim_name *name;
    vow_token token, pulsed;
    uint64_t epoch, first;
    vow_call timer, work, pulse;
    uint64_t sent_ns;  /* the claim or pulse in flight */
    uint64_t valid_ns; /* on its own clock; 0: it owns nothing */
    vow_bytes *result; /* of its work, while it is committed */
    uint32_t steps;    /* claims and commits in flight */
    bool begun, owns, waits, settled, doubted, mine;
    bool pulsing;
    vow_bytes *got;
    uint64_t got_epoch;
};

struct worker {
    struct sim_plan plan;
    struct sim sim;
    vow_name names[2];
    uint32_t n_names;
    uint32_t mode;
    uint64_t ttl_ms;
    uint32_t takeovers;
    bool forces; /* some of them want a result of their own */
    struct ask asks[ASKS];
    uint32_t n_asks;
    uint64_t tokens;
};

static void claim(struct ask *a);
static void on_claimed(int code, const vow_record *r, size_t n, void *ask);
static void obey(struct ask *a, const vow_record *r);
static void claim_again(void *ask);
static void pause_then(struct ask *a, vow_call_fn fn);
static void trust(struct ask *a);
static void pulse(void *ask);
static void on_pulsed(int code, const vow_record *r, size_t n, void *ask);
static void work_done(void *ask);
static void commit(void *ask);
static void on_committed(int code, const vow_record *r, size_t n, void *ask);
static void lost(struct ask *a);
static void new_token(struct ask *a);
static void take(struct ask *a, const vow_record *r);

/* ---- a worker ----------------------------------------------------------- */

static void new_token(struct ask *a)
{
    uint64_t number = ++a->worker->tokens * UINT64_C(0x9E3779B97F4A7C15);
    memset(&a->token, 0, sizeof(a->token));
    memcpy(a->token.bytes, &number, sizeof(number));
    a->token.bytes[15] = 1; /* never that of nobody */
}

static void claim(struct ask *a)
{
    struct worker *w = a->worker;
    vow_claim_request ask = {.name = a->name->name,
                             .token = a->token,
                             .mode = w->mode,
                             .lease_ms = LEASE_MS,
                             .takeovers = w->takeovers,
                             .waited = a->first};
    if (w->forces && a->token.bytes[0] % 4 == 0 && !a->waits)
        ask.flags = VOW_CLAIM_FORCE;
    (void)vow_call_stop(&a->timer);
    a->waits = false;
    a->sent_ns = vow_loop_now_ns(a->node->loop);
    a->steps++;
    a->node->store.ops->claim(&a->node->store, &ask, on_claimed, a);
}

static void on_claimed(int code, const vow_record *r, size_t n, void *ask)
{
    struct ask *a = ask;
    (void)n;
    a->steps--;
    if (code == VOW_ECLOSED)
        return;
    if (code != 0)
        pause_then(a, claim_again);
    else
        obey(a, r);
}

static void obey(struct ask *a, const vow_record *r)
{
    struct sim *s = a->node->sim;
    if (r->status == VOW_STATUS_SETTLED) {
        take(a, r);
    } else if (r->status == VOW_STATUS_DOUBT) {
        a->doubted = true;
    } else if (r->status == VOW_STATUS_WAITING) {
        uint64_t ms = r->left_ms + vow_loop_random(a->node->loop) % 100 + 1;
        a->waits = true;
        a->first = r->first;
        vow_call_at(&a->timer, a->node->loop,
                    vow_loop_due_ns(a->node->loop,
                                    ms < s->recheck_ms ? ms : s->recheck_ms),
                    claim_again, a);
    } else {
        SIM_CHECK(s, r->status == VOW_STATUS_OWNED);
        a->owns = true;
        a->epoch = r->epoch;
        a->first = r->first;
        trust(a);
        vow_call_at(
            &a->work, a->node->loop,
            vow_loop_due_ns(a->node->loop,
                            vow_loop_random(a->node->loop) % (2 * LEASE_MS)),
            work_done, a);
        vow_call_at(&a->pulse, a->node->loop,
                    vow_loop_due_ns(a->node->loop, LEASE_MS / 3), pulse, a);
    }
}

static void claim_again(void *ask)
{
    struct ask *a = ask;
    if (!a->settled && a->steps == 0)
        claim(a);
}

static void pause_then(struct ask *a, vow_call_fn fn)
{
    vow_call_at(&a->timer, a->node->loop,
                vow_loop_due_ns(a->node->loop,
                                1 + vow_loop_random(a->node->loop) % 100),
                fn, a);
}

/* From when it was sent, less what the clock may be slow by. */
static void trust(struct ask *a)
{
    a->valid_ns =
        a->sent_ns + (uint64_t)(LEASE_MS - LEASE_MS / 100 - 2) * SIM_MS;
}

static void pulse(void *ask)
{
    struct ask *a = ask;
    uint64_t now = vow_loop_now_ns(a->node->loop);
    if (!a->owns)
        return;
    if (a->result != NULL)
        return; /* it would make a record again that its commit has ended */
    if (now >= a->valid_ns) {
        lost(a);
        return;
    }
    vow_call_at(&a->pulse, a->node->loop,
                vow_loop_due_ns(a->node->loop, LEASE_MS / 3), pulse, a);
    if (a->pulsing)
        return;
    vow_hold hold = {
        .name = a->name->name, .token = a->token, .epoch = a->epoch};
    a->pulsing = true;
    a->pulsed = a->token;
    a->sent_ns = now;
    a->node->store.ops->pulse(&a->node->store, &hold, 1, LEASE_MS, on_pulsed,
                              a);
}

static void on_pulsed(int code, const vow_record *r, size_t n, void *ask)
{
    struct ask *a = ask;
    (void)n;
    a->pulsing = false;
    if (code != 0 || !a->owns || a->result != NULL ||
        memcmp(&a->pulsed, &a->token, sizeof(a->token)) != 0)
        return;
    if (r->status == VOW_STATUS_OWNED || r->status == VOW_STATUS_CANCELED) {
        a->epoch = r->epoch;
        trust(a);
        return;
    }
    lost(a);
}

static void work_done(void *ask)
{
    struct ask *a = ask;
    unsigned char text[24];
    if (!a->owns)
        return;
    memcpy(text, a->token.bytes, 16);
    memcpy(text + 16, &a->epoch, 8);
    CHECK_INT_EQ(vow_bytes_new(a->node->loop, text, 24, &a->result), 0);
    commit(a);
}

static void commit(void *ask)
{
    struct ask *a = ask;
    const struct worker *w = a->worker;
    vow_commit_request c = {
        .hold = {.name = a->name->name, .token = a->token, .epoch = a->epoch},
        .outcome = VOW_OUTCOME_DONE,
        .flags = w->mode == VOW_SHARED ? 0 : VOW_COMMIT_STRICT,
        .value = a->result,
        .ttl_ms = w->ttl_ms};
    if (a->token.bytes[1] % 16 == 0)
        c.outcome = VOW_OUTCOME_ABANDONED;
    a->steps++;
    a->node->store.ops->commit(&a->node->store, &c, on_committed, a);
}

static void on_committed(int code, const vow_record *r, size_t n, void *ask)
{
    struct ask *a = ask;
    (void)n;
    a->steps--;
    if (code == VOW_ECLOSED)
        return;
    if (code != 0) {
        pause_then(a, commit);
        return;
    }
    if (r->status == VOW_STATUS_OWNED && a->token.bytes[1] % 16 != 0) {
        a->owns = false;
        a->settled = true;
        a->mine = true;
        a->got = a->result;
        a->got_epoch = a->epoch;
        a->result = NULL;
        sim_say(a->node->sim, a->node, "its result stands");
    } else if (r->status == VOW_STATUS_SETTLED) {
        take(a, r);
    } else {
        lost(a);
    }
}

/* It is another's, or nobody's: as one who waits, and with a new token. */
static void lost(struct ask *a)
{
    sim_say(a->node->sim, a->node, "has lost epoch %llu",
            (unsigned long long)a->epoch);
    a->owns = false;
    a->result = vow_bytes_unref(a->result);
    (void)vow_call_stop(&a->work);
    (void)vow_call_stop(&a->pulse);
    new_token(a);
    pause_then(a, claim_again);
}

static void take(struct ask *a, const vow_record *r)
{
    a->owns = false;
    a->settled = true;
    a->got = vow_bytes_ref(r->value);
    a->got_epoch = r->epoch;
    a->result = vow_bytes_unref(a->result);
    sim_say(a->node->sim, a->node, "is settled, epoch %llu",
            (unsigned long long)r->epoch);
}

/* ---- events ------------------------------------------------------------- */

static void on_record(const vow_record *r, void *node)
{
    struct sim_node *n = node;
    struct worker *w = VOW__OUTER(n->sim, struct worker, sim);
    for (uint32_t i = 0; i < w->n_asks; i++) {
        struct ask *a = &w->asks[i];
        if (a->node != n || !a->waits || a->steps > 0 || a->settled ||
            !vow_name_equal(&a->name->name, &r->name))
            continue;
        a->waits = false;
        (void)vow_call_stop(&a->timer);
        if (r->status == VOW_STATUS_SETTLED)
            take(a, r);
        else
            claim(a);
    }
}

static void on_hint(const vow_name *name, void *node)
{
    (void)name;
    (void)node;
}

static void begin(struct sim *s)
{
    struct sim_node *n = sim_node_new(s);
    const vow_store_events events = {.on_record = on_record,
                                     .on_cancel = on_hint,
                                     .on_chunks = on_hint,
                                     .user = n};
    n->instant = sim_draw(s, 8) == 0;
    n->store.ops->listen(&n->store, &events);
}

/* It comes: at a process that lives, and asks for this name only once. */
static void come(struct sim *s, struct sim_event *e)
{
    struct ask *a = VOW__OUTER(e, struct ask, comes);
    struct worker *w = a->worker;
    struct sim_node *n = &s->nodes[sim_draw(s, s->n_nodes)];
    const vow_name *name = &w->names[sim_draw(s, w->n_names)];
    if (!sim_up(n))
        return;
    for (uint32_t i = 0; i < w->n_asks; i++)
        if (w->asks[i].node == n && !w->asks[i].settled &&
            !w->asks[i].doubted && vow_name_equal(&w->asks[i].name->name, name))
            return;
    a->node = n;
    a->name = sim_name_of(s, name);
    a->begun = true;
    new_token(a);
    sim_node_clock(n);
    claim(a);
    sim_node_run(n);
}

/* Nobody but the one who was just given the name may think he has it. */
static void alone(struct sim *s, struct sim_node *n, const vow_name *name)
{
    struct worker *w = VOW__OUTER(s, struct worker, sim);
    for (uint32_t i = 0; i < w->n_asks; i++) {
        const struct ask *a = &w->asks[i];
        if (!a->begun || !a->owns || a->result != NULL || a->node->dead ||
            a->node == n || !vow_name_equal(&a->name->name, name))
            continue;
        sim_node_clock(a->node);
        if (vow_loop_now_ns(a->node->loop) < a->valid_ns)
            sim_fail(TEST_HERE, s, "p%u still trusts its lease of epoch %llu",
                     a->node->number, (unsigned long long)a->epoch);
    }
}

/* ---- a schedule --------------------------------------------------------- */

static void check_asks(struct worker *w)
{
    struct sim *s = &w->sim;
    for (uint32_t i = 0; i < w->n_asks; i++) {
        const struct ask *a = &w->asks[i];
        if (!a->begun || a->node->dead)
            continue;
        if (!a->settled && !(a->doubted && w->mode == VOW_ONCE))
            sim_fail(TEST_HERE, s, "p%u, ask %u is not settled",
                     a->node->number, i);
        bool accepted = a->doubted || vow_bytes_size(a->got) != 24;
        for (uint32_t k = 0; k < a->name->n_accepted; k++)
            accepted = accepted || a->name->accepted[k] == a->got_epoch;
        SIM_CHECK(s, accepted);
        for (uint32_t k = 0; k < i; k++) { /* all of one epoch are the same */
            const struct ask *b = &w->asks[k];
            if (b->settled && b->name == a->name && a->settled &&
                b->got_epoch == a->got_epoch)
                SIM_CHECK(s, vow_bytes_size(a->got) == vow_bytes_size(b->got) &&
                                 memcmp(vow_bytes_data(a->got),
                                        vow_bytes_data(b->got),
                                        vow_bytes_size(a->got)) == 0);
        }
    }
}

static void schedule(uint64_t seed)
{
    static struct worker all;
    struct worker *w = &all;
    struct sim *s = &w->sim;
    memset(w, 0, sizeof(*w));
    sim_open(s, seed);
    w->mode = (uint32_t)sim_draw(s, 3);
    w->ttl_ms = sim_draw(s, 2) == 0 ? 0 : sim_between(s, 100, 20000);
    w->takeovers = sim_draw(s, 4) == 0 ? 2 : 1000;
    w->forces = sim_draw(s, 4) == 0;
    w->n_names = (uint32_t)sim_between(s, 1, 2);
    w->names[0] = vow_name_of("one");
    w->names[1] = vow_name_of("two");
    sim_plan_make(&w->plan, s, PLAN_ALL | PLAN_STRAGGLE, LEASE_MS);
    w->plan.restart = begin;
    s->on_own = alone;
    s->late_us = 102 * 1000;
    for (uint64_t n = sim_between(s, 2, 4); n > 0; n--)
        begin(s);
    w->n_asks = (uint32_t)sim_between(s, 2, ASKS);
    for (uint32_t i = 0; i < w->n_asks; i++) {
        w->asks[i].worker = w;
        sim_at(s, &w->asks[i].comes,
               s->now_ns + sim_draw(s, w->plan.healed_ns - s->now_ns), come);
    }
    sim_run(s, w->plan.healed_ns);
    /* Each may have its turn, one after the other. */
    sim_run(s, s->now_ns + 60 * (uint64_t)LEASE_MS * SIM_MS);
    check_asks(w);
    for (uint32_t i = 0; i < w->n_asks; i++) {
        vow_bytes_unref(w->asks[i].got);
        vow_bytes_unref(w->asks[i].result);
    }
    sim_close(s);
}

TEST(sim_names, keep_all_promises_whatever_goes_wrong)
{
    sim_many(5000, schedule);
}
