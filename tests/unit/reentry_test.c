/* SPDX-License-Identifier: MIT */
/* reentry_test.c - drops, destructors and hooks that call back into the library
 * while it is in the middle of something.
 *
 * Objects come from the allocator one by one, which fills what is freed: a use
 * of it then shows without a sanitizer too. */
#include "harness.h"
#include "world.h"

#include <vow.h>

static int calls;
static vow_future *victim;
static vow_scope *scope;
static vow_deferred *end;

static void open_unpooled(struct world *w)
{
    world_open_with(w, VOW_LOOP_OPTS(.flags = VOW_LOOP_UNPOOLED));
}

static int code_of(vow_future *f)
{
    return vow_error_code(vow_error_of(f));
}

static vow_scope *new_scope(struct world *w)
{
    vow_scope *s;
    CHECK_INT_EQ(vow_scope_new(w->loop, NULL, &s), 0);
    return s;
}

static vow_future *with_drop(vow_future *f, vow_drop_fn drop, void *user)
{
    vow_step step = {.user = user, .drop = drop};
    return vow_chain(f, &step, 1);
}

/* ---- destructors that cancel -------------------------------------------- */

static void ignore(vow_value progress, void *user)
{
    (void)progress;
    (void)user;
}

static void cancel_and_drop_victim(void *ptr)
{
    (void)ptr;
    calls++;
    CHECK(vow_cancel(victim, NULL));
    victim = vow_future_unref(victim);
}

TEST(reentry, replaced_progress_may_cancel_the_listener_that_had_it)
{
    struct world w;
    vow_deferred *d;
    open_unpooled(&w);
    vow_future *f = vow_promise(w.loop, &d);
    vow_future *other = vow_on_progress(f, ignore, NULL);
    victim = vow_on_progress(f, ignore, NULL);
    CHECK(vow_notify(d, vow_own(&w, cancel_and_drop_victim)));
    CHECK(vow_notify(d, vow_int(2)));
    CHECK_INT_EQ(calls, 1);
    CHECK(vow_resolve(d, vow_nothing()));
    world_run(&w);
    CHECK_INT_EQ(vow_state_of(other), VOW_FULFILLED);
    vow_future_unref(other);
    vow_future_unref(f);
    vow_deferred_unref(d);
    world_close(&w);
}

static void cancel_victim_again(void *ptr)
{
    (void)ptr;
    calls++;
    CHECK(!vow_cancel(victim, NULL));
}

TEST(reentry, undelivered_progress_may_cancel_its_listener_again)
{
    struct world w;
    vow_deferred *d;
    open_unpooled(&w);
    vow_future *f = vow_promise(w.loop, &d);
    victim = vow_on_progress(f, ignore, NULL);
    CHECK(vow_notify(d, vow_own(&w, cancel_victim_again)));
    CHECK(vow_cancel(victim, NULL));
    CHECK_INT_EQ(calls, 1);
    CHECK_INT_EQ(code_of(victim), VOW_ECANCELED);
    vow_future_unref(victim);
    vow_future_unref(f);
    vow_deferred_unref(d);
    world_run(&w);
    world_close(&w);
}

static void cancel_scope(void *ptr)
{
    (void)ptr;
    calls++;
    CHECK(vow_scope_cancel(scope, NULL));
}

TEST(reentry, unread_result_of_a_member_may_cancel_the_scope)
{
    struct world w;
    vow_deferred *d;
    open_unpooled(&w);
    scope = new_scope(&w);
    vow_future *f = vow_promise(w.loop, &d);
    vow_future_unref(vow_scope_add(scope, f));
    vow_future_unref(f);
    CHECK(vow_resolve(d, vow_own(&w, cancel_scope)));
    vow_deferred_unref(d);
    world_run(&w);
    CHECK_INT_EQ(calls, 1);
    CHECK_UINT_EQ(vow_scope_size(scope), 0);
    vow_scope_unref(scope);
    world_close(&w);
}

static void cancel_victim_at_once(void *ptr)
{
    (void)ptr;
    calls++;
    CHECK(vow_cancel(victim, NULL));
    CHECK_INT_EQ(code_of(victim), VOW_ECANCELED);
}

