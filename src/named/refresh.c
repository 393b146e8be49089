/* SPDX-License-Identifier: MIT */
/* refresh.c - replaces old results, once and in the background.
 *
 * WHY   A caller that finds an old result wants that result now, and a new
 *       result soon. Of all callers that find the old result, in all processes,
 *       one must make the new result.
 * HOW   A refresh is a claim with the epoch of the old result: the store has
 *       one refresher for a result, and the old result stays until the new one
 *       is there (vow/store.h). After a failure the store grants no refresh for
 *       a while, so that not every caller tries again. A refresh does not move
 *       the hard expiry: when the old result expires, the refresher is the
 *       owner, and callers wait for the refresher.
 *       In a process, a refresh has an entry of its own beside the entry of the
 *       name: callers read the old result meanwhile. The key of that entry is a
 *       byte shorter than the name. A refresh without an old result becomes an
 *       ordinary request.
 *       Early (XFetch): with the run time t of the work, and a random u in
 *       (0, 1], a refresh is due when t * early * -ln(u) reaches the time left.
 * THREADS  the hub's loop.
 */
#include "named/named_internal.h"

static double random_exponential(uint64_t random);
static void on_old_result_peeked(int code, const vow_record *r, size_t n,
                                 void *entry);
static bool result_is_old(const vow_share_opts *o, const vow_record *r);

bool vow__named_refresh_due(struct vow__named_hub *h,
                            const struct vow__named_waiter *w,
                            const vow_record *r)
{
    const vow_share_opts *o = w->opts;
    if (w->refresh || w->waited || w->work == NULL || r->mode == VOW_ONCE ||
        (h->store->ops->flags & VOW_STORE_REFRESHES) == 0 ||
        (o->flags & (VOW_SHARE_NO_REFRESH | VOW_SHARE_PEEK)) != 0)
        return false;
    if (o->stale_ms > 0 && r->age_ms > o->stale_ms)
        return true;
    if (!(o->early > 0) || r->left_ms == UINT64_MAX)
        return false;
    double waits = random_exponential(vow_loop_random(h->loop));
    return (double)r->cost_ms * o->early * waits >= (double)r->left_ms;
}

/* Returns -ln(u) for a random u in (0, 1]: u is m / 2^k with m in [1, 2), and
 * ln(m) is twice the series of artanh((m - 1) / (m + 1)). */
static double random_exponential(uint64_t random)
{
    const double ln2 = 0.69314718055994531;
    uint64_t u = (random >> 11) + 1; /* of 2^53 */
    int bits = 0;
    while ((u >> bits) > 1)
        bits++;
    double m = (double)u / (double)(UINT64_C(1) << bits);
    double y = (m - 1) / (m + 1);
    double y2 = y * y;
    double series = y * (1 + y2 * (1.0 / 3 + y2 * (1.0 / 5 + y2 / 7)));
    return (53 - bits) * ln2 - 2 * series;
}

/* Starts at most one refresh of the name in this process: a refresh may have to
 * wait, and a second refresh would only wait too. */
void vow__named_refresh_for(struct vow__named_hub *h,
                            const struct vow__named_waiter *because,
                            uint64_t refreshed)
{
    const struct vow__named_entry *e =
        vow__named_entry_find(h, &because->name, true);
    if (e != NULL && (e->n_waiters > 0 || e->lease != NULL))
        return;
    struct vow__named_waiter *w = vow__named_waiter_new(
        because->site, because->handle, &because->name, because->opts);
    if (w == NULL)
        return; /* the next caller will refresh */
    w->work = because->work;
    w->arg = because->arg;
    w->own_opts.info = NULL;
    w->own_opts.deadline_ms = 0;
    w->own_opts.join = NULL;
    w->own_opts.flags |= VOW_SHARE_NOWAIT;
    vow__list_push(&w->handle->waiters, &w->in_handle);
    vow__named_count(&h->counts.waiting, 1);
    vow__named_refresh_start(h, w, refreshed);
}

void vow__named_refresh_start(struct vow__named_hub *h,
                              struct vow__named_waiter *w, uint64_t refreshed)
{
    if ((h->store->ops->flags & VOW_STORE_REFRESHES) == 0) {
        vow__named_waiter_refuse(w, VOW_ENOTSUP,
                                 "this store cannot refresh results");
        return;
    }
    w->refresh = true;
    w->refreshed = refreshed;
    w->own_opts.flags &= ~(uint32_t)(VOW_SHARE_FORCE | VOW_SHARE_FOLLOW);
    vow__named_entry_add_waiter(h, vow__named_entry_find(h, &w->name, true), w);
}

bool vow__named_refresh_peek(struct vow__named_entry *e)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    if (vow__named_waiter_of(e->waiters)->refreshed != 0)
        return false;
    vow__named_entry_move(e, ENTRY_CLAIMING);
    e->claimed_ns = vow__named_hub_now_ns(h);
    e->steps++;
    vow__named_step_begins(h);
    h->store->ops->peek(h->store, &e->name, 1, on_old_result_peeked, e);
    return true;
}

static void on_old_result_peeked(int code, const vow_record *r, size_t n,
                                 void *entry)
{
    struct vow__named_entry *e = entry;
    if (code != 0) {
        vow__named_entry_claimed(code, r, n, e);
        return;
    }
    e->steps--;
    vow__named_step_ended(vow__named_entry_hub(e), code);
    if (r->status != VOW_STATUS_SETTLED ||
        (e->waiters != NULL &&
         !result_is_old(vow__named_waiter_of(e->waiters)->opts, r))) {
        vow__named_refresh_refused(e, r->status);
        return;
    }
    for (vow_link *l = e->waiters; l != NULL; l = l->next)
        vow__named_waiter_of(l)->refreshed = r->epoch;
    vow__named_entry_claim_again(e);
}

/* Returns whether the result was not replaced since a caller found the result
 * old: of callers that come one after another, only one refreshes. */
static bool result_is_old(const vow_share_opts *o, const vow_record *r)
{
    uint64_t fresh_ms = o->stale_ms > 0 ? o->stale_ms
                        : o->early > 0  ? r->cost_ms
                                        : 0;
    return fresh_ms == 0 || r->age_ms > fresh_ms;
}

/* The result was replaced, or is being refreshed: a waiter that does not wait
 * is refused. All others request the name, as callers that found no old result.
 */
void vow__named_refresh_refused(struct vow__named_entry *e, uint32_t status)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    vow_link *all = vow__named_entry_take_waiters(e);
    vow__named_entry_claim_again(e); /* only if others have come */
    while (all != NULL) {
        struct vow__named_waiter *w =
            vow__named_waiter_of(vow__list_take(&all));
        w->refresh = false;
        w->refreshed = 0;
        w->own_opts.flags |= VOW_SHARE_NO_REFRESH; /* was a refresh */
        if (w->own_opts.store_down == VOW_DOWN_DEFAULT)
            w->own_opts.store_down = VOW_DOWN_FAIL; /* no caller waits */
        if (status == VOW_STATUS_SETTLED &&
            (w->own_opts.flags & VOW_SHARE_NOWAIT) != 0)
            vow__named_waiter_refuse(w, VOW_EBUSY,
                                     "another runner refreshes the result");
        else
            vow__named_entry_add_waiter(
                h, vow__named_entry_find(h, &w->name, false), w);
    }
}

void vow__named_refresh_keep(struct vow__named_entry *e)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    vow__named_count(&h->counts.refreshes, 1);
    if ((h->store->ops->flags & VOW_STORE_LOCAL) != 0)
        vow__named_entry_keep(h, &e->name, e->outcome, e->commit.ttl_ms);
}
