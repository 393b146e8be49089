/* SPDX-License-Identifier: MIT */
/* gate_findings_test.c - gate: code of others that cancels the job it is called
 * for, changes right after a job was let in, keys and levels in each other's
 * way, and limits that change within a window. */
#include "coord/gate/gate_internal.h"
#include "harness.h"
#include "load.h"

#include <stdio.h>
#include <string.h>

/* ---- code of others that cancels its own job ----------------------------- */

/* A job that fails, and is canceled by what it is called back for. */
struct own {
    struct world w;
    vow_gate *gate;
    vow_future *f;
    vow_future *shared; /* what its start function returns, if set */
    uint32_t starts;
    uint32_t cancel_at; /* so many starts; 0: not in the start function */
    uint64_t run_ms;
};

static vow_next fail_now(vow_value v, void *user)
{
    (void)v;
    (void)user;
    return vow_fail_code(VOW_EAGAIN, "no");
}

static vow_future *own_start(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct own *o = arg;
    CHECK_UINT_EQ(attempt, ++o->starts);
    if (attempt == o->cancel_at)
        CHECK(vow_cancel(o->f, NULL));
    if (o->shared != NULL)
        return vow_future_ref(o->shared);
    if (o->run_ms > 0)
        return vow_then_drop(vow_delay(loop, o->run_ms), fail_now, NULL, NULL);
    return vow_rejected(loop, vow_error_new(loop, VOW_EAGAIN, "no"));
}

static bool cancel_then_yes(vow_error *e, void *user)
{
    struct own *o = user;
    (void)e;
    (void)vow_cancel(o->f, NULL);
    return true;
}

static void own_open(struct own *o, const vow_gate_opts *opts)
{
    memset(o, 0, sizeof(*o));
    world_open(&o->w);
    CHECK_INT_EQ(vow_gate_new(o->w.loop, opts, &o->gate), 0);
}

static vow_gate_stats stats_of(const vow_gate *g)
{
    vow_gate_stats st;
    vow_gate_stats_get(g, &st);
    return st;
}

/* The job has this outcome, and nothing of it is left in the gate. */
static void own_close(struct own *o, int code)
{
    CHECK(vow_state_of(o->f) != VOW_PENDING);
    CHECK_INT_EQ(vow_error_code(vow_error_of(o->f)), code);
    CHECK_UINT_EQ(stats_of(o->gate).running, 0);
    CHECK_UINT_EQ(stats_of(o->gate).weight, 0);
    CHECK_UINT_EQ(stats_of(o->gate).waiting, 0);
    vow_future_unref(o->f);
    vow_gate_unref(o->gate);
    world_close(&o->w);
}

TEST(gate_retry, a_retry_if_that_cancels_the_result_ends_the_attempts)
{
    for (uint64_t run_ms = 0; run_ms < 2; run_ms++) {
        struct own o;
        own_open(&o, NULL);
        o.run_ms = run_ms;
        o.f =
            vow_gate_run(o.gate, own_start, &o,
                         VOW_JOB(.retry = VOW_RETRY(.retry_if = cancel_then_yes,
                                                    .retry_if_user = &o)));
        world_run(&o.w);
        CHECK_UINT_EQ(o.starts, 1);
        own_close(&o, VOW_ECANCELED);
    }
}

TEST(gate_retry, an_attempt_that_cancels_the_result_is_the_last)
{
    for (uint32_t at = 1; at <= 3; at++) {
        struct own o;
        own_open(&o, VOW_GATE(.concurrent = 1));
        o.cancel_at = at;
        o.f = vow_gate_run(o.gate, own_start, &o,
                           VOW_JOB(.retry = VOW_RETRY(.tries = 5)));
        world_run(&o.w);
        CHECK_UINT_EQ(o.starts, at);
        own_close(&o, VOW_ECANCELED);
    }
}

