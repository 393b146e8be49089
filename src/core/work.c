/* SPDX-License-Identifier: MIT */
/* work.c - blocking work on a thread pool that belongs to the loop.
 *
 * WHY   The whole process shares libuv's thread pool: four slow lookups there
 *       block the file I/O of all loops. And a job that never returns must not
 *       block other jobs.
 * HOW   A job is a vow_remote and a function. Threads take jobs from a list
 *       under a mutex. The usual number of threads is an option; while jobs
 *       wait and no job could start for a tick of 50 ms, another thread is
 *       added, which ends when there is nothing to do. Threads are detached and
 *       hold the thread pool: closing waits for threads for a second and
 *       abandons threads that do not return.
 * INVARIANTS
 *   W1  a job is in the queue (queued), or on a thread, or freed; the memory is
 *       freed when both the thread and the promise have dropped the job
 *   W2  the last of the loop, the threads and the jobs frees the thread pool
 * THREADS  vow_work(): the loop's. vow_job_...(): the job's. Else: the pool's.
 */
#include "vow/work.h"
#include "core/promise_internal.h"
#include "core/remote_internal.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    TICK_MS = 50,
    THREADS_MAX = 1024,
    EXTRA_THREADS = 64,
    CLOSE_WAIT_NS = 1000000000 /* wait for running jobs at close */
};

struct vow__core_work_pool {
    uv_mutex_t mutex;
    uv_cond_t some;   /* a job is waiting, or stop is set */
    uv_cond_t fewer;  /* a thread ended */
    uint32_t refs;    /* the loop, each thread, each job */
    uint32_t threads; /* live threads */
    uint32_t idle;    /* of these, threads waiting for a job */
    uint32_t usual;   /* threads without extra threads */
    uint64_t started; /* jobs ever taken by a thread */
    uint64_t seen;    /* `started` at the last tick */
    vow_link *queue;  /* struct vow_job */
    size_t queued;
    size_t running;
    bool stop;
    struct vow_alloc alloc;
};

struct vow_job {
    vow_link in_queue;
    struct vow__core_work_pool *pool; /* counted */
    vow_remote *remote;               /* owned */
    vow_work_fn fn;
    void *arg;
    struct vow_alloc alloc;
    atomic_uint refs; /* the loop, until settled; the queue or the thread */
    bool queued;      /* under the pool's mutex */
};

static int thread_pool_open(vow_loop *loop);
static void thread_pool_unref(struct vow__core_work_pool *p);
static void thread_pool_free(struct vow__core_work_pool *p);
static int thread_pool_submit(vow_loop *loop, vow_job *job);
static int thread_add(struct vow__core_work_pool *p);
static void thread_main(void *arg);
static vow_job *thread_next_job(struct vow__core_work_pool *p);
static void job_run_on_thread(struct vow__core_work_pool *p, vow_job *job);
static void on_work_cancel(vow_future *out, vow_error *why, void *user);
static void on_work_detach(void *user);
static void job_discard(vow_job *job);
static void job_unref(vow_job *job);
static void on_thread_pool_tick(uv_timer_t *handle);

static const struct vow__core_remote_ops remote_ops = {
    .on_cancel = on_work_cancel, .on_detach = on_work_detach};

/* ---- on the loop's thread ------------------------------------------------ */

vow_future *vow_work_at(const char *site, vow_loop *loop, vow_work_fn fn,
                        void *arg)
{
    VOW__ASSERT_THREAD(loop);
    if (fn == NULL)
        return vow_refused_at(site, loop, VOW_EINVAL, "no function to run");
    if (loop->closing)
        return vow_refused_at(site, loop, VOW_ECLOSED, NULL);
    int rc = thread_pool_open(loop);
    if (rc < 0)
        return vow_refused_at(site, loop, rc, NULL);
    vow_job *job = vow__mem_zero(&loop->alloc, sizeof(*job));
    if (job == NULL)
        return vow__core_future_no_memory(loop);
    vow_future *f = vow_promise_remote_at(site, loop, &job->remote);
    job->pool = loop->work;
    if (job->remote == NULL) {
        vow__mem_free(&loop->alloc, job, sizeof(*job));
        return f;
    }
    job->fn = fn;
    job->arg = arg;
    job->alloc = loop->alloc;
    atomic_init(&job->refs, 2);
    uv_mutex_lock(&job->pool->mutex);
    job->pool->refs++;
    uv_mutex_unlock(&job->pool->mutex);
    vow__core_remote_attach(job->remote, &remote_ops, job);
    f->node.runs = 1;
    rc = thread_pool_submit(loop, job);
    if (rc < 0) {
        vow__core_future_reject_code(loop, f, rc, NULL);
        job_discard(job);
    }
    return f;
}

