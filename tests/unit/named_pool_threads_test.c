/* SPDX-License-Identifier: MIT */
/* named_pool_threads_test.c - pools of an authority with a thread of its own,
 * used from loops of other threads. */
#include "world.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { BLOCKED_LEASE_MS = 5000 }; /* longer than a machine pauses */
enum { THREADS = 4, ROUNDS = 300, PLACES = 3 };

struct shared {
    vow_authority *first;
    atomic_uint held;
    atomic_uint granted, refused, left;
};

struct member {
    struct shared *s;
    uint64_t seed;
    vow_loop *loop;
    vow_authority *a;
    vow_pool *pool;
};

static void pause_ms(vow_loop *loop, uint64_t ms)
{
    VOW_AUTO(vow_future) f = vow_delay(loop, ms);
    CHECK_INT_EQ(vow_loop_run_until(loop, f), 0);
}

static void shared_open(struct shared *s, struct world *w, uint64_t lease_ms)
{
    memset(s, 0, sizeof(*s));
    world_open_real(w);
    VOW_AUTO(vow_future)
    f = vow_authority_open(w->loop, "memory:",
                           VOW_AUTHORITY(.flags = VOW_AUTHORITY_THREAD,
                                         .lease_ms = lease_ms,
                                         .pulse_ms = lease_ms / 50));
    CHECK_INT_EQ(vow_loop_run_until(w->loop, f), 0);
    s->first = vow_authority_ref(vow_as_ptr(vow_get(f)));
}

static void authority_close(vow_loop *loop, vow_authority *a)
{
    VOW_AUTO(vow_future) f = vow_authority_close(a);
    CHECK_INT_EQ(vow_loop_run_until(loop, f), 0);
    vow_authority_unref(a);
}

static void shared_close(struct shared *s, struct world *w)
{
    authority_close(w->loop, s->first);
    world_close(w);
}

/* All places come back; some are on their way. */
static void wait_unused(struct shared *s, struct world *w)
{
    for (int i = 0;; i++) {
        VOW_AUTO(vow_future) f = vow_pool_limit(s->first, "api", NULL);
        CHECK_INT_EQ(vow_loop_run_until(w->loop, f), 0);
        const vow_pool_info *info = vow_as_ptr(vow_get(f));
        CHECK_UINT_EQ(info->limits.concurrent, PLACES);
        if (info->held == 0 && info->waiting == 0)
            return;
        CHECK(i < 5000); /* far below what the lease would give back */
        pause_ms(w->loop, 1);
    }
}

static void member_open(struct member *m, vow_loop *loop, struct shared *s)
{
    m->s = s;
    m->loop = loop;
    CHECK_INT_EQ(vow_authority_join(loop, s->first, &m->a), 0);
    CHECK_INT_EQ(vow_pool_open(m->a, "api",
                               VOW_POOL(.limits.concurrent = PLACES), &m->pool),
                 0);
}

/* Ask, and then one of the many things that people do. */
static void member_round(struct member *m)
{
    uint64_t dice = test_random(&m->seed);
    uint32_t weight = 1 + (uint32_t)(dice >> 8) % 2;
    bool only_try = dice % 8 == 0;
    VOW_AUTO(vow_future)
    f = only_try ? vow_pool_try(m->pool, NULL, weight)
                 : vow_pool_acquire(m->pool, NULL, weight);
    if (dice % 8 == 1) { /* at once, or some time later */
        if ((dice >> 16) % 2 == 0)
            (void)vow_loop_turn(m->loop);
        (void)vow_cancel(f, NULL);
        (void)vow_error_of(f);
        atomic_fetch_add(&m->s->left, 1);
        return;
    }
    int rc = vow_loop_run_until(m->loop, f);
    if (only_try && rc == VOW_EBUSY) {
        atomic_fetch_add(&m->s->refused, 1);
        return;
    }
    CHECK_INT_EQ(rc, 0);
    if (dice % 8 == 2)
        return; /* nobody takes it */
    vow_grant *g = vow_grant_take(vow_get(f));
    CHECK(g != NULL && g->fence > 0);
    CHECK_INT_EQ(vow_state_of(g->lost), VOW_PENDING);
    atomic_fetch_add(&m->s->granted, 1);
    CHECK(atomic_fetch_add(&m->s->held, weight) + weight <= PLACES);
    if (dice % 8 == 3)
        pause_ms(m->loop, 1);
    atomic_fetch_sub(&m->s->held, weight);
    vow_grant_release(g);
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    vow_loop *loop;
    CHECK_INT_EQ(vow_loop_new(NULL, &loop), 0);
    member_open(m, loop, m->s);
    for (int i = 0; i < ROUNDS; i++)
        member_round(m);
    vow_pool_unref(m->pool);
    authority_close(loop, m->a);
    CHECK_INT_EQ(vow_loop_close(loop), 0);
    return NULL;
}

