/* SPDX-License-Identifier: MIT */
/* cancel_now_test.c - hooks that run inside vow_cancel(), and how a deferred
 * learns that it was canceled. */
#include "fault.h"
#include "harness.h"
#include "world.h"

#include "vow/combine.h"
#include "vow/promise.h"
#include "vow/scope.h"

/* What waits in a list. */
struct waiter {
    struct waiter *next, *prev;
    vow_deferred *end;
    vow_future *future; /* not always held */
    int hooks;
    int code; /* of why */
    vow_error *root;
    vow_future *also;    /* canceled by the hook */
    bool cancels_itself; /* the hook cancels its own future */
};

static void leave(vow_error *why, void *user)
{
    struct waiter *x = user;
    x->hooks++;
    x->code = vow_error_code(why);
    x->root = vow_error_root(why);
    if (x->cancels_itself)
        (void)vow_cancel(x->future, NULL);
    if (x->also != NULL)
        (void)vow_cancel(x->also, why);
    if (x->next != NULL) {
        x->prev->next = x->next;
        x->next->prev = x->prev;
        x->next = NULL;
    }
    vow_reject(x->end, vow_error_ref(why));
}

static vow_future *wait_in(struct waiter *head, struct waiter *x,
                           vow_loop *loop)
{
    *x = (struct waiter){.next = head, .prev = head->prev};
    head->prev->next = x;
    head->prev = x;
    x->future = vow_promise(loop, &x->end);
    vow_on_cancel_now(x->end, leave, x);
    return x->future;
}

static int count(const struct waiter *head)
{
    int n = 0;
    for (const struct waiter *x = head->next; x != head; x = x->next)
        n++;
    return n;
}

static void list_init(struct waiter *head)
{
    *head = (struct waiter){.next = head, .prev = head};
}

static int code_of(vow_future *f)
{
    return vow_error_code(vow_error_of(f));
}

static void finish(struct waiter *x)
{
    (void)vow_error_of(x->future);
    vow_future_unref(x->future);
    vow_deferred_unref(x->end);
}

/* ---- at once ------------------------------------------------------------ */

TEST(cancel_now, leaves_the_list_inside_the_cancel)
{
    struct world w;
    world_open(&w);
    struct waiter head, x[3];
    list_init(&head);
    for (int i = 0; i < 3; i++)
        (void)wait_in(&head, &x[i], w.loop);
    vow_error *why = vow_error_new(w.loop, VOW_EIO, "enough");
    CHECK(vow_cancel(x[1].future, why));
    CHECK_INT_EQ(x[1].hooks, 1);
    CHECK_INT_EQ(count(&head), 2);
    CHECK_INT_EQ(x[1].code, VOW_ECANCELED);
    CHECK_PTR_EQ(x[1].root, why);
    CHECK_INT_EQ(code_of(x[1].future), VOW_ECANCELED);
    CHECK(!vow_cancel(x[1].future, NULL)); /* settled */
    world_run(&w);
    CHECK_INT_EQ(x[1].hooks, 1);
    CHECK_INT_EQ(x[0].hooks + x[2].hooks, 0);
    vow_error_unref(why);
    for (int i = 0; i < 3; i++)
        vow_resolve(x[i].end, vow_nothing());
    for (int i = 0; i < 3; i++)
        finish(&x[i]);
    world_close(&w);
}

static vow_next note_ok(vow_value v, void *user)
{
    (void)v;
    ++*(int *)user;
    return vow_ok(vow_nothing());
}

static vow_next note_fail(vow_error *e, void *user)
{
    (void)e;
    ++*(int *)user;
    return vow_ok(vow_nothing());
}

TEST(cancel_now, handlers_still_run_from_the_queue)
{
    struct world w;
    world_open(&w);
    struct waiter head, x;
    list_init(&head);
    int runs = 0;
    vow_future *link =
        vow_then(wait_in(&head, &x, w.loop), note_ok, note_fail, &runs);
    CHECK(vow_cancel(x.future, NULL));
    CHECK_INT_EQ(runs, 0);
    world_run(&w);
    CHECK_INT_EQ(runs, 1);
    vow_future_unref(link);
    finish(&x);
    world_close(&w);
}

