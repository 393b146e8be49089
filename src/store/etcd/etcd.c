/* SPDX-License-Identifier: MIT */
/* etcd.c - the store on etcd: its door, and its end.
 *
 * WHY   Work that may happen only once needs a store that would rather not
 *       answer than answer wrongly.
 * HOW   See etcd_internal.h for the map. Opening reads the address and the
 *       files that it names; members are asked from the first step on. Closing
 *       ends all that is in flight, gives places back, and lets the parts go
 *       one behind another.
 *       A child by fork() has a store that answers VOW_ESTORE to all, and
 *       touches nothing that is its parent's.
 * INVARIANTS
 *   D1  it is freed from the loop's queue: nothing of it is on the stack
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_internal.h"
#include "store/etcd/etcd_names.h"

#include "base/clock.h"
#include "store/listener.h"
#include "vow/watch.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { INSTANCE = 16 /* bytes */ };

struct vow__etcd {
    vow_store store;
    vow_store_ops ops;
    vow_loop *loop;
    struct vow_alloc alloc;
    pid_t pid; /* who opened it */
    struct vow__etcd_where where;
    vow_store_events events;
    char inst[2 * INSTANCE + 1];
    struct vow__etcd_calls *calls;
    vow_store *names;
    struct vow__etcd_results *results;
    vow_deferred *closing; /* NULL: it is open */
    vow_future *names_left;
    vow_watch on_names;
    vow_call last;
    char why[VOW__ETCD_WHY];
};

static int store_new(vow_loop *loop, struct vow__etcd **ret_store);
static int prepare(struct vow__etcd *e, const char *url,
                   const vow_etcd_opts *opts);
static int open_parts(struct vow__etcd *e);
static void set_listener(vow_store *store, const vow_store_events *events);
static vow_future *close_store(vow_store *store);
static void close_names(struct vow__etcd *e);
static void let_go(struct vow__etcd *e);
static void on_names_left(vow_future *settled, void *user);
static void on_results_closed(struct vow__etcd *e);
static void on_calls_closed(struct vow__etcd *e);
static void on_last(void *user);
static void store_free(struct vow__etcd *e);

static const vow_store_ops operations = {
    .version = VOW_STORE_VERSION,
    .flags = VOW_STORE_STARTS | VOW_STORE_REFRESHES,
    .modes = 1u << VOW_SHARED | 1u << VOW_FENCED | 1u << VOW_ONCE,
    .value_advice = "--results ADDRESS keeps it elsewhere (redis://HOST, or on "
                    "one machine a folder)",
    .kind = "etcd",
    .listen = set_listener,
    .claim = vow__etcd_claim,
    .peek = vow__etcd_peek,
    .pulse = vow__etcd_pulse,
    .commit = vow__etcd_commit,
    .forget = vow__etcd_forget,
    .cancel = vow__etcd_cancel,
    .list = vow__etcd_list,
    .write = vow__etcd_write,
    .read = vow__etcd_read,
    .acquire = vow__etcd_acquire,
    .release = vow__etcd_release,
    .renew = vow__etcd_renew,
    .limit = vow__etcd_limit,
    .pools = vow__etcd_pools,
    .explain = vow__etcd_explain,
    .examine = vow__etcd_examine,
    .close = close_store,
};

/* ---- opening ------------------------------------------------------------- */

vow_future *vow_store_etcd_open_at(const char *site, vow_loop *loop,
                                   const char *url, const vow_etcd_opts *opts)
{
    VOW__ASSERT_THREAD(loop);
    struct vow__etcd *e;
    vow_deferred *d;
    int rc = store_new(loop, &e);
    if (rc < 0)
        return vow_refused_at(site, loop, rc, NULL);
    rc = prepare(e, url, opts);
    if (rc < 0) {
        vow_future *no =
            vow_refused_at(site, loop, rc, e->why[0] != 0 ? e->why : NULL);
        let_go(e);
        return no;
    }
    vow_future *f = vow_promise_at(site, loop, &d);
    if (!vow_deferred_pending(d)) { /* nobody will ever get it */
        vow_deferred_unref(d);
        let_go(e);
        return f;
    }
    (void)vow_resolve_drop(d, vow_ptr(&e->store));
    return f;
}

static int store_new(vow_loop *loop, struct vow__etcd **ret_store)
{
    struct vow_alloc alloc = *vow_loop_alloc(loop);
    if (sodium_init() < 0)
        return VOW_ENOTSUP;
    struct vow__etcd *e = vow__mem_zero(&alloc, sizeof(*e));
    if (e == NULL)
        return VOW_ENOMEM;
    e->loop = loop;
    e->alloc = alloc;
    e->pid = getpid();
    e->where.alloc = alloc;
    set_listener(&e->store, &(const vow_store_events){.user = NULL});
    *ret_store = e;
    return 0;
}

