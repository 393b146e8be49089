/* SPDX-License-Identifier: MIT */
/* close_hook.c - detaches a handle when the handle's loop closes first.
 *
 * WHY   The hub sends messages to the loops of the waiters. A closed loop
 *       cannot get messages, and the memory of the loop may be gone.
 * HOW   A promise of the handle's loop stays pending: closing the loop cancels
 *       the promise. The hook then makes the hub's loop detach the handle, and
 *       the closing loop waits for the end of the detach. The future of the
 *       promise keeps the memory of the loop as long as the handle exists.
 * THREADS  the loop of the handle; handle_close_and_signal(): the hub's loop.
 */
#include "named/named_internal.h"

struct close_request {
    vow_authority *handle;
    pthread_mutex_t lock;
    pthread_cond_t done_cond;
    bool done;
};

static void on_hook_cancel(vow_error *why, void *authority);
static void handle_close_and_signal(void *close_request);

int vow__named_close_hook_add(vow_authority *a)
{
    a->hook_future = vow_promise(a->loop, &a->close_hook);
    if (vow_error_of(a->hook_future) == NULL)
        return 0;
    a->close_hook = vow_deferred_unref(a->close_hook);
    a->hook_future = vow_future_unref(a->hook_future);
    return VOW_ENOMEM;
}

void vow__named_close_hook_arm(vow_authority *a)
{
    vow_on_cancel_now(a->close_hook, on_hook_cancel, a);
}

void vow__named_close_hook_remove(vow_authority *a)
{
    if (a->close_hook != NULL)
        (void)vow_resolve_drop(a->close_hook, vow_nothing());
    a->close_hook = NULL;
}

static void on_hook_cancel(vow_error *why, void *authority)
{
    vow_authority *a = authority;
    struct close_request f = {.handle = vow__named_handle_ref(a),
                              .lock = PTHREAD_MUTEX_INITIALIZER,
                              .done_cond = PTHREAD_COND_INITIALIZER};
    (void)why;
    vow__named_close_hook_remove(a);
    a->closing = true;
    a->closed = vow_future_ref(a->hook_future);
    if (vow_loop_post(a->hub->loop, handle_close_and_signal, &f) < 0) {
        vow__named_handle_unref(a);
        return;
    }
    a->last = atomic_fetch_sub(&a->hub->handles, 1) == 1;
    (void)pthread_mutex_lock(&f.lock);
    while (!f.done)
        (void)pthread_cond_wait(&f.done_cond, &f.lock);
    (void)pthread_mutex_unlock(&f.lock);
    if (a->last)
        (void)pthread_join(a->hub->thread, NULL);
}

static void handle_close_and_signal(void *close_request)
{
    struct close_request *f = close_request;
    vow__named_handle_close(f->handle);
    (void)pthread_mutex_lock(&f->lock);
    f->done = true;
    (void)pthread_cond_signal(&f->done_cond);
    (void)pthread_mutex_unlock(&f->lock);
}
