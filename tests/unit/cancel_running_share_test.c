/* SPDX-License-Identifier: MIT */
/* cancel_running_share_test.c - named work has one runner: the next begins when
 * the work of the one before has ended, whatever is chained to it. */
#include "cancel_rig.h"

#include "vow/share.h"
#include "vow/store_memory.h"

enum { LEASE_TIME_MS = 1000, PROCESSES = 2 };

/* Ways to end the run; before these, those of `outside`. */
enum share_end {
    SHARE_CANCEL_NAME = OUTSIDE_KINDS, /* vow_authority_cancel() */
    SHARE_ENDS
};

struct share_case {
    struct cancel_rig r;
    int end; /* enum outside or enum share_end */
    vow_memory *memory;
    vow_authority *at[PROCESSES];
    vow_lease *lease;  /* of the first run */
    struct body *next; /* for whoever asks later */
};

static void open_share_case(struct share_case *c)
{
    cancel_open(&c->r, 1);
    CHECK_INT_EQ(vow_memory_new(vow_loop_alloc(c->r.w.loop), &c->memory), 0);
    for (int i = 0; i < PROCESSES; i++) {
        vow_store *store;
        CHECK_INT_EQ(vow_store_memory_new(c->r.w.loop, c->memory, &store), 0);
        vow_future *f = vow_authority_open(
            c->r.w.loop, NULL,
            VOW_AUTHORITY(.store = store, .lease_ms = LEASE_TIME_MS,
                          .flags = VOW_AUTHORITY_HERE));
        CHECK_INT_EQ(vow_loop_run_until(c->r.w.loop, f), 0);
        c->at[i] = vow_authority_ref(vow_as_ptr(vow_get(f)));
        vow_future_unref(f);
    }
}

static int close_share_case(struct share_case *c)
{
    c->lease = vow_lease_unref(c->lease);
    for (int i = 0; i < PROCESSES; i++) {
        vow_future *f = vow_authority_close(c->at[i]);
        CHECK_INT_EQ(vow_loop_run_until(c->r.w.loop, f), 0);
        vow_future_unref(f);
        vow_authority_unref(c->at[i]);
    }
    world_turn(&c->r.w);
    vow_memory_unref(c->memory);
    return cancel_close(&c->r);
}

static vow_next chain_nothing(vow_value v, void *user)
{
    (void)v;
    (void)user;
    return vow_ok(vow_nothing());
}

/* The first run does not end; those behind it do. A list or a number cannot be
 * shared. */
static vow_future *run_shared(vow_lease *lease, void *arg)
{
    struct share_case *c = arg;
    struct body *b = &c->r.bodies[0];
    if (b->calls > 0)
        b = c->next;
    else
        c->lease = vow_lease_ref(lease);
    bool lists = b->wrap == WRAP_ALL || b->wrap == WRAP_ALL_SETTLED ||
                 b->wrap == WRAP_MAP;
    vow_future *f = body_begin(b);
    return lists ? vow_then_drop(f, chain_nothing, NULL, NULL) : f;
}

/* Without an end in time this hangs: then the test's time runs out. */
static void run_until_settled(struct share_case *c, vow_future *f)
{
    (void)vow_loop_run_until(c->r.w.loop, f);
}

static vow_future *end_share_run(struct share_case *c, const vow_name *name,
                                 vow_future *f)
{
    if (c->end < OUTSIDE_LINKS)
        return cancel_outside(&c->r, (enum outside)c->end, f);
    if (c->end == SHARE_CANCEL_NAME)
        CHECK_INT_EQ(vow_done(vow_authority_cancel(c->at[0], name), NULL,
                              chain_ignore, NULL),
                     0);
    else
        world_advance_ms(&c->r.w, OUTSIDE_MS);
    return f;
}

/* Asks, ends the run from outside, and asks again 20 ms later, in this process
 * or in another. */
