/* SPDX-License-Identifier: MIT */
/* cas_test.c - the engine over a compare-and-set service: round trips, lanes,
 * leases, orphaned claims, the close, and every failed allocation. What all
 * stores promise is in tests/contract, histories with faults in tests/sim. */
#include "cas_memory.h"
#include "fault.h"
#include "world.h"

#include <string.h>

enum { LEASE_MS = 1500, TIMEOUT_MS = 2000, MANY = 100, CROWD = 640 };

struct scene {
    struct world *world;
    struct cas_world *server;
    struct cas_service *service[2];
    vow_store *store[2];
    unsigned records, doubts;
};

struct told {
    unsigned done;
    int code;
    size_t n;
    vow_record record; /* the first, without texts and value */
};

static void on_told(int code, const vow_record *records, size_t n, void *user)
{
    struct told *t = user;
    t->done++;
    t->code = code;
    t->n = n;
    if (n > 0)
        t->record = records[0];
}

static void on_chunks_told(int code, vow_bytes *const *chunks, size_t n,
                           uint64_t next, void *user)
{
    struct told *t = user;
    (void)chunks;
    (void)next;
    t->done++;
    t->code = code;
    t->n = n;
}

static void count_record(const vow_record *r, void *user)
{
    struct scene *s = user;
    (void)r;
    s->records++;
}

static void count_doubt(void *user)
{
    struct scene *s = user;
    s->doubts++;
}

static vow_name name_number(unsigned number)
{
    vow_name name = {
        .hash = {9, (unsigned char)number, (unsigned char)(number >> 8)}};
    return name;
}

static vow_token token_number(unsigned number)
{
    vow_token token = {
        .bytes = {1, (unsigned char)number, (unsigned char)(number >> 8)}};
    return token;
}

#define CLAIM(name_no, token_no, ...)                                          \
    (&(const vow_claim_request){.name = name_number(name_no),                  \
                                .token = token_number(token_no),               \
                                .lease_ms = LEASE_MS,                          \
                                .takeovers = 3,                                \
                                __VA_ARGS__})

static vow_hold hold_number(unsigned name, unsigned token, uint64_t epoch)
{
    return (vow_hold){.name = name_number(name),
                      .token = token_number(token),
                      .epoch = epoch};
}

/* Opens two instances, with a service that has the flags of the plan. */
static int scene_open(struct scene *s, struct world *w,
                      const struct cas_plan *plan)
{
    int rc = 0;
    *s = (struct scene){.world = w};
    s->server = cas_world_new(w->loop, plan);
    for (int i = 0; i < 2; i++) {
        const struct cas_opts opts = {.timeout_ms = TIMEOUT_MS};
        const vow_store_events events = {
            .on_record = count_record, .on_doubt = count_doubt, .user = s};
        s->service[i] = cas_memory_client(s->server);
        int code = vow__cas_open(w->loop, s->service[i], &opts, &s->store[i]);
        if (code == 0)
            s->store[i]->ops->listen(s->store[i], &events);
        else
            s->store[i] = NULL;
        rc = code < 0 ? code : rc;
    }
    return rc;
}

static void ignore_close(void *user)
{
    (void)user;
}

static void scene_close_one(struct scene *s, int i)
{
    if (s->store[i] != NULL) {
        VOW_AUTO(vow_future)
        closed = s->store[i]->ops->close(s->store[i]);
        s->store[i] = NULL;
        for (int k = 0; k < 600 && vow_state_of(closed) == VOW_PENDING; k++)
            world_advance_ms(s->world, 10);
        CHECK(vow_state_of(closed) == VOW_FULFILLED);
    } else if (s->service[i] != NULL) {
        s->service[i]->ops->close(s->service[i], false, ignore_close, NULL);
        world_advance_ms(s->world, 0);
    }
    s->service[i] = NULL;
}

static void scene_close(struct scene *s)
{
    scene_close_one(s, 0);
    scene_close_one(s, 1);
    cas_world_free(s->server);
}

