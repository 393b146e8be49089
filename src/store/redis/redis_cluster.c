/* SPDX-License-Identifier: MIT */
/* redis_cluster.c - the node of a cluster that has a key.
 *
 *     key -> text in braces -> CRC16 -> one of 16384 slots -> node
 *
 * WHY   The nodes of a cluster share the keys, and move keys that are in use. A
 *       call goes straight to the node with the slot.
 * HOW   Main, which may be any node, is asked for the map and listened to: a
 *       message reaches all nodes. The other nodes are connected when needed.
 *       The map is asked for again after an error of the map: a node said
 *       MOVED, a node is gone, or a slot has no node. MOVED itself mends one
 *       slot at once; ASK is for one call only.
 * INVARIANTS
 *   L1  a slot has no node, or a node below n
 *   L2  a node keeps the number as long as the cluster lives; another node gets
 *       the number only if the node left the cluster and has no connection
 * LIMITS  1024 nodes. A call goes from node to node eight times at most.
 * THREADS  loop thread only.
 */
#include "base/clock.h"
#include "store/redis/redis_route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = 1024, HOST_MAX = 256, HASTY_HOPS = 2 };

struct vow__cluster {
    struct vow__redis_route *route;
    struct vow__node *nodes[NODES];
    size_t n;
    uint16_t slots[VOW__SLOTS]; /* number of the node, or VOW__NO_NODE */
    bool known;                 /* the map was seen */
    bool asked;                 /* for it, and not answered */
    bool closed;
    uint64_t not_before_ns; /* it is asked for again */
    vow_call again;
};

static void on_again(void *user);
static void on_map(int code, const struct vow__resp *reply, void *user);
static size_t count_slots(const struct vow__resp *map);
static void take_map(struct vow__cluster *c, const struct vow__resp *map);
static void take_range(struct vow__cluster *c, const struct vow__resp *range);
static uint16_t node_at(struct vow__cluster *c, const char *host,
                        uint16_t port);
static struct vow__node *free_place(struct vow__cluster *c, size_t *ret_at);
static bool read_host(const struct vow__resp *v, const struct vow__node *from,
                      char *host);
static bool read_target(const struct vow__resp *error,
                        const struct vow__node *from, char *host,
                        unsigned long *ret_numbers);

int vow__cluster_open(struct vow__redis_route *route,
                      struct vow__cluster **ret_cluster)
{
    struct vow__cluster *c = vow__mem_zero(&route->alloc, sizeof(*c));
    if (c == NULL)
        return VOW_ENOMEM;
    c->route = route;
    for (size_t i = 0; i < VOW__SLOTS; i++)
        c->slots[i] = VOW__NO_NODE;
    *ret_cluster = c;
    return 0;
}

void vow__cluster_close(struct vow__cluster *c)
{
    c->closed = true;
    (void)vow_call_stop(&c->again);
    for (size_t i = 0; i < c->n; i++)
        vow__node_close(c->nodes[i], VOW_ECLOSED);
}

void vow__cluster_free(struct vow__cluster *c)
{
    struct vow_alloc alloc = c->route->alloc;
    for (size_t i = 0; i < c->n; i++) {
        vow__node_fini(c->nodes[i]);
        vow__mem_free(&alloc, c->nodes[i], sizeof(*c->nodes[i]));
    }
    vow__mem_free(&alloc, c, sizeof(*c));
}

/* ---- asking -------------------------------------------------------------- */

bool vow__cluster_is_known(const struct vow__cluster *c)
{
    return c->known;
}

struct vow__node *vow__cluster_of(struct vow__cluster *c, uint16_t slot)
{
    uint16_t at = c->slots[slot];
    return at == VOW__NO_NODE ? NULL : c->nodes[at];
}

struct vow__node *vow__cluster_at(struct vow__cluster *c, size_t number)
{
    return number < c->n ? c->nodes[number] : NULL;
}

size_t vow__cluster_size(const struct vow__cluster *c)
{
    return c->n;
}

/* CRC16 of the XMODEM kind, four bits at a time. */
uint16_t vow__slot_of(const char *tag, size_t n)
{
    static const uint16_t table[] = {
        0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
        0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef};
    unsigned crc = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned byte = (unsigned char)tag[i];
        crc = (crc << 4 ^ table[(crc >> 12 ^ byte >> 4) & 15]) & 0xffff;
        crc = (crc << 4 ^ table[(crc >> 12 ^ byte) & 15]) & 0xffff;
    }
    return (uint16_t)(crc % VOW__SLOTS);
}

