/* SPDX-License-Identifier: MIT */
/* authority_store_test.c - stores that fail: what is done without them, what is
 * waited for, and that a lost answer is no second run and no second result. */
#include "authority_rig.h"

static vow_future *ask_with(struct stage *s, struct labor *l, uint32_t mode,
                            uint32_t down, vow_share_info *info)
{
    vow_name name = vow_name_of("work");
    vow_future *f =
        vow_share(s->at[0].a, &name, labor_work, l,
                  VOW_SHARE(.mode = mode, .store_down = down, .info = info));
    world_turn(&s->w);
    return f;
}

/* ---- a store that is down ------------------------------------------------ */

TEST(authority_store, shared_work_is_done_alone_when_the_store_is_down)
{
    for (int how = 0; how < 2; how++) {
        struct stage s;
        stage_open(&s, 1);
        struct labor l = {.loop = s.loop};
        vow_share_info info[3] = {{0}, {0}, {0}};
        vow_future *f[3];
        flaky_all(&s.at[0].flaky, FATE_REFUSED);
        for (int i = 0; i < 3; i++)
            f[i] =
                ask_with(&s, &l, VOW_SHARED,
                         how == 0 ? VOW_DOWN_DEFAULT : VOW_DOWN_RUN, &info[i]);
        CHECK_INT_EQ(l.n, 1); /* one run in this process all the same */
        world_advance_ms(&s.w, 5 * LEASE);
        CHECK_INT_EQ(l.n, 1);
        CHECK_INT_EQ(l.run[0].canceled, 0);
        labor_end(&l, "alone");
        world_advance_ms(&s.w, 1);
        for (int i = 0; i < 3; i++)
            CHECK_TEXT(f[i], "alone");
        CHECK_UINT_EQ(info[0].role, VOW_ROLE_ALONE);
        CHECK_INT_EQ(s.at[0].events[VOW_EVENT_DOWN], 1);
        CHECK_INT_EQ(s.at[0].last[VOW_EVENT_DOWN].code, VOW_ESTORE);
        let_go(f, 3);
        labor_free(&l);
        stage_close(&s);
    }
}

TEST(authority_store, work_that_needs_the_store_fails_without_it)
{
    const struct {
        uint32_t mode, down;
    } all[] = {{VOW_FENCED, VOW_DOWN_DEFAULT},
               {VOW_ONCE, VOW_DOWN_DEFAULT},
               {VOW_SHARED, VOW_DOWN_FAIL},
               {VOW_FENCED, VOW_DOWN_FAIL},
               {VOW_ONCE, VOW_DOWN_FAIL}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct stage s;
        stage_open(&s, 1);
        struct labor l = {.loop = s.loop};
        flaky_all(&s.at[0].flaky, FATE_REFUSED);
        VOW_AUTO(vow_future)
        f = ask_with(&s, &l, all[i].mode, all[i].down, NULL);
        world_advance_ms(&s.w, 1);
        CHECK_CODE(f, VOW_ESTORE);
        CHECK_INT_EQ(l.n, 0);
        flaky_all(&s.at[0].flaky, FATE_FINE);
        VOW_AUTO(vow_future)
        g = ask_with(&s, &l, all[i].mode, all[i].down, NULL);
        labor_end(&l, "up again");
        world_turn(&s.w);
        CHECK_TEXT(g, "up again");
        CHECK_INT_EQ(s.at[0].events[VOW_EVENT_DOWN], 1);
        CHECK_INT_EQ(s.at[0].events[VOW_EVENT_UP], 1);
        f = vow_future_unref(f);
        g = vow_future_unref(g);
        labor_free(&l);
        stage_close(&s);
    }
}

