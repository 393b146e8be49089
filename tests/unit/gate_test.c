/* SPDX-License-Identifier: MIT */
/* gate_test.c - a gate: how many at once, by weight; the shape of run, enter
 * and try; what is refused; what is given back, whatever happens. */
#include "fault.h"
#include "harness.h"
#include "load.h"

#include <string.h>

/* ---- making ------------------------------------------------------------- */

TEST(gate, without_limits_everything_starts_at_once)
{
    struct load l;
    load_open(&l, NULL);
    load_run_many(&l, 100, 10, NULL);
    world_turn(l.w);
    CHECK_UINT_EQ(l.n_starts, 100);
    CHECK_UINT_EQ(l.peak, 100);
    load_close(&l);
}

TEST(gate, refuses_options_that_cannot_be)
{
    struct world w;
    world_open(&w);
    vow_gate *g = NULL;
    vow_gate_opts size = {.size = 3};
    const vow_gate_opts *bad[] = {&size, VOW_GATE(.rate = (1u << 24) + 1),
                                  VOW_GATE(.overflow = 4),
                                  VOW_GATE(.concurrent = 3, .adapt_min = 4)};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        CHECK_INT_EQ(vow_gate_new(w.loop, bad[i], &g), VOW_EINVAL);
        CHECK_PTR_EQ(g, NULL);
    }
    CHECK_INT_EQ(vow_gate_new(w.loop, VOW_GATE(.rate = 1u << 24), &g), 0);
    CHECK_PTR_EQ(vow_gate_unref(g), NULL);
    CHECK_PTR_EQ(vow_gate_unref(NULL), NULL);
    world_close(&w);
}

TEST(gate, copies_its_options)
{
    struct load l;
    vow_gate_opts o = {.size = sizeof(o), .concurrent = 2};
    load_open(&l, &o);
    o.concurrent = 50;
    load_run_many(&l, 5, 10, NULL);
    world_run(l.w);
    CHECK_UINT_EQ(l.peak, 2);
    load_close(&l);
}

/* ---- so many at once ---------------------------------------------------- */

TEST(gate, never_runs_more_at_once_and_never_fewer_than_it_may)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 3));
    load_run_many(&l, 10, 100, NULL);
    for (uint64_t ms = 0; ms < 400; ms += 50) {
        world_advance_ms(l.w, ms == 0 ? 0 : 50);
        CHECK_UINT_EQ(l.weight, ms < 300 ? 3 : 1);
        CHECK_UINT_EQ(load_stats(&l).running, ms < 300 ? 3 : 1);
    }
    world_run(l.w);
    CHECK_STR_EQ(l.order, "abcdefghij");
    CHECK_UINT_EQ(load_now_ms(&l), 400);
    load_close(&l);
}

TEST(gate, of_one_is_a_serializer)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    load_run(&l, 30, NULL);
    load_run(&l, 10, NULL);
    load_run(&l, 20, NULL);
    world_run(l.w);
    CHECK_STR_EQ(l.order, "abc");
    CHECK_UINT_EQ(l.peak, 1);
    CHECK_UINT_EQ(load_ms(&l, 1), 30);
    CHECK_UINT_EQ(load_ms(&l, 2), 40);
    load_close(&l);
}

TEST(gate, counts_weight_and_lets_no_small_one_pass_a_big_one)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 4));
    load_run(&l, 10, VOW_JOB(.weight = 3));
    load_run(&l, 10, VOW_JOB(.weight = 4));
    load_run(&l, 10, VOW_JOB(.weight = 1));
    load_run(&l, 10, VOW_JOB(.weight = 3));
    load_run(&l, 10, VOW_JOB(.weight = 1));
    world_turn(l.w);
    CHECK_STR_EQ(l.order, "a");
    CHECK_UINT_EQ(load_stats(&l).weight, 3);
    world_advance_ms(l.w, 10);
    CHECK_STR_EQ(l.order, "ab");
    world_advance_ms(l.w, 10);
    CHECK_STR_EQ(l.order, "abcd");
    world_run(l.w);
    CHECK_STR_EQ(l.order, "abcde");
    CHECK_UINT_EQ(l.peak, 4);
    load_close(&l);
}

