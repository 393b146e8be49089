/* SPDX-License-Identifier: MIT */
/* cas_internal.h - the inside of the engine over a compare-and-set service.
 *
 * HOW   A *step* is a fiber. Steps of the class ASK (claims and questions) wait
 *       for each other in the lane of their name, and steps of the class OWN
 *       (commit, chunk) in another lane: an owner never waits behind claims.
 *       At most CAS_ACTIVE_MAX steps of a class are under way. Answers are
 *       given on the stack of the loop, not of the fiber.
 *       A *name* (struct cas_name) is the local cache: the name as last seen,
 *       whether this instance owns the name or waits, and the lanes.
 * INVARIANTS  run by vow__cas_name_check()
 *   C1  a name with steps, an owner or orphans is not in the list of resting
 *       names; any other name is
 *   C2  a name is in the heap of expiries if and only if the name is owned
 *   C3  `found` is the newest version that this instance has seen
 *   C4  while closing, no step begins but those of the store itself
 * THREADS  the thread of the loop.
 */
#ifndef VOW_STORE_CAS_INTERNAL_H
#define VOW_STORE_CAS_INTERNAL_H

#include "base/alloc.h"
#include "base/assert.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/table.h"
#include "store/cas/cas.h"
#include "vow/call.h"
#include "vow/fiber.h"

enum {
    CAS_LANES = 2,         /* of a step */
    CAS_ACTIVE_MAX = 64,   /* steps of a class under way */
    CAS_TRIES_MAX = 16,    /* conflicts, then VOW_EAGAIN */
    CAS_RESTING_MAX = 256, /* names in the cache that nobody waits for */
    CAS_SLACK_MS = 1000    /* a lease at the service is so much longer than the
                              leases of names: uses within share a keepalive */
};
/* A record is kept for so long, and a tombstone too: a late write that assumed
 * no record has no effect meanwhile. */
#define CAS_KEEP_MS UINT64_C(60000)

struct cas;
struct cas_step;
struct cas_pool;
struct cas_permit;

enum cas_class { CAS_ASK, CAS_OWN, CAS_CLASSES };

/* Steps that follow each other. */
struct cas_lane {
    struct cas_step *active; /* the head, or NULL */
    vow_link *queue;         /* steps behind the head */
};

struct cas_orphan;

/* What this instance knows of a name. */
struct cas_name {
    struct vow__table_node node;
    vow_name name;
    struct cas *cas;
    vow_link resting;                   /* in cas->resting */
    uint64_t touched_ns;                /* when the last step ended */
    size_t steps;                       /* that use the name */
    struct cas_lane lanes[CAS_CLASSES]; /* a lane for each class of steps */
    struct cas_found found;             /* newest version seen */
    bool known;                         /* `found` is set */
    bool fresh; /* `found` is as the service has the name: a watch follows */
    /* waiting */
    bool awaited;
    uint64_t first; /* of the awaited run */
    bool chunked;   /* on_chunks is to be called */
    bool canceled;  /* on_cancel is to be called */
    bool hinted;    /* on_record is to be called, whatever the record */
    vow_call tell;
    /* owning */
    bool owned;
    bool remark;     /* the mark may be dropped: the next renewal writes anew */
    size_t renewals; /* claims and pulses under way: no mark is dropped */
    vow_token token;
    uint64_t end_ns;              /* of the lease, by the clock of the loop */
    struct vow__heap_node expiry; /* key: when the end is looked after */
    vow_link *orphans;            /* struct cas_orphan */
};

struct cas {
    vow_store store;
    vow_store_ops ops;
    vow_loop *loop;
    struct vow_alloc alloc;
    struct cas_service *service;
    uint32_t flags;
    uint64_t timeout_ns;
    vow_store_events events;
    /* steps */
    size_t steps;                 /* not freed, in any state */
    size_t active[CAS_CLASSES];   /* under way */
    vow_link *queue[CAS_CLASSES]; /* ready, and wait for room */
    vow_link *all;                /* every step, for the close */
    /* names */
    struct vow__table names;
    vow_link *resting; /* the longest untouched first */
    size_t n_resting;
    struct vow__heap_node *expiries;
    uint64_t expiry_seq;
    vow_call expire;
    size_t n_owned;
    /* pools */
    struct vow__table pools;
    uint64_t doubts; /* how often events may have been lost */
    vow_link *news;  /* permits that are to be told */
    vow_call tell;
    /* leases */
    vow_link *leases; /* struct cas_slot */
    size_t n_leases;
    /* the clock of the service, at a time of the loop */
    uint64_t clock_us, clock_ns;
    /* closing */
    bool closing, closed_service;
    vow_deferred *closed;
    vow_future *closed_future;
};

