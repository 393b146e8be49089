/* SPDX-License-Identifier: MIT */
/* waiter.c - somebody who waits for a name: coming, leaving, being settled.
 *
 * HOW   An ask of the hub's loop is settled by its deferred, and leaves by the
 *       cancel hook of that. One of another loop is settled through a remote
 *       end; a watch there sees that its future was canceled, and sends word.
 * INVARIANTS
 *   A1  `done` is set before the future is settled by the hub's loop
 *   A2  work of an ask is begun only while its future is pending
 * THREADS  the hub's loop; vow__named_waiter_new(), vow__named_waiter_send(), begin() and
 *          on_settled(): the ask's.
 */
#include "base/alloc.h"
#include "named/named_internal.h"

#include <stdio.h>
#include <string.h>

/* What the two-handed form gives, as the value of a future. */
struct claim_box {
    vow_claim claim;
    struct vow_alloc alloc;
};

static int take_wishes(struct vow__named_waiter *w, const vow_share_opts *o);
static int second_hand(struct vow__named_waiter *w, vow_future **f);
static int watch_there(struct vow__named_waiter *w, vow_future **f);
static vow_future *not_sent(struct vow__named_waiter *w, vow_future *f, int rc);
static void arrive(void *ask);
static void on_cancel(vow_error *why, void *ask);
static void on_settled(vow_future *f, void *ask);
static void on_known(vow_future *f, void *ask);
static void send_leave(struct vow__named_waiter *w);
static void on_deadline(void *ask);
static void leave_by_message(void *ask);
static void unlink_ask(struct vow__named_waiter *w);
static struct vow__named_settler take_claimed(struct vow__named_waiter *w);
static void excuse(struct vow__named_waiter *w);
static void begin(void *lease);
static void begin_work(vow_lease *l);
static void hand_over(vow_lease *l);
static void on_work_end(vow_future *f, void *lease);
static vow_value claim_value(struct vow__named_waiter *w, vow_lease *l);
static void claim_drop(void *ptr);

struct vow__named_waiter *vow__named_waiter_new(const char *site,
                                                vow_authority *of,
                                                const vow_name *name,
                                                const vow_share_opts *o)
{
    struct vow__slab *slab = NULL;
    struct vow__named_waiter *w = vow__named_is_hub_loop(of)
                                      ? vow__slab_take(&of->hub->waiters, &slab)
                                      : vow__mem_zero(&of->alloc, sizeof(*w));
    if (w == NULL)
        return NULL;
    w->slab = slab;
    w->of = vow__named_handle_ref(of);
    w->site = site;
    w->label = "";
    w->opts = &vow__named_default_share_opts;
    w->name = *name;
    VOW__CLEAR(w, in_handle, link);
    atomic_init(&w->refs, 1);
    if (o == &vow__named_default_share_opts || take_wishes(w, o) == 0)
        return w;
    vow__named_waiter_free(w);
    return NULL;
}

static int take_wishes(struct vow__named_waiter *w, const vow_share_opts *o)
{
    size_t length = o->label == NULL ? 0 : strlen(o->label);
    if (length > VOW_LABEL_MAX)
        length = VOW_LABEL_MAX;
    if (length > 0) {
        char *label = vow__mem_zero(&w->of->alloc, length + 1);
        if (label == NULL)
            return VOW_ENOMEM;
        w->label = memcpy(label, o->label, length);
    }
    w->own = *o;
    w->own.label = w->label;
    w->opts = &w->own;
    w->info = (vow_share_info){0};
    return 0;
}

void vow__named_waiter_free(struct vow__named_waiter *w)
{
    vow_authority *of = w->of;
    size_t length = w->opts == &w->own ? strlen(w->label) : 0;
    if (w->result != NULL)
        vow_future_unref(w->result);
    if (w->box != NULL)
        vow__mem_free(&of->alloc, w->box, sizeof(*w->box));
    if (length > 0)
        vow__mem_free(&of->alloc, (void *)(uintptr_t)w->label, length + 1);
    if (w->slab != NULL)
        vow__slab_give(w->slab, w);
    else
        vow__mem_free(&of->alloc, w, sizeof(*w));
    vow__named_handle_unref(of);
}

/* ---- coming ------------------------------------------------------------- */

