/* SPDX-License-Identifier: MIT */
/* work_test.c - what vow/work.h promises: results and errors cross from
 * the pool's threads, a waiting job can be taken back, a running one is asked,
 * the queue has an end, and jobs that never return do not stop the others.
 *
 * Nothing here sleeps. The pool adds a thread when none could start a job for a
 * while, so no test takes for granted that a job is still waiting: it tries
 * again, or counts so many jobs that some must wait.
 */
#include "harness.h"
#include "world.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static vow_loop_stats stats_of(vow_loop *loop)
{
    vow_loop_stats s;
    vow_loop_stats_get(loop, &s);
    return s;
}

static void open_threads(struct world *w, uint32_t threads, uint32_t queue_max)
{
    world_open_with(w, VOW_LOOP_OPTS(.flags = WORLD_REAL_TIME,
                                     .work_threads = threads,
                                     .work_queue_max = queue_max));
}

/* ---- results ------------------------------------------------------------ */

struct sight {
    pthread_t thread;
    void *arg;
    vow_loop *loop;
};

static vow_next look(vow_job *job, void *arg)
{
    struct sight *s = arg;
    s->thread = pthread_self();
    s->arg = arg;
    s->loop = vow_job_loop(job);
    return vow_ok(vow_int(vow_job_canceled(job) ? -1 : 42));
}

TEST(work, runs_on_another_thread_and_gives_its_value)
{
    struct world w;
    struct sight s = {0};
    world_open_real(&w);
    vow_future *f = vow_work(w.loop, look, &s);
    CHECK_INT_EQ(vow_state_of(f), VOW_PENDING);
    world_run(&w); /* a job keeps the loop running */
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 42);
    CHECK(!pthread_equal(s.thread, pthread_self()));
    CHECK_PTR_EQ(s.arg, &s);
    CHECK_PTR_EQ(s.loop, w.loop);
    CHECK_UINT_EQ(stats_of(w.loop).jobs, 0);
    CHECK(strstr(vow_future_site(f), "work_test.c:") != NULL);
    vow_future_unref(f);
    world_close(&w);
}

static vow_next fail_with_cause(vow_job *job, void *arg)
{
    vow_loop *loop = vow_job_loop(job);
    vow_error *cause = vow_error_new(loop, VOW_EIO, "sector %d", 9);
    (void)arg;
    vow_error *e = vow_error_wrap(loop, VOW_ETIMEDOUT, cause, "gave up");
    vow_error_unref(cause);
    return vow_fail(e);
}

static vow_next fail_with_code(vow_job *job, void *arg)
{
    (void)job;
    (void)arg;
    return vow_fail_code(VOW_ENOTSUP, "not here");
}

TEST(work, error_crosses_with_its_message_and_cause)
{
    struct world w;
    world_open_real(&w);
    vow_future *f = vow_work(w.loop, fail_with_cause, NULL);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), VOW_ETIMEDOUT);
    vow_error *e = vow_error_of(f);
    CHECK_STR_EQ(vow_error_message(e), "gave up");
    CHECK_INT_EQ(vow_error_code(vow_error_root(e)), VOW_EIO);
    CHECK_STR_EQ(vow_error_message(vow_error_root(e)), "sector 9");
    vow_future_unref(f);
    f = vow_work(w.loop, fail_with_code, NULL);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), VOW_ENOTSUP);
    CHECK_STR_EQ(vow_error_message(vow_error_of(f)), "not here");
    vow_future_unref(f);
    world_run(&w);
    world_close(&w);
}

static pthread_t dropped_on;
static int drops;

static void note_drop(void *ptr)
{
    dropped_on = pthread_self();
    drops++;
    free(ptr);
}

static vow_next make_owned(vow_job *job, void *arg)
{
    int *n = malloc(sizeof(*n));
    (void)job;
    (void)arg;
    CHECK(n != NULL);
    *n = 17;
    return vow_ok(vow_own(n, note_drop));
}

TEST(work, owned_value_crosses_and_is_dropped_once_on_the_loops_thread)
{
    struct world w;
    world_open_real(&w);
    vow_future *f = vow_work(w.loop, make_owned, NULL);
    world_run(&w);
    int *n = vow_as_ptr(vow_get(f));
    CHECK(n != NULL);
    CHECK_INT_EQ(*n, 17);
    CHECK_INT_EQ(drops, 0);
    vow_future_unref(f);
    CHECK_INT_EQ(drops, 1);
    vow_future_unref(vow_work(w.loop, make_owned, NULL)); /* nobody reads */
    world_run(&w);
    CHECK_INT_EQ(drops, 2);
    CHECK(pthread_equal(dropped_on, pthread_self()));
    world_close(&w);
}

