/* SPDX-License-Identifier: MIT */
/* hub.c - an authority from opening to close: the hub's loop, the store, the
 * handles.
 *
 * WHY   A pulse must go out while user code keeps the user's loop busy, and
 *       many loops must share one claim per name. So the table of names and the
 *       store are on the hub's loop: a loop in a thread of the authority, or
 *       the user's loop where a thread is not needed.
 * HOW   Code that uses the table runs on the hub's loop. A handle of another
 *       loop sends a message; the answer is a promise that may be settled from
 *       other threads.
 * INVARIANTS
 *   O1  `loop` and `store` are set before the first handle is given out
 *   O2  the hub's memory lives as long as a handle, a lease or a message; the
 *       table of names only until the last handle is closed
 * THREADS  opening and handles: the loop of the handle; the rest: the hub's
 *          loop.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "named/named_internal.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    LEASE_MS = 10000,
    NAMES_MAX = 1 << 20,
    QUIET_MS = 1000,
    ABOUT_CYCLES = 1 << 18 /* maximal age of about_ns */
};

static int authority_opts_complete(vow_authority_opts *o,
                                   const vow_authority_opts *given);
static struct vow__named_hub *hub_new(vow_loop *loop, const char *url,
                                      const vow_authority_opts *o);
static vow_authority *handle_new(vow_loop *loop, struct vow__named_hub *h);
static bool wants_thread(const vow_loop *loop, const char *url,
                         const vow_authority_opts *o);
static vow_future *store_open_here(const char *site, struct vow__named_hub *h);
static void on_store_opened(vow_future *ready, void *authority);
static void drop_handle(void *authority);
static void on_store_doubt(void *hub);
static void handle_attach(void *authority);
static void handle_detach(vow_authority *a);
static vow_next on_store_closed(void *hub);
static void close_store_when_quiet(void *hub);
static void hub_free_names(struct vow__named_hub *h);
static void on_loop_closing(vow_error *why, void *authority);
static vow_next join_thread(void *authority);

/* ---- opening ------------------------------------------------------------ */

vow_future *vow_authority_open_at(const char *site, vow_loop *loop,
                                  const char *url,
                                  const vow_authority_opts *opts)
{
    VOW__ASSERT_THREAD(loop);
    vow_authority_opts o;
    if (authority_opts_complete(&o, opts) < 0 ||
        (url == NULL && o.store == NULL))
        return vow_refused_at(site, loop, VOW_EINVAL,
                              "an authority needs an address or a store of "
                              "its loop, known flags, and a pulse that is "
                              "shorter than the lease");
    struct vow__named_hub *h = hub_new(loop, url == NULL ? "" : url, &o);
    vow_authority *a = h == NULL ? NULL : handle_new(loop, h);
    if (h != NULL)
        vow__named_hub_unref(h); /* the handle has a reference */
    if (a == NULL)
        return vow_refused_at(site, loop, VOW_ENOMEM, NULL);
    h->opening_handle = a;
    h->threaded = wants_thread(loop, h->url, &o);
    h->loop = h->threaded ? NULL : loop;
    vow_future *result = vow_promise_at(site, loop, &h->open_result);
    if (vow_error_of(result) != NULL) {
        vow_deferred_unref(h->open_result);
        vow__named_handle_unref(a);
        return result;
    }
    VOW_AUTO(vow_future) ready = NULL;
    if (!h->threaded)
        ready = store_open_here(site, h);
    else if (vow__named_close_hook_add(a) == 0)
        ready = vow__named_thread_open(site, loop, h);
    if (ready == NULL) {
        h->threaded = false;
        ready = vow_refused_at(site, loop, VOW_ENOMEM, NULL);
    }
    vow_watch_start(&h->open_watch, ready, on_store_opened, a);
    return result;
}

