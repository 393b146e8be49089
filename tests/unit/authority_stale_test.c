/* SPDX-License-Identifier: MIT */
/* authority_stale_test.c - old results that are handed out while they are made
 * anew: once, out of sight, and never for longer than they were kept. */
#include "authority_rig.h"

enum { TTL = 20000, STALE = 5000, CALLERS = 30 };

struct cache {
    struct stage s;
    struct labor l;
    vow_name name;
    vow_share_info info;
    uint32_t down; /* what to do without the store */
};

static vow_future *ask(struct cache *c, size_t process, uint32_t flags)
{
    return vow_share(c->s.at[process].a, &c->name, labor_work, &c->l,
                     VOW_SHARE(.ttl_ms = TTL, .stale_ms = STALE,
                               .info = &c->info, .flags = flags,
                               .store_down = c->down));
}

/* Whoever asks now gets this, at once. */
static void check_get(struct cache *c, size_t process, const char *want,
                      uint32_t role)
{
    VOW_AUTO(vow_future) f = ask(c, process, 0);
    world_turn(&c->s.w);
    CHECK_TEXT(f, want);
    CHECK_UINT_EQ(c->info.role, role);
}

/* A result that is older than STALE. */
static void cache_open(struct cache *c, size_t processes)
{
    *c = (struct cache){.name = vow_name_of("cache")};
    stage_open(&c->s, processes);
    c->l = (struct labor){.loop = c->s.loop};
    VOW_AUTO(vow_future) f = ask(c, 0, 0);
    world_turn(&c->s.w);
    labor_end(&c->l, "old");
    world_turn(&c->s.w);
    CHECK_TEXT(f, "old");
    world_advance_ms(&c->s.w, STALE - 100);
    check_get(c, processes - 1, "old", VOW_ROLE_CACHED);
    CHECK_INT_EQ(c->l.n, 1);
    world_advance_ms(&c->s.w, 200);
}

static void cache_close(struct cache *c)
{
    for (size_t i = 0; i < c->s.n; i++)
        stage_leave(&c->s, i);
    labor_free(&c->l); /* it must stay until the authority is closed */
    stage_close(&c->s);
}

TEST(authority_stale, among_many_callers_of_three_processes_one_makes_it_anew)
{
    struct cache c;
    cache_open(&c, 3);
    vow_share_info info[CALLERS] = {{0}};
    vow_future *f[CALLERS];
    for (size_t i = 0; i < CALLERS; i++)
        f[i] = vow_share(
            c.s.at[i % 3].a, &c.name, labor_work, &c.l,
            VOW_SHARE(.ttl_ms = TTL, .stale_ms = STALE, .info = &info[i]));
    world_turn(&c.s.w);
    for (int i = 0; i < CALLERS; i++) {
        CHECK_TEXT(f[i], "old"); /* nobody waits for it */
        CHECK_UINT_EQ(info[i].role, VOW_ROLE_STALE);
    }
    CHECK_INT_EQ(c.l.n, 2);
    world_advance_ms(&c.s.w, 5 * LEASE);
    check_get(&c, 1, "old", VOW_ROLE_STALE);
    CHECK_INT_EQ(c.l.n, 2);
    labor_end(&c.l, "new");
    world_advance_ms(&c.s.w, 10);
    for (size_t i = 0; i < 3; i++)
        check_get(&c, i, "new", VOW_ROLE_CACHED);
    CHECK_INT_EQ(c.l.n, 2);
    uint64_t refreshes = 0;
    for (size_t i = 0; i < 3; i++)
        refreshes += stage_stats(&c.s, i).refreshes;
    CHECK_UINT_EQ(refreshes, 1);
    let_go(f, CALLERS);
    cache_close(&c);
}

TEST(authority_stale, the_new_result_is_kept_for_its_whole_time)
{
    struct cache c;
    cache_open(&c, 2);
    check_get(&c, 0, "old", VOW_ROLE_STALE);
    labor_end(&c.l, "new");
    world_advance_ms(&c.s.w, STALE - 100);
    check_get(&c, 1, "new", VOW_ROLE_CACHED);
    world_advance_ms(&c.s.w, TTL - STALE - 100);
    check_get(&c, 1, "new", VOW_ROLE_STALE);
    CHECK_INT_EQ(c.l.n, 3);
    cache_close(&c);
}

