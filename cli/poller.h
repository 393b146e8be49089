/* SPDX-License-Identifier: MIT */
/* poller.h - watches many short-lived descriptors at little cost.
 *
 * WHY   A job brings two pipes that live for a millisecond; a handle of libuv
 *       for each pipe would cost more system calls than the pipes.
 * HOW   One epoll descriptor for all pollers; libuv watches this descriptor.
 * THREADS  loop thread only; one epoll descriptor per program.
 */
#ifndef VOW_CLI_POLLER_H
#define VOW_CLI_POLLER_H

#include <sys/epoll.h>
#include <vow.h>

struct poller;
/* Called with the events of epoll. The function may close this poller and
 * others. */
typedef void (*poller_fn)(struct poller *p, uint32_t events);

/* A watched descriptor, in the caller's memory; zeroed: not watched. */
struct poller {
    int fd;
    poller_fn fn;
    uint32_t events; /* watched events of epoll; 0: not watched */
};

void poller_open(vow_loop *loop);

/* Watches the descriptor for these events, instead of the events before; 0
 * stops watching. Returns false if epoll cannot wait for the file, as for a
 * regular file. */
bool poller_watch(struct poller *p, int fd, uint32_t events, poller_fn fn);
/* Stops watching, and closes the descriptor. */
void poller_close(struct poller *p);

#endif
