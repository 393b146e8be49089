/* SPDX-License-Identifier: MIT */
/* cas_test.c - processes on the engine over a compare-and-set service, with
 * faults drawn from a seed, on virtual time.
 *
 * Each process is a fiber with a store of its own. A process claims names in
 * all modes, pulses, commits, abandons, walks away, dies and begins anew; the
 * network delays, loses answers, does writes late, loses and doubles events. A
 * ledger holds what the processes were told, and checks:
 *
 *   C1  at most one process has a valid lease of a name
 *   C2  a granted epoch is larger than every epoch that was told before the
 *       claim was sent
 *   C3  of a run and its takeovers, at most one result is accepted; in mode
 *       shared, an owner that was replaced may revive a name that is free
 *   C4  a result that is read was committed by the runner of this epoch
 *   C5  a run in mode once is never followed by another run, unless the run
 *       was ended by its owner, or its doubt was resolved
 *   C6  when the network is healed, every process comes to an end, and no name
 *       is in doubt about a run that nobody was told of
 *
 * C1 does not hold in histories in which the service loses leases.
 *
 * Results of one name expire, and are refreshed: a refresher is a run like any
 * other for the ledger, and C1 to C6 hold beside the result and when the
 * refresher has become the owner.
 *
 * Beside the ledger, all steps on a name must have an order that the rules
 * explain (replay.h).
 */
#include "cas_memory.h"
#include "replay.h"
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SEEDS = 2000,
    ACTORS = 4,
    AGING = 3, /* the name whose results are refreshed */
    NAMES = 4,
    ROUNDS = 8,
    RUNS_MAX = 400,
    STEPS_MAX = 4000,
    ORPHAN_MS = 10000,     /* a process gives a lost claim back, */
    ORPHAN_CUT_MS = 60000, /* or later, when it reaches the service */
    FAULTY_MS = 40000,
    HEALED_MS = 300000,
    TIMEOUT_MS = 2000,
    LONG_TTL_MS = 3600000
};

/* A grant that a process was told of, or a commit that was sent. */
struct run {
    int name;
    uint64_t epoch, first;
    uint64_t valid_ns; /* the lease, as the owner believes */
    bool ended;        /* by the owner: committed, or abandoned, or lost */
    bool sent;         /* a commit was sent */
    bool accepted;     /* a result was */
    bool resolved;     /* a doubt about the run was resolved */
    bool died;         /* with its process */
};

struct actor {
    struct history *h;
    int index;
    vow_store *store;
    struct cas_service *service;
    vow_deferred *event;       /* wakes the actor; NULL: nobody listens */
    struct run *run;           /* the actor owns; NULL: none */
    uint64_t orphan_us[NAMES]; /* until then a lost claim may come true */
    bool finished;
};

struct history {
    uint64_t seed, random;
    struct world world;
    struct cas_world *server;
    struct cas_plan plan;
    uint64_t lease_ms;
    struct actor actors[ACTORS];
    struct run runs[RUNS_MAX];
    size_t n_runs;
    uint64_t tokens, recheck_ms;
    uint64_t highest[NAMES]; /* epoch that was told */
    bool died_claiming[NAMES];
    uint64_t settled, takeovers, doubts, orphans, deaths, refreshes;
    struct cas_faults faults;
    struct replay_step steps[NAMES][STEPS_MAX];
    size_t n_steps[NAMES];
    uint64_t explained; /* names; the others had too many orders */
};

static const uint32_t MODES[NAMES] = {VOW_SHARED, VOW_FENCED, VOW_ONCE,
                                      VOW_SHARED};

