/* SPDX-License-Identifier: MIT */
/* vow/loop.h - the loop that runs handlers, timers and messages.
 *
 * A vow_loop runs on a libuv loop: a private libuv loop, or a libuv loop of
 * yours (vow/uv.h). A vow_loop keeps the libuv loop running only while there is
 * something to run: a ready handler, a timer, a job on the thread pool, a live
 * vow_remote, a hold.
 *
 * Owner: the caller of vow_loop_new() calls vow_loop_close() once. Futures,
 * errors and other handles may be dropped after the close.
 * Threads: a loop belongs to one thread at a time: to the thread that made the
 * loop, and then to the thread that last ran, turned, closed or adopted it.
 * Debug builds stop any other thread that calls a VOW_LOOP_THREAD function.
 * Other threads use vow_loop_post().
 */
#ifndef VOW_LOOP_H
#define VOW_LOOP_H

#include "vow/alloc.h"
#include "vow/error.h"

VOW_BEGIN_DECLS

/* Reports a rejection without a handler. `site` is where the promise was made.
 * `error` and `site` are borrowed. Called on the loop's thread when the last
 * reference is dropped or the loop closes, once per error; not for
 * VOW_ECANCELED and VOW_ECLOSED. */
typedef void (*vow_unhandled_fn)(vow_error *error, const char *site,
                                 void *user);
typedef void (*vow_post_fn)(void *arg);

enum {
    VOW_LOOP_VIRTUAL_TIME = 1, /* time moves by vow_loop_advance() */
    VOW_LOOP_UNPOOLED = 2      /* a block per object, for tests */
};

typedef struct vow_loop_opts {
    size_t size;                   /* set by VOW_LOOP_OPTS */
    uint32_t flags;                /* VOW_LOOP_... */
    struct vow_alloc alloc;        /* zeroed: malloc */
    vow_unhandled_fn on_unhandled; /* NULL: rejections are only counted */
    void *on_unhandled_user;
    uint32_t turn_max;       /* handlers run between two polls; 0: 10000 */
    uint32_t inbox_max;      /* posts not yet run; 0: 1048576 */
    uint32_t work_threads;   /* thread pool, at most 1024; 0: one per core */
    uint32_t work_queue_max; /* jobs waiting for a thread; 0: 1048576 */
    uint32_t fiber_guards;   /* guard pages kept by mprotect; 0: 8192 */
    uint64_t seed;           /* of vow_loop_random(); 0: from the system */
} vow_loop_opts;
#define VOW_LOOP_OPTS(...)                                                     \
    (&(const vow_loop_opts){.size = sizeof(vow_loop_opts), __VA_ARGS__})

/* Makes a loop with a private libuv loop. Returns 0, VOW_EINVAL (unknown flags,
 * options of another version), VOW_ENOMEM, or a code of libuv; *ret_loop is
 * written only on success. Since 0.1. */
VOW_API VOW_MUST_USE VOW_NONNULL(2)
int vow_loop_new(const vow_loop_opts *opts, vow_loop **ret_loop);

/* Runs until nothing is left to do. Virtual time jumps to the next timer
 * whenever nothing else is left; while a job, a remote or a hold is left,
 * virtual time stands still and the call waits. Returns 0, or VOW_EBUSY from
 * inside a handler, a fiber or another run. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
int vow_loop_run(vow_loop *loop);

/* Runs until `f` is settled or nothing is left to do. Returns 0, the code of
 * the rejection of `f`, which then counts as handled, VOW_EAGAIN if `f` is
 * still pending, or VOW_EBUSY. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2)
int vow_loop_run_until(vow_loop *loop, vow_future *f);

/* Runs ready handlers and due timers, without waiting and without polling for
 * I/O: for embedding in a loop other than libuv's. Returns 0, or VOW_EBUSY from
 * inside a handler or a fiber. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
int vow_loop_turn(vow_loop *loop);

/* Closes the loop: asks jobs to stop and waits up to a second for them, rejects
 * pending promises with VOW_ECLOSED and runs the handlers, reports unhandled
 * rejections, closes the loop's handles. With a private libuv loop, the loop is
 * gone when the call returns; the call waits for active handles of yours and
 * closes idle handles. On a libuv loop of yours, the loop's handles close in
 * the next turn of the libuv loop. NULL does nothing. Returns 0, or VOW_EBUSY
 * from inside a handler or a run, with nothing closed. */