TEST(reentry, delay_canceled_inside_a_drop_is_rejected_at_once)
{
    struct world w;
    vow_deferred *d;
    open_unpooled(&w);
    victim = vow_delay(w.loop, 100);
    vow_future *f = vow_promise(w.loop, &d);
    vow_future *link = with_drop(f, cancel_victim_at_once, NULL);
    vow_future *t = vow_timeout(link, 50);
    vow_future_unref(link);
    CHECK(vow_cancel(t, NULL));
    CHECK_INT_EQ(calls, 1);
    vow_future_unref(t);
    vow_future_unref(f);
    vow_future_unref(victim);
    vow_deferred_unref(d);
    world_close(&w);
}

/* ---- the unhandled hook ------------------------------------------------- */

enum { HANDLES = 3, OTHERS = 1000 };
static vow_future *handles[HANDLES];

static void drop_all_handles(vow_error *e, const char *site, void *user)
{
    (void)site;
    struct world *w = user;
    CHECK_INT_EQ(vow_error_code(e), VOW_EIO);
    calls++;
    for (int i = 0; i < HANDLES; i++)
        handles[i] = vow_future_unref(handles[i]);
    vow_loop_trim(w->loop);
}

/* More futures than one slab of the pool has, so that a trim takes some. */
static void close_with_unhandled_rejections(uint32_t flags)
{
    struct world w;
    vow_future *others[OTHERS];
    world_open_with(&w, VOW_LOOP_OPTS(.flags = flags,
                                      .on_unhandled = drop_all_handles,
                                      .on_unhandled_user = &w));
    for (int i = 0; i < OTHERS; i++)
        others[i] = vow_resolved(w.loop, vow_nothing());
    for (int i = 0; i < HANDLES; i++)
        handles[i] = vow_rejected(w.loop, vow_error_new(w.loop, VOW_EIO, "x"));
    for (int i = 0; i < OTHERS; i++)
        vow_future_unref(others[i]);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    CHECK_INT_EQ(calls, HANDLES); /* each is told, dropped or not */
    world_close_dirty(&w);
}

TEST(reentry, unhandled_hook_of_a_close_may_drop_its_own_future)
{
    close_with_unhandled_rejections(VOW_LOOP_UNPOOLED);
}

TEST(reentry, unhandled_hook_of_a_close_may_drop_its_own_pooled_future)
{
    close_with_unhandled_rejections(0);
}

/* ---- nobody turns or closes the loop from inside ------------------------ */

static void turn_the_loop(void *ptr)
{
    vow_loop *loop = ptr;
    calls++;
    CHECK_INT_EQ(vow_loop_turn(loop), VOW_EBUSY);
    CHECK_INT_EQ(vow_loop_run(loop), VOW_EBUSY);
    CHECK_INT_EQ(vow_loop_advance(loop, 1), VOW_EBUSY);
    CHECK_INT_EQ(vow_loop_close(loop), VOW_EBUSY);
}

/* What would be run is there: the other promise is settled first. */
static void settle_and_turn_the_loop(void *ptr)
{
    CHECK(vow_resolve(end, vow_nothing()));
    turn_the_loop(ptr);
}

static void turn_on_unhandled(vow_error *e, const char *site, void *user)
{
    (void)e;
    (void)site;
    struct world *w = user;
    turn_the_loop(w->loop);
}

TEST(reentry, drop_of_a_canceled_link_is_told_busy)
{
    struct world w;
    vow_deferred *d;
    open_unpooled(&w);
    vow_future *f = vow_promise(w.loop, &d);
    vow_future *link = with_drop(f, turn_the_loop, w.loop);
    CHECK(vow_cancel(link, NULL));
    CHECK_INT_EQ(calls, 1);
    world_turn(&w); /* which is fine again */
    vow_future_unref(link);
    vow_future_unref(f);
    vow_deferred_unref(d);
    world_close(&w);
}

TEST(reentry, drop_below_a_canceled_race_is_told_busy)
{
    struct world w;
    vow_deferred *d;
    open_unpooled(&w);
    vow_future *f = vow_promise(w.loop, &d);
    vow_future *in[2] = {with_drop(f, settle_and_turn_the_loop, w.loop),
                         vow_promise(w.loop, &end)};
    vow_future *r = vow_race(w.loop, in, 2);
    vow_future_unref(in[0]);
    vow_future_unref(in[1]);
    CHECK(vow_cancel(r, NULL));
    CHECK_INT_EQ(calls, 1);
    CHECK_INT_EQ(code_of(r), VOW_ECANCELED);
    vow_future_unref(r);
    vow_future_unref(f);
    vow_deferred_unref(d);
    vow_deferred_unref(end);
    world_run(&w);
    world_close(&w);
}

