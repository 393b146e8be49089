/* SPDX-License-Identifier: MIT */
/* pipeline_test.c - pipelines: names, shared beginnings, private steps,
 * failure. */
#include "pipeline_rig.h"

static struct rig rig;

/* ---- names ------------------------------------------------------------- */

TEST(pipeline, names_depend_on_all_steps_before_the_source_and_the_key)
{
    const vow_field f[] = {{"a", 1}, {"b", 1}, {"ab", 2},
                           {"c", 1}, {"", 0},  {"v2", 2}};
    const vow_pipe_step ab[] = {{.fields = &f[0], .n_fields = 1},
                                {.fields = &f[1], .n_fields = 1}};
    const vow_pipe_step both[] = {{.fields = &f[0], .n_fields = 2}};
    const vow_pipe_step other[] = {{.fields = &f[3], .n_fields = 1},
                                   {.fields = &f[1], .n_fields = 1}};
    vow_name n[2], m[2];
    vow_pipeline_names(ab, 2, NULL, n);
    vow_name source = vow_name_make(NULL, NULL, 0);
    vow_name first = vow_name_step(NULL, &source, &f[0], 1);
    vow_name second = vow_name_step(NULL, &first, &f[1], 1);
    CHECK(vow_name_equal(&n[0], &first));
    CHECK(vow_name_equal(&n[1], &second));
    vow_pipeline_names(both, 1, NULL, m);
    CHECK(!vow_name_equal(&m[0], &n[0]));
    CHECK(!vow_name_equal(&m[0], &n[1]));
    vow_pipeline_names(other, 2, NULL, m);
    CHECK(!vow_name_equal(&m[1], &n[1]));
    vow_pipeline_names(ab, 2, VOW_PIPELINE(.source = &f[5], .n_source = 1), m);
    CHECK(!vow_name_equal(&m[0], &n[0]));
    vow_name_key key = {.size = 32,
                        .bytes = "a secret of those who share work"};
    vow_pipeline_names(ab, 2, VOW_PIPELINE(.key = &key), m);
    CHECK(!vow_name_equal(&m[0], &n[0]));
    CHECK(!vow_name_equal(&m[1], &n[1]));
}

TEST(pipeline, refuses_what_is_none)
{
    rig_open(&rig);
    vow_authority *a = rig.a[0];
    vow_pipe_step s = {.work = append, .arg = act(&rig, 'a')};
    check_code(vow_pipeline_run(a, &s, 0, NULL, NULL), VOW_EINVAL);
    check_code(vow_pipeline_run(a, NULL, 1, NULL, NULL), VOW_EINVAL);
    s.flags = 64;
    check_code(vow_pipeline_run(a, &s, 1, NULL, NULL), VOW_EINVAL);
    s.flags = 0;
    s.work = NULL;
    check_code(vow_pipeline_run(a, &s, 1, NULL, NULL), VOW_EINVAL);
    s.work = append;
    vow_pipeline_opts o = {.size = 3};
    check_code(vow_pipeline_run(a, &s, 1, &o, NULL), VOW_EINVAL);
    o = (vow_pipeline_opts){.size = sizeof(o), .share.size = 5};
    check_code(vow_pipeline_run(a, &s, 1, &o, NULL), VOW_EINVAL);
    o.share = (vow_share_opts){.size = sizeof(o.share), .flags = 1u << 30};
    vow_future *f = vow_pipeline_run(a, &s, 1, &o, NULL);
    world_run(rig.w);
    check_code(f, VOW_EINVAL);
    rig_close(&rig);
}

static vow_future *no_future(vow_lease *lease, vow_input *in, void *arg)
{
    (void)lease;
    (void)in;
    (void)arg;
    return NULL;
}

TEST(pipeline, a_step_that_returns_no_future_fails)
{
    rig_open(&rig);
    for (uint32_t flags = 0; flags <= VOW_STEP_PRIVATE; flags++) {
        vow_pipe_step s = {.work = no_future, .flags = flags};
        vow_future *f = vow_pipeline_run(rig.a[0], &s, 1, NULL, NULL);
        world_run(rig.w);
        check_code(f, VOW_EINVAL);
    }
    rig_close(&rig);
}

/* ---- beginnings that are shared ---------------------------------------- */

