/* SPDX-License-Identifier: MIT */
/* gate_queue_test.c - what waits: who is next, what a full queue does, room,
 * clear. */
#include "fault.h"
#include "harness.h"
#include "load.h"

/* A gate of one place that is taken: what comes waits for load_end(). */
static struct load_job *busy_open(struct load *l, const vow_gate_opts *opts)
{
    load_open(l, opts);
    struct load_job *j = load_run(l, LOAD_FOR_EVER, NULL);
    world_turn(l->w);
    CHECK_STR_EQ(l->order, "a");
    return j;
}

/* `a` ends, and all that waits starts in this order. */
static void close_in_order(struct load *l, struct load_job *a,
                           const char *order)
{
    load_end(a);
    world_run(l->w);
    CHECK_STR_EQ(l->order, order);
    load_close(l);
}

static void check_codes(const struct load *l, const int *codes, size_t n)
{
    world_turn(l->w);
    for (size_t i = 0; i < n; i++)
        CHECK_INT_EQ(load_code(&l->jobs[i]), codes[i]);
}

/* ---- priority ------------------------------------------------------------ */

TEST(gate_queue, the_higher_priority_goes_first_then_who_came_first)
{
    struct load l;
    struct load_job *a = busy_open(&l, VOW_GATE(.concurrent = 1));
    static const int32_t levels[] = {0, -16, 3, 15, 0, 3, -16, 15};
    for (int i = 0; i < 8; i++)
        load_run(&l, 0, VOW_JOB(.priority = levels[i]));
    close_in_order(&l, a, "aeidgbfch");
}

/* b waits at level 0 and c comes at level 1, so much later. */
static const char *order_after(const vow_gate_opts *opts, uint64_t later_ms)
{
    static struct load l;
    struct load_job *a = busy_open(&l, opts);
    load_run(&l, 0, NULL);
    world_advance_ms(l.w, later_ms);
    load_run(&l, 0, VOW_JOB(.priority = 1));
    world_advance_ms(l.w, 700); /* both age: the order stays */
    load_end(a);
    world_run(l.w);
    load_close(&l);
    return l.order;
}

TEST(gate_queue, so_much_waiting_weighs_as_much_as_one_level)
{
    const vow_gate_opts *o = VOW_GATE(.concurrent = 1, .age_ms = 300);
    CHECK_STR_EQ(order_after(o, 0), "acb");
    CHECK_STR_EQ(order_after(o, 299), "acb");
    CHECK_STR_EQ(order_after(o, 300), "abc");
    CHECK_STR_EQ(order_after(o, 301), "abc");
    o = VOW_GATE(.concurrent = 1); /* by default a second */
    CHECK_STR_EQ(order_after(o, 999), "acb");
    CHECK_STR_EQ(order_after(o, 1000), "abc");
}

/* https://github.com/apache/incubator-pegasus/issues/93,
 * https://github.com/majiayu000/harness/issues/1583 */
TEST(gate_queue, the_lowest_priority_does_not_starve)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1, .age_ms = 20));
    load_run(&l, 10, VOW_JOB(.priority = 15));
    load_run(&l, 10, VOW_JOB(.priority = 15));
    struct load_job *low = load_run(&l, 10, VOW_JOB(.priority = -16));
    uint64_t started_ms = 0;
    for (int i = 0; i < 100; i++) { /* always one of them waits */
        load_run(&l, 10, VOW_JOB(.priority = 15));
        world_advance_ms(l.w, 10);
        if (low->starts > 0 && started_ms == 0)
            started_ms = load_now_ms(&l);
    }
    /* 31 levels of 20 ms, and what was asked for before is served before */
    CHECK(started_ms >= 620);
    CHECK(started_ms <= 660);
    load_close(&l);
}

/* ---- bypass ------------------------------------------------------------- */

