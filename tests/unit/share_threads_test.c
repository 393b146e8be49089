/* SPDX-License-Identifier: MIT */
/* share_threads_test.c - an authority with a thread of its own, and loops of
 * other threads that join it. */
#include "share_rig.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { THREADS = 4, ROUNDS = 200 };

struct shared {
    vow_authority *first;
    pthread_mutex_t lock;
    int runs[ROUNDS];
    atomic_int working;
};

struct member {
    struct shared *s;
    vow_loop *loop;
    int round;
};

static void pause_ms(struct world *w, uint64_t ms)
{
    VOW_AUTO(vow_future) f = vow_delay(w->loop, ms);
    CHECK_INT_EQ(vow_loop_run_until(w->loop, f), 0);
}

static vow_future *work(vow_lease *lease, void *arg)
{
    struct member *m = arg;
    (void)lease;
    CHECK_INT_EQ(atomic_fetch_add(&m->s->working, 1), 0);
    (void)pthread_mutex_lock(&m->s->lock);
    m->s->runs[m->round]++;
    (void)pthread_mutex_unlock(&m->s->lock);
    char text[24];
    (void)snprintf(text, sizeof(text), "round %d", m->round);
    atomic_fetch_sub(&m->s->working, 1);
    return vow_resolved(m->loop, text_value(m->loop, text));
}

static void *member_main(void *arg)
{
    struct member m = {.s = arg};
    vow_authority *a;
    CHECK_INT_EQ(vow_loop_new(NULL, &m.loop), 0);
    CHECK_INT_EQ(vow_authority_join(m.loop, m.s->first, &a), 0);
    for (m.round = 0; m.round < ROUNDS; m.round++) {
        char text[24];
        (void)snprintf(text, sizeof(text), "round %d", m.round);
        vow_name name = vow_name_of(text);
        VOW_AUTO(vow_future)
        f = vow_share(a, &name, work, &m, VOW_SHARE(.ttl_ms = 60000));
        CHECK_INT_EQ(vow_loop_run_until(m.loop, f), 0);
        CHECK_TEXT(f, text);
    }
    VOW_AUTO(vow_future) closed = vow_authority_close(a);
    CHECK_INT_EQ(vow_loop_run_until(m.loop, closed), 0);
    closed = vow_future_unref(closed);
    vow_authority_unref(a);
    CHECK_INT_EQ(vow_loop_close(m.loop), 0);
    return NULL;
}

TEST(share_threads, loops_of_many_threads_share_each_name_once)
{
    struct world w;
    struct shared s = {.lock = PTHREAD_MUTEX_INITIALIZER};
    world_open_real(&w);
    VOW_AUTO(vow_future)
    f = vow_authority_open(
        w.loop, "memory:", VOW_AUTHORITY(.flags = VOW_AUTHORITY_THREAD));
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), 0);
    s.first = vow_authority_ref(vow_as_ptr(vow_get(f)));
    f = vow_future_unref(f);
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK_INT_EQ(pthread_create(&t[i], NULL, member_main, &s), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT_EQ(pthread_join(t[i], NULL), 0);
    for (int i = 0; i < ROUNDS; i++)
        CHECK_INT_EQ(s.runs[i], 1);
    CHECK_UINT_EQ(vow_authority_stats_get(s.first).runs, ROUNDS);
    f = vow_authority_close(s.first);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), 0);
    f = vow_future_unref(f);
    s.first = vow_authority_unref(s.first);
    world_close(&w);
}

/* Time left grows only by a pulse that was answered. The loop has no turn. */
static void block_until_pulsed(vow_lease *lease, int times)
{
    uint64_t before = vow_lease_left_ms(lease);
    while (times > 0) {
        uint64_t left = vow_lease_left_ms(lease);
        times -= left > before;
        before = left;
        (void)sched_yield();
    }
}

TEST(share_threads, the_pulse_goes_on_while_user_code_blocks_its_loop)
{
    struct world w;
    world_open_real(&w);
    VOW_AUTO(vow_future)
    f = vow_authority_open(
        w.loop, "memory:",
        VOW_AUTHORITY(.flags = VOW_AUTHORITY_THREAD, .pulse_ms = 20));
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), 0);
    vow_authority *a = vow_authority_ref(vow_as_ptr(vow_get(f)));
    vow_future_unref(f);
    struct hand h = {.loop = w.loop};
    vow_name name = vow_name_of("busy");
    f = vow_share(a, &name, hand_work, &h, VOW_SHARE(.ttl_ms = 1));
    while (h.runs == 0)
        pause_ms(&w, 1);
    block_until_pulsed(h.lease, 3);
    CHECK(vow_resolve(h.end, text_value(w.loop, "kept")));
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), 0);
    CHECK_TEXT(f, "kept");
    CHECK_UINT_EQ(vow_authority_stats_get(a).lost, 0);
    vow_future_unref(f);
    hand_free(&h);
    f = vow_authority_close(a);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), 0);
    f = vow_future_unref(f);
    vow_authority_unref(a);
    world_close(&w);
}

TEST(share_threads, canceling_from_another_loop_leaves_and_ends_the_work)
{
    struct world w;
    world_open_real(&w);
    VOW_AUTO(vow_future)
    f = vow_authority_open(
        w.loop, "memory:", VOW_AUTHORITY(.flags = VOW_AUTHORITY_THREAD));
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), 0);
    vow_authority *a = vow_authority_ref(vow_as_ptr(vow_get(f)));
    vow_future_unref(f);
    struct hand h = {.loop = w.loop};
    vow_name name = vow_name_of("left");
    f = vow_share(a, &name, hand_work, &h, NULL);
    while (h.runs == 0)
        pause_ms(&w, 1);
    CHECK(vow_cancel(f, NULL));
    while (h.canceled == 0)
        pause_ms(&w, 1);
    vow_future_unref(f);
    hand_free(&h);
    f = vow_authority_close(a);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), 0);
    f = vow_future_unref(f);
    vow_authority_unref(a);
    world_close(&w);
}
