/* SPDX-License-Identifier: MIT */
/* named_internal.h - the inside of an authority.
 *
 *   vow_authority   a handle, one per loop that asks
 *        |
 *   hub             one per process and store, on the hub's loop
 *     table of entries        one entry per requested name
 *        |  waiters           pending requests, in order of arrival
 *        |  lease             if this process runs the work
 *     heap of leases          by the time of the next pulse, or of expiry
 *     store                   one step at a time per name
 *
 * The hub's loop is the loop of a thread that the authority owns, or the loop
 * that opened the authority.
 *
 * States of an entry:
 *
 *   NEW -> CLAIMING -> WAITING -> CLAIMING ...     another process works
 *             |  \------> settled, freed or kept   the store has a result
 *             v
 *          RUNNING -> COMMITTING -> settled        this process works
 *             |            \-> CLAIMING            too late: wait for the
 *             |                                    successor
 *             \-> CLAIMING                         the lease was lost: request
 *                                                  the successor's result first
 *   PAUSING    the store is down; claims or commits again after the pause
 *   KEPT       no waiters; holds a value for a store that keeps no values
 *
 * INVARIANTS
 *   H1  an entry has at most one step in flight that can change the state
 *   H2  an entry has a lease exactly in RUNNING and COMMITTING
 *   H3  a waiter is in one entry, or is settled
 *   H4  every entry that is not KEPT has a step in flight, a timer, or a lease
 * THREADS  the hub's loop, unless a comment names another loop.
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
    LEASE_ENDING, /* the outcome is on the way to the store */
    LEASE_OVER,   /* the store accepted the outcome */
    LEASE_LOST
};

/* Most waiters, entries and leases use only the first part of their struct. The
 * fields between "cleared from here" and "to here" are cleared when the object
 * is made. Later fields are zero in a fresh block and keep old content in a
 * reused block: each is a call or watch that is not pending, or is set before
 * the first read. */

/* A pending request for a name. */
struct vow__named_waiter {
    struct vow__slab *slab; /* NULL: a block outside the slabs */
    vow_authority *handle;  /* counted; the handle of the request */
    const char *site;
    const char *label;          /* a copy, or "" */
    const vow_share_opts *opts; /* own_opts, or vow__named_default_share_opts */
    vow_name name;
    /* cleared from here */
    vow_link in_handle;
    struct vow__named_entry *entry;    /* NULL: in no entry */
    struct vow__named_settler settler; /* settles the result */
    struct claim_box *box;             /* memory for the value of
                                          claim_settler */
    vow_future *result;                /* counted; for the value of
                                          claim_settler */
    vow_shared_fn work;                /* NULL: the caller settles a lease by
                                          hand */
    vow_lease_fn on_lease;
    void *arg;           /* argument of work or on_lease */
    vow_future *watched; /* by result_watch, while that is pending; borrowed;
                            owned by the waiter's loop */
    size_t next_chunk;
    uint64_t refreshed;  /* refresh: epoch of the old result; 0: not known */
    atomic_uint refs;    /* by the hub, by own watches, leases and messages */
    atomic_uint working; /* running calls of work, for held or lost leases */
    atomic_bool claim_pending; /* claim_settler is not settled yet */
    atomic_bool done;          /* settled by the hub's loop */
    bool postponed;            /* linked in entry->postponed */
    bool entry_known;          /* `entry` was looked up before the waiter was
                                  sent */
    bool waited;               /* has waited for a run of another waiter or
                                  process */
    bool tried;                /* has got a lease once */
    bool left;    /* the future is settled; for loops other than the hub's */
    bool refresh; /* in the entry of a refresh, see refresh.c */
    /* to here */
    vow_link link; /* in entry->waiters or entry->postponed */
    struct vow__named_settler claim_settler; /* settles a vow_claim */
    vow_call deadline;                       /* on the hub's loop */
    vow_watch result_watch; /* of the result, on a loop other than the hub's */
    vow_watch claim_watch;  /* of the vow_claim, on a loop other than the
                               hub's */
    vow_share_opts own_opts;
    vow_share_info info; /* for opts->info */
};

