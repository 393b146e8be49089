/* SPDX-License-Identifier: MIT */
/* authority_wait_test.c - whoever waits is settled: every way to leave, at any
 * moment, and nobody else notices.
 *
 * The moments are those one asker can be in; the ways to leave are a cancel, a
 * deadline, the end of its authority, the end of its loop. Each way is tried at
 * each moment, with the work done by a function and by hand. The rest, in this
 * process and in another, must get a result afterwards.
 */
#include "authority_rig.h"

enum moment {
    CLAIMING,   /* the store has not answered */
    WAITING,    /* another process works */
    FOLLOWING,  /* the same, with its chunks */
    JOINED,     /* another asker of this process works */
    RUNNING,    /* this one works, alone */
    LEADING,    /* this one works, others wait here and there */
    COMMITTING, /* the work is done, the store has not answered */
    DOWN,       /* the store is down, and this one waits */
    PICKY,      /* another works, and this one waits for the end of it */
    LOST,       /* its lease was lost, another process works */
    AGAIN,      /* its attempt failed, and is done again */
    MOMENTS
};

enum way { CANCEL, DEADLINE, LEAVE, CRASH, WAYS };

enum { REST = 5, DEADLINE_MS = 20000 };

struct scene {
    struct stage s;
    struct labor l;
    vow_name name;
    vow_share_opts mine;
    bool hands;
    vow_future *claim; /* by hand */
    vow_future *me;
    vow_future *rest[REST];
    size_t n;
    int chunks;
};

static bool never(const vow_share_info *running, void *user)
{
    (void)running;
    (void)user;
    return false;
}

static void count_chunk(vow_bytes *chunk, void *user)
{
    struct scene *c = user;
    (void)chunk;
    CHECK(vow_state_of(c->me) == VOW_PENDING);
    c->chunks++;
}

static void rest_asks(struct scene *c, size_t process)
{
    CHECK(c->n < REST);
    c->rest[c->n++] = vow_share(c->s.at[process].a, &c->name, labor_work, &c->l,
                                VOW_SHARE(.ttl_ms = 0));
    world_turn(&c->s.w);
}

/* By hand, `me` is the future of the claim, and as soon as that is known the
 * future of its result. */
static void i_ask(struct scene *c)
{
    vow_authority *a = c->s.at[0].a;
    if (!c->hands) {
        c->me = vow_share(a, &c->name, labor_work, &c->l, &c->mine);
        world_turn(&c->s.w);
        return;
    }
    c->me = vow_claim_name(a, &c->name, labor_take, &c->l, &c->mine);
    world_turn(&c->s.w);
    if (vow_state_of(c->me) == VOW_PENDING)
        return;
    CHECK_CODE(c->me, 0);
    c->claim = c->me;
    vow_claim *claim = vow_as_ptr(vow_get(c->claim));
    c->me = vow_future_ref(claim->result);
    if (claim->lease != NULL)
        labor_take(claim->lease, &c->l);
}

static void write_chunk(struct scene *c)
{
    VOW_AUTO(vow_bytes) chunk = NULL;
    CHECK_INT_EQ(vow_bytes_new(c->s.loop, "x", 1, &chunk), 0);
    VOW_AUTO(vow_future) f = vow_lease_write(labor_last(&c->l)->lease, chunk);
    world_turn(&c->s.w);
    (void)vow_error_of(f);
}

static void enter(struct scene *c, enum moment m)
{
    struct flaky *f = &c->s.at[0].flaky;
    if (m == CLAIMING)
        flaky_next(f, STEP_CLAIM, FATE_HELD, 1);
    if (m == DOWN)
        flaky_all(f, FATE_REFUSED);
    if (m == WAITING || m == FOLLOWING || m == PICKY)
        rest_asks(c, 1);
    if (m == JOINED)
        rest_asks(c, 0);
    i_ask(c);
    if (m == FOLLOWING)
        write_chunk(c);
    if (m != RUNNING)
        rest_asks(c, 0), rest_asks(c, 1);
    if (m == AGAIN)
        labor_fail(&c->l, VOW_EIO, "no"), world_turn(&c->s.w);
    if (m == LOST)
        world_advance_ms(&c->s.w, 3 * LEASE / 2);
    if (m == COMMITTING) {
        flaky_next(f, STEP_COMMIT, FATE_HELD, 1);
        labor_end(&c->l, "committed");
        world_turn(&c->s.w);
    }
}

