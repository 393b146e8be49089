/* SPDX-License-Identifier: MIT */
/* lease.c - runs the work of a name: attempts, outcome, loss.
 *
 * WHY   A promise settles once. So a runner that was declared lost is harmless:
 *       the result comes too late and changes nothing.
 * HOW   A lease belongs to one attempt of one waiter. The outcome is a future
 *       of the hub's loop; from another loop it comes as a remote promise. The
 *       store decides whether the outcome counts. After a failed attempt the
 *       next waiter gets a new lease under the same claim; the other waiters
 *       just wait on.
 * INVARIANTS
 *   L1  `entry` is set exactly while the entry has this lease
 *   L2  the hub has one reference of the memory as long as `entry` is set
 *   L3  `reported` is set once: by the outcome, or with the last user
 * THREADS  the hub's loop.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "named/named_internal.h"

#include <string.h>

static void no_waiter_can_work(struct vow__named_entry *e, bool alone);
static struct vow__named_waiter *pick_waiter(const struct vow__named_entry *e);
static bool waiter_can_work(const struct vow__named_waiter *w);
static void lease_attempt_begin(struct vow__named_entry *e,
                                struct vow__named_waiter *w, bool alone);
static void lease_attempt_no_memory(struct vow__named_entry *e, bool alone);
static vow_lease *lease_make(struct vow__named_entry *e,
                             struct vow__named_waiter *w, bool alone);
static int lease_open_remote(vow_lease *l);
static void on_remote_outcome(vow_future *f, void *lease);
static void on_lease_progress(vow_value progress, void *lease);
static void lease_attempt_abandoned(struct vow__named_entry *e);
static void lease_attempt_failed(struct vow__named_entry *e,
                                 vow_future *outcome);
static bool lease_attempt_may_repeat(struct vow__named_entry *e);
static void next_attempt(struct vow__named_entry *e);
static void waiters_reject_retry(struct vow__named_entry *e, vow_error *why);
static vow_future *outcome_refusal(struct vow__named_hub *h,
                                   vow_future *outcome);
static void lease_cancel_by_message(void *lease);

/* ---- attempts ----------------------------------------------------------- */

void vow__named_lease_begin(struct vow__named_entry *e, bool alone)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    if (alone)
        e->takeovers = 0;
    vow__named_chunks_clear(e);
    struct vow__named_waiter *w = pick_waiter(e);
    if (w != NULL && !alone) {
        bool takeover = e->takeovers > 0;
        vow__named_count(&h->counts.takeovers, takeover);
        vow__named_hub_tell(h,
                            takeover ? VOW_EVENT_TAKEOVER : VOW_EVENT_CLAIMED,
                            &e->name, e->epoch, 0, NULL);
        if (h->opts.on_event != NULL)
            w = pick_waiter(e); /* user code may have changed the list */
    }
    if (w != NULL)
        lease_attempt_begin(e, w, alone);
    else
        no_waiter_can_work(e, alone);
}

/* Gives the name back when no waiter can work. Claims again later if a waiter
 * is busy with work of a lost lease; else all waiters can only wait, and are
 * rejected with VOW_ERETRY. */
static void no_waiter_can_work(struct vow__named_entry *e, bool alone)
{
    bool busy = false;
    for (vow_link *l = e->waiters; l != NULL; l = l->next)
        busy = busy || atomic_load(&vow__named_waiter_of(l)->working) > 0;
    if (!busy)
        waiters_reject_retry(e, NULL);
    e->hold_off = busy;
    if (!alone)
        vow__named_lease_give_back(e);
    else if (busy)
        vow__named_entry_hold_off(e);
    else
        vow__named_entry_claim_again(e);
}

/* Returns the first waiter that can work and has not tried, else the first
 * waiter that can work, or NULL. */
static struct vow__named_waiter *pick_waiter(const struct vow__named_entry *e)
{
    struct vow__named_waiter *best = NULL;
    for (vow_link *l = e->waiters; l != NULL; l = l->next) {
        struct vow__named_waiter *w = vow__named_waiter_of(l);
        if (!waiter_can_work(w) || atomic_load(&w->working) > 0)
            continue;
        if (!w->tried)
            return w;
        if (best == NULL)
            best = w;
    }
    return best;
}

static bool waiter_can_work(const struct vow__named_waiter *w)
{
    return w->work != NULL || w->on_lease != NULL ||
           atomic_load(&w->claim_pending);
}

