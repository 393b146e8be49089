/* SPDX-License-Identifier: MIT */
/* semaphore_use_test.c - a semaphore in use: waiting until it is idle, resize,
 * close, with(), fibers, what would wait for itself, no memory, many waiters.
 */
#include "load.h"
#include "room.h"

/* ---- wait --------------------------------------------------------------- */

TEST(sem, wait_settles_when_nothing_is_held_and_nobody_waits)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 2));
    vow_future *at_once = vow_sem_wait(r.s);
    world_turn(&r.w);
    CHECK_INT_EQ(vow_state_of(at_once), VOW_FULFILLED);
    int a = hold(&r, 1);
    vow_future *idle = vow_sem_wait(r.s), *too = vow_sem_wait(r.s);
    int b = ask(&r, 2); /* who comes later is waited for as well */
    give(&r, a);
    CHECK(got(&r, b));
    CHECK_INT_EQ(vow_state_of(idle), VOW_PENDING);
    give(&r, b);
    CHECK_INT_EQ(vow_state_of(idle), VOW_FULFILLED);
    CHECK_INT_EQ(vow_state_of(too), VOW_FULFILLED);
    vow_future_unref(at_once);
    vow_future_unref(idle);
    vow_future_unref(too);
    room_close(&r);
}

TEST(sem, a_canceled_wait_leaves_and_a_dropped_one_costs_nothing)
{
    struct room r;
    room_open(&r, NULL);
    int a = hold(&r, 1);
    vow_future *idle = vow_sem_wait(r.s);
    vow_future_unref(vow_sem_wait(r.s));
    CHECK(vow_cancel(idle, NULL));
    world_turn(&r.w);
    CHECK_INT_EQ(code_of(idle), VOW_ECANCELED);
    give(&r, a);
    vow_future_unref(idle);
    room_close(&r);
}

TEST(sem, wait_settles_when_what_nobody_took_comes_back)
{
    struct room r;
    room_open(&r, NULL);
    int a = ask(&r, 1);
    vow_future *idle = vow_sem_wait(r.s);
    world_turn(&r.w);
    CHECK_INT_EQ(vow_state_of(idle), VOW_PENDING);
    r.ask[a] = vow_future_unref(r.ask[a]);
    world_turn(&r.w);
    CHECK_INT_EQ(vow_state_of(idle), VOW_FULFILLED);
    vow_future_unref(idle);
    room_close(&r);
}

/* ---- resize ------------------------------------------------------------- */

/* https://github.com/golang/go/issues/29721 */
TEST(sem, grown_it_lets_waiters_in_at_once)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 1));
    hold(&r, 1);
    int b = ask(&r, 1), c = ask(&r, 1), d = ask(&r, 1);
    CHECK_INT_EQ(vow_sem_resize(r.s, 3), 0);
    CHECK(got(&r, b) && got(&r, c) && waits(&r, d));
    CHECK_UINT_EQ(vow_sem_stats_get(r.s).permits, 3);
    room_close(&r);
}

TEST(sem, shrunk_below_its_use_it_grants_nothing_until_enough_came_back)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 4));
    int a = hold(&r, 1), b = hold(&r, 1), c = hold(&r, 2);
    CHECK_INT_EQ(vow_sem_resize(r.s, 2), 0);
    int d = ask(&r, 1);
    vow_permit p = {0};
    CHECK_UINT_EQ(vow_sem_stats_get(r.s).permits, 2);
    check_use(&r, 4, 1);
    give(&r, a);
    CHECK(waits(&r, d));
    give(&r, b);
    CHECK(waits(&r, d));
    CHECK(!vow_sem_try(r.s, 1, &p));
    give(&r, c);
    CHECK(got(&r, d));
    CHECK(!vow_sem_try(r.s, 2, &p));
    CHECK(vow_sem_try(r.s, 1, &p));
    vow_permit_release(&p);
    room_close(&r);
}

