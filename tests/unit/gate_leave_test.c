/* SPDX-License-Identifier: MIT */
/* gate_leave_test.c - jobs that do not come to their end: canceled while they
 * wait, begin or run; and deadlines, which cover all of that and refuse early
 * what cannot make it. */
#include "fault.h"
#include "harness.h"
#include "load.h"

/* ---- cancel ------------------------------------------------------------- */

/* https://github.com/SGrondin/bottleneck/issues/60 */
TEST(gate_queue, a_canceled_job_leaves_from_head_middle_and_tail)
{
    for (int gone = 1; gone <= 3; gone++) {
        struct load l;
        load_open(&l, VOW_GATE(.concurrent = 1));
        load_run(&l, 10, NULL);
        load_run_many(&l, 3, 10, VOW_JOB(.bytes = 7));
        world_turn(l.w);
        struct load_job *j = &l.jobs[gone];
        CHECK(vow_cancel(j->f, NULL));
        CHECK_INT_EQ(load_code(j), VOW_ECANCELED); /* at once */
        CHECK_UINT_EQ(load_stats(&l).waiting, 2);
        CHECK_UINT_EQ(load_stats(&l).waiting_bytes, 14);
        CHECK_UINT_EQ(load_stats(&l).canceled, 1);
        world_run(l.w);
        CHECK_STR_EQ(l.order, gone == 1 ? "acd" : gone == 2 ? "abd" : "abc");
        CHECK_UINT_EQ(j->starts, 0);
        load_close(&l);
    }
}

TEST(gate_queue, canceling_a_big_job_lets_small_ones_behind_it_in)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 3));
    load_run(&l, LOAD_FOR_EVER, NULL);
    struct load_job *big = load_run(&l, 0, VOW_JOB(.weight = 3));
    load_run_many(&l, 2, 10, NULL);
    world_turn(l.w);
    CHECK_STR_EQ(l.order, "a");
    CHECK(vow_cancel(big->f, NULL));
    world_turn(l.w);
    CHECK_STR_EQ(l.order, "acd");
    load_close(&l);
}

TEST(gate_queue, a_job_canceled_in_its_run_is_asked_and_holds_its_place)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    struct load_job *a = load_run(&l, LOAD_FOR_EVER, NULL);
    struct load_job *b = load_run(&l, LOAD_FOR_EVER, NULL);
    a->stop_ms = 40;
    world_turn(l.w);
    CHECK(vow_cancel(a->f, NULL));
    world_advance_ms(l.w, 39);
    CHECK(a->asked);
    CHECK_STR_EQ(l.order, "a");
    CHECK_UINT_EQ(load_stats(&l).running, 1);
    world_advance_ms(l.w, 1);
    CHECK_STR_EQ(l.order, "ab");
    CHECK(load_code(a) != LOAD_PENDING);
    vow_error *why = vow_error_new(l.w->loop, VOW_EBUSY, "changed my mind");
    CHECK(vow_cancel(b->f, why));
    world_turn(l.w);
    CHECK(b->asked);
    CHECK_INT_EQ(load_code(b), VOW_ECANCELED);
    CHECK_PTR_EQ(vow_error_cause(vow_error_of(b->f)), why);
    vow_error_unref(why);
    CHECK_UINT_EQ(load_stats(&l).running, 0);
    CHECK_UINT_EQ(load_stats(&l).canceled, 0); /* none left the queue */
    load_close(&l);
}

/* https://github.com/sindresorhus/p-queue/issues/168 */
TEST(gate_queue, canceling_what_runs_and_waits_at_once_wedges_nothing)
{
    for (int first = 0; first < 2; first++) {
        struct load l;
        load_open(&l, VOW_GATE(.concurrent = 2, .rate = 100));
        load_run_many(&l, 6, LOAD_FOR_EVER, NULL);
        world_turn(l.w);
        for (int i = 0; i < 6; i++)
            CHECK(vow_cancel(l.jobs[first == 0 ? i : 5 - i].f, NULL));
        struct load_job *last = load_run(&l, 0, NULL);
        world_run(l.w);
        for (int i = 0; i < 6; i++)
            CHECK_INT_EQ(load_code(&l.jobs[i]), VOW_ECANCELED);
        CHECK_INT_EQ(load_code(last), 0);
        CHECK_STR_EQ(l.order, "abg");
        load_close(&l);
    }
}