/* ---- the map ------------------------------------------------------------- */

/* Not more often than main may be tried. */
void vow__cluster_refresh(struct vow__cluster *c)
{
    struct vow__redis_route *route = c->route;
    struct vow__node *main = &route->main;
    struct vow__buf ask;
    if (c->asked || c->closed)
        return;
    if (vow_loop_now_ns(route->loop) < c->not_before_ns) {
        vow_call_weakly_at(&c->again, route->loop, c->not_before_ns, on_again,
                           c);
        return;
    }
    if (main->state != VOW__NODE_READY) { /* it is asked when it is */
        vow__node_want(main);
        return;
    }
    c->asked = true;
    c->not_before_ns = vow_loop_due_ns(route->loop, VOW__TRY_MS);
    vow__command_init(&ask, &route->alloc);
    vow__command_begin(&ask, 2);
    vow__command_text(&ask, "CLUSTER");
    vow__command_text(&ask, "SLOTS");
    vow__link_send(main->link, &ask, on_map, c);
    vow__buf_fini(&ask);
}

static void on_again(void *user)
{
    vow__cluster_refresh(user);
}

static void on_map(int code, const struct vow__resp *reply, void *user)
{
    struct vow__cluster *c = user;
    struct vow__node *main = &c->route->main;
    char words[VOW__REDIS_WORDS];
    char why[VOW__REDIS_WHY];
    c->asked = false;
    if (code != 0) {
        if (code == VOW_ENOMEM)
            vow__cluster_refresh(c);
        return; /* main was lost, and is asked when it is back */
    }
    if (reply->kind == VOW__RESP_ERROR) {
        vow__error_words(reply, words, sizeof(words));
        (void)snprintf(why, sizeof(why), "%s: %s", main->name, words);
        vow__node_drop(main, why);
    } else if (c->known && count_slots(reply) == 0) {
        (void)snprintf(why, sizeof(why), "%s does not belong to the cluster",
                       main->name);
        vow__node_drop(main, why);
    } else {
        take_map(c, reply);
        vow__route_review_soon(c->route);
    }
}

static size_t count_slots(const struct vow__resp *map)
{
    size_t n = 0;
    for (size_t i = 0; map->kind == VOW__RESP_LIST && i < map->n; i++)
        n += vow__resp_at(vow__resp_at(map, i), 2)->kind == VOW__RESP_LIST;
    return n;
}

static void take_map(struct vow__cluster *c, const struct vow__resp *map)
{
    for (size_t i = 0; i < c->n; i++)
        c->nodes[i]->gone = true;
    for (size_t i = 0; i < VOW__SLOTS; i++)
        c->slots[i] = VOW__NO_NODE;
    for (size_t i = 0; map->kind == VOW__RESP_LIST && i < map->n; i++)
        take_range(c, vow__resp_at(map, i));
    for (size_t i = 0; i < c->n; i++)
        if (c->nodes[i]->gone)
            vow__node_sleep(c->nodes[i]);
}

/* First slot, last slot, (host, port, id ...) of the master, and of replicas */
static void take_range(struct vow__cluster *c, const struct vow__resp *range)
{
    char host[HOST_MAX];
    const struct vow__resp *master = vow__resp_at(range, 2);
    uint64_t from = vow__resp_uint(vow__resp_at(range, 0), VOW__SLOTS);
    uint64_t to = vow__resp_uint(vow__resp_at(range, 1), VOW__SLOTS);
    uint64_t port = vow__resp_uint(vow__resp_at(master, 1), 0);
    if (from > to || to >= VOW__SLOTS || port == 0 || port > UINT16_MAX ||
        !read_host(vow__resp_at(master, 0), &c->route->main, host))
        return;
    uint16_t at = node_at(c, host, (uint16_t)port);
    for (uint64_t slot = from; slot <= to && at != VOW__NO_NODE; slot++)
        c->slots[slot] = at;
    c->known = c->known || at != VOW__NO_NODE;
}

/* The number of this node, which may be a new one; VOW__NO_NODE: no memory, or
 * too many. */
