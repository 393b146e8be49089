/* SPDX-License-Identifier: MIT */
/* gate_wait.c - futures of the whole gate: idle, and room in the queue.
 *
 * THREADS  loop thread only.
 */
#include "coord/gate/gate_internal.h"

struct wait {
    vow_link link;
    vow_gate *gate; /* counted */
    vow_deferred *out;
    bool room; /* wait for room; false: for idle */
    size_t bytes;
};

static const char no_room_text[] = "there will never be room for so many bytes";

static vow_future *gate_wait_new(const char *site, vow_gate *g, bool room,
                                 size_t bytes);
static bool gate_wait_is_met(const vow_gate *g, bool room, size_t bytes);
static vow_deferred *gate_wait_end(struct wait *w);
static void on_gate_wait_cancel(vow_error *why, void *wait);

vow_future *vow_gate_idle_at(const char *site, vow_gate *g)
{
    VOW__ASSERT_THREAD(g->loop);
    return gate_wait_new(site, g, false, 0);
}

vow_future *vow_gate_room_at(const char *site, vow_gate *g, size_t bytes)
{
    VOW__ASSERT_THREAD(g->loop);
    if (g->opts.queue_bytes > 0 && bytes > g->opts.queue_bytes)
        return vow_refused_at(site, g->loop, VOW_EINVAL, no_room_text);
    return gate_wait_new(site, g, true, bytes);
}

static vow_future *gate_wait_new(const char *site, vow_gate *g, bool room,
                                 size_t bytes)
{
    if (gate_wait_is_met(g, room, bytes))
        return vow_resolved_at(site, g->loop, vow_nothing());
    struct wait *w = vow__mem_zero(&g->alloc, sizeof(*w));
    if (w == NULL)
        return vow_refused_at(site, g->loop, VOW_ENOMEM, NULL);
    vow_future *future = vow_promise_at(site, g->loop, &w->out);
    if (!vow_deferred_pending(w->out)) { /* no memory for the promise */
        vow_deferred_unref(w->out);
        vow__mem_free(&g->alloc, w, sizeof(*w));
        return future;
    }
    w->gate = vow_gate_ref(g);
    w->room = room;
    w->bytes = bytes;
    vow_on_cancel_now(w->out, on_gate_wait_cancel, w);
    vow__list_push(room ? &g->room_waits : &g->idle_waits, &w->link);
    vow__gate_slow(g, SLOW_WAITS, true);
    return future;
}

static bool gate_wait_is_met(const vow_gate *g, bool room, size_t bytes)
{
    return room ? vow__gate_has_room(g, bytes)
                : g->waiting == 0 && g->active == 0;
}

bool vow__gate_has_room(const vow_gate *g, size_t bytes)
{
    const vow_gate_opts *o = &g->opts;
    if (o->queue_max == VOW_NO_QUEUE)
        return g->waiting == 0 && vow__coord_quota_fits(&g->quota, 1);
    return g->queued < o->queue_max &&
           (o->queue_bytes == 0 || (bytes <= o->queue_bytes &&
                                    g->queued_bytes <= o->queue_bytes - bytes));
}

void vow__gate_tell_waits(vow_gate *g)
{
    vow_link *next = g->room_waits;
    while (g->idle_waits != NULL && gate_wait_is_met(g, false, 0))
        (void)vow_resolve_drop(
            gate_wait_end(VOW__OUTER(g->idle_waits, struct wait, link)),
            vow_nothing());
    while (next != NULL && gate_wait_is_met(g, true, 0)) {
        struct wait *w = VOW__OUTER(next, struct wait, link);
        next = next->next;
        if (gate_wait_is_met(g, true, w->bytes))
            (void)vow_resolve_drop(gate_wait_end(w), vow_nothing());
    }
}

void vow__gate_refuse_waits(vow_gate *g)
{
    vow_link *next = g->room_waits;
    while (g->opts.queue_bytes > 0 && next != NULL) {
        struct wait *w = VOW__OUTER(next, struct wait, link);
        next = next->next;
        if (w->bytes <= g->opts.queue_bytes)
            continue;
        vow_deferred *out = gate_wait_end(w);
        (void)vow_reject_code(out, VOW_EINVAL, no_room_text);
        vow_deferred_unref(out);
    }
}

/* Removes and frees the wait. Returns the deferred, owned, for the caller to
 * settle. */
static vow_deferred *gate_wait_end(struct wait *w)
{
    vow_gate *g = w->gate;
    vow_deferred *out = w->out;
    vow__list_remove(w->room ? &g->room_waits : &g->idle_waits, &w->link);
    vow__gate_slow(g, SLOW_WAITS,
                   g->idle_waits != NULL || g->room_waits != NULL);
    vow__mem_free(&g->alloc, w, sizeof(*w));
    vow_gate_unref(g);
    return out;
}

static void on_gate_wait_cancel(vow_error *why, void *wait)
{
    (void)vow_reject_drop(gate_wait_end(wait), vow_error_ref(why));
}
