/* SPDX-License-Identifier: MIT */
/* authority_inside_test.c - calls of the library from inside whatever an
 * authority calls: the work, its cancel, on_event, on_chunk, join, handlers and
 * listeners. Everybody is settled all the same, and nothing is lost.
 */
#include "authority_rig.h"

enum place {
    IN_WORK,
    IN_CANCEL,
    IN_CLAIMED, /* events */
    IN_JOINED,
    IN_SETTLED,
    IN_CHUNK,
    IN_JOIN,
    IN_HANDLER,
    IN_PROGRESS,
    PLACES
};

enum prank {
    CANCELS,      /* its own future */
    CANCELS_ALL,  /* and those of all others in the process */
    CLOSES,       /* its authority */
    DROPS,        /* the last handle of it */
    ASKS,         /* for the same name */
    ASKS_OTHER,   /* for another one */
    STOPS,        /* asks whoever does the work to stop */
    FORGETS,      /* the name */
    CLOSES_OTHER, /* the other process's authority */
    PRANKS
};

enum { ASKERS = 5 };

/* Process 0 is where it happens; askers 0 to 2 are there, 3 and 4 elsewhere. */
struct theatre {
    struct stage s;
    struct labor l, second;
    vow_name name, other;
    enum place place;
    enum prank prank;
    bool done;
    vow_future *f[ASKERS];
    vow_future *more; /* what the prank began */
};

static void play(struct theatre *t)
{
    vow_authority *a = t->s.at[0].a;
    if (t->done)
        return;
    t->done = true;
    if (t->prank == CANCELS || t->prank == CANCELS_ALL)
        for (int i = 0; i < (t->prank == CANCELS ? 1 : 3); i++)
            if (t->f[i] != NULL)
                (void)vow_cancel(t->f[i], NULL);
    if (t->prank == CLOSES)
        t->more = vow_authority_close(a);
    if (t->prank == CLOSES_OTHER)
        t->more = vow_authority_close(t->s.at[1].a);
    if (t->prank == DROPS)
        t->s.at[0].gone = true, vow_authority_unref(a);
    if (t->prank == ASKS)
        t->more = vow_share(a, &t->name, labor_work, &t->second, NULL);
    if (t->prank == ASKS_OTHER)
        t->more = vow_share(a, &t->other, labor_work, &t->second, NULL);
    if (t->prank == STOPS)
        t->more = vow_authority_cancel(a, &t->name);
    if (t->prank == FORGETS)
        t->more = vow_authority_forget(a, &t->name, 0);
}

static void in_work(struct labor *l, struct run *r)
{
    struct theatre *t = l->user;
    (void)r;
    if (t->place == IN_WORK)
        play(t);
}

static void in_cancel(vow_error *why, void *user)
{
    struct run *r = user;
    struct theatre *t = r->labor->user;
    play(t);
    labor_canceled(why, r);
}

static void in_event(const vow_event *e, void *user)
{
    struct theatre *t = user;
    if ((t->place == IN_CLAIMED && e->kind == VOW_EVENT_CLAIMED) ||
        (t->place == IN_JOINED && e->kind == VOW_EVENT_JOINED) ||
        (t->place == IN_SETTLED && e->kind == VOW_EVENT_SETTLED))
        play(t);
}

static void in_chunk(vow_bytes *chunk, void *user)
{
    struct theatre *t = user;
    (void)chunk;
    if (t->place == IN_CHUNK)
        play(t);
}

static bool in_join(const vow_share_info *running, void *user)
{
    struct theatre *t = user;
    (void)running;
    if (t->place == IN_JOIN)
        play(t);
    return true;
}

static vow_next in_handler(vow_value v, void *user)
{
    struct theatre *t = user;
    (void)v;
    if (t->place == IN_HANDLER)
        play(t);
    return vow_pass();
}

static void in_progress(vow_value v, void *user)
{
    struct theatre *t = user;
    (void)v;
    if (t->place == IN_PROGRESS)
        play(t);
}

