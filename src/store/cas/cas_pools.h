/* SPDX-License-Identifier: MIT */
/* cas_pools.h - pools as this instance knows them, and permits of this
 * instance.
 *
 *   cas_permit.c   acquire, release, and the end of a permit
 *   cas_renew.c    renewals
 *   cas_limit.c    limits, and the list of pools
 *        |
 *   cas_pool.c     permits of this instance: states, leases, wake-ups
 *   cas_turn.c     what is known of a pool, and turns of waiting requests
 *
 * HOW   A *pool* (struct cas_pool) exists while a step uses the pool or while
 *       this instance has permits there. A *permit* (struct cas_permit) exists
 *       while a row of this instance may be at the service. Steps on a permit
 *       follow each other in the lane of the permit, so the steps of a caller
 *       take effect in order; acquires on a pool follow each other in the lane
 *       of the pool, so requests queue in the order of the calls. A renewal
 *       enters no lane.
 * INVARIANTS  run by vow__cas_permit_check()
 *   Q1  a permit that is QUEUED, HELD or ENDING knows the order of its row
 *       (ENDING: if a join was answered)
 *   Q2  n_queued counts the QUEUED permits of a pool
 *   Q3  a permit with an end has a timer, or a step that ends the permit
 *   Q4  a permit that was told OWNED is told OWNED until the row is gone
 * THREADS  the thread of the loop.
 */
#ifndef VOW_STORE_CAS_POOLS_H
#define VOW_STORE_CAS_POOLS_H

#include "store/cas/cas_internal.h"

enum {
    CAS_ACCEPT_MS = 2000, /* RULES_ACCEPT_US */
    CAS_END_AGAIN_MS = 1000,
    CAS_LATE_MS = 60000 /* so late may a join without an answer come true */
};

/* A change of state goes through permit_state_set(). */
enum cas_permit_state {
    CAS_PERMIT_ASKED,  /* no answer yet: there may be a row */
    CAS_PERMIT_QUEUED, /* the caller was told WAITING */
    CAS_PERMIT_HELD,   /* the caller was told OWNED */
    CAS_PERMIT_ENDING  /* the row is being removed: the permit is lost */
};

struct cas_permit {
    struct vow__table_node node;
    vow_token token;
    struct cas_pool *pool;
    struct cas_lane lane;
    size_t steps; /* that use the permit */
    enum cas_permit_state state;
    uint64_t order; /* of the row; 0: not known */
    uint64_t fence;
    uint32_t weight;
    uint64_t lease_ms;
    uint64_t end_ns;  /* of the lease, by the clock of the loop; 0: none */
    uint64_t late_ns; /* until then, a join may come true */
    bool ending;      /* a step that ends the permit waits or runs */
    vow_call end;
    /* waiting */
    bool told;         /* that the request may have its turn */
    uint64_t fetch_ns; /* then the turn is over */
    bool looked;       /* an event came while a step was under way */
    bool headed;       /* known, or told, as the first in the queue */
    uint64_t before;   /* as last read */
    bool marked;
    bool in_news;
    vow_link news;
    /* under a rate */
    struct cas_entry entry; /* with this grant; version 0: none that is open */
    uint64_t entry_ns;      /* when the entry was written */
    bool started;           /* the work has started */
    bool closing;           /* a write under way tells the start */
};

struct cas_pool {
    struct vow__table_node node;
    struct cas_pool_name name;
    struct cas *cas;
    struct cas_lane lane; /* of acquires */
    size_t steps;         /* that use the pool */
    struct vow__table permits;
    size_t n_queued;
    struct cas_pool_found found; /* as last read */
    uint64_t share;              /* id of the newest entry of this instance */
    uint64_t share_us; /* when the entry was made, by the clock of the loop */
    bool doubted;      /* turns may have been missed: the pool is read again */
    bool looking;      /* a step reads the pool */
    uint64_t look_ns;  /* not before this time again */
    vow_call judge;    /* looks for requests that have their turn */
    vow_call clock;    /* the same, when the rate has room */
    vow_call look;     /* reads the pool, after a pause */
    vow_call rest;     /* nobody uses the pool, but entries are known */
};

/* ---- pools and permits (cas_pool.c) -------------------------------------- */

/* Finds or makes a pool and counts a use. NULL without memory. */
struct cas_pool *vow__cas_pool_use(struct cas *s,
                                   const struct cas_pool_name *name);
struct cas_pool *vow__cas_pool_find(const struct cas *s,
                                    const struct cas_pool_name *name);
