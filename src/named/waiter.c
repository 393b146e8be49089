/* SPDX-License-Identifier: MIT */
/* waiter.c - a pending request for a name: arriving, leaving, settling, work.
 *
 * HOW   A waiter of the hub's loop has a deferred; the cancel hook of the
 *       deferred makes the waiter leave. A waiter of another loop has a remote
 *       promise; a watch on the waiter's loop sees the end of the future and
 *       sends a message if the future was canceled.
 * INVARIANTS
 *   A1  `done` is set before the future is settled by the hub's loop
 *   A2  the work of a waiter is begun only while the future is pending
 * THREADS  the hub's loop; the waiter's loop: vow__named_waiter_new(),
 *          vow__named_waiter_send(), lease_begin_work() and
 *          on_result_settled().
 */
#include "base/alloc.h"
#include "named/named_internal.h"

#include <stdio.h>
#include <string.h>

/* The value of the future of vow_claim_name(). */
struct claim_box {
    vow_claim claim;
    struct vow_alloc alloc;
};

static int waiter_copy_opts(struct vow__named_waiter *w,
                            const vow_share_opts *o);
static int waiter_open_claim(struct vow__named_waiter *w, vow_future **f);
static int waiter_watch_remote(struct vow__named_waiter *w, vow_future **f);
static vow_future *waiter_not_sent(struct vow__named_waiter *w, vow_future *f,
                                   int rc);
static void waiter_arrive(void *waiter);
static void on_waiter_cancel(vow_error *why, void *waiter);
static void on_result_settled(vow_future *f, void *waiter);
static void on_claim_settled(vow_future *f, void *waiter);
static void waiter_send_leave(struct vow__named_waiter *w);
static void on_waiter_deadline(void *waiter);
static void waiter_leave_by_message(void *waiter);
static void waiter_unlink(struct vow__named_waiter *w);
static struct vow__named_settler waiter_take_claim(struct vow__named_waiter *w);
static void waiter_mark_result_handled(struct vow__named_waiter *w);
static void lease_begin_work(void *lease);
static bool waiter_is_settled(const struct vow__named_waiter *w);
static void lease_read_begin(vow_lease *l);
static void lease_call_work(vow_lease *l);
static void lease_hand_over(vow_lease *l);
static void on_work_end(vow_future *f, void *lease);
static vow_value claim_box_value(struct vow__named_waiter *w, vow_lease *l);
static void claim_box_drop(void *ptr);

struct vow__named_waiter *vow__named_waiter_new(const char *site,
                                                vow_authority *handle,
                                                const vow_name *name,
                                                const vow_share_opts *o)
{
    struct vow__slab *slab = NULL;
    struct vow__named_waiter *w =
        vow__named_is_hub_loop(handle)
            ? vow__slab_take(&handle->hub->waiters, &slab)
            : vow__mem_zero(&handle->alloc, sizeof(*w));
    if (w == NULL)
        return NULL;
    w->slab = slab;
    w->handle = vow__named_handle_ref(handle);
    w->site = site;
    w->label = "";
    w->opts = &vow__named_default_share_opts;
    w->name = *name;
    VOW__CLEAR(w, in_handle, link);
    atomic_init(&w->refs, 1);
    if (o == &vow__named_default_share_opts || waiter_copy_opts(w, o) == 0)
        return w;
    vow__named_waiter_free(w);
    return NULL;
}

static int waiter_copy_opts(struct vow__named_waiter *w,
                            const vow_share_opts *o)
{
    size_t length = o->label == NULL ? 0 : strlen(o->label);
    if (length > VOW_LABEL_MAX)
        length = VOW_LABEL_MAX;
    if (length > 0) {
        char *label = vow__mem_zero(&w->handle->alloc, length + 1);
        if (label == NULL)
            return VOW_ENOMEM;
        w->label = memcpy(label, o->label, length);
    }
    w->own_opts = *o;
    w->own_opts.label = w->label;
    w->opts = &w->own_opts;
    if (o->info != NULL)
        w->info = (vow_share_info){0};
    return 0;
}

