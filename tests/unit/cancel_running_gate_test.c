/* SPDX-License-Identifier: MIT */
/* cancel_running_gate_test.c - a gate counts what runs until it has ended,
 * whatever is chained to it and whatever its caller was told; and a job whose
 * function was not called yet can be taken back. */
#include "cancel_rig.h"
#include "fake_backing.h"

#include "vow/gate_stats.h"

static vow_gate_stats stats_of_gate(vow_gate *g)
{
    vow_gate_stats st;
    vow_gate_stats_get(g, &st);
    return st;
}

/* ---- one combination ----------------------------------------------------- */

struct gate_case {
    enum body_kind kind;
    enum body_wrap wrap;
    enum outside outside;
    bool keeps;
};

/* Ends the first job in the way of the case. */
static vow_future *end_gate_job(struct cancel_rig *r, vow_gate *g,
                                const struct gate_case *c, vow_future *f)
{
    if (c->outside < OUTSIDE_LINKS)
        return cancel_outside(r, c->outside, f);
    if (c->outside == OUTSIDE_CLOSE)
        vow_gate_close(g);
    else
        world_advance_ms(&r->w, OUTSIDE_MS);
    return f;
}

/* One job that does not end, one that waits behind it, and one that comes
 * after the first was ended from outside. */
static int try_gate_case(const struct gate_case *c)
{
    struct cancel_rig r;
    vow_oracle *o;
    vow_gate *g;
    bool closes = c->outside == OUTSIDE_CLOSE;
    cancel_open(&r, 1);
    CHECK_INT_EQ(vow_oracle_new(r.w.loop, VOW_ORACLE(.concurrent = 1), &o), 0);
    CHECK_INT_EQ(
        vow_gate_new(r.w.loop, VOW_GATE(.concurrent = 1, .oracle = o), &g), 0);
    struct body *a = cancel_body(&r, c->kind, c->wrap);
    struct body *b = cancel_short_body(&r, c->kind, c->wrap);
    struct body *d = cancel_short_body(&r, c->kind, WRAP_BARE);
    a->keeps = c->keeps;
    a->inner_ms = c->outside == OUTSIDE_INNER ? OUTSIDE_MS : 0;
    cancel_name(&r, "gate", a, c->outside);
    uint64_t deadline_ms = c->outside == OUTSIDE_OPTION ? OUTSIDE_MS : 0;

    vow_future *fa =
        vow_gate_run(g, body_start, a, VOW_JOB(.deadline_ms = deadline_ms));
    vow_future *fb = vow_gate_run(g, body_start, b, NULL);
    cancel_turns(&r);
    CHECK_INT_EQ(a->calls, 1);
    vow_future *idle = vow_gate_idle(g);
    fa = end_gate_job(&r, g, c, fa);
    cancel_pass(&r);
    vow_future *fd = vow_gate_run(g, body_start, d, NULL);
    cancel_pass(&r);
    CHECK_INT_EQ(atomic_load(&a->running), 1);
    CANCEL_EXPECT(&r, b->calls == 0 && d->calls == 0);
    CANCEL_EXPECT(&r, stats_of_gate(g).running == 1);
    CANCEL_EXPECT(&r, vow_state_of(idle) == VOW_PENDING);

    body_release(a);
    world_run(&r.w);
    CANCEL_EXPECT(&r, b->calls == !closes && d->calls == !closes);
    CANCEL_EXPECT(&r, stats_of_gate(g).running == 0);
    CANCEL_EXPECT(&r, stats_of_gate(g).started == (closes ? 1 : 3));
    CANCEL_EXPECT(&r, stats_of_gate(g).ended == (closes ? 1 : 3));
    CANCEL_EXPECT(&r, vow_oracle_stats_get(o).breaches == 0);
    CANCEL_EXPECT(&r, body_shared(a) || closes || atomic_load(&a->asked) > 0);
    if (c->outside == OUTSIDE_OPTION || c->outside == OUTSIDE_INNER)
        cancel_check_code(&r, fa, VOW_ETIMEDOUT);
    cancel_settled(&r, fa, "the first job");
    cancel_settled(&r, fb, "the second job");
    cancel_settled(&r, fd, "the third job");
    cancel_settled(&r, idle, "vow_gate_idle()");
    vow_gate_unref(g);
    vow_oracle_unref(o);
    return cancel_close(&r);
}

