/* SPDX-License-Identifier: MIT */
/* authority_lost_test.c - runners that are lost: who follows them, how often,
 * and what becomes of their late results. */
#include "authority_rig.h"

enum { MANUAL = VOW_SHARE_MANUAL_PULSE };

static void check_bound(uint32_t takeovers, int runs, size_t processes)
{
    struct stage s;
    stage_open(&s, processes);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("bound");
    vow_future *f[6];
    for (size_t i = 0; i < 6; i++)
        f[i] = vow_share(s.at[i % processes].a, &name, labor_work, &l,
                         VOW_SHARE(.flags = MANUAL, .takeovers = takeovers));
    world_advance_ms(&s.w, (uint64_t)runs * 2 * LEASE);
    CHECK_INT_EQ(l.n, runs);
    for (int i = 0; i < runs; i++)
        CHECK_INT_EQ(l.run[i].canceled, 1);
    for (int i = 0; i < 6; i++)
        CHECK_CODE(f[i], VOW_EGAVEUP);
    let_go(f, 6);
    labor_free(&l);
    stage_close(&s);
}

TEST(authority_lost, takeovers_are_bounded_and_then_all_are_told)
{
    for (size_t processes = 1; processes <= 3; processes++) {
        check_bound(0, 4, processes); /* 3 is the default */
        check_bound(1, 2, processes);
        check_bound(6, 7, processes);
    }
}

TEST(authority_lost, the_first_error_is_told_when_those_after_it_were_lost)
{
    struct stage s;
    stage_open(&s, 1);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("first");
    vow_future *f[2];
    for (int i = 0; i < 2; i++)
        f[i] =
            vow_share(s.at[0].a, &name, labor_work, &l,
                      VOW_SHARE(.flags = MANUAL, .takeovers = 1, .tries = 3));
    world_turn(&s.w);
    labor_fail(&l, VOW_EIO, "the disk");
    world_advance_ms(&s.w, 10 * LEASE);
    for (int i = 0; i < 2; i++) {
        CHECK_CODE(f[i], VOW_EIO);
        CHECK_STR_EQ(vow_error_message(vow_error_of(f[i])), "the disk");
    }
    CHECK(l.n >= 2 && l.n <= 4);
    let_go(f, 2);
    labor_free(&l);
    stage_close(&s);
}

TEST(authority_lost, of_many_who_wait_exactly_one_follows_a_dead_runner)
{
    struct stage s;
    stage_open(&s, 4);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("heir");
    vow_share_info info[40];
    vow_future *f[40];
    for (size_t i = 0; i < 40; i++) {
        f[i] =
            vow_share(s.at[i % 4].a, &name, labor_work, &l,
                      VOW_SHARE(.info = &info[i], .store_down = VOW_DOWN_WAIT));
        if (i == 0)
            world_turn(&s.w);
    }
    world_advance_ms(&s.w, 2 * LEASE);
    s.at[0].flaky.cut = true;
    l.run[0].over = true;                           /* it is dead */
    world_advance_ms(&s.w, LEASE + LEASE / 10 + 5); /* and its jitter */
    CHECK_INT_EQ(l.n, 2);
    world_advance_ms(&s.w, 5 * LEASE);
    CHECK_INT_EQ(l.n, 2);
    labor_end(&l, "heir");
    world_turn(&s.w);
    int heirs = 0;
    for (int i = 0; i < 40; i++) {
        if (i % 4 == 0)
            continue;
        CHECK_TEXT(f[i], "heir");
        CHECK_UINT_EQ(info[i].fence, vow_lease_fence(l.run[1].lease));
        heirs += info[i].role == VOW_ROLE_TAKEOVER;
        CHECK(info[i].role == VOW_ROLE_TAKEOVER ||
              info[i].role == VOW_ROLE_JOINED);
    }
    CHECK_INT_EQ(heirs, 1);
    stage_heal(&s, &l, f, 40); /* the dead one comes back */
    let_go(f, 40);
    labor_free(&l);
    stage_close(&s);
}

/* ---- late results -------------------------------------------------------- */

struct late {
    struct stage s;
    struct labor l;
    vow_name name;
    vow_future *claim;
    vow_future *f[2];
    vow_future *lost, *done;
};

