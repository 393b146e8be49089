/* SPDX-License-Identifier: MIT */
/* inbox_test.c - what vow/loop.h promises about vow_loop_post(), the door
 * from other threads: nothing accepted is lost, each sender's messages run in
 * their order, a full inbox says so, many messages cost few wake-ups, and what
 * was accepted runs even while the loop closes.
 */
#include "harness.h"
#include "world.h"

#include "vow/uv.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>

/* A tenth where a tool makes everything slow; never fewer under TSan, which
 * is there to watch them all. */
static uint32_t many(uint32_t n)
{
    bool slow = getenv("VOW_TEST_SLOW") != NULL && !TEST_TSAN;
    return slow ? n / 10 : n;
}

static void count(void *arg)
{
    ++*(int *)arg;
}

static vow_next count_ok(vow_value value, void *user)
{
    (void)value;
    ++*(int *)user;
    return vow_ok(vow_nothing());
}

/* ---- one thread --------------------------------------------------------- */

TEST(post, runs_from_the_queue_and_never_inside_the_call)
{
    struct world w;
    int n = 0;
    world_open_real(&w);
    CHECK_INT_EQ(vow_loop_post(w.loop, count, &n), 0);
    CHECK_INT_EQ(n, 0);
    world_run(&w); /* a message is something to do */
    CHECK_INT_EQ(n, 1);
    world_run(&w);
    CHECK_INT_EQ(n, 1);
    world_close(&w);
}

TEST(post, works_under_virtual_time)
{
    struct world w;
    int n = 0;
    world_open(&w);
    CHECK_INT_EQ(vow_loop_post(w.loop, count, &n), 0);
    world_run(&w);
    CHECK_INT_EQ(n, 1);
    CHECK_INT_EQ(vow_loop_post(w.loop, count, &n), 0);
    world_advance_ms(&w, 1);
    CHECK_INT_EQ(n, 2);
    world_close(&w);
}

TEST(post, of_no_function_is_invalid)
{
    struct world w;
    world_open_real(&w);
    CHECK_INT_EQ(vow_loop_post(w.loop, NULL, NULL), VOW_EINVAL);
    world_run(&w);
    world_close(&w);
}

struct relay {
    vow_loop *loop;
    int left;
    int inside;
};

/* Posts itself again: each runs after the one before has returned. */
static void pass_on(void *arg)
{
    struct relay *r = arg;
    CHECK_INT_EQ(r->inside, 0);
    r->inside = 1;
    if (--r->left > 0)
        CHECK_INT_EQ(vow_loop_post(r->loop, pass_on, r), 0);
    r->inside = 0;
}

TEST(post, from_a_posted_function_runs_after_it)
{
    struct world w;
    struct relay r = {.left = 1000};
    world_open_real(&w);
    r.loop = w.loop;
    CHECK_INT_EQ(vow_loop_post(w.loop, pass_on, &r), 0);
    world_run(&w);
    CHECK_INT_EQ(r.left, 0);
    world_close(&w);
}

struct maker {
    vow_loop *loop;
    vow_deferred *d;
    int handled;
};

static vow_next end_at_once(void *arg)
{
    struct maker *m = arg;
    CHECK_INT_EQ(vow_yield(m->loop), 0);
    m->handled += 10;
    return vow_ok(vow_nothing());
}

static void settle_and_start(void *arg)
{
    struct maker *m = arg;
    CHECK(vow_resolve(m->d, vow_nothing()));
    CHECK_INT_EQ(m->handled, 0);
    vow_future_unref(vow_async(m->loop, end_at_once, m));
}

TEST(post, may_settle_promises_and_start_fibers)
{
    struct world w;
    struct maker m = {0};
    world_open_real(&w);
    m.loop = w.loop;
    vow_future *f = vow_promise(w.loop, &m.d);
    vow_future_unref(vow_then(f, count_ok, NULL, &m.handled));
    CHECK_INT_EQ(vow_loop_post(w.loop, settle_and_start, &m), 0);
    world_run(&w);
    CHECK_INT_EQ(m.handled, 11);
    vow_deferred_unref(m.d);
    vow_future_unref(f);
    world_close(&w);
}

static vow_next post_from_fiber(void *arg)
{
    struct maker *m = arg;
    CHECK_INT_EQ(vow_loop_post(m->loop, count, &m->handled), 0);
    CHECK_INT_EQ(m->handled, 0);
    while (m->handled == 0)
        CHECK_INT_EQ(vow_yield(m->loop), 0);
    return vow_ok(vow_nothing());
}

