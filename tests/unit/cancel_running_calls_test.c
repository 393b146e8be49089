/* SPDX-License-Identifier: MIT */
/* cancel_running_calls_test.c - breakers, batches, hedges and parallel tasks go
 * by the end of the work, whatever is chained to it. */
#include "cancel_rig.h"

#include "vow/batch.h"
#include "vow/breaker.h"
#include "vow/hedge.h"
#include "vow/parallel.h"

/* ---- breaker ------------------------------------------------------------- */

static vow_future *start_failing(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    (void)arg;
    return vow_refused(loop, VOW_EIO, NULL);
}

/* A breaker that is half open and lets one probe through. */
static void open_half(struct cancel_rig *r, vow_breaker **ret_breaker)
{
    CHECK_INT_EQ(
        vow_breaker_new(r->w.loop,
                        VOW_BREAKER(.failures = 1, .open_ms = 100, .probes = 1),
                        ret_breaker),
        0);
    vow_future *f = vow_breaker_run(*ret_breaker, start_failing, NULL);
    world_advance_ms(&r->w, 100);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_EIO);
    vow_future_unref(f);
    CHECK_INT_EQ(vow_breaker_state_of(*ret_breaker), VOW_BREAKER_HALF_OPEN);
}

static int run_code(struct cancel_rig *r, vow_breaker *k, struct body *b)
{
    vow_future *f = vow_breaker_run(k, body_start, b);
    world_run(&r->w);
    CHECK(vow_state_of(f) != VOW_PENDING);
    int code = vow_error_code(vow_error_of(f));
    vow_future_unref(f);
    return code;
}

static int try_breaker_case(enum body_kind kind, enum body_wrap wrap,
                            enum outside outside, bool keeps)
{
    struct cancel_rig r;
    vow_breaker *k;
    cancel_open(&r, 1);
    open_half(&r, &k);
    struct body *a = cancel_body(&r, kind, wrap);
    struct body *b = cancel_short_body(&r, BODY_PROMISE, WRAP_BARE);
    a->keeps = keeps;
    cancel_name(&r, "breaker", a, outside);
    vow_future *fa = vow_breaker_run(k, body_start, a);
    cancel_turns(&r);
    CHECK_INT_EQ(a->calls, 1);
    fa = cancel_outside(&r, outside, fa);
    cancel_pass(&r);
    CHECK_INT_EQ(atomic_load(&a->running), 1);
    vow_future *fb = vow_breaker_run(k, body_start, b);
    cancel_pass(&r);
    CANCEL_EXPECT(&r, b->calls == 0);
    cancel_check_code(&r, fb, VOW_EOPEN);
    body_release(a);
    world_run(&r.w);
    world_advance_ms(&r.w, 100);
    CANCEL_EXPECT(&r, run_code(&r, k, b) == 0 && b->calls == 1);
    cancel_settled(&r, fa, "the probe");
    cancel_settled(&r, fb, "the second probe");
    vow_breaker_unref(k);
    return cancel_close(&r);
}

static void try_breaker(enum body_kind kind, bool keeps)
{
    int faults = 0;
    for (int o = 0; o < OUTSIDE_LINKS; o++) {
        for (int wrap = 0; wrap < WRAP_KINDS; wrap++)
            faults += try_breaker_case(kind, (enum body_wrap)wrap,
                                       (enum outside)o, keeps);
    }
    CHECK_INT_EQ(faults, 0);
}

TEST(cancel_running_breaker, a_probe_makes_room_when_its_fiber_has_ended)
{
    try_breaker(BODY_FIBER, false);
}

TEST(cancel_running_breaker, a_probe_makes_room_when_its_job_has_ended)
{
    try_breaker(BODY_WORK, false);
}

TEST(cancel_running_breaker, a_probe_makes_room_when_its_promise_has_ended)
{
    try_breaker(BODY_PROMISE, false);
    try_breaker(BODY_PROMISE, true);
}

/* ---- batch --------------------------------------------------------------- */

struct batch_case {
    struct cancel_rig r;
    vow_batch_call *call[2];
    int made;
    int dropped[2]; /* items */
    struct batch_item {
        struct batch_case *of;
        int index;
    } items[2];
};

