/* SPDX-License-Identifier: MIT */
/* parallel.c - limited parallel execution for code with callbacks.
 *
 * WHY   Much C code reports the end of work by a callback and knows no
 *       promises. A million tasks that report inside their start must not
 *       nest, and `done` is called once, whatever the tasks do.
 * HOW   A block per call has a copy of the tasks, their slots and results. The
 *       pump runs from the queue and begins tasks in a loop while there is
 *       room; a report only counts, and schedules the pump. After BUDGET tasks
 *       the loop polls before the pump goes on.
 *
 *       The outcome is a promise of the block: the first failure, the last
 *       result or the closing loop settles the promise; later reports are
 *       dropped. A watch of the promise calls `done`.
 * INVARIANTS
 *   L1  the block lives until `done` was called and every begun task has
 *       reported; a task without a report keeps the block and a slot
 *   L2  `outcome` keeps the loop's memory, which tasks may use until then
 * LIMITS  48 bytes per task, in a single block.
 * THREADS  loop thread only.
 */
#include "vow/parallel.h"
#include "base/alloc.h"
#include "base/assert.h"
#include "vow/call.h"
#include "vow/context.h"
#include "vow/watch.h"

enum { BUDGET = 1000 };

struct vow_slot {
    struct parallel *owner;
    vow_task task;
    bool running; /* begun and not reported */
};

struct parallel {
    vow_loop *loop;
    struct vow_alloc alloc;
    vow_parallel_fn done;
    void *user;
    vow_context *context; /* of the caller, counted; may be NULL */
    size_t n;
    size_t begun;
    size_t running;
    uint32_t concurrency;
    uint32_t budget; /* tasks before the loop polls again */
    bool over;       /* `done` was called */
    vow_call call;   /* of parallel_pump() */
    vow_future *outcome;
    vow_deferred *end;  /* of outcome */
    vow_watch watch;    /* of outcome */
    vow_value *results; /* by task; nothing before the report */
    struct vow_slot slots[];
};

static struct parallel *parallel_new(vow_loop *loop, const vow_task *tasks,
                                     size_t n);
static void parallel_pump(void *user);
static bool parallel_may_begin(const struct parallel *p);
static bool slot_count_report(vow_slot *slot);
static void parallel_advance(struct parallel *p);
static void on_parallel_outcome(vow_future *outcome, void *user);
static void parallel_free_if_done(struct parallel *p);
static void parallel_free(struct parallel *p);
static size_t parallel_block_size(size_t n);

int vow_parallel(vow_loop *loop, const vow_task *tasks, size_t n,
                 uint32_t concurrency, vow_parallel_fn done, void *user)
{
    VOW__ASSERT_THREAD(loop);
    if (concurrency == 0 || done == NULL || (tasks == NULL && n > 0))
        return VOW_EINVAL;
    if (n > (SIZE_MAX - sizeof(struct parallel)) /
                (sizeof(struct vow_slot) + sizeof(vow_value)))
        return VOW_ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (tasks[i].run == NULL)
            return VOW_EINVAL;
    if (vow_loop_closing(loop))
        return VOW_ECLOSED;
    struct parallel *p = parallel_new(loop, tasks, n);
    if (p == NULL)
        return VOW_ENOMEM;
    p->concurrency = concurrency;
    p->done = done;
    p->user = user;
    p->context = vow_context_ref(vow_context_current(loop));
    p->outcome = vow_promise(loop, &p->end);
    if (!vow_deferred_pending(p->end)) {
        parallel_free(p);
        return VOW_ENOMEM;
    }
    vow_watch_start(&p->watch, p->outcome, on_parallel_outcome, p);
    parallel_advance(p);
    return 0;
}

static struct parallel *parallel_new(vow_loop *loop, const vow_task *tasks,
                                     size_t n)
{
    struct parallel *p =
        vow__mem_zero(vow_loop_alloc(loop), parallel_block_size(n));
    if (p == NULL)
        return NULL;
    p->loop = loop;
    p->alloc = *vow_loop_alloc(loop);
    p->n = n;
    p->budget = BUDGET;
    p->results = (vow_value *)(void *)(p->slots + n);
    for (size_t i = 0; i < n; i++) {
        p->slots[i].owner = p;
        p->slots[i].task = tasks[i];
    }
    return p;
}

/* ---- tasks --------------------------------------------------------------- */

