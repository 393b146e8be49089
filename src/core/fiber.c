/* SPDX-License-Identifier: MIT */
/* fiber.c - functions with a stack of their own that await futures.
 *
 * WHY   A sequence of asynchronous steps reads best as a sequence of lines.
 * HOW   The control block lies at the top of the fiber's own stack: a fiber is
 *       a stack and a promise. An await puts the fiber's watch behind a future
 *       and switches to the loop's stack. The ready queue runs the watch like
 *       any handler, which switches back to the fiber. Only the ready queue
 *       runs fibers, so fibers never nest: each switch is between the loop's
 *       stack and a fiber.
 * INVARIANTS
 *   F1  loop->current is the running fiber, NULL on the loop's own stack
 *   F2  WAITING: the watch is behind its source; SLEEPING: the timer is armed;
 *       READY: the watch is in the ready queue without a source
 *   F3  exactly one await sees each cancel: the pending await, else the next
 * THREADS  loop thread only.
 */
#include "vow/fiber.h"
#include "base/sm.h"
#include "core/promise_internal.h"
#include "core/stack_internal.h"
#include "core/switch.h"

enum { READY, RUNNING, WAITING, SLEEPING, DONE };
static const uint8_t fiber_moves[] = {
    [READY] = VOW__TO(RUNNING),
    [RUNNING] =
        VOW__TO(READY) | VOW__TO(WAITING) | VOW__TO(SLEEPING) | VOW__TO(DONE),
    [WAITING] = VOW__TO(READY) | VOW__TO(RUNNING),
    [SLEEPING] = VOW__TO(READY),
    [DONE] = 0,
};

enum { STACK_BYTES = 128 * 1024, BLOCK_ALIGN = 64 };

struct vow__core_fiber {
    struct vow__core_watch watch;
    struct vow__core_context context;
    struct vow__core_timer timer; /* of vow_sleep() */
    vow_loop *loop;
    vow_fiber_fn fn;
    void *arg;
    vow_future *out; /* the result; the fiber holds the deferred */
    struct vow__core_stack *stack;
    vow_link in_loop;
    vow_error *why;          /* error of the first cancel, counted */
    vow_future *left_future; /* future of the last canceled await if work runs
                                behind; counted, in end_refs too; or NULL */
    vow_context *in;         /* context of vow_async(), counted */
    uint32_t cancels;        /* cancels not yet seen by an await */
    int wake_code;           /* return value of the pending wait */
    uint8_t state;
};

struct vow__core_fibers {
    struct vow__core_context main; /* loop's own stack, while a fiber runs */
    struct vow__core_stacks stacks;
    vow_link *live;
    size_t count;
};

static int fibers_open(vow_loop *loop);
static struct vow__core_fiber *fiber_new(vow_loop *loop, const char *site,
                                         int class_index);
static void fiber_free(struct vow__core_fiber *b);
static void fiber_main(void *arg);
static void fiber_resume(struct vow__core_watch *w);
static int fiber_suspend(struct vow__core_fiber *b, uint8_t state);
static void fiber_wake(struct vow__core_fiber *b, int code);
static void on_sleep_timer(vow_loop *loop, struct vow__core_timer *t);
static void on_fiber_cancel(vow_error *why, void *user);
static void fiber_leave_future(struct vow__core_fiber *b, vow_future *f);
static struct vow__core_fiber *fiber_check_current(vow_loop *loop,
                                                   int *ret_code);
static int future_outcome_code(vow_future *f);

/* ---- starting ------------------------------------------------------------ */

