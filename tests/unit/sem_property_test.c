/* SPDX-License-Identifier: MIT */
/* sem_property_test.c - whatever is asked of a semaphore in whatever order, it
 * does what the model says: order of arrival, weights, bypass within its
 * bounds, resize also below what is held, cancel, a full queue, close; and the
 * oracle agrees. */
#include "drive.h"
#include "harness.h"

enum { SCHEDULES = 2500 };

/* ---- the oracle --------------------------------------------------------- */

/* A semaphore has none: we tell it of the starts and ends that were seen, in
 * their order, before each change of the limit and between the steps. */
static uint32_t told; /* events */

/* Numbers rise from start to start when nothing but arrival decides. */
static int open_oracle(struct drive *d)
{
    bool ordered = (d->plan.features & PLAN_BYPASS) == 0;
    told = 0;
    return vow_oracle_new(
        d->w.loop,
        VOW_ORACLE(.concurrent = d->plan.limits.concurrent, .ordered = ordered),
        &d->oracle);
}

static void tell_oracle(struct drive *d)
{
    while (told < d->events) {
        told++;
        for (uint32_t i = 0; i < d->model.n_jobs; i++) {
            const struct drive_job *j = &d->jobs[i];
            if (j->started == told)
                vow_oracle_start(d->oracle, j->step->job.weight, j->number);
            if (j->ended == told)
                vow_oracle_end(d->oracle, j->step->job.weight);
        }
    }
}

/* ---- a semaphore -------------------------------------------------------- */

static int open_sem(struct drive *d)
{
    const struct model_limits *l = &d->plan.limits;
    int rc = open_oracle(d);
    if (rc != 0)
        return rc;
    return vow_sem_new(d->w.loop,
                       VOW_SEM_OPTS(.permits = l->concurrent,
                                    .queue_max = l->queue_max,
                                    .bypass_count = l->bypass_count,
                                    .bypass_ms = l->bypass_ns / MODEL_MS),
                       &d->sem);
}

static void drop_sem(struct drive *d)
{
    d->sem = vow_sem_unref(d->sem);
    d->oracle = vow_oracle_unref(d->oracle);
}

static vow_future *ask_sem(struct drive *d, struct drive_job *j)
{
    uint32_t weight = j->step->job.weight;
    if (d->two_handed)
        return vow_sem_acquire(d->sem, weight);
    return vow_sem_with(d->sem, weight, drive_start, j);
}

/* A semaphore does not tell whom it has let in, but who waits. */
static bool is_in_sem(struct drive *d, const struct drive_job *j)
{
    (void)j;
    return vow_sem_stats_get(d->sem).waiting == model_waiting(&d->model);
}

static bool try_sem(struct drive *d, struct drive_job *j)
{
    return vow_sem_try(d->sem, j->step->job.weight, &j->permit);
}

/* A change is the first step of its turn: all who were let in have started. */
static int set_sem(struct drive *d, const struct model_limits *l)
{
    tell_oracle(d);
    vow_oracle_expect(d->oracle, l->concurrent, 0, 0);
    return vow_sem_resize(d->sem, l->concurrent);
}

static void close_sem(struct drive *d)
{
    vow_sem_close(d->sem);
}

static vow_future *wait_sem(struct drive *d)
{
    return vow_sem_wait(d->sem);
}

static void check_sem(struct drive *d)
{
    vow_sem_stats st = vow_sem_stats_get(d->sem);
    uint32_t weight;
    (void)model_running(&d->model, &weight);
    tell_oracle(d);
    drive_same(d, "stats.permits", st.permits, d->model.limits.concurrent);
    drive_same(d, "stats.held", st.held, weight);
    drive_same(d, "stats.waiting", st.waiting, model_waiting(&d->model));
}

static const struct drive_front sem_front = {
    .open = open_sem,
    .ask = ask_sem,
    .is_let_in = is_in_sem,
    .ask_now = try_sem,
    .set = set_sem,
    .close = close_sem,
    .idle = wait_sem,
    .check = check_sem,
    .drop = drop_sem,
};

/* ---- corners ------------------------------------------------------------ */

TEST(sem_property, grants_in_order_of_arrival)
{
    drive_many(&sem_front, PLAN_SEMAPHORE | PLAN_PLACES | PLAN_CHANGES,
               SCHEDULES);
}

TEST(sem_property, small_ones_pass_within_bounds_and_the_queue_is_one)
{
    drive_many(&sem_front,
               PLAN_SEMAPHORE | PLAN_PLACES | PLAN_BYPASS | PLAN_QUEUE |
                   PLAN_CHANGES,
               SCHEDULES);
}
