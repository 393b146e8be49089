/* SPDX-License-Identifier: MIT */
/* batch.c - single requests gathered into calls, and an answer for each.
 *
 * WHY   A hundred requests in one round trip cost little more than one; those
 *       who ask should not have to know of each other.
 * HOW   Items wait in one list. The pump is the one call on the loop that turns
 *       its head into a call of the user's function: it is set for the time the
 *       first item is due, or comes soon when there is reason to. The end of a
 *       turn is when a round of the queue brought no more items. A call
 *       watches its future, which needs no memory: the end of what has begun is
 *       never lost. Whatever is over goes to the list of the dead, whose values
 *       are dropped from the queue: so no destructor runs inside vow_cancel(),
 *       and none can change the lists while we walk them.
 *
 *       add --> waiting --> in a call --> dead --> freed
 *                   \-- canceled, closed --^
 *
 * INVARIANTS
 *   B1  the pump is pending if items wait, a call is free and the loop is open;
 *       and only while items wait
 *   B2  every item counts one reference of the batch, every call one more
 *   B3  an item of a call is freed when the call has ended, not before: its
 *       value is lent to the function
 * LIMITS  add, cancel and answer O(1); a call O(its items); two blocks per item
 *       with its promise.
 * THREADS  loop thread only.
 */
#include "vow/batch.h"
#include "base/alloc.h"
#include "base/list.h"
#include "vow/call.h"
#include "vow/watch.h"

enum {
    MOST = 100,
    QUEUE_MAX = 1 << 20,
    REAP_MAX = 256 /* freed before others get a turn */
};

struct item {
    vow_link link;        /* in the queue, or among the dead */
    vow_batch *batch;     /* counted */
    vow_batch_call *call; /* NULL: none yet */
    vow_deferred *end;    /* of the future of who asked */
    vow_value value;
    size_t bytes;
    uint64_t due_ns; /* when it has waited long enough; 0: at once */
    uint64_t number; /* of its arrival */
    bool aside;      /* canceled, out of the queue; its hook still comes */
};

struct vow_batch_call {
    vow_batch *batch; /* counted */
    vow_future *work; /* what the function returned; NULL until then */
    vow_watch watch;  /* of its end */
    vow_call stop;    /* cancels it from the queue */
    vow_error *why;   /* for that, counted */
    size_t left;      /* items neither canceled nor answered with an outcome */
    size_t n;
    struct item *items[];
};

struct vow_batch {
    struct vow_alloc alloc;
    vow_loop *loop;
    vow_future *anchor; /* settled; keeps the memory of a closed loop */
    vow_batch_fn fn;
    void *user;
    vow_batch_opts opts;
    size_t refs;
    bool closed;
    vow_link *queue; /* items that wait, the oldest first */
    size_t waiting;
    size_t bytes; /* of them, and how often that went past SIZE_MAX */
    uint32_t carried;
    uint64_t numbers; /* given to items so far */
    uint64_t flushed; /* items below this number need not wait for more */
    vow_call pump;
    uint64_t pump_ns; /* what it is set for; 0: soon */
    size_t seen;      /* items that waited when it last came */
    size_t running;   /* calls */
    uint64_t made;
    uint64_t taken; /* items, into calls */
    vow_link *dead; /* items to free */
    vow_call reap;
};

static void refuse(struct item *i, int code, const char *text);
static void item_canceled(vow_error *why, void *user);
static void leave_queue(struct item *i);
static void bury(struct item *i);
static void reap(void *user);
static void schedule(vow_batch *b);
static bool stuck(const vow_batch *b);
static bool full(const vow_batch *b);
static bool flushed(const vow_batch *b);
static bool overdue(const vow_batch *b);
static void pump(void *user);
static bool turn_goes_on(vow_batch *b);
static size_t next_size(vow_batch *b);
static void make_call(vow_batch *b, size_t n);
static vow_future *checked(vow_batch_call *c, vow_future *work);
static size_t call_bytes(size_t n);
static void stop_call(void *user);
static void call_settled(vow_future *work, void *user);
static void call_ended(vow_future *work, void *user);
static void next_drop(vow_next next);

static inline struct item *first(const vow_batch *b)
{
    return VOW__OUTER(b->queue, struct item, link);
}

/* ---- the batch ----------------------------------------------------------- */

