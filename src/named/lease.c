/* SPDX-License-Identifier: MIT */
/* lease.c - doing the work of a name: attempts, outcome, commit, loss.
 *
 * WHY   A promise settles once, and that is what makes a worker harmless who
 *       was taken for dead: its result comes too late and changes nothing.
 * HOW   A lease belongs to one attempt of one asker. Its outcome is a future of
 *       the hub's loop; from another loop it comes as a remote promise. The
 *       store decides whether it counts. A failed attempt is followed by a new
 *       lease under the same claim, of the next asker in turn; who waits
 *       notices nothing.
 * INVARIANTS
 *   L1  `entry` is set exactly while the lease is the entry's
 *   L2  the hub has one reference of the memory as long as `entry` is set
 *   L3  `told` is set once: by the outcome, or by the last user going
 * THREADS  the hub's loop.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "named/named_internal.h"

#include <string.h>

static void nobody_can(struct vow__named_entry *e, bool alone);
static struct vow__named_waiter *pick(const struct vow__named_entry *e);
static bool can_work(const struct vow__named_waiter *w);
static void attempt(struct vow__named_entry *e, struct vow__named_waiter *w,
                    bool alone);
static void no_memory(struct vow__named_entry *e, bool alone);
static vow_lease *lease_new(struct vow__named_entry *e,
                            struct vow__named_waiter *w, bool alone);
static int from_afar(vow_lease *l);
static void on_outcome(vow_future *f, void *lease);
static void on_news(vow_value news, void *lease);
static void refused(struct vow__named_entry *e);
static void failed(struct vow__named_entry *e, vow_future *outcome);
static bool again(struct vow__named_entry *e);
static void next_attempt(struct vow__named_entry *e);
static void race(struct vow__named_entry *e, vow_error *why);
static vow_future *unacceptable(struct vow__named_hub *h, vow_future *outcome);
static void cancel_there(void *lease);

/* ---- attempts ----------------------------------------------------------- */

void vow__named_lease_begin(struct vow__named_entry *e, bool alone)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    if (alone)
        e->takeovers = 0;
    vow__named_chunks_clear(e);
    struct vow__named_waiter *w = pick(e);
    if (w != NULL && !alone) {
        bool takeover = e->takeovers > 0;
        vow__named_count(&h->counts.takeovers, takeover);
        vow__named_hub_tell(h,
                            takeover ? VOW_EVENT_TAKEOVER : VOW_EVENT_CLAIMED,
                            &e->name, e->epoch, 0, NULL);
        if (h->opts.on_event != NULL)
            w = pick(e); /* who was told may have left */
    }
    if (w != NULL)
        attempt(e, w, alone);
    else
        nobody_can(e, alone);
}

/* All who wait are busy with what they have lost, or wait and do nothing else:
 * the latter are told to ask again. */
static void nobody_can(struct vow__named_entry *e, bool alone)
{
    bool busy = false;
    for (vow_link *l = e->waiters; l != NULL; l = l->next)
        busy = busy || atomic_load(&vow__named_waiter_of(l)->working) > 0;
    if (!busy)
        race(e, NULL);
    e->hold_off = busy;
    if (!alone)
        vow__named_lease_give_back(e);
    else if (busy)
        vow__named_entry_hold_off(e);
    else
        vow__named_entry_claim_again(e);
}

/* The first who can work and has not tried; else the first who can. */
static struct vow__named_waiter *pick(const struct vow__named_entry *e)
{
    struct vow__named_waiter *best = NULL;
    for (vow_link *l = e->waiters; l != NULL; l = l->next) {
        struct vow__named_waiter *w = vow__named_waiter_of(l);
        if (!can_work(w) || atomic_load(&w->working) > 0)
            continue;
        if (!w->tried)
            return w;
        if (best == NULL)
            best = w;
    }
    return best;
}

static bool can_work(const struct vow__named_waiter *w)
{
    return w->work != NULL || w->on_lease != NULL || atomic_load(&w->untold);
}

static void attempt(struct vow__named_entry *e, struct vow__named_waiter *w,
                    bool alone)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    vow_lease *l = lease_new(e, w, alone);
    if (l == NULL || (!vow__named_is_hub_loop(w->of) && from_afar(l) < 0)) {
        if (l != NULL)
            vow__named_lease_release(l);
        no_memory(e, alone);
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
        if (!can_work(other) || other->work == NULL)
            vow__named_waiter_waits(other);
        vow__named_chunks_follow(e, other);
    }
    if (!alone && !e->unstored)
        vow__named_pulse_add(l);
    vow__named_waiter_start_work(w, l);
}

static void no_memory(struct vow__named_entry *e, bool alone)
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

