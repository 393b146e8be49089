/* SPDX-License-Identifier: MIT */
/* etcd_pools.h - pools as their keys say, and as this instance knows them.
 *
 *   etcd_pools.c, etcd_release.c, etcd_renew.c   steps on places
 *   etcd_limit.c, etcd_census.c                  limits; all pools
 *        |
 *   etcd_hall.c     the pools where this instance has places, and its places
 *   etcd_wake.c     what the watch tells of them
 *        |
 *   etcd_seat.c     keys and values
 *   etcd_grant.c    who holds, who waits
 */
#ifndef VOW_STORE_ETCD_POOLS_H
#define VOW_STORE_ETCD_POOLS_H

#include "base/table.h"
#include "store/etcd/etcd_grant.h"
#include "store/etcd/etcd_internal.h"

/* ---- etcd_seat.c: keys and values ---------------------------------------- */

/* A pool: `law` is the one whose limits count, often itself. */
struct vow__hall_name {
    vow_name law, pool;
};

enum vow__hall_kind { VOW__KEY_LIMITS, VOW__KEY_SEAT, VOW__KEY_TOLL };
/* A key below s/: its limits have only a law. */
struct vow__hall_key {
    enum vow__hall_kind kind;
    struct vow__hall_name hall;
    vow_token token; /* of a seat */
    uint64_t id;     /* of a toll */
};
bool vow__hall_parse(const char *key, struct vow__hall_key *ret_key);
struct vow__key vow__limits_key(const vow_name *law);
struct vow__key vow__hall_tree(const struct vow__hall_name *hall);
struct vow__key vow__seat_key(const struct vow__hall_name *hall,
                              const vow_token *token);
struct vow__key vow__toll_key(const struct vow__hall_name *hall, uint64_t id);

/* Now, and by which clock others can tell: that of this machine since it was
 * started. */
struct vow__instant {
    uint64_t loop_us;
    uint64_t boot_us;
    const char *boot; /* which start of which machine */
};

/* What a value has; false: it is none of ours. */
bool vow__limits_read(const struct vow__kv *kv, vow_pool_limits *limits,
                      char label[VOW_LABEL_MAX + 1]);
bool vow__seat_read(const struct vow__kv *kv, const vow_token *token,
                    struct vow__seat *ret_seat);
bool vow__toll_read(const struct vow__kv *kv, uint64_t id,
                    const struct vow__instant *now, struct vow__toll *ret_toll);
/* One key more of a crowd that is being read; VOW_ENOMEM. */
int vow__crowd_take(struct vow__crowd *c, const struct vow__hall_key *key,
                    const struct vow__kv *kv, const struct vow__instant *now);

void vow__limits_write(struct vow__jot *value, const vow_pool_limits *limits,
                       const char *label);
/* A place that is asked for; one that changes its lease, or is marked. */
void vow__seat_write(struct vow__jot *value, const vow_permit_request *ask);
void vow__seat_rewrite(struct vow__jot *value, const struct vow__crowd *c,
                       const struct vow__seat *seat);
void vow__toll_write(struct vow__jot *value, const struct vow__crowd *c,
                     const struct vow__toll *toll,
                     const struct vow__instant *now);

/* A transaction of a step, which has its time. */
void vow__hall_txn(const struct vow__step_lane *step, struct vow__txn *ret_txn);
/* The operations that read a pool, VOW__HALL_RANGES of them; and what they have
 * found, from number `first` of a transaction on. VOW_EIO: that makes no sense;
 * VOW_ENOMEM. */
enum { VOW__HALL_RANGES = 3 };
void vow__hall_ask(struct vow__txn *t, enum vow__branch b,
                   const struct vow__hall_name *hall);
int vow__hall_read(struct vow__etcd *e, const json_t *txn, size_t first,
                   const struct vow__hall_name *hall, struct vow__crowd *c);

/* A lease of 0 is over as soon as it was given: the next step on the pool
 * throws it out, and until then it counts. On a lease of etcd of VOW__OVER_MS,
 * with a bell for steps that do not read. */
enum { VOW__OVER_MS = 10000, VOW__REAP_MAX = 50 };
struct vow__key vow__over_key(const struct vow__hall_name *hall);
/* Operations that throw out all who are over, but for this one; how many. */
size_t vow__hall_reap(struct vow__txn *t, const struct vow__hall_name *hall,
                      const struct vow__crowd *c, const vow_token *but);
/* The same in memory. */
void vow__crowd_reap(struct vow__crowd *c);
/* One operation: if the seat is as it was read, it goes. */
void vow__seat_drop(struct vow__txn *t, const struct vow__hall_name *hall,
                    const struct vow__seat *seat);

/* ---- etcd_hall.c: this instance's places --------------------------------- */

enum vow__guest_state {
    VOW__GUEST_ASKED,  /* what became of it is not known */
    VOW__GUEST_QUEUED, /* it was told so */
    VOW__GUEST_HELD
};

