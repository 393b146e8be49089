/* SPDX-License-Identifier: MIT */
/* promise_internal.h - the layout of a promise, and the functions of core.
 *
 *   vow_future (88 bytes)
 *   +--------------------+------+---------+--------------+------+------+------+
 *   | node: link, source | slab | waiters | call | value | user | drop | site |
 *   +--------------------+------+---------+--------------+------+------+------+
 *     32 bytes             8      8         16             8      8      8
 *
 *     slab      the slab of this object; the owner of the slab is the loop
 *     waiters   the nodes that wait for this future
 *     call      the handlers, while pending; when settled, value: the outcome
 *
 * A node waits in the `waiters` of its source, and moves to the loop's ready
 * queue when the source is settled. A link of a chain is node and future at
 * the same time: the link waits for a source, and other nodes wait for the
 * link. A watch is a node without a future: an await, an input of a combinator,
 * a member of a scope.
 *
 * References of a future: one per handle, one per node that waits for the
 * future, one while the future's own node is in a list, one while the future
 * has ends (deferreds), one per future that has the future as a rest (rest.c).
 */
#ifndef VOW_CORE_PROMISE_INTERNAL_H
#define VOW_CORE_PROMISE_INTERNAL_H

#include "base/error.h"
#include "base/slab.h"
#include "core/loop_internal.h"
#include "vow/combine.h"
#include "vow/context.h"

enum vow__core_node_kind {
    VOW__FREE = 0,         /* the object is not in use */
    VOW__PROMISE = 1,      /* settled by deferreds; the node queues the hook */
    VOW__THEN = 2,         /* runs ok or fail when the source is settled */
    VOW__FOLLOW = 3,       /* takes over the outcome of the source */
    VOW__FINALLY = 4,      /* runs call.finally, then passes the outcome on */
    VOW__FINALLY_WAIT = 5, /* waits for source, then passes on `user` */
    VOW__LISTEN = 6,       /* passes the outcome on; `user` is the listener */
    VOW__WATCH = 7,        /* a struct vow__core_watch */
    VOW__NONE = 8,         /* the loop's rejected future: deferreds are refs */
    VOW__GROUP = 9,        /* settled: `user` is a group of combine.c, and the
                              inputs of the group are the rests */
    VOW__RESTS = 10        /* settled, without readers: holds two rests */
};

/* The tag of a value in another future: as.ptr is the other future, counted. */
enum { VOW__TAG_ALIAS = 7 };

struct vow__core_node {
    vow_link link;
    vow_future *source;     /* the future the node waits for, or a rest (see
                               rest.c); counted. NULL: none */
    uint8_t kind;           /* enum vow__core_node_kind */
    uint8_t state : 2;      /* enum vow_state */
    uint8_t rest : 1;       /* the future has rests: see rest.c */
    uint8_t handled : 1;    /* a reader handles the rejection */
    uint8_t listened : 1;   /* a progress listener is somewhere below */
    uint8_t canceled : 1;   /* PROMISE: the hook was called or queued. Late
                               finally: see `waiters` */
    uint8_t queued : 1;     /* PROMISE: the node is in the ready queue */
    uint8_t hook_now : 1;   /* PROMISE: vow_cancel() calls the hook at once */
    uint16_t has_ends : 1;  /* there are deferreds, counted in w.ends */
    uint16_t relayed : 1;   /* PROMISE: `user` is the watch of the source */
    uint16_t runs : 1;      /* PROMISE of core itself: there is work behind */
    uint16_t end_refs : 13; /* references that only wait for the end */
    uint32_t refs;
};

/* At this value `end_refs` no longer changes: the number of readers is not
 * known, and the last reader that leaves does not cancel the future. */
enum { VOW__END_REFS_MAX = (1 << 13) - 1 };

struct vow__core_watch {
    struct vow__core_node node;
    void (*run)(struct vow__core_watch *w); /* called: the source is settled */
    vow_future *out; /* the future that gets progress, borrowed; NULL: none */
};

struct vow__core_listener;

struct vow_future {
    struct vow__core_node node;
    struct vow__slab *slab; /* the slab of this object; owner: the loop */
    vow_link *waiters;      /* nodes that wait for this future. NULL when
                               settled, except during a walk of rest.c. Late
                               finally: late finallies that run afterwards; or,
                               with `canceled`, while the finally waits for a
                               rest, the future it was attached to */
    union {
        struct {
            union {
                vow_ok_fn ok;
                vow_finally_fn finally;
                vow_cancel_fn hook; /* PROMISE */
            } u;
            union {
                vow_fail_fn fail;
                vow_error *why; /* PROMISE: argument of the queued hook */
            } v;
        } call;          /* while pending */
        vow_value value; /* when settled: the value, or the error in as.ptr */
    } u;
    union {
        void *user;       /* argument of call; FINALLY_WAIT: the future to pass
                             on, counted */
        vow_future *rest; /* a rest (see rest.c), counted */
    };
    union {
        vow_drop_fn drop; /* link: destructor of `user`, or NULL */
        uintptr_t ends;   /* promise, also while following: deferreds */
    } w;
    const char *site; /* where the future was made, static text */
};

