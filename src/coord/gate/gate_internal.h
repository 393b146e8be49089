/* SPDX-License-Identifier: MIT */
/* gate_internal.h - the inside of a gate, for the gate_*.c files and for
 * semaphore.c: a semaphore is a gate with one limit.
 *
 *   run, enter     gate_queue.c                         gate_run.c
 *   -----------> | levels of a key | -> keys in turn -> starting -> running
 *      outside --^ (policy WAIT)       (ring)           (queue)     (ends)
 *
 * With a backing, a job is in `asking` between the ring and `starting`
 * (gate_backing.c).
 *
 * Words: a slot is a unit of the concurrency limit; a job of weight w takes w
 * slots. To admit a job is to take the slots for the job. A start is stamped in
 * the quotas (quota.h). An enclosing job is a running job on behalf of which
 * the caller of vow_gate_run() runs.
 *
 * A job is in at most one list; `state` says in which.
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
    JOB_OUTSIDE,   /* in gate->outside: waits for room in the queue */
    JOB_LENT,      /* in gate->lent: waits for the rate and the lender */
    JOB_WAITS,     /* in a level of the group */
    JOB_STARTS,    /* in gate->starting: admitted, not begun */
    JOB_BACKING,   /* in gate->asking: admitted, the backing is asked */
    JOB_RUNS,      /* in gate->running; a permit: in no list */
    JOB_ENDED,     /* in no list: nested jobs still use the slots */
    JOB_REJECTING, /* in gate->leaving: about to be rejected */
    JOB_CANCELING  /* in no list: the cancel hook is queued */
};

enum group_place { GROUP_UNLISTED, GROUP_IN_RING, GROUP_LATER, GROUP_IDLE };

/* The jobs of one key; gate->keyless is the group of jobs without a key. */
struct group {
    struct vow__table_node key_node;
    vow_link link;                   /* in gate->ring */
    struct vow__heap_node heap_node; /* in gate->later or gate->idle */
    enum group_place place;
    struct vow__coord_quota quota;
    uint64_t paused_ns; /* paused until then */
    uint32_t levels;    /* bit set: the level has jobs */
    size_t waiting;
    uint64_t waiting_weight;
    size_t users; /* jobs and permits, waiting or not */
    vow_link *level[LEVELS];
};

struct vow__gate_attempts;

/* The work of a job. */
struct vow__gate_task {
    vow_start_fn start; /* NULL: grant a permit */
    void *arg;
    struct vow__gate_attempts *attempts; /* borrowed; NULL: no retries */
};

/* The rare parts of a job: a deadline, bytes, attempts, a lender. */
struct extra {
    struct job *job;
    vow_link in_level; /* in gate->level while waiting; drop policies */
    size_t bytes;
    uint64_t due_ns;      /* the deadline; 0: none */
    uint64_t deadline_ms; /* the same in ms, for the message */
    vow_call call; /* waiting: the deadline; BACKING: first the request */
    struct vow__gate_attempts *attempts; /* counted; NULL: no retries */
    struct run *lender; /* counted; NULL: the job uses slots of its own */
    bool borrows;       /* the weight is counted in lender->lent */
};

/* The extra of every job of a gate with a backing. After the permit was taken,
 * vow_permit.group points here. */
struct backed {
    struct extra extra;
    vow_future *request; /* to the backing; NULL: not sent, or answered */
    vow_grant *grant;    /* NULL: none, or the lender has the grant */
    vow_future *attempt; /* borrowed; canceled when the grant is lost */
    struct group *group; /* of the permit, after the permit was taken */
    vow_watch watch;     /* of `request`; then of the loss of the grant */
};

/* A job. A job for a permit is allocated without the fields from `start` on. A
 * hundred thousand jobs may wait, and the pages of the jobs cost more than
 * everything else. */
struct job {
    vow_link link;
    struct vow__slab *slab; /* the slab's owner is the gate; counted */
    struct group *group;    /* counts as a user until the job is freed */
    vow_deferred *out;
    struct extra *extra; /* NULL: none */
    union {
        uint64_t since_ns;       /* time of arrival; then of the start */
        vow_error *reject_error; /* counted; state REJECTING */
    } u;
    uint64_t number; /* in order of arrival */
    uint32_t weight;
    uint32_t slots;    /* taken slots: the weight, or 0 when lent */
    uint32_t bypassed; /* how often smaller jobs went first */
    uint8_t level;
    uint8_t state; /* enum job_state */
    uint8_t nested;
    bool is_task;

    vow_start_fn start;
    void *arg;
    union {
        vow_context *caller; /* of the submitter, counted; until the begin */
        struct run *run;     /* from the begin on */
    } in;
};

