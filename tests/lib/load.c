/* SPDX-License-Identifier: MIT */
/* load.c - jobs for a gate. A job ends by a call of the loop, which needs no
 * memory: so a sweep meets the faults of the gate, and few of ours. */
#include "load.h"
#include "fault.h"
#include <string.h>

enum { NS_PER_MS = 1000000, NAMES = 26 };

static vow_future *outcome(struct load_job *j, vow_loop *loop);
static vow_error *failure(struct load_job *j, vow_loop *loop);
static void ended(struct load_job *j);
static void on_time(void *user);
static void on_cancel(vow_error *why, void *user);

void load_open(struct load *l, const vow_gate_opts *opts)
{
    memset(l, 0, sizeof(*l));
    l->w = &l->own;
    world_open(l->w);
    CHECK_INT_EQ(vow_gate_new(l->w->loop, opts, &l->gate), 0);
}

int load_join(struct load *l, struct world *w, const vow_gate_opts *opts)
{
    memset(l, 0, sizeof(*l));
    l->w = w;
    int rc = vow_gate_new(w->loop, opts, &l->gate);
    CHECK(rc == 0 || (fault_explains(w, rc) && l->gate == NULL));
    return rc;
}

struct load_job *load_job(struct load *l, uint64_t run_ms)
{
    CHECK(l->n_jobs < LOAD_JOBS);
    struct load_job *j = &l->jobs[l->n_jobs];
    j->load = l;
    j->name = (char)('a' + l->n_jobs++ % NAMES);
    j->run_ms = run_ms;
    j->weight = 1;
    return j;
}

struct load_job *load_run(struct load *l, uint64_t run_ms,
                          const vow_job_opts *opts)
{
    struct load_job *j = load_job(l, run_ms);
    if (opts != NULL && opts->weight > 0)
        j->weight = opts->weight;
    j->f = vow_gate_run(l->gate, load_start, j, opts);
    CHECK(j->f != NULL);
    CHECK_UINT_EQ(j->starts, 0); /* never inside the call */
    return j;
}

void load_run_many(struct load *l, int n, uint64_t run_ms,
                   const vow_job_opts *opts)
{
    for (int i = 0; i < n; i++)
        (void)load_run(l, run_ms, opts);
}

vow_future *load_start(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct load_job *j = arg;
    struct load *l = j->load;
    j->starts++;
    CHECK(attempt == j->starts || (fault_fired(l->w) && attempt > j->starts));
    CHECK(!j->runs);
    CHECK(l->n_starts < LOAD_STARTS);
    l->order[l->n_starts] = j->name;
    l->starts[l->n_starts++] =
        (struct load_start){.job = j, .at_ns = vow_loop_now_ns(loop)};
    j->runs = true;
    l->weight += j->weight;
    if (l->weight > l->peak)
        l->peak = l->weight;
    if (j->run_ms == 0)
        return outcome(j, loop);
    vow_future *f = vow_promise(loop, &j->end);
    if (!vow_deferred_pending(j->end)) { /* no memory, or the loop closes */
        ended(j);
        return f;
    }
    vow_on_cancel(j->end, on_cancel, j);
    if (j->run_ms != LOAD_FOR_EVER)
        vow_call_at(&j->call, loop,
                    vow_loop_now_ns(loop) + j->run_ms * NS_PER_MS, on_time, j);
    return f;
}

/* Of a job that takes no time. */
static vow_future *outcome(struct load_job *j, vow_loop *loop)
{
    ended(j);
    if (j->starts <= j->fails)
        return vow_rejected(loop, failure(j, loop));
    return vow_resolved(loop, vow_int(j->name));
}

static vow_error *failure(struct load_job *j, vow_loop *loop)
{
    vow_error *e = vow_error_new(loop, j->code < 0 ? j->code : VOW_EIO,
                                 "attempt %u", (unsigned)j->starts);
    if (j->retry_after_ms > 0)
        vow_error_set_retry_after_ms(e, j->retry_after_ms);
    return e;
}

static void ended(struct load_job *j)
{
    j->runs = false;
    j->load->weight -= j->weight;
    j->end = vow_deferred_unref(j->end);
}

