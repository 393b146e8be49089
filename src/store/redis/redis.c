/* SPDX-License-Identifier: MIT */
/* redis.c - opening and closing the store on Redis.
 *
 * WHY   Processes on many machines share work over a server that is there
 *       already.
 * HOW   See redis_internal.h for the map. Opening reads the address and the
 *       files named there; from then on the route connects. Closing ends all
 *       steps, releases the permits and closes the connections; the memory of
 *       the connections is freed in the next turns of the loop. In a child by
 *       fork(), the store answers VOW_ESTORE to all steps, and does not touch
 *       the connections of the parent.
 * INVARIANTS
 *   D1  the store is freed from the loop's queue, without fibers: no function
 *       of the store is on a stack
 * THREADS  loop thread only.
 */
#include "store/listener.h"
#include "store/redis/redis_route.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { INSTANCE = 16 /* bytes */ };

struct vow__redis {
    vow_store store;
    vow_store_ops ops;
    vow_loop *loop;
    struct vow_alloc alloc;
    pid_t pid; /* of the process that opened the store */
    struct vow__redis_where where;
    vow_store_events events;
    char *channel; /* owned */
    size_t channel_size;
    struct vow__redis_route *route;
    char runner[VOW_LABEL_MAX + 1]; /* of the last claim */
    struct vow__redis_places *places;
    vow_deferred *closing; /* NULL: the store is open */
    size_t users;          /* fibers, and 1 until the permits are released */
    vow_call last;
    char why[VOW__REDIS_WHY];
};

static int store_new(vow_loop *loop, struct vow__redis **ret_store);
static int prepare(struct vow__redis *r, const char *url,
                   const vow_redis_opts *opts);
static int name_channel(struct vow__redis *r);
static void set_listener(vow_store *store, const vow_store_events *events);
static vow_future *close_store(vow_store *store);
static void on_left(struct vow__redis *r);
static void on_last(void *user);
static void store_free(struct vow__redis *r);

static const vow_store_ops operations = {
    .version = VOW_STORE_VERSION,
    .modes = 1u << VOW_SHARED,
    .flags = VOW_STORE_STARTS | VOW_STORE_REFRESHES,
    .kind = "redis",
    .listen = set_listener,
    .claim = vow__redis_claim,
    .peek = vow__redis_peek,
    .pulse = vow__redis_pulse,
    .commit = vow__redis_commit,
    .forget = vow__redis_forget,
    .cancel = vow__redis_cancel,
    .list = vow__redis_list,
    .write = vow__redis_write,
    .read = vow__redis_read,
    .acquire = vow__redis_acquire,
    .release = vow__redis_release,
    .renew = vow__redis_renew,
    .limit = vow__redis_limit,
    .pools = vow__redis_pools,
    .explain = vow__redis_explain,
    .examine = vow__redis_examine,
    .close = close_store,
};

/* ---- opening ------------------------------------------------------------- */

vow_future *vow_store_redis_open_at(const char *site, vow_loop *loop,
                                    const char *url, const vow_redis_opts *opts)
{
    VOW__ASSERT_THREAD(loop);
    struct vow__redis *r;
    vow_deferred *d;
    int rc = store_new(loop, &r);
    if (rc < 0)
        return vow_refused_at(site, loop, rc, NULL);
    rc = prepare(r, url, opts);
    if (rc < 0) {
        vow_future *no =
            vow_refused_at(site, loop, rc, r->why[0] != 0 ? r->why : NULL);
        store_free(r);
        return no;
    }
    vow_future *f = vow_promise_at(site, loop, &d);
    if (!vow_deferred_pending(d)) { /* no memory, or the loop closes */
        vow_deferred_unref(d);
        store_free(r);
        return f;
    }
    vow__route_start(r->route);
    (void)vow_resolve_drop(d, vow_ptr(&r->store));
    return f;
}

static int store_new(vow_loop *loop, struct vow__redis **ret_store)
{
    struct vow_alloc alloc = *vow_loop_alloc(loop);
    if (sodium_init() < 0)
        return VOW_ENOTSUP;
    struct vow__redis *r = vow__mem_zero(&alloc, sizeof(*r));
    if (r == NULL)
        return VOW_ENOMEM;
    r->loop = loop;
    r->alloc = alloc;
    r->pid = getpid();
    r->users = 1;
    r->where.alloc = alloc;
    set_listener(&r->store, &(const vow_store_events){.user = NULL});
    *ret_store = r;
    return 0;
}

