/* SPDX-License-Identifier: MIT */
/* pipeline_lost_test.c - pipelines that hooked on to somebody who is lost. */
#include "pipeline_other.h"

static struct rig rig;
static struct other other;

static void open_both(void)
{
    rig_open(&rig);
    CHECK(other_open(&other, &rig));
}

static void close_both(void)
{
    other_close(&other);
    rig_close(&rig);
}

TEST(pipeline_lost, takes_over_with_all_that_the_step_needs)
{
    open_both();
    vow_step_info info[4];
    other_claims(&other, "abc");
    vow_future *f = ask_with(&rig, rig.a[0], "abcd",
                             (vow_share_opts){.ttl_ms = 60000}, info);
    world_advance_ms(rig.w, 900);
    CHECK_UINT_EQ(rig.n_tallies, 0); /* it only waits */
    world_advance_ms(rig.w, 400);
    check_text(f, "abcd");
    check_runs_are(&rig, 1);
    CHECK_UINT_EQ(info[0].role, VOW_ROLE_RAN);
    CHECK_UINT_EQ(info[1].role, VOW_ROLE_RAN);
    CHECK_UINT_EQ(info[2].role, VOW_ROLE_TAKEOVER);
    CHECK_UINT_EQ(info[3].role, VOW_ROLE_RAN);
    close_both();
}

TEST(pipeline_lost, what_is_known_by_then_is_not_done_again)
{
    open_both();
    act(&rig, 'p')->flags = VOW_STEP_PRIVATE;
    vow_future *f = ask_for(&rig, "ab");
    world_advance_ms(rig.w, 100);
    check_text(f, "ab");
    other_claims(&other, "abpc");
    vow_step_info info[4];
    f = ask_with(&rig, rig.a[1], "abpc", (vow_share_opts){.ttl_ms = 60000},
                 info);
    world_advance_ms(rig.w, 1300);
    check_text(f, "abpc");
    check_runs_are(&rig, 1);
    CHECK_UINT_EQ(info[0].role, VOW_ROLE_NONE);
    CHECK_UINT_EQ(info[1].role, VOW_ROLE_CACHED);
    CHECK_UINT_EQ(info[2].role, VOW_ROLE_RAN);
    CHECK_UINT_EQ(info[3].role, VOW_ROLE_TAKEOVER);
    close_both();
}

TEST(pipeline_lost, one_of_all_who_wait_takes_over)
{
    open_both();
    other_claims(&other, "ab");
    vow_future *f[10];
    for (int i = 0; i < 10; i++)
        f[i] = ask_with(&rig, rig.a[i % 2], i < 5 ? "abc" : "ab",
                        (vow_share_opts){.ttl_ms = 60000}, NULL);
    world_advance_ms(rig.w, 1500);
    for (int i = 0; i < 10; i++)
        check_text(f[i], i < 5 ? "abc" : "ab");
    check_runs_are(&rig, 1);
    close_both();
}

TEST(pipeline_lost, a_result_of_who_was_only_late_is_taken)
{
    open_both();
    other_claims(&other, "ab");
    vow_future *f = ask_for(&rig, "abc");
    world_advance_ms(rig.w, 500);
    other_commits(&other, "AB");
    world_advance_ms(rig.w, 10);
    check_text(f, "ABc");
    CHECK_UINT_EQ(rig.n_tallies, 1);
    close_both();
}

TEST(pipeline_lost, a_cancel_while_the_input_is_walked_to_leaves_all)
{
    open_both();
    act(&rig, 'a')->ms = 500;
    other_claims(&other, "ab");
    vow_future *f = ask_for(&rig, "ab");
    world_advance_ms(rig.w, 1200);
    CHECK_INT_EQ(rig.running, 1); /* of a, for b */
    CHECK_UINT_EQ(vow_authority_stats_get(rig.a[0]).running, 2);
    CHECK(vow_cancel(f, NULL));
    check_code(f, VOW_ECANCELED);
    world_advance_ms(rig.w, 0);
    CHECK_INT_EQ(rig.running, 0);
    CHECK_UINT_EQ(vow_authority_stats_get(rig.a[0]).running, 0);
    close_both();
}

TEST(pipeline_lost, others_keep_a_step_whose_pipeline_has_left)
{
    open_both();
    act(&rig, 'a')->ms = 500;
    other_claims(&other, "ab");
    vow_future *f = ask_for(&rig, "abc");
    vow_future *g = ask_for(&rig, "abd");
    world_advance_ms(rig.w, 1200);
    CHECK(vow_cancel(f, NULL));
    check_code(f, VOW_ECANCELED);
    world_advance_ms(rig.w, 600);
    check_text(g, "abd");
    check_runs_are(&rig, 1);
    close_both();
}

TEST(pipeline_lost, the_failure_of_the_input_is_that_of_the_step)
{
    open_both();
    act(&rig, 'a')->code = VOW_EIO;
    act(&rig, 'a')->fails = 1;
    other_claims(&other, "abc");
    vow_future *f = ask_for(&rig, "abcd");
    world_advance_ms(rig.w, 1500);
    check_code(f, VOW_EIO);
    CHECK_UINT_EQ(rig.n_tallies, 1);
    close_both();
}

