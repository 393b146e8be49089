/* SPDX-License-Identifier: MIT */
/* coord_map.c - a map over a million numbers, 16 at a time.
 *
 * The results go to a sink that adds them up, as they complete. The peak of the
 * process's memory is read after a warm-up and again at the end: what lies
 * between them is the price of the further tasks.
 */
#include "coord.h"

struct totals {
    int64_t sum;
    uint32_t running;
    uint32_t most;
};

static vow_future *add_up(size_t index, vow_future *outcome, void *user)
{
    struct totals *t = user;
    (void)index;
    t->sum += vow_as_int(vow_get(outcome));
    return NULL;
}

/* A task that has ended when it returns. */
static vow_future *end_now(vow_loop *loop, vow_value item, size_t index,
                           void *user)
{
    (void)index;
    (void)user;
    return vow_resolved(loop, vow_int(vow_as_int(item) + 1));
}

static vow_next add_one(vow_value v, void *user)
{
    struct totals *t = user;
    t->running--;
    return vow_ok(vow_int(vow_as_int(v) + 1));
}

/* A task that ends in a handler, from the loop's queue. */
static vow_future *end_later(vow_loop *loop, vow_value item, size_t index,
                             void *user)
{
    struct totals *t = user;
    (void)index;
    if (++t->running > t->most)
        t->most = t->running;
    return vow_then_drop(vow_resolved(loop, item), add_one, NULL, t);
}

static struct totals map_once(vow_loop *loop, vow_map_fn task, int64_t n)
{
    struct totals t = {0};
    vow_range range;
    vow_future *f = vow_map(loop, vow_source_range(&range, 0, n), task, &t,
                            VOW_MAP(.concurrent = PERMITS, .as_completed = true,
                                    .sink = add_up, .sink_user = &t));
    MUST(vow_loop_run_until(loop, f) == 0);
    MUST(vow_as_int(vow_get(f)) == n);
    MUST(t.sum == n * (n + 1) / 2);
    vow_future_unref(f);
    return t;
}

/* The rows `what`, `what`-peak and `what`-grows. */
static struct totals measure(const char *what, vow_map_fn task)
{
    vow_loop *loop = open_loop();
    map_once(loop, task, WARMUP);
    double before = status_bytes("VmHWM:"), begin = now_ns();
    struct totals t = map_once(loop, task, TASKS);
    row(what, "vow", (now_ns() - begin) / TASKS, "ns");
    double peak = status_bytes("VmHWM:");
    row_part(what, "peak", peak / 1048576, "MiB");
    row_part(what, "grows", (peak - before) / (TASKS - WARMUP), "bytes");
    MUST(vow_loop_close(loop) == 0);
    return t;
}

void bench_map_now(void)
{
    measure("map-now", end_now);
}

void bench_map_queue(void)
{
    struct totals t = measure("map-queue", end_later);
    MUST(t.most == PERMITS);
    MUST(t.running == 0);
}
