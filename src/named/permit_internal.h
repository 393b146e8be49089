/* SPDX-License-Identifier: MIT */
/* permit_internal.h - a pool permit, as seen by the hub's loop and by the
 * caller's loop.
 *
 * The caller has a loop (pool.c); the store has the hub's loop (permit.c),
 * which may be the same. The hub's loop answers by two promises that are made
 * with the permit. The caller's loop sets a flag and sends a message; if the
 * message cannot be sent, the hub's loop sees the flag at the next look at the
 * permit.
 *
 *   NEW -> ASKING <-> QUEUED         in the wait queue of the store
 *             |  \<-> PAUSING        the store is down: the request is repeated
 *             v
 *           HELD -> LOST             not renewed in time; not given back yet
 *             \-----> LEAVING        a release is in flight, or pauses
 *                        \-> OVER    the hub's loop has forgotten the permit
 *
 * INVARIANTS
 *   P1  a permit that is not OVER is in the heap, or a step in flight decides
 *       about the permit, or the permit is NEW and a message is in flight
 *   P2  both settlers are settled when the permit is OVER
 *   P3  `left` is set once and stays
 */
#ifndef VOW_NAMED_PERMIT_INTERNAL_H
#define VOW_NAMED_PERMIT_INTERNAL_H

#include "named/named_internal.h"

enum vow__named_permit_state {
    PERMIT_NEW = 0,
    PERMIT_ASKING,
    PERMIT_QUEUED,
    PERMIT_PAUSING,
    PERMIT_HELD,
    PERMIT_LOST,
    PERMIT_LEAVING,
    PERMIT_OVER
};

struct vow__named_permit {
    atomic_uint refs;      /* by the hub's loop, the caller's loop, messages and
                              steps */
    vow_authority *handle; /* counted */
    atomic_bool left;      /* the caller does not need the permit any more */
    atomic_bool rated;     /* granted under a rate of starts; set before the
                              answer */
    atomic_bool started;   /* the work of the permit has begun; set once */
    vow_permit_request request; /* token: owned by the hub's loop */
    uint64_t span_ns;           /* validity after the send time of an answered
                                   step */
    uint64_t every_ns;          /* between two renewals */
    /* owned by the hub's loop */
    struct vow__table_node by_token;
    struct vow__heap_node due;
    vow_call call; /* the message, if both loops are the same */
    uint8_t state; /* enum vow__named_permit_state */
    bool in_heap;
    bool keeps_loop;   /* in the heap, and keeps the loop running */
    bool known;        /* the store may know the permit */
    bool was_queued;   /* has been in the wait queue */
    bool woken;        /* ASKING: a wake-up came during the request */
    bool renewing;     /* a renewal is in flight */
    bool start_stored; /* the store knows the start of the work */
    uint32_t pauses;   /* pauses in a row */
    uint64_t round;    /* number of requests */
    uint64_t sent_ns;  /* send time of the last request */
    uint64_t valid_ns; /* HELD: end of validity by the local clock */
    uint64_t again_ns; /* QUEUED: time of the next request */
    uint64_t kept_ns;  /* known: the store keeps the permit until then */
    uint64_t renew_ns;
    uint64_t release_until_ns;                /* LEAVING: the store's lease has
                                                 ended by then */
    struct vow__named_settler answer_settler; /* resolved: granted */
    struct vow__named_settler lost_settler;
    /* owned by the caller's loop */
    vow_deferred *result; /* for the caller; NULL: settled */
    vow_watch watch;      /* of the answer, then of the loss */
    vow_grant grant;      /* fence: set before the answer */
    bool behind_gate;     /* a gate calls grant.started */
    size_t size;          /* of the block, in bytes */
    char label[];
};

struct vow__named_permits {
    struct vow__table tokens;   /* all permits except NEW and OVER */
    struct vow__heap_node *due; /* heap; not if a step in flight decides */
    uint64_t seq;
    size_t n_keep_loop; /* permits in the heap that keep the loop running */
    vow_call timer;
    uint64_t timer_ns;
    bool timer_weak;
    bool timer_blocked; /* the timer is not armed: on_permit_timer() runs, or
                           the hub closes */
};

/* ---- permit.c, on the hub's loop ---------------------------------------- */

/* Reads the flags of the caller's loop: a new permit is requested, a permit
 * that the caller left is given back, a start of work is sent to the store. */
void vow__named_permit_sync(void *permit);
/* Handles a permit that is due. */
void vow__named_permit_due(struct vow__named_permit *p, uint64_t now);
/* Ends a permit that the store does not know any more. */
void vow__named_permit_forgotten(struct vow__named_permit *p);

/* ---- permit_renew.c, on the hub's loop ---------------------------------- */

int vow__named_permits_open(struct vow__named_hub *h);
/* Renews the first permit of the heap, HELD or QUEUED, if renewal is due. */
void vow__named_permit_renew(struct vow__named_permit *first, uint64_t now);
/* Puts the permit into the heap: by the first due time of the state; after a
 * pause, longer each time; at a given time. unschedule removes the permit. */
void vow__named_permit_schedule(struct vow__named_permit *p);
void vow__named_permit_pause(struct vow__named_permit *p);
void vow__named_permit_schedule_at(struct vow__named_permit *p,
                                   uint64_t due_ns);
void vow__named_permit_unschedule(struct vow__named_permit *p);
/* Returns whether the work has started and the store does not know the start.
 * hurry then renews the permit now. */
static inline bool vow__named_permit_owes_start(struct vow__named_permit *p)
{
    return atomic_load(&p->started) && !p->start_stored;
}
void vow__named_permit_hurry(struct vow__named_permit *p);
/* Notes that a step sent at `sent_ns` reached the store. */
void vow__named_permit_confirmed(struct vow__named_permit *p, uint64_t sent_ns);
/* Returns the time between two renewals, with jitter; the time at which the
 * store wants the next request. */
uint64_t vow__named_permit_renewal_ns(struct vow__named_permit *p);
uint64_t vow__named_permit_again_ns(const struct vow__named_permit *p,
                                    const vow_pool_permit *at);

/* ---- pool.c ------------------------------------------------------------- */

static inline struct vow__named_permit *
vow__named_permit_ref(struct vow__named_permit *p)
{
    atomic_fetch_add(&p->refs, 1);
    return p;
}
/* Frees the memory with the last reference. */
void vow__named_permit_unref(struct vow__named_permit *p);

#endif
