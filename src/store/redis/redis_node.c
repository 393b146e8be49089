/* SPDX-License-Identifier: MIT */
/* redis_node.c - connects to a server, and connects again.
 *
 *     IDLE -> SEEKS -> CONNECTS -> READY
 *       \______^/         |  ^       |
 *                         v  |       v
 *                        RESTS <-----+
 *
 * WHY   A server that is down must cost no step time, a restart or a new master
 *       should hardly be noticed, and many clients must not overload a server
 *       that comes back.
 * HOW   Between tries there is a rest that doubles, with chance in the rest,
 *       from 20 ms to 2 s; a step that needs the server calls for the next try
 *       sooner, but not before 20 ms have passed since the last try. Several
 *       hosts are one try.
 *       A failure is not told for timeout_ms, from the first try or from the
 *       loss of the connection: steps wait. Later, steps fail at once with the
 *       reason of the last try. A failure that another try does not mend (a
 *       password) is told at once, and tried again every 2 s only.
 * INVARIANTS
 *   N1  there is a connection exactly in CONNECTS and READY
 *   N2  in RESTS the next try is pending
 * THREADS  loop thread only.
 */
#include "base/clock.h"
#include "base/sm.h"
#include "store/redis/redis_route.h"

#include <stdio.h>
#include <string.h>

#define TO(state) VOW__TO(VOW__NODE_##state)
static const uint8_t moves[] = {
    [VOW__NODE_IDLE] = TO(SEEKS) | TO(CONNECTS) | TO(RESTS) | TO(CLOSED),
    [VOW__NODE_SEEKS] = TO(CONNECTS) | TO(RESTS) | TO(CLOSED),
    [VOW__NODE_CONNECTS] = TO(READY) | TO(RESTS) | TO(CLOSED),
    [VOW__NODE_READY] = TO(IDLE) | TO(RESTS) | TO(CLOSED),
    [VOW__NODE_RESTS] =
        TO(IDLE) | TO(SEEKS) | TO(CONNECTS) | TO(RESTS) | TO(CLOSED),
    [VOW__NODE_CLOSED] = TO(CLOSED),
};

enum { STEADY_NS = 1000 * VOW__NS_PER_MS };

static void begin(struct vow__node *n);
static void connect_to(struct vow__node *n, const char *host, uint16_t port);
static void next_host(struct vow__node *n);
static size_t hosts(const struct vow__node *n);
static void on_ready(const struct vow__greeting *g, void *user);
static void on_push(const struct vow__resp *push, void *user);
static void on_end(bool for_good, const char *why, void *user);
static void on_drop(void *user);
static void lost_link(struct vow__node *n, const char *why);
static void failed_try(struct vow__node *n, bool for_good, const char *why);
static void tell(struct vow__node *n, const char *why);
static void rest(struct vow__node *n, uint64_t ns);
static void on_again(void *user);
static uint64_t pause_ns(struct vow__node *n);

void vow__node_init(struct vow__node *n, struct vow__redis_route *route)
{
    *n = (struct vow__node){.route = route};
}

int vow__node_at(struct vow__node *n, const char *host, uint16_t port)
{
    const struct vow_alloc *alloc = &n->route->alloc;
    size_t size = strlen(host) + 1;
    char *copy = vow__mem_new(alloc, size);
    if (copy == NULL)
        return VOW_ENOMEM;
    memcpy(copy, host, size);
    if (n->host != NULL)
        vow__mem_free(alloc, n->host, strlen(n->host) + 1);
    n->host = copy;
    n->port = port;
    return 0;
}

void vow__node_fini(struct vow__node *n)
{
    if (n->host != NULL)
        vow__mem_free(&n->route->alloc, n->host, strlen(n->host) + 1);
    n->host = NULL;
}

void vow__node_close(struct vow__node *n, int code)
{
    struct vow__link *l = n->link;
    vow__sm_move(&n->state, VOW__NODE_CLOSED, moves);
    n->link = NULL;
    (void)vow_call_stop(&n->again);
    (void)vow_call_stop(&n->drop);
    if (l != NULL)
        vow__link_close(l, code);
}

bool vow__node_is_down(const struct vow__node *n)
{
    return n->failed &&
           (n->for_good || vow_loop_now_ns(n->route->loop) >= n->patient_ns);
}

/* ---- trying -------------------------------------------------------------- */