void vow__named_waiter_free(struct vow__named_waiter *w)
{
    vow_authority *handle = w->handle;
    size_t length = w->opts == &w->own_opts ? strlen(w->label) : 0;
    if (w->result != NULL)
        vow_future_unref(w->result);
    if (w->box != NULL)
        vow__mem_free(&handle->alloc, w->box, sizeof(*w->box));
    if (length > 0)
        vow__mem_free(&handle->alloc, (void *)(uintptr_t)w->label, length + 1);
    if (w->slab != NULL)
        vow__slab_give(w->slab, w);
    else
        vow__mem_free(&handle->alloc, w, sizeof(*w));
    vow__named_handle_unref(handle);
}

/* ---- arriving ----------------------------------------------------------- */

vow_future *vow__named_waiter_send(struct vow__named_waiter *w, bool with_claim)
{
    vow_authority *handle = w->handle;
    vow_future *f = vow__named_settler_open(w->site, handle->loop,
                                            handle->hub->loop, &w->settler);
    int rc = vow_error_code(vow_error_of(f));
    if (rc == 0 && with_claim)
        rc = waiter_open_claim(w, &f);
    if (rc == 0 && vow__named_is_hub_loop(handle)) {
        vow_on_cancel_now(w->settler.local, on_waiter_cancel, w);
        waiter_arrive(w);
        return f;
    }
    if (rc == 0)
        rc = waiter_watch_remote(w, &f);
    if (rc == 0)
        rc = vow__named_hub_run(handle, waiter_arrive, w);
    return rc == 0 ? f : waiter_not_sent(w, f, rc);
}

/* Makes *f the future of the vow_claim; the waiter keeps the result future. */
static int waiter_open_claim(struct vow__named_waiter *w, vow_future **f)
{
    vow_authority *handle = w->handle;
    w->result = *f;
    *f = vow__named_settler_open(w->site, handle->loop, handle->hub->loop,
                                 &w->claim_settler);
    atomic_store(&w->claim_pending, true);
    w->box = vow__mem_zero(&handle->alloc, sizeof(*w->box));
    if (w->box == NULL || vow_error_of(*f) != NULL)
        return VOW_ENOMEM;
    w->box->alloc = handle->alloc;
    if (vow__named_is_hub_loop(handle))
        vow_on_cancel_now(w->claim_settler.local, on_waiter_cancel, w);
    return 0;
}

/* Watches the futures on the waiter's loop, which is not the hub's loop. */
static int waiter_watch_remote(struct vow__named_waiter *w, vow_future **f)
{
    vow_future **result = w->result != NULL ? &w->result : f;
    w->watched = *result;
    vow_watch_start(&vow__named_waiter_ref(w)->result_watch, *result,
                    on_result_settled, w);
    if (result != f)
        vow_watch_start(&vow__named_waiter_ref(w)->claim_watch, *f,
                        on_claim_settled, w);
    if (w->opts->info == NULL)
        return 0;
    /* behind the watch: the caller's future settles after the watch has written
     * the info */
    *result = vow_then_drop_at(w->site, *result, NULL, NULL, NULL);
    return vow_error_code(vow_error_of(*result));
}

static vow_future *waiter_not_sent(struct vow__named_waiter *w, vow_future *f,
                                   int rc)
{
    if (!vow__named_is_hub_loop(w->handle) && vow_watch_stop(&w->result_watch))
        vow__named_waiter_unref(w);
    if (!vow__named_is_hub_loop(w->handle) && vow_watch_stop(&w->claim_watch))
        vow__named_waiter_unref(w);
    vow_future_unref(f);
    vow__named_settler_drop(&w->settler);
    struct vow__named_settler claim = waiter_take_claim(w);
    vow__named_settler_drop(&claim);
    if (w->result != NULL) {
        (void)vow_error_of(w->result);
        w->result = vow_future_unref(w->result);
    }
    f = vow_refused_at(w->site, w->handle->loop, rc, NULL);
    vow__named_waiter_unref(w);
    return f;
}

