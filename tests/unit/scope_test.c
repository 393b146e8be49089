/* SPDX-License-Identifier: MIT */
/* scope_test.c - scopes: a tree that is canceled together and waited for,
 * with deadlines, hooks, and the first cause kept. */
#include "harness.h"
#include "world.h"

#include "vow/scope.h"

#include <string.h>

/* ---- a tree of scopes and some work ------------------------------------- */

enum { MANY = 4, SCOPES = 4 };

struct tree {
    struct world w;
    vow_error *why; /* to cancel with */
    vow_scope *s[SCOPES];
    vow_deferred *d[MANY];
    vow_future *f[MANY];
    vow_future *kept[16];
    size_t n_kept;
};

static vow_loop *tree_open(struct tree *t)
{
    memset(t, 0, sizeof(*t));
    world_open(&t->w);
    t->why = vow_error_new(t->w.loop, VOW_EIO, "why");
    for (int i = 0; i < MANY; i++)
        t->f[i] = vow_promise(t->w.loop, &t->d[i]);
    return t->w.loop;
}

static vow_future *keep(struct tree *t, vow_future *f)
{
    CHECK(f != NULL);
    t->kept[t->n_kept++] = f;
    return f;
}

/* Scope i, in t->s[i]. */
static vow_scope *scope(struct tree *t, int i, const vow_scope_opts *opts)
{
    CHECK_INT_EQ(vow_scope_new(t->w.loop, opts, &t->s[i]), 0);
    return t->s[i];
}

/* Scopes 0, 1 in 0, 2 in 1, 3 in 0. */
static void family(struct tree *t)
{
    scope(t, 0, NULL);
    scope(t, 1, VOW_SCOPE_OPTS(.parent = t->s[0]));
    scope(t, 2, VOW_SCOPE_OPTS(.parent = t->s[1]));
    scope(t, 3, VOW_SCOPE_OPTS(.parent = t->s[0]));
}

/* Makes promise i a member of scope j. */
static vow_future *add(struct tree *t, int j, int i)
{
    return keep(t, vow_scope_add(t->s[j], t->f[i]));
}

static void tree_close(struct tree *t)
{
    for (int i = 0; i < MANY; i++) {
        if (vow_deferred_pending(t->d[i]))
            vow_resolve(t->d[i], vow_nothing());
        vow_deferred_unref(t->d[i]);
    }
    world_run(&t->w);
    for (int i = 0; i < MANY; i++)
        vow_future_unref(t->f[i]);
    for (size_t i = 0; i < t->n_kept; i++)
        vow_future_unref(t->kept[i]);
    for (int i = 0; i < SCOPES; i++)
        vow_scope_unref(t->s[i]);
    vow_error_unref(t->why);
    world_run(&t->w);
    world_close(&t->w);
}

static void check_rejected(vow_future *f, int code)
{
    CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), code);
}

static void check_fulfilled(vow_future *f, int64_t want)
{
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), want);
}

/* Canceled, with this first cause behind it. */
static void check_canceled(vow_future *f, vow_error *root)
{
    check_rejected(f, VOW_ECANCELED);
    CHECK_PTR_EQ(vow_error_root(vow_error_of(f)), root);
}

static size_t scopes_alive(struct tree *t)
{
    vow_loop_stats st;
    vow_loop_stats_get(t->w.loop, &st);
    return st.scopes;
}

/* ---- members ------------------------------------------------------------ */

TEST(scope, member_has_the_outcome_of_its_future)
{
    struct tree t;
    vow_loop *loop = tree_open(&t);
    scope(&t, 0, NULL);
    vow_future *ok = add(&t, 0, 0), *bad = add(&t, 0, 1);
    CHECK_UINT_EQ(vow_scope_size(t.s[0]), 2);
    vow_error *e = vow_error_new(loop, VOW_EIO, "no");
    vow_resolve(t.d[0], vow_int(4));
    vow_reject(t.d[1], e);
    world_run(&t.w);
    check_fulfilled(ok, 4);
    CHECK_PTR_EQ(vow_error_of(bad), e);
    CHECK_UINT_EQ(vow_scope_size(t.s[0]), 0);
    CHECK(!vow_scope_canceled(t.s[0]));
    CHECK_PTR_EQ(vow_scope_cause(t.s[0]), NULL);
    tree_close(&t);
}