TEST(authority_stale, a_refresh_that_hangs_cannot_keep_a_result_alive)
{
    struct cache c;
    cache_open(&c, 2);
    c.down = VOW_DOWN_WAIT;
    check_get(&c, 0, "old", VOW_ROLE_STALE);
    CHECK_INT_EQ(c.l.n, 2);
    world_advance_ms(&c.s.w, TTL); /* the refresh goes on, and pulses */
    vow_future *f[2] = {ask(&c, 0, 0), ask(&c, 1, 0)};
    world_advance_ms(&c.s.w, 5 * LEASE);
    CHECK_PENDING(f[0]); /* as for any work that is being done */
    CHECK_PENDING(f[1]);
    CHECK_INT_EQ(c.l.n, 2);
    c.s.at[0].flaky.cut = true;
    c.l.run[1].over = true;
    world_advance_ms(&c.s.w, 2 * LEASE);
    CHECK_INT_EQ(c.l.n, 3);
    labor_end(&c.l, "newest");
    world_turn(&c.s.w);
    CHECK_TEXT(f[1], "newest");
    c.s.at[0].flaky.cut = false;
    labor_end_of(&c.l, 1, "from long ago"); /* and replaces nothing */
    world_advance_ms(&c.s.w, 5 * LEASE);
    CHECK_TEXT(f[0], "newest");
    check_get(&c, 0, "newest", VOW_ROLE_CACHED);
    check_get(&c, 1, "newest", VOW_ROLE_CACHED);
    let_go(f, 2);
    cache_close(&c);
}

TEST(authority_stale, who_comes_after_the_expiry_gets_what_the_refresh_makes)
{
    struct cache c;
    cache_open(&c, 2);
    check_get(&c, 0, "old", VOW_ROLE_STALE);
    world_advance_ms(&c.s.w, TTL);
    vow_future *f[4];
    for (size_t i = 0; i < 4; i++)
        f[i] = ask(&c, i % 2, 0);
    world_advance_ms(&c.s.w, LEASE);
    labor_end(&c.l, "new");
    world_advance_ms(&c.s.w, LEASE);
    for (int i = 0; i < 4; i++)
        CHECK_TEXT(f[i], "new");
    CHECK_INT_EQ(c.l.n, 2);
    let_go(f, 4);
    cache_close(&c);
}

TEST(authority_stale, a_refresh_whose_process_died_is_done_by_another)
{
    struct cache c;
    cache_open(&c, 2);
    check_get(&c, 0, "old", VOW_ROLE_STALE);
    CHECK_INT_EQ(c.l.n, 2);
    c.s.at[0].flaky.cut = true;
    c.l.run[1].over = true;
    check_get(&c, 1, "old", VOW_ROLE_STALE);
    CHECK_INT_EQ(c.l.n, 2); /* nobody knows that it died */
    for (int i = 0; i < 10 && c.l.n == 2; i++) {
        world_advance_ms(&c.s.w, LEASE / 4);
        check_get(&c, 1, "old", VOW_ROLE_STALE);
    }
    CHECK_INT_EQ(c.l.n, 3);
    labor_end(&c.l, "new");
    world_advance_ms(&c.s.w, 10);
    check_get(&c, 1, "new", VOW_ROLE_CACHED);
    c.s.at[0].flaky.cut = false;
    labor_end_of(&c.l, 1, "of the dead");
    world_advance_ms(&c.s.w, LEASE);
    check_get(&c, 0, "new", VOW_ROLE_CACHED);
    cache_close(&c);
}

TEST(authority_stale, an_authority_that_refreshes_can_be_closed)
{
    struct cache c;
    cache_open(&c, 2);
    check_get(&c, 0, "old", VOW_ROLE_STALE);
    CHECK_INT_EQ(c.l.n, 2);
    stage_leave(&c.s, 0);
    CHECK_INT_EQ(c.l.run[1].canceled, 1);
    check_get(&c, 1, "old", VOW_ROLE_STALE);
    CHECK_INT_EQ(c.l.n, 3); /* at once: it was given up in order */
    labor_end(&c.l, "new");
    world_advance_ms(&c.s.w, 10);
    check_get(&c, 1, "new", VOW_ROLE_CACHED);
    cache_close(&c);
}

TEST(authority_stale, a_loop_that_refreshes_can_be_closed)
{
    struct cache c;
    cache_open(&c, 2);
    check_get(&c, 0, "old", VOW_ROLE_STALE);
    CHECK_INT_EQ(c.l.n, 2);
    CHECK_INT_EQ(vow_loop_close(c.s.loop), 0);
    labor_free(&c.l);
    stage_lost(&c.s);
}