static void scene_open(struct scene *c, enum moment m, enum way w, bool hands)
{
    *c = (struct scene){.hands = hands, .name = vow_name_of("scene")};
    stage_open(&c->s, 2);
    c->l = (struct labor){.loop = c->s.loop};
    c->l.loose = m == DOWN; /* the rest works without the store */
    c->mine =
        *VOW_SHARE(.deadline_ms = w == DEADLINE ? DEADLINE_MS : 0, .user = c,
                   .tries = m == AGAIN ? 5 : 0,
                   .join = m == PICKY ? never : NULL,
                   .store_down = m == DOWN ? VOW_DOWN_WAIT : VOW_DOWN_DEFAULT,
                   .flags = m == FOLLOWING ? VOW_SHARE_FOLLOW
                            : m == LOST    ? VOW_SHARE_MANUAL_PULSE
                                           : 0,
                   .on_chunk = m == FOLLOWING ? count_chunk : NULL);
    enter(c, m);
}

static void check_left(struct scene *c, enum moment m, int code)
{
    /* What is settled here already, without the store, is settled. */
    if (m == COMMITTING && vow_error_code(vow_error_of(c->me)) == 0 &&
        vow_state_of(c->me) == VOW_FULFILLED)
        CHECK_TEXT(c->me, "committed");
    else
        CHECK_CODE(c->me, code);
}

static void leave(struct scene *c, enum way w)
{
    if (w == CANCEL)
        (void)vow_cancel(c->me, NULL);
    if (w == DEADLINE)
        world_advance_ms(&c->s.w, DEADLINE_MS + 1);
    if (w == LEAVE)
        stage_leave(&c->s, 0);
    world_turn(&c->s.w);
}

/* Nobody is told of this, so that it has no handlers. */
static bool of_the_other(struct scene *c, size_t i)
{
    return vow_error_code(vow_error_of(c->rest[i])) != VOW_ECLOSED;
}

static void scene_end(struct scene *c, enum way w)
{
    if (w == CRASH)
        return;
    stage_heal(&c->s, &c->l, c->rest, c->n);
    for (size_t i = 0; i < c->n; i++)
        if (w != LEAVE || of_the_other(c, i))
            CHECK_CODE(c->rest[i], 0);
    let_go(c->rest, c->n);
    c->me = vow_future_unref(c->me);
    c->claim = vow_future_unref(c->claim);
    labor_free(&c->l);
    world_advance_ms(&c->s.w, 1);
    for (size_t i = 0; i < c->s.n; i++)
        if (!c->s.at[i].gone)
            CHECK_UINT_EQ(stage_stats(&c->s, i).names, 0);
    stage_close(&c->s);
}

static void scene_crash(struct scene *c, enum moment m)
{
    CHECK_INT_EQ(vow_loop_close(c->s.loop), 0);
    c->rest[c->n++] = c->me;
    for (size_t i = 0; i < c->n; i++)
        if (m != COMMITTING || vow_state_of(c->rest[i]) != VOW_FULFILLED)
            CHECK_CODE(c->rest[i], VOW_ECLOSED);
    let_go(c->rest, c->n);
    vow_future_unref(c->claim);
    labor_free(&c->l);
    stage_lost(&c->s);
}

static void try_all(enum way w, int code)
{
    for (int hands = 0; hands < 2; hands++) {
        for (int m = 0; m < MOMENTS; m++) {
            struct scene c;
            scene_open(&c, (enum moment)m, w, hands != 0);
            leave(&c, w);
            check_left(&c, (enum moment)m, code);
            scene_end(&c, w);
        }
    }
}

TEST(authority_wait, a_cancel_at_any_moment_leaves_and_the_rest_goes_on)
{
    try_all(CANCEL, VOW_ECANCELED);
}

TEST(authority_wait, a_deadline_counts_at_any_moment)
{
    try_all(DEADLINE, VOW_ETIMEDOUT);
}

