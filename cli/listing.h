/* SPDX-License-Identifier: MIT */
/* listing.h - lists of names and pools, as tables and as JSON.
 *
 * The table of names is sorted by state: running, lost, in doubt, failed, done.
 * Pools, slots and locks have a line each. JSON has a line per entry, with all
 * fields; times are whole milliseconds.
 *
 * A lock is a pool with the limit LOCK_PLACES, and an exclusive holder has a
 * permit of this weight. Slots are a pool, too. The prefixes of their labels
 * tell locks and slots from pools of --pool.
 */
#ifndef VOW_CLI_LISTING_H
#define VOW_CLI_LISTING_H

#include "text.h"

#include <vow.h>

enum { LOCK_PLACES = 1 << 20 }; /* limit of a lock; --shared has weight 1 */
#define LOCK_LABEL "lock:"
#define SLOTS_LABEL "slots:"

/* Returns "running", "done", "failed", "doubt" or "lost" (no runner). */
const char *listing_state(const vow_record *r);

/* Add lines to *ret_text; nothing, not even a heading, for an empty list. */
void listing_names(struct text *ret_text, const vow_records *names,
                   size_t width);
void listing_pools(struct text *ret_text, const vow_pools *pools, size_t width);
/* Returns whether a lock or slots have neither holders nor waiters. */
bool listing_is_idle_lock(const vow_pool_info *p);
void listing_name_json(struct text *ret_text, const vow_record *r);
void listing_pool_json(struct text *ret_text, const vow_pool_info *p);

/* Returns whether the name is reserved: the keys of such a pool would look like
 * locks or slots. */
bool listing_is_taken(const char *pool);

/* Returns "-j 20 and 50/1s", "-j 4", "50/1s" or "no limits". */
enum { LISTING_LIMITS = 64 };
const char *listing_limits(const vow_pool_limits *l, char into[LISTING_LIMITS]);

#endif
