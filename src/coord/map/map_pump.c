/* SPDX-License-Identifier: MIT */
/* map_pump.c - what a map does: deliver what has ended, begin what may begin.
 *
 * WHY   One place that decides, whatever happened: an item ended, the source
 *       has more, the sink takes more, the limit changed.
 * HOW   The pump runs from the queue: when the map starts, and whenever
 *       something it waits for has ended. An outcome that is there when the
 *       function returns is consumed on the spot, in a loop; a pending one is
 *       watched from its slot, which needs no memory. After so many steps the
 *       loop polls before the pump goes on: an input that never waits starves
 *       nobody.
 *
 *       Slots in line are delivered from the front. In input order they line up
 *       when they begin, else when they end; without a sink nothing lines up.
 * INVARIANTS
 *   P1  the functions of the user are called by the pump alone, from the queue
 *   P2  they may cancel and resize: what they can change is read again
 *   P3  nothing is pulled once the map was canceled, also while its hook is
 *       still in the queue
 * THREADS  loop thread only.
 */
#include "coord/map/map_internal.h"

static void on_settled(vow_future *f, void *user);
static void on_ended(vow_future *f, void *user);
static void note_failure(struct vow__map_slot *s, vow_error *e);
static void pump(void *user);
static void pump_on(void *user);
static bool may_deliver(const vow_mapping *m);
static bool may_begin(const vow_mapping *m);
static bool is_over(const vow_mapping *m);
static void begin(vow_mapping *m);
static void begin_item(vow_mapping *m, vow_value item);
static void item_ended(struct vow__map_slot *s);
static void no_item(vow_mapping *m, int rc, vow_future *wait);
static void wait_for(vow_mapping *m, vow_future *wait);
static void wait_ended(vow_mapping *m);
static void deliver(vow_mapping *m);
static void flow_ended(vow_mapping *m);
static void watch(struct vow__map_slot *s);
static void slot_release(struct vow__map_slot *s);
static vow_context *enter(vow_mapping *m);
static void leave(vow_mapping *m, vow_context *before);

/* ---- what the loop calls ------------------------------------------------- */

void vow__map_wake(vow_mapping *m)
{
    vow_call_soon(&m->call, m->loop, pump, m);
}

static void on_settled(vow_future *f, void *user)
{
    struct vow__map_slot *s = user;
    if (vow_ended(f)) {
        on_ended(f, user);
        return;
    }
    vow_watch_start(&s->watch, f, on_ended, s);
    if (vow_state_of(f) == VOW_REJECTED) { /* that is told at once */
        note_failure(s, vow_error_of(f));
        pump(s->map);
    }
}

static void on_ended(vow_future *f, void *user)
{
    struct vow__map_slot *s = user;
    vow_mapping *m = s->map;
    (void)f;
    if (s == &m->wait)
        wait_ended(m);
    else if (s == &m->flow)
        flow_ended(m);
    else
        item_ended(s);
    pump(m);
}

/* ---- the pump ------------------------------------------------------------ */

static void pump(void *user)
{
    vow_mapping *m = user;
    bool open = !vow_loop_closing(m->loop);
    for (; open && m->budget > 0; m->budget--) {
        if (may_deliver(m))
            deliver(m);
        else if (!may_begin(m))
            break;
        else if (VOW__LIKELY(!vow_deferred_canceled(m->end)))
            begin(m);
        else
            open = false; /* keeps P3 */
    }
    if (m->told != m->ended) {
        m->told = m->ended;
        (void)vow_notify(m->end, vow_int((int64_t)m->ended));
    }
    if (is_over(m))
        vow__map_conclude(m);
    else if (open && m->budget == 0 && !vow_call_pending(&m->call) &&
             (may_deliver(m) || may_begin(m)))
        vow_call_at(&m->call, m->loop, vow_loop_now_ns(m->loop), pump_on, m);
}

/* The loop has polled. */
static void pump_on(void *user)
{
    vow_mapping *m = user;
    m->budget = VOW__MAP_BUDGET;
    pump(m);
}