static void drop_batch_item(void *ptr)
{
    struct batch_item *i = ptr;
    struct body *b = &i->of->r.bodies[i->index];
    i->of->dropped[i->index]++;
    if (atomic_load(&b->running) > 0)
        cancel_fault(&i->of->r, "an item is dropped while its call runs");
}

/* The call still has its item when the work ends. */
static void read_batch_call(struct body *b)
{
    struct batch_case *c = b->lent;
    int index = b == &c->r.bodies[0] ? 0 : 1;
    CANCEL_EXPECT(&c->r, vow_batch_call_size(c->call[index]) == 1);
    vow_value item = vow_batch_call_item(c->call[index], 0);
    CANCEL_EXPECT(&c->r, vow_as_ptr(item) == &c->items[index]);
}

static vow_future *make_batch_call(vow_loop *loop, vow_batch_call *call,
                                   void *user)
{
    struct batch_case *c = user;
    (void)loop;
    CHECK_UINT_EQ(vow_batch_call_size(call), 1);
    struct batch_item *i = vow_as_ptr(vow_batch_call_item(call, 0));
    c->call[i->index] = call;
    c->made++;
    return body_begin(&c->r.bodies[i->index]);
}

static vow_future *add_batch_item(struct batch_case *c, vow_batch *b, int index)
{
    c->items[index] = (struct batch_item){c, index};
    return vow_batch_add(b, vow_own(&c->items[index], drop_batch_item), 0);
}

static int try_batch_case(enum body_kind kind, enum body_wrap wrap,
                          enum outside outside, bool keeps)
{
    struct batch_case c = {.made = 0};
    struct cancel_rig *r = &c.r;
    vow_batch *batch;
    cancel_open(r, 1);
    CHECK_INT_EQ(vow_batch_new(r->w.loop, make_batch_call, &c,
                               VOW_BATCH(.most = 1, .concurrent = 1), &batch),
                 0);
    struct body *a = cancel_body(r, kind, wrap);
    struct body *b = cancel_short_body(r, kind, wrap);
    for (int i = 0; i < 2; i++) {
        r->bodies[i].on_end = read_batch_call;
        r->bodies[i].lent = &c;
    }
    a->keeps = keeps;
    a->inner_ms = outside == OUTSIDE_INNER ? OUTSIDE_MS : 0;
    cancel_name(r, "batch", a, outside);
    vow_future *fa = add_batch_item(&c, batch, 0);
    vow_future *fb = add_batch_item(&c, batch, 1);
    cancel_turns(r);
    CHECK_INT_EQ(a->calls, 1);
    if (outside < OUTSIDE_LINKS)
        fa = cancel_outside(r, outside, fa);
    else
        world_advance_ms(&r->w, OUTSIDE_MS);
    cancel_pass(r);
    cancel_pass(r);
    CHECK_INT_EQ(atomic_load(&a->running), 1);
    CANCEL_EXPECT(r, b->calls == 0 && c.made == 1);
    CANCEL_EXPECT(r, vow_batch_stats_get(batch).calls == 1);
    body_release(a);
    world_run(&r->w);
    CANCEL_EXPECT(r, b->calls == 1);
    CANCEL_EXPECT(r, vow_batch_stats_get(batch).calls == 0);
    CANCEL_EXPECT(r, body_shared(a) || atomic_load(&a->asked) > 0);
    CANCEL_EXPECT(r, c.dropped[0] == 1 && c.dropped[1] == 1);
    cancel_settled(r, fa, "the first item");
    cancel_settled(r, fb, "the second item");
    vow_batch_unref(batch);
    return cancel_close(r);
}

static void try_batch(enum body_kind kind, bool keeps)
{
    int faults = 0;
    for (int o = 0; o <= OUTSIDE_INNER; o++) {
        for (int wrap = 0; wrap < WRAP_KINDS && o != OUTSIDE_OPTION; wrap++)
            faults += try_batch_case(kind, (enum body_wrap)wrap,
                                     (enum outside)o, keeps);
    }
    CHECK_INT_EQ(faults, 0);
}

TEST(cancel_running_batch, the_next_call_waits_for_a_fiber)
{
    try_batch(BODY_FIBER, false);
}