int vow_batch_new(vow_loop *loop, vow_batch_fn fn, void *user,
                  const vow_batch_opts *opts, vow_batch **ret_batch)
{
    VOW__ASSERT_THREAD(loop);
    vow_batch_opts o = {.size = sizeof(o)};
    if (fn == NULL || (opts != NULL && opts->size != sizeof(o)))
        return VOW_EINVAL;
    if (opts != NULL)
        o = *opts;
    if (o.most == 0)
        o.most = MOST;
    if (o.concurrent == 0)
        o.concurrent = 1;
    if (o.queue_max == 0)
        o.queue_max = QUEUE_MAX;
    vow_batch *b = vow__mem_zero(vow_loop_alloc(loop), sizeof(*b));
    if (b == NULL)
        return VOW_ENOMEM;
    b->alloc = *vow_loop_alloc(loop);
    b->loop = loop;
    b->fn = fn;
    b->user = user;
    b->opts = o;
    b->refs = 1;
    b->anchor = vow_resolved(loop, vow_nothing());
    if (vow_state_of(b->anchor) == VOW_REJECTED) {
        vow_batch_unref(b);
        return VOW_ENOMEM;
    }
    *ret_batch = b;
    return 0;
}

vow_batch *vow_batch_ref(vow_batch *b)
{
    VOW__ASSERT_THREAD_OF(b, b->loop);
    if (b != NULL)
        b->refs++;
    return b;
}

vow_batch *vow_batch_unref(vow_batch *b)
{
    VOW__ASSERT_THREAD_OF(b, b->loop);
    if (b == NULL || --b->refs > 0)
        return NULL;
    VOW__ASSERT(b->queue == NULL); /* B2 */
    VOW__ASSERT(b->dead == NULL);
    struct vow_alloc alloc = b->alloc;
    vow_future *anchor = b->anchor;
    vow__mem_free(&alloc, b, sizeof(*b));
    vow_future_unref(anchor);
    return NULL;
}

void vow_batch_flush(vow_batch *b)
{
    VOW__ASSERT_THREAD(b->loop);
    b->flushed = b->numbers;
    schedule(b);
}

void vow_batch_close(vow_batch *b)
{
    VOW__ASSERT_THREAD(b->loop);
    b->closed = true;
    while (b->queue != NULL)
        refuse(first(b), VOW_ECLOSED, "the batch is closed");
}

vow_batch_stats vow_batch_stats_get(const vow_batch *b)
{
    VOW__ASSERT_THREAD(b->loop);
    return (vow_batch_stats){.waiting = b->waiting,
                             .calls = b->running,
                             .made = b->made,
                             .items = b->taken};
}

/* ---- items --------------------------------------------------------------- */

vow_future *vow_batch_add_at(const char *site, vow_batch *b, vow_value item,
                             size_t bytes)
{
    VOW__ASSERT_THREAD(b->loop);
    int code = VOW_ENOMEM;
    struct item *i = NULL;
    if (b->closed || vow_loop_closing(b->loop))
        code = VOW_ECLOSED;
    else if (b->waiting >= b->opts.queue_max)
        code = VOW_EQUEUEFULL;
    else
        i = vow__mem_zero(&b->alloc, sizeof(*i));
    if (i == NULL) {
        vow_future *refused = vow_refused_at(site, b->loop, code, NULL);
        vow_value_drop(item); /* may drop the batch as well */
        return refused;
    }
    vow_future *f = vow_promise_at(site, b->loop, &i->end);
    if (!vow_deferred_pending(i->end)) {
        vow_deferred_unref(i->end);
        vow__mem_free(&b->alloc, i, sizeof(*i));
        vow_value_drop(item);
        return f;
    }
    vow_on_cancel_now(i->end, item_canceled, i);
    i->batch = vow_batch_ref(b);
    i->value = item;
    i->bytes = bytes;
    i->number = b->numbers++;
    if (b->opts.wait_ms > 0)
        i->due_ns = vow_loop_due_ns(b->loop, b->opts.wait_ms);
    vow__list_push(&b->queue, &i->link);
    b->waiting++;
    b->bytes += bytes;
    b->carried += b->bytes < bytes;
    schedule(b);
    return f;
}

/* Reject an item that waits. */
static void refuse(struct item *i, int code, const char *text)
{
    leave_queue(i);
    (void)vow_reject_code(i->end, code, text);
    bury(i);
}