TEST(scope, cancel_rejects_members_at_once_with_the_cause_behind)
{
    struct tree t;
    tree_open(&t);
    scope(&t, 0, NULL);
    vow_future *m = add(&t, 0, 0);
    CHECK(vow_scope_cancel(t.s[0], t.why));
    check_canceled(m, t.why);
    check_canceled(t.f[0], t.why);
    CHECK(vow_scope_canceled(t.s[0]));
    CHECK_PTR_EQ(vow_scope_cause(t.s[0]), t.why);
    CHECK(!vow_resolve(t.d[0], vow_int(1)));
    world_run(&t.w);
    CHECK_UINT_EQ(vow_scope_size(t.s[0]), 0);
    tree_close(&t);
}

TEST(scope, cancel_leaves_members_that_are_settled)
{
    struct tree t;
    tree_open(&t);
    scope(&t, 0, NULL);
    vow_future *m = add(&t, 0, 0);
    vow_resolve(t.d[0], vow_int(3));
    world_run(&t.w);
    CHECK(vow_scope_cancel(t.s[0], NULL));
    world_run(&t.w);
    check_fulfilled(m, 3);
    check_fulfilled(t.f[0], 3);
    tree_close(&t);
}

TEST(scope, the_first_cause_is_kept)
{
    struct tree t;
    vow_loop *loop = tree_open(&t);
    scope(&t, 0, NULL);
    vow_error *second = vow_error_new(loop, VOW_EBUSY, "second");
    CHECK(vow_scope_cancel(t.s[0], t.why));
    CHECK(!vow_scope_cancel(t.s[0], second));
    CHECK(!vow_scope_cancel(t.s[0], NULL));
    CHECK_PTR_EQ(vow_scope_cause(t.s[0]), t.why);
    vow_error_unref(second);
    tree_close(&t);
}

TEST(scope, canceled_without_a_reason_has_canceled_as_its_cause)
{
    struct tree t;
    tree_open(&t);
    scope(&t, 0, NULL);
    CHECK(vow_scope_cancel(t.s[0], NULL));
    CHECK_INT_EQ(vow_error_code(vow_scope_cause(t.s[0])), VOW_ECANCELED);
    vow_future *wait = keep(&t, vow_scope_wait(t.s[0]));
    world_run(&t.w);
    check_rejected(wait, VOW_ECANCELED);
    tree_close(&t);
}

/* https://github.com/sindresorhus/p-queue/issues/241 */
TEST(scope, what_is_added_to_a_canceled_scope_is_canceled_at_once)
{
    struct tree t;
    tree_open(&t);
    scope(&t, 0, NULL);
    vow_scope_cancel(t.s[0], t.why);
    vow_future *m = add(&t, 0, 0);
    world_run(&t.w);
    check_canceled(m, t.why);
    check_canceled(t.f[0], t.why);
    CHECK_UINT_EQ(vow_scope_size(t.s[0]), 0);
    tree_close(&t);
}

struct asked {
    int n;
    vow_error *root; /* only to compare */
};

static void note_asked(vow_error *why, void *user)
{
    struct asked *a = user;
    a->n++;
    CHECK_INT_EQ(vow_error_code(why), VOW_ECANCELED);
    a->root = vow_error_root(why);
}