struct vow__named_early_result {
    vow_record record; /* with a counted value */
    char runner[VOW_LABEL_MAX + 1];
};

struct vow__named_entry {
    struct vow__table_node node; /* in hub->names, by `name` */
    struct vow__slab *slab;      /* the slab's owner is the hub */
    vow_name name;
    /* cleared from here */
    uint8_t state;       /* enum vow__named_entry_state */
    bool commit_again;   /* the pause, or the commit in flight, repeats a
                            commit */
    bool unwanted;       /* no waiter is left, and the work is canceled */
    bool refresh;        /* of a refresh, see refresh.c */
    bool unstored;       /* the store, private to this process, has no record of
                            the run */
    bool forced;         /* the claim in flight is for VOW_SHARE_FORCE */
    bool hold_off;       /* pause after the name was given back, before the
                            claim */
    bool woken;          /* a wake-up came since the claim in flight was sent */
    bool token_unused;   /* nothing was granted to the token: kept, so that a
                            claim can be repeated */
    bool lease_was_lost; /* a lease of this process, in this chain of
                            attempts */
    uint8_t mode;        /* enum vow_mode of the claim */
    bool ask_successor;  /* a lease was lost: request the successor's result
                            before the next claim */
    bool followed;       /* a waiter wants chunks */
    bool reading;        /* a read of chunks is in flight */
    bool valueless;      /* the store has a result without a value */
    uint32_t steps;      /* in flight */
    uint32_t pauses;     /* pauses in a row */
    uint32_t successor_asks; /* requests for the successor's result since the
                                lease was lost */
    uint32_t hold_offs;      /* hold-offs in a row */
    uint32_t failures;       /* failed attempts in this chain */
    uint32_t abandons;       /* abandoned attempts in this chain */
    uint32_t takeovers;      /* lost owners before the claim of this process */
    struct vow__named_waiter *shared_waiter; /* for many callers, see share.c;
                                                NULL: none */
    vow_link *waiters;
    vow_link *postponed; /* waiters that claim when this run is over */
    size_t n_waiters;
    vow_lease *lease;
    vow_future *outcome; /* counted; COMMITTING: of the work; KEPT: the value */
    vow_error *first_error; /* of a failed attempt in this chain; counted */
    struct vow__named_early_result *early_result; /* CLAIMING: a result that
                                                     came before the answer */
    vow_bytes **chunks;
    size_t n_chunks, room_chunks;
    uint64_t first;           /* of the run that the waiters wait for, or that
                                 this process owns; 0: none */
    uint64_t chunks_written;  /* under the claim of this process */
    uint64_t chunks_from;     /* the store's number of the next chunk */
    uint64_t chunks_epoch;    /* of the owner that wrote the chunks, if another
                                 process */
    uint64_t busy_ns;         /* since when the store is busy; 0: not busy */
    uint64_t commit_until_ns; /* end of the repetitions of a failed commit; 0:
                                 no commit failed */
    /* to here */
    uint64_t claimed_ns; /* send time of the claim */
    uint64_t lease_ms;   /* of the claim */
    uint64_t began_ns;   /* WAITING: start of the other process's run */
    uint64_t epoch;      /* of the owner, as far as known */
    vow_token token;
    vow_commit_request commit; /* value: counted, NULL if not sent */
    vow_call timer;
    vow_call idle_check; /* whether a waiter is left */
    vow_call pump;       /* passes chunks to the waiters */
};