static void waiter_arrive(void *waiter)
{
    struct vow__named_waiter *w = waiter;
    struct vow__named_hub *h = w->handle->hub;
    struct vow__named_entry *e = w->entry;
    w->entry = NULL; /* not in the entry yet */
    vow__named_count(&h->counts.asked, 1);
    if (h->closing || !w->handle->attached) {
        vow__named_waiter_refuse(w, VOW_ECLOSED, "the authority was closed");
        return;
    }
    vow__list_push(&w->handle->waiters, &w->in_handle);
    vow__named_count(&h->counts.waiting, 1);
    if (w->opts->deadline_ms > 0)
        vow_call_at(&w->deadline, h->loop,
                    vow_loop_due_ns(h->loop, w->opts->deadline_ms),
                    on_waiter_deadline, w);
    if ((w->opts->flags & VOW_SHARE_REFRESH) != 0)
        vow__named_refresh_start(h, w, 0);
    else
        vow__named_entry_add_waiter(
            h, w->entry_known ? e : vow__named_entry_find(h, &w->name, false),
            w);
}

/* ---- leaving ------------------------------------------------------------ */

/* Runs inside vow_cancel(), and calls no user code. */
static void on_waiter_cancel(vow_error *why, void *waiter)
{
    vow__named_waiter_reject(waiter, why);
}

static void on_waiter_deadline(void *waiter)
{
    struct vow__named_waiter *w = waiter;
    char text[96];
    (void)snprintf(text, sizeof(text), "no result within %llu ms",
                   (unsigned long long)w->opts->deadline_ms);
    vow__named_waiter_refuse(w, VOW_ETIMEDOUT, text);
}

/* Runs on the waiter's loop, which is not the hub's loop. */
static void on_result_settled(vow_future *f, void *waiter)
{
    struct vow__named_waiter *w = waiter;
    w->left = true;
    w->watched = NULL;
    if (atomic_load(&w->done)) {
        if (w->result != NULL) { /* as waiter_mark_result_handled() */
            (void)vow_error_of(f);
            w->result = vow_future_unref(w->result);
        }
        if (w->opts->info != NULL)
            *w->opts->info = w->info;
    } else {
        waiter_send_leave(w);
    }
    vow__named_waiter_unref(w);
}

/* The same for the vow_claim: the work of a canceled claim must not begin. */
static void on_claim_settled(vow_future *f, void *waiter)
{
    struct vow__named_waiter *w = waiter;
    if (vow_state_of(f) == VOW_REJECTED && !atomic_load(&w->done)) {
        w->left = true;
        waiter_send_leave(w);
    }
    vow__named_waiter_unref(w);
}

static void waiter_send_leave(struct vow__named_waiter *w)
{
    (void)vow__named_waiter_ref(w);
    if (vow__named_hub_run(w->handle, waiter_leave_by_message, w) < 0)
        vow__named_waiter_unref(w); /* the waiter stays until the run is over */
}

static void waiter_leave_by_message(void *waiter)
{
    struct vow__named_waiter *w = waiter;
    if (vow__named_settler_is_open(&w->settler))
        vow__named_waiter_refuse(w, VOW_ECANCELED, NULL);
    vow__named_waiter_unref(w);
}

/* Removes the waiter from all lists. The last waiter starts an idle check. */
static void waiter_unlink(struct vow__named_waiter *w)
{
    struct vow__named_entry *e = w->entry;
    struct vow__named_hub *h = w->handle->hub;
    if (w->opts->deadline_ms > 0)
        (void)vow_call_stop(&w->deadline);
    if (w->in_handle.prev != NULL) {
        vow__list_remove(&w->handle->waiters, &w->in_handle);
        vow__named_count(&h->counts.waiting, (uint64_t)-1);
    }
    if (e == NULL)
        return;
    w->entry = NULL;
    if (e->shared_waiter == w)
        e->shared_waiter = NULL;
    vow__list_remove(w->postponed ? &e->postponed : &e->waiters, &w->link);
    if (!w->postponed)
        e->n_waiters--;
    if (e->lease != NULL)
        atomic_store_explicit(&e->lease->waiters, e->n_waiters,
                              memory_order_relaxed);
    if (e->n_waiters == 0)
        vow__named_entry_check_idle(e);
}

