/* SPDX-License-Identifier: MIT */
/* remote.c - the settling end of a promise for other threads.
 *
 * WHY   A thread that has a result must be able to deliver the result without
 *       memory and with full queues.
 * HOW   Both messages that a remote can need, settle and notify, are embedded
 *       in the remote. Destructors run on the loop's thread: the next notify
 *       message there drops progress values with a destructor that were
 *       replaced before delivery. The mutex of the inbox guards the state. Only
 *       the loop's thread uses the promise itself, when a message runs or the
 *       loop closes.
 * INVARIANTS
 *   R1  `settled` is set once, under the lock; the thread that sets it owns
 *       `outcome` until the message runs
 *   R2  the loop holds one of `refs` from the beginning until the promise is
 *       settled by a message or by closing; the handles together hold one
 * THREADS  any, except where a comment says loop.
 */
#include "core/promise_internal.h"
#include "core/remote_internal.h"

#include <stdatomic.h>

enum { STALE_MAX = 64 };

/* A progress value with a destructor, replaced before delivery. Allocated with
 * the value, so that replacing the value needs no memory. */
struct stale_node {
    struct stale_node *next;
    vow_value value;
};

struct vow_remote {
    atomic_uint handles;
    atomic_uint refs; /* references to the memory */
    atomic_bool canceled;
    struct vow__core_inbox *inbox; /* counted */
    struct vow_alloc alloc;
    vow_loop *loop; /* valid until the loop is closed */
    /* under the inbox's lock */
    bool settled;
    bool dropped; /* settled by dropping the last handle */
    bool progress_queued;
    vow_next outcome;
    vow_value progress;               /* the latest value, not yet delivered */
    struct stale_node *progress_node; /* if `progress` has a destructor */
    struct stale_node *stale;         /* replaced values to be destroyed */
    uint32_t stale_count;
    struct vow__core_message settle;
    struct vow__core_message notify;
    /* loop thread only */
    vow_future *out; /* the promise; the remote holds the deferred. NULL once
                        settled or closed */
    vow_link in_loop;
    const struct vow__core_remote_ops *ops; /* NULL: cancel rejects at once */
    void *user;                             /* argument of ops */
};

static bool remote_deliver(vow_remote *r, vow_next outcome, bool dropped);
static bool remote_set_progress(vow_remote *r, vow_value *progress,
                                struct stale_node **node);
static void remote_run_settle(vow_loop *loop, struct vow__core_message *m);
static void remote_run_notify(vow_loop *loop, struct vow__core_message *m);
static void remote_detach(vow_loop *loop, vow_remote *r);
static void on_remote_cancel(vow_error *why, void *user);
static void remote_memory_unref(vow_remote *r);

vow_future *vow_promise_remote_at(const char *site, vow_loop *loop,
                                  vow_remote **ret_end)
{
    VOW__ASSERT_THREAD(loop);
    *ret_end = NULL;
    if (loop->closing)
        return vow_refused_at(site, loop, VOW_ECLOSED, NULL);
    vow_remote *r = vow__mem_zero(&loop->alloc, sizeof(*r));
    if (r == NULL)
        return vow__core_future_no_memory(loop);
    r->out = vow__core_promise_new(loop, site, on_remote_cancel, r);
    if (r->out == NULL) {
        vow__mem_free(&loop->alloc, r, sizeof(*r));
        return vow__core_future_no_memory(loop);
    }
    atomic_init(&r->handles, 1);
    atomic_init(&r->refs, 2);
    atomic_init(&r->canceled, false);
    r->inbox = vow__core_inbox_ref(loop->inbox);
    r->alloc = loop->alloc;
    r->loop = loop;
    r->settle.run = remote_run_settle;
    r->notify.run = remote_run_notify;
    vow__list_push(&loop->remote_list, &r->in_loop);
    vow__core_loop_keep(loop, 1);
    *ret_end = r;
    return r->out;
}

bool vow_resolve_any(vow_remote *r, vow_value v)
{
    return remote_deliver(r, vow_ok(v), false);
}

