/* SPDX-License-Identifier: MIT */
/* named_internal.h - the inside of an authority.
 *
 *   vow_authority   a handle, one per loop that asks
 *        |
 *   hub             one per process and store, on its home loop
 *     table of entries        one per name that is asked for
 *        |  asks              who waits, in order of arrival
 *        |  lease             if this process does the work
 *     heap of leases          by when to pulse them, or to give them up
 *     store                   one step at a time per name
 *
 * States of an entry:
 *
 *   NEW -> CLAIMING -> WAITING -> CLAIMING ...     another process works
 *             |  \------> settled, freed or kept   the result is there
 *             v
 *          RUNNING -> COMMITTING -> settled        this process works
 *             |            \-> CLAIMING            too late: wait for the other
 *             \-> CLAIMING                         the lease was lost: ask for
 *                                                  the successor's result first
 *   PAUSING    the store is down; claims again, or commits again, later
 *   KEPT       no asks; holds a value for a store that keeps none
 *
 * INVARIANTS
 *   H1  an entry has at most one step in flight that can change its state
 *   H2  an entry has a lease exactly in RUNNING and COMMITTING
 *   H3  an ask is in one entry, or it is settled
 *   H4  every entry that is not KEPT has a step in flight, a timer, or a lease
 * THREADS  the hub's loop, but for what says otherwise.
 */
#ifndef VOW_NAMED_INTERNAL_H
#define VOW_NAMED_INTERNAL_H

#include "base/heap.h"
#include "base/list.h"
#include "base/slab.h"
#include "base/sm.h"
#include "base/table.h"
#include "named/settler.h"
#include "vow/call.h"
#include "vow/share.h"
#include "vow/watch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum vow__named_entry_state {
    ENTRY_NEW = 0,
    ENTRY_CLAIMING,
    ENTRY_WAITING,
    ENTRY_RUNNING,
    ENTRY_COMMITTING,
    ENTRY_PAUSING,
    ENTRY_KEPT
};

enum vow__named_lease_state {
    LEASE_HELD = 0,
    LEASE_ENDING, /* its outcome is on the way */
    LEASE_OVER,   /* accepted */
    LEASE_LOST
};

/* Of the three below, most never need more than the first part: that is cleared
 * when they are made. What follows is zero in a fresh block, and is left as it
 * may be found: a call or watch that does not wait, or what is set before it is
 * read. */

/* Somebody who waits for a name. */
struct vow__named_waiter {
    struct vow__slab *slab; /* NULL: a block of its own */
    vow_authority *of;      /* whose seat it has */
    const char *site;
    const char *label;          /* a copy, or "" */
    const vow_share_opts *opts; /* `own`, or vow__named_default_share_opts */
    vow_name name;
    /* cleared from here */
    vow_link in_handle;
    struct vow__named_entry *entry;    /* NULL: settled, or it has left */
    struct vow__named_settler settler; /* of the result */
    struct claim_box *box;             /* for the value of `who` */
    vow_future *result;                /* of `end`, counted, for that value */
    vow_shared_fn work;                /* NULL: */
    vow_lease_fn on_lease;
    void *arg; /* of both */
    size_t next_chunk;
    atomic_uint refs;    /* the hub's, that of its own loop, those of leases */
    atomic_uint working; /* its function, for a lease, lost or not */
    atomic_bool untold;  /* `who`, until it is known who works */
    atomic_bool done;    /* settled by the hub's loop */
    bool postponed;      /* it is in entry->postponed */
    bool looked;         /* for its entry, before it came */
    bool waited;         /* it has seen another at work */
    bool tried;          /* its turn has come once */
    bool left;    /* its future is settled; on its own loop, if another */
    bool refresh; /* our own: makes a stale result anew */
    /* to here */
    vow_link link; /* of entry->waiters or entry->postponed */
    struct vow__named_settler claimed; /* vow_claim_name(): of who works */
    vow_call deadline;                 /* on the hub's loop */
    vow_watch watch;         /* on its own, if that is another: of `end` */
    vow_watch watch_claimed; /* the same, of `who` */
    vow_name target;         /* refresh: the name it is for */
    vow_share_opts own;
    vow_share_info info; /* if they ask for it */
};

