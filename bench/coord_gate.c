/* SPDX-License-Identifier: MIT */
/* coord_gate.c - a gate whose jobs need not wait, and one with a queue.
 *
 * Those that need not wait pass a gate with both limits set. Its rate is what
 * no program can reach: 131,072 per millisecond leave 7 ns for each, and to
 * read the clock takes longer.
 */
#include "coord.h"

static vow_gate *open_fast_gate(vow_loop *loop)
{
    vow_gate *gate = NULL;
    MUST(vow_gate_new(
             loop,
             VOW_GATE(.concurrent = PERMITS, .rate = 131072, .window_ms = 1),
             &gate) == 0);
    return gate;
}

/* All that was asked for has started and ended. */
static void close_gate(vow_loop *loop, vow_gate *gate, uint64_t jobs)
{
    vow_gate_stats stats;
    vow_gate_stats_get(gate, &stats);
    MUST(stats.started == jobs);
    MUST(stats.ended == jobs);
    MUST(stats.waiting == 0);
    MUST(stats.weight == 0);
    vow_gate_unref(gate);
    MUST(vow_loop_close(loop) == 0);
}

/* ---- free --------------------------------------------------------------- */

void bench_gate_free(void)
{
    vow_loop *loop = open_loop();
    vow_gate *gate = open_fast_gate(loop);
    double begin = now_ns();
    for (long i = 0; i < ADMITS; i++) {
        vow_permit p;
        MUST(vow_gate_try(gate, NULL, &p));
        vow_permit_release(&p);
    }
    row("gate-free", "vow", (now_ns() - begin) / ADMITS, "ns");
    close_gate(loop, gate, ADMITS);
}

struct turns {
    vow_gate *gate;
    long left;
};

static vow_future *begin_job(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)attempt;
    (void)arg;
    return vow_resolved(loop, vow_nothing());
}

/* Run one, and the next when it has ended. */
static vow_next next_job(vow_value v, void *user)
{
    struct turns *t = user;
    (void)v;
    if (t->left-- > 0) {
        vow_future *f = vow_gate_run(t->gate, begin_job, NULL, NULL);
        MUST(vow_done(f, next_job, NULL, t) == 0);
    }
    return vow_ok(vow_nothing());
}

void bench_gate_run(void)
{
    vow_loop *loop = open_loop();
    struct turns t = {.gate = open_fast_gate(loop), .left = RUNS};
    double begin = now_ns();
    (void)next_job(vow_nothing(), &t);
    MUST(vow_loop_run(loop) == 0);
    row("gate-run", "vow", (now_ns() - begin) / RUNS, "ns");
    close_gate(loop, t.gate, RUNS);
}

/* ---- a queue ------------------------------------------------------------ */

enum { LEVELS = 32, LOWEST = -16 };

struct queue;

struct level {
    struct queue *queue;
    vow_job_opts job;
};

struct queue {
    vow_loop *loop;
    vow_gate *gate;
    struct level level[LEVELS];
    long started;
    uint64_t asked;
    int32_t last; /* priority of the one that started last */
};

/* The higher priority starts first. */
static vow_future *begin_level(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct level *level = arg;
    struct queue *q = level->queue;
    (void)attempt;
    MUST(level->job.priority <= q->last);
    q->last = level->job.priority;
    q->started++;
    return vow_resolved(loop, vow_nothing());
}

static void fill_and_drain(void *load, long n)
{
    struct queue *q = load;
    q->started = 0;
    q->last = INT32_MAX;
    vow_gate_pause(q->gate);
    for (long i = 0; i < n; i++) {
        struct level *level = &q->level[i % LEVELS];
        vow_future *f = vow_gate_run(q->gate, begin_level, level, &level->job);
        vow_future_unref(f);
    }
    vow_gate_resume(q->gate);
    MUST(vow_loop_run(q->loop) == 0);
    MUST(q->started == n);
    q->asked += (uint64_t)n;
}

/* Ageing is slower than the program, so that the order can be checked. */
static void measure_growth(const char *what, bool priorities)
{
    struct queue q = {.loop = open_loop()};
    const vow_gate_opts *opts =
        VOW_GATE(.concurrent = PERMITS, .age_ms = 3600000);
    MUST(vow_gate_new(q.loop, opts, &q.gate) == 0);
    for (int i = 0; i < LEVELS; i++) {
        q.level[i].queue = &q;
        q.level[i].job = *VOW_JOB(.priority = priorities ? LOWEST + i : 0);
    }
    report_growth(what, fill_and_drain, &q);
    close_gate(q.loop, q.gate, q.asked);
}

void bench_gate_growth(void)
{
    measure_growth("gate", false);
}

void bench_prio_growth(void)
{
    measure_growth("prio", true);
}