TEST(gate, an_overloaded_that_cancels_the_job_is_survived)
{
    for (uint64_t run_ms = 0; run_ms < 2; run_ms++) {
        struct own o;
        own_open(&o, VOW_GATE(.concurrent = 1, .overloaded = cancel_then_yes,
                              .overloaded_user = &o));
        o.run_ms = run_ms;
        o.f = vow_gate_run(o.gate, own_start, &o, NULL);
        world_run(&o.w);
        CHECK_UINT_EQ(o.starts, 1);
        int code = vow_error_code(vow_error_of(o.f));
        CHECK(code == VOW_EAGAIN || code == VOW_ECANCELED);
        own_close(&o, code);
    }
}

TEST(gate, a_start_that_cancels_its_job_leaves_a_shared_future_alone)
{
    struct own o;
    vow_deferred *d;
    own_open(&o, VOW_GATE(.concurrent = 1));
    o.cancel_at = 1;
    o.shared = vow_promise(o.w.loop, &d);
    vow_future *reader = vow_then(o.shared, NULL, NULL, NULL);
    o.f = vow_gate_run(o.gate, own_start, &o, NULL);
    world_run(&o.w);
    CHECK_INT_EQ(vow_error_code(vow_error_of(o.f)), VOW_ECANCELED);
    CHECK_INT_EQ(vow_state_of(o.shared), VOW_PENDING);
    CHECK_UINT_EQ(stats_of(o.gate).running, 1); /* it has not ended */
    CHECK(vow_resolve_drop(d, vow_int(3)));
    world_run(&o.w);
    CHECK_INT_EQ(vow_as_int(vow_get(reader)), 3);
    vow_future_unref(reader);
    vow_future_unref(o.shared);
    own_close(&o, VOW_ECANCELED);
}

/* ---- a canceled job that has not heard of it ---------------------------- */

struct late {
    struct load l;
    vow_permit permit;
    vow_future *all;
    vow_call call;
};

/* The hook of the job goes to the queue, and its turn comes before that. */
static void cancel_and_let_in(void *user)
{
    struct late *x = user;
    CHECK(vow_cancel(x->all, NULL));
    vow_permit_release(&x->permit);
}

TEST(gate_queue, canceled_through_all_at_its_deadline_it_leaves_once)
{
    for (int key = 0; key < 2; key++) {
        struct late x = {.permit = {0}};
        load_open(&x.l, VOW_GATE(.concurrent = 1));
        CHECK(vow_gate_try(x.l.gate, NULL, &x.permit));
        vow_call_at(&x.call, x.l.w->loop, 40 * VOW__NS_PER_MS,
                    cancel_and_let_in, &x);
        struct load_job *j = load_run(
            &x.l, 0, VOW_JOB(.deadline_ms = 40, .key = key == 0 ? NULL : "k"));
        x.all = vow_all(x.l.w->loop, &j->f, 1);
        j->f = vow_future_unref(j->f);
        world_run(x.l.w);
        CHECK_INT_EQ(vow_error_code(vow_error_of(x.all)), VOW_ECANCELED);
        CHECK_UINT_EQ(x.l.n_starts, 0);
        CHECK_UINT_EQ(load_stats(&x.l).running, 0);
        CHECK_UINT_EQ(load_stats(&x.l).waiting, 0);
        vow_future_unref(x.all);
        load_close(&x.l);
    }
}

/* ---- a context of others whose drop cancels ----------------------------- */

struct mine {
    vow_context context;
    vow_future *f;
    int drops;
};

static const char mine_kind;

static void mine_drop(void *context)
{
    struct mine *m = VOW__OUTER(context, struct mine, context);
    m->drops++;
    (void)vow_cancel(m->f, NULL);
}

/* A job asked for in a context of the caller, which is then dropped. */
static void mine_run(struct mine *m, struct load *l)
{
    vow_loop *loop = l->w->loop;
    *m = (struct mine){.context = {.owner = &mine_kind, .drop = mine_drop}};
    vow_context_init(&m->context, loop);
    vow_context *before = vow_context_enter(loop, &m->context);
    m->f = load_run(l, 10, NULL)->f;
    vow_context_leave(loop, before);
}

