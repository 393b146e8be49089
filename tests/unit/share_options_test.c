/* SPDX-License-Identifier: MIT */
/* share_options_test.c - the options of named work, one by one. */
#include "share_rig.h"

static vow_future *counted(vow_lease *lease, void *arg)
{
    struct hand *h = arg;
    char text[16];
    (void)lease;
    (void)snprintf(text, sizeof(text), "run %d", ++h->runs);
    return vow_resolved(h->loop, text_value(h->loop, text));
}

TEST(share_options, a_race_tells_all_who_wait_to_ask_again)
{
    struct rig r;
    rig_open(&r, 2);
    struct hand a = {.loop = r.w.loop}, b = {.loop = r.w.loop};
    vow_name name = vow_name_of("race");
    const vow_share_opts *o = VOW_SHARE(.flags = VOW_SHARE_RACE);
    VOW_AUTO(vow_future) f1 = vow_share(r.at[0], &name, hand_work, &a, o);
    VOW_AUTO(vow_future) f2 = vow_share(r.at[0], &name, hand_work, &a, o);
    VOW_AUTO(vow_future) f3 = vow_share(r.at[1], &name, hand_work, &b, o);
    world_turn(&r.w);
    (void)vow_reject_code(a.end, VOW_EIO, "broken");
    world_advance_ms(&r.w, 100);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f1)), VOW_EIO);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f2)), VOW_ERETRY);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f3)), VOW_ERETRY);
    CHECK_INT_EQ(b.runs, 0);
    f1 = vow_future_unref(f1);
    f2 = vow_future_unref(f2);
    f3 = vow_future_unref(f3);
    hand_free(&a);
    rig_close(&r);
}

TEST(share_options, who_does_not_want_to_wait_is_told_at_once)
{
    struct rig r;
    rig_open(&r, 2);
    struct hand a = {.loop = r.w.loop}, b = {.loop = r.w.loop};
    vow_name name = vow_name_of("nowait");
    VOW_AUTO(vow_future) f = vow_share(r.at[0], &name, hand_work, &a, NULL);
    world_turn(&r.w);
    for (int i = 0; i < 2; i++) {
        VOW_AUTO(vow_future)
        g = vow_share(r.at[i], &name, hand_work, &b,
                      VOW_SHARE(.flags = VOW_SHARE_NOWAIT));
        world_turn(&r.w);
        CHECK_INT_EQ(vow_error_code(vow_error_of(g)), VOW_EBUSY);
        VOW_AUTO(vow_future)
        p = vow_share(r.at[i], &name, NULL, NULL,
                      VOW_SHARE(.flags = VOW_SHARE_PEEK));
        world_turn(&r.w);
        CHECK_INT_EQ(vow_error_code(vow_error_of(p)), VOW_ENOENT);
    }
    CHECK(vow_resolve(a.end, text_value(r.w.loop, "x")));
    world_turn(&r.w);
    CHECK_TEXT(f, "x");
    f = vow_future_unref(f);
    hand_free(&a);
    rig_close(&r);
}

TEST(share_options, a_look_finds_what_is_there_and_starts_nothing)
{
    struct rig r;
    rig_open(&r, 2);
    struct hand h = {.loop = r.w.loop};
    vow_name name = vow_name_of("peek");
    const vow_share_opts *look = VOW_SHARE(.flags = VOW_SHARE_PEEK);
    VOW_AUTO(vow_future) p = vow_share(r.at[1], &name, NULL, NULL, look);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, p), VOW_ENOENT);
    VOW_AUTO(vow_future)
    f = vow_share(r.at[0], &name, counted, &h, VOW_SHARE(.ttl_ms = 1000));
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
    vow_future_unref(p);
    p = vow_share(r.at[1], &name, NULL, NULL, look);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, p), 0);
    CHECK_TEXT(p, "run 1");
    f = vow_future_unref(f);
    p = vow_future_unref(p);
    rig_close(&r);
}