TEST(cancel_now, canceled_through_a_chain_it_leaves_at_once_too)
{
    struct world w;
    world_open(&w);
    struct waiter head, x;
    list_init(&head);
    int runs = 0;
    vow_future *f = wait_in(&head, &x, w.loop);
    for (int i = 0; i < 10; i++)
        f = vow_then_drop(f, note_ok, note_fail, &runs);
    CHECK(vow_cancel(f, NULL));
    CHECK_INT_EQ(x.hooks, 1);
    CHECK_INT_EQ(count(&head), 0);
    world_run(&w);
    CHECK_INT_EQ(runs, 0);
    vow_future_unref(f);
    vow_deferred_unref(x.end);
    world_close(&w);
}

TEST(cancel_now, is_not_asked_while_somebody_else_waits)
{
    struct world w;
    world_open(&w);
    struct waiter head, x;
    list_init(&head);
    int runs = 0;
    vow_future *f = wait_in(&head, &x, w.loop);
    vow_future *a = vow_then(f, note_ok, note_fail, &runs);
    vow_future *b = vow_then_drop(f, note_ok, note_fail, &runs);
    CHECK(vow_cancel(a, NULL));
    CHECK_INT_EQ(x.hooks, 0);
    CHECK(vow_deferred_pending(x.end));
    CHECK(vow_cancel(b, NULL));
    CHECK_INT_EQ(x.hooks, 1);
    vow_future_unref(a);
    vow_future_unref(b);
    vow_deferred_unref(x.end);
    world_close(&w);
}

TEST(cancel_now, of_a_settled_promise_never_runs)
{
    struct world w;
    world_open(&w);
    struct waiter head, x;
    list_init(&head);
    vow_future *f = wait_in(&head, &x, w.loop);
    CHECK(vow_resolve(x.end, vow_int(1)));
    CHECK(!vow_cancel(f, NULL));
    vow_on_cancel_now(x.end, leave, &x); /* does nothing */
    CHECK(!vow_cancel(f, NULL));
    world_run(&w);
    CHECK_INT_EQ(x.hooks, 0);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 1);
    finish(&x);
    world_close(&w);
}

TEST(cancel_now, one_hook_per_promise_the_last_counts)
{
    struct world w;
    world_open(&w);
    struct waiter head, x[3];
    list_init(&head);
    for (int i = 0; i < 3; i++)
        (void)wait_in(&head, &x[i], w.loop);
    vow_on_cancel(x[0].end, leave, &x[0]); /* asked from the queue */
    CHECK(vow_cancel(x[0].future, NULL));
    CHECK_INT_EQ(x[0].hooks, 0);
    vow_on_cancel_now(x[1].end, NULL, NULL); /* none: rejected at once */
    CHECK(vow_cancel(x[1].future, NULL));
    CHECK_INT_EQ(code_of(x[1].future), VOW_ECANCELED);
    vow_on_cancel(x[2].end, leave, NULL);
    vow_on_cancel_now(x[2].end, leave, &x[2]);
    CHECK(vow_cancel(x[2].future, NULL));
    CHECK_INT_EQ(x[2].hooks, 1);
    world_run(&w);
    CHECK_INT_EQ(x[0].hooks, 1);
    CHECK_INT_EQ(x[1].hooks, 0);
    for (int i = 0; i < 3; i++)
        finish(&x[i]);
    world_close(&w);
}

TEST(cancel_now, a_hook_that_cancels_its_own_future_runs_once)
{
    struct world w;
    world_open(&w);
    struct waiter head, x;
    list_init(&head);
    vow_future *f = wait_in(&head, &x, w.loop);
    x.cancels_itself = true;
    CHECK(vow_cancel(f, NULL));
    world_run(&w);
    CHECK_INT_EQ(x.hooks, 1);
    CHECK_INT_EQ(code_of(f), VOW_ECANCELED);
    finish(&x);
    world_close(&w);
}

/* ---- from the queue ----------------------------------------------------- */

