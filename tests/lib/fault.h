/* SPDX-License-Identifier: MIT */
/* fault.h - run a test again and again, each time with the next thing failing.
 *
 *     FAULT_SWEEP(promise, a_chain_survives_every_fault, FAULT_ALLOC)
 *     {
 *         int rc = run_a_chain(w->loop);
 *         CHECK(rc == 0 || fault_explains(w, rc));
 *     }
 *
 * The body runs first without a fault, then with fault 1, 2, 3 and so on until
 * one does not fire: first each fault once, then again each with all behind it
 * failing too. Every run has a fresh world, on virtual time and without pools,
 * which is run to its end and closed as strictly as by world_close().
 */
#ifndef TEST_FAULT_H
#define TEST_FAULT_H

#include "world.h"

/* What fails: bits, tried one after the other. */
enum {
    FAULT_ALLOC = 1 /* a new block or a growth, by the loop's allocator */
};

typedef void (*fault_body_fn)(struct world *w);

#define FAULT_SWEEP(g, n, kinds)                                               \
    static void sweep_##g##_##n(struct world *w);                              \
    TEST(g, n)                                                                 \
    {                                                                          \
        fault_sweep(TEST_HERE, (kinds), sweep_##g##_##n);                      \
    }                                                                          \
    static void sweep_##g##_##n(struct world *w)

void fault_sweep(const char *site, unsigned kinds, fault_body_fn body);

/* Whether a fault was met in this run so far, and whether it is why a call
 * ended with `rc`. */
bool fault_fired(const struct world *w);
bool fault_explains(const struct world *w, int rc);

#endif