TEST(gate, joins_the_limit_of_several_functions)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 2));
    struct load other;
    memset(&other, 0, sizeof(other));
    other.w = l.w;
    struct load_job *j = load_job(&other, 30);
    load_run(&l, 10, NULL);
    vow_future *f = vow_gate_run(l.gate, load_start, j, NULL);
    load_run(&l, 10, NULL);
    world_advance_ms(l.w, 9);
    CHECK_UINT_EQ(l.weight + other.weight, 2);
    world_advance_ms(l.w, 1);
    CHECK_STR_EQ(l.order, "ab");
    world_run(l.w);
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    vow_future_unref(f);
    load_close(&l);
}

/* ---- run has the shape of a call ----------------------------------------- */

TEST(gate, the_future_has_the_outcome_of_what_start_returned)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    struct load_job *a = load_run(&l, 10, NULL), *b = load_run(&l, 10, NULL);
    b->fails = 1;
    b->code = VOW_EBUSY;
    world_run(l.w);
    CHECK_INT_EQ(vow_as_int(vow_get(a->f)), 'a');
    CHECK_INT_EQ(load_code(b), VOW_EBUSY);
    CHECK_STR_EQ(vow_error_message(vow_error_of(b->f)), "attempt 1");
    CHECK_PTR_EQ(vow_error_cause(vow_error_of(b->f)), NULL);
    load_close(&l);
}

/* A rejection must not break the serializer for ever. */
TEST(gate, a_failed_job_never_blocks_the_gate)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    for (int i = 0; i < 20; i++)
        load_run(&l, (uint64_t)(i % 3), NULL)->fails = i % 2 == 0;
    world_run(l.w);
    CHECK_UINT_EQ(l.n_starts, 20);
    for (int i = 0; i < 20; i++)
        CHECK_INT_EQ(load_code(&l.jobs[i]), i % 2 == 0 ? VOW_EIO : 0);
    CHECK_UINT_EQ(load_stats(&l).failed, 10);
    CHECK_UINT_EQ(load_stats(&l).running, 0);
    load_close(&l);
}

static vow_next go_on_elsewhere(vow_value v, void *user)
{
    struct load_job *j = user;
    (void)v;
    return vow_follow(load_start(j->load->w->loop, 1, j));
}

static vow_future *start_a_chain(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    return vow_then_drop(vow_delay(loop, 10), go_on_elsewhere, NULL, arg);
}

TEST(gate, a_job_whose_chain_goes_on_elsewhere_ends_when_that_ends)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    for (uint32_t fails = 0; fails < 2; fails++) {
        struct load_job *j = load_job(&l, 20);
        j->fails = fails;
        j->f = vow_gate_run(l.gate, start_a_chain, j, NULL);
    }
    world_run(l.w);
    CHECK_INT_EQ(load_code(&l.jobs[0]), 0);
    CHECK_INT_EQ(load_code(&l.jobs[1]), VOW_EIO);
    CHECK_UINT_EQ(load_ms(&l, 1), 40);
    CHECK_UINT_EQ(load_stats(&l).ended, 2);
    CHECK_UINT_EQ(load_stats(&l).failed, 1);
    load_close(&l);
}

static void keep_progress(vow_value v, void *user)
{
    *(int64_t *)user = vow_as_int(v);
}

TEST(gate, progress_of_the_job_goes_on)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    int64_t heard = 0;
    struct load_job *j = load_run(&l, LOAD_FOR_EVER, NULL);
    vow_future *f = vow_on_progress(j->f, keep_progress, &heard);
    world_turn(l.w);
    CHECK(vow_notify(j->end, vow_int(66)));
    world_turn(l.w);
    CHECK_INT_EQ(heard, 66);
    vow_future_unref(f);
    load_close(&l);
}

static void count_drop(void *ptr)
{
    ++*(int *)ptr;
}

static vow_future *start_owned(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    return vow_resolved(loop, vow_own(arg, count_drop));
}

TEST(gate, an_owned_result_is_destroyed_once)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    int drops = 0;
    vow_future *f = vow_gate_run(l.gate, start_owned, &drops, NULL);
    world_run(l.w);
    CHECK_PTR_EQ(vow_as_ptr(vow_get(f)), &drops);
    CHECK_INT_EQ(drops, 0);
    vow_future_unref(f);
    CHECK_INT_EQ(drops, 1);
    load_close(&l);
}

static vow_future *start_nothing(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)loop;
    (void)attempt;
    ++*(int *)arg;
    return NULL;
}

