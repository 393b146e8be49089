/* SPDX-License-Identifier: MIT */
/* gate_nested_test.c - jobs asked for from inside jobs: what would wait for
 * itself is found and refused, however it came there; or borrows the places of
 * the outer one; or waits apart. */
#include "fault.h"
#include "harness.h"
#include "load.h"

#include <string.h>

enum from { DIRECTLY, FROM_A_STEP, FROM_A_FIBER };

/* An outer job that asks for an inner one, and has its outcome. */
struct nest {
    struct load l; /* the inner ones run here */
    enum from from;
    vow_gate *into; /* NULL: the same gate */
    const vow_job_opts *inner;
    uint64_t inner_ms;
    struct load_job *asked;
};

static vow_future *ask(struct nest *n)
{
    n->asked = load_job(&n->l, n->inner_ms);
    if (n->inner != NULL && n->inner->weight > 0)
        n->asked->weight = n->inner->weight;
    n->asked->f = vow_gate_run(n->into != NULL ? n->into : n->l.gate,
                               load_start, n->asked, n->inner);
    return vow_future_ref(n->asked->f);
}

static vow_next ask_in_a_step(vow_value v, void *user)
{
    (void)v;
    return vow_follow(ask(user));
}

static vow_next ask_in_a_fiber(void *arg)
{
    struct nest *n = arg;
    int rc = vow_sleep(n->l.w->loop, 10);
    if (rc == 0)
        rc = vow_await_drop(ask(n));
    return rc == 0 ? vow_ok(vow_nothing()) : vow_fail_code(rc, "inner");
}

static vow_future *outer_start(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct nest *n = arg;
    (void)attempt;
    if (n->from == DIRECTLY)
        return ask(n);
    if (n->from == FROM_A_STEP)
        return vow_then_drop(vow_delay(loop, 10), ask_in_a_step, NULL, n);
    return vow_async(loop, ask_in_a_fiber, n);
}

static void nest_open(struct nest *n, const vow_gate_opts *opts)
{
    memset(n, 0, sizeof(*n));
    load_open(&n->l, opts);
}

/* Runs the outer job to its end and gives its code. */
static int nest_run(struct nest *n, const vow_job_opts *outer)
{
    vow_future *f = vow_gate_run(n->l.gate, outer_start, n, outer);
    world_run(n->l.w);
    CHECK(vow_state_of(f) != VOW_PENDING);
    int rc = vow_error_code(vow_error_of(f));
    CHECK_INT_EQ(load_code(n->asked), rc);
    vow_future_unref(f);
    return rc;
}

/* A gate with so many places, by weights of the outer and the inner. */
static int nest_code(enum from from, uint32_t places, uint32_t outer,
                     uint32_t inner)
{
    struct nest n;
    nest_open(&n, VOW_GATE(.concurrent = places));
    n.from = from;
    n.inner = VOW_JOB(.weight = inner);
    int rc = nest_run(&n, VOW_JOB(.weight = outer));
    CHECK_UINT_EQ(n.l.n_starts, rc == 0);
    CHECK_UINT_EQ(load_stats(&n.l).refused, rc != 0);
    CHECK_UINT_EQ(load_stats(&n.l).running, 0);
    load_close(&n.l);
    return rc;
}

TEST(gate, a_job_inside_one_that_holds_all_places_is_refused)
{
    for (enum from from = DIRECTLY; from <= FROM_A_FIBER; from++) {
        CHECK_INT_EQ(nest_code(from, 1, 1, 1), VOW_EDEADLK);
        CHECK_INT_EQ(nest_code(from, 4, 4, 1), VOW_EDEADLK);
        CHECK_INT_EQ(nest_code(from, 2, 1, 1), 0);
    }
}

TEST(gate, a_job_that_needs_a_part_of_what_the_outer_holds_is_refused)
{
    for (enum from from = DIRECTLY; from <= FROM_A_FIBER; from++) {
        CHECK_INT_EQ(nest_code(from, 4, 3, 2), VOW_EDEADLK);
        CHECK_INT_EQ(nest_code(from, 4, 3, 1), 0);
        CHECK_INT_EQ(nest_code(from, 4, 2, 2), 0);
        CHECK_INT_EQ(nest_code(from, 4, 2, 3), VOW_EDEADLK);
    }
}

TEST(gate, without_a_limit_on_how_many_nothing_waits_for_itself)
{
    struct nest n;
    nest_open(&n, VOW_GATE(.rate = 1));
    CHECK_INT_EQ(nest_run(&n, NULL), 0);
    CHECK_UINT_EQ(load_ns(&n.l, 0), 1000000001); /* the rate holds for both */
    load_close(&n.l);
}