/* Inside vow_cancel(): calls nobody. */
static void item_canceled(vow_error *why, void *user)
{
    struct item *i = user;
    vow_batch_call *c = i->call;
    if (c != NULL && c->work != NULL)
        vow_ends_with(i->end, c->work);
    (void)vow_reject(i->end, vow_error_ref(why));
    if (c == NULL) {
        if (!i->aside)
            leave_queue(i);
        bury(i);
        return;
    }
    if (--c->left > 0)
        return; /* keeps B3 */
    c->why = vow_error_ref(why);
    vow_call_soon(&c->stop, c->batch->loop, stop_call, c);
}

static void leave_queue(struct item *i)
{
    vow_batch *b = i->batch;
    vow__list_remove(&b->queue, &i->link);
    b->waiting--;
    b->carried -= b->bytes < i->bytes;
    b->bytes -= i->bytes;
    if (b->queue != NULL)
        return;
    b->seen = 0;
    (void)vow_call_stop(&b->pump); /* keeps B1 */
}

static void bury(struct item *i)
{
    vow_batch *b = i->batch;
    if (b->dead == NULL)
        vow_call_soon(&b->reap, b->loop, reap, b);
    vow__list_push(&b->dead, &i->link);
}

static void reap(void *user)
{
    vow_batch *b = vow_batch_ref(user);
    for (int n = 0; n < REAP_MAX && b->dead != NULL; n++) {
        vow_link *l = vow__list_take(&b->dead);
        struct item *i = VOW__OUTER(l, struct item, link);
        vow_value_drop(i->value);
        vow_deferred_unref(i->end);
        vow__mem_free(&b->alloc, i, sizeof(*i));
        vow_batch_unref(b); /* keeps B2 */
    }
    if (b->dead != NULL)
        vow_call_soon(&b->reap, b->loop, reap, b);
    else /* a destructor had it called, and we have freed that as well */
        (void)vow_call_stop(&b->reap);
    vow_batch_unref(b);
}

/* ---- when ---------------------------------------------------------------- */

/* Set the pump for what comes next (keeps B1). */
static void schedule(vow_batch *b)
{
    if (stuck(b)) {
        (void)vow_call_stop(&b->pump);
        return;
    }
    bool now = full(b) || flushed(b) || overdue(b);
    uint64_t due_ns = now ? 0 : first(b)->due_ns;
    if (vow_call_pending(&b->pump) && b->pump_ns == due_ns)
        return;
    b->pump_ns = due_ns;
    if (now)
        vow_call_soon(&b->pump, b->loop, pump, b);
    else
        vow_call_at(&b->pump, b->loop, due_ns, pump, b);
}

/* No call can be made whatever the time. A closing loop rejects all items. */
static bool stuck(const vow_batch *b)
{
    return b->queue == NULL || b->running >= b->opts.concurrent ||
           vow_loop_closing(b->loop);
}

static bool full(const vow_batch *b)
{
    return b->waiting >= b->opts.most ||
           (b->opts.bytes > 0 && (b->carried > 0 || b->bytes >= b->opts.bytes));
}

static bool flushed(const vow_batch *b)
{
    return first(b)->number < b->flushed;
}

static bool overdue(const vow_batch *b)
{
    return first(b)->due_ns == 0 ||
           first(b)->due_ns <= vow_loop_now_ns(b->loop);
}

/* At most one call, then the others of the loop's queue. */
static void pump(void *user)
{
    vow_batch *b = vow_batch_ref(user);
    size_t n = turn_goes_on(b) ? 0 : next_size(b);
    if (n > 0)
        make_call(b, n);
    schedule(b);
    vow_batch_unref(b);
}

/* Without a time to wait: the last round of the queue brought more items, and
 * so may the next. No more than `most` can, so this ends. */
static bool turn_goes_on(vow_batch *b)
{
    bool more = b->opts.wait_ms == 0 && b->waiting > b->seen;
    b->seen = b->waiting;
    return more && !full(b) && !flushed(b);
}

/* How many go into a call now. A flush alone takes those that were there; the
 * other reasons take what fits. Canceled ones step aside. */
static size_t next_size(vow_batch *b)
{
    size_t n = 0, there = 0, bytes = 0, limit = b->opts.bytes;
    vow_link *next = b->queue;
    while (next != NULL && n < b->opts.most) {
        struct item *i = VOW__OUTER(next, struct item, link);
        next = next->next;
        if (vow_deferred_canceled(i->end)) {
            leave_queue(i);
            i->aside = true;
            continue;
        }
        if (n > 0 && limit > 0 && (bytes > limit || i->bytes > limit - bytes))
            break;
        bytes += limit > 0 ? i->bytes : 0;
        n++;
        there += i->number < b->flushed;
    }
    if (stuck(b))
        return 0;
    return full(b) || overdue(b) ? n : there;
}