vow_future *vow__named_waiter_send(struct vow__named_waiter *w, bool two_handed)
{
    vow_authority *of = w->of;
    vow_future *f =
        vow__named_settler_open(w->site, of->loop, of->hub->loop, &w->settler);
    int rc = vow_error_code(vow_error_of(f));
    if (rc == 0 && two_handed)
        rc = second_hand(w, &f);
    if (rc == 0 && vow__named_is_hub_loop(of)) {
        vow_on_cancel_now(w->settler.here, on_cancel, w);
        arrive(w);
        return f;
    }
    if (rc == 0)
        rc = watch_there(w, &f);
    if (rc == 0)
        rc = vow__named_hub_run(of, arrive, w);
    return rc == 0 ? f : not_sent(w, f, rc);
}

/* The future is of who works from now on; that of the result is ours. */
static int second_hand(struct vow__named_waiter *w, vow_future **f)
{
    vow_authority *of = w->of;
    w->result = *f;
    *f = vow__named_settler_open(w->site, of->loop, of->hub->loop, &w->claimed);
    atomic_store(&w->untold, true);
    w->box = vow__mem_zero(&of->alloc, sizeof(*w->box));
    if (w->box == NULL || vow_error_of(*f) != NULL)
        return VOW_ENOMEM;
    w->box->alloc = of->alloc;
    if (vow__named_is_hub_loop(of))
        vow_on_cancel_now(w->claimed.here, on_cancel, w);
    return 0;
}

/* Its own loop is another than the hub's loop's. */
static int watch_there(struct vow__named_waiter *w, vow_future **f)
{
    vow_future **result = w->result != NULL ? &w->result : f;
    vow_watch_start(&vow__named_waiter_ref(w)->watch, *result, on_settled, w);
    if (result != f)
        vow_watch_start(&vow__named_waiter_ref(w)->watch_claimed, *f, on_known,
                        w);
    if (w->opts->info == NULL)
        return 0;
    /* behind the watch, which writes it: settled when it is written */
    *result = vow_then_drop_at(w->site, *result, NULL, NULL, NULL);
    return vow_error_code(vow_error_of(*result));
}

static vow_future *not_sent(struct vow__named_waiter *w, vow_future *f, int rc)
{
    if (!vow__named_is_hub_loop(w->of) && vow_watch_stop(&w->watch))
        vow__named_waiter_unref(w);
    if (!vow__named_is_hub_loop(w->of) && vow_watch_stop(&w->watch_claimed))
        vow__named_waiter_unref(w);
    vow_future_unref(f);
    vow__named_settler_drop(&w->settler);
    struct vow__named_settler who = take_claimed(w);
    vow__named_settler_drop(&who);
    if (w->result != NULL) {
        (void)vow_error_of(w->result);
        w->result = vow_future_unref(w->result);
    }
    f = vow_refused_at(w->site, w->of->loop, rc, NULL);
    vow__named_waiter_unref(w);
    return f;
}

static void arrive(void *ask)
{
    struct vow__named_waiter *w = ask;
    struct vow__named_hub *h = w->of->hub;
    struct vow__named_entry *e = w->entry;
    w->entry = NULL; /* it is not in it yet */
    vow__named_count(&h->counts.asked, 1);
    if (h->closing || !w->of->attached) {
        vow__named_waiter_refuse(w, VOW_ECLOSED, "the authority was closed");
        return;
    }
    vow__list_push(&w->of->waiters, &w->in_handle);
    vow__named_count(&h->counts.waiting, 1);
    if (w->opts->deadline_ms > 0)
        vow_call_at(&w->deadline, h->loop,
                    vow_loop_due_ns(h->loop, w->opts->deadline_ms), on_deadline,
                    w);
    if ((w->opts->flags & VOW_SHARE_REFRESH) != 0 && !w->refresh)
        vow__named_refresh_start(h, w);
    else
        vow__named_entry_add_waiter(
            h, w->looked ? e : vow__named_entry_find(h, &w->name), w);
}

/* ---- leaving ------------------------------------------------------------ */

/* Inside vow_cancel(): nothing of others runs here. */
static void on_cancel(vow_error *why, void *ask)
{
    vow__named_waiter_reject(ask, why);
}

