/* SPDX-License-Identifier: MIT */
/* memory_pools.h - pools and their permits. See memory_pools.c. */
#ifndef VOW_STORE_MEMORY_POOLS_H
#define VOW_STORE_MEMORY_POOLS_H

#include "store/memory/memory_internal.h"

/* A permit, or a waiting request. */
struct vow__memory_permit {
    struct vow__slab *slab;
    struct vow__table_node node; /* of state->pools.permits, by key */
    struct {
        vow_token token;
        struct vow__memory_pool *pool;
    } key;
    struct rules_permit rule;
    bool gone;       /* dropped, and the event says so: freed with the event */
    uint64_t before; /* requests in the queue before this one, and weight, */
    uint64_t before_weight; /* counted since the pool was made */
    struct vow__memory_instance *instance;
    vow_link in_queue;
    vow_link in_instance;
    struct vow__heap_node by_end;
    struct vow__memory_sent sent;
};

/* A pool. The limits are the limits of `law`: the pool itself, or the pool with
 * a pool for each key. */
struct vow__memory_pool {
    struct vow__table_node node; /* of state->pools.by_name */
    vow_name name;
    struct vow__memory_pool *law;
    struct vow__memory_text *label;
    struct rules_pool rule;
    struct rules_start first; /* the rate log as long as one entry is enough */
    vow_link *queue;
    struct vow__heap_node *ends; /* permits and requests by lease */
    uint64_t joined;             /* requests ever in the queue, */
    uint64_t joined_weight;      /* and their weight */
    uint64_t passed;             /* of these, left as head */
    uint64_t passed_weight;
    bool recount; /* a request that was not the head has left */
    bool idle;    /* in state->pools.idle */
    struct vow__heap_node by_idle;
};

/* Sets the functions of the storage. */
void vow__memory_pools_init(struct vow__memory_state *m);
void vow__memory_pool_free(struct vow__memory_state *m,
                           struct vow__memory_pool *pool);
/* Frees a permit that is in no list but the list of the instance. */
void vow__memory_permit_free(struct vow__memory_state *m,
                             struct vow__memory_permit *permit);
/* Releases all permits of an instance. */
void vow__memory_permits_leave(struct vow__memory_state *m,
                               struct vow__memory_instance *instance);

#endif
