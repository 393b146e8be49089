/* SPDX-License-Identifier: MIT */
/* coord.h - the cases of coord.c, each prints its rows. */
#ifndef VOW_BENCH_COORD_H
#define VOW_BENCH_COORD_H

#include "bench.h"
#include "ours.h"
#include <vow.h>

/* The same counts in every program and every language. */
enum {
    PERMITS = 16,      /* of a semaphore, and the limit of a map */
    FREES = 10000000,  /* acquires that need not wait */
    FUTURES = 5000000, /* the same, each by a future */
    TASKS = 1000000,   /* of a map */
    WARMUP = 100000,   /* tasks before those that count */
    ADMITS = 5000000,  /* gate admissions that need not wait */
    RUNS = 1000000,    /* jobs that need not wait */
    JOBS = 100000,     /* that wait for the rate */
    STARTS = 500,      /* on the real clock */
    PER_SECOND = 50,
    FEW = 1000, /* queued */
    MANY = 1000000
};

/* A row of ours, named `what`-`part`. */
void row_part(const char *what, const char *part, double value,
              const char *unit);

/* Puts `n` jobs in a queue and runs them all. */
typedef void (*queue_fn)(void *load, long n);

/* Three rows: the time per job with few in the queue, with many, and how many
 * times the first the second is. */
void report_growth(const char *what, queue_fn queue, void *load);

/* coord_sem.c */
void bench_sem_free(void);
void bench_sem_queue(void);
void bench_sem_bytes(void);
void bench_sem_growth(void);

/* coord_map.c */
void bench_map_now(void);
void bench_map_queue(void);

/* coord_gate.c */
void bench_gate_free(void);
void bench_gate_run(void);
void bench_gate_growth(void);
void bench_prio_growth(void);

/* coord_rate.c */
void bench_rate_queue(void);
void bench_exact(void);
void bench_late(void);

#endif