static vow_next reverse_bytes(vow_job *job, void *arg)
{
    vow_bytes *in = arg;
    vow_bytes *out = NULL;
    size_t size = vow_bytes_size(in);
    int rc = vow_bytes_new(vow_job_loop(job), NULL, size, &out);
    if (rc < 0)
        return vow_fail_code(rc, NULL);
    for (size_t i = 0; i < size; i++)
        vow_bytes_data(out)[i] = vow_bytes_data(in)[size - 1 - i];
    vow_bytes_unref(in); /* the job's reference, dropped on its thread */
    return vow_ok(vow_bytes_value(out));
}

TEST(work, bytes_cross_in_both_directions)
{
    struct world w;
    vow_bytes *b;
    world_open_real(&w);
    CHECK_INT_EQ(vow_bytes_new(w.loop, "abcd", 4, &b), 0);
    vow_future *f = vow_work(w.loop, reverse_bytes, vow_bytes_ref(b));
    world_run(&w);
    vow_bytes *back = vow_as_bytes(vow_get(f));
    CHECK_UINT_EQ(vow_bytes_size(back), 4);
    CHECK_MEM_EQ(vow_bytes_data(back), "dcba", 4);
    CHECK_MEM_EQ(vow_bytes_data(b), "abcd", 4);
    vow_bytes_unref(b);
    vow_future_unref(f);
    world_close(&w);
}

static vow_next return_follow(vow_job *job, void *arg)
{
    (void)job;
    return vow_follow(arg);
}

static vow_next return_pass(vow_job *job, void *arg)
{
    (void)job;
    (void)arg;
    return vow_pass();
}

TEST(work, follow_and_pass_are_refused_and_what_they_move_is_not_lost)
{
    struct world w;
    world_open_real(&w);
    vow_future *other = vow_resolved(w.loop, vow_int(1));
    vow_future *f = vow_work(w.loop, return_follow, vow_future_ref(other));
    vow_future *g = vow_work(w.loop, return_pass, NULL);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), VOW_EINVAL);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, g), VOW_EINVAL);
    world_run(&w);
    vow_future_unref(f);
    vow_future_unref(g);
    vow_future_unref(other);
    world_close(&w);
}

TEST(work, without_a_function_is_rejected_as_invalid)
{
    struct world w;
    world_open_real(&w);
    vow_future *f = vow_work(w.loop, NULL, NULL);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), VOW_EINVAL);
    vow_future_unref(f);
    world_close(&w);
}

static vow_next square(vow_job *job, void *arg)
{
    int64_t n = (int64_t)(intptr_t)arg;
    (void)job;
    return vow_ok(vow_int(n * n));
}

static vow_next add_up(vow_value value, void *user)
{
    int64_t *sum = user;
    *sum += vow_as_int(value);
    return vow_ok(vow_nothing());
}

TEST(work, ten_thousand_jobs_all_arrive_once)
{
    struct world w;
    int64_t sum = 0;
    int64_t want = 0;
    world_open_real(&w);
    for (int64_t i = 0; i < 10000; i++) {
        vow_future *f = vow_work(w.loop, square, (void *)(intptr_t)i);
        vow_future_unref(vow_then(f, add_up, NULL, &sum));
        vow_future_unref(f);
        want += i * i;
    }
    world_run(&w);
    CHECK_INT_EQ(sum, want);
    CHECK_UINT_EQ(stats_of(w.loop).jobs, 0);
    world_close(&w);
}

static vow_next await_work(void *arg)
{
    vow_loop *loop = arg;
    int64_t sum = 0;
    for (intptr_t i = 1; i <= 20; i++) {
        vow_future *f = vow_work(loop, square, (void *)i);
        CHECK_INT_EQ(vow_await(f), 0);
        sum += vow_as_int(vow_get(f));
        vow_future_unref(f);
    }
    return vow_ok(vow_int(sum));
}

TEST(work, can_be_awaited)
{
    struct world w;
    world_open_real(&w);
    vow_future *f = vow_async(w.loop, await_work, w.loop);
    world_run(&w);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 2870);
    vow_future_unref(f);
    world_close(&w);
}

/* ---- jobs that hold their thread ---------------------------------------- */

/* A job that runs until it is let go. */
struct plug {
    sem_t started;
    sem_t let_go;
};

static void plug_init(struct plug *p)
{
    CHECK_INT_EQ(sem_init(&p->started, 0, 0), 0);
    CHECK_INT_EQ(sem_init(&p->let_go, 0, 0), 0);
}

static vow_next hold_thread(vow_job *job, void *arg)
{
    struct plug *p = arg;
    (void)job;
    sem_post(&p->started);
    while (sem_wait(&p->let_go) != 0)
        continue;
    return vow_ok(vow_int(1));
}

static vow_next run_until_asked(vow_job *job, void *arg)
{
    struct plug *p = arg;
    sem_post(&p->started);
    while (!vow_job_canceled(job))
        sched_yield();
    return vow_ok(vow_int(7));
}