TEST(reentry, drop_below_a_canceled_scope_is_told_busy)
{
    struct world w;
    vow_deferred *d;
    open_unpooled(&w);
    scope = new_scope(&w);
    vow_future *f = vow_promise(w.loop, &d);
    vow_future *in[2] = {with_drop(f, settle_and_turn_the_loop, w.loop),
                         vow_promise(w.loop, &end)};
    for (int i = 0; i < 2; i++) {
        vow_future_unref(vow_scope_add(scope, in[i]));
        vow_future_unref(in[i]);
    }
    CHECK(vow_scope_cancel(scope, NULL));
    CHECK_INT_EQ(calls, 1);
    vow_future_unref(f);
    vow_deferred_unref(d);
    vow_deferred_unref(end);
    world_run(&w);
    CHECK_UINT_EQ(vow_scope_size(scope), 0);
    vow_scope_unref(scope);
    world_close(&w);
}

TEST(reentry, destructor_of_a_value_is_told_busy)
{
    struct world w;
    open_unpooled(&w);
    vow_future_unref(vow_resolved(w.loop, vow_own(w.loop, turn_the_loop)));
    CHECK_INT_EQ(calls, 1);
    world_turn(&w);
    world_close(&w);
}

TEST(reentry, unhandled_hook_is_told_busy)
{
    struct world w;
    world_open_with(&w, VOW_LOOP_OPTS(.flags = VOW_LOOP_UNPOOLED,
                                      .on_unhandled = turn_on_unhandled,
                                      .on_unhandled_user = &w));
    vow_future_unref(vow_rejected(w.loop, vow_error_new(w.loop, VOW_EIO, "x")));
    CHECK_INT_EQ(calls, 1);
    world_turn(&w);
    world_close(&w);
}

/* ---- scopes ------------------------------------------------------------- */

static vow_future *waited;
static vow_loop *hook_loop;

static void leave_it(vow_error *why, void *user)
{
    (void)why;
    (void)user;
}

/* Told of the first wait's rejection, in the middle of settling the waits. */
static void add_and_wait(vow_error *e, const char *site, void *user)
{
    (void)e;
    (void)site;
    (void)user;
    calls++;
    vow_future *f = vow_promise(hook_loop, &end);
    vow_on_cancel(end, leave_it, NULL);
    vow_future_unref(vow_scope_add(scope, f));
    vow_future_unref(f);
    waited = vow_scope_wait(scope);
}

TEST(reentry, wait_made_while_waits_are_settled_has_its_own_end)
{
    struct world w;
    vow_deferred *d;
    world_open_with(&w, VOW_LOOP_OPTS(.flags = VOW_LOOP_UNPOOLED,
                                      .on_unhandled = add_and_wait));
    hook_loop = w.loop;
    scope = new_scope(&w);
    vow_future *f = vow_promise(w.loop, &d);
    vow_future_unref(vow_scope_add(scope, f));
    vow_future_unref(f);
    vow_future_unref(vow_scope_wait(scope)); /* nobody handles it */
    vow_error *why = vow_error_new(w.loop, VOW_EIO, "why");
    CHECK(vow_scope_cancel(scope, why));
    vow_error_unref(why);
    world_run(&w);
    CHECK_INT_EQ(calls, 1);
    CHECK_UINT_EQ(vow_scope_size(scope), 1);
    CHECK_INT_EQ(vow_state_of(waited), VOW_PENDING);
    CHECK(vow_resolve(end, vow_nothing()));
    world_run(&w);
    CHECK_INT_EQ(code_of(waited), VOW_EIO);
    vow_future_unref(waited);
    vow_deferred_unref(end);
    vow_deferred_unref(d);
    vow_scope_unref(scope);
    world_close(&w);
}

enum { AGAIN = 1000, TURN_MAX = 10 };
static vow_hook hook;

static void add_hook_again(vow_error *why, void *user)
{
    (void)why;
    (void)user;
    if (++calls < AGAIN)
        CHECK_INT_EQ(vow_hook_add(&hook, scope, add_hook_again, NULL), 0);
}