/* https://github.com/Effect-TS/effect/pull/2107 */
TEST(gate_queue, so_many_small_jobs_pass_a_waiting_one_and_no_more)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 4, .bypass_count = 2));
    struct load_job *a = load_run(&l, LOAD_FOR_EVER, VOW_JOB(.weight = 3));
    load_run(&l, 0, VOW_JOB(.weight = 4));
    load_run_many(&l, 4, 10, NULL);
    world_run(l.w);
    CHECK_STR_EQ(l.order, "acd");
    close_in_order(&l, a, "acdbef");
}

TEST(gate_queue, small_jobs_pass_while_the_waiting_one_waited_less)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 4, .bypass_ms = 100));
    struct load_job *a = load_run(&l, LOAD_FOR_EVER, VOW_JOB(.weight = 3));
    load_run(&l, 0, VOW_JOB(.weight = 4));
    load_run_many(&l, 2, 0, NULL);
    world_advance_ms(l.w, 99);
    load_run(&l, 0, NULL);
    world_advance_ms(l.w, 1);
    load_run(&l, 0, NULL);
    world_advance_ms(l.w, 100);
    CHECK_STR_EQ(l.order, "acde");
    close_in_order(&l, a, "acdebf");
}

/* ---- a full queue -------------------------------------------------------- */

/* https://github.com/rerun-io/rerun/pull/12487 */
TEST(gate_queue, full_it_rejects_what_comes)
{
    struct load l;
    struct load_job *a =
        busy_open(&l, VOW_GATE(.concurrent = 1, .queue_max = 2));
    load_run_many(&l, 4, 0, NULL);
    static const int codes[] = {LOAD_PENDING, LOAD_PENDING, LOAD_PENDING,
                                VOW_EQUEUEFULL, VOW_EQUEUEFULL};
    check_codes(&l, codes, 5);
    CHECK_UINT_EQ(load_stats(&l).refused, 2);
    close_in_order(&l, a, "abc");
}

TEST(gate_queue, full_it_drops_the_one_that_waited_longest)
{
    struct load l;
    struct load_job *a =
        busy_open(&l, VOW_GATE(.concurrent = 1, .queue_max = 3,
                               .overflow = VOW_OVERFLOW_DROP_OLDEST));
    load_run(&l, 0, VOW_JOB(.priority = 9));
    load_run(&l, 0, VOW_JOB(.key = "k"));
    load_run(&l, 0, NULL);
    load_run(&l, 0, VOW_JOB(.priority = -9));
    load_run(&l, 0, NULL);
    static const int codes[] = {LOAD_PENDING, VOW_EQUEUEFULL, VOW_EQUEUEFULL,
                                LOAD_PENDING, LOAD_PENDING,   LOAD_PENDING};
    check_codes(&l, codes, 6);
    CHECK_UINT_EQ(load_stats(&l).dropped, 2);
    CHECK_UINT_EQ(load_stats(&l).waiting, 3);
    close_in_order(&l, a, "adfe");
}

TEST(gate_queue, full_it_drops_the_last_of_the_lowest_priority)
{
    struct load l;
    struct load_job *a =
        busy_open(&l, VOW_GATE(.concurrent = 1, .queue_max = 4,
                               .overflow = VOW_OVERFLOW_DROP_LOWEST));
    load_run(&l, 0, VOW_JOB(.priority = 1));
    load_run(&l, 0, NULL);
    load_run(&l, 0, NULL);
    load_run(&l, 0, VOW_JOB(.priority = 2));
    load_run(&l, 0, VOW_JOB(.priority = 1)); /* d leaves */
    load_run(&l, 0, VOW_JOB(.priority = 3)); /* c leaves */
    load_run(&l, 0, VOW_JOB(.priority = 1)); /* it is the last itself */
    load_run(&l, 0, VOW_JOB(.priority = -5));
    load_run(&l, 0, VOW_JOB(.priority = 2)); /* f leaves */
    static const int codes[] = {LOAD_PENDING,   LOAD_PENDING,   VOW_EQUEUEFULL,
                                VOW_EQUEUEFULL, LOAD_PENDING,   VOW_EQUEUEFULL,
                                LOAD_PENDING,   VOW_EQUEUEFULL, VOW_EQUEUEFULL,
                                LOAD_PENDING};
    check_codes(&l, codes, 10);
    close_in_order(&l, a, "agejb");
}