static int authority_opts_complete(vow_authority_opts *o,
                                   const vow_authority_opts *given)
{
    *o = (vow_authority_opts){.size = sizeof(*o)};
    if (given != NULL && given->size != sizeof(*o))
        return VOW_EINVAL;
    if (given != NULL)
        *o = *given;
    if (o->lease_ms == 0)
        o->lease_ms = LEASE_MS;
    if (o->pulse_ms == 0)
        o->pulse_ms = o->lease_ms / 3 > 0 ? o->lease_ms / 3 : 1;
    if (o->names_max == 0)
        o->names_max = NAMES_MAX;
    uint32_t known = VOW_AUTHORITY_HERE | VOW_AUTHORITY_THREAD;
    if ((o->flags & ~known) != 0 || o->flags == known ||
        o->pulse_ms >= o->lease_ms ||
        (o->store != NULL && (o->flags & VOW_AUTHORITY_THREAD) != 0))
        return VOW_EINVAL;
    return 0;
}

static struct vow__named_hub *hub_new(vow_loop *loop, const char *url,
                                      const vow_authority_opts *o)
{
    const struct vow_alloc *alloc = vow_loop_alloc(loop);
    struct vow__named_hub *h = vow__mem_zero(alloc, sizeof(*h));
    size_t size = strlen(url) + 1;
    char *copy = h == NULL ? NULL : vow__mem_new(alloc, size);
    if (copy == NULL) {
        vow__mem_free(alloc, h, sizeof(*h));
        return NULL;
    }
    atomic_init(&h->refs, 1);
    atomic_init(&h->handles, 1);
    h->alloc = *alloc;
    h->opts = *o;
    h->url = memcpy(copy, url, size);
    h->pulse_timer_ns = UINT64_MAX;
    h->has_cycles = (vow_loop_flags(loop) & VOW_LOOP_VIRTUAL_TIME) == 0 &&
                    vow__clock_has_cycles();
    (void)pthread_mutex_init(&h->lock, NULL);
    vow__table_init_hashed(&h->names, &h->alloc, vow_loop_random(loop));
    bool pooled = (vow_loop_flags(loop) & VOW_LOOP_UNPOOLED) == 0;
    vow__slab_init(&h->entries, &h->alloc, h, sizeof(struct vow__named_entry),
                   pooled);
    vow__slab_init(&h->waiters, &h->alloc, h, sizeof(struct vow__named_waiter),
                   pooled);
    vow__slab_init(&h->leases, &h->alloc, h, sizeof(vow_lease), pooled);
    char host[VOW_RUNNER_MAX / 2] = "";
    (void)gethostname(host, sizeof(host) - 1);
    (void)snprintf(h->runner, sizeof(h->runner), "%s:%ld", host,
                   (long)getpid());
    return h;
}

static bool wants_thread(const vow_loop *loop, const char *url,
                         const vow_authority_opts *o)
{
    if ((vow_loop_flags(loop) & VOW_LOOP_VIRTUAL_TIME) != 0 || o->store != NULL)
        return false;
    if (strncmp(url, "memory:", 7) == 0)
        return (o->flags & VOW_AUTHORITY_THREAD) != 0;
    return (o->flags & VOW_AUTHORITY_HERE) == 0;
}

static vow_authority *handle_new(vow_loop *loop, struct vow__named_hub *h)
{
    vow_authority *a = vow__mem_zero(vow_loop_alloc(loop), sizeof(*a));
    if (a == NULL)
        return NULL;
    atomic_init(&a->refs, 1);
    atomic_init(&a->users, 1);
    a->alloc = *vow_loop_alloc(loop);
    a->loop = loop;
    a->hub = vow__named_hub_ref(h);
    return a;
}

void vow__named_handle_free(vow_authority *a)
{
    struct vow_alloc alloc = a->alloc;
    vow__named_hub_unref(a->hub);
    vow__mem_free(&alloc, a, sizeof(*a));
}

/* Makes the promise of the close now, so that closing needs no memory. Closing
 * the loop first cancels the promise, which calls on_loop_closing(). Then opens
 * the store on this loop. */
