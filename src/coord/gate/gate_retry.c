/* SPDX-License-Identifier: MIT */
/* gate_retry.c - retries: each attempt comes back to the gate as a new job.
 *
 * WHY   An attempt that spends the backoff inside the gate would hold slots in
 *       vain, and a retry without a start at the gate breaks the rate.
 * HOW   vow_retry() around the gate: the backoff is spent outside, and a single
 *       deadline covers waiting, backoff and running. The first attempt joins
 *       the wait queue at once, to keep the position by arrival.
 * THREADS  loop thread only.
 */
#include "coord/gate/gate_internal.h"

#include <string.h>

struct vow__gate_attempts {
    vow_gate *gate; /* counted */
    uint32_t refs;  /* the chain, the watch, each attempt with a job */
    const char *site;
    vow_start_fn start;
    void *arg;
    vow_job_opts job;
    vow_retry_if_fn retry_if;
    void *retry_if_user;
    uint32_t attempt;    /* number of the current attempt */
    bool never_admitted; /* VOW_EINVAL, VOW_EDEADLK: do not retry */
    uint64_t due_ns;     /* deadline; UINT64_MAX: none */
    vow_future *first;   /* first attempt, already in the wait queue; owned */
    vow_future *result;  /* for the caller; not counted; NULL: settled */
    vow_watch ended;     /* of all attempts */
    size_t size;
    char key[];
};

static struct vow__gate_attempts *attempts_new(const char *site, vow_gate *g,
                                               vow_start_fn start, void *arg,
                                               const vow_job_opts *o);
static vow_future *attempts_next(vow_loop *loop, uint32_t number, void *user);
static vow_future *attempts_submit(struct vow__gate_attempts *a,
                                   uint32_t number);
static bool attempts_worth_retry(vow_error *error, void *user);
static void attempts_chain_drop(void *user);
static void on_attempts_ended(vow_future *all, void *user);

vow_future *vow__gate_retry(const char *site, vow_gate *g, vow_start_fn start,
                            void *arg, const vow_job_opts *o)
{
    struct vow__gate_attempts *a = attempts_new(site, g, start, arg, o);
    if (a == NULL)
        return vow_refused_at(site, g->loop, VOW_ENOMEM, NULL);
    vow_retry_opts retry = *o->retry;
    if (o->deadline_ms > 0 &&
        (retry.deadline_ms == 0 || o->deadline_ms < retry.deadline_ms))
        retry.deadline_ms = o->deadline_ms;
    if (retry.deadline_ms > 0)
        a->due_ns = vow_loop_due_ns(g->loop, retry.deadline_ms);
    a->retry_if = retry.retry_if;
    a->retry_if_user = retry.retry_if_user;
    retry.retry_if = attempts_worth_retry;
    retry.retry_if_user = a;
    vow_future *all = vow_retry_at(site, g->loop, attempts_next, a, &retry);
    if (vow_state_of(all) == VOW_REJECTED) {
        attempts_chain_drop(a);
        return all;
    }
    const vow_step last = {.user = a, .drop = attempts_chain_drop};
    vow_future *result = vow_chain_at(site, all, &last, 1);
    if (vow_state_of(result) == VOW_REJECTED) { /* not attached */
        (void)vow_cancel(all, NULL);
    } else {
        a->result = result;
        a->first = attempts_submit(a, 1);
        a->refs++;
        vow_watch_start(&a->ended, all, on_attempts_ended, a);
    }
    vow_future_unref(all);
    return result;
}

static struct vow__gate_attempts *attempts_new(const char *site, vow_gate *g,
                                               vow_start_fn start, void *arg,
                                               const vow_job_opts *o)
{
    size_t key = o->key == NULL ? 0 : strlen(o->key) + 1;
    struct vow__gate_attempts *a = vow__mem_zero(&g->alloc, sizeof(*a) + key);
    if (a == NULL)
        return NULL;
    a->gate = vow_gate_ref(g);
    a->refs = 1;
    a->site = site;
    a->start = start;
    a->arg = arg;
    a->job = *o;
    a->job.retry = NULL;
    a->due_ns = UINT64_MAX;
    a->size = sizeof(*a) + key;
    if (key > 0)
        a->job.key = memcpy(a->key, o->key, key);
    return a;
}

static vow_future *attempts_next(vow_loop *loop, uint32_t number, void *user)
{
    struct vow__gate_attempts *a = user;
    vow_future *first = a->first;
    (void)loop;
    a->first = NULL;
    return first != NULL ? first : attempts_submit(a, number);
}

static vow_future *attempts_submit(struct vow__gate_attempts *a,
                                   uint32_t number)
{
    if (a->due_ns != UINT64_MAX) {
        uint64_t now = vow_loop_now_ns(a->gate->loop);
        uint64_t left = a->due_ns > now ? a->due_ns - now : 0;
        a->job.deadline_ms =
            left / VOW__NS_PER_MS + (left % VOW__NS_PER_MS != 0);
        if (a->job.deadline_ms == 0)
            a->job.deadline_ms = 1; /* vow_retry() ends the attempt exactly */
    }
    const struct vow__gate_task task = {
        .start = a->start, .arg = a->arg, .attempts = a};
    a->attempt = number;
    vow_future *f = vow__gate_submit(a->gate, a->site, &task, &a->job);
    if (vow_state_of(f) == VOW_REJECTED) {
        int code = vow_error_code(vow_error_of(f));
        a->never_admitted = code == VOW_EINVAL || code == VOW_EDEADLK;
    }
    return f;
}

static bool attempts_worth_retry(vow_error *error, void *user)
{
    struct vow__gate_attempts *a = user;
    if (a->never_admitted)
        return false;
    if (a->retry_if != NULL)
        return a->retry_if(error, a->retry_if_user);
    if (vow_error_code(vow_error_cause(error)) == VOW_ELOST)
        return true; /* canceled by the gate, not by the caller */
    return vow_error_code(error) != VOW_ECANCELED &&
           vow_error_code(error) != VOW_ECLOSED;
}

/* Ends the retries: the chain is settled or dropped, no attempt follows. */
static void attempts_chain_drop(void *user)
{
    struct vow__gate_attempts *a = user;
    vow_future *first = a->first;
    a->first = NULL;
    a->result = NULL;
    if (first != NULL) {
        (void)vow_cancel(first, NULL);
        vow_future_unref(first);
    }
    vow__gate_attempts_unref(a);
}

static void on_attempts_ended(vow_future *all, void *user)
{
    (void)all;
    vow__gate_attempts_unref(user);
}

struct vow__gate_attempts *vow__gate_attempts_ref(struct vow__gate_attempts *a)
{
    if (a != NULL)
        a->refs++;
    return a;
}

void vow__gate_attempts_unref(struct vow__gate_attempts *a)
{
    if (a == NULL || --a->refs > 0)
        return;
    vow_gate *g = a->gate;
    vow__mem_free(&g->alloc, a, a->size);
    vow_gate_unref(g);
}

uint32_t vow__gate_attempts_number(const struct vow__gate_attempts *a)
{
    return a == NULL ? 1 : a->attempt;
}

const vow_future *vow__gate_attempts_result(const struct vow__gate_attempts *a)
{
    return a == NULL ? NULL : a->result;
}