static bool may_deliver(const vow_mapping *m)
{
    return m->line != NULL && m->state < VOW__STOPPING &&
           m->flow.future == NULL && vow__map_slot_of(m->line)->ended;
}

static bool may_begin(const vow_mapping *m)
{
    return m->state == VOW__PULLING && m->running < m->concurrent &&
           m->in_use < m->window && m->wait.future == NULL;
}

static bool is_over(const vow_mapping *m)
{
    if (m->running > 0 || m->wait.future != NULL || m->flow.future != NULL)
        return false;
    return m->state == VOW__STOPPING ||
           (m->state == VOW__DRAINING && m->line == NULL);
}

/* ---- items --------------------------------------------------------------- */

static void begin(vow_mapping *m)
{
    vow_value item = vow_nothing();
    vow_future *wait = NULL;
    if (!vow__map_grow(m)) {
        vow__map_fail_code(m, VOW_ENOMEM, NULL, VOW__STOPPING);
        return;
    }
    vow_context *before = enter(m);
    int rc = m->source.pull(m->source.state, &item, &wait);
    leave(m, before);
    if (VOW__UNLIKELY(rc != 1)) {
        no_item(m, rc, wait);
        vow_value_drop(item);
        return;
    }
    if (VOW__UNLIKELY(wait != NULL))
        vow_future_unref(wait);
    if (VOW__UNLIKELY(m->state != VOW__PULLING)) /* the pull canceled it */
        vow_value_drop(item);
    else
        begin_item(m, item);
}

static void begin_item(vow_mapping *m, vow_value item)
{
    struct vow__map_slot *s = vow__map_slot_of(m->free);
    m->free = s->link.next;
    m->in_use++;
    m->running++;
    s->item = item;
    s->index = m->pulled++;
    if (m->ordered)
        vow__list_push(&m->line, &s->link);
    vow_context *before = enter(m);
    vow_future *f = m->fn(m->loop, item, s->index, m->user);
    leave(m, before);
    if (VOW__UNLIKELY(f == NULL || vow_future_loop(f) != m->loop)) {
        vow_future_unref(f);
        f = vow_refused_at(m->site, m->loop, VOW_EINVAL,
                           "no future of this loop came for an item");
    }
    s->future = f;
    s->noted = false;
    if (VOW__UNLIKELY(!vow_ended(f)))
        watch(s);
    else
        item_ended(s);
}

/* The destructors come last: they may call anything. */
static void item_ended(struct vow__map_slot *s)
{
    vow_mapping *m = s->map;
    vow_future *f = s->future;
    vow_value item = s->item;
    s->item = vow_nothing();
    m->running--;
    m->ended++;
    if (VOW__UNLIKELY(vow_state_of(f) == VOW_REJECTED))
        note_failure(s, vow_error_of(f));
    if (m->sink != NULL && m->state < VOW__STOPPING) {
        s->ended = true;
        m->buffered++;
        if (!m->ordered)
            vow__list_push(&m->line, &s->link);
    } else {
        if (m->keeps)
            m->results[s->index] = vow_future_ref(f);
        slot_release(s);
        vow_future_unref(f);
    }
    if (item.tag > VOW_PTR)
        vow_value_drop(item); /* keeps M2 */
}

/* What a slot waited for was rejected. */
static void note_failure(struct vow__map_slot *s, vow_error *e)
{
    vow_mapping *m = s->map;
    bool item = s != &m->wait && s != &m->flow;
    if (s->noted)
        return;
    s->noted = true;
    m->failed += item;
    if (item && m->fail_mode != VOW_FAIL_COLLECT && m->state < VOW__STOPPING)
        vow__map_fail(m, vow_error_ref(e), VOW__DRAINING);
    else if (s == &m->wait && m->state == VOW__PULLING)
        vow__map_fail(m, vow_error_ref(e), VOW__DRAINING);
    else if (s == &m->flow && m->state < VOW__STOPPING)
        vow__map_fail(m, vow_error_ref(e), VOW__STOPPING);
}

