/* SPDX-License-Identifier: MIT */
/* map.c - a function over many items with a concurrency limit: from the call to
 * the result.
 *
 * WHY   Starting all items at the same time overloads the other side, item by
 *       item takes too long, and a list of promises needs the whole input in
 *       memory.
 * HOW   map_pump.c begins items and delivers outcomes, from the queue. This
 *       file starts the pump and ends the map: the input is used up, an item
 *       failed, or the map was canceled. The result is settled when all begun
 *       items have ended; or earlier, when the map fails at once or is
 *       canceled: then the state waits, without a result, for the running
 *       items, and the result ends with them.
 * INVARIANTS
 *   M1  running items <= items begun and not delivered <= window; after the
 *       limit is lowered, running items go on
 *   M2  an item is dropped after the item's future has ended
 *   M3  the source's state is dropped when no item and no wait is left
 * LIMITS  a block, some slots and a promise per map; no memory per item, except
 *       8 bytes and the outcome if results are kept.
 * THREADS  loop thread only.
 */
#include "vow/map.h"
#include "base/sm.h"
#include "coord/map/map_internal.h"

#include <string.h>

enum { WINDOW_FACTOR = 4 };

static const uint8_t map_moves[] = {
    [VOW__PULLING] = VOW__TO(VOW__DRAINING) | VOW__TO(VOW__STOPPING),
    [VOW__DRAINING] = VOW__TO(VOW__STOPPING) | VOW__TO(VOW__OVER),
    [VOW__STOPPING] = VOW__TO(VOW__OVER),
    [VOW__OVER] = 0,
};

static int map_check_args(const vow_source *source, vow_map_fn fn,
                          const vow_map_opts *opts);
static vow_mapping *map_new(const char *site, vow_loop *loop,
                            const vow_map_opts *opts);
static vow_future *map_refuse(const char *site, vow_loop *loop,
                              const vow_source *source, int code);
static void on_map_cancel(vow_error *why, void *user);
static void map_cancel_all(vow_mapping *m, vow_error *why);
static vow_next map_result(vow_mapping *m);

/* ---- create -------------------------------------------------------------- */

vow_future *vow_map_at(const char *site, vow_loop *loop, vow_source source,
                       vow_map_fn fn, void *user, const vow_map_opts *opts)
{
    VOW__ASSERT_THREAD(loop);
    int rc = map_check_args(&source, fn, opts);
    bool has_handle =
        opts != NULL && opts->size == sizeof(*opts) && opts->ret_map != NULL;
    if (has_handle)
        *opts->ret_map = NULL;
    if (rc == 0 && vow_loop_closing(loop))
        rc = VOW_ECLOSED;
    if (rc < 0)
        return map_refuse(site, loop, &source, rc);
    vow_mapping *m = map_new(site, loop, opts);
    if (m == NULL)
        return map_refuse(site, loop, &source, VOW_ENOMEM);
    m->source = source;
    m->fn = fn;
    m->user = user;
    vow_future *result = vow_promise_at(site, loop, &m->end);
    vow_future *over = vow_promise_at(site, loop, &m->over);
    if (vow_deferred_pending(m->over))
        vow_ends_with(m->end, over);
    else
        (void)vow_reject_code(m->end, VOW_ENOMEM, NULL);
    vow_future_unref(over);
    if (!vow_deferred_pending(m->end)) {
        vow__map_fail_code(m, VOW_ENOMEM, NULL, VOW__STOPPING);
        vow__map_conclude(m);
        return result;
    }
    vow_on_cancel_now(m->end, on_map_cancel, m);
    if (has_handle) {
        m->refs++;
        *opts->ret_map = m;
    }
    vow__map_wake(m);
    return result;
}

static int map_check_args(const vow_source *source, vow_map_fn fn,
                          const vow_map_opts *opts)
{
    if (source->pull == NULL || fn == NULL || opts == NULL ||
        opts->size != sizeof(*opts) || opts->concurrent == 0 ||
        opts->fail > VOW_FAIL_COLLECT ||
        (opts->window != 0 && opts->window < opts->concurrent))
        return VOW_EINVAL;
    return 0;
}

static vow_mapping *map_new(const char *site, vow_loop *loop,
                            const vow_map_opts *opts)
{
    vow_mapping *m = vow__mem_zero(vow_loop_alloc(loop), sizeof(*m));
    if (m == NULL)
        return NULL;
    m->loop = loop;
    m->site = site;
    m->alloc = *vow_loop_alloc(loop);
    m->refs = 1;
    m->budget = VOW__MAP_BUDGET;
    m->fail_mode = (uint8_t)opts->fail;
    m->keeps_results = opts->sink == NULL && !opts->discard;
    m->ordered = opts->sink != NULL && !opts->as_completed;
    m->sink = opts->sink;
    m->sink_user = opts->sink_user;
    m->context = vow_context_ref(vow_context_current(loop));
    m->concurrent = opts->concurrent;
    m->window = opts->window;
    if (m->window == 0)
        m->window = m->concurrent > UINT32_MAX / WINDOW_FACTOR
                        ? UINT32_MAX
                        : m->concurrent * WINDOW_FACTOR;
    m->source_wait.map = m;
    m->sink_wait.map = m;
    return m;
}