TEST(pipeline, runs_its_steps_in_order_and_gives_the_last_result)
{
    rig_open(&rig);
    vow_step_info info[3];
    vow_future *f =
        ask_with(&rig, rig.a[0], "abc", (vow_share_opts){.ttl_ms = 1000}, info);
    CHECK_INT_EQ(vow_loop_run_until(rig.loop, f), 0);
    CHECK_UINT_EQ(now_ms(&rig), 30);
    check_text(f, "abc");
    for (int i = 0; i < 3; i++) {
        CHECK_UINT_EQ(info[i].role, VOW_ROLE_RAN);
        CHECK_UINT_EQ(info[i].ms, 10);
        CHECK(info[i].fence > 0);
    }
    vow_name name = name_of(&rig, "ab");
    CHECK(vow_name_equal(&info[1].name, &name));
    rig_close(&rig);
}

TEST(pipeline, takes_the_longest_beginning_that_is_there)
{
    rig_open(&rig);
    vow_step_info info[4];
    vow_future *f = ask_for(&rig, "abc");
    world_advance_ms(rig.w, 100);
    check_text(f, "abc");
    f = ask_with(&rig, rig.a[1], "abcd", (vow_share_opts){.ttl_ms = 60000},
                 info);
    world_advance_ms(rig.w, 10);
    check_text(f, "abcd");
    CHECK_UINT_EQ(info[0].role, VOW_ROLE_NONE);
    CHECK_UINT_EQ(info[1].role, VOW_ROLE_NONE);
    CHECK_UINT_EQ(info[2].role, VOW_ROLE_CACHED);
    CHECK_UINT_EQ(info[3].role, VOW_ROLE_RAN);
    check_runs_are(&rig, 1);
    f = ask_with(&rig, rig.a[0], "abcd", (vow_share_opts){.ttl_ms = 60000},
                 info);
    world_advance_ms(rig.w, 0);
    check_text(f, "abcd");
    CHECK_UINT_EQ(info[2].role, VOW_ROLE_NONE);
    CHECK_UINT_EQ(info[3].role, VOW_ROLE_CACHED);
    CHECK_UINT_EQ(info[3].ms, 0);
    check_runs_are(&rig, 1);
    rig_close(&rig);
}

TEST(pipeline, hooks_on_to_the_longest_beginning_that_runs)
{
    rig_open(&rig);
    vow_step_info info[4];
    vow_future *f = ask_with(&rig, rig.a[0], "abc", (vow_share_opts){0}, NULL);
    world_advance_ms(rig.w, 25); /* c runs */
    CHECK_INT_EQ(runs(&rig, "abc"), 1);
    vow_future *g = ask_with(&rig, rig.a[1], "abcd", (vow_share_opts){0}, info);
    world_advance_ms(rig.w, 15);
    check_text(f, "abc");
    check_text(g, "abcd");
    CHECK_UINT_EQ(info[1].role, VOW_ROLE_NONE);
    CHECK_UINT_EQ(info[2].role, VOW_ROLE_JOINED);
    CHECK_UINT_EQ(info[2].ms, 5);
    CHECK_UINT_EQ(info[3].role, VOW_ROLE_RAN);
    check_runs_are(&rig, 1);
    rig_close(&rig);
}

TEST(pipeline, goes_on_alone_where_the_ways_part)
{
    rig_open(&rig);
    const char *const texts[] = {"abc", "abd", "ae", "abcf", "g"};
    vow_future *f[5];
    for (int i = 0; i < 5; i++)
        f[i] = ask_with(&rig, rig.a[i % 2], texts[i],
                        (vow_share_opts){.ttl_ms = 60000}, NULL);
    world_advance_ms(rig.w, 40);
    for (int i = 0; i < 5; i++)
        check_text(f[i], texts[i]);
    check_runs_are(&rig, 1);
    CHECK_UINT_EQ(rig.n_tallies, 7);
    rig_close(&rig);
}

TEST(pipeline, holds_no_lease_before_the_input_is_there)
{
    rig_open(&rig);
    act(&rig, 'a')->ms = 5000; /* many leases */
    vow_future *f = ask_for(&rig, "abc");
    for (int i = 0; i < 49; i++) {
        world_advance_ms(rig.w, 100);
        CHECK_UINT_EQ(vow_authority_stats_get(rig.a[0]).running, 1);
    }
    vow_future *g = ask_for(&rig, "a");
    world_advance_ms(rig.w, 200);
    check_text(g, "a");
    check_text(f, "abc");
    CHECK_UINT_EQ(vow_authority_stats_get(rig.a[0]).claims, 3);
    rig_close(&rig);
}

