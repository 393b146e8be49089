/* SPDX-License-Identifier: MIT */
/* context_test.c - contexts: current in a step and in a fiber, found again
 * after every wait, their parents, their end and their memory. */
#include "fault.h"
#include "harness.h"
#include "world.h"

#include "vow/combine.h"
#include "vow/context.h"
#include "vow/fiber.h"
#include "vow/promise.h"
#include "vow/retry.h"

struct job {
    vow_context context;
    vow_loop *loop;
    int drops;
    int runs;
    vow_context *seen[8]; /* what was current in each run */
};

static const char owner;

static void job_drop(void *ptr)
{
    struct job *j =
        (struct job *)(void *)((char *)ptr - offsetof(struct job, context));
    CHECK_UINT_EQ(j->context.refs, 0);
    j->drops++;
}

static void job_init(struct job *j, vow_loop *loop)
{
    *j = (struct job){.context = {.owner = &owner, .drop = job_drop},
                      .loop = loop};
    vow_context_init(&j->context, loop);
}

/* Given up by its maker: then nobody else has it. */
static void job_end(struct job *j)
{
    CHECK_UINT_EQ(j->context.refs, 1);
    CHECK_PTR_EQ(vow_context_unref(&j->context), NULL);
    CHECK_INT_EQ(j->drops, 1);
}

static void look(struct job *j)
{
    CHECK(j->runs < 8);
    j->seen[j->runs++] = vow_context_current(j->loop);
}

static vow_next look_ok(vow_value v, void *user)
{
    (void)v;
    look(user);
    return vow_ok(vow_nothing());
}

static vow_next look_fail(vow_error *e, void *user)
{
    (void)e;
    look(user);
    return vow_ok(vow_nothing());
}

static void check_seen(const struct job *j, int runs, const vow_context *want)
{
    CHECK_INT_EQ(j->runs, runs);
    for (int i = 0; i < runs; i++)
        CHECK_PTR_EQ(j->seen[i], want);
}

/* ---- the current one ---------------------------------------------------- */

TEST(context, there_is_none_outside_all)
{
    struct world w;
    world_open(&w);
    CHECK_PTR_EQ(vow_context_current(w.loop), NULL);
    CHECK_PTR_EQ(vow_context_ref(NULL), NULL);
    CHECK_PTR_EQ(vow_context_unref(NULL), NULL);
    struct job j;
    job_init(&j, w.loop);
    CHECK_PTR_EQ(vow_context_current(w.loop), NULL); /* not by making one */
    CHECK_PTR_EQ(vow_context_parent(&j.context), NULL);
    CHECK_PTR_EQ(j.context.owner, &owner);
    job_end(&j);
    world_close(&w);
}

TEST(context, is_current_between_enter_and_leave_and_pairs_are_nested)
{
    struct world w;
    world_open(&w);
    struct job a, b;
    job_init(&a, w.loop);
    job_init(&b, w.loop);
    vow_context *out = vow_context_enter(w.loop, &a.context);
    CHECK_PTR_EQ(out, NULL);
    CHECK_PTR_EQ(vow_context_current(w.loop), &a.context);
    vow_context *in = vow_context_enter(w.loop, &b.context);
    CHECK_PTR_EQ(in, &a.context);
    CHECK_PTR_EQ(vow_context_current(w.loop), &b.context);
    vow_context *deep = vow_context_enter(w.loop, NULL); /* outside all */
    CHECK_PTR_EQ(vow_context_current(w.loop), NULL);
    vow_context_leave(w.loop, deep);
    CHECK_PTR_EQ(vow_context_current(w.loop), &b.context);
    vow_context_leave(w.loop, in);
    CHECK_PTR_EQ(vow_context_current(w.loop), &a.context);
    vow_context_leave(w.loop, out);
    CHECK_PTR_EQ(vow_context_current(w.loop), NULL);
    job_end(&a);
    job_end(&b);
    world_close(&w);
}

/* ---- steps -------------------------------------------------------------- */

