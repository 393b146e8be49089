/* SPDX-License-Identifier: MIT */
/* ask.c - somebody who waits for a name: coming, leaving, being settled.
 *
 * HOW   An ask of the home's loop is settled by its deferred, and leaves by the
 *       cancel hook of that. One of another loop is settled through a remote
 *       end; a watch there sees that its future was canceled, and sends word.
 * INVARIANTS
 *   A1  `done` is set before the future is settled by the home
 *   A2  work of an ask is begun only while its future is pending
 * THREADS  the home's loop; vow__ask_new(), vow__ask_send(), begin() and
 *          on_settled(): the ask's.
 */
#include "base/alloc.h"
#include "named/hub_internal.h"

#include <stdio.h>
#include <string.h>

/* What the two-handed form gives, as the value of a future. */
struct claim_box {
    vow_claim claim;
    struct vow_alloc alloc;
};

static int take_wishes(struct vow__ask *a, const vow_share_opts *o);
static int second_hand(struct vow__ask *a, vow_future **f);
static int watch_there(struct vow__ask *a, vow_future **f);
static vow_future *not_sent(struct vow__ask *a, vow_future *f, int rc);
static void arrive(void *ask);
static void on_cancel(vow_error *why, void *ask);
static void on_settled(vow_future *f, void *ask);
static void on_known(vow_future *f, void *ask);
static void send_leave(struct vow__ask *a);
static void on_deadline(void *ask);
static void leave_by_message(void *ask);
static void unlink_ask(struct vow__ask *a);
static struct vow__end take_who(struct vow__ask *a);
static void excuse(struct vow__ask *a);
static void begin(void *lease);
static void begin_work(vow_lease *l);
static void hand_over(vow_lease *l);
static void on_work_end(vow_future *f, void *lease);
static vow_value claim_value(struct vow__ask *a, vow_lease *l);
static void claim_drop(void *ptr);

struct vow__ask *vow__ask_new(const char *site, vow_authority *of,
                              const vow_name *name, const vow_share_opts *o)
{
    struct vow__slab *home = NULL;
    struct vow__ask *a = vow__at_home(of)
                             ? vow__slab_take(&of->hub->asks, &home)
                             : vow__mem_zero(&of->alloc, sizeof(*a));
    if (a == NULL)
        return NULL;
    a->home = home;
    a->of = vow__handle_ref(of);
    a->site = site;
    a->label = "";
    a->opts = &vow__no_wishes;
    a->name = *name;
    VOW__CLEAR(a, in_seat, link);
    atomic_init(&a->refs, 1);
    if (o == &vow__no_wishes || take_wishes(a, o) == 0)
        return a;
    vow__ask_free(a);
    return NULL;
}

static int take_wishes(struct vow__ask *a, const vow_share_opts *o)
{
    size_t length = o->label == NULL ? 0 : strlen(o->label);
    if (length > VOW_LABEL_MAX)
        length = VOW_LABEL_MAX;
    if (length > 0) {
        char *label = vow__mem_zero(&a->of->alloc, length + 1);
        if (label == NULL)
            return VOW_ENOMEM;
        a->label = memcpy(label, o->label, length);
    }
    a->own = *o;
    a->own.label = a->label;
    a->opts = &a->own;
    a->info = (vow_share_info){0};
    return 0;
}

void vow__ask_free(struct vow__ask *a)
{
    vow_authority *of = a->of;
    size_t length = a->opts == &a->own ? strlen(a->label) : 0;
    if (a->result != NULL)
        vow_future_unref(a->result);
    if (a->box != NULL)
        vow__mem_free(&of->alloc, a->box, sizeof(*a->box));
    if (length > 0)
        vow__mem_free(&of->alloc, (void *)(uintptr_t)a->label, length + 1);
    if (a->home != NULL)
        vow__slab_give(a->home, a);
    else
        vow__mem_free(&of->alloc, a, sizeof(*a));
    vow__handle_unref(of);
}