TEST(share_options, force_replaces_a_result_that_is_there)
{
    struct rig r;
    rig_open(&r, 2);
    struct hand h = {.loop = r.w.loop};
    vow_name name = vow_name_of("force");
    for (int i = 1; i <= 3; i++) {
        VOW_AUTO(vow_future)
        f = vow_share(r.at[i % 2], &name, counted, &h,
                      VOW_SHARE(.ttl_ms = 10000, .flags = VOW_SHARE_FORCE));
        CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
        CHECK_INT_EQ(h.runs, i);
    }
    VOW_AUTO(vow_future)
    f = vow_share(r.at[0], &name, counted, &h, VOW_SHARE(.ttl_ms = 10000));
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
    CHECK_TEXT(f, "run 3");
    f = vow_future_unref(f);
    rig_close(&r);
}

TEST(share_options, an_old_result_is_handed_out_and_made_anew_once)
{
    struct rig r;
    rig_open(&r, 3);
    struct hand h = {.loop = r.w.loop};
    vow_name name = vow_name_of("stale");
    vow_share_info info = {0};
    const vow_share_opts *o =
        VOW_SHARE(.ttl_ms = 10000, .stale_ms = 1000, .info = &info);
    VOW_AUTO(vow_future) f = vow_share(r.at[0], &name, counted, &h, o);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
    f = vow_future_unref(f);
    world_advance_ms(&r.w, 1500);
    for (int i = 0; i < 9; i++) {
        f = vow_share(r.at[i % 3], &name, counted, &h, o);
        CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
        if (i == 0)
            CHECK_TEXT(f, "run 1");
        if (i == 0)
            CHECK_UINT_EQ(info.role, VOW_ROLE_STALE);
        f = vow_future_unref(f);
    }
    world_turn(&r.w);
    CHECK_INT_EQ(h.runs, 2);
    f = vow_share(r.at[1], &name, counted, &h, o);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
    CHECK_TEXT(f, "run 2");
    CHECK_UINT_EQ(info.role, VOW_ROLE_CACHED);
    f = vow_future_unref(f);
    rig_close(&r);
}

TEST(share_options, a_failed_refresh_leaves_the_old_result_until_it_expires)
{
    struct rig r;
    rig_open(&r, 1);
    struct hand h = {.loop = r.w.loop}, bad = {.loop = r.w.loop};
    vow_name name = vow_name_of("stale error");
    const vow_share_opts *o = VOW_SHARE(.ttl_ms = 5000, .stale_ms = 1000);
    VOW_AUTO(vow_future) f = vow_share(r.at[0], &name, counted, &h, o);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
    f = vow_future_unref(f);
    world_advance_ms(&r.w, 1500);
    f = vow_share(r.at[0], &name, hand_work, &bad, o);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
    CHECK_TEXT(f, "run 1");
    f = vow_future_unref(f);
    world_turn(&r.w);
    CHECK_INT_EQ(bad.runs, 1);
    (void)vow_reject_code(bad.end, VOW_EIO, NULL);
    world_turn(&r.w);
    for (int i = 0; i < 5; i++) { /* not tried again at once */
        f = vow_share(r.at[0], &name, hand_work, &bad, o);
        CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
        f = vow_future_unref(f);
    }
    CHECK_INT_EQ(bad.runs, 1);
    world_advance_ms(&r.w, 5000); /* hard expiry */
    f = vow_share(r.at[0], &name, counted, &h, o);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
    CHECK_TEXT(f, "run 2");
    f = vow_future_unref(f);
    hand_free(&bad);
    rig_close(&r);
}

TEST(share_options, early_recompute_spares_everybody_the_expiry)
{
    struct rig r;
    rig_open(&r, 1);
    struct hand h = {.loop = r.w.loop};
    vow_name name = vow_name_of("xfetch");
    const vow_share_opts *o = VOW_SHARE(.ttl_ms = 1000, .early = 100000);
    vow_share_info info = {0};
    int ran = 0;
    for (int i = 0; i < 100; i++) { /* asked for ten times in each ttl */
        vow_share_opts with = *o;
        with.info = &info;
        VOW_AUTO(vow_future) f = vow_share(r.at[0], &name, counted, &h, &with);
        CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
        ran += info.role == VOW_ROLE_RAN;
        world_advance_ms(&r.w, 100);
    }
    CHECK_INT_EQ(ran, 1); /* the first; all others were refreshed in time */
    CHECK(vow_authority_stats_get(r.at[0]).refreshes >= 9);
    rig_close(&r);
}