TEST(gate_queue, full_it_lets_what_comes_wait_outside_in_order)
{
    struct load l;
    struct load_job *a = busy_open(&l, VOW_GATE(.concurrent = 1, .queue_max = 1,
                                                .overflow = VOW_OVERFLOW_WAIT));
    load_run(&l, 10, NULL);
    load_run(&l, 10, NULL);
    struct load_job *d = load_run(&l, 10, VOW_JOB(.priority = 15));
    struct load_job *e = load_run(&l, 10, NULL);
    load_run(&l, 10, NULL);
    world_turn(l.w);
    CHECK_UINT_EQ(load_stats(&l).waiting, 5);
    CHECK(vow_cancel(e->f, NULL)); /* from outside */
    CHECK_INT_EQ(load_code(e), VOW_ECANCELED);
    load_end(a);
    world_run(l.w);
    CHECK_STR_EQ(l.order, "abcdf");
    CHECK_INT_EQ(load_code(d), 0);
    CHECK_UINT_EQ(load_stats(&l).refused, 0);
    load_close(&l);
}

TEST(gate_queue, outside_a_deadline_counts_as_well)
{
    struct load l;
    struct load_job *a = busy_open(&l, VOW_GATE(.concurrent = 1, .queue_max = 1,
                                                .overflow = VOW_OVERFLOW_WAIT));
    load_run(&l, 0, NULL);
    struct load_job *c = load_run(&l, 0, VOW_JOB(.deadline_ms = 50));
    world_advance_ms(l.w, 49);
    CHECK_INT_EQ(load_code(c), LOAD_PENDING);
    world_advance_ms(l.w, 1);
    CHECK_INT_EQ(load_code(c), VOW_ETIMEDOUT);
    close_in_order(&l, a, "ab");
}

/* https://github.com/tower-rs/tower/issues/793 */
TEST(gate_queue, without_a_queue_it_is_now_or_rejected)
{
    struct load l;
    struct load_job *a =
        busy_open(&l, VOW_GATE(.concurrent = 1, .queue_max = VOW_NO_QUEUE));
    struct load_job *b = load_run(&l, 0, NULL);
    world_turn(l.w);
    CHECK_INT_EQ(load_code(b), VOW_EQUEUEFULL);
    load_end(a);
    world_turn(l.w);
    struct load_job *c = load_run(&l, 0, NULL);
    world_turn(l.w);
    CHECK_INT_EQ(load_code(c), 0);
    vow_gate_pause(l.gate);
    struct load_job *d = load_run(&l, 0, NULL);
    world_turn(l.w);
    CHECK_INT_EQ(load_code(d), VOW_EQUEUEFULL);
    load_close(&l);
}

/* ---- bytes -------------------------------------------------------------- */

/* https://github.com/SGrondin/bottleneck/issues/151 */
TEST(gate_queue, is_bounded_by_bytes_of_what_waits)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1, .queue_bytes = 100));
    struct load_job *a =
        load_run(&l, LOAD_FOR_EVER, VOW_JOB(.bytes = 5000)); /* runs at once */
    world_turn(l.w);
    CHECK_UINT_EQ(load_stats(&l).waiting_bytes, 0);
    load_run(&l, 0, VOW_JOB(.bytes = 60));
    load_run(&l, 0, VOW_JOB(.bytes = 41));
    load_run(&l, 0, VOW_JOB(.bytes = 40));
    load_run(&l, 0, VOW_JOB(.bytes = 1));
    load_run(&l, 0, NULL);
    static const int codes[] = {LOAD_PENDING, LOAD_PENDING,   VOW_EQUEUEFULL,
                                LOAD_PENDING, VOW_EQUEUEFULL, LOAD_PENDING};
    check_codes(&l, codes, 6);
    CHECK_UINT_EQ(load_stats(&l).waiting_bytes, 100);
    vow_cancel(l.jobs[1].f, NULL);
    CHECK_UINT_EQ(load_stats(&l).waiting_bytes, 40);
    load_end(a);
    world_run(l.w);
    CHECK_UINT_EQ(load_stats(&l).waiting_bytes, 0);
    load_close(&l);
}