static void try_gate_cases(enum body_kind kind, bool keeps)
{
    int faults = 0;
    for (int o = 0; o < OUTSIDE_KINDS; o++) {
        for (int wrap = 0; wrap < WRAP_KINDS; wrap++) {
            struct gate_case c = {kind, (enum body_wrap)wrap, (enum outside)o,
                                  keeps};
            faults += try_gate_case(&c);
        }
    }
    CHECK_INT_EQ(faults, 0);
}

TEST(cancel_running_gate, a_fiber_holds_its_place_to_its_end)
{
    try_gate_cases(BODY_FIBER, false);
}

TEST(cancel_running_gate, a_job_on_a_thread_holds_its_place_to_its_end)
{
    try_gate_cases(BODY_WORK, false);
}

TEST(cancel_running_gate, a_promise_with_a_hook_holds_its_place_to_its_end)
{
    try_gate_cases(BODY_PROMISE, false);
}

TEST(cancel_running_gate, work_that_another_holds_too_holds_its_place)
{
    try_gate_cases(BODY_FIBER, true);
    try_gate_cases(BODY_PROMISE, true);
}

/* ---- every limit of the gate --------------------------------------------- */

TEST(cancel_running_gate, the_limit_of_a_key_counts_what_runs)
{
    struct cancel_rig r;
    vow_gate *g;
    cancel_open(&r, 1);
    CHECK_INT_EQ(vow_gate_new(r.w.loop, VOW_GATE(.key_concurrent = 1), &g), 0);
    struct body *a = cancel_body(&r, BODY_FIBER, WRAP_THEN);
    struct body *b = cancel_short_body(&r, BODY_FIBER, WRAP_BARE);
    vow_future *fa = vow_gate_run(g, body_start, a, VOW_JOB(.key = "k"));
    world_turn(&r.w);
    vow_cancel(fa, NULL);
    vow_future *fb = vow_gate_run(g, body_start, b, VOW_JOB(.key = "k"));
    cancel_pass(&r);
    CHECK_INT_EQ(b->calls, 0);
    body_release(a);
    world_run(&r.w);
    CHECK_INT_EQ(b->calls, 1);
    cancel_settled(&r, fa, "the first job");
    cancel_settled(&r, fb, "the second job");
    vow_gate_unref(g);
    CHECK_INT_EQ(cancel_close(&r), 0);
}

TEST(cancel_running_gate, all_of_a_weight_is_held_to_the_end)
{
    struct cancel_rig r;
    vow_gate *g;
    cancel_open(&r, 1);
    CHECK_INT_EQ(vow_gate_new(r.w.loop, VOW_GATE(.concurrent = 4), &g), 0);
    struct body *a = cancel_body(&r, BODY_PROMISE, WRAP_FINALLY);
    struct body *b = cancel_short_body(&r, BODY_FIBER, WRAP_BARE);
    vow_future *fa = vow_gate_run(g, body_start, a, VOW_JOB(.weight = 3));
    world_turn(&r.w);
    vow_cancel(fa, NULL);
    vow_future *fb = vow_gate_run(g, body_start, b, VOW_JOB(.weight = 2));
    cancel_pass(&r);
    CHECK_INT_EQ(b->calls, 0);
    CHECK_UINT_EQ(stats_of_gate(g).weight, 3);
    body_release(a);
    world_run(&r.w);
    CHECK_UINT_EQ(stats_of_gate(g).weight, 0);
    cancel_settled(&r, fa, "the first job");
    cancel_settled(&r, fb, "the second job");
    vow_gate_unref(g);
    CHECK_INT_EQ(cancel_close(&r), 0);
}

static vow_future *start_next_body(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct body *first = arg;
    (void)loop;
    return body_begin(first + attempt - 1);
}