struct vow_lease {
    struct vow__slab *slab;           /* NULL: a block outside the slabs */
    struct vow__named_hub *hub;       /* of the waiter; borrowed */
    struct vow__named_waiter *waiter; /* counted; the waiter that runs the
                                         work */
    vow_loop *loop;                   /* of the waiter */
    atomic_uint refs;                 /* of the memory; all users share one
                                         reference */
    atomic_uint users;                /* at 0 the lease is abandoned */
    _Atomic uint64_t epoch;
    _Atomic uint64_t valid_ns; /* end of the lease by the local clock */
    atomic_size_t waiters;
    uint64_t ttl_ms;   /* set by the waiter's loop; UINT64_MAX: as the options
                          say */
    uint64_t sent_ns;  /* send time of the last answered pulse, or of the
                          claim */
    uint64_t began_ns; /* coarse time; UINT64_MAX: not read yet */
    uint64_t lease_ms;
    vow_token token;
    uint32_t attempt;
    bool takeover;
    bool alone; /* run without the store */
    /* cleared from here; owned by the hub's loop */
    bool in_heap;
    bool pulsing;                   /* a pulse is in flight */
    bool stopped;                   /* a cancel of the work was requested */
    bool chunks_stopped;            /* the store lacks a chunk, and gets no more
                                       chunks */
    struct vow__named_entry *entry; /* NULL: the lease is over */
    struct vow__named_settler lost_settler, settled_settler;
    /* owned by the waiter's loop */
    vow_future *work;
    vow_future *lost, *settled;
    /* any thread */
    vow_remote *outcome;  /* to the hub's loop; NULL: the waiter's loop is the
                             hub's */
    atomic_uint pulses;   /* pulses by hand */
    atomic_uint state;    /* enum vow__named_lease_state */
    atomic_bool reported; /* the outcome was reported */
    bool marked_failed;   /* the value counts as a failure; the waiter's loop */
    bool waiter_left;     /* before the work began; set before `reported` */
    bool abandoned;       /* by the runner; set before `reported` */
    int lost_code;        /* code of `lost` while still held; 0: none; under
                             hub->lock */
    /* to here; owned by the hub's loop, while pulsed */
    struct vow__heap_node due;
    uint32_t pulses_seen;
    uint64_t every_ms;
    uint64_t sending_ns;     /* send time of the pulse in flight */
    uint64_t pulse_ns;       /* due time of the next pulse */
    vow_watch outcome_watch; /* of the promise of `outcome` */
    /* owned by the waiter's loop */
    vow_watch work_watch;
    vow_call call;
};

/* Clears the members from `first` up to `end`, 64 bytes or more. Pieces
 * of 64 bytes, because a string instruction takes longer to start than these
 * stores take. */
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

/* Written by the hub's loop alone, read by any thread. */
struct vow__named_counts {
    _Atomic uint64_t asked, claims, runs, joined, late, lost, takeovers,
        refreshes, names, waiting, running;
};

struct vow__named_hub {
    atomic_uint refs; /* by handles, leases, messages between loops */
    struct vow_alloc alloc;
    vow_loop *loop; /* NULL until the hub's thread has made the loop */
    bool threaded;  /* the hub's loop runs in a thread of the hub */
    pthread_t thread;
    vow_deferred *thread_end; /* resolved to end the thread */
    atomic_uint handles;      /* open handles */
    vow_store *store;
    vow_authority_opts opts; /* with the defaults filled in */
    char *url;
    struct vow__table names;
    struct vow__slab_cache entries;
    struct vow__slab_cache waiters, leases; /* of the hub's loop only */
    vow_link *attached_handles;             /* by vow_authority.in_hub */
    size_t n_attached;
    uint32_t steps, repeated_commits; /* in flight; commits under repetition */
    struct vow__heap_node *due;       /* heap of leases */
    uint64_t due_seq;
    vow_call pulse_timer; /* for the first lease of `due` */
    uint64_t pulse_timer_ns;
    uint64_t floor;        /* highest epoch seen */
    bool has_cycles;       /* about_ns uses the CPU's cycle counter */
    uint64_t about_cycles; /* cycle count at the read of about_ns */
    uint64_t about_ns;
    bool stored; /* the store may have records */
    bool down;   /* the store, as last reported */
    bool closing;
    vow_call close_call;
    vow_authority *closing_handle; /* the last handle, counted, until closed */
    pthread_mutex_t lock;          /* guards the settlers of leases of other
                                      loops */
    struct vow__named_counts counts;
    vow_deferred *open_result;     /* for the caller of vow_authority_open() */
    vow_watch open_watch;          /* of the opening of the store */
    vow_remote *open_remote;       /* threaded: from the hub's loop to the
                                      caller's */
    vow_authority *opening_handle; /* the first handle, until attached */
    char runner[VOW_RUNNER_MAX];
    unsigned char random[1024]; /* unused bytes for tokens */
    size_t random_left;
    struct vow__named_permits *permits; /* permit.c; NULL: no permit yet */
};

