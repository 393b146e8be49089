/* SPDX-License-Identifier: MIT */
/* gate_internal.h - the inside of a gate, for the gate_*.c files and for
 * semaphore.c: a semaphore is a gate with one limit.
 *
 *   run, enter     gate_queue.c                         gate_run.c
 *   -----------> | levels of a key | -> keys in turn -> starting -> running
 *      outside --^ (policy WAIT)       (ring)           (queue)     (ends)
 *
 * With a backing, between the ring and `starting`: asking (gate_backing.c).
 *
 * A job is in one list at a time, and its `state` says in which.
 */
#ifndef VOW_COORD_GATE_INTERNAL_H
#define VOW_COORD_GATE_INTERNAL_H

#include "base/heap.h"
#include "base/list.h"
#include "base/slab.h"
#include "base/table.h"
#include "coord/quota.h"
#include "vow/call.h"
#include "vow/combine.h"
#include "vow/context.h"
#include "vow/gate.h"
#include "vow/gate_stats.h"
#include "vow/oracle.h"
#include "vow/watch.h"

enum { LEVELS = 32, LOWEST = -16, HIGHEST = 15 };

enum job_state {
    JOB_OUTSIDE, /* in gate->outside: waits for room in the queue */
    JOB_LENT,    /* in gate->lent: waits for nothing but the rate */
    JOB_WAITS,   /* in a level of its group */
    JOB_STARTS,  /* in gate->starting: let in, not begun */
    JOB_BACKING, /* in gate->asking: let in, and the backing is asked */
    JOB_RUNS,    /* in gate->running, unless it is a permit */
    JOB_ENDED,   /* in no list: others run in its places */
    JOB_LEAVES,  /* in gate->leaving: to be rejected with `rejection` */
    JOB_LEFT     /* in no list: its cancel hook is on the way */
};

enum group_place { GROUP_UNLISTED, GROUP_IN_RING, GROUP_LATER, GROUP_IDLE };

/* The jobs of one key; gate->no_key has those without. */
struct group {
    struct vow__table_node named;
    vow_link link;               /* in gate->ring */
    struct vow__heap_node later; /* in gate->later or gate->idle */
    enum group_place place;
    struct vow__coord_quota quota;
    uint64_t paused_ns; /* until then */
    uint32_t levels;    /* bit set: there are jobs */
    size_t waiting;
    uint64_t waiting_weight;
    size_t users; /* jobs and permits, waiting or not */
    vow_link *level[LEVELS];
};

struct vow__gate_attempts;

/* What a job is to do. */
struct vow__gate_task {
    vow_start_fn start; /* NULL: give a permit */
    void *arg;
    struct vow__gate_attempts
        *again; /* it is an attempt of; NULL: of nothing */
};

/* What few jobs have: a deadline, bytes, attempts, places of another. */
struct extra {
    struct job *job;
    vow_link in_level; /* of gate->level, while it waits; drop policies only */
    size_t bytes;
    uint64_t due_ns;      /* its deadline; 0: none */
    uint64_t deadline_ms; /* the same, for the message */
    vow_call call;        /* at the deadline, while it waits */
    struct vow__gate_attempts
        *again;         /* it is an attempt of, counted; or NULL */
    struct run *lender; /* in whose places it is, counted; NULL: its own */
    bool borrows;       /* its weight is in lender->lent */
};

/* The extra of every job of a gate with a backing. A permit that was taken has
 * it as its group. */
struct backed {
    struct extra extra;
    vow_future *asked;   /* of the backing; NULL: not yet, or it has answered */
    vow_grant *grant;    /* NULL: none, or the lender's */
    vow_future *attempt; /* not counted: what a loss cancels while it runs */
    struct group *group; /* of the permit that was taken */
    vow_watch watch;     /* of `asked`; then of the loss of the grant */
};

/* A job. One that asks for a permit ends before `start`. A hundred thousand of
 * them may wait, and each page they lie on costs more than all the rest. */
struct job {
    vow_link link;
    struct vow__slab *slab; /* its owner is the gate, which is counted */
    struct group *group;    /* one use of it, as long as the job lives */
    vow_deferred *out;
    struct extra *extra; /* NULL: none */
    union {
        uint64_t since_ns;    /* of its arrival; then of its start */
        vow_error *rejection; /* counted: it leaves */
    } u;
    uint64_t number; /* of its arrival */
    uint32_t weight;
    uint32_t slots;  /* of the concurrency: the weight, or 0 when lent */
    uint32_t passed; /* by smaller ones */
    uint8_t level;
    uint8_t state; /* enum job_state */
    uint8_t nested;
    bool is_task;