/* Runs until the step is answered. */
static struct told wait_told(struct scene *s, struct told *t)
{
    for (int i = 0; i < 3000 && t->done == 0; i++)
        world_advance_ms(s->world, i == 0 ? 0 : 1);
    CHECK_UINT_EQ(t->done, 1);
    return *t;
}

static struct told claim_told(struct scene *s, int i,
                              const vow_claim_request *q)
{
    struct told t = {.done = 0};
    s->store[i]->ops->claim(s->store[i], q, on_told, &t);
    return wait_told(s, &t);
}

static struct told pulse_told(struct scene *s, int i, const vow_hold *holds,
                              size_t n)
{
    struct told t = {.done = 0};
    s->store[i]->ops->pulse(s->store[i], holds, n, LEASE_MS, on_told, &t);
    return wait_told(s, &t);
}

static struct told commit_told(struct scene *s, int i, const vow_hold *hold,
                               uint32_t outcome, vow_bytes *value,
                               uint64_t ttl_ms)
{
    struct told t = {.done = 0};
    const vow_commit_request q = {
        .hold = *hold, .outcome = outcome, .value = value, .ttl_ms = ttl_ms};
    s->store[i]->ops->commit(s->store[i], &q, on_told, &t);
    return wait_told(s, &t);
}

static struct told peek_told(struct scene *s, int i, unsigned name)
{
    struct told t = {.done = 0};
    const vow_name n = name_number(name);
    s->store[i]->ops->peek(s->store[i], &n, 1, on_told, &t);
    return wait_told(s, &t);
}

static struct cas_plan plan_of(bool watch)
{
    return (struct cas_plan){.flags = watch ? CAS_WATCHES : CAS_REGISTERS,
                             .clock = !watch,
                             .seed = 1,
                             .value_max = 4096,
                             .inline_max = 64};
}

/* ---- round trips --------------------------------------------------------- */