bool vow_reject_any(vow_remote *r, vow_error *e)
{
    return remote_deliver(r, vow_fail(e), false);
}

bool vow__core_remote_settle(vow_remote *r, vow_next outcome)
{
    return remote_deliver(r, outcome, false);
}

static bool remote_deliver(vow_remote *r, vow_next outcome, bool dropped)
{
    bool sent = false;
    if (r != NULL) {
        vow__core_inbox_lock(r->inbox);
        if (!r->settled && !vow__core_inbox_closed(r->inbox)) {
            r->settled = true; /* keeps R1 */
            r->dropped = dropped;
            r->outcome = outcome;
            sent = vow__core_inbox_push(r->inbox, &r->settle);
        }
        vow__core_inbox_unlock(r->inbox);
    }
    /* A future must not be dropped on this thread. */
    if (!sent && outcome.out.tag != VOW_TAG_FOLLOW)
        vow__core_next_drop(outcome);
    return sent;
}

bool vow_notify_any(vow_remote *r, vow_value progress)
{
    struct stale_node *node = NULL;
    bool sent = r != NULL;
    if (sent && vow_kind_of(progress) == VOW_OWNED) {
        node = vow__mem_new(&r->alloc, sizeof(*node));
        sent = node != NULL;
    }
    if (sent) {
        vow__core_inbox_lock(r->inbox);
        sent = remote_set_progress(r, &progress, &node);
        vow__core_inbox_unlock(r->inbox);
    }
    if (node != NULL)
        vow__mem_free(&r->alloc, node, sizeof(*node));
    vow_value_drop(progress); /* not sent, or the replaced value */
    return sent;
}

/* Stores *progress, and returns the replaced value in *progress. A replaced
 * value with a destructor goes into `stale` instead, for the loop's thread. The
 * caller holds the lock. Returns false if settled, closed, or `stale` is
 * full. */
static bool remote_set_progress(vow_remote *r, vow_value *progress,
                                struct stale_node **node)
{
    if (r->settled || vow__core_inbox_closed(r->inbox))
        return false;
    vow_value older = r->progress;
    if (r->progress_node != NULL && r->stale_count == STALE_MAX)
        return false; /* the loop is behind by STALE_MAX values */
    if (r->progress_node != NULL) {
        r->stale_count++;
        *r->progress_node =
            (struct stale_node){.next = r->stale, .value = older};
        r->stale = r->progress_node;
        older = vow_nothing();
    }
    r->progress = *progress;
    r->progress_node = *node;
    *progress = older;
    *node = NULL;
    if (!r->progress_queued) {
        r->progress_queued = true;
        atomic_fetch_add(&r->refs, 1); /* held by the message */
        (void)vow__core_inbox_push(r->inbox, &r->notify);
    }
    return true;
}

bool vow_remote_canceled(const vow_remote *r)
{
    return r != NULL &&
           atomic_load_explicit(&r->canceled, memory_order_acquire);
}

vow_loop *vow_remote_loop(const vow_remote *r)
{
    return r == NULL ? NULL : r->loop;
}

vow_remote *vow_remote_ref(vow_remote *r)
{
    if (r != NULL)
        atomic_fetch_add_explicit(&r->handles, 1, memory_order_relaxed);
    return r;
}

vow_remote *vow_remote_unref(vow_remote *r)
{
    if (r == NULL ||
        atomic_fetch_sub_explicit(&r->handles, 1, memory_order_acq_rel) > 1)
        return NULL;
    (void)remote_deliver(r, vow_fail_code(VOW_EBROKEN, NULL), true);
    remote_memory_unref(r);
    return NULL;
}

/* ---- on the loop's thread ------------------------------------------------ */

