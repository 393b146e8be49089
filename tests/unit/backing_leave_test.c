/* SPDX-License-Identifier: MIT */
/* backing_leave_test.c - a gate with a backing when things do not go their way:
 * cancel in every state, deadlines, losses, pauses, the end; and every fault.
 */
#include "fake_backing.h"
#include "fault.h"
#include "load.h"

struct pair {
    struct load l;
    struct fake k;
};

static void pair_open(struct pair *p, uint32_t limit, const vow_gate_opts *opts)
{
    vow_gate_opts o = *opts;
    fake_init(&p->k, limit);
    o.backing = &p->k.backing;
    load_open(&p->l, &o);
    fake_open(&p->k, p->l.w->loop);
}

static void pair_close(struct pair *p)
{
    load_close(&p->l);
    fake_check_unused(&p->k);
}

/* ---- cancel -------------------------------------------------------------- */

TEST(backing_leave, a_job_canceled_before_it_asks_never_does)
{
    struct pair p;
    pair_open(&p, 1, VOW_GATE(.concurrent = 1));
    struct load_job *a = load_run(&p.l, 10, NULL);
    CHECK(vow_cancel(a->f, NULL));
    CHECK_INT_EQ(load_code(a), VOW_ECANCELED);
    CHECK_UINT_EQ(load_stats(&p.l).weight, 0);
    world_run(p.l.w);
    CHECK_UINT_EQ(p.k.n, 0);
    pair_close(&p);
}

TEST(backing_leave, a_job_canceled_while_it_asks_takes_the_question_back)
{
    struct pair p;
    pair_open(&p, 1, VOW_GATE(.concurrent = 1));
    p.k.late = true;
    struct load_job *a = load_run(&p.l, 10, NULL);
    struct load_job *b = load_run(&p.l, 10, NULL);
    world_turn(p.l.w);
    CHECK(vow_cancel(a->f, NULL));
    CHECK_INT_EQ(load_code(a), VOW_ECANCELED); /* at once */
    CHECK_UINT_EQ(load_stats(&p.l).canceled, 1);
    world_turn(p.l.w);
    CHECK(p.k.tickets[0].canceled);
    CHECK_UINT_EQ(p.k.n, 2); /* the next may ask */
    p.k.late = false;
    fake_grant(&p.k, 1);
    world_run(p.l.w);
    CHECK_INT_EQ(load_code(b), 0);
    CHECK_STR_EQ(p.l.order, "b");
    pair_close(&p);
}

/* The answer is there, and the gate has not read it. */
TEST(backing_leave, a_grant_that_comes_with_the_cancel_goes_back)
{
    for (int permit = 0; permit < 2; permit++) {
        struct pair p;
        pair_open(&p, 1, VOW_GATE(.concurrent = 1));
        p.k.late = true;
        struct load_job *a = load_job(&p.l, 10);
        a->f = permit ? vow_gate_enter(p.l.gate, NULL)
                      : vow_gate_run(p.l.gate, load_start, a, NULL);
        world_turn(p.l.w);
        fake_grant(&p.k, 0);
        CHECK(vow_cancel(a->f, NULL));
        CHECK_UINT_EQ(p.k.released, 1);
        world_run(p.l.w);
        CHECK_INT_EQ(load_code(a), VOW_ECANCELED);
        CHECK_STR_EQ(p.l.order, "");
        pair_close(&p);
    }
}

/* A refusal that nobody reads is not an unhandled rejection. */
TEST(backing_leave, a_refusal_that_comes_with_the_cancel_is_forgotten)
{
    struct pair p;
    pair_open(&p, 1, VOW_GATE(.concurrent = 1));
    p.k.late = true;
    struct load_job *a = load_run(&p.l, 10, NULL);
    world_turn(p.l.w);
    struct fake_ticket *t = &p.k.tickets[0];
    vow_on_cancel(t->out, NULL, NULL);
    CHECK(vow_reject_code(t->out, VOW_EIO, "too late"));
    t->out = vow_deferred_unref(t->out);
    p.k.waiting--;
    CHECK(vow_cancel(a->f, NULL));
    world_run(p.l.w);
    CHECK_INT_EQ(load_code(a), VOW_ECANCELED);
    pair_close(&p);
}

