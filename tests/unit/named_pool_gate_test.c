/* SPDX-License-Identifier: MIT */
/* named_pool_gate_test.c - gates and semaphores of several processes with one
 * pool behind them; the pool of one process; and no memory at every moment. */
#include "fault.h"
#include "named_pool_rig.h"

enum { JOBS = 60, WINDOW_MS = 50 };

struct work {
    vow_oracle *oracle;
    uint64_t seed;
    uint32_t running[2]; /* by process */
    uint32_t most[2];
};

struct job {
    struct work *work;
    size_t process;
    uint32_t weight;
    vow_future *f;
};

static vow_next job_ends(void *job)
{
    struct job *j = job;
    j->work->running[j->process] -= j->weight;
    vow_oracle_end(j->work->oracle, j->weight);
    return vow_ok(vow_nothing());
}

static vow_future *job_starts(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct job *j = arg;
    struct work *w = j->work;
    (void)attempt;
    vow_oracle_start(w->oracle, j->weight, 0);
    w->running[j->process] += j->weight;
    if (w->running[j->process] > w->most[j->process])
        w->most[j->process] = w->running[j->process];
    VOW_AUTO(vow_future) f = vow_delay(loop, test_random(&w->seed) % 40);
    return vow_finally(f, job_ends, j);
}

TEST(named_pool_gate, gates_of_two_processes_stay_within_the_pool_together)
{
    static struct job jobs[JOBS];
    struct rig r;
    struct work w = {.seed = test_seed()};
    vow_gate *gate[2];
    rig_open(&r, 2,
             &(vow_pool_limits){
                 .concurrent = 5, .rate = 7, .window_us = WINDOW_MS * 1000});
    CHECK_INT_EQ(vow_oracle_new(r.w->loop,
                                VOW_ORACLE(.concurrent = 5, .rate = 7,
                                           .window_ms = WINDOW_MS),
                                &w.oracle),
                 0);
    for (size_t i = 0; i < 2; i++)
        CHECK_INT_EQ(
            vow_gate_new(r.w->loop,
                         VOW_GATE(.concurrent = 4,
                                  .backing = vow_pool_backing(r.pool[i])),
                         &gate[i]),
            0);
    for (size_t i = 0; i < JOBS; i++) {
        jobs[i] = (struct job){.work = &w, .process = i % 2};
        jobs[i].weight = 1 + (uint32_t)(test_random(&w.seed) % 3);
        jobs[i].f = vow_gate_run(gate[i % 2], job_starts, &jobs[i],
                                 VOW_JOB(.weight = jobs[i].weight));
    }
    for (size_t i = 0; i < JOBS; i++) {
        CHECK_INT_EQ(vow_loop_run_until(r.w->loop, jobs[i].f), 0);
        vow_future_unref(jobs[i].f);
    }
    vow_oracle_stats seen = vow_oracle_stats_get(w.oracle);
    CHECK_UINT_EQ(seen.starts, JOBS);
    CHECK_UINT_EQ(seen.checked, JOBS);
    CHECK_UINT_EQ(seen.breaches, 0);
    for (size_t i = 0; i < 2; i++) {
        CHECK(w.most[i] > 1 && w.most[i] <= 4);
        vow_gate_unref(gate[i]);
    }
    world_turn(r.w);
    CHECK_POOL(&r, 0, 0);
    vow_oracle_unref(w.oracle);
    rig_close(&r);
}

static vow_future *job_sleeps(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    (void)arg;
    return vow_delay(loop, 60000);
}