struct vow_authority {
    atomic_uint refs;  /* of the memory; all users share one reference */
    atomic_uint users; /* at 0 the handle is closed */
    struct vow_alloc alloc;
    vow_loop *loop;
    struct vow__named_hub *hub; /* counted */
    atomic_bool closing;
    bool last;                               /* the last open handle: the close
                                                joins the thread */
    vow_future *closed;                      /* future of the close; counted */
    struct vow__named_settler close_settler; /* settles `closed` */
    vow_deferred *close_hook;                /* canceled when a loop other than
                                                the hub's closes; NULL: none */
    vow_future *hook_future;                 /* of close_hook; keeps the memory
                                                of the loop */
    /* owned by the hub's loop */
    vow_link in_hub;
    bool attached;
    vow_link *waiters; /* by vow__named_waiter.in_handle */
};

/* ---- hub.c -------------------------------------------------------------- */

static inline bool vow__named_is_hub_loop(const vow_authority *a)
{
    return a->loop == a->hub->loop;
}

/* Takes the open store and attaches the first handle. */
void vow__named_hub_ready(struct vow__named_hub *h, vow_store *store);
void vow__named_hub_close_store(void *hub);
/* Starts the hub's thread, which opens the store. Returns an owned future of
 * `loop`, fulfilled with nothing when the store is open. Without a thread,
 * clears h->threaded and the future is rejected. */
vow_future *vow__named_thread_open(const char *site, vow_loop *loop,
                                   struct vow__named_hub *h);
/* Adds a close hook to a handle of a loop other than the hub's: when the loop
 * of the handle closes, the handle detaches before the hub can send to the
 * closed loop. Returns 0 or VOW_ENOMEM. */
int vow__named_close_hook_add(vow_authority *a);
void vow__named_close_hook_arm(vow_authority *a);
void vow__named_close_hook_remove(vow_authority *a);
/* Detaches the handle; with the last handle, closes the store. Runs on the
 * hub's loop and takes a reference of the handle from the caller. */
void vow__named_handle_close(void *authority);
/* Lets the hub's thread end soon. A second call does nothing. */
void vow__named_thread_end(struct vow__named_hub *h);
/* Runs fn(arg) on the hub's loop: now if the caller is on the hub's loop, else
 * by a message. Returns 0, VOW_ECLOSED, or an error of vow_loop_post(). */
int vow__named_hub_run(vow_authority *a, vow_post_fn fn, void *arg);
void vow__named_handle_free(vow_authority *a);
struct vow__named_hub *vow__named_hub_ref(struct vow__named_hub *h);
void vow__named_hub_unref(void *hub);
/* Returns the time that measures leases; includes the sleep of the machine. */
uint64_t vow__named_hub_now_ns(const struct vow__named_hub *h);
/* Returns the same time, up to a millisecond old. */
uint64_t vow__named_hub_about_ns(struct vow__named_hub *h);
/* Counts a step of the store as begun, or as ended. `code` shows whether the
 * store is up or down. */
void vow__named_step_begins(struct vow__named_hub *h);
void vow__named_step_ended(struct vow__named_hub *h, int code);
/* Returns a store in which every step ends with VOW_ECLOSED; closed_store.c. */
vow_store *vow__named_store_closed(void);
/* Sets the state of the store and reports a change. */
void vow__named_store_set_down(struct vow__named_hub *h, bool down, int code);
/* Returns the last error of the store as a sentence, or NULL. */
const char *vow__named_store_trouble(const struct vow__named_hub *h);
void vow__named_hub_event(struct vow__named_hub *h, uint32_t kind,
                          const vow_name *name, uint64_t fence, int code,
                          const char *text);