/* ---- coming ------------------------------------------------------------- */

vow_future *vow__ask_send(struct vow__ask *a, bool two_handed)
{
    vow_authority *of = a->of;
    vow_future *f = vow__end_open(a->site, of->loop, of->hub->loop, &a->end);
    int rc = vow_error_code(vow_error_of(f));
    if (rc == 0 && two_handed)
        rc = second_hand(a, &f);
    if (rc == 0 && vow__at_home(of)) {
        vow_on_cancel_now(a->end.here, on_cancel, a);
        arrive(a);
        return f;
    }
    if (rc == 0)
        rc = watch_there(a, &f);
    if (rc == 0)
        rc = vow__hub_run(of, arrive, a);
    return rc == 0 ? f : not_sent(a, f, rc);
}

/* The future is of who works from now on; that of the result is ours. */
static int second_hand(struct vow__ask *a, vow_future **f)
{
    vow_authority *of = a->of;
    a->result = *f;
    *f = vow__end_open(a->site, of->loop, of->hub->loop, &a->who);
    atomic_store(&a->untold, true);
    a->box = vow__mem_zero(&of->alloc, sizeof(*a->box));
    if (a->box == NULL || vow_error_of(*f) != NULL)
        return VOW_ENOMEM;
    a->box->alloc = of->alloc;
    if (vow__at_home(of))
        vow_on_cancel_now(a->who.here, on_cancel, a);
    return 0;
}

/* Its own loop is another than the home's. */
static int watch_there(struct vow__ask *a, vow_future **f)
{
    vow_future **result = a->result != NULL ? &a->result : f;
    vow_watch_start(&vow__ask_ref(a)->watch, *result, on_settled, a);
    if (result != f)
        vow_watch_start(&vow__ask_ref(a)->watch_who, *f, on_known, a);
    if (a->opts->info == NULL)
        return 0;
    /* behind the watch, which writes it: settled when it is written */
    *result = vow_then_drop_at(a->site, *result, NULL, NULL, NULL);
    return vow_error_code(vow_error_of(*result));
}

static vow_future *not_sent(struct vow__ask *a, vow_future *f, int rc)
{
    if (!vow__at_home(a->of) && vow_watch_stop(&a->watch))
        vow__ask_unref(a);
    if (!vow__at_home(a->of) && vow_watch_stop(&a->watch_who))
        vow__ask_unref(a);
    vow_future_unref(f);
    vow__end_drop(&a->end);
    struct vow__end who = take_who(a);
    vow__end_drop(&who);
    if (a->result != NULL) {
        (void)vow_error_of(a->result);
        a->result = vow_future_unref(a->result);
    }
    f = vow_refused_at(a->site, a->of->loop, rc, NULL);
    vow__ask_unref(a);
    return f;
}

static void arrive(void *ask)
{
    struct vow__ask *a = ask;
    struct vow__hub *h = a->of->hub;
    struct vow__entry *e = a->entry;
    a->entry = NULL; /* it is not in it yet */
    vow__count(&h->counts.asked, 1);
    if (h->closing || !a->of->seated) {
        vow__ask_refuse(a, VOW_ECLOSED, "the authority was closed");
        return;
    }
    vow__list_push(&a->of->asks, &a->in_seat);
    vow__count(&h->counts.waiting, 1);
    if (a->opts->deadline_ms > 0)
        vow_call_at(&a->deadline, h->loop,
                    vow_loop_due_ns(h->loop, a->opts->deadline_ms), on_deadline,
                    a);
    if ((a->opts->flags & VOW_SHARE_REFRESH) != 0 && !a->refresh)
        vow__refresh(h, a);
    else
        vow__entry_ask(h, a->looked ? e : vow__entry_find(h, &a->name), a);
}

/* ---- leaving ------------------------------------------------------------ */

