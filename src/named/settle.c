/* SPDX-License-Identifier: MIT */
/* settle.c - settles all waiters of a name with an outcome.
 *
 * HOW   The outcome is the outcome of the work of this process, a record of the
 *       store, or an error. The waiters are taken out of the entry first, then
 *       settled. Then the entry is freed, or claims again for waiters that came
 *       meanwhile, or keeps the value for a store that keeps no values.
 * THREADS  the hub's loop.
 */
#include "base/failure.h"
#include "named/named_internal.h"

static void entry_run_over(struct vow__named_entry *e, uint64_t keep_ms);
static void on_kept_value_expired(void *entry);
static vow_error *failure_error(struct vow__named_hub *h, vow_bytes *value);
static void waiter_settle_record(struct vow__named_waiter *w,
                                 const vow_record *r, vow_error *failure,
                                 vow_future *kept);

vow_link *vow__named_entry_take_waiters(struct vow__named_entry *e)
{
    vow_link *all = e->waiters;
    for (vow_link *l = all; l != NULL; l = l->next)
        vow__named_waiter_of(l)->entry = NULL;
    e->waiters = NULL;
    e->n_waiters = 0;
    e->shared_waiter = NULL;
    return all;
}

/* Ends the run. Postponed waiters claim now. For a store that keeps no values,
 * the entry keeps the value for `keep_ms`. */
static void entry_run_over(struct vow__named_entry *e, uint64_t keep_ms)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    bool wanted = e->postponed != NULL || e->n_waiters > 0 || e->steps > 0;
    if (!wanted && keep_ms == 0) {
        vow__named_entry_free(e);
        return;
    }
    vow__named_entry_move(e, ENTRY_NEW);
    e->failures = e->abandons = 0;
    e->hold_offs = 0;
    e->lease_was_lost = false;
    e->first = 0;
    e->first_error = vow_error_unref(e->first_error);
    vow__named_chunks_clear(e);
    if (wanted) {
        vow__named_entry_claim_again(e);
        return;
    }
    vow__named_entry_move(e, ENTRY_KEPT);
    if (!vow_call_pending(&e->timer)) /* else the same value was kept before */
        vow_call_weakly_at(&e->timer, h->loop,
                           vow_loop_due_ns(h->loop, keep_ms),
                           on_kept_value_expired, e);
}

void vow__named_entry_keep(struct vow__named_hub *h, const vow_name *name,
                           vow_future *f, uint64_t ttl_ms)
{
    struct vow__named_entry *e = vow__named_entry_find(h, name, false);
    if (e == NULL)
        e = vow__named_entry_new(h, name, false);
    if (e == NULL)
        return;
    (void)vow_future_ref(f);
    vow_future_unref(e->outcome);
    e->outcome = f;
    if (e->state != ENTRY_NEW && e->state != ENTRY_KEPT)
        return;
    vow__named_entry_move(e, ENTRY_KEPT);
    vow_call_weakly_at(&e->timer, h->loop, vow_loop_due_ns(h->loop, ttl_ms),
                       on_kept_value_expired, e);
}

static void on_kept_value_expired(void *entry)
{
    struct vow__named_entry *e = entry;
    if (e->state == ENTRY_KEPT && e->n_waiters == 0 && e->steps == 0)
        vow__named_entry_free(e);
}

