/* SPDX-License-Identifier: MIT */
/* redis_run.c - what running names cost the server; and names that are locked
 * for work that does nothing, and jobs that have a place in a pool, which the
 * peers do, too.
 *
 * All by an authority with a thread of its own, which is the default.
 */
#include "redis.h"

enum { RUNNING = 1000, IDLE_MS = 3000, PULSE_MS = 10000 };

struct bench {
    vow_loop *loop;
    vow_authority *authority;
    struct bare *bare;
    vow_pool *pool;
    long next; /* the number of the next name */
    long end;  /* none from here on */
    long done;
};

static struct bench open_bench(void)
{
    struct bench b = {.loop = open_loop()};
    b.authority = open_authority(b.loop, 0, NULL, NULL);
    b.bare = bare_open(server_socket());
    return b;
}

static void close_bench(struct bench *b)
{
    close_authority(b->loop, b->authority);
    MUST(vow_loop_close(b->loop) == 0);
    bare_close(b->bare);
}

/* ---- pulses -------------------------------------------------------------- */

static vow_future *run_on(vow_lease *lease, void *bench)
{
    struct bench *b = bench;
    vow_deferred *d;
    (void)lease;
    b->done++;
    vow_future *f = vow_promise(b->loop, &d);
    (void)d; /* it never ends */
    return f;
}

/* In percent of a core, for so long. */
static double server_load(struct bench *b, uint64_t ms)
{
    double begin = now_ns(), used = bare_cpu_s(b->bare);
    VOW_AUTO(vow_future) f = vow_delay(b->loop, ms);
    MUST(vow_loop_run_until(b->loop, f) == 0);
    used = bare_cpu_s(b->bare) - used;
    return used / ((now_ns() - begin) / 1e9) * 100;
}

void bench_pulse(void)
{
    static vow_future *names[RUNNING];
    struct bench b = open_bench();
    row("pulse-cpu", "c-redis", server_load(&b, IDLE_MS), "%");
    for (long i = 0; i < RUNNING; i++) {
        vow_name name = name_of_number("running", i);
        names[i] = vow_share(b.authority, &name, run_on, &b, NULL);
    }
    while (b.done < RUNNING) {
        VOW_AUTO(vow_future) f = vow_delay(b.loop, 10);
        MUST(vow_loop_run_until(b.loop, f) == 0);
    }
    double calls = bare_scripts(b.bare);
    row("pulse-cpu", "vow", server_load(&b, PULSE_MS), "%");
    calls = bare_scripts(b.bare) - calls;
    row("pulse-calls", "vow", calls / (PULSE_MS / 1e3), "per s");
    MUST(calls > 0 && b.done == RUNNING);
    for (long i = 0; i < RUNNING; i++) {
        MUST(vow_state_of(names[i]) == VOW_PENDING);
        vow_future_unref(names[i]);
    }
    close_bench(&b);
}

/* ---- locks --------------------------------------------------------------- */

static void ask_next(struct bench *b);

static vow_future *do_nothing(vow_lease *lease, void *bench)
{
    struct bench *b = bench;
    (void)lease;
    return vow_resolved(b->loop, vow_nothing());
}

static vow_next go_on(vow_value v, void *bench)
{
    struct bench *b = bench;
    (void)v;
    b->done++;
    if (b->next < b->end)
        ask_next(b);
    return vow_ok(vow_nothing());
}

static void ask_next(struct bench *b)
{
    vow_name name = name_of_number("lock", b->next++);
    MUST(vow_done(vow_share(b->authority, &name, do_nothing, b, NULL), go_on,
                  NULL, b) == 0);
}

/* So many at once, until there were so many: nanoseconds. */
static double lock_many(struct bench *b, long n, long at_once)
{
    double begin = now_ns();
    b->end = b->next + n;
    for (long i = 0; i < at_once; i++)
        ask_next(b);
    MUST(vow_loop_run(b->loop) == 0);
    MUST(b->done == b->end);
    return now_ns() - begin;
}

void bench_lock(void)
{
    struct bench b = open_bench();
    lock_many(&b, CROWD, 1); /* connected, warm */
    double calls = bare_scripts(b.bare);
    row("lock-one", "vow", lock_many(&b, LOCKS, 1) / LOCKS / 1e3, "us");
    calls = bare_scripts(b.bare) - calls;
    row("lock-trips", "vow", calls / LOCKS, "trips");
    row("lock-many", "vow", MANY / (lock_many(&b, MANY, CROWD) / 1e9),
        "names/s");
    close_bench(&b);
}

/* ---- jobs ---------------------------------------------------------------- */

static void job_next(struct bench *b);

static vow_next run_job(vow_value granted, void *bench)
{
    struct bench *b = bench;
    vow_grant *g = vow_grant_take(granted);
    MUST(g != NULL);
    b->done++;
    vow_grant_release(g);
    if (b->next < b->end)
        job_next(b);
    return vow_ok(vow_nothing());
}

static void job_next(struct bench *b)
{
    b->next++;
    MUST(vow_done(vow_pool_acquire(b->pool, NULL, 1), run_job, NULL, b) == 0);
}

static double jobs(struct bench *b, long n, long at_once)
{
    double begin = now_ns();
    b->end = b->next + n;
    for (long i = 0; i < at_once; i++)
        job_next(b);
    MUST(vow_loop_run(b->loop) == 0);
    MUST(b->done == b->end);
    return now_ns() - begin;
}

/* The calls of the server for each job; the last places are given back behind
 * our back. */
static double calls_since(struct bench *b, double before, long n)
{
    VOW_AUTO(vow_future) f = vow_delay(b->loop, 50);
    MUST(vow_loop_run_until(b->loop, f) == 0);
    return (bare_scripts(b->bare) - before) / (double)n;
}

void bench_job(void)
{
    struct bench b = open_bench();
    MUST(vow_pool_open(b.authority, "jobs",
                       VOW_POOL(.limits = {.concurrent = PLACES}),
                       &b.pool) == 0);
    jobs(&b, CROWD, 1); /* connected, warm */
    double calls = bare_scripts(b.bare);
    row("job-one", "vow", jobs(&b, JOBS, 1) / JOBS / 1e3, "us");
    row("job-trips", "vow", calls_since(&b, calls, JOBS), "trips");
    calls = bare_scripts(b.bare);
    row("job-many", "vow", QUEUED / (jobs(&b, QUEUED, QUEUED) / 1e9), "jobs/s");
    row("job-many-trips", "vow", calls_since(&b, calls, QUEUED), "trips");
    vow_pool_unref(b.pool);
    close_bench(&b);
}
