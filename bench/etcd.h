/* SPDX-License-Identifier: MIT */
/* etcd.h - the parts of etcd.c, and the floor of the suite `etcd`: sockets that
 * block, peers/etcd.c. */
#ifndef VOW_BENCH_ETCD_H
#define VOW_BENCH_ETCD_H

#include "ours.h"

/* The port of the member that etcd.py has started. */
int server_port(void);
/* etcd_pool.c */
void bench_pool(void);

/* A connection to the gateway at 127.0.0.1. */
struct gateway;
struct gateway *gateway_open(int port);
void gateway_close(struct gateway *g);
/* POST a body, and wait for the whole answer, borrowed until the next. */
const char *gateway_post(struct gateway *g, const char *path, const char *body);

/* A lease that lasts; and the transaction that claims the name of a number, as
 * the store's own step has it: both write the same keys, and read the same if
 * the name is taken. */
long long gateway_lease(struct gateway *g);
void gateway_claim(struct gateway *g, long number, long long lease);

#endif
