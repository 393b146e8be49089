/* SPDX-License-Identifier: MIT */
/* slab.c - a slab cache: objects of one size, many to a slab.
 *
 * WHY   A promise costs a few nanoseconds; malloc and free would cost more
 *       than everything else. But a burst of a million promises must not hold
 *       memory for hours.
 * HOW   A slab is a block of at most 32 KiB with its own free list, so the
 *       cache knows when a slab has no live object. Empty slabs wait in a list
 *       of the cache. The owner calls decay once a second while the list has
 *       slabs, and half of the slabs that stayed unused go back to the
 *       allocator.
 * INVARIANTS
 *   P1  `place` says where a slab is: current, usable (some objects alive, some
 *       free), empty (none alive), or full (in no list, none free)
 *   P2  objects below `fresh` are alive or in `free`
 * LIMITS  take and give O(1). With per_slab 1 every object has a slab of its
 *       own, which is freed with the object: for fault sweeps and memory
 *       checkers.
 * THREADS  the owner's.
 */
#include "base/slab.h"

#include <string.h>

enum { SLAB_BYTES = 32 * 1024, CARVE = 16 };

static struct vow__slab *cache_slab_new(struct vow__slab_cache *cache);
static void cache_slab_free(struct vow__slab_cache *cache, struct vow__slab *s);
static void carve_objects(struct vow__slab_cache *cache, struct vow__slab *s);
static char *object_at(const struct vow__slab_cache *cache, struct vow__slab *s,
                       uint32_t index);

void vow__slab_init(struct vow__slab_cache *cache,
                    const struct vow_alloc *alloc, void *owner,
                    size_t object_size, bool share_slabs)
{
    VOW__ASSERT(object_size % sizeof(void *) == 0);
    *cache = (struct vow__slab_cache){
        .alloc = alloc,
        .owner = owner,
        .object_size = object_size,
        .walked = true,
        .per_slab = share_slabs
                        ? (SLAB_BYTES - sizeof(struct vow__slab)) / object_size
                        : 1,
    };
}

void vow__slab_fini(struct vow__slab_cache *cache)
{
    VOW__ASSERT(vow__slab_unused(cache));
    vow__slab_trim(cache);
    VOW__ASSERT(cache->slabs == 0);
}

bool vow__slab_unused(const struct vow__slab_cache *cache)
{
    size_t current = cache->current != NULL && cache->current->used == 0;
    return cache->slabs == cache->empties + current;
}

/* Carves objects from the current slab, which has no free object; if all are
 * carved, makes another slab the current slab. */
struct vow__slab *vow__slab_refill(struct vow__slab_cache *cache)
{
    struct vow__slab *s = cache->current;
    if (s != NULL && s->fresh < cache->per_slab) {
        carve_objects(cache, s);
        return s;
    }
    if (s != NULL)
        s->place = VOW__FULL;
    cache->current = NULL;
    vow_link *l = vow__list_take(&cache->usable);
    if (l == NULL && (l = vow__list_take(&cache->empty)) != NULL) {
        cache->empties--;
        if (cache->empties < cache->idle_low)
            cache->idle_low = cache->empties;
    }
    s = l != NULL ? VOW__OUTER(l, struct vow__slab, in_room)
                  : cache_slab_new(cache);
    if (s == NULL)
        return NULL;
    bool more = cache->per_slab > 1; /* else full with the object to come */
    s->place = more ? VOW__CURRENT : VOW__FULL; /* keeps P1 */
    cache->current = more ? s : NULL;
    if (s->free == NULL)
        carve_objects(cache, s);
    return s;
}

/* Runs when an object came back to a full slab, or a usable slab became empty. */
void vow__slab_relist(struct vow__slab *s)
{
    struct vow__slab_cache *cache = s->cache;
    if (cache->per_slab == 1) {
        cache_slab_free(cache, s);
        return;
    }
    if (s->place == VOW__USABLE)
        vow__list_remove(&cache->usable, &s->in_room);
    s->place = s->used == 0 ? VOW__EMPTY : VOW__USABLE; /* keeps P1 */
    vow__list_push(s->used == 0 ? &cache->empty : &cache->usable, &s->in_room);
    cache->empties += s->used == 0;
}

void vow__slab_trim(struct vow__slab_cache *cache)
{
    vow_link *l;
    while ((l = vow__list_take(&cache->empty)) != NULL)
        cache_slab_free(cache, VOW__OUTER(l, struct vow__slab, in_room));
    cache->empties = 0;
    cache->idle_low = 0;
    if (cache->current != NULL && cache->current->used == 0) {
        cache_slab_free(cache, cache->current);
        cache->current = NULL;
    }
}

bool vow__slab_decay(struct vow__slab_cache *cache)
{
    for (size_t n = (cache->idle_low + 1) / 2; n > 0; n--) {
        vow_link *l = vow__list_take(&cache->empty);
        cache_slab_free(cache, VOW__OUTER(l, struct vow__slab, in_room));
        cache->empties--;
    }
    cache->idle_low = cache->empties;
    return cache->empties > 0;
}

size_t vow__slab_bytes(const struct vow__slab_cache *cache)
{
    return sizeof(struct vow__slab) + cache->per_slab * cache->object_size;
}

void *vow__slab_next(const struct vow__slab_cache *cache,
                     struct vow__slab_cursor *at)
{
    if (!at->started) {
        at->slab = cache->all;
        at->started = true;
    }
    while (at->slab != NULL) {
        struct vow__slab *s = VOW__OUTER(at->slab, struct vow__slab, in_all);
        if (at->index < s->fresh)
            return object_at(cache, s, at->index++);
        at->slab = at->slab->next;
        at->index = 0;
    }
    return NULL;
}

static struct vow__slab *cache_slab_new(struct vow__slab_cache *cache)
{
    struct vow__slab *s = vow__mem_new(cache->alloc, vow__slab_bytes(cache));
    if (s == NULL)
        return NULL;
    *s = (struct vow__slab){.cache = cache, .owner = cache->owner};
    vow__list_push(&cache->all, &s->in_all);
    cache->slabs++;
    return s;
}

static void cache_slab_free(struct vow__slab_cache *cache, struct vow__slab *s)
{
    vow__list_remove(&cache->all, &s->in_all);
    cache->slabs--;
    vow__mem_free(cache->alloc, s, vow__slab_bytes(cache));
}

/* Adds up to CARVE objects that were never used to the free list, in the order
 * of addresses; zeroed, so that a walk skips the objects (keeps P2). */
static void carve_objects(struct vow__slab_cache *cache, struct vow__slab *s)
{
    size_t end =
        s->fresh + CARVE < cache->per_slab ? s->fresh + CARVE : cache->per_slab;
    VOW__ASSERT(s->fresh < end);
    for (size_t i = end; i-- > s->fresh;) {
        char *object = object_at(cache, s, (uint32_t)i);
        if (cache->walked)
            memset(object, 0, cache->object_size);
        *(void **)(void *)object = s->free;
        s->free = object;
    }
    s->fresh = (uint32_t)end;
}

static char *object_at(const struct vow__slab_cache *cache, struct vow__slab *s,
                       uint32_t index)
{
    return (char *)(s + 1) + cache->object_size * index;
}