static void mine_check(struct mine *m, struct load *l)
{
    CHECK_INT_EQ(m->drops, 1);
    CHECK(vow_state_of(m->f) != VOW_PENDING);
    CHECK_UINT_EQ(load_stats(l).running, 0);
    CHECK_UINT_EQ(load_stats(l).waiting, 0);
}

TEST(gate, a_context_whose_drop_cancels_the_job_may_go_when_it_begins)
{
    struct load l;
    struct mine m;
    load_open(&l, VOW_GATE(.concurrent = 1));
    mine_run(&m, &l);
    struct load_job *next = load_run(&l, 0, NULL);
    vow_context_end(&m.context); /* so that the job alone keeps it */
    vow_context_unref(&m.context);
    CHECK_INT_EQ(m.drops, 0);
    world_run(l.w);
    mine_check(&m, &l);
    CHECK_INT_EQ(load_code(next), 0);
    load_close(&l);
}

TEST(gate, a_context_whose_drop_cancels_the_job_may_go_when_it_ends)
{
    struct load l;
    struct mine m;
    load_open(&l, VOW_GATE(.concurrent = 1));
    mine_run(&m, &l);
    struct load_job *next = load_run(&l, 0, NULL);
    vow_context_unref(&m.context); /* the parent of the job's own */
    world_advance_ms(l.w, 5);
    CHECK_INT_EQ(m.drops, 0);
    world_run(l.w);
    mine_check(&m, &l);
    CHECK_INT_EQ(load_code(next), 0);
    load_close(&l);
}

TEST(gate, a_context_whose_drop_cancels_the_job_may_go_when_it_is_cleared)
{
    struct load l;
    struct mine m;
    load_open(&l, VOW_GATE(.concurrent = 1));
    vow_gate_pause(l.gate);
    mine_run(&m, &l);
    struct load_job *next = load_run(&l, 0, NULL);
    vow_context_unref(&m.context);
    vow_gate_clear(l.gate, NULL);
    world_run(l.w);
    mine_check(&m, &l);
    CHECK_INT_EQ(load_code(next), VOW_ECANCELED);
    CHECK_UINT_EQ(l.n_starts, 0);
    load_close(&l);
}

/* ---- changes right after a job was let in -------------------------------- */

TEST(gate_live, paused_right_after_run_it_starts_nothing)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 4));
    load_run_many(&l, 6, 10, NULL);
    vow_gate_pause(l.gate);
    world_advance_ms(l.w, 5);
    CHECK_UINT_EQ(l.n_starts, 0);
    vow_gate_resume(l.gate);
    world_run(l.w);
    CHECK_STR_EQ(l.order, "abcdef"); /* nobody lost his place */
    CHECK_UINT_EQ(l.peak, 4);
    load_close(&l);
}

/* So many at once and per window, as the oracle sees it too. */
static void check_lowered_after_run(vow_gate_opts from, vow_gate_opts to)
{
    struct world w;
    struct load l;
    vow_oracle *o;
    world_open(&w);
    CHECK_INT_EQ(vow_oracle_new(w.loop,
                                VOW_ORACLE(.concurrent = from.concurrent,
                                           .rate = from.rate,
                                           .window_ms = from.window_ms),
                                &o),
                 0);
    from.oracle = o;
    CHECK_INT_EQ(load_join(&l, &w, &from), 0);
    load_run_many(&l, 6, 10, NULL);
    CHECK_INT_EQ(vow_gate_set(l.gate, &to), 0);
    world_run(&w);
    CHECK_STR_EQ(l.order, "abcdef");
    CHECK(to.concurrent == 0 || l.peak <= to.concurrent);
    CHECK(to.rate == 0 || load_most_within(&l, to.window_ms) <= to.rate);
    CHECK_UINT_EQ(vow_oracle_stats_get(o).breaches, 0);
    load_drop(&l);
    vow_oracle_unref(o);
    world_close(&w);
}