TEST(authority_store, work_that_is_fenced_never_runs_uncoordinated)
{
    for (uint32_t mode = VOW_FENCED; mode <= VOW_ONCE; mode++) {
        struct stage s;
        stage_open(&s, 1);
        struct labor l = {.loop = s.loop};
        flaky_all(&s.at[0].flaky, FATE_REFUSED);
        VOW_AUTO(vow_future) f = ask_with(&s, &l, mode, VOW_DOWN_RUN, NULL);
        world_advance_ms(&s.w, 5 * LEASE);
        CHECK_INT_EQ(l.n, 0);
        CHECK(vow_state_of(f) == VOW_REJECTED);
        (void)vow_error_of(f);
        f = vow_future_unref(f);
        stage_close(&s);
    }
}

TEST(authority_store, who_waits_for_the_store_asks_ever_less_often)
{
    for (uint32_t mode = VOW_SHARED; mode <= VOW_ONCE; mode++) {
        struct stage s;
        stage_open(&s, 2);
        struct labor l = {.loop = s.loop};
        struct flaky *flaky = &s.at[0].flaky;
        flaky_all(flaky, FATE_REFUSED);
        VOW_AUTO(vow_future) f = ask_with(&s, &l, mode, VOW_DOWN_WAIT, NULL);
        world_advance_ms(&s.w, 500);
        CHECK(flaky->begun[STEP_CLAIM] >= 3);
        world_advance_ms(&s.w, 60000);
        CHECK_PENDING(f);
        CHECK_INT_EQ(l.n, 0);
        CHECK_INT_EQ(s.at[0].events[VOW_EVENT_DOWN], 1);
        const int tries = flaky->begun[STEP_CLAIM];
        world_advance_ms(&s.w, 60000); /* seldom, but it does not stop */
        CHECK(flaky->begun[STEP_CLAIM] - tries <= 94);
        CHECK(flaky->begun[STEP_CLAIM] - tries >= 31);
        flaky_all(flaky, FATE_FINE);
        world_advance_ms(&s.w, 60000);
        CHECK_INT_EQ(l.n, 1);
        CHECK_INT_EQ(s.at[0].events[VOW_EVENT_UP], 1);
        labor_end(&l, "at last");
        world_turn(&s.w);
        CHECK_TEXT(f, "at last");
        f = vow_future_unref(f);
        labor_free(&l);
        stage_close(&s);
    }
}

TEST(authority_store, a_mode_that_the_store_does_not_promise_is_refused)
{
    struct stage s;
    stage_open(&s, 1);
    struct labor l = {.loop = s.loop};
    s.at[0].flaky.ops.modes = 1u << VOW_SHARED;
    for (uint32_t mode = VOW_FENCED; mode <= VOW_ONCE; mode++) {
        VOW_AUTO(vow_future) f = ask_with(&s, &l, mode, VOW_DOWN_WAIT, NULL);
        world_turn(&s.w);
        CHECK_CODE(f, VOW_ENOTSUP);
        f = vow_future_unref(f);
    }
    CHECK_INT_EQ(l.n, 0);
    labor_free(&l);
    stage_close(&s);
}

TEST(authority_store, who_looks_and_who_does_not_wait_are_told_that_it_is_down)
{
    struct stage s;
    stage_open(&s, 1);
    vow_name name = vow_name_of("work");
    flaky_all(&s.at[0].flaky, FATE_REFUSED);
    vow_future *f[6];
    f[0] = vow_share(s.at[0].a, &name, NULL, NULL,
                     VOW_SHARE(.flags = VOW_SHARE_PEEK));
    f[1] = vow_authority_forget(s.at[0].a, &name, 0);
    f[2] = vow_authority_cancel(s.at[0].a, &name);
    f[3] = vow_authority_list(s.at[0].a);
    f[4] = vow_authority_peek(s.at[0].a, &name, 1);
    f[5] = vow_authority_resolve(s.at[0].a, &name, 1, VOW_IT_HAPPENED, NULL, 0);
    world_advance_ms(&s.w, 5 * LEASE);
    for (int i = 0; i < 6; i++)
        CHECK_CODE(f[i], VOW_ESTORE);
    let_go(f, 6);
    stage_close(&s);
}

