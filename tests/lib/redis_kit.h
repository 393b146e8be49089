/* SPDX-License-Identifier: MIT */
/* redis_kit.h - servers of Redis for one test: one, a master with replica and
 * Sentinels, a cluster. Each has a free port of the loopback, a socket and a
 * folder of its own, and ends with the test at the latest.
 *
 *     struct redis_server s;
 *     redis_start(&s, NULL);
 *     CHECK_STR_EQ(redis_say(&s, "SET", "a", "1", NULL), "OK");
 *     redis_stop(&s);
 *
 * A test is skipped where there is no redis-server.
 */
#ifndef TEST_REDIS_KIT_H
#define TEST_REDIS_KIT_H

#include "folder.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { REDIS_ARGS = 32, REDIS_NODES = 3, REDIS_SENTINELS = 3 };

struct redis_server {
    pid_t pid; /* 0: it does not run */
    uint16_t port;
    uint16_t bus; /* of a cluster */
    bool sentinel;
    struct folder folder;
    char socket[FOLDER_MAX + 8];
    char url[64]; /* redis://127.0.0.1:PORT */
    const char *extra[REDIS_ARGS];
    int fd; /* of redis_say(); -1: none */
    char said[64 * 1024];
};

/* Start one with more arguments, up to a NULL; it answers when this returns.
 * The arguments stay where they are. */
void redis_start(struct redis_server *s, const char *const *extra);
/* Kill it, and start it again on its port, with what is in its folder. */
void redis_kill(struct redis_server *s);
void redis_again(struct redis_server *s);
/* Kill it and remove its folder. It may be stopped already. */
void redis_stop(struct redis_server *s);

/* A free port of the loopback. */
uint16_t redis_port(void);

/* Ask it, with words up to a NULL, and wait for the answer: text as it is,
 * numbers in digits, "(nil)", of lists each item on a line, errors with a '-'
 * before them. Borrowed until the next. It connects by itself. */
const char *redis_say(struct redis_server *s, ...) __attribute__((sentinel));
/* The same on a socket, for what must not wait. */
int redis_connect(uint16_t port);
/* Ask until it answers with this text in it; fails after a minute and more. */
void redis_until(struct redis_server *s, const char *text, const char *word,
                 const char *word2, const char *word3);

/* A master, a replica and Sentinels that know it as "main". */
struct redis_watched {
    struct redis_server master, replica, sentinels[REDIS_SENTINELS];
    char url[256]; /* redis-sentinel://... */
};
void redis_watched_start(struct redis_watched *w, const char *const *extra);
void redis_watched_stop(struct redis_watched *w);

/* Masters that share the slots evenly. */
struct redis_cluster {
    struct redis_server nodes[REDIS_NODES];
    char ids[REDIS_NODES][48];
    char url[64]; /* of the first */
};
void redis_cluster_start(struct redis_cluster *c, const char *const *extra);
void redis_cluster_stop(struct redis_cluster *c);

#endif