static inline vow_loop *vow__core_future_loop(const vow_future *f)
{
    return (vow_loop *)f->slab->owner;
}

static inline vow_deferred *vow__core_deferred_of(vow_future *f)
{
    return (vow_deferred *)(void *)f;
}

static inline vow_future *vow__core_future_of(const vow_deferred *d)
{
    return (vow_future *)(uintptr_t)d;
}

static inline bool vow__core_future_is_pending(const vow_future *f)
{
    return f->node.state == VOW_PENDING;
}

/* Returns whether `f` is fulfilled and has no rests: one comparison. */
static inline bool vow__core_future_is_plain(const vow_future *f)
{
    return f->node.state == VOW_FULFILLED && !f->node.rest;
}

/* Returns the value in `f`, or in the future that `f` is an alias of. */
static inline const vow_value *vow__core_future_value(const vow_future *f)
{
    if (f->u.value.tag == VOW__TAG_ALIAS)
        f = (const vow_future *)f->u.value.as.ptr;
    return &f->u.value;
}

static inline vow_error *vow__core_future_error(const vow_future *f)
{
    return (vow_error *)f->u.value.as.ptr;
}

static inline vow_future *vow__core_future_ref(vow_future *f)
{
    f->node.refs++;
    return f;
}

/* ---- promise.c ----------------------------------------------------------- */

/* Returns a pending future, or NULL without memory. The constants of the
 * callers fold into the stores. */
VOW__INLINE vow_future *vow__core_future_new(vow_loop *loop, const char *site,
                                             enum vow__core_node_kind kind,
                                             uint32_t refs, bool end)
{
    struct vow__slab *slab;
    VOW__ASSERT_THREAD(loop);
    vow_future *f = vow__slab_take(&loop->futures, &slab);
    if (VOW__UNLIKELY(f == NULL))
        return NULL;
    f->node.source = NULL; /* joining a list will write the link */
    f->node.kind = (uint8_t)kind;
    f->node.state = VOW_PENDING;
    f->node.handled = 0;
    f->node.listened = 0;
    f->node.canceled = 0;
    f->node.queued = 0;
    f->node.rest = 0;
    f->node.hook_now = 0;
    f->node.has_ends = end;
    f->node.relayed = 0;
    f->node.runs = 0;
    f->node.end_refs = 0;
    f->node.refs = refs;
    f->slab = slab;
    f->waiters = NULL;
    f->u.call.u.ok = NULL;
    f->u.call.v.fail = NULL;
    f->w.ends = end; /* without ends, w.drop is NULL */
    f->site = site;
    return f;
}
void vow__core_future_destroy(vow_future *f);

static inline void vow__core_future_unref(vow_future *f)
{
    VOW__ASSERT(f->node.refs > 0);
    if (--f->node.refs == 0)
        vow__core_future_destroy(f);
}

/* Does the same on the hot path: most links have nothing to destroy. */
VOW__INLINE void vow__core_future_unref_hot(vow_future *f)
{
    VOW__ASSERT(f->node.refs > 0);
    if (--f->node.refs > 0)
        return;
    if (VOW__LIKELY(vow__core_future_is_plain(f) && f->u.value.tag <= VOW_PTR &&
                    !vow__core_future_loop(f)->closed)) {
        f->node.kind = VOW__FREE;
        vow__slab_give(f->slab, f);
    } else {
        vow__core_future_destroy(f);
    }
}

/* Returns the loop's rejected future with another reference. */
vow_future *vow__core_future_no_memory(vow_loop *loop);
/* Returns a promise of core itself with a deferred and a handle, or NULL
 * without memory. `hook` (may be NULL) gets `user` and runs inside
 * vow_cancel(). */
vow_future *vow__core_promise_new(vow_loop *loop, const char *site,
                                  vow_cancel_fn hook, void *user);

/* Removes the queued hook of a promise from the ready queue. */
void vow__core_hook_forget(vow_loop *loop, vow_future *f);
/* Moves all waiters of a settled future to the ready queue. */
static inline void vow__core_future_wake_waiters(vow_loop *loop, vow_future *f)
{
    if (f->waiters == NULL)
        return;
    vow__list_splice(&loop->ready, &f->waiters);
    if (VOW__UNLIKELY(!loop->armed))
        vow__core_loop_arm(loop);
}
/* Settle a pending future; the value or the error is moved. A future that waits
 * for a source must leave the source first. */