static bool young(const vow_share_info *running, void *user)
{
    (void)user;
    return running->age_ms < 100;
}

TEST(share_options, one_who_does_not_want_to_join_an_old_run_starts_the_next)
{
    struct rig r;
    rig_open(&r, 2);
    struct hand a = {.loop = r.w.loop}, b = {.loop = r.w.loop};
    vow_name name = vow_name_of("join");
    const vow_share_opts *o = VOW_SHARE(.join = young);
    VOW_AUTO(vow_future) f = vow_share(r.at[0], &name, hand_work, &a, o);
    world_advance_ms(&r.w, 50);
    VOW_AUTO(vow_future) g = vow_share(r.at[0], &name, hand_work, &b, o);
    world_advance_ms(&r.w, 100);
    VOW_AUTO(vow_future) late = vow_share(r.at[0], &name, hand_work, &b, o);
    world_turn(&r.w);
    CHECK(vow_resolve(a.end, text_value(r.w.loop, "first")));
    world_turn(&r.w);
    CHECK_TEXT(f, "first");
    CHECK_TEXT(g, "first");
    CHECK(vow_state_of(late) == VOW_PENDING);
    CHECK_INT_EQ(b.runs, 1);
    CHECK(vow_resolve(b.end, text_value(r.w.loop, "second")));
    world_turn(&r.w);
    CHECK_TEXT(late, "second");
    f = vow_future_unref(f);
    g = vow_future_unref(g);
    late = vow_future_unref(late);
    hand_free(&a);
    hand_free(&b);
    rig_close(&r);
}

TEST(share_options, forget_goes_by_the_fence)
{
    struct rig r;
    rig_open(&r, 2);
    struct hand h = {.loop = r.w.loop};
    vow_name name = vow_name_of("forget");
    vow_share_info first = {0}, second = {0};
    VOW_AUTO(vow_future)
    f = vow_share(r.at[0], &name, counted, &h,
                  VOW_SHARE(.ttl_ms = 9000, .info = &first));
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
    vow_future_unref(f);
    f = vow_share(
        r.at[1], &name, counted, &h,
        VOW_SHARE(.ttl_ms = 9000, .info = &second, .flags = VOW_SHARE_FORCE));
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
    vow_future_unref(f);
    f = vow_authority_forget(r.at[0], &name, first.fence);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 0); /* another's: it stays */
    vow_future_unref(f);
    f = vow_authority_forget(r.at[0], &name, second.fence);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 1);
    vow_future_unref(f);
    f = vow_share(r.at[1], &name, counted, &h, NULL);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
    CHECK_INT_EQ(h.runs, 3);
    f = vow_future_unref(f);
    rig_close(&r);
}

TEST(share_options, another_process_can_stop_the_work)
{
    struct rig r;
    rig_open(&r, 3);
    struct hand h = {.loop = r.w.loop}, other = {.loop = r.w.loop};
    vow_name name = vow_name_of("stop");
    VOW_AUTO(vow_future) f = vow_share(r.at[0], &name, hand_work, &h, NULL);
    VOW_AUTO(vow_future) g = vow_share(r.at[1], &name, hand_work, &other, NULL);
    world_turn(&r.w);
    VOW_AUTO(vow_future) c = vow_authority_cancel(r.at[2], &name);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, c), 0);
    world_advance_ms(&r.w, 400);
    CHECK_INT_EQ(h.canceled, 1);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_ECANCELED);
    CHECK_INT_EQ(vow_error_code(vow_error_of(g)), VOW_ECANCELED);
    CHECK_INT_EQ(other.runs, 0);
    vow_future_unref(c);
    c = vow_authority_cancel(r.at[2], &name);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, c), VOW_ENOENT);
    f = vow_future_unref(f);
    g = vow_future_unref(g);
    c = vow_future_unref(c);
    hand_free(&h);
    rig_close(&r);
}