TEST(sem, shrunk_it_rejects_waiters_that_ask_for_more_than_there_will_be)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 4));
    int a = hold(&r, 2);
    int big = ask(&r, 4), small = ask(&r, 2), medium = ask(&r, 3);
    CHECK_INT_EQ(vow_sem_resize(r.s, 2), 0);
    world_turn(&r.w);
    CHECK_INT_EQ(code_of(r.ask[big]), VOW_EINVAL);
    CHECK_INT_EQ(code_of(r.ask[medium]), VOW_EINVAL);
    CHECK(waits(&r, small));
    check_use(&r, 2, 1);
    CHECK_INT_EQ(code_of(r.ask[ask(&r, 3)]), VOW_EINVAL);
    give(&r, a);
    CHECK(got(&r, small));
    room_close(&r);
}

TEST(sem, rejecting_a_big_one_by_resize_lets_those_behind_it_in)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 4));
    hold(&r, 1);
    int big = ask(&r, 4), small = ask(&r, 1);
    CHECK_INT_EQ(vow_sem_resize(r.s, 3), 0);
    CHECK(got(&r, small));
    CHECK_INT_EQ(code_of(r.ask[big]), VOW_EINVAL);
    room_close(&r);
}

TEST(sem, resize_to_nothing_is_refused_and_changes_nothing)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 2));
    hold(&r, 2);
    int b = ask(&r, 2);
    CHECK_INT_EQ(vow_sem_resize(r.s, 0), VOW_EINVAL);
    CHECK_UINT_EQ(vow_sem_stats_get(r.s).permits, 2);
    CHECK(waits(&r, b));
    room_close(&r);
}

/* ---- close -------------------------------------------------------------- */

TEST(sem, close_rejects_who_waits_and_who_will_ask)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 2));
    int a = hold(&r, 1), b = ask(&r, 2), c = ask(&r, 1);
    vow_future *idle = vow_sem_wait(r.s);
    vow_sem_close(r.s);
    vow_sem_close(r.s);
    world_turn(&r.w);
    CHECK_INT_EQ(code_of(r.ask[b]), VOW_ECLOSED);
    CHECK_INT_EQ(code_of(r.ask[c]), VOW_ECLOSED);
    CHECK_INT_EQ(code_of(r.ask[ask(&r, 1)]), VOW_ECLOSED);
    vow_permit p = {0};
    CHECK(!vow_sem_try(r.s, 1, &p));
    check_use(&r, 1, 0); /* what is held stays held */
    CHECK_INT_EQ(vow_state_of(idle), VOW_PENDING);
    give(&r, a);
    CHECK_INT_EQ(vow_state_of(idle), VOW_FULFILLED);
    vow_future_unref(idle);
    room_close(&r);
}

/* ---- with --------------------------------------------------------------- */

/* Makes a load whose jobs are started by hand, and no gate. */
static void load_with_room(struct load *l, struct room *r)
{
    memset(l, 0, sizeof(*l));
    l->w = &r->w;
}

static struct load_job *with(struct load *l, struct room *r, uint32_t weight,
                             uint64_t run_ms)
{
    struct load_job *j = load_job(l, run_ms);
    j->weight = weight;
    j->f = vow_sem_with(r->s, weight, load_start, j);
    CHECK(j->f != NULL);
    CHECK_UINT_EQ(j->starts, 0); /* never inside the call */
    return j;
}

TEST(sem, with_gives_back_after_success_and_failure)
{
    struct room r;
    static struct load l;
    room_open(&r, VOW_SEM_OPTS(.permits = 3));
    load_with_room(&l, &r);
    struct load_job *a = with(&l, &r, 2, 10), *b = with(&l, &r, 2, 10);
    struct load_job *c = with(&l, &r, 1, 0);
    b->fails = 1;
    world_advance_ms(&r.w, 9);
    CHECK_STR_EQ(l.order, "a");
    check_use(&r, 2, 2);
    world_advance_ms(&r.w, 1);
    CHECK_STR_EQ(l.order, "abc");
    CHECK_INT_EQ(vow_as_int(vow_get(a->f)), 'a');
    check_use(&r, 2, 0);
    world_advance_ms(&r.w, 10);
    CHECK_INT_EQ(load_code(b), VOW_EIO);
    CHECK_INT_EQ(load_code(c), 0);
    check_use(&r, 0, 0);
    load_drop(&l);
    room_close(&r);
}

