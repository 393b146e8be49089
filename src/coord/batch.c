/* SPDX-License-Identifier: MIT */
/* batch.c - single requests gathered into calls, with an answer per request.
 *
 * WHY   A hundred requests in one round trip cost little more than one request;
 *       the requesters need not know each other.
 * HOW   Items wait in a list. The pump is a call on the loop that hands the
 *       first items to the user's function; the pump is set for the time when
 *       the first item is due, or comes soon if a call can be made now. A turn
 *       has ended when a round of the queue brought no more items. A call
 *       watches the future from the user's function; a watch needs no memory,
 *       so the end of a call is never missed. Finished items go to the list
 *       `to_free`, and the loop's queue drops their values: no destructor runs
 *       inside vow_cancel(), and no destructor changes a list during a walk.
 *
 *       add --> waiting --> in a call --> to_free --> freed
 *                   \-- canceled, closed --^
 *
 * INVARIANTS
 *   B1  the pump is pending if items wait, a call is free and the loop is open;
 *       and only while items wait
 *   B2  every item counts a reference of the batch, every call another
 *   B3  an item of a call is freed after the end of the call: the value is lent
 *       to the function
 * LIMITS  add, cancel and answer O(1); a call O(items of the call); two blocks
 *       per item, including the promise.
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
    FREE_MAX = 256 /* items freed before other work of the queue */
};

struct item {
    vow_link link;        /* in queue or in to_free */
    vow_batch *batch;     /* counted */
    vow_batch_call *call; /* NULL: still waiting */
    vow_deferred *end;    /* promise of the requester's future */
    vow_value value;
    size_t bytes;
    uint64_t due_ns; /* end of wait_ms; 0: no wait_ms */
    uint64_t number; /* in order of arrival */
    bool skipped;    /* canceled and out of the queue; the hook follows */
};

struct vow_batch_call {
    vow_batch *batch; /* counted */
    vow_future *work; /* from the function; NULL: not returned yet */
    vow_watch watch;  /* of `work`: settled, then ended */
    vow_call stop;    /* cancels `work` from the queue */
    vow_error *why;   /* reason for `stop`, counted */
    size_t left;      /* items neither canceled nor settled */
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
    vow_link *queue; /* waiting items, the oldest first */
    size_t waiting;
    size_t bytes;         /* sum of waiting items; may wrap around */
    uint32_t bytes_wraps; /* how often `bytes` has wrapped */
    uint64_t next_number; /* number of the next item */
    uint64_t flushed;     /* items below this number wait no longer */
    vow_call pump;
    uint64_t pump_ns; /* time of the pump; 0: soon */
    size_t seen;      /* waiting items at the last pump */
    size_t running;   /* calls */
    uint64_t made;
    uint64_t taken;    /* items handed to calls */
    vow_link *to_free; /* items to free */
    vow_call free_call;
};

static void item_refuse(struct item *i, int code, const char *text);
static void on_item_cancel(vow_error *why, void *user);
static void item_leave_queue(struct item *i);
static void item_free_later(struct item *i);
static void items_free_some(void *user);
static void batch_schedule(vow_batch *b);
static bool batch_cannot_call(const vow_batch *b);
static bool batch_is_full(const vow_batch *b);
static bool batch_is_flushed(const vow_batch *b);
static bool batch_is_overdue(const vow_batch *b);
static void batch_pump(void *user);
static bool batch_turn_goes_on(vow_batch *b);
static size_t batch_next_size(vow_batch *b);
static void batch_make_call(vow_batch *b, size_t n);
static vow_future *batch_check_work(vow_batch_call *c, vow_future *work);
static size_t batch_call_bytes(size_t n);
static void batch_call_stop(void *user);
static void on_batch_call_settled(vow_future *work, void *user);
static void on_batch_call_ended(vow_future *work, void *user);
static void batch_answer_drop(vow_next next);

static inline struct item *batch_first(const vow_batch *b)
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
    VOW__ASSERT(b->to_free == NULL);
    struct vow_alloc alloc = b->alloc;
    vow_future *anchor = b->anchor;
    vow__mem_free(&alloc, b, sizeof(*b));
    vow_future_unref(anchor);
    return NULL;
}

void vow_batch_flush(vow_batch *b)
{
    VOW__ASSERT_THREAD(b->loop);
    b->flushed = b->next_number;
    batch_schedule(b);
}