static int prepare(struct vow__redis *r, const char *url,
                   const vow_redis_opts *opts)
{
    int rc = vow__redis_where(url, opts, &r->alloc, &r->where, r->why,
                              sizeof(r->why));
    if (rc == 0)
        rc = name_channel(r);
    if (rc == 0)
        rc = vow__redis_places_open(r, &r->places);
    if (rc == 0)
        rc = vow__route_open(r, &r->route);
    if (rc < 0)
        return rc;
    r->ops = operations;
    r->ops.recheck_ms = r->where.recheck_ms;
    r->ops.value_max = r->where.value_max;
    r->store.ops = &r->ops;
    return 0;
}

static int name_channel(struct vow__redis *r)
{
    unsigned char instance[INSTANCE];
    char hex[2 * INSTANCE + 1];
    randombytes_buf(instance, sizeof(instance));
    (void)sodium_bin2hex(hex, sizeof(hex), instance, sizeof(instance));
    r->channel_size = strlen(r->where.prefix) + sizeof("i:") - 1 + sizeof(hex);
    r->channel = vow__mem_new(&r->alloc, r->channel_size);
    if (r->channel == NULL)
        return VOW_ENOMEM;
    (void)snprintf(r->channel, r->channel_size, "%si:%s", r->where.prefix, hex);
    return 0;
}

/* ---- events and failures ------------------------------------------------- */

static void set_listener(vow_store *store, const vow_store_events *events)
{
    vow__redis_of(store)->events = vow__listener(events);
}

void vow__redis_trouble(struct vow__redis *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(r->why, sizeof(r->why), format, args);
    va_end(args);
}

const char *vow__redis_explain(vow_store *s)
{
    return vow__redis_of(s)->why;
}

/* ---- shared by the parts ------------------------------------------------- */

const struct vow_alloc *vow__redis_alloc(const struct vow__redis *r)
{
    return &r->alloc;
}

vow_loop *vow__redis_loop(const struct vow__redis *r)
{
    return r->loop;
}

const struct vow__redis_where *vow__redis_where_of(const struct vow__redis *r)
{
    return &r->where;
}

const char *vow__redis_channel(const struct vow__redis *r)
{
    return r->channel;
}

const vow_store_events *vow__redis_events(const struct vow__redis *r)
{
    return &r->events;
}

struct vow__redis *vow__redis_of(vow_store *s)
{
    return VOW__OUTER(s, struct vow__redis, store);
}

struct vow__redis_route *vow__redis_route(struct vow__redis *r)
{
    return r->route;
}

char *vow__redis_runner(struct vow__redis *r)
{
    return r->runner;
}

struct vow__redis_places *vow__redis_places(struct vow__redis *r)
{
    return r->places;
}

bool vow__redis_is_ours(struct vow__redis *r)
{
    if (getpid() == r->pid)
        return true;
    vow__redis_trouble(r, "a store does not survive a fork: open it again in "
                          "the child");
    return false;
}

/* ---- closing ------------------------------------------------------------- */

static vow_future *close_store(vow_store *store)
{
    struct vow__redis *r = vow__redis_of(store);
    if (getpid() != r->pid) /* sockets and handles are the parent's */
        return vow_resolved(r->loop, vow_nothing());
    vow_future *f = vow_promise(r->loop, &r->closing);
    set_listener(store, &(const vow_store_events){.user = NULL});
    vow__route_leave(r->route);
    vow__redis_places_leave(r, on_left);
    return f;
}

static void on_left(struct vow__redis *r)
{
    vow__route_close(r->route);
    vow__redis_drop(r);
}

int vow__redis_hold(struct vow__redis *r)
{
    if (!vow__redis_is_ours(r))
        return VOW_ESTORE;
    if (r->closing != NULL)
        return VOW_ECLOSED;
    r->users++;
    return 0;
}

void vow__redis_drop(struct vow__redis *r)
{
    if (--r->users == 0)
        vow_call_soon(&r->last, r->loop, on_last, r);
}

/* Keeps D1. */
static void on_last(void *user)
{
    struct vow__redis *r = user;
    vow_deferred *d = r->closing;
    store_free(r);
    (void)vow_resolve_drop(d, vow_nothing());
}

static void store_free(struct vow__redis *r)
{
    struct vow_alloc alloc = r->alloc;
    if (r->route != NULL)
        vow__route_free(r->route);
    vow__redis_places_close(r->places);
    vow__redis_where_fini(&r->where);
    vow__mem_free(&alloc, r->channel, r->channel_size);
    sodium_memzero(r, sizeof(*r));
    vow__mem_free(&alloc, r, sizeof(*r));
}