VOW_API VOW_LOOP_THREAD int vow_loop_close(vow_loop *loop);

/* Posts fn(arg) to the loop's thread. Posts of a sender run in order; every
 * accepted post runs, at the latest while the loop closes. Returns 0, or
 * VOW_ENOMEM, VOW_EQUEUEFULL, VOW_ECLOSED or VOW_EINVAL (`fn` is NULL): the
 * post was not accepted. The loop must not close during the call, unless
 * something of the loop, such as a vow_remote, is held. Since 0.1. */
VOW_API VOW_ANY_THREAD VOW_MUST_USE VOW_NONNULL(1)
int vow_loop_post(vow_loop *loop, vow_post_fn fn, void *arg);

/* Makes the loop belong to the calling thread: for a loop made by a thread and
 * used by another thread before the first run. No other thread may be inside a
 * function of the loop meanwhile. vow_loop_run(), _run_until(), _turn(),
 * _advance() and _close() adopt the loop too, and so does uv_run() of a libuv
 * loop of yours, with the first callback of libvow. Since 0.1. */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
void vow_loop_adopt(vow_loop *loop);
/* Returns whether the loop belongs to the calling thread. */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
bool vow_loop_on_thread(const vow_loop *loop);

/* Keeps vow_loop_run() waiting, for later posts, until vow_loop_release().
 * Counted; a release without a hold does nothing. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_loop_hold(vow_loop *loop);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_loop_release(vow_loop *loop);

/* Returns the loop's clock in nanoseconds: monotonic and current, not cached;
 * virtual time starts at 0. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
uint64_t vow_loop_now_ns(const vow_loop *loop);

/* Returns the time `ms` milliseconds from now; UINT64_MAX, which means never,
 * on overflow. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
uint64_t vow_loop_due_ns(const vow_loop *loop, uint64_t ms);

/* Return the flags of the loop, and whether vow_loop_close() has begun. */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
uint32_t vow_loop_flags(const vow_loop *loop);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_loop_closing(const vow_loop *loop);

/* Advances virtual time by `ms` milliseconds, and runs each timer at its due
 * time and every handler that becomes ready. Returns 0, VOW_ENOTSUP on a loop
 * with real time, or VOW_EBUSY from inside a handler. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
int vow_loop_advance(vow_loop *loop, uint64_t ms);

/* Returns the allocator of the loop, borrowed; `fn` is NULL if the loop was
 * made without an allocator. */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
const struct vow_alloc *vow_loop_alloc(const vow_loop *loop);

/* Returns a random number from the loop's seed; not for secrets. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
uint64_t vow_loop_random(vow_loop *loop);

/* Frees unused pooled memory and stacks now. By itself the loop frees, every
 * second, half of the memory and all stacks unused for a second. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_loop_trim(vow_loop *loop);

typedef struct vow_loop_stats {
    size_t futures;        /* alive, in any state */
    size_t pending;        /* of these, not settled */
    size_t fibers;         /* started and not ended */
    size_t stacks;         /* mapped, in use or pooled */
    size_t guards_missing; /* times a fiber ran without a guard page */
    size_t timers;         /* armed, and keeping the loop running */
    size_t scopes;         /* alive */
    size_t jobs;           /* on the thread pool, waiting or running */
    uint64_t late_settles; /* attempts to settle a settled promise */
    uint64_t unhandled;    /* rejections without a handler */
    uint64_t handlers_run;
    size_t pool_bytes; /* pooled memory of futures, in use or not */
} vow_loop_stats;

/* Counts live objects. Walks all futures. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2)
void vow_loop_stats_get(const vow_loop *loop, vow_loop_stats *ret_stats);

typedef struct vow_census {
    const char *site; /* "file.c:12" */
    size_t pending;
    size_t settled;
} vow_census;
typedef void (*vow_census_fn)(const vow_census *line, void *user);

/* Calls fn for each creation site of live promises, the most frequent site
 * first. Returns 0 or VOW_ENOMEM. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 2)
int vow_loop_census(vow_loop *loop, vow_census_fn fn, void *user);

VOW_END_DECLS

#endif
