/* SPDX-License-Identifier: MIT */
/* cancel_running_sem_test.c - vow_sem_with() holds its permits until the work
 * has ended, whatever is chained to it and whatever its caller was told. */
#include "cancel_rig.h"

static int try_sem_case(enum body_kind kind, enum body_wrap wrap,
                        enum outside outside, bool keeps)
{
    struct cancel_rig r;
    vow_sem *s;
    bool closes = outside == OUTSIDE_CLOSE;
    cancel_open(&r, 1);
    CHECK_INT_EQ(vow_sem_new(r.w.loop, NULL, &s), 0);
    struct body *a = cancel_body(&r, kind, wrap);
    struct body *b = cancel_short_body(&r, kind, wrap);
    struct body *d = cancel_short_body(&r, kind, WRAP_BARE);
    a->keeps = keeps;
    a->inner_ms = outside == OUTSIDE_INNER ? OUTSIDE_MS : 0;
    cancel_name(&r, "semaphore", a, outside);

    vow_future *fa = vow_sem_with(s, 1, body_start, a);
    vow_future *fb = vow_sem_with(s, 1, body_start, b);
    cancel_turns(&r);
    CHECK_INT_EQ(a->calls, 1);
    vow_future *idle = vow_sem_wait(s);
    if (outside < OUTSIDE_LINKS)
        fa = cancel_outside(&r, outside, fa);
    else if (closes)
        vow_sem_close(s);
    else
        world_advance_ms(&r.w, OUTSIDE_MS);
    cancel_pass(&r);
    vow_future *fd = vow_sem_with(s, 1, body_start, d);
    cancel_pass(&r);
    CHECK_INT_EQ(atomic_load(&a->running), 1);
    CANCEL_EXPECT(&r, b->calls == 0 && d->calls == 0);
    CANCEL_EXPECT(&r, vow_sem_stats_get(s).held == 1);
    CANCEL_EXPECT(&r, vow_state_of(idle) == VOW_PENDING);
    vow_permit p = {0};
    CANCEL_EXPECT(&r, !vow_sem_try(s, 1, &p));
    vow_permit_release(&p);

    body_release(a);
    world_run(&r.w);
    CANCEL_EXPECT(&r, b->calls == !closes && d->calls == !closes);
    CANCEL_EXPECT(&r, vow_sem_stats_get(s).held == 0);
    CANCEL_EXPECT(&r, body_shared(a) || closes || atomic_load(&a->asked) > 0);
    if (outside == OUTSIDE_INNER)
        cancel_check_code(&r, fa, VOW_ETIMEDOUT);
    cancel_settled(&r, fa, "the first job");
    cancel_settled(&r, fb, "the second job");
    cancel_settled(&r, fd, "the third job");
    cancel_settled(&r, idle, "vow_sem_wait()");
    vow_sem_unref(s);
    return cancel_close(&r);
}

static void try_sem_cases(enum body_kind kind, bool keeps)
{
    int faults = 0;
    for (int o = 0; o < OUTSIDE_KINDS; o++) {
        for (int wrap = 0; wrap < WRAP_KINDS && o != OUTSIDE_OPTION; wrap++)
            faults += try_sem_case(kind, (enum body_wrap)wrap, (enum outside)o,
                                   keeps);
    }
    CHECK_INT_EQ(faults, 0);
}

TEST(cancel_running_sem, a_fiber_holds_its_permit_to_its_end)
{
    try_sem_cases(BODY_FIBER, false);
}

TEST(cancel_running_sem, a_job_on_a_thread_holds_its_permit_to_its_end)
{
    try_sem_cases(BODY_WORK, false);
}

TEST(cancel_running_sem, a_promise_with_a_hook_holds_its_permit_to_its_end)
{
    try_sem_cases(BODY_PROMISE, false);
}

TEST(cancel_running_sem, work_that_another_holds_too_holds_its_permit)
{
    try_sem_cases(BODY_FIBER, true);
    try_sem_cases(BODY_PROMISE, true);
}

/* ---- work that was let in, and whose function was not called yet --------- */

struct once_called {
    int starts;
    vow_deferred *end;
};

static vow_future *start_counted(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct once_called *c = arg;
    (void)attempt;
    c->starts++;
    return vow_promise(loop, &c->end);
}

TEST(cancel_running_sem, work_that_was_just_asked_for_is_taken_back)
{
    struct world w;
    struct once_called c = {0};
    vow_sem *s;
    world_open(&w);
    CHECK_INT_EQ(vow_sem_new(w.loop, VOW_SEM_OPTS(.permits = 2), &s), 0);
    vow_future *f[3];
    for (int i = 0; i < 3; i++)
        f[i] = vow_sem_with(s, 1, start_counted, &c);
    vow_sem_close(s);
    vow_future *idle = vow_sem_wait(s);
    world_run(&w);
    CHECK_INT_EQ(c.starts, 0);
    CHECK_UINT_EQ(vow_sem_stats_get(s).held, 0);
    CHECK_INT_EQ(vow_state_of(idle), VOW_FULFILLED);
    vow_future_unref(idle);
    for (int i = 0; i < 3; i++) {
        CHECK_INT_EQ(vow_error_code(vow_error_of(f[i])), VOW_ECLOSED);
        vow_future_unref(f[i]);
    }
    vow_sem_unref(s);
    world_close(&w);
}

TEST(cancel_running_sem, work_let_in_by_the_end_of_another_is_taken_back)
{
    struct world w;
    struct once_called c = {0}, next = {0};
    vow_sem *s;
    world_open(&w);
    CHECK_INT_EQ(vow_sem_new(w.loop, NULL, &s), 0);
    vow_permit p;
    CHECK(vow_sem_try(s, 1, &p));
    vow_future *f = vow_sem_with(s, 1, start_counted, &c);
    world_turn(&w);
    vow_permit_release(&p);
    vow_sem_close(s);
    vow_future *late = vow_sem_with(s, 1, start_counted, &next);
    world_run(&w);
    CHECK_INT_EQ(c.starts + next.starts, 0);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_ECLOSED);
    CHECK_INT_EQ(vow_error_code(vow_error_of(late)), VOW_ECLOSED);
    vow_future_unref(f);
    vow_future_unref(late);
    vow_sem_unref(s);
    world_close(&w);
}

/* A permit that was granted is held, and stays so. */
TEST(cancel_running_sem, a_permit_that_was_granted_outlasts_the_close)
{
    struct world w;
    vow_sem *s;
    world_open(&w);
    CHECK_INT_EQ(vow_sem_new(w.loop, NULL, &s), 0);
    vow_future *f = vow_sem_acquire(s, 1);
    world_turn(&w);
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    vow_sem_close(s);
    vow_permit p = vow_permit_take(vow_get(f));
    vow_future_unref(f);
    CHECK(vow_permit_held(&p));
    CHECK_UINT_EQ(vow_sem_stats_get(s).held, 1);
    vow_permit_release(&p);
    CHECK_UINT_EQ(vow_sem_stats_get(s).held, 0);
    vow_sem_unref(s);
    world_run(&w);
    world_close(&w);
}