/* ---- steps (cas.c) ------------------------------------------------------- */

struct cas_step_ops {
    size_t size; /* of the whole step */
    /* On a fiber: does the work, returns a code. */
    int (*run)(struct cas_step *step);
    /* On the stack of the loop, once; the code of `run`, or VOW_ECLOSED. NULL:
     * a step of the store itself, which also runs while the store closes. */
    void (*answer)(struct cas_step *step, int code);
    /* Frees the fields of the step; may be NULL. */
    void (*fini)(struct cas_step *step);
};

struct cas_step {
    const struct cas_step_ops *ops;
    struct cas *cas;
    struct cas_name *name; /* NULL: of no name, or of many */
    enum cas_class class;
    struct cas_lane *lanes[CAS_LANES]; /* entered one after another; may be
                                          NULL */
    unsigned entered;                  /* lanes of which the step is the head */
    vow_link link;                     /* in a lane or in a queue */
    vow_link in_all;                   /* in cas->all */
    vow_call end;
    uint64_t due_ns;
    int code;
    bool answered;
    union {
        vow_records_fn records;
        vow_chunks_fn chunks;
        vow_permits_fn permits;
        vow_pools_fn pools;
    } done;
    void *user;
};

/* Makes a step; `name` NULL: of no single name. NULL without memory. */
struct cas_step *vow__cas_step_new(struct cas *s,
                                   const struct cas_step_ops *ops,
                                   enum cas_class class, const vow_name *name);
/* Starts a step behind the steps of its lane. The step frees itself. */
void vow__cas_step_start(struct cas_step *step);
/* With a code, the step ends with the code and does not run. */
void vow__cas_step_start_with(struct cas_step *step, int code);
/* The store is not freed before the call of vow__cas_leave(). */
void vow__cas_stay(struct cas *s);
void vow__cas_leave(struct cas *s);
struct cas *vow__cas_of(vow_store *s);
uint64_t vow__cas_now_ns(const struct cas *s);

/* ---- changes (cas_change.c) ---------------------------------------------- */

/* One change of one name, by one rule. */
struct cas_change {
    struct cas *cas;
    struct cas_name *name;
    /* the request */
    struct decision (*decide)(const struct cas_change *c,
                              const struct rules_record *r,
                              const struct rules_record *left,
                              struct rules_now now);
    const void *request; /* of `decide` */
    const vow_token *token;
    uint64_t lease_ms;
    bool leases; /* a decision for the token sets a mark with lease_ms */
    bool wait;   /* register the instance if the name is taken */
    bool insist; /* write, even if nothing changes */
    uint64_t waited;
    const char *label, *runner;
    vow_bytes *value;
    uint64_t due_ns;
    /* the result */
    struct cas_found found;
    struct decision d;
    uint64_t now_us;
    bool seen;  /* `found` is as the service has the name */
    bool wrote; /* the record was written by the decision */
    bool unsure;
    bool was_unsure;         /* at any time: a write may be what was found */
    uint64_t unsure_version; /* compared by the write that is unsure */
    vow_bytes *shown;        /* EFFECT_SHOW, counted */
};

/* Returns the mark of a token; NULL: the record does not name the token. */
const struct cas_mark *vow__cas_mark(const struct cas_found *f,
                                     const vow_token *token);
/* Reads, decides and writes until done. Beforehand, `found` may be set to what
 * is known of the name; with `seen`, no read is needed. */
int vow__cas_change_run(struct cas_change *c);
void vow__cas_change_fini(struct cas_change *c);
/* Makes the answer; texts and value are borrowed from `c`. */
vow_record vow__cas_change_answer(const struct cas_change *c);
/* Returns the record with the ends of leases, as of a time. */
struct rules_record vow__cas_record(const struct cas_found *f, uint64_t now_us);
/* The clock of the service, by the last answer. */
uint64_t vow__cas_clock_us(const struct cas *s);
void vow__cas_clock_set(struct cas *s, uint64_t now_us);
/* Answers records without values. */
vow_record vow__cas_found_answer(const struct cas_found *f);

/* ---- the local cache (cas_cache.c) --------------------------------------- */