static int try_share_case(enum body_kind kind, enum body_wrap wrap, int end,
                          int again_in)
{
    struct share_case c = {.end = end};
    struct cancel_rig *r = &c.r;
    vow_name name = vow_name_of("shared");
    open_share_case(&c);
    struct body *a = cancel_body(r, kind, wrap);
    c.next = cancel_short_body(r, kind, wrap);
    a->inner_ms = end == OUTSIDE_INNER ? OUTSIDE_MS : 0;
    (void)snprintf(r->name, sizeof(r->name),
                   "share: %s behind %s, %s, again in process %d",
                   body_names[kind], wrap_names[wrap],
                   end < OUTSIDE_KINDS ? outside_names[end]
                                       : "vow_authority_cancel()",
                   again_in);
    vow_future *fa = vow_share(
        c.at[0], &name, run_shared, &c,
        VOW_SHARE(.deadline_ms = end == OUTSIDE_OPTION ? OUTSIDE_MS : 0));
    cancel_turns(r);
    CHECK_INT_EQ(a->calls, 1);
    fa = end_share_run(&c, &name, fa);
    cancel_pass(r);
    vow_future *fb = vow_share(c.at[again_in], &name, run_shared, &c, NULL);
    cancel_pass(r);
    world_advance_ms(&r->w, 3 * (uint64_t)LEASE_TIME_MS);
    CHECK_INT_EQ(atomic_load(&a->running), 1);
    CANCEL_EXPECT(r, c.next->calls == 0);

    body_release(a);
    run_until_settled(&c, fb);
    run_until_settled(&c, fa);
    CANCEL_EXPECT(r, c.next->calls <= 1);
    cancel_settled(r, fa, "the first asker");
    cancel_settled(r, fb, "the second asker");
    return close_share_case(&c);
}

static void try_share(enum body_kind kind)
{
    int faults = 0;
    for (int end = 0; end < SHARE_ENDS; end++) {
        if (end == OUTSIDE_CLOSE)
            continue;
        for (int wrap = 0; wrap < WRAP_KINDS; wrap++) {
            for (int in = 0; in < PROCESSES; in++)
                faults += try_share_case(kind, (enum body_wrap)wrap, end, in);
        }
    }
    CHECK_INT_EQ(faults, 0);
}

TEST(cancel_running_share, the_next_runner_waits_for_a_fiber)
{
    try_share(BODY_FIBER);
}

TEST(cancel_running_share, the_next_runner_waits_for_a_job_on_a_thread)
{
    try_share(BODY_WORK);
}

TEST(cancel_running_share, the_next_runner_waits_for_a_promise_with_a_hook)
{
    try_share(BODY_PROMISE);
}

/* Nobody else waits, so the one who gave its lease away is called again: not
 * before its work has ended. */
TEST(cancel_running_share, one_who_gave_its_lease_away_is_not_called_twice)
{
    int faults = 0;
    for (int wrap = 0; wrap < WRAP_KINDS; wrap++) {
        struct share_case c = {.end = OUTSIDE_CANCEL};
        struct cancel_rig *r = &c.r;
        vow_name name = vow_name_of("shared");
        open_share_case(&c);
        struct body *a = cancel_body(r, BODY_FIBER, (enum body_wrap)wrap);
        c.next = cancel_short_body(r, BODY_FIBER, WRAP_BARE);
        cancel_name(r, "share, lease given away", a, OUTSIDE_CANCEL);
        vow_future *f = vow_share(c.at[0], &name, run_shared, &c, NULL);
        cancel_turns(r);
        CHECK_INT_EQ(a->calls, 1);
        CHECK(vow_lease_abandon(c.lease));
        world_advance_ms(&r->w, 3 * (uint64_t)LEASE_TIME_MS);
        CANCEL_EXPECT(r, c.next->calls == 0);
        body_release(a);
        run_until_settled(&c, f);
        CANCEL_EXPECT(r, c.next->calls == 1);
        cancel_settled(r, f, "the asker");
        faults += close_share_case(&c);
    }
    CHECK_INT_EQ(faults, 0);
}

