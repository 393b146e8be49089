/* SPDX-License-Identifier: MIT */
/* memory.h - the store in memory, with what tests want to choose. */
#ifndef VOW_STORE_MEMORY_INTERNAL_H
#define VOW_STORE_MEMORY_INTERNAL_H

#include "vow/store_memory.h"

/* As vow_store_memory_new(); the first instance says how large a result of the
 * memory may be. */
int vow__store_memory_open(vow_loop *loop, vow_memory *m, size_t value_max,
                           vow_store **ret_store);

#endif
