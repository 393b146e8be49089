/* SPDX-License-Identifier: MIT */
/* named_pool_test.c - pools that processes share: who gets a place, in which
 * order, at which rate, and who is told. */
#include "named_pool_rig.h"

static const vow_pool_limits ONE = {.concurrent = 1};

TEST(named_pool, one_process_waits_until_the_other_gives_its_place_back)
{
    struct rig r;
    rig_open(&r, 2, &ONE);
    vow_grant *a = rig_get(&r, 0);
    vow_future *f = vow_pool_acquire(r.pool[1], NULL, 1);
    world_advance_ms(r.w, 5 * LEASE_MS); /* both are renewed */
    CHECK_PENDING(f);
    CHECK_PENDING(a->lost);
    CHECK_POOL(&r, 1, 1);
    uint64_t fence = a->fence;
    CHECK(fence > 0);
    vow_grant_release(a);
    vow_grant *b = rig_take(&r, f);
    CHECK(b->fence > fence);
    CHECK_POOL(&r, 1, 0);
    vow_grant_release(b);
    world_turn(r.w);
    CHECK_POOL(&r, 0, 0);
    CHECK_UINT_EQ(r.line[0].releases, 1);
    CHECK_UINT_EQ(r.line[1].releases, 1);
    rig_close(&r);
}

TEST(named_pool, a_heavy_one_is_not_passed_by_light_ones_of_other_processes)
{
    struct rig r;
    rig_open(&r, 3, &(vow_pool_limits){.concurrent = 3});
    vow_grant *first = rig_take(&r, vow_pool_acquire(r.pool[0], NULL, 2));
    vow_future *heavy = vow_pool_acquire(r.pool[1], NULL, 3);
    vow_future *light = vow_pool_acquire(r.pool[2], NULL, 1);
    vow_future *last = vow_pool_acquire(r.pool[0], NULL, 1);
    world_advance_ms(r.w, 3000);
    CHECK_PENDING(heavy);
    CHECK_PENDING(light);
    vow_grant_release(first);
    vow_grant *h = rig_take(&r, heavy);
    CHECK_PENDING(light);
    vow_grant_release(h);
    vow_grant *l = rig_take(&r, light);
    vow_grant *x = rig_take(&r, last);
    CHECK(x->fence > l->fence);
    vow_grant_release(l);
    vow_grant_release(x);
    rig_close(&r);
}

TEST(named_pool, keys_have_places_of_their_own_under_the_same_limits)
{
    struct rig r;
    rig_open(&r, 2, &ONE);
    vow_grant *a = rig_take(&r, vow_pool_acquire(r.pool[0], "a", 1));
    vow_grant *b = rig_take(&r, vow_pool_acquire(r.pool[1], "b", 1));
    vow_grant *none = rig_get(&r, 1);
    vow_future *f = vow_pool_acquire(r.pool[1], "a", 1);
    world_advance_ms(r.w, 3000);
    CHECK_PENDING(f);
    VOW_AUTO(vow_future) listed = vow_authority_pools(r.at[0]);
    CHECK_INT_EQ(vow_loop_run_until(r.w->loop, listed), 0);
    const vow_pools *pools = vow_as_ptr(vow_get(listed));
    bool seen = false;
    CHECK_UINT_EQ(pools->n, 3);
    for (size_t i = 0; i < pools->n; i++) {
        CHECK_UINT_EQ(pools->at[i].limits.concurrent, 1);
        CHECK_UINT_EQ(pools->at[i].held, 1);
        if (strcmp(pools->at[i].label, "api:a") == 0) {
            seen = true;
            CHECK_UINT_EQ(pools->at[i].waiting, 1);
        }
    }
    CHECK(seen);
    listed = vow_future_unref(listed);
    vow_grant_release(a);
    vow_grant_release(rig_take(&r, f));
    vow_grant_release(b);
    vow_grant_release(none);
    rig_close(&r);
}

/* ---- limits -------------------------------------------------------------- */