TEST(authority_stale, who_wants_to_refresh_by_itself_is_left_alone)
{
    struct cache c;
    cache_open(&c, 2);
    for (size_t i = 0; i < 4; i++) {
        VOW_AUTO(vow_future) f = ask(&c, i % 2, VOW_SHARE_NO_REFRESH);
        world_advance_ms(&c.s.w, 10);
        CHECK_TEXT(f, "old");
        CHECK_UINT_EQ(c.info.role, VOW_ROLE_STALE);
    }
    CHECK_INT_EQ(c.l.n, 1);
    vow_future *f[4];
    for (size_t i = 0; i < 4; i++)
        f[i] = ask(&c, i % 2, VOW_SHARE_REFRESH);
    world_advance_ms(&c.s.w, 10);
    CHECK_INT_EQ(c.l.n, 2); /* if no other does */
    check_get(&c, 1, "old", VOW_ROLE_STALE);
    labor_end(&c.l, "new");
    world_advance_ms(&c.s.w, 10);
    check_get(&c, 0, "new", VOW_ROLE_CACHED);
    stage_heal(&c.s, &c.l, f, 4); /* however they end, they do */
    for (int i = 0; i < 4; i++)
        (void)vow_error_of(f[i]);
    let_go(f, 4);
    cache_close(&c);
}

/* ---- never beside another run ------------------------------------------- */

TEST(authority_stale, a_refresh_does_not_begin_beside_a_run)
{
    struct cache c;
    cache_open(&c, 2);
    world_advance_ms(&c.s.w, TTL);
    vow_future *f[3] = {ask(&c, 0, 0)};
    world_turn(&c.s.w);
    CHECK_INT_EQ(c.l.n, 2);
    f[1] = ask(&c, 1, VOW_SHARE_REFRESH | VOW_SHARE_NOWAIT);
    world_turn(&c.s.w);
    CHECK_CODE(f[1], VOW_EBUSY);
    f[2] = ask(&c, 1, VOW_SHARE_REFRESH);
    world_advance_ms(&c.s.w, 10);
    CHECK_PENDING(f[2]);
    CHECK_INT_EQ(c.l.n, 2);
    labor_end(&c.l, "new");
    world_advance_ms(&c.s.w, 10);
    CHECK_TEXT(f[0], "new");
    CHECK_TEXT(f[2], "new");
    let_go(f, 3);
    cache_close(&c);
}

TEST(authority_stale, a_refresh_of_an_expired_result_is_an_ordinary_run)
{
    struct cache c;
    cache_open(&c, 2);
    world_advance_ms(&c.s.w, TTL);
    vow_future *f[2] = {ask(&c, 0, VOW_SHARE_REFRESH | VOW_SHARE_NOWAIT)};
    world_turn(&c.s.w);
    CHECK_INT_EQ(c.l.n, 2);
    f[1] = vow_share(c.s.at[1].a, &c.name, labor_work, &c.l, NULL);
    world_advance_ms(&c.s.w, 10);
    CHECK_INT_EQ(c.l.n, 2); /* also without stale_ms it waits for that */
    labor_end(&c.l, "new");
    world_advance_ms(&c.s.w, 10);
    CHECK_TEXT(f[0], "new");
    CHECK_TEXT(f[1], "new");
    check_get(&c, 1, "new", VOW_ROLE_CACHED);
    let_go(f, 2);
    cache_close(&c);
}

/* Around the expiry, at a store whose answers take 30 ms. */
static void refresh_and_ask(int refresh_ms, int ask_ms)
{
    struct cache c;
    cache_open(&c, 2);
    world_advance_ms(&c.s.w, TTL - STALE - 200); /* 100 ms are left */
    for (size_t i = 0; i < 2; i++)
        c.s.at[i].flaky.delay_ms[STEP_CLAIM] =
            c.s.at[i].flaky.delay_ms[STEP_PEEK] = 30;
    vow_future *f[2] = {NULL};
    for (int ms = 0; ms <= 200; ms += 10) {
        if (ms == refresh_ms)
            f[0] = ask(&c, 0, VOW_SHARE_REFRESH | VOW_SHARE_NOWAIT);
        if (ms == ask_ms)
            f[1] = ask(&c, 1, 0);
        world_advance_ms(&c.s.w, 10); /* labor_begin() counts who runs */
    }
    stage_heal(&c.s, &c.l, f, 2);
    CHECK_CODE(f[1], 0);
    (void)vow_error_of(f[0]);
    let_go(f, 2);
    cache_close(&c);
}

