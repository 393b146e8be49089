/* SPDX-License-Identifier: MIT */
/* backing_test.c - a gate or a semaphore with somebody else's limits behind it:
 * who asks, when, for what; what is held and what comes back; and the loss of
 * what was granted. */
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

static uint32_t blocked(const struct pair *p, const struct load_job *j)
{
    vow_job_explain x;
    vow_gate_explain(p->l.gate, j->f, &x);
    return x.blocked;
}

/* ---- grants -------------------------------------------------------------- */

TEST(backing, a_grant_is_taken_once_and_released_once)
{
    struct world w;
    struct fake k;
    world_open(&w);
    fake_init(&k, 1);
    fake_open(&k, w.loop);
    vow_future *f = fake_acquire(&k.backing, TEST_HERE, NULL, 1);
    vow_grant *g = vow_grant_take(vow_get(f));
    CHECK_PTR_EQ(g, &k.tickets[0].grant);
    CHECK_PTR_EQ(vow_grant_take(vow_get(f)), NULL);
    vow_grant_release(g);
    CHECK_UINT_EQ(k.released, 1);
    CHECK_UINT_EQ(k.freed, 0); /* the future knows it still */
    vow_future_unref(f);
    CHECK_UINT_EQ(k.freed, 1);
    CHECK_UINT_EQ(k.released, 1);
    fake_check_unused(&k);
    world_close(&w);
}

TEST(backing, a_grant_outlives_its_future)
{
    struct world w;
    struct fake k;
    world_open(&w);
    fake_init(&k, 1);
    fake_open(&k, w.loop);
    vow_future *f = fake_acquire(&k.backing, TEST_HERE, NULL, 1);
    vow_grant *g = vow_grant_take(vow_get(f));
    vow_future_unref(f);
    CHECK_UINT_EQ(k.released, 0);
    vow_grant_release(g);
    vow_grant_release(NULL);
    fake_check_unused(&k);
    CHECK_UINT_EQ(k.freed, 1);
    world_close(&w);
}

TEST(backing, a_grant_that_nobody_takes_goes_back_with_its_future)
{
    struct world w;
    struct fake k;
    world_open(&w);
    fake_init(&k, 1);
    fake_open(&k, w.loop);
    vow_future_unref(fake_acquire(&k.backing, TEST_HERE, NULL, 1));
    CHECK_UINT_EQ(k.released, 1);
    CHECK_UINT_EQ(k.freed, 1);
    CHECK_PTR_EQ(vow_grant_take(vow_int(3)), NULL);
    CHECK_PTR_EQ(vow_grant_take(vow_nothing()), NULL);
    world_close(&w);
}

/* ---- asking -------------------------------------------------------------- */

TEST(backing, a_job_asks_starts_and_releases_when_it_has_ended)
{
    struct pair p;
    pair_open(&p, 1, VOW_GATE(.concurrent = 1));
    CHECK_INT_EQ(p.k.refs, 1);
    struct load_job *a = load_run(&p.l, 10, VOW_JOB(.key = "k", .weight = 1));
    CHECK_UINT_EQ(p.k.n, 0); /* never inside the call */
    world_turn(p.l.w);
    CHECK_STR_EQ(p.l.order, "a");
    CHECK_UINT_EQ(p.k.n, 1);
    CHECK_UINT_EQ(p.k.tickets[0].weight, 1);
    CHECK_STR_EQ(p.k.tickets[0].key, "k");
    CHECK_PTR_EQ(p.k.tickets[0].site, vow_future_site(a->f));
    CHECK_UINT_EQ(p.k.held, 1);
    world_advance_ms(p.l.w, 9);
    CHECK_UINT_EQ(p.k.released, 0);
    world_advance_ms(p.l.w, 1);
    CHECK_UINT_EQ(p.k.released, 1);
    CHECK_INT_EQ(load_code(a), 0);
    pair_close(&p);
}

static vow_future *not_told_yet(vow_loop *loop, uint32_t number, void *fake)
{
    const struct fake *k = fake;
    (void)number;
    CHECK_UINT_EQ(k->started, 0);
    return vow_delay(loop, 10);
}