TEST(scope, member_that_runs_is_asked_and_stays_until_it_settles)
{
    struct tree t;
    tree_open(&t);
    scope(&t, 0, NULL);
    struct asked a = {0};
    vow_on_cancel(t.d[0], note_asked, &a);
    vow_future *m = add(&t, 0, 0);
    vow_future *wait = keep(&t, vow_scope_wait(t.s[0]));
    vow_scope_cancel(t.s[0], t.why);
    check_canceled(m, t.why);
    CHECK_INT_EQ(a.n, 0);
    world_run(&t.w);
    CHECK_INT_EQ(a.n, 1);
    CHECK_PTR_EQ(a.root, t.why);
    CHECK_UINT_EQ(vow_scope_size(t.s[0]), 1);
    CHECK_INT_EQ(vow_state_of(wait), VOW_PENDING);
    vow_resolve(t.d[0], vow_int(1));
    world_run(&t.w);
    CHECK_UINT_EQ(vow_scope_size(t.s[0]), 0);
    CHECK_PTR_EQ(vow_error_of(wait), t.why);
    tree_close(&t);
}

TEST(scope, dropping_the_last_reference_cancels_nothing)
{
    struct tree t;
    tree_open(&t);
    scope(&t, 0, NULL);
    vow_future *m = add(&t, 0, 0);
    t.s[0] = vow_scope_unref(t.s[0]);
    world_run(&t.w);
    CHECK_INT_EQ(vow_state_of(m), VOW_PENDING);
    vow_resolve(t.d[0], vow_int(1));
    world_run(&t.w);
    check_fulfilled(m, 1);
    CHECK_UINT_EQ(scopes_alive(&t), 0);
    tree_close(&t);
}

TEST(scope, bad_options_are_refused_and_nothing_is_written)
{
    struct tree t;
    struct world other;
    vow_loop *loop = tree_open(&t);
    scope(&t, 0, NULL);
    world_open(&other);
    vow_scope *s = NULL;
    CHECK_INT_EQ(vow_scope_new(loop, VOW_SCOPE_OPTS(.flags = 1u << 31), &s),
                 VOW_EINVAL);
    CHECK_INT_EQ(
        vow_scope_new(other.loop, VOW_SCOPE_OPTS(.parent = t.s[0]), &s),
        VOW_EINVAL);
    CHECK_PTR_EQ(s, NULL);
    CHECK_PTR_EQ(vow_scope_unref(NULL), NULL);
    world_close(&other);
    tree_close(&t);
}

/* ---- the tree ----------------------------------------------------------- */

TEST(scope, cancel_goes_down_the_tree_and_not_up_or_sideways)
{
    struct tree t;
    tree_open(&t);
    family(&t);
    vow_future *m[SCOPES];
    for (int i = 0; i < SCOPES; i++)
        m[i] = add(&t, i, i);
    CHECK_UINT_EQ(vow_scope_size(t.s[0]), 4);
    CHECK_UINT_EQ(vow_scope_size(t.s[1]), 2);
    CHECK(vow_scope_cancel(t.s[1], t.why));
    check_canceled(m[1], t.why);
    check_canceled(m[2], t.why);
    CHECK_PTR_EQ(vow_scope_cause(t.s[2]), t.why);
    CHECK_INT_EQ(vow_state_of(m[0]), VOW_PENDING);
    CHECK_INT_EQ(vow_state_of(m[3]), VOW_PENDING);
    CHECK(!vow_scope_canceled(t.s[0]));
    CHECK(!vow_scope_canceled(t.s[3]));
    world_run(&t.w);
    CHECK_UINT_EQ(vow_scope_size(t.s[0]), 2);
    tree_close(&t);
}

TEST(scope, a_child_canceled_first_keeps_its_own_cause)
{
    struct tree t;
    vow_loop *loop = tree_open(&t);
    family(&t);
    vow_error *theirs = vow_error_new(loop, VOW_EBUSY, "parent");
    vow_scope_cancel(t.s[1], t.why);
    CHECK(vow_scope_cancel(t.s[0], theirs));
    CHECK_PTR_EQ(vow_scope_cause(t.s[1]), t.why);
    CHECK_PTR_EQ(vow_scope_cause(t.s[3]), theirs);
    vow_error_unref(theirs);
    tree_close(&t);
}