/* Process 0 works, is lost, and process 1 works. */
static void late_open(struct late *t, bool hands, uint32_t flags)
{
    *t = (struct late){.name = vow_name_of("late")};
    stage_open(&t->s, 2);
    t->l = (struct labor){.loop = t->s.loop};
    const vow_share_opts *o = VOW_SHARE(.flags = MANUAL | flags);
    if (hands) {
        t->claim = vow_claim_name(t->s.at[0].a, &t->name, NULL, NULL, o);
        world_turn(&t->s.w);
        const vow_claim *c = vow_as_ptr(vow_get(t->claim));
        labor_take(c->lease, &t->l);
        t->f[0] = vow_future_ref(c->result);
    } else {
        t->f[0] = vow_share(t->s.at[0].a, &t->name, labor_work, &t->l, o);
    }
    world_turn(&t->s.w);
    t->f[1] = vow_share(t->s.at[1].a, &t->name, labor_work, &t->l, NULL);
    t->lost = vow_lease_lost(t->l.run[0].lease);
    t->done = vow_lease_settled(t->l.run[0].lease);
    world_advance_ms(&t->s.w, LEASE * 3 / 2);
    CHECK_INT_EQ(t->l.n, 2);
    CHECK_CODE(t->lost, VOW_ELOST);
    CHECK_UINT_EQ(vow_lease_left_ms(t->l.run[0].lease), 0);
    CHECK(!vow_lease_pulse(t->l.run[0].lease));
    CHECK(!vow_lease_notify(t->l.run[0].lease, vow_int(1)));
    CHECK_INT_EQ(t->s.at[0].events[VOW_EVENT_LOST], 1);
    CHECK_INT_EQ(t->s.at[1].events[VOW_EVENT_TAKEOVER], 1);
}

static void late_close(struct late *t)
{
    labor_end(&t->l, "second");
    world_turn(&t->s.w);
    CHECK_TEXT(t->f[0], "second");
    CHECK_TEXT(t->f[1], "second");
    CHECK_CODE(t->done, VOW_ELOST);
    CHECK_INT_EQ(t->s.at[1].events[VOW_EVENT_SETTLED], 1);
    CHECK_INT_EQ(t->s.at[0].events[VOW_EVENT_SETTLED], 0);
    CHECK_UINT_EQ(stage_stats(&t->s, 0).lost, 1);
    CHECK_UINT_EQ(stage_stats(&t->s, 1).takeovers, 1);
    CHECK_UINT_EQ(stage_stats(&t->s, 1).late, 0);
    let_go(t->f, 2);
    vow_future_unref(t->lost);
    vow_future_unref(t->done);
    vow_future_unref(t->claim);
    labor_free(&t->l);
    stage_close(&t->s);
}

TEST(authority_lost, a_late_result_is_ignored_counted_and_reported)
{
    struct late t;
    late_open(&t, false, VOW_SHARE_KEEP);
    CHECK_INT_EQ(t.l.run[0].canceled, 0);
    CHECK_UINT_EQ(stage_stats(&t.s, 0).late, 0);
    CHECK(vow_resolve(t.l.run[0].end, text_value(t.s.loop, "late")));
    t.l.run[0].over = true;
    world_turn(&t.s.w);
    CHECK_PENDING(t.f[0]);
    CHECK_CODE(t.done, VOW_ELOST);
    CHECK_UINT_EQ(stage_stats(&t.s, 0).late, 1);
    CHECK_INT_EQ(t.s.at[0].events[VOW_EVENT_LATE], 1);
    CHECK_UINT_EQ(t.s.at[0].last[VOW_EVENT_LATE].fence,
                  vow_lease_fence(t.l.run[0].lease));
    CHECK(vow_name_equal(&t.s.at[0].last[VOW_EVENT_LATE].name, &t.name));
    late_close(&t);
}

TEST(authority_lost, a_late_failure_is_ignored_too)
{
    struct late t;
    late_open(&t, false, VOW_SHARE_KEEP);
    CHECK(vow_reject_code(t.l.run[0].end, VOW_EIO, NULL));
    t.l.run[0].over = true;
    world_turn(&t.s.w);
    CHECK_PENDING(t.f[0]);
    late_close(&t);
}

TEST(authority_lost, the_work_is_canceled_when_its_lease_is_lost)
{
    struct late t;
    late_open(&t, false, 0);
    CHECK_INT_EQ(t.l.run[0].canceled, 1);
    CHECK_CODE(t.done, VOW_ELOST);
    late_close(&t);
}

