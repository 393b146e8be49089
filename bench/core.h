/* SPDX-License-Identifier: MIT */
/* core.h - the cases of core.c, each prints its rows. */
#ifndef VOW_BENCH_CORE_H
#define VOW_BENCH_CORE_H

#include "bench.h"
#include "ours.h"
#include <vow.h>

/* core_promise.c */
void bench_chain(void);
void bench_fanout(void);
void bench_cycle(void);
void bench_link_bytes(void);

/* core_fiber.c */
void bench_switch(void);
void bench_await(void);
void bench_yield(void);
void bench_spawn(void);
void bench_fiber_bytes(void);

/* core_post.c */
void bench_post_1(void);
void bench_post_4(void);

#endif