/* A place of this instance, by its token. */
struct vow__guest {
    struct vow__table_node named;
    vow_token token;
    struct vow__hall *hall;
    uint8_t state;
    bool told;           /* that its turn has come, which it may forfeit */
    bool in_news;        /* it is to be told */
    bool ending;         /* `step` waits or runs */
    uint64_t create;     /* of the seat that it was told of */
    uint64_t fence;      /* of that */
    uint64_t over_ns;    /* loop time: its lease; 0: it was never asked for */
    uint64_t forfeit_ns; /* and its turn */
    uint64_t late_ns;    /* until then what it asked may still come */
    uint64_t again_us;   /* loop time: when it was told to ask again */
    uint64_t round;      /* when it was last judged */
    uint64_t toll_id;    /* held under a rate: its toll; 0: none */
    bool started;        /* what it is for has begun */
    vow_link news;
    vow_call end;
    struct vow__step_lane step; /* that ends it */
};

/* A pool where this instance has places, or a step runs. */
struct vow__hall {
    struct vow__table_node named;
    struct vow__hall_name name;
    struct vow__etcd_places *places;
    size_t steps; /* that use it */
    struct vow__table guests;
    struct vow__crowd crowd; /* as of the last look, and as the watch told */
    bool followed;           /* it has all that the watch will not tell */
    uint64_t newest;         /* revision that the watch has told */
    uint64_t toll_id;        /* the last that we wrote */
    uint64_t toll_began_us;
    uint64_t round; /* of judging all that queue */
    vow_call wake;  /* look at the turns here */
    vow_call clock; /* the same, when the rate allows more */
    vow_call rest;  /* nobody uses it, and it remembers tolls */
};

struct vow__etcd_places {
    struct vow__etcd *etcd;
    struct vow_alloc alloc;
    struct vow__table halls;
    struct vow__watch *watch; /* NULL: nobody here queues */
    uint64_t doubts;          /* how often it has lost some */
    size_t queued;            /* guests */
    vow_call idle;            /* the watch goes */
    vow_link *news;           /* guests that are to be told */
    vow_call tell;
    size_t leaving; /* calls without an answer */
    void (*left)(struct vow__etcd *e);
    char boot[96];
};

struct vow__instant vow__places_now(struct vow__etcd *e);
/* Find or make it, for a step; until vow__hall_leave(). NULL: no memory. */
struct vow__hall *vow__hall_enter(struct vow__etcd *e,
                                  const struct vow__hall_name *name);
void vow__hall_use(struct vow__hall *h);
void vow__hall_leave(struct vow__hall *h);
struct vow__hall *vow__hall_find(struct vow__etcd_places *p,
                                 const struct vow__hall_name *name);

struct vow__guest *vow__guest_find(const struct vow__hall *h,
                                   const vow_token *token);
/* Find or make it: ASKED. NULL: no memory. */
struct vow__guest *vow__guest_enter(struct vow__hall *h,
                                    const vow_token *token);
/* It has no seat any more; NULL is allowed. */
void vow__guest_dismiss(struct vow__guest *g);
/* It was told that it has this seat: QUEUED or HELD. */
void vow__guest_seated(struct vow__guest *g, const struct vow__crowd *c,
                       const struct vow__seat *seat, bool held);
/* Its lease has so long from now on. */
void vow__guest_lease(struct vow__guest *g, uint64_t lease_ms);
/* Grants in a toll whose start is not known: all that hold a place here, and
 * only here, know. */
uint32_t vow__toll_open(const struct vow__hall *h, uint64_t toll_id);
/* Operations, at most so many, that tell starts in the tolls of this instance,
 * whose crowd was read just now; how many. */
size_t vow__tolls_start(struct vow__txn *t, const struct vow__hall *h,
                        struct vow__crowd *c, size_t most);
/* It has asked for a seat, and nobody answered. */
void vow__guest_late(struct vow__guest *g);
/* Its turn has come, or not any more. */
void vow__guest_turn(struct vow__guest *g, bool turn);

/* ---- etcd_wake.c: what the watch tells ----------------------------------- */

/* A look at a pool that began when there were so many doubts; the crowd is
 * taken over. From there on the watch is followed, if somebody queues. */
void vow__hall_seen(struct vow__hall *h, struct vow__crowd *crowd,
                    uint64_t doubts);
/* Somebody queues, or nobody any more. */
void vow__wake_count(struct vow__etcd_places *p);
void vow__wake_close(struct vow__etcd_places *p);
/* It is told to ask again. */
void vow__guest_tell(struct vow__guest *g);

/* ---- etcd_pools.c: what steps share -------------------------------------- */

/* Of a ranked seat that is held or waits. */
vow_pool_permit vow__place_of(const struct vow__crowd *c,
                              const struct vow__seat *seat, bool held,
                              uint64_t now_us);
/* A step that had begun to write has failed: whether it happened is unknown. */
int vow__unsure(int code);

/* ---- etcd_census.c: many pools at once ----------------------------------- */

struct vow__census_row {
    struct vow__hall_name name;
    struct vow__crowd crowd; /* with the limits of its law, if there are some */
};
/* Those of a law stand together. */
struct vow__census {
    struct vow_alloc alloc;
    struct vow__instant now;
    struct vow__census_row *rows;
    size_t n, room;
    size_t group; /* where the last law begins */
    int code;     /* VOW_ENOMEM */
};
void vow__census_init(struct vow__census *c, struct vow__etcd *e);
void vow__census_fini(struct vow__census *c);
/* Keys of whole trees in their order, for vow__json_each(). */
bool vow__census_add(const struct vow__kv *kv, void *census);
/* All were added: their limits are known. */
void vow__census_end(struct vow__census *c);

#endif
