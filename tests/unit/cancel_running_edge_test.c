/* SPDX-License-Identifier: MIT */
/* cancel_running_edge_test.c - what waits lets go at once, steps run as often
 * as promised, long chains, closing loops, and lack of memory. */
#include "cancel_rig.h"
#include "fault.h"

#include "vow/map.h"

/* ---- what only waits holds nothing --------------------------------------- */

struct waiting {
    vow_loop *loop;
    vow_future *(*make)(struct waiting *x);
    enum body_wrap wrap;
    vow_deferred *end;
    int starts;
};

static vow_future *wait_for_delay(struct waiting *x)
{
    return vow_delay(x->loop, FAR_MS);
}

static vow_future *wait_for_promise(struct waiting *x)
{
    return vow_promise(x->loop, &x->end);
}

static void leave_list(vow_error *why, void *arg)
{
    struct waiting *x = arg;
    (void)vow_reject(x->end, vow_error_ref(why));
}

static vow_future *wait_in_list(struct waiting *x)
{
    vow_future *f = vow_promise(x->loop, &x->end);
    vow_on_cancel_now(x->end, leave_list, x);
    return f;
}

static vow_future *start_waiting(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct waiting *x = arg;
    (void)attempt;
    x->starts++;
    return chain_link(loop, x->wrap, x->make(x));
}

/* The next job begins although no time passes. */
TEST(cancel_running_edge, what_only_waits_gives_its_place_back_at_once)
{
    vow_future *(*const makes[])(struct waiting *) = {
        wait_for_delay, wait_for_promise, wait_in_list};
    int faults = 0;
    for (int i = 0; i < 3 * WRAP_LINKS; i++) {
        enum body_wrap wrap = (enum body_wrap)(i % WRAP_LINKS);
        struct cancel_rig r;
        vow_gate *g;
        cancel_open(&r, 1);
        (void)snprintf(r.name, sizeof(r.name), "wait %d behind %s",
                       i / WRAP_LINKS, wrap_names[wrap]);
        CHECK_INT_EQ(vow_gate_new(r.w.loop, VOW_GATE(.concurrent = 1), &g), 0);
        struct waiting x = {
            .loop = r.w.loop, .make = makes[i / WRAP_LINKS], .wrap = wrap};
        struct body *b = cancel_short_body(&r, BODY_FIBER, WRAP_BARE);
        vow_future *fa = vow_gate_run(g, start_waiting, &x, NULL);
        vow_future *fb = vow_gate_run(g, body_start, b, NULL);
        cancel_turns(&r);
        CHECK_INT_EQ(x.starts, 1);
        (void)vow_cancel(fa, NULL);
        cancel_turns(&r);
        CANCEL_EXPECT(&r, b->calls == 1);
        if (x.end != NULL)
            (void)vow_resolve_drop(x.end, vow_nothing());
        world_run(&r.w);
        CANCEL_EXPECT(&r, b->calls == 1);
        cancel_settled(&r, fa, "the job that waits");
        cancel_settled(&r, fb, "the next job");
        vow_gate_unref(g);
        faults += cancel_close(&r);
    }
    CHECK_INT_EQ(faults, 0);
}

static vow_next work_never(vow_job *job, void *arg)
{
    (void)job;
    ++*(int *)arg;
    return vow_ok(vow_nothing());
}

static vow_future *start_never(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    return vow_then_drop(vow_work(loop, work_never, arg), chain_ok, NULL, NULL);
}

/* Canceled while it waits for a thread, a job never runs. */
TEST(cancel_running_edge, a_job_without_a_thread_gives_its_place_back_at_once)
{
    struct cancel_rig r = {.name = ""};
    vow_gate *g;
    int ran = 0;
    world_open_with(&r.w, VOW_LOOP_OPTS(.work_threads = 1));
    cancel_init(&r, 2);
    CHECK_INT_EQ(vow_gate_new(r.w.loop, VOW_GATE(.concurrent = 1), &g), 0);
    struct body *blocks = cancel_body(&r, BODY_WORK, WRAP_BARE);
    struct body *b = cancel_short_body(&r, BODY_FIBER, WRAP_BARE);
    vow_future *f = body_begin(blocks);
    vow_future *fa = vow_gate_run(g, start_never, &ran, NULL);
    vow_future *fb = vow_gate_run(g, body_start, b, NULL);
    world_turn(&r.w);
    CHECK_INT_EQ(b->calls, 0);
    (void)vow_cancel(fa, NULL);
    cancel_turns(&r);
    CHECK(ran > 0 || b->calls == 1); /* unless the pool has added a thread */
    body_release(blocks);
    world_run(&r.w);
    CHECK_INT_EQ(b->calls, 1);
    cancel_settled(&r, f, "the job on the thread");
    cancel_settled(&r, fa, "the job without a thread");
    cancel_settled(&r, fb, "the next job");
    vow_gate_unref(g);
    CHECK_INT_EQ(cancel_close(&r), 0);
}