static vow_lease *lease_new(struct vow__named_entry *e,
                            struct vow__named_waiter *w, bool alone)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    struct vow__slab *slab = NULL;
    vow_lease *l = vow__named_is_hub_loop(w->of)
                       ? vow__slab_take(&h->leases, &slab)
                       : vow__mem_zero(&h->alloc, sizeof(*l));
    if (l == NULL)
        return NULL;
    l->slab = slab;
    l->hub = h;
    l->ask = vow__named_waiter_ref(w);
    l->loop = w->of->loop;
    atomic_init(&l->refs, 2); /* the hub's, the users' */
    atomic_init(&l->users, 1);
    atomic_init(&l->epoch, alone ? 0 : e->epoch);
    atomic_init(&l->valid_ns, UINT64_MAX);
    atomic_init(&l->waiters, e->n_waiters);
    l->ttl_ms = UINT64_MAX;
    l->sent_ns = e->claimed_ns;
    l->began_ns = vow__named_hub_about_ns(h);
    l->lease_ms = e->lease_ms; /* not the ask's: the store knows this one */
    l->token = e->token;
    l->attempt = e->takeovers + e->failures + e->refusals + 1;
    l->takeover = e->takeovers > 0 || e->lost_one;
    l->alone = alone;
    VOW__CLEAR(l, in_heap, due);
    l->entry = e;
    return l;
}

/* What is done on another loop comes home as a promise. */
static int from_afar(vow_lease *l)
{
    VOW_AUTO(vow_future)
    f = vow_promise_remote_at(l->ask->site, l->hub->loop, &l->outcome);
    if (l->outcome == NULL)
        return VOW_ENOMEM;
    VOW_AUTO(vow_future) heard = vow_on_progress(f, on_news, l);
    if (vow_error_of(heard) != NULL)
        return VOW_ENOMEM;
    vow__named_lease_hold(l);
    vow_watch_start(&l->outcome_watch, heard, on_outcome, l);
    return 0;
}

static void on_outcome(vow_future *f, void *lease)
{
    vow_lease *l = lease;
    (void)vow_error_of(f);
    vow__named_lease_finish(l, f);
    vow__named_lease_release(l);
}

static void on_news(vow_value news, void *lease)
{
    vow__named_lease_progress(lease, news);
}

void vow__named_lease_progress(vow_lease *l, vow_value news)
{
    struct vow__named_entry *e = l->entry;
    for (vow_link *k = e == NULL ? NULL : e->waiters; k != NULL; k = k->next)
        vow__named_settler_notify(&vow__named_waiter_of(k)->settler, news);
}

/* ---- the work has ended ------------------------------------------------- */

void vow__named_lease_finish(vow_lease *l, vow_future *outcome)
{
    struct vow__named_entry *e = l->entry;
    struct vow__named_hub *h = l->hub;
    if (e == NULL) { /* lost, and told so; the result changes nothing */
        if (vow_state_of(outcome) == VOW_FULFILLED) {
            vow__named_count(&h->counts.late, 1);
            vow__named_hub_tell(h, VOW_EVENT_LATE, &l->ask->name,
                                atomic_load(&l->epoch), VOW_ELOST, NULL);
        }
        return;
    }
    if (e->state != ENTRY_RUNNING) /* it is being given back */
        return;
    atomic_store_explicit(&l->state, LEASE_ENDING, memory_order_release);
    VOW_AUTO(vow_future) other = unacceptable(h, outcome);
    vow_future *fit = other != NULL ? other : outcome;
    if (l->passed)
        next_attempt(e);
    else if (l->abandoned && !l->alone && !l->stopped)
        refused(e);
    else if (vow_state_of(fit) == VOW_FULFILLED)
        vow__named_lease_commit(e, fit);
    else
        failed(e, fit);
}

/* Who can and has not tried does it at once, here or elsewhere. */
static void refused(struct vow__named_entry *e)
{
    const struct vow__named_waiter *next = pick(e);
    if (e->held_off < e->refusals)
        e->held_off = e->refusals; /* less and less often */
    e->refusals++;
    e->hold_off = next == NULL || next->tried;
    vow__named_lease_give_back(e);
}

/* A result that leaves the process is bytes that the store can keep; else it is
 * this instead. */
static vow_future *unacceptable(struct vow__named_hub *h, vow_future *outcome)
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
    vow_future *refused =
        vow_rejected(h->loop, vow_error_new(h->loop, code, "%s%s%s", text,
                                            advice == NULL ? "" : ": ",
                                            advice == NULL ? "" : advice));
    (void)vow_error_of(refused);
    return refused;
}