/* https://github.com/sindresorhus/p-queue/issues/200: lost in what waits. */
TEST(context, is_current_in_every_kind_of_step_attached_in_it)
{
    struct world w;
    world_open(&w);
    struct job j;
    job_init(&j, w.loop);
    vow_deferred *d, *e;
    vow_future *f = vow_promise(w.loop, &d);
    vow_future *g = vow_promise(w.loop, &e);
    vow_context *before = vow_context_enter(w.loop, &j.context);
    vow_future *link[4];
    const vow_step steps[] = {{look_ok, NULL, &j, NULL},
                              {look_ok, NULL, &j, NULL}};
    link[0] = vow_then(f, look_ok, look_fail, &j);
    link[1] = vow_catch(g, look_fail, &j);
    link[2] = vow_chain(f, steps, 2);
    link[3] = vow_then_drop(vow_future_ref(f), look_ok, NULL, &j);
    CHECK_INT_EQ(vow_done(vow_future_ref(g), NULL, look_fail, &j), 0);
    vow_context_leave(w.loop, before);
    world_advance_ms(&w, 5);
    vow_resolve_drop(d, vow_int(1));
    vow_reject_drop(e, vow_error_new(w.loop, VOW_EIO, NULL));
    world_run(&w);
    check_seen(&j, 6, &j.context);
    CHECK_PTR_EQ(vow_context_current(w.loop), NULL);
    for (int i = 0; i < 4; i++)
        vow_future_unref(link[i]);
    vow_future_unref(f);
    vow_future_unref(g);
    job_end(&j);
    world_close(&w);
}

static vow_next look_finally(void *user)
{
    look(user);
    return vow_ok(vow_nothing());
}

TEST(context, is_current_in_a_finally_attached_in_it)
{
    struct world w;
    world_open(&w);
    struct job j;
    job_init(&j, w.loop);
    vow_deferred *d;
    vow_future *f = vow_promise(w.loop, &d);
    vow_context *before = vow_context_enter(w.loop, &j.context);
    vow_future *link = vow_finally(f, look_finally, &j);
    vow_future *lost = vow_finally(f, look_finally, &j);
    vow_context_leave(w.loop, before);
    CHECK(vow_cancel(lost, NULL)); /* it runs all the same */
    vow_resolve_drop(d, vow_int(1));
    world_run(&w);
    check_seen(&j, 2, &j.context);
    CHECK_INT_EQ(vow_as_int(vow_get(link)), 1);
    vow_future_unref(link);
    vow_future_unref(lost);
    vow_future_unref(f);
    job_end(&j);
    world_close(&w);
}

static vow_next attach_more(vow_value v, void *user)
{
    struct job *j = user;
    (void)v;
    look(j);
    if (j->runs >= 4)
        return vow_ok(vow_int(44));
    return vow_follow(
        vow_then_drop(vow_delay(j->loop, 10), attach_more, NULL, j));
}

TEST(context, is_handed_on_to_what_a_step_attaches)
{
    struct world w;
    world_open(&w);
    struct job j;
    job_init(&j, w.loop);
    vow_context *before = vow_context_enter(w.loop, &j.context);
    vow_future *f = vow_then_drop(vow_delay(w.loop, 10), attach_more, NULL, &j);
    vow_context_leave(w.loop, before);
    world_run(&w);
    check_seen(&j, 4, &j.context);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 44);
    vow_future_unref(f);
    job_end(&j);
    world_close(&w);
}

TEST(context, a_step_has_that_of_who_attached_it_not_of_who_settled)
{
    struct world w;
    world_open(&w);
    struct job a, b, none = {.loop = w.loop};
    job_init(&a, w.loop);
    job_init(&b, w.loop);
    vow_deferred *d;
    vow_future *f = vow_promise(w.loop, &d);
    vow_context *before = vow_context_enter(w.loop, &a.context);
    vow_future *fa = vow_then(f, look_ok, NULL, &a);
    vow_context_leave(w.loop, before);
    vow_future *fn = vow_then(f, look_ok, NULL, &none);
    before = vow_context_enter(w.loop, &b.context);
    vow_future *fb = vow_then(f, look_ok, NULL, &b);
    vow_resolve_drop(d, vow_nothing());
    vow_context_leave(w.loop, before);
    world_run(&w);
    check_seen(&a, 1, &a.context);
    check_seen(&b, 1, &b.context);
    check_seen(&none, 1, NULL); /* between two others */
    vow_future_unref(fa);
    vow_future_unref(fb);
    vow_future_unref(fn);
    vow_future_unref(f);
    job_end(&a);
    job_end(&b);
    world_close(&w);
}

static int dropped_with;

static void note_drop(void *user)
{
    CHECK(user != NULL);
    dropped_with++;
}

