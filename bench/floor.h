/* SPDX-License-Identifier: MIT */
/* floor.h - the cases of floor_post.c, each prints its row. */
#ifndef VOW_BENCH_FLOOR_H
#define VOW_BENCH_FLOOR_H

#include "bench.h"

void floor_post_1(void);
void floor_post_4(void);

#endif
