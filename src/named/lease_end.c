/* SPDX-License-Identifier: MIT */
/* lease_end.c - the lease as the runner uses it: settling, reading, pulsing.
 *
 * HOW   On the hub's loop a call goes straight to the table of names. From
 *       another loop the outcome goes through a remote promise that was made
 *       with the lease, so that the outcome cannot be lost for lack of memory;
 *       a pulse increments an atomic counter.
 * THREADS  the waiter's loop; vow__named_lease_over() and the functions below:
 *          the hub's loop.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "named/named_internal.h"

static vow_future *lease_future(vow_lease *l, vow_future **future,
                                struct vow__named_settler *settler);
static void settler_settle_code(struct vow__named_settler *settler, int code,
                                const char *text);
static void hub_lock(struct vow__named_hub *h);
static void hub_unlock(struct vow__named_hub *h);

/* ---- settling ----------------------------------------------------------- */

bool vow_lease_resolve(vow_lease *l, vow_value v)
{
    VOW__ASSERT_THREAD(l->loop);
    VOW_AUTO(vow_future) f = vow_resolved(l->loop, v);
    return vow__named_lease_report(l, f);
}

bool vow_lease_reject(vow_lease *l, vow_error *e)
{
    VOW__ASSERT_THREAD(l->loop);
    VOW_AUTO(vow_future) f = vow_rejected(l->loop, e);
    (void)vow_error_of(f);
    return vow__named_lease_report(l, f);
}

bool vow_lease_abandon(vow_lease *l)
{
    VOW__ASSERT_THREAD(l->loop);
    VOW_AUTO(vow_future) f = vow_refused(l->loop, VOW_ECANCELED, NULL);
    (void)vow_error_of(f);
    if (!atomic_load(&l->reported))
        l->abandoned = true;
    bool done = vow__named_lease_report(l, f);
    if (done && l->work != NULL &&
        (l->waiter->opts->flags & VOW_SHARE_KEEP) == 0)
        (void)vow_cancel(l->work, NULL);
    return done;
}

bool vow__named_lease_report(vow_lease *l, vow_future *outcome)
{
    bool held = atomic_load(&l->state) == LEASE_HELD;
    if (!vow__named_flag_set(&l->reported, l->hub->threaded))
        return false;
    if (vow__named_is_hub_loop(l->waiter->handle)) {
        vow__named_lease_finish(l, outcome);
        return held;
    }
    vow_error *error = vow_error_of(outcome);
    vow_loop *hub_loop = l->hub->loop;
    bool sent;
    if (error != NULL)
        sent = vow_reject_any(l->outcome,
                              vow_error_new(hub_loop, vow_error_code(error),
                                            "%s", vow_error_message(error)));
    else if (vow__named_value_travels(vow_get(outcome)))
        sent = vow_resolve_any(l->outcome,
                               vow__named_value_again(vow_get(outcome)));
    else
        sent = vow_reject_any(
            l->outcome, vow_error_new(hub_loop, VOW_EINVAL,
                                      "a result for another loop is bytes, a "
                                      "number or nothing"));
    return sent && held;
}

vow_lease *vow_lease_ref(vow_lease *l)
{
    if (l != NULL)
        vow__named_refs_up(&l->users, l->hub->threaded);
    return l;
}

vow_lease *vow_lease_unref(vow_lease *l)
{
    if (l == NULL || !vow__named_refs_down(&l->users, l->hub->threaded))
        return NULL;
    if (!atomic_load(&l->reported))
        (void)vow_lease_abandon(l);
    if (l->lost != NULL)
        l->lost = vow_future_unref(l->lost);
    if (l->settled != NULL)
        l->settled = vow_future_unref(l->settled);
    vow__named_lease_release(l);
    return NULL;
}

void vow__named_lease_free(vow_lease *l)
{
    struct vow__named_waiter *w = l->waiter;
    if (l->outcome != NULL)
        vow_remote_unref(l->outcome);
    if (l->slab != NULL)
        vow__slab_give(l->slab, l);
    else
        vow__mem_free(&l->hub->alloc, l, sizeof(*l));
    vow__named_waiter_unref(w);
}

/* ---- reading ------------------------------------------------------------ */

uint64_t vow_lease_fence(const vow_lease *l)
{
    return atomic_load(&l->epoch);
}

uint32_t vow_lease_attempt(const vow_lease *l)
{
    return l->attempt;
}

uint64_t vow_lease_left_ms(const vow_lease *l)
{
    unsigned state = atomic_load(&l->state);
    bool held = state == LEASE_HELD || state == LEASE_ENDING;
    return held ? vow__named_lease_valid_ms(l)
                : 0; /* else the hub's loop may be gone */
}