TEST(work, canceled_while_it_runs_is_asked_and_settles_by_itself)
{
    struct world w;
    struct plug p;
    plug_init(&p);
    world_open_real(&w);
    vow_future *f = vow_work(w.loop, run_until_asked, &p);
    CHECK_INT_EQ(sem_wait(&p.started), 0);
    CHECK_UINT_EQ(stats_of(w.loop).jobs, 1);
    CHECK(vow_cancel(f, NULL));
    CHECK_INT_EQ(vow_state_of(f), VOW_PENDING);
    world_run(&w);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 7);
    CHECK(!vow_cancel(f, NULL));
    vow_future_unref(f);
    world_close(&w);
}

static atomic_int ran;

static vow_next mark_ran(vow_job *job, void *arg)
{
    (void)job;
    atomic_store((atomic_int *)arg, 1);
    return vow_ok(vow_nothing());
}

TEST(work, canceled_while_it_waits_never_runs_and_is_rejected_at_once)
{
    struct world w;
    struct plug p;
    bool caught = false;
    plug_init(&p);
    open_threads(&w, 1, 0);
    vow_future *f = vow_work(w.loop, hold_thread, &p);
    CHECK_INT_EQ(sem_wait(&p.started), 0); /* the only thread is taken */
    for (int i = 0; i < 100 && !caught; i++) {
        atomic_store(&ran, 0);
        vow_future *g = vow_work(w.loop, mark_ran, &ran);
        CHECK(vow_cancel(g, NULL));
        if (vow_state_of(g) == VOW_REJECTED) {
            CHECK_INT_EQ(vow_error_code(vow_error_of(g)), VOW_ECANCELED);
            caught = true;
        } else {
            CHECK_INT_EQ(vow_loop_run_until(w.loop, g), 0);
        }
        vow_future_unref(g);
    }
    CHECK(caught);
    sem_post(&p.let_go);
    world_run(&w);
    CHECK_INT_EQ(atomic_load(&ran), 0);
    vow_future_unref(f);
    world_close(&w);
}

TEST(work, waiting_jobs_beyond_the_maximum_are_refused_until_there_is_room)
{
    /* One thread and 64 more hold a job each, two wait: 67 at the most. */
    enum { N = 200, WAITING = 2, AT_MOST = 1 + 64 + WAITING };
    struct world w;
    struct plug p;
    vow_future *f[N];
    int accepted = 0;
    plug_init(&p);
    open_threads(&w, 1, WAITING);
    for (int i = 0; i < N; i++) {
        f[i] = vow_work(w.loop, hold_thread, &p);
        CHECK(f[i] != NULL);
    }
    for (int i = 0; i < N; i++)
        sem_post(&p.let_go);
    world_run(&w);
    for (int i = 0; i < N; i++) {
        int rc = vow_error_code(vow_error_of(f[i]));
        CHECK(rc == 0 || rc == VOW_EQUEUEFULL);
        accepted += rc == 0;
        vow_future_unref(f[i]);
    }
    CHECK(accepted >= WAITING);
    CHECK(accepted <= AT_MOST);
    vow_future *after = vow_work(w.loop, square, (void *)3);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, after), 0);
    vow_future_unref(after);
    world_run(&w);
    world_close(&w);
}

/* As many jobs as there are threads do not return; others must still end. */
static void others_finish_behind(uint32_t threads, int stuck)
{
    struct world w;
    struct plug p;
    vow_future *f[16];
    CHECK(stuck <= 16);
    plug_init(&p);
    open_threads(&w, threads, 0);
    for (int i = 0; i < stuck; i++)
        f[i] = vow_work(w.loop, hold_thread, &p);
    for (intptr_t i = 0; i < 10; i++) {
        vow_future *g = vow_work(w.loop, square, (void *)i);
        CHECK_INT_EQ(vow_loop_run_until(w.loop, g), 0);
        CHECK_INT_EQ(vow_as_int(vow_get(g)), i * i);
        vow_future_unref(g);
    }
    for (int i = 0; i < stuck; i++)
        sem_post(&p.let_go);
    world_run(&w);
    for (int i = 0; i < stuck; i++) {
        CHECK_INT_EQ(vow_as_int(vow_get(f[i])), 1);
        vow_future_unref(f[i]);
    }
    world_close(&w);
}

TEST(work, one_job_that_does_not_return_does_not_stop_others)
{
    others_finish_behind(1, 1);
}

TEST(work, as_many_as_there_are_threads_do_not_stop_others)
{
    others_finish_behind(2, 2);
    others_finish_behind(2, 8);
}