static vow_future *start_nothing(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)loop;
    CHECK_UINT_EQ(attempt, 1);
    ++*(int *)arg;
    return NULL;
}

TEST(sem, with_gives_back_when_there_is_nothing_to_start_or_to_wait_for)
{
    struct room r;
    room_open(&r, NULL);
    int calls = 0;
    vow_future *none = vow_sem_with(r.s, 1, NULL, NULL);
    vow_future *null = vow_sem_with(r.s, 1, start_nothing, &calls);
    vow_future *zero = vow_sem_with(r.s, 0, start_nothing, &calls);
    vow_future *more = vow_sem_with(r.s, 2, start_nothing, &calls);
    world_run(&r.w);
    CHECK_INT_EQ(code_of(none), VOW_EINVAL);
    CHECK_INT_EQ(code_of(null), VOW_EINVAL);
    CHECK_INT_EQ(code_of(zero), VOW_EINVAL);
    CHECK_INT_EQ(code_of(more), VOW_EINVAL);
    CHECK_INT_EQ(calls, 1);
    check_use(&r, 0, 0);
    vow_future_unref(none);
    vow_future_unref(null);
    vow_future_unref(zero);
    vow_future_unref(more);
    room_close(&r);
}

TEST(sem, with_canceled_while_it_waits_never_starts)
{
    struct room r;
    static struct load l;
    room_open(&r, NULL);
    load_with_room(&l, &r);
    struct load_job *a = with(&l, &r, 1, LOAD_FOR_EVER);
    struct load_job *b = with(&l, &r, 1, 0), *c = with(&l, &r, 1, 0);
    world_turn(&r.w);
    CHECK(vow_cancel(b->f, NULL));
    CHECK_INT_EQ(load_code(b), VOW_ECANCELED);
    check_use(&r, 1, 1);
    load_end(a);
    world_run(&r.w);
    CHECK_STR_EQ(l.order, "ac");
    CHECK_INT_EQ(load_code(c), 0);
    load_drop(&l);
    room_close(&r);
}

TEST(sem, with_canceled_while_it_runs_holds_until_it_has_ended)
{
    struct room r;
    static struct load l;
    room_open(&r, NULL);
    load_with_room(&l, &r);
    struct load_job *a = with(&l, &r, 1, LOAD_FOR_EVER);
    struct load_job *b = with(&l, &r, 1, LOAD_FOR_EVER);
    struct load_job *c = with(&l, &r, 1, 0);
    a->stop_ms = 30; /* goes on, and succeeds */
    world_turn(&r.w);
    CHECK(vow_cancel(a->f, NULL));
    world_advance_ms(&r.w, 29);
    CHECK(a->asked);
    CHECK_STR_EQ(l.order, "a");
    world_advance_ms(&r.w, 1);
    CHECK_STR_EQ(l.order, "ab");
    CHECK(vow_cancel(b->f, NULL));
    world_run(&r.w);
    CHECK_INT_EQ(load_code(b), VOW_ECANCELED);
    CHECK_STR_EQ(l.order, "abc");
    CHECK_INT_EQ(load_code(c), 0);
    load_drop(&l);
    room_close(&r);
}

TEST(sem, with_goes_on_when_its_future_and_the_semaphore_are_dropped)
{
    struct room r;
    static struct load l;
    room_open(&r, NULL);
    load_with_room(&l, &r);
    for (int i = 0; i < 3; i++) {
        struct load_job *j = with(&l, &r, 1, 10);
        j->f = vow_future_unref(j->f);
    }
    vow_sem_unref(r.s);
    world_run(&r.w);
    CHECK_STR_EQ(l.order, "abc");
    CHECK_UINT_EQ(l.peak, 1);
    CHECK_UINT_EQ(load_ms(&l, 2), 20);
    load_drop(&l);
    world_close(&r.w);
}

/* ---- what would wait for itself ------------------------------------------ */

