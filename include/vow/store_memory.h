/* SPDX-License-Identifier: MIT */
/* vow/store_memory.h - a store in the memory of a process.
 *
 * vow_store_open(loop, "memory:") opens a private store. Stores opened on the
 * same vow_memory share names and pools, as processes do.
 */
#ifndef VOW_STORE_MEMORY_H
#define VOW_STORE_MEMORY_H

#include "vow/store.h"

VOW_BEGIN_DECLS

/* Makes a memory for several stores. Counted; any thread. `alloc` NULL: malloc.
 * Returns 0 or VOW_ENOMEM. Since 0.1. */
typedef struct vow_memory vow_memory;
VOW_API VOW_ANY_THREAD VOW_MUST_USE VOW_NONNULL(2)
int vow_memory_new(const struct vow_alloc *alloc, vow_memory **ret_memory);
VOW_API VOW_ANY_THREAD vow_memory *vow_memory_ref(vow_memory *m);
VOW_API VOW_ANY_THREAD vow_memory *vow_memory_unref(vow_memory *m); /* NULL */

/* Opens a store on this loop. The store counts a reference to `m`; NULL: a
 * private memory (VOW_STORE_LOCAL). The loop's clock expires leases, so all
 * loops of a memory must have real time, or the same virtual time. Returns 0 or
 * VOW_ENOMEM. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 3)
int vow_store_memory_new(vow_loop *loop, vow_memory *m, vow_store **ret_store);

VOW_END_DECLS

#endif