TEST(gate_live, lowered_right_after_run_it_starts_no_more_than_it_may)
{
    check_lowered_after_run(*VOW_GATE(.concurrent = 4),
                            *VOW_GATE(.concurrent = 1));
    check_lowered_after_run(*VOW_GATE(.rate = 4, .window_ms = 100),
                            *VOW_GATE(.rate = 1, .window_ms = 100));
    check_lowered_after_run(*VOW_GATE(.rate = 4, .window_ms = 50),
                            *VOW_GATE(.rate = 4, .window_ms = 100));
}

TEST(gate_live, room_is_rejected_when_there_will_never_be_so_much)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1, .queue_bytes = 100));
    load_run_many(&l, 2, 10, VOW_JOB(.bytes = 80));
    vow_future *big = vow_gate_room(l.gate, 60);
    vow_future *small = vow_gate_room(l.gate, 40);
    vow_gate_opts o = vow_gate_get(l.gate);
    o.queue_bytes = 50;
    CHECK_INT_EQ(vow_gate_set(l.gate, &o), 0);
    CHECK_INT_EQ(vow_error_code(vow_error_of(big)), VOW_EINVAL);
    CHECK_INT_EQ(vow_state_of(small), VOW_PENDING);
    world_run(l.w);
    CHECK_INT_EQ(vow_state_of(small), VOW_FULFILLED);
    vow_future_unref(big);
    vow_future_unref(small);
    load_close(&l);
}

TEST(gate_live, what_waits_outside_for_room_that_will_never_be_is_rejected)
{
    for (int bytes = 0; bytes < 2; bytes++) {
        struct load l;
        load_open(&l,
                  VOW_GATE(.concurrent = 1, .queue_max = 1, .queue_bytes = 100,
                           .overflow = VOW_OVERFLOW_WAIT));
        load_run_many(&l, 3, 10, VOW_JOB(.bytes = 80));
        vow_gate_opts o = vow_gate_get(l.gate);
        if (bytes != 0)
            o.queue_bytes = 50;
        else
            o.queue_max = VOW_NO_QUEUE;
        CHECK_INT_EQ(vow_gate_set(l.gate, &o), 0);
        world_run(l.w);
        CHECK_INT_EQ(load_code(&l.jobs[1]), 0); /* it was inside */
        CHECK_INT_EQ(load_code(&l.jobs[2]), VOW_EINVAL);
        CHECK_STR_EQ(l.order, "ab");
        load_close(&l);
    }
}

/* ---- a pause that is over ------------------------------------------------ */

TEST(gate_live, a_report_that_is_over_leaves_nothing_behind)
{
    struct load l;
    vow_permit p = {0};
    load_open(&l, VOW_GATE(.concurrent = 2));
    const uint32_t quick = l.gate->slow;
    vow_gate_report(l.gate, NULL, 50);
    CHECK(!vow_gate_try(l.gate, NULL, &p));
    world_advance_ms(l.w, 49);
    CHECK(!vow_gate_try(l.gate, NULL, &p));
    world_advance_ms(l.w, 1);
    CHECK(vow_gate_try(l.gate, NULL, &p));
    CHECK_UINT_EQ(l.gate->slow, quick); /* the short way is open again */
    vow_permit_release(&p);
    load_close(&l);
}

TEST(gate_live, a_report_does_not_end_a_pause_by_hand)
{
    struct load l;
    vow_permit p = {0};
    load_open(&l, VOW_GATE(.concurrent = 2));
    vow_gate_pause(l.gate);
    vow_gate_report(l.gate, NULL, 50);
    world_advance_ms(l.w, 100);
    CHECK(!vow_gate_try(l.gate, NULL, &p));
    vow_gate_resume(l.gate);
    CHECK(vow_gate_try(l.gate, NULL, &p));
    vow_permit_release(&p);
    load_close(&l);
}

/* ---- keys ---------------------------------------------------------------- */