static void lease_attempt_begin(struct vow__named_entry *e,
                                struct vow__named_waiter *w, bool alone)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    vow_lease *l = lease_make(e, w, alone);
    if (l == NULL ||
        (!vow__named_is_hub_loop(w->handle) && lease_open_remote(l) < 0)) {
        if (l != NULL)
            vow__named_lease_release(l);
        lease_attempt_no_memory(e, alone);
        return;
    }
    e->lease = l;
    vow__named_entry_move(e, ENTRY_RUNNING);
    vow__named_count(&h->counts.runs, 1);
    vow__named_count(&h->counts.running, 1);
    for (vow_link *k = e->waiters; k != NULL; k = k->next) {
        struct vow__named_waiter *other = vow__named_waiter_of(k);
        if (other == w)
            continue;
        other->waited = true;
        if (!waiter_can_work(other) || other->work == NULL)
            vow__named_waiter_waits(other);
        vow__named_chunks_follow(e, other);
    }
    if (!alone && !e->unstored)
        vow__named_pulse_add(l);
    vow__named_waiter_start_work(w, l);
}

static void lease_attempt_no_memory(struct vow__named_entry *e, bool alone)
{
    VOW_AUTO(vow_error)
    why = vow_error_new(vow__named_entry_hub(e)->loop, VOW_ENOMEM, NULL);
    while (e->waiters != NULL)
        vow__named_waiter_reject(vow__named_waiter_of(e->waiters), why);
    if (alone)
        vow__named_entry_claim_again(e);
    else
        vow__named_lease_give_back(e);
}

static vow_lease *lease_make(struct vow__named_entry *e,
                             struct vow__named_waiter *w, bool alone)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    struct vow__slab *slab = NULL;
    vow_lease *l = vow__named_is_hub_loop(w->handle)
                       ? vow__slab_take(&h->leases, &slab)
                       : vow__mem_zero(&h->alloc, sizeof(*l));
    if (l == NULL)
        return NULL;
    l->slab = slab;
    l->hub = h;
    l->waiter = vow__named_waiter_ref(w);
    l->loop = w->handle->loop;
    atomic_init(&l->refs, 2); /* of the hub and of the users */
    atomic_init(&l->users, 1);
    atomic_init(&l->epoch, alone ? 0 : e->epoch);
    atomic_init(&l->valid_ns, UINT64_MAX);
    atomic_init(&l->waiters, e->n_waiters);
    l->ttl_ms = UINT64_MAX;
    l->sent_ns = e->claimed_ns;
    /* Without a record, work that ends at once needs no time. */
    l->began_ns =
        e->unstored && !h->threaded ? UINT64_MAX : vow__named_hub_about_ns(h);
    l->lease_ms = e->lease_ms; /* as the store knows, not as in w->opts */
    l->token = e->token;
    l->attempt = e->takeovers + e->failures + e->abandons + 1;
    l->takeover = e->takeovers > 0 || e->lease_was_lost;
    l->alone = alone;
    VOW__CLEAR(l, in_heap, due);
    l->entry = e;
    return l;
}

/* Makes the promise that brings the outcome from another loop. */
static int lease_open_remote(vow_lease *l)
{
    VOW_AUTO(vow_future)
    f = vow_promise_remote_at(l->waiter->site, l->hub->loop, &l->outcome);
    if (l->outcome == NULL)
        return VOW_ENOMEM;
    VOW_AUTO(vow_future)
    with_progress = vow_on_progress(f, on_lease_progress, l);
    if (vow_error_of(with_progress) != NULL)
        return VOW_ENOMEM;
    vow__named_lease_hold(l);
    vow_watch_start(&l->outcome_watch, with_progress, on_remote_outcome, l);
    return 0;
}

static void on_remote_outcome(vow_future *f, void *lease)
{
    vow_lease *l = lease;
    (void)vow_error_of(f);
    vow__named_lease_finish(l, f);
    vow__named_lease_release(l);
}

static void on_lease_progress(vow_value progress, void *lease)
{
    vow__named_lease_progress(lease, progress);
}

void vow__named_lease_progress(vow_lease *l, vow_value progress)
{
    struct vow__named_entry *e = l->entry;
    for (vow_link *k = e == NULL ? NULL : e->waiters; k != NULL; k = k->next)
        vow__named_settler_notify(&vow__named_waiter_of(k)->settler, progress);
}

/* ---- the work has ended ------------------------------------------------- */

void vow__named_lease_finish(vow_lease *l, vow_future *outcome)
{
    struct vow__named_entry *e = l->entry;
    struct vow__named_hub *h = l->hub;
    if (e == NULL) { /* lost before: the result changes nothing */
        if (vow_state_of(outcome) == VOW_FULFILLED) {
            vow__named_count(&h->counts.late, 1);
            vow__named_hub_tell(h, VOW_EVENT_LATE, &l->waiter->name,
                                atomic_load(&l->epoch), VOW_ELOST, NULL);
        }
        return;
    }
    if (e->state != ENTRY_RUNNING) /* the name is being given back */
        return;
    atomic_store_explicit(&l->state, LEASE_ENDING, memory_order_release);
    VOW_AUTO(vow_future) other = outcome_refusal(h, outcome);
    vow_future *fit = other != NULL ? other : outcome;
    if (l->waiter_left)
        next_attempt(e);
    else if (l->abandoned && !l->alone && !l->stopped)
        lease_attempt_abandoned(e);
    else if (vow_state_of(fit) == VOW_FULFILLED)
        vow__named_lease_commit(e, fit);
    else
        lease_attempt_failed(e, fit);
}

