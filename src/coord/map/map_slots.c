/* SPDX-License-Identifier: MIT */
/* map_slots.c - the memory of a map: slots for running items, and results.
 *
 * WHY   A limit of a million must not cost a million slots when ten items run,
 *       and a slot must not move while a future points to the slot.
 * HOW   Slots come in chunks, each as large as all earlier chunks together, and
 *       are reused. The array of results doubles and is copied.
 * THREADS  loop thread only.
 */
#include "coord/map/map_internal.h"

#include <string.h>

enum { SLOTS_FIRST = 16, RESULTS_FIRST = 64 };

static bool map_slots_grow(vow_mapping *m);
static bool map_results_grow(vow_mapping *m);
static void map_slot_cancel(struct vow__map_slot *s);
static size_t map_chunk_size(size_t n);

bool vow__map_grow(vow_mapping *m)
{
    if (m->free == NULL && !map_slots_grow(m))
        return false;
    return !m->keeps_results || m->pulled < m->results_room ||
           map_results_grow(m);
}

static bool map_slots_grow(vow_mapping *m)
{
    size_t n = m->n_slots == 0 ? SLOTS_FIRST : m->n_slots;
    struct vow__map_chunk *c = vow__mem_zero(&m->alloc, map_chunk_size(n));
    if (c == NULL)
        return false;
    c->n = n;
    c->next = m->chunks;
    m->chunks = c;
    m->n_slots += n;
    for (size_t i = 0; i < n; i++) {
        c->slots[i].map = m;
        c->slots[i].link.next = m->free;
        m->free = &c->slots[i].link;
    }
    return true;
}

static bool map_results_grow(vow_mapping *m)
{
    size_t before = m->results_room * sizeof(m->results[0]);
    size_t after = 2 * before;
    if (before == 0)
        after = RESULTS_FIRST * sizeof(m->results[0]);
    vow_future **results = vow__mem_zero(&m->alloc, after);
    if (results == NULL)
        return false;
    if (before > 0)
        memcpy(results, m->results, before);
    vow__mem_free(&m->alloc, m->results, before);
    m->results = results;
    m->results_room = after / sizeof(results[0]);
    return true;
}

/* Runs no handlers: they come from the queue, so no slot changes here. */
void vow__map_slots_cancel(vow_mapping *m)
{
    for (struct vow__map_chunk *c = m->chunks; c != NULL; c = c->next)
        for (size_t i = 0; i < c->n; i++)
            map_slot_cancel(&c->slots[i]);
    map_slot_cancel(&m->source_wait);
    map_slot_cancel(&m->sink_wait);
}

static void map_slot_cancel(struct vow__map_slot *s)
{
    if (s->future != NULL) /* an ended future refuses */
        (void)vow_cancel(s->future, s->map->why);
}

void vow__map_slots_free(vow_mapping *m)
{
    struct vow__map_chunk *c;
    while ((c = m->chunks) != NULL) {
        m->chunks = c->next;
        for (size_t i = 0; i < c->n; i++)
            vow_future_unref(c->slots[i].future); /* never delivered */
        vow__mem_free(&m->alloc, c, map_chunk_size(c->n));
    }
    for (size_t i = 0; i < m->results_room; i++)
        vow_future_unref(m->results[i]);
    vow__mem_free(&m->alloc, m->results,
                  m->results_room * sizeof(m->results[0]));
}

static size_t map_chunk_size(size_t n)
{
    return sizeof(struct vow__map_chunk) + n * sizeof(struct vow__map_slot);
}