void vow_batch_close(vow_batch *b)
{
    VOW__ASSERT_THREAD(b->loop);
    b->closed = true;
    while (b->queue != NULL)
        item_refuse(batch_first(b), VOW_ECLOSED, "the batch is closed");
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
        vow_value_drop(item); /* may free the batch */
        return refused;
    }
    vow_future *f = vow_promise_at(site, b->loop, &i->end);
    if (!vow_deferred_pending(i->end)) {
        vow_deferred_unref(i->end);
        vow__mem_free(&b->alloc, i, sizeof(*i));
        vow_value_drop(item);
        return f;
    }
    vow_on_cancel_now(i->end, on_item_cancel, i);
    i->batch = vow_batch_ref(b);
    i->value = item;
    i->bytes = bytes;
    i->number = b->next_number++;
    if (b->opts.wait_ms > 0)
        i->due_ns = vow_loop_due_ns(b->loop, b->opts.wait_ms);
    vow__list_push(&b->queue, &i->link);
    b->waiting++;
    b->bytes += bytes;
    b->bytes_wraps += b->bytes < bytes;
    batch_schedule(b);
    return f;
}

/* Rejects a waiting item. */
static void item_refuse(struct item *i, int code, const char *text)
{
    item_leave_queue(i);
    (void)vow_reject_code(i->end, code, text);
    item_free_later(i);
}

/* Runs inside vow_cancel(), so calls no user code. */
static void on_item_cancel(vow_error *why, void *user)
{
    struct item *i = user;
    vow_batch_call *c = i->call;
    if (c != NULL && c->work != NULL)
        vow_ends_with(i->end, c->work);
    (void)vow_reject(i->end, vow_error_ref(why));
    if (c == NULL) {
        if (!i->skipped)
            item_leave_queue(i);
        item_free_later(i);
        return;
    }
    if (--c->left > 0)
        return; /* keeps B3 */
    c->why = vow_error_ref(why);
    vow_call_soon(&c->stop, c->batch->loop, batch_call_stop, c);
}

static void item_leave_queue(struct item *i)
{
    vow_batch *b = i->batch;
    vow__list_remove(&b->queue, &i->link);
    b->waiting--;
    b->bytes_wraps -= b->bytes < i->bytes;
    b->bytes -= i->bytes;
    if (b->queue != NULL)
        return;
    b->seen = 0;
    (void)vow_call_stop(&b->pump); /* keeps B1 */
}

static void item_free_later(struct item *i)
{
    vow_batch *b = i->batch;
    if (b->to_free == NULL)
        vow_call_soon(&b->free_call, b->loop, items_free_some, b);
    vow__list_push(&b->to_free, &i->link);
}

static void items_free_some(void *user)
{
    vow_batch *b = vow_batch_ref(user);
    for (int n = 0; n < FREE_MAX && b->to_free != NULL; n++) {
        vow_link *l = vow__list_take(&b->to_free);
        struct item *i = VOW__OUTER(l, struct item, link);
        vow_value_drop(i->value);
        vow_deferred_unref(i->end);
        vow__mem_free(&b->alloc, i, sizeof(*i));
        vow_batch_unref(b); /* keeps B2 */
    }
    if (b->to_free != NULL)
        vow_call_soon(&b->free_call, b->loop, items_free_some, b);
    else /* a destructor may have set the call; nothing is left */
        (void)vow_call_stop(&b->free_call);
    vow_batch_unref(b);
}

/* ---- schedule ------------------------------------------------------------ */

/* Sets the pump for the next call (keeps B1). */
static void batch_schedule(vow_batch *b)
{
    if (batch_cannot_call(b)) {
        (void)vow_call_stop(&b->pump);
        return;
    }
    bool now = batch_is_full(b) || batch_is_flushed(b) || batch_is_overdue(b);
    uint64_t due_ns = now ? 0 : batch_first(b)->due_ns;
    if (vow_call_pending(&b->pump) && b->pump_ns == due_ns)
        return;
    b->pump_ns = due_ns;
    if (now)
        vow_call_soon(&b->pump, b->loop, batch_pump, b);
    else
        vow_call_at(&b->pump, b->loop, due_ns, batch_pump, b);
}

/* Returns whether no call can be made, whatever the time. A closing loop
 * rejects all items. */
static bool batch_cannot_call(const vow_batch *b)
{
    return b->queue == NULL || b->running >= b->opts.concurrent ||
           vow_loop_closing(b->loop);
}

static bool batch_is_full(const vow_batch *b)
{
    return b->waiting >= b->opts.most ||
           (b->opts.bytes > 0 &&
            (b->bytes_wraps > 0 || b->bytes >= b->opts.bytes));
}

static bool batch_is_flushed(const vow_batch *b)
{
    return batch_first(b)->number < b->flushed;
}

static bool batch_is_overdue(const vow_batch *b)
{
    return batch_first(b)->due_ns == 0 ||
           batch_first(b)->due_ns <= vow_loop_now_ns(b->loop);
}

/* Makes at most one call; other work of the loop's queue comes before the
 * next. */
static void batch_pump(void *user)
{
    vow_batch *b = vow_batch_ref(user);
    size_t n = batch_turn_goes_on(b) ? 0 : batch_next_size(b);
    if (n > 0)
        batch_make_call(b, n);
    batch_schedule(b);
    vow_batch_unref(b);
}