TEST(authority_wait, an_authority_can_be_closed_at_any_moment)
{
    try_all(LEAVE, VOW_ECLOSED);
}

TEST(authority_wait, a_loop_can_be_closed_at_any_moment)
{
    for (int hands = 0; hands < 2; hands++) {
        for (int m = 0; m < MOMENTS; m++) {
            struct scene c;
            scene_open(&c, (enum moment)m, CRASH, hands != 0);
            scene_crash(&c, (enum moment)m);
        }
    }
}

/* ---- moments in detail --------------------------------------------------- */

TEST(authority_wait, an_answer_that_comes_when_all_have_left_starts_nothing)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("left");
    flaky_next(&s.at[0].flaky, STEP_CLAIM, FATE_HELD, 1);
    VOW_AUTO(vow_future) f = vow_share(s.at[0].a, &name, labor_work, &l, NULL);
    world_turn(&s.w);
    VOW_AUTO(vow_future) g = vow_share(s.at[1].a, &name, labor_work, &l, NULL);
    world_turn(&s.w);
    CHECK(vow_cancel(f, NULL));
    world_advance_ms(&s.w, 100);
    CHECK_INT_EQ(l.n, 0);
    flaky_release(&s.at[0].flaky);
    world_advance_ms(&s.w, 50); /* far less than the lease */
    CHECK_INT_EQ(l.n, 1);
    labor_end(&l, "other");
    world_turn(&s.w);
    CHECK_TEXT(g, "other");
    f = vow_future_unref(f);
    g = vow_future_unref(g);
    labor_free(&l);
    stage_close(&s);
}

/* News and answers may come by different ways, as in a cluster. */
TEST(authority_wait, an_answer_from_before_a_doubt_is_not_trusted)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("doubt");
    const vow_share_opts *o = VOW_SHARE(.ttl_ms = 10 * LEASE);
    VOW_AUTO(vow_future) f = vow_share(s.at[0].a, &name, labor_work, &l, o);
    world_turn(&s.w);
    struct flaky *other = &s.at[1].flaky;
    flaky_next(other, STEP_CLAIM, FATE_HELD, 1);
    other->deaf = true;
    VOW_AUTO(vow_future) g = vow_share(s.at[1].a, &name, labor_work, &l, o);
    world_turn(&s.w);
    labor_end(&l, "told once");
    world_turn(&s.w);
    CHECK_TEXT(f, "told once");
    other->events.on_doubt(other->events.user);
    flaky_release(other); /* that it has to wait */
    world_advance_ms(&s.w, 1);
    CHECK_TEXT(g, "told once");
    f = vow_future_unref(f);
    g = vow_future_unref(g);
    labor_free(&l);
    stage_close(&s);
}

/* An event may be late by as long as it likes. */
TEST(authority_wait, the_result_of_a_run_before_is_not_taken_for_this_one)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("late");
    struct flaky *other = &s.at[1].flaky;
    vow_bytes *old = NULL;
    CHECK_INT_EQ(vow_bytes_new(s.loop, "old", 3, &old), 0);
    VOW_AUTO(vow_future) f = vow_share(s.at[0].a, &name, labor_work, &l, NULL);
    world_turn(&s.w);
    VOW_AUTO(vow_future) g = vow_share(s.at[1].a, &name, labor_work, &l, NULL);
    world_turn(&s.w);
    vow_record late = {.name = name,
                       .status = VOW_STATUS_SETTLED,
                       .epoch = vow_lease_fence(l.run[0].lease) - 1,
                       .value = old,
                       .label = "",
                       .runner = ""};
    other->events.on_record(&late, other->events.user);
    world_turn(&s.w);
    CHECK_PENDING(g);
    flaky_next(other, STEP_CLAIM, FATE_HELD, 1);
    other->events.on_record(&late, other->events.user); /* claims again */
    other->events.on_record(&late, other->events.user); /* meanwhile */
    flaky_release(other);
    world_turn(&s.w);
    CHECK_PENDING(g);
    labor_end(&l, "new");
    world_turn(&s.w);
    CHECK_TEXT(f, "new");
    CHECK_TEXT(g, "new");
    f = vow_future_unref(f);
    g = vow_future_unref(g);
    vow_bytes_unref(old);
    labor_free(&l);
    stage_close(&s);
}