TEST(authority_stale, a_refresh_and_a_run_never_go_on_at_once)
{
    for (int refresh_ms = 0; refresh_ms <= 200; refresh_ms += 10)
        for (int ask_ms = 0; ask_ms <= 200; ask_ms += 10)
            refresh_and_ask(refresh_ms, ask_ms);
}

TEST(authority_stale, what_is_made_anew_can_be_stopped_and_then_forgotten)
{
    struct cache c;
    cache_open(&c, 2);
    check_get(&c, 0, "old", VOW_ROLE_STALE);
    VOW_AUTO(vow_future) busy = vow_authority_forget(c.s.at[1].a, &c.name, 0);
    world_turn(&c.s.w);
    CHECK_CODE(busy, VOW_EBUSY);
    check_get(&c, 1, "old", VOW_ROLE_STALE);
    VOW_AUTO(vow_future) stop = vow_authority_cancel(c.s.at[1].a, &c.name);
    world_advance_ms(&c.s.w, LEASE);
    CHECK_CODE(stop, 0);
    VOW_AUTO(vow_future) gone = vow_authority_forget(c.s.at[1].a, &c.name, 0);
    world_turn(&c.s.w);
    CHECK_CODE(gone, 0);
    VOW_AUTO(vow_future) f = ask(&c, 1, 0);
    world_turn(&c.s.w);
    CHECK_PENDING(f);
    CHECK_INT_EQ(c.l.n, 3);
    labor_end(&c.l, "new");
    stage_heal(&c.s, &c.l, &f, 1);
    CHECK_TEXT(f, "new");
    f = vow_future_unref(f);
    busy = vow_future_unref(busy);
    stop = vow_future_unref(stop);
    gone = vow_future_unref(gone);
    cache_close(&c);
}

TEST(authority_stale, a_store_that_is_down_leaves_the_old_result_to_nobody)
{
    struct cache c;
    cache_open(&c, 1);
    flaky_all(&c.s.at[0].flaky, FATE_REFUSED);
    VOW_AUTO(vow_future) f = ask(&c, 0, 0);
    world_turn(&c.s.w);
    CHECK_INT_EQ(c.l.n, 2); /* alone: nothing is known */
    labor_end(&c.l, "alone");
    world_turn(&c.s.w);
    CHECK_TEXT(f, "alone");
    CHECK_UINT_EQ(c.info.role, VOW_ROLE_ALONE);
    flaky_all(&c.s.at[0].flaky, FATE_FINE);
    world_advance_ms(&c.s.w, LEASE);
    f = vow_future_unref(f);
    cache_close(&c);
}

TEST(authority_stale, who_ignores_the_result_waits_for_the_refresh)
{
    struct cache c;
    cache_open(&c, 2);
    check_get(&c, 0, "old", VOW_ROLE_STALE);
    VOW_AUTO(vow_future) f = ask(&c, 1, VOW_SHARE_FORCE);
    world_turn(&c.s.w);
    CHECK_PENDING(f);
    CHECK_INT_EQ(c.l.n, 2);
    labor_end(&c.l, "new");
    world_advance_ms(&c.s.w, 10);
    CHECK_TEXT(f, "new");
    CHECK_INT_EQ(c.l.n, 2);
    f = vow_future_unref(f);
    cache_close(&c);
}

TEST(authority_stale, who_ignores_the_result_works_after_a_failed_refresh)
{
    struct cache c;
    cache_open(&c, 2);
    check_get(&c, 0, "old", VOW_ROLE_STALE);
    vow_future *f[1] = {ask(&c, 1, VOW_SHARE_FORCE)};
    world_turn(&c.s.w);
    CHECK_PENDING(f[0]);
    labor_fail(&c.l, VOW_EIO, "no");
    world_advance_ms(&c.s.w, 2 * LEASE);
    CHECK_PENDING(f[0]); /* not the old result */
    CHECK_INT_EQ(c.l.n, 3);
    labor_end(&c.l, "new");
    world_advance_ms(&c.s.w, 10);
    CHECK_TEXT(f[0], "new");
    let_go(f, 1);
    cache_close(&c);
}

