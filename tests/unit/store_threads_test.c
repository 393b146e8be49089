/* SPDX-License-Identifier: MIT */
/* store_threads_test.c - instances of one memory on several threads. */
#include "store_memory_rig.h"
#include "world.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { WORKERS = 4, HOT_NAMES = 3, ROUNDS = 400, PLACES = 2 };

struct shared {
    vow_memory *memory;
    atomic_int owners[HOT_NAMES]; /* at most one each */
    atomic_int places;            /* at most PLACES */
    atomic_uint runs;
    atomic_uint waits;
    pthread_barrier_t barrier;
};

/* Each round: claim a name, do the work or wait for it; then a place. */
struct worker {
    struct shared *shared;
    vow_loop *loop;
    vow_store *store;
    vow_call next;
    uint64_t seed;
    uint64_t token;
    uint64_t name;
    uint64_t epoch;
    unsigned rounds;
    bool waits;  /* for the name */
    bool queues; /* for a place */
    pthread_t thread;
};

static void worker_round(void *user);
static void worker_place(void *user);

static void worker_soon(struct worker *w, vow_call_fn fn)
{
    vow_call_soon(&w->next, w->loop, fn, w);
}

static void worker_committed(int code, const vow_record *records, size_t n,
                             void *user)
{
    struct worker *w = user;
    CHECK_INT_EQ(code, 0);
    CHECK_UINT_EQ(n, 1);
    CHECK_UINT_EQ(records[0].status, VOW_STATUS_OWNED);
    worker_soon(w, worker_place);
}

static void worker_work(void *user)
{
    struct worker *w = user;
    vow_commit_request ask = {.hold = {.name = name_of(w->name),
                                       .token = token_of(w->token),
                                       .epoch = w->epoch},
                              .outcome = VOW_OUTCOME_DONE};
    atomic_fetch_add(&w->shared->runs, 1);
    CHECK_INT_EQ(atomic_fetch_sub(&w->shared->owners[w->name], 1), 1);
    w->store->ops->commit(w->store, &ask, worker_committed, w);
}

static void worker_claimed(int code, const vow_record *records, size_t n,
                           void *user)
{
    struct worker *w = user;
    CHECK_INT_EQ(code, 0);
    CHECK_UINT_EQ(n, 1);
    if (records[0].status == VOW_STATUS_OWNED) {
        CHECK_INT_EQ(atomic_fetch_add(&w->shared->owners[w->name], 1), 0);
        w->epoch = records[0].epoch;
        worker_soon(w, worker_work);
    } else if (records[0].status == VOW_STATUS_WAITING) {
        atomic_fetch_add(&w->shared->waits, 1);
        w->waits = true;
    } else {
        CHECK_UINT_EQ(records[0].status, VOW_STATUS_SETTLED);
        worker_soon(w, worker_place);
    }
}

static void worker_round(void *user)
{
    struct worker *w = user;
    if (w->rounds++ == ROUNDS) {
        vow_loop_release(w->loop);
        return;
    }
    w->name = test_random(&w->seed) % HOT_NAMES;
    w->token = test_random(&w->seed);
    vow_claim_request ask = {.name = name_of(w->name),
                             .token = token_of(w->token),
                             .lease_ms = 600000,
                             .takeovers = 3,
                             .label = "hot",
                             .runner = "host:1"};
    w->store->ops->claim(w->store, &ask, worker_claimed, w);
}

static void worker_heard(const vow_record *r, void *user)
{
    struct worker *w = user;
    vow_name name = name_of(w->name);
    if (!w->waits || !vow_name_equal(&r->name, &name))
        return;
    CHECK_UINT_EQ(r->status, VOW_STATUS_SETTLED);
    CHECK_STR_EQ(r->label, "hot");
    w->waits = false;
    worker_soon(w, worker_place);
}

static void worker_released(int code, const vow_pool_permit *places, size_t n,
                            void *user)
{
    struct worker *w = user;
    CHECK_INT_EQ(code, 0);
    CHECK_UINT_EQ(n, 1);
    CHECK_UINT_EQ(places[0].status, VOW_STATUS_OWNED);
    worker_soon(w, worker_round);
}

static void worker_leave(void *user)
{
    struct worker *w = user;
    vow_permit_hold hold = {.pool = name_of(99), .token = token_of(w->token)};
    atomic_fetch_sub(&w->shared->places, 1);
    w->store->ops->release(w->store, &hold, worker_released, w);
}

static void worker_placed(int code, const vow_pool_permit *places, size_t n,
                          void *user)
{
    struct worker *w = user;
    CHECK_INT_EQ(code, 0);
    CHECK_UINT_EQ(n, 1);
    w->queues = places[0].status == VOW_STATUS_WAITING;
    if (w->queues)
        return;
    CHECK_UINT_EQ(places[0].status, VOW_STATUS_OWNED);
    CHECK(atomic_fetch_add(&w->shared->places, 1) < PLACES);
    worker_soon(w, worker_leave);
}