/* The part of a job needed after the begin. As a context, a run may outlive the
 * job. */
struct run {
    vow_context context;
    struct vow__slab *slab;
    vow_gate *gate;  /* counted */
    struct job *job; /* valid until the end of the job and its loans */
    uint32_t lent;   /* slots lent to nested jobs */
    vow_watch end;   /* of the future from the start function */
};

struct vow_gate {
    /* The fields used by a permit without waiting come first. `active` and
     * `started` are kept apart: as neighbours they would be read as one vector,
     * before the store to one of them is done. */
    struct vow__coord_quota quota;
    size_t active; /* admitted jobs, and permits */
    uint32_t refs; /* handles and jobs; permits: see `active` */
    uint32_t slow; /* SLOW_... bits */
    uint64_t started;
    size_t waiting; /* jobs in groups, outside and lent */

    struct vow__coord_tick tick;
    vow_loop *loop;
    vow_future *anchor; /* settled; keeps the memory of a closed loop */
    struct vow_alloc alloc;
    vow_gate_opts opts;
    struct vow__slab_cache jobs;
    struct vow__slab_cache permits; /* jobs without a task */
    struct vow__slab_cache runs;

    struct group keyless; /* jobs without a key; has no limits */
    struct vow__table keys;
    vow_link *ring;               /* groups with jobs to try next */
    struct vow__heap_node *later; /* groups blocked until a time */
    struct vow__heap_node *idle;  /* unused groups with starts or a pause */
    uint64_t last_number;         /* of jobs and heap nodes */
    size_t queued;                /* jobs in groups */
    size_t queued_bytes;          /* bytes of jobs in groups */
    size_t outside_count;
    vow_link *outside;
    vow_link *lent;
    size_t lent_count;
    uint32_t heaviest; /* most slots of a job since the queue was empty */
    vow_link *starting;
    vow_link *running;
    vow_link *asking;
    size_t asking_count;
    vow_link *leaving;
    vow_link *level[LEVELS]; /* all jobs in groups; drop policies only */
    vow_call begin;          /* begins the jobs in starting */
    vow_call timer;          /* calls vow__gate_admit() */
    vow_call tidy;           /* frees unused memory */
    bool tidy_pending;
    uint64_t timer_ns; /* time of `timer`; UINT64_MAX: not set */
    bool beginning;    /* gate_begin_jobs() runs */
    bool all_have_extra;
    bool paused;
    uint64_t paused_ns; /* paused until then */
    bool closed;
    vow_link *idle_waits; /* of struct wait */
    vow_link *room_waits;

    double adaptive_limit; /* the concurrency limit, with fraction */
    uint64_t lowered_ns;   /* time of the last decrease */
    uint64_t mean_ns;      /* smoothed run time of jobs; 0: unknown */
    uint64_t failed, refused, dropped, canceled, expired;
};

/* Reasons against the fast path. */
enum {
    SLOW_CLOSED = 1,
    SLOW_PAUSED = 2,
    SLOW_ORACLE = 4,
    SLOW_ADAPT = 8,
    SLOW_WAITS = 16,
    SLOW_TIMED = 32, /* the gate reads the clock */
    SLOW_QUEUE = 64, /* jobs wait */
    SLOW_BACKED = 128
};

/* The bits that rule out the fast path; the clock alone does not. */
#define SLOW_MASK (~(uint32_t)SLOW_TIMED)

/* ---- gate.c: the gate and its memory ------------------------------------- */

/* `owner` of the contexts of jobs. */
extern const char vow__gate_job_kind;

/* Returns a job with a promise, in the group of jobs without a key; the caller
 * sets another group. NULL: no memory. */
struct job *vow__gate_job_new(vow_gate *g, const char *site,
                              const struct vow__gate_task *task,
                              const vow_job_opts *o);
/* Returns a job for a permit without options. NULL: no memory. */
struct job *vow__gate_permit_new(vow_gate *g, const char *site,
                                 uint32_t weight);
void vow__gate_job_free(struct job *j);
/* Makes the run of a job that begins, and adds the job to `running`. NULL: no
 * memory. */
struct run *vow__gate_run_new(struct job *j);
/* Returns the permit of an admitted job as the value of the job's future. */
vow_value vow__gate_permit_value(struct job *j);
/* Frees the extra of a job and drops the references in the extra. NULL does
 * nothing. */
