/* SPDX-License-Identifier: MIT */
/* rig_redis.c - the contract for the store on Redis: its instances share a
 * server of their own, on real time. */
#include "contract.h"
#include "redis_kit.h"
#include "vow/store_redis.h"

#include <stdio.h>
#include <stdlib.h>

enum { PATIENT_MS = 60000 }; /* on a machine that has much else to do */

static void begin(struct rig *r)
{
    struct redis_server *s = malloc(sizeof(*s));
    CHECK(s != NULL);
    redis_start(s, NULL);
    r->state = s;
}

static vow_store *open_one(struct rig *r)
{
    const struct redis_server *s = r->state;
    char url[FOLDER_MAX + 16];
    snprintf(url, sizeof(url), "unix:%s", s->socket);
    VOW_AUTO(vow_future)
    opened = vow_store_redis_open(
        r->world.loop, url,
        VOW_REDIS_OPTS(.value_max = RIG_VALUE_MAX, .timeout_ms = PATIENT_MS));
    if (vow_state_of(opened) != VOW_FULFILLED)
        FAIL("%s", vow_error_message(vow_error_of(opened)));
    return vow_as_ptr(vow_get(opened));
}

static void end(struct rig *r)
{
    redis_stop(r->state);
    free(r->state);
}

const struct rig_store rig_redis = {.name = "redis",
                                    .real_time = true,
                                    .begin = begin,
                                    .open = open_one,
                                    .end = end};
