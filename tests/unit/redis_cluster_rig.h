/* SPDX-License-Identifier: MIT */
/* redis_cluster_rig.h - the rigs of tests/contract for one server, and for
 * instances on a cluster. */
#ifndef TEST_REDIS_CLUSTER_RIG_H
#define TEST_REDIS_CLUSTER_RIG_H

#include "contract.h"
#include "redis_kit.h"
#include "vow/store_redis.h"
#include <stdlib.h>

extern const struct rig_store rig_redis;

static inline void cluster_begin(struct rig *r)
{
    struct redis_cluster *c = malloc(sizeof(*c));
    CHECK(c != NULL);
    redis_cluster_start(c, NULL);
    r->state = c;
}

static inline vow_store *cluster_open(struct rig *r)
{
    const struct redis_cluster *c = r->state;
    VOW_AUTO(vow_future)
    opened = vow_store_redis_open(
        r->world.loop, c->url,
        VOW_REDIS_OPTS(.value_max = RIG_VALUE_MAX, .timeout_ms = 60000));
    CHECK_INT_EQ(vow_state_of(opened), VOW_FULFILLED);
    return vow_as_ptr(vow_get(opened));
}

static inline void cluster_end(struct rig *r)
{
    redis_cluster_stop(r->state);
    free(r->state);
}

static const struct rig_store rig_redis_cluster = {.name = "redis",
                                                   .real_time = true,
                                                   .begin = cluster_begin,
                                                   .open = cluster_open,
                                                   .end = cluster_end};

#endif
