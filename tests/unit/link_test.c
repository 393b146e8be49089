/* SPDX-License-Identifier: MIT */
/* link_test.c - what vow/promise.h promises of chains: values and errors
 * that go on, recovery, insertion, finally, and users freed exactly once. */
#include "harness.h"
#include "world.h"

#include "vow/promise.h"

/* ---- one promise and what hangs on it ----------------------------------- */

struct one {
    struct world w;
    vow_deferred *d;
    vow_future *f;
    vow_future *kept[24];
    size_t n_kept;
};

static vow_loop *one_open(struct one *o)
{
    world_open(&o->w);
    o->n_kept = 0;
    o->f = vow_promise(o->w.loop, &o->d);
    return o->w.loop;
}

static vow_future *keep(struct one *o, vow_future *f)
{
    CHECK(f != NULL);
    o->kept[o->n_kept++] = f;
    return f;
}

/* The error, only to compare. */
static vow_error *reject(struct one *o)
{
    vow_error *e = vow_error_new(o->w.loop, VOW_EIO, "no");
    vow_reject(o->d, e);
    world_run(&o->w);
    return e;
}

static void one_close(struct one *o)
{
    vow_deferred_unref(o->d);
    vow_future_unref(o->f);
    for (size_t i = 0; i < o->n_kept; i++)
        vow_future_unref(o->kept[i]);
    world_close(&o->w);
}

/* ---- steps -------------------------------------------------------------- */

/* A step that records what came in and returns what it is told to. */
struct step {
    int ok, fail;
    int64_t num;
    vow_error *error; /* only to compare */
    vow_next next;
};

static vow_next step_ok(vow_value v, void *user)
{
    struct step *s = user;
    s->ok++;
    s->num = vow_as_int(v);
    return s->next;
}

static vow_next step_fail(vow_error *e, void *user)
{
    struct step *s = user;
    s->fail++;
    s->error = e;
    return s->next;
}

static vow_next step_finally(void *user)
{
    struct step *s = user;
    s->ok++;
    return s->next;
}

static struct step returns(vow_next next)
{
    struct step s = {.next = next};
    return s;
}

static vow_future *then_both(struct one *o, vow_future *f, struct step *s)
{
    return keep(o, vow_then(f, step_ok, step_fail, s));
}

static vow_future *then_ok(struct one *o, vow_future *f, struct step *s)
{
    return keep(o, vow_then(f, step_ok, NULL, s));
}

static vow_future *then_catch(struct one *o, vow_future *f, struct step *s)
{
    return keep(o, vow_catch(f, step_fail, s));
}

static vow_future *then_finally(struct one *o, vow_future *f, struct step *s)
{
    return keep(o, vow_finally(f, step_finally, s));
}

static void check_fulfilled(vow_future *f, int64_t want)
{
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), want);
}

static void check_rejected(vow_future *f, int code)
{
    CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), code);
}

static void count_drop(void *ptr)
{
    ++*(int *)ptr;
}

/* ---- then --------------------------------------------------------------- */

/* Promises/A+ 2.2.2. */
TEST(chain, the_ok_step_gets_the_value_once_and_fail_is_not_called)
{
    struct one o;
    one_open(&o);
    struct step s = returns(vow_ok(vow_int(7)));
    vow_future *g = then_both(&o, o.f, &s);
    world_run(&o.w);
    CHECK_INT_EQ(s.ok, 0);
    vow_resolve(o.d, vow_int(3));
    world_run(&o.w);
    CHECK_INT_EQ(s.ok, 1);
    CHECK_INT_EQ(s.fail, 0);
    CHECK_INT_EQ(s.num, 3);
    check_fulfilled(g, 7);
    one_close(&o);
}

/* Promises/A+ 2.2.3. */
TEST(chain, the_fail_step_gets_the_error_once_and_ok_is_not_called)
{
    struct one o;
    one_open(&o);
    struct step s = returns(vow_ok(vow_int(7)));
    vow_future *g = then_both(&o, o.f, &s);
    vow_error *e = reject(&o);
    CHECK_INT_EQ(s.fail, 1);
    CHECK_INT_EQ(s.ok, 0);
    CHECK_PTR_EQ(s.error, e);
    check_fulfilled(g, 7);
    one_close(&o);
}