static vow_future *store_open_here(const char *site, struct vow__named_hub *h)
{
    vow_authority *a = h->opening_handle;
    a->closed = vow_promise_at(site, h->loop, &a->close_settler.local);
    if (vow_error_of(a->closed) != NULL)
        return vow_future_ref(a->closed);
    vow_on_cancel_now(a->close_settler.local, on_loop_closing, a);
    if (h->opts.store != NULL)
        return vow_resolved_at(site, h->loop, vow_ptr(h->opts.store));
    return vow_store_open_at(site, h->loop, h->url);
}

/* Takes the opened store, which is the value of `ready` or already belongs to
 * the hub's thread, or reports the failure. Needs no memory, so an opened store
 * cannot be lost. */
static void on_store_opened(vow_future *ready, void *authority)
{
    vow_authority *a = authority;
    struct vow__named_hub *h = a->hub;
    vow_deferred *result = h->open_result;
    h->open_result = NULL;
    if (vow_state_of(ready) == VOW_FULFILLED) {
        if (!h->threaded)
            vow__named_hub_ready(h, vow_as_ptr(vow_get(ready)));
        else
            vow__named_close_hook_arm(a);
        (void)vow_resolve_drop(result, vow_own(a, drop_handle));
        return;
    }
    vow_error *why = vow_error_of(ready);
    if (h->threaded)
        (void)pthread_join(h->thread, NULL);
    vow__named_settler_resolve(&a->close_settler, vow_nothing());
    a->closed = vow_future_unref(a->closed);
    vow__named_close_hook_remove(a);
    a->hook_future = vow_future_unref(a->hook_future);
    vow__named_handle_unref(a);
    (void)vow_reject_drop(result, vow_error_ref(why));
}

static void drop_handle(void *authority)
{
    vow_authority_unref(authority);
}

void vow__named_hub_ready(struct vow__named_hub *h, vow_store *store)
{
    h->store = store;
    const vow_store_events events = {.on_record = vow__named_entry_changed,
                                     .on_cancel = vow__named_lease_stop,
                                     .on_chunks = vow__named_chunks_changed,
                                     .on_permit = vow__named_permits_changed,
                                     .on_doubt = on_store_doubt,
                                     .user = h};
    store->ops->listen(store, &events);
    handle_attach(h->opening_handle);
    h->opening_handle = NULL;
    if (h->opts.recheck_ms == 0)
        h->opts.recheck_ms = store->ops->recheck_ms;
    if (h->opts.value_max == 0 || h->opts.value_max > store->ops->value_max)
        h->opts.value_max = store->ops->value_max;
}

static void on_store_doubt(void *hub)
{
    struct vow__named_hub *h = hub;
    struct vow__table_node *n = vow__table_next(&h->names, NULL);
    while (n != NULL && !h->closing) {
        struct vow__named_entry *e =
            VOW__OUTER(n, struct vow__named_entry, node);
        n = vow__table_next(&h->names, n);
        if (e->state == ENTRY_WAITING)
            vow__named_entry_claim_again(e);
        else if (e->state == ENTRY_CLAIMING)
            e->woken = true; /* the answer may be older than the doubt */
    }
    vow__named_permits_doubt(h);
}

/* ---- handles ------------------------------------------------------------ */

int vow_authority_join(vow_loop *loop, vow_authority *a,
                       vow_authority **ret_authority)
{
    if (!a->hub->threaded)
        return loop == a->loop ? VOW_EBUSY : VOW_EINVAL;
    if (a->closing)
        return VOW_ECLOSED;
    vow_authority *other = handle_new(loop, a->hub);
    if (other == NULL)
        return VOW_ENOMEM;
    int rc = vow__named_close_hook_add(other);
    (void)vow__named_handle_ref(other);    /* for the message */
    atomic_fetch_add(&a->hub->handles, 1); /* first: others may close */
    if (rc == 0)
        rc = vow_loop_post(a->hub->loop, handle_attach, other);
    if (rc < 0) {
        atomic_fetch_sub(&a->hub->handles, 1);
        vow__named_close_hook_remove(other);
        vow_future_unref(other->hook_future);
        vow__named_handle_unref(other);
        vow__named_handle_unref(other);
        return rc;
    }
    vow__named_close_hook_arm(other);
    *ret_authority = other;
    return 0;
}

