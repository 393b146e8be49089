/* SPDX-License-Identifier: MIT */
/* parallel_test.c - vow_parallel(): tasks with callbacks, so many at a time,
 * and one completion, whatever they do. */
#include "fault.h"
#include "harness.h"
#include "world.h"

#include "vow/context.h"
#include "vow/parallel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tasks that report when the test says so ----------------------------- */

enum { TASKS = 8 };

struct set {
    struct world w;
    vow_task tasks[TASKS];
    struct one {
        struct set *s;
        int index;
        vow_slot *slot; /* while it runs */
    } one[TASKS];
    int begun, running, most;
    int done; /* calls of the completion */
    int code; /* of its error */
    char message[64];
    size_t n;
    int64_t results[TASKS];
};

static void hold(vow_slot *slot, void *arg)
{
    struct one *o = arg;
    struct set *s = o->s;
    CHECK_INT_EQ(o->index, s->begun); /* in order */
    CHECK_PTR_EQ(vow_slot_loop(slot), s->w.loop);
    CHECK(vow_slot_wanted(slot));
    o->slot = slot;
    s->begun++;
    if (++s->running > s->most)
        s->most = s->running;
}

static void all_done(vow_error *error, const vow_value *results, size_t n,
                     void *user)
{
    struct set *s = user;
    s->done++;
    s->code = vow_error_code(error);
    snprintf(s->message, sizeof(s->message), "%s", vow_error_message(error));
    s->n = n;
    CHECK(error == NULL || (results == NULL && n == 0));
    for (size_t i = 0; i < n; i++)
        s->results[i] = vow_as_int(results[i]);
}

static void set_open(struct set *s)
{
    memset(s, 0, sizeof(*s));
    world_open(&s->w);
    for (int i = 0; i < TASKS; i++) {
        s->one[i] = (struct one){.s = s, .index = i};
        s->tasks[i] = (vow_task){.run = hold, .arg = &s->one[i]};
    }
}

static void set_start(struct set *s, uint32_t concurrency)
{
    CHECK_INT_EQ(
        vow_parallel(s->w.loop, s->tasks, TASKS, concurrency, all_done, s), 0);
    memset(s->tasks, 0, sizeof(s->tasks)); /* they were copied */
    CHECK_INT_EQ(s->begun, 0);             /* not inside the call */
    world_run(&s->w);
}

static vow_slot *leaves(struct set *s, int index)
{
    vow_slot *slot = s->one[index].slot;
    CHECK(slot != NULL);
    s->one[index].slot = NULL;
    s->running--;
    return slot;
}

static void ok(struct set *s, int index)
{
    vow_slot_ok(leaves(s, index), vow_int(10 * index));
}

static void fails(struct set *s, int index)
{
    vow_slot_fail(leaves(s, index),
                  vow_error_new(s->w.loop, VOW_EIO, "task %d", index));
}

TEST(parallel, so_many_run_and_all_results_come_in_task_order)
{
    struct set s;
    set_open(&s);
    set_start(&s, 3);
    CHECK_INT_EQ(s.begun, 3);
    ok(&s, 2);
    ok(&s, 0);
    CHECK_INT_EQ(s.begun, 3); /* not inside the report */
    world_run(&s.w);
    CHECK_INT_EQ(s.begun, 5);
    for (int i = 0; i < TASKS; i++) {
        if (i != 2 && i != 0)
            ok(&s, i);
        world_run(&s.w);
    }
    CHECK_INT_EQ(s.most, 3);
    CHECK_INT_EQ(s.done, 1);
    CHECK_INT_EQ(s.code, 0);
    CHECK_UINT_EQ(s.n, TASKS);
    for (int i = 0; i < TASKS; i++)
        CHECK_INT_EQ(s.results[i], 10 * i);
    world_close(&s.w);
}