vow_future *vow_async_at(const char *site, vow_loop *loop, vow_fiber_fn fn,
                         void *arg, const vow_async_opts *opts)
{
    VOW__ASSERT_THREAD(loop);
    size_t size = STACK_BYTES;
    if (opts != NULL && opts->stack_size > 0)
        size = opts->stack_size;
    int class_index = vow__core_stack_class(size);
    if (fn == NULL || class_index < 0 ||
        (opts != NULL && opts->size != sizeof(*opts)))
        return vow_refused_at(site, loop, VOW_EINVAL,
                              "no function, a stack above 1 GiB, or options of "
                              "another version");
    if (loop->closing)
        return vow_refused_at(site, loop, VOW_ECLOSED, NULL);
    struct vow__core_fiber *b = fiber_new(loop, site, class_index);
    if (b == NULL)
        return vow__core_future_no_memory(loop);
    b->fn = fn;
    b->arg = arg;
    vow__core_loop_enqueue(loop, &b->watch.node.link);
    return b->out;
}

static int fibers_open(vow_loop *loop)
{
    if (loop->fibers != NULL)
        return 0;
    struct vow__core_fibers *fs = vow__mem_zero(&loop->alloc, sizeof(*fs));
    if (fs == NULL)
        return VOW_ENOMEM;
    vow__core_context_here(&fs->main);
    vow__core_stacks_init(&fs->stacks, &loop->alloc, loop->fiber_guards, false);
    loop->fibers = fs;
    return 0;
}

static struct vow__core_fiber *fiber_new(vow_loop *loop, const char *site,
                                         int class_index)
{
    if (fibers_open(loop) < 0)
        return NULL;
    struct vow__core_fibers *fs = loop->fibers;
    struct vow__core_stack *stack =
        vow__core_stack_take(&fs->stacks, class_index);
    if (stack == NULL)
        return NULL;
    size_t size = vow__core_stack_size(stack) - sizeof(struct vow__core_fiber);
    size -= size % BLOCK_ALIGN;
    struct vow__core_fiber *b =
        (struct vow__core_fiber *)(void *)(stack->low + size);
    vow_future *out = vow__core_promise_new(loop, site, on_fiber_cancel, b);
    if (out == NULL) {
        vow__core_stack_give(&fs->stacks, stack);
        return NULL;
    }
    out->node.runs = 1;
    b->watch =
        (struct vow__core_watch){.node.kind = VOW__WATCH, .run = fiber_resume};
    b->timer.fire = on_sleep_timer; /* starting the timer writes the node */
    b->timer.armed = false;
    b->timer.weak = false;
    b->loop = loop;
    b->out = out;
    b->stack = stack;
    b->why = NULL;
    b->left_future = NULL;
    b->in = vow_context_ref(loop->in);
    b->cancels = 0;
    b->state = READY;
    vow__core_context_make(&b->context, stack->low, size, fiber_main, b);
    vow__list_push(&fs->live, &b->in_loop);
    fs->count++;
    return b;
}

static void fiber_free(struct vow__core_fiber *b)
{
    vow_loop *loop = b->loop;
    struct vow__core_fibers *fs = loop->fibers;
    struct vow__core_stack *stack = b->stack;
    vow__list_remove(&fs->live, &b->in_loop);
    fs->count--;
    vow_error_unref(b->why);
    vow_context_unref(b->in);
    vow__core_context_end(&b->context);
    vow__core_stack_give(&fs->stacks, stack); /* `b` is in the stack */
    vow__core_loop_idle_memory(loop);
}

/* Runs the function of the fiber: the first frame of the fiber's stack. */
static void fiber_main(void *arg)
{
    struct vow__core_fiber *b = arg;
    vow_loop *loop = b->loop;
    vow_next next = b->fn(b->arg);
    vow_future *out = b->out;
    fiber_leave_future(b, NULL);
    if (vow__core_future_is_pending(out)) {
        vow__core_future_settle_next(loop, out, next, NULL);
    } else {
        loop->late_settles++;
        vow__core_next_drop(next);
    }
    vow_deferred_unref(vow__core_deferred_of(out));
    vow__sm_move(&b->state, DONE, fiber_moves);
    vow__core_switch_last(&b->context, &loop->fibers->main);
}

/* ---- switching ----------------------------------------------------------- */