static int prepare(struct vow__etcd *e, const char *url,
                   const vow_etcd_opts *opts)
{
    unsigned char instance[INSTANCE];
    int rc = vow__etcd_where(url, opts, &e->alloc, &e->where, e->why,
                             sizeof(e->why));
    if (rc == 0)
        rc = open_parts(e);
    if (rc < 0)
        return rc;
    randombytes_buf(instance, sizeof(instance));
    (void)sodium_bin2hex(e->inst, sizeof(e->inst), instance, sizeof(instance));
    e->ops = operations;
    e->ops.recheck_ms = e->where.recheck_ms;
    e->ops.value_max =
        e->where.results == NULL ? e->where.value_max : VOW__ETCD_RESULTS_MAX;
    e->store.ops = &e->ops;
    return 0;
}

static int open_parts(struct vow__etcd *e)
{
    int rc = vow__calls_open(e, &e->calls, e->why, sizeof(e->why));
    if (rc == 0)
        rc = vow__results_open(e, &e->results);
    if (rc == 0)
        rc = vow__etcd_names_open(e, &e->names);
    return rc;
}

/* ---- what is told -------------------------------------------------------- */

static void set_listener(vow_store *store, const vow_store_events *events)
{
    struct vow__etcd *e = vow__etcd_of(store);
    e->events = vow__listener(events);
    if (e->names != NULL && e->closing == NULL)
        e->names->ops->listen(e->names, &e->events);
}

void vow__etcd_trouble(struct vow__etcd *e, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(e->why, sizeof(e->why), format, args);
    va_end(args);
}

void vow__etcd_late(struct vow__etcd *e)
{
    vow__etcd_trouble(e, "%s did not answer within %llu ms", e->where.shown,
                      (unsigned long long)e->where.timeout_ms);
}

const char *vow__etcd_explain(vow_store *s)
{
    return vow__etcd_of(s)->why;
}

/* ---- what the parts share ------------------------------------------------ */

const struct vow_alloc *vow__etcd_alloc(const struct vow__etcd *e)
{
    return &e->alloc;
}

vow_loop *vow__etcd_loop(const struct vow__etcd *e)
{
    return e->loop;
}

const struct vow__etcd_where *vow__etcd_where_of(const struct vow__etcd *e)
{
    return &e->where;
}

const char *vow__etcd_inst(const struct vow__etcd *e)
{
    return e->inst;
}

uint64_t vow__etcd_wall_us(void)
{
    return vow__clock_date_us();
}

struct vow__etcd *vow__etcd_of(vow_store *s)
{
    return VOW__OUTER(s, struct vow__etcd, store);
}

vow_store *vow__etcd_store(struct vow__etcd *e)
{
    return &e->store;
}

bool vow__etcd_closing(const struct vow__etcd *e)
{
    return e->closing != NULL;
}

int vow__etcd_usable(struct vow__etcd *e)
{
    if (getpid() != e->pid) {
        vow__etcd_trouble(e, "a store does not survive a fork: open it again "
                             "in the child");
        return VOW_ESTORE;
    }
    return e->closing == NULL ? 0 : VOW_ECLOSED;
}

struct vow__etcd_calls *vow__etcd_calls(struct vow__etcd *e)
{
    return e->calls;
}

vow_store *vow__etcd_names(struct vow__etcd *e)
{
    return e->names;
}

struct vow__etcd_results *vow__etcd_results(struct vow__etcd *e)
{
    return e->results;
}

/* ---- closing ------------------------------------------------------------- */

static vow_future *close_store(vow_store *store)
{
    struct vow__etcd *e = vow__etcd_of(store);
    if (getpid() != e->pid) /* sockets and handles: all is the parent's */
        return vow_resolved(e->loop, vow_nothing());
    vow_future *f = vow_promise(e->loop, &e->closing);
    set_listener(store, &(const vow_store_events){.user = NULL});
    vow__calls_leave(e->calls);
    vow__results_leave(e->results);
    close_names(e);
    return f;
}

static void close_names(struct vow__etcd *e)
{
    e->names_left = e->names->ops->close(e->names);
    e->names = NULL;
    vow_watch_start(&e->on_names, e->names_left, on_names_left, e);
}

/* It was never anybody's. */
static void let_go(struct vow__etcd *e)
{
    if (e->names != NULL)
        close_names(e);
    else if (e->results != NULL)
        vow__results_close(e->results, on_results_closed);
    else
        on_results_closed(e);
}

static void on_names_left(vow_future *settled, void *user)
{
    struct vow__etcd *e = user;
    (void)settled;
    e->names_left = vow_future_unref(e->names_left);
    let_go(e);
}

static void on_results_closed(struct vow__etcd *e)
{
    e->results = NULL;
    if (e->calls != NULL)
        vow__calls_close(e->calls, on_calls_closed);
    else
        on_calls_closed(e);
}

static void on_calls_closed(struct vow__etcd *e)
{
    e->calls = NULL;
    vow_call_soon(&e->last, e->loop, on_last, e);
}

/* Keeps D1. */
static void on_last(void *user)
{
    struct vow__etcd *e = user;
    vow_deferred *d = e->closing;
    store_free(e);
    if (d != NULL)
        (void)vow_resolve_drop(d, vow_nothing());
}

static void store_free(struct vow__etcd *e)
{
    struct vow_alloc alloc = e->alloc;
    vow__etcd_where_fini(&e->where);
    sodium_memzero(e, sizeof(*e));
    vow__mem_free(&alloc, e, sizeof(*e));
}
