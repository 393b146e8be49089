/* SPDX-License-Identifier: MIT */
/* loop_internal.h - the inside of a loop, for the files of core. */
#ifndef VOW_CORE_LOOP_INTERNAL_H
#define VOW_CORE_LOOP_INTERNAL_H

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/slab.h"
#include "vow/loop.h"
#include "vow/value.h"

#include <stdatomic.h>
#include <uv.h>

struct vow__node;
struct vow__fiber;
struct vow__fibers;
struct vow__work_pool;

/* ---- timer.c ------------------------------------------------------------- */

struct vow__timer {
    struct vow__heap_node node; /* key: due, in ns of the loop's clock */
    void (*fire)(vow_loop *loop, struct vow__timer *t);
    bool armed;
    bool weak; /* does not keep the loop running */
};

void vow__timer_start(vow_loop *loop, struct vow__timer *t, uint64_t due_ns);
void vow__timer_stop(vow_loop *loop, struct vow__timer *t);
/* Fire all that is due now. */
void vow__timers_run(vow_loop *loop);
/* When the next timer that keeps the loop running is due; UINT64_MAX: none. */
uint64_t vow__timers_next_ns(const vow_loop *loop);
void vow__timers_on_uv(uv_timer_t *handle);

/* ---- inbox.c ------------------------------------------------------------- */

/* A message lives in what sends it; `run` gets it back on the loop's thread. */
struct vow__message {
    struct vow__message *next;
    void (*run)(vow_loop *loop, struct vow__message *m);
};
struct vow__inbox {
    atomic_bool waiting; /* messages are there: looked at without the lock */
    atomic_uint refs;
    uv_mutex_t mutex;
    bool closed;
    uint32_t count;
    uint32_t max;
    struct vow__message *first, **last;
    vow_loop *loop; /* its memory goes with the inbox */
};

int vow__inbox_new(vow_loop *loop, uint32_t max);
/* The last reference frees the loop's memory as well: from any thread. */
struct vow__inbox *vow__inbox_ref(struct vow__inbox *in);
void vow__inbox_unref(struct vow__inbox *in);
void vow__inbox_lock(struct vow__inbox *in);
void vow__inbox_unlock(struct vow__inbox *in);
/* With the lock held: false when the loop is closed. Never refuses for room. */
bool vow__inbox_push(struct vow__inbox *in, struct vow__message *m);
bool vow__inbox_closed(const struct vow__inbox *in);
/* Run everything that has arrived. */
void vow__inbox_take(vow_loop *loop);
/* Refuse all that comes from now on, then run the rest. */
void vow__inbox_close(vow_loop *loop);

/* ---- the loop ------------------------------------------------------------ */

struct vow_loop {
    /* what each handler touches comes first */
    vow_link *ready; /* nodes to run, first in first out */
    bool armed;      /* the idle handle keeps libuv turning */
    bool busy;       /* inside a turn: no run, turn or close */
    bool running;    /* inside vow_loop_run(): no run or close */
    bool reaping;    /* vow__future_destroy() is at work */
    bool canceling;  /* a hook of core runs: queue further ones */
    bool closing;    /* vow_loop_close() has begun */
    bool closed;     /* and is done: the last object frees the loop */
    struct vow__fiber *current;  /* the running fiber */
    struct vow_context *in;      /* the current context, NULL: none */
    struct vow_context *outside; /* what it was before this turn */
    vow_link *dead;              /* futures to destroy */
    uint64_t handlers_run;
    uint32_t turn_max;
    struct vow__slab_cache futures;

    struct vow_alloc alloc;
    struct vow__clock clock;
    uint64_t random[2];
    vow_unhandled_fn on_unhandled;
    void *on_unhandled_user;
    uint64_t late_settles;
    uint64_t unhandled;
    vow_future *no_memory; /* rejected; its references are counted */
    vow_link *remote_list; /* unsettled, for vow_loop_close() */
    size_t scopes;