TEST(gate, a_start_that_returns_nothing_is_an_error_and_gives_back)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    int calls = 0;
    vow_future *f = vow_gate_run(l.gate, start_nothing, &calls, NULL);
    load_run(&l, 0, NULL);
    world_run(l.w);
    CHECK_INT_EQ(calls, 1);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_EINVAL);
    CHECK_STR_EQ(l.order, "a");
    vow_future_unref(f);
    load_close(&l);
}

static vow_future *start_broken(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    (void)arg;
    vow_deferred *d;
    vow_future *f = vow_promise(loop, &d);
    vow_deferred_unref(d);
    return f;
}

TEST(gate, a_job_that_dropped_its_promise_gives_back)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    vow_future *f = vow_gate_run(l.gate, start_broken, NULL, NULL);
    load_run(&l, 0, NULL);
    world_run(l.w);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_EBROKEN);
    CHECK_STR_EQ(l.order, "a");
    vow_future_unref(f);
    load_close(&l);
}

TEST(gate, refuses_jobs_that_cannot_be)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 4, .rate = 3, .key_concurrent = 2,
                           .key_rate = 1));
    vow_job_opts size = {.size = 3};
    const vow_job_opts *bad[] = {&size,
                                 VOW_JOB(.weight = 5),
                                 VOW_JOB(.weight = 4),
                                 VOW_JOB(.weight = 2, .key = "k"),
                                 VOW_JOB(.priority = 16),
                                 VOW_JOB(.priority = -17),
                                 VOW_JOB(.nested = 3)};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct load_job *j = load_run(&l, 0, bad[i]);
        world_turn(l.w);
        CHECK_INT_EQ(load_code(j), VOW_EINVAL);
    }
    vow_future *f = vow_gate_run(l.gate, NULL, NULL, NULL);
    world_turn(l.w);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_EINVAL);
    vow_future_unref(f);
    load_run(&l, 0, VOW_JOB(.weight = 3));
    world_advance_ms(l.w, 2000);
    load_run(&l, 0, VOW_JOB(.priority = 15));
    load_run(&l, 0, VOW_JOB(.priority = -16, .key = "k"));
    world_turn(l.w);
    CHECK_UINT_EQ(l.n_starts, 3);
    load_close(&l);
}

TEST(gate, goes_on_when_futures_and_handle_are_dropped)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    for (int i = 0; i < 4; i++) {
        struct load_job *j = load_run(&l, 10, NULL);
        j->f = vow_future_unref(j->f);
    }
    CHECK_PTR_EQ(vow_gate_ref(l.gate), l.gate);
    vow_gate_unref(l.gate);
    l.gate = vow_gate_unref(l.gate);
    world_run(l.w);
    CHECK_STR_EQ(l.order, "abcd");
    CHECK_UINT_EQ(l.peak, 1);
    load_close(&l);
}

/* https://github.com/SGrondin/bottleneck/issues/192 */
TEST(gate, that_has_nothing_to_do_keeps_no_loop_running)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 4, .rate = 2, .key_rate = 1,
                           .adapt_min = 1));
    load_run(&l, 0, VOW_JOB(.key = "x", .deadline_ms = 60000));
    vow_gate_report(l.gate, "y", 60000);
    world_run(l.w);
    CHECK_UINT_EQ(load_now_ms(&l), 0);
    load_close(&l);
}

/* ---- enter and try ------------------------------------------------------- */

TEST(gate, enter_gives_a_permit_that_holds_its_places)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 3));
    vow_future *f = vow_gate_enter(l.gate, VOW_JOB(.weight = 2));
    world_turn(l.w);
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    vow_permit p = vow_permit_take(vow_get(f));
    CHECK(vow_permit_held(&p));
    vow_permit again = vow_permit_take(vow_get(f));
    CHECK(!vow_permit_held(&again));
    vow_future_unref(f);
    load_run(&l, 0, VOW_JOB(.weight = 2));
    world_turn(l.w);
    CHECK_UINT_EQ(l.n_starts, 0);
    CHECK_UINT_EQ(load_stats(&l).running, 1);
    CHECK_UINT_EQ(load_stats(&l).weight, 2);
    vow_permit_release(&p);
    vow_permit_release(&p);
    world_turn(l.w);
    CHECK_STR_EQ(l.order, "a");
    CHECK_UINT_EQ(load_stats(&l).weight, 0);
    load_close(&l);
}