static int thread_pool_open(vow_loop *loop)
{
    if (loop->work != NULL)
        return 0;
    struct vow__core_work_pool *p = vow__mem_zero(&loop->alloc, sizeof(*p));
    if (p == NULL)
        return VOW_ENOMEM;
    int rc = uv_mutex_init(&p->mutex);
    if (rc < 0)
        goto fail;
    rc = uv_cond_init(&p->some);
    if (rc < 0)
        goto fail_mutex;
    rc = uv_cond_init(&p->fewer);
    if (rc < 0)
        goto fail_some;
    p->refs = 1;
    p->usual = loop->work_threads;
    if (p->usual == 0)
        p->usual = uv_available_parallelism();
    if (p->usual > THREADS_MAX)
        p->usual = THREADS_MAX;
    p->alloc = loop->alloc;
    loop->work = p;
    return 0;

fail_some:
    uv_cond_destroy(&p->some);
fail_mutex:
    uv_mutex_destroy(&p->mutex);
fail:
    vow__mem_free(&loop->alloc, p, sizeof(*p));
    return rc;
}

static int thread_pool_submit(vow_loop *loop, vow_job *job)
{
    struct vow__core_work_pool *p = loop->work;
    int rc = 0;
    uv_mutex_lock(&p->mutex);
    if (p->queued >= loop->work_queue_max)
        rc = VOW_EQUEUEFULL;
    else if (p->idle <= p->queued && p->threads < p->usual)
        rc = thread_add(p);
    if (rc < 0 && rc != VOW_EQUEUEFULL && p->threads > 0)
        rc = 0; /* fewer threads are enough */
    if (rc == 0) {
        job->queued = true;
        vow__list_push(&p->queue, &job->in_queue);
        p->queued++;
        uv_cond_signal(&p->some);
    }
    uv_mutex_unlock(&p->mutex);
    if (rc == 0 && !uv_is_active((uv_handle_t *)&loop->work_timer)) {
        uv_update_time(loop->uv);
        (void)uv_timer_start(&loop->work_timer, on_thread_pool_tick, TICK_MS,
                             TICK_MS);
        uv_unref((uv_handle_t *)&loop->work_timer);
    }
    return rc;
}

/* Adds a thread if jobs wait and no job could start since the last tick: all
 * threads are blocked. */
static void on_thread_pool_tick(uv_timer_t *handle)
{
    vow_loop *loop = handle->data;
    struct vow__core_work_pool *p = loop->work;
    uv_mutex_lock(&p->mutex);
    bool waiting = p->queued > 0;
    if (waiting && p->idle == 0 && p->started == p->seen &&
        p->threads < p->usual + EXTRA_THREADS)
        (void)thread_add(p);
    p->seen = p->started;
    uv_mutex_unlock(&p->mutex);
    if (!waiting)
        (void)uv_timer_stop(handle);
}

/* Removes a queued job from the queue and rejects the promise. A running job
 * sees the cancel in vow_job_canceled(). */
static void on_work_cancel(vow_future *out, vow_error *why, void *user)
{
    vow_job *job = user;
    struct vow__core_work_pool *p = job->pool;
    uv_mutex_lock(&p->mutex);
    bool queued = job->queued;
    if (queued) {
        job->queued = false;
        vow__list_remove(&p->queue, &job->in_queue);
        p->queued--;
    }
    uv_mutex_unlock(&p->mutex);
    if (!queued)
        return;
    vow__core_future_reject(vow__core_future_loop(out), out,
                            vow_error_ref(why));
    job_discard(job);
}

/* Drops a job that will never run; the promise is settled. */
static void job_discard(vow_job *job)
{
    vow__core_remote_discard(job->remote);
    job_unref(job);
}

static void on_work_detach(void *user)
{
    job_unref(user);
}

static void job_unref(vow_job *job)
{
    if (atomic_fetch_sub_explicit(&job->refs, 1, memory_order_acq_rel) > 1)
        return;
    struct vow__core_work_pool *p = job->pool;
    struct vow_alloc alloc = job->alloc;
    vow__mem_free(&alloc, job, sizeof(*job));
    thread_pool_unref(p);
}

size_t vow__core_work_count(const vow_loop *loop)
{
    struct vow__core_work_pool *p = loop->work;
    if (p == NULL)
        return 0;
    uv_mutex_lock(&p->mutex);
    size_t n = p->queued + p->running;
    uv_mutex_unlock(&p->mutex);
    return n;
}