static void check_trips(bool watch)
{
    struct world w;
    struct scene s;
    const struct cas_plan plan = plan_of(watch);
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    for (int i = 0; i < 2; i++) /* the leases are granted */
        (void)claim_told(&s, i, CLAIM(50 + (unsigned)i, 50));

    uint64_t before = cas_world_requests(s.server);
    struct told own = claim_told(&s, 0, CLAIM(1, 1));
    CHECK_UINT_EQ(own.record.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(cas_world_requests(s.server) - before, 1);

    before = cas_world_requests(s.server);
    struct told wait = claim_told(&s, 1, CLAIM(1, 2));
    CHECK_UINT_EQ(wait.record.status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(cas_world_requests(s.server) - before, 1);

    before = cas_world_requests(s.server);
    const vow_hold hold = hold_number(1, 1, own.record.epoch);
    CHECK_UINT_EQ(
        commit_told(&s, 0, &hold, VOW_OUTCOME_DONE, NULL, 1000).record.status,
        VOW_STATUS_OWNED);
    CHECK_UINT_EQ(cas_world_requests(s.server) - before, 1);
    CHECK_UINT_EQ(s.records, 1); /* the waiter was told */

    before = cas_world_requests(s.server);
    CHECK_UINT_EQ(claim_told(&s, 1, CLAIM(1, 3)).record.status,
                  VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(cas_world_requests(s.server) - before, 1);
    scene_close(&s);
    world_close(&w);
}

TEST(cas, free_taken_settled_and_commit_are_one_request_with_a_watch)
{
    check_trips(true);
}

TEST(cas, free_taken_settled_and_commit_are_one_request_with_registration)
{
    check_trips(false);
}

static void check_pulse_trips(bool watch)
{
    struct world w;
    struct scene s;
    vow_hold holds[MANY];
    const struct cas_plan plan = plan_of(watch);
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    for (unsigned i = 0; i < MANY; i++)
        holds[i] =
            hold_number(i, i, claim_told(&s, 0, CLAIM(i, i)).record.epoch);
    for (int round = 0; round < 10; round++) {
        world_advance_ms(&w, LEASE_MS / 3);
        uint64_t before = cas_world_requests(s.server);
        struct told t = pulse_told(&s, 0, holds, MANY);
        CHECK_UINT_EQ(t.n, MANY);
        CHECK_UINT_EQ(t.record.status, VOW_STATUS_OWNED);
        CHECK(cas_world_requests(s.server) - before <= 1);
    }
    CHECK_UINT_EQ(claim_told(&s, 1, CLAIM(7, 200)).record.status,
                  VOW_STATUS_WAITING);
    scene_close(&s);
    world_close(&w);
}

TEST(cas, a_pulse_of_many_names_is_one_keepalive_with_a_watch)
{
    check_pulse_trips(true);
}

TEST(cas, a_pulse_of_many_names_is_one_keepalive_with_registration)
{
    check_pulse_trips(false);
}

/* ---- lanes --------------------------------------------------------------- */

TEST(cas, an_owner_does_not_wait_behind_claims)
{
    struct world w;
    struct scene s;
    static struct told claims[CROWD];
    struct cas_plan plan = plan_of(true);
    plan.delay_ms = 20;
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    struct told own = claim_told(&s, 0, CLAIM(1, 1));
    const vow_hold hold = hold_number(1, 1, own.record.epoch);
    /* Ten times as many claims as are under way at once, also of the name. */
    for (unsigned i = 0; i < CROWD; i++)
        s.store[0]->ops->claim(s.store[0], CLAIM(i, 5000 + i), on_told,
                               &claims[i]);
    struct told commit = {.done = 0};
    const vow_commit_request q = {
        .hold = hold, .outcome = VOW_OUTCOME_DONE, .ttl_ms = 1000};
    s.store[0]->ops->commit(s.store[0], &q, on_told, &commit);
    unsigned before = 0;
    (void)wait_told(&s, &commit);
    for (unsigned i = 0; i < CROWD; i++)
        before += claims[i].done;
    CHECK_UINT_EQ(commit.record.status, VOW_STATUS_OWNED);
    CHECK(before < CROWD / 4);
    world_advance_ms(&w, TIMEOUT_MS);
    for (unsigned i = 0; i < CROWD; i++)
        CHECK_UINT_EQ(claims[i].done, 1);
    scene_close(&s);
    world_close(&w);
}

/* ---- wake-ups ------------------------------------------------------------ */

/* A claim and the commit of the owner meet: whichever comes first at the
 * service, and whichever of answer and event comes first at the waiter, the
 * waiter is told at once. Returns whether the claim waited. */
static bool meet_once(bool watch, uint64_t seed)
{
    struct world w;
    struct scene s;
    struct told claim = {.done = 0}, commit = {.done = 0};
    struct cas_plan plan = plan_of(watch);
    plan.seed = seed;
    plan.delay_ms = 20;
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    (void)claim_told(&s, 1, CLAIM(2, 2)); /* the lease is granted */
    const vow_commit_request q = {
        .hold = hold_number(1, 1, claim_told(&s, 0, CLAIM(1, 1)).record.epoch),
        .outcome = VOW_OUTCOME_DONE};
    s.store[1]->ops->claim(s.store[1], CLAIM(1, 3), on_told, &claim);
    s.store[0]->ops->commit(s.store[0], &q, on_told, &commit);
    world_advance_ms(&w, 100);
    CHECK_UINT_EQ(claim.done + commit.done, 2);
    bool waited = claim.record.status == VOW_STATUS_WAITING;
    CHECK(!waited || s.records > 0);
    scene_close(&s);
    world_close(&w);
    return waited;
}

TEST(cas, no_wakeup_is_lost_when_a_claim_meets_a_commit)
{
    unsigned waited = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        waited += meet_once(true, seed);
        waited += meet_once(false, seed);
    }
    CHECK(waited > 100 && waited < 300);
}

/* A claim that waited for a run meets the commit of the next run: the claim is
 * answered with the result that was left, not with the newer one. */
static void meet_left_result(bool watch, uint64_t seed)
{
    struct world w;
    struct scene s;
    struct told claim = {.done = 0}, commit = {.done = 0};
    struct cas_plan plan = plan_of(watch);
    plan.seed = seed;
    plan.delay_ms = 20;
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    uint64_t first = claim_told(&s, 0, CLAIM(1, 1)).record.epoch;
    CHECK_UINT_EQ(claim_told(&s, 1, CLAIM(1, 2)).record.status,
                  VOW_STATUS_WAITING);
    const vow_hold hold = hold_number(1, 1, first);
    (void)commit_told(&s, 0, &hold, VOW_OUTCOME_DONE, NULL, 0);
    const vow_commit_request q = {
        .hold = hold_number(1, 3, claim_told(&s, 0, CLAIM(1, 3)).record.epoch),
        .outcome = VOW_OUTCOME_DONE,
        .ttl_ms = 60000};
    s.store[1]->ops->claim(s.store[1], CLAIM(1, 2, .waited = first), on_told,
                           &claim);
    s.store[0]->ops->commit(s.store[0], &q, on_told, &commit);
    (void)wait_told(&s, &commit);
    CHECK_UINT_EQ(wait_told(&s, &claim).record.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(claim.record.epoch, first);
    scene_close(&s);
    world_close(&w);
}

TEST(cas, a_waiter_reads_the_result_left_when_a_claim_meets_a_commit)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        meet_left_result(true, seed);
        meet_left_result(false, seed);
    }
}

/* ---- leases -------------------------------------------------------------- */

TEST(cas, a_name_that_is_not_renewed_lapses_beside_others)
{
    struct world w;
    struct scene s;
    const struct cas_plan plan = plan_of(true);
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    (void)claim_told(&s, 0, CLAIM(1, 1));
    const vow_hold hold =
        hold_number(2, 2, claim_told(&s, 0, CLAIM(2, 2)).record.epoch);
    for (int i = 0; i < 4; i++) {
        world_advance_ms(&w, LEASE_MS / 3);
        CHECK_UINT_EQ(pulse_told(&s, 0, &hold, 1).record.status,
                      VOW_STATUS_OWNED);
    }
    CHECK_UINT_EQ(claim_told(&s, 1, CLAIM(2, 3)).record.status,
                  VOW_STATUS_WAITING);
    struct told t = claim_told(&s, 1, CLAIM(1, 3));
    CHECK_UINT_EQ(t.record.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(t.record.takeovers, 1);
    scene_close(&s);
    world_close(&w);
}

/* The end of a lease does not change the version of the record: the time of the
 * end counts, not the time at which the version was seen first. */
TEST(cas, the_takeover_of_a_long_run_is_counted)
{
    struct world w;
    struct scene s;
    const struct cas_plan plan = plan_of(true);
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    const vow_hold hold =
        hold_number(1, 1, claim_told(&s, 0, CLAIM(1, 1)).record.epoch);
    for (int i = 0; i < 140; i++) { /* more than a minute */
        CHECK_UINT_EQ(claim_told(&s, 1, CLAIM(1, 2)).record.status,
                      VOW_STATUS_WAITING);
        CHECK_UINT_EQ(pulse_told(&s, 0, &hold, 1).record.status,
                      VOW_STATUS_OWNED);
        world_advance_ms(&w, LEASE_MS / 3);
    }
    cas_memory_cut(s.service[0], true);
    world_advance_ms(&w, 3 * LEASE_MS);
    struct told claim = claim_told(&s, 1, CLAIM(1, 2));
    CHECK_UINT_EQ(claim.record.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(claim.record.takeovers, 1);
    cas_memory_cut(s.service[0], false);
    scene_close(&s);
    world_close(&w);
}

/* The drop of the mark has no answer, and comes true after the owner has renewed
 * the lease. */
TEST(cas, a_late_drop_of_a_mark_does_not_end_a_renewed_lease)
{
    struct world w;
    struct scene s;
    struct cas_plan plan = plan_of(true);
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    const vow_hold hold =
        hold_number(1, 1, claim_told(&s, 0, CLAIM(1, 1)).record.epoch);
    plan.late_writes = 1000;
    plan.late_ms = 3 * LEASE_MS;
    cas_world_set(s.server, &plan);
    world_advance_ms(&w, LEASE_MS); /* the drop is on its way */
    cas_world_heal(s.server);
    CHECK_UINT_EQ(cas_world_faults(s.server).late, 1);
    for (int i = 0; i < 12; i++) {
        CHECK_UINT_EQ(pulse_told(&s, 0, &hold, 1).record.status,
                      VOW_STATUS_OWNED);
        CHECK_UINT_EQ(claim_told(&s, 1, CLAIM(1, 3)).record.status,
                      VOW_STATUS_WAITING);
        world_advance_ms(&w, LEASE_MS / 3);
        CHECK_UINT_EQ(claim_told(&s, 1, CLAIM(1, 3)).record.status,
                      VOW_STATUS_WAITING);
    }
    CHECK_UINT_EQ(cas_world_faults(s.server).late_done, 0);
    scene_close(&s);
    world_close(&w);
}

/* Without a watch, the lease is over and is then renewed: a takeover by a process
 * that has seen the lease over compares the marks. */
TEST(cas, a_takeover_loses_against_a_renewal_of_the_same_version)
{
    struct world w;
    struct scene s;
    struct told pulse = {.done = 0}, cancel = {.done = 0};
    const struct cas_plan plan = plan_of(false);
    const vow_name name = name_number(1);
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    const vow_hold hold =
        hold_number(1, 1, claim_told(&s, 0, CLAIM(1, 1)).record.epoch);
    world_advance_ms(&w, LEASE_MS - 100);
    CHECK_UINT_EQ(pulse_told(&s, 0, &hold, 1).record.status, VOW_STATUS_OWNED);
    world_advance_ms(&w, LEASE_MS - 100);
    cas_memory_cut(s.service[0], true);
    s.store[0]->ops->pulse(s.store[0], &hold, 1, LEASE_MS, on_told, &pulse);
    world_advance_ms(&w, 1900); /* the lease is over, the pulse is on its way */
    s.store[1]->ops->cancel(s.store[1], &name, on_told, &cancel);
    CHECK_UINT_EQ(wait_told(&s, &cancel).record.status, VOW_STATUS_NONE);
    cas_memory_cut(s.service[0], false);
    CHECK_UINT_EQ(wait_told(&s, &pulse).record.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(claim_told(&s, 1, CLAIM(1, 2)).record.status,
                  VOW_STATUS_WAITING);
    scene_close(&s);
    world_close(&w);
}

/* The service ends the lease of a living process: the names are renewed on a
 * new lease, unless another process was faster. */
TEST(cas, names_survive_the_end_of_their_lease)
{
    struct world w;
    struct scene s;
    vow_hold holds[3];
    struct cas_plan plan = plan_of(true);
    plan.lost_leases = 1000;
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    for (unsigned i = 0; i < 3; i++)
        holds[i] =
            hold_number(i, i, claim_told(&s, 0, CLAIM(i, i)).record.epoch);
    world_advance_ms(&w, LEASE_MS - 100);
    (void)pulse_told(&s, 0, holds, 3); /* the lease at the service is longer */
    world_advance_ms(&w, LEASE_MS - 100);
    struct told t = pulse_told(&s, 0, holds, 3);
    CHECK_UINT_EQ(cas_world_faults(s.server).leases, 1);
    CHECK_INT_EQ(t.code, 0);
    CHECK_UINT_EQ(t.record.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(t.record.epoch, holds[0].epoch);
    for (unsigned i = 0; i < 3; i++)
        CHECK_UINT_EQ(claim_told(&s, 1, CLAIM(i, 100 + i)).record.status,
                      VOW_STATUS_WAITING);
    scene_close(&s);
    world_close(&w);
}

/* ---- orphaned claims ----------------------------------------------------- */

/* A claim in mode once without an answer, in a process that lives on. The
 * request is lost, or is done, or comes true later. */
static void check_orphan(struct cas_plan plan)
{
    struct world w;
    struct scene s;
    const struct cas_plan sound = plan_of(true);
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &sound), 0);
    cas_world_set(s.server, &plan);
    struct told t = claim_told(&s, 0, CLAIM(1, 1, .mode = VOW_ONCE));
    CHECK(t.code == VOW_EUNSURE || t.record.status == VOW_STATUS_OWNED);
    cas_world_heal(s.server);
    if (t.code == VOW_EUNSURE) {
        world_advance_ms(&w, 70000);
        CHECK_UINT_EQ(peek_told(&s, 1, 1).record.status, VOW_STATUS_NONE);
        CHECK_UINT_EQ(
            claim_told(&s, 1, CLAIM(1, 2, .mode = VOW_ONCE)).record.status,
            VOW_STATUS_OWNED);
    }
    scene_close(&s);
    world_close(&w);
}

TEST(cas, a_claim_without_an_answer_leaves_no_doubt)
{
    struct cas_plan plan = plan_of(true);
    plan.lost_answers = 1000;
    check_orphan(plan);
    plan.lost_answers = 0;
    plan.lost_requests = 1000;
    check_orphan(plan);
    plan.lost_requests = 0;
    plan.late_writes = 1000;
    plan.late_ms = 20000;
    check_orphan(plan);
}

TEST(cas, a_repeated_claim_adopts_the_orphan)
{
    struct world w;
    struct scene s;
    struct cas_plan plan = plan_of(true);
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    (void)claim_told(&s, 0, CLAIM(2, 2)); /* the lease is granted */
    plan.lost_requests = 1000;
    cas_world_set(s.server, &plan);
    struct told t = claim_told(&s, 0, CLAIM(1, 1, .mode = VOW_ONCE));
    CHECK_INT_EQ(t.code, VOW_EUNSURE);
    cas_world_heal(s.server);
    t = claim_told(&s, 0, CLAIM(1, 1, .mode = VOW_ONCE));
    CHECK_UINT_EQ(t.record.status, VOW_STATUS_OWNED);
    world_advance_ms(&w, 30000); /* the owner is silent, and no orphan */
    CHECK_UINT_EQ(peek_told(&s, 1, 1).record.status, VOW_STATUS_DOUBT);
    scene_close(&s);
    world_close(&w);
}

/* ---- commits without an answer ------------------------------------------- */

/* The commit has happened, and another process has claimed the name since. */
TEST(cas, a_commit_without_an_answer_is_unsure_behind_the_next_run)
{
    struct world w;
    struct scene s;
    struct told t = {.done = 0};
    struct cas_plan plan = plan_of(true);
    const struct cas_plan sound = plan;
    world_open(&w);
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    struct told own = claim_told(&s, 0, CLAIM(1, 1));
    const vow_commit_request q = {.hold = hold_number(1, 1, own.record.epoch),
                                  .outcome = VOW_OUTCOME_DONE};
    plan.lost_answers = 1000;
    cas_world_set(s.server, &plan);
    uint64_t writes = cas_world_writes(s.server);
    s.store[0]->ops->commit(s.store[0], &q, on_told, &t);
    while (cas_world_writes(s.server) == writes)
        world_advance_ms(&w, 0);
    cas_world_set(s.server, &sound);
    CHECK_UINT_EQ(claim_told(&s, 1, CLAIM(1, 2)).record.status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(t.done, 0);
    CHECK_INT_EQ(wait_told(&s, &t).code, VOW_EUNSURE);
    CHECK_UINT_EQ(
        commit_told(&s, 0, &q.hold, VOW_OUTCOME_DONE, NULL, 0).record.status,
        VOW_STATUS_LOST);
    scene_close(&s);
    world_close(&w);
}

/* ---- closing ------------------------------------------------------------- */

TEST(cas, a_close_answers_all_steps_and_gives_back_what_was_claimed)
{
    struct world w;
    struct scene s;
    struct told claims[MANY];
    struct cas_plan plan = plan_of(true);
    plan.delay_ms = 50;
    world_open(&w);
    memset(claims, 0, sizeof(claims));
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    (void)claim_told(&s, 0, CLAIM(1000, 1));
    for (unsigned i = 0; i < MANY; i++)
        s.store[0]->ops->claim(s.store[0], CLAIM(i, i, .mode = VOW_ONCE),
                               on_told, &claims[i]);
    world_advance_ms(&w, 10); /* many requests are on their way */
    scene_close_one(&s, 0);
    CHECK_UINT_EQ(peek_told(&s, 1, 1000).record.status, VOW_STATUS_WAITING);
    for (unsigned i = 0; i < MANY; i++) {
        CHECK_UINT_EQ(claims[i].done, 1);
        if (claims[i].code == 0)
            continue;
        CHECK_INT_EQ(claims[i].code, VOW_ECLOSED);
        CHECK_UINT_EQ(peek_told(&s, 1, i).record.status, VOW_STATUS_NONE);
    }
    scene_close(&s);
    world_close(&w);
}

TEST(cas, a_service_that_is_not_reached_ends_steps_at_the_deadline)
{
    struct world w;
    struct scene s;
    struct cas_plan plan = plan_of(true);
    struct told claims[MANY];
    world_open(&w);
    memset(claims, 0, sizeof(claims));
    CHECK_INT_EQ(scene_open(&s, &w, &plan), 0);
    cas_memory_cut(s.service[0], true);
    for (unsigned i = 0; i < MANY; i++)
        s.store[0]->ops->claim(s.store[0], CLAIM(1, i), on_told, &claims[i]);
    world_advance_ms(&w, TIMEOUT_MS + 100);
    for (unsigned i = 0; i < MANY; i++) {
        CHECK_UINT_EQ(claims[i].done, 1);
        CHECK_INT_EQ(claims[i].code, VOW_ESTORE);
    }
    cas_memory_cut(s.service[0], false);
    CHECK_UINT_EQ(claim_told(&s, 0, CLAIM(1, 1)).record.status,
                  VOW_STATUS_OWNED);
    scene_close(&s);
    world_close(&w);
}

/* ---- failed allocations -------------------------------------------------- */

static bool is_fine(struct world *w, const struct told *t)
{
    CHECK(t->code == 0 || fault_explains(w, t->code));
    return t->code == 0;
}

/* Everything once, with two processes. */
static void sweep_all(struct world *w, bool watch)
{
    struct scene s;
    const struct cas_plan plan = plan_of(watch);
    int rc = scene_open(&s, w, &plan);
    VOW_AUTO(vow_bytes) value = NULL;
    CHECK(rc == 0 || fault_explains(w, rc));
    if (rc == 0)
        rc = vow_bytes_new(w->loop, NULL, 200, &value);
    if (rc < 0) {
        scene_close(&s);
        return;
    }
    struct told t = claim_told(&s, 0, CLAIM(1, 1, .label = "label"));
    if (is_fine(w, &t)) {
        const vow_hold hold = hold_number(1, 1, t.record.epoch);
        struct told chunk = {.done = 0}, read = {.done = 0};
        t = claim_told(&s, 1, CLAIM(1, 2));
        (void)is_fine(w, &t);
        t = pulse_told(&s, 0, &hold, 1);
        (void)is_fine(w, &t);
        s.store[0]->ops->write(s.store[0], &hold, 0, value, on_told, &chunk);
        t = wait_told(&s, &chunk);
        (void)is_fine(w, &t);
        s.store[1]->ops->read(s.store[1], &hold.name, hold.epoch, 0,
                              on_chunks_told, &read);
        t = wait_told(&s, &read);
        (void)is_fine(w, &t);
        t = commit_told(&s, 0, &hold, VOW_OUTCOME_DONE, value, 1000);
        if (is_fine(w, &t)) {
            t = claim_told(&s, 1, CLAIM(1, 2));
            if (is_fine(w, &t))
                CHECK_UINT_EQ(t.record.status, VOW_STATUS_SETTLED);
        }
    }
    struct told list = {.done = 0};
    s.store[1]->ops->list(s.store[1], on_told, &list);
    t = wait_told(&s, &list);
    (void)is_fine(w, &t);
    t = peek_told(&s, 0, 1);
    (void)is_fine(w, &t);
    scene_close(&s);
}

FAULT_SWEEP(cas, every_step_survives_every_fault_with_a_watch, FAULT_ALLOC)
{
    sweep_all(w, true);
}

FAULT_SWEEP(cas, every_step_survives_every_fault_with_registration, FAULT_ALLOC)
{
    sweep_all(w, false);
}