struct vow__named_early_result {
    vow_record record; /* its value is counted */
    char runner[VOW_LABEL_MAX + 1];
};

struct vow__named_entry {
    struct vow__table_node node; /* of hub->names, by `name` */
    struct vow__slab *slab;      /* whose owner is the hub */
    vow_name name;
    /* cleared from here */
    uint8_t state;     /* enum vow__named_entry_state */
    bool committed;    /* PAUSING, and until it is answered: commit again */
    bool unwanted;     /* nobody waits for the work any more; it is canceled */
    bool unstored;     /* its run is not in the store, which is ours alone */
    bool forced;       /* the claim in flight is */
    bool hold_off;     /* when the name was given back, do not claim at once */
    bool woken;        /* since the claim in flight was sent */
    bool token_unused; /* the token was not granted anything: it stays the same,
                        so that a claim can be repeated */
    bool lost_one;     /* in this chain, a lease of ours */
    bool once;         /* the claim was of VOW_ONCE */
    bool
        ask_successor; /* a lease was lost: before the next claim, ask the store
                          for the result of the successor */
    bool followed;     /* an ask wants chunks */
    bool reading;      /* chunks, from the store */
    bool valueless;    /* the store says settled, and we have no value */
    uint32_t steps;    /* in flight */
    uint32_t pauses;   /* in a row */
    uint32_t successor_asks; /* back, since the lease was lost */
    uint32_t held_off;       /* in a row */
    uint32_t failures;       /* attempts in this chain */
    uint32_t refusals;       /* those that were abandoned */
    uint32_t takeovers;      /* before our claim */
    struct vow__named_waiter
        *shared_waiter; /* one for many askers, see share.c; NULL: none */
    vow_link *waiters;
    vow_link *postponed; /* who asks again when this run is over */
    size_t n_waiters;
    vow_lease *lease;
    vow_future *outcome;    /* COMMITTING: of our work; KEPT: its value */
    vow_error *first_error; /* of a failed attempt in this chain */
    struct vow__named_early_result
        *early_result; /* CLAIMING: a result that has come before */
    vow_bytes **chunks;
    size_t n_chunks, room_chunks;
    uint64_t chunks_from;  /* the store's number of the next */
    uint64_t chunks_epoch; /* whose they are, if another's */
    uint64_t busy_ns;      /* since when the store was; 0: it is not */
    uint64_t commit_ns;    /* a commit that failed is repeated until then; 0:
                              none has */
    /* to here */
    uint64_t claimed_ns; /* when the claim was sent */
    uint64_t lease_ms;   /* what it asked for */
    uint64_t began_ns;   /* WAITING: the run of the other */
    uint64_t epoch;      /* of who runs, as far as it is known */
    vow_token token;
    vow_commit_request
        commit; /* its value is counted; NULL if it is not sent */
    vow_call timer;
    vow_call idle; /* looks whether anybody still waits */
    vow_call pump; /* chunks to those who follow */
};

