/* SPDX-License-Identifier: MIT */
/* pulse.c - staying alive: pulses for what we do, and giving up in time.
 *
 * WHY   Others take over when a worker is silent for a lease. A worker must
 *       know that before they do: it measures from when the last pulse that was
 *       answered was sent, by its own clock, and is a little early.
 * HOW   All leases lie in a heap by the time to look at them: for the next
 *       pulse, or to give up. One timer serves the first. What is due within a
 *       fifth of its time goes out with it as one step, and has the next time
 *       in common, so that many leases are few steps.
 * LIMITS  128 names to a step.
 * THREADS  the hub's loop, which no code of the user's blocks.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "named/named_internal.h"

enum { BATCH = 128, DRIFT_PERCENT = 1, MARGIN_NS = 2 * VOW__NS_PER_MS };

struct batch {
    struct vow__named_hub *hub;
    size_t n;
    vow_lease *leases[BATCH]; /* counted */
    vow_hold holds[BATCH];
};

static void schedule(vow_lease *l);
static void arm(struct vow__named_hub *h);
static void look(void *hub);
static bool may_pulse(const vow_lease *l, uint64_t now);
static void send(struct vow__named_hub *h, vow_lease *first, uint64_t now);
static void on_pulsed(int code, const vow_record *r, size_t n, void *batch);
static void heard(vow_lease *l, const vow_record *r);
static void trust(vow_lease *l, uint64_t sent_ns);
static uint64_t every_ns(vow_lease *l);

void vow__named_pulse_add(vow_lease *l)
{
    const vow_share_opts *o = l->ask->opts;
    uint64_t third = l->lease_ms / 3 + (l->lease_ms < 3);
    l->every_ms = o->pulse_ms > 0   ? o->pulse_ms
                  : o->lease_ms > 0 ? third
                                    : l->hub->opts.pulse_ms;
    if (l->every_ms >= l->lease_ms)
        l->every_ms = third;
    trust(l, l->sent_ns);
    l->pulse_ns = l->sent_ns + every_ns(l);
    l->pulses_seen = atomic_load_explicit(&l->pulses, memory_order_relaxed);
    schedule(l);
}

void vow__named_pulse_remove(vow_lease *l)
{
    struct vow__named_hub *h = l->hub;
    vow__heap_remove(&h->due, &l->due);
    l->in_heap = false;
    if (h->due == NULL && vow_call_stop(&h->look))
        h->look_ns = UINT64_MAX;
}

/* From the moment the pulse was sent, less what our clock may be slow by. */
static void trust(vow_lease *l, uint64_t sent_ns)
{
    uint64_t lease_ns = l->lease_ms * VOW__NS_PER_MS;
    uint64_t less = lease_ns / 100 * DRIFT_PERCENT + MARGIN_NS;
    l->sent_ns = sent_ns;
    atomic_store(&l->valid_ns,
                 sent_ns + (lease_ns > less ? lease_ns - less : 0));
}

/* A tenth earlier or later, so that processes do not pulse in step. */
static uint64_t every_ns(vow_lease *l)
{
    uint64_t ns = l->every_ms * VOW__NS_PER_MS;
    uint64_t tenth = ns / 10 + 1;
    return ns - tenth + vow_loop_random(l->hub->loop) % (2 * tenth);
}

/* Into the heap by what comes first. */
static void schedule(vow_lease *l)
{
    struct vow__named_hub *h = l->hub;
    uint64_t valid = atomic_load_explicit(&l->valid_ns, memory_order_relaxed);
    if (l->in_heap)
        vow__heap_remove(&h->due, &l->due);
    l->due.key = l->pulse_ns < valid ? l->pulse_ns : valid;
    l->due.seq = h->due_seq++;
    vow__heap_insert(&h->due, &l->due);
    l->in_heap = true;
    if (l->due.key < h->look_ns)
        arm(h);
}

static void arm(struct vow__named_hub *h)
{
    uint64_t now = vow__named_hub_now_ns(h);
    h->look_ns = h->due->key;
    uint64_t left = h->look_ns > now ? h->look_ns - now : 0;
    uint64_t due = vow_loop_now_ns(h->loop) + left;
    if ((h->store->ops->flags & VOW_STORE_LOCAL) != 0)
        vow_call_weakly_at(&h->look, h->loop, due, look, h);
    else
        vow_call_at(&h->look, h->loop, due, look, h);
}