/* ---- the steps of a canceled chain --------------------------------------- */

struct steps_run {
    struct cancel_rig *r;
    int ok, fail, finally, drops;
    bool early; /* the finally ran before the body had ended */
};

static vow_next count_step_ok(vow_value v, void *arg)
{
    (void)v;
    ((struct steps_run *)arg)->ok++;
    return vow_pass();
}

static vow_next count_step_fail(vow_error *e, void *arg)
{
    (void)e;
    ((struct steps_run *)arg)->fail++;
    return vow_pass();
}

static vow_next count_finally(void *arg)
{
    struct steps_run *n = arg;
    n->finally++;
    if (atomic_load(&n->r->running) > 0)
        n->early = true;
    return vow_ok(vow_nothing());
}

static void count_drop_of_step(void *arg)
{
    ((struct steps_run *)arg)->drops++;
}

/* A canceled step never runs and drops its argument once; a finally runs once,
 * when its source has ended. */
TEST(cancel_running_edge, steps_of_a_canceled_chain_run_as_promised)
{
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        for (int last = 0; last < 2; last++) {
            struct cancel_rig r;
            struct steps_run n = {.r = &r};
            const vow_step step = {count_step_ok, count_step_fail, &n,
                                   count_drop_of_step};
            cancel_open(&r, 1);
            struct body *a = cancel_body(&r, (enum body_kind)kind, WRAP_BARE);
            vow_future *raw = body_begin(a), *mid, *f;
            if (last == 0) {
                mid = vow_chain(raw, &step, 1);
                f = vow_finally(mid, count_finally, &n);
            } else {
                mid = vow_finally(raw, count_finally, &n);
                f = vow_chain(mid, &step, 1);
            }
            vow_future_unref(mid);
            vow_future_unref(raw);
            world_turn(&r.w);
            CHECK(vow_cancel(f, NULL));
            CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_ECANCELED);
            cancel_pass(&r);
            if (last == 1) /* its source is the body itself */
                CHECK_INT_EQ(n.finally, 0);
            body_release(a);
            world_run(&r.w);
            CHECK_INT_EQ(n.ok + n.fail, 0);
            CHECK_INT_EQ(n.drops, 1);
            CHECK_INT_EQ(n.finally, 1);
            CHECK(last == 0 || !n.early);
            CHECK(atomic_load(&a->asked) > 0);
            vow_future_unref(f);
            CHECK_INT_EQ(cancel_close(&r), 0);
        }
    }
}

/* ---- long and wide ------------------------------------------------------- */

enum { LONG = 100 * 1000, WIDE = 1000 };

static vow_future *start_long_chain(vow_loop *loop, uint32_t attempt, void *arg)
{
    vow_future *f = body_open(arg);
    (void)loop;
    (void)attempt;
    for (int i = 0; i < LONG; i++)
        f = vow_then_drop(f, chain_ok, NULL, NULL);
    return f;
}

TEST(cancel_running_edge, a_long_chain_is_followed_to_its_source)
{
    struct cancel_rig r;
    vow_gate *g;
    cancel_open(&r, 1);
    CHECK_INT_EQ(vow_gate_new(r.w.loop, VOW_GATE(.concurrent = 1), &g), 0);
    struct body *a = cancel_body(&r, BODY_FIBER, WRAP_BARE);
    struct body *b = cancel_short_body(&r, BODY_FIBER, WRAP_BARE);
    vow_future *fa = vow_gate_run(g, start_long_chain, a, NULL);
    vow_future *fb = vow_gate_run(g, body_start, b, NULL);
    world_turn(&r.w);
    CHECK_INT_EQ(a->calls, 1);
    (void)vow_cancel(fa, NULL);
    cancel_pass(&r);
    CHECK_INT_EQ(b->calls, 0);
    body_release(a);
    world_run(&r.w);
    CHECK_INT_EQ(b->calls, 1);
    CHECK(atomic_load(&a->asked) > 0);
    cancel_settled(&r, fa, "the first job");
    cancel_settled(&r, fb, "the second job");
    vow_gate_unref(g);
    CHECK_INT_EQ(cancel_close(&r), 0);
}

