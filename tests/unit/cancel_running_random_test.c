/* SPDX-License-Identifier: MIT */
/* cancel_running_random_test.c - ten at once, whatever chains the jobs return
 * and however they are ended: never eleven. The seed of a failure is told. */
#include "cancel_rig.h"

enum { LIMIT = 10, JOBS = 300, DEPTH = 4, RUNS = 60 };

struct chance {
    struct world w;
    uint64_t seed;
    vow_gate *g;
    vow_sem *s;      /* one of the two */
    vow_gate *inner; /* without limits */
    bool real;       /* the clock is */
    vow_oracle *o;
    vow_scope *scope;
    atomic_int running;
    int most;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    struct chance_job {
        struct chance *of;
        enum body_kind kind;
        bool obeys; /* ends when it is asked to */
        uint64_t end_ns;
        vow_deferred *end;
        vow_call call;
        vow_range range;
        bool begun, ended, released;
        vow_future *kept;
        vow_future *f;
    } jobs[JOBS];
};

static uint64_t draw_below(struct chance *c, uint64_t n)
{
    return test_random(&c->seed) % n;
}

static void chance_ends(struct chance_job *j)
{
    CHECK(!j->ended);
    j->ended = true;
    atomic_fetch_sub(&j->of->running, 1);
}

/* ---- bodies that take their time ----------------------------------------- */

static vow_next chance_fiber(void *arg)
{
    struct chance_job *j = arg;
    vow_loop *loop = j->of->w.loop;
    uint64_t now = vow_loop_now_ns(loop);
    while (now < j->end_ns && !(j->obeys && vow_fiber_canceled(loop))) {
        (void)vow_sleep(loop, (j->end_ns - now) / 1000000 + 1);
        now = vow_loop_now_ns(loop);
    }
    chance_ends(j);
    return vow_ok(vow_nothing());
}

static void chance_finish(void *arg)
{
    struct chance_job *j = arg;
    chance_ends(j);
    (void)vow_resolve_drop(j->end, vow_nothing());
    j->end = NULL;
}

static void chance_asked(vow_error *why, void *arg)
{
    struct chance_job *j = arg;
    (void)why;
    if (j->obeys && j->end != NULL) {
        (void)vow_call_stop(&j->call);
        chance_finish(j);
    }
}

/* Ends when the test says so. */
static vow_next chance_work(vow_job *job, void *arg)
{
    struct chance_job *j = arg;
    (void)job;
    (void)pthread_mutex_lock(&j->of->lock);
    j->begun = true;
    (void)pthread_cond_broadcast(&j->of->moved);
    while (!j->released)
        (void)pthread_cond_wait(&j->of->moved, &j->of->lock);
    (void)pthread_mutex_unlock(&j->of->lock);
    chance_ends(j);
    return vow_ok(vow_nothing());
}

static void chance_begins(struct chance_job *j)
{
    struct chance *c = j->of;
    int now = atomic_fetch_add(&c->running, 1) + 1;
    c->most = now > c->most ? now : c->most;
    if (now > LIMIT)
        FAIL("%d run at once, the limit is %d", now, LIMIT);
    j->end_ns = vow_loop_due_ns(c->w.loop, draw_below(c, 40));
}

static vow_future *chance_body(struct chance_job *j)
{
    vow_loop *loop = j->of->w.loop;
    vow_future *f;
    chance_begins(j);
    switch (j->kind) {
    case BODY_FIBER:
        return vow_async(loop, chance_fiber, j);
    case BODY_WORK:
        f = vow_work(loop, chance_work, j);
        (void)pthread_mutex_lock(&j->of->lock);
        while (!j->begun) /* else a cancel would keep it from running */
            (void)pthread_cond_wait(&j->of->moved, &j->of->lock);
        (void)pthread_mutex_unlock(&j->of->lock);
        return f;
    case BODY_PROMISE:
    default:
        f = vow_promise(loop, &j->end);
        vow_on_cancel(j->end, chance_asked, j);
        vow_call_at(&j->call, loop, j->end_ns, chance_finish, j);
        return f;
    }
}

static vow_future *chance_attempt(vow_loop *loop, uint32_t attempt, void *job)
{
    (void)loop;
    (void)attempt;
    return chance_body(job);
}

