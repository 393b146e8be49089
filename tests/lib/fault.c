/* SPDX-License-Identifier: MIT */
/* fault.c - the sweep. Each run tells on stderr what it is about to break; the
 * harness shows that when the test fails or crashes, so that the last such line
 * names the fault. */
#include "fault.h"
#include <stdio.h>

enum { FAULT_MAX = 100000 };

bool fault_fired(const struct world *w)
{
    return w->alloc.fails > 0;
}

bool fault_explains(const struct world *w, int rc)
{
    return rc == VOW_ENOMEM && fault_fired(w);
}

/* One run with allocation `at` failing (0: none). True if that was met. */
static bool run_once(const char *site, fault_body_fn body, uint64_t at,
                     bool forever)
{
    struct world w = {.sweep = true};
    test_alloc_init(&w.alloc);
    w.alloc.fail_at = at;
    w.alloc.fail_forever = forever;
    fprintf(stderr, "sweep: allocation %llu fails%s\n", (unsigned long long)at,
            at == 0   ? " (none)"
            : forever ? ", and all behind it"
                      : "");

    int rc = world_try_open(&w, NULL);
    if (rc != 0 && fault_explains(&w, rc)) {
        if (w.loop != NULL)
            test_fail(site, "vow_loop_new() failed and wrote its result");
        test_alloc_fini(site, &w.alloc);
        return true;
    }
    world_rc(site, "vow_loop_new", rc);

    const uint64_t before = w.alloc.allocs;
    body(&w);
    world_rc(site, "vow_loop_run", vow_loop_run(w.loop));
    if (at == 0 && w.alloc.allocs == before)
        test_fail(site, "sweeps nothing: the body allocates nothing");
    world_close_at(site, &w, false);
    return fault_fired(&w);
}

static void sweep_allocs(const char *site, fault_body_fn body, bool forever)
{
    for (uint64_t at = 1; at <= FAULT_MAX; at++)
        if (!run_once(site, body, at, forever))
            return;
    test_fail(site, "more than %d faults", FAULT_MAX);
}

void fault_sweep(const char *site, unsigned kinds, fault_body_fn body)
{
    if (kinds != FAULT_ALLOC)
        test_fail(site, "fault kinds, got 0x%x, want 0x%x", kinds, FAULT_ALLOC);
    run_once(site, body, 0, false);
    sweep_allocs(site, body, false);
    sweep_allocs(site, body, true);
}