struct nest {
    struct room r;
    uint32_t outer, inner; /* weights */
    vow_future *asked;     /* of the inner one */
    int ran;
};

static vow_future *inner_start(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    ((struct nest *)arg)->ran++;
    return vow_resolved(loop, vow_int(7));
}

static vow_next ask_inner(vow_value v, void *user)
{
    struct nest *n = user;
    (void)v;
    n->asked = vow_sem_with(n->r.s, n->inner, inner_start, n);
    return vow_follow(vow_future_ref(n->asked));
}

static vow_future *outer_start(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    return vow_then_drop(vow_delay(loop, 10), ask_inner, NULL, arg);
}

static int nest_run(uint32_t permits, uint32_t outer, uint32_t inner)
{
    struct nest n = {.outer = outer, .inner = inner};
    room_open(&n.r, VOW_SEM_OPTS(.permits = permits));
    vow_future *f = vow_sem_with(n.r.s, outer, outer_start, &n);
    world_run(&n.r.w);
    int code = vow_error_code(vow_error_of(f));
    CHECK_INT_EQ(n.ran, code == 0);
    CHECK(vow_state_of(f) != VOW_PENDING);
    (void)vow_error_of(n.asked);
    vow_future_unref(n.asked);
    vow_future_unref(f);
    room_close(&n.r);
    return code;
}

TEST(sem, with_inside_one_that_holds_all_is_refused)
{
    CHECK_INT_EQ(nest_run(1, 1, 1), VOW_EDEADLK);
    CHECK_INT_EQ(nest_run(3, 3, 1), VOW_EDEADLK);
    CHECK_INT_EQ(nest_run(3, 2, 2), VOW_EDEADLK);
    CHECK_INT_EQ(nest_run(3, 2, 1), 0);
    CHECK_INT_EQ(nest_run(4, 2, 2), 0);
}

/* ---- fibers ------------------------------------------------------------- */

struct crew {
    struct room *r;
    int inside, most, done;
};

static vow_next worker(void *arg)
{
    struct crew *c = arg;
    vow_future *f = vow_sem_acquire(c->r->s, 1);
    CHECK_INT_EQ(vow_await(f), 0);
    VOW_CLEANUP(vow_permit_release) vow_permit p = vow_permit_take(vow_get(f));
    vow_future_unref(f);
    CHECK(vow_permit_held(&p));
    if (++c->inside > c->most)
        c->most = c->inside;
    CHECK_INT_EQ(vow_sleep(c->r->w.loop, 10), 0);
    c->inside--;
    c->done++;
    return vow_ok(vow_nothing());
}

TEST(sem, fibers_acquire_take_and_release_at_the_end_of_a_block)
{
    struct room r;
    room_open(&r, VOW_SEM_OPTS(.permits = 3));
    struct crew c = {.r = &r};
    for (int i = 0; i < 10; i++)
        vow_future_unref(vow_async(r.w.loop, worker, &c));
    world_run(&r.w);
    CHECK_INT_EQ(c.done, 10);
    CHECK_INT_EQ(c.most, 3);
    CHECK_UINT_EQ(vow_loop_now_ns(r.w.loop), 40000000);
    room_close(&r);
}

/* ---- many --------------------------------------------------------------- */

TEST(sem, many_waiters_of_mixed_weights_are_served_in_order)
{
    enum { N = 100000 };
    static vow_future *ask_of[N];
    struct world w;
    world_open(&w);
    vow_sem *s;
    vow_permit all = {0};
    CHECK_INT_EQ(vow_sem_new(w.loop, VOW_SEM_OPTS(.permits = 4), &s), 0);
    CHECK(vow_sem_try(s, 4, &all));
    for (int i = 0; i < N; i++)
        ask_of[i] = vow_sem_acquire(s, (uint32_t)(i % 4) + 1);
    vow_permit_release(&all);
    for (int i = 0; i < N; i++) {
        if (vow_state_of(ask_of[i]) == VOW_PENDING)
            world_turn(&w);
        CHECK_INT_EQ(vow_state_of(ask_of[i]), VOW_FULFILLED);
        vow_permit p = vow_permit_take(vow_get(ask_of[i]));
        CHECK(vow_permit_held(&p));
        vow_permit_release(&p);
        vow_future_unref(ask_of[i]);
    }
    CHECK_UINT_EQ(vow_sem_stats_get(s).held, 0);
    vow_sem_unref(s);
    world_close(&w);
}