TEST(pipeline, a_result_that_has_expired_is_made_again_and_only_that)
{
    rig_open(&rig);
    act(&rig, 'b')->ttl_ms = 500;
    vow_future *f = ask_for(&rig, "ab");
    world_advance_ms(rig.w, 1000);
    check_text(f, "ab");
    f = ask_for(&rig, "ab");
    world_advance_ms(rig.w, 100);
    check_text(f, "ab");
    CHECK_INT_EQ(runs(&rig, "a"), 1);
    CHECK_INT_EQ(runs(&rig, "ab"), 2);
    rig_close(&rig);
}

TEST(pipeline, its_steps_are_seen_by_their_labels)
{
    rig_open(&rig);
    char own[] = "of its own";
    char all[] = "of all";
    const vow_field fields[] = {{"a", 1}, {"b", 1}};
    const vow_pipe_step steps[] = {{.fields = &fields[0],
                                    .n_fields = 1,
                                    .work = append,
                                    .arg = act(&rig, 'a'),
                                    .label = own},
                                   {.fields = &fields[1],
                                    .n_fields = 1,
                                    .work = append,
                                    .arg = act(&rig, 'b')}};
    const vow_share_opts share = {
        .size = sizeof(share), .ttl_ms = 60000, .label = all};
    vow_future *f = vow_pipeline_run(rig.a[0], steps, 2,
                                     VOW_PIPELINE(.share = share), NULL);
    own[0] = all[0] = 'X';
    world_advance_ms(rig.w, 15);
    const vow_name names[] = {name_of(&rig, "a"), name_of(&rig, "ab")};
    vow_future *seen = vow_authority_peek(rig.a[1], names, 2);
    world_advance_ms(rig.w, 0);
    const vow_records *r = vow_as_ptr(vow_get(seen));
    CHECK_UINT_EQ(r->n, 2);
    CHECK_STR_EQ(r->at[0].label, "of its own");
    CHECK_STR_EQ(r->at[1].label, "of all");
    vow_future_unref(seen);
    world_advance_ms(rig.w, 100);
    check_text(f, "ab");
    rig_close(&rig);
}

TEST(pipeline, force_makes_all_steps_anew_and_waits_for_who_works)
{
    rig_open(&rig);
    const vow_share_opts force = {.ttl_ms = 60000, .flags = VOW_SHARE_FORCE};
    vow_future *f = ask_for(&rig, "ab");
    world_advance_ms(rig.w, 100);
    check_text(f, "ab");
    f = ask_with(&rig, rig.a[0], "ab", force, NULL);
    vow_future *g = ask_with(&rig, rig.a[1], "ab", force, NULL);
    world_advance_ms(rig.w, 100);
    check_text(f, "ab");
    check_text(g, "ab");
    CHECK_INT_EQ(runs(&rig, "a"), 2);
    CHECK(runs(&rig, "ab") >= 2);
    rig_close(&rig);
}

TEST(pipeline, peek_takes_what_is_there_and_makes_nothing)
{
    rig_open(&rig);
    const vow_share_opts peek = {.flags = VOW_SHARE_PEEK};
    vow_future *f = ask_with(&rig, rig.a[0], "ab", peek, NULL);
    world_advance_ms(rig.w, 0);
    check_code(f, VOW_ENOENT);
    f = ask_for(&rig, "ab");
    world_advance_ms(rig.w, 100);
    check_text(f, "ab");
    f = ask_with(&rig, rig.a[1], "ab", peek, NULL);
    world_advance_ms(rig.w, 0);
    check_text(f, "ab");
    f = ask_with(&rig, rig.a[1], "abc", peek, NULL);
    world_advance_ms(rig.w, 0);
    check_code(f, VOW_ENOENT);
    check_runs_are(&rig, 1);
    rig_close(&rig);
}

/* ---- results that get old ---------------------------------------------- */

