/* SPDX-License-Identifier: MIT */
/* vow/store_memory.h - a store in the memory of one process.
 *
 * vow_store_open(loop, "memory:") gives one that nobody else can reach. To let
 * several authorities meet, as processes do, open each on the same vow_memory.
 */
#ifndef VOW_STORE_MEMORY_H
#define VOW_STORE_MEMORY_H

#include "vow/store.h"

VOW_BEGIN_DECLS

/* What they share. Counted; any thread. `alloc` NULL: malloc. VOW_ENOMEM. Since
 * 0.1. */
typedef struct vow_memory vow_memory;
VOW_API VOW_ANY_THREAD VOW_MUST_USE VOW_NONNULL(2)
int vow_memory_new(const struct vow_alloc *alloc, vow_memory **ret_memory);
VOW_API VOW_ANY_THREAD vow_memory *vow_memory_ref(vow_memory *m);
VOW_API VOW_ANY_THREAD vow_memory *vow_memory_unref(vow_memory *m); /* NULL */

/* An instance on this loop; it keeps `m`, which may be NULL: one of its own
 * (VOW_STORE_LOCAL). Leases are ended by the loop's clock: loops that share a
 * memory have all real time, or one and the same virtual time. VOW_ENOMEM. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 3)
int vow_store_memory_new(vow_loop *loop, vow_memory *m, vow_store **ret_store);

VOW_END_DECLS

#endif
