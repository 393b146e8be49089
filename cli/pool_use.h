/* SPDX-License-Identifier: MIT */
/* pool_use.h - --pool of map and run: limits shared by all runs with the pool.
 *
 * WHY   Several independent runs must stay under a common limit.
 * HOW   The pool backs the gate of the run (vow_gate_opts.backing): a job that
 *       passes the limits of the run requests a pool permit, and permits are
 *       granted first come, first served. A run requests at most as many
 *       permits at a time as the limit of the pool: so no run fills the wait
 *       queue before the other runs, and a single run can use all permits. With
 *       a key, as in api:{1}, the limits of the pool apply to each key
 *       separately, and the run works on several keys at once.
 *
 *       -j and --rate are the limits of the pool: the first run sets them, `vow
 *       limit` changes them. Each run reads the limits every LOOK_MS.
 * THREADS  loop thread only; a single pool per program.
 */
#ifndef VOW_CLI_POOL_USE_H
#define VOW_CLI_POOL_USE_H

#include "settings.h"
#include "template.h"

#include <vow.h>

/* Makes limits from the options. With `even`, the rate is a single start per
 * window / n. */
vow_pool_limits pool_limits(uint32_t jobs, const struct rate *rate, bool even);

/* Opens the pool, if the settings name a pool. Sets s->jobs to the concurrency
 * limit of this run; 0: as without a pool. A failure ends the program.
 * `placeholders` are allowed in the key; NULL: the key is plain text. */
void pool_open(vow_loop *loop, struct settings *s, const struct verb_def *verb,
               const struct template_opts *placeholders);
/* Makes the pool the backing of a gate; the pool applies the rate. */
void pool_behind(vow_gate_opts *o);
/* Returns the key of a job, valid until the next call; NULL: none. */
const char *pool_key(const struct fields *f);
/* Returns why a job with this key and weight would be a deadlock, owned by the
 * caller: ancestor processes hold too many permits. NULL: no deadlock. */
vow_error *pool_refuses(const char *key, uint32_t weight);
/* Returns "VOW_HELD=..." for a job with a permit, see nested.h, owned by the
 * caller; NULL: nothing is held. */
char *pool_held(const char *key, uint32_t weight);
/* Returns the largest weight that the limits allow. */
uint32_t pool_weight_most(void);
/* Returns the time in which a job must end after the permit was lost. */
uint64_t pool_lost_ms(void);
/* Sets the function to call when the concurrency limit has changed. */
void pool_watch(void (*on_jobs)(uint32_t jobs));
/* Releases the permits and closes the store. */
void pool_close(void);

#endif