/* Reports an event, if the user set on_event. The user's function may do
 * anything, such as closing the authority. */
static inline void vow__named_hub_tell(struct vow__named_hub *h, uint32_t kind,
                                       const vow_name *name, uint64_t fence,
                                       int code, const char *text)
{
    if (h->opts.on_event != NULL)
        vow__named_hub_event(h, kind, name, fence, code, text);
}
void vow__named_token_make(struct vow__named_hub *h, vow_token *t);

/* Counts and flags that another thread changes only if the hub has a thread;
 * without a thread, atomic read-modify-write steps are avoided. refs_down
 * returns whether the last reference was dropped, flag_set whether the flag
 * was clear before. */
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

/* References of the memory. */
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

/* Adds a waiter to `e`, the entry of the name; NULL: no entry exists. Moves the
 * reference of the waiter to the hub. */
void vow__named_entry_add_waiter(struct vow__named_hub *h,
                                 struct vow__named_entry *e,
                                 struct vow__named_waiter *w);
/* Handles the event on_record of a store. */
void vow__named_entry_changed(const vow_record *r, void *hub);
/* Claims the name for the waiters; without waiters, frees the entry. */
void vow__named_entry_claim_again(struct vow__named_entry *e);
/* Settles all waiters and ends the run. The outcome is borrowed. */
void vow__named_entry_settle(struct vow__named_entry *e, vow_future *outcome);
void vow__named_entry_settle_record(struct vow__named_entry *e,
                                    const vow_record *r);
void vow__named_entry_reject(struct vow__named_entry *e, vow_error *error);
/* Takes all waiters out of the entry, for the caller to settle or move. */
vow_link *vow__named_entry_take_waiters(struct vow__named_entry *e);
void vow__named_entry_free(struct vow__named_entry *e);
/* Keeps a value in the entry of the name, for a store that keeps no values. */
void vow__named_entry_keep(struct vow__named_hub *h, const vow_name *name,
                           vow_future *f, uint64_t ttl_ms);
/* Checks soon whether a waiter is left. */
void vow__named_entry_check_idle(struct vow__named_entry *e);
/* `refresh`: the entry of the refresh of the name, see refresh.c. */
struct vow__named_entry *vow__named_entry_new(struct vow__named_hub *h,
                                              const vow_name *name,
                                              bool refresh);
struct vow__named_entry *vow__named_entry_find(const struct vow__named_hub *h,
                                               const vow_name *name,
                                               bool refresh);
/* Claims again after a growing pause: the waiters are busy with work of lost
 * leases, or have abandoned the work. */
void vow__named_entry_hold_off(struct vow__named_entry *e);
/* Applies the policies of the waiters when the store cannot be used. */
void vow__named_entry_down(struct vow__named_entry *e);
void vow__named_entry_recheck(void *entry);
uint32_t vow__named_waiter_down_policy(const struct vow__named_waiter *w);
/* early_result.c: keeps a result while a claim is in flight; drops the result;
 * settles the waiters that waited, when the claim was answered, and returns
 * whether no waiter is left for the answer. */
void vow__named_early_result_keep(struct vow__named_entry *e,
                                  const vow_record *r);
void vow__named_early_result_drop(struct vow__named_entry *e);
bool vow__named_early_result_settle(struct vow__named_entry *e,
                                    const vow_record *r);
/* Moves the waiter out of this run: the waiter claims when the run is over. */
void vow__named_waiter_postpone(struct vow__named_waiter *w);
/* Handles the answer to a claim; a vow_records_fn. */
void vow__named_entry_claimed(int code, const vow_record *r, size_t n,
                              void *entry);
/* successor.c: asks the store for a result since the lease was lost. */
void vow__named_entry_ask_successor(struct vow__named_entry *e);
/* Pauses, longer each time, then claims or commits again. Returns false, and
 * does not pause, if the pause would be longer than `at_most_ms`. */