struct vow_lease {
    struct vow__slab *slab;        /* NULL: a block of its own */
    struct vow__named_hub *hub;    /* of the ask */
    struct vow__named_waiter *ask; /* counted; whose turn it is */
    vow_loop *loop;                /* of the ask */
    atomic_uint refs;  /* of the memory; the users have one together */
    atomic_uint users; /* without one, it is abandoned */
    _Atomic uint64_t epoch;
    _Atomic uint64_t valid_ns; /* the clock's, until then */
    atomic_size_t waiters;
    uint64_t ttl_ms;   /* the ask's; UINT64_MAX: as the options say */
    uint64_t sent_ns;  /* when the last pulse that was answered was sent */
    uint64_t began_ns; /* about */
    uint64_t lease_ms;
    vow_token token;
    uint32_t attempt;
    bool takeover;
    bool alone; /* the store does not know of it */
    /* cleared from here; the hub's loop's */
    bool in_heap;
    bool pulsing; /* a pulse is in flight */
    bool stopped; /* somebody asked to cancel it */
    bool mute;    /* the store lacks a chunk, and gets no more */
    struct vow__named_entry *entry; /* NULL: it is over */
    struct vow__named_settler lost_end, settled_end;
    /* the loop's of the ask */
    vow_future *work;
    vow_future *lost, *settled;
    /* any */
    vow_remote *outcome; /* to the hub's loop, if that is another loop */
    atomic_uint pulses;  /* pulses by hand */
    atomic_uint state;   /* enum vow__named_lease_state */
    atomic_bool told;    /* the outcome */
    bool bad;            /* its value counts as a failure; the ask's */
    bool passed;         /* its asker has left before it began; before told */
    bool abandoned;      /* nobody wants to do it; before told */
    int lost_code;       /* what `lost` was told before it is; the hub's lock */
    /* to here; the hub's loop's, while it is pulsed */
    struct vow__heap_node due;
    uint32_t pulses_seen;
    uint64_t every_ms;
    uint64_t sending_ns;     /* when the one in flight was */
    uint64_t pulse_ns;       /* when the next pulse is due */
    vow_watch outcome_watch; /* of what came from another loop */
    /* the loop's of the ask */
    vow_watch work_watch;
    vow_call call;
};

/* The members from `first` up to `end`, 64 bytes or more. In pieces: a string
 * instruction takes longer to begin than this to end. */
#define VOW__CLEAR(o, first, end)                                              \
    vow__named_clear(&(o)->first,                                              \
                     (size_t)((char *)&(o)->end - (char *)&(o)->first))
static inline void vow__named_clear(void *first, size_t size)
{
    enum { PIECE = 64 };
    char *p = first;
    for (size_t at = 0; at + PIECE < size; at += PIECE)
        memset(p + at, 0, PIECE);
    memset(p + size - PIECE, 0, PIECE);
}

/* Counted by the hub's loop alone, read by anyone. */
struct vow__named_counts {
    _Atomic uint64_t asked, claims, runs, joined, late, lost, takeovers,
        refreshes, names, waiting, running;
};

struct vow__named_hub {
    atomic_uint refs; /* handles, leases, messages between loops */
    struct vow_alloc alloc;
    vow_loop *loop; /* the hub's loop */
    bool threaded;  /* which runs in a thread of ours */
    pthread_t thread;
    vow_deferred *thread_end; /* of that thread */
    atomic_uint handles;      /* that are open */
    vow_store *store;
    vow_authority_opts opts; /* with the defaults filled in */
    char *url;
    struct vow__table names;
    struct vow__slab_cache entries;
    struct vow__slab_cache waiters, leases; /* those of the hub's loop */
    vow_link *attached_handles;             /* vow_authority.in_hub */
    size_t n_attached;
    uint32_t steps, refused;    /* in flight; commits that are repeated */
    struct vow__heap_node *due; /* leases */
    uint64_t due_seq;
    vow_call look; /* at the first of them */
    uint64_t look_ns;
    uint64_t floor;        /* the highest epoch seen */
    bool quick;            /* there are cycles to go by */
    uint64_t about_cycles; /* when about_ns was read */
    uint64_t about_ns;
    bool stored; /* the store may have records */
    bool down;   /* the store, as far as it was told */
    bool closing;
    vow_call closer;
    vow_authority *closed; /* the last handle, counted; to be told */
    pthread_mutex_t lock;  /* of the ends of leases of other loops */
    struct vow__named_counts counts;
    vow_deferred *result; /* of who opens */
    vow_watch opening;    /* of the store */
    vow_remote *opened;   /* of who opens, in a thread of ours */
    vow_authority *first; /* the handle of who opens, until it sits */
    char runner[VOW_RUNNER_MAX];
    unsigned char random[1024]; /* for tokens */
    size_t random_left;
    struct vow__named_permits *permits; /* permit.c; NULL: none yet */
};