/* Its hook comes by the queue, behind the answer. */
TEST(backing_leave, a_job_let_go_by_its_last_reader_is_not_started)
{
    for (int permit = 0; permit < 2; permit++) {
        struct pair p;
        pair_open(&p, 1, VOW_GATE(.concurrent = 1));
        p.k.late = true;
        struct load_job *a = load_job(&p.l, 10);
        a->f = permit ? vow_gate_enter(p.l.gate, NULL)
                      : vow_gate_run(p.l.gate, load_start, a, NULL);
        vow_future *all = vow_all(p.l.w->loop, &a->f, 1);
        a->f = vow_future_unref(a->f);
        world_turn(p.l.w);
        CHECK_UINT_EQ(p.k.n, 1);
        fake_grant(&p.k, 0);
        (void)vow_cancel(all, NULL);
        world_run(p.l.w);
        CHECK_STR_EQ(p.l.order, "");
        CHECK_UINT_EQ(p.k.released, 1);
        CHECK_UINT_EQ(load_stats(&p.l).started, 0);
        CHECK_UINT_EQ(load_stats(&p.l).weight, 0);
        CHECK_INT_EQ(vow_error_code(vow_error_of(all)), VOW_ECANCELED);
        vow_future_unref(all);
        pair_close(&p);
    }
}

TEST(backing_leave, a_job_let_go_before_it_asks_does_not_ask)
{
    struct pair p;
    pair_open(&p, 1, VOW_GATE(.concurrent = 1));
    struct load_job *a = load_run(&p.l, 10, NULL);
    struct load_job *b = load_run(&p.l, 10, NULL);
    vow_future *all = vow_all(p.l.w->loop, &a->f, 1);
    a->f = vow_future_unref(a->f);
    (void)vow_cancel(all, NULL);
    world_run(p.l.w);
    CHECK_UINT_EQ(p.k.n, 1);
    CHECK_STR_EQ(p.l.order, "b");
    CHECK_INT_EQ(load_code(b), 0);
    (void)vow_error_of(all);
    vow_future_unref(all);
    pair_close(&p);
}

TEST(backing_leave, a_job_canceled_in_its_run_holds_the_grant_until_it_ends)
{
    struct pair p;
    pair_open(&p, 1, VOW_GATE(.concurrent = 1));
    struct load_job *a = load_run(&p.l, LOAD_FOR_EVER, NULL);
    a->stop_ms = 40;
    world_turn(p.l.w);
    CHECK(vow_cancel(a->f, NULL));
    world_advance_ms(p.l.w, 39);
    CHECK(a->asked);
    CHECK_UINT_EQ(p.k.held, 1);
    world_advance_ms(p.l.w, 1);
    CHECK_UINT_EQ(p.k.held, 0);
    pair_close(&p);
}

/* ---- deadlines ----------------------------------------------------------- */

TEST(backing_leave, a_deadline_covers_the_question)
{
    for (int permit = 0; permit < 2; permit++) {
        struct pair p;
        pair_open(&p, 1, VOW_GATE(.concurrent = 1));
        p.k.late = true;
        struct load_job *a = load_job(&p.l, 10);
        const vow_job_opts *o = VOW_JOB(.deadline_ms = 50);
        a->f = permit ? vow_gate_enter(p.l.gate, o)
                      : vow_gate_run(p.l.gate, load_start, a, o);
        world_advance_ms(p.l.w, 49);
        CHECK_INT_EQ(load_code(a), LOAD_PENDING);
        world_advance_ms(p.l.w, 1);
        CHECK_INT_EQ(load_code(a), VOW_ETIMEDOUT);
        CHECK(p.k.tickets[0].canceled);
        CHECK_UINT_EQ(load_stats(&p.l).expired, 1);
        CHECK_UINT_EQ(load_stats(&p.l).weight, 0);
        pair_close(&p);
    }
}