static void on_deadline(void *ask)
{
    struct vow__named_waiter *w = ask;
    char text[96];
    (void)snprintf(text, sizeof(text), "no result within %llu ms",
                   (unsigned long long)w->opts->deadline_ms);
    vow__named_waiter_refuse(w, VOW_ETIMEDOUT, text);
}

/* On the loop of the ask, which is not the hub's loop's. */
static void on_settled(vow_future *f, void *ask)
{
    struct vow__named_waiter *w = ask;
    w->left = true;
    if (atomic_load(&w->done)) {
        if (w->result != NULL) { /* as excuse() */
            (void)vow_error_of(f);
            w->result = vow_future_unref(w->result);
        }
        if (w->opts->info != NULL)
            *w->opts->info = w->info;
    } else {
        send_leave(w);
    }
    vow__named_waiter_unref(w);
}

/* The same, of who works: a claim that was canceled is not to be called. */
static void on_known(vow_future *f, void *ask)
{
    struct vow__named_waiter *w = ask;
    if (vow_state_of(f) == VOW_REJECTED && !atomic_load(&w->done)) {
        w->left = true;
        send_leave(w);
    }
    vow__named_waiter_unref(w);
}

static void send_leave(struct vow__named_waiter *w)
{
    (void)vow__named_waiter_ref(w);
    if (vow__named_hub_run(w->of, leave_by_message, w) < 0)
        vow__named_waiter_unref(w); /* it stays until the run is over */
}

static void leave_by_message(void *ask)
{
    struct vow__named_waiter *w = ask;
    if (vow__named_settler_is_open(&w->settler))
        vow__named_waiter_refuse(w, VOW_ECANCELED, NULL);
    vow__named_waiter_unref(w);
}

/* Out of its lists. The last of an entry has it look, soon, whether the work is
 * still wanted. */