TEST(cancel_now, canceled_through_others_it_is_told_and_leaves_from_the_queue)
{
    struct world w;
    world_open(&w);
    struct waiter head, x[4];
    list_init(&head);
    for (int i = 0; i < 4; i++)
        (void)wait_in(&head, &x[i], w.loop);
    vow_future *both[] = {x[1].future, x[2].future};
    vow_future *through[] = {
        vow_timeout(x[0].future, 1000),
        vow_all(w.loop, both, 2),
        vow_race(w.loop, &x[3].future, 1),
    };
    for (int i = 0; i < 4; i++)
        x[i].future = vow_future_unref(x[i].future);
    vow_error *why = vow_error_new(w.loop, VOW_EIO, "enough");
    for (int i = 0; i < 3; i++)
        CHECK(vow_cancel(through[i], why));
    for (int i = 0; i < 4; i++) {
        CHECK_INT_EQ(x[i].hooks, 0);
        CHECK(vow_deferred_pending(x[i].end));
        CHECK(vow_deferred_canceled(x[i].end));
    }
    CHECK_INT_EQ(count(&head), 4);
    world_run(&w);
    CHECK_INT_EQ(count(&head), 0);
    for (int i = 0; i < 4; i++) {
        CHECK_INT_EQ(x[i].hooks, 1);
        CHECK_INT_EQ(x[i].code, VOW_ECANCELED);
        CHECK_PTR_EQ(x[i].root, why);
        vow_deferred_unref(x[i].end);
    }
    vow_error_unref(why);
    for (int i = 0; i < 3; i++)
        vow_future_unref(through[i]);
    world_close(&w);
}

TEST(cancel_now, a_timeout_that_fires_takes_it_out)
{
    struct world w;
    world_open(&w);
    struct waiter head, x;
    list_init(&head);
    vow_future *f = vow_timeout(wait_in(&head, &x, w.loop), 10);
    vow_future_unref(x.future);
    world_run(&w);
    CHECK_INT_EQ(x.hooks, 1);
    CHECK_INT_EQ(vow_error_code(x.root), VOW_ETIMEDOUT);
    CHECK_INT_EQ(count(&head), 0);
    CHECK_INT_EQ(code_of(f), VOW_ETIMEDOUT);
    vow_future_unref(f);
    vow_deferred_unref(x.end);
    world_close(&w);
}

TEST(cancel_now, a_scope_that_is_canceled_takes_it_out)
{
    struct world w;
    world_open(&w);
    struct waiter head, x;
    list_init(&head);
    vow_scope *s;
    CHECK_INT_EQ(vow_scope_new(w.loop, NULL, &s), 0);
    vow_future *f = vow_scope_add(s, wait_in(&head, &x, w.loop));
    CHECK(vow_scope_cancel(s, NULL));
    world_run(&w);
    CHECK_INT_EQ(x.hooks, 1);
    CHECK_INT_EQ(count(&head), 0);
    CHECK_INT_EQ(code_of(f), VOW_ECANCELED);
    vow_future_unref(f);
    finish(&x);
    vow_scope_unref(s);
    world_close(&w);
}

TEST(cancel_now, settled_before_its_hook_came_the_hook_does_not)
{
    struct world w;
    world_open(&w);
    struct waiter head, x;
    list_init(&head);
    vow_future *f = vow_timeout(wait_in(&head, &x, w.loop), 1000);
    vow_future_unref(x.future);
    CHECK(vow_cancel(f, NULL));
    CHECK(vow_deferred_canceled(x.end));
    CHECK(vow_resolve(x.end, vow_int(1)));
    CHECK(!vow_deferred_canceled(x.end));
    world_run(&w);
    CHECK_INT_EQ(x.hooks, 0);
    vow_future_unref(f);
    vow_deferred_unref(x.end);
    world_close(&w);
}

TEST(cancel_now, a_hook_that_cancels_the_next_takes_little_stack)
{
    enum { N = 100000 };
    static struct waiter x[N];
    struct world w;
    world_open(&w);
    struct waiter head;
    list_init(&head);
    for (int i = 0; i < N; i++)
        (void)wait_in(&head, &x[i], w.loop);
    for (int i = 0; i + 1 < N; i++)
        x[i].also = x[i + 1].future;
    CHECK(vow_cancel(x[0].future, NULL));
    CHECK_INT_EQ(x[0].hooks, 1);
    CHECK(vow_deferred_canceled(x[1].end));
    world_run(&w);
    CHECK_INT_EQ(count(&head), 0);
    for (int i = 0; i < N; i++) {
        CHECK_INT_EQ(x[i].hooks, 1);
        finish(&x[i]);
    }
    world_close(&w);
}

/* ---- the end of the loop ------------------------------------------------ */

struct witness {
    struct waiter *waiter;
    int runs;
};

static vow_next see_it_canceled(vow_error *e, void *user)
{
    struct witness *s = user;
    CHECK_INT_EQ(vow_error_code(e), VOW_ECLOSED);
    CHECK(s->waiter->hooks > 0 || vow_deferred_canceled(s->waiter->end));
    s->runs++;
    return vow_ok(vow_nothing());
}