/* Promises/A+ 2.2.7.3. */
TEST(chain, a_missing_ok_step_lets_the_value_go_on)
{
    struct one o;
    one_open(&o);
    struct step s = returns(vow_ok(vow_nothing()));
    vow_future *g = then_catch(&o, o.f, &s);
    g = then_catch(&o, g, &s);
    g = keep(&o, vow_then(g, NULL, NULL, NULL));
    vow_resolve(o.d, vow_int(5));
    world_run(&o.w);
    check_fulfilled(g, 5);
    CHECK_INT_EQ(s.fail, 0);
    one_close(&o);
}

/* Promises/A+ 2.2.7.4. */
TEST(chain, a_missing_fail_step_lets_the_very_error_go_on)
{
    struct one o;
    one_open(&o);
    struct step s = returns(vow_ok(vow_nothing()));
    vow_future *g = then_ok(&o, o.f, &s);
    g = then_ok(&o, g, &s);
    g = keep(&o, vow_then(g, NULL, NULL, NULL));
    vow_error *e = reject(&o);
    check_rejected(g, VOW_EIO);
    CHECK_PTR_EQ(vow_error_of(g), e);
    CHECK_INT_EQ(s.ok, 0);
    one_close(&o);
}

/* Promises/A+ 2.2.7.2. */
TEST(chain, a_step_that_fails_rejects_its_future)
{
    struct one o;
    vow_loop *loop = one_open(&o);
    struct step moved = returns(vow_fail(vow_error_new(loop, -5, "mine")));
    struct step coded = returns(vow_fail_code(VOW_EBUSY, "static"));
    struct step wrong = returns(vow_fail_code(12, NULL));
    vow_future *f = then_ok(&o, o.f, &moved);
    vow_future *g = then_ok(&o, o.f, &coded);
    vow_future *h = then_ok(&o, o.f, &wrong);
    vow_resolve(o.d, vow_int(1));
    world_run(&o.w);
    check_rejected(f, VOW_EIO);
    CHECK_STR_EQ(vow_error_message(vow_error_of(f)), "mine");
    check_rejected(g, VOW_EBUSY);
    CHECK_STR_EQ(vow_error_message(vow_error_of(g)), "static");
    check_rejected(h, VOW_EINVAL);
    one_close(&o);
}

TEST(chain, a_fail_step_that_fails_replaces_the_error)
{
    struct one o;
    one_open(&o);
    struct step s = returns(vow_fail_code(VOW_EBUSY, NULL));
    vow_future *g = then_catch(&o, o.f, &s);
    vow_reject_code(o.d, VOW_EIO, NULL);
    world_run(&o.w);
    check_rejected(g, VOW_EBUSY);
    one_close(&o);
}

TEST(chain, an_error_skips_ok_steps_and_goes_on_as_a_value_once_recovered)
{
    struct one o;
    one_open(&o);
    struct step skipped = returns(vow_ok(vow_int(1)));
    struct step recover = returns(vow_ok(vow_int(2)));
    struct step after = returns(vow_ok(vow_int(3)));
    struct step unused = returns(vow_ok(vow_int(4)));
    vow_future *g = then_ok(&o, o.f, &skipped);
    g = then_catch(&o, g, &recover);
    g = then_ok(&o, g, &after);
    g = then_catch(&o, g, &unused);
    vow_reject_code(o.d, VOW_EIO, NULL);
    world_run(&o.w);
    CHECK_INT_EQ(skipped.ok, 0);
    CHECK_INT_EQ(recover.fail, 1);
    CHECK_INT_EQ(after.ok, 1);
    CHECK_INT_EQ(after.num, 2);
    CHECK_INT_EQ(unused.fail, 0);
    check_fulfilled(g, 3);
    one_close(&o);
}