/* Inside vow_cancel(): nothing of others runs here. */
static void on_cancel(vow_error *why, void *ask)
{
    vow__ask_reject(ask, why);
}

static void on_deadline(void *ask)
{
    struct vow__ask *a = ask;
    char text[96];
    (void)snprintf(text, sizeof(text), "no result within %llu ms",
                   (unsigned long long)a->opts->deadline_ms);
    vow__ask_refuse(a, VOW_ETIMEDOUT, text);
}

/* On the loop of the ask, which is not the home's. */
static void on_settled(vow_future *f, void *ask)
{
    struct vow__ask *a = ask;
    a->left = true;
    if (atomic_load(&a->done)) {
        if (a->result != NULL) { /* as excuse() */
            (void)vow_error_of(f);
            a->result = vow_future_unref(a->result);
        }
        if (a->opts->info != NULL)
            *a->opts->info = a->info;
    } else {
        send_leave(a);
    }
    vow__ask_unref(a);
}

/* The same, of who works: a claim that was canceled is not to be called. */
static void on_known(vow_future *f, void *ask)
{
    struct vow__ask *a = ask;
    if (vow_state_of(f) == VOW_REJECTED && !atomic_load(&a->done)) {
        a->left = true;
        send_leave(a);
    }
    vow__ask_unref(a);
}

static void send_leave(struct vow__ask *a)
{
    (void)vow__ask_ref(a);
    if (vow__hub_run(a->of, leave_by_message, a) < 0)
        vow__ask_unref(a); /* it stays until the run is over */
}

static void leave_by_message(void *ask)
{
    struct vow__ask *a = ask;
    if (vow__end_is_open(&a->end))
        vow__ask_refuse(a, VOW_ECANCELED, NULL);
    vow__ask_unref(a);
}

/* Out of its lists. The last of an entry has it look, soon, whether the work is
 * still wanted. */
static void unlink_ask(struct vow__ask *a)
{
    struct vow__entry *e = a->entry;
    struct vow__hub *h = a->of->hub;
    if (a->opts->deadline_ms > 0)
        (void)vow_call_stop(&a->deadline);
    if (a->in_seat.prev != NULL) {
        vow__list_remove(&a->of->asks, &a->in_seat);
        vow__count(&h->counts.waiting, (uint64_t)-1);
    }
    if (e == NULL)
        return;
    a->entry = NULL;
    if (e->crowd == a)
        e->crowd = NULL;
    vow__list_remove(a->later ? &e->later : &e->asks, &a->link);
    if (!a->later)
        e->n_asks--;
    if (e->lease != NULL)
        atomic_store_explicit(&e->lease->waiters, e->n_asks,
                              memory_order_relaxed);
    if (e->n_asks == 0)
        vow__entry_look(e);
}

/* ---- settling: out of its entry, and gone ------------------------------- */

void vow__ask_tell(struct vow__ask *a, uint32_t role, uint64_t fence,
                   uint64_t age_ms, const char *runner)
{
    vow_share_info *info = &a->info;
    if (a->opts->info == NULL)
        return;
    info->role = role;
    info->fence = fence;
    info->age_ms = age_ms;
    if (runner != NULL)
        (void)snprintf(info->runner, sizeof(info->runner), "%s", runner);
    if (vow__at_home(a->of))
        *a->opts->info = *info;
}

void vow__ask_resolve(struct vow__ask *a, vow_value v)
{
    unlink_ask(a);
    vow__ask_waits(a);
    atomic_store_explicit(&a->done, true, memory_order_release);
    vow__end_resolve(&a->end, v);
    vow__ask_unref(a);
}

void vow__ask_copy(struct vow__ask *a, vow_future *settled)
{
    unlink_ask(a);
    vow__ask_waits(a);
    atomic_store_explicit(&a->done, true, memory_order_release);
    vow__end_copy(&a->end, settled);
    vow__ask_unref(a);
}