TEST(parallel, first_error_ends_it_and_no_task_begins_after_it)
{
    struct set s;
    set_open(&s);
    set_start(&s, 4);
    ok(&s, 0);
    fails(&s, 2);
    CHECK(!vow_slot_wanted(s.one[1].slot));
    fails(&s, 3);
    CHECK_INT_EQ(s.done, 0); /* from the queue */
    world_run(&s.w);
    CHECK_INT_EQ(s.done, 1);
    CHECK_INT_EQ(s.code, VOW_EIO);
    CHECK_STR_EQ(s.message, "task 2");
    CHECK_INT_EQ(s.begun, 4);
    ok(&s, 1); /* dropped */
    world_run(&s.w);
    CHECK_INT_EQ(s.done, 1);
    CHECK_INT_EQ(s.begun, 4);
    world_close(&s.w);
}

TEST(parallel, without_tasks_it_is_done_with_no_results)
{
    struct set s;
    set_open(&s);
    CHECK_INT_EQ(vow_parallel(s.w.loop, NULL, 0, 1, all_done, &s), 0);
    CHECK_INT_EQ(s.done, 0);
    world_run(&s.w);
    CHECK_INT_EQ(s.done, 1);
    CHECK_INT_EQ(s.code, 0);
    CHECK_UINT_EQ(s.n, 0);
    world_close(&s.w);
}

/* https://github.com/rust-lang/futures-rs/issues/2348: limit 0 hangs. */
TEST(parallel, bad_arguments_are_refused_and_done_is_not_called)
{
    struct set s;
    set_open(&s);
    vow_loop *loop = s.w.loop;
    CHECK_INT_EQ(vow_parallel(loop, s.tasks, TASKS, 0, all_done, &s),
                 VOW_EINVAL);
    CHECK_INT_EQ(vow_parallel(loop, s.tasks, TASKS, 1, NULL, &s), VOW_EINVAL);
    CHECK_INT_EQ(vow_parallel(loop, NULL, 1, 1, all_done, &s), VOW_EINVAL);
    CHECK_INT_EQ(vow_parallel(loop, s.tasks, SIZE_MAX, 1, all_done, &s),
                 VOW_ENOMEM);
    s.tasks[TASKS - 1].run = NULL;
    CHECK_INT_EQ(vow_parallel(loop, s.tasks, TASKS, 1, all_done, &s),
                 VOW_EINVAL);
    world_run(&s.w);
    CHECK_INT_EQ(s.done + s.begun, 0);
    world_close(&s.w);
}

/* ---- reports ------------------------------------------------------------ */

static void count_drop(void *ptr)
{
    ++*(int *)ptr;
}

TEST(parallel, second_report_of_a_task_is_ignored_and_dropped)
{
    struct set s;
    int drops = 0;
    set_open(&s);
    set_start(&s, 2);
    vow_slot *slot = s.one[0].slot;
    ok(&s, 0);
    vow_slot_ok(slot, vow_own(&drops, count_drop));
    vow_slot_fail(slot, vow_error_new(s.w.loop, VOW_EIO, "twice"));
    CHECK_INT_EQ(drops, 1);
    world_run(&s.w);
    CHECK_INT_EQ(s.begun, 3); /* one place was given back, not three */
    vow_slot_fail(slot, vow_error_new(s.w.loop, VOW_EIO, "and again"));
    for (int i = 1; i < TASKS; i++) {
        ok(&s, i);
        world_run(&s.w);
    }
    CHECK_INT_EQ(s.code, 0);
    CHECK_INT_EQ(s.results[0], 0);
    CHECK_INT_EQ(s.done, 1);
    world_close(&s.w);
}

TEST(parallel, values_are_dropped_once_also_when_it_fails)
{
    struct set s;
    int drops = 0;
    set_open(&s);
    set_start(&s, 4);
    vow_slot_ok(leaves(&s, 0), vow_own(&drops, count_drop));
    fails(&s, 1);
    vow_slot_ok(leaves(&s, 2), vow_own(&drops, count_drop)); /* not wanted */
    CHECK_INT_EQ(drops, 1);
    world_run(&s.w);
    CHECK_INT_EQ(drops, 2);
    vow_slot_ok(leaves(&s, 3), vow_own(&drops, count_drop));
    CHECK_INT_EQ(drops, 3);
    world_close(&s.w);
}