static void look(void *hub)
{
    struct vow__named_hub *h = hub;
    h->look_ns = UINT64_MAX;
    uint64_t now = vow__named_hub_now_ns(h);
    while (h->due != NULL && h->due->key <= now && h->store != NULL) {
        vow_lease *l = VOW__OUTER(h->due, vow_lease, due);
        if (now >= atomic_load(&l->valid_ns)) {
            vow__named_pulse_remove(l);
            vow__named_lease_lose(
                l, "no pulse was heard for the time of the lease");
        } else if (may_pulse(l, now)) {
            send(h, l, now);
        } else {
            l->pulse_ns = now + every_ns(l);
            schedule(l);
        }
    }
    if (h->due != NULL && h->store != NULL)
        arm(h);
}

/* Is it time, is there no other on the way, has the worker shown a sign? Whose
 * end is on its way to the store is not told to live: if that has happened, and
 * the record is gone, a pulse would make it again for nobody. */
static bool may_pulse(const vow_lease *l, uint64_t now)
{
    unsigned pulses = atomic_load_explicit(&l->pulses, memory_order_relaxed);
    bool by_hand = (l->ask->opts->flags & VOW_SHARE_MANUAL_PULSE) != 0;
    return l->pulse_ns <= now && !l->pulsing &&
           l->entry->state == ENTRY_RUNNING &&
           (!by_hand || pulses != l->pulses_seen);
}

/* The first, and all that are due soon with the same times. */
static void send(struct vow__named_hub *h, vow_lease *first, uint64_t now)
{
    struct batch *b = vow__mem_new(&h->alloc, sizeof(*b));
    uint64_t lease_ms = first->lease_ms;
    uint64_t every_ms = first->every_ms;
    uint64_t soon = now + every_ms * VOW__NS_PER_MS / 5;
    uint64_t next = now + every_ns(first);
    if (b == NULL) { /* later, if there is time left */
        first->pulse_ns = now + every_ns(first) / 4;
        schedule(first);
        return;
    }
    b->hub = vow__named_hub_ref(h);
    b->n = 0;
    while (b->n < BATCH && h->due != NULL && h->due->key <= soon) {
        vow_lease *l = VOW__OUTER(h->due, vow_lease, due);
        if (l->lease_ms != lease_ms || l->every_ms != every_ms ||
            !may_pulse(l, soon) || now >= atomic_load(&l->valid_ns))
            break;
        l->pulses_seen = atomic_load_explicit(&l->pulses, memory_order_relaxed);
        l->pulsing = true;
        l->sending_ns = now;
        l->pulse_ns = next;
        schedule(l);
        vow__named_lease_hold(l);
        b->leases[b->n] = l;
        b->holds[b->n++] = (vow_hold){.name = l->entry->name,
                                      .token = l->token,
                                      .epoch = atomic_load(&l->epoch)};
    }
    vow__named_step_begins(h);
    h->store->ops->pulse(h->store, b->holds, b->n, lease_ms, on_pulsed, b);
}

static void on_pulsed(int code, const vow_record *r, size_t n, void *batch)
{
    struct batch *b = batch;
    struct vow__named_hub *h = b->hub;
    uint64_t now = vow__named_hub_now_ns(h);
    vow__named_step_ended(h, code);
    for (size_t i = 0; i < b->n; i++) {
        vow_lease *l = b->leases[i];
        l->pulsing = false;
        if (code == 0 && i < n && l->entry != NULL) {
            heard(l, &r[i]);
        } else if (l->in_heap) { /* sooner than usual */
            l->pulse_ns = now + every_ns(l) / 4;
            schedule(l);
        }
        vow__named_lease_release(l);
    }
    struct vow_alloc alloc = h->alloc;
    vow__mem_free(&alloc, b, sizeof(*b));
    vow__named_hub_unref(h);
}

static void heard(vow_lease *l, const vow_record *r)
{
    struct vow__named_entry *e = l->entry;
    if (r->status == VOW_STATUS_OWNED || r->status == VOW_STATUS_CANCELED) {
        atomic_store(&l->epoch, r->epoch);
        e->epoch = r->epoch;
        trust(l, l->sending_ns);
        if (l->in_heap)
            schedule(l);
        if (r->status == VOW_STATUS_CANCELED)
            vow__named_lease_stop(&e->name, l->hub);
        return;
    }
    vow__named_lease_lose(l, r->status == VOW_STATUS_SETTLED
                                 ? "another has settled it"
                                 : "another has taken it over");
}