TEST(authority_store, down_and_up_are_each_told_once)
{
    struct stage s;
    stage_open(&s, 1);
    struct labor l = {.loop = s.loop};
    for (int i = 1; i <= 3; i++) {
        flaky_all(&s.at[0].flaky, FATE_REFUSED);
        for (int k = 0; k < 4; k++) {
            VOW_AUTO(vow_future)
            f = ask_with(&s, &l, VOW_SHARED, VOW_DOWN_FAIL, NULL);
            world_advance_ms(&s.w, 700);
            CHECK_CODE(f, VOW_ESTORE);
        }
        CHECK_INT_EQ(s.at[0].events[VOW_EVENT_DOWN], i);
        CHECK_INT_EQ(s.at[0].events[VOW_EVENT_UP], i - 1);
        flaky_all(&s.at[0].flaky, FATE_FINE);
        for (int k = 0; k < 3; k++) {
            VOW_AUTO(vow_future)
            f = ask_with(&s, &l, VOW_SHARED, VOW_DOWN_FAIL, NULL);
            labor_end(&l, "up");
            world_advance_ms(&s.w, 700);
            CHECK_TEXT(f, "up");
        }
        CHECK_INT_EQ(s.at[0].events[VOW_EVENT_UP], i);
    }
    labor_free(&l);
    stage_close(&s);
}

/* ---- answers that were lost ---------------------------------------------- */

/* It looks again, and the answer is on its way when the work is done. */
TEST(authority_store, a_result_that_comes_before_an_answer_is_not_forgotten)
{
    for (uint64_t delay_ms = 1; delay_ms <= 30; delay_ms += 29) {
        struct stage s;
        stage_open(&s, 2);
        struct labor l = {.loop = s.loop};
        vow_name name = vow_name_of("work");
        struct flaky *flaky = &s.at[0].flaky;
        vow_future *f[2];
        f[1] = vow_share(s.at[1].a, &name, labor_work, &l, NULL);
        world_turn(&s.w);
        f[0] = vow_share(s.at[0].a, &name, labor_work, &l, NULL);
        world_turn(&s.w);
        flaky->delay_ms[STEP_CLAIM] = delay_ms;
        const int claims = flaky->begun[STEP_CLAIM];
        while (flaky->begun[STEP_CLAIM] == claims)
            world_advance_ms(&s.w, 1);
        labor_end(&l, "one");
        world_advance_ms(&s.w, 2 * delay_ms + 10);
        CHECK_INT_EQ(l.n, 1);
        CHECK_TEXT(f[0], "one");
        CHECK_TEXT(f[1], "one");
        let_go(f, 2);
        labor_free(&l);
        stage_close(&s);
    }
}

TEST(authority_store, a_claim_whose_answer_was_lost_is_repeated_not_doubled)
{
    for (int how = 0; how < 4; how++) {
        for (uint32_t mode = VOW_SHARED; mode <= VOW_ONCE; mode++) {
            struct stage s;
            stage_open(&s, 2);
            struct labor l = {.loop = s.loop};
            vow_name name = vow_name_of("work");
            struct flaky *flaky = &s.at[0].flaky;
            flaky_next(flaky, STEP_CLAIM,
                       how % 2 == 0 ? FATE_UNSURE_DONE : FATE_UNSURE_NOT, 2);
            flaky->delay_ms[STEP_CLAIM] = how < 2 ? 0 : 20;
            vow_future *f[3];
            for (size_t i = 0; i < 3; i++)
                f[i] = vow_share(
                    s.at[i % 2].a, &name, labor_work, &l,
                    VOW_SHARE(.mode = mode, .store_down = VOW_DOWN_WAIT));
            world_advance_ms(&s.w, LEASE * 9 / 10);
            CHECK_INT_EQ(l.n, 1);
            CHECK(flaky->begun[STEP_CLAIM] >= 3);
            CHECK_MEM_EQ(flaky->claims[1].bytes, flaky->claims[0].bytes, 16);
            CHECK_MEM_EQ(flaky->claims[2].bytes, flaky->claims[0].bytes, 16);
            world_advance_ms(&s.w, 3 * LEASE);
            CHECK_INT_EQ(l.n, 1);
            labor_end(&l, "one");
            world_advance_ms(&s.w, 50);
            for (int i = 0; i < 3; i++)
                CHECK_TEXT(f[i], "one");
            let_go(f, 3);
            labor_free(&l);
            stage_close(&s);
        }
    }
}