TEST(parallel, failure_without_an_error_is_an_error)
{
    struct set s;
    set_open(&s);
    set_start(&s, 1);
    vow_slot_fail(leaves(&s, 0), NULL);
    world_run(&s.w);
    CHECK_INT_EQ(s.code, VOW_EINVAL);
    world_close(&s.w);
}

static void done_and_report(vow_error *error, const vow_value *results,
                            size_t n, void *user)
{
    struct set *s = user;
    all_done(error, results, n, user);
    for (int i = 0; i < TASKS; i++)
        if (s->one[i].slot != NULL)
            ok(s, i);
}

TEST(parallel, tasks_may_report_from_the_completion_itself)
{
    struct set s;
    set_open(&s);
    CHECK_INT_EQ(vow_parallel(s.w.loop, s.tasks, TASKS, 5, done_and_report, &s),
                 0);
    world_run(&s.w);
    ok(&s, 4);
    fails(&s, 3);
    world_run(&s.w);
    CHECK_INT_EQ(s.done, 1);
    CHECK_INT_EQ(s.code, VOW_EIO);
    CHECK_INT_EQ(s.running, 0);
    world_close(&s.w);
}

static void report_drop(void *ptr)
{
    struct set *s = ptr;
    for (int i = 0; i < TASKS; i++)
        if (s->one[i].slot != NULL)
            ok(s, i);
}

TEST(parallel, tasks_may_report_from_a_destructor)
{
    struct set s;
    set_open(&s);
    set_start(&s, 3);
    vow_slot_ok(leaves(&s, 0), vow_own(&s, report_drop));
    fails(&s, 1);
    world_run(&s.w);
    CHECK_INT_EQ(s.running, 0);
    CHECK_INT_EQ(s.done, 1);
    CHECK_INT_EQ(s.code, VOW_EIO);
    world_close(&s.w);

    set_open(&s);
    set_start(&s, 3);
    fails(&s, 1);
    world_run(&s.w);
    vow_slot_ok(leaves(&s, 0), vow_own(&s, report_drop)); /* the last but one */
    CHECK_INT_EQ(s.running, 0);
    world_close(&s.w);
}

/* ---- at once ------------------------------------------------------------ */

struct depth {
    uintptr_t low, high;
    vow_loop *loop;
    int64_t runs;
    int64_t fails_at; /* 0: never */
    int done;
    int64_t sum;
    int code;
};

static void at_once(vow_slot *slot, void *arg)
{
    struct depth *d = arg;
    char here;
    uintptr_t at = (uintptr_t)&here;
    if (d->low == 0 || at < d->low)
        d->low = at;
    if (at > d->high)
        d->high = at;
    if (++d->runs == d->fails_at)
        vow_slot_fail(slot, vow_error_new(d->loop, VOW_EIO, NULL));
    else
        vow_slot_ok(slot, vow_int(d->runs));
}

static void add_up(vow_error *error, const vow_value *results, size_t n,
                   void *user)
{
    struct depth *d = user;
    d->done++;
    d->code = vow_error_code(error);
    for (size_t i = 0; i < n; i++)
        d->sum += vow_as_int(results[i]);
}

static struct depth run_many(size_t n, int64_t fails_at)
{
    struct world w;
    world_open(&w);
    struct depth d = {.loop = w.loop, .fails_at = fails_at};
    vow_task *tasks = malloc(n * sizeof(*tasks));
    CHECK(tasks != NULL);
    for (size_t i = 0; i < n; i++)
        tasks[i] = (vow_task){.run = at_once, .arg = &d};
    CHECK_INT_EQ(vow_parallel(w.loop, tasks, n, 16, add_up, &d), 0);
    free(tasks);
    world_run(&w);
    world_close(&w);
    CHECK_INT_EQ(d.done, 1);
    CHECK(d.high - d.low < 4096);
    return d;
}

