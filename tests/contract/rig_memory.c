/* SPDX-License-Identifier: MIT */
/* rig_memory.c - the contract for the store in memory: its instances share a
 * vow_memory, on virtual time. */
#include "contract.h"
#include "store/memory/memory.h"

static void begin(struct rig *r)
{
    struct vow_alloc alloc = test_alloc_hook(&r->world.alloc);
    vow_memory *m;
    CHECK_INT_EQ(vow_memory_new(&alloc, &m), 0);
    r->state = m;
}

static vow_store *open_one(struct rig *r)
{
    vow_store *s;
    CHECK_INT_EQ(
        vow__store_memory_open(r->world.loop, r->state, RIG_VALUE_MAX, &s), 0);
    return s;
}

static void end(struct rig *r)
{
    vow_memory_unref(r->state);
}

const struct rig_store rig_memory = {
    .name = "memory", .begin = begin, .open = open_one, .end = end};