/* Who has it by hand asks whether it is lost before or after that. */
static void stop_by_hand(bool before)
{
    struct rig r;
    rig_open(&r, 3);
    struct hand other = {.loop = r.w.loop};
    vow_name name = vow_name_of("stop by hand");
    VOW_AUTO(vow_future) f = vow_claim_name(r.at[0], &name, NULL, NULL, NULL);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
    const vow_claim *mine = vow_as_ptr(vow_get(f));
    VOW_AUTO(vow_lease) lease = vow_lease_ref(mine->lease);
    VOW_AUTO(vow_future) g = vow_share(r.at[1], &name, hand_work, &other, NULL);
    VOW_AUTO(vow_future) lost = before ? vow_lease_lost(lease) : NULL;
    world_turn(&r.w);
    VOW_AUTO(vow_future) c = vow_authority_cancel(r.at[2], &name);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, c), 0);
    world_advance_ms(&r.w, 400);
    if (!before)
        lost = vow_lease_lost(lease);
    CHECK_INT_EQ(vow_error_code(vow_error_of(lost)), VOW_ECANCELED);
    CHECK(vow_lease_left_ms(lease) > 0); /* until it has stopped */
    CHECK(vow_state_of(g) == VOW_PENDING);
    CHECK(vow_lease_abandon(lease));
    world_advance_ms(&r.w, 400);
    CHECK_INT_EQ(vow_error_code(vow_error_of(mine->result)), VOW_ECANCELED);
    CHECK_INT_EQ(vow_error_code(vow_error_of(g)), VOW_ECANCELED);
    CHECK_INT_EQ(other.runs, 0);
    lease = vow_lease_unref(lease);
    lost = vow_future_unref(lost);
    f = vow_future_unref(f);
    g = vow_future_unref(g);
    c = vow_future_unref(c);
    rig_close(&r);
}

TEST(share_options, who_has_it_by_hand_is_told_to_stop)
{
    stop_by_hand(true);
    stop_by_hand(false);
}

TEST(share_options, work_that_happens_once_is_in_doubt_when_its_owner_is_lost)
{
    struct rig r;
    rig_open(&r, 2);
    struct hand a = {.loop = r.w.loop}, b = {.loop = r.w.loop};
    vow_name name = vow_name_of("once");
    const vow_share_opts *o =
        VOW_SHARE(.mode = VOW_ONCE, .flags = VOW_SHARE_MANUAL_PULSE);
    VOW_AUTO(vow_future) f = vow_share(r.at[0], &name, hand_work, &a, o);
    VOW_AUTO(vow_future) g = vow_share(r.at[1], &name, hand_work, &b, o);
    world_advance_ms(&r.w, 3000);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_EDOUBT);
    CHECK_INT_EQ(vow_error_code(vow_error_of(g)), VOW_EDOUBT);
    CHECK_INT_EQ(b.runs, 0);
    uint64_t fence = vow_lease_fence(a.lease);
    VOW_AUTO(vow_bytes) value = NULL;
    CHECK_INT_EQ(vow_bytes_new(r.w.loop, "paid", 4, &value), 0);
    VOW_AUTO(vow_future)
    wrong = vow_authority_resolve(r.at[1], &name, fence + 1, VOW_IT_HAPPENED,
                                  value, 60000);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, wrong), VOW_ENOENT);
    VOW_AUTO(vow_future)
    right = vow_authority_resolve(r.at[1], &name, fence, VOW_IT_HAPPENED, value,
                                  60000);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, right), 0);
    VOW_AUTO(vow_future)
    late =
        vow_authority_resolve(r.at[0], &name, fence, VOW_IT_FAILED, NULL, 1000);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, late), VOW_ENOENT);
    VOW_AUTO(vow_future) h = vow_share(r.at[1], &name, hand_work, &b, o);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, h), 0);
    CHECK_TEXT(h, "paid");
    CHECK_INT_EQ(b.runs, 0);
    f = vow_future_unref(f);
    g = vow_future_unref(g);
    h = vow_future_unref(h);
    wrong = vow_future_unref(wrong);
    right = vow_future_unref(right);
    late = vow_future_unref(late);
    value = vow_bytes_unref(value);
    hand_free(&a);
    rig_close(&r);
}

