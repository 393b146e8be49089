/* SPDX-License-Identifier: MIT */
/* rig_etcd.c - the contract for the store on etcd: its instances share a member
 * of their own, on real time. What an instance leaves behind ends with a lease
 * of etcd, which knows whole seconds only and looks twice a second. */
#include "contract.h"
#include "etcd_kit.h"
#include "vow/store_etcd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* On a machine that is busy. */
enum { PATIENT_MS = 60000, SHORT_MS = 1000 };

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

/* Of who has left: etcd ends them, some time later than asked. */
static bool lapsed(struct rig *r)
{
    static char said[64 * 1024];
    struct etcd_kit *s = r->state;
    snprintf(said, sizeof(said), "%s", etcd_say(s, "lease/leases", "%s", "{}"));
    CHECK(strstr(said, "header") != NULL);
    for (char *at = said; (at = strstr(at, "\"ID\":\"")) != NULL; at++) {
        unsigned long long id = strtoull(at + strlen("\"ID\":\""), NULL, 10);
        uint64_t ttl = etcd_number(
            etcd_say(s, "lease/timetolive", "{\"ID\":\"%llu\"}", id),
            "grantedTTL");
        if (ttl > 0 && ttl <= SHORT_MS / 1000 + 1)
            return false;
    }
    return true;
}

static void end(struct rig *r)
{
    etcd_stop(r->state);
    free(r->state);
}

const struct rig_store rig_etcd = {.name = "etcd",
                                   .real_time = true,
                                   .counts_no_waiters = true,
                                   .tells_no_pulse = true,
                                   .short_ms = SHORT_MS,
                                   .lapsed = lapsed,
                                   .begin = begin,
                                   .open = open_one,
                                   .end = end};