static void fiber_resume(struct vow__core_watch *w)
{
    struct vow__core_fiber *b = VOW__OUTER(w, struct vow__core_fiber, watch);
    vow_loop *loop = b->loop;
    vow__core_stack_guard(&loop->fibers->stacks, b->stack);
    vow__sm_move(&b->state, RUNNING, fiber_moves);
    loop->current = b;
    loop->in = b->in;
    vow__core_switch(&loop->fibers->main, &b->context);
    loop->in = NULL;
    loop->current = NULL; /* keeps F1 */
    if (b->state == DONE)
        fiber_free(b);
}

static int fiber_suspend(struct vow__core_fiber *b, uint8_t state)
{
    b->wake_code = 0;
    vow__sm_move(&b->state, state, fiber_moves);
    vow__core_switch(&b->context, &b->loop->fibers->main);
    return b->wake_code;
}

static void fiber_wake(struct vow__core_fiber *b, int code)
{
    b->wake_code = code;
    vow__sm_move(&b->state, READY, fiber_moves);
    vow__core_loop_enqueue(b->loop, &b->watch.node.link);
}

static void on_sleep_timer(vow_loop *loop, struct vow__core_timer *t)
{
    (void)loop;
    fiber_wake(VOW__OUTER(t, struct vow__core_fiber, timer), 0);
}

/* ---- waiting ------------------------------------------------------------- */

int vow_await(vow_future *f)
{
    VOW__ASSERT_THREAD(vow__core_future_loop(f));
    vow_loop *loop = vow__core_future_loop(f);
    int rc;
    struct vow__core_fiber *b = fiber_check_current(loop, &rc);
    if (b == NULL || rc < 0)
        return rc;
    if (!vow__core_future_is_pending(f))
        return future_outcome_code(f);
    if (f == b->out)
        return VOW_ECYCLE;
    vow__core_node_wait(loop, &b->watch.node, f);
    rc = fiber_suspend(b, WAITING);
    if (rc < 0)
        return rc; /* canceled: the watch has left the future */
    f = b->watch.node.source;
    b->watch.node.source = NULL;
    rc = future_outcome_code(f);
    vow__core_future_unref(f);
    return rc;
}

int vow_await_drop(vow_future *f)
{
    int rc = vow_await(f);
    vow__core_future_unref(f);
    return rc;
}

int vow_sleep(vow_loop *loop, uint64_t ms)
{
    VOW__ASSERT_THREAD(loop);
    int rc;
    struct vow__core_fiber *b = fiber_check_current(loop, &rc);
    if (b == NULL || rc < 0)
        return rc;
    if (loop->closing)
        return VOW_ECLOSED;
    vow__core_timer_start(loop, &b->timer, vow__clock_due_ns(&loop->clock, ms));
    return fiber_suspend(b, SLEEPING);
}

int vow_yield(vow_loop *loop)
{
    VOW__ASSERT_THREAD(loop);
    int rc;
    struct vow__core_fiber *b = fiber_check_current(loop, &rc);
    if (b == NULL || rc < 0)
        return rc;
    vow__core_loop_enqueue(loop, &b->watch.node.link);
    rc = fiber_suspend(b, READY);
    return rc < 0 || !loop->closing ? rc : VOW_ECLOSED;
}

bool vow_in_fiber(const vow_loop *loop)
{
    VOW__ASSERT_THREAD(loop);
    return loop->current != NULL;
}

bool vow_fiber_canceled(const vow_loop *loop)
{
    VOW__ASSERT_THREAD(loop);
    return vow_fiber_why(loop) != NULL;
}

vow_error *vow_fiber_why(const vow_loop *loop)
{
    VOW__ASSERT_THREAD(loop);
    return loop->current == NULL ? NULL : loop->current->why;
}

/* Returns the fiber that calls, NULL: none. *ret_code is 0 if the fiber may
 * wait; else VOW_ENOFIBER, or VOW_ECANCELED for a cancel not yet seen. */