    vow_start_fn start;
    void *arg;
    union {
        vow_context *caller; /* who asked for it, counted; until it begins */
        struct run *run;     /* from then on */
    } in;
};

/* What a job needs when it has begun. It may outlive the job, as a context. */
struct run {
    vow_context context;
    struct vow__slab *slab;
    vow_gate *gate;  /* counted */
    struct job *job; /* valid until it has ended and nothing is lent */
    uint32_t lent;   /* of its weight, to others */
    vow_watch end;   /* of what start returned */
};

struct vow_gate {
    /* What a permit that need not wait touches comes first. `active` and
     * `started` do not touch: as one vector they would be read before the store
     * to the one of them is done. */
    struct vow__coord_quota quota;
    size_t active; /* jobs let in, and permits */
    uint32_t refs; /* handles and jobs; permits keep it by `active` */
    uint32_t slow; /* SLOW_... bits */
    uint64_t started;
    size_t waiting; /* jobs in groups, outside and lent */

    struct vow__coord_tick tick;
    vow_loop *loop;
    vow_future *anchor; /* keeps the loop's memory */
    struct vow_alloc alloc;
    vow_gate_opts opts;
    struct vow__slab_cache jobs;
    struct vow__slab_cache permits; /* jobs without a task */
    struct vow__slab_cache runs;

    struct group no_key;
    struct vow__table keys;
    vow_link *ring;               /* groups whose turn may come */
    struct vow__heap_node *later; /* groups blocked until a time */
    struct vow__heap_node *idle;  /* groups kept for what they remember */
    uint64_t numbers;
    size_t queued;       /* jobs in groups */
    size_t queued_bytes; /* of these */
    size_t outside_count;
    vow_link *outside;
    vow_link *lent;
    size_t lent_count;
    uint32_t heaviest; /* of those that wait, or waited since the line began */
    vow_link *starting;
    vow_link *running;
    vow_link *asking;
    size_t asking_count;
    vow_link *leaving;
    vow_link *level[LEVELS]; /* all jobs in groups; for the drop policies */
    vow_call begin;          /* begins what is in starting */
    vow_call timer;          /* admits again */
    vow_call tidy;           /* gives unused memory back */
    bool tidying;            /* that is pending */
    uint64_t timer_ns;       /* when; UINT64_MAX: not set */
    bool beginning;          /* begin_some() is at work */
    bool extras;             /* every job has an extra */
    bool paused;
    uint64_t paused_ns; /* until then */
    bool closed;
    vow_link *idle_waits; /* struct wait */
    vow_link *room_waits;

    double adapted;   /* the limit, before it is cut to a whole number */
    uint64_t cut_ns;  /* when it was lowered last */
    uint64_t mean_ns; /* how long jobs run, smoothed; 0: not known */
    uint64_t failed, refused, dropped, canceled, expired;
};

/* Reasons not to take the short way. */
enum {
    SLOW_CLOSED = 1,
    SLOW_PAUSED = 2,
    SLOW_ORACLE = 4,
    SLOW_ADAPT = 8,
    SLOW_WAITS = 16,
    SLOW_TIMED = 32, /* it needs to know when things began */
    SLOW_QUEUE = 64, /* jobs wait */
    SLOW_BACKED = 128
};

/* Bits that the short ways look at; time alone is no reason. */
#define SLOW_MASK (~(uint32_t)SLOW_TIMED)

/* ---- gate.c: the gate and its memory ------------------------------------- */

/* The owner of the contexts of jobs. */
extern const char vow__gate_job_kind;

/* A job with its promise; the group is set by the caller. NULL: no memory. */
struct job *vow__gate_job_new(vow_gate *g, const char *site,
                              const struct vow__gate_task *task,
                              const vow_job_opts *o);
/* The same for a permit, without options. */
struct job *vow__gate_permit_new(vow_gate *g, const char *site,
                                 uint32_t weight);
void vow__gate_job_free(struct job *j);
/* The job begins: it is in `running` from now on. NULL: no memory. */
struct run *vow__gate_run_new(struct job *j);
/* The permit of a job that is let in, as the value of its future. */
vow_value vow__gate_permit_value(struct job *j);
/* What a job has beyond what all have, its parts let go. NULL does nothing. */
void vow__gate_extra_free(vow_gate *g, struct extra *x);
/* 0 becomes the default; VOW_EINVAL. */
int vow__gate_complete(vow_gate_opts *o);
struct vow__coord_limits vow__gate_limits(const vow_gate_opts *o);
struct vow__coord_limits vow__gate_key_limits(const vow_gate_opts *o);
void vow__gate_slow(vow_gate *g, uint32_t bit, bool on);
/* Time for deciding; 0 always, where nothing depends on time. */
uint64_t vow__gate_now(vow_gate *g);
vow_future *vow__gate_submit(vow_gate *g, const char *site,
                             const struct vow__gate_task *task,
                             const vow_job_opts *o);