TEST(authority_wait, who_comes_while_the_last_has_just_left_is_served)
{
    struct stage s;
    stage_open(&s, 1);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("left");
    flaky_next(&s.at[0].flaky, STEP_CLAIM, FATE_HELD, 1);
    vow_future *f[2];
    f[0] = vow_share(s.at[0].a, &name, labor_work, &l, NULL);
    world_turn(&s.w);
    CHECK(vow_cancel(f[0], NULL));
    f[1] = vow_share(s.at[0].a, &name, labor_work, &l, NULL);
    world_turn(&s.w);
    flaky_release(&s.at[0].flaky);
    world_advance_ms(&s.w, 50);
    CHECK_INT_EQ(l.n, 1);
    labor_end(&l, "served");
    world_turn(&s.w);
    CHECK_TEXT(f[1], "served");
    let_go(f, 2);
    labor_free(&l);
    stage_close(&s);
}

TEST(authority_wait, work_that_does_not_stop_at_once_keeps_its_name)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop, .stubborn = true};
    vow_name name = vow_name_of("stubborn");
    vow_future *f[3];
    f[0] = vow_share(s.at[0].a, &name, labor_work, &l, NULL);
    world_turn(&s.w);
    CHECK(vow_cancel(f[0], NULL));
    world_turn(&s.w);
    CHECK_INT_EQ(l.run[0].canceled, 1);
    for (size_t i = 0; i < 2; i++)
        f[i + 1] = vow_share(s.at[i].a, &name, labor_work, &l, NULL);
    world_advance_ms(&s.w, LEASE / 2);
    CHECK_INT_EQ(l.run[0].canceled, 1);
    labor_end_of(&l, 0, "stopped");
    world_advance_ms(&s.w, LEASE / 2);
    if (vow_state_of(f[1]) == VOW_PENDING) {
        CHECK_INT_EQ(l.n, 2); /* or they get what was done in spite of all */
        labor_end(&l, "stopped");
        world_turn(&s.w);
    }
    CHECK_TEXT(f[1], "stopped");
    CHECK_TEXT(f[2], "stopped");
    let_go(f, 3);
    labor_free(&l);
    stage_close(&s);
}

TEST(authority_wait, the_work_is_canceled_when_the_last_of_many_leaves)
{
    struct stage s;
    stage_open(&s, 1);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("last");
    vow_future *f[50];
    for (int i = 0; i < 50; i++)
        f[i] = vow_share(
            s.at[0].a, &name, labor_work, &l,
            VOW_SHARE(.deadline_ms = i % 2 == 0 ? 100 + (uint64_t)i : 0));
    world_turn(&s.w);
    CHECK(vow_lease_waiters(l.run[0].lease) > 1);
    for (int i = 1; i < 49; i += 2)
        CHECK(vow_cancel(f[i], NULL));
    world_advance_ms(&s.w, 500);
    CHECK_INT_EQ(l.run[0].canceled, 0);
    CHECK_UINT_EQ(vow_lease_waiters(l.run[0].lease), 1);
    CHECK(vow_cancel(f[49], NULL));
    world_turn(&s.w);
    CHECK_INT_EQ(l.run[0].canceled, 1);
    CHECK_UINT_EQ(vow_lease_waiters(l.run[0].lease), 0);
    CHECK_UINT_EQ(stage_stats(&s, 0).names, 0);
    for (int i = 0; i < 50; i++)
        CHECK_CODE(f[i], i % 2 == 0 ? VOW_ETIMEDOUT : VOW_ECANCELED);
    let_go(f, 50);
    labor_free(&l);
    stage_close(&s);
}