void vow__gate_extra_free(vow_gate *g, struct extra *x);
/* Replaces 0 by the default in each option. Returns 0 or VOW_EINVAL. */
int vow__gate_complete(vow_gate_opts *o);
struct vow__coord_limits vow__gate_limits(const vow_gate_opts *o);
struct vow__coord_limits vow__gate_key_limits(const vow_gate_opts *o);
void vow__gate_slow(vow_gate *g, uint32_t bit, bool on);
/* Returns the time for decisions, at most 4096 cycles old; always 0 in a gate
 * without SLOW_TIMED. */
uint64_t vow__gate_now(vow_gate *g);
vow_future *vow__gate_submit(vow_gate *g, const char *site,
                             const struct vow__gate_task *task,
                             const vow_job_opts *o);

/* ---- gate_group.c: keys -------------------------------------------------- */

/* Returns the group of a key, with a new user; makes the group if needed.
 * VOW_ENOMEM, VOW_EQUEUEFULL. */
int vow__gate_group_get(vow_gate *g, const char *key, struct group **ret_group);
/* Removes a user. A group without users is freed, or kept in `idle`. */
void vow__gate_group_leave(vow_gate *g, struct group *group);
void vow__gate_group_place(vow_gate *g, struct group *group,
                           enum group_place place, uint64_t until_ns);
/* Moves groups from `later` back to the ring when their time has come. Returns
 * the time of the next group, UINT64_MAX: none. */
uint64_t vow__gate_groups_wake(vow_gate *g, uint64_t now_ns);
void vow__gate_groups_free(vow_gate *g);
/* Iterates over all groups, first the group without a key. NULL begins and ends
 * the iteration. */
struct group *vow__gate_group_next(vow_gate *g, const struct group *group);

/* ---- gate_queue.c: the order of waiting jobs ----------------------------- */

/* Adds a new job. Returns 0, or the error code and a text if the job may not
 * wait. */
int vow__gate_queue_join(struct job *j, const char **ret_text);
/* Insert the job into a level of its group, at the end (insert) or in order of
 * arrival (return), or into `lent` (lend). Return uses `lent` for a lent job,
 * and sets the call for the deadline. These functions admit no job. */
void vow__gate_queue_insert(struct job *j);
void vow__gate_queue_return(struct job *j);
void vow__gate_queue_lend(struct job *j);
/* Sets the call for the deadline of the job, if there is a deadline. */
void vow__gate_job_bound(struct job *j);
/* Returns whether the job could ever find room in the queue. */
bool vow__gate_job_may_queue(const struct job *j);
/* Removes a waiting job from its list. Admits no other job. */
void vow__gate_queue_leave(struct job *j);
/* Admits all jobs that can start, and resolves waits for idle and for room. */
void vow__gate_admit(vow_gate *g);
/* Returns the waiting job of the group that goes first, NULL: none. */
struct job *vow__gate_group_best(const vow_gate *g, const struct group *group);
/* Returns whether `a` goes before `b`; both are of the same group. */
bool vow__gate_job_before(const vow_gate *g, const struct job *a,
                          const struct job *b);

/* Returns when the limits of the group allow the job: 0 now, a time, or
 * UINT64_MAX: after a slot of the group is released or a start is stamped. */
uint64_t vow__gate_group_blocks(const struct group *group, const struct job *j,
                                uint64_t now_ns);

/* ---- gate_nested.c: jobs inside jobs ------------------------------------- */

/* Returns whether the job waits for slots that only the end of an enclosing
 * job can free: for the job itself, or for a job ahead in the queue. */
bool vow__gate_job_stuck(const struct job *j);
/* Lets the job wait only for the rate and for slots of an enclosing job. False:
 * no enclosing job has enough slots. */
bool vow__gate_job_lend(struct job *j);
/* Returns the next lent job that can start, or NULL; lowers *wake to the time
 * of the next try. */
struct job *vow__gate_lent_next(vow_gate *g, uint64_t now_ns, uint64_t *wake);
void vow__gate_job_borrow(struct job *j);
/* Finds another lender for each job that waits for slots of an ended job.
 * Without a lender the job returns to the queue, or is rejected with
 * VOW_EDEADLK. */
void vow__gate_lent_orphans(vow_gate *g, struct run *lender);

/* ---- gate_run.c: from admission to the end ------------------------------- */

/* Admits a job that is in no list: takes the slots, then asks the backing,
 * grants the permit or lets the job start. */
void vow__gate_job_let_in(struct job *j);
/* Counts a start now: tells the oracle, stamps both quotas. Returns the time, 0
 * without SLOW_TIMED. */
uint64_t vow__gate_begins(vow_gate *g, struct group *group, uint32_t weight,
                          uint64_t number);
