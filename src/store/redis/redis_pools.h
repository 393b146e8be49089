/* SPDX-License-Identifier: MIT */
/* redis_pools.h - pools as the scripts know them. See redis_pools.c and
 * redis_limit.c. */
#ifndef VOW_STORE_REDIS_POOLS_H
#define VOW_STORE_REDIS_POOLS_H

#include "store/redis/redis_names.h"

/* The keys of a pool: see lua/places.lua. */
void vow__redis_pool_keys(struct vow__call *c, const vow_name *limits_of,
                          const vow_name *pool);
void vow__redis_limit_args(struct vow__call *c, const vow_pool_limits *limits);
void vow__redis_text_arg(struct vow__call *c, const char *text);

/* What pool.lua and limit.lua tell; `label` has room for VOW_LABEL_MAX + 1.
 * VOW_EIO: it makes no sense. */
int vow__redis_pool_read(const struct vow__resp *reply, const vow_name *pool,
                         vow_pool_info *out, char *label);
/* Limits, from item `at` on. */
int vow__redis_limits_read(const struct vow__resp *reply, size_t at,
                           vow_pool_limits *out);

#endif