TEST(named_pool_gate, a_job_whose_place_is_lost_is_canceled)
{
    struct rig r;
    vow_gate *gate;
    rig_open(&r, 1, &(vow_pool_limits){.concurrent = 2});
    CHECK_INT_EQ(vow_gate_new(r.w->loop,
                              VOW_GATE(.backing = vow_pool_backing(r.pool[0])),
                              &gate),
                 0);
    VOW_AUTO(vow_future) job = vow_gate_run(gate, job_sleeps, NULL, NULL);
    VOW_AUTO(vow_future) f = vow_gate_enter(gate, NULL);
    world_advance_ms(r.w, 5000);
    CHECK_PENDING(job);
    vow_permit p = vow_permit_take(vow_get(f));
    CHECK(vow_permit_fence(&p) > 0);
    r.line[0].forgets = true;
    CHECK_INT_EQ(vow_loop_run_until(r.w->loop, vow_permit_lost(&p)), VOW_ELOST);
    CHECK_INT_EQ(vow_loop_run_until(r.w->loop, job), VOW_ECANCELED);
    CHECK_INT_EQ(vow_error_code(vow_error_cause(vow_error_of(job))), VOW_ELOST);
    vow_permit_release(&p);
    f = vow_future_unref(f);
    job = vow_future_unref(job);
    vow_gate_unref(gate);
    rig_close(&r);
}

TEST(named_pool_gate, keys_of_a_gate_are_keys_of_the_pool)
{
    struct rig r;
    vow_gate *gate;
    rig_open(&r, 2, &(vow_pool_limits){.concurrent = 1});
    CHECK_INT_EQ(vow_gate_new(r.w->loop,
                              VOW_GATE(.backing = vow_pool_backing(r.pool[0])),
                              &gate),
                 0);
    vow_grant *a = rig_take(&r, vow_pool_acquire(r.pool[1], "a", 1));
    vow_future *in_a = vow_gate_enter(gate, VOW_JOB(.key = "a"));
    vow_future *in_b = vow_gate_enter(gate, VOW_JOB(.key = "b"));
    world_advance_ms(r.w, 3000);
    CHECK_PENDING(in_a);
    CHECK_INT_EQ(vow_state_of(in_b), VOW_FULFILLED);
    vow_grant_release(a);
    world_turn(r.w);
    CHECK_INT_EQ(vow_state_of(in_a), VOW_FULFILLED);
    vow_future_unref(in_a); /* with it goes what nobody took */
    vow_future_unref(in_b);
    world_turn(r.w);
    vow_gate_unref(gate);
    rig_close(&r);
}

TEST(named_pool_gate, a_semaphore_has_a_name_by_its_backing)
{
    struct rig r;
    vow_sem *sem[2];
    rig_open(&r, 2, &(vow_pool_limits){.concurrent = 3});
    for (size_t i = 0; i < 2; i++) {
        CHECK_INT_EQ(
            vow_sem_new(r.w->loop,
                        VOW_SEM_OPTS(.permits = 2,
                                     .backing = vow_pool_backing(r.pool[i])),
                        &sem[i]),
            0);
        r.pool[i] = vow_pool_unref(r.pool[i]); /* the semaphore keeps it */
    }
    vow_future *f[2] = {vow_sem_acquire(sem[0], 2), vow_sem_acquire(sem[1], 2)};
    world_advance_ms(r.w, 3000);
    vow_permit a = vow_permit_take(vow_get(f[0]));
    CHECK(vow_permit_held(&a));
    CHECK_PENDING(f[1]);
    vow_permit_release(&a);
    world_turn(r.w);
    vow_permit b = vow_permit_take(vow_get(f[1]));
    CHECK(vow_permit_held(&b));
    vow_permit_release(&b);
    for (size_t i = 0; i < 2; i++) {
        vow_future_unref(f[i]);
        vow_sem_unref(sem[i]);
    }
    world_turn(r.w);
    CHECK_POOL(&r, 0, 0);
    rig_close(&r);
}

/* ---- a store of one process ---------------------------------------------- */

static vow_authority *open_alone(struct world *w)
{
    VOW_AUTO(vow_future) f = vow_authority_open(w->loop, "memory:", NULL);
    CHECK_INT_EQ(vow_loop_run_until(w->loop, f), 0);
    return vow_authority_ref(vow_as_ptr(vow_get(f)));
}

static void close_alone(struct world *w, vow_authority *a)
{
    VOW_AUTO(vow_future) f = vow_authority_close(a);
    CHECK_INT_EQ(vow_loop_run_until(w->loop, f), 0);
    vow_authority_unref(a);
}

