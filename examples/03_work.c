/* SPDX-License-Identifier: MIT */
/* 03_work.c - CPU work on the thread pool, with progress and cancel.
 *
 * Two jobs count primes at once, each on a thread of its own, and vow_all()
 * waits for both. A third job has far too much to do: as soon as it tells of
 * its progress, the loop cancels it. A running job is asked, never killed: it
 * looks at vow_job_canceled() now and then and returns. */
#include <limits.h>
#include <stdio.h>
#include <vow.h>

struct range {
    int from, to; /* to is not part of it */
};

struct watch {
    vow_future *job; /* borrowed */
    bool asked;
};

static bool is_prime(int n)
{
    for (int d = 2; d <= n / d; d++)
        if (n % d == 0)
            return false;
    return n > 1;
}

/* Runs on a pool thread: it may use the job, errors and byte buffers only. */
static vow_next count_primes(vow_job *job, void *arg)
{
    const struct range *r = arg;
    int64_t found = 0;
    for (int n = r->from; n < r->to; n++) {
        if (n % 4096 == 0) {
            if (vow_job_canceled(job))
                return vow_fail_code(VOW_ECANCELED, "stopped when asked");
            vow_job_notify(job, vow_int(n));
        }
        found += is_prime(n);
    }
    return vow_ok(vow_int(found));
}

/* Runs on the loop's thread. */
static void stop(vow_value progress, void *user)
{
    struct watch *w = user;
    if (w->asked)
        return;
    w->asked = true;
    printf("the third job tells of its progress: %s\n",
           vow_as_int(progress) > 0 ? "cancel it" : "it says nothing");
    vow_cancel(w->job, NULL);
}

/* Far more than anybody wants to wait for. */
static void cancel_on_progress(vow_loop *loop)
{
    struct range all = {2, INT_MAX};
    struct watch w = {.job = vow_work(loop, count_primes, &all)};
    vow_future *end = vow_on_progress(w.job, stop, &w);
    int rc = vow_loop_run_until(loop, end);
    printf("the third job ended: %s, %s\n", vow_error_name(rc),
           vow_error_message(vow_error_of(end)));
    vow_future_unref(end);
    vow_future_unref(w.job);
}

int main(void)
{
    vow_loop *loop;
    if (vow_loop_new(NULL, &loop) < 0)
        return 1;

    struct range half[2] = {{2, 50000}, {50000, 100000}};
    vow_future *jobs[2] = {
        vow_work(loop, count_primes, &half[0]),
        vow_work(loop, count_primes, &half[1]),
    };
    vow_future *both = vow_all(loop, jobs, 2);
    int rc = vow_loop_run_until(loop, both);
    if (rc == 0)
        printf("primes below 100000: %d and %d\n",
               (int)vow_as_int(vow_list_get(vow_get(both), 0)),
               (int)vow_as_int(vow_list_get(vow_get(both), 1)));
    cancel_on_progress(loop);

    vow_future_unref(jobs[0]);
    vow_future_unref(jobs[1]);
    vow_future_unref(both);
    vow_loop_close(loop);
    return rc == 0 ? 0 : 1;
}
