/* SPDX-License-Identifier: MIT */
/* vow/batch.h - many single requests, one call, an answer for each.
 *
 * A call is made when `most` items or `bytes` are together, or when the first
 * of them has waited `wait_ms`, whichever comes first.
 *
 * Owner: counted; items that wait or are being answered keep it alive.
 * Threads: loop thread only.
 */
#ifndef VOW_BATCH_H
#define VOW_BATCH_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

typedef struct vow_batch vow_batch;
/* The items of one call, valid until its future is settled. */
typedef struct vow_batch_call vow_batch_call;

/* Makes one call and returns its future, of this loop, moved. It is called from
 * the loop's queue. Answer items by vow_batch_answer(); or let the future
 * become a list of as many outcomes (vow_all_settled()), which answers those
 * not answered yet. If it is rejected, they get that error; if it ends
 * otherwise, VOW_EBROKEN. */
typedef vow_future *(*vow_batch_fn)(vow_loop *loop, vow_batch_call *call,
                                    void *user);

typedef struct vow_batch_opts {
    size_t size;         /* set by VOW_BATCH */
    uint32_t most;       /* items in a call; 0: 100 */
    size_t bytes;        /* of a call; 0: any. A bigger item goes alone. */
    uint64_t wait_ms;    /* of the first item; 0: the end of this turn */
    uint32_t concurrent; /* calls at once; 0: 1 */
    uint32_t queue_max;  /* items that wait; 0: 1048576 */
} vow_batch_opts;
#define VOW_BATCH(...)                                                         \
    (&(const vow_batch_opts){.size = sizeof(vow_batch_opts), __VA_ARGS__})

/* VOW_EINVAL (fn is NULL), VOW_ENOMEM. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 5)
int vow_batch_new(vow_loop *loop, vow_batch_fn fn, void *user,
                  const vow_batch_opts *opts, vow_batch **ret_batch);
VOW_API VOW_LOOP_THREAD vow_batch *vow_batch_ref(vow_batch *b);
VOW_API VOW_LOOP_THREAD vow_batch *vow_batch_unref(vow_batch *b); /* NULL */

/* Ask for one item, which is moved; the future has its answer. Canceled before
 * the call, the item leaves it; afterwards its answer is dropped, and the call
 * is canceled when no item of it waits any more: all have an outcome or are
 * canceled. VOW_EQUEUEFULL, VOW_ECLOSED. */
#define vow_batch_add(b, item, bytes)                                          \
    vow_batch_add_at(VOW_HERE, (b), (item), (bytes))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_batch_add_at(const char *site, vow_batch *b, vow_value item,
                             size_t bytes);

/* Make a call of what has come so far, without waiting for more. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_batch_flush(vow_batch *b);
/* Reject what waits and what will come with VOW_ECLOSED; calls under way go
 * on. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_batch_close(vow_batch *b);

/* The items of a call, borrowed; beyond the end nothing. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
size_t vow_batch_call_size(const vow_batch_call *c);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_value vow_batch_call_item(const vow_batch_call *c, size_t index);
/* Answer one item with what a step would return: vow_ok(), vow_fail(),
 * vow_follow(). One that follows what is pending keeps the call from being
 * canceled. False: answered or canceled before, or beyond the end. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_batch_answer(vow_batch_call *c, size_t index, vow_next answer);

typedef struct vow_batch_stats {
    size_t waiting; /* items */
    size_t calls;   /* under way */
    uint64_t made;  /* calls since the beginning */
    uint64_t items; /* in them */
} vow_batch_stats;
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_batch_stats vow_batch_stats_get(const vow_batch *b);

static inline void vow_batch_cleanup(vow_batch **b)
{
    vow_batch_unref(*b);
}

VOW_END_DECLS

#endif