/* Finds or makes a name and counts a use. NULL without memory. */
struct cas_name *vow__cas_name_use(struct cas *s, const vow_name *name);
struct cas_name *vow__cas_name_find(const struct cas *s, const vow_name *name);
void vow__cas_name_drop(struct cas_name *n); /* ends a use */
/* Takes over a newer version, and tells the waiters. */
void vow__cas_name_note(struct cas_name *n, const struct cas_found *f);
void vow__cas_name_await(struct cas_name *n, bool awaited, uint64_t first);
/* The token has a lease of `ms` from now on; the name is in the cache. */
void vow__cas_name_own(struct cas_name *n, const vow_token *token, uint64_t ms);
void vow__cas_name_disown(struct cas_name *n);
bool vow__cas_name_owned(const struct cas_name *n, const vow_token *token);
void vow__cas_name_check(const struct cas_name *n);
/* Frees all names, at the end. */
void vow__cas_names_fini(struct cas *s);
extern const struct cas_events vow__cas_events;

/* ---- leases (cas_lease.c) ------------------------------------------------ */

/* Gives a lease that is valid for at least `ms` from now on; `marks` as in
 * lease_grant. With names, always renews the lease and reads the names. On a
 * fiber. */
int vow__cas_lease_use(struct cas *s, uint64_t ms, bool marks, uint64_t due_ns,
                       struct cas_lease *ret_lease);
int vow__cas_lease_read(struct cas *s, uint64_t ms, const struct cas_read *read,
                        struct cas_found *ret_found,
                        struct cas_lease *ret_lease);
void vow__cas_lease_gone(struct cas *s, uint64_t id);
/* Returns whether the lease is in use here. */
bool vow__cas_lease_mine(const struct cas *s, uint64_t id);
void vow__cas_leases_fini(struct cas *s);

/* ---- orphaned claims (cas_orphan.c) -------------------------------------- */

/* A claim without an answer may hold the name: gives the name back. */
void vow__cas_orphan_claim(const struct cas_change *c);
/* The caller claims again with the token: there is an answer to come. */
void vow__cas_orphan_adopt(struct cas_name *n, const vow_token *token);
/* Gives back the orphans of a name, before another claim. On the fiber of a
 * step in the lane. Without success the orphans stay. */
void vow__cas_orphans_settle(struct cas_name *n, uint64_t due_ns);
/* Gives all back now, for the close. */
void vow__cas_orphans_close(struct cas *s);

/* ---- steps on names (cas_names.c, cas_pulse.c, cas_list.c) ---------------- */

void vow__cas_claim(vow_store *s, const vow_claim_request *q,
                    vow_records_fn done, void *user);
void vow__cas_commit(vow_store *s, const vow_commit_request *q,
                     vow_records_fn done, void *user);
void vow__cas_forget(vow_store *s, const vow_name *name, uint64_t epoch,
                     vow_records_fn done, void *user);
void vow__cas_cancel(vow_store *s, const vow_name *name, vow_records_fn done,
                     void *user);
void vow__cas_write(vow_store *s, const vow_hold *hold, uint64_t number,
                    vow_bytes *chunk, vow_records_fn done, void *user);
void vow__cas_pulse(vow_store *s, const vow_hold *holds, size_t n,
                    uint64_t lease_ms, vow_records_fn done, void *user);
void vow__cas_peek(vow_store *s, const vow_name *names, size_t n,
                   vow_records_fn done, void *user);
void vow__cas_list(vow_store *s, vow_records_fn done, void *user);
void vow__cas_read(vow_store *s, const vow_name *name, uint64_t epoch,
                   uint64_t from, vow_chunks_fn done, void *user);
/* Ends the mark of a name with a lease that is over. */
void vow__cas_name_lapse(struct cas_name *n);

/* ---- steps on pools (cas_permit.c, cas_renew.c, cas_limit.c) ------------- */

void vow__cas_acquire(vow_store *s, const vow_permit_request *q,
                      vow_permits_fn done, void *user);
void vow__cas_release(vow_store *s, const vow_permit_hold *hold,
                      vow_permits_fn done, void *user);
void vow__cas_renew(vow_store *s, const vow_permit_hold *holds, size_t n,
                    uint64_t lease_ms, vow_permits_fn done, void *user);
void vow__cas_limit(vow_store *s, const vow_name *pool,
                    const vow_pool_limits *limits, const char *label,
                    vow_pools_fn done, void *user);
void vow__cas_pools(vow_store *s, vow_pools_fn done, void *user);
/* Gives all permits back, for the close. */
void vow__cas_pools_close(struct cas *s);
/* Frees all pools, at the end. */
void vow__cas_pools_fini(struct cas *s);
/* What the service tells about pools: see struct cas_events. */
void vow__cas_pool_look(const struct cas_pool_name *name,
                        const vow_token *token, void *user);
/* Events may have been lost. */
void vow__cas_pools_doubt(struct cas *s);

#endif
