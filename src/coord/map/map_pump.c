/* SPDX-License-Identifier: MIT */
/* map_pump.c - the pump of a map: deliver ended items, begin new items.
 *
 * WHY   A single function decides after every event: an item ended, the source
 *       has more, the sink takes more, the limit changed.
 * HOW   The pump runs from the queue: when the map starts, and whenever a
 *       future that the map waits for has ended. If the future of an item has
 *       already ended when the function returns, the outcome is consumed in
 *       the same loop; a pending future is watched from the slot, which needs
 *       no memory. After VOW__MAP_BUDGET steps the loop polls before the pump
 *       goes on, so an input that never waits starves no other work.
 *
 *       Slots in `deliveries` are delivered from the front. In input order a
 *       slot joins at the begin of the item, else at the end; without a sink no
 *       slot joins.
 * INVARIANTS
 *   P1  only the pump calls the functions of the user, from the queue
 *   P2  these functions may cancel and resize: changed state is read again
 *   P3  nothing is pulled after the map was canceled, even while the cancel
 *       hook is still in the queue
 * THREADS  loop thread only.
 */
#include "coord/map/map_internal.h"

static void on_slot_settled(vow_future *f, void *user);
static void on_slot_ended(vow_future *f, void *user);
static void slot_note_failure(struct vow__map_slot *s, vow_error *e);
static void map_run_pump(void *user);
static void map_pump_after_poll(void *user);
static bool map_may_deliver(const vow_mapping *m);
static bool map_may_begin(const vow_mapping *m);
static bool map_is_over(const vow_mapping *m);
static void map_begin_next(vow_mapping *m);
static void map_begin_item(vow_mapping *m, vow_value item);
static void slot_end_item(struct vow__map_slot *s);
static void map_handle_no_item(vow_mapping *m, int rc, vow_future *wait);
static void map_wait_source(vow_mapping *m, vow_future *wait);
static void map_source_ready(vow_mapping *m);
static void map_deliver_next(vow_mapping *m);
static void map_sink_ready(vow_mapping *m);
static void slot_watch(struct vow__map_slot *s);
static void map_slot_release(struct vow__map_slot *s);
static vow_context *map_context_enter(vow_mapping *m);
static void map_context_leave(vow_mapping *m, vow_context *before);

/* ---- calls from the loop ------------------------------------------------- */

void vow__map_wake(vow_mapping *m)
{
    vow_call_soon(&m->call, m->loop, map_run_pump, m);
}

static void on_slot_settled(vow_future *f, void *user)
{
    struct vow__map_slot *s = user;
    if (vow_ended(f)) {
        on_slot_ended(f, user);
        return;
    }
    vow_watch_start(&s->watch, f, on_slot_ended, s);
    if (vow_state_of(f) == VOW_REJECTED) { /* report before the end */
        slot_note_failure(s, vow_error_of(f));
        map_run_pump(s->map);
    }
}

static void on_slot_ended(vow_future *f, void *user)
{
    struct vow__map_slot *s = user;
    vow_mapping *m = s->map;
    (void)f;
    if (s == &m->source_wait)
        map_source_ready(m);
    else if (s == &m->sink_wait)
        map_sink_ready(m);
    else
        slot_end_item(s);
    map_run_pump(m);
}

/* ---- pump ---------------------------------------------------------------- */

static void map_run_pump(void *user)
{
    vow_mapping *m = user;
    bool open = !vow_loop_closing(m->loop);
    for (; open && m->budget > 0; m->budget--) {
        if (map_may_deliver(m))
            map_deliver_next(m);
        else if (!map_may_begin(m))
            break;
        else if (VOW__LIKELY(!vow_deferred_canceled(m->end)))
            map_begin_next(m);
        else
            open = false; /* keeps P3 */
    }
    if (m->reported != m->ended) {
        m->reported = m->ended;
        (void)vow_notify(m->end, vow_int((int64_t)m->ended));
    }
    if (map_is_over(m))
        vow__map_conclude(m);
    else if (open && m->budget == 0 && !vow_call_pending(&m->call) &&
             (map_may_deliver(m) || map_may_begin(m)))
        vow_call_at(&m->call, m->loop, vow_loop_now_ns(m->loop),
                    map_pump_after_poll, m);
}

