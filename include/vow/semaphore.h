/* SPDX-License-Identifier: MIT */
/* vow/semaphore.h - so many at once, by weight, in order of arrival.
 *
 * An acquire gets all it asks for or waits, and holds nothing while it waits.
 * A small request never passes a big one that waits, unless bypass allows it:
 * so many times, and for so long, at most.
 *
 * Owner: counted; permits and waiters keep it alive.
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
    uint32_t queue_max;         /* waiters; 0: 1048576 */
    uint32_t bypass_count;      /* smaller ones that may pass one waiter */
    uint64_t bypass_ms;         /* and while it waited less; both 0: never */
    const vow_backing *backing; /* asked before each grant (vow/backing.h), kept
                                   by reference; NULL: nobody */
} vow_sem_opts;
#define VOW_SEM_OPTS(...)                                                      \
    (&(const vow_sem_opts){.size = sizeof(vow_sem_opts), __VA_ARGS__})

/* Make a semaphore. 0, VOW_EINVAL (a size of options that is no version's),
 * VOW_ENOMEM; *ret_sem is written only on success. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 3)
int vow_sem_new(vow_loop *loop, const vow_sem_opts *opts, vow_sem **ret_sem);
VOW_API VOW_LOOP_THREAD vow_sem *vow_sem_ref(vow_sem *s);
VOW_API VOW_LOOP_THREAD vow_sem *vow_sem_unref(vow_sem *s); /* NULL */

/* Ask for `weight` permits, all or none; the future has them
 * (vow_permit_take()). Canceling the future leaves the queue at once, in O(1);
 * a bound on the wait is vow_timeout(). Rejected: VOW_EINVAL (weight 0, or
 * above the size), VOW_EQUEUEFULL, VOW_ECLOSED; VOW_EDEADLK inside a
 * vow_sem_with() that holds what it asks for. */
#define vow_sem_acquire(s, weight) vow_sem_acquire_at(VOW_HERE, (s), (weight))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_sem_acquire_at(const char *site, vow_sem *s, uint32_t weight);

/* Now or not at all, past nobody who waits; no memory is needed. True:
 * *ret_permit holds them. With a backing, which would have to be asked, never.
 */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 3)
bool vow_sem_try(vow_sem *s, uint32_t weight, vow_permit *ret_permit);

/* Acquire, call start(loop, 1, arg), and give back whatever happens. The future
 * has the outcome of what it returned. Canceled while it waits it never starts.
 * From inside another that holds all there is: VOW_EDEADLK. */
#define vow_sem_with(s, weight, start, arg)                                    \
    vow_sem_with_at(VOW_HERE, (s), (weight), (start), (arg))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_sem_with_at(const char *site, vow_sem *s, uint32_t weight,
                            vow_start_fn start, void *arg);

/* Settles when nothing is held and nobody waits. */
#define vow_sem_wait(s) vow_sem_wait_at(VOW_HERE, (s))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_sem_wait_at(const char *site, vow_sem *s);

/* Change the number of permits, also below what is held: then nothing is
 * granted until enough came back. Waiters that ask for more than there will be
 * are rejected with VOW_EINVAL. VOW_EINVAL for 0: nothing changed. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
int vow_sem_resize(vow_sem *s, uint32_t permits);

/* Reject all who wait, and all who will ask, with VOW_ECLOSED. What is held
 * stays held until it is released. */
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