/* An attempt that was given up is an attempt that runs. */
TEST(cancel_running_gate, the_next_attempt_waits_for_the_one_that_timed_out)
{
    for (int wrap = 0; wrap < WRAP_KINDS; wrap++) {
        struct cancel_rig r;
        vow_gate *g;
        cancel_open(&r, 1);
        CHECK_INT_EQ(vow_gate_new(r.w.loop, VOW_GATE(.concurrent = 1), &g), 0);
        struct body *a = cancel_body(&r, BODY_FIBER, (enum body_wrap)wrap);
        struct body *b = cancel_short_body(&r, BODY_FIBER, WRAP_BARE);
        cancel_name(&r, "gate retry", a, OUTSIDE_INNER);
        a->inner_ms = OUTSIDE_MS;
        vow_future *f = vow_gate_run(
            g, start_next_body, a,
            VOW_JOB(.retry = VOW_RETRY(.tries = 2, .backoff_ms = {1, 1})));
        world_advance_ms(&r.w, 2 * OUTSIDE_MS);
        CHECK_INT_EQ(a->calls, 1);
        CANCEL_EXPECT(&r, b->calls == 0);
        body_release(a);
        world_run(&r.w);
        CHECK_INT_EQ(b->calls, 1);
        CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
        vow_future_unref(f);
        vow_gate_unref(g);
        CHECK_INT_EQ(cancel_close(&r), 0);
    }
}

/* The grant of a shared limit is given back when the work has ended. */
TEST(cancel_running_gate, a_backing_gets_its_grant_back_at_the_end)
{
    for (int o = 0; o <= OUTSIDE_INNER; o++) {
        struct cancel_rig r;
        static struct fake k;
        vow_gate *g;
        cancel_open(&r, 1);
        fake_init(&k, 1);
        fake_open(&k, r.w.loop);
        CHECK_INT_EQ(
            vow_gate_new(r.w.loop, VOW_GATE(.backing = &k.backing), &g), 0);
        struct body *a = cancel_body(&r, BODY_FIBER, WRAP_THEN);
        struct body *b = cancel_short_body(&r, BODY_FIBER, WRAP_BARE);
        struct gate_case c = {BODY_FIBER, WRAP_THEN, (enum outside)o, false};
        cancel_name(&r, "backing", a, c.outside);
        a->inner_ms = o == OUTSIDE_INNER ? OUTSIDE_MS : 0;
        vow_future *fa = vow_gate_run(
            g, body_start, a,
            VOW_JOB(.deadline_ms = o == OUTSIDE_OPTION ? OUTSIDE_MS : 0));
        world_turn(&r.w);
        CHECK_INT_EQ(a->calls, 1);
        fa = end_gate_job(&r, g, &c, fa);
        vow_future *fb = vow_gate_run(g, body_start, b, NULL);
        cancel_pass(&r);
        CANCEL_EXPECT(&r, k.held == 1 && k.released == 0);
        CANCEL_EXPECT(&r, b->calls == 0);
        body_release(a);
        world_run(&r.w);
        CHECK_INT_EQ(b->calls, 1);
        cancel_settled(&r, fa, "the first job");
        cancel_settled(&r, fb, "the second job");
        vow_gate_unref(g);
        CHECK_INT_EQ(cancel_close(&r), 0);
        fake_check_unused(&k);
    }
}

/* A job whose grant is lost is canceled and holds its places. */
TEST(cancel_running_gate, work_whose_grant_is_lost_holds_its_place)
{
    struct cancel_rig r;
    static struct fake k;
    vow_gate *g;
    cancel_open(&r, 1);
    fake_init(&k, 9);
    fake_open(&k, r.w.loop);
    CHECK_INT_EQ(vow_gate_new(r.w.loop,
                              VOW_GATE(.concurrent = 1, .backing = &k.backing),
                              &g),
                 0);
    struct body *a = cancel_body(&r, BODY_FIBER, WRAP_THEN_THEN);
    struct body *b = cancel_short_body(&r, BODY_FIBER, WRAP_BARE);
    vow_future *fa = vow_gate_run(g, body_start, a, NULL);
    vow_future *fb = vow_gate_run(g, body_start, b, NULL);
    world_turn(&r.w);
    CHECK_INT_EQ(a->calls, 1);
    fake_lose(&k, 0);
    cancel_pass(&r);
    CHECK_INT_EQ(b->calls, 0);
    CHECK_UINT_EQ(stats_of_gate(g).running, 1);
    body_release(a);
    world_run(&r.w);
    CHECK(atomic_load(&a->asked) > 0);
    CHECK_INT_EQ(b->calls, 1);
    cancel_settled(&r, fa, "the first job");
    cancel_settled(&r, fb, "the second job");
    vow_gate_unref(g);
    CHECK_INT_EQ(cancel_close(&r), 0);
    fake_check_unused(&k);
}