TEST(gate, places_held_by_strangers_are_waited_for)
{
    struct nest n;
    nest_open(&n, VOW_GATE(.concurrent = 2));
    struct load_job *stranger = load_run(&n.l, 50, NULL);
    CHECK_INT_EQ(nest_run(&n, NULL), 0);
    CHECK_INT_EQ(load_code(stranger), 0);
    CHECK_UINT_EQ(load_ms(&n.l, 1), 50);
    load_close(&n.l);
}

/* ---- three deep, and through another gate -------------------------------- */

static vow_future *middle_start(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct nest *n = arg;
    (void)loop;
    (void)attempt;
    return vow_gate_run(n->l.gate, outer_start, n, NULL);
}

TEST(gate, all_outer_jobs_count_not_only_the_nearest)
{
    for (uint32_t places = 2; places <= 3; places++) {
        struct nest n;
        nest_open(&n, VOW_GATE(.concurrent = places));
        n.from = FROM_A_STEP;
        vow_future *f = vow_gate_run(n.l.gate, middle_start, &n, NULL);
        world_run(n.l.w);
        CHECK_INT_EQ(vow_error_code(vow_error_of(f)),
                     places == 2 ? VOW_EDEADLK : 0);
        CHECK_INT_EQ(load_code(n.asked), places == 2 ? VOW_EDEADLK : 0);
        vow_future_unref(f);
        load_close(&n.l);
    }
}

struct pair {
    struct nest n; /* asks for a job of gate a, inside b, inside a */
    vow_gate *b;
};

static vow_future *through_b(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct pair *p = arg;
    (void)loop;
    (void)attempt;
    return vow_gate_run(p->b, outer_start, &p->n, NULL);
}

TEST(gate, a_job_that_comes_back_through_another_gate_is_refused)
{
    for (enum from from = DIRECTLY; from <= FROM_A_FIBER; from++) {
        struct pair p;
        nest_open(&p.n, VOW_GATE(.concurrent = 1));
        p.n.from = from;
        CHECK_INT_EQ(
            vow_gate_new(p.n.l.w->loop, VOW_GATE(.concurrent = 1), &p.b), 0);
        vow_future *f = vow_gate_run(p.n.l.gate, through_b, &p, NULL);
        world_run(p.n.l.w);
        CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_EDEADLK);
        vow_future_unref(f);
        vow_gate_unref(p.b);
        load_close(&p.n.l);
    }
}

TEST(gate, a_job_of_another_gate_is_not_refused)
{
    struct nest n;
    nest_open(&n, VOW_GATE(.concurrent = 1));
    CHECK_INT_EQ(vow_gate_new(n.l.w->loop, VOW_GATE(.concurrent = 1), &n.into),
                 0);
    CHECK_INT_EQ(nest_run(&n, NULL), 0);
    vow_gate_unref(n.into);
    load_close(&n.l);
}

/* ---- keys --------------------------------------------------------------- */

TEST(gate, a_job_of_the_same_key_whose_places_are_held_is_refused)
{
    static const char *const keys[] = {"x", "y", NULL};
    for (int i = 0; i < 3; i++) {
        struct nest n;
        nest_open(&n, VOW_GATE(.concurrent = 9, .key_concurrent = 1));
        n.from = FROM_A_STEP;
        n.inner = VOW_JOB(.key = keys[i]);
        CHECK_INT_EQ(nest_run(&n, VOW_JOB(.key = "x")),
                     i == 0 ? VOW_EDEADLK : 0);
        load_close(&n.l);
    }
}

/* ---- after the end of the outer one -------------------------------------- */

static vow_next ask_later(vow_value v, void *user)
{
    (void)v;
    vow_future_unref(ask(user));
    return vow_ok(vow_nothing());
}

static vow_future *leave_a_step(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    CHECK_INT_EQ(vow_done(vow_delay(loop, 100), ask_later, NULL, arg), 0);
    return vow_resolved(loop, vow_nothing());
}

TEST(gate, what_an_ended_job_left_behind_may_ask_as_anybody)
{
    struct nest n;
    nest_open(&n, VOW_GATE(.concurrent = 1));
    vow_future *f = vow_gate_run(n.l.gate, leave_a_step, &n, NULL);
    world_advance_ms(n.l.w, 50);
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    struct load_job *other = load_run(&n.l, 100, NULL);
    world_run(n.l.w);
    CHECK_INT_EQ(load_code(other), 0);
    CHECK_INT_EQ(load_code(n.asked), 0);
    CHECK_UINT_EQ(load_ms(&n.l, 1), 150);
    vow_future_unref(f);
    load_close(&n.l);
}

/* ---- enter and try ------------------------------------------------------- */

