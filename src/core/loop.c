/* SPDX-License-Identifier: MIT */
/* loop.c - making a loop on libuv, and closing a loop.
 *
 * WHY   A loop must never keep a process alive without a reason, and closing
 *       must leave no waiter unsettled and no memory behind.
 * HOW   Six handles. `prepare` and `check` run the ready queue before and
 *       after libuv polls; both never keep the loop alive. `idle` runs while
 *       nodes are ready, so that polling does not wait. `timer` serves the
 *       heap of timer.c, `work_timer` the thread pool, `wake` the inbox.
 *       Closing settles all pending promises, runs their handlers, and ends in
 *       the close callbacks of the handles. The memory is freed with the last
 *       future, scope or remote that the user holds.
 * INVARIANTS
 *   O1  if a node is ready, idle is active, a turn runs or the loop is closing
 *   O2  wake keeps the loop alive if and only if keep > 0
 * THREADS  loop thread only.
 */
#include "core/promise_internal.h"
#include "vow/uv.h"

enum {
    TURN_MAX = 10000,
    INBOX_MAX = 1 << 20,
    WORK_QUEUE_MAX = 1 << 20,
    FIBER_GUARDS = 8192,
    TRIM_MS = 1000,
    FORGET_MAX = 1000,
    CLOSE_TURNS = 1000000 /* handlers attached during close that still run */
};

static int loop_make(uv_loop_t *uv, const vow_loop_opts *opts, bool owns_uv,
                     vow_loop **ret_loop);
static void loop_apply_opts(vow_loop *loop, const vow_loop_opts *o);
static int handles_open(vow_loop *loop);
static void on_prepare(uv_prepare_t *handle);
static void on_check(uv_check_t *handle);
static void on_loop_idle(uv_idle_t *handle);
static void on_loop_wake(uv_async_t *handle);
static void settle_everything(vow_loop *loop);
static void handles_close(vow_loop *loop);
static void on_handle_closed(uv_handle_t *handle);
static void close_handle(uv_handle_t *handle, void *arg);
static void on_trim_timer(vow_loop *loop, struct vow__core_timer *t);

const char *vow_version(void)
{
    return VOW_VERSION;
}

/* ---- making -------------------------------------------------------------- */

int vow_loop_new(const vow_loop_opts *opts, vow_loop **ret_loop)
{
    struct vow_alloc alloc = {0};
    if (opts != NULL && opts->size == sizeof(*opts))
        alloc = opts->alloc;
    uv_loop_t *uv = vow__mem_zero(&alloc, sizeof(*uv));
    if (uv == NULL)
        return VOW_ENOMEM;
    int rc = uv_loop_init(uv);
    if (rc < 0)
        goto fail;
    rc = loop_make(uv, opts, true, ret_loop);
    if (rc < 0)
        goto fail_uv;
    return 0;

fail_uv:
    (void)uv_run(uv, UV_RUN_DEFAULT);
    (void)uv_loop_close(uv);
fail:
    vow__mem_free(&alloc, uv, sizeof(*uv));
    return rc;
}

int vow_loop_new_uv(uv_loop_t *uv, const vow_loop_opts *opts,
                    vow_loop **ret_loop)
{
    return uv == NULL ? VOW_EINVAL : loop_make(uv, opts, false, ret_loop);
}

static int loop_make(uv_loop_t *uv, const vow_loop_opts *opts, bool owns_uv,
                     vow_loop **ret_loop)
{
    static const vow_loop_opts defaults = {.size = sizeof(defaults)};
    const vow_loop_opts *o = opts == NULL ? &defaults : opts;
    const uint32_t known = VOW_LOOP_VIRTUAL_TIME | VOW_LOOP_UNPOOLED;
    if (o->size != sizeof(*o) || (o->flags & ~known) != 0)
        return VOW_EINVAL;
    vow_loop *loop = vow__mem_zero(&o->alloc, sizeof(*loop));
    if (loop == NULL)
        return VOW_ENOMEM;
    loop->uv = uv;
    loop_apply_opts(loop, o);
    int rc =
        vow__core_inbox_new(loop, o->inbox_max == 0 ? INBOX_MAX : o->inbox_max);
    if (rc < 0) {
        vow__mem_free(&o->alloc, loop, sizeof(*loop));
        return rc;
    }
    rc = vow__core_promises_open(loop, (o->flags & VOW_LOOP_UNPOOLED) == 0);
    if (rc < 0)
        goto fail_inbox;
    rc = handles_open(loop);
    if (rc < 0)
        goto fail_promises;
    loop->owns_uv = owns_uv;
    *ret_loop = loop;
    return 0;

fail_promises:
    vow__core_future_unref(loop->no_memory);
    vow__slab_fini(&loop->futures);
fail_inbox:
    vow__core_inbox_unref(loop->inbox); /* frees the loop too */
    return rc;
}