TEST(gate_key, a_long_pause_of_one_does_not_get_new_ones_refused)
{
    struct load l;
    load_open(&l, VOW_GATE(.keys_max = 4, .key_rate = 5, .key_window_ms = 10));
    vow_gate_report(l.gate, "bad", 3600000);
    for (int i = 0; i < 20; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "k%d", i);
        struct load_job *j = load_run(&l, 0, VOW_JOB(.key = key));
        world_advance_ms(l.w, 100);
        CHECK_INT_EQ(load_code(j), 0);
    }
    CHECK(load_stats(&l).keys <= 4);
    struct load_job *bad =
        load_run(&l, 0, VOW_JOB(.key = "bad", .deadline_ms = 60000));
    CHECK_INT_EQ(load_code(bad), VOW_ETIMEDOUT); /* it is still remembered */
    load_close(&l);
}

TEST(gate_key, a_report_of_one_that_cannot_be_remembered_pauses_all)
{
    struct load l;
    vow_permit p = {0};
    load_open(&l, VOW_GATE(.keys_max = 1));
    CHECK(vow_gate_try(l.gate, VOW_JOB(.key = "a"), &p));
    vow_gate_report(l.gate, "b", 100);
    struct load_job *j = load_run(&l, 0, VOW_JOB(.key = "a"));
    world_run(l.w);
    CHECK_UINT_EQ(load_ms(&l, 0), 100);
    CHECK_INT_EQ(load_code(j), 0);
    vow_permit_release(&p);
    load_close(&l);
}

TEST(gate_key, try_for_another_is_not_stopped_by_one_that_is_full)
{
    struct load l;
    vow_permit p = {0};
    load_open(&l, VOW_GATE(.concurrent = 9, .key_concurrent = 1));
    (void)load_run(&l, 10, VOW_JOB(.key = "a"));
    world_advance_ms(l.w, 0);
    for (int waiting = 1; waiting <= 3; waiting++) {
        (void)load_run(&l, 10, VOW_JOB(.key = "a"));
        CHECK(!vow_gate_try(l.gate, VOW_JOB(.key = "a"), &p));
        CHECK(vow_gate_try(l.gate, VOW_JOB(.key = "b"), &p));
        vow_permit_release(&p);
        CHECK(vow_gate_try(l.gate, NULL, &p));
        vow_permit_release(&p);
    }
    load_close(&l);
}

/* ---- the line ------------------------------------------------------------ */

TEST(gate_queue, a_small_job_that_may_pass_is_woken_when_the_rate_frees)
{
    struct load l;
    vow_permit p = {0};
    load_open(&l, VOW_GATE(.concurrent = 2, .rate = 2, .window_ms = 100,
                           .bypass_count = 10));
    struct load_job *a = load_run(&l, LOAD_FOR_EVER, NULL);
    CHECK(vow_gate_try(l.gate, NULL, &p)); /* the rest of the rate */
    world_advance_ms(l.w, 1);
    vow_permit_release(&p);
    (void)load_run(&l, 10, VOW_JOB(.weight = 2));
    struct load_job *small = load_run(&l, 10, NULL);
    world_advance_ms(l.w, 500);
    CHECK(a->runs);
    CHECK_STR_EQ(l.order, "ac");
    CHECK_UINT_EQ(load_ms(&l, 1), 100);
    CHECK_INT_EQ(load_code(small), 0);
    load_close(&l);
}

TEST(gate_queue, full_by_bytes_it_drops_nobody_in_vain)
{
    struct load l;
    load_open(&l, VOW_GATE(.concurrent = 1, .queue_bytes = 100,
                           .overflow = VOW_OVERFLOW_DROP_LOWEST));
    (void)load_run(&l, 10, NULL);
    world_advance_ms(l.w, 0);
    struct load_job *low =
        load_run(&l, 0, VOW_JOB(.priority = -5, .bytes = 10));
    struct load_job *high =
        load_run(&l, 0, VOW_JOB(.priority = 10, .bytes = 90));
    struct load_job *mid = load_run(&l, 0, VOW_JOB(.priority = 0, .bytes = 50));
    CHECK_INT_EQ(load_code(mid), VOW_EQUEUEFULL);
    CHECK_INT_EQ(load_code(low), LOAD_PENDING);
    CHECK_INT_EQ(load_code(high), LOAD_PENDING);
    struct load_job *tiny = load_run(&l, 0, VOW_JOB(.priority = 0, .bytes = 5));
    CHECK_INT_EQ(load_code(tiny), LOAD_PENDING);
    CHECK_INT_EQ(load_code(low), VOW_EQUEUEFULL); /* that was enough */
    world_run(l.w);
    CHECK_STR_EQ(l.order, "ace");
    load_close(&l);
}