static vow_future *map_refuse(const char *site, vow_loop *loop,
                              const vow_source *source, int code)
{
    const char *text = NULL;
    if (code == VOW_EINVAL)
        text = "a map needs a source, a function, a limit above 0, and a "
               "window that is not below it";
    if (source->drop != NULL)
        source->drop(source->state);
    return vow_refused_at(site, loop, code, text);
}

/* ---- handle -------------------------------------------------------------- */

int vow_map_resize(vow_mapping *m, uint32_t concurrent)
{
    if (concurrent == 0)
        return VOW_EINVAL;
    if (m->state == VOW__OVER) /* the loop may be gone */
        return 0;
    VOW__ASSERT_THREAD(m->loop);
    m->concurrent = concurrent;
    if (m->window < concurrent)
        m->window = concurrent;
    vow__map_wake(m);
    return 0;
}

vow_map_stats vow_map_stats_get(const vow_mapping *m)
{
    return (vow_map_stats){.concurrent = m->concurrent,
                           .running = m->running,
                           .buffered = m->buffered,
                           .pulled = m->pulled,
                           .ended = m->ended,
                           .failed = m->failed};
}

vow_mapping *vow_mapping_unref(vow_mapping *m)
{
    if (m != NULL && --m->refs == 0) {
        struct vow_alloc alloc = m->alloc;
        vow__mem_free(&alloc, m, sizeof(*m));
    }
    return NULL;
}

/* ---- fail and cancel ----------------------------------------------------- */

/* Keeps the first error; a cancel error is replaced by a real error. */
void vow__map_fail(vow_mapping *m, vow_error *error, enum vow__map_state to)
{
    bool at_once = m->fail_mode == VOW_FAIL_NOW;
    if (m->error == NULL || (vow_error_code(m->error) == VOW_ECANCELED &&
                             vow_error_code(error) != VOW_ECANCELED)) {
        vow_error_unref(m->error);
        m->error = error;
    } else {
        vow_error_unref(error);
    }
    vow__map_move(m, at_once ? VOW__STOPPING : to);
    if (at_once) {
        if (vow_deferred_pending(m->end))
            (void)vow_reject(m->end, vow_error_ref(m->error));
        map_cancel_all(m, m->error);
    } else if (m->source_wait.future != NULL) { /* no further pull */
        (void)vow_cancel(m->source_wait.future, m->error);
    }
}

void vow__map_fail_code(vow_mapping *m, int code, const char *text,
                        enum vow__map_state to)
{
    if (text == NULL)
        text = vow_error_text(code);
    vow_error *e = vow_error_new_at(m->site, m->loop, code, NULL, "%s", text);
    vow__map_fail(m, e, to);
}

/* Runs inside vow_cancel(), so calls no user code: the pump does. */
static void on_map_cancel(vow_error *why, void *user)
{
    vow_mapping *m = user;
    if (m->error == NULL) /* keep an earlier error */
        m->error = vow_error_ref(why);
    vow__map_move(m, VOW__STOPPING);
    (void)vow_reject(m->end, vow_error_ref(m->error));
    map_cancel_all(m, why);
    vow__map_wake(m);
}

/* Runs at most once per map: the map is STOPPING from then on. */
static void map_cancel_all(vow_mapping *m, vow_error *why)
{
    m->why = vow_error_ref(why); /* slot_watch() cancels later futures */
    vow__map_slots_cancel(m);
}

void vow__map_move(vow_mapping *m, enum vow__map_state to)
{
    if (m->state < to)
        vow__sm_move(&m->state, (uint8_t)to, map_moves);
}

/* ---- end ----------------------------------------------------------------- */

void vow__map_conclude(vow_mapping *m)
{
    vow__map_move(m, VOW__OVER);
    vow_on_cancel(m->end, NULL, NULL); /* destructors may cancel the result */
    (void)vow_call_stop(&m->call);
    m->buffered = 0; /* the rest is never delivered */
    if (vow_deferred_pending(m->end))
        (void)vow_settle(m->end, map_result(m));
    vow_deferred_unref(m->end);
    vow__map_slots_free(m);
    if (m->source.drop != NULL)
        m->source.drop(m->source.state); /* keeps M3 */
    vow_error_unref(m->error);
    vow_error_unref(m->why);
    vow_context_unref(m->context);
    if (vow_deferred_pending(m->over))
        (void)vow_resolve(m->over, vow_nothing());
    vow_deferred_unref(m->over);
    vow_mapping_unref(m);
}

static vow_next map_result(vow_mapping *m)
{
    if (m->error != NULL)
        return vow_fail(vow_error_ref(m->error));
    if (!m->keeps_results)
        return vow_ok(vow_int((int64_t)m->ended));
    vow_value list;
    size_t n = (size_t)m->ended;
    int rc = vow_list_new(m->loop, m->results, n, &list);
    if (n > 0)
        memset(m->results, 0, n * sizeof(m->results[0])); /* moved */
    return rc < 0 ? vow_fail_code(rc, NULL) : vow_ok(list);
}
