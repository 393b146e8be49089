/* SPDX-License-Identifier: MIT */
/* coord_rate.c - jobs that wait for the rate, on the real clock: what the wait
 * costs, and whether the limit holds.
 *
 * The time of a start is read inside the job. A limit of M per window holds if
 * no span of exactly one window, both ends included, has more than M starts. It
 * is used fully if K starts take ceil(K/M) - 1 windows and little more.
 */
#include "coord.h"
#include <sys/resource.h>

struct log {
    double *at; /* ns, in the order of the starts */
    long kept;  /* how many */
    long every; /* this many starts, one is kept */
    long n;     /* starts */
};

static vow_future *note_start(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct log *log = arg;
    (void)attempt;
    if (log->n++ % log->every == 0)
        log->at[log->kept++] = now_ns();
    return vow_resolved(loop, vow_nothing());
}

static void ask(vow_gate *gate, struct log *log, long n)
{
    for (long i = 0; i < n; i++) {
        vow_future *f = vow_gate_run(gate, note_start, log, NULL);
        vow_future_unref(f);
    }
}

/* Of the spans that end with a start. */
struct crowding {
    long spans; /* with more than `max` starts */
    long most;  /* starts in one */
};

/* Among the starts that were kept: of one in a hundred, at most a hundredth may
 * lie in a span. */
static struct crowding count_spans(const struct log *log, double window_ns,
                                   long max)
{
    struct crowding c = {0};
    for (long i = 0, from = 0; i < log->kept; i++) {
        while (log->at[i] - log->at[from] > window_ns)
            from++;
        long starts = i - from + 1;
        c.spans += starts > max;
        c.most = starts > c.most ? starts : c.most;
    }
    return c;
}

static struct log open_log(long n, long every)
{
    struct log log = {.at = calloc((size_t)(n / every), sizeof(double)),
                      .every = every};
    MUST(log.at != NULL);
    return log;
}

/* ---- cost --------------------------------------------------------------- */

static double cpu_ns(void)
{
    struct rusage u;
    MUST(getrusage(RUSAGE_SELF, &u) == 0);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e9 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e3;
}

/* A quarter of the jobs at once and per 250 ms: the last starts at 0.75 s. The
 * clock is read in every hundredth job, not to measure that. */
void bench_rate_queue(void)
{
    vow_loop *loop = open_loop();
    vow_gate *gate = NULL;
    struct log log = open_log(JOBS, 100);
    MUST(vow_gate_new(loop, VOW_GATE(.rate = JOBS / 4, .window_ms = 250),
                      &gate) == 0);
    double begin = now_ns(), used = cpu_ns();
    ask(gate, &log, JOBS);
    MUST(vow_loop_run(loop) == 0);
    row("rate-cpu", "vow", (cpu_ns() - used) / JOBS, "ns");
    row("rate-total", "vow", (now_ns() - begin) / 1e9, "s");
    MUST(log.n == JOBS);
    MUST(count_spans(&log, 250e6, JOBS / 400).spans == 0);
    free(log.at);
    vow_gate_unref(gate);
    MUST(vow_loop_close(loop) == 0);
}

/* ---- accuracy ----------------------------------------------------------- */

/* The first `early` start at 0, the rest `later` ms after them. */
static void accuracy(const char *what, long early, uint64_t later)
{
    vow_loop *loop = open_loop();
    vow_gate *gate = NULL;
    struct log log = open_log(STARTS, 1);
    MUST(vow_gate_new(loop, VOW_GATE(.rate = PER_SECOND), &gate) == 0);
    ask(gate, &log, early);
    vow_future *wait = vow_delay(loop, later);
    MUST(vow_loop_run_until(loop, wait) == 0);
    vow_future_unref(wait);
    double arrived = now_ns();
    ask(gate, &log, STARTS - early);
    MUST(vow_loop_run(loop) == 0);
    MUST(log.n == STARTS);

    struct crowding c = count_spans(&log, 1e9, PER_SECOND);
    row_part(what, "spans", (double)c.spans, "spans");
    row_part(what, "most", (double)c.most, "starts");
    row_part(what, "total", (log.at[STARTS - 1] - arrived) / 1e9, "s");
    free(log.at);
    vow_gate_unref(gate);
    MUST(vow_loop_close(loop) == 0);
}

void bench_exact(void)
{
    accuracy("exact", 0, 0);
}

void bench_late(void)
{
    accuracy("late", 1, 900);
}