TEST(chain, pass_sends_on_what_came_in)
{
    struct one o;
    vow_loop *loop = one_open(&o);
    struct step s = returns(vow_pass());
    vow_error *e = vow_error_new(loop, VOW_EIO, "no");
    vow_future *g = then_both(&o, o.f, &s);
    vow_future *h = then_both(&o, keep(&o, vow_rejected(loop, e)), &s);
    vow_resolve(o.d, vow_int(5));
    world_run(&o.w);
    CHECK_INT_EQ(s.ok, 1);
    CHECK_INT_EQ(s.fail, 1);
    check_fulfilled(g, 5);
    CHECK_PTR_EQ(vow_error_of(h), e);
    one_close(&o);
}

/* Promises/A+ 2.2.6: each branch gets the outcome, none sees another's. */
TEST(chain, branches_of_one_future_are_independent)
{
    struct one o;
    one_open(&o);
    struct step a = returns(vow_ok(vow_int(10)));
    struct step b = returns(vow_fail_code(VOW_EIO, NULL));
    struct step c = returns(vow_ok(vow_int(30)));
    vow_future *fa = then_both(&o, o.f, &a);
    vow_future *fb = then_both(&o, o.f, &b);
    vow_future *fc = then_both(&o, o.f, &c);
    vow_resolve(o.d, vow_int(1));
    world_run(&o.w);
    CHECK_INT_EQ(a.num + b.num + c.num, 3);
    check_fulfilled(fa, 10);
    check_rejected(fb, VOW_EIO);
    check_fulfilled(fc, 30);
    one_close(&o);
}

TEST(chain, runs_though_every_handle_but_the_last_was_dropped)
{
    struct one o;
    one_open(&o);
    struct step s = returns(vow_ok(vow_int(2)));
    vow_future *g = vow_then(o.f, step_ok, step_fail, &s);
    struct step t = returns(vow_ok(vow_int(3)));
    vow_future *h = keep(&o, vow_then(g, step_ok, NULL, &t));
    vow_future_unref(g);
    o.f = vow_future_unref(o.f);
    vow_resolve(o.d, vow_int(1));
    vow_deferred_unref(o.d);
    o.d = NULL;
    world_run(&o.w);
    check_fulfilled(h, 3);
    CHECK_INT_EQ(t.num, 2);
    one_close(&o);
}

/* ---- insertion ---------------------------------------------------------- */

TEST(chain, a_step_that_follows_a_future_waits_for_it)
{
    struct one o;
    vow_loop *loop = one_open(&o);
    vow_deferred *d;
    struct step s = returns(vow_follow(vow_promise(loop, &d)));
    vow_future *g = then_ok(&o, o.f, &s);
    vow_resolve(o.d, vow_int(1));
    world_run(&o.w);
    CHECK_INT_EQ(s.ok, 1);
    CHECK_INT_EQ(vow_state_of(g), VOW_PENDING);
    vow_resolve(d, vow_int(99));
    vow_deferred_unref(d);
    world_run(&o.w);
    check_fulfilled(g, 99);
    one_close(&o);
}

TEST(chain, a_step_that_follows_a_rejected_future_is_rejected_so)
{
    struct one o;
    vow_loop *loop = one_open(&o);
    vow_error *e = vow_error_new(loop, VOW_EIO, "inserted");
    struct step s = returns(vow_follow(vow_rejected(loop, e)));
    vow_future *g = then_ok(&o, o.f, &s);
    vow_resolve(o.d, vow_int(1));
    world_run(&o.w);
    CHECK_PTR_EQ(vow_error_of(g), e);
    one_close(&o);
}

/* The article's figure: work that fails twice, then succeeds; each attempt is
 * inserted before what waits. */
struct attempts {
    vow_loop *loop;
    int made, fails;
};

static vow_future *attempt(struct attempts *a);

static vow_next attempt_again(vow_error *e, void *user)
{
    (void)e;
    return vow_follow(attempt(user));
}

