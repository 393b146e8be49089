/* SPDX-License-Identifier: MIT */
/* share_test.c - named work in one process and in several: who works, who
 * waits, what each gets. */
#include "share_rig.h"

static vow_future *at_once(vow_lease *lease, void *arg)
{
    struct hand *h = arg;
    (void)lease;
    h->runs++;
    return vow_resolved(h->loop, text_value(h->loop, "result"));
}

static vow_future *fails(vow_lease *lease, void *arg)
{
    struct hand *h = arg;
    (void)lease;
    h->runs++;
    return vow_rejected(h->loop,
                        vow_error_new(h->loop, VOW_EIO, "attempt %d", h->runs));
}

TEST(share, one_of_many_does_the_work_and_all_get_its_result)
{
    struct rig r;
    rig_open(&r, 1);
    struct hand h = {.loop = r.w.loop};
    vow_name name = vow_name_of("report");
    vow_future *f[100];
    for (int i = 0; i < 100; i++)
        f[i] = vow_share(r.at[0], &name, hand_work, &h, NULL);
    world_turn(&r.w);
    CHECK_INT_EQ(h.runs, 1);
    CHECK(vow_resolve(h.end, text_value(r.w.loop, "once")));
    world_turn(&r.w);
    for (int i = 0; i < 100; i++) {
        CHECK_TEXT(f[i], "once");
        vow_future_unref(f[i]);
    }
    hand_free(&h);
    CHECK_UINT_EQ(vow_authority_stats_get(r.at[0]).runs, 1);
    CHECK_UINT_EQ(vow_authority_stats_get(r.at[0]).names, 0);
    rig_close(&r);
}

TEST(share, without_a_ttl_who_asks_later_has_it_done_again)
{
    struct rig r;
    rig_open(&r, 1);
    struct hand h = {.loop = r.w.loop};
    vow_name name = vow_name_of("again");
    for (int i = 1; i <= 3; i++) {
        VOW_AUTO(vow_future) f = vow_share(r.at[0], &name, at_once, &h, NULL);
        CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
        CHECK_TEXT(f, "result");
        CHECK_INT_EQ(h.runs, i);
    }
    rig_close(&r);
}

TEST(share, a_result_is_kept_for_its_ttl_and_no_longer)
{
    struct rig r;
    rig_open(&r, 2);
    struct hand h = {.loop = r.w.loop};
    vow_name name = vow_name_of("kept");
    vow_share_info info = {0};
    const vow_share_opts *o = VOW_SHARE(.ttl_ms = 1000, .info = &info);
    for (int i = 0; i < 4; i++) {
        VOW_AUTO(vow_future) f = vow_share(r.at[i % 2], &name, at_once, &h, o);
        CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
        CHECK_TEXT(f, "result");
        CHECK_UINT_EQ(info.role, i == 0 ? VOW_ROLE_RAN : VOW_ROLE_CACHED);
        world_advance_ms(&r.w, 200);
    }
    CHECK_INT_EQ(h.runs, 1);
    world_advance_ms(&r.w, 400);
    VOW_AUTO(vow_future) f = vow_share(r.at[1], &name, at_once, &h, o);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
    CHECK_INT_EQ(h.runs, 2);
    f = vow_future_unref(f);
    rig_close(&r);
}

TEST(share, two_processes_share_one_run)
{
    struct rig r;
    rig_open(&r, 2);
    struct hand a = {.loop = r.w.loop}, b = {.loop = r.w.loop};
    vow_name name = vow_name_of("both");
    vow_share_info ia = {0}, ib = {0};
    VOW_AUTO(vow_future)
    fa = vow_share(r.at[0], &name, hand_work, &a, VOW_SHARE(.info = &ia));
    VOW_AUTO(vow_future)
    fb = vow_share(r.at[1], &name, hand_work, &b, VOW_SHARE(.info = &ib));
    world_advance_ms(&r.w, 5000); /* longer than the lease: pulses hold it */
    CHECK_INT_EQ(a.runs, 1);
    CHECK_INT_EQ(b.runs, 0);
    CHECK(vow_resolve(a.end, text_value(r.w.loop, "shared")));
    world_turn(&r.w);
    CHECK_TEXT(fa, "shared");
    CHECK_TEXT(fb, "shared");
    CHECK_UINT_EQ(ia.role, VOW_ROLE_RAN);
    CHECK_UINT_EQ(ib.role, VOW_ROLE_JOINED);
    CHECK_UINT_EQ(ia.fence, ib.fence);
    CHECK_UINT_EQ(vow_authority_stats_get(r.at[0]).lost, 0);
    fa = vow_future_unref(fa);
    fb = vow_future_unref(fb);
    hand_free(&a);
    rig_close(&r);
}