TEST(gate_queue, drops_as_many_as_the_bytes_of_a_new_job_need)
{
    struct load l;
    struct load_job *a =
        busy_open(&l, VOW_GATE(.concurrent = 1, .queue_bytes = 100,
                               .overflow = VOW_OVERFLOW_DROP_OLDEST));
    load_run(&l, 0, VOW_JOB(.bytes = 30));
    load_run(&l, 0, VOW_JOB(.bytes = 30));
    load_run(&l, 0, VOW_JOB(.bytes = 40));
    load_run(&l, 0, VOW_JOB(.bytes = 60));
    load_run(&l, 0, VOW_JOB(.bytes = 101)); /* nobody could make room */
    static const int codes[] = {LOAD_PENDING, VOW_EQUEUEFULL, VOW_EQUEUEFULL,
                                LOAD_PENDING, LOAD_PENDING,   VOW_EQUEUEFULL};
    check_codes(&l, codes, 6);
    close_in_order(&l, a, "ade");
}

TEST(gate_queue, outside_each_waits_for_room_for_its_bytes)
{
    struct load l;
    struct load_job *a =
        busy_open(&l, VOW_GATE(.concurrent = 1, .queue_bytes = 100,
                               .overflow = VOW_OVERFLOW_WAIT));
    load_run(&l, 10, VOW_JOB(.bytes = 90));
    load_run(&l, 10, VOW_JOB(.bytes = 50));
    load_run(&l, 10, VOW_JOB(.bytes = 5)); /* fits, but came later */
    world_turn(l.w);
    CHECK_UINT_EQ(load_stats(&l).waiting, 3);
    CHECK_UINT_EQ(load_stats(&l).waiting_bytes, 90);
    load_end(a);
    world_turn(l.w);
    CHECK_UINT_EQ(load_stats(&l).waiting_bytes, 55);
    world_run(l.w);
    CHECK_STR_EQ(l.order, "abcd");
    load_close(&l);
}

/* ---- room --------------------------------------------------------------- */

TEST(gate_queue, room_settles_when_a_job_would_find_some)
{
    struct load l;
    struct load_job *a = busy_open(
        &l, VOW_GATE(.concurrent = 1, .queue_max = 2, .queue_bytes = 100));
    vow_future *now = vow_gate_room(l.gate, 100);
    world_turn(l.w);
    CHECK_INT_EQ(vow_state_of(now), VOW_FULFILLED);
    load_run(&l, LOAD_FOR_EVER, VOW_JOB(.bytes = 60));
    vow_future *small = vow_gate_room(l.gate, 40);
    vow_future *big = vow_gate_room(l.gate, 41);
    world_turn(l.w);
    CHECK_INT_EQ(vow_state_of(small), VOW_FULFILLED);
    CHECK_INT_EQ(vow_state_of(big), VOW_PENDING);
    load_run(&l, 0, NULL);
    vow_future *any = vow_gate_room(l.gate, 0);
    world_turn(l.w);
    CHECK_INT_EQ(vow_state_of(any), VOW_PENDING); /* two are two */
    load_end(a);
    world_turn(l.w);
    CHECK_INT_EQ(vow_state_of(any), VOW_FULFILLED);
    CHECK_INT_EQ(vow_state_of(big), VOW_FULFILLED);
    vow_future_unref(now);
    vow_future_unref(small);
    vow_future_unref(big);
    vow_future_unref(any);
    load_close(&l);
}

static vow_next producer(void *arg)
{
    struct load *l = arg;
    for (int i = 0; i < 20; i++) {
        CHECK_INT_EQ(vow_await_drop(vow_gate_room(l->gate, 0)), 0);
        load_run(l, 10, NULL);
    }
    return vow_ok(vow_nothing());
}