void vow__node_want(struct vow__node *n)
{
    const struct vow__redis_route *route = n->route;
    uint64_t now_ns = vow_loop_now_ns(route->loop);
    if (n->state == VOW__NODE_IDLE) {
        n->patient_ns = vow_loop_due_ns(route->loop, route->where->timeout_ms);
        begin(n);
    } else if (n->state == VOW__NODE_RESTS && !n->for_good) {
        uint64_t soonest_ns =
            n->tried_ns + (uint64_t)VOW__TRY_MS * VOW__NS_PER_MS;
        if (soonest_ns < now_ns)
            soonest_ns = now_ns;
        if (soonest_ns < n->again_ns)
            rest(n, soonest_ns - now_ns);
    }
}

static void begin(struct vow__node *n)
{
    struct vow__redis_route *route = n->route;
    n->tried_ns = vow_loop_now_ns(route->loop);
    if (n->in_round == 0)
        n->in_round = hosts(n);
    if (!n->is_main) {
        connect_to(n, n->host, n->port);
    } else if (route->sentinel != NULL) {
        vow__sm_move(&n->state, VOW__NODE_SEEKS, moves);
        vow__sentinel_seek(route->sentinel, n->failed);
    } else {
        next_host(n);
    }
}

/* Those of the address, then those that the cluster has. */
static void next_host(struct vow__node *n)
{
    const struct vow__redis_where *w = n->route->where;
    const struct vow__node *other = NULL;
    size_t at = n->turn++ % hosts(n);
    if (w->path != NULL) {
        connect_to(n, NULL, 0);
        return;
    }
    if (at >= w->n_hosts)
        other = vow__cluster_at(n->route->cluster, at - w->n_hosts);
    if (other != NULL && !other->gone)
        connect_to(n, other->host, other->port);
    else
        connect_to(n, w->hosts[at % w->n_hosts].host,
                   w->hosts[at % w->n_hosts].port);
}

/* How many next_host() knows. */
static size_t hosts(const struct vow__node *n)
{
    const struct vow__redis_route *route = n->route;
    if (!n->is_main || route->sentinel != NULL || route->where->path != NULL)
        return 1;
    return route->where->n_hosts +
           (route->cluster == NULL ? 0 : vow__cluster_size(route->cluster));
}

static void connect_to(struct vow__node *n, const char *host, uint16_t port)
{
    struct vow__link_opts o;
    struct vow__link *l;
    if (host != NULL && host != n->host && vow__node_at(n, host, port) < 0) {
        failed_try(n, false, "out of memory");
        return;
    }
    vow__route_to(n->route, host, port, &o);
    vow__link_name(&o.to, n->name, sizeof(n->name));
    o.channel = n->is_main ? vow__redis_channel(n->route->r) : NULL;
    int rc = vow__link_open(n->route->loop, &o,
                            &(const struct vow__link_events){
                                .on_ready = on_ready,
                                .on_push = on_push,
                                .on_end = on_end,
                                .user = n,
                            },
                            &l);
    if (rc < 0) {
        failed_try(n, false, "out of memory");
        return;
    }
    vow__sm_move(&n->state, VOW__NODE_CONNECTS, moves);
    n->link = l; /* keeps N1 */
}

void vow__node_found(struct vow__node *n, const char *host, uint16_t port)
{
    if (n->state != VOW__NODE_SEEKS)
        return;
    if (vow__node_at(n, host, port) < 0)
        failed_try(n, false, "out of memory");
    else
        connect_to(n, n->host, n->port);
}

void vow__node_lost(struct vow__node *n, bool for_good, const char *why)
{
    if (n->state == VOW__NODE_SEEKS)
        failed_try(n, for_good, why);
}

/* ---- what the link says -------------------------------------------------- */

static void on_ready(const struct vow__greeting *g, void *user)
{
    struct vow__node *n = user;
    vow__sm_move(&n->state, VOW__NODE_READY, moves);
    n->server = *g;
    n->failed = false;
    n->for_good = false;
    n->in_round = 0;
    n->ready_ns = vow_loop_now_ns(n->route->loop);
    vow__route_ready(n->route, n);
}

static void on_push(const struct vow__resp *push, void *user)
{
    struct vow__node *n = user;
    if (n->is_main)
        vow__redis_push(n->route->r, push);
}