TEST(authority_store, a_commit_whose_answer_was_lost_is_repeated_not_doubled)
{
    const enum fate fates[] = {FATE_UNSURE_DONE, FATE_UNSURE_NOT, FATE_REFUSED};
    for (int how = 0; how < 9; how++) {
        struct stage s;
        stage_open(&s, 2);
        struct labor l = {.loop = s.loop};
        vow_name name = vow_name_of("work");
        struct flaky *flaky = &s.at[0].flaky;
        const vow_share_opts *o =
            VOW_SHARE(.mode = (uint32_t)how / 3, .ttl_ms = 60000);
        vow_future *f[3];
        for (size_t i = 0; i < 2; i++)
            f[i] = vow_share(s.at[i].a, &name, labor_work, &l, o);
        world_turn(&s.w);
        VOW_AUTO(vow_future) done = vow_lease_settled(l.run[0].lease);
        flaky_next(flaky, STEP_COMMIT, fates[how % 3], 2);
        labor_end(&l, "one");
        world_advance_ms(&s.w, 2 * LEASE);
        CHECK_TEXT(f[0], "one");
        CHECK_TEXT(f[1], "one");
        CHECK_CODE(done, 0);
        CHECK_INT_EQ(flaky->begun[STEP_COMMIT], 3);
        CHECK_MEM_EQ(flaky->commits[1].bytes, flaky->commits[0].bytes, 16);
        CHECK_MEM_EQ(flaky->commits[2].bytes, flaky->commits[0].bytes, 16);
        CHECK_UINT_EQ(stage_stats(&s, 0).late, 0);
        CHECK_UINT_EQ(stage_stats(&s, 0).lost, 0);
        CHECK_INT_EQ(s.at[0].events[VOW_EVENT_SETTLED], 1);
        f[2] = vow_share(s.at[1].a, &name, labor_work, &l, o);
        world_turn(&s.w);
        CHECK_TEXT(f[2], "one");
        CHECK_INT_EQ(l.n, 1);
        let_go(f, 3);
        done = vow_future_unref(done);
        labor_free(&l);
        stage_close(&s);
    }
}

TEST(authority_store, a_pulse_whose_answer_was_lost_loses_nothing)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("work");
    vow_future *f[2];
    for (size_t i = 0; i < 2; i++)
        f[i] = vow_share(s.at[i].a, &name, labor_work, &l, NULL);
    world_turn(&s.w);
    for (int i = 0; i < 20; i++) { /* every second one */
        flaky_next(&s.at[0].flaky, STEP_PULSE,
                   i % 2 == 0 ? FATE_REFUSED : FATE_UNSURE_DONE, 1);
        world_advance_ms(&s.w, LEASE * 2 / 3);
        CHECK_INT_EQ(labor_live(&l), 1);
    }
    CHECK_UINT_EQ(stage_stats(&s, 0).lost, 0);
    labor_end(&l, "kept");
    world_turn(&s.w);
    CHECK_TEXT(f[0], "kept");
    CHECK_TEXT(f[1], "kept");
    CHECK_INT_EQ(l.n, 1);
    let_go(f, 2);
    labor_free(&l);
    stage_close(&s);
}

