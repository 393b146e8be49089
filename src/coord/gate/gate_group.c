/* SPDX-License-Identifier: MIT */
/* gate_group.c - the keys of a gate: groups that take turns, and groups that
 * must wait.
 *
 * WHY   The backlog of a tenant must not delay other tenants, and "20 in all, 3
 *       per host" are two limits of the same job.
 * HOW   A key in use is a group with separate limits and levels. Groups with a
 *       job to try next are in a ring and take turns. A group blocked by the
 *       group's limits leaves the ring: until a slot of the group is released,
 *       or until a time. A group without users is freed, unless starts or a
 *       pause must be remembered.
 * INVARIANTS
 *   K1  a group with waiting jobs is in the ring, in `later`, or waits for a
 *       slot of the group to be released or a start of the group to be stamped
 *   K2  a group in `idle` has no users
 * LIMITS  O(1) per turn, O(log keys) per time to wait for.
 * THREADS  loop thread only.
 */
#include "coord/gate/gate_internal.h"

#include <string.h>

static int gate_group_new(vow_gate *g, const char *key, size_t length,
                          struct group **ret_group);
static void gate_group_free(vow_gate *g, struct group *group);
static uint64_t group_forgotten_ns(const struct group *group);
static void groups_free_forgotten(vow_gate *g);
static void group_free_first_idle(vow_gate *g);

int vow__gate_group_get(vow_gate *g, const char *key, struct group **ret_group)
{
    if (key == NULL) {
        *ret_group = &g->keyless; /* never freed: users are not counted */
        return 0;
    }
    size_t length = strlen(key);
    struct vow__table_node *n = vow__table_find(&g->keys, key, length);
    if (n == NULL)
        return gate_group_new(g, key, length, ret_group);
    struct group *group = VOW__OUTER(n, struct group, key_node);
    if (group->place == GROUP_IDLE)
        vow__gate_group_place(g, group, GROUP_UNLISTED, 0); /* keeps K2 */
    group->users++;
    *ret_group = group;
    return 0;
}

static int gate_group_new(vow_gate *g, const char *key, size_t length,
                          struct group **ret_group)
{
    groups_free_forgotten(g);
    if (g->keys.count >= g->opts.keys_max)
        return VOW_EQUEUEFULL;
    size_t size = sizeof(struct group) + length + 1;
    struct group *group = vow__mem_zero(&g->alloc, size);
    if (group == NULL)
        return VOW_ENOMEM;
    char *name = (char *)(group + 1);
    memcpy(name, key, length + 1);
    group->key_node.name = name;
    group->key_node.length = length;
    group->users = 1;
    if (vow__coord_quota_init(&group->quota, &g->alloc,
                              vow__gate_key_limits(&g->opts)) < 0 ||
        vow__table_add(&g->keys, &group->key_node) < 0) {
        vow__coord_quota_fini(&group->quota, &g->alloc);
        vow__mem_free(&g->alloc, group, size);
        return VOW_ENOMEM;
    }
    *ret_group = group;
    return 0;
}

static void gate_group_free(vow_gate *g, struct group *group)
{
    vow__table_remove(&g->keys, &group->key_node);
    vow__coord_quota_fini(&group->quota, &g->alloc);
    vow__mem_free(&g->alloc, group,
                  sizeof(*group) + group->key_node.length + 1);
}

void vow__gate_group_leave(vow_gate *g, struct group *group)
{
    if (group == &g->keyless)
        return;
    VOW__ASSERT(group->users > 0);
    if (--group->users > 0)
        return;
    uint64_t until = group_forgotten_ns(group);
    if (until == 0 || until <= vow__gate_now(g)) {
        vow__gate_group_place(g, group, GROUP_UNLISTED, 0);
        gate_group_free(g, group);
    } else {
        vow__gate_group_place(g, group, GROUP_IDLE, until);
    }
}

/* Returns when the group will equal a new group; 0: now. */
static uint64_t group_forgotten_ns(const struct group *group)
{
    uint64_t until = vow__coord_quota_forgotten_ns(&group->quota);
    return group->paused_ns > until ? group->paused_ns : until;
}

static void groups_free_forgotten(vow_gate *g)
{
    uint64_t now = vow__gate_now(g);
    while (g->idle != NULL && g->idle->key <= now)
        group_free_first_idle(g);
}

static void group_free_first_idle(vow_gate *g)
{
    struct group *group = VOW__OUTER(g->idle, struct group, heap_node);
    vow__gate_group_place(g, group, GROUP_UNLISTED, 0);
    gate_group_free(g, group);
}

void vow__gate_group_place(vow_gate *g, struct group *group,
                           enum group_place place, uint64_t until_ns)
{
    if (group->place == GROUP_IN_RING)
        vow__list_remove(&g->ring, &group->link);
    else if (group->place == GROUP_IDLE)
        vow__heap_remove(&g->idle, &group->heap_node);
    else if (group->place == GROUP_LATER)
        vow__heap_remove(&g->later, &group->heap_node);
    group->place = place;
    group->heap_node.key = until_ns;
    group->heap_node.seq = g->last_number++;
    if (place == GROUP_IN_RING)
        vow__list_push(&g->ring, &group->link);
    else if (place == GROUP_IDLE)
        vow__heap_insert(&g->idle, &group->heap_node);
    else if (place == GROUP_LATER)
        vow__heap_insert(&g->later, &group->heap_node);
}

uint64_t vow__gate_groups_wake(vow_gate *g, uint64_t now_ns)
{
    while (g->later != NULL && g->later->key <= now_ns)
        vow__gate_group_place(g, VOW__OUTER(g->later, struct group, heap_node),
                              GROUP_IN_RING, 0);
    return g->later == NULL ? UINT64_MAX : g->later->key;
}

void vow__gate_groups_free(vow_gate *g)
{
    while (g->idle != NULL)
        group_free_first_idle(g);
    VOW__ASSERT(g->keys.count == 0);
}

struct group *vow__gate_group_next(vow_gate *g, const struct group *group)
{
    if (group == NULL)
        return &g->keyless;
    struct vow__table_node *n = vow__table_next(
        &g->keys, group == &g->keyless ? NULL : &group->key_node);
    return n == NULL ? NULL : VOW__OUTER(n, struct group, key_node);
}
