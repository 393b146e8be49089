/* SPDX-License-Identifier: MIT */
/* emit.h - writes to stdout and stderr, in order and without blocking.
 *
 * WHY   A slow reader, such as a pager, must not keep vow from ending a job
 *       that has run too long.
 * HOW   Pieces wait in one queue for both descriptors, so that the output of
 *       one job stays together on a terminal. A pipe or a terminal is opened
 *       once more without blocking: the flag is then set for vow alone, not for
 *       all processes that share the descriptor. Files are written by splice
 *       where splice works.
 * THREADS  loop thread only.
 */
#ifndef VOW_CLI_EMIT_H
#define VOW_CLI_EMIT_H

#include "text.h"

#include <sys/types.h>
#include <vow.h>

/* Called once when stdout or stderr cannot be written to any more; nothing is
 * written to `fd` from then on. */
typedef void (*emit_fail_fn)(int fd, int error);

/* Prepares stdout and stderr. `room`, which may be NULL, is called when few
 * bytes wait again. */
void emit_open(vow_loop *loop, emit_fail_fn failed, void (*room)(void));

/* Queues the text for descriptor 1 or 2. The text is moved: `moved` is empty
 * afterwards. */
void emit_text(int fd, struct text *moved);
/* Queues the first `n` bytes of a file. The file is moved. */
void emit_file(int fd, int file, uint64_t n);

/* Moves the content of a pipe to descriptor `fd` without copying. Returns the
 * number of bytes, 0 at the end of the pipe, or -1 and errno: EAGAIN, the pipe
 * is empty; EBUSY, other pieces come first or the reader is slow, and `room`
 * will be called; ENOSYS, splice cannot be used. */
ssize_t emit_through(int fd, int pipe);
/* Returns the bytes in memory that wait to be written. */
size_t emit_waiting(void);
/* Returns whether too much waits: the caller should not make more output. */
bool emit_behind(void);
/* Returns a future, owned, fulfilled when everything queued until now was
 * written or given up; NULL: nothing waits. */
vow_future *emit_drained(void);
/* Runs the loop until everything queued until now was written or given up. */
void emit_drain(void);
/* Gives up bytes that would have to wait for a reader, from now on. */
void emit_do_not_wait(void);

#endif
