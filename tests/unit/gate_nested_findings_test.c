/* SPDX-License-Identifier: MIT */
/* gate_nested_findings_test.c - jobs inside jobs: what becomes of a lent job
 * when its lender has ended, what waits behind one that is stuck, how wide lent
 * jobs run, and how much a long line of jobs that start each other keeps. */
#include "harness.h"
#include "load.h"

#include <string.h>

/* A job that asks for others of the same gate. */
struct asker {
    struct load l; /* the inner ones run here */
    const vow_job_opts *inner;
    uint64_t run_ms;        /* of itself, when it does not wait for them */
    struct load_job *asked; /* the last one */
    vow_future *f;          /* of one in between */
};

static struct load_job *ask(struct asker *a, uint64_t run_ms)
{
    struct load_job *j = load_job(&a->l, run_ms);
    if (a->inner != NULL && a->inner->weight > 0)
        j->weight = a->inner->weight;
    j->f = vow_gate_run(a->l.gate, load_start, j, a->inner);
    a->asked = j;
    return j;
}

static void asker_open(struct asker *a, const vow_gate_opts *opts)
{
    memset(a, 0, sizeof(*a));
    load_open(&a->l, opts);
}

/* Nothing of its jobs is left in the gate. */
static void check_idle(const struct load *l)
{
    CHECK_UINT_EQ(load_stats(l).running, 0);
    CHECK_UINT_EQ(load_stats(l).weight, 0);
    CHECK_UINT_EQ(load_stats(l).waiting, 0);
}

/* ---- a lent job whose lender has ended ----------------------------------- */

static vow_next ask_and_follow(vow_value v, void *user)
{
    (void)v;
    return vow_follow(vow_future_ref(ask(user, 0)->f));
}

static vow_future *ask_after_50_ms(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    return vow_then_drop(vow_delay(loop, 50), ask_and_follow, NULL, arg);
}

static vow_future *lend_and_end(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct asker *a = arg;
    (void)attempt;
    a->f = vow_gate_run(a->l.gate, ask_after_50_ms, a,
                        VOW_JOB(.nested = VOW_NESTED_LEND));
    return vow_delay(loop, 10);
}

/* The lent one holds the only place, though it is not its own. */
static int code_under_a_lent_one(uint32_t nested)
{
    struct asker a;
    asker_open(&a, VOW_GATE(.concurrent = 1));
    a.inner = VOW_JOB(.nested = nested);
    vow_future *lender = vow_gate_run(a.l.gate, lend_and_end, &a, NULL);
    world_run(a.l.w);
    CHECK_INT_EQ(vow_state_of(lender), VOW_FULFILLED);
    CHECK(vow_state_of(a.f) != VOW_PENDING);
    int code = vow_error_code(vow_error_of(a.f));
    CHECK_INT_EQ(load_code(a.asked), code);
    check_idle(&a.l);
    vow_future_unref(lender);
    vow_future_unref(a.f);
    load_close(&a.l);
    return code;
}

TEST(gate, under_a_lent_job_whose_lender_has_ended_deadlock_is_refused)
{
    CHECK_INT_EQ(code_under_a_lent_one(VOW_NESTED_REFUSE), VOW_EDEADLK);
}

TEST(gate, a_lent_job_whose_lender_has_ended_may_lend_on)
{
    CHECK_INT_EQ(code_under_a_lent_one(VOW_NESTED_LEND), 0);
}

/* Paused, so that what it asks for cannot begin before it has ended. */
static vow_future *ask_in_a_pause(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct asker *a = arg;
    (void)attempt;
    vow_gate_report(a->l.gate, NULL, 50);
    (void)ask(a, 20);
    return vow_delay(loop, a->run_ms);
}

static vow_next wait_for_the_asked(vow_value v, void *user)
{
    struct asker *a = user;
    (void)v;
    return vow_follow(vow_future_ref(a->asked->f));
}

static vow_future *wait_for_all_below(vow_loop *loop, uint32_t attempt,
                                      void *arg)
{
    struct asker *a = arg;
    (void)loop;
    (void)attempt;
    vow_future *middle = vow_gate_run(a->l.gate, ask_in_a_pause, a,
                                      VOW_JOB(.nested = VOW_NESTED_LEND));
    return vow_then_drop(middle, wait_for_the_asked, NULL, a);
}

