/* SPDX-License-Identifier: MIT */
/* vow/loop.h - the loop that runs handlers, timers and messages.
 *
 * A vow_loop lives on a libuv loop: its own, or one you have (vow/uv.h). It
 * keeps the process alive only while there is something to run: a ready
 * handler, a timer, a job on the thread pool, a live vow_remote, a hold.
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

/* A rejection that nobody handled: `site` is where its promise was made. Both
 * are borrowed. Called on the loop's thread when the last reference goes or the
 * loop is closed, once per error; not for VOW_ECANCELED and VOW_ECLOSED. */
typedef void (*vow_unhandled_fn)(vow_error *error, const char *site,
                                 void *user);
typedef void (*vow_post_fn)(void *arg);

enum {
    VOW_LOOP_VIRTUAL_TIME = 1, /* time stands until vow_loop_advance() */
    VOW_LOOP_UNPOOLED = 2      /* every object by the allocator, for tests */
};

typedef struct vow_loop_opts {
    size_t size;                   /* set by VOW_LOOP_OPTS */
    uint32_t flags;                /* VOW_LOOP_... */
    struct vow_alloc alloc;        /* zero: malloc */
    vow_unhandled_fn on_unhandled; /* NULL: counted, not told */
    void *on_unhandled_user;
    uint32_t turn_max;       /* handlers before I/O gets a turn; 0: 10000 */
    uint32_t inbox_max;      /* posts not yet run; 0: 1048576 */
    uint32_t work_threads;   /* thread pool, at most 1024; 0: one per core */
    uint32_t work_queue_max; /* jobs that wait for a thread; 0: 1048576 */
    uint32_t fiber_guards;   /* guard pages kept by mprotect; 0: 8192 */
    uint64_t seed;           /* of jitter; 0: from the system */
} vow_loop_opts;
#define VOW_LOOP_OPTS(...)                                                     \
    (&(const vow_loop_opts){.size = sizeof(vow_loop_opts), __VA_ARGS__})

/* Make a loop with a libuv loop of its own. Returns 0, VOW_EINVAL (unknown
 * flags, a size that is no version's), VOW_ENOMEM, or libuv's code; *ret_loop
 * is written only on success. Since 0.1. */
VOW_API VOW_MUST_USE VOW_NONNULL(2)
int vow_loop_new(const vow_loop_opts *opts, vow_loop **ret_loop);

/* Run until nothing is left to do. Under virtual time, time jumps to the next
 * timer whenever nothing else is left; while a job, a remote or a hold is, time
 * stands and this waits for it. VOW_EBUSY when called from inside a handler, a
 * fiber, or another run. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
int vow_loop_run(vow_loop *loop);

/* Run until `f` is settled, or nothing is left to do. Returns 0, the code `f`
 * was rejected with (it then counts as handled), VOW_EAGAIN if it is still
 * pending, or VOW_EBUSY. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2)
int vow_loop_run_until(vow_loop *loop, vow_future *f);

/* Run what is ready and due, without waiting and without polling for I/O.
 * VOW_EBUSY as above. For embedding in a loop that is not libuv's. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
int vow_loop_turn(vow_loop *loop);

/* Close: jobs are asked to stop and waited for up to a second, whatever is
 * still pending is rejected with VOW_ECLOSED and its handlers run, unhandled
 * rejections are told, handles are closed. A loop with its own libuv loop is
 * gone when this returns, which waits for active handles you put on it and
 * closes idle ones; on yours, ours close in its next turn. NULL does nothing;
 * VOW_EBUSY from inside a handler or a run, and nothing is closed. */
VOW_API VOW_LOOP_THREAD int vow_loop_close(vow_loop *loop);

/* Run fn(arg) on the loop's thread. Messages of one sender run in their order;
 * each accepted one runs, at the latest while the loop closes. VOW_ENOMEM,
 * VOW_EQUEUEFULL, VOW_ECLOSED, VOW_EINVAL: it was not accepted. The loop must
 * not be closed meanwhile, or something of it must be held. Since 0.1. */
VOW_API VOW_ANY_THREAD VOW_MUST_USE VOW_NONNULL(1)
int vow_loop_post(vow_loop *loop, vow_post_fn fn, void *arg);

/* From now on the loop belongs to the calling thread: for a loop that one
 * thread makes and another thread uses before running it. No other thread may
 * be inside a function of the loop meanwhile. vow_loop_run(), _run_until(),
 * _turn(), _advance() and _close() adopt the loop too, and so does uv_run() of
 * a loop of yours, with the first callback of libvow. Since 0.1. */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
void vow_loop_adopt(vow_loop *loop);
/* Does the loop belong to the calling thread? */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
bool vow_loop_on_thread(const vow_loop *loop);

/* Keep vow_loop_run() waiting, for posts that will come. Counted; a release
 * without a hold does nothing. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_loop_hold(vow_loop *loop);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_loop_release(vow_loop *loop);

/* The loop's clock: monotonic and current, not cached; virtual time starts at
 * 0. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
uint64_t vow_loop_now_ns(const vow_loop *loop);

/* The time `ms` milliseconds from now; UINT64_MAX, which is never, if that is
 * past the end of time. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
uint64_t vow_loop_due_ns(const vow_loop *loop, uint64_t ms);

/* The flags it was made with; whether vow_loop_close() has begun. */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
uint32_t vow_loop_flags(const vow_loop *loop);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_loop_closing(const vow_loop *loop);

/* Move virtual time on, running all that falls due at its own time and all
 * that becomes ready. VOW_ENOTSUP on a loop with real time, VOW_EBUSY from
 * inside a handler. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
int vow_loop_advance(vow_loop *loop, uint64_t ms);

/* The allocator the loop was made with; ready to be called. */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
const struct vow_alloc *vow_loop_alloc(const vow_loop *loop);

/* A random number from the loop's seed. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
uint64_t vow_loop_random(vow_loop *loop);

/* Give pooled memory and stacks that are not in use back now. Without it, half
 * of the memory and all stacks that stayed unused for a second go back. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_loop_trim(vow_loop *loop);

typedef struct vow_loop_stats {
    size_t futures;        /* alive, of any state */
    size_t pending;        /* of these, not settled */
    size_t fibers;         /* started and not ended */
    size_t stacks;         /* mapped, in use or pooled */
    size_t guards_missing; /* times a fiber ran without a guard page */
    size_t timers;         /* armed, and keeping the loop running */
    size_t scopes;         /* alive */
    size_t jobs;           /* on the thread pool, waiting or running */
    uint64_t late_settles; /* resolve or reject after the first */
    uint64_t unhandled;    /* rejections nobody handled */
    uint64_t handlers_run;
    size_t pool_bytes; /* of the object pools, in use or not */
} vow_loop_stats;

/* Count what is alive. `pending` walks all futures. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1, 2)
void vow_loop_stats_get(const vow_loop *loop, vow_loop_stats *ret_stats);

typedef struct vow_census {
    const char *site; /* "file.c:12" */
    size_t pending;
    size_t settled;
} vow_census;
typedef void (*vow_census_fn)(const vow_census *line, void *user);

/* Live promises by creation site, the most frequent first. VOW_ENOMEM. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 2)
int vow_loop_census(vow_loop *loop, vow_census_fn fn, void *user);

VOW_END_DECLS

#endif
