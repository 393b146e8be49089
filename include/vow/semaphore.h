/* SPDX-License-Identifier: MIT */
/* vow/semaphore.h - a concurrency limit by weight, first come first served.
 *
 * A request gets all permits or waits, and holds nothing while waiting. A small
 * request never passes a big waiting request, unless bypass allows a limited
 * number of passes, for a limited time.
 *
 * Owner: counted; permits and waiting requests keep the semaphore alive.
 * Threads: loop thread only.
 */
#ifndef VOW_SEMAPHORE_H
#define VOW_SEMAPHORE_H

#include "vow/backing.h"
#include "vow/permit.h"
#include "vow/retry.h"

VOW_BEGIN_DECLS

typedef struct vow_sem vow_sem;

typedef struct vow_sem_opts {
    size_t size;                /* set by VOW_SEM_OPTS */
    uint32_t permits;           /* 0: 1 */
    uint32_t queue_max;         /* waiting requests; 0: 1048576 */
    uint32_t bypass_count;      /* smaller requests that may pass a request */
    uint64_t bypass_ms;         /* only while waiting less; both 0: never */
    const vow_backing *backing; /* asked before each grant (vow/backing.h);
                                   counted; NULL: none */
} vow_sem_opts;
#define VOW_SEM_OPTS(...)                                                      \
    (&(const vow_sem_opts){.size = sizeof(vow_sem_opts), __VA_ARGS__})

/* Makes a semaphore. Returns 0, VOW_EINVAL (options of another version) or
 * VOW_ENOMEM; *ret_sem is written only on success. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 3)
int vow_sem_new(vow_loop *loop, const vow_sem_opts *opts, vow_sem **ret_sem);
VOW_API VOW_LOOP_THREAD vow_sem *vow_sem_ref(vow_sem *s);
VOW_API VOW_LOOP_THREAD vow_sem *vow_sem_unref(vow_sem *s); /* NULL */

/* Requests `weight` permits, all or none; the future has them
 * (vow_permit_take()). Canceling the future leaves the queue at once, in O(1);
 * vow_timeout() limits the wait. Rejected: VOW_EINVAL (a weight of 0, or above
 * the number of permits), VOW_EQUEUEFULL, VOW_ECLOSED, and VOW_EDEADLK inside a
 * vow_sem_with() that holds the needed permits. */
#define vow_sem_acquire(s, weight) vow_sem_acquire_at(VOW_HERE, (s), (weight))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_sem_acquire_at(const char *site, vow_sem *s, uint32_t weight);

/* Takes `weight` permits now or not at all, and never passes a waiting request.
 * Returns whether *ret_permit holds the permits. Needs no memory. With a
 * backing always returns false, since the backing would have to be asked. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 3)
bool vow_sem_try(vow_sem *s, uint32_t weight, vow_permit *ret_permit);

/* Acquires permits, calls start(loop, 1, arg), and releases the permits when
 * the work has ended. Returns a future with the outcome of the future returned
 * by `start`. Canceled while waiting, `start` is never called. Rejected as
 * vow_sem_acquire(). */
#define vow_sem_with(s, weight, start, arg)                                    \
    vow_sem_with_at(VOW_HERE, (s), (weight), (start), (arg))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_sem_with_at(const char *site, vow_sem *s, uint32_t weight,
                            vow_start_fn start, void *arg);

/* Returns a future of nothing, fulfilled when no permit is held and no request
 * waits. */
#define vow_sem_wait(s) vow_sem_wait_at(VOW_HERE, (s))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_sem_wait_at(const char *site, vow_sem *s);

/* Changes the number of permits, also below the held number: nothing is then
 * granted until enough permits are released. Waiting requests above the new
 * number are rejected with VOW_EINVAL. Returns 0, or VOW_EINVAL for 0, with
 * nothing changed. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
int vow_sem_resize(vow_sem *s, uint32_t permits);

/* Rejects all waiting and all later requests with VOW_ECLOSED. Held permits
 * stay held until released. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_sem_close(vow_sem *s);

typedef struct vow_sem_stats {
    uint32_t permits; /* in all */
    uint32_t held;
    size_t waiting; /* requests */
} vow_sem_stats;
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_sem_stats vow_sem_stats_get(const vow_sem *s);

static inline void vow_sem_cleanup(vow_sem **s)
{
    vow_sem_unref(*s);
}

VOW_END_DECLS

#endif