TEST(cancel_now, the_close_of_the_loop_runs_it_from_the_queue)
{
    struct world w;
    world_open(&w);
    struct waiter head, x;
    struct witness seen = {.waiter = &x};
    list_init(&head);
    vow_deferred *d;
    vow_future *before = vow_promise(w.loop, &d);
    (void)wait_in(&head, &x, w.loop);
    CHECK_INT_EQ(vow_done(before, NULL, see_it_canceled, &seen), 0);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    CHECK_INT_EQ(seen.runs, 1);
    CHECK_INT_EQ(x.hooks, 1);
    CHECK_INT_EQ(x.code, VOW_ECLOSED);
    CHECK_INT_EQ(count(&head), 0);
    CHECK_INT_EQ(code_of(x.future), VOW_ECLOSED);
    finish(&x);
    vow_deferred_unref(d);
    world_close_dirty(&w);
}

/* ---- has it been canceled? ---------------------------------------------- */

static void settle_later(vow_error *why, void *user)
{
    (void)why;
    (void)user;
}

TEST(cancel_now, a_deferred_knows_that_it_was_canceled)
{
    struct world w;
    world_open(&w);
    vow_deferred *d, *e, *g;
    vow_future *plain = vow_promise(w.loop, &d);
    vow_future *asked = vow_promise(w.loop, &e);
    vow_future *failed = vow_promise(w.loop, &g);
    vow_on_cancel(e, settle_later, NULL);
    CHECK(!vow_deferred_canceled(d));
    CHECK(!vow_deferred_canceled(e));
    CHECK(vow_cancel(plain, NULL));
    CHECK(vow_cancel(asked, NULL));
    CHECK(vow_deferred_canceled(d));
    CHECK(vow_deferred_canceled(e)); /* before its hook ran, */
    world_run(&w);
    CHECK(vow_deferred_canceled(e)); /* and while it still runs */
    CHECK(vow_deferred_pending(e));
    CHECK(vow_resolve(e, vow_nothing()));
    CHECK(!vow_deferred_canceled(e)); /* it came to a good end */
    CHECK(vow_reject_code(g, VOW_EIO, NULL));
    CHECK(!vow_deferred_canceled(g));
    (void)vow_error_of(failed);
    vow_future_unref(plain);
    vow_future_unref(asked);
    vow_future_unref(failed);
    vow_deferred_unref(d);
    vow_deferred_unref(e);
    vow_deferred_unref(g);
    world_close(&w);
}

TEST(cancel_now, one_that_follows_another_is_not_canceled_by_itself)
{
    struct world w;
    world_open(&w);
    struct waiter head, x;
    list_init(&head);
    vow_deferred *inner;
    vow_future *other = vow_promise(w.loop, &inner);
    vow_future *f = wait_in(&head, &x, w.loop);
    CHECK(vow_resolve_with(x.end, other));
    vow_future_unref(other);
    CHECK(!vow_deferred_canceled(x.end));
    CHECK(vow_cancel(f, NULL));
    CHECK_INT_EQ(x.hooks, 0); /* it does not wait in a list any more */
    CHECK(vow_deferred_canceled(x.end));
    CHECK(!vow_deferred_pending(inner));
    world_run(&w);
    vow_deferred_unref(inner);
    finish(&x);
    world_close(&w);
}

FAULT_SWEEP(cancel_now, survives_every_fault, FAULT_ALLOC)
{
    struct waiter head, x[2];
    list_init(&head);
    for (int i = 0; i < 2; i++)
        (void)wait_in(&head, &x[i], w->loop);
    vow_future *bound = vow_timeout(x[1].future, 50);
    bool waits = vow_state_of(bound) == VOW_PENDING;
    (void)vow_cancel(x[0].future, NULL);
    CHECK(code_of(x[0].future) == VOW_ECANCELED ||
          fault_explains(w, code_of(x[0].future)));
    if (waits)
        x[1].future = vow_future_unref(x[1].future);
    (void)vow_cancel(bound, NULL);
    world_run(w);
    CHECK(x[1].hooks == 1 || fault_fired(w));
    CHECK(x[1].hooks <= 1);
    (void)vow_error_of(bound);
    vow_future_unref(bound);
    for (int i = 0; i < 2; i++) {
        if (x[i].future != NULL)
            (void)vow_error_of(x[i].future);
        if (vow_deferred_pending(x[i].end))
            vow_resolve(x[i].end, vow_nothing());
        vow_future_unref(x[i].future);
        vow_deferred_unref(x[i].end);
    }
}