/* ---- no memory, and the end of the loop ---------------------------------- */

FAULT_SWEEP(sem, acquire_wait_and_cancel_survive_every_fault, FAULT_ALLOC)
{
    vow_sem *s = NULL;
    vow_permit p = {0};
    int rc = vow_sem_new(w->loop, VOW_SEM_OPTS(.permits = 2), &s);
    CHECK(rc == 0 || (fault_explains(w, rc) && s == NULL));
    if (rc != 0)
        return;
    CHECK(vow_sem_try(s, 2, &p));
    vow_future *f[5];
    for (int i = 0; i < 4; i++)
        f[i] = vow_sem_acquire(s, i == 0 ? 2 : 1);
    f[4] = vow_sem_wait(s);
    bool left = vow_cancel(f[1], NULL);
    CHECK(left || fault_fired(w));
    vow_permit_release(&p);
    CHECK_INT_EQ(vow_sem_resize(s, 3), 0);
    CHECK_INT_EQ(vow_loop_run(w->loop), 0);
    for (int i = 0; i < 5; i++) {
        rc = vow_error_code(vow_error_of(f[i]));
        CHECK(rc == (i == 1 ? VOW_ECANCELED : 0) || fault_explains(w, rc));
        vow_future_unref(f[i]);
    }
    CHECK_UINT_EQ(vow_sem_stats_get(s).held, 0);
    CHECK_UINT_EQ(vow_sem_stats_get(s).waiting, 0);
    vow_sem_unref(s);
}

FAULT_SWEEP(sem, with_and_close_survive_every_fault, FAULT_ALLOC)
{
    static struct load l;
    vow_sem *s = NULL;
    if (vow_sem_new(w->loop, NULL, &s) != 0)
        return;
    memset(&l, 0, sizeof(l));
    l.w = w;
    for (int i = 0; i < 3; i++) {
        struct load_job *j = load_job(&l, (uint64_t)i * 10);
        j->f = vow_sem_with(s, 1, load_start, j);
    }
    CHECK_INT_EQ(vow_loop_run(w->loop), 0);
    CHECK_UINT_EQ(vow_sem_stats_get(s).held, 0);
    vow_permit p = {0};
    CHECK(vow_sem_try(s, 1, &p));
    vow_future *f = vow_sem_acquire(s, 1);
    vow_sem_close(s);
    CHECK_INT_EQ(vow_loop_run(w->loop), 0);
    int rc = vow_error_code(vow_error_of(f));
    CHECK(rc == VOW_ECLOSED || fault_explains(w, rc));
    vow_permit_release(&p);
    vow_future_unref(f);
    load_leave(&l);
    vow_sem_unref(s);
}

TEST(sem, the_loop_closes_over_waiters_and_those_that_run)
{
    struct room r;
    static struct load l;
    room_open(&r, VOW_SEM_OPTS(.permits = 2));
    load_with_room(&l, &r);
    struct load_job *runs = with(&l, &r, 1, LOAD_FOR_EVER);
    world_turn(&r.w);
    ask(&r, 2);
    struct load_job *queued = with(&l, &r, 2, 0);
    CHECK_INT_EQ(vow_loop_close(r.w.loop), 0);
    r.w.loop = NULL;
    CHECK_INT_EQ(load_code(runs), VOW_ECLOSED);
    CHECK_INT_EQ(load_code(queued), VOW_ECLOSED);
    CHECK_INT_EQ(code_of(r.ask[0]), VOW_ECLOSED);
    CHECK_STR_EQ(l.order, "a");
    check_use(&r, 0, 0);
    vow_sem_unref(r.s);
    room_drop(&r);
    load_drop(&l);
    world_close_dirty(&r.w);
}