TEST(gate, an_orphaned_lent_job_goes_to_the_job_above)
{
    for (uint64_t run_ms = 0; run_ms <= 10; run_ms += 10) {
        struct asker a;
        asker_open(&a, VOW_GATE(.concurrent = 1));
        a.run_ms = run_ms;
        a.inner = VOW_JOB(.nested = VOW_NESTED_LEND);
        vow_future *f = vow_gate_run(a.l.gate, wait_for_all_below, &a, NULL);
        struct load_job *stranger = load_run(&a.l, 0, NULL);
        world_run(a.l.w);
        CHECK_INT_EQ(vow_error_code(vow_error_of(f)), 0);
        CHECK_INT_EQ(load_code(a.asked), 0);
        CHECK_INT_EQ(load_code(stranger), 0);
        CHECK_STR_EQ(a.l.order, "ba"); /* in the place that was held */
        CHECK_UINT_EQ(load_ms(&a.l, 1), 70);
        check_idle(&a.l);
        vow_future_unref(f);
        load_close(&a.l);
    }
}

/* Too heavy for whoever is above: it could only wait for ever. */
static vow_future *wait_with_less(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct asker *a = arg;
    (void)loop;
    (void)attempt;
    vow_future *middle =
        vow_gate_run(a->l.gate, ask_in_a_pause, a, VOW_JOB(.weight = 2));
    return vow_then_drop(middle, wait_for_the_asked, NULL, a);
}

TEST(gate, an_orphaned_lent_job_that_none_above_can_carry_joins_the_line)
{
    struct asker a;
    asker_open(&a, VOW_GATE(.concurrent = 3));
    a.inner = VOW_JOB(.weight = 2, .nested = VOW_NESTED_LEND);
    vow_future *f = vow_gate_run(a.l.gate, wait_with_less, &a, NULL);
    world_run(a.l.w);
    CHECK(vow_state_of(f) != VOW_PENDING);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), 0);
    CHECK_INT_EQ(load_code(a.asked), 0);
    CHECK(a.l.peak <= 3);
    check_idle(&a.l);
    vow_future_unref(f);
    load_close(&a.l);
}

TEST(gate, an_orphaned_lent_job_without_any_above_waits_as_all_others)
{
    struct world w;
    struct asker a;
    vow_oracle *o;
    memset(&a, 0, sizeof(a));
    world_open(&w);
    CHECK_INT_EQ(vow_oracle_new(w.loop, VOW_ORACLE(.concurrent = 1), &o), 0);
    CHECK_INT_EQ(load_join(&a.l, &w, VOW_GATE(.concurrent = 1, .oracle = o)),
                 0);
    a.run_ms = 10;
    a.inner = VOW_JOB(.nested = VOW_NESTED_LEND);
    vow_future *f = vow_gate_run(a.l.gate, ask_in_a_pause, &a, NULL);
    struct load_job *other = load_run(&a.l, 30, NULL);
    world_run(&w);
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    CHECK_INT_EQ(load_code(other), 0);
    CHECK_INT_EQ(load_code(a.asked), 0);
    CHECK_UINT_EQ(a.l.peak, 1);
    CHECK_UINT_EQ(vow_oracle_stats_get(o).breaches, 0);
    check_idle(&a.l);
    vow_future_unref(f);
    vow_oracle_unref(o);
    load_drop(&a.l);
    world_close(&w);
}

/* ---- behind one that is stuck -------------------------------------------- */

static vow_future *ask_behind_a_big_one(vow_loop *loop, uint32_t attempt,
                                        void *arg)
{
    struct asker *a = arg;
    (void)loop;
    (void)attempt;
    (void)ask(a, 0); /* waits until this one has ended */
    a->inner = NULL;
    return vow_future_ref(ask(a, 0)->f);
}

static int code_behind(const vow_job_opts *big)
{
    struct asker a;
    asker_open(&a, VOW_GATE(.concurrent = 2));
    a.inner = big;
    vow_future *f = vow_gate_run(a.l.gate, ask_behind_a_big_one, &a, NULL);
    world_run(a.l.w);
    CHECK(vow_state_of(f) != VOW_PENDING);
    int code = vow_error_code(vow_error_of(f));
    CHECK_INT_EQ(load_code(&a.l.jobs[0]), 0); /* the big one */
    CHECK_INT_EQ(load_code(&a.l.jobs[1]), code);
    check_idle(&a.l);
    vow_future_unref(f);
    load_close(&a.l);
    return code;
}