    struct vow__heap_node *timers;
    uint64_t timer_seq;
    size_t timers_strong;
    struct vow__timer trim;  /* weak, once a second while pools are idle */
    uint64_t timer_armed_ns; /* what uv_timer is set to; 0: not set */

    uv_loop_t *uv;
    bool owns_uv;
    const vow_future *until; /* what vow_loop_run_until() waits for */
    uint32_t keep;           /* reasons to wait for messages */
    uint32_t holds;          /* of these, by vow_loop_hold() */
    size_t closing_handles;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_idle_t idle;
    uv_timer_t timer;
    uv_timer_t work_timer;
    uv_async_t wake;
    struct vow__inbox *inbox;

    struct vow__fibers *fibers;  /* made by the first vow_async() */
    struct vow__work_pool *work; /* made by the first vow_work() */
    uint32_t fiber_guards;
    uint32_t work_threads;
    uint32_t work_queue_max;
    _Atomic(uv_thread_t) thread; /* vow_loop_on_thread() */
};

/* Run ready nodes, at most turn_max; true when some are left. */
bool vow__loop_drain(vow_loop *loop);
/* Make libuv turn, because something is ready. The slow part of
 * vow__enqueue. */
void vow__loop_arm(vow_loop *loop);
/* Around user code that runs inside our own: a destructor, a hook. It may not
 * turn or close the loop nor await, what it cancels is canceled at once, and it
 * is in no context. */
struct vow__visit {
    bool busy;
    bool canceling;
    struct vow__fiber *current;
    struct vow_context *in;
};
struct vow__visit vow__visit_begin(vow_loop *loop);
void vow__visit_end(vow_loop *loop, struct vow__visit before);
/* Another, or one less, reason to wait for messages. */
void vow__loop_keep(vow_loop *loop, int change);
/* The loop is closed and an object is gone: free it with the last one. */
void vow__loop_maybe_free(vow_loop *loop);
/* Arm the cleaning timer: pools have something idle. */
void vow__loop_idle_memory(vow_loop *loop);
/* An error of this loop; never NULL, owned. */
vow_error *vow__error(vow_loop *loop, const char *site, int code,
                      vow_error *cause, const char *text);
/* `e`, or if there was no memory for it, the constant error of this code. */
vow_error *vow__error_or(vow_error *e, int code);
/* A rejected future was dropped without being handled. */
void vow__loop_tell_unhandled(vow_loop *loop, vow_future *f);

/* ---- fiber.c, work.c, remote.c: their parts of closing ------------------- */

size_t vow__fibers_count(const vow_loop *loop);
size_t vow__fibers_stacks(const vow_loop *loop);
size_t vow__fibers_guards_missing(const vow_loop *loop);
bool vow__fibers_trim(vow_loop *loop, bool all);
void vow__fibers_close(vow_loop *loop);
void vow__fibers_abandon(vow_loop *loop);
size_t vow__work_count(const vow_loop *loop);
void vow__work_close(vow_loop *loop);
void vow__remotes_close(vow_loop *loop);

/* ---- census.c: all futures of a loop ------------------------------------- */

int vow__promises_open(vow_loop *loop, bool pooled);
/* Reject every promise that is still pending; false when there was none. */
bool vow__promises_reject_all(vow_loop *loop);
void vow__promises_tell_unhandled(vow_loop *loop);
/* No future has rests any more; false when none had. */
bool vow__promises_forget_rests(vow_loop *loop);

static inline void vow__enqueue(vow_loop *loop, vow_link *link)
{
    vow__list_push(&loop->ready, link);
    if (VOW__UNLIKELY(!loop->armed))
        vow__loop_arm(loop);
}

/* Run the messages that are there; true if there were some. */
static inline bool vow__inbox_run(vow_loop *loop)
{
    if (VOW__LIKELY(
            !atomic_load_explicit(&loop->inbox->waiting, memory_order_acquire)))
        return false;
    vow__inbox_take(loop);
    return true;
}

#endif