TEST(backing, a_grant_hears_of_the_start_when_the_work_has_begun)
{
    struct pair p;
    pair_open(&p, 2, VOW_GATE(.concurrent = 9));
    p.k.late = true;
    VOW_AUTO(vow_future)
    f = vow_gate_run(p.l.gate, not_told_yet, &p.k, NULL);
    world_turn(p.l.w);
    CHECK_UINT_EQ(p.k.n, 1);
    CHECK_UINT_EQ(p.k.started, 0);
    fake_grant(&p.k, 0);
    world_turn(p.l.w);
    CHECK_UINT_EQ(p.k.started, 1);
    CHECK_UINT_EQ(p.k.released, 0);
    world_run(p.l.w);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), 0);
    CHECK_UINT_EQ(p.k.released, 1);
    f = vow_future_unref(f);
    pair_close(&p);
}

TEST(backing, what_waits_here_does_not_ask_there)
{
    struct pair p;
    pair_open(&p, 9, VOW_GATE(.concurrent = 2));
    load_run_many(&p.l, 5, 10, NULL);
    world_turn(p.l.w);
    CHECK_UINT_EQ(p.k.n, 2);
    world_run(p.l.w);
    CHECK_UINT_EQ(p.k.n, 5);
    CHECK_UINT_EQ(p.k.most, 2);
    CHECK_STR_EQ(p.l.order, "abcde");
    pair_close(&p);
}

TEST(backing, both_limits_hold_and_the_order_stays)
{
    struct pair p;
    pair_open(&p, 3, VOW_GATE(.concurrent = 5));
    load_run_many(&p.l, 20, 10, NULL);
    world_run(p.l.w);
    CHECK_UINT_EQ(p.l.peak, 3);
    CHECK_UINT_EQ(p.k.most, 3);
    CHECK_STR_EQ(p.l.order, "abcdefghijklmnopqrst");
    CHECK_UINT_EQ(load_stats(&p.l).ended, 20);
    pair_close(&p);
}

TEST(backing, jobs_start_in_the_order_of_the_grants)
{
    struct pair p;
    pair_open(&p, 9, VOW_GATE(.concurrent = 9));
    p.k.late = true;
    load_run_many(&p.l, 3, 10, NULL);
    world_turn(p.l.w);
    CHECK_UINT_EQ(p.k.n, 3);
    fake_grant(&p.k, 2);
    fake_grant(&p.k, 0);
    world_turn(p.l.w);
    CHECK_STR_EQ(p.l.order, "ca");
    fake_grant(&p.k, 1);
    pair_close(&p);
    CHECK_STR_EQ(p.l.order, "cab");
}

TEST(backing, a_job_that_asks_waits_and_says_for_what)
{
    struct pair p;
    char text[200];
    vow_job_explain x;
    pair_open(&p, 9, VOW_GATE(.concurrent = 1));
    p.k.late = true;
    struct load_job *a = load_run(&p.l, 10, NULL);
    struct load_job *b = load_run(&p.l, 10, NULL);
    world_advance_ms(p.l.w, 70);
    vow_gate_explain(p.l.gate, a->f, &x);
    CHECK_UINT_EQ(x.state, VOW_JOB_WAITS);
    CHECK_UINT_EQ(x.blocked, VOW_BY_BACKING);
    CHECK_UINT_EQ(x.waited_ms, 70);
    CHECK_UINT_EQ(x.ahead, 0);
    CHECK(x.starts_in_ms == UINT64_MAX);
    (void)vow_job_explain_text(&x, text, sizeof(text));
    CHECK_STR_EQ(text, "waits for 70 ms; the shared limit has not granted it; "
                       "when it starts cannot be said");
    CHECK_UINT_EQ(blocked(&p, b), VOW_BY_CONCURRENCY);
    CHECK_UINT_EQ(load_stats(&p.l).waiting, 2);
    CHECK_UINT_EQ(load_stats(&p.l).running, 0);
    CHECK_UINT_EQ(load_stats(&p.l).weight, 1);
    CHECK_UINT_EQ(load_stats(&p.l).started, 0);
    CHECK_UINT_EQ(load_stats(&p.l).ended, 0);
    VOW_AUTO(vow_future) idle = vow_gate_idle(p.l.gate);
    p.k.late = false;
    fake_grant(&p.k, 0);
    world_turn(p.l.w);
    CHECK_UINT_EQ(load_stats(&p.l).running, 1);
    CHECK(vow_state_of(idle) == VOW_PENDING);
    world_run(p.l.w);
    CHECK(vow_state_of(idle) == VOW_FULFILLED);
    idle = vow_future_unref(idle);
    pair_close(&p);
}