uint64_t vow__named_lease_valid_ms(const vow_lease *l)
{
    uint64_t valid = atomic_load(&l->valid_ns);
    if (valid == UINT64_MAX)
        return UINT64_MAX; /* no record: no other process can take over */
    uint64_t now = vow__named_hub_now_ns(l->hub);
    return now >= valid ? 0 : (valid - now) / VOW__NS_PER_MS;
}

size_t vow_lease_waiters(const vow_lease *l)
{
    return atomic_load(&l->waiters);
}

vow_future *vow_lease_lost(vow_lease *l)
{
    VOW__ASSERT_THREAD(l->loop);
    return lease_future(l, &l->lost, &l->lost_settler);
}

vow_future *vow_lease_settled(vow_lease *l)
{
    VOW__ASSERT_THREAD(l->loop);
    return lease_future(l, &l->settled, &l->settled_settler);
}

/* Makes the future on the first call; the lease may be over by then. */
static vow_future *lease_future(vow_lease *l, vow_future **future,
                                struct vow__named_settler *settler)
{
    if (*future == NULL) {
        hub_lock(l->hub);
        unsigned state = atomic_load(&l->state);
        if (state == LEASE_OVER)
            *future = vow_resolved(l->loop, vow_nothing());
        else if (state == LEASE_LOST)
            *future = vow_refused(l->loop, VOW_ELOST, NULL);
        else if (settler == &l->lost_settler && l->lost_code != 0)
            *future = vow_refused(l->loop, l->lost_code, NULL);
        else
            *future = vow__named_settler_open(l->waiter->site, l->loop,
                                              l->hub->loop, settler);
        hub_unlock(l->hub);
    }
    return vow_future_ref(*future);
}

/* ---- pulsing ------------------------------------------------------------ */

bool vow_lease_pulse(vow_lease *l)
{
    VOW__ASSERT_THREAD(l->loop);
    atomic_fetch_add_explicit(&l->pulses, 1, memory_order_relaxed);
    return atomic_load(&l->state) == LEASE_HELD && !atomic_load(&l->reported);
}

bool vow_lease_notify(vow_lease *l, vow_value progress)
{
    VOW__ASSERT_THREAD(l->loop);
    bool held = vow_lease_pulse(l);
    if (!held || !vow__named_is_hub_loop(l->waiter->handle)) {
        if (held)
            return vow_notify_any(l->outcome, progress);
        vow_value_drop(progress);
        return false;
    }
    vow__named_lease_progress(l, progress);
    vow_value_drop(progress);
    return true;
}

void vow_lease_keep(vow_lease *l, uint64_t ttl_ms)
{
    VOW__ASSERT_THREAD(l->loop);
    l->ttl_ms = ttl_ms;
}

void vow_lease_mark_failed(vow_lease *l)
{
    VOW__ASSERT_THREAD(l->loop);
    l->marked_failed = true;
}

/* ---- the end of a lease, on the hub's loop ------------------------------ */

void vow__named_lease_over(vow_lease *l, bool accepted)
{
    struct vow__named_entry *e = l->entry;
    VOW__ASSERT(e != NULL && e->lease == l);
    if (l->in_heap)
        vow__named_pulse_remove(l);
    l->entry = NULL;
    e->lease = NULL;
    vow__named_count(&l->hub->counts.running, (uint64_t)-1);
    hub_lock(l->hub);
    atomic_store_explicit(&l->state, accepted ? LEASE_OVER : LEASE_LOST,
                          memory_order_release);
    hub_unlock(l->hub); /* from here on no settler is opened */
    settler_settle_code(&l->lost_settler, accepted ? 0 : VOW_ELOST, NULL);
    settler_settle_code(&l->settled_settler, accepted ? 0 : VOW_ELOST, NULL);
    vow__named_lease_release(l);
}

/* The lease is still held, but the runner must stop. */
void vow__named_lease_tell_lost(vow_lease *l, int code, const char *text)
{
    hub_lock(l->hub);
    struct vow__named_settler lost = l->lost_settler;
    l->lost_settler = (struct vow__named_settler){0};
    l->lost_code = code; /* for a later vow_lease_lost() */
    hub_unlock(l->hub);
    settler_settle_code(&lost, code, text);
}

static void settler_settle_code(struct vow__named_settler *settler, int code,
                                const char *text)
{
    if (!vow__named_settler_is_open(settler)) /* no future was made */
        return;
    if (code == 0)
        vow__named_settler_resolve(settler, vow_nothing());
    else
        vow__named_settler_refuse(settler, code, text);
}

/* Excludes the loops of the waiters, if the hub has a thread. */
static void hub_lock(struct vow__named_hub *h)
{
    if (h->threaded)
        (void)pthread_mutex_lock(&h->lock);
}

static void hub_unlock(struct vow__named_hub *h)
{
    if (h->threaded)
        (void)pthread_mutex_unlock(&h->lock);
}