TEST(pipeline_lost, a_lease_kept_by_hand_is_kept_for_it_while_it_waits)
{
    open_both();
    act(&rig, 'a')->ms = 5000;
    vow_future *g = ask_with(&rig, rig.a[1], "a", (vow_share_opts){0}, NULL);
    world_advance_ms(rig.w, 0);
    other_claims(&other, "ab");
    vow_step_info info[2];
    vow_future *f = ask_with(
        &rig, rig.a[0], "ab",
        (vow_share_opts){.flags = VOW_SHARE_MANUAL_PULSE, .takeovers = 1},
        info);
    world_advance_ms(rig.w, 5100);
    check_text(g, "a");
    check_text(f, "ab");
    check_runs_are(&rig, 1);
    CHECK_UINT_EQ(info[1].role, VOW_ROLE_TAKEOVER);
    CHECK_UINT_EQ(vow_authority_stats_get(rig.a[0]).lost, 0);
    close_both();
}

/* Its step says nothing while it works: it is taken for dead, and another does
 * it, sooner or later the one who pulses. Its own results come too late. */
TEST(pipeline_lost, a_runner_that_shows_no_sign_is_replaced)
{
    open_both();
    const vow_share_opts quiet = {.flags = VOW_SHARE_MANUAL_PULSE,
                                  .takeovers = 100};
    act(&rig, 'b')->ms = 3000;
    vow_future *f = ask_with(&rig, rig.a[0], "abc", quiet, NULL);
    world_advance_ms(rig.w, 100);
    vow_future *g = ask_with(&rig, rig.a[1], "abd",
                             (vow_share_opts){.takeovers = 100}, NULL);
    world_advance_ms(rig.w, 120000);
    check_text(f, "abc");
    check_text(g, "abd");
    CHECK(runs(&rig, "ab") >= 2);
    CHECK(vow_authority_stats_get(rig.a[0]).lost >= 1);
    close_both();
}

TEST(pipeline_lost, who_takes_over_does_not_force_what_is_there)
{
    open_both();
    vow_future *f = ask_for(&rig, "a");
    world_advance_ms(rig.w, 100);
    check_text(f, "a");
    other_claims(&other, "ab");
    f = ask_with(&rig, rig.a[0], "ab",
                 (vow_share_opts){.flags = VOW_SHARE_FORCE}, NULL);
    world_advance_ms(rig.w, 1500);
    check_text(f, "ab");
    check_runs_are(&rig, 1);
    close_both();
}

TEST(pipeline_lost, the_deadline_of_one_is_not_that_of_the_step_it_does)
{
    open_both();
    act(&rig, 'a')->ms = 1500;
    other_claims(&other, "ab");
    vow_future *f = ask_with(&rig, rig.a[0], "ab",
                             (vow_share_opts){.deadline_ms = 1300}, NULL);
    vow_future *g = ask_for(&rig, "ab");
    world_advance_ms(rig.w, 1299);
    CHECK_INT_EQ(runs(&rig, "a"), 1); /* on behalf of f, which came first */
    world_advance_ms(rig.w, 1);
    check_code(f, VOW_ETIMEDOUT);
    world_advance_ms(rig.w, 2000);
    check_text(g, "ab");
    check_runs_are(&rig, 1);
    close_both();
}

TEST(pipeline_lost, in_doubt_fails_at_once_and_does_nothing)
{
    open_both();
    other.hold.name = name_of(&rig, "abc");
    const vow_claim_request once = {.name = other.hold.name,
                                    .token = other.hold.token,
                                    .mode = VOW_ONCE,
                                    .lease_ms = 100};
    other.store->ops->claim(other.store, &once, other_heard, &other);
    world_advance_ms(rig.w, 1000);
    vow_future *f = ask_with(&rig, rig.a[0], "abcd",
                             (vow_share_opts){.mode = VOW_ONCE}, NULL);
    world_advance_ms(rig.w, 0);
    check_code(f, VOW_EDOUBT);
    CHECK_UINT_EQ(rig.n_tallies, 0);
    close_both();
}

TEST(pipeline_lost, without_the_store_it_is_done_alone)
{
    open_both();
    vow_step_info info[3];
    act(&rig, 'p')->flags = VOW_STEP_PRIVATE;
    cut_off(&rig);
    vow_future *f = ask_with(&rig, rig.a[0], "apb", (vow_share_opts){0}, info);
    world_advance_ms(rig.w, 30);
    check_text(f, "apb");
    CHECK_UINT_EQ(info[0].role, VOW_ROLE_ALONE);
    CHECK_UINT_EQ(info[1].role, VOW_ROLE_RAN);
    CHECK_UINT_EQ(info[2].role, VOW_ROLE_ALONE);
    f = ask_with(&rig, rig.a[0], "ab",
                 (vow_share_opts){.store_down = VOW_DOWN_FAIL}, NULL);
    world_advance_ms(rig.w, 30);
    check_code(f, VOW_ESTORE);
    close_both();
}