static inline void vow__core_future_fulfil(vow_loop *loop, vow_future *f,
                                           vow_value v)
{
    VOW__ASSERT(vow__core_future_is_pending(f));
    if (VOW__UNLIKELY(f->node.queued))
        vow__core_hook_forget(loop, f);
    f->u.value = v;
    f->node.state = VOW_FULFILLED;
    vow__core_future_wake_waiters(loop, f);
}
void vow__core_future_reject(vow_loop *loop, vow_future *f, vow_error *e);
void vow__core_future_reject_code(vow_loop *loop, vow_future *f, int code,
                                  const char *text);
/* Settle `f` with the outcome of the settled `from`. The first function also
 * inherits the rests of `from`; the second leaves the rests to the caller. */
void vow__core_future_adopt(vow_loop *loop, vow_future *f, vow_future *from);
void vow__core_future_adopt_outcome(vow_loop *loop, vow_future *f,
                                    vow_future *from);
/* Destroys the futures in loop->dead; does nothing while loop->reaping. */
void vow__core_futures_reap(vow_loop *loop);
/* Settle `f` with the return value of a step. `came` is the source that
 * VOW_TAG_PASS passes on; NULL: none. Plain values are the hot path and inline;
 * the first function settles with everything else. */
void vow__core_future_settle_other(vow_loop *loop, vow_future *f, vow_next next,
                                   vow_future *came);
static inline bool vow__core_next_is_value(vow_next next)
{
    return (intptr_t)next.out.tag >= 0;
}
static inline void vow__core_future_settle_next(vow_loop *loop, vow_future *f,
                                                vow_next next, vow_future *came)
{
    if (VOW__LIKELY(vow__core_next_is_value(next)))
        vow__core_future_fulfil(loop, f, next.out);
    else
        vow__core_future_settle_other(loop, f, next, came);
}
/* Makes `f` wait for `other` and settle with the outcome of `other`. The
 * reference to `other` is moved. */
void vow__core_future_follow(vow_loop *loop, vow_future *f, vow_future *other);
void vow__core_next_drop(vow_next next);

/* ---- link.c -------------------------------------------------------------- */

/* Put a node behind `source`: into the waiters of a pending source, else into
 * the ready queue. _moved takes over the caller's reference to the source; the
 * others add a reference. _moved and _quiet are for nodes without a listener
 * below. */
static inline void vow__core_node_wait_moved(vow_loop *loop,
                                             struct vow__core_node *n,
                                             vow_future *source)
{
    n->source = source;
    source->node.handled = 1;
    if (vow__core_future_is_pending(source))
        vow__list_push(&source->waiters, &n->link);
    else
        vow__core_loop_enqueue(loop, &n->link);
}
static inline void vow__core_node_wait_quiet(vow_loop *loop,
                                             struct vow__core_node *n,
                                             vow_future *source)
{
    vow__core_node_wait_moved(loop, n, vow__core_future_ref(source));
}
void vow__core_node_wait(vow_loop *loop, struct vow__core_node *n,
                         vow_future *source);
/* Removes a waiting node from its list. Returns the source; the node's
 * reference moves to the caller. */
vow_future *vow__core_node_unwait(vow_loop *loop, struct vow__core_node *n);
/* Takes at most `max` nodes from the ready queue and runs each. Returns how
 * many ran. */
uint32_t vow__core_nodes_run(vow_loop *loop, uint32_t max);
/* Calls drop(user) of a link, once. */
void vow__core_link_drop_user(vow_future *f);
/* Returns whether `f` is a late finally: canceled, and the function did not run
 * yet. */
static inline bool vow__core_finally_is_late(const vow_future *f)
{
    return f->node.kind == VOW__FINALLY && !vow__core_future_is_pending(f) &&
           f->node.source != NULL;
}
/* Returns the future that a late finally was attached to. */
static inline vow_future *vow__core_finally_source(const vow_future *f)
{
    if (!f->node.canceled)
        return f->node.source;
    return VOW__OUTER(VOW__OUTER(f->waiters, struct vow__core_node, link),
                      vow_future, node);
}
/* Drops the future that a canceled FINALLY_WAIT would have passed on. */
void vow__core_finally_drop_held(vow_future *f);

/* ---- tree.c -------------------------------------------------------------- */

/* Returns the future that a pending `f` waits for; NULL: `f` is a root. */
vow_future *vow__core_future_upstream(const vow_future *f);
/* Returns whether `f` waits for `target`, directly or through others. */
bool vow__core_future_waits_for(const vow_future *f, const vow_future *target);
/* Walk all nodes below a pending `root`, or with `listened` only the nodes on
 * the way to a listener. NULL: the end. */
struct vow__core_node *vow__core_future_first_waiter(const vow_future *f);
struct vow__core_node *vow__core_node_next_below(struct vow__core_node *n,
                                                 const vow_future *root,
                                                 bool listened);

/* ---- cancel.c ------------------------------------------------------------ */