TEST(cancel_running_batch, the_next_call_waits_for_a_job_on_a_thread)
{
    try_batch(BODY_WORK, false);
}

TEST(cancel_running_batch, the_next_call_waits_for_a_promise_with_a_hook)
{
    try_batch(BODY_PROMISE, false);
    try_batch(BODY_PROMISE, true);
}

/* ---- hedge --------------------------------------------------------------- */

static vow_future *start_hedged(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct body *first = arg;
    (void)loop;
    return body_begin(first + attempt - 1);
}

static vow_future *start_hedge(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    return vow_hedge(loop, start_hedged, arg,
                     VOW_HEDGE(.after_ms = 10, .most = 3));
}

/* A hedge has three attempts under way: its place is free when all have
 * ended. */
static int try_hedge_case(enum body_kind kind, enum body_wrap wrap,
                          enum outside outside)
{
    struct cancel_rig r;
    vow_gate *g;
    cancel_open(&r, 3);
    CHECK_INT_EQ(vow_gate_new(r.w.loop, VOW_GATE(.concurrent = 1), &g), 0);
    struct body *a = cancel_body(&r, kind, wrap);
    (void)cancel_body(&r, BODY_PROMISE, WRAP_BARE);
    (void)cancel_body(&r, BODY_FIBER, WRAP_FINALLY);
    struct body *b = cancel_short_body(&r, kind, WRAP_BARE);
    cancel_name(&r, "hedge", a, outside);
    vow_future *fa = vow_gate_run(g, start_hedge, a, NULL);
    world_advance_ms(&r.w, 30);
    CHECK_INT_EQ(atomic_load(&r.running), 3);
    fa = cancel_outside(&r, outside, fa);
    vow_future *fb = vow_gate_run(g, body_start, b, NULL);
    for (int i = 0; i < 3; i++) {
        cancel_pass(&r);
        CANCEL_EXPECT(&r, b->calls == 0);
        body_release(&r.bodies[(i + 1) % 3]);
    }
    world_run(&r.w);
    for (int i = 0; i < 3; i++)
        CANCEL_EXPECT(&r, body_shared(&r.bodies[i]) ||
                              atomic_load(&r.bodies[i].asked) > 0);
    CANCEL_EXPECT(&r, b->calls == 1);
    cancel_settled(&r, fa, "the hedge");
    cancel_settled(&r, fb, "the second job");
    vow_gate_unref(g);
    return cancel_close(&r);
}

TEST(cancel_running_hedge, all_attempts_of_a_hedge_hold_its_place)
{
    int faults = 0;
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        for (int o = 0; o < OUTSIDE_LINKS; o++) {
            for (int wrap = 0; wrap < WRAP_KINDS; wrap++)
                faults += try_hedge_case((enum body_kind)kind,
                                         (enum body_wrap)wrap, (enum outside)o);
        }
    }
    CHECK_INT_EQ(faults, 0);
}

/* ---- parallel ------------------------------------------------------------ */

struct parallel_case {
    struct cancel_rig r;
    vow_slot *slot[4];
    int done, code;
};

static vow_next report_ok(vow_value v, void *slot)
{
    (void)v;
    vow_slot_ok(slot, vow_nothing());
    return vow_ok(vow_nothing());
}

static vow_next report_fail(vow_error *e, void *slot)
{
    vow_slot_fail(slot, vow_error_ref(e));
    return vow_ok(vow_nothing());
}

static void run_parallel_task(vow_slot *slot, void *body)
{
    CHECK_INT_EQ(vow_done(body_begin(body), report_ok, report_fail, slot), 0);
}

static void end_parallel(vow_error *error, const vow_value *results, size_t n,
                         void *user)
{
    struct parallel_case *c = user;
    (void)results;
    (void)n;
    c->done++;
    c->code = vow_error_code(error);
}

/* A task that has not reported holds its place; after a failure no other
 * begins, and `done` is called once. */
