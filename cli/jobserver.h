/* SPDX-License-Identifier: MIT */
/* jobserver.h - a place among the jobs of a `make -jN` that started us.
 *
 * WHY   Ten makes that each start ten processes are a hundred; make lends its
 *       children tokens instead.
 * HOW   We have one place for free, as every child of make, and take one more
 *       token for each further job that could start. Tokens that nobody needs
 *       go back at once, and all of them at the end. The pipe or fifo is opened
 *       once more for ourselves, without blocking, so that the flag does not
 *       reach other makes.
 * THREADS  loop thread only.
 */
#ifndef VOW_CLI_JOBSERVER_H
#define VOW_CLI_JOBSERVER_H

#include <vow.h>

/* Called when the number of places has changed. */
typedef void (*jobserver_fn)(uint32_t places);

/* True: MAKEFLAGS names a job server and it can be reached. */
bool jobserver_open(vow_loop *loop, jobserver_fn changed);
/* So many jobs run, and so many wait for nothing but a place: take or give
 * tokens accordingly. */
void jobserver_want(uint64_t running, uint64_t waiting);
/* Give all back. Does nothing without one. */
void jobserver_close(void);

#endif
