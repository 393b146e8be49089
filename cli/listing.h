/* SPDX-License-Identifier: MIT */
/* listing.h - names and pools, as people and as programs read them.
 *
 * For people a table of names, those that run first, then what is in doubt,
 * failed and done; and a line for each pool, the slots and the locks. For
 * programs one line of JSON each, with everything that is known, times as whole
 * milliseconds.
 *
 * A lock is a pool of many places, of which an exclusive holder has all; slots
 * are a pool. Their labels tell them from those that people name.
 */
#ifndef VOW_CLI_LISTING_H
#define VOW_CLI_LISTING_H

#include "text.h"

#include <vow.h>

enum { LOCK_PLACES = 1 << 20 }; /* of a lock; -s takes one of them */
#define LOCK_LABEL "lock:"
#define SLOTS_LABEL "slots:"

/* "running", "done", "failed", "doubt"; "lost": its runner is gone. */
const char *listing_state(const vow_record *r);

/* Lines at the end of *ret_text; nothing for nothing, not even a heading. */
void listing_names(struct text *ret_text, const vow_records *names,
                   size_t width);
void listing_pools(struct text *ret_text, const vow_pools *pools, size_t width);
/* Nobody has the lock or slot, and nobody waits: there is nothing to tell. */
bool listing_is_idle_lock(const vow_pool_info *p);
void listing_name_json(struct text *ret_text, const vow_record *r);
void listing_pool_json(struct text *ret_text, const vow_pool_info *p);

/* A pool of that name would have keys that look like locks or slots. */
bool listing_is_taken(const char *pool);

/* "-j 20 and 50/1s", "-j 4", "50/1s", "no limits". */
enum { LISTING_LIMITS = 64 };
const char *listing_limits(const vow_pool_limits *l, char into[LISTING_LIMITS]);

#endif