TEST(named_pool_gate, what_nobody_else_can_see_does_not_keep_the_loop_running)
{
    struct world w;
    vow_pool *p;
    world_open(&w);
    vow_authority *a = open_alone(&w);
    CHECK_INT_EQ(vow_pool_open(a, "x",
                               VOW_POOL(.limits = {.concurrent = 2,
                                                   .rate = 1,
                                                   .window_us = 5000000}),
                               &p),
                 0);
    vow_future *f = vow_pool_acquire(p, NULL, 1);
    world_run(&w);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 0);
    vow_grant *g = vow_grant_take(vow_get(f));
    CHECK(g != NULL);
    vow_future_unref(f);
    f = vow_pool_acquire(p, NULL, 1); /* but who waits for time does */
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), 0);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop) / 1000, 5000001);
    vow_future_unref(f);
    world_advance_ms(&w, 60000);
    CHECK_PENDING(g->lost); /* and while it runs, it is renewed */
    world_run(&w);
    vow_grant_release(g);
    vow_pool_unref(p);
    close_alone(&w, a);
    world_close(&w);
}

TEST(named_pool_gate, more_than_the_authority_allows_is_refused)
{
    struct world w;
    vow_pool *p;
    world_open(&w);
    VOW_AUTO(vow_future)
    open = vow_authority_open(w.loop, "memory:", VOW_AUTHORITY(.names_max = 2));
    CHECK_INT_EQ(vow_loop_run_until(w.loop, open), 0);
    vow_authority *a = vow_authority_ref(vow_as_ptr(vow_get(open)));
    open = vow_future_unref(open);
    CHECK_INT_EQ(vow_pool_open(a, "x", VOW_POOL(.limits.concurrent = 1), &p),
                 0);
    vow_future *f[3];
    for (size_t i = 0; i < 3; i++)
        f[i] = vow_pool_acquire(p, NULL, 1);
    world_turn(&w);
    CHECK_PENDING(f[1]);
    CHECK_CODE(f[2], VOW_EQUEUEFULL);
    CHECK(vow_cancel(f[1], NULL));
    for (size_t i = 0; i < 3; i++)
        vow_future_unref(f[i]);
    vow_pool_unref(p);
    close_alone(&w, a);
    world_close(&w);
}

/* ---- no memory ----------------------------------------------------------- */

static int use_pools(struct rig *r)
{
    vow_future *f[4] = {vow_pool_acquire(r->pool[0], NULL, 1),
                        vow_pool_acquire(r->pool[1], NULL, 1),
                        vow_pool_acquire(r->pool[1], "key", 1),
                        vow_pool_acquire(r->pool[1], NULL, 1)};
    int rc = 0;
    world_advance_ms(r->w, 10);
    (void)vow_cancel(f[3], NULL);
    VOW_AUTO(vow_future)
    read = vow_pool_limit(r->at[0], "api",
                          &(const vow_pool_limits){.concurrent = 1});
    (void)vow_loop_run_until(r->w->loop, read);
    world_advance_ms(r->w, 2 * LEASE_MS);
    for (size_t i = 0; i < 4; i++) {
        for (int ms = 0; vow_state_of(f[i]) == VOW_PENDING; ms++) {
            world_advance_ms(r->w, 1);
            CHECK(ms < 2 * LEASE_MS); /* nobody is forgotten */
        }
        vow_grant *g = vow_grant_take(vow_get(f[i]));
        int code = vow_error_code(vow_error_of(f[i]));
        if (g != NULL && vow_error_of(g->lost) != NULL)
            code = fault_fired(r->w) ? VOW_ENOMEM : VOW_ELOST;
        if (i < 3 && rc == 0)
            rc = code;
        CHECK(g != NULL || code < 0);
        vow_grant_release(g);
        vow_future_unref(f[i]);
    }
    return rc == 0 ? vow_error_code(vow_error_of(read)) : rc;
}

FAULT_SWEEP(named_pool_gate, every_lack_of_memory_is_survived, FAULT_ALLOC)
{
    static struct rig r;
    memset(&r, 0, sizeof(r));
    int rc = rig_open_in(&r, w, 2, &(vow_pool_limits){.concurrent = 1});
    if (rc == 0)
        rc = use_pools(&r);
    CHECK(rc == 0 || fault_explains(w, rc));
    rig_close(&r);
}