/* ---- gate_group.c: keys -------------------------------------------------- */

/* The group of a key, made if needed: VOW_ENOMEM, VOW_EQUEUEFULL. */
int vow__gate_group_get(vow_gate *g, const char *key, struct group **ret_group);
/* One user less; the last may free it. */
void vow__gate_group_leave(vow_gate *g, struct group *group);
void vow__gate_group_place(vow_gate *g, struct group *group,
                           enum group_place place, uint64_t until_ns);
/* Those whose time has come may take their turns again; returns the next time,
 * UINT64_MAX: none. */
uint64_t vow__gate_groups_wake(vow_gate *g, uint64_t now_ns);
void vow__gate_groups_free(vow_gate *g);
/* All groups, the one without a key first; NULL begins and ends. */
struct group *vow__gate_group_next(vow_gate *g, const struct group *group);

/* ---- gate_queue.c: who is next -------------------------------------------- */

/* A new job joins; 0, or why it may not wait. */
int vow__gate_queue_join(struct job *j, const char **ret_text);
/* Into the level of its group, and nothing else; at its end, or back to where
 * it was. And among those that are lent places. */
void vow__gate_queue_insert(struct job *j);
void vow__gate_queue_return(struct job *j);
void vow__gate_queue_lend(struct job *j);
/* From now on its deadline, if it has one, ends its wait. */
void vow__gate_job_bound(struct job *j);
/* Would it ever find room in the queue? */
bool vow__gate_job_may_queue(const struct job *j);
/* Out of whatever list it waits in; nothing is given back by name of it. */
void vow__gate_queue_leave(struct job *j);
/* Let in all that can be, and tell who waits for idleness or room. */
void vow__gate_admit(vow_gate *g);
/* The first in its level that goes before others of its group, NULL: none. */
struct job *vow__gate_group_best(const vow_gate *g, const struct group *group);
/* Where `a` stands against `b` of the same group: before it? */
bool vow__gate_job_before(const vow_gate *g, const struct job *a,
                          const struct job *b);

/* What its own key says: 0 now, a time, or UINT64_MAX: when a place of the key
 * comes back or a start of it is stamped. */
uint64_t vow__gate_group_blocks(const struct group *group, const struct job *j,
                                uint64_t now_ns);

/* ---- gate_nested.c: jobs inside jobs ------------------------------------- */

/* Does it need what only the end of a job it is part of can free; itself, or
 * one of those it waits behind? */
bool vow__gate_job_stuck(const struct job *j);
/* Let it wait for nothing but the rate, and the places of a job it is part of.
 * False: none has as many. */
bool vow__gate_job_lend(struct job *j);
/* The next of these that can start; lowers *wake to the time to look again. */
struct job *vow__gate_lent_next(vow_gate *g, uint64_t now_ns, uint64_t *wake);
void vow__gate_job_borrow(struct job *j);
/* Those who wait for the places of a job that is gone wait as all others. */
void vow__gate_lent_orphans(vow_gate *g, struct run *lender);

/* ---- gate_run.c: from being let in to the end ---------------------------- */

/* A job that is in no list takes its part and will begin. */
void vow__gate_job_let_in(struct job *j);
/* A start, now: told to the oracle, stamped. Returns the time. */
uint64_t vow__gate_begins(vow_gate *g, struct group *group, uint32_t weight,
                          uint64_t number);
/* It has all it needs, and begins from the loop's queue. */
void vow__gate_job_starts(struct job *j);
/* It was let in and will not begin. */
void vow__gate_job_give_back(struct job *j);
/* Its start is stamped, or will not be. */
void vow__gate_job_unreserve(struct job *j);
/* Places are taken, and come back. */
void vow__gate_take(vow_gate *g, struct group *group, uint32_t slots);
void vow__gate_release(vow_gate *g, struct group *group, uint32_t slots);
/* Those let in and not begun go back to where they waited. */
void vow__gate_recall(vow_gate *g);
/* When it has ended and nobody runs in its places, they come back and it is
 * freed; and so on with the one in whose places it ran. NULL does nothing. */
void vow__gate_job_places_back(struct job *j);
/* A job that is in no list and holds no places ends without having begun. */
void vow__gate_job_reject(struct job *j, int code, const char *text);
void vow__gate_job_reject_with(struct job *j, vow_error *e);
/* The same in two steps, for what must not run others' code in between. */
void vow__gate_job_leaves(struct job *j, vow_error *rejection);
void vow__gate_flush(vow_gate *g);
/* The hook of the job's promise. */
void vow__gate_job_cancel(vow_error *why, void *job);