TEST(scope, in_a_canceled_parent_is_born_canceled)
{
    struct tree t;
    tree_open(&t);
    scope(&t, 0, NULL);
    vow_scope_cancel(t.s[0], t.why);
    scope(&t, 1, VOW_SCOPE_OPTS(.parent = t.s[0], .deadline_ms = 1000));
    CHECK(vow_scope_canceled(t.s[1]));
    CHECK_PTR_EQ(vow_error_root(vow_scope_cause(t.s[1])), t.why);
    CHECK_UINT_EQ(vow_scope_remaining_ms(t.s[1]), 0);
    tree_close(&t);
}

TEST(scope, a_parent_lives_while_it_has_children)
{
    struct tree t;
    tree_open(&t);
    scope(&t, 0, VOW_SCOPE_OPTS(.deadline_ms = 10));
    scope(&t, 1, VOW_SCOPE_OPTS(.parent = t.s[0]));
    t.s[0] = vow_scope_unref(t.s[0]);
    CHECK_UINT_EQ(scopes_alive(&t), 2);
    vow_future *m = add(&t, 1, 0);
    world_advance_ms(&t.w, 10);
    check_rejected(m, VOW_ECANCELED);
    t.s[1] = vow_scope_unref(t.s[1]);
    world_run(&t.w);
    CHECK_UINT_EQ(scopes_alive(&t), 0);
    tree_close(&t);
}

/* ---- deadlines ---------------------------------------------------------- */

TEST(scope, deadline_cancels_with_timed_out_as_the_cause)
{
    struct tree t;
    tree_open(&t);
    scope(&t, 0, VOW_SCOPE_OPTS(.deadline_ms = 50));
    vow_future *m = add(&t, 0, 0);
    vow_future *wait = keep(&t, vow_scope_wait(t.s[0]));
    world_advance_ms(&t.w, 49);
    CHECK_INT_EQ(vow_state_of(m), VOW_PENDING);
    CHECK_UINT_EQ(vow_scope_remaining_ms(t.s[0]), 1);
    world_advance_ms(&t.w, 1);
    check_rejected(m, VOW_ECANCELED);
    CHECK_INT_EQ(vow_error_code(vow_error_root(vow_error_of(m))),
                 VOW_ETIMEDOUT);
    CHECK_INT_EQ(vow_error_code(vow_scope_cause(t.s[0])), VOW_ETIMEDOUT);
    CHECK_UINT_EQ(vow_scope_remaining_ms(t.s[0]), 0);
    check_rejected(wait, VOW_ETIMEDOUT);
    tree_close(&t);
}

TEST(scope, remaining_is_to_the_nearest_deadline_up_the_tree)
{
    struct tree t;
    tree_open(&t);
    scope(&t, 0, NULL);
    CHECK_UINT_EQ(vow_scope_remaining_ms(t.s[0]), UINT64_MAX);
    scope(&t, 1, VOW_SCOPE_OPTS(.parent = t.s[0], .deadline_ms = 100));
    scope(&t, 2, VOW_SCOPE_OPTS(.parent = t.s[1], .deadline_ms = 500));
    scope(&t, 3, VOW_SCOPE_OPTS(.parent = t.s[1], .deadline_ms = 30));
    CHECK_UINT_EQ(vow_scope_remaining_ms(t.s[1]), 100);
    CHECK_UINT_EQ(vow_scope_remaining_ms(t.s[2]), 100);
    CHECK_UINT_EQ(vow_scope_remaining_ms(t.s[3]), 30);
    world_advance_ms(&t.w, 40);
    CHECK_UINT_EQ(vow_scope_remaining_ms(t.s[2]), 60);
    CHECK_UINT_EQ(vow_scope_remaining_ms(t.s[3]), 0);
    CHECK(!vow_scope_canceled(t.s[1]));
    world_advance_ms(&t.w, 60);
    CHECK(vow_scope_canceled(t.s[2]));
    CHECK(!vow_scope_canceled(t.s[0]));
    tree_close(&t);
}

TEST(scope, a_deadline_does_not_outlive_its_scope)
{
    struct tree t;
    tree_open(&t);
    scope(&t, 0, VOW_SCOPE_OPTS(.deadline_ms = 5000));
    t.s[0] = vow_scope_unref(t.s[0]);
    scope(&t, 1, VOW_SCOPE_OPTS(.deadline_ms = 5000));
    vow_scope_cancel(t.s[1], NULL);
    world_run(&t.w);
    CHECK_UINT_EQ(vow_loop_now_ns(t.w.loop), 0);
    tree_close(&t);
}