/* Returns VOW_ECANCELED with the cause `why`, owned; or `why` itself, if its
 * code is VOW_ECANCELED already. */
vow_error *vow__core_cancel_error(vow_loop *loop, const char *site,
                                  vow_error *why);
/* Drops a reader's reference to `source`, and cancels a pending `source` that
 * has no other reader; so on up the chain. */
void vow__core_source_let_go(vow_loop *loop, vow_future *source,
                             vow_error *why);
/* Does the same for the settled `f`, after vow__core_rest_keep(): `f` has not
 * ended while canceled work behind the source still runs. */
void vow__core_source_leave(vow_loop *loop, vow_future *f, vow_future *source,
                            vow_error *why);
/* Returns the number of readers of a pending future: `refs` without deferreds,
 * the list of the node, a queued hook, and end_refs. UINT32_MAX: not known. */
uint32_t vow__core_future_readers(const vow_future *f);
/* Marks (`change` 1) or unmarks (-1) a reference to `f` as waiting only for the
 * end of `f`: the reference of a canceled finally, a member of a canceled
 * scope, a watch, a rest. */
static inline void vow__core_future_count_end_ref(vow_future *f, int change)
{
    if (f->node.end_refs < VOW__END_REFS_MAX)
        f->node.end_refs =
            (f->node.end_refs + (unsigned)change) & VOW__END_REFS_MAX;
}
/* Queue the cancel hook of a promise; and run the queued hook. */
void vow__core_hook_queue(vow_loop *loop, vow_future *f, vow_error *why);
void vow__core_hook_run(vow_loop *loop, vow_future *f);

/* ---- rest.c -------------------------------------------------------------- */

/* Makes `work` a rest of `f`: `f` has not ended before `work`. The reference to
 * `work` is moved. */
void vow__core_rest_add(vow_future *f, vow_future *work);
/* Makes the settled `from`, or the only rest of `from`, a rest of `f`, unless
 * `from` has ended. */
void vow__core_rest_inherit(vow_future *f, vow_future *from);
/* Makes `source` a rest of `f` if vow__core_rest_counts(). To be called before
 * `f` drops its reference to `source`. */
void vow__core_rest_keep(vow_future *f, vow_future *source);
/* Returns whether `source` becomes a rest of a reader that leaves now. Pending:
 * there is no other reader, or work runs behind the source. Settled: the source
 * has not ended. */
bool vow__core_rest_counts(const vow_future *source);
/* Returns a future to wait behind for the end of the settled `f`, counted;
 * NULL: `f` has ended. Futures freed by the walk are destroyed by the next
 * vow__core_futures_reap(), to be called when user code may run. */
vow_future *vow__core_rest_walk(vow_future *f);
static inline vow_future *vow__core_rest_next(vow_future *f)
{
    return VOW__LIKELY(!f->node.rest) ? NULL : vow__core_rest_walk(f);
}
/* Drops rests of the settled `f` that have ended. Returns whether all have. */
bool vow__core_rest_trim(vow_future *f);
/* Moves the rest of a promise that begins to follow from node.source, where the
 * followed future goes, to `rest`. */
void vow__core_rest_move(vow_future *promise);
/* Gives the rest of `f` to all waiters of `f`, which will wait for another
 * future instead. Returns false, and does nothing, if a waiter has no room. */
bool vow__core_rest_hand_down(vow_future *f);
/* Drops all rests of `f`. */
void vow__core_rest_release(vow_future *f);
/* Returns whether work runs behind a pending future; false: the future only
 * waits. */
bool vow__core_future_runs_work(const vow_future *f);

/* ---- progress.c ---------------------------------------------------------- */

/* Marks `f` and all futures above up to the root: a listener is below. */
void vow__core_progress_listen_up(vow_future *f);
/* Queues `progress`, which is moved, for every listener below `f`. Returns
 * false if there are listeners and no memory. */
bool vow__core_progress_notify(vow_loop *loop, vow_future *f,
                               vow_value progress);
/* Frees the listener of a LISTEN link that leaves its source. */
void vow__core_listener_free(vow_loop *loop, vow_future *link);

/* ---- context.c ----------------------------------------------------------- */

/* Puts the step, and the finally if not NULL, into the current context. Returns
 * false without memory, and changes nothing. */
bool vow__core_context_carry(vow_loop *loop, vow_step *step,
                             vow_finally_fn *finally);

/* ---- combine.c ----------------------------------------------------------- */

/* Drops the list of a VOW_LIST value. */
void vow__core_value_list_drop(void *list);
/* Of a VOW__GROUP: return the first rest, NULL: none is left; drop that rest;
 * release the group. */
vow_future **vow__core_group_rest(vow_future *out);
void vow__core_group_rest_drop(vow_future *out);
void vow__core_group_release(vow_future *out);

#endif