/* A run that was waited for counts, also for who would not have taken an old
 * result. */
TEST(authority_store, who_forces_and_hears_nothing_takes_what_it_waited_for)
{
    struct stage s;
    stage_open_with(&s, 2, VOW_AUTHORITY(.recheck_ms = 300));
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("work");
    const vow_share_opts *o =
        VOW_SHARE(.ttl_ms = 60000, .flags = VOW_SHARE_FORCE);
    s.at[1].flaky.deaf = true;
    vow_future *f[2];
    for (size_t i = 0; i < 2; i++)
        f[i] = vow_share(s.at[i].a, &name, labor_work, &l, o);
    world_advance_ms(&s.w, 2 * LEASE);
    labor_end(&l, "once");
    world_advance_ms(&s.w, 2 * LEASE);
    CHECK_INT_EQ(l.n, 1);
    CHECK_TEXT(f[0], "once");
    CHECK_TEXT(f[1], "once");
    let_go(f, 2);
    labor_free(&l);
    stage_close(&s);
}

/* Who claimed has left, and the next asker would have had a longer lease. */
TEST(authority_store, a_lease_is_as_long_as_the_store_was_told)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("work");
    flaky_next(&s.at[0].flaky, STEP_CLAIM, FATE_HELD, 1);
    vow_future *f[3];
    f[0] = vow_share(s.at[0].a, &name, labor_work, &l, NULL);
    f[1] = vow_share(s.at[0].a, &name, labor_work, &l,
                     VOW_SHARE(.lease_ms = 60 * LEASE, .deadline_ms = 1 << 20));
    world_turn(&s.w);
    f[2] = vow_share(s.at[1].a, &name, labor_work, &l, NULL);
    CHECK(vow_cancel(f[0], NULL));
    flaky_release(&s.at[0].flaky);
    world_turn(&s.w);
    CHECK_INT_EQ(l.n, 1);
    CHECK(vow_lease_left_ms(l.run[0].lease) <= LEASE);
    world_advance_ms(&s.w, 10 * LEASE); /* nobody takes it over */
    CHECK_INT_EQ(l.n, 1);
    labor_end(&l, "kept");
    world_turn(&s.w);
    CHECK_TEXT(f[1], "kept");
    CHECK_TEXT(f[2], "kept");
    let_go(f, 3);
    labor_free(&l);
    stage_close(&s);
}

TEST(authority_store, each_asker_has_its_own_way_to_do_without_the_store)
{
    const enum fate fates[] = {FATE_REFUSED, FATE_UNSURE_NOT, FATE_UNSURE_DONE};
    for (int how = 0; how < 3; how++) {
        struct stage s;
        stage_open(&s, 1);
        struct labor l = {.loop = s.loop, .loose = true};
        vow_name name = vow_name_of("work");
        const uint32_t down[6] = {VOW_DOWN_FAIL, VOW_DOWN_FAIL, VOW_DOWN_WAIT,
                                  VOW_DOWN_RUN,  VOW_DOWN_RUN,  VOW_DOWN_WAIT};
        flaky_all(&s.at[0].flaky, fates[how]);
        s.at[0].flaky.delay_ms[STEP_CLAIM] = 5;
        vow_future *f[6];
        for (int i = 0; i < 6; i++)
            f[i] = vow_share(s.at[0].a, &name, labor_work, &l,
                             VOW_SHARE(.store_down = down[i]));
        world_advance_ms(&s.w, LEASE);
        CHECK_INT_EQ(l.n, 1);
        labor_end(&l, "alone");
        world_advance_ms(&s.w, LEASE);
        for (int i = 0; i < 6; i++) {
            if (down[i] == VOW_DOWN_FAIL)
                CHECK_CODE(f[i], VOW_ESTORE);
            else if (down[i] == VOW_DOWN_RUN)
                CHECK_TEXT(f[i], "alone");
            else
                CHECK_PENDING(f[i]);
        }
        stage_heal(&s, &l, f, 6);
        CHECK_TEXT(f[2], "healed");
        CHECK_TEXT(f[5], "healed");
        let_go(f, 6);
        labor_free(&l);
        stage_close(&s);
    }
}