TEST(post, is_not_starved_by_a_fiber_that_yields)
{
    struct world w;
    struct maker m = {0};
    world_open_real(&w);
    m.loop = w.loop;
    vow_future_unref(vow_async(w.loop, post_from_fiber, &m));
    world_run(&w);
    CHECK_INT_EQ(m.handled, 1);
    world_close(&w);
}

/* ---- a full inbox ------------------------------------------------------- */

TEST(post, beyond_the_maximum_is_refused_until_there_is_room)
{
    enum { MAX = 8 };
    struct world w;
    int n = 0;
    world_open_with(&w,
                    VOW_LOOP_OPTS(.flags = WORLD_REAL_TIME, .inbox_max = MAX));
    for (int round = 1; round <= 3; round++) {
        for (int i = 0; i < MAX; i++)
            CHECK_INT_EQ(vow_loop_post(w.loop, count, &n), 0);
        for (int i = 0; i < 3; i++)
            CHECK_INT_EQ(vow_loop_post(w.loop, count, &n), VOW_EQUEUEFULL);
        world_run(&w);
        CHECK_INT_EQ(n, round * MAX);
    }
    world_close(&w);
}

/* ---- many threads ------------------------------------------------------- */

enum { SENDERS = 8 };

static struct {
    vow_loop *loop;
    uint32_t each;          /* messages of one sender */
    uint32_t next[SENDERS]; /* the number expected from each */
    uint64_t received;
    int ended;
    pthread_barrier_t start;
} storm;

/* The sender is in the upper half of the pointer, the number in the lower. */
static void receive(void *arg)
{
    uint64_t word = (uint64_t)(uintptr_t)arg;
    uint32_t sender = (uint32_t)(word >> 32);
    uint32_t number = (uint32_t)word;
    CHECK(sender < SENDERS);
    CHECK_UINT_EQ(number, storm.next[sender]);
    storm.next[sender]++;
    storm.received++;
    if (storm.next[sender] == storm.each && ++storm.ended == SENDERS)
        vow_loop_release(storm.loop);
}

static void *send_all(void *arg)
{
    uint64_t sender = (uint64_t)(uintptr_t)arg;
    pthread_barrier_wait(&storm.start);
    for (uint32_t i = 0; i < storm.each; i++) {
        void *word = (void *)(uintptr_t)(sender << 32 | i);
        int rc = vow_loop_post(storm.loop, receive, word);
        while (rc == VOW_EQUEUEFULL) { /* never lost in silence */
            sched_yield();
            rc = vow_loop_post(storm.loop, receive, word);
        }
        CHECK_INT_EQ(rc, 0);
    }
    return NULL;
}

static void run_storm(uint32_t each, uint32_t inbox_max)
{
    pthread_t thread[SENDERS];
    vow_loop *loop = NULL;
    CHECK_INT_EQ(vow_loop_new(VOW_LOOP_OPTS(.inbox_max = inbox_max), &loop), 0);
    storm.loop = loop;
    storm.each = each;
    CHECK_INT_EQ(pthread_barrier_init(&storm.start, NULL, SENDERS), 0);
    vow_loop_hold(loop);
    for (uintptr_t i = 0; i < SENDERS; i++)
        CHECK_INT_EQ(pthread_create(&thread[i], NULL, send_all, (void *)i), 0);
    CHECK_INT_EQ(vow_loop_run(loop), 0);
    for (int i = 0; i < SENDERS; i++)
        CHECK_INT_EQ(pthread_join(thread[i], NULL), 0);
    CHECK_UINT_EQ(storm.received, (uint64_t)each * SENDERS);
    pthread_barrier_destroy(&storm.start);
    CHECK_INT_EQ(vow_loop_close(loop), 0);
}

TEST_OPTS(post, eight_threads_a_million_each_none_lost_none_out_of_order,
          .timeout_s = 300)
{
    run_storm(many(1000000), 0);
}

TEST(post, eight_threads_through_a_small_inbox_lose_nothing)
{
    run_storm(many(20000), 64);
}

/* ---- wake-ups ----------------------------------------------------------- */

static void on_iteration(uv_check_t *check)
{
    ++*(int *)check->data;
}

struct burst {
    vow_loop *loop;
    int n;
    int received;
};

static void *send_burst(void *arg)
{
    struct burst *b = arg;
    for (int i = 0; i < b->n; i++)
        CHECK_INT_EQ(vow_loop_post(b->loop, count, &b->received), 0);
    return NULL;
}

