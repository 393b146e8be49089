/* SPDX-License-Identifier: MIT */
/* nested.h - what the vow commands above us hold, so that none waits for itself.
 *
 * WHY   `vow lock a -- vow lock a -- true` waits for the outer lock, which
 *       waits for its command: for ever.
 * HOW   Every command that runs under a lease or a place has VOW_HELD in its
 *       environment: a word for each hold of its own vow and of those above.
 *       A variable is inherited by whatever the command leaves behind. So a
 *       word counts only while its vow lives and is an ancestor of ours, by
 *       process id and start time, through a command that it started itself.
 * LIMITS  Who clears the environment, or hides /proc, is not noticed.
 */
#ifndef VOW_CLI_NESTED_H
#define VOW_CLI_NESTED_H

#include "store_open.h"

#include <sys/types.h>

/* One hold. */
struct nested_hold {
    const struct store_opts *store;
    uint64_t fence; /* of a name's lease; 0: it is a place */
    /* of a place */
    const char *pool;
    const char *key; /* NULL: none */
    uint32_t weight;
};

/* Is that a variable of the environment of ours? Then it is told anew. */
bool nested_is_variable(const char *variable);
/* "VOW_HELD=..." for a command that runs under this hold (NULL: under none), to
 * be freed by the caller; NULL: nothing is held. */
char *nested_variable(const struct nested_hold *h);

/* The ancestor that holds the name with this fence; 0: none does. */
pid_t nested_owner(const struct store_opts *s, uint64_t fence);
/* What ancestors hold of a pool in all; *ret_holder is the nearest one. */
uint64_t nested_weight(const struct store_opts *s, const char *pool,
                       const char *key, pid_t *ret_holder);

#endif