/* ---- places that are lent ------------------------------------------------ */

struct lender {
    vow_gate *g;
    struct body *inner[2];
    vow_future *f[2];
    vow_deferred *end;
};

/* An outer job that asks for two inner ones in its own place. */
static vow_future *start_lender(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct lender *l = arg;
    (void)attempt;
    for (int i = 0; i < 2; i++)
        l->f[i] = vow_gate_run(l->g, body_start, l->inner[i],
                               VOW_JOB(.nested = VOW_NESTED_LEND));
    return vow_promise(loop, &l->end);
}

TEST(cancel_running_gate, a_lent_place_is_lent_again_when_the_work_has_ended)
{
    for (int wrap = 0; wrap < WRAP_KINDS; wrap++) {
        struct cancel_rig r;
        struct lender l = {.g = NULL};
        cancel_open(&r, 1);
        CHECK_INT_EQ(vow_gate_new(r.w.loop, VOW_GATE(.concurrent = 1), &l.g),
                     0);
        l.inner[0] = cancel_body(&r, BODY_FIBER, (enum body_wrap)wrap);
        l.inner[1] = cancel_short_body(&r, BODY_FIBER, WRAP_BARE);
        cancel_name(&r, "lent place", l.inner[0], OUTSIDE_CANCEL);
        vow_future *outer = vow_gate_run(l.g, start_lender, &l, NULL);
        cancel_turns(&r);
        CHECK_INT_EQ(l.inner[0]->calls, 1);
        vow_cancel(l.f[0], NULL);
        cancel_pass(&r);
        CANCEL_EXPECT(&r, l.inner[1]->calls == 0);
        body_release(l.inner[0]);
        cancel_pass(&r);
        CHECK_INT_EQ(l.inner[1]->calls, 1);
        vow_resolve_drop(l.end, vow_nothing());
        world_run(&r.w);
        cancel_settled(&r, l.f[0], "the first inner job");
        cancel_settled(&r, l.f[1], "the second inner job");
        cancel_settled(&r, outer, "the outer job");
        vow_gate_unref(l.g);
        CHECK_INT_EQ(cancel_close(&r), 0);
    }
}

/* The outer job is over, the inner one still runs in its place. */
TEST(cancel_running_gate, the_place_of_an_outer_job_outlasts_it)
{
    struct cancel_rig r;
    struct lender l = {.g = NULL};
    cancel_open(&r, 1);
    CHECK_INT_EQ(vow_gate_new(r.w.loop, VOW_GATE(.concurrent = 1), &l.g), 0);
    l.inner[0] = cancel_body(&r, BODY_FIBER, WRAP_THEN);
    l.inner[1] = cancel_short_body(&r, BODY_FIBER, WRAP_BARE);
    struct body *next = cancel_short_body(&r, BODY_FIBER, WRAP_BARE);
    vow_future *outer = vow_gate_run(l.g, start_lender, &l, NULL);
    vow_future *f = vow_gate_run(l.g, body_start, next, NULL);
    cancel_turns(&r);
    CHECK_INT_EQ(l.inner[0]->calls, 1);
    vow_cancel(l.f[0], NULL);
    vow_resolve_drop(l.end, vow_nothing());
    cancel_pass(&r);
    CHECK_INT_EQ(l.inner[1]->calls, 0);
    CHECK_INT_EQ(next->calls, 0);
    body_release(l.inner[0]);
    world_run(&r.w);
    CHECK_INT_EQ(next->calls, 1);
    cancel_settled(&r, l.f[0], "the first inner job");
    cancel_settled(&r, l.f[1], "the second inner job");
    cancel_settled(&r, outer, "the outer job");
    cancel_settled(&r, f, "the next job");
    vow_gate_unref(l.g);
    CHECK_INT_EQ(cancel_close(&r), 0);
}

