/* SPDX-License-Identifier: MIT */
/* thread.c - a thread of its own for an authority.
 *
 * HOW   The thread makes its loop and opens the store there; who opens waits
 *       for a promise that it settles. It ends when the store has been closed.
 *       All signals are blocked in it: they belong to the program.
 * THREADS  vow__named_thread_open(): that of who opens; the rest: the hub's loop's.
 */
#include "named/named_internal.h"

#include <signal.h>

static void *home_main(void *hub);
static vow_next home_has_store(vow_value v, void *hub);
static vow_next home_has_none(vow_error *e, void *hub);

vow_future *vow__named_thread_open(const char *site, vow_loop *loop,
                                   struct vow__named_hub *h)
{
    sigset_t all, before;
    vow_future *ready = vow_promise_remote_at(site, loop, &h->opened);
    if (h->opened == NULL) {
        h->threaded = false;
        return ready;
    }
    (void)sigfillset(&all);
    (void)vow__named_hub_ref(h); /* the thread's */
    int rc = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (rc == 0) {
        rc = pthread_create(&h->thread, NULL, home_main, h);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (rc != 0) {
        h->threaded = false;
        (void)vow_reject_any(
            h->opened,
            vow_error_new(loop, VOW_EAGAIN, "there is no thread for it"));
        h->opened = vow_remote_unref(h->opened);
        vow__named_hub_unref(h);
    }
    return ready;
}

static void *home_main(void *hub)
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
        rc = vow_done(store, home_has_store, home_has_none, h);
    }
    if (rc == 0)
        rc = vow_loop_run_until(h->loop, end);
    vow__named_thread_end(h); /* it did not begin */
    end = vow_future_unref(end);
    if (h->opened != NULL) { /* no memory to begin with */
        vow_error *e = vow_error_new(vow_remote_loop(h->opened),
                                     rc < 0 ? rc : VOW_ENOMEM, NULL);
        (void)vow_reject_any(h->opened, e);
        h->opened = vow_remote_unref(h->opened);
    }
    if (h->loop != NULL)
        (void)vow_loop_close(h->loop);
    if (h->closed != NULL) {
        vow__named_settler_resolve(&h->closed->close_end, vow_nothing());
        vow__named_handle_unref(h->closed);
    }
    vow__named_hub_unref(h);
    return NULL;
}

/* Whatever is still under way: who works for a lost lease may never end. */
void vow__named_thread_end(struct vow__named_hub *h)
{
    if (h->thread_end != NULL)
        (void)vow_resolve_drop(h->thread_end, vow_nothing());
    h->thread_end = NULL;
}

static vow_next home_has_store(vow_value v, void *hub)
{
    struct vow__named_hub *h = hub;
    vow_remote *opened_end = h->opened;
    h->opened = NULL;
    vow__named_hub_ready(h, vow_as_ptr(v));
    bool wanted = vow_resolve_any(opened_end, vow_nothing());
    vow_remote_unref(opened_end);
    if (!wanted) {
        h->closing = true;
        vow__named_hub_close_store(h);
    }
    return vow_ok(vow_nothing());
}

static vow_next home_has_none(vow_error *e, void *hub)
{
    struct vow__named_hub *h = hub;
    vow_loop *loop = vow_remote_loop(h->opened);
    (void)vow_reject_any(h->opened, vow_error_new(loop, vow_error_code(e), "%s",
                                                  vow_error_message(e)));
    h->opened = vow_remote_unref(h->opened);
    vow__named_thread_end(h);
    return vow_ok(vow_nothing());
}
