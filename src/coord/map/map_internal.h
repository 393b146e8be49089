/* SPDX-License-Identifier: MIT */
/* map_internal.h - the inside of a running map, for map.c (create, fail, end),
 * map_pump.c (items) and map_slots.c (memory). */
#ifndef VOW_COORD_MAP_INTERNAL_H
#define VOW_COORD_MAP_INTERNAL_H

#include "base/alloc.h"
#include "base/list.h"
#include "vow/call.h"
#include "vow/context.h"
#include "vow/map.h"
#include "vow/watch.h"

/*     PULLING --> DRAINING --> STOPPING --> OVER
 *     pulls,      delivers     running
 *     delivers                 items end
 *
 * PULLING may go to STOPPING, DRAINING to OVER; PULLING never goes to OVER. */
enum vow__map_state {
    VOW__PULLING = 0,
    VOW__DRAINING = 1,
    VOW__STOPPING = 2,
    VOW__OVER = 3
};

/* Items begun or delivered between two polls of the loop. */
enum { VOW__MAP_BUDGET = 1000 };

/* A future the map waits for: of an item, of the source, or of the sink. */
struct vow__map_slot {
    vow_link link; /* in free or deliveries, or in no list */
    vow_mapping *map;
    vow_future *future; /* counted; NULL: none */
    vow_value item;     /* owned until the future has ended */
    size_t index;       /* of the item */
    bool ended;         /* ended and not delivered */
    bool failure_noted; /* the failure was counted */
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
    uint32_t refs;      /* handles, and the map until OVER */
    uint8_t state;      /* enum vow__map_state */
    uint8_t fail_mode;  /* enum vow_map_fail */
    bool keeps_results; /* keep outcomes for a list */
    bool ordered;       /* the sink gets outcomes in input order */

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
    size_t in_use;   /* slots that run or are in deliveries */
    size_t buffered; /* slots that ended and are not delivered */
    uint64_t pulled, ended, failed;
    uint64_t reported; /* value of `ended` in the last progress */
    vow_call call;     /* of the pump */

    vow_link *free;                /* unused slots, chained by next */
    vow_link *deliveries;          /* slots to deliver, from the front */
    struct vow__map_chunk *chunks; /* all slots */
    size_t n_slots;
    struct vow__map_slot source_wait; /* while the source has no item */
    struct vow__map_slot sink_wait;   /* while the sink takes no outcome */
    vow_future **results;             /* by index, counted; NULL: none yet */
    size_t results_room;

    vow_error *error;   /* first real error, counted */
    vow_error *why;     /* set: cancel reason for all, counted */
    vow_deferred *end;  /* of the result */
    vow_deferred *over; /* resolved when the map is OVER */
};

/* ---- map.c --------------------------------------------------------------- */

/* Fails the map. The error is moved. `to` is the next state, unless the map
 * fails at once or is already further. */
void vow__map_fail(vow_mapping *m, vow_error *error, enum vow__map_state to);
void vow__map_fail_code(vow_mapping *m, int code, const char *text,
                        enum vow__map_state to);
void vow__map_move(vow_mapping *m, enum vow__map_state to);
/* Settles the result and releases everything. May free the map. */
void vow__map_conclude(vow_mapping *m);

/* ---- map_pump.c ---------------------------------------------------------- */

/* Schedules the pump on the queue. */
void vow__map_wake(vow_mapping *m);

/* ---- map_slots.c --------------------------------------------------------- */

/* Makes room for another item: a free slot, an entry for the outcome. False: no
 * memory. */
bool vow__map_grow(vow_mapping *m);
/* Cancels the future of every slot with m->why. */
void vow__map_slots_cancel(vow_mapping *m);
/* Frees the slots and the results with their futures. */
void vow__map_slots_free(vow_mapping *m);

static inline struct vow__map_slot *vow__map_slot_of(vow_link *l)
{
    return VOW__OUTER(l, struct vow__map_slot, link);
}

#endif