static vow_future *chance_item(vow_loop *loop, vow_value item, size_t index,
                               void *job)
{
    (void)loop;
    (void)item;
    (void)index;
    return chance_body(job);
}

/* The body itself, or one that a function of the library begins. */
static vow_future *chance_begin(struct chance_job *j)
{
    struct chance *c = j->of;
    vow_loop *loop = c->w.loop;
    vow_future *f;
    switch (draw_below(c, 10)) {
    case 0:
        return vow_retry(loop, chance_attempt, j, VOW_RETRY(.tries = 1));
    case 1:
        return vow_hedge(loop, chance_attempt, j, VOW_HEDGE(.most = 1));
    case 2:
        return vow_gate_run(c->inner, chance_attempt, j, NULL);
    case 3:
        return vow_map(loop, vow_source_range(&j->range, 0, 1), chance_item, j,
                       VOW_MAP(.concurrent = 1, .discard = true));
    default:
        f = chance_body(j);
        if (draw_below(c, 4) == 0)
            j->kept = vow_future_ref(f);
        return f;
    }
}

static vow_future *chance_start(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct chance_job *j = arg;
    struct chance *c = j->of;
    (void)attempt;
    vow_future *f = chance_begin(j);
    for (uint64_t n = draw_below(c, DEPTH + 1); n > 0; n--) {
        enum body_wrap wrap = (enum body_wrap)draw_below(c, WRAP_LINKS);
        if (wrap == WRAP_FOLLOW || wrap == WRAP_FINALLY_FOLLOW)
            wrap = WRAP_THEN; /* a step that never runs drops no future */
        if (wrap == WRAP_RACE && c->real)
            wrap = WRAP_ALL; /* its loser would keep the loop for an hour */
        f = chain_link(loop, wrap, f);
    }
    if (draw_below(c, 8) == 0) {
        vow_future *in = vow_timeout(f, draw_below(c, 30));
        vow_future_unref(f);
        f = in;
    }
    return f;
}

/* ---- what is done to the jobs -------------------------------------------- */

static void chance_ask(struct chance *c, struct chance_job *j)
{
    vow_future *f;
    j->of = c;
    j->obeys = draw_below(c, 3) == 0;
    if (c->s != NULL)
        f = vow_sem_with(c->s, 1, chance_start, j);
    else
        f = vow_gate_run(c->g, chance_start, j,
                         VOW_JOB(.priority = (int32_t)draw_below(c, 4),
                                 .key = draw_below(c, 3) == 0 ? "k" : NULL,
                                 .deadline_ms = draw_below(c, 4) == 0
                                                    ? 1 + draw_below(c, 60)
                                                    : 0));
    switch (draw_below(c, 4)) {
    case 0:
        j->f = vow_timeout(f, draw_below(c, 60));
        break;
    case 1:
        j->f = vow_scope_add(c->scope, f);
        break;
    case 2:
        j->f = vow_then(f, chain_ok, NULL, NULL);
        break;
    default:
        j->f = vow_future_ref(f);
        break;
    }
    vow_future_unref(f);
}

static void chance_release(struct chance *c, struct chance_job *j)
{
    (void)pthread_mutex_lock(&c->lock);
    j->released = true;
    (void)pthread_cond_broadcast(&c->moved);
    (void)pthread_mutex_unlock(&c->lock);
}

/* Cancels some of those that were asked for. */
static void chance_cancel(struct chance *c, int asked)
{
    for (uint64_t n = draw_below(c, 4); n > 0; n--)
        (void)vow_cancel(c->jobs[draw_below(c, (uint64_t)asked)].f, NULL);
    if (draw_below(c, 60) == 0) {
        (void)vow_scope_cancel(c->scope, NULL);
        vow_scope_unref(c->scope);
        CHECK_INT_EQ(vow_scope_new(c->w.loop, NULL, &c->scope), 0);
    }
    if (c->g != NULL && draw_below(c, 100) == 0)
        vow_gate_clear(c->g, NULL);
}