/* ---- settling ----------------------------------------------------------- */

void vow__named_waiter_set_info(struct vow__named_waiter *w, uint32_t role,
                                uint64_t fence, uint64_t age_ms,
                                const char *runner)
{
    vow_share_info *info = &w->info;
    if (w->opts->info == NULL)
        return;
    info->role = role;
    info->fence = fence;
    info->age_ms = age_ms;
    if (runner != NULL)
        (void)snprintf(info->runner, sizeof(info->runner), "%s", runner);
    if (vow__named_is_hub_loop(w->handle))
        *w->opts->info = *info;
}

void vow__named_waiter_resolve(struct vow__named_waiter *w, vow_value v)
{
    waiter_unlink(w);
    vow__named_waiter_waits(w);
    atomic_store_explicit(&w->done, true, memory_order_release);
    vow__named_settler_resolve(&w->settler, v);
    vow__named_waiter_unref(w);
}

void vow__named_waiter_copy(struct vow__named_waiter *w, vow_future *settled)
{
    waiter_unlink(w);
    vow__named_waiter_waits(w);
    atomic_store_explicit(&w->done, true, memory_order_release);
    vow__named_settler_copy(&w->settler, settled);
    vow__named_waiter_unref(w);
}

void vow__named_waiter_reject(struct vow__named_waiter *w, vow_error *error)
{
    waiter_unlink(w);
    atomic_store_explicit(&w->done, true, memory_order_release);
    struct vow__named_settler claim = waiter_take_claim(w);
    vow__named_settler_reject(&claim, error);
    vow__named_settler_reject(&w->settler, error);
    waiter_mark_result_handled(w);
    vow__named_waiter_unref(w);
}

/* Marks the error of the result as handled: the caller gets the error from the
 * future of the vow_claim, and has no other future. */
static void waiter_mark_result_handled(struct vow__named_waiter *w)
{
    if (vow__named_is_hub_loop(w->handle) && w->result != NULL)
        (void)vow_error_of(w->result);
}

void vow__named_waiter_refuse(struct vow__named_waiter *w, int code,
                              const char *text)
{
    waiter_unlink(w);
    atomic_store_explicit(&w->done, true, memory_order_release);
    struct vow__named_settler claim = waiter_take_claim(w);
    vow__named_settler_refuse(&claim, code, text);
    vow__named_settler_refuse(&w->settler, code, text);
    waiter_mark_result_handled(w);
    vow__named_waiter_unref(w);
}

/* ---- working ------------------------------------------------------------ */

void vow__named_waiter_start_work(struct vow__named_waiter *w, vow_lease *l)
{
    w->tried = true;
    if (vow__named_is_hub_loop(w->handle)) {
        vow_call_soon(&l->call, l->loop, lease_begin_work, l);
        return;
    }
    int rc = vow_loop_post(l->loop, lease_begin_work, l);
    if (rc == 0)
        return;
    VOW_AUTO(vow_future) f = vow_refused(l->hub->loop, rc, NULL);
    (void)vow_error_of(f);
    if (vow__named_flag_set(&l->reported, l->hub->threaded))
        vow__named_lease_finish(l, f);
    (void)vow_lease_unref(l);
}

/* Runs on the waiter's loop. The runner now owns the first user reference of
 * the lease. */
static void lease_begin_work(void *lease)
{
    vow_lease *l = lease;
    struct vow__named_waiter *w = l->waiter;
    if (atomic_load(&l->state) != LEASE_HELD) {
        (void)vow_lease_unref(l);
    } else if (waiter_is_settled(w)) {
        l->waiter_left = true;
        VOW_AUTO(vow_future) f = vow_refused(l->loop, VOW_EAGAIN, NULL);
        (void)vow_error_of(f);
        (void)vow__named_lease_report(l, f);
        (void)vow_lease_unref(l);
    } else if (w->work != NULL) {
        lease_call_work(l);
    } else {
        lease_hand_over(l);
    }
}