TEST(authority_lost, a_lease_by_hand_that_is_lost_can_settle_nothing)
{
    struct late t;
    late_open(&t, true, 0);
    CHECK(!vow_lease_resolve(t.l.run[0].lease, text_value(t.s.loop, "late")));
    t.l.run[0].over = true;
    world_turn(&t.s.w);
    CHECK_CODE(t.done, VOW_ELOST);
    CHECK_PENDING(t.f[0]);
    CHECK_UINT_EQ(stage_stats(&t.s, 0).late, 1);
    CHECK_INT_EQ(t.s.at[0].events[VOW_EVENT_LATE], 1);
    CHECK(!vow_lease_abandon(t.l.run[0].lease));
    VOW_AUTO(vow_bytes) chunk = NULL;
    CHECK_INT_EQ(vow_bytes_new(t.s.loop, "x", 1, &chunk), 0);
    VOW_AUTO(vow_future) w = vow_lease_write(t.l.run[0].lease, chunk);
    world_turn(&t.s.w);
    CHECK_CODE(w, VOW_ELOST);
    w = vow_future_unref(w);
    chunk = vow_bytes_unref(chunk);
    late_close(&t);
}

TEST(authority_lost, news_and_chunks_are_signs_of_life)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("signs");
    const vow_share_opts *o = VOW_SHARE(.flags = MANUAL | VOW_SHARE_FOLLOW);
    vow_future *f[2];
    for (size_t i = 0; i < 2; i++)
        f[i] = vow_share(s.at[i].a, &name, labor_work, &l, o);
    VOW_AUTO(vow_bytes) chunk = NULL;
    CHECK_INT_EQ(vow_bytes_new(s.loop, "x", 1, &chunk), 0);
    world_turn(&s.w);
    for (int i = 0; i < 20; i++) {
        world_advance_ms(&s.w, LEASE / 2);
        CHECK_INT_EQ(labor_live(&l), 1);
        VOW_AUTO(vow_future) w = NULL;
        if (i % 2 == 0)
            CHECK(vow_lease_notify(l.run[0].lease, vow_int(i)));
        else
            w = vow_lease_write(l.run[0].lease, chunk);
    }
    CHECK_INT_EQ(l.n, 1);
    labor_end(&l, "alive");
    world_turn(&s.w);
    CHECK_TEXT(f[1], "alive");
    chunk = vow_bytes_unref(chunk);
    let_go(f, 2);
    labor_free(&l);
    stage_close(&s);
}

/* ---- what its successor made --------------------------------------------- */

/* Process 0 cannot reach the store until process 1 has taken over and has a
 * result that is kept for nobody but those who wait. */
static void check_made_meanwhile(uint32_t flags, uint64_t late_ms)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("meanwhile");
    vow_share_info info = {0};
    vow_future *f[2];
    f[0] = vow_share(
        s.at[0].a, &name, labor_work, &l,
        VOW_SHARE(.flags = flags, .info = &info, .store_down = VOW_DOWN_WAIT));
    world_turn(&s.w);
    f[1] = vow_share(s.at[1].a, &name, labor_work, &l, NULL);
    world_turn(&s.w);
    s.at[0].flaky.cut = true;
    world_advance_ms(&s.w, 2 * LEASE);
    CHECK_INT_EQ(l.n, 2);
    labor_end(&l, "second");
    world_turn(&s.w);
    CHECK_TEXT(f[1], "second");
    if (flags != 0)
        labor_end_of(&l, 0, "late");
    world_advance_ms(&s.w, late_ms);
    CHECK_PENDING(f[0]);
    s.at[0].flaky.cut = false;
    world_advance_ms(&s.w, 2 * LEASE);
    CHECK_TEXT(f[0], "second");
    CHECK_UINT_EQ(info.role, VOW_ROLE_JOINED);
    CHECK_UINT_EQ(info.fence, vow_lease_fence(l.run[1].lease));
    CHECK_INT_EQ(l.n, 2); /* it was not done a third time */
    let_go(f, 2);
    labor_free(&l);
    stage_close(&s);
}

TEST(authority_lost, its_asker_gets_what_the_successor_made_meanwhile)
{
    check_made_meanwhile(0, 1);
    check_made_meanwhile(0, LEASE / 2);
    check_made_meanwhile(VOW_SHARE_KEEP, 1);
}

