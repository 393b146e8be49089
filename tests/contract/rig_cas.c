/* SPDX-License-Identifier: MIT */
/* rig_cas.c - the contract for the engine over a compare-and-set service: the
 * instances share a simulated service without faults, on virtual time. With a
 * watch and no clock, as etcd has them, and with registration and a clock, as
 * PostgreSQL has them. */
#include "cas_memory.h"
#include "contract.h"

enum { INLINE_MAX = 16, TIMEOUT_MS = 10000, LATE_MS = 2000 };

static void begin_with(struct rig *r, uint32_t flags, bool clock)
{
    const struct cas_plan plan = {.flags = flags,
                                  .clock = clock,
                                  .seed = test_seed(),
                                  .value_max = RIG_VALUE_MAX,
                                  .inline_max = INLINE_MAX};
    r->state = cas_world_new(r->world.loop, &plan);
}

static void begin_watch(struct rig *r)
{
    begin_with(r, CAS_WATCHES, false);
}

static void begin_register(struct rig *r)
{
    begin_with(r, CAS_REGISTERS, true);
}

static vow_store *open_one(struct rig *r)
{
    vow_store *s;
    CHECK_INT_EQ(
        vow__cas_open(r->world.loop, cas_memory_client(r->state),
                      &(const struct cas_opts){.timeout_ms = TIMEOUT_MS}, &s),
        0);
    return s;
}

static void end(struct rig *r)
{
    cas_world_free(r->state);
}

const struct rig_store rig_cas_watch = {.name = "cas",
                                        .asynchronous = true,
                                        .ordered = true,
                                        .counts_no_waiters = true,
                                        .late_ms = LATE_MS,
                                        .begin = begin_watch,
                                        .open = open_one,
                                        .end = end};

const struct rig_store rig_cas_register = {.name = "cas",
                                           .asynchronous = true,
                                           .ordered = true,
                                           .ordered = true,
                                           .late_ms = LATE_MS,
                                           .begin = begin_register,
                                           .open = open_one,
                                           .end = end};