/* Gives the name back. If a waiter here can work and has not tried, the name is
 * claimed again at once, else after a pause. */
static void lease_attempt_abandoned(struct vow__named_entry *e)
{
    const struct vow__named_waiter *next = pick_waiter(e);
    if (e->hold_offs < e->abandons)
        e->hold_offs = e->abandons; /* longer pauses each time */
    e->abandons++;
    e->hold_off = next == NULL || next->tried;
    vow__named_lease_give_back(e);
}

/* Returns NULL if the store can keep the outcome, else an owned future with an
 * error: a result for other processes is bytes of limited size, or nothing. */
static vow_future *outcome_refusal(struct vow__named_hub *h,
                                   vow_future *outcome)
{
    if (vow_state_of(outcome) != VOW_FULFILLED ||
        (h->store->ops->flags & VOW_STORE_LOCAL) != 0)
        return NULL;
    vow_value v = vow_get(outcome);
    const char *text = NULL, *advice = NULL;
    int code = VOW_EINVAL;
    if (vow_kind_of(v) != VOW_NOTHING && vow_kind_of(v) != VOW_BYTES)
        text = "a result that is shared with other processes is bytes or "
               "nothing";
    if (vow_kind_of(v) == VOW_BYTES &&
        vow_bytes_size(vow_as_bytes(v)) > h->opts.value_max) {
        code = VOW_E2BIG;
        text = "the result is larger than the store keeps";
        advice = h->store->ops->value_advice;
    }
    if (text == NULL)
        return NULL;
    vow_future *lease_attempt_abandoned =
        vow_rejected(h->loop, vow_error_new(h->loop, code, "%s%s%s", text,
                                            advice == NULL ? "" : ": ",
                                            advice == NULL ? "" : advice));
    (void)vow_error_of(lease_attempt_abandoned);
    return lease_attempt_abandoned;
}

/* Lets the next waiter try, or fails for all waiters. */
static void lease_attempt_failed(struct vow__named_entry *e,
                                 vow_future *outcome)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    vow_error *error = vow_error_of(outcome);
    vow_lease *l = e->lease;
    if (e->unwanted && !l->stopped) { /* no waiter is left: not a failure */
        if (l->alone) {
            vow__named_lease_over(e->lease, true);
            vow__named_entry_claim_again(e);
        } else {
            vow__named_lease_give_back(e);
        }
        return;
    }
    e->failures++;
    if (e->first_error == NULL)
        e->first_error = vow_error_ref(error);
    if (lease_attempt_may_repeat(e)) {
        vow__named_lease_hold(l);
        vow__named_hub_tell(h, VOW_EVENT_RETRY, &e->name, e->epoch,
                            vow_error_code(error), vow_error_message(error));
        if (l->entry != NULL) /* user code may have closed the authority */
            next_attempt(e);
        vow__named_lease_release(l);
        return;
    }
    if ((l->waiter->opts->flags & VOW_SHARE_RACE) != 0 && !l->stopped &&
        e->n_waiters > 1) {
        struct vow__named_waiter *mine = l->waiter;
        if (mine->entry != NULL)
            vow__named_waiter_reject(mine, error);
        waiters_reject_retry(e, error);
        vow__named_lease_give_back(e);
        return;
    }
    VOW_AUTO(vow_future)
    first = vow_rejected(h->loop, vow_error_ref(e->first_error));
    (void)vow_error_of(first);
    vow__named_lease_commit(e, first);
}

static bool lease_attempt_may_repeat(struct vow__named_entry *e)
{
    const vow_lease *l = e->lease;
    uint32_t tries = l->waiter->opts->tries == 0 ? 1 : l->waiter->opts->tries;
    return e->failures < tries && !l->stopped && e->n_waiters > 0 &&
           (l->waiter->opts->flags & VOW_SHARE_RACE) == 0;
}

/* Begins another attempt, with a new lease under the same claim. */
static void next_attempt(struct vow__named_entry *e)
{
    vow_lease *before = e->lease;
    bool alone = before->alone;
    e->claimed_ns = before->sent_ns;
    vow__named_lease_over(before, false);
    e->state = ENTRY_CLAIMING; /* and granted */
    vow__named_chunks_clear(e);
    struct vow__named_waiter *w = pick_waiter(e);
    if (w != NULL)
        lease_attempt_begin(e, w, alone);
    else
        no_waiter_can_work(e, alone);
}