/* ---- a store that fails while the work runs ------------------------------ */

/* Process 0 is cut off while it works; process 1 waits for the result. */
static void cut_while_running(uint32_t mode, uint64_t ms, bool finish)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop, .loose = mode == VOW_SHARED};
    vow_name name = vow_name_of("work");
    const vow_share_opts *o =
        VOW_SHARE(.mode = mode, .ttl_ms = 600000, .store_down = VOW_DOWN_WAIT);
    vow_future *f[3];
    for (size_t i = 0; i < 2; i++)
        f[i] = vow_share(s.at[i].a, &name, labor_work, &l, o);
    world_turn(&s.w);
    VOW_AUTO(vow_future) lost = vow_lease_lost(l.run[0].lease);
    s.at[0].flaky.cut = true;
    if (finish)
        labor_end(&l, "first");
    world_advance_ms(&s.w, ms);
    if (ms >= LEASE && !finish) /* before another can have it */
        CHECK_CODE(lost, VOW_ELOST);
    stage_heal(&s, &l, f, 2);
    if (mode == VOW_ONCE && vow_state_of(f[1]) == VOW_REJECTED) {
        CHECK_CODE(f[1], VOW_EDOUBT);
        CHECK_INT_EQ(l.n, 1);
    } else {
        CHECK_CODE(f[1], 0);
        f[2] = vow_share(s.at[1].a, &name, labor_work, &l, o);
        world_turn(&s.w);
        vow_bytes *a = vow_as_bytes(vow_get(f[1]));
        vow_bytes *b = vow_as_bytes(vow_get(f[2]));
        CHECK_UINT_EQ(vow_bytes_size(a), vow_bytes_size(b));
        CHECK_MEM_EQ(vow_bytes_data(a), vow_bytes_data(b), vow_bytes_size(a));
        vow_future_unref(f[2]);
    }
    if (mode == VOW_FENCED && vow_state_of(f[0]) == VOW_FULFILLED)
        CHECK_MEM_EQ(vow_bytes_data(vow_as_bytes(vow_get(f[0]))),
                     vow_bytes_data(vow_as_bytes(vow_get(f[1]))), 5);
    else if (mode == VOW_FENCED) /* nobody knows whether it counts */
        CHECK_CODE(f[0], VOW_EUNSURE);
    (void)vow_error_of(f[0]);
    (void)vow_error_of(lost);
    let_go(f, 2);
    lost = vow_future_unref(lost);
    labor_free(&l);
    stage_close(&s);
}

TEST(authority_store, a_process_that_is_cut_off_agrees_with_the_rest)
{
    for (uint32_t mode = VOW_SHARED; mode <= VOW_ONCE; mode++) {
        for (uint64_t ms = 100; ms < 5 * LEASE; ms += 350) {
            cut_while_running(mode, ms, false);
            cut_while_running(mode, ms, true);
        }
    }
}

TEST(authority_store, who_waits_settles_though_all_wake_ups_are_lost)
{
    for (int how = 0; how < 3; how++) {
        struct stage s;
        stage_open_with(&s, 3, VOW_AUTHORITY(.recheck_ms = 500));
        struct labor l = {.loop = s.loop};
        vow_name name = vow_name_of("work");
        vow_future *f[6];
        for (size_t i = 0; i < 3; i++) {
            s.at[i].flaky.deaf = how < 2;
            s.at[i].flaky.doubled = how == 2;
        }
        for (size_t i = 0; i < 6; i++)
            f[i] = vow_share(s.at[i % 3].a, &name, labor_work, &l,
                             VOW_SHARE(.ttl_ms = 60000));
        world_advance_ms(&s.w, 100);
        if (how == 1) {
            l.run[0].over = true;
            CHECK(vow_lease_abandon(l.run[0].lease));
            world_advance_ms(&s.w, 2 * LEASE);
            CHECK_INT_EQ(l.n, 2);
        }
        labor_end(&l, "seen");
        world_advance_ms(&s.w, 1100);
        for (int i = 0; i < 6; i++)
            CHECK_TEXT(f[i], "seen");
        CHECK_INT_EQ(l.n, how == 1 ? 2 : 1);
        let_go(f, 6);
        labor_free(&l);
        stage_close(&s);
    }
}

