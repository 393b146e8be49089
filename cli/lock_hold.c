/* SPDX-License-Identifier: MIT */
/* lock_hold.c - a lock: a place in a pool, or with --once a name.
 *
 * WHY   A place comes back by itself when its holder dies, and the next has its
 *       turn. What must not be begun again by itself needs more: a name of mode
 *       once, which is in doubt when its owner is gone.
 * HOW   A name that is held is claimed, and given back (abandoned) when the
 *       command has ended, so that it leaves no result. The next who waits is
 *       then called upon by its lease.
 */
#include "lock_hold.h"
#include "say.h"

static vow_future *get_place(struct lock_hold *h, vow_authority *a);
static vow_future *get_name(struct lock_hold *h, vow_authority *a);
static vow_next on_claimed(vow_value v, void *user);
static void on_lease(vow_lease *lease, void *user);
static vow_next on_refused(vow_error *e, void *user);
static vow_future *bounded(const struct lock_hold *h, vow_future *f);

vow_future *lock_get(struct lock_hold *h, vow_authority *a,
                     const struct lock_ask *ask)
{
    h->ask = ask;
    h->loop = vow_authority_loop(a);
    return ask->once ? get_name(h, a) : get_place(h, a);
}

static bool at_once(const struct lock_hold *h)
{
    const struct store_opts *s = h->ask->store;
    return s->no_wait || h->ask->try_once || (s->waits && s->wait_ms == 0);
}

static vow_future *bounded(const struct lock_hold *h, vow_future *f)
{
    if (!h->ask->store->waits)
        return f;
    vow_future *until = vow_timeout(f, h->ask->store->wait_ms);
    vow_future_unref(f);
    return until;
}

/* ---- a place ------------------------------------------------------------- */

static vow_future *get_place(struct lock_hold *h, vow_authority *a)
{
    const struct lock_ask *ask = h->ask;
    int rc = vow_pool_open(
        a, ask->label,
        VOW_POOL(.limits.concurrent = ask->places, .grace_ms = ask->grace_ms),
        &h->pool);
    if (rc < 0)
        return vow_refused(h->loop, rc, NULL);
    if (at_once(h))
        return vow_pool_try(h->pool, NULL, ask->weight);
    return bounded(h, vow_pool_acquire(h->pool, NULL, ask->weight));
}

/* ---- a name -------------------------------------------------------------- */

static vow_future *get_name(struct lock_hold *h, vow_authority *a)
{
    const struct store_opts *s = h->ask->store;
    vow_name name = store_name_of(h->ask->label);
    vow_future *f = vow_promise(h->loop, &h->comes);
    vow_future *claimed = vow_claim_name(
        a, &name, on_lease, h,
        VOW_SHARE(.mode = VOW_ONCE,
                  .flags = (at_once(h) ? VOW_SHARE_NOWAIT : 0) | VOW_SHARE_KEEP,
                  .label = h->ask->label, .lease_ms = s->lease_ms,
                  .pulse_ms = s->pulse_ms, .store_down = VOW_DOWN_FAIL));
    if (vow_done(claimed, on_claimed, on_refused, h) < 0)
        die(EXIT_BROKEN, "out of memory");
    return bounded(h, f);
}

static vow_next on_claimed(vow_value v, void *user)
{
    struct lock_hold *h = user;
    const vow_claim *c = vow_as_ptr(v);
    h->result = vow_future_ref(c->result);
    if (c->lease != NULL)
        on_lease(c->lease, h);
    if (vow_done(vow_future_ref(h->result), NULL, on_refused, h) < 0)
        die(EXIT_BROKEN, "out of memory");
    return vow_ok(vow_nothing());
}

static void on_lease(vow_lease *lease, void *user)
{
    struct lock_hold *h = user;
    if (h->comes == NULL) { /* we are leaving */
        (void)vow_lease_abandon(lease);
        return;
    }
    h->lease = vow_lease_ref(lease);
    (void)vow_resolve_drop(h->comes, vow_nothing());
    h->comes = NULL;
}

static vow_next on_refused(vow_error *e, void *user)
{
    struct lock_hold *h = user;
    if (h->comes != NULL)
        (void)vow_reject_drop(h->comes, vow_error_ref(e));
    h->comes = NULL;
    return vow_ok(vow_nothing());
}

/* ---- having it ----------------------------------------------------------- */

void lock_take(struct lock_hold *h, vow_future *got)
{
    if (h->ask->once) {
        h->fence = vow_lease_fence(h->lease);
        h->lost = vow_lease_lost(h->lease);
        return;
    }
    h->grant = vow_grant_take(vow_get(got));
    h->fence = h->grant->fence;
    h->lost = h->grant->lost;
}

void lock_leave(struct lock_hold *h)
{
    if (h->ask != NULL && h->ask->once)
        h->lost = vow_future_unref(h->lost);
    h->comes = vow_deferred_unref(h->comes);
    if (h->result != NULL) /* or we would ask for it again */
        (void)vow_cancel(h->result, NULL);
    h->result = vow_future_unref(h->result);
    if (h->lease != NULL) {
        VOW_AUTO(vow_future) back = vow_lease_settled(h->lease);
        (void)vow_lease_abandon(h->lease);
        (void)vow_loop_run_until(h->loop, back);
        (void)vow_error_of(back);
    }
    h->lease = vow_lease_unref(h->lease);
    vow_grant_release(h->grant);
    h->grant = NULL;
    h->pool = vow_pool_unref(h->pool);
}