static struct vow__core_fiber *fiber_check_current(vow_loop *loop,
                                                   int *ret_code)
{
    struct vow__core_fiber *b = loop->current;
    VOW__ASSERT_THREAD(loop);
    *ret_code = b == NULL ? VOW_ENOFIBER : 0;
    if (b != NULL && b->cancels > 0) {
        b->cancels--; /* keeps F3 */
        *ret_code = VOW_ECANCELED;
    }
    return b;
}

static int future_outcome_code(vow_future *f)
{
    return vow_error_code(vow_error_of(f));
}

/* ---- canceling and closing ----------------------------------------------- */

static void on_fiber_cancel(vow_error *why, void *user)
{
    struct vow__core_fiber *b = user;
    vow_loop *loop = b->loop;
    int code = vow_error_code(why);
    if (b->why == NULL)
        b->why = vow_error_ref(why);
    if (b->state == WAITING) {
        fiber_leave_future(b, vow__core_node_unwait(loop, &b->watch.node));
        fiber_wake(b, code);
    } else if (b->state == SLEEPING) {
        vow__core_timer_stop(loop, &b->timer);
        fiber_wake(b, code);
    } else {
        b->cancels++; /* keeps F3 */
    }
}

/* Stores `f`, the future of a canceled await, as left_future if work runs
 * behind `f`; NULL: the fiber ends. The former left_future becomes a rest of
 * the fiber's result if pending without another reader, or settled with
 * rests. */
static void fiber_leave_future(struct vow__core_fiber *b, vow_future *f)
{
    vow_future *left = b->left_future;
    b->left_future = NULL;
    if (f != NULL && vow__core_future_runs_work(f)) {
        b->left_future = f;
        vow__core_future_count_end_ref(f, 1);
    } else if (f != NULL) {
        vow__core_future_unref(f);
    }
    if (left == NULL)
        return;
    vow__core_future_count_end_ref(left, -1);
    if (vow__core_future_is_pending(b->out) &&
        (vow__core_future_is_pending(left) ? vow__core_future_readers(left) == 1
                                           : left->node.rest))
        vow__core_rest_add(b->out, left);
    else
        vow__core_future_unref(left);
}

/* Frees the stacks of fibers that did not end while the loop closed. Resources
 * held by their functions leak. */
void vow__core_fibers_abandon(vow_loop *loop)
{
    while (loop->fibers != NULL && loop->fibers->live != NULL) {
        struct vow__core_fiber *b =
            VOW__OUTER(loop->fibers->live, struct vow__core_fiber, in_loop);
        vow_future *out = b->out;
        fiber_leave_future(b, NULL);
        if (b->state == WAITING)
            vow__core_future_unref(vow__core_node_unwait(loop, &b->watch.node));
        else if (b->state == SLEEPING)
            vow__core_timer_stop(loop, &b->timer);
        else
            vow__list_remove(&loop->ready, &b->watch.node.link);
        if (vow__core_future_is_pending(out))
            vow__core_future_reject_code(loop, out, VOW_ECLOSED, NULL);
        vow_deferred_unref(vow__core_deferred_of(out));
        fiber_free(b);
    }
}

void vow__core_fibers_close(vow_loop *loop)
{
    if (loop->fibers == NULL)
        return;
    vow__core_stacks_fini(&loop->fibers->stacks);
    vow__mem_free(&loop->alloc, loop->fibers, sizeof(*loop->fibers));
    loop->fibers = NULL;
}

bool vow__core_fibers_trim(vow_loop *loop, bool all)
{
    return loop->fibers != NULL &&
           vow__core_stacks_trim(&loop->fibers->stacks, all);
}

size_t vow__core_fibers_count(const vow_loop *loop)
{
    return loop->fibers == NULL ? 0 : loop->fibers->count;
}

size_t vow__core_fibers_stacks(const vow_loop *loop)
{
    return loop->fibers == NULL ? 0 : loop->fibers->stacks.mapped;
}

size_t vow__core_fibers_guards_missing(const vow_loop *loop)
{
    return loop->fibers == NULL ? 0 : loop->fibers->stacks.missing;
}