void load_end(struct load_job *j)
{
    CHECK(j->runs);
    (void)vow_call_stop(&j->call);
    on_time(j);
}

static void on_time(void *user)
{
    struct load_job *j = user;
    if (j->starts <= j->fails)
        (void)vow_reject(j->end, failure(j, j->load->w->loop));
    else
        (void)vow_resolve(j->end, vow_int(j->name));
    ended(j);
}

static void on_cancel(vow_error *why, void *user)
{
    struct load_job *j = user;
    j->asked = true;
    (void)vow_call_stop(&j->call);
    if (j->stop_ms > 0) {
        vow_loop *loop = j->load->w->loop;
        vow_call_at(&j->call, loop,
                    vow_loop_now_ns(loop) + j->stop_ms * NS_PER_MS, on_time, j);
        return;
    }
    (void)vow_reject(j->end, vow_error_ref(why));
    ended(j);
}

/* ---- reading ------------------------------------------------------------ */

int load_code(const struct load_job *j)
{
    if (vow_state_of(j->f) == VOW_PENDING)
        return LOAD_PENDING;
    return vow_error_code(vow_error_of(j->f));
}

uint64_t load_ns(const struct load *l, size_t i)
{
    CHECK(i < l->n_starts);
    return l->starts[i].at_ns;
}

uint64_t load_ms(const struct load *l, size_t i)
{
    return load_ns(l, i) / NS_PER_MS;
}

uint64_t load_now_ms(const struct load *l)
{
    return vow_loop_now_ns(l->w->loop) / NS_PER_MS;
}

uint64_t load_most_within(const struct load *l, uint64_t window_ms)
{
    uint64_t most = 0;
    uint64_t sum = 0;
    size_t first = 0;
    for (size_t i = 0; i < l->n_starts; i++) {
        sum += l->starts[i].job->weight;
        while (load_ns(l, i) - load_ns(l, first) > window_ms * NS_PER_MS)
            sum -= l->starts[first++].job->weight;
        if (sum > most)
            most = sum;
    }
    return most;
}

vow_gate_stats load_stats(const struct load *l)
{
    vow_gate_stats st;
    vow_gate_stats_get(l->gate, &st);
    return st;
}

/* ---- the end ------------------------------------------------------------ */

void load_close_at(const char *site, struct load *l)
{
    do {
        for (size_t i = 0; i < l->n_jobs; i++)
            if (l->jobs[i].runs)
                load_end(&l->jobs[i]);
        world_run(l->w);
    } while (l->weight > 0);
    load_drop(l);
    world_run(l->w);
    world_close_at(site, l->w, false);
}

void load_close_loop_at(const char *site, struct load *l)
{
    const size_t started = l->n_starts;
    for (size_t i = 0; i < l->n_jobs; i++)
        (void)vow_call_stop(&l->jobs[i].call);
    world_rc(site, "vow_loop_close", vow_loop_close(l->w->loop));
    l->w->loop = NULL;
    CHECK_UINT_EQ(l->n_starts, started);
    for (size_t i = 0; i < l->n_jobs; i++)
        CHECK(l->jobs[i].f == NULL || load_code(&l->jobs[i]) != LOAD_PENDING);
}

void load_close_dirty_at(const char *site, struct load *l)
{
    load_drop(l);
    world_close_at(site, l->w, true);
}

void load_leave(struct load *l)
{
    for (size_t i = 0; i < l->n_jobs; i++) {
        int code = l->jobs[i].f == NULL ? 0 : load_code(&l->jobs[i]);
        CHECK(code == 0 || fault_explains(l->w, code));
    }
    load_drop(l);
}

void load_drop(struct load *l)
{
    for (size_t i = 0; i < l->n_jobs; i++) {
        struct load_job *j = &l->jobs[i];
        if (j->f != NULL)
            (void)vow_error_of(j->f);
        j->f = vow_future_unref(j->f);
        j->end = vow_deferred_unref(j->end);
    }
    l->gate = vow_gate_unref(l->gate);
}