static uint16_t node_at(struct vow__cluster *c, const char *host, uint16_t port)
{
    size_t at;
    for (at = 0; at < c->n; at++) {
        struct vow__node *n = c->nodes[at];
        if (n->port != port || strcmp(n->host, host) != 0)
            continue;
        n->gone = false;
        return (uint16_t)at;
    }
    struct vow__node *n = free_place(c, &at);
    if (n == NULL || vow__node_at(n, host, port) < 0)
        return VOW__NO_NODE;
    n->gone = false;
    n->failed = false;
    n->why[0] = 0;
    return (uint16_t)at;
}

static struct vow__node *free_place(struct vow__cluster *c, size_t *ret_at)
{
    struct vow__redis_route *route = c->route;
    for (size_t i = 0; i < c->n; i++)
        if (c->nodes[i]->gone && c->nodes[i]->state == VOW__NODE_IDLE) {
            *ret_at = i; /* keeps L2 */
            return c->nodes[i];
        }
    if (c->n == NODES)
        return NULL;
    struct vow__node *n = vow__mem_new(&route->alloc, sizeof(*n));
    if (n == NULL)
        return NULL;
    vow__node_init(n, route);
    n->gone = true;
    if (vow__node_at(n, "", 0) < 0) {
        vow__mem_free(&route->alloc, n, sizeof(*n));
        return NULL;
    }
    *ret_at = c->n;
    c->nodes[c->n++] = n;
    return n;
}

/* ---- being sent on ------------------------------------------------------- */

void vow__cluster_redirect(struct vow__cluster *c, struct vow__call *call,
                           const struct vow__resp *error)
{
    char host[HOST_MAX];
    unsigned long numbers[2]; /* slot and port */
    if (call->hops++ == VOW__HOPS ||
        !read_target(error, call->node, host, numbers)) {
        vow__call_fail(call, VOW_ESTORE,
                       "%s: the servers of the cluster do not agree who has "
                       "the key",
                       call->node->name);
        return;
    }
    uint16_t at = node_at(c, host, (uint16_t)numbers[1]);
    if (at == VOW__NO_NODE) {
        vow__call_end(call, VOW_ENOMEM, NULL);
        return;
    }
    if (vow__error_is(error, "ASK ")) {
        call->asking = true;
        call->node = c->nodes[at];
    } else {
        c->slots[numbers[0]] = at;
        vow__cluster_refresh(c);
    }
    if (call->hops > HASTY_HOPS)
        vow__route_pause(call, VOW__AGAIN_MS);
    else
        vow__route_go(call);
}

/* "MOVED 3999 127.0.0.1:6381"; without a host it is that of who says so. */
static bool read_target(const struct vow__resp *error,
                        const struct vow__node *from, char *host,
                        unsigned long *ret_numbers)
{
    char copy[HOST_MAX + 32];
    char *rest = copy;
    if (error->n >= sizeof(copy))
        return false;
    memcpy(copy, error->text, error->n);
    copy[error->n] = 0;
    (void)strsep(&rest, " ");
    const char *slot = strsep(&rest, " ");
    char *target = strsep(&rest, " ");
    char *port = target == NULL ? NULL : strrchr(target, ':');
    if (port == NULL)
        return false;
    *port++ = 0;
    ret_numbers[0] = strtoul(slot, NULL, 10);
    ret_numbers[1] = strtoul(port, NULL, 10);
    struct vow__resp name = {
        .kind = VOW__RESP_TEXT, .text = target, .n = strlen(target)};
    return ret_numbers[0] < VOW__SLOTS && ret_numbers[1] > 0 &&
           ret_numbers[1] <= UINT16_MAX && read_host(&name, from, host);
}

/* A node may not know the address that it is reached by: "", "?" or a nil. */
static bool read_host(const struct vow__resp *v, const struct vow__node *from,
                      char *host)
{
    if (v->kind != VOW__RESP_TEXT || v->n == 0 || vow__resp_is(v, "?")) {
        if (from->host == NULL || strlen(from->host) >= HOST_MAX)
            return false;
        memcpy(host, from->host, strlen(from->host) + 1);
        return true;
    }
    if (v->n >= HOST_MAX || memchr(v->text, 0, v->n) != NULL)
        return false;
    memcpy(host, v->text, v->n);
    host[v->n] = 0;
    return true;
}