TEST(authority_wait, what_happens_after_the_close_is_refused_not_forgotten)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("closed");
    vow_future *f[6];
    f[0] = vow_share(s.at[0].a, &name, labor_work, &l, NULL);
    f[1] = vow_share(s.at[1].a, &name, labor_work, &l, NULL);
    world_turn(&s.w);
    VOW_AUTO(vow_future) lost = vow_lease_lost(l.run[0].lease);
    VOW_AUTO(vow_future) done = vow_lease_settled(l.run[0].lease);
    f[2] = vow_authority_close(s.at[0].a);
    f[3] = vow_share(s.at[0].a, &name, labor_work, &l, NULL);
    f[4] = vow_authority_close(s.at[0].a);
    world_advance_ms(&s.w, 50);
    f[5] = vow_authority_list(s.at[0].a);
    world_turn(&s.w);
    CHECK_CODE(f[0], VOW_ECLOSED);
    CHECK_CODE(f[2], 0);
    CHECK_CODE(f[3], VOW_ECLOSED);
    CHECK(vow_state_of(f[4]) != VOW_PENDING);
    (void)vow_error_of(f[4]);
    CHECK_CODE(f[5], VOW_ECLOSED);
    CHECK_INT_EQ(l.run[0].canceled, 1);
    CHECK(vow_state_of(lost) != VOW_PENDING);
    CHECK(vow_state_of(done) != VOW_PENDING);
    (void)vow_error_of(lost);
    (void)vow_error_of(done);
    CHECK_UINT_EQ(vow_lease_left_ms(l.run[0].lease), 0);
    CHECK(!vow_lease_pulse(l.run[0].lease));
    CHECK_INT_EQ(l.n, 2); /* abandoned: the other has it already */
    labor_end(&l, "heir");
    world_turn(&s.w);
    CHECK_TEXT(f[1], "heir");
    let_go(f, 6);
    lost = vow_future_unref(lost);
    done = vow_future_unref(done);
    labor_free(&l);
    s.at[0].gone = true;
    vow_authority_unref(s.at[0].a);
    stage_close(&s);
}

TEST(authority_wait, who_closes_its_loop_while_it_works_fails_nobody_else)
{
    struct stage s;
    stage_open(&s, 1);
    struct world other; /* with a process of its own */
    world_open(&other);
    vow_store *store;
    CHECK_INT_EQ(vow_store_memory_new(other.loop, s.memory, &store), 0);
    VOW_AUTO(vow_future)
    open = vow_authority_open(
        other.loop, NULL,
        VOW_AUTHORITY(.store = store, .flags = VOW_AUTHORITY_HERE));
    CHECK_INT_EQ(vow_loop_run_until(other.loop, open), 0);
    vow_authority *a = vow_authority_ref(vow_as_ptr(vow_get(open)));
    open = vow_future_unref(open);
    struct labor there = {.loop = other.loop}, here = {.loop = s.loop};
    vow_name name = vow_name_of("loops");
    VOW_AUTO(vow_future) f = vow_share(a, &name, labor_work, &there, NULL);
    world_turn(&other);
    VOW_AUTO(vow_future)
    g = vow_share(s.at[0].a, &name, labor_work, &here, NULL);
    world_turn(&s.w);
    CHECK_INT_EQ(there.n, 1);
    CHECK_INT_EQ(here.n, 0);
    CHECK_INT_EQ(vow_loop_close(other.loop), 0);
    CHECK_CODE(f, VOW_ECLOSED);
    f = vow_future_unref(f);
    labor_free(&there);
    vow_authority_unref(a);
    test_alloc_fini(TEST_HERE, &other.alloc);
    for (int i = 0; i < 100 && here.n == 0; i++)
        world_advance_ms(&s.w, 100);
    CHECK_INT_EQ(here.n, 1);
    labor_end(&here, "here");
    world_turn(&s.w);
    CHECK_TEXT(g, "here");
    g = vow_future_unref(g);
    labor_free(&here);
    stage_close(&s);
}

TEST(authority_wait, dropping_the_last_handle_closes_it)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("dropped");
    vow_future *f[2];
    for (size_t i = 0; i < 2; i++)
        f[i] = vow_share(s.at[i].a, &name, labor_work, &l, NULL);
    world_turn(&s.w);
    s.at[0].gone = true;
    vow_authority_unref(s.at[0].a);
    world_advance_ms(&s.w, 50);
    CHECK_CODE(f[0], VOW_ECLOSED);
    CHECK_INT_EQ(l.n, 2);
    labor_end(&l, "heir");
    world_turn(&s.w);
    CHECK_TEXT(f[1], "heir");
    let_go(f, 2);
    labor_free(&l);
    stage_close(&s);
}