static void handle_attach(void *authority)
{
    vow_authority *a = authority;
    vow__list_push(&a->hub->attached_handles, &a->in_hub);
    a->hub->n_attached++;
    a->attached = true;
    if (a != a->hub->opening_handle)
        vow__named_handle_unref(a);
}

vow_loop *vow_authority_loop(const vow_authority *a)
{
    return a->loop;
}

vow_authority *vow_authority_ref(vow_authority *a)
{
    if (a != NULL)
        atomic_fetch_add(&a->users, 1);
    return a;
}

vow_authority *vow_authority_unref(vow_authority *a)
{
    if (a == NULL || atomic_fetch_sub(&a->users, 1) > 1)
        return NULL;
    if (!a->closing && !vow_loop_closing(a->loop))
        vow_future_unref(vow_authority_close(a));
    a->closed = vow_future_unref(a->closed);
    a->hook_future = vow_future_unref(a->hook_future);
    vow__named_handle_unref(a);
    return NULL;
}

int vow__named_hub_run(vow_authority *a, vow_post_fn fn, void *arg)
{
    /* the hub's loop of a closing handle may be gone */
    if (!vow__named_is_hub_loop(a))
        return a->closing ? VOW_ECLOSED : vow_loop_post(a->hub->loop, fn, arg);
    fn(arg);
    return 0;
}

vow_authority_stats vow_authority_stats_get(vow_authority *a)
{
    VOW__ASSERT_THREAD(a->loop);
    struct vow__named_counts *c = &a->hub->counts;
    return (vow_authority_stats){.names = (size_t)c->names,
                                 .waiting = (size_t)c->waiting,
                                 .running = (size_t)c->running,
                                 .asked = c->asked,
                                 .claims = c->claims,
                                 .runs = c->runs,
                                 .joined = c->joined,
                                 .late = c->late,
                                 .lost = c->lost,
                                 .takeovers = c->takeovers,
                                 .refreshes = c->refreshes};
}

/* ---- closing ------------------------------------------------------------ */

vow_future *vow_authority_close_at(const char *site, vow_authority *a)
{
    VOW__ASSERT_THREAD_OF(a, a->loop);
    if (a->closing)
        return vow_future_ref(a->closed);
    if (vow__named_is_hub_loop(a)) {
        a->closing = true;
        (void)vow__named_handle_ref(a); /* until closed */
        vow__named_handle_close(a);
        return vow_future_ref(a->closed);
    }
    VOW_AUTO(vow_future)
    f = vow__named_settler_open(site, a->loop, a->hub->loop, &a->close_settler);
    (void)vow__named_handle_ref(a);
    int rc = vow_error_code(vow_error_of(f));
    if (rc == 0)
        rc = vow_loop_post(a->hub->loop, vow__named_handle_close, a);
    if (rc < 0) {
        vow__named_settler_drop(&a->close_settler);
        vow__named_handle_unref(a);
        return vow_refused_at(site, a->loop, rc, NULL);
    }
    a->closing = true;
    a->last = atomic_fetch_sub(&a->hub->handles, 1) == 1;
    vow__named_close_hook_remove(a);
    (void)vow__named_handle_ref(a); /* for join_thread() */
    a->closed = vow_finally_at(site, f, join_thread, a);
    if (vow_state_of(a->closed) == VOW_REJECTED) { /* no join_thread() */
        if (a->last)
            (void)pthread_detach(a->hub->thread);
        vow__named_handle_unref(a);
    }
    return vow_future_ref(a->closed);
}