TEST(work, stuck_jobs_of_one_loop_do_not_delay_another)
{
    struct world w;
    struct world x;
    struct plug p;
    plug_init(&p);
    open_threads(&w, 1, 0);
    open_threads(&x, 1, 0);
    vow_future *f = vow_work(w.loop, hold_thread, &p);
    CHECK_INT_EQ(sem_wait(&p.started), 0);
    vow_future *g = vow_work(x.loop, square, (void *)5);
    world_run(&x);
    CHECK_INT_EQ(vow_as_int(vow_get(g)), 25);
    vow_future_unref(g);
    world_close(&x);
    sem_post(&p.let_go);
    world_run(&w);
    vow_future_unref(f);
    world_close(&w);
}

/* ---- progress ----------------------------------------------------------- */

struct talk {
    struct plug p;
    int64_t heard[4];
    int n;
    bool sent;
};

static vow_next tell_progress(vow_job *job, void *arg)
{
    struct talk *t = arg;
    t->sent = true;
    for (int i = 1; i <= 3; i++) {
        t->sent = vow_job_notify(job, vow_int(i * 10)) && t->sent;
        while (sem_wait(&t->p.let_go) != 0) /* until it was heard */
            continue;
    }
    return vow_ok(vow_nothing());
}

static void hear(vow_value progress, void *user)
{
    struct talk *t = user;
    CHECK(t->n < 4);
    t->heard[t->n++] = vow_as_int(progress);
    sem_post(&t->p.let_go);
}

TEST(work, progress_of_a_job_reaches_listeners_while_it_runs)
{
    struct world w;
    struct talk t = {0};
    plug_init(&t.p);
    world_open_real(&w);
    vow_future *f = vow_work(w.loop, tell_progress, &t);
    vow_future_unref(vow_on_progress(f, hear, &t));
    world_run(&w);
    CHECK(t.sent);
    CHECK_INT_EQ(t.n, 3);
    for (int i = 0; i < 3; i++)
        CHECK_INT_EQ(t.heard[i], (i + 1) * 10);
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    vow_future_unref(f);
    world_close(&w);
}

static vow_next tell_owned(vow_job *job, void *arg)
{
    (void)arg;
    for (int i = 0; i < 60; i++) /* more could be refused, and dropped here */
        CHECK(vow_job_notify(job, vow_own(malloc(4), note_drop)));
    return vow_ok(vow_nothing());
}

TEST(work, owned_progress_is_dropped_once_heard_or_not)
{
    struct world w;
    world_open_real(&w);
    vow_future_unref(vow_work(w.loop, tell_owned, NULL));
    world_run(&w);
    CHECK_INT_EQ(drops, 60);
    world_close(&w);
}

/* ---- closing ------------------------------------------------------------ */

static vow_next count_value(vow_value value, void *user)
{
    (void)value;
    ++*(int *)user;
    return vow_ok(vow_nothing());
}

static vow_next count_error(vow_error *error, void *user)
{
    CHECK_INT_EQ(vow_error_code(error), VOW_ECLOSED);
    ++*(int *)user;
    return vow_ok(vow_nothing());
}

TEST(work, close_asks_the_running_and_settles_the_waiting)
{
    enum { N = 20 };
    struct world w;
    struct plug p;
    int ends = 0;
    plug_init(&p);
    open_threads(&w, 1, 0);
    for (int i = 0; i < N; i++) {
        vow_future *f = vow_work(w.loop, run_until_asked, &p);
        vow_future_unref(vow_then(f, count_value, count_error, &ends));
        vow_future_unref(f);
    }
    CHECK_INT_EQ(sem_wait(&p.started), 0);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    CHECK_INT_EQ(ends, N);
    world_close_dirty(&w);
}

static pthread_key_t leaving;

static void on_thread_end(void *arg)
{
    sem_post(arg);
}

static vow_next hold_thread_and_tell_its_end(vow_job *job, void *arg)
{
    struct plug *p = arg;
    CHECK_INT_EQ(pthread_setspecific(leaving, &p->started), 0);
    return hold_thread(job, p);
}

/* Not on the test's allocator: the job's thread outlives the loop. */
TEST(work, close_does_not_wait_for_ever_for_a_job_that_does_not_return)
{
    struct plug p;
    vow_loop *loop = NULL;
    int closed = 0;
    plug_init(&p);
    CHECK_INT_EQ(pthread_key_create(&leaving, on_thread_end), 0);
    CHECK_INT_EQ(vow_loop_new(NULL, &loop), 0);
    vow_future *f = vow_work(loop, hold_thread_and_tell_its_end, &p);
    vow_future_unref(vow_catch(f, count_error, &closed));
    CHECK_INT_EQ(sem_wait(&p.started), 0);
    CHECK_INT_EQ(vow_loop_close(loop), 0);
    CHECK_INT_EQ(closed, 1);
    sem_post(&p.let_go); /* it returns to a loop that is gone */
    CHECK_INT_EQ(sem_wait(&p.started), 0); /* and its thread ends */
    vow_future_unref(f);
}