/* https://github.com/sindresorhus/p-queue/issues/241 */
TEST(gate_queue, a_job_for_a_scope_that_was_canceled_before_settles)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    vow_scope *s;
    CHECK_INT_EQ(vow_scope_new(l.w->loop, NULL, &s), 0);
    vow_scope_cancel(s, NULL);
    for (int i = 0; i < 3; i++) {
        struct load_job *j = load_job(&l, 10);
        vow_future *f = vow_gate_run(l.gate, load_start, j, NULL);
        j->f = vow_scope_add(s, f);
        vow_future_unref(f);
    }
    world_run(l.w);
    for (int i = 0; i < 3; i++)
        CHECK_INT_EQ(load_code(&l.jobs[i]), VOW_ECANCELED);
    CHECK_UINT_EQ(l.n_starts, 0);
    CHECK_UINT_EQ(load_stats(&l).waiting + load_stats(&l).running, 0);
    vow_scope_unref(s);
    load_close(&l);
}

/* The cancel reaches the queue later than the place comes free. */
TEST(gate_queue, a_job_let_go_by_its_last_reader_is_not_started)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    struct load_job *a = load_run(&l, LOAD_FOR_EVER, NULL);
    struct load_job *b = load_run(&l, 0, NULL), *c = load_run(&l, 0, NULL);
    struct load_job *d = load_run(&l, 0, NULL);
    world_turn(l.w);
    vow_future *some[2] = {b->f, c->f};
    vow_future *all = vow_all(l.w->loop, some, 2);
    b->f = vow_future_unref(b->f);
    c->f = vow_future_unref(c->f);
    vow_cancel(all, NULL);
    load_end(a);
    world_run(l.w);
    CHECK_STR_EQ(l.order, "ad");
    CHECK_INT_EQ(load_code(d), 0);
    CHECK_INT_EQ(vow_error_code(vow_error_of(all)), VOW_ECANCELED);
    vow_future_unref(all);
    load_close(&l);
}

TEST(gate_queue, a_wait_is_bounded_by_a_timeout_as_well)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    load_run(&l, 100, NULL);
    struct load_job *b = load_run(&l, 0, NULL), *c = load_run(&l, 0, NULL);
    vow_future *bounded = vow_timeout(b->f, 50);
    vow_future_unref(b->f);
    b->f = bounded;
    world_run(l.w);
    CHECK_INT_EQ(load_code(b), VOW_ETIMEDOUT);
    CHECK_INT_EQ(load_code(c), 0);
    CHECK_STR_EQ(l.order, "ac");
    load_close(&l);
}

TEST(gate_queue, many_cancels_from_all_over_the_queue_are_fast)
{
    enum { N = 50000 };
    static vow_future *f[N];
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1, .rate = 1));
    struct load_job *a = load_run(&l, LOAD_FOR_EVER, NULL);
    struct load_job *never = load_job(&l, 0);
    world_turn(l.w);
    for (int i = 0; i < N; i++)
        f[i] = vow_gate_run(
            l.gate, load_start, never,
            VOW_JOB(.priority = i % 32 - 16, .key = i % 3 == 0 ? "k" : NULL));
    for (long i = 0; i < N; i++) {
        CHECK(vow_cancel(f[i * 7919 % N], NULL));
        vow_future_unref(f[i * 7919 % N]);
    }
    CHECK_UINT_EQ(load_stats(&l).waiting, 0);
    load_end(a);
    world_run(l.w);
    CHECK_UINT_EQ(l.n_starts, 1);
    CHECK_UINT_EQ(load_stats(&l).canceled, N);
    load_close(&l);
}

/* ---- from inside a start function ---------------------------------------- */

struct inside {
    struct load l;
    vow_future *own; /* of the job whose start function this is */
    void (*act)(struct inside *in);
};

static vow_future *start_and_act(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct inside *in = arg;
    (void)attempt;
    in->act(in);
    return vow_delay(loop, 10);
}

/* One job that acts as it starts, and two that wait behind it. */
static int act_inside(struct inside *in, void (*act)(struct inside *in))
{
    load_open(&in->l, VOW_GATE(.concurrent = 1));
    in->act = act;
    in->own = vow_gate_run(in->l.gate, start_and_act, in, NULL);
    load_run_many(&in->l, 2, 10, NULL);
    world_run(in->l.w);
    CHECK(vow_state_of(in->own) != VOW_PENDING);
    CHECK_UINT_EQ(load_stats(&in->l).running, 0);
    CHECK_UINT_EQ(load_stats(&in->l).waiting, 0);
    int rc = vow_error_code(vow_error_of(in->own));
    vow_future_unref(in->own);
    return rc;
}

