/* SPDX-License-Identifier: MIT */
/* redis_line.h - a connection to a server that asks and waits for the answer,
 * with any bytes. */
#ifndef TEST_REDIS_LINE_H
#define TEST_REDIS_LINE_H

#include "redis_kit.h"
#include "store/redis/resp.h"
#include "world.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct redis_line {
    int fd;
    struct test_alloc alloc;
    struct vow__parser *parser;
    struct vow__buf command;
};

/* A command of so many words, which the caller adds. */
static inline struct vow__buf *redis_line_begin(struct redis_line *l,
                                                size_t words)
{
    l->command.n = 0;
    vow__command_begin(&l->command, words);
    return &l->command;
}

/* The next value, borrowed until the one after it. */
static inline const struct vow__resp *redis_line_read(struct redis_line *l)
{
    const struct vow__resp *v;
    char bytes[4096];
    int rc;
    while ((rc = vow__parser_next(l->parser, &v)) == 0) {
        ssize_t n = recv(l->fd, bytes, sizeof(bytes), 0);
        if (n <= 0)
            FAIL("the server ended, or did not answer");
        CHECK_INT_EQ(vow__parser_feed(l->parser, bytes, (size_t)n), 0);
    }
    CHECK_INT_EQ(rc, 1);
    if (v->kind == VOW__RESP_ERROR)
        FAIL("%.*s", (int)v->n, v->text);
    return v;
}

/* Send what was begun, and read. */
static inline const struct vow__resp *redis_line_ask(struct redis_line *l)
{
    CHECK(l->command.code == 0);
    CHECK(send(l->fd, l->command.bytes, l->command.n, MSG_NOSIGNAL) ==
          (ssize_t)l->command.n);
    return redis_line_read(l);
}

static inline void redis_line_open(struct redis_line *l,
                                   const struct redis_server *s)
{
    const struct vow__resp_limits limits = {.bytes = 1 << 20, .items = 1 << 16};
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = 60};
    test_alloc_init(&l->alloc);
    struct vow_alloc alloc = test_alloc_hook(&l->alloc);
    CHECK_INT_EQ(vow__parser_new(&alloc, &limits, &l->parser), 0);
    vow__command_init(&l->command, &alloc);
    l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(l->fd >= 0);
    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", s->socket);
    (void)setsockopt(l->fd, SOL_SOCKET, SO_RCVTIMEO, &patience,
                     sizeof(patience));
    CHECK(connect(l->fd, (struct sockaddr *)&a, sizeof(a)) == 0);
    struct vow__buf *c = redis_line_begin(l, 2);
    vow__command_text(c, "HELLO");
    vow__command_text(c, "3");
    (void)redis_line_ask(l);
}

static inline void redis_line_close(struct redis_line *l)
{
    close(l->fd);
    vow__parser_free(l->parser);
    vow__buf_fini(&l->command);
    test_alloc_fini(TEST_HERE, &l->alloc);
}

#endif