void vow__core_work_close(vow_loop *loop)
{
    struct vow__core_work_pool *p = loop->work;
    vow_link *l;
    if (p == NULL)
        return;
    (void)uv_timer_stop(&loop->work_timer);
    uv_mutex_lock(&p->mutex);
    p->stop = true;
    vow_link *queue = p->queue;
    p->queue = NULL;
    p->queued = 0;
    uv_cond_broadcast(&p->some);
    uv_mutex_unlock(&p->mutex);
    while ((l = vow__list_take(&queue)) != NULL) {
        vow_job *job = VOW__OUTER(l, vow_job, in_queue);
        vow__core_future_reject_code(loop, vow__core_remote_future(job->remote),
                                     VOW_ECLOSED, NULL);
        job_discard(job);
    }
    vow__core_remotes_ask(loop);
    const struct vow__clock real = {0};
    uint64_t end = vow__clock_now_ns(&real) + CLOSE_WAIT_NS;
    uv_mutex_lock(&p->mutex);
    while (p->threads > 0 && vow__clock_now_ns(&real) < end)
        (void)uv_cond_timedwait(&p->fewer, &p->mutex, CLOSE_WAIT_NS / 10);
    uv_mutex_unlock(&p->mutex);
    loop->work = NULL;
    thread_pool_unref(p); /* keeps W2 */
}

/* ---- on the pool's threads ----------------------------------------------- */

/* Starts a thread; the caller holds the mutex. */
static int thread_add(struct vow__core_work_pool *p)
{
    uv_thread_t id;
    int rc = uv_thread_create(&id, thread_main, p);
    if (rc < 0)
        return rc;
    p->threads++;
    p->refs++;
    return 0;
}

static void thread_main(void *arg)
{
    struct vow__core_work_pool *p = arg;
    vow_job *job;
    (void)pthread_detach(pthread_self());
    uv_mutex_lock(&p->mutex);
    while ((job = thread_next_job(p)) != NULL) {
        uv_mutex_unlock(&p->mutex);
        job_run_on_thread(p, job);
        uv_mutex_lock(&p->mutex);
    }
    p->threads--;
    uint32_t refs = --p->refs;
    uv_cond_signal(&p->fewer);
    uv_mutex_unlock(&p->mutex);
    if (refs == 0)
        thread_pool_free(p);
}

/* Returns a job; NULL: the thread shall end. The caller holds the mutex. */
static vow_job *thread_next_job(struct vow__core_work_pool *p)
{
    while (p->queue == NULL && !p->stop && p->threads <= p->usual) {
        p->idle++;
        uv_cond_wait(&p->some, &p->mutex);
        p->idle--;
    }
    vow_link *l = vow__list_take(&p->queue);
    if (l == NULL)
        return NULL;
    vow_job *job = VOW__OUTER(l, vow_job, in_queue);
    job->queued = false;
    p->queued--;
    p->running++;
    p->started++;
    return job;
}

/* Counts `running` down before delivering the result: a reader of the result
 * sees the thread as free. */
static void job_run_on_thread(struct vow__core_work_pool *p, vow_job *job)
{
    vow_remote *remote = job->remote;
    vow_next next = job->fn(job, job->arg);
    uv_mutex_lock(&p->mutex);
    p->running--;
    uv_mutex_unlock(&p->mutex);
    (void)vow__core_remote_settle(remote, next);
    vow_remote_unref(remote);
    job_unref(job);
}

static void thread_pool_unref(struct vow__core_work_pool *p)
{
    uv_mutex_lock(&p->mutex);
    uint32_t refs = --p->refs;
    uv_mutex_unlock(&p->mutex);
    if (refs == 0)
        thread_pool_free(p);
}

static void thread_pool_free(struct vow__core_work_pool *p)
{
    struct vow_alloc alloc = p->alloc;
    uv_cond_destroy(&p->fewer);
    uv_cond_destroy(&p->some);
    uv_mutex_destroy(&p->mutex);
    vow__mem_free(&alloc, p, sizeof(*p));
}

/* ---- for the job --------------------------------------------------------- */

bool vow_job_canceled(const vow_job *job)
{
    return vow_remote_canceled(job->remote);
}

bool vow_job_notify(vow_job *job, vow_value progress)
{
    return vow_notify_any(job->remote, progress);
}

vow_loop *vow_job_loop(vow_job *job)
{
    return vow_remote_loop(job->remote);
}
