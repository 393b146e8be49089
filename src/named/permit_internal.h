/* SPDX-License-Identifier: MIT */
/* permit_internal.h - a permit in a pool: what the hub's loop and its own loop know of it.
 *
 * Whoever asks has a loop (pool.c), the store has another, or the same
 * (permit.c). Word from the hub's loop comes by two promises that are made with the
 * permit. Word to the hub's loop is one flag, and a message that it was set: if that
 * cannot be sent, the hub's loop sees the flag when it looks at the permit next.
 *
 *   NEW -> ASKING <-> QUEUED         in the queue of the store
 *             |  \<-> PAUSING        the store is away: the same once more
 *             v
 *           HELD -> LOST             not renewed in time; not given back yet
 *             \-----> LEAVING        a release is under way, or pauses
 *                        \-> OVER    the hub's loop has forgotten it
 *
 * INVARIANTS
 *   P1  a permit that is not OVER is in the heap, or a step is in flight that
 *       goes on with it, or it is NEW and a message is
 *   P2  both ends are settled when it is OVER
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
    atomic_uint
        refs; /* the hub's loop's, its loop's, those of messages and steps */
    vow_authority *of;   /* counted */
    atomic_bool left;    /* nobody has a use for it any more */
    atomic_bool rated;   /* granted under a rate of starts, set before that */
    atomic_bool started; /* what it is for has begun; set once */
    vow_permit_request ask; /* its token is the hub's loop's */
    uint64_t span_ns;       /* it is trusted so long after it was asked for */
    uint64_t every_ns;      /* between two renewals */
    /* the hub's loop's */
    struct vow__table_node by_token;
    struct vow__heap_node due;
    vow_call call; /* brings word, from the same loop */
    uint8_t state; /* enum vow__named_permit_state */
    bool in_heap;
    bool strong;       /* in the heap, and keeps the loop running */
    bool known;        /* to the store, perhaps */
    bool queues;       /* it was told to wait */
    bool woken;        /* ASKING: a wake-up came meanwhile */
    bool renewing;     /* a renewal is in flight */
    bool stamped;      /* the store was told of the start */
    uint32_t pauses;   /* in a row */
    uint64_t round;    /* how often it was asked for */
    uint64_t sent_ns;  /* when it was last */
    uint64_t valid_ns; /* HELD: trusted until then */
    uint64_t again_ns; /* QUEUED: when to ask again */
    uint64_t kept_ns;  /* known: the store keeps it until then */
    uint64_t renew_ns;
    uint64_t until_ns; /* LEAVING: the store has forgotten it by then */
    struct vow__named_settler answer; /* nothing: it is granted */
    struct vow__named_settler lost;
    /* its loop's */
    vow_deferred *out; /* of who asked; NULL: settled */
    vow_watch watch;   /* of the answer, then of the loss */
    vow_grant grant;   /* its fence is set before the answer */
    bool behind_gate;  /* which says when the work starts */
    size_t size;       /* of the block */
    char label[];
};

struct vow__named_permits {
    struct vow__table tokens; /* all permits, but those that are NEW or OVER */
    struct vow__heap_node *due; /* those without a step in flight */
    uint64_t seq;
    size_t strong; /* how many in the heap keep the loop running */
    vow_call look;
    uint64_t look_ns;
    bool look_weakly;
    bool looking; /* the timer is set behind it */
};

/* ---- permit.c, on the hub's loop ---------------------------------------- */

/* See what its own loop wants, for the first time or now that
 * it has left. */
void vow__named_permit_sync(void *permit);
/* Its time has come: do what it waits for. */
void vow__named_permit_due(struct vow__named_permit *p, uint64_t now);
/* The store knows it no more. */
void vow__named_permit_forgotten(struct vow__named_permit *p);

/* ---- permit_renew.c, on the hub's loop ----------------------------------- */

int vow__named_permits_open(struct vow__named_hub *h);
/* HELD or QUEUED, and the first in the heap: renew it, if it is time. */
void vow__named_permit_renew(struct vow__named_permit *first, uint64_t now);
/* Into the heap: by what comes first; longer each time; by a time of its own;
 * out of it. */
void vow__named_permit_schedule(struct vow__named_permit *p);
void vow__named_permit_pause(struct vow__named_permit *p);
void vow__named_permit_schedule_at(struct vow__named_permit *p,
                                   uint64_t due_ns);
void vow__named_permit_unschedule(struct vow__named_permit *p);
/* Its start is known here, and not to the store: renew it now. */
static inline bool vow__named_permit_owes_start(struct vow__named_permit *p)
{
    return atomic_load(&p->started) && !p->stamped;
}
void vow__named_permit_hurry(struct vow__named_permit *p);
/* The store has heard of it since then. */
void vow__named_permit_confirmed(struct vow__named_permit *p, uint64_t sent_ns);
/* How long until its next renewal; when the store wants to be asked again. */
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
void vow__named_permit_unref(struct vow__named_permit *p); /* of the memory */

#endif
