/* SPDX-License-Identifier: MIT */
/* slab.c - objects of one size, many to a slab, given back when unused.
 *
 * WHY   A promise costs a few nanoseconds; malloc and free would cost more
 *       than all the rest. But a burst of a million promises must not hold its
 *       memory for the rest of the night.
 * HOW   A slab is one block of some 32 KiB with its own free list, so a slab
 *       without objects is known. Empty slabs wait on a list; the loop calls
 *       decay once a second while the list has slabs, and half of the slabs
 *       that stayed unused go back to the allocator.
 * INVARIANTS
 *   P1  `place` says where a slab is: current, usable (some objects alive, some
 *       free), empty (none alive), or full (in no list, none free)
 *   P2  objects below `fresh` are alive or in `free`
 * LIMITS  take and give O(1). With per_slab 1 every object is a block of its
 *       own and goes back at once: for fault sweeps and memory checkers.
 * THREADS  the owner's.
 */
#include "base/slab.h"

#include <string.h>

enum { SLAB_BYTES = 32 * 1024, CARVE = 16 };

static struct vow__slab *pool_slab_new(struct vow__slab_cache *p);
static void pool_slab_free(struct vow__slab_cache *p, struct vow__slab *s);
static void carve_objects(struct vow__slab_cache *p, struct vow__slab *s);
static char *object_at(const struct vow__slab_cache *p, struct vow__slab *s,
                       uint32_t index);

void vow__slab_init(struct vow__slab_cache *p, const struct vow_alloc *alloc,
                    void *owner, size_t object_size, bool pooled)
{
    VOW__ASSERT(object_size % sizeof(void *) == 0);
    *p = (struct vow__slab_cache){
        .alloc = alloc,
        .owner = owner,
        .object_size = object_size,
        .walked = true,
        .per_slab =
            pooled ? (SLAB_BYTES - sizeof(struct vow__slab)) / object_size : 1,
    };
}

void vow__slab_fini(struct vow__slab_cache *p)
{
    VOW__ASSERT(vow__slab_unused(p));
    vow__slab_trim(p);
    VOW__ASSERT(p->slabs == 0);
}

bool vow__slab_unused(const struct vow__slab_cache *p)
{
    size_t current = p->current != NULL && p->current->used == 0;
    return p->slabs == p->empties + current;
}

/* The current slab has no free object: carve objects, or leave the slab. */
struct vow__slab *vow__slab_refill(struct vow__slab_cache *p)
{
    struct vow__slab *s = p->current;
    if (s != NULL && s->fresh < p->per_slab) {
        carve_objects(p, s);
        return s;
    }
    if (s != NULL)
        s->place = VOW__FULL;
    p->current = NULL;
    vow_link *l = vow__list_take(&p->usable);
    if (l == NULL && (l = vow__list_take(&p->empty)) != NULL) {
        p->empties--;
        if (p->empties < p->idle_low)
            p->idle_low = p->empties;
    }
    s = l != NULL ? VOW__OUTER(l, struct vow__slab, in_room) : pool_slab_new(p);
    if (s == NULL)
        return NULL;
    s->place = VOW__CURRENT; /* keeps P1 */
    p->current = s;
    if (s->free == NULL)
        carve_objects(p, s);
    return s;
}

/* An object came back to a full slab; or a slab became empty. */
void vow__slab_relist(struct vow__slab *s)
{
    struct vow__slab_cache *p = s->cache;
    if (p->per_slab == 1) {
        if (p->current == s)
            p->current = NULL;
        pool_slab_free(p, s);
        return;
    }
    if (s->place == VOW__CURRENT)
        return; /* stays, with or without objects */
    if (s->place == VOW__USABLE)
        vow__list_remove(&p->usable, &s->in_room);
    s->place = s->used == 0 ? VOW__EMPTY : VOW__USABLE; /* keeps P1 */
    vow__list_push(s->used == 0 ? &p->empty : &p->usable, &s->in_room);
    p->empties += s->used == 0;
}

void vow__slab_trim(struct vow__slab_cache *p)
{
    vow_link *l;
    while ((l = vow__list_take(&p->empty)) != NULL)
        pool_slab_free(p, VOW__OUTER(l, struct vow__slab, in_room));
    p->empties = 0;
    p->idle_low = 0;
    if (p->current != NULL && p->current->used == 0) {
        pool_slab_free(p, p->current);
        p->current = NULL;
    }
}

bool vow__slab_decay(struct vow__slab_cache *p)
{
    for (size_t n = (p->idle_low + 1) / 2; n > 0; n--) {
        vow_link *l = vow__list_take(&p->empty);
        pool_slab_free(p, VOW__OUTER(l, struct vow__slab, in_room));
        p->empties--;
    }
    p->idle_low = p->empties;
    return p->empties > 0;
}

size_t vow__slab_bytes(const struct vow__slab_cache *p)
{
    return sizeof(struct vow__slab) + p->per_slab * p->object_size;
}

void *vow__slab_next(const struct vow__slab_cache *p,
                     struct vow__slab_cursor *at)
{
    if (!at->started) {
        at->slab = p->all;
        at->started = true;
    }
    while (at->slab != NULL) {
        struct vow__slab *s = VOW__OUTER(at->slab, struct vow__slab, in_all);
        if (at->index < s->fresh)
            return object_at(p, s, at->index++);
        at->slab = at->slab->next;
        at->index = 0;
    }
    return NULL;
}

static struct vow__slab *pool_slab_new(struct vow__slab_cache *p)
{
    struct vow__slab *s = vow__mem_new(p->alloc, vow__slab_bytes(p));
    if (s == NULL)
        return NULL;
    *s = (struct vow__slab){.cache = p, .owner = p->owner};
    vow__list_push(&p->all, &s->in_all);
    p->slabs++;
    return s;
}

static void pool_slab_free(struct vow__slab_cache *p, struct vow__slab *s)
{
    vow__list_remove(&p->all, &s->in_all);
    p->slabs--;
    vow__mem_free(p->alloc, s, vow__slab_bytes(p));
}

/* Some objects that were never used join the free list in the order of their
 * addresses; zeroed, so that a walk skips them (keeps P2). */
static void carve_objects(struct vow__slab_cache *p, struct vow__slab *s)
{
    size_t end =
        s->fresh + CARVE < p->per_slab ? s->fresh + CARVE : p->per_slab;
    VOW__ASSERT(s->fresh < end);
    for (size_t i = end; i-- > s->fresh;) {
        char *object = object_at(p, s, (uint32_t)i);
        if (p->walked)
            memset(object, 0, p->object_size);
        *(void **)(void *)object = s->free;
        s->free = object;
    }
    s->fresh = (uint32_t)end;
}

static char *object_at(const struct vow__slab_cache *p, struct vow__slab *s,
                       uint32_t index)
{
    return (char *)(s + 1) + p->object_size * index;
}