TEST(share_options, with_two_hands_the_first_gets_the_lease_and_others_wait)
{
    struct rig r;
    rig_open(&r, 2);
    vow_name name = vow_name_of("hands");
    VOW_AUTO(vow_future) a = vow_claim_name(r.at[0], &name, NULL, NULL, NULL);
    VOW_AUTO(vow_future) b = vow_claim_name(r.at[1], &name, NULL, NULL, NULL);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, a), 0);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, b), 0);
    vow_claim *ca = vow_as_ptr(vow_get(a)), *cb = vow_as_ptr(vow_get(b));
    CHECK(ca->lease != NULL);
    CHECK(cb->lease == NULL);
    CHECK(vow_lease_resolve(ca->lease, text_value(r.w.loop, "by hand")));
    CHECK(!vow_lease_resolve(ca->lease, text_value(r.w.loop, "again")));
    world_turn(&r.w);
    CHECK_TEXT(ca->result, "by hand");
    CHECK_TEXT(cb->result, "by hand");
    a = vow_future_unref(a);
    b = vow_future_unref(b);
    rig_close(&r);
}

static void keep_lease(vow_lease *lease, void *user)
{
    *(vow_lease **)user = vow_lease_ref(lease);
}

TEST(share_options, a_dropped_lease_goes_to_the_next_who_waits)
{
    struct rig r;
    rig_open(&r, 2);
    vow_name name = vow_name_of("dropped");
    vow_lease *called = NULL;
    VOW_AUTO(vow_future) a = vow_claim_name(r.at[0], &name, NULL, NULL, NULL);
    VOW_AUTO(vow_future)
    b = vow_claim_name(r.at[1], &name, keep_lease, &called, NULL);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, a), 0);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, b), 0);
    VOW_AUTO(vow_future)
    result = vow_future_ref(((vow_claim *)vow_as_ptr(vow_get(a)))->result);
    a = vow_future_unref(a); /* and with it the lease */
    world_advance_ms(&r.w, 50);
    CHECK(called != NULL);
    CHECK(vow_lease_resolve(called, text_value(r.w.loop, "heir")));
    world_turn(&r.w);
    CHECK_TEXT(((vow_claim *)vow_as_ptr(vow_get(b)))->result, "heir");
    (void)vow_error_of(result);
    result = vow_future_unref(result);
    called = vow_lease_unref(called);
    b = vow_future_unref(b);
    rig_close(&r);
}

struct heard {
    char text[64];
    int resets;
};

static void on_chunk(vow_bytes *chunk, void *user)
{
    struct heard *h = user;
    if (chunk == NULL) {
        h->resets++;
        h->text[0] = '\0';
        return;
    }
    (void)strncat(h->text, (const char *)vow_bytes_data(chunk),
                  vow_bytes_size(chunk));
}

TEST(share_options, those_who_follow_get_every_chunk_from_the_first_on)
{
    struct rig r;
    rig_open(&r, 2);
    struct hand h = {.loop = r.w.loop};
    struct heard here = {{0}, 0}, there = {{0}, 0};
    vow_name name = vow_name_of("follow");
    vow_share_opts o = *VOW_SHARE(.flags = VOW_SHARE_FOLLOW,
                                  .on_chunk = on_chunk, .user = &here);
    VOW_AUTO(vow_future)
    f = vow_share(r.at[0], &name, hand_work, &h,
                  VOW_SHARE(.flags = VOW_SHARE_FOLLOW));
    world_turn(&r.w);
    for (int i = 0; i < 3; i++) {
        VOW_AUTO(vow_bytes) chunk = NULL;
        CHECK_INT_EQ(vow_bytes_new(r.w.loop, &"abc"[i], 1, &chunk), 0);
        VOW_AUTO(vow_future) w = vow_lease_write(h.lease, chunk);
        CHECK_INT_EQ(vow_loop_run_until(r.w.loop, w), 0);
    }
    VOW_AUTO(vow_future) g = vow_share(r.at[0], &name, hand_work, &h, &o);
    o.user = &there;
    VOW_AUTO(vow_future) k = vow_share(r.at[1], &name, hand_work, &h, &o);
    world_advance_ms(&r.w, 100);
    CHECK_STR_EQ(here.text, "abc");
    CHECK_STR_EQ(there.text, "abc");
    CHECK(vow_resolve(h.end, text_value(r.w.loop, "abc")));
    world_turn(&r.w);
    CHECK_TEXT(g, "abc");
    CHECK_TEXT(k, "abc");
    f = vow_future_unref(f);
    g = vow_future_unref(g);
    k = vow_future_unref(k);
    hand_free(&h);
    rig_close(&r);
}