TEST(share, a_failure_goes_to_all_and_is_kept_for_its_own_time)
{
    struct rig r;
    rig_open(&r, 2);
    struct hand h = {.loop = r.w.loop};
    vow_name name = vow_name_of("failure");
    const vow_share_opts *o = VOW_SHARE(.fail_ttl_ms = 500, .ttl_ms = 9000);
    for (int i = 0; i < 3; i++) {
        VOW_AUTO(vow_future) f = vow_share(r.at[i % 2], &name, fails, &h, o);
        CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), VOW_EIO);
        CHECK_STR_EQ(vow_error_message(vow_error_of(f)), "attempt 1");
    }
    CHECK_INT_EQ(h.runs, 1);
    world_advance_ms(&r.w, 600);
    VOW_AUTO(vow_future) f = vow_share(r.at[0], &name, fails, &h, o);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), VOW_EIO);
    CHECK_INT_EQ(h.runs, 2);
    f = vow_future_unref(f);
    rig_close(&r);
}

TEST(share, a_failed_attempt_is_followed_by_another_and_waiters_notice_nothing)
{
    struct rig r;
    rig_open(&r, 1);
    struct hand h = {.loop = r.w.loop};
    vow_name name = vow_name_of("retry");
    const vow_share_opts *o = VOW_SHARE(.tries = 3);
    VOW_AUTO(vow_future) f = vow_share(r.at[0], &name, hand_work, &h, o);
    VOW_AUTO(vow_future) g = vow_share(r.at[0], &name, hand_work, &h, o);
    for (int i = 1; i <= 2; i++) {
        world_turn(&r.w);
        CHECK_INT_EQ(h.runs, i);
        CHECK_UINT_EQ(vow_lease_attempt(h.lease), (unsigned)i);
        (void)vow_reject_code(h.end, VOW_EIO, "not this time");
        world_turn(&r.w);
        CHECK(vow_state_of(f) == VOW_PENDING);
    }
    CHECK(vow_resolve(h.end, text_value(r.w.loop, "third")));
    world_turn(&r.w);
    CHECK_TEXT(f, "third");
    CHECK_TEXT(g, "third");
    CHECK_UINT_EQ(r.events[VOW_EVENT_RETRY], 2);
    f = vow_future_unref(f);
    g = vow_future_unref(g);
    hand_free(&h);
    rig_close(&r);
}

TEST(share, when_all_attempts_failed_the_first_error_is_told)
{
    struct rig r;
    rig_open(&r, 1);
    struct hand h = {.loop = r.w.loop};
    vow_name name = vow_name_of("bounded");
    VOW_AUTO(vow_future)
    f = vow_share(r.at[0], &name, fails, &h, VOW_SHARE(.tries = 4));
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), VOW_EIO);
    CHECK_INT_EQ(h.runs, 4);
    CHECK_STR_EQ(vow_error_message(vow_error_of(f)), "attempt 1");
    f = vow_future_unref(f);
    rig_close(&r);
}

TEST(share, the_first_callers_cancel_does_not_fail_the_others)
{
    struct rig r;
    rig_open(&r, 1);
    struct hand h = {.loop = r.w.loop};
    vow_name name = vow_name_of("baton");
    VOW_AUTO(vow_future) f = vow_share(r.at[0], &name, hand_work, &h, NULL);
    VOW_AUTO(vow_future) g = vow_share(r.at[0], &name, hand_work, &h, NULL);
    world_turn(&r.w);
    CHECK(vow_cancel(f, NULL));
    world_turn(&r.w);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_ECANCELED);
    CHECK_INT_EQ(h.canceled, 0);
    CHECK(vow_resolve(h.end, text_value(r.w.loop, "alive")));
    world_turn(&r.w);
    CHECK_TEXT(g, "alive");
    CHECK_INT_EQ(h.runs, 1);
    f = vow_future_unref(f);
    g = vow_future_unref(g);
    hand_free(&h);
    rig_close(&r);
}

TEST(share,
     when_the_last_leaves_the_work_is_canceled_and_a_newcomer_begins_anew)
{
    struct rig r;
    rig_open(&r, 1);
    struct hand h = {.loop = r.w.loop}, next = {.loop = r.w.loop};
    vow_name name = vow_name_of("dying");
    VOW_AUTO(vow_future) f = vow_share(r.at[0], &name, hand_work, &h, NULL);
    world_turn(&r.w);
    CHECK(vow_cancel(f, NULL));
    world_turn(&r.w);
    CHECK_INT_EQ(h.canceled, 1);
    VOW_AUTO(vow_future) g = vow_share(r.at[0], &name, hand_work, &next, NULL);
    world_turn(&r.w);
    CHECK_INT_EQ(next.runs, 1);
    CHECK(vow_resolve(next.end, text_value(r.w.loop, "new")));
    world_turn(&r.w);
    CHECK_TEXT(g, "new");
    f = vow_future_unref(f);
    g = vow_future_unref(g);
    hand_free(&h);
    hand_free(&next);
    rig_close(&r);
}