struct wide {
    vow_deferred *end[WIDE];
    int asked;
    bool nested; /* each behind a link of its own */
};

static void count_asked(vow_error *why, void *arg)
{
    (void)why;
    ((struct wide *)arg)->asked++;
}

static vow_future *start_wide(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct wide *x = arg;
    static vow_future *f[WIDE];
    (void)attempt;
    for (int i = 0; i < WIDE; i++) {
        f[i] = vow_promise(loop, &x->end[i]);
        vow_on_cancel(x->end[i], count_asked, x);
        if (x->nested)
            f[i] = vow_then_drop(f[i], chain_ok, NULL, NULL);
    }
    vow_future *all = vow_all(loop, f, WIDE);
    for (int i = 0; i < WIDE; i++)
        vow_future_unref(f[i]);
    return all;
}

/* One job of a thousand bodies holds its place until the last has ended. */
TEST(cancel_running_edge, a_combination_holds_its_place_to_its_last_end)
{
    for (int nested = 0; nested < 2; nested++) {
        static struct wide x;
        struct cancel_rig r;
        vow_gate *g;
        x = (struct wide){.nested = nested != 0};
        cancel_open(&r, 1);
        CHECK_INT_EQ(vow_gate_new(r.w.loop, VOW_GATE(.concurrent = 1), &g), 0);
        struct body *b = cancel_short_body(&r, BODY_FIBER, WRAP_BARE);
        vow_future *fa = vow_gate_run(g, start_wide, &x, NULL);
        vow_future *fb = vow_gate_run(g, body_start, b, NULL);
        world_turn(&r.w);
        (void)vow_cancel(fa, NULL);
        cancel_pass(&r);
        CHECK_INT_EQ(x.asked, WIDE);
        for (int i = 0; i < WIDE; i++) {
            int at = (int)((long)i * 7919 % WIDE);
            CHECK_INT_EQ(b->calls, 0);
            if (i % 2 == 0)
                (void)vow_resolve_drop(x.end[at], vow_nothing());
            else
                (void)vow_reject_drop(
                    x.end[at], vow_error_new(r.w.loop, VOW_ECANCELED, NULL));
            world_turn(&r.w);
        }
        world_run(&r.w);
        CHECK_INT_EQ(b->calls, 1);
        cancel_settled(&r, fa, "the first job");
        cancel_settled(&r, fb, "the second job");
        vow_gate_unref(g);
        CHECK_INT_EQ(cancel_close(&r), 0);
    }
}

/* ---- an outcome that is known early -------------------------------------- */

enum won { WON_RACE, WON_ANY, WON_ALL, WON_HEDGE, WONS };

static const char *const won_names[WONS] = {"race", "any", "all", "hedge"};

struct won_case {
    enum won won;
    struct body *body;
};

static vow_next fail_in_step(vow_value v, void *user)
{
    (void)v;
    (void)user;
    return vow_fail_code(VOW_EIO, NULL);
}

static vow_future *start_won_attempt(vow_loop *loop, uint32_t attempt,
                                     void *body)
{
    return attempt == 1 ? body_begin(body) : vow_delay(loop, 0);
}

/* The outcome is known after 10 ms, while the body runs. */
static vow_future *start_won(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct won_case *c = arg;
    vow_future *some[2], *out;
    (void)attempt;
    if (c->won == WON_HEDGE)
        return vow_hedge(loop, start_won_attempt, c->body,
                         VOW_HEDGE(.after_ms = 10));
    some[0] = body_begin(c->body);
    some[1] = vow_delay(loop, 10);
    if (c->won == WON_ALL)
        some[1] = vow_then_drop(some[1], fail_in_step, NULL, NULL);
    out = c->won == WON_RACE  ? vow_race(loop, some, 2)
          : c->won == WON_ANY ? vow_any(loop, some, 2)
                              : vow_all(loop, some, 2);
    vow_future_unref(some[0]);
    vow_future_unref(some[1]);
    return out;
}