/* ---- gate_backing.c: limits of somebody else --------------------------------- */

/* A job that has taken its places asks the backing, from the loop's queue, and
 * begins when that grants. */
void vow__gate_backing_ask(struct job *j);
/* It asks no more: it is in no list, and its places come back. */
void vow__gate_backing_ask_end(struct job *j);
/* Those of one group, or of all (NULL), go back to where they waited. */
void vow__gate_backing_recall(vow_gate *g, const struct group *group);
/* The attempt is canceled when the grant it runs on is lost. */
void vow__gate_grant_watch(struct job *j, vow_future *attempt);
/* The job's grant, if it has one, goes back. */
void vow__gate_grant_return(struct job *j);
/* The permit in the value of a future; nothing if it is none of a gate with a
 * backing. */
vow_permit vow__gate_backed_take(vow_value granted);
/* What such a permit has beyond its places goes back; returns its group. */
struct group *vow__gate_backed_release(const vow_permit *p);

/* ---- gate_retry.c -------------------------------------------------------- */

vow_future *vow__gate_retry(const char *site, vow_gate *g, vow_start_fn start,
                            void *arg, const vow_job_opts *o);
struct vow__gate_attempts *vow__gate_attempts_ref(struct vow__gate_attempts *a);
void vow__gate_attempts_unref(struct vow__gate_attempts *a);
/* The number of the attempt under way; without any, 1. */
uint32_t vow__gate_attempts_number(const struct vow__gate_attempts *a);
/* The future of all attempts together, for comparing; NULL: none. */
const vow_future *vow__gate_attempts_result(const struct vow__gate_attempts *a);

/* ---- gate_live.c --------------------------------------------------------- */

/* Forgets a pause that is over. */
bool vow__gate_paused(vow_gate *g, uint64_t now_ns);
/* From now on the concurrency adapts, from this on; 0: it does not. */
void vow__gate_adapt(vow_gate *g, double from);
/* A job has ended, well or not: learn from it. */
void vow__gate_learn(vow_gate *g, uint64_t began_ns, vow_error *failure,
                     struct group *group);

/* ---- gate_wait.c --------------------------------------------------------- */

bool vow__gate_has_room(const vow_gate *g, size_t bytes);
void vow__gate_tell_waits(vow_gate *g);
/* Reject those who wait for room that will never be. */
void vow__gate_refuse_waits(vow_gate *g);

/* Does a full queue drop jobs that wait? */
static inline bool vow__gate_drops(const vow_gate *g)
{
    return g->opts.overflow == VOW_OVERFLOW_DROP_OLDEST ||
           g->opts.overflow == VOW_OVERFLOW_DROP_LOWEST;
}

static inline bool vow__gate_backed(const vow_gate *g)
{
    return (g->slow & SLOW_BACKED) != 0;
}

static inline void vow__gate_waiting(vow_gate *g, int change)
{
    g->waiting += (size_t)change;
    g->slow =
        g->waiting > 0 ? g->slow | SLOW_QUEUE : g->slow & ~(uint32_t)SLOW_QUEUE;
}

/* One list, no time, nobody else to tell: a semaphore as most are. */
static inline bool vow__gate_plain(const vow_gate *g)
{
    return (g->slow & ~(uint32_t)SLOW_QUEUE) == 0 &&
           g->waiting == g->no_key.waiting && g->opts.bypass_count == 0;
}

/* A permit of no key, where nothing is in the way. */
static inline void vow__gate_grant(vow_gate *g, uint32_t weight,
                                   vow_permit *ret_permit)
{
    g->quota.held += weight;
    g->active++;
    g->started++;
    *ret_permit = (vow_permit){.of = g, .weight = weight};
}

static inline vow_gate *vow__gate_of(const struct job *j)
{
    return (vow_gate *)j->slab->owner;
}

/* 0: it has no deadline. */
static inline uint64_t vow__gate_job_due_ns(const struct job *j)
{
    return j->extra == NULL ? 0 : j->extra->due_ns;
}

static inline size_t vow__gate_job_bytes(const struct job *j)
{
    return j->extra == NULL ? 0 : j->extra->bytes;
}

static inline const char *vow__gate_job_site(const struct job *j)
{
    return vow_future_site(vow_deferred_future(j->out));
}

static inline struct job *vow__gate_job_of(vow_link *l)
{
    return VOW__OUTER(l, struct job, link);
}

#endif