bool vow__named_entry_pause(struct vow__named_entry *e, uint64_t at_most_ms);
/* Ends all pauses soon. */
void vow__named_entries_hurry(struct vow__named_hub *h);

static inline struct vow__named_hub *
vow__named_entry_hub(const struct vow__named_entry *e)
{
    return e->slab->owner;
}

extern const uint8_t vow__named_entry_moves[]; /* allowed moves */
static inline void vow__named_entry_move(struct vow__named_entry *e,
                                         enum vow__named_entry_state to)
{
    vow__sm_move(&e->state, (uint8_t)to, vow__named_entry_moves);
}

/* Returns whether a run needs no record: the store is private to this process
 * and never had a record, so the table of names knows every run. */
static inline bool vow__named_hub_is_unstored(const struct vow__named_hub *h)
{
    return !h->stored && (h->store->ops->flags & VOW_STORE_LOCAL) != 0;
}

/* ---- waiter.c: pending requests ----------------------------------------- */

/* The options of a caller that gives none. */
extern const vow_share_opts vow__named_default_share_opts;
/* Returns a waiter, or NULL without memory. Copies the options, except the
 * default options. */
struct vow__named_waiter *vow__named_waiter_new(const char *site,
                                                vow_authority *handle,
                                                const vow_name *name,
                                                const vow_share_opts *o);
void vow__named_waiter_free(struct vow__named_waiter *w);
/* Sends the waiter to the hub's loop; the caller's reference moves. With
 * w->entry_known, w->entry is the entry of the name or NULL. Returns an owned
 * future of the result, or, `with_claim`, of a vow_claim. */
vow_future *vow__named_waiter_send(struct vow__named_waiter *w,
                                   bool with_claim);
/* Fills the vow_share_info of the result, if the options ask for the info. */
void vow__named_waiter_set_info(struct vow__named_waiter *w, uint32_t role,
                                uint64_t fence, uint64_t age_ms,
                                const char *runner);
void vow__named_waiter_resolve(struct vow__named_waiter *w, vow_value v);
void vow__named_waiter_copy(struct vow__named_waiter *w, vow_future *settled);
void vow__named_waiter_reject(struct vow__named_waiter *w, vow_error *error);
void vow__named_waiter_refuse(struct vow__named_waiter *w, int code,
                              const char *text);
/* Begins the work of the lease on the waiter's loop. */
void vow__named_waiter_start_work(struct vow__named_waiter *w, vow_lease *l);
/* Settles a pending vow_claim without a lease: another runner works. */
void vow__named_waiter_waits(struct vow__named_waiter *w);

static inline struct vow__named_waiter *
vow__named_waiter_ref(struct vow__named_waiter *w)
{
    vow__named_refs_up(&w->refs, w->handle->hub->threaded);
    return w;
}

static inline void vow__named_waiter_unref(struct vow__named_waiter *w)
{
    if (vow__named_refs_down(&w->refs, w->handle->hub->threaded))
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
                                 : w->handle->hub->opts.lease_ms;
}

/* ---- lease.c, lease_end.c, commit.c: the work --------------------------- */

/* Lets a waiter of the entry work, after the claim was granted. `alone`: the
 * store is down, and the work runs without the store. */
void vow__named_lease_begin(struct vow__named_entry *e, bool alone);
/* Gives the name back to the store, so that another process can work. */
void vow__named_lease_give_back(struct vow__named_entry *e);
/* Takes the outcome of the work, a settled future of the hub's loop. */
void vow__named_lease_finish(vow_lease *l, vow_future *outcome);
/* Gives up a lost lease: notifies the runner, and the waiters claim again. */
void vow__named_lease_lose(vow_lease *l, const char *why);
/* Cancels the work. `stopped`: on request of a user, so the work fails. */
void vow__named_lease_cancel(vow_lease *l, vow_error *why, bool stopped);
/* Gives the name back now, without waiting for the end of the work. */
void vow__named_lease_yield(vow_lease *l);
void vow__named_lease_over(vow_lease *l, bool accepted);
/* Rejects vow_lease_lost() with `code` while the hub still holds the lease. */
void vow__named_lease_tell_lost(vow_lease *l, int code, const char *text);
/* Returns the milliseconds to valid_ns, in every state; UINT64_MAX: no end. */
uint64_t vow__named_lease_valid_ms(const vow_lease *l);
/* Passes progress of the runner, borrowed, to all waiters of this process. */
void vow__named_lease_progress(vow_lease *l, vow_value progress);
/* Sends the outcome, settled and borrowed, to the store. */
void vow__named_lease_commit(struct vow__named_entry *e, vow_future *outcome);
/* Repeats the commit after a pause. */
void vow__named_lease_commit_again(void *entry);
/* Handles the event on_cancel of a store. */
void vow__named_lease_stop(const vow_name *name, void *hub);
/* Reports the outcome, borrowed, from the waiter's loop, once. Returns whether
 * the lease was held and this call reported the outcome. */
