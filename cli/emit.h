/* SPDX-License-Identifier: MIT */
/* emit.h - writing to stdout and stderr, in order and without ever waiting.
 *
 * WHY   A reader that is slow, such as a pager, must not keep us from ending a
 *       job that is over its time.
 * HOW   Pieces wait in one queue for both, so that what one job wrote stays
 *       together on a terminal. A pipe or a terminal is opened once more for
 *       ourselves, without blocking: the flag is then ours alone, not of all
 *       who share the descriptor. Files are written by splice where that works.
 * THREADS  loop thread only.
 */
#ifndef VOW_CLI_EMIT_H
#define VOW_CLI_EMIT_H

#include "text.h"

#include <sys/types.h>
#include <vow.h>

/* Called once when stdout or stderr cannot be written to any more; nothing is
 * written there from then on. */
typedef void (*emit_fail_fn)(int fd, int error);

/* `room` is called when little waits again; may be NULL. */
void emit_open(vow_loop *loop, emit_fail_fn failed, void (*room)(void));

/* To descriptor 1 or 2. The text is moved: it is empty afterwards. */
void emit_text(int fd, struct text *moved);
/* `n` bytes of a file from its beginning. The file is moved. */
void emit_file(int fd, int file, uint64_t n);

/* Hand on what is in a pipe without touching it: how many bytes, 0 at its end,
 * or -1 and errno. EAGAIN: it is empty. EBUSY: others come first, or there is
 * no room now, of which `room` will tell. ENOSYS: it cannot be done. */
ssize_t emit_through(int fd, int pipe);
/* Bytes in memory that wait. */
size_t emit_waiting(void);
/* Does so much wait that no more should be made? */
bool emit_behind(void);
/* A future, owned, of all that waits now having been written (or given up);
 * NULL: nothing waits. */
vow_future *emit_drained(void);
/* Run the loop until all that waits now was written (or given up). */
void emit_drain(void);
/* From now on, what would have to wait for a reader is given up. */
void emit_do_not_wait(void);

#endif