void vow__ask_reject(struct vow__ask *a, vow_error *error)
{
    unlink_ask(a);
    atomic_store_explicit(&a->done, true, memory_order_release);
    struct vow__end who = take_who(a);
    vow__end_reject(&who, error);
    vow__end_reject(&a->end, error);
    excuse(a);
    vow__ask_unref(a);
}

/* Who asked with two hands was told by the first future, and has no other. */
static void excuse(struct vow__ask *a)
{
    if (vow__at_home(a->of) && a->result != NULL)
        (void)vow_error_of(a->result);
}

void vow__ask_refuse(struct vow__ask *a, int code, const char *text)
{
    unlink_ask(a);
    atomic_store_explicit(&a->done, true, memory_order_release);
    struct vow__end who = take_who(a);
    vow__end_refuse(&who, code, text);
    vow__end_refuse(&a->end, code, text);
    excuse(a);
    vow__ask_unref(a);
}

/* ---- its turn ----------------------------------------------------------- */

void vow__ask_turn(struct vow__ask *a, vow_lease *l)
{
    a->tried = true;
    if (vow__at_home(a->of)) {
        vow_call_soon(&l->call, l->loop, begin, l);
        return;
    }
    int rc = vow_loop_post(l->loop, begin, l);
    if (rc == 0)
        return;
    VOW_AUTO(vow_future) f = vow_refused(l->hub->loop, rc, NULL);
    (void)vow_error_of(f);
    if (vow__flag_set(&l->told, l->hub->threaded))
        vow__lease_finish(l, f);
    (void)vow_lease_unref(l);
}

/* On the loop of the ask; who works has the lease's first user from now on. */
static void begin(void *lease)
{
    vow_lease *l = lease;
    struct vow__ask *a = l->ask;
    if (atomic_load(&l->state) != LEASE_HELD) {
        (void)vow_lease_unref(l);
    } else if (a->left || atomic_load(&a->done)) {
        l->passed = true;
        VOW_AUTO(vow_future) f = vow_refused(l->loop, VOW_EAGAIN, NULL);
        (void)vow_error_of(f);
        (void)vow__lease_tell(l, f);
        (void)vow_lease_unref(l);
    } else if (a->work != NULL) {
        begin_work(l);
    } else {
        hand_over(l);
    }
}

static void begin_work(vow_lease *l)
{
    vow__refs_up(&l->ask->working, l->hub->threaded);
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
    (void)vow__refs_down(&l->ask->working, l->hub->threaded);
    (void)vow__lease_tell(l, f);
    l->work = vow_future_unref(l->work);
    (void)vow_lease_unref(l);
}

/* The lease to one who does the work by hand. */
static void hand_over(vow_lease *l)
{
    struct vow__ask *a = l->ask;
    struct vow__end who = take_who(a);
    if (vow__end_is_open(&who))
        vow__end_resolve(&who, claim_value(a, l));
    else if (a->on_lease != NULL && !atomic_load(&a->done))
        a->on_lease(l, a->arg);
    (void)vow_lease_unref(l); /* nobody kept it: it is abandoned */
}

/* ---- what the two-handed form gives ------------------------------------- */

/* Whoever takes it settles it: the home, or the loop of the ask. */
static struct vow__end take_who(struct vow__ask *a)
{
    struct vow__end who = {0};
    if (atomic_load(&a->untold) && atomic_exchange(&a->untold, false))
        who = a->who;
    return who;
}

void vow__ask_waits(struct vow__ask *a)
{
    struct vow__end who = take_who(a);
    if (vow__end_is_open(&who))
        vow__end_resolve(&who, claim_value(a, NULL));
}

/* Its memory came with the ask: who works is always told. */
static vow_value claim_value(struct vow__ask *a, vow_lease *l)
{
    struct claim_box *box = a->box;
    a->box = NULL;
    box->claim.lease = vow_lease_ref(l);
    box->claim.result = a->result;
    a->result = NULL;
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