/* Those who lost a race run on, and hold the place of the job. */
TEST(cancel_running_edge, losers_that_run_hold_the_place_of_their_job)
{
    int faults = 0;
    for (int i = 0; i < WONS * BODY_KINDS * WRAP_KINDS; i++) {
        struct cancel_rig r;
        vow_gate *g;
        cancel_open(&r, 1);
        CHECK_INT_EQ(vow_gate_new(r.w.loop, VOW_GATE(.concurrent = 1), &g), 0);
        struct body *a =
            cancel_body(&r, (enum body_kind)(i % BODY_KINDS),
                        (enum body_wrap)(i / BODY_KINDS % WRAP_KINDS));
        struct body *b = cancel_short_body(&r, BODY_FIBER, WRAP_BARE);
        struct won_case c = {(enum won)(i / BODY_KINDS / WRAP_KINDS), a};
        (void)snprintf(r.name, sizeof(r.name), "%s is known: %s behind %s",
                       won_names[c.won], body_names[a->kind],
                       wrap_names[a->wrap]);
        vow_future *fa = vow_gate_run(g, start_won, &c, NULL);
        vow_future *fb = vow_gate_run(g, body_start, b, NULL);
        world_advance_ms(&r.w, 20);
        cancel_pass(&r);
        CHECK_INT_EQ(atomic_load(&a->running), 1);
        CANCEL_EXPECT(&r, b->calls == 0);
        body_release(a);
        world_run(&r.w);
        CANCEL_EXPECT(&r, b->calls == 1);
        cancel_check_code(&r, fa, c.won == WON_ALL ? VOW_EIO : 0);
        cancel_settled(&r, fa, "the first job");
        cancel_settled(&r, fb, "the second job");
        vow_gate_unref(g);
        faults += cancel_close(&r);
    }
    CHECK_INT_EQ(faults, 0);
}

/* ---- work that begins while its job is being canceled -------------------- */

enum late { LATE_FINALLY, LATE_IN_STEP, LATE_IN_START, LATE_KINDS };

static const char *const late_names[LATE_KINDS] = {
    "work of a finally", "canceled inside a step", "canceled inside start"};

struct late_case {
    enum late late;
    struct body *first, *second;
    vow_future *job;
};

static vow_next follow_second(void *arg)
{
    struct late_case *c = arg;
    return vow_follow(body_begin(c->second));
}

static vow_next cancel_and_follow(vow_value v, void *arg)
{
    struct late_case *c = arg;
    (void)v;
    (void)vow_cancel(c->job, NULL);
    return vow_follow(body_begin(c->second));
}

static vow_future *start_late(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct late_case *c = arg;
    vow_future *f, *out;
    (void)attempt;
    switch (c->late) {
    case LATE_FINALLY:
        f = body_begin(c->first);
        out = vow_finally(f, follow_second, c);
        vow_future_unref(f);
        return out;
    case LATE_IN_STEP:
        return vow_then_drop(vow_resolved(loop, vow_nothing()),
                             cancel_and_follow, NULL, c);
    default:
        (void)vow_cancel(c->job, NULL);
        return vow_then_drop(body_begin(c->second), chain_ok, NULL, NULL);
    }
}

