/* SPDX-License-Identifier: MIT */
/* slab.h - objects of one size, many to a slab. See slab.c. */
#ifndef VOW_BASE_SLAB_H
#define VOW_BASE_SLAB_H

#include "base/alloc.h"
#include "base/assert.h"
#include "base/list.h"

struct vow__slab_cache {
    struct vow__slab *current; /* where objects come from; NULL: none yet */
    const struct vow_alloc *alloc;
    void *owner;        /* the owner of each new slab */
    size_t object_size; /* bytes, a multiple of 8 */
    size_t per_slab;    /* objects in a slab; 1: nothing is pooled */
    bool walked;        /* by vow__slab_next(): fresh objects are zeroed */
    vow_link *usable;   /* other slabs with room */
    vow_link *empty;    /* slabs without a live object */
    vow_link *all;      /* every slab */
    size_t slabs;       /* in all */
    size_t empties;     /* in empty */
    size_t idle_low;    /* fewest empties since the last decay */
};

enum vow__slab_list { VOW__CURRENT, VOW__USABLE, VOW__EMPTY, VOW__FULL };

struct vow__slab {
    void *free; /* objects to hand out, chained by their first word */
    uint32_t used;
    uint32_t fresh; /* objects from here on were never handed out */
    void *owner;    /* the owner of the cache */
    struct vow__slab_cache *cache;
    vow_link in_all;
    vow_link in_room;          /* of usable or empty */
    enum vow__slab_list place; /* the list of the slab */
};

void vow__slab_init(struct vow__slab_cache *p, const struct vow_alloc *alloc,
                    void *owner, size_t object_size, bool pooled);
/* Frees every slab; objects must be gone. */
void vow__slab_fini(struct vow__slab_cache *p);

/* True when no object is alive. */
bool vow__slab_unused(const struct vow__slab_cache *p);

/* The slow ways: find or make a slab with objects to hand out (NULL without
 * memory), and move a slab that has room again or is empty to another list. */
struct vow__slab *vow__slab_refill(struct vow__slab_cache *p);
void vow__slab_relist(struct vow__slab *s);

/* Give empty slabs back: all, or half of those idle since the last call.
 * Decay returns whether some are left for the next time. */
void vow__slab_trim(struct vow__slab_cache *p);
bool vow__slab_decay(struct vow__slab_cache *p);

size_t vow__slab_bytes(const struct vow__slab_cache *p);

/* Walk all objects ever handed out; the caller knows which are live. Start
 * with `at` zeroed; NULL at the end. Do not allocate or free meanwhile. */
struct vow__slab_cursor {
    vow_link *slab;
    uint32_t index;
    bool started;
};
void *vow__slab_next(const struct vow__slab_cache *p,
                     struct vow__slab_cursor *at);

/* Will vow__slab_take() succeed without looking for a slab? */
static inline bool vow__slab_ready(const struct vow__slab_cache *p)
{
    return p->current != NULL && p->current->free != NULL;
}

/* An object and its slab, both for vow__slab_give(). */
static inline void *vow__slab_take(struct vow__slab_cache *p,
                                   struct vow__slab **ret_slab)
{
    struct vow__slab *s = p->current;
    if (VOW__UNLIKELY(!vow__slab_ready(p))) {
        s = vow__slab_refill(p);
        if (s == NULL)
            return NULL;
    }
    void *object = s->free;
    s->free = *(void **)object;
    s->used++;
    *ret_slab = s;
    return object;
}

static inline void vow__slab_give(struct vow__slab *s, void *object)
{
    *(void **)object = s->free;
    s->free = object;
    s->used--;
    if (VOW__UNLIKELY(s->used == 0 || s->place == VOW__FULL))
        vow__slab_relist(s);
}

#endif