struct vow_authority {
    atomic_uint refs;  /* of the memory; the users have one together */
    atomic_uint users; /* without one, it is closed */
    struct vow_alloc alloc;
    vow_loop *loop;
    struct vow__named_hub *hub; /* counted */
    atomic_bool closing;
    bool last;          /* to close: it waits for the end of the thread */
    vow_future *closed; /* of its close */
    struct vow__named_settler close_end; /* the same */
    vow_deferred *
        close_hook; /* the hub's loop is another loop: rings when ours is closed */
    vow_future
        *close_future; /* of the bell: while we have it, our loop's memory is */
    /* the hub's loop's */
    vow_link in_hub;
    bool attached;
    vow_link *waiters; /* vow__named_waiter.in_handle */
};

/* ---- hub.c -------------------------------------------------------------- */

static inline bool vow__named_is_hub_loop(const vow_authority *a)
{
    return a->loop == a->hub->loop;
}

/* The store is open: the first handle sits down. */
void vow__named_hub_ready(struct vow__named_hub *h, vow_store *store);
void vow__named_hub_close_store(void *hub);
/* A thread with the store; the future is of who opens, and has nothing. Not
 * `threaded` any more: there is none. */
vow_future *vow__named_thread_open(const char *site, vow_loop *loop,
                                   struct vow__named_hub *h);
/* Of a handle whose home is another loop: when its own is closed, it leaves
 * before anything can be sent there in vain. VOW_ENOMEM. */
int vow__named_close_hook_add(vow_authority *a);
void vow__named_close_hook_arm(vow_authority *a);
void vow__named_close_hook_remove(vow_authority *a);
/* On the hub's loop; the caller has counted the handle. */
void vow__named_handle_close(void *authority);
/* The thread ends soon; once. */
void vow__named_thread_end(struct vow__named_hub *h);
/* Run fn(arg) on the hub's loop: now if this is it, else by a message. */
int vow__named_hub_run(vow_authority *a, vow_post_fn fn, void *arg);
void vow__named_handle_free(vow_authority *a);
struct vow__named_hub *vow__named_hub_ref(struct vow__named_hub *h);
void vow__named_hub_unref(void *hub);
/* Time that leases are measured by; it goes on while the machine sleeps. */
uint64_t vow__named_hub_now_ns(const struct vow__named_hub *h);
/* The same as of up to a millisecond ago, for what is told in milliseconds. */
uint64_t vow__named_hub_about_ns(struct vow__named_hub *h);
/* A step begins; it has ended, with that code: the store is up, or down. */
void vow__named_step_begins(struct vow__named_hub *h);
void vow__named_step_ended(struct vow__named_hub *h, int code);
/* Every step of this one ends with VOW_ECLOSED. closed_store.c */
vow_store *vow__named_store_closed(void);
/* Down or up: told when it changes. */
void vow__named_store_set_down(struct vow__named_hub *h, bool down, int code);
/* What is wrong with the store, as a sentence; NULL: nothing is known. */
const char *vow__named_store_trouble(const struct vow__named_hub *h);
void vow__named_hub_event(struct vow__named_hub *h, uint32_t kind,
                          const vow_name *name, uint64_t fence, int code,
                          const char *text);
/* Of an event, if somebody listens, whose code may do anything. */
static inline void vow__named_hub_tell(struct vow__named_hub *h, uint32_t kind,
                                       const vow_name *name, uint64_t fence,
                                       int code, const char *text)
{
    if (h->opts.on_event != NULL)
        vow__named_hub_event(h, kind, name, fence, code, text);
}
void vow__named_token_make(struct vow__named_hub *h, vow_token *t);

/* Counts and flags that another thread changes only if the hub's loop is one of ours:
 * else they do without the price of an atomic step. Up; down: was it the last?
 * Set: was it not set before? */
static inline void vow__named_refs_up(atomic_uint *n, bool threaded)
{
    if (threaded)
        atomic_fetch_add(n, 1);
    else
        atomic_store_explicit(n,
                              atomic_load_explicit(n, memory_order_relaxed) + 1,
                              memory_order_relaxed);
}