static void unlink_ask(struct vow__named_waiter *w)
{
    struct vow__named_entry *e = w->entry;
    struct vow__named_hub *h = w->of->hub;
    if (w->opts->deadline_ms > 0)
        (void)vow_call_stop(&w->deadline);
    if (w->in_handle.prev != NULL) {
        vow__list_remove(&w->of->waiters, &w->in_handle);
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

/* ---- settling: out of its entry, and gone ------------------------------- */

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
    if (vow__named_is_hub_loop(w->of))
        *w->opts->info = *info;
}

void vow__named_waiter_resolve(struct vow__named_waiter *w, vow_value v)
{
    unlink_ask(w);
    vow__named_waiter_waits(w);
    atomic_store_explicit(&w->done, true, memory_order_release);
    vow__named_settler_resolve(&w->settler, v);
    vow__named_waiter_unref(w);
}

void vow__named_waiter_copy(struct vow__named_waiter *w, vow_future *settled)
{
    unlink_ask(w);
    vow__named_waiter_waits(w);
    atomic_store_explicit(&w->done, true, memory_order_release);
    vow__named_settler_copy(&w->settler, settled);
    vow__named_waiter_unref(w);
}

void vow__named_waiter_reject(struct vow__named_waiter *w, vow_error *error)
{
    unlink_ask(w);
    atomic_store_explicit(&w->done, true, memory_order_release);
    struct vow__named_settler who = take_claimed(w);
    vow__named_settler_reject(&who, error);
    vow__named_settler_reject(&w->settler, error);
    excuse(w);
    vow__named_waiter_unref(w);
}

/* Who asked with two hands was told by the first future, and has no other. */
static void excuse(struct vow__named_waiter *w)
{
    if (vow__named_is_hub_loop(w->of) && w->result != NULL)
        (void)vow_error_of(w->result);
}

void vow__named_waiter_refuse(struct vow__named_waiter *w, int code,
                              const char *text)
{
    unlink_ask(w);
    atomic_store_explicit(&w->done, true, memory_order_release);
    struct vow__named_settler who = take_claimed(w);
    vow__named_settler_refuse(&who, code, text);
    vow__named_settler_refuse(&w->settler, code, text);
    excuse(w);
    vow__named_waiter_unref(w);
}

/* ---- its turn ----------------------------------------------------------- */

void vow__named_waiter_start_work(struct vow__named_waiter *w, vow_lease *l)
{
    w->tried = true;
    if (vow__named_is_hub_loop(w->of)) {
        vow_call_soon(&l->call, l->loop, begin, l);
        return;
    }
    int rc = vow_loop_post(l->loop, begin, l);
    if (rc == 0)
        return;
    VOW_AUTO(vow_future) f = vow_refused(l->hub->loop, rc, NULL);
    (void)vow_error_of(f);
    if (vow__named_flag_set(&l->told, l->hub->threaded))
        vow__named_lease_finish(l, f);
    (void)vow_lease_unref(l);
}

/* On the loop of the ask; who works has the lease's first user from now on. */
static void begin(void *lease)
{
    vow_lease *l = lease;
    struct vow__named_waiter *w = l->ask;
    if (atomic_load(&l->state) != LEASE_HELD) {
        (void)vow_lease_unref(l);
    } else if (w->left || atomic_load(&w->done)) {
        l->passed = true;
        VOW_AUTO(vow_future) f = vow_refused(l->loop, VOW_EAGAIN, NULL);
        (void)vow_error_of(f);
        (void)vow__named_lease_report(l, f);
        (void)vow_lease_unref(l);
    } else if (w->work != NULL) {
        begin_work(l);
    } else {
        hand_over(l);
    }
}

static void begin_work(vow_lease *l)
{
    vow__named_refs_up(&l->ask->working, l->hub->threaded);
    vow_future *f = l->ask->work(l, l->ask->arg);
    if (f == NULL || vow_future_loop(f) != l->loop) {
        vow_future_unref(f);
        f = vow_refused_at(l->ask->site, l->loop, VOW_EINVAL,
                           "the work returned no future of this loop");
    }
    l->work = f;
    if (vow_ended(f)) {
        on_work_end(f, l);
        return;
    }
    vow_watch_start(&l->work_watch, f, on_work_end, l);
    if (atomic_load(&l->state) != LEASE_HELD) /* its start took too long */
        (void)vow_cancel(f, NULL);
}

static void on_work_end(vow_future *f, void *lease)
{
    vow_lease *l = lease;
    if (vow_state_of(f) == VOW_REJECTED)
        (void)vow_error_of(f);
    (void)vow__named_refs_down(&l->ask->working, l->hub->threaded);
    (void)vow__named_lease_report(l, f);
    l->work = vow_future_unref(l->work);
    (void)vow_lease_unref(l);
}

/* The lease to one who does the work by hand. */
static void hand_over(vow_lease *l)
{
    struct vow__named_waiter *w = l->ask;
    struct vow__named_settler who = take_claimed(w);
    if (vow__named_settler_is_open(&who))
        vow__named_settler_resolve(&who, claim_value(w, l));
    else if (w->on_lease != NULL && !atomic_load(&w->done))
        w->on_lease(l, w->arg);
    (void)vow_lease_unref(l); /* nobody kept it: it is abandoned */
}

/* ---- what the two-handed form gives ------------------------------------- */

/* Whoever takes it settles it: the hub's loop, or the loop of the ask. */
static struct vow__named_settler take_claimed(struct vow__named_waiter *w)
{
    struct vow__named_settler who = {0};
    if (atomic_load(&w->untold) && atomic_exchange(&w->untold, false))
        who = w->claimed;
    return who;
}

void vow__named_waiter_waits(struct vow__named_waiter *w)
{
    struct vow__named_settler who = take_claimed(w);
    if (vow__named_settler_is_open(&who))
        vow__named_settler_resolve(&who, claim_value(w, NULL));
}

/* Its memory came with the ask: who works is always told. */
static vow_value claim_value(struct vow__named_waiter *w, vow_lease *l)
{
    struct claim_box *box = w->box;
    w->box = NULL;
    box->claim.lease = vow_lease_ref(l);
    box->claim.result = w->result;
    w->result = NULL;
    return vow_own(box, claim_drop);
}

static void claim_drop(void *ptr)
{
    struct claim_box *box = ptr;
    struct vow_alloc alloc = box->alloc;
    (void)vow_lease_unref(box->claim.lease);
    vow_future_unref(box->claim.result);
    vow__mem_free(&alloc, box, sizeof(*box));
}
