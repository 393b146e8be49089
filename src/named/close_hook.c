/* SPDX-License-Identifier: MIT */
/* close_hook.c - a handle whose loop is closed before it.
 *
 * WHY   The home sends messages to the loops of those who ask. A loop that was
 *       closed cannot get them, and its memory may be gone.
 * HOW   A promise of the handle's loop that nobody settles: closing the loop
 *       cancels it, which rings. Then the hub's loop lets go of the handle, and the
 *       loop waits for that. The promise's future keeps the memory of the loop
 *       as long as the handle is there.
 * THREADS  the loop of the handle; say_farewell(): the hub's loop's.
 */
#include "named/named_internal.h"

struct farewell {
    vow_authority *of;
    pthread_mutex_t lock;
    pthread_cond_t said;
    bool done;
};

static void on_bell(vow_error *why, void *authority);
static void say_farewell(void *farewell);

int vow__named_close_hook_add(vow_authority *a)
{
    a->close_future = vow_promise(a->loop, &a->close_hook);
    if (vow_error_of(a->close_future) == NULL)
        return 0;
    a->close_hook = vow_deferred_unref(a->close_hook);
    a->close_future = vow_future_unref(a->close_future);
    return VOW_ENOMEM;
}

void vow__named_close_hook_arm(vow_authority *a)
{
    vow_on_cancel_now(a->close_hook, on_bell, a);
}

void vow__named_close_hook_remove(vow_authority *a)
{
    if (a->close_hook != NULL)
        (void)vow_resolve_drop(a->close_hook, vow_nothing());
    a->close_hook = NULL;
}

static void on_bell(vow_error *why, void *authority)
{
    vow_authority *a = authority;
    struct farewell f = {.of = vow__named_handle_ref(a),
                         .lock = PTHREAD_MUTEX_INITIALIZER,
                         .said = PTHREAD_COND_INITIALIZER};
    (void)why;
    vow__named_close_hook_remove(a);
    a->closing = true;
    a->closed = vow_future_ref(a->close_future);
    if (vow_loop_post(a->hub->loop, say_farewell, &f) < 0) {
        vow__named_handle_unref(a);
        return;
    }
    a->last = atomic_fetch_sub(&a->hub->handles, 1) == 1;
    (void)pthread_mutex_lock(&f.lock);
    while (!f.done)
        (void)pthread_cond_wait(&f.said, &f.lock);
    (void)pthread_mutex_unlock(&f.lock);
    if (a->last)
        (void)pthread_join(a->hub->thread, NULL);
}

static void say_farewell(void *farewell)
{
    struct farewell *f = farewell;
    vow__named_handle_close(f->of);
    (void)pthread_mutex_lock(&f->lock);
    f->done = true;
    (void)pthread_cond_signal(&f->said);
    (void)pthread_mutex_unlock(&f->lock);
}
