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

struct vow__core_node;
struct vow__core_fiber;
struct vow__core_fibers;
struct vow__core_work_pool;

/* ---- timer.c ------------------------------------------------------------- */

struct vow__core_timer {
    struct vow__heap_node node; /* key: due, in ns of the loop's clock */
    void (*fire)(vow_loop *loop, struct vow__core_timer *t);
    bool armed;
    bool weak; /* does not keep the loop running */
};

void vow__core_timer_start(vow_loop *loop, struct vow__core_timer *t,
                           uint64_t due_ns);
void vow__core_timer_stop(vow_loop *loop, struct vow__core_timer *t);
/* Fire all that is due now. */
void vow__core_timers_run(vow_loop *loop);
/* When the next timer that keeps the loop running is due; UINT64_MAX: none. */
uint64_t vow__core_timers_next_ns(const vow_loop *loop);
void vow__core_timers_on_uv(uv_timer_t *handle);

/* ---- inbox.c ------------------------------------------------------------- */

/* A message lives in what sends it; `run` gets it back on the loop's thread. */
struct vow__core_message {
    struct vow__core_message *next;
    void (*run)(vow_loop *loop, struct vow__core_message *m);
};
struct vow__core_inbox {
    atomic_bool waiting; /* messages are there: looked at without the lock */
    atomic_uint refs;
    uv_mutex_t mutex;
    bool closed;
    uint32_t count;
    uint32_t max;
    struct vow__core_message *first, **last;
    vow_loop *loop; /* its memory goes with the inbox */
};

int vow__core_inbox_new(vow_loop *loop, uint32_t max);
/* The last reference frees the loop's memory as well: from any thread. */
struct vow__core_inbox *vow__core_inbox_ref(struct vow__core_inbox *in);
void vow__core_inbox_unref(struct vow__core_inbox *in);
void vow__core_inbox_lock(struct vow__core_inbox *in);
void vow__core_inbox_unlock(struct vow__core_inbox *in);
/* With the lock held: false when the loop is closed. Never refuses for room. */
bool vow__core_inbox_push(struct vow__core_inbox *in,
                          struct vow__core_message *m);
bool vow__core_inbox_closed(const struct vow__core_inbox *in);
/* Run everything that has arrived. */
void vow__core_inbox_take(vow_loop *loop);
/* Refuse all that comes from now on, then run the rest. */
void vow__core_inbox_close(vow_loop *loop);

/* ---- the loop ------------------------------------------------------------ */

struct vow_loop {
    /* what each handler touches comes first */
    vow_link *ready; /* nodes to run, first in first out */
    bool armed;      /* the idle handle keeps libuv turning */
    bool busy;       /* inside a turn: no run, turn or close */
    bool running;    /* inside vow_loop_run(): no run or close */
    bool reaping;    /* vow__core_future_destroy() is at work */
    bool canceling;  /* a hook of core runs: queue further ones */
    bool closing;    /* vow_loop_close() has begun */
    bool closed;     /* and is done: the last object frees the loop */
    struct vow__core_fiber *current; /* the running fiber */
    struct vow_context *in;          /* the current context, NULL: none */
    struct vow_context *outside;     /* what it was before this turn */
    vow_link *dead;                  /* futures to destroy */
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
    struct vow__core_timer trim; /* weak, once a second while pools are idle */
    uint64_t timer_armed_ns;     /* what uv_timer is set to; 0: not set */

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
    struct vow__core_inbox *inbox;

    struct vow__core_fibers *fibers;  /* made by the first vow_async() */
    struct vow__core_work_pool *work; /* made by the first vow_work() */
    uint32_t fiber_guards;
    uint32_t work_threads;
    uint32_t work_queue_max;
    _Atomic(uv_thread_t) thread; /* vow_loop_on_thread() */
};

/* Run ready nodes, at most turn_max; true when some are left. */
bool vow__core_loop_drain(vow_loop *loop);
/* Make libuv turn, because something is ready. The slow part of
 * vow__core_loop_enqueue. */
void vow__core_loop_arm(vow_loop *loop);
/* Around user code that runs inside our own: a destructor, a hook. It may not
 * turn or close the loop nor await, what it cancels is canceled at once, and it
 * is in no context. */
struct vow__core_visit {
    bool busy;
    bool canceling;
    struct vow__core_fiber *current;
    struct vow_context *in;
};
struct vow__core_visit vow__core_visit_begin(vow_loop *loop);
void vow__core_visit_end(vow_loop *loop, struct vow__core_visit before);
/* Another, or one less, reason to wait for messages. */
void vow__core_loop_keep(vow_loop *loop, int change);
/* The loop is closed and an object is gone: free it with the last one. */
void vow__core_loop_maybe_free(vow_loop *loop);
/* Arm the cleaning timer: pools have something idle. */
void vow__core_loop_idle_memory(vow_loop *loop);
/* An error of this loop; never NULL, owned. */
vow_error *vow__core_error_new(vow_loop *loop, const char *site, int code,
                               vow_error *cause, const char *text);
/* `e`, or if there was no memory for it, the constant error of this code. */
vow_error *vow__core_error_or(vow_error *e, int code);
/* A rejected future was dropped without being handled. */
void vow__core_loop_tell_unhandled(vow_loop *loop, vow_future *f);

/* ---- fiber.c, work.c, remote.c: their parts of closing ------------------- */

size_t vow__core_fibers_count(const vow_loop *loop);
size_t vow__core_fibers_stacks(const vow_loop *loop);
size_t vow__core_fibers_guards_missing(const vow_loop *loop);
bool vow__core_fibers_trim(vow_loop *loop, bool all);
void vow__core_fibers_close(vow_loop *loop);
void vow__core_fibers_abandon(vow_loop *loop);
size_t vow__core_work_count(const vow_loop *loop);
void vow__core_work_close(vow_loop *loop);
void vow__core_remotes_close(vow_loop *loop);

/* ---- census.c: all futures of a loop ------------------------------------- */

int vow__core_promises_open(vow_loop *loop, bool pooled);
/* Reject every promise that is still pending; false when there was none. */
bool vow__core_promises_reject_all(vow_loop *loop);
void vow__core_promises_tell_unhandled(vow_loop *loop);
/* No future has rests any more; false when none had. */
bool vow__core_promises_forget_rests(vow_loop *loop);

static inline void vow__core_loop_enqueue(vow_loop *loop, vow_link *link)
{
    vow__list_push(&loop->ready, link);
    if (VOW__UNLIKELY(!loop->armed))
        vow__core_loop_arm(loop);
}

/* Run the messages that are there; true if there were some. */
static inline bool vow__core_inbox_run(vow_loop *loop)
{
    if (VOW__LIKELY(
            !atomic_load_explicit(&loop->inbox->waiting, memory_order_acquire)))
        return false;
    vow__core_inbox_take(loop);
    return true;
}

#endif
