/* SPDX-License-Identifier: MIT */
/* promise_internal.h - the layout of a promise, and what core does with it.
 *
 *   vow_future (88 bytes)
 *   +--------------------+------+---------+--------------+------+------+------+
 *   | node: link, source | slab | waiters | call | value | user | drop | site |
 *   +--------------------+------+---------+--------------+------+------+------+
 *     waits in a list      slab   its own   while pending, then the outcome
 *
 * A node waits in the `waiters` of its source, and moves to the loop's ready
 * queue when the source is settled. A link of a chain is node and future in
 * one: it waits for its source and is waited for itself. A watch is a node
 * that is no future: an await, a leg of a combinator, a member of a scope.
 *
 * References of a future: one per handle, one per node whose source it is, one
 * while its own node is in a list, one while it has ends (deferreds).
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
    VOW__PROMISE = 1,      /* settled by its ends; the node queues its hook */
    VOW__THEN = 2,         /* runs ok or fail when its source is settled */
    VOW__FOLLOW = 3,       /* takes over the outcome of its source */
    VOW__FINALLY = 4,      /* runs call.finally, then passes on */
    VOW__FINALLY_WAIT = 5, /* waits for source, then passes on `user` */
    VOW__LISTEN = 6,       /* passes on; `user` is its listener */
    VOW__WATCH = 7,        /* a struct vow__core_watch */
    VOW__NONE = 8,         /* the loop's rejected future: its ends are refs */
    VOW__GROUP = 9,        /* settled: `user` is the group of combine.c whose
                              inputs are its rests */
    VOW__RESTS = 10        /* settled, of nobody: room for one more rest */
};

/* A value that is another future's: as.ptr is that future, counted. */
enum { VOW__TAG_ALIAS = 7 };

struct vow__core_node {
    vow_link link;
    vow_future *source;     /* what it waits for, counted; NULL: nothing. Or a
                             rest: see rest.c */
    uint8_t kind;           /* enum vow__core_node_kind */
    uint8_t state : 2;      /* enum vow_state */
    uint8_t rest : 1;       /* what it let go of may still run: see rest.c */
    uint8_t handled : 1;    /* somebody looks after its rejection */
    uint8_t listened : 1;   /* a progress listener is somewhere below */
    uint8_t canceled : 1;   /* its hook was asked */
    uint8_t queued : 1;     /* PROMISE: the node is in the ready queue */
    uint8_t hook_now : 1;   /* PROMISE: the hook is called at once */
    uint16_t has_ends : 1;  /* deferreds, counted in w.ends */
    uint16_t relayed : 1;   /* PROMISE: `user` is the watch it relays for */
    uint16_t runs : 1;      /* PROMISE of core's own: work runs behind it */
    uint16_t end_refs : 13; /* references of those that only wait for its end */
    uint32_t refs;
};

/* Beyond what `end_refs` can count, nothing is canceled upwards. */
enum { VOW__END_REFS_MAX = (1 << 13) - 1 };

struct vow__core_watch {
    struct vow__core_node node;
    void (*run)(struct vow__core_watch *w); /* the source is settled */
    vow_future *out; /* progress goes on to it; NULL: nowhere. Borrowed. */
};

struct vow__core_listener;

