/* SPDX-License-Identifier: MIT */
/* thread.c - the thread of an authority.
 *
 * HOW   The thread makes the hub's loop and opens the store there, then settles
 *       a promise of the opening loop. The thread ends when the store has been
 *       closed. All signals are blocked in the thread: they belong to the
 *       program.
 * THREADS  vow__named_thread_open(): the opening loop; the rest: the hub's
 *          loop.
 */
#include "named/named_internal.h"

#include <signal.h>

static void *hub_thread_main(void *hub);
static vow_next on_thread_store_opened(vow_value v, void *hub);
static vow_next on_thread_store_failed(vow_error *e, void *hub);

vow_future *vow__named_thread_open(const char *site, vow_loop *loop,
                                   struct vow__named_hub *h)
{
    sigset_t all, before;
    vow_future *ready = vow_promise_remote_at(site, loop, &h->open_remote);
    if (h->open_remote == NULL) {
        h->threaded = false;
        return ready;
    }
    (void)sigfillset(&all);
    (void)vow__named_hub_ref(h); /* for the thread */
    int rc = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (rc == 0) {
        rc = pthread_create(&h->thread, NULL, hub_thread_main, h);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (rc != 0) {
        h->threaded = false;
        (void)vow_reject_any(
            h->open_remote,
            vow_error_new(loop, VOW_EAGAIN,
                          "cannot start a thread for the authority"));
        h->open_remote = vow_remote_unref(h->open_remote);
        vow__named_hub_unref(h);
    }
    return ready;
}

static void *hub_thread_main(void *hub)
{
    struct vow__named_hub *h = hub;
    int rc = vow_loop_new(VOW_LOOP_OPTS(.alloc = h->alloc), &h->loop);
    VOW_AUTO(vow_future) end = NULL;
    if (rc == 0) {
        vow_loop_hold(h->loop);
        end = vow_promise(h->loop, &h->thread_end);
        rc = vow_error_code(vow_error_of(end));
    }
    if (rc == 0) {
        vow_future *store = vow_store_open(h->loop, h->url);
        rc = vow_done(store, on_thread_store_opened, on_thread_store_failed, h);
    }
    if (rc == 0)
        rc = vow_loop_run_until(h->loop, end);
    vow__named_thread_end(h); /* if the loop did not run */
    end = vow_future_unref(end);
    if (h->open_remote != NULL) { /* no memory for the loop or the store */
        vow_error *e = vow_error_new(vow_remote_loop(h->open_remote),
                                     rc < 0 ? rc : VOW_ENOMEM, NULL);
        (void)vow_reject_any(h->open_remote, e);
        h->open_remote = vow_remote_unref(h->open_remote);
    }
    if (h->loop != NULL)
        (void)vow_loop_close(h->loop);
    if (h->closing_handle != NULL) {
        vow__named_settler_resolve(&h->closing_handle->close_settler,
                                   vow_nothing());
        vow__named_handle_unref(h->closing_handle);
    }
    vow__named_hub_unref(h);
    return NULL;
}

/* Does not wait for work in flight: work of a lost lease may never end. */
void vow__named_thread_end(struct vow__named_hub *h)
{
    if (h->thread_end != NULL)
        (void)vow_resolve_drop(h->thread_end, vow_nothing());
    h->thread_end = NULL;
}

static vow_next on_thread_store_opened(vow_value v, void *hub)
{
    struct vow__named_hub *h = hub;
    vow_remote *open_remote = h->open_remote;
    h->open_remote = NULL;
    vow__named_hub_ready(h, vow_as_ptr(v));
    bool wanted = vow_resolve_any(open_remote, vow_nothing());
    vow_remote_unref(open_remote);
    if (!wanted) {
        h->closing = true;
        vow__named_hub_close_store(h);
    }
    return vow_ok(vow_nothing());
}

static vow_next on_thread_store_failed(vow_error *e, void *hub)
{
    struct vow__named_hub *h = hub;
    vow_loop *loop = vow_remote_loop(h->open_remote);
    (void)vow_reject_any(
        h->open_remote,
        vow_error_new(loop, vow_error_code(e), "%s", vow_error_message(e)));
    h->open_remote = vow_remote_unref(h->open_remote);
    vow__named_thread_end(h);
    return vow_ok(vow_nothing());
}