TEST(gate, an_entry_nobody_takes_comes_back_with_its_future)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1));
    vow_future *f = vow_gate_enter(l.gate, NULL);
    vow_future_unref(vow_gate_enter(l.gate, NULL));
    load_run(&l, 0, NULL);
    world_turn(l.w);
    CHECK_UINT_EQ(l.n_starts, 0);
    vow_future_unref(f);
    world_run(l.w);
    CHECK_STR_EQ(l.order, "a");
    load_close(&l);
}

TEST(gate, try_is_now_or_not_at_all_past_nobody_and_without_memory)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 3, .rate = 2));
    vow_permit p = {0}, q = {0};
    l.w->alloc.fail_at = l.w->alloc.allocs + 1;
    l.w->alloc.fail_forever = true;
    CHECK(vow_gate_try(l.gate, NULL, &p));
    CHECK(!vow_gate_try(l.gate, VOW_JOB(.weight = 2), &q)); /* the rate */
    CHECK(vow_gate_try(l.gate, NULL, &q));
    vow_permit_release(&p);
    vow_permit_release(&q);
    CHECK_UINT_EQ(l.w->alloc.fails, 0);
    l.w->alloc.fail_at = 0;
    world_advance_ms(l.w, 1001);
    struct load_job *j = load_run(&l, LOAD_FOR_EVER, VOW_JOB(.weight = 2));
    world_advance_ms(l.w, 1001);
    struct load_job *big = load_run(&l, 0, VOW_JOB(.weight = 2));
    CHECK(!vow_gate_try(l.gate, NULL, &p)); /* one is free, one waits */
    CHECK(!vow_permit_held(&p));
    CHECK_INT_EQ(vow_state_of(big->f), VOW_PENDING);
    load_end(j);
    world_run(l.w);
    CHECK_STR_EQ(l.order, "ab");
    load_close(&l);
}

TEST(gate, enter_takes_no_retry_and_no_loan)
{
    struct load l;
    load_open(&l, NULL);
    vow_future *f = vow_gate_enter(l.gate, VOW_JOB(.retry = VOW_RETRY(0)));
    vow_future *h = vow_gate_enter(l.gate, VOW_JOB(.nested = VOW_NESTED_LEND));
    world_turn(l.w);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_EINVAL);
    CHECK_INT_EQ(vow_error_code(vow_error_of(h)), VOW_EINVAL);
    vow_future_unref(f);
    vow_future_unref(h);
    load_close(&l);
}

struct crew {
    struct load *l;
    int inside, most, done;
};

static vow_next worker(void *arg)
{
    struct crew *c = arg;
    vow_future *f = vow_gate_enter(c->l->gate, NULL);
    CHECK_INT_EQ(vow_await(f), 0);
    VOW_CLEANUP(vow_permit_release) vow_permit p = vow_permit_take(vow_get(f));
    vow_future_unref(f);
    if (++c->inside > c->most)
        c->most = c->inside;
    CHECK_INT_EQ(vow_sleep(c->l->w->loop, 10), 0);
    c->inside--;
    c->done++;
    return vow_ok(vow_nothing());
}

TEST(gate, fibers_enter_and_leave)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 2, .rate = 4, .window_ms = 100));
    struct crew c = {.l = &l};
    for (int i = 0; i < 8; i++)
        vow_future_unref(vow_async(l.w->loop, worker, &c));
    world_run(l.w);
    CHECK_INT_EQ(c.done, 8);
    CHECK_INT_EQ(c.most, 2);
    /* 2 at 0, 2 at 10, and again one window later */
    CHECK_UINT_EQ(load_now_ms(&l), 120);
    load_close(&l);
}

/* ---- the oracle ---------------------------------------------------------- */

TEST(gate, tells_its_oracle_of_starts_and_ends)
{
    struct load l;
    struct world w;
    world_open(&w);
    vow_oracle *o;
    CHECK_INT_EQ(
        vow_oracle_new(w.loop, VOW_ORACLE(.concurrent = 2, .rate = 3), &o), 0);
    CHECK_INT_EQ(
        load_join(&l, &w, VOW_GATE(.concurrent = 2, .rate = 3, .oracle = o)),
        0);
    load_run_many(&l, 9, 10, NULL);
    world_run(&w);
    vow_oracle_stats st = vow_oracle_stats_get(o);
    CHECK_UINT_EQ(st.starts, 9);
    CHECK_UINT_EQ(st.breaches, 0);
    vow_oracle_unref(o); /* the gate has its own reference */
    load_run(&l, 10, NULL);
    world_run(&w);
    load_drop(&l);
    world_close(&w);
}

