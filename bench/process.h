/* SPDX-License-Identifier: MIT */
/* process.h - programs of the suite that are several processes. */
#ifndef VOW_BENCH_PROCESS_H
#define VOW_BENCH_PROCESS_H

#include <stddef.h>
#include <sys/types.h>

/* Memory that children have in common with us, zero. */
void *new_shared(size_t size);
/* A child that runs the function and ends; it counts only if it ended well. */
pid_t start_child(void (*run)(void *arg), void *arg);
void end_child(pid_t pid);
void nap_us(long us);

/* So many of a hundred are not above it. Sorts the values. */
double percentile(double *values, size_t n, double percent);

#endif