void vow__named_handle_close(void *authority)
{
    vow_authority *a = authority;
    struct vow__named_hub *h = a->hub;
    if (a->attached)
        handle_detach(a);
    if (h->n_attached > 0 || h->closing) {
        vow__named_settler_resolve(&a->close_settler, vow_nothing());
        vow__named_handle_unref(a);
        return;
    }
    h->closing = true;
    h->closing_handle = a;
    /* Later: a caller may be using the table, and releases of permits that were
     * just given back are not sent yet. */
    vow_call_soon(&h->close_call, h->loop, close_store_when_quiet, h);
}

static void close_store_when_quiet(void *hub)
{
    struct vow__named_hub *h = hub;
    if (h->steps == 0)
        vow__named_hub_close_store(h);
    else
        vow_call_at(&h->close_call, h->loop, vow_loop_due_ns(h->loop, QUIET_MS),
                    vow__named_hub_close_store, h);
}

/* Settles all waiters of the handle, and gives leases and permits back. */
static void handle_detach(vow_authority *a)
{
    struct vow__named_hub *h = a->hub;
    vow__list_remove(&h->attached_handles, &a->in_hub);
    h->n_attached--;
    a->attached = false;
    /* first the waiters, which would claim the names that are given back */
    while (a->waiters != NULL)
        vow__named_waiter_refuse(
            VOW__OUTER(a->waiters, struct vow__named_waiter, in_handle),
            VOW_ECLOSED, "the authority was closed");
    struct vow__table_node *n = vow__table_next(&h->names, NULL);
    while (n != NULL) {
        struct vow__named_entry *e =
            VOW__OUTER(n, struct vow__named_entry, node);
        n = vow__table_next(&h->names, n);
        if (e->lease != NULL && e->lease->waiter->handle == a)
            vow__named_lease_yield(e->lease);
    }
    vow__named_permits_leave(h, a);
}

void vow__named_hub_close_store(void *hub)
{
    struct vow__named_hub *h = hub;
    vow_store *store = h->store;
    (void)vow_call_stop(&h->close_call);
    if (store == NULL || store == vow__named_store_closed())
        return;
    h->store = vow__named_store_closed();
    vow__named_permits_close(h);
    (void)vow__named_hub_ref(h);
    VOW_AUTO(vow_future) closed = store->ops->close(store);
    vow_future *f = vow_finally(closed, on_store_closed, h);
    if (vow_state_of(f) == VOW_REJECTED) /* the loop has no queue any more */
        (void)on_store_closed(h);
    (void)vow_error_of(f);
    vow_future_unref(f);
}

static vow_next on_store_closed(void *hub)
{
    struct vow__named_hub *h = hub;
    vow_authority *last = h->closing_handle;
    hub_free_names(h);
    if (h->threaded) {
        vow__named_thread_end(h); /* the thread settles closing_handle */
    } else {
        h->closing_handle = NULL;
        if (last != NULL) {
            vow__named_settler_resolve(&last->close_settler, vow_nothing());
            vow__named_handle_unref(last);
        }
    }
    vow__named_hub_unref(h);
    return vow_ok(vow_nothing());
}

static void hub_free_names(struct vow__named_hub *h)
{
    struct vow__table_node *n = vow__table_next(&h->names, NULL);
    while (n != NULL) {
        struct vow__named_entry *e =
            VOW__OUTER(n, struct vow__named_entry, node);
        n = vow__table_next(&h->names, n);
        if (e->lease != NULL) /* could not be given back */
            vow__named_lease_over(e->lease, false);
        vow__named_entry_free(e);
    }
    (void)vow_call_stop(&h->pulse_timer);
    vow__table_fini(&h->names);
}

/* Closes the hub when the user closes the loop first: too late to wait. */
static void on_loop_closing(vow_error *why, void *authority)
{
    vow_authority *a = authority;
    struct vow__named_hub *h = a->hub;
    (void)why;
    if (!vow_loop_closing(a->loop)) /* a user canceled the close */
        return;
    if (a->attached)
        handle_detach(a);
    h->closing = true;
    vow__named_hub_close_store(h);
    vow__named_settler_resolve(&a->close_settler, vow_nothing());
}