TEST(named_pool_threads, loops_of_many_threads_stay_within_the_limit)
{
    struct world w;
    struct shared s;
    struct member m[THREADS] = {0};
    pthread_t t[THREADS];
    shared_open(&s, &w, 0);
    for (int i = 0; i < THREADS; i++) {
        m[i].s = &s;
        m[i].seed = test_seed() + (uint64_t)i;
        CHECK_INT_EQ(pthread_create(&t[i], NULL, member_main, &m[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK_INT_EQ(pthread_join(t[i], NULL), 0);
    CHECK(atomic_load(&s.granted) > THREADS * ROUNDS / 2);
    CHECK(atomic_load(&s.left) > 0);
    wait_unused(&s, &w);
    shared_close(&s, &w);
}

/* Of another loop: for longer than a lease it finds no place. */
static void *find_no_place(void *arg)
{
    struct shared *s = arg;
    vow_loop *loop;
    vow_authority *a;
    vow_pool *p;
    CHECK_INT_EQ(vow_loop_new(NULL, &loop), 0);
    CHECK_INT_EQ(vow_authority_join(loop, s->first, &a), 0);
    CHECK_INT_EQ(vow_pool_open(a, "api", NULL, &p), 0);
    uint64_t end_ns = vow_loop_due_ns(loop, BLOCKED_LEASE_MS + 1000);
    while (vow_loop_now_ns(loop) < end_ns) {
        VOW_AUTO(vow_future) f = vow_pool_try(p, NULL, 1);
        CHECK_INT_EQ(vow_loop_run_until(loop, f), VOW_EBUSY);
        pause_ms(loop, 10);
    }
    vow_pool_unref(p);
    VOW_AUTO(vow_future) closed = vow_authority_close(a);
    CHECK_INT_EQ(vow_loop_run_until(loop, closed), 0);
    closed = vow_future_unref(closed);
    vow_authority_unref(a);
    CHECK_INT_EQ(vow_loop_close(loop), 0);
    return NULL;
}

TEST(named_pool_threads, a_place_is_kept_while_user_code_blocks_its_loop)
{
    struct world w;
    struct shared s;
    vow_pool *p;
    shared_open(&s, &w, BLOCKED_LEASE_MS);
    CHECK_INT_EQ(vow_pool_open(s.first, "api",
                               VOW_POOL(.limits.concurrent = PLACES), &p),
                 0);
    VOW_AUTO(vow_future) f = vow_pool_acquire(p, NULL, PLACES);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), 0);
    vow_grant *g = vow_grant_take(vow_get(f));
    f = vow_future_unref(f);
    f = vow_pool_acquire(p, NULL, 1);
    pthread_t other; /* a lease and more without a turn of our loop */
    CHECK_INT_EQ(pthread_create(&other, NULL, find_no_place, &s), 0);
    CHECK_INT_EQ(pthread_join(other, NULL), 0);
    pause_ms(w.loop, 1);
    CHECK_INT_EQ(vow_state_of(g->lost), VOW_PENDING);
    CHECK_INT_EQ(vow_state_of(f), VOW_PENDING);
    vow_grant_release(g);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), 0);
    f = vow_future_unref(f);
    vow_pool_unref(p);
    wait_unused(&s, &w);
    shared_close(&s, &w);
}

/* A loop that leaves in the middle: with a place, one that nobody took, one in
 * the queue, one just asked for. */