static void worker_place(void *user)
{
    struct worker *w = user;
    vow_permit_request ask = {.pool = name_of(99),
                              .limits_of = name_of(99),
                              .token = token_of(w->token),
                              .weight = 1,
                              .lease_ms = 600000,
                              .limits = {.concurrent = PLACES}};
    w->store->ops->acquire(w->store, &ask, worker_placed, w);
}

static void worker_granted(const vow_token *token, void *user)
{
    struct worker *w = user;
    vow_token mine = token_of(w->token);
    if (w->queues && memcmp(token, &mine, sizeof(mine)) == 0)
        worker_place(w);
}

static void *worker_run(void *arg)
{
    struct worker *w = arg;
    CHECK_INT_EQ(vow_loop_new(NULL, &w->loop), 0);
    CHECK_INT_EQ(vow_store_memory_new(w->loop, w->shared->memory, &w->store),
                 0);
    w->store->ops->listen(w->store,
                          &(const vow_store_events){.on_record = worker_heard,
                                                    .on_permit = worker_granted,
                                                    .user = w});
    vow_loop_hold(w->loop);
    worker_soon(w, worker_round);
    (void)pthread_barrier_wait(&w->shared->barrier); /* all begin at once */
    CHECK_INT_EQ(vow_loop_run(w->loop), 0);
    CHECK_UINT_EQ(w->rounds, ROUNDS + 1);
    /* TSan takes a descriptor that is used again for a race. */
    (void)pthread_barrier_wait(&w->shared->barrier);
    close_store(w->loop, w->store);
    CHECK_INT_EQ(vow_loop_close(w->loop), 0);
    return NULL;
}

TEST(store_memory, threads_meet_and_no_wake_up_is_lost)
{
    static struct shared shared;
    static struct worker workers[WORKERS];
    CHECK_INT_EQ(vow_memory_new(NULL, &shared.memory), 0);
    CHECK_INT_EQ(pthread_barrier_init(&shared.barrier, NULL, WORKERS), 0);
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i] =
            (struct worker){.shared = &shared, .seed = test_seed() + i};
        CHECK_INT_EQ(
            pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]),
            0);
    }
    for (size_t i = 0; i < WORKERS; i++)
        CHECK_INT_EQ(pthread_join(workers[i].thread, NULL), 0);
    CHECK(shared.runs > 0);
    CHECK(shared.runs + shared.waits >= ROUNDS * WORKERS);
    CHECK_INT_EQ(pthread_barrier_destroy(&shared.barrier), 0);
    vow_memory_unref(shared.memory);
}

/* Letters are on their way from another thread while their instance closes. */
static void *commit_elsewhere(void *arg)
{
    struct worker *w = arg;
    CHECK_INT_EQ(vow_loop_new(NULL, &w->loop), 0);
    CHECK_INT_EQ(vow_store_memory_new(w->loop, w->shared->memory, &w->store),
                 0);
    CHECK_UINT_EQ(commit(w->store, 1, 1, w->epoch, 0).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(commit(w->store, 2, 2, w->epoch + 1, 0).status,
                  VOW_STATUS_OWNED);
    close_store(w->loop, w->store);
    CHECK_INT_EQ(vow_loop_close(w->loop), 0);
    return NULL;
}

TEST(store_memory, letters_from_another_thread_meet_a_closed_instance)
{
    struct world w;
    struct heard h = {.records = 0};
    struct shared shared = {.memory = NULL};
    world_open_real(&w);
    for (unsigned turn = 0; turn < 2; turn++) {
        struct worker other = {.shared = &shared};
        CHECK_INT_EQ(vow_memory_new(NULL, &shared.memory), 0);
        vow_store *a = open_store(&w, shared.memory);
        vow_store *b = open_store(&w, shared.memory);
        hear(b, &h);
        other.epoch = claim(a, 1, 1).epoch;
        (void)claim(a, 2, 2);
        (void)claim(b, 1, 3);
        (void)claim(b, 2, 4);
        CHECK_INT_EQ(
            pthread_create(&other.thread, NULL, commit_elsewhere, &other), 0);
        CHECK_INT_EQ(pthread_join(other.thread, NULL), 0);
        if (turn == 1)
            world_turn(&w); /* they come before the close */
        CHECK_UINT_EQ(h.records, 2 * turn);
        close_store(w.loop, b);
        close_store(w.loop, a);
        vow_memory_unref(shared.memory);
    }
    world_run(&w);
    world_close(&w);
}