static inline bool vow__named_refs_down(atomic_uint *n, bool threaded)
{
    if (threaded)
        return atomic_fetch_sub(n, 1) == 1;
    unsigned left = atomic_load_explicit(n, memory_order_relaxed) - 1;
    atomic_store_explicit(n, left, memory_order_relaxed);
    return left == 0;
}

static inline bool vow__named_flag_set(atomic_bool *flag, bool threaded)
{
    if (threaded)
        return !atomic_exchange(flag, true);
    bool before = atomic_load_explicit(flag, memory_order_relaxed);
    atomic_store_explicit(flag, true, memory_order_relaxed);
    return !before;
}

/* Of the memory. */
static inline vow_authority *vow__named_handle_ref(vow_authority *a)
{
    vow__named_refs_up(&a->refs, a->hub->threaded);
    return a;
}

static inline void vow__named_handle_unref(vow_authority *a)
{
    if (vow__named_refs_down(&a->refs, a->hub->threaded))
        vow__named_handle_free(a);
}

static inline void vow__named_count(_Atomic uint64_t *n, uint64_t change)
{
    atomic_store_explicit(
        n, atomic_load_explicit(n, memory_order_relaxed) + change,
        memory_order_relaxed);
}

/* ---- entry.c: names ----------------------------------------------------- */

/* An ask comes; the hub has its reference from now on. `e` is the entry of its
 * name; NULL: there is none. */
void vow__named_entry_add_waiter(struct vow__named_hub *h,
                                 struct vow__named_entry *e,
                                 struct vow__named_waiter *w);
/* The event of a store. */
void vow__named_entry_changed(const vow_record *r, void *hub);
/* Claim it for those who wait, or let go of it if nobody does. */
void vow__named_entry_claim_again(struct vow__named_entry *e);
/* Settle all who wait, and be done with this run. The outcome stays the
 * caller's. */
void vow__named_entry_settle(struct vow__named_entry *e, vow_future *outcome);
void vow__named_entry_settle_record(struct vow__named_entry *e,
                                    const vow_record *r);
void vow__named_entry_reject(struct vow__named_entry *e, vow_error *error);
/* Take all who wait out of the entry, for the caller to settle or move. */
vow_link *vow__named_entry_take_waiters(struct vow__named_entry *e);
void vow__named_entry_free(struct vow__named_entry *e);
/* For a store that keeps no values: this one belongs to the name now. */
void vow__named_entry_keep(struct vow__named_hub *h, const vow_name *name,
                           vow_future *f, uint64_t ttl_ms);
/* Look, soon, whether anybody still waits. */
void vow__named_entry_check_idle(struct vow__named_entry *e);
struct vow__named_entry *vow__named_entry_new(struct vow__named_hub *h,
                                              const vow_name *name);
struct vow__named_entry *vow__named_entry_find(const struct vow__named_hub *h,
                                               const vow_name *name);
/* Claim again when some time has passed: of those who wait, all are busy with
 * work for leases they have lost. */
void vow__named_entry_hold_off(struct vow__named_entry *e);
/* The store cannot be used. */
void vow__named_entry_down(struct vow__named_entry *e);
void vow__named_entry_recheck(void *entry);
uint32_t vow__named_waiter_down_policy(const struct vow__named_waiter *w);
/* early_result.c: keep a result while a claim is in flight; forget it; settle those who
 * waited with it when the claim was answered. True: nobody is left for that. */
void vow__named_early_result_keep(struct vow__named_entry *e,
                                  const vow_record *r);
void vow__named_early_result_drop(struct vow__named_entry *e);
bool vow__named_early_result_settle(struct vow__named_entry *e,
                                    const vow_record *r);
/* It asks again when this run is over. */
void vow__named_waiter_postpone(struct vow__named_waiter *w);
/* The answer of a claim; a vow_records_fn. */
void vow__named_entry_claimed(int code, const vow_record *r, size_t n,
                              void *entry);