TEST(backing, a_start_counts_for_the_rate_when_it_begins)
{
    struct pair p;
    pair_open(&p, 9, VOW_GATE(.rate = 1));
    p.k.late = true;
    load_run_many(&p.l, 2, 0, NULL);
    world_advance_ms(p.l.w, 700);
    CHECK_UINT_EQ(p.k.n, 1); /* the only one that could start */
    p.k.late = false;
    fake_grant(&p.k, 0);
    world_turn(p.l.w);
    CHECK_STR_EQ(p.l.order, "a");
    world_advance_ms(p.l.w, 1000);
    CHECK_STR_EQ(p.l.order, "a");
    world_advance_ms(p.l.w, 1);
    CHECK_STR_EQ(p.l.order, "ab");
    pair_close(&p);
}

TEST(backing, a_permit_counts_for_the_rate_when_it_is_granted)
{
    struct pair p;
    pair_open(&p, 9, VOW_GATE(.rate = 1, .key_rate = 1));
    p.k.late = true;
    vow_future *f[2];
    for (int i = 0; i < 2; i++)
        f[i] = vow_gate_enter(p.l.gate, VOW_JOB(.key = "k"));
    world_advance_ms(p.l.w, 700);
    CHECK_UINT_EQ(p.k.n, 1);
    fake_grant(&p.k, 0);
    world_advance_ms(p.l.w, 1000);
    CHECK_UINT_EQ(p.k.n, 1);
    world_advance_ms(p.l.w, 1);
    CHECK_UINT_EQ(p.k.n, 2);
    fake_grant(&p.k, 1);
    world_turn(p.l.w);
    for (int i = 0; i < 2; i++) {
        CHECK(vow_state_of(f[i]) == VOW_FULFILLED);
        vow_future_unref(f[i]);
    }
    pair_close(&p);
}

TEST(backing, each_attempt_asks_again_and_holds_nothing_between)
{
    struct pair p;
    pair_open(&p, 1, VOW_GATE(.concurrent = 1));
    struct load_job *a = load_job(&p.l, 10);
    a->fails = 2;
    a->retry_after_ms = 500;
    a->f = vow_gate_run(p.l.gate, load_start, a, VOW_JOB(.retry = VOW_RETRY()));
    world_advance_ms(p.l.w, 11);
    CHECK_UINT_EQ(p.k.n, 1);
    CHECK_UINT_EQ(p.k.held, 0);
    world_run(p.l.w);
    CHECK_INT_EQ(load_code(a), 0);
    CHECK_UINT_EQ(p.k.n, 3);
    CHECK_UINT_EQ(p.k.released, 3);
    pair_close(&p);
}

/* ---- refusals ------------------------------------------------------------ */

TEST(backing, a_refusal_rejects_the_job_and_frees_its_place)
{
    struct pair p;
    pair_open(&p, 1, VOW_GATE(.concurrent = 1, .key_concurrent = 1));
    p.k.refuse = VOW_EIO;
    struct load_job *a = load_run(&p.l, 10, VOW_JOB(.key = "k"));
    world_turn(p.l.w);
    CHECK_INT_EQ(load_code(a), VOW_EIO);
    CHECK_STR_EQ(vow_error_message(vow_error_of(a->f)), "not you");
    CHECK_UINT_EQ(load_stats(&p.l).refused, 1);
    CHECK_UINT_EQ(load_stats(&p.l).weight, 0);
    p.k.refuse = 0;
    struct load_job *b = load_run(&p.l, 10, VOW_JOB(.key = "k"));
    world_run(p.l.w);
    CHECK_INT_EQ(load_code(b), 0);
    CHECK_STR_EQ(p.l.order, "b");
    pair_close(&p);
}

TEST(backing, a_refused_permit_has_the_error_too)
{
    struct pair p;
    pair_open(&p, 1, VOW_GATE(.concurrent = 1));
    p.k.refuse = VOW_ESTORE;
    VOW_AUTO(vow_future) f = vow_gate_enter(p.l.gate, NULL);
    world_turn(p.l.w);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_ESTORE);
    CHECK_UINT_EQ(load_stats(&p.l).weight, 0);
    f = vow_future_unref(f);
    pair_close(&p);
}