static vow_future *enter_inside(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct load *l = arg;
    vow_permit p = {0};
    (void)loop;
    (void)attempt;
    CHECK(!vow_gate_try(l->gate, NULL, &p));
    return vow_gate_enter(l->gate, NULL);
}

TEST(gate, entering_inside_a_job_that_holds_all_is_refused)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    vow_future *f = vow_gate_run(l.gate, enter_inside, &l, NULL);
    world_run(l.w);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_EDEADLK);
    vow_future_unref(f);
    load_close(&l);
}

/* ---- lend and apart ------------------------------------------------------ */

TEST(gate, lent_it_runs_in_the_places_of_the_outer_one)
{
    for (enum from from = DIRECTLY; from <= FROM_A_FIBER; from++) {
        struct nest n;
        nest_open(&n, VOW_GATE(.concurrent = 2));
        n.from = from;
        n.inner_ms = 30;
        n.inner = VOW_JOB(.weight = 2, .nested = VOW_NESTED_LEND);
        vow_future *f =
            vow_gate_run(n.l.gate, outer_start, &n, VOW_JOB(.weight = 2));
        struct load_job *next = load_run(&n.l, 0, NULL);
        world_advance_ms(n.l.w, 20);
        CHECK(n.asked->runs);
        CHECK_UINT_EQ(load_stats(&n.l).weight, 2); /* not counted twice */
        CHECK_UINT_EQ(next->starts, 0);
        world_run(n.l.w);
        CHECK_INT_EQ(vow_error_code(vow_error_of(f)), 0);
        CHECK_INT_EQ(load_code(next), 0);
        CHECK_UINT_EQ(load_stats(&n.l).weight, 0);
        vow_future_unref(f);
        load_close(&n.l);
    }
}

TEST(gate, what_is_lent_counts_in_the_rate)
{
    struct nest n;
    nest_open(&n, VOW_GATE(.concurrent = 1, .rate = 1, .window_ms = 100));
    n.inner = VOW_JOB(.nested = VOW_NESTED_LEND);
    CHECK_INT_EQ(nest_run(&n, NULL), 0);
    CHECK_UINT_EQ(load_ns(&n.l, 0), 100000001);
    load_close(&n.l);
}

TEST(gate, what_is_lent_breaks_no_limit_in_the_eyes_of_an_oracle)
{
    struct nest n;
    struct world w;
    vow_oracle *o;
    memset(&n, 0, sizeof(n));
    world_open(&w);
    CHECK_INT_EQ(vow_oracle_new(w.loop, VOW_ORACLE(.concurrent = 1), &o), 0);
    CHECK_INT_EQ(load_join(&n.l, &w, VOW_GATE(.concurrent = 1, .oracle = o)),
                 0);
    n.inner = VOW_JOB(.nested = VOW_NESTED_LEND);
    for (int i = 0; i < 3; i++)
        CHECK_INT_EQ(nest_run(&n, NULL), 0);
    CHECK_UINT_EQ(vow_oracle_stats_get(o).starts, 6);
    CHECK_UINT_EQ(vow_oracle_stats_get(o).breaches, 0);
    vow_oracle_unref(o);
    load_drop(&n.l);
    world_close(&w);
}

TEST(gate, what_may_be_lent_but_need_not_takes_places_of_its_own)
{
    struct nest n;
    nest_open(&n, VOW_GATE(.concurrent = 2));
    n.inner_ms = 30;
    n.inner = VOW_JOB(.nested = VOW_NESTED_LEND);
    vow_future *f = vow_gate_run(n.l.gate, outer_start, &n, NULL);
    world_advance_ms(n.l.w, 20);
    CHECK_UINT_EQ(load_stats(&n.l).weight, 2);
    world_run(n.l.w);
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    vow_future_unref(f);
    load_close(&n.l);
}

/* Two are asked for at a time: a place is lent to one, then to the other. */
static vow_future *ask_for_two(vow_loop *loop, uint32_t attempt, void *arg)
{
    vow_future *two[2] = {ask(arg), ask(arg)};
    (void)attempt;
    vow_future *all = vow_all(loop, two, 2);
    vow_future_unref(two[0]);
    vow_future_unref(two[1]);
    return all;
}

TEST(gate, a_place_is_lent_to_one_at_a_time)
{
    struct nest n;
    nest_open(&n, VOW_GATE(.concurrent = 1));
    n.inner_ms = 30;
    n.inner = VOW_JOB(.nested = VOW_NESTED_LEND);
    vow_future *f = vow_gate_run(n.l.gate, ask_for_two, &n, NULL);
    world_run(n.l.w);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), 0);
    CHECK_UINT_EQ(n.l.peak, 1);
    vow_future_unref(f);
    load_close(&n.l);
}

