/* SPDX-License-Identifier: MIT */
/* vow/batch.h - gathers single requests into calls, with an answer for each
 * request.
 *
 * A call is made when `most` items or `bytes` bytes wait, or when the first
 * waiting item has waited `wait_ms`, whichever comes first.
 *
 * Owner: counted; waiting items and calls under way keep the batch alive.
 * Threads: loop thread only.
 */
#ifndef VOW_BATCH_H
#define VOW_BATCH_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

typedef struct vow_batch vow_batch;
/* The items of a call; valid until the future of the call is settled. */
typedef struct vow_batch_call vow_batch_call;

/* Makes a call and returns a future of this loop; the reference is moved.
 * Called from the loop's queue. The function answers items by
 * vow_batch_answer(). Items without an answer are answered by the future: a
 * list with an outcome per item (vow_all_settled()) answers each item, a
 * rejection rejects the items with the same error, and any other value rejects
 * the items with VOW_EBROKEN. */
typedef vow_future *(*vow_batch_fn)(vow_loop *loop, vow_batch_call *call,
                                    void *user);

typedef struct vow_batch_opts {
    size_t size;         /* set by VOW_BATCH */
    uint32_t most;       /* items in a call; 0: 100 */
    size_t bytes;        /* bytes in a call; 0: any. Bigger items go alone. */
    uint64_t wait_ms;    /* wait of the first item; 0: to the end of the turn */
    uint32_t concurrent; /* calls at a time; 0: 1 */
    uint32_t queue_max;  /* waiting items; 0: 1048576 */
} vow_batch_opts;
#define VOW_BATCH(...)                                                         \
    (&(const vow_batch_opts){.size = sizeof(vow_batch_opts), __VA_ARGS__})

/* Makes a batch. Returns 0, VOW_EINVAL (fn is NULL) or VOW_ENOMEM. Since
 * 0.1. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 5)
int vow_batch_new(vow_loop *loop, vow_batch_fn fn, void *user,
                  const vow_batch_opts *opts, vow_batch **ret_batch);
VOW_API VOW_LOOP_THREAD vow_batch *vow_batch_ref(vow_batch *b);
VOW_API VOW_LOOP_THREAD vow_batch *vow_batch_unref(vow_batch *b); /* NULL */

/* Adds an item of `bytes` bytes and returns the future of the answer. The item
 * is moved. Canceling the future before the call removes the item; later, the
 * answer is dropped, and the call is canceled if all items of the call are now
 * canceled or have an outcome. Rejected: VOW_EQUEUEFULL, VOW_ECLOSED. */
#define vow_batch_add(b, item, bytes)                                          \
    vow_batch_add_at(VOW_HERE, (b), (item), (bytes))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_batch_add_at(const char *site, vow_batch *b, vow_value item,
                             size_t bytes);

/* Makes a call of the items added so far, without waiting for more. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_batch_flush(vow_batch *b);
/* Rejects waiting items, and all items added later, with VOW_ECLOSED. Calls
 * under way go on. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_batch_close(vow_batch *b);

/* Return the number of items in a call, and the item at an index: borrowed,
 * nothing beyond the end. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
size_t vow_batch_call_size(const vow_batch_call *c);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_value vow_batch_call_item(const vow_batch_call *c, size_t index);
/* Answers an item, as a step returns: vow_ok(), vow_fail(), vow_follow(). While
 * the answer follows a pending future, the call is not canceled. Returns false
 * if the item was answered or canceled before, or if `index` is beyond the end;
 * the answer is then dropped. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_batch_answer(vow_batch_call *c, size_t index, vow_next answer);

typedef struct vow_batch_stats {
    size_t waiting; /* items */
    size_t calls;   /* under way */
    uint64_t made;  /* calls since the batch was made */
    uint64_t items; /* items in these calls */
} vow_batch_stats;
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_batch_stats vow_batch_stats_get(const vow_batch *b);

static inline void vow_batch_cleanup(vow_batch **b)
{
    vow_batch_unref(*b);
}

VOW_END_DECLS

#endif