TEST(backing_leave, a_deadline_covers_waiting_here_asking_there_and_running)
{
    struct pair p;
    pair_open(&p, 2, VOW_GATE(.concurrent = 1));
    load_run(&p.l, 20, NULL);
    struct load_job *b =
        load_run(&p.l, LOAD_FOR_EVER, VOW_JOB(.deadline_ms = 100));
    world_turn(p.l.w);
    p.k.late = true;
    world_advance_ms(p.l.w, 60);
    CHECK_UINT_EQ(p.k.n, 2);
    fake_grant(&p.k, 1);
    world_advance_ms(p.l.w, 39);
    CHECK_STR_EQ(p.l.order, "ab");
    CHECK_INT_EQ(load_code(b), LOAD_PENDING);
    world_advance_ms(p.l.w, 1);
    CHECK_INT_EQ(load_code(b), VOW_ETIMEDOUT);
    CHECK(b->asked);
    pair_close(&p);
}

/* ---- losses -------------------------------------------------------------- */

TEST(backing_leave, a_lost_grant_cancels_the_attempt_and_says_why)
{
    struct pair p;
    pair_open(&p, 2, VOW_GATE(.concurrent = 2));
    struct load_job *a = load_run(&p.l, LOAD_FOR_EVER, NULL);
    struct load_job *b = load_run(&p.l, 30, NULL);
    a->stop_ms = 10;
    world_turn(p.l.w);
    fake_lose(&p.k, 0);
    world_turn(p.l.w);
    CHECK(a->asked);
    CHECK(!b->asked);
    CHECK_UINT_EQ(p.k.released, 0); /* it runs still */
    world_advance_ms(p.l.w, 10);
    CHECK_UINT_EQ(p.k.released, 1);
    CHECK_INT_EQ(load_code(a), 0); /* it ended well all the same */
    world_run(p.l.w);
    CHECK_INT_EQ(load_code(b), 0);
    struct load_job *c = load_run(&p.l, LOAD_FOR_EVER, NULL);
    world_turn(p.l.w);
    fake_lose(&p.k, 2);
    world_turn(p.l.w);
    CHECK_INT_EQ(load_code(c), VOW_ECANCELED);
    vow_error *why = vow_error_cause(vow_error_of(c->f));
    CHECK_INT_EQ(vow_error_code(why), VOW_ELOST);
    pair_close(&p);
}

TEST(backing_leave, a_job_whose_grant_is_lost_before_it_starts_is_rejected)
{
    struct pair p;
    pair_open(&p, 1, VOW_GATE(.concurrent = 1));
    p.k.late = true;
    struct load_job *a = load_run(&p.l, 10, NULL);
    world_turn(p.l.w);
    fake_grant(&p.k, 0);
    fake_lose(&p.k, 0);
    world_turn(p.l.w);
    CHECK_INT_EQ(load_code(a), VOW_ELOST);
    CHECK_STR_EQ(p.l.order, "");
    CHECK_UINT_EQ(p.k.released, 1);
    pair_close(&p);
}

TEST(backing_leave, an_attempt_whose_grant_was_lost_is_made_again)
{
    struct pair p;
    pair_open(&p, 1, VOW_GATE(.concurrent = 1));
    struct load_job *a = load_job(&p.l, 20);
    a->f = vow_gate_run(p.l.gate, load_start, a, VOW_JOB(.retry = VOW_RETRY()));
    world_advance_ms(p.l.w, 10);
    fake_lose(&p.k, 0);
    world_run(p.l.w);
    CHECK_INT_EQ(load_code(a), 0);
    CHECK_UINT_EQ(a->starts, 2);
    CHECK_UINT_EQ(p.k.n, 2);
    pair_close(&p);
}

