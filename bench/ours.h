/* SPDX-License-Identifier: MIT */
/* ours.h - what the library's own programs share: a loop, and their main(). */
#ifndef VOW_BENCH_OURS_H
#define VOW_BENCH_OURS_H

#include "bench.h"
#include <vow.h>

/* A loop with default options: what a user gets. */
vow_loop *open_loop(void);

/* Runs the case that the only argument names; the exit status. */
int run_ours(int argc, char **argv, const struct bench_case *cases, size_t n);

#endif