/* Rejects all waiters with VOW_ERETRY: every caller requests the name again. */
static void waiters_reject_retry(struct vow__named_entry *e, vow_error *why)
{
    VOW_AUTO(vow_error)
    retry =
        vow_error_wrap(vow__named_entry_hub(e)->loop, VOW_ERETRY, why, NULL);
    while (e->waiters != NULL)
        vow__named_waiter_reject(vow__named_waiter_of(e->waiters), retry);
}

/* ---- loss and cancel ---------------------------------------------------- */

void vow__named_lease_lose(vow_lease *l, const char *why)
{
    struct vow__named_entry *e = l->entry;
    struct vow__named_hub *h = l->hub;
    if (e == NULL || e->state != ENTRY_RUNNING)
        return;
    bool keep = (l->waiter->opts->flags & VOW_SHARE_KEEP) != 0;
    vow__named_lease_hold(l);
    vow__named_count(&h->counts.lost, 1);
    vow__named_hub_tell(h, VOW_EVENT_LOST, &e->name, atomic_load(&l->epoch),
                        VOW_ELOST, why);
    if (l->entry == NULL) { /* user code closed the authority */
        vow__named_lease_release(l);
        return;
    }
    VOW_AUTO(vow_error) error = vow_error_new(h->loop, VOW_ELOST, "%s", why);
    if (!keep)
        vow__named_lease_cancel(l, error, false);
    vow__named_lease_over(l, false);
    e->lease_was_lost = true;
    e->successor_asks = 0;
    e->ask_successor = e->mode != VOW_ONCE && !l->alone &&
                       !l->waiter->refresh &&
                       (h->store->ops->flags & VOW_STORE_LOCAL) == 0;
    if (!l->chunks_stopped && !l->alone) { /* the followers have these chunks */
        e->chunks_epoch = atomic_load(&l->epoch);
        e->chunks_from = e->n_chunks;
    }
    vow_link *next;
    for (vow_link *k = e->waiters; k != NULL; k = next) {
        struct vow__named_waiter *w = vow__named_waiter_of(k);
        next = k->next;
        w->waited = true;
        if (w == l->waiter && w->opts->mode == VOW_ONCE)
            vow__named_waiter_refuse(w, VOW_EDOUBT, "its lease was lost");
        else if ((w->opts->flags & VOW_SHARE_RACE) != 0)
            vow__named_waiter_refuse(w, VOW_ERETRY, NULL);
    }
    vow__named_entry_claim_again(e);
    vow__named_lease_release(l);
}

void vow__named_lease_cancel(vow_lease *l, vow_error *why, bool stopped)
{
    l->stopped = l->stopped || stopped;
    if (vow__named_is_hub_loop(l->waiter->handle)) {
        if (l->work != NULL)
            (void)vow_cancel(l->work, why);
    } else {
        vow__named_lease_hold(l);
        if (vow_loop_post(l->loop, lease_cancel_by_message, l) < 0)
            vow__named_lease_release(l);
    }
    if (stopped && l->waiter->work == NULL)
        vow__named_lease_tell_lost(l, VOW_ECANCELED,
                                   "a cancel of the work was requested");
}

static void lease_cancel_by_message(void *lease)
{
    vow_lease *l = lease;
    if (l->work != NULL)
        (void)vow_cancel(l->work, NULL);
    vow__named_lease_release(l);
}

void vow__named_lease_stop(const vow_name *name, void *hub)
{
    for (int refresh = 0; refresh <= 1; refresh++) {
        struct vow__named_entry *e =
            vow__named_entry_find(hub, name, refresh != 0);
        if (e == NULL || e->state != ENTRY_RUNNING || e->lease->stopped)
            continue;
        VOW_AUTO(vow_error)
        why = vow_error_new(vow__named_entry_hub(e)->loop, VOW_ECANCELED,
                            "a cancel of the work was requested");
        vow__named_lease_cancel(e->lease, why, true);
    }
}

void vow__named_lease_yield(vow_lease *l)
{
    struct vow__named_entry *e = l->entry;
    if (e == NULL || e->state != ENTRY_RUNNING)
        return;
    vow__named_lease_cancel(l, NULL, false);
    if (l->entry == NULL)
        return;
    if (l->alone) {
        vow__named_lease_over(l, false);
        vow__named_entry_claim_again(e);
        return;
    }
    /* Another process may own the name before the store has answered. */
    atomic_store(&l->state, LEASE_LOST);
    vow__named_lease_tell_lost(l, VOW_ELOST, "the authority was closed");
    vow__named_lease_give_back(e);
}