TEST(named_pool, who_asks_first_sets_the_limits)
{
    struct rig r;
    vow_pool *other;
    rig_open(&r, 2, &ONE);
    vow_grant *g = rig_get(&r, 0);
    CHECK_INT_EQ(
        vow_pool_open(r.at[1], "api", VOW_POOL(.limits = {9, 9, 9}), &other),
        0);
    vow_future *f = vow_pool_acquire(other, NULL, 1);
    world_turn(r.w);
    CHECK_PENDING(f);
    CHECK_UINT_EQ(rig_info(&r, 1).limits.concurrent, 1);
    CHECK_UINT_EQ(rig_info(&r, 1).limits.rate, 0);
    vow_grant_release(g);
    vow_grant_release(rig_take(&r, f));
    vow_pool_unref(other);
    rig_close(&r);
}

TEST(named_pool, a_change_of_limits_reaches_who_waits_in_every_process)
{
    struct rig r;
    rig_open(&r, 2, &ONE);
    vow_grant *g = rig_get(&r, 0);
    vow_future *f = vow_pool_acquire(r.pool[1], NULL, 1);
    vow_future *key = vow_pool_acquire(r.pool[1], "k", 1);
    vow_grant *k = rig_take(&r, key);
    key = vow_pool_acquire(r.pool[0], "k", 1);
    world_turn(r.w);
    CHECK_PENDING(f);
    CHECK_PENDING(key);
    VOW_AUTO(vow_future)
    set = vow_pool_limit(r.at[0], "api", &(vow_pool_limits){.concurrent = 2});
    CHECK_INT_EQ(vow_loop_run_until(r.w->loop, set), 0);
    const vow_pool_info *info = vow_as_ptr(vow_get(set));
    CHECK_UINT_EQ(info->limits.concurrent, 2);
    CHECK_STR_EQ(info->label, "api");
    set = vow_future_unref(set);
    vow_grant_release(rig_take(&r, f));
    world_advance_ms(r.w, LEASE_MS / 2); /* the key hears when it renews */
    vow_grant_release(rig_take(&r, key));
    vow_grant_release(g);
    vow_grant_release(k);
    rig_close(&r);
}

TEST(named_pool, fewer_places_leave_those_that_are_held)
{
    struct rig r;
    rig_open(&r, 1, &(vow_pool_limits){.concurrent = 4});
    vow_grant *g = rig_take(&r, vow_pool_acquire(r.pool[0], NULL, 3));
    vow_future *heavy = vow_pool_acquire(r.pool[0], NULL, 2);
    vow_future *f = vow_pool_acquire(r.pool[0], NULL, 1);
    world_turn(r.w);
    VOW_AUTO(vow_future) set = vow_pool_limit(r.at[0], "api", &ONE);
    CHECK_INT_EQ(vow_loop_run_until(r.w->loop, set), 0);
    set = vow_future_unref(set);
    world_advance_ms(r.w, 3000);
    CHECK_PENDING(g->lost);
    CHECK_POOL(&r, 3, 1);
    CHECK_CODE(heavy, VOW_EINVAL); /* it will never fit */
    vow_future_unref(heavy);
    vow_grant_release(g);
    vow_grant_release(rig_take(&r, f));
    rig_close(&r);
}

TEST(named_pool, limits_of_a_pool_that_nobody_made_are_not_there)
{
    struct rig r;
    rig_open(&r, 1, &ONE);
    VOW_AUTO(vow_future) f = vow_pool_limit(r.at[0], "else", NULL);
    CHECK_INT_EQ(vow_loop_run_until(r.w->loop, f), VOW_ENOENT);
    CHECK_STR_EQ(vow_error_message(vow_error_of(f)), "there is no such pool");
    f = vow_future_unref(f);
    const vow_pool_limits to = {2, 3, 4};
    f = vow_pool_limit(r.at[0], "else", &to);
    CHECK_INT_EQ(vow_loop_run_until(r.w->loop, f), 0);
    f = vow_future_unref(f);
    f = vow_pool_limit(r.at[0], "else", NULL);
    CHECK_INT_EQ(vow_loop_run_until(r.w->loop, f), 0);
    const vow_pool_info *info = vow_as_ptr(vow_get(f));
    CHECK_UINT_EQ(info->limits.concurrent, 2);
    CHECK_UINT_EQ(info->limits.rate, 3);
    CHECK_UINT_EQ(info->limits.window_us, 4);
    f = vow_future_unref(f);
    rig_close(&r);
}

/* ---- rate ---------------------------------------------------------------- */

/* Who asks, and what came of it. */
struct user {
    struct rig *r;
    vow_future *f;
    vow_grant *grant;
    vow_call comes, goes;
    uint64_t hold_ms;
    uint64_t at_us; /* it was granted */
    uint64_t fence;
    uint32_t weight;
    size_t process;
    bool held;
};