/* Begins tasks. The block stays alive: a report inside run() settles `outcome`,
 * but does not free. With the budget used up, the call is pending until the
 * loop has polled. */
static void parallel_pump(void *user)
{
    struct parallel *p = user;
    bool open = !vow_loop_closing(p->loop);
    if (p->budget == 0)
        p->budget = BUDGET;
    vow_context *before = vow_context_enter(p->loop, p->context);
    for (; open && p->budget > 0 && parallel_may_begin(p); p->budget--) {
        vow_slot *slot = &p->slots[p->begun++];
        slot->running = true;
        p->running++;
        slot->task.run(slot, slot->task.arg);
    }
    vow_context_leave(p->loop, before);
    if (open && p->budget == 0)
        vow_call_at(&p->call, p->loop, vow_loop_now_ns(p->loop), parallel_pump,
                    p);
}

static bool parallel_may_begin(const struct parallel *p)
{
    return p->begun < p->n && p->running < p->concurrency &&
           vow_deferred_pending(p->end);
}

/* Drops the value last: parallel_advance() may free the block, and a destructor
 * may call anything. */
void vow_slot_ok(vow_slot *slot, vow_value value)
{
    VOW__ASSERT_THREAD(slot->owner->loop);
    struct parallel *p = slot->owner;
    bool first = slot_count_report(slot);
    bool wanted = first && vow_deferred_pending(p->end);
    if (wanted)
        p->results[slot - p->slots] = value;
    parallel_advance(p);
    if (!wanted)
        vow_value_drop(value);
}

void vow_slot_fail(vow_slot *slot, vow_error *error)
{
    VOW__ASSERT_THREAD(slot->owner->loop);
    struct parallel *p = slot->owner;
    bool first = slot_count_report(slot);
    if (first && vow_deferred_pending(p->end))
        (void)vow_reject(p->end, error);
    else
        vow_error_unref(error);
    parallel_advance(p);
}

vow_loop *vow_slot_loop(vow_slot *slot)
{
    VOW__ASSERT_THREAD(slot->owner->loop);
    return slot->owner->loop;
}

bool vow_slot_wanted(vow_slot *slot)
{
    VOW__ASSERT_THREAD(slot->owner->loop);
    return vow_deferred_pending(slot->owner->end);
}

/* Counts the report. False: the task has reported before. */
static bool slot_count_report(vow_slot *slot)
{
    bool first = slot->running;
    slot->running = false;
    slot->owner->running -= first;
    return first;
}

/* Does the next step for the block: frees, settles, or schedules the pump. */
static void parallel_advance(struct parallel *p)
{
    if (p->over)
        parallel_free_if_done(p);
    else if (p->begun == p->n && p->running == 0 &&
             vow_deferred_pending(p->end))
        (void)vow_resolve(p->end, vow_nothing());
    else if (parallel_may_begin(p) && !vow_call_pending(&p->call))
        vow_call_soon(&p->call, p->loop, parallel_pump, p);
}

/* ---- end ----------------------------------------------------------------- */

/* Calls `done`. Tasks may report from `done` or from a destructor; nothing is
 * freed before `over` is set. */
static void on_parallel_outcome(vow_future *outcome, void *user)
{
    struct parallel *p = user;
    vow_error *e = vow_error_of(outcome);
    (void)vow_call_stop(&p->call);
    vow_context *before = vow_context_enter(p->loop, p->context);
    if (e == NULL)
        p->done(NULL, p->results, p->n, p->user);
    else
        p->done(e, NULL, 0, p->user);
    for (size_t i = 0; i < p->begun; i++)
        vow_value_drop(p->results[i]);
    vow_context_leave(p->loop, before);
    p->over = true;
    parallel_free_if_done(p);
}

static void parallel_free_if_done(struct parallel *p)
{
    if (p->running == 0) /* keeps L1 */
        parallel_free(p);
}

static void parallel_free(struct parallel *p)
{
    struct vow_alloc alloc = p->alloc;
    vow_deferred_unref(p->end);
    vow_context_unref(p->context);
    vow_future_unref(p->outcome); /* keeps L2 until here */
    vow__mem_free(&alloc, p, parallel_block_size(p->n));
}

static size_t parallel_block_size(size_t n)
{
    return sizeof(struct parallel) +
           n * (sizeof(struct vow_slot) + sizeof(vow_value));
}
