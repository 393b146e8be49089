/* SPDX-License-Identifier: MIT */
/* session.h - a run of vow share or vow pipe: loop, store, signals and end.
 *
 * WHY   Most callers find a result and write the result: they need only the
 *       store, and signals end them as signals end cat. A waiter catches
 *       signals, to leave the wait queue of the store. Everything for commands
 *       is prepared when the first command is to run.
 * THREADS  loop thread only; a single session per program.
 */
#ifndef VOW_CLI_SESSION_H
#define VOW_CLI_SESSION_H

#include "shared_options.h"

/* Makes the loop and opens the store. If the store cannot be opened: waits for
 * the store, uses a private store, or exits, as --if-store-down says. */
void session_open(struct shared *s);
vow_loop *session_loop(void);
vow_authority *session_authority(void);
/* Returns whether the session uses a private store, without coordination. */
bool session_alone(void);

/* Returns why the store cannot be used; NULL: the store can be used, or the
 * user was told. */
const char *session_trouble(void);
/* Returns whether the store cannot be used at present. */
bool session_store_is_down(void);

/* Prepares showing output while the loop runs. */
void session_show(void);
/* Prepares running commands: from now on signals are passed to commands. */
void session_work(void);
/* To be called when a command has ended. Returns whether the session ends, so
 * the result of the command does not matter. */
bool session_ends(void);

/* Writes a whole recording to stdout and stderr, after output that was shown
 * before. */
void session_replay(const void *at, size_t n);

/* Ends the session with the exit code; only the first call counts. */
void session_over(int code);
bool session_is_over(void);
/* Says that this process neither waits nor owns: the store is not closed. */
void session_holds_nothing(void);
/* Says that a command of --once has begun and has no result yet: if the session
 * ends now, the name is not released, and is in doubt. */
void session_owes_result(bool owes);
/* Sets a function that session_run() calls at the end, to show delayed
 * output. */
void session_at_end(void (*fn)(void));
/* Runs the loop until session_over(), then cancels `asked`, closes the store
 * and writes the rest of the output. Returns the exit code, or dies by the
 * signal that ended the session. */
int session_run(vow_future *asked);

#endif
