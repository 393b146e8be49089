/* SPDX-License-Identifier: MIT */
/* map_internal.h - the inside of a running map, for map.c (its life),
 * map_pump.c (what it does) and map_slots.c (its memory). */
#ifndef VOW_COORD_MAP_INTERNAL_H
#define VOW_COORD_MAP_INTERNAL_H

#include "base/alloc.h"
#include "base/list.h"
#include "vow/call.h"
#include "vow/context.h"
#include "vow/map.h"
#include "vow/watch.h"

/*     PULLING --> DRAINING --> STOPPING --> OVER
 *     pulls,      delivers     lets what
 *     delivers                 runs end
 *
 * Each may skip the next, but from PULLING nothing goes to OVER at once. */
enum vow__map_state {
    VOW__PULLING = 0,
    VOW__DRAINING = 1,
    VOW__STOPPING = 2,
    VOW__OVER = 3
};

/* Items begun or delivered between two polls of the loop. */
enum { VOW__MAP_BUDGET = 1000 };

/* What the map waits for: an item's future, the source's, the sink's. */
struct vow__map_slot {
    vow_link link; /* of free or line; else of neither */
    vow_mapping *map;
    vow_future *future; /* counted; NULL: none */
    vow_value item;     /* owned while the future is pending */
    size_t index;       /* of the item */
    bool ended;         /* and not delivered */
    bool noted;         /* its failure was */
    vow_watch watch;    /* of the future */
};

struct vow__map_chunk {
    struct vow__map_chunk *next;
    size_t n;
    struct vow__map_slot slots[];
};

struct vow_mapping {
    vow_loop *loop;
    const char *site;
    struct vow_alloc alloc;
    uint32_t refs;     /* handles, and the machine until OVER */
    uint8_t state;     /* enum vow__map_state */
    uint8_t fail_mode; /* enum vow_map_fail */
    bool keeps;        /* outcomes, for a list */
    bool ordered;      /* the sink gets them in input order */

    vow_source source;
    vow_map_fn fn;
    void *user;
    vow_sink_fn sink;
    void *sink_user;
    vow_context *context; /* of the caller, counted; may be NULL */

    uint32_t concurrent;
    uint32_t window;
    uint32_t running;
    uint32_t budget; /* steps before the loop polls again */
    size_t in_use;   /* slots that run or are in line */
    size_t buffered; /* of these, ended */
    uint64_t pulled, ended, failed;
    uint64_t told; /* of ended, by progress */
    vow_call call; /* of the pump */

    vow_link *free;                /* slots to use, chained by next */
    vow_link *line;                /* slots to deliver, from the front */
    struct vow__map_chunk *chunks; /* all slots */
    size_t n_slots;
    struct vow__map_slot wait; /* the source has no item yet */
    struct vow__map_slot flow; /* the sink takes no more yet */
    vow_future **results;      /* by index, counted; NULL: none so far */
    size_t results_room;

    vow_error *error;   /* the first that counts, counted */
    vow_error *why;     /* set: all is canceled for this, counted */
    vow_deferred *end;  /* of the result */
    vow_deferred *over; /* of what the result ends with: the map is OVER */
};

/* ---- map.c --------------------------------------------------------------- */

/* The error is moved. `to` is the state from now on, unless it fails at once
 * or has gone further. */
void vow__map_fail(vow_mapping *m, vow_error *error, enum vow__map_state to);
void vow__map_fail_code(vow_mapping *m, int code, const char *text,
                        enum vow__map_state to);
void vow__map_move(vow_mapping *m, enum vow__map_state to);
/* Settle the result, give everything back. The map may be gone after it. */
void vow__map_conclude(vow_mapping *m);

/* ---- map_pump.c ---------------------------------------------------------- */

/* Run the pump from the queue. */
void vow__map_wake(vow_mapping *m);

/* ---- map_slots.c --------------------------------------------------------- */

/* Room for one more item: a free slot, a place for its outcome. False: no
 * memory. */
bool vow__map_grow(vow_mapping *m);
/* Cancel the future of every slot, for m->why. */
void vow__map_slots_cancel(vow_mapping *m);
/* Free the slots and the results, and the futures in them. */
void vow__map_slots_free(vow_mapping *m);

static inline struct vow__map_slot *vow__map_slot_of(vow_link *l)
{
    return VOW__OUTER(l, struct vow__map_slot, link);
}

#endif