/* Whether askers of process 0 do the work at first. */
static bool at_home(enum place p)
{
    return p != IN_CHUNK && p != IN_JOIN && p != IN_JOINED;
}

static void ask(struct theatre *t, int i)
{
    const size_t process = i < 3 ? 0 : 1;
    vow_share_opts o =
        *VOW_SHARE(.flags = VOW_SHARE_FOLLOW, .on_chunk = in_chunk, .user = t);
    o.join = i == 0 ? in_join : NULL;
    const struct process *p = &t->s.at[process];
    vow_future *f = p->gone ? vow_refused(t->s.loop, VOW_ECLOSED, NULL)
                            : vow_share(p->a, &t->name, labor_work, &t->l, &o);
    vow_future *listened = vow_on_progress(f, in_progress, t);
    vow_future_unref(f);
    t->f[i] = vow_then_drop(listened, in_handler, NULL, t);
}

static void do_some_work(struct theatre *t)
{
    if (t->l.n == 0)
        return;
    struct run *r = labor_last(&t->l);
    if (t->place == IN_CANCEL)
        vow_on_cancel(r->end, in_cancel, r);
    VOW_AUTO(vow_bytes) chunk = NULL;
    CHECK_INT_EQ(vow_bytes_new(t->s.loop, "x", 1, &chunk), 0);
    VOW_AUTO(vow_future) f = vow_lease_write(r->lease, chunk);
    (void)vow_lease_notify(r->lease, vow_int(1));
    world_advance_ms(&t->s.w, 10);
    (void)vow_error_of(f);
}

static void perform(struct theatre *t)
{
    const bool home = at_home(t->place);
    for (int i = 0; i < ASKERS; i++) {
        ask(t, home ? i : (i + 3) % ASKERS);
        if (i == 0)
            world_turn(&t->s.w);
    }
    world_advance_ms(&t->s.w, 10);
    do_some_work(t);
    if (t->place == IN_CANCEL) {
        VOW_AUTO(vow_future) c = vow_authority_cancel(t->s.at[1].a, &t->name);
        world_advance_ms(&t->s.w, 2 * LEASE);
        (void)vow_error_of(c);
    }
    stage_heal(&t->s, &t->l, t->f, ASKERS);
    if (t->more != NULL)
        stage_heal(&t->s, &t->second, &t->more, 1);
}

TEST(authority_inside, any_call_from_anywhere_leaves_nobody_behind)
{
    for (int i = 0; i < PLACES * PRANKS; i++) {
        static struct theatre t;
        t = (struct theatre){.place = (enum place)(i / PRANKS),
                             .prank = (enum prank)(i % PRANKS),
                             .name = vow_name_of("play"),
                             .other = vow_name_of("another play")};
        stage_open(&t.s, 2);
        t.l = (struct labor){.loop = t.s.loop, .on_start = in_work, .user = &t};
        t.second = (struct labor){.loop = t.s.loop};
        t.s.at[0].on_event = in_event;
        t.s.at[0].user = &t;
        perform(&t);
        CHECK(t.done);
        for (int k = 0; k < ASKERS; k++)
            (void)vow_error_of(t.f[k]);
        if (t.more != NULL)
            (void)vow_error_of(t.more);
        let_go(t.f, ASKERS);
        t.more = vow_future_unref(t.more);
        labor_free(&t.l);
        labor_free(&t.second);
        stage_close(&t.s);
    }
}

/* ---- one by one ---------------------------------------------------------- */

static void abandon(struct labor *l, struct run *r)
{
    int *left = l->user;
    if (*left == 0)
        return;
    (*left)--;
    r->over = true;
    CHECK(vow_lease_abandon(r->lease));
}