/* Whoever waits is due to take over: the one that was lost lets it. */
TEST(authority_lost, its_asker_takes_not_over_from_itself_while_others_wait)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("polite");
    vow_future *f[2];
    for (size_t i = 0; i < 2; i++)
        f[i] = vow_share(s.at[i].a, &name, labor_work, &l,
                         VOW_SHARE(.flags = MANUAL * (i == 0)));
    world_turn(&s.w);
    CHECK_INT_EQ(l.n, 1);
    world_advance_ms(&s.w, 2 * LEASE);
    CHECK_INT_EQ(l.n, 2);
    CHECK_INT_EQ(s.at[0].events[VOW_EVENT_TAKEOVER], 0);
    CHECK_INT_EQ(s.at[1].events[VOW_EVENT_TAKEOVER], 1);
    labor_end(&l, "second");
    world_advance_ms(&s.w, LEASE);
    CHECK_TEXT(f[0], "second");
    CHECK_TEXT(f[1], "second");
    CHECK_INT_EQ(l.n, 2);
    let_go(f, 2);
    labor_free(&l);
    stage_close(&s);
}

/* Without another it does the work again, as it always did. */
TEST(authority_lost, its_asker_works_again_when_nobody_else_waits)
{
    struct stage s;
    stage_open(&s, 1);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("again");
    vow_share_info info = {0};
    VOW_AUTO(vow_future)
    f = vow_share(s.at[0].a, &name, labor_work, &l,
                  VOW_SHARE(.flags = MANUAL, .info = &info));
    world_advance_ms(&s.w, LEASE + LEASE / 4);
    CHECK_INT_EQ(l.n, 2);
    labor_end(&l, "again");
    world_turn(&s.w);
    CHECK_TEXT(f, "again");
    CHECK_UINT_EQ(info.role, VOW_ROLE_TAKEOVER);
    f = vow_future_unref(f);
    labor_free(&l);
    stage_close(&s);
}

/* ---- both styles of the retry -------------------------------------------- */

enum { RACERS = 30 };

struct racer {
    struct race *race;
    size_t process;
    int asked;
    vow_future *end;
};

struct race {
    struct stage s;
    struct labor l;
    vow_name name;
    uint32_t flags;
    struct racer r[RACERS];
};

/* "This catch function retries if an error occurs." */
static vow_next race_again(vow_error *e, void *user);
static vow_future *race_ask(struct racer *r)
{
    r->asked++;
    vow_future *f =
        vow_share(r->race->s.at[r->process].a, &r->race->name, labor_work,
                  &r->race->l, VOW_SHARE(.flags = r->race->flags));
    return vow_catch_drop(f, race_again, r);
}

static vow_next race_again(vow_error *e, void *user)
{
    struct racer *r = user;
    (void)e;
    if (r->asked == 5)
        return vow_pass();
    return vow_follow(race_ask(r));
}

static void race_open(struct race *t, uint32_t flags)
{
    *t = (struct race){.name = vow_name_of("race"), .flags = flags};
    stage_open(&t->s, 3);
    t->l = (struct labor){.loop = t->s.loop};
    for (size_t i = 0; i < RACERS; i++) {
        t->r[i] = (struct racer){.race = t, .process = i % 3};
        t->r[i].end = race_ask(&t->r[i]);
    }
    world_turn(&t->s.w);
    CHECK_INT_EQ(t->l.n, 1);
}

static void race_close(struct race *t, bool all)
{
    CHECK_INT_EQ(t->l.n, 2); /* exactly one new owner */
    labor_end(&t->l, "second");
    world_advance_ms(&t->s.w, 10);
    for (size_t i = 0; i < RACERS; i++) {
        if (all || t->r[i].process != 0)
            CHECK_TEXT(t->r[i].end, "second");
        CHECK(t->r[i].asked <= 2);
    }
    CHECK_INT_EQ(t->l.n, 2);
    for (size_t i = 0; i < RACERS; i++)
        vow_future_unref(t->r[i].end);
    labor_free(&t->l);
    stage_close(&t->s);
}

TEST(authority_lost, when_all_race_after_a_failure_one_wins)
{
    static struct race t;
    race_open(&t, VOW_SHARE_RACE);
    labor_fail(&t.l, VOW_EIO, "failed");
    world_advance_ms(&t.s.w, 50);
    race_close(&t, true);
}

TEST(authority_lost, when_all_race_after_a_loss_one_wins)
{
    static struct race t;
    race_open(&t, VOW_SHARE_RACE | MANUAL);
    world_advance_ms(&t.s.w, LEASE * 3 / 2);
    race_close(&t, true);
}