/* successor.c: ask the store what became of the name since our lease was lost. */
void vow__named_entry_ask_successor(struct vow__named_entry *e);
/* Pause, longer each time, then claim or commit again. False: long enough. */
bool vow__named_entry_pause(struct vow__named_entry *e, uint64_t at_most_ms);
/* All that pauses, soon. */
void vow__named_entries_hurry(struct vow__named_hub *h);

static inline struct vow__named_hub *
vow__named_entry_hub(const struct vow__named_entry *e)
{
    return e->slab->owner;
}

extern const uint8_t vow__named_entry_moves[]; /* those that are allowed */
static inline void vow__named_entry_move(struct vow__named_entry *e,
                                         enum vow__named_entry_state to)
{
    vow__sm_move(&e->state, (uint8_t)to, vow__named_entry_moves);
}

/* A private store that has never had a record need not be asked: what runs is
 * known here, and no other can come. */
static inline bool vow__named_hub_is_unstored(const struct vow__named_hub *h)
{
    return !h->stored && (h->store->ops->flags & VOW_STORE_LOCAL) != 0;
}

/* ---- waiter.c: who waits --------------------------------------------------- */

/* The options of who gives none. */
extern const vow_share_opts vow__named_default_share_opts;
/* Memory and ends of an ask; NULL: no memory. The options are copied, but for
 * those. */
struct vow__named_waiter *vow__named_waiter_new(const char *site,
                                                vow_authority *of,
                                                const vow_name *name,
                                                const vow_share_opts *o);
void vow__named_waiter_free(struct vow__named_waiter *w);
/* Send it to the hub's loop; it moves. Its entry may be set, if that is known. The
 * future, owned, is of its result, or, two handed, of who works. */
vow_future *vow__named_waiter_send(struct vow__named_waiter *w,
                                   bool two_handed);
/* How it came about, for those who asked for it. */
void vow__named_waiter_set_info(struct vow__named_waiter *w, uint32_t role,
                                uint64_t fence, uint64_t age_ms,
                                const char *runner);
void vow__named_waiter_resolve(struct vow__named_waiter *w, vow_value v);
void vow__named_waiter_copy(struct vow__named_waiter *w, vow_future *settled);
void vow__named_waiter_reject(struct vow__named_waiter *w, vow_error *error);
void vow__named_waiter_refuse(struct vow__named_waiter *w, int code,
                              const char *text);
/* Its turn: it is to do the work of this lease, on its loop. */
void vow__named_waiter_start_work(struct vow__named_waiter *w, vow_lease *l);
/* Who works is somebody else. */
void vow__named_waiter_waits(struct vow__named_waiter *w);

static inline struct vow__named_waiter *
vow__named_waiter_ref(struct vow__named_waiter *w)
{
    vow__named_refs_up(&w->refs, w->of->hub->threaded);
    return w;
}

static inline void vow__named_waiter_unref(struct vow__named_waiter *w)
{
    if (vow__named_refs_down(&w->refs, w->of->hub->threaded))
        vow__named_waiter_free(w);
}

static inline struct vow__named_waiter *vow__named_waiter_of(vow_link *l)
{
    return VOW__OUTER(l, struct vow__named_waiter, link);
}

static inline uint64_t
vow__named_waiter_lease_ms(const struct vow__named_waiter *w)
{
    return w->opts->lease_ms > 0 ? w->opts->lease_ms
                                 : w->of->hub->opts.lease_ms;
}

/* ---- lease.c: doing the work -------------------------------------------- */

/* The entry's claim was granted: one of its asks works. `alone`: without the
 * store. */