static void remote_run_settle(vow_loop *loop, struct vow__core_message *m)
{
    vow_remote *r = VOW__OUTER(m, vow_remote, settle);
    if (r->outcome.out.tag == VOW_TAG_FOLLOW) {
        vow__core_next_drop(r->outcome); /* futures: loop thread only */
        r->outcome = vow_fail_code(VOW_EINVAL, "a job cannot follow a future");
    }
    if (vow__core_future_is_pending(r->out)) {
        vow__core_future_settle_next(loop, r->out, r->outcome, NULL);
    } else {
        loop->late_settles += !r->dropped;
        vow__core_next_drop(r->outcome);
    }
    remote_detach(loop, r);
}

static void remote_run_notify(vow_loop *loop, struct vow__core_message *m)
{
    vow_remote *r = VOW__OUTER(m, vow_remote, notify);
    vow__core_inbox_lock(r->inbox);
    vow_value progress = r->progress;
    struct stale_node *node = r->progress_node;
    struct stale_node *stale = r->stale;
    r->progress = vow_nothing();
    r->progress_node = NULL;
    r->stale = NULL;
    r->stale_count = 0;
    r->progress_queued = false;
    vow__core_inbox_unlock(r->inbox);
    vow__mem_free(&loop->alloc, node, sizeof(*node));
    while ((node = stale) != NULL) {
        stale = node->next;
        vow_value_drop(node->value);
        vow__mem_free(&loop->alloc, node, sizeof(*node));
    }
    if (r->out != NULL && vow__core_future_is_pending(r->out))
        (void)vow__core_progress_notify(loop, r->out, progress);
    else
        vow_value_drop(progress);
    remote_memory_unref(r);
}

static void remote_detach(vow_loop *loop, vow_remote *r)
{
    vow_future *out = r->out;
    r->out = NULL;
    vow__list_remove(&loop->remote_list, &r->in_loop);
    vow__core_loop_keep(loop, -1);
    if (r->ops != NULL)
        r->ops->on_detach(r->user);
    vow_deferred_unref(vow__core_deferred_of(out));
    remote_memory_unref(r); /* keeps R2 */
}

/* Rejects at once, unless ops decide: the reader does not wait for the other
 * thread, and a later result is a late settle. */
static void on_remote_cancel(vow_error *why, void *user)
{
    vow_remote *r = user;
    atomic_store_explicit(&r->canceled, true, memory_order_release);
    if (r->ops != NULL)
        r->ops->on_cancel(r->out, why, r->user);
    else
        vow__core_future_reject(vow__core_future_loop(r->out), r->out,
                                vow_error_ref(why));
}

void vow__core_remote_attach(vow_remote *r,
                             const struct vow__core_remote_ops *ops, void *user)
{
    r->ops = ops;
    r->user = user;
}

vow_future *vow__core_remote_future(vow_remote *r)
{
    return r->out;
}

void vow__core_remotes_ask(vow_loop *loop)
{
    for (vow_link *l = loop->remote_list; l != NULL; l = l->next)
        atomic_store_explicit(&VOW__OUTER(l, vow_remote, in_loop)->canceled,
                              true, memory_order_release);
}

void vow__core_remote_discard(vow_remote *r)
{
    vow__core_inbox_lock(r->inbox);
    r->settled = true;
    vow__core_inbox_unlock(r->inbox);
    remote_detach(r->loop, r);
    remote_memory_unref(r);
}

/* Rejects all unsettled remotes. The inbox is closed: no message is under
 * way. */
void vow__core_remotes_close(vow_loop *loop)
{
    while (loop->remote_list != NULL) {
        vow_remote *r = VOW__OUTER(loop->remote_list, vow_remote, in_loop);
        atomic_store_explicit(&r->canceled, true, memory_order_release);
        if (vow__core_future_is_pending(r->out))
            vow__core_future_reject_code(loop, r->out, VOW_ECLOSED, NULL);
        remote_detach(loop, r);
    }
}

static void remote_memory_unref(vow_remote *r)
{
    if (atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) > 1)
        return;
    struct vow_alloc alloc = r->alloc;
    vow__core_inbox_unref(r->inbox);
    vow__mem_free(&alloc, r, sizeof(*r));
}
