/* SPDX-License-Identifier: MIT */
/* cancel_running_scope_test.c - vow_scope_wait() settles when every body that
 * was started in the scope has ended, whatever is chained to it. */
#include "cancel_rig.h"

/* Ways to end a member of a scope. */
enum scope_end {
    SCOPE_CANCEL,
    SCOPE_PARENT,    /* the parent is canceled */
    SCOPE_DEADLINE,  /* of the scope */
    SCOPE_FAIL_FAST, /* another member fails */
    SCOPE_MEMBER,    /* the member's future is canceled */
    SCOPE_SOURCE,    /* what was added is canceled */
    SCOPE_AROUND,    /* a timeout around the member ends */
    SCOPE_INNER,     /* a timeout inside what was added ends */
    SCOPE_ENDS
};

static const char *const scope_end_names[SCOPE_ENDS] = {
    "scope cancel",      "cancel of the parent", "deadline of the scope",
    "fail fast",         "cancel of the member", "cancel of the source",
    "timeout around it", "timeout inside"};

struct scope_case {
    struct cancel_rig r;
    enum scope_end end;
    vow_scope *parent, *s;
    vow_future *source, *member, *other;
    int waited; /* how often a wait settled */
};

static vow_next look_at_end(void *arg)
{
    struct scope_case *c = arg;
    c->waited++;
    if (atomic_load(&c->r.running) != 0)
        cancel_fault(&c->r, "vow_scope_wait() settles while %d run",
                     atomic_load(&c->r.running));
    return vow_ok(vow_nothing());
}

static void await_scope_end(struct scope_case *c, vow_scope *s)
{
    vow_future *f = vow_scope_wait(s);
    vow_future *g = vow_finally(f, look_at_end, c);
    vow_future_unref(f);
    CHECK_INT_EQ(vow_done(g, NULL, chain_ignore, NULL), 0);
}

static void end_scope_member(struct scope_case *c)
{
    vow_future *f;
    switch (c->end) {
    case SCOPE_CANCEL:
        CHECK(vow_scope_cancel(c->s, NULL));
        break;
    case SCOPE_PARENT:
        CHECK(vow_scope_cancel(c->parent, NULL));
        break;
    case SCOPE_FAIL_FAST:
        f = vow_refused(c->r.w.loop, VOW_EIO, NULL);
        c->other = vow_scope_add(c->s, f);
        vow_future_unref(f);
        break;
    case SCOPE_MEMBER:
        (void)vow_cancel(c->member, NULL);
        break;
    case SCOPE_SOURCE:
        (void)vow_cancel(c->source, NULL);
        break;
    case SCOPE_AROUND:
        f = vow_timeout(c->member, OUTSIDE_MS);
        vow_future_unref(c->member);
        c->member = f;
        break;
    default:
        break;
    }
    world_advance_ms(&c->r.w, OUTSIDE_MS);
}

static int try_scope_case(enum body_kind kind, enum body_wrap wrap,
                          enum scope_end end, bool keeps)
{
    struct scope_case c = {.end = end};
    struct cancel_rig *r = &c.r;
    cancel_open(r, 1);
    CHECK_INT_EQ(vow_scope_new(r->w.loop, NULL, &c.parent), 0);
    CHECK_INT_EQ(
        vow_scope_new(
            r->w.loop,
            VOW_SCOPE_OPTS(.parent = c.parent,
                           .flags =
                               end == SCOPE_FAIL_FAST ? VOW_SCOPE_FAIL_FAST : 0,
                           .deadline_ms =
                               end == SCOPE_DEADLINE ? OUTSIDE_MS : 0),
            &c.s),
        0);
    struct body *a = cancel_body(r, kind, wrap);
    a->keeps = keeps;
    a->inner_ms = end == SCOPE_INNER ? OUTSIDE_MS : 0;
    (void)snprintf(r->name, sizeof(r->name), "scope: %s behind %s%s, %s",
                   body_names[kind], wrap_names[wrap], keeps ? " (kept)" : "",
                   scope_end_names[end]);
    c.source = body_begin(a);
    c.member = vow_scope_add(c.s, c.source);
    if (end != SCOPE_SOURCE)
        c.source = vow_future_unref(c.source);
    cancel_turns(r);
    CHECK_INT_EQ(a->calls, 1);
    await_scope_end(&c, c.s);
    await_scope_end(&c, c.parent);
    end_scope_member(&c);
    cancel_pass(r);
    await_scope_end(&c, c.s); /* also for those who ask late */
    await_scope_end(&c, c.parent);
    cancel_pass(r);
    CHECK_INT_EQ(atomic_load(&a->running), 1);
    CANCEL_EXPECT(r, c.waited == 0);
    CANCEL_EXPECT(r, vow_scope_size(c.s) == 1);
    CANCEL_EXPECT(r, vow_scope_size(c.parent) == 1);