TEST(context, a_step_in_it_is_dropped_once_also_when_it_never_runs)
{
    struct world w;
    world_open(&w);
    struct job j;
    job_init(&j, w.loop);
    vow_deferred *d;
    vow_future *f = vow_promise(w.loop, &d);
    const vow_step step = {look_ok, NULL, &j, note_drop};
    vow_context *before = vow_context_enter(w.loop, &j.context);
    vow_future *run = vow_chain(f, &step, 1);
    vow_future *lost = vow_chain(f, &step, 1);
    vow_context_leave(w.loop, before);
    CHECK_UINT_EQ(j.context.refs, 3); /* they keep it */
    dropped_with = 0;
    CHECK(vow_cancel(lost, NULL));
    CHECK_INT_EQ(dropped_with, 1);
    CHECK_UINT_EQ(j.context.refs, 2);
    vow_resolve_drop(d, vow_nothing());
    world_run(&w);
    CHECK_INT_EQ(dropped_with, 2);
    check_seen(&j, 1, &j.context);
    vow_future_unref(run);
    vow_future_unref(lost);
    vow_future_unref(f);
    job_end(&j);
    world_close(&w);
}

TEST(context, a_step_keeps_it_when_its_maker_gives_it_up)
{
    struct world w;
    world_open(&w);
    struct job j;
    job_init(&j, w.loop);
    vow_deferred *d;
    vow_future *f = vow_promise(w.loop, &d);
    vow_context *before = vow_context_enter(w.loop, &j.context);
    vow_future *link = vow_then(f, look_ok, NULL, &j);
    vow_context_leave(w.loop, before);
    vow_context_unref(&j.context);
    CHECK_INT_EQ(j.drops, 0);
    vow_resolve_drop(d, vow_nothing());
    world_run(&w);
    check_seen(&j, 1, &j.context);
    CHECK_INT_EQ(j.drops, 1);
    vow_future_unref(link);
    vow_future_unref(f);
    world_close(&w);
}

static vow_next enter_and_leave(vow_value v, void *user)
{
    struct job *j = user; /* the other one */
    (void)v;
    vow_context *before = vow_context_enter(j->loop, &j->context);
    look(j);
    vow_future *f = vow_resolved(j->loop, vow_nothing());
    vow_future *g = vow_then_drop(f, look_ok, NULL, j);
    vow_context_leave(j->loop, before);
    look(j); /* seen[1]: that of the step again */
    return vow_follow(g);
}

TEST(context, a_step_may_enter_another_for_a_while)
{
    struct world w;
    world_open(&w);
    struct job a, b;
    job_init(&a, w.loop);
    job_init(&b, w.loop);
    vow_future *now = vow_resolved(w.loop, vow_nothing());
    vow_context *before = vow_context_enter(w.loop, &a.context);
    vow_future *f = vow_then_drop(now, enter_and_leave, NULL, &b);
    vow_context_leave(w.loop, before);
    world_run(&w);
    CHECK_INT_EQ(b.runs, 3);
    CHECK_PTR_EQ(b.seen[0], &b.context);
    CHECK_PTR_EQ(b.seen[1], &a.context);
    CHECK_PTR_EQ(b.seen[2], &b.context);
    vow_future_unref(f);
    job_end(&a);
    job_end(&b);
    world_close(&w);
}

static vow_future *start_twice(vow_loop *loop, uint32_t attempt, void *arg)
{
    look(arg);
    if (attempt < 3)
        return vow_rejected(loop, vow_error_new(loop, VOW_EIO, NULL));
    return vow_resolved(loop, vow_nothing());
}

TEST(context, a_retry_stays_in_it)
{
    struct world w;
    world_open(&w);
    struct job j;
    job_init(&j, w.loop);
    vow_context *before = vow_context_enter(w.loop, &j.context);
    vow_future *f = vow_retry(w.loop, start_twice, &j, NULL);
    vow_context_leave(w.loop, before);
    world_run(&w);
    check_seen(&j, 3, &j.context);
    vow_future_unref(f);
    job_end(&j);
    world_close(&w);
}

/* ---- fibers ------------------------------------------------------------- */

static vow_next look_and_wait(void *arg)
{
    struct job *j = arg;
    look(j);
    CHECK_INT_EQ(vow_sleep(j->loop, 10), 0);
    look(j);
    CHECK_INT_EQ(vow_yield(j->loop), 0);
    look(j);
    (void)vow_await_drop(vow_delay(j->loop, 10));
    look(j);
    return vow_ok(vow_nothing());
}