/* Returns whether the caller has an outcome or has canceled; keeps A2. A
 * message to begin the work may run between a cancel and on_result_settled(),
 * so `left` alone does not tell. */
static bool waiter_is_settled(const struct vow__named_waiter *w)
{
    return w->left || atomic_load(&w->done) ||
           (w->watched != NULL && vow_state_of(w->watched) != VOW_PENDING);
}

/* The work has begun, and lasts. */
static void lease_read_begin(vow_lease *l)
{
    if (l->began_ns == UINT64_MAX)
        l->began_ns = vow__named_hub_about_ns(l->hub);
}

static void lease_call_work(vow_lease *l)
{
    vow__named_refs_up(&l->waiter->working, l->hub->threaded);
    vow_future *f = l->waiter->work(l, l->waiter->arg);
    if (f == NULL || vow_future_loop(f) != l->loop) {
        vow_future_unref(f);
        f = vow_refused_at(l->waiter->site, l->loop, VOW_EINVAL,
                           "the work returned no future of this loop");
    }
    l->work = f;
    if (vow_ended(f)) {
        on_work_end(f, l);
        return;
    }
    lease_read_begin(l);
    vow_watch_start(&l->work_watch, f, on_work_end, l);
    if (atomic_load(&l->state) != LEASE_HELD) /* lost while the work began */
        (void)vow_cancel(f, NULL);
}

static void on_work_end(vow_future *f, void *lease)
{
    vow_lease *l = lease;
    if (vow_state_of(f) == VOW_REJECTED)
        (void)vow_error_of(f);
    (void)vow__named_refs_down(&l->waiter->working, l->hub->threaded);
    (void)vow__named_lease_report(l, f);
    l->work = vow_future_unref(l->work);
    (void)vow_lease_unref(l);
}

/* Passes the lease to a caller that works by hand. */
static void lease_hand_over(vow_lease *l)
{
    struct vow__named_waiter *w = l->waiter;
    struct vow__named_settler claim = waiter_take_claim(w);
    lease_read_begin(l);
    if (vow__named_settler_is_open(&claim))
        vow__named_settler_resolve(&claim, claim_box_value(w, l));
    else if (w->on_lease != NULL && !atomic_load(&w->done))
        w->on_lease(l, w->arg);
    (void)vow_lease_unref(l); /* the last reference abandons the lease */
}

/* ---- the vow_claim ------------------------------------------------------ */

/* Returns claim_settler, or an empty settler if the other loop took
 * claim_settler first. */
static struct vow__named_settler waiter_take_claim(struct vow__named_waiter *w)
{
    struct vow__named_settler claim = {0};
    if (atomic_load(&w->claim_pending) &&
        atomic_exchange(&w->claim_pending, false))
        claim = w->claim_settler;
    return claim;
}

void vow__named_waiter_waits(struct vow__named_waiter *w)
{
    struct vow__named_settler claim = waiter_take_claim(w);
    if (vow__named_settler_is_open(&claim))
        vow__named_settler_resolve(&claim, claim_box_value(w, NULL));
}

/* Uses memory that was allocated with the waiter: delivery cannot fail. */
static vow_value claim_box_value(struct vow__named_waiter *w, vow_lease *l)
{
    struct claim_box *box = w->box;
    w->box = NULL;
    box->claim.lease = vow_lease_ref(l);
    box->claim.result = w->result;
    w->result = NULL;
    return vow_own(box, claim_box_drop);
}

static void claim_box_drop(void *ptr)
{
    struct claim_box *box = ptr;
    struct vow_alloc alloc = box->alloc;
    (void)vow_lease_unref(box->claim.lease);
    vow_future_unref(box->claim.result);
    vow__mem_free(&alloc, box, sizeof(*box));
}