static vow_future *ask_for_two_and_pause(vow_loop *loop, uint32_t attempt,
                                         void *arg)
{
    struct nest *n = arg;
    vow_future *all = ask_for_two(loop, attempt, arg);
    vow_gate_pause(n->l.gate);
    vow_gate_resume(n->l.gate);
    return all;
}

TEST(gate, lent_jobs_keep_their_order_over_a_pause)
{
    struct nest n;
    nest_open(&n, VOW_GATE(.concurrent = 2));
    n.inner = VOW_JOB(.nested = VOW_NESTED_LEND);
    vow_future *f =
        vow_gate_run(n.l.gate, ask_for_two_and_pause, &n, VOW_JOB(.weight = 2));
    world_run(n.l.w);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), 0);
    CHECK_STR_EQ(n.l.order, "ab");
    vow_future_unref(f);
    load_close(&n.l);
}

static vow_future *ask_apart(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    vow_future_unref(ask(arg));
    return vow_delay(loop, 40);
}

TEST(gate, apart_it_waits_as_any_other)
{
    struct nest n;
    nest_open(&n, VOW_GATE(.concurrent = 1));
    n.inner = VOW_JOB(.nested = VOW_NESTED_APART);
    vow_future *f = vow_gate_run(n.l.gate, ask_apart, &n, NULL);
    world_run(n.l.w);
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    CHECK_INT_EQ(load_code(n.asked), 0);
    CHECK_UINT_EQ(load_ms(&n.l, 0), 40);
    vow_future_unref(f);
    load_close(&n.l);
}

/* Nobody waits for the inner one, and it runs on in the outer one's place. */
TEST(gate, lent_places_are_taken_until_the_inner_one_has_ended)
{
    for (int canceled = 0; canceled < 2; canceled++) {
        struct nest n;
        nest_open(&n, VOW_GATE(.concurrent = 1));
        n.inner_ms = 100;
        n.inner = VOW_JOB(.nested = VOW_NESTED_LEND);
        vow_future *f = vow_gate_run(n.l.gate, ask_apart, &n, NULL);
        struct load_job *next = load_run(&n.l, 10, NULL);
        world_advance_ms(n.l.w, 5);
        CHECK(n.asked->runs);
        if (canceled != 0)
            CHECK(vow_cancel(f, NULL));
        world_run(n.l.w);
        CHECK_UINT_EQ(n.l.peak, 1);
        CHECK_INT_EQ(load_code(n.asked), 0);
        CHECK_INT_EQ(load_code(next), 0);
        CHECK_UINT_EQ(load_ms(&n.l, 1), 100);
        (void)vow_error_of(f);
        vow_future_unref(f);
        load_close(&n.l);
    }
}

TEST(gate, what_is_heavier_than_the_outer_one_is_not_squeezed_in)
{
    struct nest n;
    nest_open(&n, VOW_GATE(.concurrent = 4));
    n.inner_ms = 10;
    n.inner = VOW_JOB(.weight = 4, .nested = VOW_NESTED_LEND);
    vow_future *f = vow_gate_run(n.l.gate, ask_apart, &n, NULL);
    load_run_many(&n.l, 6, 20, NULL);
    world_run(n.l.w);
    CHECK(n.l.peak <= 4);
    CHECK(load_code(n.asked) != LOAD_PENDING);
    vow_future_unref(f);
    load_close(&n.l);
}

/* ---- no memory ---------------------------------------------------------- */

FAULT_SWEEP(gate, nested_jobs_survive_every_fault, FAULT_ALLOC)
{
    static struct nest n;
    memset(&n, 0, sizeof(n));
    if (load_join(&n.l, w, VOW_GATE(.concurrent = 1)) != 0)
        return;
    n.from = FROM_A_STEP;
    n.inner = VOW_JOB(.nested = VOW_NESTED_LEND);
    vow_future *lent = vow_gate_run(n.l.gate, outer_start, &n, NULL);
    CHECK_INT_EQ(vow_loop_run(w->loop), 0);
    n.from = FROM_A_FIBER;
    n.inner = NULL;
    vow_future *refused = vow_gate_run(n.l.gate, outer_start, &n, NULL);
    CHECK_INT_EQ(vow_loop_run(w->loop), 0);
    int rc = vow_error_code(vow_error_of(lent));
    CHECK(rc == 0 || fault_explains(w, rc));
    rc = vow_error_code(vow_error_of(refused));
    CHECK(rc == VOW_EDEADLK || fault_explains(w, rc));
    CHECK_UINT_EQ(load_stats(&n.l).running, 0);
    vow_future_unref(lent);
    vow_future_unref(refused);
    for (size_t i = 0; i < n.l.n_jobs; i++)
        (void)load_code(&n.l.jobs[i]);
    load_drop(&n.l);
}