TEST(authority_lost, when_the_authority_picks_after_a_loss_one_is_picked)
{
    static struct race t;
    race_open(&t, MANUAL);
    world_advance_ms(&t.s.w, LEASE * 3 / 2);
    for (int i = 0; i < RACERS; i++)
        CHECK_INT_EQ(t.r[i].asked, 1); /* they noticed nothing */
    race_close(&t, true);
}

TEST(authority_lost, when_all_race_after_an_abandoned_run_one_wins)
{
    static struct race t;
    race_open(&t, VOW_SHARE_RACE);
    t.l.run[0].over = true;
    CHECK(vow_lease_abandon(t.l.run[0].lease));
    world_advance_ms(&t.s.w, 50);
    race_close(&t, true);
}

/* ---- chunks of those who were lost --------------------------------------- */

struct heard {
    char text[64];
    int resets;
};

static void hear(vow_bytes *chunk, void *user)
{
    struct heard *h = user;
    h->resets += chunk == NULL;
    if (chunk != NULL)
        (void)strncat(h->text, (const char *)vow_bytes_data(chunk),
                      vow_bytes_size(chunk));
    else
        (void)strncat(h->text, "|", 2);
}

static void say(struct stage *s, struct labor *l, const char *text)
{
    VOW_AUTO(vow_bytes) chunk = NULL;
    CHECK_INT_EQ(vow_bytes_new(s->loop, text, strlen(text), &chunk), 0);
    VOW_AUTO(vow_future) w = vow_lease_write(labor_last(l)->lease, chunk);
    world_turn(&s->w);
    CHECK_CODE(w, 0);
}

enum { FOLLOWERS = 6 };

static void follow(struct stage *s, bool chunks, const char *want)
{
    struct labor l = {.loop = s->loop};
    struct heard heard[FOLLOWERS] = {{{0}, 0}};
    vow_share_info info[FOLLOWERS] = {{0}};
    vow_name name = vow_name_of("follow");
    vow_future *f[FOLLOWERS];
    for (size_t i = 0; i < FOLLOWERS; i++) {
        vow_share_opts o =
            *VOW_SHARE(.flags = VOW_SHARE_FOLLOW | MANUAL, .on_chunk = hear,
                       .user = &heard[i], .info = &info[i]);
        f[i] = vow_share(s->at[i % 3].a, &name, labor_work, &l, &o);
        world_turn(&s->w);
        if (i == 2 && chunks)
            say(s, &l, "a"), say(s, &l, "b");
    }
    world_advance_ms(&s->w, LEASE * 3 / 2);
    CHECK_INT_EQ(l.n, 2);
    say(s, &l, "c");
    world_advance_ms(&s->w, 10);
    say(s, &l, "d");
    world_advance_ms(&s->w, 10);
    labor_end(&l, "cd");
    world_advance_ms(&s->w, 10);
    for (size_t i = 0; i < FOLLOWERS; i++) {
        CHECK_TEXT(f[i], "cd");
        if (info[i].role == VOW_ROLE_TAKEOVER) /* says it itself */
            continue;
        /* the first runner said its own, and hears its successor */
        CHECK_STR_EQ(heard[i].text, i == 0 ? "cd" : want);
    }
    let_go(f, FOLLOWERS);
    labor_free(&l);
}

TEST(authority_lost, those_who_follow_begin_anew_with_the_next_runner)
{
    struct stage s;
    stage_open(&s, 3);
    follow(&s, true, "ab|cd");
    stage_close(&s);
}

TEST(authority_lost, without_chunks_there_is_nothing_to_begin_anew)
{
    struct stage s;
    stage_open(&s, 3);
    follow(&s, false, "cd");
    stage_close(&s);
}

TEST(authority_lost, chunks_come_once_and_in_order_though_news_are_bad)
{
    for (int how = 0; how < 4; how++) {
        struct stage s;
        stage_open(&s, 3);
        for (size_t i = 0; i < 3; i++) {
            s.at[i].flaky.doubled = how == 0;
            s.at[i].flaky.delay_ms[STEP_READ] = how >= 1 ? 3 : 0;
            if (how == 2)
                flaky_next(&s.at[i].flaky, STEP_READ, FATE_REFUSED, 1);
            if (how == 3)
                flaky_next(&s.at[i].flaky, STEP_READ, FATE_UNSURE_DONE, 1);
        }
        follow(&s, true, "ab|cd");
        stage_close(&s);
    }
}
