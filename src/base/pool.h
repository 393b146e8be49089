/* SPDX-License-Identifier: MIT */
/* pool.h - objects of one size, many to a slab. See pool.c. */
#ifndef VOW_BASE_POOL_H
#define VOW_BASE_POOL_H

#include "base/alloc.h"
#include "base/assert.h"
#include "base/list.h"

struct vow__pool {
    struct vow__slab *current; /* where objects come from; NULL: none yet */
    const struct vow_alloc *alloc;
    void *owner;        /* the owner of each new slab */
    size_t object_size; /* bytes, a multiple of 8 */
    size_t per_slab;    /* objects in a slab; 1: nothing is pooled */
    bool walked;        /* by vow__pool_next(): fresh objects are zeroed */
    vow_link *usable;   /* other slabs with room */
    vow_link *empty;    /* slabs without a live object */
    vow_link *all;      /* every slab */
    size_t slabs;       /* in all */
    size_t empties;     /* in empty */
    size_t idle_low;    /* fewest empties since the last decay */
};

enum vow__slab_place { VOW__CURRENT, VOW__USABLE, VOW__EMPTY, VOW__FULL };

struct vow__slab {
    void *free; /* objects to hand out, chained by their first word */
    uint32_t used;
    uint32_t fresh; /* objects from here on were never handed out */
    void *owner;    /* the pool's */
    struct vow__pool *pool;
    vow_link in_all;
    vow_link in_room;           /* of usable or empty */
    enum vow__slab_place place; /* the list of the slab */
};

void vow__pool_init(struct vow__pool *p, const struct vow_alloc *alloc,
                    void *owner, size_t object_size, bool pooled);
/* Frees every slab; objects must be gone. */
void vow__pool_fini(struct vow__pool *p);

/* True when no object is alive. */
bool vow__pool_unused(const struct vow__pool *p);

/* The slow ways: find or make a slab with objects to hand out (NULL without
 * memory), and move a slab that has room again or is empty to another list. */
struct vow__slab *vow__pool_refill(struct vow__pool *p);
void vow__pool_replace(struct vow__slab *s);

/* Give empty slabs back: all, or half of those idle since the last call.
 * Decay returns whether some are left for the next time. */
void vow__pool_trim(struct vow__pool *p);
bool vow__pool_decay(struct vow__pool *p);

size_t vow__pool_slab_size(const struct vow__pool *p);

/* Walk all objects ever handed out; the caller knows which are live. Start
 * with `at` zeroed; NULL at the end. Do not allocate or free meanwhile. */
struct vow__pool_cursor {
    vow_link *slab;
    uint32_t index;
    bool started;
};
void *vow__pool_next(const struct vow__pool *p, struct vow__pool_cursor *at);

/* Will vow__pool_take() succeed without looking for a slab? */
static inline bool vow__pool_ready(const struct vow__pool *p)
{
    return p->current != NULL && p->current->free != NULL;
}

/* An object and its slab, both for vow__pool_give(). */
static inline void *vow__pool_take(struct vow__pool *p,
                                   struct vow__slab **ret_slab)
{
    struct vow__slab *s = p->current;
    if (VOW__UNLIKELY(!vow__pool_ready(p))) {
        s = vow__pool_refill(p);
        if (s == NULL)
            return NULL;
    }
    void *object = s->free;
    s->free = *(void **)object;
    s->used++;
    *ret_slab = s;
    return object;
}

static inline void vow__pool_give(struct vow__slab *s, void *object)
{
    *(void **)object = s->free;
    s->free = object;
    s->used--;
    if (VOW__UNLIKELY(s->used == 0 || s->place == VOW__FULL))
        vow__pool_replace(s);
}

#endif