TEST(cancel_running_edge, work_that_begins_late_holds_the_place_of_its_job)
{
    int faults = 0;
    for (int i = 0; i < LATE_KINDS * BODY_KINDS * WRAP_KINDS; i++) {
        struct cancel_rig r;
        vow_gate *g;
        cancel_open(&r, 1);
        CHECK_INT_EQ(vow_gate_new(r.w.loop, VOW_GATE(.concurrent = 1), &g), 0);
        struct body *a = cancel_body(&r, BODY_FIBER, WRAP_THEN);
        struct body *b =
            cancel_body(&r, (enum body_kind)(i % BODY_KINDS),
                        (enum body_wrap)(i / BODY_KINDS % WRAP_KINDS));
        struct body *d = cancel_short_body(&r, BODY_FIBER, WRAP_BARE);
        struct late_case c = {.late = (enum late)(i / BODY_KINDS / WRAP_KINDS),
                              .first = a,
                              .second = b};
        if (b->wrap == WRAP_FOLLOW || b->wrap == WRAP_FINALLY_FOLLOW ||
            b->wrap == WRAP_ANY ||
            b->wrap == WRAP_HEDGE) /* leave a future, or a failure, behind */
            b->wrap = WRAP_RESOLVE_WITH;
        (void)snprintf(r.name, sizeof(r.name), "%s: %s behind %s",
                       late_names[c.late], body_names[b->kind],
                       wrap_names[b->wrap]);
        c.job = vow_gate_run(g, start_late, &c, NULL);
        vow_future *fd = vow_gate_run(g, body_start, d, NULL);
        cancel_turns(&r);
        if (c.late == LATE_FINALLY) {
            (void)vow_cancel(c.job, NULL);
            cancel_turns(&r);
            CANCEL_EXPECT(&r, b->calls == 0 && d->calls == 0);
            body_release(a);
        }
        cancel_pass(&r);
        /* what a canceled chain has not begun yet may stay undone */
        CANCEL_EXPECT(&r, b->calls == d->calls + 1 ||
                              (b->calls == 0 && b->wrap >= WRAP_LINKS));
        body_release(b);
        world_run(&r.w);
        CANCEL_EXPECT(&r, d->calls == 1);
        cancel_settled(&r, c.job, "the first job");
        cancel_settled(&r, fd, "the second job");
        vow_gate_unref(g);
        faults += cancel_close(&r);
    }
    CHECK_INT_EQ(faults, 0);
}

/* ---- handles that are gone ----------------------------------------------- */

/* Nobody holds anything of it any more but the body. */
TEST(cancel_running_edge, a_gate_without_handles_ends_with_its_work)
{
    for (int i = 0; i < BODY_KINDS * WRAP_KINDS; i++) {
        struct cancel_rig r;
        vow_gate *g;
        cancel_open(&r, 1);
        CHECK_INT_EQ(vow_gate_new(r.w.loop, VOW_GATE(.concurrent = 1), &g), 0);
        struct body *a = cancel_body(&r, (enum body_kind)(i % BODY_KINDS),
                                     (enum body_wrap)(i / BODY_KINDS));
        struct body *b = cancel_short_body(&r, BODY_FIBER, WRAP_BARE);
        cancel_name(&r, "gate without handles", a, OUTSIDE_CANCEL);
        vow_future *fa = vow_gate_run(g, body_start, a, NULL);
        vow_future_unref(vow_gate_run(g, body_start, b, NULL));
        cancel_turns(&r);
        (void)vow_cancel(fa, NULL);
        vow_future_unref(fa);
        vow_gate_unref(g);
        cancel_pass(&r);
        CANCEL_EXPECT(&r, b->calls == 0);
        body_release(a);
        world_run(&r.w);
        CHECK_INT_EQ(b->calls, 1);
        CHECK_INT_EQ(cancel_close(&r), 0);
    }
}

/* ---- a loop that closes while canceled work runs ------------------------- */

static void close_with_work(enum body_kind kind, enum body_wrap wrap, int how)
{
    struct cancel_rig r;
    vow_gate *g;
    vow_sem *s;
    vow_scope *scope;
    cancel_open(&r, 9);
    struct body *a = cancel_body(&r, kind, wrap);
    struct body *b = cancel_short_body(&r, BODY_PROMISE, WRAP_BARE);
    (void)snprintf(r.name, sizeof(r.name), "closing: %s behind %s, %d",
                   body_names[kind], wrap_names[wrap], how);
    (void)fprintf(stderr, "%s\n", r.name);
    CHECK_INT_EQ(vow_gate_new(r.w.loop, VOW_GATE(.concurrent = 1), &g), 0);
    CHECK_INT_EQ(vow_sem_new(r.w.loop, NULL, &s), 0);
    CHECK_INT_EQ(vow_scope_new(r.w.loop, NULL, &scope), 0);
    vow_future *f, *m;
    if (how == 0) {
        f = vow_gate_run(g, body_start, a, NULL);
        m = vow_gate_run(g, body_start, b, NULL);
    } else if (how == 1) {
        f = vow_sem_with(s, 1, body_start, a);
        m = vow_sem_with(s, 1, body_start, b);
    } else {
        f = body_begin(a);
        m = vow_scope_add(scope, f);
    }
    cancel_turns(&r);
    CHECK_INT_EQ(a->calls, 1);
    (void)vow_cancel(f, NULL);
    vow_future *wait = how == 0   ? vow_gate_idle(g)
                       : how == 1 ? vow_sem_wait(s)
                                  : vow_scope_wait(scope);
    world_turn(&r.w);
    if (kind == BODY_WORK) /* the close would wait for it */
        body_release(a);
    CHECK_INT_EQ(vow_loop_close(r.w.loop), 0);
    r.w.loop = NULL;
    vow_future *all[3] = {f, m, wait};
    for (int i = 0; i < 3; i++) {
        CHECK(vow_state_of(all[i]) != VOW_PENDING);
        vow_future_unref(all[i]);
    }
    vow_gate_unref(g);
    vow_sem_unref(s);
    vow_scope_unref(scope);
    vow_future_unref(a->door);
    vow_deferred_unref(a->key);
    vow_deferred_unref(a->end);
    vow_deferred_unref(b->end);
    world_close_dirty(&r.w);
}