TEST(backing, an_answer_that_is_no_grant_is_an_error)
{
    struct pair p;
    pair_open(&p, 1, VOW_GATE(.concurrent = 1));
    p.k.empty = true;
    struct load_job *a = load_run(&p.l, 10, NULL);
    world_turn(p.l.w);
    CHECK_INT_EQ(load_code(a), VOW_EINVAL);
    p.k.empty = false;
    p.k.absent = true;
    struct load_job *b = load_run(&p.l, 10, NULL);
    world_turn(p.l.w);
    CHECK_INT_EQ(load_code(b), VOW_EINVAL);
    CHECK_UINT_EQ(load_stats(&p.l).weight, 0);
    pair_close(&p);
}

TEST(backing, a_backing_that_cannot_be_asked_or_kept_is_refused)
{
    struct world w;
    vow_gate *g = NULL;
    struct fake k[3];
    world_open(&w);
    for (int i = 0; i < 3; i++) {
        fake_init(&k[i], 1);
        if (i == 0)
            k[i].backing.acquire = NULL;
        if (i == 1)
            k[i].backing.ref = NULL;
        if (i == 2)
            k[i].backing.unref = NULL;
        CHECK_INT_EQ(
            vow_gate_new(w.loop, VOW_GATE(.backing = &k[i].backing), &g),
            VOW_EINVAL);
    }
    CHECK_PTR_EQ(g, NULL);
    world_close(&w);
}

/* ---- permits ------------------------------------------------------------- */

TEST(backing, a_permit_has_the_fence_and_what_tells_of_its_loss)
{
    struct pair p;
    pair_open(&p, 2, VOW_GATE(.concurrent = 2, .key_concurrent = 2));
    VOW_AUTO(vow_future)
    f = vow_gate_enter(p.l.gate, VOW_JOB(.key = "k", .weight = 2));
    world_turn(p.l.w);
    vow_permit held = vow_permit_take(vow_get(f));
    vow_permit again = vow_permit_take(vow_get(f));
    CHECK(vow_permit_held(&held));
    CHECK(!vow_permit_held(&again));
    f = vow_future_unref(f);
    CHECK_UINT_EQ(vow_permit_fence(&held), 1);
    CHECK_UINT_EQ(vow_permit_fence(&again), 0);
    CHECK_PTR_EQ(vow_permit_lost(&again), NULL);
    vow_future *lost = vow_permit_lost(&held);
    CHECK_PTR_EQ(lost, p.k.tickets[0].grant.lost);
    fake_lose(&p.k, 0);
    world_turn(p.l.w);
    CHECK_INT_EQ(vow_error_code(vow_error_of(lost)), VOW_ELOST);
    CHECK(vow_permit_held(&held)); /* it is for its holder to act */
    CHECK_UINT_EQ(p.k.released, 0);
    CHECK_UINT_EQ(load_stats(&p.l).weight, 2);
    vow_permit_release(&held);
    CHECK_UINT_EQ(p.k.released, 1);
    CHECK_PTR_EQ(vow_permit_lost(&held), NULL);
    CHECK_UINT_EQ(vow_permit_fence(&held), 0);
    vow_permit_release(&held);
    CHECK_UINT_EQ(load_stats(&p.l).weight, 0);
    CHECK_UINT_EQ(load_stats(&p.l).keys, 0);
    pair_close(&p);
}

/* Nor is its loss an unhandled rejection. */
TEST(backing, a_lost_permit_may_be_released_unseen)
{
    struct pair p;
    pair_open(&p, 1, VOW_GATE(.concurrent = 1));
    vow_future *f = vow_gate_enter(p.l.gate, NULL);
    world_turn(p.l.w);
    vow_permit held = vow_permit_take(vow_get(f));
    vow_future_unref(f);
    fake_lose(&p.k, 0);
    world_turn(p.l.w);
    vow_permit_release(&held);
    pair_close(&p);
}