TEST(gate, waiting_behind_a_stuck_job_is_refused)
{
    CHECK_INT_EQ(code_behind(VOW_JOB(.weight = 2, .nested = VOW_NESTED_APART)),
                 VOW_EDEADLK);
}

TEST(gate, waiting_behind_a_stuck_job_of_a_higher_level_is_refused)
{
    CHECK_INT_EQ(code_behind(VOW_JOB(.weight = 2, .priority = 5,
                                     .nested = VOW_NESTED_APART)),
                 VOW_EDEADLK);
}

TEST(gate, waiting_behind_a_stuck_job_of_another_key_is_refused)
{
    CHECK_INT_EQ(code_behind(VOW_JOB(.weight = 2, .key = "k",
                                     .nested = VOW_NESTED_APART)),
                 VOW_EDEADLK);
}

TEST(gate, waiting_before_a_stuck_job_of_a_lower_level_is_not_refused)
{
    CHECK_INT_EQ(code_behind(VOW_JOB(.weight = 2, .priority = -5,
                                     .nested = VOW_NESTED_APART)),
                 0);
}

/* ---- how wide ------------------------------------------------------------ */

enum { LENT = 24 };

struct wide {
    struct asker a;
    uint32_t weight; /* of the lender */
    uint64_t random;
};

static vow_future *ask_for_many(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct wide *x = arg;
    vow_future *all[LENT];
    (void)attempt;
    for (int i = 0; i < LENT; i++) {
        uint64_t r = test_random(&x->random);
        x->a.inner = VOW_JOB(.weight = (uint32_t)(r % x->weight) + 1,
                             .priority = (int32_t)(r >> 8 & 3),
                             .key = (r >> 16 & 1) != 0 ? "k" : NULL,
                             .nested = VOW_NESTED_LEND);
        all[i] = ask(&x->a, (r >> 24) % 20)->f;
    }
    return vow_all(loop, all, LENT);
}

/* With changes that call back what was let in and has not begun. */
static void disturb(struct wide *x)
{
    vow_gate *g = x->a.l.gate;
    uint64_t r = test_random(&x->random);
    vow_gate_opts o = vow_gate_get(g);
    if (r % 3 == 0) {
        vow_gate_pause(g);
        vow_gate_resume(g);
    } else if (r % 3 == 1) {
        CHECK_INT_EQ(vow_gate_set(g, &o), 0);
    } else {
        vow_gate_report(g, (r >> 8 & 1) != 0 ? "k" : NULL, (r >> 9) % 5);
    }
}

TEST(gate, lent_jobs_never_run_wider_than_their_lender)
{
    uint64_t random = test_seed();
    for (int round = 0; round < 50; round++) {
        struct world w;
        struct wide x;
        vow_oracle *o;
        memset(&x, 0, sizeof(x));
        x.random = test_random(&random);
        x.weight = (uint32_t)(x.random % 4) + 1;
        world_open(&w);
        CHECK_INT_EQ(
            vow_oracle_new(w.loop, VOW_ORACLE(.concurrent = x.weight), &o), 0);
        CHECK_INT_EQ(load_join(&x.a.l, &w,
                               VOW_GATE(.concurrent = x.weight, .oracle = o)),
                     0);
        vow_future *f = vow_gate_run(x.a.l.gate, ask_for_many, &x,
                                     VOW_JOB(.weight = x.weight));
        for (int i = 0; i < 40; i++) {
            world_advance_ms(&w, test_random(&x.random) % 10);
            disturb(&x);
        }
        world_run(&w);
        CHECK_INT_EQ(vow_error_code(vow_error_of(f)), 0);
        CHECK_UINT_EQ(x.a.l.n_starts, LENT);
        CHECK(x.a.l.peak <= x.weight);
        CHECK_UINT_EQ(vow_oracle_stats_get(o).breaches, 0);
        check_idle(&x.a.l);
        vow_future_unref(f);
        vow_oracle_unref(o);
        load_drop(&x.a.l);
        world_close(&w);
    }
}

/* ---- jobs that start the next one ---------------------------------------- */