static void loop_apply_opts(vow_loop *loop, const vow_loop_opts *o)
{
    loop->alloc = o->alloc;
    loop->clock.is_virtual = (o->flags & VOW_LOOP_VIRTUAL_TIME) != 0;
    loop->on_unhandled = o->on_unhandled;
    loop->on_unhandled_user = o->on_unhandled_user;
    loop->turn_max = o->turn_max == 0 ? TURN_MAX : o->turn_max;
    loop->fiber_guards = o->fiber_guards == 0 ? FIBER_GUARDS : o->fiber_guards;
    loop->work_threads = o->work_threads;
    loop->work_queue_max =
        o->work_queue_max == 0 ? WORK_QUEUE_MAX : o->work_queue_max;
    loop->random[0] = o->seed == 0 ? vow__clock_entropy() : o->seed;
    loop->random[1] = UINT64_C(0x9e3779b97f4a7c15);
    loop->trim.fire = on_trim_timer;
    loop->trim.weak = true;
    vow_loop_adopt(loop);
}

/* Opens the handles. Only uv_async_init() can fail, and comes first. */
static int handles_open(vow_loop *loop)
{
    int rc = uv_async_init(loop->uv, &loop->wake, on_loop_wake);
    if (rc < 0)
        return rc;
    (void)uv_prepare_init(loop->uv, &loop->prepare);
    (void)uv_check_init(loop->uv, &loop->check);
    (void)uv_idle_init(loop->uv, &loop->idle);
    (void)uv_timer_init(loop->uv, &loop->timer);
    (void)uv_timer_init(loop->uv, &loop->work_timer);
    loop->wake.data = loop;
    loop->prepare.data = loop;
    loop->check.data = loop;
    loop->idle.data = loop;
    loop->timer.data = loop;
    loop->work_timer.data = loop;
    (void)uv_prepare_start(&loop->prepare, on_prepare);
    (void)uv_check_start(&loop->check, on_check);
    uv_unref((uv_handle_t *)&loop->wake);
    uv_unref((uv_handle_t *)&loop->prepare);
    uv_unref((uv_handle_t *)&loop->check);
    return 0;
}

/* ---- libuv's turn -------------------------------------------------------- */

static void on_prepare(uv_prepare_t *handle)
{
    vow_loop *loop = handle->data;
    if (!vow__core_loop_drain(loop) && loop->armed) {
        loop->armed = false; /* keeps O1: nothing is ready */
        (void)uv_idle_stop(&loop->idle);
    }
    if (loop->until != NULL && !vow__core_future_is_pending(loop->until))
        uv_stop(loop->uv); /* the future is settled: do not poll */
}

static void on_check(uv_check_t *handle)
{
    (void)vow__core_loop_drain(handle->data);
}

/* Does nothing: an active idle handle keeps libuv from waiting. */
static void on_loop_idle(uv_idle_t *handle)
{
    (void)handle;
}

static void on_loop_wake(uv_async_t *handle)
{
    vow_loop *loop = handle->data;
    bool busy = loop->busy;
    vow_loop_adopt(loop);
    loop->busy = true;
    vow__core_inbox_take(loop); /* always with the lock: inbox.c */
    loop->busy = busy;
    (void)vow__core_loop_drain(loop);
}

void vow__core_loop_arm(vow_loop *loop)
{
    loop->armed = true;
    if (!loop->closing)
        (void)uv_idle_start(&loop->idle, on_loop_idle);
}

void vow__core_loop_keep(vow_loop *loop, int change)
{
    uint32_t before = loop->keep;
    loop->keep = (uint32_t)((int64_t)before + change);
    if (before == 0 && loop->keep > 0) /* keeps O2 */
        uv_ref((uv_handle_t *)&loop->wake);
    else if (before > 0 && loop->keep == 0)
        uv_unref((uv_handle_t *)&loop->wake);
}

void vow_loop_hold(vow_loop *loop)
{
    VOW__ASSERT_THREAD(loop);
    loop->holds++;
    vow__core_loop_keep(loop, 1);
}

void vow_loop_release(vow_loop *loop)
{
    VOW__ASSERT_THREAD(loop);
    if (loop->holds == 0)
        return;
    loop->holds--;
    vow__core_loop_keep(loop, -1);
}

/* ---- the loop's thread --------------------------------------------------- */

void vow_loop_adopt(vow_loop *loop)
{
    atomic_store_explicit(&loop->thread, uv_thread_self(),
                          memory_order_relaxed);
}

bool vow_loop_on_thread(const vow_loop *loop)
{
    uv_thread_t self = uv_thread_self();
    uv_thread_t thread =
        atomic_load_explicit(&loop->thread, memory_order_relaxed);
    return uv_thread_equal(&thread, &self) != 0;
}

uv_loop_t *vow_loop_uv(vow_loop *loop)
{
    return loop->uv;
}

const struct vow_alloc *vow_loop_alloc(const vow_loop *loop)
{
    return &loop->alloc;
}

/* ---- idle memory --------------------------------------------------------- */