TEST(reentry, hook_that_adds_itself_again_does_not_hold_the_turn)
{
    struct world w;
    world_open_with(&w, VOW_LOOP_OPTS(.turn_max = TURN_MAX));
    scope = new_scope(&w);
    CHECK(vow_scope_cancel(scope, NULL));
    CHECK_INT_EQ(vow_hook_add(&hook, scope, add_hook_again, NULL), 0);
    world_turn(&w);
    CHECK(calls > 0 && calls <= TURN_MAX);
    world_run(&w);
    CHECK_INT_EQ(calls, AGAIN);
    vow_scope_unref(scope);
    world_close(&w);
}

struct sleeper {
    vow_loop *loop;
    int codes[2];
};

static vow_next sleep_twice(void *arg)
{
    struct sleeper *s = arg;
    for (int i = 0; i < 2; i++)
        s->codes[i] = vow_sleep(s->loop, 1);
    return vow_ok(vow_nothing());
}

static void add_fiber(void *ptr)
{
    struct sleeper *s = ptr;
    vow_future *fiber = vow_async(s->loop, sleep_twice, s);
    vow_future *member = vow_scope_add(scope, fiber);
    CHECK_INT_EQ(code_of(member), VOW_ECANCELED);
    vow_future_unref(member);
    vow_future_unref(fiber);
}

/* The cancel, which walks the members, finds the new one as well: another has
 * still to come when it is added. */
TEST(reentry, fiber_added_to_a_scope_being_canceled_sees_one_cancel)
{
    struct world w;
    vow_deferred *d;
    open_unpooled(&w);
    scope = new_scope(&w);
    struct sleeper s = {.loop = w.loop, .codes = {1, 1}};
    vow_future *f = vow_promise(w.loop, &d);
    vow_future *in[2] = {with_drop(f, add_fiber, &s),
                         vow_then(f, NULL, NULL, NULL)};
    for (int i = 0; i < 2; i++) {
        vow_future_unref(vow_scope_add(scope, in[i]));
        vow_future_unref(in[i]);
    }
    CHECK(vow_scope_cancel(scope, NULL));
    world_run(&w);
    CHECK_INT_EQ(s.codes[0], VOW_ECANCELED);
    CHECK_INT_EQ(s.codes[1], 0);
    CHECK_UINT_EQ(vow_scope_size(scope), 0);
    vow_future_unref(f);
    vow_deferred_unref(d);
    vow_scope_unref(scope);
    world_close(&w);
}

TEST(reentry, destructor_of_undelivered_progress_is_told_busy)
{
    struct world w;
    vow_deferred *d;
    open_unpooled(&w);
    scope = new_scope(&w);
    vow_future *f = vow_promise(w.loop, &d);
    vow_future *in[2] = {vow_on_progress(f, ignore, NULL),
                         vow_promise(w.loop, &end)};
    for (int i = 0; i < 2; i++) {
        vow_future_unref(vow_scope_add(scope, in[i]));
        vow_future_unref(in[i]);
    }
    CHECK(vow_notify(d, vow_own(w.loop, settle_and_turn_the_loop)));
    CHECK(vow_scope_cancel(scope, NULL));
    CHECK_INT_EQ(calls, 1);
    vow_future_unref(f);
    vow_deferred_unref(d);
    vow_deferred_unref(end);
    world_run(&w);
    vow_scope_unref(scope);
    world_close(&w);
}

TEST(reentry, delay_canceled_by_undelivered_progress_is_rejected_at_once)
{
    struct world w;
    vow_deferred *d;
    open_unpooled(&w);
    victim = vow_delay(w.loop, 100);
    vow_future *f = vow_promise(w.loop, &d);
    vow_future *link = vow_on_progress(f, ignore, NULL);
    vow_future *t = vow_timeout(link, 50);
    vow_future_unref(link);
    CHECK(vow_notify(d, vow_own(&w, cancel_victim_at_once)));
    CHECK(vow_cancel(t, NULL));
    CHECK_INT_EQ(calls, 1);
    vow_future_unref(t);
    vow_future_unref(f);
    vow_future_unref(victim);
    vow_deferred_unref(d);
    world_close(&w);
}