/* Returns whether to wait for another round of the queue: without wait_ms, if
 * the last round brought more items. Ends after at most `most` rounds. */
static bool batch_turn_goes_on(vow_batch *b)
{
    bool more = b->opts.wait_ms == 0 && b->waiting > b->seen;
    b->seen = b->waiting;
    return more && !batch_is_full(b) && !batch_is_flushed(b);
}

/* Returns the number of items for a call now. A flush alone takes the items up
 * to the flush; otherwise all fitting items are taken. Canceled items are
 * skipped. */
static size_t batch_next_size(vow_batch *b)
{
    size_t n = 0, there = 0, bytes = 0, limit = b->opts.bytes;
    vow_link *next = b->queue;
    while (next != NULL && n < b->opts.most) {
        struct item *i = VOW__OUTER(next, struct item, link);
        next = next->next;
        if (vow_deferred_canceled(i->end)) {
            item_leave_queue(i);
            i->skipped = true;
            continue;
        }
        if (n > 0 && limit > 0 && (bytes > limit || i->bytes > limit - bytes))
            break;
        bytes += limit > 0 ? i->bytes : 0;
        n++;
        there += i->number < b->flushed;
    }
    if (batch_cannot_call(b))
        return 0;
    return batch_is_full(b) || batch_is_overdue(b) ? n : there;
}

/* ---- calls --------------------------------------------------------------- */

/* Hands the first `n` items to the function. */
static void batch_make_call(vow_batch *b, size_t n)
{
    vow_batch_call *c = vow__mem_zero(&b->alloc, batch_call_bytes(n));
    for (size_t k = 0; k < n && c == NULL; k++)
        item_refuse(batch_first(b), VOW_ENOMEM, NULL);
    if (c == NULL)
        return;
    c->batch = vow_batch_ref(b); /* keeps B2 */
    c->left = n;
    c->n = n;
    for (size_t k = 0; k < n; k++) {
        c->items[k] = batch_first(b);
        c->items[k]->call = c;
        item_leave_queue(c->items[k]);
    }
    b->seen = 0;
    b->running++;
    b->made++;
    b->taken += n;
    c->work = batch_check_work(c, b->fn(b->loop, c, b->user));
    for (size_t k = 0; c->left < n && k < n; k++) /* canceled by the function */
        if (vow_deferred_canceled(c->items[k]->end))
            vow_ends_with(c->items[k]->end, c->work);
    vow_watch_settled(&c->watch, c->work, on_batch_call_settled, c);
}

/* Checks the future from the function. The error has the call site of the first
 * item. */
static vow_future *batch_check_work(vow_batch_call *c, vow_future *work)
{
    if (work != NULL && vow_future_loop(work) == c->batch->loop)
        return work;
    vow_future_unref(work);
    return vow_refused_at(
        vow_future_site(vow_deferred_future(c->items[0]->end)), c->batch->loop,
        VOW_EINVAL,
        "the function of the batch returned no future of this loop");
}

static size_t batch_call_bytes(size_t n)
{
    return sizeof(vow_batch_call) + n * sizeof(struct item *);
}

static void batch_call_stop(void *user)
{
    vow_batch_call *c = user;
    (void)vow_cancel(c->work, c->why);
}

/* Answers the items; the work may still run. */
static void on_batch_call_settled(vow_future *work, void *user)
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
        on_batch_call_ended(work, c);
    else
        vow_watch_start(&c->watch, work, on_batch_call_ended, c);
}

static void on_batch_call_ended(vow_future *work, void *user)
{
    vow_batch_call *c = user;
    vow_batch *b = c->batch;
    for (size_t k = 0; k < c->n; k++)
        item_free_later(c->items[k]);
    b->running--;
    batch_schedule(b);
    (void)vow_call_stop(&c->stop);
    vow_error_unref(c->why);
    vow__mem_free(&b->alloc, c, batch_call_bytes(c->n));
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
        batch_answer_drop(answer);
        return false;
    }
    vow_deferred *end = c->items[index]->end;
    bool done = vow_settle(end, answer);
    if (done && vow_state_of(vow_deferred_future(end)) != VOW_PENDING)
        c->left--; /* else the answer may depend on the call */
    return done;
}

/* Drops an unused answer, as vow_settle() does when too late. */
static void batch_answer_drop(vow_next next)
{
    uintptr_t tag = next.out.tag;
    if (tag == VOW_TAG_ERROR)
        vow_error_unref(next.out.as.ptr);
    else if (tag == VOW_TAG_FOLLOW)
        vow_future_unref(next.out.as.ptr);
    else if ((intptr_t)tag >= 0)
        vow_value_drop(next.out);
}