TEST(authority_stale, a_failed_refresh_is_not_followed_at_once)
{
    struct cache c;
    cache_open(&c, 2);
    check_get(&c, 0, "old", VOW_ROLE_STALE);
    labor_fail(&c.l, VOW_EIO, "no");
    world_advance_ms(&c.s.w, 500);
    check_get(&c, 1, "old", VOW_ROLE_STALE);
    CHECK_INT_EQ(c.l.n, 2);
    world_advance_ms(&c.s.w, 500);
    check_get(&c, 1, "old", VOW_ROLE_STALE);
    CHECK_INT_EQ(c.l.n, 3);
    labor_end(&c.l, "new");
    world_advance_ms(&c.s.w, 10);
    check_get(&c, 0, "new", VOW_ROLE_CACHED);
    cache_close(&c);
}

TEST(authority_stale, of_callers_one_after_another_one_refreshes)
{
    struct cache c;
    cache_open(&c, 2);
    VOW_AUTO(vow_future)
    f = ask(&c, 0, VOW_SHARE_REFRESH | VOW_SHARE_NOWAIT);
    world_turn(&c.s.w);
    CHECK_INT_EQ(c.l.n, 2);
    labor_end(&c.l, "new");
    world_advance_ms(&c.s.w, 10);
    CHECK_TEXT(f, "new");
    VOW_AUTO(vow_future)
    late = ask(&c, 1, VOW_SHARE_REFRESH | VOW_SHARE_NOWAIT);
    world_advance_ms(&c.s.w, 10);
    CHECK_CODE(late, VOW_EBUSY);
    CHECK_INT_EQ(c.l.n, 2);
    f = vow_future_unref(f);
    late = vow_future_unref(late);
    cache_close(&c);
}

TEST(authority_stale, a_store_that_cannot_refresh_hands_the_old_result_out)
{
    struct cache c;
    cache_open(&c, 1);
    c.s.at[0].flaky.ops.flags &= ~(uint32_t)VOW_STORE_REFRESHES;
    check_get(&c, 0, "old", VOW_ROLE_STALE);
    world_advance_ms(&c.s.w, 10);
    CHECK_INT_EQ(c.l.n, 1);
    VOW_AUTO(vow_future) f = ask(&c, 0, VOW_SHARE_REFRESH);
    world_turn(&c.s.w);
    CHECK_CODE(f, VOW_ENOTSUP);
    f = vow_future_unref(f);
    cache_close(&c);
}

/* ---- earlier than it must be --------------------------------------------- */

TEST(authority_stale, what_is_quick_to_make_is_not_made_early)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("quick");
    const vow_share_opts *o = VOW_SHARE(.ttl_ms = 100000, .early = 1);
    for (size_t i = 0; i < 500; i++) {
        VOW_AUTO(vow_future)
        f = vow_share(s.at[i % 2].a, &name, labor_work, &l, o);
        world_turn(&s.w);
        if (i == 0)
            labor_end(&l, "x"); /* it took no time at all */
        world_advance_ms(&s.w, 100);
        CHECK_CODE(f, 0);
    }
    CHECK_INT_EQ(l.n, 1);
    for (size_t i = 0; i < 2; i++)
        stage_leave(&s, i);
    labor_free(&l);
    stage_close(&s);
}

TEST(authority_stale, what_takes_long_is_made_early_by_one_of_all)
{
    struct stage s;
    stage_open(&s, 3);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("slow");
    vow_share_info info = {0};
    const vow_share_opts *o =
        VOW_SHARE(.ttl_ms = 10000, .early = 1, .info = &info);
    int waited = 0;
    for (size_t i = 0; i < 3000 && l.n < LABOR_RUNS - 1; i++) {
        VOW_AUTO(vow_future)
        f = vow_share(s.at[i % 3].a, &name, labor_work, &l, o);
        world_turn(&s.w);
        waited += vow_state_of(f) == VOW_PENDING;
        if (l.n > 0 && !labor_last(&l)->over && i % 100 == 99)
            labor_end(&l, "x"); /* it takes a second or so */
        world_advance_ms(&s.w, 20);
        (void)vow_error_of(f);
    }
    CHECK(l.n >= 5);      /* a minute: six times the ttl */
    CHECK(waited <= 200); /* for the first, and rarely for another */
    for (size_t i = 0; i < 3; i++)
        stage_leave(&s, i);
    labor_free(&l);
    stage_close(&s);
}