static void chance_open(struct chance *c, uint64_t seed, bool sem)
{
    c->seed = seed;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->moved, NULL);
    CHECK_INT_EQ(vow_scope_new(c->w.loop, NULL, &c->scope), 0);
    CHECK_INT_EQ(vow_gate_new(c->w.loop, NULL, &c->inner), 0);
    CHECK_INT_EQ(
        vow_oracle_new(c->w.loop, VOW_ORACLE(.concurrent = LIMIT), &c->o), 0);
    if (sem)
        CHECK_INT_EQ(
            vow_sem_new(c->w.loop, VOW_SEM_OPTS(.permits = LIMIT), &c->s), 0);
    else
        CHECK_INT_EQ(vow_gate_new(c->w.loop,
                                  VOW_GATE(.concurrent = LIMIT, .oracle = c->o),
                                  &c->g),
                     0);
}

/* All has ended and settled; nothing is left. */
static void chance_close(struct chance *c)
{
    world_run(&c->w);
    CHECK_INT_EQ(atomic_load(&c->running), 0);
    CHECK_UINT_EQ(vow_oracle_stats_get(c->o).breaches, 0);
    for (int i = 0; i < JOBS; i++) {
        struct chance_job *j = &c->jobs[i];
        if (vow_state_of(j->f) == VOW_PENDING)
            FAIL("job %d never settles", i);
        (void)vow_error_of(j->f);
        vow_future_unref(j->f);
        vow_future_unref(j->kept);
    }
    vow_permit p = {0}; /* all places are back */
    if (c->s != NULL)
        CHECK(vow_sem_try(c->s, LIMIT, &p));
    else
        CHECK(vow_gate_try(c->g, VOW_JOB(.weight = LIMIT), &p));
    vow_permit_release(&p);
    vow_sem_unref(c->s);
    vow_gate_unref(c->g);
    vow_gate_unref(c->inner);
    vow_oracle_unref(c->o);
    vow_scope_unref(c->scope);
    world_run(&c->w);
    world_close(&c->w);
    (void)pthread_mutex_destroy(&c->lock);
    (void)pthread_cond_destroy(&c->moved);
}

static void try_chance(uint64_t seed, bool sem)
{
    static struct chance c;
    c = (struct chance){.seed = seed};
    world_open(&c.w);
    chance_open(&c, seed, sem);
    for (int i = 0; i < JOBS;) {
        for (uint64_t n = 1 + draw_below(&c, 4); n > 0 && i < JOBS; n--, i++) {
            c.jobs[i].kind = draw_below(&c, 2) == 0 ? BODY_FIBER : BODY_PROMISE;
            chance_ask(&c, &c.jobs[i]);
        }
        world_advance_ms(&c.w, draw_below(&c, 5));
        chance_cancel(&c, i);
    }
    CHECK_INT_EQ(c.most, LIMIT);
    chance_close(&c);
}

TEST(cancel_running_random, a_gate_of_ten_never_runs_eleven)
{
    uint64_t seed = test_seed();
    for (int i = 0; i < RUNS; i++)
        try_chance(test_random(&seed), false);
}

TEST(cancel_running_random, a_semaphore_of_ten_never_runs_eleven)
{
    uint64_t seed = test_seed();
    for (int i = 0; i < RUNS; i++)
        try_chance(test_random(&seed), true);
}

/* Jobs on threads, on the real clock. The test lets them end one after the
 * other, so that all places are taken most of the time. */
TEST(cancel_running_random, a_gate_of_ten_never_runs_eleven_on_threads)
{
    static struct chance c = {.real = true};
    world_open_with(&c.w, VOW_LOOP_OPTS(.flags = WORLD_REAL_TIME,
                                        .work_threads = LIMIT + 4));
    chance_open(&c, test_seed(), false);
    for (int i = 0; i < JOBS;) {
        for (uint64_t n = 1 + draw_below(&c, 4); n > 0 && i < JOBS; n--, i++) {
            c.jobs[i].kind = (enum body_kind)draw_below(&c, BODY_KINDS);
            chance_ask(&c, &c.jobs[i]);
        }
        VOW_AUTO(vow_future) f = vow_delay(c.w.loop, draw_below(&c, 2));
        CHECK_INT_EQ(vow_loop_run_until(c.w.loop, f), 0);
        chance_cancel(&c, i);
        for (int n = 0; n < 8; n++)
            chance_release(&c, &c.jobs[draw_below(&c, (uint64_t)i)]);
    }
    for (int i = 0; i < JOBS; i++)
        chance_release(&c, &c.jobs[i]);
    chance_close(&c);
}