TEST(cancel_running_edge, a_loop_closes_while_canceled_work_runs)
{
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        for (int wrap = 0; wrap < WRAP_KINDS; wrap++) {
            for (int how = 0; how < 3; how++)
                close_with_work((enum body_kind)kind, (enum body_wrap)wrap,
                                how);
        }
    }
}

/* ---- lack of memory ------------------------------------------------------ */

struct poor {
    struct world *w;
    int wrap;
    vow_deferred *end;
    int running, starts;
    bool unlinked; /* there was no memory for a link of the start function */
};

static void ask_poor(vow_error *why, void *arg)
{
    (void)why;
    (void)arg;
}

static vow_future *start_poor(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct poor *p = arg;
    (void)attempt;
    p->starts++;
    if (p->running > 0 && !p->unlinked)
        FAIL("two run at once behind %s", wrap_names[p->wrap]);
    if (p->starts > 1)
        return vow_resolved(loop, vow_nothing());
    vow_future *f = vow_promise(loop, &p->end);
    if (vow_state_of(f) != VOW_PENDING)
        return f;
    vow_on_cancel(p->end, ask_poor, NULL);
    p->running++;
    uint64_t fails = p->w->alloc.fails;
    f = chain_link(loop, (enum body_wrap)p->wrap, f);
    p->unlinked = p->w->alloc.fails > fails;
    return f;
}

/* Whatever memory is lacking, a job holds its place to its end. */
static void sweep_wrap(struct world *w, int wrap)
{
    struct poor p = {.w = w, .wrap = wrap};
    vow_gate *g;
    int rc = vow_gate_new(w->loop, VOW_GATE(.concurrent = 1), &g);
    if (rc < 0) {
        CHECK(fault_explains(w, rc));
        return;
    }
    vow_future *fa = vow_gate_run(g, start_poor, &p, NULL);
    vow_future *fb = vow_gate_run(g, start_poor, &p, NULL);
    world_turn(w);
    (void)vow_cancel(fa, NULL);
    world_turn(w);
    vow_future *fc = vow_gate_run(g, start_poor, &p, NULL);
    world_turn(w);
    world_turn(w);
    if (p.running > 0) {
        p.running = 0;
        (void)vow_resolve(p.end, vow_nothing());
    }
    vow_deferred_unref(p.end);
    world_run(w);
    vow_future *all[3] = {fa, fb, fc};
    for (int i = 0; i < 3; i++) {
        if (vow_state_of(all[i]) == VOW_PENDING)
            FAIL("job %d behind %s never settles", i, wrap_names[wrap]);
        int code = vow_error_code(vow_error_of(all[i]));
        CHECK(code == 0 || code == VOW_ECANCELED || fault_explains(w, code));
        vow_future_unref(all[i]);
    }
    vow_gate_unref(g);
}

#define SWEEP_WRAP(n, wrap)                                                    \
    FAULT_SWEEP(cancel_running_edge, n##_holds_without_memory, FAULT_ALLOC)    \
    {                                                                          \
        sweep_wrap(w, (wrap));                                                 \
    }

SWEEP_WRAP(bare, WRAP_BARE)
SWEEP_WRAP(then, WRAP_THEN)
SWEEP_WRAP(finally, WRAP_FINALLY)
SWEEP_WRAP(then_then, WRAP_THEN_THEN)
SWEEP_WRAP(progress, WRAP_PROGRESS)
SWEEP_WRAP(timeout, WRAP_TIMEOUT)
SWEEP_WRAP(all, WRAP_ALL)
SWEEP_WRAP(race, WRAP_RACE)