void vow__cas_pool_drop(struct cas_pool *pool);
/* Finds or makes a permit and counts a use. NULL without memory. */
struct cas_permit *vow__cas_permit_use(struct cas_pool *pool,
                                       const vow_token *token);
struct cas_permit *vow__cas_permit_find(const struct cas_pool *pool,
                                        const vow_token *token);
void vow__cas_permit_drop(struct cas_permit *p);
/* The lease is renewed: `ms` from now on. During a use. */
void vow__cas_permit_lease(struct cas_permit *p, uint64_t ms);
/* A join had no answer. */
void vow__cas_permit_late(struct cas_permit *p);
/* The caller is told of this row. */
void vow__cas_permit_seat(struct cas_permit *p, const struct cas_row *row,
                          bool held);
/* The fence of a row does not change after the caller was told. */
void vow__cas_permit_fence(const struct cas_permit *p, struct cas_row *row);
/* The row is being removed. */
void vow__cas_permit_lose(struct cas_permit *p);
/* The row is gone. */
void vow__cas_permit_gone(struct cas_permit *p);
/* The row of a waiting request is gone: the caller asks again. */
void vow__cas_permit_unseat(struct cas_permit *p);
/* The request has a turn. */
void vow__cas_permit_turn(struct cas_permit *p);
/* Calls on_permit soon. */
void vow__cas_permit_tell(struct cas_permit *p);
/* The end was not reached, or is to be tried again. */
void vow__cas_permit_end_later(struct cas_permit *p, bool failed);
/* Returns whether lease or turn are over. */
bool vow__cas_permit_is_over(const struct cas_permit *p);
void vow__cas_permit_check(const struct cas_permit *p);

/* ---- turns (cas_turn.c) -------------------------------------------------- */

/* Prepares a found pool for an answer. */
struct cas_pool_found vow__cas_pool_found(const struct cas *s);
/* Sorts the entries of a read, and gives the entries their age, by what is
 * known of the pool; NULL: nothing. */
void vow__cas_entries_age(const struct cas *s, const struct cas_pool *pool,
                          struct cas_pool_found *found);
/* Sums up limits, marked weight and entries, as of `now_us` of the loop. The
 * result points into `found`. */
struct rules_pool vow__cas_pool_tally(struct cas_pool_found *found);
uint64_t vow__cas_loop_us(const struct cas *s);
/* Takes over what a read has found, begun when there were `doubts`. The entries
 * move into the pool. */
void vow__cas_pool_see(struct cas_pool *pool, struct cas_pool_found *found,
                       const struct cas_row *rows, size_t n, uint64_t doubts);
const struct cas_entry *vow__cas_entry_find(const struct cas_pool_found *found,
                                            uint64_t id);
/* Adds or replaces an entry of a pool with sorted entries. VOW_ENOMEM. */
int vow__cas_entries_put(struct cas_pool_found *found,
                         const struct cas_entry *entry);
/* Judges all waiting requests of the pool soon. */
void vow__cas_pool_judge(struct cas_pool *pool);
void vow__cas_pool_still(struct cas_pool *pool); /* stops all calls */

/* ---- steps (cas_permit.c) ------------------------------------------------ */

/* Starts the step that ends a permit. VOW_ENOMEM. */
int vow__cas_permit_end(struct cas_permit *p);
/* Removes the row of a permit. On a fiber, in the lane of the permit. Answers
 * the row as before, and with `look` the pool. 0: the row is gone. */
int vow__cas_permit_leave(struct cas_permit *p, bool look, uint64_t due_ns,
                          struct cas_pool_found *ret_pool,
                          struct cas_row *ret_row);
/* Makes the answer about a row that is held or waits. */
vow_pool_permit vow__cas_permit_answer(const struct cas *s,
                                       const struct rules_pool *tally,
                                       const struct cas_pool_found *found,
                                       const struct cas_row *row, bool held,
                                       uint64_t lease_ms);
/* Makes the entry of a new grant as a write has the entry. */
struct cas_entry vow__cas_entry_charge(const struct cas_pool *pool,
                                       const struct cas_pool_found *found,
                                       const struct cas_row *row,
                                       uint64_t lease_ms);
/* Makes the entry of a permit, without the grants that are closing. Version 0:
 * there is no such entry. */
struct cas_entry vow__cas_entry_close(const struct cas_permit *p,
                                      const struct cas_pool_found *found);
/* Forgets the entry of the permit if a read has not found the entry open. */
void vow__cas_permit_charged(struct cas_permit *p,
                             const struct cas_pool_found *found);
/* Starts the step that reads a pool for its waiting requests (cas_renew.c). */
void vow__cas_pool_look_start(struct cas_pool *pool);

#endif
