/* SPDX-License-Identifier: MIT */
/* pool_use.h - --pool of map and run: limits shared by all who name the pool.
 *
 * WHY   Several runs, started by whoever, are to stay under one limit.
 * HOW   The pool stands behind the gate of the run (vow_gate_opts.backing): a
 *       job that our own limits let in asks the pool for a place, and places
 *       are given first come, first served. A run asks for no more places at a
 *       time than the pool has: so none fills the queue before the others, and
 *       one that is alone can use them all. With a key, as in api:{1}, every
 *       key has places of its own under the limits of the name; then that holds
 *       for each key, and the run works on several keys at once.
 *
 *       -j and --rate are the pool's: who names it first sets them, `vow limit`
 *       changes them. What others change while we run is looked at now and
 *       then.
 * THREADS  loop thread only; one per program.
 */
#ifndef VOW_CLI_POOL_USE_H
#define VOW_CLI_POOL_USE_H

#include "settings.h"
#include "template.h"

#include <vow.h>

/* As the options say it. An even rate is one start in a part of the window. */
vow_pool_limits pool_limits(uint32_t jobs, const struct rate *rate, bool even);

/* Open the pool of the settings, if they name one. From then on settings->jobs
 * are those of this run; 0: as many as without a pool. What fails ends the
 * program. `placeholders`: those that the key may have; NULL: it is taken as it
 * is. */
void pool_open(vow_loop *loop, struct settings *s, const struct verb_def *verb,
               const struct template_opts *placeholders);
/* Put the pool behind the limits of a gate, instead of the rate. */
void pool_behind(vow_gate_opts *o);
/* The key of a job, valid until the next is asked for; NULL: none. */
const char *pool_key(const struct fields *f);
/* Why a job with this key and weight would wait for itself for ever, owned:
 * commands that have started us hold too much of the pool. NULL: it would
 * not. */
vow_error *pool_refuses(const char *key, uint32_t weight);
/* "VOW_HELD=..." for a job that has a place, see nested.h; to be freed; NULL:
 * there is nothing to tell. */
char *pool_held(const char *key, uint32_t weight);
/* What no weight may exceed. */
uint32_t pool_weight_most(void);
/* Time for a job to end when its place is lost. */
uint64_t pool_lost_ms(void);
/* Call this when others have changed how many may run at once. */
void pool_watch(void (*on_jobs)(uint32_t jobs));
/* Give back what we have. */
void pool_close(void);

#endif