/* ---- waiting ------------------------------------------------------------ */

TEST(scope, wait_of_an_empty_scope_settles_with_nothing)
{
    struct tree t;
    tree_open(&t);
    scope(&t, 0, NULL);
    vow_future *wait = keep(&t, vow_scope_wait(t.s[0]));
    world_run(&t.w);
    CHECK_INT_EQ(vow_state_of(wait), VOW_FULFILLED);
    CHECK_INT_EQ(vow_kind_of(vow_get(wait)), VOW_NOTHING);
    tree_close(&t);
}

TEST(scope, wait_lasts_until_no_member_is_left_here_or_below)
{
    struct tree t;
    tree_open(&t);
    family(&t);
    vow_future *wait = keep(&t, vow_scope_wait(t.s[0]));
    for (int i = 0; i < MANY; i++)
        add(&t, i, i);
    vow_future *twice = keep(&t, vow_scope_wait(t.s[0]));
    for (int i = 0; i < MANY; i++) {
        world_run(&t.w);
        CHECK_INT_EQ(vow_state_of(twice), VOW_PENDING);
        vow_resolve(t.d[i], vow_int(i));
    }
    world_run(&t.w);
    CHECK_INT_EQ(vow_state_of(wait), VOW_FULFILLED);
    CHECK_INT_EQ(vow_state_of(twice), VOW_FULFILLED);
    tree_close(&t);
}

TEST(scope, wait_ignores_a_members_failure_unless_it_fails_fast)
{
    struct tree t;
    tree_open(&t);
    scope(&t, 0, NULL);
    vow_future *bad = add(&t, 0, 0), *good = add(&t, 0, 1);
    vow_future *wait = keep(&t, vow_scope_wait(t.s[0]));
    vow_reject_code(t.d[0], VOW_EIO, NULL);
    world_run(&t.w);
    check_rejected(bad, VOW_EIO);
    CHECK_INT_EQ(vow_state_of(good), VOW_PENDING);
    vow_resolve(t.d[1], vow_int(1));
    world_run(&t.w);
    CHECK_INT_EQ(vow_state_of(wait), VOW_FULFILLED);
    tree_close(&t);
}

/* https://github.com/golang/go/issues/27837: the real error, not "canceled". */
TEST(scope, fail_fast_cancels_the_others_and_wait_has_the_real_error)
{
    struct tree t;
    vow_loop *loop = tree_open(&t);
    scope(&t, 0, VOW_SCOPE_OPTS(.flags = VOW_SCOPE_FAIL_FAST));
    vow_future *m[3];
    for (int i = 0; i < 3; i++)
        m[i] = add(&t, 0, i);
    vow_future *wait = keep(&t, vow_scope_wait(t.s[0]));
    vow_error *e = vow_error_new(loop, VOW_EIO, "the real one");
    vow_reject(t.d[1], e);
    world_run(&t.w);
    CHECK_PTR_EQ(vow_error_of(m[1]), e);
    check_canceled(m[0], e);
    check_canceled(m[2], e);
    CHECK_PTR_EQ(vow_scope_cause(t.s[0]), e);
    CHECK_PTR_EQ(vow_error_of(wait), e);
    tree_close(&t);
}

/* ---- hooks -------------------------------------------------------------- */

/* A hook that may take others back when it runs. */
struct peg {
    vow_hook hook;
    int runs;
    struct peg *removes;
    bool removed;
};

static void peg_run(vow_error *why, void *user)
{
    struct peg *p = user;
    CHECK_INT_EQ(vow_error_code(why), VOW_ECANCELED);
    p->runs++;
    if (p->removes != NULL)
        p->removed = vow_hook_remove(&p->removes->hook);
}

static void peg_in(struct peg *p, vow_scope *s)
{
    CHECK_INT_EQ(vow_hook_add(&p->hook, s, peg_run, p), 0);
}

