/* SPDX-License-Identifier: MIT */
/* poller.h - being told of many short-lived descriptors at little cost.
 *
 * WHY   A job brings two pipes that live for a millisecond; a handle of libuv
 *       for each would cost more system calls than the pipes themselves.
 * HOW   One epoll of our own, on which libuv listens.
 * THREADS  loop thread only; one per program.
 */
#ifndef VOW_CLI_POLLER_H
#define VOW_CLI_POLLER_H

#include <sys/epoll.h>
#include <vow.h>

struct poller;
/* `events` of epoll. The poller may be closed inside, others too. */
typedef void (*poller_fn)(struct poller *e, uint32_t events);

/* In the caller's memory; zeroed, it does not listen. */
struct poller {
    int fd;
    poller_fn fn;
    uint32_t events; /* 0: it does not listen */
};

void poller_open(vow_loop *loop);

/* Listen, or listen for something else; 0 stops. False for what epoll cannot
 * wait for, such as a regular file. */
bool poller_watch(struct poller *e, int fd, uint32_t events, poller_fn fn);
/* Stop, and close the descriptor. */
void poller_close(struct poller *e);

#endif
