/* SPDX-License-Identifier: MIT */
/* lock_hold.c - a lock: a pool permit, or with --once a name.
 *
 * WHY   The store frees a pool permit when the holder dies, and the next waiter
 *       gets the permit. A command of --once must not be started again
 *       automatically. Its lock is a name of mode VOW_ONCE, which is in doubt
 *       when the owner is gone.
 * HOW   The name is claimed, and the lease is abandoned when the command has
 *       ended, so the name has no result. The next waiter then gets a lease:
 *       on_lock_lease().
 */
#include "lock_hold.h"
#include "say.h"

static vow_future *hold_get_permit(struct lock_hold *h, vow_authority *a);
static vow_future *hold_get_name(struct lock_hold *h, vow_authority *a);
static vow_next on_lock_claimed(vow_value v, void *user);
static void on_lock_lease(vow_lease *lease, void *user);
static vow_next on_lock_refused(vow_error *e, void *user);
static vow_future *limit_wait(const struct lock_hold *h, vow_future *f);

vow_future *lock_get(struct lock_hold *h, vow_authority *a,
                     const struct lock_request *request)
{
    h->request = request;
    h->loop = vow_authority_loop(a);
    return request->once ? hold_get_name(h, a) : hold_get_permit(h, a);
}

static bool must_not_wait(const struct lock_hold *h)
{
    const struct store_opts *s = h->request->store;
    return s->no_wait || h->request->try_once || (s->waits && s->wait_ms == 0);
}

/* Adds the timeout of --wait. `f` is moved. */
static vow_future *limit_wait(const struct lock_hold *h, vow_future *f)
{
    if (!h->request->store->waits)
        return f;
    vow_future *until = vow_timeout(f, h->request->store->wait_ms);
    vow_future_unref(f);
    return until;
}

/* ---- a pool permit ------------------------------------------------------- */

static vow_future *hold_get_permit(struct lock_hold *h, vow_authority *a)
{
    const struct lock_request *request = h->request;
    int rc = vow_pool_open(a, request->label,
                           VOW_POOL(.limits.concurrent = request->limit,
                                    .grace_ms = request->grace_ms),
                           &h->pool);
    if (rc < 0)
        return vow_refused(h->loop, rc, NULL);
    if (must_not_wait(h))
        return vow_pool_try(h->pool, NULL, request->weight);
    return limit_wait(h, vow_pool_acquire(h->pool, NULL, request->weight));
}

/* ---- a name -------------------------------------------------------------- */

static vow_future *hold_get_name(struct lock_hold *h, vow_authority *a)
{
    const struct store_opts *s = h->request->store;
    vow_name name = store_name_of(h->request->label);
    vow_future *f = vow_promise(h->loop, &h->acquired);
    vow_future *claimed = vow_claim_name(
        a, &name, on_lock_lease, h,
        VOW_SHARE(.mode = VOW_ONCE,
                  .flags = (must_not_wait(h) ? VOW_SHARE_NOWAIT : 0) |
                           VOW_SHARE_KEEP,
                  .label = h->request->label, .lease_ms = s->lease_ms,
                  .pulse_ms = s->pulse_ms, .store_down = VOW_DOWN_FAIL));
    if (vow_done(claimed, on_lock_claimed, on_lock_refused, h) < 0)
        die(EXIT_BROKEN, "out of memory");
    return limit_wait(h, f);
}

static vow_next on_lock_claimed(vow_value v, void *user)
{
    struct lock_hold *h = user;
    const vow_claim *c = vow_as_ptr(v);
    h->result = vow_future_ref(c->result);
    if (c->lease != NULL)
        on_lock_lease(c->lease, h);
    if (vow_done(vow_future_ref(h->result), NULL, on_lock_refused, h) < 0)
        die(EXIT_BROKEN, "out of memory");
    return vow_ok(vow_nothing());
}

static void on_lock_lease(vow_lease *lease, void *user)
{
    struct lock_hold *h = user;
    if (h->acquired == NULL) { /* lock_leave() was called */
        (void)vow_lease_abandon(lease);
        return;
    }
    h->lease = vow_lease_ref(lease);
    (void)vow_resolve_drop(h->acquired, vow_nothing());
    h->acquired = NULL;
}

static vow_next on_lock_refused(vow_error *e, void *user)
{
    struct lock_hold *h = user;
    if (h->acquired != NULL)
        (void)vow_reject_drop(h->acquired, vow_error_ref(e));
    h->acquired = NULL;
    return vow_ok(vow_nothing());
}

/* ---- holding the lock ---------------------------------------------------- */

void lock_take(struct lock_hold *h, vow_future *got)
{
    if (h->request->once) {
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
    if (h->request != NULL && h->request->once)
        h->lost = vow_future_unref(h->lost);
    h->acquired = vow_deferred_unref(h->acquired);
    if (h->result != NULL) /* or the authority would claim the name again */
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