/* ---- the end of the loop, and no memory ---------------------------------- */

TEST(gate, the_loop_closes_over_jobs_that_wait_start_and_run)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 2, .queue_max = 2,
                           .overflow = VOW_OVERFLOW_WAIT));
    load_run(&l, LOAD_FOR_EVER, NULL);
    world_turn(l.w);
    load_run_many(&l, 5, 10, VOW_JOB(.key = "k", .deadline_ms = 50));
    vow_future *idle = vow_gate_idle(l.gate);
    vow_future *room = vow_gate_room(l.gate, 0);
    vow_future *enter = vow_gate_enter(l.gate, NULL);
    load_close_loop(&l);
    for (size_t i = 0; i < l.n_jobs; i++)
        CHECK_INT_EQ(load_code(&l.jobs[i]), VOW_ECLOSED);
    CHECK_INT_EQ(vow_error_code(vow_error_of(idle)), VOW_ECLOSED);
    CHECK(vow_state_of(room) != VOW_PENDING);
    (void)vow_error_of(room);
    CHECK_INT_EQ(vow_error_code(vow_error_of(enter)), VOW_ECLOSED);
    vow_future_unref(idle);
    vow_future_unref(room);
    vow_future_unref(enter);
    load_close_dirty(&l);
}

TEST(gate, handle_and_permit_may_be_dropped_after_the_loop_was_closed)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 2, .rate = 9, .key_rate = 9));
    vow_permit p = {0}, q = {0};
    CHECK(vow_gate_try(l.gate, NULL, &p));
    CHECK(vow_gate_try(l.gate, VOW_JOB(.key = "k"), &q));
    load_run(&l, 0, VOW_JOB(.key = "k"));
    load_close_loop(&l);
    CHECK_INT_EQ(load_code(&l.jobs[0]), VOW_ECLOSED);
    l.gate = vow_gate_unref(l.gate);
    vow_permit_release(&p);
    vow_permit_release(&q);
    load_close_dirty(&l);
}

FAULT_SWEEP(gate, running_and_waiting_survive_every_fault, FAULT_ALLOC)
{
    static struct load l;
    if (load_join(&l, w, VOW_GATE(.concurrent = 2, .rate = 3)) != 0)
        return;
    load_run(&l, 10, VOW_JOB(.weight = 2));
    load_run_many(&l, 3, 10, VOW_JOB(.deadline_ms = 5000));
    load_run(&l, 0, VOW_JOB(.priority = 2));
    CHECK_INT_EQ(vow_loop_run(w->loop), 0);
    CHECK(l.n_starts == 5 || fault_fired(w));
    CHECK_UINT_EQ(load_stats(&l).running, 0);
    CHECK_UINT_EQ(load_stats(&l).waiting, 0);
    CHECK(load_most_within(&l, 1000) <= 3);
    load_leave(&l);
}

FAULT_SWEEP(gate, entering_survives_every_fault, FAULT_ALLOC)
{
    static struct load l;
    if (load_join(&l, w, VOW_GATE(.concurrent = 1, .key_rate = 1)) != 0)
        return;
    vow_permit p = {0};
    bool in = vow_gate_try(l.gate, VOW_JOB(.key = "k"), &p);
    CHECK(in || fault_fired(w));
    vow_future *f[3] = {vow_gate_enter(l.gate, NULL),
                        vow_gate_enter(l.gate, VOW_JOB(.key = "k")),
                        vow_gate_idle(l.gate)};
    vow_permit_release(&p);
    for (int i = 0; i < 3; i++) {
        CHECK_INT_EQ(vow_loop_run(w->loop), 0);
        int rc = vow_error_code(vow_error_of(f[i]));
        CHECK(vow_state_of(f[i]) != VOW_PENDING);
        CHECK(rc == 0 || fault_explains(w, rc));
        f[i] = vow_future_unref(f[i]);
    }
    CHECK_UINT_EQ(load_stats(&l).running, 0);
    load_leave(&l);
}
