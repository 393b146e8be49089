/* SPDX-License-Identifier: MIT */
/* backing.c - a grant as the value of a future.
 *
 * WHY   A grant must return to the backing even if no job takes the grant: the
 *       job was canceled in the same turn, or the future was dropped.
 * HOW   The value of the future has a reference, and so has the taker of the
 *       grant. The value releases a grant that was never taken; else the taker
 *       releases the grant. The last reference frees the grant.
 * INVARIANTS
 *   B1  release() is called once, and before free()
 * THREADS  loop thread only.
 */
#include "vow/backing.h"
#include "base/assert.h"

static void grant_value_drop(void *grant);
static void grant_release_once(vow_grant *g);
static void grant_unref(vow_grant *g);

vow_value vow_grant_value(vow_grant *g)
{
    VOW__ASSERT(g->refs == 0); /* a single value per grant */
    g->refs = 1;
    return vow_own(g, grant_value_drop);
}

vow_grant *vow_grant_take(vow_value granted)
{
    vow_grant *g = granted.as.ptr;
    if (granted.tag != vow_own(NULL, grant_value_drop).tag || g->taken)
        return NULL;
    g->taken = true;
    g->refs++;
    return g;
}

void vow_grant_release(vow_grant *g)
{
    if (g == NULL)
        return;
    grant_release_once(g);
    grant_unref(g);
}

static void grant_value_drop(void *grant)
{
    vow_grant *g = grant;
    if (!g->taken)
        grant_release_once(g);
    grant_unref(g);
}

/* Releases the grant; marks a loss as handled, since the holder is gone. */
static void grant_release_once(vow_grant *g)
{
    VOW__ASSERT(!g->released); /* keeps B1 */
    g->released = true;
    if (g->lost != NULL)
        (void)vow_error_of(g->lost);
    g->release(g);
}

static void grant_unref(vow_grant *g)
{
    VOW__ASSERT(g->refs > 0);
    if (--g->refs == 0)
        g->free(g);
}