/* ---- the source ---------------------------------------------------------- */

/* What does not fit the code is dropped. */
static void no_item(vow_mapping *m, int rc, vow_future *wait)
{
    bool waits =
        rc == VOW_EAGAIN && wait != NULL && vow_future_loop(wait) == m->loop;
    if (m->state != VOW__PULLING) /* the pull canceled it */
        rc = 0;
    if (rc == 0)
        vow__map_move(m, VOW__DRAINING);
    else if (rc > 0 || (rc == VOW_EAGAIN && !waits))
        vow__map_fail_code(m, VOW_EINVAL,
                           "the source gave neither an item nor "
                           "a future of this loop to wait for",
                           VOW__DRAINING);
    else if (rc != VOW_EAGAIN)
        vow__map_fail_code(m, rc, NULL, VOW__DRAINING);
    if (waits)
        wait_for(m, wait);
    else
        vow_future_unref(wait);
}

static void wait_for(vow_mapping *m, vow_future *wait)
{
    m->wait.future = wait;
    m->wait.noted = false;
    if (!vow_ended(wait))
        watch(&m->wait);
    else
        wait_ended(m);
}

static void wait_ended(vow_mapping *m)
{
    vow_future *f = m->wait.future;
    vow_error *e = vow_error_of(f);
    m->wait.future = NULL;
    if (e != NULL)
        note_failure(&m->wait, e);
    vow_future_unref(f);
}

/* ---- the sink ------------------------------------------------------------ */

static void deliver(vow_mapping *m)
{
    struct vow__map_slot *s = vow__map_slot_of(vow__list_take(&m->line));
    vow_future *outcome = s->future;
    size_t index = s->index;
    m->buffered--;
    slot_release(s);
    vow_context *before = enter(m);
    vow_future *f = m->sink(index, outcome, m->sink_user);
    leave(m, before);
    vow_future_unref(outcome);
    if (f == NULL)
        return;
    if (VOW__UNLIKELY(vow_future_loop(f) != m->loop)) {
        vow_future_unref(f);
        if (m->state < VOW__STOPPING)
            vow__map_fail_code(m, VOW_EINVAL,
                               "the sink gave a future of another loop",
                               VOW__STOPPING);
        return;
    }
    m->flow.future = f;
    m->flow.noted = false;
    if (!vow_ended(f))
        watch(&m->flow);
    else
        flow_ended(m);
}

static void flow_ended(vow_mapping *m)
{
    vow_future *f = m->flow.future;
    vow_error *e = vow_error_of(f);
    m->flow.future = NULL;
    if (e != NULL)
        note_failure(&m->flow, e);
    vow_future_unref(f);
}

/* ---- slots --------------------------------------------------------------- */

/* Learn of the outcome of a slot's future, and of its end. */
static void watch(struct vow__map_slot *s)
{
    vow_watch_settled(&s->watch, s->future, on_settled, s);
    if (VOW__UNLIKELY(s->map->why != NULL)) /* canceled by what made it */
        (void)vow_cancel(s->future, s->map->why);
}

/* Its future is the caller's now. While stopping it may still be in line; by
 * then nobody looks at lists. */
static void slot_release(struct vow__map_slot *s)
{
    vow_mapping *m = s->map;
    s->future = NULL;
    s->ended = false;
    m->in_use--;
    s->link.next = m->free;
    m->free = &s->link;
}

/* ---- contexts ------------------------------------------------------------ */

/* The user's code runs in the context of the caller. Our own links are made
 * outside, where they are smaller. */
static vow_context *enter(vow_mapping *m)
{
    return m->context == NULL ? NULL : vow_context_enter(m->loop, m->context);
}

static void leave(vow_mapping *m, vow_context *before)
{
    if (VOW__UNLIKELY(m->context != NULL))
        vow_context_leave(m->loop, before);
}