TEST(backing_leave, a_grant_that_cannot_be_lost_needs_no_future)
{
    struct pair p;
    pair_open(&p, 1, VOW_GATE(.concurrent = 1));
    p.k.loses = false;
    struct load_job *a = load_run(&p.l, 10, NULL);
    world_run(p.l.w);
    CHECK_INT_EQ(load_code(a), 0);
    pair_close(&p);
}

/* ---- jobs inside jobs ---------------------------------------------------- */

/* When the outer one ends: at once, later, or with the inner one. */
enum { AT_ONCE, LATER, WITH_IT };

struct nest {
    struct pair p;
    struct load_job *inner;
    int end;
};

static vow_future *outer_start(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct nest *n = arg;
    (void)attempt;
    n->inner =
        load_run(&n->p.l, LOAD_FOR_EVER, VOW_JOB(.nested = VOW_NESTED_LEND));
    if (n->end == WITH_IT)
        return vow_future_ref(n->inner->f);
    return n->end == LATER ? vow_delay(loop, 5)
                           : vow_resolved(loop, vow_nothing());
}

TEST(backing_leave, a_job_in_lent_places_does_not_ask_and_keeps_the_grant)
{
    for (int end = AT_ONCE; end <= WITH_IT; end++) {
        struct nest n = {.end = end};
        pair_open(&n.p, 1, VOW_GATE(.concurrent = 1));
        vow_future *f = vow_gate_run(n.p.l.gate, outer_start, &n, NULL);
        world_advance_ms(n.p.l.w, 10);
        CHECK((vow_state_of(f) == VOW_FULFILLED) == (end != WITH_IT));
        CHECK_UINT_EQ(n.p.k.n, 1);
        CHECK_UINT_EQ(n.inner->starts, 1);
        CHECK_UINT_EQ(n.p.k.held, 1);
        fake_lose(&n.p.k, 0);
        world_turn(n.p.l.w);
        CHECK(n.inner->asked);
        CHECK_INT_EQ(load_code(n.inner), VOW_ECANCELED);
        CHECK_UINT_EQ(n.p.k.held, 0);
        (void)vow_error_of(f);
        vow_future_unref(f);
        pair_close(&n.p);
    }
}

/* ---- changes ------------------------------------------------------------- */

TEST(backing_leave, a_pause_takes_questions_back_and_their_order_stays)
{
    struct pair p;
    pair_open(&p, 9, VOW_GATE(.concurrent = 3));
    p.k.late = true;
    load_run_many(&p.l, 5, 10, NULL);
    world_turn(p.l.w);
    CHECK_UINT_EQ(p.k.n, 3);
    vow_gate_pause(p.l.gate);
    CHECK_UINT_EQ(p.k.waiting, 0);
    CHECK_UINT_EQ(load_stats(&p.l).weight, 0);
    CHECK_UINT_EQ(load_stats(&p.l).waiting, 5);
    world_advance_ms(p.l.w, 100);
    CHECK_UINT_EQ(p.k.n, 3);
    p.k.late = false;
    vow_gate_resume(p.l.gate);
    world_run(p.l.w);
    CHECK_STR_EQ(p.l.order, "abcde");
    pair_close(&p);
}

TEST(backing_leave, a_granted_job_that_is_recalled_gives_the_grant_back)
{
    struct pair p;
    pair_open(&p, 9, VOW_GATE(.concurrent = 1));
    p.k.late = true;
    struct load_job *a = load_run(&p.l, 10, NULL);
    world_turn(p.l.w);
    fake_grant(&p.k, 0);
    vow_gate_pause(p.l.gate);
    CHECK_UINT_EQ(p.k.released, 1);
    world_run(p.l.w);
    CHECK_INT_EQ(load_code(a), LOAD_PENDING);
    p.k.late = false;
    vow_gate_resume(p.l.gate);
    world_run(p.l.w);
    CHECK_INT_EQ(load_code(a), 0);
    CHECK_UINT_EQ(p.k.n, 2);
    pair_close(&p);
}

