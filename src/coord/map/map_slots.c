/* SPDX-License-Identifier: MIT */
/* map_slots.c - the memory of a map: slots for what runs, places for results.
 *
 * WHY   A limit of a million must not cost a million slots when ten run, and
 *       a slot stays where it is while its future points to it.
 * HOW   Slots come in chunks, each as large as all before it together, and are
 *       used again. The array of results doubles and is copied.
 * THREADS  loop thread only.
 */
#include "coord/map/map_internal.h"

#include <string.h>

enum { SLOTS_FIRST = 16, RESULTS_FIRST = 64 };

static bool slots_grow(vow_mapping *m);
static bool results_grow(vow_mapping *m);
static void slot_cancel(struct vow__map_slot *s);
static size_t chunk_size(size_t n);

bool vow__map_grow(vow_mapping *m)
{
    if (m->free == NULL && !slots_grow(m))
        return false;
    return !m->keeps || m->pulled < m->results_room || results_grow(m);
}

static bool slots_grow(vow_mapping *m)
{
    size_t n = m->n_slots == 0 ? SLOTS_FIRST : m->n_slots;
    struct vow__map_chunk *c = vow__mem_zero(&m->alloc, chunk_size(n));
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

static bool results_grow(vow_mapping *m)
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

/* Handlers of what this settles come from the queue, so no slot moves. */
void vow__map_slots_cancel(vow_mapping *m)
{
    for (struct vow__map_chunk *c = m->chunks; c != NULL; c = c->next)
        for (size_t i = 0; i < c->n; i++)
            slot_cancel(&c->slots[i]);
    slot_cancel(&m->wait);
    slot_cancel(&m->flow);
}

static void slot_cancel(struct vow__map_slot *s)
{
    if (s->future != NULL) /* those that ended refuse it */
        (void)vow_cancel(s->future, s->map->why);
}

void vow__map_slots_free(vow_mapping *m)
{
    struct vow__map_chunk *c;
    while ((c = m->chunks) != NULL) {
        m->chunks = c->next;
        for (size_t i = 0; i < c->n; i++)
            vow_future_unref(c->slots[i].future); /* never delivered */
        vow__mem_free(&m->alloc, c, chunk_size(c->n));
    }
    for (size_t i = 0; i < m->results_room; i++)
        vow_future_unref(m->results[i]);
    vow__mem_free(&m->alloc, m->results,
                  m->results_room * sizeof(m->results[0]));
}

static size_t chunk_size(size_t n)
{
    return sizeof(struct vow__map_chunk) + n * sizeof(struct vow__map_slot);
}