TEST(gate_queue, a_producer_that_waits_for_room_is_never_refused)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 2, .queue_max = 3));
    vow_future_unref(vow_async(l.w->loop, producer, &l));
    world_run(l.w);
    CHECK_UINT_EQ(l.n_starts, 20);
    CHECK_UINT_EQ(load_stats(&l).refused, 0);
    CHECK_UINT_EQ(load_now_ms(&l), 100);
    load_close(&l);
}

/* ---- clear -------------------------------------------------------------- */

/* https://github.com/sindresorhus/p-limit/issues/25,
 * https://github.com/sindresorhus/p-queue/issues/239,
 * https://github.com/SGrondin/bottleneck/issues/117 */
TEST(gate_queue, clear_rejects_all_that_waits_and_the_gate_goes_on)
{
    struct load l;
    struct load_job *a = busy_open(&l, VOW_GATE(.concurrent = 1, .queue_max = 2,
                                                .overflow = VOW_OVERFLOW_WAIT));
    load_run(&l, 0, VOW_JOB(.key = "k", .deadline_ms = 1000));
    load_run_many(&l, 3, 0, NULL);
    vow_future *enter = vow_gate_enter(l.gate, NULL);
    vow_error *why = vow_error_new(l.w->loop, VOW_EBUSY, "enough");
    vow_gate_clear(l.gate, why);
    world_turn(l.w);
    for (int i = 1; i < 5; i++) {
        CHECK_INT_EQ(load_code(&l.jobs[i]), VOW_ECANCELED);
        CHECK_PTR_EQ(vow_error_cause(vow_error_of(l.jobs[i].f)), why);
    }
    CHECK_INT_EQ(vow_error_code(vow_error_of(enter)), VOW_ECANCELED);
    CHECK_INT_EQ(load_code(a), LOAD_PENDING);
    CHECK_UINT_EQ(load_stats(&l).waiting, 0);
    CHECK_UINT_EQ(load_stats(&l).dropped, 5);
    struct load_job *f = load_run(&l, 0, NULL);
    vow_gate_clear(l.gate, NULL);
    world_turn(l.w);
    CHECK_INT_EQ(load_code(f), VOW_ECANCELED);
    CHECK_PTR_EQ(vow_error_cause(vow_error_of(f->f)), NULL);
    struct load_job *last = load_run(&l, 0, NULL);
    load_end(a);
    world_run(l.w);
    CHECK_INT_EQ(load_code(last), 0);
    vow_error_unref(why);
    vow_future_unref(enter);
    load_close(&l);
}

/* ---- no memory ---------------------------------------------------------- */

FAULT_SWEEP(gate_queue, overflow_and_room_survive_every_fault, FAULT_ALLOC)
{
    static struct load l;
    for (uint32_t policy = 0; policy <= VOW_OVERFLOW_WAIT; policy++) {
        if (load_join(&l, w,
                      VOW_GATE(.concurrent = 1, .queue_max = 2,
                               .overflow = policy)) != 0)
            return;
        load_run(&l, 10, NULL);
        CHECK_INT_EQ(vow_loop_turn(w->loop), 0);
        for (int i = 0; i < 4; i++)
            load_run(&l, 10, VOW_JOB(.priority = i));
        vow_future *room = vow_gate_room(l.gate, 0);
        CHECK_INT_EQ(vow_loop_run(w->loop), 0);
        CHECK(vow_state_of(room) != VOW_PENDING);
        (void)vow_error_of(room);
        vow_future_unref(room);
        for (size_t i = 0; i < l.n_jobs; i++) {
            int rc = load_code(&l.jobs[i]);
            CHECK(rc == 0 || rc == VOW_EQUEUEFULL || fault_explains(w, rc));
        }
        CHECK_UINT_EQ(load_stats(&l).waiting, 0);
        CHECK_UINT_EQ(load_stats(&l).running, 0);
        load_drop(&l);
    }
}