TEST(post, a_hundred_thousand_messages_cost_few_turns_of_the_loop)
{
    struct world w;
    struct burst b = {.n = 100000};
    pthread_t thread;
    uv_check_t check;
    int iterations = 0;
    world_open_real(&w);
    b.loop = w.loop;
    CHECK_INT_EQ(uv_check_init(vow_loop_uv(w.loop), &check), 0);
    check.data = &iterations;
    CHECK_INT_EQ(uv_check_start(&check, on_iteration), 0);
    uv_unref((uv_handle_t *)&check);
    CHECK_INT_EQ(pthread_create(&thread, NULL, send_burst, &b), 0);
    CHECK_INT_EQ(pthread_join(thread, NULL), 0); /* all are sent before */
    world_run(&w);
    CHECK_INT_EQ(b.received, b.n);
    CHECK(iterations <= b.n / 1000);
    uv_close((uv_handle_t *)&check, NULL);
    world_run(&w);
    world_close(&w);
}

/* A loop that sleeps is woken each time, also when the last message came just
 * as it went to sleep: ping-pong, where a lost wake-up is a hang. */
struct rally {
    vow_loop *loop;
    sem_t turn;
    int left;
};

static void return_ball(void *arg)
{
    struct rally *r = arg;
    if (--r->left == 0)
        vow_loop_release(r->loop);
    sem_post(&r->turn);
}

static void *serve(void *arg)
{
    struct rally *r = arg;
    int balls = r->left;
    for (int i = 0; i < balls; i++) {
        CHECK_INT_EQ(vow_loop_post(r->loop, return_ball, r), 0);
        CHECK_INT_EQ(sem_wait(&r->turn), 0);
    }
    return NULL;
}

TEST(post, wakes_a_sleeping_loop_each_time)
{
    struct world w;
    struct rally r = {.left = 20000};
    pthread_t thread;
    world_open_real(&w);
    r.loop = w.loop;
    CHECK_INT_EQ(sem_init(&r.turn, 0, 0), 0);
    vow_loop_hold(w.loop);
    CHECK_INT_EQ(pthread_create(&thread, NULL, serve, &r), 0);
    world_run(&w);
    CHECK_INT_EQ(pthread_join(thread, NULL), 0);
    CHECK_INT_EQ(r.left, 0);
    sem_destroy(&r.turn);
    world_close(&w);
}

/* ---- closing ------------------------------------------------------------ */

TEST(post, accepted_before_the_close_runs_in_it)
{
    struct world w;
    int n = 0;
    world_open_real(&w);
    for (int i = 0; i < 100; i++)
        CHECK_INT_EQ(vow_loop_post(w.loop, count, &n), 0);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    CHECK_INT_EQ(n, 100);
    world_close_dirty(&w);
}

struct last_post {
    vow_loop *loop;
    sem_t go;
    sem_t done;
    int accepted;
    int ran;
};

static void *post_while_closing(void *arg)
{
    struct last_post *l = arg;
    CHECK_INT_EQ(sem_wait(&l->go), 0);
    for (int i = 0; i < 100; i++) {
        int rc = vow_loop_post(l->loop, count, &l->ran);
        CHECK(rc == 0 || rc == VOW_ECLOSED);
        l->accepted += rc == 0;
    }
    sem_post(&l->done);
    return NULL;
}

/* Runs inside the close, and returns when the other thread has posted. */
static vow_next let_it_post(vow_error *error, void *user)
{
    struct last_post *l = user;
    CHECK_INT_EQ(vow_error_code(error), VOW_ECLOSED);
    sem_post(&l->go);
    CHECK_INT_EQ(sem_wait(&l->done), 0);
    return vow_ok(vow_nothing());
}

TEST(post, accepted_while_the_loop_closes_runs_and_else_is_refused)
{
    struct world w;
    struct last_post l = {0};
    pthread_t thread;
    vow_deferred *d;
    world_open_real(&w);
    l.loop = w.loop;
    CHECK_INT_EQ(sem_init(&l.go, 0, 0), 0);
    CHECK_INT_EQ(sem_init(&l.done, 0, 0), 0);
    vow_future *f = vow_promise(w.loop, &d);
    vow_future_unref(vow_catch(f, let_it_post, &l));
    CHECK_INT_EQ(pthread_create(&thread, NULL, post_while_closing, &l), 0);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    CHECK_INT_EQ(pthread_join(thread, NULL), 0);
    CHECK_INT_EQ(l.ran, l.accepted);
    vow_deferred_unref(d);
    vow_future_unref(f);
    sem_destroy(&l.go);
    sem_destroy(&l.done);
    world_close_dirty(&w);
}
