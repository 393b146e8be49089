/* SPDX-License-Identifier: MIT */
/* refresh.c - replaces old results, once and in the background.
 *
 * WHY   A caller that finds an old result wants that result now, and a new
 *       result soon. Of all callers that find the old result, in all processes,
 *       one must make the new result.
 * HOW   A refresh is named work too, under a name derived from the name of the
 *       result. The owner of the derived name does the work and replaces the
 *       old result, which stays until then. The derived name stays settled
 *       until the new result is old, so that a later caller does nothing; after
 *       a failure, for a while, so that not every caller tries again. A refresh
 *       does not move the hard expiry.
 *       Early (XFetch): with the run time t of the work, and a random u in
 *       (0, 1], a refresh is due when t * early * -ln(u) reaches the time left.
 *       A caller that finds the old result expired during a refresh waits for
 *       the refresh. A refresh that finds the old result expired becomes an
 *       ordinary request. Each of the two names is claimed first, then the
 *       other name is peeked: two runs never overlap, if all callers give
 *       stale_ms or early (docs/model/refresh.pml).
 * THREADS  the hub's loop.
 */
#include "named/named_internal.h"

enum { AFTER_FAILURE_MS = 1000 };

static double random_exponential(uint64_t random);
static void on_result_replaced(int code, const vow_record *r, size_t n,
                               void *entry);

bool vow__named_refresh_due(struct vow__named_hub *h,
                            const struct vow__named_waiter *w,
                            const vow_record *r)
{
    const vow_share_opts *o = w->opts;
    if (w->refresh || w->waited || w->work == NULL ||
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
                            const struct vow__named_waiter *because)
{
    vow_name name = vow__named_refresh_name(&because->name);
    const struct vow__named_entry *e = vow__named_entry_find(h, &name);
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
    vow__named_refresh_start(h, w);
}

void vow__named_refresh_start(struct vow__named_hub *h,
                              struct vow__named_waiter *w)
{
    w->refresh = true;
    w->target = w->name;
    w->name = vow__named_refresh_name(&w->target);
    w->own_opts.flags &= ~(uint32_t)(VOW_SHARE_FORCE | VOW_SHARE_FOLLOW);
    vow__named_entry_add_waiter(h, vow__named_entry_find(h, &w->name), w);
}

void vow__named_refresh_give_way(struct vow__named_entry *e)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    vow_link *all = vow__named_entry_take_waiters(e);
    vow__named_lease_give_back(e);
    while (all != NULL) {
        struct vow__named_waiter *w =
            vow__named_waiter_of(vow__list_take(&all));
        w->refresh = false;
        w->name = w->target;
        w->own_opts.flags |= VOW_SHARE_NO_REFRESH; /* was a refresh */
        if (w->own_opts.store_down == VOW_DOWN_DEFAULT)
            w->own_opts.store_down = VOW_DOWN_FAIL; /* no caller waits */
        vow__named_entry_add_waiter(h, vow__named_entry_find(h, &w->name), w);
    }
}

vow_name vow__named_refresh_name(const vow_name *name)
{
    vow_field field = vow_field_text("refresh");
    return vow_name_step(NULL, name, &field, 1);
}

/* Sends the result to the target name; the derived name only records that the
 * refresh was done. */
void vow__named_refresh_commit(struct vow__named_entry *e,
                               vow_commit_request *commit)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    const struct vow__named_waiter *w = e->lease->waiter;
    if (commit->outcome == VOW_OUTCOME_FAILED) {
        if (commit->ttl_ms < AFTER_FAILURE_MS)
            commit->ttl_ms = AFTER_FAILURE_MS;
        return;
    }
    vow__named_count(&h->counts.refreshes, 1);
    vow_commit_request put = *commit;
    put.hold.name = w->target;
    put.flags = VOW_COMMIT_PUT;
    if ((h->store->ops->flags & VOW_STORE_LOCAL) != 0)
        vow__named_entry_keep(h, &w->target, e->outcome, put.ttl_ms);
    e->steps++;
    vow__named_step_begins(h);
    h->store->ops->commit(h->store, &put, on_result_replaced, e);
    vow_bytes_unref(commit->value);
    commit->value = NULL;
    uint64_t fresh_ms =
        w->opts->stale_ms > 0 ? w->opts->stale_ms : commit->cost_ms;
    commit->ttl_ms = fresh_ms < commit->ttl_ms ? fresh_ms : commit->ttl_ms;
}

/* Ignores a failure: the old result stays, and the derived name says for a
 * while that the refresh was done. The next refresh comes soon enough. */
static void on_result_replaced(int code, const vow_record *r, size_t n,
                               void *entry)
{
    struct vow__named_entry *e = entry;
    (void)r;
    (void)n;
    e->steps--;
    vow__named_step_ended(vow__named_entry_hub(e), code);
    if (e->state == ENTRY_NEW && e->n_waiters == 0 && e->steps == 0)
        vow__named_entry_free(e);
}