TEST(pipeline, an_old_result_is_made_anew_out_of_sight)
{
    rig_open(&rig);
    const vow_share_opts share = {.ttl_ms = 60000, .stale_ms = 1000};
    vow_step_info info[2];
    vow_future *f = ask_with(&rig, rig.a[0], "ab", share, NULL);
    world_advance_ms(rig.w, 1500);
    check_text(f, "ab");
    for (int i = 0; i < 3; i++) {
        f = ask_with(&rig, rig.a[i % 2], "ab", share, info);
        world_advance_ms(rig.w, 0);
        check_text(f, "ab");
        CHECK_UINT_EQ(info[1].role, VOW_ROLE_STALE);
    }
    world_advance_ms(rig.w, 100);
    CHECK_INT_EQ(runs(&rig, "ab"), 2);
    f = ask_with(&rig, rig.a[1], "ab", share, info);
    world_advance_ms(rig.w, 0);
    check_text(f, "ab");
    CHECK_UINT_EQ(info[1].role, VOW_ROLE_CACHED);
    rig_close(&rig);
}

/* For the second caller, a moment ago is long ago; but not for the request that
 * makes it anew. */
TEST(pipeline, making_it_anew_is_not_made_anew)
{
    rig_open(&rig);
    vow_share_opts share = {.ttl_ms = 60000, .stale_ms = 1000};
    for (int i = 0; i < 2; i++) {
        vow_future *f = ask_with(&rig, rig.a[i], "ab", share, NULL);
        world_advance_ms(rig.w, i == 0 ? 1100 : 100);
        check_text(f, "ab");
    }
    CHECK_INT_EQ(runs(&rig, "ab"), 2);
    share.stale_ms = 1;
    vow_future *f = ask_with(&rig, rig.a[0], "ab", share, NULL);
    world_advance_ms(rig.w, 100);
    check_text(f, "ab");
    CHECK_INT_EQ(runs(&rig, "ab"), 3);
    rig_close(&rig);
}

TEST(pipeline, an_old_result_is_left_to_the_caller_who_wants_that)
{
    rig_open(&rig);
    vow_share_opts share = {
        .ttl_ms = 60000, .stale_ms = 1000, .flags = VOW_SHARE_NO_REFRESH};
    vow_future *f = ask_with(&rig, rig.a[0], "ab", share, NULL);
    world_advance_ms(rig.w, 1500);
    check_text(f, "ab");
    f = ask_with(&rig, rig.a[0], "ab", share, NULL);
    world_advance_ms(rig.w, 100);
    check_text(f, "ab");
    check_runs_are(&rig, 1);
    share.flags = VOW_SHARE_REFRESH;
    f = ask_with(&rig, rig.a[0], "ab", share, NULL);
    world_advance_ms(rig.w, 100);
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    vow_future_unref(f);
    CHECK_INT_EQ(runs(&rig, "ab"), 2);
    CHECK_INT_EQ(runs(&rig, "a"), 2); /* it was as old, and came from there */
    rig_close(&rig);
}

/* ---- private steps ----------------------------------------------------- */

TEST(pipeline, a_private_step_is_done_by_each_who_needs_it)
{
    rig_open(&rig);
    act(&rig, 'p')->flags = VOW_STEP_PRIVATE;
    vow_step_info info[3];
    vow_future *f[6];
    for (int i = 0; i < 6; i++)
        f[i] =
            ask_with(&rig, rig.a[i % 2], i < 3 ? "ap" : "apb",
                     (vow_share_opts){.ttl_ms = 60000}, i == 3 ? info : NULL);
    world_advance_ms(rig.w, 100);
    for (int i = 0; i < 6; i++)
        check_text(f[i], i < 3 ? "ap" : "apb");
    CHECK_INT_EQ(runs(&rig, "a"), 1);
    CHECK_INT_EQ(runs(&rig, "ap"), 4); /* the three, and who did b */
    CHECK_INT_EQ(runs(&rig, "apb"), 1);
    vow_name with = name_of(&rig, "apb");
    vow_name without = name_of(&rig, "ab");
    CHECK(!vow_name_equal(&with, &without));
    f[0] = ask_with(&rig, rig.a[0], "apb", (vow_share_opts){0}, info);
    world_advance_ms(rig.w, 0);
    check_text(f[0], "apb");
    CHECK_UINT_EQ(info[1].role, VOW_ROLE_NONE);
    CHECK_INT_EQ(runs(&rig, "ap"), 4);
    rig_close(&rig);
}