void vow__core_loop_idle_memory(vow_loop *loop)
{
    if (!loop->trim.armed && !loop->closing)
        vow__core_timer_start(loop, &loop->trim,
                              vow__clock_due_ns(&loop->clock, TRIM_MS));
}

static void on_trim_timer(vow_loop *loop, struct vow__core_timer *t)
{
    (void)t;
    bool more = vow__slab_decay(&loop->futures);
    more |= vow__core_fibers_trim(loop, false);
    if (more)
        vow__core_loop_idle_memory(loop);
}

void vow_loop_trim(vow_loop *loop)
{
    VOW__ASSERT_THREAD(loop);
    vow__slab_trim(&loop->futures);
    (void)vow__core_fibers_trim(loop, true);
}

/* ---- closing ------------------------------------------------------------- */

int vow_loop_close(vow_loop *loop)
{
    if (loop == NULL)
        return 0;
    if (loop->busy || loop->running || loop->closing)
        return VOW_EBUSY;
    vow_loop_adopt(loop);
    loop->closing = true;
    loop->busy = true;
    vow__core_work_close(loop);
    vow__core_inbox_close(loop);
    vow__core_remotes_close(loop);
    settle_everything(loop);
    vow__core_fibers_abandon(loop);
    settle_everything(loop);
    vow__core_promises_tell_unhandled(loop);
    settle_everything(loop); /* promises made by on_unhandled */
    for (int i = 0; i < FORGET_MAX && vow__core_promises_forget_rests(loop);
         i++)
        settle_everything(loop); /* promises made by destructors */
    vow__core_timer_stop(loop, &loop->trim);
    loop->busy = false;
    handles_close(loop);
    if (!loop->owns_uv)
        return 0;
    /* keeps the loop: close callbacks of the user's handles may still use it */
    vow_future *hold = vow__core_future_ref(loop->no_memory);
    struct vow_alloc alloc = loop->alloc;
    uv_loop_t *uv = loop->uv;
    (void)uv_run(uv, UV_RUN_NOWAIT); /* ends in on_handle_closed() */
    (void)uv_run(uv, UV_RUN_DEFAULT);
    if (uv_loop_close(uv) == UV_EBUSY) { /* open handles are left */
        uv_walk(uv, close_handle, NULL);
        (void)uv_run(uv, UV_RUN_DEFAULT);
        (void)uv_loop_close(uv);
    }
    vow__core_future_unref(hold);
    vow__mem_free(&alloc, uv, sizeof(*uv));
    return 0;
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

/* Rejects all promises and runs all handlers, again and again, because handlers
 * and fibers may make new promises while the loop closes. Every link that waits
 * now gets its turn; handlers that make promises without end are cut off. */
static void settle_everything(vow_loop *loop)
{
    vow_loop_stats now;
    vow_loop_stats_get(loop, &now);
    uint64_t end = loop->handlers_run + 2 * (uint64_t)now.futures + CLOSE_TURNS;
    while (loop->handlers_run < end) {
        if (loop->ready == NULL && !vow__core_promises_reject_all(loop))
            break;
        loop->busy = false;
        (void)vow__core_loop_drain(loop);
        loop->busy = true;
    }
}

static void handles_close(vow_loop *loop)
{
    uv_handle_t *handles[] = {
        (uv_handle_t *)&loop->prepare, (uv_handle_t *)&loop->check,
        (uv_handle_t *)&loop->idle,    (uv_handle_t *)&loop->timer,
        (uv_handle_t *)&loop->wake,    (uv_handle_t *)&loop->work_timer,
    };
    loop->closing_handles = sizeof(handles) / sizeof(handles[0]);
    for (size_t i = 0; i < sizeof(handles) / sizeof(handles[0]); i++)
        uv_close(handles[i], on_handle_closed);
}

static void on_handle_closed(uv_handle_t *handle)
{
    vow_loop *loop = handle->data;
    if (--loop->closing_handles > 0)
        return;
    loop->closed = true;
    vow__core_fibers_close(loop);
    vow__slab_trim(&loop->futures);
    vow__core_future_unref(loop->no_memory); /* frees the loop if the last */
}

void vow__core_loop_maybe_free(vow_loop *loop)
{
    if (!loop->closed || loop->reaping || !vow__slab_unused(&loop->futures) ||
        loop->scopes > 0)
        return;
    vow__slab_fini(&loop->futures);
    vow__core_inbox_unref(loop->inbox); /* a remote may still hold the inbox */
}

struct vow__core_visit vow__core_visit_begin(vow_loop *loop)
{
    struct vow__core_visit before = {loop->busy, loop->canceling, loop->current,
                                     loop->in};
    loop->busy = true;
    loop->canceling = false;
    loop->current = NULL;
    loop->in = NULL;
    return before;
}

void vow__core_visit_end(vow_loop *loop, struct vow__core_visit before)
{
    loop->busy = before.busy;
    loop->canceling = before.canceling;
    loop->current = before.current;
    loop->in = before.in;
}
