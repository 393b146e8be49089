/* SPDX-License-Identifier: MIT */
/* loop_internal.h - the fields of a loop, and the functions around a loop. */
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
    struct vow__heap_node node; /* key: due time, in ns of the loop's clock */
    void (*fire)(vow_loop *loop, struct vow__core_timer *t);
    bool armed;
    bool weak; /* does not keep the loop running */
};

void vow__core_timer_start(vow_loop *loop, struct vow__core_timer *t,
                           uint64_t due_ns);
void vow__core_timer_stop(vow_loop *loop, struct vow__core_timer *t);
/* Fires all timers that are due now. */
void vow__core_timers_run(vow_loop *loop);
/* Returns the due time of the first timer in ns; UINT64_MAX if no timer keeps
 * the loop running. */
uint64_t vow__core_timers_next_ns(const vow_loop *loop);
void vow__core_timers_on_uv(uv_timer_t *handle);

/* ---- inbox.c ------------------------------------------------------------- */

/* A message is embedded in an object of the sender; `run` gets the message back
 * on the loop's thread. */
struct vow__core_message {
    struct vow__core_message *next;
    void (*run)(vow_loop *loop, struct vow__core_message *m);
};
struct vow__core_inbox {
    atomic_bool waiting; /* there are messages; read without the lock */
    atomic_uint refs;
    uv_mutex_t mutex;
    bool closed;
    uint32_t count;
    uint32_t max;
    struct vow__core_message *first, **last;
    vow_loop *loop; /* freed together with the inbox */
};

int vow__core_inbox_new(vow_loop *loop, uint32_t max);
/* Any thread. Dropping the last reference frees the loop's memory as well. */
struct vow__core_inbox *vow__core_inbox_ref(struct vow__core_inbox *in);
void vow__core_inbox_unref(struct vow__core_inbox *in);
void vow__core_inbox_lock(struct vow__core_inbox *in);
void vow__core_inbox_unlock(struct vow__core_inbox *in);
/* Adds a message; the caller holds the lock. Returns false if the inbox is
 * closed; a full inbox accepts the message. */
bool vow__core_inbox_push(struct vow__core_inbox *in,
                          struct vow__core_message *m);
bool vow__core_inbox_closed(const struct vow__core_inbox *in);
/* Runs all messages of the inbox. */
void vow__core_inbox_take(vow_loop *loop);
/* Closes the inbox for new messages, then runs the messages in the inbox. */
void vow__core_inbox_close(vow_loop *loop);

/* ---- the loop ------------------------------------------------------------ */

struct vow_loop {
    /* first the fields that each handler uses */
    vow_link *ready; /* nodes to run, first in first out */
    bool armed;      /* the idle handle keeps libuv from waiting */
    bool busy;       /* inside a turn: no run, turn or close */
    bool running;    /* inside vow_loop_run(): no run or close */
    bool reaping;    /* vow__core_futures_reap() runs, or must not run */
    bool canceling;  /* a hook_now hook runs: queue further hooks */
    bool closing;    /* vow_loop_close() has begun */
    bool closed;     /* handles are closed: the last object frees the loop */
    struct vow__core_fiber *current; /* the running fiber */
    struct vow_context *in;          /* the current context, NULL: none */
    struct vow_context *outside;     /* the context before this turn */
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
    vow_future *no_memory; /* rejected with VOW_ENOMEM, counted */
    vow_link *remote_list; /* unsettled remotes, for vow_loop_close() */
    size_t scopes;

    struct vow__heap_node *timers;
    uint64_t timer_seq;
    size_t timers_strong;
    struct vow__core_timer trim; /* weak, once a second while memory is idle */
    uint64_t timer_armed_ns;     /* due time of `timer`; 0: not set */

    uv_loop_t *uv;
    bool owns_uv;
    const vow_future *until; /* the future of vow_loop_run_until() */
    uint32_t keep;           /* reasons to wait for messages */
    uint32_t holds;          /* of these, reasons of vow_loop_hold() */
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

/* Runs ready nodes, at most turn_max. Returns whether nodes are left. */
bool vow__core_loop_drain(vow_loop *loop);
/* Keeps libuv from waiting, because a node is ready. The slow part of
 * vow__core_loop_enqueue(). */
void vow__core_loop_arm(vow_loop *loop);
/* Surround user code that runs inside core: a destructor, a hook. The user code
 * may not turn or close the loop nor await, its cancels take effect at once,
 * and there is no current context. */
struct vow__core_visit {
    bool busy;
    bool canceling;
    struct vow__core_fiber *current;
    struct vow_context *in;
};
struct vow__core_visit vow__core_visit_begin(vow_loop *loop);
void vow__core_visit_end(vow_loop *loop, struct vow__core_visit before);
/* Adds `change` (1 or -1) to the reasons to wait for messages. */
void vow__core_loop_keep(vow_loop *loop, int change);
/* Frees a closed loop if no future and no scope is left. */
void vow__core_loop_maybe_free(vow_loop *loop);
/* Starts the trim timer: slabs or stacks are idle. */
void vow__core_loop_idle_memory(vow_loop *loop);
/* Returns an error of this loop; never NULL, owned. */
vow_error *vow__core_error_new(vow_loop *loop, const char *site, int code,
                               vow_error *cause, const char *text);
/* Returns `e`; or, if `e` is the constant error of VOW_ENOMEM, the constant
 * error of `code`. */
vow_error *vow__core_error_or(vow_error *e, int code);
/* Reports the rejection of a future that was dropped without being handled. */
void vow__core_loop_tell_unhandled(vow_loop *loop, vow_future *f);

/* ---- fiber.c, work.c, remote.c: counting, trimming, closing -------------- */

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

int vow__core_promises_open(vow_loop *loop, bool share_slabs);
/* Rejects every pending promise. Returns false if there was none. */
bool vow__core_promises_reject_all(vow_loop *loop);
/* Reports every rejection that is not handled yet. */
void vow__core_promises_tell_unhandled(vow_loop *loop);
/* Drops the rests of all settled futures. Returns false if there were none. */
bool vow__core_promises_forget_rests(vow_loop *loop);

static inline void vow__core_loop_enqueue(vow_loop *loop, vow_link *link)
{
    vow__list_push(&loop->ready, link);
    if (VOW__UNLIKELY(!loop->armed))
        vow__core_loop_arm(loop);
}

/* Runs all messages of the inbox. Returns whether there were any. */
static inline bool vow__core_inbox_run(vow_loop *loop)
{
    if (VOW__LIKELY(
            !atomic_load_explicit(&loop->inbox->waiting, memory_order_acquire)))
        return false;
    vow__core_inbox_take(loop);
    return true;
}

#endif
