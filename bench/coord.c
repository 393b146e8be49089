/* SPDX-License-Identifier: MIT */
/* coord.c - the library's own side of `./dev bench coord`: runs one case.
 *
 * usage: bench_coord CASE. One process per case, as in core.c. The peers
 * (peers/) do the same work under the same names; `bench/run` puts them side
 * by side.
 */
#include "coord.h"
#include "ours.h"

static const struct bench_case cases[] = {
    {"sem-free", bench_sem_free},
    {"sem-queue", bench_sem_queue},
    {"sem-bytes", bench_sem_bytes},
    {"sem-growth", bench_sem_growth},
    {"map-now", bench_map_now},
    {"map-queue", bench_map_queue},
    {"gate-free", bench_gate_free},
    {"gate-run", bench_gate_run},
    {"gate-growth", bench_gate_growth},
    {"prio-growth", bench_prio_growth},
    {"rate-queue", bench_rate_queue},
    {"exact", bench_exact},
    {"late", bench_late},
};

int main(int argc, char **argv)
{
    return run_ours(argc, argv, cases, COUNT(cases));
}

void row_part(const char *what, const char *part, double value,
              const char *unit)
{
    char name[64];
    snprintf(name, sizeof(name), "%s-%s", what, part);
    row(name, "vow", value, unit);
}

/* As many jobs as the large queue has, in turns of `n`. */
static double per_job(queue_fn queue, void *load, long n)
{
    double begin = now_ns();
    for (long done = 0; done < MANY; done += n)
        queue(load, n);
    return (now_ns() - begin) / MANY;
}

/* The first two runs of each warm up, the third counts. */
void report_growth(const char *what, queue_fn queue, void *load)
{
    double few = 0, many = 0;
    for (int run = 0; run < 3; run++)
        few = per_job(queue, load, FEW);
    for (int run = 0; run < 3; run++)
        many = per_job(queue, load, MANY);
    row_part(what, "1k", few, "ns");
    row_part(what, "1m", many, "ns");
    row_part(what, "growth", many / few, "times");
}