/* An attempt that timed out still runs: the next try waits for its end. */
TEST(cancel_running_share, the_next_try_waits_for_the_one_that_timed_out)
{
    int faults = 0;
    for (int wrap = 0; wrap < WRAP_KINDS; wrap++) {
        struct share_case c = {.end = OUTSIDE_INNER};
        struct cancel_rig *r = &c.r;
        vow_name name = vow_name_of("shared");
        open_share_case(&c);
        struct body *a = cancel_body(r, BODY_FIBER, (enum body_wrap)wrap);
        c.next = cancel_short_body(r, BODY_FIBER, WRAP_BARE);
        a->inner_ms = OUTSIDE_MS;
        cancel_name(r, "share tries", a, OUTSIDE_INNER);
        vow_future *f =
            vow_share(c.at[0], &name, run_shared, &c, VOW_SHARE(.tries = 2));
        world_advance_ms(&r->w, 3 * (uint64_t)LEASE_TIME_MS);
        CHECK_INT_EQ(a->calls, 1);
        CANCEL_EXPECT(r, c.next->calls == 0);
        body_release(a);
        run_until_settled(&c, f);
        CANCEL_EXPECT(r, c.next->calls == 1);
        CANCEL_EXPECT(r, vow_state_of(f) == VOW_FULFILLED);
        cancel_settled(r, f, "the asker");
        faults += close_share_case(&c);
    }
    CHECK_INT_EQ(faults, 0);
}

/* Several who ask again while the work of one who left still runs. */
TEST(cancel_running_share, all_who_ask_again_get_the_result_of_one_new_run)
{
    struct share_case c = {.end = OUTSIDE_CANCEL};
    struct cancel_rig *r = &c.r;
    vow_name name = vow_name_of("shared");
    vow_future *f[8];
    open_share_case(&c);
    struct body *a = cancel_body(r, BODY_FIBER, WRAP_FINALLY);
    c.next = cancel_short_body(r, BODY_FIBER, WRAP_THEN);
    vow_future *first = vow_share(c.at[0], &name, run_shared, &c, NULL);
    cancel_turns(r);
    CHECK_INT_EQ(a->calls, 1);
    vow_cancel(first, NULL);
    vow_future_unref(first);
    for (int i = 0; i < 8; i++) {
        world_advance_ms(&r->w, 20);
        f[i] = vow_share(c.at[i % PROCESSES], &name, run_shared, &c, NULL);
    }
    CHECK_INT_EQ(c.next->calls, 0);
    vow_cancel(f[2], NULL);
    body_release(a);
    for (int i = 0; i < 8; i++)
        run_until_settled(&c, f[i]);
    CHECK_INT_EQ(c.next->calls, 1);
    for (int i = 0; i < 8; i++) {
        CHECK_INT_EQ(vow_state_of(f[i]), i == 2 ? VOW_REJECTED : VOW_FULFILLED);
        cancel_settled(r, f[i], "one who asked again");
    }
    CHECK_INT_EQ(close_share_case(&c), 0);
}

/* Who leaves leaves alone: the work goes on for the others. */
TEST(cancel_running_share, one_who_leaves_ends_nothing_for_the_others)
{
    for (int wrap = 0; wrap < WRAP_KINDS; wrap++) {
        struct share_case c = {.end = OUTSIDE_CANCEL};
        struct cancel_rig *r = &c.r;
        vow_name name = vow_name_of("shared");
        open_share_case(&c);
        struct body *a = cancel_body(r, BODY_FIBER, (enum body_wrap)wrap);
        c.next = cancel_short_body(r, BODY_FIBER, WRAP_BARE);
        cancel_name(r, "share", a, OUTSIDE_CANCEL);
        vow_future *fa = vow_share(c.at[0], &name, run_shared, &c, NULL);
        vow_future *fb = vow_share(c.at[0], &name, run_shared, &c, NULL);
        vow_future *fc = vow_share(c.at[1], &name, run_shared, &c, NULL);
        cancel_turns(r);
        vow_cancel(fa, NULL);
        cancel_pass(r);
        CHECK_INT_EQ(atomic_load(&a->asked), 0);
        body_release(a);
        run_until_settled(&c, fb);
        run_until_settled(&c, fc);
        CHECK_INT_EQ(vow_state_of(fb), VOW_FULFILLED);
        CHECK_INT_EQ(vow_state_of(fc), VOW_FULFILLED);
        CHECK_INT_EQ(c.next->calls, 0);
        cancel_settled(r, fa, "the one who left");
        cancel_settled(r, fb, "the one who stayed");
        cancel_settled(r, fc, "the one in another process");
        CHECK_INT_EQ(close_share_case(&c), 0);
    }
}