static void cancel_own(struct inside *in)
{
    CHECK(vow_cancel(in->own, NULL));
}

static void cancel_next(struct inside *in)
{
    CHECK(vow_cancel(in->l.jobs[0].f, NULL));
}

static void clear_all(struct inside *in)
{
    vow_gate_clear(in->l.gate, NULL);
}

static void close_it(struct inside *in)
{
    vow_gate_close(in->l.gate);
}

static void widen_it(struct inside *in)
{
    vow_gate_opts o = vow_gate_get(in->l.gate);
    o.concurrent = 3;
    o.rate = 50;
    CHECK_INT_EQ(vow_gate_set(in->l.gate, &o), 0);
}

static void pause_it(struct inside *in)
{
    vow_gate_pause(in->l.gate);
    vow_gate_resume(in->l.gate);
    vow_gate_report(in->l.gate, NULL, 50);
}

TEST(gate_queue, everything_may_be_done_from_inside_a_start_function)
{
    static const struct {
        void (*act)(struct inside *in);
        int own, others;
        const char *order;
    } cases[] = {{cancel_own, VOW_ECANCELED, 0, "ab"},
                 {cancel_next, 0, VOW_ECANCELED, "b"},
                 {clear_all, 0, VOW_ECANCELED, ""},
                 {close_it, 0, VOW_ECLOSED, ""},
                 {widen_it, 0, 0, "ab"},
                 {pause_it, 0, 0, "ab"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        static struct inside in;
        CHECK_INT_EQ(act_inside(&in, cases[i].act), cases[i].own);
        CHECK_INT_EQ(load_code(&in.l.jobs[0]), cases[i].others);
        CHECK_STR_EQ(in.l.order, cases[i].order);
        CHECK(cases[i].act != widen_it || load_ms(&in.l, 1) == 0);
        CHECK(cases[i].act != pause_it || load_ms(&in.l, 0) == 50);
        load_close(&in.l);
    }
}

/* ---- deadlines ---------------------------------------------------------- */

TEST(gate_queue, a_job_that_still_waits_at_its_deadline_leaves)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    load_run(&l, 200, NULL);
    struct load_job *b = load_run(&l, 0, VOW_JOB(.deadline_ms = 100));
    struct load_job *c = load_run(&l, 0, VOW_JOB(.deadline_ms = 201));
    world_advance_ms(l.w, 99);
    CHECK_INT_EQ(load_code(b), LOAD_PENDING);
    world_advance_ms(l.w, 1);
    CHECK_INT_EQ(load_code(b), VOW_ETIMEDOUT);
    CHECK_UINT_EQ(load_stats(&l).waiting, 1);
    CHECK_UINT_EQ(load_stats(&l).expired, 1);
    world_run(l.w);
    CHECK_INT_EQ(load_code(c), 0);
    CHECK_STR_EQ(l.order, "ac");
    CHECK_UINT_EQ(load_now_ms(&l), 200); /* no timer is left */
    load_close(&l);
}

TEST(gate_queue, at_its_deadline_a_running_job_is_asked_to_stop)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    struct load_job *a =
        load_run(&l, LOAD_FOR_EVER, VOW_JOB(.deadline_ms = 100));
    struct load_job *b = load_run(&l, 0, NULL);
    a->stop_ms = 30;
    world_advance_ms(l.w, 99);
    CHECK_INT_EQ(load_code(a), LOAD_PENDING);
    world_advance_ms(l.w, 1);
    CHECK(a->asked);
    CHECK_INT_EQ(load_code(a), VOW_ETIMEDOUT);
    CHECK_UINT_EQ(load_stats(&l).running, 1); /* until it has ended */
    world_run(l.w);
    CHECK_INT_EQ(load_code(b), 0);
    CHECK_UINT_EQ(load_ms(&l, 1), 130);
    CHECK_UINT_EQ(load_stats(&l).expired, 0);
    load_close(&l);
}