static bool too_much(vow_error *e, void *user)
{
    (void)user;
    return vow_error_code(e) == VOW_EAGAIN;
}

TEST(backing_leave, an_overload_of_a_key_takes_its_questions_back_alone)
{
    struct pair p;
    pair_open(&p, 9, VOW_GATE(.concurrent = 9, .overloaded = too_much));
    struct load_job *a = load_run(&p.l, 10, VOW_JOB(.key = "x"));
    a->fails = 1;
    a->code = VOW_EAGAIN;
    a->retry_after_ms = 1000;
    world_turn(p.l.w);
    p.k.late = true;
    load_run(&p.l, 10, VOW_JOB(.key = "x"));
    load_run(&p.l, 10, VOW_JOB(.key = "y"));
    world_advance_ms(p.l.w, 10);
    CHECK_INT_EQ(load_code(a), VOW_EAGAIN);
    CHECK(p.k.tickets[1].canceled);
    CHECK(!p.k.tickets[2].canceled);
    p.k.late = false;
    fake_grant(&p.k, 2);
    world_advance_ms(p.l.w, 999);
    CHECK_STR_EQ(p.l.order, "ac");
    world_run(p.l.w);
    CHECK_STR_EQ(p.l.order, "acb");
    CHECK(load_ms(&p.l, 2) >= 1010);
    pair_close(&p);
}

TEST(backing_leave, a_change_keeps_the_backing)
{
    struct pair p;
    pair_open(&p, 9, VOW_GATE(.concurrent = 1));
    CHECK_INT_EQ(vow_gate_set(p.l.gate, VOW_GATE(.concurrent = 2)), 0);
    CHECK_PTR_EQ(vow_gate_get(p.l.gate).backing, &p.k.backing);
    load_run_many(&p.l, 2, 10, NULL);
    world_turn(p.l.w);
    CHECK_UINT_EQ(p.k.held, 2);
    pair_close(&p);
}

/* ---- the end ------------------------------------------------------------- */

TEST(backing_leave, clear_and_close_reject_those_who_ask)
{
    for (int closes = 0; closes < 2; closes++) {
        struct pair p;
        pair_open(&p, 1, VOW_GATE(.concurrent = 2));
        p.k.late = true;
        load_run_many(&p.l, 3, 10, VOW_JOB(.deadline_ms = 1000));
        world_turn(p.l.w);
        fake_grant(&p.k, 0);
        world_turn(p.l.w);
        if (closes)
            vow_gate_close(p.l.gate);
        else
            vow_gate_clear(p.l.gate, NULL);
        int code = closes ? VOW_ECLOSED : VOW_ECANCELED;
        CHECK_INT_EQ(load_code(&p.l.jobs[0]), LOAD_PENDING);
        CHECK_INT_EQ(load_code(&p.l.jobs[1]), code);
        CHECK_INT_EQ(load_code(&p.l.jobs[2]), code);
        CHECK(p.k.tickets[1].canceled);
        CHECK_UINT_EQ(load_stats(&p.l).dropped, 2);
        world_run(p.l.w);
        CHECK_INT_EQ(load_code(&p.l.jobs[0]), 0);
        CHECK_UINT_EQ(p.k.n, 2);
        pair_close(&p);
    }
}