TEST(pipeline, all_steps_may_be_private)
{
    rig_open(&rig);
    vow_step_info info[3];
    act(&rig, 'p')->flags = VOW_STEP_PRIVATE;
    act(&rig, 'q')->flags = VOW_STEP_PRIVATE;
    act(&rig, 'r')->flags = VOW_STEP_PRIVATE;
    vow_future *f = ask_with(&rig, rig.a[0], "pqr", (vow_share_opts){0}, info);
    world_advance_ms(rig.w, 30);
    check_text(f, "pqr");
    CHECK_UINT_EQ(info[0].role, VOW_ROLE_RAN);
    CHECK_UINT_EQ(info[2].ms, 30);
    CHECK_UINT_EQ(vow_authority_stats_get(rig.a[0]).claims, 0);
    rig_close(&rig);
}

TEST(pipeline, a_private_step_may_be_the_first_and_fail)
{
    rig_open(&rig);
    act(&rig, 'p')->flags = VOW_STEP_PRIVATE;
    vow_future *f = ask_for(&rig, "pab");
    vow_future *g = ask_for(&rig, "pac");
    world_advance_ms(rig.w, 100);
    check_text(f, "pab");
    check_text(g, "pac");
    CHECK_INT_EQ(runs(&rig, "p"), 1); /* by who did a */
    *act(&rig, 'q') = (struct act){.rig = &rig,
                                   .letter = 'q',
                                   .flags = VOW_STEP_PRIVATE,
                                   .code = VOW_EIO,
                                   .fails = 2};
    f = ask_for(&rig, "qa");
    g = ask_for(&rig, "paq");
    world_advance_ms(rig.w, 100);
    check_code(f, VOW_EIO);
    check_code(g, VOW_EIO);
    f = ask_for(&rig, "qa");
    world_advance_ms(rig.w, 100);
    check_text(f, "qa");
    rig_close(&rig);
}

/* ---- failure ----------------------------------------------------------- */

TEST(pipeline, a_failing_step_fails_all_who_share_it_with_its_error)
{
    rig_open(&rig);
    act(&rig, 'b')->code = VOW_EIO;
    act(&rig, 'b')->fails = 1;
    vow_future *f = ask_for(&rig, "abc");
    vow_future *g = ask_with(&rig, rig.a[1], "abd",
                             (vow_share_opts){.ttl_ms = 60000}, NULL);
    vow_future *h = ask_for(&rig, "ae");
    world_advance_ms(rig.w, 100);
    check_code(f, VOW_EIO);
    CHECK_STR_EQ(vow_error_message(vow_error_of(g)), "this step fails");
    check_code(g, VOW_EIO);
    check_text(h, "ae");
    CHECK_INT_EQ(runs(&rig, "ab"), 1);
    f = ask_for(&rig, "abc"); /* failures are not kept */
    world_advance_ms(rig.w, 100);
    check_text(f, "abc");
    CHECK_INT_EQ(runs(&rig, "a"), 1);
    rig_close(&rig);
}

TEST(pipeline, a_step_is_tried_again_with_the_same_input)
{
    rig_open(&rig);
    act(&rig, 'b')->code = VOW_EIO;
    act(&rig, 'b')->fails = 2;
    vow_future *f =
        ask_with(&rig, rig.a[0], "abc", (vow_share_opts){.tries = 3}, NULL);
    world_advance_ms(rig.w, 100);
    check_text(f, "abc");
    CHECK_INT_EQ(runs(&rig, "a"), 1);
    CHECK_INT_EQ(runs(&rig, "ab"), 3);
    rig_close(&rig);
}

TEST(pipeline, a_kept_failure_fails_at_once)
{
    rig_open(&rig);
    const vow_share_opts share = {.ttl_ms = 60000, .fail_ttl_ms = 60000};
    act(&rig, 'b')->code = VOW_EIO;
    act(&rig, 'b')->fails = 9;
    vow_future *f = ask_with(&rig, rig.a[0], "ab", share, NULL);
    world_advance_ms(rig.w, 100);
    check_code(f, VOW_EIO);
    f = ask_with(&rig, rig.a[1], "abc", share, NULL);
    world_advance_ms(rig.w, 0);
    check_code(f, VOW_EIO);
    check_runs_are(&rig, 1);
    rig_close(&rig);
}