TEST(gate_queue, many_entries_nobody_took_take_little_stack)
{
    struct load l;
    vow_permit p = {0};
    load_open(&l, VOW_GATE(.concurrent = 1));
    CHECK(vow_gate_try(l.gate, NULL, &p));
    for (int i = 0; i < 50000; i++)
        vow_future_unref(vow_gate_enter(l.gate, NULL));
    vow_permit_release(&p);
    world_run(l.w);
    CHECK_UINT_EQ(load_stats(&l).running, 0);
    CHECK_UINT_EQ(load_stats(&l).waiting, 0);
    load_close(&l);
}

/* ---- time ---------------------------------------------------------------- */

/* Looks at another job that has just begun. */
struct look {
    vow_gate *gate;
    vow_future *f;
    vow_deferred *end;
    vow_job_explain seen;
};

static vow_future *look_at_pending(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct look *k = arg;
    (void)attempt;
    return vow_promise(loop, &k->end);
}

static vow_future *look_start(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct look *k = arg;
    (void)attempt;
    vow_gate_explain(k->gate, k->f, &k->seen);
    (void)vow_resolve_drop(k->end, vow_nothing());
    return vow_resolved(loop, vow_nothing());
}

/* A start is stamped a little later than it was: that is not before now. */
TEST(gate_stats, explained_right_after_its_start_it_has_run_for_no_time)
{
    struct world w;
    struct look k = {.gate = NULL};
    world_open_real(&w);
    CHECK_INT_EQ(vow_gate_new(w.loop, VOW_GATE(.rate = 1000), &k.gate), 0);
    for (int i = 0; i < 100; i++) {
        k.f = vow_gate_run(k.gate, look_at_pending, &k, NULL);
        vow_future_unref(vow_gate_run(k.gate, look_start, &k, NULL));
        world_run(&w);
        CHECK_UINT_EQ(k.seen.state, VOW_JOB_RUNS);
        CHECK(k.seen.waited_ms < 3600000);
        vow_future_unref(k.f);
    }
    vow_gate_unref(k.gate);
    world_close(&w);
}

static void set_rate(struct load *l, uint32_t rate, bool even)
{
    vow_gate_opts o = vow_gate_get(l->gate);
    o.rate = rate;
    o.even = even;
    CHECK_INT_EQ(vow_gate_set(l->gate, &o), 0);
}

TEST(gate_rate, lowered_and_raised_within_a_window_it_forgets_no_start)
{
    struct load l;
    load_open(&l, VOW_GATE(.rate = 10, .window_ms = 100));
    load_run_many(&l, 30, 0, NULL);
    world_advance_ms(l.w, 10);
    CHECK_UINT_EQ(l.n_starts, 10);
    set_rate(&l, 2, false);
    world_advance_ms(l.w, 10);
    set_rate(&l, 10, false);
    world_run(l.w);
    CHECK_UINT_EQ(l.n_starts, 30);
    CHECK_UINT_EQ(load_most_within(&l, 100), 10);
    load_close(&l);
}

TEST(gate_rate, even_from_now_on_it_counts_from_the_last_start)
{
    for (uint32_t before = 10; before <= 100; before += 90) {
        struct load l;
        load_open(&l, VOW_GATE(.rate = before, .even = before == 100));
        load_run_many(&l, 1, 0, NULL);
        world_advance_ms(l.w, 1);
        set_rate(&l, 10, true);
        load_run_many(&l, 2, 0, NULL);
        world_run(l.w);
        CHECK_UINT_EQ(load_ms(&l, 1), 100);
        CHECK_UINT_EQ(load_ms(&l, 2), 200);
        load_close(&l);
    }
}
