/* SPDX-License-Identifier: MIT */
/* core.c - the library's own side of `./dev bench core`: runs one case.
 *
 * usage: bench_core CASE. One process per case, so that no case runs on memory
 * that another has warmed up. The floor (floor.c) and the peers (peers/) do
 * the same work under the same names; `bench/run` puts them side by side.
 */
#include "core.h"
#include "ours.h"

static const struct bench_case cases[] = {
    {"chain", bench_chain},
    {"fanout", bench_fanout},
    {"cycle", bench_cycle},
    {"link-bytes", bench_link_bytes},
    {"switch", bench_switch},
    {"await", bench_await},
    {"yield", bench_yield},
    {"spawn", bench_spawn},
    {"post-1", bench_post_1},
    {"post-4", bench_post_4},
    {"fiber-bytes", bench_fiber_bytes},
};

int main(int argc, char **argv)
{
    return run_ours(argc, argv, cases, COUNT(cases));
}