/* Continues after the loop has polled. */
static void map_pump_after_poll(void *user)
{
    vow_mapping *m = user;
    m->budget = VOW__MAP_BUDGET;
    map_run_pump(m);
}

static bool map_may_deliver(const vow_mapping *m)
{
    return m->deliveries != NULL && m->state < VOW__STOPPING &&
           m->sink_wait.future == NULL &&
           vow__map_slot_of(m->deliveries)->ended;
}

static bool map_may_begin(const vow_mapping *m)
{
    return m->state == VOW__PULLING && m->running < m->concurrent &&
           m->in_use < m->window && m->source_wait.future == NULL;
}

static bool map_is_over(const vow_mapping *m)
{
    if (m->running > 0 || m->source_wait.future != NULL ||
        m->sink_wait.future != NULL)
        return false;
    return m->state == VOW__STOPPING ||
           (m->state == VOW__DRAINING && m->deliveries == NULL);
}

/* ---- items --------------------------------------------------------------- */

static void map_begin_next(vow_mapping *m)
{
    vow_value item = vow_nothing();
    vow_future *wait = NULL;
    if (!vow__map_grow(m)) {
        vow__map_fail_code(m, VOW_ENOMEM, NULL, VOW__STOPPING);
        return;
    }
    vow_context *before = map_context_enter(m);
    int rc = m->source.pull(m->source.state, &item, &wait);
    map_context_leave(m, before);
    if (VOW__UNLIKELY(rc != 1)) {
        map_handle_no_item(m, rc, wait);
        vow_value_drop(item);
        return;
    }
    if (VOW__UNLIKELY(wait != NULL))
        vow_future_unref(wait);
    if (VOW__UNLIKELY(m->state != VOW__PULLING)) /* canceled by the pull */
        vow_value_drop(item);
    else
        map_begin_item(m, item);
}

static void map_begin_item(vow_mapping *m, vow_value item)
{
    struct vow__map_slot *s = vow__map_slot_of(m->free);
    m->free = s->link.next;
    m->in_use++;
    m->running++;
    s->item = item;
    s->index = m->pulled++;
    if (m->ordered)
        vow__list_push(&m->deliveries, &s->link);
    vow_context *before = map_context_enter(m);
    vow_future *f = m->fn(m->loop, item, s->index, m->user);
    map_context_leave(m, before);
    if (VOW__UNLIKELY(f == NULL || vow_future_loop(f) != m->loop)) {
        vow_future_unref(f);
        f = vow_refused_at(
            m->site, m->loop, VOW_EINVAL,
            "the function of the map returned no future of this loop");
    }
    s->future = f;
    s->failure_noted = false;
    if (VOW__UNLIKELY(!vow_ended(f)))
        slot_watch(s);
    else
        slot_end_item(s);
}

/* Runs the destructors last: a destructor may call anything. */
static void slot_end_item(struct vow__map_slot *s)
{
    vow_mapping *m = s->map;
    vow_future *f = s->future;
    vow_value item = s->item;
    s->item = vow_nothing();
    m->running--;
    m->ended++;
    if (VOW__UNLIKELY(vow_state_of(f) == VOW_REJECTED))
        slot_note_failure(s, vow_error_of(f));
    if (m->sink != NULL && m->state < VOW__STOPPING) {
        s->ended = true;
        m->buffered++;
        if (!m->ordered)
            vow__list_push(&m->deliveries, &s->link);
    } else {
        if (m->keeps_results)
            m->results[s->index] = vow_future_ref(f);
        map_slot_release(s);
        vow_future_unref(f);
    }
    if (item.tag > VOW_PTR)
        vow_value_drop(item); /* keeps M2 */
}