struct vow_future {
    struct vow__core_node node;
    struct vow__slab *slab; /* its owner is the loop */
    vow_link *waiters;      /* nodes whose source this is. NULL when settled,
                               but for a walk of rest.c. A late finally: those
                               that run after it; or, with `canceled`, what it
                               was attached to, while it waits for a rest */
    union {
        struct {
            union {
                vow_ok_fn ok;
                vow_finally_fn finally;
                vow_cancel_fn hook; /* PROMISE */
            } u;
            union {
                vow_fail_fn fail;
                vow_error *why; /* PROMISE: what the queued hook is told */
            } v;
        } call;          /* while pending */
        vow_value value; /* when settled: the value, or the error in as.ptr */
    } u;
    union {
        void *user;       /* of call; FINALLY_WAIT: the future to pass on */
        vow_future *rest; /* see rest.c */
    };
    union {
        vow_drop_fn drop; /* of user, or NULL: a link's */
        uintptr_t ends;   /* deferreds: a promise's, also while it follows */
    } w;
    const char *site; /* static text */
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

/* Fulfilled, and nothing that it let go of still runs: one comparison. */
static inline bool vow__core_future_is_plain(const vow_future *f)
{
    return f->node.state == VOW_FULFILLED && !f->node.rest;
}

/* Where the value is: in it, or in the future it is an alias of. */
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

/* A pending future, or NULL. The callers' constants fold into the stores. */
VOW__INLINE vow_future *vow__core_future_new(vow_loop *loop, const char *site,
                                             enum vow__core_node_kind kind,
                                             uint32_t refs, bool end)
{
    struct vow__slab *slab;
    VOW__ASSERT_THREAD(loop);
    vow_future *f = vow__slab_take(&loop->futures, &slab);
    if (VOW__UNLIKELY(f == NULL))
        return NULL;
    f->node.source = NULL; /* the link is written when it joins a list */
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
    f->w.ends = end; /* and drop is NULL without ends */
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

/* The same where a million links pass: most have nothing to destroy. */
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

/* The loop's rejected future, one more reference. */
vow_future *vow__core_future_no_memory(vow_loop *loop);
/* A promise of core's own, one end and one handle; NULL without memory. `hook`
 * (may be NULL) runs inside vow_cancel(); `user` is for it. */
vow_future *vow__core_promise_new(vow_loop *loop, const char *site,
                                  vow_cancel_fn hook, void *user);

/* The queued hook of a promise will not run. */
void vow__core_hook_forget(vow_loop *loop, vow_future *f);
/* Everything that waits for a settled future is ready. */
static inline void vow__core_future_wake_waiters(vow_loop *loop, vow_future *f)
{
    if (f->waiters == NULL)
        return;
    vow__list_splice(&loop->ready, &f->waiters);
    if (VOW__UNLIKELY(!loop->armed))
        vow__core_loop_arm(loop);
}
/* Settle a pending future; values and errors are moved. Not for futures that
 * wait for a source: these are taken off it first. */
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
/* Settle as `from`, which is settled, and end when that has ended. The second
 * leaves the end to the caller. */
void vow__core_future_adopt(vow_loop *loop, vow_future *f, vow_future *from);
void vow__core_future_adopt_outcome(vow_loop *loop, vow_future *f,
                                    vow_future *from);
/* Destroy the futures in loop->dead, unless that is being done. */
void vow__core_futures_reap(vow_loop *loop);
/* Settle with what a step returned; `came` is what VOW_TAG_PASS passes on, NULL
 * where nothing came in. A value is the way of a million links: inline. */
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
/* Wait for `other` and settle as it does; its reference is moved. */
void vow__core_future_follow(vow_loop *loop, vow_future *f, vow_future *other);
void vow__core_next_drop(vow_next next);

/* ---- link.c -------------------------------------------------------------- */

/* Put a node behind `source`: with its waiters, or in the ready queue. The
 * first is for nodes with no listener below them. */
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
/* Take a waiting node off; returns the source, whose reference is moved. */
vow_future *vow__core_node_unwait(vow_loop *loop, struct vow__core_node *n);
/* Take nodes from the ready queue and do what they wait for; at most so many.
 * Returns how many ran. */
uint32_t vow__core_nodes_run(vow_loop *loop, uint32_t max);
void vow__core_link_drop_user(vow_future *f);
/* Was it canceled, and its function did not run yet? Then it was attached to
 * this. */
static inline bool vow__core_finally_is_late(const vow_future *f)
{
    return f->node.kind == VOW__FINALLY && !vow__core_future_is_pending(f) &&
           f->node.source != NULL;
}
static inline vow_future *vow__core_finally_source(const vow_future *f)
{
    if (!f->node.canceled)
        return f->node.source;
    return VOW__OUTER(VOW__OUTER(f->waiters, struct vow__core_node, link),
                      vow_future, node);
}
/* The same of a canceled FINALLY_WAIT: the outcome it would have passed on. */
void vow__core_finally_drop_held(vow_future *f);

/* ---- tree.c -------------------------------------------------------------- */

/* What a pending future waits for, NULL if it is a root. */
vow_future *vow__core_future_upstream(const vow_future *f);
/* True if `f` waits for `target`, directly or through others. */
bool vow__core_future_waits_for(const vow_future *f, const vow_future *target);
/* All nodes below a pending `root`, or only those on the way to a listener. */
struct vow__core_node *vow__core_future_first_waiter(const vow_future *f);
struct vow__core_node *vow__core_node_next_below(struct vow__core_node *n,
                                                 const vow_future *root,
                                                 bool listened);

/* ---- cancel.c ------------------------------------------------------------ */

/* VOW_ECANCELED with this cause; owned. */
vow_error *vow__core_cancel_error(vow_loop *loop, const char *site,
                                  vow_error *why);
/* Drop a node's reference to what it waited for; cancel that if nobody else
 * holds it. */
void vow__core_source_let_go(vow_loop *loop, vow_future *source,
                             vow_error *why);
/* The same for the settled `f`, which has not ended while the source, if it was
 * canceled, still runs. */
void vow__core_source_leave(vow_loop *loop, vow_future *f, vow_future *source,
                            vow_error *why);
/* References to a pending future that are not the machinery's own. */
uint32_t vow__core_future_readers(const vow_future *f);
/* A reference to `f` is of one that only waits for its end, or no more: of a
 * canceled finally, a member of a canceled scope, a watch, a rest. */
static inline void vow__core_future_count_end_ref(vow_future *f, int change)
{
    if (f->node.end_refs < VOW__END_REFS_MAX)
        f->node.end_refs =
            (f->node.end_refs + (unsigned)change) & VOW__END_REFS_MAX;
}
/* Ask a promise through its hook, from the queue; and do so. */
void vow__core_hook_queue(vow_loop *loop, vow_future *f, vow_error *why);
void vow__core_hook_run(vow_loop *loop, vow_future *f);

/* ---- rest.c -------------------------------------------------------------- */

/* `f` has not ended before `work`, whose reference is moved. */
void vow__core_rest_add(vow_future *f, vow_future *work);
/* `f` has not ended before `from`, which is settled. */
void vow__core_rest_inherit(vow_future *f, vow_future *from);
/* `f` is about to let go of `source`, with the one reference it has: a rest of
 * it, if nobody else reads the source or if work runs behind it. */
void vow__core_rest_keep(vow_future *f, vow_future *source);
bool vow__core_rest_counts(const vow_future *source);
/* What the end of a settled `f` waits for: a future to wait behind, counted;
 * NULL: it has ended. What the walk frees is destroyed by the next vow__core_futures_reap(),
 * which the caller calls when others' code may run. */
vow_future *vow__core_rest_walk(vow_future *f);
static inline vow_future *vow__core_rest_next(vow_future *f)
{
    return VOW__LIKELY(!f->node.rest) ? NULL : vow__core_rest_walk(f);
}
/* Forget the rests of a settled `f` that have ended. True: all have. */
bool vow__core_rest_trim(vow_future *f);
/* A promise begins to follow: its rest moves to where that has room. */
void vow__core_rest_move(vow_future *promise);
/* All that wait for `f`, in whose place they wait for another now, have its
 * rests too. False: one of them has no room. */
bool vow__core_rest_hand_down(vow_future *f);
/* `f` is destroyed. */
void vow__core_rest_release(vow_future *f);
/* Does work run behind a pending future, or does it only wait? */
bool vow__core_future_runs_work(const vow_future *f);

/* ---- progress.c ---------------------------------------------------------- */

/* A listener is below `f`: remember it up to the root. */
void vow__core_progress_listen_up(vow_future *f);
bool vow__core_progress_notify(vow_loop *loop, vow_future *f,
                               vow_value progress);
/* The LISTEN link leaves its source. */
void vow__core_listener_free(vow_loop *loop, vow_future *link);

/* ---- context.c ----------------------------------------------------------- */

/* The step (or the finally, if it is not NULL) belongs to the current context.
 * False: no memory, it is as it was. */
bool vow__core_context_carry(vow_loop *loop, vow_step *step,
                             vow_finally_fn *finally);

/* ---- combine.c ----------------------------------------------------------- */

void vow__core_value_list_drop(void *list);
/* The first rest of a VOW__GROUP, NULL: none is left; that one has ended; and
 * the group is not needed any more. */
vow_future **vow__core_group_rest(vow_future *out);
void vow__core_group_rest_drop(vow_future *out);
void vow__core_group_release(vow_future *out);

#endif