TEST(gate_queue, a_deadline_counts_from_the_call_not_from_the_start)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    load_run(&l, 60, NULL);
    struct load_job *b = load_run(&l, 60, VOW_JOB(.deadline_ms = 100));
    struct load_job *c = load_run(&l, 60, VOW_JOB(.deadline_ms = 1000));
    world_run(l.w);
    CHECK_STR_EQ(l.order, "abc");
    CHECK_INT_EQ(load_code(b), VOW_ETIMEDOUT);
    CHECK_INT_EQ(load_code(c), 0);
    CHECK_UINT_EQ(load_ms(&l, 2), 100);
    CHECK_UINT_EQ(load_now_ms(&l), 160);
    load_close(&l);
}

TEST(gate_queue, what_the_rate_cannot_start_in_time_is_refused_at_once)
{
    struct load l;
    load_open(&l, VOW_GATE(.rate = 2, .window_ms = 100));
    load_run_many(&l, 2, 0, NULL);
    world_turn(l.w);
    struct load_job *c = load_run(&l, 0, VOW_JOB(.deadline_ms = 100));
    struct load_job *d = load_run(&l, 0, VOW_JOB(.deadline_ms = 101));
    world_turn(l.w);
    CHECK_INT_EQ(load_code(c), VOW_ETIMEDOUT); /* one nanosecond too late */
    CHECK_INT_EQ(load_code(d), LOAD_PENDING);
    CHECK_UINT_EQ(load_stats(&l).refused, 1);
    CHECK_UINT_EQ(load_stats(&l).expired, 0);
    world_run(l.w);
    CHECK_INT_EQ(load_code(d), 0);
    CHECK_STR_EQ(l.order, "abd");
    load_close(&l);
}

TEST(gate_queue, what_the_rate_of_a_key_cannot_start_in_time_is_refused)
{
    struct load l;
    load_open(&l, VOW_GATE(.key_rate = 1, .key_window_ms = 100));
    load_run(&l, 0, VOW_JOB(.key = "x"));
    world_turn(l.w);
    struct load_job *b =
        load_run(&l, 0, VOW_JOB(.key = "x", .deadline_ms = 50));
    struct load_job *c =
        load_run(&l, 0, VOW_JOB(.key = "y", .deadline_ms = 50));
    world_turn(l.w);
    CHECK_INT_EQ(load_code(b), VOW_ETIMEDOUT);
    CHECK_INT_EQ(load_code(c), 0);
    load_close(&l);
}

TEST(gate_queue, what_a_pause_holds_back_too_long_is_refused_at_once)
{
    struct load l;
    load_open(&l, NULL);
    vow_gate_report(l.gate, NULL, 100);
    vow_gate_report(l.gate, "k", 200);
    struct load_job *a = load_run(&l, 0, VOW_JOB(.deadline_ms = 99));
    struct load_job *b = load_run(&l, 0, VOW_JOB(.deadline_ms = 101));
    struct load_job *c =
        load_run(&l, 0, VOW_JOB(.key = "k", .deadline_ms = 199));
    struct load_job *d =
        load_run(&l, 0, VOW_JOB(.key = "k", .deadline_ms = 201));
    world_turn(l.w);
    CHECK_INT_EQ(load_code(a), VOW_ETIMEDOUT);
    CHECK_INT_EQ(load_code(c), VOW_ETIMEDOUT);
    CHECK_UINT_EQ(load_stats(&l).refused, 2);
    world_run(l.w);
    CHECK_INT_EQ(load_code(b), 0);
    CHECK_INT_EQ(load_code(d), 0);
    CHECK_STR_EQ(l.order, "bd");
    CHECK_UINT_EQ(load_ms(&l, 0), 100);
    CHECK_UINT_EQ(load_ms(&l, 1), 200);
    load_close(&l);
}

TEST(gate_queue, a_pause_that_may_end_any_time_refuses_nobody_early)
{
    struct load l;
    load_open(&l, NULL);
    vow_gate_pause(l.gate);
    struct load_job *a = load_run(&l, 0, VOW_JOB(.deadline_ms = 50));
    struct load_job *b = load_run(&l, 0, VOW_JOB(.deadline_ms = 100));
    world_advance_ms(l.w, 60);
    CHECK_INT_EQ(load_code(a), VOW_ETIMEDOUT);
    CHECK_INT_EQ(load_code(b), LOAD_PENDING);
    vow_gate_resume(l.gate);
    world_run(l.w);
    CHECK_INT_EQ(load_code(b), 0);
    CHECK_UINT_EQ(load_ms(&l, 0), 60);
    load_close(&l);
}

