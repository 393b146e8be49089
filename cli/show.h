/* SPDX-License-Identifier: MIT */
/* show.h - show the output of a runner on stdout and stderr, no byte twice.
 *
 * WHY   A process that follows a run has shown a part of the output when the
 *       runner is lost. The next runner begins again; equal output must not be
 *       shown again.
 * HOW   The shown bytes are kept. Equal bytes of a new attempt are skipped. At
 *       the first difference a message is printed, once, and the output of the
 *       new attempt is shown from there on.
 */
#ifndef VOW_CLI_SHOW_H
#define VOW_CLI_SHOW_H

#include "text.h"

/* Keeps the bytes shown on descriptor 1 or 2, at most `most`; more bytes end
 * the program. 0, the default: keeps nothing. */
void show_hold(int fd, uint64_t most);
/* Says that a new attempt, or the result, follows from the beginning. */
void show_from_start(int fd);
/* Shows bytes on descriptor 1 or 2, by emit_text(). Is a replay_fn. */
void show_bytes(int fd, const char *at, size_t n, void *unused);

#endif