/* The next one in turn tries, or it has failed for all. */
static void failed(struct vow__named_entry *e, vow_future *outcome)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    vow_error *error = vow_error_of(outcome);
    vow_lease *l = e->lease;
    if (e->unwanted && !l->stopped) { /* nobody wants it: that is no failure */
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
    if (again(e)) {
        vow__named_lease_hold(l);
        vow__named_hub_tell(h, VOW_EVENT_RETRY, &e->name, e->epoch,
                            vow_error_code(error), vow_error_message(error));
        if (l->entry != NULL) /* the authority may have been closed */
            next_attempt(e);
        vow__named_lease_release(l);
        return;
    }
    if ((l->ask->opts->flags & VOW_SHARE_RACE) != 0 && !l->stopped &&
        e->n_waiters > 1) {
        struct vow__named_waiter *mine = l->ask;
        if (mine->entry != NULL)
            vow__named_waiter_reject(mine, error);
        race(e, error);
        vow__named_lease_give_back(e);
        return;
    }
    VOW_AUTO(vow_future)
    first = vow_rejected(h->loop, vow_error_ref(e->first_error));
    (void)vow_error_of(first);
    vow__named_lease_commit(e, first);
}

static bool again(struct vow__named_entry *e)
{
    const vow_lease *l = e->lease;
    uint32_t tries = l->ask->opts->tries == 0 ? 1 : l->ask->opts->tries;
    return e->failures < tries && !l->stopped && e->n_waiters > 0 &&
           (l->ask->opts->flags & VOW_SHARE_RACE) == 0;
}

/* Another lease under the same claim. */
static void next_attempt(struct vow__named_entry *e)
{
    vow_lease *before = e->lease;
    bool alone = before->alone;
    e->claimed_ns = before->sent_ns;
    vow__named_lease_over(before, false);
    e->state = ENTRY_CLAIMING; /* and granted */
    vow__named_chunks_clear(e);
    struct vow__named_waiter *w = pick(e);
    if (w != NULL)
        attempt(e, w, alone);
    else
        nobody_can(e, alone);
}

/* All who wait are told to ask again, by themselves. */
static void race(struct vow__named_entry *e, vow_error *why)
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
    bool keep = (l->ask->opts->flags & VOW_SHARE_KEEP) != 0;
    vow__named_lease_hold(l);
    vow__named_count(&h->counts.lost, 1);
    vow__named_hub_tell(h, VOW_EVENT_LOST, &e->name, atomic_load(&l->epoch),
                        VOW_ELOST, why);
    if (l->entry == NULL) { /* the authority was closed meanwhile */
        vow__named_lease_release(l);
        return;
    }
    VOW_AUTO(vow_error) error = vow_error_new(h->loop, VOW_ELOST, "%s", why);
    if (!keep)
        vow__named_lease_cancel(l, error, false);
    vow__named_lease_over(l, false);
    e->lost_one = true;
    e->successor_asks = 0;
    e->ask_successor = !e->once && !l->alone && !l->ask->refresh &&
                       (h->store->ops->flags & VOW_STORE_LOCAL) == 0;
    if (!l->mute && !l->alone) { /* those who follow have them already */
        e->chunks_epoch = atomic_load(&l->epoch);
        e->chunks_from = e->n_chunks;
    }
    vow_link *next;
    for (vow_link *k = e->waiters; k != NULL; k = next) {
        struct vow__named_waiter *w = vow__named_waiter_of(k);
        next = k->next;
        w->waited = true;
        if (w == l->ask && w->opts->mode == VOW_ONCE)
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
    if (vow__named_is_hub_loop(l->ask->of)) {
        if (l->work != NULL)
            (void)vow_cancel(l->work, why);
    } else {
        vow__named_lease_hold(l);
        if (vow_loop_post(l->loop, cancel_there, l) < 0)
            vow__named_lease_release(l);
    }
    if (stopped && l->ask->work == NULL)
        vow__named_lease_tell_lost(l, VOW_ECANCELED,
                                   "somebody asked to stop it");
}

static void cancel_there(void *lease)
{
    vow_lease *l = lease;
    if (l->work != NULL)
        (void)vow_cancel(l->work, NULL);
    vow__named_lease_release(l);
}

void vow__named_lease_stop(const vow_name *name, void *hub)
{
    struct vow__named_entry *e = vow__named_entry_find(hub, name);
    if (e == NULL || e->state != ENTRY_RUNNING || e->lease->stopped)
        return;
    VOW_AUTO(vow_error)
    why = vow_error_new(vow__named_entry_hub(e)->loop, VOW_ECANCELED,
                        "somebody asked to stop it");
    vow__named_lease_cancel(e->lease, why, true);
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
    /* From now on another may have it, before the store has answered. */
    atomic_store(&l->state, LEASE_LOST);
    vow__named_lease_tell_lost(l, VOW_ELOST, "the authority was closed");
    vow__named_lease_give_back(e);
}