TEST(context, a_fiber_has_it_after_every_wait)
{
    struct world w;
    world_open(&w);
    struct job j[3];
    vow_future *f[3];
    for (int i = 0; i < 3; i++) { /* they take turns */
        job_init(&j[i], w.loop);
        vow_context *before =
            vow_context_enter(w.loop, i == 1 ? NULL : &j[i].context);
        f[i] = vow_async(w.loop, look_and_wait, &j[i]);
        vow_context_leave(w.loop, before);
    }
    world_run(&w);
    CHECK_PTR_EQ(vow_context_current(w.loop), NULL);
    for (int i = 0; i < 3; i++) {
        check_seen(&j[i], 4, i == 1 ? NULL : &j[i].context);
        vow_future_unref(f[i]);
        job_end(&j[i]);
    }
    world_close(&w);
}

static vow_next start_more(void *arg)
{
    struct job *j = arg;
    vow_future *f = vow_async(j->loop, look_and_wait, j);
    vow_future *g = vow_then(f, look_ok, NULL, j);
    CHECK_INT_EQ(vow_await_drop(f), 0);
    CHECK_INT_EQ(vow_await_drop(g), 0);
    look(j);
    return vow_ok(vow_nothing());
}

TEST(context, a_fiber_hands_it_on_to_fibers_and_steps)
{
    struct world w;
    world_open(&w);
    struct job j;
    job_init(&j, w.loop);
    vow_context *before = vow_context_enter(w.loop, &j.context);
    vow_future *f = vow_async(w.loop, start_more, &j);
    vow_context_leave(w.loop, before);
    world_run(&w);
    check_seen(&j, 6, &j.context);
    vow_future_unref(f);
    job_end(&j);
    world_close(&w);
}

TEST(context, a_fiber_keeps_it_until_it_ends)
{
    struct world w;
    world_open(&w);
    struct job j;
    job_init(&j, w.loop);
    vow_context *before = vow_context_enter(w.loop, &j.context);
    vow_future *f = vow_async(w.loop, look_and_wait, &j);
    vow_context_leave(w.loop, before);
    vow_context_unref(&j.context);
    world_advance_ms(&w, 15);
    CHECK_INT_EQ(j.drops, 0);
    world_run(&w);
    CHECK_INT_EQ(j.drops, 1);
    vow_future_unref(f);
    world_close(&w);
}

/* ---- parents ------------------------------------------------------------ */

/* Made one in the other, c[0] the outermost. */
static void nest(struct job *c, int n, vow_loop *loop)
{
    vow_context *before = vow_context_current(loop);
    for (int i = 0; i < n; i++) {
        job_init(&c[i], loop);
        (void)vow_context_enter(loop, &c[i].context);
    }
    vow_context_leave(loop, before);
}

static void close_all_dropped(struct world *w, const struct job *c, int n)
{
    for (int i = 0; i < n; i++)
        CHECK_INT_EQ(c[i].drops, 1); /* once */
    world_close(w);
}

TEST(context, its_parent_is_the_one_it_was_made_in)
{
    struct world w;
    world_open(&w);
    struct job c[3];
    nest(c, 3, w.loop);
    CHECK_PTR_EQ(vow_context_parent(&c[0].context), NULL);
    CHECK_PTR_EQ(vow_context_parent(&c[1].context), &c[0].context);
    CHECK_PTR_EQ(vow_context_parent(&c[2].context), &c[1].context);
    vow_context_unref(&c[0].context);
    vow_context_unref(&c[1].context);
    CHECK_INT_EQ(c[0].drops + c[1].drops, 0); /* they are kept */
    CHECK_PTR_EQ(vow_context_parent(&c[1].context), &c[0].context);
    vow_context_unref(&c[2].context);
    close_all_dropped(&w, c, 3);
}

TEST(context, one_that_has_ended_is_no_parent_any_more)
{
    struct world w;
    world_open(&w);
    struct job c[4];
    nest(c, 4, w.loop);
    vow_context_end(&c[1].context);
    CHECK_PTR_EQ(vow_context_parent(&c[2].context), &c[0].context);
    vow_context_unref(&c[1].context);
    CHECK_INT_EQ(c[1].drops, 1); /* nor is it kept */
    vow_context_end(&c[0].context);
    vow_context_end(&c[2].context);
    CHECK_PTR_EQ(vow_context_parent(&c[3].context), NULL);
    CHECK_PTR_EQ(vow_context_parent(&c[2].context), NULL);
    vow_context_unref(&c[0].context);
    vow_context_unref(&c[2].context);
    vow_context_unref(&c[3].context);
    close_all_dropped(&w, c, 4);
}