/* ---- the oracle ---------------------------------------------------------- */

/* The gate allows two where the oracle allows one: the oracle must notice that
 * the canceled job still runs when the next starts. */
TEST(cancel_running_oracle, the_oracle_sees_two_that_run)
{
    int faults = 0;
    for (int i = 0; i < BODY_KINDS * WRAP_KINDS * OUTSIDE_KINDS; i++) {
        struct cancel_rig r;
        struct gate_case c = {(enum body_kind)(i % BODY_KINDS),
                              (enum body_wrap)(i / BODY_KINDS % WRAP_KINDS),
                              (enum outside)(i / BODY_KINDS / WRAP_KINDS),
                              false};
        vow_oracle *o;
        vow_gate *g;
        if (c.outside == OUTSIDE_CLOSE)
            continue;
        cancel_open(&r, 2);
        CHECK_INT_EQ(vow_oracle_new(r.w.loop, VOW_ORACLE(.concurrent = 1), &o),
                     0);
        CHECK_INT_EQ(
            vow_gate_new(r.w.loop, VOW_GATE(.concurrent = 2, .oracle = o), &g),
            0);
        struct body *a = cancel_body(&r, c.kind, c.wrap);
        struct body *b = cancel_short_body(&r, c.kind, WRAP_BARE);
        cancel_name(&r, "oracle", a, c.outside);
        a->inner_ms = c.outside == OUTSIDE_INNER ? OUTSIDE_MS : 0;
        vow_future *fa = vow_gate_run(
            g, body_start, a,
            VOW_JOB(.deadline_ms =
                        c.outside == OUTSIDE_OPTION ? OUTSIDE_MS : 0));
        cancel_turns(&r);
        fa = end_gate_job(&r, g, &c, fa);
        cancel_pass(&r);
        CHECK_UINT_EQ(vow_oracle_stats_get(o).breaches, 0);
        vow_future *fb = vow_gate_run(g, body_start, b, NULL);
        cancel_pass(&r);
        CHECK_INT_EQ(b->calls, 1);
        vow_oracle_stats st = vow_oracle_stats_get(o);
        CANCEL_EXPECT(&r, st.breaches == 1);
        CANCEL_EXPECT(&r, st.first.kind == VOW_BREACH_CONCURRENCY &&
                              st.first.seen == 2);
        body_release(a);
        world_run(&r.w);
        CANCEL_EXPECT(&r, vow_oracle_stats_get(o).breaches == 1);
        cancel_settled(&r, fa, "the first job");
        cancel_settled(&r, fb, "the second job");
        vow_gate_unref(g);
        vow_oracle_unref(o);
        faults += cancel_close(&r);
    }
    CHECK_INT_EQ(faults, 0);
}

/* ---- a job that was let in, and whose function was not called yet -------- */

struct taken {
    struct world w;
    vow_gate *g;
    int starts;
    vow_deferred *end;
};

static vow_future *start_taken(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct taken *t = arg;
    (void)attempt;
    t->starts++;
    vow_deferred_unref(t->end);
    return vow_promise(loop, &t->end);
}

static void open_taken(struct taken *t, const vow_gate_opts *opts)
{
    *t = (struct taken){.starts = 0};
    world_open(&t->w);
    CHECK_INT_EQ(vow_gate_new(t->w.loop, opts, &t->g), 0);
}

static void close_taken(struct taken *t)
{
    vow_gate_unref(t->g);
    world_run(&t->w);
    vow_deferred_unref(t->end);
    world_run(&t->w);
    world_close(&t->w);
}

enum take { TAKE_CLOSE, TAKE_CLEAR, TAKES };

