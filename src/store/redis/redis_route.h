/* SPDX-License-Identifier: MIT */
/* redis_route.h - the inside of the route: redis_route.c, redis_call.c,
 * redis_node.c, redis_sentinel.c and redis_cluster.c.
 *
 *     call -> route -> node -> link
 *               |        \_ main: the server; or one of a cluster, that is
 *               |           asked for its map and listened to
 *               \_ sentinel: where main is;  cluster: the other nodes
 */
#ifndef VOW_STORE_REDIS_ROUTE_H
#define VOW_STORE_REDIS_ROUTE_H

#include "store/redis/redis_internal.h"

enum {
    VOW__TRY_MS = 20, /* at least between two tries */
    VOW__TRY_MS_MAX = 2000,
    VOW__AGAIN_MS = 25, /* a call that the server sent away for a moment */
    VOW__HOPS = 8,      /* from node to node */
    VOW__SLOTS = 16384,
    VOW__NO_NODE = UINT16_MAX
};

struct vow__sentinel;
struct vow__cluster;

/* ---- redis_node.c: a server ---------------------------------------------- */

enum vow__node_state {
    VOW__NODE_IDLE,     /* nobody wants it */
    VOW__NODE_SEEKS,    /* Sentinels are asked where it is */
    VOW__NODE_CONNECTS, /* there is a link, not ready */
    VOW__NODE_READY,
    VOW__NODE_RESTS, /* until the next try */
    VOW__NODE_CLOSED
};

struct vow__node {
    struct vow__redis_route *route;
    struct vow__link *link; /* NULL: none */
    uint8_t state;
    bool is_main;  /* it is listened to */
    bool failed;   /* all that was tried last failed */
    bool for_good; /* until somebody mends it */
    bool gone;     /* the cluster does not know it any more */
    char *host;    /* owned; NULL: main, not tried yet or by a path */
    uint16_t port;
    size_t turn;     /* main: the next of the hosts */
    size_t in_round; /* hosts that are tried before it has failed */
    unsigned tries;  /* in a row, without use */
    uint64_t tried_ns, ready_ns;
    uint64_t patient_ns; /* until then a failure is not told */
    uint64_t again_ns;
    vow_call again, drop;
    struct vow__greeting server;
    char name[280]; /* for people */
    char why[VOW__REDIS_WHY];
};

void vow__node_init(struct vow__node *n, struct vow__redis_route *route);
/* VOW_ENOMEM. `host` is copied. */
int vow__node_at(struct vow__node *n, const char *host, uint16_t port);
void vow__node_close(struct vow__node *n, int code);
void vow__node_fini(struct vow__node *n);
/* Somebody needs it: connect, or do it sooner. */
void vow__node_want(struct vow__node *n);
/* Steps need not wait for it. */
bool vow__node_is_down(const struct vow__node *n);
/* The cluster does not know it any more: leave it, unless it is in use. */
void vow__node_sleep(struct vow__node *n);
/* Leave its link in a moment, for a reason, and connect again. */
void vow__node_drop(struct vow__node *n, const char *why);
/* What the Sentinels say. */
void vow__node_found(struct vow__node *n, const char *host, uint16_t port);
void vow__node_lost(struct vow__node *n, bool for_good, const char *why);

/* ---- redis_call.c: a call ------------------------------------------------ */

enum vow__call_kind {
    VOW__CALL_SCRIPT,
    VOW__CALL_PLAIN, /* of a node */
    VOW__CALL_EACH   /* becomes one plain call per master */
};

struct vow__call {
    vow_link link; /* while it waits, or was sent */
    struct vow__redis_route *route;
    struct vow__node *node; /* where it was sent */
    uint8_t kind;
    bool asking;     /* the next node is sent ASKING first */
    bool after_keys; /* arguments came */
    bool orphan;     /* it was answered: the store is being closed */
    bool unsure;     /* it was sent, and the link was lost before an answer */
    uint16_t script;
    uint16_t slot;
    unsigned hops;
    size_t number; /* PLAIN: of the node */
    size_t keys, words;
    size_t highest_at, highest_n; /* the tag of that key in the body; 0: none */
    struct vow__buf body; /* number of keys, keys, arguments; or the command */
    uint64_t deadline_ns; /* to be sent */
    uint64_t not_before_ns;
    vow__reply_fn done;
    vow__each_fn each_done; /* EACH */
    void *user;
};