/* Adds the job to `starting`; the loop's queue begins the job. */
void vow__gate_job_starts(struct job *j);
/* Releases slots, reservation and grant of an admitted job that will not
 * begin. */
void vow__gate_job_give_back(struct job *j);
/* Ends the reservation of the rate: the start is stamped, or will not
 * happen. */
void vow__gate_job_unreserve(struct job *j);
/* Take and release slots of the gate and of the group. */
void vow__gate_take(vow_gate *g, struct group *group, uint32_t slots);
void vow__gate_release(vow_gate *g, struct group *group, uint32_t slots);
/* Puts admitted jobs that have not begun back into the queue. */
void vow__gate_recall(vow_gate *g);
/* Releases the slots of an ended job and frees the job, unless a nested job
 * uses the slots; goes on with the lender. NULL does nothing. */
void vow__gate_job_places_back(struct job *j);
/* Reject a job that is in no list and holds no slots. The error is moved. */
void vow__gate_job_reject(struct job *j, int code, const char *text);
void vow__gate_job_reject_with(struct job *j, vow_error *e);
/* Do the same in two steps, for callers that must not run foreign code before
 * vow__gate_flush(). The error is moved. */
void vow__gate_job_leaves(struct job *j, vow_error *e);
void vow__gate_flush(vow_gate *g);
/* The cancel hook of the job's promise. */
void vow__gate_job_cancel(vow_error *why, void *job);

/* ---- gate_backing.c: the shared limit outside of the gate ---------------- */

/* Asks the backing for an admitted job, from the loop's queue; the job starts
 * with the grant. */
void vow__gate_backing_ask(struct job *j);
/* Cancels the request of the job: the job is in no list, the slots are
 * released. */
void vow__gate_backing_ask_end(struct job *j);
/* Cancels the requests of a group, or of all groups (NULL), and puts the jobs
 * back into the queue. */
void vow__gate_backing_recall(vow_gate *g, const struct group *group);
/* Cancels the attempt when the grant of the job, or of the lender, is lost. */
void vow__gate_grant_watch(struct job *j, vow_future *attempt);
/* Releases the grant of the job, if there is a grant. */
void vow__gate_grant_return(struct job *j);
/* Returns the permit in the value of a future; an empty permit if the value is
 * not from a gate with a backing. */
vow_permit vow__gate_backed_take(vow_value granted);
/* Releases the grant of a permit from vow__gate_backed_take() and frees the
 * extra. Returns the group. */
struct group *vow__gate_backed_release(const vow_permit *p);

/* ---- gate_retry.c -------------------------------------------------------- */

vow_future *vow__gate_retry(const char *site, vow_gate *g, vow_start_fn start,
                            void *arg, const vow_job_opts *o);
struct vow__gate_attempts *vow__gate_attempts_ref(struct vow__gate_attempts *a);
void vow__gate_attempts_unref(struct vow__gate_attempts *a);
/* Returns the number of the current attempt; 1 for NULL. */
uint32_t vow__gate_attempts_number(const struct vow__gate_attempts *a);
/* Returns the future of all attempts together, only for comparison; NULL:
 * none. */
const vow_future *vow__gate_attempts_result(const struct vow__gate_attempts *a);

/* ---- gate_live.c --------------------------------------------------------- */

/* Returns whether the gate is paused; clears a pause that is over. */
bool vow__gate_paused(vow_gate *g, uint64_t now_ns);
/* Sets the adaptive limit, cut to adapt_min .. concurrent; without adapt_min,
 * only clears SLOW_ADAPT. */
void vow__gate_adapt(vow_gate *g, double from);
/* Updates the mean run time and the adaptive limit after the end of a job;
 * `failure` NULL: the job succeeded. */
void vow__gate_learn(vow_gate *g, uint64_t began_ns, vow_error *failure,
                     struct group *group);

/* ---- gate_wait.c --------------------------------------------------------- */

bool vow__gate_has_room(const vow_gate *g, size_t bytes);
void vow__gate_tell_waits(vow_gate *g);
/* Rejects waits for more bytes than the queue may hold. */
void vow__gate_refuse_waits(vow_gate *g);

/* Returns whether a full queue drops waiting jobs. */
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

/* Returns whether the fast path of gate_queue.c applies: a single group, no
 * clock, no hooks. Most semaphores are plain. */
static inline bool vow__gate_plain(const vow_gate *g)
{
    return (g->slow & ~(uint32_t)SLOW_QUEUE) == 0 &&
           g->waiting == g->keyless.waiting && g->opts.bypass_count == 0;
}

/* Grants a permit without a key; the caller has checked the limits. */
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

/* Returns the deadline; 0: none. */
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
