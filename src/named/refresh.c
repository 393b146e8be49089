/* SPDX-License-Identifier: MIT */
/* refresh.c - results that get old: made anew once, out of sight.
 *
 * WHY   Who finds an old result wants it now, and a new one soon; and of all
 *       who find it, in all processes, one is to make the new one.
 * HOW   Making it anew is named work too, under a name that is derived from the
 *       first. Who gets that name does the work and replaces the old result,
 *       which stays until then. The derived name stays settled until the new
 *       result is old in its turn, so that who comes a moment later does
 *       nothing; and, after a failure, for a while, so that it is not tried by
 *       everybody again. Hard expiry is not moved by any of this.
 *       Early (XFetch): with the time t it took, and a random u in (0, 1], it
 *       is time when t * early * -ln(u) reaches what is left.
 *       Who finds that the old result has expired while it is being made anew
 *       waits for that; and who was to make it anew, and finds that it has
 *       expired, asks as everybody does. Each of the two names is claimed
 *       first, and then the other is looked at: there is never a second run
 *       beside the first, if all who ask give stale_ms or early
 *       (docs/model/refresh.pml).
 * THREADS  the hub's loop.
 */
#include "named/named_internal.h"

enum { AFTER_FAILURE_MS = 1000 };

static double exponential(uint64_t random);
static void on_put(int code, const vow_record *r, size_t n, void *entry);

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
    double waits = exponential(vow_loop_random(h->loop));
    return (double)r->cost_ms * o->early * waits >= (double)r->left_ms;
}

/* -ln(u) for a random u in (0, 1]: u is m / 2^k with m in [1, 2), and ln(m) is
 * twice the series of artanh((m - 1) / (m + 1)). */
static double exponential(uint64_t random)
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

/* One here at a time: it may have to wait, and more would only wait too. */
void vow__named_refresh_for(struct vow__named_hub *h,
                            const struct vow__named_waiter *because)
{
    vow_name name = vow__named_refresh_name(&because->name);
    const struct vow__named_entry *e = vow__named_entry_find(h, &name);
    if (e != NULL && (e->n_waiters > 0 || e->lease != NULL))
        return;
    struct vow__named_waiter *w = vow__named_waiter_new(
        because->site, because->of, &because->name, because->opts);
    if (w == NULL)
        return; /* the next who finds it old will */
    w->work = because->work;
    w->arg = because->arg;
    w->own.info = NULL;
    w->own.deadline_ms = 0;
    w->own.join = NULL;
    w->own.flags |= VOW_SHARE_NOWAIT;
    vow__list_push(&w->of->waiters, &w->in_handle);
    vow__named_count(&h->counts.waiting, 1);
    vow__named_refresh_start(h, w);
}

void vow__named_refresh_start(struct vow__named_hub *h,
                              struct vow__named_waiter *w)
{
    w->refresh = true;
    w->target = w->name;
    w->name = vow__named_refresh_name(&w->target);
    w->own.flags &= ~(uint32_t)(VOW_SHARE_FORCE | VOW_SHARE_FOLLOW);
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
        w->own.flags |= VOW_SHARE_NO_REFRESH; /* it was one */
        if (w->own.store_down == VOW_DOWN_DEFAULT)
            w->own.store_down = VOW_DOWN_FAIL; /* nobody waits for it */
        vow__named_entry_add_waiter(h, vow__named_entry_find(h, &w->name), w);
    }
}

vow_name vow__named_refresh_name(const vow_name *name)
{
    vow_field what = vow_field_text("refresh");
    return vow_name_step(NULL, name, &what, 1);
}

/* The result goes to the name it is for; the derived name only remembers that
 * it was made. */
void vow__named_refresh_commit(struct vow__named_entry *e,
                               vow_commit_request *commit)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    const struct vow__named_waiter *w = e->lease->ask;
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
    h->store->ops->commit(h->store, &put, on_put, e);
    vow_bytes_unref(commit->value);
    commit->value = NULL;
    uint64_t fresh_ms =
        w->opts->stale_ms > 0 ? w->opts->stale_ms : commit->cost_ms;
    commit->ttl_ms = fresh_ms < commit->ttl_ms ? fresh_ms : commit->ttl_ms;
}

/* Without success the old result stays, and the derived name says for a while
 * that it was made: the next one comes soon enough. */
static void on_put(int code, const vow_record *r, size_t n, void *entry)
{
    struct vow__named_entry *e = entry;
    (void)r;
    (void)n;
    e->steps--;
    vow__named_step_ended(vow__named_entry_hub(e), code);
    if (e->state == ENTRY_NEW && e->n_waiters == 0 && e->steps == 0)
        vow__named_entry_free(e);
}