/* Takes back all that waits, and tells the code that its callers get. */
static int take_back(vow_gate *g, enum take how, vow_error *why)
{
    if (how == TAKE_CLOSE) {
        vow_gate_close(g);
        return VOW_ECLOSED;
    }
    vow_gate_clear(g, why);
    return VOW_ECANCELED;
}

static void check_rejected_with(vow_future *f, int code, vow_error *cause)
{
    CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), code);
    if (code == VOW_ECANCELED)
        CHECK_PTR_EQ(vow_error_cause(vow_error_of(f)), cause);
    vow_future_unref(f);
}

TEST(cancel_running_gate, a_job_that_was_just_asked_for_is_taken_back)
{
    for (int how = 0; how < TAKES; how++) {
        struct taken t;
        open_taken(&t, VOW_GATE(.concurrent = 2));
        vow_error *why = vow_error_new(t.w.loop, VOW_EBUSY, "no more");
        vow_future *f[3];
        for (int i = 0; i < 3; i++)
            f[i] = vow_gate_run(t.g, start_taken, &t, NULL);
        int code = take_back(t.g, (enum take)how, why);
        vow_future *idle = vow_gate_idle(t.g);
        world_run(&t.w);
        CHECK_INT_EQ(t.starts, 0);
        CHECK_INT_EQ(vow_state_of(idle), VOW_FULFILLED);
        CHECK_UINT_EQ(stats_of_gate(t.g).started, 0);
        CHECK_UINT_EQ(stats_of_gate(t.g).dropped, 3);
        CHECK_UINT_EQ(stats_of_gate(t.g).running, 0);
        CHECK_UINT_EQ(stats_of_gate(t.g).weight, 0);
        for (int i = 0; i < 3; i++)
            check_rejected_with(f[i], code, why);
        vow_future_unref(idle);
        vow_error_unref(why);
        close_taken(&t);
    }
}

static vow_next take_back_in_step(vow_value v, void *arg)
{
    struct taken *t = arg;
    (void)v;
    vow_gate_close(t->g);
    return vow_ok(vow_nothing());
}

/* The place comes free in this turn, and the gate is closed in it. */
TEST(cancel_running_gate, a_job_let_in_by_the_end_of_another_is_taken_back)
{
    for (int order = 0; order < 2; order++) {
        struct taken t;
        vow_deferred *d;
        open_taken(&t, VOW_GATE(.concurrent = 1));
        vow_future *f[2];
        for (int i = 0; i < 2; i++)
            f[i] = vow_gate_run(t.g, start_taken, &t, NULL);
        world_turn(&t.w);
        CHECK_INT_EQ(t.starts, 1);
        CHECK_INT_EQ(
            vow_done(vow_promise(t.w.loop, &d), take_back_in_step, NULL, &t),
            0);
        if (order == 0)
            vow_resolve_drop(d, vow_nothing());
        vow_resolve(t.end, vow_nothing());
        if (order == 1)
            vow_resolve_drop(d, vow_nothing());
        world_run(&t.w);
        CHECK_INT_EQ(t.starts, 1);
        CHECK_INT_EQ(vow_state_of(f[0]), VOW_FULFILLED);
        vow_future_unref(f[0]);
        check_rejected_with(f[1], VOW_ECLOSED, NULL);
        close_taken(&t);
    }
}

/* What was taken back has not started: the rate is as it was. */
TEST(cancel_running_gate, a_job_taken_back_uses_up_nothing_of_the_rate)
{
    struct taken t;
    open_taken(&t, VOW_GATE(.concurrent = 1, .rate = 1));
    vow_future *a = vow_gate_run(t.g, start_taken, &t, NULL);
    vow_gate_clear(t.g, NULL);
    vow_future *b = vow_gate_run(t.g, start_taken, &t, NULL);
    world_turn(&t.w);
    CHECK_INT_EQ(t.starts, 1);
    check_rejected_with(a, VOW_ECANCELED, NULL);
    vow_resolve(t.end, vow_nothing());
    world_run(&t.w);
    CHECK_INT_EQ(vow_state_of(b), VOW_FULFILLED);
    vow_future_unref(b);
    close_taken(&t);
}