enum { USERS = 60 };

static void user_goes(void *user)
{
    struct user *u = user;
    vow_grant_release(u->grant);
    u->held = false;
}

static vow_next user_granted(vow_value v, void *user)
{
    struct user *u = user;
    vow_loop *loop = u->r->w->loop;
    u->grant = vow_grant_take(v);
    CHECK(u->grant != NULL);
    u->fence = u->grant->fence;
    u->at_us = vow_loop_now_ns(loop) / 1000;
    u->held = true;
    vow_call_at(&u->goes, loop, vow_loop_due_ns(loop, u->hold_ms), user_goes,
                u);
    return vow_ok(vow_nothing());
}

static void user_comes(void *user)
{
    struct user *u = user;
    u->f =
        vow_then_drop(vow_pool_acquire(u->r->pool[u->process], NULL, u->weight),
                      user_granted, NULL, u);
}

TEST(named_pool, a_rate_is_exact_over_processes_and_loses_no_time)
{
    struct rig r;
    struct user users[9] = {0};
    rig_open(&r, 3, &(vow_pool_limits){.rate = 3, .window_us = 100000});
    for (size_t i = 0; i < 9; i++) {
        users[i] = (struct user){.r = &r, .weight = 1, .process = i % 3};
        user_comes(&users[i]);
    }
    world_advance_ms(r.w, 1000);
    for (size_t i = 0; i < 9; i++) { /* a window, and one microsecond */
        CHECK_INT_EQ(vow_state_of(users[i].f), VOW_FULFILLED);
        CHECK_UINT_EQ(users[i].at_us, i / 3 * 100001);
        CHECK(i == 0 || users[i - 1].fence < users[i].fence);
        vow_future_unref(users[i].f);
    }
    rig_close(&r);
}

static void check_rate(const struct user *users, const vow_pool_limits *limits)
{
    for (size_t i = 0; i < USERS; i++) {
        uint64_t sum = 0;
        for (size_t k = 0; k < USERS; k++) {
            if (users[k].at_us >= users[i].at_us &&
                users[k].at_us <= users[i].at_us + limits->window_us)
                sum += users[k].weight;
        }
        if (sum > limits->rate)
            FAIL("%llu within a window, allowed are %u",
                 (unsigned long long)sum, limits->rate);
    }
}

TEST(named_pool, random_loads_keep_every_limit_and_the_order)
{
    static struct user users[USERS];
    struct rig r;
    uint64_t seed = test_seed();
    for (int round = 0; round < 20; round++) {
        vow_pool_limits limits = {
            .concurrent = 3 + (uint32_t)(test_random(&seed) % 4),
            .rate = 3 + (uint32_t)(test_random(&seed) % 6),
            .window_us = 1000 + test_random(&seed) % 700000};
        uint64_t at_ms = 0;
        rig_open(&r, 3, &limits);
        memset(users, 0, sizeof(users));
        for (size_t i = 0; i < USERS; i++) {
            at_ms += 1 + test_random(&seed) % 300;
            users[i].r = &r;
            users[i].weight = 1 + (uint32_t)(test_random(&seed) % 3);
            users[i].process = test_random(&seed) % 3;
            users[i].hold_ms = test_random(&seed) % 2500;
            vow_call_at(&users[i].comes, r.w->loop,
                        vow_loop_due_ns(r.w->loop, at_ms), user_comes,
                        &users[i]);
        }
        uint32_t busy = 1;
        for (int ms = 0; busy > 0; ms += 10) {
            uint32_t held = 0;
            world_advance_ms(r.w, 10);
            busy = 0;
            for (size_t i = 0; i < USERS; i++) {
                held += users[i].held ? users[i].weight : 0;
                busy += users[i].held || users[i].at_us == 0;
            }
            CHECK(held <= limits.concurrent);
            CHECK(ms < 600000);
        }
        for (size_t i = 0; i < USERS; i++) {
            CHECK_INT_EQ(vow_state_of(users[i].f), VOW_FULFILLED);
            CHECK(i == 0 || users[i - 1].fence < users[i].fence);
            vow_future_unref(users[i].f);
        }
        check_rate(users, &limits);
        CHECK_POOL(&r, 0, 0);
        rig_close(&r);
    }
}

/* ---- now or not at all --------------------------------------------------- */