    body_release(a);
    world_run(&r->w);
    CANCEL_EXPECT(r, c.waited == 4);
    CANCEL_EXPECT(r, vow_scope_size(c.s) == 0);
    cancel_settled(r, c.member, "the member");
    if (c.source != NULL)
        cancel_settled(r, c.source, "the source");
    if (c.other != NULL)
        cancel_settled(r, c.other, "the other member");
    vow_scope_unref(c.s);
    vow_scope_unref(c.parent);
    return cancel_close(r);
}

static void try_scope(enum body_kind kind, bool keeps)
{
    int faults = 0;
    for (int end = 0; end < SCOPE_ENDS; end++) {
        for (int wrap = 0; wrap < WRAP_KINDS; wrap++)
            faults += try_scope_case(kind, (enum body_wrap)wrap,
                                     (enum scope_end)end, keeps);
    }
    CHECK_INT_EQ(faults, 0);
}

TEST(cancel_running_scope, a_fiber_is_waited_for)
{
    try_scope(BODY_FIBER, false);
}

TEST(cancel_running_scope, a_job_on_a_thread_is_waited_for)
{
    try_scope(BODY_WORK, false);
}

TEST(cancel_running_scope, a_promise_with_a_hook_is_waited_for)
{
    try_scope(BODY_PROMISE, false);
}

TEST(cancel_running_scope, work_that_another_holds_too_is_waited_for)
{
    try_scope(BODY_FIBER, true);
    try_scope(BODY_PROMISE, true);
}

/* ---- what the scope was waited for may be freed -------------------------- */

struct lent_job {
    vow_loop *loop;
    char *text; /* freed when the scope has been waited for */
};

static vow_next read_lent_text(void *arg)
{
    struct lent_job *j = arg;
    (void)vow_sleep(j->loop, 100);
    (void)vow_sleep(j->loop, 100);
    CHECK(j->text != NULL);
    CHECK_STR_EQ(j->text, "lent");
    return vow_ok(vow_nothing());
}

static vow_next free_lent_text(vow_error *e, void *arg)
{
    struct lent_job *j = arg;
    (void)e;
    j->text = NULL;
    return vow_ok(vow_nothing());
}

TEST(cancel_running_scope, what_a_fiber_was_lent_stays_until_the_wait_settles)
{
    struct world w;
    char text[] = "lent";
    struct lent_job j = {.text = text};
    vow_scope *s;
    world_open(&w);
    j.loop = w.loop;
    CHECK_INT_EQ(vow_scope_new(w.loop, NULL, &s), 0);
    vow_future *f = vow_then_drop(vow_async(w.loop, read_lent_text, &j),
                                  chain_ok, NULL, NULL);
    vow_future *m = vow_scope_add(s, f);
    vow_future_unref(f);
    CHECK_INT_EQ(vow_done(vow_scope_wait(s), NULL, free_lent_text, &j), 0);
    world_advance_ms(&w, 10);
    CHECK(vow_scope_cancel(s, NULL));
    world_run(&w);
    CHECK(j.text == NULL);
    CHECK_INT_EQ(vow_error_code(vow_error_of(m)), VOW_ECANCELED);
    vow_future_unref(m);
    vow_scope_unref(s);
    world_close(&w);
}

/* Many members behind one scope, ended one by one in any order. */
TEST(cancel_running_scope, the_last_of_many_members_lets_the_wait_settle)
{
    struct scope_case c = {.end = SCOPE_CANCEL};
    struct cancel_rig *r = &c.r;
    uint64_t seed = test_seed();
    vow_future *member[BODIES_MAX];
    cancel_open(r, BODIES_MAX);
    CHECK_INT_EQ(vow_scope_new(r->w.loop, NULL, &c.parent), 0);
    for (int i = 0; i < BODIES_MAX; i++) {
        vow_scope *s;
        CHECK_INT_EQ(
            vow_scope_new(r->w.loop, VOW_SCOPE_OPTS(.parent = c.parent), &s),
            0);
        struct body *b =
            cancel_body(r, (enum body_kind)(test_random(&seed) % BODY_KINDS),
                        (enum body_wrap)(test_random(&seed) % WRAP_KINDS));
        vow_future *f = body_begin(b);
        member[i] = vow_scope_add(s, f);
        vow_future_unref(f);
        vow_scope_unref(s);
    }
    cancel_turns(r);
    await_scope_end(&c, c.parent);
    CHECK(vow_scope_cancel(c.parent, NULL));
    for (int i = 0; i < BODIES_MAX; i++) {
        cancel_pass(r);
        CHECK_INT_EQ(c.waited, 0);
        CHECK(vow_scope_size(c.parent) > 0);
        size_t at = test_random(&seed) % BODIES_MAX;
        while (r->bodies[at].released)
            at = (at + 1) % BODIES_MAX;
        body_release(&r->bodies[at]);
    }
    world_run(&r->w);
    CHECK_INT_EQ(c.waited, 1);
    for (int i = 0; i < BODIES_MAX; i++)
        cancel_settled(r, member[i], "a member");
    vow_scope_unref(c.parent);
    CHECK_INT_EQ(cancel_close(r), 0);
}