/* Handles the rejection of a slot's future, once per future. */
static void slot_note_failure(struct vow__map_slot *s, vow_error *e)
{
    vow_mapping *m = s->map;
    bool item = s != &m->source_wait && s != &m->sink_wait;
    if (s->failure_noted)
        return;
    s->failure_noted = true;
    m->failed += item;
    if (item && m->fail_mode != VOW_FAIL_COLLECT && m->state < VOW__STOPPING)
        vow__map_fail(m, vow_error_ref(e), VOW__DRAINING);
    else if (s == &m->source_wait && m->state == VOW__PULLING)
        vow__map_fail(m, vow_error_ref(e), VOW__DRAINING);
    else if (s == &m->sink_wait && m->state < VOW__STOPPING)
        vow__map_fail(m, vow_error_ref(e), VOW__STOPPING);
}

/* ---- source -------------------------------------------------------------- */

/* Handles a pull without an item. A future that does not fit the code is
 * dropped. */
static void map_handle_no_item(vow_mapping *m, int rc, vow_future *wait)
{
    bool waits =
        rc == VOW_EAGAIN && wait != NULL && vow_future_loop(wait) == m->loop;
    if (m->state != VOW__PULLING) /* canceled by the pull */
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
        map_wait_source(m, wait);
    else
        vow_future_unref(wait);
}

static void map_wait_source(vow_mapping *m, vow_future *wait)
{
    m->source_wait.future = wait;
    m->source_wait.failure_noted = false;
    if (!vow_ended(wait))
        slot_watch(&m->source_wait);
    else
        map_source_ready(m);
}

static void map_source_ready(vow_mapping *m)
{
    vow_future *f = m->source_wait.future;
    vow_error *e = vow_error_of(f);
    m->source_wait.future = NULL;
    if (e != NULL)
        slot_note_failure(&m->source_wait, e);
    vow_future_unref(f);
}

/* ---- sink ---------------------------------------------------------------- */

static void map_deliver_next(vow_mapping *m)
{
    struct vow__map_slot *s = vow__map_slot_of(vow__list_take(&m->deliveries));
    vow_future *outcome = s->future;
    size_t index = s->index;
    m->buffered--;
    map_slot_release(s);
    vow_context *before = map_context_enter(m);
    vow_future *f = m->sink(index, outcome, m->sink_user);
    map_context_leave(m, before);
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
    m->sink_wait.future = f;
    m->sink_wait.failure_noted = false;
    if (!vow_ended(f))
        slot_watch(&m->sink_wait);
    else
        map_sink_ready(m);
}

static void map_sink_ready(vow_mapping *m)
{
    vow_future *f = m->sink_wait.future;
    vow_error *e = vow_error_of(f);
    m->sink_wait.future = NULL;
    if (e != NULL)
        slot_note_failure(&m->sink_wait, e);
    vow_future_unref(f);
}

/* ---- slots --------------------------------------------------------------- */

/* Watches the slot's future: first for the outcome, then for the end. */
static void slot_watch(struct vow__map_slot *s)
{
    vow_watch_settled(&s->watch, s->future, on_slot_settled, s);
    if (VOW__UNLIKELY(s->map->why != NULL)) /* canceled by user code */
        (void)vow_cancel(s->future, s->map->why);
}

/* Puts the slot into `free`; the caller owns the future. In STOPPING the slot
 * may still be in `deliveries`, which is no longer used. */
static void map_slot_release(struct vow__map_slot *s)
{
    vow_mapping *m = s->map;
    s->future = NULL;
    s->ended = false;
    m->in_use--;
    s->link.next = m->free;
    m->free = &s->link;
}

/* ---- contexts ------------------------------------------------------------ */

/* Enters the caller's context for user code. Internal links are made outside of
 * the context, where links are smaller. */
static vow_context *map_context_enter(vow_mapping *m)
{
    return m->context == NULL ? NULL : vow_context_enter(m->loop, m->context);
}

static void map_context_leave(vow_mapping *m, vow_context *before)
{
    if (VOW__UNLIKELY(m->context != NULL))
        vow_context_leave(m->loop, before);
}