void vow__named_entry_settle(struct vow__named_entry *e, vow_future *outcome)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    bool local = (h->store->ops->flags & VOW_STORE_LOCAL) != 0;
    const vow_lease *l = e->lease;
    vow__named_chunks_flush(e);
    vow_link *all = vow__named_entry_take_waiters(e);
    bool ok = vow_state_of(outcome) == VOW_FULFILLED;
    uint64_t keep_ms = local && ok && !e->refresh ? e->commit.ttl_ms : 0;
    vow_value v = ok ? vow_get(outcome) : vow_nothing();
    bool again = ok && vow__named_value_travels(v);
    if (keep_ms > 0 && e->outcome != outcome) {
        vow_future_unref(e->outcome);
        e->outcome = vow_future_ref(outcome);
    } else if (keep_ms == 0) {
        e->outcome = vow_future_unref(e->outcome);
    }
    if (keep_ms > 0) /* a value kept before had a time of its own */
        (void)vow_call_stop(&e->timer);
    uint64_t fence = atomic_load_explicit(&l->epoch, memory_order_relaxed);
    uint32_t mine = l->alone      ? VOW_ROLE_ALONE
                    : l->takeover ? VOW_ROLE_TAKEOVER
                                  : VOW_ROLE_RAN;
    const struct vow__named_waiter *worker = l->waiter;
    uint32_t attempt = l->attempt;
    vow__named_lease_over(e->lease, true);
    while (all != NULL) {
        struct vow__named_waiter *w =
            vow__named_waiter_of(vow__list_take(&all));
        if (w->opts->info != NULL) {
            w->info.attempt = attempt;
            vow__named_waiter_set_info(w, w == worker ? mine : VOW_ROLE_JOINED,
                                       fence, 0, h->runner);
        }
        if (again)
            vow__named_waiter_resolve(w, vow__named_value_again(v));
        else
            vow__named_waiter_copy(w, outcome);
    }
    entry_run_over(e, keep_ms);
}

void vow__named_entry_settle_record(struct vow__named_entry *e,
                                    const vow_record *r)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    VOW_AUTO(vow_error) failure = NULL;
    bool local = (h->store->ops->flags & VOW_STORE_LOCAL) != 0;
    bool valued = r->value != NULL && !vow__failure_is(r->value);
    if (r->failed && !valued && !(local && e->outcome != NULL))
        failure = failure_error(h, r->value);
    if (vow_error_code(failure) == VOW_EGAVEUP && e->first_error != NULL) {
        vow_error_unref(failure);
        failure = vow_error_ref(e->first_error);
    }
    vow__named_chunks_flush(e);
    VOW_AUTO(vow_future) kept = local ? vow_future_ref(e->outcome) : NULL;
    if (local && kept == NULL && failure == NULL) {
        e->valueless = true; /* lost here: the work must run again */
        vow__named_entry_claim_again(e);
        return;
    }
    vow_link *all = vow__named_entry_take_waiters(e);
    struct vow__named_waiter *refresher = NULL;
    for (vow_link *l = all; l != NULL && !r->failed; l = l->next)
        if (refresher == NULL &&
            vow__named_refresh_due(h, vow__named_waiter_of(l), r))
            refresher = vow__named_waiter_of(l);
    if (refresher != NULL)
        vow__named_refresh_for(h, refresher, r->epoch);
    while (all != NULL)
        waiter_settle_record(vow__named_waiter_of(vow__list_take(&all)), r,
                             failure, kept);
    entry_run_over(e, local && kept != NULL ? r->left_ms : 0);
}

static vow_error *failure_error(struct vow__named_hub *h, vow_bytes *value)
{
    if (value == NULL)
        return vow_error_new(h->loop, VOW_EIO, "the work failed");
    struct vow__failure f = vow__failure_read(value);
    return vow_error_new(h->loop, f.code, "%.*s", (int)f.length, f.message);
}

static void waiter_settle_record(struct vow__named_waiter *w,
                                 const vow_record *r, vow_error *failure,
                                 vow_future *kept)
{
    bool stale = w->opts->stale_ms > 0 && r->age_ms > w->opts->stale_ms &&
                 !w->waited && failure == NULL;
    w->info.attempt = r->takeovers + 1;
    vow__named_waiter_set_info(w,
                               w->waited ? VOW_ROLE_JOINED
                               : stale   ? VOW_ROLE_STALE
                                         : VOW_ROLE_CACHED,
                               r->epoch, r->age_ms, r->runner);
    if (failure != NULL)
        vow__named_waiter_reject(w, failure);
    else if (kept != NULL)
        vow__named_waiter_copy(w, kept);
    else
        vow__named_waiter_resolve(w, vow_bytes_value(vow_bytes_ref(r->value)));
}

void vow__named_entry_reject(struct vow__named_entry *e, vow_error *error)
{
    vow__named_chunks_flush(e);
    vow_link *all = vow__named_entry_take_waiters(e);
    while (all != NULL)
        vow__named_waiter_reject(vow__named_waiter_of(vow__list_take(&all)),
                                 error);
    entry_run_over(e, 0);
}
