/* SPDX-License-Identifier: MIT */
/* pulse.c - keeps leases by pulses, and gives up a lease in time.
 *
 * WHY   Another process takes over when an owner is silent for a lease. The
 *       owner must know first: a lease counts from the send time of the last
 *       answered pulse, by the owner's clock, and ends a little early.
 * HOW   All leases are in a heap by the time of the next pulse or of expiry.
 *       One timer serves the first lease. Pulses that are due within a fifth of
 *       the interval go out with the first as one step, and get the same next
 *       time, so that many leases need few steps.
 * LIMITS  128 names per step.
 * THREADS  the hub's loop, which user code never blocks.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "named/named_internal.h"

enum {
    PULSE_BATCH = 128,
    PULSE_DRIFT_PERCENT = 1,
    PULSE_MARGIN_NS = 2 * VOW__NS_PER_MS
};

struct pulse_batch {
    struct vow__named_hub *hub;
    size_t n;
    vow_lease *leases[PULSE_BATCH]; /* counted */
    vow_hold holds[PULSE_BATCH];
};

static void lease_schedule(vow_lease *l);
static void pulse_timer_arm(struct vow__named_hub *h);
static void on_pulse_timer(void *hub);
static bool lease_may_pulse(const vow_lease *l, uint64_t now);
static void pulse_send_batch(struct vow__named_hub *h, vow_lease *first,
                             uint64_t now);
static void on_leases_pulsed(int code, const vow_record *r, size_t n,
                             void *batch);
static void lease_pulsed(vow_lease *l, const vow_record *r);
static void lease_extend(vow_lease *l, uint64_t sent_ns);
static uint64_t lease_pulse_interval_ns(vow_lease *l);

void vow__named_pulse_add(vow_lease *l)
{
    const vow_share_opts *o = l->waiter->opts;
    uint64_t third = l->lease_ms / 3 + (l->lease_ms < 3);
    l->every_ms = o->pulse_ms > 0   ? o->pulse_ms
                  : o->lease_ms > 0 ? third
                                    : l->hub->opts.pulse_ms;
    if (l->every_ms >= l->lease_ms)
        l->every_ms = third;
    lease_extend(l, l->sent_ns);
    l->pulse_ns = l->sent_ns + lease_pulse_interval_ns(l);
    l->pulses_seen = atomic_load_explicit(&l->pulses, memory_order_relaxed);
    lease_schedule(l);
}

void vow__named_pulse_soon(vow_lease *l)
{
    if (!l->in_heap || l->pulsing)
        return;
    l->pulse_ns = 0;
    lease_schedule(l);
}

void vow__named_pulse_remove(vow_lease *l)
{
    struct vow__named_hub *h = l->hub;
    vow__heap_remove(&h->due, &l->due);
    l->in_heap = false;
    if (h->due == NULL && vow_call_stop(&h->pulse_timer))
        h->pulse_timer_ns = UINT64_MAX;
}

/* Extends the lease from the send time of a pulse, less drift and a margin. */
static void lease_extend(vow_lease *l, uint64_t sent_ns)
{
    uint64_t lease_ns = l->lease_ms * VOW__NS_PER_MS;
    uint64_t less = lease_ns / 100 * PULSE_DRIFT_PERCENT + PULSE_MARGIN_NS;
    l->sent_ns = sent_ns;
    atomic_store(&l->valid_ns,
                 sent_ns + (lease_ns > less ? lease_ns - less : 0));
}

/* Returns the interval, a tenth shorter or longer at random, so that processes
 * do not pulse in step. */
static uint64_t lease_pulse_interval_ns(vow_lease *l)
{
    uint64_t ns = l->every_ms * VOW__NS_PER_MS;
    uint64_t tenth = ns / 10 + 1;
    return ns - tenth + vow_loop_random(l->hub->loop) % (2 * tenth);
}

/* Puts the lease into the heap, by the next pulse or by expiry. */
static void lease_schedule(vow_lease *l)
{
    struct vow__named_hub *h = l->hub;
    uint64_t valid = atomic_load_explicit(&l->valid_ns, memory_order_relaxed);
    if (l->in_heap)
        vow__heap_remove(&h->due, &l->due);
    l->due.key = l->pulse_ns < valid ? l->pulse_ns : valid;
    l->due.seq = h->due_seq++;
    vow__heap_insert(&h->due, &l->due);
    l->in_heap = true;
    if (l->due.key < h->pulse_timer_ns)
        pulse_timer_arm(h);
}

static void pulse_timer_arm(struct vow__named_hub *h)
{
    uint64_t now = vow__named_hub_now_ns(h);
    h->pulse_timer_ns = h->due->key;
    uint64_t left = h->pulse_timer_ns > now ? h->pulse_timer_ns - now : 0;
    uint64_t due = vow_loop_now_ns(h->loop) + left;
    if ((h->store->ops->flags & VOW_STORE_LOCAL) != 0)
        vow_call_weakly_at(&h->pulse_timer, h->loop, due, on_pulse_timer, h);
    else
        vow_call_at(&h->pulse_timer, h->loop, due, on_pulse_timer, h);
}