static void check_abandoned(size_t where)
{
    struct stage s;
    stage_open(&s, 2);
    int left = 1;
    struct labor l = {.loop = s.loop, .on_start = abandon, .user = &left};
    vow_name name = vow_name_of("abandon");
    vow_future *f[2];
    for (size_t i = 0; i < 2; i++)
        f[i] = vow_share(s.at[where * i].a, &name, labor_work, &l,
                         VOW_SHARE(.deadline_ms = 60000)); /* no crowd */
    world_turn(&s.w);
    CHECK_INT_EQ(l.n, 2); /* now */
    CHECK_UINT_EQ(vow_lease_attempt(l.run[1].lease), where == 0 ? 2 : 1);
    CHECK(!vow_lease_abandon(l.run[0].lease)); /* it is settled */
    labor_end(&l, "next");
    world_turn(&s.w);
    CHECK_TEXT(f[0], "next");
    CHECK_TEXT(f[1], "next");
    let_go(f, 2);
    labor_free(&l);
    stage_close(&s);
}

TEST(authority_inside, work_that_abandons_is_done_by_the_next)
{
    check_abandoned(0); /* of this process, which counts it */
    check_abandoned(1);
}

TEST(authority_inside, work_that_nobody_wants_to_do_is_not_tried_in_a_rush)
{
    struct stage s;
    stage_open(&s, 2);
    int left = 1000;
    struct labor l = {.loop = s.loop, .on_start = abandon, .user = &left};
    vow_name name = vow_name_of("abandon");
    vow_future *f[4];
    for (size_t i = 0; i < 4; i++)
        f[i] = vow_share(s.at[i % 2].a, &name, labor_work, &l,
                         VOW_SHARE(.deadline_ms = 3 * LEASE));
    world_advance_ms(&s.w, 3 * LEASE); /* and does not hang */
    CHECK(l.n >= 4 && l.n < LABOR_RUNS);
    for (int i = 0; i < 4; i++)
        CHECK_CODE(f[i], VOW_ETIMEDOUT);
    let_go(f, 4);
    labor_free(&l);
    stage_close(&s);
}

static void settle_by_hand(struct labor *l, struct run *r)
{
    (void)l;
    CHECK(vow_lease_resolve(r->lease, text_value(l->loop, "by hand")));
    CHECK(!vow_lease_resolve(r->lease, text_value(l->loop, "twice")));
}

TEST(authority_inside, a_lease_settled_inside_the_work_is_settled)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop, .on_start = settle_by_hand};
    vow_name name = vow_name_of("inside");
    vow_future *f[2];
    for (size_t i = 0; i < 2; i++)
        f[i] = vow_share(s.at[i].a, &name, labor_work, &l, NULL);
    world_turn(&s.w);
    CHECK_TEXT(f[0], "by hand");
    CHECK_TEXT(f[1], "by hand");
    VOW_AUTO(vow_future) done = vow_lease_settled(l.run[0].lease);
    world_turn(&s.w);
    CHECK_CODE(done, 0);
    labor_end_of(&l, 0, "too late");
    world_turn(&s.w);
    CHECK_UINT_EQ(stage_stats(&s, 0).late, 0); /* the same worker, in time */
    let_go(f, 2);
    done = vow_future_unref(done);
    labor_free(&l);
    stage_close(&s);
}

static vow_next cancel_next(vow_value v, void *user)
{
    vow_future **f = user;
    (void)v;
    (void)vow_cancel(*f, NULL);
    return vow_ok(vow_nothing());
}

TEST(authority_inside, a_handler_that_cancels_the_next_asker_harms_no_third)
{
    struct stage s;
    stage_open(&s, 1);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("three");
    vow_future *f[3], *chain;
    for (int i = 0; i < 3; i++)
        f[i] = vow_share(s.at[0].a, &name, labor_work, &l, NULL);
    chain = vow_then(f[0], cancel_next, NULL, &f[1]);
    world_turn(&s.w);
    labor_end(&l, "done");
    world_turn(&s.w);
    CHECK_CODE(chain, 0);
    CHECK(vow_state_of(f[1]) != VOW_PENDING);
    (void)vow_error_of(f[1]);
    CHECK_TEXT(f[2], "done");
    let_go(f, 3);
    vow_future_unref(chain);
    labor_free(&l);
    stage_close(&s);
}