static int dropped;
static void drop_it(void *ptr)
{
    (void)ptr;
    dropped++;
}

static vow_future *own_pointer(vow_lease *lease, void *arg)
{
    (void)lease;
    return vow_resolved(arg, vow_own(&dropped, drop_it));
}

TEST(share_options, in_a_private_memory_any_value_can_be_shared)
{
    struct world w;
    world_open(&w);
    dropped = 0;
    VOW_AUTO(vow_future) opening = vow_authority_open(w.loop, "memory:", NULL);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, opening), 0);
    vow_authority *a = vow_authority_ref(vow_as_ptr(vow_get(opening)));
    opening = vow_future_unref(opening);
    vow_name name = vow_name_of("pointer");
    for (int i = 0; i < 3; i++) {
        VOW_AUTO(vow_future)
        f = vow_share(a, &name, own_pointer, w.loop, VOW_SHARE(.ttl_ms = 100));
        CHECK_INT_EQ(vow_loop_run_until(w.loop, f), 0);
        CHECK_PTR_EQ(vow_as_ptr(vow_get(f)), &dropped);
    }
    CHECK_INT_EQ(dropped, 0);
    VOW_AUTO(vow_future) closed = vow_authority_close(a);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, closed), 0);
    CHECK_INT_EQ(dropped, 1);
    closed = vow_future_unref(closed);
    vow_authority_unref(a);
    world_close(&w);
}

static vow_future *bad_value(vow_lease *lease, void *arg)
{
    struct hand *h = arg;
    h->runs++;
    vow_lease_mark_failed(lease);
    return vow_resolved(h->loop, text_value(h->loop, "exit 3"));
}

TEST(share_options, a_value_can_count_as_a_failure_and_still_be_shared)
{
    struct rig r;
    rig_open(&r, 2);
    struct hand h = {.loop = r.w.loop};
    vow_name name = vow_name_of("bad value");
    const vow_share_opts *o = VOW_SHARE(.ttl_ms = 9000, .fail_ttl_ms = 100);
    for (int i = 0; i < 2; i++) {
        VOW_AUTO(vow_future) f = vow_share(r.at[i], &name, bad_value, &h, o);
        CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
        CHECK_TEXT(f, "exit 3");
    }
    CHECK_INT_EQ(h.runs, 1);
    VOW_AUTO(vow_future) list = vow_authority_list(r.at[1]);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, list), 0);
    const vow_records *records = vow_as_ptr(vow_get(list));
    CHECK_UINT_EQ(records->n, 1);
    CHECK(records->at[0].failed);
    list = vow_future_unref(list);
    world_advance_ms(&r.w, 200);
    VOW_AUTO(vow_future) f = vow_share(r.at[1], &name, bad_value, &h, o);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
    CHECK_INT_EQ(h.runs, 2);
    f = vow_future_unref(f);
    rig_close(&r);
}

/* A refresh would run it again, and nobody would be told of a doubt. */
TEST(share_options, work_of_mode_once_is_not_made_anew)
{
    struct rig r;
    rig_open(&r, 1);
    struct hand h = {.loop = r.w.loop};
    vow_name name = vow_name_of("once");
    const vow_share_opts refused[] = {
        *VOW_SHARE(.mode = VOW_ONCE, .ttl_ms = 1000, .stale_ms = 1),
        *VOW_SHARE(.mode = VOW_ONCE, .ttl_ms = 1000, .early = 1),
        *VOW_SHARE(.mode = VOW_ONCE, .flags = VOW_SHARE_REFRESH)};
    for (size_t i = 0; i < 3; i++) {
        VOW_AUTO(vow_future)
        f = vow_share(r.at[0], &name, counted, &h, &refused[i]);
        world_turn(&r.w);
        CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_EINVAL);
    }
    VOW_AUTO(vow_future)
    f = vow_share(r.at[0], &name, counted, &h,
                  VOW_SHARE(.mode = VOW_ONCE, .stale_ms = UINT64_MAX));
    world_turn(&r.w);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), 0);
    CHECK_INT_EQ(h.runs, 1);
    f = vow_future_unref(f);
    rig_close(&r);
}