/* Joins the thread, which ends soon, if this handle was the last. */
static vow_next join_thread(void *authority)
{
    vow_authority *a = authority;
    if (a->last)
        (void)pthread_join(a->hub->thread, NULL);
    vow__named_handle_unref(a);
    return vow_ok(vow_nothing());
}

struct vow__named_hub *vow__named_hub_ref(struct vow__named_hub *h)
{
    vow__named_refs_up(&h->refs, h->threaded);
    return h;
}

void vow__named_hub_unref(void *hub)
{
    struct vow__named_hub *h = hub;
    if (!vow__named_refs_down(&h->refs, h->threaded))
        return;
    struct vow_alloc alloc = h->alloc;
    (void)pthread_mutex_destroy(&h->lock);
    vow__slab_fini(&h->entries);
    vow__slab_fini(&h->waiters);
    vow__slab_fini(&h->leases);
    vow__mem_free(&alloc, h->url, strlen(h->url) + 1);
    vow__mem_free(&alloc, h, sizeof(*h));
}

/* ---- helpers of all parts ----------------------------------------------- */

uint64_t vow__named_hub_now_ns(const struct vow__named_hub *h)
{
    if ((vow_loop_flags(h->loop) & VOW_LOOP_VIRTUAL_TIME) != 0)
        return vow_loop_now_ns(h->loop);
    return vow__clock_boot_ns();
}

uint64_t vow__named_hub_about_ns(struct vow__named_hub *h)
{
    uint64_t cycles = vow__clock_cycles();
    if (h->has_cycles && cycles - h->about_cycles < ABOUT_CYCLES)
        return h->about_ns;
    h->about_cycles = cycles;
    h->about_ns = vow__named_hub_now_ns(h);
    return h->about_ns;
}

void vow__named_step_begins(struct vow__named_hub *h)
{
    h->steps++;
}

void vow__named_step_ended(struct vow__named_hub *h, int code)
{
    VOW__ASSERT(h->steps > 0);
    h->steps--;
    if (code != VOW_ECLOSED && code != VOW_EAGAIN)
        vow__named_store_set_down(
            h, code == VOW_ESTORE || code == VOW_EUNSURE || code == VOW_ENOSPC,
            code);
    if (h->steps == 0 && h->closing && h->store != NULL &&
        h->store != vow__named_store_closed())
        vow_call_soon(&h->close_call, h->loop, vow__named_hub_close_store, h);
}

void vow__named_store_set_down(struct vow__named_hub *h, bool down, int code)
{
    const char *why = down ? vow__named_store_trouble(h) : NULL;
    if (down == h->down ||
        (!down && h->repeated_commits > 0)) /* commits still fail */
        return;
    h->down = down;
    if (!down)
        vow__named_entries_hurry(h);
    vow__named_hub_tell(h, down ? VOW_EVENT_DOWN : VOW_EVENT_UP,
                        &(vow_name){{0}}, 0, code,
                        why == NULL ? vow_error_text(code) : why);
}

const char *vow__named_store_trouble(const struct vow__named_hub *h)
{
    vow_store *s = h->store;
    const char *why =
        s == NULL || s->ops->explain == NULL ? "" : s->ops->explain(s);
    return why[0] == '\0' ? NULL : why;
}

void vow__named_hub_event(struct vow__named_hub *h, uint32_t kind,
                          const vow_name *name, uint64_t fence, int code,
                          const char *text)
{
    vow_event event = {.kind = kind,
                       .name = *name,
                       .fence = fence,
                       .code = code,
                       .text = text == NULL ? "" : text};
    h->opts.on_event(&event, h->opts.on_event_user);
}

void vow__named_token_make(struct vow__named_hub *h, vow_token *t)
{
    if (h->random_left < sizeof(*t)) {
        randombytes_buf(h->random, sizeof(h->random));
        h->random_left = sizeof(h->random);
    }
    h->random_left -= sizeof(*t);
    memcpy(t->bytes, h->random + h->random_left, sizeof(*t));
}