/* Whatever is known early or late, it ends by its deadline and never begins. */
TEST(gate_queue, a_job_behind_others_never_begins_after_its_deadline)
{
    for (uint64_t deadline = 1; deadline <= 400; deadline += 7) {
        struct load l;
        load_open(&l, VOW_GATE(.concurrent = 2, .rate = 2, .window_ms = 100));
        load_run_many(&l, 5, 30, NULL);
        struct load_job *j = load_run(&l, 30, VOW_JOB(.deadline_ms = deadline));
        world_advance_ms(l.w, deadline - 1);
        bool began = j->starts > 0;
        world_advance_ms(l.w, 1);
        CHECK(load_code(j) != LOAD_PENDING);
        CHECK_INT_EQ(load_code(j) == 0, deadline > 230);
        CHECK_INT_EQ(began, deadline > 201);
        world_run(l.w);
        CHECK_INT_EQ(j->starts > 0, began);
        load_close(&l);
    }
}

TEST(gate_queue, the_deadline_of_an_entry_is_for_the_wait)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    vow_future *a = vow_gate_enter(l.gate, VOW_JOB(.deadline_ms = 50));
    vow_future *b = vow_gate_enter(l.gate, VOW_JOB(.deadline_ms = 100));
    world_turn(l.w);
    vow_permit p = vow_permit_take(vow_get(a));
    world_advance_ms(l.w, 99);
    CHECK_INT_EQ(vow_state_of(a), VOW_FULFILLED);
    CHECK(vow_permit_held(&p));
    CHECK_INT_EQ(vow_state_of(b), VOW_PENDING);
    world_advance_ms(l.w, 1);
    CHECK_INT_EQ(vow_error_code(vow_error_of(b)), VOW_ETIMEDOUT);
    CHECK_UINT_EQ(load_stats(&l).running, 1);
    vow_permit_release(&p);
    vow_future_unref(a);
    vow_future_unref(b);
    load_close(&l);
}

/* ---- no memory ---------------------------------------------------------- */

FAULT_SWEEP(gate_queue, cancel_and_deadlines_survive_every_fault, FAULT_ALLOC)
{
    static struct load l;
    if (load_join(&l, w, VOW_GATE(.concurrent = 1, .rate = 5)) != 0)
        return;
    load_run(&l, 50, VOW_JOB(.deadline_ms = 20));
    load_run_many(&l, 2, 50, VOW_JOB(.deadline_ms = 10));
    load_run_many(&l, 2, 10, NULL);
    CHECK_INT_EQ(vow_loop_turn(w->loop), 0);
    (void)vow_cancel(l.jobs[3].f, NULL);
    CHECK_INT_EQ(vow_loop_run(w->loop), 0);
    static const int codes[] = {VOW_ETIMEDOUT, VOW_ETIMEDOUT, VOW_ETIMEDOUT,
                                VOW_ECANCELED, 0};
    for (size_t i = 0; i < l.n_jobs; i++) {
        int rc = load_code(&l.jobs[i]);
        CHECK(rc == codes[i] || fault_explains(w, rc));
    }
    CHECK_UINT_EQ(load_stats(&l).waiting, 0);
    CHECK_UINT_EQ(load_stats(&l).running, 0);
    load_drop(&l);
}

/* ---- let in, and not called yet ------------------------------------------ */

static vow_future *start_counted(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    (*(int *)arg)++;
    return vow_resolved(loop, vow_nothing());
}

TEST(gate_leave, a_job_that_was_let_in_and_not_called_is_taken_back)
{
    for (int closes = 0; closes < 2; closes++) {
        struct world w;
        vow_gate *g;
        int starts = 0;
        world_open(&w);
        CHECK_INT_EQ(vow_gate_new(w.loop, VOW_GATE(.concurrent = 1), &g), 0);
        vow_future *f = vow_gate_run(g, start_counted, &starts, NULL);
        if (closes)
            vow_gate_close(g);
        else
            vow_gate_clear(g, NULL);
        world_run(&w);
        CHECK_INT_EQ(starts, 0);
        CHECK_INT_EQ(vow_error_code(vow_error_of(f)),
                     closes ? VOW_ECLOSED : VOW_ECANCELED);
        vow_future_unref(f);
        vow_gate_unref(g);
        world_close(&w);
    }
}