/* https://github.com/caolan/async/issues/75,
 * https://github.com/caolan/async/issues/510: the stack overflows when tasks
 * complete synchronously. */
TEST(parallel, million_tasks_that_end_at_once_take_no_stack)
{
    struct depth d = run_many(1000000, 0);
    CHECK_INT_EQ(d.runs, 1000000);
    CHECK_INT_EQ(d.sum, INT64_C(500000500000));
}

TEST(parallel, failure_at_once_lets_no_further_task_begin)
{
    struct depth d = run_many(5000, 1234);
    CHECK_INT_EQ(d.code, VOW_EIO);
    CHECK_INT_EQ(d.runs, 1234);
    CHECK_INT_EQ(d.sum, 0);
    d = run_many(10, 10); /* the last one */
    CHECK_INT_EQ(d.code, VOW_EIO);
}

static void keep_slot(vow_slot *slot, void *arg)
{
    *(vow_slot **)arg = slot;
}

TEST(parallel, failure_takes_back_what_would_go_on_after_the_poll)
{
    static vow_task tasks[3000];
    struct world w;
    vow_slot *slot = NULL;
    world_open(&w);
    struct depth d = {.loop = w.loop};
    for (size_t i = 0; i < 3000; i++)
        tasks[i] = (vow_task){.run = at_once, .arg = &d};
    tasks[0] = (vow_task){.run = keep_slot, .arg = &slot};
    CHECK_INT_EQ(vow_parallel(w.loop, tasks, 3000, 2, add_up, &d), 0);
    world_turn(&w);
    CHECK_INT_EQ(d.runs, 999); /* a thousand, then the loop polls */
    vow_slot_fail(slot, vow_error_new(w.loop, VOW_EIO, NULL));
    world_run(&w);
    CHECK_INT_EQ(d.runs, 999);
    CHECK_INT_EQ(d.done, 1);
    CHECK_INT_EQ(d.code, VOW_EIO);
    world_close(&w);
}

static void mixed(vow_slot *slot, void *arg)
{
    struct one *o = arg;
    hold(slot, arg);
    if (o->index % 3 != 0)
        ok(o->s, o->index);
}

TEST(parallel, tasks_that_end_at_once_and_later_mix)
{
    struct set s;
    set_open(&s);
    for (int i = 0; i < TASKS; i++)
        s.tasks[i].run = mixed;
    set_start(&s, 2);
    CHECK_INT_EQ(s.begun, 4); /* 0 and 3 hold both places */
    ok(&s, 3);
    world_run(&s.w);
    ok(&s, 0);
    world_run(&s.w);
    CHECK_INT_EQ(s.done, 0);
    ok(&s, 6);
    world_run(&s.w);
    CHECK_INT_EQ(s.done, 1);
    CHECK_UINT_EQ(s.n, TASKS);
    world_close(&s.w);
}

/* ---- the loop's end, contexts, memory ------------------------------------ */

/* Callbacks of a user's own may come after the close: their slots are there
 * until they have reported, and so is the loop to make an error with. */
TEST(parallel, loop_that_closes_first_tells_done_and_late_reports_are_dropped)
{
    struct set s;
    int drops = 0;
    set_open(&s);
    set_start(&s, 3);
    ok(&s, 1);
    vow_loop *loop = s.w.loop;
    CHECK_INT_EQ(vow_loop_close(loop), 0);
    CHECK_INT_EQ(s.done, 1);
    CHECK_INT_EQ(s.code, VOW_ECLOSED);
    CHECK_INT_EQ(s.begun, 3);
    CHECK_PTR_EQ(vow_slot_loop(s.one[0].slot), loop);
    fails(&s, 0);
    CHECK(!vow_slot_wanted(s.one[2].slot));
    vow_slot_ok(leaves(&s, 2), vow_own(&drops, count_drop));
    CHECK_INT_EQ(drops, 1);
    CHECK_INT_EQ(s.done, 1);
    s.w.loop = NULL;
    world_close_dirty(&s.w);
}