/* It goes to a server by itself, not to a cluster. */
void vow__call_alone(struct vow__call *c);
/* VOW_ECLOSED now, while its answer may still come. */
void vow__call_orphan(struct vow__call *c);
/* The answer, and its end. */
void vow__call_end(struct vow__call *c, int code,
                   const struct vow__resp *reply);
/* VOW_ESTORE or such for a reason. */
void vow__call_fail(struct vow__call *c, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A plain command, copied; NULL: VOW_ENOMEM. */
struct vow__call *vow__call_plain(struct vow__redis_route *route,
                                  const struct vow__buf *command);

/* ---- redis_route.c ------------------------------------------------------- */

struct vow__redis_route {
    struct vow__redis *r;
    vow_loop *loop;
    struct vow_alloc alloc;
    const struct vow__redis_where *where;
    const struct vow__redis_script *scripts; /* a test has its own */
    struct vow__tls *tls;                    /* NULL: none */
    struct vow__node main;
    struct vow__sentinel *sentinel; /* NULL: none */
    struct vow__cluster *cluster;   /* NULL: none, or not known */
    bool known;                     /* main has told what it is */
    bool leaving;                   /* places are given back, nothing else */
    bool closed;
    bool heard;        /* main was subscribed before */
    vow_link *sent;    /* calls */
    vow_link *waiting; /* calls, the oldest first */
    size_t waiting_bytes;
    size_t bytes_max;
    vow_call late; /* one of them has waited for too long */
    vow_call soon; /* look at all of them */
    uint64_t late_ns;
};

/* Send it now, let it wait, or fail. */
void vow__route_go(struct vow__call *c);
/* Let it wait for so long, then go on. */
void vow__route_pause(struct vow__call *c, uint64_t ms);
/* Something changed: look at all that wait. */
void vow__route_review(struct vow__redis_route *route);
void vow__route_review_soon(struct vow__redis_route *route);
void vow__route_ready(struct vow__redis_route *route, struct vow__node *n);
/* How to connect; `host` NULL: by the path. */
void vow__route_to(const struct vow__redis_route *route, const char *host,
                   uint16_t port, struct vow__link_opts *ret_opts);

/* ---- redis_sentinel.c ---------------------------------------------------- */

int vow__sentinel_open(struct vow__redis_route *route,
                       struct vow__sentinel **ret_sentinel);
/* Where is the master? Told by vow__node_found() or vow__node_lost(). `other`:
 * ask another one than the last time. */
void vow__sentinel_seek(struct vow__sentinel *s, bool other);
void vow__sentinel_close(struct vow__sentinel *s);
void vow__sentinel_free(struct vow__sentinel *s);

/* ---- redis_cluster.c ----------------------------------------------------- */

int vow__cluster_open(struct vow__redis_route *route,
                      struct vow__cluster **ret_cluster);
void vow__cluster_close(struct vow__cluster *c);
void vow__cluster_free(struct vow__cluster *c);
/* Its map is asked for, from main. */
void vow__cluster_refresh(struct vow__cluster *c);
bool vow__cluster_is_known(const struct vow__cluster *c);
/* Who has the slot; NULL: nobody. */
struct vow__node *vow__cluster_of(struct vow__cluster *c, uint16_t slot);
/* Its nodes by number; NULL: none. */
struct vow__node *vow__cluster_at(struct vow__cluster *c, size_t number);
size_t vow__cluster_size(const struct vow__cluster *c);
/* MOVED and ASK: it goes on to where the error says. */
void vow__cluster_redirect(struct vow__cluster *c, struct vow__call *call,
                           const struct vow__resp *error);
uint16_t vow__slot_of(const char *tag, size_t n);

/* ---- redis.c ------------------------------------------------------------- */

/* False, and told why, in a process that was forked from it. */
bool vow__redis_is_ours(struct vow__redis *r);

#endif
