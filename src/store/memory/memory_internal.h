/* SPDX-License-Identifier: MIT */
/* memory_internal.h - the inside of the state of a memory store: what names
 * (memory_slots.h) and pools (memory_pools.h) have in common.
 *
 *   names (table)  -> slot  a record of store/rules, with value, texts, chunks
 *   left (table)   -> slot  a result left for waiters, by name and `first`
 *   waits (table)  -> wait  an instance and a name: registered, or woken
 *   pools          -> pools and permits
 *   instance       the events on the way; an event lies inside the object that
 *                  the event is about, so telling needs no memory
 */
#ifndef VOW_STORE_MEMORY_INTERNAL_H
#define VOW_STORE_MEMORY_INTERNAL_H

#include "base/heap.h"
#include "base/list.h"
#include "base/slab.h"
#include "base/table.h"
#include "store/memory/memory_state.h"
#include "store/rules/pool.h"

enum { VOW__MEMORY_REAP_MAX = 64 }; /* deleted by a step, besides its own */

/* A counted text: most runners are the same. */
struct vow__memory_text {
    uint32_t refs;
    uint32_t length;
    char chars[];
};

/* An event on the way. */
struct vow__memory_sent {
    vow_link link;
    uint8_t kind; /* enum vow__memory_event_kind; NO_EVENT: not on the way */
};

struct vow__memory_instance {
    void (*wake)(void *user);
    void *user;
    struct vow__memory_text *runner; /* of the last claim */
    vow_link *events;
    vow_link *waits;
    vow_link *owned; /* slots with this owner or refresher */
    vow_link *permits;
};

struct vow__memory_pools {
    struct vow__table by_name;
    struct vow__table permits;
    struct vow__slab_cache permit_memory;
    struct rules_storage storage; /* the user is of the step under way */
    struct vow__heap_node *idle;  /* unused pools of a key, by their end */
};

struct vow__memory_state {
    struct vow_alloc alloc;
    bool exact;
    uint64_t now_us; /* never falls */
    uint64_t recheck_ms;
    size_t value_max;
    uint64_t counter; /* the last epoch or fence */
    uint64_t seq;     /* of heaps */
    struct vow__table names;
    struct vow__table left;
    struct vow__table waits;
    struct vow__slab_cache slot_memory;
    struct vow__slab_cache wait_memory;
    struct vow__heap_node *ends; /* slots by expiry */
    struct vow__memory_pools pools;
};

static inline uint64_t vow__memory_us_plus(uint64_t a, uint64_t b)
{
    return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

/* Sets the time and deletes some slots and pools that have expired: the begin
 * of each step. */
void vow__memory_begin(struct vow__memory_state *m, uint64_t now_us);

/* Makes a text, cut to VOW_LABEL_MAX; *ret_text NULL: no text. VOW_ENOMEM. */
int vow__memory_text_make(struct vow__memory_state *m, const char *chars,
                          struct vow__memory_text **ret_text);
/* Returns whether `t` is the text that would be made. */
bool vow__memory_text_is(const struct vow__memory_text *t, const char *chars);
void vow__memory_text_unref(struct vow__memory_state *m,
                            struct vow__memory_text *t);

/* Sends an event to an instance. An event on the way changes its kind. */
void vow__memory_send(struct vow__memory_instance *instance,
                      struct vow__memory_sent *e,
                      enum vow__memory_event_kind kind);
void vow__memory_unsend(struct vow__memory_instance *instance,
                        struct vow__memory_sent *e);

#endif