TEST(backing, a_permit_of_no_backing_has_neither)
{
    struct world w;
    vow_sem *s;
    vow_permit p = {0};
    world_open(&w);
    CHECK_PTR_EQ(vow_permit_lost(&p), NULL);
    CHECK_INT_EQ(vow_sem_new(w.loop, NULL, &s), 0);
    CHECK(vow_sem_try(s, 1, &p));
    CHECK_PTR_EQ(vow_permit_lost(&p), NULL);
    CHECK_UINT_EQ(vow_permit_fence(&p), 0);
    vow_permit_release(&p);
    vow_sem_unref(s);
    world_close(&w);
}

TEST(backing, a_permit_that_nobody_takes_gives_the_grant_back)
{
    struct pair p;
    pair_open(&p, 1, VOW_GATE(.concurrent = 1));
    vow_future *f = vow_gate_enter(p.l.gate, NULL);
    world_turn(p.l.w);
    CHECK(vow_state_of(f) == VOW_FULFILLED);
    CHECK_UINT_EQ(p.k.held, 1);
    vow_future_unref(f);
    CHECK_UINT_EQ(p.k.held, 0);
    CHECK_UINT_EQ(load_stats(&p.l).weight, 0);
    pair_close(&p);
}

TEST(backing, a_permit_outlives_the_gate_s_handles_and_keeps_the_backing)
{
    struct pair p;
    pair_open(&p, 1, VOW_GATE(.concurrent = 1));
    vow_future *f = vow_gate_enter(p.l.gate, NULL);
    world_turn(p.l.w);
    vow_permit held = vow_permit_take(vow_get(f));
    vow_future_unref(f);
    p.l.gate = vow_gate_unref(p.l.gate);
    CHECK_INT_EQ(p.k.refs, 1);
    CHECK_UINT_EQ(vow_permit_fence(&held), 1);
    vow_permit_release(&held);
    CHECK_INT_EQ(p.k.refs, 0);
    pair_close(&p);
}

TEST(backing, there_is_no_try_where_somebody_must_be_asked)
{
    struct pair p;
    vow_permit held = {0};
    vow_sem *s;
    pair_open(&p, 9, VOW_GATE(.concurrent = 9));
    CHECK(!vow_gate_try(p.l.gate, NULL, &held));
    CHECK(!vow_gate_try(p.l.gate, VOW_JOB(.key = "k"), &held));
    CHECK_INT_EQ(
        vow_sem_new(p.l.w->loop,
                    VOW_SEM_OPTS(.permits = 9, .backing = &p.k.backing), &s),
        0);
    CHECK(!vow_sem_try(s, 1, &held));
    CHECK(!vow_permit_held(&held));
    CHECK_UINT_EQ(p.k.n, 0);
    vow_sem_unref(s);
    pair_close(&p);
}

TEST(backing, a_semaphore_asks_for_the_weight_and_is_resized_while_it_does)
{
    struct world w;
    struct fake k;
    vow_sem *s;
    world_open(&w);
    fake_init(&k, 4);
    fake_open(&k, w.loop);
    CHECK_INT_EQ(vow_sem_new(w.loop,
                             VOW_SEM_OPTS(.permits = 4, .backing = &k.backing),
                             &s),
                 0);
    k.late = true;
    VOW_AUTO(vow_future) a = vow_sem_acquire(s, 3);
    VOW_AUTO(vow_future) b = vow_sem_acquire(s, 1);
    world_turn(&w);
    CHECK_UINT_EQ(k.n, 2);
    CHECK_UINT_EQ(k.tickets[0].weight, 3);
    CHECK_UINT_EQ(vow_sem_stats_get(s).waiting, 2);
    CHECK_INT_EQ(vow_sem_resize(s, 3), 0);
    CHECK(k.tickets[0].canceled && k.tickets[1].canceled);
    world_turn(&w);
    CHECK_UINT_EQ(k.n, 3); /* the first asks again, the other waits here */
    k.late = false;
    fake_grant(&k, 2);
    world_turn(&w);
    vow_permit held = vow_permit_take(vow_get(a));
    CHECK_UINT_EQ(vow_permit_fence(&held), 3);
    CHECK(vow_state_of(b) == VOW_PENDING);
    vow_permit_release(&held);
    world_turn(&w);
    CHECK(vow_state_of(b) == VOW_FULFILLED);
    a = vow_future_unref(a);
    b = vow_future_unref(b);
    vow_sem_unref(s);
    fake_check_unused(&k);
    world_close(&w);
}