TEST(named_pool, a_try_does_not_queue)
{
    struct rig r;
    rig_open(&r, 2, &ONE);
    vow_grant *g = rig_take(&r, vow_pool_try(r.pool[0], NULL, 1));
    VOW_AUTO(vow_future) f = vow_pool_try(r.pool[1], NULL, 1);
    world_turn(r.w);
    CHECK_CODE(f, VOW_EBUSY);
    CHECK_STR_EQ(vow_error_message(vow_error_of(f)),
                 "pool 'api' has no permit now");
    CHECK_POOL(&r, 1, 0);
    CHECK_UINT_EQ(r.line[1].releases, 0); /* there was nothing to give back */
    f = vow_future_unref(f);
    vow_grant_release(g);
    /* behind the release */
    vow_grant_release(rig_take(&r, vow_pool_try(r.pool[0], NULL, 1)));
    rig_close(&r);
}

TEST(named_pool, a_try_comes_behind_the_cancel_of_one_that_queued)
{
    struct rig r;
    rig_open(&r, 1, &(vow_pool_limits){.concurrent = 3});
    vow_grant *g = rig_take(&r, vow_pool_acquire(r.pool[0], NULL, 2));
    vow_future *f = vow_pool_acquire(r.pool[0], NULL, 2);
    world_turn(r.w);
    CHECK(vow_cancel(f, NULL));
    vow_future_unref(f);
    vow_grant_release(rig_take(&r, vow_pool_try(r.pool[0], NULL, 1)));
    vow_grant_release(g);
    rig_close(&r);
}

/* ---- what is refused ----------------------------------------------------- */

TEST(named_pool, what_makes_no_sense_is_refused)
{
    struct rig r;
    vow_pool *p;
    char label[VOW_LABEL_MAX + 2];
    memset(label, 'x', sizeof(label));
    label[VOW_LABEL_MAX + 1] = '\0';
    rig_open(&r, 1, &ONE);
    vow_authority *a = r.at[0];
    CHECK_INT_EQ(vow_pool_open(a, "", NULL, &p), VOW_EINVAL);
    CHECK_INT_EQ(vow_pool_open(a, label, NULL, &p), VOW_EINVAL);
    CHECK_INT_EQ(vow_pool_open(a, "x", &(vow_pool_opts){.size = 1}, &p),
                 VOW_EINVAL);
    CHECK_INT_EQ(vow_pool_open(a, "x", VOW_POOL(.limits.rate = 1), &p),
                 VOW_EINVAL);
    CHECK_INT_EQ(vow_pool_open(a, "x", VOW_POOL(.grace_ms = LEASE_MS), &p),
                 VOW_EINVAL);
    CHECK_INT_EQ(vow_pool_open(a, "x", VOW_POOL(.grace_ms = UINT64_MAX), &p),
                 VOW_EINVAL);
    CHECK_INT_EQ(vow_pool_open(a, "x", VOW_POOL(.lease_ms = 2), &p),
                 VOW_EINVAL);
    label[VOW_LABEL_MAX] = '\0';
    CHECK_INT_EQ(vow_pool_open(a, label, VOW_POOL(.lease_ms = UINT64_MAX), &p),
                 0);
    CHECK_PTR_EQ(vow_pool_unref(vow_pool_ref(p)), NULL);
    CHECK_PTR_EQ(vow_pool_unref(p), NULL);
    CHECK_PTR_EQ(vow_pool_unref(NULL), NULL);
    const vow_pool_limits bad = {.rate = 1};
    VOW_AUTO(vow_future) f = vow_pool_limit(a, "api", &bad);
    CHECK_CODE(f, VOW_EINVAL);
    f = vow_future_unref(f);
    f = vow_pool_limit(a, "", NULL);
    CHECK_CODE(f, VOW_EINVAL);
    f = vow_future_unref(f);
    f = vow_pool_acquire(r.pool[0], NULL, 0);
    CHECK_CODE(f, VOW_EINVAL);
    f = vow_future_unref(f);
    f = vow_pool_acquire(r.pool[0], NULL, 2);
    CHECK_INT_EQ(vow_loop_run_until(r.w->loop, f), VOW_EINVAL);
    CHECK_STR_EQ(vow_error_message(vow_error_of(f)),
                 "pool 'api' never allows a weight of 2");
    f = vow_future_unref(f);
    rig_close(&r);
}