#define EXPECT(h, cond)                                                        \
    ((cond) ? (void)0                                                          \
            : test_fail(                                                       \
                  TEST_HERE, "seed %ju at %ju ms: %s", (uintmax_t)(h)->seed,   \
                  (uintmax_t)(vow_loop_now_ns((h)->world.loop) / 1000000),     \
                  #cond))

static uint64_t draw(struct history *h, uint64_t n)
{
    return test_random(&h->random) % n;
}

static uint64_t now_ns(const struct history *h)
{
    return vow_loop_now_ns(h->world.loop);
}

static vow_name name_of(int index)
{
    vow_name name = {.hash = {(unsigned char)(index + 1), 7}};
    return name;
}

static int index_of_name(const vow_name *name)
{
    return name->hash[0] - 1;
}

static vow_token new_token(struct history *h)
{
    vow_token token = {.bytes = {1}};
    uint64_t number = ++h->tokens;
    memcpy(token.bytes + 8, &number, sizeof(number));
    return token;
}

/* ---- steps of a fiber ---------------------------------------------------- */

struct answer {
    int code;
    uint32_t status, takeovers;
    uint64_t epoch, first, left_ms;
    bool failed;
    char value[32];
    vow_deferred *end;
};

static void on_answer(int code, const vow_record *r, size_t n, void *user)
{
    struct answer *a = user;
    CHECK(a->end != NULL);
    a->code = code;
    CHECK(code != 0 || n == 1);
    if (code == 0) {
        a->status = r->status;
        a->epoch = r->epoch;
        a->first = r->first;
        a->takeovers = r->takeovers;
        a->left_ms = r->left_ms;
        a->failed = r->failed;
        size_t size = vow_bytes_size(r->value);
        CHECK(size < sizeof(a->value));
        if (size > 0)
            memcpy(a->value, vow_bytes_data(r->value), size);
    }
    vow_deferred *end = a->end;
    a->end = NULL;
    (void)vow_resolve_drop(end, vow_nothing());
}

static vow_future *begin_step(struct actor *a, struct answer *answer)
{
    *answer = (struct answer){.code = 1};
    vow_future *f = vow_promise(a->h->world.loop, &answer->end);
    return f;
}

/* ---- what the replay is told --------------------------------------------- */

/* Writes that had no answer, or a late effect. */
static uint64_t lost_writes(const struct history *h)
{
    const struct cas_faults f = cas_world_faults(h->server);
    return f.requests + f.answers + f.late;
}

/* With a watch, a pulse is answered as of the last event. */
static uint64_t watch_us(const struct history *h)
{
    return 4 * h->plan.delay_ms * 1000;
}

static struct replay_step *note_step(struct actor *a, const vow_name *name,
                                     const struct replay_step *step)
{
    struct history *h = a->h;
    int index = index_of_name(name);
    CHECK(h->n_steps[index] < STEPS_MAX);
    struct replay_step *s = &h->steps[index][h->n_steps[index]++];
    *s = *step;
    s->caller = (uint32_t)a->index;
    s->sent_us = now_ns(h) / 1000;
    s->again_us = lost_writes(h); /* until the answer */
    return s;
}

static uint64_t number_of_actor_token(const vow_token *token)
{
    uint64_t number;
    memcpy(&number, token->bytes + 8, sizeof(number));
    return number;
}

/* A claim with a lost write may come true, also beside another answer: the
 * store then gives the name back, if the process lives. */
static void note_answer(struct actor *a, int name, struct replay_step *s,
                        const struct answer *answer)
{
    const struct history *h = a->h;
    uint64_t now_us = now_ns(h) / 1000;
    uint64_t late_us = now_us + (h->plan.late_ms + h->plan.delay_ms) * 1000;
    bool lost = lost_writes(h) != s->again_us;
    bool unsure = answer->code == VOW_EUNSURE || answer->code == VOW_ECLOSED;
    s->answered = answer->code == 0;
    s->done_us = s->answered ? now_us : unsure ? late_us : 0;
    s->again_us = s->answered && lost ? late_us : 0;
    if (s->kind == REPLAY_PULSE && (h->plan.flags & CAS_WATCHES) != 0)
        s->sent_us -= s->sent_us < watch_us(h) ? s->sent_us : watch_us(h);
    if (s->kind == REPLAY_CLAIM && (unsure || s->again_us != 0)) {
        s->undone_us = RULES_NEVER;
        a->orphan_us[name] = late_us;
    }
    s->status = answer->status;
    s->tells = REPLAY_EPOCH | REPLAY_FIRST | REPLAY_LOST | REPLAY_FAILED;
    s->told_epoch = answer->epoch;
    s->told_first = answer->first;
    s->told_takeovers = answer->takeovers;
    s->told_failed = answer->failed;
}

static struct replay_step *note_claim_step(struct actor *a,
                                           const vow_claim_request *q)
{
    return note_step(
        a, &q->name,
        &(struct replay_step){.kind = REPLAY_CLAIM,
                              .token = number_of_actor_token(&q->token),
                              .mode = q->mode,
                              .flags = q->flags,
                              .ms = q->lease_ms,
                              .takeovers = q->takeovers,
                              .waited = q->waited,
                              .refresh = q->refresh});
}

static struct answer do_claim(struct actor *a, const vow_claim_request *q)
{
    struct answer answer;
    vow_future *f = begin_step(a, &answer);
    struct replay_step *s = note_claim_step(a, q);
    a->store->ops->claim(a->store, q, on_answer, &answer);
    CHECK_INT_EQ(vow_await_drop(f), 0);
    note_answer(a, index_of_name(&q->name), s, &answer);
    return answer;
}

static struct answer do_commit(struct actor *a, const vow_commit_request *q)
{
    struct answer answer;
    vow_future *f = begin_step(a, &answer);
    struct replay_step *s = note_step(
        a, &q->hold.name,
        &(struct replay_step){.kind = REPLAY_COMMIT,
                              .token = number_of_actor_token(&q->hold.token),
                              .epoch = q->hold.epoch,
                              .flags = q->flags,
                              .outcome = q->outcome,
                              .ms = q->ttl_ms});
    a->store->ops->commit(a->store, q, on_answer, &answer);
    CHECK_INT_EQ(vow_await_drop(f), 0);
    note_answer(a, index_of_name(&q->hold.name), s, &answer);
    return answer;
}

static struct answer do_pulse(struct actor *a, const vow_hold *hold)
{
    struct answer answer;
    vow_future *f = begin_step(a, &answer);
    struct replay_step *s = note_step(
        a, &hold->name,
        &(struct replay_step){.kind = REPLAY_PULSE,
                              .token = number_of_actor_token(&hold->token),
                              .epoch = hold->epoch,
                              .mode = hold->mode,
                              .ms = a->h->lease_ms});
    a->store->ops->pulse(a->store, hold, 1, a->h->lease_ms, on_answer, &answer);
    CHECK_INT_EQ(vow_await_drop(f), 0);
    note_answer(a, index_of_name(&hold->name), s, &answer);
    return answer;
}

static struct answer do_peek(struct actor *a, const vow_name *name)
{
    struct answer answer;
    vow_future *f = begin_step(a, &answer);
    struct replay_step *s = note_step(
        a, name, &(struct replay_step){.kind = REPLAY_PEEK, .token = 1});
    a->store->ops->peek(a->store, name, 1, on_answer, &answer);
    CHECK_INT_EQ(vow_await_drop(f), 0);
    note_answer(a, index_of_name(name), s, &answer);
    return answer;
}

static void pause_ms(struct actor *a, uint64_t ms)
{
    CHECK_INT_EQ(vow_sleep(a->h->world.loop, ms), 0);
}

/* ---- processes ----------------------------------------------------------- */

static void wake_actor(struct actor *a)
{
    vow_deferred *event = a->event;
    a->event = NULL;
    if (event != NULL)
        (void)vow_resolve_drop(event, vow_nothing());
}

static void on_record_event(const vow_record *r, void *user)
{
    (void)r;
    wake_actor(user);
}

static void on_doubt_event(void *user)
{
    wake_actor(user);
}

static void open_process(struct actor *a)
{
    struct history *h = a->h;
    const struct cas_opts opts = {.timeout_ms = TIMEOUT_MS};
    const vow_store_events events = {
        .on_record = on_record_event, .on_doubt = on_doubt_event, .user = a};
    a->service = cas_memory_client(h->server);
    CHECK_INT_EQ(vow__cas_open(h->world.loop, a->service, &opts, &a->store), 0);
    a->store->ops->listen(a->store, &events);
    h->recheck_ms = a->store->ops->recheck_ms;
}

static void close_process(struct actor *a)
{
    vow_store *s = a->store;
    a->store = NULL;
    a->service = NULL;
    CHECK_INT_EQ(vow_await_drop(s->ops->close(s)), 0);
}

/* A lost claim of the process may hold the name. */
static bool may_hold(const struct actor *a, int name, uint64_t more_ms)
{
    uint64_t until_us = a->orphan_us[name];
    return until_us != 0 && now_ns(a->h) / 1000 < until_us + more_ms * 1000;
}

/* The process dies, and another begins. */
static void die_and_begin(struct actor *a)
{
    a->h->deaths++;
    if (a->run != NULL)
        a->run->died = true;
    for (int i = 0; i < NAMES; i++)
        if (may_hold(a, i, ORPHAN_MS))
            a->h->died_claiming[i] = true;
    a->run = NULL;
    cas_memory_kill(a->service);
    close_process(a);
    open_process(a);
}

/* Waits for an event, or for a time. */
static void wait_event(struct actor *a, uint64_t ms)
{
    vow_loop *loop = a->h->world.loop;
    vow_future *event = vow_promise(loop, &a->event);
    vow_future *late = vow_delay(loop, ms);
    vow_future *both[] = {event, late};
    vow_future *first = vow_race(loop, both, 2);
    CHECK_INT_EQ(vow_await_drop(first), 0);
    wake_actor(a);
    vow_future_unref(event);
    (void)vow_cancel(late, NULL);
    vow_future_unref(late);
}

/* ---- the ledger ---------------------------------------------------------- */

static bool is_valid(const struct history *h, const struct run *r)
{
    return !r->ended && !r->died && now_ns(h) < r->valid_ns;
}

/* C1. */
static void check_valid(struct history *h, const struct run *r)
{
    for (size_t i = 0; i < h->n_runs; i++) {
        const struct run *o = &h->runs[i];
        if (o != r && o->name == r->name && is_valid(h, o) && is_valid(h, r))
            EXPECT(h, cas_world_faults(h->server).leases > 0);
    }
}

static struct run *find_run(struct history *h, int name, uint64_t epoch)
{
    for (size_t i = 0; i < h->n_runs; i++)
        if (h->runs[i].name == name && h->runs[i].epoch == epoch)
            return &h->runs[i];
    return NULL;
}

static struct run *note_grant(struct actor *a, int name,
                              const struct answer *answer, uint64_t sent_ns,
                              uint64_t highest)
{
    struct history *h = a->h;
    EXPECT(h, h->n_runs < RUNS_MAX);
    EXPECT(h, answer->epoch > highest); /* C2 */
    if (answer->epoch > h->highest[name])
        h->highest[name] = answer->epoch;
    for (size_t i = 0; i < h->n_runs && MODES[name] == VOW_ONCE; i++) {
        const struct run *o = &h->runs[i]; /* C5 */
        EXPECT(h, o->name != name || o->sent || o->resolved);
    }
    h->takeovers += answer->first != answer->epoch;
    struct run *r = &h->runs[h->n_runs++];
    *r = (struct run){.name = name,
                      .epoch = answer->epoch,
                      .first = answer->first,
                      .valid_ns = sent_ns + h->lease_ms * 1000000};
    check_valid(h, r);
    return r;
}

/* C3. */
static void note_accepted(struct history *h, struct run *r)
{
    for (size_t i = 0; i < h->n_runs; i++) {
        const struct run *o = &h->runs[i];
        EXPECT(h, o == r || o->name != r->name || o->first != r->first ||
                      !o->accepted || MODES[r->name] == VOW_SHARED);
    }
    r->accepted = true;
    h->settled++;
}

/* C4: the value names the epoch of the runner. */
static void check_value(struct history *h, int name, const struct answer *a)
{
    char want[32];
    (void)snprintf(want, sizeof(want), "%d/%llu", name,
                   (unsigned long long)a->epoch);
    const struct run *r = find_run(h, name, a->epoch);
    EXPECT(h, r != NULL && r->sent);
    if (strcmp(a->value, want) != 0)
        test_fail(TEST_HERE, "seed %ju: value %s of %s", (uintmax_t)h->seed,
                  a->value, want);
}

/* ---- work ---------------------------------------------------------------- */

static bool is_open(int code)
{
    return code == VOW_EUNSURE || code == VOW_ESTORE || code == VOW_EAGAIN;
}

static uint64_t draw_ttl_ms(struct history *h, int name, uint64_t how)
{
    if (name == AGING)
        return how < 2 ? 0 : 500 + draw(h, 6000);
    return how < 6 ? 0 : LONG_TTL_MS;
}

/* Commits, again and again; in some histories gives up. */
static void end_run(struct actor *a, const vow_hold *hold)
{
    struct history *h = a->h;
    struct run *r = a->run;
    char text[32];
    uint64_t how = draw(h, 8);
    vow_bytes *value = NULL;
    (void)snprintf(text, sizeof(text), "%d/%llu", r->name,
                   (unsigned long long)r->epoch);
    CHECK_INT_EQ(vow_bytes_new(h->world.loop, text, strlen(text), &value), 0);
    vow_commit_request q = {.hold = *hold,
                            .outcome = how == 0 ? VOW_OUTCOME_ABANDONED
                                                : VOW_OUTCOME_DONE,
                            .flags = VOW_COMMIT_STRICT,
                            .value = value,
                            .ttl_ms = draw_ttl_ms(h, r->name, how)};
    r->sent = true;
    r->ended = true;
    for (int i = 0; i < 20; i++) {
        struct answer answer = do_commit(a, &q);
        if (is_open(answer.code)) {
            if (draw(h, 10) == 0)
                break;
            pause_ms(a, draw(h, 100));
            continue;
        }
        CHECK_INT_EQ(answer.code, 0);
        if (answer.status == VOW_STATUS_OWNED && how != 0)
            note_accepted(h, r);
        break;
    }
    vow_bytes_unref(value);
    a->run = NULL;
}

/* Runs with pulses until the work is done, the lease is lost, or the process
 * dies. Returns false after a death. */
static bool work(struct actor *a, const vow_hold *hold)
{
    struct history *h = a->h;
    struct run *r = a->run;
    uint64_t end_ns = now_ns(h) + draw(h, 3 * h->lease_ms) * 1000000;
    while (now_ns(h) < end_ns) {
        pause_ms(a, h->lease_ms / 4);
        if (draw(h, 30) == 0) {
            die_and_begin(a);
            return false;
        }
        if (draw(h, 40) == 0)
            pause_ms(a, 2 * h->lease_ms); /* the process was stopped */
        uint64_t sent_ns = now_ns(h);
        struct answer p = do_pulse(a, hold);
        if (is_open(p.code))
            continue;
        CHECK_INT_EQ(p.code, 0);
        if (p.status != VOW_STATUS_OWNED) {
            r->ended = true;
            break;
        }
        r->valid_ns = sent_ns + h->lease_ms * 1000000;
        check_valid(h, r);
    }
    end_run(a, hold);
    return true;
}

static void resolve_doubt(struct actor *a, int name, uint64_t epoch)
{
    struct history *h = a->h;
    const vow_commit_request q = {
        .hold = {.name = name_of(name), .token = new_token(h), .epoch = epoch},
        .outcome = VOW_OUTCOME_ABANDONED,
        .flags = VOW_COMMIT_RESOLVE};
    struct run *r = find_run(h, name, epoch);
    h->doubts++;
    bool told = r != NULL || h->died_claiming[name];
    for (int i = 0; i < ACTORS; i++)
        told = told || may_hold(&h->actors[i], name, ORPHAN_CUT_MS);
    EXPECT(h, told); /* C6 */
    if (r != NULL)
        r->resolved = true;
    (void)do_commit(a, &q);
}

/* The process dies with a claim under way. Returns false if the answer came
 * first, and did not make the process the owner. */
static bool dies_claiming(struct actor *a, int name, const vow_claim_request *q)
{
    struct history *h = a->h;
    uint64_t highest = h->highest[name];
    uint64_t sent_ns = now_ns(h);
    struct answer lost;
    vow_future *f = begin_step(a, &lost);
    struct replay_step *s = note_claim_step(a, q);
    a->store->ops->claim(a->store, q, on_answer, &lost);
    pause_ms(a, draw(h, 20));
    if (lost.end != NULL) {
        h->died_claiming[name] = true;
        die_and_begin(a);
        CHECK_INT_EQ(lost.code, VOW_ECLOSED);
    }
    CHECK_INT_EQ(vow_await_drop(f), 0);
    note_answer(a, name, s, &lost);
    if (lost.code == 0 && lost.status == VOW_STATUS_OWNED) {
        a->run = note_grant(a, name, &lost, sent_ns, highest);
        die_and_begin(a);
        return true;
    }
    return lost.code == VOW_ECLOSED;
}

static bool goes_on_to_refresh(struct actor *a, vow_claim_request *q,
                               const struct answer *c)
{
    struct history *h = a->h;
    if (index_of_name(&q->name) != AGING || draw(h, 3) == 0)
        return false;
    q->refresh = c->epoch;
    q->token = new_token(h);
    return true;
}

/* A claim, until there is a result, or the work is done. A result that is not
 * refreshed, because another process does, has no value. */
static void one_round(struct actor *a)
{
    struct history *h = a->h;
    int name = (int)draw(h, NAMES);
    vow_claim_request q = {.name = name_of(name),
                           .token = new_token(h),
                           .mode = MODES[name],
                           .flags = draw(h, 2) == 0 ? VOW_CLAIM_FORCE : 0,
                           .lease_ms = h->lease_ms,
                           .takeovers = 1000};
    for (;;) {
        uint64_t highest = h->highest[name];
        uint64_t sent_ns = now_ns(h);
        if (draw(h, 60) == 0) {
            if (dies_claiming(a, name, &q))
                return;
            continue;
        }
        struct answer c = do_claim(a, &q);
        if (is_open(c.code)) {
            if (draw(h, 6) == 0) { /* walks away */
                h->orphans++;
                return;
            }
            pause_ms(a, draw(h, 200));
        } else if (c.status == VOW_STATUS_OWNED) {
            const vow_hold hold = {.name = q.name,
                                   .token = q.token,
                                   .epoch = c.epoch,
                                   .mode = q.mode};
            a->run = note_grant(a, name, &c, sent_ns, highest);
            h->refreshes += q.refresh != 0;
            (void)work(a, &hold);
            return;
        } else if (c.status == VOW_STATUS_WAITING) {
            q.waited = c.first;
            wait_event(a, c.left_ms < 1000 ? c.left_ms + 1 : 1000);
        } else if (c.status == VOW_STATUS_DOUBT) {
            pause_ms(a, draw(h, 3000));
            resolve_doubt(a, name, c.epoch);
        } else {
            EXPECT(h, c.status == VOW_STATUS_SETTLED && c.code == 0);
            if (q.refresh != 0)
                return;
            check_value(h, name, &c);
            if (!goes_on_to_refresh(a, &q, &c))
                return;
        }
    }
}

static vow_next actor_main(void *arg)
{
    struct actor *a = arg;
    struct history *h = a->h;
    open_process(a);
    for (int i = 0; i < ROUNDS; i++) {
        pause_ms(a, draw(h, 2000));
        if (draw(h, 10) == 0)
            cas_memory_cut(a->service, true);
        one_round(a);
        cas_memory_cut(a->service, false);
    }
    a->finished = true;
    return vow_ok(vow_nothing());
}

/* C6: every name is free, or has a result, or a run in doubt that somebody was
 * told of. */
static vow_next last_look(void *arg)
{
    struct actor *a = arg;
    struct history *h = a->h;
    pause_ms(a, 70000); /* orphans, leases and late writes have ended */
    for (int i = 0; i < NAMES; i++) {
        vow_name name = name_of(i);
        struct answer p = do_peek(a, &name);
        CHECK_INT_EQ(p.code, 0);
        EXPECT(h, p.status != VOW_STATUS_WAITING);
        if (p.status == VOW_STATUS_DOUBT)
            EXPECT(h, find_run(h, i, p.epoch) != NULL || h->died_claiming[i]);
    }
    for (int i = 0; i < ACTORS; i++)
        close_process(&h->actors[i]);
    return vow_ok(vow_nothing());
}

/* ---- histories ----------------------------------------------------------- */

static struct cas_plan draw_plan(struct history *h)
{
    bool watch = draw(h, 2) == 0;
    return (struct cas_plan){.flags = watch ? CAS_WATCHES : CAS_REGISTERS,
                             .clock = !watch,
                             .seed = draw(h, UINT64_MAX) | 1,
                             .value_max = 1024,
                             .inline_max = draw(h, 2) * 1024,
                             .delay_ms = 1 + draw(h, 40),
                             .skew_ms = draw(h, 100),
                             .lost_requests = (unsigned)draw(h, 60),
                             .lost_answers = (unsigned)draw(h, 60),
                             .late_writes = (unsigned)draw(h, 60),
                             .lost_events = (unsigned)draw(h, 100),
                             .doubled_events = (unsigned)draw(h, 100),
                             .lost_leases =
                                 draw(h, 4) == 0 ? (unsigned)draw(h, 30) : 0,
                             .late_ms = 1 + draw(h, 5000)};
}

static struct replay_result explain_name(const struct history *h, int name)
{
    const struct replay_opts opts = {
        .allows = REPLAY_LEASES_LATE |
                  (h->faults.leases > 0 ? REPLAY_LEASES_EARLY : 0u),
        .skew_us = 2000 * h->plan.skew_ms + 1000,
        .recheck_ms = h->recheck_ms,
        .effort = 200000};
    return replay_run(h->steps[name], h->n_steps[name], &opts);
}

static void check_explained(struct history *h)
{
    for (int i = 0; i < NAMES; i++) {
        const struct replay_result r = explain_name(h, i);
        h->explained += r.verdict == REPLAY_EXPLAINED;
        if (r.verdict != REPLAY_REFUSED)
            continue;
        replay_print(h->steps[i], h->n_steps[i], &r, stdout);
        test_fail(TEST_HERE, "seed %ju: the store gave a wrong answer on %d",
                  (uintmax_t)h->seed, i);
    }
}

static void run_history(struct history *h, uint64_t seed)
{
    vow_future *ends[ACTORS];
    memset(h, 0, offsetof(struct history, steps));
    memset(h->n_steps, 0, sizeof(h->n_steps));
    h->seed = h->random = seed;
    h->explained = 0;
    world_open(&h->world);
    h->plan = draw_plan(h);
    h->lease_ms = 300 + draw(h, 1500);
    h->server = cas_world_new(h->world.loop, &h->plan);
    for (int i = 0; i < ACTORS; i++) {
        h->actors[i] = (struct actor){.h = h, .index = i};
        ends[i] = vow_async(h->world.loop, actor_main, &h->actors[i]);
    }
    world_advance_ms(&h->world, FAULTY_MS);
    cas_world_heal(h->server);
    world_advance_ms(&h->world, HEALED_MS);
    for (int i = 0; i < ACTORS; i++) {
        EXPECT(h, h->actors[i].finished); /* C6 */
        vow_future_unref(ends[i]);
    }
    vow_future *last = vow_async(h->world.loop, last_look, &h->actors[0]);
    world_advance_ms(&h->world, 100000);
    EXPECT(h, vow_state_of(last) == VOW_FULFILLED);
    vow_future_unref(last);
    h->faults = cas_world_faults(h->server);
    check_explained(h);
    cas_world_free(h->server);
    world_close(&h->world);
}

/* VOW_CAS_SEEDS: how many histories; VOW_CAS_FROM: the first. */
TEST_OPTS(cas_sim, random_histories_keep_the_promises, .timeout_s = 3000)
{
    static struct history h;
    const char *many = getenv("VOW_CAS_SEEDS");
    const char *from = getenv("VOW_CAS_FROM");
    uint64_t n = many == NULL ? SEEDS : strtoull(many, NULL, 10);
    uint64_t first =
        from == NULL ? test_seed() << 20 : strtoull(from, NULL, 10);
    uint64_t settled = 0, takeovers = 0, doubts = 0, orphans = 0, late = 0;
    uint64_t explained = 0, refreshes = 0;
    for (uint64_t i = 0; i < n; i++) {
        run_history(&h, first + i);
        settled += h.settled;
        takeovers += h.takeovers;
        doubts += h.doubts;
        orphans += h.orphans;
        late += h.faults.late_done;
        explained += h.explained;
        refreshes += h.refreshes;
    }
    if (n >= SEEDS) { /* else the histories show nothing */
        CHECK(settled > n);
        CHECK(takeovers > n / 20);
        CHECK(doubts > n / 20);
        CHECK(orphans > n / 20);
        CHECK(late > n / 20);
        CHECK(refreshes > n / 2);
        CHECK(explained > NAMES * n - n / 20);
    }
}

/* Changes the answer of a claim: a result of an epoch that was never granted,
 * or a grant with the lowest epoch. Returns false for other answers. */
static bool change_answer(struct history *h, struct replay_step *s)
{
    if (s->kind != REPLAY_CLAIM || !s->answered)
        return false;
    if (s->status == VOW_STATUS_SETTLED)
        s->told_epoch += h->highest[0] + h->highest[1] + h->highest[2];
    else if (s->status == VOW_STATUS_OWNED && s->told_epoch > 1)
        s->told_epoch = s->told_first = 1;
    else
        return false;
    return true;
}

TEST(cas_sim, a_changed_answer_is_refused)
{
    static struct history h;
    unsigned changed = 0, refused = 0;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        run_history(&h, seed);
        for (int k = 0; k < 10; k++) {
            int name = (int)draw(&h, NAMES);
            size_t n = h.n_steps[name];
            struct replay_step *s = &h.steps[name][n == 0 ? 0 : draw(&h, n)];
            struct replay_step was = *s;
            if (n > 0 && change_answer(&h, s)) {
                changed++;
                enum replay_verdict verdict = explain_name(&h, name).verdict;
                CHECK(verdict != REPLAY_EXPLAINED);
                refused += verdict == REPLAY_REFUSED; /* else too many orders */
            }
            *s = was;
        }
    }
    CHECK(changed > 20 && refused > changed - changed / 8);
}
