/* SPDX-License-Identifier: MIT */
/* ears.h - being told of many short-lived descriptors at little cost.
 *
 * WHY   A job brings two pipes that live for a millisecond; a handle of libuv
 *       for each would cost more system calls than the pipes themselves.
 * HOW   One epoll of our own, on which libuv listens.
 * THREADS  loop thread only; one per program.
 */
#ifndef VOW_CLI_EARS_H
#define VOW_CLI_EARS_H

#include <sys/epoll.h>
#include <vow.h>

struct ear;
/* `events` of epoll. The ear may be closed inside, others too. */
typedef void (*ear_fn)(struct ear *e, uint32_t events);

/* In the caller's memory; zeroed, it does not listen. */
struct ear {
    int fd;
    ear_fn fn;
    uint32_t events; /* 0: it does not listen */
};

void ears_open(vow_loop *loop);

/* Listen, or listen for something else; 0 stops. False for what epoll cannot
 * wait for, such as a regular file. */
bool ear_listen(struct ear *e, int fd, uint32_t events, ear_fn fn);
/* Stop, and close the descriptor. */
void ear_close(struct ear *e);

#endif