TEST(cancel_running_parallel, no_task_begins_behind_one_that_was_canceled)
{
    for (int i = 0; i < BODY_KINDS * WRAP_KINDS; i++) {
        struct parallel_case c = {.done = 0};
        struct cancel_rig *r = &c.r;
        vow_task tasks[4];
        cancel_open(r, 2);
        struct body *a = cancel_body(r, (enum body_kind)(i % BODY_KINDS),
                                     (enum body_wrap)(i / BODY_KINDS));
        struct body *b = cancel_body(r, BODY_FIBER, WRAP_BARE);
        a->inner_ms = OUTSIDE_MS;
        cancel_name(r, "parallel", a, OUTSIDE_INNER);
        for (int k = 0; k < 4; k++) {
            if (k > 1)
                (void)cancel_short_body(r, BODY_PROMISE, WRAP_BARE);
            tasks[k] = (vow_task){run_parallel_task, &r->bodies[k]};
        }
        CHECK_INT_EQ(vow_parallel(r->w.loop, tasks, 4, 2, end_parallel, &c), 0);
        world_advance_ms(&r->w, 2 * OUTSIDE_MS);
        body_release(a);
        body_release(b);
        world_run(&r->w);
        CHECK_INT_EQ(c.done, 1);
        CHECK_INT_EQ(c.code, VOW_ETIMEDOUT);
        CHECK_INT_EQ(r->bodies[2].calls + r->bodies[3].calls, 0);
        CHECK_INT_EQ(cancel_close(r), 0);
    }
}

/* ---- a limit inside a limit ---------------------------------------------- */

struct nest {
    vow_gate *gate;
    vow_sem *sem;
    vow_breaker *breaker;
    struct body *body;
};

static vow_future *start_in_breaker(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct nest *n = arg;
    (void)loop;
    (void)attempt;
    return vow_breaker_run(n->breaker, body_start, n->body);
}

static vow_future *start_in_sem(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct nest *n = arg;
    (void)loop;
    (void)attempt;
    return vow_then_drop(vow_sem_with(n->sem, 1, start_in_breaker, n), chain_ok,
                         NULL, NULL);
}

/* A gate around a semaphore around a breaker: none of them lets go early. */
TEST(cancel_running_nest, limits_inside_limits_all_hold_to_the_end)
{
    int faults = 0;
    for (int i = 0; i < OUTSIDE_LINKS * WRAP_KINDS; i++) {
        struct cancel_rig r;
        struct nest n;
        enum outside o = (enum outside)(i / WRAP_KINDS);
        cancel_open(&r, 1);
        CHECK_INT_EQ(vow_gate_new(r.w.loop, VOW_GATE(.concurrent = 1), &n.gate),
                     0);
        CHECK_INT_EQ(vow_sem_new(r.w.loop, NULL, &n.sem), 0);
        open_half(&r, &n.breaker);
        n.body = cancel_body(&r, BODY_FIBER, (enum body_wrap)(i % WRAP_KINDS));
        cancel_name(&r, "nest", n.body, o);
        vow_future *f = vow_gate_run(n.gate, start_in_sem, &n, NULL);
        cancel_turns(&r);
        CHECK_INT_EQ(n.body->calls, 1);
        f = cancel_outside(&r, o, f);
        cancel_pass(&r);
        vow_permit p = {0}, q = {0};
        CANCEL_EXPECT(&r, !vow_gate_try(n.gate, NULL, &p));
        CANCEL_EXPECT(&r, !vow_sem_try(n.sem, 1, &q));
        vow_permit_release(&p);
        vow_permit_release(&q);
        vow_future *late = vow_breaker_run(n.breaker, start_failing, NULL);
        world_turn(&r.w);
        cancel_check_code(&r, late, VOW_EOPEN);
        vow_future_unref(late);
        body_release(n.body);
        world_run(&r.w);
        CANCEL_EXPECT(&r, vow_gate_try(n.gate, NULL, &p));
        CANCEL_EXPECT(&r, vow_sem_try(n.sem, 1, &q));
        vow_permit_release(&p);
        vow_permit_release(&q);
        cancel_settled(&r, f, "the job");
        vow_gate_unref(n.gate);
        vow_sem_unref(n.sem);
        vow_breaker_unref(n.breaker);
        faults += cancel_close(&r);
    }
    CHECK_INT_EQ(faults, 0);
}