static vow_future *attempt(struct attempts *a)
{
    vow_deferred *d;
    vow_future *work = vow_promise(a->loop, &d);
    if (a->made++ < a->fails)
        vow_reject_code(d, VOW_EIO, "attempt");
    else
        vow_resolve(d, vow_int(a->made));
    vow_deferred_unref(d);
    vow_future *f = vow_catch(work, attempt_again, a);
    vow_future_unref(work);
    return f;
}

TEST(chain, retry_by_insertion_is_unknown_to_those_who_wait)
{
    struct one o;
    struct attempts a = {.loop = one_open(&o), .fails = 2};
    vow_future *f = keep(&o, attempt(&a));
    struct step s = returns(vow_ok(vow_nothing()));
    for (int i = 0; i < 3; i++)
        then_both(&o, f, &s);
    vow_resolve(o.d, vow_nothing());
    world_run(&o.w);
    CHECK_INT_EQ(a.made, 3);
    CHECK_INT_EQ(s.ok, 3);
    CHECK_INT_EQ(s.fail, 0);
    CHECK_INT_EQ(s.num, 3);
    one_close(&o);
}

/* ---- finally ------------------------------------------------------------ */

TEST(chain, finally_runs_once_and_the_value_goes_on)
{
    struct one o;
    one_open(&o);
    struct step s = returns(vow_ok(vow_int(100)));
    vow_future *g = then_finally(&o, o.f, &s);
    vow_resolve(o.d, vow_int(1));
    world_run(&o.w);
    CHECK_INT_EQ(s.ok, 1);
    check_fulfilled(g, 1);
    one_close(&o);
}

TEST(chain, finally_runs_once_and_the_very_error_goes_on)
{
    struct one o;
    one_open(&o);
    struct step s = returns(vow_ok(vow_int(100)));
    vow_future *g = then_finally(&o, o.f, &s);
    vow_error *e = reject(&o);
    CHECK_INT_EQ(s.ok, 1);
    CHECK_PTR_EQ(vow_error_of(g), e);
    one_close(&o);
}

TEST(chain, finally_that_fails_replaces_value_and_error)
{
    for (int reject = 0; reject < 2; reject++) {
        struct one o;
        one_open(&o);
        struct step s = returns(vow_fail_code(VOW_EBUSY, NULL));
        vow_future *g = then_finally(&o, o.f, &s);
        if (reject)
            vow_reject_code(o.d, VOW_EIO, NULL);
        else
            vow_resolve(o.d, vow_int(1));
        world_run(&o.w);
        check_rejected(g, VOW_EBUSY);
        one_close(&o);
    }
}

TEST(chain, finally_waits_for_what_it_follows_and_keeps_the_outcome)
{
    for (int reject = 0; reject < 2; reject++) {
        struct one o;
        vow_loop *loop = one_open(&o);
        vow_deferred *d;
        struct step s = returns(vow_follow(vow_promise(loop, &d)));
        vow_future *g = then_finally(&o, o.f, &s);
        if (reject)
            vow_reject_code(o.d, VOW_EIO, NULL);
        else
            vow_resolve(o.d, vow_int(1));
        world_run(&o.w);
        CHECK_INT_EQ(vow_state_of(g), VOW_PENDING);
        vow_resolve(d, vow_int(50));
        vow_deferred_unref(d);
        world_run(&o.w);
        if (reject)
            check_rejected(g, VOW_EIO);
        else
            check_fulfilled(g, 1);
        one_close(&o);
    }
}

TEST(chain, finally_that_follows_a_rejected_future_is_rejected_so)
{
    struct one o;
    vow_loop *loop = one_open(&o);
    vow_deferred *d;
    struct step s = returns(vow_follow(vow_promise(loop, &d)));
    vow_future *g = then_finally(&o, o.f, &s);
    vow_resolve(o.d, vow_int(1));
    world_run(&o.w);
    vow_reject_code(d, VOW_EBUSY, NULL);
    vow_deferred_unref(d);
    world_run(&o.w);
    check_rejected(g, VOW_EBUSY);
    one_close(&o);
}

