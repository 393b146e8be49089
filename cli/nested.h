/* SPDX-License-Identifier: MIT */
/* nested.h - names and permits that ancestor vow processes hold, to refuse a
 * deadlock.
 *
 * WHY   `vow lock a -- vow lock a -- true` waits for the outer lock, and the
 *       outer vow waits for its command: a deadlock.
 * HOW   Every command that runs under a lease or a pool permit has VOW_HELD in
 *       the environment: a word for each hold of the parent vow and of the
 *       vow processes above. Processes left behind by the command inherit the
 *       variable, too. So a word counts only while the vow of the word lives
 *       and is an ancestor of this process, by process id and start time,
 *       through a command started by this vow itself.
 * LIMITS  Does not work if the environment is cleared, or /proc is hidden.
 */
#ifndef VOW_CLI_NESTED_H
#define VOW_CLI_NESTED_H

#include "store_open.h"

#include <sys/types.h>

/* A held name or pool permit. */
struct nested_hold {
    const struct store_opts *store;
    uint64_t fence; /* of a name's lease; 0: a pool permit */
    /* of a pool permit */
    const char *pool;
    const char *key; /* NULL: none */
    uint32_t weight;
};

/* Returns whether the entry of the environment is VOW_HELD=...; each command
 * gets a new value. */
bool nested_is_variable(const char *variable);
/* Returns "VOW_HELD=..." for a command that runs under this hold (NULL: no own
 * hold), owned by the caller; NULL: nothing is held. */
char *nested_variable(const struct nested_hold *h);

/* Returns the process id of the ancestor that owns the name with this fence; 0:
 * none. */
pid_t nested_owner(const struct store_opts *s, uint64_t fence);
/* Returns the total weight of the pool permits of ancestors; *ret_holder is the
 * nearest ancestor with a permit, or 0. */
uint64_t nested_weight(const struct store_opts *s, const char *pool,
                       const char *key, pid_t *ret_holder);

#endif
