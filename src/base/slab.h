/* SPDX-License-Identifier: MIT */
/* slab.h - a slab cache: objects of one size, many to a slab. See slab.c. */
#ifndef VOW_BASE_SLAB_H
#define VOW_BASE_SLAB_H

#include "base/alloc.h"
#include "base/assert.h"
#include "base/list.h"

struct vow__slab_cache {
    struct vow__slab *current; /* the slab to take objects from; NULL: none */
    const struct vow_alloc *alloc;
    void *owner;        /* the owner of each new slab */
    size_t object_size; /* bytes, a multiple of 8 */
    size_t per_slab;    /* objects in a slab; 1: a slab for each object */
    bool walked;        /* by vow__slab_next(): fresh objects are zeroed */
    vow_link *usable;   /* other slabs with room */
    vow_link *empty;    /* slabs without a live object */
    vow_link *all;      /* every slab of the cache */
    size_t slabs;       /* number of slabs in `all` */
    size_t empties;     /* number of slabs in `empty` */
    size_t idle_low;    /* fewest empties since the last decay */
};

/* The list of a slab. An object that comes back moves the slab to another list
 * if fewer objects are alive than the number. */
enum vow__slab_list {
    VOW__CURRENT = 0, /* stays current, with or without live objects */
    VOW__USABLE = 1,
    VOW__EMPTY = 2,
    VOW__FULL = INT32_MAX
};

struct vow__slab {
    void *free; /* objects to hand out, chained by their first word */
    uint32_t used;
    uint32_t fresh; /* objects from here on were never handed out */
    void *owner;    /* the owner of the cache */
    struct vow__slab_cache *cache;
    vow_link in_all;
    vow_link in_room;          /* entry in `usable` or `empty` of the cache */
    enum vow__slab_list place; /* the list of the slab */
};

/* Initializes a cache. With `share_slabs` false, each object has a slab of its
 * own (LIMITS of slab.c). */

void vow__slab_init(struct vow__slab_cache *cache,
                    const struct vow_alloc *alloc, void *owner,
                    size_t object_size, bool share_slabs);
/* Frees every slab; no object of the cache may be alive. */
void vow__slab_fini(struct vow__slab_cache *cache);

/* Returns whether no object of the cache is alive. */
bool vow__slab_unused(const struct vow__slab_cache *cache);

/* The slow paths of take and give: find or make a slab with free objects (NULL
 * without memory); move a slab that has room again, or is empty, to another
 * list of the cache. */
struct vow__slab *vow__slab_refill(struct vow__slab_cache *cache);
void vow__slab_relist(struct vow__slab *s);

/* Give empty slabs back to the allocator: all, or half of the slabs that were
 * idle since the last call. Decay returns whether empty slabs are left. */
void vow__slab_trim(struct vow__slab_cache *cache);
bool vow__slab_decay(struct vow__slab_cache *cache);

/* Returns the size of a slab in bytes. */
size_t vow__slab_bytes(const struct vow__slab_cache *cache);

/* Walks all objects of the cache that were ever carved; the caller knows which
 * objects are alive. Start with `at` zeroed; NULL: the end. Take and give no
 * object during a walk. */
struct vow__slab_cursor {
    vow_link *slab;
    uint32_t index;
    bool started;
};
void *vow__slab_next(const struct vow__slab_cache *cache,
                     struct vow__slab_cursor *at);

/* Returns whether the current slab has a free object: then vow__slab_take()
 * cannot fail. */
static inline bool vow__slab_ready(const struct vow__slab_cache *cache)
{
    return cache->current != NULL && cache->current->free != NULL;
}

/* Returns an object, and the slab of the object for vow__slab_give(). NULL
 * without memory. */
static inline void *vow__slab_take(struct vow__slab_cache *cache,
                                   struct vow__slab **ret_slab)
{
    struct vow__slab *s = cache->current;
    if (VOW__UNLIKELY(!vow__slab_ready(cache))) {
        s = vow__slab_refill(cache);
        if (s == NULL)
            return NULL;
    }
    void *object = s->free;
    s->free = *(void **)object;
    s->used++;
    *ret_slab = s;
    return object;
}

/* Gives an object back to the slab of the object. */
static inline void vow__slab_give(struct vow__slab *s, void *object)
{
    *(void **)object = s->free;
    s->free = object;
    s->used--;
    if (VOW__UNLIKELY(s->used < (uint32_t)s->place))
        vow__slab_relist(s);
}

#endif