TEST(chain, finally_drops_the_value_it_returns_and_keeps_an_owned_one)
{
    struct one o;
    one_open(&o);
    int mine = 0, ignored = 0;
    struct step s = returns(vow_ok(vow_own(&ignored, count_drop)));
    vow_future *g = then_finally(&o, o.f, &s);
    vow_resolve(o.d, vow_own(&mine, count_drop));
    world_run(&o.w);
    CHECK_INT_EQ(ignored, 1);
    CHECK_INT_EQ(mine, 0);
    CHECK_PTR_EQ(vow_as_ptr(vow_get(g)), &mine);
    one_close(&o);
    CHECK_INT_EQ(mine, 1);
}

/* ---- chains of steps ---------------------------------------------------- */

/* The user of a chained step: dead once dropped. */
struct link {
    int runs, drops, dead_runs;
};

static vow_next link_add_one(vow_value v, void *user)
{
    struct link *l = user;
    l->runs++;
    l->dead_runs += l->drops;
    return vow_ok(vow_int(vow_as_int(v) + 1));
}

static vow_next link_recover(vow_error *e, void *user)
{
    struct link *l = user;
    l->runs++;
    l->dead_runs += l->drops;
    return vow_ok(vow_int(-vow_error_code(e)));
}

static void link_drop(void *user)
{
    ((struct link *)user)->drops++;
}

enum { LINKS = 4 };

/* Links add one, but number 2 only recovers. */
static vow_future *chain_of(vow_future *f, struct link *l)
{
    vow_step steps[LINKS];
    for (int i = 0; i < LINKS; i++) {
        l[i] = (struct link){0};
        steps[i] = (vow_step){link_add_one, NULL, &l[i], link_drop};
    }
    steps[2] = (vow_step){NULL, link_recover, &l[2], link_drop};
    return vow_chain(f, steps, LINKS);
}

static void check_links(const struct link *l, const int runs[LINKS])
{
    for (int i = 0; i < LINKS; i++) {
        CHECK_INT_EQ(l[i].runs, runs[i]);
        CHECK_INT_EQ(l[i].drops, 1);
        CHECK_INT_EQ(l[i].dead_runs, 0);
    }
}

TEST(chain, of_steps_runs_them_one_behind_the_other)
{
    struct one o;
    one_open(&o);
    struct link l[LINKS];
    vow_future *g = keep(&o, chain_of(o.f, l));
    vow_resolve(o.d, vow_int(10));
    world_run(&o.w);
    check_fulfilled(g, 13);
    check_links(l, (const int[LINKS]){1, 1, 0, 1});
    one_close(&o);
}

TEST(chain, of_steps_skips_ok_steps_for_an_error_and_frees_their_users)
{
    struct one o;
    one_open(&o);
    struct link l[LINKS];
    vow_future *g = keep(&o, chain_of(o.f, l));
    vow_reject_code(o.d, -40, NULL);
    world_run(&o.w);
    check_fulfilled(g, 41);
    check_links(l, (const int[LINKS]){0, 0, 1, 1});
    one_close(&o);
}

TEST(chain, of_steps_frees_users_once_when_it_is_canceled)
{
    struct one o;
    one_open(&o);
    struct link l[LINKS];
    vow_future *g = keep(&o, chain_of(o.f, l));
    CHECK(vow_cancel(g, NULL));
    check_rejected(g, VOW_ECANCELED);
    vow_resolve(o.d, vow_int(1));
    world_run(&o.w);
    check_links(l, (const int[LINKS]){0, 0, 0, 0});
    one_close(&o);
}

TEST(chain, of_no_steps_has_the_outcome_of_its_future)
{
    struct one o;
    one_open(&o);
    vow_future *g = keep(&o, vow_chain(o.f, NULL, 0));
    vow_resolve(o.d, vow_int(4));
    world_run(&o.w);
    check_fulfilled(g, 4);
    one_close(&o);
}

TEST(chain, of_missing_steps_is_an_invalid_argument)
{
    struct one o;
    one_open(&o);
    vow_future *g = keep(&o, vow_chain(o.f, NULL, 3));
    vow_resolve(o.d, vow_int(4));
    world_run(&o.w);
    check_rejected(g, VOW_EINVAL);
    one_close(&o);
}