TEST(scope, hook_runs_once_from_the_queue)
{
    struct tree t;
    tree_open(&t);
    family(&t);
    struct peg here = {0}, below = {0}, beside = {0};
    peg_in(&here, t.s[1]);
    peg_in(&below, t.s[2]);
    peg_in(&beside, t.s[3]);
    vow_scope_cancel(t.s[1], NULL);
    CHECK_INT_EQ(here.runs, 0);
    world_run(&t.w);
    vow_scope_cancel(t.s[1], NULL);
    world_run(&t.w);
    CHECK_INT_EQ(here.runs, 1);
    CHECK_INT_EQ(below.runs, 1);
    CHECK_INT_EQ(beside.runs, 0);
    CHECK(!vow_hook_remove(&here.hook));
    CHECK(vow_hook_remove(&beside.hook));
    tree_close(&t);
}

TEST(scope, hook_on_a_canceled_scope_runs_too)
{
    struct tree t;
    tree_open(&t);
    scope(&t, 0, NULL);
    vow_scope_cancel(t.s[0], NULL);
    struct peg p = {0};
    peg_in(&p, t.s[0]);
    CHECK_INT_EQ(p.runs, 0);
    world_run(&t.w);
    CHECK_INT_EQ(p.runs, 1);
    tree_close(&t);
}

TEST(scope, hook_that_was_removed_never_runs_and_may_come_back)
{
    struct tree t;
    tree_open(&t);
    scope(&t, 0, NULL);
    struct peg early = {0}, late = {0}, again = {0};
    CHECK(!vow_hook_remove(&early.hook));
    peg_in(&early, t.s[0]);
    peg_in(&late, t.s[0]);
    peg_in(&again, t.s[0]);
    CHECK(vow_hook_remove(&early.hook));
    CHECK(!vow_hook_remove(&early.hook));
    CHECK(vow_hook_remove(&again.hook));
    peg_in(&again, t.s[0]);
    vow_scope_cancel(t.s[0], NULL);
    CHECK(vow_hook_remove(&late.hook)); /* queued, not yet run */
    world_run(&t.w);
    CHECK_INT_EQ(early.runs + late.runs, 0);
    CHECK_INT_EQ(again.runs, 1);
    tree_close(&t);
}

/* https://github.com/PackageKit/PackageKit/issues/665: taking a hook back from
 * inside a hook must neither hang nor run what was taken back. */
TEST(scope, hooks_may_be_removed_inside_a_hook)
{
    struct tree t;
    tree_open(&t);
    scope(&t, 0, NULL);
    struct peg p[5] = {{.runs = 0}};
    for (int i = 0; i < 5; i++)
        peg_in(&p[i], t.s[0]);
    p[0].removes = &p[0];
    for (int i = 1; i < 5; i++)
        p[i].removes = &p[i % 4 + 1]; /* a ring of four */
    vow_scope_cancel(t.s[0], NULL);
    world_run(&t.w);
    CHECK_INT_EQ(p[0].runs, 1);
    int runs = 0, removed = 0;
    for (int i = 1; i < 5; i++) {
        runs += p[i].runs;
        removed += p[i].removed;
    }
    CHECK_INT_EQ(runs + removed, 4);
    CHECK(removed > 0);
    tree_close(&t);
}

TEST(scope, hook_keeps_its_scope_alive_and_refuses_misuse)
{
    struct tree t;
    tree_open(&t);
    scope(&t, 0, NULL);
    struct peg p = {0};
    CHECK_INT_EQ(vow_hook_add(&p.hook, t.s[0], NULL, NULL), VOW_EINVAL);
    peg_in(&p, t.s[0]);
    CHECK_INT_EQ(vow_hook_add(&p.hook, t.s[0], peg_run, &p), VOW_EBUSY);
    t.s[0] = vow_scope_unref(t.s[0]);
    CHECK_UINT_EQ(scopes_alive(&t), 1);
    CHECK(vow_hook_remove(&p.hook));
    CHECK_UINT_EQ(scopes_alive(&t), 0);
    tree_close(&t);
}