static void on_pulse_timer(void *hub)
{
    struct vow__named_hub *h = hub;
    h->pulse_timer_ns = UINT64_MAX;
    uint64_t now = vow__named_hub_now_ns(h);
    while (h->due != NULL && h->due->key <= now && h->store != NULL) {
        vow_lease *l = VOW__OUTER(h->due, vow_lease, due);
        if (now >= atomic_load(&l->valid_ns)) {
            vow__named_pulse_remove(l);
            vow__named_lease_lose(
                l, "no pulse was answered for the time of the lease");
        } else if (lease_may_pulse(l, now)) {
            pulse_send_batch(h, l, now);
        } else {
            l->pulse_ns = now + lease_pulse_interval_ns(l);
            lease_schedule(l);
        }
    }
    if (h->due != NULL && h->store != NULL)
        pulse_timer_arm(h);
}

/* Returns whether a pulse is due, no other pulse is in flight and, for pulses
 * by hand, the runner has pulsed. During a commit no pulse is sent: if the
 * commit took effect and the record is gone, a pulse would make the record
 * again without an owner. */
static bool lease_may_pulse(const vow_lease *l, uint64_t now)
{
    unsigned pulses = atomic_load_explicit(&l->pulses, memory_order_relaxed);
    bool by_hand = (l->waiter->opts->flags & VOW_SHARE_MANUAL_PULSE) != 0;
    return l->pulse_ns <= now && !l->pulsing &&
           l->entry->state == ENTRY_RUNNING &&
           (!by_hand || pulses != l->pulses_seen);
}

/* Sends one pulse for the first lease and all leases that are due soon with the
 * same times. */
static void pulse_send_batch(struct vow__named_hub *h, vow_lease *first,
                             uint64_t now)
{
    struct pulse_batch *b = vow__mem_new(&h->alloc, sizeof(*b));
    uint64_t lease_ms = first->lease_ms;
    uint64_t every_ms = first->every_ms;
    uint64_t soon = now + every_ms * VOW__NS_PER_MS / 5;
    uint64_t next = now + lease_pulse_interval_ns(first);
    if (b == NULL) { /* later, if time is left */
        first->pulse_ns = now + lease_pulse_interval_ns(first) / 4;
        lease_schedule(first);
        return;
    }
    b->hub = vow__named_hub_ref(h);
    b->n = 0;
    while (b->n < PULSE_BATCH && h->due != NULL && h->due->key <= soon) {
        vow_lease *l = VOW__OUTER(h->due, vow_lease, due);
        if (l->lease_ms != lease_ms || l->every_ms != every_ms ||
            !lease_may_pulse(l, soon) || now >= atomic_load(&l->valid_ns))
            break;
        l->pulses_seen = atomic_load_explicit(&l->pulses, memory_order_relaxed);
        l->pulsing = true;
        l->sending_ns = now;
        l->pulse_ns = next;
        lease_schedule(l);
        vow__named_lease_hold(l);
        b->leases[b->n] = l;
        b->holds[b->n++] = (vow_hold){.name = l->entry->name,
                                      .token = l->token,
                                      .epoch = atomic_load(&l->epoch),
                                      .mode = l->entry->mode};
    }
    vow__named_step_begins(h);
    h->store->ops->pulse(h->store, b->holds, b->n, lease_ms, on_leases_pulsed,
                         b);
}

static void on_leases_pulsed(int code, const vow_record *r, size_t n,
                             void *batch)
{
    struct pulse_batch *b = batch;
    struct vow__named_hub *h = b->hub;
    uint64_t now = vow__named_hub_now_ns(h);
    vow__named_step_ended(h, code);
    for (size_t i = 0; i < b->n; i++) {
        vow_lease *l = b->leases[i];
        l->pulsing = false;
        if (code == 0 && i < n && l->entry != NULL) {
            lease_pulsed(l, &r[i]);
        } else if (l->in_heap) { /* sooner than usual */
            l->pulse_ns = now + lease_pulse_interval_ns(l) / 4;
            lease_schedule(l);
        }
        vow__named_lease_release(l);
    }
    struct vow_alloc alloc = h->alloc;
    vow__mem_free(&alloc, b, sizeof(*b));
    vow__named_hub_unref(h);
}

static void lease_pulsed(vow_lease *l, const vow_record *r)
{
    struct vow__named_entry *e = l->entry;
    if (r->status == VOW_STATUS_OWNED || r->status == VOW_STATUS_CANCELED) {
        atomic_store(&l->epoch, r->epoch);
        e->epoch = r->epoch;
        lease_extend(l, l->sending_ns);
        if (l->in_heap)
            lease_schedule(l);
        if (r->status == VOW_STATUS_CANCELED)
            vow__named_lease_stop(&e->name, l->hub);
        return;
    }
    vow__named_lease_lose(l, r->status == VOW_STATUS_SETTLED
                                 ? "another runner has settled the name"
                                 : "another runner has taken over the name");
}