/* ---- calls --------------------------------------------------------------- */

/* Hand the first `n` items to the function. */
static void make_call(vow_batch *b, size_t n)
{
    vow_batch_call *c = vow__mem_zero(&b->alloc, call_bytes(n));
    for (size_t k = 0; k < n && c == NULL; k++)
        refuse(first(b), VOW_ENOMEM, NULL);
    if (c == NULL)
        return;
    c->batch = vow_batch_ref(b); /* keeps B2 */
    c->left = n;
    c->n = n;
    for (size_t k = 0; k < n; k++) {
        c->items[k] = first(b);
        c->items[k]->call = c;
        leave_queue(c->items[k]);
    }
    b->seen = 0;
    b->running++;
    b->made++;
    b->taken += n;
    c->work = checked(c, b->fn(b->loop, c, b->user));
    for (size_t k = 0; c->left < n && k < n; k++) /* canceled by that */
        if (vow_deferred_canceled(c->items[k]->end))
            vow_ends_with(c->items[k]->end, c->work);
    vow_watch_settled(&c->watch, c->work, call_settled, c);
}

/* The error is of where the first item was asked for. */
static vow_future *checked(vow_batch_call *c, vow_future *work)
{
    if (work != NULL && vow_future_loop(work) == c->batch->loop)
        return work;
    vow_future_unref(work);
    return vow_refused_at(
        vow_future_site(vow_deferred_future(c->items[0]->end)), c->batch->loop,
        VOW_EINVAL,
        "the function of the batch returned no future of this loop");
}

static size_t call_bytes(size_t n)
{
    return sizeof(vow_batch_call) + n * sizeof(struct item *);
}

static void stop_call(void *user)
{
    vow_batch_call *c = user;
    (void)vow_cancel(c->work, c->why);
}

/* Its items are answered; the call may still run. */
static void call_settled(vow_future *work, void *user)
{
    vow_batch_call *c = user;
    vow_value v = vow_get(work);
    vow_error *e = vow_error_of(work);
    bool ended = vow_ended(work);
    for (size_t k = 0; k < c->n; k++) {
        vow_deferred *end = c->items[k]->end;
        if (vow_deferred_pending(end) && !ended)
            vow_ends_with(end, work);
        if (vow_deferred_pending(end) && e != NULL)
            (void)vow_reject(end, vow_error_ref(e));
        else if (vow_deferred_pending(end) && vow_list_size(v) == c->n)
            (void)vow_resolve_with(end, vow_list_at(v, k));
        else if (vow_deferred_pending(end))
            (void)vow_reject_code(end, VOW_EBROKEN,
                                  "the call ended without an answer");
    }
    if (ended)
        call_ended(work, c);
    else
        vow_watch_start(&c->watch, work, call_ended, c);
}

static void call_ended(vow_future *work, void *user)
{
    vow_batch_call *c = user;
    vow_batch *b = c->batch;
    for (size_t k = 0; k < c->n; k++)
        bury(c->items[k]);
    b->running--;
    schedule(b);
    (void)vow_call_stop(&c->stop);
    vow_error_unref(c->why);
    vow__mem_free(&b->alloc, c, call_bytes(c->n));
    vow_future_unref(work);
    vow_batch_unref(b); /* keeps B2 */
}

size_t vow_batch_call_size(const vow_batch_call *c)
{
    return c->n;
}

vow_value vow_batch_call_item(const vow_batch_call *c, size_t index)
{
    return index < c->n ? c->items[index]->value : vow_nothing();
}

bool vow_batch_answer(vow_batch_call *c, size_t index, vow_next answer)
{
    VOW__ASSERT_THREAD(c->batch->loop);
    if (index >= c->n) {
        next_drop(answer);
        return false;
    }
    vow_deferred *end = c->items[index]->end;
    bool done = vow_settle(end, answer);
    if (done && vow_state_of(vow_deferred_future(end)) != VOW_PENDING)
        c->left--; /* else it may wait for what the call under it does */
    return done;
}

/* What vow_settle() does when it comes too late. */
static void next_drop(vow_next next)
{
    uintptr_t tag = next.out.tag;
    if (tag == VOW_TAG_ERROR)
        vow_error_unref(next.out.as.ptr);
    else if (tag == VOW_TAG_FOLLOW)
        vow_future_unref(next.out.as.ptr);
    else if ((intptr_t)tag >= 0)
        vow_value_drop(next.out);
}