TEST(parallel, loop_that_closes_before_it_begins_tells_done)
{
    struct set s;
    set_open(&s);
    CHECK_INT_EQ(vow_parallel(s.w.loop, s.tasks, TASKS, 3, all_done, &s), 0);
    CHECK_INT_EQ(vow_loop_close(s.w.loop), 0);
    CHECK_INT_EQ(s.done, 1);
    CHECK_INT_EQ(s.code, VOW_ECLOSED);
    CHECK_INT_EQ(s.begun, 0);
    s.w.loop = NULL;
    world_close_dirty(&s.w);
}

static vow_next start_while_closing(vow_error *e, void *user)
{
    struct set *s = user;
    (void)e;
    CHECK_INT_EQ(vow_parallel(s->w.loop, s->tasks, TASKS, 3, all_done, s),
                 VOW_ECLOSED);
    s->most = -1;
    return vow_ok(vow_nothing());
}

TEST(parallel, is_refused_by_a_loop_that_closes)
{
    struct set s;
    vow_deferred *d;
    set_open(&s);
    vow_future *f = vow_promise(s.w.loop, &d);
    CHECK_INT_EQ(vow_done(f, NULL, start_while_closing, &s), 0);
    CHECK_INT_EQ(vow_loop_close(s.w.loop), 0);
    CHECK_INT_EQ(s.most, -1);
    CHECK_INT_EQ(s.done, 0);
    vow_deferred_unref(d);
    s.w.loop = NULL;
    world_close_dirty(&s.w);
}

static void in_context(vow_slot *slot, void *arg)
{
    CHECK_PTR_EQ(vow_context_current(vow_slot_loop(slot)), arg);
    vow_slot_ok(slot, vow_nothing());
}

struct whose {
    vow_context context;
    vow_loop *loop;
    int done;
};

static void done_in_context(vow_error *error, const vow_value *results,
                            size_t n, void *user)
{
    struct whose *c = user;
    (void)error;
    (void)results;
    (void)n;
    CHECK_PTR_EQ(vow_context_current(c->loop), &c->context);
    c->done++;
}

/* https://github.com/sindresorhus/p-queue/issues/200: the context is lost in
 * queued tasks. */
TEST(parallel, tasks_and_completion_run_in_the_context_of_the_caller)
{
    struct world w;
    world_open(&w);
    struct whose c = {.context = {.owner = &w}, .loop = w.loop};
    vow_task tasks[3] = {{in_context, &c}, {in_context, &c}, {in_context, &c}};
    vow_context_init(&c.context, w.loop);
    vow_context *before = vow_context_enter(w.loop, &c.context);
    CHECK_INT_EQ(vow_parallel(w.loop, tasks, 3, 1, done_in_context, &c), 0);
    vow_context_leave(w.loop, before);
    world_run(&w);
    CHECK_INT_EQ(c.done, 1);
    CHECK_UINT_EQ(c.context.refs, 1);
    vow_context_unref(&c.context);
    world_close(&w);
}

FAULT_SWEEP(parallel, survives_every_fault, FAULT_ALLOC)
{
    struct depth d = {.loop = w->loop};
    vow_task tasks[20];
    for (int i = 0; i < 20; i++)
        tasks[i] = (vow_task){.run = at_once, .arg = &d};
    int rc = vow_parallel(w->loop, tasks, 20, 3, add_up, &d);
    CHECK(rc == 0 || fault_explains(w, rc));
    world_run(w);
    CHECK_INT_EQ(d.done, rc == 0);
    CHECK_INT_EQ(d.sum, rc == 0 ? 210 : 0);
}