TEST(cancel_running_gate, a_job_of_a_key_is_taken_back_with_its_key)
{
    for (int how = 0; how < TAKES; how++) {
        struct taken t;
        open_taken(&t, VOW_GATE(.key_concurrent = 1, .key_rate = 1));
        vow_future *f[4];
        for (int i = 0; i < 4; i++)
            f[i] = vow_gate_run(t.g, start_taken, &t,
                                VOW_JOB(.key = i % 2 == 0 ? "a" : "b",
                                        .bytes = 3, .priority = i));
        int code = take_back(t.g, (enum take)how, NULL);
        world_run(&t.w);
        CHECK_INT_EQ(t.starts, 0);
        CHECK_UINT_EQ(stats_of_gate(t.g).waiting, 0);
        CHECK_UINT_EQ(stats_of_gate(t.g).waiting_bytes, 0);
        for (int i = 0; i < 4; i++)
            check_rejected_with(f[i], code, NULL);
        close_taken(&t);
    }
}

TEST(cancel_running_gate, a_job_with_a_grant_is_taken_back_with_its_grant)
{
    for (int how = 0; how < TAKES; how++) {
        struct taken t;
        static struct fake k;
        fake_init(&k, 1);
        open_taken(&t, VOW_GATE(.concurrent = 2, .backing = &k.backing));
        fake_open(&k, t.w.loop);
        k.late = true;
        vow_future *a = vow_gate_run(t.g, start_taken, &t, NULL);
        world_turn(&t.w);
        CHECK_UINT_EQ(k.n, 1);
        fake_grant(&k, 0);
        int code = take_back(t.g, (enum take)how, NULL);
        world_run(&t.w);
        CHECK_INT_EQ(t.starts, 0);
        check_rejected_with(a, code, NULL);
        CHECK_UINT_EQ(k.held, 0);
        close_taken(&t);
        fake_check_unused(&k);
    }
}

TEST(cancel_running_gate, a_second_attempt_that_was_let_in_is_taken_back)
{
    struct taken t;
    open_taken(&t, VOW_GATE(.concurrent = 1));
    vow_future *a =
        vow_gate_run(t.g, start_taken, &t,
                     VOW_JOB(.retry = VOW_RETRY(.backoff_ms = {10, 10})));
    vow_future *b = vow_gate_run(t.g, start_taken, &t, NULL);
    world_turn(&t.w);
    CHECK_INT_EQ(t.starts, 1);
    vow_reject_code(t.end, VOW_EIO, NULL);
    world_turn(&t.w); /* the other has the place now */
    CHECK_INT_EQ(t.starts, 2);
    world_advance_ms(&t.w, 20); /* the second attempt waits for it */
    vow_resolve(t.end, vow_nothing());
    vow_gate_close(t.g);
    world_run(&t.w);
    CHECK_INT_EQ(t.starts, 2);
    CHECK_INT_EQ(vow_state_of(b), VOW_FULFILLED);
    vow_future_unref(b);
    CHECK_INT_EQ(vow_state_of(a), VOW_REJECTED);
    (void)vow_error_of(a);
    vow_future_unref(a);
    close_taken(&t);
}

/* A gate that was cleared goes on. */
TEST(cancel_running_gate, a_gate_goes_on_behind_jobs_that_were_taken_back)
{
    struct taken t;
    open_taken(&t, VOW_GATE(.concurrent = 1));
    for (int i = 0; i < 100; i++) {
        vow_future *a = vow_gate_run(t.g, start_taken, &t, NULL);
        vow_gate_clear(t.g, NULL);
        if (i % 3 == 0)
            world_turn(&t.w);
        CHECK_INT_EQ(vow_error_code(vow_error_of(a)), VOW_ECANCELED);
        vow_future_unref(a);
    }
    CHECK_INT_EQ(t.starts, 0);
    vow_future *b = vow_gate_run(t.g, start_taken, &t, NULL);
    world_turn(&t.w);
    CHECK_INT_EQ(t.starts, 1);
    vow_resolve(t.end, vow_nothing());
    world_run(&t.w);
    CHECK_INT_EQ(vow_state_of(b), VOW_FULFILLED);
    vow_future_unref(b);
    close_taken(&t);
}
