/* SPDX-License-Identifier: MIT */
/* session.h - the program of a verb whose commands are shared: its loop and store,
 * its signals, its end.
 *
 * WHY   Most callers find a result and write it: for them nothing is opened but
 *       the store, and signals end us as they end cat. Who waits catches them,
 *       to say farewell. What a command needs is there as soon as one is to
 *       run.
 * THREADS  loop thread only; one per program.
 */
#ifndef VOW_CLI_SESSION_H
#define VOW_CLI_SESSION_H

#include "shared_options.h"

/* Make the loop and open the store. Without a store, according to the options,
 * we wait for it, or go without it, or end. */
void session_open(struct shared *s);
vow_loop *session_loop(void);
vow_authority *session_authority(void);
/* There was no store to open: what is done is done uncoordinated. */
bool session_alone(void);

/* Why the store cannot be used now; NULL: it can, or we have told so. */
const char *session_trouble(void);
/* Returns whether the store cannot be used at present. */
bool session_store_is_down(void);

/* Before something is shown while we go on. */
void session_show(void);
/* Before the first command runs: signals are for it from now on. */
void session_work(void);
/* To be asked when a command has ended: are we about to end, so that its result
 * does not matter? */
bool session_ends(void);

/* A whole recording to our stdout and stderr, behind what is shown already. */
void session_replay(const void *at, size_t n);

/* It is over, with that exit code; the first time counts. */
void session_over(int code);
bool session_is_over(void);
/* We did not wait, nor run anything: the store need not hear of our end. */
void session_holds_nothing(void);
/* A command that is not to run twice has begun, and there is no result of it:
 * if we end now its name stays ours, and in doubt. */
void session_owes_result(bool owes);
/* Called when it is over, before what is shown is written to the end: to show
 * what was kept back. */
void session_at_end(void (*fn)(void));
/* Run until it is over, then leave what we have asked for. What we held is
 * given back, what was shown is written. Returns the exit code, or dies by the
 * signal that told us to end. */
int session_run(vow_future *asked);

#endif