TEST(share, a_deadline_is_of_one_asker_alone)
{
    struct rig r;
    rig_open(&r, 1);
    struct hand h = {.loop = r.w.loop};
    vow_name name = vow_name_of("deadline");
    VOW_AUTO(vow_future)
    f = vow_share(r.at[0], &name, hand_work, &h, VOW_SHARE(.deadline_ms = 50));
    VOW_AUTO(vow_future) g = vow_share(r.at[0], &name, hand_work, &h, NULL);
    world_advance_ms(&r.w, 60);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_ETIMEDOUT);
    CHECK(vow_state_of(g) == VOW_PENDING);
    CHECK(vow_resolve(h.end, text_value(r.w.loop, "later")));
    world_turn(&r.w);
    CHECK_TEXT(g, "later");
    f = vow_future_unref(f);
    g = vow_future_unref(g);
    hand_free(&h);
    rig_close(&r);
}

TEST(share, a_worker_that_shows_no_sign_is_replaced_and_its_late_result_ignored)
{
    struct rig r;
    rig_open(&r, 2);
    struct hand a = {.loop = r.w.loop}, b = {.loop = r.w.loop};
    vow_name name = vow_name_of("false death");
    const vow_share_opts *o =
        VOW_SHARE(.flags = VOW_SHARE_MANUAL_PULSE | VOW_SHARE_KEEP);
    VOW_AUTO(vow_future) fa = vow_share(r.at[0], &name, hand_work, &a, o);
    VOW_AUTO(vow_future) fb = vow_share(r.at[1], &name, hand_work, &b, o);
    world_turn(&r.w);
    VOW_AUTO(vow_future) lost = vow_lease_lost(a.lease);
    for (int i = 0; i < 10; i++) { /* signs of life keep it */
        world_advance_ms(&r.w, 300);
        CHECK(vow_lease_pulse(a.lease));
    }
    CHECK_INT_EQ(b.runs, 0);
    world_advance_ms(&r.w, 1500);
    CHECK_INT_EQ(vow_error_code(vow_error_of(lost)), VOW_ELOST);
    CHECK_INT_EQ(b.runs, 1);
    CHECK(vow_lease_fence(b.lease) > vow_lease_fence(a.lease));
    CHECK_UINT_EQ(vow_lease_left_ms(a.lease), 0);
    (void)vow_resolve(a.end, text_value(r.w.loop, "late"));
    world_turn(&r.w);
    CHECK(vow_state_of(fa) == VOW_PENDING);
    (void)vow_lease_pulse(b.lease);
    CHECK(vow_resolve(b.end, text_value(r.w.loop, "successor")));
    world_turn(&r.w);
    CHECK_TEXT(fa, "successor");
    CHECK_TEXT(fb, "successor");
    CHECK_UINT_EQ(vow_authority_stats_get(r.at[0]).late, 1);
    fa = vow_future_unref(fa);
    fb = vow_future_unref(fb);
    lost = vow_future_unref(lost);
    hand_free(&a);
    hand_free(&b);
    rig_close(&r);
}

TEST(share, within_one_process_the_sweep_gives_the_work_to_another_asker)
{
    struct rig r;
    rig_open(&r, 1);
    struct hand a = {.loop = r.w.loop}, b = {.loop = r.w.loop};
    vow_name name = vow_name_of("sweep");
    const vow_share_opts *o = VOW_SHARE(.flags = VOW_SHARE_MANUAL_PULSE);
    VOW_AUTO(vow_future) fa = vow_share(r.at[0], &name, hand_work, &a, o);
    VOW_AUTO(vow_future) fb = vow_share(r.at[0], &name, hand_work, &b, o);
    world_turn(&r.w);
    world_advance_ms(&r.w, 1500);
    CHECK_INT_EQ(a.canceled, 1); /* told that it lost */
    CHECK_INT_EQ(b.runs, 1);
    CHECK(vow_resolve(b.end, text_value(r.w.loop, "second")));
    world_turn(&r.w);
    CHECK_TEXT(fa, "second");
    CHECK_TEXT(fb, "second");
    fa = vow_future_unref(fa);
    fb = vow_future_unref(fb);
    hand_free(&a);
    hand_free(&b);
    rig_close(&r);
}