TEST(context, what_is_made_in_one_that_has_ended_belongs_to_its_parent)
{
    struct world w;
    world_open(&w);
    struct job c[2], late;
    nest(c, 2, w.loop);
    vow_context_end(&c[1].context);
    vow_context *before = vow_context_enter(w.loop, &c[1].context);
    CHECK_PTR_EQ(vow_context_current(w.loop), &c[1].context);
    job_init(&late, w.loop);
    vow_context_leave(w.loop, before);
    CHECK_PTR_EQ(vow_context_parent(&late.context), &c[0].context);
    vow_context_end(&c[0].context);
    before = vow_context_enter(w.loop, &c[1].context);
    struct job later;
    job_init(&later, w.loop);
    vow_context_leave(w.loop, before);
    CHECK_PTR_EQ(vow_context_parent(&later.context), NULL);
    CHECK_PTR_EQ(vow_context_parent(&late.context), NULL);
    job_end(&later);
    job_end(&late);
    vow_context_unref(&c[1].context);
    job_end(&c[0]);
    CHECK_INT_EQ(c[1].drops, 1);
    world_close(&w);
}

enum { DEEP = 200000 };

TEST(context, a_long_line_of_parents_takes_little_stack)
{
    static struct job c[DEEP];
    for (int way = 0; way < 2; way++) {
        struct world w;
        world_open(&w);
        nest(c, DEEP, w.loop);
        for (int i = 0; i < DEEP - 1; i++) {
            if (way == 1)
                vow_context_end(&c[i].context);
            vow_context_unref(&c[i].context);
        }
        if (way == 1)
            CHECK_PTR_EQ(vow_context_parent(&c[DEEP - 1].context), NULL);
        vow_context_unref(&c[DEEP - 1].context);
        close_all_dropped(&w, c, DEEP);
    }
}

/* ---- the end of the loop, and no memory --------------------------------- */

TEST(context, steps_and_fibers_have_it_while_the_loop_closes)
{
    struct world w;
    world_open(&w);
    struct job a, b;
    job_init(&a, w.loop);
    job_init(&b, w.loop);
    vow_deferred *d;
    vow_future *f = vow_promise(w.loop, &d);
    vow_context *before = vow_context_enter(w.loop, &a.context);
    CHECK_INT_EQ(vow_done(f, NULL, look_fail, &a), 0);
    vow_context_leave(w.loop, before);
    vow_context_unref(&a.context);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    check_seen(&a, 1, &a.context);
    CHECK_INT_EQ(a.drops, 1);
    job_end(&b); /* in the caller's memory: the loop is not needed */
    vow_deferred_unref(d);
    world_close_dirty(&w);
}

FAULT_SWEEP(context, steps_in_it_survive_every_fault, FAULT_ALLOC)
{
    struct job j;
    job_init(&j, w->loop);
    dropped_with = 0;
    const vow_step steps[] = {{look_ok, look_fail, &j, note_drop},
                              {look_ok, look_fail, &j, note_drop}};
    vow_deferred *d;
    vow_future *f = vow_promise(w->loop, &d);
    (void)vow_error_of(f);
    vow_context *before = vow_context_enter(w->loop, &j.context);
    vow_future *link = vow_chain(f, steps, 2);
    vow_future *fiber = vow_async(w->loop, look_and_wait, &j);
    vow_context_leave(w->loop, before);
    vow_resolve_drop(d, vow_nothing());
    world_run(w);
    CHECK_INT_EQ(dropped_with, 2);
    CHECK(vow_state_of(link) != VOW_PENDING);
    for (int i = 0; i < j.runs; i++) /* in it, or not at all */
        CHECK_PTR_EQ(j.seen[i], &j.context);
    CHECK(j.runs == 6 || fault_fired(w));
    (void)vow_error_of(link);
    (void)vow_error_of(fiber);
    vow_future_unref(link);
    vow_future_unref(fiber);
    vow_future_unref(f);
    job_end(&j);
}
