/* SPDX-License-Identifier: MIT */
/* rig_etcd.c - the contract for the store on etcd: its instances share a member
 * of their own, on real time. What an instance leaves behind ends with a lease
 * of etcd, which knows whole seconds only and looks twice a second. */
#include "contract.h"
#include "etcd_kit.h"
#include "vow/store_etcd.h"

#include <stdlib.h>

/* On a machine that is busy. */
enum { PATIENT_MS = 10000, SHORT_MS = 1000, LATE_MS = 3500 };

static void begin(struct rig *r)
{
    struct etcd_kit *s = malloc(sizeof(*s));
    CHECK(s != NULL);
    etcd_start(s, NULL);
    r->state = s;
}

static vow_store *open_one(struct rig *r)
{
    const struct etcd_kit *s = r->state;
    VOW_AUTO(vow_future)
    opened = vow_store_etcd_open(
        r->world.loop, s->url,
        VOW_ETCD_OPTS(.value_max = RIG_VALUE_MAX, .timeout_ms = PATIENT_MS));
    if (vow_state_of(opened) != VOW_FULFILLED)
        FAIL("%s", vow_error_message(vow_error_of(opened)));
    return vow_as_ptr(vow_get(opened));
}

static void end(struct rig *r)
{
    etcd_stop(r->state);
    free(r->state);
}

const struct rig_store rig_etcd = {.name = "etcd",
                                   .real_time = true,
                                   .short_ms = SHORT_MS,
                                   .late_ms = LATE_MS,
                                   .begin = begin,
                                   .open = open_one,
                                   .end = end};