void vow__named_lease_begin(struct vow__named_entry *e, bool alone);
/* Nobody here does it: let others. */
void vow__named_lease_give_back(struct vow__named_entry *e);
/* The work has ended so; a settled future of the hub's loop. */
void vow__named_lease_finish(vow_lease *l, vow_future *outcome);
/* It is lost: its worker is told, and who waits asks again. */
void vow__named_lease_lose(vow_lease *l, const char *why);
/* Ask the worker to stop. `stopped`: somebody wanted the work to fail. */
void vow__named_lease_cancel(vow_lease *l, vow_error *why, bool stopped);
/* Give the name back, now, whatever the worker does. */
void vow__named_lease_yield(vow_lease *l);
void vow__named_lease_over(vow_lease *l, bool accepted);
/* Tell who holds it that it is over, while the hub still knows it. */
void vow__named_lease_tell_lost(vow_lease *l, int code, const char *text);
/* How long the store may take it for ours, also when we do not. */
uint64_t vow__named_lease_valid_ms(const vow_lease *l);
/* News from its worker to all who wait here; borrowed. */
void vow__named_lease_progress(vow_lease *l, vow_value news);
/* The outcome, settled and the caller's, goes to the store. */
void vow__named_lease_commit(struct vow__named_entry *e, vow_future *outcome);
/* Commit again after a pause. */
void vow__named_lease_commit_again(void *entry);
/* The event of a store. */
void vow__named_lease_stop(const vow_name *name, void *hub);
/* The outcome from the loop of the ask, once; the future stays the caller's. */
bool vow__named_lease_report(vow_lease *l, vow_future *outcome);
void vow__named_lease_free(vow_lease *l);

/* Of the memory. */
static inline void vow__named_lease_hold(vow_lease *l)
{
    vow__named_refs_up(&l->refs, l->hub->threaded);
}

static inline void vow__named_lease_release(vow_lease *l)
{
    if (vow__named_refs_down(&l->refs, l->hub->threaded))
        vow__named_lease_free(l);
}

/* ---- pulse.c: staying alive --------------------------------------------- */

void vow__named_pulse_add(vow_lease *l);
void vow__named_pulse_remove(vow_lease *l);

/* ---- refresh.c: results that get old ------------------------------------ */

/* A result of this age was handed out to `w`: make it anew, if it is time. */
bool vow__named_refresh_due(struct vow__named_hub *h,
                            const struct vow__named_waiter *w,
                            const vow_record *r);
/* Make it anew as this ask would, which stays as it is; or for it, when it was
 * made for nothing else. */
void vow__named_refresh_for(struct vow__named_hub *h,
                            const struct vow__named_waiter *because);
void vow__named_refresh_start(struct vow__named_hub *h,
                              struct vow__named_waiter *w);
/* The name under which a result is made anew. */
vow_name vow__named_refresh_name(const vow_name *name);
/* The refresh was claimed, and there is no result that it could replace: give
 * the claim back and ask for the name itself. */
void vow__named_refresh_give_way(struct vow__named_entry *e);
/* What the commit of such work is. */
void vow__named_refresh_commit(struct vow__named_entry *e,
                               vow_commit_request *commit);

/* ---- chunks.c: those who follow ----------------------------------------- */

void vow__named_chunks_follow(struct vow__named_entry *e,
                              struct vow__named_waiter *w);
int vow__named_chunks_add(struct vow__named_entry *e, vow_bytes *chunk);
void vow__named_chunks_drop(struct vow__named_entry *e);
/* A new attempt begins, or it is over. */
static inline void vow__named_chunks_clear(struct vow__named_entry *e)
{
    if (e->room_chunks > 0 || e->followed)
        vow__named_chunks_drop(e);
}
void vow__named_chunks_pump(void *entry);
static inline void vow__named_chunks_flush(struct vow__named_entry *e)
{
    if (e->followed)
        vow__named_chunks_pump(e);
}
/* Read what another process wrote. */
void vow__named_chunks_read(struct vow__named_entry *e);
void vow__named_chunks_changed(const vow_name *name, void *hub);

/* ---- permit.c: places in pools, on the hub's loop's side ----------------------- */

void vow__named_permits_changed(const vow_token *token, void *hub);
void vow__named_permits_doubt(struct vow__named_hub *h);
/* All are given back; called when the hub closes. */
void vow__named_permits_close(struct vow__named_hub *h);
/* Those of one handle are given back. */
void vow__named_permits_leave(struct vow__named_hub *h, vow_authority *of);

#endif