bool vow__named_lease_report(vow_lease *l, vow_future *outcome);
void vow__named_lease_free(vow_lease *l);

/* Returns how long the work has run. */
static inline uint64_t vow__named_lease_age_ns(const vow_lease *l,
                                               uint64_t now_ns)
{
    return l->began_ns == UINT64_MAX ? 0 : now_ns - l->began_ns;
}

/* References of the memory. */
static inline void vow__named_lease_hold(vow_lease *l)
{
    vow__named_refs_up(&l->refs, l->hub->threaded);
}

static inline void vow__named_lease_release(vow_lease *l)
{
    if (vow__named_refs_down(&l->refs, l->hub->threaded))
        vow__named_lease_free(l);
}

/* ---- pulse.c: keeping leases -------------------------------------------- */

void vow__named_pulse_add(vow_lease *l);
void vow__named_pulse_remove(vow_lease *l);
/* Sends the next pulse at once, unless a pulse is in flight. */
void vow__named_pulse_soon(vow_lease *l);

/* ---- refresh.c: replacing old results ----------------------------------- */

/* Returns whether the result `r`, handed out to `w`, is due for a refresh. */
bool vow__named_refresh_due(struct vow__named_hub *h,
                            const struct vow__named_waiter *w,
                            const vow_record *r);
/* refresh_for starts a refresh of the result with the epoch `refreshed`, with
 * the work and options of `because`, which stays. refresh_start turns `w` into
 * the waiter of a refresh. */
void vow__named_refresh_for(struct vow__named_hub *h,
                            const struct vow__named_waiter *because,
                            uint64_t refreshed);
void vow__named_refresh_start(struct vow__named_hub *h,
                              struct vow__named_waiter *w, uint64_t refreshed);
/* Looks for the epoch of the old result, before the claim. Returns false if the
 * epoch is known. */
bool vow__named_refresh_peek(struct vow__named_entry *e);
/* Handles a claim or commit that the store has answered with this status. */
void vow__named_refresh_refused(struct vow__named_entry *e, uint32_t status);
/* Before the commit: keeps the value for a store that keeps no values. */
void vow__named_refresh_keep(struct vow__named_entry *e);

/* ---- chunks.c: results in parts ----------------------------------------- */

void vow__named_chunks_follow(struct vow__named_entry *e,
                              struct vow__named_waiter *w);
int vow__named_chunks_add(struct vow__named_entry *e, vow_bytes *chunk);
void vow__named_chunks_drop(struct vow__named_entry *e);
/* Drops the chunks: a new attempt begins, or the run is over. */
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
/* Reads chunks of another process from the store. */
void vow__named_chunks_read(struct vow__named_entry *e);
void vow__named_chunks_changed(const vow_name *name, void *hub);

/* ---- permit.c: pool permits --------------------------------------------- */

void vow__named_permits_changed(const vow_token *token, void *hub);
void vow__named_permits_doubt(struct vow__named_hub *h);
/* Ends all permits when the hub closes; the store gives them back. */
void vow__named_permits_close(struct vow__named_hub *h);
/* Gives the permits of one handle back. */
void vow__named_permits_leave(struct vow__named_hub *h, vow_authority *handle);

#endif