TEST(backing_leave, the_loop_closes_over_all_of_it)
{
    struct pair p;
    pair_open(&p, 2, VOW_GATE(.concurrent = 4));
    load_run_many(&p.l, 6, 100, VOW_JOB(.deadline_ms = 5000));
    vow_future *f = vow_gate_enter(p.l.gate, VOW_JOB(.priority = 5));
    world_turn(p.l.w);
    vow_future *g = vow_gate_enter(p.l.gate, VOW_JOB(.priority = 15));
    CHECK_UINT_EQ(p.k.held, 2);
    CHECK_UINT_EQ(p.k.waiting, 2);
    load_close_loop(&p.l);
    CHECK(vow_state_of(f) != VOW_PENDING);
    (void)vow_error_of(f);
    (void)vow_error_of(g);
    vow_future_unref(f);
    vow_future_unref(g);
    load_close_dirty(&p.l);
    fake_check_unused(&p.k);
}

/* ---- everything at once -------------------------------------------------- */

static void stir(struct pair *p, uint64_t *seed)
{
    struct load *l = &p->l;
    struct load_job *j = &l->jobs[test_random(seed) % l->n_jobs];
    switch (test_random(seed) % 8) {
    case 0:
        (void)vow_cancel(j->f, NULL);
        break;
    case 1:
        vow_gate_pause(l->gate);
        vow_gate_resume(l->gate);
        break;
    case 2:
        for (size_t i = 0; i < p->k.n; i++)
            if (p->k.tickets[i].granted && !p->k.tickets[i].released &&
                vow_state_of(p->k.tickets[i].grant.lost) == VOW_PENDING) {
                fake_lose(&p->k, i);
                break;
            }
        break;
    case 3:
        vow_gate_report(l->gate, "k", 3);
        break;
    default:
        world_advance_ms(l->w, test_random(seed) % 5);
    }
}

TEST(backing_leave, whatever_happens_the_limit_holds_and_all_comes_back)
{
    for (uint64_t round = 0; round < 40; round++) {
        struct pair p;
        uint64_t seed = test_seed() + round;
        pair_open(&p, 5,
                  VOW_GATE(.concurrent = 7, .rate = 20, .window_ms = 10));
        for (int i = 0; i < 60; i++) {
            uint64_t r = test_random(&seed);
            (void)load_run(&p.l, r % 8,
                           VOW_JOB(.weight = 1 + (uint32_t)(r >> 8) % 3,
                                   .key = (r >> 16) % 2 ? "k" : NULL,
                                   .deadline_ms = (r >> 20) % 4 ? 0 : 30));
            stir(&p, &seed);
        }
        world_run(p.l.w);
        CHECK(p.k.most <= 5);
        CHECK(load_most_within(&p.l, 10) <= 20);
        for (size_t i = 0; i < p.l.n_jobs; i++)
            CHECK(load_code(&p.l.jobs[i]) != LOAD_PENDING);
        CHECK_UINT_EQ(load_stats(&p.l).weight, 0);
        pair_close(&p);
    }
}

FAULT_SWEEP(backing_leave, jobs_and_permits_survive_every_fault, FAULT_ALLOC)
{
    static struct load l;
    static struct fake k;
    fake_init(&k, 2); /* one is held by the permit */
    fake_open(&k, w->loop);
    if (load_join(&l, w, VOW_GATE(.concurrent = 3, .backing = &k.backing)) < 0)
        return;
    load_run(&l, 5, VOW_JOB(.key = "k"));
    load_run(&l, 5, VOW_JOB(.deadline_ms = 1000, .retry = VOW_RETRY()));
    vow_future *f = vow_gate_enter(l.gate, VOW_JOB(.key = "k"));
    vow_future *gone = vow_gate_enter(l.gate, NULL);
    world_turn(w);
    (void)vow_cancel(gone, NULL);
    world_run(w);
    int rc = vow_error_code(vow_error_of(f));
    CHECK(rc == 0 || fault_explains(w, rc));
    vow_permit held = vow_permit_take(vow_get(f));
    CHECK(vow_permit_held(&held) == (rc == 0));
    vow_permit_release(&held);
    (void)vow_error_of(gone);
    vow_future_unref(f);
    vow_future_unref(gone);
    world_run(w);
    load_leave(&l);
    world_run(w);
    fake_check_unused(&k);
}
