/* SPDX-License-Identifier: MIT */
/* ours.c - what core.c and coord.c have in common. */
#include "ours.h"

vow_loop *open_loop(void)
{
    vow_loop *loop = NULL;
    MUST(vow_loop_new(NULL, &loop) == 0);
    return loop;
}

int run_ours(int argc, char **argv, const struct bench_case *cases, size_t n)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s CASE\n", argv[0]);
        return 2;
    }
    return run_case(cases, n, argv[1]);
}
