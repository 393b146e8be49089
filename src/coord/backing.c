/* SPDX-License-Identifier: MIT */
/* backing.c - a grant, as the value of a future and out of it.
 *
 * WHY   What a backing gives must come back, also when nobody was there to take
 *       it: the job was canceled in the same turn, or the future was dropped.
 * HOW   The value of the future and the one who took the grant out of it hold
 *       one reference each. The value releases what was never taken, the other
 *       what he has; who lets go last frees it.
 * INVARIANTS
 *   B1  release() is called once, and before free()
 * THREADS  loop thread only.
 */
#include "vow/backing.h"
#include "base/assert.h"

static void value_drop(void *grant);
static void release(vow_grant *g);
static void unref(vow_grant *g);

vow_value vow_grant_value(vow_grant *g)
{
    VOW__ASSERT(g->refs == 0); /* one value per grant */
    g->refs = 1;
    return vow_own(g, value_drop);
}

vow_grant *vow_grant_take(vow_value granted)
{
    vow_grant *g = granted.as.ptr;
    if (granted.tag != vow_own(NULL, value_drop).tag || g->taken)
        return NULL;
    g->taken = true;
    g->refs++;
    return g;
}

void vow_grant_release(vow_grant *g)
{
    if (g == NULL)
        return;
    release(g);
    unref(g);
}

static void value_drop(void *grant)
{
    vow_grant *g = grant;
    if (!g->taken)
        release(g);
    unref(g);
}

/* Whoever gives it back need not be told of its loss any more. */
static void release(vow_grant *g)
{
    VOW__ASSERT(!g->released); /* keeps B1 */
    g->released = true;
    if (g->lost != NULL)
        (void)vow_error_of(g->lost);
    g->release(g);
}

static void unref(vow_grant *g)
{
    VOW__ASSERT(g->refs > 0);
    if (--g->refs == 0)
        g->free(g);
}