static void *leaver_main(void *arg)
{
    struct member *m = arg;
    vow_loop *loop;
    CHECK_INT_EQ(vow_loop_new(NULL, &loop), 0);
    for (int i = 0; i < 30; i++) {
        member_open(m, loop, m->s);
        vow_future *f[4];
        f[0] = vow_pool_acquire(m->pool, NULL, 1);
        f[1] = vow_pool_acquire(m->pool, NULL, 1);
        CHECK_INT_EQ(vow_loop_run_until(loop, f[0]), 0);
        vow_grant *g = vow_grant_take(vow_get(f[0]));
        f[2] = vow_pool_acquire(m->pool, NULL, PLACES);
        if (i % 3 > 0)
            (void)vow_loop_turn(loop);
        f[3] = vow_pool_acquire(m->pool, "key", 1);
        VOW_AUTO(vow_future) closed = vow_authority_close(m->a);
        if (i % 2 == 0)
            vow_grant_release(g);
        CHECK_INT_EQ(vow_loop_run_until(loop, closed), 0);
        if (i % 2 == 1) {
            CHECK_INT_EQ(vow_loop_run_until(loop, g->lost), VOW_ELOST);
            vow_grant_release(g);
        }
        for (int k = 0; k < 4; k++) {
            int rc = vow_loop_run_until(loop, f[k]);
            CHECK(rc == 0 || rc == VOW_ECLOSED);
            vow_future_unref(f[k]);
        }
        vow_pool_unref(m->pool);
        vow_authority_unref(m->a);
    }
    CHECK_INT_EQ(vow_loop_close(loop), 0);
    return NULL;
}

TEST(named_pool_threads, who_closes_its_handle_gives_all_back)
{
    struct world w;
    struct shared s;
    struct member m[2] = {0};
    pthread_t t[2];
    shared_open(&s, &w, 60000);
    for (int i = 0; i < 2; i++) {
        m[i].s = &s;
        CHECK_INT_EQ(pthread_create(&t[i], NULL, leaver_main, &m[i]), 0);
    }
    for (int i = 0; i < 2; i++)
        CHECK_INT_EQ(pthread_join(t[i], NULL), 0);
    wait_unused(&s, &w);
    shared_close(&s, &w);
}

/* A loop that is closed with all of it, and told the authority only just so. */
static void *closer_main(void *arg)
{
    struct member *m = arg;
    for (int i = 0; i < 20; i++) {
        vow_loop *loop;
        CHECK_INT_EQ(vow_loop_new(NULL, &loop), 0);
        member_open(m, loop, m->s);
        vow_future *f[3];
        f[0] = vow_pool_acquire(m->pool, NULL, 1);
        CHECK_INT_EQ(vow_loop_run_until(loop, f[0]), 0);
        vow_grant *g = vow_grant_take(vow_get(f[0]));
        f[1] = vow_pool_acquire(m->pool, NULL, PLACES);
        if (i % 3 > 0)
            (void)vow_loop_turn(loop);
        f[2] = vow_pool_acquire(m->pool, NULL, 1);
        vow_pool_unref(m->pool);
        vow_authority_unref(m->a); /* closes it */
        CHECK_INT_EQ(vow_loop_close(loop), 0);
        vow_grant_release(g);
        for (int k = 0; k < 3; k++)
            vow_future_unref(f[k]);
    }
    return NULL;
}

TEST(named_pool_threads, a_loop_may_close_with_places)
{
    struct world w;
    struct shared s;
    struct member m = {.s = &s};
    pthread_t t;
    shared_open(&s, &w, 60000);
    CHECK_INT_EQ(pthread_create(&t, NULL, closer_main, &m), 0);
    CHECK_INT_EQ(pthread_join(t, NULL), 0);
    wait_unused(&s, &w);
    shared_close(&s, &w);
}

TEST(named_pool_threads, limits_change_for_all_loops)
{
    struct world w;
    struct shared s;
    vow_pool *p;
    shared_open(&s, &w, 0);
    CHECK_INT_EQ(
        vow_pool_open(s.first, "api", VOW_POOL(.limits.concurrent = 1), &p), 0);
    VOW_AUTO(vow_future) f = vow_pool_acquire(p, NULL, 1);
    VOW_AUTO(vow_future) more = vow_pool_acquire(p, NULL, 1);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), 0);
    CHECK_INT_EQ(vow_state_of(more), VOW_PENDING);
    const vow_pool_limits to = {.concurrent = PLACES};
    VOW_AUTO(vow_future) set = vow_pool_limit(s.first, "api", &to);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, set), 0);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, more), 0);
    set = vow_future_unref(set);
    more = vow_future_unref(more);
    f = vow_future_unref(f);
    vow_pool_unref(p);
    wait_unused(&s, &w);
    shared_close(&s, &w);
}