enum { SHORT_LINE = 500, LONG_LINE = 5000 };

struct line {
    vow_gate *gate;
    vow_start_fn start;
    int left;
};

static void line_next(struct line *x)
{
    if (x->left-- > 0)
        vow_future_unref(vow_gate_run(x->gate, x->start, x, NULL));
}

static vow_next next_in_a_step(vow_value v, void *user)
{
    (void)v;
    line_next(user);
    return vow_ok(vow_nothing());
}

static vow_future *next_at_once(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    line_next(arg);
    return vow_resolved(loop, vow_nothing());
}

static vow_future *next_when_over(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    CHECK_INT_EQ(vow_done(vow_delay(loop, 1), next_in_a_step, NULL, arg), 0);
    return vow_resolved(loop, vow_nothing());
}

/* The next one begins while this one runs, and this one ends later. */
static vow_future *next_meanwhile(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    CHECK_INT_EQ(vow_done(vow_delay(loop, 1), next_in_a_step, NULL, arg), 0);
    return vow_delay(loop, 2);
}

/* What a line of jobs needs does not depend on how long it is. */
static void check_bounded(vow_start_fn start)
{
    struct world w;
    struct line x = {.start = start, .left = SHORT_LINE};
    world_open(&w);
    CHECK_INT_EQ(vow_gate_new(w.loop, VOW_GATE(.concurrent = 4), &x.gate), 0);
    line_next(&x);
    world_run(&w);
    size_t peak = w.alloc.peak_bytes;
    x.left = LONG_LINE;
    line_next(&x);
    world_run(&w);
    CHECK(x.left <= 0);
    CHECK(w.alloc.peak_bytes < peak + peak / 4);
    vow_gate_unref(x.gate);
    world_close(&w);
}

TEST(gate, jobs_that_each_start_the_next_need_bounded_memory)
{
    check_bounded(next_at_once);
    check_bounded(next_when_over);
}

TEST(gate, jobs_that_overlap_and_each_start_the_next_need_bounded_memory)
{
    check_bounded(next_meanwhile);
}

/* ---- destructors --------------------------------------------------------- */

static void ask_in_a_destructor(void *asker)
{
    (void)ask(asker, 0);
}

static vow_future *destroy_inside(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    vow_future_unref(vow_resolved(loop, vow_own(arg, ask_in_a_destructor)));
    return vow_resolved(loop, vow_nothing());
}

/* It runs whenever the last reference happens to go: it is nobody's part. */
TEST(gate, a_destructor_is_not_part_of_the_job_it_runs_in)
{
    struct asker a;
    asker_open(&a, VOW_GATE(.concurrent = 1));
    vow_future *f = vow_gate_run(a.l.gate, destroy_inside, &a, NULL);
    world_run(a.l.w);
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    CHECK_INT_EQ(load_code(a.asked), 0);
    vow_future_unref(f);
    load_close(&a.l);
}

/* ---- what is lent already ------------------------------------------------ */

static vow_future *ask_and_wait(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)loop;
    (void)attempt;
    return vow_future_ref(ask(arg, 0)->f);
}

static vow_future *lend_one_place(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct asker *a = arg;
    (void)loop;
    (void)attempt;
    return vow_gate_run(a->l.gate, ask_and_wait, a,
                        VOW_JOB(.nested = VOW_NESTED_LEND));
}

/* The one between runs in one of the two places and waits: only one is left. */
TEST(gate, a_place_in_which_a_job_between_waits_is_not_lent_again)
{
    for (uint32_t weight = 1; weight <= 2; weight++) {
        struct asker a;
        asker_open(&a, VOW_GATE(.concurrent = 2));
        a.inner = VOW_JOB(.weight = weight, .nested = VOW_NESTED_LEND);
        vow_future *f =
            vow_gate_run(a.l.gate, lend_one_place, &a, VOW_JOB(.weight = 2));
        world_run(a.l.w);
        CHECK_INT_EQ(vow_error_code(vow_error_of(f)),
                     weight == 1 ? 0 : VOW_EDEADLK);
        CHECK_INT_EQ(load_code(a.asked), weight == 1 ? 0 : VOW_EDEADLK);
        check_idle(&a.l);
        vow_future_unref(f);
        load_close(&a.l);
    }
}