TEST(authority_store, the_end_of_an_authority_waits_for_no_broken_store)
{
    const enum fate fates[] = {FATE_REFUSED, FATE_UNSURE_NOT, FATE_HELD};
    for (int how = 0; how < 6; how++) {
        struct stage s;
        stage_open(&s, 1);
        struct labor l = {.loop = s.loop};
        VOW_AUTO(vow_future)
        f = ask_with(&s, &l, VOW_SHARED, VOW_DOWN_DEFAULT, NULL);
        flaky_all(&s.at[0].flaky, fates[how % 3]);
        if (how >= 3)
            labor_end(&l, "unsaid");
        world_turn(&s.w);
        VOW_AUTO(vow_future) closed = vow_authority_close(s.at[0].a);
        world_advance_ms(&s.w, 10 * LEASE);
        CHECK_CODE(closed, 0);
        CHECK(vow_state_of(f) != VOW_PENDING);
        (void)vow_error_of(f);
        s.at[0].gone = true;
        vow_authority_unref(s.at[0].a);
        f = vow_future_unref(f);
        closed = vow_future_unref(closed);
        labor_free(&l);
        stage_close(&s);
    }
}

TEST(authority_store, a_store_that_is_busy_for_a_moment_is_waited_for)
{
    struct stage s;
    stage_open(&s, 1);
    struct labor l = {.loop = s.loop};
    vow_share_info info = {0};
    s.at[0].flaky.fate[STEP_CLAIM] = FATE_BUSY;
    s.at[0].flaky.fates[STEP_CLAIM] = 3;
    VOW_AUTO(vow_future)
    f = ask_with(&s, &l, VOW_SHARED, VOW_DOWN_RUN, &info);
    CHECK_INT_EQ(l.n, 0);
    world_advance_ms(&s.w, LEASE - 1);
    CHECK_INT_EQ(l.n, 1);
    labor_end(&l, "together");
    world_advance_ms(&s.w, 1);
    CHECK_TEXT(f, "together");
    CHECK_UINT_EQ(info.role, VOW_ROLE_RAN);
    CHECK_INT_EQ(s.at[0].events[VOW_EVENT_DOWN], 0);
    f = vow_future_unref(f);
    labor_free(&l);
    stage_close(&s);
}

TEST(authority_store, a_store_that_is_busy_for_a_lease_is_down_and_that_is_told)
{
    struct stage s;
    stage_open(&s, 1);
    struct labor l = {.loop = s.loop};
    vow_share_info info = {0};
    flaky_all(&s.at[0].flaky, FATE_BUSY);
    VOW_AUTO(vow_future)
    f = ask_with(&s, &l, VOW_SHARED, VOW_DOWN_RUN, &info);
    world_advance_ms(&s.w, 4 * LEASE);
    CHECK_INT_EQ(l.n, 1);
    labor_end(&l, "alone");
    world_advance_ms(&s.w, 1);
    CHECK_TEXT(f, "alone");
    CHECK_UINT_EQ(info.role, VOW_ROLE_ALONE);
    CHECK_INT_EQ(s.at[0].events[VOW_EVENT_DOWN], 1);
    f = vow_future_unref(f);
    labor_free(&l);
    stage_close(&s);
}
