/* SPDX-License-Identifier: MIT */
/* show.h - what others write, to our stdout and stderr, and nothing twice.
 *
 * WHY   Who follows a run has shown part of it when the runner is lost. The
 *       next one begins anew; if it writes the same, that is not to be seen
 *       again.
 * HOW   What was shown is held. Of a new attempt, the bytes that are the same
 *       are passed over. Where it begins to differ, that is told once, and from
 *       there on it is shown.
 */
#ifndef VOW_CLI_SHOW_H
#define VOW_CLI_SHOW_H

#include "text.h"

/* Hold what is shown on that descriptor, but not more than so many bytes;
 * 0, as in the beginning: hold nothing. */
void show_hold(int fd, uint64_t most);
/* A new attempt, or the result, from its beginning. */
void show_from_start(int fd);
/* To descriptor 1 or 2, by emit_text(); a replay_fn. */
void show_bytes(int fd, const char *at, size_t n, void *unused);

#endif
