/* SPDX-License-Identifier: MIT */
/* jobserver.h - takes part in the job server of the `make -jN` above vow.
 *
 * WHY   Ten makes that each start ten processes are a hundred; make lends
 *       tokens to its children instead.
 * HOW   vow may run one job without a token, as every child of make may, and
 *       takes a token for each further job that could start. Unused tokens go
 *       back at once, and all tokens at the end. The pipe or fifo is opened
 *       once more without blocking, so that the flag does not reach other
 *       makes.
 * THREADS  loop thread only.
 */
#ifndef VOW_CLI_JOBSERVER_H
#define VOW_CLI_JOBSERVER_H

#include <vow.h>

/* Called when the number of jobs allowed to run has changed. */
typedef void (*jobserver_fn)(uint32_t places);

/* Opens the job server named by MAKEFLAGS. Returns whether a job server was
 * found and can be reached. */
bool jobserver_open(vow_loop *loop, jobserver_fn changed);
/* Takes or gives back tokens, for `running` jobs and `waiting` jobs with
 * nothing but a token missing. */
void jobserver_want(uint64_t running, uint64_t waiting);
/* Gives back all tokens. Does nothing without a job server. */
void jobserver_close(void);

#endif