static void on_end(bool for_good, const char *why, void *user)
{
    struct vow__node *n = user;
    struct vow__link *l = n->link;
    bool was_ready = n->state == VOW__NODE_READY;
    n->link = NULL;
    if (was_ready)
        lost_link(n, why);
    else
        failed_try(n, for_good, why);
    vow__link_close(l, VOW_ECLOSED); /* nothing waits for an answer */
}

void vow__node_drop(struct vow__node *n, const char *why)
{
    if (n->link == NULL || vow_call_pending(&n->drop))
        return;
    (void)snprintf(n->why, sizeof(n->why), "%s", why);
    vow_call_soon(&n->drop, n->route->loop, on_drop, n);
}

static void on_drop(void *user)
{
    struct vow__node *n = user;
    struct vow__link *l = n->link;
    if (l == NULL)
        return;
    n->link = NULL;
    if (n->state == VOW__NODE_READY)
        lost_link(n, NULL);
    else
        failed_try(n, false, NULL);
    vow__link_close(l, VOW_EUNSURE);
}

void vow__node_sleep(struct vow__node *n)
{
    struct vow__link *l = n->link;
    if (n->state == VOW__NODE_READY && vow__link_busy(l) == 0) {
        vow__sm_move(&n->state, VOW__NODE_IDLE, moves);
        n->link = NULL;
        (void)vow_call_stop(&n->drop);
        vow__link_close(l, VOW_ECLOSED);
    }
}

static void lost_link(struct vow__node *n, const char *why)
{
    struct vow__redis_route *route = n->route;
    uint64_t now_ns = vow_loop_now_ns(route->loop);
    uint64_t soonest_ns = n->tried_ns + (uint64_t)VOW__TRY_MS * VOW__NS_PER_MS;
    (void)vow_call_stop(&n->drop);
    tell(n, why);
    if (now_ns - n->ready_ns >= STEADY_NS)
        n->tries = 0;
    n->patient_ns = vow_loop_due_ns(route->loop, route->where->timeout_ms);
    uint64_t ns =
        n->tries == 0 ? vow_loop_random(route->loop) % 4000000 : pause_ns(n);
    n->tries++;
    if (now_ns + ns < soonest_ns)
        ns = soonest_ns - now_ns;
    rest(n, ns);
    if (!n->is_main && route->cluster != NULL)
        vow__cluster_refresh(route->cluster);
}

static void failed_try(struct vow__node *n, bool for_good, const char *why)
{
    struct vow__redis_route *route = n->route;
    (void)vow_call_stop(&n->drop);
    tell(n, why);
    if (n->in_round > 0 && --n->in_round > 0) {
        rest(n, 0);
        return;
    }
    n->failed = true;
    n->for_good = for_good;
    rest(n,
         for_good ? (uint64_t)VOW__TRY_MS_MAX * VOW__NS_PER_MS : pause_ns(n));
    n->tries++;
    if (!n->is_main && route->cluster != NULL)
        vow__cluster_refresh(route->cluster);
    vow__route_review_soon(route);
}

/* NULL: it was told before. */
static void tell(struct vow__node *n, const char *why)
{
    if (why != NULL)
        (void)snprintf(n->why, sizeof(n->why), "%s", why);
}

/* ---- resting ------------------------------------------------------------- */

static void rest(struct vow__node *n, uint64_t ns)
{
    vow_loop *loop = n->route->loop;
    vow__sm_move(&n->state, VOW__NODE_RESTS, moves);
    n->again_ns = vow_loop_now_ns(loop) + ns;
    if (ns == 0)
        vow_call_soon(&n->again, loop, on_again, n);
    else
        vow_call_weakly_at(&n->again, loop, n->again_ns, on_again, n);
}

static void on_again(void *user)
{
    struct vow__node *n = user;
    if (n->gone)
        vow__sm_move(&n->state, VOW__NODE_IDLE, moves);
    else
        begin(n);
}

/* Between a half and the whole of what doubles. */
static uint64_t pause_ns(struct vow__node *n)
{
    uint64_t ms = VOW__TRY_MS;
    for (unsigned i = 0; i < n->tries && ms < VOW__TRY_MS_MAX; i++)
        ms *= 2;
    if (ms > VOW__TRY_MS_MAX)
        ms = VOW__TRY_MS_MAX;
    uint64_t half_ns = ms * VOW__NS_PER_MS / 2;
    return half_ns + vow_loop_random(n->route->loop) % (half_ns + 1);
}
